/* Figures of routing methods from synthetic records: their errors and captions, and that their bytes
 * are reproducible. */
#include "t.h"

#include "base/fs.h"
#include "base/mem.h"
#include "data/token_class.h"
#include "figures/figure.h"
#include "figures/glyphs.h"
#include "test_fig_methods.h"

static struct runview *opened[64];
static struct figure_run runs[64];
static int count;
static char names[64][64];

static void add(struct meth m, const char *name)
{
    opened[count] = meth_open(&m, name);
    t_truef(opened[count] != NULL, "fixture %s", name);
    snprintf(names[count], sizeof names[count], "%s", name);
    runs[count] = (struct figure_run){.view = opened[count], .path = names[count]};
    count++;
}

static void clear(void)
{
    for (int i = 0; i < count; i++)
        runview_free(opened[i]);
    count = 0;
}

static struct figure draw_with(const char *name, const char *metric)
{
    struct figure f;
    struct figure_options o;
    struct err e = {0};
    figure_options_default(&o);
    o.version = "test";
    o.metric = metric;
    t_ok(figure_make(&f, name, runs, count, &o, &e), &e);
    return f;
}

static struct figure draw(const char *name)
{
    return draw_with(name, NULL);
}

static void refuses(const char *name, enum ds_err code, const char *part)
{
    struct figure f;
    struct figure_options o;
    struct err e = {0};
    char want[64];
    figure_options_default(&o);
    t_fails(figure_make(&f, name, runs, count, &o, &e), &e, code, part);
    snprintf(want, sizeof want, "figure %s: ", name);
    t_truef(strncmp(e.text, want, strlen(want)) == 0, "%s", e.text);
    t_true(strchr(e.text, '\n') == NULL);
}

static void says(const struct figure *f, const char *part)
{
    t_truef(strstr(str_text(&f->caption), part) != NULL, "\"%s\" lacks \"%s\"",
            str_text(&f->caption), part);
}

static void shows(const struct figure *f, const char *part, int want)
{
    struct str text = {0};
    pen_list_print(f->list, &text);
    t_truef((strstr(str_text(&text), part) != NULL) == want, "%s: \"%s\" is %sthere", f->name, part,
            want ? "not " : "");
    str_release(&text);
}

/* One model with two seeds. */
static void add_seeds(const char *dir)
{
    add(meth_routed(dir, 0.5, 0), "r0");
    add(meth_routed(dir, 0.5, 1), "r1");
}

static void add_front(const char *dir)
{
    static const double capacity[] = {0.2, 0.5, 0.8};
    char name[64];
    for (int seed = 0; seed < 2; seed++) {
        for (size_t i = 0; i < 3; i++) {
            snprintf(name, sizeof name, "routed-%zu-%d", i, seed);
            add(meth_routed(dir, capacity[i], seed), name);
            struct meth m = meth_routed(dir, capacity[i], seed);
            m.method = "random";
            m.loss += 0.25 * (1 - capacity[i]);
            snprintf(name, sizeof name, "random-%zu-%d", i, seed);
            add(m, name);
        }
        snprintf(name, sizeof name, "dense-%d", seed);
        add(meth_dense(dir, seed), name);
    }
}

static void add_iso(const char *dir, const char *method, double budget, double best, int sizes,
                    int seeds)
{
    char name[64];
    for (int seed = 0; seed < seeds; seed++)
        for (int i = 0; i < sizes; i++) {
            snprintf(name, sizeof name, "%s-%.0e-%d-%d", method, budget, i, seed);
            add(meth_iso(dir, method, budget, best, 1e6 * pow(2, i), seed), name);
        }
}

/* The runs that each figure needs. */
static void add_for(const char *name, const char *dir)
{
    if (strcmp(name, "pareto") == 0)
        add_front(dir);
    else if (strcmp(name, "isoflop") == 0) {
        add_iso(dir, "dense", 1e12, 2.6e6, 4, 2);
        add_iso(dir, "dense", 4e12, 5.2e6, 4, 2);
        add_iso(dir, "routed", 1e12, 4e6, 4, 2);
        add_iso(dir, "routed", 4e12, 2e7, 4, 2);
    } else if (strcmp(name, "exit_map") == 0)
        add(meth_routed(dir, 0.5, 0), "r0");
    else
        add_seeds(dir);
}

static const char *const figures[] = {
    "router_hist", "topk_causal", "gates_dtf", "prior_loss", "exit_map", "capacity_layer",
    "exit_hist",   "tradeoff",    "pareto",    "layer_skip", "isoflop",  "category_depth",
};

