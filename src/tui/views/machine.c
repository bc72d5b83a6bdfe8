/* Machine: processors, memory, disk, network and GPUs of the host that the run trains on, as recorded or
 * as they are now where that is this machine. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/machine.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "io/host.h"
#include "io/system.h"
#include "tui/view.h"
#include "tui/widgets.h"

enum { KEPT = 240, GPU_SERIES = MACHINE_GPUS * SYSTEM_GPU_SERIES, BIN_MAX = 160 };
enum { BARS = 3, SIDE = 27, LABEL = 9, PERCENT = 8, HEAD_ROWS = 7, TABLE_MAX = 112 };
static const double live_seconds = 2;

struct machine_view {
    struct list list; /* GPUs */
    int is_recorded;  /* as recorded also where the machine is this one */
    int first_gpu_row;
    struct machine_watch *watch;
    int has_live;
    struct machine_sample live;
    /* the newest KEPT values of what was seen live: those of the host, then those of the GPUs */
    double kept[SYSTEM_SERIES + GPU_SERIES][KEPT];
    size_t n_kept;
};

/* ---- which sample ---- */

static int is_this_host(const struct runview *r)
{
    char host[256] = "";
    gethostname(host, sizeof host - 1);
    return r->host && r->host[0] && strcmp(r->host, host) == 0;
}

/* A run that ended, or is on another host, has no present.  Hosts may share a name: a stream in a pipe,
 * or the mirror of a host's run, may come from anywhere. */
static int can_be_live(struct view *v)
{
    const struct runview *r = app_run(v->app);
    size_t n, current, hosts;
    const struct open_run *run = app_runs(v->app, &n, &current);
    struct host *const *host = app_hosts(v->app, &hosts);
    if (!r)
        return 1;
    for (size_t i = 0; i < hosts; i++)
        if (host_owns(host[i], run[current].path))
            return 0;
    return !app_is_scripted(v->app) && n > 0 && run[current].dir[0] && is_this_host(r) &&
           (r->state == RUN_LIVE || r->state == RUN_PAUSED);
}

static int is_live(struct view *v)
{
    const struct machine_view *s = v->state;
    const struct runview *r = app_run(v->app);
    return can_be_live(v) && !(s->is_recorded && r && r->system);
}

/* The folder of the run, whose file system is shown. */
static const char *folder_of(struct view *v)
{
    size_t n, current, also;
    const char *further[APP_ALSO_MAX];
    const struct open_run *run = app_runs(v->app, &n, &current);
    if (n > 0 && run[current].dir[0])
        return run[current].dir;
    const char *home = app_home(v->app, further, &also);
    return home && access(home, F_OK) == 0 ? home : ".";
}

static void keep(struct machine_view *s)
{
    struct system_point p;
    if (s->n_kept == KEPT) {
        s->n_kept--;
        for (size_t i = 0; i < DS_LEN(s->kept); i++)
            memmove(s->kept[i], s->kept[i] + 1, s->n_kept * sizeof **s->kept);
    }
    for (size_t i = 0; i < DS_LEN(s->kept); i++)
        s->kept[i][s->n_kept] = (double)NAN;
    for (int k = 0; k < SYSTEM_SERIES; k++) {
        p = system_point(&s->live, (enum system_series)k);
        s->kept[k][s->n_kept] = p.value;
    }
    for (int i = 0; i < s->live.gpus; i++)
        for (int k = 0; k < SYSTEM_GPU_SERIES; k++) {
            p = system_gpu_point(&s->live, i, (enum system_gpu_series)k);
            s->kept[SYSTEM_SERIES + i * SYSTEM_GPU_SERIES + k][s->n_kept] = p.value;
        }
    s->n_kept++;
}

/* Without a terminal nobody waits for a second sample: two are taken, so that there are rates. */
static void sample_now(struct view *v)
{
    struct machine_view *s = v->state;
    struct machine *m = machine_open(folder_of(v));
    if (!m)
        return;
    machine_sample(m, &s->live);
    clock_sleep(0.2);
    machine_sample(m, &s->live);
    machine_close(m);
    s->has_live = 1;
}

