"""Models in the layout of Hugging Face `transformers`: made by it, or checked with it.

transformers_hf.py make DIR     one tiny random model a family below DIR, whole or in shards, and ids.json, logits.json beside each
transformers_hf.py check DIR    every model below DIR is loaded; its logits must be those of its logits.json
transformers_hf.py walk DIR     every key of every family's configuration changed, one at a time: a directory each, with the logits if it still loads
transformers_hf.py golden DIR   as make, but each with the values inside its blocks, in float32 and float64 (states.safetensors)

Exit status 0: all equal, 1: not, 77: no such package.
"""
import contextlib
import json
import os
import sys

os.environ["HF_HUB_OFFLINE"] = "1"
try:
    import torch
    import transformers
    from safetensors.torch import save_file
except ImportError:
    sys.exit(77)
from transformers import AutoModelForCausalLM

TOLERANCE = 1e-4
SHAPE = dict(hidden_size=16, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, intermediate_size=24,
             vocab_size=32, max_position_embeddings=64, rms_norm_eps=1e-5)
LLAMA3 = dict(rope_type="llama3", rope_theta=1e4, factor=4.0, low_freq_factor=1.0, high_freq_factor=4.0,
              original_max_position_embeddings=16)
MOE = dict(num_experts=6, num_experts_per_tok=3, moe_intermediate_size=12)
YARN = dict(rope_type="yarn", rope_theta=1e4, factor=4.0, original_max_position_embeddings=16)
PHI = dict(SHAPE, pad_token_id=0)
LONG = dict(rope_type="longrope", rope_theta=1e4, short_factor=[1.0, 1.3, 1.9], long_factor=[1.1, 2.5, 7.0])
DYNAMIC = dict(rope_type="dynamic", rope_theta=1e4, factor=3.0)
NEOX = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=24, vocab_size=32, max_position_embeddings=64)
STABLE = dict(NEOX, num_key_value_heads=2)
GPT2 = dict(n_embd=16, n_layer=2, n_head=4, n_inner=24, n_positions=64, vocab_size=32)
# name: configuration, largest shard
FAMILIES = {
    "llama": (lambda: transformers.LlamaConfig(**SHAPE), None),
    "llama-tied": (lambda: transformers.LlamaConfig(**SHAPE, tie_word_embeddings=True, attention_bias=True), None),
    "llama-shards": (lambda: transformers.LlamaConfig(**SHAPE, mlp_bias=True), "6KB"),
    "llama3": (lambda: transformers.LlamaConfig(**SHAPE, rope_parameters=LLAMA3), None),
    "mistral": (lambda: transformers.MistralConfig(**SHAPE, sliding_window=None, head_dim=8), None),
    "qwen2": (lambda: transformers.Qwen2Config(**SHAPE), "8KB"),
    "qwen2-tied": (lambda: transformers.Qwen2Config(**SHAPE, tie_word_embeddings=True), None),
    "mixtral": (lambda: transformers.MixtralConfig(**SHAPE, num_local_experts=4), None),
    "mixtral-tied": (lambda: transformers.MixtralConfig(**SHAPE, num_local_experts=3, num_experts_per_tok=3, tie_word_embeddings=True), "8KB"),
    "mixtral-window": (lambda: transformers.MixtralConfig(**SHAPE, num_local_experts=4, sliding_window=6), None),
    "qwen3-moe": (lambda: transformers.Qwen3MoeConfig(**SHAPE, **MOE, head_dim=6, norm_topk_prob=True), None),
    "qwen3-moe-plain": (lambda: transformers.Qwen3MoeConfig(**SHAPE, **MOE, head_dim=8, attention_bias=True, tie_word_embeddings=True,
                                                            use_sliding_window=True, sliding_window=7), "8KB"),
    "qwen3-moe-dense": (lambda: transformers.Qwen3MoeConfig(**dict(SHAPE, num_hidden_layers=4), **MOE, head_dim=6, mlp_only_layers=[3],
                                                            decoder_sparse_step=2), None),
    "qwen3-moe-no-experts": (lambda: transformers.Qwen3MoeConfig(**SHAPE, **MOE, head_dim=6, mlp_only_layers=[0, 1]), None),
    "qwen2-moe-dense": (lambda: transformers.Qwen2MoeConfig(**SHAPE, **MOE, shared_expert_intermediate_size=8, mlp_only_layers=[0]), None),
    "olmoe": (lambda: transformers.OlmoeConfig(**SHAPE, num_experts=5, num_experts_per_tok=2, pad_token_id=0), None),
    "olmoe-norm": (lambda: transformers.OlmoeConfig(**SHAPE, num_experts=4, num_experts_per_tok=4, norm_topk_prob=True, pad_token_id=0,
                                                    attention_bias=True), None),
    "qwen2-moe-window": (lambda: transformers.Qwen2MoeConfig(**dict(SHAPE, num_hidden_layers=4), **MOE, shared_expert_intermediate_size=8, qkv_bias=False,
                                                             use_sliding_window=True, sliding_window=5, max_window_layers=3), None),
    "qwen2-moe": (lambda: transformers.Qwen2MoeConfig(**SHAPE, **MOE, shared_expert_intermediate_size=20), None),
    "qwen2-moe-norm": (lambda: transformers.Qwen2MoeConfig(**SHAPE, **dict(MOE, num_experts_per_tok=1), norm_topk_prob=True,
                                                           shared_expert_intermediate_size=8), None),
    "ministral": (lambda: transformers.MinistralConfig(**SHAPE, head_dim=8, sliding_window=5, layer_types=["full_attention", "sliding_attention"]), None),
    "mistral-window": (lambda: transformers.MistralConfig(**SHAPE, sliding_window=5), None),
    "qwen2-window": (lambda: transformers.Qwen2Config(**SHAPE, use_sliding_window=True, sliding_window=7, max_window_layers=1), None),
    "qwen3": (lambda: transformers.Qwen3Config(**SHAPE, head_dim=6), None),
    "qwen3-tied": (lambda: transformers.Qwen3Config(**SHAPE, head_dim=8, tie_word_embeddings=True, attention_bias=True,
                                                    use_sliding_window=True, sliding_window=4, max_window_layers=0), None),
    "qwen3-yarn": (lambda: transformers.Qwen3Config(**SHAPE, head_dim=8, rope_parameters=YARN), "8KB"),
    "llama-linear": (lambda: transformers.LlamaConfig(**SHAPE, rope_parameters=dict(rope_type="linear", rope_theta=1e4, factor=4.0)), None),
    "gemma2": (lambda: transformers.Gemma2Config(**SHAPE, head_dim=8, query_pre_attn_scalar=24, sliding_window=5,
                                                 attn_logit_softcapping=2.0, final_logit_softcapping=1.5), None),
    "gemma2-plain": (lambda: transformers.Gemma2Config(**SHAPE, head_dim=8, query_pre_attn_scalar=8, sliding_window=5, attention_bias=True,
                                                       attn_logit_softcapping=None, final_logit_softcapping=None, tie_word_embeddings=False), None),
    "gemma3": (lambda: transformers.Gemma3TextConfig(**dict(SHAPE, num_hidden_layers=4), head_dim=8, query_pre_attn_scalar=20, sliding_window=6,
                                                     sliding_window_pattern=3), None),
    "gemma2-usual": (lambda: transformers.Gemma2Config(**SHAPE, head_dim=8, query_pre_attn_scalar=8, sliding_window=5), None),
    "gemma3-usual": (lambda: transformers.Gemma3TextConfig(**dict(SHAPE, num_hidden_layers=7), head_dim=8, query_pre_attn_scalar=8, sliding_window=6), None),
    "gemma3-linear": (lambda: transformers.Gemma3TextConfig(**dict(SHAPE, num_hidden_layers=3), head_dim=8, query_pre_attn_scalar=8, sliding_window=6,
        layer_types=["full_attention", "sliding_attention", "full_attention"], final_logit_softcapping=2.0, rope_parameters=dict(
            sliding_attention=dict(rope_type="default", rope_theta=500.0), full_attention=dict(rope_type="linear", rope_theta=3e4, factor=8.0))), None),
    "olmo2": (lambda: transformers.Olmo2Config(**SHAPE), None),
    "olmo2-tied": (lambda: transformers.Olmo2Config(**SHAPE, tie_word_embeddings=True, attention_bias=True), "6KB"),
    "smollm3": (lambda: transformers.SmolLM3Config(**dict(SHAPE, num_hidden_layers=5), pad_token_id=0), None),
    "smollm3-window": (lambda: transformers.SmolLM3Config(**SHAPE, pad_token_id=0, no_rope_layers=[0, 1], use_sliding_window=True, sliding_window=6,
                                                          attention_bias=True, mlp_bias=True, tie_word_embeddings=False), None),
    "gemma": (lambda: transformers.GemmaConfig(**SHAPE, head_dim=8), None),
    "gemma-biases": (lambda: transformers.GemmaConfig(**SHAPE, head_dim=4, attention_bias=True, tie_word_embeddings=False, hidden_act="gelu"), "6KB"),
    "olmo3": (lambda: transformers.Olmo3Config(**dict(SHAPE, num_hidden_layers=5), sliding_window=6, pad_token_id=0), None),
    "olmo3-yarn": (lambda: transformers.Olmo3Config(**SHAPE, sliding_window=5, pad_token_id=0, tie_word_embeddings=True, attention_bias=True,
        layer_types=["full_attention", "sliding_attention"], rope_parameters=dict(full_attention=dict(YARN),
                                                                                  sliding_attention=dict(rope_type="default", rope_theta=700.0))), None),
    "phi3": (lambda: transformers.Phi3Config(**PHI, sliding_window=6), None),
    "phi3-shards": (lambda: transformers.Phi3Config(**dict(PHI, hidden_size=24), partial_rotary_factor=0.75), "6KB"),
    "phi3-long": (lambda: transformers.Phi3Config(**dict(PHI, hidden_size=32), partial_rotary_factor=0.75, tie_word_embeddings=True,
                                                  original_max_position_embeddings=6, rope_parameters=dict(LONG)), None),
    "phi3-short": (lambda: transformers.Phi3Config(**dict(PHI, hidden_size=24), sliding_window=9, original_max_position_embeddings=32,
                                                   rope_parameters=dict(LONG)), None),
    "llama-longrope": (lambda: transformers.LlamaConfig(**dict(SHAPE, hidden_size=24), rope_parameters=dict(
        LONG, factor=2.0, original_max_position_embeddings=16)), None),
    "llama-dynamic": (lambda: transformers.LlamaConfig(**SHAPE, rope_parameters=dict(DYNAMIC)), None),
    "llama-dynamic-beyond": (lambda: transformers.LlamaConfig(**dict(SHAPE, max_position_embeddings=16), rope_parameters=dict(DYNAMIC)), None),
    "gpt-neox": (lambda: transformers.GPTNeoXConfig(**NEOX), None),
    "gpt-neox-serial": (lambda: transformers.GPTNeoXConfig(**NEOX, use_parallel_residual=False, attention_bias=False, hidden_act="gelu_fast",
                                                           tie_word_embeddings=True, rotary_pct=1.0, rotary_emb_base=500), "12KB"),
    "gpt-neox-linear": (lambda: transformers.GPTNeoXConfig(**NEOX, hidden_act="gelu_new", rope_parameters=dict(
        rope_type="linear", factor=4.0, rope_theta=700.0, partial_rotary_factor=0.5)), None),
    "stablelm": (lambda: transformers.StableLmConfig(**STABLE), None),
    "stablelm-parallel": (lambda: transformers.StableLmConfig(**STABLE, use_parallel_residual=True, use_qkv_bias=True, tie_word_embeddings=True,
                                                              partial_rotary_factor=0.5), "10KB"),
    "gpt2": (lambda: transformers.GPT2Config(**GPT2), None),
    "gpt2-shards": (lambda: transformers.GPT2Config(**GPT2, tie_word_embeddings=False), "6KB"),
}
GOLDEN = ["llama", "qwen2-tied", "mistral", "qwen3-tied", "gemma2", "gemma3", "olmo2", "smollm3-window", "phi3-long", "gpt-neox", "stablelm-parallel",
          "gpt2"]
