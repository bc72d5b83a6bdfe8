/* Generates documents with known required depth.  It knows neither tokenizers nor windows. */
#include "data/hops.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "data/hops_document.h"
#include "data/synth.h"

#define AT(field) offsetof(struct hops_options, field)
static const struct opt hops_opts[] = {
    // clang-format off
    {"n", OPT_INT, AT(n), "6", 6, 64, NULL, "nodes", NULL},
    {"relations", OPT_INT, AT(relations), "2", 1, 8, NULL, "random permutations of the nodes (R)", NULL},
    {"k", OPT_INT, AT(k), "4", 1, HOPS_K_MAX, NULL, "most hops of a query (K)", NULL},
    {"only", OPT_INT, AT(only), "0", 0, HOPS_K_MAX, NULL, "all queries have this many hops; 0 = uniform in 1..k", NULL},
    {"queries", OPT_INT, AT(queries), "8", 1, 1024, NULL, "queries per document", NULL},
    {"order", OPT_ENUM, AT(order), "canonical", 0, 0, "canonical|random", "order of the edges: by relation and source, or random", NULL},
    {"operators", OPT_ENUM, AT(operators), "folded", 0, 0, "folded|step", "folded: a query is one token; step: a start token, then one token per operator", NULL},
    {"isolate", OPT_BOOL, AT(isolate), "true", 0, 0, NULL, "queries and their answers are not visible to other queries", NULL},
    {"filler", OPT_INT, AT(filler), "0", 0, 1024, NULL, "bytes of story text before each query", NULL},
    // clang-format on
};
const struct opt_group hops_group = {
    .prefix = "hops.", .title = "hops", .opts = hops_opts, .n = DS_LEN(hops_opts)};
#undef AT

/* Words of a query or operator: operator strings of 1..k letters per node when folded. */
static int64_t query_words(const struct hops_options *o)
{
    int64_t strings = 0, power = 1;
    for (int64_t k = 1; k <= o->k; k++) {
        power *= o->relations;
        strings += power;
    }
    return o->operators == HOPS_FOLDED ? o->n * strings : o->n * o->k + o->relations;
}

int64_t hops_words(const struct hops_options *o)
{
    return o->relations * o->n * o->n + o->n + query_words(o);
}

int64_t hops_tokens(const struct hops_options *o)
{
    int64_t most = o->only ? o->only : o->k;
    return o->relations * o->n + o->queries * (2 + (o->operators == HOPS_STEP ? most : 0)) + 1;
}

int hops_check(const struct hops_options *o, struct err *e)
{
    if (o->only > o->k)
        return err_set(e, DS_ERANGE, "hops.only=%lld: must be at most hops.k=%lld",
                       (long long)o->only, (long long)o->k);
    if (hops_words(o) > HOPS_WORDS_MAX)
        return err_set(e, DS_ERANGE,
                       "hops: a vocabulary of %lld words: must be at most %d; set "
                       "hops.operators=step or lower hops.k",
                       (long long)hops_words(o), HOPS_WORDS_MAX);
    return 0;
}

/* ---- words ---- */

static void add_edge(struct str *out, int64_t r, int64_t from, int64_t to)
{
    str_addf(out, "%c%d>%d;", (char)('A' + r), (int)from, (int)to);
}

static void add_answer(struct str *out, int64_t node)
{
    str_addf(out, "=%d.", (int)node);
}

/* A whole query of k operators, or (step) its first token. */
static void add_query(struct str *out, const struct hops_options *o, int64_t from, const int *op,
                      int64_t k)
{
    str_addf(out, "?%d", (int)from);
    if (o->operators == HOPS_STEP)
        str_addf(out, "*%d", (int)k);
    for (int64_t i = 0; i < k && o->operators == HOPS_FOLDED; i++)
        str_add_char(out, (char)('A' + op[i]));
    str_add_char(out, ':');
}

