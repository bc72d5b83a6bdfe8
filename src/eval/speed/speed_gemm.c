/* Times GEMM with every available provider.  Each call packs its inputs, except in "packed", where
 * op(B) was packed ahead as weights are; "gathered" also selects two of every three rows of a
 * longer A.
 *
 * Shapes are named M x K x N for C (M,N) = op(A) (M,K) op(B) (K,N).  NT is a forward pass (y = x
 * w^T), NN the gradient of its input, TN that of its weights. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "engine/gemm.h"
#include "speed_impl.h"

struct product {
    int M, K, N;
};
/* Sizes at dim = 512, scaled for others. */
static const struct product shapes[] = {
    {512, 256, 768},    {2048, 512, 1536},  {2048, 512, 2048},
    {2048, 2048, 5632}, {8192, 1024, 2048}, {8192, 2048, 5632},
};

enum layout { NT, NN, TN, NT_PACKED, NT_GATHERED, LAYOUTS };
static const char *const layout_name[LAYOUTS] = {"NT", "NN", "TN", "NT packed", "NT gathered"};

enum { PROVIDERS = 16 };
struct gemm_bench {
    struct product p;
    const char *used[2]; /* providers by format */
    real *a, *b, *c;
    int32_t *row;
    struct packed packed[PROVIDERS];
    double seconds[PROVIDERS][LAYOUTS][SPEED_ROUNDS_MAX];
};

static int scaled(int n, int64_t dim)
{
    int64_t x = (n * dim / 512 + 15) / 16 * 16;
    return x > 16 ? (int)x : 16;
}

static void multiply(const struct gemm_bench *x, int k, enum layout layout)
{
    const struct product *p = &x->p;
    int ahead = layout == NT_PACKED || layout == NT_GATHERED,
        by_columns = layout == NN || layout == TN;
    gemm_run(&(struct gemm_job){.format = gemm_format_of(gemm_providers()[k]),
                                .M = p->M,
                                .N = p->N,
                                .K = p->K,
                                .alpha = 1,
                                .a = {x->a, layout == TN ? p->M : p->K, layout == TN,
                                      layout == NT_GATHERED ? x->row : NULL},
                                .b = {x->b, by_columns ? p->N : p->K, !by_columns, NULL},
                                .packed = ahead ? &x->packed[k] : NULL,
                                .C = x->c,
                                .ldc = p->N});
}

/* Seconds of one call; short ones are repeated. */
static double multiply_s(const struct gemm_bench *x, int k, enum layout layout)
{
    int calls = 0;
    double t = clock_mono(), end;
    do {
        multiply(x, k, layout);
        calls++;
        end = clock_mono();
    } while (end - t < 4e-3 && end > t); /* also ends if the clock stands still */
    return (end - t) / calls;
}

static int name_of(char *out, size_t size, const char *provider, enum layout layout,
                   const struct product *p)
{
    return snprintf(out, size, "gemm %s %s %dx%dx%d", provider, layout_name[layout], p->M, p->K,
                    p->N);
}

/* Providers that are not in use are timed for one layout only, unless requested by name. */
static int is_timed(const struct gemm_bench *x, const struct speed *s, int k, enum layout layout)
{
    const struct gemm_provider *g = gemm_providers()[k];
    char name[64];
    name_of(name, sizeof name, gemm_name(g), layout, &x->p);
    return gemm_available(g) && strncmp(gemm_name(g), "ref", 3) != 0 &&
           speed_request(s, "ops", name) &&
           (layout == NT || strstr(s->o.only, gemm_name(g)) ||
            strcmp(gemm_name(g), x->used[gemm_format_of(g)]) == 0);
}

/* Packs op(B) for this provider, if it packs. */
static int pack(struct gemm_bench *x, int k, struct err *e)
{
    const struct gemm_provider *g = gemm_providers()[k];
    const struct operand b = {x->b, x->p.K, 1, NULL};
    size_t bytes = gemm_packed_bytes(gemm_format_of(g), x->p.K, x->p.N);
    void *memory = bytes ? mem_reserve(bytes) : NULL;
    if (bytes && !memory)
        return err_set(e, DS_EMEM, "out of memory for matrices");
    if (memory)
        gemm_pack(&x->packed[k], memory, gemm_format_of(g), &b, x->p.K, x->p.N);
    return 0;
}

static int time_provider(struct gemm_bench *x, const struct speed *s, int k, int round,
                         struct err *e)
{
    int rc = gemm_use(gemm_name(gemm_providers()[k]), e);
    if (rc == 0 && !x->packed[k].by)
        rc = pack(x, k, e);
    for (int y = 0; y < LAYOUTS && rc == 0; y++)
        if (is_timed(x, s, k, (enum layout)y))
            x->seconds[k][y][round] = multiply_s(x, k, (enum layout)y);
    return rc;
}

