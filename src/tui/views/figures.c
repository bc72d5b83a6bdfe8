/* Figures: every figure, whether the open runs allow it and if not what is missing, a preview, and
 * export at a venue's size. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/fs.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "figures/palette.h"
#include "tui/figures.h"
#include "tui/graphics.h"

enum { WIDE_COLS = 60, LIST_LEAST = 20, LIST_MOST = 30, PICTURE_ROWS = 6 };
static const double rest_s = 0.12;

static int figures_open(struct view *v, struct err *e)
{
    struct figures *s = v->state;
    (void)e;
    s->child = (struct child)CHILD_NONE;
    s->theme = -1;
    if (theme_list(&s->theme_name, &s->themes, NULL) < 0)
        s->themes = 0;
    return 0;
}

static void figures_close(struct view *v)
{
    struct figures *s = v->state;
    figures_stop(s);
    if (s->theme_name)
        fs_list_free(s->theme_name, s->themes);
    str_release(&s->out);
    str_release(&s->runs_checked);
    str_release(&s->key);
    str_release(&s->key_shown);
    str_release(&s->picture);
    str_release(&s->sixel_pixels);
}

/* ---- the list ---- */

static void draw_list(struct view *v, struct area a)
{
    struct figures *s = v->state;
    list_fit(&s->list, s->n, a.rows);
    for (int y = 0; y < a.rows && s->list.top + (size_t)y < s->n; y++) {
        size_t i = s->list.top + (size_t)y;
        const struct figure_entry *f = &s->figure[i];
        int is_fine = f->is_checked && !f->why[0];
        uint32_t mark = !f->is_checked ? ' '
                        : is_fine      ? area_rune(a, 0x25CF, '*')
                                       : area_rune(a, 0xB7, '-');
        area_put(a, y, 1, mark, ink(is_fine ? ROLE_GOOD : ROLE_DIM));
        area_text(a, y, 3, a.cols - 4, ink(f->is_checked && !is_fine ? ROLE_DIM : ROLE_TEXT),
                  f->name);
        if (i == s->list.cursor)
            area_select(a, y, 0, a.cols);
    }
    scrollbar_draw(a, a.cols - 1, s->n, s->list.top, a.rows);
}

/* ---- the preview ---- */

/* The largest area of this shape inside `a`, centred. */
static struct area fit(struct area a, int width, int height, int cell_w, int cell_h)
{
    double room_w = (double)a.cols * cell_w, room_h = (double)a.rows * cell_h;
    double scale = room_w / width < room_h / height ? room_w / width : room_h / height;
    int cols = (int)(width * scale / cell_w), rows = (int)(height * scale / cell_h);
    cols = cols < 1 ? 1 : cols > a.cols ? a.cols : cols;
    rows = rows < 1 ? 1 : rows > a.rows ? a.rows : rows;
    return area_sub(a, (a.rows - rows) / 2, (a.cols - cols) / 2, rows, cols);
}

static int32_t ink_of(const unsigned char *p)
{
    /* five bits a channel: neighbours share a colour, so frames stay small */
    int rgb = 0;
    for (int k = 0; k < 3; k++)
        rgb = rgb << 8 | (p[k] & 0xF8) | p[k] >> 5;
    return INK_RGB | rgb;
}

/* Two pixels in a cell; one where the glyphs have no half-blocks. */
static void draw_cells(const struct figures *s, struct area a)
{
    struct area in = fit(a, s->width, s->height, 1, 2);
    int rows = 2 * in.rows;
    unsigned char *small = mem_alloc((size_t)rows * (size_t)in.cols, 3);
    if (!small)
        return;
    pixels_shrink(s->pixels, s->width, s->height, small, in.cols, rows);
    int has_halves = a.canvas->look.glyphs != GLYPHS_ASCII;
    for (int y = 0; y < in.rows; y++)
        for (int x = 0; x < in.cols; x++) {
            const unsigned char *up = small + 3 * ((size_t)(2 * y) * (size_t)in.cols + (size_t)x);
            const unsigned char *low = up + 3 * (size_t)in.cols;
            struct ink k = {.fg = ink_of(up), .bg = ink_of(low)};
            unsigned char mean[3];
            for (int c = 0; c < 3; c++)
                mean[c] = (unsigned char)((up[c] + low[c]) / 2);
            if (!has_halves || k.fg == k.bg)
                k.fg = k.bg = ink_of(has_halves ? up : mean);
            area_put(in, y, x, k.fg == k.bg ? ' ' : 0x2580, k);
        }
    mem_free(small);
}

