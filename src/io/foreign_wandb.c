/* Weights & Biases offline runs (run-*.wandb): the history as points, system metrics, configuration.
 * Knows the frames of the file, those of a LevelDB log, and the messages of wandb_internal.proto by
 * their fields.
 *
 *   file:    ":W&B" | u16 0xBEE1 | u8 version 0, then blocks of 32 KiB counted from the file's start
 *   record:  u32 CRC-32 of type and data | u16 length | u8 type | data       little-endian
 *
 * A message is one record (full) or several (first, middle ..., last); where less than a record's
 * head is left in a block there are zeros. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/mem.h"
#include "io/foreign.h"
#include "io/foreign_meta.h"
#include "io/protobuf.h"

enum {
    BLOCK = 32768,
    HEAD = 7, /* of the file, and of a record */
    MESSAGE_MAX_BYTES = 64 << 20,
    SUMMARY_MAX = 4096,
    TYPE_FULL = 1,
    TYPE_FIRST = 2,
    TYPE_MIDDLE = 3,
    TYPE_LAST = 4
};

/* Fields of Record. */
enum {
    RECORD_HISTORY = 2,
    RECORD_SUMMARY = 3,
    RECORD_CONFIG = 5,
    RECORD_STATS = 7,
    RECORD_ALERT = 10,
    RECORD_TELEMETRY = 11,
    RECORD_RUN = 17,
    RECORD_EXIT = 18,
    RECORD_HEADER = 21,
    RECORD_PREEMPTING = 23,
    RECORD_ENVIRONMENT = 26
};

struct wandb {
    uint64_t skip_to; /* offset up to which the file is damaged */
    int is_suspect;   /* the length of the record before may have been wrong */
    int is_open;      /* `message` waits for its further parts */
    int is_lost;      /* parts of a message whose beginning was damaged are expected */
    int has_exit;
    int is_failed; /* something is lost, for lack of memory */
    struct str message, name;
    int64_t step; /* newest of the history */
    double time;
    /* what the head says */
    int is_head_changed;
    char run[128], project[128], host[128], gpu[128], framework[32], python[32], version[64];
    uint32_t gpus;
    double start;
    struct foreign_config config;
    struct foreign_hidden hidden;
    struct map logged;  /* metrics of the history */
    struct map summary; /* results that the history lacks: index into `result` */
    double *result;
    size_t cap_results;
};

/* ---- items ----
 *
 * HistoryItem, SummaryItem, ConfigItem and StatsItem share these fields. */
struct item {
    const char *key; /* parts joined by ".": valid until the next item */
    size_t n;
    struct pb json; /* the value as JSON text, or ... */
    struct pb_field typed;
};

enum {
    ITEM_KEY = 1,
    ITEM_NESTED_KEY = 2,
    ITEM_BOOLEAN = 4,
    ITEM_INTEGER = 5, /* sint64 */
    ITEM_NUMBER = 6,
    ITEM_TEXT = 7,
    ITEM_TYPED_JSON = 8,
    ITEM_JSON = 16
};

static struct item read_item(struct wandb *s, struct pb m)
{
    struct item item = {.key = ""};
    struct pb_field f;
    int parts = 0;
    while (pb_next(&m, &f) > 0) {
        int is_key = f.number == ITEM_NESTED_KEY || (f.number == ITEM_KEY && pb_size(f.bytes) > 0);
        if (f.wire != PB_BYTES) {
            if (f.number >= ITEM_BOOLEAN && f.number <= ITEM_NUMBER)
                item.typed = f;
        } else if (is_key && parts++ == 0) {
            item.key = (const char *)f.bytes.p;
            item.n = pb_size(f.bytes);
        } else if (is_key) {
            if (parts == 2) {
                str_reset(&s->name);
                str_add_bytes(&s->name, item.key, item.n);
            }
            str_add_char(&s->name, '.');
            str_add_bytes(&s->name, f.bytes.p, pb_size(f.bytes));
            item.key = str_text(&s->name);
            item.n = s->name.len;
        } else if (f.number == ITEM_JSON || f.number == ITEM_TYPED_JSON) {
            item.json = f.bytes;
        } else if (f.number == ITEM_TEXT) {
            item.typed = f;
        }
    }
    s->is_failed |= s->name.failed;
    return item;
}

static int is_key(const struct item *item, const char *key)
{
    return strlen(key) == item->n && memcmp(item->key, key, item->n) == 0;
}

