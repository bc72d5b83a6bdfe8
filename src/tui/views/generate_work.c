/* The process of the Generate view: requests, streamed tokens, and the text as a probe. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fs.h"
#include "base/mem.h"
#include "tui/generate.h"

/* ---- sampling settings ---- */

/* clang-format off */
const struct generate_setting generate_setting[GENERATE_SETTINGS] = {
    {"temperature", "0 = always the most likely token",             0, offsetof(struct generate, temperature), 0, 100},
    {"top_k",       "from the k most likely tokens; 0 = all",       1, offsetof(struct generate, top_k),       0, 1 << 24},
    {"top_p",       "from the smallest set with this probability",  0, offsetof(struct generate, top_p),       1e-6, 1},
    {"seed",        "the same seed draws the same tokens",          1, offsetof(struct generate, seed),        0, 2147483647},
    {"max_tokens",  "most tokens to generate at once",              1, offsetof(struct generate, max_tokens),  1, 1 << 24},
    {"speculate",   "tokens drafted per pass; 0 = none",            1, offsetof(struct generate, speculate),   0, 64},
    {"draft_exit",  "first layers that draft; 0 = a third",         1, offsetof(struct generate, draft_exit),  0, 1 << 20},
};
/* clang-format on */

static double value_of(const struct generate *g, int i)
{
    const char *at = (const char *)g + generate_setting[i].offset;
    int n;
    double x;
    if (generate_setting[i].is_int) {
        memcpy(&n, at, sizeof n);
        return n;
    }
    memcpy(&x, at, sizeof x);
    return x;
}

void generate_print(const struct generate *g, int i, char *out, size_t size)
{
    snprintf(out, size, "%.10g", value_of(g, i));
}

int generate_set(struct generate *g, int i, const char *text)
{
    const struct generate_setting *s = &generate_setting[i];
    char *at = (char *)g + s->offset, *end;
    double x = strtod(text, &end);
    int n = (int)(x >= s->min && x <= s->max ? x : 0);
    while (*end == ' ')
        end++;
    if (end == text || *end || !(x >= s->min && x <= s->max) || (s->is_int && floor(x) != x)) {
        snprintf(g->wrong, sizeof g->wrong, "%s = %.40s: must be %s from %.10g to %.10g", s->name,
                 text, s->is_int ? "a whole number" : "a number", s->min, s->max);
        return 0;
    }
    g->wrong[0] = '\0';
    if (s->is_int)
        memcpy(at, &n, sizeof n);
    else
        memcpy(at, &x, sizeof x);
    return 1;
}

/* ---- start and stop ---- */

void generate_stop_process(struct generate *g)
{
    session_close(g->session);
    g->session = NULL;
    g->asked = 0;
}

static void token_release(struct generate_token *t)
{
    mem_free(t->piece);
    mem_free(t->run);
    *t = (struct generate_token){0};
}

static void cut_text(struct generate *g, size_t n)
{
    while (g->n > n)
        token_release(&g->token[--g->n]);
    g->is_changed = 1;
}

void generate_forget(struct generate *g)
{
    cut_text(g, 0);
    runview_free(g->now);
    g->now = NULL;
    g->stop[0] = '\0';
}

static int send(struct view *v, struct str *line)
{
    struct generate *g = v->state;
    struct err e = {0};
    int ok = g->session && !line->failed && session_send(g->session, str_text(line), &e) == 0;
    if (!g->session)
        app_notify(v->app, LOG_WARN, "no model loaded: %s", g->trouble);
    else if (!ok)
        app_notify(v->app, LOG_ERROR, "%s", line->failed ? "request: out of memory" : e.text);
    g->asked += ok;
    str_release(line);
    return ok;
}

void generate_start(struct view *v)
{
    struct generate *g = v->state;
    struct err e = {0};
    struct str line = {0};
    char path[1024] = "";
    generate_stop_process(g);
    generate_forget(g);
    runview_free(g->about);
    g->about = NULL;
    g->chat[0] = g->trouble[0] = g->model[0] = '\0'; /* the title names no model of before */
    g->started_newest = g->follows_newest;
    if (!worker_find_model(v->app, g->given, g->follows_newest, path, sizeof path, &g->newest_step,
                           g->trouble, sizeof g->trouble))
        return;
    str_copy(g->model, sizeof g->model, path);
    if (session_open(&g->session, path, &e) < 0) {
        g->session = NULL;
        str_copy(g->trouble, sizeof g->trouble, e.text);
        return;
    }
    g->had_model = 1;
    str_add(&line, "{\"do\":\"info\"}");
    send(v, &line);
}

