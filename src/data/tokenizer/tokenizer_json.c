/* Reads a Hugging Face tokenizer.json with BPE over bytes or characters, or a unigram model.  Unsupported features are
 * rejected by name, because silently different ids would be worse than an error.
 */
#include "base/json.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "data/tokenizer/bpe.h"

#include <math.h>
#include <string.h>

static const char *type_of(const struct json_node *n)
{
    const char *type = json_str(json_get(n, "type"), NULL);
    return type ? type : "(no type)";
}

/* --- vocabulary and merges
 * --------------------------------------------------------------------------- */

enum { UNKNOWN_PENALTY = 10 }; /* of unigram models: below the lowest score */

struct reader {
    struct tokenizer *t;
    struct map id_of; /* token as written in the file -> id */
    struct str scratch;
    const char *what;
};

static int largest_id(const struct json_node *vocab, const struct json_node *added, int64_t *max,
                      struct err *e)
{
    const char *key;
    size_t len;
    void *at = NULL;
    int is_list = json_kind_of(vocab) == JSON_KIND_ARRAY; /* of pieces, whose places are the ids */
    size_t members = is_list ? 0 : json_len(vocab);
    if (is_list && json_len(vocab) > BPE_IDS_MAX)
        return err_set(e, DS_ERANGE, "vocabulary of %zu pieces: must be at most %d",
                       json_len(vocab), BPE_IDS_MAX);
    *max = is_list ? (int64_t)json_len(vocab) - 1 : -1;
    for (size_t i = 0;; i++) {
        const struct json_node *v = i < members ? json_next(vocab, &at, &key, &len) : NULL;
        const struct json_node *a = v ? v : json_get(json_at(added, i - members), "id");
        if (!v && i - members >= json_len(added))
            return 0;
        int64_t id = json_int(a, -1);
        if (id < 0 || id >= BPE_IDS_MAX)
            return err_set(e, DS_ERANGE, "token id must be a number in 0..%d; \"%.40s\" has %lld",
                           BPE_IDS_MAX - 1, v ? key : "an added token", (long long)id);
        *max = id > *max ? id : *max;
    }
}

/* The text of a character-level token after the file's decoder. */
static int token_text(struct reader *r, const char *s, size_t n, struct err *e)
{
    struct str own = {0};
    int byte = r->t->bpe->chars->byte_fallback ? bpe_fallback_byte(s, n) : -1;
    int rc = byte < 0 ? norm_apply(&r->t->decoder, &s, &n, &own, e) : 0;
    str_reset(&r->scratch);
    if (byte >= 0)
        str_add_char(&r->scratch, (char)byte);
    else
        str_add_bytes(&r->scratch, s, n);
    str_release(&own);
    return rc;
}

static int read_token(struct reader *r, int32_t id, const char *key, size_t len, struct err *e)
{
    struct bpe *b = r->t->bpe;
    int rc = 0;
    if (b->chars) {
        rc = token_text(r, key, len, e);
        if (rc >= 0)
            rc = bpe_chars_add(b, id, key, len, e);
    } else if (bpe_printable_bytes(&r->scratch, key, len) && r->scratch.len == 1) {
        b->byte_id[(unsigned char)r->scratch.p[0]] = id;
    }
    if (rc >= 0 && r->scratch.failed)
        rc = err_set(e, DS_EMEM, "out of memory for the vocabulary");
    if (rc >= 0)
        rc = tokenizer_set_piece(r->t, id, str_text(&r->scratch), r->scratch.len, e);
    return rc;
}

