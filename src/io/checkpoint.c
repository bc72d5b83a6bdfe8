/* Writes, verifies and prunes checkpoints: a directory is either complete, with a manifest that
 * proves it, or not there. */
#include "io/checkpoint.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fs.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"

static const char manifest_name[] = "manifest.json";
enum { MANIFEST_MAX = 16 << 20 };

/* ---- names --------------------------------------------------------------------------------------
 */

/* Step of "step-00001000", -1 for any other name. */
static int64_t step_of(const char *name)
{
    char again[40];
    int64_t step;
    if (sscanf(name, "step-%" SCNd64, &step) != 1 || step < 0)
        return -1;
    snprintf(again, sizeof again, "step-%08" PRId64, step);
    return strcmp(again, name) == 0 ? step : -1;
}

/* Owner (base/fs.h) of "step-...tmp-OWNER" or ".trash-OWNER-step-...", NULL for any other name. */
static const char *owner_of(const char *name)
{
    const char *tmp = strncmp(name, "step-", 5) == 0 ? strstr(name, ".tmp-") : NULL;
    const char *owner = tmp ? tmp + 5 : strncmp(name, ".trash-", 7) == 0 ? name + 7 : NULL;
    return owner && fs_owner_length(owner) > 0 ? owner : NULL;
}

/* ---- writing ------------------------------------------------------------------------------------
 */

static int enough_room(const char *root, uint64_t needed, struct err *e)
{
    uint64_t left = fs_free_bytes(root);
    if (needed == 0 || left == 0 || left >= needed)
        return 0;
    return err_set(e, DS_EIO,
                   "%s: a checkpoint needs %" PRIu64 " bytes, but only %" PRIu64 " are free", root,
                   needed, left);
}

int checkpoint_begin(struct checkpoint_tx *tx, const char *root, int64_t step,
                     uint64_t bytes_needed, struct err *e)
{
    struct checkpoint_tx t = {.step = step};
    char name[40 + FS_OWNER_MAX], owner[FS_OWNER_MAX];
    if (step < 0)
        return err_set(e, DS_ERANGE, "checkpoint step %" PRId64 ": must not be negative", step);
    int rc = fs_mkdirs(root, e);
    if (rc == 0)
        rc = enough_room(root, bytes_needed, e);
    if (rc < 0)
        return rc;
    checkpoint_sweep(root);
    for (int i = 0; i < 100; i++) {
        snprintf(name, sizeof name, "step-%08" PRId64, step);
        rc = fs_join(t.final, sizeof t.final, root, name, e);
        fs_owner(owner);
        snprintf(name, sizeof name, "step-%08" PRId64 ".tmp-%s", step, owner);
        if (rc == 0)
            rc = fs_join(t.dir, sizeof t.dir, root, name, e);
        if (rc < 0 || str_copy(t.root, sizeof t.root, root))
            return rc < 0 ? rc : err_set(e, DS_ERANGE, "path too long: %.80s", root);
        if (fs_mkdir(t.dir, 0755) == 0) {
            *tx = t;
            return 0;
        }
        if (errno != EEXIST)
            break;
    }
    return err_errno(e, "create %s", t.dir);
}

static int sync_file(const char *path, struct err *e)
{
    int fd, rc = fs_open_read(&fd, path, e);
    if (rc < 0)
        return rc;
    if (fs_sync(fd) < 0)
        rc = err_errno(e, "sync %s", path);
    if (fs_close(fd) < 0 && rc == 0)
        rc = err_errno(e, "close %s", path);
    return rc;
}

/* One line of the manifest: size and hash of a file already on disk. */
static int list_file(struct str *m, const char *dir, const char *name, struct err *e)
{
    char path[1200], hex[65];
    struct stat st;
    int rc = fs_join(path, sizeof path, dir, name, e);
    if (rc < 0)
        return rc;
    if (fs_lstat(path, &st) < 0)
        return err_errno(e, "stat %s", path);
    if (!S_ISREG(st.st_mode))
        return err_set(e, DS_EFORMAT, "%s: not a regular file", path);
    rc = sync_file(path, e);
    if (rc == 0)
        rc = sha256_file(path, hex, e);
    if (rc < 0)
        return rc;
    str_add(m, m->p[m->len - 1] == '{' ? "\n  " : ",\n  ");
    str_add_json(m, name, strlen(name));
    str_addf(m, ": {\"bytes\": %" PRId64 ", \"sha256\": \"%s\"}", (int64_t)st.st_size, hex);
    return m->failed ? err_set(e, DS_EMEM, "checkpoint manifest: out of memory") : 0;
}

