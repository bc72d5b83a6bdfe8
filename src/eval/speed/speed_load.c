/* Times loading a model from disk, compared with reading its files. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fs.h"
#include "base/mem.h"
#include "base/pool.h"
#include "base/str.h"
#include "speed_impl.h"

enum { CHUNK = 1 << 20 };

/* Reads a file sequentially and returns its bytes; 0 if unreadable. */
static double read_file(const char *path, void *chunk)
{
    double bytes = 0;
    ssize_t n;
    int fd = -1;
    if (fs_open_read(&fd, path, NULL) < 0)
        return 0;
    while ((n = read(fd, chunk, CHUNK)) > 0)
        bytes += (double)n;
    close(fd);
    return bytes;
}

/* Evicts a file from the page cache. */
static double evict_file(const char *path, void *chunk)
{
    int fd = -1;
    (void)chunk;
    if (fs_open_read(&fd, path, NULL) < 0)
        return 0;
    (void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    close(fd);
    return 0;
}

/* Sum over the weight files of a directory, without the state of an optimizer, or one file. */
static double each_file(const char *from, double (*of)(const char *path, void *chunk), void *chunk)
{
    char path[1200];
    char **name = NULL;
    size_t n = 0;
    double sum = 0;
    if (!fs_is_dir(from))
        return of(from, chunk);
    if (fs_list(from, &name, &n, NULL) < 0)
        return 0;
    for (size_t i = 0; i < n; i++) {
        size_t len = strlen(name[i]), end = strlen(".safetensors");
        if (len > end && strcmp(name[i] + len - end, ".safetensors") == 0 &&
            strcmp(name[i], "optimizer.safetensors") != 0 &&
            fs_join(path, sizeof path, from, name[i], NULL) == 0)
            sum += of(path, chunk);
    }
    fs_list_free(name, n);
    return sum;
}

static void fill_piece(void *ctx, int task, int worker)
{
    (void)worker;
    memset((char *)ctx + (size_t)task * CHUNK, 1, CHUNK);
}

/* Writes so many bytes to memory that the system has yet to provide, as every copy of the weights
 * must be. */
static int fill(double *seconds, double bytes, struct err *e)
{
    int pieces = (int)(bytes / CHUNK);
    double start = clock_mono();
    char *p = mem_reserve((size_t)pieces * CHUNK);
    if (!p)
        return err_set(e, DS_EMEM, "out of memory for %.0f MiB", bytes / (1 << 20));
    pool_run(pieces, fill_piece, p);
    *seconds = clock_mono() - start;
    mem_free_aligned(p);
    return 0;
}

/* Peak memory of this process in bytes since the last call with `again`; 0: unknown. */
static double peak_memory(int again)
{
    char line[256];
    double kib = 0;
    FILE *f = again ? fopen("/proc/self/clear_refs", "w") : NULL;
    if (f) {
        fputs("5", f);
        fclose(f);
    }
    f = fopen("/proc/self/status", "r");
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "VmHWM: %lf kB", &kib) == 1)
            break;
    if (f)
        fclose(f);
    return 1024 * kib;
}

enum { READ, FILL, OPEN, FIRST, MEMORY, COLD_READ, COLD_OPEN, TIMES };
struct times {
    double v[TIMES][SPEED_ROUNDS_MAX], bytes;
};

/* The first token of an opened model. */
static int first_token(const struct speed *s, struct model *m, struct err *e)
{
    struct pass pass = {.kind = PASS_DENSE, .seed = 1};
    struct kv_cache *cache = NULL;
    int32_t id;
    speed_fill_ids(&id, 1, (int)s->o.vocab);
    real *logits = mem_alloc((size_t)s->o.vocab, sizeof *logits);
    int rc = logits ? 0 : err_set(e, DS_EMEM, "out of memory for logits");
    if (rc == 0)
        rc = model_reserve(m, 1, 0, 1, e);
    if (rc == 0)
        rc = kv_cache_new(&cache, m, 1, e);
    if (rc == 0)
        rc = model_decode(m, cache, &id, 1, &pass, e);
    if (rc == 0)
        model_logits(m, 0, logits);
    kv_cache_free(cache);
    mem_free(logits);
    return rc;
}

