/* A record of the stream as one line of JSON, for scripts. */
#include "cli/record_json.h"

#include <inttypes.h>
#include <math.h>

#include "base/json.h"

/* JSON has no such numbers; io/FORMATS.md allows these strings in their place. */
void cli_add_json_real(struct str *out, double x)
{
    if (isfinite(x))
        str_add_real(out, x);
    else
        str_add(out, isnan(x) ? "\"NaN\"" : x > 0 ? "\"Inf\"" : "\"-Inf\"");
}

static void add_floats(struct str *out, struct value v, size_t n)
{
    const unsigned char *p = (const unsigned char *)value_bytes(v, NULL);
    for (size_t i = 0; i < n; i++) {
        union {
            uint32_t bits;
            float x;
        } u = {.bits = (uint32_t)p[4 * i] | (uint32_t)p[4 * i + 1] << 8 |
                       (uint32_t)p[4 * i + 2] << 16 | (uint32_t)p[4 * i + 3] << 24};
        str_add(out, i ? "," : "");
        if (isfinite(u.x))
            str_add_real32(out, u.x);
        else
            cli_add_json_real(out, (double)u.x);
    }
}

/* A bin is a piece of text inside an array, and a vector elsewhere: the decisions `run` of bytes, any
 * other of fp32. */
static void add_bin(struct str *out, struct value key, struct value v)
{
    size_t n;
    const char *p = value_bytes(v, &n);
    if (value_kind(key) != VALUE_STR || (n % 4 && !value_is(key, "run"))) {
        str_add_json(out, p, n);
        return;
    }
    str_add(out, "[");
    if (value_is(key, "run"))
        for (size_t i = 0; i < n; i++)
            str_addf(out, "%s%d", i ? "," : "", (unsigned char)p[i]);
    else
        add_floats(out, v, n / 4);
    str_add(out, "]");
}

static void add_value(struct str *out, struct value key, struct value v)
{
    struct value_iter it = {0};
    struct value k, item;
    enum value_kind kind = value_kind(v);
    size_t n = 0;
    const char *text;
    switch (kind) {
    case VALUE_BOOL: str_add(out, value_num(v, 0) > 0 ? "true" : "false"); break;
    case VALUE_INT: /* beyond 63 bits: the nearest real */
        if (value_int(v, INT64_MAX) < INT64_MAX)
            str_addf(out, "%" PRId64, value_int(v, 0));
        else
            str_add_real(out, value_num(v, 0));
        break;
    case VALUE_REAL: cli_add_json_real(out, value_num(v, 0)); break;
    case VALUE_STR:
        text = value_bytes(v, &n);
        str_add_json(out, text, n);
        break;
    case VALUE_BIN: add_bin(out, key, v); break;
    case VALUE_ARRAY:
        for (str_add(out, "["); value_next(v, &it, NULL, &item); n++) {
            str_add(out, n ? "," : "");
            add_value(out, (struct value){0}, item);
        }
        str_add(out, "]");
        break;
    case VALUE_MAP:
        for (str_add(out, "{"); value_next(v, &it, &k, &item);) {
            size_t len = 0;
            text = value_bytes(k, &len);
            if (!text)
                continue; /* JSON's keys are strings */
            str_add(out, n++ ? "," : "");
            str_add_json(out, text, len);
            str_add(out, ":");
            add_value(out, k, item);
        }
        str_add(out, "}");
        break;
    default: str_add(out, "null"); break;
    }
}

void cli_add_record(struct str *out, const struct runlog_entry *entry)
{
    if (!entry->is_gap) {
        add_value(out, (struct value){0}, entry->body);
    } else {
        str_add(out, "{");
        json_add_str(out, "kind", entry->is_reset ? "reset" : "gap");
        json_add_int(out, "bytes", (int64_t)entry->gap_bytes);
        json_add_int(out, "lost", (int64_t)entry->lost);
        str_add(out, "}");
    }
    str_add(out, "\n");
}
