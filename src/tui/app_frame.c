/* The frame around the views: status line at the top, key hints at the bottom, help as an
 * overlay. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/statistics.h"
#include "base/str.h"
#include "base/utf8.h"
#include "io/runlog.h"
#include "tui/appstate.h"

void app_add_zone(struct app *app, struct zone z)
{
    if (app->zones < APP_ZONES_MAX)
        app->zone[app->zones++] = z;
}

/* ---- top line ---- */

struct part {
    char text[48];
    enum role role;
    int priority;
};

static const struct {
    uint32_t sign;
    char ascii;
    enum role role;
} state_sign[RUN_STATES] = {
    [RUN_EMPTY] = {0x25CB, '?', ROLE_DIM},   [RUN_LIVE] = {0x25CF, '*', ROLE_GOOD},
    [RUN_PAUSED] = {0x25D0, '=', ROLE_WARN}, [RUN_SILENT] = {0x25CB, '!', ROLE_WARN},
    [RUN_DONE] = {0x2713, '+', ROLE_DIM},    [RUN_STOPPED] = {0x25A0, '#', ROLE_WARN},
    [RUN_FAILED] = {0xD7, 'x', ROLE_BAD},    [RUN_ENDED] = {0x25A0, '#', ROLE_WARN},
    [RUN_TRACE] = {0x25C7, '~', ROLE_DIM},
};

static double newest(const struct runview *v, const char *name)
{
    const struct series *s = runview_series(v, name);
    return s && s->n ? s->value[s->n - 1] : (double)NAN;
}

/* Number of points at the end of the series that the current process wrote. */
static size_t own_points(const struct runview *v, const struct series *s)
{
    size_t n = 0;
    while (s && n < s->n && n < ETA_STEPS && !(s->time[s->n - 1 - n] < v->head_time))
        n++;
    return n;
}

/* Third-party records may lack step durations; the median then keeps one long pause from
 * counting. */
static double time_left_by_records(const struct runview *v, const struct series *s, double left)
{
    double ms[ETA_STEPS];
    size_t n = own_points(v, s), k = 0;
    for (size_t i = s->n - n; i + 1 < s->n; i++) {
        double steps = (double)(s->step[i + 1] - s->step[i]);
        if (steps > 0)
            ms[k++] = 1e3 * (s->time[i + 1] - s->time[i]) / steps;
    }
    stat_sort(ms, k);
    return k >= 2 ? eta_seconds(&ms[k / 2], 1, 0, left) : (double)NAN;
}

/* Seconds to the planned end, estimated from the newest steps of this process; NaN when unknown. */
static double time_left(const struct runview *v)
{
    const struct series *s = runview_series(v, "loss"), *ms = runview_series(v, "step_ms");
    double left = (double)(v->steps_planned - v->step), share = 0;
    static const char *const others[] = {"evaluation_share", "checkpoint_share"};
    size_t n = own_points(v, ms);
    if (!s || v->steps_planned <= v->step)
        return (double)NAN;
    if (n == 0)
        return time_left_by_records(v, s, left);
    for (size_t i = 0; i < DS_LEN(others); i++) {
        double x = newest(v, others[i]);
        share += isfinite(x) ? x : 0;
    }
    return eta_seconds(ms->value + (ms->n - n), n, share, left);
}

static void group_digits(char out[32], int64_t n)
{
    char plain[24];
    int len = snprintf(plain, sizeof plain, "%lld", (long long)n), k = 0;
    for (int i = 0; i < len && k < 30; i++) {
        if (i && (len - i) % 3 == 0 && plain[i - 1] != '-')
            out[k++] = ',';
        out[k++] = plain[i];
    }
    out[k] = '\0';
}

/* A trace has no steps: shows the size of its probe instead. */
static int trace_parts(const struct runview *v, struct part *p)
{
    const struct probe *probe = runview_probe(v, -1);
    if (!probe)
        return 0;
    *p = (struct part){.role = ROLE_TEXT, .priority = 8};
    snprintf(p->text, sizeof p->text, "%d tokens, %d layers", probe->tokens, probe->layers);
    return 1;
}

