/* Runs the tree of a template. */
#include <stdarg.h>
#include <stdio.h>

#include "impl.h"

enum { STEPS_MAX = 4 << 20, DEPTH_MAX = 400, OUT_MAX = 256 << 20 };

static struct jinja_value eval(struct run *r, struct jinja_dict *scope, const struct node *n);
static void exec(struct run *r, struct jinja_dict *scope, const struct node *n);

struct jinja_value run_fail(struct run *r, const char *fmt, ...)
{
    char what[240];
    va_list ap;
    if (r->rc < 0)
        return UNDEFINED;
    va_start(ap, fmt);
    vsnprintf(what, sizeof what, fmt, ap);
    va_end(ap);
    r->rc = err_set(r->e, DS_EUSAGE, "line %d: %s", r->at ? r->at->line : 0, what);
    return UNDEFINED;
}

/* Counts a step and a level; 0 when the run must end. */
static int enter(struct run *r, const struct node *n)
{
    r->depth++;
    r->at = n;
    if (r->rc < 0)
        return 0;
    r->rc = jinja_failure(r->j, r->e);
    if (r->rc == 0 && ++r->steps > STEPS_MAX)
        run_fail(r, "the template takes more than %d steps", (int)STEPS_MAX);
    if (r->depth > DEPTH_MAX)
        run_fail(r, "the template is nested more than %d deep", (int)DEPTH_MAX);
    return r->rc == 0;
}

/* ---- values ---- */

int value_truth(struct jinja_value v)
{
    switch (v.kind) {
    case JINJA_BOOL:
    case JINJA_INT: return v.i != 0;
    case JINJA_TEXT: return v.s.n > 0;
    case JINJA_LIST: return v.list->n > 0 || v.list->is_once;
    case JINJA_DICT: return v.dict->is_namespace || v.dict->n > 0;
    case JINJA_MACRO: return 1;
    default: return 0;
    }
}

static int is_number(struct jinja_value v)
{
    return v.kind == JINJA_INT || v.kind == JINJA_BOOL;
}

static int text_order(struct jinja_text a, struct jinja_text b)
{
    size_t n = a.n < b.n ? a.n : b.n;
    int c = n > 0 ? memcmp(a.p, b.p, n) : 0;
    return c != 0 ? c : (a.n > b.n) - (a.n < b.n);
}

static int same_pairs(struct run *r, const struct jinja_dict *a, const struct jinja_dict *b)
{
    int same = a->n == b->n;
    for (size_t i = 0; same && i < a->n; i++) {
        const struct jinja_value *v = dict_find(b, a->v[i].key);
        same = v && value_equal(r, a->v[i].value, *v);
    }
    return same;
}

int value_equal(struct run *r, struct jinja_value a, struct jinja_value b)
{
    int same = 0;
    if (is_number(a) && is_number(b))
        return a.i == b.i;
    if (a.kind != b.kind || !enter(r, r->at))
        return 0;
    if (a.kind == JINJA_TEXT)
        same = text_order(a.s, b.s) == 0;
    else if (a.kind == JINJA_DICT)
        same = a.dict == b.dict || (!a.dict->is_namespace && same_pairs(r, a.dict, b.dict));
    else if (a.kind == JINJA_MACRO)
        same = a.macro == b.macro;
    else if (a.kind == JINJA_LIST) {
        same = a.list == b.list || (a.list->n == b.list->n && !a.list->is_once && !b.list->is_once);
        for (size_t i = 0; same && a.list != b.list && i < a.list->n; i++)
            same = value_equal(r, a.list->v[i], b.list->v[i]);
    } else
        same = 1;
    r->depth--;
    return same;
}

