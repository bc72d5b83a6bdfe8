/* Writes a tokenizer's vocabulary into a GGUF file, by the tokenizer.ggml.* keys alone. */
#ifndef DS_TESTS_GGUF_VOCAB_H
#define DS_TESTS_GGUF_VOCAB_H

#include "data/tokenizer_parts.h"
#include "unit/gguf_file.h"

static inline void gv_list(struct gguf_file *f, const char *key, uint32_t kind, size_t n,
                           const struct str *values)
{
    struct str s = {0};
    gf_uint(&s, kind, 4);
    gf_uint(&s, n, 8);
    str_add_bytes(&s, values->p, values->len);
    gf_raw(f, key, GGUF_ARRAY, s.p, s.len);
    str_release(&s);
}

static inline void gv_texts(struct gguf_file *f, const char *key, const struct token_part *t,
                            size_t n)
{
    struct str s = {0};
    for (size_t i = 0; i < n; i++) {
        gf_uint(&s, t[i].n, 8);
        str_add_bytes(&s, t[i].text, t[i].n);
    }
    gv_list(f, key, GGUF_STRING, n, &s);
    str_release(&s);
}

static inline void gv_bool(struct gguf_file *f, const char *key, int v)
{
    gf_raw(f, key, GGUF_BOOL, &(char){(char)(v != 0)}, 1);
}

static inline void gv_keys(struct gguf_file *f, const struct tokenizer_parts *p)
{
    size_t n = (size_t)p->tokens;
    struct str types = {0}, scores = {0};
    for (size_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &p->token[i].score, 4);
        gf_uint(&types, (uint64_t)p->token[i].type, 4);
        gf_uint(&scores, bits, 4);
    }
    gf_string(f, "tokenizer.ggml.model", p->model);
    if (p->pre)
        gf_string(f, "tokenizer.ggml.pre", p->pre);
    gv_texts(f, "tokenizer.ggml.tokens", p->token, n);
    gv_list(f, "tokenizer.ggml.token_type", GGUF_I32, n, &types);
    if (strcmp(p->model, "gpt2") != 0)
        gv_list(f, "tokenizer.ggml.scores", GGUF_F32, n, &scores);
    else
        gv_texts(f, "tokenizer.ggml.merges", p->merge, p->merges);
    if (strcmp(p->model, "t5") == 0)
        gv_bool(f, "tokenizer.ggml.remove_extra_whitespaces", p->remove_extra_spaces);
    if (p->charsmap_len) {
        struct str map = {0};
        str_add_bytes(&map, p->charsmap, p->charsmap_len);
        gv_list(f, "tokenizer.ggml.precompiled_charsmap", GGUF_U8, p->charsmap_len, &map);
        str_release(&map);
    }
    if (p->bos >= 0)
        gf_u32(f, "tokenizer.ggml.bos_token_id", (uint32_t)p->bos);
    if (p->eos >= 0)
        gf_u32(f, "tokenizer.ggml.eos_token_id", (uint32_t)p->eos);
    if (p->unk >= 0)
        gf_u32(f, "tokenizer.ggml.unknown_token_id", (uint32_t)p->unk);
    gv_bool(f, "tokenizer.ggml.add_bos_token", p->add_bos);
    if (p->add_eos)
        gv_bool(f, "tokenizer.ggml.add_eos_token", 1);
    gv_bool(f, "tokenizer.ggml.add_space_prefix", p->add_space_prefix);
    str_release(&types);
    str_release(&scores);
}

#endif
