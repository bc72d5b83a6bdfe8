/* Downloads one file into NAME.part, resuming an earlier try, and renames it when complete. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fs.h"
#include "base/hash.h"
#include "cli/batch/batch_child.h"
#include "cli/get/get.h"
#include "io/filekind.h"

/* Exit statuses of curl. */
enum {
    CURL_NO_PROXY = 5,
    CURL_NO_HOST = 6,
    CURL_NO_CONNECTION = 7,
    CURL_CUT = 18,
    CURL_HTTP = 22,
    CURL_TIMEOUT = 28,
    CURL_NO_RANGE = 33,
    CURL_EMPTY = 52,
    CURL_BROKEN = 56,
    CURL_TOO_LARGE = 63,
};
enum { TRIES = 3, WORDS = 1024, AT_LEAST = 1000 /* bytes a second, for a minute */ };
enum { HEADERS_MAX = 1 << 20 };

static int64_t size_of(const char *path)
{
    struct stat st;
    return fs_stat(path, &st) == 0 ? (int64_t)st.st_size : -1;
}

/* The URL with scheme://host replaced. */
static int make_url(struct get_job *j, struct err *e)
{
    const char *url = j->file->url, *host = strstr(url, "://"), *rest = url;
    char mirror[512] = "";
    if (j->mirror) {
        rest = host ? strchr(host + 3, '/') : NULL;
        rest = rest ? rest : "/";
        if (str_copy(mirror, sizeof mirror, j->mirror))
            return err_set(e, DS_ERANGE, "get: mirror URL too long");
        for (size_t n = strlen(mirror); n > 0 && mirror[n - 1] == '/'; n--)
            mirror[n - 1] = '\0';
        if (strncmp(mirror, "https://", 8) != 0 && strncmp(mirror, "http://", 7) != 0)
            return err_set(e, DS_EUSAGE, "get: mirror %s: must begin with https:// or http://",
                           mirror);
    }
    if ((size_t)snprintf(j->url, sizeof j->url, "%s%s", mirror, rest) >= sizeof j->url)
        return err_set(e, DS_ERANGE, "get: %s: URL too long", j->file->name);
    return 0;
}

/* "curl: (22) ..." without the program name. */
static const char *last_line(char *words)
{
    size_t n = strlen(words);
    while (n > 0 && (words[n - 1] == '\n' || words[n - 1] == '\r'))
        words[--n] = '\0';
    char *line = strrchr(words, '\n');
    line = line ? line + 1 : words;
    return strncmp(line, "curl: ", 6) == 0 ? line + 6 : line;
}

static int report_failure(const struct get_job *j, int status, char *words, struct err *e)
{
    const char *line = last_line(words), *resume = "; run the same command again to resume";
    char have[48] = "";
    int64_t n = size_of(j->part);
    if (n > 0)
        snprintf(have, sizeof have, ", %" PRId64 " bytes received", n);
    if (batch_signal || status > 128)
        return err_set(e, DS_ESTOP, "get: interrupted%s%s", have, have[0] ? resume : "");
    if (status == CURL_NO_HOST || status == CURL_NO_CONNECTION || status == CURL_NO_PROXY)
        return err_set(e, DS_EIO, "get: %s: network unreachable: %s", j->url, line);
    if (status == CURL_TOO_LARGE)
        return err_set(e, DS_EFORMAT,
                       "get: %s: response larger than the expected %" PRId64
                       " bytes of %s; discarded",
                       j->url, j->file->bytes, j->file->name);
    if (status == CURL_HTTP)
        return err_set(e, DS_EIO, "get: %s: %s", j->url, line);
    return err_set(e, DS_EIO, "get: %s: transfer interrupted%s: %s%s", j->url, have, line,
                   have[0] ? resume : "");
}

static const char *redirects_to(const struct get_job *j)
{
    return strncmp(j->url, "https://", 8) == 0 ? "=https" : "=http,https";
}

/* ---- headers ---- */

/* Value of a header; the last one of that name wins.  "" when missing. */
static void header(char *out, size_t size, const char *all, const char *name)
{
    size_t n = strlen(name);
    out[0] = '\0';
    for (const char *p = all; p && *p; p = strchr(p, '\n'), p = p ? p + 1 : NULL) {
        if (strncasecmp(p, name, n) != 0 || p[n] != ':')
            continue;
        const char *v = p + n + 1 + strspn(p + n + 1, " \t\"");
        snprintf(out, size, "%.*s", (int)strcspn(v, "\"\r\n"), v);
    }
}