T(each_missing_record_is_named)
{
    static const struct {
        const char *figure, *drop, *part;
    } row[] = {
        {"router_hist", "gate", "run r: record 'probe' of text 'text-0' has no cell 'gate'"},
        {"topk_causal", "topk_loss", "run r: no record 'eval' has both 'topk_loss' and 'loss'"},
        {"gates_dtf", "s_ce", "run r: no record 'layer' has 's_ce'"},
        {"gates_dtf", "m_cu", "no record 'layer' has 'm_cu'"},
        {"prior_loss", "prior_loss", "run r: no record 'metric' has 'prior_loss'"},
        {"capacity_layer", "capacity", "task 'final' has no vector 'capacity'"},
        {"exit_map", "exited", "run r: record 'probe' of text 'text-1' has no cell 'exited'"},
        {"exit_hist", "exited", "run r: no record 'probe' has the cell 'exited' and no record"},
        {"tradeoff", "capacity_target", "task 'capacity' has no scalar 'capacity_target'"},
        {"tradeoff", "flops_ratio", "task 'capacity' has no scalar 'flops_ratio'"},
        {"layer_skip", "capacity", "task 'final' has no vector 'capacity'"},
        {"category_depth", "class", "sample' named 'val' has no column 'class'"},
        {"category_depth", "depth", "sample' named 'val' has no column 'depth'"},
        {"isoflop", NULL, "config has no train.flops_budget above 0"},
    };
    const char *dir = t_tmpdir();
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        struct meth m = meth_routed(dir, 0.5, 0);
        m.drop = row[i].drop;
        add(m, "r");
        refuses(row[i].figure, DS_ENOTFOUND, row[i].part);
        clear();
    }
}

T(capacities_under_their_earlier_key_give_the_same_tradeoff)
{
    struct figure f[2];
    for (int old = 0; old < 2; old++) {
        struct meth m = meth_routed(t_tmpdir(), 0.5, 0);
        m.has_old_keys = old;
        add(m, "r");
        f[old] = draw("tradeoff");
        clear();
    }
    t_str(f[1].data_hash, f[0].data_hash);
    figure_release(&f[0]);
    figure_release(&f[1]);
}

/* A short log of one seed; is_resumed: step 10 was taken twice. */
static struct runview *short_log(const char *dir, int seed, int is_resumed)
{
    static const double early[2] = {0.8, 0.8}, lost[2] = {0, 0}, late[2] = {0.7, 0.7};
    static const float kind[12] = {0}, depth[12] = {1};
    struct str out = {0};
    struct err e = {0};
    struct runview *v = NULL;
    struct record *r = record_new();
    uint64_t seq = 0;
    char path[1024];
    struct meth m = {.method = "mod", .layers = 2, .seed = seed, .capacity = 0.5};
    meth_head(r, &m, "short");
    t_ok(record_end(r, seq++, &out, &e), &e);
    for (int i = 0; i < 3; i++) {
        if (i == 1 && !is_resumed)
            continue;
        record_begin(r, "layer", i ? 10 : 5, 1001 + i);
        record_nums(r, "gate_ratio", i == 0 ? early : i == 1 ? lost : late, 2);
        t_ok(record_end(r, seq++, &out, &e), &e);
    }
    for (int i = 0; i < 2; i++) {
        record_begin(r, "eval", 10, 2000);
        record_str(r, "task", i ? "capacity" : "final");
        record_num(r, "capacity_target", 0.5);
        record_num(r, "loss", 1.5 + 0.001 * seed);
        record_num(r, "flops_ratio", 0.5);
        if (i == 0)
            record_nums(r, "capacity", late, 2);
        t_ok(record_end(r, seq++, &out, &e), &e);
    }
    record_begin(r, "sample", 10, 2001);
    record_str(r, "name", "val");
    record_map(r, "column");
    record_f32s(r, "class", kind, 12);
    record_f32s(r, "depth", depth, 12);
    record_close(r);
    t_ok(record_end(r, seq++, &out, &e), &e);
    snprintf(path, sizeof path, "%s/short-%d-%d.mp", dir, seed, is_resumed);
    t_ok(fs_write_file(path, out.p, out.len, &e), &e);
    t_ok(runview_open(&v, path, &e), &e);
    while (runview_poll(v, 10, &e) > 0)
        ;
    str_release(&out);
    record_free(r);
    return v;
}

