/* Tables of metrics: a line of column names, then a line per step.  The separator, the columns of
 * step and time, and decimal commas are found from the content. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/config.h"
#include "base/hash.h"
#include "base/map.h"
#include "base/mem.h"
#include "io/foreign.h"
#include "io/foreign_text.h"
#include "io/metric.h"

enum {
    COLUMNS_MAX = 4096,
    NAME_MAX_BYTES = 1024,
    ROW_TEXT = 128,
    QUOTED_MAX = 1 << 20, /* bytes of a row with line breaks inside quotes */
    TEXT_ROWS = 1000      /* after these it is known which columns are text */
};

enum role { METRIC, STEP, TIME, TOKENS, UNUSED };

struct column {
    char *name;
    enum role role;
    uint64_t texts, numbers;
    int is_reported; /* as text */
    int is_split;    /* says what its row was measured on */
    int is_run;      /* ... in which run */
    int is_label;    /* names the number in a column "value" */
    /* of the row being read */
    double value;
    int has_value;
};

struct csv {
    char separator;
    struct column *column;
    size_t columns, cap_columns;
    struct str comment, cell; /* the newest line with '#' before the names; a cell with quotes */
    int has_names, step;      /* step: its column, -1 none */
    int epoch;                /* its column, -1 none */
    struct text_epochs epochs;
    int64_t first;               /* epoch; rows are counted from it where it is no step */
    int is_later;                /* after the first epoch */
    uint64_t texts, first_texts; /* hash of the cells of text of the row, and of the first */
    /* of the row: "val" when a column of its split says so; the name of its value */
    char set[ROW_TEXT], label[ROW_TEXT];
    char run[ROW_TEXT]; /* rows of other runs than the first have its name in theirs */
    struct text_runs runs;
    int is_other_run;
    uint64_t head; /* hash of the line of names, and its bytes */
    size_t heads;
    int is_again; /* it came once more: a writer was started again */
    struct text_restart restart;
    int is_skipping, is_reported, is_decided;
    int has_point;          /* numbers have decimal points: a comma is none */
    int is_look;            /* cells are only looked at: doubled quotes in them stay so */
    uint64_t line;          /* of the row being read, from 1 */
    int64_t rows, newest;   /* newest: the step of the row before */
    uint64_t values;        /* delivered */
    struct err first_error; /* what was wrong with the first cell that could not be read */
};

/* ---- rows and cells ---- */

static const char separators[] = ",\t;|";

/* Follows the quotes of a row byte by byte.  They open a cell only (5" is a length), and doubled ones
 * inside stand for one. */
struct quotes {
    int is_open, may_open;
};

/* separator: 0 = not known yet, each of them counts. */
static void quotes_take(struct quotes *q, char c, char separator)
{
    if (c == '"' && (q->is_open || q->may_open)) {
        q->is_open = !q->is_open;
        q->may_open = 1;
    } else if (!q->is_open) {
        int is_next = separator ? c == separator : c && strchr(separators, c);
        q->may_open = is_next || (q->may_open && c == ' ');
    }
}

/* The row at p, of which line breaks inside quotes are part: its length, and in *used with its end;
 * *used = 0 when it is not whole yet.  *lines: line breaks in it. */
static size_t row_at(char separator, const char *p, size_t n, int is_end, size_t *used,
                     uint64_t *lines)
{
    size_t len = foreign_line(p, n, is_end, used), first = *used, at = 0;
    struct quotes q = {.may_open = 1};
    *lines = 1;
    if (*used == 0 || !memchr(p, '"', len))
        return len;
    for (;;) {
        for (; at < len; at++)
            quotes_take(&q, p[at], separator);
        if (!q.is_open)
            return len;
        size_t more, next = foreign_line(p + *used, n - *used, is_end, &more);
        if ((more == 0 && is_end) || *used > QUOTED_MAX) { /* never closed: its first line alone */
            *used = first;
            *lines = 1;
            return foreign_line(p, first, 1, &more);
        }
        if (more == 0)
            *used = 0;
        if (more == 0)
            return 0;
        at = *used;
        len = *used + next;
        *used += more;
        ++*lines;
    }
}

