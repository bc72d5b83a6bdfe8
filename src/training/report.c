/* Builds the records that a run appends to its log. */
#include <math.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/machine.h"
#include "base/mem.h"
#include "base/ranks.h"
#include "io/system.h"
#include "models/trace.h"
#include "training/team.h"
#include "training/trainer.h"

enum { LOG_FAILURES_MAX = 50 };

/* A failing disk ends the run only after a while. */
static int note_append(struct trainer *t, int rc, const struct err *why, struct err *e)
{
    t->log_failures = rc < 0 ? t->log_failures + 1 : 0;
    if (rc == 0 || (rc == DS_EIO && t->log_failures < LOG_FAILURES_MAX))
        return 0;
    return err_set(e, rc, "%s", why->text);
}

int trainer_append(struct trainer *t, struct err *e)
{
    struct err why = {0};
    return team_follows() ? 0 : note_append(t, runlog_append(t->log, t->record, &why), &why, e);
}

int trainer_append_body(struct trainer *t, struct value body, struct err *e)
{
    struct err why = {0};
    return note_append(t, runlog_append_body(t->log, body, &why), &why, e);
}

static void add_config(void *ctx, const char *key, const char *value)
{
    record_str(ctx, key, value);
}

static void add_metric_table(struct trainer *t)
{
    record_array(t->record, "metrics");
    run_metrics_record(t->record);
    trace_metric_rows(t->model->route.ops, t->record);
    record_close(t->record);
}

/* Machine figures: the peak of the run's number format, where it was measured, and bytes per arena. */
static void add_means(struct trainer *t)
{
    struct account_arena arena[ACCOUNT_ARENAS];
    if (t->account.peak > 0) {
        record_str(t->record, "peak_format", peak_name[t->account.unit]);
        record_num(t->record, "peak_gflops", t->account.peak);
    }
    account_arenas(t->model, arena);
    record_map(t->record, "arenas");
    for (int i = 0; i < ACCOUNT_ARENAS; i++)
        record_int(t->record, arena[i].name, (int64_t)arena[i].bytes);
    record_close(t->record);
}

int trainer_log_head(struct trainer *t, int resume, struct err *e)
{
    struct record *r = t->record;
    struct flops_shape shape = model_config_flops(&t->model->config);
    char host[256] = "";
    gethostname(host, sizeof host - 1);
    record_begin(r, "head", t->state.step, clock_wall());
    record_int(r, "format", RECORD_FORMAT);
    record_str(r, "version", t->version);
    record_str(r, "run", t->name);
    record_str(r, "run_id", t->run_id);
    if (t->parent[0])
        record_str(r, "parent", t->parent);
    record_bool(r, "resume", resume);
    record_str(r, "method", t->model->config.method);
    record_int(r, "layers", model_config_depth(&t->model->config));
    record_int(r, "steps", t->config.train.steps);
    record_int(r, "seed", t->config.run.seed);
    record_int(r, "vocab", t->model->config.vocab);
    record_int(r, "params", params_count(&t->model->params));
    record_int(r, "params_non_embedding", model_non_embedding(t->model));
    record_num(r, "flops_dense", flops_dense_token(&shape, (int)t->config.train.seq));
    record_str(r, "host", host);
    record_int(r, "pid", getpid());
    if (ranks_size() > 1)
        record_int(r, "world_size", ranks_size());
    add_means(t);
    trace_always_on(t->model, t->record);
    record_map(r, "config");
    train_config_for_each(&t->config, add_config, r);
    record_close(r);
    add_metric_table(t);
    trainer_record_live(t);
    return trainer_append(t, e);
}

int trainer_log_alerts(struct trainer *t, struct err *e)
{
    struct alert a;
    int rc = 0;
    while (rc == 0 && alert_next(&t->alerts, &a)) {
        if (a.level >= LOG_WARN)
            log_msg((enum log_level)a.level, "step %lld: alert: %s", (long long)a.step, a.text);
        alert_record(t->record, &a, clock_wall());
        rc = trainer_append(t, e);
    }
    return rc;
}

int trainer_log_system(struct trainer *t, struct err *e)
{
    struct machine_sample s;
    /* the first sample has no rates */
    if (!t->machine || !machine_watch_take(t->machine, &s) || !(s.seconds > 0))
        return 0;
    system_record(t->record, t->state.step, &s);
    alert_take_system(&t->alerts, t->state.step, &s, getpid());
    int rc = trainer_append(t, e);
    return rc == 0 ? trainer_log_alerts(t, e) : rc;
}

/* NaN: not measured in this step. */
static void add_step_metrics(struct trainer *t)
{
    const struct route *route = &t->model->route;
    for (size_t i = 0; i < route->ops->n_metrics; i++)
        if (route->ops->metrics[i].scope == METRIC_STEP && !isnan(route->metric[i][0]))
            record_num(t->record, route->ops->metrics[i].name, route->metric[i][0]);
}

int trainer_log_step(struct trainer *t, struct err *e)
{
    record_begin(t->record, "metric", t->report.step, clock_wall());
    step_report_record(&t->report, t->record);
    account_restart_window(&t->account);
    add_step_metrics(t);
    int rc = trainer_append(t, e);
    alert_clock(&t->alerts, RUN_LIVE, clock_wall()); /* how long it took to get here */
    alert_take_progress(&t->alerts, clock_wall());
    alert_take_loss(&t->alerts, t->report.step, clock_wall(), t->report.loss);
    return rc == 0 ? trainer_log_alerts(t, e) : rc;
}

