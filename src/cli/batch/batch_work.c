/* The loop of a worker: claims runs by lease, trains them in child processes, and follows those that
 * other workers train. */
#include "cli/batch/batch_work.h"

#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/pool.h"

static const double scan_s = 0.5, tick_s = 0.2;
/* Share of the patience without a renewal after which a run is asked to stop; at its end it is
 * killed, because another worker may have taken it over. */
static const double stop_share = 0.6;

struct slot {
    struct batch_unit *unit; /* NULL: free */
    struct lease lease;
    double since;
    int is_stopping;
};
struct work {
    struct batch_plan *p;
    struct batch_share *s;
    struct batch_unit *unit;
    size_t n, slots;
    struct slot *slot;
    struct batch_child *child; /* of each slot; with launch: of each worker */
    int threads;               /* of each run; 0: as its settings say */
    int retries;               /* no other worker was there: failures from before are tried again */
    int is_stopped;            /* by the process that launched us */
    int launched;              /* workers that are alive, of those started by us */
    double scanned, reached;   /* when the leases were read last, or could be read last; -1 */
    struct lease leader;
    struct err fault; /* why no run can be started any more */
};

/* ---- units ---- */

int batch_units_make(struct batch_unit **unit, size_t *n, const struct batch_plan *p, struct err *e)
{
    size_t k = 0;
    int rc = 0;
    *n = p->n * p->seeds;
    struct batch_unit *u = mem_alloc(*n + 1, sizeof *u);
    if (!u)
        return err_set(e, DS_EMEM, "%s: out of memory", p->kind);
    /* seeds in the outer loop: after the first pass every row has a result, and later passes narrow
     * the intervals */
    for (size_t s = 0; rc == 0 && s < p->seeds; s++)
        for (size_t row = 0; rc == 0 && row < p->n; row++, k++) {
            u[k].one = (struct batch_one){.row = row, .at = k + 1, .seed = p->seed[s]};
            u[k].state = p->row[row].refused[0] ? UNIT_REFUSED : UNIT_OPEN;
            if (u[k].state == UNIT_OPEN)
                rc = batch_one_resolve(&u[k].one, p, NULL, e);
        }
    *unit = u;
    return rc;
}

void batch_units_release(struct batch_unit *unit, size_t n)
{
    for (size_t i = 0; unit && i < n; i++) {
        if (unit[i].result)
            summary_release(unit[i].result);
        mem_free(unit[i].result);
        mem_free(unit[i].reason);
    }
    mem_free(unit);
}

static void say(struct work *w, const struct batch_unit *u, const char *what)
{
    batch_say(w->p, u->one.at, w->n, u->one.name, what);
}

static void fail(struct work *w, struct batch_unit *u, const char *reason)
{
    u->state = UNIT_FAILED;
    u->reason = mem_strdup(reason[0] ? reason : "not finished");
    say(w, u, reason[0] ? reason : "not finished");
}

/* Takes the result of a finished run: 1; 0 and the reason when it did not finish after all. */
static int take_result(struct work *w, struct batch_unit *u, double since, char *reason,
                       size_t size)
{
    char text[200];
    struct summary *s = mem_alloc(1, sizeof *s);
    if (!s || !batch_one_result(&u->one, s, reason, size)) {
        if (!s)
            str_copy(reason, size, "out of memory");
        mem_free(s);
        return 0;
    }
    u->result = s;
    u->state = UNIT_DONE;
    snprintf(text, sizeof text, "val loss %.4g, FLOPs %.3g (%.0f s)", s->value[SUMMARY_VAL_LOSS],
             s->value[SUMMARY_FLOPS], clock_mono() - since);
    say(w, u, text);
    return 1;
}

/* ---- starting ---- */

static void say_start(struct work *w, const struct batch_unit *u, enum batch_one_state state)
{
    static const char *const what[] = {[ONE_NEW] = "starts",
                                       [ONE_RESUME] = "resumes from its checkpoint",
                                       [ONE_DONE] = "already done",
                                       [ONE_BUSY] = "in training by another process; waiting"};
    const char *note = state == ONE_DONE ? "" : w->p->row[u->one.row].note;
    char text[300];
    snprintf(text, sizeof text, "%s%s%s", what[state], note[0] ? ", " : "", note);
    say(w, u, text);
}

