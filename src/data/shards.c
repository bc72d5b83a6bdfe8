/* Token shards: files of 16- or 32-bit ids, read in place as one stream per split. */
#include "data/shards.h"

#include <fnmatch.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fs.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/mem.h"

enum {
    HEADER_BYTES = 1024,
    MAGIC_16 = 20240520, /* llm.c, uint16: GPT-2's ids */
    MAGIC_32 = 20240801, /* llm.c, uint32: Llama 3's ids */
    SNIFF_BYTES = 8192,
    KEEP_BYTES = 32 << 20, /* mapped pages that may stay after they were read */
    FAULT_BYTES = 1 << 16, /* what one page fault maps around it, at most */
};

struct shard {
    char *path;
    struct fs_map map;
    uint64_t header, n, first; /* bytes; tokens; number of its first token in its split */
    int width;                 /* bytes of a token */
    int is_val;                /* by its name */
};
struct shards {
    struct shard *file;
    size_t n, cap;
    uint64_t tokens[2]; /* of training and validation files; all in [0] unless by name */
    int by_name, owners;
    uint64_t touched; /* bytes since pages were given back */
    struct {
        int is_set;
        size_t file;
        uint64_t offset;
        uint32_t id;
        int vocab;
    } bad;
};

/* ---- names ---- */

static int ends_with_bin(const char *name)
{
    size_t n = strlen(name);
    return n > 4 && strcmp(name + n - 4, ".bin") == 0;
}

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static int is_pattern(const char *path)
{
    return strpbrk(base_name(path), "*?[") != NULL && !fs_exists(path);
}

static int32_t word_at(const unsigned char *p, int i)
{
    return (int32_t)((uint32_t)p[4 * i] | (uint32_t)p[4 * i + 1] << 8 |
                     (uint32_t)p[4 * i + 2] << 16 | (uint32_t)p[4 * i + 3] << 24);
}

/* 2: llm.c, 1: bytes that are not text, 0: text, or a file of another kind. */
static int looks_like_tokens(const char *path)
{
    unsigned char p[SNIFF_BYTES];
    size_t n = 0, got = 1;
    int fd = -1;
    if (!ends_with_bin(path) || fs_open_read(&fd, path, NULL) < 0)
        return 0;
    while (n < sizeof p && got > 0) {
        if (fs_read_some(fd, p + n, sizeof p - n, &got, path, NULL) < 0)
            got = 0;
        n += got;
    }
    (void)fs_close(fd);
    if (n >= 4 && (word_at(p, 0) == MAGIC_16 || word_at(p, 0) == MAGIC_32))
        return 2;
    return n && (memcmp(p, "PK\3\4", n < 4 ? n : 4) != 0 && memcmp(p, "GGUF", n < 4 ? n : 4) != 0)
               ? memchr(p, 0, n) != NULL
               : 0;
}

/* Folders may hold other files: only names that say so, or llm.c's header, are taken. */
static int is_member(const char *folder, const char *name, const char *pattern)
{
    char path[4096];
    if (name[0] == '.' || fs_join(path, sizeof path, folder, name, NULL) < 0)
        return 0;
    if (pattern)
        return fnmatch(pattern, name, 0) == 0 && !fs_is_dir(path);
    int kind = looks_like_tokens(path);
    return kind == 2 || (kind == 1 && (strstr(name, "train") || strstr(name, "val")));
}

/* The folder of a path or pattern, and the pattern (NULL: none). */
static const char *split_path(const char *path, char *folder, size_t size)
{
    const char *name = base_name(path);
    if (!is_pattern(path)) {
        str_copy(folder, size, path);
        return NULL;
    }
    str_copy(folder, size, name == path ? "." : path);
    if (name != path && (size_t)(name - path) < size)
        folder[name - path] = '\0';
    return name;
}

int shards_at(const char *path)
{
    char folder[4096], **names = NULL;
    const char *pattern = split_path(path, folder, sizeof folder);
    size_t n = 0;
    int found = 0;
    if (!pattern && !fs_is_dir(path))
        return looks_like_tokens(path) > 0;
    if (!fs_is_dir(folder) || fs_list(folder, &names, &n, NULL) < 0)
        return 0;
    for (size_t i = 0; i < n && !found; i++)
        found = is_member(folder, names[i], pattern) && (!pattern || ends_with_bin(names[i]));
    fs_list_free(names, n);
    return found;
}

