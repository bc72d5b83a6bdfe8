/* What files without a known checksum were when they were first downloaded. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fs.h"
#include "base/log.h"
#include "cli/get/get.h"

enum { RECORDS_MAX = 1 << 20 };

int get_records_path(char *out, size_t size)
{
    char dir[1024];
    return fs_state_dir(dir, sizeof dir) && fs_join(out, size, dir, "downloads", NULL) == 0;
}

/* "SHA256 BYTES URL" of this URL. */
static int take_line(struct get_file *f, const char *line)
{
    char sum[72], bytes[24], *end;
    int used = 0;
    size_t n = strlen(f->url);
    if (sscanf(line, "%71s %23s %n", sum, bytes, &used) != 2 || used == 0 ||
        strncmp(line + used, f->url, n) != 0 || line[(size_t)used + n] != '\n')
        return 0;
    errno = 0;
    int64_t size = strtoll(bytes, &end, 10);
    if (*end || errno || size < 0 || strlen(sum) != 64 || strspn(sum, "0123456789abcdef") != 64)
        return 0;
    f->bytes = size;
    str_copy(f->sha256, sizeof f->sha256, sum);
    f->is_recalled = 1;
    return 1;
}

void get_recall(struct get_file *f)
{
    char path[1200];
    struct str text = {0};
    if (f->sha256[0] || !get_records_path(path, sizeof path) || !fs_exists(path))
        return;
    struct err e = {0};
    if (fs_read_file(&text, path, RECORDS_MAX, &e) < 0)
        log_warn("%s", e.text);
    for (const char *line = str_text(&text), *nl; (nl = strchr(line, '\n')) != NULL; line = nl + 1)
        if (take_line(f, line)) /* the first holds */
            break;
    str_release(&text);
}

void get_remember(const struct get_file *f)
{
    char dir[1024], path[1200];
    struct str line = {0};
    struct err e = {0};
    int fd = -1;
    str_addf(&line, "%s %" PRId64 " %s\n", f->sha256, f->bytes, f->url);
    int rc = fs_state_dir(dir, sizeof dir) && get_records_path(path, sizeof path)
                 ? fs_mkdirs(dir, &e)
                 : err_set(&e, DS_ENOTFOUND, "no state directory: set HOME or XDG_STATE_HOME");
    if (rc >= 0 && line.failed)
        rc = err_set(&e, DS_EMEM, "out of memory");
    if (rc >= 0)
        rc = fs_open_write(&fd, path, O_CREAT | O_APPEND, &e);
    if (rc >= 0)
        rc = fs_write_all(fd, str_text(&line), line.len, path, &e);
    if (fd >= 0)
        (void)fs_close(fd);
    if (rc < 0)
        log_warn("get: %s: not recorded: %s", f->name, e.text);
    str_release(&line);
}