/* The cell at p (quotes removed, RFC 4180); returns what follows its separator, NULL after the
 * last. */
static const char *next_cell(struct csv *c, const char *p, const char *end, const char **cell,
                             size_t *n)
{
    const char *q = p, *stop;
    while (q < end && *q == ' ')
        q++;
    if (q == end || *q != '"') {
        stop = memchr(q, c->separator, (size_t)(end - q));
        *cell = q;
        q = stop ? stop : end;
        *n = (size_t)(q - *cell);
        while (*n > 0 && ((*cell)[*n - 1] == ' ' || (*cell)[*n - 1] == '\t'))
            --*n;
        return stop ? stop + 1 : NULL;
    }
    int is_doubled = 0;
    for (*cell = ++q; q < end; q++) {
        if (*q == '"' && (q + 1 == end || q[1] != '"'))
            break;
        is_doubled |= *q == '"';
        q += *q == '"';
    }
    *n = (size_t)(q - *cell);
    stop = q < end ? memchr(q, c->separator, (size_t)(end - q)) : NULL;
    if (is_doubled && !c->is_look) {
        str_reset(&c->cell);
        for (const char *k = *cell; k < q; k++) {
            k += *k == '"';
            str_add_char(&c->cell, *k);
        }
        *cell = str_text(&c->cell);
        *n = c->cell.len;
    }
    return stop ? stop + 1 : NULL;
}

static int is_blank(const char *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (p[i] != ' ' && p[i] != '\t')
            return 0;
    return 1;
}

static int has_step(char separator, const char *p, size_t n)
{
    struct csv c = {.is_look = 1, .separator = separator};
    const char *end = p + n, *cell;
    size_t len;
    while (p) {
        p = next_cell(&c, p, end, &cell, &len);
        if (text_step_rank(cell, len))
            return 1;
    }
    return 0;
}

/* The separator that occurs most often in the line of names, outside of quotes; one that leaves a
 * name of the step goes first ("step,mmlu|acc|5"). */
static char separator_of(const char *p, size_t n)
{
    size_t count[sizeof separators - 1] = {0}, best = 0;
    struct quotes q = {.may_open = 1};
    for (size_t i = 0; i < n; i++) {
        const char *k = p[i] ? strchr(separators, p[i]) : NULL;
        quotes_take(&q, p[i], 0);
        if (k && !q.is_open)
            count[k - separators]++;
    }
    int is_best_step = count[best] > 0 && has_step(separators[best], p, n);
    for (size_t i = 1; i < sizeof separators - 1; i++) {
        int is_step = count[i] > 0 && has_step(separators[i], p, n);
        if (is_step != is_best_step ? is_step : count[i] > count[best]) {
            best = i;
            is_best_step = is_step;
        }
    }
    return separators[best];
}

static int number_of(const struct csv *c, const char *p, size_t n, double *v)
{
    if (foreign_number(p, n, c->separator != ',' && !c->has_point, v))
        return 1;
    int is_true = text_same(p, n, "true");
    *v = is_true;
    return is_true || text_same(p, n, "false");
}

/* A missing value, as data frames write it. */
static int is_missing(const char *p, size_t n)
{
    static const char *const word[] = {"na", "n/a", "<na>", "null", "none", "-"};
    for (size_t i = 0; i < DS_LEN(word); i++)
        if (text_same(p, n, word[i]))
            return 1;
    return 0;
}

/* ---- names ---- */

