/* Files, behind one table so that faults can be injected (DEPTHSCOPE_FAIL=write:3, fsync:1,
 * open:N, rename:N, close:N; "+" behind N makes it persistent; =ENOSPC|EIO chooses errno). */
#ifndef DS_BASE_FS_H
#define DS_BASE_FS_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "base/str.h"

/* The system calls all of the program's file output passes through. */
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
/* NULL restores the system's own. For tests. */
void fs_ops_set(const struct fs_ops *ops);

/* The same calls, again after EINTR; close counts an EINTR as closed.  -1 and errno. */
int fs_open(const char *path, int flags, mode_t mode);
int fs_sync(int fd);
int fs_datasync(int fd);
int fs_close(int fd);
int fs_rename(const char *from, const char *to);
int fs_mkdir(const char *path, mode_t mode);
int fs_unlink(const char *path);

/* ---- held directories (fs_at.c) ----
 * While a directory is held, every path of this process that is `path` or begins with `path` and a slash leads into that very
 * directory, also when it was renamed and another one has its name.  The descriptor may carry a flock. */
int fs_hold(int *fd, const char *path, struct err *e) DS_CHECK;
void fs_unhold(int fd); /* and closes it */
/* 1 while `path`, as others see it, still leads to the directory of fd. */
int fs_is_held_at(int fd, const char *path);
/* The name that the directory of fd has now; 0 when the system does not say. */
int fs_where(int fd, char *out, size_t size);
/* For the *at calls: the directory that `path` begins in, and what is left of it. */
int fs_at(const char *path, const char **rest);
struct stat;
int fs_stat(const char *path, struct stat *st);  /* as stat(2)  */
int fs_lstat(const char *path, struct stat *st); /* as lstat(2) */
int fs_rmdir(const char *path);

/* Loops over EINTR and short transfers; 0 or DS_EIO with text. */
int fs_write_all(int fd, const void *p, size_t n, const char *path, struct err *e) DS_CHECK;
/* Opens a regular file for reading, close-on-exec, without ever waiting; a FIFO, a device, a socket or a directory is
 * DS_EIO with text.  What the user hands over as /dev/stdin, /dev/fd/N or /proc/self/fd/N may be a pipe or a terminal as
 * well, and /dev/null is an empty file.  Close with fs_ops_get()->close. */
int fs_open_read(int *fd, const char *path, struct err *e) DS_CHECK;
/* 0 when `path` is a regular file or nothing; else DS_EIO with the same text. */
int fs_check_regular(const char *path, struct err *e) DS_CHECK;
/* Opens for writing, close-on-exec, with `flags` (O_CREAT, O_APPEND, O_EXCL ...; mode 0644); of a FIFO that nobody reads
 * DS_EIO at once. */
int fs_open_write(int *fd, const char *path, int flags, struct err *e) DS_CHECK;
/* Up to n bytes into p, *got 0 only at the end of the file; loops over EINTR. */
int fs_read_some(int fd, void *p, size_t n, size_t *got, const char *path, struct err *e) DS_CHECK;
/* Offset >= from of the next byte that is stored: holes of sparse files are skipped, `size` when only holes
 * follow.  `from` where the file system cannot say.  Moves the file's position. */
uint64_t fs_next_data(int fd, uint64_t from, uint64_t size);
/* *end: the offset after the last byte of [from, size) that is not zero, `from` when all are zero.  Looks from
 * the end backwards; after read_max bytes (0 = no limit) *end says how far zeros are known.  Moves the file's
 * position. */
int fs_nonzero_end(int fd, uint64_t from, uint64_t size, uint64_t read_max, uint64_t *end,
                   const char *path, struct err *e) DS_CHECK;
/* Whole file into *out (replaced), at most `cap` bytes (else DS_ERANGE naming both sizes). */
int fs_read_file(struct str *out, const char *path, uint64_t cap, struct err *e) DS_CHECK;
/* Temp file in the same directory, write, fsync, close, rename, fsync of the directory: the old
 * file or the new one, never half.  A device or pipe at `path` is written to. */
