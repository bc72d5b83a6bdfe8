/* depthscope runs: lists runs (sorted, filtered, grouped), tags and annotates them, renames them
 * and moves them to the trash and back. */
#include <math.h>
#include <string.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "cli/cli.h"
#include "io/alert.h"
#include "io/foreign.h"
#include "io/host.h"
#include "io/runindex.h"
#include "io/runquery.h"
#include "training/job.h"

struct cli_option runs_options[] = {
    {.name = "json", .help = "a JSON array of objects"},
    {.name = "sort",
     .has_value = 1,
     .help = "COLUMN|-COLUMN  order by a column or key, - descending"},
    {.name = "filter",
     .has_value = 1,
     .help = "QUERY  e.g. 'method=edp train.lr>1e-4 state=live tag=paper name~tiny'"},
    {.name = "group", .has_value = 1, .help = "KEY  one table for each value of a column or key"},
    {.name = "trash", .help = "list the runs in the trash"},
    {.name = NULL},
};

static const char usage_after[] =
    "\nruns tag NAME [+TAG|-TAG ...]   show or change its tags\n"
    "runs note NAME [TEXT]           show or set its note (\"\" clears it)\n"
    "runs rename NAME NEW            rename a run; a live one continues under the new name\n"
    "runs rm NAME ...                move runs to the trash; live ones are refused\n"
    "runs restore NAME               move the newest run of that name back from the trash\n";

/* ---- the table ---- */

enum { CELL_MAX = 200 };
static const struct listed {
    const char *key, *title;
    int rank; /* the highest is dropped first where the terminal is narrow; 0 = never */
} listed[] = {
    {"name", "run", 0},          {"method", "method", 4},     {"state", "state", 1},
    {"step", "step", 2},         {"val_loss", "val loss", 3}, {"loss", "loss", 3},
    {"flops_ratio", "FLOPs", 5}, {"time_ratio", "time", 6},   {"tok_s", "tok/s", 9},
    {"eta", "ETA", 8},           {"age", "newest", 7},        {"host", "host", 12},
    {"tag", "tags", 10},         {"note", "note", 11},        {"alert", "alert", 1},
};
enum { LISTED = (int)DS_LEN(listed), ALWAYS = 4 };

static void cell_text(const struct run_row *r, int column, double now, char *out, size_t size)
{
    char age[16];
    const struct run_column *c = run_column_find(listed[column].key);
    double x = run_column_number(r, c, now);
    if (strcmp(c->key, "step") == 0 && isfinite(r->number[RUN_STEPS]))
        snprintf(out, size, "%.0f/%.0f", isfinite(x) ? x : 0, r->number[RUN_STEPS]);
    else if (strcmp(c->key, "age") == 0 && isfinite(x))
        snprintf(out, size, x < 1 ? "now" : "%s ago", str_duration(age, x > 0 ? floor(x) : 0));
    else if (strcmp(c->key, "eta") == 0 && isfinite(x))
        snprintf(out, size, "%s", str_duration(age, floor(x)));
    else if (strcmp(c->key, "tok_s") == 0 && isfinite(x))
        snprintf(out, size, "%s", str_si(age, x));
    else if (c->is_number && isfinite(x))
        snprintf(out, size, "%.*f",
                 strcmp(c->key, "step") == 0 ? 0
                 : strstr(c->key, "loss")    ? 4
                                             : 3,
                 x);
    else if (c->is_number)
        snprintf(out, size, "-");
    else {
        char whole[RUN_NOTE_MAX + 1];
        run_column_text(r, c, now, whole, sizeof whole);
        if (str_copy(out, size, whole)) /* cut between characters */
            out[utf8_valid(out, strlen(out))] = '\0';
    }
}

/* Rows [from, to) of the columns shown. */
static void print_rows(char (*text)[LISTED][CELL_MAX], const int *shown, size_t from, size_t to,
                       struct str *out)
{
    struct table t;
    int rank[LISTED], columns = 0;
    for (int k = 0; k < LISTED; k++)
        if (shown[k])
            rank[columns++] = listed[k].rank;
    table_init(&t, (size_t)columns);
    for (int k = 0; k < LISTED; k++)
        if (shown[k])
            table_add(&t, listed[k].title);
    for (size_t i = from; i < to; i++)
        for (int k = 0; k < LISTED; k++)
            if (shown[k])
                table_add(&t, text[i][k]);
    table_fit(&t, out, cli_columns(0), rank);
    table_release(&t);
}

