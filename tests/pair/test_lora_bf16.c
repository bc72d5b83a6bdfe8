/* The adapters' pair tests once more, with products in bf16. */
#define KIT_COMPUTE COMPUTE_BF16
#define KIT_NEAR 2e-2
#include "test_lora.c"
