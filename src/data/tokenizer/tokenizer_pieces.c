/* Converts pieces with scores to a tokenizer.json, of a unigram model or of BPE.  Such formats have no merge list: any two
 * neighbours whose concatenation is a piece may merge.  So every split of a piece into two pieces
 * is a merge, and merges of equal score share a rank: among them the leftmost pair goes first. */
#include "data/tokenizer/pieces.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/map.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "data/tokenizer/bpe.h"

struct writer {
    struct str out, ranks;
    struct map id_of;
    const struct token_part *p;
    const struct piece_style *style;
    size_t n, merges, rank;
    float last; /* score of the latest merge */
};

static void add_text(struct writer *w, const char *s, size_t n)
{
    struct str text = {0};
    if (!w->style->byte_level) {
        str_add_json(&w->out, s, n);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        char utf8[4];
        int len = utf8_encode(utf8, bpe_byte_rune((unsigned char)s[i]));
        str_add_bytes(&text, utf8, (size_t)len);
    }
    str_add_json(&w->out, str_text(&text), text.len);
    w->out.failed |= text.failed;
    str_release(&text);
}

static int check_piece(const struct writer *w, size_t i, struct err *e)
{
    const struct token_part *p = &w->p[i];
    if (p->n == 0 || p->n > PIECE_BYTES)
        return err_set(e, DS_EFORMAT, "piece %zu has %zu bytes, expected 1 to %d", i, p->n,
                       PIECE_BYTES);
    if (!isfinite(p->score))
        return err_set(e, DS_EFORMAT, "piece %zu: score must be finite", i);
    if (!w->style->byte_level && utf8_valid(p->text, p->n) < p->n)
        return err_set(e, DS_EFORMAT, "piece %zu is not UTF-8", i);
    if (p->type == TOKEN_BYTE && bpe_fallback_byte(p->text, p->n) < 0)
        return err_set(e, DS_EFORMAT, "piece %zu: expected a byte like <0x0A>, not \"%.*s\"", i,
                       (int)p->n, p->text);
    return 0;
}

static const struct token_part *unknown(const struct writer *w)
{
    for (size_t i = 0; i < w->n; i++)
        if (w->p[i].type == TOKEN_UNKNOWN)
            return &w->p[i];
    return NULL;
}

/* The least and greatest scores of normal pieces. */
static void find_scores(const struct writer *w, float *least, float *most)
{
    *least = INFINITY;
    *most = -INFINITY;
    for (size_t i = 0; i < w->n; i++)
        if (w->p[i].type == TOKEN_NORMAL) {
            *least = fminf(*least, w->p[i].score);
            *most = fmaxf(*most, w->p[i].score);
        }
    if (*least > *most)
        *least = *most = 0; /* no normal piece */
}

/* SentencePiece raises its user-defined pieces above all others of their length; llama.cpp has
 * matched them before. */
static double score_of(const struct writer *w, const struct token_part *p, float most)
{
    if (w->style->scores == SCORES_SPM && p->type == TOKEN_USER_DEFINED)
        return (double)((float)p->n * most) - 0.1;
    return p->type == TOKEN_USER_DEFINED ? 0 : (double)p->score;
}

static int is_matched(const struct writer *w, const struct token_part *p)
{
    return p->type == TOKEN_NORMAL || p->type == TOKEN_USER_DEFINED ||
           (p->type == TOKEN_UNUSED && w->style->scores == SCORES_LLAMA_CPP);
}

static int check_new(struct writer *w, size_t i, struct err *e)
{
    const struct token_part *p = &w->p[i];
    int64_t other;
    int rc = check_piece(w, i, e);
    if (rc < 0)
        return rc;
    if (map_get(&w->id_of, p->text, p->n, &other))
        return err_set(e, DS_EFORMAT, "duplicate pieces %lld and %zu", (long long)other, i);
    return map_set(&w->id_of, p->text, p->n, (int64_t)i) < 0
               ? err_set(e, DS_EMEM, "out of memory for %zu pieces", w->n)
               : 0;
}

