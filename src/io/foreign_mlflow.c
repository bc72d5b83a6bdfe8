/* Runs of MLflow's file store: RUN_ID/metrics/NAME with a line per value, parameters and tags as
 * files, meta.yaml for how the run is. */
#include <math.h>
#include <string.h>

#include "io/foreign.h"
#include "io/foreign_text.h"

static const double no_time = (double)NAN;

/* The part of a member's path after its folder, NULL when it is not in there. */
static const char *below(const char *rel, const char *folder)
{
    size_t n = strlen(folder);
    return strncmp(rel, folder, n) == 0 && rel[n] == '/' && rel[n + 1] ? rel + n + 1 : NULL;
}

/* ---- metrics: "timestamp_ms value step", in early versions without the step ---- */

static size_t next_word(const char **p, const char *end, const char **word)
{
    while (*p < end && **p == ' ')
        ++*p;
    *word = *p;
    while (*p < end && **p != ' ')
        ++*p;
    return (size_t)(*p - *word);
}

struct metric_line {
    double time, value;
    int64_t step;
};

static int read_line(const char *p, size_t n, struct metric_line *m)
{
    const char *end = p + n, *word;
    double ms, step = 0;
    size_t k = next_word(&p, end, &word);
    if (!foreign_number(word, k, 0, &ms) || !(ms >= 0) || memchr(word, '.', k))
        return 0;
    k = next_word(&p, end, &word);
    if (!foreign_number(word, k, 0, &m->value))
        return 0;
    k = next_word(&p, end, &word);
    if (k > 0 && !foreign_number(word, k, 0, &step))
        return 0;
    m->time = ms > 0 ? ms / 1000 : no_time;
    return text_step(step, &m->step);
}

static int64_t take_metric(struct text_lines *lines, struct foreign_out *out,
                           const struct foreign_bytes *b, const char *name)
{
    struct metric_line m;
    const char *line;
    size_t at = 0, n;
    while (text_next(lines, out, b, &at, &line, &n)) {
        if (n > 0 && read_line(line, n, &m))
            foreign_point(out, name, strlen(name), m.step, m.time, m.value);
        else
            foreign_invalid(out, n > 0);
    }
    return (int64_t)at;
}

/* ---- the rest: small files that are read as a whole ---- */

static void take_param(struct foreign_out *out, const struct foreign_bytes *b, const char *name)
{
    enum { VALUE_MAX = 6000 }; /* MLflow's own limit */
    char text[VALUE_MAX + 1];
    size_t n = b->n < VALUE_MAX ? b->n : VALUE_MAX;
    while (n > 0 && (b->p[n - 1] == '\n' || b->p[n - 1] == '\r'))
        n--;
    memcpy(text, b->p, n);
    text[n] = '\0';
    struct record *r = foreign_begin(out, "head", 0, no_time);
    record_map(r, "config");
    record_str(r, name, text);
    record_close(r);
    foreign_end(out);
}

static void take_name(struct foreign_out *out, const char *p, size_t n)
{
    char text[256];
    while (n > 0 && (p[n - 1] == '\n' || p[n - 1] == '\r'))
        n--;
    n = n < sizeof text - 1 ? n : sizeof text - 1;
    memcpy(text, p, n);
    text[n] = '\0';
    record_str(foreign_begin(out, "head", 0, no_time), "run", text);
    foreign_end(out);
}

/* The value of "key: value" lines that MLflow writes at the top level; quotes are removed. */
static int value_of(const char *line, size_t n, const char *key, const char **value, size_t *len)
{
    size_t k = strlen(key);
    if (n <= k + 1 || memcmp(line, key, k) != 0 || line[k] != ':')
        return 0;
    for (line += k + 1, n -= k + 1; n > 0 && *line == ' '; n--)
        line++;
    if (n >= 2 && (line[0] == '\'' || line[0] == '"') && line[n - 1] == line[0]) {
        line++;
        n -= 2;
    }
    *value = line;
    *len = n;
    return n > 0;
}

static void take_meta(struct foreign_out *out, const struct foreign_bytes *b)
{
    static const struct {
        const char *number, *word, *status;
    } ends[] = {{"3", "FINISHED", "done"}, {"4", "FAILED", "failed"}, {"5", "KILLED", "stopped"}};
    const char *status = NULL, *value;
    double ended = no_time, ms;
    size_t at = 0, used, n, len;
    for (; at < b->n; at += used) {
        const char *line = b->p + at;
        n = foreign_line(line, b->n - at, 1, &used);
        if (value_of(line, n, "run_name", &value, &len))
            take_name(out, value, len);
        if (value_of(line, n, "end_time", &value, &len) && foreign_number(value, len, 0, &ms))
            ended = ms / 1000;
        for (size_t i = 0; value_of(line, n, "status", &value, &len) && i < DS_LEN(ends); i++)
            if ((len == 1 && *value == *ends[i].number) ||
                (len == strlen(ends[i].word) && memcmp(value, ends[i].word, len) == 0))
                status = ends[i].status;
    }
    if (status) {
        record_str(foreign_begin(out, "end", -1, ended), "status", status);
        foreign_end(out);
    }
}

/* ---- the format ---- */

static int64_t take(void *state, struct foreign_out *out, const struct foreign_bytes *b,
                    struct err *e)
{
    const char *metric = below(b->file, "metrics"), *param = below(b->file, "params");
    (void)e;
    if (param)
        take_param(out, b, param);
    else if (strcmp(b->file, "meta.yaml") == 0)
        take_meta(out, b);
    else if (strcmp(b->file, "tags/mlflow.runName") == 0)
        take_name(out, b->p, b->n);
    else
        return take_metric(state, out, b, metric ? metric : b->file);
    return (int64_t)b->n;
}

/* Lines of a time in milliseconds, a value and a step. */
static int recognise(const unsigned char *bytes, size_t n, const char *file, int is_all)
{
    const char *p = (const char *)bytes;
    struct metric_line m;
    size_t at = 0, used;
    int lines = 0;
    (void)file;
    for (; at < n && lines < 4; at += used) {
        size_t len = foreign_line(p + at, n - at, is_all, &used);
        double seconds;
        if (used == 0)
            break;
        if (!read_line(p + at, len, &m) || !text_time(m.time, &seconds))
            return 0;
        lines++;
    }
    return lines > 0 ? 50 : 0;
}

static int is_meta(const char *rel)
{
    return strcmp(rel, "meta.yaml") == 0 || strcmp(rel, "tags/mlflow.runName") == 0;
}

static int is_member(const char *rel)
{
    return is_meta(rel) || below(rel, "metrics") || below(rel, "params");
}

static int is_folder(const char *rel)
{
    return strcmp(rel, "metrics") == 0 || strcmp(rel, "params") == 0 || strcmp(rel, "tags") == 0 ||
           below(rel, "metrics") || below(rel, "params");
}

static int is_rewritten(const char *rel)
{
    return is_meta(rel) || below(rel, "params");
}

const struct foreign_format foreign_mlflow = {
    .name = "mlflow",
    .title = "MLflow run",
    .help = "a run's folder in the file store, or its folder metrics: values, parameters, state",
    .recognise = recognise,
    .state_size = sizeof(struct text_lines),
    .take = take,
    .is_member = is_member,
    .is_folder = is_folder,
    .inner = "metrics",
    .depth = 16, /* "metrics" and the parts of a name */
    .is_rewritten = is_rewritten,
};