/* The number of an item: 1; 0 when it is something else. */
static int item_number(const struct item *item, double *x)
{
    const struct pb_field *f = &item->typed;
    if (f->number == ITEM_BOOLEAN && f->wire == PB_VARINT)
        *x = f->value != 0;
    else if (f->number == ITEM_INTEGER && f->wire == PB_VARINT)
        *x = (double)pb_zigzag(f->value);
    else if (f->number == ITEM_NUMBER && f->wire == PB_FIXED64)
        *x = pb_double(f->value);
    else if (f->number == ITEM_TEXT)
        return 0;
    else if (pb_is(item->json, "true") || pb_is(item->json, "false"))
        *x = pb_is(item->json, "true");
    else
        return foreign_number((const char *)item->json.p, pb_size(item->json), 0, x);
    return 1;
}

/* Keys that W&B adds itself: "_step", "_runtime", "_timestamp", "_wandb.runtime". */
static int is_own_key(const struct item *item)
{
    static const char wandb[] = "_wandb";
    return is_key(item, "_step") || is_key(item, "_runtime") || is_key(item, "_timestamp") ||
           (item->n >= sizeof wandb - 1 && memcmp(item->key, wandb, sizeof wandb - 1) == 0);
}

/* ---- history ----
 *
 * Media (histograms, images, tables) are objects with a "_type", logged as one value or key by
 * key. */

static const char type_suffix[] = "._type";

static int is_part_of_media(const struct wandb *s, const char *name, size_t n)
{
    int64_t kind;
    for (size_t i = 0; i < n && s->hidden.names.n > 0; i++)
        if (name[i] == '.' && map_get(&s->hidden.names, name, i, &kind))
            return 1;
    return 0;
}

struct sink {
    struct wandb *s;
    struct foreign_out *out;
};

static void add_point(struct wandb *s, struct foreign_out *out, const char *name, size_t n,
                      double x)
{
    int64_t is_known;
    if (is_part_of_media(s, name, n))
        return;
    foreign_point(out, name, n, s->step, s->time, x);
    if (s->logged.n < SUMMARY_MAX && !map_get(&s->logged, name, n, &is_known) &&
        map_set(&s->logged, name, n, 1) < 0)
        s->is_failed = 1;
}

static void take_nested(void *context, const char *path, size_t n, const struct json_scan *scan,
                        enum json_token token)
{
    struct sink *to = context;
    double x = scan->value;
    if (token == JSON_SCAN_NUMBER || token == JSON_SCAN_BOOL ||
        (token == JSON_SCAN_STRING && foreign_number(scan->text, scan->n, 0, &x) && !isfinite(x)))
        add_point(to->s, to->out, path, n, x); /* any other number in quotes is text */
}

static void take_media(void *context, const char *path, size_t n, const char *type, size_t type_n)
{
    struct sink *to = context;
    foreign_hidden_add(&to->s->hidden, type_n ? type : "media", type_n ? type_n : 5, path, n,
                       to->s->step, to->s->time);
}

static void hide_type(struct wandb *s, const struct item *item)
{
    const char *type = (const char *)item->json.p;
    size_t n = pb_size(item->json), cut = sizeof type_suffix - 1;
    if (item->typed.number == ITEM_TEXT) {
        type = (const char *)item->typed.bytes.p;
        n = pb_size(item->typed.bytes);
    } else if (n >= 2 && type[0] == '"') {
        type++;
        n -= 2;
    }
    foreign_hidden_add(&s->hidden, n ? type : "media", n ? n : 5, item->key, item->n - cut, s->step,
                       s->time);
}

