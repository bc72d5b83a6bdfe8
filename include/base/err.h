/* Errors: a code and one line of text, with context added at each level.
 *
 * Every fallible function returns `int`: 0, or a negative `enum ds_err`.  On failure the
 * out-parameters are untouched.  `struct err *e` may be NULL (the text is not needed). */
#ifndef DS_BASE_ERR_H
#define DS_BASE_ERR_H

#include "base/compiler.h"

enum ds_err {
    DS_OK = 0,
    DS_EMEM = -1,    /* out of memory                                  */
    DS_EIO = -2,     /* a system call failed: open, read, write, ...   */
    DS_EFORMAT = -3, /* a file or message is not what it claims to be  */
    DS_ERANGE = -4,  /* a value outside its allowed range              */
    DS_ENOTFOUND = -5,
    DS_EEXIST = -6,
    DS_EBUSY = -7,    /* locked by another process                      */
    DS_EUSAGE = -8,   /* invalid arguments or settings: exit status 2   */
    DS_ENUMERIC = -9, /* NaN or Inf where a finite number is required   */
    DS_ESTOP = -10,   /* stopped on request                             */
};

enum { ERR_TEXT_MAX = 512 };

struct err {
    int code;
    char text[ERR_TEXT_MAX]; /* "outer: inner: cause", one line, sanitised of control bytes */
};

/* Sets code and text; returns code, so `return err_set(e, DS_EIO, ...)` works.  The text of DS_EMEM
 * may be only what the memory is for: ": out of memory" is added to one without the word. */
int err_set(struct err *e, int code, const char *fmt, ...) DS_PRINTF(3, 4);
/* Prepends "fmt: " to the current text; returns code (pass e's own to keep it). */
int err_add(struct err *e, int code, const char *fmt, ...) DS_PRINTF(3, 4);
/* err_set with ": strerror(errno)" appended to the text. */
int err_errno(struct err *e, const char *fmt, ...) DS_PRINTF(2, 3);
/* Puts `to` in place of `from`, a path, where the text names it first: what failed under a
 * temporary name is reported under the one that was asked for. */
void err_rename(struct err *e, const char *from, const char *to);
/* The short name of a code, for messages without text. */
const char *err_name(int code);

/* For bugs: restores the terminal, prints to stderr and aborts. */
void bug_at(const char *file, int line, const char *fmt, ...) DS_NORETURN DS_PRINTF(3, 4);
/* Called first by bug_at and by crash handlers; must be async-signal-safe. NULL = none. */
void bug_set_restore(void (*restore)(void));
void bug_run_restore(void);
/* For errors that cannot be returned (scratch memory inside an op): restores the terminal, prints
 * one line and exits with status 1.  When several threads fail at once, one prints. */
void fatal(const char *fmt, ...) DS_NORETURN DS_PRINTF(1, 2);
#define BUG_IF(cond, ...)                                                                          \
    do {                                                                                           \
        if (DS_UNLIKELY(cond))                                                                     \
            bug_at(__FILE__, __LINE__, __VA_ARGS__);                                               \
    } while (0)

#endif