/* ---- opening ---- */

static int check_size(const struct shard *f, struct err *e)
{
    uint64_t have = f->map.n - f->header;
    if (have == f->n * (uint64_t)f->width && f->n > 0)
        return 0;
    if (f->header)
        return err_set(e, DS_EFORMAT, "%s: %llu tokens of %d bytes in %llu bytes%s", f->path,
                       (unsigned long long)f->n, f->width, (unsigned long long)have,
                       have < f->n * (uint64_t)f->width ? ": truncated" : "");
    return err_set(e, DS_EFORMAT,
                   "%s: %llu bytes, expected a multiple of 2: truncated, or not uint16 tokens",
                   f->path, (unsigned long long)have);
}

static int read_header(struct shard *f, struct err *e)
{
    int32_t magic = f->map.n >= 4 ? word_at(f->map.p, 0) : 0;
    f->width = magic == MAGIC_32 ? 4 : 2;
    if (magic == MAGIC_16 || magic == MAGIC_32) {
        if (f->map.n < HEADER_BYTES)
            return err_set(e, DS_EFORMAT, "%s: header of %zu bytes, expected %d: truncated",
                           f->path, f->map.n, HEADER_BYTES);
        if (word_at(f->map.p, 2) < 0)
            return err_set(e, DS_EFORMAT, "%s: token count %d: must be 0 or more", f->path,
                           word_at(f->map.p, 2));
        f->header = HEADER_BYTES;
        f->n = (uint64_t)word_at(f->map.p, 2);
    } else {
        f->n = f->map.n / 2;
    }
    return check_size(f, e);
}

static int add_file(struct shards *s, const char *path, struct err *e)
{
    void *p = s->file;
    if (mem_grow(&p, &s->cap, s->n + 1, sizeof *s->file) < 0)
        return err_set(e, DS_EMEM, "out of memory for %zu token shards", s->n + 1);
    s->file = p;
    struct shard *f = &s->file[s->n];
    *f = (struct shard){.path = mem_strdup(path)};
    if (!f->path)
        return err_set(e, DS_EMEM, "out of memory for %zu token shards", s->n + 1);
    int rc = fs_map_open(&f->map, path, e);
    if (rc < 0) {
        mem_free(f->path);
        return rc;
    }
    s->n++;
    return read_header(f, e);
}

static int add_folder(struct shards *s, const char *path, struct err *e)
{
    char folder[4096], full[4096], **names = NULL;
    const char *pattern = split_path(path, folder, sizeof folder);
    size_t n = 0;
    int rc = fs_list(folder, &names, &n, e);
    for (size_t i = 0; rc >= 0 && i < n; i++) {
        if (!is_member(folder, names[i], pattern))
            continue;
        rc = fs_join(full, sizeof full, folder, names[i], e);
        if (rc >= 0)
            rc = add_file(s, full, e);
    }
    fs_list_free(names, n);
    return rc < 0 ? rc : 0;
}

/* Does the name say "val"?  Not if "train" follows: interval_train.bin. */
static int is_val_name(const char *path)
{
    const char *val = NULL;
    for (const char *p = base_name(path); (p = strstr(p, "val")) != NULL; p++)
        val = p;
    return val && !strstr(val, "train");
}

/* Splits by name only when there are files of both. */
static void number_tokens(struct shards *s)
{
    size_t val = 0, i;
    for (i = 0; i < s->n; i++)
        val += (size_t)is_val_name(s->file[i].path);
    s->by_name = val > 0 && val < s->n;
    for (i = 0; i < s->n; i++) {
        struct shard *f = &s->file[i];
        f->is_val = s->by_name && is_val_name(f->path);
        f->first = s->tokens[f->is_val];
        s->tokens[f->is_val] += f->n;
    }
}

int shards_open(struct shards **out, const char *path, struct err *e)
{
    struct shards *s = mem_alloc(1, sizeof *s);
    if (!s)
        return err_set(e, DS_EMEM, "out of memory for token shards");
    s->owners = 1;
    int rc = is_pattern(path) || fs_is_dir(path) ? add_folder(s, path, e) : add_file(s, path, e);
    if (rc == 0 && s->n == 0)
        rc = err_set(e, DS_ENOTFOUND, "%s: no token shards", path);
    for (size_t i = 1; rc == 0 && i < s->n; i++)
        if (s->file[i].width != s->file[0].width)
            rc = err_set(e, DS_EFORMAT, "%s: tokens of %d bytes, expected %d as in %s",
                         s->file[i].path, s->file[i].width, s->file[0].width, s->file[0].path);
    if (rc < 0) {
        shards_close(s);
        return rc;
    }
    number_tokens(s);
    *out = s;
    return 0;
}

