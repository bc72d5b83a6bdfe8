/* Answers JSON requests about one model with records, for eval/session.c. */
#include "eval/serve.h"

#include <math.h>
#include <poll.h>
#include <string.h>

#include "base/clock.h"
#include "base/fs.h"
#include "base/mem.h"
#include "models/trace.h"
#include "serve_impl.h"
#include "trace_file.h"

int serve_answer(struct serve *s, struct record *rec, struct err *e)
{
    s->frame.len = 0;
    int rc = record_end(rec, ++s->seq, &s->frame, e);
    return rc < 0 ? rc : fs_write_all(s->out, s->frame.p, s->frame.len, "answer", e);
}

static int answer_done(struct serve *s, const char *what, struct err *e)
{
    record_begin(s->rec, "done", 0, clock_wall());
    record_str(s->rec, "do", what);
    return serve_answer(s, s->rec, e);
}

static int answer_error(struct serve *s, const struct err *why, struct err *e)
{
    record_begin(s->rec, "error", 0, clock_wall());
    record_str(s->rec, "text", why->text[0] ? why->text : err_name(why->code));
    return serve_answer(s, s->rec, e);
}

static void free_forced(struct serve *s)
{
    mem_free(s->force);
    mem_free(s->expert);
    s->force = NULL;
    s->expert = NULL;
    s->force_n = 0;
}

/* Resizes the tables of forced cells to n tokens; cells forced on earlier tokens are kept. */
static int force_fit(struct serve *s, size_t n, struct err *e)
{
    size_t L = (size_t)model_config_depth(&s->subject.model->config);
    if (s->force && s->force_n == n)
        return 0;
    int8_t *t = mem_alloc(L * n + 1, 1);
    int16_t *x = mem_alloc(L * n + 1, sizeof *x);
    if (!t || !x) {
        mem_free(t);
        mem_free(x);
        return err_set(e, DS_EMEM, "out of memory for forced cells");
    }
    s->forced = 0;
    for (size_t l = 0; l < L; l++)
        for (size_t i = 0; i < n; i++) {
            int is_kept = s->force && i < s->force_n;
            t[l * n + i] = is_kept ? s->force[l * s->force_n + i] : -1;
            x[l * n + i] = is_kept ? s->expert[l * s->force_n + i] : -1;
            s->forced += (t[l * n + i] >= 0) + (x[l * n + i] >= 0);
        }
    free_forced(s);
    s->force = t;
    s->expert = x;
    s->force_n = n;
    return 0;
}

static struct serve_pass plain_pass(const struct serve *s)
{
    return (struct serve_pass){
        .subject = &s->subject, .ids = &s->ids, .offset = s->offset, .exit = s->exit};
}

int serve_trace(const struct serve_pass *a, struct record *rec, struct err *e)
{
    struct model *m = a->subject->model;
    const char **piece = NULL;
    size_t *len = NULL;
    struct pass pass = {.kind = PASS_SPARSE};
    int rc = route_ready(&m->route, &pass, e);
    if (rc == 0)
        rc = subject_pieces(a->subject, a->ids->v, a->ids->n, &piece, &len, e);
    if (rc == 0)
        rc = model_reserve(m, (int)a->ids->n, 0, 0, e);
    if (rc == 0) {
        struct trace_text t = {.name = "session",
                               .id = a->ids->v,
                               .piece = piece,
                               .piece_len = len,
                               .n = (int)a->ids->n};
        struct trace_options o = {.time = clock_wall(),
                                  .lens_k = a->lens_k,
                                  .piece_of = subject_piece_of,
                                  .ctx = a->subject,
                                  .kind = PASS_SPARSE,
                                  .inference.force = a->force,
                                  .inference.force_expert = a->expert,
                                  .inference.offset = a->offset,
                                  .inference.exit = a->exit,
                                  .more = a->more,
                                  .more_ctx = a->ctx};
        trace_run(m, &t, &o, rec);
    }
    mem_free(piece);
    mem_free(len);
    return rc;
}

