/* The children of the Figures view: the program's own figure command lists, checks and draws, so
 * that a slow figure never holds up the screen and nothing here knows how figures are made. */
#include <errno.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fs.h"
#include "base/json.h"
#include "figures/palette.h"
#include "tui/figures.h"

enum { WORDS_MAX = APP_RUNS_MAX + 24, OUTPUT_MAX = 64 << 20, WIDTH_MAX = 1600 };

const char *const figures_format[FIGURES_FORMATS] = {"png,svg,pdf", "png", "svg", "pdf"};

const struct figure_entry *figures_at(const struct figures *s)
{
    return s->list.cursor < s->n ? &s->figure[s->list.cursor] : NULL;
}

const char *figures_venue(const struct figures *s)
{
    return s->venue >= 0 && s->venue < s->venues ? s->venue_name[s->venue] : "icml";
}

const char *figures_theme(const struct figures *s)
{
    return s->theme >= 0 && (size_t)s->theme < s->themes ? s->theme_name[s->theme] : "light";
}

size_t figures_runs(struct view *v, const char **path, size_t max)
{
    size_t n, current, k = 0;
    const struct open_run *run = app_runs(v->app, &n, &current);
    for (size_t i = 0; i < n && k < max; i++)
        if (i == current || run[i].is_marked)
            path[k++] = run[i].path;
    return k;
}

/* ---- what to check and preview ---- */

static void add_runs(struct view *v, struct str *out)
{
    const char *path[APP_RUNS_MAX];
    size_t n = figures_runs(v, path, APP_RUNS_MAX);
    str_renew(out);
    for (size_t i = 0; i < n; i++)
        str_addf(out, "%s\n", path[i]);
}

/* Pixels to ask for: of the area with a graphics protocol, else four to a cell, averaged. */
static int preview_width(const struct figures *s)
{
    int w = s->preview_cols * (s->kind == GRAPHICS_NONE ? 4 : s->cell_w);
    return w < 64 ? 64 : w > WIDTH_MAX ? WIDTH_MAX : w;
}

static void add_key(struct view *v, struct str *out)
{
    struct figures *s = v->state;
    const struct figure_entry *f = figures_at(s);
    add_runs(v, out);
    if (f)
        str_addf(out, "%s\n%s\n%s\n%d\n%d", f->name, figures_venue(s), figures_theme(s),
                 preview_width(s), s->kind == GRAPHICS_KITTY);
}

static int is_text(const struct str *a, const struct str *b)
{
    return strcmp(str_text(a), str_text(b)) == 0;
}

/* ---- children ---- */

void figures_stop(struct figures *s)
{
    if (s->job != FIGURES_IDLE)
        child_close(&s->child, SIGKILL);
    s->child = (struct child)CHILD_NONE;
    s->job = FIGURES_IDLE;
    str_renew(&s->out);
}

static void start(struct view *v, enum figures_job job)
{
    struct figures *s = v->state;
    const char *argv[WORDS_MAX] = {"depthscope", "figure"}, *path[APP_RUNS_MAX];
    char width[16];
    struct err e = {0};
    size_t n = 2, runs = figures_runs(v, path, APP_RUNS_MAX);
    struct child_setup how = {.program = app_program(v->app),
                              .argv = argv,
                              .in = CHILD_NULL,
                              .out = CHILD_PIPE,
                              .err = CHILD_PIPE,
                              .is_nonblocking = 1,
                              .is_session = 1};
    argv[n++] = job == FIGURES_LIST ? "list" : job == FIGURES_CHECK ? "all" : figures_at(s)->name;
    for (size_t i = 0; job != FIGURES_LIST && i < runs; i++)
        argv[n++] = path[i];
    if (job == FIGURES_CHECK)
        argv[n++] = "--dry-run";
    if (job != FIGURES_PREVIEW)
        argv[n++] = "--json";
    if (job == FIGURES_PREVIEW) {
        snprintf(width, sizeof width, "%d", preview_width(s));
        const char *const more[] = {"--preview",      width,     "--venue",
                                    figures_venue(s), "--theme", figures_theme(s)};
        for (size_t i = 0; i < sizeof more / sizeof *more; i++)
            argv[n++] = more[i];
        if (s->kind == GRAPHICS_KITTY) {
            argv[n++] = "--format";
            argv[n++] = "png";
        }
    }
    s->child = (struct child)CHILD_NONE;
    str_renew(&s->out);
    s->job = job;
    if (child_start(&s->child, &how, &e) < 0) {
        s->job = FIGURES_IDLE;
        str_copy(s->error, sizeof s->error, e.text);
        s->has_failed_list |= job == FIGURES_LIST;
    }
}

