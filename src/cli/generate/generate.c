/* depthscope generate MODEL: streams generated text or chat, coloured by the depth of every
 * token. */
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/pool.h"
#include "cli/generate/generate.h"
#include "eval/capacity.h"

struct cli_option generate_options[] = {
    {.name = "prompt", .has_value = 1, .help = "TEXT  prompt; \"\" starts a new text; repeatable"},
    {.name = "file",
     .has_value = 1,
     .help = "FILE  read the prompt from a file; - = standard input"},
    {.name = "batch",
     .has_value = 1,
     .help = "FILE  one prompt per line: text, \"JSON string\", {\"prompt\": ...} or "
             "{\"messages\": ...}"},
    {.name = "chat",
     .help = "chat; without a prompt, read messages from standard input, one per line"},
    {.name = "system", .has_value = 1, .help = "TEXT  system prompt for --chat"},
    {.name = "messages",
     .has_value = 1,
     .help = "FILE  a conversation to answer: [{\"role\": ..., \"content\": ...}]"},
    {.name = "stop", .has_value = 1, .help = "TEXT  stop string; repeatable"},
    {.name = "show",
     .has_value = 1,
     .help = "depth  after the text, show each token with its number of executed layers"},
    {.name = "compare",
     .help = "decode the prompt with speculate= and without, in turn, and print both speeds"},
    {.name = "json", .help = "one JSON object per text and line instead of the text"},
    {.name = "stream",
     .help = "with --json: also one line per token; the concatenated new_text is the text"},
    {.name = "quiet", .help = "print only the text"},
    {.name = NULL},
};
enum { PROMPT_MAX = 16 << 20, BATCH_MAX = 1 << 16 };

static volatile sig_atomic_t interrupted;

static void on_interrupt(int number)
{
    (void)number;
    interrupted = 1;
}

int gen_interrupted(void)
{
    return interrupted;
}

void gen_interrupt_clear(void)
{
    interrupted = 0;
}

/* ---- request ---- */

struct request {
    const struct cli_args *a;
    struct subject *s;
    struct gen_options *o;
    struct chat chat;
    int is_chat;
    struct ids *prompt; /* (n) */
    size_t n, cap;
    const char **stop;
    struct ids end;
    struct gen_rules rules;
    struct config options; /* of the model's method */
};

static int add_ids(struct request *q, const struct chat_messages *m, const char *text, size_t len,
                   struct err *e)
{
    void *v = q->prompt;
    if (q->n >= BATCH_MAX)
        return err_set(e, DS_ERANGE, "too many prompts, must be at most %d", (int)BATCH_MAX);
    if (mem_grow(&v, &q->cap, q->n + 1, sizeof *q->prompt) < 0)
        return err_set(e, DS_EMEM, "prompts");
    q->prompt = v;
    struct ids *out = &q->prompt[q->n++];
    *out = (struct ids){0};
    return m ? chat_encode(&q->chat, q->s->tokenizer, m, 0, out, e)
             : gen_prompt(q->s, text, len, out, e);
}

static int add_system(const struct request *q, struct chat_messages *m, struct err *e)
{
    const char *system = cli_value(q->a, "system");
    return system ? chat_add(m, CHAT_SYSTEM, system, strlen(system), e) : 0;
}

static int add_prompt(struct request *q, const char *text, size_t len, struct err *e)
{
    struct chat_messages m = {0};
    if (!q->is_chat)
        return add_ids(q, NULL, text, len, e);
    int rc = add_system(q, &m, e);
    if (rc == 0)
        rc = chat_add(&m, CHAT_USER, text, len, e);
    if (rc == 0)
        rc = add_ids(q, &m, NULL, 0, e);
    chat_messages_release(&m);
    return rc;
}

static int add_messages(struct request *q, const struct json_node *list, const char *what,
                        struct err *e)
{
    struct chat_messages m = {0};
    int rc = add_system(q, &m, e);
    if (rc == 0)
        rc = chat_add_json(&m, list, what, e);
    if (rc == 0 && (rc = add_ids(q, &m, NULL, 0, e)) < 0)
        (void)err_add(e, rc, "%s", what);
    chat_messages_release(&m);
    return rc;
}