/* The nll of each token given its past, of the last pass. */
static void keep_nll(const struct serve *s, float *out)
{
    out[0] = NAN;
    for (size_t t = 1; t < s->ids.n; t++)
        out[t] = (float)s->subject.model->nll[t - 1];
}

/* Which tokens came from drafts, where any was made with them. */
static void add_marks(const struct serve *s, struct record *rec)
{
    if (s->marks.len == 0)
        return;
    float *mark = mem_alloc(s->ids.n, sizeof *mark);
    for (size_t t = 0; mark && t < s->ids.n && t < s->marks.len; t++)
        mark[t] = s->marks.p[t];
    if (mark)
        record_f32s(rec, "drafted", mark, s->ids.n);
    else
        record_no_memory(rec);
    mem_free(mark);
}

static void add_plain(void *ctx, struct record *rec)
{
    add_marks(ctx, rec);
}

struct delta {
    const struct serve *s;
    const float *base; /* nll without forced cells */
    float *change;
};

static void add_delta(void *ctx, struct record *rec)
{
    struct delta *d = ctx;
    keep_nll(d->s, d->change);
    for (size_t t = 0; t < d->s->ids.n; t++)
        d->change[t] -= d->base[t];
    record_f32s(rec, "delta_loss", d->change, d->s->ids.n);
    add_marks(d->s, rec);
}

/* Fills s->rec with the probe of the current text; with forced cells also their loss change per
 * token. */
static int fill_probe(struct serve *s, int lens_k, struct err *e)
{
    size_t n = s->ids.n;
    struct serve_pass a = plain_pass(s);
    if (n == 0)
        return err_set(e, DS_EUSAGE, "no text yet: send a trace request first");
    int rc = force_fit(s, n, e);
    if (rc == 0 && s->forced == 0) {
        a.lens_k = lens_k;
        a.more = add_plain;
        a.ctx = s;
        return serve_trace(&a, s->rec, e);
    }
    float *base = mem_alloc(n, sizeof *base), *change = mem_alloc(n, sizeof *change);
    if (rc == 0 && (!base || !change))
        rc = err_set(e, DS_EMEM, "out of memory for the trace");
    if (rc == 0)
        rc = serve_trace(&a, s->rec, e);
    if (rc == 0) {
        struct delta d = {s, base, change};
        keep_nll(s, base);
        a.lens_k = lens_k;
        a.force = s->force;
        a.expert = s->expert;
        a.more = add_delta;
        a.ctx = &d;
        rc = serve_trace(&a, s->rec, e);
    }
    mem_free(base);
    mem_free(change);
    return rc;
}

static int answer_probe(struct serve *s, struct err *e)
{
    int rc = fill_probe(s, s->lens_k, e);
    return rc < 0 ? rc : serve_answer(s, s->rec, e);
}

/* ---- requests ---- */

void serve_set_ids(struct serve *s, struct ids *ids)
{
    ids_release(&s->ids);
    s->ids = *ids;
    *ids = (struct ids){0};
    str_renew(&s->marks);
    free_forced(s); /* forced cells do not apply to a new text */
    s->forced = 0;
}

int serve_add_ids(const struct serve *s, const struct json_node *list, const char *what,
                  struct ids *out, struct err *e)
{
    for (size_t i = 0; i < json_len(list); i++) {
        int64_t id = json_int(json_at(list, i), -1);
        if (id < 0 || id >= s->subject.model->config.vocab)
            return err_set(e, DS_ERANGE, "%s: ids[%zu]: must be in 0..%lld", what, i,
                           (long long)s->subject.model->config.vocab - 1);
        if (ids_add(out, (int32_t)id) < 0)
            return err_set(e, DS_EMEM, "out of memory for the text");
    }
    return 0;
}

int serve_set_text(struct serve *s, const struct json_node *q, struct err *e)
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
    else
        rc = serve_add_ids(s, list, "trace", &ids, e);
    if (rc < 0) {
        ids_release(&ids);
        return rc;
    }
    serve_set_ids(s, &ids);
    serve_talk_forget(&s->talk);
    return 0;
}

