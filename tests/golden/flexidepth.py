"""FlexiDepth in plain PyTorch, from the equations of arXiv 2503.23798 as public code computes them; tensors under the names of the
checkpoint.  The published modeling file was not available, so this is no agreement with it.

flexidepth.py DIR     a model a directory below DIR, with ids.json, logits.json and gates.json (the routers' sigmoids, a row a layer)

Exit status 77: no such package.
"""
import json
import os
import sys

try:
    import torch
    import torch.nn.functional as F
    from safetensors.torch import save_file
except ImportError:
    sys.exit(77)

SHAPE = dict(hidden_size=8, num_attention_heads=2, vocab_size=16, max_position_embeddings=64, rms_norm_eps=1e-5, rope_theta=1e4)
MODELS = {
    "four": dict(num_hidden_layers=4, num_key_value_heads=1, intermediate_size=12, router_reduction_factor=2, proj_reduction_factor=3),
    "tied": dict(num_hidden_layers=5, num_key_value_heads=2, intermediate_size=32, tie_word_embeddings=True),
}
IDS = 12


def norm(x, weight, eps):
    return weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps))


def attention(c, w, x):
    n, heads, groups = x.shape[0], c["num_attention_heads"], c["num_key_value_heads"]
    D = c["hidden_size"] // heads
    q, k, v = ((x @ w("self_attn.%s_proj" % a).T).view(n, h, D).transpose(0, 1) for a, h in (("q", heads), ("k", groups), ("v", groups)))
    angle = torch.arange(n)[:, None] * c["rope_theta"] ** (-torch.arange(0, D, 2) / D)
    angle = torch.cat((angle, angle), -1)
    turn = lambda y: y * angle.cos() + torch.cat((-y[..., D // 2:], y[..., :D // 2]), -1) * angle.sin()
    q, k, v = turn(q), turn(k).repeat_interleave(heads // groups, 0), v.repeat_interleave(heads // groups, 0)
    scores = (q @ k.transpose(1, 2)) * D ** -0.5 + torch.full((n, n), float("-inf")).triu(1)
    return (scores.softmax(-1) @ v).transpose(0, 1).reshape(n, -1) @ w("self_attn.o_proj").T


def mlp(w, name, x, up="up_proj", down="down_proj"):
    return (F.silu(x @ w(name + ".gate_proj").T) * (x @ w(name + "." + up).T)) @ w(name + "." + down).T


def forward(c, p, ids):
    eps, first, gates = c["rms_norm_eps"], c["num_hidden_layers"] // 2, []
    h = p["model.embed_tokens.weight"][ids]
    for l in range(c["num_hidden_layers"]):
        w = lambda name: p["model.layers.%d.%s.weight" % (l, name)]
        x = norm(h, w("input_layernorm"), eps)
        gate, run = torch.ones(len(ids), 1), torch.ones(len(ids), 1)
        if l >= first:
            t = torch.tanh(norm(x @ w("router.router_enc").T, w("router.router_norm"), eps))
            gate = torch.sigmoid(t @ w("router.router_dec").T @ w("router.router_head").T)
            run = (gate > 0.5).float()
            gates.append(gate[:, 0].tolist())
        h = h + run * attention(c, w, x)
        x = norm(h, w("post_attention_layernorm"), eps)
        y = gate * mlp(w, "mlp", x)
        if l >= first:
            y = torch.where(run > 0, y, (1 - gate) * mlp(w, "router_proj", x, "down_proj", "up_proj"))
        h = h + y
    return norm(h, p["model.norm.weight"], eps) @ p["lm_head.weight"].T, gates


def params(c):
    C, I, V, D = c["hidden_size"], c["intermediate_size"], c["vocab_size"], c["hidden_size"] // c["num_attention_heads"]
    E, M, K = C // c.get("router_reduction_factor", 16) or 1, I // c.get("proj_reduction_factor", 16), D * c["num_key_value_heads"]
    shapes = {"model.embed_tokens": (V, C), "model.norm": (C,), "lm_head": (V, C)}
    for l in range(c["num_hidden_layers"]):
        at = "model.layers.%d." % l
        shapes.update({at + "input_layernorm": (C,), at + "post_attention_layernorm": (C,), at + "self_attn.q_proj": (C, C),
                       at + "self_attn.k_proj": (K, C), at + "self_attn.v_proj": (K, C), at + "self_attn.o_proj": (C, C),
                       at + "mlp.gate_proj": (I, C), at + "mlp.up_proj": (I, C), at + "mlp.down_proj": (C, I)})
        if l >= c["num_hidden_layers"] // 2:
            shapes.update({at + "router.router_enc": (E, C), at + "router.router_norm": (E,), at + "router.router_dec": (C, E),
                           at + "router.router_head": (1, C), at + "router_proj.gate_proj": (M, C), at + "router_proj.down_proj": (M, C),
                           at + "router_proj.up_proj": (C, M)})
    return {name + ".weight": 1 + 0.3 * torch.randn(s) if "norm" in name else torch.randn(s) * 0.5 for name, s in shapes.items()}


for k, (name, more) in enumerate(MODELS.items()):
    torch.manual_seed(7 + k)
    c = dict(SHAPE, **more)
    p = params(c)
    if c.get("tie_word_embeddings"):
        p["lm_head.weight"] = p["model.embed_tokens.weight"]
    ids = torch.randint(0, c["vocab_size"], (IDS,))
    logits, gates = forward(c, p, ids)
    place = os.path.join(sys.argv[1], name)
    os.makedirs(place, exist_ok=True)
    save_file({n: v for n, v in p.items() if not (c.get("tie_word_embeddings") and n == "lm_head.weight")}, os.path.join(place, "model.safetensors"))
    config = dict(c, model_type="ddllama", architectures=["DDLlamaForCausalLM"], hidden_act="silu",
                  auto_map={"AutoModelForCausalLM": "modeling_ddllama.DDLlamaForCausalLM"})
    rows = lambda x: [[float("%.8g" % v) for v in row] for row in x]
    for file, value in (("config", config), ("ids", ids.tolist()), ("logits", rows(logits.tolist())), ("gates", rows(gates))):
        with open(os.path.join(place, file + ".json"), "w") as f:
            json.dump(value, f)
