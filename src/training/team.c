/* The ranks of a run: agreement, comparison, orders and reports. */
#include "training/team.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/process.h"
#include "base/ranks.h"
#include "engine/gemm.h"
#include "models/measure.h"
#include "training/pieces.h"
#include "training/trainer.h"

int team_follows(void)
{
    return ranks_rank() > 0;
}

struct agreement {
    int rc;
    char text[ERR_TEXT_MAX];
};

/* Rank 0 speaks for all where it failed as well, as with a setting that is refused. */
static int first_failure(const struct agreement *all, struct err *e)
{
    char name[RANKS_HOST + 32];
    for (int r = 0; r < ranks_size(); r++)
        if (all[r].rc < 0) {
            ranks_name(r, name, sizeof name);
            return err_set(e, all[r].rc, "%s%s%s", r > 0 ? name : "", r > 0 ? ": " : "",
                           all[r].text);
        }
    return 0;
}

int team_agree(int rc, struct err *e)
{
    struct agreement mine = {.rc = rc}, *all;
    struct err why = {0};
    if (ranks_size() == 1)
        return rc;
    if (rc < 0)
        str_copy(mine.text, sizeof mine.text, e ? e->text : err_name(rc));
    all = mem_alloc((size_t)ranks_size(), sizeof *all);
    if (!all)
        fatal("rank %d on %s: out of memory for %d ranks", ranks_rank(), ranks_host(ranks_rank()),
              ranks_size());
    int failed = ranks_gather(all, &mine, sizeof mine, &why);
    if (failed < 0)
        rc = err_set(e, failed, "%s", why.text);
    else
        rc = first_failure(all, e);
    mem_free(all);
    return rc;
}

int team_share(void *p, size_t bytes, int rc, struct err *e)
{
    rc = team_agree(rc, e);
    return rc == 0 ? ranks_broadcast(p, bytes, 0, e) : rc;
}

/* ---- pieces ---- */

enum { PIECES_USUAL = 8 };

int team_pieces(const struct train_options *o, int ranks)
{
    int64_t n = ranks > PIECES_USUAL ? ranks : PIECES_USUAL;
    if (o->pieces > 0 || ranks == 1 || o->reduce == REDUCE_FAST)
        return (int)o->pieces;
    return (int)(n < o->batch ? n : o->batch);
}

int team_parts(const struct train_options *o)
{
    if (o->reduce == REDUCE_FAST)
        return ranks_size();
    return o->pieces < 1 ? 1 : (int)o->pieces;
}

int team_check_pieces(const struct train_options *o, int is_resume, struct err *e)
{
    long long n = o->pieces < 1 ? 1 : o->pieces;
    int ranks = ranks_size();
    if (o->reduce == REDUCE_FAST)
        n = ranks > o->batch ? o->batch : ranks;
    if (n > o->batch)
        return err_set(e, DS_ERANGE, "train.pieces=%lld: must be at most train.batch=%lld", n,
                       (long long)o->batch);
    if (ranks > n && is_resume && o->reduce == REDUCE_EXACT)
        return err_set(e, DS_EUSAGE,
                       "%d ranks, but a step of this run has train.pieces=%lld; start at most so "
                       "many, or resume with --allow-change train.pieces=%d, after which sums are "
                       "rounded in another way",
                       ranks, n, ranks);
    if (ranks > n)
        return err_set(e, DS_EUSAGE,
                       "%d ranks, but a step has %lld parts (train.batch=%lld, train.pieces=%lld); "
                       "start at most so many ranks",
                       ranks, n, (long long)o->batch, (long long)o->pieces);
    return 0;
}

/* ---- comparison ---- */

struct print {
    uint64_t program, config, corpus, tokenizer, weights, numbers;
    char version[32], kernels[32];
};

static void add_key(void *ctx, const char *key, const char *value)
{
    if (strcmp(key, "threads") != 0) /* does not change a bit, and hosts may differ */
        str_addf(ctx, "%s=%s\n", key, value);
}

