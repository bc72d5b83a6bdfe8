/* Generate: completion and chat with a loaded model; every token shows what it cost and what else
 * was likely, and the text can be continued from any of them. */
#include "tui/generate.h"

#include <string.h>

#include "base/mem.h"

static int generate_open(struct view *v, struct err *e)
{
    struct generate *g = v->state;
    (void)e;
    g->temperature = 0.8;
    g->top_k = 40;
    g->top_p = 0.95;
    g->seed = 1;
    g->max_tokens = 128;
    g->choice = -1;
    return 0;
}

static void generate_close(struct view *v)
{
    struct generate *g = v->state;
    generate_stop_process(g);
    generate_forget(g);
    runview_free(g->about);
    mem_free(g->token);
    mem_free(g->tone);
    field_release(&g->field);
    cells_release(&g->cells);
}

static void end_typing(struct view *v)
{
    struct generate *g = v->state;
    g->typing = GENERATE_NOT_TYPING;
    v->grabs = g->has_form ? GRAB_FORM : GRAB_NONE;
}

/* The current run changed: its model is loaded when the view is shown next. */
static void generate_run_changed(struct view *v)
{
    struct generate *g = v->state;
    if (g->given[0])
        return;
    generate_stop_process(g);
    generate_forget(g);
    g->had_model = g->is_started = g->has_form = 0;
    end_typing(v);
}

static void start_once(struct view *v)
{
    struct generate *g = v->state;
    if (!g->is_started || g->started_newest != g->follows_newest)
        generate_start(v);
    g->is_started = 1;
}

static void show(struct view *v, struct area a)
{
    start_once(v);
    if (app_is_scripted(v->app))
        generate_take(v);
    generate_draw(v, a);
}

/* ---- keys ---- */

static int has_text(struct view *v)
{
    if (generate_prepare(v))
        return 1;
    app_notify(v->app, LOG_INFO, "no text yet; i types a prompt");
    return 0;
}

static void key_move(struct view *v, const struct key *k, const char *args)
{
    struct generate *g = v->state;
    (void)args;
    if (!generate_prepare(v))
        return;
    g->choice = -1;
    cells_go(&g->cells, (enum cells_move)k->value);
    cells_moved(&g->cells, app_is_scripted(v->app));
}

/* The likely tokens at the cursor; above the first one none is selected. */
static void key_choose(struct view *v, const struct key *k, const char *args)
{
    struct generate *g = v->state;
    (void)args;
    if (!generate_prepare(v))
        return;
    int to = g->choice + k->value, n = g->token[g->cells.token].top;
    g->choice = to < -1 ? -1 : to >= n ? n - 1 : to;
    g->choice_at = g->cells.token;
}

static void key_type(struct view *v, const struct key *k, const char *args)
{
    struct generate *g = v->state;
    const char *kept = app_recall(v->app, "stepper.prompt");
    (void)k;
    if (args && *args) {
        generate_ask_text(v, args);
        return;
    }
    g->typing = GENERATE_PROMPT;
    v->grabs = GRAB_TEXT;
    field_set(&g->field, g->is_chat && g->chat[0] ? "" : kept ? kept : "");
}

static void key_change(struct view *v, const struct key *k, const char *args)
{
    struct generate *g = v->state;
    (void)k;
    if (!has_text(v))
        return;
    if (args && *args) {
        generate_ask_from(v, (size_t)g->cells.token, args, -1);
        return;
    }
    g->typing = GENERATE_CHANGE;
    v->grabs = GRAB_TEXT;
    field_set(&g->field, g->token[g->cells.token].piece);
}

/* The next seed: the same one would draw the same tokens. */
static void key_again(struct view *v, const struct key *k, const char *args)
{
    struct generate *g = v->state;
    (void)k, (void)args;
    if (!has_text(v))
        return;
    g->seed = g->seed < 2147483647 ? g->seed + 1 : 1;
    generate_ask_from(v, (size_t)g->cells.token, NULL, -1);
}

