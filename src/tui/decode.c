/* Decodes the bytes of a terminal into events.  Unlike ncurses it works without
 * terminfo, supports SGR mouse and bracketed paste everywhere, and swallows late replies. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "tui/keymap.h"

typedef void emit_fn(void *ctx, const struct event *ev);

static void emit_key(emit_fn *fn, void *ctx, uint32_t key)
{
    struct event ev = {.kind = EVENT_KEY, .key = key};
    fn(ctx, &ev);
}

/* A single byte below 0x20, or DEL. */
static uint32_t control_key(unsigned char c)
{
    switch (c) {
    case '\r':
    case '\n': return KEYCODE_ENTER;
    case '\t': return KEYCODE_TAB;
    case 0x7F:
    case 0x08: return KEYCODE_BACKSPACE;
    case 0x1B: return KEYCODE_ESC;
    case 0: return KEYCODE_CTRL | ' ';
    default: return KEYCODE_CTRL | (uint32_t)(c < 0x1B ? 'a' + c - 1 : '4' + c - 0x1C);
    }
}

static uint32_t letter_key(unsigned char final)
{
    static const char finals[] = "ABCDHFPQRSZ";
    static const uint32_t codes[] = {KEYCODE_UP,     KEYCODE_DOWN,   KEYCODE_RIGHT,  KEYCODE_LEFT,
                                     KEYCODE_HOME,   KEYCODE_END,    KEYCODE_F1,     KEYCODE_F1 + 1,
                                     KEYCODE_F1 + 2, KEYCODE_F1 + 3, KEYCODE_BACKTAB};
    const char *at = final ? strchr(finals, final) : NULL;
    return at ? codes[at - finals] : 0;
}

/* Keys of the numeric pad in application mode, after ESC O. */
static uint32_t keypad_key(unsigned char final)
{
    static const char finals[] = "jklmnopqrstuvwxyMX";
    static const char keys[] = "*+,-./0123456789\r=";
    const char *at = final ? strchr(finals, final) : NULL;
    return !at ? 0 : *at == 'M' ? KEYCODE_ENTER : (uint32_t)keys[at - finals];
}