static int machine_poll(struct view *v)
{
    struct machine_view *s = v->state;
    if (!s->watch || !machine_watch_take(s->watch, &s->live))
        return 0;
    s->has_live = 1;
    keep(s);
    return is_live(v);
}

static void begin_live(struct view *v)
{
    struct machine_view *s = v->state;
    if (app_is_scripted(v->app) && !s->has_live)
        sample_now(v);
    else if (!app_is_scripted(v->app) && !s->watch)
        s->watch = machine_watch_start(folder_of(v), live_seconds);
}

/* What is shown; NULL: nothing is known yet, or was never recorded. */
static const struct machine_sample *sample_of(struct view *v)
{
    const struct machine_view *s = v->state;
    const struct runview *r = app_run(v->app);
    if (!is_live(v))
        return r ? r->system : NULL;
    begin_live(v);
    return s->has_live ? &s->live : r ? r->system : NULL;
}

static void machine_close_view(struct view *v)
{
    struct machine_view *s = v->state;
    machine_watch_stop(s->watch);
}

/* Another run may be in another file system. */
static void machine_run_changed(struct view *v)
{
    struct machine_view *s = v->state;
    machine_watch_stop(s->watch);
    s->watch = NULL;
    s->has_live = 0;
    s->n_kept = 0;
}

/* ---- numbers ---- */

/* "42.0 %", "-" when unknown. */
static const char *print_percent(char out[24], double x)
{
    if (isfinite(x))
        snprintf(out, 24, x < 99.95 ? "%.1f %%" : "%.0f %%", x);
    else
        str_copy(out, 24, "-");
    return out;
}

/* "98.2G", "-". */
static const char *print_bytes(char out[24], double x)
{
    char si[16];
    snprintf(out, 24, "%s%s", isfinite(x) ? str_si(si, x) : "-", isfinite(x) ? "B" : "");
    return out;
}

static const char *print_whole(char out[24], double x)
{
    if (isfinite(x))
        snprintf(out, 24, "%.0f", x);
    else
        str_copy(out, 24, "-");
    return out;
}

/* ---- history ---- */

/* Values over time in at most `bins` bins, of each the highest: of the run's records, else of what was
 * seen live.  What a resume superseded did happen on the machine, so it counts. */
static size_t history(struct view *v, const struct system_point *p, size_t slot, double *out,
                      size_t bins)
{
    const struct machine_view *s = v->state;
    const struct runview *r = app_run(v->app);
    const struct series *x = r ? runview_series(r, p->name) : NULL;
    size_t n = x ? x->n : 0, used;
    if (n > 0) {
        used = n < bins ? n : bins;
        for (size_t i = 0; i < used; i++)
            out[i] = series_range(x, n * i / used, n * (i + 1) / used).max;
        return used;
    }
    n = is_live(v) ? s->n_kept : 0;
    used = n < bins ? n : bins;
    for (size_t i = 0; i < used; i++)
        out[i] = s->kept[slot][n - used + i];
    return used;
}

/* Leaves gaps where nothing is known.  Returns how many values there are. */
static size_t draw_history(struct view *v, struct area a, const struct system_point *p, size_t slot,
                           double hi, enum role role)
{
    double value[BIN_MAX];
    size_t n = history(v, p, slot, value, a.cols < BIN_MAX ? (size_t)a.cols : BIN_MAX);
    for (size_t i = 0; i < n; i++)
        if (isfinite(value[i]))
            spark_draw(area_sub(a, 0, (int)i, 1, 1), &value[i], 1, 0, hi, role);
    return n;
}

static void host_history(struct view *v, struct area a, const struct machine_sample *s,
                         enum system_series k)
{
    struct system_point p = system_point(s, k);
    double top = 100;
    if (k == SYSTEM_NET_IN || k == SYSTEM_NET_OUT) { /* against the highest of both */
        double value[BIN_MAX];
        top = 1;
        for (int i = SYSTEM_NET_IN; i <= SYSTEM_NET_OUT; i++) {
            struct system_point of = system_point(s, (enum system_series)i);
            for (size_t n = history(v, &of, (size_t)i, value, BIN_MAX); n-- > 0;)
                top = value[n] > top ? value[n] : top;
        }
    }
    draw_history(v, a, &p, (size_t)k, top, ROLE_SERIES_0);
}

