/* Two probes of one text: alignment of tokens, difference of decisions, divergence of predictions. */
#include <math.h>
#include <string.h>

#include "io/record.h"
#include "t.h"
#include "tui/compare.h"

enum { L = 3 };

/* A probe of the given pieces, "|" between them; run: L rows of '1' and '0'; nll: t / 2 nats. */
static struct runview *probe_of(const char *text, const char *run, int layers)
{
    struct record *r = record_new();
    struct runview *v = NULL;
    const char *piece[32];
    size_t len[32], n = 0;
    int32_t id[32];
    float nll[32], flops[32];
    unsigned char bits[32 * 8];
    for (const char *p = text; *p || p == text; n++) {
        piece[n] = p;
        len[n] = strcspn(p, "|");
        id[n] = 0;
        for (size_t i = 0; i < len[n]; i++)
            id[n] = (id[n] * 131 + p[i]) & 0xFFFF;
        nll[n] = n ? (float)n / 2 : NAN;
        flops[n] = 50;
        p += len[n] + (p[len[n]] == '|');
    }
    for (size_t i = 0; i < (size_t)layers * n; i++)
        bits[i] = run ? run[i] == '1' : 1;
    t_true(r != NULL);
    record_begin(r, "probe", 0, 0);
    record_int(r, "layers", layers);
    record_i32s(r, "ids", id, n);
    record_pieces(r, "text", piece, len, n);
    record_bytes(r, "run", bits, (size_t)layers * n);
    record_f32s(r, "nll", nll, n);
    record_f32s(r, "flops", flops, n);
    record_num(r, "flops_dense", 100);
    worker_replace_by(&v, r);
    record_free(r);
    t_true(worker_probe(v) != NULL);
    return v;
}

struct two {
    struct runview *v[2];
    const struct probe *a, *b;
    struct compare_match m;
    char why[200];
    int rc;
};

static struct two align(const char *a, const char *b)
{
    struct two x = {.v = {probe_of(a, NULL, L), probe_of(b, NULL, L)}};
    x.a = worker_probe(x.v[0]);
    x.b = worker_probe(x.v[1]);
    x.rc = compare_align(&x.m, x.a, x.b, x.why, sizeof x.why);
    return x;
}

static void release(struct two *x)
{
    compare_match_release(&x->m);
    runview_free(x->v[0]);
    runview_free(x->v[1]);
}

static void groups_are(const struct two *x, const char *want)
{
    char got[200] = "";
    size_t n = 0;
    for (int g = 0; g < x->m.groups; g++) {
        const struct compare_group *k = &x->m.group[g];
        n += (size_t)snprintf(got + n, sizeof got - n, "%s%d+%d:%d+%d", g ? " " : "", k->first[0],
                              k->n[0], k->first[1], k->n[1]);
    }
    t_str(got, want);
}

T(equal_tokens_are_aligned_one_to_one)
{
    struct two x = align("The| cat| sat", "The| cat| sat");
    t_eq(x.rc, 1);
    t_true(x.m.is_exact);
    groups_are(&x, "0+1:0+1 1+1:1+1 2+1:2+1");
    release(&x);
}

T(other_tokenizers_are_aligned_where_both_end_a_token)
{
    struct two x = align("The| c|at| sat", "Th|e| cat| s|at");
    t_eq(x.rc, 1);
    t_true(!x.m.is_exact);
    groups_are(&x, "0+1:0+2 1+2:2+1 3+1:3+2");
    t_eq(compare_group_at(&x.m, 0, 2), 1);
    t_eq(compare_group_at(&x.m, 1, 4), 2);
    release(&x);
    x = align("abc|d", "a|bcd"); /* no common end but the last */
    groups_are(&x, "0+2:0+2");
    release(&x);
}

T(a_begin_token_or_a_leading_space_of_one_side_is_left_out)
{
    struct two x = align("<s>|The| cat", "The| c|at");
    t_eq(x.rc, 1);
    groups_are(&x, "1+1:0+1 2+1:1+2");
    release(&x);
    x = align(" The| cat", "The| cat");
    t_eq(x.rc, 1);
    groups_are(&x, "0+1:0+1 1+1:1+1");
    release(&x);
    x = align("<s>| The| cat", "The cat");
    t_eq(x.rc, 1);
    groups_are(&x, "1+2:0+1");
    release(&x);
}

T(tokens_without_bytes_join_a_group)
{
    struct two x = align("The||| cat||", "The| cat");
    t_eq(x.rc, 1);
    int tokens = 0;
    for (int g = 0; g < x.m.groups; g++)
        tokens += x.m.group[g].n[0];
    t_eq(tokens, x.a->tokens);
    t_eq(x.m.groups, 2);
    release(&x);
}

T(different_texts_are_refused_with_the_place)
{
    struct two x = align("The| cat", "The| dog");
    t_eq(x.rc, 0);
    t_eq(x.m.groups, 0);
    t_truef(strstr(x.why, "up to byte 4") != NULL, "%s", x.why);
    release(&x);
    x = align("The| cat| sat", "The| cat"); /* a longer one is another text */
    t_eq(x.rc, 0);
    t_truef(strstr(x.why, "A has 11 bytes, B 7") != NULL, "%s", x.why);
    release(&x);
}

