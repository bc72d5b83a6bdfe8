/* Failing disks: every write, sync, close, rename, ... fails in turn, once or permanently. */
#include "t.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/log.h"
#include "base/mem.h"
#include "io/checkpoint.h"
#include "io/runlog.h"
#include "io/safetensors.h"

/* ---- a table of calls that fails at call `at` of all of them ------------------------------------
 */

enum { ENDED = 77 };

static const struct fs_ops *real;
static int calls, at, persistent, number, cut_short;
static int dies_at, renames; /* SIGKILL instead of the n-th rename */
static int ends_at;          /* the process ends instead of the n-th call */

static int fails(void)
{
    calls++;
    if (calls == ends_at)
        _exit(ENDED);
    if (at == 0 || (calls != at && !(persistent && calls > at)))
        return 0;
    errno = number;
    return 1;
}

static int f_open(const char *p, int flags, mode_t mode)
{
    return fails() ? -1 : real->open(p, flags, mode);
}
static size_t bytes_read;

static ssize_t f_read(int fd, void *b, size_t n)
{
    ssize_t got = fails() ? -1 : real->read(fd, b, n);
    bytes_read += got > 0 ? (size_t)got : 0;
    return got;
}
/* What the disk holds after a power failure: of each file its bytes at its last sync.  Shared with
 * the process that ends. */
enum { SYNCED_MAX = 64 };
static struct synced {
    int n;
    struct {
        ino_t ino;
        off_t bytes;
    } file[SYNCED_MAX];
} *synced;

static void note_sync(int fd)
{
    struct stat st;
    if (!synced || fstat(fd, &st) != 0 || !S_ISREG(st.st_mode))
        return;
    int i = 0;
    while (i < synced->n && synced->file[i].ino != st.st_ino)
        i++;
    if (i == SYNCED_MAX)
        _exit(1);
    synced->n += i == synced->n;
    synced->file[i].ino = st.st_ino;
    synced->file[i].bytes = st.st_size;
}

static ino_t newest_sync; /* what the last fsync was of */

static int f_fsync(int fd)
{
    struct stat st;
    newest_sync = fstat(fd, &st) == 0 ? st.st_ino : 0;
    int rc = fails() ? -1 : real->fsync(fd);
    if (rc == 0)
        note_sync(fd);
    return rc;
}
static int f_fdatasync(int fd)
{
    int rc = fails() ? -1 : real->fdatasync(fd);
    if (rc == 0)
        note_sync(fd);
    return rc;
}
static int f_rename(const char *a, const char *b)
{
    if (dies_at > 0 && ++renames == dies_at)
        kill(getpid(), SIGKILL);
    return fails() ? -1 : real->rename(a, b);
}
static int f_mkdir(const char *p, mode_t mode)
{
    return fails() ? -1 : real->mkdir(p, mode);
}
static int f_unlink(const char *p)
{
    return fails() ? -1 : real->unlink(p);
}

static ssize_t f_write(int fd, const void *b, size_t n)
{
    if (fails()) { /* a full disk accepts what fits, then fails */
        if (cut_short && n > 1 && !persistent)
            return real->write(fd, b, n / 2);
        return -1;
    }
    return real->write(fd, b, cut_short && n > 1 ? 1 + n / 2 : n);
}

static int f_close(int fd)
{
    int failed = fails(), e = errno, rc = real->close(fd);
    errno = e;
    return failed ? -1 : rc;
}

static const struct fs_ops failing = {f_open,  f_read,   f_write, f_fsync, f_fdatasync,
                                      f_close, f_rename, f_mkdir, f_unlink};

static void fail_at(int n, int is_persistent, int error)
{
    calls = 0;
    at = n;
    persistent = is_persistent;
    number = error;
    if (!real)
        real = fs_ops_get();
    fs_ops_set(n >= 0 ? &failing : NULL);
}

static void quiet(void *ctx, enum log_level level, const char *text)
{
    (void)ctx;
    (void)level;
    (void)text;
}

/* ---- checkpoints
 * ---------------------------------------------------------------------------------- */

static int replaces; /* how write_checkpoint treats a complete checkpoint of the step */

static int write_checkpoint(const char *root, int64_t step, float value, struct err *e)
{
    struct checkpoint_tx tx;
    float w[1000];
    char p[1200];
    for (int i = 0; i < 1000; i++)
        w[i] = value;
    struct st_out t = {.name = "w", .dtype = ST_F32, .rank = 1, .shape = {1000}, .data = w};
    int rc = checkpoint_begin(&tx, root, step, 5000, e);
    if (rc < 0)
        return rc;
    tx.replaces = replaces;
    rc = fs_join(p, sizeof p, tx.dir, "model.safetensors", e);
    if (rc == 0)
        rc = st_write(p, &t, 1, NULL, 0, e);
    if (rc == 0)
        rc = fs_join(p, sizeof p, tx.dir, "state.json", e);
    if (rc == 0)
        rc = fs_write_file(p, "{}\n", 3, e);
    if (rc == 0)
        rc = checkpoint_commit(&tx, e);
    checkpoint_abort(&tx);
    return rc;
}

static float value_of(const char *dir)
{
    char p[1200];
    float w[1000];
    struct st *s;
    struct err e = {0};
    t_ok(fs_join(p, sizeof p, dir, "model.safetensors", &e), &e);
    t_ok(st_open(&s, p, &e), &e);
    t_ok(st_read_f32(st_find(s, "w"), w, 1000, &e), &e);
    st_close(s);
    return w[999];
}

