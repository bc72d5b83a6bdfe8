/* Tags and a note of a run, and the moves of its directory: rename, trash, restore. */
#include "io/runnotes.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fs.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "io/runindex.h"

static const char notes_file[] = "notes.json", trash_dir[] = ".trash";

enum { NOTES_FILE_MAX = 1 << 16 };

/* ---- tags and note ---- */

/* Text without control and invisible characters, in valid UTF-8. */
static int is_plain(const char *text)
{
    size_t n = strlen(text);
    while (n > 0) {
        uint32_t c;
        int len = utf8_decode(text, n > 4 ? 4 : n, &c);
        if (len <= 0 || c < 0x20 || c == 0x7F || (c >= 0x80 && c < 0xA0) || utf8_is_hidden(c))
            return 0;
        text += len;
        n -= (size_t)len;
    }
    return 1;
}

/* A tag is a word of a filter: it holds none of its operators. */
static int is_tag(const char *text)
{
    size_t n = strlen(text);
    return n > 0 && n <= RUN_TAG_MAX && is_plain(text) && text[0] != '+' && text[0] != '-' &&
           strcspn(text, " \"'=!<>~,") == n;
}

int run_notes_has(const struct run_notes *n, const char *tag)
{
    for (int i = 0; i < n->tags; i++)
        if (strcmp(n->tag[i], tag) == 0)
            return 1;
    return 0;
}

int run_notes_tag(struct run_notes *n, const char *change, struct err *e)
{
    const char *tag = change + (change[0] == '+' || change[0] == '-');
    if (!is_tag(tag))
        return err_set(e, DS_EUSAGE,
                       "tag: expected +TAG or -TAG of 1 to %d bytes without blanks, quotes, commas "
                       "and = ! < > ~",
                       RUN_TAG_MAX);
    if (change[0] == '-') {
        int k = 0;
        if (!run_notes_has(n, tag))
            return err_set(e, DS_EUSAGE, "tag %s: not found", tag);
        for (int i = 0; i < n->tags; i++)
            if (strcmp(n->tag[i], tag) != 0 && k++ != i)
                memcpy(n->tag[k - 1], n->tag[i], sizeof n->tag[0]);
        n->tags = k;
        return 0;
    }
    if (run_notes_has(n, tag))
        return 0;
    if (n->tags == RUN_TAGS_MAX)
        return err_set(e, DS_EUSAGE, "tag %s: a run has at most %d tags", tag, RUN_TAGS_MAX);
    str_copy(n->tag[n->tags++], sizeof n->tag[0], tag);
    return 0;
}

int run_notes_set(struct run_notes *n, const char *text, struct err *e)
{
    if (!is_plain(text))
        return err_set(e, DS_EUSAGE, "note: must be one line of UTF-8 without control characters");
    if (strlen(text) > RUN_NOTE_MAX)
        return err_set(e, DS_EUSAGE, "note: must be at most %d bytes, found %zu", RUN_NOTE_MAX,
                       strlen(text));
    str_copy(n->note, sizeof n->note, text);
    return 0;
}

int run_notes_read(struct run_notes *n, const char *dir, struct err *e)
{
    char path[1100];
    struct json *j = NULL;
    *n = (struct run_notes){0};
    int rc = fs_join(path, sizeof path, dir, notes_file, e);
    if (rc < 0 || !fs_exists(path))
        return rc;
    rc = json_read_file(&j, path, NOTES_FILE_MAX, e);
    if (rc < 0)
        return rc;
    const struct json_node *tags = json_get(json_root(j), "tags");
    const char *note = json_str(json_get(json_root(j), "note"), NULL);
    if (json_kind_of(json_root(j)) != JSON_KIND_OBJECT)
        rc = err_set(e, DS_EFORMAT, "%s: expected {\"tags\": [...], \"note\": \"...\"}", path);
    for (size_t i = 0; i < json_len(tags) && json_kind_of(tags) == JSON_KIND_ARRAY; i++) {
        const char *tag = json_str(json_at(tags, i), NULL);
        if (tag)
            (void)!run_notes_tag(n, tag, NULL);
    }
    if (note)
        str_copy(n->note, sizeof n->note, note);
    json_free(j);
    return rc;
}

