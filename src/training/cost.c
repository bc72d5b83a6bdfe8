/* Counts the FLOPs of a training step on a forward-only model, and sizes without one. */
#include "training/cost.h"

#include <string.h>

#include "base/hash.h"
#include "base/mem.h"
#include "base/rng.h"
#include "models/adapters.h"
#include "models/model.h"
#include "training/account.h"
#include "training/exit_loss.h"
#include "training/texts.h"

/* Plans are sampled at the midpoints of this many equal parts of the run. */
enum { MOMENTS = 8 };

/* 0: not known, for lack of memory. */
static uint64_t texts_key(const struct train_config *c)
{
    struct str s = {0};
    const struct data_options *d = &c->data;
    str_addf(&s, "%s|%s|%s|%s|%lld|%lld|%.17g|%lld", d->path, d->format, d->text_key, d->tokenizer,
             (long long)d->max_bytes, (long long)d->docs, d->val_fraction,
             (long long)c->model.vocab);
    uint64_t key = s.failed ? 0 : hash64(str_text(&s), s.len, 1);
    str_release(&s);
    return key;
}

/* A small text yields fewer tokens than asked for, and the head is a large part of a small
 * model. */
static int ask_vocab(struct train_config *c, struct train_cost_cache *cache, struct err *e)
{
    struct corpus *texts = NULL;
    struct tokenizer *t = NULL;
    uint64_t key = texts_key(c);
    int rc = 0;
    if (cache->vocab == 0 || cache->texts != key || key == 0) {
        rc = texts_open(&texts, &c->data, e);
        if (rc == 0)
            rc = texts_tokenizer(&t, texts, &c->data, (int)c->model.vocab, e);
        if (rc == 0)
            *cache = (struct train_cost_cache){key, tokenizer_vocab(t)};
        tokenizer_free(t);
        corpus_close(texts);
    }
    if (rc == 0)
        c->model.vocab = cache->vocab;
    return rc;
}

/* FLOPs of one sequence (a single document) at one point of the run, routing decisions included. */
static double count_pass(struct model *m, enum pass_kind kind, const int32_t *id, int T,
                         double progress, const struct train_config *c)
{
    struct flops_shape shape = model_config_flops(&m->config);
    struct batch b = {.B = 1, .T = T, .id = id};
    struct pass pass = {.kind = kind,
                        .step = 1 + (int64_t)(progress * (double)c->train.steps),
                        .progress = progress,
                        .seed = (uint64_t)c->run.seed};
    double router = 0;
    model_forward(m, &b, &pass);
    for (int l = 0; kind != PASS_DENSE && l < model_config_depth(&m->config); l++)
        router += m->flops.part[l * FLOPS_PARTS + FLOPS_ROUTER];
    int frozen = c->train.freeze == FREEZE_BASE;
    double exits = kind == PASS_DENSE ? 0 : exit_loss_mean(&c->train, &m->config, pass.step);
    double noops = kind == PASS_DENSE ? 0 : m->experts.noops;
    return account_model_flops(m, noops, 0, frozen) +
           account_exit_flops(&shape, m->R, exits, frozen) + 3 * router;
}

static int count(struct train_cost *out, struct model *m, const struct train_config *c,
                 struct err *e)
{
    int T = (int)c->train.seq;
    int32_t *id = mem_alloc((size_t)T, sizeof *id);
    struct rng r;
    int rc =
        id ? model_reserve(m, T, 0, 0, e) : err_set(e, DS_EMEM, "out of memory for %d tokens", T);
    rng_init(&r, 1, RNG_ROUTE, 0, 0);
    for (int i = 0; id && i < T; i++)
        id[i] = (int32_t)rng_below(&r, (uint32_t)m->config.vocab);
    for (int k = 0; rc == 0 && k < MOMENTS; k++)
        out->flops += count_pass(m, PASS_TRAIN, id, T, (k + 0.5) / MOMENTS, c) *
                      (double)c->train.batch / MOMENTS;
    out->tokens = c->train.batch * T;
    if (rc == 0)
        out->dense = count_pass(m, PASS_DENSE, id, T, 1, c) * (double)c->train.batch;
    out->parameters = model_non_embedding(m);
    mem_free(id);
    return rc;
}