static int print_table(struct run_row **row, size_t n, const char *group, double now,
                       struct str *out, struct err *e)
{
    char(*text)[LISTED][CELL_MAX] = mem_alloc(n + 1, sizeof *text);
    int shown[LISTED];
    if (!text)
        return err_set(e, DS_EMEM, "out of memory for a table of %zu runs", n);
    for (int k = 0; k < LISTED; k++) {
        shown[k] = k < ALWAYS; /* the others when a run has a value */
        for (size_t i = 0; i < n; i++) {
            cell_text(row[i], k, now, text[i][k], CELL_MAX);
            int is_some = text[i][k][0] && strcmp(text[i][k], "-") != 0;
            if (strcmp(listed[k].key, "loss") == 0)
                is_some = run_row_needs_loss(row[i]);
            shown[k] |= is_some;
        }
    }
    if (!group)
        print_rows(text, shown, 0, n, out);
    for (size_t i = 0, to; group && i < n; i = to) {
        char value[RUN_NOTE_MAX + 1], next[RUN_NOTE_MAX + 1];
        run_row_text(row[i], group, now, value, sizeof value);
        for (to = i + 1; to < n; to++)
            if (strcmp(run_row_text(row[to], group, now, next, sizeof next), value) != 0)
                break;
        str_addf(out, "%s%s = ", i ? "\n" : "", group);
        cli_add_safe(out, value[0] ? value : "-", strlen(value[0] ? value : "-"), -1);
        str_addf(out, " (%zu run%s)\n", to - i, to - i > 1 ? "s" : "");
        print_rows(text, shown, i, to, out);
    }
    mem_free(text);
    return 0;
}

/* ---- JSON ---- */

static int64_t whole(double x)
{
    return isfinite(x) && fabs(x) < 1e18 ? (int64_t)x : 0;
}

/* Unix seconds, which have more digits than json_add_num prints. */
static void add_json_time(struct str *out, const char *key, double x)
{
    json_key(out, key);
    if (isfinite(x))
        str_add_real(out, x);
    else
        str_add(out, "null");
}

/* "state" has "running" for a live or paused run; "status" tells them apart. */
static void add_json(struct str *out, struct run_row *r, const char *group, double now)
{
    char value[RUN_NOTE_MAX + 1];
    double spark[RUN_ROW_SPARK];
    int is_running = r->state == RUN_LIVE || r->state == RUN_PAUSED;
    json_key(out, NULL);
    str_add(out, "{");
    json_add_str(out, "name", r->name);
    char path[RUN_HOST_PATH];
    json_add_str(out, "path", run_row_place(r, path, sizeof path));
    json_add_str(out, "method", r->method);
    json_add_str(out, "preset", r->preset);
    json_add_str(out, "state", is_running ? "running" : run_state_name(r->state));
    json_add_str(out, "status", run_state_name(r->state));
    json_add_int(out, "step", whole(r->number[RUN_STEP]));
    json_add_int(out, "steps", whole(r->number[RUN_STEPS]));
    json_add_int(out, "seed", whole(r->number[RUN_SEED]));
    json_add_num(out, "val_loss", r->number[RUN_VAL_LOSS]);
    json_add_num(out, "loss", r->number[RUN_LOSS]);
    json_add_num(out, "flops_ratio", r->number[RUN_FLOPS_RATIO]);
    json_add_num(out, "time_ratio", r->number[RUN_TIME_RATIO]);
    json_add_num(out, "tok_s", r->number[RUN_TOK_S]);
    json_add_num(out, "eta", r->number[RUN_ETA]);
    json_add_num(out, "age", run_row_age(r, now));
    add_json_time(out, "modified", r->modified);
    json_add_int(out, "pid", r->is_live ? whole(r->number[RUN_PID]) : 0);
    json_add_str(out, "host", r->host);
    json_add_str(out, "run_id", r->run_id);
    json_add_str(out, "parent", r->parent);
    json_key(out, "tags");
    str_add(out, "[");
    for (int i = 0; i < r->notes.tags; i++) {
        json_key(out, NULL);
        str_add_json(out, r->notes.tag[i], strlen(r->notes.tag[i]));
    }
    str_add(out, "]");
    json_add_str(out, "note", r->notes.note);
    json_key(out, "alerts");
    str_add(out, "[");
    for (int k = 0; k < ALERT_RULES; k++)
        if (r->alerts & 1U << k)
            json_add_str(out, NULL, alert_name((enum alert_rule)k));
    str_add(out, "]");
    for (int i = 0; i < r->sparks; i++)
        spark[i] = (double)r->spark[i];
    json_add_nums(out, "spark", spark, (size_t)r->sparks);
    if (group)
        json_add_str(out, "group", run_row_text(r, group, now, value, sizeof value));
    str_add(out, "}");
}

