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
    BPE_TOKEN_BYTES = 8192, /* longest token accepted from a file  */
    BPE_TRAIN_BYTES = 128,  /* longest token that training makes   */
    BPE_IDS_MAX = 1 << 22,  /* largest id + 1 accepted from a file */
    BPE_MERGES_MAX = 1 << 23,
    BPE_WORD_SMALL = 64,       /* longer words take the n log n path  */
    BPE_CACHE_SLOTS = 1 << 14, /* words whose ids are remembered      */
    BPE_UNUSED_BYTES = 512,    /* longest unused token that is taken apart */
    BPE_CACHE_KEY = 30,
    BPE_CACHE_IDS = 14,
};

/* --- pretok.c: text -> pieces that merges never cross ------------------------------------- */

struct json_node;

/* How matches and the gaps between them form pieces: separately, or joined. */
enum pretok_join {
    JOIN_NONE,
    JOIN_PREVIOUS, /* a match ends the piece before it, unless that is a match too     */
    JOIN_NEXT,     /* a match begins the piece after it, unless that is a match too    */
    JOIN_SAME      /* consecutive matches are one piece                                */
};
struct pretok_stage {
    struct regex *re;
    char *pattern;    /* owned, NUL-terminated */
    int drop_gaps;    /* text between matches is dropped instead of being a piece */
    int drop_matches; /* and the other way round */
    enum pretok_join join;
    int plain_words; /* a known pattern: common words need no regex match */
    int printable;   /* it sees bytes in GPT-2's printable alphabet, as after ByteLevel */
};
/* Each stage cuts the pieces of the one before it: matches, and the gaps between them. */
struct pretok {
    struct pretok_stage stage[PRETOK_STAGES];
    int n;
    int add_prefix_space; /* put a space before a text that does not begin with one */
    int byte_level;       /* patterns added from now on are for printable text */
};
typedef int pretok_fn(void *ctx, const char *s, size_t n, struct err *e);

extern const char pretok_gpt2[]; /* the GPT-2 pattern */
/* Compiles a tokenizer's pattern, which is written for a different regex engine. */
int pretok_regex(struct regex **out, const char *pattern, const char *what, struct err *e) DS_CHECK;
/* 1 when two patterns are equal up to escapes of literal characters. */
int pretok_same(const char *a, const char *b);
/* Copies the pattern; re must be NULL, plain_words is set here. */
int pretok_add(struct pretok *p, const struct pretok_stage *stage, struct err *e) DS_CHECK;
/* Calls fn for each piece of s, in order, every byte of s in one piece (but for dropped gaps).
 * Invalid UTF-8 bytes are pieces of their own. */
int pretok_walk(const struct pretok *p, const char *s, size_t n, pretok_fn *fn, void *ctx,
                struct err *e) DS_CHECK;
void pretok_release(struct pretok *p);

/* --- bpe.c, bpe_long.c: piece -> ids -------------------------------------------------------- */

