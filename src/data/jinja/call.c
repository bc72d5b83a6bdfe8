/* The filters, methods, tests and functions that templates can use. */
#include <stdio.h>
#include <time.h>

#include "impl.h"

enum { RANGE_MAX = 10000 };

static struct jinja_value wrong(struct run *r, const char *what)
{
    return run_fail(r, "unsupported operand or argument of \"%s\"", what);
}

/* Argument i, or that with this name; UNDEFINED if there is none. */
static struct jinja_value argument(const struct args *a, size_t i, const char *name)
{
    for (size_t k = 0; k < a->n_named; k++)
        if (text_is(a->name[k], name))
            return a->named[k];
    return i < a->n && i < JINJA_ARGS ? a->v[i] : UNDEFINED;
}

/* ---- texts ---- */

static struct jinja_value strip_ends(struct run *r, struct jinja_value v, struct args *a, int left,
                                     int right)
{
    struct jinja_value chars = argument(a, 0, "chars");
    if (chars.kind == JINJA_TEXT)
        return TEXT(jinja_strip(v.s, &chars.s, left, right));
    if (chars.kind != JINJA_UNDEFINED && chars.kind != JINJA_NONE)
        return wrong(r, "strip");
    return TEXT(jinja_strip(v.s, NULL, left, right));
}

static struct jinja_value do_strip(struct run *r, struct jinja_value v, struct args *a)
{
    return strip_ends(r, v, a, 1, 1);
}

static struct jinja_value do_lstrip(struct run *r, struct jinja_value v, struct args *a)
{
    return strip_ends(r, v, a, 1, 0);
}

static struct jinja_value do_rstrip(struct run *r, struct jinja_value v, struct args *a)
{
    return strip_ends(r, v, a, 0, 1);
}

/* Parts without white space. */
static struct jinja_value words_of(struct run *r, struct jinja_text s)
{
    struct jinja_value list = jinja_list_new(r->j);
    s = jinja_strip(s, NULL, 1, 1);
    for (size_t from = 0, at = 0, k; at < s.n; at += k) {
        k = text_char(s, at);
        int is_space = jinja_strip(text_part(s, at, k), NULL, 1, 1).n == 0;
        if (is_space && at > from)
            jinja_append(r->j, list, TEXT(text_part(s, from, at - from)));
        else if (at + k == s.n)
            jinja_append(r->j, list, TEXT(text_part(s, from, s.n - from)));
        from = is_space ? at + k : from;
    }
    return list;
}

static struct jinja_value do_split(struct run *r, struct jinja_value v, struct args *a)
{
    struct jinja_value sep = argument(a, 0, "sep"), most = argument(a, 1, "maxsplit");
    struct jinja_value list = jinja_list_new(r->j);
    int64_t left = most.kind == JINJA_INT && most.i >= 0 ? most.i : INT64_MAX;
    if ((sep.kind == JINJA_UNDEFINED || sep.kind == JINJA_NONE) && left == INT64_MAX)
        return words_of(r, v.s);
    if (sep.kind != JINJA_TEXT || sep.s.n == 0)
        return wrong(r, "split");
    size_t from = 0, at;
    for (; left > 0 && (at = text_find(v.s, sep.s, from)) <= v.s.n; from = at + sep.s.n, left--)
        jinja_append(r->j, list, TEXT(text_part(v.s, from, at - from)));
    jinja_append(r->j, list, TEXT(text_part(v.s, from, v.s.n - from)));
    return list;
}

/* The texts of a list with `between` between them, copied once. */
static struct jinja_value joined(struct run *r, const struct jinja_list *l,
                                 struct jinja_text between)
{
    size_t n = 0, at = 0;
    for (size_t i = 0; i < l->n && r->rc == 0; i++)
        n += value_text(r, l->v[i]).n + (i > 0 ? between.n : 0);
    char *p = r->rc == 0 ? jinja_alloc(r->j, n, 2) : NULL;
    for (size_t i = 0; p && i < l->n; i++)
        for (int is_text = i == 0; is_text < 2; is_text++) {
            struct jinja_text t = is_text ? value_text(r, l->v[i]) : between;
            if (t.n > 0)
                memcpy(p + at, t.p, t.n);
            if (t.from)
                memcpy(p + n + at, t.from, t.n);
            at += t.n;
        }
    return p ? TEXT(((struct jinja_text){p, (uint8_t *)p + n, n})) : TEXT(text_from(""));
}

