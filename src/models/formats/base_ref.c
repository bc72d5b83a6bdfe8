/* Locates the base model of a checkpoint stored apart from it, and verifies its fingerprint. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/mem.h"
#include "load_file.h"
#include "models/peft.h"
#include "peft_names.h"

enum { PATH_SIZE = 4096 };

/* ---- fingerprint: cheap for any file size, but different after further training ---- */

enum { HEAD = 1 << 20, SAMPLE = 4096, SAMPLES = 64 };

static int hash_range(uint64_t *h, int fd, int64_t at, size_t n, unsigned char *buf,
                      const char *path, struct err *e)
{
    size_t have = 0, got = 1;
    int rc = lseek(fd, (off_t)at, SEEK_SET) < 0 ? err_errno(e, "seek in %s", path) : 0;
    while (rc == 0 && have < n && got > 0) {
        rc = fs_read_some(fd, buf + have, n - have, &got, path, e);
        have += rc == 0 ? got : 0;
    }
    *h = hash64(buf, have, *h);
    return rc;
}

/* Its size, its first MiB, and samples evenly spread over the rest. */
static int hash_file(uint64_t *h, const char *path, struct err *e)
{
    unsigned char *buf = mem_alloc(HEAD, 1);
    struct stat st;
    int fd = -1,
        rc = buf ? fs_open_read(&fd, path, e) : err_set(e, DS_EMEM, "%s: out of memory", path);
    if (rc == 0 && fs_fstat(fd, &st) != 0)
        rc = err_errno(e, "stat %s", path);
    if (rc == 0) {
        int64_t size = (int64_t)st.st_size, rest = size - HEAD - SAMPLE;
        *h = hash64(&size, sizeof size, *h);
        rc = hash_range(h, fd, 0, HEAD, buf, path, e);
        for (int i = 0; i < SAMPLES && rest > 0 && rc == 0; i++)
            rc = hash_range(h, fd, HEAD + rest / (SAMPLES - 1) * i, SAMPLE, buf, path, e);
    }
    if (fd >= 0)
        fs_close(fd);
    mem_free(buf);
    return rc;
}

static int hash_in(uint64_t *h, const char *dir, const char *name, struct err *e)
{
    char path[PATH_SIZE];
    int rc = fs_join(path, sizeof path, dir, name, e);
    return rc == 0 ? hash_file(h, path, e) : rc;
}

/* The shards that an index names, in the order of their names. */
static int hash_shards(uint64_t *h, const char *dir, const char *index, struct err *e)
{
    char path[PATH_SIZE], quoted[300];
    struct str text = {0};
    char **names = NULL;
    size_t n = 0;
    int rc = fs_join(path, sizeof path, dir, index, e);
    if (rc == 0)
        rc = fs_read_file(&text, path, 64 << 20, e);
    if (rc == 0)
        rc = fs_list(dir, &names, &n, e);
    for (size_t i = 0; i < n && rc == 0; i++) {
        snprintf(quoted, sizeof quoted, "\"%.290s\"", names[i]);
        if (strstr(str_text(&text), quoted))
            rc = hash_in(h, dir, names[i], e);
    }
    fs_list_free(names, n);
    str_release(&text);
    return rc;
}

static int hash_base(char out[17], const char *base, struct err *e)
{
    static const char one[] = "model.safetensors", index[] = "model.safetensors.index.json";
    char path[PATH_SIZE];
    uint64_t h = 1;
    int rc = 0;
    if (!fs_is_dir(base)) {
        rc = hash_file(&h, base, e);
    } else {
        rc = hash_in(&h, base, "config.json", e);
        if (rc == 0)
            rc = fs_join(path, sizeof path, base, one, e);
        if (rc == 0)
            rc = fs_exists(path) ? hash_file(&h, path, e) : hash_in(&h, base, index, e);
        if (rc == 0 && !fs_exists(path))
            rc = hash_shards(&h, base, index, e);
    }
    snprintf(out, 17, "%016" PRIx64, h);
    return rc < 0 ? err_add(e, rc, "fingerprint of the base model") : 0;
}

/* ---- location of the base ---- */

/* The relative path "../../base" of `to` from the directory `from`; both absolute, without symbolic
 * links. */
static int relative(char *out, size_t size, const char *from, const char *to)
{
    size_t same = 0, n = 0;
    for (size_t i = 0;; i++) {
        int ends = (from[i] == '/' || from[i] == '\0') && (to[i] == '/' || to[i] == '\0');
        if (ends)
            same = i;
        if (from[i] != to[i] || from[i] == '\0')
            break;
    }
    for (const char *p = from + same; *p; p++)
        if (*p == '/' && p[1] && n + 3 < size)
            n += (size_t)snprintf(out + n, size - n, "../");
    const char *rest = to + same + (to[same] == '/');
    n += (size_t)snprintf(out + n, size - n, "%s", rest);
    return n > 0 && n < size;
}

static int real_path(char *out, size_t size, const char *path, struct err *e)
{
    char full[PATH_SIZE + 1];
    if (strlen(path) >= PATH_SIZE || !realpath(path, full))
        return err_errno(e, "%s", path);
    return str_copy(out, size, full) ? err_set(e, DS_ERANGE, "%s: path too long", full) : 0;
}