int value_contains(struct run *r, struct jinja_value all, struct jinja_value one)
{
    if (all.kind == JINJA_TEXT && one.kind == JINJA_TEXT)
        return text_find(all.s, one.s, 0) <= all.s.n;
    if (all.kind == JINJA_DICT)
        return one.kind == JINJA_TEXT && dict_find(all.dict, one.s) != NULL;
    if (all.kind == JINJA_LIST) {
        for (size_t i = 0; i < all.list->n; i++)
            if (value_equal(r, all.list->v[i], one))
                return 1;
        return 0;
    }
    if (all.kind != JINJA_UNDEFINED)
        run_fail(r, "operator \"in\": unsupported operands");
    return 0;
}

struct jinja_text value_text(struct run *r, struct jinja_value v)
{
    char s[24];
    if (v.kind == JINJA_TEXT)
        return v.s;
    if (v.kind == JINJA_BOOL)
        return text_from(v.i ? "True" : "False");
    if (v.kind == JINJA_NONE)
        return text_from("None");
    if (v.kind == JINJA_INT) {
        snprintf(s, sizeof s, "%lld", (long long)v.i);
        return jinja_text_of(r->j, s, strlen(s), 0).s;
    }
    if (v.kind != JINJA_UNDEFINED)
        run_fail(r, "unsupported: a %s as text", v.kind == JINJA_LIST ? "list" : "mapping");
    return text_from("");
}

struct jinja_list *value_items(struct run *r, struct jinja_value v)
{
    int is_list = v.kind == JINJA_LIST && !v.list->is_once;
    struct jinja_value list = is_list ? v : jinja_list_new(r->j);
    static const char *const name[] = {[JINJA_NONE] = "none",
                                       [JINJA_BOOL] = "a boolean",
                                       [JINJA_INT] = "an integer",
                                       [JINJA_MACRO] = "a macro"};
    for (size_t i = 0; v.kind == JINJA_TEXT && i < v.s.n; i += text_char(v.s, i))
        jinja_append(r->j, list, TEXT(text_part(v.s, i, text_char(v.s, i))));
    for (size_t i = 0; v.kind == JINJA_DICT && i < v.dict->n; i++)
        jinja_append(r->j, list, TEXT(v.dict->v[i].key));
    if (v.kind < DS_LEN(name) && name[v.kind])
        run_fail(r, "%s is not a list", name[v.kind]);
    if (v.kind == JINJA_LIST && !is_list && list.kind == JINJA_LIST) {
        *list.list = *v.list;
        *v.list = (struct jinja_list){.is_once = 1};
        list.list->is_once = 0;
    }
    return list.kind == JINJA_LIST ? list.list : NULL;
}

struct jinja_value value_attribute(struct run *r, struct jinja_value v, struct jinja_text name)
{
    const struct jinja_value *found = v.kind == JINJA_DICT ? dict_find(v.dict, name) : NULL;
    if (v.kind == JINJA_UNDEFINED)
        return run_fail(r, "\"%.*s\" of an undefined value", (int)(name.n < 60 ? name.n : 60),
                        name.p);
    return found ? *found : UNDEFINED;
}

struct jinja_value value_index(struct run *r, struct jinja_value v, struct jinja_value at)
{
    int64_t i = at.i;
    size_t from = 0;
    if (at.kind == JINJA_TEXT)
        return value_attribute(r, v, at.s);
    if (v.kind == JINJA_UNDEFINED)
        return run_fail(r, "an item of an undefined value");
    if (!is_number(at) || (v.kind == JINJA_LIST ? v.list->is_once : v.kind != JINJA_TEXT))
        return UNDEFINED;
    i += i < 0 ? (int64_t)(v.kind == JINJA_LIST ? v.list->n : text_length(v.s)) : 0;
    if (i < 0)
        return UNDEFINED;
    if (v.kind == JINJA_LIST)
        return (size_t)i < v.list->n ? v.list->v[i] : UNDEFINED;
    for (; i > 0 && from < v.s.n; i--)
        from += text_char(v.s, from);
    return from < v.s.n ? TEXT(text_part(v.s, from, text_char(v.s, from))) : UNDEFINED;
}

/* ---- expressions ---- */

