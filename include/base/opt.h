/* Options as tables: parser, help, workbench form and reference are generated from one row per
 * option.  A module keeps its values in a struct and gives offsets into it. */
#ifndef DS_BASE_OPT_H
#define DS_BASE_OPT_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum opt_type {
    OPT_INT,    /* int64_t                                  */
    OPT_REAL,   /* double                                   */
    OPT_BOOL,   /* int: true/false/yes/no/on/off/1/0        */
    OPT_STRING, /* char *, heap, never NULL after defaults  */
    OPT_ENUM,   /* int, index into `choices` ("a|b|c")      */
};

struct opt {
    const char *key; /* "lr"; the group's prefix ("train.") is added by the table's owner */
    enum opt_type type;
    size_t offset;         /* of the value in the module's struct */
    const char *otherwise; /* default, as text                    */
    double min, max;       /* inclusive; both 0 = unlimited (numbers must be finite in any case) */
    const char *choices;   /* OPT_ENUM                            */
    const char *help;      /* one line; units in it               */
    /* Further slots of a row may be left out: NULL, 0. */
    const char *alias;  /* other full keys of the option (names used in papers), space-separated */
    const char *former; /* OPT_ENUM: earlier spellings that are still read: "old=new older=new" */
    int is_live; /* a number that can be set while a run trains: only where every step reads it anew,
                  * or the method's `changed` hook recomputes what depends on it */
    int is_list; /* OPT_STRING: items separated by commas; "[a,b]", a list of YAML, is "a,b" */
};

struct opt_group {
    const char *prefix; /* "train." or "" */
    const char *title;
    const struct opt *opts;
    size_t n;
};

/* Sets every value to its default.  `values` must be zeroed or set before. */
int opt_defaults(const struct opt_group *g, void *values, struct err *e) DS_CHECK;
/* Parses text into the row's value and checks its range.  `where` ("file:line" or "argument") is
 * for the message. */
int opt_set(const struct opt *o, void *values, const char *text, const char *where,
            struct err *e) DS_CHECK;
/* The same with the group's prefix in front of the key in messages. DS_EUSAGE: not of the type;
 * DS_ERANGE: outside min..max; DS_EMEM. */
int opt_set_named(const struct opt *o, const char *prefix, void *values, const char *text,
                  const char *where, struct err *e) DS_CHECK;
/* The same from a number, which must fit the row's type. */
int opt_set_number(const struct opt *o, const char *prefix, void *values, double value,
                   struct err *e) DS_CHECK;
/* The value as text that opt_set can parse. */
void opt_print(const struct opt *o, const void *values, char *out, size_t size);
/* The same whatever its length: a string itself, anything else printed to space. */
const char *opt_text(const struct opt *o, const void *values, char *space, size_t size);
/* 1 when min and max limit the row's number. */
int opt_is_limited(const struct opt *o);
/* The i-th alias; 0 when there is none. */
int opt_alias(const struct opt *o, int i, char *out, size_t size);
const struct opt *opt_find(const struct opt_group *g, const char *full_key);
void opt_release(const struct opt_group *g, void *values); /* frees strings */

#endif
