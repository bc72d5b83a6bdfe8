/* Opens a model's tensors from one file or shards; an index and its shards must agree, or one line
 * says how they differ. */
#include "io/st_set.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/fs.h"
#include "base/json.h"
#include "base/map.h"
#include "base/mem.h"

enum { INDEX_MAX = 64 << 20, SHARDS_MAX = 512, NAMES_LISTED = 4 };

struct shard {
    char *name;
    struct st *file;
};

struct st_set {
    char *path;
    struct shard *shard;
    size_t n_shards, cap_shards;
    const struct st_tensor **tensor;
    size_t *of; /* the shard each is in */
    size_t n;
    struct st_tensor *scaled; /* matrices that have a scale */
    struct map names;         /* an index of at least n: part of another tensor */
};

static int out_of_memory(struct err *e)
{
    return err_set(e, DS_EMEM, "out of memory for the list of tensors");
}

/* ---- shards ---- */

static int add_shard(struct st_set *s, const char *name, struct err *e)
{
    void *grown = s->shard;
    if (s->n_shards == SHARDS_MAX)
        return err_set(e, DS_ERANGE, "more than %d shards", (int)SHARDS_MAX);
    if (mem_grow(&grown, &s->cap_shards, s->n_shards + 1, sizeof *s->shard) < 0)
        return out_of_memory(e);
    s->shard = grown;
    struct shard *x = &s->shard[s->n_shards];
    *x = (struct shard){.name = mem_strdup(name)};
    if (!x->name)
        return out_of_memory(e);
    s->n_shards++;
    return 0;
}

/* Collects the first few offending names on one line. */
struct list {
    struct str names;
    int n;
};

static void list_add(struct list *l, const char *fmt, ...) DS_PRINTF(2, 3);
static void list_add(struct list *l, const char *fmt, ...)
{
    char text[300];
    va_list ap;
    if (l->n++ >= NAMES_LISTED)
        return;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    str_addf(&l->names, "%s%s", l->n > 1 ? ", " : "", text);
}

/* Turns the list into an error and releases it; 0 when it is empty. */
static int list_end(struct list *l, int code, const char *one, const char *many, struct err *e)
{
    int rc = 0;
    if (l->n == 1)
        rc = err_set(e, code, "%s %s", one, str_text(&l->names));
    else if (l->n > 1)
        rc = err_set(e, code, "%d %s: %s%s", l->n, many, str_text(&l->names),
                     l->n > NAMES_LISTED ? ", ..." : "");
    str_release(&l->names);
    return rc;
}

static int gather(struct st_set *s, struct err *e)
{
    size_t n = 0;
    struct list twice = {.n = 0};
    for (size_t i = 0; i < s->n_shards; i++)
        n += st_count(s->shard[i].file);
    s->tensor = mem_alloc(n + 1, sizeof *s->tensor);
    s->of = mem_alloc(n + 1, sizeof *s->of);
    if (!s->tensor || !s->of)
        return out_of_memory(e);
    for (size_t i = 0; i < s->n_shards; i++)
        for (size_t k = 0; k < st_count(s->shard[i].file); k++) {
            const struct st_tensor *t = st_at(s->shard[i].file, k);
            int64_t other;
            if (map_get(&s->names, t->name, strlen(t->name), &other)) {
                list_add(&twice, "%.120s is in two shards, %.60s and %.60s", t->name,
                         s->shard[s->of[other]].name, s->shard[i].name);
                continue;
            }
            if (map_set(&s->names, t->name, strlen(t->name), (int64_t)s->n) < 0) {
                str_release(&twice.names);
                return out_of_memory(e);
            }
            s->of[s->n] = i;
            s->tensor[s->n++] = t;
        }
    return list_end(&twice, DS_EFORMAT, "tensor", "duplicate tensors", e);
}

/* ---- scales of F8_E4M3 ---- */

