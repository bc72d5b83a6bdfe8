/* The line chart: spikes, NaN, smoothing, ticks and drawing cost. */
#include "t.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "io/record.h"
#include "tui/chart_scan.h"
#include "tui/term.h"

static struct theme theme;

static void series_make(struct series *s, size_t n)
{
    memset(s, 0, sizeof *s);
    s->name = mem_strdup("loss");
    s->n = s->cap = n;
    s->step = mem_alloc(n, sizeof *s->step);
    s->value = mem_alloc(n, sizeof *s->value);
    s->is_old = mem_alloc(n, 1);
    for (size_t i = 0; i < n; i++) {
        s->step[i] = (int64_t)i;
        s->value[i] = 2 + 0.1 * sin((double)i / 500);
    }
}

static void series_drop(struct series *s)
{
    mem_free(s->name);
    mem_free(s->step);
    mem_free(s->value);
    mem_free(s->is_old);
}

static struct canvas draw(const struct series *s, const struct smooth *smooth, int rows, int cols,
                          double x0, double x1)
{
    struct canvas c = {.look = {GLYPHS_BRAILLE, 256, &theme}};
    theme_default(&theme);
    t_true(canvas_resize(&c, rows, cols) == 0);
    struct chart chart = chart_new("loss");
    chart.curve[chart.curves++] =
        (struct curve){.series = s, .smooth = smooth, .role = ROLE_SERIES_0, .group = -1};
    chart.x0 = x0;
    chart.x1 = x1;
    chart_draw(canvas_area(&c), &chart, NULL);
    return c;
}

static int count(const struct canvas *c, uint32_t rune)
{
    int n = 0;
    for (int i = 0; i < c->rows * c->cols; i++)
        n += c->cell[i].rune == rune;
    return n;
}

/* Number of dots of the curve in a column of cells. */
static int column_height(const struct canvas *c, int x)
{
    int n = 0;
    for (int y = 1; y < c->rows - 1; y++)
        n += c->cell[y * c->cols + x].rune > 0x2800 && c->cell[y * c->cols + x].rune < 0x2900;
    return n;
}

T(a_single_spike_in_a_million_points_is_visible_at_every_zoom)
{
    enum { N = 1000000, AT = 700003 };
    struct series s;
    series_make(&s, N);
    s.value[AT] = 100;
    for (double half = N; half >= 50; half /= 7) {
        double x0 = AT - half < 0 ? 0 : AT - half, x1 = AT + half > N ? N : AT + half;
        struct canvas c = draw(&s, NULL, 8, 40, x0, x1);
        int tallest = 0;
        for (int x = 7; x < 40; x++)
            tallest = column_height(&c, x) > tallest ? column_height(&c, x) : tallest;
        t_truef(count(&c, 0x25B4) >= 1 || tallest >= 4, "spike lost in +-%g", half);
        canvas_release(&c);
    }
    series_drop(&s);
}

T(nan_is_marked_and_the_curve_continues)
{
    struct series s;
    struct smooth smooth = {0};
    series_make(&s, 1000);
    s.value[500] = (double)NAN;
    s.nonfinite = 1;
    t_true(smooth_update(&smooth, &s, 0.9) == 0);
    t_true(isfinite(smooth.v[500]) && isfinite(smooth.v[999]));
    struct canvas c = draw(&s, &smooth, 8, 40, 0, 0);
    t_true(count(&c, 0xD7) >= 2); /* in the plot and in the title */
    t_true(column_height(&c, 30) > 0);
    canvas_release(&c);
    smooth_release(&smooth);
    series_drop(&s);
}

/* The title row says what the values without a place are. */
T(infinite_values_are_not_called_nan)
{
    static const struct {
        size_t infinite;
        const char *text;
    } want[] = {{0, "\xC3\x97"
                    "2 NaN"},
                {1, "\xC3\x97"
                    "2 NaN/Inf"},
                {2, "\xC3\x97"
                    "2 Inf"}};
    for (size_t k = 0; k < DS_LEN(want); k++) {
        struct series s;
        series_make(&s, 10);
        s.nonfinite = 2;
        s.infinite = want[k].infinite;
        struct canvas c = draw(&s, NULL, 8, 40, 0, 0);
        int n = utf8_cells(want[k].text, strlen(want[k].text));
        for (int x = 0; x < n; x++) {
            uint32_t rune = x == 0 ? 0xD7 : (uint32_t)(unsigned char)want[k].text[x + 1];
            t_eq(c.cell[c.cols - n + x].rune, rune);
        }
        canvas_release(&c);
        series_drop(&s);
    }
}

