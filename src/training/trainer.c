/* The training loop: steps, evaluation, checkpoints, commands and the end of a run. */
#include "training/trainer.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/machine.h"
#include "base/mem.h"
#include "base/pool.h"
#include "base/ranks.h"
#include "training/exit_loss.h"
#include "training/fork.h"
#include "training/start.h"
#include "training/team.h"

static double lr_at(const struct train_options *o, int64_t step)
{
    if (step <= o->warmup)
        return o->lr * (double)step / (double)(o->warmup > 0 ? o->warmup : 1);
    if (o->schedule == SCHEDULE_CONSTANT || o->steps <= o->warmup)
        return o->lr;
    double u = (double)(step - o->warmup) / (double)(o->steps - o->warmup), low = o->min_lr;
    u = u > 1 ? 1 : u;
    double shape =
        o->schedule == SCHEDULE_LINEAR ? 1 - u : 0.5 * (1 + cos(3.14159265358979323846 * u));
    return o->lr * (low + (1 - low) * shape);
}

/* For tests: DEPTHSCOPE_FAIL=nan:N poisons the gradient of step N (with "+" also of all later
 * steps). */
static void poison(struct trainer *t)
{
    struct fault_rule rule;
    struct params *ps = &t->model->params;
    int i = 0;
    while (i + 1 < ps->n && !ps->p[i].grad)
        i++;
    if (fault_find(NULL, "nan", &rule) && fault_hits(&rule, (uint64_t)t->report.step))
        ps->p[i].grad[0] = (real)NAN;
}

/* For tests: DEPTHSCOPE_FAIL=slow:N makes step N take two seconds longer. */
static void slow_down(const struct trainer *t)
{
    struct fault_rule rule;
    if (fault_find(NULL, "slow", &rule) && fault_hits(&rule, (uint64_t)t->report.step))
        clock_sleep(2);
}

/* FLOPs of the multiplications of the last pass. */
static double pass_flops(const struct trainer *t)
{
    const struct model *m = t->model;
    struct flops_shape shape = model_config_flops(&m->config);
    int frozen = t->config.train.freeze == FREEZE_BASE;
    double flops = account_model_flops(m, m->experts.noops, !m->keep, frozen);
    flops += t->report.has_kd ? m->distill->flops : 0;
    return flops + account_exit_flops(&shape, m->R, t->report.exits, frozen);
}

/* One pass over sequences first..end - 1 of the batch. */
static void run_pass(struct trainer *t, int first, int end)
{
    const struct train_options *o = &t->config.train;
    int64_t step = t->report.step;
    size_t at = (size_t)first * (size_t)o->seq;
    struct batch b = {.B = end - first,
                      .T = (int)o->seq,
                      .id = t->input + at,
                      .target = t->target + at,
                      .doc_start = t->doc_start + at,
                      .private_start = t->private_start ? t->private_start + at : NULL};
    struct pass pass = {.kind = PASS_TRAIN,
                        .step = step,
                        .first_row = (int)at,
                        .progress = (double)step / (double)o->steps,
                        .seed = (uint64_t)t->config.run.seed};
    account_enter(&t->account, STEP_FORWARD);
    struct distill *d = step > o->kd_warmup ? t->model->distill : NULL;
    if (d)
        distill_pass(d, t->model, &b, &pass);
    model_forward(t->model, &b, &pass);
    account_enter(&t->account, STEP_LOSS);
    t->report.loss = model_loss(t->model, 1, 0);
    t->report.has_exit = t->exit_weight != NULL;
    t->report.exit = t->model->exit_loss;
    t->report.has_kd = d != NULL;
    if (d) {
        t->report.kd = d->loss;
        d->is_on = 0;
    }
    account_enter(&t->account, STEP_BACKWARD);
    model_backward(t->model);
    t->model->batch = NULL;
    t->report.aux = t->model->aux_loss;
    t->report.block_ratio = flops_block_ratio(&t->model->flops);
    t->report.flops_ratio = flops_model_ratio(&t->model->flops);
    for (int l = 0; l < t->report.layers; l++)
        t->report.layer[LAYER_GATE_RATIO][l] =
            route_is_closed(&t->model->route, l) ? (double)NAN /* not drawn: no share */
            : t->model->R > 0 ? (double)model_plan(t->model, l)->active / t->model->R
                              : 0;
    t->flops = pass_flops(t);
}

