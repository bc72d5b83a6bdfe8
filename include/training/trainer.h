/* A training run in this process: model, data, optimiser, run directory, control. */
#ifndef DS_TRAINING_TRAINER_H
#define DS_TRAINING_TRAINER_H

#include <stdatomic.h>
#include <stdint.h>

#include "base/err.h"
#include "base/ranks.h"
#include "data/loader.h"
#include "engine/param.h"
#include "io/alert.h"
#include "io/metric.h"
#include "io/record.h"
#include "io/runlog.h"
#include "models/measure.h"
#include "models/model.h"
#include "models/peft.h"
#include "training/account.h"
#include "training/control.h"
#include "training/options.h"
#include "training/pieces.h"

/* One fixed text whose full decisions are recorded every train.probe_every steps. */
struct probe_text {
    char name[32];
    int32_t *id;
    const char **piece;
    size_t *piece_len;
    float *true_entropy, *needed, *token_class;
    int32_t *private_start;
    int n;
};

enum { SIGNAL_CHECKPOINT = -1 };

/* State saved with the weights: everything else that the next step depends on. */
struct train_state {
    int64_t step, tokens, skipped, bad_in_row, best_step;
    double best_loss, seconds;
    struct loader_pos pos;
};

enum { LIVE_MAX = 64 };
/* A setting changed while the run was running: in effect from step + 1 on. */
struct live_setting {
    char key[64];
    double value;
    int64_t step;
};

enum { TEAM_SETS = 32 };
struct team_time {
    double step, wait, bytes; /* ms, ms, sent */
};
/* Of several ranks (training/team.h). */
struct team {
    struct shard *shard;   /* NULL: every rank has all moments */
    int is_running;        /* settings go to the others */
    int in_step;           /* a step failed: the other ranks are somewhere inside it */
    int sets;              /* noted for the next order */
    struct team_time *all; /* (2, ranks): sums since the last record; of the newest step */
    int64_t steps;
    struct ranks_account before;
    struct {
        char key[64];
        double value;
    } set[TEAM_SETS];
};

struct trainer {
    struct train_config config;
    char dir[1024], name[65];
    char run_id[40]; /* stored in the log's head and in each checkpoint's manifest */
    int home; /* descriptor of the directory: paths under `dir` resolve to it even after a rename */
    int has_moved;      /* a rename was detected and logged */
    int config_is_lost; /* with resume: config.yaml was unreadable and is rewritten */
    struct corpus *corpus;
    struct tokenizer *tokenizer;
    struct loader *train, *val;
    struct model *model, *teacher; /* teacher: NULL unless it is a separate model */
    struct base_ref base; /* base that checkpoints refer to; path "" = they hold all weights */
    struct train_state state;
    struct step_report report;
    struct account account;
    struct pieces pieces;
    struct team team;
    double flops; /* of the step's multiplications on all ranks */
    struct probe_text *probe;
    int probes;
    int32_t *input, *target, *doc_start; /* (rows) */
    int32_t *private_start;              /* NULL: the data have no private spans */
    float *true_entropy, *needed;        /* (rows) */
    uint8_t *class_of, *target_class;    /* (rows) */
    float *token_class;                  /* (vocab) */
    real *exit_weight;                   /* (depth + 1); NULL: no exit losses */
    double *expert_load; /* (depth, experts) since the last record; NULL: no experts */
    int rows;
    struct runlog_writer *log;
    struct record *record;
    struct alert_watch alerts;
    struct machine_watch *machine; /* NULL: not running, or train.system_every is 0 */
    struct control *control;
    atomic_int *stop_signal; /* 0, SIGNAL_CHECKPOINT, or the number of a stop signal */
    int checkpoint_requested, wants_probe, wants_stop, is_paused, save_failed, log_failures,
        has_reported_unready;
    int is_partial; /* the newest step was taken and lacks records, as of its evaluation */
    const char *version;
    struct live_setting
        live[LIVE_MAX]; /* kept in live.json, oldest first; the last entry of a key is in effect */
    int n_live;
    int live_differs;   /* from what the log says: the settings follow behind the head */
    int64_t saved_step; /* newest checkpoint that this process wrote or started from; -1 = none */
    const char *const
        *override; /* borrowed, with resume: keys given again, which override live.json */
    int n_override;
    char parent[65]; /* run it was forked from (meta.json), "" = none; written to the log's head */
    char resumed_from[128]; /* text of the event after a resume's head */
    int resumed_level;
    char started[600]; /* what was loaded from train.init, "" = nothing */
    /* called after every step; may be NULL */
    void (*on_step)(void *ctx, const struct trainer *t);
    /* reports a long phase that is not a step, such as "final evaluation"; may be NULL */
    void (*on_phase)(void *ctx, const struct trainer *t, const char *what);
    void *ctx;
};

