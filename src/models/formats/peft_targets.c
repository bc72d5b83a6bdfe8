/* Which modules an adapter_config.json adapts, with which rank, and which it replaces: lists, endings
 * and regular expressions with the meaning that PEFT gives them. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/regex.h"
#include "models/adapters.h"
#include "models/model.h"
#include "models/peft.h"
#include "peft_names.h"

enum { LIST_MAX = 4096 };

/* ---- lists of regular expressions ---- */

struct patterns {
    struct regex **v;
    size_t n;
};

static void patterns_release(struct patterns *p)
{
    for (size_t i = 0; i < p->n; i++)
        regex_free(p->v[i]);
    mem_free(p->v);
    *p = (struct patterns){0};
}

static int patterns_add(struct patterns *p, const char *before, const char *text, const char *after,
                        const char *key, struct err *e)
{
    struct str s = {0};
    str_addf(&s, "%s%s%s", before, text, after);
    struct regex **v = mem_realloc(p->v, p->n + 1, sizeof *v);
    if (v)
        p->v = v;
    int rc = s.failed || !v ? err_set(e, DS_EMEM, "%s: out of memory", key)
                            : regex_new(&p->v[p->n], str_text(&s), s.len, key, e);
    p->n += rc == 0;
    str_release(&s);
    return rc;
}

/* The n-th matching pattern + 1, 0, or negative: a pattern exceeded its limits. */
static int patterns_match(const struct patterns *p, const char *text, size_t *end, struct err *e)
{
    size_t start;
    for (size_t i = 0; i < p->n; i++) {
        int rc = regex_next(p->v[i], text, strlen(text), 0, 0, &start, end, e);
        if (rc != 0)
            return rc < 0 ? rc : (int)i + 1;
    }
    return 0;
}

/* A list of names; null is an empty one. */
static int check_list(const struct json_node *n, const char *key, struct err *e)
{
    size_t k = json_len(n);
    if (json_kind_of(n) != JSON_KIND_NULL && json_kind_of(n) != JSON_KIND_ARRAY)
        return err_set(e, DS_EFORMAT, "%s must be a list of names", key);
    if (k > LIST_MAX)
        return err_set(e, DS_EFORMAT, "%s has %zu entries, expected at most %d", key, k,
                       (int)LIST_MAX);
    for (size_t i = 0; i < k; i++)
        if (!json_str(json_at(n, i), NULL))
            return err_set(e, DS_EFORMAT, "%s: entry %zu must be a name", key, i + 1);
    return 0;
}

/* ---- names or one pattern: target_modules, exclude_modules ---- */

struct filter {
    const struct json_node *list; /* of names, or NULL: */
    struct patterns whole;        /* of whole names */
};

static int filter_open(struct filter *f, const struct json_node *n, const char *key, struct err *e)
{
    const char *text = json_str(n, NULL);
    if (text)
        return patterns_add(&f->whole, "\\A(?:", text, ")\\z", key, e);
    f->list = n;
    return check_list(n, key, e);
}

static int in_list(const struct json_node *list, const char *module, int want_whole)
{
    size_t n = strlen(module);
    for (size_t i = 0; i < json_len(list); i++) {
        const char *want = json_str(json_at(list, i), NULL);
        size_t k = strlen(want);
        if (k <= n && strcmp(module + n - k, want) == 0 &&
            (k == n || (!want_whole && module[n - k - 1] == '.')))
            return 1;
    }
    return 0;
}

static int filter_has(const struct filter *f, const char *module, struct err *e)
{
    size_t end;
    return f->whole.n > 0 ? patterns_match(&f->whole, module, &end, e)
                          : in_list(f->list, module, 0);
}

/* ---- all keys that name modules ---- */

struct chooser {
    struct filter targets, exclude;
    int is_all; /* all-linear */
    const struct json_node *save, *layers;
    struct patterns saved;  /* of names of modules_to_save: no adapters there */
    struct patterns places; /* of names up to the layer's index */
    struct patterns ranks, alphas;
    const struct json_node *rank, *alpha; /* the objects, in the order of the patterns */
    unsigned char *used[2];               /* of ranks and alphas */
};

