/* What a router reads of its document: the token, the running mean, or the mean of the prompt. */
#include "routing/prefix.h"

#include <limits.h>
#include <string.h>

#include "base/mem.h"

int prefix_init(struct prefix *p, enum prefix_kind kind, int prompt, int C, struct err *e)
{
    *p = (struct prefix){.kind = kind, .C = C, .prompt = kind == PREFIX_PROMPT ? prompt : INT_MAX};
    p->sum = mem_alloc(2 * (size_t)C, sizeof *p->sum);
    return p->sum ? 0 : err_set(e, DS_EMEM, "a running mean of %d channels", C);
}

void prefix_release(struct prefix *p)
{
    mem_free(p->sum);
    p->sum = NULL;
}

size_t prefix_memory(const struct prefix *p)
{
    return p->kind == PREFIX_TOKEN ? 0 : (size_t)p->C * sizeof *p->sum;
}

/* Number of states in the mean at position pos. */
static int count_at(const struct prefix *p, int pos)
{
    return pos < p->prompt ? pos + 1 : p->prompt;
}

/* x_i = 1/n sum of h_t over the first n = min(pos + 1, prompt) rows of the document that row i
 * sees */
void prefix_fwd(const struct prefix *p, real *x, const real *h, const struct pass *pass)
{
    size_t C = (size_t)p->C;
    if (p->kind == PREFIX_TOKEN) {
        memcpy(x, h, (size_t)pass->R * C * sizeof *x);
        return;
    }
    for (int i = 0; i < pass->R; i++, x += C, h += C) {
        double n = count_at(p, pass->pos[i]);
        double *sum = pass->memory ? pass->memory[i / pass->T] : p->sum;
        int span = route_span(pass, i);
        if (pass->pos[i] == 0)
            memset(sum, 0, C * sizeof *sum);
        if (span == i)
            memcpy(p->sum + C, p->sum, C * sizeof *sum);
        sum = span < 0 ? sum : p->sum + C;
        for (size_t c = 0; c < C && pass->pos[i] < p->prompt; c++)
            sum[c] += (double)h[c];
        for (size_t c = 0; c < C; c++)
            x[c] = (real)(sum[c] / n);
    }
}

/* dh_t = sum over the rows i of the document that see t of dx_i / n_i, for t < prompt: from the last
 * row to the first.  The rows of a private span see their own and all shared ones. */
void prefix_bwd(const struct prefix *p, real *dh, const real *dx, const struct pass *pass)
{
    size_t C = (size_t)p->C;
    for (int i = pass->R - 1; i >= 0; i--) {
        const real *from = dx + (size_t)i * C;
        real *to = dh + (size_t)i * C;
        int is_end = i + 1 == pass->R || pass->pos[i + 1] == 0;
        double n = count_at(p, pass->pos[i]);
        for (size_t c = 0; c < C && p->kind == PREFIX_TOKEN; c++)
            to[c] += from[c];
        if (p->kind == PREFIX_TOKEN)
            continue;
        int span = route_span(pass, i);
        double *sum = span < 0 ? p->sum : p->sum + C;
        if (is_end)
            memset(p->sum, 0, C * sizeof *p->sum);
        if (span >= 0 && (i + 1 == pass->R || route_span(pass, i + 1) != span))
            memset(sum, 0, C * sizeof *sum);
        for (size_t c = 0; c < C; c++)
            sum[c] += (double)from[c] / n;
        for (size_t c = 0; c < C && pass->pos[i] < p->prompt; c++)
            to[c] += (real)sum[c];
        for (size_t c = 0; c < C && span == i; c++)
            p->sum[c] += sum[c];
    }
}

int prefix_is_prompt(const struct prefix *p, const struct pass *pass, int i)
{
    return p->kind == PREFIX_PROMPT && pass->pos[i] < p->prompt;
}

int prefix_owner(const struct prefix *p, const struct pass *pass, int i)
{
    /* positions leave out the private rows before, so that the row found may be a later one */
    while (p->kind == PREFIX_PROMPT && pass->pos[i] > 0)
        i -= pass->pos[i];
    return i;
}

/* One addition and one division per channel. */
double prefix_flops(const struct prefix *p)
{
    return p->kind == PREFIX_TOKEN ? 0 : 2.0 * p->C;
}
