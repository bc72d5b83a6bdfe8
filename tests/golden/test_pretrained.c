/* Third-party models continue texts as their own library does: ids, and logits within its printed digits. */
#include "base/json.h"
#include "kit.h"
#include "models/load.h"

enum { MAX = 1024 };

static int ids_of(const struct json_node *list, int32_t *id)
{
    int n = (int)json_len(list);
    t_true(n > 0 && n <= MAX);
    for (int i = 0; i < n; i++)
        id[i] = (int32_t)json_int(json_at(list, (size_t)i), -1);
    return n;
}

static void top_is(struct model *m, const int32_t *id, int n, const struct json_node *top)
{
    struct err e = {0};
    struct kv_cache *cache = NULL;
    struct pass pass = {.kind = PASS_DENSE};
    real *logits = malloc((size_t)m->config.vocab * sizeof *logits);
    t_ok(kv_cache_new(&cache, m, n, &e), &e);
    t_ok(model_decode(m, cache, id, n, &pass, &e), &e);
    model_logits(m, n - 1, logits);
    for (size_t i = 0; i < json_len(top); i++) {
        int best = kit_best(logits, (int)m->config.vocab);
        t_eq(best, json_int(json_at(json_at(top, i), 0), -1));
        t_near(logits[best], json_num(json_at(json_at(top, i), 2), 0), 1e-4);
        logits[best] = -INFINITY;
    }
    t_true(json_len(top) == 5);
    kv_cache_free(cache);
    free(logits);
}

static void greedy_is(const char *dir, const char *kind)
{
    char golden[1024], model[1024];
    struct err e = {0};
    struct json *j = NULL;
    struct model *m = NULL;
    int32_t prompt[MAX], want[MAX], got[MAX];
    snprintf(golden, sizeof golden, "%s", t_shared("derived/golden/TinyStories-656K.greedy.json"));
    snprintf(model, sizeof model, "%s", t_shared(dir));
    t_ok(json_read_file(&j, golden, 1 << 24, &e), &e);
    t_ok(model_open(&m, model, NULL, MODEL_INFERENCE, &e), &e);
    t_ok(model_reserve(m, 512, 0, 0, &e), &e);
    const struct json_node *cases = json_get(json_root(j), kind);
    t_true(json_len(cases) > 0);
    for (size_t i = 0; i < json_len(cases); i++) {
        const struct json_node *x = json_at(cases, i);
        int n = ids_of(json_get(x, "prompt_ids"), prompt),
            more = ids_of(json_get(x, "greedy_ids"), want);
        top_is(m, prompt, n, json_get(x, "top5_after_prompt"));
        kit_generate(m, prompt, n, got, more);
        for (int k = 0; k < more; k++)
            t_truef(got[k] == want[k], "text %zu, token %d: %d, theirs %d", i, k, (int)got[k],
                    (int)want[k]);
    }
    model_free(m);
    json_free(j);
}

T(tinystories_of_floats_continues_as_published)
{
    greedy_is("weights/TinyStories-656K-f32", "f32");
}

T(tinystories_of_bfloat16_continues_as_published)
{
    greedy_is("weights/TinyStories-656K-bf16", "bf16");
}
