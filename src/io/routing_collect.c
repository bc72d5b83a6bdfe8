/* Collects routings in any order, within bounded memory: counts per layer, expert and range of
 * steps, and the tokens themselves in windows that are thinned. */
#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "io/routing_parts.h"

enum { BINS_MAX = 256, WINDOWS_KEPT = 256, WINDOWS_MAX = 1 << 18 };
#define BIN_BYTES_MAX ((size_t)128 << 20)
#define ENTRIES_MAX ((uint64_t)8 << 20)
#define WRITTEN_MAX ((uint64_t)192 << 20) /* bytes of probes; the run view keeps 256 MiB */

static int no_memory(struct err *e)
{
    return err_set(e, DS_EMEM, "out of memory for a routing trace");
}

void routing_note(struct routing_trace *t, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    str_vaddf(&t->notes, fmt, ap);
    va_end(ap);
    str_add(&t->notes, "\n");
}

void routing_text_name(struct routing_trace *t, const char *name)
{
    str_copy(t->text_name, sizeof t->text_name, name);
}

/* ---- counts ---- */

static size_t bins_max(int rows, int experts)
{
    size_t n = BIN_BYTES_MAX / ((size_t)rows * (size_t)experts * sizeof(uint64_t));
    return n > BINS_MAX ? BINS_MAX : n < 2 ? 2 : n;
}

/* Doubles the range of a bin: neighbours that now have the same key are added up. */
static void merge_bins(struct routing_trace *t)
{
    size_t cells = (size_t)t->row_cap * (size_t)t->expert_cap, kept = 0;
    t->width *= 2;
    for (size_t i = 0; i < t->bins; i++) {
        struct routing_bin *from = &t->bin[i], *to = kept ? &t->bin[kept - 1] : NULL;
        from->key /= 2;
        if (!to || to->key != from->key) {
            t->bin[kept++] = *from;
            continue;
        }
        for (size_t c = 0; c < cells; c++)
            to->count[c] += from->count[c];
        to->last = from->last;
        mem_free(from->count);
    }
    t->bins = kept;
}

