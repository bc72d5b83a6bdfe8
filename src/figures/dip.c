/* The dip test of unimodality (Hartigan and Hartigan, Ann. Stat. 1985; the algorithm is AS 217).
 *
 * A distribution is unimodal when it is convex up to a mode and concave after it.  In the modal
 * interval [low, high] the empirical distribution is compared with its greatest convex minorant and
 * least concave majorant; where they are farthest apart the interval shrinks, and what lies outside
 * is held to its own minorant or majorant.  Distances are counted in steps of 1/n and halved at the
 * end. */
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "figures/dip.h"

struct dip {
    double *x; /* x[1..n], owned */
    int n;
    int *minor,
        *major; /* previous corner of the convex minorant; next one of the concave majorant */
    int *gcm,
        *lcm; /* corners within [low, high]: from high downwards, from low upwards, both from 1 */
    int gcms, lcms;
};

static void fit_minorant(struct dip *d)
{
    const double *x = d->x;
    d->minor[1] = 1;
    for (int j = 2; j <= d->n; j++) {
        int m = j - 1;
        while (m != 1) {
            int mm = d->minor[m];
            if ((x[j] - x[m]) * (m - mm) < (x[m] - x[mm]) * (j - m))
                break;
            m = mm;
        }
        d->minor[j] = m;
    }
}

static void fit_majorant(struct dip *d)
{
    const double *x = d->x;
    d->major[d->n] = d->n;
    for (int k = d->n - 1; k >= 1; k--) {
        int m = k + 1;
        while (m != d->n) {
            int mm = d->major[m];
            if ((x[m] - x[k]) * (mm - m) < (x[mm] - x[m]) * (m - k))
                break;
            m = mm;
        }
        d->major[k] = m;
    }
}

static void corners(struct dip *d, int low, int high)
{
    d->gcm[1] = high;
    for (d->gcms = 1; d->gcm[d->gcms] > low; d->gcms++)
        d->gcm[d->gcms + 1] = d->minor[d->gcm[d->gcms]];
    d->lcm[1] = low;
    for (d->lcms = 1; d->lcm[d->lcms] < high; d->lcms++)
        d->lcm[d->lcms + 1] = d->major[d->lcm[d->lcms]];
}

/* Largest gap between the two fits; *ig and *ih are the corners of the new modal interval. */
static double widest(const struct dip *d, int *ig, int *ih)
{
    const double *x = d->x;
    int ix = d->gcms - 1, iv = 2;
    double gap = 0;
    *ig = d->gcms;
    *ih = d->lcms;
    if (d->gcms == 2 && d->lcms == 2)
        return 1;
    for (;;) {
        int g = d->gcm[ix], l = d->lcm[iv];
        double dx;
        if (g > l) {
            int g1 = d->gcm[ix + 1];
            dx = (l - g1 + 1) - (x[l] - x[g1]) * (g - g1) / (x[g] - x[g1]);
            iv++;
            if (dx >= gap) {
                gap = dx;
                *ig = ix + 1;
                *ih = iv - 1;
            }
        } else {
            int l1 = d->lcm[iv - 1];
            dx = (x[g] - x[l1]) * (l - l1) / (x[l] - x[l1]) - (g - l1 - 1);
            ix--;
            if (dx >= gap) {
                gap = dx;
                *ig = ix + 1;
                *ih = iv;
            }
        }
        ix = ix < 1 ? 1 : ix;
        iv = iv > d->lcms ? d->lcms : iv;
        if (d->gcm[ix] == d->lcm[iv])
            return gap;
    }
}

/* Largest distance of the sample below (or above) the straight segment from jb to je. */
static double piece(const struct dip *d, int jb, int je, int is_convex)
{
    const double *x = d->x;
    double most = 1;
    if (je - jb <= 1 || x[je] == x[jb])
        return most;
    double slope = (je - jb) / (x[je] - x[jb]);
    for (int j = jb; j <= je; j++) {
        double rise = (x[j] - x[jb]) * slope;
        double gap = is_convex ? (j - jb + 1) - rise : rise - (j - jb - 1);
        if (gap > most) /* with fmax here gcc 12 fails for AArch64: "in vect_transform_reduction" */
            most = gap;
    }
    return most;
}

static double outside(const struct dip *d, int ig, int ih)
{
    double most = 0;
    for (int j = ig; j < d->gcms; j++)
        most = fmax(most, piece(d, d->gcm[j + 1], d->gcm[j], 1));
    for (int j = ih; j < d->lcms; j++)
        most = fmax(most, piece(d, d->lcm[j], d->lcm[j + 1], 0));
    return most;
}

static double dip_of(struct dip *d)
{
    int low = 1, high = d->n, ig, ih;
    double dip = 1;
    if (d->n < 2 || d->x[1] == d->x[d->n])
        return dip / (2.0 * d->n);
    fit_minorant(d);
    fit_majorant(d);
    for (;;) {
        corners(d, low, high);
        if (widest(d, &ig, &ih) < dip)
            break;
        dip = fmax(dip, outside(d, ig, ih));
        if (low == d->gcm[ig] && high == d->lcm[ih])
            break;
        low = d->gcm[ig];
        high = d->lcm[ih];
    }
    return dip / (2.0 * d->n);
}

static void dip_release(struct dip *d)
{
    mem_free(d->minor);
    mem_free(d->x);
}

static int dip_room(struct dip *d, size_t n, struct err *e)
{
    if (n < 1 || n > 1 << 24)
        return err_set(e, DS_ERANGE, "dip test: unsupported number of values, %zu", n);
    d->n = (int)n;
    d->x = mem_alloc(n + 1, sizeof *d->x);
    d->minor = mem_alloc(4 * (n + 3), sizeof *d->minor);
    if (!d->x || !d->minor) {
        dip_release(d);
        return err_set(e, DS_EMEM, "dip test: out of memory");
    }
    d->major = d->minor + (n + 3);
    d->gcm = d->minor + 2 * (n + 3);
    d->lcm = d->minor + 3 * (n + 3);
    return 0;
}

int dip_statistic(const double *sorted, size_t n, double *dip, struct err *e)
{
    struct dip d = {0};
    int rc = dip_room(&d, n, e);
    if (rc < 0)
        return rc;
    memcpy(d.x + 1, sorted, n * sizeof *sorted);
    *dip = dip_of(&d);
    dip_release(&d);
    return 0;
}

/* Sorted uniform samples without sorting: normalised sums of exponential gaps. */
static void uniform_sorted(double *x, size_t n, struct rng *r)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) {
        sum -= log(1 - rng_uniform(r));
        x[i] = sum;
    }
}

int dip_p(double dip, size_t n, int rounds, unsigned long long seed, double *p, struct err *e)
{
    struct dip d = {0};
    struct rng r;
    int at_least = 0, rc = dip_room(&d, n, e);
    if (rc < 0)
        return rc;
    rng_init(&r, seed, RNG_BOOT, 1, (uint32_t)n);
    for (int i = 0; i < rounds; i++) {
        uniform_sorted(d.x + 1, n, &r);
        at_least += dip_of(&d) >= dip;
    }
    *p = (at_least + 1.0) / (rounds + 1.0); /* never 0: a simulation cannot show that */
    dip_release(&d);
    return 0;
}
