/* Answers JSON requests about one model with records, for eval/session.c. */
#include "eval/serve.h"

#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/fs.h"
#include "base/json.h"
#include "base/mem.h"
#include "eval/subject.h"
#include "models/sample.h"
#include "models/trace.h"

/* One session: a text, its forced cells, and a what-if offset. */
struct serve {
    struct subject subject;
    struct record *rec;
    struct str frame;
    uint64_t seq;
    int out;
    const char *version;
    struct ids ids;
    int8_t *force;  /* (L, force_n), -1 = the method decides */
    size_t force_n; /* tokens that the table covers         */
    int forced;     /* cells not -1                          */
    double offset;
    int lens_k;
};

static int answer(struct serve *s, struct err *e)
{
    s->frame.len = 0;
    int rc = record_end(s->rec, ++s->seq, &s->frame, e);
    return rc < 0 ? rc : fs_write_all(s->out, s->frame.p, s->frame.len, "answer", e);
}

static int answer_done(struct serve *s, const char *what, struct err *e)
{
    record_begin(s->rec, "done", 0, clock_wall());
    record_str(s->rec, "do", what);
    return answer(s, e);
}

static int answer_error(struct serve *s, const struct err *why, struct err *e)
{
    record_begin(s->rec, "error", 0, clock_wall());
    record_str(s->rec, "text", why->text[0] ? why->text : err_name(why->code));
    return answer(s, e);
}

/* Resizes the table of forced cells to n tokens; cells forced on earlier tokens are kept. */
static int force_fit(struct serve *s, size_t n, struct err *e)
{
    size_t L = (size_t)s->subject.model->config.layers;
    if (s->force && s->force_n == n)
        return 0;
    int8_t *t = mem_alloc(L * n + 1, 1);
    if (!t)
        return err_set(e, DS_EMEM, "out of memory for forced cells");
    memset(t, -1, L * n);
    s->forced = 0;
    for (size_t l = 0; l < L; l++)
        for (size_t i = 0; i < n && i < s->force_n; i++) {
            t[l * n + i] = s->force[l * s->force_n + i];
            s->forced += t[l * n + i] >= 0;
        }
    mem_free(s->force);
    s->force = t;
    s->force_n = n;
    return 0;
}

static int run_trace(struct serve *s, int forced, int lens_k, struct err *e)
{
    const char **piece = NULL;
    size_t *len = NULL;
    struct pass pass = {.kind = PASS_SPARSE};
    int rc = route_ready(&s->subject.model->route, &pass, e);
    if (rc == 0)
        rc = subject_pieces(&s->subject, s->ids.v, s->ids.n, &piece, &len, e);
    if (rc == 0)
        rc = model_reserve(s->subject.model, (int)s->ids.n, 0, 0, e);
    if (rc == 0) {
        struct trace_text t = {.name = "session",
                               .id = s->ids.v,
                               .piece = piece,
                               .piece_len = len,
                               .n = (int)s->ids.n};
        struct trace_options o = {.time = clock_wall(),
                                  .lens_k = lens_k,
                                  .piece_of = subject_piece_of,
                                  .ctx = &s->subject,
                                  .kind = PASS_SPARSE,
                                  .force = forced && s->forced ? s->force : NULL,
                                  .offset = s->offset};
        trace_run(s->subject.model, &t, &o, s->rec);
    }
    mem_free(piece);
    mem_free(len);
    return rc;
}

/* Copies the nll of each token given its past from the last pass. */
static void keep_nll(const struct serve *s, float *out)
{
    out[0] = NAN;
    for (size_t t = 1; t < s->ids.n; t++)
        out[t] = (float)s->subject.model->nll[t - 1];
}

/* ---- copying a record with one more vector ---- */

static void copy_value(struct record *to, const char *key, struct value v);

static void copy_items(struct record *to, struct value v, int is_map)
{
    struct value_iter it = {0};
    struct value k, item;
    while (value_next(v, &it, &k, &item)) {
        char name[64];
        size_t n = 0;
        const char *p = is_map ? value_bytes(k, &n) : NULL;
        if (is_map && (!p || n >= sizeof name))
            continue;
        if (p)
            memcpy(name, p, n);
        name[n] = '\0';
        copy_value(to, is_map ? name : NULL, item);
    }
}

