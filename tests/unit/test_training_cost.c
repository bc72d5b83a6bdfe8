/* What a step is said to cost, against counts by hand. */
#include "t.h"

#include "training/cost.h"

static struct train_cost cost(const char *const *setting, size_t n, struct train_cost_cache *cache)
{
    struct train_config c;
    struct train_cost out;
    struct err e = {0};
    t_ok(train_config_make(&c, NULL, 0, setting, n, &e), &e);
    t_ok(train_cost(&out, &c, cache, &e), &e);
    train_config_release(&c);
    return out;
}

#define BASE                                                                                       \
    "model.layers=6", "model.dim=32", "model.heads=2", "model.ffn=64", "data.tokenizer=bytes",     \
        "data.docs=20", "train.batch=3", "train.seq=16", "data.val_fraction=0.2"

T(dense_is_three_times_its_forward_with_the_real_vocabulary)
{
    static const char *const s[] = {BASE, "model.method=dense", "model.vocab=5000"};
    struct train_cost_cache cache = {0};
    struct train_cost c = cost(s, DS_LEN(s), &cache);
    /* q, k, v, o: 4 matrices; attention: 8.5 keys on average; MLP: 3; head: 257 ids of the bytes */
    double layer = 2 * 4 * 32 * 32 + 4 * 8.5 * 32 + 2 * 3 * 32 * 64, head = 2 * 32 * 257;
    t_eq(cache.vocab, 257);
    t_eq(c.tokens, 48);
    t_near(c.flops, 3 * 48 * (6 * layer + head), 1);
    t_near(c.dense, c.flops, 1);
    t_eq(c.parameters, 6 * (4 * 32 * 32 + 3 * 32 * 64 + 2 * 32) + 32);
}

/* Neither embedding, head nor position table is in the number of parameters that sizes are compared
 * by, whatever is tied and however many rows the head has. */
T(parameters_are_those_of_the_blocks)
{
    static const char *const extra[][2] = {{"model.tied=true", "model.position=rope"},
                                           {"model.tied=false", "model.position=learned"},
                                           {"model.tied=false", "model.outputs=3-9"}};
    for (size_t i = 0; i < DS_LEN(extra); i++) {
        const char *const s[] = {BASE, "model.method=dense", "model.vocab=257", extra[i][0],
                                 extra[i][1]};
        struct train_cost_cache cache = {0};
        struct train_config c;
        struct train_size size;
        struct err e = {0};
        int64_t blocks = 6 * (4 * 32 * 32 + 3 * 32 * 64 + 2 * 32) + 32;
        t_eq(cost(s, DS_LEN(s), &cache).parameters, blocks);
        t_ok(train_config_make(&c, NULL, 0, s, DS_LEN(s), &e), &e);
        train_config_size(&size, &c);
        t_eq(size.non_embedding, blocks);
        train_config_release(&c);
    }
}

T(methods_that_train_on_all_rows_cost_them_and_those_that_skip_do_not)
{
    static const char *const all[] = {BASE, "model.method=edp"};
    static const char *const sparse[] = {BASE, "model.method=static", "static.train=sparse",
                                         "static.target_ratio=0.5"};
    static const char *const masked[] = {BASE, "model.method=static", "static.train=masked"};
    struct train_cost_cache cache = {0};
    struct train_cost a = cost(all, DS_LEN(all), &cache);
    struct train_cost s = cost(sparse, DS_LEN(sparse), &cache);
    struct train_cost m = cost(masked, DS_LEN(masked), &cache);
    t_true(a.flops > a.dense && a.flops < 1.05 * a.dense); /* its decisions come on top */
    t_near(m.flops, m.dense, 1);
    /* half of the blocks; K and V of skipped rows and the head remain */
    double kept = 3 * 48 * (3 * 2 * 2 * 32 * 32 + 2 * 32 * 257);
    t_true(s.flops > 0.5 * s.dense && s.flops < 0.5 * s.dense + kept);
}

T(a_cost_follows_the_schedule_of_its_target)
{
    static const char *const slow[] = {BASE, "model.method=random", "random.train=sparse",
                                       "random.anneal=1", "random.target_ratio=0.5"};
    static const char *const fast[] = {BASE, "model.method=random", "random.train=sparse",
                                       "random.anneal=0", "random.target_ratio=0.5"};
    struct train_cost_cache cache = {0};
    t_true(cost(slow, DS_LEN(slow), &cache).flops > 1.1 * cost(fast, DS_LEN(fast), &cache).flops);
}

static int ask(const char *const *setting, size_t n, struct err *e)
{
    struct train_cost_cache cache = {0};
    struct train_config c;
    struct train_cost out;
    t_ok(train_config_make(&c, NULL, 0, setting, n, e), e);
    int rc = train_cost(&out, &c, &cache, e);
    train_config_release(&c);
    return rc;
}

T(a_teacher_costs_what_is_not_counted)
{
    static const char *const with[] = {BASE, "model.method=edp", "train.teacher=self"};
    static const char *const without[] = {BASE, "model.method=edp", "train.teacher=self",
                                          "train.no_kd=true"};
    struct err e = {0};
    t_fails(ask(with, DS_LEN(with), &e), &e, DS_EUSAGE,
            "train.teacher=self: the teacher's forward");
    e = (struct err){0};
    t_ok(ask(without, DS_LEN(without), &e), &e);
}

T(texts_that_are_not_there_are_one_line)
{
    static const char *const s[] = {BASE, "data.path=nowhere.txt"};
    struct train_cost_cache cache = {0};
    struct train_config c;
    struct train_cost out;
    struct err e = {0};
    t_ok(train_config_make(&c, NULL, 0, s, DS_LEN(s), &e), &e);
    t_fails(train_cost(&out, &c, &cache, &e), &e, DS_EIO, "nowhere.txt");
    train_config_release(&c);
}
