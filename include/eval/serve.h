/* Server side of eval/job.h: requests in, records out.  The caller owns the descriptors. */
#ifndef DS_EVAL_SERVE_H
#define DS_EVAL_SERVE_H

#include "base/err.h"

enum { SERVE_LINE_MAX = 4 << 20 };

/* Opens MODEL and answers until `in` ends.  A request that fails is answered with a record "error";
 * returns 0 at the end of input, or an error when an answer cannot be written, or when the model
 * cannot be opened (then one "error" record was written). */
int serve_run(const char *model, int in, int out, const char *version, struct err *e) DS_CHECK;

#endif