static int add_json_line(struct request *q, const char *p, size_t n, const char *where,
                         struct err *e)
{
    struct json *j = NULL;
    size_t len = 0;
    int rc = json_parse(&j, p, n, where, e);
    if (rc < 0)
        return rc;
    const struct json_node *root = json_root(j), *messages = json_get(root, "messages");
    const char *text =
        json_str(json_kind_of(root) == JSON_KIND_STRING ? root : json_get(root, "prompt"), &len);
    if (messages && q->is_chat)
        rc = add_messages(q, messages, where, e);
    else if (text)
        rc = add_prompt(q, text, len, e);
    else
        rc = err_set(e, DS_EFORMAT, "%s: %s", where,
                     messages ? "\"messages\" require --chat"
                              : "expected a string or an object with \"prompt\"");
    json_free(j);
    return rc;
}

static int add_batch(struct request *q, const char *path, struct err *e)
{
    struct str text = {0};
    int rc = cli_read_text(&text, path, PROMPT_MAX, e);
    const char *p = str_text(&text), *end = p + text.len;
    for (int line = 1; p < end && rc == 0; line++) {
        const char *hit = memchr(p, '\n', (size_t)(end - p)), *stop = hit ? hit : end;
        char where[300];
        size_t n = (size_t)(stop - p);
        n -= n > 0 && p[n - 1] == '\r';
        snprintf(where, sizeof where, "%.250s:%d", path, line);
        if (n > 0 && (p[0] == '"' || p[0] == '{'))
            rc = add_json_line(q, p, n, where, e);
        else if (n > 0)
            rc = add_prompt(q, p, n, e);
        p = hit ? hit + 1 : end;
    }
    if (rc == 0 && q->n == 0)
        rc = err_set(e, DS_EUSAGE, "%s: no prompt in the file", path);
    str_release(&text);
    return rc;
}

static int add_file(struct request *q, const char *path, int is_messages, struct err *e)
{
    struct str text = {0};
    struct json *j = NULL;
    int rc = cli_read_text(&text, path, PROMPT_MAX, e);
    if (rc == 0 && !is_messages)
        rc = add_prompt(q, str_text(&text), text.len, e);
    else if (rc == 0)
        rc = json_parse(&j, str_text(&text), text.len, path, e);
    if (rc == 0 && is_messages)
        rc = add_messages(q, json_root(j), path, e);
    json_free(j);
    str_release(&text);
    return rc;
}

/* Exactly one source of prompts; none means interactive chat. */
static int check_words(struct request *q, struct err *e)
{
    static const char *const way[] = {"prompt", "file", "batch", "messages"};
    static const char *const of_chat[] = {"template", "thinking"};
    static const char *const of_search[] = {"speedup_by"};
    const char *show = cli_value(q->a, "show");
    int ways = 0, rc = 0;
    q->is_chat = cli_flag(q->a, "chat") || cli_value(q->a, "messages");
    for (size_t i = 0; i < DS_LEN(way); i++)
        ways += cli_value(q->a, way[i]) != NULL;
    if (ways > 1 || (ways == 0 && !q->is_chat))
        return err_set(e, DS_EUSAGE, "generate: %s (depthscope help generate)",
                       ways ? "expected only one of --prompt, --file, --batch and --messages"
                            : "missing prompt: use --prompt TEXT, --file FILE or --chat");
    if (cli_value(q->a, "system") && !q->is_chat)
        return err_set(e, DS_EUSAGE, "generate: --system requires --chat");
    if (!q->is_chat)
        rc = cli_refuse_settings(q->a, &gen_group, of_chat, DS_LEN(of_chat), "requires --chat", e);
    if (rc == 0 && q->o->target_speedup <= 0)
        rc = cli_refuse_settings(q->a, &gen_group, of_search, DS_LEN(of_search),
                                 "requires target_speedup=", e);
    if (rc < 0)
        return rc;
    if (cli_flag(q->a, "stream") && !cli_flag(q->a, "json"))
        return err_set(e, DS_EUSAGE,
                       "generate: --stream requires --json (plain text always streams)");
    if (cli_flag(q->a, "compare") && (!gen_speculates(q->o) || q->o->time_rounds < 1))
        return err_set(e, DS_EUSAGE,
                       "generate: --compare requires speculate=N and time_rounds of at least 1");
    if (show && strcmp(show, "depth") != 0)
        return err_set(e, DS_EUSAGE, "generate: --show %s: expected depth", show);
    return 0;
}

