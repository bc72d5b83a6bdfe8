/* Every op gives the same bits with pools of 1 to 16 threads. */
#include <float.h>
#include <time.h>

#include "base/hash.h"
#include "base/pool.h"
#include "engine/linear.h"
#include "engine/ops.h"
#include "engine/param.h"
#include "t.h"

enum { N = 700, C = 96, O = 160, V = 611, H = 6, D = 16, WIDE = N * V };

static real *buffer[8], *weight[4]; /* of WIDE and of O * V elements */
static int32_t id[N], pos[N], row[N / 2], lo[N], hi[N], seg[3] = {0, 300, N};
static uint8_t on[N];

static uint32_t state;

static real draw(void)
{
    state = state * 1664525U + 1013904223U;
    return (real)((double)(state >> 8) / 8388608.0 - 1);
}

static void inputs(void)
{
    state = 5;
    for (int b = 0; b < 8; b++) {
        if (!buffer[b])
            buffer[b] = malloc(WIDE * sizeof(real));
        for (int i = 0; i < WIDE; i++)
            buffer[b][i] = draw();
    }
    for (int b = 0; b < 4; b++) {
        if (!weight[b])
            weight[b] = malloc(O * V * sizeof(real));
        for (int i = 0; i < O * V; i++)
            weight[b][i] = draw();
    }
    for (int i = 0; i < N; i++) {
        id[i] = i * 37 % 50;
        pos[i] = i % 300;
        on[i] = i % 3 != 1;
        lo[i] = i < 300 ? 0 : 300;
        hi[i] = i + 1;
        row[i / 2] = i / 2 * 2;
    }
}

static void op_gemm(void)
{
    struct gemm_job j = {.M = N, .N = V, .K = C, .alpha = 1, .C = buffer[1], .ldc = V};
    j.a = (struct operand){.p = buffer[0], .ld = C};
    j.b = (struct operand){.p = weight[0], .ld = C, .trans = 1};
    gemm_run(&j);
    j.M = 1;
    j.N = j.ldc = O;
    j.C = buffer[3];
    gemm_run(&j);
    j = (struct gemm_job){.M = O, .N = C, .K = N, .alpha = 1, .beta = 1, .C = weight[1], .ldc = C};
    j.a = (struct operand){.p = buffer[0], .ld = O, .trans = 1};
    j.b = (struct operand){.p = buffer[2], .ld = C};
    gemm_run(&j);
}

static void op_linear(void)
{
    struct linear w = {.C = C, .O = O, .w = weight[0], .b = weight[1]};
    linear_fwd(buffer[1], buffer[0], &w, N, 0, NULL);
    linear_bwd_x(buffer[2], buffer[1], &w, N, 1, NULL);
    struct linear_rows x = linear_rows(GEMM_FP32, buffer[0], NULL, N, C);
    linear_bwd_w(weight[2], weight[3], buffer[1], &x, &w);
}

static void op_norm(void)
{
    struct norm n = {.w = weight[0], .rstd = weight[1], .N = N, .C = C, .eps = (real)1e-5};
    norm_fwd(buffer[1], buffer[0], &n);
    norm_bwd(buffer[2], weight[2], NULL, buffer[3], buffer[0], &n);
    n.b = weight[3];
    n.mean = weight[1];
    n.rstd = weight[1] + N;
    norm_fwd(buffer[4], buffer[0], &n);
    norm_bwd(buffer[5], weight[2] + C, weight[3], buffer[3], buffer[0], &n);
}

static void op_rope(void)
{
    struct rope r = {.inv_freq = weight[0], .D = D, .dims = D, .half = 1, .scale = 1};
    rope_fwd(buffer[0], pos, &r, N, H);
    r.half = 0;
    rope_bwd(buffer[1], pos, &r, N, H);
}

static void op_act(void)
{
    swiglu_fwd(buffer[0], buffer[1], buffer[2], WIDE);
    swiglu_bwd(buffer[3], buffer[4], buffer[0], buffer[1], buffer[2], WIDE);
    gelu_fwd(buffer[5], buffer[0], WIDE);
    gelu_bwd(buffer[6], buffer[5], buffer[0], WIDE);
    gelu_tanh_fwd(buffer[1], buffer[2], WIDE);
    gelu_tanh_bwd(buffer[7], buffer[5], buffer[2], WIDE);
}

static void op_attention(void)
{
    struct attn a = {.N = N,
                     .M = N,
                     .H = H,
                     .K = H / 2,
                     .D = D,
                     .lo = lo,
                     .hi = hi,
                     .self = NULL,
                     .on = on,
                     .segs = 2,
                     .seg_q = seg,
                     .seg_k = seg};
    attention_fwd(buffer[3], weight[0], buffer[0], buffer[1], buffer[2], &a);
    attention_bwd(&(struct attn_grad){.dq = buffer[4],
                                      .dk = buffer[5],
                                      .dv = buffer[6],
                                      .dout = buffer[7],
                                      .q = buffer[0],
                                      .k = buffer[1],
                                      .v = buffer[2],
                                      .o = buffer[3],
                                      .lse = weight[0]},
                  &a);
}

