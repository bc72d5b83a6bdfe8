/* Reads documents from files.  A file is read in chunks and passed on in fragments of lines, so
 * that a line of 4 GiB costs no more than the corpus may hold. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "base/fs.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "data/corpus.h"

enum { CHUNK = 1 << 20, SNIFF = 8192 };

struct source {
    struct corpus *c;
    const char *path, *key;
    uint64_t line;     /* number of the current line, from 1     */
    int line_has_text; /* it has something other than white space */
    struct str json;   /* the current line, for formats that need all of it */
};
/* A fragment of a line without its newline; ends != 0: the line is complete. */
typedef int fragment_fn(struct source *s, const char *p, size_t n, int ends, struct err *e);

static int has_text(const char *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (p[i] != ' ' && (p[i] < '\t' || p[i] > '\r'))
            return 1;
    return 0;
}

static int put(struct source *s, const char *p, size_t n, int newline, struct err *e)
{
    int rc = corpus_text(s->c, p, n, e);
    if (rc >= 0 && newline)
        rc = corpus_text(s->c, "\n", 1, e);
    return rc;
}

static int whole_fragment(struct source *s, const char *p, size_t n, int ends, struct err *e)
{
    return put(s, p, n, ends, e);
}

static int block_fragment(struct source *s, const char *p, size_t n, int ends, struct err *e)
{
    s->line_has_text |= has_text(p, n);
    int rc = put(s, p, n, ends, e);
    if (rc < 0 || !ends)
        return rc;
    if (!s->line_has_text)
        rc = corpus_end_document(s->c, e);
    s->line_has_text = 0;
    return rc;
}

static int line_fragment(struct source *s, const char *p, size_t n, int ends, struct err *e)
{
    int rc = put(s, p, n, ends, e);
    return rc >= 0 && ends ? corpus_end_document(s->c, e) : rc;
}

/* The mark may occur anywhere, also across two fragments. */
static int eot_fragment(struct source *s, const char *p, size_t n, int ends, struct err *e)
{
    size_t before = corpus_open_len(s->c), from = before > 12 ? before - 12 : 0;
    int rc = put(s, p, n, ends, e);
    while (rc >= 0 && (rc = corpus_cut_at_end_mark(s->c, from, e)) == 1)
        from = 0;
    return rc;
}

static void list_keys(struct str *out, const struct json_node *n)
{
    const char *key;
    size_t len;
    void *at = NULL;
    for (size_t i = 0; i < 8 && json_next(n, &at, &key, &len); i++)
        str_addf(out, "%s%.32s", i ? ", " : "", key);
}

static int add_part(struct source *s, const char *p, size_t n, enum span_kind kind, struct err *e)
{
    int rc = corpus_text(s->c, p, n, e);
    return rc < 0 ? rc : corpus_mark(s->c, kind, e);
}

/* The end-of-text token after an answer is part of it. */
static int end_parts(struct source *s, enum span_kind kind, struct err *e)
{
    int rc = corpus_mark(s->c, kind, e);
    return rc < 0 ? rc : corpus_end_document(s->c, e);
}

static int add_message(struct source *s, const struct json_node *m, size_t i, enum span_kind *kind,
                       struct err *e)
{
    size_t role_n = 0, n = 0;
    const char *role = json_str(json_get(m, "role"), &role_n);
    const char *text = json_str(json_get(m, "content"), &n);
    if (!role || !text)
        return err_set(e, DS_EFORMAT, "messages[%zu]: expected strings \"role\" and \"content\"",
                       i);
    *kind = strcmp(role, "assistant") == 0 ? SPAN_ANSWER : SPAN_TEXT;
    int rc = corpus_text(s->c, role, role_n, e);
    if (rc >= 0)
        rc = add_part(s, ": ", 2, SPAN_TEXT, e);
    if (rc >= 0)
        rc = corpus_text(s->c, text, n, e);
    return rc < 0 ? rc : add_part(s, "\n", 1, *kind, e);
}

/* Text with marked answers: 1 = done, 0 = the line is not of these formats. */
static int answered_document(struct source *s, const struct json_node *root, struct err *e)
{
    size_t prompt_n = 0, n = 0;
    const char *prompt = json_str(json_get(root, "prompt"), &prompt_n);
    const char *answer = json_str(json_get(root, "completion"), &n);
    const struct json_node *messages = json_get(root, "messages");
    enum span_kind last = SPAN_ANSWER;
    int rc = 0;
    if (prompt && answer) {
        rc = add_part(s, prompt, prompt_n, SPAN_TEXT, e);
        if (rc >= 0)
            rc = add_part(s, answer, n, SPAN_ANSWER, e);
    } else if (json_len(messages) > 0) {
        for (size_t i = 0; rc >= 0 && i < json_len(messages); i++)
            rc = add_message(s, json_at(messages, i), i, &last, e);
    } else {
        return 0;
    }
    if (rc >= 0)
        rc = end_parts(s, last, e);
    return rc < 0 ? rc : 1;
}