static void copy_value(struct record *to, const char *key, struct value v)
{
    size_t n;
    switch (value_kind(v)) {
    case VALUE_BOOL: record_bool(to, key, value_num(v, 0) != 0); break;
    case VALUE_INT: record_int(to, key, value_int(v, 0)); break;
    case VALUE_REAL: record_num(to, key, value_num(v, (double)NAN)); break;
    case VALUE_BIN: {
        const char *p = value_bytes(v, &n);
        record_bytes(to, key, p, n);
        break;
    }
    case VALUE_STR: {
        char text[512];
        const char *p = value_bytes(v, &n);
        n = n < sizeof text - 1 ? n : sizeof text - 1;
        memcpy(text, p, n);
        text[n] = '\0';
        record_str(to, key, text);
        break;
    }
    case VALUE_ARRAY:
        record_array(to, key);
        copy_items(to, v, 0);
        record_close(to);
        break;
    case VALUE_MAP:
        record_map(to, key);
        copy_items(to, v, 1);
        record_close(to);
        break;
    default: break;
    }
}

static void copy_probe(struct record *to, struct value body, const float *delta, size_t n)
{
    struct value_iter it = {0};
    struct value k, item;
    record_begin(to, "probe", value_int(value_get(body, "step"), 0),
                 value_num(value_get(body, "time"), 0));
    while (value_next(body, &it, &k, &item)) {
        char name[64];
        size_t len;
        const char *p = value_bytes(k, &len);
        if (!p || len >= sizeof name || value_is(k, "kind") || value_is(k, "step") ||
            value_is(k, "time"))
            continue;
        memcpy(name, p, len);
        name[len] = '\0';
        if (strcmp(name, "token") != 0) {
            copy_value(to, name, item);
            continue;
        }
        record_map(to, name);
        copy_items(to, item, 1);
        record_f32s(to, "delta_loss", delta, n);
        record_close(to);
    }
}

/* Writes the probe of the current text; with forced cells also their loss change per token. */
static int answer_probe(struct serve *s, struct err *e)
{
    size_t n = s->ids.n;
    float *base = NULL, *with = NULL;
    struct str first = {0};
    struct value body;
    uint64_t seq;
    if (n == 0)
        return err_set(e, DS_EUSAGE, "no text yet: send a trace request first");
    int rc = force_fit(s, n, e);
    if (rc == 0 && s->forced == 0) {
        rc = run_trace(s, 0, s->lens_k, e);
        return rc == 0 ? answer(s, e) : rc;
    }
    base = mem_alloc(n, sizeof *base);
    with = mem_alloc(n, sizeof *with);
    if (rc == 0 && (!base || !with))
        rc = err_set(e, DS_EMEM, "out of memory for the trace");
    if (rc == 0)
        rc = run_trace(s, 0, 0, e);
    if (rc == 0) {
        keep_nll(s, base);
        rc = run_trace(s, 1, s->lens_k, e);
    }
    if (rc == 0) {
        keep_nll(s, with);
        for (size_t i = 0; i < n; i++)
            with[i] -= base[i];
        rc = record_end(s->rec, 0, &first, e);
    }
    if (rc == 0)
        rc = record_parse(first.p, first.len, &seq, &body, e) > 0 ? 0 : DS_EFORMAT;
    if (rc == 0) {
        copy_probe(s->rec, body, with, n);
        rc = answer(s, e);
    }
    mem_free(base);
    mem_free(with);
    str_release(&first);
    return rc;
}

/* ---- requests ---- */

static int set_text(struct serve *s, const struct json_node *q, struct err *e)
{
    struct ids ids = {0};
    size_t n, cap = (size_t)s->subject.model->config.max_seq;
    const struct json_node *list = json_get(q, "ids");
    const char *text = json_str(json_get(q, "text"), &n);
    int rc = 0;
    if (text)
        rc = subject_encode(&s->subject, text, n, cap, &ids, e);
    else if (json_kind_of(list) != JSON_KIND_ARRAY || json_len(list) == 0 || json_len(list) > cap)
        rc = err_set(e, DS_EUSAGE, "trace: expected \"text\", or 1 to %zu \"ids\"", cap);
    for (size_t i = 0; !text && i < json_len(list) && rc == 0; i++) {
        int64_t id = json_int(json_at(list, i), -1);
        if (id < 0 || id >= s->subject.model->config.vocab)
            rc = err_set(e, DS_ERANGE, "trace: ids[%zu]: must be in 0..%lld", i,
                         (long long)s->subject.model->config.vocab - 1);
        else if (ids_add(&ids, (int32_t)id) < 0)
            rc = err_set(e, DS_EMEM, "out of memory for the trace");
    }
    if (rc < 0) {
        ids_release(&ids);
        return rc;
    }
    ids_release(&s->ids);
    s->ids = ids;
    mem_free(s->force); /* forced cells do not apply to a new text */
    s->force = NULL;
    s->force_n = 0;
    s->forced = 0;
    return 0;
}

