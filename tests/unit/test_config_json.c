/* Published config.json files: known models get the parameter counts of their model cards, and
 * invalid values are refused by name, all at once. */
#include "kit.h"

#include "base/fs.h"

static struct err err;

static const char *place(void)
{
    static const char *dir;
    if (!dir)
        dir = t_tmpdir();
    return dir;
}

static int read_text(struct model_config *c, const char *text, size_t n)
{
    char path[1024];
    struct config route = {0};
    err = (struct err){0};
    t_ok(fs_join(path, sizeof path, place(), "config.json", &err), &err);
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
/* The published lists have 48 different divisors. */
#define PHI3                                                                                       \
    "{\"architectures\": [\"Phi3ForCausalLM\"], \"attention_dropout\": 0.0, \"auto_map\": "        \
    "{\"AutoConfig\": \"configuration_phi3.Phi3Config\", \"AutoModelForCausalLM\": "               \
    "\"modeling_phi3.Phi3ForCausalLM\", \"AutoTokenizer\": \"Xenova/gpt-4o\"}, "                   \
    "\"embd_pdrop\": 0.0, \"hidden_act\": \"silu\", \"initializer_range\": 0.02, "                 \
    "\"model_type\": \"phi3\", \"resid_pdrop\": 0.0, \"rms_norm_eps\": 1e-05, \"rope_theta\": "    \
    "10000.0, \"torch_dtype\": \"bfloat16\", \"use_cache\": true, "
#define TWELVE(x) x "," x "," x "," x "," x "," x "," x "," x "," x "," x "," x "," x
#define MANY(x) TWELVE(x) "," TWELVE(x) "," TWELVE(x) "," TWELVE(x)
#define SHORT_LIST "\"short_factor\": [" MANY("1.0") "], "
#define LONG_LIST(x) "\"long_factor\": [" MANY(x) "]}, "
#define LISTS(x) "\"rope_scaling\": {\"type\": \"longrope\", " SHORT_LIST LONG_LIST(x)
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
    {"Phi-3-mini-4k",
     PHI3 SHAPE(3072, 32, 32, 32,
                8192) "\"vocab_size\": 32064, \"sliding_window\": 2047, "
                      "\"rope_scaling\": null, \"eos_token_id\": 32000, "
                      "\"original_max_position_embeddings\": 4096, " CONTEXT(4096),
     3821079552, 96, 4096},
    {"Phi-3.5-mini",
     PHI3 LISTS("1.08")
         SHAPE(3072, 32, 32, 32,
               8192) "\"vocab_size\": 32064, \"sliding_window\": 262144, " CONTEXT(131072),
     3821079552, 96, 131072},
    {"Phi-4-mini",
     PHI3 LISTS("1.118320672") SHAPE(
         3072, 32, 24, 8,
         8192) "\"vocab_size\": 200064, \"tie_word_embeddings\": true, \"partial_rotary_factor\": "
               "0.75, "
               "\"full_attn_mod\": 1, \"interpolate_factor\": 1, \"lm_head_bias\": false, "
               "\"sliding_window\": 262144, \"original_max_position_embeddings\": 4096, " CONTEXT(
                   131072),
     3836021760, 128, 131072},
    {"pythia-70m",
     "{\"architectures\": [\"GPTNeoXForCausalLM\"], \"bos_token_id\": 0, \"eos_token_id\": 0, "
     "\"hidden_act\": \"gelu\", \"initializer_range\": 0.02, \"layer_norm_eps\": 1e-05, "
     "\"model_type\": \"gpt_neox\", \"rotary_emb_base\": 10000, \"rotary_pct\": 0.25, "
     "\"tie_word_embeddings\": false, \"use_cache\": true, \"use_parallel_residual\": true, "
     "\"vocab_size\": 50304, " SHAPE(512, 6, 8, 8, 2048) CONTEXT(2048),
     70426624, 64, 2048},
    {"stablelm-2-1_6b",
     "{\"architectures\": [\"StableLmForCausalLM\"], \"hidden_act\": \"silu\", "
     "\"layer_norm_eps\": 1e-05, \"model_type\": \"stablelm\", \"partial_rotary_factor\": 0.25, "
     "\"rope_theta\": 10000, \"rotary_scaling_factor\": 1.0, \"tie_word_embeddings\": false, "
     "\"use_cache\": true, \"use_qkv_bias\": true, \"vocab_size\": 100352, " SHAPE(
         2048, 24, 32, 32, 5632) CONTEXT(4096),
     1644515328, 64, 4096},
    {"Phi-4",
     PHI3 SHAPE(5120, 40, 40, 10, 17920) "\"vocab_size\": 100352, \"sliding_window\": null, "
                                         "\"rope_scaling\": null, " CONTEXT(16384),
     14659507200, 128, 16384},
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
    {"Mixtral-8x7B-v0.1",
     "{\"model_type\": \"mixtral\", \"num_local_experts\": 8, \"num_experts_per_tok\": 2, "
     "\"rms_norm_eps\": 1e-05, \"rope_theta\": 1000000.0, \"sliding_window\": null, "
     "\"router_aux_loss_coef\": 0.02, \"output_router_logits\": false, "
     "\"vocab_size\": 32000, " SHAPE(4096, 32, 32, 8, 14336) CONTEXT(32768),
     46702792704, 128, 32768},
    {"Qwen1.5-MoE-A2.7B",
     "{\"model_type\": \"qwen2_moe\", \"num_experts\": 60, \"num_experts_per_tok\": 4, "
     "\"moe_intermediate_size\": 1408, \"shared_expert_intermediate_size\": 5632, "
     "\"decoder_sparse_step\": 1, \"norm_topk_prob\": false, \"rms_norm_eps\": 1e-06, "
     "\"rope_theta\": 1000000.0, \"sliding_window\": 32768, \"use_sliding_window\": false, "
     "\"vocab_size\": 151936, " SHAPE(2048, 24, 16, 16, 5632) CONTEXT(8192),
     14315784192, 128, 8192},
    {"gpt2", GPT2 "\"n_embd\": 768, \"n_head\": 12, \"n_layer\": 12}", 124439808, 64, 1024},
    {"gpt2-xl",
     GPT2 "\"n_embd\": 1600, \"n_head\": 25, \"n_layer\": 48, \"output_past\": true, "
          "\"n_inner\": null}",
     1557611200, 64, 1024},
};