static struct jinja_value do_replace(struct run *r, struct jinja_value v, struct args *a)
{
    struct jinja_value old = argument(a, 0, "old"), new = argument(a, 1, "new");
    struct jinja_value most = argument(a, 2, "count"), list;
    if (old.kind != JINJA_TEXT || old.s.n == 0 || new.kind != JINJA_TEXT)
        return wrong(r, "replace");
    struct args parts = {.v = {old, most.kind == JINJA_INT ? most : INT(-1)}, .n = 2};
    list = do_split(r, v, &parts);
    return list.kind == JINJA_LIST ? joined(r, list.list, new.s) : UNDEFINED;
}

static struct jinja_value do_join(struct run *r, struct jinja_value v, struct args *a)
{
    struct jinja_value by = argument(a, 0, "d");
    struct jinja_list *l = value_items(r, v);
    if (by.kind != JINJA_UNDEFINED && by.kind != JINJA_TEXT)
        return wrong(r, "join");
    return l ? joined(r, l, by.kind == JINJA_TEXT ? by.s : text_from("")) : UNDEFINED;
}

static struct jinja_value do_join_by(struct run *r, struct jinja_value v, struct args *a)
{
    struct jinja_value list = argument(a, 0, "");
    for (size_t i = 0; list.kind == JINJA_LIST && i < list.list->n; i++)
        if (list.list->v[i].kind != JINJA_TEXT)
            return wrong(r, "join");
    return list.kind == JINJA_LIST ? joined(r, list.list, v.s) : wrong(r, "join");
}

static struct jinja_value at_end(struct run *r, struct jinja_value v, struct args *a, int end)
{
    struct jinja_value part = argument(a, 0, "");
    for (size_t i = 0; part.kind == JINJA_LIST && i < part.list->n; i++)
        if (value_truth(at_end(r, v, &(struct args){.v = {part.list->v[i]}, .n = 1}, end)))
            return BOOL(1);
    if (part.kind == JINJA_LIST && r->rc == 0)
        return BOOL(0);
    if (part.kind != JINJA_TEXT || a->n != 1)
        return wrong(r, end ? "endswith" : "startswith");
    return BOOL(part.s.n <= v.s.n &&
                text_find(text_part(v.s, end ? v.s.n - part.s.n : 0, part.s.n), part.s, 0) == 0);
}

static struct jinja_value do_startswith(struct run *r, struct jinja_value v, struct args *a)
{
    return at_end(r, v, a, 0);
}

static struct jinja_value do_endswith(struct run *r, struct jinja_value v, struct args *a)
{
    return at_end(r, v, a, 1);
}

/* Letters beyond ASCII can change their length: refused. */
static struct jinja_value in_case(struct run *r, struct jinja_value v, int first, int rest)
{
    char *p = jinja_alloc(r->j, v.s.n, 1);
    for (size_t i = 0; p && i < v.s.n; i++) {
        int to = i == 0 ? first : rest;
        unsigned char c = (unsigned char)v.s.p[i];
        if (c >= 0x80)
            return run_fail(r, "unsupported: changing the case of letters beyond ASCII");
        int is_letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
        p[i] = (char)(is_letter ? (to ? c & ~0x20U : c | 0x20U) : c);
    }
    return TEXT(((struct jinja_text){p ? p : "", p ? v.s.from : NULL, p ? v.s.n : 0}));
}

static struct jinja_value do_upper(struct run *r, struct jinja_value v, struct args *a)
{
    (void)a;
    return in_case(r, v, 1, 1);
}

static struct jinja_value do_lower(struct run *r, struct jinja_value v, struct args *a)
{
    (void)a;
    return in_case(r, v, 0, 0);
}

static struct jinja_value do_capitalize(struct run *r, struct jinja_value v, struct args *a)
{
    (void)a;
    return in_case(r, v, 1, 0);
}

static struct jinja_value do_title(struct run *r, struct jinja_value v, struct args *a)
{
    struct jinja_value t = in_case(r, v, 0, 0), upper = in_case(r, v, 1, 1);
    char *p = r->rc == 0 ? jinja_alloc(r->j, t.s.n, 1) : NULL;
    (void)a;
    for (size_t i = 0; p && i < t.s.n; i++) /* words begin as in Jinja's filter */
        p[i] = i == 0 || strchr("- \t\n\r\f\v({[<", t.s.p[i - 1]) ? upper.s.p[i] : t.s.p[i];
    return p ? TEXT(((struct jinja_text){p, v.s.from, v.s.n})) : UNDEFINED;
}

