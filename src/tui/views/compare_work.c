/* What the Compare view compares: recorded probes, or the answers of a process with both models. */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/fs.h"
#include "base/mem.h"
#include "tui/compare.h"

/* ---- which two ---- */

static const struct open_run *find_run(struct view *v, const char *path)
{
    size_t n, at;
    const struct open_run *all = app_runs(v->app, &n, &at);
    for (size_t i = 0; i < n; i++)
        if (strcmp(all[i].path, path) == 0)
            return &all[i];
    return NULL;
}

int compare_marked(struct view *v)
{
    size_t n, at;
    const struct open_run *all = app_runs(v->app, &n, &at);
    int marked = 0;
    for (size_t i = 0; i < n; i++)
        marked += all[i].is_marked;
    return marked;
}

/* The two marked runs, or the marked one and the current one. */
static int choose_marked(struct view *v)
{
    struct compare *c = v->state;
    size_t n, at, k = 0;
    const struct open_run *all = app_runs(v->app, &n, &at);
    int marked = compare_marked(v);
    for (size_t i = 0; i < n && k < 2; i++)
        if (all[i].is_marked)
            str_copy(c->side[k++].path, sizeof c->side[0].path, all[i].path);
    if (marked == 1 && !all[at].is_marked)
        str_copy(c->side[k++].path, sizeof c->side[0].path, all[at].path);
    for (int i = 0; k < 2 && i < 2; i++)
        c->side[i].path[0] = '\0';
    return k == 2;
}

static int choose(struct view *v)
{
    struct compare *c = v->state;
    char was[2][sizeof c->side[0].path];
    int has = c->given[0][0] != '\0';
    for (int k = 0; k < 2; k++) {
        str_copy(was[k], sizeof was[k], c->side[k].path);
        if (has)
            str_copy(c->side[k].path, sizeof c->side[k].path, c->given[k]);
    }
    has = has || choose_marked(v);
    if (strcmp(was[0], c->side[0].path) != 0 || strcmp(was[1], c->side[1].path) != 0) {
        compare_stop(c); /* answers and trouble of another pair */
        c->is_live = c->has_asked_text = 0;
        c->trouble[0] = '\0';
    }
    return has;
}

void compare_give(struct view *v, const char *a, const char *b)
{
    struct compare *c = v->state;
    const char *given[2] = {a, b};
    compare_stop(c);
    c->is_live = c->has_asked_text = c->text = 0;
    for (int k = 0; k < 2; k++) {
        str_copy(c->given[k], sizeof c->given[k], given[k]);
        if (a[0] && !app_is_model(given[k]) && !find_run(v, given[k]))
            app_mark_run(v->app, given[k], 1); /* opens it; an error is reported */
    }
}

/* ---- recorded probes ---- */

/* The newest probe of each text index of a run, at most max. */
static int newest_of_each(const struct runview *r, const struct probe **out, int max)
{
    int n = 0;
    for (size_t i = r->n_probes; i-- > 0;) {
        const struct probe *p = r->probe[i];
        int k = 0;
        while (k < n && out[k]->index != p->index)
            k++;
        if (k == n && n < max)
            out[n++] = runview_probe(r, p->index);
    }
    for (int i = 1; i < n; i++) /* by index */
        for (int k = i; k > 0 && out[k - 1]->index > out[k]->index; k--) {
            const struct probe *t = out[k];
            out[k] = out[k - 1];
            out[k - 1] = t;
        }
    return n;
}

/* The c->text-th text that both runs have; 0: none, c->why says so. */
static int find_probes(struct compare *c)
{
    enum { TEXTS_MAX = 64 };
    const struct probe *a[TEXTS_MAX], *b[TEXTS_MAX];
    struct compare_match m;
    int n = newest_of_each(c->side[0].view, a, TEXTS_MAX),
        k = newest_of_each(c->side[1].view, b, TEXTS_MAX), found = 0;
    c->texts = 0;
    if (n == 0 || k == 0)
        snprintf(c->why, sizeof c->why, "%s has no recorded probe", n == 0 ? "A" : "B");
    for (int i = 0; i < n; i++)
        for (int j = 0; j < k; j++) {
            if (compare_align(&m, a[i], b[j], c->why, sizeof c->why) <= 0)
                continue;
            if (c->texts == c->text) {
                compare_match_release(&c->match);
                c->match = m;
                c->side[0].probe = a[i];
                c->side[1].probe = b[j];
                found = 1;
            } else {
                compare_match_release(&m);
            }
            c->texts++;
            break; /* this text of A is taken */
        }
    if (!found && c->texts > 0) { /* a text that is gone: the first one */
        c->text = 0;
        return find_probes(c);
    }
    return found;
}

