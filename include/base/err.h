/* Errors of the world: a code and one line of text, given more context at each level.
 *
 * Every fallible function returns `int`: 0, or a negative `enum ds_err`.  On failure the
 * out-parameters are untouched.  `struct err *e` may be NULL (nobody wants the text). */
#ifndef DS_BASE_ERR_H
#define DS_BASE_ERR_H

#include "base/compiler.h"

enum ds_err {
    DS_OK = 0,
    DS_EMEM = -1,    /* memory could not be had                        */
    DS_EIO = -2,     /* the system said no: open, read, write, ...     */
    DS_EFORMAT = -3, /* a file or message is not what it claims to be  */
    DS_ERANGE = -4,  /* a value outside its allowed range              */
    DS_ENOTFOUND = -5,
    DS_EEXIST = -6,
    DS_EBUSY = -7,    /* locked by another process                      */
    DS_EUSAGE = -8,   /* the user's words are off: exit status 2        */
    DS_ENUMERIC = -9, /* NaN or Inf where a number must be              */
    DS_ESTOP = -10,   /* stopped on request                             */
};

enum { ERR_TEXT_MAX = 512 };

struct err {
    int code;
    char text[ERR_TEXT_MAX]; /* "outer: inner: cause", one line, sanitised of control bytes */
};

/* Sets code and text; returns code, so `return err_set(e, DS_EIO, ...)` works. */
int err_set(struct err *e, int code, const char *fmt, ...) DS_PRINTF(3, 4);
/* Puts "fmt: " in front of the present text; returns code (pass e's own to keep it). */
int err_add(struct err *e, int code, const char *fmt, ...) DS_PRINTF(3, 4);
/* err_set with ": strerror(errno)" behind the text. */
int err_errno(struct err *e, const char *fmt, ...) DS_PRINTF(2, 3);
/* The short name of a code, for messages without text. */
const char *err_name(int code);

/* Our own mistakes: prints to stderr after the terminal has been given back, aborts. */
void bug_at(const char *file, int line, const char *fmt, ...) DS_NORETURN DS_PRINTF(3, 4);
/* Called first by bug_at and by crash handlers; must be async-signal-safe. NULL = none. */
void bug_set_restore(void (*restore)(void));
void bug_run_restore(void);
/* A failure of the world where none can be returned (scratch memory inside an op): gives the terminal back, writes one line
 * and ends the program with status 1.  Of several threads that meet the same, one writes. */
void fatal(const char *fmt, ...) DS_NORETURN DS_PRINTF(1, 2);
#define BUG_IF(cond, ...)                                                                          \
    do {                                                                                           \
        if (DS_UNLIKELY(cond))                                                                     \
            bug_at(__FILE__, __LINE__, __VA_ARGS__);                                               \
    } while (0)

#endif