/* [["piece", score], ...]; of two equal pieces the last one counts. */
static int read_scored(struct reader *r, const struct json_node *vocab, struct err *e)
{
    struct unigram *u = r->t->bpe->chars->unigram;
    double least = HUGE_VAL;
    for (size_t i = 0; i < json_len(vocab); i++) {
        size_t len = 0;
        const struct json_node *pair = json_at(vocab, i);
        const char *text = json_str(json_at(pair, 0), &len);
        double score = json_num(json_at(pair, 1), HUGE_VAL);
        if (!text || json_len(pair) != 2 || !isfinite(score))
            return err_set(e, DS_EFORMAT, "piece %zu: expected [\"piece\", score]", i);
        if (len > UNIGRAM_PIECE)
            return err_set(e, DS_ERANGE, "piece %zu has %zu bytes: must be at most %d", i, len,
                           UNIGRAM_PIECE);
        int rc = read_token(r, (int32_t)i, text, len, e);
        if (rc < 0)
            return rc;
        if (map_set(&r->id_of, text, len, (int64_t)i) < 0 || r->scratch.failed)
            return err_set(e, DS_EMEM, "out of memory for the vocabulary");
        u->score[i] = score;
        least = score < least ? score : least;
    }
    u->unk_score = least - UNKNOWN_PENALTY;
    return 0;
}

static int read_vocab(struct reader *r, const struct json_node *vocab, struct err *e)
{
    const char *key;
    size_t len;
    void *at = NULL;
    for (size_t i = 0; i < json_len(vocab); i++) {
        int32_t id = (int32_t)json_int(json_next(vocab, &at, &key, &len), -1);
        int rc = read_token(r, id, key, len, e);
        if (rc < 0)
            return rc;
        if (map_set(&r->id_of, key, len, id) < 0 || r->scratch.failed)
            return err_set(e, DS_EMEM, "out of memory for the vocabulary");
    }
    return 0;
}

/* The ids of both parts and of the merged token; 0 when one is not in the vocabulary. */
static int merge_ids(const struct reader *r, struct bpe_merge *m, const char *a, size_t na,
                     const char *b, size_t nb)
{
    char whole[BPE_TOKEN_BYTES];
    int64_t left, right, id;
    if (na == 0 || nb == 0 || na + nb > sizeof whole)
        return 0;
    memcpy(whole, a, na);
    memcpy(whole + na, b, nb);
    if (!map_get(&r->id_of, a, na, &left) || !map_get(&r->id_of, b, nb, &right) ||
        !map_get(&r->id_of, whole, na + nb, &id))
        return 0;
    *m = (struct bpe_merge){(int32_t)left, (int32_t)right, (int32_t)id};
    return 1;
}

/* "a b" or ["a", "b"].  Tokens with spaces make the first form ambiguous: the first split into two
 * tokens is taken. */
static int read_merge(struct reader *r, const struct json_node *n, size_t i, struct err *e)
{
    struct bpe_merge m;
    size_t na = 0, nb = 0;
    const char *s = json_str(n, &na);
    int found = 0, spaces = 0;
    for (const char *at = s;
         !found && at && spaces < 64 && (at = memchr(at, ' ', na - (size_t)(at - s))) != NULL;
         at++, spaces++)
        found = merge_ids(r, &m, s, (size_t)(at - s), at + 1, na - (size_t)(at + 1 - s));
    const char *a = s ? NULL : json_str(json_at(n, 0), &na);
    const char *b = s ? NULL : json_str(json_at(n, 1), &nb);
    if (s ? spaces == 0 : json_len(n) != 2 || !a || !b)
        return err_set(e, DS_EFORMAT, "merge %zu: expected \"a b\" or [\"a\", \"b\"]", i);
    if (!s)
        found = merge_ids(r, &m, a, na, b, nb);
    if (!found)
        return err_set(e, DS_EFORMAT,
                       "merge %zu (\"%.40s\"%s%.40s): token not found in the vocabulary", i,
                       s ? s : a, s ? "" : " + ", s ? "" : b);
    return bpe_add_merge(r->t->bpe, m.left, m.right, m.id, e);
}

/* Own extension: merges of equal rank apply leftmost pair first. */
static int read_ranks(struct bpe *b, const struct json_node *ranks, struct err *e)
{
    if (json_kind_of(ranks) == JSON_KIND_NULL)
        return 0;
    if (json_len(ranks) != b->merges)
        return err_set(e, DS_EFORMAT, "merge_ranks has %zu entries, expected %zu, one per merge",
                       json_len(ranks), b->merges);
    b->rank = mem_alloc(b->merges, sizeof *b->rank);
    if (!b->rank)
        return err_set(e, DS_EMEM, "out of memory for the merges");
    for (size_t i = 0; i < b->merges; i++) {
        int64_t rank = json_int(json_at(ranks, i), -1);
        if (rank < (i ? b->rank[i - 1] : 0) || rank > (int64_t)i)
            return err_set(e, DS_EFORMAT, "merge_ranks: %lld at index %zu is out of order",
                           (long long)rank, i);
        b->rank[i] = (int32_t)rank;
    }
    return 0;
}

