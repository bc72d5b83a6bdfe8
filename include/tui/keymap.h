/* Keys, events and the key tables, from which overlay, hints, command line, completion, reference
 * page and manual are all generated. */
#ifndef DS_TUI_KEYMAP_H
#define DS_TUI_KEYMAP_H

#include <stddef.h>
#include <stdint.h>

#include "base/str.h"

/* A key is a code point, or one of these; with modifiers or-ed in.  Ctrl-d = KEYCODE_CTRL | 'd'. */
enum {
    KEYCODE_UP = 0x110000,
    KEYCODE_DOWN,
    KEYCODE_LEFT,
    KEYCODE_RIGHT,
    KEYCODE_HOME,
    KEYCODE_END,
    KEYCODE_PGUP,
    KEYCODE_PGDN,
    KEYCODE_INSERT,
    KEYCODE_DELETE,
    KEYCODE_BACKSPACE,
    KEYCODE_TAB,
    KEYCODE_BACKTAB,
    KEYCODE_ENTER,
    KEYCODE_ESC,
    KEYCODE_F1,
    KEYCODE_F12 = KEYCODE_F1 + 11,
    KEYCODE_CTRL = 1 << 24,
    KEYCODE_ALT = 1 << 25,
    KEYCODE_SHIFT = 1 << 26,
};

enum event_kind { EVENT_KEY, EVENT_MOUSE, EVENT_PASTE };
enum mouse_action {
    MOUSE_PRESS,
    MOUSE_RELEASE,
    MOUSE_DRAG,
    MOUSE_MOVE,
    MOUSE_WHEEL_UP,
    MOUSE_WHEEL_DOWN
};

struct event {
    enum event_kind kind;
    uint32_t key;             /* EVENT_KEY */
    enum mouse_action action; /* EVENT_MOUSE */
    int button;               /* 1 left, 2 middle, 3 right; views get presses and drags of the left one alone */
    int y, x;                 /* cell, relative to the area of the view */
    int is_double;            /* second press within 400 ms on the same cell */
    const char *text;         /* EVENT_PASTE: bytes, borrowed, untrusted */
    size_t len;
};

struct view;
struct key;
/* `args`: rest of the command line, NULL when a key was pressed (or the hint clicked). */
typedef void key_fn(struct view *v, const struct key *k, const char *args);

enum {
    KEY_VIEW_CHANGE = 1, /* changes settings of the view: undo with u            */
    KEY_MUTATES = 2,     /* acts on a run: refused in read-only mode             */
    KEY_HIDDEN = 4,      /* works, but not shown in hints (motion keys)          */
    KEY_ON_FIGURE = 16,  /* needs a view with a figure: no hint in the others */
    KEY_ON_RUN = 8,      /* speaks to the run's process: no hint where there is none */
};
struct key {
    const char *keys;    /* alternatives: "j Down", "gg", "]n", "C-d"; "" = command only */
    const char *command; /* "down": the name after `:`                           */
    const char *args;    /* "KEY VALUE" or NULL                                   */
    const char *help;    /* overlay and reference page, a few words, lower case  */
    const char *hint;    /* one word for the bottom line, NULL = command         */
    int priority;        /* of the hint: the lowest is dropped first; 0 = none   */
    int flags;
    int value; /* for functions shared by several rows                 */
    key_fn *fn;
};

/* "C-d", "PgDn", "g" -> code, 0 if unknown; and back (out of at least 24 bytes). */
uint32_t key_parse(const char *name, size_t n);
const char *key_print(char out[24], uint32_t key);
/* Rows of a view and the global ones. Both end with a row whose command is NULL. */
extern const struct key keys_global[];

enum { KEYS_PENDING_MAX = 4 };
/* Looks up the keys pressed so far (1..KEYS_PENDING_MAX) in a table: the row, or NULL; *is_prefix
 * is set when they begin a longer sequence. */
const struct key *keys_match(const struct key *table, const uint32_t *pressed, size_t n,
                             int *is_prefix);
const struct key *keys_command(const struct key *table, const char *name, size_t n);
/* The first alternative of a row for display ("j", "PgDn"); "" when there is none. */
void keys_label(const struct key *k, char *out, size_t size);
/* All key tables as Markdown, for the reference page. */
void keys_markdown(struct str *out);
/* The same as plain text. */
void keys_text(struct str *out);

/* ---- bytes of a terminal -> events ---- */
enum { DECODE_PASTE_MAX = 1 << 20 };
struct decoder {
    unsigned char buf[64]; /* an unfinished sequence */
    size_t n;
    int in_paste, is_overlong, has_meta; /* has_meta: another ESC came before this sequence */
    struct str paste;                    /* at most DECODE_PASTE_MAX bytes kept */
    int buttons;
    int sync_output; /* 0 unknown, 1 supported, -1 unsupported (from the DECRPM reply) */
    /* Replies to graphics_probe (tui/graphics.h): answered at all, and what was answered. */
    int has_attributes, has_sixel, has_kitty, cell_w, cell_h;
    int background; /* 0xRRGGBB from an OSC 11 reply, -1 unknown */
    struct str reply;
};
/* Decodes bytes and calls fn for each event.  Replies and unknown sequences are swallowed. */
void decoder_feed(struct decoder *d, const void *bytes, size_t n,
                  void (*fn)(void *ctx, const struct event *), void *ctx);
/* 1 when a lone ESC is pending: call decoder_flush if nothing follows within 25 ms. */
int decoder_pending(const struct decoder *d);
void decoder_flush(struct decoder *d, void (*fn)(void *ctx, const struct event *), void *ctx);
void decoder_release(struct decoder *d);

#endif