static int time_rounds(struct gemm_bench *x, const struct speed *s, struct err *e)
{
    int rc = 0;
    for (int i = -1; i < s->o.rounds && rc == 0; i++) /* the first warms up */
        for (int k = 0; k < PROVIDERS && gemm_providers()[k] && rc == 0; k++) {
            int any = 0;
            for (int y = 0; y < LAYOUTS; y++)
                any |= is_timed(x, s, k, (enum layout)y);
            if (any)
                rc = time_provider(x, s, k, i < 0 ? 0 : i, e);
        }
    return rc;
}

static int add_product(const struct gemm_bench *x, struct speed *s, int k, enum layout layout,
                       struct err *e)
{
    const struct gemm_provider *g = gemm_providers()[k];
    enum peak_unit unit = gemm_format_of(g) == GEMM_BF16 ? PEAK_BF16 : PEAK_FP32;
    const double *t = x->seconds[k][layout];
    double flops = 2.0 * x->p.M * x->p.K * x->p.N, rate[SPEED_ROUNDS_MAX];
    char name[64];
    int n = (int)s->o.rounds;
    for (int i = 0; i < n; i++)
        rate[i] = t[i] > 0 ? 1e-9 * flops / t[i] : 0;
    name_of(name, sizeof name, gemm_name(g), layout, &x->p);
    struct speed_result *r = speed_add(s, "ops", name, "GFLOP/s", rate, n, e);
    if (!r)
        return DS_EMEM;
    r->gflops = r->median;
    speed_set_limit(r, r->median, peak_name[unit], s->peak[unit]);
    r->reference = r->limit;
    r->vs = r->share;
    if (layout == NT_GATHERED && is_timed(x, s, k, NT_PACKED))
        r->time_ratio = speed_median_ratio(t, x->seconds[k][NT_PACKED], n);
    return 0;
}

static int add_results(const struct gemm_bench *x, struct speed *s, struct err *e)
{
    int rc = 0;
    for (int k = 0; k < PROVIDERS && gemm_providers()[k]; k++)
        for (int y = 0; y < LAYOUTS && rc == 0; y++)
            if (is_timed(x, s, k, (enum layout)y))
                rc = add_product(x, s, k, (enum layout)y, e);
    return rc;
}

/* Every third row is omitted, as by a plan. */
static int allocate(struct gemm_bench *x, struct err *e)
{
    size_t M = (size_t)x->p.M, K = (size_t)x->p.K, N = (size_t)x->p.N, rows = M + M / 2 + 1;
    x->a = mem_reserve(rows * K * sizeof(real));
    x->b = mem_reserve(K * N * sizeof(real));
    x->c = mem_reserve(M * N * sizeof(real));
    x->row = mem_alloc(M, sizeof *x->row);
    if (!x->a || !x->b || !x->c || !x->row)
        return err_set(e, DS_EMEM, "out of memory for matrices");
    speed_fill(x->a, rows * K, 1);
    speed_fill(x->b, K * N, 1);
    for (size_t i = 0; i < M; i++)
        x->row[i] = (int32_t)(i + i / 2);
    return 0;
}

static void release(struct gemm_bench *x)
{
    mem_free_aligned(x->a);
    mem_free_aligned(x->b);
    mem_free_aligned(x->c);
    for (int k = 0; k < PROVIDERS; k++)
        mem_free_aligned(x->packed[k].data);
    mem_free(x->row);
}

static int is_selected(const struct gemm_bench *x, const struct speed *s)
{
    int wanted = 0;
    for (int k = 0; k < PROVIDERS && gemm_providers()[k]; k++)
        for (int y = 0; y < LAYOUTS; y++)
            wanted |= is_timed(x, s, k, (enum layout)y);
    return wanted;
}

static void note_used(const char *used[2])
{
    used[GEMM_FP32] = gemm_name(gemm_provider(GEMM_FP32));
    used[GEMM_BF16] = REAL_BITS == 32 ? gemm_name(gemm_provider(GEMM_BF16)) : used[GEMM_FP32];
}

int speed_gemm(struct speed *s, struct err *e)
{
    struct gemm_bench *x = mem_alloc(1, sizeof *x);
    const char *used[2];
    size_t n = s->o.quick ? 2 : DS_LEN(shapes);
    int rc = x ? 0 : err_set(e, DS_EMEM, "out of memory for matrix multiplications");
    note_used(used);
    for (size_t i = 0; i < n && rc == 0; i++) {
        memset(x, 0, sizeof *x);
        memcpy(x->used, used, sizeof used);
        x->p = (struct product){scaled(shapes[i].M, s->o.dim), scaled(shapes[i].K, s->o.dim),
                                scaled(shapes[i].N, s->o.dim)};
        if (!is_selected(x, s))
            continue;
        rc = allocate(x, e);
        if (rc == 0)
            rc = time_rounds(x, s, e);
        if (rc == 0)
            rc = add_results(x, s, e);
        release(x);
    }
    for (int f = 0; f < 2; f++)
        if (gemm_use(used[f], e) < 0 && rc == 0)
            rc = DS_ENOTFOUND;
    mem_free(x);
    return rc;
}
