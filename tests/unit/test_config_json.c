/* config.json as others publish it: the files of known models are read to the counts of their cards, and what cannot be is
 * refused by name, every place at once. */
#include "kit.h"

#include "base/fs.h"

static struct err err;

static int read_text(struct model_config *c, const char *text, size_t n)
{
    char path[1024];
    struct config route = {0};
    err = (struct err){0};
    t_ok(fs_join(path, sizeof path, t_tmpdir(), "config.json", &err), &err);
    t_ok(fs_write_file(path, text, n, &err), &err);
    int rc = model_config_from_json(c, &route, path, &err);
    config_release(&route);
    return rc;
}

/* ---- published files ---------------------------------------------------------------------------- */

#define LLAMA2                                                                                     \
    "{\"architectures\": [\"LlamaForCausalLM\"], \"bos_token_id\": 1, \"eos_token_id\": 2, "       \
    "\"hidden_act\": \"silu\", \"initializer_range\": 0.02, \"model_type\": \"llama\", "           \
    "\"pretraining_tp\": 1, \"rms_norm_eps\": 1e-05, \"rope_scaling\": null, "                     \
    "\"tie_word_embeddings\": false, \"torch_dtype\": \"float16\", "                               \
    "\"transformers_version\": \"4.31.0.dev0\", \"use_cache\": true, \"vocab_size\": 32000, "
#define LLAMA3                                                                                     \
    "{\"architectures\": [\"LlamaForCausalLM\"], \"attention_bias\": false, "                      \
    "\"attention_dropout\": 0.0, \"bos_token_id\": 128000, \"hidden_act\": \"silu\", "             \
    "\"initializer_range\": 0.02, \"mlp_bias\": false, \"model_type\": \"llama\", "                \
    "\"pretraining_tp\": 1, \"rms_norm_eps\": 1e-05, \"rope_theta\": 500000.0, "                   \
    "\"torch_dtype\": \"bfloat16\", \"use_cache\": true, \"vocab_size\": 128256, "
#define SCALED(by)                                                                                 \
    "\"rope_scaling\": {\"factor\": " by ", \"low_freq_factor\": 1.0, "                            \
    "\"high_freq_factor\": 4.0, \"original_max_position_embeddings\": 8192, "                      \
    "\"rope_type\": \"llama3\"}, \"max_position_embeddings\": 131072, "
#define QWEN2                                                                                      \
    "{\"architectures\": [\"Qwen2ForCausalLM\"], \"attention_dropout\": 0.0, "                     \
    "\"bos_token_id\": 151643, \"eos_token_id\": 151643, \"hidden_act\": \"silu\", "               \
    "\"initializer_range\": 0.02, \"model_type\": \"qwen2\", \"rms_norm_eps\": 1e-06, "            \
    "\"rope_theta\": 1000000.0, \"torch_dtype\": \"bfloat16\", \"use_cache\": true, "              \
    "\"use_mrope\": false, \"use_sliding_window\": false, \"max_window_layers\": 24, "
#define MISTRAL                                                                                    \
    "{\"architectures\": [\"MistralForCausalLM\"], \"bos_token_id\": 1, \"eos_token_id\": 2, "     \
    "\"hidden_act\": \"silu\", \"hidden_size\": 4096, \"initializer_range\": 0.02, "               \
    "\"intermediate_size\": 14336, \"model_type\": \"mistral\", "                                  \
    "\"num_attention_heads\": 32, \"num_hidden_layers\": 32, \"num_key_value_heads\": 8, "         \
    "\"rms_norm_eps\": 1e-05, \"tie_word_embeddings\": false, \"torch_dtype\": \"bfloat16\", "
#define SMOLLM                                                                                     \
    "{\"architectures\": [\"LlamaForCausalLM\"], \"attention_bias\": false, "                      \
    "\"hidden_act\": \"silu\", \"is_llama_config\": true, \"mlp_bias\": false, "                   \
    "\"model_type\": \"llama\", \"pad_token_id\": 2, \"rms_norm_eps\": 1e-05, "                    \
    "\"rope_interleaved\": false, \"rope_scaling\": null, \"tie_word_embeddings\": true, "         \
    "\"transformers.js_config\": {\"kv_cache_dtype\": {\"q4f16\": \"float16\"}}, "                 \
    "\"vocab_size\": 49152, "