/* Rows that ran each expert since the last record, of every layer with experts. */
static int log_experts(struct trainer *t, struct err *e)
{
    int L = model_config_depth(&t->model->config), rows = 0;
    size_t n = (size_t)model_config_choices(&t->model->config);
    int32_t *layer = mem_alloc((size_t)L, sizeof *layer);
    float *value = mem_alloc(trainer_expert_cells(t), sizeof *value);
    int rc = layer && value ? 0 : err_set(e, DS_EMEM, "load of the experts: out of memory");
    if (rc == 0) {
        for (int l = 0; l < L; l++) {
            if (t->model->block[l].router < 0)
                continue;
            for (size_t i = 0; i < n; i++)
                value[(size_t)rows * n + i] = (float)t->expert_load[(size_t)l * n + i];
            layer[rows++] = l;
        }
        memset(t->expert_load, 0, trainer_expert_cells(t) * sizeof *t->expert_load);
        record_begin(t->record, "matrix", t->report.step, clock_wall());
        record_str(t->record, "name", "expert_load");
        record_int(t->record, "rows", rows);
        record_int(t->record, "cols", (int64_t)n);
        record_i32s(t->record, "layer", layer, (size_t)rows);
        record_f32s(t->record, "value", value, (size_t)rows * n);
        rc = trainer_append(t, e);
    }
    mem_free(layer);
    mem_free(value);
    return rc;
}

int trainer_log_layers(struct trainer *t, struct err *e)
{
    const struct model *m = t->model;
    const struct route_ops *ops = m->route.ops;
    size_t L = (size_t)model_config_depth(&m->config);
    record_begin(t->record, "layer", t->report.step, clock_wall());
    step_report_record_layers(&t->report, t->record);
    for (size_t i = 0; i < ops->n_metrics; i++)
        if (ops->metrics[i].scope == METRIC_LAYER)
            record_nums(t->record, ops->metrics[i].name, m->route.metric[i], L);
    int rc = trainer_append(t, e);
    float *share = rc == 0 ? mem_alloc(L, sizeof *share) : NULL;
    for (size_t l = 0; share && l < L; l++)
        share[l] = (float)t->report.layer[LAYER_GATE_RATIO][l];
    if (share)
        alert_take_layers(&t->alerts, t->report.step, clock_wall(), share, (int)L, NULL);
    mem_free(share);
    if (rc == 0)
        rc = trainer_log_alerts(t, e);
    return rc == 0 && t->expert_load ? log_experts(t, e) : rc;
}

static void run_probe(struct trainer *t, int i, double time, int topk)
{
    const struct probe_text *p = &t->probe[i];
    struct trace_text text = {.name = p->name,
                              .index = i,
                              .id = p->id,
                              .piece = p->piece,
                              .piece_len = p->piece_len,
                              .true_entropy = p->true_entropy,
                              .token_class = p->token_class,
                              .needed = corpus_is_words(t->corpus) ? p->needed : NULL,
                              .private_start = t->private_start ? p->private_start : NULL,
                              .n = p->n};
    struct trace_options o = {.step = t->state.step,
                              .time = time,
                              .kind = PASS_SPARSE,
                              .inference.topk = topk,
                              .seed = (uint64_t)t->config.run.seed};
    trace_run(t->model, &text, &o, t->record);
}

int trainer_log_probes(struct trainer *t, struct err *e)
{
    struct err why = {0};
    struct pass pass = {.kind = PASS_SPARSE};
    int ready = route_ready(&t->model->route, &pass, &why) == 0;
    double time = clock_wall(); /* of rank 0, whose log it is */
    /* no causal decisions yet: use top-k as in training, if the method has it */
    if (!ready && !(t->model->route.ops->flags & ROUTE_TOPK))
        return 0;
    int rc = ranks_broadcast(&time, sizeof time, 0, e);
    for (int i = 0; i < t->probes && rc == 0; i += ranks_size()) {
        int own = i + ranks_rank();
        if (own < t->probes)
            run_probe(t, own, time, !ready);
        rc = team_append(t, own < t->probes, e);
    }
    return rc;
}

int trainer_log_event(struct trainer *t, int level, const char *name, const char *text,
                      struct err *e)
{
    static const char *const level_name[] = {"debug", "info", "warn", "error"};
    record_begin(t->record, "event", t->state.step, clock_wall());
    record_str(t->record, "level", level_name[level & 3]);
    record_str(t->record, "name", name);
    record_str(t->record, "text", text);
    if (level >= LOG_WARN && !team_follows())
        log_msg((enum log_level)level, "step %lld: %s: %s", (long long)t->state.step, name, text);
    return trainer_append(t, e);
}

int trainer_log_end(struct trainer *t, const char *status, const char *text, struct err *e)
{
    record_begin(t->record, "end", t->state.step, clock_wall());
    record_str(t->record, "status", status);
    record_str(t->record, "text", text);
    int rc = trainer_append(t, e);
    return rc == 0 ? runlog_writer_sync(t->log, e) : rc;
}