static struct jinja_value do_find(struct run *r, struct jinja_value v, struct args *a)
{
    struct jinja_value part = argument(a, 0, "");
    if (part.kind != JINJA_TEXT)
        return wrong(r, "find");
    size_t at = text_find(v.s, part.s, 0);
    return INT(at > v.s.n ? -1 : (int64_t)text_length(text_part(v.s, 0, at)));
}

/* Each {} is the next argument. */
static struct jinja_value do_format(struct run *r, struct jinja_value v, struct args *a)
{
    struct jinja_text mark = text_from("{}"), out = text_from("");
    size_t from = 0, used = 0, at;
    while ((at = text_find(v.s, mark, from)) <= v.s.n && used < a->n) {
        out = text_join(r->j, out, text_part(v.s, from, at - from));
        out = text_join(r->j, out, value_text(r, a->v[used++]));
        from = at + 2;
    }
    struct jinja_text rest = text_part(v.s, from, v.s.n - from);
    out = text_join(r->j, out, rest);
    int is_plain = a->n_named == 0 && memchr(rest.p, '{', rest.n) == NULL &&
                   memchr(rest.p, '}', rest.n) == NULL;
    for (size_t i = 0; i < from && is_plain; i++) /* others than {} */
        is_plain = v.s.p[i] == '{'   ? v.s.p[i + 1] == '}'
                   : v.s.p[i] == '}' ? i > 0 && v.s.p[i - 1] == '{'
                                     : 1;
    return is_plain ? TEXT(out) : wrong(r, "format");
}

/* The number in a text, 0 if it is none. */
static struct jinja_value do_int(struct run *r, struct jinja_value v, struct args *a)
{
    int64_t n = 0;
    struct jinja_text s = v.kind == JINJA_TEXT ? jinja_strip(v.s, NULL, 1, 1) : text_from("");
    size_t i = s.n > 1 && (s.p[0] == '-' || s.p[0] == '+');
    (void)a;
    if (v.kind == JINJA_INT || v.kind == JINJA_BOOL)
        return INT(v.i);
    if (v.kind != JINJA_TEXT && v.kind != JINJA_NONE)
        return wrong(r, "int");
    if (s.n > 18 || memchr(s.p, '.', s.n) || memchr(s.p, '_', s.n) || memchr(s.p, 'e', s.n) ||
        memchr(s.p, 'E', s.n))
        return wrong(r, "int"); /* of a fraction, or in other forms */
    for (; i < s.n; i++) {
        if (s.p[i] < '0' || s.p[i] > '9')
            return (unsigned char)s.p[i] < 128 ? INT(0) : wrong(r, "int");
        n = 10 * n + (s.p[i] - '0');
    }
    return INT(s.n > 0 && s.p[0] == '-' ? -n : n);
}

static struct jinja_value do_tojson(struct run *r, struct jinja_value v, struct args *a)
{
    (void)a;
    return value_json(r, v);
}

/* ---- lists and mappings ---- */

static struct jinja_value once(struct run *r, int is_once)
{
    struct jinja_value list = jinja_list_new(r->j);
    if (list.kind == JINJA_LIST)
        list.list->is_once = is_once;
    return list;
}

static struct jinja_value do_get(struct run *r, struct jinja_value v, struct args *a)
{
    struct jinja_value key = argument(a, 0, ""), other = a->n > 1 ? a->v[1] : NONE;
    if (key.kind != JINJA_TEXT)
        return wrong(r, "get");
    const struct jinja_value *found = dict_find(v.dict, key.s);
    return found ? *found : other;
}

enum { PAIR_KEY = 1, PAIR_VALUE = 2 };

static struct jinja_value pairs(struct run *r, struct jinja_value v, int which)
{
    struct jinja_value list = jinja_list_new(r->j);
    for (size_t i = 0; v.kind == JINJA_DICT && i < v.dict->n; i++) {
        struct jinja_value key = TEXT(v.dict->v[i].key), item = jinja_list_new(r->j);
        if (which == (PAIR_KEY | PAIR_VALUE)) {
            jinja_append(r->j, item, key);
            jinja_append(r->j, item, v.dict->v[i].value);
        }
        jinja_append(r->j, list,
                     which == PAIR_KEY     ? key
                     : which == PAIR_VALUE ? v.dict->v[i].value
                                           : item);
    }
    return list;
}