static uint64_t hash_program(void)
{
    char path[1100], hex[65] = "";
    if (!process_path(path, sizeof path) || sha256_file(path, hex, NULL) < 0)
        return 0;
    return hash64(hex, sizeof hex - 1, 0);
}

static uint64_t hash_weights(const struct params *ps)
{
    uint64_t h = 0;
    for (int i = 0; i < ps->n; i++) {
        const struct param *p = &ps->p[i];
        if (p->value)
            h = hash64(p->value, p->n * sizeof *p->value, h);
        if (p->m)
            h = hash64(p->v, p->n * sizeof *p->v, hash64(p->m, p->n * sizeof *p->m, h));
    }
    return h;
}

/* Gradients of a dense pass of this model over a made-up text, which every kernel that training
 * uses has a part in; and a step of the optimiser. */
static uint64_t hash_numbers(struct trainer *t)
{
    enum { TOKENS = 48 };
    struct model *m = t->model;
    const real *exits = m->exit_weight;
    int T = (int)(t->config.train.seq < TOKENS ? t->config.train.seq : TOKENS);
    uint64_t h = 0;
    for (int i = 0; i < T; i++) {
        t->input[i] = (int32_t)((i * 7 + i / 5) % m->config.vocab);
        t->target[i] = m->out_id ? m->out_id[i % m->n_out] : (int32_t)((i * 11) % m->config.vocab);
    }
    struct batch b = {.B = 1, .T = T, .id = t->input, .target = t->target};
    struct pass pass = {.kind = PASS_DENSE};
    m->exit_weight = NULL;
    model_forward(m, &b, &pass);
    double loss = model_loss(m, 1, 0);
    model_backward(m);
    m->batch = NULL;
    m->exit_weight = exits;
    h = hash64(&loss, sizeof loss, h);
    for (int i = 0; i < m->params.n; i++)
        if (m->params.p[i].grad)
            h = hash64(m->params.p[i].grad, m->params.p[i].n * sizeof(real), h);
    struct grad_health health = params_grad_health(&m->params);
    h = hash64(&health.norm, sizeof health.norm, h);
    params_zero_grad(&m->params);
    return h;
}

/* The first setting that differs from those of rank 0. */
static int explain_config(const struct str *mine, const struct str *first, struct err *e)
{
    const char *a = str_text(mine), *b = str_text(first);
    while (*a && *b) {
        size_t n = strcspn(a, "\n"), k = strcspn(b, "\n");
        if (n != k || memcmp(a, b, n) != 0)
            return err_set(e, DS_EUSAGE,
                           "%.*s, but rank 0 has %.*s; start all ranks with the "
                           "same settings",
                           (int)(n < 150 ? n : 150), a, (int)(k < 150 ? k : 150), b);
        a += n + (a[n] == '\n');
        b += k + (b[k] == '\n');
    }
    return err_set(e, DS_EUSAGE, "other settings than rank 0");
}

static int compare_config(const struct str *mine, int differs, struct err *e)
{
    struct str first = {0};
    uint64_t len = mine->len;
    int rc = ranks_broadcast(&len, sizeof len, 0, e);
    char *text = rc == 0 ? mem_alloc((size_t)len + 1, 1) : NULL;
    if (rc == 0 && !text)
        return err_set(e, DS_EMEM, "out of memory for the settings of rank 0");
    if (rc == 0 && !team_follows())
        memcpy(text, str_text(mine), (size_t)len);
    if (rc == 0)
        rc = ranks_broadcast(text, (size_t)len, 0, e);
    if (rc == 0)
        str_add(&first, text);
    int own = rc == 0 && differs ? explain_config(mine, &first, e) : rc;
    str_release(&first);
    mem_free(text);
    return own;
}