static void add_operator(struct str *out, int64_t op)
{
    str_addf(out, "+%c,", (char)('A' + op));
}

static void folded_word(const struct hops_options *o, int64_t i, struct str *out)
{
    int64_t from = i % o->n, string = i / o->n, k = 1, power = o->relations;
    int op[HOPS_K_MAX];
    for (; string >= power; k++, power *= o->relations)
        string -= power;
    for (int64_t at = k - 1; at >= 0; at--, string /= o->relations)
        op[at] = (int)(string % o->relations);
    add_query(out, o, from, op, k);
}

void hops_word(const struct hops_options *o, int64_t i, struct str *out)
{
    int64_t n = o->n, edges = o->relations * n * n;
    if (i < edges) {
        add_edge(out, i / (n * n), i / n % n, i % n);
        return;
    }
    i -= edges;
    if (i < n)
        add_answer(out, i);
    else if (o->operators == HOPS_FOLDED)
        folded_word(o, i - n, out);
    else if (i - n < n * o->k)
        add_query(out, o, (i - n) % n, NULL, (i - n) / n + 1);
    else
        add_operator(out, i - n - n * o->k);
}

/* ---- documents ---- */

enum { NODES_MAX = 64, RELATIONS_MAX = 8 };

struct maker {
    struct hops_document *d;
    const struct hops_options *o;
    struct rng rng;
    int to[RELATIONS_MAX][NODES_MAX];
    size_t from;   /* where the word being written begins */
    double carry;  /* entropy of a story's end, paid by the next word */
    uint64_t seed; /* of the stories */
};

/* Room for the entropies of the text written so far, and one more. */
static int reserve_bits(struct hops_document *d)
{
    void *p = d->bits;
    int rc =
        d->text.failed ? DS_EMEM : mem_grow(&p, &d->bits_cap, d->text.len + 1, sizeof *d->bits);
    d->bits = p;
    return rc;
}

static int add_span(struct hops_document *d, size_t len, struct span s)
{
    void *p = d->span;
    if (mem_grow(&p, &d->span_cap, d->spans + 1, sizeof *d->span) < 0)
        return DS_EMEM;
    s.len = (uint32_t)len;
    d->span = p;
    d->span[d->spans++] = s;
    return 0;
}

/* Ends the word written since the last one. */
static int end_word(struct maker *m, double entropy, struct span s)
{
    struct hops_document *d = m->d;
    size_t len = d->text.len - m->from;
    int rc = reserve_bits(d);
    if (rc == 0)
        rc = add_span(d, len, s);
    if (rc < 0)
        return rc;
    memset(d->bits + m->from, 0, (len + 1) * sizeof *d->bits);
    d->bits[m->from] = (float)(entropy + m->carry);
    m->carry = 0;
    m->from = d->text.len;
    return 0;
}

/* Fisher and Yates. */
static void shuffle(struct rng *r, int *v, int n)
{
    for (int i = 0; i < n; i++)
        v[i] = i;
    for (int i = n - 1; i > 0; i--) {
        int j = (int)rng_below(r, (uint32_t)i + 1), x = v[i];
        v[i] = v[j];
        v[j] = x;
    }
}

static int add_edges(struct maker *m)
{
    int n = (int)m->o->n, R = (int)m->o->relations, all = n * R, rc = 0;
    int order[RELATIONS_MAX * NODES_MAX], left[RELATIONS_MAX];
    for (int r = 0; r < R; r++) {
        shuffle(&m->rng, m->to[r], n);
        left[r] = n;
    }
    if (m->o->order == HOPS_RANDOM)
        shuffle(&m->rng, order, all);
    for (int i = 0; i < all && rc == 0; i++) {
        int edge = m->o->order == HOPS_RANDOM ? order[i] : i, r = edge / n, from = edge % n;
        double entropy = 0;
        for (int q = 0; q < R && m->o->order == HOPS_RANDOM; q++)
            entropy += left[q] ? left[q] * log(left[q]) / (all - i) : 0;
        entropy += m->o->order == HOPS_RANDOM ? log(all - i) : log(left[r]);
        left[r]--;
        add_edge(&m->d->text, r, from, m->to[r][from]);
        rc = end_word(m, entropy, (struct span){.kind = SPAN_EDGE});
    }
    return rc;
}

