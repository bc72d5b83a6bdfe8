"""Adapters in the format of Hugging Face `peft`: made by it, or checked with it.

peft_hf.py make DIR     below DIR a tiny random model a case (base) with adapters beside it (lora), and ids.json, logits.json
peft_hf.py walk DIR     the same for every field of LoraConfig with other values than its default, in DIR/FIELD-VALUE; without
                        logits.json where `peft` itself cannot load the directory
peft_hf.py golden DIR   some of the first in the layout of tests/golden/peft: bases (base-*), and adapters over them with logits.json
peft_hf.py check DIR    the adapters of every case below DIR are put on their base; logits must be those of logits.json

Exit status 0: all equal, 1: not, 77: no such package.
"""
import dataclasses
import json
import os
import shutil
import sys
import warnings

os.environ["HF_HUB_OFFLINE"] = "1"
try:
    import torch
    import transformers
    from peft import LoraConfig, PeftModel, get_peft_model, get_peft_model_state_dict
    from safetensors.torch import load_file
except ImportError:
    sys.exit(77)
from transformers import AutoModelForCausalLM

TOLERANCE = 1e-4
SHAPE = dict(hidden_size=16, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, intermediate_size=24,
             vocab_size=32, max_position_embeddings=64, rms_norm_eps=1e-5)
GPT2 = dict(n_embd=16, n_layer=2, n_head=4, n_inner=24, n_positions=64, vocab_size=32)


def llama():
    return transformers.LlamaConfig(**SHAPE)


def biased():
    return transformers.LlamaConfig(**SHAPE, attention_bias=True, mlp_bias=True)


def tied():
    return transformers.LlamaConfig(**SHAPE, tie_word_embeddings=True)


def qwen2():
    return transformers.Qwen2Config(**SHAPE, tie_word_embeddings=True)


def qwen3():
    return transformers.Qwen3Config(**SHAPE, head_dim=4, tie_word_embeddings=False)


def gemma2():
    return transformers.Gemma2Config(**SHAPE, head_dim=4, query_pre_attn_scalar=4, sliding_window=8)


def phi3():
    return transformers.Phi3Config(**SHAPE, pad_token_id=0, partial_rotary_factor=0.5)


def gpt2():
    return transformers.GPT2Config(**GPT2)


def neox():
    return transformers.GPTNeoXConfig(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=24, vocab_size=32,
                                      max_position_embeddings=64)