static int already_done(struct work *w, struct batch_unit *u)
{
    char reason[512] = "";
    if (!w->p->how.launch)
        say_start(w, u, ONE_DONE);
    if (!take_result(w, u, clock_mono(), reason, sizeof reason))
        fail(w, u, reason);
    return 0;
}

/* The lease is ours: looks again, because its last owner may have finished, and starts. */
static int begin(struct work *w, struct batch_unit *u, struct slot *slot, struct err *e)
{
    enum batch_one_state state;
    int rc = batch_one_look(&u->one, 1, &state, e);
    if (rc == 0 && (state == ONE_DONE || state == ONE_BUSY)) {
        rc = lease_release(&slot->lease, "", e);
        return rc < 0 ? rc : state == ONE_DONE ? already_done(w, u) : 0;
    }
    if (rc == 0) {
        say_start(w, u, state);
        rc = batch_one_start(&u->one, w->p, state, w->threads, &w->child[slot - w->slot], e);
    }
    if (rc < 0) {
        lease_release(&slot->lease, "", NULL);
        return rc;
    }
    slot->unit = u;
    slot->since = clock_mono();
    slot->is_stopping = 0;
    u->state = UNIT_OURS;
    return 1;
}

/* A failure of an earlier command is tried again by the first worker of the next. */
static int may_retry(const struct work *w, const struct batch_unit *u, const struct lease_view *v)
{
    return w->p->how.index > 0 || w->launched > 0 ||
           (w->retries && u->old_failure && u->old_failure == v->mark);
}

/* Looks at an open run, and starts it if it is free and there is a slot: 1 started. */
static int try_unit(struct work *w, struct batch_unit *u, struct slot *slot, struct err *e)
{
    struct lease_view v;
    enum batch_one_state state = ONE_NEW;
    u->holder = (struct lease_view){0};
    int rc = batch_share_look(w->s, u->one.name, &v, e);
    if (rc < 0)
        return rc;
    enum lease_life life = lease_judge(&u->watch, &v);
    if (life == LEASE_ALIVE) {
        u->holder = v;
        if (w->p->how.index > 0 && (u->watch.has_moved || fs_owner_alive(v.owner) == 1)) {
            char text[200], who[120];
            snprintf(text, sizeof text, "in training by %s", batch_holder(&v, who, sizeof who));
            say(w, u, text);
            u->state = UNIT_LEFT;
        }
        return 0;
    }
    rc = batch_one_look(&u->one, 0, &state, e);
    if (rc < 0)
        return rc;
    if (state == ONE_DONE)
        return already_done(w, u);
    if (state == ONE_BUSY)
        u->holder.generation = -1; /* a process without a lease */
    else if (life == LEASE_FREE && v.note[0] && !may_retry(w, u, &v))
        fail(w, u, v.note);
    else if (slot) {
        rc = lease_claim(&slot->lease, w->s->leases, u->one.name, v.generation, w->p->how.patience,
                         e);
        if (rc == 0)
            w->scanned = -1; /* another was first: the list is old */
        return rc > 0 ? begin(w, u, slot, e) : rc;
    }
    return 0;
}

static struct slot *free_slot(struct work *w)
{
    for (size_t i = 0; i < w->slots; i++)
        if (!w->slot[i].unit)
            return &w->slot[i];
    return NULL;
}

static void tell_who_is_waited_for(struct work *w)
{
    for (size_t i = 0; i < w->n; i++) {
        struct batch_unit *u = &w->unit[i];
        char text[200], who[120];
        if (u->state != UNIT_OPEN || u->has_told || u->holder.generation == 0)
            continue;
        u->has_told = 1;
        if (u->holder.generation < 0) {
            say_start(w, u, ONE_BUSY);
            continue;
        }
        snprintf(text, sizeof text, "in training by %s%s",
                 batch_holder(&u->holder, who, sizeof who), w->p->how.launch ? "" : "; waiting");
        say(w, u, text);
    }
}

