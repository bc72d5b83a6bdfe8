/* Figures from synthetic records: their errors, and that their bytes are reproducible. */
#include "t.h"

#include "base/fs.h"
#include "base/mem.h"
#include "figures/figure.h"
#include "figures/glyphs.h"
#include "figures/png_chunks.h"
#include "screens/mixtures.h"
#include "test_fig_fixture.h"

static struct runview *opened[64];
static struct figure_run runs[64];
static int count;
static char names[64][64];

static void add(struct fix f, const char *name)
{
    opened[count] = fix_open(&f, name);
    t_truef(opened[count] != NULL, "fixture %s", name);
    snprintf(names[count], sizeof names[count], "%s", name);
    runs[count] = (struct figure_run){.view = opened[count], .path = names[count]};
    count++;
}

/* A mixture of experts. */
static void add_mixture(int flags)
{
    const struct mixture m = {MIX_LAYERS, MIX_EXPERTS, 400, 100, flags};
    struct fixture f;
    t_true(fixture_begin(&f));
    mix_run(&f, &m);
    opened[count] = fixture_view(&f);
    struct str bytes = fixture_end(&f);
    t_true(opened[count] && bytes.len > 0);
    str_release(&bytes);
    str_copy(names[count], sizeof names[count], "mixture");
    runs[count] = (struct figure_run){.view = opened[count], .path = names[count]};
    count++;
}

static void clear(void)
{
    for (int i = 0; i < count; i++)
        runview_free(opened[i]);
    count = 0;
}

/* 2 budgets and 2 depths, 3 seeds each. */
static void add_pareto(const char *dir)
{
    char name[64];
    for (int seed = 0; seed < 3; seed++) {
        snprintf(name, sizeof name, "edp-low-%d", seed);
        add(fix_edp(dir, 0.5, seed), name);
        snprintf(name, sizeof name, "edp-high-%d", seed);
        add(fix_edp(dir, 0.8, seed), name);
        snprintf(name, sizeof name, "dense-8-%d", seed);
        add(fix_dense(dir, 8, seed), name);
        snprintf(name, sizeof name, "dense-12-%d", seed);
        add(fix_dense(dir, 12, seed), name);
    }
}

static void add_ablation(const char *dir, int steps_of_second)
{
    char name[64];
    for (int seed = 0; seed < 2; seed++) {
        struct fix f = fix_edp(dir, 0.65, seed);
        snprintf(name, sizeof name, "control-%d", seed);
        add(f, name);
        f.ablation = "first_order";
        f.loss += 0.05;
        f.steps = steps_of_second;
        snprintf(name, sizeof name, "first-%d", seed);
        add(f, name);
    }
}

static struct figure draw(const char *name)
{
    struct figure f;
    struct figure_options o;
    struct err e = {0};
    figure_options_default(&o);
    o.version = "test";
    t_ok(figure_make(&f, name, runs, count, &o, &e), &e);
    return f;
}

static void refuses(const char *name, const char *part)
{
    struct figure f;
    struct figure_options o;
    struct err e = {0};
    figure_options_default(&o);
    t_fails(figure_make(&f, name, runs, count, &o, &e), &e, DS_ENOTFOUND, part);
    char want[64];
    snprintf(want, sizeof want, "figure %s: ", name);
    t_truef(strncmp(e.text, want, strlen(want)) == 0, "%s", e.text);
    t_true(strchr(e.text, '\n') == NULL);
}