/* Own extension: pieces that are merged and then split again. */
static int read_unused(struct reader *r, const struct json_node *unused, struct err *e)
{
    int rc = 0;
    for (size_t i = 0; rc >= 0 && i < json_len(unused); i++) {
        int64_t id = json_int(json_at(unused, i), -1);
        rc = id < 0 || id >= r->t->vocab || !r->t->present[id]
                 ? err_set(e, DS_ERANGE, "unused: unknown token %lld", (long long)id)
                 : bpe_chars_unused(r->t->bpe, (int32_t)id, r->t->vocab, e);
    }
    return rc;
}

static int read_unknown(struct reader *r, const struct json_node *model, struct err *e)
{
    struct bpe *b = r->t->bpe;
    struct bpe_chars *c = b->chars;
    size_t len = 0;
    int64_t id = -1;
    const char *unk = json_str(json_get(model, "unk_token"), &len);
    if (!c) { /* relevant only when a byte is missing from the vocabulary */
        if (unk && map_get(&r->id_of, unk, len, &id))
            b->unk = (int32_t)id;
        b->fuse_unk = json_bool(json_get(model, "fuse_unk"), 0);
        return 0;
    }
    if (unk && !map_get(&r->id_of, unk, len, &id))
        return err_set(e, DS_EFORMAT, "unk_token \"%.40s\" not found in the vocabulary", unk);
    c->unk = (int32_t)id;
    c->fuse_unk = json_bool(json_get(model, "fuse_unk"), 0);
    return 0;
}

/* Own extensions: "single", sums as floats; "unk_score"; "unmatched", ids that no text has. */
static int read_unigram(struct reader *r, const struct json_node *model, struct err *e)
{
    struct bpe_chars *c = r->t->bpe->chars;
    const struct json_node *out = json_get(model, "unmatched"), *vocab = json_get(model, "vocab");
    unsigned char *skip = mem_alloc((size_t)r->t->vocab, 1);
    if (!skip)
        return err_set(e, DS_EMEM, "out of memory for the vocabulary");
    int rc = read_scored(r, vocab, e);
    r->t->by_length = json_bool(json_get(model, TOKENIZER_BY_LENGTH), 0);
    c->unigram->single = json_bool(json_get(model, "single"), 0);
    c->unigram->unk_score = json_num(json_get(model, "unk_score"), c->unigram->unk_score);
    int64_t unk = json_int(json_get(model, "unk_id"), -1);
    if (rc >= 0 && json_kind_of(json_get(model, "unk_id")) != JSON_KIND_NULL &&
        (unk < 0 || unk >= (int64_t)json_len(vocab)))
        rc = err_set(e, DS_ERANGE, "unk_id = %lld: must be in 0..%zu", (long long)unk,
                     json_len(vocab) - 1);
    c->unk = (int32_t)unk;
    for (size_t i = 0; rc >= 0 && i < json_len(out); i++) {
        int64_t id = json_int(json_at(out, i), -1);
        if (id < 0 || id >= r->t->vocab)
            rc = err_set(e, DS_ERANGE, "unmatched: unknown token %lld", (long long)id);
        else
            skip[id] = 1;
    }
    if (rc >= 0)
        rc = unigram_ready(c, skip, e);
    mem_free(skip);
    return rc;
}

