/* Home's table: one row per run, preset and file, with columns that fit the width. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/str.h"
#include "base/utf8.h"
#include "io/host.h"
#include "training/job.h"
#include "tui/home.h"

enum {
    COL_MARK,
    COL_ALERT, /* where a run has one that nobody has looked at */
    COL_NAME,
    COL_STATE,
    COL_METHOD,
    COL_PROGRESS,
    COL_STEP,
    COL_VAL,
    COL_LOSS, /* where another program's run has no validation loss */
    COL_FLOPS,
    COL_TIME,
    COL_RATE,
    COL_ETA,
    COL_AGE,
    COL_HOST,
    COL_SPARK
};

static const struct column columns[HOME_COLUMNS] = {
    [COL_MARK] = {"", 1, 0, 21},        [COL_ALERT] = {"alert", 8, 0, 20},
    [COL_NAME] = {"run", -1, 0, 19},
    [COL_STATE] = {"state", 10, 0, 18}, [COL_METHOD] = {"method", 7, 0, 13},
    [COL_PROGRESS] = {"", 8, 0, 11},    [COL_STEP] = {"step", 11, 1, 15},
    [COL_VAL] = {"val loss", 9, 1, 14}, [COL_LOSS] = {"loss", 7, 1, 14},
    [COL_FLOPS] = {"FLOPs", 6, 1, 12},  [COL_TIME] = {"time", 5, 1, 9},
    [COL_RATE] = {"tok/s", 6, 1, 7},    [COL_ETA] = {"ETA", 7, 1, 10},
    [COL_AGE] = {"age", 5, 1, 8},       [COL_HOST] = {"host", 8, 0, 4},
    [COL_SPARK] = {"loss", 12, 0, 6},
};
/* The column of the index behind each. */
static const char *const key_of[HOME_COLUMNS] = {
    [COL_ALERT] = "alert",       [COL_NAME] = "name",         [COL_STATE] = "state",       [COL_METHOD] = "method",
    [COL_PROGRESS] = "progress", [COL_STEP] = "step",         [COL_VAL] = "val_loss",
    [COL_LOSS] = "loss",         [COL_FLOPS] = "flops_ratio", [COL_TIME] = "time_ratio",
    [COL_RATE] = "tok_s",        [COL_ETA] = "eta",           [COL_AGE] = "age",
    [COL_HOST] = "host",         [COL_SPARK] = "loss",
};

const char *const home_sorts[] = {"name",        "state",      "method", "step", "val_loss",
                                  "flops_ratio", "time_ratio", "tok_s",  "eta",  "age",
                                  "host",        "loss",       "preset", NULL};
const char *const home_groups[] = {"method", "state", "preset", "host", "tag", NULL};

static const char *key_named(const struct home *h, const char *const *names, int at)
{
    int n = 0;
    while (names[n] && n + 1 < at)
        n++;
    if (at >= HOME_TYPED)
        return at - HOME_TYPED < h->typed_keys ? h->typed_key[at - HOME_TYPED] : "";
    return at > 0 && names[n] ? names[n] : "";
}

int home_key_find(struct home *h, const char *const *names, const char *key)
{
    int at = 0;
    for (int i = 0; names[i]; i++)
        if (strcmp(names[i], key) == 0)
            return i + 1;
    if (strcmp(key, "none") == 0)
        return 0;
    while (at < h->typed_keys && strcmp(h->typed_key[at], key) != 0)
        at++;
    at = at < HOME_TYPED_MAX ? at : HOME_TYPED_MAX - 1;
    h->typed_keys = at < h->typed_keys ? h->typed_keys : at + 1;
    str_copy(h->typed_key[at], sizeof h->typed_key[at], key);
    return HOME_TYPED + at;
}

int home_key_next(const char *const *names, int at)
{
    int n = 0;
    while (names[n])
        n++;
    return at < n ? at + 1 : at > n ? 1 : 0;
}

