/* Collects the members of a JSON object, then delivers them: its step may come last. */
#include "io/foreign_object.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "io/foreign_text.h"
#include "io/metric.h"

enum { CONFIG_KEYS_MAX = 1024, LAYERS_MAX = 4096, TEXT_BYTES_MAX = 127 };

static const double none = (double)NAN;

/* ---- collecting ---- */

static void add_value(struct foreign_object *o, double v)
{
    void *p = o->value;
    if (o->values == o->cap_values &&
        mem_grow(&p, &o->cap_values, o->values + 1, sizeof *o->value) < 0) {
        o->is_failed = 1;
        return;
    }
    o->value = p;
    o->value[o->values++] = v;
}

/* The entry of the current path, whose values follow. */
static void add_entry(struct foreign_object *o, int is_vector, int rank)
{
    void *p = o->entry;
    if (o->entries == o->cap_entries &&
        mem_grow(&p, &o->cap_entries, o->entries + 1, sizeof *o->entry) < 0) {
        o->is_failed = 1;
        return;
    }
    o->entry = p;
    o->entry[o->entries++] = (struct object_entry){.name = o->names.len,
                                                   .n = o->path.len,
                                                   .first = o->values,
                                                   .count = 1,
                                                   .is_vector = is_vector,
                                                   .rank = rank};
    str_add_bytes(&o->names, str_text(&o->path), o->path.len);
}

/* How good a key is for the process that wrote its object: 0 not at all. */
static int process_place(const char *name, size_t n)
{
    static const char *const names[] = {"rank", "global_rank", "process_index", "local_rank"};
    for (size_t i = 0; i < DS_LEN(names); i++)
        if (text_same(name, n, names[i]))
            return (int)(DS_LEN(names) - i);
    return 0;
}

/* How many steps the run will have, next to the values of one. */
static int is_plan(const char *name, size_t n)
{
    return text_same(name, n, "total_steps") || text_same(name, n, "max_steps");
}

/* A number at the current path: the object's step or time, or an entry. */
static void take_number(struct foreign_object *o, int is_top, double v)
{
    int64_t step;
    if (is_top && o->key.process > o->process_place && text_step(v, &step)) {
        o->process_place = o->key.process;
        o->process = v;
        str_reset(&o->process_name);
        str_add_bytes(&o->process_name, str_text(&o->path), o->path.len);
    }
    if (is_top && o->key.is_run && o->run.len == 0 && o->path.len < TEXT_BYTES_MAX / 2)
        str_addf(&o->run, "%s%.9g", str_text(&o->path), v);
    int rank = is_top ? o->key.rank : 0;
    if (is_top && o->key.is_plan && text_step(v, &step) && step > 0) {
        o->planned = step;
        return;
    }
    if (rank > 0 && rank == text_step_rank("epoch", 5)) {
        o->epoch = v;
        if (!o->is_fraction && isfinite(v) && !text_step(v, &step)) {
            o->is_fraction = 1;
            o->has_step = o->best > rank; /* else objects are counted from here on */
        }
        rank = o->is_fraction ? 0 : rank;
    }
    if (rank > o->rank && text_step(v, &step)) {
        o->rank = rank;
        o->own_step = step;
    }
    if (is_top && !o->is_timed && o->key.is_time && text_time(v, &o->time)) {
        o->is_timed = 1;
        return;
    }
    add_entry(o, 0, rank);
    add_value(o, v);
}

static void take_string(struct foreign_object *o, int is_top, const struct json_scan *s)
{
    double v;
    if (is_top && !o->is_timed && o->key.is_time && text_time_parse(s->text, s->n, &o->time))
        o->is_timed = 1;
    else if (s->n > 0 && s->n < 12 && foreign_number(s->text, s->n, 0, &v) && !isfinite(v))
        take_number(o, is_top, v);
    else if (!(is_top && o->key.is_time))
        o->texts = hash64(s->text, s->n, o->texts);
    if (!is_top || s->n > TEXT_BYTES_MAX || memchr(s->text, '\\', s->n))
        return;
    if (o->key.is_split && o->set.len == 0 && text_evaluated(s->text, s->n))
        str_add_bytes(&o->set, s->text, s->n);
    if (o->key.is_label && o->label.len == 0)
        str_add_bytes(&o->label, s->text, s->n);
    if (o->key.is_run && o->run.len == 0)
        str_add_bytes(&o->run, s->text, s->n);
}