static void check_latest(const char *root, int may_be_new)
{
    char dir[1200];
    int64_t step;
    struct err e = {0};
    t_ok(checkpoint_latest(root, dir, sizeof dir, &step, &e), &e);
    t_true(step == 1 || (may_be_new && step == 2));
    t_true(value_of(dir) == (float)step);
}

static void every_call_fails(int is_persistent, int error)
{
    char root[512];
    struct err e = {0};
    log_to(quiet, NULL);
    snprintf(root, sizeof root, "%s/checkpoints", t_tmpdir());
    fail_at(0, 0, 0);
    t_ok(write_checkpoint(root, 1, 1, &e), &e);
    int total = calls, rc;
    for (int n = 1; n <= total + 5; n++) {
        fail_at(n, is_persistent, error);
        rc = write_checkpoint(root, 2, 2, &e);
        fail_at(-1, 0, 0);
        check_latest(root, 1);
        char dir[1200];
        snprintf(dir, sizeof dir, "%s/step-00000002", root);
        if (rc == 0)
            t_ok(checkpoint_verify(dir, &e), &e);
        if (fs_exists(dir)) /* a directory at the final name is complete */
            t_ok(checkpoint_verify(dir, &e), &e);
        t_ok(checkpoint_prune(root, 5, -1, 0, &e), &e);
        t_ok(fs_remove_tree(dir, NULL) < 0 && fs_exists(dir) ? -1 : 0, &e);
    }
    printf("  %d file calls, each failed\n", total);
}

T(checkpoint_survives_enospc_at_every_call)
{
    every_call_fails(0, ENOSPC);
} /* D1 */
T(checkpoint_survives_enospc_from_every_call_on)
{
    every_call_fails(1, ENOSPC);
}
T(checkpoint_survives_eio_at_every_call)
{
    every_call_fails(0, EIO);
} /* D3 */
T(checkpoint_survives_eio_from_every_call_on)
{
    every_call_fails(1, EIO);
}
T(checkpoint_survives_short_writes)
{
    cut_short = 1;
    every_call_fails(0, ENOSPC);
}

T(every_interrupted_call_is_repeated) /* D5 */
{
    char root[512], dir[600];
    struct err e = {0};
    snprintf(root, sizeof root, "%s/c", t_tmpdir());
    cut_short = 1;
    for (int n = 1; n < 90; n++) {
        fail_at(n, 0, EINTR);
        t_ok(write_checkpoint(root, 1, 1, &e), &e);
        fail_at(-1, 0, 0);
        check_latest(root, 0);
        snprintf(dir, sizeof dir, "%s/step-00000001", root);
        t_ok(fs_remove_tree(dir, &e), &e);
    }
}

T(existing_complete_checkpoint_is_kept_and_a_broken_one_replaced)
{
    char root[512], dir[1200], p[1300];
    struct err e = {0};
    log_to(quiet, NULL);
    snprintf(root, sizeof root, "%s/c", t_tmpdir());
    t_ok(write_checkpoint(root, 1, 1, &e), &e);
    t_fails(write_checkpoint(root, 1, 7, &e), &e, DS_EEXIST, "exists");
    check_latest(root, 0);
    t_ok(write_checkpoint(root, 2, 2, &e), &e);
    snprintf(dir, sizeof dir, "%s/step-00000002", root);
    snprintf(p, sizeof p, "%s/model.safetensors", dir);
    FILE *f = fopen(p, "r+b");
    fseek(f, 2000, SEEK_SET);
    fputc(0x55, f);
    fclose(f);
    t_fails(checkpoint_verify(dir, &e), &e, DS_EFORMAT, "SHA-256");
    check_latest(root, 0); /* D10: the older one is taken, the broken one stays */
    t_true(fs_exists(dir));
    t_ok(checkpoint_prune(root, 1, -1, 0, &e), &e);
    t_true(fs_exists(dir));
    t_ok(write_checkpoint(root, 2, 2, &e), &e);
    check_latest(root, 1);
    t_true(truncate(p, 100) == 0);
    t_fails(checkpoint_verify(dir, &e), &e, DS_EFORMAT, "100 bytes");
    t_true(unlink(p) == 0);
    t_fails(checkpoint_verify(dir, &e), &e, DS_ENOTFOUND, "model.safetensors");
}

/* Otherwise a crash may lose the directory of all checkpoints, whatever was synced in it. */
T(the_directory_of_the_checkpoints_is_synced_in_that_of_the_run)
{
    char root[512];
    struct stat st;
    struct err e = {0};
    snprintf(root, sizeof root, "%s/run/checkpoints", t_tmpdir());
    fail_at(0, 0, 0);
    t_ok(write_checkpoint(root, 1, 1, &e), &e);
    fail_at(-1, 0, 0);
    *strrchr(root, '/') = '\0';
    t_true(stat(root, &st) == 0 && st.st_ino == newest_sync);
}

static char renamed[1200];
static int synced_whole;

static int noted_rename(const char *from, const char *to)
{
    snprintf(renamed, sizeof renamed, "%s/model.safetensors", to);
    return rename(from, to);
}

static int noted_sync(int fd)
{
    synced_whole += renamed[0] && access(renamed, F_OK) == 0;
    renamed[0] = '\0';
    return fsync(fd);
}

