/* Streams the text of tokens: incomplete characters, and a possible prefix of a stop string, are
 * held back until they are certain. */
#include <string.h>

#include "base/mem.h"
#include "generation_impl.h"

void gen_text_reset(struct gen_text *t, struct str *all)
{
    str_reset(all);
    t->all = all;
    t->settled = t->scanned = t->n_run = t->first_run = 0;
}

void gen_text_release(struct gen_text *t)
{
    mem_free(t->run);
    memset(t, 0, sizeof *t);
}

/* Offset of the first stop string, searching only where new bytes can be part of one; len if
 * none. */
static size_t find_stop(const struct gen_text *t, const struct gen_rules *rules)
{
    const char *p = str_text(t->all);
    size_t best = t->all->len;
    for (size_t i = 0; rules && i < rules->n_stop; i++) {
        size_t n = strlen(rules->stop[i]), at = t->scanned + 1 > n ? t->scanned + 1 - n : 0;
        for (; at + n <= t->all->len && at < best; at++)
            if (memcmp(p + at, rules->stop[i], n) == 0)
                best = at;
    }
    return best;
}

int gen_text_add(struct gen_text *t, const struct gen_rules *rules, const char *p, size_t n,
                 int depth, int *found, struct err *e)
{
    void *run = t->run;
    *found = 0;
    if (mem_grow(&run, &t->cap_run, t->n_run + 1, sizeof *t->run) < 0)
        return err_set(e, DS_EMEM, "out of memory for the text");
    t->run = run;
    str_add_bytes(t->all, p, n);
    if (t->all->failed)
        return err_set(e, DS_EMEM, "out of memory for the text");
    size_t end = find_stop(t, rules);
    *found = end < t->all->len;
    if (*found) {
        t->all->len = end;
        t->all->p[end] = '\0';
    }
    t->scanned = t->all->len;
    t->run[t->n_run++] = (struct gen_run_of){t->all->len, depth};
    return 0;
}

/* Length of an incomplete character at the end. */
static size_t incomplete_tail(const char *p, size_t n)
{
    for (size_t k = 1; k <= 3 && k <= n; k++) {
        unsigned char c = (unsigned char)p[n - k];
        if ((c & 0xc0) == 0x80)
            continue;
        size_t need = c >= 0xf0 ? 4 : c >= 0xe0 ? 3 : c >= 0xc0 ? 2 : 1;
        return need > k ? k : 0;
    }
    return 0;
}

/* Length of the longest stop-string prefix at the end. */
static size_t stop_tail(const char *p, size_t n, const struct gen_rules *rules)
{
    size_t most = 0;
    for (size_t i = 0; rules && i < rules->n_stop; i++) {
        size_t k = strlen(rules->stop[i]) - 1;
        for (k = k < n ? k : n; k > most; k--)
            if (memcmp(p + n - k, rules->stop[i], k) == 0)
                most = k;
    }
    return most;
}

/* End of a run, moved to a character boundary. */
static size_t run_end(const struct gen_text *t, size_t end, size_t certain)
{
    const char *p = str_text(t->all);
    if (end >= certain)
        return certain;
    for (int k = 0; k < 3 && end > t->settled && ((unsigned char)p[end] & 0xc0) == 0x80; k++)
        end--;
    return end;
}

int gen_text_settle(struct gen_text *t, const struct gen_rules *rules, int all,
                    const struct gen_watch *watch, size_t k, int is_prompt)
{
    const char *p = str_text(t->all);
    size_t n = t->all->len, hold = all ? 0 : stop_tail(p, n, rules);
    int rc = 0;
    n -= hold;
    n -= all ? 0 : incomplete_tail(p, n);
    while (t->settled < n && rc >= 0) {
        const struct gen_run_of *r = &t->run[t->first_run];
        size_t end = run_end(t, r->end, n);
        if (end > t->settled && watch && watch->text)
            rc = watch->text(watch->ctx, k, p + t->settled, end - t->settled, r->depth, is_prompt);
        t->settled = end > t->settled ? end : t->settled;
        if (t->first_run + 1 < t->n_run && r->end <= n)
            t->first_run++;
        else if (r->end >= n)
            break;
    }
    return rc < 0 ? rc : 0;
}
