/* JSON reading (by jansson: strict UTF-8, no duplicate keys, bounded depth) as a
 * borrowed tree.  Writing is done with struct str (str_add_json). */
#ifndef DS_BASE_JSON_H
#define DS_BASE_JSON_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct json;      /* the document, owned  */
struct json_node; /* a value in it, borrowed: lives as long as the document */

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
/* Iterates over members in file order: i from 0; returns value and key, NULL at the end. */
const struct json_node *json_member(const struct json_node *object, size_t i, const char **key,
                                    size_t *key_len);
/* NULL unless a string; NUL-terminated, and without NUL inside. */
const char *json_str(const struct json_node *n, size_t *len);
int64_t json_int(const struct json_node *n, int64_t otherwise);
double json_num(const struct json_node *n, double otherwise); /* int or real */
int json_bool(const struct json_node *n, int otherwise);

#endif