/* Otherwise a crash may leave its name with a part of its files. */
T(a_checkpoint_loses_its_name_on_the_disk_before_its_files)
{
    char root[512], old[600];
    struct err e = {0};
    struct fs_ops noted = *fs_ops_get();
    snprintf(root, sizeof root, "%s/c", t_tmpdir());
    snprintf(old, sizeof old, "%s/step-00000001", root);
    for (int step = 1; step <= 3; step++)
        t_ok(write_checkpoint(root, step, 1, &e), &e);
    noted.rename = noted_rename;
    noted.fsync = noted_sync;
    fs_ops_set(&noted);
    t_ok(checkpoint_prune(root, 1, -1, 0, &e), &e);
    fs_ops_set(NULL);
    t_true(!fs_exists(old));
    t_eq(synced_whole, 2);
}

T(a_checkpoint_is_complete_only_when_each_of_its_files_was_synced)
{
    static struct synced seen;
    char root[512], p[1200];
    struct err e = {0};
    int n = 0, is_over = 0;
    snprintf(root, sizeof root, "%s/c", t_tmpdir());
    while (!is_over) {
        struct checkpoint_tx tx;
        struct stat st;
        t_ok(checkpoint_begin(&tx, root, n, 0, &e), &e);
        t_ok(fs_join(p, sizeof p, tx.dir, "plain", &e), &e);
        FILE *f = fopen(p, "w"); /* no sync of its own */
        t_true(f && fputs("text", f) >= 0 && fclose(f) == 0 && stat(p, &st) == 0);
        seen.n = 0;
        synced = &seen;
        fail_at(++n, 0, EIO);
        int i = 0, rc = checkpoint_commit(&tx, &e);
        is_over = calls < n;
        fail_at(-1, 0, 0);
        synced = NULL;
        checkpoint_abort(&tx);
        while (i < seen.n && seen.file[i].ino != st.st_ino)
            i++;
        t_truef(rc < 0 || i < seen.n, "call %d fails", n);
        t_true(rc == 0 || !is_over);
    }
    t_true(n > 5);
}

/* Exactly one checkpoint, old or new, must exist afterwards; returns its value. */
static float only_checkpoint(const char *root)
{
    char dir[1200];
    int64_t step = -1;
    struct err e = {0};
    t_ok(checkpoint_latest(root, dir, sizeof dir, &step, &e), &e);
    t_eq(step, 1);
    return value_of(dir);
}

static void replacing_fails(int is_persistent)
{
    char root[512];
    struct err e = {0};
    log_to(quiet, NULL);
    snprintf(root, sizeof root, "%s/c", t_tmpdir());
    t_ok(write_checkpoint(root, 1, 1, &e), &e);
    replaces = 1;
    fail_at(0, 0, 0);
    t_ok(write_checkpoint(root, 1, 1, &e), &e);
    for (int n = 1, total = calls; n <= total; n++) {
        fail_at(n, is_persistent, EIO);
        int rc = write_checkpoint(root, 1, 7, &e);
        fail_at(-1, 0, 0);
        float now = only_checkpoint(root);
        t_true(now == 7 || (now == 1 && rc < 0));
        t_ok(checkpoint_prune(root, 1, -1, 0, &e), &e);
        t_true(only_checkpoint(root) == now);
        t_ok(write_checkpoint(root, 1, 1, &e), &e);
    }
    replaces = 0;
}

T(the_only_checkpoint_survives_one_failed_replacement)
{
    replacing_fails(0);
}
T(the_only_checkpoint_survives_a_permanently_failing_replacement)
{
    replacing_fails(1);
}

T(the_only_checkpoint_survives_a_kill_between_the_renames)
{
    char root[512];
    struct err e = {0};
    log_to(quiet, NULL);
    snprintf(root, sizeof root, "%s/c", t_tmpdir());
    t_ok(write_checkpoint(root, 1, 1, &e), &e);
    for (int i = 0, status = 1; status != 0; i++) { /* each rename twice, then none is left */
        pid_t pid = fork();
        t_true(pid >= 0 && i < 40);
        if (pid == 0) {
            replaces = 1;
            dies_at = 1 + i / 2;
            fail_at(0, 0, 0);
            _exit(write_checkpoint(root, 1, 7, &e) < 0);
        }
        t_true(waitpid(pid, &status, 0) == pid && (WIFSIGNALED(status) || status == 0));
        if (i % 2)
            t_ok(checkpoint_prune(root, 1, -1, 0, &e), &e);
        t_true(only_checkpoint(root) == (status ? 1 : 7));
    }
}

/* As a process leaves it that dies between the two renames of a replacement. */
static void move_aside(const char *root)
{
    int status = -1;
    pid_t pid = fork();
    if (pid == 0) {
        char owner[FS_OWNER_MAX], from[600], to[700];
        fs_owner(owner);
        snprintf(from, sizeof from, "%s/step-00000001", root);
        snprintf(to, sizeof to, "%s/.trash-%s-step-00000001", root, owner);
        _exit(rename(from, to) != 0);
    }
    t_true(waitpid(pid, &status, 0) == pid && status == 0);
}

T(a_checkpoint_moved_aside_is_kept_while_it_cannot_be_read)
{
    char root[512];
    struct err e = {0};
    int done = 0;
    log_to(quiet, NULL);
    snprintf(root, sizeof root, "%s/c", t_tmpdir());
    t_ok(write_checkpoint(root, 1, 7, &e), &e);
    for (int n = 1; !done; n++)
        for (int p = 0; p < 2; p++) {
            move_aside(root);
            fail_at(n, p, EMFILE);
            (void)!checkpoint_prune(root, 1, -1, 0, NULL);
            done = calls < n;
            fail_at(-1, 0, 0);
            t_ok(checkpoint_prune(root, 1, -1, 0, &e), &e); /* restores it */
            t_truef(only_checkpoint(root) == 7, "call %d", n);
        }
}