static void chooser_release(struct chooser *x)
{
    patterns_release(&x->targets.whole);
    patterns_release(&x->exclude.whole);
    patterns_release(&x->saved);
    patterns_release(&x->places);
    patterns_release(&x->ranks);
    patterns_release(&x->alphas);
    mem_free(x->used[0]);
    mem_free(x->used[1]);
}

static int open_targets(struct chooser *x, const struct json_node *root, struct err *e)
{
    const struct json_node *n = json_get(root, "target_modules");
    const char *text = json_str(n, NULL);
    if (text && strcasecmp(text, "all-linear") == 0) {
        x->is_all = 1;
        return 0;
    }
    if (text ? !text[0] : json_kind_of(n) != JSON_KIND_ARRAY || json_len(n) == 0)
        return err_set(e, DS_EFORMAT, "target_modules must be a list of names or a pattern");
    return filter_open(&x->targets, n, "target_modules", e);
}

static int is_layer(const struct json_node *n, const struct model_config *c)
{
    return json_kind_of(n) == JSON_KIND_INT && json_int(n, -1) >= 0 && json_int(n, -1) < c->layers;
}

static int open_layers(struct chooser *x, const struct model_config *c,
                       const struct json_node *root, struct err *e)
{
    const struct json_node *n = json_get(root, "layers_to_transform"),
                           *p = json_get(root, "layers_pattern");
    const char *one = json_str(p, NULL);
    int is_list = json_kind_of(n) == JSON_KIND_ARRAY, is_given = json_kind_of(n) != JSON_KIND_NULL;
    int has_pattern = (one && one[0]) || (!one && json_len(p) > 0);
    if (is_given && json_str(json_get(root, "target_modules"), NULL))
        return err_set(e, DS_EFORMAT,
                       "layers_to_transform: not defined with a pattern as target_modules");
    if (has_pattern && !is_given)
        return err_set(e, DS_EFORMAT, "layers_pattern: expected layers_to_transform as well");
    for (size_t i = 0; is_given && i < (is_list ? json_len(n) : 1); i++) {
        const struct json_node *v = is_list ? json_at(n, i) : n;
        if (json_kind_of(v) != JSON_KIND_INT)
            return err_set(e, DS_EFORMAT, "layers_to_transform must be a layer or a list of them");
        if (!is_layer(v, c))
            return err_set(e, DS_EFORMAT,
                           "layers_to_transform: layer %lld not found: expected 0 to %lld",
                           (long long)json_int(v, -1), (long long)c->layers - 1);
    }
    x->layers = is_given && !(is_list && json_len(n) == 0) ? n : NULL;
    if (!x->layers)
        return 0;
    if (!has_pattern)
        return patterns_add(&x->places, "\\A", ".*?\\.[^.]*\\.\\d+\\.", "", "layers_pattern", e);
    int rc = one ? 0 : check_list(p, "layers_pattern", e);
    for (size_t i = 0; rc == 0 && i < (one ? 1 : json_len(p)); i++)
        rc = patterns_add(&x->places, "\\A(?:(?:^|.*?\\.)",
                          one ? one : json_str(json_at(p, i), NULL), "\\.\\d+\\.)",
                          "layers_pattern", e);
    return rc;
}

