/* Key names, key tables, and decoding of terminal bytes into events. */
#include "t.h"

#include "tui/keymap.h"
#include "tui/view.h"

struct seen {
    struct event ev[64];
    char text[64];
    int n;
};

static void take(void *ctx, const struct event *ev)
{
    struct seen *s = ctx;
    if (ev->kind == EVENT_PASTE)
        snprintf(s->text, sizeof s->text, "%.*s", (int)(ev->len < 60 ? ev->len : 60), ev->text);
    if (s->n < 64)
        s->ev[s->n++] = *ev;
}

static struct seen feed(const char *bytes, size_t n)
{
    struct decoder d = {0};
    struct seen s = {0};
    for (size_t i = 0; i < n; i++) /* worst case: one byte per read */
        decoder_feed(&d, bytes + i, 1, take, &s);
    decoder_flush(&d, take, &s);
    decoder_release(&d);
    return s;
}
#define FEED(text) feed(text, sizeof(text) - 1)

T(key_names_and_codes_convert_both_ways)
{
    static const char *const names[] = {"j",  "Up",  "C-d",   "PgDn",    "S-Tab",
                                        "F5", "M-x", "Space", "C-Right", "\xC3\xA4"};
    for (size_t i = 0; i < DS_LEN(names); i++) {
        char out[24];
        uint32_t key = key_parse(names[i], strlen(names[i]));
        t_true(key != 0);
        t_str(key_print(out, key), names[i]);
    }
    t_eq(key_parse("nonsense", 8), 0);
    t_eq(key_parse("", 0), 0);
}

T(arrows_mouse_and_modifiers_are_decoded)
{
    struct seen s = FEED(
        "\x1b[A\x1bOB\x1b[1;5C\x1b[5~\x1b[<0;10;5M\x1b[<0;10;5m\x1b[<64;1;1M\x1b[Z\x1bx\xC3\xA4");
    t_eq(s.n, 10);
    t_eq(s.ev[0].key, KEYCODE_UP);
    t_eq(s.ev[1].key, KEYCODE_DOWN);
    t_eq(s.ev[2].key, KEYCODE_CTRL | KEYCODE_RIGHT);
    t_eq(s.ev[3].key, KEYCODE_PGUP);
    t_true(s.ev[4].action == MOUSE_PRESS && s.ev[4].x == 9 && s.ev[4].y == 4 &&
           s.ev[4].button == 1);
    t_eq(s.ev[5].action, MOUSE_RELEASE);
    t_eq(s.ev[6].action, MOUSE_WHEEL_UP);
    t_eq(s.ev[7].key, KEYCODE_BACKTAB);
    t_eq(s.ev[8].key, KEYCODE_ALT | 'x');
    t_eq(s.ev[9].key, 0xE4);
}

/* One sequence and the one key that it is; what follows must arrive untouched. */
static void one_key(const char *bytes, uint32_t key)
{
    char text[40];
    snprintf(text, sizeof text, "%sj", bytes);
    struct seen s = feed(text, strlen(text));
    t_truef(s.n == 2 && s.ev[0].kind == EVENT_KEY && s.ev[0].key == key && s.ev[1].key == 'j',
            "ESC %s: %d events, key %#x", bytes + 1, s.n, s.n ? s.ev[0].key : 0);
}

T(keys_of_other_terminals_are_decoded)
{
    static const struct {
        const char *bytes;
        uint32_t key;
    } table[] = {
        {"\x1b[a", KEYCODE_SHIFT | KEYCODE_UP}, /* rxvt */
        {"\x1bOc", KEYCODE_CTRL | KEYCODE_RIGHT},
        {"\x1b[3$", KEYCODE_SHIFT | KEYCODE_DELETE},
        {"\x1b[5^", KEYCODE_CTRL | KEYCODE_PGUP},
        {"\x1b[7@", KEYCODE_CTRL | KEYCODE_SHIFT | KEYCODE_HOME},
        {"\x1b\t", KEYCODE_BACKTAB}, /* the Linux console */
        {"\x1b[[E", KEYCODE_F1 + 4},
        {"\x1bO5P", KEYCODE_CTRL | KEYCODE_F1}, /* konsole */
        {"\x1bO1;2S", KEYCODE_SHIFT | (KEYCODE_F1 + 3)},
        {"\x1bOM", KEYCODE_ENTER}, /* the numeric pad in application mode */
        {"\x1bOp", '0'},
        {"\x1bOy", '9'},
        {"\x1bOk", '+'},
        {"\x1bOm", '-'},
        {"\x1bOX", '='},
        {"\x1b[1;9A", KEYCODE_ALT | KEYCODE_UP}, /* Meta: iTerm2 */
        {"\x1b\x1b[C", KEYCODE_ALT | KEYCODE_RIGHT}, /* Alt as a second ESC: rxvt, PuTTY */
        {"\x1b\x1b[5~", KEYCODE_ALT | KEYCODE_PGUP},
        {"\x1b\x1bOP", KEYCODE_ALT | KEYCODE_F1},
        {"\x1b[27;5;100~", KEYCODE_CTRL | 'd'}, /* xterm's modifyOtherKeys */
        {"\x1b[27;2;9~", KEYCODE_BACKTAB},
        {"\x1b[103;2u", 'G'},
        {"\x1b[127u", KEYCODE_BACKSPACE},
    };
    for (size_t i = 0; i < DS_LEN(table); i++)
        one_key(table[i].bytes, table[i].key);
}

