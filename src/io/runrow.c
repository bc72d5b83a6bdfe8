/* Reads one run into a row: its first and last records, and samples of the loss between them.  The
 * work is bounded whatever the size of the log; frames are followed by their heads, large ones are
 * stepped over unread. */
#include <fcntl.h>
#include <float.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fs.h"
#include "base/json.h"
#include "base/mem.h"
#include "io/alert.h"
#include "io/foreign.h"
#include "io/frames.h"
#include "io/metric.h"
#include "io/runconfig.h"
#include "io/runindex.h"
#include "io/runlog.h"
#include "io/system.h"

enum {
    FIRST_FRAMES = 96, /* logs of fewer frames, or up to SMALL, are followed from end to end */
    SAMPLES = 24,      /* of the loss, in longer ones, */
    SAMPLES_READ_MAX = 128 << 10, /* reading as many bytes */
    SMALL = 64 << 10,             /* logs up to here are read at once */
    TAIL_FRAMES = 4096,           /* followed from one offset near the end */
    TAIL_BACK_MAX = 64 << 20,
    TAIL_READ_MAX = 256 << 10, /* bytes read for the newest validation, four times as many for a */
    POINTS = 1024,             /* run that is known to validate */
    AFTER_EVAL = 8             /* metric records after the final evaluation, at most */
};

static const unsigned every_rule = (1U << ALERT_RULES) - 1;

struct point {
    int64_t step;
    float loss;
};

/* The numbers of a row, and where each comes from. */
struct numbers {
    double value[RUN_NUMBERS];
    uint64_t from[RUN_NUMBERS]; /* offset + 1 of the record */
    int rank[RUN_NUMBERS];      /* its source: 0 metric, then the tasks of evaluations */
};

struct scan {
    struct run_row *row;
    struct frames frames;
    uint64_t end;               /* where zeros after the last record begin */
    uint64_t head;              /* offset of the newest head so far */
    uint64_t from[RUN_NUMBERS]; /* as struct numbers */
    int rank[RUN_NUMBERS];
    struct numbers later; /* what the parts after this one say */
    struct point point[POINTS];
    int points;
    uint64_t losses, every; /* of the losses in another program's log, every how many is a point */
    int is_last_pass;       /* records are taken in order up to the end */
    int knows_pause;        /* 1: whether the run is paused, by a later part; 2: by this one */
    int has_val, has_eval, metrics;
    uint64_t metric;  /* offset of the first metric record of what was read */
    unsigned alerts;  /* as RUN_ALERTS */
    unsigned unread;  /* rules of which nothing was read, */
    unsigned settled; /* and those of which a later part says something */
    int is_foreign;   /* a log of another program */
    int has_writer;   /* the head names one: not our own trainer, which uses no GPU */
    double step_ms[ETA_STEPS], share[2];
    size_t steps;
    struct {
        double time;
        int64_t step;
    } first, last; /* metric records of the last process */
};

/* ---- records ---- */

static void put(struct scan *s, enum run_number which, uint64_t off, int rank, double x)
{
    if (!isfinite(x) || s->rank[which] > rank || (s->rank[which] == rank && s->from[which] > off))
        return;
    if (off < s->head && s->from[which] > s->head) /* of an earlier process */
        return;
    s->row->number[which] = x;
    s->rank[which] = rank;
    s->from[which] = off + 1;
}

static void take_text(char *out, size_t size, struct value v)
{
    size_t n;
    if (value_bytes(v, &n)) /* what a later head leaves out stays */
        value_copy(out, size, v);
}

/* A head that is found after what follows it says only what the run is. */
static void take_head(struct scan *s, struct value body, uint64_t off)
{
    struct run_row *row = s->row;
    /* what follows is another process: an earlier final evaluation is that of another length */
    for (int i = RUN_VAL_LOSS; i <= RUN_TIME_RATIO; i++)
        s->rank[i] = s->from[i] <= off ? 0 : s->rank[i];
    if (!s->is_last_pass && off <= s->head)
        return;
    s->head = off;
    for (int i = 0; !s->is_last_pass && i < RUN_NUMBERS; i++)
        if (s->later.from[i] > 0) { /* newer than any of the process that ended here */
            row->number[i] = s->later.value[i];
            s->from[i] = s->later.from[i];
            s->rank[i] = s->later.rank[i];
        }
    /* another program's log has a head for all that becomes known: only a resume begins a process */
    int is_begin = !s->is_foreign || value_num(value_get(body, "resume"), 0) > 0;
    if (is_begin)
        s->alerts &= s->settled | ALERT_BAD_LOSS; /* none holds before a process begins */
    s->unread = 0;
    take_text(row->method, sizeof row->method, value_get(body, "method"));
    take_text(row->host, sizeof row->host, value_get(body, "host"));
    take_text(row->run_id, sizeof row->run_id, value_get(body, "run_id"));
    take_text(row->parent, sizeof row->parent, value_get(body, "parent"));
    row->number[RUN_SEED] = value_num(value_get(body, "seed"), row->number[RUN_SEED]);
    row->number[RUN_PID] = value_num(value_get(body, "pid"), row->number[RUN_PID]);
    s->has_writer = value_kind(value_get(body, "writer")) == VALUE_STR;
    if (!s->is_last_pass) {
        row->phase.steps_planned = value_int(value_get(body, "steps"), row->phase.steps_planned);
        return;
    }
    if (!is_begin)
        return;
    s->steps = 0; /* the speed of a process is its own */
    s->first.step = s->last.step = -1;
    s->alerts = 0;
}