/* ---- the picture ---- */

/* A probe with one token per group, whose cells are B - A and whose depth counts those that
 * differ. */
static int make_difference(struct compare *c)
{
    const struct probe *a = c->side[0].probe, *b = c->side[1].probe;
    const struct compare_match *m = &c->match;
    int layers = a->layers == b->layers ? a->layers : 1;
    size_t n = (size_t)m->groups, cells = n * (size_t)layers;
    struct record *r = record_new();
    struct str text = {0};
    float *x = mem_alloc(cells, sizeof *x), *depth = mem_alloc(n, sizeof *depth);
    unsigned char *run = mem_alloc(cells, 1);
    int32_t *id = mem_alloc(n, sizeof *id);
    const char **piece = mem_alloc(n, sizeof *piece);
    size_t *len = mem_alloc(n, sizeof *len);
    int ok = r && x && depth && run && id && piece && len;
    for (int g = 0; ok && g < m->groups; g++) {
        const struct compare_group *of = &m->group[g];
        id[g] = of->n[0] == 1 && of->n[1] == 1 ? a->id[of->first[0]] : -1;
        len[g] = text.len;
        for (int k = 0; k < of->n[0]; k++)
            str_add_bytes(&text, a->piece[of->first[0] + k], a->piece_len[of->first[0] + k]);
        len[g] = text.len - len[g];
        for (int l = 0; l < layers; l++) {
            size_t i = (size_t)l * n + (size_t)g;
            x[i] = (float)compare_difference(m, a, b, g, l);
            run[i] = fabsf(x[i]) > 1e-6f;
            depth[g] += run[i];
        }
    }
    ok = ok && !text.failed;
    for (size_t g = 0, at = 0; ok && g < n; at += len[g++])
        piece[g] = str_text(&text) + at;
    if (ok) {
        record_begin(r, "probe", 0, 0);
        record_int(r, "layers", layers);
        record_i32s(r, "ids", id, n);
        record_pieces(r, "text", piece, len, n);
        record_bytes(r, "run", run, cells);
        record_f32s(r, "depth", depth, n);
        record_map(r, "cell");
        record_f32s(r, "B - A", x, cells);
        record_close(r);
        worker_replace_by(&c->difference, r);
    }
    record_free(r);
    str_release(&text);
    mem_free(x);
    mem_free(depth);
    mem_free(run);
    mem_free(id);
    mem_free(piece);
    mem_free(len);
    return ok;
}

/* Is the picture made of what the sides hold now?  A view that took records may have freed what it
 * was made of. */
static int is_made(const struct compare *c)
{
    for (int k = 0; k < 2; k++) {
        const struct runview *r = c->side[k].view;
        size_t i = 0;
        if (!c->made_of[k] || c->made_view[k] != r || c->made_at[k] != r->generation)
            return 0;
        while (i < r->n_probes && r->probe[i] != c->made_of[k])
            i++;
        if (i == r->n_probes)
            return 0;
    }
    return c->made_text == c->text && c->difference != NULL;
}

