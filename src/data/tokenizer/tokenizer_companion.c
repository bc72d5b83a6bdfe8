/* Hugging Face's companion files of a tokenizer: tokenizer_config.json, added_tokens.json and
 * special_tokens_map.json.  They are merged into the tokenizer.json that is saved, so this file
 * must not know how text is encoded. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fs.h"
#include "base/json.h"
#include "base/log.h"
#include "base/map.h"
#include "base/mem.h"
#include "data/tokenizer/bpe.h"
#include "data/tokenizer/pieces.h"

enum { CONFIG, ADDED, SPECIAL, FILES };
static const char *const file_name[FILES] = {"tokenizer_config.json", "added_tokens.json",
                                             "special_tokens_map.json"};

struct named {
    struct added_token a;        /* text: owned by its file; id -1: only the name is known */
    const struct json_node *obj; /* its flags, NULL: none */
};
struct companion {
    struct json *file[FILES]; /* NULL: not there */
    struct named *v;
    size_t n, cap;
    struct map by_text, by_id;
};

/* ---- reading ---- */

static int add_named(struct companion *b, int which, int64_t id, const char *text, size_t len,
                     const struct json_node *obj, int is_special, struct err *e)
{
    int64_t other;
    const char *name = file_name[which];
    if (!text || len == 0 || len > BPE_TOKEN_BYTES)
        return err_set(e, DS_EFORMAT, "%s: token %lld: expected a string of 1 to %d bytes", name,
                       (long long)id, BPE_TOKEN_BYTES);
    if (id < -1 || id >= BPE_IDS_MAX)
        return err_set(e, DS_ERANGE, "%s: \"%.40s\": id must be a number in 0..%d", name, text,
                       BPE_IDS_MAX - 1);
    if (map_get(&b->by_text, text, len, &other)) {
        struct added_token *a = &b->v[other].a;
        a->special |= id < 0;
        return id < 0 || id == a->id
                   ? 0
                   : err_set(e, DS_EFORMAT,
                             "%s: \"%.40s\": id %lld, expected %d as before; correct one", name,
                             text, (long long)id, a->id);
    }
    if (id >= 0 && map_get(&b->by_id, &id, sizeof id, &other))
        return err_set(e, DS_EFORMAT,
                       "%s: token %lld: \"%.40s\", expected \"%.40s\" as before; correct one", name,
                       (long long)id, text, b->v[other].a.text);
    void *p = b->v;
    if (mem_grow(&p, &b->cap, b->n + 1, sizeof *b->v) < 0)
        return err_set(e, DS_EMEM, "out of memory for added tokens");
    b->v = p;
    b->v[b->n++] = (struct named){
        .obj = obj,
        .a = {
            .text = (char *)(uintptr_t)text, .len = len, .id = (int32_t)id, .special = is_special}};
    if (map_set(&b->by_text, text, len, (int64_t)b->n - 1) < 0 ||
        (id >= 0 && map_set(&b->by_id, &id, sizeof id, (int64_t)b->n - 1) < 0))
        return err_set(e, DS_EMEM, "out of memory for added tokens");
    return 0;
}

/* {"ID": {"content": TEXT, flags}} */
static int read_decoder(struct companion *b, const struct json_node *decoder, struct err *e)
{
    const char *key;
    size_t len;
    void *at = NULL;
    int rc = 0;
    for (size_t i = 0; rc >= 0 && i < json_len(decoder); i++) {
        const struct json_node *one = json_next(decoder, &at, &key, &len);
        char *stop = NULL;
        int64_t id =
            one && len > 0 && key[0] >= '0' && key[0] <= '9' ? strtoll(key, &stop, 10) : -2;
        if (!stop || *stop)
            rc = err_set(e, DS_EFORMAT, "%s: added_tokens_decoder: \"%.40s\": expected an id",
                         file_name[CONFIG], one ? key : "");
        const char *text = rc < 0 ? NULL : json_str(json_get(one, "content"), &len);
        if (rc >= 0)
            rc =
                add_named(b, CONFIG, id, text, len, one, json_bool(json_get(one, "special"), 0), e);
    }
    return rc;
}

