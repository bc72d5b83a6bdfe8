/* A mapped file that is truncated or replaced while being read: a clean exit with a message, from any thread, and no other effect. */
#include "kit.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/guard.h"
#include "base/pool.h"
#include "io/safetensors.h"
#include "models/load.h"

enum { PAGES = 64, PAGE = 4096, SIZE = PAGES * PAGE };

static char path[1000];

static const char *put(const char *name, const void *p, size_t n)
{
    struct err e = {0};
    snprintf(path, sizeof path, "%s/%s", t_tmpdir(), name);
    t_ok(fs_write_file(path, p, n, &e), &e);
    return path;
}

/* Runs fn in its own process; its stderr goes to text.  Returns the status of waitpid. */
static int watch(void (*fn)(const char *file), const char *file, char text[1000])
{
    int ends[2], status = 0;
    size_t n = 0;
    t_true(pipe(ends) == 0);
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        dup2(ends[1], STDERR_FILENO);
        close(ends[0]);
        close(ends[1]);
        alarm(50);
        fn(file);
        _exit(7);
    }
    close(ends[1]);
    for (ssize_t k; n < 999 && (k = read(ends[0], text + n, 999 - n)) > 0; n += (size_t)k)
        ;
    text[n] = '\0';
    close(ends[0]);
    t_true(waitpid(child, &status, 0) == child);
    return status;
}

static void ends_with_one_line(void (*fn)(const char *file), const char *file, const char *part)
{
    char text[1000];
    int status = watch(fn, file, text);
    t_truef(WIFEXITED(status) && WEXITSTATUS(status) == 1, "status %x: %s", (unsigned)status, text);
    t_truef(strstr(text, part) && strstr(text, file), "%s", text);
    t_truef(strncmp(text, "depthscope: ", 12) == 0 && strchr(text, '\n') == text + strlen(text) - 1,
            "not one line: %s", text);
}

static volatile unsigned sum;

static void read_map(void *ctx, int task, int worker)
{
    const struct fs_map *m = ctx;
    (void)worker;
    for (int i = 0; i < PAGES; i++)
        sum += m->p[(task + i) % PAGES * PAGE];
}

static void map_of(struct fs_map *m, const char *file)
{
    if (fs_map_open(m, file, NULL) < 0)
        _exit(8);
}

static void cut_and_read(const char *file)
{
    struct fs_map m;
    map_of(&m, file);
    read_map(&m, 0, 0);
    if (truncate(file, 3 * PAGE) == 0)
        read_map(&m, 0, 0);
}

static void cut_and_copy(const char *file)
{
    static char copy[SIZE];
    struct fs_map m;
    map_of(&m, file);
    fs_map_copy(copy, m.p, SIZE);
    if (truncate(file, 3 * PAGE) == 0)
        fs_map_copy(copy, m.p, SIZE);
}

T(a_file_truncated_under_its_mapping_exits_with_one_line)
{
    static char zeros[SIZE];
    ends_with_one_line(cut_and_read, put("cut", zeros, SIZE),
                       "changed while it was read (was 262144 bytes, is 12288)\n");
    ends_with_one_line(cut_and_copy, put("copied", zeros, SIZE),
                       "changed while it was read (was 262144 bytes, is 12288)\n");
}

static void cut_and_read_in_threads(const char *file)
{
    struct fs_map m;
    map_of(&m, file);
    if (pool_start(4, NULL) == 0 && truncate(file, 0) == 0)
        pool_run(400, read_map, &m);
}

T(any_thread_reports_it_and_only_once)
{
    static char zeros[SIZE];
    for (int i = 0; i < 20; i++)
        ends_with_one_line(cut_and_read_in_threads, put("cut", zeros, SIZE),
                           "(was 262144 bytes, is 0)\n");
}

static void give_back(void)
{
    ssize_t n = write(STDERR_FILENO, "depthscope: given back, ", 24);
    (void)n;
}

static void on_crash(int signo)
{
    give_back();
    signal(signo, SIG_DFL);
    raise(signo);
}

/* As in the workbench: its own handler over the guard, which is called after it. */
static void with_a_terminal(const char *file)
{
    struct fs_map m;
    map_of(&m, file);
    signal(SIGBUS, on_crash);
    guard_renew();
    bug_set_restore(give_back);
    if (truncate(file, 0) == 0)
        read_map(&m, 0, 0);
}

