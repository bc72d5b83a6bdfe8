"""Random tiny models made with the public modeling code of Ouro (modeling_ouro.py and configuration_ouro.py, ByteDance/Ouro-1.4B).

ouro_hf.py make CODE DIR     a model a directory below DIR, with ids.json, all.json (logits after all loops), gates.json (exit gates, a row a
                             loop) and picked.json (logits of the exits that the threshold of picked.json's "threshold" picks)
ouro_hf.py check CODE DIR    the model in DIR, written by another program, has the logits of its logits.json for its ids.json

ouro_hf.py walk CODE DIR     a directory below DIR for every changed key of the configuration, with the logits.json of the public code if it runs

CODE is the directory of the two files; they are run, and nothing of them is in this tree.  They need transformers 4.55 to 4.57.
Exit status 0: all equal, 1: not, 77: no such package.
"""
import json
import os
import sys

os.environ["HF_HUB_OFFLINE"] = "1"
try:
    import torch
    from safetensors.torch import load_file, save_file
    from transformers.dynamic_module_utils import get_class_from_dynamic_module
except ImportError:
    sys.exit(77)

SHAPE = dict(hidden_size=8, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=2, intermediate_size=12, vocab_size=16,
             max_position_embeddings=64, rms_norm_eps=1e-5, rope_theta=1e4, pad_token_id=None, bos_token_id=None, eos_token_id=None)
MODELS = {
    "loops4": dict(total_ut_steps=4, early_exit_threshold=1.0),
    "loops3-grouped": dict(total_ut_steps=3, early_exit_threshold=0.6, num_key_value_heads=1, num_hidden_layers=3, tie_word_embeddings=True),
    "window": dict(total_ut_steps=2, early_exit_threshold=0.5, use_sliding_window=True, sliding_window=5, max_window_layers=1, head_dim=6),
}
THRESHOLD = 0.6
IDS = 12


def classes(code):
    return (get_class_from_dynamic_module("configuration_ouro.OuroConfig", code), get_class_from_dynamic_module("modeling_ouro.OuroForCausalLM", code))


def build(code, config):
    Config, Model = classes(code)
    config = Config(**config)
    config._attn_implementation = "eager"
    return Model(config).eval()


def make(code, root):
    for k, (name, more) in enumerate(MODELS.items()):
        torch.manual_seed(100 + k)
        model = build(code, dict(SHAPE, **more))
        with torch.no_grad():
            for key, p in model.named_parameters():
                p.copy_(1 + 0.3 * torch.randn_like(p) if "norm" in key else torch.randn_like(p) * (0.5 if "embed" in key else 0.25))
            ids = torch.randint(0, SHAPE["vocab_size"], (1, IDS))
            plain = model(ids, exit_threshold=2.0).logits[0]
            picked = model(ids, exit_threshold=THRESHOLD).logits[0]
            gates = torch.stack([torch.sigmoid(g[0, :, 0]) for g in model.model(ids)[2]])
        place = os.path.join(root, name)
        os.makedirs(place)
        save_file({key: p.contiguous() for key, p in model.state_dict().items() if not (model.config.tie_word_embeddings and key == "lm_head.weight")},
                  os.path.join(place, "model.safetensors"), {"format": "pt"})
        config = dict(model.config.to_dict(), architectures=["OuroForCausalLM"], auto_map={
            "AutoConfig": "configuration_ouro.OuroConfig", "AutoModelForCausalLM": "modeling_ouro.OuroForCausalLM"})
        rows = lambda x: [[float("%.8g" % v) for v in row] for row in x.tolist()]
        for file, value in (("config", config), ("ids", ids[0].tolist()), ("all", rows(plain)), ("gates", rows(gates)),
                            ("picked", dict(threshold=THRESHOLD, logits=rows(picked)))):
            with open(os.path.join(place, file + ".json"), "w") as f:
                json.dump(value, f)


def walk(code, root):
    from transformers_hf import INSTEAD_OF_NULL, NAMES, instead_of
    INSTEAD_OF_NULL.update(early_exit_threshold=[0.4, 1])
    torch.manual_seed(5)
    base = dict(SHAPE, **MODELS["window"], early_exit_step=None, tie_word_embeddings=False, rope_scaling=None)
    model = build(code, base)
    with torch.no_grad():
        for key, p in model.named_parameters():
            p.copy_(1 + 0.3 * torch.randn_like(p) if "norm" in key else torch.randn_like(p) * 0.4)
    config = dict(model.config.to_dict(), architectures=["OuroForCausalLM"], early_exit_threshold=2.0)
    ids = torch.randint(0, SHAPE["vocab_size"], (1, IDS))
    changes = [(k, v) for k, old in config.items() if k not in NAMES for v in instead_of(k, old)]
    changes += [(k, v) for k, v in (("early_exit_step", 0), ("chunk_size", 4), ("attention_bias", True), ("mlp_bias", True),
                                    ("partial_rotary_factor", 0.5), ("rope_parameters", {"rope_type": "linear", "factor": 2.0}))]
    for i, (key, value) in enumerate(changes):
        place = os.path.join(root, "%s.%d" % (key, i))
        os.makedirs(place)
        changed = dict(config, **{key: value})
        save_file({k: p.contiguous() for k, p in model.state_dict().items()}, os.path.join(place, "model.safetensors"), {"format": "pt"})
        for file, x in (("config", changed), ("ids", ids[0].tolist())):
            with open(os.path.join(place, file + ".json"), "w") as f:
                json.dump(x, f)
        try:
            other = build(code, {k: v for k, v in changed.items() if k not in ("model_type", "architectures", "torch_dtype")})
            other.load_state_dict(model.state_dict())
            with torch.no_grad():
                rows = other(ids).logits[0]
            if rows.isfinite().all():
                with open(os.path.join(place, "logits.json"), "w") as f:
                    json.dump(rows.tolist(), f)
        except Exception:  # of many classes: refused
            pass


def check(code, place):
    read = lambda file: json.load(open(os.path.join(place, file + ".json")))
    config = read("config")
    model = build(code, {key: v for key, v in config.items() if key not in ("depthscope", "model_type", "architectures", "torch_dtype")})
    missing, more = model.load_state_dict(load_file(os.path.join(place, "model.safetensors")), strict=False)
    if more or [key for key in missing if not (config["tie_word_embeddings"] and key == "lm_head.weight")]:
        sys.exit("tensors missing %s, unknown %s" % (missing, more))
    with torch.no_grad():
        error = (model(torch.tensor([read("ids")]), exit_threshold=2.0).logits[0] - torch.tensor(read("logits"))).abs().max().item()
    print("%s: largest difference %.3g" % (place, error))
    sys.exit(not error <= 1e-4)


{"make": make, "check": check, "walk": walk}[sys.argv[1]](os.path.abspath(sys.argv[2]), sys.argv[3])
