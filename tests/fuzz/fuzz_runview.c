/* Feeds arbitrary MessagePack maps to a run view, then reads everything in it.
 */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/machine.h"
#include "base/utf8.h"
#include "io/alert.h"
#include "io/experts.h"
#include "io/record.h"
#include "io/runview.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_probe(const struct probe *p)
{
    size_t bytes = 0, cells = (size_t)p->layers * (size_t)p->tokens;
    for (size_t i = 0; p->run && i < cells; i++)
        if (p->run[i] > 1)
            abort();
    for (size_t i = 0; p->forced && i < cells; i++)
        if (p->forced[i] < -1 || p->forced[i] > 1)
            abort();
    if (!memchr(p->caveat, '\0', sizeof p->caveat))
        abort();
    for (int t = 0; t < p->tokens; t++)
        bytes += p->piece_len[t] + (size_t)p->piece[t][p->piece_len[t]] + (size_t)(p->id[t] & 1);
    for (int i = 0; i < p->cells; i++)
        if (p->cell[i].rows != p->layers || p->cell[i].cols != p->tokens ||
            isnan(p->cell[i].v[cells - 1]))
            bytes++;
    for (int i = 0; i < p->vectors; i++)
        if (p->token[i].n != p->tokens || probe_token(p, p->token[i].name) == NULL)
            abort();
    for (size_t i = 0; p->lens_piece && i < cells * (size_t)p->lens_k; i++)
        bytes += strlen(p->lens_piece[i]) + (size_t)(p->lens_id[i] & 1);
    if (bytes == SIZE_MAX)
        abort();
}

static void check_matrix(const struct matrix_series *s)
{
    size_t last = (size_t)s->rows * (size_t)s->cols - 1, live = 0;
    int64_t step = -1;
    for (size_t i = 0; i < s->n; i++) {
        if (!s->point[i].is_old && s->point[i].step <= step)
            abort();
        step = s->point[i].is_old ? step : s->point[i].step;
        live += isnan(s->point[i].v[last]) == 0;
    }
    for (int i = 0; i < s->rows; i++)
        if (s->layer[i] < 0 || s->collapsed[i] > 1)
            abort();
    if (s->n > RUNVIEW_MATRIX_POINTS || live > s->n)
        abort();
}

static void check_experts(const struct runview *v)
{
    size_t n = expert_loads(v);
    double trend[4];
    int hot[3];
    for (size_t i = 0; i < n; i += 1 + n / 3) {
        struct expert_load x;
        if (expert_load_read(&x, v, i, NULL) < 0)
            continue;
        for (int row = 0; row < x.rows; row++) {
            struct expert_row r = expert_row_of(&x, row);
            int k = expert_hottest(&x, row, hot, 3);
            if (r.dead > x.experts || r.top >= x.experts || (k > 0 && hot[0] != r.top) ||
                expert_rank(&x, row, r.top) != 1 || (r.sum > 0 && !(r.cv >= 0)))
                abort();
        }
        if (x.rows > 0)
            expert_trend(v, x.layer[0], x.experts - 1, trend, 4);
        expert_load_release(&x);
    }
}

static void check_series(const struct series *s)
{
    for (size_t i = 0; i < s->n; i += 1 + s->n / 7) {
        struct series_span a = series_range(s, i, s->n);
        if (a.n != s->n - i || a.nonfinite > a.n || (a.n > a.nonfinite && !(a.min <= a.max)) ||
            series_find(s, s->step[i]) > s->n)
            abort();
    }
}

static void check_share(double x)
{
    if (!isnan(x) && !(x >= 0 && x <= 1))
        abort();
}

static void check_text(const char *text, size_t size)
{
    if (!memchr(text, '\0', size) || utf8_valid(text, strlen(text)) != strlen(text))
        abort();
    for (; *text; text++)
        if ((unsigned char)*text < ' ')
            abort();
}

static void check_system(const struct machine_sample *s)
{
    check_share(s->cpu);
    check_text(s->host, sizeof s->host);
    if (s->gpus > MACHINE_GPUS || s->gpus_more < 0 || s->cpus < 0)
        abort();
    for (int i = 0; i < s->gpus; i++) {
        const struct machine_gpu *g = &s->gpu[i];
        check_share(g->use);
        check_text(g->name, sizeof g->name);
        if (g->processes > MACHINE_PROCESSES || g->processes_more < 0 ||
            g->throttle >> MACHINE_THROTTLES)
            abort();
        for (int k = 0; k < g->processes; k++)
            check_text(g->process[k].name, sizeof g->process[k].name);
    }
}

/* Every rule judges it, before and after the rest came; a run that has ended holds nothing. */
static void check_alerts(struct alert_watch *w, const struct runview *v, double now)
{
    struct alert a;
    int n = 0;
    alert_watch_view(w, v, now);
    for (; alert_next(w, &a); n++) {
        check_text(a.text, sizeof a.text);
        if (a.rule >= ALERT_RULES || a.level < 0 || a.level > 3)
            abort();
    }
    if (n > 2 * ALERT_RULES || alert_set(w) >> ALERT_RULES)
        abort();
    alert_clock(w, RUN_DONE, now);
    if (alert_set(w))
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct alert_options rules = {.nan = 1, .layer_share = 1, .layer_records = 2, .loss_above = 1,
                                  .stall_s = 1, .gpu_idle_s = 1, .gpu_below = 50, .disk_free_gb = 1};
    struct alert_watch watch;
    struct runview *v = runview_new();
    struct value body;
    size_t used;
    if (!v)
        return 0;
    for (size_t at = 0; at < size && value_check(data + at, size - at, &body, &used, NULL) == 0;
         at += used)
        runview_take(v, body);
    alert_watch_init(&watch, &rules);
    v->state = RUN_LIVE; /* no reader sets it */
    check_alerts(&watch, v, size & 1 ? 1e9 : 0);
    check_alerts(&watch, v, -1e9);
    alert_watch_release(&watch);
    for (size_t i = 0; i < v->n_series; i++)
        check_series(&v->series[i]);
    for (size_t i = 0; i < v->n_probes; i++)
        check_probe(v->probe[i]);
    for (size_t i = 0; i < v->n_layer; i++)
        if (v->layer[i].n &&
            isnan(v->layer[i].value[v->layer[i].n * (size_t)v->layer[i].layers - 1]))
            v->invalid++;
    for (size_t i = 0; i < v->n_matrices; i++)
        check_matrix(&v->matrix[i]);
    check_experts(v);
    if (v->system)
        check_system(v->system);
    runview_eval(v, NULL, "loss");
    runview_sample(v, "val");
    runview_config(v, "seed");
    runview_free(v);
    return 0;
}
