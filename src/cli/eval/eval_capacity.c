/* Table, JSON and records of depthscope eval --benchmark: loss and cost over capacities. */
#include "cli/eval/eval_capacity.h"

#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "cli/records.h"
#include "cli/cli.h"
#include "cli/version.h"

#define AT(field) offsetof(struct capacity_row, field)
static const struct {
    const char *key, *title;
    size_t offset;
    double scale;
    int digits;
} columns[] = {
    {"capacity_target", "target", AT(target), 1, 2},
    {"block_ratio", "blocks", AT(realised), 1, 3},
    {"loss", "loss", AT(loss), 1, 4},
    {"loss_delta", "loss vs dense %", AT(delta), 100, 2},
    {"perplexity_delta", "ppl vs dense %", AT(ppl_delta), 100, 2},
    {"flops_ratio", "FLOPs", AT(flops_ratio), 1, 3},
    {"time_ratio", "prefill time", AT(time_ratio), 1, 3},
    {"decode_time_ratio", "decode time", AT(decode_time_ratio), 1, 3},
    {"control_random_loss", "random loss", AT(control_random_loss), 1, 4},
    {"control_static_loss", "static loss", AT(control_static_loss), 1, 4},
    {"control_random_flops_ratio", "controls' FLOPs", AT(control_random_flops_ratio), 1, 3},
};
#undef AT

static double value_of(const struct capacity_row *r, size_t column)
{
    return *(const double *)((const char *)r + columns[column].offset);
}

void capacity_table_print(struct str *out, const struct subject *s, const struct capacity_table *t)
{
    struct table grid;
    cli_add_safe(out, s->dir, strlen(s->dir), -1);
    str_addf(out, ": %s, causal routing at the requested capacities, on ", s->model->config.method);
    cli_add_safe(out, t->data, strlen(t->data), -1);
    str_addf(out, " (%.0f tokens); dense loss %.4f\n", t->tokens, t->dense_loss);
    table_init(&grid, DS_LEN(columns));
    for (size_t c = 0; c < DS_LEN(columns); c++)
        table_add(&grid, columns[c].title);
    for (size_t i = 0; i < t->n; i++)
        for (size_t c = 0; c < DS_LEN(columns); c++) {
            double x = columns[c].scale * value_of(&t->row[i], c);
            if (isnan(x))
                table_add(&grid, "-");
            else
                table_addf(&grid, "%.*f", columns[c].digits, x);
        }
    table_print(&grid, out);
    table_release(&grid);
    str_add(
        out,
        "target: share of the routed cells; blocks, FLOPs and times are shares of the dense model; "
        "decoding at batch 1 with a KV cache; the controls execute the same share of each layer: "
        "at random, and by a content-independent static mask\n");
}

void capacity_table_json(struct str *out, const struct subject *s, const struct capacity_table *t)
{
    str_add(out, "{");
    json_add_str(out, "task", "capacity");
    json_add_str(out, "routing", "causal");
    json_add_str(out, "model", s->dir);
    json_add_str(out, "method", s->model->config.method);
    json_add_str(out, "data", t->data);
    json_add_num(out, "tokens", t->tokens);
    json_add_num(out, "dense_loss", t->dense_loss);
    json_key(out, "rows");
    str_add(out, "[");
    for (size_t i = 0; i < t->n; i++) {
        json_key(out, NULL);
        str_add(out, "{");
        for (size_t c = 0; c < DS_LEN(columns); c++)
            json_add_num(out, columns[c].key, value_of(&t->row[i], c));
        str_add(out, "}");
    }
    str_add(out, "]}\n");
}

static void add_row(struct record *rec, const struct capacity_table *t, size_t i)
{
    record_begin(rec, "eval", 0, clock_wall());
    record_str(rec, "task", "capacity");
    record_str(rec, "routing", "causal");
    record_num(rec, "tokens", t->tokens);
    record_num(rec, "dense_loss", t->dense_loss);
    for (size_t c = 0; c < DS_LEN(columns); c++)
        record_num(rec, columns[c].key, value_of(&t->row[i], c));
}

int capacity_table_write(const char *path, const struct subject *s, const struct capacity_table *t,
                         struct err *e)
{
    struct str frames = {0};
    struct record *rec = record_new();
    int rc = rec ? 0 : err_set(e, DS_EMEM, "records");
    if (rc == 0) {
        subject_head(s, rec, DEPTHSCOPE_VERSION);
        rc = record_end(rec, 1, &frames, e);
    }
    for (size_t i = 0; i < t->n && rc == 0; i++) {
        add_row(rec, t, i);
        rc = record_end(rec, 2 + i, &frames, e);
    }
    if (rc == 0)
        rc = cli_records_write(path, &frames, e);
    str_release(&frames);
    record_free(rec);
    return rc;
}
