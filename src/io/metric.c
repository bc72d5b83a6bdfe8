/* The table of a training step's metrics, and what is generated from it. */
#include "io/metric.h"

#include <math.h>
#include <stdio.h>
#include <ctype.h>
#include <string.h>

#include "base/mem.h"

#define AT(field) offsetof(struct step_report, field)

/* clang-format off */
const struct run_metric run_metrics[] = {
    {"tokens", "tokens", "Training data", "training tokens so far", AT(tokens), 0, METRIC_INTEGER | METRIC_EXACT | METRIC_NO_CHART},
    {"loss", "nats/token", "Training loss", "training loss", AT(loss), 0, 0, "-(1/N) sum_t log p(token t | tokens before t)"},
    {"lr", "", "Learning rate", "learning rate", AT(lr), 0, METRIC_EXACT},
    {"grad_norm", "", "Gradient norm", "global norm of the gradients before clipping", AT(grad_norm), 0, 0, "sqrt(sum of g^2 over all trained parameters)"},
    {"router_norm", "", "Router gradient norm", "gradient norm of thresholds and routers", AT(router_norm), 0, 0, "sqrt(sum of g^2 over the parameters of the method)"},
    {"tok_s", "tokens/s", "Training speed", "training speed", AT(tok_s), 0, 0, "train.batch * train.seq / (step_ms / 1000)"},
    {"step_ms", "ms", "Step time", "duration of a training step, excluding time_record", AT(step_ms), 0, 0, "time_forward + time_loss + time_backward + time_optimizer + time_data"},
    {"aux_loss", "nats/token", "Auxiliary loss", "auxiliary loss of the method", AT(aux), 0, 0},
    {"kd_loss", "nats/token", "Distillation loss", "T^2 KL(teacher || student); loss is the cross-entropy alone", AT(kd), AT(has_kd), 0, "T^2 * KL(softmax(teacher / T) || softmax(student / T))"},
    {"exit_loss", "nats/token", "Exit losses", "weighted sum of the losses of this step's early exits; loss is that of the last layer alone", AT(exit), AT(has_exit), 0, "sum over exits l before the last layer of w(l) * -(1/N) sum_t log p(token t | h after layer l)"},
    {"block_ratio", "", "Executed blocks (fraction of dense)", "executed cells / all cells (decisions; masked training computes all)", AT(block_ratio), 0, 0, "sum over layers and tokens of executed / (layers * tokens)"},
    {"flops_ratio", "", "FLOPs (fraction of dense)", "FLOPs of the decisions / FLOPs of the dense model, head included", AT(flops_ratio), 0, 0, "FLOPs of the executed cells and the head / FLOPs with every cell executed"},
    {"skipped_steps", "", "Skipped steps", "steps skipped for NaN or Inf, or for lack of answers (data.loss=answers)", AT(skipped), 0, METRIC_INTEGER | METRIC_EXACT},
    {"time_forward", "ms", "Forward pass", "embedding, routing decisions and blocks", AT(ms[STEP_FORWARD]), 0, METRIC_PART},
    {"time_loss", "ms", "Head and loss", "head and cross-entropy, with the head's gradients", AT(ms[STEP_LOSS]), 0, METRIC_PART},
    {"time_backward", "ms", "Backward pass", "backward pass of the blocks, recomputation included", AT(ms[STEP_BACKWARD]), 0, METRIC_PART},
    {"time_optimizer", "ms", "Optimiser", "gradient checks and AdamW", AT(ms[STEP_OPTIMIZER]), 0, METRIC_PART},
    {"time_data", "ms", "Data loading", "loader", AT(ms[STEP_DATA]), 0, METRIC_PART},
    {"time_record", "ms", "Recording", "records, control and progress: mean per step since the previous record", AT(ms[STEP_RECORD]), 0, METRIC_PART},
    {"mfu", "", "Model FLOPs utilisation", "model FLOPs utilisation: FLOPs of the step's matrix multiplications / peak FLOPs in step_ms", AT(mfu), 0, METRIC_IF_FINITE, "FLOPs of the matrix multiplications of a step / (step_ms * measured peak)"},
    {"evaluation_share", "", "Evaluation (share of run time)", "share of the time since start or resume, excluding pauses", AT(evaluation_share), 0, METRIC_NO_CHART},
    {"checkpoint_share", "", "Checkpoints (share of run time)", "share of the time since start or resume, excluding pauses", AT(checkpoint_share), 0, METRIC_NO_CHART},
    {"val_loss", "nats/token", "Validation loss", "validation loss with causal decisions and real skipping", AT(val_loss), AT(has_val), 0, "-(1/N) sum_t log p(token t | tokens before t) on held-out text"},
    {"bits_per_byte", "bits/byte", "Validation loss", "validation loss per byte of text", AT(bits_per_byte), AT(has_val), 0, "val_loss * tokens / (bytes * ln 2)"},
    {"time_ratio", "", "Time (fraction of dense)", "measured: seconds of sparse prefill / dense prefill in this process", AT(time_ratio), AT(has_val), METRIC_IF_FINITE | METRIC_VALIDATION, "seconds of sparse prefill / seconds of dense prefill, same text"},
    {"gate_ratio", "", "Executed rows (fraction)", "share of executed rows", AT(layer[LAYER_GATE_RATIO]), 0, METRIC_PER_LAYER, "executed rows of the layer / all rows"},
    {"layer_grad_norm", "", "Gradient norm", "gradient norm of the block's parameters before clipping", AT(layer[LAYER_GRAD_NORM]), 0, METRIC_PER_LAYER, "sqrt(sum of g^2 over the parameters of the block)"},
    {"layer_update_ratio", "", "Update norm / weight norm", "norm of the AdamW update of the block's trained parameters / their norm before it", AT(layer[LAYER_UPDATE_RATIO]), 0, METRIC_PER_LAYER, "|update| / |weights|"},
    {"layer_exit_loss", "nats/token", "Validation loss by exit", "validation loss of the final norm and head after this layer, of runs with train.exit_loss; NaN without an exit", AT(layer[LAYER_EXIT_LOSS]), 0, METRIC_PER_LAYER | METRIC_VALIDATION, "-(1/N) sum_t log p(token t | h after the layer) on held-out text"},
    {NULL, NULL, NULL, NULL, 0, 0, 0},
};
/* clang-format on */

