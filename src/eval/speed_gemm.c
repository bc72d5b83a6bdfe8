/* Matrix products by every provider that runs here, each call laying out what it needs.
 *
 * Shapes are named M x K x N for C (M,N) = op(A) (M,K) op(B) (K,N).  NT is a forward pass (y = x w^T), NN the gradient of its
 * input, TN that of its weights. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "engine/gemm.h"
#include "engine/ops.h"
#include "speed_impl.h"

struct product {
    int M, K, N;
};
/* At dim = 512; the others in proportion. */
static const struct product shapes[] = {
    {512, 256, 768},    {2048, 512, 1536},  {2048, 512, 2048},
    {2048, 2048, 5632}, {8192, 1024, 2048}, {8192, 2048, 5632},
};

enum layout { NT, NN, TN, NT_GATHERED, LAYOUTS };
static const char *const layout_name[LAYOUTS] = {"NT", "NN", "TN", "NT gathered"};

enum { PROVIDERS = 8 };
struct products {
    struct product p;
    const char *used; /* provider */
    real *a, *b, *c, *rows;
    int32_t *row;
    double seconds[PROVIDERS][LAYOUTS][SPEED_ROUNDS_MAX];
};

static int scaled(int n, int64_t dim)
{
    int64_t x = (n * dim / 512 + 15) / 16 * 16;
    return x > 16 ? (int)x : 16;
}

static void multiply(const struct products *x, enum layout layout)
{
    int M = x->p.M, K = x->p.K, N = x->p.N;
    const real *a = x->a;
    if (layout == NT_GATHERED) {
        rows_gather(x->rows, x->a, x->row, M, K);
        a = x->rows;
    }
    int trans_a = layout == TN, trans_b = layout == NT || layout == NT_GATHERED;
    gemm(trans_a, trans_b, M, N, K, 1, a, trans_a ? M : K, x->b, trans_b ? K : N, 0, x->c, N);
}

/* Of one call; short products are repeated. */
static double multiply_s(const struct products *x, enum layout layout)
{
    int calls = 0;
    double t = clock_mono(), end;
    do {
        multiply(x, layout);
        calls++;
        end = clock_mono();
    } while (end - t < 4e-3 && end > t); /* a fixed clock ends it */
    return (end - t) / calls;
}

static int name_of(char *out, size_t size, const char *provider, enum layout layout,
                   const struct product *p)
{
    return snprintf(out, size, "gemm %s %s %dx%dx%d", provider, layout_name[layout], p->M, p->K,
                    p->N);
}

/* Unasked, the providers that are not in use show one layout. */
static int is_timed(const struct products *x, const struct speed *s, const struct gemm_provider *g,
                    enum layout layout)
{
    char name[64];
    name_of(name, sizeof name, g->name, layout, &x->p);
    return g->available() && strcmp(g->name, "ref") != 0 && speed_wants(s, "ops", name) &&
           (layout == NT || s->o.only[0] || strcmp(g->name, x->used) == 0);
}

static int time_rounds(struct products *x, const struct speed *s, struct err *e)
{
    const struct gemm_provider *const *all = gemm_providers();
    int rc = 0;
    for (int i = -1; i < s->o.rounds && rc == 0; i++)
        for (int k = 0; k < PROVIDERS && all[k] && rc == 0; k++)
            for (int y = 0; y < LAYOUTS && rc == 0; y++) {
                if (!is_timed(x, s, all[k], (enum layout)y))
                    continue;
                rc = gemm_use(all[k]->name, e);
                x->seconds[k][y][i < 0 ? 0 : i] = multiply_s(x, (enum layout)y);
            }
    return rc;
}

static int add_results(struct products *x, struct speed *s, struct err *e)
{
    const struct gemm_provider *const *all = gemm_providers();
    int n = (int)s->o.rounds;
    double flops = 2.0 * x->p.M * x->p.K * x->p.N, rate[SPEED_ROUNDS_MAX];
    for (int k = 0; k < PROVIDERS && all[k]; k++)
        for (int y = 0; y < LAYOUTS; y++) {
            char name[64];
            const double *t = x->seconds[k][y];
            if (!is_timed(x, s, all[k], (enum layout)y))
                continue;
            name_of(name, sizeof name, all[k]->name, (enum layout)y, &x->p);
            for (int i = 0; i < n; i++)
                rate[i] = t[i] > 0 ? 1e-9 * flops / t[i] : 0;
            struct speed_result *r = speed_add(s, "ops", name, "GFLOP/s", rate, n, e);
            if (!r)
                return DS_EMEM;
            r->gflops = r->median;
            speed_set_limit(r, r->median, peak_name[PEAK_FP32], s->peak[PEAK_FP32]);
            r->reference = r->limit;
            r->vs = r->share;
            if (y == NT_GATHERED && is_timed(x, s, all[k], NT))
                r->time_ratio = speed_median_ratio(t, x->seconds[k][NT], n);
        }
    return 0;
}

/* Every third row is left out, as a plan would. */
static int allocate(struct products *x, struct err *e)
{
    size_t M = (size_t)x->p.M, K = (size_t)x->p.K, N = (size_t)x->p.N, rows = M + M / 2 + 1;
    x->a = mem_reserve(rows * K * sizeof(real));
    x->b = mem_reserve(K * N * sizeof(real));
    x->c = mem_reserve(M * N * sizeof(real));
    x->rows = mem_reserve(M * K * sizeof(real));
    x->row = mem_alloc(M, sizeof *x->row);
    if (!x->a || !x->b || !x->c || !x->rows || !x->row)
        return err_set(e, DS_EMEM, "matrices");
    speed_fill(x->a, rows * K, 1);
    speed_fill(x->b, K * N, 1);
    for (size_t i = 0; i < M; i++)
        x->row[i] = (int32_t)(i + i / 2);
    return 0;
}

static void release(struct products *x)
{
    mem_free_aligned(x->a);
    mem_free_aligned(x->b);
    mem_free_aligned(x->c);
    mem_free_aligned(x->rows);
    mem_free(x->row);
}

static int is_wanted(const struct products *x, const struct speed *s)
{
    const struct gemm_provider *const *all = gemm_providers();
    int wanted = 0;
    for (int k = 0; k < PROVIDERS && all[k]; k++)
        for (int y = 0; y < LAYOUTS; y++)
            wanted |= is_timed(x, s, all[k], (enum layout)y);
    return wanted;
}

int speed_products(struct speed *s, struct err *e)
{
    struct products *x = mem_alloc(1, sizeof *x);
    const char *used = gemm_provider()->name;
    size_t n = s->o.quick ? 2 : DS_LEN(shapes);
    int rc = x ? 0 : err_set(e, DS_EMEM, "products");
    for (size_t i = 0; i < n && rc == 0; i++) {
        x->p = (struct product){scaled(shapes[i].M, s->o.dim), scaled(shapes[i].K, s->o.dim),
                                scaled(shapes[i].N, s->o.dim)};
        x->used = used;
        if (!is_wanted(x, s))
            continue;
        rc = allocate(x, e);
        if (rc == 0)
            rc = time_rounds(x, s, e);
        if (rc == 0)
            rc = add_results(x, s, e);
        release(x);
        memset(x, 0, sizeof *x);
    }
    if (gemm_use(used, e) < 0 && rc == 0)
        rc = DS_ENOTFOUND;
    mem_free(x);
    return rc;
}
