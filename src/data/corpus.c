/* A corpus: one block of text and the ranges of its documents. */
#include "data/corpus.h"

#include <string.h>
#include <sys/stat.h>

#include "base/fs.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/mem.h"
#include "data/hops_document.h"
#include "data/shards.h"
#include "data/synth.h"

enum { FOLDER_DEPTH = 32 };

struct extent {
    size_t start, len;
    size_t bits; /* of its entropies in corpus.bits */
    size_t span, spans;
};
struct corpus {
    struct str text;
    struct extent *doc;
    size_t docs, doc_cap;
    size_t open; /* where the open document begins */
    float *bits; /* generators only */
    size_t bits_n, bits_cap;
    struct span *span; /* of all documents; those of the open one follow with their ends as `len` */
    size_t spans, span_cap, closed; /* closed: spans of documents */
    int is_words;
    uint64_t bytes, max_bytes, max_docs;
    int cut; /* text was truncated because of max_bytes */
    struct shards *shards;
};

static const char end_mark[] = "<|endoftext|>";

/* --- gathering
 * ---------------------------------------------------------------------------------------- */

int corpus_full(const struct corpus *c)
{
    return c->cut || c->docs >= c->max_docs || c->bytes + corpus_open_len(c) >= c->max_bytes;
}

size_t corpus_open_len(const struct corpus *c)
{
    return c->text.len - c->open;
}

/* The beginning of a character at the end of the open text: how many bytes it has, 0: none. */
static size_t half_character(const struct corpus *c)
{
    for (size_t n = 1; n <= 3 && n <= corpus_open_len(c); n++) {
        unsigned char ch = (unsigned char)c->text.p[c->text.len - n];
        if ((ch & 0xC0) != 0x80)
            return n < (ch >= 0xF0 ? 4 : ch >= 0xE0 ? 3 : ch >= 0xC0 ? 2 : 1) ? n : 0;
    }
    return 0;
}

int corpus_text(struct corpus *c, const char *s, size_t n, struct err *e)
{
    uint64_t room = c->cut ? 0 : c->max_bytes - c->bytes - corpus_open_len(c);
    c->cut |= n > room;
    str_add_bytes(&c->text, s, n < room ? n : (size_t)room);
    if (c->text.failed)
        return err_set(e, DS_EMEM, "out of memory for %zu bytes of text", c->text.len + n);
    size_t half = n < room ? 0 : half_character(c); /* the other half may be in the next piece */
    if (half) {
        c->cut = 1;
        c->text.len -= half;
        c->text.p[c->text.len] = '\0';
    }
    return 0;
}

static int is_blank(char ch)
{
    return ch == ' ' || (ch >= '\t' && ch <= '\r');
}

static int add_span(struct corpus *c, struct span s, struct err *e)
{
    void *p = c->span;
    if (mem_grow(&p, &c->span_cap, c->spans + 1, sizeof *c->span) < 0)
        return err_set(e, DS_EMEM, "out of memory for %zu spans", c->spans + 1);
    c->span = p;
    c->span[c->spans++] = s;
    return 0;
}

int corpus_mark(struct corpus *c, enum span_kind kind, struct err *e)
{
    size_t end = corpus_open_len(c);
    if (end > UINT32_MAX)
        return err_set(e, DS_ERANGE, "a document with answers longer than 4 GiB");
    return add_span(c, (struct span){.len = (uint32_t)end, .kind = (uint8_t)kind}, e);
}

/* Ends of the open document's spans become lengths within [start, stop) of it. */
static void close_spans(struct corpus *c, size_t start, size_t stop)
{
    size_t at = start;
    for (; c->closed < c->spans; c->closed++) {
        struct span *s = &c->span[c->closed];
        size_t end = s->len < start ? start : s->len > stop ? stop : s->len;
        s->len = (uint32_t)(end - at);
        at = end;
    }
}

/* The spans added since the last document are its own. */
static int add_extent(struct corpus *c, size_t start, size_t len, struct err *e)
{
    void *p = c->doc;
    if (mem_grow(&p, &c->doc_cap, c->docs + 1, sizeof *c->doc) < 0)
        return err_set(e, DS_EMEM, "out of memory for %zu documents", c->docs + 1);
    c->doc = p;
    size_t first = c->docs ? c->doc[c->docs - 1].span + c->doc[c->docs - 1].spans : 0;
    c->doc[c->docs++] = (struct extent){
        .start = start, .len = len, .bits = c->bits_n, .span = first, .spans = c->spans - first};
    c->closed = c->spans;
    c->bytes += len;
    return 0;
}

/* Takes [open, end) without surrounding white space as a document; text after `end` stays open.
 */
