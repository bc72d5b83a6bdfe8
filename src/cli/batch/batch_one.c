/* Names, inspects, starts and reads one run of a batch. */
#include "cli/batch/batch_one.h"

#include <ctype.h>
#include <inttypes.h>
#include <string.h>

#include "base/fs.h"
#include "base/hash.h"
#include "base/mem.h"
#include "io/runlog.h"
#include "training/job.h"
#include "training/options.h"

/* The overrides of the row, then the seed; NULL when out of memory. */
static const char **settings_of(const struct batch_one *o, const struct batch_row *r, char seed[32])
{
    const char **arg = mem_alloc(r->n + 2, sizeof *arg);
    for (size_t i = 0; arg && i < r->n; i++)
        arg[i] = r->override[i];
    snprintf(seed, 32, "seed=%" PRId64, o->seed);
    if (arg)
        arg[r->n] = seed;
    return arg;
}

int batch_one_resolve(struct batch_one *o, const struct batch_plan *p, struct str *settings,
                      struct err *e)
{
    const struct batch_row *r = &p->row[o->row];
    struct train_config c = {0};
    struct str text = {0};
    char stem[44], seed[32];
    const char **arg = settings_of(o, r, seed);
    if (!arg)
        return err_set(e, DS_EMEM, "settings");
    int rc = train_config_make(&c, (const char *const *)r->preset, r->presets, arg, r->n + 1, e);
    mem_free(arg);
    if (rc < 0)
        return rc;
    if (strcmp(p->kind, "ablate") == 0 && strcmp(c.model.method, "edp") != 0)
        rc = err_set(e, DS_EUSAGE, "model.method=%s: must be edp for ablations", c.model.method);
    o->has_threads = c.run.threads != 0;
    c.run.threads = 0; /* results do not depend on it */
    train_config_print(&text, &c);
    snprintf(stem, sizeof stem, "%s-%.*s", p->kind, (int)(sizeof stem - 10), r->label);
    for (char *s = stem; *s; s++)
        if (!strchr("._-", *s) && ((unsigned char)*s >= 0x80 || !isalnum((unsigned char)*s)))
            *s = '_';
    snprintf(o->name, sizeof o->name, "%.36s-s%" PRId64 "-%06x", stem, o->seed,
             (unsigned)(hash64(str_text(&text), text.len, 0) & 0xffffff));
    if (rc == 0 && text.failed)
        rc = err_set(e, DS_EMEM, "settings");
    if (rc == 0 && settings)
        str_add_bytes(settings, text.p, text.len);
    str_release(&text);
    train_config_release(&c);
    return rc;
}

int batch_one_dir(const struct batch_one *o, char *dir, size_t size, struct err *e)
{
    return fs_join(dir, size, job_root(), o->name, e);
}

int batch_one_look(const struct batch_one *o, int is_ours, enum batch_one_state *state,
                   struct err *e)
{
    char dir[1024], path[1100];
    struct summary s;
    *state = ONE_NEW;
    int rc = batch_one_dir(o, dir, sizeof dir, e);
    if (rc < 0 || !fs_exists(dir))
        return rc;
    if (fs_join(path, sizeof path, dir, "log.mp", e) < 0)
        return e->code;
    if (runlog_is_locked(path)) {
        *state = ONE_BUSY;
        return 0;
    }
    if (fs_exists(path) && summary_read(&s, dir, NULL) == 0) {
        int is_done = strcmp(s.status, "done") == 0;
        summary_release(&s);
        if (is_done) {
            *state = ONE_DONE;
            return 0;
        }
    }
    if (fs_join(path, sizeof path, dir, "config.yaml", NULL) == 0 && fs_exists(path)) {
        *state = ONE_RESUME; /* without a checkpoint it restarts from step 0 */
        return 0;
    }
    /* killed during creation: the hash in the name matches these settings, and it holds no data; a
     * file is nothing that training made */
    return is_ours && fs_is_dir(dir) ? fs_remove_tree(dir, e) : 0;
}

int batch_one_start(const struct batch_one *o, const struct batch_plan *p,
                    enum batch_one_state state, int threads, struct batch_child *out, struct err *e)
{
    const struct batch_row *r = &p->row[o->row];
    char seed[32], few[32];
    const char **arg = settings_of(o, r, seed);
    const char **argv = mem_alloc(r->presets + r->n + 12, sizeof *argv);
    size_t k = 0;
    int rc = arg && argv ? 0 : err_set(e, DS_EMEM, "run");
    if (rc < 0)
        goto out;
    argv[k++] = "depthscope";
    argv[k++] = "train";
    if (state == ONE_RESUME) {
        argv[k++] = "--resume";
        argv[k++] = o->name;
    } else {
        for (size_t i = 0; i < r->presets; i++)
            argv[k++] = r->preset[i];
        for (size_t i = 0; i < r->n + 1; i++)
            argv[k++] = arg[i];
        if (threads > 0 && !o->has_threads) {
            snprintf(few, sizeof few, "threads=%d", threads);
            argv[k++] = few;
        }
        argv[k++] = "--run";
        argv[k++] = o->name;
    }
    argv[k++] = "--quiet";
    argv[k] = NULL;
    rc = batch_child_start(out, NULL, argv, -1, 1, e);
out:
    mem_free(arg);
    mem_free(argv);
    return rc;
}

int batch_one_result(const struct batch_one *o, struct summary *s, char *reason, size_t size)
{
    struct err why = {0};
    char dir[1024];
    if (batch_one_dir(o, dir, sizeof dir, &why) < 0 || summary_read(s, dir, &why) < 0) {
        str_copy(reason, size, why.text);
        return 0;
    }
    if (strcmp(s->status, "done") != 0) {
        snprintf(reason, size, "%s at step %lld of %lld", s->status, s->step, s->steps);
        summary_release(s);
        return 0;
    }
    return 1;
}
