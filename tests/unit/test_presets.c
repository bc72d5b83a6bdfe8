/* Presets: published parameter counts, order of merging, modes, and error messages. */
#include "base/fs.h"
#include "base/mem.h"
#include "t.h"
#include "training/job.h"
#include "training/options.h"

static const char *const none[] = {NULL};

/* ---- sizes ---- */

/* 0: nothing is published of it. */
static const struct {
    const char *name;
    int64_t params, non_embedding, layer;
    double theta, eps;
    int position, tied, bias;
} published[] = {
    // clang-format off
    {"qwen2.5-0.5b",   494032768,  357898112,  14912384,  1e6, 1e-6, POS_ROPE, 1, ATTN_BIAS_QKV},
    {"qwen2.5-1.5b",   1543714304, 1310340608, 46797824,  1e6, 1e-6, POS_ROPE, 1, ATTN_BIAS_QKV},
    {"qwen2.5-3b",     3085938688, 2774773760, 77076992,  1e6, 1e-6, POS_ROPE, 1, ATTN_BIAS_QKV},
    {"qwen2.5-7b",     7615616512, 6525621760, 233057792, 1e6, 1e-6, POS_ROPE, 0, ATTN_BIAS_QKV},
    {"qwen2.5-10m",    0,          0,          0,         1e6, 1e-6, POS_ROPE, 1, ATTN_BIAS_QKV},
    {"qwen2.5-50m",    0,          0,          0,         1e6, 1e-6, POS_ROPE, 1, ATTN_BIAS_QKV},
    {"llama2-50m",     53221888,   0,          0,         1e4, 1e-5, POS_ROPE_INTERLEAVED, 0, 0},
    {"llama2-7b",      6738415616, 0,          0,         1e4, 1e-5, POS_ROPE, 0, 0},
    {"tinyllama-1.1b", 1100048384, 0,          0,         1e4, 1e-5, POS_ROPE, 0, 0},
    {"llama-3.2-1b",   1235814400, 0,          0,         5e5, 1e-5, POS_ROPE, 1, 0},
    {"llama-3.1-8b",   8030261248, 0,          0,         5e5, 1e-5, POS_ROPE, 0, 0},
    {"openllama-3b",   3426473600, 0,          0,         1e4, 1e-6, POS_ROPE, 0, 0},
    {"mistral-7b",     7241732096, 0,          0,         1e4, 1e-5, POS_ROPE, 0, 0},
    {"qwen3-0.6b",     596049920,  0,          0,         1e6, 1e-6, POS_ROPE, 1, 0},
    {"qwen3-8b",       8190735360, 0,          0,         1e6, 1e-6, POS_ROPE, 0, 0},
    {"qwen3-30b-a3b",  30532122624, 0,         0,         1e6, 1e-6, POS_ROPE, 0, 0},
    {"gemma2-2b",      2614341888, 0,          0,         1e4, 1e-6, POS_ROPE, 1, 0},
    {"gemma3-1b",      999885952,  0,          0,         1e6, 1e-6, POS_ROPE, 1, 0},
    {"olmo2-7b",       7298617344, 0,          0,         5e5, 1e-6, POS_ROPE, 0, 0},
    {"olmoe-1b-7b",    6919161856, 0,          0,         1e4, 1e-5, POS_ROPE, 0, 0},
    {"smollm3-3b",     3075098624, 0,          0,         5e6, 1e-6, POS_ROPE, 1, 0},
    {"ouro-1.4b",      1434650624, 1233324032, 51388416,  1e6, 1e-6, POS_ROPE, 0, 0},
    {"phi3-mini",      3821079552, 0,          0,         1e4, 1e-5, POS_ROPE, 0, 0},
    {"phi4-mini",      3836021760, 0,          0,         1e4, 1e-5, POS_ROPE, 1, 0},
    {"pythia-70m",     70426624,   18915328,   3152384,   1e4, 1e-5, POS_ROPE, 0, ATTN_BIAS_ALL},
    {"pythia-160m",    162322944,  85056000,   0,         1e4, 1e-5, POS_ROPE, 0, ATTN_BIAS_ALL},
    {"pythia-1.4b",    1414647808, 1208602624, 0,         1e4, 1e-5, POS_ROPE, 0, ATTN_BIAS_ALL},
    {"stablelm2-1.6b", 1644515328, 0,          0,         1e4, 1e-5, POS_ROPE, 0, ATTN_BIAS_QKV},
    {"gpt-edp",        63636992,   0,          3147776,   1e4, 1e-5, POS_LEARNED, 1, 0},
    {"edp-published",  63636992,   0,          3147776,   1e4, 1e-5, POS_LEARNED, 1, 0},
    // clang-format on
};