static void take_history(struct wandb *s, struct foreign_out *out, struct pb history)
{
    struct pb m;
    struct pb_field f, g;
    double x;
    int has_step = 0;
    s->time = (double)NAN;
    for (m = history; pb_next(&m, &f) > 0;) { /* step and time may come last */
        if (f.number == 2 && f.wire == PB_BYTES) {
            s->step = 0; /* HistoryStep: a step of 0 is not written */
            has_step = 1;
            while (pb_next(&f.bytes, &g) > 0)
                if (g.number == 1 && g.wire == PB_VARINT)
                    s->step = (int64_t)g.value;
        }
        if (f.number != 1 || f.wire != PB_BYTES)
            continue;
        struct item item = read_item(s, f.bytes);
        size_t cut = sizeof type_suffix - 1;
        if (is_key(&item, "_step") && !has_step && item_number(&item, &x) && fabs(x) < 9e15)
            s->step = (int64_t)x;
        else if (is_key(&item, "_timestamp") && item_number(&item, &x))
            s->time = x;
        else if (item.n > cut && memcmp(item.key + item.n - cut, type_suffix, cut) == 0)
            hide_type(s, &item);
    }
    for (m = history; pb_next(&m, &f) > 0;) {
        if (f.number != 1 || f.wire != PB_BYTES)
            continue;
        struct item item = read_item(s, f.bytes);
        struct sink to = {s, out};
        if (is_own_key(&item))
            continue;
        if (item_number(&item, &x))
            add_point(s, out, item.key, item.n, x);
        else if (pb_size(item.json) > 0 && (*item.json.p == '{' || *item.json.p == '"'))
            s->is_failed |=
                foreign_json((const char *)item.json.p, pb_size(item.json), item.key, item.n,
                             &(struct foreign_visitor){take_nested, take_media, &to}) < 0;
    }
    foreign_hidden_report(&s->hidden, out, "key", 0);
}

/* ---- summary ----
 *
 * Results that were set at the end of a run, not logged over steps.  Those of the history repeat its
 * last values. */

static void take_summary(struct wandb *s, struct pb summary)
{
    struct pb_field f;
    while (pb_next(&summary, &f) > 0) {
        int64_t i;
        double x;
        void *p = s->result;
        if (f.number != 1 || f.wire != PB_BYTES)
            continue;
        struct item item = read_item(s, f.bytes);
        if (is_own_key(&item) || !item_number(&item, &x))
            continue;
        if (map_get(&s->summary, item.key, item.n, &i))
            s->result[i] = x;
        else if (s->summary.n < SUMMARY_MAX) {
            i = (int64_t)s->summary.n;
            if (mem_grow(&p, &s->cap_results, s->summary.n + 1, sizeof *s->result) < 0 ||
                (s->result = p, map_set(&s->summary, item.key, item.n, i)) < 0) {
                s->is_failed = 1;
                return;
            }
            s->result[i] = x;
        }
    }
}

static void put_summary(struct wandb *s, struct foreign_out *out)
{
    struct record *r = NULL;
    int64_t is_logged;
    for (size_t i = 0; i < s->summary.cap; i++) {
        const struct map_slot *slot = &s->summary.slot[i];
        if (!slot->key || map_get(&s->logged, slot->key, slot->len, &is_logged) ||
            is_part_of_media(s, slot->key, slot->len))
            continue;
        if (!r) {
            r = foreign_begin(out, "eval", s->step, s->time);
            record_str(r, "task", "summary");
        }
        str_reset(&s->name);
        str_add_bytes(&s->name, slot->key, slot->len);
        record_num(r, str_text(&s->name), s->result[slot->value]);
    }
    s->is_failed |= s->name.failed;
    if (r)
        foreign_end(out);
}

/* ---- the head ---- */

static void set_text(struct wandb *s, char *to, size_t size, struct pb text)
{
    size_t n = pb_size(text) < size ? pb_size(text) : size - 1;
    if (n == 0 || memchr(text.p, '\0', n))
        return;
    s->is_head_changed |= strlen(to) != n || memcmp(to, text.p, n) != 0;
    memcpy(to, text.p, n);
    to[n] = '\0';
}

#define SET_TEXT(s, field, text) set_text(s, (s)->field, sizeof(s)->field, text)

static void take_config(struct wandb *s, struct pb config)
{
    struct pb_field f;
    while (pb_next(&config, &f) > 0) {
        if (f.number != 1 || f.wire != PB_BYTES)
            continue;
        struct item item = read_item(s, f.bytes);
        if (!is_own_key(&item))
            foreign_config_json(&s->config, item.key, item.n, (const char *)item.json.p,
                                pb_size(item.json));
    }
    s->is_head_changed |= s->config.is_changed;
}

/* Timestamp: seconds, nanoseconds. */
static double read_time(struct pb m)
{
    struct pb_field f;
    double x = 0;
    while (pb_next(&m, &f) > 0)
        if (f.wire == PB_VARINT && f.number <= 2)
            x += f.number == 1 ? (double)(int64_t)f.value : 1e-9 * (double)(int32_t)f.value;
    return x > 0 ? x : (double)NAN;
}

