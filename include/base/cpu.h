/* What the processor is and how much of it this process may use. */
#ifndef DS_BASE_CPU_H
#define DS_BASE_CPU_H

#include <stddef.h>

/* 1 when the kernel lists this feature ("avx2", "amx_bf16", "asimd"), else 0. */
int cpu_has(const char *feature);
/* "model name, 2 of 64 processors, avx2 fma ...": one line, always terminated. */
void cpu_describe(char *out, size_t size);
/* Processors a cgroup quota leaves, rounded up; 0 when there is none.  `mount` is where cgroups
 * are mounted ("/sys/fs/cgroup"), `self` the process's list ("/proc/self/cgroup"). v2 and v1. */
int cpu_quota(const char *mount, const char *self);

#endif
