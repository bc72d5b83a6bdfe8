/* Turns a canvas into bytes with ncurses.  ncurses writes to an unnamed file instead of the
 * terminal, so the size of a frame is known before it is sent (byte budget), a stalled line never
 * blocks in the middle of a frame, and a frame is sent as one bracketed write. */
#define _GNU_SOURCE /* memfd_create */
#define NCURSES_WIDECHAR 1
#include <ncurses.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "tui/term.h"

struct term {
    SCREEN *screen;
    FILE *out, *in;
    int colours;
    enum glyphs glyphs;
    int is_console; /* the Linux console, whose fonts have few glyphs */
    int margin;     /* columns of ncurses that are not part of the canvas */
    struct canvas sent;
    int must_repaint;
};

/* An unnamed file, in memory where the host has such a directory, else among the temporary
 * files. */
static FILE *scratch_file(void)
{
    const char *dirs[] = {"/dev/shm", getenv("XDG_RUNTIME_DIR"), getenv("TMPDIR"), "/tmp"};
#ifdef MFD_CLOEXEC
    int memory = memfd_create("depthscope", MFD_CLOEXEC);
    FILE *frame = memory >= 0 ? fdopen(memory, "w+") : NULL;
    if (frame)
        return frame;
    if (memory >= 0)
        close(memory);
#endif
    for (size_t i = 0; i < DS_LEN(dirs); i++) {
        char path[512];
        if (!dirs[i] || dirs[i][0] != '/')
            continue;
        snprintf(path, sizeof path, "%s/depthscope-XXXXXX", dirs[i]);
        int fd = mkstemp(path);
        if (fd < 0)
            continue;
        unlink(path);
        FILE *f = fdopen(fd, "w+");
        if (f)
            return f;
        close(fd);
    }
    return NULL;
}

/* TERMINFO is set only while ncurses reads it: child processes must not inherit it. */
static SCREEN *start(struct term *t, const char *entry, const char *memory)
{
    char *saved = NULL;
    const char *old = getenv("TERMINFO");
    if (memory) {
        saved = old ? mem_strdup(old) : NULL;
        setenv("TERMINFO", memory, 1);
    }
    SCREEN *s = newterm(entry, t->out, t->in);
    if (memory) {
        if (saved)
            setenv("TERMINFO", saved, 1);
        else
            unsetenv("TERMINFO");
        mem_free(saved);
    }
    return s;
}

static int open_screen(struct term *t, const struct term_options *o, char notice[160],
                       struct err *e)
{
    const char *name = o->term ? o->term : getenv("TERM");
    struct term_choice c;
    term_choose(&c, name, getenv("COLORTERM"), o->color, getenv("NO_COLOR"));
    t->colours = c.colours;
    t->glyphs = glyphs_choose(o->glyphs, utf8_locale_is_utf8(), name);
    t->is_console = name && strncmp(name, "linux", 5) == 0;
    if (!term_can_draw(name))
        return err_set(e, DS_EIO,
                       "TERM=%s: unsupported, it cannot move the cursor; use --term xterm or a "
                       "command that prints",
                       name ? name : "");
    use_env(FALSE);   /* LINES and COLUMNS would freeze the size */
    use_tioctl(TRUE); /* else newterm refuses entries without a size: linux, putty */
    t->screen = start(t, c.entry, c.memory);
    if (!t->screen) {
        snprintf(notice, 160,
                 "TERM=%.60s: unknown terminal, using xterm-256color; --term selects another",
                 name ? name : "");
        t->screen = start(t, "ds-xterm-256", terminfo_xterm_256);
    }
    if (!t->screen)
        return err_set(e, DS_EIO, "TERM=%s: ncurses could not be initialised", name ? name : "");
    if (tigetflag("am") < 0 || !tigetstr("cup") || tigetstr("cup") == (char *)-1)
        return err_set(e, DS_EIO,
                       "TERM=%s: unsupported, it cannot move the cursor; use --term xterm or a "
                       "command that prints",
                       name ? name : "");
    t->margin = tigetflag("am") > 0 && tigetflag("xenl") <= 0;
    if (t->colours && has_colors()) {
        start_color();
        use_default_colors();
        t->colours = COLORS < t->colours ? COLORS : t->colours;
    } else {
        t->colours = 0;
    }
    return 0;
}