static int make(struct compare *c)
{
    for (int k = 0; k < 2; k++)
        c->side[k].probe = c->made_of[k];
    if (is_made(c))
        return 1;
    c->side[0].probe = c->side[1].probe = c->made_of[0] = NULL;
    if (c->is_live) {
        const struct probe *a = worker_probe(c->side[0].answered),
                           *b = worker_probe(c->side[1].answered);
        compare_match_release(&c->match);
        if (!a || !b || compare_align(&c->match, a, b, c->why, sizeof c->why) <= 0)
            return 0;
        c->side[0].probe = a;
        c->side[1].probe = b;
        c->texts = 1;
    } else if (!find_probes(c)) {
        return 0;
    }
    if (!make_difference(c))
        return 0;
    c->total = compare_total(&c->match, c->side[0].probe, c->side[1].probe);
    for (int k = 0; k < 2; k++) {
        c->made_of[k] = c->side[k].probe;
        c->made_view[k] = c->side[k].view;
        c->made_at[k] = c->side[k].view->generation;
    }
    c->made_text = c->text;
    return 1;
}

/* The views of both sides; 0 when one has no records: then only a process can show it. */
static int find_views(struct view *v)
{
    struct compare *c = v->state;
    int has = 1;
    for (int k = 0; k < 2; k++) {
        const struct open_run *r = find_run(v, c->side[k].path);
        c->side[k].there = worker_host(v->app, c->side[k].path) != NULL;
        c->side[k].view = c->is_live ? c->side[k].answered : r ? r->view : NULL;
        has &= c->side[k].view != NULL;
    }
    return has;
}

static void begin_live(struct view *v)
{
    struct compare *c = v->state;
    const char *kept = app_recall(v->app, "stepper.prompt");
    if (c->has_asked_text)
        return;
    c->has_asked_text = 1;
    if (c->prompt.text.len == 0)
        field_set(&c->prompt, kept && *kept ? kept : "Once upon a time");
    compare_ask(v, str_text(&c->prompt.text));
}

/* All maps follow the difference, whose cursor counts groups. */
static int place_cursors(struct compare *c)
{
    struct cells *d = &c->diff;
    const struct probe *a = c->side[0].probe, *b = c->side[1].probe;
    d->probe = worker_probe(c->difference);
    d->view = NULL; /* but its rows are called what those of both are */
    if (runview_is_iterated(c->side[0].view, a->layers) &&
        runview_is_iterated(c->side[1].view, b->layers))
        d->view = c->side[0].view;
    d->field = 1;
    d->span = 1;
    d->depth_label = "count";
    if (!d->probe || cells_fit(d) < 0)
        return 0;
    d->field = 1;
    for (int k = 0; k < 2; k++) {
        struct cells *x = &c->cells[k];
        const struct compare_group *g = &c->match.group[d->seen_token];
        x->probe = k ? b : a;
        x->view = c->side[k].view;
        x->wide = d->wide;
        x->is_upward = d->is_upward;
        x->field = 0;
        x->token = g->first[k];
        x->layer = a->layers == b->layers ? d->seen_layer : x->layer;
        if (cells_fit(x) < 0)
            return 0;
    }
    return 1;
}

int compare_prepare(struct view *v)
{
    struct compare *c = v->state;
    c->why[0] = '\0';
    c->diff.probe = NULL;
    if (!choose(v)) {
        c->made_of[0] = NULL;
        return 0;
    }
    if (!find_views(v)) {
        c->made_of[0] = NULL;
        begin_live(v);
        if (c->asked == 0)
            str_copy(c->why, sizeof c->why, "a model alone has no recorded texts");
        return 0;
    }
    return make(c) && place_cursors(c);
}

/* ---- the process ---- */

static void close_sessions(struct compare *c)
{
    session_close(c->session);
    session_close(c->other);
    c->session = c->other = NULL;
}

void compare_stop(struct compare *c)
{
    close_sessions(c);
    c->asked = 0;
    c->made_of[0] = NULL;
    for (int k = 0; k < 2; k++) {
        runview_free(c->side[k].answered);
        c->side[k].answered = NULL;
        c->side[k].view = NULL;
    }
}

/* A run's path means its best checkpoint; a log or a trace has no weights. */
const char *compare_without_weights(struct view *v)
{
    const struct compare *c = v->state;
    for (int k = 0; k < 2; k++) {
        const struct open_run *r = find_run(v, c->side[k].path);
        if (r && !r->dir[0])
            return c->side[k].path;
    }
    return NULL;
}

