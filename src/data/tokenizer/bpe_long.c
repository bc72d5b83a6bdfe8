/* Encoding of long pieces (64 MiB of one letter is a known attack) in n log n time and 4 bytes a
 * byte, plus 4 for each pair that is a merge.
 *
 * The word is an array with one slot per byte.  A token that covers slots p..q has its id in slot
 * p, and -(its length) in slot q when it is longer than one; slots between are negative.  So the
 * next token begins at p + length, and the one before ends at p - 1.
 *
 * Candidate positions wait in one queue per rank; a heap holds the ranks that have any.  Queues
 * are read from the left, so equal ranks merge leftmost first, as in the reference algorithm.  Most
 * positions come in order; the others wait in a heap, so that none is ever sorted again. */
#include "base/mem.h"
#include "data/tokenizer/bpe.h"

struct queue {
    uint32_t *pos; /* in order, from head on */
    size_t n, cap, head;
    uint32_t *late; /* a heap, the leftmost on top */
    size_t late_n, late_cap;
    int32_t rank;
    int in_heap;
};
struct work {
    const struct bpe *b;
    int32_t *slot;
    size_t n;
    struct queue *queue;
    size_t queues, queue_cap;
    int32_t *heap; /* queue numbers, least rank on top */
    size_t heap_n, heap_cap;
};

static int heap_less(const struct work *w, int32_t a, int32_t b)
{
    return w->queue[a].rank < w->queue[b].rank;
}

