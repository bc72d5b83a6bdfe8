/* Follows logs of other programs: finds the files of a run, hands new bytes to their format, and
 * delivers what it made of them as entries of a record stream.  Knows no format but by its table. */
#include "io/foreign.h"

#include <ctype.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/decimal.h"
#include "base/fs.h"
#include "base/hash.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "io/foreign_files.h"
#include "io/runlog.h"

#define DECLARE(name) extern const struct foreign_format foreign_##name;
FOREIGN_FORMATS(DECLARE)
#define ROW(name) &foreign_##name,
const struct foreign_format *const foreign_formats[] = {FOREIGN_FORMATS(ROW) NULL};

enum {
    CHUNK = 1 << 20,
    UNIT_MAX = 256 << 20,  /* bytes of one line, record or whole file */
    BATCH_BYTES = 4 << 20, /* read before what was found is delivered */
    KEY_MAX = 63,          /* of a key in a record */
    SIGN = 64 /* bytes by which a file is known again: its first, and those last read */
};

static const double rest_s = 2; /* a file that is this old is not being written right now */
static const double list_s = 1; /* between two looks at the folders of a run */

struct foreign_out {
    struct foreign_point *point;
    size_t points, cap_points;
    /* what was found, in order: a run of points, or the body of a record in `bodies` */
    struct item {
        size_t from, n;
        int is_record;
    } * item;
    size_t items, cap_items;
    struct str bodies;
    struct record *record; /* being built */
    struct str end;        /* the run's end record, which a later head must not take back */
    struct map ids;
    char **name;
    size_t names, cap_names;
    size_t hint; /* the name that comes next if names come in the same order as before */
    uint64_t invalid, others;
    int is_failed;
    int is_head, is_end, is_event; /* of the record being built */
    int has_records;               /* of another kind than head and event */
};

struct source {
    char *rel; /* below the run's folder; the file's name for a file */
    void *state;
    struct str left;              /* read, not taken */
    uint64_t taken;               /* offset of left.p[0] in the file */
    uint64_t ended_at;            /* size at which `take` was told of the end */
    int took_end;                 /* ... and took a last line that had no newline */
    uint64_t inode, device, size; /* of the file at the last look, and its time */
    struct timespec changed;
    double same_since; /* monotonic time since when neither size nor time has changed */
    char first[SIGN];  /* its beginning, as far as it had been written */
    char last[SIGN];   /* what was read last */
    size_t firsts, lasts;
    int is_broken; /* reported; not read any further */
};

struct foreign_reader {
    char *path;
    const struct foreign_format *format;
    int is_dir, is_stream, is_stream_end;
    struct source *source;
    size_t n, cap;
    struct foreign_out out;
    size_t at;             /* the next item to deliver */
    struct record *record; /* points on their way out as records */
    struct str frame;
    int wants_points, is_reset, is_rewrite, has_head, is_behind;
    size_t limit, taken, batch; /* batch: bytes read since the last delivery */
    double listed;              /* monotonic time of the last look at the folders */
    double modified;            /* newest */
    uint64_t position, delivered, seq, left_out;
};

/* ---- what formats report ---- */

void foreign_no_memory(struct foreign_out *out)
{
    out->is_failed = 1;
}

static struct item *new_item(struct foreign_out *out)
{
    void *p = out->item;
    if (mem_grow(&p, &out->cap_items, out->items + 1, sizeof *out->item) < 0) {
        foreign_no_memory(out);
        return NULL;
    }
    out->item = p;
    out->item[out->items] = (struct item){0};
    return &out->item[out->items++];
}

/* A name as it is kept: cut at FOREIGN_NAME_MAX with a hash of the whole, or two long tags with the
 * same beginning would become one curve. */
static size_t short_name(char *to, size_t max, const char *name, size_t n)
{
    static const char digit[] = "0123456789abcdef";
    uint64_t h;
    if (n <= max) {
        memcpy(to, name, n);
        return n;
    }
    h = hash64(name, n, 0);
    size_t keep = max - 9;
    while (keep > 0 && ((unsigned char)name[keep] & 0xC0) == 0x80)
        keep--;
    memcpy(to, name, keep);
    to[keep] = '~';
    for (int i = 0; i < 8; i++, h >>= 4)
        to[keep + 1 + (size_t)i] = digit[h & 15];
    return keep + 9;
}