#define GPT2                                                                                       \
    "{\"activation_function\": \"gelu_new\", \"architectures\": [\"GPT2LMHeadModel\"], "           \
    "\"attn_pdrop\": 0.1, \"bos_token_id\": 50256, \"embd_pdrop\": 0.1, "                          \
    "\"eos_token_id\": 50256, \"initializer_range\": 0.02, \"layer_norm_epsilon\": 1e-05, "        \
    "\"model_type\": \"gpt2\", \"n_ctx\": 1024, \"n_positions\": 1024, "                           \
    "\"resid_pdrop\": 0.1, \"summary_type\": \"cls_index\", \"summary_activation\": null, "        \
    "\"task_specific_params\": {\"text-generation\": {\"do_sample\": true, \"max_length\": 50}}, " \
    "\"vocab_size\": 50257, "
#define SHAPE(dim, layers, heads, kv, ffn)                                                         \
    "\"hidden_size\": " #dim ", \"num_hidden_layers\": " #layers                                   \
    ", \"num_attention_heads\": " #heads ", \"num_key_value_heads\": " #kv                         \
    ", \"intermediate_size\": " #ffn ", "
#define CONTEXT(n) "\"max_position_embeddings\": " #n "}"

static const struct {
    const char *name, *text;
    int64_t params, head_dim, max_seq;
} published[] = {
    {"Llama-2-7b", LLAMA2 SHAPE(4096, 32, 32, 32, 11008) CONTEXT(4096), 6738415616, 128, 4096},
    {"Llama-2-13b", LLAMA2 SHAPE(5120, 40, 40, 40, 13824) CONTEXT(4096), 13015864320, 128, 4096},
    {"Llama-3-8B",
     LLAMA3
     "\"eos_token_id\": 128001, \"tie_word_embeddings\": false, \"rope_scaling\": null, " SHAPE(
         4096, 32, 32, 8, 14336) CONTEXT(8192),
     8030261248, 128, 8192},
    {"Llama-3.1-8B",
     LLAMA3 SCALED("8.0") "\"eos_token_id\": [128001, 128008, 128009], "
                          "\"tie_word_embeddings\": false, " SHAPE(4096, 32, 32, 8, 14336) "\"x\""
                                                                                           ": 0}",
     8030261248, 128, 131072},
    {"Llama-3.2-1B",
     LLAMA3 SCALED("32.0") SHAPE(2048, 16, 32, 8, 8192) "\"head_dim\": 64, "
                                                        "\"tie_word_embeddings\": true}",
     1235814400, 64, 131072},
    {"Llama-3.2-3B",
     LLAMA3 SCALED("32.0") SHAPE(3072, 28, 24, 8, 8192) "\"head_dim\": 128, "
                                                        "\"tie_word_embeddings\": true}",
     3212749824, 128, 131072},
    {"TinyLlama-1.1B", LLAMA2 SHAPE(2048, 22, 32, 4, 5632) CONTEXT(2048), 1100048384, 64, 2048},
    {"open_llama_3b", LLAMA2 SHAPE(3200, 26, 32, 32, 8640) CONTEXT(2048), 3426473600, 100, 2048},
    {"Qwen2-0.5B",
     QWEN2 SHAPE(896, 24, 14, 2, 4864) "\"vocab_size\": 151936, \"sliding_window\": 131072, "
                                       "\"tie_word_embeddings\": true, " CONTEXT(131072),
     494032768, 64, 131072},
    {"Qwen2.5-0.5B",
     QWEN2 SHAPE(896, 24, 14, 2, 4864) "\"vocab_size\": 151936, \"sliding_window\": 32768, "
                                       "\"tie_word_embeddings\": true, " CONTEXT(32768),
     494032768, 64, 32768},
    {"Qwen2.5-3B",
     QWEN2 SHAPE(2048, 36, 16, 2, 11008) "\"vocab_size\": 151936, \"sliding_window\": 32768, "
                                         "\"tie_word_embeddings\": true, " CONTEXT(32768),
     3085938688, 128, 32768},
    {"Qwen2.5-7B",
     QWEN2 SHAPE(3584, 28, 28, 4, 18944) "\"vocab_size\": 152064, \"sliding_window\": 131072, "
                                         "\"tie_word_embeddings\": false, " CONTEXT(131072),
     7615616512, 128, 131072},
    {"Mistral-7B-v0.1 within its window",
     MISTRAL "\"sliding_window\": 4096, \"rope_theta\": 10000.0, \"vocab_size\": "
             "32000, " CONTEXT(4096),
     7241732096, 128, 4096},
    {"Mistral-7B-v0.3",
     MISTRAL "\"sliding_window\": null, \"rope_theta\": 1000000.0, \"attention_dropout\": 0.0, "
             "\"vocab_size\": 32768, " CONTEXT(32768),
     7248023552, 128, 32768},
    {"SmolLM-135M", SMOLLM "\"rope_theta\": 10000.0, " SHAPE(576, 30, 9, 3, 1536) CONTEXT(2048),
     134515008, 64, 2048},
    {"SmolLM2-360M", SMOLLM "\"rope_theta\": 100000, " SHAPE(960, 32, 15, 5, 2560) CONTEXT(8192),
     361821120, 64, 8192},
    {"SmolLM2-1.7B", SMOLLM "\"rope_theta\": 130000, " SHAPE(2048, 24, 32, 32, 8192) CONTEXT(8192),
     1711376384, 64, 8192},
    {"gpt2", GPT2 "\"n_embd\": 768, \"n_head\": 12, \"n_layer\": 12}", 124439808, 64, 1024},
    {"gpt2-xl",
     GPT2 "\"n_embd\": 1600, \"n_head\": 25, \"n_layer\": 48, \"output_past\": true, "
          "\"n_inner\": null}",
     1557611200, 64, 1024},
};

