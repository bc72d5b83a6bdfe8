/* Batches of runs: plan.json, states, counts of workers, and the list that a viewer keeps. */
#include "base/fs.h"
#include "base/mem.h"
#include "io/batch.h"
#include "t.h"

static const char *below(const char *dir, const char *name)
{
    static char path[2][1024];
    static int k;
    k = !k;
    snprintf(path[k], sizeof path[k], "%s/%s", dir, name);
    return path[k];
}

static void put(const char *path, const char *text)
{
    struct err e = {0};
    t_ok(fs_write_file(path, text, strlen(text), &e), &e);
}

static void plan(const char *folder, const char *first, size_t runs)
{
    static char names[3][BATCH_NAME] = {"a", "", "c"};
    char settings[] = "train.lr=1";
    struct err e = {0};
    struct batch_file f = {.kind = "sweep", .preset = "quick", .version = "1.0", .first = settings};
    f.run = names;
    f.runs = runs;
    str_copy(names[0], sizeof names[0], first);
    t_ok(fs_mkdirs(folder, &e), &e);
    t_ok(batch_file_write(&f, folder, 0, &e), &e);
}

T(a_plan_is_read_as_it_was_written)
{
    const char *d = t_tmpdir();
    struct err e = {0};
    struct batch_file f;
    t_fails(batch_file_read(&f, d, &e), &e, DS_ENOTFOUND, "plan.json: not found");
    plan(d, "first", 3);
    t_ok(batch_file_read(&f, d, &e), &e);
    t_str(f.kind, "sweep");
    t_str(f.preset, "quick");
    t_str(f.first, "train.lr=1");
    t_eq(f.runs, 3);
    t_str(f.run[0], "first");
    t_str(f.run[1], "");
    t_eq(strlen(f.id), BATCH_ID - 1);
    char id[BATCH_ID];
    str_copy(id, sizeof id, f.id);
    t_eq(batch_file_write(&f, d, 1, &e), 0); /* there is one */
    t_eq(batch_file_write(&f, d, 0, &e), 1);
    t_true(strcmp(id, f.id) != 0);
    batch_file_release(&f);
}

T(a_damaged_plan_is_one_line)
{
    static const char *const row[][2] = {
        {"{\"runs\": 3}", "plan.json: runs: expected a list of at most"},
        {"{}", "plan.json: runs: expected a list of at most"},
        {"{\"runs\": [\"a\", 3]}", "plan.json: runs[1]: not the name of a run"},
        {"{\"runs\": [\"../a\"]}", "plan.json: runs[0]: not the name of a run"},
        {"{\"runs\": [", "plan.json"},
    };
    const char *d = t_tmpdir();
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        struct err e = {0};
        struct batch_file f;
        put(below(d, "plan.json"), row[i][0]);
        t_fails(batch_file_read(&f, d, &e), &e, DS_EFORMAT, row[i][1]);
    }
}

T(the_state_of_a_run_follows_from_its_lease_and_records)
{
    struct run_row done = {.state = RUN_DONE}, failed = {.state = RUN_FAILED},
                   live = {.state = RUN_LIVE, .is_live = 1}, empty = {.state = RUN_EMPTY};
    struct lease_view none = {0}, given_up = {.generation = 2, .note = "it failed"},
                      held = {.generation = 1, .is_held = 1};
    t_eq(batch_state_of(&done, &held, LEASE_ALIVE), BATCH_DONE);
    t_eq(batch_state_of(NULL, &held, LEASE_ALIVE), BATCH_RUNNING);
    t_eq(batch_state_of(&live, &none, LEASE_FREE), BATCH_RUNNING);
    t_eq(batch_state_of(&empty, &given_up, LEASE_FREE), BATCH_FAILED);
    t_eq(batch_state_of(&failed, &none, LEASE_FREE), BATCH_FAILED);
    t_eq(batch_state_of(NULL, &none, LEASE_FREE), BATCH_WAITING);
    t_str(batch_state_name(BATCH_WAITING), "waiting");
    t_str(batch_state_name(BATCH_STATES), "");
}

