/* File operations, through one table of system calls so that faults can be injected
 * (base/fault.h). */
#ifndef DS_BASE_FS_H
#define DS_BASE_FS_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "base/str.h"

/* The system calls that all file output goes through. */
struct fs_ops {
    int (*open)(const char *path, int flags, mode_t mode);
    ssize_t (*read)(int fd, void *buf, size_t n);
    ssize_t (*write)(int fd, const void *buf, size_t n);
    int (*fsync)(int fd);
    int (*fdatasync)(int fd);
    int (*close)(int fd);
    int (*rename)(const char *from, const char *to);
    int (*mkdir)(const char *path, mode_t mode);
    int (*unlink)(const char *path);
};
const struct fs_ops *fs_ops_get(void);
/* For tests.  NULL restores the system's own. */
void fs_ops_set(const struct fs_ops *ops);

/* The same calls, retried after EINTR (close is not: EINTR means closed).  -1 and errno. */
int fs_open(const char *path, int flags, mode_t mode);
int fs_sync(int fd);
int fs_datasync(int fd);
int fs_close(int fd);
int fs_rename(const char *from, const char *to);
int fs_mkdir(const char *path, mode_t mode);
int fs_unlink(const char *path);
int fs_truncate(int fd, uint64_t size);
ssize_t fs_pread(int fd, void *buf, size_t n, uint64_t offset);

/* ---- held directories (fs_at.c) ----

 * While a directory is held, `path` and all paths below it
 * resolve to that directory within this process, even after it was renamed or another directory
 * took its name.  The descriptor may carry a flock. */
int fs_hold(int *fd, const char *path, struct err *e) DS_CHECK;
void fs_unhold(int fd); /* and closes it */
/* 1 while `path` still resolves to the directory of fd for other processes. */
int fs_is_held_at(int fd, const char *path);
/* The current path of the directory of fd; 0 when unknown. */
int fs_path_of_fd(int fd, char *out, size_t size);
/* For the *at calls: the descriptor that `path` is relative to, and the rest of the path. */
int fs_at(const char *path, const char **rest);
struct stat;
int fs_stat(const char *path, struct stat *st);  /* as stat(2)  */
int fs_lstat(const char *path, struct stat *st); /* as lstat(2) */
int fs_fstat(int fd, struct stat *st);           /* as fstat(2) */
int fs_rmdir(const char *path);
int fs_link(const char *from, const char *to);
int fs_symlink(const char *target, const char *path);
int fs_lock(int fd, int operation); /* as flock(2) */
int fs_open_dir(const char *path);  /* for reading its entries */

/* Retries after EINTR and short transfers; 0 or DS_EIO with text. */
int fs_write_all(int fd, const void *p, size_t n, const char *path, struct err *e) DS_CHECK;
/* Opens a regular file for reading, close-on-exec, without blocking; a FIFO, device, socket or
 * directory is DS_EIO with text.  /dev/stdin, /dev/fd/N and /proc/self/fd/N may also be a pipe or a
 * terminal, and /dev/null is an empty file. Close with fs_ops_get()->close. */
int fs_open_read(int *fd, const char *path, struct err *e) DS_CHECK;
/* 0 when `path` is a regular file or does not exist; else DS_EIO with the same text. */
int fs_check_regular(const char *path, struct err *e) DS_CHECK;
/* For what was not found: DS_EIO when a directory on the way to `path` may not be searched, so that
 * there may be something; else 0. */
int fs_check_reach(const char *path, struct err *e) DS_CHECK;
/* Opens for writing, close-on-exec, with `flags` (O_CREAT, O_APPEND, O_EXCL ...; mode 0644); a FIFO
 * without a reader is DS_EIO at once. */
int fs_open_write(int *fd, const char *path, int flags, struct err *e) DS_CHECK;
/* Reads up to n bytes into p, *got = 0 only at end of file; retries after EINTR. */
int fs_read_some(int fd, void *p, size_t n, size_t *got, const char *path, struct err *e) DS_CHECK;
/* Offset >= from of the next data in a sparse file, `size` when only a hole follows, `from` where
 * the file system does not support it.  Moves the file position. */