/* ---- lists ---- */

static int print_list(const struct cli_args *a, struct runindex *x, const char *root,
                      struct str *out, struct err *e)
{
    struct runquery q = {0};
    const char *by = cli_value(a, "sort"), *group = cli_value(a, "group"),
               *filter = cli_value(a, "filter");
    struct alert_options rules = {0};
    struct notify_options notify = {0};
    struct err wrong = {0};
    double now = clock_wall();
    size_t n = 0;
    if (alert_settings(&rules, &notify, &wrong) < 0) /* a list is worth more than its marks */
        log_warn("%s", wrong.text);
    opt_release(&notify_group, &notify);
    int rc = filter ? runquery_parse(&q, filter, e) : 0;
    if (rc == 0)
        rc = runquery_check(&q, x, e);
    if (rc == 0 && by)
        rc = runindex_sort(x, by, now, e);
    if (rc == 0 && group)
        rc = runindex_group(x, group, now, e);
    struct run_row **row = rc == 0 ? mem_alloc(x->n + 1, sizeof(struct run_row *)) : NULL;
    if (rc == 0 && !row)
        rc = err_set(e, DS_EMEM, "out of memory for a list of %zu runs", x->n);
    if (rc < 0)
        return rc;
    for (size_t i = 0; i < x->n; i++)
        x->row[i]->alerts = alert_set_of(&rules, x->row[i], now);
    for (size_t i = 0; i < x->n; i++)
        if (runquery_match(&q, x->row[i], now))
            row[n++] = x->row[i];
    if (cli_flag(a, "json")) {
        str_add(out, "[");
        for (size_t i = 0; i < n; i++)
            add_json(out, row[i], group, now);
        str_add(out, "]\n");
    } else if (n > 0) {
        rc = print_table(row, n, group, now, out, e);
    } else {
        str_add(out, x->n ? "no run matches the filter in " : "no runs in ");
        cli_add_safe(out, root, strlen(root), -1);
        str_add(out, x->n ? "\n" : " yet; start one with depthscope train\n");
    }
    mem_free(row);
    return rc;
}

static int print_trash(const struct cli_args *a, const char *root, struct str *out, struct err *e)
{
    struct run_trashed *t = NULL;
    size_t n = 0;
    int json = cli_flag(a, "json"), rc = run_trash_list(root, &t, &n, e);
    str_add(out, json ? "[" : n ? "" : "the trash is empty\n");
    for (size_t i = 0; rc == 0 && i < n; i++) {
        char age[16];
        double seconds = clock_wall() - t[i].time;
        if (!json) {
            str_addf(out, seconds < 1 ? "%s  now  " : "%s  %s ago  ", t[i].name,
                     str_duration(age, floor(seconds)));
            cli_add_safe(out, t[i].path, strlen(t[i].path), -1);
            str_add(out, "\n");
            continue;
        }
        json_key(out, NULL);
        str_add(out, "{");
        json_add_str(out, "name", t[i].name);
        json_add_str(out, "path", t[i].path);
        add_json_time(out, "time", t[i].time);
        str_add(out, "}");
    }
    str_add(out, json ? "]\n" : "");
    mem_free(t);
    return rc;
}

