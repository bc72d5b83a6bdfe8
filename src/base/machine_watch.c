/* Samples the machine in a thread of its own: NVIDIA's library may take a second to start, and a driver
 * that lost its GPU may never answer. */
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <time.h>

#include "base/machine.h"
#include "base/mem.h"

struct machine_watch {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    char *folder;
    double seconds;
    int is_new, is_stopped, has_ended;
    int is_left;                        /* stop did not wait: the thread releases everything */
    struct machine_sample newest, next; /* next: of the thread, outside the lock */
};

static struct timespec later(double seconds)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    double whole = floor(seconds);
    t.tv_sec += (time_t)whole;
    t.tv_nsec += (long)(1e9 * (seconds - whole));
    t.tv_sec += t.tv_nsec >= 1000000000;
    t.tv_nsec -= t.tv_nsec >= 1000000000 ? 1000000000 : 0;
    return t;
}

static void release(struct machine_watch *w)
{
    pthread_cond_destroy(&w->changed);
    pthread_mutex_destroy(&w->lock);
    mem_free(w->folder);
    mem_free(w);
}

/* Takes over the sample and waits until the next one is due; 0 when it was stopped. */
static int hand_over(struct machine_watch *w)
{
    struct timespec due = later(w->seconds);
    pthread_mutex_lock(&w->lock);
    w->newest = w->next;
    w->is_new = 1;
    while (!w->is_stopped && pthread_cond_timedwait(&w->changed, &w->lock, &due) == 0) {
    }
    int goes_on = !w->is_stopped;
    pthread_mutex_unlock(&w->lock);
    return goes_on;
}

static void *watch(void *ctx)
{
    struct machine_watch *w = ctx;
    struct machine *m = machine_open(w->folder);
    if (m)
        do
            machine_sample(m, &w->next);
        while (hand_over(w));
    machine_close(m);
    pthread_mutex_lock(&w->lock);
    w->has_ended = 1;
    int is_left = w->is_left;
    pthread_cond_signal(&w->changed);
    pthread_mutex_unlock(&w->lock);
    if (is_left)
        release(w);
    return NULL;
}

/* Rates over less say little, and a driver has other things to do. */
static const double least_seconds = 0.1;

struct machine_watch *machine_watch_start(const char *folder, double seconds)
{
    struct machine_watch *w = mem_alloc(1, sizeof *w);
    pthread_condattr_t attr;
    sigset_t every, before;
    if (!w || !(w->folder = mem_strdup(folder))) {
        mem_free(w);
        return NULL;
    }
    w->seconds = seconds > least_seconds ? seconds : least_seconds;
    pthread_mutex_init(&w->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&w->changed, &attr);
    pthread_condattr_destroy(&attr);
    sigfillset(&every); /* signals are for the thread that trains or draws */
    pthread_sigmask(SIG_SETMASK, &every, &before);
    int failed = pthread_create(&w->thread, NULL, watch, w);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failed) {
        release(w);
        return NULL;
    }
    return w;
}

int machine_watch_take(struct machine_watch *w, struct machine_sample *out)
{
    pthread_mutex_lock(&w->lock);
    int is_new = w->is_new;
    if (is_new)
        *out = w->newest;
    w->is_new = 0;
    pthread_mutex_unlock(&w->lock);
    return is_new;
}

void machine_watch_stop(struct machine_watch *w)
{
    static const double patience_s = 0.5;
    if (!w)
        return;
    struct timespec end = later(patience_s);
    pthread_mutex_lock(&w->lock);
    w->is_stopped = 1;
    pthread_cond_signal(&w->changed);
    while (!w->has_ended && pthread_cond_timedwait(&w->changed, &w->lock, &end) == 0) {
    }
    w->is_left = !w->has_ended;
    int is_left = w->is_left;
    pthread_t thread = w->thread;
    pthread_mutex_unlock(&w->lock);
    if (is_left) {
        pthread_detach(thread);
        return;
    }
    pthread_join(thread, NULL);
    release(w);
}