static int run_parts(const struct app *app, const struct runview *v, struct part *p)
{
    int n = 0;
    char a[32], b[32], si[16];
    group_digits(a, v->step);
    group_digits(b, v->steps_planned);
    if (v->state == RUN_TRACE)
        return trace_parts(v, p);
    if (v->state == RUN_EMPTY)
        return 0;
    p[n] = (struct part){.role = ROLE_TEXT, .priority = 8};
    snprintf(p[n++].text, sizeof p->text, v->steps_planned > 0 ? "step %s/%s" : "step %s", a, b);
    const struct series *loss = runview_series(v, "loss");
    double tokens = loss && loss->n && loss->tokens ? loss->tokens[loss->n - 1] : (double)NAN;
    if (isfinite(tokens)) {
        p[n] = (struct part){.role = ROLE_TEXT, .priority = 3};
        snprintf(p[n++].text, sizeof p->text, "%s tok", str_si(si, tokens));
    }
    double rate = newest(v, "tok_s");
    int is_running = v->state == RUN_LIVE || v->state == RUN_PAUSED;
    if (isfinite(rate)) {
        p[n] = (struct part){.role = ROLE_TEXT, .priority = 5};
        snprintf(p[n++].text, sizeof p->text, "%s tok/s", str_si(si, rate));
    }
    double left = is_running ? time_left(v) : (double)NAN;
    if (isfinite(left)) {
        p[n] = (struct part){.role = ROLE_TEXT, .priority = 6};
        snprintf(p[n++].text, sizeof p->text, "ETA %s", str_duration(si, left));
    }
    double age = runview_age(v, app_now(app));
    if (is_running && isfinite(age)) {
        p[n] = (struct part){.role = age > 60 ? ROLE_WARN : ROLE_DIM, .priority = 4};
        snprintf(p[n++].text, sizeof p->text, "%s ago", num_age(si, age));
    }
    if (v->gaps || v->lost) {
        p[n] = (struct part){.role = ROLE_BAD, .priority = 7};
        snprintf(p[n++].text, sizeof p->text, "%llu gaps", (unsigned long long)v->gaps);
    }
    return n;
}

static int status_parts(struct app *app, struct part *p)
{
    const struct runview *v = app_run(app);
    int n = v ? run_parts(app, v, p) : 0;
    char a[16], b[16];
    if (app->opt.link_bytes_s > 0) {
        p[n] = (struct part){.role = ROLE_DIM, .priority = 2};
        snprintf(p[n++].text, sizeof p->text, "link %s/%s B/s", str_si(a, app->link_rate),
                 str_si(b, app->opt.link_bytes_s));
    }
    if (app->opt.readonly && !app->screen) {
        p[n] = (struct part){.role = ROLE_WARN, .priority = 9};
        snprintf(p[n++].text, sizeof p->text, "read-only");
    }
    return n;
}

/* Drops the least important parts until the rest fits to the right of column x. */
static void draw_parts(struct area line, int x, struct part *p, int n)
{
    for (;;) {
        int total = 0, worst = -1;
        for (int i = 0; i < n; i++) {
            total += p[i].text[0] ? (int)strlen(p[i].text) + 2 : 0;
            if (p[i].text[0] && (worst < 0 || p[i].priority < p[worst].priority))
                worst = i;
        }
        if (worst < 0)
            return;
        if (x + total <= line.cols) {
            int at = line.cols - total + 1;
            for (int i = 0; i < n; i++)
                if (p[i].text[0])
                    at += 2 + area_text(line, 0, at, -1, ink(p[i].role), p[i].text);
            return;
        }
        p[worst].text[0] = '\0';
    }
}

/* Symbol and state; a silent run shows for how long, one still being read its progress. */
static int draw_state(const struct app *app, struct area line, int x, const struct runview *v)
{
    char word[64], age[16];
    double silent = runview_age(v, app_now(app)), all = (double)(v->bytes + v->tail);
    struct ink color = ink(state_sign[v->state].role);
    if (v->is_behind && v->tail > 0 && all > 0)
        snprintf(word, sizeof word, "reading %d%%",
                 (int)(100 * (double)runlog_reader_position(v->reader) / all));
    else if (v->state == RUN_SILENT && silent >= 1)
        snprintf(word, sizeof word, "silent %s", num_age(age, silent));
    else
        str_copy(word, sizeof word, run_state_name(v->state));
    area_put(line, 0, x, area_rune(line, state_sign[v->state].sign, state_sign[v->state].ascii),
             color);
    return 2 + area_text(line, 0, x + 2, -1, color, word);
}