static void one_press(const char *bytes, size_t n, enum mouse_action action, int button, int x, int y)
{
    char text[40];
    memcpy(text, bytes, n);
    text[n] = 'j';
    struct seen s = feed(text, n + 1);
    t_truef(s.n == 2 && s.ev[1].key == 'j', "ESC %s: %d events", bytes + 1, s.n);
    t_eq(s.ev[0].kind, EVENT_MOUSE);
    t_eq(s.ev[0].action, action);
    t_true(s.ev[0].x == x && s.ev[0].y == y && (!button || s.ev[0].button == button));
}
#define PRESS(text, ...) one_press(text, sizeof(text) - 1, __VA_ARGS__)

T(mouse_of_terminals_without_mode_1006_is_decoded)
{
    PRESS("\x1b[M *%", MOUSE_PRESS, 1, 9, 4); /* X10 bytes */
    PRESS("\x1b[M#*%", MOUSE_RELEASE, 0, 9, 4);
    PRESS("\x1b[M@*%", MOUSE_DRAG, 1, 9, 4);
    PRESS("\x1b[M`*%", MOUSE_WHEEL_UP, 0, 9, 4);
    PRESS("\x1b[Ma*\xff", MOUSE_WHEEL_DOWN, 0, 9, 222);
    PRESS("\x1b[32;300;5M", MOUSE_PRESS, 1, 299, 4); /* rxvt's 1015 */
    PRESS("\x1b[35;300;5M", MOUSE_RELEASE, 0, 299, 4);
    PRESS("\x1b[96;1;1M", MOUSE_WHEEL_UP, 0, 0, 0);
    t_eq(FEED("\x1b[M \0!j").n, 1); /* a column that one byte cannot hold */
    t_eq(FEED("\x1b[<128;4;4Mj").n, 1);
}

T(a_sequence_without_its_end_loses_nothing_after_it)
{
    struct seen s = FEED("\x1b[1;\x1b[A\x1bO\x1b[Bj");
    t_eq(s.n, 4);
    t_eq(s.ev[0].key, KEYCODE_UP);
    t_eq(s.ev[1].key, KEYCODE_ALT | 'O');
    t_eq(s.ev[2].key, KEYCODE_DOWN);
    t_eq(s.ev[3].key, 'j');
}

/* Esc and what follows at once, where that is not a key. */
T(escape_before_anything_but_a_key_stays_escape)
{
    struct seen s = FEED("\x1b\x1b");
    t_true(s.n == 2 && s.ev[0].key == KEYCODE_ESC && s.ev[1].key == KEYCODE_ESC);
    s = FEED("\x1b\x1b\x1b[A");
    t_true(s.n == 2 && s.ev[0].key == KEYCODE_ESC && s.ev[1].key == (KEYCODE_ALT | KEYCODE_UP));
    s = FEED("\x1b\x1b[?2026;2$yj"); /* a late reply */
    t_true(s.n == 2 && s.ev[0].key == KEYCODE_ESC && s.ev[1].key == 'j');
    s = FEED("\x1b\x1b[<0;10;5Mj");
    t_true(s.n == 3 && s.ev[0].key == KEYCODE_ESC && s.ev[1].kind == EVENT_MOUSE);
    s = FEED("\x1b\x1b[200~text\x1b[201~j");
    t_true(s.n == 3 && s.ev[0].key == KEYCODE_ESC && s.ev[1].kind == EVENT_PASTE);
    s = FEED("\x1b\x1bj");
    t_true(s.n == 2 && s.ev[0].key == KEYCODE_ESC && s.ev[1].key == (KEYCODE_ALT | 'j'));
    s = FEED("\x1b\x1b[");
    t_true(s.n == 2 && s.ev[0].key == KEYCODE_ESC && s.ev[1].key == (KEYCODE_ALT | '['));
}

