/* Times prefill and decoding. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "speed_impl.h"

struct use {
    const struct speed *s;
    struct speed_subject *subject;
    int32_t *id;
    real *logits;
    struct kv_cache *cache, *together[SPEED_TEXTS];
    int8_t *column; /* (L): the forced cells of one token */
};

static double prefill_s(struct use *u, const struct speed_way *w)
{
    struct model *m = u->subject->model;
    struct batch b = {.B = 1, .T = (int)u->s->o.prefill, .id = u->id};
    struct pass pass;
    speed_subject_set(u->subject, w, &pass, 0);
    double t = clock_mono();
    model_forward(m, &b, &pass);
    model_logits(m, m->R - 1, u->logits);
    t = clock_mono() - t;
    m->batch = NULL;
    return t;
}

/* Mean bytes per weight of n matrices as a GEMM reads them; -1 in at: none. */
static double bytes_of_weight(const struct model *m, const int *at, size_t n)
{
    double bytes = 0, size = 0;
    for (size_t i = 0; i < n; i++) {
        if (at[i] < 0)
            continue;
        const struct weight *w = &m->weights.v[at[i]];
        double values = (double)w->O * w->C;
        double packed = w->fwd.by ? (double)gemm_size_of(&w->fwd) : 0;
        bytes += w->quant ? (double)quant_bytes(w->quant)
                          : (packed > 0 ? packed : values * sizeof(real));
        size += values;
    }
    return size > 0 ? bytes / size : 0;
}

/* Bytes of weights read by the last one-row forward: a weight per multiply-add, without attention's
 * keys and values.  Files mix types by layer and matrix, so each part of each layer has its own
 * bytes per weight; the experts of a layer are of one type. */
static double weights_read(const struct model *m)
{
    const struct flops *f = &m->flops;
    const int head = m->head < 0 ? m->embed : m->head;
    double bytes =
        f->part[(size_t)f->L * FLOPS_PARTS + FLOPS_HEAD] / 2 * bytes_of_weight(m, &head, 1);
    for (int l = 0; l < f->L; l++) {
        const struct block_params *b = &m->block[l];
        const int qo[] = {b->q, b->o}, kv[] = {b->k, b->v};
        int mlp[] = {b->gate, b->up, b->down, -1, -1, -1};
        for (int i = 0; b->expert >= 0 && i < f->shape.mlp_mats; i++)
            mlp[3 + i] = b->expert + i;
        const double *part = &f->part[(size_t)l * FLOPS_PARTS];
        bytes += part[FLOPS_QO] / 2 * bytes_of_weight(m, qo, DS_LEN(qo));
        bytes += part[FLOPS_KV] / 2 * bytes_of_weight(m, kv, DS_LEN(kv));
        bytes += part[FLOPS_MLP] / 2 * bytes_of_weight(m, mlp, DS_LEN(mlp));
    }
    return bytes;
}

/* Returns to the end of the prefill, whose tokens the texts share. */
static void rewind_cache(struct kv_cache *c, int len)
{
    c->len = len;
    for (int l = 0; l < c->L; l++)
        c->layer[l].n = len;
}

/* Seconds of decoding after a dense prefill, so that every way starts from an equally full
 * cache.  Weights are the limit of one text, multiplications that of several. */
static int decode_s(struct use *u, int k, int round, struct speed_figures *f, struct err *e)
{
    struct speed_subject *x = u->subject;
    const struct speed_way *w = &x->way[k];
    const struct speed_options *o = &u->s->o;
    struct model *m = x->model;
    struct kv_cache *const *cache = w->texts ? u->together : &u->cache;
    int L = model_config_depth(&m->config), n = w->texts ? w->texts : 1, have = (int)o->prefill / n,
        rc = 0;
    double t = 0;
    f->flops[k] = f->dense[k] = f->bytes[k] = 0;
    for (int s = 0; s < n; s++)
        rewind_cache(cache[s], have);
    for (int i = 0; i < o->decode && rc == 0; i++) {
        int at = have + i;
        int32_t id[SPEED_TEXTS];
        struct pass pass;
        speed_subject_set(x, w, &pass, 0);
        for (int l = 0; w->force && l < L; l++)
            u->column[l] = w->force[(size_t)l * (size_t)x->cells + (size_t)at];
        pass.inference.force = w->force ? u->column : NULL;
        for (int s = 0; s < n; s++)
            id[s] = u->id[at + s * have];
        double start = clock_mono();
        rc = model_decode_batch(m, cache, n, id, 1, &pass, e);
        if (rc == 0)
            model_logits_rows(m, 0, n, u->logits);
        t += clock_mono() - start;
        f->flops[k] += speed_flops(m, 0, 1);
        f->dense[k] += speed_flops(m, 1, 1);
        f->bytes[k] += w->texts ? 0 : weights_read(m);
    }
    f->seconds[k][round] = t;
    return rc;
}

