/* The tests of test_methods.c on a model whose MLPs are mixtures of experts, two of which are
 * no-ops, but in one block, and whose blocks are parallel with one norm. */
#define METHODS_VARIANT
#define METHODS_SHAPE                                                                              \
    "model.layers=8 model.experts=6 model.experts_noop=2 model.experts_used=2 "                    \
    "model.expert_ffn=24 model.shared_ffn=16 model.shared_gate=true model.ffn=40 "                 \
    "model.dense_layers=3 model.norm=layer model.parallel=shared"
#include "test_methods.c"