static int write_manifest(const struct checkpoint_tx *tx, struct err *e)
{
    struct str m = {0};
    char **names = NULL;
    size_t n = 0;
    str_addf(&m, "{\"format\": 1, \"step\": %" PRId64, tx->step);
    if (tx->run_id[0]) {
        str_add(&m, ", \"run_id\": ");
        str_add_json(&m, tx->run_id, strlen(tx->run_id));
    }
    str_add(&m, ", \"files\": {");
    int rc = m.failed ? err_set(e, DS_EMEM, "checkpoint manifest: out of memory")
                      : fs_list(tx->dir, &names, &n, e);
    for (size_t i = 0; i < n && rc == 0; i++)
        if (strcmp(names[i], manifest_name) != 0)
            rc = list_file(&m, tx->dir, names[i], e);
    str_add(&m, "\n}}\n");
    if (rc == 0)
        rc = fs_replace_text(tx->dir, manifest_name, &m, e);
    if (rc == 0)
        rc = fs_sync_dir(tx->dir, e);
    fs_list_free(names, n);
    str_release(&m);
    return rc;
}

/* Renames `from` out of the way, to a name of this process, stored in trash (size bytes). */
static int to_trash(const char *root, const char *name, char *trash, size_t size, struct err *e)
{
    char from[1200], last[200], owner[FS_OWNER_MAX];
    fs_owner(owner);
    snprintf(last, sizeof last, ".trash-%s-%.100s", owner, name);
    int rc = fs_join(from, sizeof from, root, name, e);
    if (rc == 0)
        rc = fs_join(trash, size, root, last, e);
    if (rc < 0)
        return rc;
    return fs_rename(from, trash) < 0 ? err_errno(e, "rename %s", from) : 0;
}

/* Its name is gone from the disk before its files are: a crash leaves no part of it under the name.
 * Where that cannot be had it keeps its name. */
static int remove_checkpoint(const char *root, const char *name, struct err *e)
{
    char trash[1200], path[1200];
    int rc = fs_join(path, sizeof path, root, name, e);
    if (rc == 0)
        rc = to_trash(root, name, trash, sizeof trash, e);
    if (rc < 0)
        return rc;
    rc = fs_sync_dir(root, e);
    if (rc < 0 && fs_rename(trash, path) < 0)
        log_warn("%s: %s", path, strerror(errno));
    return rc == 0 ? fs_remove_tree(trash, e) : rc;
}

int checkpoint_run_id(const char *dir, char out[CHECKPOINT_RUN_ID], struct err *e)
{
    char path[1200];
    struct json *j = NULL;
    out[0] = '\0';
    int rc = fs_join(path, sizeof path, dir, manifest_name, e);
    if (rc == 0)
        rc = json_read_file(&j, path, MANIFEST_MAX, e);
    const char *id = rc == 0 ? json_str(json_get(json_root(j), "run_id"), NULL) : NULL;
    if (id && str_copy(out, CHECKPOINT_RUN_ID, id))
        rc = err_set(e, DS_EFORMAT, "%s: run_id is %zu bytes long, expected at most %d", path,
                     strlen(id), CHECKPOINT_RUN_ID - 1);
    json_free(j);
    return rc;
}

/* True when both run ids are known and differ; a checkpoint without a readable manifest has no
 * known id. */
static int is_foreign(const char *dir, const char *run_id, char id[CHECKPOINT_RUN_ID])
{
    return checkpoint_run_id(dir, id, NULL) == 0 && id[0] && run_id[0] && strcmp(id, run_id) != 0;
}

int checkpoint_check_run(const char *dir, const char *run_id, struct err *e)
{
    char id[CHECKPOINT_RUN_ID];
    if (!is_foreign(dir, run_id, id))
        return 0;
    return err_set(
        e, DS_EFORMAT,
        "%s: checkpoint of another run: run_id %s in its manifest.json, expected %s as in "
        "log.mp; move it away, or start a new run from it with train.init",
        dir, id, run_id);
}

/* Moves an existing directory at the final name out of the way, unless it is a valid checkpoint.
 * It stays intact in *trash ("" = there was none) until the new one has its name. */