/* At the end, or with the selected token from the cursor on. */
static void key_continue(struct view *v, const struct key *k, const char *args)
{
    struct generate *g = v->state;
    (void)k, (void)args;
    if (!has_text(v))
        return;
    size_t at = (size_t)g->cells.token;
    if (g->choice >= 0)
        generate_ask_from(v, at, NULL, g->token[at].choice[g->choice].id);
    else
        generate_ask_from(v, g->n, NULL, -1);
}

static void key_stop(struct view *v, const struct key *k, const char *args)
{
    (void)k, (void)args;
    generate_ask_stop(v);
}

static void key_chat(struct view *v, const struct key *k, const char *args)
{
    struct generate *g = v->state;
    (void)args;
    if (!g->chat[0]) {
        app_notify(v->app, LOG_INFO,
                   g->about ? "this model has no chat template that is supported: completion only"
                            : "the model is not loaded yet");
        return;
    }
    if (k->value) /* a new conversation */
        g->is_chat = 1;
    else
        g->is_chat = !g->is_chat;
    g->is_new = k->value;
}

static void key_sampling(struct view *v, const struct key *k, const char *args)
{
    struct generate *g = v->state;
    (void)k, (void)args;
    g->has_form = 1;
    g->wrong[0] = '\0';
    v->grabs = GRAB_FORM;
}

static void key_set(struct view *v, const struct key *k, const char *args)
{
    struct generate *g = v->state;
    if (!generate_set(g, k->value, args ? args : ""))
        app_notify(v->app, LOG_WARN, "%s", g->wrong);
    g->wrong[0] = '\0';
}

static void key_save(struct view *v, const struct key *k, const char *args)
{
    (void)k;
    if (has_text(v))
        generate_ask_save(v, args && *args ? args : NULL);
}

static void load(struct view *v)
{
    struct generate *g = v->state;
    g->is_started = 1;
    generate_start(v);
}

static void key_model(struct view *v, const struct key *k, const char *args)
{
    struct generate *g = v->state;
    (void)k;
    str_copy(g->given, sizeof g->given, args ? args : "");
    load(v);
}

static void key_which(struct view *v, const struct key *k, const char *args)
{
    struct generate *g = v->state;
    (void)k, (void)args;
    g->follows_newest = !g->follows_newest;
    load(v);
}

static void key_reload(struct view *v, const struct key *k, const char *args)
{
    (void)k, (void)args;
    load(v);
}

static void key_wide(struct view *v, const struct key *k, const char *args)
{
    struct generate *g = v->state;
    (void)k, (void)args;
    g->cells.wide = (g->cells.wide + 1) % (CELLS_WIDE_MAX + 1);
}

/* ---- events ---- */

static void take_field(struct view *v)
{
    struct generate *g = v->state;
    const char *text = str_text(&g->field.text);
    enum generate_typing was = g->typing;
    if (was == GENERATE_VALUE) {
        if (generate_set(g, (int)g->form.cursor, text))
            end_typing(v);
        return; /* else the field stays open with its error */
    }
    end_typing(v);
    if (g->field.text.len == 0) {
        app_notify(v->app, LOG_INFO, "nothing was typed");
    } else if (was == GENERATE_CHANGE) {
        if (generate_prepare(v))
            generate_ask_from(v, (size_t)g->cells.token, text, -1);
    } else {
        if (!(g->is_chat && g->chat[0]))
            app_remember(v->app, "stepper.prompt", text);
        generate_ask_text(v, text);
    }
}

static int typing_event(struct view *v, const struct event *ev)
{
    struct generate *g = v->state;
    if (ev->kind == EVENT_KEY && ev->key == KEYCODE_ENTER)
        take_field(v);
    else if (ev->kind == EVENT_KEY && ev->key == KEYCODE_ESC) {
        g->wrong[0] = '\0';
        end_typing(v);
    } else
        return field_event(&g->field, ev);
    return 1;
}

