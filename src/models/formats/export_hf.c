/* Exports a Hugging Face directory: config.json, and the tensors in the family's names and layout,
 * sharded if large. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/checked.h"
#include "base/fs.h"
#include "base/mem.h"
#include "export_rows.h"
#include "io/st_dtype.h"
#include "models/load.h"
#include "models/formats/names.h"

struct shared;

/* One tensor of the file, made of one or more parameters. */
struct tensor {
    struct names_place place;
    int part[NAMES_PARTS]; /* parameters */
    uint32_t type;
    struct shared *shared;
};

/* Rows of the tensor being written.  Errors in a callback are kept. */
struct shared {
    const struct export_source *s;
    const struct export_options *o;
    const struct tensor *of;
    unsigned char *rows;
    uint64_t from, n; /* of them, those that are there */
    int rc;
    struct err e;
    struct export_way way;
};

static enum st_dtype dtype_of(uint32_t type)
{
    return type == GGUF_T_F16 ? ST_F16 : type == GGUF_T_BF16 ? ST_BF16 : ST_F32;
}

static const struct param *param_of(const struct tensor *t, int k)
{
    return &t->shared->s->m->params.p[t->part[k]];
}

/* Rows of each part. */
static const uint64_t *rows_of(const struct tensor *t, uint64_t all[NAMES_PARTS])
{
    for (int k = 0; k < t->place.parts; k++)
        all[k] = (uint64_t)param_of(t, k)->shape[0];
    return all;
}

/* Rows in unchanged layout, fetched in chunks.  The parts of a fused matrix follow one another, as
 * a whole or head by head. */
static int fill_rows(struct shared *x, const struct tensor *t, uint64_t row)
{
    uint64_t all[NAMES_PARTS], left;
    x->from = row;
    int k = names_part(&t->place, rows_of(t, all), &row, &left);
    const struct param *p = param_of(t, k);
    size_t n = export_chunk_rows(p);
    size_t bytes = export_row_bytes(t->type, p->rank > 1 ? p->shape[1] : 1);
    n = p->rank < 2 || left < n ? (size_t)left : n;
    mem_free(x->rows);
    x->rows = mem_alloc(n, bytes);
    x->n = n;
    if (!x->rows)
        return err_set(&x->e, DS_EMEM, "out of memory for rows of %s", p->name);
    int rc =
        export_encode(x->s, t->part[k], ROWS_AS_THEY_ARE, t->type, (size_t)row, n, x->rows, &x->e);
    export_drop(x->s, t->part[k], (size_t)row, n);
    return rc;
}

/* A whole tensor that is transposed (in, out), or a vector of several parts. */
static int fill_foreign(struct shared *x, const struct tensor *t)
{
    const struct param *p = param_of(t, 0);
    size_t item = export_row_bytes(t->type, 1), out = (size_t)p->shape[0],
           in = p->rank > 1 ? (size_t)p->shape[1] : 1, width = out * (size_t)t->place.parts;
    mem_free(x->rows);
    x->rows = mem_alloc(width * in, item);
    x->from = 0;
    x->n = p->rank > 1 ? in : width;
    unsigned char *line = mem_alloc(in, item);
    int rc = x->rows && line ? 0 : err_set(&x->e, DS_EMEM, "out of memory for %s", p->name);
    for (size_t at = 0; at < width && rc == 0; at++) {
        uint64_t row = at, all[NAMES_PARTS], left;
        int k = names_part(&t->place, rows_of(t, all), &row, &left);
        rc =
            export_encode(x->s, t->part[k], ROWS_AS_THEY_ARE, t->type, (size_t)row, 1, line, &x->e);
        for (size_t i = 0; i < in && rc == 0; i++)
            memcpy(x->rows + (i * width + at) * item, line + i * item, item);
    }
    mem_free(line);
    return rc;
}

