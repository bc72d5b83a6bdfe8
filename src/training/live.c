/* Settings changed while a run is running: checked against the option table, kept over a resume,
 * reverted when the run diverged under them. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fs.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "training/team.h"
#include "training/trainer.h"

/* A change by more than this factor needs confirmation. */
static const double far_factor = 10;

/* ---- the row of a setting ---- */

/* The rows with is_live of training and of the method, one after the other. */
struct place {
    struct opt_group group;
    char prefix[40]; /* of the method's group */
    const struct opt *row;
    const void *values;
    int is_method;
};

/* The i-th live row; 0 when there is none. */
static int place_at(const struct trainer *t, int i, struct place *p)
{
    const struct route *route = &t->model->route;
    for (p->is_method = 0; p->is_method < 2; p->is_method++) {
        p->group = p->is_method ? route_group(route->ops, p->prefix) : train_group;
        p->values = p->is_method ? route->opts : &t->config.train;
        for (size_t k = 0; k < p->group.n; k++) {
            p->row = &p->group.opts[k];
            if (p->row->is_live && i-- == 0)
                return 1;
        }
    }
    return 0;
}

static void full_key(const struct place *p, char *out, size_t size)
{
    snprintf(out, size, "%s%s", p->group.prefix, p->row->key);
}

/* Key "train.lr", also as "lr", and under the row's aliases. */
static int find_place(const struct trainer *t, const char *key, struct place *p)
{
    char full[128];
    for (int i = 0; place_at(t, i, p); i++) {
        snprintf(full, sizeof full, "%s%s", p->group.prefix, key);
        if (opt_find(&p->group, key) == p->row || opt_find(&p->group, full) == p->row)
            return 1;
    }
    return 0;
}

static int no_place(const struct trainer *t, const char *key, struct err *e)
{
    struct str known = {0};
    struct place p;
    for (int i = 0; place_at(t, i, &p); i++)
        str_addf(&known, "%s%s%s", i ? ", " : "", p.group.prefix, p.row->key);
    int rc = err_set(e, DS_ENOTFOUND, "%.80s: not a live setting, expected one of: %s", key,
                     str_text(&known));
    str_release(&known);
    return rc;
}

void trainer_record_live(const struct trainer *t)
{
    char key[128];
    struct place p;
    record_array(t->record, "live");
    for (int i = 0; place_at(t, i, &p); i++) {
        full_key(&p, key, sizeof key);
        record_map(t->record, NULL);
        record_str(t->record, "key", key);
        if (opt_is_limited(p.row)) {
            record_num(t->record, "min", p.row->min);
            record_num(t->record, "max", p.row->max);
        }
        record_close(t->record);
    }
    record_close(t->record);
}

int trainer_is_large_change(const struct trainer *t, const char *key, double value, char *why,
                            size_t size)
{
    char full[128], text[64];
    struct place p;
    if (!find_place(t, key, &p))
        return 0;
    opt_print(p.row, p.values, text, sizeof text);
    double now = strtod(text, NULL);
    if (!(fabs(value) > far_factor * fabs(now)) || now == 0)
        return 0;
    full_key(&p, full, sizeof full);
    snprintf(why, size, "%s = %g is %.3g times the current %g", full, value, fabs(value / now),
             now);
    return 1;
}

/* ---- setting ---- */

static int is_overridden_later(const struct live_setting *v, int n, int i)
{
    for (int k = i + 1; k < n; k++)
        if (strcmp(v[i].key, v[k].key) == 0)
            return 1;
    return 0;
}

int trainer_add_live(struct live_setting v[LIVE_MAX], int *n, const char *key, double value,
                     int64_t step)
{
    int drop = 0;
    while (*n == LIVE_MAX && drop < *n && !is_overridden_later(v, *n, drop))
        drop++;
    if (*n == LIVE_MAX && drop < *n)
        memmove(&v[drop], &v[drop + 1], (size_t)(--*n - drop) * sizeof *v);
    if (*n == LIVE_MAX)
        return 1;
    v[*n] = (struct live_setting){.value = value, .step = step};
    str_copy(v[*n].key, sizeof v[*n].key, key);
    ++*n;
    return 0;
}

