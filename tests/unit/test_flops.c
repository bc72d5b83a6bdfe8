/* The FLOP count against loops written from the definition: every multiply-add is counted one by
 * one. */
#include "kit.h"
#include "routing/flops.h"

enum { ROWS = 40, LAYERS = 3 };

static const struct flops_shape shapes[] = {
    {.C = 6, .H = 4, .K = 2, .D = 3, .F = 10, .V = 17, .L = LAYERS, .mlp_mats = 3},
    {.C = 8, .H = 2, .K = 2, .D = 4, .F = 5, .V = 9, .L = LAYERS, .mlp_mats = 2},
};

struct count {
    double qo, kv, attention, mlp, total;
};

static double adds(int a, int b)
{
    double n = 0;
    for (int i = 0; i < a; i++)
        for (int j = 0; j < b; j++)
            n += 2;
    return n;
}

/* Row i of a layer: runs[] says which rows run, first[] where documents begin. */
static struct count by_hand(const struct flops_shape *s, const uint8_t *runs, const int32_t *first,
                            int i, enum kv_policy kv)
{
    struct count c = {0};
    if (kv == KV_ALL || runs[i])
        c.kv = adds(s->C, s->K * s->D) + adds(s->C, s->K * s->D);
    if (runs[i]) {
        c.qo = adds(s->C, s->H * s->D) + adds(s->H * s->D, s->C);
        for (int j = first[i]; j <= i; j++)
            if (kv == KV_ALL || runs[j])
                c.attention += adds(s->H, s->D) + adds(s->H, s->D);
        for (int k = 0; k < s->mlp_mats; k++)
            c.mlp += adds(s->C, s->F);
    }
    c.total = c.qo + c.kv + c.attention + c.mlp;
    return c;
}

static double part_store[(LAYERS + 1) * FLOPS_PARTS], token_store[ROWS], cell_store[LAYERS * ROWS];
static double dense_store[ROWS];
static int32_t row[LAYERS][ROWS], first[ROWS];
static real gate[LAYERS][ROWS];
static uint8_t runs[LAYERS][ROWS];

static struct flops counter(void)
{
    return (struct flops){
        .part = part_store, .token = token_store, .cell = cell_store, .dense_token = dense_store};
}

/* Documents of 1, 2, 3 ... rows; rows run with probability 0.6, some are listed with gate 0. */
static void plans(struct plan *p, enum kv_policy kv, uint64_t seed)
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
            runs[l][i] = lot < 0.6;
            if (lot > 0.8)
                continue;
            row[l][p[l].n] = i;
            gate[l][p[l].n++] = lot < 0.6 ? (real)0.5 : 0;
        }
    }
}

T(plans_cost_what_their_multiplications_cost)
{
    for (int k = 0; k < 4; k++) {
        const struct flops_shape *s = &shapes[k / 2];
        enum kv_policy kv = k % 2 ? KV_PLAN : KV_ALL;
        struct flops f = counter();
        struct plan p[LAYERS];
        double token[ROWS], dense_token[ROWS], dense = 0, total = 0, cells = 0;
        static uint8_t all[ROWS];
        memset(all, 1, sizeof all);
        plans(p, kv, (uint64_t)k);
        flops_begin(&f, s, ROWS);
        for (int l = 0; l < LAYERS; l++)
            flops_layer(&f, &p[l], first, 0, l == 1 ? 7 : 0);
        flops_head(&f);
        for (int i = 0; i < ROWS; i++)
            token[i] = (dense_token[i] = adds(s->C, s->V)) + 7;
        for (int l = 0; l < LAYERS; l++) {
            struct count sum = {0};
            for (int i = 0; i < ROWS; i++) {
                struct count c = by_hand(s, runs[l], first, i, kv);
                sum.qo += c.qo, sum.kv += c.kv, sum.attention += c.attention, sum.mlp += c.mlp;
                t_near(f.cell[l * ROWS + i], c.total + (l == 1 ? 7 : 0), 0);
                token[i] += c.total;
                dense_token[i] += by_hand(s, all, first, i, KV_ALL).total;
                cells += runs[l][i];
            }
            const double *part = f.part + l * FLOPS_PARTS;
            t_near(part[FLOPS_QO], sum.qo, 0);
            t_near(part[FLOPS_KV], sum.kv, 0);
            t_near(part[FLOPS_ATTENTION], sum.attention, 0);
            t_near(part[FLOPS_MLP], sum.mlp, 0);
            t_near(part[FLOPS_ROUTER], l == 1 ? 7 * ROWS : 0, 0);
        }
        for (int i = 0; i < ROWS; i++) {
            t_near(f.token[i], token[i], 0);
            t_near(f.dense_token[i], dense_token[i], 0);
            total += token[i];
            dense += dense_token[i];
        }
        t_near(flops_total(&f), total, 0);
        t_near(f.dense, dense, 0);
        t_near(flops_model_ratio(&f), total / dense, 1e-15);
        t_near(flops_block_ratio(&f), cells / (LAYERS * ROWS), 1e-15);
    }
}