T(published_files_have_the_counts_of_their_cards)
{
    for (size_t i = 0; i < DS_LEN(published); i++) {
        struct model_config c;
        int rc = read_text(&c, published[i].text, strlen(published[i].text));
        t_truef(rc == 0, "%s: %s", published[i].name, err.text);
        t_truef(model_config_params(&c) == published[i].params, "%s: %lld parameters, not %lld",
                published[i].name, (long long)model_config_params(&c),
                (long long)published[i].params);
        t_eq(c.head_dim, published[i].head_dim);
        t_eq(c.max_seq, published[i].max_seq);
        opt_release(&model_group, &c);
    }
}

/* ---- what is refused ----------------------------------------------------------------------------- */

#define TINY                                                                                       \
    "{\"model_type\": \"llama\", \"hidden_size\": 64, \"num_hidden_layers\": 2, "                  \
    "\"num_attention_heads\": 4, \"intermediate_size\": 96, \"vocab_size\": 50"

static void refuse(const char *text, const char *part)
{
    struct model_config c;
    int rc = read_text(&c, text, strlen(text));
    t_truef(rc < 0 && rc != DS_EUSAGE && strstr(err.text, part) && strstr(err.text, "config.json"),
            "%d: %s; wanted: %s", rc, err.text, part);
    t_truef(!strchr(err.text, '\n'), "more than a line: %s", err.text);
}

/* A llama file with this value of a key; then a word that must not be taken for a number. */
static void refuse_value(const char *key, const char *value, const char *part)
{
    static const char *const sizes[][2] = {
        {"hidden_size", "64"},
        {"num_hidden_layers", "2"},
        {"num_attention_heads", "4"},
        {"intermediate_size", "96"},
        {"vocab_size", "50"},
        {"num_key_value_heads", "2"},
        {"max_position_embeddings", "128"},
    };
    struct str text = {0};
    int is_put = 0;
    str_add(&text, "{\"model_type\": \"llama\"");
    for (size_t i = 0; i < DS_LEN(sizes); i++) {
        int is_it = strcmp(sizes[i][0], key) == 0;
        str_addf(&text, ", \"%s\": %s", sizes[i][0], is_it ? value : sizes[i][1]);
        is_put |= is_it;
    }
    if (!is_put)
        str_addf(&text, ", \"%s\": %s", key, value);
    str_add(&text, "}");
    refuse(str_text(&text), part);
    t_truef(strstr(err.text, key), "%s does not name %s", err.text, key);
    str_release(&text);
}