static struct jinja_value do_items(struct run *r, struct jinja_value v, struct args *a)
{
    (void)a;
    return pairs(r, v, PAIR_KEY | PAIR_VALUE);
}

static struct jinja_value do_keys(struct run *r, struct jinja_value v, struct args *a)
{
    (void)a;
    return pairs(r, v, PAIR_KEY);
}

static struct jinja_value do_values(struct run *r, struct jinja_value v, struct args *a)
{
    (void)a;
    return pairs(r, v, PAIR_VALUE);
}

static struct jinja_value do_length(struct run *r, struct jinja_value v, struct args *a)
{
    (void)a;
    if (v.kind == JINJA_TEXT)
        return INT((int64_t)text_length(v.s));
    if (v.kind == JINJA_LIST && v.list->is_once)
        return wrong(r, "length");
    struct jinja_list *l = value_items(r, v);
    return l ? INT((int64_t)l->n) : UNDEFINED;
}

static struct jinja_value do_list(struct run *r, struct jinja_value v, struct args *a)
{
    struct jinja_list *l = value_items(r, v);
    (void)a;
    return l ? (struct jinja_value){.kind = JINJA_LIST, .list = l} : UNDEFINED;
}

static struct jinja_value do_first(struct run *r, struct jinja_value v, struct args *a)
{
    int is_once = v.kind == JINJA_LIST && v.list->is_once;
    struct jinja_list *l = is_once ? v.list : value_items(r, v);
    (void)a;
    if (!l || l->n == 0)
        return UNDEFINED;
    if (is_once)
        *l = (struct jinja_list){l->v + 1, l->n - 1, l->cap - 1, 1};
    return is_once ? l->v[-1] : l->v[0];
}

static struct jinja_value do_last(struct run *r, struct jinja_value v, struct args *a)
{
    struct jinja_list *l = value_items(r, v);
    (void)a;
    if (v.kind == JINJA_LIST && v.list->is_once)
        return wrong(r, "last");
    return l && l->n > 0 ? l->v[l->n - 1] : UNDEFINED;
}

static struct jinja_value do_reverse(struct run *r, struct jinja_value v, struct args *a)
{
    int is_once = v.kind == JINJA_LIST && !v.list->is_once;
    struct jinja_list *l = v.kind == JINJA_LIST ? value_items(r, v) : NULL;
    struct jinja_value list = once(r, is_once);
    (void)a;
    if (!l)
        return wrong(r, "reverse");
    for (size_t i = l->n; i > 0; i--)
        jinja_append(r->j, list, l->v[i - 1]);
    return list;
}

/* The value at a path "a.b.0". */
static struct jinja_value at_path(struct run *r, struct jinja_value v, struct jinja_text path)
{
    for (size_t from = 0, to; from <= path.n && r->rc == 0; from = to + 1) {
        to = text_find(path, text_from("."), from);
        to = to > path.n ? path.n : to;
        struct jinja_value part = TEXT(text_part(path, from, to - from)), i = part;
        size_t digits = 0;
        while (digits < part.s.n && part.s.p[digits] >= '0' && part.s.p[digits] <= '9')
            digits++;
        if (digits > 0 && digits == part.s.n)
            i = do_int(r, part, NULL);
        v = value_index(r, v, i);
    }
    return v;
}

/* The items whose attribute passes a test: that it is true, or a named one. */
static struct jinja_value chosen(struct run *r, struct jinja_value v, struct args *a, int want)
{
    struct jinja_value list = once(r, 1), name = argument(a, 0, "");
    struct jinja_value by = argument(a, 1, "");
    struct jinja_list *l = value_truth(v) ? value_items(r, v) : NULL; /* none is empty here */
    struct args more = {.n = a->n > 2};
    if (name.kind != JINJA_TEXT || (a->n > 1 && by.kind != JINJA_TEXT))
        return wrong(r, "selectattr");
    more.v[0] = a->n > 2 ? a->v[2] : UNDEFINED;
    for (size_t i = 0; l && i < l->n && r->rc == 0; i++) {
        struct jinja_value x = at_path(r, l->v[i], name.s);
        if ((a->n > 1 ? call_test(r, by.s, x, &more) : value_truth(x)) == want)
            jinja_append(r->j, list, l->v[i]);
    }
    return list;
}