int serve_sampling(struct sample_options *o, const struct json_node *q, const char *what,
                   struct err *e)
{
    int64_t k = json_int(json_get(q, "top_k"), 0), seed = json_int(json_get(q, "seed"), 1);
    *o = (struct sample_options){
        .temperature = json_num(json_get(q, "temperature"), 0),
        .top_p = json_num(json_get(q, "top_p"), 1),
        .seed = (uint64_t)seed,
    };
    if (!(o->temperature >= 0 && o->temperature <= 100) || !(o->top_p > 0 && o->top_p <= 1) ||
        k < 0 || k > 1 << 24 || seed < 0)
        return err_set(e, DS_EUSAGE,
                       "%s: temperature must be 0 to 100, top_p above 0 and at most 1, top_k and "
                       "seed 0 or more",
                       what);
    o->top_k = (int)k;
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
    struct serve_pass a = plain_pass(s);
    a.force = s->force;
    a.expert = s->expert;
    if (rc == 0)
        rc = serve_trace(&a, s->rec, e);
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
    int rc = serve_set_text(s, q, e);
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
    struct sample_options o;
    int rc = serve_sampling(&o, q, "next", e);
    if (rc == 0 && s->ids.n == 0)
        rc = err_set(e, DS_EUSAGE, "no text yet: send a trace request first");
    if (rc == 0 && json_int(json_get(q, "speculate"), 0) != 0)
        rc = serve_next_drafted(s, q, &o, e);
    else if (rc == 0)
        rc = append_token(s, &o, e);
    return rc < 0 ? rc : answer_probe(s, e);
}

/* An expert of a block; without "run" the method decides whether the cell runs. */
static int check_expert(const struct model *m, int64_t l, int64_t expert, struct err *e)
{
    int64_t last = model_config_choices(&m->config) - 1;
    if (expert == -1)
        return 0;
    if (m->block[l].router < 0)
        return err_set(e, DS_EUSAGE, "force: layer %lld has no experts", (long long)l);
    if (expert < 0 || expert > last)
        return err_set(e, DS_ERANGE, "force: expert must be 0..%lld or -1", (long long)last);
    return 0;
}