const char *home_sort_key(const struct home *h, char *out, size_t size)
{
    const char *key = key_named(h, home_sorts, h->sort);
    snprintf(out, size, "%s%s", key[0] && h->is_descending ? "-" : "", key);
    return out;
}

const char *home_group_key(const struct home *h)
{
    return key_named(h, home_groups, h->group);
}

const char *home_column_at(const struct home *h, int x)
{
    for (int i = 0; i < HOME_COLUMNS; i++)
        if (h->width[i] > 0 && key_of[i] && x >= h->x[i] && x < h->x[i] + h->width[i])
            return key_of[i];
    return NULL;
}

/* ---- cells ---- */

static enum role state_role(enum run_state state)
{
    switch (state) {
    case RUN_LIVE: return ROLE_GOOD;
    case RUN_FAILED: return ROLE_BAD;
    case RUN_PAUSED:
    case RUN_SILENT:
    case RUN_STOPPED: return ROLE_WARN;
    default: return ROLE_DIM;
    }
}

static void cell_text(const struct run_row *r, int column, double now, char *out, size_t size)
{
    char a[16], b[16];
    double age = run_row_age(r, now), step = r->number[RUN_STEP], steps = r->number[RUN_STEPS];
    double x = key_of[column] ? run_column_number(r, run_column_find(key_of[column]), now) : 0;
    out[0] = '\0';
    switch (column) {
    case COL_NAME: str_copy(out, size, r->name); break;
    case COL_METHOD: str_copy(out, size, r->method); break;
    case COL_HOST: str_copy(out, size, r->host); break;
    case COL_STATE: /* a silent run shows the time since its last record */
        snprintf(out, size, "%s%s%s", run_state_name(r->state),
                 r->state == RUN_SILENT && isfinite(age) ? " " : "",
                 r->state == RUN_SILENT && isfinite(age) ? num_age(a, age) : "");
        break;
    case COL_STEP:
        if (!isfinite(step) && !isfinite(steps))
            break;
        step = isfinite(step) ? step : 0;
        snprintf(a, sizeof a, "%.0f", step);
        snprintf(b, sizeof b, "%.0f", steps);
        snprintf(out, size, "%s%s%s", step > 99999 ? str_si(a, step) : a,
                 isfinite(steps) ? "/" : "",
                 !isfinite(steps) ? ""
                 : steps > 99999  ? str_si(b, steps)
                                  : b);
        break;
    case COL_AGE:
        if (isfinite(age))
            num_age(out, age);
        break;
    case COL_ETA:
        if (isfinite(x))
            str_copy(out, size, str_duration(a, floor(x)));
        break;
    case COL_RATE:
        if (isfinite(x))
            str_copy(out, size, str_si(a, x));
        break;
    case COL_VAL:
    case COL_LOSS: /* of another program it may be anything: as many digits as fit */
        if (isfinite(x) && fabs(x) < 100)
            snprintf(out, size, "%.4f", x);
        else if (isfinite(x))
            snprintf(out, size, fabs(x) < 1e5 ? "%.5g" : "%.1e", x);
        break;
    default:
        if (isfinite(x))
            snprintf(out, size, "%.3f", x);
    }
}

static void draw_progress(struct area a, double part, enum role role)
{
    int full = part >= 1 ? a.cols : part > 0 ? (int)(part * a.cols) : 0;
    for (int x = 0; x < a.cols && isfinite(part); x++)
        area_put(a, 0, x, x < full ? area_rune(a, 0x2501, '=') : area_rune(a, 0x2500, '-'),
                 ink(x < full ? role : ROLE_GRID));
}

