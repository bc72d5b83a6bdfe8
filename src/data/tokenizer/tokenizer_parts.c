/* Converts a tokenizer to the contents of GGUF's keys. */
#include "data/tokenizer_parts.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "data/tokenizer/bpe.h"
#include "data/tokenizer/pieces.h"

struct taker {
    struct tokenizer_parts *out;
    const struct tokenizer *t;
    const struct added_token **added; /* of each id, NULL: none                  */
    const struct map_slot **symbol;   /* of each id of a vocabulary of characters */
    unsigned char *made;              /* 1: produced by some merge; likewise */
};

static int is_chars(const struct tokenizer *t)
{
    return t->bpe && t->bpe->chars;
}

/* Appends a token with its spaces replaced by marks. */
static void add_marked(struct str *out, const struct bpe_chars *c, const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (s[i] == ' ' && c->mark_len == 1)
            str_add(out, "\xE2\x96\x81");
        else
            str_add_char(out, s[i]);
}

static int is_token(const struct tokenizer *t, const char *s, size_t n)
{
    int64_t v;
    return map_get(&t->bpe->chars->symbol, s, n, &v) || map_get(&t->added_map, s, n, &v);
}

/* Other programs match and print non-special added tokens as raw text, so marks are written as
 * spaces, unless that is already the text of another token. */
static void add_user_defined(struct str *out, const struct tokenizer *t,
                             const struct added_token *a)
{
    struct str plain = {0};
    for (size_t i = 0; i < a->len; i++)
        if (a->len - i >= 3 && memcmp(a->text + i, "\xE2\x96\x81", 3) == 0) {
            str_add_char(&plain, ' ');
            i += 2;
        } else {
            str_add_char(&plain, a->text[i]);
        }
    if (is_token(t, str_text(&plain), plain.len))
        str_add_bytes(out, a->text, a->len);
    else
        str_add_bytes(out, str_text(&plain), plain.len);
    out->failed |= plain.failed;
    str_release(&plain);
}

/* 1 when merges also produce the token: added tokens with marks are matched in normalised text. */
static int is_made(const struct taker *k, int32_t id)
{
    const struct added_token *a = k->added[id];
    int marked = 0;
    for (size_t i = 0; i + 3 <= a->len && !marked; i++)
        marked = memcmp(a->text + i, "\xE2\x96\x81", 3) == 0;
    return k->made && k->made[id] && marked && !a->special;
}

static void add_token(struct taker *k, int32_t id)
{
    struct str *out = &k->out->text;
    size_t n = 0;
    const char *s = tokenizer_piece(k->t, id, &n);
    if (!s)
        str_addf(out, "[PAD%d]", id);
    else if (k->added[id] && !k->added[id]->special && is_chars(k->t) && !is_made(k, id))
        add_user_defined(out, k->t, k->added[id]);
    else if (k->added[id])
        str_add_bytes(out, k->added[id]->text, k->added[id]->len);
    else if (is_chars(k->t) && k->symbol[id])
        add_marked(out, k->t->bpe->chars, k->symbol[id]->key, k->symbol[id]->len);
    else
        tokenizer_add_printable(out, s, n);
}

static enum token_type type_of(const struct taker *k, int32_t id)
{
    const struct bpe_chars *c = is_chars(k->t) ? k->t->bpe->chars : NULL;
    const struct map_slot *s = k->symbol ? k->symbol[id] : NULL;
    if (!k->t->present[id])
        return TOKEN_UNUSED;
    if (c && c->unk == id)
        return TOKEN_UNKNOWN;
    if (k->added[id] && !is_made(k, id))
        return k->added[id]->special ? TOKEN_CONTROL : TOKEN_USER_DEFINED;
    if (c && c->byte_fallback && s && bpe_fallback_byte(s->key, s->len) >= 0)
        return TOKEN_BYTE;
    return c && c->split && c->split[id][0] >= 0 ? TOKEN_UNUSED : TOKEN_NORMAL;
}

/* Tokens that no merge produces get the lowest scores, so that they stay unmerged. */
static void add_scores(struct taker *k)
{
    const struct bpe *b = k->t->bpe;
    struct token_part *token = k->out->token;
    const struct unigram *u = b->chars->unigram;
    for (int32_t id = 0; u && id < k->out->tokens; id++)
        token[id].score = (float)u->score[id];
    if (u)
        return;
    for (int32_t id = 0; id < k->out->tokens; id++)
        token[id].score = token[id].type == TOKEN_NORMAL ? -(float)(b->merges + 1) : 0;
    for (size_t i = b->merges; i-- > 0;)
        token[b->merge[i].id].score = -(float)(b->rank ? (size_t)b->rank[i] : i);
    for (int32_t id = 0; id < k->out->tokens; id++)
        if (k->added[id] && is_made(k, id))
            token[id].score = 1; /* added tokens are matched before all others */
}

static void add_merges(struct taker *k)
{
    struct str *out = &k->out->text;
    const struct bpe *b = k->t->bpe;
    for (size_t i = 0; i < k->out->merges; i++) {
        size_t before = out->len;
        add_token(k, b->merge[i].left);
        str_add_char(out, ' ');
        add_token(k, b->merge[i].right);
        k->out->merge[i].n = out->len - before;
    }
}