/* The model of a tokenizer.json: scores so exact that they are read back unchanged. */
static int write_unigram(struct writer *w, struct err *e)
{
    const struct token_part *unk = unknown(w);
    float least, most;
    int rc = 0, first = 1;
    find_scores(w, &least, &most);
    str_addf(&w->out,
             "\"type\":\"Unigram\",\"byte_fallback\":%s,\"single\":%s,\"unk_score\":%.17g,",
             w->style->byte_fallback ? "true" : "false",
             w->style->scores == SCORES_SPM ? "true" : "false", (double)(least - 10));
    if (unk)
        str_addf(&w->out, "\"unk_id\":%zu,", (size_t)(unk - w->p));
    pieces_add_eos(&w->out, w->style->eos);
    str_add(&w->out, w->style->raw_user ? "\"" TOKENIZER_BY_LENGTH "\":true," : "");
    str_add(&w->out, "\"vocab\":[");
    for (size_t i = 0; rc >= 0 && i < w->n; i++) {
        rc = check_new(w, i, e);
        str_add(&w->out, i ? ",[" : "[");
        if (rc >= 0)
            add_text(w, w->p[i].text, w->p[i].n);
        str_addf(&w->out, ",%.17g]", score_of(w, &w->p[i], most));
    }
    str_add(&w->out, "],\"unmatched\":[");
    for (size_t i = 0; i < w->n; i++)
        if (!is_matched(w, &w->p[i])) {
            str_addf(&w->out, first ? "%zu" : ",%zu", i);
            first = 0;
        }
    str_add(&w->out, "]}}");
    return rc;
}

static int add_vocab(struct writer *w, struct err *e)
{
    for (size_t i = 0; i < w->n; i++) {
        const struct token_part *p = &w->p[i];
        int rc = check_new(w, i, e);
        if (rc < 0)
            return rc;
        if (i)
            str_add_char(&w->out, ',');
        add_text(w, p->text, p->n);
        str_addf(&w->out, ":%zu", i + (size_t)w->style->first_id);
    }
    return 0;
}

/* Unused pieces are merged like others, and split again at the end. */
static int may_merge(const struct token_part *p)
{
    return p->type == TOKEN_NORMAL || p->type == TOKEN_USER_DEFINED || p->type == TOKEN_UNUSED;
}

static int is_part(const struct writer *w, const char *s, size_t n)
{
    int64_t id;
    return map_get(&w->id_of, s, n, &id) && may_merge(&w->p[id]);
}

static int add_cuts(struct writer *w, const struct token_part *p, struct err *e)
{
    for (size_t k = 1; k < p->n; k++) {
        if (!is_part(w, p->text, k) || !is_part(w, p->text + k, p->n - k))
            continue;
        if (w->merges == BPE_MERGES_MAX)
            return err_set(e, DS_ERANGE, "too many merges: must be at most %d", BPE_MERGES_MAX);
        if (w->merges == 0 || p->score != w->last)
            w->rank = w->merges;
        w->last = p->score;
        str_add(&w->out, w->merges ? ",[" : "[");
        add_text(w, p->text, k);
        str_add_char(&w->out, ',');
        add_text(w, p->text + k, p->n - k);
        str_add_char(&w->out, ']');
        str_addf(&w->ranks, "%s%zu", w->merges ? "," : "", w->rank);
        w->merges++;
    }
    return 0;
}

static int by_score(const void *x, const void *y)
{
    const struct token_part *a = *(const struct token_part *const *)x,
                            *b = *(const struct token_part *const *)y;
    if (a->score != b->score)
        return a->score < b->score ? 1 : -1;
    return (a > b) - (a < b);
}

