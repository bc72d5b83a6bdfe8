/* Finds logs of other programs: which format a file or a folder is of, and which files belong to
 * it.  Links that lead in circles and folders of a hundred thousand files end the search early. */
#include "io/foreign_files.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/mem.h"

const struct foreign_format *foreign_recognise(const void *p, size_t n, const char *file,
                                               int is_all)
{
    const struct foreign_format *best = NULL;
    int sure = 0;
    if (n == 0 || ((const unsigned char *)p)[0] == 0xC9) /* our own */
        return NULL;
    for (const struct foreign_format *const *f = foreign_formats; *f; f++) {
        int s = (*f)->recognise(p, n, file, is_all);
        if (s > sure) {
            best = *f;
            sure = s;
        }
    }
    return best;
}

/* A script may print itself, its configuration and its model before the first step: then the end of
 * the file tells. */
static const struct foreign_format *recognise_end(int fd, unsigned char buf[FOREIGN_PEEK],
                                                  const char *path)
{
    size_t n = 0, got = 1;
    if (buf[0] == 0xC9 || lseek(fd, -(off_t)FOREIGN_PEEK, SEEK_END) < 0)
        return NULL;
    while (n < FOREIGN_PEEK && got > 0 &&
           fs_read_some(fd, buf + n, FOREIGN_PEEK - n, &got, path, NULL) == 0)
        n += got;
    const unsigned char *line = memchr(buf, '\n', n);
    size_t at = line ? (size_t)(line - buf) + 1 : n;
    const struct foreign_format *f = n > at ? foreign_recognise(buf + at, n - at, "", 0) : NULL;
    return f && f->has_preamble ? f : NULL;
}

static const struct foreign_format *recognise_file(const char *path)
{
    unsigned char head[FOREIGN_PEEK];
    const char *slash = strrchr(path, '/');
    size_t n = 0, got = 1;
    int fd;
    if (fs_open_read(&fd, path, NULL) < 0)
        return NULL;
    while (n < sizeof head && got > 0 &&
           fs_read_some(fd, head + n, sizeof head - n, &got, path, NULL) == 0)
        n += got;
    const struct foreign_format *format =
        foreign_recognise(head, n, slash ? slash + 1 : path, n < sizeof head);
    if (!format && n == sizeof head)
        format = recognise_end(fd, head, path);
    fs_close(fd);
    return format;
}

/* ---- the files of a folder ---- */

/* As TensorBoard reads the files of a folder. */
static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static int add(struct foreign_files *f, const char *rel, struct err *e)
{
    void *p = f->name;
    char *copy = mem_strdup(rel);
    if (!copy || mem_grow(&p, &f->cap, f->n + 1, sizeof *f->name) < 0) {
        mem_free(copy);
        return err_set(e, DS_EMEM, "out of memory for file names");
    }
    f->name = p;
    f->name[f->n++] = copy;
    return 0;
}

static int look(struct foreign_files *f, const char *dir, const char *below, int depth,
                const struct foreign_format *format, struct err *e)
{
    char path[4096], rel[1024], **names = NULL;
    size_t n = 0;
    int rc = 0;
    if ((below[0] ? fs_join(path, sizeof path, dir, below, NULL)
                  : str_copy(path, sizeof path, dir)) != 0)
        return 0;
    rc = fs_list(path, &names, &n, NULL);
    if (rc < 0) /* else gone or not readable */
        return rc == DS_EMEM ? err_set(e, rc, "out of memory for file names") : 0;
    for (size_t i = 0; rc == 0 && i < n && f->looks < FOREIGN_LOOKS_MAX; i++) {
        f->looks++;
        if (names[i][0] == '.' || (below[0] ? fs_join(rel, sizeof rel, below, names[i], NULL)
                                            : str_copy(rel, sizeof rel, names[i])) != 0)
            continue;
        if (depth > 0 && (!format->is_folder || format->is_folder(rel)) &&
            fs_join(path, sizeof path, dir, rel, NULL) == 0 && fs_is_dir(path))
            rc = look(f, dir, rel, depth - 1, format, e);
        else if (format->is_member(rel))
            rc = add(f, rel, e);
    }
    fs_list_free(names, n);
    return rc;
}

static void keep_highest(struct foreign_files *f, const char *dir,
                         const struct foreign_format *format)
{
    char path[4096];
    int64_t highest = INT64_MIN;
    size_t found = 0, n = f->n;
    for (size_t i = 0; i < n; i++) {
        int64_t place = fs_join(path, sizeof path, dir, f->name[i], NULL) == 0
                            ? format->place(path, f->name[i])
                            : INT64_MIN;
        if (place >= highest) {
            highest = place;
            found = i;
        }
    }
    for (size_t i = 0; i < n; i++)
        if (i != found)
            mem_free(f->name[i]);
    if (n > 0)
        f->name[0] = f->name[found];
    f->n = n > 0;
}

