/* Shows generated text on a terminal, in a pipe and as JSON. */
#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "cli/generate/generate.h"
#include "figures/palette.h"

/* ---- colours ---- */

static void add_colour(struct str *out, const struct gen_show *w, int depth)
{
    int layers = model_config_depth(&w->s->model->config);
    double x = layers > 1 ? (double)(depth - 1) / (layers - 1) : 1;
    int rgb = cmap_rgb("viridis", 0.25 + 0.75 * x); /* the dark end is unreadable on black */
    int r = rgb >> 16 & 255, g = rgb >> 8 & 255, b = rgb & 255;
    if (w->truecolour)
        str_addf(out, "\x1b[38;2;%d;%d;%dm", r, g, b);
    else
        str_addf(out, "\x1b[38;5;%dm", 16 + 36 * (r * 5 / 255) + 6 * (g * 5 / 255) + b * 5 / 255);
}

/* Newlines and tabs are layout; all other terminal control characters are made visible. */
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

static int terminal_columns(void)
{
    struct winsize size;
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col >= 20)
        return size.ws_col;
    return 80;
}

/* ---- setup ---- */

int gen_show_init(struct gen_show *w, const struct cli_args *a, struct subject *s,
                  const struct gen_options *o, const struct gen_result *result, size_t n,
                  int is_chat, struct err *e)
{
    const char *depth = getenv("COLORTERM");
    *w = (struct gen_show){.s = s,
                           .o = o,
                           .result = result,
                           .n = n,
                           .is_terminal = isatty(STDOUT_FILENO),
                           .has_colour = cli_has_colour(stdout),
                           .truecolour = depth && strstr(depth, "truecolor"),
                           .is_utf8 = utf8_locale_is_utf8(),
                           .columns = terminal_columns(),
                           .json = cli_flag(a, "json"),
                           .stream = cli_flag(a, "stream"),
                           .quiet = cli_flag(a, "quiet"),
                           .depths = cli_value(a, "show") != NULL,
                           .least = INT_MAX,
                           .ends_line = 1,
                           .e = e};
    w->echo = !w->json && (o->echo > 0 || (o->echo < 0 && !is_chat));
    w->out = mem_alloc(n, sizeof *w->out);
    w->certain = mem_alloc(n, sizeof *w->certain);
    w->is_done = mem_alloc(n, sizeof *w->is_done);
    return w->out && w->certain && w->is_done ? 0
                                              : err_set(e, DS_EMEM, "%zu texts: out of memory", n);
}

void gen_show_release(struct gen_show *w)
{
    for (size_t k = 0; k < w->n; k++) {
        if (w->out)
            str_release(&w->out[k]);
        if (w->certain)
            str_release(&w->certain[k]);
    }
    mem_free(w->out);
    mem_free(w->certain);
    mem_free(w->is_done);
}

/* ---- JSON ---- */

static void add_piece(struct str *out, const struct gen_show *w, int32_t id)
{
    size_t n;
    const char *p = subject_piece_of(w->s, id, &n);
    str_add_json(out, p, n);
}

static void add_top(struct str *out, const struct gen_show *w, const struct gen_result *r,
                    size_t at)
{
    size_t K = (size_t)w->o->logprobs;
    str_add(out, "[");
    for (int i = 0; i < r->n_top[at]; i++) {
        const struct sample_rank *x = &r->top[at * K + (size_t)i];
        str_addf(out, "%s{\"id\":%d,\"piece\":", i ? "," : "", (int)x->id);
        add_piece(out, w, x->id);
        json_add_num(out, "logprob", x->logprob);
        str_add(out, "}");
    }
    str_add(out, "]");
}

static void add_pieces(struct str *out, const struct gen_show *w, const char *key,
                       const struct gen_result *r, size_t from, size_t to)
{
    json_key(out, key);
    str_add(out, "[");
    for (size_t i = from; i < to; i++) {
        str_add(out, i > from ? "," : "");
        add_piece(out, w, r->ids.v[i]);
    }
    str_add(out, "]");
}

static void add_logprobs(struct str *out, const struct gen_show *w, const char *name,
                         const struct gen_result *r, size_t from, size_t to)
{
    char key[48];
    snprintf(key, sizeof key, "%slogprobs", name);
    json_add_nums(out, key, r->logprob + from, to - from);
    snprintf(key, sizeof key, "%stop_logprobs", name);
    json_key(out, key);
    str_add(out, "[");
    for (size_t i = from; i < to; i++) {
        str_add(out, i > from ? "," : "");
        if (isnan(r->logprob[i])) /* the first token has no context */
            str_add(out, "null");
        else
            add_top(out, w, r, i);
    }
    str_add(out, "]");
}