static int compare(const struct print *mine, const struct print *first, struct err *e)
{
    if (mine->program != first->program)
        return err_set(e, DS_EUSAGE,
                       "another program than that of rank 0 (version %.31s, rank 0 has %.31s)",
                       mine->version, first->version);
    if (mine->corpus != first->corpus)
        return err_set(e, DS_EUSAGE,
                       "other data than rank 0 (data.path, hash %016" PRIx64
                       ", rank 0 has %016" PRIx64 ")",
                       mine->corpus, first->corpus);
    if (mine->tokenizer != first->tokenizer)
        return err_set(e, DS_EUSAGE,
                       "another tokenizer than rank 0 (hash %016" PRIx64 ", rank 0 has %016" PRIx64
                       ")",
                       mine->tokenizer, first->tokenizer);
    if (mine->weights != first->weights)
        return err_set(e, DS_EUSAGE, "other weights than rank 0 after loading them");
    if (mine->numbers != first->numbers)
        return err_set(e, DS_EUSAGE,
                       "its processor's kernels (%.31s) give other bits than those of rank 0 "
                       "(%.31s); DEPTHSCOPE_CPU and DEPTHSCOPE_GEMM select the same ones on all",
                       mine->kernels, first->kernels);
    return 0;
}

int team_compare(struct trainer *t, struct err *e)
{
    struct str config = {0};
    enum gemm_format format = t->config.run.compute ? GEMM_BF16 : GEMM_FP32;
    if (ranks_size() == 1)
        return 0;
    train_config_for_each(&t->config, add_key, &config);
    struct print mine = {.program = hash_program(),
                         .config = hash64(str_text(&config), config.len, 0),
                         .corpus = corpus_hash(t->corpus),
                         .tokenizer = tokenizer_hash(t->tokenizer),
                         .weights = hash_weights(&t->model->params),
                         .numbers = hash_numbers(t)};
    str_copy(mine.version, sizeof mine.version, t->version ? t->version : "");
    str_copy(mine.kernels, sizeof mine.kernels, gemm_name(gemm_provider(format)));
    struct print first = mine;
    int rc = ranks_broadcast(&first, sizeof first, 0, e);
    int differs = rc == 0 && mine.program == first.program && mine.config != first.config;
    struct err why = {0};
    int own = rc == 0 ? compare_config(&config, differs, &why) : rc;
    if (rc == 0 && own == 0)
        own = compare(&mine, &first, &why);
    if (rc == 0 && config.failed)
        own = err_set(&why, DS_EMEM, "out of memory for the settings");
    str_release(&config);
    if (own < 0 && rc == 0)
        rc = err_set(e, own, "%s", why.text);
    return team_agree(rc, e);
}

int team_share_live(struct trainer *t, struct err *e)
{
    struct live_setting v[LIVE_MAX];
    int n = t->n_live, rc = 0;
    if (ranks_size() == 1)
        return 0;
    memcpy(v, t->live, sizeof v);
    rc = ranks_broadcast(&n, sizeof n, 0, e);
    if (rc == 0)
        rc = ranks_broadcast(v, sizeof v, 0, e);
    for (int i = 0; team_follows() && rc == 0 && i < n; i++)
        rc = trainer_set(t, v[i].key, v[i].value, e);
    if (rc == 0) {
        memcpy(t->live, v, sizeof v);
        t->n_live = n;
    }
    return rc;
}

/* ---- shared evaluation ---- */

static void parts_of(struct ranks_part *part, int rank, const struct measure_span *v, int n)
{
    for (int i = 0; i < n; i++)
        part[i] = (struct ranks_part){rank, v[i].p, v[i].bytes};
}

int team_turn_begin(const struct measure_span *v, int n, struct err *e)
{
    struct ranks_part part[MEASURE_SPANS];
    if (!team_follows())
        return 0;
    parts_of(part, ranks_rank() - 1, v, n);
    return ranks_exchange(NULL, 0, part, n, e);
}

int team_turn_end(const struct measure_span *v, int n, int active, struct err *e)
{
    struct ranks_part part[MEASURE_SPANS];
    if (active == 1)
        return 0;
    parts_of(part, ranks_rank() + 1 < active ? ranks_rank() + 1 : 0, v, n);
    return ranks_exchange(part, n, NULL, 0, e);
}