static int add_merges(struct writer *w, struct err *e)
{
    const struct token_part **order = mem_alloc(w->n, sizeof *order);
    if (!order)
        return err_set(e, DS_EMEM, "out of memory for %zu pieces", w->n);
    for (size_t i = 0; i < w->n; i++)
        order[i] = &w->p[i];
    qsort(order, w->n, sizeof *order, by_score);
    int rc = 0;
    for (size_t i = 0; rc >= 0 && i < w->n; i++)
        if (may_merge(order[i]))
            rc = add_cuts(w, order[i], e);
    mem_free(order);
    return rc;
}

/* Would nothing be left of the piece after a normalizer that trims?  Hugging Face's tokenizers,
 * which normalise such pieces too, would then fail on every text. */
static int is_trimmed(const struct writer *w, const struct token_part *p)
{
    size_t at = 0, len;
    while (at < p->n && (tokenizer_is_space(p->text + at, p->n - at, &len) ||
                         (len == 1 && (unsigned char)p->text[at] < 32) ||
                         (p->n - at >= 3 && memcmp(p->text + at, PIECES_BLOCK, 3) == 0)))
        at += len;
    return at == p->n && w->style->normalizer && strstr(w->style->normalizer, "\\\\z");
}

/* SentencePiece matches user-defined pieces after spaces have become marks; llama.cpp matches them
 * in the raw text first. */
static void add_added(struct writer *w)
{
    int first = 1;
    for (size_t i = 0; i < w->n; i++) {
        int user = w->p[i].type == TOKEN_USER_DEFINED;
        if (!user && w->p[i].type != TOKEN_CONTROL && w->p[i].type != TOKEN_UNKNOWN)
            continue;
        str_addf(&w->out, "%s{\"id\":%zu,\"content\":", first ? "" : ",", i);
        str_add_json(&w->out, w->p[i].text, w->p[i].n);
        str_addf(&w->out, ",\"single_word\":false,\"lstrip\":false,\"rstrip\":false,%s}",
                 !user                ? "\"normalized\":false,\"special\":true"
                 : w->style->raw_user ? "\"normalized\":false,\"special\":false"
                 : is_trimmed(w, &w->p[i])
                     ? "\"normalized\":false,\"as_piece\":true,\"special\":false"
                     : "\"normalized\":true,\"as_piece\":true,\"special\":false");
        first = 0;
    }
    if (w->style->added)
        str_add(&w->out, w->style->added + (first && *w->style->added));
}

static void add_end(struct str *out, const struct piece_end *x, int type, const char *comma)
{
    if (!x->text)
        return;
    str_addf(out, "%s{\"SpecialToken\":{\"id\":", comma);
    str_add_json(out, x->text, x->n);
    str_addf(out, ",\"type_id\":%d}}", type);
}

static void add_end_ids(struct str *out, const struct piece_end *x, const char *comma)
{
    if (!x->text)
        return;
    str_add(out, comma);
    str_add_json(out, x->text, x->n);
    str_add(out, ":{\"id\":");
    str_add_json(out, x->text, x->n);
    str_addf(out, ",\"ids\":[%d],\"tokens\":[", x->id);
    str_add_json(out, x->text, x->n);
    str_add(out, "]}");
}

void pieces_add_post(struct str *out, struct piece_end bos, struct piece_end eos)
{
    str_add(out, "\"post_processor\":");
    if (!bos.text && !eos.text) {
        str_add(out, "null,");
        return;
    }
    str_add(out, "{\"type\":\"TemplateProcessing\",");
    for (int pair = 0; pair < 2; pair++) {
        str_add(out, pair ? "\"pair\":[" : "\"single\":[");
        for (int i = 0; i <= pair; i++) {
            add_end(out, &bos, i, i ? "," : "");
            str_addf(out, "%s{\"Sequence\":{\"id\":\"%c\",\"type_id\":%d}}",
                     i || bos.text ? "," : "", 'A' + i, i);
            add_end(out, &eos, i, ",");
        }
        str_add(out, "],");
    }
    str_add(out, "\"special_tokens\":{");
    add_end_ids(out, &bos, "");
    if (!bos.text || eos.id != bos.id)
        add_end_ids(out, &eos, bos.text ? "," : "");
    str_add(out, "}},");
}