/* Until the list of a host is complete, or it is clear that none will come. */
static int wait_for_host(struct host **out, const char *target, struct err *e)
{
    int rc = host_open(out, target, 1, e);
    while (rc == 0) {
        struct pollfd w[HOST_FDS];
        (void)poll(w, (nfds_t)host_watch(*out, w), 200);
        host_poll(*out);
        struct host_info x = host_info(*out);
        if (x.is_listed && (x.runs > 0 || !x.why[0])) /* a missing folder has an empty list */
            break;
        if (!x.why[0]) /* still on its way */
            continue;
        rc = x.state == HOST_FAILED || x.state == HOST_RECONNECTING
                 ? err_set(e, DS_EIO, "%s: %s", x.name, x.why)
                 : err_set(e, DS_ENOTFOUND, "%s:%s: %s", x.name, x.root, x.why);
    }
    return rc;
}

static int list(const struct cli_args *a, struct str *out, struct err *e)
{
    struct runindex x = {0};
    const char *root = a->n_rest ? a->rest[0] : job_root();
    if (a->n_rest > 1 || a->n_override > 0)
        return err_set(e, DS_EUSAGE, "runs: expected one directory, found also %s",
                       a->n_rest > 1 ? a->rest[1] : a->override[0]);
    if ((a->n_rest || fs_exists(root)) && !fs_is_dir(root) && !host_is_target(root))
        return err_set(e, DS_ENOTFOUND, "runs: %s: not a directory", root);
    if (cli_flag(a, "trash") &&
        (cli_value(a, "sort") || cli_value(a, "filter") || cli_value(a, "group")))
        return err_set(e, DS_EUSAGE, "runs: --trash: unexpected --%s",
                       cli_value(a, "sort")     ? "sort"
                       : cli_value(a, "filter") ? "filter"
                                                : "group");
    if (cli_flag(a, "trash") && host_is_target(root))
        return err_set(e, DS_EUSAGE, "runs: --trash: expected a directory of this machine, not %s",
                       root);
    if (cli_flag(a, "trash"))
        return print_trash(a, root, out, e);
    const struct foreign_format *format;
    int is_run = foreign_find(root, &format); /* the folder is one run rather than a list */
    if (is_run) {
        x.also = &root;
        x.alsos = 1;
    }
    struct host *host = NULL;
    int rc = host_is_target(root) ? wait_for_host(&host, root, e) : 0;
    if (host) {
        x.host = &host;
        x.hosts = 1;
    }
    if (rc == 0)
        rc = runindex_refresh(&x, is_run || host ? NULL : root, e);
    if (rc == 0 && x.is_cut)
        log_warn("%s: too many files to look at, or too long a path; some runs or logs are not "
                 "listed",
                 root);
    if (rc == 0)
        rc = print_list(a, &x, root, out, e);
    runindex_release(&x);
    host_close(host);
    return rc;
}

/* ---- tag, note, rename, rm, restore ---- */

static int is_same_directory(const char *a, const char *b)
{
    struct stat x, y;
    return stat(a, &x) == 0 && stat(b, &y) == 0 && S_ISDIR(x.st_mode) && x.st_dev == y.st_dev &&
           x.st_ino == y.st_ino;
}

/* The directory of a run, and its name in it.  A path must lead to the run itself: another
 * directory of the same name is not it. */
static int find(const char *word, const char **name, char *dir, size_t size, struct err *e)
{
    char hint[256], path[1024];
    size_t n = fs_trimmed(word);
    snprintf(path, sizeof path, "%.*s", (int)(n < sizeof path ? n : 0), word);
    const char *slash = strrchr(path, '/'), *last = slash ? slash + 1 : path;
    if (fs_name_ok(last) && fs_join(dir, size, job_root(), last, NULL) == 0 &&
        is_same_directory(dir, slash ? path : dir)) {
        *name = dir + strlen(dir) - strlen(last);
        return 0;
    }
    struct str safe = {0};
    cli_add_safe(&safe, word, strlen(word), 80);
    int rc = err_set(e, DS_ENOTFOUND, "%s: run not found in %s%s", str_text(&safe), job_root(),
                     cli_run_hint(word, 0, hint, sizeof hint));
    str_release(&safe);
    return rc;
}