int fs_write_file(const char *path, const void *p, size_t n, struct err *e) DS_CHECK;
/* The same, but what is at `path` is replaced whatever it is; a directory there is an error. */
int fs_replace_file(const char *path, const void *p, size_t n, struct err *e) DS_CHECK;

/* ---- unfinished files (fs_temp.c) ----
 * One kind of name for all of them: DIR/.NAME.OWNER.tmp, where OWNER says which process of which host writes it.  The first
 * of them that a process makes in a directory first removes those whose owner is dead. */
struct fs_new {
    int fd; /* -1: not open */
    char path[4096], temp[4096];
};
/* A file that is written in one go: `path` is the whole new file, synced, or what it was.  After any failure below
 * fs_new_abort; after fs_new_commit that does nothing. */
int fs_new_open(struct fs_new *f, const char *path, struct err *e) DS_CHECK;
int fs_new_write(struct fs_new *f, const void *p, size_t n, struct err *e) DS_CHECK;
int fs_new_commit(struct fs_new *f,
                  struct err *e) DS_CHECK; /* fsync, close, rename, fsync of the directory */
void fs_new_abort(struct fs_new *f);
/* A directory of that kind, made; the caller renames it to `path` or removes it. */
int fs_new_dir(char *temp, size_t size, const char *path, struct err *e) DS_CHECK;
/* OWNER of this process, each time another: at most FS_OWNER_MAX bytes with the zero, of [0-9a-z-]. */
enum { FS_OWNER_MAX = 64 };
void fs_owner(char out[FS_OWNER_MAX]);
/* Does `text` begin with an OWNER?  Its length, or 0. */
size_t fs_owner_length(const char *text);
/* 1 when nobody writes the entry at `path` (a file or directory that is named after its owner) any more: the process has ended; or,
 * where that cannot be seen from here (another host or container), nobody holds its lock and it is a day old. */
int fs_owner_is_gone(const char *owner, const char *path);
int fs_owner_is_own(const char *owner); /* this very process */
/* Removes the unfinished entries of dead owners in `dir`, each time it is called. */
void fs_temp_sweep(const char *dir);
int fs_mkdirs(const char *path, struct err *e) DS_CHECK;
/* fsync of a directory; EINVAL (file systems without it) is ignored. */
int fs_sync_dir(const char *path, struct err *e) DS_CHECK;
/* Removes a directory tree below `path`, never following links. */
int fs_remove_tree(const char *path, struct err *e) DS_CHECK;
int fs_remove_tree_at(int at, const char *name, const char *path, struct err *e) DS_CHECK;
int fs_exists(const char *path);
int fs_is_dir(const char *path);
/* Sorted names (without . and ..) in *names, each heap string; free with fs_list_free. */
int fs_list(const char *path, char ***names, size_t *n, struct err *e) DS_CHECK;
void fs_list_free(char **names, size_t n);
/* "a" + "b" -> "a/b" in out; DS_ERANGE if it does not fit. */
int fs_join(char *out, size_t size, const char *a, const char *b, struct err *e) DS_CHECK;

/* Names of runs, figures, ...: [A-Za-z0-9._-], 1 to 64, not starting with '.' or '-'. */
int fs_name_ok(const char *name);

/* A read-only mapping; an empty file maps to p = "", n = 0.  Guarded (base/guard.h): a file that another process cuts ends
 * the program with a line where what is gone is read. */
struct fs_map {
    const unsigned char *p;
    size_t n;
    int fd;
    int64_t changed_s, changed_ns; /* when the file was last written, at the opening */
    dev_t device;
    ino_t inode;
};
int fs_map_open(struct fs_map *m, const char *path, struct err *e) DS_CHECK;
void fs_map_close(struct fs_map *m);
/* DS_EFORMAT when the file was written since.  Ask after reading. */
int fs_map_unchanged(const struct fs_map *m, struct err *e) DS_CHECK;
/* 1 while `path` leads to the mapped file; one that was put in its place is another. */
int fs_map_is_at(const struct fs_map *m, const char *path);

/* Bytes free for this user on the file system of `path`; 0 if unknown. */
uint64_t fs_free_bytes(const char *path);

#endif
