/* Every method's pair tests once more, with products in bf16: what is promised to the last bit holds there too. */
#define KIT_COMPUTE COMPUTE_BF16
#define KIT_NEAR 2e-2
#include "test_methods.c"
