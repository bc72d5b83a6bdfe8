/* Times loading a model from disk, compared with reading its files. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fs.h"
#include "base/mem.h"
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

/* Reads the weight files of a directory, or one file. */
static double read_all(const char *from, void *chunk)
{
    char path[1200];
    char **name = NULL;
    size_t n = 0;
    double bytes = 0;
    if (!fs_is_dir(from))
        return read_file(from, chunk);
    if (fs_list(from, &name, &n, NULL) < 0)
        return 0;
    for (size_t i = 0; i < n; i++) {
        size_t len = strlen(name[i]), end = strlen(".safetensors");
        if (len > end && strcmp(name[i] + len - end, ".safetensors") == 0 &&
            fs_join(path, sizeof path, from, name[i], NULL) == 0)
            bytes += read_file(path, chunk);
    }
    fs_list_free(name, n);
    return bytes;
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

struct times {
    double read[SPEED_ROUNDS_MAX], load[SPEED_ROUNDS_MAX], memory[SPEED_ROUNDS_MAX], bytes;
};

/* One round: from nothing to a model that is ready for its first token. */
static int one_round(struct speed *s, struct times *t, int i, void *chunk, struct err *e)
{
    struct model *m = NULL;
    double start = clock_mono();
    t->bytes = read_all(s->from, chunk);
    t->read[i] = clock_mono() - start;
    peak_memory(1);
    start = clock_mono();
    int rc = speed_model_from(&m, s, route_find("dense"), e);
    t->load[i] = clock_mono() - start;
    t->memory[i] = peak_memory(0) / (1 << 20);
    model_free(m);
    return rc;
}

static int add(struct speed *s, const struct times *t, struct err *e)
{
    int n = (int)s->o.rounds;
    char name[64], size[16];
    snprintf(name, sizeof name, "load: read %sB", str_si(size, t->bytes));
    struct speed_result *r = speed_add(s, "load", name, "s", t->read, n, e);
    if (!r)
        return DS_EMEM;
    r->gbs = t->bytes / 1e9 / r->median;
    r = speed_add(s, "load", "load: until ready for the first token", "s", t->load, n, e);
    if (!r)
        return DS_EMEM;
    r->gbs = t->bytes / 1e9 / r->median;
    r->time_ratio = speed_median_ratio(t->load, t->read, n);
    r = speed_add(s, "load", "load: peak memory", "MiB", t->memory, n, e);
    if (!r)
        return DS_EMEM;
    speed_set_limit(r, r->median * (1 << 20), "file", t->bytes);
    return 0;
}

int speed_load(struct speed *s, struct err *e)
{
    struct times t;
    void *chunk = mem_alloc(CHUNK, 1);
    int rc = chunk ? 0 : err_set(e, DS_EMEM, "out of memory for the read buffer");
    for (int i = -1; i < s->o.rounds && rc == 0; i++) /* the first round fills the page cache */
        rc = one_round(s, &t, i < 0 ? 0 : i, chunk, e);
    if (rc == 0)
        rc = add(s, &t, e);
    mem_free(chunk);
    return rc;
}
