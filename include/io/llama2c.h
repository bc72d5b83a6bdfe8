/* llama2.c's .bin: seven int32 (dim, hidden, layers, heads, kv_heads, vocab, seq), then fp32,
 * little-endian.  A negative vocab means that the output head is a separate matrix.  Read-only
 * mapping; the header determines the exact file size. */
#ifndef DS_IO_LLAMA2C_H
#define DS_IO_LLAMA2C_H

#include <stdint.h>

#include "base/err.h"
#include "base/fs.h"
#include "engine/real.h"

/* In the file's order, each for all layers, one layer after the other. */
enum llama2c_part {
    LLAMA2C_EMBED, /* (vocab, dim), once                                   */
    LLAMA2C_ATT_NORM,
    LLAMA2C_Q, /* (dim, dim) a layer; heads' rows in interleaved order */
    LLAMA2C_K, /* (kv_heads head_dim, dim)                             */
    LLAMA2C_V,
    LLAMA2C_O,
    LLAMA2C_FFN_NORM,
    LLAMA2C_GATE, /* (hidden, dim) */
    LLAMA2C_DOWN, /* (dim, hidden) */
    LLAMA2C_UP,
    LLAMA2C_NORM, /* once */
    LLAMA2C_FREQ, /* two tables (seq, head_dim / 2), once; recomputed when the model runs */
    LLAMA2C_HEAD, /* (vocab, dim), once; size 0: the embedding is the head */
    LLAMA2C_PARTS
};

struct llama2c {
    struct fs_map file;
    int64_t dim, hidden, layers, heads, kv_heads, vocab, seq; /* all above 0 */
    int tied;
    const unsigned char *part[LLAMA2C_PARTS];
    uint64_t size[LLAMA2C_PARTS]; /* items of one layer, or of the whole */
};

/* DS_EFORMAT in one line naming file and cause (both sizes), DS_EIO.  *m is the caller's:
 * llama2c_close. */
int llama2c_open(struct llama2c *m, const char *path, struct err *e) DS_CHECK;
void llama2c_close(struct llama2c *m);
/* The values of a layer's part (size[part]), in the mapping; layer 0 where a part exists only
 * once. */
const unsigned char *llama2c_at(const struct llama2c *m, enum llama2c_part part, int64_t layer);
/* Values [at, at + n) of a part. */
void llama2c_take(const unsigned char *p, uint64_t at, uint64_t n, real *out);
/* DS_EFORMAT when the file has changed since it was opened. */
int llama2c_unchanged(const struct llama2c *m, struct err *e) DS_CHECK;

#endif
