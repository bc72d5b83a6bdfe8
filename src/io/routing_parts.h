/* Parts of routing traces: the collector that the readers of formats fill, and its results. */
#ifndef DS_IO_ROUTING_PARTS_H
#define DS_IO_ROUTING_PARTS_H

#include "base/fs.h"
#include "base/map.h"
#include "io/routing_trace.h"

/* ---- what a reader says ---- */

struct routing_row {
    int64_t text, token; /* token: its position in the text, 0 or more; -1: counted only */
    int64_t layer, expert;
    int64_t slot; /* rank among the token's experts; -1: in order of appearance */
    float weight; /* NaN: unknown */
    int64_t id;   /* of the token; -1: unknown */
};
/* Layers of other blocks (multi-token prediction) are numbered from here, if the reader sets
 * has_extra, and shown after the others. */
enum { ROUTING_EXTRA = ROUTING_LAYERS };

/* The step of the following rows.  Steps may come in any order. */
int routing_step(struct routing_trace *t, int64_t step, struct err *e) DS_CHECK;
int routing_put(struct routing_trace *t, const struct routing_row *row, struct err *e) DS_CHECK;
/* Names the texts ("rank 3"); "text" without. */
void routing_text_name(struct routing_trace *t, const char *name);
/* Whether a last line without its end is whole cannot be seen where it has all its cells. */
#define ROUTING_UNENDED "the last line does not end with a line break: counted as it is"
/* Appends a line to the notes. */
void routing_note(struct routing_trace *t, const char *fmt, ...) DS_PRINTF(2, 3);

/* ---- formats ---- */

struct routing_file {
    const char *path;
    struct fs_map map;
};
struct routing_format {
    const char *name, *title;
    /* Do these first bytes of a file belong to the format? */
    int (*recognise)(const char *p, size_t n);
    int (*read)(struct routing_trace *t, const struct routing_file *file, size_t n,
                const struct routing_options *o, struct err *e);
};
extern const struct routing_format routing_megatron, routing_bigmoe, routing_llama, routing_csv,
    routing_npy;

/* Tables of text (routing_csv.c), shared by the formats that are one.  Columns are found by name; the
 * known names are in a table there. */
enum routing_column {
    COLUMN_TEXT, /* request, turn, sequence: a number or a name */
    COLUMN_STEP,
    COLUMN_TOKEN, /* position in the text */
    COLUMN_WORD,  /* "token": the position, or the id when there is a position */
    COLUMN_ID,
    COLUMN_LAYER,
    COLUMN_SLOT,
    COLUMN_EXPERT,
    COLUMN_WEIGHT,
    COLUMN_PHASE, /* 0 prefill, 1 decode */
    COLUMNS
};
/* Sets the step and changes a row before it is put; value: the row's whole numbers, -1 where there
 * is no such column. */
typedef int routing_adjust_fn(struct routing_trace *t, struct routing_row *row,
                              const int64_t *value, void *ctx, struct err *e);
int routing_table_read(struct routing_trace *t, const struct routing_file *file, size_t n,
                       const struct routing_options *o, routing_adjust_fn *adjust, void *ctx,
                       struct err *e) DS_CHECK;
/* A whole number at *p, which moves past it; 0 when there is none or it exceeds int64. */
int routing_int(const char **p, const char *end, int64_t *out);
/* The number after "key=" in a text of n bytes; -1 when absent. */
int64_t routing_fact(const char *p, size_t n, const char *key);

/* ---- the trace ---- */

struct routing_entry {
    uint16_t token, row; /* of the window; of the loads, in order of appearance */
    int16_t slot;
    uint16_t expert;
    float weight;
    uint32_t order;
};
struct routing_window {
    int64_t text, index, step;
    uint64_t seen[ROUTING_WINDOW / 64];
    struct routing_entry *entry; /* NULL when dropped */
    size_t n, cap;
    int32_t *id; /* (ROUTING_WINDOW), NULL when there are none */
};
/* Counts of the steps key * width .. key * width + width - 1. */
struct routing_bin {
    int64_t key, last; /* last: highest step seen */
    uint64_t *count;   /* (row_cap, expert_cap) */
};

struct routing_trace {
    const struct routing_format *format;
    int experts, layers, slots;                    /* asked for or declared; 0: unknown */
    int top_expert, top_layer, top_slot, low_slot; /* seen */
    int row_of[2 * ROUTING_LAYERS];                /* of a layer: row + 1, 0: none */
    int *layer;                                    /* (rows) */
    size_t layer_cap;
    int rows, row_cap, expert_cap;
    struct routing_bin *bin; /* ordered by key */
    size_t bins, bin_cap, current;
    int64_t width, step;
    struct routing_window *window; /* in order of appearance */
    size_t windows, window_cap, last;
    struct map window_of;
    uint64_t entries, stride, kept;
    int32_t max_experts, min_experts; /* of a token in a layer */
    int has_ids, has_extra;           /* has_extra: layers of other blocks are allowed */
    uint64_t tokens, loads, duplicates, repeats;
    uint64_t *total; /* (rows, experts) after routing_finish, rows ordered by layer */
    int *order;      /* rows ordered by layer */
    char text_name[32];
    struct str notes;
};

int routing_finish(struct routing_trace *t, struct err *e) DS_CHECK;
/* Forgets a layer that has no experts after all. */
void routing_forget_layer(struct routing_trace *t, int layer);
/* Model layer that a row is shown as. */
int routing_layer_of(const struct routing_trace *t, int row);

#endif