static void add_depths(struct str *out, const char *key, const struct gen_result *r, size_t from,
                       size_t to)
{
    json_key(out, key);
    str_add(out, "[");
    for (size_t i = from; i < to; i++)
        json_add_int(out, NULL, r->depth[i]);
    str_add(out, "]");
}

/* Speculative decoding: what was drafted, and how each token came to be. */
static void add_drafts(struct str *out, const struct gen_show *w, const struct gen_result *r)
{
    double drafted = (double)r->drafted, rounds = (double)r->rounds;
    json_add_str(out, "draft", w->o->draft);
    json_add_int(out, "rounds", r->rounds);
    json_add_int(out, "drafted", r->drafted);
    json_add_int(out, "accepted", r->accepted);
    json_add_num(out, "acceptance", drafted > 0 ? (double)r->accepted / drafted : (double)NAN);
    json_add_num(out, "mean_accepted", rounds > 0 ? (double)r->accepted / rounds : (double)NAN);
    json_key(out, "marks");
    str_add(out, "[");
    for (size_t i = r->n_prompt; i < r->ids.n; i++)
        json_add_str(out, NULL, gen_mark_name[r->mark[i]]);
    str_add(out, "]");
    if (!w->pair)
        return;
    json_add_num(out, "speculative_tok_s", w->pair->tok_s);
    json_add_num(out, "ordinary_tok_s", w->pair->ordinary_tok_s);
    json_add_num(out, "speedup", w->pair->speedup);
    json_add_num(out, "ordinary_flops_token", w->pair->ordinary_flops_token);
    json_key(out, "same_text");
    str_add(out, w->pair->is_same ? "true" : "false");
}

/* --stream: text that is final since the last line of this text. */
static void add_new_text(struct str *out, struct gen_show *w, size_t k)
{
    json_key(out, "new_text");
    str_add_json(out, str_text(&w->certain[k]), w->certain[k].len);
    out->failed |= w->certain[k].failed;
    str_reset(&w->certain[k]);
}

void gen_add_json(struct str *out, struct gen_show *w, size_t k, const struct gen_result *r)
{
    const struct model *m = w->s->model;
    size_t from = r->n_prompt, end = r->ids.n;
    str_add(out, "{");
    if (w->n > 1)
        json_add_int(out, "index", (int64_t)k);
    json_key(out, "text");
    str_add_json(out, str_text(&r->text), r->text.len);
    if (w->stream) /* held back from token lines: it could have begun a stop string */
        add_new_text(out, w, k);
    json_add_ids(out, "prompt_ids", r->ids.v, from);
    json_add_ids(out, "ids", r->ids.v + from, end - from);
    add_pieces(out, w, "pieces", r, from, end);
    add_depths(out, "depth", r, from, end);
    add_depths(out, "prompt_depth", r, 0, from);
    if (w->o->logprobs > 0)
        add_logprobs(out, w, "", r, from, end);
    if (w->o->logprobs > 0 && w->o->echo > 0) {
        add_pieces(out, w, "prompt_pieces", r, 0, from);
        add_logprobs(out, w, "prompt_", r, 0, from);
    }
    json_add_str(out, "compute", gemm_format_name[m->weights.format]);
    json_add_str(out, "weights", weights_quant_name(m));
    json_add_num(out, "capacity_target", w->o->capacity == -1 ? (double)NAN : w->o->capacity);
    json_add_num(out, "block_ratio", r->block_ratio);
    json_add_num(out, "flops_ratio", r->flops_ratio);
    json_add_num(out, "time_ratio", r->time_ratio);
    json_add_num(out, "tok_s", r->tok_s);
    json_add_num(out, "flops_token", r->flops_token);
    if (gen_speculates(w->o))
        add_drafts(out, w, r);
    json_add_int(out, "layers", model_config_depth(&m->config));
    json_add_int(out, "seed", (w->o->seed < 0 ? 0 : w->o->seed) + (int64_t)k);
    json_add_str(out, "stop", gen_stop_name[r->stop]);
    str_add(out, "}\n");
}

/* --stream: one token, with the text that is final by now. */
static void add_token_json(struct str *out, struct gen_show *w, size_t k,
                           const struct gen_result *r, size_t at)
{
    str_add(out, "{");
    if (w->n > 1)
        json_add_int(out, "index", (int64_t)k);
    json_add_int(out, "id", r->ids.v[at]);
    json_key(out, "piece");
    add_piece(out, w, r->ids.v[at]);
    add_new_text(out, w, k);
    json_add_int(out, "depth", r->depth[at]);
    if (gen_speculates(w->o))
        json_add_str(out, "mark", gen_mark_name[r->mark[at]]);
    if (w->o->logprobs > 0) {
        json_add_num(out, "logprob", r->logprob[at]);
        json_key(out, "top_logprobs");
        add_top(out, w, r, at);
    }
    str_add(out, "}\n");
}