static void take_point(struct scan *s, int64_t step, double loss)
{
    if (step < 0 || !(fabs(loss) <= (double)FLT_MAX))
        return;
    if (s->is_foreign && s->losses++ % s->every != 0)
        return; /* it is read from end to end: its points are spread evenly over it */
    if (s->points == POINTS) { /* every second one says the same at half the cost */
        for (int i = 0; i < POINTS / 2; i++)
            s->point[i] = s->point[2 * i];
        s->points = POINTS / 2;
        s->every *= 2;
    }
    s->point[s->points++] = (struct point){step, (float)loss};
}

/* The numbers of a metric record that a row shows, found in one pass over its keys. */
enum metric_key {
    METRIC_STEP,
    METRIC_TIME,
    METRIC_LOSS,
    METRIC_VAL_LOSS,
    METRIC_FLOPS,
    METRIC_TIME_RATIO,
    METRIC_TOK_S,
    METRIC_MFU,
    METRIC_STEP_MS,
    METRIC_EVALUATION,
    METRIC_CHECKPOINT,
    METRIC_KEYS
};

/* Returns the keys that are there, NaN included, as a set. */
static unsigned read_metric(double out[METRIC_KEYS], struct value body)
{
    static const char *const name[METRIC_KEYS] = {
        "step",  "time", "loss",    "val_loss",         "flops_ratio",     "time_ratio",
        "tok_s", "mfu",  "step_ms", "evaluation_share", "checkpoint_share"};
    struct value_iter it = {0};
    struct value key, item;
    unsigned has = 0;
    for (int k = 0; k < METRIC_KEYS; k++)
        out[k] = (double)NAN;
    while (value_next(body, &it, &key, &item)) {
        size_t n = 0;
        const char *p = value_bytes(key, &n);
        for (int k = 0; n > 0 && k < METRIC_KEYS; k++)
            if (p[0] == name[k][0] && n == strlen(name[k]) && memcmp(p, name[k], n) == 0)
                has |= value_is_num(item, &out[k]) ? 1U << k : 0;
    }
    return has;
}

static void take_loss(struct scan *s, double loss)
{
    s->alerts &= ~(unsigned)ALERT_BAD_LOSS;
    s->alerts |= isfinite(loss) ? 0 : (unsigned)ALERT_BAD_LOSS;
}

static void take_metric(struct scan *s, struct value body, uint64_t off)
{
    static const struct {
        enum metric_key key;
        enum run_number to;
    } row[] = {{METRIC_VAL_LOSS, RUN_VAL_LOSS}, {METRIC_LOSS, RUN_LOSS},
               {METRIC_FLOPS, RUN_FLOPS_RATIO}, {METRIC_TIME_RATIO, RUN_TIME_RATIO},
               {METRIC_TOK_S, RUN_TOK_S},       {METRIC_MFU, RUN_MFU}};
    double x[METRIC_KEYS];
    unsigned has = read_metric(x, body);
    int64_t step = x[METRIC_STEP] >= 0 && x[METRIC_STEP] < 9e15 ? (int64_t)x[METRIC_STEP] : -1;
    for (size_t i = 0; i < DS_LEN(row); i++)
        put(s, row[i].to, off, 0, x[row[i].key]);
    take_point(s, step, x[METRIC_LOSS]);
    s->has_val |= isfinite(x[METRIC_VAL_LOSS]);
    s->metric = s->metrics++ == 0 || off < s->metric ? off : s->metric;
    if (!s->is_last_pass)
        return;
    if (has & 1U << METRIC_LOSS)
        take_loss(s, x[METRIC_LOSS]);
    if (isfinite(x[METRIC_STEP_MS]))
        s->step_ms[s->steps++ % ETA_STEPS] = x[METRIC_STEP_MS];
    for (int i = 0; i < 2; i++)
        s->share[i] = isfinite(x[METRIC_EVALUATION + i]) ? x[METRIC_EVALUATION + i] : s->share[i];
    s->last.step = step;
    s->last.time = x[METRIC_TIME];
    if (s->first.step < 0)
        s->first = s->last;
}

