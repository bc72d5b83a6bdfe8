/* Opens the folder that the workers of a batch share. */
#include "cli/batch/batch_share.h"

#include <inttypes.h>
#include <string.h>

#include "base/clock.h"
#include "base/fs.h"
#include "base/hash.h"
#include "base/mem.h"
#include "cli/version.h"
#include "training/job.h"

/* ---- the plan of this process ---- */

/* What was asked for, before presets and data are read: the same words are the same batch. */
static uint64_t key_of(const struct batch_plan *p, struct err *e)
{
    struct str s = {0};
    str_addf(&s, "%s\n", p->kind);
    for (size_t i = 0; i < p->n; i++) {
        str_addf(&s, "row %s\n", p->row[i].label);
        for (size_t k = 0; k < p->row[i].presets; k++)
            str_addf(&s, "preset %s\n", p->row[i].preset[k]);
        for (size_t k = 0; k < p->row[i].n; k++)
            if (strncmp(p->row[i].override[k], "threads=", 8) != 0)
                str_addf(&s, "set %s\n", p->row[i].override[k]);
    }
    for (size_t i = 0; i < p->seeds; i++)
        str_addf(&s, "seed %" PRId64 "\n", p->seed[i]);
    if (s.failed)
        (void)err_set(e, DS_EMEM, "%s: out of memory", p->kind);
    uint64_t key = hash64(str_text(&s), s.len, 0);
    str_release(&s);
    return key;
}

int batch_share_plan(struct batch_share *s, const struct batch_plan *p, const struct batch_one *one,
                     size_t n, struct err *e)
{
    struct err why = {0};
    struct str first = {0};
    struct batch_one copy;
    char all[1024];
    snprintf(s->name, sizeof s->name, "%s-%012" PRIx64, p->kind, key_of(p, &why) >> 16);
    int rc = why.code ? err_set(e, why.code, "%s", why.text)
                      : fs_join(all, sizeof all, job_root(), BATCH_FOLDER, e);
    if (rc == 0)
        rc = fs_join(s->folder, sizeof s->folder, all, s->name, e);
    if (rc == 0)
        rc = fs_join(s->leases, sizeof s->leases, all, BATCH_LEASES, e);
    str_copy(s->file.kind, sizeof s->file.kind, p->kind);
    str_copy(s->file.preset, sizeof s->file.preset, p->preset);
    str_copy(s->file.version, sizeof s->file.version, DEPTHSCOPE_VERSION);
    s->file.run = mem_alloc(n + 1, sizeof *s->file.run);
    s->file.runs = s->file.run ? n : 0;
    if (rc == 0 && !s->file.run)
        rc = err_set(e, DS_EMEM, "%s: out of memory", p->kind);
    for (size_t i = 0; i < s->file.runs; i++)
        str_copy(s->file.run[i], sizeof s->file.run[i], one[i].name);
    for (size_t i = 0; rc == 0 && i < n && !s->file.first; i++) {
        if (!one[i].name[0])
            continue;
        copy = one[i];
        rc = batch_one_resolve(&copy, p, &first, e);
        s->file.first = mem_strdup(str_text(&first));
        if (rc == 0 && (!s->file.first || first.failed))
            rc = err_set(e, DS_EMEM, "%s: out of memory", p->kind);
    }
    str_release(&first);
    return rc;
}

void batch_share_release(struct batch_share *s)
{
    batch_file_release(&s->file);
    lease_list_release(&s->list);
}

/* ---- leases ---- */

int batch_share_scan(struct batch_share *s, struct err *e)
{
    if (!fs_is_dir(s->leases)) /* an empty list would let every run be claimed */
        return err_set(e, DS_EIO, "%s: not found; is the runs directory still there?", s->leases);
    return lease_list_read(&s->list, s->leases, e);
}

int batch_share_look(const struct batch_share *s, const char *run, struct lease_view *v,
                     struct err *e)
{
    return lease_look(v, s->leases, run, lease_list_find(&s->list, run), e);
}

const char *batch_share_leader(const struct batch_share *s, char out[LEASE_NAME])
{
    snprintf(out, LEASE_NAME, "leader-%.60s", s->name);
    return out;
}

const char *batch_holder(const struct lease_view *v, char *out, size_t size)
{
    struct str s = str_in(out, size);
    const char *host = v->host[0] ? v->host : "an unknown host";
    cli_add_safe(&s, host, strlen(host), 40);
    if (v->pid > 0)
        str_addf(&s, ", process %ld", v->pid);
    return out;
}

/* ---- the folder ---- */

static const char *line_end(const char *p)
{
    return p + strcspn(p, "\n");
}

/* The first line of `mine` that is not in `other` at the same place: keys are in one order. */
static int differing_line(const char *mine, const char *other, char *out, size_t size)
{
    while (*mine || *other) {
        const char *a = line_end(mine), *b = line_end(other);
        if (a - mine != b - other || strncmp(mine, other, (size_t)(a - mine)) != 0) {
            snprintf(out, size, "\"%.*s\", here \"%.*s\"", (int)(b - other > 80 ? 80 : b - other),
                     other, (int)(a - mine > 80 ? 80 : a - mine), mine);
            return 1;
        }
        mine = a + (*a == '\n');
        other = b + (*b == '\n');
    }
    return 0;
}

