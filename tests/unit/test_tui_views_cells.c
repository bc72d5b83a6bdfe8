/* The parts of the tokens x layers picture. */
#include "base/mem.h"
#include "screens/mixtures.h"
#include "screens/probes.h"
#include "t.h"
#include "tui/cells.h"
#include "tui/cells_pick.h"
#include "tui/signals.h"
#include "tui/term.h"

static struct runview *view_of(void (*make)(struct stream *))
{
    struct str out = {0};
    struct runview *r = runview_new();
    struct err e = {0};
    uint64_t seq;
    struct value body;
    t_true(r && probes_make(make, &out) == 0);
    for (size_t at = 0; at < out.len;) {
        int64_t n = record_parse(out.p + at, out.len - at, &seq, &body, &e);
        t_ok(n, &e);
        runview_take(r, body);
        at += (size_t)n;
    }
    str_release(&out);
    return r;
}

static const struct look looks[] = {{GLYPHS_BRAILLE, 1 << 24, NULL},
                                    {GLYPHS_BRAILLE, 256, NULL},
                                    {GLYPHS_SHADES, 16, NULL},
                                    {GLYPHS_SHADES, 0, NULL},
                                    {GLYPHS_ASCII, 0, NULL}};

T(fields_match_the_matrices_of_the_probe)
{
    struct runview *r = view_of(probes_run);
    const struct probe *p = runview_probe(r, 0);
    t_eq(cells_fields(p), 1 + 5 + 1);
    t_str(cells_field_name(p, 0), "executed or skipped");
    t_str(cells_field_name(p, 1), "score");
    t_str(cells_field_name(p, 6), "margin");
    t_near(cells_value(p, 6, 3, 4), cells_value(p, 1, 3, 4) - cells_value(p, 2, 3, 4), 1e-9);
    t_true(isnan(cells_value(p, 6, 0, 4)));
    t_str(cells_unit(r, "nothing"), "");
    runview_free(r);
    r = view_of(probes_bare);
    t_eq(cells_fields(runview_probe(r, 0)), 1);
    runview_free(r);
}

/* The parts of running text of a probe of these pieces, separated by bars. */
static void joins(const char *const *given, int n, const char *want)
{
    size_t len[8];
    char *piece[8];
    struct probe p = {.tokens = n, .piece = piece, .piece_len = len};
    struct str out = {0};
    for (int i = 0; i < n; i++)
        piece[i] = mem_strdup(given[i]), len[i] = strlen(given[i]);
    for (int i = 0; i < n; i++) {
        cells_joined(&p, i, &out);
        str_add(&out, "|");
    }
    t_str(str_text(&out), want);
    str_release(&out);
    for (int i = 0; i < n; i++)
        mem_free(piece[i]);
}

/* Categories have no range, so no colour ramp, and no curve or correlation. */
T(a_category_is_never_an_amount)
{
    const struct mixture m = {MIX_LAYERS, MIX_EXPERTS, 100, 100, MIX_NO_LOADS};
    struct fixture f;
    t_true(fixture_begin(&f));
    mix_run(&f, &m);
    struct runview *r = fixture_view(&f);
    struct str bytes = fixture_end(&f);
    const struct probe *p = r ? runview_probe(r, 0) : NULL;
    double lo, hi;
    int field[32];
    char text[64];
    t_true(p != NULL);
    for (int i = 1; i < cells_fields(p); i++) {
        int is_category = strncmp(cells_field_name(p, i), "expert_weight", 13) != 0;
        t_eq(cells_is_category(p, i), is_category);
        t_eq(cells_range(p, i, &looks[0], &lo, &hi) == NULL, is_category);
    }
    t_eq(signals_fields(p, field, 32), 2);
    for (int i = 0; i < 2; i++)
        t_true(!cells_is_category(p, field[i]));
    t_str(cells_experts(text, sizeof text, r, p, 0, 0), "no expert");
    t_str(cells_experts(text, sizeof text, r, p, 2, 3), "expert 3 (0.50), 6 (0.50)");
    t_str(cells_experts(text, 12, r, p, 2, 3), "expert 3 (0");
    r->experts_noop = r->experts - 5; /* experts 5 and above are no-ops */
    t_str(cells_experts(text, sizeof text, r, p, 2, 3), "expert 3 (0.50), no-op 6 (0.50)");
    str_release(&bytes);
    runview_free(r);
}