/* rank_pattern, alpha_pattern: endings of names, as regular expressions. */
static int open_values(struct patterns *p, unsigned char **used, const struct json_node *n,
                       const char *key, int is_rank, struct err *e)
{
    const struct json_node *v;
    const char *name;
    int rc = 0;
    if (json_kind_of(n) != JSON_KIND_NULL && json_kind_of(n) != JSON_KIND_OBJECT)
        return err_set(e, DS_EFORMAT, "%s must be an object", key);
    if (json_len(n) > LIST_MAX)
        return err_set(e, DS_EFORMAT, "%s has %zu entries, expected at most %d", key, json_len(n),
                       (int)LIST_MAX);
    *used = mem_alloc(json_len(n) + 1, 1);
    if (!*used)
        return err_set(e, DS_EMEM, "%s: out of memory", key);
    for (void *at = NULL; rc == 0 && (v = json_next(n, &at, &name, NULL)) != NULL;) {
        if (is_rank && (json_kind_of(v) != JSON_KIND_INT || json_int(v, 0) < 1))
            rc = err_set(e, DS_EFORMAT, "%s: %.60s: must be a positive integer", key, name);
        else if (!(json_num(v, -1) >= 0 && json_num(v, -1) <= 1e6))
            rc = err_set(e, DS_EFORMAT, "%s: %.60s: must be a number from 0 to 1e6", key, name);
        else
            rc = patterns_add(p, "\\A(.*\\.)?(", name, ")$", key, e);
    }
    return rc;
}

static int chooser_open(struct chooser *x, const struct model_config *c,
                        const struct json_node *root, struct err *e)
{
    *x = (struct chooser){.save = json_get(root, "modules_to_save"),
                          .rank = json_get(root, "rank_pattern"),
                          .alpha = json_get(root, "alpha_pattern")};
    int rc = open_targets(x, root, e);
    if (rc == 0)
        rc = filter_open(&x->exclude, json_get(root, "exclude_modules"), "exclude_modules", e);
    if (rc == 0)
        rc = check_list(x->save, "modules_to_save", e);
    for (size_t i = 0; rc == 0 && i < json_len(x->save); i++)
        rc = patterns_add(&x->saved, "\\A(?:(^|.*\\.)", json_str(json_at(x->save, i), NULL),
                          "($|\\..*))", "modules_to_save", e);
    if (rc == 0)
        rc = open_layers(x, c, root, e);
    if (rc == 0)
        rc = open_values(&x->ranks, &x->used[0], x->rank, "rank_pattern", 1, e);
    if (rc == 0)
        rc = open_values(&x->alphas, &x->used[1], x->alpha, "alpha_pattern", 0, e);
    return rc;
}

/* Is the layer in this name one of layers_to_transform?  The match ends after its index. */
static int in_layers(const struct chooser *x, const char *module, struct err *e)
{
    size_t end = 0;
    int rc = patterns_match(&x->places, module, &end, e);
    if (rc <= 0)
        return rc;
    size_t at = end > 0 ? end - 1 : 0;
    while (at > 0 && module[at - 1] >= '0' && module[at - 1] <= '9')
        at--;
    if (end == 0 || module[end - 1] != '.' || at + 1 == end)
        return 0;
    int64_t l = strtoll(module + at, NULL, 10);
    if (json_kind_of(x->layers) == JSON_KIND_INT)
        return json_int(x->layers, -1) == l;
    for (size_t i = 0; i < json_len(x->layers); i++)
        if (json_int(json_at(x->layers, i), -1) == l)
            return 1;
    return 0;
}

/* Is this module adapted?  1, 0 or negative. */
static int chosen(const struct chooser *x, const char *module, struct err *e)
{
    size_t end;
    int rc = filter_has(&x->exclude, module, e);
    if (rc == 0)
        rc = patterns_match(&x->saved, module, &end, e);
    if (rc != 0)
        return rc < 0 ? rc : 0;
    if (x->is_all || (x->targets.list && in_list(x->targets.list, module, 1)))
        return 1;
    rc = filter_has(&x->targets, module, e);
    return rc > 0 && x->layers ? in_layers(x, module, e) : rc > 0 ? 1 : rc;
}

/* Is it, or a module that contains it, one of modules_to_save?  PEFT compares endings. */
static int is_saved(const struct chooser *x, const char *module)
{
    char name[NAMES_MAX + 32];
    size_t n = (size_t)snprintf(name, sizeof name, "base_model.model.%s", module);
    if (n >= sizeof name)
        return 0;
    for (;;) {
        for (size_t i = 0; i < json_len(x->save); i++) {
            const char *want = json_str(json_at(x->save, i), NULL);
            size_t k = strlen(want);
            if (k <= n && memcmp(name + n - k, want, k) == 0)
                return 1;
        }
        while (n > 0 && name[n] != '.')
            n--;
        if (n == 0)
            return 0;
        name[n] = '\0';
        if (n > 0 && !strchr(name, '.'))
            return 0;
        n = strlen(name);
    }
}