/* may_be_number: in a line with a name of the step, "0" names a column as well. */
static int add_column(struct csv *c, const char *p, size_t n, int may_be_number, struct err *e)
{
    void *list = c->column;
    double v;
    int keep = n < NAME_MAX_BYTES ? (int)n : NAME_MAX_BYTES;
    if (n > 0 && !may_be_number && foreign_number(p, n, 0, &v))
        return err_set(e, DS_EFORMAT, "line %llu: \"%.*s\": expected a column name",
                       (unsigned long long)c->line, keep < 40 ? keep : 40, p);
    if (memchr(p, '\0', (size_t)keep))
        return err_set(e, DS_EFORMAT, "line %llu: a column name with a NUL byte",
                       (unsigned long long)c->line);
    if (mem_grow(&list, &c->cap_columns, c->columns + 1, sizeof *c->column) < 0)
        return err_set(e, DS_EMEM, "out of memory");
    c->column = list;
    struct column col = {.name = mem_alloc((size_t)keep + 1, 1),
                         .is_split = text_is_split(p, (size_t)keep),
                         .is_run = text_is_run(p, (size_t)keep),
                         .is_label = text_is_label(p, (size_t)keep)};
    if (!col.name)
        return err_set(e, DS_EMEM, "out of memory");
    memcpy(col.name, p, (size_t)keep);
    col.role = keep == 0                         ? UNUSED
               : strcmp(col.name, "tokens") == 0 ? TOKENS
               : text_is_time(p, n)              ? TIME
                                                 : METRIC;
    c->column[c->columns++] = col;
    return 0;
}

static int check_names(struct csv *c, struct err *e)
{
    struct map seen = {0};
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < c->columns; i++) {
        const char *name = c->column[i].name;
        int64_t at;
        if (name[0] && map_get(&seen, name, strlen(name), &at))
            rc = err_set(e, DS_EFORMAT, "line %llu: duplicate column \"%.60s\"",
                         (unsigned long long)c->line, name);
        else if (name[0] && map_set(&seen, name, strlen(name), 1) < 0)
            rc = err_set(e, DS_EMEM, "out of memory");
    }
    map_release(&seen);
    if (rc == 0 && c->columns < 2)
        rc = err_set(e, DS_EFORMAT, "line %llu: expected a step column and metrics",
                     (unsigned long long)c->line);
    return rc;
}

static int ends_in(const char *text, const char *suffix)
{
    size_t n = strlen(text), k = strlen(suffix);
    return n >= k && strcmp(text + n - k, suffix) == 0;
}

/* "loss__MIN" or "loss__MAX" after "loss". */
static int is_bound(const struct csv *c, size_t i)
{
    const char *name = c->column[i].name;
    if (!ends_in(name, "__MIN") && !ends_in(name, "__MAX"))
        return 0;
    for (size_t k = i >= 2 ? i - 2 : 0; k < i; k++)
        if (strlen(c->column[k].name) + 5 == strlen(name) &&
            strncmp(c->column[k].name, name, strlen(name) - 5) == 0)
            return 1;
    return 0;
}

/* An export of W&B: "RUN - metric", each with its minimum and maximum over the runs of its group.
 * Those are left out, and so is the name of a run that all columns share. */
static void name_wandb(struct csv *c)
{
    const char *shared = NULL;
    size_t n = 0;
    int has_bounds = 0;
    for (size_t i = 0; i < c->columns; i++) {
        int is = c->column[i].role == METRIC && is_bound(c, i);
        c->column[i].role = is ? UNUSED : c->column[i].role;
        has_bounds |= is;
    }
    for (size_t i = 0; has_bounds && i < c->columns; i++) {
        const char *name = c->column[i].name, *dash = strstr(name, " - ");
        if (c->column[i].role != METRIC || (i == 0 && !dash))
            continue;
        if (!dash || (shared && strncmp(name, shared, n) != 0))
            return;
        shared = shared ? shared : name;
        n = n ? n : (size_t)(dash - name) + 3;
    }
    for (size_t i = c->columns; shared && i-- > 0;) /* the first one, `shared`, last */
        if (c->column[i].role == METRIC && strncmp(c->column[i].name, shared, n) == 0)
            memmove(c->column[i].name, c->column[i].name + n, strlen(c->column[i].name + n) + 1);
}