/* ---- the host ---- */

static void draw_title(struct view *v, struct area a, const struct machine_sample *s)
{
    const struct machine_view *m = v->state;
    const struct runview *r = app_run(v->app);
    char age[16], load[64] = "";
    int x = 1 + area_text(a, 0, 1, a.cols / 3, ink_attr(ink(ROLE_TITLE), ATTR_BOLD),
                          s->host[0] ? s->host : "unknown host");
    if (s == &m->live) {
        x += 2 + area_text(a, 0, x + 2, -1, ink(ROLE_GOOD), "now");
    } else {
        double seconds = app_now(v->app) - s->time;
        x += 2 + area_textf(a, 0, x + 2, -1, ink(ROLE_DIM), "as recorded at step %lld",
                            (long long)r->system_step);
        if (seconds >= 0 && !app_is_scripted(v->app))
            x += area_textf(a, 0, x, -1, ink(seconds < 60 ? ROLE_DIM : ROLE_WARN), ", %s ago",
                            num_age(age, seconds));
    }
    if (isfinite(s->load[0]))
        snprintf(load, sizeof load, "load %.2f %.2f %.2f", s->load[0], s->load[1], s->load[2]);
    if (x + (int)strlen(load) + 2 < a.cols)
        area_right(a, 0, a.cols - 1, ink(ROLE_TEXT), load);
}

static enum role full_role(enum system_series k, double percent)
{
    return k == SYSTEM_CPU || !(percent >= 90) ? ROLE_SERIES_0
           : percent < 97                      ? ROLE_WARN
                                               : ROLE_BAD;
}

/* What is beside the bar. */
static void print_side(char *out, size_t size, const struct machine_sample *s, enum system_series k,
                       int is_of_run)
{
    char one[24], other[24];
    if (k != SYSTEM_CPU && !isfinite(k == SYSTEM_MEMORY ? s->memory_total : s->disk_total))
        out[0] = '\0';
    else if (k == SYSTEM_MEMORY)
        snprintf(out, size, "%s of %s", print_bytes(one, s->memory_used),
                 print_bytes(other, s->memory_total));
    else if (k == SYSTEM_DISK)
        snprintf(out, size, "%s free of %s", print_bytes(one, s->disk_free),
                 print_bytes(other, s->disk_total));
    else if (s->cpus == 0)
        str_copy(out, size, "-");
    else if (isfinite(s->process_cpu) && is_of_run)
        snprintf(out, size, "%.1f of %d by the run", s->process_cpu, s->cpus);
    else
        snprintf(out, size, "%d processors", s->cpus);
}

static void draw_bars(struct view *v, struct area a, const struct machine_sample *s)
{
    static const enum system_series kind[BARS] = {SYSTEM_CPU, SYSTEM_MEMORY, SYSTEM_DISK};
    static const char *const label[BARS] = {"CPU", "memory", "disk"};
    const struct machine_view *m = v->state;
    int end = a.cols >= 76 ? a.cols * 2 / 5 : a.cols / 2;
    end = end < LABEL + PERCENT ? LABEL + PERCENT : end;
    int side = end + 2, spark = side + SIDE;
    for (int i = 0; i < BARS; i++) {
        double x = system_point(s, kind[i]).value;
        char text[80], percent[24];
        area_text(a, i, 1, -1, ink(ROLE_DIM), label[i]);
        if (isfinite(x) && end > LABEL + PERCENT)
            meter_draw(area_sub(a, i, LABEL, 1, end - LABEL - PERCENT), x / 100,
                       full_role(kind[i], x));
        area_right(a, i, end, ink(isfinite(x) ? ROLE_TEXT : ROLE_DIM), print_percent(percent, x));
        print_side(text, sizeof text, s, kind[i], s != &m->live);
        area_text(a, i, side, spark < a.cols - 4 ? SIDE - 1 : -1, ink(ROLE_TEXT), text);
        if (spark < a.cols - 4)
            host_history(v, area_sub(a, i, spark, 1, a.cols - spark - 1), s, kind[i]);
    }
}

