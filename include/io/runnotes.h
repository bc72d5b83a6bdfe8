/* What a person writes about a run, in runs/NAME/notes.json, and where runs go when they are
 * renamed, moved to the trash or restored. */
#ifndef DS_IO_RUNNOTES_H
#define DS_IO_RUNNOTES_H

#include <stddef.h>

#include "base/err.h"
#include "base/str.h"

enum { RUN_TAGS_MAX = 16, RUN_TAG_MAX = 32, RUN_NOTE_MAX = 2000 };

struct run_notes {
    char tag[RUN_TAGS_MAX][RUN_TAG_MAX + 1];
    int tags;
    char note[RUN_NOTE_MAX + 1];
};
/* Notes of a run directory; a missing file is empty notes.  Tags and text beyond the limits are
 * left out.  DS_EFORMAT: not {"tags":[...],"note":"..."}. */
int run_notes_read(struct run_notes *n, const char *dir, struct err *e) DS_CHECK;
/* Durable; empty notes remove nothing and are written as such. */
int run_notes_write(const struct run_notes *n, const char *dir, struct err *e) DS_CHECK;
int run_notes_has(const struct run_notes *n, const char *tag);
/* "+tag" or "tag" adds, "-tag" removes.  DS_EUSAGE: not a tag, or too many. */
int run_notes_tag(struct run_notes *n, const char *change, struct err *e) DS_CHECK;
/* Replaces the note; DS_EUSAGE: too long, or it contains control characters. */
int run_notes_set(struct run_notes *n, const char *text, struct err *e) DS_CHECK;

/* ---- the directory of a run ----
 * Names are checked by fs_name_ok.  `root` is the directory of the runs.  DS_EBUSY: a process is
 * writing the run. */

/* DS_EEXIST: the new name is taken. */
int run_rename(const char *root, const char *name, const char *to, struct err *e) DS_CHECK;
/* Moves a run to ROOT/.trash; a run on another file system is copied, then removed. */
int run_trash(const char *root, const char *name, struct err *e) DS_CHECK;
/* Moves the run of that name that was trashed last back; DS_EEXIST: the name is taken meanwhile. */
int run_restore(const char *root, const char *name, struct err *e) DS_CHECK;
/* Runs in the trash, newest first; heap (mem_free). */
struct run_trashed {
    char name[65], path[1200];
    double time; /* when it was moved, wall seconds */
};
int run_trash_list(const char *root, struct run_trashed **list, size_t *n, struct err *e) DS_CHECK;

#endif
