/* Every method trains and infers with the same bits at any number of threads; instruction sets
 * agree within the bounds below.  Ops are in test_threads.c, shapes of blocks in test_model.c.
 *
 *   PROOF_SEED=n PROOF_SECONDS=s   models of seed n on for so long; then lines
 *                                  "threads METHOD CASES", "level NAME BOUND CASES MAX WHAT",
 *                                  "absent NAME", "seed NEXT" */
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/cpu.h"
#include "base/hash.h"
#include "base/pool.h"
#include "kit.h"

enum { V = 41, L = 5, STEPS = 2, ROWS = 3, LONGEST = 40 };

static struct kit_batch batch;
static uint64_t seed = 1;
static double end;
static const char *asked;

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void begin(void)
{
    const char *from = getenv("PROOF_SEED");
    asked = getenv("PROOF_SECONDS");
    seed = from ? strtoull(from, NULL, 10) : 1;
    end = seconds() + (asked ? atof(asked) : 0);
}

/* One round without PROOF_SECONDS. */
static int goes_on(int rounds)
{
    return asked ? seconds() < end : rounds < 1;
}

static void same_batch(void *ctx, int k, struct batch *b)
{
    (void)ctx;
    (void)k;
    *b = batch.b;
}

/* A shape, which the seed chooses. */
static struct model *model_of(const char *method)
{
    static const char *const shapes[] = {
        "model.heads=2", "model.heads=4 model.kv_heads=2 model.norm=layer model.mlp=gelu",
        "model.heads=2 model.experts=4 model.expert_ffn=24", "model.heads=1 model.lora_r=2",
        "model.heads=2 model.qk_norm=head model.attn_cap=3 model.mlp=geglu model.window=9"};
    struct rng r;
    char text[512];
    rng_init(&r, seed, RNG_TEST, 40, 0);
    int dim = 16 * (1 + (int)rng_below(&r, 4)), B = 1 + (int)rng_below(&r, ROWS);
    int T = 2 + (int)rng_below(&r, LONGEST - 1), shape = (int)rng_below(&r, DS_LEN(shapes));
    snprintf(text, sizeof text,
             "model.layers=%d model.dim=%d model.vocab=%d model.init_std=0.1 model.method=%s %s", L,
             dim, V, method, shapes[shape]);
    kit_fill(&batch, B, T, V, seed);
    kit_documents(&batch);
    struct model *m = kit_model(text, seed, B * T, 1, (int)(seed & 1));
    kit_shake(m, 0.02, seed);
    return m;
}

static uint64_t weights_hash(const struct model *m)
{
    uint64_t sum = 0;
    for (int i = 0; i < m->params.n; i++)
        sum = hash64(m->params.p[i].value, m->params.p[i].n * sizeof(real), sum);
    return sum;
}

/* Of the logits of every row. */
static uint64_t logits_hash(struct model *m, enum pass_kind kind)
{
    struct pass pass = kit_pass(kind);
    static real logits[ROWS * LONGEST * V];
    model_forward(m, &batch.b, &pass);
    model_logits_rows(m, 0, m->R, logits);
    return hash64(logits, (size_t)(m->R * V) * sizeof *logits, 0);
}

/* Two training steps, calibration where the method needs it, and an inference. */
static void outcome(const char *method, uint64_t out[2])
{
    struct err e = {0};
    struct model *m = model_of(method);
    for (int step = 1; step <= STEPS; step++)
        kit_train(m, &batch.b, step, 10, 1e-3);
    out[0] = weights_hash(m);
    if (m->route.ops->flags & ROUTE_EXITS)
        t_ok(model_calibrate(m, 1, same_batch, NULL, 1, NULL, &e), &e);
    out[1] = logits_hash(m, PASS_SPARSE);
    model_free(m);
}

T(every_method_gives_the_same_bits_at_1_to_16_threads)
{
    static const int threads[] = {1, 2, 3, 4, 7, 8, 12, 16};
    int rounds = 0;
    for (begin(); goes_on(rounds); rounds++, seed++)
        for (const struct route_ops *const *o = route_all(); *o; o++) {
            uint64_t first[2] = {0}, now[2];
            for (size_t k = 0; k < DS_LEN(threads); k++) {
                struct err e = {0};
                t_ok(pool_start(threads[k], &e), &e);
                outcome((*o)->name, k ? now : first);
                pool_stop();
                for (int i = 0; k && i < 2; i++)
                    t_truef(now[i] == first[i], "seed %llu, %s: %d threads give other %s than one",
                            (unsigned long long)seed, (*o)->name, threads[k],
                            i ? "logits" : "weights");
            }
        }
    for (const struct route_ops *const *o = route_all(); asked && *o; o++)
        printf("threads %s %d\n", (*o)->name, rounds);
    if (asked)
        printf("seed %llu\n", (unsigned long long)seed);
}

