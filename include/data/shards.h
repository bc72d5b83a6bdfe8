/* Texts that are already tokens: the .bin shards of nanoGPT (uint16, no header) and llm.c (a header of
 * 256 int32, then uint16 or uint32).  They are mapped and may be larger than memory: pages that
 * were read are given back, so that the process does not grow with the files. */
#ifndef DS_DATA_SHARDS_H
#define DS_DATA_SHARDS_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct shards;
/* 1 when PATH names token shards: a .bin file that is not text, a folder of train*.bin, val*.bin or
 * llm.c's files, or a pattern (dir/fineweb_*.bin). */
int shards_at(const char *path);
/* A truncated file, or files of different formats: DS_EFORMAT naming the file. */
int shards_open(struct shards **out, const char *path, struct err *e) DS_CHECK;
/* A second owner; each closes it once. */
struct shards *shards_share(struct shards *s);
void shards_close(struct shards *s);

uint64_t shards_hash(const struct shards *s); /* of the sizes, and of the ends of the files */
/* One split as a stream of tokens, in the order of the files' names.  When names hold "train" and
 * "val", the later one in the name counts, those are the splits; otherwise the last `fraction` of
 * all tokens is for validation. */
struct shards_split {
    struct shards *shards;
    int is_val, by_name;
    uint64_t first, n; /* token of the files' stream (of this split, when by name) */
};
struct shards_split shards_split(struct shards *s, int is_val, double fraction);
/* Copies n tokens from `at` of the split on.  An id that is not below `vocab` is replaced by 0, and
 * the first of them is kept for shards_check. */
void shards_read(const struct shards_split *split, uint64_t at, size_t n, int vocab, int32_t *out);
/* DS_ERANGE naming file and byte of the first id that was beyond the vocabulary; 0 when none was. */
int shards_check(const struct shards *s, struct err *e) DS_CHECK;

#endif
