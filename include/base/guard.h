/* Files that are mapped can be cut by another process; reading what is gone then is a SIGBUS, not an error code.  Inside a
 * guarded mapping it ends the program honestly: the terminal is given back (base/err.h), one line names the file and both
 * sizes, exit status 1.  Anywhere else the handler that was there before has its turn.  Holds in every thread that does not
 * block the signal. */
#ifndef DS_BASE_GUARD_H
#define DS_BASE_GUARD_H

#include <stddef.h>

/* Of a read-only mapping of n bytes of fd, which stays open as long as it is guarded; path is for the message.  Done by
 * fs_map_open.  Beyond 1024 mappings at a time there is no guard. */
void guard_add(const void *p, size_t n, int fd, const char *path);
void guard_remove(const void *p);
/* To be called by whoever has set a handler for SIGBUS: it becomes the one that has its turn behind the guard's. */
void guard_renew(void);

#endif