T(each_missing_record_or_column_is_named)
{
    static const struct {
        const char *figure, *scalar, *column, *part;
    } row[] = {
        {"loss_flops", "loss", NULL, "run r: record 'eval' of task 'final' has no scalar 'loss'"},
        {"loss_flops", "flops_ratio", NULL, "no scalar 'flops_ratio'"},
        {"loss_time", "time_ratio", NULL, "no scalar 'time_ratio'"},
        {"layer_map", "map_positions", NULL, "no scalar 'map_positions'"},
        {"signal_depth", NULL, "signal",
         "run r: record 'sample' named 'val' has no column 'signal'"},
        {"signal_depth", NULL, "depth", "no column 'depth'"},
        {"entropy_depth", NULL, "entropy", "no column 'entropy'"},
        {"flops_hist", NULL, "flops", "no column 'flops'"},
        {"depth_needed", NULL, "needed", "no column 'needed'"},
    };
    const char *dir = t_tmpdir();
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        struct fix f = fix_edp(dir, 0.65, 0);
        f.drop_scalar = row[i].scalar;
        f.drop_column = row[i].column;
        add(f, "r");
        refuses(row[i].figure, row[i].part);
        clear();
    }
}

T(a_run_without_evaluation_sample_or_probe_is_refused)
{
    struct fix f = fix_edp(t_tmpdir(), 0.65, 0);
    f.no_eval = f.no_sample = f.no_probe = 1;
    add(f, "bare");
    refuses("loss_flops", "run bare: no record 'eval' of task 'final'");
    refuses("layer_map", "no record 'eval'");
    refuses("signal_depth", "run bare: no record 'sample' named 'val' (needs its column 'signal')");
    refuses("flops_hist", "no record 'sample'");
    refuses("routing_map", "run bare: no record 'probe'");
    struct figure d = draw("training");
    figure_release(&d);
    struct figure_options o;
    struct err e = {0};
    figure_options_default(&o);
    o.metric = "loss,perplexity";
    t_fails(figure_make(&d, "training", runs, count, &o, &e), &e, DS_ENOTFOUND,
            "no record 'metric' has 'perplexity'");
    clear();
}

T(a_mixture_is_drawn_from_its_loads_or_its_probes_and_names_what_is_missing)
{
    add(fix_edp(t_tmpdir(), 0.65, 0), "one");
    refuses("expert_load",
            "run one: no record 'matrix' named expert_load and no record 'probe' with "
            "the cell 'expert' of kind category");
    refuses("expert_map", "record 'probe' of text 'synth-0' has no cell 'expert' of kind category");
    clear();
    add_mixture(0);
    struct figure logged = draw("expert_load");
    t_true(strstr(str_text(&logged.caption), "7 layers with 16 experts") != NULL);
    t_true(strstr(str_text(&logged.caption), "7 experts without tokens in 7 layers") != NULL);
    t_true(strstr(str_text(&logged.caption), "Counted") == NULL);
    clear();
    add_mixture(MIX_NO_LOADS);
    struct figure counted = draw("expert_load");
    t_true(strstr(str_text(&counted.caption), "Counted from 2 probes with 48 tokens.") != NULL);
    t_true(strcmp(counted.data_hash, logged.data_hash) != 0);
    figure_release(&logged);
    figure_release(&counted);
    clear();
    add_mixture(MIX_INFERRED);
    struct figure map = draw("expert_map");
    t_true(strstr(str_text(&map.caption), "16 different experts") != NULL);
    t_true(strstr(str_text(&map.caption), "inferred") != NULL);
    figure_release(&map);
    clear();
}

T(ablations_need_a_matched_control)
{
    const char *dir = t_tmpdir();
    add(fix_edp(dir, 0.65, 0), "control");
    refuses("ablation_bars", "missing ablation");
    clear();
    struct fix f = fix_edp(dir, 0.65, 0);
    f.ablation = "first_order";
    add(f, "first");
    refuses("ablation_bars", "missing control");
    clear();
    add_ablation(dir, 200);
    refuses("ablation_bars",
            "differs from the control in train.steps (200, control 400): not a matched control");
    clear();
    add_ablation(dir, 0);
    struct figure d = draw("ablation_bars");
    t_truef(strstr(str_text(&d.caption), "n = 2 seeds per row") != NULL, "%s",
            str_text(&d.caption));
    figure_release(&d);
    clear();
}