T(the_difference_is_b_minus_a_and_the_next_one_is_found_around_the_ends)
{
    struct runview *va = probe_of("a|b|c|d",
                                  "1111"
                                  "0000"
                                  "1111",
                                  L),
                   *vb = probe_of("a|b|c|d",
                                  "1111"
                                  "0100"
                                  "1110",
                                  L);
    const struct probe *a = worker_probe(va), *b = worker_probe(vb);
    struct compare_match m;
    char why[200];
    t_eq(compare_align(&m, a, b, why, sizeof why), 1);
    t_near(compare_difference(&m, a, b, 1, 1), 1, 0);
    t_near(compare_difference(&m, a, b, 3, 2), -1, 0);
    t_near(compare_difference(&m, a, b, 0, 0), 0, 0);
    t_near(compare_difference(&m, a, b, 1, -1), 1.0 / 3, 1e-12);
    t_eq(compare_next(&m, a, b, 0, 1), 1);
    t_eq(compare_next(&m, a, b, 1, 1), 3);
    t_eq(compare_next(&m, a, b, 3, 1), 1);
    t_eq(compare_next(&m, a, b, 1, -1), 3);
    t_eq(compare_next(&m, a, a, 1, 1), -1);
    struct compare_total x = compare_total(&m, a, b);
    t_eq(x.differ, 2);
    t_eq(x.compared, 12);
    t_near(x.run[0], 8.0 / 12, 1e-12);
    t_near(x.run[1], 8.0 / 12, 1e-12);
    t_near(x.loss[0], (0.5 + 1 + 1.5) / 3, 1e-6);
    t_near(x.flops[1], 0.5, 1e-9);
    compare_match_release(&m);
    runview_free(va);
    runview_free(vb);
}

T(models_of_other_depths_are_compared_by_their_share_of_layers)
{
    struct runview *va = probe_of("a|b",
                                  "11"
                                  "01",
                                  2),
                   *vb = probe_of("a|b",
                                  "11"
                                  "11"
                                  "00"
                                  "00",
                                  4);
    const struct probe *a = worker_probe(va), *b = worker_probe(vb);
    struct compare_match m;
    char why[200];
    t_eq(compare_align(&m, a, b, why, sizeof why), 1);
    t_near(compare_difference(&m, a, b, 0, 0), 0, 1e-12);
    t_near(compare_difference(&m, a, b, 1, 1), -0.5, 1e-12);
    t_eq(compare_next(&m, a, b, 1, 1), 1);
    t_eq(compare_total(&m, a, b).compared, 2);
    compare_match_release(&m);
    runview_free(va);
    runview_free(vb);
}

T(losses_of_other_tokenizers_are_per_byte)
{
    struct two x = align("ab|cd", "a|b|cd");
    struct compare_total t = compare_total(&x.m, x.a, x.b);
    /* the first group has no loss: nothing comes before its first token */
    t_near(t.loss[0], 0.5 / 2, 1e-6);
    t_near(t.loss[1], 1.0 / 2, 1e-6);
    struct compare_values v = compare_values(&x.m, x.b, 1, 1);
    t_near(v.nll, 1, 1e-6);
    t_near(v.flops, 0.5, 1e-9);
    release(&x);
    x = align("<s>| ab|cd", "<s>|a|b|cd"); /* the space that one vocabulary puts there is no byte */
    t = compare_total(&x.m, x.a, x.b);
    t_near(t.loss[0], (0.5 + 1) / 4, 1e-6);
    t_near(t.loss[1], (0.5 + 1 + 1.5) / 4, 1e-6);
    release(&x);
}

/* ---- divergence ---- */

enum { V = 6, K = 3 };

/* Two tokens; the lens of the last of two layers holds the K likeliest of p, for the second. */
static struct runview *lens_of(const double *p, const float *kl)
{
    struct record *r = record_new();
    struct runview *v = NULL;
    const char *piece[2] = {"a", "b"};
    size_t len[2] = {1, 1};
    int32_t id[2] = {1, 2}, lens[4 * K] = {0};
    float q[4 * K] = {0};
    unsigned char run[4] = {1, 1, 1, 1};
    for (int k = 0; k < K; k++) {
        int best = -1;
        for (int i = 0; i < V; i++) {
            int taken = 0;
            for (int j = 0; j < k; j++)
                taken |= lens[2 * K + j] == i;
            if (!taken && (best < 0 || p[i] > p[best]))
                best = i;
        }
        lens[2 * K + k] = best; /* layer 1, token 0 predicts token 1 */
        q[2 * K + k] = (float)p[best];
    }
    record_begin(r, "probe", 0, 0);
    record_int(r, "layers", 2);
    record_i32s(r, "ids", id, 2);
    record_pieces(r, "text", piece, len, 2);
    record_bytes(r, "run", run, 4);
    if (kl) {
        record_map(r, "token");
        record_f32s(r, "kl", kl, 2);
        record_close(r);
    }
    record_int(r, "lens_k", K);
    record_i32s(r, "lens_id", lens, 4 * K);
    record_f32s(r, "lens_p", q, 4 * K);
    worker_replace_by(&v, r);
    record_free(r);
    return v;
}

