/* Arbitrary bytes as one of the small files that keep state; the first byte says which.  Damage is an error in one line or
 * ignored; what can be read is written and read again the same. */
#include "base/lease.h"
#include "cli/agent/start.h"
#include "cli/get/get.h"
#include "io/batch.h"
#include "io/checkpoint.h"
#include "io/runindex.h"
#include "models/load.h"
#include "training/trainer.h"
#include "tui/appstate.h"

#include "cli/commands.h"
#include "kit.h"

/* Those of the program are in its main file. */
const struct command commands[] = {{.name = NULL}};

int command_fail(const struct err *e)
{
    return e->code ? 1 : 0;
}

static void lease(const void *p, size_t n)
{
    struct lease_watch w = {0};
    struct lease_list l = {0};
    struct lease_view v;
    struct err e = {0};
    fuzz_put(fuzz_path("x@1"), p, n);
    int rc = lease_look(&v, fuzz_dir(), "x", 1, &e);
    need_line(rc, &e);
    need(rc < 0 || (v.patience >= 0.5 && v.patience <= 86400 && v.generation == 1));
    if (rc == 0)
        (void)lease_judge(&w, &v);
    need(lease_list_read(&l, fuzz_dir(), &e) == 0 && lease_list_find(&l, "x") == 1);
    lease_list_release(&l);
    unlink(fuzz_path("x@1"));
}

static void notes(const void *p, size_t n)
{
    struct run_notes x, again;
    struct err e = {0};
    fuzz_put(fuzz_path("notes.json"), p, n);
    int rc = run_notes_read(&x, fuzz_dir(), &e);
    need_line(rc, &e);
    if (rc < 0)
        return;
    need(x.tags <= RUN_TAGS_MAX && memchr(x.note, 0, sizeof x.note) != NULL);
    need(run_notes_write(&x, fuzz_dir(), &e) == 0 && run_notes_read(&again, fuzz_dir(), &e) == 0);
    need(again.tags == x.tags);
    for (int i = 0; i < x.tags; i++)
        need(strcmp(x.tag[i], again.tag[i]) == 0);
    need(strcmp(x.note, again.note) == 0);
}

static void plan(const void *p, size_t n)
{
    struct batch_file x, again;
    struct err e = {0};
    fuzz_put(fuzz_path("plan.json"), p, n);
    int rc = batch_file_read(&x, fuzz_dir(), &e);
    need_line(rc, &e);
    if (rc < 0)
        return;
    need(batch_file_write(&x, fuzz_dir(), 0, &e) == 1 &&
         batch_file_read(&again, fuzz_dir(), &e) == 0);
    need(again.runs == x.runs && strcmp(again.first, x.first) == 0 &&
         strcmp(again.kind, x.kind) == 0 && strcmp(again.preset, x.preset) == 0);
    for (size_t i = 0; i < x.runs; i++)
        need(strcmp(again.run[i], x.run[i]) == 0);
    batch_file_release(&x);
    batch_file_release(&again);
}

/* A checkpoint with one file; only a manifest that names its size and hash holds. */
static void manifest(const void *p, size_t n)
{
    static const char hash[] = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824";
    char id[CHECKPOINT_RUN_ID];
    struct err e = {0};
    fuzz_put(fuzz_path("a.bin"), "hello", 5);
    fuzz_put(fuzz_path("manifest.json"), p, n);
    int rc = checkpoint_verify(fuzz_dir(), &e);
    need_line(rc, &e);
    char *text = malloc(n + 1);
    need(text != NULL);
    memcpy(text, p, n);
    text[n] = '\0';
    need(rc < 0 || n > strlen(text) || strstr(text, "\\u") || strstr(text, hash) != NULL);
    free(text);
    e = (struct err){0};
    need_line(checkpoint_run_id(fuzz_dir(), id, &e), &e);
    need_line(checkpoint_check_run(fuzz_dir(), "other", &e), &e);
}

