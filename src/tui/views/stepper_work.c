/* The worker process of the Stepper: start, requests and answers, all without blocking. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "tui/stepper.h"

/* ---- start and stop ---- */

void stepper_stop(struct stepper *s)
{
    session_close(s->session);
    s->session = NULL;
    s->n_asked = 0;
    s->offset_asked = 0;
}

void stepper_forget(struct stepper *s)
{
    runview_free(s->now);
    runview_free(s->base);
    runview_free(s->about);
    s->now = s->base = s->about = NULL;
    s->n_forced = 0;
    s->offset = s->offset_now = 0;
    s->exit = 0;
    s->options[0] = '\0';
}

static int send(struct view *v, const struct str *line, struct stepper_asked a)
{
    struct stepper *s = v->state;
    struct err e = {0};
    if (!s->session)
        return 0;
    if (s->n_asked == STEPPER_ASKED_MAX) {
        app_notify(v->app, LOG_WARN, "the model is still busy with the previous request");
        return 0;
    }
    if (line->failed || session_send(s->session, str_text(line), &e) < 0) {
        app_notify(v->app, LOG_ERROR, "%s", line->failed ? "request: out of memory" : e.text);
        return 0;
    }
    s->asked[s->n_asked++] = a;
    return 1;
}

static struct stepper_asked state_then(const struct stepper *s)
{
    return (struct stepper_asked){.is_plain =
                                      s->n_forced == 0 && s->offset_asked == 0 && s->exit == 0,
                                  .offset = s->offset_asked};
}

static void first_text(struct view *v)
{
    struct stepper *s = v->state;
    struct pick k;
    const char *kept = app_recall(v->app, "stepper.prompt");
    pick_load(&k, v->app);
    const struct probe *p =
        s->given[0] && !s->has_probe_text ? NULL : pick_probe(&k, app_run(v->app));
    if (kept && *kept && !(p && s->has_probe_text)) {
        field_set(&s->prompt, kept);
        stepper_ask_text(v, kept);
    } else if (p) {
        stepper_ask_ids(v, p);
    } else {
        field_set(&s->prompt, "Once upon a time");
        stepper_ask_text(v, "Once upon a time");
    }
}

void stepper_start(struct view *v)
{
    struct stepper *s = v->state;
    struct err e = {0};
    char path[1024] = "";
    stepper_stop(s);
    stepper_forget(s);
    s->newer_step = -1;
    s->started_newest = s->follows_newest;
    s->trouble[0] = s->model[0] = '\0'; /* the title names no model of before */
    if (!worker_find_model(v->app, s->given, s->follows_newest, path, sizeof path, &s->newest_step,
                           s->trouble, sizeof s->trouble))
        return;
    str_copy(s->model, sizeof s->model, path);
    int rc = session_open(&s->session, path, &e);
    if (rc < 0) {
        s->session = NULL;
        str_copy(s->trouble, sizeof s->trouble, e.text);
        return;
    }
    s->had_model = 1;
    struct str line = {0};
    str_add(&line, "{\"do\":\"info\"}");
    send(v, &line, state_then(s));
    str_release(&line);
    first_text(v);
}

int stepper_is_busy(const struct stepper *s)
{
    return s->session && s->n_asked > 0;
}

/* ---- requests ---- */

void stepper_ask_text(struct view *v, const char *text)
{
    struct stepper *s = v->state;
    struct str line = {0};
    str_add(&line, "{\"do\":\"trace\",\"text\":");
    str_add_json(&line, text, strlen(text));
    str_addf(&line, ",\"lens\":%d}", STEPPER_LENS);
    s->n_forced = s->has_probe_text = 0; /* forced cells do not apply to another text */
    struct stepper_asked a = state_then(s);
    a.moves_on = a.is_text = 1;
    send(v, &line, a);
    str_release(&line);
}

void stepper_ask_ids(struct view *v, const struct probe *p)
{
    struct stepper *s = v->state;
    struct str line = {0}, text = {0};
    str_add(&line, "{\"do\":\"trace\",\"ids\":[");
    for (int t = 0; t < p->tokens; t++) {
        str_addf(&line, "%s%d", t ? "," : "", p->id[t]);
        str_add_bytes(&text, p->piece[t], p->piece_len[t]);
    }
    str_addf(&line, "],\"lens\":%d}", STEPPER_LENS);
    s->n_forced = 0;
    if (p != worker_probe(s->now)) /* the same text keeps the typed prompt */
        field_set(&s->prompt, str_text(&text));
    send(v, &line, state_then(s));
    str_release(&line);
    str_release(&text);
}

