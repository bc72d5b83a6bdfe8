/* Processor features, and the share of the processor available to this process. */
#ifndef DS_BASE_CPU_H
#define DS_BASE_CPU_H

#include <stddef.h>

/* 1 when the kernel lists this feature ("avx2", "amx_bf16", "asimd"), else 0.  Without /proc, CPUID
 * is used. */
int cpu_has(const char *feature);
/* " avx avx2 ... ": the features of cpu_describe that CPUID reports and whose registers the system
 * saves; "" where CPUID is not available. */
void cpu_cpuid_features(char *out, size_t size);
/* The highest instruction set for kernels, capped by DEPTHSCOPE_CPU=ref|avx2|avx512|amx in the
 * environment; other values cause a warning and are ignored.  A cap never enables what the
 * processor lacks. */
enum cpu_level { CPU_REF, CPU_AVX2, CPU_AVX512, CPU_AMX };
int cpu_allows(enum cpu_level level);
/* 1 when AMX tiles are listed, allowed, and granted to this process by the kernel (arch_prctl,
 * called once). */
int cpu_has_amx(void);
/* The decision of cpu_has_amx for given facts, for tests: calls ask() only where AMX is listed and
 * allowed; a refusal (ask() is 0) causes a warning. */
int cpu_amx_decide(int listed, int allowed, int (*ask)(void));
/* "model name, 2 of 64 processors, avx2 fma ...": one line, always terminated. */
void cpu_describe(char *out, size_t size);
/* Processors allowed by the cgroup quota (v2 or v1), rounded up; 0 when there is none.  `mount` is
 * the cgroup mount ("/sys/fs/cgroup"), `self` the list of the process's cgroups
 * ("/proc/self/cgroup"). */
int cpu_quota(const char *mount, const char *self);

#endif