T(published_files_give_the_parameter_counts_of_their_cards)
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

T(keys_of_experts_are_read_or_refused_by_name)
{
    static const char tail[] = "\"num_experts\": 4, \"moe_intermediate_size\": 32, "
                               "\"shared_expert_intermediate_size\": 16, \"vocab_size\": 50, "
                               "\"model_type\": \"qwen2_moe\"";
    static const struct {
        const char *more, *part; /* NULL: accepted */
        const char *dense;       /* model.dense_layers */
    } rows[] = {
        {"", NULL},
        {", \"mlp_only_layers\": [], \"decoder_sparse_step\": 1", NULL},
        {", \"num_local_experts\": 4", NULL},
        {", \"num_local_experts\": 5", "num_experts and num_local_experts differ"},
        {", \"mlp_only_layers\": [1, 7]", NULL, "1"},
        {", \"decoder_sparse_step\": 2", NULL, "0"},
        {", \"mlp_only_layers\": [1, 1, 1]", "mlp_only_layers must be a list of blocks"},
        {", \"mlp_only_layers\": [0.5]", "mlp_only_layers must be a list of blocks"},
        {", \"mlp_only_layers\": 1", "mlp_only_layers must be a list of blocks"},
        {", \"decoder_sparse_step\": 0", "decoder_sparse_step must be a positive integer"},
        {", \"num_experts_per_tok\": 5", "num_experts_per_tok=5: must be at most 4"},
        {", \"num_experts_per_tok\": 0", "num_experts_per_tok"},
        {", \"norm_topk_prob\": \"yes\"", "norm_topk_prob must be a number or a boolean"},
    };
    for (size_t i = 0; i < DS_LEN(rows); i++) {
        struct model_config c;
        char text[900];
        snprintf(text, sizeof text, "{" SHAPE(64, 2, 4, 4, 96) "%s%s}", tail, rows[i].more);
        int rc = read_text(&c, text, strlen(text));
        t_truef((rc == 0) == !rows[i].part && (rc == 0 || strstr(err.text, rows[i].part)), "%s: %s",
                rows[i].more, rc < 0 ? err.text : "read");
        if (rc < 0)
            continue;
        t_str(c.dense_layers, rows[i].dense ? rows[i].dense : "");
        t_true(c.experts == 4 && c.experts_used == 4 && c.expert_ffn == 32 && c.shared_ffn == 16);
        t_true(c.shared_gate && !c.experts_norm && c.attn_bias == ATTN_BIAS_QKV);
        opt_release(&model_group, &c);
    }
    /* a file whose blocks are all dense is one of the family without experts */
    struct model_config c;
    char text[900];
    snprintf(text, sizeof text, "{" SHAPE(64, 2, 4, 4, 96) "%s%s}", tail,
             ", \"mlp_only_layers\": [1], \"decoder_sparse_step\": 2");
    t_ok(read_text(&c, text, strlen(text)), &err);
    t_true(c.experts == 0 && c.shared_ffn == 0 && c.ffn == 96 && !c.dense_layers[0]);
    t_str(model_config_family(&c), "qwen2");
    opt_release(&model_group, &c);
}

T(olmoe_has_no_heads_of_another_size)
{
    static const char text[] = "{\"model_type\": \"olmoe\", " SHAPE(64, 2, 4, 4, 96)
        "\"vocab_size\": 50, \"num_experts\": 4, \"num_experts_per_tok\": 2}";
    struct model_config c;
    t_ok(read_text(&c, text, strlen(text)), &err);
    t_str(model_config_family(&c), "olmoe");
    c.head_dim = 8;
    c.rope_dims = 8;
    t_true(model_config_family(&c) == NULL);
    opt_release(&model_group, &c);
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
            "%d: %s; expected: %s", rc, err.text, part);
    t_truef(!strchr(err.text, '\n'), "more than a line: %s", err.text);
}

/* A llama file with this value of a key, which must be refused with `part`. */
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
        refuse_value(keys[i], "0", "0: must be");
        refuse_value(keys[i], "-1", "-1: must be");
        refuse_value(keys[i], "1e308", ": must be");
        refuse_value(keys[i], "9223372036854775807", "9223372036854775807: must be");
        refuse_value(keys[i], "64.5", "'64.5': must be an integer");
        refuse_value(keys[i], "true", "'true': must be an integer");
        refuse_value(keys[i], "\"64\"", "must be a number or a boolean, found \"64\"");
        refuse_value(keys[i], "[64]", "must be a number or a boolean");
        refuse_value(keys[i], "{}", "must be a number or a boolean");
    }
    refuse("{\"model_type\": \"olmoe\", " SHAPE(64, 4096, 4, 4, 96) "\"vocab_size\": 50, "
                                                                    "\"num_experts\": 4096}",
           "experts=4096: 16777216 in all layers");
    refuse_value("rms_norm_eps", "0", "0: must be");
    refuse_value("rms_norm_eps", "-1e-5", ": must be");
    refuse_value("rope_theta", "1e308", ": must be");
    refuse_value("rope_theta", "false", "'false': must be a number");
    refuse_value("tie_word_embeddings", "2", "'2': must be true or false");
    refuse_value("attention_bias", "\"yes\"", "must be a number or a boolean, found \"yes\"");
    refuse(TINY ", \"rms_norm_eps\": 1e999}", "number overflow");
    refuse(TINY ", \"rms_norm_eps\": NaN}", "config.json:1:");
    refuse(TINY ", \"hidden_size\": 64}", "duplicate");
}

