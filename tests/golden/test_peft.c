/* Adapter directories written by Hugging Face `peft` 0.21 (tests/golden/peft_hf.py golden): equal logits here, after
 * being saved again, and merged. */
#include "kit.h"

#include "base/json.h"
#include "models/load.h"
#include "models/peft.h"

enum { IDS = 10, VOCAB = 16 };
#define ROOT "tests/golden/peft/"

static const char *const cases[] = {"patterns",  "dora", "dora-rslora", "bias-all", "bias-lora",
                                    "lora-bias", "save", "save-tied",   "layers"};

static void logits(struct model *m, real out[IDS * VOCAB], int adapters_off)
{
    struct json *j = NULL;
    struct err e = {0};
    int32_t id[IDS];
    struct batch b = {.B = 1, .T = IDS, .id = id};
    struct pass pass = {.kind = PASS_DENSE, .adapters_off = adapters_off};
    t_ok(json_read_file(&j, ROOT "ids.json", 1 << 16, &e), &e);
    t_eq(json_len(json_root(j)), IDS);
    for (int i = 0; i < IDS; i++)
        id[i] = (int32_t)json_int(json_at(json_root(j), (size_t)i), -1);
    json_free(j);
    t_ok(model_reserve(m, IDS, 0, 0, &e), &e);
    model_forward(m, &b, &pass);
    for (int i = 0; i < IDS; i++)
        model_logits(m, i, out + i * VOCAB);
}

static double farthest(const real *a, const real *b)
{
    double most = 0;
    for (int i = 0; i < IDS * VOCAB; i++)
        most = fmax(most, fabs((double)a[i] - (double)b[i]));
    return most;
}

static void expected(const char *name, real out[IDS * VOCAB])
{
    char path[200];
    struct json *j = NULL;
    struct err e = {0};
    snprintf(path, sizeof path, ROOT "%s/logits.json", name);
    t_ok(json_read_file(&j, path, 1 << 16, &e), &e);
    for (int i = 0; i < IDS * VOCAB; i++)
        out[i] = (real)json_num(
            json_at(json_at(json_root(j), (size_t)(i / VOCAB)), (size_t)(i % VOCAB)), NAN);
    json_free(j);
}

static struct model *opened(const char *dir)
{
    struct err e = {0};
    struct model *m = NULL;
    t_ok(model_open(&m, dir, NULL, MODEL_INFERENCE, &e), &e);
    return m;
}

T(adapters_written_by_peft_have_its_logits)
{
    for (size_t i = 0; i < DS_LEN(cases); i++) {
        char dir[200];
        real want[IDS * VOCAB], have[IDS * VOCAB];
        snprintf(dir, sizeof dir, ROOT "%s", cases[i]);
        expected(cases[i], want);
        struct model *m = opened(dir);
        logits(m, have, 0);
        t_truef(farthest(have, want) <= 1e-5, "%s: %g", cases[i], farthest(have, want));
        logits(m, have, 1);
        t_truef(farthest(have, want) > 1e-4, "%s: the adapters change nothing", cases[i]);
        model_free(m);
    }
}

T(saved_again_they_are_the_same_bits)
{
    for (size_t i = 0; i < DS_LEN(cases); i++) {
        char dir[200], base[1024], out[1100];
        struct err e = {0};
        real want[IDS * VOCAB], have[IDS * VOCAB];
        snprintf(dir, sizeof dir, ROOT "%s", cases[i]);
        snprintf(out, sizeof out, "%s", t_tmpdir());
        struct model *m = opened(dir);
        logits(m, want, 0);
        t_ok(peft_base(dir, base, sizeof base, &e), &e);
        setenv("DEPTHSCOPE_BASE", base, 1);
        t_ok(peft_save(m, out, base, &e), &e);
        struct model *back = opened(out);
        unsetenv("DEPTHSCOPE_BASE");
        logits(back, have, 0);
        t_truef(kit_same(want, have, IDS * VOCAB), "%s: %g", cases[i], farthest(want, have));
        t_str(back->config.lora_targets, m->config.lora_targets);
        t_str(back->config.lora_save, m->config.lora_save);
        model_free(back);
        model_free(m);
    }
}

T(merged_they_have_the_same_logits)
{
    for (size_t i = 0; i < DS_LEN(cases); i++) {
        char dir[200];
        struct err e = {0};
        real want[IDS * VOCAB], have[IDS * VOCAB];
        struct model_config c = {0};
        struct model *merged = NULL;
        snprintf(dir, sizeof dir, ROOT "%s", cases[i]);
        struct model *m = opened(dir);
        if (adapters_check_merge(m, NULL) < 0) { /* the bias of an adapter without one below it */
            t_str(cases[i], "lora-bias");
            model_free(m);
            continue;
        }
        t_ok(model_config_copy(&c, &m->config, &e), &e);
        c.lora_r = 0;
        t_ok(model_new(&merged, &c, NULL, 1, MODEL_INFERENCE, &e), &e);
        for (int k = 0; k < m->n_base; k++)
            model_values_merged(m, k, 0, (size_t)m->params.p[k].shape[0],
                                merged->params.p[k].value);
        params_changed(&merged->params);
        logits(m, want, 0);
        logits(merged, have, 0);
        t_truef(farthest(want, have) <= 1e-5, "%s: %g", cases[i], farthest(want, have));
        model_free(merged);
        model_free(m);
    }
}