/* After a save, the same tx prunes the others. */
static int save_and_prune(const char *root, int64_t step, const char *run_id, struct err *e)
{
    struct checkpoint_tx tx;
    static char bytes[1 << 20];
    char p[1200];
    int rc = checkpoint_begin(&tx, root, step, 0, e);
    if (rc < 0)
        return rc;
    snprintf(tx.run_id, sizeof tx.run_id, "%s", run_id);
    rc = fs_join(p, sizeof p, tx.dir, "model.safetensors", e);
    if (rc == 0)
        rc = fs_write_file(p, bytes, sizeof bytes, e);
    if (rc == 0)
        rc = checkpoint_commit(&tx, e);
    checkpoint_abort(&tx);
    return rc == 0 ? checkpoint_prune_after(&tx, 2, -1, 0, e) : rc;
}

T(a_save_hashes_each_file_once)
{
    char root[512];
    struct err e = {0};
    snprintf(root, sizeof root, "%s/c", t_tmpdir());
    for (int step = 1; step <= 4; step++) {
        fail_at(0, 0, 0);
        bytes_read = 0;
        t_ok(save_and_prune(root, step, "0123456789abcdef", &e), &e);
        t_truef(bytes_read >= 1 << 20 && bytes_read < (1 << 20) + 4096, "step %d: %zu bytes", step,
                bytes_read);
    }
    fail_at(-1, 0, 0);
    char **names;
    size_t n;
    t_ok(fs_list(root, &names, &n, &e), &e);
    t_eq((int)n, 2);
    fs_list_free(names, n);
}

T(checkpoints_of_another_run_are_neither_replaced_nor_removed)
{
    char root[512], dir[600], id[CHECKPOINT_RUN_ID];
    struct err e = {0};
    log_to(quiet, NULL);
    snprintf(root, sizeof root, "%s/c", t_tmpdir());
    t_ok(save_and_prune(root, 1, "aaaa", &e), &e);
    t_ok(save_and_prune(root, 9, "aaaa", &e), &e);
    t_fails(save_and_prune(root, 9, "bbbb", &e), &e, DS_EFORMAT, "aaaa");
    t_true(strstr(e.text, "bbbb") != NULL);
    for (int step = 2; step <= 5; step++)
        t_ok(save_and_prune(root, step, "bbbb", &e), &e);
    static const struct {
        int step;
        const char *id; /* NULL = pruned */
    } want[] = {{1, "aaaa"}, {2, NULL}, {3, NULL}, {4, "bbbb"}, {5, "bbbb"}, {9, "aaaa"}};
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        snprintf(dir, sizeof dir, "%s/step-%08d", root, want[i].step);
        t_truef(fs_exists(dir) == (want[i].id != NULL), "step %d", want[i].step);
        if (want[i].id) {
            t_ok(checkpoint_run_id(dir, id, &e), &e);
            t_str(id, want[i].id);
        }
    }
    /* whatever a damaged log says it is */
    t_ok(save_and_prune(root, 7, "a\"\\\n", &e), &e);
    snprintf(dir, sizeof dir, "%s/step-00000007", root);
    t_ok(checkpoint_run_id(dir, id, &e), &e);
    t_str(id, "a\"\\\n");
    t_ok(save_and_prune(root, 6, "", &e), &e); /* one without an id matches any run */
    snprintf(dir, sizeof dir, "%s/step-00000006", root);
    t_ok(checkpoint_check_run(dir, "bbbb", &e), &e);
}

T(a_manifest_cannot_point_outside)
{
    char dir[600], p[700];
    const char *m = "{\"files\": {\"../x\": {\"bytes\": 0, \"sha256\": \"00\"}}}";
    struct err e = {0};
    snprintf(dir, sizeof dir, "%s/step-00000001", t_tmpdir());
    t_ok(fs_mkdirs(dir, &e), &e);
    snprintf(p, sizeof p, "%s/manifest.json", dir);
    t_ok(fs_write_file(p, m, strlen(m), &e), &e);
    t_fails(checkpoint_verify(dir, &e), &e, DS_EFORMAT, "malformed");
    t_ok(fs_write_file(p, "{}", 2, &e), &e);
    t_fails(checkpoint_verify(dir, &e), &e, DS_EFORMAT, "no files");
}

T(no_checkpoint_is_not_found)
{
    char dir[100];
    struct err e = {0};
    t_fails(checkpoint_latest("/nonexistent/c", dir, sizeof dir, NULL, &e), &e, DS_ENOTFOUND,
            "no complete");
    struct checkpoint_tx tx;
    t_fails(checkpoint_begin(&tx, t_tmpdir(), 1, UINT64_MAX, &e), &e, DS_EIO, "free"); /* D15 */
    t_true(e.text[0] == '/'); /* trainers report it as an event "checkpoint" */
    t_fails(checkpoint_begin(&tx, "/proc/nope", 1, 0, &e), &e, DS_EIO, "/proc/nope");
    t_fails(checkpoint_begin(&tx, "/tmp", -1, 0, &e), &e, DS_ERANGE, "-1");
}

