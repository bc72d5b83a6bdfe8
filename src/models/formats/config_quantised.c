/* What quantization_config of a Hugging Face configuration says about the weights: FP8 of the kinds
 * that io/safetensors.h reads, or a refusal by name. */
#include <string.h>

#include "config_report.h"

static int is_null(const struct json_node *n)
{
    return !n || json_kind_of(n) == JSON_KIND_NULL;
}

static const char *word(const struct json_node *n, const char *key, const char *absent)
{
    const char *v = json_str(json_get(n, key), NULL);
    return v ? v : absent;
}

/* compressed-tensors: FP8 weights of one scale a matrix, row or block, and nothing else changed. */
static void check_compressed(struct report *r, const struct json_node *quant)
{
    const struct json_node *groups = json_get(quant, "config_groups"), *group;
    const char *format = word(quant, "format", "(none)"), *name;
    const struct json_node *sparsity = json_get(quant, "sparsity_config"),
                           *transform = json_get(quant, "transform_config");
    if (strcmp(format, "float-quantized") != 0 && strcmp(format, "naive-quantized") != 0)
        report_add(r,
                   "quantization_config: unsupported compressed-tensors format %.40s: expected "
                   "float-quantized",
                   format);
    for (void *at = NULL; (group = json_next(groups, &at, &name, NULL));) {
        const struct json_node *w = json_get(group, "weights");
        const char *type = word(w, "type", "(none)");
        if (json_int(json_get(w, "num_bits"), 0) != 8 || strcmp(type, "float") != 0)
            report_add(r,
                       "quantization_config: unsupported weights of %lld bits, type %.20s: "
                       "expected 8 bits, type float",
                       (long long)json_int(json_get(w, "num_bits"), 0), type);
    }
    if (!is_null(json_get(quant, "kv_cache_scheme")))
        report_add(r, "quantization_config: kv_cache_scheme is unsupported");
    if (json_len(transform) > 0)
        report_add(r, "quantization_config: transform_config is unsupported");
    if (json_len(sparsity) > 0 && strcmp(word(sparsity, "format", ""), "dense") != 0)
        report_add(r, "quantization_config: sparsity_config is unsupported");
}

/* Scales of 128 x 128; others are found in the file, one a matrix or a row. */
static void check_fp8(struct report *r, const struct json_node *quant)
{
    const struct json_node *block = json_get(quant, "weight_block_size");
    int64_t rows = json_int(json_at(block, 0), 0), columns = json_int(json_at(block, 1), 0);
    const char *kind = word(quant, "fmt", "e4m3");
    if (!is_null(block) && (json_len(block) != 2 || rows != 128 || columns != 128))
        report_add(r,
                   "quantization_config: unsupported weight_block_size [%lld, %lld]: expected "
                   "[128, 128]",
                   (long long)rows, (long long)columns);
    if (strcmp(kind, "e4m3") != 0)
        report_add(r, "quantization_config: unsupported fmt %.20s: expected e4m3", kind);
}

static void check_quantised(struct report *r, const struct json_node *quant)
{
    const char *method = word(quant, "quant_method", "(unnamed)");
    if (strcmp(method, "fp8") == 0)
        check_fp8(r, quant);
    else if (strcmp(method, "compressed-tensors") == 0)
        check_compressed(r, quant);
    else if (strcmp(method, "fbgemm_fp8") != 0)
        report_add(r,
                   "quantization_config: unsupported quantisation %.40s: expected fp8, fbgemm_fp8, "
                   "compressed-tensors of fp8, GGUF or unquantised weights",
                   method);
}

void config_check_quantised(struct report *r, const struct json_node *root)
{
    const struct json_node *quant = json_get(root, "quantization_config");
    if (!is_null(quant))
        check_quantised(r, quant);
    if (!is_null(json_get(root, "compression_config"))) /* of earlier versions */
        report_add(r, "compression_config: unsupported: expected quantization_config");
}
