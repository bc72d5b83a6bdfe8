/* Formats log messages and passes them to the sink. */
#include "base/log.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/str.h"
#include "base/utf8.h"

enum { LINE_MAX_BYTES = 4096 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static log_sink *present_sink;
static void *present_ctx;

static struct iovec part_of(const char *text)
{
    struct iovec v = {.iov_len = strlen(text)};
    memcpy(&v.iov_base, &text, sizeof text); /* not const, but only read */
    return v;
}

/* One write per line, so that lines of several processes on one stderr do not mix; nothing is
 * allocated, so that a lack of memory can be reported. */
static void to_stderr(void *ctx, enum log_level level, const char *text)
{
    static const char *const mark[] = {"debug: ", "", "warning: ", "error: "};
    (void)ctx;
    if (level < LOG_INFO)
        return;
    struct iovec part[] = {part_of("depthscope: "), part_of(mark[level]), part_of(text),
                           part_of("\n")};
    if (writev(STDERR_FILENO, part, (int)DS_LEN(part)) < 0) {
        /* no way to report a failed write to stderr */
    }
}

void log_to(log_sink *sink, void *ctx)
{
    pthread_mutex_lock(&lock);
    present_sink = sink;
    present_ctx = ctx;
    pthread_mutex_unlock(&lock);
}

void log_msg(enum log_level level, const char *fmt, ...)
{
    char raw[LINE_MAX_BYTES];
    struct str safe = {0};
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(raw, sizeof raw, fmt, ap);
    va_end(ap);
    if (n < 0)
        return;
    if ((size_t)n >= sizeof raw)
        memcpy(raw + sizeof raw - 4, "...", 4);
    utf8_sanitise(&safe, raw, strlen(raw), -1, !utf8_locale_is_utf8());
    if (safe.failed)
        utf8_scrub(raw);
    pthread_mutex_lock(&lock);
    log_sink *sink = present_sink ? present_sink : to_stderr;
    void *ctx = present_ctx;
    pthread_mutex_unlock(&lock);
    sink(ctx, level, safe.failed ? raw : str_text(&safe));
    str_release(&safe);
}
