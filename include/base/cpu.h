/* What the processor is and how much of it this process may use. */
#ifndef DS_BASE_CPU_H
#define DS_BASE_CPU_H

#include <stddef.h>

/* 1 when the kernel lists this feature ("avx2", "amx_bf16", "asimd"), else 0.  Without /proc the processor is asked itself. */
int cpu_has(const char *feature);
/* " avx avx2 ... ": those of the features that cpu_describe names that the processor says it has and whose registers the
 * system saves; "" where it cannot be asked. */
void cpu_ask(char *out, size_t size);
/* How far kernels may go: the environment's DEPTHSCOPE_CPU=ref|avx2|avx512|amx caps it; a word that is none of these is
 * named in a warning and ignored.  A cap never adds what the processor lacks. */
enum cpu_level { CPU_REF, CPU_AVX2, CPU_AVX512, CPU_AMX };
int cpu_allows(enum cpu_level level);
/* AMX tiles: listed, allowed, and granted to this process by the kernel (asked once, arch_prctl). */
int cpu_has_amx(void);
/* What cpu_has_amx does with its facts, apart from this machine: asks only where AMX is listed and allowed; a kernel
 * that refuses (ask() is 0) is named in a warning. */
int cpu_amx_decide(int listed, int allowed, int (*ask)(void));
/* "model name, 2 of 64 processors, avx2 fma ...": one line, always terminated. */
void cpu_describe(char *out, size_t size);
/* Processors a cgroup quota leaves, rounded up; 0 when there is none.  `mount` is where cgroups
 * are mounted ("/sys/fs/cgroup"), `self` the process's list ("/proc/self/cgroup"). v2 and v1. */
int cpu_quota(const char *mount, const char *self);

#endif
