/* Tokenizers: text <-> ids.  BPE (trained here over bytes, or loaded, over bytes or characters) and
 * plain bytes.  A new format is one file and one line in the loader table. */
#ifndef DS_DATA_TOKENIZER_H
#define DS_DATA_TOKENIZER_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"

struct tokenizer;
struct ids {
    int32_t *v;
    size_t n, cap;
}; /* zero-initialise; ids_release */
int ids_add(struct ids *s, int32_t id) DS_CHECK;
void ids_release(struct ids *s);

/* The 256 bytes plus the end-of-text token (id 256). */
int tokenizer_new_bytes(struct tokenizer **out, struct err *e) DS_CHECK;
/* Byte-level BPE with the GPT-2 pre-tokenizer; `vocab` ids in all: end-of-text (id 0), 256 bytes,
 * merges. Deterministic: ties by the lower pair of ids.  texts[i] of len[i] bytes. Fewer merges
 * than asked when the text is too small. */
int tokenizer_train_bpe(struct tokenizer **out, const char *const *texts, const size_t *len,
                        size_t n, int vocab, struct err *e) DS_CHECK;
/* A vocabulary of n printable ASCII words without spaces, found in any text as whole tokens (no word
 * begins with another one), after end-of-text (id 0) and, if there are texts, the bytes and merges
 * of tokenizer_train_bpe with `vocab` ids; without texts nothing else has a token. */
int tokenizer_new_words(struct tokenizer **out, const char *const *word, size_t words,
                        const char *const *texts, const size_t *len, size_t n, int vocab,
                        struct err *e) DS_CHECK;
/* PATH: a file of at most TOKENIZER_FILE_MAX bytes (or $DEPTHSCOPE_TOKENIZER_MIB MiB), or a
 * directory that holds one: tokenizer.json (BPE over bytes or characters, unigram), vocab.json with
 * merges.txt (encoder.json with vocab.bpe), SentencePiece's .model of the types BPE and unigram,
 * tekken.json, tiktoken's files of known families, llama2.c's tokenizer.bin, and the vocabulary in a GGUF file.
 * Unsupported kinds are rejected by name. */
enum { TOKENIZER_FILE_MAX = 64 << 20 };
int tokenizer_load(struct tokenizer **out, const char *path, struct err *e) DS_CHECK;
/* Finds the tokenizer file of a model: for a directory one in it; for a file itself if it
 * has a vocabulary, else one next to it.  DS_ENOTFOUND. */
int tokenizer_find(char *out, size_t size, const char *model, struct err *e) DS_CHECK;
/* Hugging Face tokenizer.json, loadable by `tokenizers`. */
int tokenizer_save(const struct tokenizer *t, const char *path, struct err *e) DS_CHECK;
void tokenizer_free(struct tokenizer *t);

int tokenizer_vocab(const struct tokenizer *t);   /* largest id + 1 */
int32_t tokenizer_eot(const struct tokenizer *t); /* end of text / document separator, -1 if none */
/* Token that the file's template puts before a text, -1 if none. */
int32_t tokenizer_bos(const struct tokenizer *t);
/* Token in place of characters without one, -1 if none. */
int32_t tokenizer_unk(const struct tokenizer *t);
int tokenizer_is_special(const struct tokenizer *t, int32_t id);
const char *tokenizer_kind(const struct tokenizer *t); /* "bytes", "bpe", "unigram" */
/* Appends the ids; special tokens in the text are plain text unless allow_special. Bounded on
 * hostile input (n log n). Adds no begin- or end-of-text by itself.  One call at a time per
 * tokenizer: it keeps a cache of words. */
int tokenizer_encode(const struct tokenizer *t, const char *s, size_t n, int allow_special,
                     struct ids *out, struct err *e) DS_CHECK;
/* Bytes of all texts so far for which the vocabulary has neither a token nor an unknown token: they
 * are dropped, as in Hugging Face's tokenizers and llama.cpp, and a warning is printed once. */
uint64_t tokenizer_dropped_bytes(const struct tokenizer *t);
/* The same for text that follows a special token: as if both had been encoded together. */
int tokenizer_encode_on(const struct tokenizer *t, const char *s, size_t n, int allow_special,
                        struct ids *out, struct err *e) DS_CHECK;
/* The raw bytes of one id; NULL when out of range. */
const char *tokenizer_piece(const struct tokenizer *t, int32_t id, size_t *n);
/* Appends the bytes of a whole text.  A space that the vocabulary puts before a text is removed.
 * Between tokens of characters whose file has no decoder stands a space, as in `tokenizers`. */
void tokenizer_decode(const struct tokenizer *t, const int32_t *ids, size_t n, struct str *out);
/* The same for ids that continue a text: no leading space is removed. */
void tokenizer_decode_on(const struct tokenizer *t, const int32_t *ids, size_t n, struct str *out);
uint64_t tokenizer_hash(const struct tokenizer *t); /* of everything that changes ids */

#endif
