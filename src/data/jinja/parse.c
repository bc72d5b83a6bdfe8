/* From the text of a template to its tree. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/utf8.h"
#include "impl.h"

enum { DEPTH_MAX = 100, NODES_MAX = 200000 };
enum token_kind { TOKEN_END, TOKEN_NAME, TOKEN_INT, TOKEN_TEXT, TOKEN_OP };

struct token {
    enum token_kind kind;
    struct jinja_text s; /* of names and texts */
    int64_t i;           /* of integers and operators */
};
struct parser {
    struct jinja *j;
    struct err *e;
    int rc, depth, line, nodes;
    struct jinja_text text;
    size_t at;
    int begins_line; /* the last tag ended with a new line, or nothing was before */
    int is_output;   /* in {{ }}, else in {% %} */
    int open;        /* brackets */
    struct token token, after;
    int has_after;
    struct node none; /* stands in after a failure: written to, never read */
};

static void fail(struct parser *p, const char *fmt, ...) DS_PRINTF(2, 3);
static void fail(struct parser *p, const char *fmt, ...)
{
    char what[160];
    va_list ap;
    if (p->rc < 0)
        return;
    va_start(ap, fmt);
    vsnprintf(what, sizeof what, fmt, ap);
    va_end(ap);
    p->rc = err_set(p->e, DS_EUSAGE, "line %d: %s", p->line, what);
}

static struct node *node_new(struct parser *p, enum node_kind kind)
{
    struct node *n = p->nodes++ < NODES_MAX ? jinja_alloc(p->j, 1, sizeof *n) : NULL;
    if (!n) {
        if (p->rc == 0)
            p->rc = p->nodes > NODES_MAX ? err_set(p->e, DS_ERANGE, "the template is too large")
                                         : jinja_failure(p->j, p->e);
        return &p->none;
    }
    n->kind = kind;
    n->line = p->line;
    return n;
}

/* ---- tokens ---- */

static int is_name(char c, int first)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
           (!first && c >= '0' && c <= '9');
}

/* Moves to `to`, counting lines. */
static void advance(struct parser *p, size_t to)
{
    for (; p->at < to && p->at < p->text.n; p->at++)
        p->line += p->text.p[p->at] == '\n';
}

static size_t skip_space(const struct parser *p, size_t at)
{
    struct jinja_text rest = text_part(p->text, at, p->text.n - at);
    return p->text.n - jinja_strip(rest, NULL, 1, 0).n;
}

/* Ends a tag whose closing bracket of two characters is at `at`; `sign` is the character before. */
static void end_tag(struct parser *p, size_t at, char sign, int eats_line)
{
    size_t to = at + 2;
    if (sign == '-')
        to = skip_space(p, to);
    else if (eats_line && sign != '+' && to < p->text.n && p->text.p[to] == '\n')
        to++;
    advance(p, to);
    p->begins_line = p->text.p[to - 1] == '\n';
}