/* The tensor next to "X.weight", called X and this suffix; NULL: none. */
static const struct st_tensor *beside(const struct st_set *s, const struct st_tensor *t,
                                      const char *suffix)
{
    char name[600];
    size_t n = strlen(t->name);
    if (n < 7 || strcmp(t->name + n - 7, ".weight") != 0)
        return NULL;
    snprintf(name, sizeof name, "%.*s%s", (int)(n - 7), t->name, suffix);
    return st_set_find(s, name, NULL);
}

/* Is it part of a matrix in F8_E4M3: its scale, or that of its input, which is not rounded here? */
static int is_part(const struct st_set *s, const struct st_tensor *t)
{
    static const char *const parts[] = {".weight_scale_inv", ".weight_scale", ".input_scale",
                                        ".activation_scale", ".input_scale_ub"};
    char name[600];
    size_t n = strlen(t->name);
    for (size_t i = 0; i < DS_LEN(parts); i++) {
        size_t k = strlen(parts[i]);
        if (n <= k || strcmp(t->name + n - k, parts[i]) != 0)
            continue;
        snprintf(name, sizeof name, "%.*s.weight", (int)(n - k), t->name);
        const struct st_tensor *w = st_set_find(s, name, NULL);
        return w && w->dtype == ST_F8_E4M3;
    }
    return 0;
}

/* Moves the parts behind the other tensors and leaves them out of the count. */
static int leave_out_parts(struct st_set *s, struct err *e)
{
    size_t n = 0, first = 0, all = s->n;
    const struct st_tensor **tensor = mem_alloc(all + 1, sizeof *tensor);
    size_t *of = mem_alloc(all + 1, sizeof *of);
    int rc = tensor && of ? 0 : out_of_memory(e);
    for (size_t i = 0; i < all && rc == 0; i++)
        n += !is_part(s, s->tensor[i]);
    for (size_t i = 0, last = n; i < all && rc == 0; i++) {
        const struct st_tensor *t = s->tensor[i];
        size_t to = is_part(s, t) ? last++ : first++;
        tensor[to] = t;
        of[to] = s->of[i];
    }
    for (size_t i = 0; i < all && rc == 0; i++)
        if (map_set(&s->names, tensor[i]->name, strlen(tensor[i]->name), (int64_t)i) < 0)
            rc = out_of_memory(e);
    if (rc < 0) {
        mem_free(tensor);
        mem_free(of);
        return rc;
    }
    mem_free(s->tensor);
    mem_free(s->of);
    s->tensor = tensor;
    s->of = of;
    s->n = n;
    return 0;
}

/* Gives matrices in F8_E4M3 their scales; one without is refused when it is read. */
static int find_scales(struct st_set *s, struct err *e)
{
    size_t n = 0;
    int rc = 0;
    for (size_t i = 0; i < s->n; i++)
        n += s->tensor[i]->dtype == ST_F8_E4M3;
    if (n == 0)
        return 0;
    s->scaled = mem_alloc(n, sizeof *s->scaled);
    if (!s->scaled)
        return out_of_memory(e);
    n = 0;
    for (size_t i = 0; i < s->n && rc == 0; i++) {
        const struct st_tensor *t = s->tensor[i], *scale = beside(s, t, ".weight_scale_inv");
        scale = scale ? scale : beside(s, t, ".weight_scale");
        if (t->dtype != ST_F8_E4M3 || !scale)
            continue;
        s->scaled[n] = *t;
        rc = st_set_scale(&s->scaled[n], scale, e);
        s->tensor[i] = &s->scaled[n++];
    }
    if (rc == 0)
        rc = leave_out_parts(s, e);
    return rc < 0 ? err_add(e, rc, "%s", s->path) : 0;
}

/* ---- the index ---- */

/* Shards are next to their index: a name with a slash could point anywhere. */
static int is_plain_name(const char *name)
{
    return name && name[0] && name[0] != '.' && !strchr(name, '/') && !strchr(name, '\\');
}

static int shard_number(const struct st_set *s, const char *name)
{
    for (size_t i = 0; i < s->n_shards; i++)
        if (strcmp(s->shard[i].name, name) == 0)
            return (int)i;
    return -1;
}