# name: base, what the adapters are
CASES = {
    "llama": (llama, dict(r=4, lora_alpha=8, target_modules=["q_proj", "v_proj"], lora_dropout=0.1)),
    "llama-rslora": (llama, dict(r=4, lora_alpha=8, target_modules=["o_proj"], use_rslora=True)),
    "llama-pattern": (llama, dict(r=2, lora_alpha=5, target_modules=r".*\.(gate|down)_proj")),
    "qwen2-all": (qwen2, dict(r=3, lora_alpha=2, target_modules="all-linear")),
    "gpt2": (gpt2, dict(r=4, lora_alpha=8, target_modules=["c_attn"], fan_in_fan_out=True)),
    "gpt2-all": (gpt2, dict(r=2, lora_alpha=8, target_modules="all-linear", fan_in_fan_out=True)),
    "phi3": (phi3, dict(r=4, lora_alpha=8, target_modules=["qkv_proj", "down_proj"], rank_pattern={"down_proj": 3})),
    "phi3-all": (phi3, dict(r=2, target_modules="all-linear", use_dora=True, modules_to_save=["norm"])),
    "neox": (neox, dict(r=4, lora_alpha=8, target_modules=["query_key_value", "dense_4h_to_h"], bias="lora_only")),
    "neox-all": (neox, dict(r=2, target_modules="all-linear", use_dora=True)),
    "neox-lora-bias": (neox, dict(r=2, target_modules=["query_key_value"], lora_bias=True)),
    "phi3-layer": (phi3, dict(r=2, target_modules=["gate_up_proj", "o_proj"], layers_to_transform=[1])),
    "layers": (llama, dict(r=2, target_modules=["v_proj", "up_proj"], layers_to_transform=[1], layers_pattern="layers")),
    "layer": (llama, dict(r=2, target_modules=["v_proj", "model.layers.1.self_attn.o_proj"], layers_to_transform=0)),
    "patterns": (llama, dict(r=2, lora_alpha=5, target_modules=["q_proj", "v_proj", "down_proj"], use_rslora=True,
                             rank_pattern={"v_proj": 4, r".*\.1\..*down_proj": 1, "down_proj": 3},
                             alpha_pattern={"self_attn.v_proj": 1.5, "^model.layers.0.mlp.down_proj": 16})),
    "exclude": (llama, dict(r=2, target_modules="all-linear", exclude_modules=r".*layers\.0.*(q|k)_proj")),
    "dora": (biased, dict(r=4, lora_alpha=8, target_modules=["q_proj", "o_proj", "up_proj", "down_proj"], use_dora=True)),
    "dora-rslora": (llama, dict(r=2, target_modules=["v_proj", "gate_proj"], use_dora=True, use_rslora=True,
                                rank_pattern={"gate_proj": 5}, layers_to_transform=[0])),
    "dora-gpt2": (gpt2, dict(r=2, target_modules=["c_attn", "mlp.c_proj"], use_dora=True, fan_in_fan_out=True)),
    "bias-all": (biased, dict(r=2, target_modules=["q_proj", "v_proj"], bias="all")),
    "bias-lora": (biased, dict(r=2, target_modules=["v_proj", "down_proj"], bias="lora_only")),
    "bias-gpt2": (gpt2, dict(r=2, target_modules=["c_attn"], bias="all", fan_in_fan_out=True)),
    "lora-bias": (llama, dict(r=2, target_modules=["v_proj", "down_proj"], lora_bias=True)),
    "lora-bias-gpt2": (gpt2, dict(r=2, target_modules=["c_attn", "c_proj"], lora_bias=True, fan_in_fan_out=True)),
    "save": (llama, dict(r=2, target_modules=["q_proj", "v_proj"], modules_to_save=["lm_head", "embed_tokens", "norm"])),
    "save-mlp": (biased, dict(r=2, target_modules=["v_proj", "up_proj"], modules_to_save=["layers.1.mlp", "k_proj"])),
    "save-gpt2": (gpt2, dict(r=2, target_modules=["c_proj"], modules_to_save=["ln_f", "wpe", "lm_head"])),
    "save-tied": (tied, dict(r=2, target_modules=["v_proj"], modules_to_save=["embed_tokens"])),
    "save-tied-head": (tied, dict(r=2, target_modules=["v_proj"], modules_to_save=["lm_head"])),
    "save-tied-both": (tied, dict(r=2, target_modules=["v_proj"], modules_to_save=["lm_head", "embed_tokens"])),
    "save-kept-tied": (tied, dict(r=2, target_modules=["v_proj"], modules_to_save=["embed_tokens"], ensure_weight_tying=True)),
    "qwen3": (qwen3, dict(r=2, target_modules="all-linear", modules_to_save=["q_norm", "model.norm"], use_dora=True)),
    "gemma2": (gemma2, dict(r=2, target_modules=["v_proj", "gate_proj"], modules_to_save=["post_feedforward_layernorm"])),
    "save-dora": (biased, dict(r=2, target_modules=["v_proj", "o_proj"], modules_to_save=["norm"], use_dora=True, bias="none")),
}
GOLDEN = ["patterns", "dora", "dora-rslora", "bias-all", "bias-lora", "lora-bias", "save", "save-tied", "layers"]