static int json_document(struct source *s, struct err *e)
{
    struct json *doc = NULL;
    size_t len = 0;
    int rc = json_parse(&doc, s->json.p, s->json.len, "this line", e);
    if (rc < 0)
        return rc;
    const struct json_node *root = json_root(doc);
    const char *text = json_str(json_get(root, s->key), &len);
    if (!text && (rc = answered_document(s, root, e)) != 0) {
        rc = rc < 0 ? rc : 0;
    } else if (!text) {
        struct str keys = {0};
        list_keys(&keys, root);
        rc = err_set(e, DS_EFORMAT,
                     "missing string \"%.40s\", \"prompt\" and \"completion\", or \"messages\" "
                     "(keys found: %.200s)",
                     s->key, str_text(&keys));
        str_release(&keys);
    } else {
        rc = corpus_text(s->c, text, len, e);
        if (rc >= 0)
            rc = corpus_end_document(s->c, e);
    }
    json_free(doc);
    return rc;
}

static int jsonl_fragment(struct source *s, const char *p, size_t n, int ends, struct err *e)
{
    int rc = 0;
    if (s->json.len + n > CORPUS_LINE_MAX)
        rc = err_set(e, DS_ERANGE, "JSON line longer than %d MiB", CORPUS_LINE_MAX >> 20);
    str_add_bytes(&s->json, p, rc < 0 ? 0 : n);
    if (rc >= 0 && s->json.failed)
        rc = err_set(e, DS_EMEM, "out of memory for %zu bytes of text", s->json.len + n);
    if (rc >= 0 && ends) {
        if (has_text(str_text(&s->json), s->json.len))
            rc = json_document(s, e);
        str_reset(&s->json);
    }
    return rc < 0 ? err_add(e, rc, "line %llu", (unsigned long long)s->line) : 0;
}

static const struct format {
    const char *name;
    fragment_fn *fragment;
} formats[] = {
    {"file", whole_fragment},  {"blocks", block_fragment}, {"eot", eot_fragment},
    {"jsonl", jsonl_fragment}, {"lines", line_fragment},
};

static const struct format *find_format(const char *name)
{
    for (size_t i = 0; i < DS_LEN(formats); i++)
        if (strcmp(formats[i].name, name) == 0)
            return &formats[i];
    return NULL;
}

static int ends_with(const char *s, const char *suffix)
{
    size_t n = strlen(s), k = strlen(suffix);
    return n >= k && strcmp(s + n - k, suffix) == 0;
}

static int holds(const char *p, size_t n, const char *what)
{
    size_t len = strlen(what);
    for (const char *at = p; (size_t)(at - p) + len <= n; at++) {
        at = memchr(at, what[0], n - (size_t)(at - p));
        if (!at || (size_t)(at - p) + len > n)
            return 0;
        if (memcmp(at, what, len) == 0)
            return 1;
    }
    return 0;
}

static const char *guess(const char *path, const char *p, size_t n)
{
    if (ends_with(path, ".jsonl") || ends_with(path, ".json") || ends_with(path, ".ndjson"))
        return "jsonl";
    return holds(p, n, "<|endoftext|>") ? "eot" : "blocks";
}

static const char *const unpack = "unpack it first",
                         *const convert = "convert it with python -m depthscope.convert";

/* What is not UTF-8 text or lines of JSON, and what to do with it. */
struct other {
    const char *magic;
    size_t n;
    const char *name, *advice; /* advice NULL: taken as text where it is named itself */
};

/* NULL when it may be text. */
static const struct other *other_kind(const char *p, size_t n)
{
    static const struct other kinds[] = {
        {"\x1f\x8b", 2, "gzip", unpack},
        {"\x28\xb5\x2f\xfd", 4, "zstd", unpack},
        {"\xfd"
         "7zXZ",
         5, "xz", unpack},
        {"BZh", 3, "bzip2", unpack},
        {"PK\x03\x04", 4, "zip", unpack},
        {"PAR1", 4, "Parquet", convert},
        {"ARROW1", 6, "Arrow", convert},
        {"%PDF", 4, "PDF", "convert it first"},
        {"GGUF", 4, "GGUF", "this is a model"},
        {"\xff\xfe", 2, "UTF-16", "convert it with iconv -f UTF-16 -t UTF-8"},
        {"\xfe\xff", 2, "UTF-16", "convert it with iconv -f UTF-16 -t UTF-8"},
    };
    static const struct other binary = {.name = "binary"};
    for (size_t i = 0; i < DS_LEN(kinds); i++)
        if (n >= kinds[i].n && memcmp(p, kinds[i].magic, kinds[i].n) == 0)
            return &kinds[i];
    return memchr(p, 0, n < SNIFF ? n : SNIFF) ? &binary : NULL;
}

