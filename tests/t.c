/* The test runner of t.h: a thin layer over Check. */
#include "t.h"

#include <errno.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static struct t_case *cases;
static char tmpdir[256];

void t_register(struct t_case *c)
{
    struct t_case **end = &cases;
    while (*end)
        end = &(*end)->next;
    *end = c;
}

/* A skipped test leaves a line in the file that T_SKIP_FILE names, so the parent can count it. */
void t_skip(const char *fmt, ...)
{
    va_list ap;
    char text[512];
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    const char *path = getenv("T_SKIP_FILE");
    FILE *f = path ? fopen(path, "a") : NULL;
    if (f) {
        fprintf(f, "%s\n", text);
        fclose(f);
    }
    fprintf(stderr, "SKIP %s\n", text);
    exit(EXIT_SUCCESS);
}

int t_runs_under(const char *runner)
{
    const char *ours = getenv("T_RUNNER");
    return ours && strcmp(ours, runner) == 0;
}

void t_skip_if_emulated(const char *why)
{
    const char *runner = getenv("T_RUNNER");
    if (runner && *runner)
        t_skip("under %s %s", runner, why);
}

void t_skip_without_room(size_t bytes)
{
    void *room = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (room == MAP_FAILED)
        t_skip("no address space for a file of %.0f GB", (double)bytes / 1e9);
    munmap(room, bytes);
}

const char *t_shared(const char *path)
{
    static char full[1024];
    const char *root = getenv("DEPTHSCOPE_SHARED");
    snprintf(full, sizeof full, "%s/%s", root ? root : "../shared/data", path);
    if (access(full, R_OK) != 0)
        t_skip("%s is absent", full);
    return full;
}

static void tmpdir_remove(void)
{
    char cmd[600];
    if (!tmpdir[0])
        return;
    snprintf(cmd, sizeof cmd, "chmod -R u+rwX '%s' 2>/dev/null; rm -rf '%s'", tmpdir, tmpdir);
    if (system(cmd) != 0)
        fprintf(stderr, "%s: remove failed\n", tmpdir);
    tmpdir[0] = '\0';
}

const char *t_tmpdir(void)
{
    const char *base = getenv("TMPDIR");
    snprintf(tmpdir, sizeof tmpdir, "%s/ds-test-XXXXXX", base ? base : "/tmp");
    if (!mkdtemp(tmpdir))
        ck_abort_msg("mkdtemp %s: %s", tmpdir, strerror(errno));
    atexit(tmpdir_remove);
    return tmpdir;
}

double t_rel_l2(const double *a, const double *b, size_t n)
{
    double num = 0, den = 0;
    for (size_t i = 0; i < n; i++) {
        num += (a[i] - b[i]) * (a[i] - b[i]);
        den += b[i] * b[i];
    }
    return sqrt(num) / fmax(sqrt(den), 1e-300);
}

static int count_lines(const char *path)
{
    FILE *f = fopen(path, "r");
    int n = 0, c;
    if (!f)
        return 0;
    while ((c = getc(f)) != EOF)
        n += c == '\n';
    fclose(f);
    return n;
}

int main(int argc, char **argv)
{
    const char *name = strrchr(argv[0], '/') ? strrchr(argv[0], '/') + 1 : argv[0];
    const char *only = argc > 1 ? argv[1] : NULL;
    int is_exact = 0;
    for (struct t_case *c = cases; c; c = c->next) {
        is_exact |= only && strcmp(c->name, only) == 0;
        if (only && strcmp(only, "--list") == 0)
            puts(c->name);
    }
    if (only && strcmp(only, "--list") == 0)
        return EXIT_SUCCESS;
    char skips[] = "/tmp/ds-skips-XXXXXX";
    int fd = mkstemp(skips);
    if (fd >= 0)
        close(fd);
    setenv("T_SKIP_FILE", skips, 1);
    Suite *suite = suite_create(name);
    for (struct t_case *c = cases; c; c = c->next) {
        if (only && (is_exact ? strcmp(c->name, only) != 0 : !strstr(c->name, only)))
            continue;
        TCase *tc = tcase_create(c->name);
        const char *slow = getenv("T_SLOW_FACTOR"); /* sanitizers, valgrind */
        const char *patience = getenv("T_PATIENCE");
        tcase_set_timeout(tc, c->seconds * (slow ? atof(slow) : 1.0) *
                                  (patience ? atof(patience) : 1.0));
        tcase_add_test(tc, c->test);
        suite_add_tcase(suite, tc);
    }
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_SILENT);
    int total = srunner_ntests_run(runner), failed = srunner_ntests_failed(runner);
    TestResult **result = srunner_failures(runner);
    for (int i = 0; i < failed; i++)
        printf("FAIL %s: %s:%d: %s: %s\n", name, tr_lfile(result[i]), tr_lno(result[i]),
               tr_tcname(result[i]), tr_msg(result[i]));
    free(result);
    int skipped = count_lines(skips);
    unlink(skips);
    printf("%s: %d passed, %d failed, %d skipped\n", name, total - failed - skipped, failed,
           skipped);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