T(hundreds_of_seeds_are_one_point)
{
    enum { SEEDS = 300 };
    static struct figure_run many[SEEDS];
    static const char *const name[] = {"tradeoff", "category_depth"};
    struct figure_options o;
    struct err e = {0};
    figure_options_default(&o);
    for (int i = 0; i < SEEDS; i++)
        many[i] = (struct figure_run){.view = short_log(t_tmpdir(), i, 0), .path = "short"};
    for (size_t i = 0; i < sizeof name / sizeof *name; i++) {
        struct figure f;
        t_ok(figure_make(&f, name[i], many, SEEDS, &o, &e), &e);
        t_truef(strstr(str_text(&f.caption), "n = 300 seeds") != NULL, "%s", str_text(&f.caption));
        figure_release(&f);
    }
    for (int i = 0; i < SEEDS; i++)
        runview_free(many[i].view);
}

T(shares_that_a_resume_superseded_are_not_in_the_range)
{
    struct str text[2] = {{0}, {0}};
    for (int i = 0; i < 2; i++) {
        runs[0] = (struct figure_run){.view = opened[0] = short_log(t_tmpdir(), 1, i), .path = "s"};
        count = 1;
        struct figure f = draw("capacity_layer");
        pen_list_print(f.list, &text[i]);
        figure_release(&f);
        clear();
    }
    t_true(strcmp(str_text(&text[1]), str_text(&text[0])) == 0);
    str_release(&text[0]);
    str_release(&text[1]);
}

T(missing_evaluations_and_sizes_are_named)
{
    const char *dir = t_tmpdir();
    struct meth m = meth_routed(dir, 0.5, 0);
    m.drop_task = "capacity";
    add(m, "r");
    refuses("tradeoff", DS_ENOTFOUND, "run r: no record 'eval' of task 'capacity'");
    refuses("pareto", DS_EUSAGE, "expected runs of at least two experiments");
    clear();
    m.drop_task = "final";
    add(m, "r");
    add(meth_dense(dir, 0), "d");
    refuses("capacity_layer", DS_ENOTFOUND, "run r: no record 'eval' of task 'final'");
    refuses("layer_skip", DS_ENOTFOUND, "run r: no record 'eval' of task 'final'");
    refuses("pareto", DS_ENOTFOUND, "run r: no record 'eval' of task 'final'");
    refuses("exit_map", DS_EUSAGE, "expected one run, found 2");
    clear();
    m = meth_iso(dir, "dense", 1e12, 2e6, 1e6, 0);
    m.drop = "params_non_embedding";
    add(m, "r");
    refuses("isoflop", DS_ENOTFOUND, "run r: record 'head' has no 'params_non_embedding'");
    clear();
    /* the training records of the other fixture have no such data */
    struct fix f = fix_edp(dir, 0.65, 0);
    runs[count++] = (struct figure_run){.view = opened[0] = fix_open(&f, "bare"), .path = "bare"};
    for (size_t i = 0; i < sizeof figures / sizeof *figures; i++) {
        struct figure d;
        struct figure_options o;
        struct err e = {0};
        figure_options_default(&o);
        if (strcmp(figures[i], "capacity_layer") == 0 || strcmp(figures[i], "layer_skip") == 0)
            continue; /* every evaluation has these */
        t_truef(figure_make(&d, figures[i], runs, count, &o, &e) < 0, "%s", figures[i]);
    }
    clear();
}

T_SECONDS(every_figure_gives_the_same_bytes_twice_in_every_format, 180)
{
    const char *dir = t_tmpdir(), *keep = getenv("T_KEEP_FIGURES");
    for (size_t i = 0; i < sizeof figures / sizeof *figures; i++) {
        add_for(figures[i], dir);
        for (int format = PEN_PNG; format <= PEN_PDF; format++) {
            struct str bytes[2] = {{0}, {0}};
            struct err e = {0};
            for (int k = 0; k < 2; k++) {
                struct figure f = draw(figures[i]);
                t_ok(figure_bytes(&f, (enum pen_format)format, &bytes[k], &e), &e);
                figure_release(&f);
            }
            t_truef(bytes[0].len > 500 && bytes[0].len == bytes[1].len &&
                        memcmp(bytes[0].p, bytes[1].p, bytes[0].len) == 0,
                    "%s.%s differs", figures[i], pen_format_name((enum pen_format)format));
            if (keep && format == PEN_PNG) {
                char path[512];
                snprintf(path, sizeof path, "%s/%s.png", keep, figures[i]);
                t_ok(fs_write_file(path, bytes[0].p, bytes[0].len, &e), &e);
            }
            str_release(&bytes[0]);
            str_release(&bytes[1]);
        }
        clear();
    }
}