T(all_errors_are_reported_at_once) /* A21 */
{
    refuse("{\"model_type\": \"llama\", \"hidden_size\": 0, \"num_hidden_layers\": -1, "
           "\"num_attention_heads\": 1e308, \"intermediate_size\": \"many\", "
           "\"hidden_act\": \"relu\", \"rope_scaling\": {\"type\": \"mrope\", \"factor\": 2}}",
           "config.json: hidden_size: 0: must be 2 to 65536; num_hidden_layers: -1: must be 1 "
           "to 4096; num_attention_heads: ");
    static const char *const also[] = {"1e+308: must be 1 to 1024; ",
                                       "intermediate_size must be a number or a boolean, found "
                                       "\"many\"; vocab_size is missing; ",
                                       "hidden_act: unsupported activation relu: expected silu; ",
                                       "rope_scaling: unsupported type mrope"};
    for (size_t i = 0; i < DS_LEN(also); i++)
        t_truef(strstr(err.text, also[i]), "%s lacks %s", err.text, also[i]);
    refuse("{\"depthscope\": {\"model.dim\": \"0\", \"model.layers\": 3, \"model.heads\": \"x\"}}",
           "depthscope: dim: 0: must be 2 to 65536; depthscope.model.layers must be a string; "
           "depthscope: heads: 'x': must be an integer");
}

T(invalid_head_counts_name_both_values) /* A22 */
{
    refuse("{\"model_type\": \"llama\", \"hidden_size\": 66, \"num_hidden_layers\": 2, "
           "\"num_attention_heads\": 4, \"intermediate_size\": 96, \"vocab_size\": 50}",
           "num_attention_heads=4: must divide hidden_size=66");
    refuse(TINY ", \"num_key_value_heads\": 3}",
           "num_key_value_heads=3: must divide num_attention_heads=4");
    refuse(TINY ", \"num_key_value_heads\": 8}",
           "num_key_value_heads=8: must divide num_attention_heads=4");
    refuse(TINY ", \"head_dim\": 7}", "head_dim=7: must be even");
    refuse("{\"model_type\": \"llama\", \"hidden_size\": 4096, \"num_hidden_layers\": 2, "
           "\"num_attention_heads\": 2, \"intermediate_size\": 96, \"vocab_size\": 50}",
           "must be at most 1024");
}

T(unsupported_features_of_a_family_are_refused_by_name)
{
    refuse(TINY ", \"quantization_config\": {\"quant_method\": \"gptq\", \"bits\": 4}}",
           "quantization_config: unsupported quantisation gptq");
    refuse(TINY ", \"quantization_config\": {}}", "unsupported quantisation (unnamed)");
    refuse(TINY ", \"quantization_config\": {\"quant_method\": \"fp8\", \"weight_block_size\": "
                "[64, 128]}}",
           "weight_block_size [64, 128]: expected [128, 128]");
    refuse(
        TINY ", \"quantization_config\": {\"quant_method\": \"compressed-tensors\", \"format\": "
             "\"pack-quantized\", \"kv_cache_scheme\": {\"num_bits\": 8}, \"config_groups\": "
             "{\"group_0\": {\"weights\": {\"num_bits\": 4, \"type\": \"int\"}}}}}",
        "quantization_config: unsupported compressed-tensors format pack-quantized: expected "
        "float-quantized; quantization_config: unsupported weights of 4 bits, type int: expected "
        "8 bits, type float; quantization_config: kv_cache_scheme is unsupported");
    refuse(TINY ", \"auto_map\": {\"AutoModel\": \"modeling_x.Model\"}}", "auto_map: ");
    refuse(TINY ", \"partial_rotary_factor\": 0.5}", "partial_rotary_factor=0.5: ");
    refuse(TINY ", \"partial_rotary_factor\": \"half\"}", "partial_rotary_factor=\"half\": ");
    refuse(TINY ", \"rope_parameters\": {\"rope_type\": \"default\", \"partial_rotary_factor\": "
                "0.25, \"rope_theta\": 1e4}}",
           "partial_rotary_factor=0.25: ");
    refuse(TINY ", \"is_encoder_decoder\": true}", "is_encoder_decoder=true: ");
    refuse(TINY ", \"layer_types\": \"full_attention\"}", "layer_types must be a list");
    refuse(TINY ", \"hidden_act\": 3}", "hidden_act must be a string");
    refuse(TINY ", \"use_sliding_window\": \"no\"}", "use_sliding_window must be true or");
    static const char *const scalings[] = {"su", "mrope"};
    for (size_t i = 0; i < DS_LEN(scalings); i++) {
        char text[600], part[100];
        snprintf(text, sizeof text, TINY ", \"rope_scaling\": {\"type\": \"%s\", \"factor\": 2.0}}",
                 scalings[i]);
        snprintf(part, sizeof part,
                 "rope_scaling: unsupported type %s: expected default, linear, llama3, yarn, "
                 "longrope or dynamic",
                 scalings[i]);
        refuse(text, part);
    }
    static const char *const types[] = {"dbrx", "phi", "phimoe", "bloom", "falcon", "qwen3_next"};
    for (size_t i = 0; i < DS_LEN(types); i++) {
        char text[600];
        snprintf(text, sizeof text, "{\"model_type\": \"%s\"}", types[i]);
        refuse(text, types[i]);
    }
    refuse("{\"model_type\": 7}", "missing model_type");
    refuse("{\"depthscope\": 7}", "depthscope must be an object");
    refuse("[]", "missing model_type");
    refuse("", "config.json");
}

#define NEOX "{\"model_type\": \"gpt_neox\", " SHAPE(64, 2, 4, 4, 96) "\"vocab_size\": 50"
#define STABLE "{\"model_type\": \"stablelm\", " SHAPE(64, 2, 4, 2, 96) "\"vocab_size\": 50"

T(what_parallel_families_cannot_be_is_refused_by_name)
{
    refuse(NEOX ", \"hidden_act\": \"relu\"}", "hidden_act: unsupported activation relu");
    refuse(NEOX ", \"head_dim\": 8}", "head_dim: expected hidden_size / num_attention_heads");
    refuse(NEOX ", \"rotary_pct\": 0.2}", "rotary_pct = 0.2: 3 of 16 elements of a head rotate");
    refuse(NEOX ", \"partial_rotary_factor\": 0.5}", "partial_rotary_factor=0.5: ");
    refuse(NEOX ", \"use_parallel_residual\": null}", "use_parallel_residual must be");
    refuse(STABLE ", \"qk_layernorm\": true}", "qk_layernorm=true: query and key norms");
    refuse(STABLE ", \"rotary_pct\": 0.5}", "rotary_pct=0.5: partial rotary dimensions");
    refuse(STABLE ", \"hidden_act\": \"gelu\"}", "hidden_act: unsupported activation gelu");
    refuse(TINY ", \"use_parallel_residual\": true}",
           "use_parallel_residual=true: parallel attention");
}

