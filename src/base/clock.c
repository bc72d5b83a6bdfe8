/* Clocks and sleeping, with a fixed clock for tests. */
#include "base/clock.h"

#include <errno.h>
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static int is_fixed(void)
{
    static atomic_int state; /* 0 not initialised, 1 running, 2 fixed */
    int s = atomic_load_explicit(&state, memory_order_relaxed);
    if (s == 0) {
        const char *env = getenv("DEPTHSCOPE_CLOCK");
        s = env && strcmp(env, "fixed") == 0 ? 2 : 1;
        atomic_store_explicit(&state, s, memory_order_relaxed);
    }
    return s == 2;
}

static double read_clock(clockid_t id)
{
    struct timespec t;
    if (is_fixed() || clock_gettime(id, &t) != 0)
        return 0;
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

double clock_mono(void)
{
    return read_clock(CLOCK_MONOTONIC);
}

double clock_wall(void)
{
    return read_clock(CLOCK_REALTIME);
}

void clock_sleep(double seconds)
{
    if (!(seconds > 0))
        return;
    if (seconds > 1e9)
        seconds = 1e9;
    struct timespec left = {.tv_sec = (time_t)seconds};
    left.tv_nsec = (long)((seconds - (double)left.tv_sec) * 1e9);
    if (left.tv_nsec > 999999999L)
        left.tv_nsec = 999999999L;
    while (nanosleep(&left, &left) != 0 && errno == EINTR)
        ;
}

double eta_seconds(const double *step_ms, size_t n, double other_share, double left)
{
    double sum = 0;
    size_t known = 0;
    for (size_t i = n > ETA_STEPS ? n - ETA_STEPS : 0; i < n; i++)
        if (isfinite(step_ms[i]) && step_ms[i] > 0) {
            sum += step_ms[i];
            known++;
        }
    /* at the start a single evaluation may dominate the total time */
    double share = other_share >= 0 && other_share < 0.95 ? other_share : 0;
    return known ? left * sum / (double)known / 1e3 / (1 - share) : (double)NAN;
}