ROWS = 8  # tokens of a golden


def random_model(config):
    torch.manual_seed(7)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval().float()
    with torch.no_grad():
        for p in model.parameters():  # norms and biases leave their symmetric starts
            p.add_(0.1 * torch.randn_like(p))
    return model


def logits(model, ids):
    with torch.no_grad():
        return model(torch.tensor([ids])).logits[0]


def write(path, value):
    with open(path, "w", encoding="utf-8") as f:
        json.dump(value, f)


def read(path):
    with open(path, encoding="utf-8") as f:
        return json.load(f)


def make(root):
    for name, (config, shard) in FAMILIES.items():
        where = os.path.join(root, name)
        model = random_model(config())
        model.save_pretrained(where, **({"max_shard_size": shard} if shard else {}))
        assert os.path.exists(os.path.join(where, "model.safetensors")) != bool(shard), name
        ids = [(7 * i * i + 3 * i + 1) % 32 for i in range(24)]
        write(os.path.join(where, "ids.json"), ids)
        write(os.path.join(where, "logits.json"), logits(model, ids).tolist())


def check(root):
    bad = 0
    names = sorted(os.listdir(root))
    for name in names:
        where = os.path.join(root, name)
        model, info = AutoModelForCausalLM.from_pretrained(where, output_loading_info=True, dtype=torch.float32,
                                                           attn_implementation="eager")
        off = {k: sorted(map(str, v)) for k, v in info.items() if k.endswith("_keys") and v}
        ours = torch.tensor(read(os.path.join(where, "logits.json")))
        far = (logits(model.eval(), read(os.path.join(where, "ids.json"))) - ours).abs().max().item()
        print("%s: %s, largest difference %.3g%s" % (name, type(model).__name__, far, ", %s" % off if off else ""))
        bad += bool(off) or not far <= TOLERANCE or ours.abs().max().item() < 0.1
    return 1 if bad or not names else 0