/* Row i for the writer; a vector as a whole. */
static void put_row(const void *data, uint64_t i, void *out)
{
    const struct tensor *t = data;
    struct shared *x = t->shared;
    const struct param *p = param_of(t, 0);
    int foreign = t->place.is_transposed || (t->place.parts > 1 && p->rank < 2);
    uint64_t shape[2];
    names_shape(&t->place, p, shape);
    size_t bytes = export_row_bytes(t->type, 1) * (size_t)(p->rank > 1 ? shape[1] : shape[0]);
    if (x->rc == 0 && (x->of != t || (p->rank > 1 && i >= x->from + x->n))) {
        x->rc = foreign ? fill_foreign(x, t) : fill_rows(x, t, i);
        x->of = t;
        if (x->rc == 0)
            x->rc =
                export_step(&x->way, (double)x->n * (double)(p->rank > 1 ? shape[1] : 1), &x->e);
    }
    if (x->rc < 0)
        memset(out, 0, bytes); /* the directory is discarded later */
    else
        memcpy(out, x->rows + (p->rank > 1 ? (size_t)(i - x->from) * bytes : 0), bytes);
}

/* ---- the list of tensors --------------------------------------------------------------------- */

/* The first of the parameters that share a tensor creates it. */
static size_t list_tensors(struct shared *x, const struct names *names, struct tensor *t,
                           struct st_out *out)
{
    size_t n = 0;
    for (int i = 0; i < export_params(x->s); i++) {
        const struct param *p = &x->s->m->params.p[i];
        struct names_place at;
        names_place(names, &x->s->m->config, p->name, &at);
        size_t k = n;
        while (at.part > 0 && k-- > 0)
            if (strcmp(t[k].place.name, at.name) == 0) {
                t[k].part[at.part] = i;
                break;
            }
        if (at.part > 0)
            continue;
        t[n] = (struct tensor){.place = at, .part = {i}, .shared = x};
        t[n].type = i < x->s->m->n_base ? x->o->type : GGUF_T_F32;
        out[n] = (struct st_out){.name = t[n].place.name,
                                 .dtype = dtype_of(t[n].type),
                                 .rank = p->rank,
                                 .data = &t[n],
                                 .row = put_row};
        names_shape(&at, p, out[n].shape);
        x->way.all +=
            at.outputs ? (double)at.outputs * (double)p->n / (double)p->shape[0] : (double)p->n;
        n++;
    }
    return n;
}

static uint64_t bytes_of(const struct st_out *t)
{
    uint64_t n = (uint64_t)st_dtype_bits(st_dtype_name(t->dtype)) / 8;
    for (int i = 0; i < t->rank; i++)
        n *= t->shape[i];
    return n;
}

/* ---- files ----------------------------------------------------------------------------------- */

/* Tensors [*from, end) of the next shard: at least one. */
static size_t shard_end(const struct st_out *t, size_t n, size_t from, uint64_t most)
{
    uint64_t bytes = 0;
    size_t i = from;
    for (; i < n && (i == from || bytes + bytes_of(&t[i]) <= most); i++)
        bytes += bytes_of(&t[i]);
    return i;
}

static size_t count_shards(const struct st_out *t, size_t n, uint64_t most)
{
    size_t shards = 0;
    for (size_t at = 0; at < n; shards++)
        at = shard_end(t, n, at, most);
    return shards;
}

static int write_index(const char *dir, const struct str *map, uint64_t bytes, struct err *e)
{
    struct str s = {0};
    str_addf(&s, "{\n  \"metadata\": {\n    \"total_size\": %" PRIu64 "\n  },\n", bytes);
    str_addf(&s, "  \"weight_map\": {\n%s\n  }\n}\n", str_text(map));
    s.failed |= map->failed;
    return fs_replace_text(dir, "model.safetensors.index.json", &s, e);
}