/* ---- lora_targets ---- */

/* The value of the first pattern that matches, else `otherwise`. */
static int pattern_value(const struct patterns *p, const struct json_node *object,
                         unsigned char *used, const char *module, double otherwise, double *out,
                         struct err *e)
{
    size_t end;
    int k = patterns_match(p, module, &end, e);
    void *at = NULL;
    const struct json_node *v = NULL;
    for (int i = 0; i < k; i++)
        v = json_next(object, &at, NULL, NULL);
    if (k > 0)
        used[k - 1] = 1;
    *out = json_num(v, otherwise);
    return k < 0 ? k : 0;
}

static int choose_one(const struct chooser *x, const struct model_config *c, int l, int t,
                      struct adapter_spec *out, struct err *e)
{
    struct names_place at;
    double r, alpha;
    peft_target(c, l, t, &at);
    int rc = chosen(x, at.name, e);
    *out = (struct adapter_spec){0};
    if (rc <= 0)
        return rc;
    if (is_saved(x, at.name))
        return err_set(e, DS_EFORMAT, "modules_to_save: %s has an adapter as well", at.name);
    rc = pattern_value(&x->ranks, x->rank, x->used[0], at.name, (double)c->lora_r, &r, e);
    if (rc == 0)
        rc = pattern_value(&x->alphas, x->alpha, x->used[1], at.name, c->lora_alpha, &alpha, e);
    if (rc == 0)
        *out = (struct adapter_spec){(int64_t)r, alpha};
    return rc;
}

static int is_same(const struct adapter_spec *a, const struct adapter_spec *b)
{
    return a->r == b->r && a->alpha == b->alpha;
}

/* "q", or "0-3+7.q:8:16": the layers of target t with the same adapter as layer l, which are then
 * cleared. */
static void print_group(struct str *s, const struct model_config *c, struct adapter_spec *spec,
                        int64_t l, int t)
{
    struct adapter_spec x = spec[l * ADAPTER_TARGETS + t];
    struct str layers = {0};
    int64_t n = 0;
    for (int64_t i = l, from = -1; i <= c->layers; i++) {
        struct adapter_spec *at = &spec[(i < c->layers ? i : l) * ADAPTER_TARGETS + t];
        int is_in = i < c->layers && is_same(at, &x);
        if (is_in && from < 0)
            from = i;
        if (!is_in && from >= 0) {
            str_addf(&layers, "%s%lld", layers.len ? "+" : "", (long long)from);
            if (i - from > 1)
                str_addf(&layers, "-%lld", (long long)i - 1);
            n += i - from;
            from = -1;
        }
    }
    for (int64_t i = c->layers - 1; i >= l; i--)
        if (is_same(&spec[i * ADAPTER_TARGETS + t], &x))
            spec[i * ADAPTER_TARGETS + t].r = 0;
    str_add(s, s->len ? "," : "");
    if (n < c->layers)
        str_addf(s, "%s.", str_text(&layers));
    str_add(s, adapter_target[t].name);
    if (x.r != c->lora_r || x.alpha != c->lora_alpha)
        str_addf(s, ":%lld", (long long)x.r);
    if (x.alpha != c->lora_alpha)
        str_addf(s, ":%.17g", x.alpha);
    s->failed |= layers.failed;
    str_release(&layers);
}