T(bytes_of_one_character_are_joined_across_tokens)
{
    const char *ni[] = {"a\xE4", "\xBD",
                        "\xA0"
                        "b"},
               *two[] = {"\xE4\xBD", "\xA0\xE5\xA5", "\xBD"};
    const char *broken[] = {"\xE4", "x", "\xBD", "\xA0"},
               *plain[] = {"the", " cat", "\xE7\x8C\xAB"};
    const char *end[] = {"a", "\xF0\x9F"}, *emoji[] = {"\xF0", "\x9F", "\x90", "\xB1"};
    joins(ni, 3, "a\xE4\xBD\xA0||b|");
    joins(two, 3, "\xE4\xBD\xA0|\xE5\xA5\xBD||");
    joins(broken, 4, "\xE4|x|\xBD|\xA0|");
    joins(plain, 3, "the| cat|\xE7\x8C\xAB|");
    joins(end, 2, "a|\xF0\x9F|");
    joins(emoji, 4, "\xF0\x9F\x90\xB1||||");
}

T(a_top_k_probe_is_reported)
{
    struct runview *r = view_of(probes_topk);
    t_str(runview_probe(r, 0)->routing, "topk");
    t_str(probe_caveat(runview_probe(r, 0)), "top-k, not causal");
    runview_free(r);
    r = view_of(probes_bare); /* a probe without a decision mode */
    t_str(runview_probe(r, 0)->routing, "");
    t_str(probe_caveat(runview_probe(r, 0)), "");
    runview_free(r);
}

/* As by max_skip of edp. */
T(a_cell_that_no_router_decided_is_forced_unless_all_of_its_layer_are)
{
    enum { ON = CELL_ALWAYS_ON, FORCED = CELL_FORCED, RUN = CELL_RUN, SKIP = CELL_SKIP };
    unsigned char run[] = {1, 1, 1, 1, 1, 1, 1, 0, 0, 1, 0, 0};
    float set[] = {1, 1, 1, 1, 0, 1, 0, 0, 1, 0, 0, 0};
    static const int want[] = {ON, ON, ON, ON, RUN, FORCED, RUN, SKIP, SKIP, RUN, SKIP, SKIP};
    char name[] = "forced", text[] = "a", *piece[] = {text, text, text, text};
    size_t len[] = {1, 1, 1, 1};
    int32_t id[4] = {0};
    int8_t force[12];
    struct matrix forced = {.name = name, .v = set, .rows = 3, .cols = 4};
    struct probe p = {.layers = 3,
                      .tokens = 4,
                      .id = id,
                      .piece = piece,
                      .piece_len = len,
                      .run = run,
                      .cell = &forced,
                      .cells = 1};
    struct cells c = {.probe = &p};
    struct canvas canvas = {.look = looks[4]};
    t_eq(cells_fit(&c), 0);
    for (int i = 0; i < 12; i++)
        t_eq(cells_state(&c, i / 4, i % 4), want[i]);
    t_str(cells_state_word(cells_state(&c, 1, 1)), "forced");
    t_eq(canvas_resize(&canvas, 1, 60), 0);
    for (int by_user = 0; by_user < 2; by_user++) {
        char row[61] = {0};
        memset(force, -1, sizeof force);
        force[5] = by_user ? 1 : -1;
        c.force = force;
        canvas_clear(&canvas);
        cells_legend(canvas_area(&canvas), 60, &c);
        for (int x = 0; x < 60; x++)
            row[x] = canvas.cell[x].rune ? (char)canvas.cell[x].rune : ' ';
        t_eq(strstr(row, "always on, forced") != NULL, !by_user);
        t_true(strstr(row, "always on") != NULL);
    }
    canvas_release(&canvas);
    cells_release(&c);
}

/* Where the whole has no room its gist stands without a mark of what was left out. */
T(a_caveat_is_shown_whole_or_by_its_gist)
{
    struct runview *r = view_of(probes_topk);
    for (int cols = 5; cols <= 40; cols++) {
        struct canvas canvas = {.look = looks[1]};
        char want[41] = "top-k";
        t_eq(canvas_resize(&canvas, 1, cols), 0);
        int n = cells_caveat(canvas_area(&canvas), 0, cols, runview_probe(r, 0));
        if (cols > 17)
            str_copy(want, sizeof want, "top-k, not causal");
        t_eq(n, strlen(want));
        for (int x = 0; x < n; x++)
            t_eq(canvas.cell[x].rune, want[x]);
        canvas_release(&canvas);
    }
    runview_free(r);
}