static void draw_run(struct view *v, struct area a, int y, const struct run_row *r)
{
    struct home *h = v->state;
    char text[80];
    double spark[RUN_ROW_SPARK];
    int is_marked = app_is_marked(v->app, r->path);
    enum role role = state_role(r->state);
    uint32_t sign = is_marked              ? area_rune(a, 0x25A0, '#')
                    : r->state == RUN_LIVE ? area_rune(a, 0x25CF, '*')
                                           : ' ';
    area_put(a, y, h->x[0], sign, ink(is_marked ? ROLE_MARKED : ROLE_GOOD));
    int level = app_alert_mark(v->app, r, text, sizeof text);
    if (level && h->width[COL_ALERT] > 0)
        columns_text(a, y, columns, COL_ALERT, h->width, h->x,
                     ink_attr(ink(level >= LOG_ERROR ? ROLE_BAD : ROLE_WARN), ATTR_BOLD), text);
    for (int i = COL_NAME; i < HOME_COLUMNS; i++) {
        if (h->width[i] <= 0 || i == COL_SPARK || i == COL_PROGRESS)
            continue;
        enum role k = i == COL_STATE ? role
                      : i == COL_METHOD || i == COL_HOST || i == COL_AGE || i == COL_RATE
                          ? ROLE_DIM
                          : ROLE_TEXT;
        cell_text(r, i, app_now(v->app), text, sizeof text);
        columns_text(a, y, columns, i, h->width, h->x, ink(k), text);
    }
    if (h->width[COL_PROGRESS] > 0)
        draw_progress(area_sub(a, y, h->x[COL_PROGRESS], 1, h->width[COL_PROGRESS]),
                      r->number[RUN_STEP] / r->number[RUN_STEPS],
                      role == ROLE_DIM ? ROLE_RUN : role);
    for (int i = 0; i < r->sparks; i++)
        spark[i] = (double)r->spark[i];
    if (h->width[COL_SPARK] > 0 && r->sparks > 1) { /* as many values as there are cells */
        int cols = h->width[COL_SPARK], n = r->sparks < cols ? r->sparks : cols;
        for (int i = 0; i < n; i++)
            spark[i] = (double)r->spark[(i * (r->sparks - 1) + (n - 1) / 2) / (n > 1 ? n - 1 : 1)];
        spark_draw(area_sub(a, y, h->x[COL_SPARK], 1, cols), spark, (size_t)n, 0, 0, ROLE_SERIES_0);
    }
}

/* "1.1M  17MB  ~3m  what it is for": at most what fits. */
static void draw_preset(struct view *v, struct area a, int y, size_t at)
{
    struct home *h = v->state;
    const struct job_preset *p = &h->fact[at];
    static const struct column about[] = {{"preset", 18, 0, 9},    {"method", 8, 0, 8},
                                          {"parameters", 7, 1, 6}, {"memory", 7, 1, 5},
                                          {"time", 9, 1, 4},       {"", -1, 0, 7}};
    int width[DS_LEN(about)], x[DS_LEN(about)];
    char si[16];
    struct area row = area_sub(a, y, 2, 1, a.cols - 4);
    double peak = app_is_scripted(v->app) ? 0 : job_peak(), mfu = isfinite(h->mfu) ? h->mfu : 0.3;
    columns_fit(about, (int)DS_LEN(about), row.cols, width, x);
    columns_text(row, 0, about, 0, width, x, ink(ROLE_TEXT), h->preset[at]);
    columns_text(row, 0, about, 1, width, x, ink(ROLE_DIM), p->method);
    if (p->params > 0)
        columns_text(row, 0, about, 2, width, x, ink(ROLE_TEXT), str_si(si, (double)p->params));
    if (p->bytes > 0)
        columns_text(row, 0, about, 3, width, x, ink(ROLE_DIM), str_si(si, p->bytes));
    if (p->work > 0 && peak > 0) {
        char time[24] = "~", d[16];
        double s = p->work / (peak * 1e9 * mfu);
        str_copy(time + 1, sizeof time - 1, num_age(d, s));
        columns_text(row, 0, about, 4, width, x, ink(ROLE_DIM), s < 1e9 ? time : "years");
    }
    columns_text(row, 0, about, 5, width, x, ink(ROLE_DIM), p->about);
}

static void draw_heading(struct area a, int y, const char *text)
{
    int x = 1 + area_text(a, y, 1, -1, ink_attr(ink(ROLE_TITLE), ATTR_BOLD), text);
    area_hline(a, y, x + 1, a.cols - x - 2, ink(ROLE_GRID));
}