static void draw_net(struct view *v, struct area a, const struct machine_sample *s)
{
    static const enum system_series kind[] = {SYSTEM_NET_IN, SYSTEM_NET_OUT};
    const double value[] = {s->net_in, s->net_out};
    int half = (a.cols - LABEL) / 2;
    char one[24];
    area_text(a, 0, 1, -1, ink(ROLE_DIM), "network");
    for (int i = 0; i < 2; i++) {
        int x = LABEL + i * half;
        x += area_text(a, 0, x, -1, ink(ROLE_DIM), i ? "out " : "in ");
        area_textf(a, 0, x, half - 4, ink(isfinite(value[i]) ? ROLE_TEXT : ROLE_DIM), "%s%s",
                   print_bytes(one, value[i]), isfinite(value[i]) ? "/s" : "");
        int spark = LABEL + i * half + 15, n = LABEL + (i + 1) * half - spark - 1;
        if (n >= 4)
            host_history(v, area_sub(a, 0, spark, 1, n), s, kind[i]);
    }
}

/* ---- GPUs ---- */

enum { COL_NAME, COL_USE, COL_MEMORY, COL_POWER, COL_TEMPERATURE, COL_CLOCK, COL_THROTTLE, COLS };
static const struct column columns[COLS] = {
    [COL_NAME] = {"GPU", -3, 0, 9},           [COL_USE] = {"use", 11, 0, 8},
    [COL_MEMORY] = {"memory", 13, 1, 7},      [COL_POWER] = {"power", 9, 1, 6},
    [COL_TEMPERATURE] = {"temp", 4, 1, 5},    [COL_CLOCK] = {"MHz", 4, 1, 3},
    [COL_THROTTLE] = {"throttling", -2, 0, 4}};

/* "power, thermal"; "-" when unknown, "none". */
static void print_throttle(struct str *out, const struct machine_gpu *g)
{
    for (int i = 0; g->has_throttle && i < MACHINE_THROTTLES; i++)
        if (g->throttle >> i & 1)
            str_addf(out, "%s%s", out->len ? ", " : "", machine_throttle[i]);
    if (out->len == 0)
        str_add(out, g->has_throttle ? "none" : "-");
}

static enum role heat_role(double celsius)
{
    return !isfinite(celsius) ? ROLE_DIM
           : celsius >= 90    ? ROLE_BAD
           : celsius >= 83    ? ROLE_WARN
                              : ROLE_TEXT;
}

static void draw_use(struct area a, int y, int x, int width, const struct machine_gpu *g)
{
    char text[24];
    if (g->is_lost) {
        area_text(a, y, x, width, ink_attr(ink(ROLE_BAD), ATTR_BOLD), "lost");
        return;
    }
    if (isfinite(g->use) && width > 6)
        meter_draw(area_sub(a, y, x, 1, width - 6), g->use, ROLE_SERIES_0);
    if (isfinite(g->use))
        snprintf(text, sizeof text, "%.0f %%", 100 * g->use);
    area_right(a, y, x + width, ink(isfinite(g->use) ? ROLE_TEXT : ROLE_DIM),
               isfinite(g->use) ? text : "-");
}

/* "101/141 GB": one unit for both. */
static void print_of(char *out, size_t size, double used, double total, double unit,
                     const char *name)
{
    char one[24], other[24];
    if (isfinite(used) || isfinite(total))
        snprintf(out, size, "%s/%s %s", print_whole(one, used / unit),
                 print_whole(other, total / unit), name);
    else
        str_copy(out, size, "-");
}

