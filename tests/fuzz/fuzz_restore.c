/* Arbitrary bytes in a checkpoint that a trainer resumes from; the first byte says where: its
 * state.json, the header of its weights or of its moments (with as much data as the tensors
 * had), its config.json, or the run's live.json or best.json. The manifest agrees. Either a
 * one-line error, or a state that the next step can be trained from, and that is saved. */
#include "tiny_run.h"

#include <sys/stat.h>

#include "base/hash.h"
#include "io/checkpoint.h"

static struct trainer trainer;
static struct tiny_kept kept;
static char root[1024], now[1100];

static const char *const part[] = {"state.json",  "model.safetensors", "optimizer.safetensors",
                                   "config.json", "live.json",         "best.json"};
enum { PARTS = 6, OF_CHECKPOINT = 4, DATA_MAX = 1 << 16 };
static struct str whole[PARTS]; /* as the trainer wrote them */

static const char *path_of(int i)
{
    static char path[1200];
    need(fs_join(path, sizeof path, i < OF_CHECKPOINT ? now : trainer.dir, part[i], NULL) == 0);
    return path;
}

static void make(void)
{
    struct err e = {0};
    tiny_open(&trainer, "run", "model.method=mod");
    tiny_ok(trainer_set(&trainer, "train.lr", 1e-4, &e), &e);
    tiny_ok(trainer_keep_live(&trainer, &e), &e);
    trainer.state.best_step = 2;
    trainer.state.best_loss = 3;
    tiny_ok(trainer_save(&trainer, &e), &e);
    tiny_keep(&kept, &trainer);
    need(fs_join(root, sizeof root, trainer.dir, "checkpoints", &e) == 0 &&
         checkpoint_latest(root, now, sizeof now, NULL, &e) == 0);
    for (int i = 0; i < PARTS; i++)
        tiny_ok(fs_read_file(&whole[i], path_of(i), 1 << 20, &e), &e);
}

/* A header, and the data that follow that of the trainer. */
static void put_tensors(int i, const uint8_t *p, size_t n)
{
    struct str s = {0};
    char head[8] = {0};
    uint64_t was = 0;
    for (int k = 7; k >= 0; k--)
        was = was << 8 | (unsigned char)whole[i].p[k];
    for (int k = 0; k < 8; k++)
        head[k] = (char)((uint64_t)n >> 8 * k);
    str_add_bytes(&s, head, 8);
    str_add_bytes(&s, p, n);
    str_add_bytes(&s, whole[i].p + 8 + was, whole[i].len - 8 - (size_t)was);
    fuzz_put(path_of(i), s.p, s.len);
    str_release(&s);
}

static void put_manifest(void)
{
    struct str m = {0};
    char hex[65];
    str_add(&m, "{\"format\": 1, \"step\": 2, \"files\": {");
    for (int i = 0; i < OF_CHECKPOINT; i++) {
        struct stat st;
        need(sha256_file(path_of(i), hex, NULL) == 0 && fs_stat(path_of(i), &st) == 0);
        str_addf(&m, "%s\"%s\": {\"bytes\": %lld, \"sha256\": \"%s\"}", i ? ", " : "", part[i],
                 (long long)st.st_size, hex);
    }
    str_add(&m, "}}\n");
    char path[1200];
    need(fs_join(path, sizeof path, now, "manifest.json", NULL) == 0);
    fuzz_put(path, m.p, m.len);
    str_release(&m);
}

/* What the trainer does with the state. */
static void go_on(void)
{
    const struct train_state *s = &trainer.state;
    struct err e = {0};
    struct str note = {0};
    need(s->step >= 0 && s->skipped >= 0 && s->skipped <= s->step && s->tokens >= 0 &&
         s->bad_in_row >= 0 && s->best_step >= -1);
    need(isfinite(s->seconds) && s->seconds >= 0 && !isnan(s->best_loss));
    say_how_to_resume(&trainer, 0, &note);
    str_release(&note);
    if (s->step < trainer.config.train.steps)
        need_line(train_step(&trainer, &e), &e);
    trainer_set_status(&trainer);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct err e = {0};
    if (size == 0)
        return 0;
    if (!root[0])
        make();
    int which = data[0] % PARTS;
    for (int i = 0; i < PARTS; i++)
        fuzz_put(path_of(i), whole[i].p, whole[i].len);
    if (which == 1 || which == 2)
        put_tensors(which, data + 1, size - 1);
    else
        fuzz_put(path_of(which), data + 1, size - 1);
    put_manifest();
    tiny_reset(&trainer, &kept);
    trainer.state = (struct train_state){.best_step = -1, .best_loss = (double)INFINITY};
    int rc = trainer_restore(&trainer, data[0] & 128, &e);
    need_line(rc, &e);
    if (rc == 0)
        go_on();
    return 0;
}
