/* Creates a run's directory, by one process only, and removes it when the run cannot start. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fs.h"
#include "base/json.h"
#include "base/log.h"
#include "base/pool.h"
#include "training/trainer.h"

int trainer_write_config(const char *dir, const struct train_config *config, struct err *e)
{
    struct str s = {0};
    train_config_print(&s, config);
    return fs_replace_text(dir, "config.yaml", &s, e);
}

static int write_meta(const char *dir, const struct train_config *config, int argc, char **argv,
                      const char *version, const char *parent, struct err *e)
{
    char host[256] = "";
    struct str s = {0};
    gethostname(host, sizeof host - 1);
    str_add(&s, "{\n  \"command\": [");
    for (int i = 0; i < argc; i++) {
        str_add(&s, i ? ", " : "");
        str_add_json(&s, argv[i], strlen(argv[i]));
    }
    str_add(&s, "],\n  \"preset\": ");
    str_add_json(&s, config->preset, strlen(config->preset));
    str_addf(&s, ",\n  \"version\": \"%s\",\n  \"host\": ", version);
    str_add_json(&s, host, strlen(host));
    str_addf(&s,
             ",\n  \"cpus\": %d,\n  \"seed\": %" PRId64 ",\n  \"started\": %.3f,\n  \"parent\": ",
             pool_cpus(), config->run.seed, clock_wall());
    str_add_json(&s, parent ? parent : "", parent ? strlen(parent) : 0);
    str_add(&s, "\n}\n");
    return fs_replace_text(dir, "meta.json", &s, e);
}

int trainer_repair(struct trainer *t, struct err *e)
{
    char path[1100];
    struct json *j = NULL;
    struct err why = {0};
    int rc = fs_join(path, sizeof path, t->dir, "config.yaml", e);
    if (rc == 0 && t->config_is_lost)
        rc = trainer_rename_broken(path, e);
    if (rc == 0 && (t->config_is_lost || t->n_override > 0))
        rc = trainer_write_config(t->dir, &t->config, e);
    if (rc == 0)
        rc = fs_join(path, sizeof path, t->dir, "meta.json", e);
    if (rc < 0 || json_read_file(&j, path, 1 << 20, &why) == 0) {
        json_free(j);
        return rc;
    }
    if (fs_is_unreadable(path, why.code))
        return err_set(e, why.code, "%s", why.text);
    log_warn("%s; rewriting it without the command line", why.text);
    rc = trainer_rename_broken(path, e);
    return rc == 0 ? write_meta(t->dir, &t->config, 0, NULL, t->version, t->parent, e) : rc;
}

/* Removes the created files from the held directory. */
static void discard(const char *dir, int home)
{
    static const char *const file[] = {"config.yaml",
                                       "meta.json",
                                       "tokenizer.json",
                                       "chat_template.jinja",
                                       "special_tokens_map.json",
                                       "log.mp"};
    char path[1100];
    struct stat st;
    if (fs_join(path, sizeof path, dir, "log.mp", NULL) < 0 || fs_stat(path, &st) < 0 ||
        st.st_size > 0)
        return; /* the log has records: keep it */
    for (size_t i = 0; i < DS_LEN(file); i++)
        if (fs_join(path, sizeof path, dir, file[i], NULL) == 0)
            fs_unlink(path);
    if (fs_is_held_at(home, dir))
        rmdir(dir); /* fails while other files remain, such as a detached run's output */
}

/* has_begun: a checkpoint, its tokenizer and settings may already exist. */
static int create(const char *dir, int has_begun, const struct train_config *config, int argc,
                  char **argv, const char *version, const char *parent, struct err *e)
{
    char path[1100];
    struct runlog_writer *lock = NULL;
    int home = -1, was_there = fs_exists(dir), rc = trainer_home_is_empty(dir, has_begun, e);
    /* of two simultaneous starts, one writes and the other then sees its files */
    if (rc < 0 || (rc = fs_mkdirs(dir, e)) < 0 || (rc = fs_sync_parent(dir, e)) < 0 ||
        (rc = trainer_home_open(&home, dir, e)) < 0 ||
        (rc = fs_join(path, sizeof path, dir, "log.mp", e)) < 0 ||
        (rc = runlog_writer_open(&lock, path, e)) < 0 ||
        (rc = trainer_home_is_empty(dir, has_begun, e)) < 0)
        goto out;
    rc = trainer_write_config(dir, config, e);
    if (rc == 0)
        rc = write_meta(dir, config, argc, argv, version, parent, e);
    if (rc < 0)
        discard(dir, home);
out:
    runlog_writer_close(lock);
    trainer_home_close(home);
    if (rc < 0 && rc != DS_EBUSY && !was_there)
        rmdir(dir); /* fails when it holds anything */
    return rc;
}

int trainer_create(const char *dir, const struct train_config *config, int argc, char **argv,
                   const char *version, const char *parent, struct err *e)
{
    return create(dir, 0, config, argc, argv, version, parent, e);
}

int trainer_create_begun(const char *dir, const struct train_config *config, int argc, char **argv,
                         const char *version, const char *parent, struct err *e)
{
    return create(dir, 1, config, argc, argv, version, parent, e);
}

void trainer_discard(const char *dir)
{
    int home = -1;
    if (trainer_home_open(&home, dir, NULL) == 0)
        discard(dir, home);
    trainer_home_close(home);
}