T(a_row_of_ablations_has_only_seeds_of_one_experiment)
{
    const char *dir = t_tmpdir();
    struct fix f = fix_edp(dir, 0.65, 5);
    add_ablation(dir, 0);
    f.ablation = "";
    add(f, "unlabelled");
    struct figure d = draw("ablation_bars");
    t_truef(strstr(str_text(&d.caption), "n = 2 to 3 seeds per row") != NULL, "%s",
            str_text(&d.caption));
    figure_release(&d);
    f.ratio = 0.4;
    f.seed = 6;
    add(f, "lower");
    refuses("ablation_bars", "run lower: the ablation of run control-0 with other settings");
    clear();
    add_ablation(dir, 0);
    add(fix_edp(dir, 0.65, 1), "again");
    refuses("ablation_bars", "run again: duplicate: the settings and seed of run control-1");
    clear();
    add_ablation(dir, 0);
    f = fix_edp(dir, 1, 7);
    f.method = "dense";
    add(f, "dense");
    refuses("ablation_bars", "run dense: method dense, expected edp, as of the ablations");
    clear();
}

T(intervals_of_ablations_are_inside_their_panels)
{
    add_ablation(t_tmpdir(), 0);
    struct figure f = draw("ablation_bars");
    double all[4], frame[4];
    fix_extent(&f, all, frame);
    t_truef(all[0] >= frame[0] && all[2] <= frame[2] + 0.1, "%g to %g, panels %g to %g", all[0],
            all[2], frame[0], frame[2]);
    figure_release(&f);
    clear();
}

T(a_correlation_without_variance_is_reported_as_undefined)
{
    struct fix f = fix_edp(t_tmpdir(), 0.65, 0);
    f.flat_depth = 1;
    add(f, "flat");
    struct figure d = draw("entropy_depth");
    struct str text = {0};
    pen_list_print(d.list, &text);
    t_true(strstr(str_text(&text), "r undefined: no variance; n = 4,000") != NULL);
    str_release(&text);
    figure_release(&d);
    clear();
}

T(depth_of_one_looped_layer_is_in_iterations)
{
    for (int is_looped = 0; is_looped < 2; is_looped++) {
        struct fix f = fix_edp(t_tmpdir(), 0.65, 0);
        f.is_looped = is_looped;
        add(f, "r");
        struct figure d = draw("depth_needed");
        struct str text = {0};
        pen_list_print(d.list, &text);
        t_true(strstr(str_text(&text),
                      is_looped ? "Depth used (iterations)" : "Depth used (layers)") != NULL);
        str_release(&text);
        figure_release(&d);
        d = draw("flops_hist");
        t_true(strstr(str_text(&d.caption), is_looped ? "the width of one iteration."
                                                      : "the width of one layer.") != NULL);
        figure_release(&d);
        clear();
    }
}

/* Where all cells of a layer are, and executed, it is always on. */
T(cells_that_no_router_decided_are_forced)
{
    static const char *const word[3] = {"executed", "\"forced", "\"always on"};
    char hash[3][65];
    for (int k = 0; k < 3; k++) {
        struct fix f = fix_edp(t_tmpdir(), 0.65, 0);
        f.early = k == 2;
        f.late = 0; /* the run names no other layer */
        f.has_forced = k > 0;
        add(f, "r");
        struct figure d = draw("routing_map");
        struct str text = {0};
        pen_list_print(d.list, &text);
        for (int i = 1; i < 3; i++)
            t_eq(strstr(str_text(&text), word[i]) != NULL, i == k);
        str_copy(hash[k], sizeof hash[0], d.data_hash);
        str_release(&text);
        figure_release(&d);
        clear();
    }
    t_true(strcmp(hash[0], hash[1]) != 0);
}