static void draw_sixel(struct view *v, struct area a)
{
    struct figures *s = v->state;
    struct area in = fit(a, s->width, s->height, s->cell_w, s->cell_h);
    int w = in.cols * s->cell_w, h = in.rows * s->cell_h / 6 * 6;
    if (h < 6)
        return;
    if (s->sixel_of != s->serial || w != s->sixel_w || h != s->sixel_h) {
        str_renew(&s->sixel_pixels);
        unsigned char *small = mem_alloc((size_t)w * (size_t)h, 3);
        if (!small)
            return;
        pixels_shrink(s->pixels, s->width, s->height, small, w, h);
        str_add_bytes(&s->sixel_pixels, small, (size_t)w * (size_t)h * 3);
        mem_free(small);
        s->sixel_of = s->serial;
        s->sixel_w = w;
        s->sixel_h = h;
    }
    if (s->sixel_pixels.failed)
        return;
    app_image(v->app, in,
              &(struct image){(const unsigned char *)s->sixel_pixels.p, s->sixel_pixels.len, w, h,
                              s->serial});
}

static void draw_picture(struct view *v, struct area a)
{
    struct figures *s = v->state;
    if (s->kind == GRAPHICS_KITTY && s->is_png) {
        app_image(v->app, fit(a, s->width, s->height, s->cell_w, s->cell_h),
                  &(struct image){s->pixels, s->picture.len, s->width, s->height, s->serial});
    } else if (s->kind == GRAPHICS_SIXEL && !s->is_png)
        draw_sixel(v, a);
    else if (!s->is_png)
        draw_cells(s, a);
}

/* Lines of words, wrapped; returns the rows used. */
static int say(struct area a, int y, enum role r, const char *text)
{
    int from = y;
    while (*text && y < a.rows) {
        size_t fits = 0, at = 0;
        while (text[at]) {
            size_t word = at + strspn(text + at, " ");
            word += strcspn(text + word, " ");
            if (utf8_cells(text, word) > a.cols && fits > 0)
                break;
            fits = at = word;
        }
        area_bytes(a, y++, 0, a.cols, ink(r), text, fits);
        text += fits + strspn(text + fits, " ");
    }
    return y - from;
}

static void draw_words(struct view *v, struct area a)
{
    struct figures *s = v->state;
    const struct figure_entry *f = figures_at(s);
    char text[320];
    const char *path[1];
    int y = 0, has_runs = figures_runs(v, path, 1) > 0;
    if (!f)
        return;
    if (!has_runs) {
        y += say(a, y, ROLE_TEXT, "No run is open: open one in Home.") + 1;
    } else if (!f->is_checked) {
        say(a, y, ROLE_DIM, s->error[0] ? s->error : "checking the open runs ...");
        return;
    } else if (f->why[0]) {
        y += say(a, y, ROLE_WARN, "The open runs do not allow this figure:") + 1;
        y += say(a, y, ROLE_TEXT, f->why) + 1;
    } else if (s->error[0]) {
        say(a, y, ROLE_BAD, s->error);
        return;
    } else if (a.canvas->look.colours == 0) {
        say(a, y, ROLE_DIM,
            "The open runs allow this figure. A preview needs colours, which this terminal does "
            "not show; e exports the figure.");
        return;
    } else {
        say(a, y, ROLE_DIM, a.rows < PICTURE_ROWS ? "too small for a preview" : "drawing ...");
        return;
    }
    snprintf(text, sizeof text, "Needs: %s", f->needs);
    say(a, y, ROLE_DIM, text);
}

/* Is that the figure of a key?  Before its name are the paths of runs, which may hold it too. */
static int is_of(const char *key, const char *name)
{
    enum { AFTER = 4 }; /* lines: venue, theme, width, protocol */
    const char *end = key + strlen(key);
    size_t n = strlen(name);
    for (int lines = 0; end > key && lines < AFTER;)
        lines += *--end == '\n';
    return (size_t)(end - key) >= n && memcmp(end - n, name, n) == 0 &&
           (end - n == key || end[-(long)n - 1] == '\n');
}

static int is_shown(struct view *v)
{
    struct figures *s = v->state;
    const struct figure_entry *f = figures_at(s);
    return f && f->is_checked && !f->why[0] && s->pixels && !s->error[0] &&
           is_of(str_text(&s->key_shown), f->name);
}

/* A frame around the picture: text at its right keeps ncurses from erasing to the end of a line. */
static void draw_preview(struct view *v, struct area a)
{
    struct figures *s = v->state;
    const struct figure_entry *f = figures_at(s);
    if (a.rows < 3 || a.cols < 8)
        return;
    area_box(a, ink(ROLE_BORDER), f ? f->title : NULL, ink(ROLE_TITLE));
    struct area in = area_inset(a, 1, 1);
    s->kind = app_graphics(v->app, &s->cell_w, &s->cell_h);
    s->preview_cols = a.canvas->look.colours > 0 && in.rows >= PICTURE_ROWS ? in.cols : 0;
    if (is_shown(v) && (s->kind == GRAPHICS_KITTY) == s->is_png && s->preview_cols > 0)
        draw_picture(v, in);
    else
        draw_words(v, area_inset(in, 0, 1));
}

