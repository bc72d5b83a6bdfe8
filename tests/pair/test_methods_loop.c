/* The tests of test_methods.c on a looped model: one block, three iterations of two blocks, one
 * block. */
#define METHODS_VARIANT
#define METHODS_SHAPE                                                                              \
    "model.layers=4 model.loop=3 model.loop_first=1 model.loop_last=1 model.loop_inject=add"
#include "test_methods.c"