static int find_ids(struct taker *k, struct err *e)
{
    const struct tokenizer *t = k->t;
    size_t n = (size_t)t->vocab;
    k->added = mem_alloc(n, sizeof *k->added);
    k->symbol = is_chars(t) ? mem_alloc(n, sizeof *k->symbol) : NULL;
    k->made = is_chars(t) ? mem_alloc(n, 1) : NULL;
    if (!k->added || (is_chars(t) && (!k->symbol || !k->made)))
        return err_set(e, DS_EMEM, "out of memory for %d tokens", t->vocab);
    for (size_t i = 0; i < t->n_added; i++)
        k->added[t->added[i].id] = &t->added[i];
    for (size_t i = 0; k->made && i < t->bpe->merges; i++)
        k->made[t->bpe->merge[i].id] = 1;
    for (size_t i = 0; k->symbol && i < t->bpe->chars->symbol.cap; i++) {
        const struct map_slot *s = &t->bpe->chars->symbol.slot[i];
        if (s->key)
            k->symbol[s->value] = s;
    }
    return 0;
}

static int trims(const struct norm *m)
{
    for (int i = 0; i < m->n; i++)
        if (m->step[i].kind == NORM_STRIP || m->step[i].kind == NORM_REPLACE_REGEX)
            return 1;
    return 0;
}

static void find_names(struct taker *k)
{
    struct tokenizer_parts *p = k->out;
    const struct tokenizer *t = k->t;
    const struct vocab_pre *pre = vocab_pre_of(t);
    p->model = !is_chars(t) ? "gpt2" : t->bpe->chars->unigram ? "t5" : "llama";
    tokenizer_differs(&p->differs, t, pre);
    p->pre = is_chars(t) ? "default" : pre ? pre->name[0] : t->bpe ? NULL : "gpt-2";
    p->bos = t->bos;
    p->eos = t->eot;
    p->unk = is_chars(t) ? t->bpe->chars->unk : -1;
    p->add_bos = t->bos >= 0;
    p->add_eos = t->after >= 0 && t->after == t->eot;
    const struct norm_step *map =
        t->norm.n && t->norm.step[0].kind == NORM_CHARSMAP ? t->norm.step : NULL;
    if (strcmp(p->model, "t5") == 0 && map) {
        p->charsmap = map->from;
        p->charsmap_len = map->from_len;
    }
    p->remove_extra_spaces = strcmp(p->model, "t5") == 0 && trims(&t->norm);
    p->add_space_prefix = is_chars(t) && t->metaspace.on && t->metaspace.when != METASPACE_NEVER;
    for (int i = 0; is_chars(t) && i < t->norm.n; i++)
        p->add_space_prefix |= t->norm.step[i].kind == NORM_PREPEND;
}

/* Builds a tokenizer from the parts and compares it with t. */
static int is_exact(const struct tokenizer_parts *p, const struct tokenizer *t)
{
    struct tokenizer *again = NULL;
    int same = p->pre && tokenizer_from_parts(&again, p, "parts", NULL) >= 0 &&
               tokenizer_hash(again) == tokenizer_hash(t) && again->bos == t->bos &&
               again->after == t->after;
    tokenizer_free(again);
    return same;
}

/* All texts share one buffer that moves as it grows, so pointers into it are set at the end.
 */
static int take(struct taker *k, struct err *e)
{
    struct tokenizer_parts *p = k->out;
    const struct tokenizer *t = k->t;
    p->tokens = t->vocab;
    p->merges = t->bpe && !is_chars(t) ? t->bpe->merges : 0;
    p->token = mem_alloc((size_t)p->tokens, sizeof *p->token);
    p->merge = mem_alloc(p->merges, sizeof *p->merge);
    if (!p->token || !p->merge)
        return err_set(e, DS_EMEM, "out of memory for %d tokens", p->tokens);
    for (int32_t id = 0; id < p->tokens; id++) {
        size_t before = p->text.len;
        add_token(k, id);
        p->token[id].n = p->text.len - before;
        p->token[id].type = type_of(k, id);
    }
    if (is_chars(t))
        add_scores(k);
    add_merges(k);
    size_t start = p->text.len;
    tokenizer_write(&p->text, t);
    if (p->text.failed || p->differs.failed)
        return err_set(e, DS_EMEM, "out of memory for the vocabulary");
    const char *at = p->text.p;
    for (int32_t id = 0; id < p->tokens; at += p->token[id++].n)
        p->token[id].text = at;
    for (size_t i = 0; i < p->merges; at += p->merge[i++].n)
        p->merge[i].text = at;
    p->json = p->text.p + start;
    p->json_len = p->text.len - start;
    p->is_exact = is_exact(p, t);
    return 0;
}

int tokenizer_parts(struct tokenizer_parts *out, const struct tokenizer *t, struct err *e)
{
    struct tokenizer_parts p = {0};
    struct taker k = {.out = &p, .t = t};
    int rc = find_ids(&k, e);
    if (rc >= 0) {
        find_names(&k);
        rc = take(&k, e);
    }
    mem_free(k.added);
    mem_free(k.symbol);
    mem_free(k.made);
    if (rc < 0)
        tokenizer_parts_release(&p);
    else
        *out = p;
    return rc;
}

void tokenizer_parts_release(struct tokenizer_parts *p)
{
    mem_free(p->token);
    mem_free(p->merge);
    str_release(&p->text);
    str_release(&p->differs);
    *p = (struct tokenizer_parts){0};
}
