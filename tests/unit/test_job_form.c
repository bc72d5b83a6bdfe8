/* The form of a new run, without a screen: what is wrong with a value, a start that fails. */
#include "kit.h"

#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fs.h"
#include "training/job.h"

T(a_value_is_checked_by_its_row_of_the_option_tables)
{
    static const struct {
        const char *key, *text;
        int code;
    } row[] = {
        {"train.steps", "10", 0},
        {"train.steps", "1e3", 0},
        {"train.steps", "abc", DS_EUSAGE},
        {"train.steps", "0", DS_ERANGE},
        {"train.lr", "", DS_EUSAGE},
        {"train.lr", "1e-3", 0},
        {"seed", "-1", DS_ERANGE},
        {"compute", "fp8", DS_EUSAGE},
        {"model.norm", "rms", 0},
        {"model.method", "mod", 0},
        {"model.method", "modd", DS_EUSAGE},
        {"model.norm", "rmsx", DS_EUSAGE},
        {"data.path", "any words", 0},
        {"edp.target_ratio", "2x", DS_EUSAGE},
        {"train.recompute", "maybe", DS_EUSAGE},
    };
    struct err e = {0};
    size_t n;
    for (size_t i = 0; i < DS_LEN(row); i++) {
        e.text[0] = '\0';
        int rc = job_check_value(row[i].key, row[i].text, &e);
        t_truef(rc == row[i].code, "%s=%s: %d %s", row[i].key, row[i].text, rc, e.text);
        t_truef(rc == 0 || strncmp(e.text, row[i].key, strlen(row[i].key)) == 0, "%s", e.text);
    }
    const struct job_key *key = job_keys(&n); /* every default passes its own row */
    for (size_t i = 0; i < n; i++)
        if (key[i].otherwise)
            t_ok(job_check_value(key[i].key, key[i].otherwise, &e), &e);
    t_true(n > 100);
}

T(a_start_is_checked_as_the_command_line_is)
{
    const char *good[] = {"quick", "train.steps=3"}, *together[] = {"quick", "train.seq=4096"},
               *unknown[] = {"quick", "train.stpes=3"}, *preset[] = {"nosuch"};
    struct err e = {0};
    t_ok(job_check(good, 2, &e), &e);
    t_fails(job_check(together, 2, &e), &e, DS_EUSAGE, "model.max_seq");
    t_fails(job_check(unknown, 2, &e), &e, DS_EUSAGE, "did you mean train.steps?");
    t_fails(job_check(preset, 1, &e), &e, DS_EUSAGE, "nosuch");
}

static enum launch_state wait_for(struct job_launch *l, char *words, size_t size)
{
    double end = clock_mono() + 40;
    enum launch_state state;
    while ((state = job_launch_state(l, words, size)) == LAUNCH_STARTING && clock_mono() < end)
        clock_sleep(0.02);
    return state;
}

T(a_start_that_fails_leaves_no_directory_and_reports_its_last_line)
{
    const char *program = getenv("DEPTHSCOPE");
    if (access(program ? program : "./depthscope", X_OK) != 0)
        t_skip("no program to start (DEPTHSCOPE)");
    const char *args[] = {"quick", "data.path=/nonexistent.txt"};
    char root[300], words[200], **names;
    struct job_launch l;
    struct err e = {0};
    size_t n;
    const char *dirname = t_tmpdir();
    snprintf(root, sizeof root, "%s/runs", dirname);
    setenv("DEPTHSCOPE_RUNS", root, 1);
    t_ok(job_launch(&l, args, 2, &e), &e);
    t_eq(wait_for(&l, words, sizeof words), LAUNCH_FAILED);
    t_truef(strstr(words, "/nonexistent.txt") && strncmp(words, "depthscope:", 11) != 0, "%s",
            words);
    job_launch_release(&l);
    char before[1024], dying[400];
    static const char script[] = "#!/bin/sh\nprintf 'a line before\\nthe last line\\n\\n' >&2\n";
    snprintf(before, sizeof before, "%s", program ? program : "");
    snprintf(dying, sizeof dying, "%s/dying", dirname);
    t_ok(fs_write_file(dying, script, sizeof script - 1, &e), &e);
    t_eq(chmod(dying, 0755), 0);
    setenv("DEPTHSCOPE", dying, 1);
    t_ok(job_launch(&l, args, 1, &e), &e);
    t_eq(wait_for(&l, words, sizeof words), LAUNCH_FAILED);
    t_str(words, "the last line");
    job_launch_release(&l);
    setenv("DEPTHSCOPE", before, 1);
    t_ok(fs_list(root, &names, &n, &e), &e);
    t_eq(n, 0);
    fs_list_free(names, n);
}

