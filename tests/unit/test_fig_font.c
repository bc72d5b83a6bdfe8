/* The built-in typeface and the pens. */
#include "t.h"

#include "base/mem.h"
#include "figures/glyphs.h"
#include "figures/pen.h"
#include "figures/png_chunks.h"

static size_t commands_of(const char *text, struct str *out)
{
    struct pen_list *inner = pen_list_new();
    struct pen *p = pen_list_pen(inner);
    struct text_style s = {.size = 10};
    /* A list records text as text; calling glyph_draw directly gives the strokes. */
    glyph_draw(p, 0, 0, &s, text);
    if (out)
        pen_list_print(inner, out);
    size_t n = pen_list_count(inner);
    t_eq(p->bad, 0);
    pen_list_free(inner);
    return n;
}

T(every_printable_ascii_character_has_a_glyph)
{
    for (uint32_t c = ' '; c < 127; c++)
        t_truef(glyph_has(c), "U+%04X has none", (unsigned)c);
}

T(latin_greek_arrows_and_symbols_have_glyphs)
{
    static const uint32_t need[] = {
        0x394,  0x3B4,  0x3BB,  0x3BC,  0x3C3,  0x3C1,  0x3C4,  0x3B8,  0x3B1,  0x3B2,  0x3B3,
        0x3C0,  0x3A3,  0x2190, 0x2191, 0x2192, 0x2193, 0x2212, 0xD7,   0xB1,   0xB7,   0x2026,
        0xB0,   0xB2,   0xB3,   0x207B, 0x2080, 0x2081, 0x2089, 0x2013, 0x2014, 0x2248, 0x2264,
        0x2265, 0x221E, 0xE9,   0xFC,   0xF1,   0xE5,   0xDF,   0x153,  0x142,  0x17E,  0x11B};
    for (size_t i = 0; i < sizeof need / sizeof *need; i++)
        t_truef(glyph_has(need[i]), "U+%04X has none", (unsigned)need[i]);
    for (uint32_t c = 0xC0; c <= 0xFF; c++)
        t_truef(glyph_has(c), "U+%04X has none", (unsigned)c);
}

static void check_table(const struct glyph *t, int n)
{
    for (int i = 0; i < n; i++) {
        const char *p = t[i].path;
        t_truef(i == 0 || t[i].code > t[i - 1].code, "U+%04X is out of order", (unsigned)t[i].code);
        t_truef(t[i].code >= 0x300 && t[i].code < 0x370 ? t[i].advance == 0 : t[i].advance > 100,
                "U+%04X", (unsigned)t[i].code);
        while (*p) {
            char op = *p++, *end;
            int want = op == 'C' ? 6 : op == 'D' ? 3 : op == 'Z' ? 0 : 2;
            t_truef(strchr("MLhvCDZ", op) && op, "U+%04X: unknown op %c", (unsigned)t[i].code, op);
            for (; want > 0; want--) {
                long v = strtol(p, &end, 10);
                t_truef(end != p && v >= -260 && v <= 1200, "U+%04X: bad number at \"%s\"",
                        (unsigned)t[i].code, p);
                p = end;
            }
            t_truef(*p == '\0' || *p == ' ', "U+%04X: rest \"%s\"", (unsigned)t[i].code, p);
            p += *p == ' ';
        }
    }
}

T(glyph_tables_are_sorted_and_well_formed)
{
    check_table(glyphs_latin, glyphs_latin_count);
    check_table(glyphs_greek, glyphs_greek_count);
    check_table(glyphs_symbol, glyphs_symbol_count);
    check_table(glyphs_mark, glyphs_mark_count);
    for (int i = 0; i < glyphs_made_count; i++)
        t_truef(glyph_has(glyphs_made[i].base), "U+%04X is made of nothing",
                (unsigned)glyphs_made[i].code);
}

T(digits_share_one_width)
{
    for (char c = '0'; c <= '9'; c++)
        t_near(glyph_width((char[]){c, 0}, 10), glyph_width("0", 10), 1e-12);
}

T(width_grows_with_text_and_size)
{
    t_true(glyph_width("ab", 10) > glyph_width("a", 10));
    t_near(glyph_width("loss", 20), 2 * glyph_width("loss", 10), 1e-9);
    t_near(glyph_width("", 10), 0, 0);
}