static struct jinja_value do_selectattr(struct run *r, struct jinja_value v, struct args *a)
{
    return chosen(r, v, a, 1);
}

static struct jinja_value do_rejectattr(struct run *r, struct jinja_value v, struct args *a)
{
    return chosen(r, v, a, 0);
}

static struct jinja_value do_map(struct run *r, struct jinja_value v, struct args *a)
{
    struct jinja_value list = once(r, 1), name = argument(a, JINJA_ARGS, "attribute");
    struct jinja_list *l = value_truth(v) ? value_items(r, v) : NULL;
    if (name.kind != JINJA_TEXT && (a->n != 1 || a->v[0].kind != JINJA_TEXT))
        return wrong(r, "map");
    for (size_t i = 0; l && i < l->n && r->rc == 0; i++) {
        struct args none = {.n = 0};
        jinja_append(r->j, list,
                     name.kind == JINJA_TEXT ? at_path(r, l->v[i], name.s)
                                             : call_filter(r, a->v[0].s, l->v[i], &none));
    }
    return list;
}

/* ---- any value ---- */

static struct jinja_value do_default(struct run *r, struct jinja_value v, struct args *a)
{
    struct jinja_value other = argument(a, 0, "default_value");
    (void)r;
    if (v.kind == JINJA_UNDEFINED || (value_truth(argument(a, 1, "boolean")) && !value_truth(v)))
        return a->n + a->n_named > 0 ? other : TEXT(text_from(""));
    return v;
}

static struct jinja_value do_string(struct run *r, struct jinja_value v, struct args *a)
{
    (void)a;
    return TEXT(value_text(r, v));
}

static struct jinja_value do_safe(struct run *r, struct jinja_value v, struct args *a)
{
    (void)r;
    (void)a;
    return v;
}

/* ---- the tables ---- */

enum { OF_ANY, OF_TEXT, OF_DICT, OF_TEXTLIKE /* filters on texts convert other values */ };
struct callable {
    const char *name;
    struct jinja_value (*run)(struct run *r, struct jinja_value self, struct args *a);
    int self;
    size_t most; /* arguments */
};

static const struct callable filters[] = {
    // clang-format off
    {"capitalize", do_capitalize, OF_TEXTLIKE, 0},
    {"count",      do_length,     OF_ANY,      0},
    {"d",          do_default,    OF_ANY,      2},
    {"default",    do_default,    OF_ANY,      2},
    {"first",      do_first,      OF_ANY,      0},
    {"int",        do_int,        OF_ANY,      0},
    {"items",      do_items,      OF_DICT,     0},
    {"join",       do_join,       OF_ANY,      1},
    {"last",       do_last,       OF_ANY,      0},
    {"length",     do_length,     OF_ANY,      0},
    {"list",       do_list,       OF_ANY,      0},
    {"lower",      do_lower,      OF_TEXTLIKE, 0},
    {"map",        do_map,        OF_ANY,      1},
    {"rejectattr", do_rejectattr, OF_ANY,      3},
    {"replace",    do_replace,    OF_TEXTLIKE, 3},
    {"reverse",    do_reverse,    OF_ANY,      0},
    {"safe",       do_safe,       OF_ANY,      0},
    {"selectattr", do_selectattr, OF_ANY,      3},
    {"string",     do_string,     OF_ANY,      0},
    {"title",      do_title,      OF_TEXTLIKE, 0},
    {"tojson",     do_tojson,     OF_ANY,      0},
    {"trim",       do_strip,      OF_TEXTLIKE, 1},
    {"upper",      do_upper,      OF_TEXTLIKE, 0},
    // clang-format on
};
static const struct callable methods[] = {
    // clang-format off
    {"capitalize", do_capitalize, OF_TEXT, 0},
    {"endswith",   do_endswith,   OF_TEXT, 1},
    {"find",       do_find,       OF_TEXT, 1},
    {"format",     do_format,     OF_TEXT, JINJA_ARGS},
    {"get",        do_get,        OF_DICT, 2},
    {"items",      do_items,      OF_DICT, 0},
    {"join",       do_join_by,    OF_TEXT, 1},
    {"keys",       do_keys,       OF_DICT, 0},
    {"lower",      do_lower,      OF_TEXT, 0},
    {"lstrip",     do_lstrip,     OF_TEXT, 1},
    {"replace",    do_replace,    OF_TEXT, 3},
    {"rstrip",     do_rstrip,     OF_TEXT, 1},
    {"split",      do_split,      OF_TEXT, 2},
    {"startswith", do_startswith, OF_TEXT, 1},
    {"strip",      do_strip,      OF_TEXT, 1},
    {"upper",      do_upper,      OF_TEXT, 0},
    {"values",     do_values,     OF_DICT, 0},
    // clang-format on
};

