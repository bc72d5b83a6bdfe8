"""Adapters in the format of Hugging Face `peft`: made by it, or checked with it.

peft_hf.py make DIR     below DIR a tiny random model a case (base) with adapters beside it (lora), and ids.json, logits.json
peft_hf.py check DIR    the adapters of every case below DIR are put on their base; logits must be those of logits.json

Exit status 0: all equal, 1: not, 77: no such package.
"""
import json
import os
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


def qwen2():
    return transformers.Qwen2Config(**SHAPE, tie_word_embeddings=True)


def gpt2():
    return transformers.GPT2Config(**GPT2)


# name: base, what the adapters are
CASES = {
    "llama": (llama, dict(r=4, lora_alpha=8, target_modules=["q_proj", "v_proj"], lora_dropout=0.1)),
    "llama-rslora": (llama, dict(r=4, lora_alpha=8, target_modules=["o_proj"], use_rslora=True)),
    "llama-pattern": (llama, dict(r=2, lora_alpha=5, target_modules=r".*\.(gate|down)_proj")),
    "qwen2-all": (qwen2, dict(r=3, lora_alpha=2, target_modules="all-linear")),
    "gpt2": (gpt2, dict(r=4, lora_alpha=8, target_modules=["c_attn"], fan_in_fan_out=True)),
    "gpt2-all": (gpt2, dict(r=2, lora_alpha=8, target_modules="all-linear", fan_in_fan_out=True)),
}


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


def make(root):
    ids = [(7 * i * i + 3 * i + 1) % 32 for i in range(24)]
    for name, (config, lora) in CASES.items():
        base, where = (os.path.join(root, name, x) for x in ("base", "lora"))
        torch.manual_seed(7)
        AutoModelForCausalLM.from_config(config(), attn_implementation="eager").save_pretrained(base)
        plain = logits(base_of(base), ids)
        model = get_peft_model(base_of(base), LoraConfig(task_type="CAUSAL_LM", **lora)).eval()
        with torch.no_grad():
            for n, p in model.named_parameters():
                if "lora_" in n:
                    p.copy_(0.3 * torch.randn_like(p))
        model.save_pretrained(where)
        write(os.path.join(root, name, "ids.json"), ids)
        write(os.path.join(root, name, "logits.json"), logits(model, ids).tolist())
        assert (logits(model, ids) - plain).abs().max().item() > 1e-2, name


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
    sys.exit({"make": make, "check": check}[sys.argv[1]](sys.argv[2]))
