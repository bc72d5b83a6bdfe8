/* Leases by files of a shared folder: claiming, renewing, and judging whether an owner is alive. */
#include "base/lease.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/mem.h"

enum { FILE_MAX = 8192, COUNTER_DIGITS = 10, GENERATION_MAX = 1000000000, RENEWALS = 6, LOOKS = 20 };
/* The counter comes first, so that its place is known. */
static const char head[] = "{\"counter\":\"";
/* Of a file that says nothing readable; and the range that any file is believed. */
static const double usual_patience = 30, least_patience = 0.5, most_patience = 86400;

/* ---- names ---- */

static int by_name(const void *a, const void *b)
{
    const struct lease_name *x = a, *y = b;
    int order = strcmp(x->name, y->name);
    return order ? order : y->generation - x->generation;
}

/* "NAME@12" -> 12; 0 when the name has another form. */
static int read_name(const char *file, char name[LEASE_NAME])
{
    const char *at = strrchr(file, '@');
    size_t digits = at ? strspn(at + 1, "0123456789") : 0;
    if (!at || at == file || file[0] == '.' || digits < 1 || digits > 9 || at[1 + digits] ||
        (size_t)(at - file) >= LEASE_NAME)
        return 0;
    snprintf(name, LEASE_NAME, "%.*s", (int)(at - file), file);
    return (int)strtol(at + 1, NULL, 10);
}

int lease_list_read(struct lease_list *l, const char *dir, struct err *e)
{
    char **names = NULL;
    size_t n = 0, kept = 0;
    void *p = l->item;
    struct stat st;
    l->n = 0;
    if (fs_stat(dir, &st) != 0 && errno == ENOENT)
        return 0;
    int rc = fs_list(dir, &names, &n, e);
    if (rc == 0 && mem_grow(&p, &l->cap, n + 1, sizeof *l->item) < 0)
        rc = err_set(e, DS_EMEM, "%s: out of memory", dir);
    l->item = p;
    for (size_t i = 0; rc == 0 && i < n; i++) {
        struct lease_name *x = &l->item[l->n];
        x->generation = read_name(names[i], x->name);
        l->n += x->generation > 0;
    }
    if (n > 0)
        fs_list_free(names, n);
    else
        mem_free(names);
    if (rc < 0)
        return rc;
    if (l->n > 0)
        qsort(l->item, l->n, sizeof *l->item, by_name);
    for (size_t i = 0; i < l->n; i++) /* the highest generation of each is first */
        if (kept == 0 || strcmp(l->item[kept - 1].name, l->item[i].name) != 0)
            l->item[kept++] = l->item[i];
    l->n = kept;
    return 0;
}

int lease_list_find(const struct lease_list *l, const char *name)
{
    size_t low = 0, high = l->n;
    while (low < high) {
        size_t mid = (low + high) / 2;
        int order = strcmp(l->item[mid].name, name);
        if (order == 0)
            return l->item[mid].generation;
        if (order < 0)
            low = mid + 1;
        else
            high = mid;
    }
    return 0;
}

void lease_list_release(struct lease_list *l)
{
    mem_free(l->item);
    *l = (struct lease_list){0};
}

static int path_of(char *out, size_t size, const char *dir, const char *name, int generation,
                   struct err *e)
{
    char file[LEASE_NAME + 16];
    snprintf(file, sizeof file, "%s@%d", name, generation);
    return fs_join(out, size, dir, file, e);
}

/* ---- looking ---- */

static void parse(struct lease_view *v, const struct str *text)
{
    struct json *j = NULL;
    if (json_parse(&j, text->p, text->len, "lease", NULL) < 0)
        return;
    const struct json_node *root = json_root(j);
    v->is_held = json_bool(json_get(root, "held"), 1);
    v->patience = json_num(json_get(root, "patience"), usual_patience);
    if (!(v->patience >= least_patience && v->patience <= most_patience))
        v->patience = usual_patience;
    v->pid = (long)json_int(json_get(root, "pid"), 0);
    str_copy(v->owner, sizeof v->owner, json_get_text(root, "owner"));
    str_copy(v->host, sizeof v->host, json_get_text(root, "host"));
    str_copy(v->nonce, sizeof v->nonce, json_get_text(root, "nonce"));
    str_copy(v->note, sizeof v->note, json_get_text(root, "note"));
    json_free(j);
}

