/* Home's details pane: one run's notes, checkpoints, loss, newest depth map and the settings that
 * differ from its preset.  Read when the cursor has rested on the run, within a budget a poll. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/fs.h"
#include "base/json.h"
#include "base/mem.h"
#include "io/checkpoint.h"
#include "io/runlog.h"
#include "training/job.h"
#include "tui/home.h"

static const double rest_s = 0.2; /* of the cursor, before anything is read */
static const double read_s = 0.01, walk_s = 0.02;
enum { ENTRIES_MAX = 4000, DEPTH_MAX = 8 };

/* ---- reading ---- */

void home_details_release(struct home_details *d)
{
    runview_free(d->view);
    mem_free(d->checkpoint);
    for (size_t i = 0; i < d->settings; i++) {
        mem_free(d->setting[i].value);
        mem_free(d->setting[i].otherwise);
    }
    mem_free(d->setting);
    *d = (struct home_details){.disk_bytes = (double)NAN};
}

struct walk {
    double bytes, end;
    int entries, is_cut;
};

static void walk(struct walk *w, const char *dir, int depth)
{
    char **names = NULL, path[1200];
    size_t n = 0;
    struct stat st;
    if (depth > DEPTH_MAX || fs_list(dir, &names, &n, NULL) < 0)
        return;
    for (size_t i = 0; i < n && !w->is_cut; i++) {
        w->is_cut = w->entries++ > ENTRIES_MAX || clock_mono() > w->end;
        if (fs_join(path, sizeof path, dir, names[i], NULL) < 0 || fs_lstat(path, &st) != 0)
            continue;
        if (S_ISDIR(st.st_mode))
            walk(w, path, depth + 1);
        else if (S_ISREG(st.st_mode))
            w->bytes += (double)st.st_blocks * 512;
    }
    fs_list_free(names, n);
}

static double manifest_bytes(const char *dir)
{
    char path[1200];
    struct json *j = NULL;
    double sum = 0;
    if (fs_join(path, sizeof path, dir, "manifest.json", NULL) < 0 || !fs_exists(path) ||
        json_read_file(&j, path, 1 << 20, NULL) < 0)
        return (double)NAN;
    const struct json_node *files = json_get(json_root(j), "files"), *file;
    for (void *at = NULL; (file = json_next(files, &at, NULL, NULL));)
        sum += json_num(json_get(file, "bytes"), 0);
    json_free(j);
    return sum;
}

static void read_checkpoints(struct home_details *d)
{
    char root[1100], name[40], dir[1200], path[1100];
    int64_t *steps = NULL, best = -1;
    size_t n = 0;
    struct json *j = NULL;
    if (fs_join(root, sizeof root, d->path, "checkpoints", NULL) < 0 || !fs_is_dir(root) ||
        checkpoint_steps(root, &steps, &n, NULL) < 0)
        return;
    if (fs_join(path, sizeof path, d->path, "best.json", NULL) == 0 && fs_exists(path) &&
        json_read_file(&j, path, 1 << 16, NULL) == 0)
        best = json_int(json_get(json_root(j), "step"), -1);
    json_free(j);
    d->checkpoint = mem_alloc(n + 1, sizeof *d->checkpoint);
    for (size_t i = 0; d->checkpoint && i < n; i++) {
        struct home_checkpoint *c = &d->checkpoint[d->checkpoints++];
        snprintf(name, sizeof name, "step-%08" PRId64, steps[i]);
        c->step = steps[i];
        c->is_best = steps[i] == best;
        c->bytes = i < 16 && fs_join(dir, sizeof dir, root, name, NULL) == 0 ? manifest_bytes(dir)
                                                                             : (double)NAN;
    }
    mem_free(steps);
}

/* Settings that the preset would not give; without a known preset those that are not defaults. */
static void read_settings(struct home_details *d, struct run_row *row)
{
    char presets[sizeof row->preset];
    size_t n;
    const struct job_key *key = job_keys(&n);
    str_copy(presets, sizeof presets, row->preset[0] ? row->preset : "quick");
    for (char *p = presets; *p; p++)
        *p = *p == '+' ? ' ' : *p;
    char **base = mem_alloc(n, sizeof *base);
    d->setting = mem_alloc(n, sizeof *d->setting);
    if (base && d->setting)
        (void)!job_preset_values(presets, base, n, NULL);
    for (size_t i = 0; base && d->setting && i < n; i++) {
        const char *value = run_row_config(row, key[i].key);
        const char *otherwise = base[i] ? base[i] : key[i].otherwise;
        if (value && otherwise && strcmp(value, otherwise) != 0)
            d->setting[d->settings++] = (struct home_setting){
                .key = key[i].key, .value = mem_strdup(value), .otherwise = mem_strdup(otherwise)};
    }
    for (size_t i = 0; base && i < n; i++)
        mem_free(base[i]);
    mem_free(base);
}

