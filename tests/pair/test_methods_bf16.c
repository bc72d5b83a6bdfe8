/* The pair tests of every method with bf16 compute, where bit-exact guarantees hold too. */
#define METHODS_VARIANT
#define KIT_COMPUTE COMPUTE_BF16
#define KIT_NEAR 2e-2
#include "test_methods.c"
