/* Matches the tensors of a file to the parameters of a model. */
#include "models/formats/tensor_match.h"

#include <string.h>

#include "base/mem.h"
#include "io/safetensors.h"

enum { COMPARED = 2048 };
static void name_one(int *n, struct str *names, const char *name)
{
    if ((*n)++ < TENSOR_MATCH_NAMES)
        str_addf(names, "%s%.120s", names->len ? ", " : "", name);
}

/* A parameter of a method or an adapter, which a model initialised from this file need not have. */
static int is_extra(const char *name)
{
    if (strstr(name, ".lora_"))
        return 1;
    for (const struct route_ops *const *r = route_all(); *r; r++) {
        size_t n = strlen((*r)->name);
        if (strncmp(name, (*r)->name, n) == 0 && name[n] == '.')
            return 1;
    }
    return 0;
}

static int shape_fits(const struct source *x, const struct param *p)
{
    uint64_t shape[2];
    int rank = names_shape(&x->place, p, shape);
    return x->tensor->rank == rank && x->tensor->shape[0] == shape[0] &&
           (rank < 2 || x->tensor->shape[1] == shape[1]);
}

/* The head, which newer versions of the library name as Llama's. */
static const struct st_tensor *find_head(const struct tensor_match *v, const struct st_set *s,
                                         size_t *at)
{
    const struct st_tensor *t = st_set_find(s, names_head(v->names), at);
    return t ? t : st_set_find(s, "lm_head.weight", at);
}

static void find_sources(struct tensor_match *v, const struct model *m, const struct st_set *s,
                         int strict)
{
    for (int i = 0; i < m->params.n; i++) {
        const struct param *p = &m->params.p[i];
        struct source *x = &v->source[i];
        size_t at = 0;
        names_place(v->names, &m->config, p->name, &x->place);
        x->tensor = st_set_find(s, x->place.name, &at);
        if (!x->tensor && i == m->embed && m->head < 0)
            x->tensor = find_head(v, s, &at); /* a tied matrix may have either name */
        if (!x->tensor && i == m->head)
            x->tensor = find_head(v, s, &at);
        if (!x->tensor && i == m->head && adapters_saves(m, i)) { /* of a tied base, until read */
            names_place(v->names, &m->config, m->params.p[m->embed].name, &x->place);
            x->tensor = st_set_find(s, x->place.name, &at);
        }
        if (!strict && i >= m->n_base && !(x->tensor && shape_fits(x, p))) {
            x->tensor = NULL;
            name_one(&v->new_n, &v->new, p->name);
        } else if (x->tensor) {
            v->used_n += !v->used[at];
            v->used[at] = 1;
        } else if (x->place.part == 0) {
            name_one(&v->missing_n, &v->missing, x->place.name);
        }
    }
}

int tensor_match_init(struct tensor_match *v, const struct model *m, const struct st_set *s,
                      int strict, struct err *e)
{
    *v = (struct tensor_match){.names = names_of(s)};
    v->source = mem_alloc((size_t)m->params.n + 1, sizeof *v->source);
    v->used = mem_alloc(st_set_count(s) + 1, 1);
    if (!v->source || !v->used) {
        tensor_match_release(v);
        return err_set(e, DS_EMEM, "out of memory for the tensor names");
    }
    find_sources(v, m, s, strict);
    for (size_t i = 0; i < st_set_count(s); i++) {
        const char *name = st_set_at(s, i)->name;
        size_t head;
        int is_head = m->head < 0 && find_head(v, s, &head) && head == i;
        if (v->used[i] || names_is_buffer(name))
            continue;
        if (is_head)
            v->used_n++; /* compared with the embedding */
        else if (!strict && is_extra(name))
            name_one(&v->ignored_n, &v->ignored, name);
        else
            name_one(&v->unexpected_n, &v->unexpected, name);
    }
    return 0;
}

void tensor_match_release(struct tensor_match *v)
{
    mem_free(v->source);
    mem_free(v->used);
    str_release(&v->missing);
    str_release(&v->unexpected);
    str_release(&v->ignored);
    str_release(&v->new);
    *v = (struct tensor_match){0};
}

static void add_count(struct str *out, int n, const char *what, const struct str *names)
{
    str_addf(out, ", %d %s", n, what);
    if (n > 0)
        str_addf(out, " (%s%s)", str_text(names), n > TENSOR_MATCH_NAMES ? ", ..." : "");
    out->failed |= names->failed;
}

