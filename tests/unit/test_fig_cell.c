/* The glyphs of terminal cells as shapes: what charts and maps are made of fills its cell exactly. */
#include "base/mem.h"
#include "figures/cell.h"
#include "t.h"

enum { W = 10, H = 20 };

/* Draws a rune and counts its dark pixels in a part of the cell, in pixels. */
struct picture {
    unsigned *rgb;
    int w, h;
};

static struct picture draw(uint32_t rune)
{
    struct picture p = {0};
    struct err e = {0};
    struct pen_list *l = pen_list_new();
    struct cell_glyph g = {.w = 5, .h = 10, .rune = rune, .rgb = 0};
    cell_draw(pen_list_pen(l), &g);
    t_eq(pen_list_pen(l)->bad, 0);
    const struct pen_page page = {.w = 5, .h = 10, .background = 0xFFFFFF, .dpi = 144};
    t_ok(pen_cairo_pixels(l, &page, &p.rgb, &p.w, &p.h, &e), &e);
    t_eq(p.w, W);
    t_eq(p.h, H);
    pen_list_free(l);
    return p;
}

static int dark(const struct picture *p, int x0, int y0, int x1, int y1)
{
    int n = 0;
    for (int y = y0; y < y1; y++)
        for (int x = x0; x < x1; x++)
            n += (p->rgb[y * p->w + x] & 255) < 128;
    return n;
}

static int dark_of(uint32_t rune, int x0, int y0, int x1, int y1)
{
    struct picture p = draw(rune);
    int n = dark(&p, x0, y0, x1, y1);
    mem_free(p.rgb);
    return n;
}

T(blocks_fill_their_part_and_nothing_else)
{
    t_eq(dark_of(0x2588, 0, 0, W, H), W * H);
    t_eq(dark_of(0x2580, 0, 0, W, H / 2), W * H / 2);
    t_eq(dark_of(0x2580, 0, H / 2, W, H), 0);
    t_eq(dark_of(0x2584, 0, H / 2, W, H), W * H / 2);
    t_eq(dark_of(0x258C, 0, 0, W / 2, H), W / 2 * H);
    t_eq(dark_of(0x258C, W / 2, 0, W, H), 0);
    t_eq(dark_of(0x2590, W / 2, 0, W, H), W / 2 * H);
    t_eq(dark_of(0x259A, 0, 0, W / 2, H / 2), W * H / 4); /* upper left and lower right */
    t_eq(dark_of(0x259A, W / 2, H / 2, W, H), W * H / 4);
    t_eq(dark_of(0x259A, 0, 0, W, H), W * H / 2);
    for (uint32_t r = 0x2582; r <= 0x2588; r += 2) /* taller and taller */
        t_true(dark_of(r, 0, 0, W, H) > dark_of(r - 1, 0, 0, W, H) - W);
}

T(each_braille_dot_is_in_its_eighth)
{
    static const int place[8][2] = {{0, 0}, {1, 0}, {2, 0}, {0, 1}, {1, 1}, {2, 1}, {3, 0}, {3, 1}};
    for (int i = 0; i < 8; i++) {
        struct picture p = draw(0x2800u + (1u << i));
        int y = place[i][0] * H / 4, x = place[i][1] * W / 2, all = dark(&p, 0, 0, W, H);
        t_true(all >= 4);
        t_eq(dark(&p, x, y, x + W / 2, y + H / 4), all);
        mem_free(p.rgb);
    }
    t_eq(dark_of(0x2800, 0, 0, W, H), 0);
}

/* The middle of a side is dark exactly when the line has an arm there. */
static void check_arms(uint32_t rune, int left, int right, int up, int down)
{
    struct picture p = draw(rune);
    t_eq(dark(&p, 0, H / 2 - 1, 1, H / 2 + 1) > 0, left);
    t_eq(dark(&p, W - 1, H / 2 - 1, W, H / 2 + 1) > 0, right);
    t_eq(dark(&p, W / 2 - 1, 0, W / 2 + 1, 1) > 0, up);
    t_eq(dark(&p, W / 2 - 1, H - 1, W / 2 + 1, H) > 0, down);
    mem_free(p.rgb);
}

T(box_lines_reach_the_sides_that_they_join)
{
    check_arms(0x2500, 1, 1, 0, 0);
    check_arms(0x2502, 0, 0, 1, 1);
    check_arms(0x2524, 1, 0, 1, 1);
    check_arms(0x253C, 1, 1, 1, 1);
    check_arms(0x256D, 0, 1, 0, 1);
    check_arms(0x256E, 1, 0, 0, 1);
    check_arms(0x256F, 1, 0, 1, 0);
    check_arms(0x2570, 0, 1, 1, 0);
    check_arms(0x2575, 0, 0, 1, 0);
    check_arms(0x2503, 0, 0, 1, 1);
    for (uint32_t r = 0x2500; r < 0x25A0; r++)
        t_true(dark_of(r, 0, 0, W, H) > 0 || r == 0x2591);
}

T(signs_and_letters_stay_in_their_cell)
{
    static const uint32_t rune[] = {'W',    'm',    'i',    'g',    0x25CF, 0x25CB,
                                    0x25D0, 0x25C7, 0x25B4, 0x25BE, 0x2713, 0x203A,
                                    0x2424, 0x25A0, 0xD7,   0x2026, 0x4F60};
    for (size_t i = 0; i < DS_LEN(rune); i++) {
        struct picture p = draw(rune[i]);
        t_truef(dark(&p, 0, 0, W, H) > 3, "U+%04X is not drawn", (unsigned)rune[i]);
        t_truef(dark(&p, 0, 0, W, 2) == 0, "U+%04X touches the row above", (unsigned)rune[i]);
        mem_free(p.rgb);
    }
    t_eq(dark_of(' ', 0, 0, W, H), 0);
}
