/* TensorBoard event files: scalars as points, as TensorBoard's own reader gives them.  Knows the
 * messages of event.proto, summary.proto, tensor.proto and the hparams plugin by their fields. */
#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "io/foreign.h"
#include "io/foreign_meta.h"
#include "io/protobuf.h"
#include "io/st_dtype.h"
#include "io/tfevents_fields.h"

enum {
    RECORD_MAX_BYTES = 16 << 20, /* a longer one (a graph, images) is passed over unread */
    ZEROS_MAX = 1 << 20 /* zeros at the end up to here are space that was not written yet */
};

struct tensorboard {
    uint64_t skip;  /* bytes of a long record that are still to come */
    int is_damaged; /* looking for the next record */
    int has_head, has_end;
    double version; /* of the format, as the file says */
    int64_t last_step;
    struct foreign_hidden hidden;
    struct foreign_config config;
};

/* ---- records ---- */

static uint64_t little(const unsigned char *p, int bytes)
{
    struct pb m = {p, p + bytes};
    uint64_t v = 0;
    pb_fixed(&m, bytes, &v);
    return v;
}

/* No Event has 4 GiB. */
static int is_record_head(const unsigned char *p)
{
    return little(p + 4, 4) == 0 && tfrecord_crc(p, 8) == little(p + 8, 4);
}

/* Offset of the first record head; where there is none, of the bytes at the end that may be the
 * beginning of one. */
static size_t find_head(const unsigned char *p, size_t n)
{
    size_t at = 0;
    while (at + TFRECORD_HEAD <= n && !is_record_head(p + at))
        at++;
    return at;
}

static int is_zero(const unsigned char *p, size_t n)
{
    return n == 0 || (p[0] == 0 && memcmp(p, p + 1, n - 1) == 0);
}

/* ---- values of summaries ---- */

/* Fields of TensorProto with the values of a type, and how they are stored. */
enum encoding { AS_FLOAT, AS_DOUBLE, AS_SIGNED, AS_UNSIGNED, AS_HALF, AS_BF16 };
static const struct {
    int dtype;
    uint32_t field; /* of single values */
    int bytes;      /* of a value in tensor_content */
    enum encoding encoding;
} dtypes[] = {
    {1, 5, 4, AS_FLOAT},      /* DT_FLOAT */
    {2, 6, 8, AS_DOUBLE},     /* DT_DOUBLE */
    {3, 7, 4, AS_SIGNED},     /* DT_INT32 */
    {4, 7, 1, AS_UNSIGNED},   /* DT_UINT8 */
    {5, 7, 2, AS_SIGNED},     /* DT_INT16 */
    {6, 7, 1, AS_SIGNED},     /* DT_INT8 */
    {9, 10, 8, AS_SIGNED},    /* DT_INT64 */
    {10, 11, 1, AS_UNSIGNED}, /* DT_BOOL */
    {14, 13, 2, AS_BF16},     /* DT_BFLOAT16 */
    {17, 7, 2, AS_UNSIGNED},  /* DT_UINT16 */
    {19, 13, 2, AS_HALF},     /* DT_HALF */
    {22, 16, 4, AS_UNSIGNED}, /* DT_UINT32 */
    {23, 17, 8, AS_UNSIGNED}, /* DT_UINT64 */
};

static double decode(uint64_t v, enum encoding encoding, int bytes)
{
    switch (encoding) {
    case AS_FLOAT: return (double)pb_float(v);
    case AS_DOUBLE: return pb_double(v);
    case AS_HALF: return (double)st_half((uint16_t)v);
    case AS_BF16: return st_value((const unsigned char[]){v & 255, v >> 8 & 255}, ST_BF16);
    case AS_UNSIGNED: return (double)(bytes == 8 ? v : v & ((1ull << 8 * bytes) - 1));
    case AS_SIGNED: break;
    }
    return bytes == 1   ? (double)(int8_t)v
           : bytes == 2 ? (double)(int16_t)v
           : bytes == 4 ? (double)(int32_t)v
                        : (double)(int64_t)v;
}

