/* Builds a tokenizer from tokens, types, scores and merges through an equivalent tokenizer.json. */
#include <string.h>

#include "base/map.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "data/tokenizer/bpe.h"
#include "data/tokenizer/pieces.h"

static const struct token_part *token_at(const struct tokenizer_parts *p, int32_t id)
{
    return id >= 0 && id < p->tokens ? &p->token[id] : NULL;
}

static const struct token_part *bos_of(const struct tokenizer_parts *p)
{
    return p->add_bos ? token_at(p, p->bos) : NULL;
}

/* --- scores --- */

/* llama.cpp's treatment of spaces in unigram models: with extra ones removed each word gets a mark,
 * else one goes after the spaces that a text begins with. */
static void add_unigram_steps(struct str *out, const struct tokenizer_parts *p)
{
    str_add(out, PIECES_SEQUENCE);
    pieces_add_charsmap(out, p->charsmap, p->charsmap_len);
    if (p->remove_extra_spaces)
        str_add(out, PIECES_REPLACE("\\\\A +| +\\\\z",
                                    "") "," PIECES_REPLACE(" +", PIECES_BLOCK) "," PIECES_PREPEND);
    else if (p->add_space_prefix)
        str_add(out, PIECES_REPLACE("\\\\A *\\\\K(?=[^ ])", PIECES_BLOCK) "," PIECES_MARK_SPACES);
    else
        str_add(out, PIECES_MARK_SPACES);
    str_add(out, "]}");
}

static int from_scores(struct tokenizer **out, const struct tokenizer_parts *p, const char *what,
                       struct err *e)
{
    struct piece_style style = pieces_spm_style(p->add_space_prefix);
    struct str steps = {0};
    const struct token_part *bos = bos_of(p);
    char name[PIECE_BYTES + 1] = "";
    style.raw_user = 1;
    if (strcmp(p->model, "t5") == 0) {
        add_unigram_steps(&steps, p);
        style.normalizer = str_text(&steps);
        style.scores = SCORES_LLAMA_CPP;
    }
    for (int32_t i = 0; i < p->tokens && style.scores == SCORES_MERGE; i++)
        style.byte_fallback |= p->token[i].type == TOKEN_BYTE;
    if (bos && bos->n <= PIECE_BYTES) {
        memcpy(name, bos->text, bos->n);
        style.bos = name;
        style.bos_id = p->bos;
    }
    style.eos = token_at(p, p->eos);
    style.eos_id = p->eos;
    style.add_eos = p->add_eos;
    int rc = steps.failed ? err_set(e, DS_EMEM, "%s: out of memory for its normalizer", what)
                          : pieces_load(out, p->token, (size_t)p->tokens, &style, what, e);
    str_release(&steps);
    return rc;
}

/* --- merges --- */

struct writer {
    struct str out;
    const struct tokenizer_parts *p;
    const struct vocab_pre *pre;
};

static int check_token(struct map *seen, const struct token_part *t, int32_t id, struct err *e)
{
    int64_t other;
    if (t->n == 0 || t->n > BPE_TOKEN_BYTES)
        return err_set(e, DS_EFORMAT, "token %d has %zu bytes, expected 1 to %d", id, t->n,
                       BPE_TOKEN_BYTES);
    if (utf8_valid(t->text, t->n) < t->n)
        return err_set(e, DS_EFORMAT, "token %d is not UTF-8", id);
    if (map_get(seen, t->text, t->n, &other))
        return err_set(e, DS_EFORMAT, "duplicate tokens %lld and %d", (long long)other, id);
    return map_set(seen, t->text, t->n, id) < 0 ? err_set(e, DS_EMEM, "out of memory for tokens")
                                                : 0;
}