static int form_event(struct view *v, const struct event *ev)
{
    struct generate *g = v->state;
    char text[32];
    if (ev->kind != EVENT_KEY)
        return 1;
    if (ev->key == KEYCODE_ESC || ev->key == 's' || ev->key == 'q') {
        g->has_form = 0;
        v->grabs = GRAB_NONE;
    } else if (ev->key == KEYCODE_ENTER) {
        generate_print(g, (int)g->form.cursor, text, sizeof text);
        field_set(&g->field, text);
        g->typing = GENERATE_VALUE;
    } else {
        list_event(&g->form, ev);
    }
    return 1;
}

static int generate_event(struct view *v, const struct event *ev)
{
    struct generate *g = v->state;
    if (g->typing != GENERATE_NOT_TYPING)
        return typing_event(v, ev);
    if (g->has_form)
        return form_event(v, ev);
    if (ev->kind == EVENT_PASTE) { /* pasted text is a prompt */
        g->typing = GENERATE_PROMPT;
        v->grabs = GRAB_TEXT;
        field_set(&g->field, "");
        return field_event(&g->field, ev);
    }
    if (!generate_prepare(v) || !cells_event(&g->cells, ev))
        return 0;
    g->choice = -1;
    cells_moved(&g->cells, app_is_scripted(v->app));
    return 1;
}

static int generate_poll(struct view *v)
{
    start_once(v);
    return generate_take(v) | cells_settled(&((struct generate *)v->state)->cells);
}

static int generate_fd(struct view *v)
{
    const struct generate *g = v->state;
    return g->session ? session_fd(g->session) : -1;
}

static double generate_due(struct view *v)
{
    const struct generate *g = v->state;
    return cells_due(&g->cells);
}

static int generate_search(struct view *v, const char *text, int direction)
{
    struct generate *g = v->state;
    return generate_prepare(v) && cells_search(&g->cells, text, direction);
}

static void generate_copy(struct view *v, struct str *out)
{
    const struct generate *g = v->state;
    for (size_t t = 0; t < g->n; t++)
        str_add_bytes(out, g->token[t].piece, g->token[t].len);
}