/* Product of the sizes in a TensorShapeProto is 1. */
static int is_single(struct pb shape)
{
    struct pb_field f, g;
    while (pb_next(&shape, &f) > 0) {
        if (f.number == 3 && f.wire == PB_VARINT && f.value)
            return 0; /* unknown rank */
        if (f.number != 2 || f.wire != PB_BYTES)
            continue;
        uint64_t size = 0;
        while (pb_next(&f.bytes, &g) > 0)
            if (g.number == 1 && g.wire == PB_VARINT)
                size = g.value;
        if (size != 1)
            return 0;
    }
    return 1;
}

/* The value of a tensor with one number: 1; 0 for any other tensor. */
static int tensor_value(struct pb tensor, double *x)
{
    struct pb m = tensor, content = {0};
    struct pb_field f;
    uint64_t dtype = 0, v = 0;
    size_t row = 0, n = 0;
    while (pb_next(&m, &f) > 0) {
        if (f.number == 1 && f.wire == PB_VARINT)
            dtype = f.value;
        else if (f.number == 2 && f.wire == PB_BYTES && !is_single(f.bytes))
            return 0;
        else if (f.number == 4 && f.wire == PB_BYTES)
            content = f.bytes;
    }
    while (row < DS_LEN(dtypes) && dtypes[row].dtype != (int)dtype)
        row++;
    if (row == DS_LEN(dtypes))
        return 0;
    int bytes = dtypes[row].bytes;
    enum encoding encoding = dtypes[row].encoding;
    if (pb_size(content) > 0) {
        if (pb_size(content) != (size_t)bytes)
            return 0;
        *x = decode(little(content.p, bytes), encoding, bytes);
        return 1;
    }
    enum pb_wire wire = encoding == AS_FLOAT    ? PB_FIXED32
                        : encoding == AS_DOUBLE ? PB_FIXED64
                                                : PB_VARINT;
    for (m = tensor; pb_next(&m, &f) > 0;) {
        if (f.number != dtypes[row].field)
            continue;
        if (f.wire == wire) {
            v = f.value;
            n++;
        } else if (f.wire == PB_BYTES) {
            while (wire == PB_VARINT ? pb_varint(&f.bytes, &v) : pb_fixed(&f.bytes, bytes, &v))
                n++;
        }
    }
    if (n == 1)
        *x = decode(v, encoding, bytes);
    return n == 1;
}

/* The first string of a DT_STRING tensor. */
static struct pb tensor_text(struct pb tensor)
{
    struct pb_field f;
    while (pb_next(&tensor, &f) > 0)
        if (f.number == 8 && f.wire == PB_BYTES)
            return f.bytes;
    return (struct pb){0};
}

/* ---- configuration ---- */

/* Tags under which trainers log their arguments as text: the Trainer of transformers writes "args"
 * and "model_config". */
static int is_config_tag(const char *tag, size_t n)
{
    static const char *const names[] = {"args", "config", "hparams", "model_config",
                                        "training_args"};
    static const char suffix[] = "/text_summary"; /* added by torch */
    size_t cut = sizeof suffix - 1;
    if (n > cut && memcmp(tag + n - cut, suffix, cut) == 0)
        n -= cut;
    for (size_t i = 0; i < DS_LEN(names); i++)
        if (strlen(names[i]) == n && memcmp(tag, names[i], n) == 0)
            return 1;
    return 0;
}

static void put_config(struct tensorboard *s, struct foreign_out *out)
{
    if (!s->config.is_changed)
        return;
    foreign_config_put(&s->config, out, foreign_begin(out, "head", 0, (double)NAN));
    foreign_end(out);
}

