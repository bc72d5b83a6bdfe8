/* Live settings: which are kept when there are many, and those that a log has when live.json is lost. */
#include "base/fs.h"
#include "base/json.h"
#include "io/record.h"
#include "t.h"
#include "training/trainer.h"

static struct live_setting v[LIVE_MAX];
static int n;

static int add(const char *key, double value)
{
    return trainer_add_live(v, &n, key, value, 10 + n);
}

T(the_oldest_setting_that_a_later_one_overrides_makes_room)
{
    char key[32];
    n = 0;
    t_eq(add("train.lr", 1), 0);
    t_eq(add("edp.weight", 2), 0);
    t_eq(add("train.lr", 3), 0);
    for (int i = 3; i < LIVE_MAX; i++) {
        snprintf(key, sizeof key, "key.k%d", i);
        t_eq(add(key, i), 0);
    }
    t_eq(n, LIVE_MAX);
    t_eq(add("edp.weight", 4), 0); /* train.lr = 1 goes */
    t_eq(n, LIVE_MAX);
    t_str(v[0].key, "edp.weight");
    t_near(v[0].value, 2, 0);
    t_str(v[1].key, "train.lr");
    t_near(v[1].value, 3, 0);
    t_str(v[LIVE_MAX - 1].key, "edp.weight");
    t_eq(add("key.k3", 5), 0); /* edp.weight = 2 goes */
    t_str(v[0].key, "train.lr");
    t_eq(add("another", 6), 0); /* key.k3 = 3 goes */
    t_eq(add("another.one", 7), 1);
    t_eq(n, LIVE_MAX);
    t_str(v[LIVE_MAX - 1].key, "another");
}

static void event(struct record *r, struct str *log, uint64_t seq, const char *name,
                  const char *text)
{
    struct err e = {0};
    record_begin(r, "event", (int64_t)seq, 1000);
    record_str(r, "name", name);
    if (text)
        record_str(r, "text", text);
    t_ok(record_end(r, seq, log, &e), &e);
}

T(a_log_has_the_settings_that_were_made)
{
    const char *d = t_tmpdir();
    char path[1024];
    struct record *r = record_new();
    struct str log = {0};
    struct err e = {0};
    n = 5;
    t_true(trainer_live_from_log(d, INT64_MAX, v, &n, &e) < 0); /* no log */
    t_eq(n, 0);
    event(r, &log, 1, "set", "lr 0.5");
    event(r, &log, 2, "checkpoint", "edp.weight 9");
    event(r, &log, 3, "set", "no number");
    event(r, &log, 4, "set", NULL);
    event(r, &log, 5, "set", "edp.weight 0.25");
    record_free(r);
    snprintf(path, sizeof path, "%s/log.mp", d);
    t_ok(fs_write_file(path, log.p, log.len, &e), &e);
    t_ok(trainer_live_from_log(d, INT64_MAX, v, &n, &e), &e);
    t_eq(n, 2);
    t_str(v[0].key, "train.lr"); /* its name in early logs */
    t_near(v[0].value, 0.5, 0);
    t_eq(v[0].step, 1);
    t_str(v[1].key, "edp.weight");
    t_near(v[1].value, 0.25, 0);
    t_eq(v[1].step, 5);
    r = record_new();
    event(r, &log, 6, "settings", "train.lr 0.125 after step 3; edp.weight 2 after step 4");
    event(r, &log, 7, "set", "train.lr 1");
    record_free(r);
    t_ok(fs_write_file(path, log.p, log.len, &e), &e);
    t_ok(trainer_live_from_log(d, INT64_MAX, v, &n, &e), &e);
    t_eq(n, 3); /* a list begins anew */
    t_near(v[0].value, 0.125, 0);
    t_eq(v[0].step, 3);
    t_near(v[1].value, 2, 0);
    t_eq(v[1].step, 4);
    t_near(v[2].value, 1, 0);
    str_release(&log);
}

/* Settings after steps 1, 2, ... 100; a resume from step 91 then took the last ones back. */
T(a_fork_has_what_held_at_its_step_however_many_followed)
{
    char from[1024], to[1024], path[1100], text[64];
    struct record *r = record_new();
    struct str log = {0}, live = {0}, list = {0};
    struct err e = {0};
    snprintf(from, sizeof from, "%s/from", t_tmpdir());
    snprintf(to, sizeof to, "%s/to", t_tmpdir());
    t_ok(fs_mkdirs(from, &e), &e);
    t_ok(fs_mkdirs(to, &e), &e);
    event(r, &log, 1, "set", "edp.weight 0.5");
    for (int i = 2; i <= 100; i++) {
        snprintf(text, sizeof text, "train.lr %d", i);
        event(r, &log, (uint64_t)i, "set", text);
    }
    str_add(&list, "edp.weight 0.5 after step 1");
    str_add(&live, "{\"edp.weight\": [[1, \"0.5\"]], \"train.lr\": [");
    for (int i = 92 - LIVE_MAX; i <= 90; i++) {
        str_addf(&list, "; train.lr %d after step %d", i, i);
        str_addf(&live, "%s[%d, \"%d\"]", i > 92 - LIVE_MAX ? ", " : "", i, i);
    }
    str_add(&live, "]}");
    event(r, &log, 91, "settings", str_text(&list));
    record_free(r);
    snprintf(path, sizeof path, "%s/log.mp", from);
    t_ok(fs_write_file(path, log.p, log.len, &e), &e);
    snprintf(path, sizeof path, "%s/live.json", from);
    t_ok(fs_write_file(path, live.p, live.len, &e), &e);
    const int step[] = {5, 50, 1000}, kept[] = {4, 49, LIVE_MAX};
    for (size_t i = 0; i < DS_LEN(step); i++) {
        struct json *j = NULL;
        t_ok(trainer_copy_live(from, to, step[i], &e), &e);
        snprintf(path, sizeof path, "%s/live.json", to);
        t_ok(json_read_file(&j, path, 1 << 20, &e), &e);
        const struct json_node *rate = json_get(json_root(j), "train.lr"),
                               *weight = json_get(json_root(j), "edp.weight");
        t_eq(json_len(weight), 1);
        t_eq(json_len(rate), (size_t)kept[i] - 1);
        const struct json_node *last = json_at(rate, json_len(rate) - 1);
        t_eq(json_int(json_at(last, 0), 0), step[i] < 1000 ? step[i] - 1 : 90);
        json_free(j);
    }
    str_release(&log);
    str_release(&live);
    str_release(&list);
}