/* What a pass counts, for the records and for the method's statistics. */
static void visit_counts(void *of, route_count_fn *each, void *ctx)
{
    struct trainer *t = of;
    struct step_report *s = &t->report;
    struct route *r = &t->model->route;
    double *const mean[] = {&s->loss, &s->exit, &s->kd, &s->aux, &s->block_ratio, &s->flops_ratio};
    for (size_t i = 0; i < DS_LEN(mean); i++)
        each(ctx, mean[i], 1, 1);
    each(ctx, s->layer[LAYER_GATE_RATIO], (size_t)s->layers, 1);
    each(ctx, &t->flops, 1, 0);
    if (t->expert_load)
        each(ctx, t->model->experts.load, trainer_expert_cells(t), 0);
    for (size_t i = 0; i < r->ops->n_metrics; i++) {
        const struct metric *x = &r->ops->metrics[i];
        if (x->scope != METRIC_CELL)
            each(ctx, r->metric[i], x->scope == METRIC_LAYER ? (size_t)r->L : 1, !x->is_sum);
    }
    if (r->ops->counts)
        r->ops->counts(r, each, ctx);
}

static int count_targets(const struct trainer *t)
{
    int n = 0;
    for (int i = 0; i < t->rows; i++)
        n += t->target[i] >= 0;
    return n;
}

/* Gradients of the blocks leave while backward goes on.  Elements of block l: from..end - 1 of all
 * gradients. */
static void block_done(void *ctx, int l)
{
    struct trainer *t = ctx;
    const struct params *ps = &t->model->params;
    char prefix[40];
    real *first;
    size_t n = (size_t)snprintf(prefix, sizeof prefix, "model.layers.%d.", l), from = 0, end = 0;
    params_grads(ps, &first);
    for (int i = 0; i < t->model->n_base; i++)
        if (ps->p[i].grad && strncmp(ps->p[i].name, prefix, n) == 0) {
            from = end == 0 ? (size_t)(ps->p[i].grad - first) : from;
            end = (size_t)(ps->p[i].grad - first) + ps->p[i].n;
        }
    if (end > 0)
        pieces_ready(&t->pieces, from, end);
}

/* The pieces of this rank, then the sums over all of them. */
static int run_pieces(struct trainer *t, struct err *e)
{
    struct pieces *x = &t->pieces;
    int rc = 0;
    t->model->piece.targets = count_targets(t);
    for (int p = x->begin; rc == 0 && p < x->end; p++) {
        int first = pieces_first(x, p), end = pieces_first(x, p + 1);
        t->model->piece.share = (double)(end - first) / (double)t->config.train.batch;
        pieces_begin(x, &t->model->params);
        t->model->block_done = p == x->end - 1 ? block_done : NULL;
        t->model->block_done_ctx = t;
        pool_beside(p == x->end - 1 && ranks_size() > 1 ? pieces_advance : NULL, x);
        run_pass(t, first, end);
        pool_beside(NULL, NULL);
        t->model->block_done = NULL;
        pieces_end(x, p);
        rc = pieces_take(x, p, visit_counts, t, e);
    }
    t->model->piece.targets = 0;
    if (rc == 0)
        rc = pieces_sum(x, &t->model->params, e);
    return rc == 0 ? pieces_put(x, visit_counts, t, e) : rc;
}

