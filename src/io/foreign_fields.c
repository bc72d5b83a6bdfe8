/* Takes printed lines apart: numbers, their units, and the names before them. */
#include "io/foreign_fields.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/compiler.h"
#include "base/decimal.h"
#include "io/foreign_text.h"

/* Fields as they are printed and what they are called here, NULL: nothing; the first that fits.
 * unit: after the number, NULL any. */
static const struct rename {
    const char *name, *unit, *metric;
    double times, per; /* value * times / per */
} renames[] = {
    // clang-format off
    {"time", "ms", "step_ms", 1, 1},      {"time", "s", "step_ms", 1000, 1},
    {"iter time", "ms", "step_ms", 1, 1}, {"iter time", "s", "step_ms", 1000, 1},
    {"dt", "ms", "step_ms", 1, 1},        {"dt", "s", "step_ms", 1000, 1},
    {"", "ms", "step_ms", 1, 1},
    {"elapsed time per iteration (ms)", NULL, "step_ms", 1, 1},
    {"mfu", "%", "mfu", 1, 100},         {"", "% mfu", "mfu", 1, 100},
    {"", "% bf16 mfu", "mfu", 1, 100},   {"", "% fp16 mfu", "mfu", 1, 100}, {"", "% fp32 mfu", "mfu", 1, 100},
    {"", "tok/s", "tok/s", 1, 1},         {"", "tokens/s", "tok/s", 1, 1},    {"", "tok/sec", "tok/s", 1, 1},
    {"loss train", NULL, "train loss", 1, 1},
    {"val", NULL, "val loss", 1, 1}, /* of "loss train: 2.1, val: 2.2" */
    {"remaining time", NULL, NULL, 1, 1}, {"eta", NULL, NULL, 1, 1},
    // clang-format on
};

/* Without ":" or "=" only these are names, or every remark would be a metric. */
static const char *const known[] = {
    "loss",          "nll_loss",      "acc@1",     "acc@5",      "train loss", "val loss",
    "valid loss",    "eval loss",     "test loss", "norm",       "lr",         "grad norm",
    "time",          "mfu",           "dt",        "acc",        "ppl",        "tok/s",
    "train_loss",    "val_loss",      "val time",  "throughput", "accuracy",   "perplexity",
    "learning rate", "learning_rate", "grad_norm",
};

/* Words after a number that are no part of the name that follows. */
static const char *const units[] = {"ms",      "s",        "sec",        "%",    "tok/s",
                                    "tok/sec", "tokens/s", "tokens/sec", "it/s", "s/it",
                                    "gb",      "gib",      "mb",         "mib"};

/* ---- text ---- */

const char *skip_blanks(const char *p)
{
    return p + strspn(p, " \t");
}

int begins(const char *p, const char *word)
{
    for (; *word; p++, word++)
        if (tolower((unsigned char)*p) != *word)
            return 0;
    return 1;
}

static const char digits[] = "0123456789";

size_t unsigned_at(const char *p, int has_fraction, double *v)
{
    char text[64];
    size_t n = strspn(p, digits), k = n, more;
    if (n == 0 || n > 3)
        return n > 0 && decimal_read(p, n, '.', v) == n ? n : 0;
    memcpy(text, p, n);
    for (; p[n] == ',' && strspn(p + n + 1, digits) == 3 && k < 24; n += 4, k += 3)
        memcpy(text + k, p + n + 1, 3);
    more = has_fraction && k < n && p[n] == '.' ? 1 + strspn(p + n + 1, digits) : 0;
    if (more > sizeof text - k)
        return 0;
    memcpy(text + k, p + n, more);
    return decimal_read(text, k + more, '.', v) == k + more ? n + more : 0;
}