/* Adds the shards that the index names, each once; missing ones are reported together. */
static int find_shards(struct st_set *s, const struct json_node *map, const char *dir,
                       struct err *e)
{
    const struct json_node *v;
    const char *key;
    char path[1200];
    struct list missing = {.n = 0};
    int rc = 0;
    for (void *at = NULL; rc == 0 && (v = json_next(map, &at, &key, NULL)) != NULL;) {
        const char *name = json_str(v, NULL);
        if (!is_plain_name(name)) {
            rc = err_set(e, DS_EFORMAT,
                         "tensor %.120s: shard \"%.80s\" must be the name of a file next to the "
                         "index",
                         key, name ? name : "");
        } else if (shard_number(s, name) < 0) {
            rc = add_shard(s, name, e);
            if (rc == 0)
                rc = fs_join(path, sizeof path, dir, name, e);
            if (rc == 0 && !fs_exists(path))
                list_add(&missing, "%.120s is missing (expected to hold %.120s)", name, key);
        }
    }
    if (rc == 0)
        return list_end(&missing, DS_ENOTFOUND, "shard", "missing shards", e);
    str_release(&missing.names);
    return rc;
}

static int open_shards(struct st_set *s, const struct json_node *map, const char *dir,
                       struct err *e)
{
    char path[1200];
    if (json_kind_of(map) != JSON_KIND_OBJECT || json_len(map) == 0)
        return err_set(e, DS_EFORMAT, "weight_map is missing or empty");
    int rc = find_shards(s, map, dir, e);
    for (size_t i = 0; i < s->n_shards && rc == 0; i++) {
        rc = fs_join(path, sizeof path, dir, s->shard[i].name, e);
        if (rc == 0)
            rc = st_open(&s->shard[i].file, path, e);
    }
    return rc;
}

static int check_index(const struct st_set *s, const struct json_node *map, struct err *e)
{
    const struct json_node *v;
    const char *key;
    for (void *next = NULL; (v = json_next(map, &next, &key, NULL)) != NULL;) {
        int64_t at;
        int expected = shard_number(s, json_str(v, NULL));
        if (!map_get(&s->names, key, strlen(key), &at))
            return err_set(e, DS_EFORMAT, "tensor %.120s is missing from its shard %.80s", key,
                           json_str(v, NULL));
        if ((int)s->of[at] != expected)
            return err_set(e, DS_EFORMAT,
                           "tensor %.120s is in shard %.80s, expected %.80s from the index", key,
                           s->shard[s->of[at]].name, json_str(v, NULL));
    }
    for (size_t i = 0; i < s->n; i++)
        if (!json_get(map, s->tensor[i]->name))
            return err_set(e, DS_EFORMAT, "tensor %.120s of shard %.80s is not in the index",
                           s->tensor[i]->name, s->shard[s->of[i]].name);
    return 0;
}

static int open_index(struct st_set *s, struct err *e)
{
    char dir[1200];
    struct json *j = NULL;
    if (str_copy(dir, sizeof dir, s->path))
        return err_set(e, DS_ERANGE, "%.120s: path too long", s->path);
    char *slash = strrchr(dir, '/');
    if (slash)
        *slash = '\0';
    else
        str_copy(dir, sizeof dir, ".");
    int rc = json_read_file(&j, s->path, INDEX_MAX, e);
    if (rc < 0)
        return rc;
    const struct json_node *map = json_get(json_root(j), "weight_map");
    rc = open_shards(s, map, dir, e);
    if (rc == 0)
        rc = gather(s, e);
    if (rc == 0)
        rc = check_index(s, map, e);
    json_free(j);
    return rc < 0 ? err_add(e, rc, "%s", s->path) : 0;
}

/* ---- opening ---- */

/* Converts all shards of a directory, run inside it. */
static const char convert[] =
    "python3 -c \"import glob, torch, safetensors.torch as s; s.save_file({k: "
    "v.clone().contiguous() "
    "for f in glob.glob('pytorch_model*.bin') for k, v in torch.load(f, map_location='cpu', "
    "weights_only=True).items()}, 'model.safetensors')\"";