/* After ARRAY: numbers only make a vector; anything else is passed over. */
static enum json_token take_array(struct foreign_object *o, struct json_scan *s)
{
    int depth = s->depth - 1, is_vector = 1;
    size_t before = o->values, names = o->names.len;
    enum json_token t;
    add_entry(o, 1, 0);
    while ((t = json_scan_next(s)) != JSON_SCAN_BAD && t != JSON_SCAN_CUT && s->depth > depth) {
        is_vector &= t == JSON_SCAN_NUMBER || t == JSON_SCAN_BOOL || t == JSON_SCAN_NULL;
        if (is_vector)
            add_value(o, t == JSON_SCAN_NULL ? none : s->value);
    }
    if (o->is_failed)
        return t;
    size_t n = o->values - before;
    o->entry[o->entries - 1].count = n;
    if (!is_vector || n == 0) {
        o->entries--;
        o->names.len = names;
    }
    if (!is_vector || n > LAYERS_MAX)
        o->values = before;
    return t;
}

int foreign_object_is_config(const struct json_scan *key)
{
    static const char *const names[] = {"config", "args", "hparams", "hyperparameters", "_config"};
    for (size_t i = 0; i < DS_LEN(names); i++)
        if (json_scan_is(key, names[i]))
            return 1;
    return 0;
}

/* A map of settings in full, or the values of a step?  Its object must be complete. */
static int take_config(struct foreign_object *o, struct json_scan *s, struct foreign_out *out)
{
    struct json_scan probe = *s;
    if (json_scan_skip(&probe) != JSON_SCAN_CLOSE)
        return 0;
    foreign_object_config(o, s, out);
    return 1;
}

/* o->key of the key just scanned, the at-th one at the top of its object; o->path is its text. */
static void know_key(struct foreign_object *o, const struct json_scan *s, size_t at)
{
    struct object_key *k = at < OBJECT_KEYS ? &o->known[at] : NULL;
    if (k && k->n == s->n && s->n > 0 && memcmp(k->raw, s->text, s->n) == 0) {
        o->key = *k;
        return;
    }
    o->key.rank = (unsigned char)text_step_rank(str_text(&o->path), o->path.len);
    o->key.is_time = (unsigned char)text_is_time(str_text(&o->path), o->path.len);
    o->key.is_config = (unsigned char)foreign_object_is_config(s);
    o->key.is_split = (unsigned char)text_is_split(str_text(&o->path), o->path.len);
    o->key.is_run = (unsigned char)text_is_run(str_text(&o->path), o->path.len);
    o->key.is_label = (unsigned char)text_is_label(str_text(&o->path), o->path.len);
    o->key.is_plan = (unsigned char)is_plan(str_text(&o->path), o->path.len);
    o->key.process = (unsigned char)process_place(str_text(&o->path), o->path.len);
    if (k && s->n <= sizeof k->raw) {
        o->key.n = (unsigned char)s->n;
        memcpy(o->key.raw, s->text, s->n);
        *k = o->key;
    }
}

static enum json_token collect(struct foreign_object *o, struct json_scan *s,
                               struct foreign_out *out)
{
    size_t length[JSON_SCAN_DEPTH + 1]; /* of the path, at each depth */
    size_t keys = 0;
    int base = s->depth, is_config = 0;
    enum json_token t;
    length[base] = 0;
    for (;;) {
        int top = s->depth == base;
        t = json_scan_next(s);
        switch (t) {
        case JSON_SCAN_KEY:
            o->path.len = length[s->depth];
            if (o->path.len > 0)
                str_add_char(&o->path, '.');
            json_scan_text(s, &o->path);
            if (top)
                know_key(o, s, keys++);
            is_config = top && o->key.is_config;
            break;
        case JSON_SCAN_OBJECT:
            if (!(is_config && take_config(o, s, out)))
                length[s->depth] = o->path.len;
            break;
        case JSON_SCAN_CLOSE:
            if (s->depth < base)
                return t;
            break;
        case JSON_SCAN_NUMBER:
        case JSON_SCAN_BOOL: take_number(o, top, s->value); break;
        case JSON_SCAN_STRING: take_string(o, top, s); break;
        case JSON_SCAN_ARRAY:
            if ((t = take_array(o, s)) == JSON_SCAN_CLOSE)
                break;
            return t;
        case JSON_SCAN_NULL: break;
        case JSON_SCAN_DONE:
        case JSON_SCAN_BAD:
        case JSON_SCAN_CUT: return t;
        }
    }
}

