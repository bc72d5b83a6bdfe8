/* A tokenizer in the words of GGUF's tokenizer.ggml.* keys, for those who write it into files of
 * other formats. */
#ifndef DS_DATA_TOKENIZER_PARTS_H
#define DS_DATA_TOKENIZER_PARTS_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"
#include "data/tokenizer.h"

/* SentencePiece's numbers, and GGUF's. */
enum token_type {
    TOKEN_NORMAL = 1,
    TOKEN_UNKNOWN = 2,
    TOKEN_CONTROL = 3,      /* special: never in what the user writes            */
    TOKEN_USER_DEFINED = 4, /* added and not special: found in any text          */
    TOKEN_UNUSED = 5,       /* a gap in the ids, or one that no text is cut into */
    TOKEN_BYTE = 6          /* "<0x0A>"                                          */
};
/* Text as a vocabulary has it, UTF-8: of bytes in GPT-2's printable alphabet, of characters with
 * U+2581 for a space. */
struct token_part {
    const char *text;
    size_t n;
    float score; /* model "llama": the pair whose token has the highest score merges first */
    enum token_type type;
};
struct tokenizer_parts {
    const char *model;        /* tokenizer.ggml.model: "gpt2" (merges) or "llama" (scores)  */
    const char *pre;          /* tokenizer.ggml.pre: "gpt-2", "llama-bpe", "qwen2", ...; NULL: its
                                 pre-tokenizer has no name there                            */
    struct token_part *token; /* tokens, .token_type, .scores: one for each id, none NULL   */
    int32_t tokens;
    struct token_part *merge; /* .merges: "LEFT RIGHT", first one first; n = 0 of "llama"   */
    size_t merges;
    int32_t bos, eos, unk; /* ids, -1: none.  bos is what texts begin with               */
    int add_bos, add_eos, add_space_prefix;
    /* 1: tokenizer_load gives the same ids from these keys alone.  0: something is in the
     * tokenizer that they cannot say; a file should have `json` too, as tokenizer.huggingface.json,
     * which is read first. */
    int is_exact;
    /* Why programs that read these keys and not `json` cut some texts otherwise; empty: they do not. */
    struct str differs;
    const char *json; /* the tokenizer.json that tokenizer_save writes, not terminated */
    size_t json_len;
    struct str text; /* what token, merge and json point into */
};

/* Into *out, which the caller releases; nothing in it depends on t afterwards.  DS_EMEM. */
int tokenizer_parts(struct tokenizer_parts *out, const struct tokenizer *t, struct err *e) DS_CHECK;
void tokenizer_parts_release(struct tokenizer_parts *p);

#endif