void stepper_ask_next(struct view *v)
{
    struct stepper *s = v->state;
    struct str line = {0};
    struct stepper_asked a = state_then(s);
    a.moves_on = 1;
    str_addf(&line, "{\"do\":\"next\",\"temperature\":%.3g,\"top_k\":40,\"seed\":%d",
             s->temperature, ++s->seed);
    if (s->speculate > 0)
        str_addf(&line, ",\"speculate\":%d", s->speculate);
    str_add(&line, "}");
    send(v, &line, a);
    str_release(&line);
}

static struct stepper_forced forced_at(const struct stepper *s, int layer, int token)
{
    for (int i = 0; i < s->n_forced; i++)
        if (s->forced[i].layer == layer && s->forced[i].token == token)
            return s->forced[i];
    return (struct stepper_forced){layer, token, -1, -1};
}

/* Enters a cell in the list, or removes it when nothing of it is forced.  0: the list is full. */
static int set_forced(struct stepper *s, struct stepper_forced x)
{
    int i = 0, is_free = x.run < 0 && x.expert < 0;
    while (i < s->n_forced && (s->forced[i].layer != x.layer || s->forced[i].token != x.token))
        i++;
    if (i == STEPPER_FORCED_MAX)
        return is_free;
    s->forced[i] = x;
    s->n_forced += i == s->n_forced;
    if (is_free) {
        memmove(s->forced + i, s->forced + i + 1,
                (size_t)(s->n_forced - i - 1) * sizeof s->forced[0]);
        s->n_forced--;
    }
    return 1;
}

static void ask_forced(struct view *v, struct stepper_forced x, const char *what, int value)
{
    struct stepper *s = v->state;
    struct stepper_forced before = forced_at(s, x.layer, x.token);
    struct str line = {0};
    if (!set_forced(s, x)) {
        app_notify(v->app, LOG_WARN, "at most %d forced cells: x frees all", STEPPER_FORCED_MAX);
        return;
    }
    str_addf(&line, "{\"do\":\"force\",\"layer\":%d,\"token\":%d,\"%s\":%d}", x.layer, x.token,
             what, value);
    struct stepper_asked a = state_then(s);
    a.is_force = 1;
    a.before = before;
    if (!send(v, &line, a))
        set_forced(s, before);
    str_release(&line);
}

/* run: 1, 0, or -1 to return the decision to the method. */
void stepper_ask_force(struct view *v, int layer, int token, int run)
{
    struct stepper_forced x = forced_at(v->state, layer, token);
    x.run = run;
    ask_forced(v, x, "run", run);
}

void stepper_ask_expert(struct view *v, int layer, int token, int expert)
{
    struct stepper_forced x = forced_at(v->state, layer, token);
    x.expert = expert;
    ask_forced(v, x, "expert", expert);
}

void stepper_ask_exit(struct view *v, int layers)
{
    struct stepper *s = v->state;
    struct str line = {0};
    int before = s->exit;
    s->exit = layers;
    str_addf(&line, "{\"do\":\"exit\",\"layers\":%d}", layers);
    struct stepper_asked a = state_then(s);
    a.is_exit = 1;
    a.exit_before = before;
    if (!send(v, &line, a))
        s->exit = before;
    str_release(&line);
}

void stepper_ask_option(struct view *v, const char *text)
{
    struct stepper *s = v->state;
    struct str line = {0};
    size_t n = text ? strlen(text) : 0;
    while (n > 0 && text[n - 1] == ' ')
        n--;
    str_add(&line, "{\"do\":\"option\"");
    if (n > 0) {
        str_add(&line, ",\"set\":");
        str_add_json(&line, text, n);
    }
    str_add(&line, "}");
    send(v, &line, state_then(s));
    str_release(&line);
}

/* Sends the same text again, which frees all forced cells. */
void stepper_ask_clear(struct view *v)
{
    struct stepper *s = v->state;
    const struct probe *p = worker_probe(s->now);
    if (p)
        stepper_ask_ids(v, p);
}

/* Sends only the newest offset, and only when no other request is pending. */
static int ask_offset(struct view *v)
{
    struct stepper *s = v->state;
    struct str line = {0};
    if (!s->session || s->n_asked > 0 || s->offset == s->offset_asked || !worker_probe(s->now))
        return 0;
    s->offset_asked = s->offset;
    str_addf(&line, "{\"do\":\"offset\",\"value\":%.17g}", s->offset);
    send(v, &line, state_then(s));
    str_release(&line);
    return 1;
}

/* ---- answers ---- */