/* The MLPs of a model with experts take no adapters. */
static int refuse_experts(const struct chooser *x, const struct model_config *c, struct err *e)
{
    static const char *const part[] = {"experts",
                                       "experts.0.gate_proj",
                                       "experts.0.up_proj",
                                       "experts.0.down_proj",
                                       "gate",
                                       "shared_expert.gate_proj",
                                       "shared_expert.up_proj",
                                       "shared_expert.down_proj",
                                       "shared_expert_gate",
                                       "gate_proj",
                                       "up_proj",
                                       "down_proj"};
    char name[96];
    for (int64_t l = 0; l < c->layers && c->experts > 0 && !x->is_all; l++)
        for (size_t i = 0; i < DS_LEN(part); i++) {
            snprintf(name, sizeof name, "model.layers.%lld.mlp.%s", (long long)l, part[i]);
            int rc = chosen(x, name, e);
            if (rc != 0)
                return rc < 0 ? rc
                              : err_set(e, DS_EFORMAT,
                                        "target_modules has %s; adapters are unsupported on the "
                                        "MLPs of a model with experts",
                                        name);
        }
    return 0;
}

/* Targets outside the blocks are refused rather than ignored. */
static int refuse_others(const struct chooser *x, struct err *e)
{
    static const char *const other[] = {"lm_head", "model.embed_tokens", "transformer.wte",
                                        "transformer.wpe"};
    for (size_t i = 0; i < DS_LEN(other) && !x->is_all; i++) {
        int rc = chosen(x, other[i], e);
        if (rc != 0)
            return rc < 0 ? rc
                          : err_set(e, DS_EFORMAT,
                                    "target_modules has %s; adapters are supported only on the "
                                    "matrices of blocks",
                                    other[i]);
    }
    return 0;
}

/* PEFT ignores such entries too. */
static void warn_unused(const struct chooser *x)
{
    static const char *const key[] = {"rank_pattern", "alpha_pattern"};
    for (int k = 0; k < 2; k++) {
        const char *name;
        void *at = NULL;
        for (size_t i = 0; json_next(k ? x->alpha : x->rank, &at, &name, NULL); i++)
            if (!x->used[k][i])
                log_warn("%s: %.60s matches no adapted module", key[k], name);
    }
}

static int set_targets(struct chooser *x, struct model_config *c, struct err *e)
{
    struct str names = {0};
    struct adapter_spec *spec = mem_alloc((size_t)c->layers * ADAPTER_TARGETS, sizeof *spec);
    int rc = spec ? refuse_others(x, e) : err_set(e, DS_EMEM, "target_modules: out of memory");
    if (rc == 0)
        rc = refuse_experts(x, c, e);
    for (int l = 0; l < c->layers && rc == 0; l++)
        for (int t = 0; t < ADAPTER_TARGETS && rc == 0; t++)
            if (adapters_has(c, t))
                rc = choose_one(x, c, l, t, &spec[l * ADAPTER_TARGETS + t], e);
    for (int t = 0; t < ADAPTER_TARGETS && rc == 0; t++)
        for (int64_t l = 0; l < c->layers; l++)
            if (spec[l * ADAPTER_TARGETS + t].r > 0)
                print_group(&names, c, spec, l, t);
    if (rc == 0 && names.failed)
        rc = err_set(e, DS_EMEM, "target_modules: out of memory");
    if (rc == 0 && names.len == 0)
        rc = err_set(e, DS_EFORMAT, "target_modules must name a matrix of this model's blocks");
    if (rc == 0)
        rc = peft_set(c, "model.lora_targets", str_text(&names), e);
    if (rc == 0)
        warn_unused(x);
    mem_free(spec);
    str_release(&names);
    return rc;
}

/* ---- lora_save ---- */

/* The parameters of the base, with a head of its own. */
static int base_table(struct model **out, const struct model_config *c, struct err *e)
{
    struct model_config copy = {0};
    int rc = model_config_copy(&copy, c, e);
    if (rc < 0)
        return rc;
    rc = peft_set(&copy, "model.method", "dense", e);
    copy.lora_r = 0;
    copy.tied = 0;
    if (rc == 0)
        rc = model_new_table(out, &copy, NULL, 0, MODEL_INFERENCE, e);
    opt_release(&model_group, &copy);
    return rc;
}

static int check_place(const struct names_place *at, const struct param *p, struct err *e)
{
    if (at->parts == 1 && !(at->is_transposed && p->rank > 1))
        return 0;
    return err_set(e, DS_EFORMAT,
                   "modules_to_save has %s; matrices that this family stores fused or transposed "
                   "cannot be replaced",
                   at->name);
}