static int open_caches(struct use *u, struct err *e)
{
    const struct speed_options *o = &u->s->o;
    struct model *m = u->subject->model;
    struct pass pass = {.kind = PASS_DENSE, .seed = 1};
    int is_shared = 0, have = (int)o->prefill / SPEED_TEXTS;
    for (int k = 0; k < u->subject->n; k++)
        is_shared |= u->subject->way[k].texts > 0;
    int rc = kv_cache_new(&u->cache, m, (int)(o->prefill + o->decode), e);
    if (rc == 0)
        rc = model_decode(m, u->cache, u->id, (int)o->prefill, &pass, e);
    for (int s = 0; s < SPEED_TEXTS && is_shared && rc == 0; s++)
        rc = kv_cache_new(&u->together[s], m, have + (int)o->decode, e);
    return rc == 0 && is_shared
               ? model_decode_batch(m, u->together, SPEED_TEXTS, u->id, have, &pass, e)
               : rc;
}

static int open_use(struct use *u, int is_decode, struct err *e)
{
    const struct speed_options *o = &u->s->o;
    size_t n = (size_t)(o->prefill + o->decode);
    u->id = mem_alloc(n, sizeof *u->id);
    u->logits = mem_alloc((size_t)o->vocab * SPEED_TEXTS, sizeof *u->logits);
    u->column = mem_alloc((size_t)model_config_depth(&u->subject->model->config), 1);
    if (!u->id || !u->logits || !u->column)
        return err_set(e, DS_EMEM, "out of memory for the benchmark");
    speed_fill_ids(u->id, n, (int)o->vocab);
    return is_decode ? open_caches(u, e) : 0;
}

/* Read rates are timed in every round too: memory bandwidth drifts by more than the differences
 * measured here. */
static int time_rounds(struct use *u, int is_decode, struct speed_figures *f, struct err *e)
{
    const struct speed *s = u->s;
    double reads[SPEED_ROUNDS_MAX];
    int rc = 0;
    for (int i = -1; i < s->o.rounds && rc == 0; i++) { /* the first warms up */
        int at = i < 0 ? 0 : i;
        reads[at] = is_decode ? peak_read_gbs(s->lines, s->line_bytes) : 0;
        for (int k = 0; k < u->subject->n && rc == 0; k++) {
            if (is_decode) {
                rc = decode_s(u, k, at, f, e);
                continue;
            }
            f->seconds[k][at] = prefill_s(u, &u->subject->way[k]);
            f->flops[k] = speed_flops(u->subject->model, 0, 0);
            f->dense[k] = speed_flops(u->subject->model, 1, 0);
        }
    }
    f->read_gbs = speed_median(reads, (int)s->o.rounds);
    return rc;
}

static int time_method(struct speed *s, const char *method, int is_decode, struct err *e)
{
    const char *group = is_decode ? "decode" : "prefill";
    struct speed_figures f = {.tokens = (double)(is_decode ? s->o.decode : s->o.prefill),
                              .unit = s->use_unit};
    struct speed_subject subject;
    struct use u = {.s = s, .subject = &subject};
    char what[64];
    snprintf(what, sizeof what, "%s %.40s", group, method);
    const struct speed_plan p = {.group = group,
                                 .what = what,
                                 .method = method,
                                 .rows = (int)s->o.prefill,
                                 .has_texts = is_decode,
                                 .cells =
                                     (int)(is_decode ? s->o.prefill + s->o.decode : s->o.prefill)};
    int rc = speed_subject_open(&subject, s, &p, e);
    if (rc < 0 || subject.n == 0)
        return rc;
    if (strcmp(weights_quant_name(subject.model), "none") != 0) /* quantised as in the file */
        f.unit = PEAK_INT8;
    rc = open_use(&u, is_decode, e);
    if (rc == 0)
        rc = time_rounds(&u, is_decode, &f, e);
    if (rc == 0)
        rc = speed_add_figures(s, &subject, &f, e);
    kv_cache_free(u.cache);
    for (int k = 0; k < SPEED_TEXTS; k++)
        kv_cache_free(u.together[k]);
    mem_free(u.id);
    mem_free(u.logits);
    mem_free(u.column);
    speed_subject_close(&subject);
    return rc;
}

int speed_inference(struct speed *s, int is_decode, struct err *e)
{
    return speed_each_method(s, time_method, is_decode, e);
}