static void draw_settings(struct view *v, struct area line)
{
    struct figures *s = v->state;
    const struct {
        const char *name, *value;
    } part[] = {{"venue", figures_venue(s)},
                {"theme", figures_theme(s)},
                {"format", figures_format[s->format]}};
    int x = 1;
    for (size_t i = 0; i < sizeof part / sizeof *part; i++) {
        if (x + (int)(strlen(part[i].name) + strlen(part[i].value)) + 1 >= line.cols)
            return;
        x += area_text(line, 0, x, -1, ink(ROLE_DIM), part[i].name) + 1;
        x += area_text(line, 0, x, -1, ink(ROLE_TEXT), part[i].value) + 2;
    }
    if (app_exported(v->app)[0] && x + 12 < line.cols)
        area_text(line, 0, x, line.cols - x - 1, ink(ROLE_LINK), app_exported(v->app));
}

static void figures_draw(struct view *v, struct area a)
{
    struct figures *s = v->state;
    int is_wide = a.cols >= WIDE_COLS, list = a.cols * 3 / 10;
    list = list < LIST_LEAST ? LIST_LEAST : list > LIST_MOST ? LIST_MOST : list;
    s->list_cols = is_wide ? list : a.cols;
    struct area body = a.rows > 6 ? area_sub(a, 0, 0, a.rows - 1, a.cols) : a;
    for (int pass = 0; pass < 2; pass++) {
        if (pass == 1) /* in scripts the picture is drawn at once, now that its size is known */
            area_fill(a, ' ', ink_on(ROLE_TEXT, ROLE_BACKGROUND));
        if (s->n == 0)
            area_text(a, 0, 1, a.cols - 1, ink(s->error[0] ? ROLE_BAD : ROLE_DIM),
                      s->error[0] ? s->error : "listing the figures ...");
        else if (s->is_zoomed)
            draw_preview(v, body);
        else if (is_wide) {
            draw_list(v, area_sub(body, 0, 0, body.rows, list));
            draw_preview(v, area_sub(body, 0, list, body.rows, a.cols - list));
        } else {
            draw_list(v, body);
        }
        if (s->n > 0 && a.rows > 6)
            draw_settings(v, area_sub(a, a.rows - 1, 0, 1, a.cols));
        if (!app_is_scripted(v->app) || !figures_work(v))
            break;
    }
}

/* ---- events ---- */

static void moved(struct view *v)
{
    struct figures *s = v->state;
    s->start_at = clock_mono() + rest_s;
    v->is_dirty = 1;
}

static int figures_event(struct view *v, const struct event *ev)
{
    struct figures *s = v->state;
    if (ev->kind == EVENT_MOUSE && ev->action == MOUSE_PRESS && ev->y < s->list.page &&
        s->list.top + (size_t)ev->y < s->n && !s->is_zoomed && ev->x < s->list_cols) {
        s->list.cursor = s->list.top + (size_t)ev->y;
        s->has_moved = 1;
        moved(v);
        return 1;
    }
    if (s->is_zoomed && ev->kind == EVENT_KEY && ev->key == KEYCODE_ESC) {
        s->is_zoomed = 0;
        moved(v);
        return 1;
    }
    if (!list_event(&s->list, ev))
        return 0;
    s->has_moved = 1;
    moved(v);
    return 1;
}

static int figures_search(struct view *v, const char *text, int direction)
{
    struct figures *s = v->state;
    for (size_t k = 1; k <= s->n; k++) {
        size_t i = (s->list.cursor + (direction > 0 ? k : s->n - k % s->n)) % s->n;
        if (strstr(s->figure[i].name, text) || strstr(s->figure[i].title, text)) {
            s->list.cursor = i;
            s->has_moved = 1;
            moved(v);
            return 1;
        }
    }
    return 0;
}

static int figures_words(struct view *v, const char **word, enum figure_runs *of)
{
    struct figures *s = v->state;
    (void)of;
    const struct figure_entry *f = figures_at(s);
    if (!f)
        return 0;
    const char *const all[] = {f->name,          "--venue",  figures_venue(s),         "--theme",
                               figures_theme(s), "--format", figures_format[s->format]};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        word[i] = all[i];
    return (int)(sizeof all / sizeof *all);
}

