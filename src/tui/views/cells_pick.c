/* The selection of probe, cursor and marks that the views share. */
#include "tui/cells_pick.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char pick_key[] = "probe.pick";

void pick_load(struct pick *k, struct app *app)
{
    const char *p = app_recall(app, pick_key);
    long long v[5 + PICK_MARKS_MAX];
    int n = 0;
    *k = (struct pick){.text = -1};
    for (char *end; p && n < (int)DS_LEN(v); p = end, n++) {
        v[n] = strtoll(p, &end, 10);
        if (end == p)
            break;
    }
    if (n < 5)
        return;
    k->text = v[0] >= 0 && v[0] < 1 << 30 ? (int)v[0] : -1;
    k->step = v[1];
    k->is_held = v[2] == 1;
    k->token = v[3] >= 0 && v[3] < 1 << 30 ? (int)v[3] : 0;
    k->layer = v[4] >= 0 && v[4] < 1 << 30 ? (int)v[4] : 0;
    for (int i = 5; i < n; i++)
        if (v[i] >= 0 && v[i] < 1 << 30)
            k->mark[k->marks++] = (int)v[i];
}

void pick_save(const struct pick *k, struct app *app)
{
    char text[64 + 12 * PICK_MARKS_MAX];
    int n = snprintf(text, sizeof text, "%d %lld %d %d %d", k->text, (long long)k->step, k->is_held,
                     k->token, k->layer);
    for (int i = 0; i < k->marks; i++)
        n += snprintf(text + n, sizeof text - (size_t)n, " %d", k->mark[i]);
    app_remember(app, pick_key, text);
}

/* The selected text, or the lowest index if it does not exist. */
static int text_of(const struct pick *k, const struct runview *r)
{
    int lowest = -1;
    for (size_t i = 0; i < r->n_probes; i++) {
        if (r->probe[i]->index == k->text)
            return k->text;
        if (lowest < 0 || r->probe[i]->index < lowest)
            lowest = r->probe[i]->index;
    }
    return lowest;
}

/* Index into r->probe, or -1: the newest probe, or while held the last one at or before the held
 * step; none that a resume has superseded. */
static long find(const struct pick *k, const struct runview *r)
{
    int text = text_of(k, r);
    long best = -1, first = -1;
    for (size_t i = 0; i < r->n_probes; i++) {
        if (r->probe[i]->index != text || r->probe[i]->is_old)
            continue;
        if (first < 0)
            first = (long)i;
        if (!k->is_held || r->probe[i]->step <= k->step)
            best = (long)i;
    }
    return best >= 0 ? best : first;
}

const struct probe *pick_probe(const struct pick *k, const struct runview *r)
{
    long i = r ? find(k, r) : -1;
    return i < 0 ? NULL : r->probe[i];
}

/* The next larger (by > 0) or smaller text index than `text`; -1 when there is none. */
static int next_text(const struct runview *r, int text, int by)
{
    int best = -1;
    for (size_t i = 0; i < r->n_probes; i++) {
        int x = r->probe[i]->index;
        if (by > 0 ? x > text && (best < 0 || x < best) : x < text && x > best)
            best = x;
    }
    return best;
}

struct pick_place pick_place(const struct pick *k, const struct runview *r)
{
    struct pick_place p = {0};
    long here = find(k, r);
    int text = text_of(k, r);
    for (size_t i = 0; i < r->n_probes; i++) {
        int counts = r->probe[i]->index == text && !r->probe[i]->is_old;
        p.of += counts;
        p.at += counts && (long)i <= here;
    }
    for (int x = next_text(r, -1, 1); x >= 0; x = next_text(r, x, 1)) {
        p.texts++;
        p.text += x <= text;
    }
    return p;
}

int pick_time(struct pick *k, const struct runview *r, int by)
{
    long here = find(k, r), to = -1, beyond = -1;
    for (long i = 0; here >= 0 && i < (long)r->n_probes; i++) {
        if (r->probe[i]->index != r->probe[here]->index || r->probe[i]->is_old)
            continue;
        if (by < 0 ? i < here : i > here && to < 0)
            to = i;
        if (i > here)
            beyond = i;
    }
    if (to < 0)
        return 0;
    k->is_held = by < 0 || to != beyond; /* at the newest it follows */
    k->step = r->probe[to]->step;
    return 1;
}

int pick_text(struct pick *k, const struct runview *r, int by)
{
    int to = next_text(r, text_of(k, r), by);
    if (to < 0)
        return 0;
    k->text = to;
    k->token = 0;
    k->marks = 0;
    return 1;
}

int pick_is_marked(const struct pick *k, int token)
{
    for (int i = 0; i < k->marks; i++)
        if (k->mark[i] == token)
            return 1;
    return 0;
}

int pick_toggle(struct pick *k, int token)
{
    for (int i = 0; i < k->marks; i++) {
        if (k->mark[i] == token) {
            memmove(k->mark + i, k->mark + i + 1, (size_t)(k->marks - i - 1) * sizeof k->mark[0]);
            k->marks--;
            return 1;
        }
    }
    if (k->marks == PICK_MARKS_MAX)
        return 0;
    k->mark[k->marks++] = token;
    return 1;
}