#define PHI "{\"model_type\": \"phi3\", " SHAPE(64, 2, 4, 2, 96) "\"vocab_size\": 50"
#define LONG(more) ", \"rope_scaling\": {\"type\": \"longrope\"" more "}}"
#define EIGHT "[1,1,1,1,1,1,1,1]"

T(what_phi3_cannot_be_is_refused_by_name)
{
    static const char *const of[][2] = {
        {LONG(""), "rope_scaling: missing key short_factor; rope_scaling: missing key long_factor"},
        {LONG(", \"short_factor\": " EIGHT), "missing key long_factor"},
        {LONG(", \"short_factor\": " EIGHT ", \"long_factor\": [1,2]"),
         "long_factor has 2 numbers, expected 8, half of the 16"},
        {LONG(", \"short_factor\": [1], \"long_factor\": " EIGHT),
         "short_factor has 1 numbers, expected 8"},
        {LONG(", \"short_factor\": " EIGHT ", \"long_factor\": 3"),
         "long_factor must be a list of numbers"},
        {LONG(", \"short_factor\": " EIGHT ", \"long_factor\": [1,1,0,1,1,1,1,1]"),
         "long_factor: number 3 must be positive"},
        {LONG(", \"short_factor\": " EIGHT ", \"long_factor\": [1,1,1,1,1,1,1,\"x\"]"),
         "long_factor: number 8 must be positive"},
        {LONG(", \"short_factor\": " EIGHT ", \"long_factor\": " EIGHT ", \"attention_factor\": 0"),
         "attention_factor must be greater than 0"},
        {", \"rope_scaling\": {\"type\": \"linear\", \"factor\": 2}}",
         "rope_scaling: unsupported type"},
        {", \"rope_scaling\": {\"type\": \"dynamic\", \"factor\": 2}}",
         "rope_scaling: unsupported"},
        {", \"partial_rotary_factor\": 0}", "partial_rotary_factor must be a number above 0"},
        {", \"partial_rotary_factor\": 1.5}", "partial_rotary_factor must be a number above 0"},
        {", \"partial_rotary_factor\": \"x\"}", "partial_rotary_factor must be a number above 0"},
        {", \"partial_rotary_factor\": 0.05}", "0 of 16 elements of a head rotate"},
        {", \"partial_rotary_factor\": 0.6}",
         "partial_rotary_factor = 0.6: 9 of 16 elements of a head rotate, expected an even number"},
        {", \"sliding_window\": 0}", "sliding_window must be a positive integer"},
        {", \"auto_map\": {\"AutoModelForCausalLM\": \"modeling_x.Model\"}}", "auto_map: "},
    };
    for (size_t i = 0; i < DS_LEN(of); i++) {
        char text[900];
        snprintf(text, sizeof text, PHI "%s", of[i][0]);
        refuse(text, of[i][1]);
    }
}

/* ---- absent keys --------------------------------------------------------------------------------- */

/* Files with only the mandatory keys. */
static const char *const bare[] = {
    TINY,
    "{\"model_type\": \"mistral\", \"hidden_size\": 256, \"num_hidden_layers\": 1, "
    "\"num_attention_heads\": 32, \"intermediate_size\": 96, \"vocab_size\": 50, "
    "\"max_position_embeddings\": 4096",
    "{\"model_type\": \"qwen2\", \"hidden_size\": 256, \"num_hidden_layers\": 1, "
    "\"num_attention_heads\": 32, \"intermediate_size\": 96, \"vocab_size\": 50",
    "{\"model_type\": \"gpt2\", \"n_embd\": 64, \"n_layer\": 2, \"n_head\": 4, \"vocab_size\": 50",
};
enum { IS_LLAMA, IS_MISTRAL, IS_QWEN2, IS_GPT2 };

/* Defaults printed by LlamaConfig() and the others of transformers 4.57 and 5.23, one row per key;
 * the two differ only in keys (dtype, rope_parameters) that do not affect the model. */
static const struct {
    int family;
    const char *own, *want;
} absent[] = {
    {IS_LLAMA, "kv_heads", "4"},         {IS_LLAMA, "head_dim", "16"},
    {IS_LLAMA, "max_seq", "2048"},       {IS_LLAMA, "norm_eps", "1e-06"},
    {IS_LLAMA, "rope_theta", "10000"},   {IS_LLAMA, "rope_scaling", "none"},
    {IS_LLAMA, "tied", "false"},         {IS_LLAMA, "attn_bias", "false"},
    {IS_LLAMA, "mlp_bias", "false"},     {IS_LLAMA, "mlp", "swiglu"},
    {IS_LLAMA, "norm", "rms"},           {IS_LLAMA, "position", "rope"},
    {IS_LLAMA, "end_ids", ""},           {IS_MISTRAL, "kv_heads", "8"},
    {IS_MISTRAL, "head_dim", "8"},       {IS_MISTRAL, "norm_eps", "1e-06"},
    {IS_MISTRAL, "rope_theta", "10000"}, {IS_MISTRAL, "tied", "false"},
    {IS_MISTRAL, "attn_bias", "false"},  {IS_MISTRAL, "mlp_bias", "false"},
    {IS_QWEN2, "kv_heads", "32"},        {IS_QWEN2, "max_seq", "32768"},
    {IS_QWEN2, "norm_eps", "1e-06"},     {IS_QWEN2, "rope_theta", "10000"},
    {IS_QWEN2, "tied", "false"},         {IS_QWEN2, "attn_bias", "qkv"},
    {IS_QWEN2, "mlp_bias", "false"},     {IS_GPT2, "ffn", "256"},
    {IS_GPT2, "max_seq", "1024"},        {IS_GPT2, "norm_eps", "1e-05"},
    {IS_GPT2, "tied", "true"},           {IS_GPT2, "mlp", "gelu_tanh"},
    {IS_GPT2, "norm", "layer"},          {IS_GPT2, "position", "learned"},
    {IS_GPT2, "attn_bias", "true"},      {IS_GPT2, "mlp_bias", "true"},
};