/* A time of day or a duration at p: "12:30", "1:02:03.5", "2m30s"; bytes used. */
static size_t clock_at(const char *line, const char *p)
{
    int is_inside = p > line && (is_letter(p[-1]) || p[-1] == '@');
    size_t n = is_inside ? 0 : strspn(p, digits);
    int parts = n > 0;
    for (; parts && p[n] && strchr(":dhms", p[n]) && isdigit((unsigned char)p[n + 1]); parts++)
        n += 1 + strspn(p + n + 1, digits);
    if (parts < 2)
        return 0;
    n += p[n] == '.' ? 1 + strspn(p + n + 1, digits) : p[n] && strchr("hms", p[n]) ? 1 : 0;
    return is_letter(p[n]) && p[n] != 'Z' ? 0 : n;
}

size_t zone_at(const char *p)
{
    size_t n = 3;
    if (*p == 'Z')
        return 1;
    if ((*p != '+' && *p != '-') || strspn(p + 1, digits) < 2)
        return 0;
    n += p[n] == ':';
    return strspn(p + n, digits) == 2 ? n + 2 : 3;
}

/* ---- fields ---- */

static const char stops[] = "|,;";

/* "nan" and "inf" as they are printed, also before a unit; bytes used. */
static size_t word_number(const char *p, double *v)
{
    size_t sign = *p == '-' || *p == '+';
    int is_nan = begins(p + sign, "nan");
    if (!is_nan && !begins(p + sign, "inf"))
        return 0;
    size_t n = sign + (begins(p + sign, "infinity") ? 8 : 3);
    if (is_letter(p[n]) && !begins(p + n, "ms") && !begins(p + n, "s"))
        return 0;
    *v = is_nan ? (double)NAN : *p == '-' ? -HUGE_VAL : HUGE_VAL;
    return n;
}

/* Is p after "12:" of a time of day?  "top5:" and "acc@1:" are names. */
static int is_in_clock(const char *line, const char *p)
{
    const char *q = p - 1;
    while (q > line && isdigit((unsigned char)q[-1]))
        q--;
    if (q == p - 1 || *q == ':')
        return 0;
    int is_name = q > line && (is_letter(q[-1]) || q[-1] == '@');
    return !is_name || (q[-1] == 'T' && q - 1 > line && isdigit((unsigned char)q[-2]));
}

/* A number at p, with "5,123" for thousands; bytes used, 0 when p is a part of something else. */
static size_t number_at(const char *line, const char *p, double *v)
{
    if (p > line &&
        (is_letter(p[-1]) || strchr(".-+/@", p[-1]) || (p[-1] == ':' && is_in_clock(line, p))))
        return 0;
    if (isdigit((unsigned char)*p) && clock_at(line, p))
        return 0;
    size_t sign = *p == '-' || *p == '+';
    size_t n = isdigit((unsigned char)p[sign]) || p[sign] == '.'
                   ? decimal_read(p, strlen(p), '.', v)
                   : word_number(p, v);
    if (n > sign && n == sign + strspn(p + sign, digits)) {
        n = unsigned_at(p + sign, 1, v);
        n += n > 0 ? sign : 0;
        *v = *p == '-' ? -*v : *v;
    }
    if (n > 0 && p[n] == '/' && p[n + 1] == 's' && !is_letter(p[n + 2])) /* "500/s" */
        return n;
    /* a date, a version, a path, "1.#INF" */
    return n > 0 && strchr(":/_-.#", p[n]) && p[n] && p[n + 1] && !isspace((unsigned char)p[n + 1])
               ? 0
               : n;
}

/* "1.2M", "1.3B": the letter after a number; bytes used. */
static size_t scale_at(const char *p, double *v)
{
    static const struct {
        char letter;
        double times;
    } scale[] = {{'k', 1e3}, {'K', 1e3}, {'M', 1e6}, {'G', 1e9}, {'B', 1e9}, {'T', 1e12}};
    for (size_t i = 0; i < DS_LEN(scale); i++)
        if (*p == scale[i].letter && !is_letter(p[1]) && p[1] != '/') {
            *v *= scale[i].times;
            return 1;
        }
    return 0;
}