static int make_way(const struct checkpoint_tx *tx, char *trash, size_t size, struct err *e)
{
    const char *name = strrchr(tx->final, '/');
    trash[0] = '\0';
    if (!fs_exists(tx->final))
        return 0;
    int rc = checkpoint_check_run(tx->final, tx->run_id, e);
    if (rc < 0)
        return rc;
    if (!tx->replaces && checkpoint_verify(tx->final, NULL) == 0)
        return err_set(e, DS_EEXIST, "checkpoint %s already exists and is complete", tx->final);
    if (!tx->replaces)
        log_warn("checkpoint %s is incomplete; it is replaced", tx->final);
    rc = to_trash(tx->root, name ? name + 1 : tx->final, trash, size, e);
    if (rc < 0)
        trash[0] = '\0';
    return rc;
}

static void say_where(const char *trash)
{
    log_warn("the old checkpoint stays at %s until the next command that reads checkpoints", trash);
}

/* Renames the new directory into place; on failure the old one is restored. */
static int take_name(struct checkpoint_tx *tx, const char *trash, struct err *e)
{
    /* rename onto a directory that holds anything fails (ENOTEMPTY): nothing whole is ever
     * replaced, also when another process was faster since make_way looked. */
    if (fs_rename(tx->dir, tx->final) == 0) {
        tx->dir[0] = '\0';
        return 0;
    }
    int rc = err_errno(e, "rename the new checkpoint to %s", tx->final);
    if (trash[0] && fs_rename(trash, tx->final) < 0)
        say_where(trash);
    return rc;
}

int checkpoint_commit(struct checkpoint_tx *tx, struct err *e)
{
    char trash[1200] = "";
    struct err why = {0};
    if (tx->replaces && !tx->run_id[0]) /* only a checkpoint of the same run may replace one */
        (void)!checkpoint_run_id(tx->final, tx->run_id, NULL);
    int rc = write_manifest(tx, e);
    if (rc == 0)
        rc = make_way(tx, trash, sizeof trash, e);
    if (rc == 0)
        rc = take_name(tx, trash, e);
    if (rc < 0)
        return rc;
    rc = fs_sync_dir(tx->root, e);
    if (rc == 0) /* the root may be as new as the checkpoint */
        rc = fs_sync_parent(tx->root, e);
    if (rc < 0 && trash[0])
        say_where(trash);
    /* Remove the old one only after the new name is synced; checkpoint_prune removes leftovers. */
    if (rc == 0 && trash[0] && fs_remove_tree(trash, &why) < 0)
        log_warn("the replaced checkpoint was not removed: %s", why.text);
    return rc;
}

void checkpoint_abort(struct checkpoint_tx *tx)
{
    struct err e = {0};
    if (tx->dir[0] && fs_remove_tree(tx->dir, &e) < 0)
        log_warn("the unfinished checkpoint was not removed: %s", e.text);
    tx->dir[0] = '\0';
}

/* ---- reading ------------------------------------------------------------------------------------
 */

static int verify_file(const char *dir, const char *name, const struct json_node *entry,
                       struct err *e)
{
    char path[1200], hex[65];
    struct stat st;
    const char *want = json_str(json_get(entry, "sha256"), NULL);
    int64_t bytes = json_int(json_get(entry, "bytes"), -1);
    if (strchr(name, '/') || name[0] == '.' || name[0] == '\0' || !want || bytes < 0)
        return err_set(e, DS_EFORMAT, "manifest entry %.80s is malformed", name);
    int rc = fs_join(path, sizeof path, dir, name, e);
    if (rc < 0)
        return rc;
    if (fs_stat(path, &st) < 0)
        return errno == ENOENT ? err_set(e, DS_ENOTFOUND, "%s: missing", path)
                               : err_errno(e, "%s", path);
    if ((int64_t)st.st_size != bytes)
        return err_set(e, DS_EFORMAT,
                       "%s has %" PRId64 " bytes, expected %" PRId64 " from its manifest", path,
                       (int64_t)st.st_size, bytes);
    rc = sha256_file(path, hex, e);
    if (rc == 0 && strcmp(hex, want) != 0)
        rc = err_set(e, DS_EFORMAT, "%s: SHA-256 does not match its manifest", path);
    return rc;
}