T(lone_escape_is_a_key_after_the_pause)
{
    struct seen s = FEED("\x1b");
    t_eq(s.n, 1);
    t_eq(s.ev[0].key, KEYCODE_ESC);
}

T(late_replies_are_swallowed)
{
    struct seen s =
        FEED("\x1b[?2026;2$y\x1b[?1;2c\x1b]11;rgb:1414/1818/1e1e\x07\x1bP1+r524742\x1b\\a");
    t_eq(s.n, 1);
    t_eq(s.ev[0].key, 'a');
    struct decoder d = {.background = -1};
    static const char reply[] = "\x1b[?2026;2$y\x1b]11;rgb:1414/1818/1e1e\x1b\\";
    decoder_feed(&d, reply, sizeof reply - 1, take, &s);
    t_eq(d.sync_output, 1);
    t_eq(d.background, 0x14181E);
    decoder_release(&d);
}

T(paste_is_text_and_bounded)
{
    struct seen s = FEED("\x1b[200~q\x1b[Aq\x1b[201~z");
    t_eq(s.n, 2);
    t_eq(s.ev[0].kind, EVENT_PASTE);
    t_str(s.text, "q\x1b[Aq");
    t_eq(s.ev[1].key, 'z');
    struct decoder d = {0};
    struct seen big = {0};
    char block[4096];
    memset(block, 'x', sizeof block);
    decoder_feed(&d, "\x1b[200~", 6, take, &big);
    for (int i = 0; i < 2560; i++)
        decoder_feed(&d, block, sizeof block, take, &big);
    t_true(d.paste.len <= DECODE_PASTE_MAX + 64);
    decoder_feed(&d, "\x1b[201~", 6, take, &big);
    t_eq(big.n, 1);
    t_eq(d.in_paste, 0);
    decoder_release(&d);
}

T(malformed_input_yields_no_keys_and_recovers)
{
    struct seen s = FEED("\xFF\xC3(\x1b[<999999999;0;0M\x1b["
                         "99999999999999999999999999999999999999999999999999999999999999999999Aj");
    t_true(s.n >= 1);
    t_eq(s.ev[s.n - 1].key, 'j');
}

T(key_sequences_wait_until_complete)
{
    static const struct key table[] = {{"gg", "first", NULL, "h", NULL, 0, 0, 0, NULL},
                                       {"]n", "next", NULL, "h", NULL, 0, 0, 0, NULL},
                                       {"g", "g", NULL, "h", NULL, 0, 0, 0, NULL},
                                       {0}};
    uint32_t pressed[2] = {'g', 'g'};
    int is_prefix;
    t_str(keys_match(table, pressed, 1, &is_prefix)->command, "g");
    t_eq(is_prefix, 1);
    t_str(keys_match(table, pressed, 2, &is_prefix)->command, "first");
    pressed[0] = 'x';
    t_true(keys_match(table, pressed, 1, &is_prefix) == NULL && !is_prefix);
}

/* Every row of a key table can be pressed, named and documented. */
static void check_table(const struct key *table)
{
    for (const struct key *k = table; k && k->command; k++) {
        t_truef(k->fn && k->help && k->keys, "row %s lacks a function, help or keys", k->command);
        for (const char *p = k->keys; *p;) {
            size_t n = strcspn(p, " ");
            uint32_t one = key_parse(p, n);
            t_truef(one || n <= KEYS_PENDING_MAX, "%s: no key %.*s", k->command, (int)n, p);
            p += n + (p[n] == ' ');
        }
        for (const struct key *other = table; other != k; other++)
            t_truef(strcmp(other->command, k->command) != 0, "command %s twice", k->command);
    }
}

static int has_key(const struct key *row, const char *key, size_t n)
{
    for (const char *p = row->keys ? row->keys : ""; *p; p += *p == ' ') {
        size_t len = strcspn(p, " ");
        if (len == n && memcmp(p, key, n) == 0)
            return 1;
        p += len;
    }
    return 0;
}

