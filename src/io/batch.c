/* Reads and writes the description of a batch, and counts the states of its runs. */
#include "io/batch.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fs.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/mem.h"

enum { PLAN_BYTES = 16 << 20, RUNS_MAX = 100000, LISTED_MAX = 256 };
static const char plan_name[] = "plan.json";

/* ---- plan.json ---- */

void batch_file_release(struct batch_file *f)
{
    mem_free(f->first);
    mem_free(f->run);
    *f = (struct batch_file){0};
}

static int take_runs(struct batch_file *f, const struct json_node *runs, struct err *e)
{
    f->runs = json_len(runs);
    if (json_kind_of(runs) != JSON_KIND_ARRAY || f->runs > RUNS_MAX)
        return err_set(e, DS_EFORMAT, "runs: expected a list of at most %d names", RUNS_MAX);
    f->run = mem_alloc(f->runs + 1, sizeof *f->run);
    if (!f->run)
        return err_set(e, DS_EMEM, "out of memory");
    for (size_t i = 0; i < f->runs; i++) {
        const char *name = json_str(json_at(runs, i), NULL);
        if (!name || (name[0] && !fs_name_ok(name)))
            return err_set(e, DS_EFORMAT, "runs[%zu]: not the name of a run", i);
        str_copy(f->run[i], sizeof f->run[i], name);
    }
    return 0;
}

int batch_file_read(struct batch_file *f, const char *folder, struct err *e)
{
    char path[1200];
    struct json *j = NULL;
    struct batch_file got = {0};
    int rc = fs_join(path, sizeof path, folder, plan_name, e);
    if (rc < 0)
        return rc;
    if (!fs_exists(path))
        return err_set(e, DS_ENOTFOUND, "%s: not found", path);
    rc = json_read_file(&j, path, PLAN_BYTES, e);
    if (rc < 0)
        return rc;
    const struct json_node *root = json_root(j);
    str_copy(got.kind, sizeof got.kind, json_get_text(root, "kind"));
    str_copy(got.preset, sizeof got.preset, json_get_text(root, "preset"));
    str_copy(got.version, sizeof got.version, json_get_text(root, "version"));
    str_copy(got.id, sizeof got.id, json_get_text(root, "id"));
    got.first = mem_strdup(json_get_text(root, "first"));
    rc = !got.first ? err_set(e, DS_EMEM, "out of memory")
                    : take_runs(&got, json_get(root, "runs"), e);
    json_free(j);
    if (rc < 0) {
        batch_file_release(&got);
        return err_add(e, rc, "%s", path);
    }
    *f = got;
    return 0;
}

int batch_file_write(struct batch_file *f, const char *folder, int is_first, struct err *e)
{
    struct str s = {0};
    struct fs_new out = {.fd = -1};
    char path[1200];
    hash_random_id(f->id);
    str_add(&s, "{");
    json_add_int(&s, "format", 1);
    json_add_str(&s, "kind", f->kind);
    json_add_str(&s, "preset", f->preset);
    json_add_str(&s, "version", f->version);
    json_add_str(&s, "id", f->id);
    json_add_str(&s, "first", f->first ? f->first : "");
    json_key(&s, "runs");
    str_add(&s, "[");
    for (size_t i = 0; i < f->runs; i++)
        json_add_str(&s, NULL, f->run[i]);
    str_add(&s, "]}\n");
    int rc = s.failed ? err_set(e, DS_EMEM, "%s: out of memory", folder)
                      : fs_join(path, sizeof path, folder, plan_name, e);
    if (rc == 0)
        rc = fs_new_open(&out, path, e);
    if (rc == 0)
        rc = fs_new_write(&out, s.p, s.len, e);
    if (rc == 0)
        rc = is_first ? fs_new_commit_first(&out, e) : fs_new_commit(&out, e);
    fs_new_abort(&out);
    str_release(&s);
    return rc < 0 ? rc : is_first ? rc : 1;
}

/* ---- states ---- */

const char *batch_state_name(enum batch_state s)
{
    static const char *const name[BATCH_STATES] = {"waiting", "running", "done", "failed"};
    return s < BATCH_STATES ? name[s] : "";
}