/* An export of TensorBoard, "run-RUN-tag-TAG.csv": the column "Value" is the tag. */
static int name_tensorboard(struct csv *c, const char *file, struct err *e)
{
    const char *tag = NULL, *dot = strrchr(file, '.');
    if (c->columns != 3 || strcmp(c->column[0].name, "Wall time") != 0 ||
        strcmp(c->column[2].name, "Value") != 0)
        return 0;
    for (const char *p = file; (p = strstr(p, "tag-")) != NULL; p += 4)
        tag = p + 4;
    if (!tag || !dot || dot <= tag)
        return 0;
    char *name = mem_strdup(tag);
    if (!name)
        return err_set(e, DS_EMEM, "out of memory");
    name[dot - tag] = '\0';
    mem_free(c->column[2].name);
    c->column[2].name = name;
    return 0;
}

static int take_names(struct csv *c, const char *p, size_t n, const char *file, struct err *e)
{
    const char *end = p + n, *cell;
    size_t len;
    int rank = 0, rc = 0;
    c->separator = separator_of(p, n);
    int is_named = has_step(c->separator, p, n);
    c->has_names = 1;
    c->step = c->epoch = -1;
    while (rc == 0 && p && c->columns < COLUMNS_MAX) {
        p = next_cell(c, p, end, &cell, &len);
        rc = add_column(c, cell, len, is_named, e);
        int r = text_step_rank(cell, len);
        if (r == text_step_rank("epoch", 5))
            c->epoch = (int)c->columns - 1;
        if (r > rank) {
            rank = r;
            c->step = (int)c->columns - 1;
        }
    }
    if (rc == 0)
        rc = check_names(c, e);
    if (rc == 0) {
        if (c->step >= 0)
            c->column[c->step].role = STEP;
        name_wandb(c);
        rc = name_tensorboard(c, file, e);
    }
    return rc;
}

/* Without a column of that name the first one is the step, if the first row has a whole number in it
 * and it is not named like a metric.  The row tells what a comma is, too: "12,500" next to "2.5" is
 * not 12.5. */
static void decide(struct csv *c, const char *p, size_t n)
{
    const char *cell, *at = p;
    size_t len;
    int64_t step;
    double v;
    int rank;
    c->is_decided = 1;
    while (at) {
        at = next_cell(c, at, p + n, &cell, &len);
        c->has_point |= memchr(cell, '.', len) && foreign_number(cell, len, 0, &v);
    }
    if (c->step >= 0 || run_metric_find(c->column[0].name) ||
        metric_canonical(c->column[0].name, &rank))
        return;
    next_cell(c, p, p + n, &cell, &len);
    if (!number_of(c, cell, len, &v) || !text_step(v, &step))
        return;
    c->step = 0;
    c->column[0].role = STEP;
}

/* ---- rows ---- */

static void bad_cell(struct csv *c, const struct column *x, const char *p, size_t n)
{
    int keep = n < 40 ? (int)n : 40;
    if (c->first_error.code == 0)
        err_set(&c->first_error, DS_EFORMAT, "line %llu: column \"%.60s\": \"%.*s\": expected %s",
                (unsigned long long)c->line, x->name, keep, p,
                x->role == STEP ? "a step, a non-negative integer" : "a number");
}

/* The first text of its kind in a row. */
static int keep_text(char out[ROW_TEXT], const char *p, size_t n)
{
    if (out[0] || n >= ROW_TEXT)
        return 0;
    memcpy(out, p, n);
    out[n] = '\0';
    return 1;
}

/* A cell of a row: sets the column's value, or the row's time. */
static void take_cell(struct csv *c, struct foreign_out *out, struct column *x, const char *p,
                      size_t n, double *time)
{
    x->has_value = 0;
    if (x->role == UNUSED || n == 0)
        return;
    if (number_of(c, p, n, &x->value)) {
        if (x->is_run && !c->run[0])
            snprintf(c->run, sizeof c->run, "%.60s%.*s", x->name, n < 60 ? (int)n : 60, p);
        if (x->role == TIME && isnan(*time) && text_time(x->value, time))
            return;
        if (x->numbers++ == 0 && x->texts > 0)
            foreign_invalid(out, x->texts);
        x->has_value = 1;
        return;
    }
    if (is_missing(p, n) || (x->role == TIME && isnan(*time) && text_time_parse(p, n, time)))
        return;
    x->texts++;
    c->texts = x->role == TIME ? c->texts : hash64(p, n, c->texts);
    if (x->is_split && text_evaluated(p, n))
        x->is_reported |= keep_text(c->set, p, n); /* it is in the names */
    if (x->is_run)
        (void)keep_text(c->run, p, n);
    if (x->is_label)
        x->is_reported |= keep_text(c->label, p, n);
    bad_cell(c, x, p, n);
    if (x->numbers > 0 || x->role == STEP)
        foreign_invalid(out, 1);
}

