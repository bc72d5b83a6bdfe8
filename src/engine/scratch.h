/* Per-thread scratch that is kept between calls, and the partitioning of work.  Private to the
 * engine. */
#ifndef DS_ENGINE_SCRATCH_H
#define DS_ENGINE_SCRATCH_H

#include <stddef.h>

/* One slot per purpose, so that an op can use its own while the gemm it calls uses others. */
enum scratch_slot {
    SCRATCH_PACK_A, /* gemm: packed panels */
    SCRATCH_PACK_B,
    SCRATCH_PACKED, /* linear: packed rows of x, for the weight gradient */
    SCRATCH_PART,   /* ops: partial sums of a call */
    SCRATCH_ROW,    /* ops: one row or a few */
    SCRATCH_NORM,   /* norm: weights with their offset */
    SCRATCH_CAP,    /* attention: a row of capped scores */
    SCRATCH_SCORE,  /* attention: a block of scores */
    SCRATCH_DSCORE,
    SCRATCH_KEYS, /* attention: visible keys */
    SCRATCH_INDEX,
    SCRATCH_ATTN, /* attention: packed keys and values */
    SCRATCH_ATTN_2,
    SCRATCH_ATTN_3,
    SCRATCH_QUANT,  /* quant: activations in int8 */
    SCRATCH_BLOCKS, /* quant: rows of a file that are being packed */
    SCRATCH_LORA_T, /* adapters: inner rows, their gradient, inputs after dropout */
    SCRATCH_LORA_DT,
    SCRATCH_LORA_X,
    SCRATCH_DORA_U, /* DoRA: outputs before the gain, their gradient, inputs' gradient */
    SCRATCH_DORA_DU,
    SCRATCH_DORA_DX,
    SCRATCH_SLOTS
};

/* At least n * size bytes, 64-byte aligned, contents undefined.  Valid until this thread asks the
 * same slot for more.  Failing to allocate aborts with a message, as ops cannot fail. */
void *scratch_get(enum scratch_slot slot, size_t n, size_t size);

/* Work is partitioned by shape alone: a task gets as many rows of `width` elements as hold about
 * this many. */
enum { TASK_ELEMENTS = 16384 };

static inline int task_rows(int width)
{
    int rows = TASK_ELEMENTS / (width > 0 ? width : 1);
    return rows > 0 ? rows : 1;
}

static inline int task_count(int n, int step)
{
    return n / step + (n % step != 0);
}

/* The same for n elements in a line: tasks, and the elements [*begin, end) of one. */
static inline int span_tasks(size_t n)
{
    return (int)(n / TASK_ELEMENTS + (n % TASK_ELEMENTS != 0));
}

static inline size_t span_of(size_t n, int task, size_t *begin)
{
    *begin = (size_t)task * TASK_ELEMENTS;
    return n - *begin < (size_t)TASK_ELEMENTS ? n : *begin + TASK_ELEMENTS;
}

#endif
