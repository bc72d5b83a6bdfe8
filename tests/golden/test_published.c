/* Published adaptive models: tiny ones made with their public code (Ouro), or in PyTorch from their
 * equations (FlexiDepth), compute the same here, gate by gate, and what is skipped is really not
 * computed.  `ouro_hf.py make CODE tests/golden/published/ouro` and `flexidepth.py
 * tests/golden/published/flexidepth` write them. */
#include "kit.h"

#include <sys/wait.h>

#include "base/fs.h"
#include "base/json.h"
#include "models/load.h"

enum { N = 12, V = 16, LOOPS = 4 };
static const char *const names[] = {"loops4", "loops3-grouped", "window"};

/* What the public code computed for one model. */
struct theirs {
    char dir[64];
    int loops;
    int32_t id[N];
    double all[N][V], picked[N][V], gate[LOOPS][N];
    double threshold;
};

static struct json *read_json(const char *dir, const char *name)
{
    char path[1200];
    struct json *j = NULL;
    struct err e = {0};
    snprintf(path, sizeof path, "%s/%s.json", dir, name);
    t_ok(json_read_file(&j, path, 1 << 20, &e), &e);
    return j;
}

static void read_rows(double *out, const struct json_node *rows, int n, int width)
{
    t_eq(json_len(rows), n);
    for (int i = 0; i < n * width; i++)
        out[i] =
            json_num(json_at(json_at(rows, (size_t)(i / width)), (size_t)(i % width)), (double)NAN);
}

static struct theirs theirs_of(const char *name)
{
    struct theirs x = {0};
    snprintf(x.dir, sizeof x.dir, "tests/golden/published/ouro/%s", name);
    struct json *ids = read_json(x.dir, "ids"), *all = read_json(x.dir, "all"),
                *gates = read_json(x.dir, "gates"), *picked = read_json(x.dir, "picked");
    for (int i = 0; i < N; i++)
        x.id[i] = (int32_t)json_int(json_at(json_root(ids), (size_t)i), -1);
    x.loops = (int)json_len(json_root(gates));
    t_true(x.loops >= 2 && x.loops <= LOOPS);
    read_rows(x.all[0], json_root(all), N, V);
    read_rows(x.gate[0], json_root(gates), x.loops, N);
    read_rows(x.picked[0], json_get(json_root(picked), "logits"), N, V);
    x.threshold = json_num(json_get(json_root(picked), "threshold"), (double)NAN);
    json_free(ids);
    json_free(all);
    json_free(gates);
    json_free(picked);
    return x;
}

static struct model *opened(const char *dir, const char *options)
{
    struct err e = {0};
    struct config c = {0};
    struct model *m = NULL;
    if (options)
        t_ok(config_override(&c, options, "test", &e), &e);
    t_ok(model_open(&m, dir, &c, MODEL_INFERENCE, &e), &e);
    t_ok(model_reserve(m, N, 0, 0, &e), &e);
    config_release(&c);
    return m;
}

static struct pass run(struct model *m, const int32_t *id, enum pass_kind kind)
{
    struct batch b = {.B = 1, .T = N, .id = id};
    struct pass pass = kit_pass(kind);
    pass.record = kind != PASS_DENSE;
    model_forward(m, &b, &pass);
    return pass;
}

/* Logits of row i at exit t. */
static void same_row(struct model *m, int t, int i, const double *want, const char *what)
{
    real got[V];
    model_lens(m, route_exit(&m->route, t), i, got);
    for (int v = 0; v < V; v++)
        t_truef(fabs((double)got[v] - want[v]) <= 2e-5, "%s: token %d, id %d: %.7g, theirs %.7g",
                what, i, v, (double)got[v], want[v]);
}

/* The iteration after which the published rule picks the state of token i. */
static int exit_of(const struct theirs *x, int i)
{
    double sum = 0, rest = 1;
    for (int t = 1; t < x->loops; t++) {
        sum += rest * x->gate[t - 1][i];
        rest *= 1 - x->gate[t - 1][i];
        if (sum >= x->threshold)
            return t;
    }
    return x->loops;
}

T(all_loops_have_the_logits_of_the_public_code)
{
    for (size_t k = 0; k < DS_LEN(names); k++) {
        struct theirs x = theirs_of(names[k]);
        struct model *m = opened(x.dir, "ouro.threshold=2");
        t_eq(m->config.loop, x.loops);
        run(m, x.id, PASS_SPARSE);
        t_eq(m->flops.rows_run, m->flops.rows);
        for (int i = 0; i < N; i++)
            same_row(m, x.loops, i, x.all[i], names[k]);
        run(m, x.id, PASS_DENSE);
        for (int i = 0; i < N; i++)
            same_row(m, x.loops, i, x.all[i], names[k]);
        model_free(m);
    }
}

