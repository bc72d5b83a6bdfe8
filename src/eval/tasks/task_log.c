/* Reads and appends the results file of finished documents. */
#include "eval/tasks/task_log.h"

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fs.h"
#include "base/json.h"
#include "base/map.h"
#include "base/mem.h"

enum { LOG_MAX = 1 << 30 };

struct entry {
    uint64_t hash;
    struct task_done done;
};
struct task_log {
    char path[1024];
    int fd;
    struct map place; /* "PART:i" -> index */
    struct entry *v;
    size_t n, cap;
};

static const char *key_of(char out[160], const char *part, size_t i)
{
    snprintf(out, 160, "%.120s:%zu", part, i);
    return out;
}

/* Field i of struct task_cost, in the order of the file. */
static double *cost_field(struct task_cost *s, size_t i)
{
    double *const at[] = {&s->run,    &s->cells,  &s->flops,       &s->dense,
                          &s->tokens, &s->scored, &s->scored_depth};
    return i < sizeof at / sizeof *at ? at[i] : NULL;
}

static int take_line(struct task_log *l, const struct json_node *row, const char *where,
                     struct err *e)
{
    char key[160];
    struct entry x = {0};
    void *v = l->v;
    const struct json_node *values = json_get(row, "value"), *weights = json_get(row, "weight"),
                           *cost = json_get(row, "spent");
    const char *part = json_str(json_get(row, "task"), NULL),
               *hash = json_str(json_get(row, "hash"), NULL);
    if (!part || !hash || json_len(values) != TASK_METRICS_MAX ||
        json_len(weights) != TASK_METRICS_MAX || json_len(cost) != 7)
        return err_set(e, DS_EFORMAT, "%s: malformed line of results", where);
    x.hash = strtoull(hash, NULL, 16);
    for (size_t i = 0; i < TASK_METRICS_MAX; i++)
        x.done.value[i] =
            (struct task_value){json_num(json_at(values, i), 0), json_num(json_at(weights, i), 0)};
    for (size_t i = 0; cost_field(&x.done.cost, i); i++)
        *cost_field(&x.done.cost, i) = json_num(json_at(cost, i), 0);
    key_of(key, part, (size_t)json_int(json_get(row, "doc"), 0));
    if (mem_grow(&v, &l->cap, l->n + 1, sizeof *l->v) < 0 ||
        map_set(&l->place, key, strlen(key), (int64_t)l->n) < 0) {
        l->v = v;
        return err_set(e, DS_EMEM, "out of memory for results");
    }
    l->v = v;
    l->v[l->n++] = x;
    return 0;
}

static int take_file(struct task_log *l, const char *text, size_t n, const char *about,
                     struct err *e)
{
    int rc = 0, line = 0;
    char where[1100];
    for (size_t at = 0; at < n && rc == 0;) {
        const char *end = memchr(text + at, '\n', n - at);
        size_t k = (size_t)(end - (text + at));
        struct json *j = NULL;
        snprintf(where, sizeof where, "%.1000s:%d", l->path, ++line);
        rc = json_parse(&j, text + at, k, where, e);
        const char *was = rc == 0 ? json_str(json_get(json_root(j), "results_of"), NULL) : NULL;
        if (rc == 0 && line > 1)
            rc = take_line(l, json_root(j), where, e);
        else if (rc == 0 && (!was || strcmp(was, about) != 0))
            rc =
                err_set(e, DS_EEXIST, "%s: contains %s%.180s, expected %.180s; choose another file",
                        l->path, was ? "results of " : "something else", was ? was : "", about);
        json_free(j);
        at += k + 1;
    }
    return rc;
}

static int append(struct task_log *l, struct str *line, struct err *e)
{
    int rc = line->failed ? err_set(e, DS_EMEM, "out of memory for results")
                          : fs_write_all(l->fd, line->p, line->len, l->path, e);
    str_release(line);
    return rc;
}