static void draw_gpu(struct area a, int y, int index, const struct machine_gpu *g, const int *width,
                     const int *x)
{
    char text[80];
    struct str why = {0};
    const char *name = g->name;
    size_t maker = strncmp(name, "NVIDIA ", 7) == 0 ? 7 : strncmp(name, "AMD ", 4) == 0 ? 4 : 0;
    if (utf8_cells(name, strlen(name)) + 3 > width[COL_NAME])
        name += maker; /* the model says more */
    snprintf(text, sizeof text, "%d %s", index, name[0] ? name : "-");
    columns_text(a, y, columns, COL_NAME, width, x, ink(ROLE_TEXT), text);
    if (width[COL_USE] > 0)
        draw_use(a, y, x[COL_USE], width[COL_USE], g);
    if (isfinite(g->memory_total) && g->memory_total < 10e9)
        print_of(text, sizeof text, g->memory_used, g->memory_total, 1e6, "MB");
    else
        print_of(text, sizeof text, g->memory_used, g->memory_total, 1e9, "GB");
    columns_text(a, y, columns, COL_MEMORY, width, x, ink(text[0] == '-' ? ROLE_DIM : ROLE_TEXT),
                 text);
    print_of(text, sizeof text, g->power, g->power_limit, 1, "W");
    columns_text(a, y, columns, COL_POWER, width, x, ink(text[0] == '-' ? ROLE_DIM : ROLE_TEXT),
                 text);
    print_whole(text, g->temperature);
    columns_text(a, y, columns, COL_TEMPERATURE, width, x, ink(heat_role(g->temperature)), text);
    print_whole(text, g->clock_sm);
    columns_text(a, y, columns, COL_CLOCK, width, x,
                 ink(isfinite(g->clock_sm) ? ROLE_TEXT : ROLE_DIM), text);
    print_throttle(&why, g);
    int is_slow = g->has_throttle && g->throttle & ~1u; /* idle is no reason to worry */
    columns_text(a, y, columns, COL_THROTTLE, width, x, ink(is_slow ? ROLE_WARN : ROLE_DIM),
                 str_text(&why));
    str_release(&why);
}

static int draw_table(struct view *v, struct area a, const struct machine_sample *s)
{
    struct machine_view *m = v->state;
    int width[COLS], x[COLS];
    struct area body = area_sub(a, 0, 1, a.rows, a.cols < TABLE_MAX ? a.cols - 2 : TABLE_MAX);
    columns_fit(columns, COLS, body.cols, width, x);
    columns_head(body, 0, columns, COLS, width, x);
    int rows = s->gpus < a.rows - 1 ? s->gpus : a.rows - 1;
    list_fit(&m->list, (size_t)s->gpus, rows);
    for (int y = 0; y < rows; y++) {
        int i = (int)m->list.top + y;
        draw_gpu(body, 1 + y, i, &s->gpu[i], width, x);
        if ((size_t)i == m->list.cursor)
            area_select(a, 1 + y, 0, a.cols);
    }
    scrollbar_draw(area_sub(a, 1, 0, rows, a.cols), a.cols - 1, (size_t)s->gpus, m->list.top, rows);
    if (s->gpus_more && rows + 1 < a.rows)
        area_textf(a, ++rows, 1, -1, ink(ROLE_DIM), "and %d more", s->gpus_more);
    return 1 + rows;
}

/* "processes 4242 python3 55.0GB, 977 - -, and 3 more". */
static void draw_processes(struct area a, const struct machine_gpu *g)
{
    struct scroll all = {0};
    struct str text = {0};
    char one[24];
    if (!g->has_processes || g->processes == 0) {
        area_text(a, 0, 1, -1, ink(ROLE_DIM), g->has_processes ? "no processes" : "processes -");
        return;
    }
    str_add(&text, g->processes + g->processes_more > 1 ? "processes " : "process ");
    for (int i = 0; i < g->processes; i++) {
        const struct machine_process *p = &g->process[i];
        str_addf(&text, "%s%lld %s %s", i ? ", " : "", (long long)p->pid,
                 p->name[0] ? p->name : "-", print_bytes(one, p->memory));
    }
    if (g->processes_more)
        str_addf(&text, ", and %d more", g->processes_more);
    scroll_text(&all, area_sub(a, 0, 1, a.rows, a.cols - 2), str_text(&text), ink(ROLE_TEXT));
    str_release(&text);
}