/* {"TEXT": ID}; they are special where another file names them so. */
static int read_added(struct companion *b, const struct json_node *added, struct err *e)
{
    const char *key;
    size_t len;
    void *at = NULL;
    int rc = 0;
    for (size_t i = 0; rc >= 0 && i < json_len(added); i++) {
        const struct json_node *one = json_next(added, &at, &key, &len);
        int64_t id = json_int(one, -2);
        rc = one ? add_named(b, ADDED, id < 0 ? -2 : id, key, len, NULL, 0, e)
                 : err_set(e, DS_EFORMAT, "%s: expected an object of strings and ids",
                           file_name[ADDED]);
    }
    return rc;
}

/* A string, an object with one, or a list or object of these. */
static int read_name(struct companion *b, int which, const struct json_node *n, int depth,
                     struct err *e)
{
    size_t len = 0;
    const char *key, *text = json_str(n, &len);
    const struct json_node *content = json_get(n, "content"), *obj = NULL;
    int rc = 0;
    if (content) {
        text = json_str(content, &len);
        obj = n;
    }
    if (text)
        return len > 0 ? add_named(b, which, -1, text, len, obj, 1, e) : 0;
    int is_list = json_kind_of(n) == JSON_KIND_ARRAY;
    void *at = NULL;
    for (size_t i = 0; rc >= 0 && depth == 0 && i < json_len(n); i++)
        rc = read_name(b, which, is_list ? json_at(n, i) : json_next(n, &at, &key, &len), 1, e);
    return rc;
}

static int read_names(struct companion *b, int which, struct err *e)
{
    static const char *const keys[] = {
        "bos_token",           "eos_token", "unk_token",  "sep_token",
        "pad_token",           "cls_token", "mask_token", "additional_special_tokens",
        "extra_special_tokens"};
    const struct json_node *root = json_root(b->file[which]);
    int rc = 0;
    for (size_t i = 0; rc >= 0 && i < DS_LEN(keys); i++)
        rc = read_name(b, which, json_get(root, keys[i]), 0, e);
    return rc;
}

static void read_flags(struct named *k)
{
    k->a.lstrip = json_bool(json_get(k->obj, "lstrip"), 0);
    k->a.rstrip = json_bool(json_get(k->obj, "rstrip"), 0);
    k->a.single_word = json_bool(json_get(k->obj, "single_word"), 0);
    k->a.normalized = json_bool(json_get(k->obj, "normalized"), !k->a.special);
}

/* As transformers does: the map of special tokens is for configs without a list of their own. */
static int read_all(struct companion *b, struct err *e)
{
    const struct json_node *decoder =
        json_get(b->file[CONFIG] ? json_root(b->file[CONFIG]) : NULL, "added_tokens_decoder");
    int rc = read_decoder(b, decoder, e);
    if (rc >= 0 && b->file[ADDED])
        rc = read_added(b, json_root(b->file[ADDED]), e);
    if (rc >= 0 && b->file[CONFIG])
        rc = read_names(b, CONFIG, e);
    if (rc >= 0 && b->file[SPECIAL] && !decoder)
        rc = read_names(b, SPECIAL, e);
    for (size_t i = 0; i < b->n; i++)
        read_flags(&b->v[i]);
    return rc;
}

int companion_open(struct companion **out, const char *path, struct err *e)
{
    char other[4096];
    struct companion *b = mem_alloc(1, sizeof *b);
    int rc = b ? 0 : err_set(e, DS_EMEM, "out of memory for added tokens");
    for (int i = 0; rc >= 0 && i < FILES; i++) {
        rc = tokenizer_sibling(other, sizeof other, path, file_name[i], e);
        if (rc >= 0 && fs_exists(other))
            rc = json_read_wide(&b->file[i], other, TOKENIZER_FILE_MAX, e);
    }
    if (rc >= 0 && (rc = read_all(b, e)) < 0)
        err_add(e, rc, "next to %s", path);
    if (rc < 0)
        companion_free(b);
    else
        *out = b;
    return rc < 0 ? rc : 0;
}