/* One bound of a slice as Python clamps it. */
static int64_t bound(struct run *r, struct jinja_dict *scope, const struct node *n, int64_t len,
                     int64_t otherwise, int backward)
{
    struct jinja_value v = n ? eval(r, scope, n) : NONE;
    int64_t least = backward ? -1 : 0, most = backward ? len - 1 : len;
    if (v.kind == JINJA_NONE)
        return otherwise;
    if (!is_number(v)) {
        run_fail(r, "the bounds of a slice must be integers");
        return 0;
    }
    v.i += v.i < 0 ? len : 0;
    return v.i < least ? least : v.i > most ? most : v.i;
}

static struct jinja_value slice(struct run *r, struct jinja_dict *scope, const struct node *n)
{
    struct jinja_value v = eval(r, scope, n->a), step = n->d ? eval(r, scope, n->d) : NONE;
    int64_t by = step.kind == JINJA_NONE ? 1 : step.i;
    if (r->rc < 0 || (v.kind == JINJA_LIST ? v.list->is_once : v.kind != JINJA_TEXT) ||
        (step.kind != JINJA_NONE && !is_number(step)) || by == 0)
        return run_fail(r, "unsupported slice");
    int64_t len = (int64_t)(v.kind == JINJA_LIST ? v.list->n : text_length(v.s));
    int64_t from = bound(r, scope, n->b, len, by > 0 ? 0 : len - 1, by < 0);
    int64_t to = bound(r, scope, n->c, len, by > 0 ? len : -1, by < 0);
    if (v.kind == JINJA_TEXT && by != 1)
        return run_fail(r, "unsupported: a text by steps");
    if (v.kind == JINJA_TEXT) {
        size_t begin = 0, end;
        for (int64_t i = 0; i < from; i++)
            begin += text_char(v.s, begin);
        end = begin;
        for (int64_t i = from; i < to; i++)
            end += text_char(v.s, end);
        return TEXT(text_part(v.s, begin, end - begin));
    }
    struct jinja_value list = jinja_list_new(r->j);
    for (int64_t i = from; by > 0 ? i < to : i > to; i += by)
        jinja_append(r->j, list, v.list->v[i]);
    return list;
}

static struct jinja_value arithmetic(struct run *r, int op, struct jinja_value a,
                                     struct jinja_value b)
{
    if (op == '~') {
        struct jinja_text x = value_text(r, a), y = value_text(r, b);
        return TEXT(text_join(r->j, x, y));
    }
    if (op == '+' && a.kind == JINJA_TEXT && b.kind == JINJA_TEXT)
        return TEXT(text_join(r->j, a.s, b.s));
    if (op == '+' && a.kind == JINJA_LIST && b.kind == JINJA_LIST && !a.list->is_once &&
        !b.list->is_once) {
        struct jinja_value list = jinja_list_new(r->j);
        for (size_t i = 0; i < a.list->n + b.list->n; i++)
            jinja_append(r->j, list, i < a.list->n ? a.list->v[i] : b.list->v[i - a.list->n]);
        return list;
    }
    if (!is_number(a) || !is_number(b))
        return run_fail(r, "unsupported operands of an operator, as of an undefined value or text "
                           "with a number");
    if (op != '+' && op != '-' && op != '*' && op != '%' && op != OP2('/', '/'))
        return run_fail(r, "unsupported operator %c", op);
    if ((a.i > INT32_MAX || a.i < -INT32_MAX || b.i > INT32_MAX || b.i < -INT32_MAX))
        return run_fail(r, "a number is too large");
    if (op == '+' || op == '-' || op == '*')
        return INT(op == '+' ? a.i + b.i : op == '-' ? a.i - b.i : a.i * b.i);
    if (b.i == 0)
        return run_fail(r, "division by zero");
    int64_t rest = a.i % b.i, whole = a.i / b.i, is_below = rest != 0 && (rest < 0) != (b.i < 0);
    return INT(op == '%' ? rest + (is_below ? b.i : 0) : whole - is_below);
}

