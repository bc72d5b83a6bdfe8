/* Reads the vocabulary in a GGUF file's tokenizer.* keys. */
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"
#include "data/tokenizer/bpe.h"
#include "data/tokenizer/pieces.h"
#include "io/gguf.h"

#define KEY "tokenizer.ggml."

static int text_of(const struct gguf *g, const char *key, struct gguf_text *out)
{
    return gguf_string(gguf_meta_find(g, key), out);
}

static int text_is(const struct gguf_text *t, const char *want)
{
    return t->n == strlen(want) && memcmp(t->p, want, t->n) == 0;
}

/* A boolean; `otherwise` if the key is missing.  Of another type it could be read either way. */
static int flag_of(const struct gguf *g, const char *key, int otherwise, int *out, struct err *e)
{
    int64_t v = otherwise;
    const struct gguf_meta *m = gguf_meta_find(g, key);
    if (m && (m->kind == GGUF_ARRAY || !gguf_int(m, 0, &v)))
        return err_set(e, DS_EFORMAT, "%s: expected true or false, found %s", key,
                       gguf_kind_name(m->kind));
    *out = v != 0;
    return 0;
}

/* A token id; `otherwise` if the key is missing and that token exists. */
static int id_of(const struct gguf *g, const char *key, int32_t tokens, int32_t otherwise,
                 int32_t *out, struct err *e)
{
    int64_t v = -1;
    const struct gguf_meta *m = gguf_meta_find(g, key);
    *out = otherwise < tokens ? otherwise : -1;
    if (!m)
        return 0;
    if (m->kind == GGUF_ARRAY)
        return err_set(e, DS_EFORMAT, "%s: expected one id, found an array", key);
    if (!gguf_int(m, 0, &v) || v < 0 || v >= tokens)
        return err_set(e, DS_ERANGE, "%s = %lld: must be below %d, the number of tokens", key,
                       (long long)v, tokens);
    *out = (int32_t)v;
    return 0;
}

/* --- lists --- */

/* An array of strings, which point into the file. */
static int take_texts(const struct gguf *g, const char *key, size_t most, struct token_part **out,
                      size_t *n, struct err *e)
{
    const struct gguf_meta *m = gguf_meta_find(g, key);
    if (!m || m->kind != GGUF_ARRAY || m->item != GGUF_STRING)
        return err_set(e, DS_EFORMAT, "%s %s", key,
                       m ? "must be an array of strings" : "is missing");
    if (m->count > most)
        return err_set(e, DS_ERANGE, "%s has %llu entries: must be at most %zu", key,
                       (unsigned long long)m->count, most);
    *out = mem_alloc((size_t)m->count, sizeof **out);
    if (!*out)
        return err_set(e, DS_EMEM, "out of memory for %zu tokens", (size_t)m->count);
    struct gguf_strings s = {m->data, m->count};
    struct gguf_text text;
    for (*n = 0; gguf_strings_next(&s, &text); (*n)++)
        (*out)[*n] = (struct token_part){.text = text.p, .n = text.n, .type = TOKEN_NORMAL};
    return 0;
}

/* An array of numbers, one per token; NULL if the key is missing. */
static int find_numbers(const struct gguf *g, const char *key, int32_t tokens,
                        const struct gguf_meta **out, struct err *e)
{
    const struct gguf_meta *m = gguf_meta_find(g, key);
    double first;
    *out = m;
    if (!m)
        return 0;
    if (m->kind != GGUF_ARRAY || (m->count > 0 && !gguf_num(m, 0, &first)))
        return err_set(e, DS_EFORMAT, "%s must be an array of numbers", key);
    if (m->count != (uint64_t)tokens)
        return err_set(e, DS_EFORMAT, "%s has %llu entries, expected %d, one per token", key,
                       (unsigned long long)m->count, tokens);
    return 0;
}

/* Tokens that end a text or message whatever type a file gives them, as llama.cpp repairs files too;
 * without those that are plain words of some vocabularies ("</s>" of Qwen 2). */