T(workers_are_counted_by_host_and_beyond_the_limit_only_counted)
{
    struct batch_progress p = {0};
    struct lease_view v = {.generation = 1, .is_held = 1, .pid = 7, .host = "boxa"};
    struct str text = {0};
    batch_workers_text(&text, &p);
    t_str(str_text(&text), "");
    batch_progress_add(&p, BATCH_RUNNING, &v);
    batch_progress_add(&p, BATCH_RUNNING, &v); /* the same worker */
    v.pid = 8;
    batch_progress_add(&p, BATCH_RUNNING, &v); /* another one of the host */
    str_copy(v.host, sizeof v.host, "");
    batch_progress_add(&p, BATCH_RUNNING, &v);
    batch_progress_add(&p, BATCH_DONE, &v);
    batch_progress_add(&p, BATCH_FAILED, &v);
    batch_progress_add(&p, BATCH_WAITING, &v);
    t_eq(p.workers, 3);
    batch_progress_text(&text, &p);
    t_str(str_text(&text), "7 runs: 1 done, 4 running, 1 failed, 1 waiting");
    str_reset(&text);
    batch_workers_text(&text, &p);
    t_str(str_text(&text), "boxa 3, ? 1");
    str_copy(v.host, sizeof v.host, "boxb");
    for (int i = 0; i < BATCH_WORKERS; i++) {
        v.pid = 100 + i;
        batch_progress_add(&p, BATCH_RUNNING, &v);
    }
    str_reset(&text);
    batch_workers_text(&text, &p); /* 29 of the 32 find a place, 3 are others */
    t_str(str_text(&text), "boxa 3, ? 1, boxb 29, others 3");
    struct batch_progress one = {.runs = 1, .count = {[BATCH_DONE] = 1}};
    str_reset(&text);
    batch_progress_text(&text, &one);
    t_str(str_text(&text), "1 run: 1 done");
    str_release(&text);
}

static struct run_row rows[2] = {{.name = "a", .state = RUN_DONE},
                                 {.name = "c", .state = RUN_EMPTY}};
static struct run_row *listed[2] = {&rows[0], &rows[1]};

T(a_list_of_batches_keeps_what_did_not_change)
{
    const char *d = t_tmpdir();
    struct err e = {0};
    struct runindex index = {.row = listed, .n = 2};
    struct batch_list l = {0};
    t_ok(batch_list_refresh(&l, d, &index, &e), &e); /* no folder of batches */
    t_eq(l.n, 0);
    plan(below(d, ".batches/sweep-1"), "a", 3);
    plan(below(d, ".batches/sweep-2"), "a", 1);
    t_ok(fs_mkdirs(below(d, ".batches/leases"), &e), &e);
    t_ok(fs_mkdirs(below(d, ".batches/.hidden"), &e), &e);
    t_ok(batch_list_refresh(&l, d, &index, &e), &e);
    t_eq(l.n, 2);
    struct batch_entry *x = strcmp(l.entry[0].name, "sweep-1") == 0 ? &l.entry[0] : &l.entry[1];
    t_eq(x->progress.runs, 2); /* "" was refused */
    t_eq(x->progress.count[BATCH_DONE], 1);
    t_eq(x->progress.count[BATCH_WAITING], 1);
    t_eq((x == l.entry ? x + 1 : l.entry)->progress.runs, 0); /* all done */
    const char *kept = x->file.first;
    t_ok(batch_list_refresh(&l, d, &index, &e), &e);
    x = strcmp(l.entry[0].name, "sweep-1") == 0 ? &l.entry[0] : &l.entry[1];
    t_true(x->file.first == kept);
    plan(below(d, ".batches/sweep-1"), "zz", 1); /* another plan, of no run that is there */
    t_ok(batch_list_refresh(&l, d, &index, &e), &e);
    t_eq(l.n, 2);
    for (size_t i = 0; i < l.n; i++)
        t_eq(l.entry[i].progress.runs, 0);
    put(below(d, ".batches/sweep-1/plan.json"), "damaged");
    t_ok(batch_list_refresh(&l, d, &index, &e), &e);
    t_eq(l.n, 1);
    t_str(l.entry[0].name, "sweep-2");
    t_ok(batch_list_refresh(&l, NULL, &index, &e), &e);
    t_eq(l.n, 0);
    batch_list_release(&l);
}

T(want_of_memory_leaves_a_list_that_can_be_refreshed)
{
    const char *d = t_tmpdir();
    struct runindex index = {.row = listed, .n = 2};
    struct err none = {0};
    uint64_t at, n = 1, failed = 0;
    plan(below(d, ".batches/sweep-1"), "a", 3);
    plan(below(d, ".batches/sweep-2"), "c", 1);
    t_ok(fs_mkdirs(below(d, ".batches/leases"), &none), &none);
    do {
        struct batch_list l = {0};
        struct err e = {0};
        at = mem_calls() + n++;
        mem_fail_at(at, 0);
        int rc = batch_list_refresh(&l, d, &index, &e);
        mem_fail_at(0, 0);
        t_truef(rc == 0 || rc == DS_EMEM, "%d %s", rc, e.text);
        failed += rc < 0;
        t_ok(batch_list_refresh(&l, d, &index, &e), &e);
        t_eq(l.n, 2);
        batch_list_release(&l);
    } while (mem_calls() >= at && n < 500);
    t_true(failed > 3 && n < 500);
}
