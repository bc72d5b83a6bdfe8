/* Reads motion and predictions of tokens at their exits. */
#include "routing/look.h"

#include <math.h>
#include <string.h>

#include "base/pool.h"

enum { ROWS = 16 };
static const real norm_floor = (real)1e-8;

static const char *const look_name[LOOKS] = {"velocity",   "acceleration", "scalar", "turn",
                                             "confidence", "entropy",      "kl",     "state"};

int looks_parse(struct looks *x, const char *key, const char *text, int C, struct err *e)
{
    unsigned seen = 0;
    *x = (struct looks){.width = 1};
    for (const char *at = text; *at;) {
        size_t n = strcspn(at, ",");
        int k = 0;
        while (k < LOOKS && (strlen(look_name[k]) != n || strncmp(at, look_name[k], n) != 0))
            k++;
        if (k == LOOKS || (at[n] == ',' && !at[n + 1]))
            return err_set(
                e, DS_EUSAGE,
                "%s=%s: unknown \"%.*s\", expected velocity, acceleration, scalar, turn, "
                "confidence, entropy, kl, state separated by commas",
                key, text, (int)(n < 40 ? n : 40), at);
        if (seen & 1u << k)
            return err_set(e, DS_EUSAGE, "%s=%s: duplicate %s", key, text, look_name[k]);
        seen |= 1u << k;
        x->feature[x->n++] = k;
        x->width += k == LOOK_STATE ? C : 1;
        at += n + (at[n] == ',');
    }
    return 0;
}

/* Of the states at exits t, t - 1 and t - 2. */
static void read_motion(const struct route *r, const struct stream *st, int t, int i, real *look)
{
    size_t at = (size_t)i * (size_t)r->C;
    const real *h = st->h[route_exit(r, t)] + at, *p = st->h[route_exit(r, t - 1)] + at;
    const real *q = t > 1 ? st->h[route_exit(r, t - 2)] + at : p;
    real dd = 0, hh = 0, oo = 0, cross = 0, change = 0;
#pragma omp simd reduction(+ : dd, hh, oo, cross, change)
    for (int c = 0; c < r->C; c++) {
        real d = h[c] - p[c], o = p[c] - q[c];
        dd += d * d;
        hh += h[c] * h[c];
        oo += o * o;
        cross += d * o;
        change += (d - o) * (d - o);
    }
    real norm = sqrt_r(hh) > norm_floor ? sqrt_r(hh) : norm_floor, both = sqrt_r(dd) * sqrt_r(oo);
    look[LOOK_VELOCITY] = sqrt_r(dd) / norm;
    look[LOOK_ACCELERATION] = sqrt_r(change) / norm;
    look[LOOK_SCALAR] = fabs_r(sqrt_r(dd) - sqrt_r(oo));
    look[LOOK_TURN] = both > 0 ? cross / both : 0;
}

/* The listed looks, then the exit's index as a share of the depth. */
static void fill_inputs(const struct look_rows *o, int i, const real *look, real *x)
{
    const struct route *r = o->route;
    const real *h = o->stream->h[route_exit(r, o->t)] + (size_t)i * (size_t)r->C;
    for (int k = 0; k < o->inputs->n; k++) {
        if (o->inputs->feature[k] != LOOK_STATE) {
            *x++ = look[o->inputs->feature[k]];
            continue;
        }
        real square = 0;
        for (int c = 0; c < r->C; c++)
            square += h[c] * h[c];
        real rms = sqrt_r(square / (real)r->C);
        for (int c = 0; c < r->C; c++)
            *x++ = h[c] / (rms > norm_floor ? rms : norm_floor);
    }
    *x = (real)o->t / (real)(route_exits(r) - 1);
}

static void read_part(void *ctx, int task, int worker)
{
    const struct look_rows *o = ctx;
    int end = (task + 1) * ROWS < o->n ? (task + 1) * ROWS : o->n;
    (void)worker;
    for (int k = task * ROWS; k < end; k++) {
        real *look = o->look + (size_t)k * LOOKS;
        int i = o->row ? o->row[k] : k;
        for (int j = 0; j < LOOKS; j++)
            look[j] = (real)NAN;
        if (o->has_motion)
            read_motion(o->route, o->stream, o->t, i, look);
        if (o->doubt) {
            look[LOOK_DOUBT] = o->doubt[k];
            look[LOOK_CONFIDENCE] = exp_r(-o->doubt[k]);
        }
        look[LOOK_ENTROPY] = o->entropy ? o->entropy[k] : (real)NAN;
        look[LOOK_KL] = o->kl ? o->kl[k] : (real)NAN;
        if (o->x)
            fill_inputs(o, i, look, o->x + (size_t)k * (size_t)o->inputs->width);
    }
}

void look_read(const struct look_rows *o)
{
    struct look_rows copy = *o; /* pool_run takes no const */
    pool_run((o->n + ROWS - 1) / ROWS, read_part, &copy);
}