T(text_is_on_the_page_and_legible_in_every_venue_and_theme)
{
    char words[96];
    const char *dir = t_tmpdir();
    struct figure_options o;
    struct err e = {0};
    for (size_t i = 0; i < sizeof figures / sizeof *figures; i++) {
        add_for(figures[i], dir);
        figure_options_default(&o);
        for (int v = 0; (o.venue = figure_venue(v, words, sizeof words)) != NULL; v++) {
            struct figure f;
            struct str text = {0};
            o.theme = v % 2 ? "dark" : "light";
            t_ok(figure_make(&f, figures[i], runs, count, &o, &e), &e);
            pen_list_print(f.list, &text);
            for (const char *at = str_text(&text); (at = strstr(at, "\ntext ")) != NULL; at++) {
                double x = 0, y = 0, size = 0;
                t_eq(sscanf(at, "\ntext %lf %lf %lf", &x, &y, &size), 3);
                t_truef(size >= 6, "%s %s: %g pt", o.venue, figures[i], size);
                t_truef(x >= 0 && x <= f.width && y >= 0 && y <= f.height, "%s %s: at %g %g",
                        o.venue, figures[i], x, y);
            }
            str_release(&text);
            figure_release(&f);
        }
        clear();
    }
}

T(intervals_end_at_the_edges_of_the_plot)
{
    static const char *const wide[] = {"capacity_layer", "layer_skip", "exit_hist"};
    const char *dir = t_tmpdir();
    for (int seed = 0; seed < 2; seed++) {
        struct meth m = meth_routed(dir, 0.5, seed);
        m.spread = 0.1;
        m.rates = 1;
        add(m, seed ? "r1" : "r0");
    }
    for (size_t i = 0; i < sizeof wide / sizeof *wide; i++) {
        struct figure f = draw(wide[i]);
        double all[4], frame[4], ticks = 3.1;
        fix_extent(&f, all, frame);
        t_truef(all[0] >= frame[0] - ticks && all[1] >= 0 && all[2] <= frame[2] + 0.1 &&
                    all[3] <= frame[3] + ticks,
                "%s: %g %g %g %g around %g %g %g %g", wide[i], all[0], all[1], all[2], all[3],
                frame[0], frame[1], frame[2], frame[3]);
        figure_release(&f);
    }
    clear();
}

T(a_copy_of_a_run_is_no_further_seed)
{
    const char *dir = t_tmpdir();
    add_seeds(dir);
    add(meth_routed(dir, 0.5, 1), "copy");
    struct figure f = draw("capacity_layer");
    t_truef(strstr(str_text(&f.caption), "n = 2 seeds") != NULL, "%s", str_text(&f.caption));
    figure_release(&f);
    clear();
}

T(the_data_hash_covers_what_is_executed_after_an_exit)
{
    char before[65];
    add(meth_routed(t_tmpdir(), 0.5, 0), "r");
    struct figure f = draw("exit_map");
    snprintf(before, sizeof before, "%s", f.data_hash);
    figure_release(&f);
    const struct probe *p = runview_probe(runs[0].view, 1);
    p->run[(p->layers - 1) * p->tokens] ^= 1;
    f = draw("exit_map");
    t_true(strcmp(before, f.data_hash) != 0);
    figure_release(&f);
    clear();
}

T(the_data_hash_depends_on_the_data)
{
    const char *dir = t_tmpdir();
    char before[65];
    for (size_t i = 0; i < sizeof figures / sizeof *figures; i++) {
        add_for(figures[i], dir);
        struct figure f = draw(figures[i]);
        snprintf(before, sizeof before, "%s", f.data_hash);
        figure_release(&f);
        clear();
        add_for(figures[i], dir);
        runview_free(opened[0]);
        struct meth m = strcmp(figures[i], "isoflop") == 0
                            ? meth_iso(dir, "dense", 1e12, 2.7e6, 1e6, 9)
                            : meth_routed(dir, 0.55, 9);
        runs[0].view = opened[0] = meth_open(&m, names[0]);
        if (strcmp(figures[i], "gates_dtf") == 0 || strcmp(figures[i], "tradeoff") == 0) {
            clear(); /* another group: drawn by itself, with its own slope of the terms */
            m.layers = 10;
            add(m, "other");
        }
        f = draw(figures[i]);
        t_truef(strcmp(before, f.data_hash) != 0, "%s", figures[i]);
        figure_release(&f);
        clear();
    }
}