static int read_model(struct reader *r, const struct json_node *model, struct err *e)
{
    if (r->t->bpe->chars && r->t->bpe->chars->unigram)
        return read_unigram(r, model, e);
    static const char *const affix[] = {"continuing_subword_prefix", "end_of_word_suffix"};
    const struct json_node *merges = json_get(model, "merges");
    size_t len;
    for (size_t i = 0; i < DS_LEN(affix); i++)
        if (json_str(json_get(model, affix[i]), &len) && len > 0)
            return tokenizer_refuse(e, "a BPE model with", affix[i]);
    if (json_bool(json_get(model, "byte_fallback"), 0) && !r->t->bpe->chars)
        return tokenizer_refuse(e, "a byte-level BPE model with", "byte_fallback");
    if (json_num(json_get(model, "dropout"), 0) > 0)
        return tokenizer_refuse(e, "a BPE model with", "dropout");
    r->t->by_length = json_bool(json_get(model, TOKENIZER_BY_LENGTH), 0);
    r->t->bpe->ignore_merges = json_bool(json_get(model, "ignore_merges"), 0);
    int rc = read_vocab(r, json_get(model, "vocab"), e);
    for (size_t i = 0; rc >= 0 && i < json_len(merges); i++)
        rc = read_merge(r, json_at(merges, i), i, e);
    if (rc >= 0)
        rc = read_ranks(r->t->bpe, json_get(model, "merge_ranks"), e);
    if (rc >= 0 && r->t->bpe->chars)
        rc = read_unused(r, json_get(model, "unused"), e);
    return rc < 0 ? rc : read_unknown(r, model, e);
}

/* --- added tokens
 * -------------------------------------------------------------------------------------- */

static int read_added(struct reader *r, const struct json_node *n, struct err *e)
{
    size_t len = 0;
    const char *text = json_str(json_get(n, "content"), &len);
    if (!text)
        return err_set(e, DS_EFORMAT, "added token: missing content");
    struct added_token a = {.len = len,
                            .id = (int32_t)json_int(json_get(n, "id"), -1),
                            .special = json_bool(json_get(n, "special"), 0),
                            .lstrip = json_bool(json_get(n, "lstrip"), 0),
                            .rstrip = json_bool(json_get(n, "rstrip"), 0)};
    a.normalized = json_bool(json_get(n, "normalized"), !a.special);
    a.as_piece = json_bool(json_get(n, "as_piece"), 0);
    a.is_raw = a.as_piece && !a.normalized;
    a.normalized |= a.as_piece;
    a.single_word = json_bool(json_get(n, "single_word"), 0);
    int64_t known;
    int rc = 0;
    /* "apart" is our own: a token of the vocabulary may have the same text. */
    if (!json_bool(json_get(n, "apart"), 0) && map_get(&r->id_of, text, len, &known)) {
        if (known != a.id)
            return err_set(e, DS_EFORMAT,
                           "added token \"%.40s\": id %d, expected %lld as in the vocabulary", text,
                           a.id, (long long)known);
        /* Its own text, not the bytes that it would decode to as a word. */
        r->t->present[a.id] = 0;
    }
    /* Decoded like every other token: marks become spaces. */
    str_reset(&r->scratch);
    if (r->t->bpe->chars)
        rc = token_text(r, text, len, e);
    else
        str_add_bytes(&r->scratch, text, len);
    if (rc >= 0 && r->scratch.failed)
        rc = err_set(e, DS_EMEM, "out of memory for added tokens");
    if (rc >= 0)
        rc = tokenizer_set_piece(r->t, a.id, str_text(&r->scratch), r->scratch.len, e);
    if (rc < 0)
        return rc;
    a.text = mem_dup(text, len + 1);
    rc = a.text ? tokenizer_add_special(r->t, &a, e)
                : err_set(e, DS_EMEM, "out of memory for added tokens");
    mem_free(a.text);
    return rc;
}

static int32_t id_of_text(const struct reader *r, const char *text)
{
    int64_t id, at;
    if (map_get(&r->t->added_map, text, strlen(text), &at))
        return r->t->added[at].id;
    return map_get(&r->id_of, text, strlen(text), &id) ? (int32_t)id : -1;
}