/* Results with inference-time decisions; the final evaluation counts before any other. */
static void take_eval(struct scan *s, struct value body, uint64_t off)
{
    static const char *const task[] = {"val", "ppl", "final"};
    size_t rank = 0;
    while (rank < DS_LEN(task) && !value_is(value_get(body, "task"), task[rank]))
        rank++;
    if (rank == DS_LEN(task) || !value_is(value_get(body, "routing"), "causal"))
        return;
    int r = (int)rank + 1;
    put(s, RUN_VAL_LOSS, off, r, value_num(value_get(body, "loss"), (double)NAN));
    put(s, RUN_FLOPS_RATIO, off, r, value_num(value_get(body, "flops_ratio"), (double)NAN));
    put(s, RUN_TIME_RATIO, off, r, value_num(value_get(body, "time_ratio"), (double)NAN));
    s->has_val = s->has_eval = 1;
}

static void take_event(struct scan *s, struct value body)
{
    int alert = alert_of_event(body), rule = (alert < 0 ? -alert : alert) - 1;
    unsigned bit = rule >= 0 ? 1U << rule : 0;
    if (bit & s->settled)
        return;
    s->alerts = alert > 0 ? s->alerts | bit : s->alerts & ~bit;
    s->unread &= ~bit;
}

static void take_system(struct scan *s, struct value body, uint64_t off)
{
    struct machine_sample m;
    double use = (double)NAN;
    system_read(&m, body);
    for (int i = 0; i < m.gpus; i++)
        use = isnan(use) || m.gpu[i].use > use ? m.gpu[i].use : use;
    put(s, RUN_DISK_FREE, off, 0, m.disk_free);
    if (s->has_writer)
        put(s, RUN_GPU_USE, off, 0, use);
}

/* A paused run may log on, as of its machine: what paused it may be in an earlier part. */
static void take_pause(struct scan *s, struct value kind, struct value body)
{
    struct value name = value_get(body, "name");
    int is_pause = value_is(kind, "event") && value_is(name, "pause");
    if (s->knows_pause == 1 ||
        !(is_pause || (value_is(kind, "event") && value_is(name, "resume")) ||
          value_is(kind, "metric") || value_is(kind, "head") || value_is(kind, "end")))
        return;
    s->knows_pause = 2;
    s->row->phase.is_paused = is_pause;
}

static void take(struct scan *s, struct value body, uint64_t off)
{
    struct value kind = value_get(body, "kind");
    if (s->is_last_pass)
        run_phase_update(&s->row->phase, body);
    take_pause(s, kind, body);
    if (value_is(kind, "metric"))
        take_metric(s, body, off);
    else if (value_is(kind, "eval"))
        take_eval(s, body, off);
    else if (value_is(kind, "head"))
        take_head(s, body, off);
    else if (value_is(kind, "event"))
        take_event(s, body);
    else if (value_is(kind, "system") && s->is_last_pass)
        take_system(s, body, off);
}

/* Takes frames from `off` until `to`, at most `max`; returns where it stopped: `to` or beyond, or
 * short of it after `max` frames or long damage.  *at_end: what follows has not been written
 * yet. */
static uint64_t follow(struct scan *s, uint64_t off, uint64_t to, int max, int *at_end)
{
    *at_end = 0;
    for (int i = 0; i < max && off < to; i++) {
        struct value body;
        int64_t whole = frames_at(&s->frames, off, &body);
        if (whole > 0) {
            take(s, body, off);
            off += (uint64_t)whole;
            continue;
        }
        /* a torn end, unless a whole frame follows: then the length itself is damaged */
        uint64_t next = frames_sync(&s->frames, off + 1, to);
        if (next == to && (whole == 0 || to - off <= FRAMES_SYNC)) {
            *at_end = 1;
            return off;
        }
        if (next == to)
            return off;
        off = next;
    }
    *at_end = off >= to;
    return off;
}

/* ---- the log ---- */