/* The cost of a dense model differs by position alone: 48 costs, equally frequent. */
T(costs_of_a_constant_depth_have_one_mode_and_even_bins)
{
    struct fix f = fix_dense(t_tmpdir(), 12, 0);
    struct str text = {0};
    double x, y, w, h, least = 1e9, most = 0, bars = 0, top = 1e9;
    int points = 0;
    f.flat_depth = 1;
    add(f, "flat");
    struct figure d = draw("flops_hist");
    t_truef(strstr(str_text(&d.caption), "unimodality not rejected") != NULL, "%s",
            str_text(&d.caption));
    t_true(strstr(str_text(&d.caption), "the width of one bin.") != NULL);
    pen_list_print(d.list, &text);
    for (const char *at = str_text(&text); at; at = strchr(at, '\n'), at += at != NULL)
        if (sscanf(at, "rect %lf %lf %lf %lf", &x, &y, &w, &h) == 4) {
            least = fmin(least, h);
            most = fmax(most, h);
            bars = y;
        }
    t_truef(most > 0 && least > 0.9 * most, "bars from %g to %g", least, most);
    for (const char *at = str_text(&text); at; at = strchr(at, '\n'), at += at != NULL) {
        points = sscanf(at, "line %lf %lf", &x, &y) == 2 ? points + 1 : 0;
        top = points > 2 ? fmin(top, y) : top; /* of the density */
    }
    t_truef(fabs(top - bars) < 0.05 * most, "the density is at %g, the bars are at %g", top, bars);
    str_release(&text);
    figure_release(&d);
    clear();
}

T(a_model_of_one_layer_has_figures_of_layers)
{
    add(fix_dense(t_tmpdir(), 1, 0), "one");
    static const char *const name[] = {"capacity_layer", "layer_skip", "layer_map"};
    for (size_t i = 0; i < sizeof name / sizeof *name; i++) {
        struct figure d = draw(name[i]);
        figure_release(&d);
    }
    clear();
}

T(wrong_names_and_options_are_usage_errors)
{
    struct figure f;
    struct figure_options o;
    struct err e = {0};
    add(fix_edp(t_tmpdir(), 0.65, 0), "r");
    figure_options_default(&o);
    t_fails(figure_make(&f, "los_flops", runs, 1, &o, &e), &e, DS_EUSAGE,
            "did you mean loss_flops?");
    t_fails(figure_make(&f, "training", runs, 0, &o, &e), &e, DS_EUSAGE, "at least one run");
    o.venue = "vogue";
    t_fails(figure_make(&f, "training", runs, 1, &o, &e), &e, DS_EUSAGE, "unknown venue \"vogue\"");
    o.venue = "icmll";
    t_fails(figure_make(&f, "training", runs, count, &o, &e), &e, DS_EUSAGE, "did you mean icml?");
    o.venue = NULL;
    o.theme = "no-such";
    t_fails(figure_make(&f, "training", runs, 1, &o, &e), &e, DS_ENOTFOUND, "theme no-such");
    o.theme = NULL;
    o.smooth = 1;
    t_fails(figure_make(&f, "training", runs, 1, &o, &e), &e, DS_EUSAGE, "smooth");
    figure_options_default(&o);
    t_fails(figure_draw("training", runs, 1, &o, "x.gif", &e), &e, DS_EUSAGE, ".png, .svg or .pdf");
    clear();
}

