/* Reads SentencePiece .model files (a protobuf ModelProto) of the types BPE and unigram. */
#include "base/mem.h"
#include "base/base64.h"
#include "data/tokenizer/bpe.h"
#include "data/tokenizer/pieces.h"

#include <string.h>

/* --- protobuf ----------------------------------------------------------------------------------
 */

struct reader {
    const unsigned char *p, *end;
};
struct field {
    uint32_t number;
    uint64_t value; /* varints and 32-bit values */
    const unsigned char *p;
    size_t n; /* of bytes */
};

static int read_varint(struct reader *r, uint64_t *out)
{
    *out = 0;
    for (int shift = 0; shift < 64 && r->p < r->end; shift += 7) {
        unsigned char c = *r->p++;
        *out |= (uint64_t)(c & 127) << shift;
        if (c < 128)
            return 1;
    }
    return 0;
}

/* 1, 0 at the end, -1: not protobuf. */
static int next_field(struct reader *r, struct field *f)
{
    uint64_t key;
    *f = (struct field){0};
    if (r->p == r->end)
        return 0;
    if (!read_varint(r, &key) || key >> 3 == 0 || key >> 3 > UINT32_MAX)
        return -1;
    f->number = (uint32_t)(key >> 3);
    size_t left = (size_t)(r->end - r->p), fixed = (key & 7) == 1 ? 8 : 4;
    switch (key & 7) {
    case 0: return read_varint(r, &f->value) ? 1 : -1;
    case 2:
        if (!read_varint(r, &f->value) || f->value > (uint64_t)(r->end - r->p))
            return -1;
        f->n = (size_t)f->value;
        break;
    case 1:
    case 5:
        if (left < fixed)
            return -1;
        for (size_t i = 0; i < fixed; i++)
            f->value |= (uint64_t)r->p[i] << (8 * i);
        f->n = fixed;
        break;
    default: return -1;
    }
    f->p = r->p;
    r->p += f->n;
    return 1;
}

static float as_float(uint64_t bits)
{
    uint32_t low = (uint32_t)bits;
    float x;
    memcpy(&x, &low, sizeof x);
    return x;
}

/* --- the model ---------------------------------------------------------------------------------
 */

struct model {
    struct token_part *piece;
    size_t n, cap;
    uint64_t type, bos, eos; /* TrainerSpec's model_type, bos_id, eos_id */
    int byte_fallback, suffix, dummy_prefix, trim, escape;
    const char *charsmap; /* in the file */
    size_t charsmap_len;
};
enum { TYPE_UNIGRAM = 1, TYPE_BPE = 2, TYPE_WORD, TYPE_CHAR };

static int damaged(struct err *e)
{
    return err_set(e, DS_EFORMAT, "not a SentencePiece model, or corrupt");
}

/* SentencePiece { piece = 1, score = 2, type = 3 } */
static int read_piece(struct model *m, const struct field *whole, struct err *e)
{
    struct reader r = {whole->p, whole->p + whole->n};
    struct token_part p = {.text = ""};
    struct field f;
    uint64_t type = 1;
    int rc;
    while ((rc = next_field(&r, &f)) > 0) {
        if (f.number == 1 && f.p) {
            p.text = (const char *)f.p;
            p.n = f.n;
        } else if (f.number == 2 && f.n == 4) {
            p.score = as_float(f.value);
        } else if (f.number == 3) {
            type = f.value;
        }
    }
    if (rc < 0)
        return damaged(e);
    if (type < TOKEN_NORMAL || type > TOKEN_BYTE)
        return err_set(e, DS_EFORMAT, "piece %zu: unknown type %llu", m->n,
                       (unsigned long long)type);
    p.type = (enum token_type)type;
    void *v = m->piece;
    if (mem_grow(&v, &m->cap, m->n + 1, sizeof *m->piece) < 0)
        return err_set(e, DS_EMEM, "out of memory for %zu pieces", m->n + 1);
    m->piece = v;
    m->piece[m->n++] = p;
    return 0;
}

static int read_trainer(struct model *m, const struct field *whole, struct err *e)
{
    struct reader r = {whole->p, whole->p + whole->n};
    struct field f;
    int rc;
    while ((rc = next_field(&r, &f)) > 0) {
        if (f.number == 3)
            m->type = f.value;
        else if (f.number == 24)
            m->suffix = f.value != 0;
        else if (f.number == 35)
            m->byte_fallback = f.value != 0;
        else if (f.number == 41)
            m->bos = f.value;
        else if (f.number == 42)
            m->eos = f.value;
    }
    return rc < 0 ? damaged(e) : 0;
}

static int read_normalizer(struct model *m, const struct field *whole, struct err *e)
{
    struct reader r = {whole->p, whole->p + whole->n};
    struct field f;
    int rc;
    while ((rc = next_field(&r, &f)) > 0) {
        if (f.number == 2) {
            m->charsmap = (const char *)f.p;
            m->charsmap_len = f.p ? f.n : 0;
        } else if (f.number == 3)
            m->dummy_prefix = f.value != 0;
        else if (f.number == 4)
            m->trim = f.value != 0;
        else if (f.number == 5)
            m->escape = f.value != 0;
    }
    return rc < 0 ? damaged(e) : 0;
}