/* The id of a name, -1 beyond the cap. */
static int64_t id_of(struct foreign_out *out, const char *name, size_t n)
{
    char kept[FOREIGN_NAME_MAX + 1];
    int64_t id;
    void *p = out->name;
    if (out->hint == out->names) /* the next line begins with the first name again */
        out->hint = 0;
    if (out->hint < out->names && strlen(out->name[out->hint]) == n &&
        memcmp(out->name[out->hint], name, n) == 0)
        return (int64_t)out->hint++;
    n = short_name(kept, FOREIGN_NAME_MAX, name, n);
    if (n == 4 &&
        (!memcmp(kept, "step", n) || !memcmp(kept, "time", n) || !memcmp(kept, "kind", n)))
        kept[n++] = '_'; /* records have these keys */
    for (size_t bad; (bad = utf8_valid(kept, n)) < n;)
        kept[bad] = '?';
    if (map_get(&out->ids, kept, n, &id)) {
        out->hint = (size_t)id + 1;
        return id;
    }
    if (out->names == FOREIGN_NAMES_MAX)
        return -1;
    if (memchr(kept, '\0', n) || n == 0)
        return -2;
    kept[n] = '\0';
    char *copy = mem_strdup(kept);
    int rc = mem_grow(&p, &out->cap_names, out->names + 1, sizeof *out->name);
    out->name = p; /* it may have moved even when a name cannot be added */
    if (!copy || rc < 0 || map_set(&out->ids, kept, n, (int64_t)out->names) < 0) {
        mem_free(copy);
        foreign_no_memory(out);
        return -1;
    }
    out->name[out->names] = copy;
    out->hint = out->names + 1;
    return (int64_t)out->names++;
}

void foreign_point(struct foreign_out *out, const char *name, size_t n, int64_t step, double time,
                   double value)
{
    int64_t id = step < 0 ? -2 : id_of(out, name, n);
    void *p = out->point;
    if (id < 0) {
        out->invalid += id == -2;
        if (id == -1 && out->others++ == 0) {
            char text[80];
            snprintf(text, sizeof text, "more than %d metrics: the rest is left out",
                     FOREIGN_NAMES_MAX);
            foreign_event(out, step, time, "warn", "metrics", text);
        }
        return;
    }
    if (out->points == out->cap_points) {
        if (mem_grow(&p, &out->cap_points, out->points + 1, sizeof *out->point) < 0) {
            foreign_no_memory(out);
            return;
        }
        out->point = p;
    }
    struct item *last = out->items ? &out->item[out->items - 1] : NULL;
    if (!last || last->is_record) {
        if (!(last = new_item(out)))
            return;
        last->from = out->points;
    }
    last->n++;
    out->point[out->points++] =
        (struct foreign_point){.name = out->name[id],
                               .id = (uint32_t)id,
                               .step = step,
                               .time = fabs(time) <= 1e12 ? time : (double)NAN,
                               .value = value};
}

struct record *foreign_begin(struct foreign_out *out, const char *kind, int64_t step, double time)
{
    record_begin(out->record, kind, step, time);
    out->is_head = strcmp(kind, "head") == 0;
    out->is_end = strcmp(kind, "end") == 0;
    out->is_event = strcmp(kind, "event") == 0;
    if (out->is_head)
        record_int(out->record, "format", RECORD_FORMAT);
    return out->record;
}

static void add_body(struct foreign_out *out, size_t from)
{
    struct item *i = new_item(out);
    if (i)
        *i = (struct item){.from = from, .n = out->bodies.len - from, .is_record = 1};
    out->is_failed |= out->bodies.failed | out->end.failed;
}

