/* Distillation: the loss of a training step is  alpha * cross-entropy + (1 - alpha) * T^2
 * KL(teacher || student),  both averaged over valid targets, the KL between the distributions at
 * temperature T (Hinton et al. 2015).  The teacher's logits exist in the same chunks of rows as the
 * student's. */
#ifndef DS_MODELS_DISTILL_H
#define DS_MODELS_DISTILL_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "engine/real.h"

struct model;
struct batch;
struct pass;

struct distill {
    struct model *teacher; /* NULL: the student itself, dense and without adapters */
    double alpha;          /* share of the cross-entropy, in [0, 1) */
    double temperature;
    int is_on;    /* the current step is distilled: model_loss reads what follows */
    real *xf;     /* (rows, C of the teacher) its final states */
    real *logits; /* (head_chunk(V), V) */
    real *kd;     /* (rows) T^2 KL of each row, 0 without a target */
    int rows;
    size_t bytes;
    double loss;  /* out: mean of kd, nats per token */
    double flops; /* of the teacher's pass */
};

/* Buffers for `rows` rows of the student.  The caller ensures that teacher (borrowed) has the
 * student's vocabulary. */
int distill_new(struct distill **out, const struct model *student, struct model *teacher, int rows,
                double alpha, double temperature, struct err *e) DS_CHECK;
/* Bytes that distill_new would allocate for a teacher of width C. */
size_t distill_bytes(int rows, int64_t C, int64_t V);
/* Runs the teacher over b, before the student's pass `pass`; sets is_on. */
void distill_pass(struct distill *d, struct model *student, const struct batch *b,
                  const struct pass *pass);
void distill_free(struct distill *d);

#endif
