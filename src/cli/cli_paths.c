/* Finds the program's own data files, and runs by name. */
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/embedded.h"
#include "base/fs.h"
#include "base/mem.h"
#include "base/nearest.h"
#include "base/process.h"
#include "cli/cli.h"
#include "training/job.h"

/* The directory of the running program; "" when unknown. */
static void program_dir(char *out, size_t size)
{
    if (!process_path(out, size))
        return;
    char *slash = strrchr(out, '/');
    if (slash)
        *slash = '\0';
}

/* A home directory may well have a "data" of the user's next to the program. */
static int is_own(const char *dir)
{
    char preset[1300];
    int n = snprintf(preset, sizeof preset, "%s/quick.yaml", dir);
    return n > 0 && (size_t)n < sizeof preset && fs_exists(preset);
}

int cli_data_dir(char *out, size_t size, const char *what, struct err *e)
{
    /* next to the program; above its build directory (build/KIND); in a relocated installation */
    static const char *const between[] = {"", "/../..", "/../share/depthscope"};
    char dir[1024], path[1200];
    program_dir(dir, sizeof dir);
    for (size_t i = 0; dir[0] && i < DS_LEN(between); i++) {
        int n = snprintf(path, sizeof path, "%s%s/%s", dir, between[i], what);
        if (n > 0 && (size_t)n < sizeof path && is_own(path))
            return str_copy(out, size, path)
                       ? err_set(e, DS_ERANGE, "%s: the path is too long", path)
                       : 0;
    }
    snprintf(path, sizeof path, "%s/%s", DEPTHSCOPE_DATADIR, what);
    if (!is_own(path))
        snprintf(path, sizeof path, EMBEDDED_ROOT "/%s", what);
    if (!is_own(path))
        return err_set(e, DS_ENOTFOUND, "%s/ not found next to the program or at %s/%s", what,
                       DEPTHSCOPE_DATADIR, what);
    return str_copy(out, size, path) ? err_set(e, DS_ERANGE, "%s: the path is too long", path) : 0;
}

/* ---- runs ---- */

/* 1 when the first n bytes of path lead to the runs directory, in any spelling. */
static int is_root(const char *path, size_t n)
{
    const char *root = job_root();
    while (strncmp(path, "./", 2) == 0 && n > 2) {
        path += 2;
        n -= 2;
    }
    while (strncmp(root, "./", 2) == 0)
        root += 2;
    return n == fs_trimmed(root) && memcmp(path, root, n) == 0;
}

int cli_run_name(const char **name, const char *given, struct err *e)
{
    const char *slash = strrchr(given, '/');
    size_t n = slash ? (size_t)(slash - given) : 0;
    if (!slash && fs_name_ok(given)) {
        *name = given;
        return 0;
    }
    if (slash && fs_name_ok(slash + 1) && is_root(given, n)) {
        *name = slash + 1;
        return 0;
    }
    if (slash && fs_name_ok(slash + 1))
        return err_set(
            e, DS_EUSAGE,
            "--run %s: expected a name, not a path; runs are created in %s; to use another place: "
            "DEPTHSCOPE_RUNS=%.*s depthscope train --run %s",
            given, job_root(), n ? (int)n : 1, n ? given : "/", slash + 1);
    return err_set(e, DS_EUSAGE,
                   "--run %s: expected a name of 1 to 64 [A-Za-z0-9._-], not starting with . or -",
                   given);
}

const char *cli_run_hint(const char *word, int commands_too, char *out, size_t size)
{
    char **names = NULL;
    size_t n = 0;
    struct nearest best = nearest_to(word);
    for (const struct command *c = commands; commands_too && c->name; c++)
        nearest_try(&best, c->name);
    if (commands_too) {
        nearest_try(&best, "--help");
        nearest_try(&best, "--version");
    }
    if (fs_is_dir(job_root()) && fs_list(job_root(), &names, &n, NULL) == 0)
        for (size_t i = 0; i < n; i++)
            if (fs_name_ok(names[i]) && strcmp(names[i], word) != 0) /* there, and no run */
                nearest_try(&best, names[i]);
    if (names)
        fs_list_free(names, n);
    return nearest_hint(&best, out, size);
}

int cli_output_check(const char *path, struct err *e)
{
    struct fs_new f = {.fd = -1};
    struct stat st;
    if (fs_stream_fd(path) >= 0)
        return 0;
    if (fs_stat(path, &st) == 0 && !S_ISREG(st.st_mode))
        return S_ISDIR(st.st_mode)
                   ? err_set(e, DS_EEXIST, "%s is a directory, expected a file name", path)
                   : 0;
    int rc = fs_new_open(&f, path, e);
    fs_new_abort(&f);
    return rc;
}

int cli_columns(int none)
{
    struct winsize w;
    return ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_col >= 20 ? w.ws_col : none;
}
