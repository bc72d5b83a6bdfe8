/* Starts the workbench on runs, traces, models, or a stream on stdin. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "cli/cli.h"
#include "io/host.h"
#include "io/runindex.h"
#include "training/job.h"
#include "training/options.h"
#include "tui/app.h"

static struct cli_option workbench_cli[] = {
    {"quick", 0, NULL, 0, "watch the live quick run, or start one: elastic depth, embedded corpus"},
    {"view", 1, NULL, 0, NULL}, /* workbench_options writes its help */
    {"text", 1, NULL, 0, "TEXT  with --view compare and two models: run both on this text"},
    {"theme", 1, NULL, 0, "NAME  dark, light, high-contrast, colour-blind, 16-colour, or a file"},
    {"color", 1, NULL, 0, "WHICH  auto, never, 16, 256, truecolor"},
    {"glyphs", 1, NULL, 0, "WHICH  auto, braille, shades, ascii"},
    {"term", 1, NULL, 0, "NAME  terminal type instead of $TERM"},
    {"link", 1, NULL, 0, "RATE  limit in bytes per second for a slow connection, e.g. 20k"},
    {"no-mouse", 0, NULL, 0, "leave the mouse to the terminal"},
    {"hosts", 1, NULL, 0, "FILE  further hosts, one HOST:ROOT in a line"},
    {"readonly", 0, NULL, 0, "disable keys that change or stop a run"},
    {"script", 1, NULL, 0, "FILE  read keys from a file instead of the terminal"},
    {"dump", 1, NULL, 0, "FILE  with --script: write screens to FILE"},
    {"size", 1, NULL, 0, "COLUMNSxROWS  with --script"},
    {NULL, 0, NULL, 0, NULL},
};

const struct cli_option *workbench_options(void)
{
    static char views[256];
    struct str text = str_in(views, sizeof views);
    str_add(&text, "NAME  first view: ");
    tui_list_views(&text);
    for (struct cli_option *o = workbench_cli; o->name; o++)
        o->help = strcmp(o->name, "view") == 0 ? views : o->help;
    return workbench_cli;
}

/* A path, or the name of a run. */
static int resolve(const char *given, char *out, size_t size, struct err *e)
{
    char hint[256];
    struct str shown = {0};
    int rc = cli_run_path(out, size, given, e);
    if (rc != DS_ENOTFOUND)
        return rc;
    utf8_sanitise(&shown, given, strlen(given), 200, 0);
    rc = err_set(e, DS_EUSAGE,
                 "unknown command, run, trace or model '%s'%s "
                 "(depthscope help)",
                 str_text(&shown), cli_run_hint(given, 1, hint, sizeof hint));
    str_release(&shown);
    return rc;
}

/* Finds the newest live run of the preset; 0 when there is none. */
static int find_live_quick(char *path, size_t size, struct str *notice)
{
    struct runindex x = {0};
    size_t i = 0;
    if (runindex_refresh(&x, job_root(), NULL) < 0)
        return 0;
    while (i < x.n && !(x.row[i]->is_live && strcmp(x.row[i]->preset, "quick") == 0))
        i++;
    int is_found = i < x.n && str_copy(path, size, x.row[i]->path) == 0;
    if (is_found)
        str_addf(notice,
                 "%s is already training, so no new run was started; a on Home starts one, "
                 ":stop ends this one",
                 x.row[i]->name);
    runindex_release(&x);
    return is_found;
}

static int start_quick(char *path, size_t size, struct str *notice, struct err *e)
{
    static const char *const args[] = {"quick"};
    struct job_launch l;
    enum launch_state state = LAUNCH_STARTING;
    char words[400], config[1100];
    if (find_live_quick(path, size, notice))
        return 0;
    int rc = job_launch(&l, args, 1, e);
    if (rc == 0)
        rc = fs_join(config, sizeof config, l.dir, "config.yaml", e);
    /* report an immediate failure here instead of on an otherwise empty screen */
    for (double end = clock_mono() + 2;
         rc == 0 && state == LAUNCH_STARTING && clock_mono() < end;) {
        state = job_launch_state(&l, words, sizeof words);
        if (state == LAUNCH_STARTING && fs_exists(config))
            break;
        clock_sleep(0.02);
    }
    job_launch_release(&l);
    if (rc == 0 && state == LAUNCH_FAILED)
        rc = err_set(e, DS_EIO, "%s", words);
    if (rc == 0 && str_copy(path, size, l.dir))
        rc = err_set(e, DS_ERANGE, "%s: the path is too long", l.dir);
    return rc < 0 ? err_add(e, rc, "quick run") : 0;
}

/* A folder that is no run or model itself, with runs in or below it. */
static int is_folder_of_runs(const char *path)
{
    struct runindex x = {0};
    if (strcmp(path, "-") == 0 || !fs_is_dir(path) || job_is_run_or_model(path))
        return 0;
    int is_some = runindex_refresh(&x, path, NULL) == 0 && x.n > 0;
    runindex_release(&x);
    return is_some;
}

