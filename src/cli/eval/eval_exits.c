/* Table, JSON and records of depthscope eval exit.layer=FIRST..LAST: loss and cost over exits. */
#include "cli/eval/eval_exits.h"

#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "cli/records.h"
#include "cli/cli.h"
#include "cli/version.h"

#define AT(field) offsetof(struct exit_row, field)
static const struct {
    const char *key, *title; /* no title: not in the table */
    size_t offset;
    int digits, is_optional; /* optional: no column where no row knows it */
} columns[] = {
    {"loss", "loss", AT(loss), 4, 0},
    {"bits_per_byte", "bits/byte", AT(bits_per_byte), 4, 1},
    {"accuracy", "accuracy", AT(accuracy), 3, 0},
    {"answer_accuracy", "answers", AT(answer_accuracy), 3, 1},
    {"answer_loss", "their loss", AT(answer_loss), 4, 1},
    {"depth_mean", "depth", AT(depth_mean), 2, 0},
    {"block_ratio", "blocks", AT(block_ratio), 3, 0},
    {"flops_ratio", "FLOPs", AT(flops_ratio), 3, 0},
    {"flops_dense_per_token", NULL, AT(flops_dense_per_token), 0, 1},
    {"time_ratio", "prefill time", AT(time_ratio), 3, 1},
    {"decode_time_ratio", "decode time", AT(decode_time_ratio), 3, 1},
    {"prefill_ms", "prefill ms", AT(prefill_ms), 3, 1},
    {"decode_ms", "decode ms", AT(decode_ms), 3, 1},
};
#undef AT

static double value_of(const struct exit_row *r, size_t column)
{
    return *(const double *)((const char *)r + columns[column].offset);
}

static int is_shown(const struct exit_table *t, size_t column)
{
    int known = !columns[column].is_optional;
    for (size_t i = 0; i < t->n; i++)
        known |= !isnan(value_of(&t->row[i], column));
    return known && columns[column].title;
}

void exit_table_print(struct str *out, const struct subject *s, const struct ppl_options *o,
                      const struct exit_table *t)
{
    struct table grid;
    size_t shown = 1;
    for (size_t c = 0; c < DS_LEN(columns); c++)
        shown += (size_t)is_shown(t, c);
    cli_add_safe(out, s->dir, strlen(s->dir), -1);
    str_addf(out, ": %s, %s routing, cut after its first layers, on ", s->model->config.method,
             ppl_routing_name[o->routing]);
    cli_add_safe(out, t->data, strlen(t->data), -1);
    str_addf(out, " (%.0f tokens)\n", t->tokens);
    table_init(&grid, shown);
    table_add(&grid, "exit");
    for (size_t c = 0; c < DS_LEN(columns); c++)
        if (is_shown(t, c))
            table_add(&grid, columns[c].title);
    for (size_t i = 0; i < t->n; i++) {
        table_addf(&grid, "%d", t->row[i].layers);
        for (size_t c = 0; c < DS_LEN(columns); c++) {
            double x = value_of(&t->row[i], c);
            if (is_shown(t, c) && isnan(x))
                table_add(&grid, "-");
            else if (is_shown(t, c))
                table_addf(&grid, "%.*f", columns[c].digits, x);
        }
    }
    table_print(&grid, out);
    table_release(&grid);
    str_add(out, "FLOPs and times are shares of the dense model with all layers; ms per token, "
                 "decoding at batch 1 with a KV cache\n");
}

/* The deepest k that some answer needs. */
static int needed_of(const struct exit_row *r)
{
    int n = MEASURE_NEEDED_MAX;
    while (n > 0 && r->by_needed[n - 1].n == 0)
        n--;
    return n;
}

static void add_by_k(struct str *out, const struct exit_row *r, const char *key, int is_loss)
{
    int n = needed_of(r);
    if (n == 0)
        return;
    json_key(out, key);
    str_add(out, "[");
    for (int k = 0; k < n; k++) {
        const struct measure_part *p = &r->by_needed[k];
        json_add_num(out, NULL, (is_loss ? p->nll : p->correct) / p->n);
    }
    str_add(out, "]");
}

void exit_table_json(struct str *out, const struct subject *s, const struct ppl_options *o,
                     const struct exit_table *t)
{
    str_add(out, "{");
    json_add_str(out, "task", "exits");
    json_add_str(out, "routing", ppl_routing_name[o->routing]);
    json_add_str(out, "model", s->dir);
    json_add_str(out, "method", s->model->config.method);
    json_add_str(out, "data", t->data);
    json_add_num(out, "tokens", t->tokens);
    json_add_int(out, "layers", model_config_depth(&s->model->config));
    json_add_int(out, "loop", s->model->config.loop);
    subject_options_json(s, out);
    json_key(out, "rows");
    str_add(out, "[");
    for (size_t i = 0; i < t->n; i++) {
        json_key(out, NULL);
        str_add(out, "{");
        json_add_int(out, "exit", t->row[i].layers);
        for (size_t c = 0; c < DS_LEN(columns); c++)
            json_add_num(out, columns[c].key, value_of(&t->row[i], c));
        add_by_k(out, &t->row[i], "accuracy_by_k", 0);
        add_by_k(out, &t->row[i], "loss_by_k", 1);
        str_add(out, "}");
    }
    str_add(out, "]}\n");
}

static void add_row(struct record *rec, const struct ppl_options *o, const struct exit_table *t,
                    size_t i)
{
    record_begin(rec, "eval", 0, clock_wall());
    record_str(rec, "task", "exits");
    record_str(rec, "routing", ppl_routing_name[o->routing]);
    record_num(rec, "tokens", t->tokens);
    record_num(rec, "exit", t->row[i].layers);
    for (size_t c = 0; c < DS_LEN(columns); c++)
        if (!isnan(value_of(&t->row[i], c)))
            record_num(rec, columns[c].key, value_of(&t->row[i], c));
}

int exit_table_write(const char *path, const struct subject *s, const struct ppl_options *o,
                     const struct exit_table *t, struct err *e)
{
    struct str frames = {0};
    struct record *rec = record_new();
    int rc = rec ? 0 : err_set(e, DS_EMEM, "records");
    if (rc == 0) {
        subject_head(s, rec, DEPTHSCOPE_VERSION);
        rc = record_end(rec, 1, &frames, e);
    }
    for (size_t i = 0; i < t->n && rc == 0; i++) {
        add_row(rec, o, t, i);
        rc = record_end(rec, 2 + i, &frames, e);
    }
    if (rc == 0)
        rc = cli_records_write(path, &frames, e);
    str_release(&frames);
    record_free(rec);
    return rc;
}
