/* What training scripts print: "iter 100: loss 2.1, time 30.2ms", "Epoch: [0][10/500] Loss 2.1",
 * progress bars with metrics, dictionaries of the Hugging Face Trainer, and how others write the
 * same.  A line counts when it says where it is in the run (io/foreign_place.h), belongs to a block
 * whose first line did, or is one of `sentences`; its fields are names with numbers.  Everything
 * else that a terminal shows is passed over: warnings, bars without metrics, colours. */
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/compiler.h"
#include "base/hash.h"
#include "base/str.h"
#include "io/foreign.h"
#include "io/foreign_fields.h"
#include "io/foreign_place.h"
#include "io/foreign_text.h"

enum { LINE_BYTES_MAX = 4096 }; /* longer lines are not metrics */

struct console {
    struct text_lines lines;
    int64_t step, planned; /* newest; as reported */
    int has_step;
    struct place last;
    int64_t before; /* steps of the epochs before, where steps are counted anew in each */
    int64_t first;  /* epoch of all */
    int is_per_epoch;
    struct place heading; /* "Epoch 2/3" on a line of its own; its epochs and epoch */
    int has_heading;
    struct place block; /* of the lines that follow */
    double block_time;
    int is_block, has_block;
    /* dictionaries without a step are counted by the first name of the first, unless the Trainer
     * has said how many steps its epochs have */
    char counted[FIELD_NAME_BYTES + 1];
    int64_t dicts;
    int is_counted;
    double trainer_steps, trainer_epochs;
    uint64_t logged[2][16]; /* bits by hash: names in lines with a count of batches, with a step */
    struct text_restart restart;
    int has_text;                  /* other text came after the line with the highest step */
    char set[16];                  /* of data, of the line: before its names */
    int is_of_set;                 /* ... that are results and name no other */
    char rank[16], first_rank[16]; /* "rank1" of "[rank1]:", of the line; of the first */
};

/* Lines without a step of their own: they belong to the newest one, or to the epoch above them. */
static const char *const sentences[] = {"val loss",      "validation loss", "train loss",
                                        "training loss", "test loss",       "eval loss",
                                        "valid loss",    "val. loss",       "valid. loss",
                                        "avg loss",      "train acc",       "train accuracy",
                                        "val acc",       "val accuracy",    "test acc",
                                        "accuracy",      "test accuracy",   "validation accuracy"};

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

/* ---- ranks ---- */

/* "[rank1]:" and torchrun's "[default1]:" before a line, as "rank1". */
static void find_rank(struct console *c, const char *line)
{
    static const char *const words[] = {"rank", "default", "trainer", "worker"};
    const char *p = skip_blanks(line);
    c->rank[0] = '\0';
    for (size_t i = 0; *p == '[' && i < DS_LEN(words); i++) {
        size_t k = begins(p + 1, words[i]) ? 1 + strlen(words[i]) : 0;
        size_t n = k ? strspn(p + k, "0123456789") : 0;
        if (n > 0 && n < 8 && p[k + n] == ']')
            snprintf(c->rank, sizeof c->rank, "rank%.*s", (int)n, p + k);
    }
    if (!c->first_rank[0] && c->rank[0]) /* lines before without one are those of rank 0 */
        str_copy(c->first_rank, sizeof c->first_rank, c->has_step ? "rank0" : c->rank);
}

/* A line of another rank than the first: its metrics have names of their own, "loss.rank1". */
static int is_other_rank(const struct console *c)
{
    return c->rank[0] && strcmp(c->rank, c->first_rank) != 0;
}

/* ---- settings ---- */