void foreign_end(struct foreign_out *out)
{
    size_t from = out->bodies.len;
    int rc = record_end(out->record, 0, &out->bodies, NULL);
    if (rc < 0) {
        if (rc == DS_EMEM)
            foreign_no_memory(out);
        else
            out->invalid++; /* longer or deeper than a record may be */
        out->bodies.len = from;
        return;
    }
    out->has_records |= !out->is_head && !out->is_event;
    if (out->is_end) {
        str_reset(&out->end);
        str_add_bytes(&out->end, out->bodies.p + from, out->bodies.len - from);
    }
    add_body(out, from);
    if (out->is_head && out->end.len > 0) {
        from = out->bodies.len;
        str_add_bytes(&out->bodies, out->end.p, out->end.len);
        add_body(out, from);
    }
}

void foreign_event(struct foreign_out *out, int64_t step, double time, const char *level,
                   const char *name, const char *text)
{
    struct record *r = foreign_begin(out, "event", step, time);
    record_str(r, "level", level);
    record_str(r, "name", name);
    record_str(r, "text", text);
    foreign_end(out);
}

void foreign_invalid(struct foreign_out *out, uint64_t n)
{
    out->invalid += n;
}

/* ---- text that formats share ---- */

size_t foreign_line(const char *p, size_t n, int is_end, size_t *used)
{
    const char *end = memchr(p, '\n', n);
    size_t len = end ? (size_t)(end - p) : n;
    *used = 0;
    if (!end && !is_end)
        return 0;
    *used = end ? len + 1 : len;
    return len > 0 && p[len - 1] == '\r' ? len - 1 : len;
}

static int is_word(const char *p, size_t n, const char *word)
{
    if (strlen(word) != n)
        return 0;
    for (size_t i = 0; i < n; i++)
        if (tolower((unsigned char)p[i]) != word[i])
            return 0;
    return 1;
}

int foreign_number(const char *p, size_t n, int allow_comma, double *out)
{
    while (n > 0 && (p[0] == ' ' || p[0] == '\t'))
        p++, n--;
    while (n > 0 && (p[n - 1] == ' ' || p[n - 1] == '\t'))
        n--;
    if (n == 0)
        return 0;
    if (decimal_read(p, n, '.', out) == n || (allow_comma && decimal_read(p, n, ',', out) == n))
        return 1;
    size_t sign = p[0] == '-' || p[0] == '+';
    if (!is_word(p + sign, n - sign, "nan") && !is_word(p + sign, n - sign, "inf") &&
        !is_word(p + sign, n - sign, "infinity"))
        return 0;
    double x = tolower((unsigned char)p[sign]) == 'n' ? (double)NAN : HUGE_VAL;
    *out = p[0] == '-' ? -x : x;
    return 1;
}

/* ---- sources ---- */

static void source_clear(const struct foreign_reader *r, struct source *s)
{
    if (s->state && r->format->release)
        r->format->release(s->state);
    mem_free(s->state);
    str_release(&s->left);
    mem_free(s->rel);
}

static int add_source(struct foreign_reader *r, const char *rel, struct err *e)
{
    void *p = r->source;
    struct source s = {.rel = mem_strdup(rel), .state = mem_alloc(1, r->format->state_size + 1)};
    if (!s.rel || !s.state || mem_grow(&p, &r->cap, r->n + 1, sizeof *r->source) < 0) {
        mem_free(s.rel);
        mem_free(s.state);
        return err_set(e, DS_EMEM, "%s: out of memory", r->path);
    }
    r->source = p;
    r->source[r->n++] = s;
    return 0;
}

static void forget_found(struct foreign_reader *r)
{
    r->out.items = r->out.points = r->at = r->batch = 0;
    str_reset(&r->out.bodies);
}

static int is_whole(const struct foreign_reader *r, const struct source *s)
{
    return r->format->is_whole || (r->format->is_rewritten && r->format->is_rewritten(s->rel));
}

/* A file was replaced or lost bytes that were read: all are read again. */
static void start_over(struct foreign_reader *r, int is_rewrite)
{
    for (size_t i = 0; i < r->n; i++)
        source_clear(r, &r->source[i]);
    r->n = 0;
    forget_found(r);
    r->out.invalid = r->out.others = 0;
    r->listed = -1;
    r->position = 0;
    r->has_head = 0;
    str_reset(&r->out.end);
    r->is_reset = r->seq > 0;
    r->is_rewrite = is_rewrite;
}

static int has_source(const struct foreign_reader *r, const char *rel)
{
    for (size_t i = 0; i < r->n; i++)
        if (strcmp(r->source[i].rel, rel) == 0)
            return 1;
    return 0;
}