void companion_free(struct companion *b)
{
    if (!b)
        return;
    for (int i = 0; i < FILES; i++)
        json_free(b->file[i]);
    map_release(&b->by_text);
    map_release(&b->by_id);
    mem_free(b->v);
    mem_free(b);
}

const struct json_node *companion_config(const struct companion *b)
{
    return b->file[CONFIG] ? json_root(b->file[CONFIG]) : NULL;
}

int companion_names(const struct companion *b, int32_t first, int32_t end)
{
    for (size_t i = 0; i < b->n; i++)
        if (b->v[i].a.id >= first && b->v[i].a.id < end)
            return 1;
    return 0;
}

/* ---- added tokens ---- */

/* Id of the vocabulary's token with this text; -1 = none. */
static int32_t vocabulary_id(const struct tokenizer *t, const char *s, size_t n, int *failed)
{
    int64_t id = -1;
    struct str bytes = {0};
    if (t->bpe->chars)
        return map_get(&t->bpe->chars->symbol, s, n, &id) ? (int32_t)id : -1;
    int is_piece = bpe_printable_bytes(&bytes, s, n) && bytes.len > 0;
    for (int32_t i = 0; is_piece && i < t->vocab && id < 0; i++)
        if (t->present[i] && t->length[i] == bytes.len &&
            memcmp(t->bytes.p + t->offset[i], bytes.p, bytes.len) == 0)
            id = i;
    *failed |= bytes.failed;
    str_release(&bytes);
    return (int32_t)id;
}

/* Tokens or ids that contradict the tokenizer's main file, which wins. */
struct conflict {
    size_t n;
    char first[200];
};

static void note_conflict(struct conflict *c, const struct added_token *a, int32_t own)
{
    if (c->n++)
        return;
    if (own >= 0)
        snprintf(c->first, sizeof c->first,
                 "\"%.40s\" has id %d in its companion files, but %d here", a->text, a->id, own);
    else
        snprintf(c->first, sizeof c->first,
                 "token %d is \"%.40s\" in its companion files, but different here", a->id,
                 a->text);
}

static void take_flags(struct added_token *own, const struct added_token *a, int is_raw)
{
    own->special = a->special;
    own->lstrip = a->lstrip;
    own->rstrip = a->rstrip;
    own->single_word = a->single_word;
    if (!own->as_piece)
        own->normalized = a->normalized && !is_raw;
}

static int is_same(const struct added_token *x, const struct added_token *y)
{
    return x->id == y->id && x->special == y->special && x->lstrip == y->lstrip &&
           x->rstrip == y->rstrip && x->single_word == y->single_word &&
           x->normalized == y->normalized;
}

static const char *truth(int v)
{
    return v ? "true" : "false";
}

static void write_token(struct str *out, const struct added_token *a)
{
    str_addf(out, "%s{\"id\":%d,\"content\":", out->len > 1 ? "," : "", a->id);
    str_add_json(out, a->text, a->len);
    str_addf(out,
             ",\"single_word\":%s,\"lstrip\":%s,\"rstrip\":%s,\"normalized\":%s,%s\"special\":%s}",
             truth(a->single_word), truth(a->lstrip), truth(a->rstrip),
             truth(a->normalized && !a->is_raw), a->as_piece ? "\"as_piece\":true," : "",
             truth(a->special));
}

