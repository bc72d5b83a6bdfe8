/* Reads tiktoken files: a token in base64, a space and its rank on each line.  Llama 3 names its
 * file tokenizer.model, as SentencePiece does; they are told apart by content. */
#include "base/fs.h"
#include "base/mem.h"
#include "base/base64.h"
#include "data/tokenizer/bpe.h"
#include "data/tokenizer/pieces.h"

#include <stdlib.h>
#include <string.h>

struct ranks {
    struct token_part *piece;
    size_t n, cap;
    char *bytes; /* of all tokens, shorter than their base64 */
    size_t used;
};

static int read_line(struct ranks *r, const char *s, size_t n, struct err *e)
{
    const char *space = memchr(s, ' ', n);
    int len = space ? base64_bytes(r->bytes + r->used, s, (size_t)(space - s)) : -1;
    size_t rank = 0, digits = 0;
    for (const char *d = space ? space + 1 : s; len > 0 && d < s + n && digits < 9; d++, digits++) {
        if (*d < '0' || *d > '9')
            return err_set(e, DS_EFORMAT, "line %zu: expected a base64 token and a rank", r->n + 1);
        rank = rank * 10 + (size_t)(*d - '0');
    }
    if (len <= 0 || digits == 0)
        return err_set(e, DS_EFORMAT, "line %zu: expected a base64 token and a rank", r->n + 1);
    if (rank != r->n)
        return err_set(e, DS_EFORMAT, "line %zu: rank %zu, expected consecutive ranks from 0",
                       r->n + 1, rank);
    void *v = r->piece;
    if (mem_grow(&v, &r->cap, r->n + 1, sizeof *r->piece) < 0)
        return err_set(e, DS_EMEM, "out of memory for %zu tokens", r->n + 1);
    r->piece = v;
    r->piece[r->n++] = (struct token_part){
        .text = r->bytes + r->used, .n = (size_t)len, .score = -(float)rank, .type = TOKEN_NORMAL};
    r->used += (size_t)len;
    return 0;
}

static int read_ranks(struct ranks *r, const char *p, size_t n, struct err *e)
{
    int rc = 0;
    r->bytes = mem_alloc(n + 1, 1);
    if (!r->bytes)
        return err_set(e, DS_EMEM, "out of memory for a file of %zu bytes", n);
    for (const char *end = p + n; rc >= 0 && p < end;) {
        const char *line = memchr(p, '\n', (size_t)(end - p));
        size_t len = (size_t)((line ? line : end) - p), cut = len;
        if (cut > 0 && p[cut - 1] == '\r')
            cut--;
        if (cut > 0)
            rc = read_line(r, p, cut, e);
        p += len + 1;
    }
    return rc;
}

static const struct family *family_of(size_t ranks)
{
    for (size_t i = 0; i < n_families; i++)
        if ((size_t)families[i].ranks == ranks)
            return &families[i];
    return NULL;
}

/* b: companion files, which may name the special tokens; NULL: none. */
static int parse(struct tokenizer **out, const char *p, size_t n, const struct companion *b,
                 const char *what, struct err *e)
{
    struct ranks r = {0};
    struct str added = {0};
    int rc = read_ranks(&r, p, n, e);
    const struct family *f = rc < 0 ? NULL : family_of(r.n);
    if (rc >= 0 && !f)
        rc = err_set(e, DS_EFORMAT,
                     "tiktoken file of %zu tokens: unknown pre-tokenizer; expected 50256 "
                     "(GPT-2), 128000 (Llama 3) or 151643 (Qwen2) tokens",
                     r.n);
    if (f && !(b && companion_names(b, (int32_t)r.n, (int32_t)r.n + FAMILY_SPECIALS)))
        family_add_specials(&added, f, (int)r.n);
    if (added.failed)
        rc = err_set(e, DS_EMEM, "out of memory for added tokens");
    if (rc < 0) {
        err_add(e, rc, "%s", what);
    } else {
        struct piece_style style = {.byte_level = 1,
                                    .ignore_merges = 1,
                                    .normalizer = f->normalizer,
                                    .pre_tokenizer = f->pre_tokenizer,
                                    .decoder = family_decoder,
                                    .bos = f->bos,
                                    .bos_id = (int)r.n,
                                    .added = str_text(&added)};
        rc = pieces_load(out, r.piece, r.n, &style, what, e);
    }
    str_release(&added);
    mem_free(r.piece);
    mem_free(r.bytes);
    return rc;
}

int tokenizer_parse_tiktoken(struct tokenizer **out, const char *p, size_t n, const char *what,
                             struct err *e)
{
    return parse(out, p, n, NULL, what, e);
}

/* The first line of a tiktoken file; a protobuf has a newline or a control byte there. */
static int looks_like_tiktoken(const char *p, size_t n)
{
    size_t i = 0;
    while (i < n && (base64_digit(p[i]) >= 0 || p[i] == '='))
        i++;
    return i > 0 && i + 1 < n && p[i] == ' ' && p[i + 1] >= '0' && p[i + 1] <= '9';
}

int tokenizer_load_model(struct tokenizer **out, const char *path, struct err *e)
{
    struct str file = {0};
    struct companion *b = NULL;
    struct tokenizer *t = NULL;
    int rc = tokenizer_read_file(&file, path, e), kind = COMPANION_MODEL;
    if (rc >= 0)
        rc = companion_open(&b, path, e);
    if (rc >= 0 && looks_like_tiktoken(str_text(&file), file.len)) {
        rc = parse(&t, str_text(&file), file.len, b, path, e);
        kind = COMPANION_VOCAB;
    } else if (rc >= 0) {
        rc = tokenizer_parse_spm(&t, str_text(&file), file.len, path, e);
    }
    if (rc >= 0)
        rc = companion_apply(b, &t, kind, path, e);
    if (rc >= 0)
        *out = t;
    else
        tokenizer_free(t);
    companion_free(b);
    str_release(&file);
    return rc;
}