/* Looks for files that are not read yet. */
static int list_sources(struct foreign_reader *r, struct err *e)
{
    struct foreign_files files = {0};
    if (r->is_stream || (!r->is_dir && r->n > 0) ||
        (r->listed >= 0 && clock_mono() - r->listed < list_s))
        return 0;
    r->listed = clock_mono();
    if (!r->is_dir) {
        const char *slash = strrchr(r->path, '/');
        return add_source(r, slash ? slash + 1 : r->path, e);
    }
    int rc = foreign_files_list(&files, r->path, r->format, e);
    if (rc == 0 && r->format->place && r->n > 0 && files.n > 0 &&
        !has_source(r, files.name[files.n - 1]))
        start_over(r, 1);
    for (size_t i = 0; rc == 0 && i < files.n; i++)
        if (!has_source(r, files.name[i]))
            rc = add_source(r, files.name[i], e);
    r->left_out = files.left_out;
    foreign_files_release(&files);
    return rc;
}

/* ---- bytes ---- */

static void add_head(struct foreign_reader *r)
{
    const char *name = r->path, *slash;
    char stem[256];
    struct record *b;
    size_t n = fs_trimmed(name);
    if (r->has_head)
        return;
    r->has_head = 1;
    for (slash = name + n; slash > name && slash[-1] != '/';)
        slash--;
    str_copy(stem, sizeof stem, slash);
    if (strlen(stem) > (size_t)(name + n - slash))
        stem[name + n - slash] = '\0';
    char *dot = r->is_dir ? NULL : strrchr(stem, '.');
    if (dot && dot > stem && !strstr(stem, "tfevents"))
        *dot = '\0';
    b = foreign_begin(&r->out, "head", 0, (double)NAN);
    record_str(b, "run", strcmp(r->path, "-") ? stem : "stdin");
    record_str(b, "writer", r->format->title);
    record_str(b, "foreign", r->format->title);
    foreign_end(&r->out);
    if (r->left_out > 0) {
        char text[120];
        snprintf(text, sizeof text, "too many files: the last %d are read, %llu are left out",
                 FOREIGN_FILES_MAX, (unsigned long long)r->left_out);
        foreign_event(&r->out, 0, (double)NAN, "warn", "files", text);
    }
}

/* Offers what is there of a source to its format. */
static int take(struct foreign_reader *r, struct source *s, int is_end, struct err *e)
{
    struct err why = {0};
    struct foreign_bytes b = {
        .p = str_text(&s->left), .n = s->left.len, .file = s->rel, .offset = s->taken};
    int64_t n = 0;
    if (s->is_broken)
        return 0;
    if (!is_whole(r, s))
        n = r->format->take(s->state, &r->out, &b, &why);
    if (n >= 0 && is_end) {
        int64_t more;
        b.p += n;
        b.n -= (size_t)n;
        b.offset += (uint64_t)n;
        b.is_end = 1;
        more = r->format->take(s->state, &r->out, &b, &why);
        s->took_end = more > 0 && !is_whole(r, s);
        s->ended_at = s->taken + s->left.len;
        n = more < 0 ? more : n + more;
    }
    if (r->out.is_failed || s->left.failed || n == DS_EMEM)
        return err_set(e, DS_EMEM, "%s: out of memory for its records", r->path);
    if (n < 0) {
        s->is_broken = 1;
        foreign_event(&r->out, 0, (double)NAN, "error", "unreadable", why.text);
        str_release(&s->left);
        if (r->out.names == 0 && !r->out.has_records && r->n == 1)
            return err_set(e, DS_EFORMAT, "%s: %s", r->path, why.text);
        return 0;
    }
    BUG_IF((size_t)n > s->left.len, "%s took more than there was", r->format->name);
    if (n > 0)
        memmove(s->left.p, s->left.p + n, s->left.len - (size_t)n);
    s->left.len -= (size_t)n;
    s->taken += (uint64_t)n;
    return 0;
}

