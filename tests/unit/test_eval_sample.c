/* From logits to tokens. */
#include "t.h"

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
