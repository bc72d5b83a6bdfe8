/* Cells, areas and text of the workbench. */
#include "t.h"

#include "tui/canvas.h"
#include "tui/widgets.h"

static struct theme theme;

static void begin(struct canvas *c, int rows, int cols, enum glyphs g)
{
    theme_default(&theme);
    *c = (struct canvas){.look = {g, 256, &theme}};
    t_true(canvas_resize(c, rows, cols) == 0);
}

static const char *row(const struct canvas *c, int y)
{
    static struct str text;
    str_reset(&text);
    canvas_text(c, &text);
    char *p = text.p;
    for (; y > 0; y--)
        p = strchr(p, '\n') + 1;
    *strchr(p, '\n') = '\0';
    return p;
}

T(text_is_clipped_to_its_area)
{
    struct canvas c;
    begin(&c, 2, 10, GLYPHS_BRAILLE);
    struct area a = area_sub(canvas_area(&c), 0, 2, 1, 5);
    t_eq(area_text(a, 0, 0, -1, ink(ROLE_TEXT), "abcdefgh"), 5);
    t_str(row(&c, 0), "  abcd\xE2\x80\xA6");
    t_eq(area_text(a, 1, 0, -1, ink(ROLE_TEXT), "outside"), 0);
    area_put(a, 0, 99, 'x', ink(ROLE_TEXT));
    area_put(a, -1, 0, 'x', ink(ROLE_TEXT));
    t_str(row(&c, 1), "");
    canvas_release(&c);
}

T(control_bytes_and_bidi_are_shown_not_sent)
{
    struct canvas c;
    begin(&c, 1, 60, GLYPHS_BRAILLE);
    area_text(canvas_area(&c), 0, 0, -1, ink(ROLE_TEXT),
              "a\x1b[2J\xE2\x80\xAE"
              "b");
    t_true(strstr(row(&c, 0), "<0x1B>[2J") != NULL);
    t_true(strstr(row(&c, 0), "<U+202E>b") != NULL);
    canvas_release(&c);
}

T(no_half_of_a_wide_rune_remains)
{
    struct canvas c;
    begin(&c, 1, 6, GLYPHS_BRAILLE);
    struct area a = canvas_area(&c);
    area_text(a, 0, 0, -1, ink(ROLE_TEXT), "\xE7\x8C\xAB\xE7\x8C\xAB");
    t_eq(c.cell[1].rune, 0);
    area_put(a, 0, 1, 'x', ink(ROLE_TEXT));
    t_eq(c.cell[0].rune, ' ');
    area_put(a, 0, 2, 'y', ink(ROLE_TEXT));
    t_eq(c.cell[3].rune, ' ');
    area_put(a, 0, 5, 0x732B, ink(ROLE_TEXT)); /* does not fit */
    t_eq(c.cell[5].rune, ' ');
    canvas_release(&c);
}

T(every_role_has_a_letter_and_maps_have_a_hash)
{
    struct canvas c;
    struct str roles = {0};
    begin(&c, 1, ROLE_COUNT + 1, GLYPHS_BRAILLE);
    for (int r = 0; r < ROLE_COUNT; r++)
        area_put(canvas_area(&c), 0, r, 'x', ink((enum role)r));
    area_heat(canvas_area(&c), 0, ROLE_COUNT, 1, "viridis", 0.5);
    canvas_roles(&c, &roles);
    t_eq(roles.len, ROLE_COUNT + 2);
    t_eq(roles.p[ROLE_COUNT], '#');
    for (int i = 0; i < ROLE_COUNT; i++)
        for (int j = 0; j < i; j++)
            t_true(roles.p[i] != roles.p[j]);
    str_release(&roles);
    canvas_release(&c);
}