/* The first metric record with a loss at or after `off`, a few frames on. */
static void sample_at(struct scan *s, uint64_t off, uint64_t to)
{
    off = frames_sync(&s->frames, off, to);
    for (int i = 0, points = s->points; i < 12 && off < to && s->points == points; i++) {
        struct value body;
        int64_t whole = frames_at(&s->frames, off, &body);
        if (whole <= 0)
            return;
        if (value_is(value_get(body, "kind"), "metric"))
            take_point(s, value_int(value_get(body, "step"), -1),
                       value_num(value_get(body, "loss"), (double)NAN));
        s->has_val |= value_kind(value_get(body, "val_loss")) != VALUE_NONE;
        off += (uint64_t)whole;
    }
}

static int knows_enough(const struct scan *s, uint64_t bytes)
{
    int has_val = isfinite(s->row->number[RUN_VAL_LOSS]) && s->from[RUN_VAL_LOSS] > 0;
    /* the evaluation that a validation loss is of precedes it, and counts before its FLOPs */
    int is_before = s->metric + 1 >= s->from[RUN_VAL_LOSS];
    int may_have_eval =
        !s->has_eval && (is_before || (s->row->phase.has_end && s->metrics < AFTER_EVAL));
    if (s->metrics > 0 && has_val && !may_have_eval)
        return 1;
    return bytes > (s->has_val ? 4 : 1) * (uint64_t)TAIL_READ_MAX;
}

static struct numbers numbers_of(const struct scan *s)
{
    struct numbers x;
    memcpy(x.value, s->row->number, sizeof x.value);
    memcpy(x.from, s->from, sizeof x.from);
    memcpy(x.rank, s->rank, sizeof x.rank);
    return x;
}

/* The last records, from further and further before the end until they hold what a row shows.
 * Returns 1 when all records from `from` on were read. */
static int read_tail(struct scan *s, uint64_t from)
{
    uint64_t known = s->end, before = s->frames.bytes_read;
    int is_first = 1, at_end;
    for (uint64_t back = FRAMES_BLOCK; back <= TAIL_BACK_MAX; back *= 4) {
        uint64_t lo = s->end - from > back ? s->end - back : from;
        uint64_t start = lo == from ? from : frames_sync(&s->frames, lo, known);
        if (start < known) {
            s->is_last_pass = is_first;
            s->settled = is_first ? 0 : every_rule & ~s->unread;
            s->later = numbers_of(s);
            s->knows_pause = s->knows_pause > 0;
            follow(s, start, known, TAIL_FRAMES, &at_end);
            known = start;
            is_first = 0;
        }
        if (lo == from || (!is_first && knows_enough(s, s->frames.bytes_read - before)))
            return lo == from;
    }
    return 0;
}

/* Values that a later part of the log may replace; the first part is no longer the newest. */
static void forget_newest(struct scan *s)
{
    static const enum run_number newest[] = {RUN_LOSS,        RUN_TOK_S,      RUN_MFU,
                                             RUN_FLOPS_RATIO, RUN_TIME_RATIO, RUN_VAL_LOSS};
    for (size_t i = 0; i < DS_LEN(newest); i++) {
        s->row->number[newest[i]] = (double)NAN;
        s->rank[newest[i]] = 0;
        s->from[newest[i]] = 0;
    }
    s->row->phase.has_end = s->row->phase.is_paused = s->knows_pause = 0;
    s->alerts = 0;
    s->unread = every_rule & ~(1U << ALERT_OTHER); /* each one of a script is news */
    s->has_eval = s->metrics = 0;
    s->steps = 0;
    s->first.step = s->last.step = -1;
}

static void read_log(struct scan *s)
{
    int at_end;
    s->is_last_pass = 1;
    /* small logs are in memory as a whole */
    uint64_t done = follow(s, 0, s->end, s->frames.size <= SMALL ? SMALL : FIRST_FRAMES, &at_end);
    if (at_end)
        return;
    struct numbers first = numbers_of(s);
    int was_paused = s->row->phase.is_paused;
    forget_newest(s);
    uint64_t before = s->frames.bytes_read;
    /* 7 and 24 have no common factor: the samples are spread evenly however many there are */
    for (int i = 0; i < SAMPLES && s->frames.bytes_read - before < SAMPLES_READ_MAX; i++)
        sample_at(s, done + (s->end - done) / SAMPLES * (uint64_t)(i * 7 % SAMPLES), s->end);
    if (!read_tail(s, done))
        return;
    s->row->phase.is_paused = s->knows_pause ? s->row->phase.is_paused : was_paused;
    for (int i = 0; i < RUN_NUMBERS; i++) { /* where nothing is newer, or what is counts less */
        int is_above = s->head < done && first.rank[i] > s->rank[i];
        if ((s->from[i] == 0 || is_above) && first.from[i] > 0)
            s->row->number[i] = first.value[i];
    }
}