static int forward_backward(struct trainer *t, struct err *e)
{
    int rc = 0;
    if (t->exit_weight)
        t->report.exits = exit_loss_weights(t->exit_weight, &t->config, t->report.step);
    if (pieces_are_on(&t->pieces))
        rc = run_pieces(t, e);
    else
        run_pass(t, 0, (int)t->config.train.batch);
    account_enter(&t->account, STEP_OPTIMIZER);
    poison(t);
    slow_down(t);
    for (size_t i = 0; t->expert_load && i < trainer_expert_cells(t); i++)
        t->expert_load[i] += t->model->experts.load[i];
    return rc;
}

static void update_shares(struct trainer *t)
{
    t->report.evaluation_share = account_share(&t->account, ACCOUNT_EVALUATION);
    t->report.checkpoint_share = account_share(&t->account, ACCOUNT_CHECKPOINT);
}

/* Fills the report with the time of the step's parts and its FLOPs utilisation. */
static void close_account(struct trainer *t)
{
    struct step_report *s = &t->report;
    account_step(&t->account, s->ms);
    for (int i = 0; i < STEP_RECORD; i++)
        s->step_ms += s->ms[i];
    s->tok_s = s->step_ms > 0 ? 1e3 * t->rows / s->step_ms : 0;
    s->mfu = account_mfu(&t->account, t->flops / ranks_size(), s->step_ms);
    t->state.seconds += s->step_ms / 1e3;
    update_shares(t);
}

static int every(int64_t step, int64_t n)
{
    return step % n == 0;
}

static int logs_layers(const struct trainer *t, int64_t step)
{
    const struct train_options *o = &t->config.train;
    return every(step, o->layer_every) || step == o->steps;
}

/* Norms over the parameters of each block, adapters included; routers are in router_norm. */
static void measure_layers(struct trainer *t, int is_updated)
{
    struct step_report *s = &t->report;
    const struct params *ps = &t->model->params;
    for (int l = 0; l < s->layers; l++) {
        double grad = 0, update = 0, value = 0;
        char prefix[40];
        size_t n = (size_t)snprintf(prefix, sizeof prefix, "model.layers.%d.",
                                    model_config_block(&t->model->config, l));
        for (int i = 0; i < ps->n; i++) {
            const struct param *p = &ps->p[i];
            if (strncmp(p->name, prefix, n) != 0 || !p->grad || p->lr <= 0)
                continue;
            grad += p->grad_squares;
            update += is_updated ? p->update_squares : 0;
            value += is_updated ? p->value_squares : 0;
        }
        s->layer[LAYER_GRAD_NORM][l] = sqrt(grad);
        s->layer[LAYER_UPDATE_RATIO][l] = value > 0 ? sqrt(update / value) : 0;
    }
}

/* A step with NaN or Inf, or without targets, leaves the weights untouched and is counted. */
static int train_step(struct trainer *t, struct err *e)
{
    const struct train_options *o = &t->config.train;
    struct step_report *s = &t->report;
    account_enter(&t->account, STEP_DATA);
    t->team.before = ranks_account();
    step_report_reset(s);
    s->step = t->state.step + 1;
    s->lr = lr_at(o, s->step);
    s->time_ratio = (double)NAN;
    loader_read(t->train, &t->state.pos, (int)o->batch,
                &(struct loader_rows){.input = t->input,
                                      .target = t->target,
                                      .doc_start = t->doc_start,
                                      .private_start = t->private_start});
    int rc = loader_check(t->train, e);
    if (rc < 0)
        return rc;
    rc = forward_backward(t, e);
    if (rc < 0)
        return rc;
    struct grad_health h = params_grad_health_part(&t->model->params, shard_part(t));
    s->grad_norm = h.norm;
    s->router_norm = h.router_norm;
    int is_empty = count_targets(t) == 0; /* data.loss=answers: the loss is undefined */
    s->is_bad =
        !is_empty && (h.bad > 0 || !isfinite(s->loss + s->kd + s->exit) || !isfinite(h.norm));
    s->first_bad = h.first_bad;
    if (!s->is_bad && !is_empty) {
        struct adamw a = {.lr = s->lr,
                          .beta1 = o->beta1,
                          .beta2 = o->beta2,
                          .eps = 1e-8,
                          .weight_decay = o->weight_decay,
                          .router_lr = o->router_lr,
                          .clip = o->clip,
                          .measure = logs_layers(t, s->step)};
        adamw_step_part(&t->model->params, &a, s->step - t->state.skipped, &h, shard_part(t));
        if ((rc = shard_spread(t, e)) < 0)
            return rc;
        if (t->model->route.ops->update)
            t->model->route.ops->update(&t->model->route);
    } else {
        params_zero_grad(&t->model->params);
    }
    if (logs_layers(t, s->step))
        measure_layers(t, !s->is_bad && !is_empty);
    t->state.step = s->step;
    t->state.tokens += o->batch * o->seq;
    t->state.skipped += s->is_bad || is_empty;
    s->tokens = t->state.tokens;
    s->skipped = t->state.skipped;
    t->state.bad_in_row = s->is_bad ? t->state.bad_in_row + 1 : 0;
    close_account(t);
    rc = team_report_step(t, e);
    if (rc < 0 || !s->is_bad)
        return rc;
    char text[200];
    snprintf(text, sizeof text, "loss %g; first tensor with NaN or Inf: %s; weights untouched",
             s->loss, h.first_bad ? h.first_bad : "none (the loss itself)");
    return trainer_log_event(t, LOG_WARN, "nan", text, e);
}