/* The lines of the front, which is drawn first in the colour of its legend. */
static int front_lines(const struct figure *f)
{
    struct str text = {0};
    int n = 0;
    pen_list_print(f->list, &text);
    const char *at = strstr(str_text(&text), "\ncolour #828487 1\n"),
               *end = at ? strstr(at + 1, "\ncolour") : NULL;
    for (; at && end && (at = strstr(at, "\nmove")) && at < end; at++)
        n++;
    str_release(&text);
    return n;
}

T(a_front_of_accuracies_has_the_greatest_ones)
{
    add_front(t_tmpdir());
    struct figure loss = draw("pareto"), accuracy = draw_with("pareto", "accuracy");
    t_true(front_lines(&loss) > 0);
    t_eq(front_lines(&accuracy), front_lines(&loss));
    shows(&accuracy, "accuracy of dense", 1);
    figure_release(&loss);
    figure_release(&accuracy);
    clear();
}

T(the_pareto_front_omits_dominated_experiments)
{
    const char *dir = t_tmpdir();
    add_front(dir);
    struct figure f = draw("pareto");
    says(&f, "Mean over n = 2 seeds");
    shows(&f, "loss of dense", 1);
    figure_release(&f);
    f = draw_with("pareto", "loss,flops_ratio");
    shows(&f, "FLOPs (fraction of dense)", 1);
    figure_release(&f);
    clear();
}

T(an_optimum_is_marked_only_inside_the_range_of_sizes)
{
    const char *dir = t_tmpdir();
    add_iso(dir, "dense", 1e12, 2.6e6, 4, 3);
    struct figure f = draw("isoflop");
    says(&f, "dense, 1.0\xC3\x97"
             "10\xC2\xB9\xC2\xB2 FLOPs: best at 2.");
    figure_release(&f);
    clear();
    add_iso(dir, "dense", 1e12, 1e9, 4, 3);
    f = draw("isoflop");
    says(&f, "the optimum is outside the range of sizes");
    figure_release(&f);
    clear();
    for (int i = 0; i < 4; i++) { /* the largest loss is that of the sizes between */
        double size = 1e6 * pow(2, i), best = i == 0 || i == 3 ? size : 8 * size;
        char name[24];
        snprintf(name, sizeof name, "size-%d", i);
        add(meth_iso(dir, "dense", 1e12, best, size, 0), name);
    }
    f = draw("isoflop");
    says(&f, "the parabola has no minimum");
    figure_release(&f);
    clear();
    add_iso(dir, "dense", 1e12, 2e6, 2, 1);
    f = draw("isoflop");
    says(&f, "2 sizes, no fit");
    figure_release(&f);
    clear();
    add_iso(dir, "dense", 1e12, 2.6e6, 4, 1);
    f = draw("isoflop");
    says(&f, "no interval: needs two seeds per size");
    figure_release(&f);
    clear();
}

/* Four sizes of one configuration at one budget. */
static void add_sizes(const char *dir, double capacity, int is_control, double best)
{
    char name[64];
    for (int i = 0; i < 4; i++) {
        struct meth m = meth_iso(dir, "routed", 1e12, best, 1e6 * pow(2, i), 0);
        m.capacity = capacity;
        m.is_control = is_control;
        snprintf(name, sizeof name, "sizes-%d-%d", count, i);
        add(m, name);
    }
}

T(a_method_its_control_and_each_capacity_have_separate_curves)
{
    const char *dir = t_tmpdir();
    add_sizes(dir, 0.5, 0, 2e6);
    add_sizes(dir, 0.5, 1, 4e6);
    add_sizes(dir, 0.25, 0, 3e6);
    struct figure f = draw("isoflop");
    says(&f, "routed, capacity 0.5, stochastic 0, ");
    says(&f, "routed, capacity 0.5, stochastic 1, ");
    says(&f, "routed, capacity 0.25, stochastic 0, ");
    shows(&f, "routed, capacity 0.5, stochastic 1", 1);
    int curves = 0;
    for (const char *at = str_text(&f.caption); (at = strstr(at, "best at ")) != NULL; at++)
        curves++;
    t_eq(curves, 3);
    figure_release(&f);
    clear();
    add_sizes(dir, 0.5, 0, 2e6);
    f = draw("isoflop");
    says(&f, "routed, 1.0");
    figure_release(&f);
    clear();
}