static double whole_kl(const double *p, const double *q)
{
    double kl = 0;
    for (int i = 0; i < V; i++)
        kl += p[i] * log(p[i] / q[i]);
    return kl;
}

T(the_divergence_of_truncated_predictions_is_a_lower_bound)
{
    static const double p[][V] = {{0.5, 0.2, 0.1, 0.1, 0.05, 0.05},
                                  {0.5, 0.2, 0.1, 0.1, 0.05, 0.05},
                                  {0.9, 0.02, 0.02, 0.02, 0.02, 0.02},
                                  {0.3, 0.3, 0.2, 0.1, 0.05, 0.05}},
                        q[][V] = {{0.5, 0.2, 0.1, 0.1, 0.05, 0.05},
                                  {0.1, 0.3, 0.4, 0.1, 0.05, 0.05},
                                  {0.02, 0.02, 0.02, 0.02, 0.02, 0.9},
                                  {0.05, 0.05, 0.1, 0.3, 0.2, 0.3}};
    for (size_t i = 0; i < DS_LEN(p); i++) {
        struct runview *a = lens_of(p[i], NULL), *b = lens_of(q[i], NULL);
        struct compare_match m;
        char why[200];
        int is_bound = 0;
        t_eq(compare_align(&m, worker_probe(a), worker_probe(b), why, sizeof why), 1);
        double kl = compare_kl(&m, worker_probe(a), worker_probe(b), 1, &is_bound);
        t_true(is_bound);
        t_truef(kl <= whole_kl(p[i], q[i]) + 1e-6 && kl >= 0, "%g of %g", kl, whole_kl(p[i], q[i]));
        if (i == 1) /* the lists share three tokens; {0.5, 0.2, 0.1, rest 0.2} */
            t_near(kl, 0.5 * log(5) + 0.2 * log(0.2 / 0.3) + 0.1 * log(0.1 / 0.4), 1e-5);
        t_true(isnan(compare_kl(&m, worker_probe(a), worker_probe(b), 0, &is_bound)));
        compare_match_release(&m);
        runview_free(a);
        runview_free(b);
    }
}

T(a_recorded_divergence_is_taken_as_it_is)
{
    static const double p[V] = {0.5, 0.2, 0.1, 0.1, 0.05, 0.05};
    const float kl[2] = {NAN, 0.25f};
    struct runview *a = lens_of(p, kl), *b = lens_of(p, NULL);
    struct compare_match m;
    char why[200];
    int is_bound = 1;
    t_eq(compare_align(&m, worker_probe(a), worker_probe(b), why, sizeof why), 1);
    t_near(compare_kl(&m, worker_probe(a), worker_probe(b), 1, &is_bound), 0.25, 0);
    t_eq(is_bound, 0);
    struct compare_total t = compare_total(&m, worker_probe(a), worker_probe(b));
    t_near(t.kl, 0.25, 0);
    t_eq(t.is_bound, 0);
    compare_match_release(&m);
    runview_free(a);
    runview_free(b);
}

/* ---- settings ---- */

static struct runview *head_of(const char *const (*config)[2], size_t n)
{
    struct record *r = record_new();
    struct runview *v = NULL;
    record_begin(r, "head", 0, 0);
    record_int(r, "layers", 2);
    record_map(r, "config");
    for (size_t i = 0; i < n; i++)
        record_str(r, config[i][0], config[i][1]);
    record_close(r);
    worker_replace_by(&v, r);
    record_free(r);
    return v;
}

T(only_settings_that_differ_are_listed_by_key)
{
    static const char *const a[][2] = {
        {"train.steps", "100"}, {"seed", "1"}, {"model.dim", "64"}, {"edp.kv", "plan"}};
    static const char *const b[][2] = {
        {"seed", "2"}, {"model.dim", "64"}, {"train.steps", "60"}, {"mod.capacity", "0.5"}};
    struct runview *x = head_of(a, 4), *y = head_of(b, 4);
    struct compare_setting s[8];
    t_eq(compare_settings(x, y, s, 8), 4);
    t_str(s[0].key, "edp.kv");
    t_str(s[0].value[0], "plan");
    t_true(s[0].value[1] == NULL);
    t_str(s[1].key, "mod.capacity");
    t_true(s[1].value[0] == NULL);
    t_str(s[1].value[1], "0.5");
    t_str(s[2].key, "seed");
    t_str(s[2].value[0], "1");
    t_str(s[2].value[1], "2");
    t_str(s[3].key, "train.steps");
    t_eq(compare_settings(x, x, s, 8), 0);
    t_eq(compare_settings(x, y, s, 1), 4); /* the number of all */
    runview_free(x);
    runview_free(y);
}
