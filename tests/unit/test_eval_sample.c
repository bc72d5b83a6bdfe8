/* From logits to tokens. */
#include "t.h"

#include <math.h>
#include <stdlib.h>

#include "base/rng.h"
#include "models/sample.h"

static struct sampler sampler_of(int V)
{
    struct sampler s = {0};
    struct err e = {0};
    t_ok(sampler_init(&s, V, &e), &e);
    return s;
}

static int32_t pick(const real *x, int V, struct sample_options o, uint64_t step)
{
    struct sampler s = sampler_of(V);
    struct err e = {0};
    int32_t id = -1;
    t_ok(sampler_pick(&s, x, &o, step, &id, NULL, &e), &e);
    sampler_release(&s);
    return id;
}

T(temperature_zero_takes_the_most_likely_and_the_lower_id_of_two)
{
    const real x[] = {1, 3, 3, 2};
    t_eq(pick(x, 4, (struct sample_options){.top_p = 1}, 0), 1);
}

/* Running sums round otherwise than the whole sum, so that nothing may be left to pass it. */
T(a_draw_just_below_one_takes_the_last_index_with_a_weight)
{
    enum { MOST = 700, NONE = 5 };
    double p[MOST + NONE] = {0};
    for (int n = 1; n <= MOST; n++) {
        p[n - 1] = 0.1 + rng_at(1, RNG_TEST, 0, 0, (uint32_t)n);
        t_eq(sample_at(p, n + NONE, nextafter(1, 0)), n - 1);
    }
}

T(top_k_of_one_is_greedy_at_any_temperature)
{
    const real x[] = {1, 3, (real)2.9, 2};
    for (uint64_t step = 0; step < 50; step++)
        t_eq(pick(x, 4,
                  (struct sample_options){.temperature = 5, .top_k = 1, .top_p = 1, .seed = 3},
                  step),
             1);
}

T(top_p_keeps_the_smallest_set_with_the_mass)
{
    const real x[] = {(real)log(0.5), (real)log(0.3), (real)log(0.15), (real)log(0.05)};
    int seen[4] = {0};
    for (uint64_t step = 0; step < 400; step++)
        seen[pick(x, 4, (struct sample_options){.temperature = 1, .top_p = 0.79, .seed = 3},
                  step)]++;
    t_true(seen[0] > 0 && seen[1] > 0);
    t_eq(seen[2] + seen[3], 0);
}

T(shares_follow_the_softmax)
{
    const real x[] = {(real)log(0.7), (real)log(0.2), (real)log(0.1)};
    int seen[3] = {0};
    for (uint64_t step = 0; step < 4000; step++)
        seen[pick(x, 3, (struct sample_options){.temperature = 1, .top_p = 1, .seed = 11}, step)]++;
    t_near(seen[0] / 4000.0, 0.7, 0.03);
    t_near(seen[1] / 4000.0, 0.2, 0.03);
}

T(a_step_gives_its_token_whatever_came_before)
{
    const real x[] = {0, 0, 0, 0, 0, 0, 0, 0};
    struct sample_options o = {.temperature = 1, .top_p = 1, .seed = 5};
    int32_t alone = pick(x, 8, o, 17);
    for (uint64_t step = 0; step < 17; step++)
        pick(x, 8, o, step);
    t_eq(pick(x, 8, o, 17), alone);
}

T(the_probability_is_that_of_the_plain_softmax)
{
    const real x[] = {(real)log(0.7), (real)log(0.3)};
    struct sampler s = sampler_of(2);
    struct sample_options o = {.temperature = 0, .top_p = 1};
    struct err e = {0};
    int32_t id;
    double p;
    t_ok(sampler_pick(&s, x, &o, 0, &id, &p, &e), &e);
    t_near(p, 0.7, 1e-6);
    sampler_release(&s);
}

/* ---- against a sort of the whole vocabulary ---- */

struct cell {
    double w;
    int32_t id;
};

static int by_weight(const void *a, const void *b)
{
    const struct cell *x = a, *y = b;
    if (x->w != y->w)
        return x->w < y->w ? 1 : -1;
    return (x->id > y->id) - (x->id < y->id);
}

