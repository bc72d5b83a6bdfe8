/* Runs seen from outside, as the workbench sees them: started, listed, talked to. */
#include <errno.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fs.h"
#include "base/mem.h"
#include "io/runindex.h"
#include "io/runview.h"
#include "t.h"
#include "training/job.h"

static const char *const keys[] = {
    "model.layers=6",
    "model.dim=16",
    "model.heads=2",
    "model.vocab=300",
    "data.docs=20",
    "data.tokenizer=bytes",
    "data.val_fraction=0.2",
    "train.batch=4",
    "train.seq=32",
    "train.steps=1000000",
    "train.eval_tokens=64",
    "train.final_tokens=64",
    "train.time_rounds=0",
    "train.probes=1",
    "train.probe_tokens=16",
    "threads=1",
    "train.checkpoint_every=1000000",
    "train.eval_every=1000000",
};

static const char *make_root(void)
{
    static char root[300];
    const char *program = getenv("DEPTHSCOPE");
    if (access(program ? program : "./depthscope", X_OK) != 0)
        t_skip("no program to start (DEPTHSCOPE)");
    snprintf(root, sizeof root, "%s/runs", t_tmpdir());
    setenv("DEPTHSCOPE_RUNS", root, 1);
    return root;
}

static void dir_of(char out[600], const char *root, const char *name)
{
    snprintf(out, 600, "%s/%s", root, name);
}

/* Up to 20 seconds for the answer to begin with `want`. */
static void ask_until(const char *dir, const char *command, const char *want)
{
    struct str answer = {0};
    struct err e = {0};
    double end = clock_mono() + 20;
    int ok = 0;
    while (!ok && clock_mono() < end) {
        ok = job_command(dir, command, 5, &answer, &e) == 0 &&
             (strncmp(str_text(&answer), want, strlen(want)) == 0 ||
              job_pending(str_text(&answer)) > 0); /* a busy machine's steps are long */
        if (!ok)
            clock_sleep(0.02);
    }
    t_truef(ok, "%s: %s %s", command, str_text(&answer), e.text);
    str_release(&answer);
}

static void wait_until_dead(const char *dir)
{
    struct str answer = {0};
    struct err e = {0};
    double end = clock_mono() + 20;
    while (job_command(dir, "status", 5, &answer, &e) != DS_ENOTFOUND && clock_mono() < end)
        clock_sleep(0.02);
    t_fails(job_command(dir, "status", 5, &answer, &e), &e, DS_ENOTFOUND,
            "no live training process");
    str_release(&answer);
}

static void start(char name[65])
{
    struct err e = {0};
    t_ok(job_start(keys, DS_LEN(keys), name, 65, &e), &e);
}

T(a_started_run_can_be_asked_listed_and_stopped_and_leaves_no_zombie)
{
    const char *root = make_root();
    char name[65], dir[600];
    struct runindex x = {0};
    struct err e = {0};
    struct str answer = {0};
    start(name);
    dir_of(dir, root, name);
    t_str(name, "quick-1");
    ask_until(dir, "status", "ok step");
    t_ok(runindex_refresh(&x, root, &e), &e);
    t_eq(x.n, 1);
    t_true(x.row[0]->is_live && strcmp(x.row[0]->name, name) == 0 &&
           strcmp(x.row[0]->method, "edp") == 0 && strcmp(x.row[0]->preset, "quick") == 0 &&
           x.row[0]->modified > 1e9);
    ask_until(dir, "pause", "ok pause");
    /* a step that takes long is answered "ok pending" first */
    ask_until(dir, "set edp.target_ratio 0.01", "error edp.target_ratio=0.01 cannot be reached");
    t_fails(job_command(dir, "status\nstatus", 5, &answer, &e), &e, DS_EUSAGE, "not a single line");
    t_eq(waitpid(-1, NULL, WNOHANG), -1); /* nobody's child: nothing to wait for */
    t_eq(errno, ECHILD);
    ask_until(dir, "stop", "ok stop");
    wait_until_dead(dir);
    t_ok(runindex_refresh(&x, root, &e), &e);
    t_true(x.n == 1 && !x.row[0]->is_live);
    runindex_release(&x);
    str_release(&answer);
}

