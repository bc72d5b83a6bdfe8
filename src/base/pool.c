/* The thread pool: one parallel loop at a time over numbered tasks. */
#define _GNU_SOURCE /* sched_getaffinity, CPU_COUNT_S */
#include "base/pool.h"

#include <fenv.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include "base/cpu.h"
#include "base/log.h"
#include "base/mem.h"

enum { THREADS_MAX = 1024, SPINS = 4000, STACK_BYTES = 4 << 20 };

/* One run at a time.  `ticket` holds (generation << 32 | tasks not yet taken).  A thread that takes
 * a task by decrementing it may rely on fn, ctx and tasks until that task is done, since the owner
 * waits for `pending`; a worker that wakes late finds no task and delays nobody. */
static struct {
    int threads; /* the caller among them; 0 = not started */
    int spins;
    pthread_t *id;
    pthread_mutex_t run; /* held by the owner of the current run   */
    pthread_mutex_t lock;
    pthread_cond_t wake, done;
    atomic_uint_fast64_t ticket;
    atomic_int pending;  /* tasks not yet done                     */
    atomic_int sleepers; /* workers waiting on `wake`              */
    atomic_int waiting;  /* the owner waits on `done`              */
    atomic_int stop;
    int up; /* workers that have started, under lock  */
    pool_fn *fn;
    void *ctx;
    int tasks;
} pool = {
    .run = PTHREAD_MUTEX_INITIALIZER,
    .lock = PTHREAD_MUTEX_INITIALIZER,
    .wake = PTHREAD_COND_INITIALIZER,
    .done = PTHREAD_COND_INITIALIZER,
};

static _Thread_local int inside; /* this thread is running a task */
static _Thread_local int my_worker;

static uint32_t left(uint64_t ticket)
{
    return (uint32_t)ticket;
}

/* Takes and runs tasks until none is left. */
static void work(void)
{
    int done = 0;
    uint64_t t = atomic_load_explicit(&pool.ticket, memory_order_acquire);
    while (left(t) > 0) {
        if (!atomic_compare_exchange_weak_explicit(&pool.ticket, &t, t - 1, memory_order_acq_rel,
                                                   memory_order_acquire))
            continue;
        pool.fn(pool.ctx, pool.tasks - (int)left(t), my_worker);
        done++;
        t = atomic_load_explicit(&pool.ticket, memory_order_acquire);
    }
    if (done && atomic_fetch_sub(&pool.pending, done) == done && atomic_load(&pool.waiting)) {
        pthread_mutex_lock(&pool.lock);
        pthread_cond_signal(&pool.done);
        pthread_mutex_unlock(&pool.lock);
    }
}

/* Idle: spin briefly (the next op usually comes within microseconds), then sleep. */
static void await_tasks(void)
{
    for (int i = 0; i < pool.spins; i++) {
        if (left(atomic_load_explicit(&pool.ticket, memory_order_relaxed)) > 0 ||
            atomic_load_explicit(&pool.stop, memory_order_relaxed))
            return;
        DS_PAUSE();
    }
    pthread_mutex_lock(&pool.lock);
    atomic_fetch_add(&pool.sleepers, 1); /* before the check: the owner's order is opposite */
    while (left(atomic_load(&pool.ticket)) == 0 && !atomic_load(&pool.stop))
        pthread_cond_wait(&pool.wake, &pool.lock);
    atomic_fetch_sub(&pool.sleepers, 1);
    pthread_mutex_unlock(&pool.lock);
}

static void *worker_main(void *arg)
{
    my_worker = (int)(intptr_t)arg;
    inside = 1;
    fesetenv(FE_DFL_ENV);
    pthread_mutex_lock(&pool.lock);
    pool.up++;
    pthread_cond_signal(&pool.done);
    pthread_mutex_unlock(&pool.lock);
    while (!atomic_load_explicit(&pool.stop, memory_order_acquire)) {
        await_tasks();
        work();
    }
    return NULL;
}

static void await_done(void)
{
    for (int i = 0; i < pool.spins; i++) {
        if (atomic_load_explicit(&pool.pending, memory_order_acquire) == 0)
            return;
        DS_PAUSE();
    }
    pthread_mutex_lock(&pool.lock);
    atomic_store(&pool.waiting, 1);
    while (atomic_load(&pool.pending) != 0)
        pthread_cond_wait(&pool.done, &pool.lock);
    atomic_store(&pool.waiting, 0);
    pthread_mutex_unlock(&pool.lock);
}

static void wake_workers(int wanted)
{
    int asleep = atomic_load(&pool.sleepers);
    if (asleep == 0)
        return;
    pthread_mutex_lock(&pool.lock);
    if (wanted >= asleep)
        pthread_cond_broadcast(&pool.wake);
    else
        for (int i = 0; i < wanted; i++)
            pthread_cond_signal(&pool.wake);
    pthread_mutex_unlock(&pool.lock);
}

static _Atomic uint64_t runs;

uint64_t pool_runs(void)
{
    return atomic_load_explicit(&runs, memory_order_relaxed);
}

static void (*beside)(void *ctx);
static void *beside_ctx;

void pool_beside(void (*fn)(void *ctx), void *ctx)
{
    beside = fn;
    beside_ctx = ctx;
}

