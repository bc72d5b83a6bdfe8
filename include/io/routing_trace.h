/* Routing traces of mixtures of experts, as other programs write them: which experts each token was
 * sent to, in each layer.  A format is one file and one line in the table of routing_trace.c; all
 * its bytes are untrusted.
 *
 * Memory is bounded: loads are counts per layer and expert, of at most 256 ranges of steps, and
 * tokens are kept in windows of 512, every second of which is dropped whenever there are too many.
 * Counts are always of all rows. */
#ifndef DS_IO_ROUTING_TRACE_H
#define DS_IO_ROUTING_TRACE_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"

struct routing_trace;
struct routing_options {
    const char *format; /* a name of the table; NULL: recognised by content */
    int experts;        /* of a layer, 0: as the file says, else the highest id + 1 */
    int has_tokenizer;  /* ids are wanted: a column "token" that is not a position is one of ids */
    int layers;         /* of the model, 0: as the file says, else the highest number + 1 */
};
enum {
    ROUTING_LAYERS = 4096,
    ROUTING_EXPERTS = 4096,
    ROUTING_CELLS = 1 << 20, /* layers with experts x experts */
    ROUTING_SLOTS = 64,      /* experts of a token in a layer */
    ROUTING_WINDOW = 512,    /* tokens */
};

/* Reads n files of one format as one trace. */
int routing_trace_read(struct routing_trace **out, const char *const *path, size_t n,
                       const struct routing_options *o, struct err *e) DS_CHECK;
void routing_trace_free(struct routing_trace *t);

struct routing_facts {
    const char *format, *title; /* "megatron", "Megatron-LM RouterTracer" */
    int layers, experts, slots; /* of the model; slots: experts per token, 0 when unknown */
    int rows;                   /* layers with experts */
    int has_ids;
    uint64_t tokens;                /* with a routing; 0 when the format has no tokens */
    uint64_t loads;                 /* token-to-expert assignments, all layers */
    uint64_t windows, windows_kept; /* of tokens */
    uint64_t duplicates;            /* records that were there before, not counted */
    const char *notes;              /* lines of what a reader should know, "" for none */
};
struct routing_facts routing_trace_facts(const struct routing_trace *t);
/* Row of the loads: its layer, and its `experts` counts over all steps. */
int routing_trace_layer(const struct routing_trace *t, int row);
const uint64_t *routing_trace_load(const struct routing_trace *t, int row);
/* The first kept token id that is not below `vocab`, -1 when there is none; all kept ids are known
 * to be 0 or more. */
int64_t routing_trace_bad_id(const struct routing_trace *t, int64_t vocab);

/* Piece of a token id; NULL when unknown. */
typedef const char *routing_piece_fn(void *ctx, int32_t id, size_t *n);
struct routing_head {
    const char *run, *version;
    int64_t vocab;           /* 0: unknown */
    routing_piece_fn *piece; /* NULL: no text */
    void *ctx;
    double time; /* of the records */
};
/* Appends the frames of a trace (io/FORMATS.md): head, matrices `expert_load`, probes. */
int routing_trace_write(const struct routing_trace *t, const struct routing_head *h,
                        struct str *frames, struct err *e) DS_CHECK;
/* Name and title of the i-th format, NULL after the last. */
const char *routing_trace_format(int i, const char **title);

#endif