T(experiments_of_one_method_are_distinguished_in_the_front_and_its_legend)
{
    const char *dir = t_tmpdir();
    add(meth_routed(dir, 0.5, 0), "a");
    struct meth m = meth_routed(dir, 0.5, 0);
    char name[64];
    m.is_control = 1;
    m.loss += 0.1;
    add(m, "b");
    struct figure f = draw("pareto");
    shows(&f, "routed, stochastic 0", 1);
    shows(&f, "routed, stochastic 1", 1);
    figure_release(&f);
    for (int i = 0; i < 18; i++) {
        m = meth_routed(dir, 0.05 * (i + 1), 0);
        snprintf(name, sizeof name, "c%d", i);
        add(m, name);
    }
    f = draw("pareto");
    says(&f, "are not in the legend");
    figure_release(&f);
    clear();
}

T(captions_report_top_k_decisions)
{
    static const char *const name[] = {"routing_map", "exit_map", "router_hist"};
    const char *dir = t_tmpdir();
    for (int is_topk = 0; is_topk < 2; is_topk++)
        for (size_t i = 0; i < 3; i++) {
            struct meth m = meth_routed(dir, 0.5, 0);
            m.is_topk = is_topk;
            add(m, "r");
            struct figure f = draw(name[i]);
            int told = strstr(str_text(&f.caption), "Decisions: top-k, not causal.") != NULL;
            t_truef(told == is_topk, "%s: %s", name[i], str_text(&f.caption));
            figure_release(&f);
            clear();
        }
}

/* What was forced is nothing that the router did. */
T(decisions_that_were_asked_for_are_said_to_be_and_not_the_routers)
{
    static const char *const name[] = {"routing_map", "exit_map", "router_hist"};
    size_t n[2] = {0};
    for (int is_forced = 0; is_forced < 2; is_forced++)
        for (size_t i = 0; i < 3; i++) {
            struct meth m = meth_routed(t_tmpdir(), 0.5, 0);
            m.is_forced = is_forced;
            add(m, "r");
            struct figure f = draw(name[i]);
            int told = strstr(str_text(&f.caption), "Decisions: what-if, 1 cell forced.") != NULL;
            t_truef(told == is_forced, "%s: %s", name[i], str_text(&f.caption));
            struct str text = {0};
            pen_list_print(f.list, &text);
            const char *at = strstr(str_text(&text), "; n = ");
            if (i == 2 && at)
                n[is_forced] = strtoull(at + 6, NULL, 10);
            str_release(&text);
            figure_release(&f);
            clear();
        }
    t_eq(n[0] - n[1], 2); /* one of each text */
}

T(bars_and_their_intervals_have_different_names)
{
    add_seeds(t_tmpdir());
    struct figure f = draw("layer_skip");
    says(&f, "Bars: mean over up to n = 2 seeds; whiskers: 95 % confidence interval");
    figure_release(&f);
    f = draw("exit_hist");
    says(&f, "Bars: mean over seeds; whiskers: 95 % confidence interval");
    figure_release(&f);
    clear();
}

T(the_curve_below_the_gaps_is_explained)
{
    const char *dir = t_tmpdir();
    add(meth_routed(dir, 0.5, 0), "r0");
    struct figure f = draw("topk_causal");
    says(&f, "Accuracy: smoothed from 100 points on; raw values in the background.");
    figure_release(&f);
    add(meth_routed(dir, 0.5, 1), "r1");
    f = draw("topk_causal");
    says(&f, "Accuracy: mean over up to n = 2 seeds; band: 95 % confidence interval");
    figure_release(&f);
    clear();
}

T(exits_come_from_probes_or_from_exit_rates)
{
    const char *dir = t_tmpdir();
    add(meth_routed(dir, 0.5, 0), "r");
    struct figure f = draw("exit_hist");
    says(&f, "n = 96 tokens of the newest probes");
    figure_release(&f);
    f = draw("exit_map");
    shows(&f, "never exited", 1);
    figure_release(&f);
    clear();
    struct meth m = meth_routed(dir, 0.5, 0);
    m.rates = 1;
    add(m, "r");
    f = draw("exit_hist");
    says(&f, "Exit rates of training at step 200");
    figure_release(&f);
    clear();
}

T(layers_after_a_loop_are_executed_after_the_exit)
{
    char want[160];
    struct meth m = meth_routed(t_tmpdir(), 0.5, 0);
    double reached = 0;
    int left = 0;
    m.last = 1;
    add(m, "r");
    const struct probe *p = runview_probe(runs[0].view, 1);
    const struct matrix *exited = probe_cell(p, "exited");
    for (int i = 0; i < p->layers * p->tokens; i++)
        reached += exited->v[i] == 0;
    for (int t = 0; t < p->tokens; t++)
        left += exited->v[(p->layers - 2) * p->tokens + t] != 0;
    struct figure f = draw("exit_map");
    snprintf(want, sizeof want, "%d of 48 tokens exited early; mean %.2f of 8 layers", left,
             reached / 48);
    says(&f, want);
    figure_release(&f);
    clear();
}