static int take_headers(void *ctx, const void *p, size_t n, struct err *e)
{
    struct str *all = ctx;
    if (n > HEADERS_MAX - all->len)
        return err_set(e, DS_ERANGE, "get: response headers too long, must be at most %d bytes",
                       (int)HEADERS_MAX);
    str_add_bytes(all, p, n);
    return all->failed ? err_set(e, DS_EMEM, "get: out of memory") : 0;
}

/* Size and SHA-256 that a model hub sends for large files (X-Linked-Size, X-Linked-ETag). */
static int ask_server(struct get_job *j, struct err *e)
{
    const char *const argv[] = {"curl",
                                "-sS",
                                "-f",
                                "-I",
                                "-L",
                                "--max-redirs",
                                "10",
                                "--proto",
                                "=http,https",
                                "--proto-redir",
                                redirects_to(j),
                                "--connect-timeout",
                                "20",
                                "--",
                                j->url,
                                NULL};
    struct str out = {0};
    char words[WORDS], v[128], *end;
    int status = 0;
    struct get_listener listener = {.take = take_headers, .ctx = &out};
    int rc = get_curl(argv, &listener, words, sizeof words, &status, e);
    if (rc == 0 && status != 0)
        rc = report_failure(j, status, words, e);
    if (rc == 0) {
        header(v, sizeof v, str_text(&out), "x-linked-etag");
        if (strlen(v) == 64 && strspn(v, "0123456789abcdef") == 64 && !j->file->sha256[0])
            str_copy(j->file->sha256, sizeof j->file->sha256, v);
        header(v, sizeof v, str_text(&out), "x-linked-size");
        if (!v[0])
            header(v, sizeof v, str_text(&out), "content-length");
        errno = 0;
        long long n = strtoll(v, &end, 10);
        if (v[0] && !*end && !errno && n > 0 && j->file->bytes < 0)
            j->file->bytes = n;
    }
    str_release(&out);
    return rc;
}

/* ---- the transfer ---- */

static void on_tick(void *ctx)
{
    const struct get_job *j = ctx;
    char a[16], b[16], rate[16];
    int64_t n = size_of(j->part);
    double seconds = clock_mono() - j->started;
    if (!j->is_terminal || n < 0)
        return;
    fprintf(stderr, "\r%s: %sB of %s%s, %sB/s\033[K", j->file->name, str_si(a, (double)n),
            j->file->bytes >= 0 ? str_si(b, (double)j->file->bytes) : "?",
            j->file->bytes >= 0 ? "B" : "",
            str_si(rate, seconds > 0 ? (double)(n - j->begun_at) / seconds : 0));
}

static int check_room(const struct get_job *j, struct err *e)
{
    char a[16], b[16];
    int64_t have = size_of(j->part), need = j->file->bytes - (have > 0 ? have : 0);
    uint64_t left = fs_free_bytes(j->dir);
    if (j->file->bytes < 0 || left == 0 || need < 0 || (uint64_t)need < left)
        return 0;
    return err_set(e, DS_EIO, "get: %s: not enough disk space: expected %sB, %s has %sB free",
                   j->file->name, str_si(a, (double)need), j->dir, str_si(b, (double)left));
}

/* Opened with the first byte, so that an empty response creates no file; locked against a second
 * writer. */
static int open_part(struct get_job *j, struct err *e)
{
    struct stat st;
    int rc = fs_open_write(&j->fd, j->part, O_CREAT | O_APPEND | O_NOFOLLOW, e);
    if (rc < 0)
        return err_add(e, rc, "get");
    if (fs_lock(j->fd, LOCK_EX | LOCK_NB) != 0)
        return err_set(e, DS_EBUSY, "get: %s: locked by another download; wait for it", j->part);
    if (fs_fstat(j->fd, &st) != 0 || !S_ISREG(st.st_mode) || (int64_t)st.st_size != j->have)
        return err_set(e, DS_EBUSY, "get: %s: changed during the download; try again", j->part);
    return 0;
}

