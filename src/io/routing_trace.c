/* The table of formats, and what a trace that was read says. */
#include "io/routing_trace.h"

#include <limits.h>
#include <string.h>

#include "base/mem.h"
#include "io/filekind.h"
#include "io/routing_parts.h"

enum { FILES_MAX = 4096, LOOKED_AT = 65536 };

/* In this order: the first that recognises a file reads it. */
static const struct routing_format *const formats[] = {
    &routing_npy, &routing_megatron, &routing_bigmoe, &routing_llama, &routing_csv,
};

const char *routing_trace_format(int i, const char **title)
{
    int is_one = i >= 0 && (size_t)i < DS_LEN(formats);
    *title = is_one ? formats[i]->title : NULL;
    return is_one ? formats[i]->name : NULL;
}

static int named(const struct routing_format **out, const char *name, struct err *e)
{
    struct str all = {0};
    for (size_t i = 0; i < DS_LEN(formats); i++) {
        if (strcmp(formats[i]->name, name) == 0) {
            *out = formats[i];
            str_release(&all);
            return 0;
        }
        str_addf(&all, "%s%s", i ? ", " : "", formats[i]->name);
    }
    int rc = err_set(e, DS_EUSAGE, "format \"%.40s\": must be one of %s", name, str_text(&all));
    str_release(&all);
    return rc;
}

static int refuse(const struct routing_file *f, struct err *e)
{
    const char *kind = file_kind(f->map.p, f->map.n);
    if (f->map.n == 0)
        return err_set(e, DS_EFORMAT, "%s: empty file, expected a routing trace", f->path);
    if (f->map.n > 1 && memcmp(f->map.p, "\x1f\x8b", 2) == 0)
        return err_set(e, DS_EFORMAT,
                       "%s: gzip file, expected a routing trace; unpack it: gunzip -k FILE",
                       f->path);
    if (f->map.n > 3 && memcmp(f->map.p, "PK\3\4", 4) == 0)
        return err_set(e, DS_EFORMAT,
                       "%s: zip file (.npz?), expected .npy: numpy.save(\"FILE.npy\", "
                       "numpy.load(\"FILE.npz\")[\"NAME\"])",
                       f->path);
    return err_set(e, DS_EFORMAT, "%s: %s%sexpected a routing trace (depthscope help import)",
                   f->path, kind ? kind : "unknown format", kind ? ", " : ": ");
}

static int recognise(const struct routing_format **out, const struct routing_file *f, struct err *e)
{
    size_t n = f->map.n < LOOKED_AT ? f->map.n : LOOKED_AT;
    for (size_t i = 0; i < DS_LEN(formats); i++)
        if (n && formats[i]->recognise((const char *)f->map.p, n)) {
            *out = formats[i];
            return 0;
        }
    return refuse(f, e);
}

static int choose(struct routing_trace *t, const struct routing_file *f, size_t n,
                  const struct routing_options *o, struct err *e)
{
    int rc = o->format ? named(&t->format, o->format, e) : recognise(&t->format, &f[0], e);
    for (size_t i = 1; rc == 0 && !o->format && i < n; i++) {
        const struct routing_format *other = NULL;
        rc = recognise(&other, &f[i], e);
        if (rc == 0 && other != t->format)
            rc = err_set(e, DS_EFORMAT, "%s: %s, expected %s as in %s", f[i].path, other->title,
                         t->format->title, f[0].path);
    }
    return rc;
}

static int check_options(const struct routing_options *o, size_t n, struct err *e)
{
    if (o->experts < 0 || o->experts > ROUTING_EXPERTS)
        return err_set(e, DS_EUSAGE, "experts = %d: must be 1 to %d", o->experts, ROUTING_EXPERTS);
    if (o->layers < 0 || o->layers > ROUTING_LAYERS)
        return err_set(e, DS_EUSAGE, "layers = %d: must be 1 to %d", o->layers, ROUTING_LAYERS);
    if (n > FILES_MAX)
        return err_set(e, DS_EUSAGE, "%zu files: must be at most %d", n, FILES_MAX);
    return 0;
}

static int read_opened(struct routing_trace *t, const struct routing_file *f, size_t n,
                       const struct routing_options *o, struct err *e)
{
    t->width = 1;
    t->stride = 1;
    t->row_cap = t->expert_cap = 4;
    t->low_slot = INT_MAX;
    t->top_layer = t->top_expert = t->top_slot = -1;
    t->layers = o->layers;
    t->experts = o->experts;
    routing_text_name(t, "text");
    int rc = choose(t, f, n, o, e);
    if (rc == 0)
        rc = t->format->read(t, f, n, o, e);
    if (rc == 0 && (rc = routing_finish(t, e)) < 0)
        rc = err_add(e, rc, "%s", f[0].path);
    for (size_t i = 0; rc == 0 && i < n; i++)
        rc = fs_map_unchanged(&f[i].map, e);
    if (rc == 0 && t->notes.failed)
        rc = err_set(e, DS_EMEM, "out of memory for a routing trace");
    return rc;
}

int routing_trace_read(struct routing_trace **out, const char *const *path, size_t n,
                       const struct routing_options *o, struct err *e)
{
    int rc = check_options(o, n, e);
    if (rc < 0)
        return rc;
    struct routing_trace *t = mem_alloc(1, sizeof *t);
    struct routing_file *f = mem_alloc(n, sizeof *f);
    size_t opened = 0;
    rc = t && f ? 0 : err_set(e, DS_EMEM, "out of memory for a routing trace");
    while (rc == 0 && opened < n) {
        f[opened].path = path[opened];
        rc =
            fs_map_open(&f[opened].map, strcmp(path[opened], "-") ? path[opened] : "/dev/stdin", e);
        opened += rc == 0;
    }
    if (rc == 0)
        rc = read_opened(t, f, n, o, e);
    for (size_t i = 0; i < opened; i++)
        fs_map_close(&f[i].map);
    mem_free(f);
    if (rc == 0)
        *out = t;
    else
        routing_trace_free(t);
    return rc < 0 ? rc : 0;
}

struct routing_facts routing_trace_facts(const struct routing_trace *t)
{
    return (struct routing_facts){.format = t->format->name,
                                  .title = t->format->title,
                                  .layers = t->layers,
                                  .experts = t->experts,
                                  .slots = t->slots,
                                  .rows = t->rows,
                                  .has_ids = t->has_ids,
                                  .tokens = t->tokens,
                                  .loads = t->loads,
                                  .windows = t->windows,
                                  .windows_kept = t->kept,
                                  .duplicates = t->duplicates,
                                  .notes = str_text(&t->notes)};
}

int routing_trace_layer(const struct routing_trace *t, int row)
{
    return routing_layer_of(t, t->order[row]);
}

const uint64_t *routing_trace_load(const struct routing_trace *t, int row)
{
    return t->total + (size_t)row * (size_t)t->experts;
}

int64_t routing_trace_bad_id(const struct routing_trace *t, int64_t vocab)
{
    for (size_t i = 0; i < t->windows; i++)
        for (int k = 0; t->window[i].id && k < ROUTING_WINDOW; k++)
            if (t->window[i].id[k] >= vocab)
                return t->window[i].id[k];
    return -1;
}