/* Opens everything.  dir must exist and contain config.yaml (trainer_create); resume != 0 continues
 * from the newest valid checkpoint.  A second writer on the run: DS_EBUSY. */
int trainer_open(struct trainer *t, const char *dir, struct train_config *config, int resume,
                 int allow_change, struct err *e) DS_CHECK;
/* Creates runs/NAME with config.yaml and meta.json; DS_EEXIST when it exists, also when another
 * process created it first. */
int trainer_create(const char *dir, const struct train_config *config, int argc, char **argv,
                   const char *version, const char *parent, struct err *e) DS_CHECK;
/* The same for a directory that already holds the checkpoint (without a run_id), tokenizer and live
 * settings to start from. */
int trainer_create_begun(const char *dir, const struct train_config *config, int argc, char **argv,
                         const char *version, const char *parent, struct err *e) DS_CHECK;
/* Undoes trainer_create for a run that could not start.  Other files are kept. */
void trainer_discard(const char *dir);
/* With resume: rewrites config.yaml if it was lost or keys were changed, and meta.json if it cannot
 * be read. */
int trainer_repair(struct trainer *t, struct err *e) DS_CHECK;
int trainer_write_config(const char *dir, const struct train_config *config,
                         struct err *e) DS_CHECK;
/* Trains to the end, a stop or a failure.  Writes the final evaluation, the end record and a last
 * checkpoint. */
int trainer_run(struct trainer *t, struct err *e) DS_CHECK;
/* Ranks other than 0: takes part in the steps until rank 0 ends them. */
int trainer_follow(struct trainer *t, struct err *e) DS_CHECK;
void trainer_close(struct trainer *t);

/* Changes a live setting: an option of training or of the method whose row has is_live ("train.lr"
 * or "lr", "edp.target_ratio"), within the range of the row.  DS_ENOTFOUND names them all.  In
 * effect for the rest of the run, also after a resume (trainer_keep_live). */
int trainer_set(struct trainer *t, const char *key, double value, struct err *e) DS_CHECK;
/* Validates a live setting without changing it. */
int trainer_check_set(const struct trainer *t, const char *key, double value,
                      struct err *e) DS_CHECK;
/* 1 when the value is so far from the current one that the user should confirm it; why: one
 * line. */
int trainer_is_large_change(const struct trainer *t, const char *key, double value, char *why,
                            size_t size);
/* Drops the settings made after `step`, in memory and in live.json; note: their list ("" =
 * none). */
int trainer_revert_live(struct trainer *t, int64_t step, struct str *note, struct err *e) DS_CHECK;

/* ---- parts, each in its own file ---- */
/* home.c: opens and locks the run's directory; DS_EBUSY when another process writes there. */
int trainer_home_open(int *home, const char *dir, struct err *e) DS_CHECK;
void trainer_home_close(int home); /* -1 is allowed */
/* 1 when the directory, or its log, was removed or replaced. */
int trainer_home_is_missing(const struct trainer *t);
/* Where the run is by now, for whoever is to find it: t->dir unless it was renamed. */
void trainer_home_now(const struct trainer *t, char *out, size_t size);
/* DS_ENOTFOUND when it was removed or replaced; logs a rename once. */
int trainer_home_check(struct trainer *t, struct err *e) DS_CHECK;
/* DS_EEXIST when it holds files of a run; has_begun: other than checkpoints, tokenizer and live
 * settings. */