uint64_t fs_next_data(int fd, uint64_t from, uint64_t size);
/* *end: the offset after the last non-zero byte of [from, size), `from` when all are zero.  Scans
 * backwards; after read_max bytes (0 = no limit) *end is how far the zeros were verified.  Moves
 * the file position. */
int fs_nonzero_end(int fd, uint64_t from, uint64_t size, uint64_t read_max, uint64_t *end,
                   const char *path, struct err *e) DS_CHECK;
/* Reads a whole file into *out (replaced), at most `cap` bytes (else DS_ERANGE with both sizes). */
int fs_read_file(struct str *out, const char *path, uint64_t cap, struct err *e) DS_CHECK;
/* The descriptor that a name for output means: - and /dev/stdout, /dev/stderr, /dev/fd/N and
 * /proc/self/fd/N; else -1.  Such a name is never replaced, whatever it leads to. */
int fs_stream_fd(const char *path);
/* Replaces a file atomically: temporary file in the same directory, write, fsync, close, rename,
 * fsync of the directory.  A device or pipe at `path` is written to directly, and so is what a
 * stream's name leads to. */
int fs_write_file(const char *path, const void *p, size_t n, struct err *e) DS_CHECK;
/* The same, but replaces whatever is at `path`; a directory is an error. */
int fs_replace_file(const char *path, const void *p, size_t n, struct err *e) DS_CHECK;
/* fs_write_file of a text; DS_EMEM when the text is incomplete. */
int fs_write_text(const char *path, const struct str *text, struct err *e) DS_CHECK;
/* fs_replace_file of DIR/NAME with a text, which it releases; DS_EMEM when the text is incomplete. */
int fs_replace_text(const char *dir, const char *name, struct str *text, struct err *e) DS_CHECK;

/* ---- unfinished files (fs_temp.c) ----

 * Named DIR/.NAME.OWNER.tmp, where OWNER identifies the
 * writing process and its host.  Before a process creates its first one in a directory, it removes
 * those whose owner is dead. */
struct fs_new {
    int fd; /* -1: not open */
    char path[4096], temp[4096];
};
/* Atomic creation of a file: afterwards `path` is the complete, synced new file or unchanged.  Call
 * fs_new_abort after any failure; after fs_new_commit it does nothing.  A stream's name is
 * DS_EIO. */
int fs_new_open(struct fs_new *f, const char *path, struct err *e) DS_CHECK;
int fs_new_write(struct fs_new *f, const void *p, size_t n, struct err *e) DS_CHECK;
int fs_new_commit(struct fs_new *f,
                  struct err *e) DS_CHECK; /* fsync, close, rename, fsync of the directory */
/* The same, but only where nothing is at `path` yet, also when processes of several hosts create it
 * at once: 1 it was created by this call, 0 there is one already (and is unchanged).  On file
 * systems without hard links readers may see an empty file for a moment. */
int fs_new_commit_first(struct fs_new *f, struct err *e) DS_CHECK;
void fs_new_abort(struct fs_new *f);
/* Creates an unfinished directory; the caller renames it to `path` or removes it, and then closes
 * *lock, which is -1 after a failure and where directories cannot be locked. */
int fs_new_dir(int *lock, char *temp, size_t size, const char *path, struct err *e) DS_CHECK;
/* A new OWNER of this process: at most FS_OWNER_MAX bytes including the NUL, of [0-9a-z-]. */
enum { FS_OWNER_MAX = 64 };
void fs_owner(char out[FS_OWNER_MAX]);
/* Length of the OWNER at the start of `text`, 0 when there is none. */
size_t fs_owner_length(const char *text);
/* 1 when the entry at `path` (a file or directory named after its owner) is abandoned: its
 * process has ended or, where that is unknown (another host or container), it is not locked and
 * a day old. */