T(dots_fall_back_to_poorer_glyph_sets)
{
    static const struct {
        enum glyphs g;
        const char *want;
    } rung[] = {
        {GLYPHS_BRAILLE, "\xE2\xA0\x81"}, {GLYPHS_SHADES, "\xE2\x96\x80"}, {GLYPHS_ASCII, "'"}};
    for (size_t i = 0; i < DS_LEN(rung); i++) {
        struct canvas c;
        struct dots d;
        begin(&c, 1, 1, rung[i].g);
        t_true(dots_begin(&d, canvas_area(&c)) == 0);
        dots_point(&d, 0, 0, ROLE_SERIES_0);
        dots_point(&d, 2, 0, ROLE_SERIES_0); /* outside */
        dots_end(&d);
        t_str(row(&c, 0), rung[i].want);
        canvas_release(&c);
    }
}

T(sizes_are_clamped)
{
    struct canvas c;
    begin(&c, 0, -5, GLYPHS_ASCII);
    t_eq(c.rows, 1);
    t_eq(c.cols, 1);
    t_true(canvas_resize(&c, 1 << 20, 1 << 20) == 0);
    t_eq(c.rows, CANVAS_ROWS_MAX);
    t_eq(c.cols, CANVAS_COLS_MAX);
    canvas_release(&c);
}

T(list_follows_the_tail_until_the_cursor_moves_up)
{
    struct list l = {.follow_tail = 1};
    list_fit(&l, 100, 10);
    t_eq(l.cursor, 99);
    t_eq(l.top, 90);
    list_fit(&l, 105, 10);
    t_eq(l.cursor, 104);
    list_move(&l, -1);
    list_fit(&l, 110, 10);
    t_eq(l.cursor, 103);
    list_fit(&l, 0, 10);
    t_eq(l.cursor, 0);
    list_move(&l, 5);
    t_eq(l.cursor, 0);
}

T(columns_are_hidden_by_priority)
{
    static const struct column c[] = {{"a", 10, 0, 3}, {"b", 10, 0, 1}, {"c", -1, 0, 2}};
    int w[3], x[3];
    columns_fit(c, 3, 60, w, x);
    t_true(w[0] == 10 && w[1] == 10 && w[2] > 8);
    columns_fit(c, 3, 20, w, x);
    t_eq(w[1], 0);
    t_true(w[0] > 0 && w[2] > 0);
    columns_fit(c, 3, 5, w, x);
    t_true(w[0] > 0 && w[1] == 0 && w[2] == 0);
}

T(field_edits_whole_characters)
{
    struct field f = {0};
    struct event left = {.kind = EVENT_KEY, .key = KEYCODE_LEFT},
                 erase = {.kind = EVENT_KEY, .key = KEYCODE_BACKSPACE},
                 type = {.kind = EVENT_KEY, .key = 'x'},
                 paste = {.kind = EVENT_PASTE, .text = "1\n2", .len = 3};
    field_set(&f, "a\xC3\xA4"
                  "b");
    field_event(&f, &left);
    field_event(&f, &erase);
    t_str(str_text(&f.text), "ab");
    field_event(&f, &type);
    field_event(&f, &paste);
    t_str(str_text(&f.text), "ax1 2b");
    field_release(&f);
}

/* The cursor is next to the text also where the field begins with half of a wide character. */
T(the_cursor_of_a_field_follows_wide_characters)
{
    struct canvas c = {0};
    struct field f = {0};
    struct event left = {.kind = EVENT_KEY, .key = KEYCODE_LEFT};
    t_eq(canvas_resize(&c, 1, 12), 0);
    for (int cols = 8; cols <= 11; cols++) {
        field_set(&f, "\xE6\x95\xB0\xE6\x95\xB0\xE6\x95\xB0\xE6\x95\xB0\xE6\x95\xB0"
                      "\xE6\x95\xB0\xE6\x95\xB0\xE6\x95\xB0");
        canvas_clear(&c);
        field_draw(&f, canvas_area(&c), 0, 0, cols, 1);
        int end = 0;
        while (end < c.cols && c.cell[end].rune != ' ')
            end++;
        t_eq(c.cursor_x, end);
        for (int i = 0; i < 8; i++) {
            field_event(&f, &left);
            canvas_clear(&c);
            field_draw(&f, canvas_area(&c), 0, 0, cols, 1);
            t_eq(c.cell[c.cursor_x].rune, 0x6570);
        }
    }
    field_release(&f);
    canvas_release(&c);
}
