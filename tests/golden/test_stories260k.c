/* llama2.c's stories260K: greedy ids and logits must match the reference program's. */
#include "kit.h"

#include "base/fs.h"
#include "base/json.h"
#include "base/mem.h"
#include "eval/perplexity.h"
#include "eval/perplexity_windows.h"
#include "eval/generation.h"
#include "models/load.h"

static struct err err;

static struct model *open_stories(int rows)
{
    struct model *m = NULL;
    char dir[512];
    const char *path = t_shared("weights/stories260K/stories260K.bin");
    t_ok(model_locate(path, dir, sizeof dir, &err), &err);
    t_str(dir, path);
    t_ok(model_open(&m, dir, NULL, MODEL_INFERENCE, &err), &err);
    t_ok(model_reserve(m, rows, 0, 0, &err), &err);
    return m;
}

/* The reference also sums in float, in another order. */
static void check_step(const struct json_node *step, const real *logits, int V)
{
    const struct json_node *first = json_get(step, "logits8");
    int best = kit_best(logits, V);
    double sum = 0;
    for (int v = 0; v < V; v++)
        sum += exp((double)logits[v] - (double)logits[best]);
    t_eq(best, json_int(json_get(step, "argmax"), -1));
    t_near(logits[best], json_num(json_get(step, "logit_max"), 0), 1e-3);
    t_near(-log(sum), json_num(json_get(step, "logprob_next"), 1), 1e-4);
    t_eq(json_len(first), 8);
    for (size_t i = 0; i < 8; i++)
        t_near(logits[i], json_num(json_at(first, i), 1e9), 1e-3);
}

T(stories260k_continues_as_the_reference_does)
{
    struct json *j = NULL;
    struct kv_cache *cache = NULL;
    struct pass pass = {.kind = PASS_SPARSE};
    const char *golden = t_shared("derived/golden/stories260K.greedy.json");
    t_ok(json_read_file(&j, golden, 1 << 20, &err), &err);
    const struct json_node *steps = json_get(json_root(j), "steps");
    int n = (int)json_len(steps);
    struct model *m = open_stories(1);
    real *logits = malloc((size_t)m->config.vocab * sizeof *logits);
    t_true(n > 100);
    t_ok(kv_cache_new(&cache, m, n, &err), &err);
    int32_t id = 1;
    for (int i = 0; i < n; i++) {
        const struct json_node *step = json_at(steps, (size_t)i);
        t_eq(id, json_int(json_get(step, "in"), -1));
        t_ok(model_decode(m, cache, &id, 1, &pass, &err), &err);
        model_logits(m, 0, logits);
        check_step(step, logits, (int)m->config.vocab);
        id = kit_best(logits, (int)m->config.vocab);
    }
    free(logits);
    kv_cache_free(cache);
    model_free(m);
    json_free(j);
}

T(stories260k_has_the_shape_of_its_header)
{
    struct model *m = open_stories(8);
    t_eq(m->config.dim, 64);
    t_eq(m->config.ffn, 172);
    t_eq(m->config.layers, 5);
    t_eq(m->config.heads, 8);
    t_eq(m->config.kv_heads, 4);
    t_eq(m->config.vocab, 512);
    t_eq(m->config.max_seq, 512);
    t_true(m->config.tied);
    model_free(m);
}

/* Its published validation loss is 1.2968.  `depthscope eval stories260K.bin
 * data.path=tinystories_val.txt data.docs=500 windows=documents` gives the same. */
T(stories260k_predicts_the_first_500_stories_as_measured)
{
    struct subject s;
    struct ppl_options o = {0};
    struct ppl_result r;
    t_ok(subject_open(&s, t_shared("weights/stories260K/stories260K.bin"), NULL, &err), &err);
    t_ok(opt_defaults(&ppl_group, &o, &err), &err);
    mem_free(o.path);
    o.path = mem_strdup(t_shared("derived/tinystories_val.txt"));
    o.docs = 500;
    o.windows = WINDOWS_DOCUMENTS;
    o.time_rounds = o.controls = 0;
    t_ok(ppl_run(&r, &s, &o, &err), &err);
    t_eq(r.seq, 512);
    t_eq(r.windows, 500);
    t_eq(r.measure.tokens, 179243);
    t_near(measure_loss(&r.measure), 1.2969, 5e-4);
    t_near(measure_bits_per_byte(&r.measure), measure_loss(&r.measure) * 179243 / 371062 / log(2),
           1e-9);
    ppl_result_release(&r);
    opt_release(&ppl_group, &o);
    subject_close(&s);
}
/* The text as the reference prints it, with a trailing newline. */
static void tells(double temperature, double top_p, int64_t seed, const char *golden)
{
    struct subject s;
    struct ids prompt = {0};
    struct gen_result r;
    struct str want = {0};
    struct gen_options o = {0};
    t_ok(opt_defaults(&gen_group, &o, &err), &err);
    o.temperature = temperature;
    o.top_p = top_p;
    o.seed = seed;
    o.max_tokens = 256;
    o.time_rounds = 0;
    o.sampler = GEN_SAMPLER_LLAMA2C;
    t_ok(subject_open(&s, t_shared("weights/stories260K/stories260K.bin"), NULL, &err), &err);
    t_ok(gen_prompt(&s, "", 0, &prompt, &err), &err);
    t_ok(gen_run(&r, &s, &prompt, 1, &o, NULL, NULL, &err), &err);
    t_ok(fs_read_file(&want, t_shared(golden), 1 << 20, &err), &err);
    str_add(&r.text, "\n");
    t_str(str_text(&r.text), str_text(&want));
    gen_result_release(&r);
    ids_release(&prompt);
    str_release(&want);
    subject_close(&s);
    opt_release(&gen_group, &o);
}

T(stories260k_generates_the_published_story_of_its_seed)
{
    tells(1, 0.9, 133742, "derived/golden/stories260K.t1.0_p0.9_s133742.txt");
}

T(stories260k_generates_the_greedy_story)
{
    tells(0, 0.9, 1, "derived/golden/stories260K.greedy.txt");
}
