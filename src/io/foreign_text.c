/* Lines, and the names of steps and times in logs of other programs. */
#include "io/foreign_text.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/compiler.h"
#include "base/hash.h"

int text_next(struct text_lines *t, struct foreign_out *out, const struct foreign_bytes *b,
              size_t *at, const char **line, size_t *n)
{
    for (;;) {
        size_t used, left = b->n - *at;
        size_t got = foreign_line(b->p + *at, left, b->is_end, &used);
        if (used == 0 && left > TEXT_LINE_MAX) {
            foreign_invalid(out, t->is_skipping ? 0 : 1);
            t->is_skipping = 1;
            *at = b->n;
        }
        if (used == 0)
            return 0;
        *line = b->p + *at;
        *n = got;
        *at += used;
        t->number++;
        if (!t->is_skipping && got <= TEXT_LINE_MAX)
            return 1;
        foreign_invalid(out, !t->is_skipping);
        t->is_skipping = 0;
    }
}

int text_same(const char *p, size_t n, const char *word)
{
    for (size_t i = 0; i < n; i++)
        if (!word[i] || tolower((unsigned char)p[i]) != word[i])
            return 0;
    return word[n] == '\0';
}

/* A name and its length: nearly all names of a log differ in that. */
struct word {
    const char *text;
    size_t n;
};
#define WORD(text)                                                                                 \
    {                                                                                              \
        text, sizeof(text) - 1                                                                     \
    }

static int place(const struct word *list, size_t count, const char *p, size_t n)
{
    for (size_t i = 0; i < count; i++)
        if (list[i].n == n && (p[0] | 0x20) == (list[i].text[0] | 0x20) &&
            text_same(p, n, list[i].text))
            return (int)(count - i);
    return 0;
}

int text_step_rank(const char *name, size_t n)
{
    static const struct word names[] = {WORD("step"),
                                        WORD("_step"),
                                        WORD("global_step"),
                                        WORD("global step"),
                                        WORD("trainer/global_step"),
                                        WORD("train/global_step"),
                                        WORD("iter"),
                                        WORD("iteration"),
                                        WORD("iterations"),
                                        WORD("iter_num"),
                                        WORD("training/iteration"),
                                        WORD("train_step"),
                                        WORD("train/step"),
                                        WORD("training_step"),
                                        WORD("current_steps"),
                                        WORD("current_step"),
                                        WORD("update_step"),
                                        WORD("optimizer_step"),
                                        WORD("opt_step"),
                                        WORD("time/batch"),
                                        WORD("num_updates"),
                                        WORD("epoch")};
    return place(names, DS_LEN(names), name, n);
}

int text_is_time(const char *name, size_t n)
{
    static const struct word names[] = {WORD("time"),     WORD("_timestamp"), WORD("timestamp"),
                                        WORD("ts"),       WORD("wall_time"),  WORD("wall time"),
                                        WORD("walltime"), WORD("datetime"),   WORD("date")};
    return place(names, DS_LEN(names), name, n) > 0;
}

size_t text_evaluated(const char *p, size_t n)
{
    static const char *const words[] = {
        "val",  "valid",    "validation", "validating", "validate", "valset",  "dev",    "devset",
        "eval", "evaluate", "evaluation", "evaluating", "test",     "testing", "testset"};
    for (size_t i = 0; i < DS_LEN(words); i++) {
        size_t k = strlen(words[i]);
        if (n >= k && text_same(p, k, words[i]) && (n == k || !isalnum((unsigned char)p[k])))
            return k;
    }
    return 0;
}

static int is_one_of(const char *name, size_t n, const char *const *words, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (text_same(name, n, words[i]))
            return 1;
    return 0;
}

int text_is_split(const char *name, size_t n)
{
    static const char *const names[] = {"split",     "phase",   "mode", "set",  "subset", "stage",
                                        "partition", "dataset", "type", "kind", "event",  "loop"};
    return is_one_of(name, n, names, DS_LEN(names));
}

int text_is_run(const char *name, size_t n)
{
    static const char *const names[] = {
        "run",   "run_id", "run_name", "experiment", "experiment_name",
        "trial", "model",  "model",    "method",     "seed"};
    return is_one_of(name, n, names, DS_LEN(names));
}

int text_run_is_other(struct text_runs *t, const char *run, int64_t step)
{
    uint64_t bit = hash64(run, strlen(run), 0) % (64 * DS_LEN(t->others));
    if (!t->first[0])
        t->start = step;
    if (!t->first[0] || strcmp(run, t->first) == 0) {
        str_copy(t->first, sizeof t->first, run);
        return 0;
    }
    if (step > t->start && !(t->others[bit / 64] >> bit % 64 & 1)) {
        str_copy(t->first, sizeof t->first, run);
        return 0;
    }
    t->others[bit / 64] |= (uint64_t)1 << bit % 64;
    return 1;
}

int text_is_label(const char *name, size_t n)
{
    static const char *const names[] = {"metric", "metric_name", "tag", "name", "key", "variable"};
    return is_one_of(name, n, names, DS_LEN(names));
}

int text_is_value(const char *name, size_t n)
{
    return text_same(name, n, "value") || text_same(name, n, "metric_value");
}

int text_step(double value, int64_t *step)
{
    if (!(fabs(value) < 9e15) || value != floor(value))
        return 0;
    *step = (int64_t)value;
    return 1;
}

