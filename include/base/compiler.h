/* The only place that knows the compiler.  Everything else is plain C11. */
#ifndef DS_BASE_COMPILER_H
#define DS_BASE_COMPILER_H

#if defined(__GNUC__)
#define DS_CHECK __attribute__((warn_unused_result))
#define DS_PRINTF(f, a) __attribute__((format(printf, f, a)))
#define DS_NORETURN __attribute__((noreturn))
#define DS_UNUSED __attribute__((unused))
#define DS_LIKELY(x) __builtin_expect(!!(x), 1)
#define DS_UNLIKELY(x) __builtin_expect(!!(x), 0)
#define DS_MUL_OVERFLOW(a, b, out) __builtin_mul_overflow(a, b, out)
#define DS_ADD_OVERFLOW(a, b, out) __builtin_add_overflow(a, b, out)
#else
#error "a compiler with GNU attributes (gcc, clang) is needed"
#endif

#define DS_LEN(array) (sizeof(array) / sizeof((array)[0]))

#endif
