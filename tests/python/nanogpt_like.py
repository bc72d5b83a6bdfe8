"""A training script in the style of nanoGPT, on text that it makes itself.  The lines that end in "# depthscope" are the change that
makes it a run; without them it is the script that it was (test_package.py runs both).

    python nanogpt_like.py [key=value ...]
"""
import math
import sys
import time

import torch
import torch.nn as nn
from torch.nn import functional as F
import depthscope as ds  # depthscope

# ---- settings; each can be given as key=value ----
out_dir = "runs"
name = "nanogpt"
n_layer, n_head, n_embd = 4, 2, 32
block_size, batch_size, max_iters, eval_interval = 32, 8, 60, 20
learning_rate, min_lr, warmup_iters, grad_clip, seed = 3e-3, 3e-4, 10, 1.0, 1337
pause = 0.0  # seconds after each step, to watch it
config_keys = [k for k, v in globals().items() if not k.startswith("_") and isinstance(v, (int, float, str))]
for word in sys.argv[1:]:
    key, _, value = word.partition("=")
    assert key in config_keys, "unknown setting %s" % key
    globals()[key] = type(globals()[key])(value)
config = {k: globals()[k] for k in config_keys}
torch.manual_seed(seed)
torch.set_num_threads(1)

# ---- data: characters of sentences that follow rules ----
words = "the a cat dog bird sees likes finds small old blue house tree river and then".split()
text = " ".join(words[int(i)] for i in torch.randint(len(words), (4000,))) + "."
chars = sorted(set(text))
stoi = {c: i for i, c in enumerate(chars)}


def encode(s):
    return [stoi[c] for c in s]


def decode(ids):
    return "".join(chars[i] for i in ids)


data = torch.tensor(encode(text))
train_data, val_data = data[: int(0.9 * len(data))], data[int(0.9 * len(data)):]


def get_batch(split):
    d = train_data if split == "train" else val_data
    ix = torch.randint(len(d) - block_size, (batch_size,))
    x = torch.stack([d[i:i + block_size] for i in ix])
    y = torch.stack([d[i + 1:i + 1 + block_size] for i in ix])
    return x, y


class CausalSelfAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.c_attn = nn.Linear(n_embd, 3 * n_embd)
        self.c_proj = nn.Linear(n_embd, n_embd)

    def forward(self, x):
        B, T, C = x.size()
        q, k, v = (t.view(B, T, n_head, C // n_head).transpose(1, 2) for t in self.c_attn(x).split(n_embd, dim=2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.c_proj(y.transpose(1, 2).contiguous().view(B, T, C))


class Block(nn.Module):
    def __init__(self, is_routed):
        super().__init__()
        self.router = nn.Linear(n_embd, 1) if is_routed else None
        if is_routed:
            nn.init.normal_(self.router.weight)
        self.ln_1 = nn.LayerNorm(n_embd)
        self.attn = CausalSelfAttention()
        self.ln_2 = nn.LayerNorm(n_embd)
        self.mlp = nn.Sequential(nn.Linear(n_embd, 4 * n_embd), nn.GELU(), nn.Linear(4 * n_embd, n_embd))

    def forward(self, x):
        y = x + self.attn(self.ln_1(x))
        y = y + self.mlp(self.ln_2(y))
        if self.router is None:
            return y
        score = torch.sigmoid(self.router(x))  # every second block is skipped by the tokens that score low
        return torch.where(score > 0.5, x + score * (y - x), x)


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.transformer = nn.ModuleDict(dict(
            wte=nn.Embedding(len(chars), n_embd), wpe=nn.Embedding(block_size, n_embd),
            h=nn.ModuleList([Block(i % 2 == 1) for i in range(n_layer)]), ln_f=nn.LayerNorm(n_embd)))
        self.lm_head = nn.Linear(n_embd, len(chars), bias=False)
        self.transformer.wte.weight = self.lm_head.weight

    def forward(self, idx, targets=None):
        x = self.transformer.wte(idx) + self.transformer.wpe(torch.arange(idx.size(1), device=idx.device))
        for block in self.transformer.h:
            x = block(x)
        logits = self.lm_head(self.transformer.ln_f(x))
        loss = None if targets is None else F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1))
        return logits, loss


def get_lr(it):
    if it < warmup_iters:
        return learning_rate * (it + 1) / (warmup_iters + 1)
    ratio = (it - warmup_iters) / max(1, max_iters - warmup_iters)
    return min_lr + 0.5 * (1.0 + math.cos(math.pi * ratio)) * (learning_rate - min_lr)


@torch.no_grad()
def estimate_loss():
    model.eval()
    out = {split: torch.stack([model(*get_batch(split))[1] for _ in range(4)]).mean() for split in ("train", "val")}
    model.train()
    return out


model = GPT()
optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate)
run = ds.init(name=name, dir=out_dir, config=config, steps=max_iters, layers=n_layer, control=["pause", "stop"])  # depthscope
ds.watch(model, run, probe=["the cat sees a bird and"], tokenizer=(encode, decode), every=eval_interval)  # depthscope
for iter_num in range(max_iters):
    lr = get_lr(iter_num)
    for group in optimizer.param_groups:
        group["lr"] = lr
    if iter_num % eval_interval == 0:
        losses = estimate_loss()
        print("step %d: train loss %.4f, val loss %.4f" % (iter_num, losses["train"], losses["val"]))
        run.log({"val_loss": losses["val"]}, step=iter_num)  # depthscope
    X, Y = get_batch("train")
    logits, loss = model(X, Y)
    loss.backward()
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), grad_clip)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    run.log({"loss": loss, "lr": lr, "grad_norm": norm, "tokens": (iter_num + 1) * X.numel()}, step=iter_num)  # depthscope
    if iter_num % 10 == 0:
        print("iter %d: loss %.4f" % (iter_num, loss.item()))
    time.sleep(pause)