static int add_one_query(struct maker *m, int number)
{
    const struct hops_options *o = m->o;
    struct str *text = &m->d->text;
    int op[HOPS_K_MAX], from = (int)rng_below(&m->rng, (uint32_t)o->n), at = from, rc;
    int k = o->only ? (int)o->only : 1 + (int)rng_below(&m->rng, (uint32_t)o->k);
    double mean_k = o->only ? (double)o->only : ((double)o->k + 1) / 2,
           ln_r = log((double)o->relations);
    struct span s = {.kind = SPAN_QUERY, .hidden = (uint16_t)(o->isolate ? number + 1 : 0)};
    for (int i = 0; i < k; i++) {
        op[i] = (int)rng_below(&m->rng, (uint32_t)o->relations);
        at = m->to[op[i]][at];
    }
    add_query(text, o, from, op, k);
    rc = end_word(m,
                  log((double)o->n) + (o->only ? 0 : log((double)o->k)) +
                      (o->operators == HOPS_FOLDED ? mean_k * ln_r : 0),
                  s);
    for (int i = 0; i < k && o->operators == HOPS_STEP && rc == 0; i++) {
        add_operator(text, op[i]);
        rc = end_word(m, ln_r, s);
    }
    s.kind = SPAN_ANSWER;
    s.needed = (uint8_t)k;
    add_answer(text, at);
    return rc == 0 ? end_word(m, 0, s) : rc;
}

/* The beginning of a story; the end of a shorter one is uncertain too, which the next word pays. */
static int add_filler(struct maker *m, const struct grammar *stories, uint64_t number,
                      struct err *e)
{
    struct hops_document *d = m->d;
    struct str story = {0};
    float *entropy = NULL;
    int rc = synth_story_of(stories, m->seed, number, &story, &entropy, NULL, e);
    if (rc >= 0) {
        size_t most = (size_t)m->o->filler, n = story.len < most ? story.len : most;
        str_add_bytes(&d->text, story.p, n);
        if (reserve_bits(d) < 0 || add_span(d, n, (struct span){.kind = SPAN_FILLER}) < 0) {
            rc = err_set(e, DS_EMEM, "out of memory for a document");
        } else {
            memcpy(d->bits + m->from, entropy, n * sizeof *entropy);
            m->carry = n < most ? (double)entropy[n] : 0;
            m->from = d->text.len;
        }
    }
    str_release(&story);
    mem_free(entropy);
    return rc < 0 ? rc : 0;
}

int hops_document(struct hops_document *d, const struct hops_options *o,
                  const struct grammar *stories, uint64_t seed, uint64_t index, struct err *e)
{
    /* stories of their own: not those that data.path=synth gives at this seed */
    struct maker m = {.d = d, .o = o, .seed = seed ^ (uint64_t)RNG_HOPS << 32};
    rng_init(&m.rng, seed, RNG_HOPS, index, (uint32_t)(index >> 32));
    str_reset(&d->text);
    d->spans = 0;
    int rc = add_edges(&m);
    for (int q = 0; q < o->queries && rc == 0; q++) {
        rc = stories ? add_filler(&m, stories, index * (uint64_t)o->queries + (uint64_t)q, e) : 0;
        if (rc < 0)
            return rc;
        rc = add_one_query(&m, q);
    }
    return rc < 0 ? err_set(e, rc, "out of memory for a document") : 0;
}

void hops_document_release(struct hops_document *d)
{
    str_release(&d->text);
    mem_free(d->bits);
    mem_free(d->span);
    *d = (struct hops_document){0};
}