static void draw_top(struct app *app, struct area line)
{
    const struct runview *v = app_run(app);
    struct part part[16];
    uint32_t arrow = area_rune(line, 0x203A, '>');
    area_fill(line, ' ', ink_on(ROLE_STATUS, ROLE_SKIP));
    int x = 1;
    if (line.cols >= 50) {
        app_add_zone(app, (struct zone){line.y, x, x + 10, NULL, "home", 0});
        x += area_text(line, 0, x, -1, ink_attr(ink(ROLE_TITLE), ATTR_BOLD), "depthscope") + 1;
        area_put(line, 0, x, arrow, ink(ROLE_DIM));
        x += 2;
    }
    if (v) {
        int room = line.cols / 4 < 8 ? 8 : line.cols / 4;
        x += area_text(line, 0, x, room, ink_attr(ink(ROLE_TEXT), ATTR_BOLD),
                       v->name ? v->name : "?") +
             1;
        area_put(line, 0, x, arrow, ink(ROLE_DIM));
        x += 2;
    }
    x += area_text(line, 0, x, -1, ink(ROLE_TEXT), app_focused(app)->title) + 2;
    if (v)
        x += draw_state(app, line, x, v);
    draw_parts(line, x + 1, part, status_parts(app, part));
}

/* ---- bar of views ---- */

enum { BAR_ROWS_MIN = 12 };

static void draw_bar(struct app *app, struct area line)
{
    struct tab tab[APP_VIEWS_MAX];
    int x[APP_VIEWS_MAX], cols[APP_VIEWS_MAX], n = 0, hidden = 0, end = 1;
    for (; n < APP_VIEWS_MAX && view_registry[n]; n++)
        tab[n] = (struct tab){view_registry[n]->title, view_registry[n]->brief};
    int current = app->pane[app->focus].current;
    tabs_fit(tab, n, current, APP_NUMBER_KEYS, line.cols - 2, x, cols);
    for (int i = 0; i < n; i++) {
        int from = 1 + x[i], at = from;
        struct ink k = ink(ROLE_HINT), number = ink(ROLE_HINT_KEY);
        hidden += cols[i] == 0;
        if (cols[i] == 0)
            continue;
        if (i == current) {
            k = ink_attr(ink(ROLE_TITLE), ATTR_BOLD | ATTR_UNDERLINE);
            number = ink_attr(number, ATTR_BOLD | ATTR_UNDERLINE);
        }
        end = from + cols[i];
        app_add_zone(app, (struct zone){line.y, from, end, NULL, view_registry[i]->name, 0});
        if (i < APP_NUMBER_KEYS)
            at += 1 + area_textf(line, 0, at, -1, number, "%d", i + 1);
        if (at < end)
            area_bytes(line, 0, at, -1, k, tab[i].title, (size_t)(end - at));
    }
    const struct key *all = keys_command(keys_global, "view", 4);
    if (hidden && all) { /* the picker has the rest */
        int used = area_textf(line, 0, end + 1, -1, ink(ROLE_HINT), "+%d", hidden);
        app_add_zone(app, (struct zone){line.y, end + 1, end + 1 + used, all, NULL, 0});
    }
}

/* ---- bottom line ---- */

/* Rows of the focused view that would do nothing now. */
static int is_offered(struct app *app, const struct key *k)
{
    struct view *v = app_focused_view(app);
    return !v || !v->ops->offers || v->ops->offers(v, k);
}

/* Rows with a hint by priority; those of the view come before global ones of equal priority. */
static int is_useful(struct app *app, const struct key *k)
{
    return !(k->flags & KEY_HIDDEN) && !((k->flags & KEY_MUTATES) && app->opt.readonly) &&
           (!(k->flags & KEY_ON_FIGURE) || app_focused(app)->figure ||
            app_focused(app)->figure_words) &&
           (!(k->flags & KEY_ON_RUN) || app_takes(app, k)) && is_offered(app, k);
}

static int collect_hints(struct app *app, const struct key **out, int max)
{
    const struct key *tables[] = {app_focused(app)->keys, keys_global};
    int n = 0;
    for (int want = 99; want > 0 && n < max; want--)
        for (size_t t = 0; t < DS_LEN(tables); t++)
            for (const struct key *k = tables[t]; k && k->command && n < max; k++)
                if (k->priority == want && is_useful(app, k))
                    out[n++] = k;
    return n;
}

static void draw_hints(struct app *app, struct area line)
{
    const struct key *hint[48];
    int n = collect_hints(app, hint, (int)DS_LEN(hint)), x = 1;
    for (int i = 0; i < n; i++) {
        char label[24];
        const char *word = hint[i]->hint ? hint[i]->hint : hint[i]->command;
        keys_label(hint[i], label, sizeof label);
        int width = (int)strlen(label) + 1 + (int)strlen(word);
        if (x + width > line.cols)
            continue; /* a shorter hint of lower priority may fit */
        app_add_zone(app, (struct zone){line.y, x, x + width, hint[i], NULL, 0});
        x += area_text(line, 0, x, -1, ink(ROLE_HINT_KEY), label) + 1;
        x += area_text(line, 0, x, -1, ink(ROLE_HINT), word) + 2;
    }
}

