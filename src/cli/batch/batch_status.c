/* Prints what has become of the runs of a batch, and which worker trains which. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "cli/batch/batch_work.h"
#include "io/runindex.h"

struct seen {
    enum batch_state state;
    struct lease_view v;
    double step, steps;
    char reason[LEASE_NOTE];
};

static int look(struct seen *x, const struct batch_share *s, const struct batch_unit *u,
                struct err *e)
{
    struct run_row row = {0};
    struct lease_watch watch = {0};
    struct err why = {0};
    char dir[1024];
    *x = (struct seen){.step = (double)NAN, .steps = (double)NAN};
    if (u->state == UNIT_REFUSED)
        return 0;
    int rc = batch_one_dir(&u->one, dir, sizeof dir, e);
    if (rc == 0)
        rc = batch_share_look(s, u->one.name, &x->v, e);
    if (rc < 0)
        return rc;
    int has_row = run_row_read(&row, dir, &why) == 0;
    if (!has_row && why.code == DS_EMEM)
        return err_set(e, DS_EMEM, "%s", why.text);
    x->state = batch_state_of(has_row ? &row : NULL, &x->v, lease_judge(&watch, &x->v));
    if (has_row) {
        x->step = row.number[RUN_STEP];
        x->steps = row.number[RUN_STEPS];
    }
    if (x->state == BATCH_FAILED)
        str_copy(x->reason, sizeof x->reason,
                 x->v.generation && !x->v.is_held && x->v.note[0] ? x->v.note : "failed");
    run_row_release(&row);
    return 0;
}

static void add_json(struct str *out, const struct batch_unit *u, const struct seen *x)
{
    json_key(out, NULL);
    str_add(out, "{");
    json_add_int(out, "index", (int64_t)u->one.at);
    json_add_str(out, "name", u->one.name);
    json_add_int(out, "seed", u->one.seed);
    json_add_str(out, "state", batch_state_name(x->state));
    json_add_num(out, "step", x->step);
    json_add_num(out, "steps", x->steps);
    if (x->state == BATCH_RUNNING && x->v.generation && x->v.is_held) {
        json_add_str(out, "host", x->v.host);
        json_add_int(out, "pid", x->v.pid);
    }
    if (x->reason[0])
        json_add_str(out, "reason", x->reason);
    str_add(out, "}");
}

static void add_row(struct table *t, const struct batch_unit *u, const struct seen *x)
{
    char who[120] = "";
    table_add(t, u->one.name);
    table_add(t, batch_state_name(x->state));
    if (isfinite(x->step) && isfinite(x->steps))
        table_addf(t, "%.0f/%.0f", x->step, x->steps);
    else
        table_add(t, "");
    if (x->state == BATCH_RUNNING && x->v.generation && x->v.is_held)
        batch_holder(&x->v, who, sizeof who);
    else if (x->state == BATCH_RUNNING)
        str_copy(who, sizeof who, "a process without a lease");
    table_add(t, x->reason[0] ? x->reason : who);
}

static void add_workers(struct str *out, const struct batch_progress *b)
{
    json_key(out, "workers");
    str_add(out, "[");
    for (size_t i = 0; i < b->workers; i++) {
        json_key(out, NULL);
        str_add(out, "{");
        json_add_str(out, "host", b->worker[i].host);
        json_add_int(out, "pid", b->worker[i].pid);
        json_add_int(out, "runs", (int64_t)b->worker[i].runs);
        str_add(out, "}");
    }
    str_add(out, "]");
}

int batch_status(struct batch_plan *p, struct batch_share *s, const struct batch_unit *unit,
                 size_t n, struct err *e)
{
    struct str out = {0}, runs = {0}, workers = {0};
    struct table t;
    struct batch_progress b = {0};
    int rc = lease_list_read(&s->list, s->leases, e);
    table_init(&t, 4);
    static const char *const title[] = {"run", "state", "step", "worker"};
    for (size_t i = 0; i < DS_LEN(title); i++)
        table_add(&t, title[i]);
    for (size_t i = 0; rc == 0 && i < n; i++) {
        struct seen x;
        if (unit[i].state == UNIT_REFUSED)
            continue;
        rc = look(&x, s, &unit[i], e);
        batch_progress_add(&b, x.state, &x.v);
        add_json(&runs, &unit[i], &x);
        add_row(&t, &unit[i], &x);
    }
    if (p->json) {
        str_add(&out, "{");
        json_add_str(&out, "kind", p->kind);
        json_add_str(&out, "preset", p->preset);
        json_add_str(&out, "folder", s->folder);
        for (int i = 0; i < BATCH_STATES; i++)
            json_add_int(&out, batch_state_name((enum batch_state)i), (int64_t)b.count[i]);
        add_workers(&out, &b);
        str_addf(&out, ",\"runs\":[%s]}\n", str_text(&runs));
    } else {
        table_fit(&t, &out, cli_columns(0), (const int[]){0, 0, 1, 2});
        str_addf(&out, "%s %s: ", p->kind, p->preset);
        batch_progress_text(&out, &b);
        batch_workers_text(&workers, &b);
        if (workers.len)
            str_addf(&out, "; workers: ");
        cli_add_safe(&out, str_text(&workers), workers.len, -1);
        str_add(&out, "\n");
    }
    if (rc == 0 && (runs.failed || workers.failed || t.failed))
        rc = err_set(e, DS_EMEM, "%s: out of memory", p->kind);
    if (rc == 0)
        rc = cli_write_text(&out, e);
    table_release(&t);
    str_release(&runs);
    str_release(&workers);
    str_release(&out);
    return rc;
}