/* ---- requests ---- */

static void add_sampling(const struct generate *g, struct str *line)
{
    for (int i = 0; i < GENERATE_SETTINGS; i++)
        str_addf(line, ",\"%s\":%.10g", generate_setting[i].name, value_of(g, i));
    str_addf(line, ",\"top\":%d}", GENERATE_TOP);
}

void generate_ask_stop(struct view *v)
{
    struct generate *g = v->state;
    struct str line = {0};
    if (!g->session || g->asked == 0)
        return;
    str_add(&line, "{\"do\":\"stop\"}");
    send(v, &line);
}

/* Sends a request that generates; one in progress ends first. */
static void send_text(struct view *v, struct str *line, size_t keep)
{
    struct generate *g = v->state;
    generate_ask_stop(v);
    add_sampling(g, line);
    if (!send(v, line))
        return;
    g->keep = keep;
    g->choice = -1;
}

/* The text of before stays until the first token of the answer: the request may be refused. */
static void begin_answer(struct generate *g)
{
    cut_text(g, g->keep);
    g->keep = g->n;
    g->stop[0] = '\0';
    g->cells.token = g->n > 0 ? (int)g->n - 1 : 0;
}

void generate_ask_text(struct view *v, const char *text)
{
    struct generate *g = v->state;
    struct str line = {0};
    int is_chat = g->is_chat && g->chat[0];
    size_t keep = is_chat && !g->is_new ? g->n : 0;
    str_addf(&line, "{\"do\":\"%s\",\"text\":", is_chat ? "chat" : "generate");
    str_add_json(&line, text, strlen(text));
    if (is_chat && g->is_new)
        str_add(&line, ",\"new\":true");
    send_text(v, &line, keep);
    g->is_new = 0;
}

void generate_ask_from(struct view *v, size_t keep, const char *text, int32_t id)
{
    struct str line = {0};
    str_addf(&line, "{\"do\":\"generate\",\"keep\":%zu", keep);
    if (text) {
        str_add(&line, ",\"text\":");
        str_add_json(&line, text, strlen(text));
    }
    if (id >= 0)
        str_addf(&line, ",\"ids\":[%d]", (int)id);
    send_text(v, &line, keep);
}

/* The model is on a host, whose files are not ours. */
static void save_here(struct view *v, const char *file)
{
    struct generate *g = v->state;
    struct err e = {0};
    if (!g->session)
        app_notify(v->app, LOG_WARN, "no model loaded: %s", g->trouble);
    else if (session_save(g->session, file, 5, &e) < 0)
        app_notify(v->app, LOG_ERROR, "%s", e.text);
    else {
        g->asked++;
        str_copy(g->saving, sizeof g->saving, file);
    }
}

void generate_ask_save(struct view *v, const char *file)
{
    struct generate *g = v->state;
    struct str line = {0};
    char free_name[1024], name[96];
    if (file)
        str_copy(free_name, sizeof free_name, file);
    for (int i = 1; !file && i < 10000; i++) {
        snprintf(free_name, sizeof free_name, "exports/%.80s-trace-%d.mp",
                 worker_file_name(v->app, g->model, name, sizeof name), i);
        if (!fs_exists(free_name))
            break;
    }
    if (worker_host(v->app, g->model)) {
        save_here(v, free_name);
        return;
    }
    str_add(&line, "{\"do\":\"save\",\"file\":");
    str_add_json(&line, free_name, strlen(free_name));
    str_addf(&line, ",\"lens\":%d}", 5);
    if (send(v, &line))
        str_copy(g->saving, sizeof g->saving, free_name);
}

/* ---- answers ---- */

