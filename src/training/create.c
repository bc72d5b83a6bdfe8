/* A run's directory: made by one process only, taken back when the run could not begin. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fs.h"
#include "base/pool.h"
#include "training/trainer.h"

int trainer_write_config(const char *dir, const struct train_config *config, struct err *e)
{
    char path[1100];
    struct str s = {0};
    train_config_print(&s, config);
    int rc = s.failed ? err_set(e, DS_EMEM, "config.yaml")
                      : fs_join(path, sizeof path, dir, "config.yaml", e);
    if (rc == 0)
        rc = fs_write_file(path, s.p, s.len, e);
    str_release(&s);
    return rc;
}

static int write_meta(const char *dir, const struct train_config *config, int argc, char **argv,
                      const char *version, const char *parent, struct err *e)
{
    char path[1100], host[256] = "";
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
    int rc = s.failed ? err_set(e, DS_EMEM, "meta.json")
                      : fs_join(path, sizeof path, dir, "meta.json", e);
    if (rc == 0)
        rc = fs_write_file(path, s.p, s.len, e);
    str_release(&s);
    return rc;
}

static int is_new(const char *dir, struct err *e)
{
    char path[1100];
    int rc = fs_join(path, sizeof path, dir, "config.yaml", e);
    if (rc == 0 && fs_exists(path))
        rc = err_set(e, DS_EEXIST, "%s: a run is there already; --resume continues it", dir);
    return rc;
}

int trainer_create(const char *dir, const struct train_config *config, int argc, char **argv,
                   const char *version, const char *parent, struct err *e)
{
    char path[1100];
    struct runlog_writer *lock = NULL;
    int rc = is_new(dir, e);
    if (rc == 0)
        rc = fs_mkdirs(dir, e);
    if (rc == 0)
        rc = fs_join(path, sizeof path, dir, "log.mp", e);
    if (rc == 0) /* of two that start at once, one writes and the other then sees its files */
        rc = runlog_writer_open(&lock, path, e);
    if (rc == 0)
        rc = is_new(dir, e);
    if (rc == DS_EEXIST || !lock) {
        runlog_writer_close(lock);
        return rc;
    }
    rc = trainer_write_config(dir, config, e);
    if (rc == 0)
        rc = write_meta(dir, config, argc, argv, version, parent, e);
    if (rc < 0)
        trainer_discard(dir);
    runlog_writer_close(lock);
    return rc;
}

void trainer_discard(const char *dir)
{
    static const char *const file[] = {"config.yaml", "meta.json", "tokenizer.json", "log.mp"};
    char path[1100];
    struct stat st;
    if (fs_join(path, sizeof path, dir, "log.mp", NULL) < 0 || stat(path, &st) < 0 ||
        st.st_size > 0)
        return; /* it has told something: it stays */
    for (size_t i = 0; i < DS_LEN(file); i++)
        if (fs_join(path, sizeof path, dir, file[i], NULL) == 0)
            unlink(path);
    rmdir(dir); /* unless others keep something there, the output of a detached run for one */
}