T(a_layer_that_executes_every_token_is_always_on)
{
    struct runview *r = view_of(probes_bare);
    struct cells c = {.probe = runview_probe(r, 0)};
    t_eq(cells_fit(&c), 0);
    t_eq(cells_state(&c, 0, 3), CELL_ALWAYS_ON);
    t_eq(cells_state(&c, 7, 3), CELL_ALWAYS_ON);
    int seen[3] = {0};
    for (int t = 0; t < c.probe->tokens; t++)
        seen[cells_state(&c, 4, t)]++;
    t_true(seen[CELL_SKIP] > 0 && seen[CELL_RUN] > 0);
    t_eq(seen[CELL_ALWAYS_ON], 0);
    cells_release(&c);
    runview_free(r);
}

T(the_cursor_stays_inside_and_jumps_to_the_next_change)
{
    struct runview *r = view_of(probes_run);
    struct cells c = {.probe = runview_probe(r, 0), .token = 999, .layer = -3, .field = 77};
    t_eq(cells_fit(&c), 0);
    t_eq(c.token, PROBE_T - 1);
    t_eq(c.layer, 0);
    t_eq(c.field, 6);
    cells_go(&c, CELLS_JUMP_DOWN);
    t_true(c.layer > 1);
    t_true(cells_state(&c, c.layer, c.token) != cells_state(&c, c.layer - 1, c.token));
    c.is_upward = 1;
    int before = c.layer;
    cells_go(&c, CELLS_UP);
    t_eq(c.layer, before + 1);
    cells_go(&c, CELLS_RIGHT);
    t_eq(c.token, PROBE_T - 1);
    cells_release(&c);
    runview_free(r);
}

T(search_finds_text_that_spans_tokens)
{
    struct runview *r = view_of(probes_run);
    struct cells c = {.probe = runview_probe(r, 0)};
    t_true(cells_search(&c, "unbelievably", 1));
    t_eq(c.token, 18);
    t_true(cells_search(&c, "the", 1)); /* wraps */
    t_eq(c.token, 4);
    t_true(cells_search(&c, "the", -1));
    t_eq(c.token, 15);
    t_true(!cells_search(&c, "zebra", 1));
    runview_free(r);
}

T(a_selection_follows_the_newest_probe_until_held)
{
    struct runview *r = view_of(probes_run);
    struct pick k = {.text = -1};
    t_eq(pick_probe(&k, r)->step, 30);
    t_eq(pick_probe(&k, r)->index, 0);
    t_true(pick_time(&k, r, -1));
    t_true(k.is_held);
    t_eq(pick_probe(&k, r)->step, 20);
    struct pick_place at = pick_place(&k, r);
    t_eq(at.at, 2);
    t_eq(at.of, 3);
    t_eq(at.texts, 2);
    t_true(pick_time(&k, r, -1));
    t_true(!pick_time(&k, r, -1));
    t_true(pick_text(&k, r, 1));
    t_eq(pick_probe(&k, r)->index, 1);
    t_eq(pick_probe(&k, r)->step, 10);
    t_true(!pick_text(&k, r, 1));
    t_true(pick_time(&k, r, 1));
    t_true(pick_time(&k, r, 1));
    t_true(!k.is_held);
    for (int i = 0; i < PICK_MARKS_MAX; i++)
        t_true(pick_toggle(&k, i));
    t_true(!pick_toggle(&k, 99));
    t_true(pick_toggle(&k, 3));
    t_true(!pick_is_marked(&k, 3));
    runview_free(r);
}

T(pearson_reports_when_it_is_undefined)
{
    float x[] = {1, 2, 3, 4, NAN, 6}, y[] = {2, 4, 6, 8, 1, 12}, flat[] = {5, 5, 5, 5, 5, 5},
          z[] = {1, -1, 1, -1, 1, -1};
    size_t n;
    t_near(signals_pearson(x, y, 6, &n), 1, 1e-12);
    t_eq(n, 5);
    t_true(isnan(signals_pearson(x, flat, 6, &n)));
    t_eq(n, 5);
    t_true(isnan(signals_pearson(x, y, 2, &n)));
    t_eq(n, 2);
    t_near(signals_pearson(y, z, 6, &n), -15 / sqrt(83.5 * 6), 1e-7);
    float small[6]; /* r has no scale */
    for (int i = 0; i < 6; i++)
        small[i] = 1e-8F * y[i];
    t_near(signals_pearson(small, z, 6, &n), -15 / sqrt(83.5 * 6), 1e-6);
}