static int compare(struct run *r, int op, struct jinja_value a, struct jinja_value b)
{
    int order = 0;
    if (op == OP_IN || op == OP_NOT_IN)
        return value_contains(r, b, a) == (op == OP_IN);
    if (op == OP2('=', '=') || op == OP2('!', '='))
        return value_equal(r, a, b) == (op == OP2('=', '='));
    if (a.kind == JINJA_TEXT && b.kind == JINJA_TEXT)
        order = text_order(a.s, b.s);
    else if (is_number(a) && is_number(b))
        order = (a.i > b.i) - (a.i < b.i);
    else
        run_fail(r, "unsupported operands of a comparison");
    return op == '<'             ? order < 0
           : op == '>'           ? order > 0
           : op == OP2('<', '=') ? order <= 0
                                 : order >= 0;
}

static struct jinja_value compare_chain(struct run *r, struct jinja_dict *scope,
                                        const struct node *n)
{
    struct jinja_value a = eval(r, scope, n->a);
    for (const struct node *x = n->b; x && r->rc == 0; x = x->next) {
        struct jinja_value b = eval(r, scope, x->a);
        if (r->rc < 0 || !compare(r, x->op, a, b))
            return BOOL(0);
        a = b;
    }
    return BOOL(1);
}

static struct jinja_value look_up(const struct jinja_dict *scope, struct jinja_text name)
{
    for (; scope; scope = scope->enclosing) {
        const struct jinja_value *v = dict_find(scope, name);
        if (v)
            return *v;
    }
    return UNDEFINED;
}

static void arguments(struct run *r, struct jinja_dict *scope, const struct node *list,
                      struct args *a)
{
    for (; list && r->rc == 0; list = list->next) {
        if (a->n == JINJA_ARGS || a->n_named == JINJA_ARGS) {
            run_fail(r, "more than %d arguments", (int)JINJA_ARGS);
        } else if (list->s.n > 0) {
            a->name[a->n_named] = list->s;
            a->named[a->n_named++] = eval(r, scope, list->a);
        } else {
            a->v[a->n++] = eval(r, scope, list->a);
        }
    }
}

static struct jinja_dict *scope_new(struct run *r, struct jinja_dict *enclosing)
{
    struct jinja_dict *s = jinja_alloc(r->j, 1, sizeof *s);
    if (s)
        s->enclosing = enclosing;
    return s;
}

struct jinja_value text_of_strings(struct run *r, const struct str *out, const struct str *from)
{
    if (out->failed || from->failed)
        r->rc = err_set(r->e, DS_EMEM, "out of memory for a text");
    char *p = r->rc == 0 ? jinja_alloc(r->j, out->len, 2) : NULL;
    if (!p)
        return UNDEFINED;
    if (out->len > 0) {
        memcpy(p, out->p, out->len);
        memcpy(p + out->len, from->p, out->len);
    }
    return TEXT(((struct jinja_text){p, (uint8_t *)p + out->len, out->len}));
}

/* Runs a body and returns what it writes. */
static struct jinja_value capture(struct run *r, struct jinja_dict *scope, const struct node *b)
{
    struct str out = {0}, from = {0}, *before[2] = {r->out, r->from};
    r->out = &out;
    r->from = &from;
    exec(r, scope, b);
    r->out = before[0];
    r->from = before[1];
    struct jinja_value v = r->rc == 0 ? text_of_strings(r, &out, &from) : UNDEFINED;
    str_release(&out);
    str_release(&from);
    return v;
}

static struct jinja_value call_macro(struct run *r, const struct jinja_macro *m,
                                     const struct args *a)
{
    struct jinja_dict *scope = scope_new(r, m->scope);
    size_t i = 0, used = 0;
    if (!scope)
        return UNDEFINED;
    for (const struct node *x = m->node->names; x; x = x->next, i++) {
        struct jinja_value v = i < a->n ? a->v[i] : UNDEFINED;
        int is_given = i < a->n;
        for (size_t k = 0; k < a->n_named && !is_given; k++)
            if (a->name[k].n == x->s.n && memcmp(a->name[k].p, x->s.p, x->s.n) == 0) {
                v = a->named[k];
                is_given = 1;
                used++;
            }
        if (!is_given && x->a)
            v = eval(r, scope, x->a);
        dict_set(r->j, scope, x->s, v);
    }
    if (a->n > i || used < a->n_named)
        return run_fail(r, "unexpected argument of macro \"%.*s\"",
                        (int)(m->node->s.n < 60 ? m->node->s.n : 60), m->node->s.p);
    return capture(r, scope, m->node->b);
}

