/* SIGBUS handling for mapped files: reading a mapping whose file another process truncated raises
 * SIGBUS.  Inside a guarded mapping this ends the program with a message: the terminal is restored
 * (base/err.h), one line names the file and both sizes, exit status 1.  Elsewhere the previous
 * handler is called.  Applies to every thread that does not block the signal. */
#ifndef DS_BASE_GUARD_H
#define DS_BASE_GUARD_H

#include <stddef.h>

/* Guards a read-only mapping of n bytes of fd, which must stay open while guarded; path is for the
 * message.  Called by fs_map_open.  At most 1024 mappings are guarded at a time. */
void guard_add(const void *p, size_t n, int fd, const char *path);
void guard_remove(const void *p);
/* 1 when [p, p + n) is inside a guarded mapping: its descriptor and the offset of p. */
int guard_file(const void *p, size_t n, int *fd, size_t *at);
/* Call after installing a handler for SIGBUS: the guard's runs first and then falls back to it. */
void guard_renew(void);

#endif