int checkpoint_verify(const char *dir, struct err *e)
{
    char path[1200];
    struct json *j = NULL;
    const char *name;
    size_t len;
    int rc = fs_join(path, sizeof path, dir, manifest_name, e);
    if (rc == 0 && !fs_exists(path))
        rc = err_set(e, DS_ENOTFOUND, "%s: missing", path);
    if (rc == 0)
        rc = json_read_file(&j, path, MANIFEST_MAX, e);
    if (rc < 0)
        return rc;
    const struct json_node *files = json_get(json_root(j), "files"), *entry;
    if (json_len(files) == 0 || json_kind_of(files) != JSON_KIND_OBJECT)
        rc = err_set(e, DS_EFORMAT, "%s lists no files", path);
    for (void *at = NULL; rc == 0 && (entry = json_next(files, &at, &name, &len));)
        rc = verify_file(dir, name, entry, e);
    json_free(j);
    return rc;
}

static int newest_first(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? 1 : x > y ? -1 : 0;
}

/* Steps under root, newest first; *steps is freed by the caller. */
static int list_steps(const char *root, int64_t **steps, size_t *n, struct err *e)
{
    char **names = NULL;
    size_t count = 0;
    if (!fs_exists(root)) {
        *steps = NULL;
        *n = 0;
        return 0;
    }
    int rc = fs_list(root, &names, &count, e);
    if (rc < 0)
        return rc;
    int64_t *list = mem_alloc(count + 1, sizeof *list);
    if (!list) {
        fs_list_free(names, count);
        return err_set(e, DS_EMEM, "%s: out of memory for %zu names", root, count);
    }
    size_t found = 0;
    for (size_t i = 0; i < count; i++)
        if (step_of(names[i]) >= 0)
            list[found++] = step_of(names[i]);
    qsort(list, found, sizeof *list, newest_first);
    fs_list_free(names, count);
    *steps = list;
    *n = found;
    return 0;
}

int checkpoint_steps(const char *root, int64_t **steps, size_t *n, struct err *e)
{
    checkpoint_recover(root);
    return list_steps(root, steps, n, e);
}

static int step_dir(char *dir, size_t size, const char *root, int64_t step, struct err *e)
{
    char name[40];
    snprintf(name, sizeof name, "step-%08" PRId64, step);
    return fs_join(dir, size, root, name, e);
}

/* Index of the newest step that verifies, n when none does. */
static int newest_whole(const char *root, const int64_t *steps, size_t n, size_t *found,
                        struct err *e)
{
    char dir[1200];
    for (*found = 0; *found < n; (*found)++) {
        struct err why = {0};
        int rc = step_dir(dir, sizeof dir, root, steps[*found], e);
        if (rc < 0)
            return rc;
        rc = checkpoint_verify(dir, &why);
        if (rc == DS_EIO) /* a bad sector fails again, too many open files may be over */
            rc = checkpoint_verify(dir, &why);
        if (rc == 0)
            return 0;
        if (rc == DS_EMEM) /* says nothing of the checkpoint */
            return err_set(e, rc, "%s", why.text);
        log_warn("checkpoint %s is incomplete: %s", dir, why.text);
    }
    return 0;
}

/* ---- what a commit left half-way ---- */

/* 1 when its owner has ended or is this process, whose commits are sequential. */
static int is_over(const char *owner, const char *path)
{
    return fs_owner_is_own(owner) || fs_owner_is_dead(owner, path);
}

/* 1 when name is a complete checkpoint moved aside for one that was never committed: it is at
 * `from` and belongs at `to`.  -1 when that cannot be found out now, 0 otherwise. */
static int is_displaced(const char *root, const char *name, char from[1200], char to[1200])
{
    const char *step = name[0] == '.' ? strstr(name, "-step-") : NULL, *owner = owner_of(name);
    struct stat st;
    if (!step || !owner || step_of(step + 1) < 0 || fs_join(from, 1200, root, name, NULL) < 0 ||
        !is_over(owner, from) || fs_join(to, 1200, root, step + 1, NULL) < 0)
        return 0;
    if (fs_lstat(to, &st) == 0)
        return 0;
    if (errno != ENOENT)
        return -1;
    int rc = checkpoint_verify(from, NULL);
    return rc == DS_EIO || rc == DS_EMEM ? -1 : rc == 0;
}

