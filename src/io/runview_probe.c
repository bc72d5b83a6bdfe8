/* Probes of a run view: every decision over one text, checked against its own layers and tokens. */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "base/str.h"
#include "io/runview_parts.h"

enum { LAYERS_MAX = 4096, TOKENS_MAX = 1 << 20, NAMED_MAX = 64, LENS_MAX = 64 };

void probe_free(struct probe *p)
{
    if (!p)
        return;
    mem_free(p->name);
    mem_free(p->id);
    mem_free(p->piece); /* the bytes follow the pointers in one block */
    mem_free(p->piece_len);
    mem_free(p->run);
    mem_free(p->depth);
    mem_free(p->nll);
    mem_free(p->entropy);
    mem_free(p->flops);
    mem_free(p->forced);
    for (int i = 0; i < p->cells; i++) {
        mem_free(p->cell[i].name);
        mem_free(p->cell[i].help);
        mem_free(p->cell[i].v);
    }
    mem_free(p->cell);
    vectors_release(p->token, p->vectors);
    mem_free(p->lens_id);
    mem_free(p->lens_p);
    mem_free(p->lens_piece);
    mem_free(p);
}

const char *probe_caveat(const struct probe *p)
{
    return p->caveat;
}

size_t probe_bytes(const struct probe *p)
{
    size_t tokens = (size_t)p->tokens, cells = (size_t)p->layers * tokens;
    size_t n = sizeof *p + cells + tokens * (4 + sizeof(char *) + sizeof(size_t) + 4 * 4);
    for (size_t i = 0; p->piece_len && i < tokens; i++)
        n += p->piece_len[i] + 1;
    n += (size_t)p->cells * (cells * 4 + 64) + (size_t)p->vectors * (tokens * 4 + 64);
    n += p->forced ? cells : 0;
    return n + cells * (size_t)p->lens_k * (8 + 2 * sizeof(char *));
}

/* Everything below returns 0, DS_EFORMAT (the field is wrong) or DS_EMEM. */

static int floats(float **out, struct value v, size_t n)
{
    if (value_kind(v) == VALUE_NONE || value_kind(v) == VALUE_NIL)
        return 0;
    if (value_f32s(v, NULL, 0) != (int64_t)n)
        return DS_EFORMAT;
    *out = mem_alloc(n + 1, sizeof **out);
    if (!*out)
        return DS_EMEM;
    return value_f32s(v, *out, n) == (int64_t)n ? 0 : DS_EFORMAT;
}

static int ints(int32_t **out, struct value v, size_t n)
{
    if (value_i32s(v, NULL, 0) != (int64_t)n)
        return DS_EFORMAT;
    *out = mem_alloc(n + 1, sizeof **out);
    if (!*out)
        return DS_EMEM;
    return value_i32s(v, *out, n) == (int64_t)n ? 0 : DS_EFORMAT;
}

/* n texts in one block: the pointers, then the bytes, each NUL-terminated. */
static int pieces(char ***out, size_t **lengths, struct value v, size_t n)
{
    struct value_iter it = {0};
    struct value item;
    size_t len, total = 0, i = 0;
    int has = value_kind(v) == VALUE_ARRAY && value_len(v) == n;
    if (value_kind(v) != VALUE_NONE && !has)
        return DS_EFORMAT;
    while (has && value_next(v, &it, NULL, &item))
        total += value_bytes(item, &len) ? len : 0;
    char **p = mem_alloc(n * sizeof *p + total + n + 1, 1);
    size_t *l = lengths ? mem_alloc(n + 1, sizeof *l) : NULL;
    if (!p || (lengths && !l)) {
        mem_free(p);
        mem_free(l);
        return DS_EMEM;
    }
    char *at = (char *)(p + n);
    for (it = (struct value_iter){0}; i < n; i++) {
        const char *b = has && value_next(v, &it, NULL, &item) ? value_bytes(item, &len) : NULL;
        len = b ? len : 0;
        if (len)
            memcpy(at, b, len);
        p[i] = at;
        if (l)
            l[i] = len;
        at += len + 1;
    }
    *out = p;
    if (lengths)
        *lengths = l;
    return 0;
}

static int run_bits(struct probe *p, struct value v)
{
    int32_t *bits = NULL;
    size_t n = (size_t)p->layers * (size_t)p->tokens;
    if (value_kind(v) == VALUE_NONE)
        return 0; /* which cells were executed is unknown */
    int rc = ints(&bits, v, n);
    if (rc == 0 && !(p->run = mem_alloc(n + 1, 1)))
        rc = DS_EMEM;
    for (size_t i = 0; rc == 0 && i < n; i++)
        p->run[i] = bits[i] != 0;
    mem_free(bits);
    return rc;
}

