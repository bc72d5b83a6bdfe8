/* The pair tests of adapters with bf16 compute. */
#define KIT_COMPUTE COMPUTE_BF16
#define KIT_NEAR 2e-2
#include "test_lora.c"