/* While keys are text. */
static void draw_ends(struct area line)
{
    static const char *const end[][2] = {{"Enter", "accept"}, {"Esc", "cancel"}};
    for (int i = 0, x = 1; i < (int)DS_LEN(end); i++) {
        if (x + (int)strlen(end[i][0]) + 1 + (int)strlen(end[i][1]) > line.cols)
            break;
        x += area_text(line, 0, x, -1, ink(ROLE_HINT_KEY), end[i][0]) + 1;
        x += area_text(line, 0, x, -1, ink(ROLE_HINT), end[i][1]) + 2;
    }
}

/* A message too long for the line loses the beginning of its first path rather than its end, which
 * says what is wrong with the file. */
static void draw_message(struct area line, const struct app_line *l)
{
    static const enum role role[] = {ROLE_DIM, ROLE_TEXT, ROLE_WARN, ROLE_BAD};
    char text[sizeof l->text + 4];
    int over = utf8_cells(l->text, strlen(l->text)) - (line.cols - 1);
    const char *slash = over > 0 ? strchr(l->text, '/') : NULL, *from = slash;
    while (from && from > l->text && from[-1] != ' ')
        from--;
    const char *to = slash, *end = from ? from + strcspn(from, " ") : NULL;
    while (to && to < end && utf8_cells(from, (size_t)(to - from)) < over + 2) {
        const char *next = memchr(to + 1, '/', (size_t)(end - to - 1));
        if (!next)
            break;
        to = next;
    }
    int is_cut = to && to > slash;
    if (is_cut)
        snprintf(text, sizeof text, "%.*s..%s", (int)(from - l->text), l->text, to);
    area_text(line, 0, 1, line.cols - 1, ink(role[l->level]), is_cut ? text : l->text);
}

static void draw_bottom(struct app *app, struct area line)
{
    const struct view *view = app_focused_view(app);
    char waits[320];
    if (app->confirm.is_active) {
        int x = area_text(line, 0, 1, line.cols - 10, ink_attr(ink(ROLE_WARN), ATTR_BOLD),
                          app->confirm.question);
        app->confirm.y = line.y;
        app->confirm.x = x + 2;
        area_text(line, 0, x + 2, -1, ink(ROLE_HINT_KEY), "y / n");
    } else if (app->prompt.is_active) {
        app_draw_prompt(app, line);
    } else if (app->lines && app->say_until > 0) {
        draw_message(line, &app->line[(app->lines - 1) % APP_LINES_MAX]);
    } else if (app->n_pressed) {
        int x = 1;
        for (size_t i = 0; i < app->n_pressed; i++) {
            char text[24];
            x += area_text(line, 0, x, -1, ink(ROLE_HINT_KEY), key_print(text, app->pressed[i]));
        }
    } else if (app_pending_text(app, waits, sizeof waits)) {
        area_text(line, 0, 1, line.cols - 1, ink(ROLE_WARN), waits);
    } else if (view && view->grabs == GRAB_TEXT) {
        draw_ends(line);
    } else if (!view || view->grabs != GRAB_FORM) {
        draw_hints(app, line);
    }
}

/* ---- overlays ---- */

enum { HELP_ROWS_MAX = 128 };

/* Where a row of a key table begins in the text of the overlay. */
struct help_row {
    const struct key *key;
    size_t at;
};

static int add_rows(struct app *app, struct str *out, const char *title, const struct key *table,
                    struct help_row *row, int n)
{
    str_addf(out, "%s\n", title);
    for (const struct key *k = table; k && k->command; k++) {
        char command[64];
        if (k->flags & KEY_ON_RUN && !app_takes(app, k))
            continue;
        snprintf(command, sizeof command, ":%s%s%s", k->command, k->args ? " " : "",
                 k->args ? k->args : "");
        if (n < HELP_ROWS_MAX)
            row[n++] = (struct help_row){k, out->len};
        str_addf(out, "  %-14s %-24s %s\n", k->keys, command, k->help);
    }
    str_add_char(out, '\n');
    return n;
}

/* The text of the overlay; the number of its rows. */
static int help_text(struct app *app, struct str *out, struct help_row row[HELP_ROWS_MAX])
{
    const struct view_ops *ops = app_focused(app);
    int n = ops->keys ? add_rows(app, out, ops->title, ops->keys, row, 0) : 0;
    return add_rows(app, out, "All views", keys_global, row, n);
}

