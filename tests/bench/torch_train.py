#!/usr/bin/env python3
"""Training steps compared with PyTorch, in alternating turns: torch_train.py [shape=big|small] [compute=fp32,bf16] [mode=eager,compile]
[rounds=5] [steps=3].  PYTHON=... names the interpreter that has torch; OMP_NUM_THREADS the threads of both (2).

Both do the same work on random tokens: forward, loss over the vocabulary, backward, clipping at norm 1, AdamW.  PyTorch
gets its best: an allocator that keeps its memory, huge pages, fused AdamW and fused attention where it has them."""
import os
import sys
import time

import side_by_side

SHAPES = {"big": (12, 512, 8, 32000, 8, 256), "small": (6, 256, 4, 4096, 8, 256)}
TUNED = {
    "MALLOC_MMAP_THRESHOLD_": "8589934592",
    "MALLOC_TRIM_THRESHOLD_": "8589934592",
    "MALLOC_TOP_PAD_": "1073741824",
    "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1",
}
if " avx512f " in (open("/proc/cpuinfo").read() if os.path.exists("/proc/cpuinfo") else ""):
    TUNED["ATEN_CPU_CAPABILITY"] = "avx512"


def make_model(layers, dim, heads, vocab, seq):
    import torch
    from torch import nn
    from torch.nn import functional as F

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
            self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
            self.up, self.down = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)
            self.register_buffer("mask", torch.ones(seq, seq, dtype=torch.bool).triu(1), persistent=False)

        def attend(self, q, k, v):
            if hasattr(F, "scaled_dot_product_attention"):
                return F.scaled_dot_product_attention(q, k, v, is_causal=True)
            scores = (q @ k.transpose(-2, -1)) * (q.shape[-1] ** -0.5)
            return F.softmax(scores.masked_fill(self.mask, float("-inf")), dim=-1) @ v

        def forward(self, x):
            B, T, C = x.shape
            q, k, v = (y.view(B, T, heads, C // heads).transpose(1, 2) for y in self.qkv(self.norm1(x)).split(C, dim=2))
            x = x + self.out(self.attend(q, k, v).transpose(1, 2).reshape(B, T, C))
            return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.place = nn.Embedding(vocab, dim), nn.Embedding(seq, dim)
            self.blocks = nn.ModuleList(Block() for _ in range(layers))
            self.norm = nn.LayerNorm(dim)
            self.head = nn.Linear(dim, vocab, bias=False)
            self.head.weight = self.embed.weight
            nn.init.normal_(self.embed.weight, std=0.02)

        def forward(self, x, y):
            h = self.embed(x) + self.place.weight
            for b in self.blocks:
                h = b(h)
            return F.cross_entropy(self.head(self.norm(h)).view(-1, vocab), y.view(-1))

    return Model()


def start(want):
    import torch
    layers, dim, heads, vocab, B, T = SHAPES[want["shape"]]
    torch.set_num_threads(int(side_by_side.THREADS))
    torch.manual_seed(1)
    model = make_model(layers, dim, heads, vocab, T)
    try:
        optimiser = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    except (RuntimeError, TypeError, ValueError):
        optimiser = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1)
    run = torch.compile(model) if want["mode"] == "compile" else model
    x, y = torch.randint(vocab, (B, T)), torch.randint(vocab, (B, T))

    def step():
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=want["compute"] == "bf16"):
            loss = run(x, y)
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()

    step()
    step()
    return (step, B * T), {"version": torch.__version__}


def turn(state, want):
    step, tokens = state
    t = time.perf_counter()
    for _ in range(want["steps"]):
        step()
    return {"tokens_s": want["steps"] * tokens / (time.perf_counter() - t)}


def compare(o, compute, mode):
    name = "%s %s" % (compute, mode)
    try:
        worker = side_by_side.Worker(os.path.abspath(__file__), {"shape": o["shape"], "compute": compute, "mode": mode}, TUNED)
    except side_by_side.Missing as e:
        print("%-26s not measured: %s" % (name, e))
        return
    ours, theirs, share = [], [], None
    try:
        for _ in range(int(o["rounds"])):
            row = side_by_side.bench("only=train step dense", "shape=" + o["shape"], "compute=" + compute, "rounds=3")["train step dense"]
            ours.append(row["median"])
            share = (row["share"], row["limit"] + " peak")
            theirs.append(worker.ask({"steps": int(o["steps"])})["tokens_s"])
        side_by_side.line(name + ", " + worker.about["version"], ours, theirs, share)
    except side_by_side.Missing as e:
        print("%-26s not measured: %s" % (name, e))
    worker.close()


def main():
    o = side_by_side.settings({"shape": "big", "compute": "fp32,bf16", "mode": "eager,compile", "rounds": "5", "steps": "3"})
    if o["shape"] not in SHAPES:
        sys.exit("shape is one of %s" % " ".join(SHAPES))
    side_by_side.need("torch")
    print("%s: %d x %d, %d heads, vocab %d, batch %d x %d, %s threads; tokens/s of a training step" % (
        (o["shape"],) + SHAPES[o["shape"]] + (side_by_side.THREADS,)))
    print("%-26s %-26s %-26s %s" % ("", "depthscope", "torch", "ratio"), flush=True)
    for compute in o["compute"].split(","):
        for mode in o["mode"].split(","):
            compare(o, compute, mode)


if sys.argv[1:] == ["worker"]:
    side_by_side.serve(start, turn)
else:
    main()