int lease_look(struct lease_view *v, const char *dir, const char *name, int generation,
               struct err *e)
{
    char path[1200];
    struct str text = {0};
    struct err why = {0};
    *v = (struct lease_view){.generation = generation, .patience = usual_patience};
    if (generation == 0)
        return 0;
    v->is_held = 1;
    int rc = path_of(path, sizeof path, dir, name, generation, e), is_gone = 0;
    if (rc < 0)
        return rc;
    /* another process may remove the file, and a third create it again, between two calls */
    for (int tries = 0; tries < LOOKS && !is_gone; tries++) {
        if (tries > 0)
            clock_sleep(1e-3);
        rc = fs_read_file(&text, path, FILE_MAX, &why);
        if (rc == 0 || rc == DS_EMEM || rc == DS_ERANGE)
            break;
        is_gone = !fs_exists(path);
    }
    if (rc == 0) {
        v->mark = hash64(str_text(&text), text.len, 0);
        parse(v, &text);
    }
    str_release(&text);
    if (rc == DS_EMEM || (rc < 0 && rc != DS_ERANGE && !is_gone))
        return err_set(e, rc, "%s", why.text);
    return 0;
}

enum lease_life lease_judge(struct lease_watch *w, const struct lease_view *v)
{
    double now = clock_mono();
    int is_known = w->generation == v->generation && w->since > 0;
    if (!is_known || w->mark != v->mark) {
        w->has_moved = is_known;
        w->generation = v->generation;
        w->mark = v->mark;
        w->since = now;
    }
    if (v->generation == 0 || !v->is_held)
        return LEASE_FREE;
    if (v->owner[0] && fs_owner_alive(v->owner) == 0)
        return LEASE_DEAD;
    return now - w->since > v->patience ? LEASE_DEAD : LEASE_ALIVE;
}

/* ---- owning ---- */

static void add_file(struct str *out, const struct lease *l, int is_held, const char *note)
{
    char owner[FS_OWNER_MAX], host[LEASE_HOST] = "";
    fs_owner(owner);
    gethostname(host, sizeof host - 1);
    str_addf(out, "%s%0*u\"", head, COUNTER_DIGITS, l->counter);
    json_key(out, "held");
    str_add(out, is_held ? "true" : "false");
    json_add_str(out, "owner", owner);
    json_add_str(out, "host", host);
    json_add_int(out, "pid", (int64_t)getpid());
    json_add_str(out, "nonce", l->nonce);
    json_add_num(out, "patience", l->patience);
    if (note && note[0])
        json_add_str(out, "note", note);
    str_add(out, "}\n");
}

/* Removes the generations before ours; returns 1 when there is a higher one, negative when that is
 * unknown: better not ours. */
static int remove_earlier(const struct lease *l, struct err *e)
{
    char **names = NULL, name[LEASE_NAME], path[1200];
    size_t n = 0;
    int is_higher = 0;
    int rc = fs_list(l->dir, &names, &n, e);
    if (rc < 0)
        return rc;
    for (size_t i = 0; i < n; i++) {
        int generation = read_name(names[i], name);
        if (generation > 0 && strcmp(name, l->name) == 0)
            is_higher |= generation > l->generation;
    }
    for (size_t i = 0; i < n && !is_higher; i++) {
        int generation = read_name(names[i], name);
        if (generation > 0 && strcmp(name, l->name) == 0 && generation < l->generation &&
            fs_join(path, sizeof path, l->dir, names[i], NULL) == 0)
            fs_unlink(path);
    }
    fs_list_free(names, n);
    return is_higher;
}

