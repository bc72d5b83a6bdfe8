/* depthscope trace MODEL --text TEXT -o OUT.mp: records every routing decision of one forward
 * pass. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/pool.h"
#include "cli/records.h"
#include "cli/cli.h"
#include "cli/version.h"
#include "eval/subject.h"
#include "io/runview.h"
#include "models/trace.h"

struct cli_option trace_options[] = {
    {.name = "text", .has_value = 1, .help = "TEXT  text to trace"},
    {.name = "file", .has_value = 1, .help = "FILE  read the text from a file; - = standard input"},
    {.name = "o", .has_value = 1, .help = "OUT.mp  the record file to write"},
    {.name = "json", .help = "one JSON object on standard output"},
    {.name = NULL},
};
enum { TEXT_MAX = 16 << 20 };

struct trace_settings {
    char *name;
    int64_t lens, seed, threads, exit_layer;
    double threshold_offset, capacity;
    int routing, cut;
    struct numeric_options numbers;
};
#define AT(field) offsetof(struct trace_settings, field)
static const struct opt trace_opts[] = {
    // clang-format off
    {"lens",    OPT_INT,  AT(lens),    "0", 0, 16, NULL, "logit lens: most likely tokens kept per cell", NULL},
    {"routing", OPT_ENUM, AT(routing), "causal", 0, 0, "causal|topk|dense", "inference-time decisions; top-k over the whole text (not causal); all layers executed", NULL},
    {"capacity", OPT_REAL, AT(capacity), "-1", 0, 0, NULL, "requested share of routed cells, 0 to 1; -1 = what calibrate risk= stored, else the method's own", NULL},
    {"exit.layer", OPT_INT, AT(exit_layer), "0", 0, 1 << 20, NULL, "run the first E layers, then the head; 0 = all", NULL},
    {"threshold_offset", OPT_REAL, AT(threshold_offset), "0", -100, 100, NULL, "added to every threshold (what-if), in standard deviations of the signal", NULL},
    {"seed",    OPT_INT,  AT(seed),    "0", 0, 1e15, NULL, "seed of random routing", NULL},
    {"cut",     OPT_BOOL, AT(cut),     "false", 0, 0, NULL, "truncate a text longer than the context instead of failing", NULL},
    {"name",    OPT_STRING, AT(name),  "trace", 0, 0, NULL, "name of the text in the records", NULL},
    {"threads", OPT_INT,  AT(threads), "0", 0, 4096, NULL, "threads; 0 = as many as affinity and quota allow", NULL},
    NUMERIC_OPTS(AT(numbers)),
    // clang-format on
};
enum { ROUTING_CAUSAL, ROUTING_TOPK, ROUTING_DENSE };
static const char *const routing_name[] = {"causal", "topk", "dense"};
const struct opt_group trace_group = {
    .prefix = "", .title = "trace", .opts = trace_opts, .n = DS_LEN(trace_opts)};

static struct pass inference_pass(const struct trace_settings *o)
{
    return (struct pass){.kind = o->routing == ROUTING_DENSE ? PASS_DENSE : PASS_SPARSE,
                         .inference.topk = o->routing == ROUTING_TOPK,
                         .inference.offset = o->threshold_offset,
                         .inference.exit = (int)o->exit_layer,
                         .inference.has_capacity = o->capacity != -1,
                         .inference.capacity = o->capacity};
}

static int fill_record(struct subject *s, const struct ids *ids, const struct trace_settings *o,
                       struct record *rec, struct err *e)
{
    struct pass pass = inference_pass(o);
    const char **piece = NULL;
    size_t *len = NULL;
    int rc = subject_pieces(s, ids->v, ids->n, &piece, &len, e);
    if (rc == 0)
        rc = model_reserve(s->model, (int)ids->n, 0, 0, e);
    if (rc == 0) {
        struct trace_text text = {
            .name = o->name, .id = ids->v, .piece = piece, .piece_len = len, .n = (int)ids->n};
        struct trace_options to = {.time = clock_wall(),
                                   .lens_k = (int)o->lens,
                                   .piece_of = subject_piece_of,
                                   .ctx = s,
                                   .kind = pass.kind,
                                   .inference = pass.inference,
                                   .seed = (uint64_t)o->seed};
        trace_run(s->model, &text, &to, rec);
    }
    mem_free(piece);
    mem_free(len);
    return rc;
}

static void add_column(struct str *out, const char *key, const struct matrix *m, int t)
{
    json_key(out, key);
    str_add(out, "[");
    for (int l = 0; m && l < m->rows; l++)
        json_add_num(out, NULL, (double)m->v[(size_t)l * (size_t)m->cols + (size_t)t]);
    str_add(out, "]");
}

static void add_token(struct str *out, const struct probe *p, int t)
{
    const struct matrix *gate = probe_cell(p, "gate"), *score = probe_cell(p, "score");
    json_key(out, NULL);
    str_add(out, "{");
    json_add_int(out, "id", p->id[t]);
    json_key(out, "text");
    str_add_json(out, p->piece[t], p->piece_len[t]);
    json_add_num(out, "nll", p->nll ? (double)p->nll[t] : (double)NAN);
    json_add_num(out, "entropy", p->entropy ? (double)p->entropy[t] : (double)NAN);
    json_add_int(out, "depth", p->depth ? (int64_t)p->depth[t] : 0);
    json_key(out, "run");
    str_add(out, "[");
    for (int l = 0; l < p->layers; l++)
        json_add_int(out, NULL, p->run[(size_t)l * (size_t)p->tokens + (size_t)t]);
    str_add(out, "]");
    add_column(out, "gate", gate, t);
    add_column(out, "score", score ? score : gate, t);
    json_add_num(out, "flops", p->flops ? (double)p->flops[t] : (double)NAN);
    str_add(out, "}");
}

/* Read back from the record, so that both outputs agree. */
static int print_json(struct str *out, const char *routing, const char *frame, size_t n,
                      struct err *e)
{
    struct runview *v = runview_new();
    struct value body;
    uint64_t seq;
    if (!v)
        return err_set(e, DS_EMEM, "trace");
    int rc = record_parse(frame, n, &seq, &body, e) > 0 ? 0 : DS_EFORMAT;
    if (rc == 0)
        runview_take(v, body);
    const struct probe *p = rc == 0 ? runview_probe(v, -1) : NULL;
    if (rc == 0 && !p)
        rc = err_set(e, DS_EMEM, "trace");
    if (rc == 0) {
        str_add(out, "{");
        json_add_str(out, "routing", routing);
        json_add_int(out, "layers", p->layers);
        json_add_num(out, "block_ratio", value_num(value_get(body, "block_ratio"), (double)NAN));
        json_add_num(out, "flops_ratio", value_num(value_get(body, "flops_ratio"), (double)NAN));
        json_add_num(out, "loss", value_num(value_get(body, "loss"), (double)NAN));
        json_key(out, "tokens");
        str_add(out, "[");
        for (int t = 0; t < p->tokens; t++)
            add_token(out, p, t);
        str_add(out, "]}\n");
    }
    runview_free(v);
    return rc;
}