# field: values that differ from the default.  A field that is not here fails the walk.
PLAIN = dict(r=2, lora_alpha=4, target_modules=["q_proj", "v_proj"])
PISSA = ["pissa", "pissa_niter_2", "olora", "corda", "loftq", "lora_ga"]
WALK = {
    "task_type": ["SEQ_CLS", "FEATURE_EXTRACTION", None],
    "peft_type": ["IA3", "LOHA"],
    "auto_mapping": [{"base_model_class": "LlamaForCausalLM", "parent_library": "transformers"}],
    "peft_version": ["0.1.0", None],
    "base_model_name_or_path": ["../base/../base"],
    "revision": ["main"],
    "inference_mode": [True, False],
    "r": [1, 4, 16],
    "target_modules": [["o_proj"], r".*layers\.1.*(up|v)_proj", "all-linear", "ALL-LINEAR", ["lm_head", "q_proj"],
                       ["embed_tokens"], ["model.layers.0.mlp.gate_proj", "k_proj"]],
    "exclude_modules": [["v_proj"], "model.layers.0.*", []],
    "lora_alpha": [1, 2.5, 64],
    "lora_dropout": [0.5],
    "fan_in_fan_out": [True],
    "bias": ["all", "lora_only"],
    "use_rslora": [True],
    "modules_to_save": [["lm_head"], ["embed_tokens"], ["norm"], ["k_proj"], ["layers.1"], ["q_proj"], ["nothing"], []],
    "init_lora_weights": [False, "gaussian", "orthogonal", "eva", "mica"] + PISSA,
    "layers_to_transform": [0, [1], [0, 1], []],
    "layers_pattern": ["layers", ["layers", "h"]],
    "rank_pattern": [{"q_proj": 4}, {"layers.1.self_attn.v_proj": 3, "v_proj": 1}, {"^model.layers.0.*": 1}, {"proj": 5}],
    "alpha_pattern": [{"q_proj": 16}, {"layers.(0|1).self_attn.v_proj": 3, "v_proj": 1}, {"o_proj": 99}],
    "megatron_config": [{"tensor_model_parallel_size": 2}],
    "megatron_core": ["other.core"],
    "trainable_token_indices": [[1, 2, 3], {"embed_tokens": [4]}],
    "loftq_config": [{"loftq_bits": 4}],
    "eva_config": [{"rho": 2.0}],
    "corda_config": [{"corda_method": "ipm"}],
    "lora_ga_config": [{}],
    "use_dora": [True],
    "velora_config": [{}],
    "alora_invocation_tokens": [[1, 2], []],
    "use_qalora": [True],
    "qalora_group_size": [4],
    "monteclora_config": [{}],
    "layer_replication": [[[0, 1], [0, 2]]],
    "runtime_config": [{"ephemeral_gpu_offload": True}],
    "lora_bias": [True],
    "target_parameters": [["self_attn.o_proj.weight"], []],
    "use_bdlora": [{}],
    "arrow_config": [{}],
    "kasa_config": [{}],
    "ensure_weight_tying": [True],
}
# what these need besides
WITH = {"layers_pattern": dict(layers_to_transform=[1]), "ensure_weight_tying": dict(modules_to_save=["embed_tokens"]),
        "lora_bias": dict(lora_dropout=0.0)}


def logits(model, ids):
    with torch.no_grad():
        return model(torch.tensor([ids])).logits[0]


def write(path, value):
    with open(path, "w", encoding="utf-8") as f:
        json.dump(value, f)


def read(path):
    with open(path, encoding="utf-8") as f:
        return json.load(f)


def base_of(where):
    return AutoModelForCausalLM.from_pretrained(where, dtype=torch.float32, attn_implementation="eager").eval()


IDS = [(7 * i * i + 3 * i + 1) % 32 for i in range(24)]


def adapted(base, lora):
    """The base with adapters whose trained parameters have left their initial values."""
    model = get_peft_model(base_of(base), LoraConfig(**dict(dict(task_type="CAUSAL_LM"), **lora))).eval()
    torch.manual_seed(11)
    with torch.no_grad():
        for n, p in model.named_parameters():
            if p.requires_grad or "lora_" in n:
                p.add_((0.3 if "lora_" in n else 0.1) * torch.randn_like(p))
    return model


def make_base(where, config):
    torch.manual_seed(7)
    AutoModelForCausalLM.from_config(config(), attn_implementation="eager").save_pretrained(where)


def write_results(root, values):
    write(os.path.join(root, "ids.json"), IDS)
    write(os.path.join(root, "logits.json"), values.tolist())


def make(root, names=tuple(CASES)):
    for name in names:
        config, lora = CASES[name]
        base, where = (os.path.join(root, name, x) for x in ("base", "lora"))
        make_base(base, config)
        plain = logits(base_of(base), IDS)
        model = adapted(base, lora)
        model.save_pretrained(where)
        there = logits(PeftModel.from_pretrained(base_of(base), where).eval(), IDS)
        assert torch.equal(logits(model, IDS), there), name
        write_results(os.path.join(root, name), there)
        assert (there - plain).abs().max().item() > 1e-2, name