/* From nothing to a model that is ready, and on to its first token. */
static int open_model(struct speed *s, double *opened, double *first, struct err *e)
{
    struct model *m = NULL;
    double start = clock_mono();
    int rc = speed_model_from(&m, s, route_find("dense"), e);
    *opened = clock_mono() - start;
    if (rc == 0 && first) {
        rc = first_token(s, m, e);
        *first = clock_mono() - start;
    }
    model_free(m);
    return rc;
}

static double read_s(struct speed *s, struct times *t, void *chunk)
{
    double start = clock_mono();
    t->bytes = each_file(s->from, read_file, chunk);
    return clock_mono() - start;
}

/* Both sides from the page cache, then, if asked for, both from the disk. */
static int one_round(struct speed *s, struct times *t, int i, int is_cold, void *chunk,
                     struct err *e)
{
    read_s(s, t, chunk); /* so that the file is cached, and its pages are the last ones used */
    t->v[READ][i] = read_s(s, t, chunk);
    int rc = fill(&t->v[FILL][i], t->bytes, e);
    if (rc < 0)
        return rc;
    peak_memory(1);
    rc = open_model(s, &t->v[OPEN][i], &t->v[FIRST][i], e);
    t->v[MEMORY][i] = peak_memory(0) / (1 << 20);
    if (rc < 0 || !is_cold)
        return rc;
    each_file(s->from, evict_file, NULL);
    t->v[COLD_READ][i] = read_s(s, t, chunk);
    each_file(s->from, evict_file, NULL);
    return open_model(s, &t->v[COLD_OPEN][i], NULL, e);
}

static const struct {
    const char *name, *after; /* after the size of the file; NULL: no size */
    int vs;                   /* the time it is compared with */
} row[] = {[READ] = {"read ", "B", -1},
           [FILL] = {"write ", "B to fresh memory", READ},
           [OPEN] = {"until ready for the first token", NULL, READ},
           [FIRST] = {"first token", NULL, READ},
           [MEMORY] = {"peak memory", NULL, -1},
           [COLD_READ] = {"read ", "B from disk", -1},
           [COLD_OPEN] = {"until ready, from disk", NULL, COLD_READ}};

static const char *row_name(char out[64], int i, const char *size)
{
    snprintf(out, 64, "load: %s%s%s", row[i].name, row[i].after ? size : "",
             row[i].after ? row[i].after : "");
    return out;
}

/* Reading and opening take long for a large model.  The size of the file is not known yet. */
static int is_requested(const struct speed *s)
{
    char name[64];
    for (int i = 0; i < TIMES; i++)
        if (speed_request(s, "load", row_name(name, i, "")))
            return 1;
    return 0;
}

static int add(struct speed *s, const struct times *t, int is_cold, struct err *e)
{
    int n = (int)s->o.rounds;
    for (int i = 0; i < (is_cold ? TIMES : COLD_READ); i++) {
        char name[64], size[16];
        str_si(size, t->bytes);
        row_name(name, i, size);
        struct speed_result *r =
            speed_add(s, "load", name, i == MEMORY ? "MiB" : "s", t->v[i], n, e);
        if (!r)
            return DS_EMEM;
        if (i == MEMORY) {
            speed_set_limit(r, r->median * (1 << 20), "file", t->bytes);
            continue;
        }
        r->gbs = t->bytes / 1e9 / r->median;
        if (row[i].vs >= 0)
            r->time_ratio = speed_median_ratio(t->v[i], t->v[row[i].vs], n);
    }
    return 0;
}

int speed_load(struct speed *s, struct err *e)
{
    struct times t;
    if (!is_requested(s))
        return 0;
    void *chunk = mem_alloc(CHUNK, 1);
    int rc = chunk ? 0 : err_set(e, DS_EMEM, "out of memory for the read buffer");
    /* evicting a file slows others down, so only on request */
    int is_cold = s->o.only[0] && speed_request(s, "load", "load: from disk");
    for (int i = -1; i < s->o.rounds && rc == 0; i++) /* the first round warms up */
        rc = one_round(s, &t, i < 0 ? 0 : i, is_cold && i >= 0, chunk, e);
    if (rc == 0)
        rc = add(s, &t, is_cold, e);
    mem_free(chunk);
    return rc;
}
