#include "cli/records.h"

#include "base/fs.h"
#include "io/record.h"

static int is_empty(const char *path)
{
    struct str s = {0};
    int empty = fs_read_file(&s, path, 1 << 20, NULL) == 0 && s.len == 0;
    str_release(&s);
    return empty;
}

int cli_records_open(struct runlog_writer **out, const char *path, struct err *e)
{
    struct runlog_reader *r = NULL;
    struct runlog_entry entry;
    if (!fs_exists(path))
        return runlog_writer_open(out, path, e);
    if (fs_is_dir(path))
        return err_set(e, DS_EEXIST, "%s is a directory", path);
    if (runlog_is_locked(path))
        return err_set(e, DS_EBUSY, "%s: another process writes it", path);
    int rc = runlog_reader_open(&r, path, e);
    if (rc < 0)
        return rc;
    rc = runlog_next(r, &entry, e);
    runlog_reader_close(r);
    if ((rc != 1 || entry.is_gap) && !is_empty(path))
        return err_set(e, DS_EEXIST, "%s exists and is no record file: choose another name", path);
    if (fs_ops_get()->unlink(path) != 0)
        return err_errno(e, "%s", path);
    return runlog_writer_open(out, path, e);
}
