/* Detects when a moving cursor has come to rest: a thread sleeps until then and writes to a pipe,
 * which wakes the event loop.  It touches nothing else. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include "base/mem.h"
#include "tui/cells.h"

enum { REST_MS = 120 };

struct cells_clock {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct timespec due;
    int is_armed, must_end, wake[2];
};

static void *sleeper(void *ctx)
{
    struct cells_clock *k = ctx;
    pthread_mutex_lock(&k->lock);
    while (!k->must_end) {
        struct timespec due = k->due;
        if (!k->is_armed) {
            pthread_cond_wait(&k->changed, &k->lock);
        } else if (pthread_cond_timedwait(&k->changed, &k->lock, &due) == ETIMEDOUT &&
                   due.tv_sec == k->due.tv_sec && due.tv_nsec == k->due.tv_nsec) {
            k->is_armed = 0;
            if (write(k->wake[1], "r", 1) < 0)
                k->must_end = 1;
        }
    }
    pthread_mutex_unlock(&k->lock);
    return NULL;
}

/* Signals must be delivered to the thread that draws. */
static int start_thread(struct cells_clock *k)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int rc = pthread_create(&k->thread, NULL, sleeper, k);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return rc == 0;
}

static struct cells_clock *clock_new(void)
{
    struct cells_clock *k = mem_alloc(1, sizeof *k);
    if (!k || pipe(k->wake) != 0) {
        mem_free(k);
        return NULL;
    }
    for (int i = 0; i < 2; i++) {
        fcntl(k->wake[i], F_SETFD, FD_CLOEXEC);
        fcntl(k->wake[i], F_SETFL, O_NONBLOCK);
    }
    pthread_mutex_init(&k->lock, NULL);
    pthread_cond_init(&k->changed, NULL);
    if (start_thread(k))
        return k;
    pthread_cond_destroy(&k->changed);
    pthread_mutex_destroy(&k->lock);
    close(k->wake[0]);
    close(k->wake[1]);
    mem_free(k);
    return NULL;
}

void cells_clock_free(struct cells_clock *k)
{
    if (!k)
        return;
    pthread_mutex_lock(&k->lock);
    k->must_end = 1;
    pthread_cond_signal(&k->changed);
    pthread_mutex_unlock(&k->lock);
    pthread_join(k->thread, NULL);
    pthread_cond_destroy(&k->changed);
    pthread_mutex_destroy(&k->lock);
    close(k->wake[0]);
    close(k->wake[1]);
    mem_free(k);
}

/* Without a clock the details are drawn at once. */
void cells_moved(struct cells *c, int is_scripted)
{
    if (is_scripted || (!c->clock && !(c->clock = clock_new())))
        return;
    struct cells_clock *k = c->clock;
    pthread_mutex_lock(&k->lock);
    clock_gettime(CLOCK_REALTIME, &k->due);
    k->due.tv_nsec += REST_MS * 1000000L;
    if (k->due.tv_nsec >= 1000000000L) {
        k->due.tv_nsec -= 1000000000L;
        k->due.tv_sec++;
    }
    k->is_armed = 1;
    c->is_moving = !k->must_end;
    pthread_cond_signal(&k->changed);
    pthread_mutex_unlock(&k->lock);
}

int cells_timer(const struct cells *c)
{
    return c->is_moving ? c->clock->wake[0] : -1;
}

int cells_rested(struct cells *c)
{
    char bytes[16];
    if (!c->is_moving || read(c->clock->wake[0], bytes, sizeof bytes) <= 0)
        return 0;
    struct cells_clock *k = c->clock;
    pthread_mutex_lock(&k->lock);
    c->is_moving = k->is_armed; /* armed again by a newer step: another wake-up follows */
    pthread_mutex_unlock(&k->lock);
    return !c->is_moving;
}
