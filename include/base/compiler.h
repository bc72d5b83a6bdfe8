/* Compiler-specific attributes; everything else is plain C11. */
#ifndef DS_BASE_COMPILER_H
#define DS_BASE_COMPILER_H

#if defined(__GNUC__)
#define DS_CHECK __attribute__((warn_unused_result))
#define DS_PRINTF(f, a) __attribute__((format(printf, f, a)))
#define DS_NORETURN __attribute__((noreturn))
#define DS_UNUSED __attribute__((unused))
#define DS_BEFORE_MAIN __attribute__((constructor))
#define DS_LIKELY(x) __builtin_expect(!!(x), 1)
#define DS_UNLIKELY(x) __builtin_expect(!!(x), 0)
#define DS_MUL_OVERFLOW(a, b, out) __builtin_mul_overflow(a, b, out)
#define DS_ADD_OVERFLOW(a, b, out) __builtin_add_overflow(a, b, out)
#if defined(__x86_64__) || defined(__i386__)
#define DS_PAUSE() __builtin_ia32_pause()
#define DS_ANY_X86 __attribute__((target("arch=x86-64"))) /* whatever -march says */
#define DS_CPU_HAS(name) (__builtin_cpu_init(), __builtin_cpu_supports(name))
#define DS_XGETBV(lo, hi) __asm__ volatile("xgetbv" : "=a"(lo), "=d"(hi) : "c"(0))
#else
#define DS_PAUSE() __asm__ volatile("" ::: "memory")
#endif
#else
#error "unsupported compiler: expected one with GNU attributes (gcc, clang)"
#endif

/* Under AddressSanitizer: marks bytes as inaccessible, and accessible again. */
#if defined(__SANITIZE_ADDRESS__)
#define DS_HAS_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define DS_HAS_ASAN 1
#endif
#endif
#ifdef DS_HAS_ASAN
#include <sanitizer/asan_interface.h>
#define DS_POISON(p, n) ASAN_POISON_MEMORY_REGION(p, n)
#define DS_UNPOISON(p, n) ASAN_UNPOISON_MEMORY_REGION(p, n)
#else
#define DS_POISON(p, n) ((void)(p), (void)(n))
#define DS_UNPOISON(p, n) ((void)(p), (void)(n))
#endif

#define DS_LEN(array) (sizeof(array) / sizeof((array)[0]))

#endif
