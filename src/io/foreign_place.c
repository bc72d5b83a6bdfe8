/* Finds the step of a printed line. */
#include "io/foreign_place.h"

#include <ctype.h>
#include <string.h>

#include "base/compiler.h"
#include "io/foreign_fields.h"
#include "io/foreign_text.h"

static const char digits[] = "0123456789";

/* The words before the step. */
static const struct lead {
    const char *word;
    int weight, is_common;
    int is_first; /* in the line only: elsewhere it means something else */
} leads[] = {{"iteration", 3, 0, 0},   {"iter", 3, 0, 0},  {"global_step", 3, 0, 0},
             {"global step", 3, 0, 0}, {"step", 3, 0, 0},  {"s", 2, 0, 1},
             {"[batch", 2, 0, 0},      {"batch", 1, 1, 0}, {"num_updates", 1, 1, 0},
             {"update", 1, 1, 0},      {"steps", 1, 1, 1}, {"episode", 1, 1, 0}};

const char *place_at(const char *p, const char *word, int64_t *step, int64_t *steps)
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

/* Far from the beginning of a line a word may be a remark: "ms per step: 5". */
static int is_item(const char *line, const char *p)
{
    while (p > line && (p[-1] == ' ' || p[-1] == '\t'))
        p--;
    return p == line || strchr("|,;([-", p[-1]) != NULL;
}

static void find_epoch_at(const char *p, struct place *at)
{
    if ((*p | 0x20) == 'e')
        (void)place_at(p, "epoch", &at->epoch, &at->epochs);
}

/* After a date, a rank or an epoch, or among the metrics. */
static int find_word(const char *line, struct place *at, int is_common)
{
    for (const char *p = line; *p; p++) {
        if (p > line && is_letter(p[-1]))
            continue;
        if (p - line >= LEAD_MAX && !is_item(line, p))
            continue;
        find_epoch_at(p, at);
        for (size_t i = 0; i < DS_LEN(leads); i++) {
            if (leads[i].is_common != is_common || leads[i].word[0] != tolower((unsigned char)*p))
                continue;
            const char *rest = place_at(p, leads[i].word, &at->step, &at->steps);
            if (!rest || (leads[i].is_first && p != line))
                continue;
            at->weight = leads[i].weight;
            at->is_common = is_common;
            at->from = (size_t)(p - line);
            /* "iter 100 step 25": the first of both counts all, the second is passed over */
            int64_t other, others;
            const char *second = place_at(rest, "step", &other, &others);
            at->to = (size_t)((second ? second : rest) - line);
            return 1;
        }
    }
    return 0;
}

/* "[10]", "[ 10/5005]", "[640/60000 (1%)]", "(10/500)": what follows it, or NULL.  *all: -1 without
 * a "/". */
static const char *bracket_at(const char *p, int64_t *step, int64_t *all)
{
    char close = *p == '[' ? ']' : ')';
    double v, of = -1;
    size_t n;
    if (*p != '[' && *p != '(')
        return NULL;
    p = skip_blanks(p + 1);
    if ((n = unsigned_at(p, 0, &v)) == 0)
        return NULL;
    p = skip_blanks(p + n);
    if (*p == '/') {
        p = skip_blanks(p + 1);
        if ((n = unsigned_at(p, 0, &of)) == 0 || of < v)
            return NULL;
        p = skip_blanks(p + n);
    }
    if (*p == '(' && close == ']')
        p = skip_blanks(p + strspn(p, "( .%0123456789)"));
    if (*p != close || (of < 0 && close == ')'))
        return NULL;
    return text_step(v, step) && text_step(of, all) ? p + 1 : NULL;
}

/* The epoch in "Train: 0 [ 50/1251]", whose bracket is at p. */
static int64_t epoch_before(const char *line, const char *p)
{
    double v;
    int64_t epoch;
    while (p > line && p[-1] == ' ')
        p--;
    const char *end = p;
    while (p > line && strchr(digits, p[-1]))
        p--;
    int is_alone = p > line && (p[-1] == ' ' || p[-1] == ':');
    size_t n = is_alone ? unsigned_at(p, 0, &v) : 0;
    return n > 0 && p + n == end && text_step(v, &epoch) ? epoch : -1;
}