/* Hosts of a file, one in a line; "#" begins a comment.  Their names lie in *text. */
static int read_hosts(const char *path, struct str *text, const char **host, size_t *n, size_t most,
                      struct err *e)
{
    char *save = NULL;
    int rc = fs_read_file(text, path, 64 << 10, e);
    for (char *line = rc == 0 ? strtok_r(text->p, "\n", &save) : NULL; line && rc == 0;
         line = strtok_r(NULL, "\n", &save)) {
        line[strcspn(line, "#\r")] = '\0';
        line += strspn(line, " \t");
        for (size_t end = strlen(line); end > 0 && strchr(" \t", line[end - 1]);)
            line[--end] = '\0';
        if (!line[0])
            continue;
        if (*n == most)
            rc = err_set(e, DS_ERANGE, "%s: more than %zu hosts", path, most);
        else if (!host_is_target(line))
            rc = err_set(e, DS_EFORMAT, "%s: \"%.80s\": expected HOST:ROOT", path, line);
        else
            host[(*n)++] = line;
    }
    return rc;
}

static int open_workbench(const struct cli_args *a, struct err *e)
{
    enum { PATHS_MAX = 64 };
    static char path[PATHS_MAX][1024];
    const char *paths[PATHS_MAX], *folders[PATHS_MAX], *hosts[PATHS_MAX + HOSTS_MAX];
    size_t n = 0, n_folders = 0, n_hosts = 0;
    struct str notice = {0};
    struct tui_options o = {
        .color = cli_value(a, "color"),
        .glyphs = cli_value(a, "glyphs"),
        .theme = cli_value(a, "theme"),
        .term = cli_value(a, "term"),
        .view = cli_value(a, "view"),
        .text = cli_value(a, "text"),
        .script = cli_value(a, "script"),
        .dump = cli_value(a, "dump"),
        .size = cli_value(a, "size"),
        .no_mouse = cli_flag(a, "no-mouse"),
        .readonly = cli_flag(a, "readonly"),
        .paths = paths,
    };
    if (cli_value(a, "link") && (o.link_bytes_s = tui_parse_bandwidth(cli_value(a, "link"))) < 0)
        return err_set(e, DS_EUSAGE, "--link %s: expected bytes per second, e.g. 20k",
                       cli_value(a, "link"));
    if (a->n_rest > PATHS_MAX)
        return err_set(e, DS_EUSAGE, "too many runs, must be at most %d", PATHS_MAX);
    if (o.text && (a->n_rest != 2 || !o.view || strcmp(o.view, "compare") != 0))
        return err_set(e, DS_EUSAGE,
                       "--text: expected --view compare and two runs, checkpoints or models");
    struct str listed = {0};
    int rc = 0;
    if (cli_value(a, "hosts"))
        rc = read_hosts(cli_value(a, "hosts"), &listed, hosts, &n_hosts, HOSTS_MAX, e);
    for (int i = 0; i < a->n_rest && rc == 0; i++) {
        if (host_is_target(a->rest[i])) {
            hosts[n_hosts++] = a->rest[i];
            continue;
        }
        rc = resolve(a->rest[i], path[i], sizeof path[i], e);
        if (rc == 0 && is_folder_of_runs(path[i]))
            folders[n_folders++] = path[i];
        else
            paths[n++] = path[i];
    }
    if (rc == 0 && n_hosts > 0 && o.script)
        rc = err_set(e, DS_EUSAGE, "%s: hosts are unsupported with --script", hosts[0]);
    if (rc == 0 && a->n_override > 0)
        rc = err_set(e, DS_EUSAGE, "%s: unexpected setting for the workbench (depthscope train %s)",
                     a->override[0], a->override[0]);
    if (rc == 0 && cli_flag(a, "quick") && !isatty(1) && !o.script)
        rc = err_set(e, DS_EUSAGE,
                     "--quick: standard output is not a terminal; without one: depthscope train "
                     "quick");
    if (rc == 0 && cli_flag(a, "quick") && a->n_rest < PATHS_MAX) {
        rc = start_quick(path[a->n_rest], sizeof path[0], &notice, e);
        paths[n++] = path[a->n_rest];
        if (!o.view)
            o.view = "depth";
    }
    o.n = n;
    o.folders = folders;
    o.n_folders = n_folders;
    o.hosts = hosts;
    o.n_hosts = n_hosts;
    o.notice = notice.len ? str_text(&notice) : NULL;
    if (rc == 0)
        rc = tui_run(&o, e);
    str_release(&notice);
    str_release(&listed);
    return rc;
}

int workbench_command(int argc, char **argv)
{
    struct cli_args a = {0};
    struct err e = {0};
    char data[1024];
    workbench_options(); /* its help is complete */
    if (cli_parse(&a, workbench_cli, argc, argv, &e) < 0)
        return command_fail(&e);
    if (cli_data_dir(data, sizeof data, "data", NULL) == 0)
        train_config_preset_dir(data);
    int rc = open_workbench(&a, &e);
    cli_release(&a);
    return rc < 0 ? command_fail(&e) : 0;
}
