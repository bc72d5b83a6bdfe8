/* The tensors of one model: one safetensors file, or the shards that model.safetensors.index.json
 * names. */
#ifndef DS_IO_ST_SET_H
#define DS_IO_ST_SET_H

#include "io/safetensors.h"

struct st_set;
/* PATH is a file of tensors, an index (.json), or a directory that holds model.safetensors or,
 * without it, its index. An index and its shards must agree: DS_EFORMAT names a missing shard, or a
 * tensor that two shards hold, that its shard lacks, or that the index does not list.  Pickled
 * weights are recognised and refused. */
int st_set_open(struct st_set **out, const char *path, struct err *e) DS_CHECK;
const char *st_set_path(const struct st_set *s); /* the file or index that messages name */
size_t st_set_count(const struct st_set *s);
size_t st_set_shards(const struct st_set *s);
const struct st_tensor *st_set_at(const struct st_set *s, size_t i);
/* NULL when there is none; its index for st_set_at in *at, which may be NULL. */
const struct st_tensor *st_set_find(const struct st_set *s, const char *name, size_t *at);
/* As st_unchanged, for every file. */
int st_set_unchanged(const struct st_set *s, struct err *e) DS_CHECK;
/* As st_intact. */
int st_set_intact(const struct st_set *s, struct err *e) DS_CHECK;
void st_set_close(struct st_set *s);

#endif
