/* Runs seen from outside: no tensors, only processes, files and a socket. */
#include "training/job.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fs.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/process.h"
#include "io/runlog.h"
#include "training/options.h"
#include "training/socket.h"

const char *job_root(void)
{
    const char *root = getenv("DEPTHSCOPE_RUNS");
    return root && root[0] ? root : "runs";
}

/* mkdir is the reservation: two starts in one second get two names. */
static int reserve(const char *stem, char *name, size_t size, char *dir, size_t dir_size,
                   struct err *e)
{
    int rc = fs_mkdirs(job_root(), e);
    for (int i = 1; rc == 0 && i < 100000; i++) {
        snprintf(name, size, "%s-%d", stem, i);
        if (!fs_name_ok(name))
            return err_set(e, DS_EUSAGE, "%s cannot be a run's name", name);
        rc = fs_join(dir, dir_size, job_root(), name, e);
        if (rc == 0 && mkdir(dir, 0755) == 0)
            return 0;
        if (rc == 0 && errno != EEXIST)
            return err_errno(e, "%s", dir);
    }
    return rc < 0 ? rc : err_set(e, DS_EEXIST, "%s: no free name for a run", stem);
}

/* In the grandchild: no terminal, output to the run's file. Only async-signal-safe calls. */
static void become_run(const char *program, char *const argv[], int out)
{
    int null = open("/dev/null", O_RDONLY);
    if (null >= 0)
        dup2(null, 0);
    dup2(out, 1);
    dup2(out, 2);
    for (int fd = 3; fd < 256; fd++)
        close(fd);
    execv("/proc/self/exe", argv);
    execvp(program, argv); /* no /proc */
    _exit(127);
}

static int spawn(char *const argv[], int out, struct err *e)
{
    char program[1024];
    if (!process_path(
            program, sizeof program)) /* deleted while it runs: its link in /proc still starts it */
        str_copy(program, sizeof program, argv[0]);
    pid_t pid = fork();
    if (pid < 0)
        return err_errno(e, "fork");
    if (pid == 0) {
        setsid(); /* before anyone is told that the run is there: what ends our group does not end it */
        pid_t inner = fork(); /* the run is nobody's child: no zombie, no SIGCHLD */
        if (inner == 0)
            become_run(program, argv, out);
        _exit(inner < 0);
    }
    int status = 0;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    return WIFEXITED(status) && WEXITSTATUS(status) == 0
               ? 0
               : err_set(e, DS_EIO, "the run could not be started");
}

static const char *stem_of(const char *const *args, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (args[i][0] != '-' && !strchr(args[i], '=') && fs_name_ok(args[i]) &&
            strlen(args[i]) < 48)
            return args[i];
    return "quick";
}

int job_start(const char *const *args, size_t n, char *name, size_t size, struct err *e)
{
    char dir[1024], path[1100];
    char **argv = mem_alloc(n + 6, sizeof *argv);
    int out = -1, rc = argv ? reserve(stem_of(args, n), name, size, dir, sizeof dir, e)
                            : err_set(e, DS_EMEM, "start");
    if (rc < 0)
        goto done;
    size_t k = 0;
    static char program[] = "depthscope", train[] = "train", run[] = "--run", quiet[] = "--quiet";
    argv[k++] = program;
    argv[k++] = train;
    for (size_t i = 0; i < n; i++)
        if ((argv[k++] = mem_strdup(args[i])) == NULL)
            rc = err_set(e, DS_EMEM, "start");
    argv[k++] = run;
    argv[k++] = name;
    argv[k++] = quiet;
    /* the stream is there from the first moment, so that a viewer can follow it before the run writes */
    if (rc == 0)
        rc = fs_join(path, sizeof path, dir, "log.mp", e);
    if (rc == 0)
        rc = fs_open_write(&out, path, O_CREAT, e);
    if (out >= 0)
        close(out);
    out = -1;
    if (rc == 0)
        rc = fs_join(path, sizeof path, dir, "train.out", e);
    if (rc == 0)
        rc = fs_open_write(&out, path, O_CREAT | O_TRUNC, e);
    if (rc == 0)
        rc = spawn(argv, out, e);
    for (size_t i = 0; i < n; i++)
        mem_free(argv[2 + i]);
done:
    if (out >= 0)
        close(out);
    mem_free(argv);
    return rc;
}