/* ---- the table ---- */

static void draw_head(struct home *h, struct area a, int y)
{
    char key[CONFIG_KEY_MAX + 2];
    home_sort_key(h, key, sizeof key);
    columns_head(a, y, columns, HOME_COLUMNS, h->width, h->x);
    for (int i = 0; i < HOME_COLUMNS; i++) /* the sorted column is marked */
        if (key_of[i] && strcmp(key + (key[0] == '-'), key_of[i]) == 0 && h->width[i] > 0) {
            char title[24];
            snprintf(title, sizeof title, "%s%s", columns[i].title[0] ? columns[i].title : "done",
                     a.canvas->look.glyphs == GLYPHS_ASCII ? key[0] == '-' ? "v" : "^"
                     : key[0] == '-'                       ? "\xE2\x86\x93"
                                                           : "\xE2\x86\x91");
            columns_text(a, y, columns, i, h->width, h->x, ink_attr(ink(ROLE_TITLE), ATTR_BOLD),
                         title);
        }
}

static int has_hosts(const struct view *v)
{
    size_t n;
    (void)app_hosts(v->app, &n);
    return n > 0;
}

/* No runs yet: what this is, and what Enter does. */
static int draw_welcome(struct view *v, struct area a)
{
    struct home *h = v->state;
    int y = 0;
    if (a.rows < 8) {
        area_text(a, 0, 1, -1, ink(ROLE_TITLE), "No runs yet: Enter starts one");
        return 1;
    }
    area_text(a, ++y, 2, -1, ink_attr(ink(ROLE_TITLE), ATTR_BOLD), "No runs here yet");
    y++;
    area_text(a, ++y, 2, -1, ink(ROLE_TEXT),
              has_hosts(v) ? "a starts a run, here or on a host."
              : h->presets && !app_is_readonly(v->app)
                  ? "Enter trains the quick run (elastic depth, small corpus) and shows it live."
                  : ":open PATH opens a run, a log, a trace or a model.");
    area_textf(a, ++y, 2, -1, ink(ROLE_DIM),
               "Runs are read from %s/ (DEPTHSCOPE_RUNS sets another directory).", job_root());
    if (h->error[0])
        area_text(a, ++y, 2, -1, ink(ROLE_BAD), h->error);
    return y + 2;
}

/* What is said of a host after its name, two cells before each part. */
struct host_words {
    struct {
        enum role role;
        char text[256];
    } part[5];
    int n, cells;
};

static void say(struct host_words *w, enum role role, const char *fmt, ...) DS_PRINTF(3, 4);
static void say(struct host_words *w, enum role role, const char *fmt, ...)
{
    char *text = w->part[w->n].text;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof w->part[0].text, fmt, ap);
    va_end(ap);
    w->part[w->n++].role = role;
    w->cells += 2 + utf8_cells(text, strlen(text));
}

static struct host_words words_of(const struct host_info *x)
{
    static const enum role role[] = {[HOST_CONNECTING] = ROLE_WARN,
                                     [HOST_UP] = ROLE_GOOD,
                                     [HOST_RECONNECTING] = ROLE_WARN,
                                     [HOST_FAILED] = ROLE_BAD};
    struct host_words w = {0};
    char age[16], in[16];
    say(&w, role[x->state], "%s", host_state_name(x->state));
    if (isfinite(x->heard))
        say(&w, ROLE_DIM, "%zu run%s", x->runs, x->runs == 1 ? "" : "s");
    if (x->state == HOST_UP && isfinite(x->latency_s))
        say(&w, ROLE_DIM, "%.0f ms", x->latency_s * 1e3);
    if (x->state == HOST_UP)
        say(&w, ROLE_DIM, "%s%s received", str_si(in, (double)x->bytes_in),
            x->bytes_in < 1000 ? " B" : "B");
    else if (isfinite(x->heard))
        say(&w, ROLE_DIM, "heard %s ago", num_age(age, clock_mono() - x->heard));
    if (x->why[0])
        say(&w, x->state == HOST_UP ? ROLE_WARN : role[x->state], "%s", x->why);
    else if (x->state == HOST_UP && x->note[0])
        say(&w, ROLE_DIM, "%s", x->note);
    return w;
}