struct bpe_merge {
    int32_t left, right, id;
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
/* Bytes dropped because the vocabulary has no token for them: count, and the first one. */
struct bpe_dropped {
    uint64_t bytes;
    unsigned char first;
    int is_reported;
};
/* State of a character-level vocabulary (SentencePiece and similar):
 * words start as characters, and missing characters fall back to bytes or to the unknown token.
 */
struct unigram;
struct bpe_chars {
    struct unigram *unigram; /* scores instead of merges; NULL: BPE */
    struct map symbol;       /* text of a token -> id                       */
    int32_t ascii[128];      /* the same for one ASCII character, -1: none  */
    uint32_t *length;        /* bytes of text per id, owned */
    int32_t unk;             /* -1: none, unknown characters are dropped */
    int fuse_unk;            /* consecutive unknown characters are one token */
    /* Two ids in place of each, and -1 where it stays itself; NULL: all stay. */
    int32_t (*split)[2];
    int byte_fallback;
    int all_words; /* the file declares that every mark begins a word   */
    char mark[4];  /* the character that begins words, "" if none */
    size_t mark_len;
    /* Bytes that stand before the mark inside some token.  After any other byte no merge can cross
     * the mark, and words may be cut there: it changes no id. */
    unsigned char joined[256];
};
struct bpe {
    struct pretok pre;
    struct bpe_chars *chars; /* NULL: byte-level */
    int32_t *rank;           /* of each merge, ascending, < merges; NULL: its place in the list */
    int32_t byte_id[256];    /* -1: the vocabulary lacks it */
    const uint32_t *length;  /* bytes of text per id, borrowed */
    struct bpe_merge *merge;
    size_t merges, merge_cap;
    struct bpe_slot *slot;
    size_t slots;     /* a power of two */
    struct map whole; /* piece -> id, when ignore_merges */
    int ignore_merges;
    int32_t unk;  /* byte-level: replaces bytes without a token; -1: they are dropped */
    int fuse_unk; /* consecutive ones are one token */
    struct bpe_cached *cache;
    struct bpe_dropped *dropped;
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
/* Merges n ids in place, quadratic: n <= BPE_WORD_SMALL; returns the new count. */
int bpe_merge_small(const struct bpe *b, int32_t *id, int n);
/* The same for any length, appended to out.  slot: one for each byte of text; see bpe_long.c. */
int bpe_merge_long(const struct bpe *b, int32_t *slot, size_t n, struct ids *out,
                   struct err *e) DS_CHECK;
/* Counts n dropped bytes. */
void bpe_drop(const struct bpe *b, const char *s, size_t n);
int bpe_push_ids(struct ids *out, const int32_t *id, int n, struct err *e) DS_CHECK;
void bpe_release(struct bpe *b);

/* --- bpe_chars.c ---------------------------------------------------------------------------- */

struct bpe_chars *bpe_chars_new(int vocab, struct err *e);
void bpe_chars_free(struct bpe_chars *c); /* NULL allowed */
/* Adds a token of the vocabulary with its text as in the file. */
int bpe_chars_add(struct bpe *b, int32_t id, const char *s, size_t n, struct err *e) DS_CHECK;
/* Marks an id as unused: it is replaced by the two tokens it is merged from. */
int bpe_chars_unused(struct bpe *b, int32_t id, int vocab, struct err *e) DS_CHECK;
/* Finds these two tokens for all unused ids; call after bpe_ready. */
void bpe_chars_split(struct bpe *b);
/* Finds the mark once all tokens are in.  metaspace: it is U+2581 in any case; split: each begins a
 * word. */
void bpe_chars_ready(struct bpe *b, int metaspace, int split);
/* One piece of text, any length. The cache makes this not thread-safe. */
int bpe_encode_chars(const struct bpe *b, const char *s, size_t n, struct ids *out,
                     struct err *e) DS_CHECK;
/* The byte encoded by "<0x0A>", or -1. */
int bpe_fallback_byte(const char *s, size_t n);

/* --- unigram.c: the segmentation with the highest sum of scores ----------------------------- */

enum { UNIGRAM_PIECE = 512 }; /* longest piece in bytes */
struct unigram_piece {
    const char *s; /* borrowed from the map of symbols */
    uint32_t n;
    int32_t id;
};
struct unigram {
    struct unigram_piece *piece; /* sorted by text */
    size_t pieces;
    double *score; /* of each id */
    double unk_score;
    /* SentencePiece: sums are floats, and unknown text is never looked up as a whole */
    int single;
};
struct unigram *unigram_new(int32_t ids, struct err *e);
void unigram_free(struct unigram *u); /* NULL allowed */
/* Sorts the pieces of the symbol map for which skip (NULL: none) is 0. */
int unigram_ready(struct bpe_chars *c, const unsigned char *skip, struct err *e) DS_CHECK;
/* One piece of text, any length. */
int unigram_encode(const struct bpe *b, const char *s, size_t n, struct ids *out,
                   struct err *e) DS_CHECK;
uint64_t unigram_hash(const struct unigram *u, uint64_t h);

/* GPT-2's printable alphabet: the code point of a byte, and back (-1 if none). */
uint32_t bpe_byte_rune(unsigned char byte);
int bpe_rune_byte(uint32_t rune);
/* A token's bytes from its printable form; 0: not in the alphabet, kept as it is. */
int bpe_printable_bytes(struct str *out, const char *s, size_t n);

/* ---- normalize.c: normalization of text before pre-tokenization, and of decoded tokens ---- */

struct added_index;
enum norm_kind {
    NORM_NFC,
    NORM_PREPEND,
    NORM_REPLACE,
    NORM_REPLACE_REGEX,
    NORM_CHARSMAP,
    NORM_NFD,
    NORM_NFKC,
    NORM_NFKD,
    NORM_LOWERCASE,
    NORM_STRIP,
    NORM_STRIP_ACCENTS,
    NORM_CHARSMAP_CLUSTERS /* the map as Hugging Face applies it */
};
enum { NORM_STEPS = 12, NORM_TEXT = 64 };
struct norm_step {
    enum norm_kind kind;
    char *from, *to; /* owned; REPLACE: each `from` becomes `to`; PREPEND: `to` goes in front;
                        CHARSMAP: `from` is the map; STRIP: `from` has an l and an r for the ends */
    size_t from_len, to_len;
    struct regex *re;               /* of REPLACE_REGEX; made from `from` by norm_add */
    const struct added_index *keep; /* CHARSMAP: texts that are not changed, borrowed; NULL */
};
struct norm {
    struct norm_step step[NORM_STEPS];
    int n;
};
/* Copies the texts, each at most NORM_TEXT bytes but for a map's. */
int norm_add(struct norm *m, struct norm_step s, struct err *e) DS_CHECK;
int norm_has_nfc(const struct norm *m);
/* *p, *n become the normalised text: the input if nothing changes, else text in `own`.  Empty
 * text stays empty. */
int norm_apply(const struct norm *m, const char **p, size_t *n, struct str *own,
               struct err *e) DS_CHECK;
void norm_release(struct norm *m);

/* ---- charsmap.c: SentencePiece's normalisation by the longest matching table entry ---- */

int charsmap_check(const char *p, size_t n, struct err *e) DS_CHECK;
/* Appends s normalised by the step's map, and stops shortly after `most` bytes. */
void charsmap_apply(struct str *out, const struct norm_step *step, const char *s, size_t n,
                    size_t most);
/* The same as Hugging Face does it: a grapheme cluster of less than 6 bytes, else each of its
 * characters, becomes the replacement of the shortest entry that it begins with. */
void charsmap_clusters(struct str *out, const struct norm_step *step, const char *s, size_t n,
                       size_t most);

/* --- tokenizer.c ----------------------------------------------------------------------------- */

struct added_token {
    char *text;
    size_t len;
    int32_t id;
    int special, lstrip, rstrip;
    int normalized;  /* matched in normalised text, by its normalised text */
    int as_piece;    /* the same, by its unchanged text */
    int is_raw;      /* of as_piece: other programs are to match it in raw text */
    int single_word; /* no adjacent word character allowed */
};
/* Index of added tokens: matches the longest one at the leftmost position. */
struct added_index {
    struct map map; /* text -> index into added     */
    size_t *len;    /* distinct lengths, descending */
    size_t n_len;
    unsigned char *pair; /* bitmap over the first two bytes of any of them; NULL: there are none */
    int has_plain;       /* some are not special */
};
/* Hugging Face's Metaspace pre-tokenizer: spaces become marks, and one is put in front. */
enum metaspace_when { METASPACE_NEVER, METASPACE_FIRST, METASPACE_ALWAYS };
struct metaspace {
    int on, split;
    int of_pieces; /* after the patterns, to each piece; 0: before them */
    enum metaspace_when when;
};
enum { IS_TOKEN = 1, IS_SPECIAL = 2 };
struct tokenizer {
    const char *kind;
    int vocab;
    int32_t eot, bos;
    int32_t after;          /* token after a text, -1: none; only exported, for other programs */
    struct str bytes;       /* all pieces, end to end         */
    uint64_t *offset;       /* of piece i in bytes            */
    uint32_t *length;       /* of piece i                     */
    unsigned char *present; /* 0: a gap in the ids; IS_TOKEN, with IS_SPECIAL for special ones */
    struct bpe *bpe;        /* NULL: plain bytes              */
    struct norm norm, decoder;
    struct metaspace metaspace;
    int by_length; /* the longest added token is matched first; 0: the leftmost, or no difference */
    int strip_space; /* decoding removes one leading space */
    int has_gaps;    /* decoding puts a space between pieces: characters without a decoder */
    struct added_token *added;
    size_t n_added, added_cap;
    struct map added_map;       /* text -> index into added     */
    struct added_index find[2]; /* in text as it is, in normalised text */
    struct regex *word;         /* one word character; NULL: no added token is a single word */
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
int tokenizer_index_added(struct tokenizer *t, struct err *e) DS_CHECK;
/* Bytes of the longest text of the index that s begins with, 0: none; *which: its token. */
size_t added_match(const struct added_index *x, const char *s, size_t n, int64_t *which);
void added_index_release(struct added_index *x);
/* 0: no added token begins at s. */
int added_may_begin(const struct added_index *x, const char *s, size_t n);
/* 1 when s begins with white space (Unicode's), *len its bytes. */
int tokenizer_is_space(const char *s, size_t n, size_t *len);
/* The end of s[from, end) without white space at its end. */
size_t tokenizer_trim_end(const char *s, size_t from, size_t end);
/* --- tokenizer_longest.c */
struct added_found {
    size_t at, len;
    const struct added_token *a;
};
/* Whether the end of some added token is the beginning of one: only then it matters which is found
 * first. */
int added_overlap(const struct tokenizer *t);
/* All of them in s, in their order there; *out is the caller's to free. */
int added_longest_first(const struct tokenizer *t, const struct added_index *x, const char *s,
                        size_t n, int special, struct added_found **out, size_t *found,
                        struct err *e) DS_CHECK;
/* The tokenizer.json's normalizer, pre-tokenizer and decoder; the model is read before them. */
int tokenizer_read_steps(struct tokenizer *t, const struct json_node *root, struct err *e) DS_CHECK;
/* In the model of our own tokenizer.json: texts of what goes before a text and ends one, where the
 * rest does not say. */
#define TOKENIZER_BOS "bos_token"
#define TOKENIZER_EOS "eos_token"
/* The same for which added token is found first: true: the longest. */
#define TOKENIZER_BY_LENGTH "added_by_length"
/* "PART "NAME" is not supported ..."; DS_EFORMAT. */
int tokenizer_refuse(struct err *e, const char *part, const char *name);
/* Appends the tokenizer.json that tokenizer_save writes. */
void tokenizer_write(struct str *out, const struct tokenizer *t);
/* Bytes in GPT-2's printable alphabet. */
void tokenizer_add_printable(struct str *out, const char *s, size_t n);
/* A tokenizer.json in memory; `what` names it in messages. */
int tokenizer_load_json(struct tokenizer **out, const char *p, size_t n, const char *what,
                        struct err *e) DS_CHECK;

#endif
