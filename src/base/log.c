/* Formats log messages and passes them to the sink. */
#include "base/log.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/str.h"
#include "base/utf8.h"

enum { LINE_MAX_BYTES = 4096 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static log_sink *present_sink;
static void *present_ctx;

/* One write per line, so that lines of several processes on one stderr do not mix. */
static void to_stderr(void *ctx, enum log_level level, const char *text)
{
    static const char *const mark[] = {"debug: ", "", "warning: ", "error: "};
    struct str line = {0};
    (void)ctx;
    if (level < LOG_INFO)
        return;
    str_addf(&line, "depthscope: %s%s\n", mark[level], text);
    const char *p = line.failed ? "depthscope: out of memory\n" : str_text(&line);
    if (write(STDERR_FILENO, p, strlen(p)) < 0) {
        /* no way to report a failed write to stderr */
    }
    str_release(&line);
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