int term_open(struct term **out, const struct term_options *o, int rows, int cols, char notice[160],
              struct err *e)
{
    struct term *t = mem_alloc(1, sizeof *t);
    notice[0] = '\0';
    if (!t)
        return err_set(e, DS_EMEM, "screen: out of memory");
    t->out = scratch_file();
    t->in = fopen("/dev/null", "r");
    if (!t->in) /* a chroot without /dev */
        t->in = scratch_file();
    int rc = t->out && t->in ? open_screen(t, o, notice, e)
                             : err_errno(e, "scratch file for the screen");
    if (rc < 0) {
        term_close(t);
        return rc;
    }
    typeahead(-1);
    leaveok(stdscr, TRUE);
    curs_set(0);
    scrollok(stdscr, FALSE);
    term_resize(t, rows, cols);
    *out = t;
    return 0;
}

void term_close(struct term *t)
{
    if (!t)
        return;
    if (t->screen) {
        endwin();
        delscreen(t->screen);
    }
    if (t->out)
        fclose(t->out);
    if (t->in)
        fclose(t->in);
    canvas_release(&t->sent);
    mem_free(t);
}

int term_margin(const struct term *t)
{
    return t->margin;
}

void term_look(const struct term *t, struct look *look)
{
    look->colours = t->colours;
    look->glyphs = t->glyphs;
}

void term_resize(struct term *t, int rows, int cols)
{
    resizeterm(rows, cols + t->margin);
    t->must_repaint = 1;
}

void term_forget(struct term *t)
{
    t->must_repaint = 1;
}

int term_is_stale(const struct term *t, const struct canvas *c)
{
    return t->must_repaint || t->sent.rows != c->rows || t->sent.cols != c->cols;
}

void term_touch(struct term *t, int y, int rows)
{
    (void)t;
    if (y >= 0 && y + rows <= LINES)
        wredrawln(stdscr, y, rows);
}

void term_theme_changed(struct term *t)
{
    for (size_t i = 0; i < (size_t)t->sent.rows * (size_t)t->sent.cols; i++)
        t->sent.cell[i].fg = INK_KEEP; /* equal to no drawn colour, so every colour is sent again */
}

/* ---- colours ---- */

static const int ansi_rgb[16] = {0x000000, 0xCD0000, 0x00CD00, 0xCDCD00, 0x0000EE, 0xCD00CD,
                                 0x00CDCD, 0xE5E5E5, 0x7F7F7F, 0xFF0000, 0x00FF00, 0xFFFF00,
                                 0x5C5CFF, 0xFF00FF, 0x00FFFF, 0xFFFFFF};

/* The "redmean" distance: an integer approximation of perceptual colour distance. */
static long distance(int a, int b)
{
    long r = (a >> 16 & 255) - (b >> 16 & 255), g = (a >> 8 & 255) - (b >> 8 & 255),
         bl = (a & 255) - (b & 255);
    long mean = ((a >> 16 & 255) + (b >> 16 & 255)) / 2;
    return (((512 + mean) * r * r) >> 8) + 4 * g * g + (((767 - mean) * bl * bl) >> 8);
}

static int nearest_256(int rgb)
{
    static const int level[6] = {0, 95, 135, 175, 215, 255};
    int at[3], cube = 0;
    for (int k = 0; k < 3; k++) {
        int v = rgb >> (16 - 8 * k) & 255;
        at[k] = v < 48 ? 0 : v < 115 ? 1 : (v - 35) / 40;
        cube = cube << 8 | level[at[k]];
    }
    int sum = (rgb >> 16 & 255) + (rgb >> 8 & 255) + (rgb & 255);
    int grey = (sum / 3 - 3) / 10;
    grey = grey < 0 ? 0 : grey > 23 ? 23 : grey;
    int g = 8 + 10 * grey;
    if (distance(rgb, g << 16 | g << 8 | g) < distance(rgb, cube))
        return 232 + grey;
    return 16 + 36 * at[0] + 6 * at[1] + at[2];
}

