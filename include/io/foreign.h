/* Logs of other programs, followed like our own: bytes in, records out.
 *
 * A format is one file, src/io/foreign_FORMAT.c, and one line of FOREIGN_FORMATS.  It recognises the
 * first bytes of a file, and turns the bytes of a growing file into points and records.  Finding the
 * files of a folder, waiting for torn ends, noticing that a file was replaced, and delivering what
 * was found as entries of io/runlog.h is done once, in foreign.c.  Nothing above io knows where an
 * entry came from.  All bytes are untrusted. */
#ifndef DS_IO_FOREIGN_H
#define DS_IO_FOREIGN_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "io/record.h"

/* ---- for formats: where points and records go ---- */

struct foreign_out;

enum {
    FOREIGN_NAME_MAX = 255,  /* bytes of a metric name; longer ones are cut and given a hash */
    FOREIGN_NAMES_MAX = 4096 /* names of a run; points of further ones are counted and dropped */
};

/* One value of a metric: `name` (n bytes, as it was logged) at a step.  time: Unix seconds, NaN
 * unknown.  The metric "tokens" is also an axis for the points of the same step after it.  Points
 * with a negative step are counted as invalid.  "step", "time" and "kind" are keys of every record:
 * metrics of these names get an underscore. */
void foreign_point(struct foreign_out *out, const char *name, size_t n, int64_t step, double time,
                   double value);
/* Starts a record of io/FORMATS.md (head, event, eval, end, ...) and returns the builder to add
 * keys with; foreign_end finishes it.  A `head` only adds to what is known of the run, and
 * supersedes points only with `resume`. */
struct record *foreign_begin(struct foreign_out *out, const char *kind, int64_t step, double time);
void foreign_end(struct foreign_out *out);
/* Something that was to be reported is lost: reading ends with DS_EMEM. */
void foreign_no_memory(struct foreign_out *out);
/* An `event` record: level "info", "warn" or "error". */
void foreign_event(struct foreign_out *out, int64_t step, double time, const char *level,
                   const char *name, const char *text);
/* Counts something unreadable that was skipped (a damaged record, a cell that is not a number). */
void foreign_invalid(struct foreign_out *out, uint64_t n);

struct foreign_bytes {
    const char *p;
    size_t n;
    const char *file; /* path below the run's folder, or the file's name: "metrics/loss" */
    uint64_t offset;  /* of p[0] in the file */
    int is_end; /* nothing follows: the file is at rest, or the pipe closed.  A last line without
                         its newline is complete; anything else cut off is left (return less than n) */
};

struct foreign_format {
    const char *name;  /* "tensorboard" */
    const char *title; /* "TensorBoard events" */
    const char *help;  /* one line: what is read from which files */
    /* How sure the first n bytes (up to FOREIGN_PEEK) of a file are of this format: 0 no, 1 to 100;
     * the highest wins, ties go to the earlier row.  `file` may only break ties between formats
     * that the bytes allow.  is_all: the file ends there.  Allocates nothing. */
    int (*recognise)(const unsigned char *p, size_t n, const char *file, int is_all);
    size_t state_size; /* of a file, zeroed at its beginning */
    /* Takes whole units from the start of b->p and returns how many bytes they had; what is left is
     * offered again with more bytes after it.  Negative: DS_EFORMAT, the file cannot be read any
     * further; *e says why in one line that begins with the place, without the path. */
    int64_t (*take)(void *state, struct foreign_out *out, const struct foreign_bytes *b,
                    struct err *e);
    void (*release)(void *state); /* what the state owns; NULL: nothing */
    /* Is `rel` ("checkpoint-500/trainer_state.json", "metrics/train/loss") one of the files that make
     * up a run in a folder?  NULL: a file is a run of its own.  Only files that also pass
     * `recognise` are read, except where is_named. */
    int (*is_member)(const char *rel);
    int depth;                         /* folders below the run's to look into, 0 = none */
    int (*is_folder)(const char *rel); /* may this one hold members?  NULL: each may */
    int is_nested; /* folders in a run's may be runs of their own */
    const char *inner; /* a folder of this name inside the run's stands for the run, NULL: none */
    int is_named; /* the file's name says what it is; `recognise` of the folder's files is not asked */
    int is_whole; /* the file is rewritten in place: `take` gets it whole each time (is_end) or not yet;
                     points of the earlier content are discarded */
    int (*is_rewritten)(const char *rel); /* the same for some of the members; NULL: none */
    int has_preamble; /* any amount of other text may come first: the end of a file tells, too */
    /* Of the members only the one with the highest place is read, the last name among equals; NULL:
     * all are. */
    int64_t (*place)(const char *path, const char *rel);
};

