#!/usr/bin/env python3
"""The study that DEPTH.md plans: trains, calibrates, evaluates, tabulates and draws.

    tests/bench/depth.py FOLDER [--parts A1,A2,B] [--seeds 1,2,3] [--jobs N] [--quick]

FOLDER holds runs/, results/ and figures/; what is there is not done again, so the script may be
stopped at any time and started again. --quick uses few steps: it shows that everything works and
nothing else. Needs the program (DEPTHSCOPE, else ./depthscope) and no package.
"""
import argparse
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PROGRAM = os.path.abspath(os.environ.get("DEPTHSCOPE", os.path.join(ROOT, "depthscope")))

LOOP = "hops threads=1"
FIXED = LOOP + " model.loop_min=0"
STACK = FIXED + " model.loop=1 model.layers=8"
RULES = ["regret", "velocity", "acceleration", "scalar", "confidence", "kl", "random"]
GRID = [0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.6, 1]

# Of each part: runs as (name, keys, steps in hundreds). The whole loops draw 1 to T iterations a step, (T + 1) / 2 on average,
# so a loop of a fixed T / 2 has about their training FLOPs in as many steps; "long" has twice that.
PARTS = {
    "A1": {"loop": 6, "hops": 4,
           "runs": [("loop6", LOOP, 10), ("loop4", FIXED + " model.loop=4", 10), ("loop3", FIXED + " model.loop=3", 10),
                    ("loop3-long", FIXED + " model.loop=3", 20)]},
    "A2": {"loop": 10, "hops": 8,
           "runs": [("loop10", LOOP + " hops.k=8 model.loop=10", 25), ("loop5", FIXED + " hops.k=8 model.loop=5", 25),
                    ("loop5-long", FIXED + " hops.k=8 model.loop=5", 50)]},
    "B": {"loop": 0, "hops": 4,
          "runs": [("dense%d" % n, STACK + " model.method=dense model.layers=%d" % n, 20) for n in (3, 4, 5, 8)] +
                  [("edp", STACK + " model.method=edp", 20),
                   ("edp-fair", STACK + " edp-fair", 20),
                   ("mod", STACK + " model.method=mod mod.kv=all", 20),
                   ("dlr", STACK + " model.method=dlr", 20),
                   ("random", STACK + " model.method=random", 20),
                   ("static", STACK + " model.method=static", 20)]},
}


