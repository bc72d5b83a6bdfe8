/* Parses, checks and prints option values according to their table rows. */
#include "base/opt.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/decimal.h"
#include "base/mem.h"
#include "base/str.h"

/* The address of a value in the module's struct. */
static void *place(const struct opt *o, void *values)
{
    return (char *)values + o->offset;
}

static const void *place_const(const struct opt *o, const void *values)
{
    return (const char *)values + o->offset;
}

static int bad(struct err *e, int code, const char *where, const char *prefix, const struct opt *o,
               const char *what)
{
    return err_set(e, code, "%s%s%s%s: %s", where ? where : "", where ? ": " : "", prefix, o->key,
                   what);
}

int opt_is_limited(const struct opt *o)
{
    return o->min < o->max || (o->min == o->max && o->min != 0);
}

/* "a|b|c": the index of the first `len` bytes of text, or -1. */
static int choice_index(const char *choices, const char *text, size_t len)
{
    int i = 0;
    for (const char *p = choices; *p; i++) {
        size_t n = strcspn(p, "|");
        if (n == len && memcmp(p, text, n) == 0)
            return i;
        p += n + (p[n] == '|');
    }
    return -1;
}

/* The same for an earlier spelling of a choice. */
static int former_index(const struct opt *o, const char *text)
{
    size_t len = strlen(text);
    for (const char *p = o->former ? o->former : ""; *p; p += strspn(p, " ")) {
        size_t n = strcspn(p, " "), old = strcspn(p, "=");
        if (old == len && memcmp(p, text, len) == 0)
            return choice_index(o->choices, p + old + 1, n - old - 1);
        p += n;
    }
    return -1;
}

/* Accepts decimal numbers only; the C library would also accept hex, "inf" and spaces. */
static int parse_real(const char *text, double *x)
{
    char *end;
    if (!*text || text[strspn(text, "+-.0123456789eE")])
        return 0;
    *x = strtod(text, &end);
    return *end == '\0' && end != text;
}

/* 1 when parsed, 0 not an integer, -1 too large.  "1e6" is an integer too. */
static int parse_int(const char *text, int64_t *x)
{
    char *end;
    double real;
    if (!parse_real(text, &real))
        return 0;
    errno = 0;
    long long whole = strtoll(text, &end, 10);
    if (*end == '\0') {
        *x = whole;
        return errno == ERANGE ? -1 : 1;
    }
    if (real != floor(real))
        return isinf(real) ? -1 : 0;
    if (fabs(real) > 9007199254740992.0)
        return -1;
    *x = (int64_t)real;
    return 1;
}

static int parse_bool(const char *text, int *x)
{
    static const char *const words[] = {"false", "true", "no", "yes", "off", "on", "0", "1"};
    for (size_t i = 0; i < DS_LEN(words); i++)
        if (strcasecmp(text, words[i]) == 0) {
            *x = i % 2;
            return 1;
        }
    return 0;
}

static int set_number(const struct opt *o, const char *prefix, void *values, const char *text,
                      const char *where, struct err *e)
{
    char what[200];
    int64_t whole = 0;
    double real = 0;
    int ok;
    if (o->type == OPT_INT) {
        ok = parse_int(text, &whole);
        real = (double)whole;
    } else {
        ok = parse_real(text, &real);
        if (ok && !isfinite(real))
            ok = -1;
    }
    if (ok == 0) {
        snprintf(what, sizeof what, "'%.80s': must be %s", text,
                 o->type == OPT_INT ? "an integer" : "a number");
        return bad(e, DS_EUSAGE, where, prefix, o, what);
    }
    if (ok < 0 || (opt_is_limited(o) && !(real >= o->min && real <= o->max))) {
        if (opt_is_limited(o))
            snprintf(what, sizeof what, "%.80s: must be %.10g to %.10g", text, o->min, o->max);
        else
            snprintf(what, sizeof what, "%.80s is too large", text);
        return bad(e, DS_ERANGE, where, prefix, o, what);
    }
    if (o->type == OPT_INT)
        *(int64_t *)place(o, values) = whole;
    else
        *(double *)place(o, values) = real;
    return 0;
}

static int set_string(const struct opt *o, const char *prefix, void *values, const char *text,
                      const char *where, struct err *e)
{
    char **p = place(o, values);
    size_t n = strlen(text);
    int is_bracketed = o->is_list && n > 1 && text[0] == '[' && text[n - 1] == ']';
    char *copy = is_bracketed ? mem_dup(text + 1, n - 1) : mem_strdup(text);
    if (!copy)
        return bad(e, DS_EMEM, where, prefix, o, "out of memory");
    if (is_bracketed)
        copy[n - 2] = '\0';
    mem_free(*p);
    *p = copy;
    return 0;
}

