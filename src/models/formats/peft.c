/* Reads and writes adapter values in PEFT's format, and merges adapters into the base. */
#include "models/peft.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fs.h"
#include "base/log.h"
#include "base/mem.h"
#include "io/st_set.h"
#include "peft_names.h"

static const char peft_prefix[] = "base_model.model.";

/* The stored form of a parameter that is not the base's. */
struct part {
    char name[NAMES_MAX + 64];
    int rank;
    uint64_t rows, cols;   /* of the tensor; a vector has one column */
    struct names_place at; /* our rows in it */
};

/* Rows of a fused matrix: q, k and v of a GPT-2 or Phi-3 are one there. */
static void take_rows(struct part *out, const struct param *p, const struct names_place *at)
{
    out->rank = p->rank;
    out->rows = at->outputs ? at->outputs : (uint64_t)p->shape[0];
    out->cols = p->rank > 1 ? (uint64_t)p->shape[1] : 1;
    out->at = *at;
}

/* Parameter i of adapter x. */
static void part_of_adapter(const struct model *m, const struct adapter *x, int i, struct part *out)
{
    const struct params *ps = &m->params;
    const char *suffix = i == x->a           ? "lora_A.weight"
                         : i == x->b         ? "lora_B.weight"
                         : i == x->magnitude ? "lora_magnitude_vector"
                                             : "lora_B.bias";
    struct names_place at;
    peft_module(&m->config, ps->p[x->matrix].name, &at);
    snprintf(out->name, sizeof out->name, "%s%s.%s", peft_prefix, at.name, suffix);
    if (i == x->a) /* shared by the parts of a fused matrix */
        at = (struct names_place){.parts = 1};
    take_rows(out, &ps->p[i], &at);
}

/* A parameter of the base that is saved with the adapters.  PEFT keeps the bias of an adapted matrix
 * in its base layer; is_plain: where the whole module is saved. */
static void part_of_saved(const struct model *m, int i, int is_plain, struct part *out)
{
    const struct param *p = &m->params.p[i];
    struct names_place at;
    int is_inner = 0;
    for (int k = 0; k < m->adapters && !is_plain; k++)
        is_inner |= m->adapter[k].base_bias == i;
    names_place(peft_names(&m->config), &m->config, p->name, &at);
    const char *dot = strrchr(at.name, '.');
    snprintf(out->name, sizeof out->name, "%s%.*s%s%s", peft_prefix, (int)(dot ? dot - at.name : 0),
             at.name, is_inner ? ".base_layer" : "", dot ? dot : "");
    take_rows(out, p, &at);
}

static void part_of_own(const struct param *p, struct part *out)
{
    snprintf(out->name, sizeof out->name, "%s", p->name);
    take_rows(out, p, &(struct names_place){.parts = 1});
}

/* ---- reading ---- */

/* The files stored apart from a base: PEFT's and ours; either may be absent. */
struct own_files {
    struct st_set *set[2];
    unsigned char *used[2];
    int taken, new, ignored;
    int is_peft; /* without a checkpoint's config.json */
};

static void own_files_close(struct own_files *b)
{
    for (int k = 0; k < 2; k++) {
        st_set_close(b->set[k]);
        mem_free(b->used[k]);
    }
}

static int own_files_open(struct own_files *b, const char *dir, struct err *e)
{
    static const char *const file[] = {PEFT_WEIGHTS, PEFT_OWN, "adapter_model.bin"};
    char path[3][1200];
    int rc = 0;
    *b = (struct own_files){.is_peft = peft_is_dir(dir)};
    for (int k = 0; k < 3 && rc == 0; k++)
        rc = fs_join(path[k], sizeof path[k], dir, file[k], e);
    for (int k = 0; k < 2 && rc == 0; k++) {
        if (!fs_exists(path[k]))
            continue;
        rc = st_set_open(&b->set[k], path[k], e);
        if (rc == 0 && !(b->used[k] = mem_alloc(st_set_count(b->set[k]) + 1, 1)))
            rc = err_set(e, DS_EMEM, "tensor table: out of memory");
    }
    if (rc < 0 || b->set[0] || b->set[1])
        return rc;
    if (fs_exists(path[2]))
        return err_set(e, DS_EFORMAT,
                       "%s: PyTorch pickles can execute code and are not loaded; convert it to "
                       "safetensors",
                       path[2]);
    return err_set(e, DS_ENOTFOUND, "%s: neither %s nor %s found", dir, file[0], file[1]);
}