/* Everything but the log, which is followed from poll to poll. */
static void read_details(struct home *h, struct run_row *row)
{
    struct home_details *d = &h->details;
    struct walk w = {.end = clock_mono() + walk_s};
    walk(&w, d->path, 0);
    d->dir = row->seen.dir;
    d->disk_bytes = w.bytes;
    d->is_disk_cut = w.is_cut;
    read_checkpoints(d);
    read_settings(d, row);
    (void)!runview_follow(&d->view, d->path, read_s, NULL);
}

int home_poll_details(struct view *v)
{
    struct home *h = v->state;
    struct home_details *d = &h->details;
    struct run_row *row = home_run(h);
    if (!row || !h->shows_details) {
        int had = d->path[0] != '\0';
        if (had)
            home_details_release(d);
        return had;
    }
    int is_changed =
        d->dir.tv_sec != row->seen.dir.tv_sec || d->dir.tv_nsec != row->seen.dir.tv_nsec;
    /* a run elsewhere has a folder here once it was opened */
    is_changed |= row->remote && !d->view && fs_is_dir(row->path);
    if (strcmp(d->path, row->path) != 0 || (isfinite(d->disk_bytes) && is_changed)) {
        home_details_release(d);
        str_copy(d->path, sizeof d->path, row->path);
        d->since = clock_mono();
        if (!app_is_scripted(v->app))
            return 1;
    }
    if (isnan(d->disk_bytes)) {
        if (!app_is_scripted(v->app) && clock_mono() - d->since < rest_s)
            return 0;
        read_details(h, row);
        while (app_is_scripted(v->app) && d->view && d->view->is_behind)
            (void)!runview_poll(d->view, 1, NULL);
        return 1;
    }
    return d->view && runview_poll(d->view, read_s, NULL) > 0;
}

double home_details_due(const struct home *h)
{
    const struct home_details *d = &h->details;
    const struct run_row *row = home_run(h);
    if (!row || !h->shows_details)
        return HUGE_VAL;
    if (strcmp(d->path, row->path) != 0) /* the cursor has moved */
        return clock_mono();
    if (isnan(d->disk_bytes))
        return d->since + rest_s;
    return d->view && d->view->is_behind ? clock_mono() + 2 * read_s : HUGE_VAL;
}

/* ---- drawing ---- */

struct page {
    struct area area;
    int y;
};

static void line(struct page *p, const char *label, enum role role, const char *text)
{
    if (p->y >= p->area.rows || !text[0])
        return;
    area_text(p->area, p->y, 0, 8, ink(ROLE_DIM), label);
    area_text(p->area, p->y++, 9, -1, ink(role), text);
}

static void draw_checkpoints(struct page *p, const struct home_details *d, int max)
{
    char text[96], si[16];
    for (size_t i = 0; i < d->checkpoints && (int)i < max; i++) {
        const struct home_checkpoint *c = &d->checkpoint[i];
        double val = d->view ? runview_val_loss(d->view, c->step) : (double)NAN;
        int n = snprintf(text, sizeof text, "step %" PRId64, c->step);
        if (isfinite(val))
            n += snprintf(text + n, sizeof text - (size_t)n, " val %.4f", val);
        n += snprintf(text + n, sizeof text - (size_t)n, "%s", c->is_best ? " best" : "");
        if (isfinite(c->bytes)) /* the first to be cut off */
            n += snprintf(text + n, sizeof text - (size_t)n, " %sB", str_si(si, c->bytes));
        snprintf(text + n, sizeof text - (size_t)n, "%s",
                 i + 1 == (size_t)max && d->checkpoints > (size_t)max ? "  ..." : "");
        line(p, i == 0 ? "saved" : "", c->is_best ? ROLE_GOOD : ROLE_TEXT, text);
    }
}

static void draw_settings(struct page *p, const struct home_details *d, int max)
{
    char text[200];
    if (p->y + 1 >= p->area.rows || !d->settings)
        return;
    area_text(p->area, p->y++, 0, -1, ink_attr(ink(ROLE_TITLE), ATTR_BOLD),
              "settings that differ from the preset");
    for (size_t i = 0; i < d->settings && (int)i < max && p->y < p->area.rows; i++) {
        const struct home_setting *s = &d->setting[i];
        int x = area_text(p->area, p->y, 0, p->area.cols / 2, ink(ROLE_TEXT), s->key) + 1;
        x += area_text(p->area, p->y, x, p->area.cols - x - 2, ink(ROLE_MARKED),
                       s->value ? s->value : "") +
             1;
        snprintf(text, sizeof text, "(%s)", s->otherwise ? s->otherwise : "");
        area_text(p->area, p->y++, x, -1, ink(ROLE_DIM), text);
    }
    if (d->settings > (size_t)max && p->y < p->area.rows)
        area_textf(p->area, p->y++, 0, -1, ink(ROLE_DIM), "... %zu more",
                   d->settings - (size_t)max);
}