static void has_value(int family, const char *more, const char *own, const char *want)
{
    struct str text = {0};
    struct model_config c;
    char full[64], have[256];
    str_addf(&text, "%s%s}", bare[family], more);
    t_truef(read_text(&c, text.p, text.len) == 0, "%s: %s", text.p, err.text);
    snprintf(full, sizeof full, "model.%s", own);
    opt_print(opt_find(&model_group, full), &c, have, sizeof have);
    t_truef(strcmp(have, want) == 0, "%s: %s is %s, not %s", text.p, own, have, want);
    opt_release(&model_group, &c);
    str_release(&text);
}

T(an_absent_key_takes_its_class_default)
{
    for (size_t i = 0; i < DS_LEN(absent); i++)
        has_value(absent[i].family, "", absent[i].own, absent[i].want);
}

T(a_key_unknown_to_a_class_has_no_effect)
{
    has_value(IS_MISTRAL, ", \"attention_bias\": true, \"mlp_bias\": true", "attn_bias", "false");
    has_value(IS_QWEN2, ", \"attention_bias\": false, \"mlp_bias\": true", "attn_bias", "qkv");
    has_value(IS_GPT2, ", \"n_ctx\": 512, \"rms_norm_eps\": 0.01", "max_seq", "1024");
    has_value(IS_LLAMA, ", \"pretraining_tp\": 2, \"use_cache\": false, \"dtype\": \"float16\"",
              "tied", "false");
}

T(an_explicit_null_is_interpreted_as_by_the_class)
{
    has_value(IS_LLAMA, ", \"num_key_value_heads\": null, \"head_dim\": null", "kv_heads", "4");
    has_value(IS_MISTRAL, ", \"num_key_value_heads\": null", "kv_heads", "32");
    has_value(IS_QWEN2, ", \"num_key_value_heads\": null", "kv_heads", "32");
    has_value(IS_GPT2, ", \"n_inner\": null", "ffn", "256");
    has_value(IS_GPT2, ", \"tie_word_embeddings\": null", "tied", "false");
    has_value(IS_LLAMA, ", \"rope_scaling\": null, \"rope_parameters\": null", "rope_theta",
              "10000");
    refuse(TINY ", \"rms_norm_eps\": null}", "rms_norm_eps must be a number or a boolean, found "
                                             "null");
    refuse(TINY ", \"rope_theta\": null}", "rope_theta");
    refuse(TINY ", \"max_position_embeddings\": null}", "max_position_embeddings");
    refuse(TINY ", \"hidden_act\": null}", "hidden_act must be a string");
}

T(rotary_parameters_of_newer_files_are_read)
{
    has_value(IS_LLAMA, ", \"rope_parameters\": {\"rope_theta\": 500000}", "rope_theta", "500000");
    has_value(IS_LLAMA, ", \"rope_theta\": 7, \"rope_parameters\": {\"rope_theta\": 5}",
              "rope_theta", "5");
    has_value(IS_LLAMA, ", \"rope_theta\": 7, \"rope_parameters\": {\"rope_type\": \"default\"}",
              "rope_theta", "7");
    refuse(TINY ", \"rope_parameters\": {\"rope_theta\": 5, \"factor\": 2}}",
           "unsupported type none");
    refuse(TINY ", \"rope_parameters\": {\"full_attention\": {\"rope_theta\": 5}}}",
           "rotary positions by kind of layer");
    /* an empty description is none, as in Python */
    has_value(IS_LLAMA, ", \"rope_scaling\": {}, \"rope_parameters\": {\"rope_theta\": 5}",
              "rope_theta", "5");
}

#define GEMMA3 "{\"model_type\": \"gemma3_text\", " SHAPE(64, 2, 4, 2, 96) "\"vocab_size\": 50"
#define YARN                                                                                       \
    "\"rope_type\": \"yarn\", \"factor\": 4, \"original_max_position_embeddings\": 32, "           \
    "\"rope_theta\": 5"

/* Where the library reads a description in another way than it looks, or its versions differ. */
T(ambiguous_rotary_parameters_are_refused)
{
    refuse(GEMMA3 ", \"rope_scaling\": {\"type\": \"linear\", \"factor\": 8}}",
           "rope_scaling: type=linear without rope_type");
    refuse(GEMMA3 ", \"rope_scaling\": {\"rope_type\": \"linear\", \"factor\": 8}, "
                  "\"rope_parameters\": {\"full_attention\": {\"rope_theta\": 5}}}",
           "rope_scaling next to rope_parameters");
    refuse(GEMMA3 ", \"rope_parameters\": {\"rope_type\": \"default\", \"rope_theta\": 5}}",
           "rope_parameters: expected full_attention and sliding_attention");
    refuse(TINY ", \"rope_parameters\": {" YARN ", \"truncate\": false}}", "truncate=false: ");
    refuse(TINY ", \"rope_parameters\": {" YARN ", \"truncate\": null}}", "truncate: ");
    refuse(TINY ", \"rope_parameters\": {" YARN ", \"mscale\": \"x\"}}",
           "mscale=\"x\": must be a number");
}

#define WINDOWED ", \"use_sliding_window\": true, \"sliding_window\": 8"