static void add_unused(struct writer *w)
{
    int first = 1;
    for (size_t i = 0; i < w->n; i++)
        if (w->p[i].type == TOKEN_UNUSED) {
            str_addf(&w->out, first ? ",\"unused\":[%zu" : ",%zu", i);
            first = 0;
        }
    str_add(&w->out, first ? "" : "]");
}

void pieces_add_eos(struct str *out, const struct token_part *eos)
{
    if (!eos)
        return;
    str_add(out, "\"" TOKENIZER_EOS "\":");
    str_add_json(out, eos->text, eos->n);
    str_add_char(out, ',');
}

static int write_document(struct writer *w, struct err *e)
{
    const struct piece_style *y = w->style;
    const struct token_part *unk = unknown(w);
    str_add(&w->out, "{\"version\":\"1.0\",\"truncation\":null,\"padding\":null,"
                     "\"added_tokens\":[");
    add_added(w);
    str_addf(&w->out, "],\"normalizer\":%s,\"pre_tokenizer\":%s,",
             y->normalizer ? y->normalizer : "null", y->pre_tokenizer ? y->pre_tokenizer : "null");
    struct piece_end eos = {0}, bos = {y->bos, y->bos ? strlen(y->bos) : 0, y->bos_id};
    if (y->eos && y->add_eos)
        eos = (struct piece_end){y->eos->text, y->eos->n, y->eos_id};
    pieces_add_post(&w->out, bos, eos);
    str_addf(&w->out, "\"decoder\":%s,\"model\":{", y->decoder);
    if (y->scores != SCORES_MERGE) {
        int rc = write_unigram(w, e);
        return rc < 0 || !w->out.failed ? rc
                                        : err_set(e, DS_EMEM, "out of memory for %zu pieces", w->n);
    }
    str_add(&w->out, "\"type\":\"BPE\",\"dropout\":null,\"unk_token\":");
    if (unk)
        str_add_json(&w->out, unk->text, unk->n);
    else
        str_add(&w->out, "null");
    str_addf(&w->out, ",\"fuse_unk\":true,\"byte_fallback\":%s,\"ignore_merges\":%s,",
             y->byte_fallback ? "true" : "false", y->ignore_merges ? "true" : "false");
    pieces_add_eos(&w->out, y->eos);
    str_add(&w->out, y->raw_user ? "\"" TOKENIZER_BY_LENGTH "\":true," : "");
    str_add(&w->out, "\"vocab\":{");
    int rc = add_vocab(w, e);
    str_add(&w->out, "},\"merges\":[");
    if (rc >= 0)
        rc = add_merges(w, e);
    str_addf(&w->out, "],\"merge_ranks\":[%s]", str_text(&w->ranks));
    add_unused(w);
    str_add(&w->out, "}}");
    if (rc >= 0 && (w->out.failed || w->ranks.failed))
        rc = err_set(e, DS_EMEM, "out of memory for %zu pieces", w->n);
    return rc;
}

int pieces_load(struct tokenizer **out, const struct token_part *p, size_t n,
                const struct piece_style *style, const char *what, struct err *e)
{
    struct writer w = {.p = p, .n = n, .style = style};
    int rc = n == 0 ? err_set(e, DS_EFORMAT, "empty vocabulary") : write_document(&w, e);
    if (rc < 0)
        err_add(e, rc, "%s", what);
    else
        rc = tokenizer_load_json(out, w.out.p, w.out.len, what, e);
    map_release(&w.id_of);
    str_release(&w.out);
    str_release(&w.ranks);
    return rc;
}
