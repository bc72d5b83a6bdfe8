/* Streams generated text for a session: completion, chat, and regeneration from any token. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "eval/generation.h"
#include "models/speculate.h"
#include "serve_impl.h"

enum { TOKENS_DEFAULT = 64 };

/* ---- the answers ---- */

struct gen_stream {
    struct serve *s;
    struct err *e;
    int top, speculates;
};

static void add_run(struct record *rec, const struct model *m, int row)
{
    unsigned char run[4096] = {0};
    size_t L = (size_t)model_config_depth(&m->config) < sizeof run
                   ? (size_t)model_config_depth(&m->config)
                   : sizeof run;
    for (size_t l = 0; l < L; l++) {
        const struct plan *p = model_plan(m, (int)l);
        for (int i = 0; i < p->n; i++)
            run[l] |= (unsigned char)(p->row[i] == row && p->gate[i] != 0);
    }
    record_bytes(rec, "run", run, L);
}

/* The most likely tokens at position `at`, by the logits before it. */
static void add_top(struct record *rec, const struct gen_stream *w, const struct gen_result *r,
                    size_t at)
{
    int32_t id[GEN_LOGPROBS_MAX];
    double p[GEN_LOGPROBS_MAX];
    const char *piece[GEN_LOGPROBS_MAX];
    size_t len[GEN_LOGPROBS_MAX];
    size_t n = r->n_top ? (size_t)r->n_top[at] : 0;
    for (size_t i = 0; i < n; i++) {
        const struct sample_rank *x = &r->top[at * (size_t)w->top + i];
        id[i] = x->id;
        p[i] = x->logprob;
        piece[i] = subject_piece_of(&w->s->subject, x->id, &len[i]);
    }
    if (n == 0)
        return;
    record_i32s(rec, "top_id", id, n);
    record_nums(rec, "top_logprob", p, n);
    record_pieces(rec, "top_text", piece, len, n);
}

static int send_token(void *ctx, size_t k, const struct gen_result *r, size_t at)
{
    struct gen_stream *w = ctx;
    const struct model *m = w->s->subject.model;
    struct record *rec = w->s->rec;
    int row = (int)at - m->pos[0]; /* of the last pass, whose rows follow each other */
    size_t n;
    const char *piece = subject_piece_of(&w->s->subject, r->ids.v[at], &n);
    (void)k;
    record_begin(rec, "token", 0, clock_wall());
    record_int(rec, "index", (int64_t)at);
    record_int(rec, "id", r->ids.v[at]);
    record_bytes(rec, "text", piece, n);
    record_bool(rec, "is_prompt", at < r->n_prompt);
    if (w->speculates && at >= r->n_prompt)
        record_str(rec, "mark", gen_mark_name[r->mark[at]]);
    record_num(rec, "depth", r->depth[at]);
    record_num(rec, "flops", m->flops.token[row]);
    record_num(rec, "flops_dense", m->flops.dense_token[row]);
    if (r->logprob)
        record_num(rec, "logprob", r->logprob[at]);
    add_run(rec, m, row);
    add_top(rec, w, r, at);
    return serve_answer(w->s, rec, w->e);
}

static int is_stopped(void *ctx)
{
    return serve_is_stopped(((struct gen_stream *)ctx)->s);
}

static int send_end(struct serve *s, const struct gen_result *r, struct err *e)
{
    struct record *rec = s->rec;
    record_begin(rec, "generated", 0, clock_wall());
    record_str(rec, "stop", gen_stop_name[r->stop]);
    record_int(rec, "prompt", (int64_t)r->n_prompt);
    record_int(rec, "tokens", (int64_t)r->ids.n);
    record_num(rec, "tok_s", r->tok_s);
    record_num(rec, "block_ratio", r->block_ratio);
    record_num(rec, "flops_ratio", r->flops_ratio);
    if (r->rounds > 0) {
        record_int(rec, "rounds", r->rounds);
        record_int(rec, "drafted", r->drafted);
        record_int(rec, "accepted", r->accepted);
    }
    record_bytes(rec, "text", str_text(&r->text), r->text.len);
    return serve_answer(s, rec, e);
}

