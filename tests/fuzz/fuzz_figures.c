/* Arbitrary results in a figure. First byte: which figure; second byte: bit 0 how often the rest is
 * given, bits 1 and 2 the axis. What begins with a brace is a JSON file of results, everything
 * else the records of a run. A one-line error, or a figure as SVG and PDF. */
#include "base/json.h"
#include "figures/figure.h"

#include "records.h"

static void write_out(const struct figure *f)
{
    static const enum pen_format format[] = {PEN_SVG, PEN_PDF};
    need(f->width > 0 && f->height > 0 && strlen(f->data_hash) == 64 && f->caption.len > 0);
    for (size_t i = 0; i < DS_LEN(format); i++) {
        struct str out = {0};
        struct err e = {0};
        int rc = figure_bytes(f, format[i], &out, &e);
        need_line(rc, &e);
        need(rc < 0 || out.len > 0);
        str_release(&out);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const axis[] = {NULL, "tokens", "seconds", "flops"};
    struct figure_run run[2] = {{.path = "a"}, {.path = "b"}};
    struct figure_options o;
    struct figure f = {0};
    struct err e = {0};
    int figures = 0, runs = 0;
    if (size < 3)
        return 0;
    log_to(fuzz_hush, NULL);
    while (figure_name(figures))
        figures++;
    figure_options_default(&o);
    o.x = axis[data[1] >> 1 & 3];
    for (; runs < 1 + (data[1] & 1); runs++) {
        if (data[2] == '{' && json_parse_wide(&run[runs].json, (const char *)data + 2, size - 2,
                                              "results.json", &e) < 0)
            break;
        if (data[2] != '{')
            run[runs].view = fuzz_view(data + 2, size - 2);
    }
    if (runs > 0) {
        int rc = figure_make(&f, figure_name(data[0] % figures), run, runs, &o, &e);
        need_line(rc, &e);
        if (rc == 0) {
            write_out(&f);
            figure_release(&f);
        }
    }
    for (int i = 0; i < runs; i++)
        figure_close(&run[i]);
    return 0;
}