static int note_old_failures(struct work *w, struct err *e)
{
    w->retries = 1;
    for (size_t i = 0; i < w->n; i++) {
        struct batch_unit *u = &w->unit[i];
        struct lease_view v;
        if (u->state != UNIT_OPEN)
            continue;
        int rc = batch_share_look(w->s, u->one.name, &v, e);
        if (rc < 0)
            return rc;
        if (lease_judge(&u->watch, &v) == LEASE_ALIVE)
            w->retries = 0;
        if (v.generation && !v.is_held && v.note[0])
            u->old_failure = v.mark;
    }
    return 0;
}

/* Reads the leases when that is due: 1 read, 0 not due. */
static int scan(struct work *w, struct err *e)
{
    double now = clock_mono();
    if (w->scanned >= 0 && now - w->scanned < scan_s)
        return 0;
    int rc = batch_share_scan(w->s, e);
    if (rc == 0)
        w->reached = now;
    w->scanned = now;
    return rc < 0 ? rc : 1;
}

/* Goes through the open runs in order.  A free slot after it means that there is nothing to
 * start. */
static int look_and_start(struct work *w, int may_start, struct err *e)
{
    int rc = 0;
    for (size_t i = 0; rc >= 0 && i < w->n && !batch_signal; i++) {
        struct slot *slot = may_start ? free_slot(w) : NULL;
        if (w->unit[i].state != UNIT_OPEN)
            continue;
        if (!slot && w->slots > 0)
            return 0; /* the others are looked at when there is time for them */
        rc = try_unit(w, &w->unit[i], slot, e);
    }
    if (rc >= 0 && (free_slot(w) || w->slots == 0))
        tell_who_is_waited_for(w);
    return rc < 0 ? rc : 0;
}

/* ---- ending ---- */

static void take_end(struct work *w, struct slot *slot)
{
    struct batch_unit *u = slot->unit;
    struct batch_child *c = &w->child[slot - w->slot];
    char reason[512] = "";
    int failed = batch_child_end(c, reason, sizeof reason);
    slot->unit = NULL;
    if (slot->lease.fd < 0) { /* another worker has it now */
        u->state = UNIT_OPEN;
        u->watch = (struct lease_watch){0};
        w->scanned = -1;
        return;
    }
    u->state = UNIT_OPEN;
    if (!failed && take_result(w, u, slot->since, reason, sizeof reason))
        reason[0] = '\0';
    else if (!batch_signal && !w->is_stopped && !slot->is_stopping)
        fail(w, u, reason);
    else {
        say(w, u, reason[0] ? reason : "not finished");
        reason[0] = '\0'; /* an interrupted run did not fail */
    }
    lease_release(&slot->lease, u->state == UNIT_FAILED && u->reason ? u->reason : "", NULL);
}

static void renew(struct work *w, struct slot *slot)
{
    struct batch_child *c = &w->child[slot - w->slot];
    struct lease *l = &slot->lease;
    struct err why = {0};
    if (!slot->unit || l->fd < 0 || !lease_is_due(l))
        return;
    int rc = lease_renew(l, &why);
    if (rc == 0) {
        say(w, slot->unit, "its lease was taken over by another worker; stopped here");
        batch_child_signal(c, SIGKILL);
        return;
    }
    double silent = clock_mono() - l->renewed;
    if (rc > 0 || silent < stop_share * l->patience)
        return;
    if (!slot->is_stopping) {
        slot->is_stopping = 1;
        batch_child_signal(c, SIGTERM);
        if (!w->fault.code)
            (void)err_set(&w->fault, rc, "%s: cannot renew the lease of %s: %s", w->p->kind,
                          slot->unit->one.name, why.text);
    }
    if (silent >= l->patience)
        batch_child_signal(c, SIGKILL);
}

