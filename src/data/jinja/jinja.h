/* Jinja as chat templates use it: statements if, for, set, macro, break, continue and generation,
 * expressions, and the filters, tests and methods listed in call.c, with the white-space rules
 * of transformers (trim_blocks, lstrip_blocks).  Everything else is refused by name when it is
 * reached.  Knows nothing of chats or tokens: it only remembers which bytes were in an input.
 *
 * A template is untrusted: its steps, depth and memory are bounded. */
#ifndef DS_DATA_JINJA_JINJA_H
#define DS_DATA_JINJA_JINJA_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"

enum jinja_kind {
    JINJA_UNDEFINED,
    JINJA_NONE,
    JINJA_BOOL,
    JINJA_INT,
    JINJA_TEXT,
    JINJA_LIST,
    JINJA_DICT,
    JINJA_MACRO
};

/* Bytes of UTF-8; invalid bytes count as characters.  from (n): where each byte comes from, 0 the
 * template, else the number given to jinja_text_of; NULL: all from the template. */
struct jinja_text {
    const char *p;
    const uint8_t *from;
    size_t n;
};
/* Without white space (as Python's str.strip knows it), or without any of `chars`, at the ends. */
struct jinja_text jinja_strip(struct jinja_text t, const struct jinja_text *chars, int left,
                              int right);

struct jinja_value {
    enum jinja_kind kind;
    union {
        int64_t i;
        struct jinja_text s;
        struct jinja_list *list;
        struct jinja_dict *dict;
        const struct jinja_macro *macro;
    };
};
struct jinja_list {
    struct jinja_value *v;
    size_t n, cap;
    int is_once; /* a generator of Python: true though empty, without length, empty after use */
};
struct jinja_dict {
    struct jinja_pair {
        struct jinja_text key;
        struct jinja_value value;
    } * v;
    size_t n, cap;
    int is_namespace;             /* attributes can be set */
    struct jinja_dict *enclosing; /* of a scope: names not found here are looked up there */
};

/* A parsed template and the memory of all its values. */
struct jinja;
/* text is copied.  DS_EUSAGE naming line and construct when it is not supported. */
int jinja_open(struct jinja **out, const char *text, size_t n, struct err *e) DS_CHECK;
void jinja_close(struct jinja *j);

/* Values for variables; they live as long as `j`.  Out of memory is reported by jinja_render. */
struct jinja_value jinja_text_of(struct jinja *j, const char *p, size_t n, uint8_t from);
static inline struct jinja_value jinja_none(void)
{
    return (struct jinja_value){.kind = JINJA_NONE};
}
static inline struct jinja_value jinja_bool(int is)
{
    return (struct jinja_value){.kind = JINJA_BOOL, .i = is != 0};
}
struct jinja_value jinja_list_new(struct jinja *j);
struct jinja_value jinja_dict_new(struct jinja *j);
void jinja_append(struct jinja *j, struct jinja_value list, struct jinja_value v);
void jinja_put(struct jinja *j, struct jinja_value dict, const char *key, struct jinja_value v);

/* Appends the rendered text, and the origin of each byte to `from`.  now: Unix time for
 * strftime_now.  DS_EUSAGE for raise_exception and for what is not supported. */
int jinja_render(struct jinja *j, struct jinja_value vars, int64_t now, struct str *out,
                 struct str *from, struct err *e) DS_CHECK;
/* Did it fail by raise_exception: the template is sound, but refuses these messages? */
int jinja_is_refused(const struct jinja *j);

#endif