static int take_document(struct corpus *c, size_t end, size_t next, struct err *e)
{
    size_t start = c->open, stop = end;
    while (start < stop && is_blank(c->text.p[start]))
        start++;
    while (stop > start && is_blank(c->text.p[stop - 1]))
        stop--;
    if (stop > start && c->docs < c->max_docs) {
        close_spans(c, start - c->open, stop - c->open);
        c->open = next;
        return add_extent(c, start, stop - start, e);
    }
    c->spans = c->closed;
    if (next == c->text.len && next > c->open) { /* endless blank lines must not fill the memory */
        c->text.len = c->open;
        c->text.p[c->open] = '\0';
    } else {
        c->open = next;
    }
    return 0;
}

int corpus_end_document(struct corpus *c, struct err *e)
{
    return take_document(c, c->text.len, c->text.len, e);
}

int corpus_cut_at_end_mark(struct corpus *c, size_t from, struct err *e)
{
    size_t len = sizeof end_mark - 1;
    for (size_t at = c->open + from; at + len <= c->text.len; at++) {
        const char *hit = memchr(c->text.p + at, '<', c->text.len - at);
        if (!hit)
            return 0;
        at = (size_t)(hit - c->text.p);
        if (at + len <= c->text.len && memcmp(hit, end_mark, len) == 0) {
            int rc = take_document(c, at, at + len, e);
            return rc < 0 ? rc : 1;
        }
    }
    return 0;
}

/* --- sources
 * -------------------------------------------------------------------------------------------- */

static int read_folder(struct corpus *c, const char *path, const struct corpus_options *o,
                       int depth, struct err *e);

static int read_entry(struct corpus *c, const char *path, const struct corpus_options *o, int depth,
                      struct err *e)
{
    struct stat st;
    if (fs_stat(path, &st) != 0) {
        log_warn("%s: cannot be read; skipped", path); /* a dangling link */
        return 0;
    }
    if (S_ISDIR(st.st_mode))
        return read_folder(c, path, o, depth + 1, e);
    if (!S_ISREG(st.st_mode))
        return 0;
    return corpus_read_file(c, path, o->format ? o->format : "auto", o->text_key, 1, e);
}

static int read_folder(struct corpus *c, const char *path, const struct corpus_options *o,
                       int depth, struct err *e)
{
    char **names = NULL, full[4096];
    size_t n = 0;
    if (depth > FOLDER_DEPTH)
        return err_set(e, DS_ERANGE, "%s: directories nested deeper than %d (a link to a parent?)",
                       path, FOLDER_DEPTH);
    int rc = fs_list(path, &names, &n, e);
    for (size_t i = 0; rc >= 0 && i < n && !corpus_full(c); i++) {
        if (names[i][0] == '.')
            continue;
        rc = fs_join(full, sizeof full, path, names[i], e);
        if (rc >= 0)
            rc = read_entry(c, full, o, depth, e);
    }
    fs_list_free(names, n);
    return rc < 0 ? rc : 0;
}

/* Takes the text from `start` on as a document; h: its entropies, and that of its end. */
static int add_generated(struct corpus *c, size_t start, const float *h, struct err *e)
{
    size_t n = c->text.len - start;
    void *p = c->bits;
    int rc = add_extent(c, start, n, e);
    if (rc >= 0 && mem_grow(&p, &c->bits_cap, c->bits_n + n + 1, sizeof *c->bits) < 0)
        rc = err_set(e, DS_EMEM, "out of memory for %zu documents", c->docs);
    c->bits = p;
    if (rc >= 0) {
        memcpy(c->bits + c->bits_n, h, (n + 1) * sizeof *h);
        c->bits_n += n + 1;
    }
    return rc;
}

static int add_story(struct corpus *c, const struct grammar *g, uint64_t seed, uint64_t index,
                     struct err *e)
{
    float *h = NULL;
    size_t start = c->text.len;
    int rc = synth_story_of(g, seed, index, &c->text, &h, NULL, e);
    if (rc >= 0)
        rc = add_generated(c, start, h, e);
    mem_free(h);
    return rc;
}

static int add_hops(struct corpus *c, struct hops_document *d, const struct corpus_options *o,
                    const struct hops_options *hops, const struct grammar *g, uint64_t index,
                    struct err *e)
{
    size_t start = c->text.len;
    int rc = hops_document(d, hops, g, o->seed, index, e);
    for (size_t i = 0; rc >= 0 && i < d->spans; i++)
        rc = add_span(c, d->span[i], e);
    str_add_bytes(&c->text, d->text.p, rc < 0 ? 0 : d->text.len);
    if (rc >= 0 && c->text.failed)
        rc = err_set(e, DS_EMEM, "out of memory for %zu documents", c->docs);
    return rc < 0 ? rc : add_generated(c, start, d->bits, e);
}

