/* depthscope generate MODEL --prompt TEXT: text as it comes, coloured by the depth of every token. */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/pool.h"
#include "cli/use.h"
#include "eval/capacity.h"
#include "eval/generation.h"
#include "figures/palette.h"

static struct cli_option options[] = {
    {.name = "prompt", .has_value = 1, .help = "TEXT  what to continue; \"\" starts a new text"},
    {.name = "file", .has_value = 1, .help = "FILE  the prompt from a file; - = standard input"},
    {.name = "json", .help = "one JSON object at the end instead of the text"},
    {.name = "quiet", .help = "no line about cost behind the text"},
    {.name = NULL},
};
enum { PROMPT_MAX = 16 << 20 };

static volatile sig_atomic_t interrupted;

static void on_interrupt(int number)
{
    (void)number;
    interrupted = 1;
}

/* Where tokens go: bytes are held until they make whole characters. */
struct stream_out {
    const struct subject *s;
    struct str held;
    int is_terminal, has_colour, truecolour, layers, silent, rc;
    struct err *e;
};

static void add_colour(struct str *out, const struct stream_out *o, int depth)
{
    double x = o->layers > 1 ? (double)(depth - 1) / (o->layers - 1) : 1;
    int rgb = cmap_rgb("viridis", 0.25 + 0.75 * x); /* the dark end would not be read on black */
    int r = rgb >> 16 & 255, g = rgb >> 8 & 255, b = rgb & 255;
    if (o->truecolour)
        str_addf(out, "\x1b[38;2;%d;%d;%dm", r, g, b);
    else
        str_addf(out, "\x1b[38;5;%dm", 16 + 36 * (r * 5 / 255) + 6 * (g * 5 / 255) + b * 5 / 255);
}

/* Bytes at the end that may be the beginning of a character. */
static size_t incomplete_tail(const char *p, size_t n)
{
    for (size_t k = 1; k <= 3 && k <= n; k++) {
        unsigned char c = (unsigned char)p[n - k];
        if ((c & 0xc0) == 0x80)
            continue;
        size_t need = c >= 0xf0 ? 4 : c >= 0xe0 ? 3 : c >= 0xc0 ? 2 : 1;
        return need > k ? k : 0;
    }
    return 0;
}

/* New lines and tabs of the text are layout; everything else that could steer a terminal is made visible. */
static void add_for_terminal(struct str *out, const char *p, size_t n)
{
    while (n > 0) {
        size_t k = 0;
        while (k < n && p[k] != '\n' && p[k] != '\t')
            k++;
        cli_add_safe(out, p, k, -1);
        if (k < n)
            str_add_char(out, p[k++]);
        p += k;
        n -= k;
    }
}

static int flush(struct stream_out *o, int depth, int all)
{
    struct str out = {0};
    size_t n = o->held.len - (all ? 0 : incomplete_tail(str_text(&o->held), o->held.len));
    if (n == 0)
        return 0;
    if (o->has_colour && depth >= 0)
        add_colour(&out, o, depth);
    if (o->is_terminal)
        add_for_terminal(&out, o->held.p, n);
    else
        str_add_bytes(&out, o->held.p, n);
    if (o->has_colour && depth >= 0)
        str_add(&out, "\x1b[0m");
    int rc = out.failed ? err_set(o->e, DS_EMEM, "text") : cli_write(str_text(&out), out.len, o->e);
    memmove(o->held.p, o->held.p + n, o->held.len - n);
    o->held.len -= n;
    str_release(&out);
    return rc;
}

static int show_token(void *ctx, int is_prompt, int32_t id, int depth)
{
    struct stream_out *o = ctx;
    size_t n;
    const char *piece = subject_piece_of(o->s, id, &n);
    (void)is_prompt;
    if (!o->silent && !tokenizer_is_special(o->s->tokenizer, id)) {
        str_add_bytes(&o->held, piece, n);
        o->rc = o->held.failed ? err_set(o->e, DS_EMEM, "text") : flush(o, depth, 0);
    }
    return o->rc < 0 || interrupted;
}

static void print_json(struct str *out, const struct subject *s, const struct gen_options *o,
                       const struct gen_result *r)
{
    struct str text = {0};
    size_t n = r->ids.n - r->n_prompt;
    tokenizer_decode_on(s->tokenizer, r->ids.v + r->n_prompt, n, &text);
    str_add(out, "{");
    json_key(out, "text");
    str_add_json(out, str_text(&text), text.len);
    json_add_ids(out, "prompt_ids", r->ids.v, r->n_prompt);
    json_add_ids(out, "ids", r->ids.v + r->n_prompt, n);
    json_add_ids(out, "depth", r->depth + r->n_prompt, n);
    json_add_ids(out, "prompt_depth", r->depth, r->n_prompt);
    json_add_str(out, "compute", gemm_format_name[s->model->weights.format]);
    json_add_str(out, "weights", weights_held(s->model));
    json_add_num(out, "capacity_asked", o->capacity == -1 ? (double)NAN : o->capacity);
    json_add_num(out, "block_ratio", r->block_ratio);
    json_add_num(out, "flops_ratio", r->flops_ratio);
    json_add_num(out, "time_ratio", r->time_ratio);
    json_add_num(out, "tok_s", r->tok_s);
    json_add_int(out, "layers", s->model->config.layers);
    json_add_str(out, "stop", gen_stop_name[r->stop]);
    str_add(out, "}\n");
    if (text.failed)
        out->failed = 1;
    str_release(&text);
}