static int is_control(const struct token_part *t)
{
    static const char deepseek[] = "<\xEF\xBD\x9C"
                                   "end\xE2\x96\x81of\xE2\x96\x81sentence\xEF\xBD\x9C>";
    static const char *const ends[] = {
        "<|eot_id|>",    "<|eom_id|>",         "<|im_end|>",    "<|end|>",
        "<|return|>",    "<|call|>",           "<|endoftext|>", "<|end_of_text|>",
        "<end_of_turn>", "<end_of_utterance>", deepseek,
    };
    for (size_t i = 0; i < DS_LEN(ends); i++)
        if (t->n == strlen(ends[i]) && memcmp(t->text, ends[i], t->n) == 0)
            return 1;
    return 0;
}

static int take_tokens(struct tokenizer_parts *p, const struct gguf *g, struct err *e)
{
    const struct gguf_meta *score = NULL, *type = NULL;
    size_t n = 0;
    int scored = strcmp(p->model, "gpt2") != 0;
    int rc = take_texts(g, KEY "tokens", BPE_IDS_MAX, &p->token, &n, e);
    p->tokens = (int32_t)n;
    if (rc >= 0 && n == 0)
        rc = err_set(e, DS_EFORMAT, KEY "tokens is empty");
    if (rc >= 0)
        rc = find_numbers(g, KEY "scores", p->tokens, &score, e);
    if (rc >= 0)
        rc = find_numbers(g, KEY "token_type", p->tokens, &type, e);
    if (rc >= 0 && scored && !score)
        rc = err_set(e, DS_EFORMAT, KEY "scores is missing");
    for (int32_t i = 0; rc >= 0 && i < p->tokens; i++) {
        double s = 0;
        int64_t kind = TOKEN_NORMAL;
        gguf_num(score, (uint64_t)i, &s);
        p->token[i].score = (float)s;
        if (type && !gguf_int(type, (uint64_t)i, &kind))
            kind = 0;
        if (kind < TOKEN_NORMAL || kind > TOKEN_BYTE)
            rc = err_set(e, DS_EFORMAT, "token %d: unknown type %lld", i, (long long)kind);
        p->token[i].type = kind == TOKEN_NORMAL && is_control(&p->token[i]) ? TOKEN_CONTROL
                                                                            : (enum token_type)kind;
    }
    return rc;
}

/* --- loading --- */

/* For files that predate the key, or say "default". */
static const char *guess_pre(const struct gguf *g, const struct tokenizer_parts *p)
{
    struct gguf_text arch = {0};
    int qwen =
        text_of(g, "general.architecture", &arch) && arch.n >= 4 && memcmp(arch.p, "qwen", 4) == 0;
    for (int32_t i = 0; i < p->tokens; i++)
        if (p->token[i].n == 17 && memcmp(p->token[i].text, "<|begin_of_text|>", 17) == 0)
            return "llama-bpe";
    return qwen ? "qwen2" : "gpt-2";
}

static int take_merges(struct tokenizer_parts *p, const struct gguf *g, struct str *name,
                       const char *what, struct err *e)
{
    struct gguf_text pre = {0};
    if (text_of(g, KEY "pre", &pre) && !text_is(&pre, "default")) {
        str_add_bytes(name, pre.p, pre.n);
        p->pre = str_text(name);
    } else {
        p->pre = guess_pre(g, p);
        log_warn("%s: missing pre-tokenizer name; using that of %s", what, p->pre);
    }
    if (name->failed)
        return err_set(e, DS_EMEM, "out of memory for a name");
    return take_texts(g, KEY "merges", BPE_MERGES_MAX, &p->merge, &p->merges, e);
}

