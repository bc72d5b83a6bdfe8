/* Reads the legacy llama2.c .bin format: header, sizes and part offsets. */
#include "io/llama2c.h"

#include <inttypes.h>
#include <string.h>

#include "base/checked.h"
#include "io/filekind.h"
#include "io/st_dtype.h"

enum { HEADER = 28, VERSIONED = 0x616b3432 /* magic "ak42" of later exports, as an integer */ };

static int64_t int_at(const unsigned char *p)
{
    uint32_t bits =
        (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
    return (int32_t)bits;
}

static int read_header(struct llama2c *m, struct err *e)
{
    static const char *const name[] = {"dim",        "hidden_dim", "n_layers", "n_heads",
                                       "n_kv_heads", "vocab_size", "seq_len"};
    int64_t *const to[] = {&m->dim,      &m->hidden, &m->layers, &m->heads,
                           &m->kv_heads, &m->vocab,  &m->seq};
    if (m->file.n < HEADER)
        return err_set(e, DS_EFORMAT, "truncated: a llama2.c header has %d bytes, the file has %zu",
                       (int)HEADER, m->file.n);
    if (int_at(m->file.p) == VERSIONED)
        return err_set(
            e, DS_EFORMAT,
            "unsupported versioned llama2.c export: expected the legacy format (export.py "
            "--version 0)");
    for (size_t i = 0; i < DS_LEN(to); i++) {
        int64_t v = int_at(m->file.p + 4 * i);
        m->tied = to[i] == &m->vocab ? v > 0 : m->tied;
        *to[i] = to[i] == &m->vocab && v < 0 ? -v : v;
        if (*to[i] <= 0)
            return err_set(e, DS_EFORMAT, "not a llama2.c model: %s is %" PRId64, name[i], v);
    }
    if (m->dim % m->heads != 0 || m->dim / m->heads % 2 != 0)
        return err_set(e, DS_EFORMAT,
                       "n_heads = %" PRId64 ": must divide dim = %" PRId64
                       " into heads of even size",
                       m->heads, m->dim);
    if (m->heads % m->kv_heads != 0)
        return err_set(e, DS_EFORMAT, "n_kv_heads = %" PRId64 ": must divide n_heads = %" PRId64,
                       m->kv_heads, m->heads);
    return 0;
}

/* Each size is below 2^31: a product of two fits in 64 bits, of three may not. */
static void find_sizes(struct llama2c *m)
{
    uint64_t C = (uint64_t)m->dim, D = C / (uint64_t)m->heads, K = (uint64_t)m->kv_heads * D,
             F = (uint64_t)m->hidden, V = (uint64_t)m->vocab;
    const uint64_t size[LLAMA2C_PARTS] = {
        [LLAMA2C_EMBED] = V * C,
        [LLAMA2C_ATT_NORM] = C,
        [LLAMA2C_Q] = C * C,
        [LLAMA2C_K] = K * C,
        [LLAMA2C_V] = K * C,
        [LLAMA2C_O] = C * C,
        [LLAMA2C_FFN_NORM] = C,
        [LLAMA2C_GATE] = F * C,
        [LLAMA2C_DOWN] = F * C,
        [LLAMA2C_UP] = F * C,
        [LLAMA2C_NORM] = C,
        [LLAMA2C_FREQ] = (uint64_t)m->seq * D,
        [LLAMA2C_HEAD] = m->tied ? 0 : V * C,
    };
    memcpy(m->size, size, sizeof size);
}

static int is_of_layers(enum llama2c_part p)
{
    return p >= LLAMA2C_ATT_NORM && p <= LLAMA2C_UP;
}

static int place_parts(struct llama2c *m, struct err *e)
{
    uint64_t at = HEADER, bytes = 0;
    int over = 0;
    find_sizes(m);
    for (int p = 0; p < LLAMA2C_PARTS; p++) {
        over |= checked_mul(m->size[p], 4, &bytes);
        over |=
            is_of_layers((enum llama2c_part)p) && checked_mul(bytes, (uint64_t)m->layers, &bytes);
        m->part[p] = !over && at <= m->file.n ? m->file.p + at : NULL;
        over |= checked_add(at, bytes, &at);
    }
    if (over)
        return err_set(e, DS_EFORMAT,
                       "not a llama2.c model: the sizes in its header overflow 64 bits");
    if (at != m->file.n)
        return err_set(e, DS_EFORMAT,
                       "llama2.c model truncated or corrupt: its header implies %" PRIu64
                       " bytes, the file has %zu",
                       at, m->file.n);
    return 0;
}

int llama2c_open(struct llama2c *out, const char *path, struct err *e)
{
    struct llama2c m = {.tied = 1};
    int rc = fs_map_open(&m.file, path, e);
    if (rc < 0)
        return rc;
    rc = read_header(&m, e);
    if (rc == 0)
        rc = place_parts(&m, e);
    if (rc < 0) {
        /* checked last: a width of 640 begins like a pickle */
        const char *kind = file_kind(m.file.p, m.file.n);
        if (kind)
            err_set(e, rc, "not a llama2.c model: this is %s", kind);
        fs_map_close(&m.file);
        return err_add(e, rc, "%s", path);
    }
    *out = m;
    return 0;
}

void llama2c_close(struct llama2c *m)
{
    fs_map_close(&m->file);
}

const unsigned char *llama2c_at(const struct llama2c *m, enum llama2c_part part, int64_t layer)
{
    return m->part[part] + 4 * m->size[part] * (uint64_t)layer;
}

void llama2c_take(const unsigned char *p, uint64_t at, uint64_t n, real *out)
{
#if REAL_BITS == 32 && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    memcpy(out, p + 4 * at, n * sizeof *out);
#else
    for (uint64_t i = 0; i < n; i++)
        out[i] = (real)st_value(p + 4 * (at + i), ST_F32);
#endif
}

int llama2c_unchanged(const struct llama2c *m, struct err *e)
{
    return fs_map_unchanged(&m->file, e);
}
