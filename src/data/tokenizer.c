/* The tokenizer proper: pieces, added tokens, encode and decode.  The formats it is read from are
 * the table at the end. */
#include "base/fs.h"
#include "base/hash.h"
#include "base/mem.h"
#include "base/nfc.h"
#include "base/utf8.h"
#include "data/bpe.h"

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
        *t = (struct tokenizer){.kind = kind, .vocab = vocab, .eot = -1, .bos = -1};
        t->offset = mem_alloc((size_t)vocab, sizeof *t->offset);
        t->length = mem_alloc((size_t)vocab, sizeof *t->length);
        t->present = mem_alloc((size_t)vocab, 1);
    }
    if (!t || !t->offset || !t->length || !t->present) {
        err_set(e, DS_EMEM, "no memory for a vocabulary of %d tokens", vocab);
        tokenizer_free(t);
        return NULL;
    }
    return t;
}

int tokenizer_set_piece(struct tokenizer *t, int32_t id, const char *s, size_t n, struct err *e)
{
    if (id < 0 || id >= t->vocab)
        return err_set(e, DS_ERANGE, "token id %d is outside 0..%d", id, t->vocab - 1);
    if (t->present[id])
        return err_set(e, DS_EFORMAT, "two tokens have the id %d", id);
    if (n > BPE_TOKEN_BYTES)
        return err_set(e, DS_ERANGE, "token %d is %zu bytes long; the limit is %d", id, n,
                       BPE_TOKEN_BYTES);
    t->present[id] = 1;
    t->offset[id] = t->bytes.len;
    t->length[id] = (uint32_t)n;
    str_add_bytes(&t->bytes, s, n);
    return t->bytes.failed ? err_set(e, DS_EMEM, "no memory for the vocabulary") : 0;
}

int tokenizer_add_special(struct tokenizer *t, const struct added_token *a, struct err *e)
{
    int64_t seen;
    if (a->len == 0)
        return err_set(e, DS_EFORMAT, "added token %d is empty", a->id);
    if (map_get(&t->added_map, a->text, a->len, &seen))
        return err_set(e, DS_EFORMAT, "added token %d appears twice", a->id);
    void *p = t->added;
    if (mem_grow(&p, &t->added_cap, t->n_added + 1, sizeof *t->added) < 0)
        return err_set(e, DS_EMEM, "no memory for added tokens");
    t->added = p;
    struct added_token *own = &t->added[t->n_added];
    *own = *a;
    own->text = mem_dup(a->text, a->len);
    if (!own->text)
        return err_set(e, DS_EMEM, "no memory for added tokens");
    t->n_added++;
    t->has_plain_added |= !a->special;
    if (map_set(&t->added_map, a->text, a->len, (int64_t)t->n_added - 1) < 0)
        return err_set(e, DS_EMEM, "no memory for added tokens");
    return 0;
}

static unsigned first_two(const char *s)
{
    return (unsigned)(unsigned char)s[0] << 8 | (unsigned char)s[1];
}

/* Distinct lengths, longest first, and the bitmap that rules out most positions at once. */
static int index_added(struct tokenizer *t)
{
    t->added_len = mem_alloc(t->n_added + 1, sizeof *t->added_len);
    t->added_pair = mem_alloc(8192, 1);
    if (!t->added_len || !t->added_pair)
        return DS_EMEM;
    for (size_t i = 0; i < t->n_added; i++) {
        const struct added_token *a = &t->added[i];
        size_t at = 0;
        while (at < t->n_added_len && t->added_len[at] > a->len)
            at++;
        if (at == t->n_added_len || t->added_len[at] != a->len) {
            memmove(t->added_len + at + 1, t->added_len + at,
                    (t->n_added_len - at) * sizeof *t->added_len);
            t->added_len[at] = a->len;
            t->n_added_len++;
        }
        unsigned two = first_two(a->len > 1 ? a->text : (const char[2]){a->text[0], 0});
        for (unsigned low = 0; low < (a->len > 1 ? 1u : 256u); low++, two += a->len == 1)
            t->added_pair[two >> 3] |= (unsigned char)(1u << (two & 7));
    }
    return 0;
}