/* Nothing leaves, so every gate is read, as the public code does. */
T(gates_and_picked_exits_are_those_of_the_public_code)
{
    int early = 0, late = 0;
    for (size_t k = 0; k < DS_LEN(names); k++) {
        struct theirs x = theirs_of(names[k]);
        struct model *m = opened(x.dir, "ouro.threshold=2");
        run(m, x.id, PASS_SPARSE);
        const real *gate = kit_cells(m, "gate");
        for (int i = 0; i < N; i++) {
            for (int t = 1; t < x.loops; t++)
                t_near((double)gate[route_exit(&m->route, t) * N + i], x.gate[t - 1][i], 1e-5);
            same_row(m, exit_of(&x, i), i, x.picked[i], names[k]);
            early += exit_of(&x, i) < x.loops;
            late += exit_of(&x, i) == x.loops;
        }
        model_free(m);
    }
    t_true(early > 5 && late > 5);
}

/* What leaves after the first loop has seen nothing that skipping changed; what leaves later has
 * the same rule on its own gates. */
T(a_token_leaves_at_the_threshold_and_is_not_computed_again)
{
    int first = 0;
    for (size_t k = 0; k < DS_LEN(names); k++) {
        char text[64];
        struct theirs x = theirs_of(names[k]);
        snprintf(text, sizeof text, "ouro.threshold=%g", x.threshold);
        struct model *m = opened(x.dir, text);
        const struct route *r = &m->route;
        int rows = 0;
        run(m, x.id, PASS_SPARSE);
        const real *score = kit_cells(m, "score"), *exited = kit_cells(m, "exited");
        for (int i = 0; i < N; i++) {
            int t = 1;
            while (t < x.loops && !((double)score[route_exit(r, t) * N + i] >= x.threshold))
                t++;
            if (exit_of(&x, i) == 1) {
                t_eq(t, 1);
                first++;
                same_row(m, x.loops, i, x.picked[i], names[k]);
            }
            rows += t * r->loop.group;
            for (int l = 0; l < r->L; l++)
                t_eq(exited[l * N + i], l >= t * r->loop.group);
        }
        t_eq(m->flops.rows_run, rows);
        t_true(rows == N * r->L || flops_model_ratio(&m->flops) < 1);
        model_free(m);
    }
    t_true(first > 0);
}

/* The threshold of the file; live, and shifted by what-if offsets. */
T(the_threshold_comes_with_the_file_and_can_be_changed)
{
    struct theirs x = theirs_of("loops3-grouped");
    struct model *m = opened(x.dir, NULL);
    struct err e = {0};
    run(m, x.id, PASS_SPARSE);
    int64_t stored = m->flops.rows_run;
    t_ok(kit_set(m, "threshold", 0, &e), &e);
    run(m, x.id, PASS_SPARSE);
    t_eq(m->flops.rows_run, N * m->route.loop.group);
    t_true(stored < N * m->route.L && stored > N * m->route.loop.group);
    struct batch b = {.B = 1, .T = N, .id = x.id};
    struct pass pass = kit_pass(PASS_SPARSE);
    pass.inference.offset = -0.6; /* higher = fewer rows run */
    model_forward(m, &b, &pass);
    t_eq(m->flops.rows_run, stored);
    model_free(m);
}