static int ids(struct probe *p, struct value v)
{
    if (value_kind(v) != VALUE_NONE)
        return ints(&p->id, v, (size_t)p->tokens);
    p->id = mem_alloc((size_t)p->tokens + 1, sizeof *p->id);
    for (int i = 0; p->id && i < p->tokens; i++)
        p->id[i] = -1;
    return p->id ? 0 : DS_EMEM;
}

/* ---- named parts: malformed ones are counted and skipped ----------------------------------------
 */

static int named_cells(struct runview *v, struct probe *p, struct value map)
{
    struct value_iter it = {0};
    struct value key, item;
    size_t n = (size_t)p->layers * (size_t)p->tokens;
    if (!(p->cell = mem_alloc(NAMED_MAX, sizeof *p->cell)))
        return DS_EMEM;
    while (p->cells < NAMED_MAX && value_next(map, &it, &key, &item)) {
        struct matrix *m = &p->cell[p->cells];
        char name[64];
        int rc = name_copy(name, key) && !probe_cell(p, name) ? floats(&m->v, item, n) : DS_EFORMAT;
        if (rc == 0 && m->v) {
            *m = (struct matrix){.name = mem_strdup(name),
                                 .help = mem_strdup(""),
                                 .v = m->v,
                                 .rows = p->layers,
                                 .cols = p->tokens};
            p->cells++;
            rc = m->name && m->help ? 0 : DS_EMEM;
        } else {
            mem_free(m->v);
            m->v = NULL;
            v->invalid++;
        }
        if (rc == DS_EMEM)
            return rc;
    }
    return 0;
}

/* What the values of cells are: `cell_kind` and `inferred`.  Names without a cell are no error: the
 * cell may have been left out of this probe. */
static void describe_cells(struct runview *v, struct probe *p, struct value kinds,
                           struct value inferred)
{
    struct value_iter it = {0};
    struct value key, item;
    int is_map = value_kind(kinds) == VALUE_MAP, is_list = value_kind(inferred) == VALUE_ARRAY;
    v->invalid += !is_map && value_kind(kinds) > VALUE_NIL;
    v->invalid += !is_list && value_kind(inferred) > VALUE_NIL;
    while (is_map && value_next(kinds, &it, &key, &item)) {
        int is_category = value_is(item, "category");
        v->invalid += !is_category && !value_is(item, "amount");
        for (int i = 0; i < p->cells; i++)
            if (value_is(key, p->cell[i].name))
                p->cell[i].is_category = is_category;
    }
    it = (struct value_iter){0};
    while (is_list && value_next(inferred, &it, NULL, &item)) {
        p->run_is_inferred |= value_is(item, "run");
        v->invalid += value_kind(item) != VALUE_STR;
        for (int i = 0; i < p->cells; i++)
            p->cell[i].is_inferred |= value_is(item, p->cell[i].name);
    }
}

static int named_vectors(struct runview *v, struct probe *p, struct value map)
{
    struct value_iter it = {0};
    struct value key, item;
    if (!(p->token = mem_alloc(NAMED_MAX, sizeof *p->token)))
        return DS_EMEM;
    while (p->vectors < NAMED_MAX && value_next(map, &it, &key, &item)) {
        char name[64];
        struct vector got = {0};
        int rc = name_copy(name, key) && !probe_token(p, name)
                     ? vector_read(&got, name, item, (size_t)p->tokens)
                     : DS_EFORMAT;
        if (rc == DS_EMEM)
            return rc;
        if (rc == 0 && got.n == p->tokens) {
            p->token[p->vectors++] = got;
            continue;
        }
        vector_clear(&got);
        v->invalid++;
    }
    return 0;
}

static int lens(struct probe *p, struct value body)
{
    int64_t k = value_int(value_get(body, "lens_k"), 0);
    size_t n = (size_t)p->layers * (size_t)p->tokens * (size_t)(k > 0 ? k : 0);
    if (k == 0)
        return 0;
    if (k < 0 || k > LENS_MAX)
        return DS_EFORMAT;
    int rc = ints(&p->lens_id, value_get(body, "lens_id"), n);
    if (rc == 0)
        rc = floats(&p->lens_p, value_get(body, "lens_p"), n);
    struct value text = value_get(body, "lens_text");
    if (rc == 0 && value_kind(text) != VALUE_NONE)
        rc = pieces(&p->lens_piece, NULL, text, n);
    if (rc == 0 && p->lens_p)
        p->lens_k = (int)k;
    return rc;
}