static int refuse_pickle(const char *path, int has_command, struct err *e)
{
    static const char cause[] = "PyTorch pickles can execute code and are not loaded";
    return has_command
               ? err_set(e, DS_EFORMAT, "%.120s: %s; in its directory run %s", path, cause, convert)
               : err_set(e, DS_EFORMAT, "%s: %s; convert them to safetensors", path, cause);
}

/* Which file of a directory holds its weights. */
static int find_weights(char *path, size_t size, const char *dir, struct err *e)
{
    static const char *const read[] = {"model.safetensors", "model.safetensors.index.json"};
    static const char *const pickled[] = {"pytorch_model.bin", "pytorch_model.bin.index.json",
                                          "model.pt", "consolidated.00.pth"};
    int rc = 0;
    for (size_t i = 0; i < DS_LEN(read) && rc == 0; i++)
        if ((rc = fs_join(path, size, dir, read[i], e)) == 0 && fs_exists(path))
            return 0;
    for (size_t i = 0; i < DS_LEN(pickled) && rc == 0; i++)
        if ((rc = fs_join(path, size, dir, pickled[i], e)) == 0 && fs_exists(path))
            return refuse_pickle(path, i < 2, e);
    return rc < 0 ? rc
                  : err_set(e, DS_ENOTFOUND, "%s: neither %s nor %s found", dir, read[0], read[1]);
}

static int is_index(const char *path)
{
    size_t n = strlen(path);
    return n > 5 && strcmp(path + n - 5, ".json") == 0;
}

int st_set_open(struct st_set **out, const char *path, struct err *e)
{
    char file[1200];
    int rc = 0;
    if (fs_is_dir(path))
        rc = find_weights(file, sizeof file, path, e);
    else if (str_copy(file, sizeof file, path))
        rc = err_set(e, DS_ERANGE, "%.120s: path too long", path);
    if (rc < 0)
        return rc;
    struct st_set *s = mem_alloc(1, sizeof *s);
    if (!s || !(s->path = mem_strdup(file)))
        rc = out_of_memory(e);
    else if (is_index(file))
        rc = open_index(s, e);
    else if ((rc = add_shard(s, file, e)) == 0 && (rc = st_open(&s->shard[0].file, file, e)) == 0)
        rc = gather(s, e);
    if (rc == 0)
        rc = find_scales(s, e);
    if (rc == 0)
        *out = s;
    else
        st_set_close(s);
    return rc;
}

void st_set_close(struct st_set *s)
{
    if (!s)
        return;
    for (size_t i = 0; i < s->n_shards; i++) {
        st_close(s->shard[i].file);
        mem_free(s->shard[i].name);
    }
    mem_free(s->shard);
    mem_free(s->tensor);
    mem_free(s->of);
    mem_free(s->scaled);
    map_release(&s->names);
    mem_free(s->path);
    mem_free(s);
}

const char *st_set_path(const struct st_set *s)
{
    return s->path;
}

size_t st_set_count(const struct st_set *s)
{
    return s->n;
}

size_t st_set_shards(const struct st_set *s)
{
    return s->n_shards;
}

const struct st_tensor *st_set_at(const struct st_set *s, size_t i)
{
    return i < s->n ? s->tensor[i] : NULL;
}

const struct st_tensor *st_set_find(const struct st_set *s, const char *name, size_t *at)
{
    int64_t i;
    if (!map_get(&s->names, name, strlen(name), &i) || (size_t)i >= s->n)
        return NULL;
    if (at)
        *at = (size_t)i;
    return s->tensor[i];
}

int st_set_unchanged(const struct st_set *s, struct err *e)
{
    int rc = 0;
    for (size_t i = 0; i < s->n_shards && rc == 0; i++)
        rc = st_unchanged(s->shard[i].file, e);
    return rc;
}

int st_set_intact(const struct st_set *s, struct err *e)
{
    int rc = 0;
    for (size_t i = 0; i < s->n_shards && rc == 0; i++)
        rc = st_intact(s->shard[i].file, e);
    return rc;
}