/* Does the text before p speak of an evaluation? */
static int is_aside(const char *line, const char *p)
{
    for (const char *q = line; q < p; q++)
        if ((q == line || !is_letter(q[-1])) &&
            (text_evaluated(q, (size_t)(p - q)) > 0 || begins(q, "predict") || begins(q, "sanity")))
            return 1;
    return 0;
}

/* "Epoch [1/3]" */
static int is_of_epoch(const char *line, const char *p)
{
    while (p > line && (p[-1] == ' ' || p[-1] == ':'))
        p--;
    return p - line >= 5 && begins(p - 5, "epoch");
}

/* "Epoch: [0][ 10/5005]", "Epoch [1/3] [10/100]", "Train Epoch: 1 [640/60000 (1%)]",
 * "Iter(train) [ 50/40000]", "loss: 2.3  [   64/60000]". */
static int find_brackets(const char *line, struct place *at)
{
    struct place said = {.epoch = -1};
    int64_t first = -1, firsts = -1, a, b, c, d;
    const char *start = NULL, *stop = NULL, *end; /* of the bracket before: an epoch, perhaps */
    for (const char *p = line; *p; p++) {
        if (p == line || !is_letter(p[-1]))
            find_epoch_at(p, &said);
        if (!(end = bracket_at(p, &a, &b)))
            continue;
        int is_pair = stop && skip_blanks(stop) == p;
        if (b < 0 || is_of_epoch(line, p) ||
            (!is_pair && bracket_at(skip_blanks(end), &c, &d) && d >= 0)) {
            first = a;
            firsts = b;
            start = p;
            stop = end;
            p = end - 1;
            continue;
        }
        *at = (struct place){.step = a, .steps = b, .weight = 1};
        at->epoch = said.epoch;
        at->epochs = said.epochs;
        at->is_common = 1;
        at->is_aside = is_aside(line, p);
        at->from = (size_t)((is_pair ? start : p) - line);
        at->to = (size_t)(end - line);
        if (is_pair) {
            at->epoch = first;
            at->epochs = firsts > 0 ? firsts : 0;
        } else if (said.epoch < 0) {
            at->epoch = epoch_before(line, p);
        }
        return 1;
    }
    return 0;
}

/* "Epoch 0:  10%|#   | 10/100 [00:01<00:10,  8.5it/s, loss=2.31]" of tqdm: the metrics are in the
 * text before it and after the speed. */
static int find_bar(const char *line, struct place *at)
{
    double step, steps;
    size_t n, m;
    const char *percent = strstr(line, "%|"), *from = percent;
    const char *p = percent ? strchr(percent + 2, '|') : NULL;
    if (!p)
        return 0;
    while (from > line && strchr(digits, from[-1]))
        from--;
    p = skip_blanks(p + 1);
    if ((n = unsigned_at(p, 0, &step)) == 0 || p[n] != '/')
        return 0;
    if ((m = unsigned_at(p + n + 1, 0, &steps)) == 0)
        return 0;
    p = skip_blanks(p + n + 1 + m);
    if (*p != '[' || steps < step)
        return 0;
    *at = (struct place){.epoch = -1, .weight = 1, .is_common = 1};
    if (!text_step(step, &at->step) || !text_step(steps, &at->steps))
        return 0;
    for (const char *q = line; q < from; q++)
        if (q == line || !is_letter(q[-1]))
            find_epoch_at(q, at);
    if (at->epoch < 0 && begins(skip_blanks(line), "epoch")) { /* a bar over epochs */
        at->is_epoch = 1;
        at->epoch = at->step;
    }
    p += strcspn(p, ",]"); /* after the times, and after the speed */
    p += *p == ',' ? 1 + strcspn(p + 1, ",]") : 0;
    at->is_aside = is_aside(line, from);
    at->from = (size_t)(from - line);
    at->to = (size_t)(p - line) + (*p == ',');
    return 1;
}