/* Encoding walks by these lengths, so they must add up whatever the file said. */
static int check_lengths(const struct tokenizer *t, struct err *e)
{
    const struct bpe *b = t->bpe;
    for (int i = 0; i < 256; i++)
        if (b->byte_id[i] >= 0 && t->length[b->byte_id[i]] != 1)
            return err_set(e, DS_EFORMAT, "token %d stands for a byte and for an added token",
                           b->byte_id[i]);
    for (size_t i = 0; i < b->merges; i++) {
        const struct bpe_merge *m = &b->merge[i];
        if (t->length[m->left] + t->length[m->right] != t->length[m->id] || !t->length[m->left] ||
            !t->length[m->right])
            return err_set(e, DS_EFORMAT, "merge %zu does not add up to its token %d", i, m->id);
    }
    return 0;
}

int tokenizer_ready(struct tokenizer *t, struct err *e)
{
    if (index_added(t) < 0)
        return err_set(e, DS_EMEM, "no memory for added tokens");
    if (!t->bpe)
        return 0;
    int rc = check_lengths(t, e);
    t->bpe->length = t->length;
    return rc < 0 ? rc : bpe_ready(t->bpe, e);
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
    mem_free(t->added_len);
    mem_free(t->added_pair);
    map_release(&t->added_map);
    str_release(&t->bytes);
    str_release(&t->source);
    mem_free(t->offset);
    mem_free(t->length);
    mem_free(t->present);
    mem_free(t);
}

/* --- questions ---------------------------------------------------------------------------------
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

const char *tokenizer_kind(const struct tokenizer *t)
{
    return t->kind;
}

int tokenizer_is_special(const struct tokenizer *t, int32_t id)
{
    for (size_t i = 0; i < t->n_added; i++)
        if (t->added[i].id == id)
            return t->added[i].special;
    return 0;
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
    for (size_t i = 0; i < n; i++) {
        size_t len = 0;
        const char *p = tokenizer_piece(t, ids[i], &len);
        if (p)
            str_add_bytes(out, p, len);
    }
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
        int32_t flag[4] = {a->id, a->special, a->lstrip, a->rstrip};
        h = hash64(a->text, a->len, h);
        h = hash64(flag, sizeof flag, h);
    }
    int32_t top[4] = {t->eot, t->nfc, t->bpe != NULL, 0};
    h = hash64(top, sizeof top, h);
    if (!t->bpe)
        return h;
    const struct bpe *b = t->bpe;
    h = hash64(b->merge, b->merges * sizeof *b->merge, h);
    for (int i = 0; i < b->pre.n; i++)
        h = hash64(b->pre.stage[i].pattern, strlen(b->pre.stage[i].pattern),
                   h + (uint64_t)b->pre.stage[i].drop_gaps);
    int32_t flag[2] = {b->pre.add_prefix_space, b->ignore_merges};
    return hash64(flag, sizeof flag, h);
}

/* --- encoding ----------------------------------------------------------------------------------
 */

struct sink {
    const struct bpe *b;
    struct ids *out;
};

static int on_piece(void *ctx, const char *s, size_t n, struct err *e)
{
    struct sink *c = ctx;
    return bpe_encode_piece(c->b, s, n, c->out, e);
}

static int encode_plain(const struct tokenizer *t, const char *s, size_t n, struct ids *out,
                        struct err *e)
{
    if (t->bpe) {
        struct sink c = {t->bpe, out};
        return pretok_walk(&t->bpe->pre, s, n, on_piece, &c, e);
    }
    for (size_t i = 0; i < n; i++)
        if (ids_add(out, (unsigned char)s[i]) < 0)
            return err_set(e, DS_EMEM, "no memory for %zu token ids", out->n + 1);
    return 0;
}

/* The leftmost added token at or after `from`, the longest one there; NULL if none. */
static const struct added_token *find_added(const struct tokenizer *t, const char *s, size_t n,
                                            size_t from, int special, size_t *where)
{
    for (size_t i = from; i < n; i++) {
        unsigned two = first_two(i + 1 < n ? s + i : (const char[2]){s[i], 0});
        if (!(t->added_pair[two >> 3] & 1u << (two & 7)))
            continue;
        for (size_t k = 0; k < t->n_added_len; k++) {
            int64_t at;
            if (t->added_len[k] > n - i || !map_get(&t->added_map, s + i, t->added_len[k], &at))
                continue;
            if (t->added[at].special && !special)
                continue;
            *where = i;
            return &t->added[at];
        }
    }
    return NULL;
}