int base_ref_make(struct base_ref *b, const char *model, struct err *e)
{
    char base[1024];
    int rc = model_base(model, base, sizeof base, e);
    if (rc >= 0)
        rc = real_path(b->path, sizeof b->path, rc ? base : model, e);
    return rc == 0 ? hash_base(b->hash, b->path, e) : rc;
}

int model_write_own_config(const struct model *m, const char *dir, const struct base_ref *base,
                           struct err *e)
{
    char path[1200], here[PATH_SIZE], from_here[PATH_SIZE];
    struct config more = {0};
    int rc = real_path(here, sizeof here, dir, e);
    if (rc == 0 && relative(from_here, sizeof from_here, here, base->path))
        rc = config_set(&more, "base.path", from_here, dir, e);
    if (rc < 0 || (rc = config_set(&more, "base.absolute", base->path, dir, e)) < 0 ||
        (rc = config_set(&more, "base.hash", base->hash, dir, e)) < 0 ||
        (rc = fs_join(path, sizeof path, dir, "config.json", e)) < 0)
        goto out;
    rc = model_write_config_with(m, &more, path, e);
out:
    config_release(&more);
    return rc;
}

static int is_model(const char *path)
{
    char config[PATH_SIZE];
    return model_is_file(path) ||
           (fs_join(config, sizeof config, path, "config.json", NULL) == 0 && fs_exists(config));
}

/* The base's entry in config.json, or NULL. */
static const struct json_node *base_of(const struct json *j, const char *key)
{
    return json_get(json_get(json_root(j), "depthscope"), key);
}

static int find_base(const struct json *j, const char *dir, char *base, size_t size, struct err *e)
{
    const char *near = json_str(base_of(j, "base.path"), NULL),
               *far = json_str(base_of(j, "base.absolute"), NULL),
               *given = getenv("DEPTHSCOPE_BASE");
    if (given && given[0]) {
        int rc = model_locate(given, base, size, e);
        return rc < 0 ? err_add(e, rc, "DEPTHSCOPE_BASE") : 0;
    }
    if (near && fs_join(base, size, dir, near, NULL) == 0 && is_model(base))
        return 0;
    if (far && is_model(far) && !str_copy(base, size, far))
        return 0;
    return err_set(e, DS_ENOTFOUND,
                   "%s: base model not found at %.150s (relative to it) or at "
                   "%.150s; set DEPTHSCOPE_BASE=PATH to its location",
                   dir, near ? near : "-", far ? far : "-");
}

/* config.json of a checkpoint stored apart from its base; *j NULL when DIR is not one. */
static int open_own(struct json **j, const char *dir, struct err *e)
{
    char path[PATH_SIZE];
    *j = NULL;
    if (!fs_is_dir(dir) || fs_join(path, sizeof path, dir, "config.json", NULL) < 0 ||
        !fs_exists(path))
        return 0;
    int rc = json_read_file(j, path, 1 << 20, e);
    if (rc == 0 && !base_of(*j, "base.path") && !base_of(*j, "base.absolute")) {
        json_free(*j);
        *j = NULL;
    }
    return rc;
}

static int has(const char *dir, const char *name)
{
    char path[PATH_SIZE];
    return fs_join(path, sizeof path, dir, name, NULL) == 0 && fs_exists(path);
}

int peft_is_dir(const char *dir)
{
    static const char *const whole[] = {"model.safetensors", "model.safetensors.index.json",
                                        "pytorch_model.bin", "pytorch_model.bin.index.json"};
    struct json *own = NULL;
    if (!has(dir, PEFT_CONFIG) || !has(dir, "config.json"))
        return has(dir, PEFT_CONFIG);
    int is_other = open_own(&own, dir, NULL) < 0 || own;
    for (size_t i = 0; i < DS_LEN(whole) && !is_other; i++)
        is_other = has(dir, whole[i]);
    json_free(own);
    return !is_other;
}

/* A base must be self-contained: no chains. */
static int check_whole(const char *dir, const char *base, struct err *e)
{
    struct json *j = NULL;
    int rc = open_own(&j, base, e);
    if (rc == 0 && (j || peft_is_dir(base)))
        rc = err_set(e, DS_EFORMAT, "%s: base model %.200s is itself stored without its base", dir,
                     base);
    json_free(j);
    return rc;
}

static int own_base(const struct json *j, const char *dir, char *base, size_t size, struct err *e)
{
    char now[17];
    const char *was = json_str(base_of(j, "base.hash"), NULL);
    int rc = find_base(j, dir, base, size, e);
    if (rc == 0)
        rc = real_path(base, size, base, e);
    if (rc == 0)
        rc = check_whole(dir, base, e);
    if (rc == 0)
        rc = hash_base(now, base, e);
    if (rc == 0 && (!was || strcmp(was, now) != 0))
        rc = err_set(e, DS_EFORMAT,
                     "%s: base model %.200s is not the one it was trained on: fingerprint "
                     "%s, expected %.16s",
                     dir, base, now, was ? was : "none");
    return rc;
}

int model_base(const char *dir, char *base, size_t size, struct err *e)
{
    struct json *j = NULL;
    int is_peft = peft_is_dir(dir), rc = is_peft ? 0 : open_own(&j, dir, e);
    if (rc < 0 || (!is_peft && !j))
        return rc;
    rc = is_peft ? peft_base(dir, base, size, e) : own_base(j, dir, base, size, e);
    if (rc == 0 && is_peft)
        rc = check_whole(dir, base, e);
    json_free(j);
    return rc == 0 ? 1 : rc;
}
