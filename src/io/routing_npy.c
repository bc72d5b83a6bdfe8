/* Arrays of routed experts, as vLLM, SGLang and TensorRT-LLM return them: one per request, of shape
 * (tokens, layers, k).  A request may have an array of token ids (1 dimension) and one of weights
 * (floats of the same shape); the i-th of each belongs to the i-th request. */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "io/npy.h"
#include "io/routing_parts.h"

enum { AXIS_TOKEN, AXIS_LAYER, AXIS_SLOT, AXES };

struct request {
    const char *path;
    struct npy experts, weights, ids;
    int has_weights, has_ids;
    const char *ids_path;
    int64_t text;   /* number of the request */
    uint64_t first; /* position of its first token: of a part of a request */
    int is_part;
    int axis[AXES]; /* dimension of the array; -1: none */
    uint64_t n[AXES];
};

static int add_array(struct request *r, size_t *experts, size_t *weights, size_t *ids,
                     const struct routing_file *f, struct err *e)
{
    struct npy a;
    char shape[120];
    int rc = npy_read(&a, f->map.p, f->map.n, e);
    if (rc < 0)
        return err_add(e, rc, "%s", f->path);
    if (a.kind == 'b' || a.rank == 0 || a.rank > AXES)
        return err_set(e, DS_EFORMAT, "%s: array of shape %s: expected (tokens, layers, k)",
                       f->path, npy_shape(&a, shape, sizeof shape));
    if (a.rank == 1) {
        r[*ids].ids = a;
        r[*ids].ids_path = f->path;
        r[(*ids)++].has_ids = 1;
    } else if (a.kind == 'f') {
        r[*weights].weights = a;
        r[(*weights)++].has_weights = 1;
    } else {
        r[*experts].experts = a;
        r[(*experts)++].path = f->path;
    }
    return 0;
}

/* Which axis is which: (tokens, layers, k) as all three programs have it, unless the number of
 * layers or of token ids says that it is (layers, tokens, k). */
static int find_axes(struct request *r, int layers, struct err *e)
{
    const struct npy *a = &r->experts;
    uint64_t ids = r->has_ids && !r->is_part ? r->ids.n : 0, want = (uint64_t)layers;
    char shape[120];
    int is_flat = a->rank == 2; /* one layer */
    int is_usual = is_flat || !want || a->shape[1] == want;
    int is_swapped = !is_flat && want && a->shape[0] == want;
    if (!is_usual && !is_swapped)
        return err_set(e, DS_EFORMAT, "%s: array of shape %s: expected (tokens, %d, k)", r->path,
                       npy_shape(a, shape, sizeof shape), layers);
    /* Both are possible: the ids decide. */
    int fits = a->shape[0] == ids || a->shape[0] + 1 == ids;
    int fits_swapped = !is_flat && (a->shape[1] == ids || a->shape[1] + 1 == ids);
    if (ids && !is_flat && (is_swapped || !want) && !fits && fits_swapped)
        is_usual = 0;
    r->axis[AXIS_TOKEN] = is_usual ? 0 : 1;
    r->axis[AXIS_LAYER] = is_flat ? -1 : is_usual ? 1 : 0;
    r->axis[AXIS_SLOT] = a->rank - 1;
    for (int i = 0; i < AXES; i++)
        r->n[i] = r->axis[i] < 0 ? 1 : a->shape[r->axis[i]];
    if (r->n[AXIS_LAYER] > ROUTING_LAYERS || r->n[AXIS_SLOT] > ROUTING_SLOTS)
        return err_set(e, DS_ERANGE,
                       "%s: array of shape %s as (tokens, layers, k): at most %d layers and %d "
                       "experts per token; --layers N if the layers come first",
                       r->path, npy_shape(a, shape, sizeof shape), ROUTING_LAYERS, ROUTING_SLOTS);
    return 0;
}