/* Appends a token sampled at the last position, with the current forced cells and offset. */
static int append_token(struct serve *s, const struct sample_options *o, struct err *e)
{
    struct model *m = s->subject.model;
    struct sampler sampler = {0};
    real *logits = mem_alloc((size_t)m->config.vocab, sizeof *logits);
    int32_t id = 0;
    int rc = logits ? 0 : err_set(e, DS_EMEM, "out of memory for the next token");
    if (rc == 0 && s->ids.n >= (size_t)m->config.max_seq)
        rc = err_set(e, DS_ERANGE, "context full: %zu tokens", s->ids.n);
    if (rc == 0)
        rc = force_fit(s, s->ids.n, e);
    if (rc == 0)
        rc = sampler_init(&sampler, (int)m->config.vocab, e);
    if (rc == 0)
        rc = run_trace(s, 1, 0, e);
    if (rc == 0) {
        model_logits(m, m->R - 1, logits);
        rc = sampler_pick(&sampler, logits, o, s->ids.n, &id, NULL, e);
    }
    if (rc == 0 && ids_add(&s->ids, id) < 0)
        rc = err_set(e, DS_EMEM, "out of memory for the next token");
    sampler_release(&sampler);
    mem_free(logits);
    return rc;
}

static int do_trace(struct serve *s, const struct json_node *q, struct err *e)
{
    struct sample_options greedy = {.top_p = 1};
    int64_t make = json_int(json_get(q, "generate"), 0), lens = json_int(json_get(q, "lens"), 0);
    if (make < 0 || lens < 0 || lens > 16)
        return err_set(e, DS_EUSAGE, "trace: \"generate\" must be 0 or more, \"lens\" 0 to 16");
    int rc = set_text(s, q, e);
    s->lens_k = (int)lens;
    for (int64_t i = 0; i < make && rc == 0 && s->ids.n < (size_t)s->subject.model->config.max_seq;
         i++) {
        rc = append_token(s, &greedy, e);
        if (rc == 0 && subject_is_end(&s->subject, s->ids.v[s->ids.n - 1]))
            break; /* the text ended, and the answer shows it */
    }
    return rc < 0 ? rc : answer_probe(s, e);
}

static int do_next(struct serve *s, const struct json_node *q, struct err *e)
{
    struct sample_options o = {
        .temperature = json_num(json_get(q, "temperature"), 0),
        .top_p = json_num(json_get(q, "top_p"), 1),
        .seed = (uint64_t)json_int(json_get(q, "seed"), 1),
    };
    int64_t k = json_int(json_get(q, "top_k"), 0);
    if (!(o.temperature >= 0 && o.temperature <= 100) || !(o.top_p > 0 && o.top_p <= 1) || k < 0 ||
        k > 1 << 24)
        return err_set(
            e, DS_EUSAGE,
            "next: temperature must be 0 to 100, top_p above 0 and at most 1, top_k 0 or more");
    if (s->ids.n == 0)
        return err_set(e, DS_EUSAGE, "no text yet: send a trace request first");
    o.top_k = (int)k;
    int rc = append_token(s, &o, e);
    return rc < 0 ? rc : answer_probe(s, e);
}

static int do_force(struct serve *s, const struct json_node *q, struct err *e)
{
    int64_t l = json_int(json_get(q, "layer"), -1), t = json_int(json_get(q, "token"), -1),
            run = json_int(json_get(q, "run"), -2);
    int64_t L = s->subject.model->config.layers, n = (int64_t)s->ids.n;
    if (n == 0)
        return err_set(e, DS_EUSAGE, "no text yet: send a trace request first");
    if (l < 0 || l >= L || t < 0 || t >= n || run < -1 || run > 1)
        return err_set(e, DS_ERANGE, "force: layer must be 0..%lld, token 0..%lld, run 0, 1 or -1",
                       (long long)L - 1, (long long)n - 1);
    int rc = force_fit(s, s->ids.n, e);
    if (rc < 0)
        return rc;
    int8_t *cell = &s->force[(size_t)l * s->force_n + (size_t)t];
    s->forced += (run >= 0) - (*cell >= 0);
    *cell = (int8_t)run;
    return answer_probe(s, e);
}