static struct jinja_value call(struct run *r, struct jinja_dict *scope, const struct node *n)
{
    struct args a = {.n = 0};
    int found = 1;
    struct jinja_value f = UNDEFINED, v;
    if (n->a->kind == NODE_ATTR)
        f = eval(r, scope, n->a->a);
    else
        f = eval(r, scope, n->a);
    arguments(r, scope, n->b, &a);
    r->at = n;
    if (r->rc < 0)
        return UNDEFINED;
    if (n->a->kind == NODE_ATTR)
        return call_method(r, n->a->s, f, &a);
    if (f.kind == JINJA_MACRO && f.macro)
        return call_macro(r, f.macro, &a);
    if (n->a->kind != NODE_NAME || (f.kind != JINJA_UNDEFINED && f.kind != JINJA_MACRO))
        return run_fail(r, "unsupported call");
    v = call_function(r, n->a->s, &a, &found);
    return found ? v
                 : run_fail(r, "unsupported function \"%.*s\"",
                            (int)(n->a->s.n < 60 ? n->a->s.n : 60), n->a->s.p);
}

static struct jinja_value test(struct run *r, struct jinja_dict *scope, const struct node *n)
{
    struct args a = {.n = 0};
    struct jinja_value self = eval(r, scope, n->a);
    arguments(r, scope, n->b, &a);
    if (r->rc < 0)
        return UNDEFINED;
    r->at = n;
    return BOOL(call_test(r, n->s, self, &a) != n->op);
}

static struct jinja_value filter(struct run *r, struct jinja_dict *scope, const struct node *n)
{
    struct args a = {.n = 0};
    struct jinja_value self = eval(r, scope, n->a);
    arguments(r, scope, n->b, &a);
    r->at = n;
    return r->rc < 0 ? UNDEFINED : call_filter(r, n->s, self, &a);
}

static struct jinja_value collection(struct run *r, struct jinja_dict *scope, const struct node *n)
{
    struct jinja_value v = n->kind == NODE_LIST ? jinja_list_new(r->j) : jinja_dict_new(r->j);
    for (const struct node *x = n->b; x && r->rc == 0 && v.kind != JINJA_UNDEFINED; x = x->next) {
        struct jinja_value item = eval(r, scope, x->a);
        if (n->kind == NODE_LIST)
            jinja_append(r->j, v, item);
        else if (item.kind != JINJA_TEXT)
            run_fail(r, "unsupported key of a mapping: expected text");
        else
            dict_set(r->j, v.dict, item.s, eval(r, scope, x->b));
    }
    return v;
}