/* The definition, as in the header. */
static int32_t plainly(const real *x, int V, struct sample_options o, uint64_t step)
{
    struct cell *c = malloc((size_t)V * sizeof *c);
    double max = -(double)INFINITY, all = 0, sum = 0;
    int n = 0;
    for (int v = 0; v < V; v++)
        max = fmax(max, (double)x[v]);
    for (int v = 0; v < V; v++)
        if (!isinf(x[v]))
            c[n++] = (struct cell){exp(((double)x[v] - max) / o.temperature), v};
    int k = o.top_k > 0 && o.top_k < V ? o.top_k : V;
    if (k < n || o.top_p < 1)
        qsort(c, (size_t)n, sizeof *c, by_weight);
    n = k < n ? k : n;
    for (int i = 0; i < n; i++)
        all += c[i].w;
    for (int i = 0; i < n && o.top_p < 1; i++) {
        sum += c[i].w;
        if (sum >= o.top_p * all) {
            n = i + 1;
            break;
        }
    }
    struct rng r;
    rng_init(&r, o.seed, RNG_SAMPLE, step, 0);
    sum = 0;
    for (int i = 0; i < n; i++)
        sum += c[i].w;
    double at = rng_uniform(&r) * sum;
    int32_t id = c[n - 1].id;
    for (int i = 0; i < n; i++)
        if ((at -= c[i].w) < 0) {
            id = c[i].id;
            break;
        }
    free(c);
    return id;
}

/* kind: 0 a normal model, 1 flat, 2 many ties, 3 all ties, 4 ascending, 5 descending, 6 some that cannot come, 7 far apart. */
static void logits_of(real *x, int V, int kind, uint64_t seed)
{
    struct rng r;
    rng_init(&r, seed, RNG_TEST, (uint64_t)kind, 0);
    for (int v = 0; v < V; v++) {
        double z = rng_normal(&r);
        x[v] = (real)(kind == 0   ? 4 * z
                      : kind == 1 ? 0.01 * z
                      : kind == 2 ? floor(2 * z)
                      : kind == 3 ? 1
                      : kind == 4 ? 1e-3 * v
                      : kind == 5 ? -1e-3 * v
                      : kind == 6 ? (z > 0 ? -(double)INFINITY : z)
                                  : 300 * z);
    }
    x[V / 2] = (real)0.5;
}

T(tokens_are_those_of_a_sort_of_the_whole_vocabulary)
{
    static const int sizes[] = {1, 2, 3, 17, 255, 256, 257, 1000, 5000},
                     ks[] = {0, 1, 2, 16, 40, 300, 4999, 100000};
    static const double ps[] = {1e-6, 0.1, 0.5, 0.75, 0.9, 0.99, 0.999999, 1},
                        ts[] = {1e-300, 1e-6, 0.2, 1, 100};
    real *x = malloc(5000 * sizeof *x);
    uint64_t step = 0;
    for (size_t v = 0; v < sizeof sizes / sizeof *sizes; v++)
        for (int kind = 0; kind < 8; kind++) {
            int V = sizes[v];
            struct sampler s = sampler_of(V);
            logits_of(x, V, kind, v + 1);
            for (size_t a = 0; a < 8; a++)
                for (size_t b = 0; b < 8; b++)
                    for (size_t t = 0; t < 5; t++, step++) {
                        if (V == 5000 && (a + b + t) % 4) /* a sample of the largest */
                            continue;
                        struct sample_options o = {
                            .temperature = ts[t], .top_k = ks[a], .top_p = ps[b], .seed = 7};
                        struct err e = {0};
                        int32_t id = -1, want = plainly(x, V, o, step);
                        t_ok(sampler_pick(&s, x, &o, step, &id, NULL, &e), &e);
                        t_truef(id == want, "V=%d kind %d k=%d p=%g t=%g: %d, not %d", V, kind,
                                ks[a], ps[b], ts[t], id, want);
                    }
            sampler_release(&s);
        }
    free(x);
}

/* Every token that stays, and its share, against the definition of min_p. */
T(min_p_keeps_what_is_likely_enough_next_to_the_most_likely)
{
    static const double least[] = {1e-9, 0.02, 0.3, 1};
    enum { SIZE = 2000 };
    real *x = malloc(SIZE * sizeof *x);
    double *all = malloc(SIZE * sizeof *all), *got = malloc(SIZE * sizeof *got);
    struct sampler s = sampler_of(SIZE);
    struct err e = {0};
    for (int kind = 0; kind < 8; kind++)
        for (int k = 0; k < 8; k++) {
            struct sample_options o = {.temperature = 0.8, .top_p = k < 4 ? 1 : 0.97, .seed = 5};
            double max = 0, sum = 0;
            int32_t id = -1;
            logits_of(x, SIZE, kind, 21);
            t_ok(sampler_probs(&s, x, &o, all, &e), &e);
            o.min_p = least[k % 4];
            t_ok(sampler_probs(&s, x, &o, got, &e), &e);
            for (int v = 0; v < SIZE; v++)
                max = fmax(max, all[v]);
            for (int v = 0; v < SIZE; v++)
                sum += all[v] >= o.min_p * max * (1 - 1e-12) ? all[v] : 0;
            for (int v = 0; v < SIZE; v++)
                t_near(got[v], all[v] >= o.min_p * max * (1 - 1e-12) ? all[v] / sum : 0, 1e-12);
            for (uint64_t step = 0; step < 50; step++) {
                t_ok(sampler_pick(&s, x, &o, step, &id, NULL, &e), &e);
                t_true(got[id] > 0);
            }
        }
    sampler_release(&s);
    free(x);
    free(all);
    free(got);
}

