/* The record stream of a run: one appending writer (holds the lock), any number of readers. */
#ifndef DS_IO_RUNLOG_H
#define DS_IO_RUNLOG_H

#include <stdint.h>

#include "base/err.h"
#include "io/record.h"

/* Name of the event in a copy of a log that holds only the extremes of what the log holds: a long log over
 * a host (io/host.h). */
#define RUNLOG_SUMMARY "host_summary"

struct runlog_writer;
/* Opens or creates PATH for appending: takes flock (DS_EBUSY when another process writes; the text
 * names its pid when known), finds the end of the last whole record, truncates a torn tail and
 * continues the seq. */
int runlog_writer_open(struct runlog_writer **out, const char *path, struct err *e) DS_CHECK;
/* Frames and appends what the builder holds, with one write.  When the disk is full the record goes
 * to a bounded ring in memory that is retried at the next append; runlog_writer_dropped counts drops.
 * fdatasync at most every `sync_interval_s` (default 5); what one that failed should have stored, up
 * to 8 MiB, is written again before the next. */
int runlog_append(struct runlog_writer *w, struct record *r, struct err *e) DS_CHECK;
/* The same for a record that another process built: a checked body. */
int runlog_append_body(struct runlog_writer *w, struct value body, struct err *e) DS_CHECK;
int runlog_writer_sync(struct runlog_writer *w, struct err *e) DS_CHECK;
uint64_t runlog_writer_dropped(const struct runlog_writer *w);
/* File size after the last whole record; the checkpoint stores it so that resume can mark
 * superseded records. */
uint64_t runlog_writer_offset(const struct runlog_writer *w);
/* State of the file when it was opened: the run id of the newest head that has one ("" = none), the
 * highest step with a metric (-1 = none), and whether there is a head at all. */
enum { RUNLOG_RUN_ID = 40, RUNLOG_PARENT = 65 };
const char *runlog_writer_run_id(const struct runlog_writer *w);
const char *runlog_writer_parent(const struct runlog_writer *w); /* likewise */
int64_t runlog_writer_step(const struct runlog_writer *w);
int runlog_writer_has_head(const struct runlog_writer *w);
/* 1 while the path still names the file being written, i.e. it was neither removed nor replaced; 1
 * as well when the system fails to say. */
int runlog_writer_owns_path(const struct runlog_writer *w);
/* Bytes of records buffered in memory because the disk is full (0 = everything is written). */
uint64_t runlog_writer_buffered(const struct runlog_writer *w);
void runlog_writer_sync_interval(struct runlog_writer *w, double seconds);
/* Retries buffered records once, syncs and releases the lock; logs what could not be written. */
void runlog_writer_close(struct runlog_writer *w);
/* 1 when another process holds the writer's lock of PATH, 0 when none does or it cannot be
 * determined. */
int runlog_is_locked(const char *path);

/* A reader follows a growing file or a pipe (path "-" = stdin): a record stream, or the log of
 * another program (io/foreign.h), which may also be a folder. */
struct runlog_reader;
struct foreign_point;
int runlog_reader_open(struct runlog_reader **out, const char *path, struct err *e) DS_CHECK;
struct runlog_entry {
    struct value body; /* valid until the next call on this reader */
    uint64_t seq, offset;
    int is_gap; /* no body: damaged bytes were skipped here; gap_bytes, lost say how much */
    uint64_t gap_bytes, lost; /* lost: records missing right before this entry, by their seq */
    int is_reset;   /* a gap of 0 bytes: the file was replaced or shrank, reading starts over */
    int is_repeat;  /* seq not above the last one's and no head record: a duplicate or out of order
                    */
    int is_rewrite; /* with is_reset: the file is one that its writer always writes anew, or its last
                       line, taken as whole at rest, went on */
    const struct foreign_point *point; /* instead of a body, after runlog_reader_wants_points: */
    size_t points;                     /* values that another program logged, io/foreign.h */
};
/* 1 = an entry, 0 = nothing (more) now (call again later), DS_* on failure. A replaced or shrunk
 * file is reopened and read from the start (entry.is_gap with gap_bytes 0 tells the caller to
 * discard what it had). */
int runlog_next(struct runlog_reader *r, struct runlog_entry *entry, struct err *e) DS_CHECK;
/* Bounded work: runlog_next also answers 0 after about `bytes` bytes without a record (0, the
 * default: never for files, 8 MiB for pipes).  runlog_reader_is_behind reports that case: call
 * again at once. */
void runlog_reader_limit(struct runlog_reader *r, size_t bytes);
int runlog_reader_is_behind(const struct runlog_reader *r);
int runlog_reader_fd(const struct runlog_reader *r);     /* for poll; -1 for plain files */
int runlog_reader_at_end(const struct runlog_reader *r); /* pipe closed */
/* Where the last whole record ends, and how many bytes of an incomplete record follow it. */
uint64_t runlog_reader_offset(const struct runlog_reader *r);
uint64_t runlog_reader_tail(const struct runlog_reader *r);
/* How far the stream has been scanned, damage included. */
uint64_t runlog_reader_position(const struct runlog_reader *r);
/* Logs of other programs: deliver points as such rather than as records. */
void runlog_reader_wants_points(struct runlog_reader *r);
/* The format of a log of another program (io/foreign.h), NULL for our own records. */
const struct foreign_format *runlog_reader_format(const struct runlog_reader *r);
/* Things in such a log that could not be read, and values of too many metrics; 0 for our own. */
uint64_t runlog_reader_skipped(const struct runlog_reader *r);
uint64_t runlog_reader_others(const struct runlog_reader *r);
/* When a file of such a log last changed (Unix seconds); 0 for our own records. */
double runlog_reader_modified(const struct runlog_reader *r);
/* What to say of a file that is neither a record stream nor a log of a known format: DS_EFORMAT. */
int runlog_refuse(const char *path, struct err *e);
void runlog_reader_close(struct runlog_reader *r);

#endif