static int read_stops(struct request *q, struct err *e)
{
    size_t n = 0;
    q->stop = mem_alloc((size_t)q->a->n_given, sizeof *q->stop);
    if (!q->stop)
        return err_set(e, DS_EMEM, "stop strings: out of memory");
    for (const char *s; (s = cli_value_at(q->a, "stop", (int)n)) != NULL; n++) {
        if (!s[0])
            return err_set(e, DS_EUSAGE, "generate: --stop: must not be empty");
        q->stop[n] = s;
    }
    q->rules = (struct gen_rules){.stop = q->stop, .n_stop = n};
    return 0;
}

static int open_chat(struct request *q, struct err *e)
{
    int rc = subject_chat(&q->chat, q->s, (enum chat_template)q->o->template, e);
    q->chat.thinking = (enum chat_thinking)q->o->thinking;
    if (rc == 0)
        rc = chat_ends(&q->chat, q->s->tokenizer, &q->end, e);
    q->rules.end = q->end.v;
    q->rules.n_end = q->end.n;
    return rc;
}

static int read_prompts(struct request *q, struct err *e)
{
    const char *file = cli_value(q->a, "file"), *batch = cli_value(q->a, "batch"),
               *messages = cli_value(q->a, "messages"), *text;
    int rc = 0;
    if (batch)
        rc = add_batch(q, batch, e);
    if (file || messages)
        rc = add_file(q, file ? file : messages, messages != NULL, e);
    for (int i = 0; rc == 0 && (text = cli_value_at(q->a, "prompt", i)) != NULL; i++)
        rc = add_prompt(q, text, strlen(text), e);
    return rc;
}

static void request_release(struct request *q)
{
    for (size_t i = 0; i < q->n; i++)
        ids_release(&q->prompt[i]);
    mem_free(q->prompt);
    mem_free(q->stop);
    ids_release(&q->end);
    chat_release(&q->chat);
    config_release(&q->options);
}

/* Finds the capacity that reaches target_speedup on the run's own held-out text, else on its
 * training text. */
static int find_capacity(struct gen_options *o, struct subject *s, int quiet, struct err *e)
{
    struct ppl_options text = {0};
    struct ppl *p = NULL;
    struct capacity_found found;
    int by_time = o->speedup_by == SPEEDUP_TIME;
    if (o->target_speedup <= 0)
        return 0;
    if (o->capacity != -1 || o->routing != GEN_CAUSAL)
        return err_set(e, DS_EUSAGE,
                       "target_speedup searches the capacity of causal routing: "
                       "capacity= and routing= must not be set");
    struct pass pass = {.kind = PASS_SPARSE, .inference.has_capacity = 1};
    int rc = route_ready(&s->model->route, &pass, e);
    if (rc == 0)
        rc = opt_defaults(&ppl_group, &text, e);
    int is_held_out = rc == 0 && !ppl_lacks_val(s, &text);
    if (!is_held_out)
        text.split = PPL_SPLIT_TRAIN;
    if (rc == 0)
        rc = ppl_open(&p, s, &text, e);
    if (rc == 0)
        rc =
            capacity_search(&found, p, o->target_speedup,
                            by_time ? SPEEDUP_OF_DECODE : SPEEDUP_OF_FLOPS, (int)o->time_rounds, e);
    if (rc == 0) {
        o->capacity = found.capacity;
        if (!quiet)
            fprintf(stderr, "depthscope: capacity %.3f: speedup %.3f on %s text by %s%s\n",
                    found.capacity, found.speedup, is_held_out ? "held-out" : "training",
                    by_time ? "measured decoding" : "FLOPs",
                    found.is_met ? "" : ", the nearest available");
    }
    ppl_close(p);
    opt_release(&ppl_group, &text);
    return rc;
}

