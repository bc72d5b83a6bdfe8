/* What training scripts print: "iter 100: loss 2.1, time 30.2ms", "step 1/100 | loss 2.1 | ...",
 * "s:10 trl:4.5", and how others write the same.  A line counts when it begins with its step (a word
 * of `leads` and a number) or is one of `sentences`; its fields are names with numbers.  Everything
 * else that a terminal shows is passed over: settings, warnings, progress bars, colours. */
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/decimal.h"
#include "base/hash.h"
#include "io/foreign.h"
#include "io/foreign_text.h"

enum {
    LINE_BYTES_MAX = 4096, /* longer lines are not metrics */
    LEAD_MAX = 96,         /* bytes before the step: a date, a rank, the name of a logger */
    NAME_BYTES = 64,
    FIELDS_MAX = 64
};

/* Where a line is in the run, as it says itself. */
struct place {
    int64_t step, steps;   /* of how many, 0 = not said */
    int64_t epoch, epochs; /* -1 and 0 = not said */
    int weight;            /* of its lead */
    size_t lead;           /* where that is in the line */
};

struct console {
    struct text_lines lines;
    int64_t step, planned; /* newest; as reported */
    int has_step;
    struct place last;
    int64_t before; /* steps of the epochs before, where steps are counted anew in each */
    int64_t first;  /* epoch of all */
    int is_per_epoch;
    struct text_restart restart;
    int has_text;                  /* other text came after the line with the highest step */
    char rank[16], first_rank[16]; /* "rank1" of "[rank1]:", of the line; of the first */
};

/* The words before the step.  weight: how sure a line with it is of this format. */
static const struct lead {
    const char *word;
    int weight;
} leads[] = {
    {"iteration", 3}, {"iter", 3}, {"global_step", 3}, {"global step", 3}, {"step", 3}, {"s", 2},
};

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
    "loss",       "train loss", "val loss",   "valid loss",    "eval loss",     "test loss",
    "norm",       "lr",         "grad norm",  "time",          "mfu",           "dt",
    "acc",        "ppl",        "tok/s",      "train_loss",    "val_loss",      "val time",
    "throughput", "accuracy",   "perplexity", "learning rate", "learning_rate", "grad_norm",
};

/* Words after a number that are no part of the name that follows. */
static const char *const units[] = {"ms",      "s",        "sec",        "%",    "tok/s",
                                    "tok/sec", "tokens/s", "tokens/sec", "it/s", "s/it",
                                    "gb",      "gib",      "mb",         "mib"};

/* Lines without a step of their own: they belong to the newest one. */
static const char *const sentences[] = {"val loss", "validation loss", "train loss", "test loss"};

/* ---- text ---- */

/* Copies a line without colours, cursor movements and other escapes; its length. */
static size_t plain(char out[LINE_BYTES_MAX], const char *p, size_t n)
{
    const char *end = p + n;
    size_t k = 0;
    while (p < end && k < LINE_BYTES_MAX - 1) {
        if (*p != '\x1b') {
            out[k++] = *p == '\t' || (unsigned char)*p >= 32 ? *p : ' ';
            p++;
            continue;
        }
        p++;
        if (p < end && *p == '[') {
            for (p++; p < end && (*p < '@' || *p > '~'); p++)
                ;
            p += p < end;
        } else if (p < end && *p == ']') {
            while (p < end && *p != '\a' && *p != '\x1b')
                p++;
            p += p < end && *p == '\a';
        } else {
            p += p < end;
        }
    }
    out[k] = '\0';
    return k;
}