T(sizes_have_the_published_counts)
{
    for (size_t i = 0; i < DS_LEN(published); i++) {
        struct train_config c;
        struct err e = {0};
        const struct model_config *m = &c.model;
        t_ok(train_config_make(&c, &published[i].name, 1, NULL, 0, &e), &e);
        int64_t params = model_config_params(m),
                non_embedding = params - m->vocab * m->dim * (m->tied ? 1 : 2);
        if (published[i].params)
            t_truef(params == published[i].params, "%s: %lld", published[i].name,
                    (long long)params);
        if (published[i].non_embedding)
            t_eq(non_embedding, published[i].non_embedding);
        if (published[i].layer)
            t_eq(model_config_params_layer(m), published[i].layer);
        t_near(m->rope_theta, published[i].theta, 0);
        t_near(m->norm_eps, published[i].eps, 0);
        t_eq(m->position, published[i].position);
        t_eq(m->tied, published[i].tied);
        t_eq(m->attn_bias, published[i].bias);
        t_eq(m->rope_scaling, strncmp(published[i].name, "llama-3", 7) == 0     ? ROPE_LLAMA3
                              : strncmp(published[i].name, "phi4-mini", 9) == 0 ? ROPE_LONGROPE
                                                                                : ROPE_PLAIN);
        train_config_release(&c);
    }
}

T(every_preset_resolves_and_alone_trains_no_other_context_than_it_has)
{
    struct err e = {0};
    char **names;
    size_t n;
    t_ok(preset_names(&names, &n, &e), &e);
    t_true(n > DS_LEN(published));
    for (size_t i = 0; i < n; i++) {
        struct train_config c;
        const char *name = names[i];
        t_ok(train_config_preview(&c, &name, 1, &e), &e);
        t_true(model_config_params(&c.model) > 0 && c.train.seq <= c.model.max_seq);
        t_str(c.preset, name);
        train_config_release(&c);
    }
    fs_list_free(names, n);
}

/* ---- several ---- */

static struct train_config made(const char *const *preset, const char *const *override)
{
    struct train_config c;
    struct err e = {0};
    size_t presets = 0, n = 0;
    while (preset[presets])
        presets++;
    while (override[n])
        n++;
    t_ok(train_config_make(&c, preset, presets, override, n, &e), &e);
    return c;
}

T(a_later_preset_wins_and_an_override_over_all)
{
    struct train_config a = made((const char *const[]){"stories", "small", NULL}, none),
                        b = made((const char *const[]){"small", "stories", NULL}, none),
                        c = made((const char *const[]){"small", "stories", NULL},
                                 (const char *const[]){"model.layers=9", NULL});
    t_eq(a.model.layers, 8);
    t_eq(a.model.dim, 128);
    t_near(a.train.lr, 4e-3, 0); /* only stories says it */
    t_eq(b.model.layers, 10);
    t_eq(b.model.dim, 96);
    t_eq(c.model.layers, 9);
    t_str(a.preset, "stories+small");
    train_config_release(&a);
    train_config_release(&b);
    train_config_release(&c);
}

T(quick_alone_is_the_defaults_and_after_others_a_short_run)
{
    struct train_config a = made(none, none), b = made((const char *const[]){"quick", NULL}, none),
                        c = made((const char *const[]){"stories", "quick", NULL}, none);
    struct str x = {0}, y = {0};
    train_config_print(&x, &a);
    train_config_print(&y, &b);
    t_str(str_text(&x), str_text(&y));
    t_eq(a.train.steps, 1500);
    t_eq(c.train.steps, 1000);
    t_eq(c.train.eval_every, 100);
    t_eq(c.train.checkpoint_every, 500);
    t_near(c.train.lr, 4e-3, 0);
    t_str(a.preset, "quick");
    str_release(&x);
    str_release(&y);
    train_config_release(&a);
    train_config_release(&b);
    train_config_release(&c);
}

T(scratch_is_the_published_recipe_on_any_size)
{
    struct train_config c = made((const char *const[]){"small", "scratch", NULL}, none);
    t_near(c.train.lr, 6e-4, 0);
    t_near(c.train.weight_decay, 0.1, 0);
    t_near(c.train.beta2, 0.95, 0);
    t_near(c.train.clip, 1, 0);
    t_near(c.train.router_lr, 10, 0);
    t_eq(c.train.seq, 512);
    t_near((double)c.train.warmup / (double)c.train.steps, 0.05, 0.001);
    t_eq(c.model.layers, 8);
    train_config_release(&c);
}

