/* The heap: sizes are overflow-checked, and the n-th call can be made to
 * fail (DEPTHSCOPE_FAIL=alloc:N).  malloc and friends are forbidden elsewhere. */
#ifndef DS_BASE_MEM_H
#define DS_BASE_MEM_H

#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"

/* n * size zeroed bytes, without 64-byte alignment; NULL when out of memory.  n * size == 0 gives
 * a valid pointer. */
void *mem_alloc(size_t n, size_t size) DS_CHECK;
/* Grows or shrinks; on failure the old block is unchanged.  New bytes are not zeroed. */
void *mem_realloc(void *p, size_t n, size_t size) DS_CHECK;
char *mem_strdup(const char *s) DS_CHECK;
void *mem_dup(const void *p, size_t bytes) DS_CHECK;
void mem_free(void *p);
/* 64-byte aligned zeroed block, released with mem_free_aligned. */
void *mem_alloc_aligned(size_t n, size_t size) DS_CHECK;
void mem_free_aligned(void *p);
/* The same without zeroing: large blocks are left untouched, on huge pages where possible. */
void *mem_reserve(size_t bytes) DS_CHECK;
/* Returns whole pages inside [p, p + bytes) to the system; addresses stay valid, contents are
 * lost. */
void mem_discard(void *p, size_t bytes);
/* Hints that the pages of a mapped file in [p, p + bytes) will be read soon. */
void mem_prefetch(void *p, size_t bytes);
/* Reads these pages now, by one call instead of many page faults. */
void mem_populate(void *p, size_t bytes);
/* Bytes that this process can still allocate, 0 when unknown: the minimum of the machine's
 * available memory, the rest of its cgroup limit (containers) and of its address-space limit
 * (ulimit -v). */
double mem_available(void);
/* The rest of the cgroup limit alone, 0 = no limit; arguments as in base/cgroup.h. */
double mem_available_cgroup(const char *mount, const char *self);
/* Bytes of the machine, or of the cgroup where that is limited to fewer, and how many of them cannot be
 * had any more (caches can).  0 and unchanged when unknown. */
int mem_machine(double *used, double *total);
/* Ensures capacity for `need` items of `size` in *p (currently *cap), doubling; 0 or DS_EMEM. */
int mem_grow(void **p, size_t *cap, size_t need, size_t size) DS_CHECK;
/* Calls so far; call number n fails (persistent: and all later ones), 0: none. */
uint64_t mem_calls(void);
void mem_fail_at(uint64_t n, int persistent);

#endif