static float left_at(int text, int i)
{
    return probe_cell(runview_probe(runs[0].view, text), "exited")->v[i];
}

/* Values of captions and subtitles, recomputed from the records. */
T(stated_numbers_match_the_records)
{
    char want[160];
    double layers = 0, above = 0, cells = 0;
    int left = 0;
    add(meth_routed(t_tmpdir(), 0.5, 0), "r");
    const struct probe *p = runview_probe(runs[0].view, 1);
    const struct matrix *exited = probe_cell(p, "exited");
    for (int t = 0; t < p->tokens; t++) {
        int l = 0;
        while (l < p->layers && exited->v[l * p->tokens + t] == 0)
            l++;
        left += l < p->layers;
        layers += l;
    }
    struct figure f = draw("exit_map");
    snprintf(want, sizeof want, "%d of 48 tokens exited early; mean %.2f of 8 layers", left,
             layers / 48);
    says(&f, want);
    figure_release(&f);
    for (int k = 0; k < 2; k++) {
        const struct matrix *gate = probe_cell(runview_probe(runs[0].view, k), "gate");
        for (int i = 0; i < gate->rows * gate->cols; i++)
            if (meth_is_routed(i / gate->cols) && left_at(k, i) == 0) {
                above += gate->v[i] > 0.5F;
                cells++;
            }
    }
    f = draw("router_hist");
    snprintf(want, sizeof want, "%.3f above 0.5; n = %.0f cells", above / cells, cells);
    shows(&f, want, 1);
    figure_release(&f);
    clear();
}

T(layers_of_one_looped_layer_are_iterations)
{
    static const char *const name[] = {"capacity_layer", "layer_skip", "exit_map"};
    for (int is_looped = 0; is_looped < 2; is_looped++) {
        struct meth m = meth_routed(t_tmpdir(), 0.5, 0);
        m.is_looped = is_looped;
        add(m, "r");
        for (size_t i = 0; i < DS_LEN(name); i++) {
            struct figure f = draw(name[i]);
            shows(&f, is_looped ? "Iteration" : "Layer", 1);
            shows(&f, is_looped ? "Layer" : "Iteration", 0);
            if (i == 1)
                shows(&f, is_looped ? "mean over iterations" : "mean over layers", 1);
            figure_release(&f);
        }
        clear();
    }
}

T(depth_of_one_looped_layer_is_in_iterations)
{
    for (int is_looped = 0; is_looped < 2; is_looped++) {
        struct meth m = meth_routed(t_tmpdir(), 0.5, 0);
        m.is_looped = is_looped;
        add(m, "r");
        struct figure f = draw("exit_hist");
        shows(&f, is_looped ? "Exited before iteration" : "Exited before layer", 1);
        figure_release(&f);
        f = draw("category_depth");
        shows(&f, is_looped ? "Mean depth (iterations)" : "Mean depth (layers)", 1);
        figure_release(&f);
        if (is_looped) { /* beside a model of layers */
            add(meth_routed(t_tmpdir(), 0.5, 0), "s");
            f = draw("category_depth");
            shows(&f, "Mean depth (layers or iterations)", 1);
            figure_release(&f);
        }
        clear();
    }
}

T(optional_data_may_be_missing)
{
    const char *dir = t_tmpdir();
    struct meth m = meth_routed(dir, 0.5, 0);
    struct figure f;
    m.drop = "causal_accuracy";
    add(m, "r");
    f = draw("topk_causal");
    says(&f, "F1 of the predictor 0.8");
    shows(&f, "Accuracy of the predictor", 0);
    figure_release(&f);
    clear();
    m.drop = "capacity_topk";
    add(m, "r");
    f = draw("capacity_layer");
    shows(&f, "top-k", 0);
    figure_release(&f);
    clear();
    m.drop = "prior_error";
    add(m, "r");
    f = draw("prior_loss");
    shows(&f, "Mean square error", 0);
    figure_release(&f);
    clear();
    m.drop = "control_random_loss";
    add(m, "r");
    f = draw("tradeoff");
    shows(&f, "random routing", 0);
    shows(&f, "by measured time", 1);
    figure_release(&f);
    f = draw_with("tradeoff", "perplexity");
    shows(&f, "Perplexity", 1);
    figure_release(&f);
    clear();
    m.drop = "nll";
    add(m, "r");
    f = draw("category_depth");
    shows(&f, "Mean loss (nats)", 0);
    shows(&f, "rare", 0);
    says(&f, "Classes with fewer than 10 tokens are not shown");
    figure_release(&f);
    clear();
}