T(skipping_is_causal_gathered_and_cached)
{
    static const char *const shapes[] = {
        "model.layers=2 model.loop=4 model.loop_norm=final model.norm_place=both",
        "model.layers=1 model.loop=6 model.loop_norm=final ouro.kv=plan",
        "model.layers=4 model.loop=3 model.loop_first=1 model.loop_last=1 model.loop_norm=final "
        "model.loop_inject=add",
        "model.layers=3 model.loop=2",
        "model.layers=6",
    };
    for (size_t k = 0; k < DS_LEN(shapes); k++) {
        enum { T = 40, AT = 25, C = 32, B = 2 };
        static struct kit_batch batch;
        struct err e = {0};
        struct kv_cache *cache = NULL;
        char text[400];
        real want[53], got[53];
        snprintf(text, sizeof text,
                 "%s model.dim=32 model.heads=2 model.vocab=53 model.init_std=0.2 "
                 "model.method=ouro ouro.threshold=0.7",
                 shapes[k]);
        struct model *m = kit_model(text, 3, B * T, 0, 0);
        int L = model_config_depth(&m->config),
            gate = params_find(&m->params, "model.early_exit_gate.weight");
        for (int c = 0; c < C; c++)
            m->params.p[gate].value[c] *= 2;
        struct pass pass = kit_pass(PASS_MASKED);
        kit_fill(&batch, B, T, 53, 5);
        model_forward(m, &batch.b, &pass);
        real *whole = kit_copy(m->stream.h[L], kit_states(m));
        model_logits(m, AT - 1, want);
        t_truef(m->flops.rows_run < B * T * L, "%s", text);
        pass.kind = PASS_SPARSE;
        model_forward(m, &batch.b, &pass);
        t_truef(kit_same(whole, m->stream.h[L], kit_states(m)), "%s: gathered", text);
        for (int t = AT; t < T; t++)
            batch.id[t] = (batch.id[t] + 1) % 53;
        model_forward(m, &batch.b, &pass);
        t_truef(kit_same(whole, m->stream.h[L], (size_t)AT * C), "%s: causal", text);
        t_true(!kit_same(whole, m->stream.h[L], (size_t)(AT + 1) * C));
        t_ok(kv_cache_new(&cache, m, T, &e), &e);
        for (int t = 0; t < AT; t++)
            t_ok(model_decode(m, cache, batch.id + t, 1, &pass, &e), &e);
        model_logits(m, 0, got);
        for (int v = 0; v < 53; v++)
            t_near(got[v], want[v], 1e-3);
        kv_cache_free(cache);
        free(whole);
        model_free(m);
    }
}

/* Forced cells leave states alone in the first iteration, where the next one begins with the norm:
 * the keys there are not those of the iteration before. */
T(a_forced_first_iteration_does_not_lend_its_keys)
{
    enum { T = 20, B = 2, L = 6 };
    static struct kit_batch batch;
    int8_t force[L * B * T];
    struct model *m = kit_model("model.layers=2 model.loop=3 model.loop_norm=final model.dim=32 "
                                "model.heads=2 model.vocab=53 model.init_std=0.2 model.method=ouro",
                                3, B * T, 0, 0);
    struct pass pass = kit_pass(PASS_MASKED);
    for (int c = 0; c < L * B * T; c++)
        force[c] = (int8_t)(c % 3 > 0 || c >= 4 * B * T);
    pass.inference.force = force;
    kit_fill(&batch, B, T, 53, 5);
    model_forward(m, &batch.b, &pass);
    real *whole = kit_copy(m->stream.h[L], kit_states(m));
    pass.kind = PASS_SPARSE;
    model_forward(m, &batch.b, &pass);
    t_true(kit_same(whole, m->stream.h[L], kit_states(m)));
    free(whole);
    model_free(m);
}

static void save(const struct model *m, const char *dir)
{
    char path[1100];
    struct err e = {0};
    snprintf(path, sizeof path, "%s/config.json", dir);
    t_ok(model_write_config(m, path, &e), &e);
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    t_ok(model_write_weights(m, path, 0, &e), &e);
}

/* Written, without our own keys, and read again. */
T(a_round_trip_keeps_layout_weights_and_threshold)
{
    char path[1100];
    struct err e = {0};
    struct str text = {0};
    const char *dir = t_tmpdir();
    struct theirs x = theirs_of("loops3-grouped");
    struct model *m = opened(x.dir, NULL), *again;
    t_str(model_config_family(&m->config), "ouro");
    save(m, dir);
    snprintf(path, sizeof path, "%s/config.json", dir);
    t_ok(fs_read_file(&text, path, 1 << 20, &e), &e);
    t_true(strstr(str_text(&text), "\"model_type\": \"ouro\"") &&
           strstr(str_text(&text), "\"OuroForCausalLM\"") &&
           strstr(str_text(&text), "\"total_ut_steps\": 3") &&
           strstr(str_text(&text), "\"early_exit_threshold\": 0.6"));
    char *own = strstr(text.p, "\"depthscope\"");
    t_true(own != NULL);
    memcpy(own, "\"depthless_\"", 12); /* as if it were another program's */
    t_ok(fs_write_file(path, text.p, text.len, &e), &e);
    again = opened(dir, NULL);
    kit_same_params(m, again);
    run(m, x.id, PASS_SPARSE);
    run(again, x.id, PASS_SPARSE);
    t_true(kit_same(m->stream.h[m->route.L], again->stream.h[m->route.L], kit_states(m)));
    str_release(&text);
    model_free(again);
    model_free(m);
}