static void op_embed(void)
{
    embed_fwd(buffer[0], id, pos, weight[0], weight[1], (real)1.3, N, C);
    embed_bwd(weight[2], weight[3], buffer[1], id, pos, (real)1.3, N, C);
}

static void op_rows(void)
{
    rows_gather(buffer[0], buffer[1], row, N / 2, C);
    rows_scatter_add(buffer[2], buffer[3], row, weight[0], N / 2, C);
    rows_dot(weight[1], buffer[4], row, buffer[5], N / 2, C);
    add_into(buffer[6], buffer[7], WIDE);
}

static void op_loss(void)
{
    uint64_t bad;
    xent_fwd_bwd(buffer[0], id, weight[0], (real)0.1, weight[1], weight[2], N, V);
    weight[3][0] = (real)sum_squares(buffer[1], WIDE, &bad);
}

static void op_adamw(void)
{
    struct params ps = {0};
    struct err e = {0};
    struct adamw o = {.lr = 1e-2,
                      .beta1 = 0.9,
                      .beta2 = 0.95,
                      .eps = 1e-8,
                      .weight_decay = 0.1,
                      .router_lr = 1,
                      .clip = 1};
    t_true(params_add(&ps, "w", O, V, PARAM_MATRIX, INIT_NORMAL, 0.02) == 0);
    t_ok(params_reserve(&ps, 1, &e), &e);
    params_init(&ps, 42);
    memcpy(ps.p[0].grad, weight[0], O * V * sizeof(real));
    struct grad_health h = params_grad_health(&ps);
    adamw_step(&ps, &o, 1, &h);
    memcpy(weight[1], ps.p[0].value, O * V * sizeof(real));
    params_release(&ps);
}

static uint64_t outcome(void)
{
    uint64_t sum = 0;
    for (int b = 0; b < 8; b++)
        sum = hash64(buffer[b], WIDE * sizeof(real), sum);
    for (int b = 0; b < 4; b++)
        sum = hash64(weight[b], O * V * sizeof(real), sum);
    return sum;
}

static void same_bits(void (*op)(void))
{
    static const int threads[] = {1, 2, 3, 4, 7, 8, 12, 16};
    uint64_t first = 0;
    for (int i = 0; i < 8; i++) {
        struct err e = {0};
        t_ok(pool_start(threads[i], &e), &e);
        inputs();
        op();
        uint64_t now = outcome();
        pool_stop();
        t_truef(i == 0 || now == first, "%d threads give other bits than one", threads[i]);
        first = i == 0 ? now : first;
    }
}

/* Half of the smallest normal number; the pause lets every worker take a task. */
static int flushed[8];

static void halve(void *ctx, int task, int worker)
{
    volatile float x = FLT_MIN;
    volatile double y = DBL_MIN;
    struct timespec while_others_wake = {0, 20000000};
    (void)ctx;
    (void)task;
    x = x / 2;
    y = y / 2;
    if (x == 0 || y == 0)
        flushed[worker]++;
    nanosleep(&while_others_wake, NULL);
}

T(no_thread_flushes_denormals) /* H12 */
{
    struct err e = {0};
    enum { THREADS = 4 };
    if (t_runs_under("valgrind"))
        t_skip("valgrind does not flush denormals");
#ifdef __SSE__
    __builtin_ia32_ldmxcsr(__builtin_ia32_stmxcsr() | 0x8040); /* as crtfastmath.o does */
    volatile float x = FLT_MIN;
    x = x / 2;
    t_true(x == 0);
#endif
    for (int i = 0; gemm_providers()[i]; i++) {
        if (gemm_use(gemm_name(gemm_providers()[i]), &e) < 0)
            continue;
        t_ok(pool_start(THREADS, &e), &e);
        inputs();
        op_gemm(); /* a library is loaded now */
        pool_run(4 * THREADS, halve, NULL);
        for (int w = 0; w < THREADS; w++)
            t_truef(flushed[w] == 0, "%s: worker %d", gemm_name(gemm_providers()[i]), w);
        pool_stop();
    }
}

T(gemm_is_the_same_at_any_thread_count)
{
    for (int i = 0; gemm_providers()[i]; i++) {
        struct err e;
        if (gemm_use(gemm_name(gemm_providers()[i]), &e) == 0)
            same_bits(op_gemm);
    }
}

#define SAME(name)                                                                                 \
    T(name##_is_the_same_at_any_thread_count)                                                      \
    {                                                                                              \
        same_bits(op_##name);                                                                      \
    }
SAME(linear)
SAME(norm)
SAME(rope)
SAME(act)
SAME(attention)
SAME(embed)
SAME(rows)
SAME(loss)
SAME(adamw)
