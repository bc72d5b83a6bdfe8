/* A tokenizer as the contents of GGUF's tokenizer.ggml.* keys, for exporters to other
 * formats. */
#ifndef DS_DATA_TOKENIZER_PARTS_H
#define DS_DATA_TOKENIZER_PARTS_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"
#include "data/tokenizer.h"

/* Type numbers of SentencePiece and GGUF. */
enum token_type {
    TOKEN_NORMAL = 1,
    TOKEN_UNKNOWN = 2,
    TOKEN_CONTROL = 3,      /* special: never matched in user text               */
    TOKEN_USER_DEFINED = 4, /* added and not special: matched in any text        */
    TOKEN_UNUSED = 5,       /* a gap in the ids, or never produced from text     */
    TOKEN_BYTE = 6          /* "<0x0A>"                                          */
};
/* Text as in a vocabulary, UTF-8: of bytes in GPT-2's printable alphabet, of characters with
 * U+2581 for a space. */
struct token_part {
    const char *text;
    size_t n;
    float score; /* model "llama": the pair whose token has the highest score merges first */
    enum token_type type;
};
struct tokenizer_parts {
    const char *model;        /* tokenizer.ggml.model: "gpt2" (merges), "llama" (scores) or "t5"
                                 (scores of a unigram model)                                   */
    const char *pre;          /* tokenizer.ggml.pre: "gpt-2", "llama-bpe", "qwen2", ...; NULL: the
                                 pre-tokenizer has no name in it                            */
    struct token_part *token; /* tokens, .token_type, .scores: one for each id, none NULL   */
    int32_t tokens;
    struct token_part *merge; /* .merges: "LEFT RIGHT", first one first; n = 0 of "llama"   */
    size_t merges;
    int32_t bos, eos, unk; /* ids, -1: none.  bos is what texts begin with               */
    int add_bos, add_eos, add_space_prefix;
    int remove_extra_spaces; /* of "t5": .remove_extra_whitespaces */
    const char *charsmap;    /* of "t5": .precompiled_charsmap, borrowed; NULL: none */
    size_t charsmap_len;
    /* 1: tokenizer_load gives the same ids from these keys alone.  0: the keys cannot express
     * this tokenizer; a file should also have `json` as tokenizer.huggingface.json,
     * which is read first. */
    int is_exact;
    /* Why programs that read only these keys tokenize some texts differently; empty: they do
     * not. */
    struct str differs;
    const char *json; /* the tokenizer.json that tokenizer_save writes, not terminated */
    size_t json_len;
    struct str text; /* what token, merge and json point into */
};

/* Fills *out, which the caller releases; independent of t afterwards.  DS_EMEM. */
int tokenizer_parts(struct tokenizer_parts *out, const struct tokenizer *t, struct err *e) DS_CHECK;
void tokenizer_parts_release(struct tokenizer_parts *p);

#endif