/* "9830/10000 (98%)" at p: the share in percent; bytes used. */
static size_t share_at(const char *p, double *v)
{
    double part, all;
    size_t n = unsigned_at(p, 0, &part),
           m = n > 0 && p[n] == '/' ? unsigned_at(p + n + 1, 0, &all) : 0;
    const char *q = m > 0 ? skip_blanks(p + n + 1 + m) : ""; /* p + n may be the end */
    if (*q != '(' || (n = decimal_read(q + 1, strlen(q + 1), '.', v)) == 0)
        return 0;
    q = skip_blanks(q + 1 + n);
    return q[0] == '%' && q[1] == ')' ? (size_t)(q + 2 - p) : 0;
}

/* The unit at p, which a name may follow; bytes used. */
static size_t unit_at(const char *p)
{
    size_t blanks = strspn(p, " \t");
    for (size_t i = 0; blanks > 0 && i < DS_LEN(units); i++) {
        size_t n = strlen(units[i]);
        if (begins(p + blanks, units[i]) && (!p[blanks + n] || strchr(" \t|,;()", p[blanks + n])) &&
            !strchr(":=", *skip_blanks(p + blanks + n)))
            return blanks + n;
    }
    return 0;
}

/* "5/100 " at p, which counts something; bytes used. */
static size_t count_at(const char *p)
{
    size_t n = strspn(p, digits), m = n > 0 && p[n] == '/' ? strspn(p + n + 1, digits) : 0;
    return m > 0 && (p[n + 1 + m] == ' ' || p[n + 1 + m] == '\t') ? n + 1 + m : 0;
}

/* At the blank after a word that is a value, as in "val=None lr=", and at the end of brackets
 * around a number, as in "(1.2 s/step): loss": a name begins after it.  Bytes to pass over; 0:
 * elsewhere. */
static size_t value_end(const char *from, const char *q, const char *end)
{
    if (*q == ')' && q[1] == ':')
        return !memchr(from, '(', (size_t)(q - from)) && is_letter(*skip_blanks(q + 2)) ? 2 : 0;
    if ((*q != ' ' && *q != '\t') || skip_blanks(q) >= end)
        return 0;
    while (q > from && !strchr(" \t=", q[-1]))
        q--;
    return q > from + 1 && q[-1] == '=' && is_letter(q[-2]) && is_letter(*q);
}

/* The name in the text before a number: after the last separator, time, count or remark in brackets.
 * *is_named: it ends in ":" or "=". */
static size_t name_of(const char *line, const char **from, const char *end, int *is_named)
{
    const char *p = *from;
    size_t n;
    for (const char *q = p; q < end; q++)
        if (isdigit((unsigned char)*q) && (n = clock_at(line, q)) > 0) {
            p = q + n;
            p += zone_at(p);
            p = p < end ? p : end;
            q = p - 1;
        } else if (isdigit((unsigned char)*q) && (q == p || strchr(" =", q[-1])) &&
                   (n = count_at(q)) > 0 && q + n < end) {
            p = q + n;
            q = p - 1;
        } else if (strchr(stops, *q) || (*q == '(' && !memchr(q, ')', (size_t)(end - q))) ||
                   ((*q == ')' || *q == ']') && q + 1 < end && (q[1] == ' ' || q[1] == '\t')))
            p = q + 1;
        else if ((n = value_end(p, q, end)) > 0)
            p = q + n;
    *is_named = 0;
    while (end > p && strchr(" \t:=([", end[-1])) {
        *is_named |= end[-1] == ':' || end[-1] == '=';
        end--;
    }
    while (p < end && strchr(" \t([->", *p))
        p++;
    *from = p;
    return (size_t)(end - p);
}