int step_report_init(struct step_report *r, int layers, struct err *e)
{
    double *block = mem_alloc((size_t)layers * STEP_LAYERS, sizeof *block);
    if (!block)
        return err_set(e, DS_EMEM, "out of memory for the metrics of %d layers", layers);
    r->layers = layers;
    for (int i = 0; i < STEP_LAYERS; i++)
        r->layer[i] = block + (size_t)i * (size_t)layers;
    return 0;
}

void step_report_release(struct step_report *r)
{
    mem_free(r->layer[0]);
    *r = (struct step_report){0};
}

void step_report_reset(struct step_report *r)
{
    struct step_report next = {.layers = r->layers};
    memcpy(next.layer, r->layer, sizeof next.layer);
    *r = next;
}

const struct run_metric *run_metric_find(const char *name)
{
    for (const struct run_metric *m = run_metrics; m->name; m++)
        if (strcmp(m->name, name) == 0)
            return m;
    return NULL;
}

const char *run_metric_scope(const struct run_metric *m)
{
    return m->flags & METRIC_PER_LAYER ? "layer" : "step";
}

const char *run_metric_part(const struct run_metric *m)
{
    return m->name + strlen("time_");
}

int run_metric_value(const struct run_metric *m, const struct step_report *r, double *out)
{
    const char *base = (const char *)r;
    int64_t whole;
    int is_present = 1;
    if (m->flags & METRIC_PER_LAYER)
        return 0;
    if (m->when)
        memcpy(&is_present, base + m->when, sizeof is_present);
    memcpy(&whole, base + m->offset, sizeof whole);
    memcpy(out, base + m->offset, sizeof *out);
    if (m->flags & METRIC_INTEGER)
        *out = (double)whole;
    return is_present && !(m->flags & METRIC_IF_FINITE && !isfinite(*out));
}

const double *run_metric_layers(const struct run_metric *m, const struct step_report *r)
{
    const double *v;
    if (!(m->flags & METRIC_PER_LAYER))
        return NULL;
    memcpy(&v, (const char *)r + m->offset, sizeof v);
    return v;
}

void run_metric_label(char *out, size_t size, const char *name, const char *unit)
{
    const struct run_metric *m = run_metric_find(name);
    if (m && !unit[0])
        unit = m->unit;
    snprintf(out, size, unit[0] ? "%s (%s)" : "%s", m ? m->label : name, unit);
}

/* ---- records and JSON ---- */

int metric_is_gain(const char *name)
{
    static const char *const parts[] = {"acc",    "tok_s", "exact_match", "precision",
                                        "recall", "_f1",   "mfu"};
    for (size_t i = 0; i < DS_LEN(parts); i++)
        if (strstr(name, parts[i]))
            return 1;
    return 0;
}

void metric_row_record(struct record *r, const char *name, const char *unit, const char *help,
                       const char *scope)
{
    record_map(r, NULL);
    record_str(r, "name", name);
    record_str(r, "unit", unit);
    record_str(r, "help", help);
    record_str(r, "scope", scope);
    record_close(r);
}