/* Decides whether the checkpoint about to be written becomes the best one.  For a model that skips
 * it is always the newest: schedules and thresholds settle last, and the loss alone would favour
 * the checkpoint that skips least. */
static void note_best(struct trainer *t)
{
    double loss = t->report.val_loss, guess = log((double)t->model->config.vocab);
    int skips = (t->model->route.ops->flags & ROUTE_GATED) != 0;
    /* a newer model with a loss above a uniform guess has diverged */
    int is_newer = skips && isfinite(loss) && (loss < guess || t->state.best_step < 0);
    if (t->report.has_val && (is_newer || loss < t->state.best_loss)) {
        t->state.best_loss = t->report.val_loss;
        t->state.best_step = t->state.step;
    }
}

static void show_phase(const struct trainer *t, const char *what)
{
    if (t->on_phase)
        t->on_phase(t->ctx, t, what);
}

/* Rank 0 calls the others, which do the same; they are inside it together until it is over. */
static int call_all(struct trainer *t, enum team_order order, struct err *e)
{
    return team_follows() ? 0 : team_order(t, order, e);
}

static int evaluate(struct trainer *t, int final, struct err *e)
{
    if (!t->val)
        return 0;
    show_phase(t, final ? "final evaluation" : "evaluation");
    int was = account_enter(&t->account, ACCOUNT_EVALUATION);
    int rc = call_all(t, final ? TEAM_EVALUATE_LAST : TEAM_EVALUATE, e);
    if (rc == 0)
        rc = trainer_evaluate(t, final, e);
    account_enter(&t->account, was);
    return rc;
}

static int probe(struct trainer *t, struct err *e)
{
    int was = account_enter(&t->account, ACCOUNT_EVALUATION);
    t->wants_probe = 0;
    int rc = call_all(t, TEAM_PROBE, e);
    t->team.in_step = rc == 0;
    if (rc == 0)
        rc = trainer_log_probes(t, e);
    t->team.in_step = rc < 0;
    account_enter(&t->account, was);
    return rc;
}