/* Differs from what the public code computes, silently. */
static int is_wrong(const char *dir)
{
    char path[1200];
    struct err e = {0};
    struct model *m = NULL;
    int32_t id[N];
    double want[N][V];
    int wrong = 0;
    if (model_open(&m, dir, NULL, MODEL_INFERENCE, &e) < 0) {
        t_truef(e.text[0] && !strchr(e.text, '\n'), "%s: %s", dir, e.text);
        return 0;
    }
    t_ok(model_reserve(m, N, 0, 0, &e), &e);
    snprintf(path, sizeof path, "%s/logits.json", dir);
    if (fs_exists(path)) { /* else the public code refused: there is nothing to compare */
        struct json *ids = read_json(dir, "ids"), *logits = read_json(dir, "logits");
        for (int i = 0; i < N; i++)
            id[i] = (int32_t)json_int(json_at(json_root(ids), (size_t)i), -1);
        read_rows(want[0], json_root(logits), N, V);
        run(m, id, PASS_SPARSE);
        for (int i = 0; i < N * V && !wrong; i++) {
            real got[V];
            model_logits(m, i / V, got);
            wrong = !(fabs((double)got[i % V] - want[i / V][i % V]) <= 1e-4);
        }
        json_free(ids);
        json_free(logits);
    }
    model_free(m);
    return wrong;
}