/* ---- instruction sets ------------------------------------------------------------------------ */

static const char *const level_name[] = {"ref", "avx2", "avx512", "amx"};
static const struct {
    const char *what;
    int bf16;
    double most; /* relative L2 distance to ref */
} quantities[] = {
    {"logits", 0, 2e-6},
    {"gradients", 0, 1e-5},
    {"logits, bf16", 1, 5e-3},
    {"gradients, bf16", 1, 2e-2},
};
enum { QUANTITIES = DS_LEN(quantities), MOST = 500000 };

struct result {
    int available;
    size_t n[QUANTITIES];
    real x[QUANTITIES][MOST];
};

/* Dense, because a decision near its threshold may fall either way. */
static void compute(struct result *to)
{
    for (int i = 0; i < QUANTITIES; i += 2) {
        struct pass pass = kit_pass(PASS_TRAIN);
        struct err e = {0};
        struct model *m = model_of("dense");
        if (quantities[i].bf16)
            t_ok(weights_use(m, &(struct numeric_options){.compute = COMPUTE_BF16}, &e), &e);
        model_forward(m, &batch.b, &pass);
        to->n[i] = (size_t)(m->R * V);
        model_logits_rows(m, 0, m->R, to->x[i]);
        kit_step(m, &batch.b, &pass);
        real *grad = kit_gradients(m, &to->n[i + 1]);
        t_true(to->n[i] <= MOST && to->n[i + 1] <= MOST);
        memcpy(to->x[i + 1], grad, to->n[i + 1] * sizeof *grad);
        free(grad);
        model_free(m);
    }
}

/* In a process of its own, because the level is read once. */
static void at_level(enum cpu_level level, struct result *to)
{
    static const char *const feature[] = {NULL, "avx2", "avx512bw", "amx_bf16"};
    int pipes[2], status = 0;
    to->available = 0;
    if (feature[level] && !cpu_has(feature[level]))
        return;
    t_true(pipe(pipes) == 0);
    pid_t child = fork();
    t_true(child >= 0);
    if (child == 0) {
        setenv("DEPTHSCOPE_CPU", level_name[level], 1);
        unsetenv("DEPTHSCOPE_GEMM");
        close(pipes[0]);
        to->available = level < CPU_AMX || cpu_has_amx();
        if (to->available)
            compute(to);
        for (size_t at = 0; at < sizeof *to;) {
            ssize_t n = write(pipes[1], (const char *)to + at, sizeof *to - at);
            if (n <= 0)
                _exit(1);
            at += (size_t)n;
        }
        _exit(0);
    }
    close(pipes[1]);
    size_t at = 0;
    for (ssize_t n; at < sizeof *to && (n = read(pipes[0], (char *)to + at, sizeof *to - at)) > 0;)
        at += (size_t)n;
    close(pipes[0]);
    t_true(waitpid(child, &status, 0) == child);
    t_truef(status == 0 && at == sizeof *to, "%s: the process ended with %d", level_name[level],
            status);
}

static double distance(const real *a, const real *b, size_t n)
{
    double num = 0, den = 0;
    for (size_t i = 0; i < n; i++) {
        num += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
        den += (double)b[i] * (double)b[i];
    }
    return sqrt(num) / fmax(sqrt(den), 1e-30);
}

T(instruction_sets_agree_within_their_bounds)
{
    static struct result ref, other;
    static double most[CPU_AMX + 1][QUANTITIES];
    int rounds = 0;
    for (begin(); goes_on(rounds); rounds++, seed++) {
        at_level(CPU_REF, &ref);
        for (int level = CPU_AVX2; level <= CPU_AMX; level++) {
            at_level((enum cpu_level)level, &other);
            for (int i = 0; i < QUANTITIES; i++) {
                if (!other.available) {
                    most[level][i] = NAN;
                    continue;
                }
                double d = distance(other.x[i], ref.x[i], ref.n[i]);
                t_truef(d <= quantities[i].most && other.n[i] == ref.n[i],
                        "seed %llu: %s of %s are %.3g from ref, more than %g",
                        (unsigned long long)seed, quantities[i].what, level_name[level], d,
                        quantities[i].most);
                most[level][i] = fmax(most[level][i], d);
            }
        }
    }
    for (int level = CPU_AVX2; asked && level <= CPU_AMX; level++)
        for (int i = 0; i < QUANTITIES; i++)
            if (isnan(most[level][i]))
                printf("absent %s\n", level_name[level]), i = QUANTITIES;
            else
                printf("level %s %g %d %.3g %s\n", level_name[level], quantities[i].most, rounds,
                       most[level][i], quantities[i].what);
    if (asked)
        printf("seed %llu\n", (unsigned long long)seed);
}