static int generate_hops(struct corpus *c, const struct corpus_options *o, struct err *e)
{
    struct hops_options otherwise = {0};
    const struct hops_options *hops = o->hops ? o->hops : &otherwise;
    struct hops_document d = {0};
    struct grammar *g = NULL;
    int rc = o->hops ? 0 : opt_defaults(&hops_group, &otherwise, e);
    if (rc >= 0)
        rc = hops_check(hops, e);
    if (rc >= 0 && hops->filler > 0)
        rc = grammar_new(&g, synth_rules, synth_rules_n, e);
    for (uint64_t i = 0; rc >= 0 && !corpus_full(c); i++) {
        rc = add_hops(c, &d, o, hops, g, i, e);
        c->open = c->text.len;
    }
    c->is_words = 1;
    hops_document_release(&d);
    grammar_free(g);
    return rc < 0 ? rc : 0;
}

static int generate(struct corpus *c, uint64_t seed, struct err *e)
{
    struct grammar *g = NULL;
    int rc = grammar_new(&g, synth_rules, synth_rules_n, e);
    for (uint64_t i = 0; rc >= 0 && !corpus_full(c); i++)
        rc = add_story(c, g, seed, i, e);
    c->open = c->text.len;
    grammar_free(g);
    return rc < 0 ? rc : 0;
}

static int read_path(struct corpus *c, const struct corpus_options *o, struct err *e)
{
    if (!o->path || !o->path[0])
        return err_set(e, DS_EUSAGE, "missing corpus: expected a file, a directory, synth or hops");
    if (strcmp(o->path, "synth") == 0)
        return generate(c, o->seed, e);
    if (strcmp(o->path, "hops") == 0)
        return generate_hops(c, o, e);
    int is_auto = !o->format || strcmp(o->format, "auto") == 0;
    if (is_auto ? shards_at(o->path) : strcmp(o->format, "tokens") == 0) {
        if (o->max_bytes || o->max_docs)
            log_warn("%s: token shards are not copied: data.max_bytes and data.docs have no effect",
                     o->path);
        return shards_open(&c->shards, o->path, e);
    }
    if (fs_is_dir(o->path))
        return read_folder(c, o->path, o, 0, e);
    return corpus_read_file(c, o->path, o->format ? o->format : "auto", o->text_key, 0, e);
}

int corpus_is_generated(const char *path)
{
    return strcmp(path, "synth") == 0 || strcmp(path, "hops") == 0;
}

int corpus_open(struct corpus **out, const struct corpus_options *o, struct err *e)
{
    if (o->max_docs < 0)
        return err_set(e, DS_ERANGE, "corpus: document count %lld is out of range",
                       (long long)o->max_docs);
    struct corpus *c = mem_alloc(1, sizeof *c);
    if (!c)
        return err_set(e, DS_EMEM, "out of memory for a corpus");
    int synth = o->path && corpus_is_generated(o->path);
    c->max_bytes = o->max_bytes ? o->max_bytes : CORPUS_BYTES_MAX;
    c->max_docs = o->max_docs ? (uint64_t)o->max_docs : synth ? CORPUS_SYNTH_DOCS : UINT64_MAX;
    int rc = read_path(c, o, e);
    if (rc >= 0 && c->docs == 0 && !c->shards)
        rc = err_set(e, DS_EFORMAT, "corpus %s: no documents", o->path);
    if (rc < 0) {
        corpus_close(c);
        return rc;
    }
    if (c->cut)
        log_warn("corpus %s: truncated to the first %llu bytes of text", o->path,
                 (unsigned long long)c->bytes);
    *out = c;
    return 0;
}

void corpus_close(struct corpus *c)
{
    if (!c)
        return;
    str_release(&c->text);
    mem_free(c->doc);
    mem_free(c->bits);
    mem_free(c->span);
    shards_close(c->shards);
    mem_free(c);
}

/* --- questions
 * ------------------------------------------------------------------------------------------- */

size_t corpus_count(const struct corpus *c)
{
    return c->docs;
}

struct document corpus_at(const struct corpus *c, size_t i)
{
    BUG_IF(i >= c->docs, "document %zu of %zu", i, c->docs);
    const struct extent *d = &c->doc[i];
    return (struct document){.text = c->text.p + d->start,
                             .len = d->len,
                             .bits = c->bits ? c->bits + d->bits : NULL,
                             .span = d->spans ? c->span + d->span : NULL,
                             .spans = d->spans};
}

int corpus_is_words(const struct corpus *c)
{
    return c->is_words;
}

uint64_t corpus_bytes(const struct corpus *c)
{
    return c->bytes;
}

struct shards *corpus_shards(const struct corpus *c)
{
    return c->shards;
}

uint64_t corpus_hash(const struct corpus *c)
{
    if (c->shards)
        return shards_hash(c->shards);
    uint64_t h = c->docs;
    for (size_t i = 0; i < c->docs; i++)
        h = hash64(c->text.p + c->doc[i].start, c->doc[i].len, h);
    return h;
}

int corpus_is_val(const struct corpus *c, size_t i, double fraction)
{
    struct document d = corpus_at(c, i);
    uint64_t h = hash64(d.text, d.len, 0x76616c);
    return (double)(h >> 11) * 0x1p-53 < fraction;
}