static void read_meta(const char *dir, struct job_info *info)
{
    char path[1100];
    struct json *j = NULL;
    if (fs_join(path, sizeof path, dir, "meta.json", NULL) < 0 ||
        json_read_file(&j, path, 1 << 20, NULL) < 0)
        return;
    const char *preset = json_str(json_get(json_root(j), "preset"), NULL);
    str_copy(info->preset, sizeof info->preset, preset ? preset : "");
    json_free(j);
}

static void read_method(const char *dir, struct job_info *info)
{
    char path[1100];
    struct config c = {0};
    if (fs_join(path, sizeof path, dir, "config.yaml", NULL) == 0 && fs_exists(path) &&
        config_read_yaml(&c, path, NULL) == 0) {
        const char *method = config_get(&c, "model.method");
        str_copy(info->method, sizeof info->method, method ? method : "");
    }
    config_release(&c);
}

static int describe(const char *root, const char *name, struct job_info *info)
{
    char log[1100];
    struct stat st;
    memset(info, 0, sizeof *info);
    if (fs_join(info->path, sizeof info->path, root, name, NULL) < 0 || !fs_is_dir(info->path) ||
        fs_join(log, sizeof log, info->path, "log.mp", NULL) < 0)
        return 0;
    int has_log = stat(log, &st) == 0 && S_ISREG(st.st_mode);
    char config[1100];
    if (!has_log && (fs_join(config, sizeof config, info->path, "config.yaml", NULL) < 0 ||
                     stat(config, &st) != 0))
        return 0;
    str_copy(info->name, sizeof info->name, name);
    info->modified = (double)st.st_mtime;
    info->is_live = has_log && runlog_is_locked(log);
    read_meta(info->path, info);
    read_method(info->path, info);
    return 1;
}

static int by_age(const void *a, const void *b)
{
    const struct job_info *x = a, *y = b;
    if (x->is_live != y->is_live)
        return y->is_live - x->is_live;
    return x->modified != y->modified ? (x->modified < y->modified) - (x->modified > y->modified)
                                      : strcmp(x->name, y->name);
}

int job_list(const char *root, struct job_info **jobs, size_t *n, struct err *e)
{
    char **names = NULL;
    size_t count = 0, k = 0;
    *jobs = NULL;
    *n = 0;
    if (!fs_is_dir(root))
        return 0; /* nothing has run yet */
    int rc = fs_list(root, &names, &count, e);
    if (rc < 0)
        return rc;
    struct job_info *list = mem_alloc(count, sizeof *list);
    if (!list)
        rc = err_set(e, DS_EMEM, "runs below %s", root);
    for (size_t i = 0; rc == 0 && i < count; i++)
        k += (size_t)describe(root, names[i], &list[k]);
    fs_list_free(names, count);
    if (rc < 0)
        return rc;
    qsort(list, k, sizeof *list, by_age);
    *jobs = list;
    *n = k;
    return 0;
}

static int talk(int fd, const char *command, double timeout_s, struct str *answer, struct err *e)
{
    char buf[600];
    double end = clock_mono() + timeout_s;
    int n = snprintf(buf, sizeof buf, "%s\n", command);
    if (n < 0 || (size_t)n >= sizeof buf || memchr(command, '\n', strlen(command)))
        return err_set(e, DS_EUSAGE, "a command is one short line");
    if (send(fd, buf, (size_t)n, MSG_NOSIGNAL) != n)
        return err_errno(e, "send");
    for (;;) {
        double left = end - clock_mono();
        struct pollfd p = {.fd = fd, .events = POLLIN};
        if (left <= 0 || poll(&p, 1, (int)(left * 1000) + 1) == 0)
            return err_set(e, DS_EBUSY, "no answer within %g s: the run is busy or stopped",
                           timeout_s);
        ssize_t got = recv(fd, buf, sizeof buf, 0);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return err_set(e, DS_EIO, "the run closed the connection");
        str_add_bytes(answer, buf, (size_t)got);
        char *line_end = memchr(answer->p, '\n', answer->len);
        if (!line_end)
            continue;
        answer->len = (size_t)(line_end - answer->p);
        *line_end = '\0';
        return 0;
    }
}