/* TelemetryRecord: 1, 2 Imports; 4 version of Python; 5 of this library. */
static void take_telemetry(struct wandb *s, struct pb m)
{
    static const struct {
        uint32_t field;
        const char *name;
    } frameworks[] = {{1, "PyTorch"}, {3, "TensorFlow"}, {12, "JAX"}};
    struct pb_field f, g;
    while (pb_next(&m, &f) > 0) {
        if (f.wire != PB_BYTES)
            continue;
        if (f.number == 4)
            SET_TEXT(s, python, f.bytes);
        while (f.number <= 2 && pb_next(&f.bytes, &g) > 0)
            for (size_t i = 0; i < DS_LEN(frameworks); i++)
                if (g.number == frameworks[i].field && g.wire == PB_VARINT && g.value &&
                    !s->framework[0]) {
                    str_copy(s->framework, sizeof s->framework, frameworks[i].name);
                    s->is_head_changed = 1;
                }
    }
}

static void take_run(struct wandb *s, struct pb m)
{
    struct pb_field f;
    struct pb name = {0}, id = {0};
    while (pb_next(&m, &f) > 0) {
        if (f.wire != PB_BYTES)
            continue;
        switch (f.number) {
        case 1: id = f.bytes; break;
        case 3: SET_TEXT(s, project, f.bytes); break;
        case 4: take_config(s, f.bytes); break;
        case 5: take_summary(s, f.bytes); break;
        case 8: name = f.bytes; break;
        case 13: SET_TEXT(s, host, f.bytes); break;
        case 17: s->start = read_time(f.bytes); break;
        case 19: take_telemetry(s, f.bytes); break;
        default: break;
        }
    }
    SET_TEXT(s, run, pb_size(name) ? name : id);
    s->is_head_changed = 1;
}

static void take_environment(struct wandb *s, struct pb m)
{
    struct pb_field f;
    while (pb_next(&m, &f) > 0) {
        if (f.number == 12 && f.wire == PB_BYTES)
            SET_TEXT(s, host, f.bytes);
        else if (f.number == 18 && f.wire == PB_BYTES)
            SET_TEXT(s, gpu, f.bytes);
        else if (f.number == 19 && f.wire == PB_VARINT) {
            s->is_head_changed |= s->gpus != (uint32_t)f.value;
            s->gpus = (uint32_t)f.value;
        }
    }
}

/* HeaderRecord: VersionInfo, its producer.  "0.19.1+commit" */
static void take_header(struct wandb *s, struct pb m)
{
    struct pb_field f, g;
    while (pb_next(&m, &f) > 0)
        while (f.number == 1 && f.wire == PB_BYTES && pb_next(&f.bytes, &g) > 0)
            if (g.number == 1 && g.wire == PB_BYTES) {
                const unsigned char *plus = memchr(g.bytes.p, '+', pb_size(g.bytes));
                SET_TEXT(s, version, ((struct pb){g.bytes.p, plus ? plus : g.bytes.end}));
            }
}

static void put_head(struct wandb *s, struct foreign_out *out)
{
    char text[192];
    struct record *r;
    if (!s->is_head_changed)
        return;
    s->is_head_changed = 0;
    r = foreign_begin(out, "head", 0, s->start > 0 ? s->start : (double)NAN);
    if (s->run[0])
        record_str(r, "run", s->run);
    if (s->project[0])
        record_str(r, "project", s->project);
    if (s->host[0])
        record_str(r, "host", s->host);
    if (s->gpu[0]) {
        snprintf(text, sizeof text, "%u x %s", s->gpus, s->gpu);
        record_str(r, "gpu", s->gpus > 1 ? text : s->gpu);
    }
    if (s->framework[0] || s->python[0]) {
        snprintf(text, sizeof text, "%s%sPython %s", s->framework, s->framework[0] ? ", " : "",
                 s->python);
        record_str(r, "framework", s->python[0] ? text : s->framework);
    }
    if (s->version[0]) {
        snprintf(text, sizeof text, "wandb %s", s->version);
        record_str(r, "writer", text);
    }
    foreign_config_put(&s->config, out, r);
    foreign_end(out);
}

/* ---- other records ---- */

/* The machine is measured by the clock: the points are at the newest step of the history. */
static void take_stats(struct wandb *s, struct foreign_out *out, struct pb stats)
{
    struct pb m;
    struct pb_field f;
    struct str name = {0};
    double time = (double)NAN, x;
    for (m = stats; pb_next(&m, &f) > 0;)
        if (f.number == 2 && f.wire == PB_BYTES)
            time = read_time(f.bytes);
    for (m = stats; pb_next(&m, &f) > 0;) {
        if (f.number != 3 || f.wire != PB_BYTES)
            continue;
        struct item item = read_item(s, f.bytes);
        if (!item_number(&item, &x))
            continue;
        str_reset(&name);
        str_add(&name, "system/");
        str_add_bytes(&name, item.key, item.n);
        if (!name.failed)
            foreign_point(out, name.p, name.len, s->step, time, x);
    }
    s->is_failed |= name.failed;
    str_release(&name);
}