static struct jinja_value eval_kind(struct run *r, struct jinja_dict *scope, const struct node *n)
{
    struct jinja_value a, b;
    switch (n->kind) {
    case NODE_CONST: return n->value;
    case NODE_NAME:
        a = look_up(scope, n->s);
        if (a.kind == JINJA_UNDEFINED && call_is_function(n->s))
            a = (struct jinja_value){.kind = JINJA_MACRO};
        return a;
    case NODE_LIST:
    case NODE_DICT: return collection(r, scope, n);
    case NODE_ATTR:
        a = eval(r, scope, n->a);
        r->at = n;
        return value_attribute(r, a, n->s);
    case NODE_INDEX:
        a = eval(r, scope, n->a);
        b = eval(r, scope, n->b);
        r->at = n;
        return value_index(r, a, b);
    case NODE_SLICE: return slice(r, scope, n);
    case NODE_CALL: return call(r, scope, n);
    case NODE_FILTER: return filter(r, scope, n);
    case NODE_TEST: return test(r, scope, n);
    case NODE_NEGATIVE: return arithmetic(r, '-', INT(0), eval(r, scope, n->a));
    case NODE_NOT: return BOOL(!value_truth(eval(r, scope, n->a)));
    case NODE_AND: a = eval(r, scope, n->a); return value_truth(a) ? eval(r, scope, n->b) : a;
    case NODE_OR: a = eval(r, scope, n->a); return value_truth(a) ? a : eval(r, scope, n->b);
    case NODE_BINARY:
        a = eval(r, scope, n->a);
        b = eval(r, scope, n->b);
        r->at = n;
        return arithmetic(r, n->op, a, b);
    case NODE_COMPARE: return compare_chain(r, scope, n);
    case NODE_CHOICE:
        if (value_truth(eval(r, scope, n->a)))
            return eval(r, scope, n->b);
        return n->c ? eval(r, scope, n->c) : UNDEFINED;
    default: return UNDEFINED;
    }
}

static struct jinja_value eval(struct run *r, struct jinja_dict *scope, const struct node *n)
{
    struct jinja_value v = UNDEFINED;
    if (enter(r, n))
        v = eval_kind(r, scope, n);
    r->depth--;
    return r->rc < 0 ? UNDEFINED : v;
}

/* ---- statements ---- */

static void write_text(struct run *r, struct jinja_text t)
{
    if (r->out->len + t.n > OUT_MAX) {
        run_fail(r, "the conversation is larger than %d MiB", OUT_MAX >> 20);
        return;
    }
    str_add_bytes(r->out, t.p, t.n);
    if (t.from)
        str_add_bytes(r->from, t.from, t.n);
    else
        for (size_t i = 0; i < t.n; i++)
            str_add_char(r->from, 0);
    if (r->out->failed || r->from->failed)
        r->j->failed = DS_EMEM;
}

static struct jinja_value loop_value(struct run *r, const struct jinja_list *l, size_t i)
{
    struct jinja_value v = jinja_dict_new(r->j);
    int64_t n = (int64_t)l->n, at = (int64_t)i;
    jinja_put(r->j, v, "index", INT(at + 1));
    jinja_put(r->j, v, "index0", INT(at));
    jinja_put(r->j, v, "revindex", INT(n - at));
    jinja_put(r->j, v, "revindex0", INT(n - at - 1));
    jinja_put(r->j, v, "first", BOOL(at == 0));
    jinja_put(r->j, v, "last", BOOL(at == n - 1));
    jinja_put(r->j, v, "length", INT(n));
    jinja_put(r->j, v, "depth", INT(1)); /* more only in a recursive loop */
    jinja_put(r->j, v, "depth0", INT(0));
    jinja_put(r->j, v, "previtem", at > 0 ? l->v[i - 1] : UNDEFINED);
    jinja_put(r->j, v, "nextitem", at < n - 1 ? l->v[i + 1] : UNDEFINED);
    return v;
}

static void bind(struct run *r, struct jinja_dict *scope, const struct node *names,
                 struct jinja_value v)
{
    size_t n = 0;
    if (!names->next) {
        dict_set(r->j, scope, names->s, v);
        return;
    }
    for (const struct node *x = names; x; x = x->next, n++)
        if (v.kind == JINJA_LIST && n < v.list->n)
            dict_set(r->j, scope, x->s, v.list->v[n]);
    if (v.kind != JINJA_LIST || n != v.list->n)
        run_fail(r, "an item of the loop does not have %zu parts", n);
}

/* The items that pass the loop's condition. */
static struct jinja_list *kept(struct run *r, struct jinja_dict *scope, const struct node *n,
                               struct jinja_list *all)
{
    struct jinja_value list = jinja_list_new(r->j);
    for (size_t i = 0; i < all->n && r->rc == 0; i++) {
        struct jinja_dict *inner = scope_new(r, scope);
        if (!inner)
            break;
        bind(r, inner, n->names, all->v[i]);
        if (value_truth(eval(r, inner, n->d)))
            jinja_append(r->j, list, all->v[i]);
    }
    return list.kind == JINJA_LIST ? list.list : NULL;
}

