/* What Home does to a run: rename, tag, note, trash, restore, stop, resume, a new run like it.
 * Each is a key, a command and a hint that can be clicked; the work is that of io/runnotes.h and
 * training/job.h. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/fs.h"
#include "base/json.h"
#include "base/mem.h"
#include "io/checkpoint.h"
#include "training/job.h"
#include "tui/home.h"

static struct host *host_of(struct view *v, const char *path)
{
    size_t n;
    struct host *const *host = app_hosts(v->app, &n);
    for (size_t i = 0; i < n; i++)
        if (host_owns(host[i], path))
            return host[i];
    return NULL;
}

/* Why nothing can be done to a run, "" when something can. */
static const char *why_not(struct view *v, const struct run_row *r, int is_there_too, char *out,
                           size_t size)
{
    const struct home *h = v->state;
    char path[1100];
    out[0] = '\0';
    if (fs_join(path, sizeof path, job_root(), r->name, NULL) < 0)
        path[0] = '\0';
    if (r->format)
        snprintf(out, size, "%s: the log of another program (%s); it is only read", r->name,
                 r->format);
    else if (r->remote && !is_there_too)
        snprintf(out, size, "%s: on %s, where it cannot be done from here", r->name, r->remote);
    else if (r->remote && h->there.id)
        snprintf(out, size, "%s: a request to its host is not answered yet", h->there.run);
    else if (!r->remote && strcmp(path, r->path) != 0)
        snprintf(out, size, "%s: not in %s; it is only read", r->path, job_root());
    else if (!r->remote && !fs_name_ok(r->name))
        str_copy(out, size, "the name of this run has characters that runs may not have");
    return out;
}

/* The selected run, remembered for the question; NULL with a message when there is none. */
static struct run_row *begin(struct view *v, int is_there_too)
{
    struct home *h = v->state;
    struct run_row *r = home_run(h);
    char why[1400] = "no run is selected";
    if (h->form.is_open)
        return NULL;
    if (!r || why_not(v, r, is_there_too, why, sizeof why)[0]) {
        app_notify(v->app, LOG_WARN, "%s", why);
        return NULL;
    }
    h->acting_there = r->remote ? host_of(v, r->path) : NULL;
    str_copy(h->acting, sizeof h->acting, r->name);
    str_copy(h->acting_path, sizeof h->acting_path, r->path);
    return r;
}

int home_offers(struct view *v, const struct key *k)
{
    static key_fn *const own[] = {home_rename, home_tag,  home_note,  home_trash,
                                  home_stop,   home_like, home_resume};
    enum { HERE_ONLY = 4 };
    const struct run_row *r = home_run(v->state);
    char text[32];
    if (strcmp(k->command, "acknowledge") == 0)
        return r && app_alert_mark(v->app, r, text, sizeof text) > 0;
    for (size_t i = 0; i < DS_LEN(own); i++)
        if (k->fn == own[i] &&
            (!r || r->format || (r->remote && i < HERE_ONLY) ||
             (own[i] == home_stop && !r->is_live) || (own[i] == home_resume && r->is_live)))
            return 0;
    return 1;
}

static void report(struct view *v, int rc, const struct err *e, const char *done)
{
    if (rc < 0)
        app_notify(v->app, LOG_ERROR, "%s", e->text);
    else
        app_notify(v->app, LOG_INFO, "%s", done);
    home_load(v);
}

/* ---- rename, tag, note ---- */

static void renamed(void *ctx, const char *text)
{
    struct view *v = ctx;
    struct home *h = v->state;
    struct err e = {0};
    char done[400], path[1100], from[1100];
    if (!text || strcmp(text, h->acting) == 0)
        return;
    int rc = run_rename(job_root(), h->acting, text, &e);
    snprintf(done, sizeof done, "%s: renamed to %.64s", h->acting, text);
    report(v, rc, &e, done);
    if (rc < 0 || fs_join(path, sizeof path, job_root(), text, NULL) < 0)
        return;
    if (fs_join(from, sizeof from, job_root(), h->acting, NULL) == 0)
        app_run_moved(v->app, from, path);
    for (size_t i = 0; i < h->items; i++) /* the cursor follows the run */
        if (h->item[i].kind == HOME_RUN && strcmp(h->item[i].row->path, path) == 0)
            h->list.cursor = i;
}

