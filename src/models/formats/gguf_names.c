/* Maps parameter names to GGUF tensor names. */
#include "gguf_names.h"

#include <stdio.h>
#include <string.h>

#include "load_file.h"

static const char *const names[][2] = {
    {"model.embed_tokens.weight", "token_embd.weight"},
    {"model.norm.weight", "output_norm.weight"},
    {"lm_head.weight", "output.weight"},
    {"input_layernorm.weight", "attn_norm.weight"},
    {"self_attn.q_proj.weight", "attn_q.weight"},
    {"self_attn.k_proj.weight", "attn_k.weight"},
    {"self_attn.v_proj.weight", "attn_v.weight"},
    {"self_attn.o_proj.weight", "attn_output.weight"},
    {"self_attn.q_proj.bias", "attn_q.bias"},
    {"self_attn.k_proj.bias", "attn_k.bias"},
    {"self_attn.v_proj.bias", "attn_v.bias"},
    {"self_attn.o_proj.bias", "attn_output.bias"},
    {"post_attention_layernorm.weight", "ffn_norm.weight"},
    {"mlp.gate_proj.weight", "ffn_gate.weight"},
    {"mlp.up_proj.weight", "ffn_up.weight"},
    {"mlp.down_proj.weight", "ffn_down.weight"},
    {"mlp.gate_proj.bias", "ffn_gate.bias"},
    {"mlp.up_proj.bias", "ffn_up.bias"},
    {"mlp.down_proj.bias", "ffn_down.bias"},
};

int gguf_name(char *out, size_t size, const char *param)
{
    const char *rest;
    int l = load_layer(param, &rest);
    for (size_t i = 0; i < DS_LEN(names); i++) {
        if (strcmp(names[i][0], rest) != 0)
            continue;
        if (l < 0)
            snprintf(out, size, "%s", names[i][1]);
        else
            snprintf(out, size, "blk.%d.%s", l, names[i][1]);
        return 1;
    }
    return 0;
}