/* ---- depths as numbers ---- */

/* Pieces above their depths, wrapped at the terminal's width. */
static void add_depth_table(struct str *out, const struct gen_show *w, const struct gen_result *r)
{
    struct str above = {0}, below = {0}, piece = {0};
    int used = 0;
    for (size_t i = r->n_prompt; i <= r->ids.n; i++) {
        char depth[16] = "";
        size_t n = 0;
        str_reset(&piece);
        if (i < r->ids.n) {
            const char *p = subject_piece_of(w->s, r->ids.v[i], &n);
            cli_add_safe(&piece, p, n, w->columns - 2);
            snprintf(depth, sizeof depth, "%d", r->depth[i]);
        }
        int cells = utf8_cells(str_text(&piece), piece.len), wide = (int)strlen(depth);
        int width = (cells > wide ? cells : wide) + 1;
        if (used > 0 && (i == r->ids.n || used + width > w->columns)) {
            str_addf(out, "%s\n%s\n", str_text(&above), str_text(&below));
            str_reset(&above);
            str_reset(&below);
            used = 0;
        }
        str_addf(&above, "%s%*s", str_text(&piece), width - cells, "");
        str_addf(&below, "%*s ", width - 1, depth);
        used += width;
    }
    out->failed |= above.failed | below.failed | piece.failed;
    str_release(&above);
    str_release(&below);
    str_release(&piece);
}

/* ---- streaming ---- */

static int put(struct gen_show *w, struct str *s)
{
    int rc = s->failed ? err_set(w->e, DS_EMEM, "text") : 0;
    if (rc == 0 && s->len > 0) {
        rc = cli_write(s->p, s->len, w->e);
        w->ends_line = s->p[s->len - 1] == '\n';
        str_reset(s);
    }
    return rc;
}

/* A separator before each text but the first: after Ctrl-C the last text may not be the last
 * requested. */
static int put_heading(struct gen_show *w)
{
    struct str line = {0};
    if (w->json || w->next == 0)
        return 0;
    str_addf(&line, "%s---- %zu of %zu%s\n", w->has_colour ? "\x1b[2m" : "", w->next + 1, w->n,
             w->has_colour ? "\x1b[0m" : "");
    int rc = put(w, &line);
    str_release(&line);
    return rc;
}

/* With several texts, each is buffered until the previous ones are written. */
static int put_next(struct gen_show *w)
{
    int rc = 0;
    for (; w->next < w->n && w->is_done[w->next] && rc == 0; w->next++) {
        rc = put_heading(w);
        if (rc == 0)
            rc = put(w, &w->out[w->next]);
    }
    return rc;
}

static int on_text(void *ctx, size_t k, const char *p, size_t n, int depth, int is_prompt)
{
    struct gen_show *w = ctx;
    struct str *out = &w->out[k];
    const char *end = "";
    if (w->json) {
        if (!is_prompt)
            str_add_bytes(&w->certain[k], p, n);
        return 0;
    }
    if (is_prompt && !w->echo)
        return 0;
    if (w->has_colour && is_prompt)
        str_add(out, "\x1b[2m");
    else if (w->has_colour)
        add_colour(out, w, depth);
    if (w->has_colour)
        end = "\x1b[0m";
    if (w->is_terminal)
        add_for_terminal(out, p, n);
    else
        str_add_bytes(out, p, n);
    str_add(out, end);
    return w->n == 1 ? put(w, out) : 0;
}

static int on_token(void *ctx, size_t k, const struct gen_result *r, size_t at)
{
    struct gen_show *w = ctx;
    if (at < r->n_prompt)
        return 0;
    w->least = r->depth[at] < w->least ? r->depth[at] : w->least;
    w->most = r->depth[at] > w->most ? r->depth[at] : w->most;
    if (!w->json || !w->stream)
        return 0;
    struct str line = {0};
    add_token_json(&line, w, k, r, at);
    int rc = put(w, &line); /* lines of several texts are interleaved, each with its index */
    str_release(&line);
    return rc;
}

static int on_done(void *ctx, size_t k, struct gen_result *r)
{
    struct gen_show *w = ctx;
    struct str *out = &w->out[k];
    w->is_done[k] = 1;
    if (w->json) {
        gen_add_json(out, w, k, r);
    } else {
        if (w->n > 1 || w->depths)
            str_add(out, "\n");
        if (w->depths)
            add_depth_table(out, w, r);
    }
    return put_next(w);
}

static int is_stopped(void *ctx)
{
    (void)ctx;
    return gen_interrupted();
}