void checkpoint_recover(const char *root)
{
    char **names = NULL, from[1200], to[1200];
    size_t n = 0;
    if (!fs_is_dir(root) || fs_list(root, &names, &n, NULL) < 0)
        return;
    for (size_t i = 0; i < n; i++) {
        if (is_displaced(root, names[i], from, to) != 1)
            continue;
        if (fs_rename(from, to) == 0)
            log_warn("checkpoint %s restored: its replacement or removal was interrupted", to);
        else
            log_warn("checkpoint %s is complete but cannot be renamed to %s", from, to);
    }
    fs_list_free(names, n);
}

int checkpoint_latest(const char *root, char *dir, size_t size, int64_t *step, struct err *e)
{
    int64_t *steps = NULL;
    size_t n = 0, i = 0;
    checkpoint_recover(root);
    int rc = list_steps(root, &steps, &n, e);
    if (rc == 0)
        rc = newest_whole(root, steps, n, &i, e);
    if (rc == 0 && i == n)
        rc = err_set(e, DS_ENOTFOUND, "%s: no complete checkpoint", root);
    if (rc == 0)
        rc = step_dir(dir, size, root, steps[i], e);
    if (rc == 0 && step)
        *step = steps[i];
    mem_free(steps);
    return rc;
}

/* ---- pruning ------------------------------------------------------------------------------------
 */

static int remove_stale(const char *root, struct err *e)
{
    char **names = NULL, path[1200], final[1200];
    size_t n = 0;
    int rc = fs_exists(root) ? fs_list(root, &names, &n, e) : 0;
    for (size_t i = 0; i < n && rc == 0; i++) {
        const char *owner = owner_of(names[i]);
        int is_trash = names[i][0] == '.';
        if (!owner || (fs_owner_is_own(owner) && !is_trash))
            continue;
        rc = fs_join(path, sizeof path, root, names[i], e);
        if (rc == 0 && is_over(owner, path) && is_displaced(root, names[i], path, final) == 0)
            rc = fs_remove_tree(path, e);
    }
    fs_list_free(names, n);
    return rc;
}

void checkpoint_sweep(const char *root)
{
    struct err why = {0};
    if (remove_stale(root, &why) < 0)
        log_warn("leftovers of checkpoints are not removed: %s", why.text);
}

/* Steps of this run only; checkpoints of other runs are neither counted nor removed. */
static size_t drop_foreign(const char *root, const char *run_id, int64_t *steps, size_t n)
{
    char dir[1200];
    size_t own = 0;
    for (size_t i = 0; i < n; i++) {
        struct err why = {0};
        if (step_dir(dir, sizeof dir, root, steps[i], NULL) == 0 &&
            checkpoint_check_run(dir, run_id, &why) < 0)
            log_warn("%s", why.text);
        else
            steps[own++] = steps[i];
    }
    return own;
}

/* verified: a step known to be complete, -1 = find the newest. */
static int prune(const char *root, const char *run_id, int64_t verified, int keep, int64_t best,
                 int64_t every, struct err *e)
{
    char name[40];
    int64_t *steps = NULL;
    size_t n = 0, whole = 0;
    checkpoint_recover(root);
    int rc = list_steps(root, &steps, &n, e);
    if (rc == 0)
        n = drop_foreign(root, run_id, steps, n);
    while (verified >= 0 && whole < n && steps[whole] != verified)
        whole++;
    /* Nothing is removed before a newer checkpoint has been verified; newer broken ones are kept
     * for inspection. */
    if (rc == 0 && verified < 0)
        rc = newest_whole(root, steps, n, &whole, e);
    for (size_t i = whole + (size_t)(keep > 1 ? keep : 1); i < n && rc == 0; i++) {
        if (steps[i] == best || (every > 0 && steps[i] % every == 0))
            continue;
        snprintf(name, sizeof name, "step-%08" PRId64, steps[i]);
        rc = remove_checkpoint(root, name, e);
    }
    mem_free(steps);
    return rc == 0 ? remove_stale(root, e) : rc;
}

int checkpoint_prune(const char *root, int keep, int64_t best, int64_t every, struct err *e)
{
    return prune(root, "", -1, keep, best, every, e);
}

int checkpoint_prune_after(const struct checkpoint_tx *tx, int keep, int64_t best, int64_t every,
                           struct err *e)
{
    return prune(tx->root, tx->run_id, tx->step, keep, best, every, e);
}