/* Patterns of layers: what is not an integer or a word must not become the class's default. */
T(patterns_of_layers_have_the_type_of_their_class)
{
    static const char qwen[] =
        "{\"model_type\": \"qwen2\", " SHAPE(64, 2, 4, 4, 96) "\"vocab_size\": 50",
                      smol[] = "{\"model_type\": \"smollm3\", " SHAPE(64, 2, 4, 4,
                                                                      96) "\"vocab_size\": 50";
    static const struct {
        const char *base, *more, *part;
    } rows[] = {
        {qwen, WINDOWED ", \"max_window_layers\": \"1\"",
         "max_window_layers=\"1\": must be an integer"},
        {qwen, WINDOWED ", \"max_window_layers\": 0.5",
         "max_window_layers=0.5: must be an integer"},
        {qwen, WINDOWED ", \"layer_types\": [\"full_attention\", 1]",
         "layer_types: entry 2 must be a string"},
        {GEMMA3, ", \"sliding_window_pattern\": \"2\"", "sliding_window_pattern=\"2\": must be"},
        {smol, ", \"no_rope_layer_interval\": \"2\"",
         "no_rope_layer_interval=\"2\": must be an integer"},
        {smol, ", \"no_rope_layers\": [1, \"0\"]", "no_rope_layers: entry 2 must be an integer"},
        {smol, ", \"rope_scaling\": {\"rope_type\": 3, \"type\": \"linear\", \"factor\": 2}",
         "rope_type must be a string"},
        {smol,
         ", \"rope_parameters\": {\"rope_type\": \"yarn\", \"factor\": 4, \"rope_theta\": 1, "
         "\"original_max_position_embeddings\": 32}",
         "rope_theta=1: must be greater than 1"},
    };
    for (size_t i = 0; i < DS_LEN(rows); i++) {
        char text[900];
        snprintf(text, sizeof text, "%s%s}", rows[i].base, rows[i].more);
        refuse(text, rows[i].part);
    }
    has_value(IS_LLAMA, ", \"rope_theta\": 3580165449.0", "rope_theta", "3580165449");
}

/* Classes whose window is in every layer read no layer_types. */
T(kinds_of_layers_next_to_a_window_of_all_layers_are_refused)
{
    static const char rest[] =
        SHAPE(64, 2, 4, 4, 96) "\"vocab_size\": 50, \"sliding_window\": 8, "
                               "\"layer_types\": [\"full_attention\", \"sliding_attention\"]}";
    struct model_config c;
    char text[600];
    snprintf(text, sizeof text, "{\"model_type\": \"mixtral\", %s", rest);
    refuse(text, "layer_types: full_attention next to sliding_window=8");
    snprintf(text, sizeof text, "{\"model_type\": \"ministral\", %s", rest);
    t_ok(read_text(&c, text, strlen(text)), &err);
    t_str(c.window_layers, "1");
    opt_release(&model_group, &c);
}

/* A Mistral file without the key has a window of 4,096 tokens. */
T(a_mistral_file_without_a_window_has_its_class_default)
{
    has_value(IS_MISTRAL, "", "max_seq", "4096");
    has_value(IS_MISTRAL, "", "window", "0"); /* the whole context */
    has_value(IS_MISTRAL, ", \"sliding_window\": null", "window", "0");
    has_value(IS_MISTRAL, ", \"sliding_window\": 4095", "window", "4095");
    refuse(MISTRAL "\"sliding_window\": 0, \"vocab_size\": 32000, " CONTEXT(4096),
           "sliding_window must be a positive integer");
    refuse(MISTRAL "\"sliding_window\": -1, \"vocab_size\": 32000, " CONTEXT(4096),
           "sliding_window must be a positive integer");
}

/* Qwen's classes have the same default where use_sliding_window asks for a window. */
T(a_qwen_file_that_asks_for_a_window_has_its_class_default)
{
    static const char *const types[] = {"\"qwen2\"", "\"qwen3\"",
                                        "\"qwen2_moe\", \"num_experts\": 8",
                                        "\"qwen3_moe\", \"num_experts\": 8"};
    static const struct {
        const char *more;
        int64_t window;
    } rows[] = {{", \"use_sliding_window\": true", 4096},
                {", \"use_sliding_window\": true, \"sliding_window\": null", 0},
                {", \"use_sliding_window\": false", 0},
                {"", 0}};
    for (size_t i = 0; i < DS_LEN(types) * DS_LEN(rows); i++) {
        const char *more = rows[i % DS_LEN(rows)].more, *type = types[i / DS_LEN(rows)];
        struct model_config c;
        char text[600];
        snprintf(text, sizeof text,
                 "{\"model_type\": %s, \"max_window_layers\": 1, " SHAPE(
                     64, 2, 4, 4, 96) "\"vocab_size\": 50%s, \"max_position_embeddings\": 8192}",
                 type, more);
        t_truef(read_text(&c, text, strlen(text)) == 0, "%s%s: %s", type, more, err.text);
        t_eq(c.window, rows[i % DS_LEN(rows)].window);
        opt_release(&model_group, &c);
    }
}

/* One row per key: a value that changes the computation, and one that does not. */
static const struct {
    int family;
    const char *key, *changes, *neutral;
} changing[] = {
    {IS_LLAMA, "is_causal", "false", "true"},
    {IS_LLAMA, "use_bidirectional_attention", "true", "false"},
    {IS_LLAMA, "is_encoder_decoder", "true", "null"},
    {IS_LLAMA, "add_cross_attention", "true", "false"},
    {IS_LLAMA, "pruned_heads", "{\"0\": [1]}", "{}"},
    {IS_LLAMA, "attn_logit_softcapping", "50.0", "null"},
    {IS_LLAMA, "final_logit_softcapping", "30.0", "null"},
    {IS_LLAMA, "logit_scale", "0.0625", "1.0"},
    {IS_LLAMA, "logits_scaling", "8", "1"},
    {IS_LLAMA, "embedding_multiplier", "12", "1"},
    {IS_LLAMA, "residual_multiplier", "0.22", "1"},
    {IS_LLAMA, "clip_qkv", "8", "null"},
    {IS_LLAMA, "use_qk_norm", "true", "false"},
    {IS_LLAMA, "qk_layernorm", "true", "false"},
    {IS_LLAMA, "num_local_experts", "8", "0"},
    {IS_LLAMA, "num_experts", "8", "0"},
    {IS_LLAMA, "alibi", "true", "false"},
    {IS_LLAMA, "rope_interleaved", "true", "false"},
    {IS_LLAMA, "parallel_attn", "true", "false"},
    {IS_LLAMA, "use_parallel_residual", "true", "false"},
    {IS_LLAMA, "rotary_pct", "0.25", "1.0"},
    {IS_LLAMA, "partial_rotary_factor", "0.5", "1"},
    {IS_LLAMA, "hidden_act", "\"gelu\"", "\"silu\""},
    {IS_LLAMA, "layer_types", "[\"full_attention\", \"sliding_attention\"]",
     "[\"full_attention\", \"full_attention\"]"},
    {IS_LLAMA, "rope_scaling", "{\"rope_type\": \"yarn\", \"factor\": 4}", "null"},
    {IS_LLAMA, "quantization_config", "{\"quant_method\": \"awq\"}", "null"},
    {IS_MISTRAL, "is_causal", "false", "true"},
    {IS_LLAMA, "use_sliding_window", "true", "false"},
    {IS_MISTRAL, "layer_types", "[\"linear_attention\"]", "[\"sliding_attention\"]"},
    {IS_QWEN2, "use_mrope", "true", "false"},
    {IS_QWEN2, "is_causal", "false", "true"},
    {IS_GPT2, "is_causal", "false", "true"},
    {IS_GPT2, "scale_attn_weights", "false", "true"},
    {IS_GPT2, "scale_attn_weights", "null", "true"},
    {IS_GPT2, "scale_attn_by_inverse_layer_idx", "true", "null"},
    {IS_GPT2, "add_cross_attention", "true", "false"},
    {IS_GPT2, "activation_function", "\"relu\"", "\"gelu_new\""},
};

