/* Reads and writes adapter values in PEFT's format, and merges adapters into the base. */
#include "models/peft.h"

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
    uint64_t rows, cols; /* of the tensor; a vector has one column */
    uint64_t first;      /* its row where our parameter begins */
};

static void part_of_adapter(const struct model *m, const struct adapter *x, int is_b,
                            struct part *out)
{
    const struct params *ps = &m->params;
    const struct param *p = &ps->p[is_b ? x->b : x->a], *w = &ps->p[x->matrix];
    struct names_place at;
    peft_module(peft_names(&m->config), w->name, &at);
    snprintf(out->name, sizeof out->name, "%s%s.lora_%s.weight", peft_prefix, at.name,
             is_b ? "B" : "A");
    out->rank = 2;
    /* of a fused matrix the parts share A, and each has its rows of B */
    out->rows = (uint64_t)p->shape[0] * (uint64_t)(is_b ? at.parts : 1);
    out->cols = (uint64_t)p->shape[1];
    out->first = is_b ? (uint64_t)p->shape[0] * (uint64_t)at.part : 0;
}

static void part_of_own(const struct param *p, struct part *out)
{
    snprintf(out->name, sizeof out->name, "%s", p->name);
    out->rank = p->rank;
    out->rows = (uint64_t)p->shape[0];
    out->cols = p->rank > 1 ? (uint64_t)p->shape[1] : 1;
    out->first = 0;
}

/* The adapter that parameter i belongs to, or NULL. */
static const struct adapter *adapter_with(const struct model *m, int i)
{
    for (int k = 0; k < m->adapters; k++)
        if (m->adapter[k].a == i || m->adapter[k].b == i)
            return &m->adapter[k];
    return NULL;
}

/* ---- reading ---- */