void home_rename(struct view *v, const struct key *k, const char *args)
{
    struct run_row *r = begin(v, 0);
    (void)k;
    if (r && args && *args)
        renamed(v, args);
    else if (r)
        app_ask(v->app, "rename to", r->name, renamed, v);
}

/* Changes the notes of the run that the question was about. */
static void change_notes(struct view *v, const char *tags, const char *note)
{
    struct home *h = v->state;
    struct run_notes n;
    struct err e = {0};
    char dir[1100], done[400], word[256];
    int rc = fs_join(dir, sizeof dir, job_root(), h->acting, &e);
    if (rc == 0)
        rc = run_notes_read(&n, dir, &e);
    if (rc == 0 && note)
        rc = run_notes_set(&n, note, &e);
    for (const char *p = tags ? tags : ""; rc == 0 && *(p += strspn(p, " "));) {
        size_t len = strcspn(p, " ");
        snprintf(word, sizeof word, "%.*s", (int)len, p);
        rc = run_notes_tag(&n, word, &e);
        p += len;
    }
    if (rc == 0)
        rc = run_notes_write(&n, dir, &e);
    snprintf(done, sizeof done, "%s: %s saved", h->acting, note ? "note" : "tags");
    report(v, rc, &e, done);
}

static void tagged(void *ctx, const char *text)
{
    if (text && *text)
        change_notes(ctx, text, NULL);
}

void home_tag(struct view *v, const struct key *k, const char *args)
{
    (void)k;
    if (!begin(v, 0))
        return;
    if (args && *args)
        tagged(v, args);
    else
        app_ask(v->app, "+tag -tag", "+", tagged, v);
}

static void noted(void *ctx, const char *text)
{
    if (text)
        change_notes(ctx, NULL, text);
}

void home_note(struct view *v, const struct key *k, const char *args)
{
    struct run_row *r = begin(v, 0);
    (void)k;
    if (r && args && *args)
        noted(v, args);
    else if (r)
        app_ask(v->app, "note", r->notes.note, noted, v);
}

/* ---- trash ---- */

static void trash(void *ctx)
{
    struct view *v = ctx;
    struct home *h = v->state;
    struct err e = {0};
    char done[400];
    int rc = run_trash(job_root(), h->acting, &e);
    if (rc == 0) {
        if (h->n_trashed == HOME_UNDO_MAX)
            memmove(h->trashed[0], h->trashed[1], sizeof h->trashed[0] * (size_t)--h->n_trashed);
        str_copy(h->trashed[h->n_trashed++], sizeof h->trashed[0], h->acting);
    }
    snprintf(done, sizeof done, "%s is in the trash; u restores it", h->acting);
    report(v, rc, &e, done);
}

void home_trash(struct view *v, const struct key *k, const char *args)
{
    struct home *h = v->state;
    struct run_row *r = begin(v, 0);
    char question[400];
    (void)k, (void)args;
    if (!r)
        return;
    if (r->is_live) {
        app_notify(v->app, LOG_WARN, "%s is live: stop it first (X)", r->name);
        return;
    }
    snprintf(question, sizeof question, "Move %s to the trash?", h->acting);
    app_confirm(v->app, question, trash, v);
}

static int restore(struct view *v, const char *name)
{
    struct err e = {0};
    char done[120];
    int rc = run_restore(job_root(), name, &e);
    snprintf(done, sizeof done, "%.64s: restored", name);
    report(v, rc, &e, done);
    return rc;
}

void home_restore(struct view *v, const struct key *k, const char *args)
{
    struct home *h = v->state;
    (void)k;
    if (args && *args)
        (void)restore(v, args);
    else if (h->n_trashed > 0)
        home_undo(v, k, NULL);
    else
        app_notify(v->app, LOG_WARN, "missing NAME; depthscope runs --trash lists the trash");
}