/* The last entry of a key is in effect; trainer_revert_live restores the earlier ones. */
static int note_live(struct trainer *t, const char *full, double value, struct err *e)
{
    return trainer_add_live(t->live, &t->n_live, full, value, t->state.step)
               ? err_set(e, DS_ERANGE, "too many live settings")
               : 0;
}

static int check_set(const struct trainer *t, const char *key, double value, struct place *p,
                     struct err *e)
{
    union {
        int64_t whole;
        double real;
        int index;
    } unused;
    if (!isfinite(value))
        return err_set(e, DS_ERANGE, "%s: must be a finite number", key);
    if (!find_place(t, key, p))
        return no_place(t, key, e);
    struct opt alone = *p->row;
    alone.offset = 0;
    return opt_set_number(&alone, p->group.prefix, &unused, value, e);
}

int trainer_check_set(const struct trainer *t, const char *key, double value, struct err *e)
{
    struct place p;
    return check_set(t, key, value, &p, e);
}

int trainer_set(struct trainer *t, const char *key, double value, struct err *e)
{
    char full[64];
    struct place p;
    int rc = check_set(t, key, value, &p, e);
    if (rc < 0)
        return rc;
    full_key(&p, full, sizeof full);
    if ((rc = team_note_set(t, full, value, e)) < 0)
        return rc;
    rc = p.is_method ? route_set(&t->model->route, p.row, value, e)
                     : opt_set_number(p.row, p.group.prefix, &t->config.train, value, e);
    if (rc < 0)
        team_forget_set(t);
    return rc < 0 ? rc : note_live(t, full, value, e);
}

/* ---- live.json ---- */

/* Belongs to the run, not to a checkpoint, so a setting survives a kill between two checkpoints.
 * {"train.lr": [[61, "0x1p-9"], ...]}: the step after which, and the value as C writes it
 * exactly. */
static void print_live(struct str *s, const struct live_setting *v, int n)
{
    str_add(s, "{");
    for (int i = 0, keys = 0; i < n; i++) {
        int is_first = 1;
        for (int k = 0; k < i && is_first; k++)
            is_first = strcmp(v[k].key, v[i].key) != 0;
        if (!is_first)
            continue;
        str_add(s, keys++ ? ",\n  " : "\n  ");
        str_add_json(s, v[i].key, strlen(v[i].key));
        str_add(s, ": [");
        for (int k = i, same = 0; k < n; k++)
            if (strcmp(v[k].key, v[i].key) == 0)
                str_addf(s, "%s[%" PRId64 ", \"%a\"]", same++ ? ", " : "", v[k].step, v[k].value);
        str_add(s, "]");
    }
    str_add(s, "\n}\n");
}

static int write_live(const char *dir, const struct live_setting *v, int n, struct err *e)
{
    struct str s = {0};
    print_live(&s, v, n);
    return fs_replace_text(dir, "live.json", &s, e);
}

static void add_live(struct live_setting *v, int *n, const char *key, const struct json_node *value,
                     int64_t step)
{
    const char *text = json_str(value, NULL);
    if (strlen(key) >= sizeof v->key) {
        log_warn("live.json: a key of %zu bytes is not that of a setting", strlen(key));
        return;
    }
    (void)trainer_add_live(v, n, key, text ? strtod(text, NULL) : (double)NAN, step);
}

/* No settings without a file.  Older runs store one value per key and no step.  *is_lost: the file
 * cannot be read and the settings must be recovered from the log. */
