/* dense: every token runs every layer.  The reference, and the smallest method. */
#include "routing/route.h"

static void dense_decide(struct route *r, int l, struct plan *out, const struct stream *s)
{
    (void)s;
    int R = r->pass.R, n = 0, active = 0;
    int all = r->pass.kind == PASS_TRAIN || r->pass.kind == PASS_MASKED;
    for (int i = 0; i < R; i++) {
        int run = route_forced(r, l, i) != 0;
        if (!run && !all)
            continue;
        out->row[n] = i;
        out->gate[n] = run ? 1 : 0;
        out->weight[n++] = 0;
        active += run;
    }
    out->n = n;
    out->active = active;
}

const struct route_ops route_dense = {
    .name = "dense",
    .summary = "every token runs every layer",
    .paper = "-",
    .decide = dense_decide,
};