struct gen_watch gen_show_watch(struct gen_show *w)
{
    return (struct gen_watch){
        .text = on_text, .token = on_token, .done = on_done, .is_stopped = is_stopped, .ctx = w};
}

int gen_show_end_line(struct gen_show *w)
{
    int was = w->ends_line;
    w->ends_line = 1;
    return was || w->json ? 0 : cli_write("\n", 1, w->e);
}

/* ---- cost ---- */

void gen_note(const struct gen_show *w, const char *fmt, ...)
{
    int dim = w->has_colour && cli_has_colour(stderr);
    va_list ap;
    if (w->quiet)
        return;
    va_start(ap, fmt);
    fputs(dim ? "\x1b[2m" : "", stderr);
    vfprintf(stderr, fmt, ap);
    fputs(dim ? "\x1b[0m\n" : "\n", stderr);
    va_end(ap);
}

/* The colour scale, from one layer to all. */
static void show_scale(struct gen_show *w)
{
    int layers = model_config_depth(&w->s->model->config), steps = layers < 12 ? layers : 12;
    struct str line = {0};
    w->has_scale = 1;
    str_add(&line, "executed layers: 1 ");
    for (int i = 0; i < steps; i++) {
        add_colour(&line, w, steps > 1 ? 1 + i * (layers - 1) / (steps - 1) : 1);
        str_add(&line, w->is_utf8 ? "\xe2\x96\x88" : "#");
    }
    str_addf(&line, "\x1b[0m\x1b[2m %d; in this text %d to %d", layers, w->least, w->most);
    gen_note(w, "%s", str_text(&line));
    str_release(&line);
}

static void show_drafts(const struct gen_show *w, const struct gen_result *r, size_t n)
{
    double drafted = 0, accepted = 0, rounds = 0, flops = 0, made = 0;
    char a[16], b[16];
    for (size_t k = 0; k < n; k++) {
        double tokens = (double)(r[k].ids.n - r[k].n_prompt);
        drafted += (double)r[k].drafted;
        accepted += (double)r[k].accepted;
        rounds += (double)r[k].rounds;
        made += tokens;
        flops += tokens > 0 ? r[k].flops_token * tokens : 0;
    }
    if (rounds > 0)
        gen_note(w,
                 "draft %s: %.0f of %.0f drafted tokens accepted (%.0f %%), %.2f per verifying "
                 "pass; %sFLOPs per token",
                 w->o->draft, accepted, drafted, drafted > 0 ? 100 * accepted / drafted : 0,
                 accepted / rounds, str_si(a, made > 0 ? flops / made : 0));
    if (w->pair)
        gen_note(w,
                 "speculative %.1f/s, ordinary %.1f/s: %.2f times as fast (median of %lld pairs); "
                 "%sFLOPs per token, ordinary %s; %s",
                 w->pair->tok_s, w->pair->ordinary_tok_s, w->pair->speedup,
                 (long long)w->o->time_rounds, str_si(a, w->pair->flops_token),
                 str_si(b, w->pair->ordinary_flops_token),
                 w->pair->is_same        ? "the same text"
                 : w->o->temperature > 0 ? "other texts of the same distribution"
                                         : "DIFFERENT texts");
}

void gen_show_cost(struct gen_show *w, const struct gen_result *r, size_t n)
{
    char time[48] = "", what[48];
    double blocks = 0, flops = 0, all = 0, made = 0, speed = 0;
    if (w->quiet || w->json)
        return;
    for (size_t k = 0; k < n; k++) {
        blocks += r[k].block_ratio * (double)r[k].ids.n;
        flops += r[k].flops_ratio * (double)r[k].ids.n;
        all += (double)r[k].ids.n;
        made += (double)(r[k].ids.n - r[k].n_prompt);
        speed += isfinite(r[k].tok_s) ? r[k].tok_s : 0;
    }
    if (n == 1 && isfinite(r->time_ratio))
        snprintf(time, sizeof time, ", time %.2f", r->time_ratio);
    speed = w->seconds > 0 ? made / w->seconds : n > 0 ? speed / (double)n : 0;
    if (n == 1)
        snprintf(what, sizeof what, "(%s)", gen_stop_name[r->stop]);
    else
        snprintf(what, sizeof what, "in %zu texts", n);
    if (w->has_colour && w->most > 0 && !w->has_scale && cli_has_colour(stderr))
        show_scale(w);
    gen_note(w, "%.0f tokens %s, %.0f/s; relative to dense: blocks %.2f, FLOPs %.2f%s", made, what,
             speed, all > 0 ? blocks / all : 1, all > 0 ? flops / all : 1, time);
    if (gen_speculates(w->o))
        show_drafts(w, r, n);
}