static int nearest_16(int rgb)
{
    int best = 7;
    for (int i = 0; i < 16; i++)
        if (distance(rgb, ansi_rgb[i]) < distance(rgb, ansi_rgb[best]))
            best = i;
    return best;
}

static int rgb_number(const struct term *t, int rgb)
{
    if (t->colours > 256)
        return rgb < 8 ? 0x000008 : rgb; /* 0 to 7 are ANSI colours in the direct entries */
    return t->colours == 256 ? nearest_256(rgb) : nearest_16(rgb);
}

static int is_bright(int rgb)
{
    return (rgb >> 16 & 255) * 299 + (rgb >> 8 & 255) * 587 + (rgb & 255) * 114 > 128000;
}

static int rgb_of(const struct canvas *c, int32_t k)
{
    if (k >= 0 && (k & INK_RGB))
        return k & 0xFFFFFF;
    const struct colour *role = k >= 0 && k < ROLE_COUNT ? &c->look.theme->role[k] : NULL;
    return !role             ? -1
           : role->rgb >= 0  ? role->rgb
           : role->ansi >= 0 ? ansi_rgb[role->ansi & 15]
                             : -1;
}

/* The terminal's colour number of one side of a cell, -1 = its default. */
static int number_of(const struct term *t, const struct canvas *c, int32_t k, int32_t bg)
{
    if (k == INK_CONTRAST) {
        int rgb = rgb_of(c, bg);
        return rgb < 0             ? -1
               : t->colours >= 256 ? rgb_number(t, is_bright(rgb) ? 0x101010 : 0xF4F4F4)
               : is_bright(rgb)    ? 0
                                   : 7;
    }
    if (k >= 0 && !(k & INK_RGB) && k < ROLE_COUNT) {
        const struct colour *role = &c->look.theme->role[k];
        if (t->colours < 256 || role->rgb < 0)
            return role->ansi >= 0                      ? role->ansi & 15
                   : t->colours < 256 && role->rgb >= 0 ? nearest_16(role->rgb)
                                                        : -1;
        return rgb_number(t, role->rgb);
    }
    return k < 0 ? -1 : rgb_number(t, k & 0xFFFFFF);
}

static attr_t attributes(const struct term *t, const struct canvas *c, const struct cell *cell)
{
    attr_t a = (cell->attr & ATTR_BOLD ? A_BOLD : 0) | (cell->attr & ATTR_DIM ? A_DIM : 0) |
               (cell->attr & ATTR_UNDERLINE ? A_UNDERLINE : 0) |
               (cell->attr & ATTR_REVERSE ? A_REVERSE : 0);
    if (cell->fg >= 0 && cell->fg < ROLE_COUNT) {
        const struct colour *k = &c->look.theme->role[cell->fg];
        a |= (k->bold ? A_BOLD : 0) | (k->underline ? A_UNDERLINE : 0) | (k->dim ? A_DIM : 0) |
             (k->reverse ? A_REVERSE : 0);
    }
    int has_bar = cell->bg != ROLE_BACKGROUND;
    if (cell->rune == ' ')
        a &= (attr_t) ~(A_BOLD | A_DIM);
    if (t->colours == 0 && has_bar)
        a |= A_REVERSE;
    return a;
}

/* The foreground of a blank is invisible: it takes the colour of its neighbours when they agree
 * (no change within a phrase) and none otherwise (so that ncurses may skip or erase it). */
static int32_t blank_fg(const struct canvas *c, const struct cell *cell, int x)
{
    if (x > 0 && x + 1 < c->cols && cell[-1].rune != ' ' && cell[1].rune != ' ' &&
        cell[-1].fg == cell[1].fg && cell[-1].bg == cell->bg && cell[-1].attr == cell[1].attr)
        return cell[-1].fg;
    return INK_KEEP;
}

