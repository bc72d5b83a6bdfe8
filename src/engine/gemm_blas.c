/* The BLAS provider: OpenBLAS, single-threaded per call, since only the pool creates threads.  It
 * is loaded on first use and not linked: it starts its threads before main, and ends the program
 * where it may not (ulimit -u, ulimit -v). */
#ifndef DEPTHSCOPE_NO_BLAS
#include <fenv.h>
#include <cblas.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "base/cpu.h"
#include "base/log.h"
#include "engine/gemm_impl.h"
#include "engine/scratch.h"

#ifndef DEPTHSCOPE_BLAS_DIR
#define DEPTHSCOPE_BLAS_DIR                                                                        \
    "" /* where the library was when this was built; "": where the system looks */
#endif

#if REAL_BITS == 32
#define GEMM_SYMBOL "cblas_sgemm"
#else
#define GEMM_SYMBOL "cblas_dgemm"
#endif
typedef void blas_gemm(enum CBLAS_ORDER order, enum CBLAS_TRANSPOSE ta, enum CBLAS_TRANSPOSE tb,
                       int M, int N, int K, real alpha, const real *A, int lda, const real *B,
                       int ldb, real beta, real *C, int ldc);

static pthread_once_t once = PTHREAD_ONCE_INIT;
static blas_gemm *multiply;

/* What the library maps for itself; without it, it asks for memory for ever. */
static int has_room(void)
{
    static const rlim_t least = (rlim_t)1 << 30;
    struct rlimit limit;
    if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY ||
        limit.rlim_cur >= least)
        return 1;
    log_warn("the address space is limited (ulimit -v): OpenBLAS is not used");
    return 0;
}

static void blas_load(void)
{
    static const char *const name[] = {"libopenblas.so.0", "libopenblas.so", "libopenblas.dylib",
                                       "libcblas.so.3"};
    char path[1024];
    void *library = NULL;
    fenv_t before; /* one built with fast arithmetic sets this thread to flush denormals */
    if (!has_room())
        return;
    fegetenv(&before);
    setenv("OPENBLAS_NUM_THREADS", "1",
           1); /* read when it is loaded; its threads would have no work */
    for (size_t i = 0; !library && i < DS_LEN(name); i++)
        library = dlopen(name[i], RTLD_NOW | RTLD_LOCAL);
    for (size_t i = 0; !library && DEPTHSCOPE_BLAS_DIR[0] && i < DS_LEN(name); i++) {
        snprintf(path, sizeof path, "%s/%s", DEPTHSCOPE_BLAS_DIR, name[i]);
        library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    }
    fesetenv(&before);
    void *symbol = library ? dlsym(library, GEMM_SYMBOL) : NULL;
    memcpy(&multiply, &symbol,
           sizeof multiply); /* ISO C has no conversion of an object pointer to a function's */
}

static int blas_available(void)
{
    if (!cpu_allows(CPU_AVX2)) /* DEPTHSCOPE_CPU=ref means plain loops */
        return 0;
    pthread_once(&once, blas_load);
    return multiply != NULL;
}

/* BLAS cannot gather rows, so they are copied first. */
static struct operand plain(const struct operand *x, int rows, int cols, enum scratch_slot slot)
{
    if (!x->row)
        return *x;
    real *p = scratch_get(slot, (size_t)rows * (size_t)cols, sizeof *p);
    for (int i = 0; i < rows; i++)
        memcpy(p + (size_t)i * cols, operand_row(x, i), (size_t)cols * sizeof *p);
    return (struct operand){p, cols, x->trans, NULL};
}

static void blas_tile(const struct gemm_tile *t)
{
    enum CBLAS_TRANSPOSE ta = t->a.trans ? CblasTrans : CblasNoTrans,
                         tb = t->b.trans ? CblasTrans : CblasNoTrans;
    struct operand a =
        plain(&t->a, t->a.trans ? t->K : t->M, t->a.trans ? t->M : t->K, SCRATCH_PACK_A);
    struct operand b =
        plain(&t->b, t->b.trans ? t->N : t->K, t->b.trans ? t->K : t->N, SCRATCH_PACK_B);
    if (t->add && t->add != t->C)
        for (int m = 0; m < t->M; m++)
            memcpy(t->C + (size_t)m * t->ldc, t->add + (size_t)m * t->add_ld,
                   (size_t)t->N * sizeof *t->C);
    multiply(CblasRowMajor, ta, tb, t->M, t->N, t->K, t->alpha, a.p, a.ld, b.p, b.ld,
             t->add ? 1 : 0, t->C, t->ldc);
}

const struct gemm_provider gemm_blas = {
    .name = "blas", .format = GEMM_FP32, .available = blas_available, .tile = blas_tile};
#else
typedef int gemm_blas_is_left_out; /* a translation unit must not be empty */
#endif