int team_turn_close(const struct measure_span *v, int n, int active, struct err *e)
{
    struct ranks_part part[MEASURE_SPANS];
    if (active == 1 || team_follows())
        return 0;
    parts_of(part, active - 1, v, n);
    return ranks_exchange(NULL, 0, part, n, e);
}

int team_spread(const struct measure_span *v, int n, struct err *e)
{
    int rc = 0;
    for (int i = 0; rc == 0 && i < n; i++)
        rc = ranks_broadcast(v[i].p, v[i].bytes, 0, e);
    return rc;
}

/* The numbers that a method counts as sums, one after the other. */
struct counts {
    double *v;
    size_t n;
};

static void measure_counts(void *ctx, double *x, size_t n, int is_mean)
{
    struct counts *c = ctx;
    (void)x;
    c->n += is_mean ? 0 : n;
}

static void take_counts(void *ctx, double *x, size_t n, int is_mean)
{
    struct counts *c = ctx;
    for (size_t i = 0; !is_mean && i < n; i++)
        c->v[c->n++] = x[i];
}

static void put_counts(void *ctx, double *x, size_t n, int is_mean)
{
    struct counts *c = ctx;
    for (size_t i = 0; !is_mean && i < n; i++)
        x[i] = c->v[c->n++];
}

int team_join_counts(void *unused, struct route *r, struct err *e)
{
    struct counts c = {0};
    size_t ranks = (size_t)ranks_size();
    (void)unused;
    if (ranks == 1 || !r->ops->counts)
        return 0;
    r->ops->counts(r, measure_counts, &c);
    size_t n = c.n;
    double *all = mem_alloc((ranks + 1) * n + 1, sizeof *all);
    if (!all)
        return err_set(e, DS_EMEM, "out of memory for the counts of %zu ranks", ranks);
    c = (struct counts){all + ranks * n, 0};
    r->ops->counts(r, take_counts, &c);
    int rc = ranks_gather(all, all + ranks * n, n * sizeof *all, e);
    for (size_t k = 1; rc == 0 && k < ranks; k++)
        for (size_t i = 0; i < n; i++)
            all[i] += all[k * n + i];
    c = (struct counts){all, 0};
    if (rc == 0)
        r->ops->counts(r, put_counts, &c);
    mem_free(all);
    return rc;
}

static int append_frames(struct trainer *t, const char *p, size_t n, struct err *e)
{
    int rc = 0;
    while (rc == 0 && n > 0) {
        uint64_t seq;
        struct value body;
        int64_t len = record_parse(p, n, &seq, &body, e);
        if (len <= 0)
            return len < 0 ? (int)len : err_set(e, DS_EFORMAT, "a record of a rank is cut off");
        rc = trainer_append_body(t, body, e);
        p += len;
        n -= (size_t)len;
    }
    return rc;
}

int team_append(struct trainer *t, int has, struct err *e)
{
    struct str mine = {0};
    size_t ranks = (size_t)ranks_size(), sum = 0;
    if (ranks == 1)
        return has ? trainer_append(t, e) : 0;
    size_t *bytes = mem_alloc(ranks, sizeof *bytes);
    int rc = bytes ? 0 : err_set(e, DS_EMEM, "out of memory for %zu ranks", ranks);
    if (rc == 0 && has)
        rc = record_end(t->record, 0, &mine, e);
    if (rc == 0)
        rc = ranks_gather(bytes, &mine.len, sizeof *bytes, e);
    for (size_t r = 0; rc == 0 && r < ranks; r++)
        sum += bytes[r];
    char *all = rc == 0 ? mem_alloc(sum + 1, 1) : NULL;
    if (rc == 0)
        rc = all ? ranks_gather_parts(all, str_text(&mine), bytes, e)
                 : err_set(e, DS_EMEM, "out of memory for the records of %zu ranks", ranks);
    if (rc == 0 && !team_follows())
        rc = append_frames(t, all, sum, e);
    mem_free(all);
    mem_free(bytes);
    str_release(&mine);
    return rc;
}

