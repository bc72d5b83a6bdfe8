/* The tokenizer object: pieces, added tokens, and decoding. */
#include "base/hash.h"
#include "base/mem.h"
#include "data/tokenizer/bpe.h"

#include <string.h>

int ids_add(struct ids *s, int32_t id)
{
    if (s->n == s->cap) {
        void *p = s->v;
        if (mem_grow(&p, &s->cap, s->n + 1, sizeof *s->v) < 0)
            return DS_EMEM;
        s->v = p;
    }
    s->v[s->n++] = id;
    return 0;
}

void ids_release(struct ids *s)
{
    mem_free(s->v);
    *s = (struct ids){0};
}

/* --- building ----------------------------------------------------------------------------------
 */

struct tokenizer *tokenizer_new(const char *kind, int vocab, struct err *e)
{
    struct tokenizer *t = mem_alloc(1, sizeof *t);
    if (t) {
        *t = (struct tokenizer){.kind = kind, .vocab = vocab, .eot = -1, .bos = -1, .after = -1};
        t->offset = mem_alloc((size_t)vocab, sizeof *t->offset);
        t->length = mem_alloc((size_t)vocab, sizeof *t->length);
        t->present = mem_alloc((size_t)vocab, 1);
    }
    if (!t || !t->offset || !t->length || !t->present) {
        err_set(e, DS_EMEM, "out of memory for a vocabulary of %d tokens", vocab);
        tokenizer_free(t);
        return NULL;
    }
    return t;
}

int tokenizer_set_piece(struct tokenizer *t, int32_t id, const char *s, size_t n, struct err *e)
{
    if (id < 0 || id >= t->vocab)
        return err_set(e, DS_ERANGE, "token id %d: must be in 0..%d", id, t->vocab - 1);
    if (t->present[id])
        return err_set(e, DS_EFORMAT, "duplicate token id %d", id);
    if (n > BPE_TOKEN_BYTES)
        return err_set(e, DS_ERANGE, "token %d has %zu bytes: must be at most %d", id, n,
                       BPE_TOKEN_BYTES);
    t->present[id] = IS_TOKEN;
    t->offset[id] = t->bytes.len;
    t->length[id] = (uint32_t)n;
    str_add_bytes(&t->bytes, s, n);
    return t->bytes.failed ? err_set(e, DS_EMEM, "out of memory for the vocabulary") : 0;
}

int tokenizer_add_special(struct tokenizer *t, const struct added_token *a, struct err *e)
{
    int64_t seen;
    if (a->len == 0)
        return err_set(e, DS_EFORMAT, "empty added token %d", a->id);
    if (map_get(&t->added_map, a->text, a->len, &seen))
        return err_set(e, DS_EFORMAT, "duplicate added token %d", a->id);
    void *p = t->added;
    if (mem_grow(&p, &t->added_cap, t->n_added + 1, sizeof *t->added) < 0)
        return err_set(e, DS_EMEM, "out of memory for added tokens");
    t->added = p;
    struct added_token *own = &t->added[t->n_added];
    *own = *a;
    own->text = mem_dup(a->text, a->len);
    if (!own->text)
        return err_set(e, DS_EMEM, "out of memory for added tokens");
    t->n_added++;
    if (a->special && a->id >= 0 && a->id < t->vocab)
        t->present[a->id] |= IS_SPECIAL;
    if (map_set(&t->added_map, a->text, a->len, (int64_t)t->n_added - 1) < 0)
        return err_set(e, DS_EMEM, "out of memory for added tokens");
    return 0;
}

/* Encoding relies on these lengths, so files in which they do not add up are rejected. */
static int check_lengths(const struct tokenizer *t, struct err *e)
{
    const struct bpe *b = t->bpe;
    const uint32_t *length = b->length;
    for (int i = 0; i < 256; i++)
        if (b->byte_id[i] >= 0 && length[b->byte_id[i]] != 1)
            return err_set(e, DS_EFORMAT, "token %d is both a byte token and an added token",
                           b->byte_id[i]);
    for (size_t i = 0; i < b->merges; i++) {
        const struct bpe_merge *m = &b->merge[i];
        if (length[m->left] + length[m->right] != length[m->id] || !length[m->left] ||
            !length[m->right])
            return err_set(e, DS_EFORMAT, "merge %zu: lengths do not add up to token %d", i, m->id);
    }
    return 0;
}