T(a_key_that_changes_the_computation_is_refused)
{
    for (size_t i = 0; i < DS_LEN(changing); i++) {
        char text[600], more[200];
        const char *key = changing[i].key;
        snprintf(text, sizeof text, "%s, \"%s\": %s}", bare[changing[i].family], key,
                 changing[i].changes);
        refuse(text, key);
        snprintf(more, sizeof more, ", \"%s\": %s", key, changing[i].neutral);
        has_value(changing[i].family, more, "method", "dense");
    }
}

/* ---- ends of texts ------------------------------------------------------------------------------- */

static void write_generation_config(const char *text)
{
    char path[1024];
    t_ok(fs_join(path, sizeof path, place(), "generation_config.json", &err), &err);
    if (text)
        t_ok(fs_write_file(path, text, strlen(text), &err), &err);
    else
        remove(path);
}

T(end_of_text_ids_are_read_from_both_files)
{
    has_value(IS_LLAMA, ", \"eos_token_id\": 2", "end_ids", "2");
    has_value(IS_LLAMA, ", \"eos_token_id\": [21, 8, 21, 9]", "end_ids", "21,8,9");
    has_value(IS_GPT2, ", \"eos_token_id\": null", "end_ids", "");
    has_value(IS_LLAMA, ", \"eos_token_id\": []", "end_ids", "");
    has_value(IS_LLAMA, ", \"eos_token_id\": -1", "end_ids", "");
    has_value(IS_LLAMA, ", \"eos_token_id\": [49, 50, -7, 9223372036854775807]", "end_ids", "49");
    write_generation_config("{\"eos_token_id\": [3, 4], \"temperature\": 0.6}");
    has_value(IS_LLAMA, ", \"eos_token_id\": 2", "end_ids", "3,4");
    write_generation_config("{\"eos_token_id\": null}");
    has_value(IS_LLAMA, ", \"eos_token_id\": 2", "end_ids", "2");
    write_generation_config("{}");
    has_value(IS_LLAMA, ", \"eos_token_id\": 2", "end_ids", "2");
    write_generation_config("{\"eos_token_id\": \"</s>\"}");
    t_fails(read_text(&(struct model_config){0}, TINY "}", sizeof TINY), &err, DS_EFORMAT,
            "generation_config.json: eos_token_id must be an integer");
    write_generation_config(NULL);
}

T(end_of_text_ids_must_be_integers)
{
    static const char *const wrong[] = {"\"2\"", "true",       "2.5",    "{}",   "{\"a\": 2}",
                                        "[[2]]", "[2, \"3\"]", "[null]", "1e308"};
    char text[400];
    for (size_t i = 0; i < DS_LEN(wrong); i++) {
        snprintf(text, sizeof text, TINY ", \"eos_token_id\": %s}", wrong[i]);
        refuse(text, "eos_token_id");
    }
    struct str many = {0};
    str_add(&many, TINY ", \"eos_token_id\": [0");
    for (int i = 1; i < 40; i++)
        str_addf(&many, ", %d", i);
    str_add(&many, "]}");
    refuse(str_text(&many), "eos_token_id: expected at most 24 different ids");
    str_release(&many);
}

T(end_of_text_ids_are_written_as_other_programs_read_them)
{
    static const char *const want[][2] = {{"", "\"eos_token_id\": null,"},
                                          {"7", "\"eos_token_id\": 7,"},
                                          {"7,300,12", "\"eos_token_id\": [7, 12],"}};
    for (size_t i = 0; i < DS_LEN(want); i++) {
        struct str text = {0};
        struct model_config c;
        struct model *m = kit_model("model.method=dense model.vocab=40", 1, 4, 0, 0);
        t_ok(opt_set(opt_find(&model_group, "model.end_ids"), &m->config, want[i][0], NULL, &err),
             &err);
        model_config_to_json(&text, &m->config, NULL);
        t_truef(strstr(text.p, want[i][1]), "%s lacks %s", text.p, want[i][1]);
        t_ok(read_text(&c, text.p, text.len), &err);
        t_str(c.end_ids, i == 2 ? "7,12" : want[i][0]);
        opt_release(&model_group, &c);
        str_release(&text);
        model_free(m);
    }
    struct err e = {0};
    struct model *m = NULL;
    static const char *const bad[] = {"x", "1,", ",1", "1,,2", "-1", "1 2", "0x1"};
    for (size_t i = 0; i < DS_LEN(bad); i++) {
        char options[80];
        snprintf(options, sizeof options, "model.method=dense model.end_ids=%s", bad[i]);
        if (!strchr(bad[i], ' '))
            t_fails(kit_try(&m, options, 1, 0, &e), &e, DS_ERANGE, "model.end_ids=");
    }
}

T(windows_as_long_as_the_context_have_no_effect)
{
    struct model_config c;
    refuse(MISTRAL "\"sliding_window\": \"wide\", \"vocab_size\": 32000, " CONTEXT(4096),
           "sliding_window must be a positive integer");
    const char *text = MISTRAL "\"sliding_window\": 4096, \"vocab_size\": 9, " CONTEXT(4096);
    t_ok(read_text(&c, text, strlen(text)), &err);
    t_eq(c.window, 0);
    opt_release(&model_group, &c);
}