static double seconds(struct timespec t)
{
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Reads on in one open file: 1 there is more than the limit allows, 0 its end was reached. */
static int read_on(struct foreign_reader *r, struct source *s, int fd, uint64_t size, int is_rest,
                   struct err *e)
{
    size_t got = 0;
    uint64_t from = s->taken + s->left.len;
    if (lseek(fd, (off_t)from, SEEK_SET) < 0)
        return err_errno(e, "seek in %s", s->rel);
    while (from < size) {
        char *to;
        size_t want = size - from < CHUNK ? (size_t)(size - from) : CHUNK;
        if (!is_whole(r, s) && r->out.items > 0 && r->batch >= BATCH_BYTES)
            return 1;
        if (s->left.len > UNIT_MAX) {
            s->is_broken = 1;
            foreign_event(&r->out, 0, (double)NAN, "error", "unreadable",
                          "a line or record of more than 256 MiB; the rest is not read");
            str_release(&s->left);
            return 0;
        }
        if (!str_reserve(&s->left, want))
            return err_set(e, DS_EMEM, "%s: out of memory", r->path);
        to = s->left.p + s->left.len;
        int rc = fs_read_some(fd, to, want, &got, s->rel, e);
        if (rc < 0 || got == 0)
            return rc;
        s->left.len += got;
        to[got] = '\0';
        s->lasts = got < SIGN ? got : SIGN;
        memcpy(s->last, to + got - s->lasts, s->lasts);
        from += got;
        r->position += got;
        r->batch += got;
        r->taken += got;
        int is_end = from >= size && is_rest;
        if (!is_whole(r, s) || is_end)
            rc = take(r, s, is_end, e);
        if (rc < 0 || s->is_broken)
            return rc;
        if (r->limit && r->taken >= r->limit && from < size) {
            r->is_behind = 1;
            return 1;
        }
    }
    return 0;
}

static int path_of(const struct foreign_reader *r, const struct source *s, char *out, size_t size)
{
    return r->is_dir ? fs_join(out, size, r->path, s->rel, NULL) : str_copy(out, size, r->path);
}

/* Does the file still have the bytes seen before, of which `seen` were read?  One that was truncated
 * and written again may be longer than before by now, and differ only after its beginning: a table
 * that got another column. */
static int has_same_bytes(struct source *s, int fd, uint64_t seen)
{
    char now[SIGN];
    ssize_t got = fs_pread(fd, now, s->lasts, seen - s->lasts);
    if (got >= 0 && (got < (ssize_t)s->lasts || memcmp(now, s->last, s->lasts) != 0))
        return 0;
    got = fs_pread(fd, now, sizeof now, 0);
    if (got < (ssize_t)s->firsts || memcmp(now, s->first, s->firsts) != 0)
        return got < 0;
    memcpy(s->first, now, (size_t)got);
    s->firsts = (size_t)got;
    return 1;
}

/* At its present end: its last line may be whole without a newline. */
static int at_end(struct foreign_reader *r, struct source *s, int is_rest, struct err *e)
{
    return is_rest && s->left.len > 0 && s->ended_at != s->size ? take(r, s, 1, e) : 0;
}

/* Looks at one source: 1 when there is more to read in it, 0 at its present end, 2 after a start
 * from the beginning. */
static int poll_source(struct foreign_reader *r, struct source *s, struct err *e)
{
    char path[4096];
    struct stat st;
    int fd, rc;
    if (s->is_broken || path_of(r, s, path, sizeof path) != 0 || fs_stat(path, &st) != 0 ||
        !S_ISREG(st.st_mode))
        return 0; /* gone: what was read stays */
    uint64_t size = (uint64_t)st.st_size;
    int is_new = s->inode == 0 && s->device == 0;
    int is_same = s->inode == (uint64_t)st.st_ino && s->device == (uint64_t)st.st_dev;
    int moved = st.st_mtim.tv_sec != s->changed.tv_sec || st.st_mtim.tv_nsec != s->changed.tv_nsec;
    uint64_t seen = s->taken + s->left.len;
    if (!is_new && (!is_same || size < seen || (is_whole(r, s) && (moved || size != s->size)))) {
        start_over(r, is_whole(r, s));
        return 2;
    }
    if (is_new || moved || size != s->size)
        s->same_since = clock_mono();
    /* the time of a file may lie ahead of the clock here, on another host or out of an archive */
    int is_rest = is_whole(r, s) || clock_wall() - seconds(st.st_mtim) > rest_s ||
                  clock_mono() - s->same_since > rest_s;
    s->inode = (uint64_t)st.st_ino;
    s->device = (uint64_t)st.st_dev;
    s->size = size;
    s->changed = st.st_mtim;
    if (size == seen && !moved)
        return at_end(r, s, is_rest, e);
    if (fs_open_read(&fd, path, NULL) < 0)
        return 0;
    char next = '\n';
    int has_same = has_same_bytes(s, fd, seen);
    /* written anew, or the last line was not complete after all */
    if (!has_same || (s->took_end && size > seen && fs_pread(fd, &next, 1, seen) == 1 &&
                      next != '\n' && next != '\r')) {
        fs_close(fd);
        start_over(r, has_same);
        return 2;
    }
    s->took_end &= size == seen;
    rc = size == seen ? at_end(r, s, is_rest, e) : read_on(r, s, fd, size, is_rest, e);
    fs_close(fd);
    return rc;
}

/* ---- delivery ---- */

/* Points of one step and time, from `from` on, as a metric record. */
static size_t pack_points(struct foreign_reader *r, const struct foreign_point *p, size_t n)
{
    size_t k = 0;
    record_begin(r->record, "metric", p[0].step, p[0].time);
    for (; k < n && p[k].step == p[0].step &&
           (p[k].time == p[0].time || (isnan(p[k].time) && isnan(p[0].time)));
         k++) {
        char key[KEY_MAX + 1];
        int is_again = 0;
        for (size_t i = 0; i < k && !is_again; i++)
            is_again = p[i].id == p[k].id;
        if (is_again || k == 256)
            break;
        key[short_name(key, KEY_MAX, p[k].name, strlen(p[k].name))] = '\0';
        record_num(r->record, key, p[k].value);
    }
    str_renew(&r->frame);
    return k;
}

static int deliver(struct foreign_reader *r, struct runlog_entry *entry, struct err *e)
{
    struct item *i = &r->out.item[r->at];
    int64_t whole;
    entry->offset = r->position;
    if (!i->is_record && r->wants_points) {
        entry->point = r->out.point + i->from;
        entry->points = i->n;
        r->at++;
        return 1;
    }
    entry->seq = ++r->seq;
    if (i->is_record) {
        uint64_t seq;
        whole = record_parse(r->out.bodies.p + i->from, i->n, &seq, &entry->body, e);
        r->at++;
    } else {
        uint64_t seq;
        size_t k = pack_points(r, r->out.point + i->from, i->n);
        int rc = record_end(r->record, r->seq, &r->frame, e);
        if (rc < 0)
            return rc;
        whole = record_parse(r->frame.p, r->frame.len, &seq, &entry->body, e);
        i->from += k;
        i->n -= k;
        r->at += i->n == 0;
    }
    return whole > 0 ? 1 : err_add(e, whole < 0 ? (int)whole : DS_EFORMAT, "%s", r->path);
}

int foreign_next(struct foreign_reader *r, struct runlog_entry *entry, struct err *e)
{
    memset(entry, 0, sizeof *entry);
    r->taken = 0;
    r->is_behind = 0;
    for (;;) {
        if (r->is_reset && r->seq > 0) {
            r->is_reset = 0;
            r->seq = 0;
            entry->is_gap = entry->is_reset = 1;
            entry->is_rewrite = r->is_rewrite;
            return 1;
        }
        if (r->at < r->out.items)
            return deliver(r, entry, e);
        forget_found(r);
        r->delivered = r->position;
        if (r->is_behind)
            return 0;
        int rc = list_sources(r, e), more = 0;
        if (rc == 0 && r->n > 0)
            add_head(r);
        for (size_t i = 0; rc == 0 && i < r->n && !more && !r->is_stream; i++) {
            rc = poll_source(r, &r->source[i], e);
            more = rc > 0;
            rc = rc < 0 ? rc : 0;
        }
        if (rc < 0)
            return err_add(e, rc, "read %s", r->path);
        if (!more && r->at == r->out.items && !r->is_reset)
            return 0;
    }
}

/* ---- opening ---- */

void foreign_reader_close(struct foreign_reader *r)
{
    if (!r)
        return;
    for (size_t i = 0; i < r->n; i++)
        source_clear(r, &r->source[i]);
    for (size_t i = 0; i < r->out.names; i++)
        mem_free(r->out.name[i]);
    mem_free(r->out.name);
    mem_free(r->out.point);
    mem_free(r->out.item);
    str_release(&r->out.bodies);
    str_release(&r->out.end);
    record_free(r->out.record);
    record_free(r->record);
    map_release(&r->out.ids);
    str_release(&r->frame);
    mem_free(r->source);
    mem_free(r->path);
    mem_free(r);
}

static struct foreign_reader *reader_new(const char *path, const struct foreign_format *format)
{
    struct foreign_reader *r = mem_alloc(1, sizeof *r);
    if (!r)
        return NULL;
    r->format = format;
    r->listed = -1;
    r->path = mem_strdup(path);
    r->record = record_new();
    r->out.record = record_new();
    if (r->path && r->record && r->out.record)
        return r;
    foreign_reader_close(r);
    return NULL;
}

int foreign_reader_open(struct foreign_reader **out, const char *path, struct err *e)
{
    char home[4096];
    int rc;
    const struct foreign_format *format = foreign_files_find(path, home, sizeof home, &rc);
    struct foreign_reader *r;
    if (!format && rc != DS_EMEM)
        return err_set(e, DS_ENOTFOUND, "%s: not a log of a known format", path);
    if (!format || !(r = reader_new(home, format)))
        return err_set(e, DS_EMEM, "%s: out of memory", path);
    r->is_dir = fs_is_dir(home);
    *out = r;
    return 0;
}

int foreign_reader_stream(struct foreign_reader **out, const void *p, size_t n, int is_end,
                          struct err *e)
{
    const struct foreign_format *format = foreign_recognise(p, n, "", is_end);
    struct foreign_reader *r;
    if (!format || format->is_named)
        return err_set(e, DS_ENOTFOUND, "-: not a log of a known format");
    if (!(r = reader_new("-", format)) || add_source(r, "-", NULL) < 0) {
        foreign_reader_close(r);
        return err_set(e, DS_EMEM, "-: out of memory");
    }
    r->is_stream = 1;
    *out = r;
    return 0;
}

int foreign_push(struct foreign_reader *r, const void *p, size_t n, int is_end, struct err *e)
{
    struct source *s = &r->source[0];
    if (r->is_stream_end || s->is_broken)
        return 0;
    add_head(r);
    str_add_bytes(&s->left, p, n);
    r->position += n;
    r->modified = n > 0 ? clock_wall() : r->modified;
    r->is_stream_end = is_end;
    if (s->left.len > UNIT_MAX)
        return err_set(e, DS_EFORMAT, "-: a line or record of more than 256 MiB");
    return r->format->is_whole && !is_end ? 0 : take(r, s, is_end, e);
}

void foreign_wants_points(struct foreign_reader *r)
{
    r->wants_points = 1;
}

void foreign_limit(struct foreign_reader *r, size_t bytes)
{
    r->limit = bytes;
}

int foreign_is_behind(const struct foreign_reader *r)
{
    return r->is_behind;
}

uint64_t foreign_position(const struct foreign_reader *r)
{
    return r->at < r->out.items ? r->delivered : r->position;
}

uint64_t foreign_left(const struct foreign_reader *r)
{
    uint64_t left = 0;
    for (size_t i = 0; i < r->n; i++)
        left += r->source[i].left.len;
    return left;
}

double foreign_modified(const struct foreign_reader *r)
{
    double newest = r->modified;
    for (size_t i = 0; i < r->n; i++)
        if (seconds(r->source[i].changed) > newest)
            newest = seconds(r->source[i].changed);
    return newest;
}

uint64_t foreign_skipped(const struct foreign_reader *r)
{
    return r->out.invalid;
}

uint64_t foreign_others(const struct foreign_reader *r)
{
    return r->out.others;
}

const struct foreign_format *foreign_reader_format(const struct foreign_reader *r)
{
    return r->format;
}
