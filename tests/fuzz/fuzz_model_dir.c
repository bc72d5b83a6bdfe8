/* A model in a directory as Hugging Face publishes it: config.json, a NUL, and the header of
 * model.safetensors, which gets as much data as its last tensor ends with. A one-line error, or
 * a model whose values can be read, and that a run could start from. */
#include "base/json.h"
#include "models/load.h"
#include "models/weights.h"

#include "kit.h"

enum { DATA_MAX = 1 << 16, WEIGHTS_MAX = 1 << 18, DEPTH_MAX = 64, NAMES_MAX = 1 << 14 };

static void put_weights(const uint8_t *header, size_t n)
{
    struct json *j = NULL;
    const struct json_node *v;
    const char *key;
    struct str s = {0};
    int64_t most = 0;
    if (json_parse(&j, (const char *)header, n, "header", NULL) == 0)
        for (void *at = NULL; (v = json_next(json_root(j), &at, &key, NULL)) != NULL;) {
            int64_t end = json_int(json_at(json_get(v, "data_offsets"), 1), 0);
            most = end > most && end <= DATA_MAX ? end : most;
        }
    json_free(j);
    for (int i = 0; i < 8; i++)
        str_add_bytes(&s, (char[]){(char)((uint64_t)n >> 8 * i)}, 1);
    str_add_bytes(&s, header, n);
    for (int64_t i = 0; i < most; i++)
        str_add_bytes(&s, (char[]){(char)(31 * i + (i >> 3))}, 1);
    fuzz_put(fuzz_path("model.safetensors"), s.p, s.len);
    str_release(&s);
}

static void use(struct model *m)
{
    struct err e = {0};
    int rc = weights_use(m, &(struct numeric_options){.compute = COMPUTE_FP32}, &e);
    if (rc == 0)
        rc = weights_ready(m, &e);
    need_line(rc, &e);
    for (int i = 0; rc == 0 && i < m->params.n; i++) {
        const struct param *p = &m->params.p[i];
        size_t columns = p->rank > 1 ? (size_t)p->shape[1] : 1;
        real *row = malloc(columns * sizeof *row);
        need(row != NULL);
        for (int r = 0; r < p->shape[0]; r++)
            model_values(m, i, (size_t)r, 1, row);
        free(row);
    }
}

/* Larger models would only take longer. */
static int is_small(void)
{
    struct model_config c;
    struct config route = {0};
    struct err e = {0};
    int rc = model_config_open(&c, &route, fuzz_dir(), &e);
    need_line(rc, &e);
    if (rc < 0) {
        config_release(&route);
        return 0;
    }
    rc = model_config_weights(&c) <= WEIGHTS_MAX && model_config_depth(&c) <= DEPTH_MAX &&
         c.max_seq <= NAMES_MAX;
    opt_release(&model_group, &c);
    config_release(&route);
    return rc;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *end = size ? memchr(data, 0, size) : NULL;
    size_t n = end ? (size_t)(end - data) : size;
    struct model *m = NULL;
    struct str told = {0};
    struct err e = {0};
    log_to(fuzz_hush, NULL);
    fuzz_put(fuzz_path("config.json"), data, n);
    put_weights(data + n + (end != NULL), end ? size - n - 1 : 0);
    if (!is_small())
        return 0;
    need_line(model_tensor_match(fuzz_dir(), &told, &e), &e);
    str_release(&told);
    e = (struct err){0};
    int rc = model_open(&m, fuzz_dir(), NULL, MODEL_INFERENCE, &e);
    need_line(rc, &e);
    if (rc == 0)
        use(m);
    model_free(m);
    return 0;
}