int trainer_home_is_empty(const char *dir, int has_begun, struct err *e) DS_CHECK;
/* Sets t->run_id: the log's, else the newest checkpoint's, else a new one. */
int trainer_home_identify(struct trainer *t, int resume, struct err *e) DS_CHECK;
/* Renames an unreadable file to PATH.broken, so that it can be rewritten. */
int trainer_rename_broken(const char *path, struct err *e) DS_CHECK;
/* command.c: opens control.sock and handles its commands; ctx is the trainer. */
int trainer_listen(struct trainer *t, struct err *e) DS_CHECK;
void trainer_command_run(void *ctx, const char *line, struct str *answer);
void trainer_command_done(void *ctx, int64_t id, const char *line, const char *answer);
void trainer_set_status(struct trainer *t);
int trainer_setup(struct trainer *t, struct err *e) DS_CHECK; /* setup.c: data, model, probes   */
/* Call once the weights are loaded: prepares them for the matrix multiplications. */
int trainer_prepare_weights(struct trainer *t, struct err *e) DS_CHECK;
/* save.c.  1: a valid checkpoint of this step was there, and is kept. */
int trainer_save(struct trainer *t, struct err *e) DS_CHECK;
/* finite.c: DS_ENUMERIC when trained values, moments or the newest validation loss are not finite,
 * so that the state must not be resumed from. */
int trainer_check_finite(const struct trainer *t, struct err *e) DS_CHECK;
/* Decides what checkpoints hold (train.save); call after loading the weights, before the first
 * checkpoint. */
int trainer_find_base(struct trainer *t, struct err *e) DS_CHECK;
int trainer_keep_live(const struct trainer *t,
                      struct err *e) DS_CHECK; /* live.c: live.json of the run */
int trainer_apply_live(struct trainer *t,
                       struct err *e) DS_CHECK; /* applies live.json at a resume */
/* Adds `live` to the head record: key and range of each live setting. */
void trainer_record_live(const struct trainer *t);
/* Copies the live settings that run `from` had at `step` to run `to`. */
int trainer_copy_live(const char *from, const char *to, int64_t step, struct err *e) DS_CHECK;
/* Appends a setting; when there are LIVE_MAX of them the oldest that a later one of its key
 * overrides makes room.  1: no room. */
int trainer_add_live(struct live_setting v[LIVE_MAX], int *n, const char *key, double value,
                     int64_t step);
/* live_log.c: an event "settings" has all that hold, an event "set" adds one.  What a log says
 * of the settings that were made before a step, INT64_MAX: of all: */
int trainer_live_from_log(const char *dir, int64_t before, struct live_setting v[LIVE_MAX], int *n,
                          struct err *e) DS_CHECK;
/* For what no "set" of this log has note: inherited, overridden or taken back. */
int trainer_log_live(struct trainer *t, struct err *e) DS_CHECK;
int trainer_log_set(struct trainer *t, const char *key, double value, struct err *e) DS_CHECK;
int trainer_restore(struct trainer *t, int allow_change, struct err *e) DS_CHECK;
int trainer_log_head(struct trainer *t, int resume, struct err *e) DS_CHECK; /* report.c */
/* Appends t->record.  A record that cannot be written is kept in memory; only many consecutive
 * failures are an error. */
int trainer_append(struct trainer *t, struct err *e) DS_CHECK;
int trainer_append_body(struct trainer *t, struct value body, struct err *e) DS_CHECK;
int trainer_log_step(struct trainer *t, struct err *e) DS_CHECK;
int trainer_log_layers(struct trainer *t, struct err *e) DS_CHECK;
/* The machine, where a sample has arrived since the last one. */
int trainer_log_system(struct trainer *t, struct err *e) DS_CHECK;
/* Items of expert_load. */
static inline size_t trainer_expert_cells(const struct trainer *t)
{
    const struct model_config *c = &t->model->config;
    return (size_t)model_config_depth(c) * (size_t)model_config_choices(c);
}
int trainer_log_probes(struct trainer *t, struct err *e) DS_CHECK;
/* Writes an event for each alert that was raised or is over. */
int trainer_log_alerts(struct trainer *t, struct err *e) DS_CHECK;
int trainer_log_event(struct trainer *t, int level, const char *name, const char *text,
                      struct err *e) DS_CHECK;
int trainer_log_end(struct trainer *t, const char *status, const char *text,
                    struct err *e) DS_CHECK;
/* Validation over about `tokens` tokens; final != 0 also records samples and measures time. */
int trainer_evaluate(struct trainer *t, int final,
                     struct err *e) DS_CHECK; /* evaluate.c */

#endif