int run_notes_write(const struct run_notes *n, const char *dir, struct err *e)
{
    struct str s = {0};
    str_add(&s, "{\"tags\":[");
    for (int i = 0; i < n->tags; i++) {
        str_add(&s, i ? "," : "");
        str_add_json(&s, n->tag[i], strlen(n->tag[i]));
    }
    str_add(&s, "]");
    json_add_str(&s, "note", n->note);
    str_add(&s, "}\n");
    return fs_replace_text(dir, notes_file, &s, e);
}

/* ---- moves ---- */

static int check_name(const char *name, struct err *e)
{
    struct str safe = {0};
    if (fs_name_ok(name))
        return 0;
    utf8_sanitise(&safe, name, strlen(name), 80, 0);
    int rc = err_set(e, DS_EUSAGE,
                     "run name '%s': expected 1 to 64 of A-Z a-z 0-9 . _ -, not starting with . "
                     "or -",
                     str_text(&safe));
    str_release(&safe);
    return rc;
}

static int is_there(const char *path)
{
    struct stat st;
    return fs_lstat(path, &st) == 0;
}

/* A link is moved itself, as one to the absolute path: a relative one would lead elsewhere. */
static int move_link(const char *from, const char *to, struct err *e)
{
    char target[PATH_MAX];
    if (!realpath(from, target))
        return err_errno(e, "follow link %s", from);
    int rc = fs_symlink(target, to) == 0 ? 0 : err_errno(e, "link %s", to);
    if (rc == 0 && fs_unlink(from) != 0)
        rc = err_errno(e, "remove link %s", from);
    return rc;
}

/* Removes what was copied, as an unfinished directory: after an interruption no half of a run is
 * left under its name, and the next move in that directory removes the rest. */
static int remove_copied(const char *from, const char *to, struct err *e)
{
    char temp[4096];
    int lock, rc = fs_new_dir(&lock, temp, sizeof temp, from, e);
    if (rc == 0 && fs_rename(from, temp) != 0) {
        rc = err_errno(e, "rename %s to %s", from, temp);
        (void)!fs_remove_tree(temp, NULL);
    } else if (rc == 0) {
        rc = fs_remove_tree(temp, e);
    }
    if (lock >= 0)
        fs_close(lock);
    return rc < 0 ? err_add(e, rc, "copied to %s, but %s stays", to, from) : 0;
}

/* Renames a directory, or copies and removes it where that is impossible. */
static int move_directory(const char *from, const char *to, struct err *e)
{
    struct stat st;
    if (is_there(to))
        return err_set(e, DS_EEXIST, "%s: already exists", to);
    if (fs_lstat(from, &st) != 0)
        return err_errno(e, "%s", from);
    if (S_ISLNK(st.st_mode))
        return move_link(from, to, e);
    if (fs_rename(from, to) == 0)
        return 0;
    if (errno == EBUSY)
        return err_set(e, DS_EBUSY, "%s: is a mount point; unmount it first", from);
    if (errno != EXDEV)
        return err_errno(e, "rename %s to %s", from, to);
    int rc = fs_copy_tree(from, to, e);
    if (rc < 0)
        return err_add(e, rc, "%s is on another file system than %s", from, to);
    return remove_copied(from, to, e);
}

static int find_run(const char *root, const char *name, char *path, size_t size, struct err *e)
{
    int rc = check_name(name, e);
    if (rc == 0)
        rc = fs_join(path, size, root, name, e);
    if (rc == 0 && !fs_is_dir(path))
        rc = err_set(e, DS_ENOTFOUND, "%s: run not found in %s", name, root);
    return rc;
}

int run_rename(const char *root, const char *name, const char *to, struct err *e)
{
    char from[1100], dest[1100];
    int rc = find_run(root, name, from, sizeof from, e);
    if (rc == 0)
        rc = check_name(to, e);
    if (rc == 0)
        rc = fs_join(dest, sizeof dest, root, to, e);
    if (rc == 0 && is_there(dest))
        rc = err_set(e, DS_EEXIST, "%s: a run of this name already exists in %s", to, root);
    if (rc == 0 && fs_rename(from, dest) != 0)
        rc = err_errno(e, "rename %s to %s", from, dest);
    return rc;
}