int tokenizer_ready(struct tokenizer *t, struct err *e)
{
    int rc = tokenizer_index_added(t, e);
    if (rc < 0 || !t->bpe)
        return rc;
    t->bpe->length = t->bpe->chars ? t->bpe->chars->length : t->length;
    rc = check_lengths(t, e);
    if (rc >= 0)
        rc = bpe_ready(t->bpe, e);
    if (rc >= 0 && t->bpe->chars)
        bpe_chars_split(t->bpe);
    return rc;
}

int tokenizer_new_bytes(struct tokenizer **out, struct err *e)
{
    struct tokenizer *t = tokenizer_new("bytes", 257, e);
    struct added_token end = {
        .text = (char[]){"<|endoftext|>"}, .len = 13, .id = 256, .special = 1};
    int rc = t ? 0 : DS_EMEM;
    for (int b = 0; rc >= 0 && b < 256; b++)
        rc = tokenizer_set_piece(t, b, &(char){(char)b}, 1, e);
    if (rc >= 0)
        rc = tokenizer_set_piece(t, 256, end.text, end.len, e);
    if (rc >= 0)
        rc = tokenizer_add_special(t, &end, e);
    if (rc >= 0)
        rc = tokenizer_ready(t, e);
    if (rc < 0) {
        tokenizer_free(t);
        return rc;
    }
    t->eot = 256;
    *out = t;
    return 0;
}

void tokenizer_free(struct tokenizer *t)
{
    if (!t)
        return;
    if (t->bpe)
        bpe_release(t->bpe);
    mem_free(t->bpe);
    for (size_t i = 0; i < t->n_added; i++)
        mem_free(t->added[i].text);
    mem_free(t->added);
    for (int i = 0; i < 2; i++)
        added_index_release(&t->find[i]);
    regex_free(t->word);
    norm_release(&t->norm);
    norm_release(&t->decoder);
    map_release(&t->added_map);
    str_release(&t->bytes);
    str_release(&t->source);
    mem_free(t->offset);
    mem_free(t->length);
    mem_free(t->present);
    mem_free(t);
}

/* --- queries -----------------------------------------------------------------------------------
 */

int tokenizer_vocab(const struct tokenizer *t)
{
    return t->vocab;
}

int32_t tokenizer_eot(const struct tokenizer *t)
{
    return t->eot;
}

int32_t tokenizer_bos(const struct tokenizer *t)
{
    return t->bos;
}

int32_t tokenizer_unk(const struct tokenizer *t)
{
    return !t->bpe ? -1 : t->bpe->chars ? t->bpe->chars->unk : t->bpe->unk;
}

const char *tokenizer_kind(const struct tokenizer *t)
{
    return t->kind;
}

int tokenizer_is_special(const struct tokenizer *t, int32_t id)
{
    return id >= 0 && id < t->vocab && (t->present[id] & IS_SPECIAL) != 0;
}

const char *tokenizer_piece(const struct tokenizer *t, int32_t id, size_t *n)
{
    if (id < 0 || id >= t->vocab || !t->present[id])
        return NULL;
    if (n)
        *n = t->length[id];
    return t->length[id] ? t->bytes.p + t->offset[id] : "";
}

void tokenizer_decode(const struct tokenizer *t, const int32_t *ids, size_t n, struct str *out)
{
    size_t len = 0;
    while (n && !tokenizer_piece(t, ids[0], &len)) {
        ids++;
        n--;
    }
    if (n == 0)
        return;
    const char *p = tokenizer_piece(t, ids[0], &len);
    int is_stripped = t->strip_space && len && p[0] == ' ';
    str_add_bytes(out, p + is_stripped, len - (size_t)is_stripped);
    tokenizer_decode_on(t, ids + 1, n - 1, out);
}