/* AlertRecord: title, text, level.  INFO, which the library takes where none is given, is a notice that calls
 * for nothing. */
static void take_alert(struct wandb *s, struct foreign_out *out, struct pb m)
{
    struct pb part[3] = {{0}};
    struct pb_field f;
    struct str text = {0};
    while (pb_next(&m, &f) > 0)
        if (f.wire == PB_BYTES && f.number <= 3)
            part[f.number - 1] = f.bytes;
    str_add_bytes(&text, part[0].p, pb_size(part[0]));
    str_add(&text, pb_size(part[0]) && pb_size(part[1]) ? ": " : "");
    str_add_bytes(&text, part[1].p, pb_size(part[1]));
    const char *level = pb_is(part[2], "ERROR")  ? "error"
                        : pb_is(part[2], "WARN") ? "warn"
                                                 : "info";
    foreign_event(out, s->step, s->time, level, level[0] == 'i' ? "message" : "alert",
                  str_text(&text));
    s->is_failed |= text.failed;
    str_release(&text);
}

/* RunExitRecord: 1 exit code, 3 not complete. */
static void take_exit(struct wandb *s, struct foreign_out *out, struct pb m)
{
    struct pb_field f;
    int32_t code = 0;
    char text[32];
    while (pb_next(&m, &f) > 0) {
        if (f.number == 3 && f.wire == PB_VARINT && f.value)
            return;
        if (f.number == 1 && f.wire == PB_VARINT)
            code = (int32_t)f.value;
    }
    if (!s->has_exit) {
        put_summary(s, out);
        put_head(s, out); /* a head after the end would be that of a run that was resumed */
    }
    s->has_exit = 1;
    struct record *r = foreign_begin(out, "end", s->step, s->time);
    snprintf(text, sizeof text, "exit code %d", code);
    record_str(r, "status", code == 0 ? "done" : "failed");
    record_str(r, "text", text);
    foreign_end(out);
}

/* Record: 0 when it is malformed. */
static int take_message(struct wandb *s, struct foreign_out *out, struct pb m)
{
    struct pb_field f, what = {0};
    int more;
    while ((more = pb_next(&m, &f)) > 0)
        if (f.wire == PB_BYTES && f.number <= RECORD_ENVIRONMENT && f.number != 16 &&
            f.number != 19) /* control, uuid: not the content */
            what = f;
    if (more < 0)
        return 0;
    switch (what.number) {
    case RECORD_HISTORY: take_history(s, out, what.bytes); break;
    case RECORD_SUMMARY: take_summary(s, what.bytes); break;
    case RECORD_CONFIG: take_config(s, what.bytes); break;
    case RECORD_STATS: take_stats(s, out, what.bytes); break;
    case RECORD_ALERT: take_alert(s, out, what.bytes); break;
    case RECORD_TELEMETRY: take_telemetry(s, what.bytes); break;
    case RECORD_RUN: take_run(s, what.bytes); break;
    case RECORD_EXIT: take_exit(s, out, what.bytes); break;
    case RECORD_HEADER: take_header(s, what.bytes); break;
    case RECORD_ENVIRONMENT: take_environment(s, what.bytes); break;
    case RECORD_PREEMPTING:
        foreign_event(out, s->step, s->time, "warn", "preempting", "the machine is taken away");
        break;
    default: break;
    }
    return 1;
}

/* ---- the file ---- */

static void lose_message(struct wandb *s)
{
    s->is_lost = 1;
    s->is_open = 0;
    str_reset(&s->message);
}