T(smoothing_is_unbiased_from_the_first_point)
{
    struct series s;
    struct smooth m = {0};
    series_make(&s, 10);
    for (int i = 0; i < 10; i++)
        s.value[i] = 7;
    t_true(smooth_update(&m, &s, 0.99) == 0);
    for (int i = 0; i < 10; i++)
        t_near(m.v[i], 7, 1e-12);
    smooth_release(&m);
    series_drop(&s);
}

/* Ten points near 1, ten near 100 that a resume superseded, then two of the new ones. */
T(smoothing_goes_on_from_where_a_resume_did)
{
    enum { OLD = 10, N = 22 };
    struct series s;
    struct smooth m = {0}, whole = {0};
    series_make(&s, N);
    for (int i = 0; i < N; i++)
        s.value[i] = i >= OLD && i < 2 * OLD ? 100 : 1;
    s.n = 2 * OLD;
    t_true(smooth_update(&m, &s, 0.9) == 0);
    t_true(m.v[s.n - 1] > 50);
    memset(s.is_old + OLD, 1, OLD);
    s.n = N;
    t_true(smooth_update(&m, &s, 0.9) == 0 && smooth_update(&whole, &s, 0.9) == 0);
    for (int i = 2 * OLD; i < N; i++) {
        t_near(m.v[i], 1, 1e-12);
        t_near(whole.v[i], 1, 1e-12);
    }
    smooth_release(&m);
    smooth_release(&whole);
    series_drop(&s);
}

T(smoothing_starts_again_when_points_were_sorted)
{
    struct series s;
    struct smooth m = {0};
    series_make(&s, 4);
    s.n = 3;
    s.step[2] = 9;
    s.value[2] = 1000;
    t_true(smooth_update(&m, &s, 0.5) == 0);
    s.n = 4; /* step 2 came after step 9 */
    s.step[2] = 2;
    s.value[2] = 2;
    s.step[3] = 9;
    s.value[3] = 1000;
    t_true(smooth_update(&m, &s, 0.5) == 0);
    t_true(m.v[2] < 3 && m.v[3] > 100);
    smooth_release(&m);
    series_drop(&s);
}

/* Built from records, as in a run, so that the series has its index. */
static struct runview *record_run(int n, int spike)
{
    struct runview *run = runview_new();
    struct record *r = record_new();
    struct str frame = {0};
    t_true(run && r);
    for (int i = 0; i < n; i++) {
        struct value body;
        uint64_t seq;
        struct err e = {0};
        record_begin(r, "metric", i, 1000.0 + i);
        record_num(r, "loss", i == spike ? 100 : 2 + 0.1 * sin(i / 500.0));
        str_reset(&frame);
        t_ok(record_end(r, (uint64_t)i + 1, &frame, &e), &e);
        t_true(record_parse(frame.p, frame.len, &seq, &body, &e) > 0);
        runview_take(run, body);
    }
    str_release(&frame);
    record_free(r);
    return run;
}

T_SECONDS(a_million_points_are_drawn_in_milliseconds, 120)
{
    double start = clock_mono();
    struct runview *run = record_run(1000000, 700003);
    const struct series *s = runview_series(run, "loss");
    t_true(s && s->n == 1000000);
    printf("  10^6 records made, parsed and taken in %.2f s\n", clock_mono() - start);
    start = clock_mono();
    struct canvas c = draw(s, NULL, 24, 80, 0, 0); /* builds the pyramid */
    printf("  10^6 points: first drawing at 80x24 in %.2f ms\n", (clock_mono() - start) * 1000);
    t_true(count(&c, 0x25B4) >= 1 || column_height(&c, 7 + 73 * 7 / 10) >= 4);
    canvas_release(&c);
    start = clock_mono();
    for (int i = 0; i < 10; i++) {
        c = draw(s, NULL, 24, 80, 0, 0);
        canvas_release(&c);
    }
    printf("  10^6 points: one redraw at 80x24 in %.2f ms\n", (clock_mono() - start) * 100);
    runview_free(run);
}

