/* depthscope stream RUN: copies its records to stdout while it is live: ssh host depthscope stream
 * RUN | depthscope -.  Logs of other programs are sent as records, too. */
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fs.h"
#include "cli/cli.h"
#include "cli/record_json.h"
#include "io/foreign.h"
#include "io/runlog.h"

struct cli_option stream_options[] = {
    {.name = "json", .help = "one JSON object per record, for scripts"},
    {.name = "no-follow", .help = "stop at the current end even if the run is live"},
    {.name = "follow",
     .help =
         "the log of another program: until its end or an interrupt (default: 10 minutes without "
         "a change)"},
    {.name = NULL},
};
static const double quiet_s = 600, rest_s = 3;
enum { GATHER = 1 << 16, POLL_MS = 200 };

static int send_out(struct str *out, struct err *e)
{
    int rc = cli_write_text(out, e);
    str_reset(out);
    return rc;
}

enum stay { STAY_NOT, STAY_WHILE_LIVE, STAY_ALWAYS };

/* At the end of what is there: may more come?  A run is over when its writer has exited or has
 * written an end record; of other programs' logs nobody holds a lock. */
static int may_grow(const struct runlog_reader *r, const char *path, enum stay stay, int has_ended)
{
    double quiet = clock_wall() - runlog_reader_modified(r);
    if (runlog_reader_at_end(r))
        return 0;
    if (runlog_reader_fd(r) >= 0)
        return stay != STAY_NOT;
    if (runlog_reader_format(r) && runlog_reader_tail(r) > 0 && quiet < rest_s)
        return 1; /* a last line without its newline counts once it is at rest */
    if (stay == STAY_NOT || has_ended)
        return 0;
    return runlog_reader_format(r) ? stay == STAY_ALWAYS || quiet < quiet_s
                                   : runlog_is_locked(path);
}

static int follow(struct runlog_reader *r, const char *path, enum stay stay, int is_json,
                  struct err *e)
{
    struct runlog_entry entry;
    struct str out = {0};
    int rc, ended = 0, records = 0;
    /* with --no-follow, stop at the size seen at the start, even if the writer is faster */
    uint64_t end =
        stay != STAY_NOT || runlog_reader_fd(r) >= 0 ? UINT64_MAX : runlog_reader_tail(r);
    for (;;) {
        rc = runlog_next(r, &entry, e);
        if (rc < 0)
            break;
        if (runlog_reader_format(r)) /* a file is recognised by its first bytes */
            end = UINT64_MAX;
        if (rc == 1) {
            records += !entry.is_gap;
            if (is_json)
                cli_add_record(&out, &entry);
            else if (!entry.is_gap)
                record_copy(&out, entry.seq, entry.body);
            if (!entry.is_gap)
                ended = value_is(value_get(entry.body, "kind"), "end");
            if (out.len < GATHER && runlog_reader_position(r) < end)
                continue;
        }
        int more = rc && runlog_reader_position(r) < end;
        rc = send_out(&out, e);
        int is_closed = cli_stdout_closed(more ? 0 : POLL_MS);
        if (is_closed && rc == DS_EIO)
            rc = 0; /* the reader closed the pipe */
        if (is_closed || rc < 0)
            break;
        if (more)
            continue;
        if (!may_grow(r, path, stay, ended))
            break;
    }
    str_release(&out);
    if (rc >= 0 && records == 0 && runlog_reader_tail(r) > RECORD_OVERHEAD)
        rc = runlog_refuse(path, e);
    return rc < 0 ? rc : 0;
}

static int stream(const struct cli_args *a, struct err *e)
{
    char path[1024], log[1100];
    struct runlog_reader *r = NULL;
    const struct foreign_format *format;
    const char *run;
    int rc = cli_single(a, "stream", "RUN", &run, e);
    if (rc == 0 && a->n_override > 0)
        rc = err_set(e, DS_EUSAGE, "stream: unexpected setting %s", a->override[0]);
    if (rc == 0)
        rc = cli_run_path(path, sizeof path, run, e);
    int is_dir = rc == 0 && fs_is_dir(path);
    if (is_dir)
        rc = fs_join(log, sizeof log, path, "log.mp", e);
    if (rc == 0 && (!is_dir || (!fs_exists(log) && foreign_find(path, &format))))
        str_copy(log, sizeof log, path);
    else if (rc == 0)
        rc = fs_check_regular(log, e);
    if (rc == 0)
        rc = runlog_reader_open(&r, log, e);
    if (rc < 0)
        return rc;
    enum stay stay = cli_flag(a, "no-follow") ? STAY_NOT
                     : cli_flag(a, "follow")  ? STAY_ALWAYS
                                              : STAY_WHILE_LIVE;
    rc = follow(r, log, stay, cli_flag(a, "json"), e);
    runlog_reader_close(r);
    return rc;
}

int stream_command(int argc, char **argv)
{
    struct err e = {0};
    struct cli_args a;
    int rc = cli_parse(&a, stream_options, argc, argv, &e);
    if (rc < 0)
        return command_fail(&e);
    if (isatty(STDOUT_FILENO) && !cli_flag(&a, "json"))
        rc = err_set(&e, DS_EUSAGE,
                     "stream: standard output is a terminal, expected a file or a pipe to "
                     "depthscope -");
    signal(SIGPIPE, SIG_IGN);
    if (rc == 0)
        rc = stream(&a, &e);
    cli_release(&a);
    return rc < 0 ? command_fail(&e) : 0;
}