/* Has the first epoch several rows, each with the same metric?  Then it is no step.  Rows that some
 * text tells apart ("train", "val") are no such rows. */
static int is_repeated(struct csv *c, int64_t epoch)
{
    c->first = c->rows == 0 ? epoch : c->first;
    c->first_texts = c->rows == 0 ? c->texts : c->first_texts;
    c->is_later |= epoch != c->first || c->texts != c->first_texts;
    for (size_t i = 0; i < c->columns && !c->is_later; i++)
        if (c->column[i].role == METRIC && c->column[i].has_value && c->column[i].numbers > 1)
            return 1;
    return 0;
}

static int step_of_row(struct csv *c, struct foreign_out *out, int64_t *step)
{
    const struct column *x = c->step >= 0 ? &c->column[c->step] : NULL;
    int is_epoch = x && c->step == c->epoch;
    *step = x ? c->newest : c->rows + c->first;
    if (!x || !x->has_value)
        return 1; /* a row of its own writer: it belongs to the newest step */
    int is_step = text_step(x->value, step) && *step >= 0;
    if (is_epoch && (is_step ? is_repeated(c, *step) : isfinite(x->value))) { /* or in fractions */
        c->column[c->step].role = METRIC;
        c->step = -1;
        *step = c->rows + c->first;
        return 1;
    }
    if (is_step) {
        const struct column *epoch = c->epoch >= 0 ? &c->column[c->epoch] : NULL;
        if (epoch && !is_epoch)
            *step =
                text_epochs_step(&c->epochs, epoch->has_value ? epoch->value : (double)NAN, *step);
        c->newest = *step;
        return 1;
    }
    char text[32];
    int n = snprintf(text, sizeof text, "%g", x->value);
    bad_cell(c, x, text, (size_t)n);
    foreign_invalid(out, 1);
    return 0;
}

/* "val/loss" of a row whose split is "val", "run2/loss" of another run than the first; an epoch is
 * the same in all.  Of a value its label. */
static void add_point(struct csv *c, struct foreign_out *out, const struct column *x, int64_t step,
                      double time)
{
    char name[2 * ROW_TEXT + NAME_MAX_BYTES];
    if (!c->set[0] && !c->label[0] && !c->is_other_run) {
        foreign_point(out, x->name, strlen(x->name), step, time, x->value);
        return;
    }
    const char *own = c->label[0] && text_is_value(x->name, strlen(x->name)) ? c->label : x->name;
    const char *set = text_step_rank(own, strlen(own)) == 0 ? c->set : "";
    size_t n = (size_t)snprintf(name, sizeof name, "%s%s%s%s%s", c->is_other_run ? c->run : "",
                                c->is_other_run ? "/" : "", set, *set ? "/" : "", own);
    foreign_point(out, name, n, step, time, x->value);
}

static void deliver(struct csv *c, struct foreign_out *out, int64_t step, double time)
{
    for (int pass = 0; pass < 2; pass++) /* "tokens" is an axis of the others: it goes first */
        for (size_t i = 0; i < c->columns; i++) {
            const struct column *x = &c->column[i];
            if (!x->has_value || x->role == STEP || (x->role == TOKENS) == pass)
                continue;
            add_point(c, out, x, step, time);
            c->values++;
        }
}

/* A row of a run that was started again: the line of names came once more, or rows with the same
 * columns do. */
