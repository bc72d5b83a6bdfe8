/* The step's account: parts that add up, and FLOPs against every multiplication counted one by one. */
#include "kit.h"
#include "training/account.h"

#include "base/clock.h"
#include "base/pool.h"

enum { ROWS = 40, LAYERS = 3 };

static const struct flops_shape shapes[] = {
    {.C = 6, .H = 4, .K = 2, .D = 3, .F = 10, .V = 17, .L = LAYERS, .mlp_mats = 3},
    {.C = 8, .H = 2, .K = 2, .D = 4, .F = 5, .V = 9, .L = LAYERS, .mlp_mats = 2},
};

/* ---- the stopwatch ---- */

/* At least `ms` go by for the present part; it may be more on a busy machine. */
static void spend(double ms)
{
    double end = clock_mono() + 1e-3 * ms;
    while (clock_mono() < end)
        ;
}

static const char *part_name(int part)
{
    const struct run_metric *m = run_metrics;
    while (m->offset != offsetof(struct step_report, ms) + (size_t)part * sizeof(double))
        m++;
    return run_metric_part(m);
}

static void fake_step(struct account *a, double ms[STEP_PARTS], int scale)
{
    account_enter(a, STEP_DATA);
    spend(1 * scale);
    account_enter(a, STEP_FORWARD);
    spend(2 * scale);
    account_enter(a, STEP_LOSS);
    spend(3 * scale);
    account_enter(a, STEP_BACKWARD);
    spend(4 * scale);
    account_enter(a, STEP_OPTIMIZER);
    spend(5 * scale);
    account_step(a, ms);
}

/* Bounds from below only, and sums that are exact: a busy machine may stretch any part. */
T(parts_add_up_to_the_whole_and_belong_to_one_step_each)
{
    static const double least[] = {
        [STEP_FORWARD] = 2,   [STEP_LOSS] = 3, [STEP_BACKWARD] = 4,
        [STEP_OPTIMIZER] = 5, [STEP_DATA] = 1,
    };
    struct account a = {0};
    account_begin(&a);
    double begin = a.since, told = 0, total = 0;
    for (int step = 1; step <= 4; step++) {
        double ms[STEP_PARTS], sum = 0;
        account_enter(&a, STEP_DATA);
        double start = a.since;
        fake_step(&a, ms, step);
        for (int i = 0; i < STEP_RECORD; i++) {
            t_truef(ms[i] >= least[i] * step, "step %d, %s: %g ms", step, part_name(i),
                    ms[i]);
            sum += ms[i];
        }
        t_near(sum, 1e3 * (a.since - start), 1e-6);
        t_true(ms[STEP_RECORD] >= (step == 1 ? 0 : 2));
        told += sum + ms[STEP_RECORD];
        account_restart_window(&a);
        spend(2); /* recording of this step: in the report of the next */
    }
    account_enter(&a, STEP_RECORD);
    for (int i = 0; i < ACCOUNT_PARTS; i++)
        total += a.total[i];
    t_near(total, a.since - begin, 1e-9);
    t_near(told + 1e3 * a.spent[STEP_RECORD], 1e3 * total, 1e-6);
    t_true(a.spent[STEP_RECORD] >= 0.002);
}

T(recording_is_the_mean_per_step_since_the_last_record_with_the_cost_of_writing_it)
{
    struct account a = {0};
    double ms[STEP_PARTS];
    account_begin(&a);
    account_step(&a, ms);
    account_restart_window(&a);
    double before = a.total[STEP_RECORD];
    spend(20); /* writes the record */
    for (int step = 2; step <= 5; step++) {
        account_enter(&a, STEP_FORWARD);
        account_step(&a, ms);
        spend(step < 5 ? 1 : 0);
    }
    t_truef(ms[STEP_RECORD] >= (20 + 3) / 4.0, "%g ms", ms[STEP_RECORD]);
    t_near(ms[STEP_RECORD], 1e3 * (a.total[STEP_RECORD] - before) / 4, 1e-6);
    account_restart_window(&a);
    before = a.total[STEP_RECORD];
    account_step(&a, ms);
    t_near(ms[STEP_RECORD], 1e3 * (a.total[STEP_RECORD] - before), 1e-6);
}