static int fits(const struct st_tensor *t, const struct part *part)
{
    return t->rank == part->rank && t->shape[0] == part->rows &&
           (t->rank < 2 || t->shape[1] == part->cols);
}

static void add_shape(struct str *s, int rank, const uint64_t *shape)
{
    for (int i = 0; i < rank; i++)
        str_addf(s, "%s%llu", i ? "," : "[", (unsigned long long)shape[i]);
    str_add(s, rank > 0 ? "]" : "[]");
}

static int check_tensor(const struct st_tensor *t, const struct part *part, struct err *e)
{
    struct str have = {0}, want = {0};
    if (fits(t, part))
        return st_check_read(t, t->items, e);
    add_shape(&have, t->rank, t->shape);
    add_shape(&want, part->rank, (const uint64_t[]){part->rows, part->cols});
    int rc =
        err_set(e, DS_EFORMAT, "tensor %s: shape %s, expected %s from the model's configuration",
                t->name, str_text(&have), str_text(&want));
    str_release(&have);
    str_release(&want);
    return rc;
}

/* Newer versions of transformers name some modules of a family (Mixtral's router, GPT-NeoX's head)
 * as we do, but not in the files of whole models. */
static int has_our_name(const struct own_files *b, const struct param *p, const struct part *part,
                        size_t *at)
{
    char name[sizeof part->name];
    snprintf(name, sizeof name, "%s%s", peft_prefix, p->name);
    return part->at.parts == 1 && !part->at.is_transposed && st_set_find(b->set[0], name, at);
}

/* Finds parameter i in either file; returns which has it, or -1 with the missing name. */
static int find(const struct own_files *b, const struct model *m, int i, struct part *part,
                size_t *at)
{
    const struct adapter *x = adapters_of(m, i);
    if (b->set[1]) {
        part_of_own(&m->params.p[i], part);
        if (st_set_find(b->set[1], part->name, at))
            return 1;
    }
    if ((!x && i >= m->n_base) || !b->set[0]) {
        part_of_own(&m->params.p[i], part);
        return -1;
    }
    if (!x) {
        part_of_saved(m, i, 1, part);
        if (st_set_find(b->set[0], part->name, at))
            return 0;
        part_of_saved(m, i, 0, part);
    } else {
        part_of_adapter(m, x, i, part);
    }
    return st_set_find(b->set[0], part->name, at) ||
                   (!x && has_our_name(b, &m->params.p[i], part, at))
               ? 0
               : -1;
}

static size_t take(const struct st_tensor *t, const struct part *part, struct param *p)
{
    size_t bad = 0;
    size_t cols = (size_t)part->cols, n = p->n / cols, step = part->at.group ? part->at.group : n;
    for (size_t row = 0; row < n; row += step)
#if REAL_BITS == 64
        st_take_f64(t, names_row(&part->at, row) * cols, p->value + row * cols, step * cols);
#else
        st_take_f32(t, names_row(&part->at, row) * cols, p->value + row * cols, step * cols);
#endif
    for (size_t i = 0; i < p->n; i++)
        bad += !(p->value[i] - p->value[i] == 0);
    return bad;
}

/* A run's checkpoint may hold what its training left; third-party adapters must be finite. */
static int report_bad(const struct st_tensor *t, size_t bad, const char *path, int is_peft,
                      struct err *e)
{
    if (bad > 0 && is_peft)
        return err_set(e, DS_ENUMERIC, "%s: tensor %s holds %zu non-finite values", path, t->name,
                       bad);
    if (bad > 0)
        log_warn("%s: tensor %s holds %zu non-finite values", path, t->name, bad);
    return 0;
}

/* The head of a tied base that only the embedding parted from keeps the base's values. */
static int may_lack(const struct model *m, int i)
{
    return i == m->head && i < m->n_base;
}