/* The mean of the points of each of RUN_ROW_SPARK equal ranges of steps; ranges without points are
 * left out. */
static void make_spark(struct scan *s)
{
    double sum[RUN_ROW_SPARK] = {0};
    int count[RUN_ROW_SPARK] = {0};
    int64_t lo = INT64_MAX, hi = -1;
    for (int i = 0; i < s->points; i++) {
        lo = s->point[i].step < lo ? s->point[i].step : lo;
        hi = s->point[i].step > hi ? s->point[i].step : hi;
    }
    for (int i = 0; i < s->points; i++) {
        double part = hi > lo ? (double)(s->point[i].step - lo) / (double)(hi - lo) : 0;
        int k = (int)(part * (RUN_ROW_SPARK - 1) + 0.5);
        sum[k] += (double)s->point[i].loss;
        count[k]++;
    }
    for (int k = 0; k < RUN_ROW_SPARK; k++)
        if (count[k])
            s->row->spark[s->row->sparks++] = (float)(sum[k] / count[k]);
}

static void estimate_end(struct scan *s)
{
    struct run_row *row = s->row;
    double left = (double)(row->phase.steps_planned - row->phase.step);
    double share = 0, per_step = (double)(s->last.step - s->first.step);
    if (row->state != RUN_LIVE || left <= 0)
        return;
    for (int i = 0; i < 2; i++)
        share += isfinite(s->share[i]) ? s->share[i] : 0;
    if (s->steps > 0) {
        row->number[RUN_ETA] =
            eta_seconds(s->step_ms, s->steps < ETA_STEPS ? s->steps : ETA_STEPS, share, left);
    } else if (s->first.step >= 0 && per_step > 0) { /* foreign logs: from the times of records */
        double ms = 1e3 * (s->last.time - s->first.time) / per_step;
        row->number[RUN_ETA] = eta_seconds(&ms, 1, 0, left);
    }
}

/* A resume that asked for more steps, in a part of a long log that was not read. */
static void extend_plan(struct run_row *row)
{
    struct run_phase *p = &row->phase;
    struct err ignored = {0};
    int64_t steps = 0;
    const struct opt o = {.key = "steps", .type = OPT_INT, .help = ""};
    const char *text = p->steps_planned > 0 && p->step > p->steps_planned
                           ? run_row_config(row, "train.steps")
                           : NULL;
    if (text && opt_set(&o, &steps, text, "config.yaml", &ignored) == 0 && steps > p->steps_planned)
        p->steps_planned = steps;
}

/* Zeros after the last record are what a crash leaves. */
static uint64_t end_of_data(int fd, uint64_t size, const char *path)
{
    unsigned char last[16];
    uint64_t end = size;
    if (size < sizeof last || fs_pread(fd, last, sizeof last, size - sizeof last) < 16)
        return size;
    for (size_t i = 0; i < sizeof last; i++)
        if (last[i])
            return size;
    if (fs_nonzero_end(fd, 0, size, 16 << 20, &end, path, NULL) < 0)
        return size;
    return size - end > 8 ? end + 8 : size; /* a record may end with zeros of its own */
}

static int scan_log(struct run_row *row, const char *log, struct err *e)
{
    struct stat st;
    struct scan *s = mem_alloc(1, sizeof *s);
    int fd = -1, rc = s ? fs_open_read(&fd, log, e) : err_set(e, DS_EMEM, "%s: out of memory", log);
    if (rc == 0 && fs_fstat(fd, &st) != 0)
        rc = err_errno(e, "stat %s", log);
    if (rc == 0) {
        *s = (struct scan){.row = row, .frames = {.fd = fd, .size = (uint64_t)st.st_size}};
        s->first.step = s->last.step = -1;
        s->share[0] = s->share[1] = (double)NAN;
        s->end = end_of_data(fd, s->frames.size, log);
        size_t got;
        if (s->frames.size <= SMALL)
            (void)frames_peek(&s->frames, 0, (size_t)s->frames.size, &got);
        read_log(s);
        row->is_live = runlog_is_locked(log);
        row->state = run_phase_state(&row->phase, row->is_live, clock_wall());
        row->last_time = row->phase.last_time;
        row->number[RUN_ALERTS] = s->alerts;
        row->alerts_unread = s->unread;
        make_spark(s);
        extend_plan(row);
        estimate_end(s);
        if (s->frames.no_memory)
            rc = err_set(e, DS_EMEM, "%s: out of memory", log);
    }
    if (fd >= 0)
        fs_close(fd);
    if (s) {
        row->bytes_read = s->frames.bytes_read;
        row->reads = s->frames.reads;
        frames_release(&s->frames);
    }
    mem_free(s);
    return rc;
}