T(evaluation_checkpoints_and_pauses_are_not_part_of_a_step)
{
    struct account a = {0};
    double ms[STEP_PARTS], whole = 0;
    account_begin(&a);
    double begin = a.since;
    t_near(account_share(&a, ACCOUNT_EVALUATION), 0, 0);
    t_eq(account_enter(&a, ACCOUNT_CHECKPOINT), STEP_RECORD);
    spend(10);
    t_eq(account_enter(&a, ACCOUNT_EVALUATION), ACCOUNT_CHECKPOINT);
    spend(30);
    account_enter(&a, ACCOUNT_CHECKPOINT);
    account_enter(&a, ACCOUNT_PAUSE);
    spend(50);
    account_enter(&a, STEP_RECORD);
    fake_step(&a, ms, 1);
    t_true(a.total[ACCOUNT_CHECKPOINT] >= 0.01 && a.total[ACCOUNT_EVALUATION] >= 0.03 &&
           a.total[ACCOUNT_PAUSE] >= 0.05);
    for (int i = 0; i < STEP_PARTS; i++) {
        t_true(ms[i] >= 0);
        whole += 1e-3 * ms[i];
    }
    t_near(whole + a.total[ACCOUNT_CHECKPOINT] + a.total[ACCOUNT_EVALUATION] +
               a.total[ACCOUNT_PAUSE],
           a.since - begin, 1e-9);
    double sum = whole + a.total[ACCOUNT_CHECKPOINT] + a.total[ACCOUNT_EVALUATION];
    t_near(account_share(&a, ACCOUNT_EVALUATION), a.total[ACCOUNT_EVALUATION] / sum, 1e-9);
    t_near(account_share(&a, ACCOUNT_CHECKPOINT), a.total[ACCOUNT_CHECKPOINT] / sum, 1e-9);
}

/* ---- FLOPs ---- */

static double adds(int a, int b)
{
    double n = 0;
    for (int i = 0; i < a; i++)
        for (int j = 0; j < b; j++)
            n += 2;
    return n;
}

static int32_t row[LAYERS][ROWS], first[ROWS];
static real gate[LAYERS][ROWS];

enum kind { DENSE, MASKED, SPARSE, KINDS };

/* Documents of 1, 2, 3 ... rows.  Masked: all rows listed, some with gate 0.  Sparse: some rows listed, a few of them
 * (probes) with gate 0. */
static void plans(struct plan *p, enum kind kind, enum kv_policy kv, uint64_t seed)
{
    struct rng r;
    rng_init(&r, seed, RNG_TEST, 0, 0);
    for (int i = 0, start = 0, size = 1; i < ROWS; i++) {
        if (i == start + size) {
            start = i;
            size++;
        }
        first[i] = start;
    }
    for (int l = 0; l < LAYERS; l++) {
        p[l] = (struct plan){.row = row[l], .gate = gate[l], .layer = l, .kv = kv};
        for (int i = 0; i < ROWS; i++) {
            double lot = rng_uniform(&r);
            if (kind == SPARSE && lot > 0.7)
                continue;
            row[l][p[l].n] = i;
            gate[l][p[l].n++] = kind == DENSE || lot < 0.6 ? 1 : 0;
        }
    }
}

/* What the blocks' forward multiplies, row by row and product by product. */
static double blocks_by_hand(const struct flops_shape *s, const struct plan *plan,
                             const struct block_params *block)
{
    double sum = 0;
    for (int l = 0; l < LAYERS; l++) {
        const struct plan *p = &plan[l];
        int listed[ROWS] = {0}, is_key[ROWS] = {0};
        for (int i = 0; i < p->n; i++) {
            listed[p->row[i]] = 1;
            is_key[p->row[i]] = p->gate[i] != 0;
        }
        for (int i = 0; i < ROWS; i++) {
            if (p->kv == KV_ALL || listed[i])
                sum += 2 * adds(s->C, s->K * s->D); /* k, v */
            if (!listed[i])
                continue;
            sum += adds(s->C, s->H * s->D) + adds(s->H * s->D, s->C); /* q, out */
            for (int j = first[i]; j <= i; j++)
                if ((p->kv == KV_ALL || is_key[j] || j == i) &&
                    (!block || block[l].window == 0 || i - j < block[l].window))
                    sum += 2 * adds(s->H, s->D); /* score, weighted sum */
            for (int k = 0; k < s->mlp_mats; k++)
                sum += adds(s->C, s->F);
        }
    }
    return sum;
}