static int take_ids(struct tokenizer_parts *p, const struct gguf *g, struct err *e)
{
    const struct vocab_pre *pre = p->pre ? vocab_pre_find(p->pre, strlen(p->pre)) : NULL;
    int scored = strcmp(p->model, "llama") == 0, unigram = strcmp(p->model, "t5") == 0;
    int rc = id_of(g, KEY "bos_token_id", p->tokens, scored ? 1 : -1, &p->bos, e);
    if (rc >= 0)
        rc = id_of(g, KEY "eos_token_id", p->tokens, scored ? 2 : unigram ? 1 : -1, &p->eos, e);
    if (rc >= 0)
        rc = id_of(g, KEY "unknown_token_id", p->tokens, scored ? 0 : unigram ? 2 : -1, &p->unk, e);
    if (rc >= 0)
        rc = flag_of(g, KEY "add_bos_token", scored || (pre && pre->add_bos), &p->add_bos, e);
    if (rc >= 0)
        rc = flag_of(g, KEY "add_eos_token", unigram, &p->add_eos, e);
    if (rc >= 0)
        rc = flag_of(g, KEY "add_space_prefix", !unigram, &p->add_space_prefix, e);
    if (rc >= 0)
        rc = flag_of(g, KEY "remove_extra_whitespaces", 0, &p->remove_extra_spaces, e);
    return rc;
}

/* The table of replacements, bytes in the file. */
static int take_charsmap(struct tokenizer_parts *p, const struct gguf *g, struct err *e)
{
    const struct gguf_meta *m = gguf_meta_find(g, KEY "precompiled_charsmap");
    if (!m || (m->kind == GGUF_ARRAY && m->count == 0))
        return 0;
    if (m->kind != GGUF_ARRAY || (m->item != GGUF_U8 && m->item != GGUF_I8))
        return err_set(e, DS_EFORMAT, KEY "precompiled_charsmap must be an array of bytes");
    p->charsmap = (const char *)m->data;
    p->charsmap_len = (size_t)m->count;
    return 0;
}

static int load_parts(struct tokenizer **out, const struct gguf *g, const char *model,
                      const char *what, struct err *e)
{
    struct tokenizer_parts p = {.model = model, .bos = -1, .eos = -1, .unk = -1};
    struct str name = {0};
    int rc = take_tokens(&p, g, e);
    if (rc >= 0 && strcmp(model, "gpt2") == 0)
        rc = take_merges(&p, g, &name, what, e);
    if (rc >= 0 && strcmp(model, "t5") == 0)
        rc = take_charsmap(&p, g, e);
    if (rc >= 0)
        rc = take_ids(&p, g, e);
    if (rc < 0)
        err_add(e, rc, "%s", what);
    else
        rc = tokenizer_from_parts(out, &p, what, e);
    tokenizer_parts_release(&p);
    str_release(&name);
    return rc;
}

int tokenizer_gguf_known(const struct gguf *g)
{
    struct gguf_text model, pre;
    if (text_of(g, "tokenizer.huggingface.json", &model))
        return 1;
    if (!text_of(g, KEY "model", &model))
        return 0;
    if (text_is(&model, "gpt2"))
        return !text_of(g, KEY "pre", &pre) || text_is(&pre, "default") ||
               vocab_pre_find(pre.p, pre.n) != NULL;
    return text_is(&model, "llama") || text_is(&model, "t5");
}

int tokenizer_from_gguf(struct tokenizer **out, const struct gguf *g, const char *what,
                        struct err *e)
{
    static const char *const models[] = {"gpt2", "llama", "t5"};
    struct gguf_text text;
    if (text_of(g, "tokenizer.huggingface.json", &text))
        return tokenizer_load_json(out, text.p, text.n, what, e);
    if (!text_of(g, KEY "model", &text) || text_is(&text, "no_vocab") || text_is(&text, "none"))
        return err_set(e, DS_ENOTFOUND, "%s: no vocabulary found (" KEY "model)", what);
    for (size_t i = 0; i < DS_LEN(models); i++)
        if (text_is(&text, models[i]))
            return load_parts(out, g, models[i], what, e);
    return err_set(e, DS_EFORMAT,
                   "%s: " KEY "model \"%.*s\": unsupported, expected gpt2, llama or t5", what,
                   (int)(text.n < 64 ? text.n : 64), text.p);
}

int tokenizer_load_gguf(struct tokenizer **out, const char *path, struct err *e)
{
    struct gguf *g = NULL;
    int rc = gguf_open(&g, path, e);
    if (rc >= 0)
        rc = tokenizer_from_gguf(out, g, path, e);
    gguf_close(g);
    return rc;
}