int opt_set_named(const struct opt *o, const char *prefix, void *values, const char *text,
                  const char *where, struct err *e)
{
    char what[300];
    int index;
    switch (o->type) {
    case OPT_INT:
    case OPT_REAL: return set_number(o, prefix, values, text, where, e);
    case OPT_STRING: return set_string(o, prefix, values, text, where, e);
    case OPT_BOOL:
        if (parse_bool(text, place(o, values)))
            return 0;
        snprintf(what, sizeof what, "'%.80s': must be true or false", text);
        return bad(e, DS_EUSAGE, where, prefix, o, what);
    case OPT_ENUM:
        index = choice_index(o->choices, text, strlen(text));
        if (index < 0)
            index = former_index(o, text);
        if (index >= 0) {
            *(int *)place(o, values) = index;
            return 0;
        }
        snprintf(what, sizeof what, "'%.80s': must be one of %.200s", text, o->choices);
        return bad(e, DS_EUSAGE, where, prefix, o, what);
    }
    return bad(e, DS_EUSAGE, where, prefix, o, "unknown type");
}

int opt_set_number(const struct opt *o, const char *prefix, void *values, double value,
                   struct err *e)
{
    char text[DECIMAL_TEXT];
    decimal_print(value, text);
    return opt_set_named(o, prefix, values, text, NULL, e);
}

int opt_set(const struct opt *o, void *values, const char *text, const char *where, struct err *e)
{
    return opt_set_named(o, "", values, text, where, e);
}

/* The initial value of an option without a default. */
static const char *default_text(const struct opt *o, char first[64])
{
    if (o->otherwise)
        return o->otherwise;
    if (o->type == OPT_STRING)
        return "";
    if (o->type != OPT_ENUM)
        return "0";
    snprintf(first, 64, "%.*s", (int)strcspn(o->choices, "|"), o->choices);
    return first;
}

int opt_defaults(const struct opt_group *g, void *values, struct err *e)
{
    for (size_t i = 0; i < g->n; i++) {
        char first[64];
        struct err local;
        const char *text = default_text(&g->opts[i], first);
        int rc = opt_set_named(&g->opts[i], g->prefix, values, text, "default", &local);
        if (rc == DS_EMEM)
            return err_set(e, rc, "%s", local.text);
        BUG_IF(rc < 0, "%s", local.text);
    }
    return 0;
}

static void print_choice(const char *choices, int index, char *out, size_t size)
{
    const char *p = choices;
    for (int i = 0; i < index && *p; i++)
        p += strcspn(p, "|") + (p[strcspn(p, "|")] == '|');
    snprintf(out, size, "%.*s", (int)strcspn(p, "|"), p);
}

void opt_print(const struct opt *o, const void *values, char *out, size_t size)
{
    const void *p = place_const(o, values);
    const char *text;
    char number[DECIMAL_TEXT];
    switch (o->type) {
    case OPT_INT: snprintf(out, size, "%" PRId64, *(const int64_t *)p); break;
    case OPT_REAL:
        decimal_print(*(const double *)p, number);
        str_copy(out, size, number);
        break;
    case OPT_BOOL: str_copy(out, size, *(const int *)p ? "true" : "false"); break;
    case OPT_ENUM: print_choice(o->choices, *(const int *)p, out, size); break;
    case OPT_STRING:
        text = *(char *const *)p;
        str_copy(out, size, text ? text : "");
        break;
    }
}

const char *opt_text(const struct opt *o, const void *values, char *space, size_t size)
{
    const char *text;
    if (o->type == OPT_STRING) {
        text = *(char *const *)place_const(o, values);
        return text ? text : "";
    }
    opt_print(o, values, space, size);
    return space;
}

int opt_alias(const struct opt *o, int i, char *out, size_t size)
{
    const char *at = o->alias ? o->alias : "";
    for (;; i--) {
        size_t n = strcspn(at, " ");
        if (n == 0)
            return 0;
        if (i == 0) {
            snprintf(out, size, "%.*s", (int)n, at);
            return 1;
        }
        at += n + (at[n] == ' ');
    }
}

static int has_alias(const struct opt *o, const char *key)
{
    char name[128];
    for (int i = 0; opt_alias(o, i, name, sizeof name); i++)
        if (strcmp(name, key) == 0)
            return 1;
    return 0;
}

const struct opt *opt_find(const struct opt_group *g, const char *full_key)
{
    size_t n = strlen(g->prefix);
    int has_prefix = strncmp(full_key, g->prefix, n) == 0;
    for (size_t i = 0; i < g->n; i++) {
        const struct opt *o = &g->opts[i];
        if ((has_prefix && strcmp(o->key, full_key + n) == 0) || has_alias(o, full_key))
            return o;
    }
    return NULL;
}

void opt_release(const struct opt_group *g, void *values)
{
    for (size_t i = 0; i < g->n; i++) {
        if (g->opts[i].type != OPT_STRING)
            continue;
        char **p = place(&g->opts[i], values);
        mem_free(*p);
        *p = NULL;
    }
}