static int is_letter(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

static const char *skip_blanks(const char *p)
{
    return p + strspn(p, " \t");
}

static int begins(const char *p, const char *word)
{
    for (; *word; p++, word++)
        if (tolower((unsigned char)*p) != *word)
            return 0;
    return 1;
}

static const char digits[] = "0123456789";

/* A number without a sign at p, with "12,500" for thousands, and what follows its point when
 * has_fraction; bytes used. */
static size_t unsigned_at(const char *p, int has_fraction, double *v)
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

/* "Z", "+00:00", "-0400", "+02" right after a time of day: bytes. */
static size_t zone_at(const char *p)
{
    size_t n = 3;
    if (*p == 'Z')
        return 1;
    if ((*p != '+' && *p != '-') || strspn(p + 1, digits) < 2)
        return 0;
    n += p[n] == ':';
    return strspn(p + n, digits) == 2 ? n + 2 : 3;
}

/* ---- the step ---- */

/* "step 10", "step:10/500", "iteration    10/  1000 |", "s:10": what follows it, or NULL. */
static const char *step_at(const char *p, const char *word, int64_t *step, int64_t *steps)
{
    double v, all = 0;
    size_t n;
    if (!begins(p, word))
        return NULL;
    p += strlen(word);
    if (*p != ' ' && *p != ':' && *p != '=' && *p != '[' && *p != '#')
        return NULL;
    p += strspn(p, " :=[#\t");
    if ((n = unsigned_at(p, 0, &v)) == 0)
        return NULL;
    p += n;
    if (*skip_blanks(p) == '/') {
        const char *q = skip_blanks(skip_blanks(p) + 1);
        n = unsigned_at(q, 0, &all);
        p = n ? q + n : p;
    }
    if (*p && !strchr(" :,|]\t)", *p))
        return NULL;
    if (!text_step(v, step))
        return NULL;
    *steps = all >= v && text_step(all, steps) ? *steps : 0;
    return p + strspn(p, " :,|])\t");
}

/* "[rank1]:" and torchrun's "[default1]:" before a line, as "rank1". */
static void find_rank(struct console *c, const char *line)
{
    static const char *const words[] = {"rank", "default", "trainer", "worker"};
    const char *p = skip_blanks(line);
    c->rank[0] = '\0';
    for (size_t i = 0; *p == '[' && i < DS_LEN(words); i++) {
        size_t k = begins(p + 1, words[i]) ? 1 + strlen(words[i]) : 0;
        size_t n = k ? strspn(p + k, digits) : 0;
        if (n > 0 && n < 8 && p[k + n] == ']')
            snprintf(c->rank, sizeof c->rank, "rank%.*s", (int)n, p + k);
    }
    if (!c->first_rank[0])
        memcpy(c->first_rank, c->rank, sizeof c->rank);
}

/* A line of another rank than the first: its metrics have names of their own, "loss.rank1". */
static int is_other_rank(const struct console *c)
{
    return c->rank[0] && strcmp(c->rank, c->first_rank) != 0;
}

/* The step that the line begins with, after a date, a rank or an epoch; NULL when it has none. */
static const char *find_step(const char *line, struct place *at)
{
    *at = (struct place){.epoch = -1};
    for (const char *p = line; *p && p - line < LEAD_MAX; p++) {
        if (p > line && is_letter(p[-1]))
            continue;
        (void)step_at(p, "epoch", &at->epoch, &at->epochs);
        for (size_t i = 0; i < DS_LEN(leads); i++) {
            const char *rest = step_at(p, leads[i].word, &at->step, &at->steps);
            if (!rest || (leads[i].word[1] == '\0' && p != line))
                continue;
            at->weight = leads[i].weight;
            at->lead = (size_t)(p - line);
            /* "iter 100 step 25": the first of both counts all, the second is passed over */
            int64_t other, others;
            const char *second = step_at(rest, "step", &other, &others);
            return second ? second : rest;
        }
    }
    return NULL;
}

/* ---- fields ---- */

struct field {
    const char *name;
    size_t n;
    double value;
};

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
    size_t n = isdigit((unsigned char)*p) || strchr("+-.", *p) ? decimal_read(p, strlen(p), '.', v)
                                                               : word_number(p, v);
    size_t sign = *p == '-' || *p == '+';
    if (n > sign && n == sign + strspn(p + sign, digits)) {
        n = unsigned_at(p + sign, 1, v);
        n += n > 0 ? sign : 0;
        *v = *p == '-' ? -*v : *v;
    }
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

/* The name in the text before a number: after the last separator, time or remark in brackets.
 * *is_named: it ends in ":" or "=". */
static size_t name_of(const char *line, const char **from, const char *end, int *is_named)
{
    const char *p = *from;
    size_t clock;
    for (const char *q = p; q < end; q++)
        if (isdigit((unsigned char)*q) && (clock = clock_at(line, q)) > 0) {
            p = q + clock;
            p += zone_at(p);
            p = p < end ? p : end;
            q = p - 1;
        } else if (strchr(stops, *q) || (*q == '(' && q + 1 == end) ||
                   ((*q == ')' || *q == ']') && q + 1 < end && q[1] == ' '))
            p = q + 1;
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

static int is_known(const char *name, size_t n)
{
    for (size_t i = 0; i < DS_LEN(known); i++)
        if (text_same(name, n, known[i]))
            return 1;
    return 0;
}

/* Gives a number its name and unit; 0 when it is not a metric. */
static int set_field(struct field *f, const char *name, size_t n, int is_named, const char *unit,
                     double v)
{
    *f = (struct field){name, n, v};
    for (size_t i = 0; i < DS_LEN(renames); i++) {
        const struct rename *r = &renames[i];
        size_t k = r->unit ? strlen(r->unit) : 0;
        if (!text_same(name, n, r->name) ||
            (r->unit && (!begins(unit, r->unit) || is_letter(unit[k]))))
            continue;
        *f = (struct field){r->metric, r->metric ? strlen(r->metric) : 0, v * r->times / r->per};
        /* MFU of -100 %: not known yet */
        return r->metric && !(strcmp(r->metric, "mfu") == 0 && v < 0);
    }
    return n > 0 && n <= NAME_BYTES && (is_named || is_known(name, n));
}

/* The metrics of the rest of a line; how many. */
static size_t fields_of(const char *line, struct field f[FIELDS_MAX])
{
    size_t k = 0, used;
    const char *from = line;
    for (const char *p = line; *p && k < FIELDS_MAX;) {
        double v;
        int is_named;
        if ((used = number_at(line, p, &v)) == 0) {
            p++;
            continue;
        }
        used += scale_at(p + used, &v);
        const char *name = from, *unit = skip_blanks(p + used);
        size_t n = name_of(line, &name, p, &is_named);
        int is_metric = set_field(&f[k], name, n, is_named, unit, v);
        k += (size_t)is_metric;
        p += used;
        if (!is_metric && !isfinite(v)) /* a word of a name: "number of nan iterations" */
            continue;
        p += strcspn(p, " \t|,;()"); /* the unit */
        p += is_metric ? unit_at(p) : 0;
        from = p;
    }
    return k;
}

/* ---- settings ---- */

static void take_setting(struct foreign_out *out, const char *key, size_t n, const char *value)
{
    char name[NAME_BYTES + 1], text[256];
    size_t k = strlen(value);
    while (k > 0 && strchr(" |\t", value[k - 1]))
        k--;
    if (n == 0 || n > NAME_BYTES || k == 0 || k >= sizeof text || begins(value, "value "))
        return;
    memcpy(name, key, n);
    name[n] = '\0';
    memcpy(text, value, k);
    text[k] = '\0';
    struct record *r = foreign_begin(out, "head", 0, (double)NAN);
    record_map(r, "config");
    record_str(r, name, text);
    record_close(r);
    foreign_end(out);
}

/* "Overriding: batch_size = 12" of nanoGPT, "hidden_size ......... 768" of Megatron-LM and
 * "| channels C   | 768  |" of llm.c. */
static int find_setting(struct foreign_out *out, const char *p)
{
    const char *key, *dots;
    size_t n;
    if (begins(p, "overriding: ")) {
        key = skip_blanks(p + 12);
        n = strcspn(key, " =");
        p = skip_blanks(key + n);
        if (*p == '=')
            take_setting(out, key, n, skip_blanks(p + 1));
        return 1;
    }
    if ((dots = strstr(p, " ....")) != NULL) {
        key = skip_blanks(p);
        n = strcspn(key, " ");
        p = dots + 1 + strspn(dots + 1, ".");
        if (key + n == dots && *p == ' ')
            take_setting(out, key, n, skip_blanks(p));
        return 1;
    }
    if (p[0] == '|' && p[1] == ' ') {
        key = skip_blanks(p + 1);
        const char *bar = strchr(key, '|');
        if (bar && strcspn(bar + 1, "|") + 2 == strlen(bar)) {
            for (n = (size_t)(bar - key); n > 0 && key[n - 1] == ' ';)
                n--;
            take_setting(out, key, n, skip_blanks(bar + 1));
        }
        return 1;
    }
    return 0;
}

/* ---- lines ---- */

/* " validation loss at iteration 1000 | lm loss value: 2.3E+00 | lm loss PPL: 1.0E+01 |" of
 * Megatron-LM: as its TensorBoard logs call them.  "1000 on test set" is another one. */
static int take_validation(struct foreign_out *out, const char *line)
{
    static const char lead[] = "validation loss at iteration ";
    struct field f[FIELDS_MAX];
    char name[2 * NAME_BYTES];
    int64_t step, steps;
    const char *at = strstr(line, lead);
    const char *rest =
        at ? step_at(at + strlen("validation loss at "), "iteration", &step, &steps) : NULL;
    size_t n = rest ? fields_of(rest, f) : 0;
    for (size_t i = 0; i < n; i++) {
        size_t k =
            f[i].n > 6 && memcmp(f[i].name + f[i].n - 6, " value", 6) == 0 ? f[i].n - 6 : f[i].n;
        k = (size_t)snprintf(name, sizeof name, "%.*s %s", (int)k, f[i].name,
                             begins(rest, "on test set") ? "test" : "validation");
        foreign_point(out, name, k, step, (double)NAN, f[i].value);
    }
    return n > 0;
}

/* The date that a logger puts before its lines: "[2024-05-01 12:00:00] ...". */
static double time_of(const char *line)
{
    double seconds;
    for (const char *p = line; *p && p - line < LEAD_MAX; p++) {
        size_t n = 19;
        if (!isdigit((unsigned char)*p) || strlen(p) < n || p[4] != '-')
            continue;
        if (p[n] == '.' || p[n] == ',')
            n += 1 + strspn(p + n + 1, "0123456789");
        n += zone_at(p + n);
        return text_time_parse(p, n, &seconds) ? seconds : (double)NAN;
    }
    return (double)NAN;
}

static void deliver(const struct console *c, struct foreign_out *out, const struct field *f,
                    size_t n, int64_t step, double time)
{
    char name[2 * NAME_BYTES];
    for (size_t i = 0; i < n; i++) {
        size_t k = f[i].n < NAME_BYTES ? f[i].n : NAME_BYTES;
        memcpy(name, f[i].name, k);
        if (is_other_rank(c))
            k += (size_t)snprintf(name + k, sizeof name - k, ".%s", c->rank);
        foreign_point(out, name, k, step, time, f[i].value);
    }
}

/* Steps before an epoch that is `epochs` after the last one, or before it.  Where no line says how
 * many an epoch has, one ends at its last step, and all before count as equally long. */
static double steps_before(const struct console *c, const struct place *at, double epochs)
{
    double before = (double)c->before;
    int64_t steps = at->steps > 0 ? at->steps : c->last.steps;
    if (steps > 0 || epochs == 0)
        return fmax(before + epochs * (double)steps, 0);
    if (epochs > 0)
        return (double)c->step + (at->step == 0);
    return before * fmax((double)(at->epoch - c->first), 0) /
           fmax((double)(c->last.epoch - c->first), 1);
}

/* The step in the whole run.  Some count anew in each epoch ("Epoch [2/3], Step [100/300]"), which
 * shows when a later epoch has a smaller step; from then on the epochs before are added. */
static void take_place(struct console *c, struct foreign_out *out, const struct place *at)
{
    struct place next = *at;
    int is_known = c->has_step && c->last.epoch >= 0;
    double epochs = is_known && at->epoch >= 0 ? (double)(at->epoch - c->last.epoch) : 0;
    int64_t planned = at->steps;
    c->is_per_epoch |= epochs > 0 && at->step <= c->last.step;
    if (c->is_per_epoch && (!text_step(round(steps_before(c, at, epochs)), &c->before) ||
                            !text_step((double)at->steps * (double)at->epochs, &planned)))
        planned = 0;
    if (at->epoch >= 0 && (!is_known || at->epoch < c->first))
        c->first = at->epoch;
    if (c->has_step && at->epoch < 0) /* other lines say it */
        next.epoch = c->last.epoch;
    if (at->steps == 0)
        next.steps = c->last.steps;
    c->last = next;
    c->step = at->step + c->before;
    c->has_step = 1;
    if (planned > 0 && planned != c->planned) {
        c->planned = planned;
        record_int(foreign_begin(out, "head", c->step, (double)NAN), "steps", planned);
        foreign_end(out);
    }
}

/* Lines of one kind have the same words before their step, the same first metric, as many steps to
 * come, and one rank. */
static uint64_t kind_of(const struct console *c, const char *line, const struct place *at,
                        const struct field *f)
{
    char lead[LEAD_MAX];
    size_t n = 0;
    for (size_t i = 0; i < at->lead && i < LEAD_MAX; i++)
        if (isalpha((unsigned char)line[i]))
            lead[n++] = line[i];
    uint64_t kind = hash64(f->name, f->n, hash64(lead, n, (uint64_t)at->steps));
    return is_other_rank(c) ? hash64(c->rank, strlen(c->rank), kind) : kind;
}

/* Where a script was started again it has printed something in between: then the first step tells.
 * Ranks that lag behind do not go back, and evaluations have other lines. */
static void note_restart(struct console *c, struct foreign_out *out, const char *line,
                         const struct place *at, const struct field *f)
{
    int is_further = !c->restart.has_top || c->step > c->restart.top;
    if (text_restart_at(&c->restart, kind_of(c, line, at, f), c->step, c->has_text)) {
        record_bool(foreign_begin(out, "head", c->step, time_of(line)), "resume", 1);
        foreign_end(out);
        is_further = 1;
    }
    if (is_further)
        c->has_text = 0;
}

static void take_line(struct console *c, struct foreign_out *out, const char *p, size_t n)
{
    char line[LINE_BYTES_MAX];
    struct field f[FIELDS_MAX];
    struct place at;
    plain(line, p, n);
    find_rank(c, line);
    if (take_validation(out, line))
        return;
    const char *rest = find_step(line, &at);
    size_t k = rest ? fields_of(rest, f) : 0;
    if (k > 0) {
        take_place(c, out, &at);
        note_restart(c, out, line, &at, f);
        deliver(c, out, f, k, c->step, time_of(line));
        return;
    }
    for (size_t i = 0; !rest && i < DS_LEN(sentences); i++)
        if (begins(line, sentences[i]) && line[strlen(sentences[i])] &&
            strchr(" :=", line[strlen(sentences[i])]) && (k = fields_of(line, f)) > 0) {
            deliver(c, out, f, k, c->step, time_of(line));
            return;
        }
    c->has_text |= *skip_blanks(line) != '\0';
    if (!c->has_step)
        find_setting(out, line);
}

/* A terminal's line may be written several times, each after a carriage return. */
static void take_pieces(struct console *c, struct foreign_out *out, const char *p, size_t n)
{
    const char *end = p + n, *stop;
    for (; p < end; p = stop + 1) {
        stop = memchr(p, '\r', (size_t)(end - p));
        stop = stop ? stop : end;
        if (stop - p < LINE_BYTES_MAX)
            take_line(c, out, p, (size_t)(stop - p));
    }
}

/* Pieces of a line that goes on, each whole with the carriage return after it: a progress bar may
 * write for hours without a newline.  Their bytes; 0: the line ends in p. */
static size_t whole_pieces(const char *p, size_t n)
{
    if (memchr(p, '\n', n))
        return 0;
    while (n > 0 && p[n - 1] != '\r')
        n--;
    return n;
}

static int64_t take(void *state, struct foreign_out *out, const struct foreign_bytes *b,
                    struct err *e)
{
    struct console *c = state;
    const char *line;
    size_t at = 0, n;
    (void)e;
    for (;;) {
        n = whole_pieces(b->p + at, b->n - at);
        take_pieces(c, out, b->p + at, n);
        at += n;
        if (!text_next(&c->lines, out, b, &at, &line, &n))
            return (int64_t)at;
        take_pieces(c, out, line, n);
    }
}

static int recognise(const unsigned char *bytes, size_t n, const char *file, int is_all)
{
    char line[LINE_BYTES_MAX];
    struct field f[FIELDS_MAX];
    const char *p = (const char *)bytes;
    size_t at = 0, used;
    int sure = 0;
    (void)file;
    if (memchr(p, '\0', n))
        return 0;
    for (; at < n; at += used) {
        size_t len = foreign_line(p + at, n - at, is_all, &used);
        struct place at_line;
        if (used == 0)
            len = used = whole_pieces(p + at, n - at);
        if (used == 0)
            break;
        const char *piece = p + at, *end = piece + len, *stop;
        for (; piece < end; piece = stop + 1) {
            stop = memchr(piece, '\r', (size_t)(end - piece));
            stop = stop ? stop : end;
            plain(line, piece, (size_t)(stop - piece));
            const char *rest = find_step(line, &at_line);
            if (!rest || fields_of(rest, f) == 0)
                continue;
            sure += at_line.weight;
        }
    }
    return sure >= 2 ? 55 : 0;
}

const struct foreign_format foreign_console = {
    .name = "console",
    .title = "training output",
    .help = "what nanoGPT, llm.c (and its main.log), Megatron-LM and similar scripts print: "
            "lines with a step, metrics and their values",
    .recognise = recognise,
    .state_size = sizeof(struct console),
    .take = take,
    .has_preamble = 1,
};
