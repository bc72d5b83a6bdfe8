/* Arbitrary records of a log as a row of the list of runs: the second byte says how often they are
 * repeated (long logs are sampled), the first what follows them: nothing, zeros, part of a
 * record, or other bytes. Every column has a text, and the row reads the same when it is read
 * again. */
#include "base/fs.h"
#include "io/runindex.h"

#include "records.h"

static void texts(struct str *out, struct run_row *row)
{
    char text[300];
    for (const struct run_column *c = run_columns; c->key; c++) {
        const char *p = run_column_text(row, c, 1e9, text, sizeof text);
        need(strlen(p) < sizeof text);
        str_addf(out, "%s=%s\n", c->key, p);
    }
}

static void read_row(struct str *out)
{
    struct run_row *row = calloc(1, sizeof *row);
    struct err e = {0};
    need(row != NULL);
    int rc = run_row_read(row, fuzz_path("run"), &e);
    need_line(rc, &e);
    if (rc == 0)
        texts(out, row);
    need(rc < 0 || !row->format || run_row_poll(row, 0) >= 0);
    run_row_release(row);
    free(row);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char rest[64] = "\xc9\0\0\0\x30";
    struct str log = {0}, first = {0}, again = {0};
    struct err e = {0};
    if (size < 2)
        return 0;
    log_to(fuzz_hush, NULL);
    need(fs_mkdirs(fuzz_path("run"), &e) == 0);
    fuzz_frames(&log, data + 2, size - 2, 1 + data[1]);
    if (data[0] & 1)
        str_add_bytes(&log, data[0] & 2 ? rest : rest + 8, sizeof rest - 8);
    if (data[0] & 4)
        str_add_bytes(&log, data, size);
    fuzz_put(fuzz_path("run/log.mp"), str_text(&log), log.len);
    read_row(&first);
    read_row(&again);
    need(strcmp(str_text(&first), str_text(&again)) == 0);
    str_release(&log);
    str_release(&first);
    str_release(&again);
    return 0;
}