T(prune_keeps_newest_best_and_every_mth_and_clears_the_dead) /* D9 */
{
    char root[512], dir[1200];
    struct err e = {0};
    snprintf(root, sizeof root, "%s/c", t_tmpdir());
    for (int i = 1; i <= 9; i++)
        t_ok(write_checkpoint(root, i, (float)i, &e), &e);
    char owner[FS_OWNER_MAX], tag[9];
    fs_owner(owner);
    snprintf(tag, sizeof tag, "%.8s", owner);
    snprintf(dir, sizeof dir, "%s/step-00000099.tmp-%s-999999999-5-0", root,
             tag); /* pids end below this */
    t_ok(fs_mkdirs(dir, &e), &e);
    snprintf(dir, sizeof dir, "%s/step-00000099.tmp-%s-%d-5-0", root, tag,
             getpid()); /* an id used again */
    t_ok(fs_mkdirs(dir, &e), &e);
    snprintf(dir, sizeof dir, "%s/step-00000099.tmp-00000001-999999999-5-0",
             root); /* of another host */
    t_ok(fs_mkdirs(dir, &e), &e);
    snprintf(dir, sizeof dir, "%s/step-00000099.tmp-%s", root, owner);
    t_ok(fs_mkdirs(dir, &e), &e);
    snprintf(dir, sizeof dir, "%s/step-notes", root);
    t_ok(fs_mkdirs(dir, &e), &e);
    t_ok(checkpoint_prune(root, 2, 3, 5, &e), &e);
    char **names, all[400] = "";
    size_t n;
    t_ok(fs_list(root, &names, &n, &e), &e);
    for (size_t i = 0; i < n; i++)
        snprintf(all + strlen(all), sizeof all - strlen(all), "%s ", names[i]);
    fs_list_free(names, n);
    char want[600];
    snprintf(want, sizeof want,
             "step-00000003 step-00000005 step-00000008 step-00000009 "
             "step-00000099.tmp-00000001-999999999-5-0 step-00000099.tmp-%s step-notes ",
             owner);
    t_str(all, want);
}

T_SECONDS(kill_9_leaves_a_whole_checkpoint, 60) /* D6 */
{
    char root[512], dir[1200];
    struct err e = {0};
    int64_t step;
    log_to(quiet, NULL);
    snprintf(root, sizeof root, "%s/c", t_tmpdir());
    t_ok(write_checkpoint(root, 0, 0, &e), &e);
    unsigned wait_us = 3000;
    int64_t before = 0;
    for (int round = 0; round < 40; round++) {
        pid_t pid = fork();
        t_true(pid >= 0);
        if (pid == 0) {
            t_ok(checkpoint_latest(root, dir, sizeof dir, &step, &e), &e);
            for (int64_t i = step + 1;; i++)
                if (write_checkpoint(root, i, (float)i, &e) < 0 ||
                    checkpoint_prune(root, 2, -1, 0, &e) < 0)
                    _exit(1);
        }
        usleep(wait_us + 777 * (unsigned)round);
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
        t_ok(checkpoint_latest(root, dir, sizeof dir, &step, &e), &e);
        t_true(value_of(dir) == (float)step);
        if (step == before && wait_us < 1000000) /* a slow disk or a busy machine */
            wait_us += wait_us / 2;
        before = step;
    }
    t_true(step > 0);
    t_ok(checkpoint_prune(root, 1, -1, 0, &e), &e);
    char **names;
    size_t n;
    t_ok(fs_list(root, &names, &n, &e), &e);
    t_eq(n, 1);
    fs_list_free(names, n);
    printf("  reached checkpoint %lld in 40 killed processes\n", (long long)step);
}

/* ---- the log
 * ---------------------------------------------------------------------------------------- */

static int append(struct runlog_writer *w, int64_t step, struct err *e)
{
    struct record *r = record_new();
    record_begin(r, "metric", step, 1);
    record_num(r, "loss", 1);
    int rc = runlog_append(w, r, e);
    record_free(r);
    return rc;
}

static void count(const char *p, uint64_t *records, uint64_t *gaps, uint64_t *lost)
{
    struct runlog_reader *r;
    struct runlog_entry entry;
    struct err e = {0};
    *records = *gaps = *lost = 0;
    t_ok(runlog_reader_open(&r, p, &e), &e);
    while (runlog_next(r, &entry, &e) > 0) {
        *records += !entry.is_gap;
        *gaps += entry.is_gap != 0;
        *lost += entry.lost;
    }
    runlog_reader_close(r);
}

T(a_full_disk_keeps_records_in_memory_and_writes_them_later) /* D2 */
{
    char p[512];
    struct runlog_writer *w;
    struct err e = {0};
    uint64_t records, gaps, lost;
    log_to(quiet, NULL);
    snprintf(p, sizeof p, "%s/log.mp", t_tmpdir());
    t_ok(runlog_writer_open(&w, p, &e), &e);
    t_ok(append(w, 0, &e), &e);
    cut_short = 1;
    fail_at(1, 1, ENOSPC);
    for (int i = 1; i <= 50; i++)
        t_ok(append(w, i, &e), &e);
    t_true(runlog_writer_buffered(w) > 0);
    t_fails(runlog_writer_sync(w, &e), &e, DS_EIO, "log.mp");
    fail_at(-1, 0, 0);
    t_ok(append(w, 51, &e), &e);
    t_eq(runlog_writer_buffered(w), 0);
    t_eq(runlog_writer_dropped(w), 0);
    runlog_writer_close(w);
    count(p, &records, &gaps, &lost);
    t_eq(records, 52);
    t_eq(gaps + lost, 0);
}

static int torn_writes; /* the first takes half, the second nothing */