int lease_claim(struct lease *l, const char *dir, const char *name, int seen, double patience,
                struct err *e)
{
    struct fs_new f = {.fd = -1};
    struct str text = {0};
    *l = (struct lease){.fd = -1, .generation = seen + 1, .patience = patience};
    if (seen >= GENERATION_MAX - 1 || str_copy(l->dir, sizeof l->dir, dir) ||
        str_copy(l->name, sizeof l->name, name))
        return err_set(e, DS_ERANGE, "%s: lease %s: name too long", dir, name);
    hash_random_id(l->nonce);
    int rc = path_of(l->path, sizeof l->path, dir, name, l->generation, e);
    add_file(&text, l, 1, NULL);
    if (rc == 0 && text.failed)
        rc = err_set(e, DS_EMEM, "%s: out of memory", l->path);
    if (rc == 0)
        rc = fs_new_open(&f, l->path, e);
    if (rc == 0)
        rc = fs_new_write(&f, text.p, text.len, e);
    if (rc == 0)
        rc = fs_new_commit_first(&f, e);
    fs_new_abort(&f);
    str_release(&text);
    if (rc <= 0)
        return rc;
    /* someone who saw an earlier generation may create this one after it was removed */
    if ((rc = remove_earlier(l, e)) != 0) {
        fs_unlink(l->path);
        return rc < 0 ? rc : 0;
    }
    rc = fs_open_write(&l->fd, l->path, 0, e);
    if (rc < 0)
        fs_unlink(l->path);
    l->renewed = clock_mono();
    return rc < 0 ? rc : 1;
}

int lease_is_due(const struct lease *l)
{
    return l->fd >= 0 && clock_mono() - l->renewed >= l->patience / RENEWALS;
}

/* 1 the path holds our file and there is none after it, 0 not, DS_EIO unknown. */
static int is_ours(const struct lease *l, struct err *e)
{
    char next[1200];
    struct lease_view v;
    struct stat st;
    if (fs_lstat(l->path, &st) != 0 && (errno == ENOENT || errno == ESTALE || errno == ENOTDIR))
        return fs_is_dir(l->dir) ? 0 : err_set(e, DS_EIO, "%s: not found", l->dir);
    int rc = lease_look(&v, l->dir, l->name, l->generation, e);
    if (rc < 0)
        return rc;
    if (v.nonce[0] && strcmp(v.nonce, l->nonce) != 0)
        return 0;
    rc = path_of(next, sizeof next, l->dir, l->name, l->generation + 1, e);
    return rc < 0 ? rc : !fs_exists(next);
}

/* Into our own file, whatever name it has by now: a lease that another has taken is not touched. */
static int write_counter(struct lease *l, struct err *e)
{
    char text[16];
    snprintf(text, sizeof text, "%0*u", COUNTER_DIGITS, ++l->counter);
    if (lseek(l->fd, (off_t)(sizeof head - 1), SEEK_SET) < 0)
        return err_errno(e, "%s", l->path);
    int rc = fs_write_all(l->fd, text, COUNTER_DIGITS, l->path, e);
    if (rc == 0 && fs_datasync(l->fd) != 0) /* a network file system keeps it back until then */
        rc = err_errno(e, "%s", l->path);
    return rc;
}

int lease_renew(struct lease *l, struct err *e)
{
    struct err why = {0};
    int rc = write_counter(l, &why), ours = is_ours(l, e);
    if (ours == 0) {
        lease_abandon(l);
        return 0;
    }
    if (ours < 0 || rc < 0)
        return ours < 0 ? ours : err_set(e, rc, "%s", why.text);
    l->renewed = clock_mono();
    return 1;
}

int lease_release(struct lease *l, const char *note, struct err *e)
{
    struct str text = {0};
    char note_fits[LEASE_NOTE];
    if (l->fd < 0)
        return 0;
    int rc = is_ours(l, e);
    str_copy(note_fits, sizeof note_fits, note);
    l->counter++;
    add_file(&text, l, 0, note_fits);
    if (rc > 0)
        rc = text.failed ? err_set(e, DS_EMEM, "%s: out of memory", l->path)
                         : fs_replace_file(l->path, text.p, text.len, e);
    str_release(&text);
    lease_abandon(l);
    return rc < 0 ? rc : 0;
}

void lease_abandon(struct lease *l)
{
    if (l->fd >= 0)
        fs_close(l->fd);
    l->fd = -1;
}

void lease_forget(const char *dir, const char *name, int generation)
{
    struct lease_view v;
    char path[1200];
    if (generation > 0 && lease_look(&v, dir, name, generation, NULL) == 0 && !v.is_held &&
        path_of(path, sizeof path, dir, name, generation, NULL) == 0)
        fs_unlink(path);
}