/* The path of the last export, else the command that would export, to be pasted into a shell. */
static void figures_copy(struct view *v, struct str *out)
{
    const char *word[VIEW_WORDS + APP_RUNS_MAX] = {"list"};
    enum figure_runs of = FIGURE_OF_SHOWN;
    if (app_exported(v->app)[0]) {
        copy_add(out, app_exported(v->app));
        return;
    }
    int words = figures_words(v, word, &of);
    int n = words > 0 ? words + (int)figures_runs(v, word + words, APP_RUNS_MAX) : 1;
    str_add(out, "depthscope figure");
    for (int i = 0; i < n; i++) {
        struct str safe = {0};
        copy_add(&safe, word[i]);
        str_add_char(out, ' ');
        str_add_shell(out, str_text(&safe));
        out->failed |= safe.failed;
        str_release(&safe);
    }
}

static int name_index(const char *name, const char *const *all, int n)
{
    for (int i = 0; i < n; i++)
        if (strcmp(all[i], name) == 0)
            return i;
    return -1;
}

/* The next value, or the one that is named. */
static void choose(struct view *v, int *value, const char *const *all, int n, const char *args,
                   const char *what)
{
    int i = args && *args ? name_index(args, all, n) : n > 0 ? (*value + 1) % n : -1;
    if (i < 0) {
        app_notify(v->app, LOG_WARN, "unknown %s \"%s\"", what, args ? args : "");
        return;
    }
    *value = i;
    moved(v);
}

static void key_venue(struct view *v, const struct key *k, const char *args)
{
    struct figures *s = v->state;
    const char *name[FIGURES_VENUES];
    (void)k;
    for (int i = 0; i < s->venues; i++)
        name[i] = s->venue_name[i];
    choose(v, &s->venue, name, s->venues, args, "venue");
}

static void key_theme(struct view *v, const struct key *k, const char *args)
{
    struct figures *s = v->state;
    const char *const *name = (const char *const *)s->theme_name;
    (void)k;
    if (s->theme < 0)
        s->theme = name_index("light", name, (int)s->themes);
    choose(v, &s->theme, name, (int)s->themes, args, "theme");
}

static void key_format(struct view *v, const struct key *k, const char *args)
{
    struct figures *s = v->state;
    (void)k;
    choose(v, &s->format, figures_format, FIGURES_FORMATS, args, "format");
}

static void key_zoom(struct view *v, const struct key *k, const char *args)
{
    struct figures *s = v->state;
    (void)k, (void)args;
    s->is_zoomed = !s->is_zoomed;
    moved(v);
}

static void key_check(struct view *v, const struct key *k, const char *args)
{
    struct figures *s = v->state;
    (void)k, (void)args;
    figures_stop(s);
    str_renew(&s->runs_checked);
    str_renew(&s->key_shown);
    moved(v);
}

static void key_ends(struct view *v, const struct key *k, const char *args)
{
    struct figures *s = v->state;
    (void)args;
    list_end(&s->list, k->value);
    s->has_moved = 1;
    moved(v);
}

/* clang-format off */
static const struct key figures_keys[] = {
    {"Enter",  "zoom",   NULL,     "the preview alone, or with the list",            "zoom",   80, 0, 0, key_zoom},
    {"v",      "venue",  "NAME",   "next venue: sizes and fonts of the figure",      "venue",  70, KEY_VIEW_CHANGE, 0, key_venue},
    {"t",      "theme",  "NAME",   "next theme of the figure",                       "theme",  65, KEY_VIEW_CHANGE, 0, key_theme},
    {"f",      "format", "FORMAT", "next format of the export",                      "format", 60, KEY_VIEW_CHANGE, 0, key_format},
    {"r",      "check",  NULL,     "check the open runs again, for runs that grew",  "check",  40, 0, 0, key_check},
    {"gg",     "first",  NULL,     "first figure",                                   NULL,     0, KEY_HIDDEN, 0, key_ends},
    {"G",      "last",   NULL,     "last figure",                                    NULL,     0, KEY_HIDDEN, 1, key_ends},
    {0},
};
static const struct setting figures_settings[] = {
    {"venue",  SETTING_INT, offsetof(struct figures, venue),  0, FIGURES_VENUES - 1},
    {"theme",  SETTING_INT, offsetof(struct figures, theme), -1, 255},
    {"format", SETTING_INT, offsetof(struct figures, format), 0, FIGURES_FORMATS - 1},
    {0},
};

const struct view_ops view_figures = {
    .name = "figures",  .title = "Figures",
    .summary = "Paper figures that the open runs allow, previewed and exported at a venue's size.",
    .keys = figures_keys,  .settings = figures_settings,  .state_size = sizeof(struct figures),  .shows_probes = 1,
    .open = figures_open,  .close = figures_close,  .draw = figures_draw,  .event = figures_event,
    .poll = figures_work,  .fd = figures_fd,  .due = figures_due,  .search = figures_search,
    .copy = figures_copy,  .figure_words = figures_words,
};
/* clang-format on */
