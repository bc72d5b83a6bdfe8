/* Loss and cost of the model cut after its first layers, for a range of exits (exit.layer=2..16). */
#ifndef DS_EVAL_EXITS_H
#define DS_EVAL_EXITS_H

#include "eval/perplexity.h"

/* Results of one exit, all over the same text; NaN: not measured, or the text has no answers. */
struct exit_row {
    int layers;
    double loss, bits_per_byte, accuracy, answer_accuracy, answer_loss, depth_mean;
    double block_ratio, flops_ratio, time_ratio, decode_time_ratio; /* relative to all layers */
    double flops_dense_per_token; /* of all layers */
    double prefill_ms, decode_ms; /* per token: the ratios times all layers' median */
    struct measure_part by_needed[MEASURE_NEEDED_MAX]; /* answers of 1, 2, ... hops */
};
struct exit_table {
    struct exit_row *row; /* (n), owned */
    size_t n;
    double tokens;
    char data[256];
};
int exit_table_make(struct exit_table *out, struct subject *s, const struct ppl_options *o,
                    struct err *e) DS_CHECK;
void exit_table_release(struct exit_table *t);

#endif