WALKED = ["llama", "mistral-window", "qwen2-window", "qwen3", "gemma2", "gemma3", "olmo2", "smollm3-window", "gpt2", "mixtral-window",
          "qwen3-moe", "qwen3-moe-dense", "olmoe", "qwen2-moe", "phi3", "phi3-long", "llama-dynamic", "gemma", "olmo3",
          "olmo3-yarn", "gpt-neox", "gpt-neox-linear", "stablelm-parallel"]
NAMES = ("architectures", "transformers_version", "torch_dtype", "dtype", "model_type", "_name_or_path", "id2label", "label2id")
INSTEAD_OF_NULL = {
    "sliding_window": [3], "final_logit_softcapping": [1.5], "attn_logit_softcapping": [1.5], "use_bidirectional_attention": [True],
    "quantization_config": [{"quant_method": "gptq", "bits": 4}], "head_dim": [8], "num_key_value_heads": [1, 4], "n_inner": [48],
    "rope_scaling": [{"rope_type": "linear", "factor": 2.0}, {"rope_type": "dynamic", "factor": 2.0},
                     {"rope_type": "longrope", "short_factor": [1.0, 1.5], "long_factor": [2.0, 3.0], "original_max_position_embeddings": 8},
                     {"type": "linear", "factor": 2.0}, {},
                     {"type": "su", "short_factor": [1.0, 1.5], "long_factor": [2.0, 3.0]},
                     {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8}],
}
UNWRITTEN = ["rope_scaling", "quantization_config", "sliding_window", "partial_rotary_factor", "attn_logit_softcapping",
             "final_logit_softcapping", "query_pre_attn_scalar", "use_sliding_window", "attention_bias", "mlp_bias", "clip_qkv",
             "use_parallel_residual", "qk_layernorm", "use_qkv_bias", "rotary_pct", "rotary_emb_base", "head_dim",
             "sliding_window_pattern", "layer_types", "rope_theta", "rope_local_base_freq", "original_max_position_embeddings"]
