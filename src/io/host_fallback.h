/* The Python script that stands in for `depthscope agent`, line by line: host_fallback.py without its
 * comments.  It reads the name READONLY. */
#ifndef DS_SRC_IO_HOST_FALLBACK_H
#define DS_SRC_IO_HOST_FALLBACK_H

extern const char *const host_fallback[]; /* ends with NULL */

#endif