T(sizes_out_of_range_are_refused_by_name) /* A21 */
{
    static const char *const keys[] = {"hidden_size",
                                       "num_hidden_layers",
                                       "num_attention_heads",
                                       "intermediate_size",
                                       "vocab_size",
                                       "num_key_value_heads",
                                       "head_dim",
                                       "max_position_embeddings"};
    for (size_t i = 0; i < DS_LEN(keys); i++) {
        refuse_value(keys[i], "0", "0 is outside");
        refuse_value(keys[i], "-1", "-1 is outside");
        refuse_value(keys[i], "1e308", "is outside");
        refuse_value(keys[i], "9223372036854775807", "9223372036854775807 is outside");
        refuse_value(keys[i], "64.5", "'64.5' is not a whole number");
        refuse_value(keys[i], "true", "'true' is not a whole number");
        refuse_value(keys[i], "\"64\"", "is not a number or a truth value but \"64\"");
        refuse_value(keys[i], "[64]", "is not a number or a truth value");
        refuse_value(keys[i], "{}", "is not a number or a truth value");
    }
    refuse_value("rms_norm_eps", "0", "0 is outside");
    refuse_value("rms_norm_eps", "-1e-5", "is outside");
    refuse_value("rope_theta", "1e308", "is outside");
    refuse_value("rope_theta", "false", "'false' is not a number");
    refuse_value("tie_word_embeddings", "2", "'2' is neither true nor false");
    refuse_value("attention_bias", "\"yes\"", "is not a number or a truth value but \"yes\"");
    refuse(TINY ", \"rms_norm_eps\": 1e999}", "number overflow");
    refuse(TINY ", \"rms_norm_eps\": NaN}", "config.json:1:");
    refuse(TINY ", \"hidden_size\": 64}", "duplicate");
}

T(all_that_is_wrong_is_said_at_once) /* A21 */
{
    refuse("{\"model_type\": \"llama\", \"hidden_size\": 0, \"num_hidden_layers\": -1, "
           "\"num_attention_heads\": 1e308, \"intermediate_size\": \"many\", "
           "\"hidden_act\": \"relu\", \"rope_scaling\": {\"type\": \"linear\", \"factor\": 2}}",
           "config.json: hidden_size: 0 is outside 2 to 65536; num_hidden_layers: -1 is outside 1 "
           "to 4096; num_attention_heads: ");
    static const char *const also[] = {"1e+308 is outside 1 to 1024; ",
                                       "intermediate_size is not a number or a truth value but "
                                       "\"many\"; vocab_size is missing; ",
                                       "hidden_act relu is not known here (silu); ",
                                       "rope_scaling of type linear is not known here"};
    for (size_t i = 0; i < DS_LEN(also); i++)
        t_truef(strstr(err.text, also[i]), "%s lacks %s", err.text, also[i]);
    refuse("{\"depthscope\": {\"model.dim\": \"0\", \"model.layers\": 3, \"model.heads\": \"x\"}}",
           "depthscope: dim: 0 is outside 2 to 65536; depthscope.model.layers is not a string; "
           "depthscope: heads: 'x' is not a whole number");
}

T(heads_that_do_not_fit_name_both_numbers) /* A22 */
{
    refuse("{\"model_type\": \"llama\", \"hidden_size\": 66, \"num_hidden_layers\": 2, "
           "\"num_attention_heads\": 4, \"intermediate_size\": 96, \"vocab_size\": 50}",
           "heads=4 does not divide model.dim=66");
    refuse(TINY ", \"num_key_value_heads\": 3}", "kv_heads=3 does not divide model.heads=4");
    refuse(TINY ", \"num_key_value_heads\": 8}", "kv_heads=8 does not divide model.heads=4");
    refuse(TINY ", \"head_dim\": 7}", "even head size, model.head_dim=7");
}