static void take_setting(struct foreign_out *out, const char *key, size_t n, const char *value)
{
    char name[FIELD_NAME_BYTES + 1], text[256];
    size_t k = strlen(value);
    while (k > 0 && strchr(" |\t", value[k - 1]))
        k--;
    if (n == 0 || n > FIELD_NAME_BYTES || k == 0 || k >= sizeof text || begins(value, "value "))
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
    char name[2 * FIELD_NAME_BYTES];
    int64_t step, steps;
    const char *at = strstr(line, lead);
    const char *rest =
        at ? place_at(at + strlen("validation loss at "), "iteration", &step, &steps) : NULL;
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

/* Before a name: "Acc" in "val Loss: 0.2 Acc: 0.9" is "val Acc". */
static const char *set_of(const struct console *c, const struct field *f)
{
    static const char *const sets[] = {"train", "val", "test", "eval"};
    int is_own = c->is_of_set && (!field_is_result(f) || field_has_one(f, sets, DS_LEN(sets)));
    return is_own || f->set_n > 0 ? "" : c->set;
}

static void deliver(const struct console *c, struct foreign_out *out, const struct field *f,
                    size_t n, int64_t step, double time)
{
    char own[FIELD_TEXT], name[2 * FIELD_TEXT];
    const char *dot = is_other_rank(c) ? "." : "", *rank = *dot ? c->rank : "";
    for (size_t i = 0; i < n; i++) {
        field_name(&f[i], own);
        int k = snprintf(name, sizeof name, "%s%s%s%s", set_of(c, &f[i]), own, dot, rank);
        foreign_point(out, name, (size_t)k, step, time, f[i].value);
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

static void report_plan(struct console *c, struct foreign_out *out, int64_t steps)
{
    if (steps <= 0 || steps == c->planned)
        return;
    c->planned = steps;
    record_int(foreign_begin(out, "head", c->step, (double)NAN), "steps", steps);
    foreign_end(out);
}

/* The step in the whole run.  Some count anew in each epoch ("Epoch [2/3], Step [100/300]"), which
 * shows when a later epoch has a smaller step; from then on the epochs before are added. */
static void take_place(struct console *c, struct foreign_out *out, const struct place *line)
{
    struct place next = *line, *at = &next;
    if (next.epoch < 0 && c->has_heading) {
        next.epoch = c->heading.epoch;
        next.epochs = c->heading.epochs;
    }
    int is_known = c->has_step && c->last.epoch >= 0;
    double epochs = is_known && at->epoch >= 0 ? (double)(at->epoch - c->last.epoch) : 0;
    int64_t planned = at->is_common && at->epoch >= 0 && at->epochs == 0 ? 0 : at->steps;
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
    report_plan(c, out, planned);
}

/* Lines of one kind have the same words before their step, the same first metric, as many steps to
 * come, and one rank. */
static uint64_t kind_of(const struct console *c, const char *line, const struct place *at,
                        const struct field *f)
{
    char lead[LEAD_MAX];
    size_t n = 0;
    for (size_t i = 0; i < at->from && i < LEAD_MAX; i++)
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

/* ---- taking a line apart ---- */

enum kind { TEXT, METRICS, HEADER, HEADING, ITEM, DICT, SENTENCE, ASIDE };

struct parsed {
    enum kind kind;
    struct place at;
    struct field f[FIELDS_MAX];
    size_t n;
    int weight;
    int is_open;       /* a block may follow */
    const char *split; /* split_n bytes: what it was evaluated on, where it says so */
    size_t split_n;
    /* of a dictionary */
    int is_said; /* the words before it have its place */
    size_t dict; /* where in the line it begins */
};

/* Does its name alone say that a model is trained? */
static int is_telling(const struct field *f)
{
    static const char *const part[] = {"learning rate", "grad_norm", "grad norm"};
    return field_is_result(f) || field_has_one(f, part, DS_LEN(part)) ||
           text_same(f->name, f->n, "lr") || text_same(f->name, f->n, "learning_rate");
}

/* Of the text before its place a line has metrics from the first telling one on. */
static void find_fields(struct parsed *x, char *line)
{
    struct field after[FIELDS_MAX];
    char *cut = line + x->at.from, saved = *cut;
    size_t n, first = 0;
    int is_training = !x->at.is_common;
    *cut = '\0';
    n = fields_of(line, x->f);
    *cut = saved;
    while (first < n && !is_telling(&x->f[first]))
        first++;
    memmove(x->f, x->f + first, (n - first) * sizeof *x->f);
    x->n = n - first;
    n = fields_of(line + x->at.to, after);
    for (size_t i = 0; i < n && x->n < FIELDS_MAX; i++)
        if (!text_same(after[i].name, after[i].n, "v_num")) /* the version of a Lightning log */
            x->f[x->n++] = after[i];
    for (size_t i = 0; i < x->n && !is_training; i++)
        is_training = is_telling(&x->f[i]);
    x->n = is_training ? x->n : 0;
}

/* The value of a dictionary's key at p: past it, and *v where it is a number, a text of one, or the
 * "np.float64(2.1)" and "tensor(2.1, device='cuda:0')" that Python prints. */
static const char *dict_value(const char *p, struct field *f, int *is_number)
{
    const char *from = p, *end = p;
    int depth = 0;
    if (*p == '\'' || *p == '"') {
        for (end = ++from; *end && *end != *p; end++)
            end += *end == '\\' && end[1];
        *is_number = foreign_number(from, (size_t)(end - from), 0, &f->value);
        return end + (*end != '\0');
    }
    for (; *end && (depth > 0 || !strchr(",}", *end)); end++)
        depth += strchr("([{", *end) ? 1 : strchr(")]}", *end) ? -1 : 0;
    size_t n = (size_t)(end - from), word = strcspn(from, "(,}");
    if (word < n && from[word] == '(' && end[-1] == ')') {
        from += word + 1;
        n = strcspn(from, ",)");
    }
    while (n > 0 && from[n - 1] == ' ')
        n--;
    *is_number = foreign_number(from, n, 0, &f->value);
    return end;
}

/* "{'loss': 2.1, 'epoch': 0.1}" with numbers or texts of numbers, after a logger's words; of JSON the
 * same.  {"train": {"loss": 2.1}} is "train loss".  How many metrics; 0: the line is something else. */
static size_t dict_fields(const char *line, struct parsed *x)
{
    enum { DEPTH = 8 };
    struct field group[DEPTH] = {0};
    const char *p = line + strcspn(line, "{"), *end = line + strlen(line), *stop;
    size_t k = 0, depth = 0;
    while (*p && p[1] != '\'' && p[1] != '"')
        p += 1 + strcspn(p + 1, "{");
    while (end > line && end[-1] == ' ')
        end--;
    if (!*p || end[-1] != '}')
        return 0;
    x->dict = (size_t)(p - line);
    for (p++; p < end && k < FIELDS_MAX;) {
        struct field f = group[depth];
        int is_number;
        p += strspn(p, ", \t");
        if (*p == '}' && depth > 0) {
            depth--;
            p++;
            continue;
        }
        f.name = p + 1;
        if ((*p != '\'' && *p != '"') || !(stop = strchr(f.name, *p)) || stop[1] != ':')
            break;
        f.n = (size_t)(stop - f.name);
        p = skip_blanks(stop + 2);
        if (*p == '{' && depth + 1 < DEPTH) {
            group[++depth] = (struct field){.set = f.name, .set_n = f.n};
            p++;
            continue;
        }
        const char *value = p + (*p == '\'' || *p == '"');
        p = dict_value(p, &f, &is_number);
        if (f.n == 0 || f.n > FIELD_NAME_BYTES || f.set_n > FIELD_NAME_BYTES)
            continue;
        if (is_number) {
            x->f[k++] = f;
        } else if (text_is_split(f.name, f.n) && text_evaluated(value, (size_t)(p - value))) {
            x->split = value;
            x->split_n = strcspn(value, "'\"");
        }
    }
    return k;
}

/* "Val loss: 2.1 acc: 0.5", "Test set: Average loss: 0.05, Accuracy: 9830/10000 (98%)", "[val] loss 2.1",
 * and " * Acc@1 69.7 Acc@5 89.1" of torchvision's evaluations. */
static int find_sentence(struct parsed *x, const char *line)
{
    static const char *const after[] = {"set", "results", "result", "metrics"};
    const char *p = skip_blanks(line), *rest;
    int is_star = p[0] == '*' && p[1] == ' ';
    size_t words = 0, n;
    p += *p == '[' ? 1 : is_star ? 1 + strspn(p + 1, " ") : 0;
    x->split = is_star ? "val" : p;
    x->split_n = is_star ? 3 : field_set_at(p, strlen(p));
    for (size_t i = 0; i < DS_LEN(sentences); i++) {
        n = strlen(sentences[i]);
        if (begins(p, sentences[i]) && p[n] && strchr(" :=", p[n]))
            words = n;
    }
    rest = skip_blanks(p + (is_star ? 0 : x->split_n));
    for (size_t i = 0; i < DS_LEN(after) && x->split_n > 0; i++)
        rest += begins(rest, after[i]) ? strlen(after[i]) : 0;
    int is_marked = is_star || (x->split_n > 0 && (*rest == ':' || *rest == ']'));
    x->n = is_star || (words > 0 && !is_marked) ? fields_of(p, x->f)
           : is_marked                          ? fields_of(rest + 1, x->f)
                                                : 0;
    /* "Accuracy of the network on the 10000 test images: 55 %" */
    if (x->n == 1 && words > 0 && !field_is_result(&x->f[0])) {
        x->f[0].name = p;
        x->f[0].n = words;
    }
    for (size_t i = 0; i < x->n; i++)
        words += field_is_result(&x->f[i]);
    return words > 0 && x->n > 0;
}

/* "    train/loss=2.1" below "[step=10/500,epoch=0]", "\t Train loss/train/total: 2.1" below
 * "[batch=10/500]:"; the word before is whose value it is. */
static int is_item(struct parsed *x, const char *line)
{
    if (*skip_blanks(line) == *line || fields_of(line, x->f) != 1 ||
        x->f[0].name != skip_blanks(line))
        return 0;
    struct field *f = &x->f[0];
    size_t n = begins(f->name, "train ") ? 6 : begins(f->name, "eval ") ? 5 : 0;
    if (memchr(f->name, '/', f->n)) {
        f->name += n;
        f->n -= n;
    }
    x->n = 1;
    return 1;
}

static void parse(struct parsed *x, char *line, int is_block)
{
    x->n = 0;
    x->weight = 1;
    x->is_open = 0;
    if (is_block && is_item(x, line)) {
        x->kind = ITEM;
        return;
    }
    x->split_n = 0;
    x->n = dict_fields(line, x);
    for (size_t i = 0; i < x->n; i++)
        if (is_telling(&x->f[i]) || field_has_word(&x->f[i], "runtime")) {
            char *cut = line + x->dict, saved = *cut;
            *cut = '\0';
            x->is_said = place_find(line, &x->at) && !x->at.is_common;
            *cut = saved;
            x->kind = DICT;
            return;
        }
    x->n = 0;
    x->kind = TEXT;
    if (!place_find(line, &x->at)) {
        x->kind = find_sentence(x, line) ? SENTENCE : TEXT;
        return;
    }
    const char *from = line + x->at.from, *last = line + strlen(line);
    int is_bracket = *from == '[' || (from > line && from[-1] == '[');
    while (last > line && last[-1] == ' ')
        last--;
    x->is_open = is_bracket && (last[-1] == ']' || last[-1] == ':');
    x->weight = x->at.weight;
    if (x->at.is_aside) {
        x->kind = ASIDE;
        return;
    }
    find_fields(x, line);
    if (x->n > 0)
        x->kind = METRICS;
    else if (x->at.is_epoch && line + strspn(line, " \t=-*#[") == from)
        x->kind = HEADING;
    else if (!x->at.is_epoch && x->is_open)
        x->kind = HEADER;
}

/* ---- taking it ---- */

/* What lines with a better place have logged stays theirs: "Epoch 2: loss 2.1" after the losses of
 * its steps is their mean, a bar repeats them, and the time of an epoch is none of a step. */
static void leave_logged(struct console *c, struct parsed *x)
{
    int level = !x->at.is_common ? 2 : !x->at.is_epoch;
    size_t n = 0;
    for (size_t i = 0; i < x->n; i++) {
        char name[FIELD_TEXT];
        uint64_t bit = hash64(name, field_name(&x->f[i], name), hash64(c->set, strlen(c->set), 0)) %
                       (64 * DS_LEN(c->logged[0]));
        int is_known =
            x->at.is_epoch && c->has_step && text_same(x->f[i].name, x->f[i].n, "step_ms");
        for (int better = level; better < 2; better++)
            is_known |= (int)(c->logged[better][bit / 64] >> bit % 64 & 1);
        if (level > 0)
            c->logged[level - 1][bit / 64] |= (uint64_t)1 << bit % 64;
        if (!is_known)
            x->f[n++] = x->f[i];
    }
    x->n = n;
}

/* "[val] Epoch 3: loss 2.1", "eval step 10: loss 2.1", "{'split': 'val', 'loss': 2.1}" are other
 * results than those of training.  n: bytes of the line before its place. */
static void find_set(struct console *c, const char *line, size_t n, const struct parsed *x)
{
    const char *set = x->split;
    n = c->set[0] ? 0 : x->kind == DICT && x->split_n ? x->split_n : field_set_of(line, n, &set);
    if (n > 0 && n + 1 < sizeof c->set)
        snprintf(c->set, sizeof c->set, "%.*s ", (int)n, set);
    c->is_of_set = n > 0 || x->kind == DICT;
}

static void take_metrics(struct console *c, struct foreign_out *out, struct parsed *x,
                         const char *line)
{
    leave_logged(c, x);
    if (x->n == 0)
        return;
    /* Keras shows evaluations as bars too: those that do not count the steps of an epoch */
    if (x->at.is_headed && c->last.is_headed && x->at.steps != c->last.steps)
        return;
    if (x->at.is_epoch && !c->has_step) {
        c->step = x->at.step;
        report_plan(c, out, x->at.steps);
        note_restart(c, out, line, &x->at, x->f);
    } else if (!x->at.is_epoch) {
        take_place(c, out, &x->at);
        note_restart(c, out, line, &x->at, x->f);
    }
    deliver(c, out, x->f, x->n, c->step, time_of(line));
}

/* Its step is one of its metrics, or a share of all steps as its epoch is one of all epochs. */
static void take_dict(struct console *c, struct foreign_out *out, struct parsed *x,
                      const char *line)
{
    int best = x->is_said ? text_step_rank("step", 4) : 0, epoch = text_step_rank("epoch", 5);
    size_t at = x->n;
    if (!x->is_said)
        x->at = (struct place){.epoch = -1};
    for (size_t i = 0; i < x->n && !x->is_said; i++) {
        int rank = text_step_rank(x->f[i].name, x->f[i].n);
        double step = x->f[i].value;
        if (rank == epoch)
            step = round(step / c->trainer_epochs * c->trainer_steps);
        if (rank > best && text_step(step, &x->at.step)) {
            best = rank;
            at = i;
        }
    }
    if (!c->counted[0])
        memcpy(c->counted, x->f[0].name, x->f[0].n);
    c->dicts += strlen(c->counted) == x->f[0].n && memcmp(c->counted, x->f[0].name, x->f[0].n) == 0;
    if (best > epoch && !x->is_said) /* no metric */
        memmove(x->f + at, x->f + at + 1, (--x->n - at) * sizeof *x->f);
    if (x->n == 0)
        return;
    if (best == 0 && !c->has_step) {
        c->is_counted = 1;
        foreign_event(out, c->dicts, (double)NAN, "info", "steps",
                      "lines without a step are counted: step N is line N");
    }
    if (best == 0)
        x->at.step = c->dicts;
    if (!x->is_said)
        x->at.steps = best == epoch ? (int64_t)c->trainer_steps : 0;
    if (best > 0 || c->is_counted) { /* else it belongs to the newest step */
        take_place(c, out, &x->at);
        note_restart(c, out, line, &x->at, x->f);
    }
    deliver(c, out, x->f, x->n, c->step, time_of(line));
}

/* Below "Epoch 2/3" it belongs to that epoch, where nothing finer is logged. */
static void take_sentence(struct console *c, struct foreign_out *out, const struct parsed *x,
                          const char *line)
{
    struct place at = c->heading;
    if (!c->has_step && c->has_heading) {
        at.from = 0; /* it has no other words before its place */
        c->step = at.step;
        report_plan(c, out, at.steps);
        note_restart(c, out, line, &at, x->f);
    }
    if (x->split_n > 0 && x->split_n + 1 < sizeof c->set)
        snprintf(c->set, sizeof c->set, "%.*s ", (int)x->split_n, x->split);
    c->is_of_set = 1;
    deliver(c, out, x->f, x->n, c->step, time_of(line));
    c->is_of_set = 0;
}

/* "  Num Epochs = 3" and "  Total optimization steps = 1,500" of the Trainer. */
static void find_trainer(struct console *c, const char *line)
{
    static const char epochs[] = "Num Epochs = ", steps[] = "Total optimization steps = ";
    const char *p;
    int64_t whole;
    double v;
    if ((p = strstr(line, epochs)) != NULL && unsigned_at(p + strlen(epochs), 0, &v) > 0)
        c->trainer_epochs = v;
    if ((p = strstr(line, steps)) != NULL && unsigned_at(p + strlen(steps), 0, &v) > 0 &&
        text_step(v, &whole))
        c->trainer_steps = v;
}

static void take_line(struct console *c, struct foreign_out *out, const char *p, size_t n)
{
    char line[LINE_BYTES_MAX];
    struct parsed x;
    plain(line, p, n);
    find_rank(c, line);
    /* fairseq's lines differ in that alone */
    str_copy(c->set, sizeof c->set, strstr(line, "| valid |") ? "valid " : "");
    if (take_validation(out, line))
        return;
    parse(&x, line, c->is_block);
    c->is_block &= x.kind == ITEM;
    if (x.is_open)
        c->block_time = time_of(line);
    switch (x.kind) {
    case METRICS:
        find_set(c, line, x.at.from, &x);
        take_metrics(c, out, &x, line);
        c->is_of_set = 0;
        c->is_block = x.is_open;
        c->has_block = 0;
        return;
    case HEADER:
        c->block = x.at;
        c->block.from = 0; /* of another line than those of the block */
        c->is_block = c->has_block = 1;
        return;
    case ITEM:
        if (c->has_block) {
            take_place(c, out, &c->block);
            note_restart(c, out, line, &c->block, x.f);
        }
        c->has_block = 0;
        deliver(c, out, x.f, x.n, c->step, c->block_time);
        return;
    case DICT:
        find_set(c, line, x.dict, &x);
        take_dict(c, out, &x, line);
        c->is_of_set = 0;
        return;
    case SENTENCE: take_sentence(c, out, &x, line); return;
    case HEADING:
        c->heading = x.at;
        c->has_heading = 1;
        break;
    case ASIDE: return;
    case TEXT: break;
    }
    c->has_text |= *skip_blanks(line) != '\0';
    find_trainer(c, line);
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
    struct parsed x;
    const char *p = (const char *)bytes;
    size_t at = 0, used;
    int sure = 0, is_block = 0, has_heading = 0;
    (void)file;
    if (memchr(p, '\0', n))
        return 0;
    while (at < n && isspace(bytes[at]))
        at++;
    int is_json = n - at > 1 && memcmp(p + at, "{\"", 2) == 0; /* lines of JSON alone, or data */
    for (; at < n && sure < 2; at += used) {
        size_t len = foreign_line(p + at, n - at, is_all, &used);
        if (used == 0)
            len = used = whole_pieces(p + at, n - at);
        if (used == 0)
            break;
        const char *piece = p + at, *end = piece + len, *stop;
        for (; piece < end; piece = stop + 1) {
            stop = memchr(piece, '\r', (size_t)(end - piece));
            stop = stop ? stop : end;
            plain(line, piece, (size_t)(stop - piece));
            parse(&x, line, is_block);
            is_block = x.is_open || (is_block && x.kind == ITEM);
            has_heading |= x.kind == HEADING;
            int is_dict = x.kind == DICT && !(is_json && begins(skip_blanks(line), "{\""));
            if (x.kind == METRICS || x.kind == ITEM || is_dict ||
                (x.kind == SENTENCE && has_heading))
                sure += x.weight;
        }
    }
    return sure >= 2 ? 55 : 0;
}

const struct foreign_format foreign_console = {
    .name = "console",
    .title = "training output",
    .help = "what training scripts print: lines with a step or an epoch, metrics and their values "
            "(nanoGPT, llm.c, Megatron-LM, torchtitan, OLMo, timm, Keras, ...), progress bars with "
            "metrics, dictionaries and JSON in a logger's lines; results of other data keep their "
            "name (val loss)",
    .recognise = recognise,
    .state_size = sizeof(struct console),
    .take = take,
    .has_preamble = 1,
};
