/* What the text formats share: whole lines of a growing file, and the names that programs give to
 * the axes of a log. */
#ifndef DS_IO_FOREIGN_TEXT_H
#define DS_IO_FOREIGN_TEXT_H

#include "io/foreign.h"

enum { TEXT_LINE_MAX = 4 << 20 };

/* Zero-initialise. */
struct text_lines {
    uint64_t number; /* of the newest line, from 1 */
    int is_skipping; /* inside a line that is too long */
};
/* The next whole line from b->p + *at on, which moves after it; 0 when there is none yet.  A line
 * of more than TEXT_LINE_MAX bytes is passed over and counted. */
int text_next(struct text_lines *t, struct foreign_out *out, const struct foreign_bytes *b,
              size_t *at, const char **line, size_t *n);

/* How good the name of a column or member is for the step of its line: 0 not at all. */
int text_step_rank(const char *name, size_t n);
/* 1 and the step, when the value is one. */
int text_step(double value, int64_t *step);

/* Steps that are counted anew in each epoch: a later epoch begins with the first step of all.  From
 * then on the steps of the epochs before are added.  Zero-initialise. */
struct text_epochs {
    double first, epoch;                   /* of all; newest */
    int64_t first_step, step, sum, before; /* as logged: of all, newest; newest of the run; added */
    int has_step, has_epoch, is_anew;
};
/* The step in the whole run.  epoch: NaN where the line does not say it. */
int64_t text_epochs_step(struct text_epochs *t, double epoch, int64_t step);
int text_is_time(const char *name, size_t n);

/* Finds where a run was started again from an earlier step into the same log.  Lines or objects of
 * one kind have the same names.  Zero-initialise. */
struct text_restart {
    struct text_kind {
        uint64_t kind;
        int64_t top, last; /* highest and newest step */
        int is_again;      /* the newest had been there before */
    } of[16];
    size_t n;
    int64_t top; /* of all kinds */
    int has_top;
    uint64_t seen[256]; /* bits by hash: which steps of which kind there were */
};
/* 1: what follows, this step included, replaces what was logged of these steps before.  That is so
 * when the kind that came furthest goes through earlier steps once more: two in order, both short
 * of where it was.  Ranks that lag by one step do not, nor do results of checkpoints in any order.
 * is_sure: the first such step tells already. */
int text_restart_at(struct text_restart *t, uint64_t kind, int64_t step, int is_sure);
/* 1 and Unix seconds, when the value is a point in time: seconds, or milli-, micro- or nanoseconds
 * by their size.  Small numbers are durations. */
int text_time(double value, double *seconds);
/* The same for text as of ISO 8601: 2024-05-01T12:34:56.789+02:00.  Without a zone it is local. */
int text_time_parse(const char *p, size_t n, double *seconds);
/* Is it a name of data that a model is evaluated on: "val", "Test", "dev_other"?  The word's bytes. */
size_t text_evaluated(const char *p, size_t n);
/* Does a column or key of that name say what its row was measured on: "split", "mode"? */
int text_is_split(const char *name, size_t n);
/* ... whose row it is, in a table of several runs: "run", "model", "seed"? */
int text_is_run(const char *name, size_t n);
/* Rows of several runs in one file.  Zero-initialise. */
struct text_runs {
    char first[128];
    int64_t start;      /* its first step */
    uint64_t others[4]; /* bits by hash of their names */
};
/* Is a row of another run than the first?  One that begins later than it did is the same, started
 * again under a new name. */
int text_run_is_other(struct text_runs *t, const char *run, int64_t step);
/* Tables with a row for each number: is it the column or key of its metric's name ("metric", "tag"),
 * or of the number ("value")? */
int text_is_label(const char *name, size_t n);
int text_is_value(const char *name, size_t n);
/* n bytes and `word`, without regard to case. */
int text_same(const char *p, size_t n, const char *word);

#endif