static int save_now(struct trainer *t, struct err *e)
{
    struct err why = {0};
    int was = account_enter(&t->account, ACCOUNT_CHECKPOINT);
    char text[600];
    int rc = 0;
    t->checkpoint_requested = 0;
    if (t->team.shard &&
        ((rc = team_order(t, TEAM_COLLECT, e)) < 0 || (rc = shard_collect(t, e)) < 0))
        return rc;
    int is_sound = trainer_check_finite(t, &why) == 0;
    if (is_sound && !t->report.has_val && t->val) {
        rc = evaluate(t, 0, e);
        is_sound = trainer_check_finite(t, &why) == 0;
    }
    int64_t best_step = t->state.best_step;
    double best_loss = t->state.best_loss;
    if (is_sound)
        note_best(t);
    if (rc == 0) { /* a failed save does not end training: the next one tries again */
        show_phase(t, "writing the checkpoint");
        int saved = is_sound ? trainer_save(t, &why) : DS_ENUMERIC;
        t->save_failed = saved < 0;
        if (t->save_failed) { /* a missing checkpoint cannot be the best */
            t->state.best_step = best_step;
            t->state.best_loss = best_loss;
        } else {
            t->saved_step = t->state.step;
        }
        if (!is_sound)
            err_add(&why, why.code, "not saved");
        shard_drop(t);
        snprintf(text, sizeof text, "%s",
                 t->save_failed ? why.text
                 : saved > 0    ? "kept: the checkpoint of this step is there already"
                                : "saved");
        rc = trainer_log_event(t, t->save_failed ? LOG_ERROR : LOG_INFO, "checkpoint", text, e);
    }
    account_enter(&t->account, was);
    return rc;
}

static int after_step(struct trainer *t, struct err *e)
{
    const struct train_options *o = &t->config.train;
    int64_t step = t->state.step;
    int rc = 0, last = step == o->steps;
    rc = trainer_home_check(t, e);
    if (rc == 0 && logs_layers(t, step))
        rc = trainer_log_layers(t, e);
    /* after a NaN step the weights may be bad: delay the checkpoint by a step */
    t->checkpoint_requested |= every(step, o->checkpoint_every);
    int saves = last || (t->checkpoint_requested && t->state.bad_in_row == 0);
    if (rc == 0 && !last && (every(step, o->eval_every) || saves))
        rc = evaluate(t, 0, e);
    if (rc == 0 && last)
        rc = evaluate(t, 1, e);
    if (rc == 0 && (every(step, o->probe_every) || last || t->wants_probe))
        rc = probe(t, e);
    update_shares(t);
    /* before the checkpoint, so that a run killed after it has logged this step */
    if (rc == 0 && (every(step, o->log_every) || t->report.has_val || last || t->report.is_bad))
        rc = trainer_log_step(t, e);
    if (rc == 0)
        rc = team_log(t, e);
    if (rc == 0)
        rc = trainer_log_system(t, e);
    if (rc == 0 && saves)
        rc = save_now(t, e);
    if (t->on_step)
        t->on_step(t->ctx, t);
    return rc;
}

/* Executes commands; blocks while paused. */
static int run_commands(struct trainer *t, struct err *e)
{
    const struct control_calls calls = {trainer_command_run, trainer_command_done, t};
    int rc = 0;
    do {
        account_enter(&t->account, t->is_paused ? ACCOUNT_PAUSE : STEP_RECORD);
        trainer_set_status(t);
        control_poll(t->control, t->is_paused ? 0.1 : 0, &calls);
        int asked = SIGNAL_CHECKPOINT;
        if (atomic_compare_exchange_strong(t->stop_signal, &asked, 0))
            t->checkpoint_requested = 1;
        else if (asked)
            t->wants_stop = 1;
        if (t->is_paused)
            alert_hold(&t->alerts, clock_wall());
        if (t->is_paused)
            rc = trainer_home_check(t, e);
        if (rc == 0 && t->is_paused && t->checkpoint_requested && t->state.bad_in_row == 0)
            rc = save_now(t, e);
        if (rc == 0 && t->is_paused && t->wants_probe)
            rc = probe(t, e);
        if (rc == 0 && t->is_paused && !t->wants_stop)
            rc = team_order(t, TEAM_WAIT, e);
    } while (rc == 0 && t->is_paused && !t->wants_stop);
    account_enter(&t->account, STEP_RECORD);
    return rc;
}

