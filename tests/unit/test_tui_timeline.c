/* Shares over training, and the names of collapsed and specialised layers, on probes made by hand. */
#include "base/fs.h"
#include "screens/timelines.h"
#include "t.h"
#include "tui/timeline.h"

enum { L = 4, N = 8 };

/* Layer 0 is always on, 1 executes nothing from step 30 on, 2 everything up to 30, 3 only class 2
 * from 40 on. */
static void probe_by_hand(struct fixture *f, int step)
{
    static const float kind[N] = {0, 0, 0, 0, 2, 2, 2, 2};
    unsigned char run[L * N];
    for (int t = 0; t < N; t++) {
        run[t] = 1;
        run[N + t] = step < 30 && t % 2 == 0;
        run[2 * N + t] = step <= 30 || t % 2 == 0;
        run[3 * N + t] = step >= 40 ? t >= 4 : t % 2 == 0;
    }
    fixture_probe(f, step, 0, L, N, run, kind);
}

static const struct fixture_head head = {
    .run = "hand", .method = "mod", .seed = 1, .layers = L, .steps = 60};

static void begin(struct fixture *f)
{
    t_true(fixture_begin(f));
    fixture_head(f, 0, &head);
}

static struct runview *finish(struct fixture *f)
{
    struct runview *r = fixture_view(f);
    struct str out = fixture_end(f);
    t_true(r && out.len > 0);
    str_release(&out);
    return r;
}

static struct runview *run_by_hand(void)
{
    struct fixture f;
    begin(&f);
    for (int step = 10; step <= 60; step += 10)
        probe_by_hand(&f, step);
    return finish(&f);
}

T(a_collapsed_layer_is_named_with_its_first_step_and_its_probes)
{
    struct runview *r = run_by_hand();
    struct timeline t = {0};
    struct timeline_finding f[8];
    char text[200];
    t_eq(timeline_update(&t, r, 0), 0);
    t_eq(t.n, 6);
    t_near(t.share[1], 0.5, 0);
    t_near(t.share[2 * L + 1], 0, 0);
    /* layer 0: no decision is recorded as forced, so it counts as executed for every token */
    t_eq(timeline_findings(&t, f, 8), 4);
    t_str(timeline_words(text, sizeof text, 200, &t, r, &f[0]),
          "layer 0: executed for every token since step 10 (6 probes)");
    t_str(timeline_words(text, sizeof text, 200, &t, r, &f[1]),
          "layer 1: never executed since step 30 (4 probes)");
    t_str(timeline_words(text, sizeof text, 200, &t, r, &f[2]),
          "layer 3: specialised since step 40 (3 probes): punctuation 1.00, word 0.00");
    t_true(f[1].is_now && f[2].is_now && !f[3].is_now);
    t_str(timeline_words(text, sizeof text, 200, &t, r, &f[3]),
          "layer 2: executed for every token from step 10 to 30 (3 probes)");
    /* parts that do not fit are left out rather than cut */
    t_str(timeline_words(text, sizeof text, 73, &t, r, &f[2]),
          "layer 3: specialised since step 40: punctuation 1.00, word 0.00");
    t_str(timeline_words(text, sizeof text, 60, &t, r, &f[2]),
          "layer 3: specialised since step 40 (3 probes)");
    t_str(timeline_words(text, sizeof text, 40, &t, r, &f[2]),
          "layer 3: specialised since step 40");
    t_str(timeline_words(text, sizeof text, 50, &t, r, &f[0]),
          "layer 0: executed for every token since step 10");
    /* the most important ones are kept when there is little room */
    t_eq(timeline_findings(&t, f, 2), 4);
    t_eq(f[1].layer, 1);
    timeline_release(&t);
    runview_free(r);
}

T(a_layer_that_is_always_on_has_not_collapsed)
{
    struct fixture f;
    struct timeline t = {0};
    struct timeline_finding found[64];
    t_true(fixture_begin(&f));
    time_run(&f, 600, 50, 0);
    struct runview *r = finish(&f);
    t_eq(timeline_update(&t, r, 0), 0);
    t_true(t.always_on[0] && t.always_on[TIME_L - 1] && !t.always_on[1]);
    size_t n = timeline_findings(&t, found, 64);
    t_eq(n, 3);
    for (size_t i = 0; i < n; i++)
        t_true(found[i].layer == 2 || found[i].layer == 3 || found[i].layer == 5);
    timeline_release(&t);
    runview_free(r);
}

T(two_probes_in_a_row_are_not_named)
{
    struct fixture f;
    struct timeline t = {0};
    struct timeline_finding found[8];
    begin(&f);
    for (int step = 20; step <= 40; step += 10)
        probe_by_hand(&f, step);
    struct runview *r = finish(&f);
    t_eq(timeline_update(&t, r, 0), 0);
    t_eq(timeline_findings(&t, found, 8), 1); /* layer 0; layer 1 is at 0 in two probes only */
    t_eq(found[0].layer, 0);
    timeline_release(&t);
    runview_free(r);
}