T(what_the_family_does_not_promise_is_refused_by_name)
{
    refuse(TINY ", \"quantization_config\": {\"quant_method\": \"gptq\", \"bits\": 4}}",
           "quantization_config: weights quantised by gptq are not known here");
    refuse(TINY ", \"auto_map\": {\"AutoModel\": \"modeling_x.Model\"}}", "auto_map: ");
    refuse(TINY ", \"partial_rotary_factor\": 0.5}", "partial_rotary_factor: ");
    refuse(TINY ", \"partial_rotary_factor\": \"half\"}", "partial_rotary_factor: ");
    refuse(TINY ", \"rope_parameters\": {\"rope_type\": \"default\", \"partial_rotary_factor\": "
                "0.25, \"rope_theta\": 1e4}}",
           "partial_rotary_factor: ");
    refuse(TINY ", \"is_encoder_decoder\": true}", "is_encoder_decoder: ");
    refuse(TINY ", \"layer_types\": \"full_attention\"}", "layer_types is not a list");
    refuse(TINY ", \"hidden_act\": 3}", "hidden_act is not a string");
    refuse(TINY ", \"use_sliding_window\": \"no\"}", "use_sliding_window is neither true nor");
    static const char *const scalings[] = {"linear", "dynamic", "yarn", "longrope", "su", "mrope"};
    for (size_t i = 0; i < DS_LEN(scalings); i++) {
        char text[600], part[80];
        snprintf(text, sizeof text, TINY ", \"rope_scaling\": {\"type\": \"%s\", \"factor\": 2.0}}",
                 scalings[i]);
        snprintf(part, sizeof part, "rope_scaling of type %s is not known here (llama3, default)",
                 scalings[i]);
        refuse(text, part);
    }
    static const char *const types[] = {"qwen3", "gemma", "mixtral", "phi3", "gpt_neox", "smollm3"};
    for (size_t i = 0; i < DS_LEN(types); i++) {
        char text[600];
        snprintf(text, sizeof text, "{\"model_type\": \"%s\"}", types[i]);
        refuse(text, types[i]);
    }
    refuse("{\"model_type\": 7}", "model_type is missing");
    refuse("{\"depthscope\": 7}", "depthscope is not an object");
    refuse("[]", "model_type is missing");
    refuse("", "config.json");
}

T(windows_that_no_context_outgrows_are_none)
{
    struct model_config c;
    refuse(MISTRAL "\"sliding_window\": 4096, \"vocab_size\": 32000, " CONTEXT(32768),
           "sliding_window 4096 is below max_position_embeddings 32768: sliding windows");
    refuse(MISTRAL "\"sliding_window\": \"wide\", \"vocab_size\": 32000, " CONTEXT(4096),
           "sliding_window is not a whole number");
    const char *text = MISTRAL "\"sliding_window\": 4096, \"vocab_size\": 9, " CONTEXT(4096);
    t_ok(read_text(&c, text, strlen(text)), &err);
    opt_release(&model_group, &c);
}

/* A checkpoint of this program says its sizes twice; who changes one of them is told. */
T(sizes_beside_our_own_keys_have_to_agree)
{
    struct str text = {0};
    struct model_config c;
    struct model *m = kit_model("model.method=edp", 1, 4, 0, 0);
    model_config_to_json(&text, &m->config, NULL);
    t_ok(read_text(&c, text.p, text.len), &err);
    opt_release(&model_group, &c);
    char *at = strstr(text.p, "\"hidden_size\": 96");
    t_true(at != NULL);
    memcpy(at, "\"hidden_size\": 0 ", 17);
    refuse(str_text(&text), "hidden_size is 0, depthscope's model.dim is 96");
    str_release(&text);
    model_free(m);
}