def golden(root):
    """DIR/BASE as often as needed, DIR/CASE with the adapters and logits of one case."""
    SHAPE.update(hidden_size=8, intermediate_size=12, vocab_size=16)
    IDS[:] = [x % 16 for x in IDS[:10]]
    kept = ("config.json", "model.safetensors", "adapter_config.json", "adapter_model.safetensors")
    for name in GOLDEN:
        config, lora = CASES[name]
        base, where = os.path.join(root, "base-" + config.__name__), os.path.join(root, name)
        make_base(base, config)
        adapted(base, lora).save_pretrained(where)
        there = logits(PeftModel.from_pretrained(base_of(base), where).eval(), IDS)
        for path in (base, where):
            for f in os.listdir(path):
                if f not in kept:
                    os.unlink(os.path.join(path, f))
        path = os.path.join(where, "adapter_config.json")
        write(path, dict(read(path), base_model_name_or_path="../" + os.path.basename(base)))
        write(os.path.join(where, "logits.json"), [[float("%.6g" % x) for x in row] for row in there.tolist()])
    write(os.path.join(root, "ids.json"), IDS)


def loaded(base, where):
    try:
        return logits(PeftModel.from_pretrained(base_of(base), where).eval(), IDS)
    except Exception as e:  # whatever it is, the directory has no meaning to compare with
        print("%s: %s" % (where, type(e).__name__))
        return None


def walk(root):
    fields = [f.name for f in dataclasses.fields(LoraConfig)]
    missing = sorted(set(fields) - set(WALK))
    if missing:
        print("fields of LoraConfig that the walk does not know: %s" % ", ".join(missing))
        return 1
    config = os.path.join(root, "config")
    make_base(config, biased)
    plain = os.path.join(root, "plain")
    adapted(config, PLAIN).save_pretrained(plain)
    for field in fields:
        for k, value in enumerate(WALK[field]):
            here = os.path.join(root, "%s-%d" % (field, k))
            base, where = os.path.join(here, "base"), os.path.join(here, "lora")
            shutil.copytree(config, base)
            try:
                if field in ("peft_type", "base_model_name_or_path", "task_type"):
                    raise ValueError("not an argument")
                lora = dict(PLAIN, **WITH.get(field, {}))
                lora[field] = value
                adapted(base, lora).save_pretrained(where)
            except Exception:  # it cannot be made: someone else's file may still say so
                shutil.rmtree(where, ignore_errors=True)
                shutil.copytree(plain, where)
                path = os.path.join(where, "adapter_config.json")
                edited = read(path)
                edited[field] = value
                write(path, edited)
            path = os.path.join(where, "adapter_config.json")
            edited = read(path)
            if field != "base_model_name_or_path":
                edited["base_model_name_or_path"] = base
            write(path, edited)
            result = loaded(base, where)
            if result is not None:
                write_results(here, result)
    for x in (config, plain):
        shutil.rmtree(x)
    return 0


def check(root):
    bad = 0
    names = sorted(os.listdir(root))
    for name in names:
        base, where = (os.path.join(root, name, x) for x in ("base", "lora"))
        ids, ours = (read(os.path.join(root, name, x + ".json")) for x in ("ids", "logits"))
        plain = logits(base_of(base), ids)
        model = PeftModel.from_pretrained(base_of(base), where).eval()
        file = load_file(os.path.join(where, "adapter_model.safetensors"))
        state = get_peft_model_state_dict(model)
        same = sorted(file) == sorted(state) and all(torch.equal(file[k], state[k]) for k in file)
        ours = torch.tensor(ours)
        far = [(logits(m, ids) - ours).abs().max().item() for m in (model, model.merge_and_unload())]
        moved = (plain - ours).abs().max().item()
        print("%s: largest difference %.3g, merged %.3g, from the base %.3g%s" %
              (name, *far, moved, "" if same else ", other tensors"))
        bad += not same or not max(far) <= TOLERANCE or moved < 1e-2
    return 1 if bad or not names else 0


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    sys.exit({"make": make, "walk": walk, "golden": golden, "check": check}[sys.argv[1]](sys.argv[2]))