/* Fills p->forced; how many cells were forced is in *count. */
static int forced_cells(struct probe *p, struct value v, int *count)
{
    int64_t n = value_kind(v) == VALUE_NONE ? 0 : value_i32s(v, NULL, 0);
    size_t cells = (size_t)p->layers * (size_t)p->tokens;
    int32_t *list = NULL;
    *count = 0;
    if (n <= 0 || n % FORCED_FIELDS || (uint64_t)n > cells * FORCED_FIELDS)
        return n == 0 ? 0 : DS_EFORMAT;
    int rc = ints(&list, v, (size_t)n);
    if (rc == 0 && !(p->forced = mem_alloc(cells, 1)))
        rc = DS_EMEM;
    if (rc == 0)
        memset(p->forced, -1, cells);
    for (const int32_t *x = list; rc == 0 && x < list + n; x += FORCED_FIELDS) {
        if (x[FORCED_LAYER] < 0 || x[FORCED_LAYER] >= p->layers || x[FORCED_TOKEN] < 0 ||
            x[FORCED_TOKEN] >= p->tokens || x[FORCED_RUN] < -1 || x[FORCED_RUN] > 1)
            rc = DS_EFORMAT;
        else
            p->forced[x[FORCED_LAYER] * p->tokens + x[FORCED_TOKEN]] = (signed char)x[FORCED_RUN];
    }
    mem_free(list);
    if (rc == 0) {
        *count = (int)(n / FORCED_FIELDS);
        return 0;
    }
    mem_free(p->forced);
    p->forced = NULL;
    return rc;
}

/* One that nobody can read is still said to be one. */
static int what_if(struct runview *v, struct probe *p, struct value asked)
{
    int is_topk = strcmp(p->routing, "topk") == 0;
    if (value_kind(asked) <= VALUE_NIL) {
        str_copy(p->caveat, sizeof p->caveat, is_topk ? "top-k, not causal" : "");
        return 0;
    }
    int n = 0, rc = forced_cells(p, value_get(asked, "forced"), &n);
    if (rc == DS_EMEM)
        return rc;
    v->invalid += rc < 0 || value_kind(asked) != VALUE_MAP;
    double offset = value_num(value_get(asked, "threshold_offset"), 0),
           capacity = value_num(value_get(asked, "capacity"), (double)NAN);
    int64_t exit = value_int(value_get(asked, "exit_layer"), 0);
    struct str text = {0};
    str_add(&text, is_topk ? "top-k what-if, not causal" : "what-if");
    if (offset != 0)
        str_addf(&text, ", threshold offset %+.4g", offset);
    if (exit > 0)
        str_addf(&text, ", first %lld layer%s only", (long long)exit, exit == 1 ? "" : "s");
    if (!isnan(capacity))
        str_addf(&text, ", capacity %.4g", capacity);
    if (n > 0)
        str_addf(&text, ", %d cell%s forced", n, n == 1 ? "" : "s");
    rc = text.failed ? DS_EMEM : 0;
    str_copy(p->caveat, sizeof p->caveat, str_text(&text));
    str_release(&text);
    return rc;
}

/* An optional field: when it is malformed only the field is dropped. */
static int optional(struct runview *v, int rc, float **field)
{
    if (rc != DS_EFORMAT)
        return rc;
    mem_free(*field);
    *field = NULL;
    v->invalid++;
    return 0;
}

static int read_parts(struct runview *v, struct probe *p, struct value body)
{
    static const char *const keys[] = {"depth", "nll", "entropy", "flops"};
    float **field[] = {&p->depth, &p->nll, &p->entropy, &p->flops};
    int rc = ids(p, value_get(body, "ids"));
    if (rc == 0)
        rc = pieces(&p->piece, &p->piece_len, value_get(body, "text"), (size_t)p->tokens);
    if (rc == 0)
        rc = run_bits(p, value_get(body, "run"));
    for (size_t i = 0; i < DS_LEN(keys) && rc == 0; i++)
        rc = optional(v, floats(field[i], value_get(body, keys[i]), (size_t)p->tokens), field[i]);
    if (rc == 0)
        rc = named_cells(v, p, value_get(body, "cell"));
    if (rc == 0)
        describe_cells(v, p, value_get(body, "cell_kind"), value_get(body, "inferred"));
    if (rc == 0)
        rc = named_vectors(v, p, value_get(body, "token"));
    if (rc < 0)
        return rc;
    rc = what_if(v, p, value_get(body, "what_if"));
    if (rc < 0)
        return rc;
    rc = lens(p, body);
    if (rc == DS_EFORMAT)
        v->invalid++;
    return rc == DS_EMEM ? rc : 0;
}