int64_t text_epochs_step(struct text_epochs *t, double epoch, int64_t step)
{
    int is_later = t->has_epoch && epoch > t->epoch && t->has_step && step <= t->step;
    double before = (double)t->before;
    t->is_anew |= is_later && step == t->first_step;
    if (t->is_anew && is_later)
        before = (double)t->sum + (step == 0);
    else if (t->is_anew && epoch < t->epoch) /* a run that went back: epochs are equally long */
        before *= fmax(epoch - t->first, 0) / fmax(t->epoch - t->first, 1);
    if (isfinite(epoch)) {
        t->first = t->has_epoch ? fmin(t->first, epoch) : epoch;
        t->epoch = epoch;
        t->has_epoch = 1;
    }
    t->first_step = t->has_step ? t->first_step : step;
    t->has_step = 1;
    t->step = step;
    if (!text_step(round(before), &t->before) || !text_step(before + (double)step, &t->sum))
        t->before = 0;
    return t->sum = t->before + step;
}

static struct text_kind *kind_at(struct text_restart *t, uint64_t kind, int64_t step)
{
    for (size_t i = 0; i < t->n; i++)
        if (t->of[i].kind == kind)
            return &t->of[i];
    if (t->n == DS_LEN(t->of)) /* names that differ all the time tell nothing */
        t->n = 0;
    t->of[t->n] = (struct text_kind){.kind = kind, .top = step, .last = step};
    return &t->of[t->n++];
}

int text_restart_at(struct text_restart *t, uint64_t kind, int64_t step, int is_sure)
{
    struct text_kind *x = kind_at(t, kind, step);
    uint64_t bit = hash64(&step, sizeof step, kind) % (64 * DS_LEN(t->seen));
    int is_again = t->seen[bit / 64] >> bit % 64 & 1;
    int is_furthest = t->has_top && x->top == t->top && step < x->top;
    if (is_furthest &&
        ((is_sure && x->last == x->top) || (is_again && x->is_again && x->last < step))) {
        *t = (struct text_restart){0};
        x = kind_at(t, kind, step);
        is_again = 0;
    }
    int is_restart = !t->has_top && is_furthest;
    t->seen[bit / 64] |= (uint64_t)1 << bit % 64;
    x->last = step;
    x->is_again = is_again;
    x->top = step > x->top ? step : x->top;
    t->top = !t->has_top || step > t->top ? step : t->top;
    t->has_top = 1;
    return is_restart;
}

int text_time(double value, double *seconds)
{
    /* 1973 to 5138 in each unit: the ranges do not overlap */
    for (double unit = 1; unit <= 1e9; unit *= 1000)
        if (value >= 1e8 * unit && value < 1e11 * unit) {
            *seconds = value / unit;
            return 1;
        }
    return 0;
}

static int digits(const char **p, const char *end, int n, int *out)
{
    *out = 0;
    for (; n > 0; n--, (*p)++) {
        if (*p == end || !isdigit((unsigned char)**p))
            return 0;
        *out = *out * 10 + (**p - '0');
    }
    return 1;
}

/* Days since 1970-01-01 in the Gregorian calendar; month 1..12. */
static int64_t days_of(int year, int month, int day)
{
    int64_t y = year - (month <= 2), m = (month + 9) % 12;
    return 365 * y + y / 4 - y / 100 + y / 400 + (m * 306 + 5) / 10 + day - 1 - 719468;
}

/* "Z", "+02:00", "+0200", "+02"; *is_local when there is none. */
static int zone(const char *p, const char *end, int *offset_s, int *is_local)
{
    int hours = 0, minutes = 0, sign;
    *offset_s = 0;
    *is_local = p == end;
    if (p == end || ((*p == 'Z' || *p == 'z') && p + 1 == end))
        return 1;
    if (*p != '+' && *p != '-')
        return 0;
    sign = *p++ == '-' ? -1 : 1;
    if (!digits(&p, end, 2, &hours))
        return 0;
    p += p < end && *p == ':';
    if (p < end && !digits(&p, end, 2, &minutes))
        return 0;
    *offset_s = sign * (hours * 3600 + minutes * 60);
    return p == end;
}

int text_time_parse(const char *p, size_t n, double *seconds)
{
    const char *end = p + n;
    struct tm t = {.tm_isdst = -1};
    double fraction = 0;
    int offset_s, is_local;
    if (!digits(&p, end, 4, &t.tm_year) || p == end || *p++ != '-' ||
        !digits(&p, end, 2, &t.tm_mon) || p == end || *p++ != '-' ||
        !digits(&p, end, 2, &t.tm_mday) || p == end || (*p != 'T' && *p != ' '))
        return 0;
    p++;
    if (!digits(&p, end, 2, &t.tm_hour) || p == end || *p++ != ':' ||
        !digits(&p, end, 2, &t.tm_min))
        return 0;
    if (p < end && *p == ':') {
        p++;
        if (!digits(&p, end, 2, &t.tm_sec))
            return 0;
    }
    if (p < end && (*p == '.' || *p == ',')) {
        double unit = 0.1;
        for (p++; p < end && isdigit((unsigned char)*p); p++, unit /= 10)
            fraction += (*p - '0') * unit;
    }
    if (!zone(p, end, &offset_s, &is_local) || t.tm_year < 1970 || t.tm_mon < 1 || t.tm_mon > 12)
        return 0;
    if (is_local) {
        struct tm local = t;
        local.tm_year -= 1900;
        local.tm_mon--;
        *seconds = (double)mktime(&local) + fraction;
        return *seconds >= 0;
    }
    int64_t whole = days_of(t.tm_year, t.tm_mon, t.tm_mday) * 86400 + t.tm_hour * 3600 +
                    t.tm_min * 60 + t.tm_sec - offset_s;
    *seconds = (double)whole + fraction;
    return 1;
}