static int check(struct request *r, int layers, struct err *e)
{
    char shape[120], other[120];
    int rc = find_axes(r, layers, e);
    if (rc < 0)
        return rc;
    npy_shape(&r->experts, shape, sizeof shape);
    /* The last generated token has not been routed yet. */
    if (r->has_ids && !r->is_part && r->ids.n != r->n[AXIS_TOKEN] &&
        r->ids.n != r->n[AXIS_TOKEN] + 1)
        return err_set(e, DS_EFORMAT, "%s: %llu token ids, expected %llu for shape %s of %s",
                       r->ids_path, (unsigned long long)r->ids.n,
                       (unsigned long long)r->n[AXIS_TOKEN], shape, r->path);
    if (r->has_weights &&
        (r->weights.rank != r->experts.rank ||
         memcmp(r->weights.shape, r->experts.shape, sizeof r->weights.shape) != 0))
        return err_set(e, DS_EFORMAT, "%s: weights of shape %s, expected %s", r->path,
                       npy_shape(&r->weights, other, sizeof other), shape);
    return 0;
}

static uint64_t place(const struct request *r, const struct npy *a, uint64_t token, uint64_t layer,
                      uint64_t slot)
{
    uint64_t at = token * a->stride[r->axis[AXIS_TOKEN]] + slot * a->stride[r->axis[AXIS_SLOT]];
    return r->axis[AXIS_LAYER] < 0 ? at : at + layer * a->stride[r->axis[AXIS_LAYER]];
}

static int put_cell(struct routing_trace *t, const struct request *r, struct routing_row *row,
                    uint64_t token, uint64_t layer, int *zeros, struct err *e)
{
    int rc = 0;
    uint64_t slots = r->n[AXIS_SLOT];
    for (uint64_t k = 0; rc == 0 && k < slots; k++) {
        uint64_t at = place(r, &r->experts, token, layer, k);
        if (!npy_int(&r->experts, at, &row->expert))
            return err_set(e, DS_EFORMAT, "%s: token %llu, layer %llu: expected an expert number",
                           r->path, (unsigned long long)token, (unsigned long long)layer);
        *zeros &= row->expert == 0;
        row->slot = (int64_t)k;
        row->weight = r->has_weights
                          ? (float)npy_num(&r->weights, place(r, &r->weights, token, layer, k))
                          : NAN;
        if (row->expert != -1) /* -1: no expert */
            rc = routing_put(t, row, e);
    }
    return rc < 0 ? err_add(e, rc, "%s: token %llu", r->path, (unsigned long long)token) : 0;
}

static int put_request(struct routing_trace *t, const struct request *r, int64_t number,
                       unsigned char *routed, struct err *e)
{
    struct routing_row row = {.text = r->text};
    int rc = routing_step(t, number, e);
    for (uint64_t token = 0; rc == 0 && token < r->n[AXIS_TOKEN]; token++) {
        row.token = (int64_t)(r->first + token);
        row.id = -1;
        if (r->has_ids && !npy_int(&r->ids, (r->first + token) * r->ids.stride[0], &row.id))
            return err_set(e, DS_EFORMAT, "%s: token %llu: expected a token id", r->ids_path,
                           (unsigned long long)token);
        if (r->has_ids && row.id < 0)
            return err_set(e, DS_ERANGE, "%s: token id %lld: must be 0 or more", r->ids_path,
                           (long long)row.id);
        for (uint64_t layer = 0; rc == 0 && layer < r->n[AXIS_LAYER]; layer++) {
            int zeros = 1;
            row.layer = (int64_t)layer;
            rc = put_cell(t, r, &row, token, layer, &zeros, e);
            routed[layer] |= !zeros;
        }
    }
    return rc;
}

/* A layer in which all experts of all tokens are 0 is one without experts: the programs have a
 * place for every layer of the model.  No router selects an expert twice. */