/* Position of the first bin whose key is not below `key`. */
static size_t find_bin(const struct routing_trace *t, int64_t key)
{
    size_t low = 0, high = t->bins;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        if (t->bin[mid].key < key)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

static int add_bin(struct routing_trace *t, size_t at, int64_t key, struct err *e)
{
    void *p = t->bin;
    uint64_t *count = mem_alloc((size_t)t->row_cap * (size_t)t->expert_cap, sizeof *count);
    if (!count || mem_grow(&p, &t->bin_cap, t->bins + 1, sizeof *t->bin) < 0) {
        mem_free(count);
        return no_memory(e);
    }
    t->bin = p;
    memmove(t->bin + at + 1, t->bin + at, (t->bins - at) * sizeof *t->bin);
    t->bin[at] = (struct routing_bin){.key = key, .count = count};
    t->bins++;
    return 0;
}

int routing_step(struct routing_trace *t, int64_t step, struct err *e)
{
    if (step < 0 || step > INT64_MAX / 4)
        return err_set(e, DS_ERANGE, "step %lld: must be 0 to 2^61", (long long)step);
    t->step = step;
    size_t at = find_bin(t, step / t->width);
    if (at == t->bins || t->bin[at].key != step / t->width) {
        int rc = add_bin(t, at, step / t->width, e);
        if (rc < 0)
            return rc;
        while (t->bins > bins_max(t->row_cap, t->expert_cap))
            merge_bins(t);
        at = find_bin(t, step / t->width);
    }
    t->current = at;
    if (t->bin[at].last < step)
        t->bin[at].last = step;
    return 0;
}

static int grow_counts(struct routing_trace *t, int rows, int experts, struct err *e)
{
    int row_cap = t->row_cap, expert_cap = t->expert_cap;
    while (row_cap < rows)
        row_cap *= 2;
    while (expert_cap < experts)
        expert_cap *= 2;
    if (row_cap == t->row_cap && expert_cap == t->expert_cap)
        return 0;
    while (t->bins > bins_max(row_cap, expert_cap))
        merge_bins(t);
    t->current = find_bin(t, t->step / t->width);
    for (size_t i = 0; i < t->bins; i++) {
        uint64_t *wide = mem_alloc((size_t)row_cap * (size_t)expert_cap, sizeof *wide);
        if (!wide)
            return no_memory(e); /* layouts differ now: the caller frees the trace */
        for (int r = 0; r < t->row_cap; r++)
            memcpy(wide + (size_t)r * (size_t)expert_cap,
                   t->bin[i].count + (size_t)r * (size_t)t->expert_cap,
                   (size_t)t->expert_cap * sizeof *wide);
        mem_free(t->bin[i].count);
        t->bin[i].count = wide;
    }
    t->row_cap = row_cap;
    t->expert_cap = expert_cap;
    return 0;
}

static int add_row(struct routing_trace *t, int layer, struct err *e)
{
    void *p = t->layer;
    if (mem_grow(&p, &t->layer_cap, (size_t)t->rows + 1, sizeof *t->layer) < 0)
        return no_memory(e);
    t->layer = p;
    t->layer[t->rows] = layer;
    t->row_of[layer] = ++t->rows;
    if (layer < ROUTING_EXTRA && layer > t->top_layer)
        t->top_layer = layer;
    return 0;
}

static int check(const struct routing_trace *t, const struct routing_row *row, struct err *e)
{
    int extra = t->has_extra && row->layer >= ROUTING_EXTRA;
    int64_t layers = t->layers ? t->layers : ROUTING_LAYERS;
    int64_t experts = t->experts ? t->experts : ROUTING_EXPERTS;
    if (row->layer < 0 || (!extra && row->layer >= layers) || row->layer >= 2 * ROUTING_LAYERS)
        return err_set(e, DS_ERANGE, "layer %lld: must be 0 to %lld", (long long)row->layer,
                       (long long)layers - 1);
    if (row->expert < 0 || row->expert >= experts)
        return err_set(e, DS_ERANGE, "expert %lld: must be 0 to %lld", (long long)row->expert,
                       (long long)experts - 1);
    if (row->slot < -1 || row->slot > ROUTING_SLOTS)
        return err_set(e, DS_ERANGE, "rank %lld of an expert: must be 0 to %d",
                       (long long)row->slot, ROUTING_SLOTS - 1);
    if (row->token < -1)
        return err_set(e, DS_ERANGE, "token %lld: must be 0 or more", (long long)row->token);
    if (row->id < -1 || row->id > INT32_MAX)
        return err_set(e, DS_ERANGE, "token id %lld: must be 0 to %d", (long long)row->id,
                       INT32_MAX);
    return 0;
}

/* ---- windows of tokens ---- */

static void drop_window(struct routing_trace *t, struct routing_window *w)
{
    if (w->entry)
        t->kept--;
    t->entries -= w->n;
    mem_free(w->entry);
    mem_free(w->id);
    w->entry = NULL;
    w->id = NULL;
    w->n = w->cap = 0;
}

static void thin_windows(struct routing_trace *t)
{
    t->stride *= 2;
    for (size_t i = 0; i < t->windows; i++)
        if (i % t->stride)
            drop_window(t, &t->window[i]);
}

static int find_window(struct routing_trace *t, const struct routing_row *row, struct err *e)
{
    int64_t key[2] = {row->text, row->token / ROUTING_WINDOW}, at;
    if (t->last < t->windows && t->window[t->last].text == key[0] &&
        t->window[t->last].index == key[1])
        return 0;
    if (map_get(&t->window_of, key, sizeof key, &at)) {
        t->last = (size_t)at;
        return 0;
    }
    void *p = t->window;
    if (t->windows == WINDOWS_MAX)
        return err_set(e, DS_ERANGE,
                       "more than %d windows of %d tokens: import a part of the trace", WINDOWS_MAX,
                       ROUTING_WINDOW);
    if (mem_grow(&p, &t->window_cap, t->windows + 1, sizeof *t->window) < 0)
        return no_memory(e);
    t->window = p;
    struct routing_window *w = &t->window[t->windows];
    *w = (struct routing_window){.text = key[0], .index = key[1], .step = t->step};
    if (map_set(&t->window_of, key, sizeof key, (int64_t)t->windows) < 0)
        return no_memory(e);
    if (t->windows % t->stride == 0) {
        if (!(w->entry = mem_alloc(w->cap = 8, sizeof *w->entry)))
            return no_memory(e);
        t->kept++;
    }
    t->last = t->windows++;
    if (t->kept > WINDOWS_KEPT)
        thin_windows(t);
    return 0;
}

static int set_id(struct routing_trace *t, struct routing_window *w, int at, int32_t id,
                  struct err *e)
{
    if (!w->id) {
        if (!(w->id = mem_alloc(ROUTING_WINDOW, sizeof *w->id)))
            return no_memory(e);
        for (int i = 0; i < ROUTING_WINDOW; i++)
            w->id[i] = -1;
    }
    if (w->id[at] >= 0 && w->id[at] != id)
        return err_set(e, DS_EFORMAT, "token id %d, but %d in an earlier row of this token", id,
                       w->id[at]);
    w->id[at] = id;
    t->has_ids = 1;
    return 0;
}

static int put_token(struct routing_trace *t, const struct routing_row *row, int at_row,
                     struct err *e)
{
    int rc = find_window(t, row, e);
    if (rc < 0)
        return rc;
    struct routing_window *w = &t->window[t->last];
    int at = (int)(row->token % ROUTING_WINDOW);
    uint64_t bit = (uint64_t)1 << at % 64;
    t->tokens += !(w->seen[at / 64] & bit);
    w->seen[at / 64] |= bit;
    if (w->step > t->step)
        w->step = t->step;
    if (!w->entry)
        return 0;
    void *p = w->entry;
    if (mem_grow(&p, &w->cap, w->n + 1, sizeof *w->entry) < 0)
        return no_memory(e);
    w->entry = p;
    w->entry[w->n] = (struct routing_entry){.token = (uint16_t)at,
                                            .row = (uint16_t)at_row,
                                            .slot = (int16_t)row->slot,
                                            .expert = (uint16_t)row->expert,
                                            .weight = row->weight,
                                            .order = (uint32_t)w->n};
    w->n++;
    if (row->id >= 0 && (rc = set_id(t, w, at, (int32_t)row->id, e)) < 0)
        return rc;
    if (++t->entries > ENTRIES_MAX) {
        if (t->kept < 2)
            return err_set(e, DS_ERANGE, "more than %llu routings of %d tokens",
                           (unsigned long long)ENTRIES_MAX, ROUTING_WINDOW);
        thin_windows(t);
    }
    return 0;
}

int routing_put(struct routing_trace *t, const struct routing_row *row, struct err *e)
{
    int rc = check(t, row, e);
    if (rc == 0 && t->bins == 0)
        rc = routing_step(t, 0, e);
    if (rc == 0 && !t->row_of[row->layer])
        rc = add_row(t, (int)row->layer, e);
    if (rc == 0 && row->expert > t->top_expert)
        t->top_expert = (int)row->expert;
    if (rc == 0)
        rc = grow_counts(t, t->rows, t->top_expert + 1, e);
    if (rc < 0)
        return rc;
    int at_row = t->row_of[row->layer] - 1;
    t->bin[t->current].count[(size_t)at_row * (size_t)t->expert_cap + (size_t)row->expert]++;
    t->loads++;
    if (row->slot >= 0) {
        t->low_slot = row->slot < t->low_slot ? (int)row->slot : t->low_slot;
        t->top_slot = row->slot > t->top_slot ? (int)row->slot : t->top_slot;
    }
    return row->token >= 0 ? put_token(t, row, at_row, e) : 0;
}

void routing_forget_layer(struct routing_trace *t, int layer)
{
    int at = t->row_of[layer] - 1;
    for (size_t i = 0; at >= 0 && i < t->bins; i++)
        for (int x = 0; x < t->expert_cap; x++) {
            uint64_t *count = &t->bin[i].count[(size_t)at * (size_t)t->expert_cap + (size_t)x];
            t->loads -= *count;
            *count = 0;
        }
    for (size_t i = 0; at >= 0 && i < t->windows; i++) {
        struct routing_window *w = &t->window[i];
        size_t n = 0;
        for (size_t k = 0; k < w->n; k++)
            if (w->entry[k].row != at)
                w->entry[n++] = w->entry[k];
        t->entries -= w->n - n;
        w->n = n;
    }
    if (at >= 0)
        t->layer[at] = -1;
}

/* ---- the whole ---- */

static int by_place(const void *a, const void *b)
{
    const struct routing_entry *x = a, *y = b;
    if (x->token != y->token)
        return x->token < y->token ? -1 : 1;
    if (x->row != y->row)
        return x->row < y->row ? -1 : 1;
    if (x->slot != y->slot)
        return x->slot < y->slot ? -1 : 1;
    return x->order < y->order ? -1 : x->order > y->order;
}

/* The experts of one token in one layer: [from, to) of the ordered entries. */
static int finish_cell(struct routing_trace *t, struct routing_window *w, size_t from, size_t to,
                       struct err *e)
{
    int n = to - from > ROUTING_SLOTS ? ROUTING_SLOTS + 1 : (int)(to - from), used = 0;
    int64_t token = w->index * ROUTING_WINDOW + w->entry[from].token;
    int layer = t->layer[w->entry[from].row];
    if (n > ROUTING_SLOTS)
        return err_set(e, DS_ERANGE, "%s %lld, token %lld, layer %d: more than %d experts",
                       t->text_name, (long long)w->text, (long long)token, layer, ROUTING_SLOTS);
    for (size_t i = from; i < to; i++) {
        struct routing_entry *x = &w->entry[i];
        if (x->slot < 0)
            x->slot = (int16_t)used;
        else if (t->low_slot > 0)
            x->slot--; /* ranks from 1 */
        if (i > from && x->slot == w->entry[i - 1].slot)
            return err_set(e, DS_EFORMAT, "%s %lld, token %lld, layer %d: duplicate rank %d",
                           t->text_name, (long long)w->text, (long long)token, layer, x->slot);
        used = x->slot + 1;
        for (size_t k = from; k < i; k++)
            if (w->entry[k].expert == x->expert) {
                t->repeats++;
                break;
            }
    }
    if (used > ROUTING_SLOTS)
        return err_set(e, DS_ERANGE, "rank %d of an expert: must be 0 to %d", used - 1,
                       ROUTING_SLOTS - 1);
    t->slots = used > t->slots ? used : t->slots;
    t->max_experts = n > t->max_experts ? n : t->max_experts;
    t->min_experts = n < t->min_experts ? n : t->min_experts;
    return 0;
}

static int finish_window(struct routing_trace *t, struct routing_window *w, struct err *e)
{
    int rc = 0;
    if (w->n)
        qsort(w->entry, w->n, sizeof *w->entry, by_place);
    for (size_t from = 0, to; rc == 0 && from < w->n; from = to) {
        for (to = from; to < w->n && w->entry[to].token == w->entry[from].token &&
                        w->entry[to].row == w->entry[from].row;)
            to++;
        rc = finish_cell(t, w, from, to, e);
    }
    return rc;
}

/* Orders the rows by layer; those of forgotten layers are left out. */
static int order_rows(struct routing_trace *t, struct err *e)
{
    int n = 0, extra = 0;
    if (!(t->order = mem_alloc((size_t)t->rows + 1, sizeof *t->order)))
        return no_memory(e);
    for (int l = 0; l < 2 * ROUTING_LAYERS; l++)
        if (t->row_of[l] && t->layer[t->row_of[l] - 1] >= 0) {
            t->order[n++] = t->row_of[l] - 1;
            extra += l >= ROUTING_EXTRA;
        }
    if (!t->layers)
        t->layers = t->top_layer + 1;
    if (t->layers + extra > ROUTING_LAYERS)
        return err_set(e, DS_ERANGE, "%d layers: must be at most %d", t->layers + extra,
                       ROUTING_LAYERS);
    for (int i = 0, next = t->layers; i < n; i++)
        if (t->layer[t->order[i]] >= ROUTING_EXTRA)
            t->layer[t->order[i]] = next++;
    t->layers += extra;
    t->rows = n;
    return 0;
}

static int sum_loads(struct routing_trace *t, struct err *e)
{
    size_t experts = (size_t)t->experts, cells = (size_t)t->rows * experts;
    if (cells > ROUTING_CELLS)
        return err_set(e, DS_ERANGE, "%d layers of %d experts: must be at most %d counts", t->rows,
                       t->experts, ROUTING_CELLS);
    if (!(t->total = mem_alloc(cells + 1, sizeof *t->total)))
        return no_memory(e);
    for (size_t i = 0; i < t->bins; i++)
        for (size_t r = 0; r < (size_t)t->rows; r++)
            for (size_t x = 0; x < experts && x < (size_t)t->expert_cap; x++)
                t->total[r * experts + x] +=
                    t->bin[i].count[(size_t)t->order[r] * (size_t)t->expert_cap + x];
    return 0;
}

static uint64_t bytes_of(const struct routing_trace *t)
{
    uint64_t tokens = 0;
    for (size_t i = 0; i < t->windows; i++)
        for (int k = 0; t->window[i].entry && k < ROUTING_WINDOW / 64; k++)
            for (uint64_t bits = t->window[i].seen[k]; bits; bits &= bits - 1)
                tokens++;
    return tokens * (uint64_t)t->layers * (8 * (uint64_t)t->slots + 1);
}

int routing_finish(struct routing_trace *t, struct err *e)
{
    if (t->loads == 0)
        return err_set(e, DS_EFORMAT, "no routings");
    int rc = order_rows(t, e);
    if (rc < 0)
        return rc;
    if (!t->experts)
        t->experts = t->top_expert + 1;
    t->low_slot = t->low_slot == 1 ? 1 : 0;
    t->min_experts = INT_MAX;
    for (size_t i = 0; rc == 0 && i < t->windows; i++)
        if (t->window[i].entry)
            rc = finish_window(t, &t->window[i], e);
    while (rc == 0 && t->kept > 1 && bytes_of(t) > WRITTEN_MAX)
        thin_windows(t);
    if (rc == 0)
        rc = sum_loads(t, e);
    if (rc == 0 && t->max_experts > 0 && t->min_experts < t->max_experts)
        routing_note(t, "experts per token and layer: %d to %d", t->min_experts, t->max_experts);
    if (rc == 0 && t->repeats)
        routing_note(t, "%llu times a token is sent to the same expert twice in a layer",
                     (unsigned long long)t->repeats);
    if (rc == 0 && t->kept < t->windows)
        routing_note(t,
                     "thinned: %llu of %zu windows of %d tokens are kept for reading; the counts "
                     "are of all tokens",
                     (unsigned long long)t->kept, t->windows, ROUTING_WINDOW);
    return rc;
}

int routing_layer_of(const struct routing_trace *t, int row)
{
    return t->layer[row];
}

void routing_trace_free(struct routing_trace *t)
{
    if (!t)
        return;
    for (size_t i = 0; i < t->bins; i++)
        mem_free(t->bin[i].count);
    for (size_t i = 0; i < t->windows; i++)
        drop_window(t, &t->window[i]);
    mem_free(t->bin);
    mem_free(t->window);
    mem_free(t->layer);
    mem_free(t->total);
    mem_free(t->order);
    map_release(&t->window_of);
    str_release(&t->notes);
    mem_free(t);
}