/* "policy loss", "valid ppl": a short name whose last word is a result. */
static int is_kind_of_result(const char *name, size_t n)
{
    static const char *const last[] = {"loss",     "ppl",    "perplexity", "acc",
                                       "accuracy", "reward", "bpb",        "bpc"};
    size_t from = n, words = 1;
    while (from > 0 && name[from - 1] != ' ')
        from--;
    for (size_t i = 0; i < n; i++)
        words += name[i] == ' ';
    for (size_t i = 0; i < DS_LEN(last) && words <= 3; i++)
        if (text_same(name + from, n - from, last[i]))
            return 1;
    return 0;
}

static int is_known(const char *name, size_t n)
{
    for (size_t i = 0; i < DS_LEN(known); i++)
        if (text_same(name, n, known[i]))
            return 1;
    return is_kind_of_result(name, n);
}

/* Gives a number its name and unit; 0 when it is not a metric. */
static int set_field(struct field *f, const char *name, size_t n, int is_named, const char *unit,
                     double v)
{
    *f = (struct field){.name = name, .n = n, .value = v};
    for (size_t i = 0; i < DS_LEN(renames); i++) {
        const struct rename *r = &renames[i];
        size_t k = r->unit ? strlen(r->unit) : 0;
        if (!text_same(name, n, r->name) ||
            (r->unit && (!begins(unit, r->unit) || is_letter(unit[k]))))
            continue;
        f->name = r->metric;
        f->n = r->metric ? strlen(r->metric) : 0;
        f->value = v * r->times / r->per;
        /* MFU of -100 %: not known yet */
        return r->metric && !(strcmp(r->metric, "mfu") == 0 && v < 0);
    }
    return n > 0 && n <= FIELD_NAME_BYTES && !memchr(name, '`', n) && /* not a quoted "`x=4`" */
           (is_named || is_known(name, n));
}

/* ---- what it was measured on ---- */

int field_has_word(const struct field *f, const char *word)
{
    size_t n = strlen(word);
    for (size_t i = 0; i + n <= f->n; i++)
        if (text_same(f->name + i, n, word))
            return 1;
    return 0;
}

int field_has_one(const struct field *f, const char *const *word, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (field_has_word(f, word[i]))
            return 1;
    return 0;
}

int field_is_result(const struct field *f)
{
    static const char *const part[] = {"loss", "acc", "ppl", "perplexity", "bpb", "reward", "nll"};
    return field_has_one(f, part, DS_LEN(part));
}

/* What the metrics that follow were measured on: "val". */
struct set {
    const char *p; /* n bytes of the line */
    size_t n;
    int is_mark;    /* it stands apart from their names: "[val]", "val:", "val |" */
    int is_bracket; /* "tot_loss[", until the bracket is closed */
};

size_t field_set_at(const char *p, size_t n)
{
    size_t k = text_evaluated(p, n);
    if (k > 0 || n < 5 || !begins(p, "train"))
        return k;
    k = n >= 8 && begins(p, "training") ? 8 : 5;
    return isalnum((unsigned char)p[k]) ? 0 : k;
}

/* The last set in the text: a word, or the beginning of one as in "val_loss". */
static void find_set(const char *p, const char *end, struct set *set)
{
    if (set->is_bracket && memchr(p, ']', (size_t)(end - p)))
        *set = (struct set){0};
    for (const char *from = p; p < end; p++) {
        if (p > from && isalnum((unsigned char)p[-1]))
            continue;
        size_t n = field_set_at(p, (size_t)(end - p));
        if (n == 0)
            continue;
        *set = (struct set){.p = p, .n = n};
        set->is_mark = strchr(":](", p[n]) || *skip_blanks(p + n) == '|';
    }
}

size_t field_set_of(const char *line, size_t n, const char **set)
{
    size_t found = 0;
    for (const char *p = line, *end = line + n; p < end; p++) {
        if (p > line && (is_letter(p[-1]) || strchr("/.-", p[-1])))
            continue;
        size_t k = text_evaluated(p, (size_t)(end - p));
        if (k == 0 || is_letter(p[k]) || (p[k] && strchr("/.-", p[k]))) /* "test.py" */
            continue;
        *set = p;
        found = k;
    }
    return found;
}