/* ---- delivering ---- */

static const char *name_of(const struct foreign_object *o, const struct object_entry *x)
{
    return str_text(&o->names) + x->name;
}

/* Of an entry, with what it was evaluated on, and with run and process where they are not the first:
 * "val/loss", "run2/loss", "loss.rank1"; of a value its label. */
static const char *full_name(struct foreign_object *o, const struct object_entry *x, size_t *n)
{
    int is_other = isfinite(o->process) && o->process != o->first_process;
    int is_of_set = o->set.len > 0 && text_step_rank(name_of(o, x), x->n) == 0;
    int is_labelled = o->label.len > 0 && text_is_value(name_of(o, x), x->n);
    if (!is_other && !is_of_set && !is_labelled && !o->is_other_run) {
        *n = x->n;
        return name_of(o, x);
    }
    str_reset(&o->path);
    if (o->is_other_run)
        str_addf(&o->path, "%s/", str_text(&o->run));
    if (is_of_set)
        str_addf(&o->path, "%s/", str_text(&o->set));
    if (is_labelled)
        str_add_bytes(&o->path, str_text(&o->label), o->label.len);
    else
        str_add_bytes(&o->path, name_of(o, x), x->n);
    if (is_other)
        str_addf(&o->path, ".%s%.0f", str_text(&o->process_name), o->process);
    *n = o->path.len;
    return str_text(&o->path);
}

static int is_process(const struct foreign_object *o, const struct object_entry *x)
{
    return x->n == o->process_name.len && memcmp(name_of(o, x), o->process_name.p, x->n) == 0;
}

static int is_per_layer(const char *name, size_t n)
{
    for (const struct run_metric *m = run_metrics; m->name; m++)
        if (m->flags & METRIC_PER_LAYER && strlen(m->name) == n && memcmp(name, m->name, n) == 0)
            return 1;
    return 0;
}

static int is_of_layers(const struct foreign_object *o, const struct object_entry *x)
{
    return x->is_vector && (int64_t)x->count == o->layers;
}

/* Vectors are values per layer when one of them has the name of such a metric, or their length is
 * the number of layers. */
static void deliver_layers(struct foreign_object *o, struct foreign_out *out)
{
    struct record *r = NULL;
    for (size_t i = 0; i < o->entries && o->layers == 0; i++)
        if (o->entry[i].is_vector && o->entry[i].count <= LAYERS_MAX &&
            is_per_layer(name_of(o, &o->entry[i]), o->entry[i].n))
            o->layers = (int64_t)o->entry[i].count;
    for (size_t i = 0; i < o->entries && o->layers > 0; i++) {
        const struct object_entry *x = &o->entry[i];
        char name[64];
        size_t n;
        const char *full = full_name(o, x, &n);
        if (!is_of_layers(o, x) || n >= sizeof name || utf8_valid(full, n) < n)
            continue;
        memcpy(name, full, n);
        name[n] = '\0';
        r = r ? r : foreign_begin(out, "layer", o->step, o->time);
        record_nums(r, name, o->value + x->first, x->count);
    }
    if (r)
        foreign_end(out);
}

/* Says once which arrays are passed over. */
static void report_arrays(struct foreign_object *o, struct foreign_out *out)
{
    char text[160 + FOREIGN_NAME_MAX];
    for (size_t i = 0; i < o->entries && !o->is_reported; i++) {
        const struct object_entry *x = &o->entry[i];
        if (!x->is_vector || is_of_layers(o, x) || x->n > FOREIGN_NAME_MAX ||
            utf8_valid(name_of(o, x), x->n) < x->n)
            continue;
        snprintf(text, sizeof text,
                 "arrays that do not hold one number per layer are not shown: %.*s (%zu numbers)",
                 (int)x->n, name_of(o, x), x->count);
        foreign_event(out, o->step, none, "info", "arrays", text);
        o->is_reported = 1;
    }
}

/* Has the first epoch several objects, each with the same name?  Then it is no step.  Objects that
 * some text tells apart are no such objects. */