void pool_run(int tasks, pool_fn *fn, void *ctx)
{
    if (beside && !inside)
        beside(beside_ctx);
    if (!inside) /* one thread writes it: no locked instruction */
        atomic_store_explicit(&runs, pool_runs() + 1, memory_order_relaxed);
    if (inside || pool_threads() == 1 || tasks <= 1) {
        for (int i = 0; i < tasks; i++)
            fn(ctx, i, my_worker);
        return;
    }
    pthread_mutex_lock(&pool.run);
    inside = 1;
    pool.fn = fn;
    pool.ctx = ctx;
    pool.tasks = tasks;
    atomic_store(&pool.pending, tasks);
    uint64_t generation = (atomic_load(&pool.ticket) >> 32) + 1;
    atomic_store(&pool.ticket, generation << 32 | (uint32_t)tasks);
    wake_workers(tasks - 1);
    work();
    await_done();
    inside = 0;
    pthread_mutex_unlock(&pool.run);
}

/* After fork() only this thread exists in the child, and the others may have held the locks, those
 * of the allocator too: pool.id stays for the next start. */
static void forget_in_child(void)
{
    static const pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    static const pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
    pool.threads = 0;
    memcpy(&pool.run, &mutex, sizeof mutex);
    memcpy(&pool.lock, &mutex, sizeof mutex);
    memcpy(&pool.wake, &cond, sizeof cond);
    memcpy(&pool.done, &cond, sizeof cond);
    atomic_store(&pool.ticket, 0);
    atomic_store(&pool.pending, 0);
    atomic_store(&pool.sleepers, 0);
    atomic_store(&pool.waiting, 0);
    inside = 0;
    my_worker = 0;
}

static void register_fork(void)
{
    (void)pthread_atfork(NULL, NULL, forget_in_child);
}

/* Workers block all signals, which the main thread handles, except synchronous faults: blocked,
 * those would end the program silently. */
static int start_worker(int i)
{
    pthread_attr_t attr;
    static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL};
    sigset_t all, before;
    int rc = pthread_attr_init(&attr);
    if (rc != 0)
        return rc;
    pthread_attr_setstacksize(&attr, STACK_BYTES);
    sigfillset(&all);
    for (size_t f = 0; f < DS_LEN(faults); f++)
        sigdelset(&all, faults[f]);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    rc = pthread_create(&pool.id[i], &attr, worker_main, (void *)(intptr_t)i);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attr);
    return rc;
}

/* Waits until all threads have started: a fork during thread creation would copy locks of the C
 * library in an undefined state. */
static void await_workers(void)
{
    pthread_mutex_lock(&pool.lock);
    while (pool.up < pool.threads - 1)
        pthread_cond_wait(&pool.done, &pool.lock);
    pthread_mutex_unlock(&pool.lock);
}

int pool_start(int threads, struct err *e)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    if (threads < 0 || threads > THREADS_MAX)
        return err_set(e, DS_ERANGE, "%d threads: must be 1 to %d, or 0 for automatic", threads,
                       THREADS_MAX);
    int is_chosen = threads == 0;
    /* a library may have set its loader's thread to flush denormals, and threads inherit that */
    fesetenv(FE_DFL_ENV);
    if (is_chosen)
        threads = pool_cpus();
    if (threads == pool_threads())
        return 0;
    pool_stop();
    if (threads == 1)
        return 0;
    pthread_once(&once, register_fork);
    pthread_t *id = mem_realloc(pool.id, (size_t)threads, sizeof *id);
    if (!id)
        return err_set(e, DS_EMEM, "%d threads: out of memory", threads);
    pool.id = id;
    /* With more threads than processors, spinning only delays the others. */
    pool.spins = threads > pool_cpus() ? 0 : SPINS;
    atomic_store(&pool.stop, 0);
    pool.up = 0;
    for (pool.threads = 1; pool.threads < threads; pool.threads++) {
        int rc = start_worker(pool.threads);
        if (rc == 0)
            continue;
        int reached = pool.threads;
        if (is_chosen) { /* automatic: fewer threads are acceptable */
            log_warn("thread %d of %d: start failed: %s; continuing with %d", reached + 1, threads,
                     strerror(rc), reached);
            break;
        }
        pool_stop();
        return err_set(e, DS_EIO, "thread %d of %d: start failed: %s", reached + 1, threads,
                       strerror(rc));
    }
    await_workers();
    if (pool.threads == 1)
        pool_stop();
    return 0;
}

void pool_stop(void)
{
    if (pool.threads == 0)
        return;
    pthread_mutex_lock(&pool.lock);
    atomic_store(&pool.stop, 1);
    pthread_cond_broadcast(&pool.wake);
    pthread_mutex_unlock(&pool.lock);
    for (int i = 1; i < pool.threads; i++)
        pthread_join(pool.id[i], NULL);
    mem_free(pool.id);
    pool.id = NULL;
    pool.threads = 0;
}

int pool_threads(void)
{
    return pool.threads > 0 ? pool.threads : 1;
}

static int affinity_cpus(void)
{
    for (int room = 1024; room <= 1 << 20; room *= 4) {
        cpu_set_t *set = CPU_ALLOC((size_t)room);
        size_t size = CPU_ALLOC_SIZE((size_t)room);
        int n = set && sched_getaffinity(0, size, set) == 0 ? CPU_COUNT_S(size, set) : 0;
        CPU_FREE(set);
        if (n > 0)
            return n;
    }
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n > 0 && n < THREADS_MAX ? (int)n : 1;
}

int pool_cpus(void)
{
    int n = affinity_cpus(), quota = cpu_quota("/sys/fs/cgroup", "/proc/self/cgroup");
    if (quota > 0 && quota < n)
        n = quota;
    return n > THREADS_MAX ? THREADS_MAX : n;
}
