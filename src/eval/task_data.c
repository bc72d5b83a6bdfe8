/* Documents from files. */
#include <stdio.h>
#include <string.h>

#include "base/fs.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "eval/task_impl.h"

enum { FILE_MAX = 1 << 30, CELLS_MAX = 32 };

int task_set(char **field, const char *text, struct err *e)
{
    char *copy = mem_strdup(text);
    if (!copy)
        return err_set(e, DS_EMEM, "a document");
    mem_free(*field);
    *field = copy;
    return 0;
}

int task_take(char **field, struct str *s, struct err *e)
{
    int rc = s->failed ? err_set(e, DS_EMEM, "a document") : task_set(field, str_text(s), e);
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
    p->n++; /* task_parts_release frees what one of them left */
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

static void docs_release(struct task_docs *d)
{
    for (size_t i = 0; i < d->n; i++) {
        mem_free(d->v[i].query);
        mem_free(d->v[i].target);
        for (int k = 0; k < TASK_CHOICES_MAX; k++)
            mem_free(d->v[i].choice[k]);
    }
    mem_free(d->v);
    *d = (struct task_docs){0};
}

void task_parts_release(struct task_parts *p)
{
    for (size_t i = 0; i < p->n; i++) {
        docs_release(&p->v[i].asked);
        docs_release(&p->v[i].shots);
        mem_free(p->v[i].name);
        mem_free(p->v[i].description);
    }
    mem_free(p->v);
    *p = (struct task_parts){0};
}

/* ---- files ---- */

static int not_found(const char *path, const char *const *names, struct err *e)
{
    char **have = NULL;
    size_t n = 0;
    struct str list = {0};
    const char *parquet = NULL;
    for (size_t i = 0; names[i]; i++)
        str_addf(&list, "%s%s", i ? ", " : "", names[i]);
    if (fs_list(path, &have, &n, NULL) == 0)
        for (size_t i = 0; i < n && !parquet; i++)
            parquet = strstr(have[i], ".parquet") ? have[i] : NULL;
    int rc = !fs_exists(path)
                 ? err_set(e, DS_ENOTFOUND, "data.path=%s: there is no such folder", path)
             : parquet ? err_set(e, DS_EFORMAT,
                                 "%s/%s is parquet, which is not read here: write its rows as "
                                 "lines of JSON (%s)",
                                 path, parquet, str_text(&list))
                       : err_set(e, DS_ENOTFOUND, "%s holds none of %s", path, str_text(&list));
    fs_list_free(have, n);
    str_release(&list);
    return rc;
}

int task_find(char *out, size_t size, const char *path, const char *const *names, struct err *e)
{
    if (path[0] == '\0')
        return err_set(e, DS_EUSAGE, "this task needs data.path=FOLDER with %s", names[0]);
    if (fs_exists(path) && !fs_is_dir(path))
        return str_copy(out, size, path) ? err_set(e, DS_ERANGE, "the path is too long") : 0;
    for (size_t i = 0; names[i]; i++) {
        int rc = fs_join(out, size, path, names[i], e);
        if (rc < 0 || fs_exists(out))
            return rc;
    }
    return not_found(path, names, e);
}

static int read_text(struct str *text, const char *path, struct err *e)
{
    int rc = fs_read_file(text, path, FILE_MAX, e);
    if (rc < 0)
        return rc;
    if (text->len >= 4 && memcmp(text->p, "PAR1", 4) == 0)
        return err_set(e, DS_EFORMAT,
                       "%s is parquet, which is not read here: write its rows as lines of JSON",
                       path);
    size_t bad = utf8_valid(str_text(text), text->len);
    if (bad < text->len)
        return err_set(e, DS_EFORMAT, "%s: byte %zu is not UTF-8", path, bad);
    const char *nul = text->len ? memchr(text->p, 0, text->len) : NULL;
    return nul ? err_set(e, DS_EFORMAT, "%s: byte %zu is 0: this is no text", path,
                         (size_t)(nul - text->p))
               : 0;
}

static int add_line(struct task_docs *out, const char *line, size_t n, const char *where,
                    task_row_fn *row, struct err *e)
{
    struct json *j = NULL;
    int rc = json_parse(&j, line, n, where, e);
    if (rc < 0)
        return rc;
    struct task_doc *d = NULL;
    if (json_kind_of(json_root(j)) != JSON_KIND_OBJECT)
        rc = err_set(e, DS_EFORMAT, "%s: not an object", where);
    else if ((d = task_add_doc(out)) == NULL)
        rc = err_set(e, DS_EMEM, "documents");
    else
        rc = row(d, json_root(j), where, e);
    json_free(j);
    return rc;
}

int task_read_jsonl(struct task_docs *out, const char *path, task_row_fn *row, struct err *e)
{
    struct str text = {0};
    char where[1100];
    int rc = read_text(&text, path, e), line = 0;
    for (size_t at = 0; rc == 0 && at < text.len;) {
        const char *p = text.p + at, *end = memchr(p, '\n', text.len - at);
        size_t n = end ? (size_t)(end - p) : text.len - at, from = 0, to = n;
        at += n + 1;
        line++;
        task_strip(p, &from, &to);
        snprintf(where, sizeof where, "%.1000s:%d", path, line);
        if (from < to)
            rc = add_line(out, p + from, to - from, where, row, e);
    }
    if (rc == 0 && out->n == 0)
        rc = err_set(e, DS_EFORMAT, "%s holds no documents", path);
    str_release(&text);
    return rc;
}

int task_text(const char **out, const struct json_node *row, const char *key, const char *where,
              struct err *e)
{
    size_t n;
    *out = json_str(json_get(row, key), &n);
    return *out ? 0 : err_set(e, DS_EFORMAT, "%s: no text \"%s\"", where, key);
}

/* ---- comma-separated values ---- */

struct csv {
    char *at, *end;
    int line;
};

/* One cell, unquoted in place.  *last: it ends its row. */
static int csv_cell(struct csv *c, char **cell, int *last, const char *path, struct err *e)
{
    char *to = c->at;
    int start = c->line, quoted = c->at < c->end && *c->at == '"';
    *cell = to;
    c->at += quoted;
    for (; c->at < c->end; c->at++) {
        if (quoted && *c->at == '"') {
            if (c->at + 1 < c->end && c->at[1] == '"')
                c->at++;
            else {
                quoted = 0;
                continue;
            }
        } else if (!quoted && (*c->at == ',' || *c->at == '\n'))
            break;
        c->line += *c->at == '\n';
        *to++ = *c->at;
    }
    if (quoted)
        return err_set(e, DS_EFORMAT, "%s:%d: a quote is never closed: the file is cut", path,
                       start);
    *last = c->at >= c->end || *c->at == '\n';
    c->line += c->at < c->end && *c->at == '\n';
    if (*last && to > *cell && to[-1] == '\r')
        to--;
    c->at++; /* before *to is overwritten: it may be the comma itself */
    *to = '\0';
    return 0;
}

int task_read_csv(struct task_docs *out, const char *path, task_cells_fn *row, struct err *e)
{
    struct str text = {0};
    char *cell[CELLS_MAX];
    int rc = read_text(&text, path, e);
    struct csv c = {.at = text.p, .end = text.p ? text.p + text.len : NULL, .line = 1};
    while (rc == 0 && c.at < c.end) {
        size_t n = 0;
        int last = 0, line = c.line;
        while (rc == 0 && !last) {
            if (n == CELLS_MAX)
                rc = err_set(e, DS_EFORMAT, "%s:%d: more than %d columns", path, line, CELLS_MAX);
            else
                rc = csv_cell(&c, &cell[n++], &last, path, e);
        }
        if (rc == 0 && !(n == 1 && cell[0][0] == '\0'))
            rc = row(out, cell, n, line, path, e);
    }
    if (rc == 0 && out->n == 0)
        rc = err_set(e, DS_EFORMAT, "%s holds no documents", path);
    str_release(&text);
    return rc;
}

int task_read_splits(struct task_parts *out, const struct task *t, const struct task_env *env,
                     const char *const *asked, const char *const *shots, task_row_fn *row,
                     struct err *e)
{
    char path[1024];
    struct task_part *part = task_add_part(out, t->name, "", NULL);
    if (!part)
        return err_set(e, DS_EMEM, "documents");
    int rc = task_find(path, sizeof path, env->path, asked, e);
    if (rc == 0)
        rc = task_read_jsonl(&part->asked, path, row, e);
    if (rc < 0 || !env->wants_shots)
        return rc;
    if (!shots)
        return err_set(e, DS_EUSAGE, "task=%s has no split to take shots from: shots=0", t->name);
    if (!fs_is_dir(env->path))
        return err_set(e, DS_EUSAGE,
                       "%s is one file: shots come from another split, so name its folder, or "
                       "shots=0",
                       env->path);
    rc = task_find(path, sizeof path, env->path, shots, e);
    return rc == 0 ? task_read_jsonl(&part->shots, path, row, e) : rc;
}