T(superseded_points_do_not_zigzag)
{
    struct series s;
    struct scan_segment *segment;
    series_make(&s, 30);
    for (int i = 10; i < 20; i++)
        s.is_old[i] = 1;
    for (int i = 20; i < 30; i++)
        s.step[i] = i - 10;
    t_eq(scan_segments(&s, &segment), 3);
    struct curve c = {.series = &s, .group = -1};
    struct scan_column now = scan_range(&c, AXIS_STEP, 12, 13, segment, 3, 0);
    t_eq(now.n, 1);
    t_near(now.last, s.value[22], 0);
    mem_free(segment);
    series_drop(&s);
}

T(a_curve_is_drawn_to_its_end_after_any_number_of_resumes)
{
    struct series s;
    series_make(&s, 1000);
    for (int i = 0; i < 900; i++) {
        s.is_old[i] = i % 9 == 8;
        s.step[i] = i - i / 9;
    }
    for (int i = 900; i < 1000; i++)
        s.step[i] = i - 100;
    struct canvas c = draw(&s, NULL, 8, 40, 0, 0);
    for (int x = 8; x < 38; x++)
        t_truef(column_height(&c, x) > 0, "nothing in column %d", x);
    struct curve u = {.series = &s, .group = -1};
    t_eq(chart_index_at(&u, AXIS_STEP, 890), 990);
    canvas_release(&c);
    series_drop(&s);
}

/* Cells of a role in a column of the plot; *row is that of the last one. */
static int cells_of(const struct canvas *c, enum role r, int x, int *row)
{
    int n = 0;
    for (int y = 1; y < c->rows - 1; y++) {
        const struct cell *at = &c->cell[y * c->cols + x];
        if (at->rune > 0x2800 && at->rune < 0x2900 && at->fg == (int32_t)r) {
            n++;
            *row = y;
        }
    }
    return n;
}

/* Three seeds of the constants 1, 2 and 3; their points are at other steps, as over wall time. */
static struct canvas draw_seeds(struct series *s, const size_t *points)
{
    struct canvas c = {.look = {GLYPHS_BRAILLE, 256, &theme}};
    theme_default(&theme);
    t_true(canvas_resize(&c, 16, 80) == 0);
    struct chart chart = chart_new("loss");
    for (int k = 0; k < 3; k++) {
        series_make(&s[k], points[k]);
        for (size_t i = 0; i < points[k]; i++) {
            s[k].step[i] = 20 * (int64_t)i + 7 * k;
            s[k].value[i] = 1 + k;
        }
        chart.curve[chart.curves++] =
            (struct curve){.series = &s[k], .role = ROLE_SERIES_0, .group = 0};
    }
    chart_draw(canvas_area(&c), &chart, NULL);
    return c;
}

T(the_mean_of_seeds_is_that_of_all_wherever_their_points_are)
{
    struct series s[3];
    struct canvas c = draw_seeds(s, (size_t[]){40, 40, 40});
    for (int x = 8, row = 0, first = 0; x < 70; x++) {
        t_truef(cells_of(&c, ROLE_SERIES_0, x, &row) == 1, "the mean of column %d", x);
        first = first ? first : row;
        t_eq(row, first);
    }
    canvas_release(&c);
    for (int k = 0; k < 3; k++)
        series_drop(&s[k]);
}

T(letters_name_the_curves_where_there_are_no_colours)
{
    for (int colours = 0; colours <= 256; colours += 256) {
        struct series s[2];
        struct canvas c = {.look = {GLYPHS_BRAILLE, colours, &theme}};
        struct chart chart = chart_new("loss");
        theme_default(&theme);
        t_true(canvas_resize(&c, 8, 40) == 0);
        for (int k = 0; k < 2; k++) { /* the same curve twice: the letters are side by side */
            series_make(&s[k], 100);
            chart.curve[chart.curves++] = (struct curve){
                .series = &s[k], .role = ROLE_SERIES_0, .letter = (char)('A' + k), .group = -1};
        }
        chart_draw(canvas_area(&c), &chart, NULL);
        t_eq(count(&c, 'A'), colours == 0);
        t_eq(count(&c, 'B'), colours == 0);
        canvas_release(&c);
        for (int k = 0; k < 2; k++)
            series_drop(&s[k]);
    }
}