static struct jinja_value call_one(struct run *r, const struct callable *list, size_t n,
                                   const char *what, struct jinja_text name,
                                   struct jinja_value self, struct args *a)
{
    for (size_t i = 0; i < n; i++) {
        const struct callable *c = &list[i];
        if (!text_is(name, c->name))
            continue;
        if (c->self == OF_TEXTLIKE)
            self = TEXT(value_text(r, self));
        if (a->n + a->n_named > c->most || (c->self == OF_TEXT && self.kind != JINJA_TEXT) ||
            (c->self == OF_DICT && self.kind != JINJA_DICT))
            return wrong(r, c->name);
        return r->rc == 0 ? c->run(r, self, a) : UNDEFINED;
    }
    return run_fail(r, "unsupported %s \"%.*s\"", what, (int)(name.n < 60 ? name.n : 60), name.p);
}

struct jinja_value call_filter(struct run *r, struct jinja_text name, struct jinja_value self,
                               struct args *a)
{
    return call_one(r, filters, DS_LEN(filters), "filter", name, self, a);
}

struct jinja_value call_method(struct run *r, struct jinja_text name, struct jinja_value self,
                               struct args *a)
{
    return call_one(r, methods, DS_LEN(methods), "method", name, self, a);
}

/* ---- functions ---- */

static struct jinja_value make_dict(struct run *r, struct args *a, int is_namespace)
{
    struct jinja_value v = jinja_dict_new(r->j);
    if (a->n > 0)
        return wrong(r, is_namespace ? "namespace" : "dict");
    for (size_t i = 0; i < a->n_named && v.kind == JINJA_DICT; i++)
        dict_set(r->j, v.dict, a->name[i], a->named[i]);
    if (v.kind == JINJA_DICT)
        v.dict->is_namespace = is_namespace;
    return v;
}

static struct jinja_value do_namespace(struct run *r, struct args *a)
{
    return make_dict(r, a, 1);
}

static struct jinja_value do_dict(struct run *r, struct args *a)
{
    return make_dict(r, a, 0);
}

static struct jinja_value do_raise(struct run *r, struct args *a)
{
    struct jinja_value why = argument(a, 0, "message");
    struct jinja_text s =
        why.kind == JINJA_UNDEFINED ? text_from("no reason given") : value_text(r, why);
    r->j->is_refused = r->rc == 0;
    return run_fail(r, "the template refuses the conversation: %.*s", (int)(s.n < 160 ? s.n : 160),
                    s.p);
}

static struct jinja_value do_range(struct run *r, struct args *a)
{
    struct jinja_value list = jinja_list_new(r->j);
    int64_t from = a->n > 1 ? a->v[0].i : 0, by = a->n > 2 ? a->v[2].i : 1, n = 0;
    for (size_t i = 0; i < a->n; i++)
        if (a->v[i].kind != JINJA_INT)
            return wrong(r, "range");
    if (a->n < 1 || a->n > 3 || by == 0)
        return wrong(r, "range");
    int64_t to = a->v[a->n > 1].i;
    for (int64_t i = from; by > 0 ? i < to : i > to; i += by) {
        if (n++ == RANGE_MAX)
            return run_fail(r, "range: more than %d items", (int)RANGE_MAX);
        jinja_append(r->j, list, INT(i));
    }
    return list;
}

/* One conversion; 0 when it is not supported. */
static size_t add_date(char *s, size_t size, char kind, const struct tm *tm)
{
#define DATE(c, format)                                                                            \
    case c: return strftime(s, size, format, tm)
    switch (kind) {
        DATE('a', "%a");
        DATE('A', "%A");
        DATE('b', "%b");
        DATE('B', "%B");
        DATE('d', "%d");
        DATE('e', "%e");
        DATE('H', "%H");
        DATE('I', "%I");
        DATE('j', "%j");
        DATE('m', "%m");
        DATE('M', "%M");
        DATE('p', "%p");
        DATE('S', "%S");
        DATE('Y', "%Y");
        DATE('%', "%%");
    case 'y': return (size_t)snprintf(s, size, "%02d", tm->tm_year % 100);
    default: return 0;
    }
#undef DATE
}

