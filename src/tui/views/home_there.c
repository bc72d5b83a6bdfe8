/* Resuming a run on a host: its checkpoints are asked for, one is picked, and the host starts it. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tui/home.h"

void home_resume_there(struct view *v, const char *from)
{
    struct home *h = v->state;
    struct err e = {0};
    int is_resuming = from[0] != '\0';
    int64_t id = is_resuming ? host_resume(h->acting_there, h->acting_path,
                                           strcmp(from, "newest") == 0 ? "" : from, &e)
                             : host_checkpoints(h->acting_there, h->acting_path, &e);
    if (id < 0) {
        app_notify(v->app, LOG_ERROR, "%s", e.text);
        return;
    }
    h->there.host = h->acting_there;
    h->there.id = id;
    h->there.is_resuming = is_resuming;
    str_copy(h->there.run, sizeof h->there.run, h->acting);
    str_copy(h->there.path, sizeof h->there.path, h->acting_path);
    if (is_resuming)
        app_notify(v->app, LOG_INFO, "run %s is starting on %s", h->acting,
                   host_info(h->there.host).name);
}

/* "STEP STEP ... best STEP LOSS", the newest first. */
static void take_choices(struct home *h, const char *answer)
{
    char text[80], from[24];
    const char *best = strstr(answer, "best "), *p = answer;
    char *end;
    h->choices = (struct list){0};
    int64_t step = strtoll(p, &end, 10);
    if (end == p)
        return;
    snprintf(text, sizeof text, "newest: step %" PRId64 ", continues this run", step);
    home_add_choice(h, "", text);
    if (best) {
        long long at = strtoll(best + 5, &end, 10);
        snprintf(text, sizeof text, "best: step %lld, val loss %.16s, as a new run", at,
                 end + strspn(end, " "));
        home_add_choice(h, "best", text);
    }
    for (step = strtoll(p, &end, 10); end != p; p = end, step = strtoll(p, &end, 10)) {
        snprintf(text, sizeof text, "step %" PRId64 ", as a new run", step);
        snprintf(from, sizeof from, "%" PRId64, step);
        home_add_choice(h, from, text);
    }
}

static void begin_picking(struct view *v, const char *answer)
{
    struct home *h = v->state;
    if (h->form.is_open || h->is_picking)
        return;
    h->acting_there = h->there.host; /* another run may have been acted on since */
    str_copy(h->acting, sizeof h->acting, h->there.run);
    str_copy(h->acting_path, sizeof h->acting_path, h->there.path);
    take_choices(h, answer);
    if (h->choices.n > 0)
        home_pick_begin(v);
}

int home_poll_there(struct view *v)
{
    struct home *h = v->state;
    struct str text = {0};
    struct err e = {0};
    int rc = host_answer(h->there.host, h->there.id, &text, &e);
    if (rc == 0)
        return 0;
    h->there.id = 0;
    const struct run_row *row = rc > 0 ? host_find(h->there.host, str_text(&text)) : NULL;
    if (rc < 0) {
        app_notify(v->app, LOG_ERROR, "%s: %s", h->there.run, e.text);
    } else if (!h->there.is_resuming) {
        begin_picking(v, str_text(&text));
    } else if (row) {
        home_load(v);
        home_open_path(v, row->path);
    } else {
        app_notify(v->app, LOG_INFO, "run %s has begun", str_text(&text));
    }
    str_release(&text);
    return 1;
}