static void print_cost(const struct gen_result *r)
{
    char time[48] = "";
    if (isfinite(r->time_ratio))
        snprintf(time, sizeof time, ", measured time %.2f", r->time_ratio);
    fprintf(stderr,
            "depthscope: %zu tokens (%s), %.0f tokens/s; of the dense model: blocks %.2f, FLOPs "
            "%.2f%s\n",
            r->ids.n - r->n_prompt, gen_stop_name[r->stop], isfinite(r->tok_s) ? r->tok_s : 0.0,
            r->block_ratio, r->flops_ratio, time);
}

static int read_prompt(const struct cli_args *a, struct str *text, struct err *e)
{
    const char *prompt = cli_value(a, "prompt"), *file = cli_value(a, "file");
    if (!!prompt + !!file != 1)
        return err_set(e, DS_EUSAGE, "generate: %s (depthscope help generate)",
                       prompt ? "either --prompt or --file"
                              : "what is the prompt? --prompt TEXT or --file FILE");
    if (file)
        return cli_read_text(text, file, PROMPT_MAX, e);
    str_add(text, prompt);
    return text->failed ? err_set(e, DS_EMEM, "prompt") : 0;
}

/* The capacity with the wanted speedup, from the run's own held-out text. */
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
                       "target_speedup looks for the capacity of causal routing itself: neither "
                       "capacity= nor routing= goes with it");
    struct pass asked = {.kind = PASS_SPARSE, .has_capacity = 1};
    int rc = route_ready(&s->model->route, &asked, e);
    if (rc == 0)
        rc = opt_defaults(&ppl_group, &text, e);
    if (rc == 0)
        rc = ppl_open(&p, s, &text, e);
    if (rc == 0)
        rc =
            capacity_search(&found, p, o->target_speedup,
                            by_time ? SPEEDUP_OF_DECODE : SPEEDUP_OF_FLOPS, (int)o->time_rounds, e);
    if (rc == 0) {
        o->capacity = found.capacity;
        if (!quiet)
            fprintf(stderr,
                    "depthscope: capacity %.3f: held-out text is %.3f times as fast by %s%s\n",
                    found.capacity, found.speedup, by_time ? "measured decoding" : "FLOPs",
                    found.is_met ? "" : ", which is the nearest there is");
    }
    ppl_close(p);
    opt_release(&ppl_group, &text);
    return rc;
}

static int generate(const struct cli_args *a, struct gen_options *o, struct subject *s,
                    struct err *e)
{
    struct str text = {0}, out = {0};
    struct ids prompt = {0};
    struct gen_result r = {0};
    const char *model, *depth = getenv("COLORTERM");
    struct stream_out show = {.s = s,
                              .is_terminal = isatty(STDOUT_FILENO),
                              .has_colour = cli_has_colour(stdout),
                              .truecolour = depth && strstr(depth, "truecolor"),
                              .silent = cli_flag(a, "json"),
                              .e = e};
    int rc = cli_one(a, "generate", "MODEL", &model, e);
    if (rc == 0)
        rc = read_prompt(a, &text, e);
    if (rc == 0)
        rc = pool_start((int)o->threads, e);
    if (rc == 0)
        rc = subject_open(s, model, &o->numbers, e);
    if (rc == 0)
        rc = gen_check(s, o, e);
    if (rc == 0)
        rc = find_capacity(o, s, cli_flag(a, "quiet"), e);
    if (rc == 0)
        rc = gen_prompt(s, str_text(&text), text.len, &prompt, e);
    if (rc == 0) {
        show.layers = (int)s->model->config.layers;
        rc = gen_run(&r, s, &prompt, o, show_token, &show, e);
    }
    if (rc == 0)
        rc = show.rc;
    if (rc == 0 && show.silent) {
        print_json(&out, s, o, &r);
        rc = cli_write(str_text(&out), out.len, e);
    } else if (rc == 0) {
        rc = flush(&show, -1, 1);
        if (rc == 0 && show.is_terminal)
            rc = cli_write("\n", 1, e);
        if (rc == 0 && !cli_flag(a, "quiet"))
            print_cost(&r);
    }
    gen_result_release(&r);
    ids_release(&prompt);
    str_release(&text);
    str_release(&out);
    str_release(&show.held);
    return rc;
}

int generate_command(int argc, char **argv)
{
    struct err e = {0};
    struct cli_args a;
    struct gen_options o = {0};
    struct subject s = {0};
    struct sigaction act = {.sa_handler = on_interrupt};
    int rc = cli_parse(&a, options, argc, argv, &e);
    if (rc < 0)
        return command_fail(&e);
    sigaction(SIGINT, &act, NULL); /* the text so far and its cost are still told */
    rc = cli_apply(&a, &gen_group, &o, &e);
    if (rc == 0) {
        rc = generate(&a, &o, &s, &e);
        opt_release(&gen_group, &o);
    }
    subject_close(&s);
    pool_stop();
    cli_release(&a);
    return rc < 0 ? command_fail(&e) : interrupted ? 130 : 0;
}