/* Appends the command that resumes a failed run. */
static void say_how_to_resume(const struct trainer *t, int is_same_lr, struct str *out)
{
    char now[1024];
    trainer_home_now(t, now, sizeof now);
    if (t->saved_step < 0) {
        str_addf(out, "no checkpoint yet; start again with a lower train.lr (was %g)",
                 t->config.train.lr);
        return;
    }
    str_addf(out, "last good checkpoint: step %" PRId64 ": depthscope train --resume %s",
             t->saved_step, now);
    if (is_same_lr) /* the same steps would fail again */
        str_addf(out, " --allow-change train.lr=%.3g", t->config.train.lr / 10);
    if (t->state.best_step >= 0 && t->state.best_step != t->saved_step)
        str_addf(out, " (or --from best: step %" PRId64 ")", t->state.best_step);
}

static int stop_early(struct trainer *t, struct err *e)
{
    int rc = t->state.step > 0 ? save_now(t, e) : 0, lost = t->save_failed;
    if (rc == 0)
        rc = trainer_log_end(t, "stopped",
                             lost ? "on request; the checkpoint failed" : "on request", e);
    if (rc < 0)
        return rc;
    return lost ? err_set(e, DS_EIO,
                          "stopped at step %" PRId64 "; its checkpoint could not be written",
                          t->state.step)
                : err_set(e, DS_ESTOP, "stopped at step %" PRId64, t->state.step);
}

/* The weights of the last finite step led to the failure, so they are not saved, and live settings
 * made since the last checkpoint are reverted: a resume starts from before the failure. */
static int give_up(struct trainer *t, struct err *e)
{
    struct str text = {0}, back = {0};
    str_addf(&text,
             "%" PRId64 " consecutive steps had NaN or Inf (train.nan_limit) and are not saved; ",
             t->state.bad_in_row);
    int rc = trainer_log_step(t, e);
    if (t->on_step)
        t->on_step(t->ctx, t);
    if (rc == 0)
        rc = trainer_revert_live(t, t->saved_step, &back, e);
    if (back.len)
        str_addf(&text, "reverted: %s; ", str_text(&back));
    say_how_to_resume(t, !back.len, &text);
    if (rc == 0 && (text.failed || back.failed))
        rc = err_set(e, DS_EMEM, "out of memory for the message of %s", t->name);
    if (rc == 0)
        rc = trainer_log_end(t, "failed", str_text(&text), e);
    if (rc == 0)
        rc = err_set(e, DS_ENUMERIC, "step %" PRId64 ": %s", t->state.step, str_text(&text));
    str_release(&text);
    str_release(&back);
    return rc;
}

/* After an error outside the model: saves what can be saved and logs the failure.  A step without
 * its records is not saved: a resume would go on behind them, and the last step would have no final
 * evaluation. */
static int last_words(struct trainer *t, int rc, struct err *e)
{
    struct err ignored = {0};
    /* inside a step that several ranks share, the position in the data is that of the next one */
    if (t->state.step > 0 && !t->is_partial && !(t->team.in_step && ranks_size() > 1) &&
        !t->team.shard && trainer_check_finite(t, &ignored) == 0 && trainer_save(t, &ignored) >= 0)
        log_warn("step %" PRId64 " is saved", t->state.step);
    if (!trainer_home_is_missing(t) && trainer_log_end(t, "failed", e->text, &ignored) < 0)
        log_warn("%s", ignored.text);
    return rc;
}

static int end_done(struct trainer *t, struct err *e)
{
    struct str text = {0};
    if (t->save_failed) {
        str_add(&text, "the last checkpoint failed; ");
        say_how_to_resume(t, 0, &text);
    }
    int rc = trainer_log_end(t, t->save_failed ? "failed" : "done", str_text(&text), e);
    str_release(&text);
    return rc == 0 && t->save_failed
               ? err_set(e, DS_EIO, "the last checkpoint could not be written; see the log of %s",
                         t->name)
               : rc;
}