/* Figures that need other records are tested in test_fig_methods.c, of JSON in test_fig_json.c. */
static int is_of_methods(const char *name)
{
    static const char *const others[] = {
        "router_hist",   "topk_causal",    "gates_dtf",     "prior_loss",
        "exit_map",      "exit_hist",      "tradeoff",      "pareto",
        "isoflop",       "category_depth", "bench_bars",    "task_bars",
        "hops_accuracy", "exit_rules",     "depth_by_need", "speculation"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (strcmp(name, others[i]) == 0)
            return 1;
    return 0;
}

T_SECONDS(every_figure_gives_the_same_bytes_twice_in_every_format, 180)
{
    const char *dir = t_tmpdir();
    for (int i = 0; figure_name(i); i++) {
        const char *name = figure_name(i);
        if (is_of_methods(name))
            continue;
        if (strcmp(name, "ablation_bars") == 0)
            add_ablation(dir, 0);
        else if (strncmp(name, "loss_", 5) == 0)
            add_pareto(dir);
        else if (strncmp(name, "expert_", 7) == 0)
            add_mixture(0);
        else
            add(fix_edp(dir, 0.65, 0), "one");
        for (int format = PEN_PNG; format <= PEN_PDF; format++) {
            struct str bytes[2] = {{0}, {0}};
            for (int k = 0; k < 2; k++) {
                struct figure f = draw(name);
                struct err e = {0};
                t_ok(figure_bytes(&f, (enum pen_format)format, &bytes[k], &e), &e);
                figure_release(&f);
            }
            t_truef(bytes[0].len > 500 && bytes[0].len == bytes[1].len &&
                        memcmp(bytes[0].p, bytes[1].p, bytes[0].len) == 0,
                    "%s.%s differs", name, pen_format_name((enum pen_format)format));
            str_release(&bytes[0]);
            str_release(&bytes[1]);
        }
        clear();
    }
}

T(a_png_has_300_dpi_and_a_readable_recipe)
{
    struct str png = {0};
    struct pngfile info = {0};
    struct figure_recipe r = {0};
    struct err e = {0};
    add_pareto(t_tmpdir());
    struct figure f = draw("loss_flops");
    t_ok(figure_bytes(&f, PEN_PNG, &png, &e), &e);
    t_ok(pngfile_read(&info, png.p, png.len, "f.png", &e), &e);
    t_true(info.per_metre_x >= 11811 && info.per_metre_y >= 11811);
    t_eq(info.width, 975); /* 3.25 inches at 300 dpi */
    t_ok(figure_recipe_read(&r, png.p, png.len, "f.png", &e), &e);
    t_str(r.name, "loss_flops");
    t_str(r.venue, "icml");
    t_str(r.theme, "light");
    t_str(r.data_hash, f.data_hash);
    t_str(r.version, "test");
    t_eq(r.runs, 12);
    t_str(r.path[1], "edp-high-0");
    t_true(r.metric == NULL && r.probe == -1);
    figure_recipe_release(&r);
    str_release(&info.recipe);
    str_release(&png);
    figure_release(&f);
    clear();
}

T(the_data_hash_depends_on_the_data_and_not_on_the_style)
{
    const char *dir = t_tmpdir();
    struct figure_options o;
    struct err e = {0};
    struct figure a, b;
    add(fix_edp(dir, 0.65, 0), "a");
    figure_options_default(&o);
    t_ok(figure_make(&a, "signal_depth", runs, 1, &o, &e), &e);
    o.venue = "neurips";
    o.theme = "dark";
    t_ok(figure_make(&b, "signal_depth", runs, 1, &o, &e), &e);
    t_str(a.data_hash, b.data_hash);
    figure_release(&b);
    clear();
    add(fix_edp(dir, 0.65, 1), "a");
    b = draw("signal_depth");
    t_true(strcmp(a.data_hash, b.data_hash) != 0);
    figure_release(&a);
    figure_release(&b);
    clear();
}

T(text_is_at_least_six_points)
{
    char words[96];
    struct figure_options o;
    struct err e = {0};
    add(fix_edp(t_tmpdir(), 0.65, 0), "r");
    figure_options_default(&o);
    for (int v = 0; (o.venue = figure_venue(v, words, sizeof words)) != NULL; v++)
        for (int i = 0; figure_name(i); i++) {
            struct figure f;
            struct str text = {0};
            if (figure_make(&f, figure_name(i), runs, 1, &o, &e) < 0)
                continue;
            pen_list_print(f.list, &text);
            for (const char *at = str_text(&text); (at = strstr(at, "\ntext ")) != NULL; at++) {
                double x = 0, y = 0, size = 0;
                t_eq(sscanf(at, "\ntext %lf %lf %lf", &x, &y, &size), 3);
                t_truef(size >= 6, "%s %s: %g pt", o.venue, figure_name(i), size);
                t_true(x >= 0 && x <= f.width && y >= 0 && y <= f.height);
            }
            str_release(&text);
            figure_release(&f);
        }
    clear();
}

/* Every text of the figure ends on the page. */
static void texts_fit(const struct figure *f, const char *venue)
{
    struct str text = {0};
    pen_list_print(f->list, &text);
    for (const char *at = str_text(&text); (at = strstr(at, "\ntext ")) != NULL; at++) {
        double x, y, size, angle;
        char h, words[256];
        t_eq(sscanf(at, "\ntext %lf %lf %lf %lf %c%*c #%*x \"%255[^\"]", &x, &y, &size, &angle, &h,
                    words),
             6);
        double w = glyph_width(words, size), from = h == 'l' ? 0 : h == 'c' ? w / 2 : w;
        double lo = angle == 90 ? y + from - w : x - from, hi = lo + w;
        t_truef(lo >= 0 && hi <= (angle == 90 ? f->height : f->width), "%s %s: \"%s\" %g to %g",
                venue, f->name, words, lo, hi);
    }
    str_release(&text);
}

T(texts_stay_on_the_page)
{
    static const char *const venue[] = {"acl", "neurips", "slide"};
    static char name[15][64];
    const char *dir = t_tmpdir();
    struct err e = {0};
    for (int i = 0; i < 15; i++) {
        struct fix f = fix_edp(dir, 0.65, 0);
        snprintf(name[i], sizeof name[i], "a_long_name_of_an_ablation_number_%d", i);
        f.ablation = name[i];
        add(f, name[i]);
    }
    for (size_t v = 0; v < sizeof venue / sizeof *venue; v++) {
        struct figure_options o;
        struct figure f;
        figure_options_default(&o);
        o.venue = venue[v];
        for (int i = 0; figure_name(i); i++)
            for (int n = 2; n <= 15; n += 13)
                if (strcmp(figure_name(i), "flops_hist") != 0 && /* its dip test takes long */
                    figure_make(&f, figure_name(i), runs, n, &o, &e) == 0) {
                    double all[4], frame[4];
                    fix_extent(&f, all, frame);
                    texts_fit(&f, venue[v]);
                    t_truef(all[1] >= 0 && all[3] <= f.height, "%s %s: %g to %g", venue[v], f.name,
                            all[1], all[3]);
                    figure_release(&f);
                }
    }
    clear();
}

/* The colour and the dash of a legend's line are the last ones before its text. */
T(no_two_curves_have_both_colour_and_dash_in_common)
{
    static char name[15][64];
    char colour[80] = "", dash[80] = "", line[80], look[15][160];
    struct str text = {0};
    int n = 0;
    for (int i = 0; i < 15; i++) {
        struct fix f = fix_edp(t_tmpdir(), 0.65, 0);
        snprintf(name[i], sizeof name[i], "variant%d", i);
        f.ablation = name[i];
        add(f, name[i]);
    }
    struct figure f = draw("training");
    pen_list_print(f.list, &text);
    for (const char *at = str_text(&text); *at; at += strcspn(at, "\n") + 1) {
        snprintf(line, sizeof line, "%.*s", (int)strcspn(at, "\n"), at);
        if (strncmp(line, "colour", 6) == 0)
            str_copy(colour, sizeof colour, line);
        if (strncmp(line, "dash", 4) == 0 && strncmp(at + strlen(line), "\nmove", 5) == 0)
            str_copy(dash, sizeof dash, line);
        if (n < 15 && strstr(line, "variant"))
            snprintf(look[n++], sizeof look[0], "%s %s", colour, dash);
    }
    t_eq(n, 15);
    for (int i = 0; i < n; i++)
        for (int k = 0; k < i; k++)
            t_truef(strcmp(look[i], look[k]) != 0, "%d and %d: %s", k, i, look[i]);
    str_release(&text);
    figure_release(&f);
    clear();
}

T(a_schedule_is_not_said_to_be_smoothed)
{
    static const char *const row[][2] = {{"lr", NULL},
                                         {"loss,lr", "100 points, schedules and counts excepted;"},
                                         {"loss", "100 points; raw"}};
    add(fix_edp(t_tmpdir(), 0.65, 0), "r");
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        struct figure_options o;
        struct figure f;
        struct err e = {0};
        figure_options_default(&o);
        o.metric = row[i][0];
        t_ok(figure_make(&f, "training", runs, count, &o, &e), &e);
        const char *said = strstr(str_text(&f.caption), row[i][1] ? row[i][1] : "moothed");
        t_truef((said != NULL) == (row[i][1] != NULL), "%s", str_text(&f.caption));
        int is_raw = strstr(str_text(&f.caption), "Values as recorded.") != NULL;
        t_truef(is_raw == (row[i][1] == NULL), "%s", str_text(&f.caption));
        figure_release(&f);
    }
    clear();
}