KNOWN = {"partial_rotary_factor": 0.5, "query_pre_attn_scalar": 5, "use_sliding_window": True, "attention_bias": True, "mlp_bias": True,
         "clip_qkv": 1.0, "sliding_window_pattern": 2, "layer_types": ["full_attention", "sliding_attention"], "rope_theta": 77.0, "rope_local_base_freq": 55.0,
         "original_max_position_embeddings": 12, "use_parallel_residual": True, "qk_layernorm": True, "use_qkv_bias": True,
         "rotary_pct": 0.5, "rotary_emb_base": 77}


def instead_of(key, value):
    """Other values that a file could have under a key."""
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        return [v for v in (value + 1, value - 1, 2 * value, 0, None) if v != value]
    if isinstance(value, float):
        return [1.5 * value, 0.0, None]
    if isinstance(value, str):
        return ["gelu", "relu", "gelu_pytorch_tanh", "silu", "gelu_new"] if key.startswith(("hidden_act", "activation")) else [value + "x"]
    if isinstance(value, dict):
        return ([dict(value, **{k: v}) for k, old in value.items() for v in instead_of(k, old)] +
                [dict(value, rope_type=t, factor=3.0, original_max_position_embeddings=8) for t in ("linear", "dynamic", "yarn", "longrope")
                 if "rope_type" in value])
    if isinstance(value, list):
        return [value[:-1], value[::-1], value + value[:1]]
    return INSTEAD_OF_NULL.get(key, [1, True, "x"])