static int take_step(struct trainer *t, struct err *e)
{
    int64_t step = t->state.step;
    struct loader_pos pos = t->state.pos;
    t->team.in_step = 1;
    int rc = train_step(t, e);
    t->team.in_step = rc < 0; /* the others cannot go on from there */
    t->is_partial = t->state.step > step;
    if (!t->is_partial)
        t->state.pos = pos; /* its data is not used up */
    return rc;
}

static int run_steps(struct trainer *t, struct err *e)
{
    int rc = 0;
    account_begin(&t->account);
    if (t->config.train.system_every > 0 && !t->machine)
        t->machine = machine_watch_start(t->dir, t->config.train.system_every);
    if (t->state.step == 0)
        rc = probe(t, e);
    while (rc == 0 && t->state.step < t->config.train.steps) {
        rc = run_commands(t, e);
        if (rc == 0 && t->wants_stop)
            return stop_early(t, e);
        if (rc == 0)
            rc = team_order(t, TEAM_STEP, e);
        if (rc == 0)
            rc = take_step(t, e);
        if (rc == 0 && t->state.bad_in_row >= t->config.train.nan_limit)
            return give_up(t, e);
        if (rc == 0)
            rc = after_step(t, e);
        t->is_partial = t->is_partial && rc < 0;
    }
    if (rc < 0)
        return last_words(t, rc, e);
    rc = end_done(t, e);
    return rc == 0 ? trainer_home_check(t, e) : rc;
}

int trainer_run(struct trainer *t, struct err *e)
{
    struct err ignored = {0};
    t->team.is_running = 1;
    int rc = run_steps(t, e);
    if (rc < 0 && t->team.in_step)
        ranks_fail(e->text);
    else
        t->team.in_step = team_order(t, TEAM_END, &ignored) < 0;
    return rc;
}

int trainer_follow(struct trainer *t, struct err *e)
{
    enum team_order order = TEAM_WAIT;
    int rc = 0;
    account_begin(&t->account);
    while (rc == 0 && order != TEAM_END) {
        account_enter(&t->account, STEP_RECORD);
        rc = team_await(t, &order, e);
        if (rc == 0 && order == TEAM_STEP)
            rc = train_step(t, e);
        if (rc == 0 && order == TEAM_COLLECT)
            rc = shard_collect(t, e);
        if (rc == 0 && (order == TEAM_EVALUATE || order == TEAM_EVALUATE_LAST))
            rc = evaluate(t, order == TEAM_EVALUATE_LAST, e);
        if (rc == 0 && order == TEAM_PROBE)
            rc = probe(t, e);
    }
    if (rc < 0)
        ranks_fail(e->text);
    t->team.in_step = rc < 0;
    return rc;
}

/* Rank 0 alone. */
static int open_home(struct trainer *t, int resume, struct err *e)
{
    char path[1100];
    int rc = trainer_home_open(&t->home, t->dir, e);
    if (rc < 0 || (rc = fs_join(path, sizeof path, t->dir, "log.mp", e)) < 0)
        return rc;
    rc = runlog_writer_open(&t->log, path, e); /* lock before anything is changed */
    if (rc < 0 || (rc = trainer_home_identify(t, resume, e)) < 0)
        return rc;
    /* before a damaged meta.json is written again; the log knows the parent as well */
    fork_read_parent(t->dir, t->parent, sizeof t->parent);
    if (!t->parent[0])
        str_copy(t->parent, sizeof t->parent, runlog_writer_parent(t->log));
    return 0;
}

static int open_data(struct trainer *t, struct err *e)
{
    int rc = team_agree(pool_start((int)t->config.run.threads, e), e);
    return rc == 0 ? team_agree(trainer_setup(t, e), e) : rc;
}

static int open_weights(struct trainer *t, int resume, int allow_change, struct err *e)
{
    int rc = resume ? trainer_restore(t, allow_change, e) : start_weights(t, e);
    if (rc < 0 || (rc = trainer_find_base(t, e)) < 0 || (rc = trainer_prepare_weights(t, e)) < 0)
        return rc;
    t->report.lr = lr_at(&t->config.train, t->state.step > 0 ? t->state.step : 1);
    return 0;
}