/* Finds the document separator: the end-of-text token, preferred over end-of-turn tokens. */
static void find_ends(struct reader *r, const struct json_node *root)
{
    static const char *const end[] = {
        "<|endoftext|>", "<|end_of_text|>", "</s>",       "<eos>",   "<|end_story|>",
        "<|eos|>",       "<|im_end|>",      "<|eot_id|>", "\n<s>\n", /* llama2.c's stories */
    };
    for (size_t i = 0; i < DS_LEN(end) && r->t->eot < 0; i++)
        r->t->eot = id_of_text(r, end[i]);
    const struct json_node *post = json_get(root, "post_processor"),
                           *list = json_get(post, "processors");
    for (size_t i = 0; i < json_len(list); i++)
        if (strcmp(type_of(json_at(list, i)), "TemplateProcessing") == 0)
            post = json_at(list, i);
    const struct json_node *single = json_get(post, "single"),
                           *first = json_get(json_at(single, 0), "SpecialToken");
    size_t parts = json_len(single);
    const char *after =
        parts < 2
            ? NULL
            : json_str(json_get(json_get(json_at(single, parts - 1), "SpecialToken"), "id"), NULL);
    const char *bos = json_str(json_get(first, "id"), NULL);
    const struct json_node *model = json_get(root, "model");
    const char *eos = json_str(json_get(model, TOKENIZER_EOS), NULL);
    if (!bos)
        bos = json_str(json_get(model, TOKENIZER_BOS), NULL);
    if (bos)
        r->t->bos = id_of_text(r, bos);
    if (after)
        r->t->after = id_of_text(r, after);
    if (eos && r->t->eot < 0)
        r->t->eot = id_of_text(r, eos);
}

/* Words that are tokens of the vocabulary; added tokens outside it are not found as words. */
static int index_whole(struct reader *r, struct err *e)
{
    struct bpe *b = r->t->bpe;
    for (size_t i = 0; !b->chars && b->ignore_merges && i < r->id_of.cap; i++) {
        const struct map_slot *s = &r->id_of.slot[i];
        if (!s->key || tokenizer_is_special(r->t, (int32_t)s->value) ||
            !bpe_printable_bytes(&r->scratch, s->key, s->len))
            continue;
        if (r->scratch.failed ||
            map_set(&b->whole, str_text(&r->scratch), r->scratch.len, s->value) < 0)
            return err_set(e, DS_EMEM, "out of memory for the vocabulary");
    }
    return 0;
}

/* The plain byte tokenizer, as tokenizer_save writes it. */
static int is_plain_bytes(const struct tokenizer *t)
{
    if (t->bpe->merges || t->bpe->pre.n || t->bpe->pre.add_prefix_space || t->vocab != 257 ||
        t->eot != 256)
        return 0;
    for (int i = 0; i < 256; i++)
        if (t->bpe->byte_id[i] != i)
            return 0;
    return !t->norm.n && !t->bpe->chars && t->n_added == 1 && t->added[0].special;
}

/* --- the whole
 * ------------------------------------------------------------------------------------------ */

/* An option that is absent, null, false or empty changes nothing. */
static int check_options(const struct json_node *model, struct err *e)
{
    static const char *const known[] = {"type",        "vocab",
                                        "merges",      "dropout",
                                        "unk_token",   "continuing_subword_prefix",
                                        "fuse_unk",    "end_of_word_suffix",
                                        "unk_id",      "byte_fallback",
                                        "merge_ranks", "ignore_merges",
                                        "single",      TOKENIZER_BY_LENGTH,
                                        "unk_score",   TOKENIZER_BOS,
                                        "unmatched",   TOKENIZER_EOS,
                                        "unused"};
    const char *key;
    void *at = NULL;
    for (const struct json_node *v; (v = json_next(model, &at, &key, NULL)) != NULL;) {
        size_t i = 0, len = 0;
        while (i < DS_LEN(known) && strcmp(key, known[i]) != 0)
            i++;
        int off = json_kind_of(v) == JSON_KIND_NULL ||
                  (json_kind_of(v) == JSON_KIND_BOOL && !json_bool(v, 0)) ||
                  (json_str(v, &len) && len == 0);
        if (i == DS_LEN(known) && !off)
            return tokenizer_refuse(e, "model option", key);
    }
    return 0;
}

