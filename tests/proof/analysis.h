/* Included before each file that is analysed: what an analyser of one file cannot see of others. */
#include "base/err.h"

/* These return the code they are given, which is negative. */
#define err_set(e, code, ...) (err_set(e, code, __VA_ARGS__), (code))
#define err_add(e, code, ...) (err_add(e, code, __VA_ARGS__), (code))
#define err_errno(e, ...) (err_errno(e, __VA_ARGS__), DS_EIO)
