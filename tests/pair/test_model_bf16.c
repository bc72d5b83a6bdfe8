/* The pair tests of the model with bf16 compute, where bit-exact guarantees hold too. */
#define KIT_COMPUTE COMPUTE_BF16
#define KIT_NEAR 2e-2
#include "test_model.c"