static void take_part(struct wandb *s, struct foreign_out *out, int type, const unsigned char *p,
                      size_t n)
{
    struct pb m = {p, p + n};
    int is_begin = type == TYPE_FULL || type == TYPE_FIRST;
    if (is_begin == s->is_open)
        foreign_invalid(out, !s->is_lost); /* a message without its end, or without its beginning */
    if (!is_begin && !s->is_open)
        return;
    if (is_begin)
        str_reset(&s->message);
    s->is_lost = 0;
    s->is_open = type == TYPE_FIRST || type == TYPE_MIDDLE;
    if (type != TYPE_FULL) {
        str_add_bytes(&s->message, p, n);
        m.p = (const unsigned char *)str_text(&s->message);
        m.end = m.p + s->message.len;
    }
    s->is_failed |= s->message.failed;
    if (s->message.failed || s->message.len > MESSAGE_MAX_BYTES) {
        foreign_invalid(out, 1);
        str_release(&s->message);
        lose_message(s);
    } else if (!s->is_open) {
        foreign_invalid(out, !take_message(s, out, m));
    }
}

static int is_zero(const unsigned char *p, size_t n)
{
    return n == 0 || (p[0] == 0 && memcmp(p, p + 1, n - 1) == 0);
}

/* One record at `offset` of the file, or what stands in its place: how many bytes are done with; 0:
 * more are needed. */
static size_t take_record(struct wandb *s, struct foreign_out *out, const unsigned char *p,
                          size_t n, uint64_t offset)
{
    size_t left = BLOCK - (size_t)(offset % BLOCK);
    uint64_t crc = 0, length = 0;
    if (s->skip_to > offset)
        return s->skip_to - offset < n ? (size_t)(s->skip_to - offset) : n;
    if (left < HEAD)
        return left <= n ? left : 0;
    if (n < HEAD)
        return 0;
    pb_fixed(&(struct pb){p, p + 4}, 4, &crc);
    pb_fixed(&(struct pb){p + 4, p + 6}, 2, &length);
    int type = p[6];
    size_t whole = HEAD + (size_t)length;
    if (n < left && is_zero(p, n))
        return 0; /* space that was not written yet */
    if (whole > left || type < TYPE_FULL || type > TYPE_LAST) {
        foreign_invalid(out, !s->is_suspect);
        s->is_suspect = 0;
        lose_message(s);
        s->skip_to = offset + left;
        return left <= n ? left : n;
    }
    if (n < whole)
        return 0;
    if (hash_crc32(0, p + 6, length + 1) != crc) {
        foreign_invalid(out, !s->is_suspect);
        s->is_suspect = 1;
        lose_message(s);
        return whole;
    }
    s->is_suspect = 0;
    take_part(s, out, type, p + HEAD, (size_t)length);
    return whole;
}

static const unsigned char magic[] = {':', 'W', '&', 'B', 0xE1, 0xBE};

static int64_t take(void *state, struct foreign_out *out, const struct foreign_bytes *b,
                    struct err *e)
{
    struct wandb *s = state;
    const unsigned char *p = (const unsigned char *)b->p;
    size_t at = 0, used;
    if (b->offset == 0) {
        if (b->n < HEAD)
            return 0;
        if (memcmp(p, magic, sizeof magic) != 0)
            return err_set(e, DS_EFORMAT, "offset 0: expected \":W&B\" and 0xBEE1");
        if (p[6] != 0)
            return err_set(e, DS_EFORMAT, "offset 6: unsupported version %d, expected 0", p[6]);
        at = HEAD;
    }
    do {
        used = at < b->n ? take_record(s, out, p + at, b->n - at, b->offset + at) : 0;
        at += used;
    } while (used > 0);
    put_head(s, out);
    if (s->is_failed)
        foreign_no_memory(out);
    if (b->is_end)
        foreign_hidden_report(&s->hidden, out, "key", 1);
    return (int64_t)at;
}

static int recognise(const unsigned char *p, size_t n, const char *file, int is_all)
{
    (void)file;
    (void)is_all;
    return n >= HEAD && memcmp(p, magic, sizeof magic) == 0 ? 100 : 0;
}

static int is_member(const char *rel)
{
    static const char suffix[] = ".wandb";
    size_t n = strlen(rel), cut = sizeof suffix - 1;
    return n > cut && strcmp(rel + n - cut, suffix) == 0;
}

static void release(void *state)
{
    struct wandb *s = state;
    str_release(&s->message);
    str_release(&s->name);
    foreign_config_release(&s->config);
    foreign_hidden_release(&s->hidden);
    map_release(&s->logged);
    map_release(&s->summary);
    mem_free(s->result);
}

const struct foreign_format foreign_wandb = {
    .name = "wandb",
    .title = "Weights & Biases",
    .help = "history, system metrics and configuration of an offline run, run-*.wandb",
    .recognise = recognise,
    .state_size = sizeof(struct wandb),
    .take = take,
    .release = release,
    .is_member = is_member,
};
