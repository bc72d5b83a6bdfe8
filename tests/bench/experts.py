#!/usr/bin/env python3
"""Trains mixtures of experts with routers that stay balanced and routers that collapse; tabulates and draws their load.

    tests/bench/experts.py FOLDER --stories TEXTS --stories-test TEXT [--steps 400] [--seeds 1]

FOLDER holds runs/, results/ and figures/; what is there is not done again, so the script may be stopped at any time and
started again. A run of 400 steps takes about 40 seconds of one core. Needs the program (DEPTHSCOPE, else ./depthscope)
and no package.
"""
import argparse
import json
import math
import os
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PROGRAM = os.path.abspath(os.environ.get("DEPTHSCOPE", os.path.join(ROOT, "depthscope")))

COMMON = "quick threads=1 model.method=dense model.layers=4 model.dim=128 model.heads=4 model.vocab=1024 train.seq=128 train.batch=8 " \
         "train.lr=3e-3 train.warmup=30 train.probe_every=100 train.eval_every=1000 train.samples=0"
N = 8
EXPERTS = " model.experts=%d model.expert_ffn=128" % N
TOP_1 = EXPERTS + " model.experts_used=1 model.experts_norm=false"
# name: what differs. The weight is that of the load-balancing loss; the dense MLP has the width of two experts.
RUNS = {
    "dense": ("a dense MLP", " model.ffn=256"),
    "top2": ("2 of 8, weight 0.01", EXPERTS + " model.experts_aux=0.01"),
    "top2-aux1": ("2 of 8, weight 0.1", EXPERTS + " model.experts_aux=0.1"),
    "top2-joint": ("2 of 8, weight 0.1 over all layers", EXPERTS + " model.experts_aux=0.1 model.experts_balance=model"),
    "top2-aux0": ("2 of 8, weight 0", EXPERTS + " model.experts_aux=0"),
    "top1": ("1 of 8, weight 0.01", TOP_1 + " model.experts_aux=0.01"),
    "top1-aux1": ("1 of 8, weight 0.1", TOP_1 + " model.experts_aux=0.1"),
    "top1-aux0": ("1 of 8, weight 0", TOP_1 + " model.experts_aux=0"),
    "mode": ("2 of 8 and 2 no-ops, half of the choices of all layers", EXPERTS + " model.experts_noop=2 model.noop_share=0.5 model.experts_aux=0.01 model.experts_balance=model"),
    "mode-layer": ("2 of 8 and 2 no-ops, half of the choices of each layer", EXPERTS + " model.experts_noop=2 model.noop_share=0.5 model.experts_aux=0.01"),
}
FIGURE = ["top2-aux1", "top2-joint", "top2-aux0", "top1-aux1", "top1-aux0", "mode"]


def call(folder, *words):
    done = subprocess.run([PROGRAM, *words], cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit("depthscope %s: %s" % (" ".join(words[:6]), done.stderr.strip()))
    return done.stdout


def train(folder, run, keys, stories, steps, seed):
    where = os.path.join(folder, "runs", run)
    if os.path.exists(os.path.join(where, ".done")):
        return
    if os.path.exists(os.path.join(where, "config.yaml")):
        call(folder, "train", "--resume", run, "--quiet")
    else:
        call(folder, "train", *(COMMON + keys).split(), "data.path=" + stories, "train.steps=%d" % steps, "seed=%d" % seed, "--run", run, "--quiet")
    open(os.path.join(where, ".done"), "w").close()


def evaluate(folder, run, test):
    out = os.path.join(folder, "results", run + ".json")
    if not os.path.exists(out):
        text = call(folder, "eval", run, "data.path=" + test, "seq=128", "batch=8", "tokens=65536", "controls=false", "threads=1", "time_rounds=0", "--json")
        with open(out + ".part", "w") as f:
            f.write(text)
        os.replace(out + ".part", out)
    with open(out) as f:
        return json.load(f)


def loads(folder, run):
    """The newest matrix of a run: layers by experts, tokens since the one before."""
    last = None
    for line in call(folder, "export", "runs/" + run, "--to", "jsonl").splitlines():
        record = json.loads(line)
        last = record.get("expert_load", last)
    return last


def load_numbers(load, used):
    """Largest share of a layer's tokens, mean entropy of the load (1: even), experts without tokens and all; without no-ops."""
    shares, entropies, dead = [], [], 0
    for row in load:
        x = row[:N]
        shares.append(max(x) / sum(row) * used)
        entropies.append(-sum(n / sum(x) * math.log(n / sum(x)) for n in x if n > 0) / math.log(N))
        dead += sum(n == 0 for n in x)
    return max(shares), sum(entropies) / len(entropies), dead, N * len(load)


def main():
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("folder")
    ask.add_argument("--stories", required=True, help="texts to train on: a file or a folder")
    ask.add_argument("--stories-test", required=True, help="text to report on")
    ask.add_argument("--steps", type=int, default=400)
    ask.add_argument("--seeds", default="1")
    a = ask.parse_args()
    folder, stories, test = (os.path.abspath(p) for p in (a.folder, a.stories, a.stories_test))
    for path in (stories, test):
        if not os.path.exists(path):
            sys.exit("experts.py: %s: not found" % path)
    for name in ("runs", "results", "figures"):
        os.makedirs(os.path.join(folder, name), exist_ok=True)
    seeds = [int(s) for s in a.seeds.split(",")]
    print("| run | seed | loss | FLOPs per token | largest share of a layer's tokens | entropy of the load | experts without tokens |\n" + "|---" * 7 + "|", flush=True)
    for seed in seeds:
        for name, (what, keys) in RUNS.items():
            run = "%s-s%d" % (name, seed)
            train(folder, run, keys, stories, a.steps, seed)
            result = evaluate(folder, run, test)
            cells = ["-"] * 3
            if name != "dense":
                share, entropy, dead, n = load_numbers(loads(folder, run), 1 if "top1" in name else 2)
                cells = ["%.2f" % share, "%.3f" % entropy, "%d of %d" % (dead, n)]
            print("| %s | %d | %.3f | %.0fk | %s |" % (what, seed, result["loss"], result["flops_per_token"] / 1e3, " | ".join(cells)), flush=True)
    call(folder, "figure", "expert_load", *["runs/%s-s%d" % (n, seeds[0]) for n in FIGURE], "-o", "figures")
    call(folder, "figure", "training", *["runs/%s-s%d" % (n, seeds[0]) for n in RUNS], "-o", "figures")


if __name__ == "__main__":
    main()