T(two_starts_at_once_are_two_runs)
{
    const char *root = make_root();
    char name[2][65], dir[600];
    int pipes[2];
    t_true(pipe(pipes) == 0);
    pid_t other = fork();
    if (other == 0) {
        struct err e = {0};
        char mine[65] = "";
        int rc = job_start(keys, DS_LEN(keys), mine, sizeof mine, &e);
        _exit(rc < 0 || write(pipes[1], mine, sizeof mine) != (ssize_t)sizeof mine);
    }
    start(name[0]);
    int status;
    t_true(waitpid(other, &status, 0) == other && status == 0);
    t_true(read(pipes[0], name[1], sizeof name[1]) == (ssize_t)sizeof name[1]);
    t_true(strcmp(name[0], name[1]) != 0);
    for (int i = 0; i < 2; i++) {
        dir_of(dir, root, name[i]);
        ask_until(dir, "stop", "ok stop");
    }
    for (int i = 0; i < 2; i++) {
        dir_of(dir, root, name[i]);
        wait_until_dead(dir);
    }
}

T(the_death_of_the_starter_does_not_hurt_the_run)
{
    const char *root = make_root();
    char name[65] = "quick-1", dir[600];
    pid_t starter = fork();
    if (starter == 0) {
        struct err e = {0};
        setpgid(0, 0);
        _exit(job_start(keys, DS_LEN(keys), name, sizeof name, &e) < 0);
    }
    int status;
    t_true(waitpid(starter, &status, 0) == starter && status == 0);
    kill(-starter, SIGKILL); /* and whatever is left of its group */
    dir_of(dir, root, name);
    ask_until(dir, "status", "ok step");
    ask_until(dir, "stop", "ok stop");
    wait_until_dead(dir);
}

T(a_start_that_fails_says_why_in_its_output_and_is_no_run)
{
    const char *root = make_root();
    static const char *const bad[] = {"data.path=/nonexistent/corpus", "train.steps=3"};
    char name[65], path[700];
    struct runindex x = {0};
    struct str text = {0};
    struct err e = {0};
    t_ok(job_start(bad, 2, name, sizeof name, &e), &e);
    snprintf(path, sizeof path, "%s/%s/train.out", root, name);
    for (double end = clock_mono() + 20; clock_mono() < end && text.len == 0; clock_sleep(0.02))
        t_ok(fs_read_file(&text, path, 4096, &e), &e);
    t_true(strstr(str_text(&text), "No such file"));
    clock_sleep(0.1);
    t_ok(runindex_refresh(&x, root, &e), &e);
    t_eq(x.n, 0);
    runindex_release(&x);
    str_release(&text);
}

T(a_list_of_runs_survives_what_else_lies_there)
{
    const char *root = make_root();
    struct runindex x = {0};
    struct err e = {0};
    char path[700];
    t_ok(runindex_refresh(&x, root, &e), &e); /* no such directory: nothing has run */
    t_eq(x.n, 0);
    snprintf(path, sizeof path, "%s/empty", root);
    t_ok(fs_mkdirs(path, &e), &e);
    snprintf(path, sizeof path, "%s/odd", root);
    t_ok(fs_mkdirs(path, &e), &e);
    snprintf(path, sizeof path, "%s/odd/config.yaml", root);
    t_ok(fs_write_file(path, "\xff: [", 4, &e), &e);
    snprintf(path, sizeof path, "%s/odd/meta.json", root);
    t_ok(fs_write_file(path, "{", 1, &e), &e);
    snprintf(path, sizeof path, "%s/odd/log.mp", root);
    t_true(mkfifo(path, 0600) == 0); /* nobody writes there */
    snprintf(path, sizeof path, "%s/file", root);
    t_ok(fs_write_file(path, "x", 1, &e), &e);
    snprintf(path, sizeof path, "%s/loop", root);
    t_true(symlink("loop", path) == 0);
    t_ok(runindex_refresh(&x, root, &e), &e);
    t_eq(x.n, 1);
    t_str(x.row[0]->name, "odd");
    t_true(!x.row[0]->is_live && !x.row[0]->method[0]);
    runindex_release(&x);
}

T(presets_and_keys_name_what_a_run_takes)
{
    struct err e = {0};
    char **names;
    size_t n, found = 0;
    t_ok(job_presets(&names, &n, &e), &e);
    t_true(n >= 1);
    t_str(names[0], "quick");
    fs_list_free(names, n);
    const struct job_key *key = job_keys(&n);
    for (size_t i = 0; i < n; i++) {
        t_true(key[i].key && key[i].otherwise && key[i].help && key[i].help[0]);
        found += strcmp(key[i].key, "train.lr") == 0 ||
                 strcmp(key[i].key, "edp.target_ratio") == 0 || strcmp(key[i].key, "seed") == 0;
    }
    t_eq(found, 3);
}