/* One line per host: "box:runs  up  12 runs  34 ms  3.1k in".  A host that is not up says why, and how
 * old its rows are; a long path leaves room for that. */
static int draw_hosts(struct view *v, struct area a)
{
    enum { NAME_LEAST = 24 };
    size_t n, most = a.rows > 12 ? (size_t)a.rows / 4 : 1;
    struct host *const *host = app_hosts(v->app, &n);
    int y = 0;
    for (size_t i = 0; i < n && i < most; i++, y++) {
        struct host_info x = host_info(host[i]);
        struct host_words w = words_of(&x);
        int at = 2, room = a.cols - at - w.cells;
        if (i == most - 1 && n > most) {
            area_textf(a, y, at, -1, ink(ROLE_DIM), "and %zu more hosts", n - i);
            continue;
        }
        at += area_textf(a, y, at, room < NAME_LEAST ? NAME_LEAST : room, ink(ROLE_TEXT), "%s%s%s",
                         x.name, x.root[0] ? ":" : "", x.root);
        for (int k = 0; k < w.n; k++)
            at += 2 + area_text(a, y, at + 2, -1, ink(w.part[k].role), w.part[k].text);
    }
    return y;
}

/* One line per batch that is not done: "sweep tiny  ━━───  8 runs: 3 done, 2 running, 3 waiting  boxa 2". */
static int draw_batches(const struct home *h, struct area a)
{
    enum { BAR = 8 };
    size_t most = a.rows > 12 ? (size_t)a.rows / 4 : 1, listed = 0, more = 0;
    int y = 0;
    if (a.rows <= 4)
        return 0;
    for (size_t i = 0; i < h->batches.n; i++) {
        const struct batch_entry *b = &h->batches.entry[i];
        const struct batch_progress *p = &b->progress;
        struct str text = {0}, workers = {0};
        int at = 2;
        if (p->runs == 0)
            continue;
        if (listed == most) {
            more++;
            continue;
        }
        enum role role = p->count[BATCH_FAILED]    ? ROLE_BAD
                         : p->count[BATCH_RUNNING] ? ROLE_GOOD
                                                   : ROLE_WARN;
        at += 2 + area_textf(a, y, at, -1, ink(ROLE_TEXT), "%s%s%s", b->file.kind,
                             b->file.preset[0] ? " " : "", b->file.preset);
        draw_progress(area_sub(a, y, at, 1, BAR),
                      (double)p->count[BATCH_DONE] / (double)p->runs, role);
        batch_progress_text(&text, p);
        batch_workers_text(&workers, p);
        at += BAR + 1;
        at += 2 + area_text(a, y, at, -1, ink(role), str_text(&text));
        area_text(a, y, at, -1, ink(ROLE_DIM), str_text(&workers));
        str_release(&text);
        str_release(&workers);
        listed++;
        y++;
    }
    if (more > 0 && y < a.rows)
        area_textf(a, y++, 2, -1, ink(ROLE_DIM), "and %zu more batch%s", more,
                   more == 1 ? "" : "es");
    return y;
}

