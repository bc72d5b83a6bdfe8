/* Writes a record file in one step and refuses to replace anything but older results. */
#include "cli/records.h"

#include <string.h>
#include <sys/stat.h>

#include "base/fs.h"
#include "cli/cli.h"
#include "io/runlog.h"

enum { LOOKED_AT = 64 };

/* An existing file may only be replaced when it contains records, and none of a training run. */
static int check_old(const char *path, struct err *e)
{
    struct runlog_reader *r = NULL;
    struct runlog_entry entry;
    int rc = runlog_reader_open(&r, path, e), n = 0;
    if (rc < 0)
        return rc;
    while (n < LOOKED_AT && (rc = runlog_next(r, &entry, e)) == 1) {
        struct value kind = value_get(entry.body, "kind");
        n++;
        if (entry.is_gap)
            rc = err_set(e, DS_EEXIST, "%s exists and is not a record file; choose another name",
                         path);
        else if (value_is(kind, "metric") || value_is(kind, "end"))
            rc = err_set(e, DS_EEXIST, "%s is the log of a run; choose another name", path);
        if (rc < 0)
            break;
    }
    if (rc >= 0 && n == 0 && runlog_reader_tail(r) > 0)
        rc = err_set(e, DS_EEXIST, "%s exists and is not a record file; choose another name", path);
    runlog_reader_close(r);
    return rc < 0 ? rc : 0;
}

int cli_records_check(const char *path, struct err *e)
{
    const char *slash = strrchr(path, '/');
    struct stat st;
    int rc = 0;
    if (strcmp(slash ? slash + 1 : path, "log.mp") == 0)
        return err_set(e, DS_EEXIST, "%s: reserved for the log of a run; choose another name",
                       path);
    if (fs_stat(path, &st) == 0 && S_ISREG(st.st_mode))
        rc = runlog_is_locked(path) ? err_set(e, DS_EBUSY, "%s: locked by another process", path)
                                    : check_old(path, e);
    return rc < 0 ? rc : cli_output_check(path, e);
}

int cli_records_write(const char *path, const struct str *frames, struct err *e)
{
    int rc = cli_records_check(path, e);
    return rc < 0 ? rc : fs_write_file(path, str_text(frames), frames->len, e);
}
