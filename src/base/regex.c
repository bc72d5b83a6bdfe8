/* Regular expressions by PCRE2, with limits on pattern, time and depth. */
#include "base/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <string.h>

#include "base/mem.h"
#include "base/str.h"

enum {
    PATTERN_MAX = 64 << 10,
    MATCH_LIMIT = 1000000, /* backtracking steps: about 10 ms, then an error */
    DEPTH_LIMIT = 100000,
    HEAP_LIMIT_KIB = 64 << 10,
    NEST_LIMIT = 100, /* nesting of parentheses, at compile time */
    JIT_STACK_MAX = 8 << 20,
    WHAT_MAX = 128,
};

struct regex {
    pcre2_general_context *memory;
    pcre2_compile_context *compile;
    pcre2_match_context *match;
    pcre2_jit_stack *stack;
    pcre2_match_data *data;
    pcre2_code *code;
    char what[WHAT_MAX];
};

static void *regex_alloc(size_t n, void *ctx)
{
    (void)ctx;
    return mem_alloc(n, 1);
}

static void regex_dealloc(void *p, void *ctx)
{
    (void)ctx;
    mem_free(p);
}

/* "(?R)", "(?1)", "(?+1)", "(?&name)", "(?P>name)": calls of a group, which may call itself. */
static int is_call(const char *p, size_t n)
{
    if (n < 3 || p[0] != '(' || p[1] != '?')
        return 0;
    if (p[2] == 'R' || p[2] == '&' || (p[2] >= '0' && p[2] <= '9'))
        return 1;
    if (n > 3 && (p[2] == '+' || p[2] == '-') && p[3] >= '0' && p[3] <= '9')
        return 1;
    return n > 3 && p[2] == 'P' && p[3] == '>';
}

/* Copies the pattern with \s and \S replaced by Unicode properties: PCRE2 counts U+180E as a space,
 * Oniguruma does not.  Rejects recursion, for which PCRE2 has no option. */
static int rewrite(struct str *out, const char *p, size_t n, struct err *e)
{
    int quoted = 0, in_class = 0;
    for (size_t i = 0; i < n; i++) {
        if (p[i] == '\\' && i + 1 < n) {
            char c = p[++i];
            if (quoted ? c == 'E' : c == 'Q')
                quoted = !quoted;
            if (!quoted && c == 'g' && i + 1 < n && (p[i + 1] == '<' || p[i + 1] == '\''))
                return err_set(e, DS_EFORMAT, "unsupported recursion at offset %zu", i - 1);
            if (!quoted && (c == 's' || c == 'S')) {
                str_add(out, c == 's' ? "\\p{White_Space}" : "\\P{White_Space}");
                continue;
            }
            str_add_bytes(out, p + i - 1, 2);
            if (!quoted && c == 'c' && i + 1 < n)
                str_add_char(out, p[++i]);
            continue;
        }
        if (!quoted && !in_class && is_call(p + i, n - i))
            return err_set(e, DS_EFORMAT, "unsupported recursion at offset %zu", i);
        if (!quoted && p[i] == '[' && !in_class) {
            in_class = 1;
            str_add_char(out, '[');
            if (i + 1 < n && p[i + 1] == '^')
                str_add_char(out, p[++i]);
            if (i + 1 < n && p[i + 1] == ']') /* a literal ] at the start */
                str_add_char(out, p[++i]);
            continue;
        }
        if (!quoted && in_class && p[i] == '[' && i + 1 < n && p[i + 1] == ':') {
            /* [:name:] inside a class: its ] does not end the class */
            const char *end = memchr(p + i + 2, ':', n - i - 2);
            if (end && end + 1 < p + n && end[1] == ']') {
                str_add_bytes(out, p + i, (size_t)(end + 2 - (p + i)));
                i = (size_t)(end + 1 - p);
                continue;
            }
        }
        if (!quoted && in_class && p[i] == ']')
            in_class = 0;
        str_add_char(out, p[i]);
    }
    return out->failed ? err_set(e, DS_EMEM, "out of memory") : 0;
}