class Study:
    def __init__(self, folder, steps_by):
        self.folder = folder
        self.steps_by = steps_by
        for name in ("runs", "models", "results", "figures"):
            os.makedirs(os.path.join(folder, name), exist_ok=True)

    def path(self, *parts):
        return os.path.join(self.folder, *parts)

    def call(self, *words):
        done = subprocess.run([PROGRAM, *words], cwd=self.folder, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        if done.returncode != 0:
            raise SystemExit("depthscope %s: %s" % (" ".join(words), done.stderr.strip()))
        return done.stdout

    def train(self, run, keys, steps, seed):
        if os.path.exists(self.path("runs", run, ".done")):
            return
        if os.path.exists(self.path("runs", run, "config.yaml")):
            self.call("train", "--resume", run, "--quiet")
        else:
            steps = max(20, int(100 * steps * self.steps_by))
            more = ["train.steps=%d" % steps, "data.docs=%d" % (steps * 64 + 4000), "seed=%d" % seed]
            self.call("train", *keys.split(), *more, "--run", run, "--quiet")
        if "model.method=" not in keys:
            self.call("calibrate", run, "tokens=60000")
        open(self.path("runs", run, ".done"), "w").close()

    def refit(self, run, name, *options):
        """The model of a run with a halting predictor that is fitted anew."""
        if not os.path.exists(self.path(name, "config.json")):
            self.call("calibrate", run, "tokens=60000", *options, "-o", name + ".part")
            os.replace(self.path(name + ".part"), self.path(name))

    def evaluate(self, run, tag, seed, *options, timed=False, model=None):
        """One evaluation on unseen documents; JSON, and records for `compare`."""
        out = self.path("results", "%s--%s.json" % (run, tag))
        if not os.path.exists(out):
            docs = ["data.path=hops", "data.docs=2000", "seed=%d" % seed, "seq=29", "batch=64", "controls=false",
                    "threads=1", "time_rounds=%d" % (7 if timed else 0)]
            text = self.call("eval", model or run, *docs, *options, "--json", "-o", out[:-5] + ".mp")
            with open(out + ".part", "w") as f:
                f.write(text)
            os.replace(out + ".part", out)
        with open(out) as f:
            return json.load(f)


def halting(study, run, seed, loop, hops):
    """Every exit, every rule over the grid, the oracle, and the claim's operating point."""
    tune, test = 2000 + seed, 1000 + seed
    study.evaluate(run, "exits", test, "routing=dense", "exit.layer=1..%d" % loop)
    agree = "models/%s-agree" % run
    study.refit(run, agree, "halt.label=agree")
    for c in GRID:
        for rule in RULES:
            study.evaluate(run, "%s-%g" % (rule, c), test, "halt.rule=" + rule, "capacity=%g" % c)
        study.evaluate(run + "-agree", "regret-%g" % c, test, "capacity=%g" % c, "hops.k=%d" % hops, model=agree)
        study.evaluate(run, "oracle-%g" % c, test, "routing=oracle", "capacity=%g" % c)
    for rule in ("regret", "velocity"):  # the least budget that suffices on documents that are not reported
        enough = [c for c in GRID
                  if study.evaluate(run, "tune-%s-%g" % (rule, c), tune, "halt.rule=" + rule, "capacity=%g" % c)["answer_accuracy"] >= 0.997]
        c = enough[0] if enough else 1
        depth = study.evaluate(run, "claim-" + rule, test, "halt.rule=" + rule, "capacity=%g" % c, timed=True)["depth_mean"]
        study.evaluate(run, "claim-%s-random" % rule, test, "halt.rule=random", "capacity=%g" % c)
        as_deep = (depth - 1) / (loop - 1)  # random halting of answers at the same mean depth, which costs more
        study.evaluate(run, "claim-%s-random-depth" % rule, test, "halt.rule=random", "capacity=%.4f" % as_deep)


def one(study, part, name, keys, steps, seed):
    run = "%s-%s-s%d" % (part, name, seed)
    loop = PARTS[part]["loop"]
    study.train(run, keys, steps, seed)
    study.evaluate(run, "own", 1000 + seed, *(["routing=dense"] if loop else []), timed=not loop)
    if loop and name == "loop%d" % loop:
        halting(study, run, seed, loop, PARTS[part]["hops"])
    print("%s: done" % run, flush=True)


def mean(xs):
    xs = [x for x in xs if x is not None]
    return sum(xs) / len(xs) if xs else float("nan")


def table(study, parts, seeds):
    lines = []
    for part in parts:
        lines += ["", "## %s" % part, "", "| run | answers right | loss of answers | mean depth | FLOPs | batch time | r(depth, required) |",
                  "|---|---|---|---|---|---|---|"]
        for name, *_ in PARTS[part]["runs"]:
            tags = ["own"] + (["claim-%s%s" % (r, t) for r in ("regret", "velocity") for t in ("", "-random", "-random-depth")] if name == "loop%d" % PARTS[part]["loop"] else [])
            for tag in tags:
                rows = []
                for seed in seeds:
                    path = study.path("results", "%s-%s-s%d--%s.json" % (part, name, seed, tag))
                    if os.path.exists(path):
                        with open(path) as f:
                            rows.append(json.load(f))
                if rows:
                    numbers = [mean([r.get(k) for r in rows]) for k in
                               ("answer_accuracy", "answer_loss", "depth_mean", "flops_ratio", "batch_time_ratio", "corr_needed_depth")]
                    lines.append("| %s, %s (n=%d) | %s |" % (name, tag, len(rows), " | ".join("%.3f" % x for x in numbers)))
    with open(study.path("results", "tables.md"), "w") as f:
        f.write("\n".join(lines).lstrip() + "\n")
    print("\n".join(lines))


def figures(study, parts, seeds):
    for part in parts:
        loop = PARTS[part]["loop"]
        if not loop:
            continue
        whole = ["%s-loop%d-s%d" % (part, loop, s) for s in seeds]
        names = sorted(os.listdir(study.path("results")))

        def of(*tags):
            return ["results/" + n for n in names if n.endswith(".json") for w in whole for t in tags
                    if n.startswith(w + "--" + t) or n.startswith(w + "-agree--" + t)]

        rules = of(*(r + "-" for r in RULES), "oracle-", "exits")
        for figure, files in (("hops_accuracy", of("exits")), ("exit_rules", rules), ("depth_by_need", of("claim-regret.", "claim-velocity."))):
            if files:
                study.call("figure", figure, *files, "-o", "figures/" + part)


def main():
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("folder")
    ask.add_argument("--parts", default="A1,A2,B")
    ask.add_argument("--seeds", default="1,2,3,4,5")
    ask.add_argument("--jobs", type=int, default=max(1, os.cpu_count() or 1))
    ask.add_argument("--quick", action="store_true")
    a = ask.parse_args()
    parts, seeds = a.parts.split(","), [int(s) for s in a.seeds.split(",")]
    unknown = [p for p in parts if p not in PARTS]
    if unknown:
        sys.exit("depth.py: --parts %s: expected some of %s" % (unknown[0], ",".join(PARTS)))
    study = Study(os.path.abspath(a.folder), 0.01 if a.quick else 1)
    with ThreadPoolExecutor(a.jobs) as pool:
        jobs = [pool.submit(one, study, part, name, keys, steps, seed)
                for part in parts for seed in seeds if part != "B" or seed <= 3 for name, keys, steps in PARTS[part]["runs"]]
        for job in jobs:
            job.result()
    table(study, parts, seeds)
    figures(study, parts, seeds)


if __name__ == "__main__":
    main()