/* y coordinate of the first text with this prefix. */
static double height_of(const struct figure *f, const char *words)
{
    struct str text = {0};
    double y = -1;
    pen_list_print(f->list, &text);
    for (const char *at = str_text(&text); y < 0 && (at = strstr(at, "\ntext ")) != NULL; at++) {
        const char *end = strchr(at + 1, '\n'), *found = strstr(at, words);
        if (found && end && found < end)
            t_eq(sscanf(at, "\ntext %*f %lf", &y), 1);
    }
    str_release(&text);
    return y;
}

T(the_result_is_above_a_legend_above_the_plot)
{
    const char *dir = t_tmpdir();
    struct meth m = meth_routed(dir, 0.02, 0);
    add(m, "r"); /* bars up to the top leave no space inside */
    m.layers = 16;
    m.capacity = 0.01;
    add(m, "q");
    struct figure f = draw("layer_skip");
    double result = height_of(&f, "mean over layers"), legend = height_of(&f, "50 %");
    t_truef(result > 0 && (result < legend - 6 || result > legend + 6), "%g and %g", result,
            legend);
    figure_release(&f);
    clear();
}

/* Fails for a level text that passes the left or right edge of the page. */
static void is_on_page(const struct figure *f, const char *venue)
{
    struct str text = {0};
    pen_list_print(f->list, &text);
    for (const char *at = str_text(&text); (at = strstr(at, "\ntext ")) != NULL; at++) {
        double x, y, size, angle;
        char h, v, words[128];
        if (sscanf(at, "\ntext %lf %lf %lf %lf %c%c #%*6c \"%127[^\"]", &x, &y, &size, &angle, &h,
                   &v, words) != 7 ||
            angle != 0)
            continue;
        double wide = glyph_width(words, size), left = h == 'l'   ? x
                                                       : h == 'c' ? x - wide / 2
                                                                  : x - wide;
        t_truef(left > -0.1 && left + wide < f->width + 0.1, "%s %s: \"%s\" from %g to %g of %g",
                f->name, venue, words, left, left + wide, f->width);
    }
    str_release(&text);
}

T(long_names_stay_on_the_page)
{
    static const char *const venue[] = {"acl", "icml", "icml-wide", "slide"};
    for (size_t i = 0; i < DS_LEN(figures); i++)
        for (size_t k = 0; k < DS_LEN(venue); k++) {
            const char *dir = t_tmpdir();
            struct figure f;
            struct figure_options o;
            struct err e = {0};
            struct meth m = meth_routed(dir, 0.25, 0);
            add_for(figures[i], dir);
            if (strcmp(figures[i], "isoflop") != 0 && strcmp(figures[i], "exit_map") != 0) {
                m.method = "routed-by-the-entropy-of-the-previous-token";
                add(m, "long");
            }
            figure_options_default(&o);
            o.venue = venue[k];
            t_ok(figure_make(&f, figures[i], runs, count, &o, &e), &e);
            is_on_page(&f, venue[k]);
            figure_release(&f);
            clear();
        }
}

/* The class numbers of data/token_class.h are those of the records. */
T(token_classes_have_names)
{
    static const struct {
        int number;
        const char *name;
    } row[] = {{CLASS_WORD, "word"},
               {CLASS_CONTINUATION, "continuation"},
               {CLASS_PUNCTUATION, "punctuation"},
               {CLASS_DIGIT, "digit"},
               {CLASS_SPACE, "space"},
               {CLASS_STOP_WORD, "stop word"},
               {CLASS_RARE, "rare"},
               {CLASS_HIGH_LOSS, "high loss"},
               {CLASS_OTHER, "other"},
               {CLASS_EDGE, "edge"},
               {CLASS_QUERY, "query"},
               {CLASS_ANSWER, "answer"},
               {CLASS_FILLER, "filler"}};
    t_eq(RUN_CLASSES, CLASS_FILLER + 1);
    t_eq(CLASS_OTHER + SPAN_FILLER, CLASS_FILLER);
    for (size_t i = 0; i < sizeof row / sizeof *row; i++)
        t_str(runview_class(row[i].number), row[i].name);
    t_true(runview_class(-1) == NULL && runview_class(RUN_CLASSES) == NULL);
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
    static const char *const name[] = {"pareto", "isoflop", "capacity_layer"};
    const char *dir = t_tmpdir();
    for (size_t i = 0; i < 3; i++) {
        add_for(name[i], dir);
        compare_golden(name[i]);
        clear();
    }
}
