/* Vocabularies of other formats, rewritten as the tokenizer.json they amount to: one reader, one
 * way to save.  Internal to the data layer. */
#ifndef DS_DATA_PIECES_H
#define DS_DATA_PIECES_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"
#include "data/tokenizer.h"
#include "data/tokenizer_parts.h"

enum { PIECE_BYTES = 512 }; /* longest one accepted */

/* What the format lays down and its file does not say; tokenizer.json's own words. */
struct piece_style {
    int byte_level;    /* pieces are bytes; else UTF-8 text  */
    int byte_fallback; /* pieces of TOKEN_BYTE stand for unknown characters */
    int ignore_merges;
    int raw_user; /* what the user defines is found in text as it is, as llama.cpp does; else in normalised text */
    const char *normalizer, *pre_tokenizer, *decoder; /* JSON */
    const char *bos;                                  /* token in front of texts, NULL: none */
    int bos_id, eos_id, add_eos;                      /* add_eos: eos goes behind texts */
    const struct token_part *eos; /* token that ends texts, where no known name tells; NULL */
    /* More added tokens, as JSON objects each behind a comma; NULL: none. */
    const char *added;
};
/* id = place in p. */
int pieces_load(struct tokenizer **out, const struct token_part *p, size_t n,
                const struct piece_style *style, const char *what, struct err *e) DS_CHECK;
/* SentencePiece's own: spaces are marks, and one goes in front of texts where `prefix` asks. */
struct piece_style pieces_spm_style(int prefix);
/* Pieces and merges as they were read -> tokenizer. */
int tokenizer_from_parts(struct tokenizer **out, const struct tokenizer_parts *p, const char *what,
                         struct err *e) DS_CHECK;
/* A token that goes before or after a text; text NULL: none. */
struct piece_end {
    const char *text;
    size_t n;
    int id;
};
/* The post_processor that puts them there, or none, and a comma. */
void pieces_add_post(struct str *out, struct piece_end bos, struct piece_end eos);

/* The model's line for it and a comma; nothing of NULL. */
void pieces_add_eos(struct str *out, const struct token_part *eos);

/* Byte-level families that are known by a class name or by the size of their vocabulary. */
struct family {
    const char *name, *tokenizer_class;
    int vocab, ranks;            /* entries of vocab.json, of a tiktoken file */
    int ignore_merges, specials; /* 256 special tokens of Llama 3 lie behind the vocabulary */
    const char *normalizer, *pre_tokenizer, *bos;
};
extern const struct family families[];
extern const size_t n_families;
extern const char family_decoder[];
enum { FAMILY_SPECIALS = 256 }; /* room for them behind the vocabulary */
/* The added tokens of a family that its files leave out, each behind a comma. */
void family_add_specials(struct str *out, const struct family *f, int first);

/* --- tokenizer_beside.c: what Hugging Face keeps next to a tokenizer's main file ------------------------- */

struct beside;
struct json_node;
/* Of the directory that `path` is in.  DS_EFORMAT where the files disagree with each other. */
int beside_open(struct beside **out, const char *path, struct err *e) DS_CHECK;
void beside_free(struct beside *b); /* NULL allowed */
const struct json_node *
beside_config(const struct beside *b); /* tokenizer_config.json; NULL: none */
int beside_names(const struct beside *b, int32_t first,
                 int32_t end); /* tokens with ids in [first, end) */
/* Which file is next to them: another than a model's own takes no tokens from there; a .model's text has no normal
 * form that tokens could be looked for in. */
enum { BESIDE_JSON, BESIDE_OTHER, BESIDE_MODEL, BESIDE_VOCAB };
/* Puts it into *t's tokenizer.json, and reads that again where it changed.  *t stays on failure. */
int beside_apply(const struct beside *b, struct tokenizer **t, int kind, const char *path,
                 struct err *e) DS_CHECK;
int beside_load(struct tokenizer **t, int kind, const char *path, struct err *e) DS_CHECK;

/* A pre-tokenizer by its name in tokenizer.ggml.pre. */
enum { VOCAB_PATTERNS = 6, VOCAB_NAMES = 14 };
struct vocab_pre {
    const char *name[VOCAB_NAMES]; /* the first is the one that is written */
    const char *pattern[VOCAB_PATTERNS];
    int nfc, ignore_merges, add_bos;
    int by_ascii_case; /* llama.cpp's own pattern of that name is not quite this one */
};
const struct vocab_pre *vocab_pre_find(const char *name, size_t n); /* NULL: unknown */
/* The one that cuts text as t does; NULL: none has a name. */
const struct vocab_pre *vocab_pre_of(const struct tokenizer *t);
/* Appends why programs that know t by GGUF's keys, with that name, cut some texts otherwise; nothing: they do not. */
void tokenizer_differs(struct str *out, const struct tokenizer *t, const struct vocab_pre *pre);
/* As a tokenizer.json has it. */
void vocab_pre_write(struct str *out, const struct vocab_pre *p);

/* A file of at most TOKENIZER_FILE_MAX bytes, or of $DEPTHSCOPE_TOKENIZER_MIB MiB. */
int tokenizer_read_file(struct str *out, const char *path, struct err *e) DS_CHECK;
/* The formats. `path`: the file. */
int tokenizer_load_vocab(struct tokenizer **out, const char *path, struct err *e) DS_CHECK;
int tokenizer_load_model(struct tokenizer **out, const char *path, struct err *e) DS_CHECK;
struct gguf;
int tokenizer_from_gguf(struct tokenizer **out, const struct gguf *g, const char *what,
                        struct err *e) DS_CHECK;
/* 1 when tokenizer_from_gguf knows what kind of vocabulary it is. */
int tokenizer_gguf_known(const struct gguf *g);
int tokenizer_load_gguf(struct tokenizer **out, const char *path, struct err *e) DS_CHECK;
int tokenizer_load_llama2c(struct tokenizer **out, const char *path, struct err *e) DS_CHECK;
/* The same in memory. */
int tokenizer_parse_spm(struct tokenizer **out, const char *p, size_t n, const char *what,
                        struct err *e) DS_CHECK;
int tokenizer_parse_tiktoken(struct tokenizer **out, const char *p, size_t n, const char *what,
                             struct err *e) DS_CHECK;
int tokenizer_parse_llama2c(struct tokenizer **out, const char *p, size_t n, const char *what,
                            struct err *e) DS_CHECK;

#endif