/* The first character of the text, '\0' where there is none. */
static char first_of(const char *p, size_t n)
{
    size_t i = n >= 3 && memcmp(p, "\xEF\xBB\xBF", 3) == 0 ? 3 : 0;
    while (i < n && !has_text(p + i, 1))
        i++;
    return i < n ? p[i] : '\0';
}

/* Cuts a chunk into lines.  A CR at its very end waits in *cr: the LF may come with the next one.
 */
static int feed(struct source *s, fragment_fn *fn, const char *p, size_t n, int *cr, struct err *e)
{
    int rc = 0;
    if (*cr && n && p[0] != '\n')
        rc = fn(s, "\r", 1, 0, e);
    *cr = 0;
    for (size_t at = 0; rc >= 0 && at < n && !corpus_full(s->c);) {
        const char *nl = memchr(p + at, '\n', n - at);
        size_t end = nl ? (size_t)(nl - p) : n;
        size_t len = end - at;
        if (len && p[end - 1] == '\r') {
            len--;
            *cr = !nl;
        }
        rc = fn(s, p + at, len, nl != NULL, e);
        s->line += nl != NULL;
        at = end + 1;
    }
    return rc;
}

static int read_chunk(int fd, char *p, const char *path, size_t *n, struct err *e)
{
    size_t got = 1;
    int rc = 0;
    for (*n = 0; rc == 0 && got > 0 && *n < CHUNK; *n += got) {
        got = 0;
        rc = fs_read_some(fd, p + *n, CHUNK - *n, &got, path, e);
    }
    return rc;
}

static int read_rest(struct source *s, const struct format *f, int fd, char *p, size_t n,
                     struct err *e)
{
    int rc = 0, cr = 0;
    size_t skip = n >= 3 && memcmp(p, "\xEF\xBB\xBF", 3) == 0 ? 3 : 0;
    while (rc >= 0 && n > 0 && !corpus_full(s->c)) {
        rc = feed(s, f->fragment, p + skip, n - skip, &cr, e);
        skip = 0;
        if (rc >= 0 && n < CHUNK)
            break;
        if (rc >= 0)
            rc = read_chunk(fd, p, s->path, &n, e);
    }
    if (rc >= 0 && cr)
        rc = f->fragment(s, "\r", 1, 0, e);
    /* The last line may lack its newline; JSON truncated by a limit is not a line. */
    if (rc >= 0 && (f->fragment != jsonl_fragment || (s->json.len && !corpus_full(s->c))))
        rc = f->fragment(s, "", 0, 1, e);
    return rc < 0 ? rc : corpus_end_document(s->c, e);
}

static int read_opened(struct source *s, int fd, const char *format, char *p, int in_folder,
                       struct err *e)
{
    size_t n = 0;
    int rc = read_chunk(fd, p, s->path, &n, e);
    if (rc < 0)
        return rc;
    const struct other *kind = other_kind(p, n);
    if (kind && in_folder) {
        log_warn("%s: not text (%s); skipped", s->path, kind->name);
        return 0;
    }
    if (kind && kind->advice)
        return err_set(e, DS_EFORMAT, "%s: %s file, expected UTF-8 text; %s", s->path, kind->name,
                       kind->advice);
    const struct format *f =
        find_format(strcmp(format, "auto") == 0 ? guess(s->path, p, n) : format);
    BUG_IF(!f, "corpus format %s", format); /* checked by the caller */
    if (f->fragment == jsonl_fragment && first_of(p, n) == '[')
        return err_set(e, DS_EFORMAT, "%s: JSON array, expected one object per line; %s", s->path,
                       convert);
    rc = read_rest(s, f, fd, p, n, e);
    return rc < 0 ? err_add(e, rc, "%s", s->path) : 0;
}

int corpus_read_file(struct corpus *c, const char *path, const char *format, const char *text_key,
                     int in_folder, struct err *e)
{
    struct source s = {.c = c, .path = path, .key = text_key ? text_key : "text", .line = 1};
    if (strcmp(format, "auto") != 0 && !find_format(format))
        return err_set(
            e, DS_EUSAGE,
            "corpus format \"%.40s\": must be auto, file, blocks, eot, jsonl, lines or tokens",
            format);
    int fd = -1;
    if (fs_open_read(&fd, path, e) < 0)
        return err_add(e, DS_EIO, "corpus");
    char *p = mem_alloc(CHUNK, 1);
    int rc = p ? read_opened(&s, fd, format, p, in_folder, e)
               : err_set(e, DS_EMEM, "out of memory reading %s", path);
    mem_free(p);
    str_release(&s.json);
    (void)fs_close(fd);
    return rc;
}
