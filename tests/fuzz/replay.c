/* Runs a fuzz target over its committed inputs where libFuzzer is not available: every file of
 * tests/fuzz/corpus/NAME (the program is fuzz_NAME), or the files and directories given, and the
 * empty input.  Each input has a process of its own, so a crash is one failed input. */
#include <dirent.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { INPUT_SECONDS = 30, PATH_SIZE = 1024 };

static const char *program;
static int passed, failed;

/* One input in a child; the parent counts how it ended. */
static void replay(const char *name, const uint8_t *data, size_t size)
{
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        const char *slow = getenv("T_SLOW_FACTOR"), *patience = getenv("T_PATIENCE");
        alarm((unsigned)(INPUT_SECONDS * (slow ? strtod(slow, NULL) : 1.0) *
                         (patience ? strtod(patience, NULL) : 1.0)));
        LLVMFuzzerTestOneInput(data, size);
        exit(EXIT_SUCCESS);
    }
    int status = -1;
    if (child > 0)
        while (waitpid(child, &status, 0) < 0 && errno == EINTR)
            ;
    if (child > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0) {
        passed++;
        return;
    }
    failed++;
    if (child > 0 && WIFSIGNALED(status))
        printf("FAIL %s: %s: signal %d\n", program, name, WTERMSIG(status));
    else
        printf("FAIL %s: %s: status %d\n", program, name, child > 0 ? WEXITSTATUS(status) : -1);
}

static void replay_file(const char *path)
{
    FILE *f = fopen(path, "rb");
    long size = -1;
    uint8_t *data = NULL;
    if (f && fseek(f, 0, SEEK_END) == 0)
        size = ftell(f);
    if (size >= 0)
        data = malloc((size_t)size + 1);
    if (!data || fseek(f, 0, SEEK_SET) != 0 || fread(data, 1, (size_t)size, f) != (size_t)size) {
        printf("FAIL %s: cannot read %s\n", program, path);
        failed++;
    } else {
        /* A block of the exact size, so that the sanitizer detects reads past the end. */
        uint8_t *exact = size ? realloc(data, (size_t)size) : data;
        data = exact ? exact : data;
        replay(path, data, (size_t)size);
    }
    free(data);
    if (f)
        fclose(f);
}

static int visible(const struct dirent *d)
{
    return d->d_name[0] != '.';
}

static void replay_path(const char *path)
{
    struct stat st;
    if (stat(path, &st) == 0 && !S_ISDIR(st.st_mode)) {
        replay_file(path);
        return;
    }
    struct dirent **list = NULL;
    int n = scandir(path, &list, visible, alphasort);
    for (int i = 0; i < n; i++) {
        char full[PATH_SIZE];
        if (snprintf(full, sizeof full, "%s/%s", path, list[i]->d_name) < (int)sizeof full)
            replay_file(full);
        free(list[i]);
    }
    free(list);
}

int main(int argc, char **argv)
{
    const char *slash = strrchr(argv[0], '/');
    program = slash ? slash + 1 : argv[0];
    replay("the empty input", (const uint8_t *)"", 0);
    for (int i = 1; i < argc; i++)
        replay_path(argv[i]);
    if (argc == 1) {
        const char *name = strncmp(program, "fuzz_", 5) == 0 ? program + 5 : program;
        char corpus[PATH_SIZE];
        snprintf(corpus, sizeof corpus, "tests/fuzz/corpus/%s", name);
        replay_path(corpus);
    }
    printf("%s: %d passed, %d failed, 0 skipped\n", program, passed, failed);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
