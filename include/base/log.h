/* Log messages for the user: on stderr, or in a ring buffer that the workbench shows. */
#ifndef DS_BASE_LOG_H
#define DS_BASE_LOG_H

#include "base/compiler.h"

enum log_level { LOG_DEBUG, LOG_INFO, LOG_WARN, LOG_ERROR };
/* Text is sanitised before it reaches a sink.  The default sink writes "depthscope: text\n" to
 * stderr for LOG_INFO and above. */
typedef void log_sink(void *ctx, enum log_level level, const char *text);
void log_to(log_sink *sink, void *ctx); /* NULL: the default */
void log_msg(enum log_level level, const char *fmt, ...) DS_PRINTF(2, 3);
#define log_info(...) log_msg(LOG_INFO, __VA_ARGS__)
#define log_warn(...) log_msg(LOG_WARN, __VA_ARGS__)
#define log_error(...) log_msg(LOG_ERROR, __VA_ARGS__)

#endif