static void take_choices(struct generate_token *t, struct value body)
{
    struct value id = value_get(body, "top_id"), p = value_get(body, "top_logprob"),
                 text = value_get(body, "top_text");
    size_t n = value_len(id);
    for (t->top = 0; t->top < GENERATE_TOP && (size_t)t->top < n; t->top++) {
        struct generate_choice *c = &t->choice[t->top];
        size_t len = 0;
        const char *piece = value_bytes(value_at(text, (size_t)t->top), &len);
        c->id = (int32_t)value_int(value_at(id, (size_t)t->top), -1);
        c->p = exp(value_num(value_at(p, (size_t)t->top), (double)NAN));
        c->len = len < sizeof c->piece ? len : sizeof c->piece;
        if (piece)
            memcpy(c->piece, piece, c->len);
    }
}

static int mark_of(struct value mark)
{
    return value_is(mark, "accepted") ? 1 : value_is(mark, "corrected") ? 2 : 0;
}

/* A token in its place.  Late ones of a request that was stopped may leave a gap and are dropped, as
 * are those of another number of layers than the text before them. */
static void take_token(struct generate *g, struct value body)
{
    int64_t at = value_int(value_get(body, "index"), -1);
    size_t len = 0, layers = 0;
    const char *piece = value_bytes(value_get(body, "text"), &len),
               *run = value_bytes(value_get(body, "run"), &layers);
    void *grown = g->token;
    if (at == 0)
        begin_answer(g);
    if (at < 0 || (size_t)at > g->n || !piece || !run || layers < 1 ||
        (g->n > 0 && layers != (size_t)g->layers) ||
        mem_grow(&grown, &g->cap, g->n + 1, sizeof *g->token) < 0)
        return;
    g->token = grown;
    struct generate_token t = {
        .id = (int32_t)value_int(value_get(body, "id"), -1),
        .piece = mem_alloc(len + 1, 1),
        .len = len,
        .is_prompt = value_num(value_get(body, "is_prompt"), 0) != 0,
        .depth = value_num(value_get(body, "depth"), (double)NAN),
        .flops = value_num(value_get(body, "flops"), (double)NAN),
        .dense = value_num(value_get(body, "flops_dense"), (double)NAN),
        .logprob = value_num(value_get(body, "logprob"), (double)NAN),
        .time = value_num(value_get(body, "time"), (double)NAN),
        .has_mark = value_len(value_get(body, "mark")) > 0,
        .mark = mark_of(value_get(body, "mark")),
        .run = mem_alloc(layers, 1),
    };
    if (!t.piece || !t.run) {
        token_release(&t);
        return;
    }
    memcpy(t.piece, piece, len);
    memcpy(t.run, run, layers);
    take_choices(&t, body);
    g->layers = (int)layers;
    int follows = (size_t)g->cells.token + 1 >= g->n;
    if ((size_t)at < g->n)
        token_release(&g->token[at]);
    g->token[at] = t;
    g->n += (size_t)at == g->n;
    if (follows)
        g->cells.token = (int)g->n - 1;
    g->is_changed = 1;
}

static void take_result(struct generate *g, struct value body)
{
    size_t n = 0;
    const char *stop = value_bytes(value_get(body, "stop"), &n);
    snprintf(g->stop, sizeof g->stop, "%.*s", (int)(n < 30 ? n : 30), stop ? stop : "?");
    g->tok_s = value_num(value_get(body, "tok_s"), (double)NAN);
    g->block_ratio = value_num(value_get(body, "block_ratio"), (double)NAN);
    g->flops_ratio = value_num(value_get(body, "flops_ratio"), (double)NAN);
    int64_t tokens = value_int(value_get(body, "tokens"), (int64_t)g->n);
    if (tokens >= 0)
        cut_text(g, (size_t)tokens);
}

static void take_head(struct generate *g, struct value body)
{
    size_t n = 0;
    const char *chat = value_bytes(value_get(body, "chat"), &n);
    worker_replace(&g->about, body);
    g->context = (int)value_int(value_get(body, "context"), 0);
    snprintf(g->chat, sizeof g->chat, "%.*s", (int)(n < 30 ? n : 30), chat ? chat : "");
}

static void take_body(struct view *v, struct value body)
{
    struct generate *g = v->state;
    struct value kind = value_get(body, "kind");
    size_t n = 0;
    const char *text = value_bytes(value_get(body, "text"), &n);
    if (value_is(kind, "token")) {
        take_token(g, body);
    } else if (value_is(kind, "generated")) {
        take_result(g, body);
    } else if (value_is(kind, "head")) {
        take_head(g, body);
    } else if (value_is(kind, "done")) {
        g->asked -= g->asked > 0;
        if (value_is(value_get(body, "do"), "save"))
            app_notify(v->app, LOG_INFO, "saved; :open %s shows it in the Depth map", g->saving);
    } else if (value_is(kind, "error")) {
        g->asked -= g->asked > 0;
        app_notify(v->app, LOG_WARN, "model: %.*s", (int)(n > 200 ? 200 : n),
                   text ? text : "error");
    }
}