T(seeds_go_on_by_themselves_where_one_has_ended)
{
    struct series s[3];
    struct canvas c = draw_seeds(s, (size_t[]){40, 20, 40});
    int row;
    t_eq(cells_of(&c, ROLE_SERIES_0, 30, &row), 1);
    for (int x = 46; x < 70; x++) {
        t_eq(cells_of(&c, ROLE_SERIES_0, x, &row), 0);
        t_eq(cells_of(&c, ROLE_DIM, x, &row), 2);
    }
    canvas_release(&c);
    for (int k = 0; k < 3; k++)
        series_drop(&s[k]);
}

T(ticks_are_nice_and_inside)
{
    double t[16];
    int n = ticks_nice(0.13, 0.97, 0, t, 5);
    t_true(n >= 3 && n <= 5);
    t_near(t[1] - t[0], 0.2, 1e-12);
    n = ticks_nice(0.5, 2000, 1, t, 8);
    t_near(t[0], 1, 1e-12);
    t_near(t[n - 1], 1000, 1e-9);
    n = ticks_nice(1.1, 1.3, 1, t, 5); /* less than a decade, without 1, 2 or 5 in it */
    t_true(n >= 3 && t[0] >= 1.1 && t[n - 1] <= 1.3);
    t_near(t[1] - t[0], 0.05, 1e-12);
    struct axis_labels labels;
    axis_labels(&labels, 1.1e6, 1.3e6, 1, 5, 6);
    t_str(labels.label[0], "1.10M");
    t_eq(ticks_nice(1, 1, 0, t, 5), 0);
    t_eq(ticks_nice((double)NAN, 1, 0, t, 5), 0);
    t_eq(ticks_nice(0, (double)INFINITY, 0, t, 5), 0);
    char text[24];
    num_print(text, (double)NAN);
    t_str(text, "NaN");
    t_str(num_print(text, 0.00125), "0.00125"); /* a learning rate */
    t_str(num_print(text, 0.0125), "0.0125");
    t_str(num_print(text, 0.000125), "1.25e-4");
}

/* The part of a label after its digits, and the number of its decimals. */
static const char *label_parts(const char *text, int *decimals)
{
    const char *digits = text + (*text == '-'), *end = digits + strspn(digits, "0123456789.");
    const char *dot = memchr(digits, '.', (size_t)(end - digits));
    *decimals = dot ? (int)(end - dot) - 1 : 0;
    return end;
}

static double label_value(const char *text)
{
    char *end;
    double v = strtod(text, &end);
    const char *p = *end ? strchr("kMGTP", *end) : NULL;
    return p ? v * pow(1e3, (double)(p - "kMGTP" + 1)) : v;
}

T(labels_of_an_axis_share_precision_and_unit_and_are_never_cut)
{
    static const double lo[] = {0,     -1, 0.13,  5100,   5.2301, -3.6e-4,
                                1e-12, 0,  1.2e6, -2e300, 0.9999},
                        span[] = {1, 2, 0.84, 230, 1e-4, 7e-4, 6e-12, 3e-4, 4e6, 4e300, 2e-4};
    for (size_t i = 0; i < DS_LEN(lo); i++)
        for (int max = 1; max <= 12; max++) {
            struct axis_labels t;
            axis_labels(&t, lo[i], lo[i] + span[i], 0, max, AXIS_COLS);
            t_truef(t.n <= max && (t.n > 0 || max < 3), "range %zu: %d of %d ticks", i, t.n, max);
            if (t.n > 1 && t.label[1][0] == '+')
                continue; /* below */
            int decimals = -1;
            const char *suffix = "";
            for (int k = 0; k < t.n; k++) {
                int d;
                const char *s = label_parts(t.label[k], &d);
                t_truef(strlen(t.label[k]) <= AXIS_COLS, "\"%s\" is too wide", t.label[k]);
                t_truef(fabs(label_value(t.label[k]) - t.at[k]) <= 1e-6 * span[i],
                        "\"%s\" labels %g", t.label[k], t.at[k]);
                if (k > 1)
                    t_near(t.at[k] - t.at[k - 1], t.at[1] - t.at[0], 1e-6 * span[i]);
                if (t.at[k] == 0 && strcmp(t.label[k], "0") == 0)
                    continue;
                t_truef(decimals < 0 || (d == decimals && strcmp(s, suffix) == 0),
                        "\"%s\" does not match \"%s\"", t.label[k], t.label[k - 1]);
                decimals = d;
                suffix = s;
            }
        }
    struct axis_labels t;
    axis_labels(&t, 0, 1.6e6, 0, 5, AXIS_COLS);
    t_str(t.label[1], "0.5M");
    t_str(t.label[2], "1.0M");
    axis_labels(&t, 1e-5, 0.2, 1, 6, AXIS_COLS);
    t_str(t.label[0], "1e-5");
    t_str(t.label[t.n - 1], "1e-1");
}