static int write_shards(struct shared *x, const char *dir, const struct st_out *t, size_t n,
                        struct export_result *r, struct err *e)
{
    static const char *const meta[] = {"format", "pt"};
    size_t shards = count_shards(t, n, x->o->shard_bytes), at = 0;
    struct str map = {0};
    char path[1024], name[64];
    int rc = 0;
    for (size_t k = 0; k < shards && rc == 0; k++) {
        size_t end = shard_end(t, n, at, x->o->shard_bytes);
        snprintf(name, sizeof name, "model-%05zu-of-%05zu.safetensors", k + 1, shards);
        if (shards == 1)
            str_copy(name, sizeof name, "model.safetensors");
        rc = fs_join(path, sizeof path, dir, name, e);
        if (rc == 0)
            rc = st_write(path, t + at, end - at, meta, 1, e);
        if (rc == 0 && x->rc < 0)
            rc = err_set(e, x->rc, "%s", x->e.text);
        for (; at < end; at++) {
            str_add(&map, map.len ? ",\n    " : "    ");
            str_add_json(&map, t[at].name, strlen(t[at].name));
            str_addf(&map, ": \"%s\"", name);
        }
    }
    r->files = shards;
    if (rc == 0 && shards > 1)
        rc = write_index(dir, &map, r->bytes, e);
    str_release(&map);
    return rc;
}

/* config.json records the tensors' type; the base alone is a dense model. */
static int write_config(const struct export_source *s, const struct model_config *c, uint32_t type,
                        const char *path, struct err *e)
{
    static const char was[] = "\"torch_dtype\": \"float32\"";
    struct str text = {0}, out = {0};
    int rc = 0;
    if (s->base_only) {
        model_config_to_json(&text, c, NULL);
        rc = text.failed ? err_set(e, DS_EMEM, "%s: out of memory", path) : 0;
    } else {
        rc = model_write_config(s->m, path, e);
        if (rc == 0)
            rc = fs_read_file(&text, path, 1 << 20, e);
    }
    const char *at = rc == 0 ? strstr(str_text(&text), was) : NULL;
    if (at) {
        str_add_bytes(&out, text.p, (size_t)(at - text.p));
        str_addf(&out, "\"torch_dtype\": \"%s\"%s",
                 type == GGUF_T_F16    ? "float16"
                 : type == GGUF_T_BF16 ? "bfloat16"
                                       : "float32",
                 at + sizeof was - 1);
        rc = fs_write_text(path, &out, e);
    }
    str_release(&text);
    str_release(&out);
    return rc;
}

int export_hf(const struct export_source *s, const struct export_options *o, const char *dir,
              struct export_result *r, struct err *e)
{
    struct model_config c = s->m->config; /* strings stay the model's */
    static char dense[] = "dense";
    struct shared x = {.s = s, .o = o, .way = {.o = o}};
    size_t n = (size_t)export_params(s);
    struct tensor *t = mem_alloc(n + 1, sizeof *t);
    struct st_out *out = mem_alloc(n + 1, sizeof *out);
    char path[1024];
    int rc = t && out ? 0 : err_set(e, DS_EMEM, "%s: out of memory", dir);
    *r = (struct export_result){.head_type = o->type};
    if (rc == 0 && o->type != GGUF_T_F32 && o->type != GGUF_T_F16 && o->type != GGUF_T_BF16)
        rc = err_set(e, DS_EUSAGE,
                     "unsupported type %s for safetensors: expected f32, f16 or bf16; use to=gguf",
                     gguf_type_name(o->type));
    if (rc < 0)
        goto out;
    if (s->base_only) {
        c.method = dense;
        c.lora_r = 0;
    }
    r->tensors = n = list_tensors(&x, names_of_family(model_config_family(&c)), t, out);
    for (size_t i = 0; i < n && rc == 0; i++)
        if (checked_add(r->bytes, bytes_of(&out[i]), &r->bytes))
            rc = err_set(e, DS_ERANGE, "%s: size overflows", dir);
    if (rc < 0 || (rc = export_check_room(dir, r->bytes, e)) < 0 ||
        (rc = fs_join(path, sizeof path, dir, "config.json", e)) < 0 ||
        (rc = write_config(s, &c, o->type, path, e)) < 0 ||
        (rc = write_shards(&x, dir, out, n, r, e)) < 0)
        goto out;
    rc = export_check_source(s, e);
out:
    mem_free(x.rows);
    mem_free(t);
    mem_free(out);
    return rc;
}