/* Writes the complete list; 1: it changed. */
static int write_list(struct str *out, const struct companion *b, const struct tokenizer *t,
                      int is_raw, struct conflict *c)
{
    int changed = 0;
    str_add_char(out, '[');
    for (size_t i = 0; i < t->n_added; i++) {
        struct added_token own = t->added[i];
        int64_t at;
        if (map_get(&b->by_text, own.text, own.len, &at)) {
            const struct added_token *a = &b->v[at].a;
            if (a->id >= 0 && a->id != own.id)
                note_conflict(c, a, own.id);
            if (a->id >= 0) /* a name alone has no flags to override */
                take_flags(&own, a, is_raw);
        }
        changed |= !is_same(&own, &t->added[i]);
        write_token(out, &own);
    }
    for (size_t i = 0; i < b->n; i++) {
        struct added_token a = b->v[i].a;
        int64_t at;
        if (map_get(&t->added_map, a.text, a.len, &at))
            continue;
        int32_t own = vocabulary_id(t, a.text, a.len, &out->failed);
        if (own < 0 && a.id < 0)
            continue; /* a name without an id */
        if (own < 0 && a.id < t->vocab && t->present[a.id])
            note_conflict(c, &a, -1);
        else if (own >= 0 && a.id >= 0 && a.id != own)
            note_conflict(c, &a, own);
        if (own < 0 && a.id < t->vocab && t->present[a.id])
            continue;
        a.id = own >= 0 ? own : a.id;
        a.normalized = a.normalized && !is_raw;
        write_token(out, &a);
        changed = 1;
    }
    str_add_char(out, ']');
    return changed;
}

/* ---- the tokenizer.json ---- */

/* Range of a top-level member's value in a valid document; 0: not found. */
static int find_member(const char *p, size_t n, const char *key, size_t *from, size_t *to)
{
    size_t start = 0, k = strlen(key);
    int depth = 0, is_key = 1, found = 0;
    for (size_t i = 0; i < n; i++) {
        if (p[i] == '"') {
            size_t first = ++i;
            while (i < n && p[i] != '"')
                i += p[i] == '\\' ? 2 : 1;
            if (depth == 1 && is_key && !start)
                found = i == first + k && memcmp(p + first, key, k) == 0;
        } else if (p[i] == '{' || p[i] == '[') {
            depth++;
        } else if (depth == 1 && p[i] == ':') {
            start = found ? i + 1 : 0;
            is_key = 0;
        } else if (depth == 1 && start && (p[i] == ',' || p[i] == '}')) {
            *from = start;
            *to = i;
            return 1;
        } else if (p[i] == '}' || p[i] == ']') {
            depth--;
        } else if (p[i] == ',' && depth == 1) {
            is_key = 1;
        }
    }
    return 0;
}

/* doc[from, to) becomes s. */
static void put(struct str *doc, size_t from, size_t to, const struct str *s)
{
    struct str out = {0};
    str_add_bytes(&out, doc->p, from);
    str_add_bytes(&out, str_text(s), s->len);
    str_add_bytes(&out, doc->p + to, doc->len - to);
    out.failed |= doc->failed | s->failed;
    str_release(doc);
    *doc = out;
}

static void put_list(struct str *doc, const struct str *list)
{
    size_t from, to;
    struct str whole = {0};
    if (find_member(doc->p, doc->len, "added_tokens", &from, &to)) {
        put(doc, from, to, list);
        return;
    }
    const char *open = memchr(doc->p, '{', doc->len);
    from = open ? (size_t)(open - doc->p) + 1 : 0;
    str_add(&whole, "\"added_tokens\":");
    str_add_bytes(&whole, list->p, list->len);
    str_add_char(&whole, ',');
    whole.failed |= list->failed;
    put(doc, from, from, &whole);
    str_release(&whole);
}

/* A token's text, from a string or an object with flags; NULL: none. */
static const char *token_of(const struct json_node *config, const char *key, size_t *n)
{
    const struct json_node *v = json_get(config, key);
    const char *text = json_str(v, n);
    return text ? text : json_str(json_get(v, "content"), n);
}