T(nan_in_a_series_is_marked_and_reported)
{
    struct fix f = fix_edp(t_tmpdir(), 0.65, 0);
    f.nan_at = 100;
    add(f, "r");
    struct figure d = draw("training");
    t_truef(strstr(str_text(&d.caption), "loss: 1 value is not finite (crosses)") != NULL, "%s",
            str_text(&d.caption));
    figure_release(&d);
    clear();
}

T(an_untrusted_run_name_is_sanitised)
{
    struct fix f = fix_edp(t_tmpdir(), 0.65, 0);
    add(f, "ok");
    mem_free(opened[0]->name);
    opened[0]->name = mem_strdup("x\x1b]0;evil\x07\n\xFF\xE2\x80\xAE"
                                 "y");
    struct figure d = draw("routing_map");
    for (size_t i = 0; i < d.caption.len; i++)
        t_true((unsigned char)d.caption.p[i] >= 0x20);
    figure_release(&d);
    clear();
}

/* Compares pen commands with the committed golden files.  GENERATE=1 regenerates them. */
static void compare_golden(const char *name)
{
    char path[128];
    struct str got = {0}, want = {0};
    struct err e = {0};
    struct figure f = draw(name);
    str_addf(&got, "size %.3f %.3f\ncaption %s\n", f.width, f.height, str_text(&f.caption));
    pen_list_print(f.list, &got);
    snprintf(path, sizeof path, "tests/golden/fig_%s.txt", name);
    if (getenv("GENERATE"))
        t_ok(fs_write_file(path, got.p, got.len, &e), &e);
    t_ok(fs_read_file(&want, path, 1 << 22, &e), &e);
    t_truef(got.len == want.len && memcmp(got.p, want.p, got.len) == 0, "%s differs from %s", name,
            path);
    str_release(&got);
    str_release(&want);
    figure_release(&f);
}

