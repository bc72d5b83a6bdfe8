/* The test framework.  Test names are sentences: T(topk_breaks_ties_by_lower_index) { ... }.  One program per
 * file; every T runs in its own process with a time limit (Check forks), so a crash is one failed test.
 * Comparisons are written as !(diff <= tol) so that NaN fails. */
#ifndef DS_TESTS_T_H
#define DS_TESTS_T_H

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct t_case {
    const char *name;
    const TTest *test;
    struct t_case *next;
    int seconds;
};
void t_register(struct t_case *c);
/* Ends the current test as skipped, with a printed reason; counted separately. */
void t_skip(const char *fmt, ...) __attribute__((format(printf, 1, 2), noreturn));
/* 1 when tests run under this program (T_RUNNER). */
int t_runs_under(const char *runner);
/* Skips what qemu-user (T_RUNNER) does not do as a kernel does. */
void t_skip_if_emulated(const char *why);
/* Skips where so much cannot be mapped, as under the thread sanitizer and valgrind. */
void t_skip_without_room(size_t bytes);
/* "../shared/data/PATH" below the checkout's parent, or skips the test when it is absent. */
const char *t_shared(const char *path);
/* A fresh empty directory for this test, removed at its end. */
const char *t_tmpdir(void);
/* Relative L2 distance |a-b| / max(|b|, tiny). */
double t_rel_l2(const double *a, const double *b, size_t n);

#define T_SECONDS(fn, limit)                                                                       \
    static void fn(int _i);                                                                        \
    static const TTest fn##_ttest = {"" #fn, fn, __FILE__, __LINE__};                              \
    static struct t_case fn##_case = {#fn, &fn##_ttest, NULL, limit};                              \
    __attribute__((constructor)) static void fn##_register(void)                                   \
    {                                                                                              \
        t_register(&fn##_case);                                                                    \
    }                                                                                              \
    static void fn(int _i __attribute__((unused)))
#define T(fn) T_SECONDS(fn, 60)

/* Check writes to a pipe at each of its assertions, passed or not; some loops here make a million. */
#define t_assert(cond, ...) ((cond) ? (void)0 : ck_abort_msg(__VA_ARGS__))
#define t_true(cond) t_assert(cond, "%s", #cond)
#define t_truef(cond, ...) t_assert(cond, __VA_ARGS__)
#define t_eq(got, want) ck_assert_int_eq((long long)(got), (long long)(want))
#define t_str(got, want) ck_assert_str_eq(got, want)
#define t_near(got, want, tol)                                                                     \
    do {                                                                                           \
        double g_ = (double)(got), w_ = (double)(want), t_ = (double)(tol);                        \
        t_assert(fabs(g_ - w_) <= t_, "%s = %.17g, expected %.17g within %g", #got, g_, w_, t_);   \
    } while (0)
#define t_ok(rc, err)                                                                              \
    do {                                                                                           \
        int rc_ = (rc);                                                                            \
        t_assert(rc_ >= 0, "%s: %d %s", #rc, rc_, (err)->text);                                    \
    } while (0)
/* The call must fail with this code and its text must contain `part`. */
#define t_fails(rc, err, want_code, part)                                                          \
    do {                                                                                           \
        int rc_ = (rc);                                                                            \
        t_assert(rc_ == (want_code), "%s: got %d, expected %d (%s)", #rc, rc_, want_code,          \
                 (err)->text);                                                                     \
        t_assert(strstr((err)->text, part) != NULL, "%s: \"%s\" lacks \"%s\"", #rc, (err)->text,   \
                 part);                                                                            \
    } while (0)

#endif
