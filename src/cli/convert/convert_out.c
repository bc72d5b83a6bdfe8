/* Checks where a conversion may write: existing files only with --force, files of the source
 * never. */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fs.h"
#include "cli/convert/convert_job.h"
#include "models/peft.h"

static int same_file(const char *a, const char *b)
{
    struct stat x, y;
    return fs_stat(a, &x) == 0 && fs_stat(b, &y) == 0 && x.st_dev == y.st_dev &&
           x.st_ino == y.st_ino;
}

static int is_empty_dir(const char *path)
{
    char **names = NULL;
    size_t n = 1;
    if (!fs_is_dir(path) || fs_list(path, &names, &n, NULL) < 0)
        return 0;
    fs_list_free(names, n);
    return n == 0;
}

/* Names of weights, configuration and vocabulary files in a model directory.  A tokenizer.bin may
 * come from an earlier conversion, so it is checked separately. */
static int is_model_name(const char *name)
{
    static const char *const ends[] = {".safetensors", ".json",  ".model", ".tiktoken", ".pt",
                                       ".pth",         ".jinja", ".mp",    "merges.txt"};
    size_t n = strlen(name);
    if (strncmp(name, "pytorch_model", 13) == 0)
        return 1;
    for (size_t i = 0; i < DS_LEN(ends); i++)
        if (n >= strlen(ends[i]) && strcmp(name + n - strlen(ends[i]), ends[i]) == 0)
            return 1;
    return 0;
}

/* 1 when `path` is the model file `of`, or part of the model in the directory `of`. */
static int is_part(const char *of, const char *path)
{
    char **names = NULL, full[1200];
    size_t n = 0;
    int found = 0;
    if (!fs_is_dir(of))
        return same_file(of, path);
    if (fs_list(of, &names, &n, NULL) < 0)
        return 0;
    for (size_t i = 0; i < n && !found; i++)
        found = is_model_name(names[i]) && fs_join(full, sizeof full, of, names[i], NULL) == 0 &&
                same_file(full, path);
    fs_list_free(names, n);
    return found;
}

static int is_tokenizer_of(const char *model, const char *path)
{
    char own[4200];
    return tokenizer_find(own, sizeof own, model, NULL) == 0 && same_file(own, path);
}

int convert_has_tokenizer_at(const struct convert_job *j, const char *path)
{
    const char *given = j->o.tokenizer;
    if (given[0])
        return strcmp(given, "bytes") != 0 &&
               (same_file(given, path) || (fs_is_dir(given) && is_tokenizer_of(given, path)));
    return j->from.dir[0] && is_tokenizer_of(j->from.dir, path);
}

int convert_is_source(const struct convert_job *j, const char *path)
{
    char base[1024];
    const char *from = j->from.dir;
    if (convert_has_tokenizer_at(j, path))
        return 1;
    if (!from[0])
        return 0;
    if (is_part(from, path) || is_tokenizer_of(from, path))
        return 1;
    return model_base(from, base, sizeof base, NULL) == 1 &&
           (is_part(base, path) || is_tokenizer_of(base, path));
}

/* The final rename of a directory would fail on a symbolic link or ".", after everything was
 * written. */
static int check_directory(const struct convert_job *j, struct err *e)
{
    struct stat st;
    const char *slash = strrchr(j->out, '/'), *name = slash ? slash + 1 : j->out;
    if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0 || !name[0])
        return err_set(e, DS_EUSAGE, "%s: cannot be renamed; use -o to name a new directory",
                       j->out);
    if (fs_lstat(j->out, &st) == 0 && S_ISLNK(st.st_mode))
        return err_set(e, DS_EEXIST, "%s is a symbolic link; use -o to name a new directory",
                       j->out);
    if (fs_exists(j->out) && !is_empty_dir(j->out))
        return err_set(e, DS_EEXIST, "%s exists; use -o to name a new directory", j->out);
    return 0;
}

int convert_check_out(const struct convert_job *j, struct err *e)
{
    struct stat st;
    const char *slash = strrchr(j->out, '/');
    if (j->o.to == CONVERT_LLAMA2C && strcmp(slash ? slash + 1 : j->out, "tokenizer.bin") == 0)
        return err_set(e, DS_EUSAGE, "%s: reserved for the vocabulary; use another name with -o",
                       j->out);
    if (j->from.dir[0] && same_file(j->out, j->from.dir))
        return err_set(e, DS_EUSAGE, "%s is the source model; use another path with -o", j->out);
    if (fs_exists(j->out) && convert_is_source(j, j->out))
        return err_set(e, DS_EUSAGE, "%s belongs to the source model; use another path with -o",
                       j->out);
    if (j->o.to == CONVERT_HF)
        return check_directory(j, e);
    if (fs_stat(j->out, &st) < 0)
        return 0;
    if (S_ISDIR(st.st_mode))
        return err_set(e, DS_EEXIST, "%s is a directory; use -o to name a file", j->out);
    if (!S_ISREG(st.st_mode))
        return err_set(e, DS_EEXIST, "%s: not a regular file; use another path with -o", j->out);
    return j->force ? 0 : err_set(e, DS_EEXIST, "%s exists; use --force to replace it", j->out);
}
