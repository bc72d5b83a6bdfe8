/* What the tokenizer files share: pre-tokenization, byte-level BPE, and the tokenizer itself.
 * Internal to the data layer; everyone else includes "data/tokenizer.h". */
#ifndef DS_DATA_BPE_H
#define DS_DATA_BPE_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/map.h"
#include "base/regex.h"
#include "base/str.h"
#include "data/tokenizer.h"

enum {
    PRETOK_STAGES = 8,
    BPE_TOKEN_BYTES = 8192,    /* longest token accepted from a file  */
    BPE_TRAIN_BYTES = 128,     /* longest token that training makes   */
    BPE_IDS_MAX = 1 << 22,     /* largest id + 1 accepted from a file */
    BPE_WORD_SMALL = 64,       /* longer words take the n log n path  */
    BPE_CACHE_SLOTS = 1 << 14, /* words whose ids are remembered      */
    BPE_CACHE_KEY = 30,
    BPE_CACHE_IDS = 14,
};

/* --- pretok.c: text -> pieces that merges never cross ------------------------------------- */

struct pretok_stage {
    struct regex *re;
    char *pattern; /* owned, NUL-terminated */
    int drop_gaps; /* text between matches is dropped instead of being a piece */
};
/* Each stage cuts the pieces of the one before it: matches, and the gaps between them. */
struct pretok {
    struct pretok_stage stage[PRETOK_STAGES];
    int n;
    int add_prefix_space; /* put a space before a text that does not begin with one */
};
typedef int pretok_fn(void *ctx, const char *s, size_t n, struct err *e);

extern const char pretok_gpt2[]; /* the GPT-2 pattern */
int pretok_add(struct pretok *p, const char *pattern, int drop_gaps, struct err *e) DS_CHECK;
/* Calls fn for each piece of s, in order, every byte of s in one piece (but for dropped gaps).
 * Invalid UTF-8 bytes are pieces of their own. */
int pretok_walk(const struct pretok *p, const char *s, size_t n, pretok_fn *fn, void *ctx,
                struct err *e) DS_CHECK;
void pretok_release(struct pretok *p);

/* --- bpe.c, bpe_long.c: piece -> ids -------------------------------------------------------- */

struct bpe_merge {
    int32_t left, right, id; /* rank = place in the list */
};
struct bpe_slot {
    uint64_t key; /* left and right + 1, 0 = free */
    int32_t rank, id;
};
struct bpe_cached {
    uint64_t hash;
    uint8_t len, n;
    char key[BPE_CACHE_KEY];
    int32_t id[BPE_CACHE_IDS];
};
struct bpe {
    struct pretok pre;
    int32_t byte_id[256];   /* -1: the vocabulary lacks it */
    const uint32_t *length; /* bytes of each id's piece, borrowed from the tokenizer */
    struct bpe_merge *merge;
    size_t merges, merge_cap;
    struct bpe_slot *slot;
    size_t slots;     /* a power of two */
    struct map whole; /* piece -> id, when ignore_merges */
    int ignore_merges;
    struct bpe_cached *cache;
    int32_t *of_rank; /* scratch of bpe_encode_long: -1 between calls */
};

int bpe_add_merge(struct bpe *b, int32_t left, int32_t right, int32_t id, struct err *e) DS_CHECK;
/* Builds the lookup table and the cache once all merges are in; a repeated pair takes its last
 * rank. */
int bpe_ready(struct bpe *b, struct err *e) DS_CHECK;
/* The slot of a pair, or NULL. */
const struct bpe_slot *bpe_find(const struct bpe *b, int32_t left, int32_t right);
/* One piece. The cache makes this not thread-safe. */
int bpe_encode_piece(const struct bpe *b, const char *s, size_t n, struct ids *out,
                     struct err *e) DS_CHECK;
int bpe_encode_long(const struct bpe *b, const char *s, size_t n, struct ids *out,
                    struct err *e) DS_CHECK;
void bpe_release(struct bpe *b);

/* GPT-2's printable stand-ins: the code point that stands for a byte, and back (-1 if none). */
uint32_t bpe_byte_rune(unsigned char byte);
int bpe_rune_byte(uint32_t rune);

/* --- tokenizer.c ----------------------------------------------------------------------------- */

struct added_token {
    char *text;
    size_t len;
    int32_t id;
    int special, lstrip, rstrip;
};
struct tokenizer {
    const char *kind;
    int vocab;
    int32_t eot, bos;
    struct str bytes;       /* all pieces, end to end         */
    uint64_t *offset;       /* of piece i in bytes            */
    uint32_t *length;       /* of piece i                     */
    unsigned char *present; /* 0: a gap in the ids            */
    struct bpe *bpe;        /* NULL: plain bytes              */
    int nfc;                /* text is normalised before it is cut */
    struct added_token *added;
    size_t n_added, added_cap;
    struct map added_map; /* text -> index into added     */
    size_t *added_len;    /* distinct lengths, descending */
    size_t n_added_len;
    unsigned char *added_pair; /* bitmap over the first two bytes of any added token */
    int has_plain_added;       /* some added token is not special */
    struct str source; /* the tokenizer.json it came from, kept so that saving loses nothing */
};

/* An empty tokenizer with room for `vocab` ids. */
struct tokenizer *tokenizer_new(const char *kind, int vocab, struct err *e);
/* Sets the bytes of one id (< vocab, not set before). */
int tokenizer_set_piece(struct tokenizer *t, int32_t id, const char *s, size_t n,
                        struct err *e) DS_CHECK;
int tokenizer_add_special(struct tokenizer *t, const struct added_token *a, struct err *e) DS_CHECK;
/* Builds what encoding needs once all pieces, merges and added tokens are in. */
int tokenizer_ready(struct tokenizer *t, struct err *e) DS_CHECK;
/* A tokenizer.json in memory; `what` names it in messages. */
int tokenizer_load_json(struct tokenizer **out, const char *p, size_t n, const char *what,
                        struct err *e) DS_CHECK;

#endif