static struct jinja_value do_strftime(struct run *r, struct args *a)
{
    char s[256];
    size_t n = 0;
    time_t now = (time_t)r->now;
    struct tm tm;
    if (a->n != 1 || a->v[0].kind != JINJA_TEXT || !localtime_r(&now, &tm))
        return wrong(r, "strftime_now");
    struct jinja_text f = a->v[0].s;
    for (size_t i = 0; i < f.n; i++) {
        size_t k = 1;
        if (n + 32 > sizeof s)
            return wrong(r, "strftime_now");
        s[n] = f.p[i];
        if (f.p[i] == '%')
            k = ++i < f.n ? add_date(s + n, 32, f.p[i], &tm) : 0;
        if (k == 0)
            return wrong(r, "strftime_now");
        n += k;
    }
    return jinja_text_of(r->j, s, n, 0);
}

static const struct {
    const char *name;
    struct jinja_value (*run)(struct run *r, struct args *a);
} functions[] = {
    {"dict", do_dict},   {"namespace", do_namespace},   {"raise_exception", do_raise},
    {"range", do_range}, {"strftime_now", do_strftime},
};

struct jinja_value call_function(struct run *r, struct jinja_text name, struct args *a, int *found)
{
    for (size_t i = 0; i < DS_LEN(functions); i++)
        if (text_is(name, functions[i].name))
            return functions[i].run(r, a);
    *found = 0;
    return UNDEFINED;
}

int call_is_function(struct jinja_text name)
{
    for (size_t i = 0; i < DS_LEN(functions); i++)
        if (text_is(name, functions[i].name))
            return 1;
    return 0;
}

/* ---- tests ---- */

static int is_even(struct run *r, struct jinja_value v, int64_t by)
{
    if (v.kind != JINJA_INT || by == 0) {
        wrong(r, "divisibleby");
        return 0;
    }
    return v.i % by == 0;
}

int call_test(struct run *r, struct jinja_text name, struct jinja_value v, struct args *a)
{
    struct jinja_value x = a->n > 0 ? a->v[0] : UNDEFINED;
    enum jinja_kind k = v.kind;
    int is_list = k == JINJA_TEXT || k == JINJA_LIST || k == JINJA_DICT || k == JINJA_UNDEFINED;
    int is_once = k == JINJA_LIST && v.list->is_once;
    const struct {
        const char *name;
        int is;
    } plain[] = {
        {"defined", k != JINJA_UNDEFINED},
        {"undefined", k == JINJA_UNDEFINED},
        {"none", k == JINJA_NONE},
        {"string", k == JINJA_TEXT},
        {"mapping", k == JINJA_DICT && !v.dict->is_namespace},
        {"iterable", is_list},
        {"sequence", is_list && !is_once},
        {"number", k == JINJA_INT || k == JINJA_BOOL},
        {"integer", k == JINJA_INT},
        {"boolean", k == JINJA_BOOL},
        {"true", k == JINJA_BOOL && v.i},
        {"false", k == JINJA_BOOL && !v.i},
        {"callable", k == JINJA_MACRO},
    };
    for (size_t i = 0; i < DS_LEN(plain); i++)
        if (text_is(name, plain[i].name) && a->n == 0)
            return plain[i].is;
    if (text_is(name, "odd") || text_is(name, "even"))
        return is_even(r, v, 2) == text_is(name, "even");
    if (a->n == 1 && text_is(name, "divisibleby"))
        return is_even(r, v, x.kind == JINJA_INT ? x.i : 0);
    if (a->n == 1 && text_is(name, "in"))
        return value_contains(r, x, v);
    if (a->n == 1 && (text_is(name, "eq") || text_is(name, "equalto") || text_is(name, "==")))
        return value_equal(r, v, x);
    if (a->n == 1 && (text_is(name, "ne") || text_is(name, "!=")))
        return !value_equal(r, v, x);
    run_fail(r, "unsupported test \"%.*s\"", (int)(name.n < 60 ? name.n : 60), name.p);
    return 0;
}