static int read_one(struct own_files *b, struct model *m, int i, int strict, struct err *e)
{
    struct part part;
    size_t at = 0;
    int k = find(b, m, i, &part, &at);
    const struct st_tensor *t = k < 0 ? NULL : st_set_at(b->set[k], at);
    if ((!strict && !(t && fits(t, &part))) || (!t && may_lack(m, i))) {
        b->new ++;
        return 0;
    }
    int rc = t ? check_tensor(t, &part, e) : err_set(e, DS_EFORMAT, "missing tensor %s", part.name);
    if (rc < 0)
        return err_add(e, rc, "%s", st_set_path(b->set[k < 0 ? !b->set[0] : k]));
    b->used[k][at] = 1;
    b->taken++;
    size_t bad = take(t, &part, &m->params.p[i]);
    return report_bad(t, bad, st_set_path(b->set[k]), b->is_peft, e);
}

static const char peft_head[] = "base_model.model.lm_head.weight";

/* A tied embedding that is saved: PEFT parts it from the head, so both are in the file. */
static int has_two_heads(const struct model *m)
{
    return m->head < 0 && adapters_saves(m, m->embed);
}

static int check_two_heads(struct own_files *b, const struct model *m, struct err *e)
{
    struct part part;
    size_t head, embed;
    part_of_saved(m, m->embed, 1, &part);
    if (!b->set[0] || !has_two_heads(m) || !st_set_find(b->set[0], peft_head, &head) ||
        !st_set_find(b->set[0], part.name, &embed))
        return 0;
    const struct st_tensor *x = st_set_at(b->set[0], head), *y = st_set_at(b->set[0], embed);
    b->used[0][head] = 1;
    return x->bytes == y->bytes && memcmp(x->data, y->data, x->bytes) == 0
               ? 0
               : err_set(e, DS_EFORMAT, "%s: %s differs from %s, but model.tied=true",
                         st_set_path(b->set[0]), peft_head, part.name);
}

/* With bias=all PEFT writes the biases of saved modules again: as modules_to_save the same values,
 * as original_module those of the base, which nothing reads. */
static void mark_repeated(struct own_files *b)
{
    static const char *const copy[] = {".modules_to_save.", ".original_module."};
    for (size_t i = 0; b->set[0] && i < st_set_count(b->set[0]); i++)
        for (size_t k = 0; k < DS_LEN(copy); k++) {
            char name[512];
            const struct st_tensor *x = st_set_at(b->set[0], i), *y;
            const char *p = strstr(x->name, copy[k]), *end = strrchr(x->name, '.');
            size_t at;
            if (!p || strcmp(end, ".bias") != 0 ||
                (size_t)snprintf(name, sizeof name, "%.*s%s", (int)(p - x->name), x->name,
                                 p + strlen(copy[k]) - 1) >= sizeof name ||
                !st_set_find(b->set[0], name, &at) || !b->used[0][at])
                continue;
            y = st_set_at(b->set[0], at);
            b->used[0][i] |=
                k > 0 || (x->bytes == y->bytes && memcmp(x->data, y->data, x->bytes) == 0);
        }
}

static int check_used(struct own_files *b, int strict, struct err *e)
{
    int rc = 0;
    mark_repeated(b);
    for (int k = 0; k < 2 && rc == 0; k++)
        for (size_t i = 0; b->set[k] && i < st_set_count(b->set[k]) && rc == 0; i++) {
            b->ignored += !b->used[k][i];
            if (strict && !b->used[k][i])
                rc = err_set(e, DS_EFORMAT, "%s: unexpected tensor %.160s", st_set_path(b->set[k]),
                             st_set_at(b->set[k], i)->name);
        }
    for (int k = 0; k < 2 && rc == 0; k++)
        if (b->set[k])
            rc = st_set_unchanged(b->set[k], e);
    return rc;
}

/* Adapters alone have no parameters of a method. */
static int is_stored(const struct own_files *b, const struct model *m, int i)
{
    return b->is_peft ? adapters_saves(m, i) || adapters_of(m, i) : adapters_is_own(m, i);
}

int model_read_own(struct model *m, const char *dir, struct str *note, struct err *e)
{
    struct own_files b;
    int rc = own_files_open(&b, dir, e);
    for (int i = 0; i < m->params.n && rc == 0; i++)
        if (is_stored(&b, m, i))
            rc = read_one(&b, m, i, !note, e);
    if (rc == 0)
        rc = check_two_heads(&b, m, e);
    if (rc == 0)
        rc = check_used(&b, !note, e);
    if (rc == 0 && note) {
        str_addf(note, "%d from %s", b.taken, dir);
        if (b.new > 0)
            str_addf(note, ", %d new", b.new);
        if (b.ignored > 0)
            str_addf(note, ", %d ignored", b.ignored);
    }
    own_files_close(&b);
    params_changed(&m->params);
    return rc;
}