T(pen_commands_match_the_golden_files)
{
    const char *dir = t_tmpdir();
    add_pareto(dir);
    compare_golden("loss_flops");
    clear();
    add_ablation(dir, 0);
    compare_golden("ablation_bars");
    clear();
    add(fix_edp(dir, 0.65, 0), "one");
    compare_golden("flops_hist");
    clear();
}

/* The drawing of `training` over an x axis, and the hash of its data. */
static void draw_over(const char *x, struct str *drawn, char hash[65])
{
    struct figure f;
    struct figure_options o;
    struct err e = {0};
    figure_options_default(&o);
    o.metric = "lr";
    o.x = x;
    t_ok(figure_make(&f, "training", runs, count, &o, &e), &e);
    str_reset(drawn);
    pen_list_print(f.list, drawn);
    snprintf(hash, 65, "%s", f.data_hash);
    t_true(!x || strstr(str_text(&f.recipe), "\"x\":\""));
    figure_release(&f);
}

T(curves_are_drawn_over_any_axis)
{
    static const struct {
        const char *x, *label, *tick;
    } row[] = {
        {NULL, "Training step", "\"400\""},
        {"step", "Training step", "\"400\""},
        {"tokens", "Training data (tokens)", "\"800k\""},
        {"seconds", "Wall time (s)", "\"300\""},
        {"progress", "Progress (fraction of the planned steps)", "\"0.50\""},
        {"flops", "Training compute (FLOPs)", "\"3.0\xC3\x97\x31\x30"}, /* 10^13 */
        {"val_loss", "Validation loss (nats/token)", "\"3"}, /* at every tenth of the points */
    };
    struct str drawn = {0};
    char hash[DS_LEN(row)][65];
    const char *dir = t_tmpdir();
    add(fix_edp(dir, 0.5, 0), "one");
    add(fix_edp(dir, 0.5, 1), "two");
    for (size_t i = 0; i < DS_LEN(row); i++) {
        draw_over(row[i].x, &drawn, hash[i]);
        const char *x = row[i].x ? row[i].x : "no --x";
        t_truef(strstr(str_text(&drawn), row[i].label), "%s: no \"%s\"", x, row[i].label);
        t_truef(strstr(str_text(&drawn), row[i].tick), "%s: no tick %s", x, row[i].tick);
        for (size_t k = 0; k < i; k++)
            t_truef((strcmp(hash[i], hash[k]) == 0) == (i == 1), "%s and row %zu", x, k);
    }
    str_release(&drawn);
    struct figure f;
    struct figure_options o;
    struct err e = {0};
    figure_options_default(&o);
    o.x = "flops";
    t_ok(figure_make(&f, "training", runs, count, &o, &e), &e);
    t_true(strstr(str_text(&f.caption), "masked training computes skipped cells") != NULL);
    figure_release(&f);
    o.x = "epochs";
    t_fails(figure_make(&f, "training", runs, count, &o, &e), &e, DS_ENOTFOUND,
            "no record 'metric' has 'epochs'");
    clear();
}

