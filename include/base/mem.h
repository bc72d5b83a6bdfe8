/* The heap, behind one door: sizes are checked products and the n-th call can be made to
 * fail (DEPTHSCOPE_FAIL=alloc:N).  malloc and friends are forbidden elsewhere. */
#ifndef DS_BASE_MEM_H
#define DS_BASE_MEM_H

#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"

/* n * size zeroed bytes, 64-byte aligned is NOT promised; NULL if impossible. n*size == 0 gives
 * a valid pointer. */
void *mem_alloc(size_t n, size_t size) DS_CHECK;
/* Grows or shrinks; on failure the old block stays. New bytes are not zeroed. */
void *mem_realloc(void *p, size_t n, size_t size) DS_CHECK;
char *mem_strdup(const char *s) DS_CHECK;
void *mem_dup(const void *p, size_t bytes) DS_CHECK;
void mem_free(void *p);
/* 64-byte aligned zeroed block, released with mem_free_aligned. */
void *mem_alloc_aligned(size_t n, size_t size) DS_CHECK;
void mem_free_aligned(void *p);
/* The same without zeroing: large blocks are not touched, and lie on huge pages where possible. */
void *mem_reserve(size_t bytes) DS_CHECK;
/* Gives whole pages inside [p, p + bytes) back to the system; the addresses stay valid, their contents do not. */
void mem_discard(void *p, size_t bytes);
/* Pages of a mapped file that [p, p + bytes) touches will be read soon. */
void mem_want(void *p, size_t bytes);
/* They are read now: brought in by one call in place of a fault for every few pages. */
void mem_bring(void *p, size_t bytes);
/* Bytes that this process can still have, 0 when nobody says: the least of what the machine has available, what the limit of
 * its group leaves (containers), and what its own limit of address space leaves (ulimit -v). */
double mem_left(void);
/* Of the group alone, 0 = no limit; as base/cgroup.h. */
double mem_left_group(const char *mount, const char *self);
/* Ensures room for `need` items of `size` in *p (*cap items now), doubling; 0 or DS_EMEM. */
int mem_grow(void **p, size_t *cap, size_t need, size_t size) DS_CHECK;
/* Calls so far; fail at call n from now on once (persistent: and ever after); 0 = never. */
uint64_t mem_calls(void);
void mem_fail_at(uint64_t n, int persistent);

#endif