static uint32_t tilde_key(int n)
{
    static const struct {
        int n;
        uint32_t code;
    } table[] = {
        {1, KEYCODE_HOME},    {2, KEYCODE_INSERT},  {3, KEYCODE_DELETE},   {4, KEYCODE_END},
        {5, KEYCODE_PGUP},    {6, KEYCODE_PGDN},    {7, KEYCODE_HOME},     {8, KEYCODE_END},
        {11, KEYCODE_F1},     {12, KEYCODE_F1 + 1}, {13, KEYCODE_F1 + 2},  {14, KEYCODE_F1 + 3},
        {15, KEYCODE_F1 + 4}, {17, KEYCODE_F1 + 5}, {18, KEYCODE_F1 + 6},  {19, KEYCODE_F1 + 7},
        {20, KEYCODE_F1 + 8}, {21, KEYCODE_F1 + 9}, {23, KEYCODE_F1 + 10}, {24, KEYCODE_F1 + 11},
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
        if (table[i].n == n)
            return table[i].code;
    return 0;
}

static uint32_t modifiers(int parameter)
{
    int m = parameter > 1 && parameter <= 16 ? parameter - 1 : 0;
    return (m & 1 ? KEYCODE_SHIFT : 0u) | (m & (2 | 8) ? KEYCODE_ALT : 0u) |
           (m & 4 ? KEYCODE_CTRL : 0u);
}

/* Parameters of a CSI sequence, clamped; missing ones are 0. */
static int parameters(const char *p, int out[4])
{
    int n = 0;
    memset(out, 0, 4 * sizeof *out);
    while (n < 4) {
        long v = 0;
        while (*p >= '0' && *p <= '9')
            v = v < 100000 ? v * 10 + (*p - '0') : v, p++;
        out[n++] = (int)v;
        if (*p != ';' && *p != ':')
            break;
        p++;
    }
    return n;
}

/* `v` is button and modifiers, column, row, both from 1. */
static void emit_mouse(struct decoder *d, const int v[4], int is_release, emit_fn *fn, void *ctx)
{
    struct event ev = {.kind = EVENT_MOUSE, .x = v[1] - 1, .y = v[2] - 1};
    int code = v[0];
    ev.button = (code & 3) + 1;
    if (v[1] < 1 || v[2] < 1 || (code & 128)) /* 128: the buttons "back" and "forward" */
        return;
    if (code & 64)
        ev.action = code & 1 ? MOUSE_WHEEL_DOWN : MOUSE_WHEEL_UP;
    else if (code & 32)
        ev.action = (code & 3) == 3 ? MOUSE_MOVE : MOUSE_DRAG;
    else
        ev.action = is_release ? MOUSE_RELEASE : MOUSE_PRESS;
    d->buttons = ev.action == MOUSE_PRESS ? ev.button : 0;
    if ((code & 64) && (code & 2))
        return; /* horizontal wheel */
    fn(ctx, &ev);
}

/* "rgb:RRRR/GGGG/BBBB" of an OSC 11 reply. */
static void note_background(struct decoder *d)
{
    const char *at = strstr(str_text(&d->reply), "rgb:");
    unsigned r, g, b;
    if (at && sscanf(at, "rgb:%4x/%4x/%4x", &r, &g, &b) == 3)
        d->background = (int)((r >> 8) << 16 | (g >> 8) << 8 | b >> 8);
}

/* Primary device attributes "62;4;22": 4 among the features is sixel. */
static void note_attributes(struct decoder *d, const char *list)
{
    d->has_attributes = 1;
    for (const char *at = strchr(list, ';'); at; at = strchr(at + 1, ';'))
        if (at[1] == '4' && (at[2] == ';' || at[2] == '\0'))
            d->has_sixel = 1;
}

/* A key by its code point: CSI code ; modifiers u, or CSI 27 ; modifiers ; code ~ of xterm. */
static void emit_code(int code, uint32_t mods, emit_fn *fn, void *ctx)
{
    uint32_t key = (uint32_t)code;
    if (code < 0x20 || code == 0x7F)
        key = code > 0 ? control_key((unsigned char)code) : 0;
    else if (mods & KEYCODE_SHIFT) {
        key = code >= 'a' && code <= 'z' ? key - 'a' + 'A' : key;
        mods &= ~(uint32_t)KEYCODE_SHIFT;
    }
    if (key == KEYCODE_TAB && (mods & KEYCODE_SHIFT)) {
        key = KEYCODE_BACKTAB;
        mods &= ~(uint32_t)KEYCODE_SHIFT;
    }
    if (key && key < KEYCODE_CTRL)
        emit_key(fn, ctx, key | mods);
}

/* CSI number ; modifiers ~, where rxvt has another final for its modifiers. */
static void numbered_key(const int v[4], unsigned char final, emit_fn *fn, void *ctx)
{
    uint32_t key = tilde_key(v[0]), mods = final == '^'   ? KEYCODE_CTRL
                                           : final == '$' ? KEYCODE_SHIFT
                                           : final == '@' ? KEYCODE_CTRL | KEYCODE_SHIFT
                                                          : modifiers(v[1]);
    if (v[0] == 27 && final == '~')
        emit_code(v[2], mods, fn, ctx);
    else if (key)
        emit_key(fn, ctx, key | mods);
}

/* A whole CSI: buf = ESC [ ... final. */
static void csi(struct decoder *d, emit_fn *fn, void *ctx)
{
    char body[sizeof d->buf + 1];
    size_t n = d->n - 2;
    memcpy(body, d->buf + 2, n);
    body[n] = '\0';
    unsigned char final = (unsigned char)body[n - 1];
    body[n - 1] = '\0';
    int v[4];
    if (body[0] == '<' && (final == 'M' || final == 'm')) {
        if (parameters(body + 1, v) >= 3)
            emit_mouse(d, v, final == 'm', fn, ctx);
        return;
    }
    if (body[0] == '?') { /* a reply */
        if (final == 'y' && parameters(body + 1, v) >= 2 && v[0] == 2026)
            d->sync_output = v[1] == 1 || v[1] == 2 ? 1 : -1;
        if (final == 'c')
            note_attributes(d, body + 1);
        return;
    }
    if (body[0] && !(body[0] >= '0' && body[0] <= '9') && body[0] != ';')
        return;
    int count = parameters(body, v);
    if (final == 'M' && count >= 3) { /* rxvt's mode 1015 */
        v[0] -= 32;
        emit_mouse(d, v, (v[0] & 3) == 3, fn, ctx);
        return;
    }
    if (final == 't' && v[0] == 6 && v[1] > 0 && v[1] < 256 && v[2] > 0 && v[2] < 256) {
        d->cell_h = v[1];
        d->cell_w = v[2];
        return;
    }
    if (final == '~' && v[0] == 200) {
        d->in_paste = 1;
        str_renew(&d->paste);
        return;
    }
    if (strchr("~^$@", final)) {
        numbered_key(v, final, fn, ctx);
        return;
    }
    if (final == 'R' && v[1] > 0)
        return; /* a cursor report, not F3 */
    int is_rxvt_shift = final >= 'a' && final <= 'd';
    uint32_t key = letter_key(is_rxvt_shift ? (unsigned char)(final - 0x20) : final);
    if (final == 'u')
        emit_code(v[0], modifiers(v[1]), fn, ctx);
    else if (key)
        emit_key(fn, ctx, key | (is_rxvt_shift ? KEYCODE_SHIFT : modifiers(v[1])));
}

/* ESC [ M and three bytes, each 32 more than its value: mouse modes 9 and 1000 to 1003 of
 * terminals that do not know 1006. */
static int x10_mouse(struct decoder *d, emit_fn *fn, void *ctx)
{
    if (d->n < 6)
        return 0;
    const int v[4] = {d->buf[3] - 32, d->buf[4] - 32, d->buf[5] - 32, 0};
    if (v[0] >= 0)
        emit_mouse(d, v, (v[0] & 3) == 3, fn, ctx);
    return 1;
}

/* ESC O, a modifier in some terminals (konsole: ESC O 5 P), final. */
static int application_key(struct decoder *d, emit_fn *fn, void *ctx)
{
    unsigned char last = d->buf[d->n - 1];
    int is_parameter = (last >= '0' && last <= '9') || last == ';';
    if (d->n < 3 || (is_parameter && d->n < 12))
        return 0;
    int is_rxvt_ctrl = last >= 'a' && last <= 'd';
    uint32_t key = letter_key(is_rxvt_ctrl ? (unsigned char)(last - 0x20) : last);
    uint32_t mods = is_rxvt_ctrl ? KEYCODE_CTRL : d->n > 3 ? modifiers(d->buf[d->n - 2] - '0') : 0;
    if (!key)
        key = keypad_key(last);
    if (key)
        emit_key(fn, ctx, key | mods);
    return 1;
}

/* What follows an ESC of its own: with a key it is Alt (rxvt, PuTTY), else it was the key Esc. */
struct meta {
    emit_fn *fn;
    void *ctx;
    int is_taken;
};

static void emit_meta(void *ctx, const struct event *ev)
{
    struct meta *m = ctx;
    if (ev->kind == EVENT_KEY && !m->is_taken) {
        m->is_taken = 1;
        emit_key(m->fn, m->ctx, ev->key | KEYCODE_ALT);
        return;
    }
    if (!m->is_taken)
        emit_key(m->fn, m->ctx, KEYCODE_ESC);
    m->is_taken = 1;
    m->fn(m->ctx, ev);
}

static int try_escape(struct decoder *d, emit_fn *fn, void *ctx);

static int try_meta(struct decoder *d, emit_fn *fn, void *ctx)
{
    struct meta m = {fn, ctx, 0};
    d->has_meta = 0;
    int is_done = try_escape(d, emit_meta, &m);
    if (is_done && !m.is_taken)
        emit_key(fn, ctx, KEYCODE_ESC);
    d->has_meta = !is_done;
    return is_done;
}

/* ESC ESC and perhaps a third byte. */
static int two_escapes(struct decoder *d, emit_fn *fn, void *ctx)
{
    if (d->n < 3)
        return 0;
    unsigned char third = d->buf[2];
    d->n = 2;
    d->buf[1] = third;
    d->has_meta = third == '[' || third == 'O';
    if (!d->has_meta)
        emit_key(fn, ctx, KEYCODE_ESC);
    return d->has_meta || third == 0x1B ? 0 : try_escape(d, fn, ctx);
}

/* Tries the unfinished sequence: 1 = complete and handled, 0 = more bytes needed. */
static int try_escape(struct decoder *d, emit_fn *fn, void *ctx)
{
    if (d->n < 2)
        return 0;
    if (d->has_meta)
        return try_meta(d, fn, ctx);
    unsigned char kind = d->buf[1], last = d->buf[d->n - 1];
    if (kind == '[') {
        if (d->n == 3 && last == '[')
            return 0; /* Linux console: ESC [ [ A */
        if (d->n == 4 && d->buf[2] == '[') {
            if (last >= 'A' && last <= 'E')
                emit_key(fn, ctx, KEYCODE_F1 + (uint32_t)(last - 'A'));
            return 1;
        }
        if (d->n >= 3 && d->buf[2] == 'M')
            return x10_mouse(d, fn, ctx);
        int is_rxvt_shift = d->n > 3 && last == '$' && d->buf[2] >= '0' && d->buf[2] <= '9';
        if (d->n < 3 || ((last < 0x40 || last > 0x7E) && !is_rxvt_shift))
            return 0;
        if (!d->is_overlong)
            csi(d, fn, ctx);
        return 1;
    }
    if (kind == 'O')
        return application_key(d, fn, ctx);
    if (kind == ']' || kind == 'P' || kind == '_' ||
        kind == '^') { /* strings: until BEL or ESC \ */
        size_t len = d->reply.len;
        int ends = last == 0x07 || (last == '\\' && len >= 2 && d->reply.p[len - 2] == 0x1B);
        if (ends && kind == ']')
            note_background(d);
        if (ends && kind == '_' && strncmp(str_text(&d->reply), "Gi=31;OK", 8) == 0)
            d->has_kitty = 1;
        return ends;
    }
    if (kind == 0x1B)
        return two_escapes(d, fn, ctx);
    uint32_t rune = kind;
    if (kind >= 0x80) {
        int len = utf8_decode((const char *)d->buf + 1, d->n - 1, &rune);
        if (len == 0 && d->n < 5)
            return 0;
    }
    if (kind == '\t') /* Shift-Tab of the Linux console */
        emit_key(fn, ctx, KEYCODE_BACKTAB);
    else
        emit_key(fn, ctx, KEYCODE_ALT | (kind < 0x20 || kind == 0x7F ? control_key(kind) : rune));
    return 1;
}

static void paste_byte(struct decoder *d, unsigned char c, emit_fn *fn, void *ctx)
{
    static const char end[] = "\x1b[201~";
    if (d->paste.len < DECODE_PASTE_MAX || c == (unsigned char)end[0] || d->n)
        str_add_char(&d->paste, (char)c);
    d->n = c == (unsigned char)end[d->n] ? d->n + 1 : c == (unsigned char)end[0];
    if (d->paste.len > DECODE_PASTE_MAX + 64)
        d->paste.len = DECODE_PASTE_MAX;
    if (d->n < sizeof end - 1)
        return;
    d->n = 0;
    d->in_paste = 0;
    size_t len = d->paste.len >= 6 ? d->paste.len - 6 : 0;
    struct event ev = {.kind = EVENT_PASTE, .text = str_text(&d->paste), .len = len};
    fn(ctx, &ev);
    str_release(&d->paste);
}

static void plain_byte(struct decoder *d, emit_fn *fn, void *ctx)
{
    uint32_t rune;
    if (d->buf[0] < 0x20 || d->buf[0] == 0x7F) {
        emit_key(fn, ctx, control_key(d->buf[0]));
        d->n = 0;
        return;
    }
    int len = utf8_decode((const char *)d->buf, d->n, &rune);
    if (len > 0)
        emit_key(fn, ctx, rune);
    if (len > 0 || d->n >= 4 || d->buf[0] < 0xC2)
        d->n = 0;
}

static void take_byte(struct decoder *d, unsigned char c, emit_fn *fn, void *ctx)
{
    if (d->in_paste) {
        paste_byte(d, c, fn, ctx);
        return;
    }
    int is_cut = c == 0x1B && d->n >= 2 && d->buf[0] == 0x1B && strchr("[O", d->buf[1]) &&
                 !(d->buf[1] == '[' && d->buf[2] == 'M' && d->n > 2);
    if (is_cut) /* a sequence whose end was lost: the next one begins */
        decoder_flush(d, fn, ctx);
    if (d->n > 0 && d->buf[0] == 0x1B) {
        if (d->n < sizeof d->buf)
            d->buf[d->n++] = c;
        else {
            d->is_overlong = 1;
            d->buf[d->n - 1] = c;
        }
        if (d->n > 2 && strchr("]P_^", d->buf[1]) && d->reply.len < 4096)
            str_add_char(&d->reply, (char)c);
        else if (d->reply.len >= 4096)
            str_renew(&d->reply);
        if (try_escape(d, fn, ctx)) {
            d->n = 0;
            d->is_overlong = 0;
            str_renew(&d->reply);
        }
        return;
    }
    /* a new character begins within an incomplete one */
    if (d->n > 0 && (c & 0xC0) != 0x80)
        d->n = 0;
    d->buf[d->n++] = c;
    if (c != 0x1B)
        plain_byte(d, fn, ctx);
}

void decoder_feed(struct decoder *d, const void *bytes, size_t n, emit_fn *fn, void *ctx)
{
    const unsigned char *p = bytes;
    for (size_t i = 0; i < n; i++)
        take_byte(d, p[i], fn, ctx);
}

int decoder_pending(const struct decoder *d)
{
    return !d->in_paste && d->n > 0 && d->buf[0] == 0x1B;
}

void decoder_flush(struct decoder *d, emit_fn *fn, void *ctx)
{
    if (!decoder_pending(d))
        return;
    size_t n = d->n;
    unsigned char second = d->buf[1];
    if (n > 2 && strchr("]P_^", second))
        return; /* a reply on a slow line: its end follows */
    if (d->has_meta || (n == 2 && second == 0x1B))
        emit_key(fn, ctx, KEYCODE_ESC);
    d->n = 0;
    d->is_overlong = d->has_meta = 0;
    if (n == 1 || (n == 2 && second == 0x1B))
        emit_key(fn, ctx, KEYCODE_ESC);
    else if (n == 2 && second < 0x80)
        emit_key(fn, ctx, KEYCODE_ALT | second);
}

void decoder_release(struct decoder *d)
{
    str_release(&d->paste);
    str_release(&d->reply);
}