T(the_terminal_is_restored_first)
{
    static char zeros[SIZE];
    char text[1000];
    const char *file = put("cut", zeros, SIZE);
    int status = watch(with_a_terminal, file, text);
    t_true(WIFEXITED(status) && WEXITSTATUS(status) == 1);
    t_truef(strncmp(text, "depthscope: given back, depthscope: /", 37) == 0, "%s", text);
}

/* Not through fs_map_open, so not guarded. */
static void elsewhere(const char *file)
{
    static char other[600];
    struct fs_map m;
    map_of(&m, file);
    snprintf(other, sizeof other, "%s.other", file);
    int fd = open(other, O_RDWR | O_CREAT, 0600);
    if (fd < 0 || ftruncate(fd, PAGE) != 0)
        _exit(9);
    const volatile char *p = mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, fd, 0);
    if (ftruncate(fd, 0) == 0)
        sum += (unsigned)p[0];
}

static void elsewhere_with_a_handler(const char *file)
{
    struct fs_map m;
    signal(SIGBUS, on_crash);
    map_of(&m, file);
    elsewhere(file);
}

#ifndef DS_HAS_ASAN
static void after_closing(const char *file)
{
    struct fs_map m, copy;
    map_of(&m, file);
    copy = m;
    fs_map_close(&m);
    if (mmap((void *)(uintptr_t)copy.p, copy.n, PROT_READ, MAP_PRIVATE | MAP_FIXED,
             open(file, O_RDONLY), 0) == MAP_FAILED)
        _exit(9);
    if (truncate(file, 0) == 0)
        read_map(&copy, 0, 0);
}
#endif

T(faults_elsewhere_go_to_the_previous_handler)
{
    static char zeros[SIZE];
    char text[1000];
    const char *file = put("whole", zeros, SIZE);
    int status = watch(elsewhere, file, text);
#ifndef DS_HAS_ASAN /* which has a handler of its own */
    t_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGBUS && !text[0]);
    status = watch(after_closing, file, text);
    t_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGBUS && !text[0]);
#endif
    status = watch(elsewhere_with_a_handler, file, text);
    t_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGBUS);
    t_str(text, "depthscope: given back, ");
}

/* Control bytes of a path must not reach the terminal; of a long path the end is printed. */
T(paths_are_made_safe_to_print)
{
    static char zeros[SIZE];
    char text[1000], name[120];
    const char *file = put("red\x1b[31m", zeros, SIZE);
    int status = watch(cut_and_read, file, text);
    t_true(WIFEXITED(status) && WEXITSTATUS(status) == 1);
    t_truef(strstr(text, "red?[31m: changed") && !strchr(text, 27), "%s", text);
    snprintf(name, sizeof name, "%0100d", 0);
    t_true(unlink(path) == 0);
    for (int i = 0; i < 4; i++) {
        t_true(mkdir(path, 0700) == 0);
        snprintf(path + strlen(path), sizeof path - strlen(path), "/%s", name);
    }
    t_true(mkdir(path, 0700) == 0);
    snprintf(path + strlen(path), sizeof path - strlen(path), "/last");
    struct err e = {0};
    t_ok(fs_write_file(path, zeros, SIZE, &e), &e);
    status = watch(cut_and_read, path, text);
    t_truef(strstr(text, "/last: changed while it was read (was 262144 bytes, is 12288)\n"), "%s",
            text);
}

T(a_changed_or_replaced_file_is_noticed) /* A16 */
{
    static char zeros[SIZE];
    struct err e = {0};
    struct fs_map m = {0};
    const char *file = put("x", zeros, SIZE);
    t_ok(fs_map_open(&m, file, &e), &e);
    t_ok(fs_map_unchanged(&m, &e), &e);
    t_true(fs_map_is_at(&m, file));
    t_ok(fs_write_file(file, zeros, SIZE, &e), &e);
    t_true(!fs_map_is_at(&m, file));
    fs_map_close(&m);
    t_ok(fs_map_open(&m, file, &e), &e);
    t_true(truncate(file, SIZE + 1) == 0);
    t_fails(fs_map_unchanged(&m, &e), &e, DS_EFORMAT,
            "changed since it was opened (was 262144 bytes, is 262145)");
    fs_map_close(&m);
    t_ok(fs_map_open(&m, file, &e), &e);
    const struct timespec then[2] = {{.tv_sec = 1000}, {.tv_sec = 1000}};
    t_true(utimensat(AT_FDCWD, file, then, 0) == 0);
    t_fails(fs_map_unchanged(&m, &e), &e, DS_EFORMAT, "changed since it was opened");
    fs_map_close(&m);
}

