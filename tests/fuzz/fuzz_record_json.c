/* Arbitrary records as lines of JSON, as `show`, `trace` and `agent` print them: whatever they hold,
 * one line of JSON each, in UTF-8. */
#include <math.h>

#include "base/utf8.h"
#include "cli/record_json.h"
#include "io/json_scan.h"

#include "records.h"

static void check(const struct str *line)
{
    struct json_scan s = {.p = str_text(line), .end = str_text(line) + line->len};
    enum json_token t;
    need(!line->failed && line->len > 1);
    need(utf8_valid(line->p, line->len) == line->len);
    for (size_t i = 0; i + 1 < line->len; i++)
        need((unsigned char)line->p[i] >= ' ');
    do {
        t = json_scan_next(&s);
        need(t != JSON_SCAN_NUMBER || isfinite(s.value)); /* those are strings */
    } while (t > JSON_SCAN_DONE);
    need(t == JSON_SCAN_DONE || s.depth >= JSON_SCAN_DEPTH - 1);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct runlog_entry entry = {0};
    struct str line = {0};
    size_t used;
    for (size_t at = 0; at < size; at += used) {
        if (value_check(data + at, size - at, &entry.body, &used, NULL) < 0)
            break;
        str_reset(&line);
        cli_add_record(&line, &entry);
        check(&line);
    }
    str_release(&line);
    return 0;
}