static void forget_dense(struct routing_trace *t, const struct request *r, size_t n,
                         const unsigned char *routed)
{
    uint64_t layers = 0, tokens = 0;
    int forgotten = 0;
    for (size_t i = 0; i < n; i++) {
        layers = r[i].n[AXIS_LAYER] > layers ? r[i].n[AXIS_LAYER] : layers;
        tokens += r[i].n[AXIS_TOKEN];
    }
    for (uint64_t l = 0; l < layers && r[0].n[AXIS_SLOT] > 1 && tokens > 1; l++)
        if (!routed[l]) {
            routing_forget_layer(t, (int)l);
            forgotten++;
        }
    if (forgotten)
        routing_note(t, "%d layer%s without experts (all 0): not counted", forgotten,
                     forgotten == 1 ? "" : "s");
}

/* One array of ids for several of experts: those of the prompt, then of what was generated. */
static int join(struct request *r, size_t n, struct err *e)
{
    uint64_t tokens = 0;
    for (size_t i = 0; i < n; i++) {
        r[i].first = tokens;
        tokens += r[i].n[AXIS_TOKEN];
    }
    if (r[0].ids.n != tokens && r[0].ids.n != tokens + 1)
        return err_set(e, DS_EFORMAT, "%s: %llu token ids, expected %llu for %zu arrays of experts",
                       r[0].ids_path, (unsigned long long)r[0].ids.n, (unsigned long long)tokens,
                       n);
    return 0;
}

static int read_requests(struct routing_trace *t, struct request *r, size_t n,
                         const struct routing_options *o, struct err *e)
{
    unsigned char *routed = mem_alloc(ROUTING_LAYERS, 1);
    int rc = routed ? 0 : err_set(e, DS_EMEM, "out of memory for a routing trace");
    for (size_t i = 0; rc == 0 && i < n; i++)
        rc = check(&r[i], o->layers, e);
    if (rc == 0 && n > 1 && r[0].is_part)
        rc = join(r, n, e);
    for (size_t i = 0; rc == 0 && i < n; i++)
        rc = put_request(t, &r[i], (int64_t)i, routed, e);
    if (rc == 0 && n)
        forget_dense(t, r, n, routed);
    mem_free(routed);
    return rc;
}

static void number_requests(struct request *r, size_t n, int are_parts)
{
    for (size_t i = 0; i < n; i++) {
        r[i].is_part = are_parts;
        r[i].text = are_parts ? 0 : (int64_t)i;
        if (are_parts) {
            r[i].ids = r[0].ids;
            r[i].ids_path = r[0].ids_path;
            r[i].has_ids = 1;
        }
    }
}

static int read_arrays(struct routing_trace *t, const struct routing_file *file, size_t n,
                       const struct routing_options *o, struct err *e)
{
    size_t experts = 0, weights = 0, ids = 0;
    struct request *r = mem_alloc(n, sizeof *r);
    int rc = r ? 0 : err_set(e, DS_EMEM, "out of memory for a routing trace");
    routing_text_name(t, "request");
    for (size_t i = 0; rc == 0 && i < n; i++)
        rc = add_array(r, &experts, &weights, &ids, &file[i], e);
    if (rc == 0 && experts == 0)
        rc = err_set(e, DS_EFORMAT, "%s: expected an array of experts of shape (tokens, layers, k)",
                     file[0].path);
    if (rc == 0)
        number_requests(r, experts, ids == 1 && experts > 1);
    ids = ids == 1 ? experts : ids;
    if (rc == 0 && ((ids && ids != experts) || (weights && weights != experts)))
        rc = err_set(e, DS_EUSAGE,
                     "%zu arrays of experts, %zu of token ids, %zu of weights: expected one per "
                     "request",
                     experts, ids, weights);
    if (rc == 0)
        rc = read_requests(t, r, experts, o, e);
    mem_free(r);
    return rc;
}

static int recognise(const char *p, size_t n)
{
    return n >= 6 && memcmp(p, "\x93NUMPY", 6) == 0;
}

const struct routing_format routing_npy = {.name = "npy",
                                           .title =
                                               "routed_experts array (vLLM, SGLang, TensorRT-LLM)",
                                           .recognise = recognise,
                                           .read = read_arrays};