static void take_probe(struct stepper *s, struct value body)
{
    struct stepper_asked a = s->n_asked > 0 ? s->asked[0] : (struct stepper_asked){0};
    const struct probe *old = worker_probe(s->now);
    int was_last = !old || s->cells.token >= old->tokens - 1;
    worker_replace(&s->now, body);
    s->offset_now = a.offset;
    const struct probe *p = worker_probe(s->now);
    if (a.is_plain && !s->options[0])
        worker_replace(&s->base, body);
    if (p && a.moves_on && was_last)
        s->cells.token = p->tokens - 1;
}

/* The options in force, as the head says. */
static void take_options(struct stepper *s, struct value body)
{
    struct value_iter it = {0};
    struct value map = value_get(body, "options"), key, item;
    struct str text = {0}, clean = {0};
    while (value_next(map, &it, &key, &item)) {
        size_t k = 0, n = 0;
        const char *name = value_bytes(key, &k), *value = value_bytes(item, &n);
        const char *dot = name ? memchr(name, '.', k) : NULL; /* after the method's name */
        if (dot && value)
            str_addf(&text, "%s%.*s=%.*s", text.len ? " " : "", (int)(name + k - dot - 1), dot + 1,
                     (int)n, value);
    }
    utf8_sanitise(&clean, str_text(&text), text.len, sizeof s->options - 1, 0);
    str_copy(s->options, sizeof s->options, str_text(&clean));
    str_release(&text);
    str_release(&clean);
}

/* What the refused request has changed is as before, unless a later one changes it again: that
 * one's state before is then this one's. */
static void undo_refused(struct stepper *s)
{
    struct stepper_asked a = s->asked[0];
    for (int i = 1; i < s->n_asked; i++) {
        struct stepper_asked *next = &s->asked[i];
        int is_same = a.is_exit ? next->is_exit
                                : next->is_force && next->before.layer == a.before.layer &&
                                      next->before.token == a.before.token;
        if (is_same) {
            next->before = a.before;
            next->exit_before = a.exit_before;
            return;
        }
        if (next->is_text) /* frees all forced cells */
            a.is_force = 0;
    }
    if (a.is_force)
        set_forced(s, a.before);
    if (a.is_exit)
        s->exit = a.exit_before;
}

static void end_of_request(struct stepper *s)
{
    if (s->n_asked > 0)
        memmove(s->asked, s->asked + 1, (size_t)--s->n_asked * sizeof s->asked[0]);
}

static void take_body(struct view *v, struct value body)
{
    struct stepper *s = v->state;
    struct value kind = value_get(body, "kind");
    if (value_is(kind, "probe")) {
        take_probe(s, body);
    } else if (value_is(kind, "head")) {
        worker_replace(&s->about, body);
        take_options(s, body);
    } else if (value_is(kind, "done")) {
        end_of_request(s);
    } else if (value_is(kind, "error")) {
        size_t n = 0;
        const char *text = value_bytes(value_get(body, "text"), &n);
        app_notify(v->app, LOG_WARN, "model: %.*s", (int)(n > 200 ? 200 : n),
                   text ? text : "error");
        int was_text = s->n_asked > 0 && s->asked[0].is_text;
        const struct probe *p = worker_probe(s->now);
        if (s->n_asked > 0 && (s->asked[0].is_force || s->asked[0].is_exit))
            undo_refused(s);
        end_of_request(s);
        if (was_text && p) /* the previous text stays, without its forced cells */
            stepper_ask_ids(v, p);
    }
}

/* Every two seconds: the first checkpoint starts the worker, a newer one is reported. */
static int look_for_newer(struct view *v)
{
    static const double every_s = 2;
    struct stepper *s = v->state;
    const struct open_run *r = worker_run(v->app);
    char path[1024];
    double now = app_now(v->app);
    if (fabs(now - s->looked) < every_s || s->given[0] || !r || !r->dir[0])
        return 0;
    s->looked = now;
    int64_t step = worker_newest_checkpoint(r->dir, path, sizeof path), before = s->newer_step;
    if (!s->session && !s->had_model && step >= 0) {
        stepper_start(v);
        return 1;
    }
    s->newer_step = s->newest_step >= 0 && step > s->newest_step ? step : -1;
    return s->newer_step != before;
}

int stepper_take(struct view *v)
{
    struct stepper *s = v->state;
    struct value body;
    struct err e = {0};
    int changed = 0, rc = 0;
    for (int i = 0; s->session && i < 64 && (rc = worker_next(v->app, s->session, &body, &e)) > 0;
         i++) {
        take_body(v, body);
        changed = 1;
    }
    if (s->session && rc < 0) {
        str_copy(s->trouble, sizeof s->trouble, e.text);
        if (s->n_asked > 0) /* the request that ended the worker is not repeated */
            app_remember(v->app, "stepper.prompt", "");
        stepper_stop(s);
        changed = 1;
    }
    changed |= ask_offset(v);
    return changed | look_for_newer(v);
}