/* ---- generation ---- */

static int compare_speeds(const struct request *q, struct gen_pair *pair, struct err *e)
{
    if (q->n != 1)
        return err_set(e, DS_EUSAGE, "generate: --compare: expected one prompt, not %zu", q->n);
    return gen_compare(pair, q->s, q->prompt, q->o, &q->rules, (int)q->o->time_rounds, e);
}

static int make_texts(const struct request *q, struct err *e)
{
    struct gen_pair pair;
    struct gen_result *r = mem_alloc(q->n, sizeof *r);
    struct gen_show show = {0};
    int rc = r ? gen_show_init(&show, q->a, q->s, q->o, r, q->n, q->is_chat, e)
               : err_set(e, DS_EMEM, "%zu texts: out of memory", q->n);
    struct gen_watch watch = gen_show_watch(&show);
    size_t done = 0;
    if (rc == 0 && cli_flag(q->a, "compare")) {
        rc = compare_speeds(q, &pair, e);
        show.pair = &pair;
    }
    double began = clock_mono();
    if (rc == 0)
        rc = gen_run(r, q->s, q->prompt, q->n, q->o, &q->rules, &watch, e);
    show.seconds = q->n > 1 ? clock_mono() - began : 0;
    while (rc == 0 && done < q->n && show.is_done[done]) /* after Ctrl-C the rest never started */
        done++;
    if (rc == 0 && !cli_flag(q->a, "quiet"))
        rc = gen_show_end_line(&show);
    if (rc == 0)
        gen_show_cost(&show, r, done);
    for (size_t k = 0; r && k < q->n; k++)
        gen_result_release(&r[k]);
    mem_free(r);
    gen_show_release(&show);
    return rc;
}

static int make_talk(const struct request *q, struct err *e)
{
    struct chat_messages m = {0};
    int rc = add_system(q, &m, e);
    if (rc == 0)
        rc = generate_chat(q->a, q->s, &q->chat, &m, q->o, &q->rules, e);
    chat_messages_release(&m);
    return rc;
}

static int generate(struct request *q, struct err *e)
{
    const char *model;
    int rc;
    if ((rc = cli_single(q->a, "generate", "MODEL", &model, e)) < 0 ||
        (rc = check_words(q, e)) < 0 || (rc = read_stops(q, e)) < 0 ||
        (rc = pool_start((int)q->o->threads, e)) < 0 ||
        (rc = subject_open_with(q->s, model, &q->o->numbers, &q->options, e)) < 0 ||
        (rc = gen_check(q->s, q->o, e)) < 0)
        return rc;
    if (q->is_chat && (rc = open_chat(q, e)) < 0)
        return rc;
    if ((rc = find_capacity(q->o, q->s, cli_flag(q->a, "quiet"), e)) < 0 ||
        (rc = read_prompts(q, e)) < 0)
        return rc;
    if (q->n == 0 && cli_flag(q->a, "compare"))
        return err_set(e, DS_EUSAGE, "generate: --compare requires --prompt or --file");
    return q->n > 0 ? make_texts(q, e) : make_talk(q, e);
}

int generate_command(int argc, char **argv)
{
    struct err e = {0};
    struct cli_args a;
    struct gen_options o = {0};
    struct subject s = {0};
    struct request q = {.a = &a, .s = &s, .o = &o};
    struct sigaction act = {.sa_handler = on_interrupt};
    int rc = cli_parse(&a, generate_options, argc, argv, &e);
    if (rc < 0)
        return command_fail(&e);
    sigaction(SIGINT, &act, NULL); /* the text so far and its cost are still printed */
    rc = cli_take_options(&a, &q.options, &e);
    if (rc == 0)
        rc = cli_apply(&a, &gen_group, &o, &e);
    if (rc == 0) {
        rc = generate(&q, &e);
        opt_release(&gen_group, &o);
    }
    request_release(&q);
    subject_close(&s);
    pool_stop();
    cli_release(&a);
    return rc < 0 ? command_fail(&e) : interrupted ? 130 : 0;
}