static int do_force(struct serve *s, const struct json_node *q, struct err *e)
{
    const struct json_node *expert = json_get(q, "expert");
    int64_t l = json_int(json_get(q, "layer"), -1), t = json_int(json_get(q, "token"), -1),
            run = json_int(json_get(q, "run"), -2), x = json_int(expert, -2);
    int64_t L = model_config_depth(&s->subject.model->config), n = (int64_t)s->ids.n;
    int is_run = !expert || json_get(q, "run");
    if (n == 0)
        return err_set(e, DS_EUSAGE, "no text yet: send a trace request first");
    if (l < 0 || l >= L || t < 0 || t >= n || (is_run && (run < -1 || run > 1)))
        return err_set(e, DS_ERANGE, "force: layer must be 0..%lld, token 0..%lld, run 0, 1 or -1",
                       (long long)L - 1, (long long)n - 1);
    int rc = expert ? check_expert(s->subject.model, l, x, e) : 0;
    if (rc == 0)
        rc = force_fit(s, s->ids.n, e);
    if (rc < 0)
        return rc;
    size_t at = (size_t)l * s->force_n + (size_t)t;
    s->forced -= (s->force[at] >= 0) + (s->expert[at] >= 0);
    s->force[at] = is_run ? (int8_t)run : s->force[at];
    s->expert[at] = expert ? (int16_t)x : s->expert[at];
    s->forced += (s->force[at] >= 0) + (s->expert[at] >= 0);
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

static int do_exit(struct serve *s, const struct json_node *q, struct err *e)
{
    int64_t layers = json_int(json_get(q, "layers"), -1);
    if (layers < 0)
        return err_set(e, DS_ERANGE, "exit: \"layers\" must be 0 (all) or more");
    int rc = model_check_exit(s->subject.model, layers, e);
    if (rc < 0)
        return rc;
    s->exit = (int)layers;
    return answer_probe(s, e);
}

/* ---- the rest ---- */

/* A trace as `depthscope trace` writes it: in a file, or as records for who asks from elsewhere. */
static int do_save(struct serve *s, const struct json_node *q, struct err *e)
{
    size_t n = 0;
    const char *path = json_str(json_get(q, "file"), &n);
    int64_t lens = json_int(json_get(q, "lens"), 0);
    struct str frames = {0};
    struct record *head = NULL;
    int rc = 0;
    if ((json_get(q, "file") && (!path || n == 0)) || lens < 0 || lens > 16)
        return err_set(e, DS_EUSAGE, "save: expected \"file\", and \"lens\" 0 to 16");
    if (path)
        rc = trace_file_check(path, e);
    if (rc == 0)
        rc = fill_probe(s, (int)lens, e);
    if (rc == 0 && !(head = record_new()))
        rc = err_set(e, DS_EMEM, "out of memory for the trace");
    if (rc == 0)
        subject_head(&s->subject, head, s->version);
    if (rc == 0 && !path) {
        rc = serve_answer(s, head, e);
        if (rc == 0)
            rc = serve_answer(s, s->rec, e);
        record_free(head);
        return rc;
    }
    if (rc == 0)
        rc = record_end(head, 1, &frames, e);
    if (rc == 0)
        rc = record_end(s->rec, 2, &frames, e);
    if (rc == 0)
        rc = trace_file_write(path, str_text(&frames), frames.len, e);
    record_free(head);
    str_release(&frames);
    return rc;
}

/* What was asked on the way here and must not be done: the reason comes in its turn. */
static int do_refuse(struct serve *s, const struct json_node *q, struct err *e)
{
    const char *text = json_str(json_get(q, "text"), NULL);
    (void)s;
    return err_set(e, DS_EUSAGE, "%s", text ? text : "refused");
}

static int do_info(struct serve *s, const struct json_node *q, struct err *e)
{
    const char *chat = serve_chat_name(s);
    (void)q;
    subject_head(&s->subject, s->rec, s->version);
    record_int(s->rec, "context", s->subject.model->config.max_seq);
    if (chat)
        record_str(s->rec, "chat", chat);
    subject_options_record(&s->subject, s->rec);
    return serve_answer(s, s->rec, e);
}

/* The model is opened anew: what a method derives from its options is derived once. */
static int do_option(struct serve *s, const struct json_node *q, struct err *e)
{
    const char *text = json_str(json_get(q, "set"), NULL);
    struct config options = {0};
    struct subject with;
    int rc = text ? config_merge(&options, &s->subject.options, e) : 0;
    if (rc == 0 && text)
        rc = config_override(&options, text, "option", e);
    if (rc == 0)
        rc = subject_open_with(&with, s->subject.dir, NULL, &options, e);
    config_release(&options);
    if (rc < 0)
        return rc;
    subject_close(&s->subject);
    s->subject = with;
    rc = do_info(s, q, e);
    return rc < 0 || s->ids.n == 0 ? rc : answer_probe(s, e);
}

/* What it stops has ended when its turn comes. */
static int do_stop(struct serve *s, const struct json_node *q, struct err *e)
{
    (void)s, (void)q, (void)e;
    return 0;
}

static const struct {
    const char *name;
    int (*run)(struct serve *s, const struct json_node *q, struct err *e);
} requests[] = {
    {"trace", do_trace},   {"next", do_next}, {"force", do_force},
    {"offset", do_offset}, {"exit", do_exit}, {"generate", serve_generate},
    {"chat", serve_chat},  {"stop", do_stop}, {"compare", serve_compare},
    {"save", do_save},     {"info", do_info}, {"option", do_option},
    {"refuse", do_refuse},
};

/* ---- lines ---- */

/* Reads what has arrived; 0 at the end of input. */
static int read_lines(struct serve *s, struct err *e)
{
    char chunk[65536];
    size_t got = 0;
    int rc = fs_read_some(s->in, chunk, sizeof chunk, &got, "requests", e);
    str_add_bytes(&s->lines, chunk, rc == 0 ? got : 0);
    if (rc == 0 && s->lines.failed)
        rc = err_set(e, DS_EMEM, "out of memory for requests");
    return rc < 0 ? rc : got > 0;
}

static int is_stop(const char *line, size_t n)
{
    struct json *j = NULL;
    int yes = json_parse(&j, line, n, "request", NULL) == 0;
    const char *what = yes ? json_str(json_get(json_root(j), "do"), NULL) : NULL;
    yes = what && strcmp(what, "stop") == 0;
    json_free(j);
    return yes;
}

int serve_is_stopped(struct serve *s)
{
    struct pollfd p = {.fd = s->in, .events = POLLIN};
    struct err e = {0};
    if (!s->must_stop && s->lines.len <= SERVE_LINE_MAX && poll(&p, 1, 0) > 0)
        s->must_stop = read_lines(s, &e) < 0; /* the end of input ends no answer */
    for (char *end; !s->must_stop && s->looked < s->lines.len &&
                    (end = memchr(s->lines.p + s->looked, '\n', s->lines.len - s->looked));) {
        const char *line = s->lines.p + s->looked;
        s->must_stop = is_stop(line, (size_t)(end - line));
        s->looked = (size_t)(end - s->lines.p) + 1;
    }
    return s->must_stop;
}

/* Fails only when an answer cannot be written, which ends the session. */
static int serve_line(struct serve *s, const char *line, size_t n, struct err *e)
{
    struct json *j = NULL;
    struct err why = {0};
    const char *what = NULL;
    int rc = json_parse(&j, line, n, "request", &why);
    if (rc == 0) {
        what = json_str(json_get(json_root(j), "do"), NULL);
        rc = err_set(&why, DS_EUSAGE,
                     "request: \"do\" must be trace, next, force, offset, exit, option, generate, "
                     "chat, stop, compare, save or info");
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

/* Answers every complete line and keeps the rest; more may arrive meanwhile. */
static int serve_lines(struct serve *s, struct err *e)
{
    size_t at = 0;
    int rc = 0;
    for (char *end; rc == 0 && (end = memchr(s->lines.p + at, '\n', s->lines.len - at)) != NULL;) {
        size_t n = (size_t)(end - (s->lines.p + at)), blank = 0;
        while (blank < n && strchr(" \t\r", s->lines.p[at + blank]))
            blank++;
        s->looked = at + n + 1;
        if (blank < n)
            rc = serve_line(s, s->lines.p + at, n, e);
        at += n + 1;
    }
    memmove(s->lines.p, s->lines.p + at, s->lines.len - at);
    s->lines.len -= at;
    return rc;
}

/* A line without end is an error that ends the session. */
static int serve_loop(struct serve *s, struct err *e)
{
    int rc;
    while ((rc = read_lines(s, e)) > 0) {
        rc = serve_lines(s, e);
        if (rc == 0 && s->lines.len > SERVE_LINE_MAX) {
            struct err why = {0};
            rc = err_set(&why, DS_ERANGE, "request longer than %d bytes", SERVE_LINE_MAX);
            if (answer_error(s, &why, e) == 0)
                err_set(e, rc, "%s", why.text);
        }
        if (rc < 0)
            break;
    }
    return rc;
}

int serve_run(const char *model, int in, int out, const char *version, struct err *e)
{
    struct serve s = {.in = in, .out = out, .version = version};
    s.rec = record_new();
    if (!s.rec)
        return err_set(e, DS_EMEM, "out of memory for the session");
    int rc = subject_open(&s.subject, model, NULL, e);
    if (rc == 0) {
        rc = serve_loop(&s, e);
        subject_close(&s.subject);
        subject_close(&s.other);
    } else {
        struct err ignored = {0};
        if (answer_error(&s, e, &ignored) < 0)
            err_add(e, rc, "serve");
    }
    record_free(s.rec);
    str_release(&s.frame);
    str_release(&s.lines);
    str_release(&s.marks);
    serve_talk_release(&s.talk);
    ids_release(&s.ids);
    free_forced(&s);
    return rc;
}