/* Our checkpoints store their sizes twice; a change to only one of them is reported. */
T(hugging_face_sizes_must_agree_with_our_own_keys)
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
    refuse(str_text(&text), "hidden_size is 0, expected 96 from depthscope's model.dim");
    str_release(&text);
    model_free(m);
}

/* The file of such a model with was replaced by is; returns whether it is read. */
static int read_changed(const char *options, const char *was, const char *is)
{
    struct str text = {0}, changed = {0};
    struct model_config c;
    struct model *m = kit_model(options, 1, 4, 0, 0);
    model_config_to_json(&text, &m->config, NULL);
    const char *at = strstr(str_text(&text), was);
    t_truef(at != NULL, "%s lacks %s", str_text(&text), was);
    str_add_bytes(&changed, text.p, (size_t)(at - text.p));
    str_addf(&changed, "%s%s", is, at + strlen(was));
    int rc = read_text(&c, changed.p, changed.len);
    if (rc == 0)
        opt_release(&model_group, &c);
    str_release(&text);
    str_release(&changed);
    model_free(m);
    return rc == 0;
}

#define GEMMA3_OPTIONS                                                                             \
    "model.method=dense model.layers=2 model.dim=64 model.heads=4 model.norm_place=both "          \
    "model.norm_offset=true model.mlp=geglu model.qk_norm=head model.embed_scale=8 "               \
    "model.window=6 model.window_layers=0 model.rope_theta=500000"

/* transformers keeps our keys when it saves a changed configuration. */
T(hugging_face_keys_that_change_the_model_must_agree_with_our_own)
{
    static const char llama[] = "model.method=dense model.tied=false",
                      qwen[] = "model.method=dense model.attn_bias=qkv model.window=8 "
                               "model.window_layers=1",
                      edp[] = "model.method=edp", gemma[] = GEMMA3_OPTIONS;
    static const struct {
        const char *options, *was, *is, *part; /* NULL: read */
    } rows[] = {
        {llama, "\"rms_norm_eps\": 1e-05", "\"rms_norm_eps\": 0.001",
         "rms_norm_eps is 0.001, expected 1e-05 from depthscope's keys; remove the key "
         "depthscope to use the others"},
        {llama, "\"rope_theta\": 10000", "\"rope_parameters\": {\"rope_theta\": 500000.0}",
         "rope_theta is 500000, expected 10000"},
        {llama, "\"rope_theta\": 10000",
         "\"rope_parameters\": {\"rope_type\": \"linear\", \"factor\": 4.0}",
         "rope_scaling is {\"rope_type\": \"linear\", \"factor\": 4}, expected null"},
        {llama, "\"rope_theta\": 10000",
         "\"rope_parameters\": {\"rope_type\": \"default\", \"rope_theta\": 10000.0}", NULL},
        {llama, "\"attention_bias\": false", "\"attention_bias\": true",
         "attention_bias is true, expected false"},
        {llama, "\"hidden_act\": \"silu\"", "\"hidden_act\": \"gelu\"",
         "hidden_act: unsupported activation gelu"},
        {llama, "\"tie_word_embeddings\": false", "\"tie_word_embeddings\": true",
         "tie_word_embeddings is true, expected false"},
        {llama, "\"hidden_size\": 96", "\"hidden_size\": 192", "hidden_size is 192, expected 96"},
        {llama, "\"model_type\": \"llama\"", "\"model_type\": \"olmo2\"",
         "model_type is \"olmo2\", expected \"llama\""},
        {llama, "\"model_type\": \"llama\"", "\"model_type\": \"bert\"",
         "model_type is bert, expected llama"},
        {llama, "\"model_type\": \"llama\"", "\"model_type\": \"mistral\", \"sliding_window\": 9",
         "sliding_window is 9, expected absent"},
        {llama, "\"torch_dtype\"", "\"eos_token_id\": 2, \"torch_dtype\"", "duplicate"},
        {llama, "\"bos_token_id\": null,\n  \"pad_token_id\": null,\n  \"eos_token_id\": null",
         "\"eos_token_id\": 2", NULL},
        {qwen, "\"sliding_window\": 8", "\"sliding_window\": 7", "sliding_window is 7, expected 8"},
        {qwen, "\"full_attention\"", "\"sliding_attention\"", "layer_types is [\"sliding"},
        {qwen, "\"use_sliding_window\": true", "\"use_sliding_window\": false",
         "layer_types: sliding_attention needs sliding_window"},
        {"model.method=dense model.window=4096 model.max_seq=64", "\"torch", "\"torch", NULL},
        {"model.method=dense model.layers=2 model.window=8 model.window_layers=0-1", "\"torch",
         "\"torch", NULL},
        {gemma, "\"rope_local_base_freq\": 500000", "\"rope_local_base_freq\": 10000",
         "rope_local_base_freq is 10000, expected 500000"},
        {gemma, "  \"rope_local_base_freq\": 500000,\n", "", NULL},
        {gemma, "\"rope_local_base_freq\": 500000",
         "\"rope_parameters\": {\"full_attention\": {\"rope_type\": \"default\", \"rope_theta\": "
         "500000.0}, \"sliding_attention\": {\"rope_type\": \"default\", \"rope_theta\": 700.0}}",
         "rope_local_base_freq is 700, expected 500000"},
        {edp, "\"rms_norm_eps\": 1e-05", "\"rms_norm_eps\": 1e-5", NULL},
        {edp, "\"rms_norm_eps\": 1e-05", "\"rms_norm_eps\": 0.001",
         "rms_norm_eps is 0.001, expected 1e-05 from depthscope's model.norm_eps"},
        {edp, "\"model_type\": \"depthscope\"", "\"model_type\": \"llama\"",
         "model_type is llama, expected depthscope"},
    };
    for (size_t i = 0; i < DS_LEN(rows); i++) {
        int is_read = read_changed(rows[i].options, rows[i].was, rows[i].is);
        t_truef(is_read == !rows[i].part && (is_read || strstr(err.text, rows[i].part)), "%s: %s",
                rows[i].is, is_read ? "read" : err.text);
    }
}
