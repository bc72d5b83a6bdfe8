/* Writes the metrics of a run as an event file of TensorBoard. */
#ifndef DS_IO_TFEVENTS_H
#define DS_IO_TFEVENTS_H

#include "base/err.h"
#include "base/str.h"
#include "io/runview.h"

/* Appends the whole file: the points of all metrics by step, superseded ones left out.  Values are
 * float32, as TensorBoard's; where that is not exact, a field that other readers skip holds the
 * double, so that io/foreign.h reads back what was written.  An unknown time is 0. */
int tfevents_write(struct str *out, const struct runview *v, struct err *e) DS_CHECK;

#endif
