/* The tests of test_methods.c on blocks whose attention and MLP read one norm of the block's
 * input. */
#define METHODS_VARIANT
#define METHODS_SHAPE "model.layers=8 model.norm=layer model.parallel=shared model.rope_dims=8"
#include "test_methods.c"
