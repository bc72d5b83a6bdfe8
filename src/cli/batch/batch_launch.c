/* Starts workers of a batch elsewhere: through a command, or as a Slurm job array. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/mem.h"
#include "cli/batch/batch_work.h"
#include "training/job.h"

/* ---- the command line of a worker ---- */

/* Options that are about the process that launches. */
static int is_of_leader(const struct batch_plan *p, const char *word, int *takes_next)
{
    static const char *const own[] = {"jobs",  "status", "launch", "slurm", "sbatch", "worker",
                                      "index", "out",    "json",   "quiet", "dry-run"};
    size_t skip = strspn(word, "-"), len = strcspn(word + skip, "=");
    *takes_next = 0;
    for (size_t i = 0; skip > 0 && i < DS_LEN(own); i++) {
        if (strlen(own[i]) != len || strncmp(own[i], word + skip, len) != 0)
            continue;
        for (const struct cli_option *o = p->how.option; o->name; o++)
            if (strcmp(o->name, own[i]) == 0)
                *takes_next = o->has_value && !word[skip + len];
        return 1;
    }
    return 0;
}

/* 1 when the word takes the next one as its value. */
static int takes_value(const struct batch_plan *p, const char *word)
{
    size_t skip = strspn(word, "-");
    for (const struct cli_option *o = p->how.option; skip > 0 && o->name; o++)
        if (strcmp(o->name, word + skip) == 0)
            return o->has_value;
    return 0;
}

static void add_words(struct str *out, const struct batch_plan *p)
{
    int is_rest = 0;
    for (int i = 1; i < p->how.argc; i++) {
        const char *word = p->how.argv[i];
        int takes_next = 0;
        if (!is_rest && is_of_leader(p, word, &takes_next)) {
            i += takes_next;
            continue;
        }
        str_add(out, " ");
        str_add_shell(out, word);
        if (!is_rest && takes_value(p, word) && i + 1 < p->how.argc) {
            str_add(out, " ");
            str_add_shell(out, p->how.argv[++i]);
        }
        is_rest |= strcmp(word, "--") == 0;
    }
}

/* "cd DIR && exec env DEPTHSCOPE_RUNS=DIR": where a worker has to be; every login shell takes it. */
static int add_place(struct str *out, struct err *e)
{
    char here[PATH_MAX], root[PATH_MAX];
    if (!getcwd(here, sizeof here))
        return err_errno(e, "the current directory");
    if (!realpath(job_root(), root))
        return err_errno(e, "%s", job_root());
    str_add(out, "cd ");
    str_add_shell(out, here);
    str_add(out, " && exec env DEPTHSCOPE_RUNS=");
    str_add_shell(out, root);
    return 0;
}

int batch_worker_line(struct str *out, const struct batch_plan *p, const char *id, struct err *e)
{
    char self[1024];
    int rc = add_place(out, e);
    child_self(self, sizeof self);
    str_add(out, " ");
    str_add_shell(out, self);
    str_addf(out, " %s --worker %s --quiet", p->how.argv[0], id);
    add_words(out, p);
    return rc == 0 && out->failed ? err_set(e, DS_EMEM, "%s: out of memory", p->kind) : rc;
}

/* ---- through a command ---- */

int batch_launch_start(struct batch_child *b, const struct batch_plan *p, const char *id,
                       int number, struct err *e)
{
    struct str line = {0}, command = {0};
    int rc = batch_worker_line(&line, p, id, e);
    for (const char *at = p->how.launch; rc == 0 && *at;) {
        if (strncmp(at, "{}", 2) == 0) {
            str_add_shell(&command, str_text(&line));
            at += 2;
        } else if (strncmp(at, "{n}", 3) == 0) {
            str_addf(&command, "%d", number);
            at += 3;
        } else
            str_add_char(&command, *at++);
    }
    if (rc == 0 && command.failed)
        rc = err_set(e, DS_EMEM, "%s: out of memory", p->kind);
    const char *const argv[] = {"sh", "-c", str_text(&command), NULL};
    if (rc == 0)
        rc = batch_child_start(b, "sh", argv, -1, 0, e);
    str_release(&line);
    str_release(&command);
    return rc;
}

/* ---- Slurm ---- */