T(transfer_asks_for_the_model_to_start_from)
{
    struct train_config c;
    struct err e = {0};
    static const char *const preset[] = {"small", "transfer"}, *const init[] = {"train.init=none"};
    t_fails(train_config_make(&c, preset, 2, NULL, 0, &e), &e, DS_EUSAGE, "missing train.init");
    t_true(strchr(e.text, ';') == NULL); /* and says nothing else */
    t_fails(train_config_make(&c, preset, 2, init, 1, &e), &e, DS_EUSAGE, "model not found");
    t_ok(train_config_preview(&c, preset, 2, &e), &e);
    t_near(c.train.lr, 1e-4, 0);
    t_near(c.train.min_lr, 0, 0);
    t_near((double)c.train.warmup / (double)c.train.steps, 0.05, 0.001);
    t_str(c.train.init, "");
    train_config_release(&c);
}

T(what_a_method_adds_is_counted)
{
    static const char *const preset[] = {"edp-published"}, *const dense[] = {"model.method=dense"};
    struct train_config c;
    struct err e = {0};
    t_ok(train_config_make(&c, preset, 1, NULL, 0, &e), &e);
    t_true(c.method_params >= 64 * 512 + 6); /* step codes and thresholds */
    train_config_release(&c);
    t_ok(train_config_make(&c, preset, 1, dense, 1, &e), &e);
    t_eq(c.method_params, 0);
    train_config_release(&c);
}

/* NAME or NAME-VARIANT of a method; the published sizes of edp and Ouro are sizes. */
static int is_of_method(const char *preset, const char *method)
{
    size_t n = strlen(method);
    return strncmp(preset, method, n) == 0 && (preset[n] == '\0' || preset[n] == '-') &&
           strcmp(preset, "edp-published") != 0 && strcmp(preset, "ouro-1.4b") != 0;
}

T(a_methods_preset_leaves_the_size_before_it)
{
    struct err e = {0};
    char **names;
    size_t n, seen = 0;
    t_ok(preset_names(&names, &n, &e), &e);
    for (const struct route_ops *const *m = route_all(); *m; m++)
        for (size_t i = 0; i < n; i++) {
            const char *preset[] = {"small", names[i]};
            struct train_config c;
            if (!is_of_method(names[i], (*m)->name))
                continue;
            t_ok(train_config_preview(&c, preset, 2, &e), &e);
            t_str(c.model.method, (*m)->name);
            t_truef(c.model.layers == 8 && c.model.dim == 128,
                    "%s: `default_base`, not `extends`, is for the size it is shown at", names[i]);
            train_config_release(&c);
            seen++;
        }
    t_true(seen > 0);
    fs_list_free(names, n);
}

/* ---- files ---- */

static const char *file(char path[1024], const char *name, const char *text);

T(a_default_base_is_read_only_without_another_preset)
{
    char path[1024], bad[1024];
    const char *mine = file(path, "own.yaml", "default_base: stories\nmodel:\n  method: random\n"),
               *wrong;
    struct train_config a = made((const char *const[]){mine, NULL}, none),
                        b = made((const char *const[]){"small", mine, NULL}, none),
                        c = made((const char *const[]){mine, "small", NULL}, none), d;
    struct err e = {0};
    t_eq(a.model.layers, 10);
    t_eq(b.model.layers, 8);
    t_true(b.train.lr != a.train.lr);
    t_eq(c.model.layers, 8);
    t_near(c.train.lr, a.train.lr, 0);
    t_str(c.model.method, "random");
    train_config_release(&a);
    train_config_release(&b);
    train_config_release(&c);
    mine =
        file(path, "old.yaml", "alone: stories\nmodel:\n  method: random\n"); /* its earlier name */
    d = made((const char *const[]){mine, NULL}, none);
    t_eq(d.model.layers, 10);
    train_config_release(&d);
    wrong = file(bad, "wrong.yaml", "default_base: storeis\nmodel:\n  method: random\n");
    t_fails(train_config_make(&d, &wrong, 1, NULL, 0, &e), &e, DS_EUSAGE, "did you mean stories?");
}

static const char *file(char path[1024], const char *name, const char *text)
{
    static const char *room;
    struct err e = {0};
    if (!room)
        room = t_tmpdir();
    t_ok(fs_join(path, 1024, room, name, &e), &e);
    t_ok(fs_write_file(path, text, strlen(text), &e), &e);
    return path;
}

T(a_file_may_name_its_method_and_be_put_on_top)
{
    char path[1024];
    const char *preset[] = {
        "tiny", file(path, "mine.yaml", "model:\n  method: random\nrandom:\n  early: 2\n"), "quick",
        NULL};
    struct train_config c = made(preset, none);
    t_str(c.model.method, "random");
    t_str(config_get(&c.route, "random.early"), "2");
    t_str(c.preset, "tiny+mine+quick");
    t_eq(c.train.steps, 1000);
    train_config_release(&c);
}