struct shards *shards_share(struct shards *s)
{
    s->owners++;
    return s;
}

void shards_close(struct shards *s)
{
    if (!s || --s->owners > 0)
        return;
    for (size_t i = 0; i < s->n; i++) {
        fs_map_close(&s->file[i].map);
        mem_free(s->file[i].path);
    }
    mem_free(s->file);
    mem_free(s);
}

uint64_t shards_hash(const struct shards *s)
{
    uint64_t h = s->n;
    for (size_t i = 0; i < s->n; i++) {
        const struct fs_map *m = &s->file[i].map;
        size_t n = m->n < SNIFF_BYTES ? m->n : SNIFF_BYTES;
        uint64_t size = m->n;
        h = hash64(&size, sizeof size, h);
        h = hash64(m->p, n, h);
        h = hash64(m->p + m->n - n, n, h);
    }
    return h;
}

/* ---- reading ---- */

struct shards_split shards_split(struct shards *s, int is_val, double fraction)
{
    uint64_t all = s->tokens[0], held = (uint64_t)((double)all * fraction);
    if (s->by_name)
        return (struct shards_split){s, is_val, 1, 0, s->tokens[is_val]};
    return (struct shards_split){s, 0, 0, is_val ? all - held : 0, is_val ? held : all - held};
}

/* The last file of the split that begins at or before token `at`. */
static size_t find_file(const struct shards *s, int is_val, uint64_t at)
{
    size_t found = 0;
    for (size_t i = 0; i < s->n; i++)
        if (s->file[i].is_val == is_val && s->file[i].first <= at)
            found = i;
    return found;
}

static uint32_t token_at(const struct shard *f, uint64_t i)
{
    const unsigned char *p = f->map.p + f->header + i * (uint64_t)f->width;
    uint32_t low = (uint32_t)p[0] | (uint32_t)p[1] << 8;
    return f->width == 2 ? low : low | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static void note_bad(struct shards *s, size_t file, uint64_t i, int vocab)
{
    const struct shard *f = &s->file[file];
    if (s->bad.is_set)
        return;
    s->bad.is_set = 1;
    s->bad.file = file;
    s->bad.offset = f->header + i * (uint64_t)f->width;
    s->bad.id = token_at(f, i);
    s->bad.vocab = vocab;
}

/* The mapping is read-only: what is given back is read from the file again. */
static void give_back(struct shards *s, uint64_t bytes)
{
    s->touched += bytes;
    if (s->touched < KEEP_BYTES)
        return;
    s->touched = 0;
    for (size_t i = 0; i < s->n; i++)
        mem_discard((void *)(uintptr_t)s->file[i].map.p, s->file[i].map.n);
}

void shards_read(const struct shards_split *split, uint64_t at, size_t n, int vocab, int32_t *out)
{
    struct shards *s = split->shards;
    uint64_t from = split->first + at;
    BUG_IF(at > split->n || n > split->n - at, "tokens %llu to %llu of %llu",
           (unsigned long long)at, (unsigned long long)(at + n), (unsigned long long)split->n);
    for (size_t k = 0; k < n;) {
        size_t file = find_file(s, split->is_val, from + k);
        const struct shard *f = &s->file[file];
        uint64_t i = from + k - f->first;
        for (; k < n && i < f->n; i++, k++) {
            uint32_t id = token_at(f, i);
            if (id >= (uint32_t)vocab)
                note_bad(s, file, i, vocab);
            out[k] = id < (uint32_t)vocab ? (int32_t)id : 0;
        }
    }
    give_back(s, n * 4 + FAULT_BYTES);
}

int shards_check(const struct shards *s, struct err *e)
{
    if (!s->bad.is_set)
        return 0;
    return err_set(
        e, DS_ERANGE,
        "%s: byte %llu: token id %u: must be below the vocabulary of %d (data.tokenizer)",
        s->file[s->bad.file].path, (unsigned long long)s->bad.offset, s->bad.id, s->bad.vocab);
}