def walk(root):
    """Where the library itself cannot load, or invents weights, there is nothing to compare: only a refusal is possible."""
    ids = [(7 * i * i + 3 * i + 1) % 32 for i in range(24)]
    for name in WALKED:
        base = os.path.join(root, ".base", name)
        random_model(FAMILIES[name][0]()).save_pretrained(base)
        config = read(os.path.join(base, "config.json"))
        changes = [(k, v) for k, old in config.items() if k not in NAMES for v in instead_of(k, old)]
        changes += [(k, v) for k in UNWRITTEN if k not in config for v in ([KNOWN[k]] if k in KNOWN else INSTEAD_OF_NULL[k])]
        for i, (key, value) in enumerate(changes):
            where = os.path.join(root, "%s.%s.%d" % (name, key, i))
            os.mkdir(where)
            os.symlink(os.path.join(base, "model.safetensors"), os.path.join(where, "model.safetensors"))
            write(os.path.join(where, "config.json"), dict(config, **{key: value}))
            write(os.path.join(where, "ids.json"), ids)
            try:
                model, info = AutoModelForCausalLM.from_pretrained(where, output_loading_info=True, dtype=torch.float32,
                                                                   attn_implementation="eager")
                rows = logits(model.eval(), ids)
                if not (info["missing_keys"] or info["mismatched_keys"]) and rows.isfinite().all():
                    write(os.path.join(where, "logits.json"), rows.tolist())
            except Exception:  # of many classes: refused
                pass


