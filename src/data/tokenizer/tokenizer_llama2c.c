/* llama2.c's tokenizer.bin: a SentencePiece vocabulary without names for its special pieces. */
#include "base/fs.h"
#include "base/mem.h"
#include "data/tokenizer/bpe.h"
#include "data/tokenizer/pieces.h"

#include <string.h>

enum { LLAMA2C_BOS = 1, LLAMA2C_BYTES = 3, LLAMA2C_TEXT = LLAMA2C_BYTES + 256 };

struct list {
    struct token_part *piece;
    size_t n, cap;
};

static enum token_type llama2c_kind(size_t id)
{
    if (id < LLAMA2C_BYTES)
        return id == 0 ? TOKEN_UNKNOWN : TOKEN_CONTROL;
    return id < LLAMA2C_TEXT ? TOKEN_BYTE : TOKEN_NORMAL;
}

static uint32_t u32(const char *p)
{
    const unsigned char *c = (const unsigned char *)p;
    return (uint32_t)c[0] | (uint32_t)c[1] << 8 | (uint32_t)c[2] << 16 | (uint32_t)c[3] << 24;
}

static float f32(const char *p)
{
    uint32_t bits = u32(p);
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* int32 longest piece, then float32 score, int32 length, bytes for each piece; little-endian. */
static int read_llama2c(struct list *m, const char *p, size_t n, struct err *e)
{
    uint32_t longest = n >= 4 ? u32(p) : 0;
    if (longest == 0 || longest > PIECE_BYTES)
        return err_set(e, DS_EFORMAT, "not a llama2.c tokenizer: longest piece of %u bytes",
                       (unsigned)longest);
    for (size_t at = 4; at < n;) {
        uint32_t len = n - at >= 8 ? u32(p + at + 4) : UINT32_MAX;
        if (len > n - at - 8 || n - at < 8)
            return err_set(e, DS_EFORMAT, "piece %zu: truncated at byte %zu of %zu", m->n, at, n);
        void *v = m->piece;
        if (mem_grow(&v, &m->cap, m->n + 1, sizeof *m->piece) < 0)
            return err_set(e, DS_EMEM, "out of memory for %zu pieces", m->n + 1);
        m->piece = v;
        m->piece[m->n] = (struct token_part){
            .text = p + at + 8, .n = len, .score = f32(p + at), .type = llama2c_kind(m->n)};
        m->n++;
        at += 8 + (size_t)len;
    }
    return m->n > LLAMA2C_TEXT
               ? 0
               : err_set(e, DS_EFORMAT, "llama2.c tokenizer with %zu pieces, expected more than %d",
                         m->n, LLAMA2C_TEXT);
}

static const char decoder[] =
    "{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"},"
    "{\"type\":\"Strip\",\"content\":\" \",\"start\":1,\"stop\":0}]}";

int tokenizer_parse_llama2c(struct tokenizer **out, const char *p, size_t n, const char *what,
                            struct err *e)
{
    struct list m = {0};
    char bos[PIECE_BYTES + 1] = "";
    int rc = read_llama2c(&m, p, n, e);
    if (rc < 0) {
        mem_free(m.piece);
        return err_add(e, rc, "%s", what);
    }
    if (m.piece[LLAMA2C_BOS].n <= PIECE_BYTES)
        memcpy(bos, m.piece[LLAMA2C_BOS].text, m.piece[LLAMA2C_BOS].n);
    /* These files use plain spaces, and one is put in front of every text. */
    struct piece_style style = {.byte_fallback = 1,
                                .normalizer = "{\"type\":\"Prepend\",\"prepend\":\" \"}",
                                .decoder = decoder,
                                .bos = bos,
                                .bos_id = LLAMA2C_BOS};
    rc = pieces_load(out, m.piece, m.n, &style, what, e);
    mem_free(m.piece);
    return rc;
}

int tokenizer_load_llama2c(struct tokenizer **out, const char *path, struct err *e)
{
    struct str file = {0};
    int rc = tokenizer_read_file(&file, path, e);
    if (rc >= 0)
        rc = tokenizer_parse_llama2c(out, str_text(&file), file.len, path, e);
    str_release(&file);
    return rc;
}