static int public_code(const char *mode, const char *dir)
{
    const char *code = getenv("OURO_CODE"), *python = getenv("PYTHON");
    char cmd[3000];
    if (!code)
        t_skip("OURO_CODE is not set: models are not exchanged with the public code");
    snprintf(cmd, sizeof cmd, "'%s' tests/golden/ouro_hf.py %s '%s' '%s'",
             python ? python : "python3", mode, code, dir);
    int status = system(cmd);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

T_SECONDS(a_changed_configuration_is_computed_or_refused, 300)
{
    char **found = NULL, path[1100], dir[1024];
    size_t n = 0;
    struct str wrong = {0};
    struct err e = {0};
    str_copy(dir, sizeof dir, t_tmpdir());
    t_eq(public_code("walk", dir), 0);
    t_ok(fs_list(dir, &found, &n, &e), &e);
    t_true(n >= 60);
    for (size_t i = 0; i < n; i++) {
        snprintf(path, sizeof path, "%s/%s", dir, found[i]);
        if (is_wrong(path))
            str_addf(&wrong, " %s", found[i]);
    }
    fs_list_free(found, n);
    t_truef(wrong.len == 0, "other logits:%s", str_text(&wrong));
    str_release(&wrong);
}

T(what_is_written_runs_in_the_public_code)
{
    const char *dir = t_tmpdir();
    char cmd[3000];
    struct theirs x = theirs_of("window");
    struct model *m = opened(x.dir, NULL);
    save(m, dir);
    model_free(m);
    snprintf(cmd, sizeof cmd, "cp '%s/ids.json' '%s/' && cp '%s/all.json' '%s/logits.json'", x.dir,
             dir, x.dir, dir);
    t_eq(system(cmd), 0);
    t_eq(public_code("check", dir), 0);
}

/* Configurations of this family that are refused: what the message says. */
T(what_is_not_computed_is_refused_by_name)
{
    static const struct {
        const char *from, *to, *says;
    } rows[] = {
        {"\"early_exit_threshold\": 1.0", "\"early_exit_threshold\": true", "early_exit_threshold"},
        {"\"early_exit_threshold\": 1.0", "\"early_exit_threshold\": 3.5", "ouro.threshold"},
        {"\"total_ut_steps\": 4", "\"total_ut_steps\": 1", "total_ut_steps"},
        {"\"total_ut_steps\": 4", "\"total_steps\": 4", "total_ut_steps"},
        {"\"total_ut_steps\": 4", "\"total_ut_steps\": 4, \"early_exit_step\": 2",
         "early_exit_step"},
        {"modeling_ouro.Ouro", "modeling_other.Ouro", "auto_map"},
        {"\"hidden_act\": \"silu\"", "\"hidden_act\": \"relu\"", "hidden_act"},
        {"\"rope_theta\": 10000.0, ", "", "rope_theta"},
    };
    const char *dir = t_tmpdir();
    for (size_t k = 0; k < DS_LEN(rows); k++) {
        char path[1100];
        struct err e = {0};
        struct str text = {0}, out = {0};
        struct model *m = NULL;
        t_ok(fs_read_file(&text, "tests/golden/published/ouro/loops4/config.json", 1 << 20, &e),
             &e);
        char *at = strstr(text.p, rows[k].from);
        t_truef(at != NULL, "%s is missing", rows[k].from);
        str_add_bytes(&out, text.p, (size_t)(at - text.p));
        str_addf(&out, "%s%s", rows[k].to, at + strlen(rows[k].from));
        snprintf(path, sizeof path, "%s/config.json", dir);
        t_ok(fs_write_file(path, out.p, out.len, &e), &e);
        t_truef(model_open(&m, dir, NULL, MODEL_INFERENCE, &e) < 0, "%s: opened", rows[k].to);
        t_truef(strstr(e.text, rows[k].says) && !strchr(e.text, '\n'), "%s", e.text);
        str_release(&text);
        str_release(&out);
    }
}

/* ---- FlexiDepth ---- */

static const char *const flexible[] = {"four", "tied"};

T(flexidepth_has_the_logits_and_gates_of_its_equations)
{
    int skipped = 0, ran = 0;
    for (size_t k = 0; k < DS_LEN(flexible); k++) {
        char dir[64];
        int32_t id[N];
        double want[N][V], gates[LOOPS][N];
        snprintf(dir, sizeof dir, "tests/golden/published/flexidepth/%s", flexible[k]);
        struct json *ids = read_json(dir, "ids"), *logits = read_json(dir, "logits"),
                    *gate = read_json(dir, "gates");
        for (int i = 0; i < N; i++)
            id[i] = (int32_t)json_int(json_at(json_root(ids), (size_t)i), -1);
        read_rows(want[0], json_root(logits), N, V);
        struct model *m = opened(dir, NULL);
        int L = m->route.L, first = L / 2;
        read_rows(gates[0], json_root(gate), L - first, N);
        for (int kind = PASS_MASKED; kind <= PASS_SPARSE; kind++) {
            run(m, id, (enum pass_kind)kind);
            const real *got = kit_cells(m, "gate");
            for (int i = 0; i < N; i++)
                same_row(m, L, i, want[i], dir);
            for (int c = 0; c < (L - first) * N; c++) {
                t_near((double)got[first * N + c], gates[c / N][c % N], 1e-5);
                skipped += !(gates[c / N][c % N] > 0.5);
                ran += gates[c / N][c % N] > 0.5;
            }
        }
        int64_t rows = m->flops.rows_run;
        double flops = flops_total(&m->flops);
        t_true(rows < N * L);
        struct err e = {0};
        t_ok(kit_set(m, "threshold", 0, &e), &e);
        run(m, id, PASS_SPARSE);
        t_true(m->flops.rows_run == N * L && flops_total(&m->flops) > flops);
        t_ok(kit_set(m, "threshold", 1, &e), &e);
        run(m, id, PASS_SPARSE);
        t_eq(m->flops.rows_run, N * first);
        json_free(ids);
        json_free(logits);
        json_free(gate);
        model_free(m);
    }
    t_true(skipped > 10 && ran > 10);
}

T(a_flexidepth_model_is_saved_and_read_again)
{
    struct theirs x = theirs_of("loops4");
    struct model *m = opened("tests/golden/published/flexidepth/four", NULL), *again;
    const char *dir = t_tmpdir();
    save(m, dir);
    again = opened(dir, NULL);
    kit_same_params(m, again);
    run(m, x.id, PASS_SPARSE);
    run(again, x.id, PASS_SPARSE);
    t_true(kit_same(m->stream.h[m->route.L], again->stream.h[m->route.L], kit_states(m)));
    model_free(again);
    model_free(m);
}

/* ---- Mixture-of-Recursions ---- */

T(a_mixture_of_recursions_is_refused_by_name)
{
    static const real weight[32];
    const struct st_out tensors[] = {
        {.name = "model.layers.0.block.0.mlp.up_proj.weight",
         .dtype = REAL_BITS == 64 ? ST_F64 : ST_F32,
         .rank = 1,
         .shape = {32},
         .data = weight},
        {.name = "model.layers.1.mor_router.router.weight",
         .dtype = REAL_BITS == 64 ? ST_F64 : ST_F32,
         .rank = 1,
         .shape = {32},
         .data = weight},
    };
    char path[1100];
    struct err e = {0};
    const char *dir = t_tmpdir();
    struct model *m = kit_model(
        "model.method=dense model.layers=2 model.dim=32 model.heads=2 model.vocab=53", 1, 4, 0, 0);
    save(m, dir);
    model_free(m);
    m = NULL;
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    t_ok(st_write(path, tensors, DS_LEN(tensors), NULL, 0, &e), &e);
    t_fails(model_open(&m, dir, NULL, MODEL_INFERENCE, &e), &e, DS_EFORMAT,
            "Mixture-of-Recursions is unsupported");
    t_true(strstr(e.text, "mor_router") && !strchr(e.text, '\n'));
}