/* The process that launched this worker asks all of them to end. */
static void heed_leader(struct work *w)
{
    char name[LEASE_NAME];
    struct lease_view v;
    if (!w->s->leader[0] || w->is_stopped)
        return;
    if (batch_share_look(w->s, batch_share_leader(w->s, name), &v, NULL) < 0 || v.is_held ||
        !v.generation || strcmp(v.nonce, w->s->leader) != 0 || !v.note[0])
        return;
    w->is_stopped = 1;
    for (size_t i = 0; i < w->slots; i++)
        batch_child_signal(&w->child[i], SIGTERM);
}

static int is_open(const struct work *w)
{
    for (size_t i = 0; i < w->n; i++)
        if (w->unit[i].state == UNIT_OPEN || w->unit[i].state == UNIT_OURS)
            return 1;
    return 0;
}

static int has_children(const struct work *w)
{
    for (size_t i = 0; i < w->slots; i++)
        if (w->slot[i].unit)
            return 1;
    return 0;
}

/* One pass: starts what is free, waits a moment, takes what ended, renews.  A folder that cannot be
 * read is tolerated for as long as a lease lives. */
static void pass(struct work *w)
{
    struct err why = {0};
    int may_start = !batch_signal && !w->is_stopped && !w->fault.code;
    int rc = may_start && (free_slot(w) || w->s->leader[0]) ? scan(w, &why) : 0;
    if (rc < 0 && clock_mono() - w->reached > w->p->how.patience)
        w->fault = why;
    if (rc >= 0 && may_start) {
        heed_leader(w);
        if (free_slot(w) && !w->is_stopped && look_and_start(w, 1, &why) < 0)
            w->fault = why;
    }
    int ended = has_children(w) || (may_start && !w->fault.code)
                    ? batch_child_wait(w->child, w->slots, tick_s)
                    : -1;
    if (ended >= 0)
        take_end(w, &w->slot[ended]);
    for (size_t i = 0; i < w->slots; i++)
        renew(w, &w->slot[i]);
}

/* ---- workers that were launched ---- */

static void end_worker(struct work *w, int i)
{
    char reason[512] = "", text[600], name[32];
    w->launched--;
    if (!batch_child_end(&w->child[i], reason, sizeof reason) || batch_signal)
        return;
    snprintf(name, sizeof name, "worker %d", i + 1);
    snprintf(text, sizeof text, "%s", reason);
    batch_say(w->p, 0, w->n, name, text);
}

static int start_workers(struct work *w, int count, struct err *e)
{
    char id[BATCH_ID + LEASE_NONCE + 1], name[LEASE_NAME];
    struct lease_view v;
    int rc = batch_share_look(w->s, batch_share_leader(w->s, name), &v, e);
    if (rc == 0 && !(v.is_held && fs_owner_alive(v.owner) == 1)) {
        rc = lease_claim(&w->leader, w->s->leases, name, v.generation, w->p->how.patience, e);
        if (rc < 0)
            return rc;
    }
    if (rc == 0)
        rc =
            err_set(e, DS_EBUSY, "%s: another process launches workers at this moment", w->p->kind);
    snprintf(id, sizeof id, "%s-%s", w->s->file.id, w->leader.nonce);
    for (int i = 0; rc >= 0 && i < count && !batch_signal; i++) {
        rc = batch_launch_start(&w->child[i], w->p, id, i + 1, e);
        w->launched += rc >= 0;
    }
    return rc < 0 ? rc : 0;
}