/* google.protobuf.Value: the scalars. */
static void set_hparam(struct tensorboard *s, struct pb key, struct pb value)
{
    struct str text = {0};
    struct pb_field f;
    while (pb_next(&value, &f) > 0) {
        str_reset(&text);
        if (f.number == 2 && f.wire == PB_FIXED64)
            str_add_real(&text, pb_double(f.value));
        else if (f.number == 3 && f.wire == PB_BYTES)
            str_add_bytes(&text, f.bytes.p, pb_size(f.bytes));
        else if (f.number == 4 && f.wire == PB_VARINT)
            str_add(&text, f.value ? "true" : "false");
        else
            continue;
        if (!text.failed)
            foreign_config_set(&s->config, (const char *)key.p, pb_size(key), str_text(&text),
                               text.len);
    }
    if (text.failed)
        s->config.is_failed = s->config.is_changed = 1;
    str_release(&text);
}

/* SessionStartInfo: 1 map of hparams. */
static void take_session_start(struct tensorboard *s, struct pb info)
{
    struct pb_field f, g;
    while (pb_next(&info, &f) > 0) {
        struct pb key = {0}, value = {0};
        if (f.number != 1 || f.wire != PB_BYTES)
            continue;
        while (pb_next(&f.bytes, &g) > 0)
            if (g.wire == PB_BYTES)
                *(g.number == 1 ? &key : &value) = g.bytes;
        set_hparam(s, key, value);
    }
}

/* SessionEndInfo: 1 status (1 success, 2 failure), 2 end time.  torch writes one with the
 * hyperparameters, at any moment of a run and without a time: that does not end the run. */
static void take_session_end(struct tensorboard *s, struct foreign_out *out, struct pb info,
                             int64_t step)
{
    struct pb_field f;
    uint64_t status = 0;
    double time = 0;
    while (pb_next(&info, &f) > 0)
        if (f.number == 1 && f.wire == PB_VARINT)
            status = f.value;
        else if (f.number == 2 && f.wire == PB_FIXED64)
            time = pb_double(f.value);
    if (!(time > 0) || (status != 1 && status != 2))
        return;
    if (!s->has_end)
        put_config(s, out); /* a head after the end would be that of a run that was resumed */
    s->has_end = 1;
    record_str(foreign_begin(out, "end", step, time), "status", status == 1 ? "done" : "failed");
    foreign_end(out);
}

/* HParamsPluginData: 3 start, 4 end of a session. */
static void take_hparams(struct tensorboard *s, struct foreign_out *out, struct pb content,
                         int64_t step)
{
    struct pb_field f;
    while (pb_next(&content, &f) > 0)
        if (f.number == 3 && f.wire == PB_BYTES)
            take_session_start(s, f.bytes);
        else if (f.number == 4 && f.wire == PB_BYTES)
            take_session_end(s, out, f.bytes, step);
}

/* ---- events ---- */

struct event {
    int64_t step;
    double time;
    struct pb_field what;
};

/* SummaryMetadata: name and content of the plugin. */
static struct pb plugin_of(struct pb metadata, struct pb *content)
{
    struct pb_field f, g;
    struct pb name = {0};
    while (pb_next(&metadata, &f) > 0)
        while (f.number == METADATA_PLUGIN && f.wire == PB_BYTES && pb_next(&f.bytes, &g) > 0)
            if (g.wire == PB_BYTES && g.number == 1)
                name = g.bytes;
            else if (g.wire == PB_BYTES && g.number == 2)
                *content = g.bytes;
    return name;
}

static void hide(struct tensorboard *s, const struct event *e, const char *kind, size_t n,
                 struct pb tag)
{
    if (n > 1 && kind[n - 1] == 's' && kind[n - 2] != 's') /* the plugins "histograms", "images" */
        n--;
    foreign_hidden_add(&s->hidden, kind, n, (const char *)tag.p, pb_size(tag), e->step, e->time);
}