int fs_owner_is_dead(const char *owner, const char *path);
int fs_owner_is_own(const char *owner); /* the owner is this process */
/* 1 the owner is alive, 0 it has ended, -1 unknown: it is on another host or in another container. */
int fs_owner_alive(const char *owner);
/* Removes the unfinished entries of dead owners in `dir`. */
void fs_temp_sweep(const char *dir);
/* With the missing parents, whose names are synced where that is possible. */
int fs_mkdirs(const char *path, struct err *e) DS_CHECK;
/* fsync of a directory; EINVAL (file systems without it) is ignored. */
int fs_sync_dir(const char *path, struct err *e) DS_CHECK;
/* Of the directory that holds the name. */
int fs_sync_parent(const char *path, struct err *e) DS_CHECK;
/* Removes a directory tree without following links. */
int fs_remove_tree(const char *path, struct err *e) DS_CHECK;
int fs_remove_tree_at(int at, const char *name, const char *path, struct err *e) DS_CHECK;
/* Copies a directory tree to the new path `to`, which exists complete and synced afterwards or not
 * at all.  Links are copied as links; sockets, FIFOs and devices are left out. */
int fs_copy_tree(const char *from, const char *to, struct err *e) DS_CHECK;
/* 0 only when there is nothing: an entry that cannot be examined (EIO, ESTALE) exists. */
int fs_exists(const char *path);
/* 1 when `rc`, a failure to read the file at `path`, is the system's (EIO, EMFILE, EACCES, out of
 * memory), not of what the file holds: it must neither be moved away nor rewritten. */
int fs_is_unreadable(const char *path, int rc);
int fs_is_dir(const char *path);
int fs_is_socket(const char *path);
/* Sorted names (without . and ..) in *names, each heap string; free with fs_list_free. */
int fs_list(const char *path, char ***names, size_t *n, struct err *e) DS_CHECK;
void fs_list_free(char **names, size_t n);
/* Length of a path without the slashes at its end; that of "/" is 1. */
size_t fs_trimmed(const char *path);
/* "a" + "b" -> "a/b" in out; DS_ERANGE if it does not fit. */
int fs_join(char *out, size_t size, const char *a, const char *b, struct err *e) DS_CHECK;

/* Where the program keeps what it remembers of the user: $XDG_STATE_HOME/depthscope, else
 * ~/.local/state/depthscope; relative paths are ignored, as XDG requires.  0 when there is none. */
int fs_state_dir(char *out, size_t size);
/* The same for what the user configures: $XDG_CONFIG_HOME/depthscope, else ~/.config/depthscope. */
int fs_config_dir(char *out, size_t size);

/* Names of runs, figures, ...: [A-Za-z0-9._-], 1 to 64, not starting with '.' or '-'. */
int fs_name_ok(const char *name);

/* A read-only mapping; an empty file maps to p = "", n = 0.  Guarded (base/guard.h): reading beyond
 * the end of a file that was truncated meanwhile ends the program with an error message. */
struct fs_map {
    const unsigned char *p;
    size_t n;
    int fd;
    int64_t changed_s, changed_ns; /* modification time when the file was opened */
    dev_t device;
    ino_t inode;
};
int fs_map_open(struct fs_map *m, const char *path, struct err *e) DS_CHECK;
void fs_map_close(struct fs_map *m);
/* memcpy from a mapping, by the faster read(2): without a page fault and a TLB flush per page, and
 * without pages left mapped.  Any other memory is copied too. */
void fs_map_copy(void *to, const void *from, size_t n);
/* DS_EFORMAT when the file was modified since it was opened.  Call after reading. */
int fs_map_unchanged(const struct fs_map *m, struct err *e) DS_CHECK;
/* 1 while `path` still is the mapped file, 0 when it was replaced. */
int fs_map_is_at(const struct fs_map *m, const char *path);

/* Bytes free for this user on the file system of `path`; 0 if unknown. */
uint64_t fs_free_bytes(const char *path);

#endif
