/* Layered key = value configuration: built-in defaults (option tables) < preset file (YAML, with
 * inheritance) < project < command line `a.b=value`.  Knows where every value came from. */
#ifndef DS_BASE_CONFIG_H
#define DS_BASE_CONFIG_H

#include <stdint.h>

#include "base/err.h"
#include "base/map.h"
#include "base/nearest.h"
#include "base/opt.h"
#include "base/str.h"

struct config_entry {
    char *key;      /* full, "train.lr"                */
    char *value;    /* text as given                   */
    char *where;    /* "quick.yaml:7", "argument 3"    */
    int used;       /* taken by an option group        */
    uint64_t order; /* a larger one was set later: it wins where two names mean one option */
};
struct config {
    struct config_entry *entry;
    size_t n, cap;
    struct map index; /* key -> place in entry, -1 when removed */
    uint64_t order;
};

/* Keys: parts of [A-Za-z0-9_-] joined by dots, at most CONFIG_KEY_MAX bytes. */
enum { CONFIG_KEY_MAX = 200 };

/* Later calls override earlier ones. YAML maps are flattened with dots; scalars only at the leaves
 * (sequences of scalars become "[a,b]").  Size <= 1 MiB, depth <= 64; no aliases, tags, references
 * ${...} or keys given twice. */
/* A top-level `extends: NAME` first reads NAME (or NAME.yaml) of the same directory, 8 deep at most.
 * On failure `c` is as before; all errors with line and column, as far as the text holds them. */
int config_read_yaml(struct config *c, const char *path, struct err *e) DS_CHECK;
int config_read_yaml_text(struct config *c, const char *text, size_t n, const char *what,
                          struct err *e) DS_CHECK;
/* One override of a command line.  This is the only reader of its spellings: "a.b=v", "--a.b=v" and "++a.b=v" set a
 * key, "+a.b=v" adds a new one, "~a.b" and "~a.b=v" remove one.  "a.b:=v", "a.b+=v" and other spellings are refused
 * (DS_EUSAGE), never taken for something else. */
enum override_op { OVERRIDE_SET, OVERRIDE_ADD, OVERRIDE_REMOVE };
struct override {
    enum override_op op;
    char key[CONFIG_KEY_MAX + 1];
    const char *value; /* in the text; NULL: "~a.b" */
};
int override_parse(struct override *o, const char *text, const char *where, struct err *e) DS_CHECK;
/* 1 when a word of a command line is meant as an override, also one that override_parse refuses. */
int override_is(const char *word);
/* Applies one: "~a.b" removes the key and what is below it, "~a.b=v" only that value.  DS_EUSAGE. */
int config_override(struct config *c, const char *text, const char *where, struct err *e) DS_CHECK;
int config_set(struct config *c, const char *key, const char *value, const char *where,
               struct err *e) DS_CHECK;
/* Sets every entry of `over` in `c`; all or, on DS_EMEM, nothing. */
int config_merge(struct config *c, const struct config *over, struct err *e) DS_CHECK;
const char *config_get(const struct config *c, const char *key); /* NULL if absent */
void config_remove(struct config *c, const char *key);
/* Moves the values of a group's keys into `values` (after opt_defaults), marking them used.
 * All errors of the group are reported, joined by "; ". */
int config_apply(struct config *c, const struct opt_group *g, void *values, struct err *e) DS_CHECK;
/* Fails with every unused key, its place, and the nearest key among the groups. DS_EUSAGE. */
int config_check_unused(const struct config *c, const struct opt_group *const *groups, size_t n,
                        struct err *e) DS_CHECK;
/* Offers every key and other name of the group. */
void config_nearest_key(struct nearest *best, const struct opt_group *g);
/* YAML text of a group's present values, nested by the dots. */
void config_print_group(struct str *out, const struct opt_group *g, const void *values);
void config_release(struct config *c);

#endif