/* ---- results ---- */

static void take_list(struct figures *s, const struct json_node *root)
{
    const struct json_node *all = json_get(root, "figures"), *venues = json_get(root, "venues");
    s->n = 0;
    for (size_t i = 0; i < json_len(all) && s->n < FIGURES_MAX; i++) {
        struct figure_entry *f = &s->figure[s->n++];
        *f = (struct figure_entry){.is_checked = 0};
        str_copy(f->name, sizeof f->name, json_get_text(json_at(all, i), "name"));
        str_copy(f->title, sizeof f->title, json_get_text(json_at(all, i), "title"));
        str_copy(f->needs, sizeof f->needs, json_get_text(json_at(all, i), "needs"));
    }
    for (s->venues = 0; (size_t)s->venues < json_len(venues) && s->venues < FIGURES_VENUES;) {
        const char *name = json_str(json_at(venues, (size_t)s->venues), NULL);
        str_copy(s->venue_name[s->venues++], sizeof s->venue_name[0], name ? name : "");
    }
}

static void take_check(struct figures *s, const struct json_node *root)
{
    const struct json_node *drawn = json_get(root, "figures"), *not = json_get(root, "skipped");
    for (size_t k = 0; k < s->n; k++) {
        struct figure_entry *f = &s->figure[k];
        for (size_t i = 0; i < json_len(drawn); i++) {
            const char *name = json_str(json_get(json_at(drawn, i), "name"), NULL);
            if (name && strcmp(name, f->name) == 0) {
                f->is_checked = 1;
                f->why[0] = '\0';
            }
        }
        for (size_t i = 0; i < json_len(not ); i++) {
            const char *name = json_str(json_get(json_at(not, i), "name"), NULL);
            if (name && strcmp(name, f->name) == 0) {
                f->is_checked = 1;
                str_copy(f->why, sizeof f->why, json_get_text(json_at(not, i), "why"));
            }
        }
    }
    for (size_t k = s->n; !s->has_moved && k-- > 0;) /* a figure that can be seen */
        if (s->figure[k].is_checked && !s->figure[k].why[0])
            s->list.cursor = k;
}

/* "P6\n640 400\n255\n" and pixels, or a PNG, whose size is in its first chunk. */
static int take_picture(struct figures *s)
{
    const unsigned char *p = (const unsigned char *)s->out.p;
    size_t n = s->out.len;
    int w = 0, h = 0, at = 0;
    s->is_png = n > 24 && memcmp(p, "\x89PNG", 4) == 0;
    if (s->is_png) {
        w = p[18] << 8 | p[19];
        h = p[22] << 8 | p[23];
    } else if (n < 16 || sscanf(str_text(&s->out), "P6 %d %d 255%n", &w, &h, &at) != 2 || at == 0 ||
               n - (size_t)at - 1 != (size_t)w * (size_t)h * 3) {
        return 0;
    }
    if (w < 1 || h < 1 || w > 16384 || h > 16384)
        return 0;
    struct str old = s->picture;
    s->picture = s->out;
    s->out = old;
    s->pixels = (const unsigned char *)s->picture.p + (s->is_png ? 0 : at + 1);
    s->width = w;
    s->height = h;
    s->serial++;
    return 1;
}

