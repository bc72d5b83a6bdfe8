/* Copies text out of records, for the run view. */
#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "io/runview_parts.h"

char *text_copy(struct value v, size_t max)
{
    size_t n = 0;
    const char *p = value_bytes(v, &n);
    const char *nul = p ? memchr(p, '\0', n) : NULL;
    n = nul ? (size_t)(nul - p) : n;
    n = n < max ? n : max;
    char *copy = mem_alloc(n + 1, 1);
    if (copy && n)
        memcpy(copy, p, n);
    return copy;
}

int name_copy(char out[64], struct value key)
{
    size_t n = 0;
    const char *p = value_kind(key) == VALUE_STR ? value_bytes(key, &n) : NULL;
    if (!p || n == 0 || n > 63 || memchr(p, '\0', n) || utf8_valid(p, n) != n)
        return 0;
    memcpy(out, p, n);
    out[n] = '\0';
    return 1;
}

void vector_clear(struct vector *x)
{
    mem_free(x->name);
    mem_free(x->help);
    mem_free(x->v);
}

void vectors_release(struct vector *x, int n)
{
    for (int i = 0; i < n; i++)
        vector_clear(&x[i]);
    mem_free(x);
}

int vector_read(struct vector *out, const char *name, struct value v, size_t max)
{
    double x;
    int64_t n = value_is_num(v, &x) ? 1 : value_f32s(v, NULL, 0);
    if (n < 0 || (uint64_t)n > max)
        return DS_EFORMAT;
    struct vector r = {.name = mem_strdup(name), .help = mem_strdup("")};
    r.v = mem_alloc((size_t)n + 1, sizeof *r.v);
    r.n = (int)n;
    if (!r.name || !r.help || !r.v) {
        vector_clear(&r);
        return DS_EMEM;
    }
    if (value_is_num(v, &x))
        r.v[0] = (float)x;
    else if (value_f32s(v, r.v, (size_t)n) != n)
        r.n = 0;
    *out = r;
    return 0;
}
