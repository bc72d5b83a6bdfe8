/* What the views with a model's process share: which model, and the records that it answers. */
#ifndef DS_TUI_WORKER_H
#define DS_TUI_WORKER_H

#include "eval/job.h"
#include "tui/view.h"

/* The current run, NULL when none is open. */
const struct open_run *worker_run(struct app *app);
/* Step and path of the newest checkpoint directory of a run by name, -1 none. */
int64_t worker_newest_checkpoint(const char *dir, char *path, size_t size);
/* Step of the checkpoint that a run's path means as a model, -1 none or not a run. */
int64_t worker_best_checkpoint(const char *dir);
/* The model to load: `given` unless "", else the best checkpoint of the current run or its newest
 * one.  0: there is none, and `why` says what to do.  *newest: step of the newest checkpoint, -1
 * when not of a run. */
int worker_find_model(struct app *app, const char *given, int is_newest, char *path, size_t size,
                      int64_t *newest, char *why, size_t why_size);
/* session_next; a key script is not polled again, so there it waits for an answer (a minute). */
int worker_next(struct app *app, struct session *s, struct value *body, struct err *e) DS_CHECK;
/* The last part of a path. */
const char *worker_name(const char *path);
/* The same for people: of the current run's model on a host the name of the run. */
const char *worker_title(struct app *app, const char *path);
/* The host that this model is on, NULL: this machine. */
struct host *worker_host(struct app *app, const char *path);
/* "  34 ms" for such a model: the latency of the line to it, or the state of a line that is down; "" when
 * it is here or nothing is known. */
const char *worker_latency(struct app *app, const char *path, char out[24]);
/* The model that a process opens for a path: of a run on a host the socket of its mirror. */
const char *worker_model(const char *path, char *room, size_t size);
/* A name for files about a model: of a run on a host "box-first". */
const char *worker_file_name(struct app *app, const char *path, char *out, size_t size);
/* Replaces *r with a view of this record alone. */
void worker_replace(struct runview **r, struct value body);
/* The same of the record under construction. */
void worker_replace_by(struct runview **r, struct record *record);
/* The newest probe that has cells, or NULL. */
const struct probe *worker_probe(const struct runview *r);

#endif