/* ---- logs of other programs ---- */

static void finish(struct run_row *row);

/* Such a log is read from its beginning, once: what is new is taken at each poll. */
struct run_follow {
    struct foreign_reader *reader;
    struct scan scan;
    uint64_t taken;
    int rank[METRIC_KEYS]; /* of the name that each number comes from: another may be better */
    signed char *key;      /* enum metric_key + 1 of a name's id, 0 = not looked at, -1 = none */
    int *key_rank;
    size_t ids;
};

static void follow_reset(struct run_row *row, struct run_follow *f)
{
    struct scan *s = &f->scan;
    row->phase = (struct run_phase){0};
    row->last_time = 0;
    for (int i = 0; i < RUN_NUMBERS; i++)
        row->number[i] = (double)NAN;
    *s = (struct scan){.row = row, .is_last_pass = 1, .is_foreign = 1, .every = 1};
    s->first.step = s->last.step = -1;
    s->share[0] = s->share[1] = (double)NAN;
    for (int k = 0; k < METRIC_KEYS; k++)
        f->rank[k] = INT32_MAX;
}

/* The metric that a name stands for, -1: none that a row shows, or a better name for it is known. */
static int key_of_point(struct run_follow *f, const struct foreign_point *p)
{
    static const char *const name[METRIC_KEYS] = {[METRIC_LOSS] = "loss",
                                                  [METRIC_VAL_LOSS] = "val_loss",
                                                  [METRIC_TOK_S] = "tok_s",
                                                  [METRIC_MFU] = "mfu"};
    if (p->id >= f->ids) {
        size_t n = (size_t)p->id + 64;
        signed char *key = mem_realloc(f->key, n, sizeof *key);
        f->key = key ? key : f->key;
        int *rank = key ? mem_realloc(f->key_rank, n, sizeof *rank) : NULL;
        f->key_rank = rank ? rank : f->key_rank;
        if (!rank)
            return -1;
        memset(f->key + f->ids, 0, n - f->ids);
        f->ids = n;
    }
    if (f->key[p->id] == 0) {
        int rank = 0;
        const char *canonical = metric_canonical(p->name, &rank);
        f->key[p->id] = -1;
        for (int k = 0; k < METRIC_KEYS; k++)
            if (name[k] && strcmp(canonical ? canonical : p->name, name[k]) == 0) {
                f->key[p->id] = (signed char)(k + 1);
                f->key_rank[p->id] = canonical ? rank : -1;
            }
    }
    int k = f->key[p->id] - 1;
    if (k < 0 || f->key_rank[p->id] > f->rank[k])
        return -1;
    f->rank[k] = f->key_rank[p->id];
    return k;
}

static void take_points(struct run_row *row, struct run_follow *f, const struct foreign_point *p,
                        size_t n)
{
    static const enum run_number to[METRIC_KEYS] = {[METRIC_LOSS] = RUN_LOSS,
                                                    [METRIC_VAL_LOSS] = RUN_VAL_LOSS,
                                                    [METRIC_TOK_S] = RUN_TOK_S,
                                                    [METRIC_MFU] = RUN_MFU};
    struct scan *s = &f->scan;
    for (size_t i = 0; i < n; i++) {
        int k = key_of_point(f, &p[i]);
        if (k >= 0)
            put(s, to[k], (uint64_t)p[i].step, 0, p[i].value);
        if (k == METRIC_LOSS) {
            take_point(s, p[i].step, p[i].value);
            take_loss(s, p[i].value);
        }
        if (p[i].step > row->phase.step)
            row->phase.step = p[i].step;
        if (!isnan(p[i].time))
            row->phase.last_time = p[i].time;
        if (s->first.step < 0 || p[i].step > s->last.step) {
            s->last.step = p[i].step;
            s->last.time = p[i].time;
        }
        if (s->first.step < 0)
            s->first = s->last;
    }
    row->phase.is_log = 1;
    row->phase.records += n;
}

static void follow_free(struct run_follow *f)
{
    if (!f)
        return;
    foreign_reader_close(f->reader);
    mem_free(f->key);
    mem_free(f->key_rank);
    mem_free(f);
}

/* What follows from the points and records taken so far. */
static void follow_finish(struct run_row *row, struct run_follow *f)
{
    row->modified = foreign_modified(f->reader);
    struct run_phase phase = row->phase;
    if (row->modified > phase.last_time) /* not every program logs times */
        phase.last_time = row->modified;
    row->last_time = phase.last_time;
    row->state = run_phase_state(&phase, 0, clock_wall());
    row->is_live = row->state == RUN_LIVE;
    row->number[RUN_ETA] = (double)NAN;
    row->number[RUN_ALERTS] = f->scan.alerts;
    row->sparks = 0;
    make_spark(&f->scan);
    estimate_end(&f->scan);
    row->bytes_read = foreign_position(f->reader);
}