def hooks(model, keep):
    """What each module hands on, under the names that the test looks for."""
    def note(name, pick=lambda x: x):
        return lambda module, inputs, output: keep.__setitem__(
            name, pick(output[0] if isinstance(output, tuple) else output)[0].detach().clone().contiguous())

    def before(name):
        return lambda module, inputs: keep.__setitem__(name, inputs[0][0].detach().clone().contiguous())

    gpt2 = hasattr(model, "transformer")
    body = model.transformer if gpt2 else model.base_model
    for l, block in enumerate(body.h if gpt2 else body.layers):
        at = "%d." % l
        parts = {"xn": block.ln_1, "un": block.ln_2, "h": block} if gpt2 else {"h": block}
        if hasattr(block, "pre_feedforward_layernorm"):
            parts.update(xn=block.input_layernorm, un=block.pre_feedforward_layernorm)
        elif hasattr(block, "input_layernorm"):
            parts.update(xn=block.input_layernorm, un=block.post_attention_layernorm or block.input_layernorm)
        for name, module in parts.items():
            module.register_forward_hook(note(at + name))
        neox = hasattr(block, "attention")
        out = block.attn.c_proj if gpt2 else block.attention.dense if neox else block.self_attn.o_proj
        out.register_forward_pre_hook(before(at + "att"))
        if "un" in parts:
            parts["un"].register_forward_pre_hook(before(at + "u"))
        down = block.mlp.c_proj if gpt2 else block.mlp.dense_4h_to_h if neox else block.mlp.down_proj
        down.register_forward_pre_hook(before(at + "hid"))
        if hasattr(block, "self_attn") and hasattr(block.self_attn, "qkv_proj"):
            n = model.config.num_key_value_heads * block.self_attn.head_dim
            block.self_attn.qkv_proj.register_forward_hook(note(at + "v", lambda x, n=n: x[..., -n:]))
        elif neox:
            n = block.attention.head_size
            block.attention.query_key_value.register_forward_hook(note(at + "v", lambda x, n=n: x.unflatten(-1, (-1, 3, n))[..., 2, :].flatten(-2)))
        elif gpt2:
            n = model.config.n_embd
            block.attn.c_attn.register_forward_hook(note(at + "v", lambda x: x[..., 2 * n:]))
        else:
            block.self_attn.v_proj.register_forward_hook(note(at + "v"))
    (body.ln_f if gpt2 else body.final_layer_norm if hasattr(body, "final_layer_norm") else body.norm).register_forward_hook(note("xf"))


@contextlib.contextmanager
def all_double():
    """The library turns norms, angles and softmax to float32 whatever the model is in: here that word means float64 to it."""
    names, kept = ("float32", "float"), torch.float32
    method, default = torch.Tensor.float, torch.get_default_dtype()
    try:
        for name in names:
            setattr(torch, name, torch.float64)
        torch.Tensor.float = torch.Tensor.double
        torch.set_default_dtype(torch.float64)
        yield
    finally:
        for name in names:
            setattr(torch, name, kept)
        torch.Tensor.float = method
        torch.set_default_dtype(default)


def golden(root):
    for name in GOLDEN:
        where = os.path.join(root, name)
        model = random_model(FAMILIES[name][0]())
        model.save_pretrained(where)
        stale = os.path.join(where, "generation_config.json")
        if os.path.exists(stale):
            os.remove(stale)
        ids = [(5 * i * i + 3 * i + 2) % 32 for i in range(ROWS)]
        write(os.path.join(where, "ids.json"), ids)
        states = {}
        for kind, around in (("f32", contextlib.nullcontext), ("f64", all_double)):
            keep = {}
            with around():
                again = AutoModelForCausalLM.from_config(FAMILIES[name][0](), attn_implementation="eager").eval()
                again.load_state_dict(model.state_dict())
                hooks(again, keep)
                keep["logits"] = logits(again, ids)
            states.update({"%s.%s" % (kind, k): v.clone() for k, v in keep.items()})
        assert all(v.dtype == (torch.float64 if k[:3] == "f64" else torch.float32) for k, v in states.items())
        save_file(states, os.path.join(where, "states.safetensors"))


if __name__ == "__main__":
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    sys.exit({"make": make, "check": check, "walk": walk, "golden": golden}[sys.argv[1]](sys.argv[2]))