static int read_old(struct task_log *l, const char *about, int *is_new, struct err *e)
{
    struct str text = {0};
    int rc = 0;
    *is_new = 1;
    if (!fs_exists(l->path))
        return 0;
    rc = fs_read_file(&text, l->path, LOG_MAX, e);
    size_t n = text.len;
    while (n > 0 && text.p[n - 1] != '\n')
        n--;
    if (rc == 0 && n == 0 && text.len > 0 &&
        strncmp(text.p, "{\"results_of\"", text.len < 13 ? text.len : 13) != 0)
        rc = err_set(e, DS_EEXIST, "%s: not a results file; choose another file", l->path);
    if (rc == 0)
        rc = take_file(l, str_text(&text), n, about, e);
    if (rc == 0 && n < text.len)
        rc = fs_write_file(l->path, text.p, n, e);
    *is_new = n == 0;
    str_release(&text);
    return rc;
}

int task_log_open(struct task_log **out, const char *path, const char *about, struct err *e)
{
    struct str line = {0};
    int is_new = 0;
    struct task_log *l = mem_alloc(1, sizeof *l);
    if (!l)
        return err_set(e, DS_EMEM, "out of memory for results");
    l->fd = -1;
    int rc = str_copy(l->path, sizeof l->path, path) ? err_set(e, DS_ERANGE, "path too long") : 0;
    if (rc == 0 && path[0])
        rc = read_old(l, about, &is_new, e);
    if (rc == 0 && path[0]) {
        rc = fs_open_write(&l->fd, path, O_CREAT | O_APPEND, e);
    }
    if (rc == 0 && is_new && path[0]) {
        str_add(&line, "{\"results_of\": ");
        str_add_json(&line, about, strlen(about));
        str_add(&line, "}\n");
        rc = append(l, &line, e);
    }
    if (rc < 0)
        task_log_close(l);
    else
        *out = l;
    return rc;
}

void task_log_close(struct task_log *l)
{
    if (!l)
        return;
    if (l->fd >= 0)
        fs_close(l->fd);
    map_release(&l->place);
    mem_free(l->v);
    mem_free(l);
}

int task_log_get(const struct task_log *l, const char *part, size_t i, uint64_t hash,
                 struct task_done *out, struct err *e)
{
    char key[160];
    int64_t at;
    key_of(key, part, i);
    if (!map_get(&l->place, key, strlen(key), &at))
        return 0;
    if (l->v[at].hash != hash)
        return err_set(e, DS_EEXIST,
                       "%s: document %zu of %s differs: the data has changed; choose another "
                       "file",
                       l->path, i, part);
    *out = l->v[at].done;
    return 1;
}

int task_log_add(struct task_log *l, const char *part, size_t i, uint64_t hash,
                 const struct task_doc *d, const struct task_answer *a, const struct task_done *x,
                 struct err *e)
{
    struct str s = {0};
    struct task_cost cost = x->cost;
    if (l->fd < 0)
        return 0;
    str_add(&s, "{\"task\": ");
    str_add_json(&s, part, strlen(part));
    str_addf(&s, ", \"doc\": %zu, \"hash\": \"%016llx\", \"gold\": %d, \"ll\": [", i,
             (unsigned long long)hash, d->gold);
    int n = a->text ? 0 : d->choices > 0 ? d->choices : 1;
    for (int k = 0; k < n; k++)
        str_addf(&s, "%s%.17g", k ? ", " : "", a->ll[k]);
    str_add(&s, "], \"greedy\": [");
    for (int k = 0; k < d->choices && !a->text; k++)
        str_addf(&s, "%s%d", k ? ", " : "", a->greedy[k]);
    str_add(&s, "], \"text\": ");
    if (a->text)
        str_add_json(&s, a->text, strlen(a->text));
    else
        str_add(&s, "null");
    str_add(&s, ", \"depth\": ");
    str_add_json_num(&s, cost.tokens > 0 ? cost.run / cost.tokens : (double)NAN);
    for (int w = 0; w < 2; w++) {
        str_addf(&s, ", \"%s\": [", w ? "weight" : "value");
        for (int k = 0; k < TASK_METRICS_MAX; k++)
            str_addf(&s, "%s%.17g", k ? ", " : "", w ? x->value[k].weight : x->value[k].value);
        str_add(&s, "]");
    }
    str_add(&s, ", \"spent\": [");
    for (size_t k = 0; cost_field(&cost, k); k++)
        str_addf(&s, "%s%.17g", k ? ", " : "", *cost_field(&cost, k));
    str_add(&s, "]}\n");
    return append(l, &s, e);
}
