/* What an imported routing trace holds: its size, and the balance of its experts. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/import/import.h"

struct balance {
    uint64_t sum, most;
    int hottest, dead;
    double relative, variation; /* of the hottest to the mean; standard deviation / mean */
};

static struct balance balance_of(const uint64_t *load, int experts)
{
    struct balance b = {0};
    double square = 0;
    for (int x = 0; x < experts; x++) {
        b.sum += load[x];
        b.dead += load[x] == 0;
        if (load[x] > b.most) {
            b.most = load[x];
            b.hottest = x;
        }
    }
    double mean = (double)b.sum / experts;
    for (int x = 0; x < experts; x++)
        square += ((double)load[x] - mean) * ((double)load[x] - mean);
    b.relative = mean > 0 ? (double)b.most / mean : (double)NAN;
    b.variation = mean > 0 ? sqrt(square / experts) / mean : (double)NAN;
    return b;
}

static void add_layers(const struct routing_trace *t, const struct routing_facts *f,
                       struct str *out)
{
    json_key(out, "per_layer");
    str_add(out, "[");
    for (int r = 0; r < f->rows; r++) {
        const uint64_t *load = routing_trace_load(t, r);
        struct balance b = balance_of(load, f->experts);
        json_key(out, NULL);
        str_add(out, "{");
        json_add_int(out, "layer", routing_trace_layer(t, r));
        json_add_int(out, "total", (int64_t)b.sum);
        json_add_int(out, "hottest", b.hottest);
        json_add_num(out, "hottest_relative", b.relative);
        json_add_num(out, "cv", b.variation);
        json_add_int(out, "dead", b.dead);
        json_key(out, "loads");
        str_add(out, "[");
        for (int x = 0; x < f->experts; x++)
            json_add_int(out, NULL, (int64_t)load[x]);
        str_add(out, "]}");
    }
    str_add(out, "]");
}

static void add_dead(const struct routing_trace *t, const struct routing_facts *f, struct str *out)
{
    json_key(out, "dead_experts");
    str_add(out, "[");
    for (int r = 0; r < f->rows; r++)
        for (int x = 0; x < f->experts; x++)
            if (routing_trace_load(t, r)[x] == 0) {
                json_key(out, NULL);
                str_add(out, "{");
                json_add_int(out, "layer", routing_trace_layer(t, r));
                json_add_int(out, "expert", x);
                str_add(out, "}");
            }
    str_add(out, "]");
}

static void add_notes(const struct routing_facts *f, struct str *out)
{
    json_key(out, "notes");
    str_add(out, "[");
    for (const char *p = f->notes, *nl; (nl = strchr(p, '\n')) != NULL; p = nl + 1) {
        json_key(out, NULL);
        str_add_json(out, p, (size_t)(nl - p));
    }
    str_add(out, "]");
}

static void report_json(const struct routing_trace *t, const struct routing_facts *f,
                        const char *to, struct str *out)
{
    str_add(out, "{");
    json_add_str(out, "format", f->format);
    json_add_str(out, "title", f->title);
    json_key(out, "file");
    if (to)
        str_add_json(out, to, strlen(to));
    else
        str_add(out, "null");
    json_add_int(out, "layers", f->layers);
    json_add_int(out, "moe_layers", f->rows);
    json_add_int(out, "experts", f->experts);
    json_add_int(out, "experts_per_token", f->slots);
    json_add_int(out, "tokens", (int64_t)f->tokens);
    json_add_int(out, "loads_total", (int64_t)f->loads);
    json_add_int(out, "windows", (int64_t)f->windows);
    json_add_int(out, "windows_kept", (int64_t)f->windows_kept);
    json_add_int(out, "duplicates", (int64_t)f->duplicates);
    add_dead(t, f, out);
    add_layers(t, f, out);
    add_notes(f, out);
    str_add(out, "}\n");
}

static void report_text(const struct routing_trace *t, const struct routing_facts *f,
                        const char *to, struct str *out)
{
    enum { LISTED = 8 };
    str_addf(out, "%s: %d layer%s, %d with %d expert%s", f->title, f->layers,
             f->layers == 1 ? "" : "s", f->rows, f->experts, f->experts == 1 ? "" : "s");
    if (f->slots)
        str_addf(out, ", %d per token", f->slots);
    if (f->tokens)
        str_addf(out, "; %" PRIu64 " token%s", f->tokens, f->tokens == 1 ? "" : "s");
    str_addf(out, "; %" PRIu64 " assignment%s\n", f->loads, f->loads == 1 ? "" : "s");
    for (int r = 0; r < f->rows && r < LISTED; r++) {
        struct balance b = balance_of(routing_trace_load(t, r), f->experts);
        str_addf(out,
                 "  layer %3d  hottest expert %d (%.2f x the mean), coefficient of variation "
                 "%.3f, %d dead\n",
                 routing_trace_layer(t, r), b.hottest, b.relative, b.variation, b.dead);
    }
    if (f->rows > LISTED)
        str_addf(out, "  ... %d more layer%s: --json\n", f->rows - LISTED,
                 f->rows - LISTED == 1 ? "" : "s");
    for (const char *p = f->notes, *nl; (nl = strchr(p, '\n')) != NULL; p = nl + 1) {
        str_add(out, "  note: ");
        cli_add_safe(out, p, (size_t)(nl - p), -1);
        str_add(out, "\n");
    }
    if (to) {
        str_add(out, "written to ");
        cli_add_safe(out, to, strlen(to), -1);
        str_add(out, "\n");
    }
}

void import_report(const struct routing_trace *t, const char *to, int json, struct str *out)
{
    struct routing_facts f = routing_trace_facts(t);
    if (json)
        report_json(t, &f, to, out);
    else
        report_text(t, &f, to, out);
}