static void loop(struct run *r, struct jinja_dict *scope, const struct node *n)
{
    struct jinja_value source = eval(r, scope, n->a);
    struct jinja_list *all = r->rc == 0 ? value_items(r, source) : NULL;
    struct jinja_dict *inner = NULL;
    int flow = 0, is_through = 0; /* jinja2: a turn that break or continue ends does not count */
    if (all && n->d)
        all = kept(r, scope, n, all);
    for (size_t i = 0; all && i < all->n && r->rc == 0 && flow != NODE_BREAK; i++) {
        if ((inner = scope_new(r, scope)) == NULL)
            return;
        dict_set(r->j, inner, text_from("loop"), loop_value(r, all, i));
        bind(r, inner, n->names, all->v[i]);
        exec(r, inner, n->b);
        flow = r->flow;
        is_through |= flow == 0;
        r->flow = 0;
    }
    if (all && !is_through && r->rc == 0 && n->c && (inner = scope_new(r, scope)) != NULL)
        exec(r, inner, n->c);
}

static void assign(struct run *r, struct jinja_dict *scope, const struct node *n)
{
    struct jinja_value v, space;
    if (n->b) {
        v = eval(r, scope, n->b);
    } else { /* an empty body has no nodes */
        struct jinja_dict *inner = scope_new(r, scope);
        v = inner ? capture(r, inner, n->c) : UNDEFINED;
    }
    if (r->rc < 0)
        return;
    if (n->a->kind == NODE_NAME) {
        dict_set(r->j, scope, n->a->s, v);
        return;
    }
    space = eval(r, scope, n->a->a);
    if (space.kind == JINJA_DICT && space.dict->is_namespace)
        dict_set(r->j, space.dict, n->a->s, v);
    else
        run_fail(r, "attributes can only be set on a namespace");
}

static void define(struct run *r, struct jinja_dict *scope, const struct node *n)
{
    struct jinja_macro *m = jinja_alloc(r->j, 1, sizeof *m);
    if (!m)
        return;
    *m = (struct jinja_macro){n, scope};
    dict_set(r->j, scope, n->s, (struct jinja_value){.kind = JINJA_MACRO, .macro = m});
}

static void exec_one(struct run *r, struct jinja_dict *scope, const struct node *n)
{
    struct jinja_value v;
    switch (n->kind) {
    case NODE_TEXT: write_text(r, n->s); break;
    case NODE_OUTPUT:
        v = eval(r, scope, n->a);
        if (r->rc == 0)
            write_text(r, value_text(r, v));
        break;
    case NODE_IF:
        v = eval(r, scope, n->a);
        if (r->rc == 0)
            exec(r, scope, value_truth(v) ? n->b : n->c);
        break;
    case NODE_FOR: loop(r, scope, n); break;
    case NODE_SET: assign(r, scope, n); break;
    case NODE_MACRO: define(r, scope, n); break;
    case NODE_BLOCK:
        if ((scope = scope_new(r, scope)) != NULL)
            exec(r, scope, n->b);
        break;
    default: /* break, continue */ r->flow = (int)n->kind;
    }
}

static void exec(struct run *r, struct jinja_dict *scope, const struct node *n)
{
    for (; n && r->rc == 0 && r->flow == 0; n = n->next) {
        if (enter(r, n))
            exec_one(r, scope, n);
        r->depth--;
    }
}

int jinja_render(struct jinja *j, struct jinja_value vars, int64_t now, struct str *out,
                 struct str *from, struct err *e)
{
    struct run r = {.j = j, .e = e, .now = now, .out = out, .from = from};
    if (vars.kind == JINJA_DICT)
        exec(&r, r.root = vars.dict, j->root);
    return r.rc < 0 ? r.rc : jinja_failure(j, e);
}

int jinja_is_refused(const struct jinja *j)
{
    return j->is_refused;
}