/* What surrounds a text: one token before it and one after it. */
static int check_post(const struct json_node *post, int depth, struct err *e)
{
    const char *type = type_of(post);
    const struct json_node *list = json_get(post, "processors"), *single = json_get(post, "single");
    int rc = 0;
    if (json_kind_of(post) == JSON_KIND_NULL || strcmp(type, "ByteLevel") == 0)
        return 0;
    if (strcmp(type, "Sequence") == 0 && depth == 0) {
        for (size_t i = 0; rc >= 0 && i < json_len(list); i++)
            rc = check_post(json_at(list, i), 1, e);
        return rc;
    }
    if (strcmp(type, "TemplateProcessing") != 0)
        return tokenizer_refuse(e, "post-processor", type);
    if (json_get(json_at(single, 0), "SpecialToken") &&
        json_get(json_at(single, 1), "SpecialToken"))
        return tokenizer_refuse(e, "post-processor", "more than one token before a text");
    return 0;
}

static int read_parts(struct reader *r, const struct json_node *root, struct err *e)
{
    const struct json_node *added = json_get(root, "added_tokens");
    int rc = check_options(json_get(root, "model"), e);
    if (rc >= 0)
        rc = check_post(json_get(root, "post_processor"), 0, e);
    if (rc >= 0)
        rc = tokenizer_read_steps(r->t, root, e);
    if (rc >= 0)
        rc = read_model(r, json_get(root, "model"), e);
    if (rc >= 0 && r->t->bpe->chars)
        bpe_chars_ready(r->t->bpe, r->t->metaspace.on, r->t->metaspace.split);
    for (size_t i = 0; rc >= 0 && i < json_len(added); i++)
        rc = read_added(r, json_at(added, i), e);
    if (rc >= 0)
        find_ends(r, root);
    return rc < 0 ? rc : index_whole(r, e);
}

static int read_root(struct reader *r, const struct json_node *root, struct err *e)
{
    const struct json_node *model = json_get(root, "model"), *vocab = json_get(model, "vocab");
    const char *type = json_str(json_get(model, "type"), NULL);
    int64_t max = -1;
    int unigram = type && strcmp(type, "Unigram") == 0;
    /* Files from 2019 have no type; BPE is recognised by its merges. */
    if (!unigram && (type ? strcmp(type, "BPE") != 0
                          : json_kind_of(json_get(model, "merges")) != JSON_KIND_ARRAY))
        return tokenizer_refuse(e, "tokenizer model", type ? type : "(no type)");
    if (json_kind_of(vocab) != (unigram ? JSON_KIND_ARRAY : JSON_KIND_OBJECT) ||
        json_len(vocab) == 0)
        return err_set(e, DS_EFORMAT, "model: missing vocab");
    int rc = largest_id(vocab, json_get(root, "added_tokens"), &max, e);
    if (rc < 0)
        return rc;
    r->t = tokenizer_new(unigram ? "unigram" : "bpe", (int)max + 1, e);
    if (!r->t)
        return DS_EMEM;
    r->t->bpe = mem_alloc(1, sizeof *r->t->bpe);
    if (!r->t->bpe)
        return err_set(e, DS_EMEM, "out of memory for a tokenizer");
    memset(r->t->bpe->byte_id, 0xff, sizeof r->t->bpe->byte_id);
    r->t->bpe->unk = -1;
    rc = read_parts(r, root, e);
    return rc < 0 ? rc : tokenizer_ready(r->t, e);
}

int tokenizer_load_json(struct tokenizer **out, const char *p, size_t n, const char *what,
                        struct err *e)
{
    struct json *doc = NULL;
    struct reader r = {.what = what};
    int rc = json_parse(&doc, p, n, what, e);
    if (rc < 0)
        return rc;
    rc = read_root(&r, json_root(doc), e);
    if (rc >= 0) {
        str_add_bytes(&r.t->source, p, n);
        rc = r.t->source.failed ? err_set(e, DS_EMEM, "out of memory for the tokenizer's text") : 0;
    }
    if (rc < 0) {
        tokenizer_free(r.t);
        err_add(e, rc, "%s", what);
    } else {
        r.t->kind = is_plain_bytes(r.t) ? "bytes" : r.t->kind;
        *out = r.t;
    }
    map_release(&r.id_of);
    str_release(&r.scratch);
    json_free(doc);
    return rc;
}