static int hex(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

/* An escape sequence of `n` bytes at s, after its backslash; returns the bytes read. */
static size_t unescape(struct parser *p, const char *s, size_t n, char *out, size_t *len)
{
    static const char from[] = "ntrabfv\\'\"", to[] = "\n\t\r\a\b\f\v\\'\"";
    const char *hit = n > 0 && s[0] ? strchr(from, s[0]) : NULL;
    size_t digits = n == 0 ? 0 : s[0] == 'x' ? 2 : s[0] == 'u' ? 4 : s[0] == 'U' ? 8 : 0;
    uint32_t c = 0;
    *len = 1;
    if (hit) {
        out[0] = to[hit - from];
        return 1;
    }
    if (n > 0 && s[0] == '\n') {
        *len = 0;
        return 1;
    }
    if (n > 0 && s[0] >= '0' && s[0] <= '7')
        fail(p, "unsupported octal escape in a string");
    if (digits == 0) { /* stays as it is */
        out[0] = '\\';
        return 0;
    }
    for (size_t i = 1; i <= digits; i++) {
        if (i >= n || hex(s[i]) < 0 || c > 0xFFFFFFF) {
            fail(p, "corrupt escape in a string");
            return 0;
        }
        c = c << 4 | (uint32_t)hex(s[i]);
    }
    *len = (size_t)utf8_encode(out, c);
    if (*len == 0)
        fail(p, "corrupt escape in a string");
    return digits + 1;
}

static void read_text(struct parser *p, struct token *t)
{
    char quote = p->text.p[p->at];
    size_t from = p->at + 1, end = from, n = 0;
    while (end < p->text.n && p->text.p[end] != quote)
        end += p->text.p[end] == '\\' ? 2 : 1;
    if (end >= p->text.n) {
        fail(p, "a string is not closed");
        return;
    }
    char *out = jinja_alloc(p->j, end - from + 4, 1);
    if (!out)
        return;
    for (size_t i = from; i < end && p->rc == 0;) {
        size_t len = 1;
        out[n] = p->text.p[i++];
        if (out[n] == '\\')
            i += unescape(p, p->text.p + i, end - i, out + n, &len);
        n += len;
    }
    *t = (struct token){.kind = TOKEN_TEXT, .s = {out, NULL, n}};
    advance(p, end + 1);
}

static void read_int(struct parser *p, struct token *t)
{
    int64_t x = 0;
    size_t at = p->at;
    for (; at < p->text.n && p->text.p[at] >= '0' && p->text.p[at] <= '9'; at++) {
        if (x > INT32_MAX) {
            fail(p, "a number is too large");
            return;
        }
        x = 10 * x + (p->text.p[at] - '0');
    }
    if (at < p->text.n && (p->text.p[at] == '_' || is_name(p->text.p[at], 1) ||
                           (p->text.p[at] == '.' && at + 1 < p->text.n &&
                            p->text.p[at + 1] >= '0' && p->text.p[at + 1] <= '9')))
        fail(p, "unsupported number: expected an integer");
    *t = (struct token){.kind = TOKEN_INT, .i = x};
    p->at = at;
}

static int is_pair(char a, char b)
{
    return (b == '=' && strchr("=!<>", a)) || (a == '/' && b == '/') || (a == '*' && b == '*');
}

/* 1 when the tag ends here. */
static int ends_tag(struct parser *p)
{
    const char *s = p->text.p + p->at;
    size_t left = p->text.n - p->at, lead = s[0] == '-' || (s[0] == '+' && !p->is_output);
    const char *close = p->is_output ? "}}" : "%}";
    if ((p->open > 0 && p->is_output) || left < lead + 2 || memcmp(s + lead, close, 2) != 0)
        return 0;
    end_tag(p, p->at + lead, lead ? s[0] : 0, !p->is_output);
    return 1;
}

static void read_op(struct parser *p, struct token *t)
{
    const char *s = p->text.p + p->at;
    char next = p->at + 1 < p->text.n ? s[1] : 0;
    if (!s[0] || !strchr("+-*/%~[](){}=<>!.:|,", s[0]) || (s[0] == '!' && next != '=')) {
        fail(p, "unexpected character 0x%02X", (unsigned)(unsigned char)s[0]);
        return;
    }
    int two = next && is_pair(s[0], next);
    p->open += strchr("[({", s[0]) ? 1 : strchr("])}", s[0]) ? -1 : 0;
    *t = (struct token){.kind = TOKEN_OP, .i = two ? OP2(s[0], next) : s[0]};
    p->at += two ? 2 : 1;
}

static struct token scan(struct parser *p)
{
    struct token t = {.kind = TOKEN_END};
    advance(p, skip_space(p, p->at));
    if (p->rc < 0)
        return t;
    if (p->at >= p->text.n) {
        fail(p, "a tag is not closed");
        return t;
    }
    const char *s = p->text.p + p->at;
    if (ends_tag(p))
        return t;
    if (s[0] == '"' || s[0] == '\'') {
        read_text(p, &t);
    } else if (s[0] >= '0' && s[0] <= '9') {
        read_int(p, &t);
    } else if (is_name(s[0], 1)) {
        size_t n = 1;
        while (p->at + n < p->text.n && is_name(s[n], 0))
            n++;
        t = (struct token){.kind = TOKEN_NAME, .s = text_part(p->text, p->at, n)};
        p->at += n;
    } else {
        read_op(p, &t);
    }
    return t;
}

static void next(struct parser *p)
{
    p->token = p->has_after ? p->after : scan(p);
    p->has_after = 0;
}

static const struct token *peek(struct parser *p)
{
    if (!p->has_after && p->token.kind != TOKEN_END) {
        p->after = scan(p);
        p->has_after = 1;
    }
    return &p->after;
}

static int at_op(const struct parser *p, int op)
{
    return p->token.kind == TOKEN_OP && p->token.i == op;
}

static int at_name(const struct parser *p, const char *name)
{
    return p->token.kind == TOKEN_NAME && text_is(p->token.s, name);
}

static int take_op(struct parser *p, int op)
{
    int is = at_op(p, op);
    if (is)
        next(p);
    return is;
}

static int take_name(struct parser *p, const char *name)
{
    int is = at_name(p, name);
    if (is)
        next(p);
    return is;
}

static void expect_op(struct parser *p, char op)
{
    if (!take_op(p, op))
        fail(p, "expected '%c'", op);
}

static struct jinja_text expect_name(struct parser *p)
{
    struct jinja_text s = p->token.s;
    if (p->token.kind != TOKEN_NAME) {
        fail(p, "expected a name");
        return text_from("");
    }
    next(p);
    return s;
}

/* ---- expressions, the loosest binding first ---- */

static struct node *expression(struct parser *p);
static struct node *unary(struct parser *p, int with_filters);

static struct node *pair(struct parser *p, enum node_kind kind, struct node *a, struct node *b)
{
    struct node *n = node_new(p, kind);
    n->a = a;
    n->b = b;
    return n;
}

/* Items up to the closing bracket.  calls: `name = value` is an argument by name; dict: `key :
 * value`. */
static struct node *items(struct parser *p, char close, int calls, int dict)
{
    struct node *first = NULL, **end = &first;
    while (p->rc == 0 && !at_op(p, close)) {
        struct node *n = node_new(p, NODE_ARG);
        if (calls && p->token.kind == TOKEN_NAME && peek(p)->kind == TOKEN_OP &&
            p->after.i == '=') {
            n->s = p->token.s;
            next(p);
            next(p);
        }
        n->a = expression(p);
        if (dict) {
            expect_op(p, ':');
            n->b = expression(p);
        }
        *end = n;
        end = &n->next;
        if (!take_op(p, ','))
            break;
    }
    expect_op(p, close);
    return first;
}

static struct node *constant(struct parser *p, struct jinja_value v)
{
    struct node *n = node_new(p, NODE_CONST);
    n->value = v;
    return n;
}

static struct node *name_or_constant(struct parser *p)
{
    static const struct {
        const char *name;
        struct jinja_value value;
    } known[] = {{"true", {JINJA_BOOL, {1}}},  {"True", {JINJA_BOOL, {1}}},
                 {"false", {JINJA_BOOL, {0}}}, {"False", {JINJA_BOOL, {0}}},
                 {"none", {JINJA_NONE, {0}}},  {"None", {JINJA_NONE, {0}}}};
    struct jinja_text s = expect_name(p);
    for (size_t i = 0; i < DS_LEN(known); i++)
        if (text_is(s, known[i].name))
            return constant(p, known[i].value);
    struct node *n = node_new(p, NODE_NAME);
    n->s = s;
    return n;
}

/* ( a ) is a; ( a, b ) and ( ) are lists. */
static struct node *in_brackets(struct parser *p)
{
    next(p);
    if (take_op(p, ')'))
        return node_new(p, NODE_LIST);
    struct node *a = expression(p);
    if (take_op(p, ')'))
        return a;
    expect_op(p, ',');
    struct node *list = node_new(p, NODE_LIST), *first = pair(p, NODE_ARG, a, NULL);
    list->b = first;
    first->next = items(p, ')', 0, 0);
    return list;
}

static struct node *primary(struct parser *p)
{
    struct token t = p->token;
    if (t.kind == TOKEN_NAME)
        return name_or_constant(p);
    if (t.kind == TOKEN_INT) {
        next(p);
        return constant(p, INT(t.i));
    }
    if (t.kind == TOKEN_TEXT) {
        for (next(p); p->rc == 0 && p->token.kind == TOKEN_TEXT; next(p))
            t.s = text_join(p->j, t.s, p->token.s);
        return constant(p, TEXT(t.s));
    }
    if (at_op(p, '('))
        return in_brackets(p);
    if (at_op(p, '[') || at_op(p, '{')) {
        int is_dict = at_op(p, '{');
        next(p);
        struct node *n = node_new(p, is_dict ? NODE_DICT : NODE_LIST);
        n->b = items(p, is_dict ? '}' : ']', 0, is_dict);
        return n;
    }
    fail(p, "expected a value");
    return node_new(p, NODE_CONST);
}

static struct node *subscript(struct parser *p, struct node *a)
{
    struct node *part[3] = {NULL};
    int n = 0;
    for (; p->rc == 0; n++) {
        if (!at_op(p, ':') && !at_op(p, ']'))
            part[n] = expression(p);
        if (n == 2 || !take_op(p, ':'))
            break;
    }
    expect_op(p, ']');
    if (n == 0 && !part[0])
        fail(p, "expected an index");
    struct node *x = pair(p, n > 0 ? NODE_SLICE : NODE_INDEX, a, part[0]);
    x->c = part[1];
    x->d = part[2];
    return x;
}

static struct node *call(struct parser *p, struct node *a)
{
    return pair(p, NODE_CALL, a, items(p, ')', 1, 0));
}

static struct node *postfix(struct parser *p, struct node *a)
{
    while (p->rc == 0) {
        if (take_op(p, '.')) {
            struct node *n = pair(p, NODE_ATTR, a, NULL);
            if (p->token.kind == TOKEN_INT) {
                n->kind = NODE_INDEX;
                n->b = constant(p, INT(p->token.i));
                next(p);
            } else {
                n->s = expect_name(p);
            }
            a = n;
        } else if (take_op(p, '[')) {
            a = subscript(p, a);
        } else if (take_op(p, '(')) {
            a = call(p, a);
        } else {
            break;
        }
    }
    return a;
}

static struct node *test(struct parser *p, struct node *a)
{
    static const char *const with_value[] = {"in", "eq", "equalto", "ne", "divisibleby", "sameas"};
    struct node *n = pair(p, NODE_TEST, a, NULL);
    n->op = take_name(p, "not");
    n->s = expect_name(p);
    if (take_op(p, '(')) {
        n->b = items(p, ')', 1, 0);
        return n;
    }
    for (size_t i = 0; i < DS_LEN(with_value); i++)
        if (text_is(n->s, with_value[i]))
            n->b = pair(p, NODE_ARG, postfix(p, primary(p)), NULL);
    return n;
}

static struct node *filters(struct parser *p, struct node *a)
{
    while (p->rc == 0) {
        if (take_op(p, '|')) {
            struct node *n = pair(p, NODE_FILTER, a, NULL);
            n->s = expect_name(p);
            if (take_op(p, '('))
                n->b = items(p, ')', 1, 0);
            a = n;
        } else if (take_name(p, "is")) {
            a = test(p, a);
        } else if (take_op(p, '(')) {
            a = call(p, a);
        } else {
            break;
        }
    }
    return a;
}

static struct node *unary(struct parser *p, int with_filters)
{
    struct node *a;
    if (p->depth++ > DEPTH_MAX)
        fail(p, "expressions are nested too deeply, must be at most %d", DEPTH_MAX);
    if (p->rc < 0)
        a = node_new(p, NODE_CONST);
    else if (take_op(p, '-'))
        a = pair(p, NODE_NEGATIVE, unary(p, 0), NULL);
    else if (take_op(p, '+')) /* of integers only: twice negative */
        a = pair(p, NODE_NEGATIVE, pair(p, NODE_NEGATIVE, unary(p, 0), NULL), NULL);
    else
        a = primary(p);
    a = postfix(p, a);
    p->depth--;
    return with_filters ? filters(p, a) : a;
}

static struct node *binary_of(struct parser *p, int level)
{
    static const char ops[][4] = {"+-", "~", "*/%"};
    struct node *a = level == 3 ? unary(p, 1) : binary_of(p, level + 1);
    while (p->rc == 0 && p->token.kind == TOKEN_OP && level < 3) {
        int op = (int)p->token.i;
        if (!(op < 128 && strchr(ops[level], op)) && !(level == 2 && op == OP2('/', '/')))
            break;
        next(p);
        a = pair(p, NODE_BINARY, a, binary_of(p, level + 1));
        a->op = op;
    }
    if (at_op(p, OP2('*', '*')))
        fail(p, "unsupported operator **");
    return a;
}

static int comparison(struct parser *p)
{
    static const int ops[] = {OP2('=', '='), OP2('!', '='), '<', '>', OP2('<', '='), OP2('>', '=')};
    for (size_t i = 0; i < DS_LEN(ops); i++)
        if (take_op(p, ops[i]))
            return ops[i];
    if (take_name(p, "in"))
        return OP_IN;
    if (at_name(p, "not") && peek(p)->kind == TOKEN_NAME && text_is(p->after.s, "in")) {
        next(p);
        next(p);
        return OP_NOT_IN;
    }
    return 0;
}

static struct node *compared(struct parser *p)
{
    struct node *a = binary_of(p, 0), *n = NULL, **end = NULL;
    for (int op; p->rc == 0 && (op = comparison(p)) != 0;) {
        if (!n) {
            n = pair(p, NODE_COMPARE, a, NULL);
            end = &n->b;
        }
        *end = pair(p, NODE_ARG, binary_of(p, 0), NULL);
        (*end)->op = op;
        end = &(*end)->next;
    }
    return n ? n : a;
}

static struct node *negated(struct parser *p)
{
    if (!at_name(p, "not"))
        return compared(p);
    next(p);
    if (p->depth++ > DEPTH_MAX)
        fail(p, "expressions are nested too deeply, must be at most %d", DEPTH_MAX);
    struct node *n = pair(p, NODE_NOT, p->rc < 0 ? node_new(p, NODE_CONST) : negated(p), NULL);
    p->depth--;
    return n;
}

static struct node *both(struct parser *p)
{
    struct node *a = negated(p);
    while (p->rc == 0 && take_name(p, "and"))
        a = pair(p, NODE_AND, a, negated(p));
    return a;
}

static struct node *either(struct parser *p)
{
    struct node *a = both(p);
    while (p->rc == 0 && take_name(p, "or"))
        a = pair(p, NODE_OR, a, both(p));
    return a;
}

static struct node *expression(struct parser *p)
{
    if (p->depth++ > DEPTH_MAX)
        fail(p, "expressions are nested too deeply, must be at most %d", DEPTH_MAX);
    struct node *a = p->rc < 0 ? node_new(p, NODE_CONST) : either(p);
    while (p->rc == 0 && take_name(p, "if")) {
        struct node *n = pair(p, NODE_CHOICE, either(p), a);
        if (take_name(p, "else"))
            n->c = expression(p);
        a = n;
    }
    p->depth--;
    return a;
}

/* ---- statements ---- */

static struct node *body(struct parser *p, const char *const *until);

static void end_statement(struct parser *p)
{
    if (p->rc == 0 && p->token.kind != TOKEN_END)
        fail(p, "unexpected text in a tag");
}

/* A body that ends with {% NAME %}, which is consumed. */
static struct node *body_to(struct parser *p, const char *name)
{
    const char *const until[] = {name, NULL};
    struct node *b = body(p, until);
    next(p);
    end_statement(p);
    return b;
}

static struct node *branch(struct parser *p)
{
    static const char *const until[] = {"elif", "else", "endif", NULL};
    struct node *n = node_new(p, NODE_IF);
    if (p->depth++ > DEPTH_MAX)
        fail(p, "statements are nested too deeply, must be at most %d", DEPTH_MAX);
    if (p->rc == 0)
        n->a = expression(p);
    end_statement(p);
    n->b = body(p, until);
    if (take_name(p, "elif")) {
        n->c = branch(p);
    } else if (take_name(p, "else")) {
        end_statement(p);
        n->c = body_to(p, "endif");
    } else {
        next(p);
        end_statement(p);
    }
    p->depth--;
    return n;
}

static struct node *name_node(struct parser *p)
{
    struct node *n = node_new(p, NODE_NAME);
    n->s = expect_name(p);
    return n;
}

static struct node *loop(struct parser *p)
{
    static const char *const until[] = {"else", "endfor", NULL};
    struct node *n = node_new(p, NODE_FOR), **end = &n->names;
    int in_brackets = take_op(p, '(');
    do {
        *end = name_node(p);
        end = &(*end)->next;
    } while (p->rc == 0 && take_op(p, ','));
    if (in_brackets)
        expect_op(p, ')');
    if (!take_name(p, "in"))
        fail(p, "expected \"in\"");
    n->a = either(p); /* a following `if` is the loop's */
    if (take_name(p, "if"))
        n->d = expression(p);
    end_statement(p);
    n->b = body(p, until);
    if (take_name(p, "else")) {
        end_statement(p);
        n->c = body_to(p, "endfor");
    } else {
        next(p);
        end_statement(p);
    }
    return n;
}

static struct node *assignment(struct parser *p)
{
    struct node *n = node_new(p, NODE_SET);
    n->a = name_node(p);
    if (take_op(p, '.')) {
        n->a = pair(p, NODE_ATTR, n->a, NULL);
        n->a->s = expect_name(p);
    }
    if (take_op(p, '=')) {
        n->b = expression(p);
        end_statement(p);
    } else {
        end_statement(p);
        n->c = body_to(p, "endset");
    }
    return n;
}

static struct node *macro(struct parser *p)
{
    struct node *n = node_new(p, NODE_MACRO), **end = &n->names;
    n->s = expect_name(p);
    expect_op(p, '(');
    while (p->rc == 0 && !at_op(p, ')')) {
        *end = name_node(p);
        if (take_op(p, '='))
            (*end)->a = expression(p);
        end = &(*end)->next;
        if (!take_op(p, ','))
            break;
    }
    expect_op(p, ')');
    end_statement(p);
    n->b = body_to(p, "endmacro");
    return n;
}

static struct node *word(struct parser *p, enum node_kind kind)
{
    struct node *n = node_new(p, kind);
    end_statement(p);
    return n;
}

static struct node *statement(struct parser *p)
{
    struct node *n = NULL;
    if (p->depth++ > DEPTH_MAX)
        fail(p, "statements are nested too deeply, must be at most %d", DEPTH_MAX);
    else if (take_name(p, "if"))
        n = branch(p);
    else if (take_name(p, "for"))
        n = loop(p);
    else if (take_name(p, "set"))
        n = assignment(p);
    else if (take_name(p, "macro"))
        n = macro(p);
    else if (take_name(p, "break"))
        n = word(p, NODE_BREAK);
    else if (take_name(p, "continue"))
        n = word(p, NODE_CONTINUE);
    else if (take_name(p, "generation")) {
        n = word(p, NODE_BLOCK);
        n->b = body_to(p, "endgeneration");
    } else if (p->token.kind == TOKEN_NAME)
        fail(p, "unsupported statement \"%.*s\"", (int)(p->token.s.n < 40 ? p->token.s.n : 40),
             p->token.s.p);
    else
        fail(p, "expected a statement");
    p->depth--;
    return n ? n : node_new(p, NODE_BLOCK);
}

/* The text before the next tag, without the white space that the tag removes.  Enters the tag and
 * returns its second character, or 0 at the end. */
static char text_before_tag(struct parser *p, struct jinja_text *text)
{
    size_t n = p->text.n, open = p->at;
    while (open + 1 < n &&
           !(p->text.p[open] == '{' && strchr("{%#", p->text.p[open + 1]) && p->text.p[open + 1]))
        open++;
    if (open + 1 >= n)
        open = n;
    *text = text_part(p->text, p->at, open - p->at);
    if (open >= n) {
        advance(p, n);
        return 0;
    }
    char kind = p->text.p[open + 1], sign = open + 2 < n ? p->text.p[open + 2] : 0;
    size_t begin = text->n;
    if (sign == '-') {
        *text = jinja_strip(*text, NULL, 0, 1);
    } else if (sign != '+' && kind != '{') {
        while (begin > 0 && text->p[begin - 1] != '\n')
            begin--;
        if ((begin > 0 || p->begins_line) &&
            jinja_strip(text_part(*text, begin, text->n - begin), NULL, 1, 0).n == 0)
            text->n = begin;
    }
    advance(p, open + (sign == '-' || sign == '+' ? 3 : 2));
    p->begins_line = 0;
    return kind;
}

static void skip_comment(struct parser *p)
{
    size_t close = text_find(p->text, text_from("#}"), p->at);
    if (close > p->text.n)
        fail(p, "a comment is not closed");
    else
        end_tag(p, close, close > p->at ? p->text.p[close - 1] : 0, 1);
}

/* Statements up to a tag that begins with a word of `until` (NULL: up to the end), which becomes
 * the current token. */
static struct node *body(struct parser *p, const char *const *until)
{
    struct node *first = NULL, **end = &first;
    while (p->rc == 0) {
        struct jinja_text text;
        char kind = text_before_tag(p, &text);
        if (text.n > 0) {
            *end = node_new(p, NODE_TEXT);
            (*end)->s = text;
            end = &(*end)->next;
        }
        if (kind == 0) {
            if (until)
                fail(p, "missing \"%s\"", until[1] ? until[2] ? until[2] : until[1] : until[0]);
            return first;
        }
        if (kind == '#') {
            skip_comment(p);
            continue;
        }
        p->is_output = kind == '{';
        p->open = p->has_after = 0;
        next(p);
        for (size_t i = 0; until && until[i] && !p->is_output; i++)
            if (at_name(p, until[i]))
                return first;
        struct node *n = p->is_output ? pair(p, NODE_OUTPUT, expression(p), NULL) : statement(p);
        if (p->is_output)
            end_statement(p);
        *end = n;
        end = &n->next;
    }
    return first;
}

/* Line ends become \n, and one at the end is dropped. */
static struct jinja_text with_plain_lines(struct jinja *j, const char *s, size_t n)
{
    size_t k = 0;
    char *p = jinja_alloc(j, n + 1, 1);
    for (size_t i = 0; p && i < n; i++)
        if (s[i] != '\r')
            p[k++] = s[i];
        else if (i + 1 == n || s[i + 1] != '\n')
            p[k++] = '\n';
    return (struct jinja_text){p ? p : "", NULL, k > 0 && p[k - 1] == '\n' ? k - 1 : k};
}

int jinja_parse(struct jinja *j, const char *s, size_t n, struct err *e)
{
    struct parser p = {.j = j, .e = e, .line = 1, .begins_line = 1};
    p.text = with_plain_lines(j, s, n);
    j->root = body(&p, NULL);
    return p.rc < 0 ? p.rc : jinja_failure(j, e);
}