T(labels_that_differ_in_digits_without_room_are_distances_from_the_first)
{
    static const double lo[] = {1.234e9, 1e6,      2.3,     -1.5e6,    0.9999,
                                123456,  6.222e-4, -0.8589, -2.975e11, -4.82e-12},
                        span[] = {1e4, 5, 5e-6, 3, 2e-5, 0.5, 1e-7, 1e-4, 1e7, 3e-14};
    static const char *const first[] = {"1.23G",  "1.00M",  "2.300",  "-1.50M", "0.9999",
                                        "123.5k", "6.2e-4", "-0.859", "-3e11",  "-5e-12"};
    for (size_t i = 0; i < DS_LEN(lo); i++)
        for (int max = 3; max <= 12; max++) {
            struct axis_labels t;
            axis_labels(&t, lo[i], lo[i] + span[i], 0, max, AXIS_COLS);
            t_truef(t.n >= 2 && t.n <= max, "range %zu: %d of %d ticks", i, t.n, max);
            t_str(t.label[0], first[i]);
            for (int k = 0; k < t.n; k++) {
                t_truef(strlen(t.label[k]) <= AXIS_COLS, "\"%s\" is too wide", t.label[k]);
                t_true(t.at[k] >= lo[i] - 1e-6 * span[i]);
                t_true(t.at[k] <= lo[i] + span[i] * (1 + 1e-6));
                t_truef(k == 0 ||
                            (t.label[k][0] == '+' &&
                             fabs(label_value(t.label[k]) - (t.at[k] - t.at[0])) <= 1e-6 * span[i]),
                        "\"%s\" labels %.12g", t.label[k], t.at[k]);
            }
        }
}

T(the_y_range_includes_the_reference_on_either_axis)
{
    static const double reference[] = {0.5, 0.9, 3};
    for (int is_log = 0; is_log <= 1; is_log++)
        for (size_t i = 0; i < DS_LEN(reference); i++) {
            struct chart chart = chart_new("compute");
            double lows[] = {0.75, 0.8}, highs[] = {1, 0.9};
            chart.is_log_y = is_log;
            chart.reference = reference[i];
            struct scan_axis a = scan_y_axis(&chart, lows, highs, 2);
            t_eq(a.is_log, is_log);
            t_truef(a.lo <= reference[i] && a.hi >= reference[i], "%g in %g to %g", reference[i],
                    a.lo, a.hi);
            t_true(a.lo <= 0.75 && a.hi >= 1);
        }
    struct chart chart = chart_new("x");
    double low = 2, high = 3;
    chart.is_log_y = 1;
    chart.reference = -1; /* not on a logarithmic axis */
    t_true(scan_y_axis(&chart, &low, &high, 1).lo > 1);
}

T(x_range_grows_in_steps)
{
    struct series s;
    series_make(&s, 1030);
    struct chart chart = chart_new("x");
    chart.curve[chart.curves++] = (struct curve){.series = &s, .group = -1};
    double first = scan_x_axis(&chart).hi;
    s.n -= 3;
    t_near(scan_x_axis(&chart).hi, first, 0);
    t_true(first >= 1029 && first < 1029 * 1.13);
    series_drop(&s);
}