const struct key *app_help_row(struct app *app, int y, int x)
{
    struct help_row row[HELP_ROWS_MAX];
    struct str text = {0};
    const struct key *found = NULL;
    int line = app->help_scroll.top + y - app->help_rows.y;
    int n = area_contains(app->help_rows, y, x) ? help_text(app, &text, row) : 0;
    for (int i = 0; i < n; i++) { /* a row ends where its own line of text does */
        const char *from = str_text(&text) + row[i].at, *end = from + strcspn(from, "\n");
        if (line >= scroll_line_of(&app->help_scroll, str_text(&text), from) &&
            line < scroll_line_of(&app->help_scroll, str_text(&text), end + 1))
            found = row[i].key;
    }
    str_release(&text);
    return found;
}

static void draw_help(struct app *app, struct area a)
{
    struct help_row row[HELP_ROWS_MAX];
    struct str text = {0};
    (void)help_text(app, &text, row);
    int rows = a.rows < 12 ? a.rows - 2 : a.rows - 4, cols = a.cols < 60 ? a.cols - 4 : a.cols - 6;
    app->help_rows = popup_begin(a, rows, cols > 90 ? 90 : cols,
                                 app->opt.no_mouse ? "keys" : "keys: click a row to run it");
    scroll_text(&app->help_scroll, app->help_rows, str_text(&text), ink(ROLE_TEXT));
    str_release(&text);
}

static void draw_glyph_test(struct app *app, struct area a)
{
    static const char *const row[] = {
        "braille     \xE2\xA0\x81 \xE2\xA0\x83 \xE2\xA0\x87 \xE2\xA1\x87 \xE2\xA3\x87 \xE2\xA3\xA7 "
        "\xE2\xA3\xB7 \xE2\xA3\xBF   dots only, no empty circles",
        "half blocks \xE2\x96\x80 \xE2\x96\x84 \xE2\x96\x88   upper, lower, full: no gaps",
        "eighths     "
        "\xE2\x96\x81\xE2\x96\x82\xE2\x96\x83\xE2\x96\x84\xE2\x96\x85\xE2\x96\x86\xE2\x96\x87\xE2"
        "\x96\x88   a rising staircase",
        "shades      \xE2\x96\x91 \xE2\x96\x92 \xE2\x96\x93 \xE2\x96\x88   light to full",
        "lines       \xE2\x94\x80 \xE2\x94\x82 \xE2\x95\xAD \xE2\x95\xAE \xE2\x95\xB0 \xE2\x95\xAF "
        "\xE2\x94\xA4   joined, one cell each",
        "ruler       |0123456789|   must be as wide as the line row above",
        "If a row looks wrong, use --glyphs=shades or --glyphs=ascii",
    };
    struct area inner = popup_begin(a, (int)DS_LEN(row) + 2, 70, "glyph test");
    int from = inner.rows > (int)DS_LEN(row); /* below the colours, where there is a row for them */
    for (int i = 0; i < (int)DS_LEN(row); i++)
        area_text(inner, i + from, 0, -1, ink(ROLE_TEXT), row[i]);
    for (int i = 0; from && i < HEAT_LEVELS * 2 && i < inner.cols; i++)
        area_heat(inner, 0, i, 1, app->theme.sequential, i / (HEAT_LEVELS * 2.0 - 1));
}

void app_draw(struct app *app)
{
    struct area a = canvas_area(&app->canvas);
    app->canvas.look.theme = &app->theme;
    canvas_clear(&app->canvas);
    app->graphics.want.rows = 0;
    app->zones = 0;
    if (a.rows < 4 || a.cols < 16) {
        area_text(a, 0, 0, -1, ink(ROLE_WARN), "too small");
        if (app->runs && a.rows > 1)
            area_textf(a, 1, 0, -1, ink(ROLE_TEXT), "step %lld", (long long)app_run(app)->step);
        return;
    }
    draw_top(app, area_sub(a, 0, 0, 1, a.cols));
    int top = 1 + (a.rows >= BAR_ROWS_MIN);
    if (top > 1)
        draw_bar(app, area_sub(a, 1, 0, 1, a.cols));
    struct area body = area_sub(a, top, 0, a.rows - top - 1, a.cols);
    app_draw_panes(app, body);
    draw_bottom(app, area_sub(a, a.rows - 1, 0, 1, a.cols));
    if (app->has_help)
        draw_help(app, body);
    if (app->has_explain)
        app_explain_draw(app, body);
    if (app->has_glyph_test)
        draw_glyph_test(app, body);
    if (app->picker.is_open)
        app_picker_draw(app, body);
}