T(the_class_explains_a_part_of_the_variance)
{
    static const float kind[N] = {0, 0, 0, 0, 2, 2, 2, 2};
    static const unsigned char run[3 * N] = {1, 0, 0, 0, 1, 1, 1, 0,  /* 1/4 and 3/4 */
                                             0, 0, 0, 0, 1, 1, 1, 1,  /* 0 and 1 */
                                             1, 1, 1, 1, 1, 1, 1, 1}; /* no decision */
    struct fixture f;
    begin(&f);
    fixture_probe(&f, 10, 0, 3, N, run, kind);
    fixture_probe(&f, 20, 0, 3, N, run, NULL);
    struct runview *r = finish(&f);
    /* between 0.5 of 2 = 0.25; corrected 1 - 0.75 x 7 / 6 */
    t_near(timeline_explained(r->probe[0], 0), 0.125, 1e-12);
    t_near(timeline_explained(r->probe[0], 1), 1, 1e-12);
    t_true(isnan(timeline_explained(r->probe[0], 2)));
    t_true(isnan(timeline_explained(r->probe[1], 0)));
    t_near(timeline_share(r->probe[0], 0), 0.5, 0);
    runview_free(r);
}

T(probes_that_a_resume_superseded_are_left_out)
{
    struct fixture f;
    struct timeline t = {0};
    struct fixture_head again = head;
    begin(&f);
    for (int step = 10; step <= 40; step += 10)
        probe_by_hand(&f, step);
    again.resume = 1;
    fixture_head(&f, 20, &again);
    struct runview *r = fixture_view(&f); /* before the first new probe */
    t_eq(timeline_update(&t, r, 0), 0);
    t_eq(t.n, 2);
    t_eq(t.superseded, 2);
    runview_free(r);
    probe_by_hand(&f, 30);
    r = finish(&f);
    t_eq(timeline_update(&t, r, 0), 0);
    t_eq(t.n, 3);
    t_eq(t.superseded, 2);
    t_eq(r->probe[t.at[2]]->step, 30);
    t_eq(t.at[2], 4);
    timeline_release(&t);
    runview_free(r);
}

T(new_probes_are_added_to_those_that_are_known)
{
    struct fixture f;
    struct timeline grown = {0}, fresh = {0};
    struct value body;
    struct err e = {0};
    uint64_t seq;
    struct runview *r = runview_new();
    t_true(fixture_begin(&f));
    time_run(&f, 600, 50, 1);
    for (size_t at = 0; at < f.out.len;) {
        int64_t n = record_parse(f.out.p + at, f.out.len - at, &seq, &body, &e);
        t_ok((int)n, &e);
        runview_take(r, body);
        at += (size_t)n;
        t_eq(timeline_update(&grown, r, 1), 0);
    }
    struct str out = fixture_end(&f);
    str_release(&out);
    t_eq(timeline_update(&fresh, r, 1), 0);
    t_eq(grown.n, fresh.n);
    t_eq(grown.n, 7);
    t_eq(memcmp(grown.share, fresh.share, grown.n * TIME_L * sizeof *grown.share), 0);
    t_eq(memcmp(grown.at, fresh.at, grown.n * sizeof *grown.at), 0);
    t_eq(timeline_update(&grown, r, 0), 0); /* another text */
    t_eq(grown.n, 13);
    t_eq(grown.superseded, 2);
    timeline_release(&grown);
    timeline_release(&fresh);
    runview_free(r);
}

static void write_log(struct fixture *f, const char *path)
{
    struct err e = {0};
    struct str out = fixture_end(f);
    t_true(out.len > 0);
    t_ok(fs_write_file(path, out.p, out.len, &e), &e);
    str_release(&out);
}

/* As many probes as before, at the same steps, of another training in the same file. */
T(a_log_that_is_replaced_is_read_anew)
{
    struct fixture f;
    struct runview *r = NULL;
    struct timeline t = {0};
    struct err e = {0};
    char path[1024];
    snprintf(path, sizeof path, "%s/log.mp", t_tmpdir());
    begin(&f);
    for (int step = 10; step <= 60; step += 10)
        probe_by_hand(&f, step);
    write_log(&f, path);
    t_ok(runview_open(&r, path, &e), &e);
    t_ok(runview_poll(r, 10, &e), &e);
    uint64_t life = r->life;
    t_eq(timeline_update(&t, r, 0), 0);
    t_eq(t.n, 6);
    t_near(t.share[5 * L + 1], 0, 0);
    begin(&f);
    for (int step = 10; step <= 60; step += 10) {
        unsigned char run[L * N];
        memset(run, 1, sizeof run);
        fixture_probe(&f, step, 0, L, N, run, NULL);
    }
    write_log(&f, path);
    t_ok(runview_poll(r, 10, &e), &e);
    t_true(r->life != life);
    t_eq(timeline_update(&t, r, 0), 0);
    t_eq(t.n, 6);
    t_near(t.share[5 * L + 1], 1, 0);
    timeline_release(&t);
    runview_free(r);
}

T(probes_of_earlier_probe_texts_and_of_equal_steps_stay)
{
    struct fixture f;
    struct timeline t = {0};
    begin(&f);
    probe_by_hand(&f, 10);
    probe_by_hand(&f, 20);
    probe_by_hand(&f, 20); /* one more on request */
    static const unsigned char run[L * N];
    fixture_probe(&f, 10, 1, L, N, run, NULL); /* another text starts later */
    struct runview *r = finish(&f);
    t_eq(timeline_update(&t, r, 0), 0);
    t_eq(t.n, 3);
    t_eq(t.superseded, 0);
    timeline_release(&t);
    runview_free(r);
}