static int is_restart(struct csv *c, int64_t before, int64_t step)
{
    uint64_t filled = hash64(c->set, strlen(c->set), hash64(c->label, strlen(c->label), 0));
    if (c->is_other_run)
        filled = hash64(c->run, strlen(c->run), filled);
    for (size_t i = 0; i < c->columns; i++)
        if (c->column[i].has_value)
            filled = hash64(&i, sizeof i, filled);
    int is_again = text_restart_at(&c->restart, filled, step, 0);
    return is_again || (c->is_again && step < before);
}

static void take_row(struct csv *c, struct foreign_out *out, const char *p, size_t n)
{
    const char *end = p + n, *cell;
    double time = (double)NAN;
    size_t k = 0, len;
    int64_t step;
    uint64_t texts = c->step >= 0 ? c->column[c->step].texts : 0;
    c->texts = 0;
    c->set[0] = c->label[0] = c->run[0] = '\0';
    for (; p && k < c->columns; k++) {
        p = next_cell(c, p, end, &cell, &len);
        take_cell(c, out, &c->column[k], cell, len, &time);
    }
    int is_ragged =
        k < c->columns || (p && c->columns < COLUMNS_MAX && !is_blank(p, (size_t)(end - p)));
    if (is_ragged) {
        foreign_invalid(out, 1);
        if (c->first_error.code == 0)
            err_set(&c->first_error, DS_EFORMAT, "line %llu: %s, expected %zu",
                    (unsigned long long)c->line, p ? "more cells" : "fewer cells", c->columns);
    }
    for (; k < c->columns; k++)
        c->column[k].has_value = 0;
    int is_text_step = c->step >= 0 && c->column[c->step].texts > texts;
    int64_t before = c->newest;
    /* with too many cells nobody knows which is which */
    if (!(is_ragged && p) && !is_text_step && step_of_row(c, out, &step)) {
        c->is_other_run = c->run[0] && c->step >= 0 && text_run_is_other(&c->runs, c->run, step);
        if (c->step >= 0 && is_restart(c, before, step)) { /* from there on */
            record_bool(foreign_begin(out, "head", step, time), "resume", 1);
            foreign_end(out);
        }
        c->is_again = 0;
        deliver(c, out, step, time);
    }
    c->rows++;
}

/* Names the columns that hold text, each once. */
static void report_text(struct csv *c, struct foreign_out *out)
{
    struct str names = {0};
    int n = 0;
    for (size_t i = 0; i < c->columns; i++) {
        struct column *x = &c->column[i];
        if (x->texts == 0 || x->numbers > 0 || x->is_reported || x->role == STEP)
            continue;
        x->is_reported = 1;
        if (n++ < 8)
            str_addf(&names, "%s%.60s", n > 1 ? ", " : "", x->name);
    }
    if (n > 8)
        str_addf(&names, " and %d more", n - 8);
    if (names.failed) {
        foreign_no_memory(out);
    } else if (n > 0) {
        char text[700];
        snprintf(text, sizeof text, "columns without numbers are not shown: %s", names.p);
        foreign_event(out, c->newest, (double)NAN, "info", "columns", text);
    }
    str_release(&names);
}

/* ---- settings next to the table ---- */

static int64_t take_settings(struct foreign_out *out, const struct foreign_bytes *b)
{
    struct config config = {0};
    struct err e = {0};
    if (config_read_yaml_text(&config, b->p, b->n, b->file, &e) < 0) {
        foreign_event(out, 0, (double)NAN, "warn", "settings", e.text);
    } else {
        struct record *r = foreign_begin(out, "head", 0, (double)NAN);
        record_map(r, "config");
        for (size_t i = 0; i < config.n; i++)
            record_str(r, config.entry[i].key, config.entry[i].value);
        record_close(r);
        foreign_end(out);
    }
    config_release(&config);
    return (int64_t)b->n;
}

static int is_settings(const char *rel)
{
    return strcmp(rel, "hparams.yaml") == 0;
}

static int is_member(const char *rel)
{
    return strcmp(rel, "metrics.csv") == 0 || is_settings(rel);
}

/* ---- the format ---- */