/* ---- the request ---- */

/* "speculate" and "draft", by default the first third of the layers; buffers for the options. */
struct drafts {
    char speculate[24], draft[256];
};

static int read_drafts(const struct serve *s, struct drafts *d, struct gen_options *o,
                       const struct json_node *q, const char *what, struct err *e)
{
    int L = model_config_depth(&s->subject.model->config);
    int64_t n = json_int(json_get(q, "speculate"), 0),
            exit = json_int(json_get(q, "draft_exit"), 0);
    const char *draft = json_str(json_get(q, "draft"), NULL);
    if (n < 0 || n > SPEC_MOST || exit < 0)
        return err_set(e, DS_EUSAGE, "%s: \"speculate\" must be 0 to %d, \"draft_exit\" 0 or more",
                       what, SPEC_MOST);
    if (n == 0)
        return 0;
    snprintf(d->speculate, sizeof d->speculate, "%d", (int)n);
    if (draft)
        str_copy(d->draft, sizeof d->draft, draft);
    else
        snprintf(d->draft, sizeof d->draft, "exit:%lld",
                 (long long)(exit    ? exit
                             : L < 3 ? 1
                                     : L / 3));
    o->speculate = d->speculate;
    o->draft = d->draft;
    return 0;
}

/* Generates after the prompt; then the current text is the prompt and the answer.  answer: NULL, or
 * its text is appended.  is_turn: the end of a chat's answer ends it. */
static int run(struct serve *s, const struct ids *prompt, const struct json_node *q,
               const char *what, int is_turn, struct str *answer, struct err *e)
{
    struct sample_options so;
    int64_t most = json_int(json_get(q, "max_tokens"), TOKENS_DEFAULT),
            top = json_int(json_get(q, "top"), 0);
    struct gen_stream w = {.s = s, .e = e, .top = (int)top};
    struct gen_watch watch = {.token = send_token, .is_stopped = is_stopped, .ctx = &w};
    struct gen_rules rules = {0};
    struct gen_result r;
    int rc = serve_sampling(&so, q, what, e);
    if (rc == 0 && (most < 0 || most > 1 << 24 || top < 0 || top > GEN_LOGPROBS_MAX))
        rc = err_set(e, DS_EUSAGE, "%s: \"max_tokens\" must be 0 to %d, \"top\" 0 to %d", what,
                     1 << 24, GEN_LOGPROBS_MAX);
    if (rc < 0)
        return rc;
    struct gen_options o = {.temperature = so.temperature,
                            .top_k = so.top_k,
                            .top_p = so.top_p,
                            .seed = (int64_t)so.seed,
                            .max_tokens = most,
                            .threshold_offset = s->offset,
                            .exit_layer = s->exit,
                            .capacity = -1,
                            .logprobs = top,
                            .echo = 1,
                            .batch = 1};
    struct drafts drafts = {.speculate = ""};
    rc = read_drafts(s, &drafts, &o, q, what, e);
    if (rc < 0)
        return rc;
    w.speculates = gen_speculates(&o);
    if (is_turn)
        rules = (struct gen_rules){.end = s->talk.end.v, .n_end = s->talk.end.n};
    s->must_stop = 0;
    rc = gen_run(&r, &s->subject, prompt, 1, &o, &rules, &watch, e);
    if (rc < 0)
        return rc;
    if (answer)
        str_add_bytes(answer, str_text(&r.text), r.text.len);
    rc = send_end(s, &r, e);
    if (rc == 0 && answer && answer->failed)
        rc = err_set(e, DS_EMEM, "out of memory for the text");
    serve_set_ids(s, &r.ids);
    gen_result_release(&r);
    return rc;
}