/* 0 the same plan, else what differs. */
static int differs(const struct batch_file *mine, const struct batch_file *other, char *out,
                   size_t size)
{
    size_t at = 0;
    if (strcmp(mine->version, other->version) != 0) {
        snprintf(out, size, "version %.20s of the program, here %.20s", other->version,
                 mine->version);
        return 1;
    }
    while (at < mine->runs && at < other->runs && strcmp(mine->run[at], other->run[at]) == 0)
        at++;
    if (at == mine->runs && at == other->runs)
        return 0;
    if (mine->runs != other->runs)
        snprintf(out, size, "%zu runs, here %zu", other->runs, mine->runs);
    else if (!differing_line(mine->first ? mine->first : "", other->first ? other->first : "", out,
                             size))
        snprintf(out, size, "run %zu is %s, here %s", at + 1,
                 other->run[at][0] ? other->run[at] : "refused",
                 mine->run[at][0] ? mine->run[at] : "refused");
    return 1;
}

/* 1 when a run of the plan is being trained; *who names the worker.  Waits until a lease of another
 * host has changed or was silent for long enough. */
static int has_workers(struct batch_share *s, const struct batch_file *file, struct lease_view *who,
                       struct err *e)
{
    struct lease_watch *watch = mem_alloc(file->runs + 1, sizeof *watch);
    int rc = watch ? 0 : err_set(e, DS_EMEM, "out of memory"), unknown = 1;
    while (rc == 0 && unknown && !batch_signal) {
        unknown = 0;
        rc = lease_list_read(&s->list, s->leases, e);
        for (size_t i = 0; rc == 0 && i < file->runs; i++) {
            struct lease_view v;
            int generation = lease_list_find(&s->list, file->run[i]);
            if (generation == 0 || !file->run[i][0])
                continue;
            rc = lease_look(&v, s->leases, file->run[i], generation, e);
            if (rc < 0 || lease_judge(&watch[i], &v) != LEASE_ALIVE)
                continue;
            unknown = 1;
            *who = v;
            if (watch[i].has_moved || fs_owner_alive(v.owner) == 1)
                rc = 1;
        }
        if (rc == 0 && unknown)
            clock_sleep(0.2);
    }
    mem_free(watch);
    return rc;
}

static int refuse(const struct batch_share *s, const struct batch_plan *p, const char *what,
                  const struct lease_view *who, struct err *e)
{
    char holder[120];
    return err_set(e, DS_EEXIST,
                   "%s: %.200s: the plan of the worker at %.80s has %.260s; all workers must have "
                   "the same program, settings and data",
                   p->kind, s->folder, batch_holder(who, holder, sizeof holder), what);
}

static int join_plan(struct batch_share *s, const struct batch_plan *p, struct err *e)
{
    struct batch_file other = {0};
    struct lease_view who = {0};
    char what[400];
    int rc = batch_file_read(&other, s->folder, e);
    if (rc == DS_EFORMAT) /* damaged: replaced like any other plan that nobody works on */
        rc = batch_file_write(&s->file, s->folder, 0, e);
    else if (rc == 0 && !differs(&s->file, &other, what, sizeof what))
        str_copy(s->file.id, sizeof s->file.id, other.id);
    else if (rc == 0 && (rc = has_workers(s, &other, &who, e)) > 0)
        rc = refuse(s, p, what, &who, e);
    else if (rc == 0)
        rc = batch_file_write(&s->file, s->folder, 0, e);
    batch_file_release(&other);
    return rc < 0 ? rc : 0;
}

/* ---- joining by id ---- */

/* The folder whose plan has this id. */
static int find_id(const char *id, char *name, size_t size, struct batch_file *file)
{
    char dir[1024], folder[1100], **names = NULL;
    size_t n = 0;
    int found = 0;
    if (fs_join(dir, sizeof dir, job_root(), BATCH_FOLDER, NULL) < 0 || !fs_is_dir(dir) ||
        fs_list(dir, &names, &n, NULL) < 0)
        return 0;
    for (size_t i = 0; i < n && !found; i++) {
        struct batch_file f = {0};
        if (names[i][0] == '.' || fs_join(folder, sizeof folder, dir, names[i], NULL) < 0 ||
            batch_file_read(&f, folder, NULL) < 0)
            continue;
        found = strcmp(f.id, id) == 0 && !str_copy(name, size, names[i]);
        if (found)
            *file = f;
        else
            batch_file_release(&f);
    }
    fs_list_free(names, n);
    return found;
}

static int join_id(struct batch_share *s, const struct batch_plan *p, struct err *e)
{
    char id[BATCH_ID], name[80], what[400];
    const char *dash = strchr(p->how.worker, '-');
    struct batch_file other = {0};
    int rc = 0;
    snprintf(id, sizeof id, "%.*s", (int)(dash ? dash - p->how.worker : 16), p->how.worker);
    str_copy(s->leader, sizeof s->leader, dash ? dash + 1 : "");
    if (!find_id(id, name, sizeof name, &other))
        return err_set(e, DS_ENOTFOUND,
                       "%s: --worker %.40s: no such batch in %.200s/" BATCH_FOLDER
                       "; is it the runs directory of the host that started it?",
                       p->kind, p->how.worker, job_root());
    s->is_later = strcmp(name, s->name) != 0 && p->is_first_part;
    if (!s->is_later && differs(&s->file, &other, what, sizeof what))
        rc = err_set(e, DS_EEXIST,
                     "%s: --worker %.40s: the plan has %.300s; all workers must have the same "
                     "program, settings and data",
                     p->kind, p->how.worker, what);
    str_copy(s->file.id, sizeof s->file.id, id);
    batch_file_release(&other);
    return rc;
}

int batch_share_open(struct batch_share *s, const struct batch_plan *p, struct err *e)
{
    if (p->how.worker)
        return join_id(s, p, e);
    int rc = fs_mkdirs(s->folder, e);
    if (rc == 0)
        rc = fs_mkdirs(s->leases, e);
    if (rc == 0)
        rc = batch_file_write(&s->file, s->folder, 1, e);
    return rc < 0 ? rc : rc > 0 ? 0 : join_plan(s, p, e);
}
