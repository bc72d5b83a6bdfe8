/* Arbitrary filters of runs: parsing, matching and completion read and write in bounds, and what
 * parses once parses again. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fs.h"
#include "base/mem.h"
#include "io/runquery.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct runquery q;
    struct config config = {0};
    struct err e = {0};
    struct run_row *row = mem_alloc(1, sizeof *row), *rows[] = {row};
    struct runindex x = {.row = rows, .n = 1};
    char *text = mem_alloc(size + 1, 1), **word = NULL;
    size_t n = 0, from = 0;
    if (!row || !text || config_set(&config, "train.lr", "1e-3", "fuzz", &e) < 0)
        abort();
    memcpy(text, data, size);
    row->config = &config;
    str_copy(row->name, sizeof row->name, "tiny \"edp\"");
    for (int i = 0; i < RUN_NUMBERS; i++)
        row->number[i] = i % 2 ? i : (double)NAN;
    if (runquery_parse(&q, text, &e) == 0) {
        int first = runquery_match(&q, row, 1e9);
        (void)!runquery_check(&q, &x, &e);
        if (runquery_parse(&q, text, &e) < 0 || runquery_match(&q, row, 1e9) != first)
            abort();
    } else if (!strstr(e.text, "filter: column ")) {
        abort();
    }
    if (runquery_complete(&word, &n, &from, text, &x, 1e9, &e) == 0) {
        if (from > strlen(text))
            abort();
        fs_list_free(word, n);
    }
    config_release(&config);
    mem_free(text);
    mem_free(row);
    return 0;
}