static void run_dir(const char *name, const void *p, size_t n)
{
    struct run_row *row = calloc(1, sizeof *row);
    struct str steps = {0};
    struct err e = {0};
    char text[300];
    need(row != NULL);
    if (strcmp(name, "config.yaml") != 0)
        fuzz_put(fuzz_path("config.yaml"), "model.method: mod\n", 18);
    fuzz_put(fuzz_path(name), p, n);
    int rc = run_row_read(row, fuzz_dir(), &e);
    need_line(rc, &e);
    for (const struct run_column *c = run_columns; rc == 0 && c->key; c++)
        need(strlen(run_column_text(row, c, 1e9, text, sizeof text)) < sizeof text);
    if (rc == 0)
        run_row_text(row, "train.lr", 1e9, text, sizeof text);
    need_line(start_checkpoints(&steps, row, &e), &e);
    str_release(&steps);
    run_row_release(row);
    free(row);
    unlink(fuzz_path("config.yaml"));
}

static void meta(const void *p, size_t n)
{
    run_dir("meta.json", p, n);
}

static void settings(const void *p, size_t n)
{
    run_dir("config.yaml", p, n);
}

static void best(const void *p, size_t n)
{
    run_dir("best.json", p, n);
}

static void live(const void *p, size_t n)
{
    struct err e = {0};
    fuzz_put(fuzz_path("live.json"), p, n);
    need(fs_mkdirs(fuzz_path("fork"), &e) == 0);
    int rc = trainer_copy_live(fuzz_dir(), fuzz_path("fork"), INT64_MAX, &e);
    need_line(rc, &e);
    if (rc == 0) {
        struct str first = {0}, second = {0};
        (void)!fs_read_file(&first, fuzz_path("fork/live.json"), 1 << 20, &e);
        need(fs_mkdirs(fuzz_path("fork2"), &e) == 0);
        need(trainer_copy_live(fuzz_path("fork"), fuzz_path("fork2"), INT64_MAX, &e) == 0);
        (void)!fs_read_file(&second, fuzz_path("fork2/live.json"), 1 << 20, &e);
        need(strcmp(str_text(&first), str_text(&second)) == 0);
        str_release(&first);
        str_release(&second);
    }
    (void)!fs_remove_tree(fuzz_path("fork"), NULL);
    (void)!fs_remove_tree(fuzz_path("fork2"), NULL);
}

static void downloads(const void *p, size_t n)
{
    struct get_file f = {.url = "https://example.org/a"};
    char path[1200];
    struct err e = {0};
    need(fs_mkdirs(fuzz_path("depthscope"), &e) == 0 && get_records_path(path, sizeof path));
    fuzz_put(path, p, n);
    get_recall(&f);
    need(!f.is_recalled || (strlen(f.sha256) == 64 && f.bytes >= 0));
}

static void view(const void *p, size_t n)
{
    struct app *app = calloc(1, sizeof *app);
    struct err e = {0};
    need(app != NULL && fs_mkdirs(fuzz_path("depthscope"), &e) == 0);
    app_state_load(app, "some run");
    need(app->state_path[0] != '\0');
    fuzz_put(app->state_path, p, n);
    app_state_load(app, "some run");
    app_memory_release(app);
    free(app);
}

/* config.json of a checkpoint that is stored without its base. */
static void base(const void *p, size_t n)
{
    char found[1024];
    struct err e = {0};
    fuzz_put(fuzz_path("config.json"), p, n);
    need_line(model_base(fuzz_dir(), found, sizeof found, &e), &e);
    unlink(fuzz_path("config.json"));
}

static void (*const readers[])(const void *p, size_t n) = {
    lease, notes, plan, manifest, meta, settings, best, live, base, downloads, view};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    log_to(fuzz_hush, NULL);
    setenv("XDG_STATE_HOME", fuzz_dir(), 1);
    readers[data[0] % DS_LEN(readers)](data + 1, size - 1);
    return 0;
}