static int heap_push(struct work *w, int32_t q)
{
    void *p = w->heap;
    if (mem_grow(&p, &w->heap_cap, w->heap_n + 1, sizeof *w->heap) < 0)
        return DS_EMEM;
    w->heap = p;
    size_t i = w->heap_n++;
    while (i > 0 && heap_less(w, q, w->heap[(i - 1) / 2])) {
        w->heap[i] = w->heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    w->heap[i] = q;
    w->queue[q].in_heap = 1;
    return 0;
}

static void heap_pop(struct work *w)
{
    w->queue[w->heap[0]].in_heap = 0;
    int32_t q = w->heap[--w->heap_n];
    size_t i = 0;
    for (;;) {
        size_t c = 2 * i + 1;
        if (c >= w->heap_n)
            break;
        if (c + 1 < w->heap_n && heap_less(w, w->heap[c + 1], w->heap[c]))
            c++;
        if (!heap_less(w, w->heap[c], q))
            break;
        w->heap[i] = w->heap[c];
        i = c;
    }
    w->heap[i] = q;
}

static int late_push(struct queue *q, uint32_t pos)
{
    void *p = q->late;
    if (mem_grow(&p, &q->late_cap, q->late_n + 1, sizeof *q->late) < 0)
        return DS_EMEM;
    q->late = p;
    size_t i = q->late_n++;
    for (; i > 0 && pos < q->late[(i - 1) / 2]; i = (i - 1) / 2)
        q->late[i] = q->late[(i - 1) / 2];
    q->late[i] = pos;
    return 0;
}

static uint32_t late_pop(struct queue *q)
{
    uint32_t top = q->late[0], last = q->late[--q->late_n];
    size_t i = 0, c;
    for (; (c = 2 * i + 1) < q->late_n; i = c) {
        if (c + 1 < q->late_n && q->late[c + 1] < q->late[c])
            c++;
        if (last <= q->late[c])
            break;
        q->late[i] = q->late[c];
    }
    q->late[i] = last;
    return top;
}

static int queue_of(struct work *w, int32_t rank)
{
    if (w->b->of_rank[rank] < 0) {
        void *p = w->queue;
        if (mem_grow(&p, &w->queue_cap, w->queues + 1, sizeof *w->queue) < 0)
            return DS_EMEM;
        w->queue = p;
        w->queue[w->queues] = (struct queue){.rank = rank};
        w->b->of_rank[rank] = (int32_t)w->queues++;
    }
    return w->b->of_rank[rank];
}

static size_t token_len(const struct work *w, size_t p)
{
    return w->b->length[w->slot[p]];
}

/* Notes position p as a candidate if its pair is a merge. */
static int offer(struct work *w, size_t p)
{
    size_t next = p + token_len(w, p);
    if (next >= w->n)
        return 0;
    const struct bpe_slot *s = bpe_find(w->b, w->slot[p], w->slot[next]);
    if (!s)
        return 0;
    int qi = queue_of(w, s->rank);
    if (qi < 0)
        return qi;
    struct queue *q = &w->queue[qi];
    if (q->n > q->head && q->pos[q->n - 1] > p) {
        if (late_push(q, (uint32_t)p) < 0)
            return DS_EMEM;
    } else {
        void *v = q->pos;
        if (mem_grow(&v, &q->cap, q->n + 1, sizeof *q->pos) < 0)
            return DS_EMEM;
        q->pos = v;
        q->pos[q->n++] = (uint32_t)p;
    }
    return q->in_heap ? 0 : heap_push(w, qi);
}

static int merge_at(struct work *w, size_t p, int32_t rank)
{
    if (w->slot[p] < 0)
        return 0; /* swallowed by an earlier merge */
    size_t next = p + token_len(w, p);
    if (next >= w->n)
        return 0;
    const struct bpe_slot *s = bpe_find(w->b, w->slot[p], w->slot[next]);
    if (!s || s->rank != rank)
        return 0;
    size_t end = next + token_len(w, next);
    w->slot[next] = INT32_MIN;
    w->slot[p] = s->id;
    w->slot[end - 1] = -(int32_t)(end - p);
    if (p > 0) {
        int32_t before = w->slot[p - 1];
        int rc = offer(w, before >= 0 ? p - 1 : p - (size_t)-before);
        if (rc < 0)
            return rc;
    }
    return offer(w, p);
}

/* Works on the queue of the least rank until it is empty or a lower rank turns up. */
static int drain(struct work *w, int32_t qi)
{
    int32_t rank = w->queue[qi].rank;
    while (w->queue[qi].head < w->queue[qi].n || w->queue[qi].late_n > 0) {
        struct queue *q = &w->queue[qi]; /* merges may move the array */
        if (w->heap[0] != qi)
            return 0;
        int is_late = q->late_n > 0 && (q->head == q->n || q->late[0] < q->pos[q->head]);
        int rc = merge_at(w, is_late ? late_pop(q) : q->pos[q->head++], rank);
        if (rc < 0)
            return rc;
    }
    struct queue *q = &w->queue[qi];
    mem_free(q->pos);
    mem_free(q->late);
    q->pos = q->late = NULL;
    q->n = q->cap = q->head = q->late_cap = 0;
    if (w->heap[0] == qi) /* else it stays, empty, until the lower rank is done */
        heap_pop(w);
    return 0;
}

static int run(struct work *w)
{
    int rc = 0;
    for (size_t p = 0; rc >= 0 && p < w->n; p += token_len(w, p))
        rc = offer(w, p);
    while (rc >= 0 && w->heap_n)
        rc = drain(w, w->heap[0]);
    return rc;
}

static int collect(const struct work *w, struct ids *out)
{
    for (size_t p = 0; p < w->n; p += token_len(w, p))
        if (ids_add(out, w->slot[p]) < 0)
            return DS_EMEM;
    return 0;
}

int bpe_merge_long(const struct bpe *b, int32_t *slot, size_t n, struct ids *out, struct err *e)
{
    if (n > INT32_MAX)
        return err_set(e, DS_ERANGE, "a word of %zu bytes is longer than 2 GiB", n);
    struct work w = {.b = b, .n = n, .slot = slot};
    int rc = run(&w);
    if (rc >= 0)
        rc = collect(&w, out);
    for (size_t i = 0; i < w.queues; i++) {
        b->of_rank[w.queue[i].rank] = -1;
        mem_free(w.queue[i].pos);
        mem_free(w.queue[i].late);
    }
    mem_free(w.queue);
    mem_free(w.heap);
    return rc < 0 ? err_set(e, rc, "out of memory encoding a word of %zu bytes", n) : 0;
}

int bpe_encode_long(const struct bpe *b, const char *s, size_t n, struct ids *out, struct err *e)
{
    int32_t *slot = mem_alloc(n, sizeof *slot);
    if (!slot)
        return err_set(e, DS_EMEM, "out of memory encoding a word of %zu bytes", n);
    for (size_t i = 0; i < n; i++)
        slot[i] = b->byte_id[(unsigned char)s[i]];
    int rc = bpe_merge_long(b, slot, n, out, e);
    mem_free(slot);
    return rc;
}
