/* Chooses the image protocol from the terminal's answers, and shows and removes one image. */
#include "tui/graphics.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base64.h"
#include "base/mem.h"
#include "tui/appstate.h"

enum { CHUNK = 4096, IMAGE_ID = 31 };

/* ---- protocol ---- */

void graphics_probe(struct str *out, int is_in_tmux)
{
    if (!is_in_tmux)
        str_addf(out, "\x1b_Gi=%d,s=1,v=1,a=q,t=d,f=24;AAAA\x1b\\", (int)IMAGE_ID);
    str_add(out, "\x1b[16t\x1b[c");
}

int graphics_answers(const struct decoder *d)
{
    return d->has_attributes | d->has_sixel << 1 | d->has_kitty << 2 | d->cell_w << 3 |
           d->cell_h << 12;
}

enum graphics graphics_choose(const struct decoder *d, int cell_w, int cell_h)
{
    if (!d->has_attributes) /* the last answer: the others have come before it */
        return GRAPHICS_NONE;
    return d->has_kitty                               ? GRAPHICS_KITTY
           : d->has_sixel && cell_w > 1 && cell_h > 1 ? GRAPHICS_SIXEL
                                                      : GRAPHICS_NONE;
}

enum graphics app_graphics(struct app *app, int *cell_w, int *cell_h)
{
    struct graphics_state *g = &app->graphics;
    const char *term = getenv("TERM"), *tmux = getenv("TMUX");
    *cell_w = *cell_h = 0;
    if (!app->term || app->canvas.look.colours < 256)
        return GRAPHICS_NONE;
    if (!g->is_asked) {
        g->is_asked = 1;
        if (!term || strncmp(term, "screen", 6) != 0 || tmux)
            graphics_probe(&app->extra, tmux && tmux[0]);
        app->is_dirty = 1;
    }
    tty_cell(&app->tty, &g->cell_w, &g->cell_h);
    if (app->decoder.cell_w > 0) {
        g->cell_w = app->decoder.cell_w;
        g->cell_h = app->decoder.cell_h;
    }
    g->kind = graphics_choose(&app->decoder, g->cell_w, g->cell_h);
    *cell_w = g->cell_w > 1 ? g->cell_w : 8;
    *cell_h = g->cell_h > 1 ? g->cell_h : 16;
    return g->kind;
}

void app_image(struct app *app, struct area a, const struct image *image)
{
    app->graphics.want = (struct placed){*image, a.y, a.x, a.rows, a.cols};
}

/* ---- the frame ---- */

static int is_same(const struct placed *a, const struct placed *b)
{
    return a->rows == b->rows && a->cols == b->cols && a->y == b->y && a->x == b->x &&
           a->image.serial == b->image.serial;
}

/* A dialog, or text of another view. */
static int is_covered(const struct canvas *c, const struct placed *p)
{
    if (p->y < 0 || p->x < 0 || p->y + p->rows > c->rows || p->x + p->cols > c->cols)
        return 1;
    for (int y = p->y; y < p->y + p->rows; y++)
        for (int x = p->x; x < p->x + p->cols; x++) {
            const struct cell *cell = &c->cell[(size_t)y * (size_t)c->cols + (size_t)x];
            if (cell->rune != ' ' || cell->bg != ROLE_BACKGROUND || cell->attr & ATTR_REVERSE)
                return 1;
        }
    return 0;
}

void graphics_begin(struct graphics_state *g, struct term *t, const struct canvas *c,
                    struct str *out)
{
    int is_stale = term_is_stale(t, c);
    if (g->want.rows > 0 && (g->kind == GRAPHICS_NONE || is_covered(c, &g->want)))
        g->want.rows = 0;
    if (g->shown.rows > 0 && (is_stale || !is_same(&g->shown, &g->want))) {
        if (g->kind == GRAPHICS_KITTY)
            str_add(out, "\x1b_Ga=d,d=A,q=2\x1b\\");
        else
            term_touch(t, g->shown.y, g->shown.rows);
        g->shown.rows = 0;
        tty_images(0);
    }
}

/* Transmits and places in one command; q=2: no answers, C=1: the cursor stays. */
static void send_kitty(const struct placed *p, struct str *out)
{
    struct str text = {0};
    base64_encode(&text, (const char *)p->image.bytes, p->image.n);
    for (size_t at = 0; at < text.len; at += CHUNK) {
        size_t n = text.len - at < CHUNK ? text.len - at : CHUNK;
        str_add(out, "\x1b_G");
        if (at == 0)
            str_addf(out, "a=T,f=100,i=%d,c=%d,r=%d,q=2,C=1,", (int)IMAGE_ID, p->cols, p->rows);
        str_addf(out, "m=%d;", at + n < text.len);
        str_add_bytes(out, text.p + at, n);
        str_add(out, "\x1b\\");
    }
    str_release(&text);
}

void graphics_end(struct graphics_state *g, struct str *out)
{
    const struct placed *p = &g->want;
    if (p->rows == 0 || g->shown.rows > 0)
        return;
    /* saved and restored: ncurses must find cursor and colours as it left them */
    str_addf(out,
             "\x1b"
             "7\x1b[%d;%dH",
             p->y + 1, p->x + 1);
    if (g->kind == GRAPHICS_KITTY) {
        tty_images(1);
        send_kitty(p, out);
    } else {
        sixel_encode(out, p->image.bytes, p->image.width, p->image.height);
    }
    str_add(out, "\x1b"
                 "8");
    g->shown = *p;
}

/* ---- pixels ---- */

void pixels_shrink(const unsigned char *rgb, int w, int h, unsigned char *out, int cols, int rows)
{
    for (int row = 0; row < rows; row++)
        for (int col = 0; col < cols; col++) {
            int x0 = (int)((long)col * w / cols), x1 = (int)((long)(col + 1) * w / cols);
            int y0 = (int)((long)row * h / rows), y1 = (int)((long)(row + 1) * h / rows);
            long sum[3] = {0, 0, 0}, n = 0;
            x1 = x1 > x0 ? x1 : x0 + 1;
            y1 = y1 > y0 ? y1 : y0 + 1;
            for (int y = y0; y < y1; y++)
                for (int x = x0; x < x1; x++, n++)
                    for (int k = 0; k < 3; k++)
                        sum[k] += rgb[3 * ((size_t)y * (size_t)w + (size_t)x) + (size_t)k];
            for (int k = 0; k < 3; k++)
                out[3 * ((size_t)row * (size_t)cols + (size_t)col) + (size_t)k] =
                    (unsigned char)(sum[k] / n);
        }
}
