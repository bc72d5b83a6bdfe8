/* Finds a checkpoint of a run and creates a new run from it. */
#include "training/fork.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/json.h"
#include "base/mem.h"
#include "data/chat.h"
#include "io/checkpoint.h"
#include "training/trainer.h"

/* ---- which checkpoint ---- */

static int best_step(int64_t *step, const char *run_dir, struct err *e)
{
    char path[1200];
    struct json *j = NULL;
    int rc = fs_join(path, sizeof path, run_dir, "best.json", e);
    if (rc == 0 && !fs_exists(path))
        return err_set(e, DS_ENOTFOUND, "%s: no best checkpoint yet (best.json is missing)",
                       run_dir);
    if (rc == 0)
        rc = json_read_file(&j, path, 1 << 16, e);
    *step = rc == 0 ? json_int(json_get(json_root(j), "step"), -1) : -1;
    json_free(j);
    return rc == 0 && *step < 0 ? err_set(e, DS_EFORMAT, "%s: missing step", path) : rc;
}

static int parse_step(int64_t *step, const char *text, struct err *e)
{
    char *end;
    errno = 0;
    *step = strtoll(text, &end, 10);
    if (errno || end == text || *end || *step < 0)
        return err_set(e, DS_EUSAGE, "--from %.40s: expected best or a step", text);
    return 0;
}

static int say_steps(const char *run_dir, int64_t step, const int64_t *steps, size_t n,
                     struct err *e)
{
    struct str s = {0};
    for (size_t i = n; i-- > 0;)
        str_addf(&s, "%s%" PRId64, s.len ? ", " : "", steps[i]);
    int rc = n == 0 ? err_set(e, DS_ENOTFOUND, "%s: no checkpoint yet", run_dir)
                    : err_set(e, DS_ENOTFOUND,
                              "%s: no checkpoint of step %" PRId64 "; available steps: %s", run_dir,
                              step, str_text(&s));
    str_release(&s);
    return rc;
}

int fork_find(struct fork_point *p, const char *run_dir, const char *from, struct err *e)
{
    char root[1100], name[40], newest[1100];
    int64_t *steps = NULL, last = -1;
    size_t n = 0, i = 0;
    *p = (struct fork_point){.step = -1};
    int rc =
        strcmp(from, "best") == 0 ? best_step(&p->step, run_dir, e) : parse_step(&p->step, from, e);
    if (rc == 0)
        rc = fs_join(root, sizeof root, run_dir, "checkpoints", e);
    if (rc == 0)
        rc = checkpoint_steps(root, &steps, &n, e);
    while (rc == 0 && i < n && steps[i] != p->step)
        i++;
    if (rc == 0 && i == n)
        rc = say_steps(run_dir, p->step, steps, n, e);
    mem_free(steps);
    snprintf(name, sizeof name, "step-%08" PRId64, p->step);
    if (rc == 0)
        rc = fs_join(p->dir, sizeof p->dir, root, name, e);
    if (rc == 0)
        rc = checkpoint_verify(p->dir, e);
    if (rc == 0)
        rc = checkpoint_latest(root, newest, sizeof newest, &last, e);
    p->is_newest = last == p->step;
    return rc;
}

/* ---- copied files ---- */

static int copy_bytes(const char *from, const char *to, struct err *e)
{
    enum { CHUNK = 1 << 20 };
    char *buf = mem_alloc(CHUNK, 1);
    int in = -1, out = -1;
    size_t got = 1;
    int rc =
        buf ? fs_open_read(&in, from, e) : err_set(e, DS_EMEM, "out of memory copying %s", from);
    if (rc == 0)
        rc = fs_open_write(&out, to, O_CREAT | O_EXCL, e);
    while (rc == 0 && got > 0) {
        rc = fs_read_some(in, buf, CHUNK, &got, from, e);
        if (rc == 0 && got > 0)
            rc = fs_write_all(out, buf, got, to, e);
    }
    if (out >= 0 && fs_close(out) < 0 && rc == 0)
        rc = err_errno(e, "close %s", to);
    if (in >= 0)
        fs_close(in);
    mem_free(buf);
    return rc;
}

/* Files of a checkpoint are never written again, so both runs may share them. */
static int take_file(const char *from, const char *to, struct err *e)
{
    return fs_link(from, to) == 0 ? 0 : copy_bytes(from, to, e);
}

