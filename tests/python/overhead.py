"""What watching costs: two equal models train in turn, a step of one and a step of the other in random order; one is watched.

    python tests/python/overhead.py [--every 100] [--blocks 12] [--ms 200] [--experts]

A block is `every` such pairs of steps, so that it holds one log step with its probe; neighbours in time, both kinds of steps see the same
machine.  Prints the mean overhead of a block and its 95 % confidence interval (Student's t over blocks), of wall time and, on the CPU, of
the processor time of all threads, which other programs on the machine disturb less.  Needs torch; it is a measurement, not a test.
"""
import argparse
import math
import os
import random
import shutil
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "src", "python"))
import torch  # noqa: E402

import depthscope as ds  # noqa: E402

T95 = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23, 2.20, 2.18, 2.16, 2.14, 2.13, 2.12, 2.11, 2.10, 2.09)


class Mixture(torch.nn.Module):
    def __init__(self, width, experts=8):
        super().__init__()
        self.gate, self.top_k = torch.nn.Linear(width, experts), 2
        self.experts = torch.nn.ModuleList([torch.nn.Linear(width, width) for _ in range(experts)])

    def forward(self, x):
        flat = x.reshape(-1, x.shape[-1])
        w, index = torch.softmax(self.gate(flat), -1).topk(2)
        out = torch.zeros_like(flat)
        for e, expert in enumerate(self.experts):
            rows, k = (index == e).nonzero(as_tuple=True)
            out.index_add_(0, rows, expert(flat[rows]) * w[rows, k, None])
        return out.reshape(x.shape)


class Block(torch.nn.Module):
    def __init__(self, width, heads, has_experts):
        super().__init__()
        self.n1, self.n2, self.heads = torch.nn.LayerNorm(width), torch.nn.LayerNorm(width), heads
        self.qkv, self.out = torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width)
        self.mlp = Mixture(width) if has_experts else torch.nn.Sequential(torch.nn.Linear(width, 4 * width), torch.nn.GELU(),
                                                                          torch.nn.Linear(4 * width, width))

    def forward(self, x):
        b, n, c = x.shape
        q, k, v = (a.view(b, n, self.heads, -1).transpose(1, 2) for a in self.qkv(self.n1(x)).chunk(3, -1))
        a = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(a.transpose(1, 2).reshape(b, n, c))
        return x + self.mlp(self.n2(x))


class Model(torch.nn.Module):
    def __init__(self, layers=8, width=256, vocab=4096, context=128, has_experts=False):
        super().__init__()
        self.embed, self.place = torch.nn.Embedding(vocab, width), torch.nn.Embedding(context, width)
        self.h = torch.nn.ModuleList([Block(width, 8, has_experts) for _ in range(layers)])
        self.norm, self.head = torch.nn.LayerNorm(width), torch.nn.Linear(width, vocab, bias=False)

    def forward(self, ids):
        x = self.embed(ids) + self.place(torch.arange(ids.shape[1], device=ids.device))
        for block in self.h:
            x = block(x)
        return self.head(self.norm(x))


def main():
    p = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    p.add_argument("--every", type=int, default=100)
    p.add_argument("--blocks", type=int, default=12)
    p.add_argument("--ms", type=float, default=200)
    p.add_argument("--experts", action="store_true")
    p.add_argument("--tokens", type=int, default=32, help="of the probe")
    o = p.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cpu":
        torch.set_num_threads(1)  # threads that wait for each other spin, which would count
    torch.manual_seed(0)
    models = [Model(has_experts=o.experts).to(device) for _ in range(2)]
    opts = [torch.optim.AdamW(m.parameters(), 1e-4) for m in models]

    def clocks():
        if device == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter(), time.process_time()

    def step(which, batch, run=None, at=0):
        """Wall and processor time of a step; what the writer thread has to do counts for the step that logged it."""
        x = torch.randint(0, 4096, (batch, 128), device=device)
        began = clocks()
        loss = torch.nn.functional.cross_entropy(models[which](x).flatten(0, 1), x.flatten())
        loss.backward()
        opts[which].step()
        opts[which].zero_grad()
        if run is not None:
            run.log({"loss": loss.detach()}, step=at)
            run.flush()
        return [b - a for a, b in zip(began, clocks())]

    kind, batch = 0 if device == "cuda" else 1, 1
    for which in (0, 1):
        step(which, batch)
    while min(step(0, batch)[kind] for _ in range(3)) < 0.9e-3 * o.ms and batch < 512:
        batch = batch * 5 // 4 + 1
    print("batch %d x 128 tokens, %.0f ms a step on %s, every=%d, a probe of %d tokens"
          % (batch, 1e3 * min(step(0, batch)[kind] for _ in range(3)), device, o.every, o.tokens), flush=True)
    top, gains = tempfile.mkdtemp(prefix="ds-overhead-"), ([], [])
    run = ds.init(name="a", dir=top)
    watch = ds.watch(models[1], run, probe=[list(range(1, o.tokens + 1))], every=o.every)
    logged, whole = [], watch._log_step

    def timed(*args):
        began = clocks()
        whole(*args)
        logged.append(clocks()[kind] - began[kind])

    watch._log_step = timed
    try:
        at = 0
        for block in range(o.blocks):
            took = [[0.0, 0.0], [0.0, 0.0]]
            for _ in range(o.every):
                for which in random.sample((0, 1), 2):
                    got = step(which, batch, run if which else None, at)
                    took[which] = [a + b for a, b in zip(took[which], got)]
                at += 1
            for i in range(2):
                gains[i].append(100 * (took[1][i] / took[0][i] - 1))
            print("block %2d: %.2f ms without, %.2f ms with: wall %+.2f %%, processor %+.2f %%"
                  % (block + 1, 1e3 * took[0][kind] / o.every, 1e3 * took[1][kind] / o.every, gains[0][-1], gains[1][-1]), flush=True)
        run.finish()
        print("%d log steps of %.1f ms (median), the probe included: %.2f %% of %d steps"
              % (len(logged), 1e3 * sorted(logged)[len(logged) // 2], 100 * sorted(logged)[len(logged) // 2] / (took[0][kind]), o.every))
    finally:
        shutil.rmtree(top, ignore_errors=True)
    report("wall time", gains[0])
    if device == "cpu":
        report("processor time", gains[1])


def report(what, gains):
    n = len(gains)
    mean = sum(gains) / n
    if n < 2:
        print("overhead of %s %+.2f %%, one block" % (what, mean))
        return
    spread = math.sqrt(sum((g - mean) ** 2 for g in gains) / (n - 1) / n) * (T95[n - 2] if n - 2 < len(T95) else 1.96)
    print("overhead of %s %+.2f %%, 95 %% confidence interval %+.2f to %+.2f %%, n = %d blocks" % (what, mean, mean - spread, mean + spread, n))


main()
