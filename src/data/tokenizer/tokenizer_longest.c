/* Matches added tokens as llama.cpp does: the longest anywhere first, then the next in the
 * remaining text.  Hugging Face and SentencePiece take the leftmost one; the result differs only
 * when token texts overlap. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "data/tokenizer/bpe.h"

/* Above these sizes overlaps are not checked, and the order is kept. */
enum { OVERLAP_BYTES = 1 << 16, OVERLAP_TOKEN = 256 };

int added_overlap(const struct tokenizer *t)
{
    struct map begins = {0};
    size_t all = 0;
    int found = 0;
    int64_t v;
    for (size_t i = 0; i < t->n_added && !found; i++) {
        const struct added_token *a = &t->added[i];
        all += a->len;
        found = all > OVERLAP_BYTES || a->len > OVERLAP_TOKEN;
        for (size_t k = 1; k < a->len && !found; k++)
            found = map_set(&begins, a->text, k, 1) < 0;
    }
    for (size_t i = 0; i < t->n_added && !found; i++)
        for (size_t k = 1; k < t->added[i].len && !found; k++)
            found = map_get(&begins, t->added[i].text + k, t->added[i].len - k, &v);
    map_release(&begins);
    return found;
}

struct search {
    const struct tokenizer *t;
    const struct added_index *x;
    const char *s;
    size_t n;
    size_t *at; /* positions where some token may begin, ascending */
    size_t places;
    unsigned char *taken; /* per byte */
    struct added_found *v;
    size_t found, cap;
};

/* Collects the positions where a token may begin; the bitmap excludes most of them. */
static int find_places(struct search *f, struct err *e)
{
    size_t cap = 0;
    void *p = NULL;
    for (size_t i = 0; i < f->n; i++) {
        if (!added_may_begin(f->x, f->s + i, f->n - i))
            continue;
        if (mem_grow(&p, &cap, f->places + 1, sizeof *f->at) < 0)
            return err_set(e, DS_EMEM, "out of memory searching for added tokens");
        f->at = p;
        f->at[f->places++] = i;
    }
    return 0;
}

/* Taken ranges are at least `len` long, so checking both ends suffices. */
static int take_length(struct search *f, size_t len, int special, struct err *e)
{
    for (size_t k = 0; k < f->places; k++) {
        size_t at = f->at[k];
        int64_t which;
        if (at + len > f->n || f->taken[at] || f->taken[at + len - 1] ||
            !map_get(&f->x->map, f->s + at, len, &which) ||
            (f->t->added[which].special && !special))
            continue;
        void *p = f->v;
        if (mem_grow(&p, &f->cap, f->found + 1, sizeof *f->v) < 0)
            return err_set(e, DS_EMEM, "out of memory searching for added tokens");
        f->v = p;
        f->v[f->found++] = (struct added_found){at, len, &f->t->added[which]};
        memset(f->taken + at, 1, len);
    }
    return 0;
}

static int by_place(const void *x, const void *y)
{
    const struct added_found *a = x, *b = y;
    return (a->at > b->at) - (a->at < b->at);
}

int added_longest_first(const struct tokenizer *t, const struct added_index *x, const char *s,
                        size_t n, int special, struct added_found **out, size_t *found,
                        struct err *e)
{
    struct search f = {.t = t, .x = x, .s = s, .n = n};
    int rc = find_places(&f, e);
    *out = NULL;
    *found = 0;
    if (rc >= 0 && f.places > 0 && !(f.taken = mem_alloc(n, 1)))
        rc = err_set(e, DS_EMEM, "out of memory searching for added tokens");
    for (size_t k = 0; rc >= 0 && f.places > 0 && k < x->n_len; k++)
        rc = take_length(&f, x->len[k], special, e);
    mem_free(f.at);
    mem_free(f.taken);
    if (rc < 0) {
        mem_free(f.v);
        return rc;
    }
    if (f.found > 0)
        qsort(f.v, f.found, sizeof *f.v, by_place);
    *out = f.v;
    *found = f.found;
    return 0;
}