static int is_space(const char *s, size_t n, size_t *len)
{
    uint32_t c;
    int k = utf8_decode(s, n, &c);
    *len = k > 0 ? (size_t)k : 1;
    return k > 0 && ((c >= 9 && c <= 13) || c == 32 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
                     (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F ||
                     c == 0x205F || c == 0x3000);
}

static size_t strip_right_end(const char *s, size_t from, size_t end)
{
    for (size_t k; end > from; end -= k) {
        for (k = 1; k < 4 && end - k > from && ((unsigned char)s[end - k] & 0xC0) == 0x80;)
            k++;
        size_t len;
        if (!is_space(s + end - k, k, &len) || len != k)
            break;
    }
    return end;
}

static int encode_text(const struct tokenizer *t, const char *s, size_t n, int special,
                       struct ids *out, struct err *e)
{
    size_t at = 0, where = 0;
    int rc = 0;
    const struct added_token *a = NULL;
    int search = t->n_added && (special || t->has_plain_added);
    while (rc >= 0 && search && (a = find_added(t, s, n, at, special, &where)) != NULL) {
        size_t end = a->lstrip ? strip_right_end(s, at, where) : where;
        rc = encode_plain(t, s + at, end - at, out, e);
        if (rc >= 0 && ids_add(out, a->id) < 0)
            rc = err_set(e, DS_EMEM, "no memory for %zu token ids", out->n + 1);
        at = where + a->len;
        for (size_t len; a->rstrip && at < n && is_space(s + at, n - at, &len);)
            at += len;
    }
    return rc < 0 ? rc : encode_plain(t, s + at, n - at, out, e);
}

int tokenizer_encode(const struct tokenizer *t, const char *s, size_t n, int allow_special,
                     struct ids *out, struct err *e)
{
    size_t before = out->n;
    struct str composed = {0};
    if (t->nfc && nfc_needed(s, n)) {
        nfc_compose(&composed, s, n);
        s = composed.p;
        n = composed.len;
    }
    int rc = composed.failed ? err_set(e, DS_EMEM, "no memory to normalise %zu bytes", n)
                             : encode_text(t, s, n, allow_special, out, e);
    if (rc < 0)
        out->n = before;
    str_release(&composed);
    return rc;
}

/* --- formats -----------------------------------------------------------------------------------
 */

static int load_json_file(struct tokenizer **out, const char *path, struct err *e)
{
    struct str text = {0};
    int rc = fs_read_file(&text, path, TOKENIZER_FILE_MAX, e);
    if (rc >= 0)
        rc = tokenizer_load_json(out, text.p, text.len, path, e);
    str_release(&text);
    return rc;
}

/* A directory is searched for these names in order; a file is read by the format whose suffix it
 * has, the first one otherwise. */
static const struct format {
    const char *file, *suffix;
    int (*load)(struct tokenizer **out, const char *path, struct err *e);
} formats[] = {
    {"tokenizer.json", ".json", load_json_file},
};

static int ends_with(const char *s, const char *suffix)
{
    size_t n = strlen(s), k = strlen(suffix);
    return n >= k && strcmp(s + n - k, suffix) == 0;
}

static int load_from_dir(struct tokenizer **out, const char *path, struct err *e)
{
    char full[4096];
    for (size_t i = 0; i < DS_LEN(formats); i++) {
        int rc = fs_join(full, sizeof full, path, formats[i].file, e);
        if (rc < 0)
            return rc;
        if (fs_exists(full))
            return formats[i].load(out, full, e);
    }
    return err_set(e, DS_ENOTFOUND, "%s holds no tokenizer.json", path);
}

int tokenizer_load(struct tokenizer **out, const char *path, struct err *e)
{
    if (fs_is_dir(path))
        return load_from_dir(out, path, e);
    size_t pick = 0;
    for (size_t i = 0; i < DS_LEN(formats); i++)
        if (ends_with(path, formats[i].suffix))
            pick = i;
    if (ends_with(path, ".model"))
        return err_set(
            e, DS_EFORMAT,
            "%s: a SentencePiece or tiktoken model is not supported; give a tokenizer.json", path);
    return formats[pick].load(out, path, e);
}