static int check_model(const struct model *m, struct err *e)
{
    static const char *const types[] = {"(none)", "unigram", "bpe", "word", "char"};
    const char *field = !m->escape  ? "escape_whitespaces = false"
                        : m->suffix ? "treat_whitespace_as_suffix"
                                    : NULL;
    if (m->n == 0)
        return damaged(e);
    if (m->type != TYPE_BPE && m->type != TYPE_UNIGRAM)
        return err_set(e, DS_EFORMAT, "model_type %s: unsupported, expected bpe or unigram",
                       m->type < DS_LEN(types) ? types[m->type] : "(unknown)");
    return field ? err_set(e, DS_EFORMAT, "SentencePiece model with %s: unsupported", field) : 0;
}

/* ModelProto { pieces = 1, trainer_spec = 2, normalizer_spec = 3 } */
static int read_model(struct model *m, const char *p, size_t n, struct err *e)
{
    const unsigned char *at = (const unsigned char *)p;
    struct reader r = {at, at + n};
    struct field f;
    int more, rc = 0;
    while (rc >= 0 && (more = next_field(&r, &f)) != 0) {
        if (more < 0 || (f.number <= 3 && !f.p))
            rc = damaged(e);
        else if (f.number == 1)
            rc = read_piece(m, &f, e);
        else if (f.number == 2)
            rc = read_trainer(m, &f, e);
        else if (f.number == 3)
            rc = read_normalizer(m, &f, e);
    }
    return rc < 0 ? rc : check_model(m, e);
}

#define FUSE "{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"}"
#define STRIP "{\"type\":\"Strip\",\"content\":\" \",\"start\":1,\"stop\":0}"
#define REPLACE_OUT                                                                                \
    "{\"type\":\"Replace\",\"pattern\":{\"String\":\"" PIECES_BLOCK "\"},\"content\":\" \"},"

static const char with_prefix[] = PIECES_SEQUENCE PIECES_PREPEND "," PIECES_MARK_SPACES "]}";
static const char decode_all[] = "{\"type\":\"Sequence\",\"decoders\":[" REPLACE_OUT FUSE "]}";
static const char decode_prefixed[] =
    "{\"type\":\"Sequence\",\"decoders\":[" REPLACE_OUT FUSE "," STRIP "]}";

struct piece_style pieces_spm_style(int prefix)
{
    return (struct piece_style){.normalizer = prefix ? with_prefix : PIECES_MARK_SPACES,
                                .decoder = prefix ? decode_prefixed : decode_all};
}

void pieces_add_charsmap(struct str *out, const char *p, size_t n)
{
    if (n == 0)
        return;
    str_add(out, "{\"type\":\"Precompiled\",\"longest\":true,\"precompiled_charsmap\":\"");
    base64_encode(out, p, n);
    str_add(out, "\"},");
}

/* The model's normalizer: its table, collapsing of repeated spaces, trimming of both ends. */
static void add_normalizer(struct str *out, const struct model *m)
{
    str_add(out, PIECES_SEQUENCE);
    pieces_add_charsmap(out, m->charsmap, m->charsmap_len);
    if (m->trim)
        str_add(out, PIECES_REPLACE("\\\\A +| +\\\\z", "") "," PIECES_REPLACE(" {2,}", " ") ",");
    str_add(out, m->dummy_prefix ? PIECES_PREPEND "," : "");
    str_add(out, PIECES_MARK_SPACES);
    if (m->trim) /* marks in the input text are trimmed like spaces */
        str_add(out, "," PIECES_REPLACE("(?:" PIECES_BLOCK ")+\\\\z", ""));
    str_add(out, "]}");
}

int tokenizer_parse_spm(struct tokenizer **out, const char *p, size_t n, const char *what,
                        struct err *e)
{
    struct model m = {
        .type = TYPE_UNIGRAM, .bos = 1, .eos = 2, .dummy_prefix = 1, .trim = 1, .escape = 1};
    char bos[PIECE_BYTES + 1] = "";
    int rc = read_model(&m, p, n, e);
    if (rc < 0) {
        mem_free(m.piece);
        return err_add(e, rc, "%s", what);
    }
    if (m.bos < m.n && m.piece[m.bos].type == TOKEN_CONTROL && m.piece[m.bos].n <= PIECE_BYTES)
        memcpy(bos, m.piece[m.bos].text, m.piece[m.bos].n);
    struct piece_style style = pieces_spm_style(m.dummy_prefix);
    struct str normalizer = {0};
    if (m.charsmap_len || m.trim) {
        add_normalizer(&normalizer, &m);
        style.normalizer = str_text(&normalizer);
    }
    style.byte_fallback = m.byte_fallback;
    style.scores = m.type == TYPE_UNIGRAM ? SCORES_SPM : SCORES_MERGE;
    style.bos = *bos ? bos : NULL;
    style.bos_id = (int)m.bos;
    if (m.eos < m.n && m.piece[m.eos].type == TOKEN_CONTROL)
        style.eos = &m.piece[m.eos];
    rc = normalizer.failed ? err_set(e, DS_EMEM, "%s: out of memory for its normalizer", what)
                           : pieces_load(out, m.piece, m.n, &style, what, e);
    str_release(&normalizer);
    mem_free(m.piece);
    return rc;
}