/* Inserts a key into the model unless present: a saved document may have it already. */
static void put_end(struct str *doc, const char *key, const char *text, size_t n)
{
    size_t from, to, a, b;
    struct str s = {0};
    const char *open = NULL;
    if (find_member(doc->p, doc->len, "model", &from, &to))
        open = memchr(doc->p + from, '{', to - from);
    if (!text || !open || find_member(open, (size_t)(doc->p + to - open), key, &a, &b))
        return; /* the reader reports a missing model */
    str_addf(&s, "\"%s\":", key);
    str_add_json(&s, text, n);
    str_add_char(&s, ',');
    from = (size_t)(open - doc->p) + 1;
    put(doc, from, from, &s);
    str_release(&s);
}

/* Texts of bos and eos that the document does not define; NULL: defined. */
struct ends {
    const char *bos, *eos;
    size_t bos_len, eos_len;
};

static struct ends find_ends(const struct json_node *config, const struct tokenizer *t)
{
    struct ends x = {0};
    if (t->bos < 0 && json_bool(json_get(config, "add_bos_token"), 0))
        x.bos = token_of(config, "bos_token", &x.bos_len);
    if (t->eot < 0)
        x.eos = token_of(config, "eos_token", &x.eos_len);
    return x;
}

/* SentencePiece's file names bos, and the config says whether it is added. */
static int drops_bos(const struct companion *b, const struct tokenizer *t, int kind)
{
    const struct json_node *add = json_get(companion_config(b), "add_bos_token");
    return kind == COMPANION_MODEL && t->bos >= 0 && json_kind_of(add) == JSON_KIND_BOOL &&
           !json_bool(add, 1);
}

static void put_no_template(struct str *doc)
{
    size_t from, to;
    struct str none = {0};
    str_add(&none, "null");
    if (find_member(doc->p, doc->len, "post_processor", &from, &to))
        put(doc, from, to, &none);
    str_release(&none);
}

int companion_apply(const struct companion *b, struct tokenizer **t, int kind, const char *path,
                    struct err *e)
{
    struct str list = {0}, doc = {0};
    struct tokenizer *other = NULL;
    struct conflict c = {0};
    struct ends ends = {0};
    int no_bos = drops_bos(b, *t, kind);
    if (kind != COMPANION_VOCAB)
        ends = find_ends(companion_config(b), *t);
    int changed = kind != COMPANION_OTHER && write_list(&list, b, *t, kind == COMPANION_MODEL, &c),
        rc = 0;
    if (c.n)
        log_warn("%s: %s%s; using its own tokens", path, c.first, c.n > 1 ? " (and more)" : "");
    if (list.failed)
        rc = err_set(e, DS_EMEM, "%s: out of memory for a tokenizer", path);
    if (rc < 0 || (!changed && !ends.bos && !ends.eos && !no_bos))
        goto out;
    str_add_bytes(&doc, (*t)->source.p, (*t)->source.len);
    if (changed)
        put_list(&doc, &list);
    put_end(&doc, TOKENIZER_BOS, ends.bos, ends.bos_len);
    put_end(&doc, TOKENIZER_EOS, ends.eos, ends.eos_len);
    if (no_bos)
        put_no_template(&doc);
    rc = doc.failed ? err_set(e, DS_EMEM, "%s: out of memory for a tokenizer", path)
                    : tokenizer_load_json(&other, doc.p, doc.len, path, e);
    if (rc >= 0) {
        tokenizer_free(*t);
        *t = other;
    }
out:
    str_release(&list);
    str_release(&doc);
    return rc < 0 ? rc : 0;
}

int companion_load(struct tokenizer **t, int kind, const char *path, struct err *e)
{
    struct companion *b = NULL;
    int rc = companion_open(&b, path, e);
    if (rc >= 0)
        rc = companion_apply(b, t, kind, path, e);
    companion_free(b);
    return rc;
}