/* The selected GPU: its history, clocks and processes. */
static void draw_details(struct view *v, struct area a, const struct machine_sample *s)
{
    static const char *const label[SYSTEM_GPU_SERIES] = {"use", "memory", "power", "temp"};
    const struct machine_view *m = v->state;
    int index = (int)m->list.cursor, half = a.cols / 2, y = 0;
    size_t n = 0;
    const struct machine_gpu *g = &s->gpu[index];
    char one[24], other[24];
    if (a.rows < 2)
        return;
    int x = 1 + area_textf(a, 0, 1, -1, ink_attr(ink(ROLE_TITLE), ATTR_BOLD), "GPU %d", index) + 2;
    x += area_text(a, 0, x, -1, ink(ROLE_TEXT), g->name) + 2;
    x += area_textf(a, 0, x, -1, ink(ROLE_DIM), "SM %s MHz, memory %s MHz",
                    print_whole(one, g->clock_sm), print_whole(other, g->clock_memory)) +
         2;
    area_text(a, y++, x, -1, ink(ROLE_DIM), g->source);
    const double top[SYSTEM_GPU_SERIES] = {
        100, 100, isfinite(g->power_limit) && g->power_limit > 0 ? g->power_limit : 1000, 100};
    for (int k = 0; k < SYSTEM_GPU_SERIES && y < a.rows; k++) {
        struct system_point p = system_gpu_point(s, index, (enum system_gpu_series)k);
        int at = k % 2 ? half : 1;
        n += draw_history(v, area_sub(a, y, at + 8, 1, half - 10), &p,
                          (size_t)(SYSTEM_SERIES + index * SYSTEM_GPU_SERIES + k), top[k],
                          ROLE_SERIES_0);
        if (n > 0)
            area_text(a, y, at, -1, ink(ROLE_DIM), label[k]);
        y += k % 2 && n > 0;
    }
    if (y < a.rows)
        draw_processes(area_sub(a, y, 0, a.rows - y, a.cols), g);
}

/* ---- all ---- */

static void draw_none(struct view *v, struct area a)
{
    int y = a.rows > 6 ? a.rows / 2 - 2 : 0;
    struct scroll lines = {0};
    if (is_live(v)) {
        area_text(a, y, 2, -1, ink(ROLE_DIM), "Reading this machine");
        return;
    }
    if (app_draw_nothing(v->app, a))
        return;
    area_text(a, y, 2, a.cols - 3, ink_attr(ink(ROLE_TITLE), ATTR_BOLD), "No machine recorded");
    scroll_text(&lines, area_sub(a, y + 2, 2, a.rows - y - 2, a.cols - 4),
                "This run has no record of kind system. A run writes one every train.system_every "
                "seconds (0 = off), in PyTorch every ds.init(system_every=...). What W&B recorded "
                "of a machine is in Monitor.",
                ink(ROLE_TEXT));
}

static void machine_draw(struct view *v, struct area a)
{
    struct machine_view *m = v->state;
    const struct machine_sample *s = sample_of(v);
    if (!s) {
        m->list.n = 0;
        draw_none(v, a);
        return;
    }
    draw_title(v, a, s);
    draw_bars(v, area_sub(a, 1, 0, BARS, a.cols), s);
    draw_net(v, area_sub(a, 1 + BARS, 0, 1, a.cols), s);
    int y = a.rows > HEAD_ROWS + 8 ? 3 + BARS : 2 + BARS;
    m->first_gpu_row = y + 1;
    if (s->gpus == 0) {
        m->list.n = 0;
        area_text(a, y, 1, -1, ink(ROLE_DIM), "no GPU");
        return;
    }
    y += draw_table(v, area_sub(a, y, 0, a.rows - y, a.cols), s) + 1;
    if (y < a.rows)
        draw_details(v, area_sub(a, y, 0, a.rows - y, a.cols), s);
}