int generate_take(struct view *v)
{
    struct generate *g = v->state;
    struct value body;
    struct err e = {0};
    int changed = 0, rc = 0;
    for (int i = 0; g->session && i < 2048 && (rc = worker_next(v->app, g->session, &body, &e)) > 0;
         i++) {
        take_body(v, body);
        changed = 1;
    }
    if (g->session && rc < 0) { /* the text stays */
        str_copy(g->trouble, sizeof g->trouble, e.text);
        generate_stop_process(g);
        changed = 1;
    }
    return changed;
}

/* ---- the text as a probe ---- */

static void fill(struct record *r, const struct generate *g)
{
    size_t n = g->n, L = (size_t)g->layers;
    unsigned char *run = mem_alloc(n * L, 1);
    float *depth = mem_alloc(3 * n, sizeof *depth), *nll = depth ? depth + n : NULL,
          *flops = depth ? nll + n : NULL;
    int32_t *id = mem_alloc(n, sizeof *id);
    const char **piece = mem_alloc(n, sizeof *piece);
    size_t *len = mem_alloc(n, sizeof *len);
    double dense = 0;
    if (run && depth && id && piece && len) {
        for (size_t t = 0; t < n; t++) {
            const struct generate_token *x = &g->token[t];
            depth[t] = (float)x->depth;
            nll[t] = (float)-x->logprob;
            flops[t] = (float)x->flops;
            dense += x->dense / (double)n;
            id[t] = x->id;
            piece[t] = x->piece;
            len[t] = x->len;
            for (size_t l = 0; l < L; l++)
                run[l * n + t] = x->run[l];
        }
        record_str(r, "name", "generated");
        record_int(r, "layers", g->layers);
        record_i32s(r, "ids", id, n);
        record_pieces(r, "text", piece, len, n);
        record_bytes(r, "run", run, n * L);
        record_f32s(r, "depth", depth, n);
        record_f32s(r, "nll", nll, n);
        record_f32s(r, "flops", flops, n);
        record_num(r, "flops_dense", dense);
    }
    mem_free(run);
    mem_free(depth);
    mem_free(id);
    mem_free(piece);
    mem_free(len);
}

/* The text of drafted and corrected tokens has their role's colour, where there are any. */
static void fill_tones(struct generate *g)
{
    void *grown = g->tone;
    int has_any = 0;
    g->cells.tone = NULL;
    if (mem_grow(&grown, &g->tone_cap, g->n + 1, 1) < 0)
        return;
    g->tone = grown;
    for (size_t t = 0; t < g->n; t++) {
        g->tone[t] = (unsigned char)cells_mark_role(g->token[t].mark);
        has_any |= g->token[t].has_mark;
    }
    g->cells.tone = has_any ? g->tone : NULL;
}

int generate_prepare(struct view *v)
{
    struct generate *g = v->state;
    if (g->is_changed) {
        struct record *r = record_new();
        fill_tones(g);
        g->is_changed = 0;
        if (r && g->n > 0) {
            record_begin(r, "probe", 0, 0);
            fill(r, g);
            worker_replace_by(&g->now, r);
        }
        record_free(r);
    }
    if (g->cells.token != g->choice_at) /* the cursor moved: by a key, a search, or a new token */
        g->choice = -1;
    g->cells.view = g->about;
    g->cells.probe = g->n > 0 ? worker_probe(g->now) : NULL;
    return g->cells.probe && (size_t)g->cells.probe->tokens == g->n && cells_fit(&g->cells) == 0;
}

double generate_speed(const struct generate *g)
{
    size_t first = g->n;
    if (g->stop[0])
        return g->tok_s;
    while (first > 0 && !g->token[first - 1].is_prompt)
        first--;
    double made = (double)g->n - (double)first - 1;
    return made > 0 ? made / (g->token[g->n - 1].time - g->token[first].time) : (double)NAN;
}