enum batch_state batch_state_of(const struct run_row *row, const struct lease_view *v,
                                enum lease_life life)
{
    if (row && row->state == RUN_DONE)
        return BATCH_DONE;
    if (life == LEASE_ALIVE || (row && row->is_live))
        return BATCH_RUNNING;
    if (v->generation && !v->is_held && v->note[0])
        return BATCH_FAILED;
    return row && row->state == RUN_FAILED ? BATCH_FAILED : BATCH_WAITING;
}

void batch_progress_add(struct batch_progress *p, enum batch_state s, const struct lease_view *v)
{
    p->runs++;
    p->count[s]++;
    if (s != BATCH_RUNNING || !v->is_held || !v->generation)
        return;
    for (size_t i = 0; i < p->workers; i++)
        if (p->worker[i].pid == v->pid && strcmp(p->worker[i].host, v->host) == 0) {
            p->worker[i].runs++;
            return;
        }
    if (p->workers == BATCH_WORKERS) {
        p->more++;
        return;
    }
    struct batch_worker *w = &p->worker[p->workers++];
    *w = (struct batch_worker){.pid = v->pid, .runs = 1};
    str_copy(w->host, sizeof w->host, v->host);
}

void batch_progress_text(struct str *out, const struct batch_progress *p)
{
    static const enum batch_state order[] = {BATCH_DONE, BATCH_RUNNING, BATCH_FAILED,
                                             BATCH_WAITING};
    const char *before = ": ";
    str_addf(out, "%zu run%s", p->runs, p->runs == 1 ? "" : "s");
    for (size_t i = 0; i < DS_LEN(order); i++) {
        if (p->count[order[i]] == 0)
            continue;
        str_addf(out, "%s%zu %s", before, p->count[order[i]], batch_state_name(order[i]));
        before = ", ";
    }
}

void batch_workers_text(struct str *out, const struct batch_progress *p)
{
    const char *before = "";
    for (size_t i = 0; i < p->workers; i++) {
        size_t runs = 0;
        int is_new = 1;
        for (size_t k = 0; k < i; k++)
            is_new &= strcmp(p->worker[k].host, p->worker[i].host) != 0;
        for (size_t k = i; is_new && k < p->workers; k++)
            runs += strcmp(p->worker[k].host, p->worker[i].host) == 0 ? p->worker[k].runs : 0;
        if (is_new) {
            str_addf(out, "%s%s %zu", before, p->worker[i].host[0] ? p->worker[i].host : "?", runs);
            before = ", ";
        }
    }
    if (p->more)
        str_addf(out, "%sothers %zu", before, p->more);
}

/* ---- the batches of a directory ---- */

static void entry_release(struct batch_entry *x)
{
    batch_file_release(&x->file);
    mem_free(x->watch);
    *x = (struct batch_entry){0};
}

void batch_list_release(struct batch_list *l)
{
    for (size_t i = 0; i < l->n; i++)
        entry_release(&l->entry[i]);
    mem_free(l->entry);
    *l = (struct batch_list){0};
}

static void count(struct batch_entry *x, const char *dir, const struct lease_list *leases,
                  const struct runindex *index, const struct map *rows)
{
    size_t known = 0;
    x->progress = (struct batch_progress){0};
    for (size_t i = 0; i < x->file.runs; i++) {
        const char *name = x->file.run[i];
        struct lease_view v = {0};
        enum lease_life life = LEASE_FREE;
        int64_t at = -1;
        if (!name[0])
            continue;
        const struct run_row *row = map_get(rows, name, strlen(name), &at) ? index->row[at] : NULL;
        if (!row || row->state != RUN_DONE) {
            if (lease_look(&v, dir, name, lease_list_find(leases, name), NULL) < 0)
                v = (struct lease_view){0};
            life = lease_judge(&x->watch[i], &v);
        }
        known += row != NULL;
        batch_progress_add(&x->progress, batch_state_of(row, &v, life), &v);
    }
    const struct batch_progress *p = &x->progress;
    if ((known == 0 && p->count[BATCH_RUNNING] == 0) || p->count[BATCH_DONE] == p->runs)
        x->progress = (struct batch_progress){0};
}

