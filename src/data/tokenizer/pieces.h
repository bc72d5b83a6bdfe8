/* Vocabularies of other formats, converted to an equivalent tokenizer.json: one reader, one
 * writer.  Internal to the data layer. */
#ifndef DS_DATA_PIECES_H
#define DS_DATA_PIECES_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"
#include "data/tokenizer.h"
#include "data/tokenizer_parts.h"

enum { PIECE_BYTES = 512 }; /* longest one accepted */

/* How scores choose pieces. */
enum piece_scores {
    SCORES_MERGE,    /* BPE: the pair whose piece has the highest score merges first */
    SCORES_SPM,      /* unigram as in SentencePiece */
    SCORES_LLAMA_CPP /* unigram as in llama.cpp: sums are doubles, unused pieces are matched */
};
/* Properties fixed by a format rather than stored in its file, in terms of tokenizer.json. */
struct piece_style {
    int byte_level;    /* pieces are bytes; else UTF-8 text  */
    int byte_fallback; /* pieces of TOKEN_BYTE replace unknown characters */
    int ignore_merges;
    enum piece_scores scores;
    int raw_user; /* user-defined pieces are matched in raw text, as in llama.cpp, not normalised */
    const char *normalizer, *pre_tokenizer, *decoder; /* JSON */
    const char *bos;                                  /* token in front of texts, NULL: none */
    int first_id;                                     /* of BPE: id of the first piece */
    int bos_id, eos_id, add_eos;                      /* add_eos: append eos to texts */
    const struct token_part *eos; /* token that ends texts, if it has no known name; NULL */
    /* More added tokens, as JSON objects each preceded by a comma; NULL: none. */
    const char *added;
};
/* Builds a tokenizer from pieces; id = index in p, after first_id. */
int pieces_load(struct tokenizer **out, const struct token_part *p, size_t n,
                const struct piece_style *style, const char *what, struct err *e) DS_CHECK;
/* Steps of a normalizer, as JSON. */
#define PIECES_BLOCK "\xE2\x96\x81"
#define PIECES_PREPEND "{\"type\":\"Prepend\",\"prepend\":\"" PIECES_BLOCK "\"}"
#define PIECES_MARK_SPACES                                                                         \
    "{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":\"" PIECES_BLOCK "\"}"
#define PIECES_REPLACE(pattern, with)                                                              \
    "{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"" pattern "\"},\"content\":\"" with "\"}"
#define PIECES_SEQUENCE "{\"type\":\"Sequence\",\"normalizers\":["
/* Appends SentencePiece's replacement table as a step and a comma; nothing if n is 0. */
void pieces_add_charsmap(struct str *out, const char *p, size_t n);
/* The style of SentencePiece: spaces are marks; prefix: one is put in front of texts. */
struct piece_style pieces_spm_style(int prefix);
/* Builds a tokenizer from tokens and merges as read from a file. */
int tokenizer_from_parts(struct tokenizer **out, const struct tokenizer_parts *p, const char *what,
                         struct err *e) DS_CHECK;
/* A token that goes before or after a text; text NULL: none. */
struct piece_end {
    const char *text;
    size_t n;
    int id;
};
/* Appends the post_processor that adds these tokens, or null, and a comma. */
void pieces_add_post(struct str *out, struct piece_end bos, struct piece_end eos);

/* Appends the model's line for eos and a comma; nothing if NULL. */
void pieces_add_eos(struct str *out, const struct token_part *eos);

/* Byte-level families, recognised by class name or vocabulary size. */
struct family {
    const char *name, *tokenizer_class;
    int vocab, ranks;            /* entries of vocab.json, of a tiktoken file */
    int ignore_merges, specials; /* specials: Llama 3's 256 special tokens follow the vocabulary */
    const char *normalizer, *pre_tokenizer, *bos;
};
extern const struct family families[];
extern const size_t n_families;
extern const char family_decoder[];
enum { FAMILY_SPECIALS = 256 }; /* number of ids reserved after the vocabulary */
/* Appends the added tokens that a family's files omit, each preceded by a comma. */
void family_add_specials(struct str *out, const struct family *f, int first);

/* ---- tokenizer_companion.c: Hugging Face's companion files of a tokenizer's main file ---- */