/* "[2,  4000] loss: 1.85" of PyTorch's tutorial: an epoch and its batch. */
static int find_pair(const char *line, struct place *at)
{
    const char *p = skip_blanks(line), *from = p;
    double epoch, step;
    size_t n;
    *at = (struct place){.epoch = -1, .weight = 1, .is_common = 1};
    if (*p != '[' || (n = unsigned_at(p + 1, 0, &epoch)) == 0 || p[1 + n] != ',')
        return 0;
    p = skip_blanks(p + 2 + n);
    if ((n = unsigned_at(p, 0, &step)) == 0 || p[n] != ']' || !text_step(epoch, &at->epoch) ||
        !text_step(step, &at->step))
        return 0;
    at->from = (size_t)(from - line);
    at->to = (size_t)(p - line) + n + 1;
    return 1;
}

/* "| epoch 1 | 200/ 2928 batches | loss 7.5" of PyTorch's language models. */
static int find_counted(const char *line, struct place *at)
{
    static const char *const words[] = {"batches", "steps", "iterations", "iters", "updates"};
    *at = (struct place){.epoch = -1, .weight = 1, .is_common = 1};
    for (const char *p = line; *p && p - line < LEAD_MAX; p++) {
        double step, steps;
        if (p > line && (is_letter(p[-1]) || p[-1] == '.' || p[-1] == '/'))
            continue;
        find_epoch_at(p, at);
        size_t n = unsigned_at(p, 0, &step);
        const char *q = skip_blanks(p + n);
        if (n == 0 || *q != '/' || (n = unsigned_at(skip_blanks(q + 1), 0, &steps)) == 0)
            continue;
        q = skip_blanks(skip_blanks(q + 1) + n);
        for (size_t i = 0; i < DS_LEN(words); i++) {
            if (!begins(q, words[i]) || is_letter(q[strlen(words[i])]) || steps < step ||
                !text_step(step, &at->step) || !text_step(steps, &at->steps))
                continue;
            at->from = (size_t)(p - line);
            at->to = (size_t)(q - line) + strlen(words[i]);
            return 1;
        }
    }
    return 0;
}

/* "1875/1875 [====>...] - 4s 2ms/step - loss: 0.3" of Keras, its bar of "━" or none; below the line
 * "Epoch 1/3". */
static int find_keras(const char *line, struct place *at)
{
    static const char *const bars[] = {"[=", "[>", "[.", "\xE2\x94\x81", "- "};
    double step, steps;
    const char *p = skip_blanks(line);
    size_t n = unsigned_at(p, 0, &step), m, is_bar = 0;
    if (n == 0 || p[n] != '/' || (m = unsigned_at(p + n + 1, 0, &steps)) == 0 || steps < step)
        return 0;
    const char *bar = skip_blanks(p + n + 1 + m), *end = strstr(bar, "- ");
    for (size_t i = 0; i < DS_LEN(bars); i++)
        is_bar |= strncmp(bar, bars[i], strlen(bars[i])) == 0;
    *at = (struct place){.epoch = -1, .weight = 1, .is_common = 1, .is_headed = 1};
    if (!is_bar || !end || !text_step(step, &at->step) || !text_step(steps, &at->steps))
        return 0;
    at->from = (size_t)(p - line);
    at->to = (size_t)(end - line) + 2;
    return 1;
}

/* "Epoch 3/3  ━━━ 6/8 0:00:00 58.43it/s v_num: 0 train_loss: 0.3" of Lightning's RichProgressBar,
 * whose number of epochs is that of the last one, counted from 0. */
