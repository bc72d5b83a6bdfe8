/* Error texts, bugs and fatal errors. */
#include "base/err.h"

#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/utf8.h"

/* A line that is too long loses its middle: the reason is at its end, after the path. */
enum { LINE_MAX_BYTES = 6000, DOTS = 3, TAIL_MIN = 128 };

/* Formats into the caller's buffer, never into e->text, which may be one of the arguments. */
static void format_line(char *out, size_t size, const char *fmt, va_list ap) DS_PRINTF(3, 0);
static void format_line(char *out, size_t size, const char *fmt, va_list ap)
{
    char line[LINE_MAX_BYTES] = "";
    int n = vsnprintf(line, sizeof line, fmt, ap);
    size_t length = strlen(line), head = size - 1 - DOTS - TAIL_MIN;
    if (n < 0)
        snprintf(out, size, "(invalid message format)");
    else if (length < size)
        memcpy(out, line, length + 1);
    else
        snprintf(out, size, "%.*s...%s", (int)head, line, line + length - TAIL_MIN);
    utf8_scrub(out);
}

/* Stores "head: tail" in e.  If too long, keeps the beginning of the head (the operation) and the
 * end of the tail (the cause). */
static void join(struct err *e, const char *head, const char *tail)
{
    enum { ROOM = ERR_TEXT_MAX - 1, COLON = 2 };
    char line[ERR_TEXT_MAX] = "";
    size_t n_head = strlen(head), n_tail = strlen(tail), at = 0;
    int cut = n_head + COLON + n_tail > ROOM;
    if (cut && n_head > ROOM - DOTS - COLON - TAIL_MIN)
        n_head = ROOM - DOTS - COLON - TAIL_MIN;
    if (cut && n_tail > ROOM - DOTS - COLON - n_head) {
        tail += n_tail - (ROOM - DOTS - COLON - n_head);
        n_tail = ROOM - DOTS - COLON - n_head;
    }
    memcpy(line, head, n_head);
    at += n_head;
    if (n_tail) {
        memcpy(line + at, ": ", COLON);
        at += COLON;
    }
    if (cut) {
        memcpy(line + at, "...", DOTS);
        at += DOTS;
    }
    memcpy(line + at, tail, n_tail);
    line[at + n_tail] = '\0';
    utf8_scrub(line);
    memcpy(e->text, line, sizeof line);
}

int err_set(struct err *e, int code, const char *fmt, ...)
{
    char line[ERR_TEXT_MAX];
    va_list ap;
    if (!e)
        return code;
    va_start(ap, fmt);
    format_line(line, sizeof line, fmt, ap);
    va_end(ap);
    e->code = code;
    if (code == DS_EMEM && !strstr(line, "memory"))
        join(e, line, err_name(code));
    else
        memcpy(e->text, line, sizeof line);
    return code;
}

int err_add(struct err *e, int code, const char *fmt, ...)
{
    char head[ERR_TEXT_MAX];
    va_list ap;
    if (!e)
        return code;
    va_start(ap, fmt);
    format_line(head, sizeof head, fmt, ap);
    va_end(ap);
    join(e, head, e->text[0] ? e->text : err_name(code));
    e->code = code;
    return code;
}

int err_errno(struct err *e, const char *fmt, ...)
{
    int number = errno;
    char head[ERR_TEXT_MAX], cause[128] = "";
    va_list ap;
    if (!e)
        return DS_EIO;
    va_start(ap, fmt);
    format_line(head, sizeof head, fmt, ap);
    va_end(ap);
    if (strerror_r(number, cause, sizeof cause) != 0)
        snprintf(cause, sizeof cause, "error %d", number);
    join(e, head, cause);
    e->code = DS_EIO;
    errno = number;
    return DS_EIO;
}

void err_rename(struct err *e, const char *from, const char *to)
{
    const char *at = e && from[0] ? strstr(e->text, from) : NULL;
    if (at)
        (void)err_set(e, e->code, "%.*s%s%s", (int)(at - e->text), e->text, to, at + strlen(from));
}

const char *err_name(int code)
{
    static const char *const names[] = {
        [-DS_OK] = "no error",
        [-DS_EMEM] = "out of memory",
        [-DS_EIO] = "input or output failed",
        [-DS_EFORMAT] = "malformed",
        [-DS_ERANGE] = "out of range",
        [-DS_ENOTFOUND] = "not found",
        [-DS_EEXIST] = "already exists",
        [-DS_EBUSY] = "locked by another process",
        [-DS_EUSAGE] = "invalid usage",
        [-DS_ENUMERIC] = "not a finite number",
        [-DS_ESTOP] = "stopped",
    };
    if (code > 0 || code < -(int)DS_LEN(names) + 1)
        return "unknown error";
    return names[-code];
}

static void (*_Atomic restore_fn)(void);

void bug_set_restore(void (*restore)(void))
{
    atomic_store(&restore_fn, restore);
}

/* Removed before it runs: abort() after bug_at may re-enter through a crash handler. */
void bug_run_restore(void)
{
    void (*restore)(void) = atomic_exchange(&restore_fn, NULL);
    if (restore)
        restore();
}

void bug_at(const char *file, int line, const char *fmt, ...)
{
    char text[ERR_TEXT_MAX];
    va_list ap;
    bug_run_restore();
    va_start(ap, fmt);
    format_line(text, sizeof text, fmt, ap);
    va_end(ap);
    fprintf(stderr, "depthscope: bug at %s:%d: %s\n", file, line, text);
    fflush(stderr);
    abort();
}

void fatal(const char *fmt, ...)
{
    static atomic_int is_ending;
    char text[ERR_TEXT_MAX];
    va_list ap;
    if (atomic_exchange(&is_ending, 1))
        for (;;)
            pause();
    bug_run_restore();
    va_start(ap, fmt);
    format_line(text, sizeof text, fmt, ap);
    va_end(ap);
    fprintf(stderr, "depthscope: %s\n", text);
    _exit(1); /* no exit handlers: other threads are still running */
}