/* The entry of a folder, read again when its plan changed; NULL when it cannot be read. */
static struct batch_entry *entry_of(struct batch_list *l, const char *name, const char *folder,
                                    struct err *e)
{
    char path[1200];
    struct stat st;
    struct batch_file file = {0};
    void *p = l->entry;
    size_t i = 0;
    if (fs_join(path, sizeof path, folder, plan_name, NULL) < 0 || fs_stat(path, &st) != 0)
        return NULL;
    while (i < l->n && strcmp(l->entry[i].name, name) != 0)
        i++;
    if (i < l->n && l->entry[i].inode == (uint64_t)st.st_ino &&
        l->entry[i].seen.tv_sec == st.st_mtim.tv_sec &&
        l->entry[i].seen.tv_nsec == st.st_mtim.tv_nsec)
        return &l->entry[i];
    if (batch_file_read(&file, folder, NULL) < 0)
        return NULL;
    if (mem_grow(&p, &l->cap, l->n + 1, sizeof *l->entry) < 0) {
        batch_file_release(&file);
        (void)err_set(e, DS_EMEM, "out of memory for the list of batches");
        return NULL;
    }
    l->entry = p;
    struct batch_entry *x = &l->entry[i];
    if (i < l->n)
        entry_release(x);
    else
        l->n++;
    *x = (struct batch_entry){.file = file, .inode = (uint64_t)st.st_ino, .seen = st.st_mtim};
    str_copy(x->name, sizeof x->name, name);
    x->watch = mem_alloc(file.runs + 1, sizeof *x->watch);
    if (!x->watch)
        (void)err_set(e, DS_EMEM, "out of memory for the list of batches");
    return x->watch ? x : NULL;
}

int batch_list_refresh(struct batch_list *l, const char *root, const struct runindex *index,
                       struct err *e)
{
    char dir[1100], folder[1200], leases_at[1200], **names = NULL;
    struct lease_list leases = {0};
    size_t n = 0, kept = 0, listed;
    struct map rows = {0};
    struct err why = {0};
    for (size_t i = 0; i < l->n; i++)
        l->entry[i].is_kept = 0;
    int rc = root ? fs_join(dir, sizeof dir, root, BATCH_FOLDER, e) : 0;
    if (rc == 0 && root && fs_is_dir(dir) && fs_list(dir, &names, &n, NULL) < 0)
        n = 0;
    listed = n;
    if (rc == 0 && n > 0 &&
        (fs_join(leases_at, sizeof leases_at, dir, BATCH_LEASES, NULL) < 0 ||
         lease_list_read(&leases, leases_at, NULL) < 0))
        n = 0; /* not readable now */
    for (size_t i = 0; rc == 0 && n > 0 && i < index->n; i++)
        if (!index->row[i]->remote)
            rc = map_set(&rows, index->row[i]->name, strlen(index->row[i]->name), (int64_t)i);
    for (size_t i = 0; rc == 0 && i < n && i < LISTED_MAX; i++) {
        if (names[i][0] == '.' || strlen(names[i]) >= sizeof l->entry->name ||
            fs_join(folder, sizeof folder, dir, names[i], NULL) < 0)
            continue;
        struct batch_entry *x = entry_of(l, names[i], folder, &why);
        rc = why.code;
        if (x) {
            x->is_kept = 1;
            count(x, leases_at, &leases, index, &rows);
        }
    }
    fs_list_free(names, listed);
    lease_list_release(&leases);
    map_release(&rows);
    for (size_t i = 0; i < l->n; i++) {
        if (!l->entry[i].is_kept)
            entry_release(&l->entry[i]);
        else if (kept++ != i) {
            l->entry[kept - 1] = l->entry[i];
            l->entry[i] = (struct batch_entry){0};
        }
    }
    l->n = kept;
    return rc < 0 ? err_set(e, DS_EMEM, "out of memory for the list of batches") : 0;
}