static int read_ids(const struct cli_args *a, const struct subject *s,
                    const struct trace_settings *o, struct ids *ids, struct err *e)
{
    const char *text = cli_value(a, "text"), *file = cli_value(a, "file");
    size_t cap = (size_t)s->model->config.max_seq;
    struct str in = {0};
    int rc = 0;
    if (file)
        rc = cli_read_text(&in, file, TEXT_MAX, e);
    else
        str_add(&in, text);
    if (rc == 0 && in.failed)
        rc = err_set(e, DS_EMEM, "trace: out of memory for the text");
    if (rc == 0)
        rc = subject_encode(s, str_text(&in), in.len, o->cut ? 0 : cap, ids, e);
    if (rc == 0 && ids->n > cap) {
        fprintf(stderr, "depthscope: trace: text truncated to the context, %zu of %zu tokens\n",
                cap, ids->n);
        ids->n = cap;
    }
    str_release(&in);
    return rc;
}

static int trace(const struct cli_args *a, const struct trace_settings *o, struct config *options,
                 struct str *out, struct err *e)
{
    struct subject s = {0};
    struct ids ids = {0};
    struct str frames = {0};
    struct record *rec = record_new(), *head = record_new();
    struct pass pass = inference_pass(o);
    const char *model, *to = cli_value(a, "o");
    size_t at;
    int rc = rec && head ? cli_single(a, "trace", "MODEL", &model, e)
                         : err_set(e, DS_EMEM, "trace: out of memory");
    if (rc < 0 || (rc = pool_start((int)o->threads, e)) < 0 ||
        (rc = subject_open_with(&s, model, &o->numbers, options, e)) < 0 ||
        (rc = route_ready(&s.model->route, &pass, e)) < 0 ||
        (rc = model_check_exit(s.model, o->exit_layer, e)) < 0)
        goto out;
    if (pass.inference.topk)
        fprintf(stderr, "depthscope: trace: routing=topk depends on later tokens: not causal\n");
    if ((rc = read_ids(a, &s, o, &ids, e)) < 0 || (rc = fill_record(&s, &ids, o, rec, e)) < 0)
        goto out;
    if (to) {
        subject_head(&s, head, DEPTHSCOPE_VERSION);
        rc = record_end(head, 1, &frames, e);
        if (rc < 0)
            goto out;
    }
    at = frames.len;
    rc = record_end(rec, 2, &frames, e);
    if (rc == 0 && cli_flag(a, "json"))
        rc = print_json(out, routing_name[o->routing], frames.p + at, frames.len - at, e);
    if (rc == 0 && to)
        rc = cli_records_write(to, &frames, e);
out:
    record_free(rec);
    record_free(head);
    str_release(&frames);
    ids_release(&ids);
    subject_close(&s);
    pool_stop();
    return rc;
}

int trace_command(int argc, char **argv)
{
    struct err e = {0};
    struct cli_args a;
    struct trace_settings o = {0};
    struct str out = {0};
    struct config options = {0};
    int rc = cli_parse(&a, trace_options, argc, argv, &e);
    if (rc < 0)
        return command_fail(&e);
    if (!!cli_value(&a, "text") + !!cli_value(&a, "file") != 1)
        rc = err_set(&e, DS_EUSAGE,
                     "trace: expected one of --text TEXT and --file FILE (depthscope help trace)");
    else if (!cli_value(&a, "o") && !cli_flag(&a, "json"))
        rc = err_set(&e, DS_EUSAGE, "trace: missing output: use -o OUT.mp or --json");
    if (rc == 0)
        rc = cli_take_options(&a, &options, &e);
    if (rc == 0)
        rc = cli_apply(&a, &trace_group, &o, &e);
    if (rc == 0) {
        rc = trace(&a, &o, &options, &out, &e);
        opt_release(&trace_group, &o);
    }
    config_release(&options);
    cli_release(&a);
    if (rc < 0) {
        str_release(&out);
        return command_fail(&e);
    }
    return cli_print(&out);
}