/* The layers' common name of a parameter, "mlp.up_proj.weight", or NULL. */
static const char *in_layer(const char *param)
{
    static const char layers[] = "model.layers.";
    if (strncmp(param, layers, sizeof layers - 1) != 0)
        return NULL;
    const char *dot = strchr(param + sizeof layers - 1, '.');
    return dot ? dot + 1 : NULL;
}

static int is_in_all(const struct model *m, const unsigned char *saved, const char *rest)
{
    char name[NAMES_MAX];
    for (int64_t l = 0; l < m->config.layers; l++) {
        snprintf(name, sizeof name, "model.layers.%lld.%s", (long long)l, rest);
        int i = params_find(&m->params, name);
        if (i < 0 || !saved[i])
            return 0;
    }
    return 1;
}

static void print_saved(struct str *s, const struct model *m, const unsigned char *saved)
{
    for (int i = 0; i < m->n_base; i++) {
        const char *name = m->params.p[i].name, *rest = in_layer(name);
        int is_common = rest && is_in_all(m, saved, rest);
        char word[NAMES_MAX], all[NAMES_MAX + 2];
        if (!saved[i] || (is_common && strncmp(name, "model.layers.0.", 15) != 0))
            continue;
        snprintf(word, sizeof word, "%s", is_common ? rest : name);
        *strrchr(word, '.') = '\0'; /* weight and bias are one module */
        snprintf(all, sizeof all, "%s,", word);
        if (s->len == 0 || !strstr(str_text(s), all))
            str_add(s, all);
    }
}

/* PEFT parts a tied embedding and head when one of them is saved: each gets values of its own. */
static void untie(struct model_config *c, const struct model *m, unsigned char *saved, int is_tying)
{
    if (!c->tied || (!saved[m->embed] && !saved[m->head]))
        return;
    saved[m->head] = 1;
    saved[m->embed] |= is_tying;
    c->tied = 0;
}

/* ensure_weight_tying ties what is saved by one of these names, and nothing by another ending. */
static int saves_tied(const struct chooser *x)
{
    for (size_t i = 0; i < json_len(x->save); i++) {
        const char *name = json_str(json_at(x->save, i), NULL), *dot = strrchr(name, '.');
        name = dot ? dot + 1 : name;
        if (strcmp(name, "embed_tokens") == 0 || strcmp(name, "lm_head") == 0)
            return 1;
    }
    return 0;
}

static int set_saved(struct chooser *x, struct model_config *c, int is_tying, struct err *e)
{
    struct model *m = NULL;
    struct str names = {0};
    unsigned char *saved = NULL;
    if (json_len(x->save) == 0)
        return 0;
    int rc = base_table(&m, c, e);
    if (rc == 0 && !(saved = mem_alloc((size_t)m->n_base, 1)))
        rc = err_set(e, DS_EMEM, "modules_to_save: out of memory");
    for (int i = 0; rc == 0 && i < m->n_base; i++) {
        struct names_place at;
        peft_module(c, m->params.p[i].name, &at);
        saved[i] = is_saved(x, at.name) || (i == m->head && is_saved(x, "lm_head"));
        if (saved[i])
            rc = check_place(&at, &m->params.p[i], e);
    }
    if (rc == 0) {
        untie(c, m, saved, is_tying && saves_tied(x));
        print_saved(&names, m, saved);
        rc = names.failed ? err_set(e, DS_EMEM, "modules_to_save: out of memory")
                          : peft_set(c, "model.lora_save", str_text(&names), e);
    }
    mem_free(saved);
    str_release(&names);
    model_free(m);
    return rc;
}

int peft_set_modules(struct model_config *c, const struct json_node *root, int is_tying,
                     struct err *e)
{
    struct chooser x;
    int rc = chooser_open(&x, c, root, e);
    if (rc == 0)
        rc = set_targets(&x, c, e);
    if (rc == 0)
        rc = set_saved(&x, c, is_tying, e);
    chooser_release(&x);
    return rc;
}