/* Only the first value of a tag says to which plugin it belongs. */
static void take_tensor(struct tensorboard *s, struct foreign_out *out, const struct event *e,
                        struct pb tag, struct pb tensor, struct pb plugin)
{
    const char *name = (const char *)tag.p;
    size_t n = pb_size(tag);
    int64_t kind;
    double x;
    if (pb_is(plugin, "text") && is_config_tag(name, n)) {
        struct pb text = tensor_text(tensor);
        struct pb key = {tag.p, memchr(name, '/', n) ? memchr(name, '/', n) : tag.end};
        /* of an object the keys speak for themselves */
        foreign_config_json(&s->config, name, pb_size(text) && text.p[0] == '{' ? 0 : pb_size(key),
                            (const char *)text.p, pb_size(text));
    } else if (pb_size(plugin) > 0 && !pb_is(plugin, "scalars")) {
        hide(s, e, (const char *)plugin.p, pb_size(plugin), tag);
    } else if (!map_get(&s->hidden.names, name, n, &kind)) {
        if (tensor_value(tensor, &x))
            foreign_point(out, name, n, e->step, e->time, x);
        else
            hide(s, e, "tensor", 6, tag);
    }
}

/* Summary.Value: 0 when it is malformed. */
static int take_value(struct tensorboard *s, struct foreign_out *out, const struct event *e,
                      struct pb m)
{
    struct pb tag = {m.p, m.p}, node = tag, metadata = {0}, content = {0}, plugin = {0};
    struct pb_field f, what = {.number = 0};
    double exact = 0;
    int more, has_exact = 0;
    while ((more = pb_next(&m, &f)) > 0) {
        if (f.number == VALUE_TAG && f.wire == PB_BYTES)
            tag = f.bytes;
        else if (f.number == VALUE_NODE_NAME && f.wire == PB_BYTES)
            node = f.bytes;
        else if (f.number == VALUE_METADATA && f.wire == PB_BYTES)
            metadata = f.bytes;
        else if (f.number == VALUE_EXACT && f.wire == PB_FIXED64) {
            exact = pb_double(f.value);
            has_exact = 1;
        } else if (f.number >= VALUE_SIMPLE && f.number <= VALUE_TENSOR &&
                   f.wire == (f.number == VALUE_SIMPLE ? PB_FIXED32 : PB_BYTES))
            what = f;
    }
    if (more < 0)
        return 0;
    if (metadata.p && pb_size(plugin = plugin_of(metadata, &content)) && pb_is(plugin, "hparams"))
        take_hparams(s, out, content, e->step);
    switch (what.number) {
    case VALUE_SIMPLE: {
        double x = (double)pb_float(what.value);
        if (has_exact && (double)(float)exact == x)
            x = exact;
        foreign_point(out, (const char *)tag.p, pb_size(tag), e->step, e->time, x);
        break;
    }
    case VALUE_TENSOR: take_tensor(s, out, e, pb_size(tag) ? tag : node, what.bytes, plugin); break;
    case VALUE_IMAGE: hide(s, e, "image", 5, tag); break;
    case VALUE_OLD_HISTOGRAM:
    case VALUE_HISTOGRAM: hide(s, e, "histogram", 9, tag); break;
    case VALUE_AUDIO: hide(s, e, "audio", 5, tag); break;
    default: break;
    }
    return 1;
}

static int take_summary(struct tensorboard *s, struct foreign_out *out, const struct event *e)
{
    struct pb m = e->what.bytes;
    struct pb_field f;
    int more;
    if (e->step != s->last_step) { /* all tags of the step before have been seen */
        foreign_hidden_report(&s->hidden, out, "tag", 0);
        s->last_step = e->step;
    }
    while ((more = pb_next(&m, &f)) > 0)
        if (f.number == SUMMARY_VALUE && f.wire == PB_BYTES && !take_value(s, out, e, f.bytes))
            return 0;
    return more == 0;
}