struct companion;
struct json_node;
/* Reads the companion files in the directory of `path`.  DS_EFORMAT when they contradict each
 * other. */
int companion_open(struct companion **out, const char *path, struct err *e) DS_CHECK;
void companion_free(struct companion *b); /* NULL allowed */
const struct json_node *
companion_config(const struct companion *b); /* tokenizer_config.json; NULL: none */
int companion_names(const struct companion *b, int32_t first,
                    int32_t end); /* tokens with ids in [first, end) */
/* Kind of the main file: only a model's own file takes tokens from companion files; text of a
 * .model has no normalised form in which tokens could be matched. */
enum { COMPANION_JSON, COMPANION_OTHER, COMPANION_MODEL, COMPANION_VOCAB };
/* Merges them into *t's tokenizer.json, and reloads it if it changed.  *t is unchanged on
 * failure. */
int companion_apply(const struct companion *b, struct tokenizer **t, int kind, const char *path,
                    struct err *e) DS_CHECK;
int companion_load(struct tokenizer **t, int kind, const char *path, struct err *e) DS_CHECK;

/* A pre-tokenizer and its names in tokenizer.ggml.pre. */
enum { VOCAB_PATTERNS = 6, VOCAB_NAMES = 14 };
struct vocab_pre {
    const char *name[VOCAB_NAMES]; /* the first is the one that is written */
    const char *pattern[VOCAB_PATTERNS];
    const char *llama[VOCAB_PATTERNS]; /* llama.cpp's, which files of that name are read by; none:
                                          it has the same */
    int nfc; /* the models' own files normalise to NFC, llama.cpp does not */
    int ignore_merges, add_bos;
};
const struct vocab_pre *vocab_pre_find(const char *name, size_t n); /* NULL: unknown */
/* The named pre-tokenizer that is equal to t's; NULL: none. */
const struct vocab_pre *vocab_pre_of(const struct tokenizer *t);
/* 0: programs that read GGUF's keys split by other patterns than t does. */
int vocab_pre_splits_alike(const struct vocab_pre *p, const struct tokenizer *t);
/* Appends why programs that read GGUF's keys with that name tokenize some texts differently;
 * nothing if they do not. */
void tokenizer_differs(struct str *out, const struct tokenizer *t, const struct vocab_pre *pre);
/* Appends it in the form of a tokenizer.json. */
void vocab_pre_write(struct str *out, const struct vocab_pre *p);

/* A file of at most TOKENIZER_FILE_MAX bytes, or of $DEPTHSCOPE_TOKENIZER_MIB MiB. */
int tokenizer_read_file(struct str *out, const char *path, struct err *e) DS_CHECK;
/* The path of `name` in the directory of the file `path`. */
int tokenizer_sibling(char *out, size_t size, const char *path, const char *name,
                      struct err *e) DS_CHECK;
/* The formats. `path`: the file. */
int tokenizer_load_vocab(struct tokenizer **out, const char *path, struct err *e) DS_CHECK;
int tokenizer_load_model(struct tokenizer **out, const char *path, struct err *e) DS_CHECK;
struct gguf;
int tokenizer_from_gguf(struct tokenizer **out, const struct gguf *g, const char *what,
                        struct err *e) DS_CHECK;
/* 1 when tokenizer_from_gguf supports this kind of vocabulary. */
int tokenizer_gguf_known(const struct gguf *g);
int tokenizer_load_gguf(struct tokenizer **out, const char *path, struct err *e) DS_CHECK;
int tokenizer_load_tekken(struct tokenizer **out, const char *path, struct err *e) DS_CHECK;
int tokenizer_load_llama2c(struct tokenizer **out, const char *path, struct err *e) DS_CHECK;
/* The same in memory. */
int tokenizer_parse_spm(struct tokenizer **out, const char *p, size_t n, const char *what,
                        struct err *e) DS_CHECK;
int tokenizer_parse_tekken(struct tokenizer **out, const char *p, size_t n, const char *what,
                           struct err *e) DS_CHECK;
int tokenizer_parse_tiktoken(struct tokenizer **out, const char *p, size_t n, const char *what,
                             struct err *e) DS_CHECK;
int tokenizer_parse_llama2c(struct tokenizer **out, const char *p, size_t n, const char *what,
                            struct err *e) DS_CHECK;

#endif