int serve_next_drafted(struct serve *s, const struct json_node *q, const struct sample_options *o,
                       struct err *e)
{
    struct drafts drafts = {.speculate = ""};
    struct gen_result r;
    struct gen_options go = {.temperature = o->temperature,
                             .top_k = o->top_k,
                             .top_p = o->top_p,
                             .seed = (int64_t)o->seed,
                             .threshold_offset = s->offset,
                             .exit_layer = s->exit,
                             .capacity = -1,
                             .batch = 1};
    int rc = read_drafts(s, &drafts, &go, q, "next", e);
    if (rc == 0 && s->forced > 0)
        rc = err_set(e, DS_EUSAGE, "next: \"speculate\" does not support forced cells");
    go.max_tokens = json_int(json_get(q, "speculate"), 0) + 1;
    if (rc == 0)
        rc = gen_run(&r, &s->subject, &s->ids, 1, &go, NULL, NULL, e);
    if (rc < 0)
        return rc;
    struct str marks = s->marks;
    s->marks = (struct str){0};
    while (marks.len < r.n_prompt && !marks.failed)
        str_add_char(&marks, GEN_ORDINARY);
    for (size_t i = r.n_prompt; i < r.ids.n; i++)
        str_add_char(&marks, (char)r.mark[i]);
    if (marks.failed)
        rc = err_set(e, DS_EMEM, "out of memory for the text");
    serve_set_ids(s, &r.ids);
    str_release(&s->marks);
    s->marks = marks;
    gen_result_release(&r);
    return rc;
}

static int copy_ids(struct ids *to, const struct ids *from, size_t n, struct err *e)
{
    for (size_t i = 0; i < n; i++)
        if (ids_add(to, from->v[i]) < 0)
            return err_set(e, DS_EMEM, "out of memory for the text");
    return 0;
}

/* Text that continues the current one, without the space that some vocabularies put before every
 * text. */
static int encode_after(const struct tokenizer *t, const char *text, size_t n, struct ids *out,
                        struct err *e)
{
    struct str back = {0};
    size_t before = out->n;
    int rc = tokenizer_encode_on(t, text, n, 0, out, e);
    if (rc < 0)
        return rc;
    tokenizer_decode_on(t, out->v + before, out->n - before, &back);
    if (n > 1 && text[0] == ' ' && back.len == n + 1 && memcmp(back.p, "  ", 2) == 0) {
        out->n = before;
        rc = tokenizer_encode_on(t, text + 1, n - 1, 0, out, e);
    }
    str_release(&back);
    return rc;
}

/* The text was continued after `keep` tokens: inside the last answer, which is another one now, or
 * before it. */
static int take_edit(struct serve *s, size_t keep, struct err *e)
{
    struct serve_talk *t = &s->talk;
    struct str *answer = &t->messages.v[t->messages.n - 1].text;
    t->is_edited |= keep < t->answer;
    if (t->is_edited)
        return 0;
    str_reset(answer);
    for (size_t i = t->answer; i < s->ids.n; i++)
        if (!tokenizer_is_special(s->subject.tokenizer, s->ids.v[i]))
            tokenizer_decode_on(s->subject.tokenizer, &s->ids.v[i], 1, answer);
    return answer->failed ? err_set(e, DS_EMEM, "out of memory for the text") : 0;
}