/* Links the checkpoint's files into the new run and writes a manifest of its own. */
static int take_checkpoint(const char *dir, const struct fork_point *p, struct err *e)
{
    struct checkpoint_tx tx = {.step = p->step};
    char root[1100], from[1300], to[1300], **names = NULL;
    size_t n = 0;
    int rc = fs_join(root, sizeof root, dir, "checkpoints", e);
    if (rc == 0)
        rc = fs_mkdirs(root, e);
    if (rc == 0)
        rc = checkpoint_begin(&tx, root, p->step, 0, e);
    if (rc < 0)
        return rc;
    rc = fs_list(p->dir, &names, &n, e);
    for (size_t i = 0; rc == 0 && i < n; i++) {
        if (strcmp(names[i], "manifest.json") == 0)
            continue;
        rc = fs_join(from, sizeof from, p->dir, names[i], e);
        if (rc == 0)
            rc = fs_join(to, sizeof to, tx.dir, names[i], e);
        if (rc == 0)
            rc = take_file(from, to, e);
    }
    if (rc == 0)
        rc = checkpoint_commit(&tx, e);
    fs_list_free(names, n);
    checkpoint_abort(&tx);
    return rc;
}

static int take_tokenizer(const char *dir, const struct fork_point *p, struct err *e)
{
    char from[1300], to[1200];
    int rc = fs_join(from, sizeof from, p->dir, "tokenizer.json", e);
    if (rc == 0)
        rc = fs_join(to, sizeof to, dir, "tokenizer.json", e);
    if (rc == 0 && fs_exists(from))
        rc = copy_bytes(from, to, e);
    return rc == 0 ? chat_copy(p->dir, NULL, dir, e) : rc;
}

static void read_meta(const char *dir, const char *key, char *out, size_t size)
{
    char path[1200];
    struct json *j = NULL;
    out[0] = '\0';
    if (fs_join(path, sizeof path, dir, "meta.json", NULL) < 0 ||
        json_read_file(&j, path, 1 << 20, NULL) < 0)
        return;
    const char *text = json_str(json_get(json_root(j), key), NULL);
    str_copy(out, size, text ? text : "");
    json_free(j);
}

void fork_read_parent(const char *dir, char *parent, size_t size)
{
    read_meta(dir, "parent", parent, size);
}

/* In the place of the reserved, empty directory. */
static int publish(const char *temp, const char *dir, struct err *e)
{
    if (fs_rename(temp, dir) < 0)
        return errno == ENOTEMPTY || errno == EEXIST
                   ? err_set(e, DS_EEXIST, "%s: run exists; choose a new name with --run", dir)
                   : err_errno(e, "rename to %s", dir);
    return fs_sync_parent(dir, e);
}

int fork_make(const char *dir, const char *run_dir, const struct fork_point *p,
              struct train_config *config, int argc, char **argv, const char *version,
              struct err *e)
{
    const char *slash = strrchr(run_dir, '/');
    char temp[1200] = "";
    struct err ignored = {0};
    read_meta(run_dir, "preset", config->preset, sizeof config->preset);
    int lock, rc = fs_new_dir(&lock, temp, sizeof temp, dir, e), is_made = rc == 0;
    if (rc == 0 && (rc = take_checkpoint(temp, p, e)) == 0 &&
        (rc = take_tokenizer(temp, p, e)) == 0)
        rc = trainer_copy_live(run_dir, temp, p->step, e);
    if (lock >= 0)
        fs_close(lock); /* what writes a run takes a lock of its own */
    if (rc == 0 &&
        (rc = trainer_create_begun(temp, config, argc, argv, version, slash ? slash + 1 : run_dir,
                                   e)) == 0 &&
        (rc = publish(temp, dir, e)) == 0)
        return 0;
    err_rename(e, temp, dir);
    if (is_made && fs_remove_tree(temp, &ignored) < 0)
        err_add(e, rc, "%s", ignored.text);
    fs_rmdir(dir); /* the reservation; nothing of another's, which it would not remove */
    return err_add(e, rc, "fork of %s", run_dir);
}

void fork_discard(const char *dir)
{
    char path[1200];
    struct stat st;
    if (fs_join(path, sizeof path, dir, "log.mp", NULL) == 0 && fs_stat(path, &st) == 0 &&
        st.st_size == 0)
        (void)!fs_remove_tree(dir, NULL);
}