/* A run that was moved to the trash comes back first, then settings of the view. */
void home_undo(struct view *v, const struct key *k, const char *args)
{
    struct home *h = v->state;
    (void)k, (void)args;
    if (h->n_trashed > 0 && !app_is_readonly(v->app)) {
        if (restore(v, h->trashed[h->n_trashed - 1]) == 0)
            h->n_trashed--;
    } else if (view_undo_step(v, -1)) {
        home_rebuild(v);
    } else {
        app_notify(v->app, LOG_INFO, "nothing to undo in this view");
    }
}

/* ---- stop, new run like this one ---- */

static void stop(void *ctx)
{
    struct view *v = ctx;
    const struct home *h = v->state;
    app_send(v->app, h->acting_path, "stop");
}

void home_stop(struct view *v, const struct key *k, const char *args)
{
    struct home *h = v->state;
    struct run_row *r = begin(v, 1);
    char question[400];
    (void)k, (void)args;
    if (!r)
        return;
    if (!r->is_live) {
        app_notify(v->app, LOG_WARN, "%s is not live", r->name);
        return;
    }
    int saves = r->remote ? r->preset[0] != '\0' : run_row_config(r, "model.method") != NULL;
    snprintf(question, sizeof question,
             saves ? "Save a checkpoint and stop %s%s%s?" : "Stop %s%s%s?",
             r->remote ? r->remote : "", r->remote ? ":" : "", h->acting);
    app_confirm(v->app, question, stop, v);
}

void home_like(struct view *v, const struct key *k, const char *args)
{
    struct home *h = v->state;
    struct run_row *r = begin(v, 1);
    (void)k, (void)args;
    if (!r)
        return;
    if (h->form.is_starting)
        app_notify(v->app, LOG_WARN, "run %s is still starting; try later", h->form.launch.name);
    else if (r->remote && !form_setting_there(v, r->path, "model.method"))
        app_notify(v->app, LOG_WARN,
                   "%s: open it first (Enter), its settings come with its records", r->name);
    else
        form_open_like(&h->form, v, r);
}

/* ---- resume ---- */

void home_add_choice(struct home *h, const char *from, const char *text)
{
    if (h->choices.n == HOME_CHOICES_MAX)
        return;
    str_copy(h->choice[h->choices.n].from, sizeof h->choice[0].from, from);
    str_copy(h->choice[h->choices.n++].text, sizeof h->choice[0].text, text);
}

/* Newest, best, then every older checkpoint; 0 when there is none. */
static size_t find_choices(struct home *h, const char *dir)
{
    char path[1100], text[80], from[24];
    int64_t *steps = NULL;
    size_t n = 0;
    struct json *best = NULL;
    h->choices = (struct list){0};
    if (fs_join(path, sizeof path, dir, "checkpoints", NULL) < 0 ||
        checkpoint_steps(path, &steps, &n, NULL) < 0 || n == 0) {
        mem_free(steps);
        return 0;
    }
    snprintf(text, sizeof text, "newest: step %" PRId64 ", continues this run", steps[0]);
    home_add_choice(h, "", text);
    if (fs_join(path, sizeof path, dir, "best.json", NULL) == 0 && fs_exists(path) &&
        json_read_file(&best, path, 1 << 16, NULL) == 0) {
        snprintf(text, sizeof text, "best: step %" PRId64 ", val loss %.4f, as a new run",
                 json_int(json_get(json_root(best), "step"), 0),
                 json_num(json_get(json_root(best), "val_loss"), (double)NAN));
        home_add_choice(h, "best", text);
        json_free(best);
    }
    for (size_t i = 0; i < n; i++) {
        snprintf(text, sizeof text, "step %" PRId64 ", as a new run", steps[i]);
        snprintf(from, sizeof from, "%" PRId64, steps[i]);
        home_add_choice(h, from, text);
    }
    mem_free(steps);
    return n;
}

static void launch(struct view *v, const char *from)
{
    struct home *h = v->state;
    struct err e = {0};
    if (h->acting_there) {
        home_resume_there(v, from[0] ? from : "newest");
        return;
    }
    if (h->is_launching) {
        app_notify(v->app, LOG_WARN, "run %s is still starting; try later", h->launch.name);
        return;
    }
    if (job_launch_resume(&h->launch, h->acting, from[0] ? from : NULL, &e) < 0) {
        app_notify(v->app, LOG_ERROR, "%s", e.text);
        return;
    }
    h->is_launching = 1;
    app_notify(v->app, LOG_INFO, "run %s is starting", h->launch.name);
}