void tensor_match_text(const struct tensor_match *v, struct str *out)
{
    str_addf(out, "%d tensors used", v->used_n);
    add_count(out, v->missing_n, "missing", &v->missing);
    add_count(out, v->unexpected_n, "unexpected", &v->unexpected);
}

static void add_shape(struct str *s, const uint64_t *shape, int rank)
{
    str_add(s, "[");
    for (int i = 0; i < rank; i++)
        str_addf(s, "%s%llu", i ? "," : "", (unsigned long long)shape[i]);
    str_add(s, "]");
}

static int shape_error(const struct source *x, const struct param *p, struct err *e)
{
    struct str have = {0}, want = {0};
    uint64_t shape[2];
    add_shape(&have, x->tensor->shape, x->tensor->rank);
    add_shape(&want, shape, names_shape(&x->place, p, shape));
    int rc =
        err_set(e, DS_EFORMAT, "tensor %s: shape %s, expected %s from the model's configuration",
                x->tensor->name, str_text(&have), str_text(&want));
    str_release(&have);
    str_release(&want);
    return rc;
}

int tensor_match_check_shape(const struct source *x, const struct param *p, struct err *e)
{
    return shape_fits(x, p) ? st_check_read(x->tensor, x->tensor->items, e) : shape_error(x, p, e);
}

/* Values, not bytes: the two may be stored in different types. */
static int heads_agree(const struct st_tensor *a, const struct st_tensor *b)
{
    double x[COMPARED], y[COMPARED];
    if (a->items != b->items || a->rank != b->rank || a->shape[0] != b->shape[0])
        return 0;
    if (a->dtype == b->dtype && !a->scale && !b->scale)
        return memcmp(a->data, b->data, a->bytes) == 0;
    for (uint64_t at = 0; at < a->items; at += COMPARED) {
        uint64_t n = a->items - at < COMPARED ? a->items - at : COMPARED;
        st_take_f64(a, at, x, n);
        st_take_f64(b, at, y, n);
        if (memcmp(x, y, n * sizeof *x) != 0)
            return 0;
    }
    return 1;
}

static int check_head(const struct tensor_match *v, const struct model *m, const struct st_set *s,
                      struct err *e)
{
    const struct st_tensor *head = find_head(v, s, NULL), *embed = v->source[m->embed].tensor;
    if (m->head >= 0 || !head || head == embed)
        return 0;
    int rc = st_check_read(head, head->items, e);
    if (rc == 0 && !heads_agree(head, embed))
        rc = err_set(e, DS_EFORMAT,
                     "%s differs from %s, but the configuration ties them (tie_word_embeddings)",
                     head->name, embed->name);
    return rc;
}

/* Checkpoints of the public Mixture-of-Recursions code have a Llama's config.json. */
static int check_recursions(const struct st_set *s, struct err *e)
{
    for (size_t i = 0; i < st_set_count(s); i++)
        if (strstr(st_set_at(s, i)->name, ".mor_router."))
            return err_set(e, DS_EFORMAT,
                           "%s: tensor %.100s: Mixture-of-Recursions is unsupported: how its "
                           "recursions are routed and share keys is not in config.json",
                           st_set_path(s), st_set_at(s, i)->name);
    return 0;
}

int tensor_match_check(const struct tensor_match *v, const struct model *m, const struct st_set *s,
                       struct err *e)
{
    int rc = v->unexpected_n > 0 ? check_recursions(s, e) : 0;
    if (rc < 0)
        return rc;
    if (v->missing_n > 0 || v->unexpected_n > 0) {
        struct str text = {0};
        tensor_match_text(v, &text);
        rc = err_set(e, DS_EFORMAT, "%s: %s (method %s)", st_set_path(s), str_text(&text),
                     m->config.method);
        str_release(&text);
        return rc;
    }
    for (int i = 0; i < m->params.n && rc == 0; i++) {
        const struct source *x = &v->source[i];
        if (!x->tensor)
            continue;
        rc = tensor_match_check_shape(x, &m->params.p[i], e);
    }
    if (rc == 0)
        rc = check_head(v, m, s, e);
    return rc < 0 ? err_add(e, rc, "%s", st_set_path(s)) : 0;
}
