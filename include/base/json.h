/* JSON reading: a thin layer over jansson (strict UTF-8, no duplicate keys, bounded depth) with
 * borrowed values. Writing appends to a struct str, member by member. */
#ifndef DS_BASE_JSON_H
#define DS_BASE_JSON_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"

struct json;      /* the document, owned */
struct json_node; /* a value in it, borrowed: lives as long as the document (jansson's json_t) */

enum json_kind {
    JSON_KIND_NULL,
    JSON_KIND_BOOL,
    JSON_KIND_INT,
    JSON_KIND_REAL,
    JSON_KIND_STRING,
    JSON_KIND_ARRAY,
    JSON_KIND_OBJECT,
};

/* `what` names the source in messages ("config.json"); errors contain line, column and offset. */
int json_parse(struct json **out, const char *p, size_t n, const char *what,
               struct err *e) DS_CHECK;
/* The same for files with integers beyond 64 bits (some programs write "no limit" so): all numbers
 * become reals. */
int json_parse_wide(struct json **out, const char *p, size_t n, const char *what,
                    struct err *e) DS_CHECK;
/* The same for files with \u0000 in strings, for which json_str returns NULL. */
int json_parse_nul(struct json **out, const char *p, size_t n, const char *what,
                   struct err *e) DS_CHECK;
int json_read_file(struct json **out, const char *path, uint64_t cap, struct err *e) DS_CHECK;
/* The same with json_parse_wide. */
int json_read_wide(struct json **out, const char *path, uint64_t cap, struct err *e) DS_CHECK;
void json_free(struct json *j);
const struct json_node *json_root(const struct json *j);

/* All accept NULL and nodes of another kind: they return NULL, 0 or the default. */
enum json_kind json_kind_of(const struct json_node *n); /* NULL -> JSON_KIND_NULL */
const struct json_node *json_get(const struct json_node *object, const char *key);
const struct json_node *json_at(const struct json_node *array, size_t i);
size_t json_len(const struct json_node *array_or_object);
/* Iterates over members in file order: *at starts as NULL; returns the next value and its key
 * (key, key_len may be NULL), NULL at the end. */
const struct json_node *json_next(const struct json_node *object, void **at, const char **key,
                                  size_t *key_len);
/* NULL unless a string; NUL-terminated, and without NUL inside. */
const char *json_str(const struct json_node *n, size_t *len);
const char *json_get_text(const struct json_node *object, const char *key); /* "" unless a string */
int64_t json_int(const struct json_node *n, int64_t otherwise);
double json_num(const struct json_node *n, double otherwise); /* int or real */
int json_bool(const struct json_node *n, int otherwise);

/* ---- writing ----

 * "key":value, preceded by a comma if needed; key NULL: an array item.  The
 * caller adds the brackets. json_key alone starts a member whose value the caller appends. */
void json_key(struct str *s, const char *key);
void json_add_num(struct str *s, const char *key, double v); /* null when not finite */
void json_add_int(struct str *s, const char *key, int64_t v);
void json_add_str(struct str *s, const char *key, const char *v);
void json_add_nums(struct str *s, const char *key, const double *v, size_t n);
void json_add_ids(struct str *s, const char *key, const int32_t *v, size_t n);

#endif