static void finish(struct view *v)
{
    struct figures *s = v->state;
    char why[CHILD_TAIL];
    struct json *j = NULL;
    struct err e = {0};
    enum figures_job job = s->job;
    while (child_tail(&s->child, s->child.err) > 0) {
    }
    child_wait(&s->child);
    int failed = child_verdict(&s->child, why, sizeof why) < 0;
    child_close(&s->child, 0);
    s->child = (struct child)CHILD_NONE;
    s->job = FIGURES_IDLE;
    s->error[0] = '\0';
    if (job == FIGURES_PREVIEW) {
        str_renew(&s->key_shown);
        str_add(&s->key_shown, str_text(&s->key));
        s->pixels = NULL;
        if (failed || !take_picture(s)) {
            const char *colon = strncmp(why, "figure ", 7) == 0 ? strstr(why, ": ") : NULL;
            str_copy(s->error, sizeof s->error,
                     !failed ? "the preview could not be read"
                     : colon ? colon + 2
                             : why);
        }
    } else if (json_parse(&j, s->out.p ? s->out.p : "", s->out.len, "figure", &e) == 0) {
        (job == FIGURES_LIST ? take_list : take_check)(s, json_root(j));
        json_free(j);
    } else {
        str_copy(s->error, sizeof s->error, failed && why[0] ? why : e.text);
        s->has_failed_list |= job == FIGURES_LIST;
    }
    str_renew(&s->out);
}

/* 1 when the child has closed its output. */
static int take_output(struct figures *s)
{
    char buf[16384];
    for (;;) {
        ssize_t got = read(s->child.out, buf, sizeof buf);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return errno != EAGAIN;
        if (got == 0 || s->out.len > OUTPUT_MAX)
            return 1;
        str_add_bytes(&s->out, buf, (size_t)got);
    }
}

/* ---- one step ---- */

/* Whether a preview makes sense: the runs allow the figure, and the area for it is known. */
static int can_preview(struct view *v)
{
    struct figures *s = v->state;
    const struct figure_entry *f = figures_at(s);
    return f && f->is_checked && !f->why[0] && s->preview_cols > 0;
}

static int begin_next(struct view *v)
{
    struct figures *s = v->state;
    const char *path[1];
    struct str now = {0};
    int has_begun = 0;
    if (s->n == 0) {
        if (!s->has_failed_list)
            start(v, FIGURES_LIST);
        return s->job != FIGURES_IDLE;
    }
    add_runs(v, &now);
    if (figures_runs(v, path, 1) > 0 && !is_text(&now, &s->runs_checked)) {
        for (size_t i = 0; i < s->n; i++)
            s->figure[i].is_checked = 0;
        str_renew(&s->runs_checked);
        str_add(&s->runs_checked, str_text(&now));
        start(v, FIGURES_CHECK);
        has_begun = 1;
    } else if (can_preview(v)) {
        add_key(v, &now);
        if (!is_text(&now, &s->key_shown) &&
            (app_is_scripted(v->app) || clock_mono() >= s->start_at)) {
            str_renew(&s->key);
            str_add(&s->key, str_text(&now));
            start(v, FIGURES_PREVIEW);
            has_begun = 1;
        }
    }
    str_release(&now);
    return has_begun;
}

/* A preview of a figure that is no longer under the cursor is not waited for. */
static void drop_stale(struct view *v)
{
    struct figures *s = v->state;
    struct str now = {0};
    if (s->job == FIGURES_PREVIEW) {
        add_key(v, &now);
        if (!is_text(&now, &s->key))
            figures_stop(s);
    }
    str_release(&now);
}

int figures_work(struct view *v)
{
    struct figures *s = v->state;
    int changed = 0;
    for (;;) {
        drop_stale(v);
        if (s->job == FIGURES_IDLE && !begin_next(v))
            return changed;
        if (s->job == FIGURES_IDLE)
            return 1; /* it did not start: the error is shown */
        if (app_is_scripted(v->app)) {
            struct pollfd w = {.fd = s->child.out, .events = POLLIN};
            poll(&w, 1, -1);
        }
        if (take_output(s)) {
            finish(v);
            changed = 1;
        } else if (!app_is_scripted(v->app)) {
            return changed;
        }
    }
}

double figures_due(struct view *v)
{
    const struct figures *s = v->state;
    return s->job == FIGURES_IDLE && s->start_at > clock_mono() ? s->start_at : HUGE_VAL;
}

int figures_fd(struct view *v)
{
    const struct figures *s = v->state;
    return s->job != FIGURES_IDLE ? s->child.out : -1;
}
