/* JSON objects of metrics: one per line, or the items of one array. */
#include <string.h>

#include "io/foreign_object.h"
#include "io/foreign_text.h"

struct jsonl {
    struct text_lines lines;
    struct foreign_object object;
};

static int is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

static const char *skip_blanks(const char *p, const char *end)
{
    if (end - p >= 3 && memcmp(p, "\xEF\xBB\xBF", 3) == 0)
        p += 3;
    while (p < end && is_space(*p))
        p++;
    return p;
}

/* ---- lines ---- */

/* Objects of one line: two writers may have met on it. */
static void take_line(struct jsonl *j, struct foreign_out *out, const char *p, const char *end)
{
    while ((p = skip_blanks(p, end)) < end) {
        struct json_scan s = {.p = p, .end = end};
        if (json_scan_next(&s) != JSON_SCAN_OBJECT ||
            foreign_object_take(&j->object, &s, out) != JSON_SCAN_CLOSE) {
            foreign_invalid(out, 1);
            return;
        }
        p = s.p;
    }
}

static int64_t take_lines(void *state, struct foreign_out *out, const struct foreign_bytes *b,
                          struct err *e)
{
    struct jsonl *j = state;
    const char *line;
    size_t at = 0, n;
    while (text_next(&j->lines, out, b, &at, &line, &n)) {
        take_line(j, out, line, line + n);
        if (j->object.is_failed)
            return err_set(e, DS_EMEM, "line %llu: out of memory",
                           (unsigned long long)j->lines.number);
    }
    return (int64_t)at;
}

/* Of the first lines, each has to be an object of numbers. */
static int recognise_lines(const unsigned char *bytes, size_t n, const char *file, int is_all)
{
    enum { LOOKS = 8 };
    struct object_look look = {0};
    size_t used;
    int lines = 0, bad = 0;
    const char *p = skip_blanks((const char *)bytes, (const char *)bytes + n);
    const char *end = (const char *)bytes + n;
    (void)file;
    for (; p < end && *p == '{' && lines + bad < LOOKS; p += used) {
        size_t len = foreign_line(p, (size_t)(end - p), is_all, &used);
        struct json_scan s = {.p = p, .end = p + (used ? len : (size_t)(end - p))};
        if (json_scan_next(&s) != JSON_SCAN_OBJECT)
            return 0;
        enum json_token t = foreign_object_look(&s, &look);
        if (used == 0) /* a long first line: settings? */
            return t == JSON_SCAN_CUT && (lines > 0 || look.has_config) &&
                           look.has_axis + look.has_config
                       ? 60
                       : 0;
        lines += t == JSON_SCAN_CLOSE;
        bad += t != JSON_SCAN_CLOSE;
        while (p + used < end && is_space(p[used]))
            used++;
    }
    if (lines == 0 || bad > lines || look.numbers == 0)
        return 0;
    if (look.has_axis)
        return 80;
    return look.is_text || lines < 2 ? 0 : 40; /* one object may be anything */
}

static void release(void *state)
{
    foreign_object_release(&((struct jsonl *)state)->object);
}

const struct foreign_format foreign_jsonl = {
    .name = "jsonl",
    .title = "JSON lines",
    .help = "one object of metrics per line; step and time by name, nested names joined by dots; "
            "what other ranks logged is called loss.rank1, results of \"split\": \"val\" val/loss",
    .recognise = recognise_lines,
    .state_size = sizeof(struct jsonl),
    .take = take_lines,
    .release = release,
};

/* ---- an array ---- */

static int64_t take_array(void *state, struct foreign_out *out, const struct foreign_bytes *b,
                          struct err *e)
{
    struct jsonl *j = state;
    struct json_scan s = {.p = skip_blanks(b->p, b->p + b->n), .end = b->p + b->n};
    struct json_scan check = s;
    enum json_token t = json_scan_next(&check);
    if (t == JSON_SCAN_ARRAY)
        t = json_scan_skip(&check);
    if (t == JSON_SCAN_CUT) /* being written */
        return 0;
    if (t == JSON_SCAN_BAD)
        return err_set(e, DS_EFORMAT, "offset %zu: not JSON", (size_t)(check.p - b->p));
    json_scan_next(&s);
    while ((t = json_scan_next(&s)) == JSON_SCAN_OBJECT || s.depth > 0) {
        if (t == JSON_SCAN_ARRAY)
            json_scan_skip(&s);
        if (t == JSON_SCAN_OBJECT)
            foreign_object_take(&j->object, &s, out);
        else
            foreign_invalid(out, 1);
    }
    if (j->object.is_failed)
        return err_set(e, DS_EMEM, "out of memory");
    return (int64_t)b->n;
}

static int recognise_array(const unsigned char *bytes, size_t n, const char *file, int is_all)
{
    struct object_look look = {0};
    const char *end = (const char *)bytes + n;
    struct json_scan s = {.p = skip_blanks((const char *)bytes, end), .end = end};
    (void)file;
    (void)is_all;
    if (json_scan_next(&s) != JSON_SCAN_ARRAY || json_scan_next(&s) != JSON_SCAN_OBJECT)
        return 0;
    enum json_token t = foreign_object_look(&s, &look);
    return t != JSON_SCAN_BAD && look.has_axis && look.numbers > 1 && !look.is_text ? 80 : 0;
}

const struct foreign_format foreign_json_array = {
    .name = "json",
    .title = "JSON array",
    .help = "an array of objects of metrics, rewritten as a whole",
    .recognise = recognise_array,
    .state_size = sizeof(struct jsonl),
    .take = take_array,
    .release = release,
    .is_whole = 1,
};