int model_own_tensor_match(struct model *m, const char *dir, struct str *out, struct err *e)
{
    struct own_files b;
    struct part part;
    struct str missing = {0};
    size_t at = 0;
    int n = 0, rc = own_files_open(&b, dir, e);
    for (int i = 0; i < m->params.n && rc == 0; i++) {
        if (!is_stored(&b, m, i))
            continue;
        int k = find(&b, m, i, &part, &at);
        if (k >= 0)
            b.used[k][at] = 1;
        else if (!may_lack(m, i) && n++ == 0)
            str_addf(&missing, " (%s)", part.name);
        b.taken += k >= 0;
    }
    if (rc == 0)
        rc = check_two_heads(&b, m, e);
    if (rc == 0)
        rc = check_used(&b, 0, e);
    if (rc == 0)
        str_addf(out, "%d tensors used, %d missing%s, %d unexpected\n", b.taken, n,
                 str_text(&missing), b.ignored);
    out->failed |= missing.failed;
    str_release(&missing);
    own_files_close(&b);
    return rc;
}

/* ---- writing ---- */

/* Can parameter i be saved, or the matrix i have an adapter?  An adapter's factors are never
 * transposed. */
static int check_place(const struct model *m, int i, int is_adapter, struct err *e)
{
    const char *param = m->params.p[i].name,
               *key = is_adapter ? "model.lora_targets" : "model.lora_save";
    struct names_place at;
    names_place(peft_names(&m->config), &m->config, param, &at);
    if (at.parts == 1 && (is_adapter || !at.is_transposed || m->params.p[i].rank == 1))
        return 0;
    return err_set(
        e, DS_EUSAGE,
        "%s: %.100s: PEFT stores it in this family as %s of %.60s, which cannot be saved "
        "in its format",
        key, param, at.parts > 1 ? "a part" : "the transpose", at.name);
}

int peft_check(const struct model *m, struct err *e)
{
    int rc =
        m->adapters > 0 ? 0 : err_set(e, DS_EUSAGE, "the model has no adapters (model.lora_r=0)");
    for (int i = 0; i < m->adapters && rc == 0; i++)
        rc = check_place(m, m->adapter[i].matrix, 1, e);
    for (int i = 0; i < m->n_base && rc == 0; i++)
        if (adapters_saves(m, i))
            rc = check_place(m, i, 0, e);
    return rc;
}

/* The part of a module's name that is unique within a block. */
static const char *short_name(const char *module)
{
    const char *dot = strrchr(module, '.');
    if (strcmp(dot ? dot + 1 : module, "c_proj") != 0)
        return dot ? dot + 1 : module;
    while (dot && dot > module && dot[-1] != '.') /* attn.c_proj is not mlp.c_proj */
        dot--;
    return dot ? dot : module;
}

/* ["q_proj", ...], or {"q_proj": 4, ...}: items of a list or object are added to s one by one. */
static void add_item(struct str *s, const char *name, const char *value)
{
    str_add(s, s->len ? ", " : "");
    str_add_json(s, name, strlen(name));
    if (value)
        str_addf(s, ": %s", value);
}

/* The three keys that say which modules are adapted. */
struct targets {
    struct str modules, ranks, alphas;
};

static void add_target(struct targets *t, const struct model_config *c, const char *name,
                       const struct adapter_spec *x)
{
    char text[40];
    add_item(&t->modules, name, NULL);
    snprintf(text, sizeof text, "%lld", (long long)x->r);
    if (x->r != c->lora_r)
        add_item(&t->ranks, name, text);
    snprintf(text, sizeof text, "%.17g", x->alpha);
    if (x->alpha != c->lora_alpha)
        add_item(&t->alphas, name, text);
}

/* A matrix that is adapted alike in all layers is named by its ending, others in full. */
static void add_matrix(struct targets *out, const struct model_config *c,
                       const struct adapter_spec *spec, int t)
{
    struct names_place at;
    int same = spec[t].r > 0;
    for (int64_t l = 1; l < c->layers; l++)
        same &= spec[l * ADAPTER_TARGETS + t].r == spec[t].r &&
                spec[l * ADAPTER_TARGETS + t].alpha == spec[t].alpha;
    for (int l = 0; l < c->layers; l++) {
        const struct adapter_spec *x = &spec[l * ADAPTER_TARGETS + t];
        peft_target(c, l, t, &at);
        if (x->r > 0 && (!same || l == 0))
            add_target(out, c, same ? short_name(at.name) : at.name, x);
    }
}