static int machine_event(struct view *v, const struct event *ev)
{
    struct machine_view *m = v->state;
    size_t at = m->list.top + (size_t)(ev->y - m->first_gpu_row);
    if (ev->kind == EVENT_MOUSE && ev->action == MOUSE_PRESS && ev->y >= m->first_gpu_row &&
        at < m->list.n && ev->y - m->first_gpu_row < m->list.page) {
        m->list.cursor = at;
        return 1;
    }
    return list_event(&m->list, ev);
}

static void key_end(struct view *v, const struct key *k, const char *args)
{
    (void)args;
    list_end(&((struct machine_view *)v->state)->list, k->value);
}

static void key_source(struct view *v, const struct key *k, const char *args)
{
    struct machine_view *m = v->state;
    const struct runview *r = app_run(v->app);
    (void)k, (void)args;
    if (!r || !r->system || !can_be_live(v)) {
        app_notify(v->app, LOG_WARN, "%s",
                   can_be_live(v) ? "this machine is shown; nothing is recorded"
                                  : "only what was recorded is known: the run is not live on this "
                                    "machine");
        return;
    }
    m->is_recorded = !m->is_recorded;
}

static void machine_copy(struct view *v, struct str *out)
{
    const struct machine_view *m = v->state;
    const struct machine_sample *s = sample_of(v);
    if (!s || s->gpus == 0 || m->list.cursor >= (size_t)s->gpus)
        return;
    const struct machine_gpu *g = &s->gpu[m->list.cursor];
    char text[80];
    copy_add(out, g->name);
    str_addf(out, "\t%s", print_percent(text, 100 * g->use));
    print_of(text, sizeof text, g->memory_used, g->memory_total, 1e6, "MB");
    str_addf(out, "\t%s", text);
    print_of(text, sizeof text, g->power, g->power_limit, 1, "W");
    str_addf(out, "\t%s\t%s C", text, print_whole((char[24]){0}, g->temperature));
}

static int machine_subject(struct view *v, struct subject *out)
{
    const struct machine_view *m = v->state;
    const struct machine_sample *s = sample_of(v);
    if (!s)
        return 0;
    int has_gpu = m->list.cursor < (size_t)s->gpus;
    struct system_point p = has_gpu ? system_gpu_point(s, (int)m->list.cursor, SYSTEM_GPU_USE)
                                    : system_point(s, SYSTEM_CPU);
    str_copy(out->key, sizeof out->key, p.name);
    if (has_gpu)
        snprintf(out->where, sizeof out->where, "use of GPU %d", (int)m->list.cursor);
    else
        str_copy(out->where, sizeof out->where, "use of the processors");
    out->value = p.value;
    out->unit = "%";
    out->help = has_gpu
                    ? "share of the time in which a kernel was running, by the GPU's driver; not "
                      "how much of the GPU it kept busy"
                    : "busy share of all processors of the machine since the sample before";
    if (s != &m->live) {
        out->record = "system record";
        out->step = app_run(v->app)->system_step;
    }
    return 1;
}

/* clang-format off */
static const struct key machine_keys[] = {
    {"s",  "source", NULL, "this machine now, or as the run recorded it", "source", 60, KEY_VIEW_CHANGE, 0, key_source},
    {"gg", "first",  NULL, "first GPU",                                   NULL,     0, KEY_HIDDEN, 0, key_end},
    {"G",  "last",   NULL, "last GPU",                                    NULL,     0, KEY_HIDDEN, 1, key_end},
    {0},
};
static const struct setting machine_settings[] = {
    {"recorded", SETTING_INT, offsetof(struct machine_view, is_recorded), 0, 1},
    {0},
};

const struct view_ops view_machine = {
    .name = "machine",  .title = "Machine",
    .summary = "CPU, memory, disk, network and GPUs (use, memory, power, temperature) of the run's host, now and as recorded.",
    .keys = machine_keys,  .settings = machine_settings,  .state_size = sizeof(struct machine_view),
    .close = machine_close_view,  .draw = machine_draw,  .event = machine_event,
    .poll = machine_poll,  .run_changed = machine_run_changed,
    .copy = machine_copy,  .subject = machine_subject,
};
/* clang-format on */