/* Tags and note of the user, where the log is a folder. */
static void follow_notes(struct run_row *row)
{
    struct stat dir;
    if (fs_stat(row->path, &dir) != 0 || !S_ISDIR(dir.st_mode) ||
        (dir.st_mtim.tv_sec == row->seen.dir.tv_sec &&
         dir.st_mtim.tv_nsec == row->seen.dir.tv_nsec && row->bytes_read > 0))
        return;
    row->seen.dir = dir.st_mtim;
    (void)!run_notes_read(&row->notes, row->path, NULL);
}

/* Settings, messages and results may come late and out of order: they are not where the run is.
 * Only a writer that says it starts again does so below the newest step. */
static void take_record(struct run_row *row, struct run_follow *f, struct value body)
{
    struct scan *s = &f->scan;
    int64_t step = row->phase.step;
    double time = row->phase.last_time;
    take(s, body, ++f->taken);
    if (!value_is(value_get(body, "kind"), "head") ||
        value_num(value_get(body, "resume"), 0) <= 0) {
        row->phase.step = row->phase.step > step ? row->phase.step : step;
        row->phase.last_time = row->phase.last_time > time ? row->phase.last_time : time;
        return;
    }
    for (int i = 0; i < RUN_NUMBERS; i++) /* superseded: the next value is newer */
        s->from[i] = 0;
}

int run_row_poll(struct run_row *row, size_t bytes)
{
    struct run_follow *f = row->follow;
    struct runlog_entry entry;
    int rc = 0, changed = 0;
    uint64_t start = foreign_position(f->reader);
    enum run_state before = row->state;
    f->scan.row = row; /* rows may be moved */
    follow_notes(row);
    row->is_behind = 0;
    foreign_limit(f->reader, bytes);
    while (!row->is_behind && (rc = foreign_next(f->reader, &entry, NULL)) > 0) {
        if (entry.is_reset)
            follow_reset(row, f);
        else if (entry.points)
            take_points(row, f, entry.point, entry.points);
        else if (!entry.is_gap)
            take_record(row, f, entry.body);
        changed = 1;
        row->is_behind = bytes && foreign_position(f->reader) > start + bytes;
    }
    row->is_behind |= rc == 0 && foreign_is_behind(f->reader);
    follow_finish(row, f);
    finish(row);
    return changed || row->state != before;
}

/* DS_ENOTFOUND: `path` is not another program's log. */
static int follow_open(struct run_row *row, const char *path, size_t bytes, struct err *e)
{
    struct run_follow *f = mem_alloc(1, sizeof *f);
    int rc = f ? foreign_reader_open(&f->reader, path, e)
               : err_set(e, DS_EMEM, "%s: out of memory", path);
    if (rc < 0) {
        mem_free(f);
        return rc;
    }
    foreign_wants_points(f->reader);
    row->follow = f;
    row->format = foreign_reader_format(f->reader)->title;
    row->is_nested = foreign_reader_format(f->reader)->is_nested;
    follow_reset(row, f);
    (void)run_row_poll(row, bytes);
    return 0;
}

/* ---- the directory ---- */

/* A row may lack what cannot be read, but not for want of memory. */
static int memory_only(int rc, const struct err *why, struct err *e)
{
    return rc == DS_EMEM ? err_set(e, rc, "%s", why->text) : 0;
}

static int read_meta(struct run_row *row, const char *dir, struct err *e)
{
    char path[1100];
    struct json *j = NULL;
    struct err why = {0};
    if (fs_join(path, sizeof path, dir, "meta.json", NULL) < 0 || !fs_exists(path))
        return 0;
    int rc = json_read_file(&j, path, 1 << 20, &why);
    if (rc < 0)
        return memory_only(rc, &why, e);
    const char *preset = json_str(json_get(json_root(j), "preset"), NULL),
               *host = json_str(json_get(json_root(j), "host"), NULL);
    str_copy(row->preset, sizeof row->preset, preset ? preset : "");
    if (host && !row->host[0])
        str_copy(row->host, sizeof row->host, host);
    json_free(j);
    return 0;
}

static void finish(struct run_row *row)
{
    const struct run_phase *p = &row->phase;
    const char *text;
    extend_plan(row);
    if (p->records > 0 && (p->step > 0 || p->is_log))
        row->number[RUN_STEP] = (double)p->step;
    if (p->steps_planned > 0)
        row->number[RUN_STEPS] = (double)p->steps_planned;
    if (p->records == 0 && (text = run_row_config(row, "model.method")))
        str_copy(row->method, sizeof row->method, text);
}