T(an_unknown_character_is_a_box_with_its_code)
{
    t_true(!glyph_has(0x6F22));
    t_true(commands_of("\xE6\xBC\xA2", NULL) > 20);
    t_true(glyph_width("\xE6\xBC\xA2", 10) > 3);
    t_true(commands_of("\xFF", NULL) > 5);
}

T(coordinates_are_rounded_and_bad_ones_counted)
{
    struct pen_list *l = pen_list_new();
    struct pen *p = pen_list_pen(l);
    struct str out = {0};
    pen_move(p, 1.0004, 2.0005);
    pen_line(p, (double)NAN, 1);
    pen_line(p, 1e30, 1);
    pen_list_print(l, &out);
    t_str(str_text(&out), "move 1 2.001\n");
    t_eq(p->bad, 2);
    str_release(&out);
    pen_list_free(l);
}

T(text_in_a_list_is_sanitised)
{
    struct pen_list *l = pen_list_new();
    struct str out = {0};
    struct text_style s = {.size = 8, .rgb = 0x123456};
    pen_text(pen_list_pen(l), 1, 2, &s, "a\x1b[31mb");
    pen_list_print(l, &out);
    t_true(strchr(str_text(&out), '\x1b') == NULL);
    t_true(strstr(str_text(&out), "<0x1B>") != NULL);
    str_release(&out);
    pen_list_free(l);
}

T(a_replayed_list_prints_the_same)
{
    struct pen_list *a = pen_list_new(), *b = pen_list_new();
    struct str x = {0}, y = {0};
    struct pen *p = pen_list_pen(a);
    double dash[2] = {3, 1.5};
    struct text_style s = {.size = 7, .angle = 90, .h = TEXT_RIGHT, .v = TEXT_MIDDLE};
    pen_save(p);
    pen_rect(p, 0, 0, 10, 10);
    pen_clip(p);
    pen_dash(p, dash, 2);
    pen_width(p, 0.5);
    pen_colour(p, 0xABCDEF, 0.5);
    pen_curve(p, 0, 0, 1, 1, 2, 2);
    pen_close(p);
    pen_stroke(p);
    pen_circle(p, 5, 5, 2);
    pen_fill(p);
    pen_restore(p);
    pen_text(p, 3, 4, &s, "x \xE2\x88\x92 y");
    pen_list_replay(a, pen_list_pen(b));
    pen_list_print(a, &x);
    pen_list_print(b, &y);
    t_str(str_text(&x), str_text(&y));
    t_true(strstr(str_text(&x), "dash 3 1.5\n") != NULL);
    str_release(&x);
    str_release(&y);
    pen_list_free(a);
    pen_list_free(b);
}

T(a_png_contains_resolution_and_recipe)
{
    unsigned rgb[6] = {0xFF0000, 0x00FF00, 0x0000FF, 0, 0xFFFFFF, 0x808080};
    struct str png = {0};
    struct pngfile info = {0};
    struct err e = {0};
    t_ok(pngfile_write(&png, rgb, 3, 2, 300, "{\"a\":\"\xCE\x94\"}", &e), &e);
    t_ok(pngfile_read(&info, png.p, png.len, "x.png", &e), &e);
    t_eq(info.width, 3);
    t_eq(info.height, 2);
    t_eq(info.per_metre_x, 11812);
    t_str(str_text(&info.recipe), "{\"a\":\"\xCE\x94\"}");
    str_release(&info.recipe);
    for (size_t n = 0; n < png.len; n++) {
        t_true(pngfile_read(&info, png.p, n, "x.png", &e) < 0);
    }
    t_fails(pngfile_read(&info, "GIF89a..", 8, "x.png", &e), &e, DS_EFORMAT, "x.png: not a PNG");
    str_release(&png);
}

T(pages_too_large_are_refused)
{
    struct pen_list *l = pen_list_new();
    struct str out = {0};
    struct err e = {0};
    const struct pen_page wide = {90000, 10, 300, 0xFFFFFF, NULL};
    const struct pen_page undefined = {(double)NAN, 10, 300, 0xFFFFFF, NULL};
    t_fails(pen_cairo_write(l, PEN_PNG, &wide, &out, &e), &e, DS_ERANGE,
            "must be between 1 and 16384 per side");
    t_fails(pen_cairo_write(l, PEN_PNG, &undefined, &out, &e), &e, DS_ERANGE,
            "must be between 1 and 16384 per side");
    pen_list_free(l);
    str_release(&out);
}