static void refused(const char *const *preset, const char *part)
{
    struct train_config c;
    struct err e = {0};
    size_t n = 0;
    while (preset[n])
        n++;
    int rc = train_config_make(&c, preset, n, NULL, 0, &e);
    t_truef(rc < 0 && strstr(e.text, part) && !strchr(e.text, '\n'), "%s: %d \"%s\" lacks \"%s\"",
            preset[0], rc, e.text, part);
}
#define REFUSED(part, ...) refused((const char *const[]){__VA_ARGS__, NULL}, part)

T(wrong_presets_are_reported_in_one_line)
{
    char a[1024], b[1024], folder[1024];
    struct err e = {0};
    REFUSED("did you mean stories?", "storys");
    REFUSED("did you mean tiny?", "small", "tinny");
    REFUSED("did you mean qwen2.5-", "qwen2.5");
    REFUSED("duplicate preset", "tiny", "small", "tiny");
    REFUSED("invalid preset", "../data/tiny");
    REFUSED("invalid preset", "");
    REFUSED("has no keys", file(a, "empty.yaml", ""));
    REFUSED("has no keys", file(a, "words.yaml", "# nothing\n"));
    REFUSED("loop", file(a, "self.yaml", "extends: self\ntrain:\n  lr: 1\n"));
    file(b, "b.yaml", "extends: a\n");
    REFUSED("loop", file(a, "a.yaml", "extends: b.yaml\ntrain:\n  lr: 1\n"));
    REFUSED("nowhere.yaml", file(a, "child.yaml", "extends: nowhere\n"));
    REFUSED("mod.yaml:2: unknown key train.lrr, did you mean train.lr?",
            file(a, "mod.yaml", "train:\n  lrr: 1\n"));
    REFUSED("top level must be a map", file(a, "list.yaml", "[a, b]\n"));
    REFUSED("No such file", "nothing/here.yaml");
    t_ok(fs_join(folder, sizeof folder, t_tmpdir(), "d.yaml", &e), &e);
    t_ok(fs_mkdirs(folder, &e), &e);
    REFUSED("is a directory", folder);
    REFUSED("model.max_seq=256", "gpt-edp", "scratch");
}

T(a_wrong_key_names_the_nearest_among_other_names_too)
{
    struct train_config c;
    struct err e = {0};
    static const char *const wrong[] = {"early_layer=2"}, *const right[] = {"early_layers=2"};
    t_fails(train_config_make(&c, NULL, 0, wrong, 1, &e), &e, DS_EUSAGE,
            "did you mean early_layers?");
    t_ok(train_config_make(&c, NULL, 0, right, 1, &e), &e);
    t_str(config_get(&c.route, "edp.early"), "2");
    train_config_release(&c);
}

T(a_wrong_setting_is_named_by_its_place_and_so_is_the_one_it_repeats)
{
    struct train_config c;
    struct err e = {0};
    static const char *const twice[] = {"+edp.early=2", "train.steps=9", "+edp.early=3"};
    t_fails(train_config_make(&c, NULL, 0, twice, 3, &e), &e, DS_EUSAGE,
            "setting 3: '+edp.early=3': duplicate key edp.early (setting 1)");
}

T(what_a_preset_leaves_open_must_be_given)
{
    char path[1024];
    struct train_config c;
    struct err e = {0};
    const char *preset = file(path, "open.yaml", "data:\n  path: ???\n");
    static const char *const given[] = {"data.path=synth"};
    t_fails(train_config_make(&c, &preset, 1, NULL, 0, &e), &e, DS_EUSAGE,
            "missing data.path: the preset leaves it open, set data.path=...");
    t_ok(train_config_make(&c, &preset, 1, given, 1, &e), &e);
    train_config_release(&c);
    t_ok(train_config_preview(&c, &preset, 1, &e), &e);
    t_str(c.data.path, "synth");
    train_config_release(&c);
}

T(the_form_takes_several_presets)
{
    enum { KEYS = 400 };
    static char *value[KEYS];
    struct err e = {0};
    size_t n;
    const struct job_key *key = job_keys(&n);
    t_true(n <= KEYS);
    t_ok(job_preset_values("  stories   small ", value, n, &e), &e);
    for (size_t i = 0; i < n; i++) {
        if (strcmp(key[i].key, "model.layers") == 0)
            t_str(value[i], "8");
        if (strcmp(key[i].key, "train.lr") == 0)
            t_str(value[i], "0.004");
        mem_free(value[i]);
    }
    t_fails(job_preset_values("stories tinny", value, n, &e), &e, DS_EUSAGE, "did you mean tiny?");
}