/* The first line that is neither blank nor a comment has the names, unless it has only numbers: then
 * the comment before it has, as NumPy writes it. */
static int take_first(struct csv *c, struct foreign_out *out, const char *p, size_t n,
                      const char *file, struct err *e)
{
    const char *cell, *at = p;
    size_t len;
    double v;
    int is_numbers = c->comment.len > 0;
    c->separator = separator_of(p, n);
    while (at && is_numbers) {
        at = next_cell(c, at, p + n, &cell, &len);
        is_numbers = foreign_number(cell, len, c->separator != ',', &v);
    }
    if (!is_numbers) {
        c->head = hash64(p, n, 0);
        c->heads = n;
        return take_names(c, p, n, file, e);
    }
    int rc = take_names(c, c->comment.p, c->comment.len, file, e);
    if (rc == 0) {
        decide(c, p, n);
        take_row(c, out, p, n);
    }
    return rc;
}

static int take_line(struct csv *c, struct foreign_out *out, const struct foreign_bytes *b,
                     size_t at, size_t n, struct err *e)
{
    const char *p = b->p + at;
    if (c->line == 1 && n >= 3 && memcmp(p, "\xEF\xBB\xBF", 3) == 0) {
        p += 3;
        n -= 3;
    }
    if (is_blank(p, n))
        return 0;
    if (*p == '#') {
        size_t skip = 1;
        while (skip < n && p[skip] == ' ')
            skip++;
        if (!c->has_names) {
            str_reset(&c->comment);
            str_add_bytes(&c->comment, p + skip, n - skip);
        }
        return c->comment.failed ? err_set(e, DS_EMEM, "out of memory") : 0;
    }
    if (!c->has_names)
        return take_first(c, out, p, n, b->file, e);
    if (n == c->heads && hash64(p, n, 0) == c->head) {
        c->is_again = 1;
        return 0;
    }
    if (!c->is_decided)
        decide(c, p, n);
    take_row(c, out, p, n);
    return c->cell.failed ? err_set(e, DS_EMEM, "out of memory") : 0;
}

static int64_t take(void *state, struct foreign_out *out, const struct foreign_bytes *b,
                    struct err *e)
{
    struct csv *c = state;
    size_t at = 0, used;
    uint64_t lines;
    int rc = 0;
    if (is_settings(b->file))
        return take_settings(out, b);
    while (rc == 0) {
        size_t n = row_at(c->separator, b->p + at, b->n - at, b->is_end, &used, &lines);
        if (used == 0 && b->n - at > TEXT_LINE_MAX) {
            foreign_invalid(out, c->is_skipping ? 0 : 1);
            c->is_skipping = 1;
            at = b->n;
        }
        if (used == 0)
            break;
        c->line++;
        if (!c->is_skipping && n <= TEXT_LINE_MAX)
            rc = take_line(c, out, b, at, n, e);
        else if (!c->is_skipping)
            foreign_invalid(out, 1);
        c->is_skipping = 0;
        c->line += lines - 1;
        at += used;
    }
    if (rc == 0 && (b->is_end || c->rows > TEXT_ROWS) && !c->is_reported) {
        report_text(c, out);
        c->is_reported = c->rows > TEXT_ROWS;
    }
    if (rc == 0 && b->is_end && c->rows > 0 && c->values == 0 && c->first_error.code)
        rc = err_set(e, DS_EFORMAT, "%s", c->first_error.text);
    return rc < 0 ? rc : (int64_t)at;
}

/* ---- recognising ---- */

/* Cells of a line; *numbers of them are numbers, *longest has that many bytes. */
static size_t count_cells(struct csv *c, const char *p, size_t n, size_t *numbers, size_t *longest)
{
    const char *end = p + n, *cell;
    size_t cells = 0, len;
    double v;
    *numbers = *longest = 0;
    while (p && cells <= COLUMNS_MAX) {
        p = next_cell(c, p, end, &cell, &len);
        cells++;
        *numbers += len > 0 && number_of(c, cell, len, &v);
        *longest = len > *longest ? len : *longest;
    }
    return cells;
}