/* Where both models can be opened by one process: here, or on one host. */
static int is_one_place(struct view *v)
{
    const struct compare *c = v->state;
    return worker_host(v->app, c->side[0].path) == worker_host(v->app, c->side[1].path);
}

/* Does the process hold what the path of a side means now?  Training may have found a better one. */
static int is_current(const struct compare *c, int k)
{
    return strcmp(c->model[k], c->side[k].path) == 0 &&
           c->best[k] == worker_best_checkpoint(c->model[k]);
}

static int open_sessions(struct view *v, struct err *e)
{
    struct compare *c = v->state;
    char room[1100];
    compare_stop(c);
    for (int k = 0; k < 2; k++) {
        str_copy(c->model[k], sizeof c->model[k], c->side[k].path);
        c->best[k] = worker_best_checkpoint(c->model[k]);
    }
    int rc = session_open(&c->session, worker_model(c->model[0], room, sizeof room), e);
    if (rc == 0 && !is_one_place(v))
        rc = session_open(&c->other, worker_model(c->model[1], room, sizeof room), e);
    if (rc < 0)
        compare_stop(c);
    return rc;
}

/* One request to the process of both, or the same text for each of two: then nobody has the predictions
 * of both, and their divergence is known from the logit lens alone. */
static int ask(struct compare *c, const char *text, struct err *e)
{
    struct str line = {0};
    int rc = 0;
    if (c->other)
        str_add(&line, "{\"do\":\"trace\",\"text\":");
    else
        str_add(&line, "{\"do\":\"compare\",\"other\":");
    if (!c->other) {
        str_add_json(&line, c->side[1].path, strlen(c->side[1].path));
        str_add(&line, ",\"text\":");
    }
    str_add_json(&line, text, strlen(text));
    str_addf(&line, ",\"lens\":%d}", COMPARE_LENS);
    if (line.failed)
        rc = err_set(e, DS_EMEM, "request: out of memory");
    for (int k = 0; rc == 0 && k < (c->other ? 2 : 1); k++) {
        struct session *s = k ? c->other : c->session;
        if (c->other && (rc = session_send(s, "{\"do\":\"info\"}", e)) == 0)
            c->asked++;
        if (rc == 0 && (rc = session_send(s, str_text(&line), e)) == 0)
            c->asked++;
    }
    str_release(&line);
    return rc;
}

void compare_ask(struct view *v, const char *text)
{
    struct compare *c = v->state;
    struct err e = {0};
    c->trouble[0] = '\0';
    int has = choose(v);
    const char *bare = compare_without_weights(v);
    if (!has) {
        str_copy(c->trouble, sizeof c->trouble, "mark two runs in Home first");
    } else if (bare) {
        snprintf(c->trouble, sizeof c->trouble,
                 "%s is a log or trace without weights: only its "
                 "recorded texts can be compared",
                 worker_name(bare));
    } else {
        int is_open = c->session && is_current(c, 0) && is_current(c, 1) &&
                      (c->other == NULL) == is_one_place(v);
        if (!is_open && open_sessions(v, &e) < 0)
            str_copy(c->trouble, sizeof c->trouble, e.text);
    }
    if (c->trouble[0]) {
        app_notify(v->app, LOG_WARN, "%s", c->trouble);
        return;
    }
    if (ask(c, text, &e) < 0) {
        app_notify(v->app, LOG_ERROR, "%s", e.text);
        return;
    }
    c->half = 0;
    c->is_live = c->has_asked_text = 1;
}

/* "head", "probe" of A, then of B from one process: a side is complete with its probe.  of: the side of
 * one of two processes. */
static void take_body(struct view *v, int of, struct value body)
{
    struct compare *c = v->state;
    struct value kind = value_get(body, "kind");
    int k = c->other ? of : c->half;
    if (value_is(kind, "head") && k < 2) {
        worker_replace(&c->side[k].answered, body);
    } else if (value_is(kind, "probe") && k < 2 && c->side[k].answered) {
        runview_take(c->side[k].answered, body);
        c->half += !c->other;
    } else if (value_is(kind, "done") || value_is(kind, "error")) {
        size_t n = 0;
        const char *text = value_bytes(value_get(body, "text"), &n);
        c->asked -= c->asked > 0;
        c->half = 0;
        if (!value_is(kind, "error"))
            return;
        snprintf(c->trouble, sizeof c->trouble, "%.*s", (int)(n > 400 ? 400 : n),
                 text ? text : "error");
        app_notify(v->app, LOG_WARN, "model: %s", c->trouble);
    }
    c->made_of[0] = NULL;
}