static ssize_t torn_write(int fd, const void *b, size_t n)
{
    if (++torn_writes == 2) {
        errno = EDQUOT;
        return -1;
    }
    return write(fd, b, torn_writes == 1 ? n / 2 : n);
}

static void write_torn(const char *p)
{
    struct runlog_writer *w;
    struct err e = {0};
    struct fs_ops full = *fs_ops_get();
    t_ok(runlog_writer_open(&w, p, &e), &e);
    t_ok(append(w, 0, &e), &e);
    full.write = torn_write;
    fs_ops_set(&full);
    for (int i = 1; i < 4; i++)
        t_ok(append(w, i, &e), &e);
    fs_ops_set(NULL);
    t_eq(runlog_writer_buffered(w), 0);
    runlog_writer_close(w);
}

/* As btrfs is without quota. */
T(a_disk_too_full_to_make_a_log_shorter_leaves_no_gap_once_it_has_room) /* D2 */
{
    char p[512];
    uint64_t records, gaps, lost;
    log_to(quiet, NULL);
    snprintf(p, sizeof p, "%s/log.mp", t_tmpdir());
    setenv("DEPTHSCOPE_FAIL", "ftruncate:1", 1);
    write_torn(p);
    count(p, &records, &gaps, &lost);
    t_true(records == 4 && gaps == 0 && lost == 0);
}

T(a_log_that_cannot_be_made_shorter_has_a_gap_and_every_record) /* D2 */
{
    char p[512];
    uint64_t records, gaps, lost;
    log_to(quiet, NULL);
    snprintf(p, sizeof p, "%s/log.mp", t_tmpdir());
    setenv("DEPTHSCOPE_FAIL", "ftruncate:1+", 1);
    write_torn(p);
    count(p, &records, &gaps, &lost);
    t_true(records == 4 && gaps == 1 && lost == 0);
}

static int loses_at, zeros_remain; /* instead of a shorter file */

/* As a network file system that is over its quota: what it took before is not there either. */
static ssize_t losing_write(int fd, const void *b, size_t n)
{
    struct stat st;
    if (loses_at == 0 || --loses_at > 0)
        return write(fd, b, n);
    if (fstat(fd, &st) != 0 || ftruncate(fd, st.st_size / 2) != 0)
        return -1;
    errno = EDQUOT;
    return -1;
}

T(what_the_network_lost_of_a_log_is_not_filled_with_zeros) /* D14 */
{
    char p[512];
    struct runlog_writer *w;
    struct err e = {0};
    struct str text = {0};
    struct fs_ops network = *fs_ops_get();
    log_to(quiet, NULL);
    snprintf(p, sizeof p, "%s/log.mp", t_tmpdir());
    t_ok(runlog_writer_open(&w, p, &e), &e);
    network.write = losing_write;
    fs_ops_set(&network);
    for (int i = 0; i < 40; i++) {
        loses_at = i == 20;
        t_ok(append(w, i, &e), &e);
    }
    fs_ops_set(NULL);
    t_eq(runlog_writer_buffered(w), 0);
    runlog_writer_close(w);
    t_ok(fs_read_file(&text, p, 1 << 20, &e), &e);
    static const char zeros[16];
    for (size_t i = 0; i + sizeof zeros <= text.len; i++)
        t_true(memcmp(text.p + i, zeros, sizeof zeros) != 0);
    str_release(&text);
    uint64_t records, gaps, lost;
    count(p, &records, &gaps, &lost);
    t_eq(records, 40); /* none was synced, so all are kept */
    t_eq(gaps + lost, 0);
}

static int syncs_until_loss, writes_after_loss;
static off_t size_at_sync;

/* Once, what was written since the last sync is lost, and the file is as long as it was then or has zeros. */
static int losing_sync(int fd)
{
    struct stat st;
    if (fstat(fd, &st) != 0)
        return -1;
    if (--syncs_until_loss != 0) {
        size_at_sync = st.st_size;
        return 0;
    }
    if (ftruncate(fd, size_at_sync) != 0 || (zeros_remain && ftruncate(fd, st.st_size) != 0))
        return -1;
    errno = EIO;
    return -1;
}

static ssize_t counted_write(int fd, const void *b, size_t n)
{
    writes_after_loss += syncs_until_loss <= 0;
    return write(fd, b, n);
}

T(what_a_failed_sync_has_lost_is_written_again) /* D14 */
{
    char p[512];
    struct err e = {0};
    struct fs_ops disk = *fs_ops_get();
    uint64_t records, gaps, lost;
    log_to(quiet, NULL);
    disk.fdatasync = losing_sync;
    disk.write = counted_write;
    for (int how = 0; how < 4; how++) { /* a shorter file or zeros; more records come, or none */
        struct runlog_writer *w;
        int n = how / 2 ? 30 : 20;
        zeros_remain = how % 2;
        syncs_until_loss = 2;
        size_at_sync = writes_after_loss = 0;
        snprintf(p, sizeof p, "%s/log-%d.mp", t_tmpdir(), how);
        t_ok(runlog_writer_open(&w, p, &e), &e);
        fs_ops_set(&disk);
        for (int i = 0; i < n; i++) {
            if (i == 10)
                t_ok(runlog_writer_sync(w, &e), &e);
            if (i == 20)
                t_fails(runlog_writer_sync(w, &e), &e, DS_EIO, "sync");
            t_ok(append(w, i, &e), &e);
        }
        if (n == 20)
            t_fails(runlog_writer_sync(w, &e), &e, DS_EIO, "sync");
        runlog_writer_close(w);
        fs_ops_set(NULL);
        t_true(writes_after_loss > 0);
        count(p, &records, &gaps, &lost);
        t_eq(records, n);
        t_eq(gaps + lost, 0);
    }
    zeros_remain = 0;
}