void run_metrics_record(struct record *r)
{
    for (const struct run_metric *m = run_metrics; m->name; m++)
        metric_row_record(r, m->name, m->unit, m->help, run_metric_scope(m));
}

void step_report_record(const struct step_report *s, struct record *r)
{
    double x;
    for (const struct run_metric *m = run_metrics; m->name; m++) {
        if (!run_metric_value(m, s, &x))
            continue;
        if (m->flags & METRIC_INTEGER)
            record_int(r, m->name, (int64_t)x);
        else
            record_num(r, m->name, x);
    }
}

static void record_layers(const struct step_report *s, struct record *r, unsigned kind)
{
    for (const struct run_metric *m = run_metrics; m->name; m++)
        if (run_metric_layers(m, s) && (m->flags & METRIC_VALIDATION) == kind)
            record_nums(r, m->name, run_metric_layers(m, s), (size_t)s->layers);
}

void step_report_record_layers(const struct step_report *s, struct record *r)
{
    record_layers(s, r, 0);
}

void step_report_record_validation(const struct step_report *s, struct record *r)
{
    record_layers(s, r, METRIC_VALIDATION);
}

/* Writes spaces after the separators, as the objects of every version have them. */
static void json_member(struct str *out, const char *before, const char *name, double x)
{
    str_addf(out, "%s\"%s\": ", before, name);
    str_add_json_num(out, x);
}

void step_report_json(const struct step_report *s, struct str *out)
{
    double x, whole = s->step_ms + s->ms[STEP_RECORD];
    const char *before = "";
    json_member(out, "", "step", (double)s->step);
    for (const struct run_metric *m = run_metrics; m->name; m++)
        if (run_metric_value(m, s, &x))
            json_member(out, ", ", m->name, x);
    str_add(out, ", \"share\": {");
    for (const struct run_metric *m = run_metrics; m->name; m++)
        if (m->flags & METRIC_PART && run_metric_value(m, s, &x)) {
            json_member(out, before, run_metric_part(m), whole > 0 ? x / whole : 0);
            before = ", ";
        }
    str_add(out, "}");
}

/* ---- what other programs call them ---- */

const char *metric_canonical(const char *name, int *rank)
{
    static const struct {
        const char *canonical, *names; /* lower case, one separator, most telling first */
    } row[] = {
        // clang-format off
        {"loss",      "train_loss loss_train training_loss loss_training train_lm_loss lm_loss loss_lm train_ce_loss "
                      "train_cross_entropy train_total_loss total_loss tr_loss trl ce_loss cross_entropy nll_loss train_loss_step epoch_loss batch_loss"},
        {"val_loss",  "eval_loss loss_eval loss_val valid_loss loss_valid validation_loss loss_validation tel eval "
                      "lm_loss_validation validation_lm_loss dev_loss test_loss loss_test val_ce_loss epoch_val_loss"},
        {"lr",        "learning_rate train_learning_rate train_lr lr_adamw lr_adam lr_sgd optimizer_lr lr_group_0 learning_rate_group_0"},
        {"grad_norm", "train_grad_norm gradient_norm gradnorm grad_norm_total total_grad_norm norm train_gradient_norm train_grad_norm_before_clip"},
        {"tok_s",     "tokens_per_second tokens_per_sec train_tokens_per_second tok_per_sec tokens_s tps train_tokens_per_sec performance_tokens_per_second"},
        {"tokens",    "num_input_tokens_seen tokens_seen train_tokens num_tokens total_tokens consumed_tokens"},
        {"mfu",       "train_mfu perf_mfu"},
        // clang-format on
    };
    char plain[64];
    size_t n = 0;
    for (const char *p = name; *p && n < sizeof plain - 1; p++) {
        int is_letter = isalnum((unsigned char)*p);
        if (is_letter)
            plain[n++] = (char)tolower((unsigned char)*p);
        else if (n > 0 && plain[n - 1] != '_')
            plain[n++] = '_';
    }
    n -= n > 0 && plain[n - 1] == '_';
    plain[n] = '\0';
    for (size_t i = 0; i < DS_LEN(row); i++) {
        int k = 1;
        if (strcmp(plain, row[i].canonical) == 0) {
            *rank = 0;
            return strcmp(name, plain) == 0 ? NULL : row[i].canonical;
        }
        for (const char *w = row[i].names; *w; k++) {
            size_t len = strcspn(w, " ");
            if (len == n && memcmp(w, plain, n) == 0) {
                *rank = k;
                return row[i].canonical;
            }
            w += len + strspn(w + len, " ");
        }
    }
    return NULL;
}