/* A writer that starts at a step again orphans what was logged from there on. */
static void take_session(struct tensorboard *s, struct foreign_out *out, const struct event *e)
{
    struct pb m = e->what.bytes;
    struct pb_field f;
    uint64_t status = 0;
    while (pb_next(&m, &f) > 0)
        if (f.number == SESSION_STATUS && f.wire == PB_VARINT)
            status = f.value;
    if (status != SESSION_START || s->version < 2)
        return;
    record_bool(foreign_begin(out, "head", e->step - 1, e->time), "resume", 1);
    foreign_end(out);
}

static void take_message(struct foreign_out *out, const struct event *e)
{
    struct pb m = e->what.bytes, text = {0};
    struct pb_field f;
    struct str line = {0};
    uint64_t level = 0;
    while (pb_next(&m, &f) > 0)
        if (f.number == LOG_LEVEL && f.wire == PB_VARINT)
            level = f.value;
        else if (f.number == LOG_TEXT && f.wire == PB_BYTES)
            text = f.bytes;
    str_add_bytes(&line, text.p, pb_size(text));
    foreign_event(out, e->step, e->time,
                  level >= 40   ? "error"
                  : level >= 30 ? "warn"
                                : "info",
                  "message", str_text(&line));
    if (line.failed)
        foreign_no_memory(out);
    str_release(&line);
}

/* "brain.Event:2" */
static double version_of(struct pb text)
{
    char digits[16];
    const unsigned char *colon = memchr(text.p, ':', pb_size(text));
    struct pb rest = {colon ? colon + 1 : text.p, text.end};
    size_t n = pb_size(rest) < sizeof digits ? pb_size(rest) : sizeof digits - 1;
    memcpy(digits, rest.p, n);
    digits[n] = '\0';
    return strtod(digits, NULL);
}

/* 0 when the message is malformed. */
static int take_event(struct tensorboard *s, struct foreign_out *out, struct pb m)
{
    struct event e = {.time = 0};
    struct pb_field f;
    int more;
    while ((more = pb_next(&m, &f)) > 0) {
        if (f.number == EVENT_WALL_TIME && f.wire == PB_FIXED64)
            e.time = pb_double(f.value);
        else if (f.number == EVENT_STEP && f.wire == PB_VARINT)
            e.step = (int64_t)f.value;
        else if (f.number >= EVENT_FILE_VERSION && f.number <= EVENT_META_GRAPH &&
                 f.wire == PB_BYTES)
            e.what = f;
    }
    if (more < 0)
        return 0;
    if (!(e.time > 0))
        e.time = (double)NAN; /* the default of a field that was not written */
    switch (e.what.number) {
    case EVENT_FILE_VERSION: s->version = version_of(e.what.bytes); break;
    case EVENT_SUMMARY: return take_summary(s, out, &e);
    case EVENT_LOG_MESSAGE: take_message(out, &e); break;
    case EVENT_SESSION_LOG: take_session(s, out, &e); break;
    default: break; /* graphs and run metadata */
    }
    return 1;
}

/* ---- the file ---- */

/* events.out.tfevents.TIME.HOST[.PID[.COUNT]][.v2]: the host, without a suffix of the user's. */
static void put_host(struct foreign_out *out, const char *file)
{
    static const char mark[] = "tfevents.";
    const char *at = strstr(file, mark), *end, *next;
    char host[256];
    if (!at)
        return;
    at += sizeof mark - 1;
    at += strspn(at, "0123456789");
    if (*at++ != '.' || isdigit((unsigned char)*at))
        return;
    for (end = at + strcspn(at, "."); *end == '.'; end = next) {
        next = end + 1 + strcspn(end + 1, ".");
        size_t digits = strspn(end + 1, "0123456789");
        if (end + 1 + digits == next || (next - end == 3 && memcmp(end, ".v2", 3) == 0))
            break;
    }
    if (end == at || (size_t)(end - at) >= sizeof host)
        return;
    memcpy(host, at, (size_t)(end - at));
    host[end - at] = '\0';
    record_str(foreign_begin(out, "head", 0, (double)NAN), "host", host);
    foreign_end(out);
}