int compare_take(struct view *v)
{
    struct compare *c = v->state;
    int changed = 0;
    for (int k = 0; k < 2; k++) {
        struct session *s = k ? c->other : c->session;
        struct value body;
        struct err e = {0};
        int rc = 0;
        for (int i = 0; s && i < 64 && (rc = worker_next(v->app, s, &body, &e)) > 0; i++) {
            take_body(v, k, body);
            changed = 1;
        }
        if (!s || rc >= 0)
            continue;
        if (!c->trouble[0])
            str_copy(c->trouble, sizeof c->trouble, e.text);
        close_sessions(c); /* what they answered stays */
        c->asked = 0;
        changed = 1;
    }
    if (c->table.out >= 0 || (c->is_behind && compare_marked(v) > 2))
        changed |= compare_table(v) != NULL;
    return changed;
}

/* ---- the table of several runs ---- */

/* Reads what the program has printed so far; the old table stays until the new one is complete. */
static void read_table(struct compare *c)
{
    char buf[16384];
    size_t got = c->table.out >= 0;
    while (c->table.out >= 0 && got > 0 && c->table_next.len < 1 << 20) {
        if (fs_read_some(c->table.out, buf, sizeof buf, &got, "compare", NULL) < 0)
            break; /* nothing yet */
        str_add_bytes(&c->table_next, buf, got);
    }
    if (c->table.out >= 0 && got == 0) {
        child_wait(&c->table);
        child_close(&c->table, SIGTERM);
        c->table = (struct child)CHILD_NONE;
        str_release(&c->table_text);
        c->table_text = c->table_next;
        c->table_next = (struct str){0};
    }
}

static void start_table(struct view *v, const char *const *argv)
{
    struct compare *c = v->state;
    struct err e = {0};
    struct child_setup how = {.argv = argv,
                              .in = CHILD_NULL,
                              .out = CHILD_PIPE,
                              .err = CHILD_SAME,
                              .is_nonblocking = !app_is_scripted(v->app),
                              .is_session = 1};
    child_close(&c->table, SIGTERM);
    str_renew(&c->table_next);
    c->table_started = clock_mono();
    if (child_start(&c->table, &how, &e) < 0) {
        str_renew(&c->table_text);
        str_addf(&c->table_text, "%s\n", e.text);
    }
}

const char *compare_table(struct view *v)
{
    const double rest_s = 3; /* reading all records of long runs takes time */
    struct compare *c = v->state;
    size_t n, at;
    const struct open_run *all = app_runs(v->app, &n, &at);
    char width[16];
    const char *argv[64] = {"depthscope", "compare", "--width", width};
    struct str of = {0};
    uint64_t generation = 0;
    int k = 4;
    snprintf(width, sizeof width, "%d", v->cols > 24 ? v->cols - 4 : 20);
    str_addf(&of, "%s\n", width);
    for (size_t i = 0; i < n && k < 63; i++)
        if (all[i].is_marked) {
            argv[k++] = all[i].path;
            str_addf(&of, "%s\n", all[i].path);
            generation += all[i].view->generation;
        }
    int is_other = strcmp(str_text(&of), c->table_of) != 0;
    c->is_behind = generation != c->table_at;
    if (is_other ||
        (c->is_behind && c->table.pid <= 0 && clock_mono() - c->table_started > rest_s)) {
        if (is_other)
            str_renew(&c->table_text);
        str_copy(c->table_of, sizeof c->table_of, str_text(&of));
        c->table_at = generation;
        start_table(v, argv);
    }
    str_release(&of);
    read_table(c);
    return c->table_text.len == 0 ? NULL : str_text(&c->table_text);
}