static int tag(int n, char **word, struct str *out, struct err *e)
{
    struct run_notes notes;
    char dir[1024];
    const char *name;
    int rc = find(word[0], &name, dir, sizeof dir, e);
    if (rc == 0)
        rc = run_notes_read(&notes, dir, e);
    for (int i = 1; rc == 0 && i < n; i++)
        rc = run_notes_tag(&notes, word[i], e);
    if (rc == 0 && n > 1)
        rc = run_notes_write(&notes, dir, e);
    for (int i = 0; rc == 0 && i < notes.tags; i++)
        str_addf(out, "%s%s", i ? " " : "", notes.tag[i]);
    str_add(out, rc == 0 && notes.tags ? "\n" : "");
    return rc;
}

static int note(int n, char **word, struct str *out, struct err *e)
{
    struct run_notes notes;
    char dir[1024];
    const char *name;
    int rc = find(word[0], &name, dir, sizeof dir, e);
    if (rc == 0)
        rc = run_notes_read(&notes, dir, e);
    if (rc == 0 && n > 1)
        rc = run_notes_set(&notes, word[1], e);
    if (rc == 0 && n > 1)
        rc = run_notes_write(&notes, dir, e);
    if (rc == 0 && n == 1 && notes.note[0]) {
        cli_add_safe(out, notes.note, strlen(notes.note), -1);
        str_add(out, "\n");
    }
    return rc;
}

static int rename_run(int n, char **word, struct str *out, struct err *e)
{
    char dir[1024];
    const char *name;
    int rc = find(word[0], &name, dir, sizeof dir, e);
    (void)n;
    if (rc == 0)
        rc = run_rename(job_root(), name, word[1], e);
    if (rc == 0)
        str_addf(out, "%s: renamed to %s\n", name, word[1]);
    return rc;
}

/* Runs that cannot be moved are reported, the others are moved. */
static int remove_runs(int n, char **word, struct str *out, struct err *e)
{
    int failed = 0;
    for (int i = 0; i < n; i++) {
        struct err why = {0};
        char dir[1024];
        const char *name;
        int rc = find(word[i], &name, dir, sizeof dir, &why);
        if (rc == 0)
            rc = run_trash(job_root(), name, &why);
        if (rc == 0) {
            str_addf(out, "%s: moved to the trash; depthscope runs restore %s\n", name, name);
            continue;
        }
        if (failed++ == 0)
            (void)!err_set(e, rc, "%s", why.text);
        else
            fprintf(stderr, "depthscope: %s\n", why.text);
    }
    return failed ? e->code : 0;
}

static int restore(int n, char **word, struct str *out, struct err *e)
{
    (void)n;
    int rc = run_restore(job_root(), word[0], e);
    if (rc == 0)
        str_addf(out, "%s: restored\n", word[0]);
    return rc;
}

static const struct {
    const char *name, *args;
    int min, max;
    int (*run)(int n, char **word, struct str *out, struct err *e);
} verbs[] = {
    {"tag", "NAME [+TAG|-TAG ...]", 1, 1 << 20, tag},
    {"note", "NAME [TEXT]", 1, 2, note},
    {"rename", "NAME NEW", 2, 2, rename_run},
    {"rm", "NAME ...", 1, 1 << 20, remove_runs},
    {"restore", "NAME", 1, 1, restore},
};

const char *runs_verb(int i)
{
    return i >= 0 && i < (int)DS_LEN(verbs) ? verbs[i].name : NULL;
}

/* Their words are not options or settings: -TAG removes a tag. */
static int run_verb(size_t verb, int n, char **word)
{
    struct err e = {0};
    struct str out = {0};
    int rc = 0;
    if (n < verbs[verb].min || n > verbs[verb].max)
        rc = err_set(&e, DS_EUSAGE, "runs %s: expected %s", verbs[verb].name, verbs[verb].args);
    if (rc == 0)
        rc = verbs[verb].run(n, word, &out, &e);
    int status = cli_print(&out);
    return rc < 0 ? command_fail(&e) : status;
}

int runs_command(int argc, char **argv)
{
    int is_help = argc > 2 && (strcmp(argv[2], "--help") == 0 || strcmp(argv[2], "-h") == 0);
    for (size_t i = 0; argc > 1 && !is_help && i < DS_LEN(verbs); i++)
        if (strcmp(argv[1], verbs[i].name) == 0)
            return run_verb(i, argc - 2, argv + 2);
    cli_help_after(usage_after);
    return cli_report(argc, argv, runs_options, list);
}