/* ---- orders ---- */

struct order {
    int32_t order, sets;
    double value[TEAM_SETS];
    char key[TEAM_SETS][64];
};

int team_note_set(struct trainer *t, const char *key, double value, struct err *e)
{
    struct team *x = &t->team;
    if (ranks_size() == 1 || team_follows() || !x->is_running)
        return 0;
    if (x->sets == TEAM_SETS)
        return err_set(e, DS_EBUSY, "%d settings before one step", TEAM_SETS);
    str_copy(x->set[x->sets].key, sizeof x->set[x->sets].key, key);
    x->set[x->sets++].value = value;
    return 0;
}

void team_forget_set(struct trainer *t)
{
    t->team.sets -= t->team.sets > 0;
}

int team_order(struct trainer *t, enum team_order order, struct err *e)
{
    struct order o = {.order = order, .sets = t->team.sets};
    if (ranks_size() == 1)
        return 0;
    for (int i = 0; i < o.sets; i++) {
        o.value[i] = t->team.set[i].value;
        memcpy(o.key[i], t->team.set[i].key, sizeof o.key[i]);
    }
    t->team.sets = 0;
    return ranks_broadcast(&o, sizeof o, 0, e);
}

int team_await(struct trainer *t, enum team_order *order, struct err *e)
{
    struct order o;
    int rc = ranks_broadcast(&o, sizeof o, 0, e);
    for (int i = 0; rc == 0 && i < o.sets; i++)
        rc = trainer_set(t, o.key[i], o.value[i], e);
    if (rc == 0)
        *order = (enum team_order)o.order;
    return rc;
}

/* ---- reports ---- */

int team_report_step(struct trainer *t, struct err *e)
{
    struct team *x = &t->team;
    size_t n = (size_t)ranks_size();
    struct ranks_account now = ranks_account();
    if (n == 1)
        return 0;
    if (!x->all && !(x->all = mem_alloc(2 * n, sizeof *x->all)))
        return err_set(e, DS_EMEM, "out of memory for %zu ranks", n);
    struct team_time mine = {.step = t->report.step_ms,
                             .wait = 1e3 * (now.seconds - x->before.seconds),
                             .bytes = (double)(now.sent - x->before.sent)};
    struct team_time *newest = x->all + n;
    int rc = ranks_gather(newest, &mine, sizeof mine, e);
    for (size_t r = 0; rc == 0 && r < n; r++) {
        x->all[r].step += newest[r].step;
        x->all[r].wait += newest[r].wait;
        x->all[r].bytes += newest[r].bytes;
    }
    x->steps++;
    return rc;
}

static void add_means(struct trainer *t, const char *name, size_t at, float *v)
{
    size_t n = (size_t)ranks_size();
    double sum;
    for (size_t r = 0; r < n; r++) {
        memcpy(&sum, (const char *)&t->team.all[r] + at, sizeof sum);
        v[r] = (float)(sum / (double)t->team.steps);
    }
    record_f32s(t->record, name, v, n);
}

int team_log(struct trainer *t, struct err *e)
{
    size_t n = (size_t)ranks_size();
    if (n == 1 || t->team.steps == 0)
        return 0;
    float *v = mem_alloc(n, sizeof *v);
    if (!v)
        return err_set(e, DS_EMEM, "out of memory for %zu ranks", n);
    record_begin(t->record, "ranks", t->report.step, clock_wall());
    record_int(t->record, "steps", t->team.steps);
    record_array(t->record, "host");
    for (size_t r = 0; r < n; r++)
        record_str(t->record, NULL, ranks_host((int)r));
    record_close(t->record);
    add_means(t, "step_ms", offsetof(struct team_time, step), v);
    add_means(t, "wait_ms", offsetof(struct team_time, wait), v);
    add_means(t, "bytes", offsetof(struct team_time, bytes), v);
    mem_free(v);
    memset(t->team.all, 0, n * sizeof *t->team.all);
    t->team.steps = 0;
    return trainer_append(t, e);
}