int serve_generate(struct serve *s, const struct json_node *q, struct err *e)
{
    struct ids prompt = {0};
    size_t n = 0;
    const char *text = json_str(json_get(q, "text"), &n);
    int64_t keep = json_int(json_get(q, "keep"), text ? 0 : (int64_t)s->ids.n);
    if (keep < 0 || (size_t)keep > s->ids.n)
        return err_set(e, DS_ERANGE, "generate: \"keep\" must be 0..%zu, the tokens of the text",
                       s->ids.n);
    const struct json_node *list = json_get(q, "ids");
    if (!text && !list && s->ids.n == 0)
        return err_set(e, DS_EUSAGE, "generate: expected \"text\", the session has no text");
    int rc = copy_ids(&prompt, &s->ids, (size_t)keep, e);
    if (rc == 0 && list)
        rc = serve_add_ids(s, list, "generate", &prompt, e);
    else if (rc == 0 && keep == 0)
        rc = gen_prompt(&s->subject, text ? text : "", n, &prompt, e);
    else if (rc == 0 && n > 0)
        rc = encode_after(s->subject.tokenizer, text, n, &prompt, e);
    int is_turn = s->talk.messages.n > 0 && keep > 0;
    if (rc == 0)
        rc = run(s, &prompt, q, "generate", is_turn, NULL, e);
    if (rc == 0 && keep == 0)
        serve_talk_forget(&s->talk);
    if (rc == 0 && is_turn)
        rc = take_edit(s, (size_t)keep, e);
    ids_release(&prompt);
    return rc;
}

/* ---- chat ---- */

void serve_talk_forget(struct serve_talk *t)
{
    chat_messages_release(&t->messages);
    t->messages = (struct chat_messages){0};
    t->answer = 0;
    t->is_edited = 0;
}

void serve_talk_release(struct serve_talk *t)
{
    serve_talk_forget(t);
    ids_release(&t->end);
    chat_release(&t->chat);
}

const char *serve_chat_name(const struct serve *s)
{
    struct chat c;
    if (subject_chat(&c, &s->subject, CHAT_AUTO, NULL) < 0)
        return NULL;
    chat_release(&c);
    return chat_template_name[CHAT_AUTO];
}

static int open_talk(struct serve *s, struct err *e)
{
    struct serve_talk *t = &s->talk;
    if (t->is_open)
        return 0;
    int rc = subject_chat(&t->chat, &s->subject, CHAT_AUTO, e);
    if (rc < 0)
        return err_set(e, DS_EUSAGE, "chat: this model has no chat template that is supported");
    rc = chat_ends(&t->chat, s->subject.tokenizer, &t->end, e);
    t->is_open = rc == 0;
    if (rc < 0)
        chat_release(&t->chat);
    return rc;
}

/* One message and its answer; on failure the conversation is what it was before. */
int serve_chat(struct serve *s, const struct json_node *q, struct err *e)
{
    struct serve_talk *t = &s->talk;
    struct ids prompt = {0};
    struct str answer = {0};
    size_t n = 0;
    const char *text = json_str(json_get(q, "text"), &n);
    if (!text || n == 0)
        return err_set(e, DS_EUSAGE, "chat: expected \"text\", the message");
    int rc = open_talk(s, e);
    if (rc < 0)
        return rc;
    if (json_bool(json_get(q, "new"), 0))
        serve_talk_forget(t);
    size_t before = t->messages.n, from = before;
    rc = chat_add(&t->messages, CHAT_USER, text, n, e);
    if (rc == 0) /* what was edited is only in the ids */
        rc = t->is_edited ? 1 : chat_continues(&t->chat, &t->messages, before, e);
    if (rc == 0) /* the template has changed earlier turns: all of them again */
        from = 0;
    if (rc >= 0)
        rc = copy_ids(&prompt, &s->ids, from > 0 ? s->ids.n : 0, e);
    if (rc == 0)
        rc = chat_encode(&t->chat, s->subject.tokenizer, &t->messages, from, &prompt, e);
    if (rc == 0)
        rc = run(s, &prompt, q, "chat", 1, &answer, e);
    if (rc == 0)
        t->answer = prompt.n;
    if (rc == 0)
        rc = chat_add(&t->messages, CHAT_ASSISTANT, str_text(&answer), answer.len, e);
    if (rc < 0)
        chat_drop(&t->messages, before);
    ids_release(&prompt);
    str_release(&answer);
    return rc;
}
