/* Arbitrary MessagePack maps as the records of a log: each gets its frame, sequence number and
 * checksum. */
#ifndef DS_TESTS_FUZZ_RECORDS_H
#define DS_TESTS_FUZZ_RECORDS_H

#include "io/record.h"
#include "io/runview.h"

#include "kit.h"

/* Up to the first byte that begins no map; several times over, with sequence numbers that go on. */
static inline size_t fuzz_frames(struct str *out, const uint8_t *p, size_t n, int times)
{
    struct value body;
    size_t used, frames = 0;
    for (int i = 0; i < times; i++)
        for (size_t at = 0; at < n && value_check(p + at, n - at, &body, &used, NULL) == 0;
             at += used)
            record_copy(out, ++frames, body);
    need(!out->failed);
    return frames;
}

/* The same as a view of a run, as the workbench has it. */
static inline struct runview *fuzz_view(const uint8_t *p, size_t n)
{
    struct runview *v = runview_new();
    struct value body;
    size_t used;
    need(v != NULL);
    for (size_t at = 0; at < n && value_check(p + at, n - at, &body, &used, NULL) == 0; at += used)
        runview_take(v, body);
    return v;
}

#endif
