/* When does a moving cursor rest?  A timer that wakes the workbench, where the system has one. */
#include <stdint.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/timerfd.h>
#endif

#include "tui/cells.h"

#ifdef __linux__
enum { REST_MS = 120 };

void cells_moved(struct cells *c, int is_scripted)
{
    struct itimerspec when = {.it_value = {.tv_nsec = REST_MS * 1000000L}};
    if (is_scripted)
        return;
    if (c->timer == 0)
        c->timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC) + 1;
    c->is_moving = c->timer > 0 && timerfd_settime(c->timer - 1, 0, &when, NULL) == 0;
}

int cells_rested(struct cells *c)
{
    uint64_t times;
    if (!c->is_moving || read(c->timer - 1, &times, sizeof times) != (ssize_t)sizeof times)
        return 0;
    c->is_moving = 0;
    return 1;
}
#else
/* Without one everything is drawn at once. */
void cells_moved(struct cells *c, int is_scripted)
{
    (void)is_scripted;
    c->is_moving = 0;
}

int cells_rested(struct cells *c)
{
    (void)c;
    return 0;
}
#endif

int cells_timer(const struct cells *c)
{
    return c->is_moving ? c->timer - 1 : -1;
}
