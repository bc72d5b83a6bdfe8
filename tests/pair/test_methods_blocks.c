/* The tests of test_methods.c on a block of newer families: norms on both sides and of queries and
 * keys, soft caps, a window in some blocks with positions of its own, no positions in another. */
#define METHODS_VARIANT
#define METHODS_SHAPE                                                                              \
    "model.layers=8 model.norm_place=both model.norm_offset=true model.qk_norm=head "              \
    "model.mlp=geglu model.attn_cap=3 model.logit_cap=9 model.attn_scale=0.2 model.window=7 "      \
    "model.window_layers=1-3,6 model.rope_local=300 model.rope_dims=8 model.nope_layers=4"
#include "test_methods.c"
