/* Reads the documents of tasks from files. */
#include <stdio.h>
#include <string.h>

#include "base/compiler.h"
#include "base/fs.h"
#include "base/mem.h"
#include "eval/task_impl.h"

int task_set(char **field, const char *text, struct err *e)
{
    char *copy = mem_strdup(text);
    if (!copy)
        return err_set(e, DS_EMEM, "out of memory for a document");
    mem_free(*field);
    *field = copy;
    return 0;
}

int task_take(char **field, struct str *s, struct err *e)
{
    int rc = s->failed ? err_set(e, DS_EMEM, "out of memory for a document")
                       : task_set(field, str_text(s), e);
    str_release(s);
    return rc;
}

struct task_part *task_add_part(struct task_parts *p, const char *name, const char *description,
                                const char *group)
{
    void *v = p->v;
    if (mem_grow(&v, &p->cap, p->n + 1, sizeof *p->v) < 0)
        return NULL;
    p->v = v;
    p->v[p->n] = (struct task_part){
        .name = mem_strdup(name), .description = mem_strdup(description), .group = group};
    p->n++; /* task_parts_release frees a partial allocation */
    return p->v[p->n - 1].name && p->v[p->n - 1].description ? &p->v[p->n - 1] : NULL;
}

struct task_doc *task_add_doc(struct task_docs *d)
{
    void *v = d->v;
    if (mem_grow(&v, &d->cap, d->n + 1, sizeof *d->v) < 0)
        return NULL;
    d->v = v;
    d->v[d->n] = (struct task_doc){.query = mem_strdup(""), .target = mem_strdup("")};
    d->n++;
    return d->v[d->n - 1].query && d->v[d->n - 1].target ? &d->v[d->n - 1] : NULL;
}

void task_docs_release(struct task_docs *d)
{
    for (size_t i = 0; i < d->n; i++) {
        mem_free(d->v[i].query);
        mem_free(d->v[i].target);
        mem_free(d->v[i].tag);
        for (int k = 0; k < TASK_CHOICES_MAX; k++)
            mem_free(d->v[i].choice[k]);
    }
    mem_free(d->v);
    *d = (struct task_docs){0};
}

int task_take_tagged(struct task_docs *to, struct task_docs *from, const char *tag, struct err *e)
{
    for (size_t i = 0; i < from->n; i++) {
        if (!from->v[i].tag || strcmp(from->v[i].tag, tag) != 0)
            continue;
        struct task_doc *d = task_add_doc(to), empty;
        if (!d)
            return err_set(e, DS_EMEM, "out of memory for documents");
        empty = *d;
        *d = from->v[i];
        from->v[i] = empty;
    }
    return 0;
}

void task_parts_release(struct task_parts *p)
{
    for (size_t i = 0; i < p->n; i++) {
        task_docs_release(&p->v[i].asked);
        task_docs_release(&p->v[i].shots);
        mem_free(p->v[i].name);
        mem_free(p->v[i].description);
    }
    mem_free(p->v);
    *p = (struct task_parts){0};
}

/* ---- files ---- */

static int not_found(const char *path, const char *const *names, struct err *e)
{
    char **have = NULL, file[1100];
    size_t n = 0;
    struct str list = {0};
    int rc = 0;
    for (size_t i = 0; names[i]; i++)
        str_addf(&list, "%s%s", i ? ", " : "", names[i]);
    if (fs_list(path, &have, &n, NULL) == 0)
        for (size_t i = 0; i < n && rc == 0; i++) {
            snprintf(file, sizeof file, "%.800s/%.200s", path, have[i]);
            rc = task_check_name(file, e);
        }
    if (rc == 0)
        rc = fs_exists(path) ? err_set(e, DS_ENOTFOUND, "%s: not found: expected one of %s", path,
                                       str_text(&list))
                             : err_set(e, DS_ENOTFOUND, "data.path=%s: not found", path);
    fs_list_free(have, n);
    str_release(&list);
    return rc;
}

/* Finds dir/name, or the same name with another supported extension. */
static int find_name(char *out, size_t size, const char *dir, const char *name, struct err *e)
{
    static const char lines[] = ".jsonl";
    static const char *const other[] = {".json", ".csv"};
    int rc = fs_join(out, size, dir, name, e);
    size_t n = rc == 0 ? strlen(out) : 0, k = sizeof lines - 1;
    if (rc < 0 || fs_exists(out) || n < k || strcmp(out + n - k, lines) != 0)
        return rc;
    for (size_t i = 0; i < DS_LEN(other); i++) {
        str_copy(out + n - k, k + 1, other[i]); /* none is longer than .jsonl */
        if (fs_exists(out))
            return 0;
    }
    return fs_join(out, size, dir, name, e);
}

int task_find(char *out, size_t size, const char *path, const char *const *names, struct err *e)
{
    if (fs_exists(path) && !fs_is_dir(path))
        return str_copy(out, size, path) ? err_set(e, DS_ERANGE, "path too long") : 0;
    for (size_t i = 0; names[i]; i++) {
        int rc = find_name(out, size, path, names[i], e);
        if (rc < 0 || fs_exists(out))
            return rc;
    }
    return not_found(path, names, e);
}

int task_read_splits(struct task_parts *out, const struct task *t, const struct task_env *env,
                     const char *const *asked, const char *const *shots, task_row_fn *row,
                     struct err *e)
{
    char path[1024];
    struct task_part *part = task_add_part(out, t->name, "", NULL);
    if (!part)
        return err_set(e, DS_EMEM, "out of memory for documents");
    int rc = task_find(path, sizeof path, env->path, asked, e);
    if (rc == 0)
        rc = task_read_rows(&part->asked, path, row, e);
    if (rc < 0 || !env->has_shots)
        return rc;
    if (!shots)
        return err_set(e, DS_EUSAGE, "task=%s has no few-shot split; set shots=0", t->name);
    if (!fs_is_dir(env->path))
        return err_set(
            e, DS_EUSAGE,
            "%s is a single file, but shots come from another split; give its directory or "
            "set shots=0",
            env->path);
    rc = task_find(path, sizeof path, env->path, shots, e);
    return rc == 0 ? task_read_rows(&part->shots, path, row, e) : rc;
}
