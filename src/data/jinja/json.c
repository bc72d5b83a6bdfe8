/* The filter tojson: a value as JSON, as json.dumps of Python writes it with ensure_ascii=False. */
#include <inttypes.h>
#include <stdio.h>

#include "impl.h"

enum { NESTED_MAX = 100 };

/* The text so far, and where each byte of it comes from. */
struct writing {
    struct run *r;
    struct str out, from;
};

static void put(struct writing *w, const char *p, size_t n, uint8_t from)
{
    str_add_bytes(&w->out, p, n);
    for (size_t i = 0; i < n; i++)
        str_add_char(&w->from, (char)from);
}

static void put_own(struct writing *w, const char *s)
{
    put(w, s, strlen(s), 0);
}

static void put_text(struct writing *w, struct jinja_text t)
{
    static const char special[] = "\"\\\n\r\t\f\b", escape[] = "\"\\nrtfb";
    char code[8];
    put_own(w, "\"");
    for (size_t i = 0; i < t.n; i++) {
        unsigned char c = (unsigned char)t.p[i];
        const char *at = c ? strchr(special, c) : NULL;
        size_t n = 1;
        code[0] = t.p[i];
        if (at)
            n = (size_t)snprintf(code, sizeof code, "\\%c", escape[at - special]);
        else if (c < ' ')
            n = (size_t)snprintf(code, sizeof code, "\\u%04x", c);
        put(w, code, n, t.from ? t.from[i] : 0);
    }
    put_own(w, "\"");
}

static void put_value(struct writing *w, struct jinja_value v, int depth)
{
    char number[24];
    size_t n = v.kind == JINJA_LIST ? v.list->n : v.kind == JINJA_DICT ? v.dict->n : 0;
    int is_list = v.kind == JINJA_LIST;
    if (depth > NESTED_MAX) {
        run_fail(w->r, "tojson: more than %d levels", (int)NESTED_MAX);
        return;
    }
    switch (v.kind) {
    case JINJA_NONE: put_own(w, "null"); return;
    case JINJA_BOOL: put_own(w, v.i ? "true" : "false"); return;
    case JINJA_INT:
        snprintf(number, sizeof number, "%" PRId64, v.i);
        put_own(w, number);
        return;
    case JINJA_TEXT: put_text(w, v.s); return;
    default: break;
    }
    if (is_list ? v.list->is_once : v.kind != JINJA_DICT || v.dict->is_namespace) {
        run_fail(w->r, "unsupported operand or argument of \"tojson\"");
        return;
    }
    put_own(w, is_list ? "[" : "{");
    for (size_t i = 0; i < n && w->r->rc == 0; i++) {
        put_own(w, i ? ", " : "");
        if (!is_list) {
            put_text(w, v.dict->v[i].key);
            put_own(w, ": ");
        }
        put_value(w, is_list ? v.list->v[i] : v.dict->v[i].value, depth + 1);
    }
    put_own(w, is_list ? "]" : "}");
}

struct jinja_value value_json(struct run *r, struct jinja_value v)
{
    struct writing w = {.r = r};
    put_value(&w, v, 0);
    v = r->rc == 0 ? text_of_strings(r, &w.out, &w.from) : UNDEFINED;
    str_release(&w.out);
    str_release(&w.from);
    return v;
}