T(a_start_that_succeeds_is_distinguished_from_one_that_is_still_starting)
{
    const char *program = getenv("DEPTHSCOPE");
    if (access(program ? program : "./depthscope", X_OK) != 0)
        t_skip("no program to start (DEPTHSCOPE)");
    const char *args[] = {"quick",
                          "model.layers=6",
                          "model.dim=16",
                          "model.heads=2",
                          "model.vocab=300",
                          "data.docs=20",
                          "data.tokenizer=bytes",
                          "data.val_fraction=0.2",
                          "train.batch=2",
                          "train.seq=32",
                          "train.steps=2",
                          "train.final_tokens=64",
                          "train.time_rounds=0",
                          "train.probes=0",
                          "threads=1"};
    char root[300], words[200], path[1100];
    struct job_launch l;
    struct err e = {0};
    snprintf(root, sizeof root, "%s/runs", t_tmpdir());
    setenv("DEPTHSCOPE_RUNS", root, 1);
    t_ok(job_launch(&l, args, DS_LEN(args), &e), &e);
    t_eq(wait_for(&l, words, sizeof words), LAUNCH_RUNS);
    job_launch_release(&l);
    snprintf(path, sizeof path, "%s/log.mp", l.dir);
    t_true(fs_exists(path));
    struct str answer = {0};
    double end = clock_mono() + 40; /* its directory goes when the test ends: so must it */
    while (job_command(l.dir, "stop", 1, &answer, &e) != DS_ENOTFOUND && clock_mono() < end)
        clock_sleep(0.05);
    str_release(&answer);
}

T(a_preset_says_what_it_is_for_and_what_its_run_takes)
{
    struct job_preset quick, tiny;
    struct err e = {0};
    t_ok(job_preset_read(&quick, "quick", &e), &e);
    t_ok(job_preset_read(&tiny, "tiny", &e), &e);
    t_str(tiny.about, "0.4 M parameters: a run of a minute or two, to see that something works");
    t_true(strstr(quick.about, "embedded corpus") && strcmp(quick.method, "edp") == 0);
    t_true(tiny.params > 300000 && tiny.params < 500000 && quick.params > tiny.params);
    t_true(tiny.bytes >= 16.0 * (double)tiny.params); /* weights, gradients, two moments */
    /* 600 steps of 8 x 128 tokens, at 6 FLOPs per parameter and more for attention and head */
    double tokens = 600.0 * 8 * 128;
    t_true(tiny.work > 6 * 200000 * tokens && tiny.work < 60 * 500000 * tokens);
    t_fails(job_preset_read(&tiny, "tinny", &e), &e, DS_EUSAGE, "tinny");
}

T(the_peak_is_measured_by_a_thread)
{
    double started = clock_mono(), first = job_peak(), waited = clock_mono() - started;
    t_truef(waited < 1, "%g s", waited);
    while (job_peak() <= 0 && clock_mono() - started < 40)
        clock_sleep(0.01);
    t_truef(job_peak() > 0.01, "%g GFLOP/s at once, %g at last", first, job_peak());
}
