#include "eval/speed.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/rng.h"
#include "models/model.h"

enum { ROUNDS_MAX = 64, READ_FLOATS = 16 << 20 };

#define AT(field) offsetof(struct speed_options, field)
static const struct opt speed_opts[] = {
    // clang-format off
    {"quick",   OPT_BOOL, AT(quick),   "false", 0, 0, NULL, "a small model and few rounds: seconds instead of a minute", NULL},
    {"only",    OPT_STRING, AT(only),  "",    0, 0, NULL, "only what has this word in its name (peak, gemm, train, prefill, decode)", NULL},
    {"rounds",  OPT_INT,  AT(rounds),  "0",   0, ROUNDS_MAX, NULL, "0 = 5 (quick: 3)", NULL},
    {"layers",  OPT_INT,  AT(layers),  "8",   3, 256, NULL, "of the model", NULL},
    {"dim",     OPT_INT,  AT(dim),     "0",   0, 16384, NULL, "of the model; 0 = 192 (quick: 96)", NULL},
    {"heads",   OPT_INT,  AT(heads),   "0",   0, 512, NULL, "of the model; 0 = by dim", NULL},
    {"vocab",   OPT_INT,  AT(vocab),   "2048", 2, 1 << 20, NULL, "of the model", NULL},
    {"prefill", OPT_INT,  AT(prefill), "512", 16, 32768, NULL, "tokens of a prefill", NULL},
    {"decode",  OPT_INT,  AT(decode),  "16",  1, 4096, NULL, "tokens decoded one by one behind it", NULL},
    {"batch",   OPT_INT,  AT(batch),   "4",   1, 1024, NULL, "sequences of a training step", NULL},
    {"seq",     OPT_INT,  AT(seq),     "128", 2, 32768, NULL, "tokens of a training sequence", NULL},
    {"threads", OPT_INT,  AT(threads), "0",   0, 4096, NULL, "0 = what affinity and quota allow", NULL},
    // clang-format on
};
const struct opt_group speed_group = {
    .prefix = "", .title = "bench", .opts = speed_opts, .n = DS_LEN(speed_opts)};

/* One thing that is measured: a model in one way of use. */
struct subject_of {
    const char *method;
    double ratio;
    int is_forced;
    struct model *model;
    int8_t *force;
};

static int make_model(struct model **out, const struct speed_options *o, const char *method,
                      double ratio, int train, struct err *e)
{
    struct model_config c = {0};
    struct config route = {0}, keys = {0};
    char text[64], key[64];
    int rc = opt_defaults(&model_group, &c, e);
    const struct {
        const char *key;
        long long v;
    } size[] = {
        {"model.layers", (long long)o->layers},
        {"model.dim", (long long)o->dim},
        {"model.heads", (long long)o->heads},
        {"model.vocab", (long long)o->vocab},
        {"model.max_seq", (long long)(o->prefill + o->decode + o->seq)},
    };
    for (size_t i = 0; i < DS_LEN(size) && rc == 0; i++) {
        snprintf(text, sizeof text, "%lld", size[i].v);
        rc = config_set(&keys, size[i].key, text, "bench", e);
    }
    if (rc == 0)
        rc = config_set(&keys, "model.method", method, "bench", e);
    if (rc == 0 && ratio > 0) {
        snprintf(key, sizeof key, "%s.target_ratio", method);
        snprintf(text, sizeof text, "%g", ratio);
        rc = config_set(&route, key, text, "bench", e);
    }
    if (rc == 0)
        rc = config_apply(&keys, &model_group, &c, e);
    if (rc == 0)
        rc = model_new(out, &c, &route, 1, train, e);
    opt_release(&model_group, &c); /* empty when it was taken */
    config_release(&route);
    config_release(&keys);
    return rc;
}

static void fill_ids(int32_t *id, size_t n, int vocab)
{
    struct rng r;
    rng_init(&r, 1, RNG_TEST, 0, 0);
    for (size_t i = 0; i < n; i++)
        id[i] = (int32_t)rng_below(&r, (uint32_t)vocab);
}

/* ---- training ---- */

static double train_tokens_s(struct model *m, const struct batch *b, int64_t step)
{
    struct pass pass = {.kind = PASS_TRAIN, .step = step, .progress = 1, .seed = 1};
    struct adamw a = {.lr = 1e-4,
                      .beta1 = 0.9,
                      .beta2 = 0.95,
                      .eps = 1e-8,
                      .weight_decay = 0.1,
                      .router_lr = 1,
                      .clip = 1};
    double t = clock_mono();
    model_forward(m, b, &pass);
    model_loss(m, 1, 0);
    model_backward(m);
    struct grad_health h = params_grad_health(&m->params);
    if (h.bad == 0)
        adamw_step(&m->params, &a, step, &h);
    if (m->route.ops->update)
        m->route.ops->update(&m->route);
    params_zero_grad(&m->params);
    t = clock_mono() - t;
    m->batch = NULL;
    return t > 0 ? b->B * b->T / t : 0;
}

