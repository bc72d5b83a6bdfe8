/* Documents from anywhere: a UTF-8 file or folder, JSONL, blank-line blocks, or a generator. */
#ifndef DS_DATA_CORPUS_H
#define DS_DATA_CORPUS_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "data/hops.h"

enum { CORPUS_LINE_MAX = 64 << 20, CORPUS_SYNTH_DOCS = 4000 };
#define CORPUS_BYTES_MAX ((uint64_t)1 << 30)

/* path      a file, a directory (walked in sorted order; hidden names and binary files are
 *           skipped), "synth", "hops", or token shards (data/shards.h)
 * format    "auto" or NULL (.jsonl and .json: JSON lines; files with <|endoftext|>: eot; else
 *           blank-line blocks), "file" (one document per file), "blocks", "eot", "jsonl", "lines",
 *           "tokens"
 * text_key  of jsonl; NULL = "text".  Lines without it may have "prompt" and "completion", or
 *           "messages" of "role" and "content" (one line "role: content" each): answers are marked
 * hops      options of path "hops"; NULL = their defaults
 * max_bytes of text in all; 0 = CORPUS_BYTES_MAX.  The rest is not read, with a warning.
 * max_docs  0 = no limit (synth, hops: CORPUS_SYNTH_DOCS)
 * Text is taken as bytes: a BOM is dropped, CRLF becomes LF, white space around a document is
 * removed, nothing else changes. */
struct corpus_options {
    const char *path, *format, *text_key;
    uint64_t max_bytes;
    int64_t max_docs;
    uint64_t seed;
    const struct hops_options *hops;
};

/* What a part of a document is.  The values + CLASS_OTHER are token classes (token_class.h). */
enum span_kind { SPAN_TEXT, SPAN_EDGE, SPAN_QUERY, SPAN_ANSWER, SPAN_FILLER, SPAN_PAD };
/* Consecutive parts of a document; one of length 0 at the end describes its end-of-text token. */
struct span {
    uint32_t len;
    uint8_t kind, needed; /* needed: exactly known required depth of its tokens */
    uint16_t hidden;      /* 0, or a number: only neighbouring spans with the same one may see it */
};
struct document {
    const char *text;
    size_t len;        /* borrowed from the corpus */
    const float *bits; /* synth, hops: exact conditional entropy in nats of each byte given its
                          past, and at [len] of the end of the text; NULL elsewhere */
    const struct span *span;
    size_t spans; /* 0: all of it is plain text */
};
struct corpus;
/* path "synth": the embedded story generator, max_docs documents at `seed`; "hops": likewise
 * (hops.h).
 * No documents at all: DS_EFORMAT naming the path. */
int corpus_open(struct corpus **out, const struct corpus_options *o, struct err *e) DS_CHECK;
/* Token shards, which have no documents; NULL when the corpus is text.  Borrowed. */
struct shards;
struct shards *corpus_shards(const struct corpus *c);
/* 1 when the path names a generator, not a file. */
int corpus_is_generated(const char *path);
size_t corpus_count(const struct corpus *c);
struct document corpus_at(const struct corpus *c, size_t i);
uint64_t corpus_bytes(const struct corpus *c);
uint64_t corpus_hash(const struct corpus *c); /* of content, in order */
/* 1 when document i belongs to the validation split: by hash of its text, fraction in [0, 0.5]. */
int corpus_is_val(const struct corpus *c, size_t i, double fraction);
/* 1 for documents of words (hops.h): each span other than filler must be one token, `needed` and
 * `bits` are known, and a document is useless in parts. */
int corpus_is_words(const struct corpus *c);
void corpus_close(struct corpus *c);

/* For format readers: text is collected in one open document at a time. */
int corpus_text(struct corpus *c, const char *s, size_t n, struct err *e) DS_CHECK;
/* What was added to the open document since the last mark is a span. */
int corpus_mark(struct corpus *c, enum span_kind kind, struct err *e) DS_CHECK;
int corpus_end_document(struct corpus *c, struct err *e) DS_CHECK; /* white space only: dropped */
size_t corpus_open_len(const struct corpus *c);                    /* bytes in the open document */
int corpus_full(const struct corpus *c); /* a limit is reached: stop reading */
/* Reads one file in `format` ("auto" decides from its first bytes). */
int corpus_read_file(struct corpus *c, const char *path, const char *format, const char *text_key,
                     int in_folder, struct err *e) DS_CHECK;
/* The first <|endoftext|> at or after `from` of the open document ends it there; 1 if there was
 * one. */
int corpus_cut_at_end_mark(struct corpus *c, size_t from, struct err *e) DS_CHECK;

#endif