T(llama2c_s_tokens_are_those_of_a_sort_of_what_it_keeps)
{
    enum { LARGE = 3000 };
    real *x = malloc(LARGE * sizeof *x);
    struct cell *c = malloc(LARGE * sizeof *c);
    struct sampler s = sampler_of(LARGE);
    for (int kind = 0; kind < 8; kind++)
        for (int round = 0; round < 20; round++) {
            static const double ps[] = {1e-6, 0.3, 0.9, 0.999};
            struct sample_options o = {.temperature = round % 2 ? 0.5 : 1, .top_p = ps[round % 4]};
            struct err e = {0};
            uint64_t state = (uint64_t)round + 1, same = state;
            int32_t id = -1;
            logits_of(x, LARGE, kind, 9);
            t_ok(sampler_pick_llama2c(&s, x, &o, &state, &id, &e), &e);
            /* the coin, the softmax and the cut of that program, with all of them sorted */
            same ^= same >> 12;
            same ^= same << 25;
            same ^= same >> 27;
            float coin =
                (float)((uint32_t)((same * 0x2545F4914F6CDD1DULL) >> 32) >> 8) / 16777216.0F;
            float temperature = (float)o.temperature, max = -INFINITY, sum = 0, p = (float)o.top_p;
            int n = 0, last;
            for (int v = 0; v < LARGE; v++)
                max = fmaxf(max, (float)x[v]);
            max /= temperature;
            for (int v = 0; v < LARGE; v++) {
                c[v] = (struct cell){(double)expf((float)x[v] / temperature - max), v};
                sum += (float)c[v].w;
            }
            for (int v = 0; v < LARGE; v++) {
                float w = (float)c[v].w / sum;
                if (w >= (1.0F - p) / (float)(LARGE - 1))
                    c[n++] = (struct cell){(double)w, v};
            }
            qsort(c, (size_t)n, sizeof *c, by_weight);
            float mass = 0, at = 0;
            for (last = 0; last < n; last++)
                if ((mass += (float)c[last].w) > p)
                    break;
            n = last < n ? last + 1 : n;
            int32_t want = n > 0 ? c[n - 1].id : -1;
            for (int v = 0; n == 0 && v < LARGE; v++) /* all of them below the cut */
                want = want < 0 || x[v] > x[want] ? v : want;
            for (int i = 0; i < n; i++)
                if (coin * mass < (at += (float)c[i].w)) {
                    want = c[i].id;
                    break;
                }
            t_truef(id == want, "kind %d round %d: %d, not %d", kind, round, id, want);
        }
    sampler_release(&s);
    free(x);
    free(c);
}

T(top_p_of_nothing_is_the_most_likely_token)
{
    const real x[] = {1, 3, 3, 2};
    for (uint64_t step = 0; step < 20; step++)
        t_eq(pick(x, 4, (struct sample_options){.temperature = 1, .top_p = 0, .seed = 2}, step), 1);
}

T(log_probabilities_of_damaged_logits_are_not_numbers)
{
    const real x[] = {0, NAN, -INFINITY, 1};
    struct sample_rank top[8];
    double p = 0;
    int n = sample_ranks(x, 4, 3, &p, top, 8);
    t_true(isnan(p) && n <= 4);
    const real some[] = {0, -INFINITY, 0};
    n = sample_ranks(some, 3, 1, &p, top, 8);
    t_true(n == 3 && isinf(p) && top[0].id == 0 && top[1].id == 2 && top[2].id == 1);
    t_near(top[0].logprob, log(0.5), 1e-12);
}

T(damaged_logits_are_an_error_and_minus_infinity_is_a_token_that_cannot_come)
{
    real bad[] = {0, NAN, 1}, inf[] = {0, INFINITY, 1}, none[] = {-INFINITY, -INFINITY},
         some[] = {-INFINITY, 0, -INFINITY};
    struct sampler s = sampler_of(3);
    struct sample_options o = {.temperature = 1, .top_p = 1};
    struct err e = {0};
    int32_t id;
    t_fails(sampler_pick(&s, bad, &o, 0, &id, NULL, &e), &e, DS_ENUMERIC, "token 1");
    t_fails(sampler_pick(&s, inf, &o, 0, &id, NULL, &e), &e, DS_ENUMERIC, "infinite");
    for (uint64_t step = 0; step < 20; step++)
        t_eq(pick(some, 3, (struct sample_options){.temperature = 9, .top_p = 1}, step), 1);
    sampler_release(&s);
    s = sampler_of(2);
    t_fails(sampler_pick(&s, none, &o, 0, &id, NULL, &e), &e, DS_ENUMERIC, "finite");
    sampler_release(&s);
}