/* The descriptor of ours that is this file. */
static int fd_of(const char *path)
{
    struct stat want, st;
    int found = -1;
    t_eq(stat(path, &want), 0);
    for (int fd = 0; fd < 256; fd++)
        if (fstat(fd, &st) == 0 && st.st_dev == want.st_dev && st.st_ino == want.st_ino)
            found = fd;
    t_true(found >= 0);
    return found;
}

static int stale_fd;

/* As on a server that was started again: the handle of the log, and no other, is unknown. */
static ssize_t stale_write(int fd, const void *b, size_t n)
{
    if (fd != stale_fd)
        return write(fd, b, n);
    errno = ESTALE;
    return -1;
}

T(a_log_whose_handle_is_stale_is_opened_again_where_it_still_is) /* D14 */
{
    char p[512], moved[520];
    struct err e = {0};
    struct str text = {0};
    struct fs_ops network = *fs_ops_get();
    uint64_t records, gaps, lost;
    log_to(quiet, NULL);
    network.write = stale_write;
    for (int how = 0; how < 3; how++) { /* it is there; another file is; another process goes on with it */
        struct runlog_writer *w, *other = NULL;
        snprintf(p, sizeof p, "%s/log-%d.mp", t_tmpdir(), how);
        snprintf(moved, sizeof moved, "%s.moved", p);
        t_ok(runlog_writer_open(&w, p, &e), &e);
        stale_fd = -1;
        fs_ops_set(&network);
        for (int i = 0; i < 10; i++)
            t_ok(append(w, i, &e), &e);
        stale_fd = fd_of(p);
        if (how == 1) {
            t_eq(rename(p, moved), 0);
            t_ok(fs_write_file(p, "x", 1, &e), &e);
        } else if (how == 2) {
            t_eq(flock(stale_fd, LOCK_UN), 0); /* as the server forgets it */
            t_ok(runlog_writer_open(&other, p, &e), &e);
            t_ok(append(other, 10, &e), &e);
        }
        for (int i = 10; i < 20; i++) {
            e = (struct err){0};
            int rc = append(w, i, &e);
            t_eq(rc < 0, how > 0);
            if (how == 2 && i > 10)
                t_true(strstr(e.text, "was taken by another process while its handle was stale"));
        }
        if (how == 0) {
            t_eq(runlog_writer_buffered(w), 0);
            t_eq(runlog_writer_open(&other, p, &e), DS_EBUSY);
        }
        fs_ops_set(NULL);
        runlog_writer_close(w);
        if (how == 1) { /* what is not the log is as it was */
            t_ok(fs_read_file(&text, p, 100, &e), &e);
            t_eq(text.len, 1);
            str_release(&text);
        } else {
            if (how == 2)
                runlog_writer_close(other);
            count(p, &records, &gaps, &lost);
            t_eq(records, how == 0 ? 20 : 11);
            t_eq(gaps + lost, 0);
        }
    }
}

/* ---- power failures: a process ends at a call, then the disk loses what was not synced ---- */

static int lose(const char *path, const struct stat *st, int type)
{
    off_t kept = 0;
    if (type != FTW_F)
        return 0;
    for (int i = 0; i < synced->n; i++)
        kept = synced->file[i].ino == st->st_ino ? synced->file[i].bytes : kept;
    if (kept >= st->st_size)
        return 0;
    return truncate(path, kept) != 0 || (zeros_remain && truncate(path, st->st_size) != 0);
}

/* Calls `work` in a process that ends at its n-th file call; 1 when it was done before that. */
static int ends_in(void (*work)(const char *), const char *where, int n)
{
    int status = -1;
    fflush(NULL);
    pid_t pid = fork();
    t_true(pid >= 0);
    if (pid == 0) {
        fail_at(0, 0, 0);
        ends_at = n;
        work(where);
        _exit(0);
    }
    t_true(waitpid(pid, &status, 0) == pid && WIFEXITED(status));
    t_truef(WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == ENDED, "status %d", status);
    return WEXITSTATUS(status) == 0;
}

static void save_second(const char *root)
{
    if (write_checkpoint(root, 2, 2, NULL) < 0)
        _exit(1);
}

static void append_synced(const char *p)
{
    struct runlog_writer *w;
    if (runlog_writer_open(&w, p, NULL) < 0)
        _exit(1);
    runlog_writer_sync_interval(w, 0);
    for (int i = 3; i < 6; i++)
        if (append(w, i, NULL) < 0)
            _exit(1);
    runlog_writer_close(w);
}

static void forget_syncs(void)
{
    if (!synced)
        synced = mmap(NULL, sizeof *synced, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
                      0);
    t_true(synced != MAP_FAILED);
    synced->n = 0;
}

