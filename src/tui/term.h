/* The terminal: raw mode, signals and the way back (tty.c), the difference engine (term_curses.c).
 */
#ifndef DS_TUI_TERM_H
#define DS_TUI_TERM_H

#include <stddef.h>

#include "base/err.h"
#include "tui/canvas.h"

/* ---- tty.c: the device ---- */
struct tty {
    int fd;        /* read and write, non-blocking, our own open of /dev/tty */
    int signal_fd; /* readable when a signal arrived */
    int has_mouse;
    int margin; /* columns at the right that are left alone */
};
enum { TTY_RESIZE = 1, TTY_STOP = 2, TTY_CONT = 4, TTY_TERM = 8, TTY_CHILD = 16 };
/* Opens the terminal raw, installs handlers and the restore that runs at any exit or crash. */
int tty_open(struct tty *t, const char *term, int wants_mouse, struct err *e) DS_CHECK;
void tty_close(struct tty *t);
/* TTY_* flags of the signals since the last call. */
int tty_signals(struct tty *t);
/* Gives the terminal back, stops the process group, takes the terminal again on SIGCONT. */
void tty_suspend(struct tty *t);
/* Clamped window size. */
void tty_size(const struct tty *t, int *rows, int *cols);
/* > 0 bytes, 0 nothing now, DS_EIO when the terminal is gone. */
int tty_read(struct tty *t, void *p, size_t n);
int tty_write(struct tty *t, const void *p, size_t n); /* bytes taken, 0 = full, DS_EIO gone */

/* ---- term_curses.c: canvas -> bytes ---- */
struct term;
struct term_options {
    const char *color, *glyphs, *term;
};
/* Chooses entry and colours; *notice (at least 160 bytes) is filled when a fallback was taken. */
int term_open(struct term **out, const struct term_options *o, int rows, int cols, char notice[160],
              struct err *e) DS_CHECK;
void term_close(struct term *t);
/* Columns at the right that must stay empty: a canvas is that much narrower.  Entries as "ansi" promise that the cursor wraps at
 * once after the last column; most terminals wait for the next character, and what follows lands a line off. */
int term_margin(const struct term *t);
void term_look(const struct term *t, struct look *look); /* colours and glyphs */
/* The bytes that turn the last sent canvas into this one, appended to out. */
int term_render(struct term *t, const struct canvas *c, struct str *out, struct err *e) DS_CHECK;
void term_resize(struct term *t, int rows, int cols);
void term_forget(struct term *t); /* next render paints everything */
void term_theme_changed(struct term *t);
/* Bytes that leave the terminal clean, to be written at the end. */
void term_goodbye(struct term *t, struct str *out);
/* Pure part of term_open, for tests: which entry and how many colours. */
struct term_choice {
    const char *entry;
    const char *memory;
    int colours;
    int is_fallback;
};
void term_choose(struct term_choice *c, const char *term, const char *colorterm,
                 const char *color_option, const char *no_color);
/* One byte a cell and no private modes (alternate screen, mouse, clipboard): serial terminals, "ansi". */
int term_is_plain(const char *term);
int term_can_draw(const char *term); /* 0: the cursor cannot be moved */
uint32_t term_console_rune(uint32_t rune);
enum glyphs glyphs_choose(const char *option, int is_utf8, const char *term);

/* terminfo.c (made by terminfo.sh): compiled entries as "b64:..." text. */
extern const char terminfo_xterm_direct[], terminfo_xterm_256[], terminfo_tmux_direct[],
    terminfo_tmux_256[];

#endif