/* The files stored apart from a base: PEFT's and ours; either may be absent. */
struct own_files {
    struct st_set *set[2];
    unsigned char *used[2];
    int taken, new, ignored;
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
    *b = (struct own_files){0};
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

/* Finds parameter i in either file; returns which has it, or -1 with the missing name. */
static int find(const struct own_files *b, const struct model *m, int i, struct part *part,
                size_t *at)
{
    const struct adapter *x = adapter_with(m, i);
    if (b->set[1]) {
        part_of_own(&m->params.p[i], part);
        if (st_set_find(b->set[1], part->name, at))
            return 1;
    }
    if (!x || !b->set[0]) {
        part_of_own(&m->params.p[i], part);
        return -1;
    }
    part_of_adapter(m, x, x->b == i, part);
    return st_set_find(b->set[0], part->name, at) ? 0 : -1;
}

static void take(const struct st_tensor *t, const struct part *part, struct param *p,
                 const char *path)
{
    size_t bad = 0;
#if REAL_BITS == 64
    st_take_f64(t, part->first * part->cols, p->value, p->n);
#else
    st_take_f32(t, part->first * part->cols, p->value, p->n);
#endif
    for (size_t i = 0; i < p->n; i++)
        bad += !(p->value[i] - p->value[i] == 0);
    if (bad > 0)
        log_warn("%s: tensor %s holds %zu non-finite values", path, t->name, bad);
}

static int read_one(struct own_files *b, struct model *m, int i, int strict, struct err *e)
{
    struct part part;
    size_t at = 0;
    int k = find(b, m, i, &part, &at);
    const struct st_tensor *t = k < 0 ? NULL : st_set_at(b->set[k], at);
    if (!strict && !(t && fits(t, &part))) {
        b->new ++;
        return 0;
    }
    int rc = t ? check_tensor(t, &part, e) : err_set(e, DS_EFORMAT, "missing tensor %s", part.name);
    if (rc < 0)
        return err_add(e, rc, "%s", st_set_path(b->set[k < 0 ? !b->set[0] : k]));
    b->used[k][at] = 1;
    b->taken++;
    take(t, &part, &m->params.p[i], st_set_path(b->set[k]));
    return 0;
}

static int check_used(struct own_files *b, int strict, struct err *e)
{
    int rc = 0;
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

int model_read_own(struct model *m, const char *dir, struct str *note, struct err *e)
{
    struct own_files b;
    int adapters_only = peft_is_dir(dir);
    int rc = own_files_open(&b, dir, e);
    for (int i = m->n_base; i < m->params.n && rc == 0; i++)
        if (!adapters_only || adapter_with(m, i))
            rc = read_one(&b, m, i, !note, e);
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
    int n = 0, adapters_only = peft_is_dir(dir), rc = own_files_open(&b, dir, e);
    for (int i = m->n_base; i < m->params.n && rc == 0; i++) {
        if (adapters_only && !adapter_with(m, i))
            continue;
        int k = find(&b, m, i, &part, &at);
        if (k >= 0)
            b.used[k][at] = 1;
        else if (n++ == 0)
            str_addf(&missing, " (%s)", part.name);
        b.taken += k >= 0;
    }
    if (rc == 0)
        rc = check_used(&b, 0, e);
    if (rc == 0)
        str_addf(out, "%d tensors used, %d missing%s, %d unexpected\n", b.taken, n,
                 str_text(&missing), b.ignored);
    str_release(&missing);
    own_files_close(&b);
    return rc;
}

/* ---- writing ---- */

int peft_check(const struct model *m, struct err *e)
{
    struct names_place at;
    if (m->adapters == 0)
        return err_set(e, DS_EUSAGE, "the model has no adapters (model.lora_r=0)");
    for (int t = 0; t < ADAPTER_TARGETS; t++) {
        char word[32], all[200];
        peft_target(peft_names(&m->config), 0, t, &at);
        snprintf(word, sizeof word, ",%s,", adapter_target[t].name);
        snprintf(all, sizeof all, ",%s,", m->config.lora_targets);
        for (char *c = all; *c; c++)
            *c = *c == ' ' ? ',' : *c;
        if (at.parts > 1 && strstr(all, word))
            return err_set(e, DS_EUSAGE,
                           "model.lora_targets=%s: PEFT stores q, k and v of this family as one "
                           "matrix, c_attn; only o, up and down can be saved in its format",
                           m->config.lora_targets);
    }
    return 0;
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

static void print_targets(struct str *s, const struct model *m)
{
    const struct names *names = peft_names(&m->config);
    for (int i = 0; i < m->adapters / (int)m->config.layers; i++) {
        struct names_place at;
        peft_module(names, m->params.p[m->adapter[i].matrix].name, &at);
        str_add(s, i ? ", " : "");
        str_add_json(s, short_name(at.name), strlen(short_name(at.name)));
    }
}

static int write_config(const struct model *m, const char *dir, const char *base, struct err *e)
{
    const struct model_config *c = &m->config;
    struct str s = {0};
    str_add(&s, "{\n  \"base_model_name_or_path\": ");
    str_add_json(&s, base, strlen(base));
    str_addf(&s, ",\n  \"bias\": \"none\",\n  \"fan_in_fan_out\": %s,\n",
             names_are_ours(peft_names(c)) ? "false" : "true");
    str_addf(
        &s,
        "  \"inference_mode\": true,\n  \"init_lora_weights\": true,\n  \"lora_alpha\": %.17g,\n"
        "  \"lora_dropout\": %.17g,\n  \"modules_to_save\": null,\n  \"peft_type\": \"LORA\",\n"
        "  \"r\": %lld,\n  \"target_modules\": [",
        c->lora_alpha, c->lora_dropout, (long long)c->lora_r);
    print_targets(&s, m);
    str_add(&s, "],\n  \"task_type\": \"CAUSAL_LM\",\n  \"use_dora\": false,\n"
                "  \"use_rslora\": false\n}\n");
    return fs_replace_text(dir, PEFT_CONFIG, &s, e);
}

/* Writes the parameters in [n_base, n) selected by `want`, under the names given by `part`. */
static int write_parts(const struct model *m, const char *path, int is_peft, struct err *e)
{
    static const char *const meta[] = {"format", "pt"};
    size_t n = 0, cap = (size_t)(m->params.n - m->n_base) + 1;
    int has_peft = peft_check(m, NULL) == 0;
    struct st_out *t = mem_alloc(cap, sizeof *t);
    struct part *part = mem_alloc(cap, sizeof *part);
    int rc = t && part ? 0 : err_set(e, DS_EMEM, "%s: out of memory", path);
    for (int i = m->n_base; i < m->params.n && rc == 0; i++) {
        const struct adapter *x = adapter_with(m, i);
        if ((x && has_peft) != is_peft)
            continue;
        if (is_peft)
            part_of_adapter(m, x, x->b == i, &part[n]);
        else
            part_of_own(&m->params.p[i], &part[n]);
        t[n] = (struct st_out){.name = part[n].name,
                               .dtype = REAL_BITS == 64 ? ST_F64 : ST_F32,
                               .rank = part[n].rank,
                               .shape = {part[n].rows, part[n].cols},
                               .data = m->params.p[i].value};
        n++;
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

void model_values_merged(const struct model *m, int i, size_t row, size_t n, real *out)
{
    const struct adapter *x = adapters_find(m, i);
    model_values(m, i, row, n, out);
    if (!x)
        return;
    const struct param *a = &m->params.p[x->a], *b = &m->params.p[x->b];
    int r = a->shape[0], C = a->shape[1];
    double scale = m->config.lora_alpha / (double)m->config.lora_r;
    for (size_t o = 0; o < n; o++)
        add_row(out + o * (size_t)C, b->value + (row + o) * (size_t)r, a->value, scale, r, C);
}