/* "val: loss" and "tot_loss[simple_loss" are metrics of a set: its bytes before the name, with what
 * separates them. */
static size_t set_before(const char *name, size_t n, struct set *set)
{
    const char *open = memchr(name, '[', n);
    size_t k = open ? (size_t)(open - name) : 0;
    if (k > 0 && k <= FIELD_NAME_BYTES && k + 1 < n && is_letter(open[-1]) && is_letter(open[1]) &&
        !memchr(open, ']', n - k)) {
        *set = (struct set){name, k, 1, 1};
        return k + 1;
    }
    k = set->p == name ? set->n : 0;
    if (k > 0 && k + 2 < n && name[k] == ':')
        return k + 1 + strspn(name + k + 1, " ");
    if (n > 0 && set->n > 0 && set->p >= name && set->p < name + n) /* "val: 2.2", "val loss" */
        set->is_mark = 0;
    return 0;
}

static int is_same_name(const struct field *a, const struct field *b)
{
    return a->n == b->n && memcmp(a->name, b->name, a->n) == 0;
}

/* "tot_loss" of "tot_loss[loss" */
static int ends_in(const struct set *set, const struct field *f)
{
    size_t rest = set->n - f->n;
    return set->n >= f->n && memcmp(set->p + rest, f->name, f->n) == 0 &&
           (rest == 0 || set->p[rest - 1] == '_');
}

/* "train: loss 2.1 acc 0.4 | val: loss 2.2 acc 0.3": results are named after the set that stands
 * apart before them, and so is each of several of one name. */
static void name_sets(struct field *f, size_t k, const struct set *set)
{
    int is_needed[FIELDS_MAX];
    for (size_t i = 0; i < k; i++) {
        is_needed[i] = set[i].is_mark && field_is_result(&f[i]);
        for (size_t j = 0; j < k && !is_needed[i]; j++)
            is_needed[i] = is_same_name(&f[i], &f[j]) && set[i].p != set[j].p;
    }
    for (size_t i = 0; i < k; i++) {
        if (!is_needed[i])
            continue;
        if (ends_in(&set[i], &f[i])) {
            f[i].name = set[i].p;
            f[i].n = set[i].n;
        } else {
            f[i].set = set[i].p;
            f[i].set_n = set[i].n;
        }
    }
}

size_t field_name(const struct field *f, char out[FIELD_TEXT])
{
    return (size_t)snprintf(out, FIELD_TEXT, "%.*s%s%.*s", (int)f->set_n, f->set_n ? f->set : "",
                            f->set_n ? " " : "", (int)f->n, f->name);
}

size_t fields_of(const char *line, struct field f[FIELDS_MAX])
{
    struct set set = {0}, sets[FIELDS_MAX];
    size_t k = 0, used;
    const char *from = line;
    for (const char *p = line; *p && k < FIELDS_MAX;) {
        double v;
        int is_named;
        int is_share = p > line && strchr(" :=", p[-1]) && (used = share_at(p, &v)) > 0;
        if (!is_share && (used = number_at(line, p, &v)) == 0) {
            p++;
            continue;
        }
        used += scale_at(p + used, &v);
        const char *name = from, *unit = skip_blanks(p + used);
        size_t n = name_of(line, &name, p, &is_named);
        find_set(from, p, &set);
        size_t before = set_before(name, n, &set);
        int is_metric = set_field(&f[k], name + before, n - before, is_named, unit, v);
        sets[k] = set;
        k += (size_t)is_metric;
        p += used;
        if (!is_metric && !isfinite(v)) /* a word of a name: "number of nan iterations" */
            continue;
        p += strcspn(p, " \t|,;()"); /* the unit */
        p += is_metric ? unit_at(p) : 0;
        from = p;
    }
    name_sets(f, k, sets);
    return k;
}