int job_command(const char *run_dir, const char *command, double timeout_s, struct str *answer,
                struct err *e)
{
    struct sockaddr_un addr;
    int holder = -1, fd = -1;
    str_reset(answer);
    int rc = socket_address(&addr, run_dir, "control.sock", &holder, e);
    if (rc == 0 && (fd = socket(AF_UNIX, SOCK_STREAM, 0)) < 0)
        rc = err_errno(e, "socket");
    if (rc == 0 && connect(fd, (struct sockaddr *)&addr, sizeof addr) < 0)
        rc = err_set(e, DS_ENOTFOUND, "%s: no process is training there", run_dir);
    if (rc == 0)
        rc = talk(fd, command, timeout_s, answer, e);
    if (fd >= 0)
        close(fd);
    if (holder >= 0)
        close(holder);
    return rc;
}

enum { KEYS_MAX = 400, PRESETS_MAX = 16 };
static struct job_key keys[KEYS_MAX];
static size_t n_keys;

static void add_keys(const struct opt_group *g)
{
    for (size_t i = 0; i < g->n && n_keys < KEYS_MAX; i++) {
        char full[128];
        snprintf(full, sizeof full, "%s%s", g->prefix, g->opts[i].key);
        char *key = mem_strdup(full);
        if (key) /* kept for the life of the process */
            keys[n_keys++] =
                (struct job_key){key, g->opts[i].otherwise, g->opts[i].help, g->opts[i].choices};
    }
}

const struct job_key *job_keys(size_t *n)
{
    if (n_keys == 0) {
        add_keys(&model_group);
        for (const struct route_ops *const *m = route_all(); *m; m++) {
            char prefix[40];
            struct opt_group g = route_group(*m, prefix);
            add_keys(&g);
        }
        add_keys(&data_group);
        add_keys(&train_group);
        add_keys(&run_group);
    }
    *n = n_keys;
    return keys;
}

int job_presets(char ***names, size_t *n, struct err *e)
{
    return preset_names(names, n, e);
}

struct values {
    char **value;
    size_t n;
};

static void take_value(void *ctx, const char *key, const char *value)
{
    struct values *v = ctx;
    for (size_t i = 0; i < v->n; i++)
        if (!v->value[i] && strcmp(keys[i].key, key) == 0)
            v->value[i] = mem_strdup(value);
}

size_t job_cut_words(char *text, const char **word, size_t max)
{
    size_t n = 0;
    for (char *p = text + strspn(text, " "); *p && n < max; p += strspn(p, " ")) {
        word[n++] = p;
        p += strcspn(p, " ");
        if (*p)
            *p++ = '\0';
    }
    return n;
}

int job_preset_values(const char *presets, char **value, size_t n, struct err *e)
{
    struct train_config c;
    const char *word[PRESETS_MAX];
    char *text = mem_strdup(presets);
    size_t all;
    (void)job_keys(&all);
    struct values v = {value, n < all ? n : all};
    for (size_t i = 0; i < n; i++)
        value[i] = NULL;
    int rc = text ? train_config_look(&c, word, job_cut_words(text, word, PRESETS_MAX), e)
                  : err_set(e, DS_EMEM, "presets");
    mem_free(text);
    if (rc < 0)
        return rc;
    train_config_each(&c, take_value, &v);
    train_config_release(&c);
    return 0;
}