/* ---- models ---- */

static const char options[] = "model.method=dense model.layers=2 model.dim=256 model.heads=4 "
                              "model.ffn=512 model.vocab=300 model.max_seq=32";

/* A directory with a model; path is its weights. */
static const char *model_dir(void)
{
    struct err e = {0};
    static char dir[400];
    struct model *m = kit_model(options, 3, 8, MODEL_INFERENCE, 0);
    snprintf(dir, sizeof dir, "%s", t_tmpdir());
    snprintf(path, sizeof path, "%s/config.json", dir);
    t_ok(model_write_config(m, path, &e), &e);
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    t_ok(model_write_weights(m, path, 0, &e), &e);
    model_free(m);
    return dir;
}

/* Truncated between opening and reading. */
static void cut_between(const char *file)
{
    struct st *s;
    float *w = malloc(300 * 256 * sizeof *w);
    if (pool_start(3, NULL) < 0 || st_open(&s, file, NULL) < 0 || truncate(file, PAGE) != 0 || !w)
        _exit(8);
    const struct st_tensor *t = st_find(s, "model.embed_tokens.weight");
    if (t && st_read_f32(t, w, t->items, NULL) == 0)
        _exit(9);
}

T(weights_truncated_while_being_read)
{
    model_dir();
    ends_with_one_line(cut_between, path, "changed while it was read (was ");
}

/* Truncated between loading and use: whatever is still read from the mapping must be all or nothing. */
static void cut_between_loading_and_use(const char *file)
{
    struct model *m;
    struct kit_batch k;
    struct pass pass = kit_pass(PASS_DENSE);
    char dir[1000];
    snprintf(dir, sizeof dir, "%.*s", (int)(strrchr(file, '/') - file), file);
    if (model_open(&m, dir, NULL, MODEL_INFERENCE, NULL) < 0 ||
        model_reserve(m, 64, 0, 0, NULL) < 0)
        _exit(8);
    if (truncate(file, 0) != 0)
        _exit(9);
    kit_fill(&k, 2, 12, (int)m->config.vocab, 3);
    model_forward(m, &k.b, &pass);
    _exit(0);
}

T(weights_truncated_between_loading_and_use)
{
    char text[1000];
    model_dir();
    int status = watch(cut_between_loading_and_use, path, text);
    t_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == 1)
        t_truef(strstr(text, "model.safetensors: changed while it was read (was "), "%s", text);
    else
        t_truef(WEXITSTATUS(status) == 0 && !text[0], "%d: %s", WEXITSTATUS(status), text);
}

T(saving_over_a_model_s_own_directory_keeps_the_open_file_intact) /* A17 */
{
    struct err e = {0};
    struct st *old = NULL;
    struct model *m = NULL;
    const char *dir = model_dir();
    t_ok(st_open(&old, path, &e), &e);
    t_ok(model_open(&m, dir, NULL, MODEL_INFERENCE, &e), &e);
    t_ok(model_write_weights(m, path, 0, &e), &e);
    t_eq(st_nonfinite(st_find(old, "model.embed_tokens.weight")), 0);
    t_fails(st_unchanged(old, &e), &e, DS_EFORMAT, "changed since it was opened");
    struct st *new = NULL;
    t_ok(st_open(&new, path, &e), &e);
    for (size_t i = 0; i < st_count(old); i++) {
        const struct st_tensor *a = st_at(old, i), *b = st_find(new, a->name);
        t_true(b && a->bytes == b->bytes && memcmp(a->data, b->data, a->bytes) == 0);
    }
    st_close(old);
    st_close(new);
    model_free(m);
}