/* Starts the workers and follows the runs until all are done or no worker is left. */
static int lead(struct work *w, struct err *e)
{
    int count = w->p->how.jobs > 0 ? w->p->how.jobs : 1, rc, ended;
    w->child = mem_alloc((size_t)count, sizeof *w->child);
    if (!w->child)
        return err_set(e, DS_EMEM, "%s: out of memory", w->p->kind);
    for (int i = 0; i < count; i++)
        w->child[i] = (struct batch_child)BATCH_CHILD_NONE;
    rc = start_workers(w, count, e);
    while (rc == 0 && w->launched > 0) {
        struct err why = {0};
        int seen = batch_signal ? 0 : scan(w, &why);
        if (seen > 0)
            rc = look_and_start(w, 0, e);
        else if (seen < 0 && clock_mono() - w->reached > w->p->how.patience)
            rc = err_set(e, why.code, "%s", why.text);
        if (batch_signal && w->leader.fd >= 0)
            lease_release(&w->leader, "stop", NULL);
        if ((ended = batch_child_wait(w->child, (size_t)count, tick_s)) >= 0)
            end_worker(w, ended);
        if (lease_is_due(&w->leader) && lease_renew(&w->leader, NULL) == 0)
            log_warn("%s: another process launches workers of this batch now", w->p->kind);
    }
    lease_release(&w->leader, rc < 0 || batch_signal ? "stop" : "", NULL);
    for (int i = 0; i < count; i++)
        if (w->child[i].slot >= 0) {
            char reason[64];
            batch_child_signal(&w->child[i], SIGTERM);
            (void)batch_child_end(&w->child[i], reason, sizeof reason);
        }
    w->launched = w->retries = 0; /* failures are final from here on */
    if (rc == 0 && !batch_signal)
        rc = batch_share_scan(w->s, e);
    if (rc == 0 && !batch_signal)
        rc = look_and_start(w, 0, e);
    size_t left = 0;
    for (size_t i = 0; i < w->n; i++)
        left += w->unit[i].state == UNIT_OPEN;
    if (rc == 0 && !batch_signal && left > 0)
        rc = err_set(e, DS_EIO,
                     "%s: %zu of %zu runs are not done and no worker is left; run the same command "
                     "again to resume",
                     w->p->kind, left, w->n);
    return rc;
}

/* ---- the whole ---- */

static int work_alone(struct work *w, struct err *e)
{
    w->slots = w->p->how.jobs > 0 ? (size_t)w->p->how.jobs : 1;
    w->slot = mem_alloc(w->slots, sizeof *w->slot);
    w->child = mem_alloc(w->slots, sizeof *w->child);
    if (!w->slot || !w->child)
        return err_set(e, DS_EMEM, "%s: out of memory", w->p->kind);
    for (size_t i = 0; i < w->slots; i++) {
        w->slot[i].lease = (struct lease)LEASE_NONE;
        w->child[i] = (struct batch_child)BATCH_CHILD_NONE;
    }
    if (w->slots > 1) {
        w->threads = pool_cpus() / (int)w->slots;
        w->threads = w->threads > 0 ? w->threads : 1;
    }
    while (has_children(w) || (is_open(w) && !batch_signal && !w->is_stopped && !w->fault.code))
        pass(w);
    return w->fault.code ? err_set(e, w->fault.code, "%s", w->fault.text) : 0;
}

/* The leases of a batch that is done are of no use to anybody. */
static void forget(struct work *w)
{
    for (size_t i = 0; i < w->n; i++)
        if (w->unit[i].state != UNIT_DONE && w->unit[i].state != UNIT_REFUSED)
            return;
    if (batch_share_scan(w->s, NULL) < 0)
        return;
    for (size_t i = 0; i < w->n; i++)
        lease_forget(w->s->leases, w->unit[i].one.name,
                     lease_list_find(&w->s->list, w->unit[i].one.name));
}

int batch_work(struct batch_plan *p, struct batch_share *s, struct batch_unit *unit, size_t n,
               struct err *e)
{
    struct work w = {.p = p, .s = s, .unit = unit, .n = n, .scanned = -1, .leader = LEASE_NONE};
    if (p->how.index > (int)n)
        return err_set(e, DS_EUSAGE, "%s: --index %d: must be at most %zu", p->kind, p->how.index,
                       n);
    for (size_t i = 0; i < n; i++)
        if (p->how.index > 0 && (int)i + 1 != p->how.index && unit[i].state == UNIT_OPEN)
            unit[i].state = UNIT_LEFT;
    int rc = batch_share_scan(s, e);
    w.reached = clock_mono();
    if (rc == 0)
        rc = note_old_failures(&w, e);
    if (rc == 0)
        rc = p->how.launch ? lead(&w, e) : work_alone(&w, e);
    if (rc == 0 && !p->how.worker)
        forget(&w);
    mem_free(w.slot);
    mem_free(w.child);
    return rc;
}
