/* A model in a child process: JSON request lines in, records out.  The workbench's
 * Stepper and Generate use it, so that a crash or a slow model never blocks the screen. */
#ifndef DS_EVAL_JOB_H
#define DS_EVAL_JOB_H

#include "base/err.h"
#include "io/record.h"

struct session;
/* Starts `depthscope serve MODEL` on pipes. MODEL as on the command line. Returns at once. */
int session_open(struct session **out, const char *model, struct err *e) DS_CHECK;
/* Queues one request line (JSON object).  Requests:
 *   {"do":"trace","text":"...","generate":0,"lens":5}         -> record kind "probe" (all cells, logit lens)
 *   {"do":"trace","ids":[...]}                                 -> the same from ids
 *   {"do":"next","temperature":0.8,"top_k":40,"top_p":0.95,"seed":1} -> appends one sampled token, then a "probe" of all
 *   {"do":"force","layer":l,"token":t,"run":0|1|-1}            -> sets/clears a forced cell, then "probe" with token vector "nll" and
 *                                                                 cell changes; also key "delta_loss" in token map
 *   {"do":"offset","value":x}                                  -> threshold offset in standardised units, then "probe"
 *   {"do":"info"}                                              -> record kind "head"
 * Each answer ends with a record kind "done" (key "do"), or kind "error" (key "text"). */
int session_send(struct session *s, const char *json, struct err *e) DS_CHECK;
/* 1 = a record (borrowed until the next call), 0 = nothing yet, DS_* when the process ended (text says how). */
int session_next(struct session *s, struct value *body, struct err *e) DS_CHECK;
int session_fd(const struct session *s);   /* for poll */
int session_busy(const struct session *s); /* requests not yet done */
void session_close(struct session *s);

#endif