static void add_saved(struct str *s, const struct model *m)
{
    char last[NAMES_MAX] = "";
    for (int i = 0; i < m->n_base; i++) {
        struct names_place at;
        if (!adapters_saves_module(m, i))
            continue;
        peft_module(&m->config, m->params.p[i].name, &at);
        if (strcmp(at.name, last) != 0) /* weight and bias are neighbours, or named twice */
            add_item(s, at.name, NULL);
        snprintf(last, sizeof last, "%s", at.name);
    }
    if (has_two_heads(m))
        add_item(s, "lm_head", NULL);
}

static const char *yes_no(int on)
{
    return on ? "true" : "false";
}

static int write_config(const struct model *m, const char *dir, const char *base, struct err *e)
{
    static const char *const bias[] = {"none", "all", "lora_only"};
    const struct model_config *c = &m->config;
    struct adapter_spec *spec = NULL;
    struct targets t = {0};
    struct names_place at;
    struct str s = {0}, saved = {0};
    int rc = adapters_spec(&spec, c, e);
    if (rc < 0)
        return rc;
    names_place(peft_names(c), c, m->params.p[m->adapter[0].matrix].name, &at);
    for (int k = 0; k < ADAPTER_TARGETS; k++)
        add_matrix(&t, c, spec, k);
    add_saved(&saved, m);
    str_addf(&s,
             "{\n  \"alpha_pattern\": {%s},\n  \"base_model_name_or_path\": ", str_text(&t.alphas));
    str_add_json(&s, base, strlen(base));
    str_addf(&s, ",\n  \"bias\": \"%s\",\n  \"fan_in_fan_out\": %s,\n", bias[c->lora_train_bias],
             yes_no(at.is_transposed));
    str_addf(
        &s,
        "  \"inference_mode\": true,\n  \"init_lora_weights\": true,\n  \"lora_alpha\": %.17g,\n"
        "  \"lora_bias\": %s,\n  \"lora_dropout\": %.17g,\n  \"modules_to_save\": ",
        c->lora_alpha, yes_no(c->lora_bias), c->lora_dropout);
    str_addf(&s, saved.len ? "[%s]" : "null%s", str_text(&saved));
    str_addf(&s,
             ",\n  \"peft_type\": \"LORA\",\n  \"r\": %lld,\n  \"rank_pattern\": {%s},\n"
             "  \"target_modules\": [%s],\n  \"task_type\": \"CAUSAL_LM\",\n  \"use_dora\": %s,\n"
             "  \"use_rslora\": %s\n}\n",
             (long long)c->lora_r, str_text(&t.ranks), str_text(&t.modules), yes_no(c->lora_dora),
             yes_no(c->lora_rslora));
    s.failed |= t.modules.failed | t.ranks.failed | t.alphas.failed | saved.failed;
    str_release(&t.modules);
    str_release(&t.ranks);
    str_release(&t.alphas);
    str_release(&saved);
    mem_free(spec);
    return fs_replace_text(dir, PEFT_CONFIG, &s, e);
}

/* Where PEFT's file holds it: with a saved module its bias is stored as such, not as that of a base
 * layer. */
static void part_in_peft(const struct model *m, int i, struct part *out)
{
    const struct adapter *x = adapters_of(m, i);
    if (x)
        part_of_adapter(m, x, i, out);
    else
        part_of_saved(m, i, adapters_saves_module(m, i), out);
}

static struct st_out stored(const struct part *part, const char *name, const struct param *p)
{
    return (struct st_out){.name = name,
                           .dtype = REAL_BITS == 64 ? ST_F64 : ST_F32,
                           .rank = part->rank,
                           .shape = {part->rows, part->cols},
                           .data = p->value};
}

/* Writes the parameters that are not the base's: those of PEFT's file, or the others, under our
 * names. */
