/* Layered key = value configuration: built-in defaults (option tables) < preset file (YAML, with
 * inheritance) < project < command line `a.b=value`.  Records the origin of every value. */
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
    uint64_t order; /* larger = set later; decides between aliases of one option */
};
struct config {
    struct config_entry *entry;
    size_t n, cap;
    struct map index; /* key -> place in entry, -1 when removed */
    uint64_t order;
};

/* Keys: parts of [A-Za-z0-9_-] joined by dots, at most CONFIG_KEY_MAX bytes. */
enum { CONFIG_KEY_MAX = 200 };

/* Later calls override earlier ones.  YAML maps are flattened with dots; leaves are scalars
 * (sequences of scalars become "[a,b]", which opt.is_list reads).  Size <= 1 MiB, depth <= 64; no
 * aliases, tags, references ${...} or duplicate keys. */
/* A top-level `extends: NAME` first reads NAME (or NAME.yaml) from the same directory, at most 8
 * deep. On failure `c` is unchanged; all errors are reported with line and column, up to the text's
 * size. */
int config_read_yaml(struct config *c, const char *path, struct err *e) DS_CHECK;
int config_read_yaml_text(struct config *c, const char *text, size_t n, const char *what,
                          struct err *e) DS_CHECK;
/* One override from the command line: "a.b=v", "--a.b=v" and "++a.b=v" set a key, "+a.b=v" adds a
 * new one, "~a.b" and "~a.b=v" remove one.  Other spellings ("a.b:=v", "a.b+=v") are errors
 * (DS_EUSAGE).  This is the only parser of overrides. */
enum override_op { OVERRIDE_SET, OVERRIDE_ADD, OVERRIDE_REMOVE };
struct override {
    enum override_op op;
    char key[CONFIG_KEY_MAX + 1];
    const char *value; /* in the text; NULL: "~a.b" */
};
int override_parse(struct override *o, const char *text, const char *where, struct err *e) DS_CHECK;
/* 1 when an argument looks like an override, even one that override_parse rejects. */
int override_is(const char *word);
/* Applies one: "~a.b" removes the key and all keys below it, "~a.b=v" only that value.
 * DS_EUSAGE. */
int config_override(struct config *c, const char *text, const char *where, struct err *e) DS_CHECK;
int config_set(struct config *c, const char *key, const char *value, const char *where,
               struct err *e) DS_CHECK;
/* Sets every entry of `over` in `c`, or none on DS_EMEM. */
int config_merge(struct config *c, const struct config *over, struct err *e) DS_CHECK;
const char *config_get(const struct config *c, const char *key); /* NULL if absent */
void config_remove(struct config *c, const char *key);
/* Copies the values of a group's keys into `values` (after opt_defaults), marking them used.
 * All errors of the group are reported, joined by "; ". */
int config_apply(struct config *c, const struct opt_group *g, void *values, struct err *e) DS_CHECK;
/* Reports every unused key with its origin and the nearest key of the groups, if one is near.
 * DS_EUSAGE. */
int config_check_unused(const struct config *c, const struct opt_group *const *groups, size_t n,
                        struct err *e) DS_CHECK;
/* Offers every key and alias of the group. */
void config_nearest_key(struct nearest *best, const struct opt_group *g);
/* YAML text of a group's current values, nested by the dots. */
void config_print_group(struct str *out, const struct opt_group *g, const void *values);
void config_release(struct config *c);

#endif