static int is_repeated(struct foreign_object *o)
{
    int64_t known;
    o->first = o->objects == 0 ? o->own_step : o->first;
    o->first_texts = o->objects == 0 ? o->texts : o->first_texts;
    o->is_later |= o->own_step != o->first || o->texts != o->first_texts;
    for (size_t i = 0; i < o->entries && !o->is_later; i++) {
        const struct object_entry *x = &o->entry[i];
        if (x->rank == o->rank)
            continue;
        if (map_get(&o->seen, name_of(o, x), x->n, &known))
            return 1;
        o->is_failed |= map_set(&o->seen, name_of(o, x), x->n, 1) < 0;
    }
    return 0;
}

/* Objects of one kind have the same names, of one process. */
static void note_restart(struct foreign_object *o, struct foreign_out *out)
{
    uint64_t kind = hash64(str_text(&o->names), o->names.len, 0);
    kind = hash64(&o->process, sizeof o->process, kind);
    kind = hash64(str_text(&o->set), o->set.len, kind);
    kind = hash64(str_text(&o->label), o->label.len, kind);
    if (o->is_other_run)
        kind = hash64(str_text(&o->run), o->run.len, kind);
    if (text_restart_at(&o->restart, kind, o->step, 0)) {
        record_bool(foreign_begin(out, "head", o->step - 1, o->time), "resume", 1);
        foreign_end(out);
    }
}

static void deliver(struct foreign_object *o, struct foreign_out *out)
{
    int vectors = 0, is_epoch = o->rank == text_step_rank("epoch", 5);
    /* where steps came before, an epoch alone is a value at the newest of them */
    int is_step = o->rank > 0 && (o->rank >= o->best || !is_epoch);
    o->is_other_run = 0;
    if (is_step && is_epoch && is_repeated(o)) {
        o->is_fraction = 1;
        is_step = o->has_step = o->best = 0;
    }
    if (is_step) {
        o->step = is_epoch ? o->own_step : text_epochs_step(&o->epochs, o->epoch, o->own_step);
        o->has_step = 1;
        o->best = o->rank > o->best ? o->rank : o->best;
        o->is_other_run = o->run.len > 0 && text_run_is_other(&o->runs, str_text(&o->run), o->step);
        note_restart(o, out);
    } else if (!o->has_step) {
        o->step = o->objects + o->first;
    }
    if (o->planned != o->reported) {
        o->reported = o->planned;
        record_int(foreign_begin(out, "head", o->step, none), "steps", o->planned);
        foreign_end(out);
    }
    if (isfinite(o->process) && !o->has_process) {
        o->has_process = 1;
        o->first_process = o->objects > 0 ? 0 : o->process; /* those before are of rank 0 */
    }
    for (int pass = 0; pass < 2; pass++) /* "tokens" is an axis of the others: it goes first */
        for (size_t i = 0; i < o->entries; i++) {
            const struct object_entry *x = &o->entry[i];
            size_t n;
            const char *name = full_name(o, x, &n);
            int is_tokens = n == 6 && memcmp(name, "tokens", 6) == 0;
            vectors |= x->is_vector;
            if (x->is_vector || is_tokens == pass || (is_step && x->rank == o->rank) ||
                (name != name_of(o, x) && is_process(o, x)))
                continue;
            foreign_point(out, name, n, o->step, o->time, o->value[x->first]);
        }
    if (vectors) {
        deliver_layers(o, out);
        report_arrays(o, out);
    }
}

enum json_token foreign_object_take(struct foreign_object *o, struct json_scan *s,
                                    struct foreign_out *out)
{
    o->entries = o->values = 0;
    str_reset(&o->names);
    str_reset(&o->set);
    str_reset(&o->label);
    str_reset(&o->run);
    o->rank = o->is_timed = o->process_place = 0;
    o->texts = 0;
    o->time = o->epoch = o->process = none;
    enum json_token t = collect(o, s, out);
    o->is_failed |= o->names.failed | o->path.failed | o->process_name.failed | o->set.failed |
                    o->label.failed | o->run.failed;
    if (t == JSON_SCAN_CLOSE && !o->is_failed) {
        if (o->entries > 0)
            deliver(o, out);
        o->objects += o->entries > 0;
    }
    return t;
}

/* ---- settings ---- */