static int time_training(struct speed_list *l, const struct speed_options *o, struct err *e)
{
    static const char *const method[] = {"dense", "edp"};
    static const char *const name[] = {"train step dense", "train step edp masked"};
    struct model *m[2] = {NULL, NULL};
    double sample[2][ROUNDS_MAX], dense = 0;
    int rows = (int)(o->batch * o->seq), rc = 0;
    int32_t *id = mem_alloc((size_t)rows, sizeof *id),
            *target = mem_alloc((size_t)rows, sizeof *target);
    struct batch b = {.B = (int)o->batch, .T = (int)o->seq, .id = id, .target = target};
    if (!id || !target)
        rc = err_set(e, DS_EMEM, "batch");
    for (int k = 0; k < 2 && rc == 0; k++) {
        rc = make_model(&m[k], o, method[k], k ? 0.5 : 0, 1, e);
        if (rc == 0)
            rc = model_reserve(m[k], rows, 1, 1, e);
    }
    if (rc == 0) {
        fill_ids(id, (size_t)rows, (int)o->vocab);
        fill_ids(target, (size_t)rows, (int)o->vocab);
        for (int i = -1; i < o->rounds; i++) /* the first warms up */
            for (int k = 0; k < 2; k++)
                sample[k][i < 0 ? 0 : i] = train_tokens_s(m[k], &b, i + 2);
    }
    for (int k = 0; k < 2 && rc == 0; k++) {
        rc = speed_add(l, name[k], "tokens/s", sample[k], (int)o->rounds, "dense", dense, e);
        dense = rc == 0 && k == 0 ? l->v[l->n - 1].median : dense;
    }
    model_free(m[0]);
    model_free(m[1]);
    mem_free(id);
    mem_free(target);
    return rc;
}

/* ---- use ---- */

struct use {
    const struct speed_options *o;
    int32_t *id;
    real *logits;
    struct kv_cache *cache;
};

/* Cells by lot at this ratio, the first and the last layer always on. */
static int make_force(struct subject_of *s, int L, int R, struct err *e)
{
    struct rng r;
    double rate = (s->ratio * L - 2) / (L - 2);
    s->force = mem_alloc((size_t)L * (size_t)R, 1);
    if (!s->force)
        return err_set(e, DS_EMEM, "forced cells");
    rng_init(&r, 1, RNG_TEST, 1, 0);
    for (int l = 0; l < L; l++)
        for (int i = 0; i < R; i++)
            s->force[l * R + i] = (int8_t)(l == 0 || l == L - 1 || rng_uniform(&r) < rate);
    return 0;
}

static double prefill_s(const struct subject_of *s, const struct use *u, int dense)
{
    struct batch b = {.B = 1, .T = (int)u->o->prefill, .id = u->id};
    struct pass pass = {
        .kind = dense ? PASS_DENSE : PASS_SPARSE, .seed = 1, .force = dense ? NULL : s->force};
    double t = clock_mono();
    model_forward(s->model, &b, &pass);
    model_logits(s->model, s->model->R - 1, u->logits);
    t = clock_mono() - t;
    s->model->batch = NULL;
    return t > 0 ? (double)u->o->prefill / t : 0;
}

/* Behind a prompt that is fed densely, so that every way decodes from an equally full cache. */
static int decode_s(const struct subject_of *s, const struct use *u, int dense, double *out,
                    struct err *e)
{
    struct pass pass = {.kind = PASS_DENSE, .seed = 1};
    int L = (int)u->o->layers, R = (int)(u->o->prefill + u->o->decode), rc;
    int8_t column[256];
    kv_cache_reset(u->cache);
    rc = model_decode(s->model, u->cache, u->id, (int)u->o->prefill, &pass, e);
    double t = clock_mono();
    for (int i = 0; i < u->o->decode && rc == 0; i++) {
        int at = (int)u->o->prefill + i;
        for (int l = 0; s->force && l < L; l++)
            column[l] = s->force[l * R + at];
        pass = (struct pass){.kind = dense ? PASS_DENSE : PASS_SPARSE,
                             .seed = 1,
                             .force = s->force && !dense ? column : NULL};
        rc = model_decode(s->model, u->cache, &u->id[at], 1, &pass, e);
        model_logits(s->model, 0, u->logits);
    }
    t = clock_mono() - t;
    *out = t > 0 ? (double)u->o->decode / t : 0;
    return rc;
}

enum { RATIOS = 4 };
static const double ratios[RATIOS] = {1, 0.75, 0.5, 0.25};