/* Never writes beyond the known size, whatever Content-Length says. */
static int take_bytes(void *ctx, const void *p, size_t n, struct err *e)
{
    struct get_job *j = ctx;
    int rc = j->fd < 0 ? open_part(j, e) : 0;
    int64_t room = j->file->bytes >= 0 ? j->file->bytes - j->have : INT64_MAX;
    size_t fits = room < (int64_t)n ? (size_t)room : n;
    if (rc < 0)
        return rc;
    if ((rc = fs_write_all(j->fd, p, fits, j->part, e)) < 0)
        return err_add(e, rc, "get");
    j->have += (int64_t)fits;
    j->is_over = fits < n;
    return fits == n ? 0 : DS_EFORMAT;
}

static int transfer_once(struct get_job *j, char *words, int *status, struct err *e)
{
    char most[32], speed[16], from[32];
    struct get_listener listener = {.take = take_bytes, .tick = on_tick, .ctx = j};
    snprintf(most, sizeof most, "%" PRId64, j->file->bytes >= 0 ? j->file->bytes : INT64_MAX);
    j->have = size_of(j->part) > 0 ? size_of(j->part) : 0;
    snprintf(from, sizeof from, "%" PRId64, j->have);
    j->fd = -1;
    j->is_over = 0;
    snprintf(speed, sizeof speed, "%d", AT_LEAST);
    const char *argv[] = {"curl",
                          "-sS",
                          "-f",
                          "-L",
                          "--max-redirs",
                          "10",
                          "--proto",
                          "=http,https",
                          "--proto-redir",
                          redirects_to(j),
                          "--connect-timeout",
                          "20",
                          "--speed-limit",
                          speed,
                          "--speed-time",
                          "60",
                          "-N",
                          "--max-filesize",
                          most,
                          "-C",
                          from,
                          "--",
                          j->url,
                          NULL};
    int rc = get_curl(argv, &listener, words, WORDS, status, e);
    if (j->fd >= 0)
        fs_close(j->fd);
    return j->is_over ? 0 : rc;
}

static int is_passing(int status)
{
    return status == CURL_CUT || status == CURL_TIMEOUT || status == CURL_EMPTY ||
           status == CURL_BROKEN;
}

/* Status 416: no bytes after those present, which may already be the whole file of unknown size. */
static int is_at_end(const struct get_job *j, int status, const char *words)
{
    return status == CURL_HTTP && j->begun_at > 0 && j->file->bytes < 0 && strstr(words, ": 416");
}

static int fail_unknown_size(const struct get_job *j, struct err *e)
{
    return err_set(e, DS_EIO,
                   "get: %s: no data after the %" PRId64
                   " bytes of %s, and neither size nor SHA-256 is known; "
                   "rename it if it is complete, remove it to start over",
                   j->url, size_of(j->part), j->part);
}

/* Moves the bad file out of the way of the next try, without deleting it. */
static void set_aside(const struct get_job *j, char *bad, size_t size)
{
    snprintf(bad, size, "%s.bad", j->path);
    if (fs_rename(j->part, bad) != 0)
        str_copy(bad, size, j->part);
}

static int fail_too_long(const struct get_job *j, struct err *e)
{
    char bad[1300];
    set_aside(j, bad, sizeof bad);
    return err_set(e, DS_EFORMAT,
                   "get: %s: response larger than the expected %" PRId64
                   " bytes of %s; stopped, kept as %s",
                   j->url, j->file->bytes, j->file->name, bad);
}

/* Retries an interrupted transfer as long as each try makes progress. */
static int transfer(struct get_job *j, struct err *e)
{
    char words[WORDS];
    int status = 0, rc = 0;
    j->begun_at = size_of(j->part) > 0 ? size_of(j->part) : 0;
    j->started = clock_mono();
    for (int i = 0; i < TRIES && rc == 0; i++) {
        int64_t before = size_of(j->part);
        if (j->file->bytes >= 0 && before >= j->file->bytes)
            break; /* complete */
        rc = transfer_once(j, words, &status, e);
        if (rc == 0 && status == CURL_NO_RANGE) { /* the server does not support ranges */
            fs_unlink(j->part);
            continue;
        }
        if (rc == 0 && (status == 0 || j->is_over || !is_passing(status) ||
                        size_of(j->part) <= before || batch_signal))
            break;
    }
    if (j->is_terminal)
        fputs("\r\033[K", stderr);
    if (rc == 0 && j->is_over)
        return fail_too_long(j, e);
    if (rc == 0 && is_at_end(j, status, words))
        return j->file->sha256[0] ? 0 : fail_unknown_size(j, e);
    if (rc < 0)
        return rc;
    return status == 0 ? 0 : report_failure(j, status, words, e);
}

/* ---- verification ---- */