static int find_rich(const char *line, struct place *at)
{
    static const char box[] = "\xE2\x94\x81"; /* and U+2578, U+257A where a half of it ends */
    double step, steps;
    const char *bar = begins(skip_blanks(line), "epoch") ? strstr(line, box) : NULL, *p = bar;
    size_t n, m;
    if (!p)
        return 0;
    *at = (struct place){.epoch = -1, .weight = 1, .is_common = 1};
    if (!place_at(skip_blanks(line), "epoch", &at->epoch, &at->epochs))
        return 0;
    at->epochs = 0;
    while (*p == ' ' || (p[0] == '\xE2' && (p[1] == '\x94' || p[1] == '\x95') && p[2]))
        p += *p == ' ' ? 1 : 3;
    if ((n = unsigned_at(p, 0, &step)) == 0 || p[n] != '/' ||
        (m = unsigned_at(p + n + 1, 0, &steps)) == 0 || steps < step || p[n + 1 + m] != ' ')
        return 0;
    at->from = (size_t)(bar - line);
    at->to = (size_t)(p - line) + n + 1 + m;
    return text_step(step, &at->step) && text_step(steps, &at->steps);
}

static int find_epoch(const char *line, struct place *at)
{
    for (const char *p = line; *p && p - line < LEAD_MAX; p++) {
        const char *end;
        if ((*p | 0x20) != 'e')
            continue;
        *at = (struct place){.epoch = -1, .weight = 1, .is_common = 1, .is_epoch = 1};
        if ((p > line && is_letter(p[-1])) ||
            !(end = place_at(p, "epoch", &at->epoch, &at->epochs)))
            continue;
        at->step = at->epoch;
        at->steps = at->epochs;
        at->from = (size_t)(p - line);
        at->to = (size_t)(end - line);
        return 1;
    }
    return 0;
}

/* "... writer.py:48] [100] loss=2.5" of JAX's clu: alone after the words of the logger. */
static int find_alone(const char *line, struct place *at)
{
    int64_t all;
    for (const char *p = line; *p && p - line < LEAD_MAX; p++) {
        const char *end;
        if (*p != '[' || (p > line && p[-1] != ' '))
            continue;
        *at = (struct place){.epoch = -1, .weight = 1, .is_common = 1};
        end = bracket_at(p, &at->step, &all);
        if (!end || all >= 0 || end[0] != ' ' || !is_letter(end[1]))
            continue;
        at->from = (size_t)(p - line);
        at->to = (size_t)(end - line);
        return 1;
    }
    return 0;
}

/* "100: loss 2.5", "100 | loss 2.5" */
static int find_number(const char *line, struct place *at)
{
    double v;
    const char *p = skip_blanks(line);
    size_t n = unsigned_at(p, 0, &v);
    *at = (struct place){.epoch = -1, .weight = 1, .is_common = 1};
    const char *end = skip_blanks(p + n);
    if (n == 0 || (*end != '|' && (p[n] != ':' || (p[n + 1] != ' ' && p[n + 1] != '\t'))) ||
        !text_step(v, &at->step))
        return 0;
    at->from = (size_t)(p - line);
    at->to = (size_t)(end - line) + 1;
    return 1;
}

int place_find(const char *line, struct place *at)
{
    struct place bar;
    int is_bar = find_bar(line, &bar);
    *at = (struct place){.epoch = -1};
    if (find_word(line, at, 0)) {
        if (is_bar && at->from < bar.from) { /* it describes the bar, which counts something else */
            at->from = bar.from;
            at->to = bar.to;
        }
        return 1;
    }
    if (is_bar)
        *at = bar;
    if (is_bar || find_keras(line, at) || find_rich(line, at))
        return 1;
    if (find_brackets(line, at)) {
        struct place word = {.epoch = -1};
        /* "(0/4) Epoch 1, batch 50": a rank */
        if (line[at->from] == '(' && (find_word(line, &word, 1) || find_epoch(line, &word)))
            *at = word;
        return 1;
    }
    return find_pair(line, at) || find_counted(line, at) || find_word(line, at, 1) ||
           find_epoch(line, at) || find_alone(line, at) || find_number(line, at);
}