enum { FOREIGN_PEEK = 16384 };

/* In order of recognition. */
#define FOREIGN_FORMATS(X)                                                                         \
    X(tensorboard) X(wandb) X(trainer) X(jsonl) X(json_array) X(csv) X(mlflow) X(console)
extern const struct foreign_format *const foreign_formats[]; /* ends with NULL */

/* The first whole line of text at p: its length without the newline (a '\r' before it is cut too)
 * and in *used with it; 0 and *used = 0 when there is none yet.  With is_end the rest is a line. */
size_t foreign_line(const char *p, size_t n, int is_end, size_t *used);
/* A number as programs write it: decimal, exponent, NaN, nan, Infinity, -inf, with optional spaces
 * around it; a comma as decimal separator when allow_comma.  0 when the n bytes are not one. */
int foreign_number(const char *p, size_t n, int allow_comma, double *out);

/* ---- for readers: used by io/runlog.h and io/runindex.h ---- */

struct foreign_point {
    const char *name; /* as long as the reader */
    uint32_t id;      /* 0, 1, ...: the same for the same name */
    int64_t step;
    double time, value;
};

struct foreign_reader;
struct runlog_entry;

/* Looks at a file, or a folder and what is below it: 1 and the format when it is a log of another
 * program, else 0.  Bounded: at most a few hundred names are looked at. */
int foreign_find(const char *path, const struct foreign_format **format);
/* DS_ENOTFOUND: neither a foreign log nor a folder of one; the message names what was expected.
 * No file stays open between calls. */
int foreign_reader_open(struct foreign_reader **out, const char *path, struct err *e) DS_CHECK;
/* A stream whose bytes the caller pushes.  DS_ENOTFOUND: the first n bytes are of no format. */
int foreign_reader_stream(struct foreign_reader **out, const void *p, size_t n, int is_end,
                          struct err *e) DS_CHECK;
int foreign_push(struct foreign_reader *r, const void *p, size_t n, int is_end,
                 struct err *e) DS_CHECK;
/* As runlog_next; entries have either a body or points. */
int foreign_next(struct foreign_reader *r, struct runlog_entry *entry, struct err *e) DS_CHECK;
/* Points as `metric` records (the default), or as they are, in batches. */
void foreign_wants_points(struct foreign_reader *r);
void foreign_limit(struct foreign_reader *r, size_t bytes); /* as runlog_reader_limit */
int foreign_is_behind(const struct foreign_reader *r);
/* Bytes of all files whose contents were delivered. */
uint64_t foreign_position(const struct foreign_reader *r);
uint64_t foreign_left(const struct foreign_reader *r); /* bytes not taken yet, torn ends included */
double
foreign_modified(const struct foreign_reader *r); /* newest change of a file, Unix s; 0 none */
uint64_t foreign_skipped(const struct foreign_reader *r); /* things that could not be read */
uint64_t foreign_others(const struct foreign_reader *r);  /* points beyond FOREIGN_NAMES_MAX */
const struct foreign_format *foreign_reader_format(const struct foreign_reader *r);
void foreign_reader_close(struct foreign_reader *r);

#endif