/* "1-3,5,7-8": the runs that are left. */
static size_t add_indices(struct str *out, const struct batch_unit *unit, size_t n)
{
    size_t left = 0;
    for (size_t i = 0; i < n; i++) {
        if (unit[i].state != UNIT_OPEN)
            continue;
        size_t last = i;
        while (last + 1 < n && unit[last + 1].state == UNIT_OPEN)
            last++;
        str_addf(out, "%s%zu", left ? "," : "", i + 1);
        if (last > i)
            str_addf(out, "-%zu", last + 1);
        left += last - i + 1;
        i = last;
    }
    return left;
}

/* One word "--time=2:00:00" a line. */
static void add_sbatch(struct str *out, const char *options)
{
    for (const char *at = options ? options : ""; *(at += strspn(at, " "));) {
        size_t len = strcspn(at, " ");
        str_addf(out, "#SBATCH %.*s\n", (int)len, at);
        at += len;
    }
}

/* Two minutes before the time limit Slurm sends SIGUSR1 to the script: the run stops with a
 * checkpoint and the task is queued again.  A node that fails queues its tasks again by itself
 * (--requeue). */
static const char rule[] =
    "again=\n"
    "end() { kill -TERM \"$worker\" 2>/dev/null; }\n"
    "trap 'again=1; end' USR1\n"
    "trap end TERM\n"
    "worker_command &\n"
    "worker=$!\n"
    "wait \"$worker\"; status=$?\n"
    "while kill -0 \"$worker\" 2>/dev/null; do wait \"$worker\"; status=$?; done\n"
    "# Out of time: queued again.  A run that failed is not: submit the script again to retry it.\n"
    "if [ \"$again\" ] && [ \"$status\" -ne 0 ]; then\n"
    "    scontrol requeue \"${SLURM_ARRAY_JOB_ID}_${SLURM_ARRAY_TASK_ID}\"\n"
    "fi\n"
    "exit \"$status\"\n";

static int make_script(struct str *out, const struct batch_plan *p, const struct batch_share *s,
                       const struct str *indices, struct err *e)
{
    struct str line = {0};
    char folder[PATH_MAX];
    int rc = batch_worker_line(&line, p, s->file.id, e);
    if (rc == 0 && !realpath(s->folder, folder))
        rc = err_errno(e, "%s", s->folder);
    str_add(out, "#!/bin/sh\n");
    str_addf(out, "#SBATCH --job-name=depthscope-%s\n#SBATCH --array=%s", p->kind,
             str_text(indices));
    if (p->how.jobs > 0)
        str_addf(out, "%%%d", p->how.jobs);
    str_addf(out,
             "\n#SBATCH --requeue\n#SBATCH --open-mode=append\n#SBATCH --signal=B:USR1@120\n"
             "#SBATCH --output=\"%s/slurm-%%A_%%a.out\"\n",
             rc == 0 ? folder : "");
    add_sbatch(out, p->how.sbatch);
    str_addf(out,
             "\n# One run of the batch %s a task; written by depthscope %s --slurm.\n"
             "worker_command() {\n    %s --index \"$SLURM_ARRAY_TASK_ID\"\n}\n\n%s",
             s->name, p->kind, str_text(&line), rule);
    if (rc == 0 && (out->failed || line.failed || indices->failed))
        rc = err_set(e, DS_EMEM, "%s: out of memory", p->kind);
    str_release(&line);
    return rc;
}

int batch_slurm(struct batch_plan *p, const struct batch_share *s, const struct batch_unit *unit,
                size_t n, struct err *e)
{
    struct str script = {0}, indices = {0}, out = {0};
    char path[1200];
    size_t left = add_indices(&indices, unit, n);
    int rc = fs_join(path, sizeof path, s->folder, "slurm.sh", e);
    if (rc == 0 && left == 0)
        rc = err_set(e, DS_EEXIST,
                     "%s: all runs are done; the command without --slurm prints the "
                     "results",
                     p->kind);
    if (rc == 0)
        rc = make_script(&script, p, s, &indices, e);
    if (rc == 0)
        rc = fs_write_text(path, &script, e);
    if (rc == 0) {
        str_addf(&out,
                 "%zu run%s: %s\nsubmit with: sbatch %s\nthen: the same command with --status, and "
                 "without options for the results\n",
                 left, left == 1 ? "" : "s", path, path);
        rc = cli_write_text(&out, e);
    }
    str_release(&script);
    str_release(&indices);
    str_release(&out);
    return rc;
}