/* Is there a sloping line that starts at this x? */
static int starts_at(const struct figure *f, double left)
{
    struct str text = {0};
    double x[2], y[2];
    int found = 0;
    pen_list_print(f->list, &text);
    for (const char *at = str_text(&text); at; at = strchr(at, '\n'), at += at != NULL)
        found |= sscanf(at, "move %lf %lf line %lf %lf", &x[0], &y[0], &x[1], &y[1]) == 4 &&
                 fabs(x[0] - left) < 0.01 && x[1] > x[0] && x[1] < left + 20 && y[1] != y[0];
    str_release(&text);
    return found;
}

T(curves_fill_the_range_that_was_asked_for)
{
    static const char *const range[] = {"20..", "20..200", "..200", NULL};
    add(fix_edp(t_tmpdir(), 0.5, 0), "r");
    for (size_t i = 0; i < DS_LEN(range); i++) {
        struct figure_options o;
        struct figure f;
        struct err e = {0};
        double all[4], frame[4];
        figure_options_default(&o);
        o.metric = "loss";
        o.range = range[i];
        t_ok(figure_make(&f, "training", runs, count, &o, &e), &e);
        fix_extent(&f, all, frame);
        t_truef(starts_at(&f, frame[0]) == (i < 2), "%s", range[i] ? range[i] : "all");
        figure_release(&f);
    }
    clear();
}

T(ticks_of_steps_are_whole)
{
    static const char *const range[] = {"1..2",  "1..4",   "0..6", "3..12",
                                        "1..20", "7..7.5", "..390"};
    add(fix_edp(t_tmpdir(), 0.5, 0), "r");
    for (size_t i = 0; i < DS_LEN(range); i++) {
        struct figure_options o;
        struct figure f;
        struct err e = {0};
        struct str text = {0};
        int ticks = 0;
        figure_options_default(&o);
        o.metric = "loss";
        o.range = range[i];
        t_ok(figure_make(&f, "training", runs, count, &o, &e), &e);
        pen_list_print(f.list, &text);
        for (const char *at = str_text(&text); (at = strstr(at, " cb #")) != NULL; at++) {
            const char *label = strchr(at, '"') + 1;
            size_t n = strspn(label, "0123456789.");
            ticks += label[n] == '"';
            t_truef(label[n] != '"' || !memchr(label, '.', n), "%s: %.8s", range[i], label);
        }
        t_truef(ticks > 0, "%s: no ticks", range[i]);
        str_release(&text);
        figure_release(&f);
    }
    clear();
}
