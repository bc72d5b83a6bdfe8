/* What fuzz targets share: a folder of their own that goes with the process, files in it, and checks. */
#ifndef DS_TESTS_FUZZ_KIT_H
#define DS_TESTS_FUZZ_KIT_H

#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/child.h"
#include "base/err.h"
#include "base/fs.h"
#include "base/log.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static inline void need_at(int ok, const char *what, int line)
{
    if (ok)
        return;
    fprintf(stderr, "line %d: not true: %s\n", line, what);
    abort();
}
#define need(x) need_at((x), #x, __LINE__)

/* A failure says why, in one line. */
static inline void need_line(int rc, const struct err *e)
{
    need(rc >= 0 || (e->text[0] && !strchr(e->text, '\n')));
}

static inline char *fuzz_dir_name(void)
{
    static char dir[] = "/tmp/ds-fuzz-XXXXXX";
    return dir;
}

static inline void fuzz_dir_remove(void)
{
    (void)!fs_remove_tree(fuzz_dir_name(), NULL);
}

/* The folder of this process. */
static inline const char *fuzz_dir(void)
{
    static int is_made;
    if (!is_made) {
        is_made = 1;
        need(mkdtemp(fuzz_dir_name()) != NULL && atexit(fuzz_dir_remove) == 0);
    }
    return fuzz_dir_name();
}

/* A path in that folder; two calls may be in use at once. */
static inline const char *fuzz_path(const char *name)
{
    static char path[2][1024];
    static int turn;
    char *p = path[turn++ % 2];
    snprintf(p, sizeof path[0], "%s/%s", fuzz_dir(), name);
    return p;
}

static inline void fuzz_put(const char *path, const void *data, size_t size)
{
    FILE *f = fopen(path, "wb");
    need(f != NULL && fwrite(data, 1, size, f) == size);
    need(fclose(f) == 0);
}

/* A child whose output is what is written to the descriptor that is returned. */
static inline int fuzz_child(struct child *c)
{
    int pair[2];
    need(pipe(pair) == 0 && fcntl(pair[0], F_SETFL, O_NONBLOCK) == 0);
    *c = (struct child)CHILD_NONE;
    c->out = pair[0];
    return pair[1];
}

/* Warnings about every other input are not read by anyone. */
static inline void fuzz_hush(void *ctx, enum log_level level, const char *text)
{
    (void)ctx;
    (void)level;
    (void)text;
}

#endif