/* RUN and RUN/log.mp -> both; 0 or DS_*. */
static int split(struct run_row *row, const char *path, char *log, size_t size, struct err *e)
{
    size_t n = strlen(path);
    int is_dir = fs_is_dir(path);
    if (str_copy(row->path, sizeof row->path, path))
        return err_set(e, DS_ERANGE, "%s: the path is too long", path);
    if (is_dir)
        return fs_join(log, size, path, "log.mp", e);
    if (n > 7 && strcmp(path + n - 7, "/log.mp") == 0)
        row->path[n - 7] = '\0';
    return str_copy(log, size, path) ? err_set(e, DS_ERANGE, "%s: the path is too long", path) : 0;
}

/* A damaged record file counts, too: only another program's log is none. */
static int is_record_file(const char *log, const struct stat *st)
{
    unsigned char first = 0xC9;
    size_t got;
    int fd;
    if (!S_ISREG(st->st_mode) || st->st_size == 0 || fs_open_read(&fd, log, NULL) < 0)
        return 1;
    if (fs_read_some(fd, &first, 1, &got, log, NULL) < 0)
        first = 0xC9;
    fs_close(fd);
    return first == 0xC9 || first == 0;
}

int run_row_read(struct run_row *row, const char *path, struct err *e)
{
    return run_row_read_some(row, path, 0, e);
}

int run_row_read_some(struct run_row *row, const char *path, size_t bytes, struct err *e)
{
    char log[1100], config[1100];
    struct stat st, dir;
    *row = (struct run_row){.state = RUN_EMPTY};
    for (int i = 0; i < RUN_NUMBERS; i++)
        row->number[i] = (double)NAN;
    int rc = split(row, path, log, sizeof log, e);
    if (rc < 0)
        return rc;
    const char *slash = strrchr(row->path, '/');
    str_copy(row->name, sizeof row->name, slash && slash[1] ? slash + 1 : row->path);
    if (fs_stat(row->path, &dir) == 0)
        row->seen.dir = dir.st_mtim;
    if (fs_stat(log, &st) != 0 ? fs_is_dir(path) : !is_record_file(log, &st)) {
        rc = follow_open(row, path, bytes, NULL);
        if (rc != DS_ENOTFOUND)
            return rc == 0 ? 0 : err_set(e, rc, "%s: out of memory", path);
        rc = 0;
    }
    if (fs_stat(log, &st) != 0 || !S_ISREG(st.st_mode)) {
        if (fs_join(config, sizeof config, path, "config.yaml", e) < 0 || !fs_exists(config))
            return err_set(e, DS_ENOTFOUND, "%s: not found", log);
        row->modified = (double)dir.st_mtim.tv_sec;
    } else {
        row->seen.size = (uint64_t)st.st_size;
        row->seen.inode = (uint64_t)st.st_ino;
        row->seen.log = st.st_mtim;
        row->modified = (double)st.st_mtim.tv_sec;
        rc = scan_log(row, log, e);
    }
    if (rc == 0)
        rc = read_meta(row, row->path, e);
    if (rc == 0) {
        struct err why = {0};
        rc = memory_only(run_notes_read(&row->notes, row->path, &why), &why, e);
    }
    if (rc == 0)
        finish(row);
    return rc;
}

void run_row_release(struct run_row *row)
{
    if (row->config)
        config_release(row->config);
    mem_free(row->config);
    row->config = NULL;
    follow_free(row->follow);
    row->follow = NULL;
}

const char *run_row_config(struct run_row *row, const char *key)
{
    char path[1100];
    if (!row->config) {
        struct config *c = row->config = mem_alloc(1, sizeof *c);
        if (!c)
            return NULL;
        if (fs_join(path, sizeof path, row->path, "config.yaml", NULL) < 0 || !fs_exists(path) ||
            config_read_yaml(c, path, NULL) < 0 || c->n == 0) {
            config_release(c);
            (void)!runconfig_read_head(c, row->path, NULL);
        }
    }
    return config_get(row->config, key);
}

int run_row_needs_loss(const struct run_row *row)
{
    return (row->format || !row->method[0]) && isfinite(row->number[RUN_LOSS]) &&
           !isfinite(row->number[RUN_VAL_LOSS]);
}

double run_row_age(const struct run_row *row, double now)
{
    double then = row->last_time > 0 ? row->last_time : row->modified;
    return then > 0 && now > 0 ? now - then : (double)NAN;
}