static int read_live(const char *dir, struct live_setting *v, int *n, int *is_lost, struct err *e)
{
    struct err why = {0};
    char path[1200];
    const char *key;
    const struct json_node *x;
    struct json *j = NULL;
    int rc = fs_join(path, sizeof path, dir, "live.json", e);
    *n = *is_lost = 0;
    if (rc < 0 || !fs_exists(path))
        return rc;
    rc = json_read_file(&j, path, 1 << 20, &why);
    if (fs_is_unreadable(path, rc))
        return err_set(e, rc, "%s", why.text);
    if (rc < 0) {
        log_warn("%s; live settings are recovered from log.mp", why.text);
        *is_lost = 1;
        return trainer_live_from_log(dir, INT64_MAX, v, n, e);
    }
    for (void *at = NULL; rc == 0 && (x = json_next(json_root(j), &at, &key, NULL)) != NULL;) {
        if (json_kind_of(x) != JSON_KIND_ARRAY)
            add_live(v, n, key, x, 0);
        for (size_t k = 0; json_kind_of(x) == JSON_KIND_ARRAY && k < json_len(x); k++)
            add_live(v, n, key, json_at(json_at(x, k), 1), json_int(json_at(json_at(x, k), 0), 0));
    }
    json_free(j);
    return rc;
}

int trainer_keep_live(const struct trainer *t, struct err *e)
{
    return write_live(t->dir, t->live, t->n_live, e);
}

int trainer_copy_live(const char *from, const char *to, int64_t step, struct err *e)
{
    struct live_setting v[LIVE_MAX];
    int n = 0, kept = 0, is_lost, rc = read_live(from, v, &n, &is_lost, e);
    for (int i = 0; rc == 0 && i < n; i++)
        if (v[i].step < step)
            v[kept++] = v[i];
    if (rc == 0 && n == LIVE_MAX && kept < n) /* later ones may have taken the room of others */
        rc = trainer_live_from_log(from, step, v, &kept, e);
    return rc == 0 && kept > 0 ? write_live(to, v, kept, e) : rc;
}

/* 1 when the command line of this resume sets the key, under any of its names. */
static int is_overridden(const struct trainer *t, const char *key)
{
    struct place p, other;
    if (!find_place(t, key, &p))
        return 0;
    for (int i = 0; i < t->n_override; i++) {
        struct override o;
        if (override_parse(&o, t->override[i], "--resume", NULL) == 0 &&
            find_place(t, o.key, &other) && other.row == p.row)
            return 1;
    }
    return 0;
}

int trainer_apply_live(struct trainer *t, struct err *e)
{
    struct live_setting v[LIVE_MAX];
    char path[1200];
    int n = 0, is_lost, rc = read_live(t->dir, v, &n, &is_lost, e);
    for (int i = 0; rc == 0 && i < n; i++) {
        if (is_overridden(t, v[i].key))
            continue;
        rc = trainer_set(t, v[i].key, v[i].value, e);
        if (rc == 0)
            t->live[t->n_live - 1].step = v[i].step;
    }
    if (rc == 0 && is_lost)
        rc = fs_join(path, sizeof path, t->dir, "live.json", e);
    if (rc == 0 && is_lost)
        rc = trainer_rename_broken(path, e);
    if (rc == 0 && (is_lost || (n > 0 && t->n_override > 0)))
        rc = trainer_keep_live(t, e);
    t->live_differs = t->n_live < n || (n > 0 && !runlog_writer_has_head(t->log));
    return rc < 0 ? err_add(e, rc, "%s/live.json", t->dir) : 0;
}

int trainer_revert_live(struct trainer *t, int64_t step, struct str *note, struct err *e)
{
    int n = 0;
    for (int i = 0; i < t->n_live; i++) {
        const struct live_setting *s = &t->live[i];
        if (s->step < step)
            t->live[n++] = *s;
        else
            str_addf(note, "%s%s = %g", note->len ? ", " : "", s->key, s->value);
    }
    if (n == t->n_live)
        return 0;
    t->n_live = n;
    int rc = trainer_keep_live(t, e);
    return rc == 0 ? trainer_log_live(t, e) : rc;
}