static int do_offset(struct serve *s, const struct json_node *q, struct err *e)
{
    double x = json_num(json_get(q, "value"), (double)NAN);
    if (!(x >= -100 && x <= 100))
        return err_set(e, DS_ERANGE, "offset: \"value\" must be a number from -100 to 100");
    s->offset = x;
    return answer_probe(s, e);
}

static int do_info(struct serve *s, const struct json_node *q, struct err *e)
{
    (void)q;
    subject_head(&s->subject, s->rec, s->version);
    return answer(s, e);
}

static const struct {
    const char *name;
    int (*run)(struct serve *s, const struct json_node *q, struct err *e);
} requests[] = {
    {"trace", do_trace},   {"next", do_next}, {"force", do_force},
    {"offset", do_offset}, {"info", do_info},
};

/* Fails only when an answer cannot be written, which ends the session. */
static int serve_line(struct serve *s, const char *line, size_t n, struct err *e)
{
    struct json *j = NULL;
    struct err why = {0};
    const char *what = NULL;
    int rc = json_parse(&j, line, n, "request", &why);
    if (rc == 0) {
        what = json_str(json_get(json_root(j), "do"), NULL);
        rc = err_set(&why, DS_EUSAGE, "request: \"do\" must be trace, next, force, offset or info");
        for (size_t i = 0; what && i < DS_LEN(requests); i++)
            if (strcmp(what, requests[i].name) == 0) {
                memset(&why, 0, sizeof why);
                rc = requests[i].run(s, json_root(j), &why);
            }
    }
    int sent = rc < 0 ? answer_error(s, &why, e) : answer_done(s, what, e);
    json_free(j);
    return sent;
}

/* Answers every complete line of buf and keeps the rest. */
static int serve_lines(struct serve *s, struct str *buf, struct err *e)
{
    size_t at = 0;
    int rc = 0;
    for (char *end; rc == 0 && (end = memchr(buf->p + at, '\n', buf->len - at)) != NULL;) {
        size_t n = (size_t)(end - (buf->p + at));
        size_t blank = 0;
        while (blank < n && strchr(" \t\r", buf->p[at + blank]))
            blank++;
        if (blank < n)
            rc = serve_line(s, buf->p + at, n, e);
        at += n + 1;
    }
    memmove(buf->p, buf->p + at, buf->len - at);
    buf->len -= at;
    return rc;
}

/* A line without end is an error that ends the session. */
static int serve_loop(struct serve *s, int in, struct err *e)
{
    struct str buf = {0};
    char chunk[65536];
    size_t got = 1;
    int rc = 0;
    while (rc == 0) {
        rc = fs_read_some(in, chunk, sizeof chunk, &got, "requests", e);
        if (rc < 0 || got == 0)
            break;
        str_add_bytes(&buf, chunk, got);
        if (buf.failed)
            rc = err_set(e, DS_EMEM, "out of memory for requests");
        else
            rc = serve_lines(s, &buf, e);
        if (rc == 0 && buf.len > SERVE_LINE_MAX) {
            struct err why = {0};
            rc = err_set(&why, DS_ERANGE, "request longer than %d bytes", SERVE_LINE_MAX);
            if (answer_error(s, &why, e) == 0)
                err_set(e, rc, "%s", why.text);
        }
    }
    str_release(&buf);
    return rc;
}

int serve_run(const char *model, int in, int out, const char *version, struct err *e)
{
    struct serve s = {.out = out, .version = version};
    s.rec = record_new();
    if (!s.rec)
        return err_set(e, DS_EMEM, "out of memory for the session");
    int rc = subject_open(&s.subject, model, NULL, e);
    if (rc == 0) {
        rc = serve_loop(&s, in, e);
        subject_close(&s.subject);
    } else {
        struct err ignored = {0};
        if (answer_error(&s, e, &ignored) < 0)
            err_add(e, rc, "serve");
    }
    record_free(s.rec);
    str_release(&s.frame);
    ids_release(&s.ids);
    mem_free(s.force);
    return rc;
}
