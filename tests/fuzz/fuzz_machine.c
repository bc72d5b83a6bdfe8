/* Arbitrary output of nvidia-smi: every GPU that is read has plausible numbers or NaN, and a printable name. */
#include "base/machine_smi.c"
#include "base/utf8.h"

#include "kit.h"

static void check(double x, double most)
{
    need(isnan(x) || (x >= 0 && x <= most));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1), *rest = NULL;
    need(text != NULL);
    memcpy(text, data, size);
    text[size] = '\0';
    int fields = FIELDS - (size > 0 && data[0] == '!');
    for (char *line = strtok_r(text, "\r\n", &rest); line; line = strtok_r(NULL, "\r\n", &rest)) {
        struct machine_gpu g;
        if (!read_line(line, fields, &g))
            continue;
        check(g.use, 1);
        check(g.memory_used, machine_most_bytes);
        check(g.memory_total, machine_most_bytes);
        check(g.power, machine_most_watts);
        check(g.clock_sm, machine_most_mhz);
        need(memchr(g.name, 0, sizeof g.name) &&
             utf8_valid(g.name, strlen(g.name)) == strlen(g.name));
        need(g.throttle >> MACHINE_THROTTLES == 0);
    }
    free(text);
    return 0;
}