/* 2 step, 1 time, 0 neither; -1: a table of another kind, of tokens, layers and experts. */
static int axis_of(struct csv *c, const char *p, size_t n)
{
    const char *end = p + n, *cell;
    size_t len;
    int found = 0, has_expert = 0, has_layer = 0;
    while (p) {
        p = next_cell(c, p, end, &cell, &len);
        has_expert |= text_same(cell, len, "expert") || text_same(cell, len, "experts") ||
                      text_same(cell, len, "expert_id");
        has_layer |= (len >= 5 && text_same(cell, 5, "layer")) ||
                     text_same(cell, len, "moe_layer") || text_same(cell, len, "block");
        int axis = text_step_rank(cell, len) ? 2 : text_is_time(cell, len);
        found = axis > found ? axis : found;
    }
    return has_expert && (has_layer || found < 2) ? -1 : found;
}

static int rate(struct csv *c, const char *p, size_t n, const char *next, size_t m, int is_named)
{
    size_t numbers, longest, values = 0, cells, width = 0, widest = 0;
    c->separator = separator_of(p, n);
    cells = count_cells(c, p, n, &numbers, &longest);
    if (next)
        width = count_cells(c, next, m, &values, &widest);
    int axis = axis_of(c, p, n);
    if (axis < 0)
        return 0;
    if (cells > 1 && (numbers == 0 || axis == 2) && longest <= 160) {
        if (next && width == cells && values > 0)
            return axis == 2 ? 70 : axis == 1 ? 60 : is_named || values == cells ? 30 : 0;
        if (!next && (axis == 2 || is_named))
            return axis == 2 ? 25 : 10;
    }
    return is_named && (!next || values > 0) ? 1 : 0; /* for an error that says what is wrong */
}

static int recognise(const unsigned char *bytes, size_t n, const char *file, int is_all)
{
    struct csv c = {.is_look = 1};
    const char *p = (const char *)bytes, *end = p + n, *line[3] = {NULL};
    size_t length[3] = {0}, used;
    uint64_t breaks;
    int lines = 0;
    for (const char *q = p; q < end; q++)
        if ((unsigned char)*q < 32 && *q != '\t' && *q != '\r' && *q != '\n')
            return 0;
    p += n >= 3 && memcmp(p, "\xEF\xBB\xBF", 3) == 0 ? 3 : 0;
    if (p < end && strchr("{[<", *p))
        return 0;
    for (; p < end && lines < 2; p += used) {
        size_t len = row_at(0, p, (size_t)(end - p), is_all, &used, &breaks);
        if (used == 0)
            break;
        if (is_blank(p, len))
            continue;
        if (*p == '#') { /* the names, if numbers follow */
            size_t skip = 1;
            while (skip < len && p[skip] == ' ')
                skip++;
            line[2] = p + skip;
            length[2] = len - skip;
            continue;
        }
        line[lines] = p;
        length[lines++] = len;
    }
    if (lines == 0)
        return 0;
    int is_named = ends_in(file, ".csv") || ends_in(file, ".tsv");
    int sure = rate(&c, line[0], length[0], line[1], length[1], is_named);
    if (sure <= 1 && line[2] && length[2] > 0) {
        int other = rate(&c, line[2], length[2], line[0], length[0], 0);
        sure = other > sure ? other : sure;
    }
    return sure;
}

static void release(void *state)
{
    struct csv *c = state;
    for (size_t i = 0; i < c->columns; i++)
        mem_free(c->column[i].name);
    mem_free(c->column);
    str_release(&c->comment);
    str_release(&c->cell);
}

const struct foreign_format foreign_csv = {
    .name = "csv",
    .title = "CSV table",
    .help =
        "one line of column names, then one line per step; commas, tabs, semicolons or |; "
        "results of a row whose split is val are called val/loss; metrics.csv with hparams.yaml "
        "is a run in a folder",
    .recognise = recognise,
    .state_size = sizeof(struct csv),
    .take = take,
    .release = release,
    .is_member = is_member,
    .is_rewritten = is_settings,
};
