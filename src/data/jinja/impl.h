/* Shared declarations of the Jinja interpreter's parts. */
#ifndef DS_DATA_JINJA_IMPL_H
#define DS_DATA_JINJA_IMPL_H

#include <string.h>

#include "jinja.h"

enum { JINJA_ARGS = 16, JINJA_MIB = 256 };

enum node_kind {
    /* statements */
    NODE_TEXT,   /* s */
    NODE_OUTPUT, /* a */
    NODE_IF,     /* a condition, b body, c otherwise */
    NODE_FOR,    /* a items, b body, c when empty, d condition, names */
    NODE_SET,    /* a target, b value, or c body */
    NODE_MACRO,  /* s name, b body, names parameters with their defaults in a */
    NODE_BLOCK,  /* b body */
    NODE_BREAK,
    NODE_CONTINUE,
    /* expressions */
    NODE_CONST,    /* value */
    NODE_NAME,     /* s */
    NODE_LIST,     /* b items */
    NODE_DICT,     /* b: keys in a, values in b */
    NODE_ATTR,     /* a.s */
    NODE_INDEX,    /* a[b] */
    NODE_SLICE,    /* a[b:c:d] */
    NODE_CALL,     /* a(b) */
    NODE_FILTER,   /* a | s(b) */
    NODE_TEST,     /* a is s(b); op: negated */
    NODE_ARG,      /* s = a, or a */
    NODE_NEGATIVE, /* -a */
    NODE_NOT,
    NODE_AND,
    NODE_OR,
    NODE_BINARY,  /* a op b */
    NODE_COMPARE, /* a, then b: NODE_ARG with op and a */
    NODE_CHOICE   /* b if a else c */
};
struct node {
    enum node_kind kind;
    int line, op;
    struct node *next, *a, *b, *c, *d, *names;
    struct jinja_text s;
    struct jinja_value value;
};

/* Operators of one or two characters, and those that are words. */
#define OP2(x, y) ((x) | (y) << 8)
enum { OP_IN = 1, OP_NOT_IN = 2 };

struct jinja {
    struct chunk *chunk; /* the newest first */
    size_t used, total;  /* of the newest; of all */
    int failed;          /* DS_EMEM, or DS_EUSAGE above JINJA_MIB; 0 */
    int is_refused;      /* by raise_exception */
    struct node *root;
};
/* Zeroed memory until jinja_close; NULL, and `failed` set, when there is none. */
void *jinja_alloc(struct jinja *j, size_t n, size_t size);
int jinja_failure(const struct jinja *j, struct err *e) DS_CHECK; /* 0: none */
int jinja_parse(struct jinja *j, const char *p, size_t n, struct err *e) DS_CHECK;

/* ---- values ---- */

#define UNDEFINED ((struct jinja_value){.kind = JINJA_UNDEFINED})
#define NONE ((struct jinja_value){.kind = JINJA_NONE})
#define BOOL(x) ((struct jinja_value){.kind = JINJA_BOOL, .i = (x) != 0})
#define INT(x) ((struct jinja_value){.kind = JINJA_INT, .i = (x)})
#define TEXT(x) ((struct jinja_value){.kind = JINJA_TEXT, .s = (x)})

static inline struct jinja_text text_from(const char *s)
{
    return (struct jinja_text){s, NULL, strlen(s)};
}

static inline int text_is(struct jinja_text t, const char *s)
{
    return t.n == strlen(s) && memcmp(t.p, s, t.n) == 0;
}

static inline struct jinja_text text_part(struct jinja_text t, size_t from, size_t n)
{
    return (struct jinja_text){t.p + from, t.from ? t.from + from : NULL, n};
}

size_t text_char(struct jinja_text t, size_t at); /* bytes of the character at `at` < t.n */
size_t text_length(struct jinja_text t);          /* characters */
/* The first `part` at or after `from`; t.n + 1 if there is none. */
size_t text_find(struct jinja_text t, struct jinja_text part, size_t from);
struct jinja_text text_join(struct jinja *j, struct jinja_text a, struct jinja_text b);
struct jinja_value *dict_find(const struct jinja_dict *d, struct jinja_text key);
void dict_set(struct jinja *j, struct jinja_dict *d, struct jinja_text key, struct jinja_value v);

/* ---- a run ---- */

struct jinja_macro { /* the value of a built-in function has none */
    const struct node *node;
    struct jinja_dict *scope; /* in which it was defined */
};
struct args {
    struct jinja_value v[JINJA_ARGS], named[JINJA_ARGS];
    struct jinja_text name[JINJA_ARGS];
    size_t n, n_named;
};
struct run {
    struct jinja *j;
    struct err *e;
    int rc, depth, flow; /* flow: NODE_BREAK or NODE_CONTINUE on its way out, else 0 */
    int64_t steps, now;
    const struct node *at; /* for messages */
    struct str *out, *from;
    struct jinja_dict *root;
};
/* The first failure ends the run.  Returns UNDEFINED. */
struct jinja_value run_fail(struct run *r, const char *fmt, ...) DS_PRINTF(2, 3);
int value_truth(struct jinja_value v);
int value_equal(struct run *r, struct jinja_value a, struct jinja_value b);
int value_contains(struct run *r, struct jinja_value all, struct jinja_value one);
struct jinja_text value_text(struct run *r, struct jinja_value v); /* as `~` and output have it */
/* The text written to `out`, each byte with its origin in `from`. */
struct jinja_value text_of_strings(struct run *r, const struct str *out, const struct str *from);
struct jinja_value value_json(struct run *r, struct jinja_value v); /* json.c */
/* What `for` goes through; this uses up a list that is only there once. */
struct jinja_list *value_items(struct run *r, struct jinja_value v);
struct jinja_value value_attribute(struct run *r, struct jinja_value v, struct jinja_text name);
struct jinja_value value_index(struct run *r, struct jinja_value v, struct jinja_value at);

/* ---- what templates can call: call.c ---- */

struct jinja_value call_filter(struct run *r, struct jinja_text name, struct jinja_value self,
                               struct args *a);
struct jinja_value call_method(struct run *r, struct jinja_text name, struct jinja_value self,
                               struct args *a);
/* *found is set to 0 when there is no such function. */
struct jinja_value call_function(struct run *r, struct jinja_text name, struct args *a, int *found);
int call_is_function(struct jinja_text name);
int call_test(struct run *r, struct jinja_text name, struct jinja_value self, struct args *a);

#endif
