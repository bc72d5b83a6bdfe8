/* See start.h. */
#include "start.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/config.h"
#include "base/fs.h"
#include "base/mem.h"
#include "cli/cli.h"
#include "io/checkpoint.h"
#include "training/preset.h"

enum { PRESETS_MAX = 16 };

/* Presets are read from the program's own folder. */
static int use_presets(struct err *e)
{
    char dir[1024];
    int rc = cli_data_dir(dir, sizeof dir, "data", e);
    if (rc == 0)
        train_config_preset_dir(dir);
    return rc;
}

void start_presets(char *out, size_t size)
{
    char **name = NULL;
    size_t n = 0, at = 0;
    out[0] = '\0';
    if (use_presets(NULL) < 0 || job_presets(&name, &n, NULL) < 0)
        return;
    for (size_t i = 0; i < n && at + strlen(name[i]) + 2 <= size; i++)
        at += (size_t)snprintf(out + at, size - at, "%s%s", at ? " " : "", name[i]);
    fs_list_free(name, n);
}

static int find_place(const struct starts *s, int64_t id, const char *root, struct err *e)
{
    if (id <= 0 || s->n == STARTS_MAX)
        return err_set(e, DS_EBUSY, "too many runs are starting");
    /* the process of the run finds its folder as this one does */
    return setenv("DEPTHSCOPE_RUNS", root, 1) < 0 ? err_errno(e, "DEPTHSCOPE_RUNS") : 0;
}

/* The words of `depthscope train`, none of which may be one of its options. */
static int take_words(const char **word, size_t *n, char *presets, const struct json_node *settings,
                      struct err *e)
{
    *n = job_split_words(presets, word, PRESETS_MAX);
    for (size_t i = 0; i < *n; i++)
        if (word[i][0] == '-' || override_is(word[i]))
            return err_set(e, DS_EUSAGE, "preset: expected a name, not %.80s", word[i]);
    if (json_len(settings) > START_SETTINGS)
        return err_set(e, DS_ERANGE, "more than %d settings", START_SETTINGS);
    for (size_t i = 0; i < json_len(settings); i++) {
        const char *text = json_str(json_at(settings, i), NULL);
        if (!text || !override_is(text))
            return err_set(e, DS_EUSAGE, "expected KEY=VALUE, not %.80s", text ? text : "that");
        word[(*n)++] = text;
    }
    return 0;
}

int start_new(struct starts *s, int64_t id, const char *root, const struct json_node *request,
              struct err *e)
{
    const char *word[PRESETS_MAX + START_SETTINGS], *name = json_get_text(request, "name");
    char presets[256];
    size_t n = 0;
    int rc = find_place(s, id, root, e);
    if (rc == 0)
        rc = use_presets(e);
    if (rc == 0 && str_copy(presets, sizeof presets, json_get_text(request, "preset")))
        rc = err_set(e, DS_ERANGE, "preset: too long");
    if (rc == 0)
        rc = take_words(word, &n, presets, json_get(request, "settings"), e);
    if (rc == 0)
        rc = job_check(word, n, e);
    if (rc == 0 && name[0])
        rc = job_check_name(name, e);
    if (rc == 0)
        rc = job_launch_named(&s->v[s->n].launch, name, word, n, e);
    if (rc == 0)
        s->v[s->n++].id = id;
    return rc;
}

/* A run that `depthscope train --resume NAME` finds. */
static int check_row(const char *root, const struct run_row *row, struct err *e)
{
    char path[1100];
    struct stat a, b;
    int rc = fs_join(path, sizeof path, root, row->name, e);
    if (rc < 0)
        return rc;
    if (row->format)
        return err_set(e, DS_EUSAGE, "%s: the log of another program (%s); it is only read",
                       row->name, row->format);
    if (!fs_name_ok(row->name) || stat(path, &a) < 0 || stat(row->path, &b) < 0 ||
        a.st_dev != b.st_dev || a.st_ino != b.st_ino)
        return err_set(e, DS_EUSAGE, "%s: not directly in %s; it is only read", row->name, root);
    return row->is_live ? err_set(e, DS_EBUSY, "%s is live already", row->name) : 0;
}

int start_again(struct starts *s, int64_t id, const char *root, const struct run_row *row,
                const char *from, struct err *e)
{
    int rc = find_place(s, id, root, e);
    if (rc == 0)
        rc = check_row(root, row, e);
    if (rc == 0 && strcmp(from, "best") != 0 &&
        (from[strspn(from, "0123456789")] != '\0' || strlen(from) > 18))
        rc = err_set(e, DS_EUSAGE, "expected best or the number of a step, not %.80s", from);
    if (rc == 0)
        rc = job_launch_resume(&s->v[s->n].launch, row->name, from[0] ? from : NULL, e);
    if (rc == 0)
        s->v[s->n++].id = id;
    return rc;
}

int start_checkpoints(struct str *out, const struct run_row *row, struct err *e)
{
    enum { TEXT_MAX = 440 }; /* what an answer may hold */
    char path[1100];
    int64_t *step = NULL;
    size_t n = 0;
    struct json *best = NULL;
    int rc = fs_join(path, sizeof path, row->path, "checkpoints", e);
    if (rc == 0)
        rc = checkpoint_steps(path, &step, &n, e);
    if (rc == 0 && n == 0)
        rc = err_set(e, DS_ENOTFOUND, "%s: no checkpoint to resume from", row->name);
    for (size_t i = 0; rc == 0 && i < n && out->len < TEXT_MAX; i++)
        str_addf(out, "%" PRId64 " ", step[i]);
    if (rc == 0 && fs_join(path, sizeof path, row->path, "best.json", NULL) == 0 &&
        fs_exists(path) && json_read_file(&best, path, 1 << 16, NULL) == 0)
        str_addf(out, "best %" PRId64 " %.4f", json_int(json_get(json_root(best), "step"), 0),
                 json_num(json_get(json_root(best), "val_loss"), (double)NAN));
    json_free(best);
    mem_free(step);
    return rc;
}

int start_next(struct starts *s, int64_t *id, char *text, size_t size)
{
    for (int i = 0; i < s->n; i++) {
        struct job_launch *l = &s->v[i].launch;
        enum launch_state state = job_launch_state(l, text, size);
        if (state == LAUNCH_STARTING)
            continue;
        if (state == LAUNCH_RUNS)
            str_copy(text, size, l->name);
        *id = s->v[i].id;
        job_launch_release(l);
        s->v[i] = s->v[--s->n];
        return state == LAUNCH_RUNS ? 1 : -1;
    }
    return 0;
}

void starts_release(struct starts *s)
{
    while (s->n > 0)
        job_launch_release(&s->v[--s->n].launch);
}