/* One method at all ratios against itself run dense. */
static int time_method(struct speed_list *l, const struct speed_options *o, const char *method,
                       int is_forced, int is_decode, struct use *u, struct err *e)
{
    static double sample[RATIOS + 1][ROUNDS_MAX];
    struct subject_of s[RATIOS] = {{0}};
    int made = 0, rc = 0, R = (int)(o->prefill + o->decode), L = (int)o->layers, n = 0;
    for (int k = 0; k < RATIOS && rc == 0; k++) {
        if (ratios[k] * L < 2 || (o->quick && k % 2))
            continue; /* two layers are always on */
        s[n] = (struct subject_of){.method = method, .ratio = ratios[k], .is_forced = is_forced};
        rc = make_model(&s[n].model, o, method, is_forced ? 0.75 : ratios[k], 0, e);
        made = n + (rc == 0);
        if (rc == 0)
            rc = model_reserve(s[n].model, (int)o->prefill, 0, 0, e);
        if (rc == 0 && is_forced)
            rc = make_force(&s[n], L, is_decode ? R : (int)o->prefill, e);
        n++;
    }
    for (int i = -1; i < o->rounds && rc == 0; i++)
        for (int k = -1; k < n && rc == 0; k++) {
            double *out = &sample[k + 1][i < 0 ? 0 : i];
            if (is_decode)
                rc = decode_s(&s[k < 0 ? 0 : k], u, k < 0, out, e);
            else
                *out = prefill_s(&s[k < 0 ? 0 : k], u, k < 0);
        }
    double dense = 0;
    for (int k = -1; k < n && rc == 0; k++) {
        char name[64];
        if (k < 0)
            snprintf(name, sizeof name, "%s %s dense", is_decode ? "decode" : "prefill", method);
        else
            snprintf(name, sizeof name, "%s %s %.2f", is_decode ? "decode" : "prefill", method,
                     s[k].ratio);
        rc = speed_add(l, name, "tokens/s", sample[k + 1], (int)o->rounds, "dense", dense, e);
        dense = k < 0 && rc == 0 ? l->v[l->n - 1].median : dense;
    }
    for (int k = 0; k < made; k++)
        model_free(s[k].model);
    for (int k = 0; k < RATIOS; k++)
        mem_free(s[k].force);
    return rc;
}

static int time_use(struct speed_list *l, const struct speed_options *o, struct err *e)
{
    static const struct {
        const char *method;
        int is_forced;
    } rows[] = {{"random", 0}, {"static", 0}, {"edp", 1}};
    struct use u = {.o = o};
    struct model *m = NULL;
    size_t n = (size_t)(o->prefill + o->decode);
    int rc = make_model(&m, o, "dense", 0, 0, e);
    u.id = mem_alloc(n, sizeof *u.id);
    u.logits = mem_alloc((size_t)o->vocab, sizeof *u.logits);
    if (rc == 0 && (!u.id || !u.logits))
        rc = err_set(e, DS_EMEM, "bench");
    if (rc == 0) {
        fill_ids(u.id, n, (int)o->vocab);
        rc = kv_cache_new(&u.cache, m, (int)n, e);
    }
    for (int is_decode = 0; is_decode < 2; is_decode++)
        for (size_t i = 0; i < DS_LEN(rows) && rc == 0; i++)
            if (speed_wants(o, is_decode ? "decode" : "prefill"))
                rc = time_method(l, o, rows[i].method, rows[i].is_forced, is_decode, &u, e);
    kv_cache_free(u.cache);
    model_free(m);
    mem_free(u.id);
    mem_free(u.logits);
    return rc;
}

static int time_peaks(struct speed_list *l, const struct speed_options *o, double *peak,
                      struct err *e)
{
    double fma[ROUNDS_MAX], reads[ROUNDS_MAX];
    float *buffer = mem_alloc(READ_FLOATS, sizeof *buffer);
    if (!buffer)
        return err_set(e, DS_EMEM, "bench");
    for (size_t i = 0; i < READ_FLOATS; i += 1024)
        buffer[i] = 1; /* a zero page read twice is no memory */
    for (int i = -1; i < o->rounds; i++) {
        fma[i < 0 ? 0 : i] = speed_fma_gflops();
        reads[i < 0 ? 0 : i] = speed_read_gbs(buffer, READ_FLOATS);
    }
    mem_free(buffer);
    int rc = speed_add(l, "peak fma", "GFLOP/s", fma, (int)o->rounds, NULL, 0, e);
    *peak = rc == 0 ? l->v[l->n - 1].max : 0;
    return rc == 0 ? speed_add(l, "peak read", "GB/s", reads, (int)o->rounds, NULL, 0, e) : rc;
}

int speed_run(struct speed_list *out, const struct speed_options *given, struct err *e)
{
    struct speed_options o = *given;
    double peak = 0;
    memset(out, 0, sizeof *out);
    if (o.rounds == 0)
        o.rounds = o.quick ? 3 : 5;
    if (o.dim == 0)
        o.dim = o.quick ? 96 : 192;
    if (o.heads == 0)
        o.heads = o.dim % 32 == 0 ? o.dim / 32 : 1;
    int rc = time_peaks(out, &o, &peak, e);
    if (rc == 0 && speed_wants(&o, "gemm"))
        rc = speed_products(out, &o, peak, e);
    if (rc == 0 && speed_wants(&o, "train"))
        rc = time_training(out, &o, e);
    if (rc == 0)
        rc = time_use(out, &o, e);
    if (rc < 0)
        speed_release(out);
    return rc;
}

void speed_release(struct speed_list *l)
{
    mem_free(l->v);
    memset(l, 0, sizeof *l);
}
