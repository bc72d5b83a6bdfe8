/* Appends JSON to a string, member by member. */
#include <string.h>

#include "base/json.h"

void json_key(struct str *s, const char *key)
{
    if (s->len > 0 && s->p[s->len - 1] != '{' && s->p[s->len - 1] != '[')
        str_add(s, ",");
    if (key) {
        str_add_json(s, key, strlen(key));
        str_add(s, ":");
    }
}

void json_add_num(struct str *s, const char *key, double v)
{
    json_key(s, key);
    str_add_json_num(s, v);
}

void json_add_int(struct str *s, const char *key, int64_t v)
{
    json_key(s, key);
    str_addf(s, "%lld", (long long)v);
}

void json_add_str(struct str *s, const char *key, const char *v)
{
    json_key(s, key);
    str_add_json(s, v, strlen(v));
}

void json_add_nums(struct str *s, const char *key, const double *v, size_t n)
{
    json_key(s, key);
    str_add(s, "[");
    for (size_t i = 0; i < n; i++)
        json_add_num(s, NULL, v[i]);
    str_add(s, "]");
}

void json_add_ids(struct str *s, const char *key, const int32_t *v, size_t n)
{
    json_key(s, key);
    str_add(s, "[");
    for (size_t i = 0; i < n; i++)
        json_add_int(s, NULL, v[i]);
    str_add(s, "]");
}