static int compile(struct regex *r, const struct str *text, struct err *e)
{
    int number;
    PCRE2_SIZE at;
    unsigned char message[160] = "";
    uint32_t options = PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C;
    r->code =
        pcre2_compile((PCRE2_SPTR)str_text(text), text->len, options, &number, &at, r->compile);
    if (!r->code && (number == PCRE2_ERROR_HEAP_FAILED || number == PCRE2_ERROR_NOMEMORY))
        return err_set(e, DS_EMEM, "out of memory");
    if (!r->code) {
        pcre2_get_error_message(number, message, sizeof message);
        return err_set(e, DS_EFORMAT, "invalid pattern at offset %zu: %s", (size_t)at,
                       (const char *)message);
    }
    /* Without JIT the slower interpreter is used. */
    (void)pcre2_jit_compile(r->code, PCRE2_JIT_COMPLETE);
    r->data = pcre2_match_data_create_from_pattern(r->code, r->memory);
    return r->data ? 0 : err_set(e, DS_EMEM, "out of memory");
}

static int make_contexts(struct regex *r, struct err *e)
{
    r->memory = pcre2_general_context_create(regex_alloc, regex_dealloc, NULL);
    if (r->memory) {
        r->compile = pcre2_compile_context_create(r->memory);
        r->match = pcre2_match_context_create(r->memory);
        r->stack = pcre2_jit_stack_create(32 << 10, JIT_STACK_MAX, r->memory);
    }
    if (!r->compile || !r->match)
        return err_set(e, DS_EMEM, "out of memory");
    pcre2_set_parens_nest_limit(r->compile, NEST_LIMIT);
    pcre2_set_match_limit(r->match, MATCH_LIMIT);
    pcre2_set_depth_limit(r->match, DEPTH_LIMIT);
    pcre2_set_heap_limit(r->match, HEAP_LIMIT_KIB);
    if (r->stack)
        pcre2_jit_stack_assign(r->match, NULL, r->stack);
    return 0;
}

int regex_new(struct regex **out, const char *pattern, size_t n, const char *what, struct err *e)
{
    struct str text = {0};
    struct regex *r;
    int rc;
    if (n > PATTERN_MAX)
        return err_set(e, DS_EFORMAT, "%s: pattern of %zu bytes, must be at most %d", what, n,
                       PATTERN_MAX);
    r = mem_alloc(1, sizeof *r);
    if (!r)
        return err_set(e, DS_EMEM, "%s: out of memory", what);
    str_copy(r->what, sizeof r->what, what);
    rc = rewrite(&text, pattern, n, e);
    if (rc == 0)
        rc = make_contexts(r, e);
    if (rc == 0)
        rc = compile(r, &text, e);
    if (rc == 0)
        *out = r;
    else
        regex_free(r);
    str_release(&text);
    return rc == 0 ? 0 : err_add(e, rc, "%s", what);
}

int regex_next(struct regex *r, const char *s, size_t n, size_t from, int valid, size_t *start,
               size_t *end, struct err *e)
{
    unsigned char message[160] = "";
    if (from > n)
        return 0;
    int rc = pcre2_match(r->code, (PCRE2_SPTR)(n ? s : ""), n, from, valid ? PCRE2_NO_UTF_CHECK : 0,
                         r->data, r->match);
    if (rc >= 0) {
        const PCRE2_SIZE *at = pcre2_get_ovector_pointer(r->data);
        /* \K in a lookaround can place the start after the end. */
        *start = at[0] < at[1] ? at[0] : at[1];
        *end = at[1];
        return 1;
    }
    if (rc == PCRE2_ERROR_NOMATCH)
        return 0;
    if (rc == PCRE2_ERROR_NOMEMORY)
        return err_set(e, DS_EMEM, "%s: out of memory", r->what);
    pcre2_get_error_message(rc, message, sizeof message);
    if (rc <= PCRE2_ERROR_UTF8_ERR1 && rc >= PCRE2_ERROR_UTF8_ERR21)
        return err_set(e, DS_EFORMAT, "%s: invalid UTF-8 at offset %zu: %s", r->what,
                       (size_t)pcre2_get_startchar(r->data), (const char *)message);
    return err_set(e, DS_ERANGE, "%s: pattern exceeds the matching limits: %s", r->what,
                   (const char *)message);
}

void regex_free(struct regex *r)
{
    if (!r)
        return;
    pcre2_code_free(r->code);
    pcre2_match_data_free(r->data);
    pcre2_jit_stack_free(r->stack);
    pcre2_match_context_free(r->match);
    pcre2_compile_context_free(r->compile);
    pcre2_general_context_free(r->memory);
    mem_free(r);
}