/* Unused ids only pad the vocabulary: no text is encoded to them. */
static int add_vocab(struct writer *w, struct err *e)
{
    struct map seen = {0};
    int first = 1, rc = 0;
    str_add(&w->out, "\"vocab\":{");
    for (int32_t id = 0; rc >= 0 && id < w->p->tokens; id++) {
        const struct token_part *t = &w->p->token[id];
        if (t->type == TOKEN_UNUSED)
            continue;
        rc = check_token(&seen, t, id, e);
        str_add(&w->out, first ? "" : ",");
        str_add_json(&w->out, t->text, t->n);
        str_addf(&w->out, ":%d", id);
        first = 0;
    }
    str_add(&w->out, "}");
    map_release(&seen);
    return rc;
}

static void add_added(struct writer *w)
{
    int first = 1;
    str_add(&w->out, "\"added_tokens\":[");
    for (int32_t id = 0; id < w->p->tokens; id++) {
        const struct token_part *t = &w->p->token[id];
        if (t->type != TOKEN_CONTROL && t->type != TOKEN_USER_DEFINED && t->type != TOKEN_UNKNOWN)
            continue;
        str_addf(&w->out, "%s{\"id\":%d,\"content\":", first ? "" : ",", id);
        str_add_json(&w->out, t->text, t->n);
        str_addf(&w->out,
                 ",\"single_word\":false,\"lstrip\":false,\"rstrip\":false,\"normalized\":false,"
                 "\"special\":%s}",
                 t->type == TOKEN_USER_DEFINED ? "false" : "true");
        first = 0;
    }
    str_add(&w->out, "],");
}

static int write_document(struct writer *w, struct err *e)
{
    const struct token_part *bos = bos_of(w->p);
    str_add(&w->out, "{\"version\":\"1.0\",\"truncation\":null,\"padding\":null,");
    add_added(w);
    str_add(&w->out, "\"normalizer\":null,\"pre_tokenizer\":"); /* as llama.cpp */
    vocab_pre_write(&w->out, w->pre);
    str_add_char(&w->out, ',');
    const struct token_part *eos = w->p->add_eos ? token_at(w->p, w->p->eos) : NULL;
    struct piece_end before = {0}, after = {0};
    if (bos)
        before = (struct piece_end){bos->text, bos->n, w->p->bos};
    if (eos)
        after = (struct piece_end){eos->text, eos->n, w->p->eos};
    pieces_add_post(&w->out, before, after);
    str_addf(&w->out,
             "\"decoder\":%s,\"model\":{\"type\":\"BPE\",\"dropout\":null,\"unk_token\":null,"
             "\"fuse_unk\":false,\"byte_fallback\":false,\"" TOKENIZER_BY_LENGTH
             "\":true,\"ignore_merges\":%s,",
             family_decoder, w->pre->ignore_merges ? "true" : "false");
    pieces_add_eos(&w->out, token_at(w->p, w->p->eos));
    int rc = add_vocab(w, e);
    str_add(&w->out, ",\"merges\":[");
    for (size_t i = 0; i < w->p->merges; i++) {
        const struct token_part *m = &w->p->merge[i];
        str_add(&w->out, i ? "," : "");
        str_add_json(&w->out, m->text, m->n);
    }
    str_add(&w->out, "]}}");
    return rc < 0 || !w->out.failed ? rc : err_set(e, DS_EMEM, "out of memory for the vocabulary");
}

static int from_merges(struct tokenizer **out, const struct tokenizer_parts *p, const char *what,
                       struct err *e)
{
    struct writer w = {.p = p};
    const char *pre = p->pre ? p->pre : "(none)";
    w.pre = vocab_pre_find(pre, strlen(pre));
    int rc = w.pre ? write_document(&w, e)
                   : err_set(e, DS_EFORMAT,
                             "unknown tokenizer.ggml.pre \"%.64s\"; put the model's "
                             "tokenizer.json next to it",
                             pre);
    if (rc < 0)
        err_add(e, rc, "%s", what);
    else
        rc = tokenizer_load_json(out, w.out.p, w.out.len, what, e);
    str_release(&w.out);
    return rc;
}

int tokenizer_from_parts(struct tokenizer **out, const struct tokenizer_parts *p, const char *what,
                         struct err *e)
{
    return strcmp(p->model, "gpt2") == 0 ? from_merges(out, p, what, e)
                                         : from_scores(out, p, what, e);
}