int foreign_files_list(struct foreign_files *f, const char *dir,
                       const struct foreign_format *format, struct err *e)
{
    *f = (struct foreign_files){0};
    int rc = format->is_member ? look(f, dir, "", format->depth, format, e) : 0;
    if (f->n > 1)
        qsort(f->name, f->n, sizeof *f->name, by_name);
    if (format->place)
        keep_highest(f, dir, format);
    if (f->n > FOREIGN_FILES_MAX) {
        f->left_out = f->n - FOREIGN_FILES_MAX;
        for (size_t i = 0; i < f->left_out; i++)
            mem_free(f->name[i]);
        f->n = FOREIGN_FILES_MAX;
        memmove(f->name, f->name + f->left_out, f->n * sizeof *f->name);
    }
    if (rc < 0)
        foreign_files_release(f);
    return rc;
}

void foreign_files_release(struct foreign_files *f)
{
    for (size_t i = 0; i < f->n; i++)
        mem_free(f->name[i]);
    mem_free(f->name);
    *f = (struct foreign_files){0};
}

/* ---- one path ---- */

/* Does one of the files of a folder hold what its name promises?  The newest are looked at first;
 * an empty one counts: its writer has just started.  Settings beside the log do not. */
static int is_format(const char *dir, struct foreign_files *files,
                     const struct foreign_format *format)
{
    enum { LOOKS = 8 };
    for (size_t i = files->n, k = 0; i-- > 0 && k < LOOKS;) {
        char path[4096];
        struct stat st;
        if (format->is_named)
            return 1;
        if (format->is_rewritten && format->is_rewritten(files->name[i]))
            continue;
        k++;
        if (fs_join(path, sizeof path, dir, files->name[i], NULL) < 0 || fs_stat(path, &st) != 0)
            continue;
        if (S_ISREG(st.st_mode) && (st.st_size == 0 || recognise_file(path) == format))
            return 1;
    }
    return 0;
}

/* NULL with *rc = DS_EMEM when there was no memory to tell. */
static const struct foreign_format *recognise_dir(const char *dir, int *rc)
{
    char **names = NULL;
    size_t n = 0;
    const struct foreign_format *found = NULL;
    *rc = fs_list(dir, &names, &n, NULL);
    if (*rc < 0)
        return NULL;
    for (const struct foreign_format *const *f = foreign_formats; *f && !found && *rc == 0; f++) {
        struct foreign_files files = {0};
        int has_member = (*f)->depth > 0 && !(*f)->is_folder;
        for (size_t i = 0; (*f)->is_member && !has_member && i < n; i++)
            has_member =
                (*f)->is_member(names[i]) || ((*f)->is_folder && (*f)->is_folder(names[i]));
        if (!(*f)->is_member || !has_member ||
            (*rc = foreign_files_list(&files, dir, *f, NULL)) < 0)
            continue;
        if (is_format(dir, &files, *f))
            found = *f;
        foreign_files_release(&files);
    }
    fs_list_free(names, n);
    return found;
}

/* "RUN/metrics" where a format's runs have such a folder: RUN, when that is one of its runs. */
static const struct foreign_format *recognise_inner(const char *path, char *home, size_t size,
                                                    int *rc)
{
    size_t n = fs_trimmed(path), base;
    for (base = n; base > 0 && path[base - 1] != '/';)
        base--;
    for (const struct foreign_format *const *f = foreign_formats; *f; f++) {
        const char *inner = (*f)->inner;
        if (!inner || strlen(inner) != n - base || memcmp(path + base, inner, n - base) != 0)
            continue;
        if (base >= size)
            return NULL;
        memcpy(home, path, base);
        home[base] = '\0';
        if (base == 0)
            str_copy(home, size, ".");
        if (recognise_dir(home, rc) == *f)
            return *f;
    }
    return NULL;
}

const struct foreign_format *foreign_files_find(const char *path, char *home, size_t size, int *rc)
{
    struct stat st;
    const struct foreign_format *f = NULL;
    *rc = 0;
    if (fs_stat(path, &st) != 0 || str_copy(home, size, path) != 0)
        return NULL;
    if (S_ISDIR(st.st_mode)) {
        f = recognise_dir(path, rc);
        return f || *rc == DS_EMEM ? f : recognise_inner(path, home, size, rc);
    }
    return S_ISREG(st.st_mode) ? recognise_file(path) : NULL;
}

int foreign_find(const char *path, const struct foreign_format **format)
{
    char home[4096];
    int rc;
    *format = foreign_files_find(path, home, sizeof home, &rc);
    return *format != NULL;
}