T(only_what_was_synced_survives_a_power_failure_at_every_call) /* D7 */
{
    char dir[400], root[512], p[512];
    struct err e = {0};
    struct runlog_writer *w;
    uint64_t records, gaps, lost, before;
    log_to(quiet, NULL);
    snprintf(dir, sizeof dir, "%s", t_tmpdir());
    snprintf(root, sizeof root, "%s/c", dir);
    snprintf(p, sizeof p, "%s/log.mp", dir);
    for (zeros_remain = 0; zeros_remain < 2; zeros_remain++) {
        int done = 0, n;
        for (n = 1; !done; n++) {
            forget_syncs();
            fail_at(0, 0, 0);
            t_ok(write_checkpoint(root, 1, 1, &e), &e);
            done = ends_in(save_second, root, n);
            t_eq(ftw(root, lose, 8), 0);
            fail_at(-1, 0, 0);
            check_latest(root, 1);
            t_ok(fs_remove_tree(root, &e), &e);
        }
        t_truef(n > 15, "%d calls", n);
        for (n = 1, done = 0, before = 3; !done; n++) {
            forget_syncs();
            fail_at(0, 0, 0);
            t_ok(runlog_writer_open(&w, p, &e), &e);
            for (int i = 0; i < 3; i++)
                t_ok(append(w, i, &e), &e);
            runlog_writer_close(w);
            done = ends_in(append_synced, p, n);
            t_eq(ftw(dir, lose, 8), 0);
            fail_at(-1, 0, 0);
            t_ok(runlog_writer_open(&w, p, &e), &e); /* the next start */
            runlog_writer_close(w);
            count(p, &records, &gaps, &lost);
            t_truef(records >= before && gaps + lost == 0, "call %d: %d records", n, (int)records);
            before = records; /* later calls lose no more than earlier ones */
            t_eq(unlink(p), 0);
        }
        t_eq(before, 6);
    }
}

static void open_writer(const char *p)
{
    struct runlog_writer *w;
    if (runlog_writer_open(&w, p, NULL) < 0)
        _exit(1);
    runlog_writer_close(w);
}

T(a_recovery_that_is_cut_off_at_any_call_is_repeated) /* D8 */
{
    char dir[400], p[512], broken[600];
    struct err e = {0};
    struct runlog_writer *w;
    struct stat st;
    uint64_t records, gaps, lost;
    log_to(quiet, NULL);
    snprintf(dir, sizeof dir, "%s", t_tmpdir());
    snprintf(p, sizeof p, "%s/log.mp", dir);
    for (int n = 1, done = 0; !done; n++) {
        struct str kept = {0};
        t_ok(runlog_writer_open(&w, p, &e), &e);
        for (int i = 0; i < 3; i++)
            t_ok(append(w, i, &e), &e);
        runlog_writer_close(w);
        t_eq(stat(p, &st), 0);
        int fd = open(p, O_WRONLY | O_APPEND | O_CLOEXEC);
        t_eq(write(fd, "damage!!", 8), 8);
        close(fd);
        done = ends_in(open_writer, p, n);
        t_ok(runlog_writer_open(&w, p, &e), &e);
        t_ok(append(w, 3, &e), &e);
        runlog_writer_close(w);
        count(p, &records, &gaps, &lost);
        t_truef(records == 4 && gaps + lost == 0, "call %d: %d records", n, (int)records);
        snprintf(broken, sizeof broken, "%s.broken-%lld", p, (long long)st.st_size);
        t_ok(fs_read_file(&kept, broken, 100, &e), &e);
        t_str(str_text(&kept), "damage!!");
        str_release(&kept);
        t_true(unlink(p) == 0 && unlink(broken) == 0);
        t_true(!done || n > 8);
    }
}

T(records_dropped_from_memory_are_counted_and_seen_by_readers)
{
    char p[512];
    static char payload[1 << 20];
    struct runlog_writer *w;
    struct err e = {0};
    uint64_t records, gaps, lost;
    log_to(quiet, NULL);
    snprintf(p, sizeof p, "%s/log.mp", t_tmpdir());
    t_ok(runlog_writer_open(&w, p, &e), &e);
    t_ok(append(w, 0, &e), &e);
    fail_at(1, 1, ENOSPC);
    struct record *r = record_new();
    for (int i = 0; i < 20; i++) {
        record_begin(r, "probe", i, 1);
        record_bytes(r, "x", payload, sizeof payload);
        t_ok(runlog_append(w, r, &e), &e);
    }
    fail_at(-1, 0, 0);
    t_true(runlog_writer_buffered(w) <= 8 << 20);
    uint64_t dropped = runlog_writer_dropped(w);
    t_true(dropped > 0);
    runlog_writer_close(w); /* writes the buffered records */
    record_free(r);
    count(p, &records, &gaps, &lost);
    t_eq(records + lost, 21);
    t_eq(lost, dropped);
    t_eq(gaps, 0);
}

T(log_survives_every_failing_call)
{
    static const int errors[] = {EIO, ENOSPC, EINTR};
    log_to(quiet, NULL);
    char p[512];
    struct err e = {0};
    snprintf(p, sizeof p, "%s/log.mp", t_tmpdir());
    for (int k = 0; k < 3; k++)
        for (int n = 1; n < 20; n++) {
            struct runlog_writer *w = NULL;
            uint64_t records, gaps, lost;
            cut_short = n % 2;
            fail_at(n, 0, errors[k]);
            int rc = runlog_writer_open(&w, p, &e);
            if (rc == 0) {
                runlog_writer_sync_interval(w, 0);
                for (int i = 0; i < 3; i++) {
                    rc = append(w, i, &e);
                    t_truef(rc == 0 || errors[k] == EIO, "%d %s", rc, e.text);
                }
                runlog_writer_close(w);
                fail_at(-1, 0, 0);
                count(p, &records, &gaps, &lost);
                t_truef(records == 3, "%d records, call %d, error %d", (int)records, n, errors[k]);
                t_eq(gaps + lost, 0);
            }
            fail_at(-1, 0, 0);
            unlink(p);
        }
}