/* Columns that no run has a value for go first; other programs' runs are known by loss and age. */
static void choose_columns(const struct view *v, struct column fit[HOME_COLUMNS])
{
    const struct home *h = v->state;
    static const struct {
        int column;
        enum run_number number;
    } numbers[] = {{COL_FLOPS, RUN_FLOPS_RATIO},
                   {COL_TIME, RUN_TIME_RATIO},
                   {COL_RATE, RUN_TOK_S},
                   {COL_ETA, RUN_ETA}};
    char text[32];
    if (has_hosts(v))
        fit[COL_HOST].priority = columns[COL_METHOD].priority + 1;
    int needs_loss = 0, has_foreign = 0, has_method = 0, has_alert = 0, has[DS_LEN(numbers)] = {0};
    size_t longest = 0;
    for (size_t i = 0; i < h->items; i++) {
        const struct run_row *r = h->item[i].kind == HOME_RUN ? h->item[i].row : NULL;
        needs_loss |= r && run_row_needs_loss(r);
        has_foreign |= r && r->format;
        has_method |= r && r->method[0];
        longest = r && strlen(r->name) > longest ? strlen(r->name) : longest;
        has_alert |= r && app_alert_mark(v->app, r, text, sizeof text);
        for (size_t k = 0; r && k < DS_LEN(numbers); k++)
            has[k] |= isfinite(r->number[numbers[k].number]);
    }
    for (size_t k = 0; k < DS_LEN(numbers); k++)
        fit[numbers[k].column].priority *= has[k];
    fit[COL_ALERT].width *= has_alert;
    fit[COL_LOSS].priority *= needs_loss;
    if (!needs_loss)
        fit[COL_LOSS].width = 0;
    if (has_foreign)
        fit[COL_AGE].priority = columns[COL_FLOPS].priority + 1;
    /* long names, such as the paths of other programs' runs, get the room of empty columns */
    for (size_t k = 0; (has_foreign || longest > 12) && k < DS_LEN(numbers); k++)
        fit[numbers[k].column].width *= has[k];
    if (has_foreign && !has_method)
        fit[COL_METHOD].width = 0;
}

void home_draw_table(struct view *v, struct area a)
{
    struct home *h = v->state;
    struct area table = area_sub(a, 0, 1, a.rows, a.cols - 3); /* a blank, the scroll bar */
    int y = 0;
    struct column fit[HOME_COLUMNS];
    memcpy(fit, columns, sizeof fit);
    choose_columns(v, fit);
    columns_fit(fit, HOME_COLUMNS, table.cols, h->width, h->x);
    if (h->is_filtering || h->filter.text.len)
        home_filter_draw(v, area_sub(a, y++, 0, 1, a.cols));
    y += draw_hosts(v, area_sub(a, y, 0, a.rows - y, a.cols));
    y += draw_batches(h, area_sub(a, y, 0, a.rows - y, a.cols));
    h->head_y = -1;
    if (h->index.n) {
        h->head_y = y;
        draw_head(h, table, y++);
        if (h->error[0] && a.rows > 6)
            area_text(a, y++, 2, -1, ink(ROLE_BAD), h->error);
    } else if (!has_hosts(v)) {
        y += draw_welcome(v, area_sub(a, y, 0, a.rows - y, a.cols));
    }
    h->table_y = y;
    h->table_rows = a.rows - y;
    if (h->items == 0 && h->query.n)
        area_text(a, y, 3, -1, ink(ROLE_DIM),
                  h->wrong[0] ? "the filter cannot be read; Esc in its line clears it"
                              : "no run matches the filter; Esc in its line clears it");
    list_fit(&h->list, h->items, h->table_rows);
    for (size_t i = h->list.top; i < h->items && y < a.rows; i++, y++) {
        const struct home_item *item = &h->item[i];
        switch (item->kind) {
        case HOME_HEADING: draw_heading(a, y, item->text); break;
        case HOME_RUN: draw_run(v, table, y, item->row); break;
        case HOME_PRESET: draw_preset(v, a, y, item->at); break;
        case HOME_FILE:
            area_text(a, y, 2, a.cols / 2, ink(ROLE_TEXT), h->file[item->at].name);
            area_text(a, y, 3 + a.cols / 2, a.cols - a.cols / 2 - 5, ink(ROLE_DIM),
                      h->file[item->at].what);
            break;
        }
        if (i == h->list.cursor)
            area_select(a, y, 0, a.cols - 1);
    }
    scrollbar_draw(area_sub(a, h->table_y, 0, h->table_rows, a.cols), a.cols - 1, h->items,
                   h->list.top, h->table_rows);
}