static int write_parts(const struct model *m, const char *path, int is_peft, struct err *e)
{
    static const char *const meta[] = {"format", "pt"};
    size_t n = 0, cap = (size_t)m->params.n + 2;
    int has_peft = peft_check(m, NULL) == 0;
    struct st_out *t = mem_alloc(cap, sizeof *t);
    struct part *part = mem_alloc(cap, sizeof *part);
    int rc = t && part ? 0 : err_set(e, DS_EMEM, "%s: out of memory", path);
    for (int i = 0; i < m->params.n && rc == 0; i++) {
        int of_peft = adapters_saves(m, i) || adapters_of(m, i);
        if (!adapters_is_own(m, i) || (of_peft && has_peft) != is_peft)
            continue;
        if (is_peft)
            part_in_peft(m, i, &part[n]);
        else
            part_of_own(&m->params.p[i], &part[n]);
        t[n] = stored(&part[n], part[n].name, &m->params.p[i]);
        n++;
        if (is_peft && i == m->embed && has_two_heads(m)) {
            t[n] = stored(&part[n - 1], peft_head, &m->params.p[i]);
            n++;
        }
    }
    if (rc == 0 && n > 0)
        rc = st_write(path, t, n, meta, 1, e);
    mem_free(t);
    mem_free(part);
    return rc;
}

int model_write_own(const struct model *m, const char *dir, const struct base_ref *base,
                    struct err *e)
{
    char path[1200];
    int rc = fs_join(path, sizeof path, dir, PEFT_OWN, e);
    if (rc == 0)
        rc = write_parts(m, path, 0, e);
    return rc == 0 && peft_check(m, NULL) == 0 ? peft_save(m, dir, base->path, e) : rc;
}

int peft_save(const struct model *m, const char *dir, const char *base, struct err *e)
{
    char path[1200];
    int rc = peft_check(m, e);
    if (rc == 0)
        rc = fs_join(path, sizeof path, dir, PEFT_WEIGHTS, e);
    if (rc == 0)
        rc = write_parts(m, path, 1, e);
    return rc == 0 ? write_config(m, dir, base, e) : rc;
}

/* ---- the sum ---- */

/* out (C) += scale b^T A, b (r).  Accumulates in double and rounds once. */
static void add_row(real *out, const real *b, const real *A, double scale, int r, int C)
{
    enum { SPAN = 256 };
    double sum[SPAN];
    for (int c = 0; c < C; c += SPAN) {
        int n = C - c < SPAN ? C - c : SPAN;
        memset(sum, 0, sizeof sum);
        for (int k = 0; k < r; k++)
            for (int i = 0; i < n; i++)
                sum[i] += (double)b[k] * (double)A[(size_t)k * (size_t)C + (size_t)(c + i)];
        for (int i = 0; i < n; i++)
            out[c + i] = (real)((double)out[c + i] + scale * sum[i]);
    }
}

/* out (n) += scale * the bias of B, where parameter i is the bias of its matrix. */
static void add_bias(const struct model *m, int i, size_t row, size_t n, real *out)
{
    for (int k = 0; k < m->adapters; k++) {
        const struct adapter *x = &m->adapter[k];
        for (size_t o = 0; x->bias >= 0 && x->base_bias == i && o < n; o++)
            out[o] += (real)x->scale * m->params.p[x->bias].value[row + o];
    }
}

/* DoRA: row (C) is brought to this norm. */
static void scale_row(real *row, int C, real magnitude)
{
    double sum = 0;
    for (int c = 0; c < C; c++)
        sum += (double)row[c] * (double)row[c];
    for (int c = 0; c < C; c++)
        row[c] = (real)((double)row[c] * ((double)magnitude / sqrt(sum)));
}

void model_values_merged(const struct model *m, int i, size_t row, size_t n, real *out)
{
    const struct adapter *x = adapters_find(m, i);
    model_values(m, i, row, n, out);
    if (!x) {
        if (m->params.p[i].rank == 1)
            add_bias(m, i, row, n, out);
        return;
    }
    const struct param *a = &m->params.p[x->a], *b = &m->params.p[x->b];
    int r = a->shape[0], C = a->shape[1];
    for (size_t o = 0; o < n; o++) {
        real *to = out + o * (size_t)C;
        add_row(to, b->value + (row + o) * (size_t)r, a->value, x->scale, r, C);
        if (x->magnitude >= 0)
            scale_row(to, C, m->params.p[x->magnitude].value[row + o]);
    }
}