/* No cell outside the area changes, whatever bytes the tokens have. */
T(drawing_stays_inside_its_area_at_every_size_and_look)
{
    struct runview *r = view_of(probes_run);
    static const int sizes[][2] = {{1, 1},   {1, 40},  {3, 7},    {5, 20},   {9, 30},
                                   {12, 60}, {20, 78}, {22, 110}, {48, 198}, {2, 300}};
    for (size_t k = 0; k < DS_LEN(looks); k++) {
        for (size_t i = 0; i < DS_LEN(sizes); i++) {
            for (int wide = 0; wide <= CELLS_WIDE_MAX; wide++) {
                struct canvas canvas = {.look = looks[k]};
                struct cells c = {.probe = runview_probe(r, 0),
                                  .view = r,
                                  .token = 12,
                                  .layer = 5,
                                  .wide = wide,
                                  .field = (int)(i % 7)};
                t_eq(canvas_resize(&canvas, sizes[i][0] + 2, sizes[i][1] + 2), 0);
                area_fill(canvas_area(&canvas), '%', ink(ROLE_DIM));
                t_eq(cells_fit(&c), 0);
                cells_draw(area_inset(canvas_area(&canvas), 1, 1), &c);
                for (int y = 0; y < canvas.rows; y++)
                    for (int x = 0; x < canvas.cols; x++)
                        if (y == 0 || x == 0 || y == canvas.rows - 1 || x == canvas.cols - 1)
                            t_eq(canvas.cell[y * canvas.cols + x].rune, '%');
                cells_release(&c);
                canvas_release(&canvas);
            }
        }
    }
    runview_free(r);
}

T(a_click_selects_the_token_and_layer_under_it)
{
    struct runview *r = view_of(probes_run);
    struct canvas canvas = {.look = looks[1]};
    struct cells c = {.probe = runview_probe(r, 0), .view = r, .layer = 3};
    t_eq(canvas_resize(&canvas, 21, 78), 0);
    t_eq(cells_fit(&c), 0);
    cells_draw(canvas_area(&canvas), &c);
    struct event ev = {.kind = EVENT_MOUSE,
                       .action = MOUSE_PRESS,
                       .button = 1,
                       .y = c.at.text_y,
                       .x = c.at.text_x + 5};
    t_true(cells_event(&c, &ev));
    t_eq(c.token, 1); /* "The cat": the fifth cell is of " cat" */
    ev.y = c.at.map_y + 6 * c.at.height / c.at.per_row;
    ev.x = c.at.map_x + 4 * c.at.width;
    t_true(cells_event(&c, &ev));
    t_eq(c.token, 4);
    t_eq(c.layer, 6);
    ev.y = 500;
    t_true(!cells_event(&c, &ev));
    cells_release(&c);
    canvas_release(&canvas);
    runview_free(r);
}

static size_t frame_bytes(struct term *term, struct canvas *canvas, struct cells *c)
{
    struct str out = {0};
    struct err e = {0};
    canvas_clear(canvas);
    t_eq(cells_fit(c), 0);
    cells_draw(canvas_area(canvas), c);
    t_ok(term_render(term, canvas, &out, &e), &e);
    size_t n = out.len;
    str_release(&out);
    return n;
}

T(a_step_of_the_cursor_costs_at_most_150_bytes)
{
    struct term_options o = {"256", "braille", "xterm-256color"};
    struct runview *r = view_of(probes_run);
    struct canvas canvas = {0};
    struct cells c = {.probe = runview_probe(r, 0), .view = r, .has_focus = 1};
    struct err e = {0};
    struct term *term;
    char notice[160];
    struct theme theme;
    theme_default(&theme);
    t_ok(term_open(&term, &o, 22, 80, notice, &e), &e);
    term_look(term, &canvas.look);
    canvas.look.theme = &theme;
    t_eq(canvas_resize(&canvas, 22, 80), 0);
    frame_bytes(term, &canvas, &c);
    static const enum cells_move moves[] = {CELLS_RIGHT, CELLS_DOWN, CELLS_RIGHT, CELLS_DOWN,
                                            CELLS_RIGHT, CELLS_UP,   CELLS_LEFT};
    for (size_t i = 0; i < 3 * DS_LEN(moves); i++) {
        cells_go(&c, moves[i % DS_LEN(moves)]);
        c.is_moving = 1;
        size_t n = frame_bytes(term, &canvas, &c);
        t_truef(n <= 150, "step %zu: %zu bytes", i, n);
        c.is_moving = 0;
        n = frame_bytes(term, &canvas, &c);
        t_truef(n <= 900, "details after step %zu: %zu bytes", i, n);
    }
    cells_release(&c);
    canvas_release(&canvas);
    term_close(term);
    runview_free(r);
}