/* Rank 0 alone. */
static int begin_log(struct trainer *t, int resume, struct err *e)
{
    int rc = trainer_listen(t, e);
    if (rc < 0)
        return rc;
    if (t->config.train.system_every > 0)
        account_measure(&t->account, t->config.run.compute ? PEAK_BF16 : PEAK_FP32);
    if (resume) {
        fs_temp_sweep(t->dir); /* of a writer that was killed */
        rc = trainer_repair(t, e); /* the changed configuration applies from now on */
        if (rc < 0)
            return rc;
    }
    rc = trainer_log_head(t, resume, e);
    if (rc == 0 && resume)
        rc = trainer_log_event(t, t->resumed_level, "resume", t->resumed_from, e);
    if (rc == 0 && t->live_differs)
        rc = trainer_log_live(t, e);
    if (rc == 0 && t->started[0])
        rc = trainer_log_event(t, LOG_INFO, "init", t->started, e);
    return rc;
}

int trainer_open(struct trainer *t, const char *dir, struct train_config *config, int resume,
                 int allow_change, struct err *e)
{
    static atomic_int no_signal;
    const char *slash = strrchr(dir, '/');
    t->config = *config;
    memset(config, 0, sizeof *config);
    alert_watch_init(&t->alerts, &t->config.alert);
    t->state.best_step = -1;
    t->state.best_loss = (double)INFINITY;
    t->saved_step = -1;
    if (!t->stop_signal)
        t->stop_signal = &no_signal;
    str_copy(t->dir, sizeof t->dir, dir);
    str_copy(t->name, sizeof t->name, slash ? slash + 1 : dir);
    t->home = -1;
    int rc = team_agree(team_follows() ? 0 : open_home(t, resume, e), e);
    if (rc == 0 && (rc = open_data(t, e)) == 0)
        rc = team_agree(open_weights(t, resume, allow_change, e), e);
    if (rc == 0)
        rc = team_compare(t, e);
    if (rc == 0)
        rc = team_agree(shard_begin(t, e), e);
    if (rc == 0)
        rc = ranks_watch(t->config.train.rank_timeout, e);
    if (rc == 0)
        rc = team_agree(team_follows() ? 0 : begin_log(t, resume, e), e);
    if (rc < 0)
        trainer_close(t);
    return rc;
}

static void release_probes(struct trainer *t)
{
    for (int i = 0; i < t->probes; i++) {
        mem_free(t->probe[i].id);
        mem_free(t->probe[i].piece);
        mem_free(t->probe[i].piece_len);
        mem_free(t->probe[i].true_entropy);
        mem_free(t->probe[i].needed);
        mem_free(t->probe[i].token_class);
        mem_free(t->probe[i].private_start);
    }
    mem_free(t->probe);
}

void trainer_close(struct trainer *t)
{
    machine_watch_stop(t->machine);
    alert_watch_release(&t->alerts);
    control_close(t->control);
    runlog_writer_close(t->log);
    trainer_home_close(t->home);
    release_probes(t);
    record_free(t->record);
    step_report_release(&t->report);
    pieces_release(&t->pieces);
    shard_release(t);
    mem_free(t->team.all);
    mem_free(t->input);
    mem_free(t->target);
    mem_free(t->doc_start);
    mem_free(t->private_start);
    mem_free(t->true_entropy);
    mem_free(t->needed);
    mem_free(t->class_of);
    mem_free(t->target_class);
    mem_free(t->token_class);
    mem_free(t->exit_weight);
    mem_free(t->expert_load);
    if (t->model)
        distill_free(t->model->distill);
    model_free(t->model);
    model_free(t->teacher);
    loader_close(t->train);
    loader_close(t->val);
    tokenizer_free(t->tokenizer);
    corpus_close(t->corpus);
    train_config_release(&t->config);
    pool_stop();
    memset(t, 0, sizeof *t);
}