T(labels_that_share_a_row_do_not_write_over_each_other)
{
    struct series s;
    series_make(&s, 20);
    for (int i = 0; i < 20; i++)
        s.value[i] = 0;
    for (int rows = 3; rows <= 6; rows++) {
        struct canvas c = draw(&s, NULL, rows, 40, 0, 20);
        for (int y = 1; y < rows - 1; y++) {
            char label[8] = "";
            for (int x = 0; x < 6; x++)
                label[x] = (char)c.cell[y * c.cols + x].rune;
            t_truef(strstr(label, "-0.0") == NULL, "%d rows: %s", rows, label);
        }
        canvas_release(&c);
    }
    series_drop(&s);
}

T(degenerate_series_are_drawn_safely)
{
    static const double odd[][4] = {{0, 0, 0, 0},
                                    {1e308, -1e308, 1e308, 0},
                                    {5, 5, 5, 5},
                                    {-1, -2, -3, -4},
                                    {(double)NAN, (double)NAN, (double)NAN, (double)NAN},
                                    {1e-308, 2e-308, 3e-308, 0},
                                    {(double)INFINITY, -(double)INFINITY, 1, 2}};
    for (size_t k = 0; k < DS_LEN(odd); k++) {
        struct series s;
        series_make(&s, 4);
        memcpy(s.value, odd[k], sizeof odd[k]);
        s.step[3] = INT64_MAX;
        for (int size = 1; size < 30; size += 4) {
            struct canvas c = draw(&s, NULL, size, 2 * size, 0, 0);
            canvas_release(&c);
        }
        series_drop(&s);
    }
}

T(terminals_get_the_entry_they_can_use)
{
    struct term_choice c;
    term_choose(&c, "xterm-256color", NULL, NULL, NULL);
    t_true(c.colours == 256 && strcmp(c.entry, "ds-xterm-256") == 0);
    term_choose(&c, "tmux-256color", "truecolor", NULL, NULL);
    t_true(c.colours == 1 << 24 && strcmp(c.entry, "ds-tmux-direct") == 0);
    term_choose(&c, "xterm-kitty", NULL, NULL, "1");
    t_eq(c.colours, 0);
    term_choose(&c, "vt100", "truecolor", "truecolor", NULL);
    t_true(c.colours == 0 && c.memory == NULL);
    term_choose(&c, NULL, NULL, NULL, NULL);
    t_eq(c.colours, 0);
    t_eq(glyphs_choose(NULL, 0, "xterm"), GLYPHS_ASCII);
    t_eq(glyphs_choose(NULL, 1, "linux"), GLYPHS_SHADES);
    t_eq(glyphs_choose("braille", 0, "dumb"), GLYPHS_BRAILLE);
}

T(the_mouse_stays_off_where_it_would_hold_escape_back)
{
    t_eq(term_holds_escape("screen-256color", "123.pts-1.host", NULL), 1);
    t_eq(term_holds_escape("screen-256color", "123.pts-1.host", "/tmp/tmux-0/default,1,0"), 0);
    t_eq(term_holds_escape("screen-256color", NULL, NULL), 0); /* tmux names itself so, too */
    t_eq(term_holds_escape("xterm", "123.pts-1.host", NULL), 0);
}

T(terminals_with_one_byte_per_cell_get_ascii_and_no_private_modes)
{
    static const struct {
        const char *term;
        int colours, is_plain, can_draw;
        enum glyphs glyphs;
    } row[] = {
        {"ansi", 8, 1, 1, GLYPHS_ASCII},
        {"ansi-m", 0, 1, 1, GLYPHS_ASCII},
        {"pcansi", 8, 1, 1, GLYPHS_ASCII},
        {"vt100", 0, 1, 1, GLYPHS_ASCII},
        {"vt220", 0, 1, 1, GLYPHS_ASCII},
        {"vt320", 0, 1, 1, GLYPHS_ASCII},
        {"dumb", 0, 1, 0, GLYPHS_ASCII},
        {"unknown", 0, 1, 0, GLYPHS_ASCII},
        {"linux", 8, 0, 1, GLYPHS_SHADES},
        {"linux-m", 0, 0, 1, GLYPHS_SHADES},
        {"xterm-mono", 0, 0, 1, GLYPHS_BRAILLE},
        {"xterm", 16, 0, 1, GLYPHS_BRAILLE},
        {"vte-256color", 256, 0, 1, GLYPHS_BRAILLE},
        {"screen-256color", 256, 0, 1, GLYPHS_BRAILLE},
    };
    struct term_choice c;
    for (size_t i = 0; i < DS_LEN(row); i++) {
        term_choose(&c, row[i].term, NULL, NULL, NULL);
        t_truef(c.colours == row[i].colours, "%s: %d colours", row[i].term, c.colours);
        t_truef(term_is_plain(row[i].term) == row[i].is_plain, "%s", row[i].term);
        t_truef(term_can_draw(row[i].term) == row[i].can_draw, "%s", row[i].term);
        t_truef(glyphs_choose(NULL, 1, row[i].term) == row[i].glyphs, "%s", row[i].term);
    }
    t_true(!term_can_draw("") && !term_can_draw(NULL));
    term_choose(&c, "ansi", "truecolor", "truecolor", NULL);
    t_eq(c.colours, 8);
    t_eq(term_console_rune(0x2713), '+');
    t_eq(term_console_rune(0x2588), 0x2588);
}