int train_cost(struct train_cost *out, struct train_config *c, struct train_cost_cache *cache,
               struct err *e)
{
    struct model *m = NULL;
    double need = sizeof(real) * model_config_weights(&c->model), left = mem_available();
    char a[16], b[16];
    *out = (struct train_cost){0};
    if (c->train.init[0])
        return err_set(e, DS_EUSAGE, "train.init=%s fixes the model size; omit it to vary the size",
                       c->train.init);
    if (train_has_teacher(&c->train))
        return err_set(e, DS_EUSAGE,
                       "train.teacher=%s: the teacher's forward pass is not counted in the FLOPs; "
                       "train.teacher=off or train.no_kd=true trains without it",
                       c->train.teacher);
    if (left > 0 && need > left)
        return err_set(e, DS_ERANGE, "the model needs at least %sB of memory, %sB available",
                       str_si(a, need), str_si(b, left));
    int rc = ask_vocab(c, cache, e);
    if (rc == 0)
        rc = model_new(&m, &c->model, &c->route, 1, MODEL_INFERENCE, e);
    if (rc == 0)
        rc = count(out, m, c, e);
    model_free(m);
    return rc;
}

void train_config_size(struct train_size *s, const struct train_config *c)
{
    const struct model_config *m = &c->model;
    struct flops_shape shape = model_config_flops(m);
    int64_t table = m->position == POS_LEARNED ? m->max_seq * m->dim : 0;
    int64_t head = m->tied ? 0 : model_config_outputs(m, NULL) * m->dim;
    int frozen = c->train.freeze == FREEZE_BASE; /* then only its weights are in memory */
    *s = (struct train_size){.params = model_config_params(m),
                             .layer = model_config_params_layer(m),
                             .flops = flops_dense_token(&shape, (int)m->max_seq)};
    s->non_embedding = s->params - m->vocab * m->dim - head - table;
    s->bytes = 4.0 * ((frozen ? 1 : 4) * (double)s->params +
                      4 * ((double)c->method_params + adapters_weights(m)));
    s->tokens = (double)c->train.steps * (double)c->train.batch * (double)c->train.seq;
    s->work = 3 * flops_dense_token(&shape, (int)c->train.seq) * s->tokens;
}

/* As save.c: all values and the moments of what is trained, or only what training adds. */
static double checkpoint_bytes(const struct train_size *s, const struct train_config *c)
{
    double base = (double)s->params, own = (double)c->method_params + adapters_weights(&c->model);
    if (train_saves_own(c))
        base = 0;
    double trained = own + (c->train.freeze == FREEZE_BASE ? 0 : base);
    return sizeof(float) * (base + own + 2 * trained);
}

int train_estimate(struct train_estimate *out, const struct train_config *c, struct err *e)
{
    struct config route = {0};
    size_t buffers = 0;
    int64_t steps = c->train.steps, every = c->train.checkpoint_every;
    *out = (struct train_estimate){0};
    train_config_size(&out->size, c);
    int rc = config_merge(&route, &c->route, e);
    if (rc == 0)
        rc = model_bytes(&buffers, &c->model, &route, (int)(c->train.batch * c->train.seq), 1,
                         !c->train.recompute, e);
    config_release(&route);
    out->memory = out->size.bytes + (double)buffers;
    out->checkpoint = checkpoint_bytes(&out->size, c);
    out->checkpoints = steps / every + (steps % every != 0);
    if (out->checkpoints > c->train.keep + 1) /* those, and the best */
        out->checkpoints = c->train.keep + 1;
    return rc;
}
