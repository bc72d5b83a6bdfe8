/* Small runs that start, stop and resume in one process; the test file defines their common keys (`tiny`) first. */
#ifndef DS_TESTS_KIT_TRAIN_H
#define DS_TESTS_KIT_TRAIN_H

#include <signal.h>
#include <string.h>

#include "base/log.h"
#include "t.h"
#include "training/trainer.h"

enum { KEYS_MAX = 48 };

/* NULL-terminated; defined by the including file */
static const char *const tiny[KEYS_MAX];

static struct trainer trainer;
static atomic_int asked;

static char told[3000];

static void listen(void *ctx, enum log_level level, const char *text)
{
    size_t n = strlen(told);
    (void)ctx;
    (void)level;
    snprintf(told + n, sizeof told - n, "%s\n", text);
}

static int make_config(struct train_config *c, const char *const *more, struct err *e)
{
    const char *key[KEYS_MAX];
    size_t n = 0;
    for (size_t i = 0; tiny[i]; i++)
        key[n++] = tiny[i];
    while (*more)
        key[n++] = *more++;
    return train_config_make(c, NULL, 0, key, n, e);
}

static void at_step(void *ctx, const struct trainer *t)
{
    if (t->state.step == *(const int *)ctx)
        atomic_store(&asked, SIGTERM);
}

/* Trains DIR until step `stop` (0: to the end). */
static int go(const char *dir, const char *const *more, int resume, int stop, struct err *e)
{
    struct train_config c;
    char path[900];
    told[0] = '\0';
    log_to(listen, NULL);
    atomic_store(&asked, 0);
    snprintf(path, sizeof path, "%s/config.yaml", dir);
    int rc = resume ? train_config_read(&c, dir, NULL, 0, NULL, e) : make_config(&c, more, e);
    if (rc < 0)
        return rc;
    if (!resume)
        rc = trainer_create(dir, &c, 0, NULL, "test", NULL, e);
    trainer = (struct trainer){
        .stop_signal = &asked, .version = "test", .on_step = at_step, .ctx = &stop};
    if (rc == 0)
        rc = trainer_open(&trainer, dir, &c, resume, 0, e);
    train_config_release(&c);
    if (rc == 0) {
        rc = trainer_run(&trainer, e);
        trainer_close(&trainer);
    }
    return rc;
}

#endif