static void put(struct term *t, const struct canvas *c, int y, int x)
{
    const struct cell *cell = &c->cell[(size_t)y * (size_t)c->cols + (size_t)x];
    uint32_t rune = t->is_console ? term_console_rune(cell->rune) : cell->rune;
    wchar_t text[5] = {(wchar_t)rune, (wchar_t)cell->mark[0], (wchar_t)cell->mark[1],
                       (wchar_t)cell->mark[2], 0};
    attr_t a = attributes(t, c, cell);
    int pair = 0;
    if (t->colours) {
        int32_t ink_fg =
            cell->rune == ' ' && cell->bg == ROLE_BACKGROUND ? blank_fg(c, cell, x) : cell->fg;
        int fg = number_of(t, c, ink_fg, cell->bg), bg = number_of(t, c, cell->bg, cell->bg);
        if (fg == bg && fg != -1) /* with few colours two roles may map to the same one */
            fg = number_of(t, c, INK_CONTRAST, cell->bg);
        if (t->colours == 8) {
            a |= fg >= 8 ? A_BOLD : 0;
            fg = fg >= 0 ? fg & 7 : fg;
            bg = bg >= 0 ? bg & 7 : bg;
        }
        pair = fg == -1 && bg == -1 ? 0 : alloc_pair(fg, bg);
        pair = pair < 0 ? 0 : pair;
    }
    cchar_t glyph;
    setcchar(&glyph, text, a, (short)0, &pair);
    mvadd_wch(y, x, &glyph);
}

static int same(const struct cell *a, const struct cell *b)
{
    return a->rune == b->rune && a->fg == b->fg && a->bg == b->bg && a->attr == b->attr &&
           memcmp(a->mark, b->mark, sizeof a->mark) == 0;
}

static void put_changes(struct term *t, const struct canvas *c, int all)
{
    for (int y = 0; y < c->rows; y++) {
        for (int x = 0; x < c->cols; x++) {
            size_t at = (size_t)y * (size_t)c->cols + (size_t)x;
            const struct cell *now = &c->cell[at];
            /* drawn together with the left half of the wide rune */
            int is_changed =
                all || !same(now, &t->sent.cell[at]) ||
                (x + 1 < c->cols && now[1].rune == 0 && !same(now + 1, &t->sent.cell[at + 1]));
            if (is_changed && now->rune != 0)
                put(t, c, y, x);
        }
    }
}

/* The bytes that ncurses wrote since the file was rewound. */
static int collect(struct term *t, struct str *out, struct err *e)
{
    int fd = fileno(t->out);
    off_t n = lseek(fd, 0, SEEK_CUR);
    char chunk[4096];
    for (off_t at = 0; at < n;) {
        size_t want = (size_t)(n - at) < sizeof chunk ? (size_t)(n - at) : sizeof chunk;
        ssize_t got = pread(fd, chunk, want, at);
        if (got <= 0)
            return err_errno(e, "screen");
        str_add_bytes(out, chunk, (size_t)got);
        at += got;
    }
    if (n < 0 || lseek(fd, 0, SEEK_SET) < 0)
        return err_errno(e, "screen");
    return out->failed ? err_set(e, DS_EMEM, "screen: out of memory") : 0;
}

int term_render(struct term *t, const struct canvas *c, struct str *out, struct err *e)
{
    int all = term_is_stale(t, c);
    if (all) {
        if (LINES != c->rows || COLS != c->cols + t->margin)
            resizeterm(c->rows, c->cols + t->margin);
        if (canvas_resize(&t->sent, c->rows, c->cols) < 0)
            return err_set(e, DS_EMEM, "screen of %d x %d cells: out of memory", c->cols, c->rows);
        clearok(curscr, TRUE);
        t->must_repaint = 0;
    }
    put_changes(t, c, all);
    int has_cursor = c->cursor_y >= 0 && c->cursor_x >= 0;
    if (has_cursor)
        move(c->cursor_y, c->cursor_x);
    leaveok(stdscr, !has_cursor);
    if (all || has_cursor != (t->sent.cursor_y >= 0))
        curs_set(has_cursor);
    wnoutrefresh(stdscr);
    doupdate();
    memcpy(t->sent.cell, c->cell, (size_t)c->rows * (size_t)c->cols * sizeof *c->cell);
    t->sent.cursor_y = c->cursor_y;
    t->sent.cursor_x = c->cursor_x;
    return collect(t, out, e);
}

void term_exit_text(struct term *t, struct str *out)
{
    endwin();
    struct err ignored;
    if (collect(t, out, &ignored) < 0)
        str_reset(out);
}