/* One record, or what can be said of it: how many bytes are done with; 0: more are needed. */
static size_t take_record(struct tensorboard *s, struct foreign_out *out, const unsigned char *p,
                          size_t n)
{
    if (n < TFRECORD_HEAD)
        return 0;
    if (s->is_damaged || !is_record_head(p)) {
        if (n <= ZEROS_MAX && is_zero(p, n))
            return 0;
        size_t at = find_head(p, n);
        if (!s->is_damaged)
            foreign_invalid(out, 1);
        s->is_damaged = at + TFRECORD_HEAD > n;
        if (at > 0)
            return at;
    }
    uint64_t length = little(p, 8);
    if (length > RECORD_MAX_BYTES) {
        s->skip = length - (n - TFRECORD_HEAD < length ? n - TFRECORD_HEAD : length);
        s->skip += TFRECORD_TAIL;
        foreign_event(out, 0, (double)NAN, "info", "not_shown",
                      "a record of more than 16 MiB was passed over");
        return length < n - TFRECORD_HEAD ? TFRECORD_HEAD + (size_t)length : n;
    }
    if (n < TFRECORD_HEAD + length + TFRECORD_TAIL)
        return 0;
    const unsigned char *data = p + TFRECORD_HEAD;
    if (tfrecord_crc(data, (size_t)length) != little(data + length, 4)) {
        foreign_invalid(out, 1);
        s->is_damaged = 1; /* other records may follow what is left of this one */
        return TFRECORD_HEAD;
    }
    if (!take_event(s, out, (struct pb){data, data + length}))
        foreign_invalid(out, 1);
    return TFRECORD_HEAD + (size_t)length + TFRECORD_TAIL;
}

static int64_t take(void *state, struct foreign_out *out, const struct foreign_bytes *b,
                    struct err *e)
{
    struct tensorboard *s = state;
    const unsigned char *p = (const unsigned char *)b->p;
    size_t at = 0, used;
    (void)e;
    if (!s->has_head) {
        s->has_head = 1;
        put_host(out, b->file);
    }
    do {
        used = s->skip < b->n - at ? (size_t)s->skip : b->n - at;
        s->skip -= used;
        at += used;
        used = s->skip ? 0 : take_record(s, out, p + at, b->n - at);
        at += used;
    } while (used > 0);
    put_config(s, out);
    if (b->is_end || (at == b->n && s->hidden.reported == 0))
        foreign_hidden_report(&s->hidden, out, "tag", 1);
    return (int64_t)at;
}

/* The first record holds an Event that begins with its time.  Where the beginning is damaged, the
 * name must say what it is as well. */
static int recognise(const unsigned char *p, size_t n, const char *file, int is_all)
{
    (void)is_all;
    for (size_t at = 0; at + TFRECORD_HEAD < n; at++) {
        at += find_head(p + at, n - at);
        if (at + TFRECORD_HEAD < n && p[at + TFRECORD_HEAD] == (EVENT_WALL_TIME << 3 | PB_FIXED64))
            return at == 0 ? 95 : 60;
        if (!strstr(file, "tfevents"))
            return 0;
    }
    return 0;
}

static int is_member(const char *rel)
{
    static const char dummy[] = ".profile-empty";
    size_t n = strlen(rel), cut = sizeof dummy - 1;
    return strstr(rel, "tfevents") && !(n > cut && strcmp(rel + n - cut, dummy) == 0);
}

static void release(void *state)
{
    struct tensorboard *s = state;
    foreign_hidden_release(&s->hidden);
    foreign_config_release(&s->config);
}

const struct foreign_format foreign_tensorboard = {
    .name = "tensorboard",
    .title = "TensorBoard events",
    .help = "scalars, hyperparameters and messages of *tfevents* files; a folder of them is a run",
    .recognise = recognise,
    .state_size = sizeof(struct tensorboard),
    .take = take,
    .release = release,
    .is_member = is_member,
    .is_nested = 1, /* add_scalars and add_hparams of torch write there */
};