static int shape(struct probe *p, struct value body)
{
    struct value id = value_get(body, "ids"), text = value_get(body, "text");
    int64_t layers = value_int(value_get(body, "layers"), 0);
    struct value run = value_get(body, "run");
    int has_run = value_kind(run) != VALUE_NONE;
    int64_t cells = has_run ? value_i32s(run, NULL, 0) : 0;
    if (layers < 1 || layers > LAYERS_MAX || cells < 0 || cells % layers)
        return DS_EFORMAT;
    int64_t tokens = value_kind(id) != VALUE_NONE      ? value_i32s(id, NULL, 0)
                     : value_kind(text) == VALUE_ARRAY ? (int64_t)value_len(text)
                                                       : cells / layers;
    if (tokens < 1 || tokens > TOKENS_MAX || tokens * layers > RECORD_MAX ||
        (has_run && tokens * layers != cells))
        return DS_EFORMAT;
    p->layers = (int)layers;
    p->tokens = (int)tokens;
    return 0;
}

struct probe *probe_read(struct runview *v, struct value body, int64_t step)
{
    struct probe *p = mem_alloc(1, sizeof *p);
    int64_t index = value_int(value_get(body, "index"), 0);
    int rc = DS_EMEM;
    if (p) {
        p->step = step;
        p->index = index >= 0 && index < INT32_MAX ? (int)index : 0;
        p->flops_dense = value_num(value_get(body, "flops_dense"), 0);
        p->name = text_copy(value_get(body, "name"), 256);
        char *routing = text_copy(value_get(body, "routing"), sizeof p->routing - 1);
        str_copy(p->routing, sizeof p->routing, routing ? routing : "");
        rc = p->name && routing ? shape(p, body) : DS_EMEM;
        mem_free(routing);
    }
    if (rc == 0)
        rc = read_parts(v, p, body);
    if (rc == 0)
        return p;
    if (rc == DS_EMEM)
        v->index->is_failed = 1;
    else
        v->invalid++;
    probe_free(p);
    return NULL;
}

/* ---- thinning
 * ------------------------------------------------------------------------------------- */

static int is_over(const struct runview *v)
{
    return v->n_probes > RUNVIEW_PROBES || v->index->probe_bytes > RUNVIEW_PROBE_BYTES;
}

static int is_newest_of_index(const struct runview *v, size_t i)
{
    for (size_t k = v->n_probes; k-- > i + 1;)
        if (v->probe[k]->index == v->probe[i]->index)
            return 0;
    return 1;
}

/* Drops every second probe of the older half (of its index, when texts take turns), so that the
 * timeline keeps its whole length; returns how many were dropped. */
static size_t thin_once(struct runview *v)
{
    unsigned char turn[256] = {0};
    size_t kept = 0, half = v->n_probes / 2;
    for (size_t i = 0; i < v->n_probes; i++) {
        struct probe *p = v->probe[i];
        int drop = i < half && (turn[p->index & 255] ^= 1) == 0 && !is_newest_of_index(v, i);
        if (drop) {
            v->index->probe_bytes -= probe_bytes(p);
            probe_free(p);
        }
        v->probe[drop ? i : kept] = drop ? NULL : p;
        kept += !drop;
    }
    size_t removed = v->n_probes - kept;
    v->n_probes = kept;
    return removed;
}

void probes_thin(struct runview *v)
{
    while (is_over(v) && v->n_probes > 1) {
        size_t removed = thin_once(v);
        if (removed == 0) { /* each is the newest of its text: drop the oldest */
            v->index->probe_bytes -= probe_bytes(v->probe[0]);
            probe_free(v->probe[0]);
            memmove(v->probe, v->probe + 1, (v->n_probes - 1) * sizeof *v->probe);
            v->n_probes--;
            removed = 1;
        }
        v->thinned += removed;
    }
}

void probes_supersede(struct runview *v, int index, int64_t step)
{
    for (size_t i = v->n_probes; i-- > 0;) {
        struct probe *p = v->probe[i];
        if (index >= 0 && p->index != index)
            continue;
        if (p->step > step)
            p->is_old = 1;
        else if (index >= 0 && !p->is_old) /* those before it have lower steps, or are superseded */
            break;
    }
}
