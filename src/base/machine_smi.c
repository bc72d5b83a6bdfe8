/* NVIDIA GPUs by the program nvidia-smi, where its library cannot be loaded (a static program). */
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/child.h"
#include "base/clock.h"
#include "base/machine_parts.h"

enum { FIELDS = 9, OUT_MAX = 1 << 14 };
/* The name comes first: whatever it holds, the fields are counted from the end of the line. */
static const char all[] = "--query-gpu=name,utilization.gpu,memory.used,memory.total,power.draw,"
                          "enforced.power.limit,temperature.gpu,clocks.sm,clocks.mem,"
                          "clocks_throttle_reasons.active",
                  without_reasons[] =
                      "--query-gpu=name,utilization.gpu,memory.used,memory.total,power.draw,"
                      "enforced.power.limit,temperature.gpu,clocks.sm,clocks.mem";

/* Reads until the end of the output, or the time. */
static size_t read_all(int fd, char *out, size_t size, double end)
{
    size_t n = 0;
    for (double left; n + 1 < size && (left = end - clock_mono()) > 0;) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        if (poll(&p, 1, (int)(1000 * left) + 1) <= 0)
            continue;
        ssize_t got = read(fd, out + n, size - 1 - n);
        if (got <= 0)
            break;
        n += (size_t)got;
    }
    out[n] = '\0';
    return n;
}

/* DS_ENOTFOUND: no such program; DS_EBUSY: it took too long; DS_EIO: it failed. */
static int ask(const char *query, char *out, size_t size, double patience_s)
{
    const char *argv[] = {"nvidia-smi", query, "--format=csv,noheader,nounits", NULL};
    const struct child_setup how = {.program = "nvidia-smi",
                                    .argv = argv,
                                    .in = CHILD_NULL,
                                    .out = CHILD_PIPE,
                                    .err = CHILD_NULL,
                                    .is_group = 1};
    struct child c = CHILD_NONE;
    struct err e = {0};
    int rc = child_start(&c, &how, &e);
    if (rc < 0)
        return rc;
    double end = clock_mono() + patience_s;
    size_t n = read_all(c.out, out, size, end);
    while (!child_poll(&c) && clock_mono() < end)
        clock_sleep(0.01);
    rc = !c.has_ended ? DS_EBUSY : n > 0 && c.status == 0 ? 0 : DS_EIO;
    child_close(&c, SIGKILL);
    return rc;
}

/* "[N/A]", "[Not Supported]" and "[GPU is lost]" are not numbers. */
static double number(const char *text, double unit, double most)
{
    char *end;
    double x = strtod(text, &end);
    return end > text && end[strspn(end, " ")] == '\0' ? machine_reading(x * unit, most)
                                                       : (double)NAN;
}

static int read_line(char *line, int fields, struct machine_gpu *g)
{
    char *field[FIELDS + 1];
    for (int i = fields; i-- > 0;) {
        char *comma = strrchr(line, ',');
        if (!comma)
            return 0;
        *comma = '\0';
        field[i] = comma + 1;
        field[i] += strspn(field[i], " ");
    }
    machine_gpu_clear(g, "nvidia-smi");
    machine_name(g->name, sizeof g->name, line);
    g->use = number(field[0], 0.01, 1);
    g->memory_used = number(field[1], 0x1p20, machine_most_bytes);
    g->memory_total = number(field[2], 0x1p20, machine_most_bytes);
    g->power = number(field[3], 1, machine_most_watts);
    g->power_limit = number(field[4], 1, machine_most_watts);
    g->temperature = number(field[5], 1, machine_most_celsius);
    g->clock_sm = number(field[6], 1, machine_most_mhz);
    g->clock_memory = number(field[7], 1, machine_most_mhz);
    for (int i = 0; i < fields; i++)
        g->is_lost |= strstr(field[i], "is lost") != NULL;
    if (fields == FIELDS && strncmp(field[8], "0x", 2) == 0) {
        g->has_throttle = 1;
        g->throttle = (unsigned)strtoull(field[8], NULL, 16) & ((1u << MACHINE_THROTTLES) - 1);
    }
    return 1;
}

void smi_sample(struct smi *s, struct machine_sample *out)
{
    char text[OUT_MAX], *rest = NULL;
    int rc = s->is_without_reasons ? DS_EIO : ask(all, text, sizeof text, s->patience_s);
    if (rc == DS_EIO) { /* other drivers name the reasons differently */
        s->is_without_reasons = 1;
        rc = ask(without_reasons, text, sizeof text, s->patience_s);
    }
    if (rc < 0) {
        s->is_absent = 1; /* it is not asked again: one that hangs would hang again */
        return;
    }
    for (char *line = strtok_r(text, "\r\n", &rest); line; line = strtok_r(NULL, "\r\n", &rest)) {
        struct machine_gpu g;
        if (!read_line(line, FIELDS - s->is_without_reasons, &g))
            continue;
        if (out->gpus == MACHINE_GPUS)
            out->gpus_more++;
        else
            out->gpu[out->gpus++] = g;
    }
}