/* An HTML page instead of the file: many servers send it with status 200. */
static const char *is_a_page(const struct get_job *j)
{
    unsigned char head[32];
    const char *kind = NULL, *dot = strrchr(j->file->name, '.');
    int fd = -1;
    size_t n = 0;
    if (fs_open_read(&fd, j->part, NULL) == 0) {
        if (fs_read_some(fd, head, sizeof head, &n, j->part, NULL) < 0)
            n = 0;
        fs_close(fd);
    }
    if (n > 0)
        kind = file_kind(head, n);
    int html = kind && (strstr(kind, "HTML") || strstr(kind, "git-lfs"));
    return html && !(dot && strcmp(dot, ".html") == 0) ? kind : NULL;
}

static int check(struct get_job *j, struct err *e)
{
    char sum[65], bad[1300];
    struct get_file *f = j->file;
    int64_t n = size_of(j->part);
    const char *page = is_a_page(j);
    if (n < 0) /* an empty response creates no file */
        return err_set(e, DS_EIO, "get: %s: empty response", j->url);
    int wrong_size = f->bytes >= 0 && n != f->bytes;
    if (page) {
        set_aside(j, bad, sizeof bad);
        return err_set(e, DS_EFORMAT, "get: %s: received %s, expected %s; kept as %s", j->url, page,
                       f->name, bad);
    }
    if (wrong_size) {
        set_aside(j, bad, sizeof bad);
        return err_set(e, DS_EFORMAT,
                       "get: %s: %" PRId64 " bytes, expected %" PRId64 "; kept as %s", f->name, n,
                       f->bytes, bad);
    }
    int rc = sha256_file(j->part, sum, e);
    if (rc < 0)
        return rc;
    if (f->sha256[0] && strcmp(sum, f->sha256) != 0) {
        set_aside(j, bad, sizeof bad);
        return err_set(e, DS_EFORMAT, "get: %s: SHA-256 %s, expected %s; kept as %s", f->name, sum,
                       f->sha256, bad);
    }
    j->checked = f->sha256[0] != '\0';
    f->bytes = n;
    str_copy(f->sha256, sizeof f->sha256, sum);
    return 0;
}

/* Checks an existing file of this name. */
static int check_old(struct get_job *j, struct err *e)
{
    char sum[65];
    struct get_file *f = j->file;
    int64_t n = size_of(j->path);
    if (f->bytes >= 0 && n != f->bytes)
        return err_set(e, DS_EEXIST,
                       "get: %s exists with %" PRId64 " bytes, expected %" PRId64
                       "%s%s; move it away",
                       j->path, n, f->bytes, f->sha256[0] ? ", SHA-256 " : "", f->sha256);
    int rc = sha256_file(j->path, sum, e);
    if (rc < 0)
        return rc;
    if (f->sha256[0] && strcmp(sum, f->sha256) != 0)
        return err_set(e, DS_EEXIST, "get: %s exists with SHA-256 %s, expected %s; move it away",
                       j->path, sum, f->sha256);
    j->was_there = 1;
    j->checked = f->sha256[0] != '\0';
    f->bytes = n;
    str_copy(f->sha256, sizeof f->sha256, sum);
    return 0;
}

static int sync_file(const char *path, struct err *e)
{
    int fd = -1;
    int rc = fs_open_read(&fd, path, e);
    if (rc < 0)
        return rc;
    if (fs_sync(fd) < 0)
        rc = err_errno(e, "sync %s", path);
    fs_close(fd);
    return rc;
}

int get_fetch(struct get_job *j, struct err *e)
{
    int rc = make_url(j, e);
    j->checked = j->was_there = 0;
    if (rc == 0)
        rc = fs_join(j->path, sizeof j->path, j->dir, j->file->name, e);
    if (rc < 0)
        return rc;
    snprintf(j->part, sizeof j->part, "%s.part", j->path);
    if (fs_exists(j->path))
        return check_old(j, e);
    if (j->file->bytes < 0 || !j->file->sha256[0])
        rc = ask_server(j, e);
    if (rc == 0)
        rc = check_room(j, e);
    if (rc == 0)
        rc = transfer(j, e);
    if (rc == 0)
        rc = check(j, e);
    if (rc == 0)
        rc = sync_file(j->part, e);
    if (rc == 0 && fs_rename(j->part, j->path) < 0)
        rc = err_errno(e, "rename %s", j->path);
    return rc < 0 ? rc : fs_sync_dir(j->dir, e);
}