void home_pick_begin(struct view *v)
{
    struct home *h = v->state;
    h->is_picking = 1;
    v->grabs = GRAB_TEXT;
    v->is_dirty = 1;
}

void home_resume(struct view *v, const struct key *k, const char *args)
{
    struct home *h = v->state;
    struct run_row *r = begin(v, 1);
    (void)k;
    if (!r)
        return;
    if (r->is_live) {
        app_notify(v->app, LOG_WARN, "%s is live already", r->name);
        return;
    }
    if (r->remote) {
        home_resume_there(v, args ? args : "");
        return;
    }
    if (find_choices(h, r->path) == 0) {
        app_notify(v->app, LOG_WARN, "%s: no checkpoint to resume from", r->name);
        return;
    }
    if (args && *args) {
        launch(v, strcmp(args, "newest") == 0 ? "" : args);
        return;
    }
    home_pick_begin(v);
}

static void end_picking(struct view *v)
{
    struct home *h = v->state;
    h->is_picking = 0;
    v->grabs = GRAB_NONE;
    v->is_dirty = 1;
}

int home_pick_event(struct view *v, const struct event *ev)
{
    struct home *h = v->state;
    if (ev->kind == EVENT_MOUSE && ev->action == MOUSE_PRESS) {
        int y = ev->y - (h->choice_rows.y - h->body.y), x = ev->x - (h->choice_rows.x - h->body.x);
        if (y < 0 || x < 0 || y >= h->choice_rows.rows || x >= h->choice_rows.cols)
            end_picking(v);
        else if (h->choices.top + (size_t)y < h->choices.n) {
            h->choices.cursor = h->choices.top + (size_t)y;
            end_picking(v);
            launch(v, h->choice[h->choices.cursor].from);
        }
        return 1;
    }
    if (ev->kind == EVENT_KEY && (ev->key == KEYCODE_ESC || ev->key == 'q')) {
        end_picking(v);
    } else if (ev->kind == EVENT_KEY && ev->key == KEYCODE_ENTER) {
        end_picking(v);
        launch(v, h->choice[h->choices.cursor].from);
    } else {
        (void)list_event(&h->choices, ev);
        v->is_dirty = 1;
    }
    return 1;
}

void home_pick_draw(struct view *v, struct area a)
{
    struct home *h = v->state;
    char title[96];
    snprintf(title, sizeof title, "resume %.64s from", h->acting);
    int rows = (int)h->choices.n < a.rows - 4 ? (int)h->choices.n : a.rows - 4;
    struct area in = popup_begin(a, rows, 54, title);
    h->choice_rows = in;
    h->body = a;
    list_fit(&h->choices, h->choices.n, in.rows);
    for (size_t i = h->choices.top; i < h->choices.n && (int)(i - h->choices.top) < in.rows; i++) {
        int y = (int)(i - h->choices.top);
        area_text(in, y, 2, in.cols - 3, ink(ROLE_TEXT), h->choice[i].text);
        if (i == h->choices.cursor)
            area_select(in, y, 0, in.cols - 1);
    }
    scrollbar_draw(in, in.cols - 1, h->choices.n, h->choices.top, in.rows);
}

int home_poll_launch(struct view *v)
{
    struct home *h = v->state;
    char words[400], path[1024];
    double end = clock_mono() + 60;
    if (h->there.id)
        return home_poll_there(v);
    if (!h->is_launching)
        return 0;
    enum launch_state state = job_launch_state(&h->launch, words, sizeof words);
    while (app_is_scripted(v->app) && state == LAUNCH_STARTING && clock_mono() < end) {
        clock_sleep(0.02); /* a key script is not polled again, so it waits here */
        state = job_launch_state(&h->launch, words, sizeof words);
    }
    if (state == LAUNCH_STARTING)
        return 0;
    str_copy(path, sizeof path, h->launch.dir);
    job_launch_release(&h->launch);
    h->is_launching = 0;
    home_load(v);
    if (state == LAUNCH_FAILED)
        app_notify(v->app, LOG_ERROR, "run %s failed to start: %s", h->launch.name, words);
    else
        home_open_path(v, path);
    return 1;
}