static const struct tab thirteen[] = {
    {"Home", 0},    {"Monitor", 0}, {"Depth map", 5}, {"Stepper", 4}, {"Signals", 0},
    {"FLOPs", 0},   {"Compare", 4}, {"Timeline", 4},  {"Pareto", 0},  {"Generate", 0},
    {"Figures", 0}, {"Log", 0},     {"Help", 0}};
enum { TABS = (int)DS_LEN(thirteen) };

T(tabs_never_overlap_nor_leave_the_bar)
{
    int x[TABS], width[TABS];
    for (int cols = 8; cols < 220; cols++)
        for (int current = 0; current < TABS; current++) {
            int end = 0;
            tabs_fit(thirteen, TABS, current, 9, cols, x, width);
            for (int i = 0; i < TABS; i++) {
                if (width[i] == 0)
                    continue;
                t_truef(x[i] >= end && x[i] + width[i] <= cols, "%d columns, tab %d", cols, i);
                end = x[i] + width[i] + 1;
            }
        }
}

static void titles_are(const int *width, int is_brief, int shown)
{
    for (int i = 0; i < TABS; i++) {
        int len =
            is_brief && thirteen[i].brief ? thirteen[i].brief : (int)strlen(thirteen[i].title);
        t_eq(width[i], i < shown ? len + (i < 9 ? 2 : 0) : 0);
    }
}

T(tabs_show_titles_then_brief_ones_then_cut_ones_then_numbers)
{
    int x[TABS], width[TABS];
    tabs_fit(thirteen, TABS, 2, 9, 200, x, width);
    titles_are(width, 0, TABS);
    t_eq(x[1], width[0] + 2);
    tabs_fit(thirteen, TABS, 2, 9, 118, x, width); /* narrower gaps first */
    titles_are(width, 0, TABS);
    t_eq(x[1], width[0] + 1);
    tabs_fit(thirteen, TABS, 2, 9, 100, x, width);
    titles_are(width, 1, TABS);
    tabs_fit(thirteen, TABS, 2, 9, 96, x, width); /* not all: those without a number leave */
    titles_are(width, 0, 9);
    tabs_fit(thirteen, TABS, 7, 9, 78, x, width);
    titles_are(width, 1, 9);
    t_true(x[8] + width[8] <= 74);
    tabs_fit(thirteen, TABS, 2, 9, 68, x, width);
    for (int k = 0; k < 9; k++)
        t_true(width[k] >= 2 + 3 && width[k] <= 2 + 5);
    t_eq(width[1], 2 + 4);
    t_eq(width[9], 0);
    tabs_fit(thirteen, TABS, 2, 9, 50, x, width);
    t_eq(width[0], 1);
    t_eq(width[2], 2 + 5);
    t_eq(width[8], 1);
    t_eq(width[9], 0); /* no number and no title: only in the picker */
    t_true(x[8] + 1 + 4 <= 50);
    tabs_fit(thirteen, TABS, 9, 9, 50, x, width);
    t_eq(width[9], 8); /* unless it is the current one */
}

T(a_single_point_has_one_tick)
{
    struct axis_labels t;
    axis_labels(&t, 60, 60, 0, 5, AXIS_COLS);
    t_eq(t.n, 1);
    t_str(t.label[0], "60");
    axis_labels(&t, 1234567, 1234567, 1, 5, AXIS_COLS);
    t_eq(t.n, 1);
    t_str(t.label[0], "1.23M");
}
