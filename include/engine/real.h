/* The engine's floating-point type: float in the program, double in the gradient checks. */
#ifndef DS_ENGINE_REAL_H
#define DS_ENGINE_REAL_H

#include <math.h>

#ifndef REAL_BITS
#define REAL_BITS 32
#endif

#if REAL_BITS == 64
typedef double real;
#define REAL_C(x) (x)
#define sqrt_r sqrt
#define exp_r exp
#define log_r log
#define tanh_r tanh
#define erf_r erf
#define fabs_r fabs
#elif REAL_BITS == 32
typedef float real;
#define REAL_C(x) (x##F)
#define sqrt_r sqrtf
#define exp_r expf
#define log_r logf
#define tanh_r tanhf
#define erf_r erff
#define fabs_r fabsf
#else
#error "REAL_BITS must be 32 or 64"
#endif

#endif