/* A live run is refused: its process would go on writing in the trash. */
static int check_idle(const char *name, const char *path, struct err *e)
{
    struct run_row row;
    int rc = run_row_read(&row, path, e);
    if (rc == DS_ENOTFOUND)
        return err_set(e, DS_ENOTFOUND, "%s: not a run: neither log.mp nor config.yaml", path);
    if (row.is_live)
        rc = err_set(e, DS_EBUSY, "%s: live; stop it first: depthscope stop %s", name, name);
    else if (row.state == RUN_LIVE || row.state == RUN_PAUSED)
        rc = err_set(e, DS_EBUSY, "%s: its newest record is %.0f s old, it may be live on host %s",
                     name, run_row_age(&row, clock_wall()), row.host[0] ? row.host : "unknown");
    else
        rc = 0; /* a damaged log may be moved like any other */
    run_row_release(&row);
    return rc;
}

int run_trash(const char *root, const char *name, struct err *e)
{
    char from[1100], dir[1100], to[1200];
    int rc = find_run(root, name, from, sizeof from, e);
    if (rc == 0)
        rc = check_idle(name, from, e);
    if (rc == 0)
        rc = fs_join(dir, sizeof dir, root, trash_dir, e);
    if (rc == 0)
        rc = fs_mkdirs(dir, e);
    if (rc < 0)
        return rc;
    /* NAME@MICROSECONDS: no name of a run has an @ */
    for (int64_t when = (int64_t)(clock_wall() * 1e6);; when++) {
        snprintf(to, sizeof to, "%s/%s@%" PRId64, dir, name, when);
        if (!is_there(to))
            return move_directory(from, to, e);
    }
}

static int by_time(const void *a, const void *b)
{
    const struct run_trashed *x = a, *y = b;
    return x->time != y->time ? (x->time < y->time) - (x->time > y->time)
                              : strcmp(x->name, y->name);
}

int run_trash_list(const char *root, struct run_trashed **list, size_t *n, struct err *e)
{
    char dir[1100], **names = NULL;
    size_t count = 0, k = 0;
    *list = NULL;
    *n = 0;
    int rc = fs_join(dir, sizeof dir, root, trash_dir, e);
    if (rc < 0 || !fs_is_dir(dir))
        return rc;
    rc = fs_list(dir, &names, &count, e);
    struct run_trashed *t = rc == 0 ? mem_alloc(count + 1, sizeof *t) : NULL;
    if (rc == 0 && !t)
        rc = err_set(e, DS_EMEM, "out of memory for the runs in %s", dir);
    for (size_t i = 0; rc == 0 && i < count; i++) {
        char *end;
        const char *at = strrchr(names[i], '@');
        if (!at || at - names[i] >= (int)sizeof t->name)
            continue;
        snprintf(t[k].name, sizeof t[k].name, "%.*s", (int)(at - names[i]), names[i]);
        long long when = strtoll(at + 1, &end, 10);
        if (end == at + 1 || *end || !fs_name_ok(t[k].name) ||
            fs_join(t[k].path, sizeof t[k].path, dir, names[i], NULL) < 0)
            continue;
        t[k++].time = (double)when / 1e6;
    }
    fs_list_free(names, count);
    if (rc < 0)
        return rc;
    qsort(t, k, sizeof *t, by_time);
    *list = t;
    *n = k;
    return 0;
}

int run_restore(const char *root, const char *name, struct err *e)
{
    char to[1100];
    struct run_trashed *list = NULL;
    size_t n = 0, i = 0;
    int rc = check_name(name, e);
    if (rc == 0)
        rc = fs_join(to, sizeof to, root, name, e);
    if (rc == 0)
        rc = run_trash_list(root, &list, &n, e);
    if (rc < 0)
        return rc;
    while (i < n && strcmp(list[i].name, name) != 0)
        i++;
    if (i == n)
        rc = err_set(e, DS_ENOTFOUND, "%s: not in the trash of %s (depthscope runs --trash)", name,
                     root);
    else if (is_there(to))
        rc = err_set(e, DS_EEXIST,
                     "%s: a run of this name already exists; rename it first: "
                     "depthscope runs rename %s NEW",
                     name, name);
    else
        rc = move_directory(list[i].path, to, e);
    mem_free(list);
    return rc;
}