/* clang-format off */
static const struct key generate_keys[] = {
    {"i",          "prompt",     "TEXT", "type a prompt, or a message of a chat", "prompt", 74, 0, 0, key_type},
    {"Enter",      "continue",   NULL, "continue at the end, or with the selected token", "continue", 72, 0, 0, key_continue},
    {"r",          "regenerate", NULL, "draw again from the cursor with the next seed", "again", 70, 0, 0, key_again},
    {"c",          "change",     "TEXT", "replace the token at the cursor and continue", "change", 64, 0, 0, key_change},
    {"x",          "halt",       NULL, "stop generating",                     "stop",     68, 0, 0, key_stop},
    {"s",          "sampling",   NULL, "sampling settings",                   "sampling", 66, 0, 0, key_sampling},
    {"t",          "chat",       NULL, "completion or chat",                  "chat",     46, 0, 0, key_chat},
    {"C",          "new-chat",   NULL, "the next message starts a conversation", NULL,    0, 0, 1, key_chat},
    {"S",          "save-trace", "FILE", "save the text as a trace (default: in exports/)", "save", 60, 0, 0, key_save},
    {"j Down",     "down",       NULL, "select the next likely token",       "choose",   62, 0, 1, key_choose},
    {"k Up",       "up",         NULL, "select the previous likely token",    NULL,       0, KEY_HIDDEN, -1, key_choose},
    {"m",          "which",      NULL, "best or newest checkpoint",           NULL,       0, KEY_VIEW_CHANGE, 0, key_which},
    {"R",          "reload",     NULL, "reload the model",                    NULL,       0, 0, 0, key_reload},
    {"",           "model",      "PATH", "load another model; without PATH that of the run", NULL, 0, 0, 0, key_model},
    {"",           "temperature", "X", "sampling temperature; 0 = greedy",    NULL,       0, KEY_VIEW_CHANGE, 0, key_set},
    {"",           "top-k",      "N",  "sample from the k most likely tokens; 0 = all", NULL, 0, KEY_VIEW_CHANGE, 1, key_set},
    {"",           "top-p",      "X",  "sample from the smallest set with this probability", NULL, 0, KEY_VIEW_CHANGE, 2, key_set},
    {"",           "seed",       "N",  "random seed",                         NULL,       0, KEY_VIEW_CHANGE, 3, key_set},
    {"",           "max-tokens", "N",  "most tokens to generate at once",     NULL,       0, KEY_VIEW_CHANGE, 4, key_set},
    {"",           "speculate",  "N",  "tokens drafted per pass of the whole model; 0 = none", NULL, 0, KEY_VIEW_CHANGE, 5, key_set},
    {"",           "draft-exit", "E",  "the first layers that draft; 0 = a third", NULL, 0, KEY_VIEW_CHANGE, 6, key_set},
    {"w",          "width",      NULL, "columns per token: automatic, 4, 8 or 16", NULL,  0, KEY_VIEW_CHANGE, 0, key_wide},
    {"h Left",     "left",       NULL, "previous token",                      NULL,       0, KEY_HIDDEN, CELLS_LEFT,       key_move},
    {"l Right",    "right",      NULL, "next token",                          NULL,       0, KEY_HIDDEN, CELLS_RIGHT,      key_move},
    {"PgUp C-u H", "page-left",  NULL, "previous page of tokens",             NULL,       0, KEY_HIDDEN, CELLS_PAGE_LEFT,  key_move},
    {"PgDn C-d L", "page-right", NULL, "next page of tokens",                 NULL,       0, KEY_HIDDEN, CELLS_PAGE_RIGHT, key_move},
    {"gg Home",    "first",      NULL, "first token",                         NULL,       0, KEY_HIDDEN, CELLS_FIRST,      key_move},
    {"G End",      "last",       NULL, "last token, which is followed",       NULL,       0, KEY_HIDDEN, CELLS_LAST,       key_move},
    {0},
};
static const struct setting generate_settings[] = {
    {"temperature", SETTING_REAL, offsetof(struct generate, temperature),    0, 100},
    {"top_k",       SETTING_INT,  offsetof(struct generate, top_k),          0, 1 << 24},
    {"top_p",       SETTING_REAL, offsetof(struct generate, top_p),          1e-6, 1},
    {"seed",        SETTING_INT,  offsetof(struct generate, seed),           0, 2147483647},
    {"max_tokens",  SETTING_INT,  offsetof(struct generate, max_tokens),     1, 1 << 24},
    {"speculate",   SETTING_INT,  offsetof(struct generate, speculate),      0, 64},
    {"draft_exit",  SETTING_INT,  offsetof(struct generate, draft_exit),     0, 1 << 20},
    {"newest",      SETTING_INT,  offsetof(struct generate, follows_newest), 0, 1},
    {"wide",        SETTING_INT,  offsetof(struct generate, cells.wide),     0, CELLS_WIDE_MAX},
    {0},
};

const struct view_ops view_generate = {
    .name = "generate",  .title = "Generate",
    .summary = "Completion and chat: text coloured by depth, what else was likely at every token, and the cost.",
    .keys = generate_keys,  .settings = generate_settings,  .state_size = sizeof(struct generate),
    .open = generate_open,  .close = generate_close,  .draw = show,  .event = generate_event,
    .poll = generate_poll,  .fd = generate_fd,  .due = generate_due,
    .run_changed = generate_run_changed,  .search = generate_search,  .copy = generate_copy,
};
/* clang-format on */