/* n, N, u, y, q and the other global keys mean the same in every view: after a search, n must not start a run. */
T(no_view_redefines_a_global_key)
{
    int seen = 0;
    for (const struct key *g = keys_global; g->command; g++)
        for (const char *p = g->keys; *p; p += *p == ' ') {
            size_t n = strcspn(p, " ");
            for (int i = 0; view_registry[i]; i++)
                for (const struct key *k = view_registry[i]->keys; k && k->command; k++)
                    t_truef(!has_key(k, p, n) || strcmp(k->command, g->command) == 0,
                            "%s: %.*s is :%s, elsewhere :%s", view_registry[i]->name, (int)n, p,
                            k->command, g->command);
            seen++;
            p += n;
        }
    t_true(seen > 25);
}

/* What the reserved keys do, in every table that has them. */
static const struct {
    const char *key, *command;
} reserved[] = {
    {"h", "left"},   {"j", "down"},       {"k", "up"},      {"l", "right"},   {"gg", "first"},
    {"G", "last"},   {"n", "next-match"}, {"/", "search"},  {":", "command"}, {"N", "prev-match"},
    {"?", "help"},   {"q", "quit"},       {"e", "export"},  {"y", "copy"},    {"u", "undo"},
    {"a", "new"},    {"=", "explain"}, {"Space", "mark"},   {"Tab", "focus"}, {"V", "view"},    {"1", "view-1"},
    {"2", "view-2"}, {"3", "view-3"},     {"4", "view-4"},  {"5", "view-5"},  {"6", "view-6"},
    {"7", "view-7"}, {"8", "view-8"},     {"9", "view-9"},
};

/* 1 when a sequence of keys begins with a reserved key, which must then be all of it. */
static const char *reserved_command(const char *keys, size_t n)
{
    for (size_t i = 0; i < DS_LEN(reserved); i++) {
        const char *key = reserved[i].key;
        size_t len = strlen(key);
        if (len == n && memcmp(key, keys, n) == 0)
            return reserved[i].command;
        if (!key_parse(keys, n) && keys[0] == key[0])
            return "a reserved key";
    }
    return keys[0] == 'g' && n == 1 ? "the prefix of gg" : NULL;
}

static void check_reserved(const char *where, const struct key *table, int *seen)
{
    for (const struct key *k = table; k && k->command; k++)
        for (const char *p = k->keys; *p; p += *p == ' ') {
            size_t n = strcspn(p, " ");
            const char *meaning = reserved_command(p, n);
            t_truef(!meaning || strcmp(meaning, k->command) == 0,
                    "%s: %.*s is :%s, reserved for %s", where, (int)n, p, k->command,
                    meaning ? meaning : "");
            *seen += meaning != NULL;
            p += n;
        }
}

T(reserved_keys_mean_the_same_in_every_view)
{
    int seen = 0;
    check_reserved("all views", keys_global, &seen);
    t_eq(seen, 22); /* h j k l gg G Space belong to tables of views only */
    for (int i = 0; view_registry[i]; i++)
        check_reserved(view_registry[i]->name, view_registry[i]->keys, &seen);
    t_true(seen > 22 + 20);
    t_str(reserved_command("g", 1), "the prefix of gg");
    t_str(reserved_command("gd", 2), "a reserved key");
    t_true(reserved_command("C-d", 3) == NULL && reserved_command("]n", 2) == NULL);
}

T(the_number_keys_count_up_from_the_first_view)
{
    int rows = 0;
    for (const struct key *k = keys_global; k->command; k++) {
        if (strncmp(k->command, "view-", 5) != 0)
            continue;
        t_eq(k->value, rows);
        rows++;
        t_true(k->keys[0] == '0' + rows && k->keys[1] == '\0');
    }
    t_eq(rows, 9);
}

T(every_row_of_every_key_table_is_complete)
{
    struct str md = {0};
    check_table(keys_global);
    for (int i = 0; view_registry[i]; i++) {
        check_table(view_registry[i]->keys);
        t_true(view_registry[i]->draw && view_registry[i]->summary && view_registry[i]->name);
        t_true(view_find(view_registry[i]->name) == view_registry[i]);
    }
    keys_markdown(&md);
    t_true(strstr(md.p, "### Monitor") && strstr(md.p, "| `?` | `:help` |"));
    str_release(&md);
}