T(flops_count_every_matrix_multiplication_of_a_step)
{
    static const struct block_params windows[LAYERS] = {{.window = 3}, {0}, {.window = 1}};
    for (int k = 0; k < 8 * KINDS; k++) {
        const struct flops_shape *s = &shapes[k / (2 * KINDS) % 2];
        const struct block_params *w = k / (4 * KINDS) ? windows : NULL;
        struct plan p[LAYERS];
        plans(p, (enum kind)(k / 2 % KINDS), k % 2 ? KV_PLAN : KV_ALL, (uint64_t)k);
        double blocks = blocks_by_hand(s, p, w), head = ROWS * adds(s->C, s->V);
        t_near(account_flops(s, p, NULL, w, first, ROWS, 0, 0), 3 * (blocks + head), 0);
        t_near(account_flops(s, p, NULL, w, first, ROWS, 1, 0), 4 * blocks + 3 * head, 0);
    }
}

/* Against the method's count: dense they agree, masked rows cost here although the decisions did not want them. */
T(masked_rows_count_for_the_machine_and_not_for_the_method)
{
    static double part[(LAYERS + 1) * FLOPS_PARTS], token[ROWS], dense[ROWS], cell[LAYERS * ROWS];
    for (int kind = DENSE; kind < KINDS; kind++) {
        struct flops f = {.part = part, .token = token, .dense_token = dense, .cell = cell};
        struct plan p[LAYERS];
        plans(p, (enum kind)kind, KV_ALL, 3);
        flops_begin(&f, &shapes[0], ROWS);
        for (int l = 0; l < LAYERS; l++)
            flops_layer(&f, &p[l], first, 0, 0);
        flops_head(&f);
        double ran = account_flops(&shapes[0], p, NULL, NULL, first, ROWS, 0, 0);
        if (kind == DENSE)
            t_near(ran, 3 * flops_total(&f), 0);
        else
            t_true(ran > 3 * flops_total(&f));
        if (kind == MASKED)
            t_near(ran, 3 * f.dense, 0);
    }
}

/* The plans that a training step of a model leaves, two of whose blocks have a window. */
T(a_model_trained_masked_multiplies_what_the_dense_one_does)
{
    static struct kit_batch k;
    struct model *m = kit_model("model.method=edp model.layers=6 model.dim=16 model.heads=2 "
                                "model.vocab=50 model.max_seq=64 model.window=3 "
                                "model.window_layers=1,4",
                                1, 64, 1, 1);
    struct flops_shape s = model_config_flops(&m->config);
    struct pass pass = kit_pass(PASS_TRAIN);
    kit_fill(&k, 4, 16, 50, 1);
    kit_documents(&k);
    kit_step(m, &k.b, &pass);
    double masked = account_flops(&s, m->plan, NULL, m->block, m->first_row, m->R, 0, 0);
    t_near(masked, 3 * m->flops.dense, 1e-6);
    pass = kit_pass(PASS_SPARSE);
    model_forward(m, &k.b, &pass);
    m->batch = NULL;
    t_true(account_flops(&s, m->plan, NULL, m->block, m->first_row, m->R, 0, 0) <= masked);
    model_free(m);
}

T(mfu_is_flops_over_time_times_the_measured_peak)
{
    struct account a = {.peak = 200};
    struct err e = {0};
    t_near(account_mfu(&a, 1e9, 10), 0.5, 1e-12);
    t_true(isnan(account_mfu(&a, 1e9, 0)));
    a.peak = 0;
    t_true(isnan(account_mfu(&a, 1e9, 10)));
    t_ok(pool_start(1, &e), &e);
    account_measure(&a, PEAK_FP32);
    t_truef(a.peak > 0.001 && a.peak < 1e5 && a.unit == PEAK_FP32, "%g GFLOP/s", a.peak);
    pool_stop();
}

T(arenas_are_what_was_reserved)
{
    struct account_arena arena[ACCOUNT_ARENAS];
    struct model *m = kit_model(
        "model.method=dense model.layers=2 model.dim=16 model.heads=2 model.vocab=50", 1, 32, 1, 1);
    account_arenas(m, arena);
    t_str(arena[0].name, "weights");
    t_true(arena[0].bytes >= 4 * sizeof(real) * (size_t)params_count(&m->params));
    for (int i = 1; i < ACCOUNT_ARENAS; i++)
        t_true(arena[i].bytes > 32 * 16 * sizeof(real));
    t_true(arena[1].bytes <= m->stream_arena.size && arena[2].bytes <= m->work_arena.size);
    model_free(m);
}