static int is_name(const char *key, size_t n, const char *const *names, size_t count)
{
    size_t from = n;
    while (from > 0 && key[from - 1] != '.')
        from--;
    for (size_t i = 0; i < count; i++)
        if (text_same(key + from, n - from, names[i]))
            return 1;
    return 0;
}

/* What a reader wants to know of a run, by the names that programs give it. */
struct plan {
    int64_t layers, steps;
};

static void note_plan(struct plan *p, const char *key, size_t n, double v)
{
    static const char *const layers[] = {"n_layer", "n_layers", "num_layers", "num_hidden_layers",
                                         "layers"};
    static const char *const steps[] = {"max_steps",   "max_iters",     "total_steps",
                                        "train_iters", "train_steps",   "num_steps",
                                        "total_iters", "num_iterations"};
    int64_t whole;
    if (!text_step(v, &whole) || whole <= 0)
        return;
    if (is_name(key, n, layers, DS_LEN(layers)) && whole <= LAYERS_MAX)
        p->layers = whole;
    if (is_name(key, n, steps, DS_LEN(steps)))
        p->steps = whole;
}

void foreign_object_config(struct foreign_object *o, struct json_scan *s, struct foreign_out *out)
{
    struct record *r = foreign_begin(out, "head", o->has_step ? o->step : 0, none);
    struct str key = {0}, text = {0};
    struct plan plan = {0};
    size_t length[JSON_SCAN_DEPTH + 1];
    int base = s->depth, keys = 0;
    enum json_token t;
    length[base] = 0;
    record_map(r, "config");
    while ((t = json_scan_next(s)) != JSON_SCAN_BAD && t != JSON_SCAN_CUT && s->depth >= base) {
        const char *from;
        str_reset(&text);
        switch (t) {
        case JSON_SCAN_KEY:
            key.len = length[s->depth];
            if (key.len > 0)
                str_add_char(&key, '.');
            json_scan_text(s, &key);
            continue;
        case JSON_SCAN_OBJECT: length[s->depth] = key.len; continue;
        case JSON_SCAN_ARRAY: /* as it is written */
            from = s->p - 1;
            if (json_scan_skip(s) != JSON_SCAN_CLOSE)
                continue;
            str_add_bytes(&text, from, (size_t)(s->p - from));
            break;
        case JSON_SCAN_NUMBER:
        case JSON_SCAN_STRING:
        case JSON_SCAN_BOOL:
        case JSON_SCAN_NULL:
            if (t == JSON_SCAN_NUMBER)
                note_plan(&plan, str_text(&key), key.len, s->value);
            json_scan_text(s, &text);
            break;
        default: continue;
        }
        if (keys++ < CONFIG_KEYS_MAX && !key.failed && !text.failed)
            record_str(r, str_text(&key), str_text(&text));
    }
    record_close(r);
    if (plan.layers > 0)
        record_int(r, "layers", o->layers = plan.layers);
    if (plan.steps > 0)
        record_int(r, "steps", plan.steps);
    foreign_end(out);
    o->is_failed |= key.failed | text.failed;
    str_release(&key);
    str_release(&text);
}

void foreign_object_release(struct foreign_object *o)
{
    mem_free(o->entry);
    mem_free(o->value);
    str_release(&o->names);
    str_release(&o->path);
    str_release(&o->process_name);
    str_release(&o->set);
    str_release(&o->label);
    str_release(&o->run);
    map_release(&o->seen);
}

/* ---- recognising ---- */

enum json_token foreign_object_look(struct json_scan *s, struct object_look *look)
{
    static const char *const texts[] = {"text",    "prompt",   "question",
                                        "content", "messages", "instruction"};
    int base = s->depth, is_axis = 0;
    enum json_token t;
    while ((t = json_scan_next(s)) != JSON_SCAN_BAD && t != JSON_SCAN_CUT && s->depth >= base) {
        if (t == JSON_SCAN_KEY) {
            is_axis =
                s->depth == base && (text_step_rank(s->text, s->n) || text_is_time(s->text, s->n));
            look->has_config |= s->depth == base && foreign_object_is_config(s);
            for (size_t i = 0; i < DS_LEN(texts); i++)
                look->is_text |= json_scan_is(s, texts[i]);
        }
        if (t == JSON_SCAN_NUMBER) {
            look->numbers++;
            look->has_axis |= is_axis;
        }
    }
    return t;
}