static void draw_loss(struct area a, const struct runview *view)
{
    struct chart c = chart_new("loss");
    static const char *const name[] = {"loss", "val_loss"};
    for (size_t i = 0; i < DS_LEN(name); i++) {
        const struct series *s = runview_series(view, name[i]);
        if (s && s->n)
            c.curve[c.curves++] = (struct curve){.series = s,
                                                 .label = i ? "val" : NULL,
                                                 .role = i ? ROLE_SERIES_1 : ROLE_SERIES_0,
                                                 .group = -1,
                                                 .steps_planned = view->steps_planned};
    }
    if (c.curves)
        chart_draw(a, &c, NULL);
    double all = (double)(view->bytes + view->tail);
    if (view->is_behind && view->tail > 0 && all > 0) /* its values are not the newest */
        area_textf(area_sub(a, 0, a.cols - 13, 1, 13), 0, 0, -1, ink(ROLE_WARN), "reading %3d %%",
                   (int)(100 * (double)runlog_reader_position(view->reader) / all));
}

/* A probe of the view, layers from the bottom up, tokens from left to right. */
static void draw_map(struct area a, const struct runview *view, const struct probe *p)
{
    int rows = p->layers < a.rows - 1 ? p->layers : a.rows - 1;
    int cols = p->tokens < a.cols ? p->tokens : a.cols;
    area_textf(a, 0, 0, -1, ink(ROLE_TITLE), "depth map: %d %ss x %d tokens, step %" PRId64,
               p->layers, runview_layer_word(view, p->layers), p->tokens, p->step);
    for (int y = 0; y < rows; y++)
        for (int x = 0; x < cols; x++) {
            int l0 = y * p->layers / rows, l1 = (y + 1) * p->layers / rows;
            int t0 = x * p->tokens / cols, t1 = (x + 1) * p->tokens / cols, on = 0;
            for (int l = l0; l < l1; l++)
                for (int t = t0; t < t1; t++)
                    on += p->run[l * p->tokens + t];
            area_heat(a, rows - y, x, 1, a.canvas->look.theme->sequential,
                      (double)on / ((l1 - l0) * (t1 - t0)));
        }
}

void home_draw_details(struct view *v, struct area a)
{
    struct home *h = v->state;
    struct home_details *d = &h->details;
    const struct run_row *r = home_run(h);
    char text[400], si[16];
    area_vline(a, 0, 0, a.rows, ink(ROLE_GRID));
    struct page p = {area_sub(a, 0, 2, a.rows, a.cols - 3), 0};
    if (!r || strcmp(d->path, r->path) != 0)
        return;
    area_text(p.area, p.y++, 0, -1, ink_attr(ink(ROLE_TITLE), ATTR_BOLD), r->name);
    char place[RUN_HOST_PATH];
    line(&p, "path", ROLE_DIM, run_row_place(r, place, sizeof place));
    if (r->remote && !d->view)
        line(&p, "", ROLE_DIM, "Enter fetches its records");
    line(&p, "format", ROLE_TEXT, r->format ? r->format : "");
    line(&p, "preset", ROLE_TEXT, r->preset);
    line(&p, "parent", ROLE_TEXT, r->parent);
    if (d->view) {
        line(&p, "source", ROLE_TEXT, runview_source(d->view, text, sizeof text));
        line(&p, "host", ROLE_TEXT, r->number[RUN_PID] > 0 ? "" : d->view->host);
    }
    line(&p, "tags", ROLE_MARKED, run_column_text(r, run_column_find("tag"), 0, text, sizeof text));
    line(&p, "note", ROLE_TEXT, r->notes.note);
    if (isfinite(d->disk_bytes) && !r->remote &&
        !app_is_scripted(v->app)) { /* depends on the file system */
        snprintf(text, sizeof text, "%s%sB", d->is_disk_cut ? "more than " : "",
                 str_si(si, d->disk_bytes));
        line(&p, "disk", ROLE_TEXT, text);
    }
    draw_checkpoints(&p, d, a.rows < 30 ? 3 : 6);
    const struct probe *probe = d->view ? runview_probe(d->view, -1) : NULL;
    int rest = p.area.rows - p.y - 1,
        settings = (int)d->settings < rest / 4 ? (int)d->settings : rest / 4;
    int map = probe && probe->run && rest > 16
                  ? (probe->layers + 1 < rest / 3 ? probe->layers + 1 : rest / 3)
                  : 0;
    p.y++;
    draw_settings(&p, d, settings);
    int chart = p.area.rows - p.y - map - (map > 0);
    if (d->view && chart >= 5)
        draw_loss(area_sub(p.area, p.y, 0, chart > 16 ? 16 : chart, p.area.cols), d->view);
    if (map)
        draw_map(area_sub(p.area, p.y + (chart > 16 ? 16 : chart) + 1, 0, map, p.area.cols),
                 d->view, probe);
}