void tokenizer_decode_on(const struct tokenizer *t, const int32_t *ids, size_t n, struct str *out)
{
    for (size_t i = 0; i < n; i++) {
        size_t len = 0;
        const char *p = tokenizer_piece(t, ids[i], &len);
        if (p && t->has_gaps)
            str_add_char(out, ' ');
        if (p)
            str_add_bytes(out, p, len);
    }
}

static uint64_t hash_steps(const struct norm *m, uint64_t h)
{
    for (int i = 0; i < m->n; i++) {
        const struct norm_step *s = &m->step[i];
        h = hash64(s->from ? s->from : "", s->from_len, h + (uint64_t)s->kind);
        h = hash64(s->to ? s->to : "", s->to_len, h);
    }
    return h;
}

/* Adds what is specific to character-level vocabularies to the hash. */
static uint64_t hash_chars(const struct tokenizer *t, uint64_t h)
{
    const struct bpe_chars *c = t->bpe->chars;
    int32_t flag[5] = {c->unk, c->fuse_unk, t->strip_space, t->metaspace.on,
                       t->metaspace.of_pieces << 3 | (int)t->metaspace.when << 1 |
                           t->metaspace.split};
    h = hash64(flag, sizeof flag, h);
    for (size_t i = 0; i < t->n_added; i++) {
        int32_t where = t->added[i].normalized | t->added[i].as_piece << 1;
        h = hash64(&where, sizeof where, h);
    }
    for (int32_t id = 0; c->split && id < t->vocab; id++)
        if (c->split[id][0] >= 0)
            h = hash64(&id, sizeof id, h);
    if (c->unigram)
        h = unigram_hash(c->unigram, h);
    return hash_steps(&t->norm, h);
}

uint64_t tokenizer_hash(const struct tokenizer *t)
{
    uint64_t h = (uint64_t)t->vocab;
    for (int32_t id = 0; id < t->vocab; id++) {
        size_t n = 0;
        const char *s = tokenizer_piece(t, id, &n);
        h = hash64(s ? s : "", n, h + (s != NULL));
    }
    for (size_t i = 0; i < t->n_added; i++) {
        const struct added_token *a = &t->added[i];
        int32_t flag[4] = {a->id, a->special, a->lstrip | a->single_word << 1, a->rstrip};
        h = hash64(a->text, a->len, h);
        h = hash64(flag, sizeof flag, h);
    }
    int32_t top[4] = {t->eot, norm_has_nfc(&t->norm), t->bpe != NULL, t->by_length};
    h = hash64(top, sizeof top, h);
    if (!t->bpe)
        return h;
    const struct bpe *b = t->bpe;
    h = hash64(b->merge, b->merges * sizeof *b->merge, h);
    for (int i = 0; i < b->pre.n; i++)
        h = hash64(b->pre.stage[i].pattern, strlen(b->pre.stage[i].pattern),
                   h + (uint64_t)(b->pre.stage[i].drop_gaps | b->pre.stage[i].drop_matches << 1 |
                                  (int)b->pre.stage[i].join << 2 | b->pre.stage[i].printable << 4));
    int32_t flag[2] = {b->pre.add_prefix_space, b->ignore_merges};
    h = hash64(flag, sizeof flag, h);
    for (int i = 0; !b->chars && b->unk >= 0 && i < 256; i++)
        if (b->byte_id[i] < 0)
            h = hash64(&b->unk, sizeof b->unk, h + (uint64_t)(b->fuse_unk + i));
    if (b->chars)
        h = hash_chars(t, h);
    else if (t->norm.n > norm_has_nfc(&t->norm))
        h = hash_steps(&t->norm, h);
    return b->rank ? hash64(b->rank, b->merges * sizeof *b->rank, h) : h;
}
