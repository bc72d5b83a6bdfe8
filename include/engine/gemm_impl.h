/* The providers, for gemm.c. */
#ifndef DS_ENGINE_GEMM_IMPL_H
#define DS_ENGINE_GEMM_IMPL_H

#include <stddef.h>

#include "engine/gemm.h"

/* Where the chain over k is cut in the providers that promise rows independent of each other. */
enum { GEMM_KC = 256 };

/* The vector providers: x86-64, float only. */
#if defined(__x86_64__) && REAL_BITS == 32
#define GEMM_X86 1
extern const struct gemm_provider gemm_avx512, gemm_avx2;
#endif
extern const struct gemm_provider gemm_ref;
#ifndef DEPTHSCOPE_NO_BLAS
extern const struct gemm_provider gemm_blas;
#endif

#endif