/* One sequence fed in chunks through a cache costs the same as in one pass. */
T(cached_chunks_cost_the_same_as_the_whole_pass)
{
    static const int size[] = {5, 1, 1, 7, 10, 1, 15};
    for (int kv = KV_ALL; kv <= KV_PLAN; kv++) {
        const struct flops_shape *s = &shapes[0];
        struct plan p[LAYERS];
        double whole = 0, dense = 0, got = 0, got_dense = 0;
        int keys[LAYERS] = {0};
        static uint8_t all[ROWS];
        memset(all, 1, sizeof all);
        plans(p, (enum kv_policy)kv, 9);
        memset(first, 0, sizeof first);
        for (int i = 0; i < ROWS; i++)
            for (int l = 0; l < LAYERS; l++) {
                whole += by_hand(s, runs[l], first, i, (enum kv_policy)kv).total;
                dense += by_hand(s, all, first, i, KV_ALL).total;
            }
        for (int k = 0, at = 0; k < 7; at += size[k++]) {
            struct flops f = counter();
            flops_begin(&f, s, size[k]);
            for (int i = 0; i < size[k]; i++)
                first[i] = -at;
            for (int l = 0; l < LAYERS; l++) {
                int32_t own[ROWS];
                real one[ROWS];
                struct plan q = {.row = own, .gate = one, .layer = l, .kv = (enum kv_policy)kv};
                for (int i = 0; i < size[k]; i++)
                    if (runs[l][at + i]) {
                        own[q.n] = i;
                        one[q.n++] = 1;
                    }
                flops_layer(&f, &q, first, &(int32_t){keys[l]}, 0);
                keys[l] += kv == KV_ALL ? size[k] : q.n;
            }
            got += flops_total(&f);
            got_dense += f.dense;
        }
        t_near(got, whole, 0);
        t_near(got_dense, dense, 0);
    }
}

T(a_dense_model_has_ratio_one_and_the_closed_form_per_token)
{
    struct kit_batch batch;
    struct model *m =
        kit_model("model.method=dense model.layers=3 model.dim=12 model.heads=3 model.kv_heads=1 "
                  "model.vocab=19 model.ffn=20",
                  1, 64, 0, 0);
    struct flops_shape s = model_config_flops(&m->config);
    struct pass pass = kit_pass(PASS_SPARSE);
    kit_fill(&batch, 4, 16, 19, 1);
    model_forward(m, &batch.b, &pass);
    t_true(flops_model_ratio(&m->flops) == 1);
    t_near(flops_total(&m->flops) / 64, flops_dense_token(&s, 16), 1e-9);
    pass.kind = PASS_DENSE;
    model_forward(m, &batch.b, &pass);
    t_true(flops_model_ratio(&m->flops) == 1);
    model_free(m);
}

T(a_pass_without_rows_costs_nothing)
{
    struct flops f = counter();
    struct plan p = {.row = row[0], .gate = gate[0]};
    flops_begin(&f, &shapes[0], 0);
    flops_layer(&f, &p, first, 0, 3);
    flops_head(&f);
    t_near(flops_total(&f), 0, 0);
    t_near(flops_block_ratio(&f), 1, 0);
    t_near(flops_model_ratio(&f), 1, 0);
}
