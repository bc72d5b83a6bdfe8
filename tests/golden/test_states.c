/* Hidden states of tiny models compared with PyTorch's: our error against its float64 is at most
 * twice that of its own float32.  `transformers_hf.py golden tests/golden/states` writes them. */
#include "base/fs.h"
#include "base/json.h"
#include "kit.h"
#include "models/load.h"

enum { TOKENS_MAX = 64, ITEMS_MAX = 4096 };

static const struct st_tensor *state(struct st *s, const char *kind, const char *name)
{
    char full[64];
    snprintf(full, sizeof full, "%s.%s", kind, name);
    const struct st_tensor *t = st_find(s, full);
    t_truef(t != NULL, "%s is missing", full);
    return t;
}

static void compare(struct st *s, const char *model, const char *name, const real *x, size_t n)
{
    static double exact[ITEMS_MAX], theirs[ITEMS_MAX], ours[ITEMS_MAX];
    struct err e = {0};
    t_true(n <= ITEMS_MAX);
    t_ok(st_read_f64(state(s, "f64", name), exact, n, &e), &e);
    t_ok(st_read_f64(state(s, "f32", name), theirs, n, &e), &e);
    for (size_t i = 0; i < n; i++)
        ours[i] = (double)x[i];
    double a = t_rel_l2(ours, exact, n), b = t_rel_l2(theirs, exact, n);
    t_truef(a <= 2 * b, "%s, %s: error %.3g, PyTorch's %.3g", model, name, a, b);
    t_truef(b > 1e-9 && b < 1e-5, "%s, %s: PyTorch's error is %.3g", model, name, b);
}

static void compare_block(struct st *s, const char *model, const struct model *m, int l)
{
    const struct block_work *w = &m->work[l];
    size_t R = (size_t)m->R, C = (size_t)m->config.dim, D = (size_t)m->config.head_dim;
    const struct {
        const char *name;
        const real *x;
        size_t width;
    } of[] = {
        {"xn", w->xn, C},
        {"v", w->v, (size_t)m->config.kv_heads * D},
        {"att", w->att, (size_t)m->config.heads * D},
        {"u", w->u, C},
        {"un", w->un, C},
        {"hid", w->hid, (size_t)m->config.ffn},
        {"h", m->stream.h[l + 1], C},
    };
    for (size_t i = 0; i < DS_LEN(of); i++) {
        char name[32];
        int is_norm = of[i].x == w->xn || of[i].x == w->u || of[i].x == w->un;
        if (is_norm && m->block[l].norm1 < 0) /* the file has no such norm */
            continue;
        if (of[i].x == w->u && m->config.parallel) /* the block's input */
            continue;
        snprintf(name, sizeof name, "%d.%s", l, of[i].name);
        compare(s, model, name, of[i].x, R * of[i].width);
    }
}

static void golden(const char *name)
{
    char dir[256], path[300];
    struct err e = {0};
    struct model *m = NULL;
    struct st *s = NULL;
    struct json *ids = NULL;
    int32_t id[TOKENS_MAX], none[TOKENS_MAX];
    struct pass pass = {.kind = PASS_DENSE};
    snprintf(dir, sizeof dir, "tests/golden/states/%s", name);
    t_ok(model_open(&m, dir, NULL, MODEL_TRAIN, &e), &e);
    snprintf(path, sizeof path, "%s/states.safetensors", dir);
    t_ok(st_open(&s, path, &e), &e);
    snprintf(path, sizeof path, "%s/ids.json", dir);
    t_ok(json_read_file(&ids, path, 1 << 16, &e), &e);
    int n = (int)json_len(json_root(ids)), V = (int)m->config.vocab;
    t_true(n > 0 && n <= TOKENS_MAX);
    for (int i = 0; i < n; i++) {
        id[i] = (int32_t)json_int(json_at(json_root(ids), (size_t)i), -1);
        none[i] = -1;
    }
    struct batch b = {.B = 1, .T = n, .id = id, .target = none};
    t_ok(model_reserve(m, n, 1, 1, &e), &e);
    model_forward(m, &b, &pass);
    for (int l = 0; l < m->config.layers; l++)
        compare_block(s, name, m, l);
    real *x = malloc((size_t)n * (size_t)V * sizeof *x);
    model_final_states(m, x);
    compare(s, name, "xf", x, (size_t)n * (size_t)m->config.dim);
    for (int i = 0; i < n; i++)
        model_logits(m, i, x + (size_t)i * (size_t)V);
    compare(s, name, "logits", x, (size_t)n * (size_t)V);
    free(x);
    json_free(ids);
    st_close(s);
    model_free(m);
}

T(the_states_of_a_llama_match_pytorch)
{
    golden("llama");
}

T(the_states_of_a_qwen2_match_pytorch)
{
    golden("qwen2-tied");
}

T(the_states_of_a_mistral_match_pytorch)
{
    golden("mistral");
}

T(the_states_of_newer_families_match_pytorch)
{
    golden("qwen3-tied");
    golden("gemma2");
    golden("gemma3");
    golden("olmo2");
    golden("smollm3-window");
    golden("phi3-long");
}

T(the_states_of_parallel_blocks_match_pytorch)
{
    golden("gpt-neox");
    golden("stablelm-parallel");
}

T(the_states_of_a_gpt2_match_pytorch)
{
    golden("gpt2");
}
