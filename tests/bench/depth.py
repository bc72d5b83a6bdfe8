#!/usr/bin/env python3
"""The study that DEPTH.md plans: trains, calibrates, evaluates, tabulates and draws.

    tests/bench/depth.py FOLDER [--parts A1,A2,B] [--seeds 1,2,3] [--jobs N] [--quick]
    tests/bench/depth.py FOLDER --parts C,D --stories TEXTS --stories-test TEXT

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
STACK = LOOP + " model.loop=1 model.layers=8"
RULES = ["regret", "velocity", "acceleration", "scalar", "confidence", "kl", "random"]
# The regret predictor with some features only: does second-order motion add to first-order?
FEATURES = {"velocity": "velocity", "motion": "velocity,acceleration", "scalar": "scalar", "confidence": "confidence"}
TIGHT = [0.1, 0.15, 0.2]
GRID = [0.05, 0.08, 0.1, 0.15, 0.2, 0.3, 0.4, 0.6, 1]

STORIES = "stories threads=1 model.layers=8 model.dim=64 model.heads=4"
PUBLISHED = "edp.early=2 edp.late=2 edp.signal=speed edp.history=literal edp.threshold=learned edp.temperature=1 " \
            "edp.step_code=every edp.penalty=quadratic edp.budget=loss edp.anneal=0"
RATES = {name: ["4e-3", "8e-3", "1.6e-2"] for name in ("dense5", "dense6", "dense8")}  # one is chosen; the others have that of dense8
RATES["loop8"] = ["5e-4", "1e-3", "2e-3"]  # from 2e-3 on it learns no more than how often each token occurs

# Of each part: runs as (name, keys, steps in hundreds). Loops of 6 and of 3 have the same training FLOPs; that of 10 draws 1 to
# 10 iterations a step, 5.5 on average, which is 1.1 times the loop of 5.
PARTS = {
    "A1": {"loop": 6, "hops": 4,
           "runs": [("loop6", LOOP, 10), ("loop4", LOOP + " model.loop=4", 15), ("loop3", LOOP + " model.loop=3", 20),
                    ("loop2", LOOP + " model.loop=2", 20)]},
    "A2": {"loop": 10, "hops": 8,
           "runs": [("loop10", LOOP + " hops.k=8 model.loop=10 model.loop_min=1", 25)] +
                  [("loop%d" % n, LOOP + " hops.k=8 model.loop=%d" % n, 25) for n in (5, 3)]},
    "B": {"loop": 0, "hops": 4,
          "runs": [("dense%d" % n, STACK + " model.method=dense model.layers=%d" % n, 15) for n in (3, 4, 5, 8)] +
                  [("edp", STACK + " model.method=edp " + PUBLISHED, 15),
                   ("edp-fair", STACK + " edp-fair", 15),
                   ("mod", STACK + " model.method=mod mod.kv=all", 15),
                   ("dlr", STACK + " model.method=dlr", 15),
                   ("random", STACK + " model.method=random", 15),
                   ("static", STACK + " model.method=static", 15)]},
    "C": {"loop": 0, "hops": 0,
          "runs": [("dense%d" % n, STORIES + " model.method=dense model.layers=%d" % n, 10) for n in (5, 6, 8)] +
                  [("loop8", STORIES + " model.method=dense model.layers=1 model.loop=8", 10),
                   ("layerskip", STORIES + " layerskip", 10),
                   ("edp", STORIES + " model.method=edp " + PUBLISHED, 10),
                   ("edp-fair", STORIES + " edp-fair", 10),
                   ("random", STORIES + " model.method=random", 10),
                   ("static", STORIES + " model.method=static", 10)]},
    # wide enough that a decoded token waits for memory, where verifying several tokens costs little more than one
    "D": {"loop": 0, "hops": 0,
          "runs": [("wide", "stories threads=1 layerskip model.layers=8 model.dim=512 model.heads=8 train.seq=128 train.warmup=50 "
                            "train.lr=1.5e-3 compute=bf16", 5)]},
}
TEXTS = ("C", "D")  # the parts that need --stories


class Study:
    def __init__(self, folder, steps_by, stories=None, stories_test=None):
        self.folder = folder
        self.steps_by = steps_by
        self.stories, self.stories_test = stories, stories_test
        for name in ("runs", "models", "results", "figures"):
            os.makedirs(os.path.join(folder, name), exist_ok=True)

    def path(self, *parts):
        return os.path.join(self.folder, *parts)

    def call(self, *words):
        done = subprocess.run([PROGRAM, *words], cwd=self.folder, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        if done.returncode != 0:
            raise SystemExit("depthscope %s: %s" % (" ".join(words[:8]), done.stderr.strip()))
        return done.stdout

    def train(self, run, keys, steps, seed, fits=False):
        if os.path.exists(self.path("runs", run, ".done")):
            return
        if os.path.exists(self.path("runs", run, "config.yaml")):
            self.call("train", "--resume", run, "--quiet")
        else:
            steps = max(20, int(100 * steps * self.steps_by))
            data = ["data.path=" + self.stories] if keys.startswith("stories") else ["data.docs=%d" % (steps * 64 + 4000)]
            self.call("train", *keys.split(), *data, "train.steps=%d" % steps, "seed=%d" % seed, "--run", run, "--quiet")
        if fits:
            self.call("calibrate", run, "tokens=30000")
        open(self.path("runs", run, ".done"), "w").close()

    def refit(self, run, name, *options):
        """The model of a run with a halting predictor that is fitted anew."""
        if not os.path.exists(self.path(name, "config.json")):
            self.call("calibrate", run, "tokens=30000", *options, "-o", name + ".part")
            os.replace(self.path(name + ".part"), self.path(name))

    def evaluate(self, run, tag, seed, *options, timed=False, model=None):
        """One evaluation on unseen text; JSON, and records for `compare`."""
        out = self.path("results", "%s--%s.json" % (run, tag))
        if not os.path.exists(out):
            data = ["data.path=hops", "data.docs=2000", "seed=%d" % seed, "seq=29", "batch=64"]
            if run.startswith("C-"):
                data = ["data.path=" + self.stories_test, "seq=256", "batch=8"]
            how = ["controls=false", "threads=1", "time_rounds=%d" % (7 if timed else 0)]
            text = self.call("eval", model or run, *data, *how, *options, "--json", "-o", out[:-5] + ".mp")
            with open(out + ".part", "w") as f:
                f.write(text)
            os.replace(out + ".part", out)
        with open(out) as f:
            return json.load(f)


def halting(study, run, seed, loop, hops):
    """Every exit, every rule over the grid, the oracle, and the claim's operating point."""
    tune, test = 2000 + seed, 5000 + seed
    study.evaluate(run, "exits", test, "routing=dense", "exit.layer=1..%d" % loop)
    agree = "models/%s-agree" % run
    study.refit(run, agree, "halt.label=agree")
    for name, features in FEATURES.items():
        model = "models/%s-%s" % (run, name)
        study.refit(run, model, "halt.features=" + features)
        for c in TIGHT:
            study.evaluate(run, "features-%s-%g" % (name, c), test, "capacity=%g" % c, "hops.k=%d" % hops, model=model)
    for c in GRID:
        for rule in RULES:
            study.evaluate(run, "%s-%g" % (rule, c), test, "halt.rule=" + rule, "capacity=%g" % c)
        study.evaluate(run + "-agree", "regret-%g" % c, test, "capacity=%g" % c, "hops.k=%d" % hops, model=agree)
        study.evaluate(run, "oracle-%g" % c, test, "routing=oracle", "capacity=%g" % c)
    for rule in ("regret", "velocity"):
        claim(study, run, rule, tune, test, loop, hops)


def claim(study, run, rule, tune, test, loop, hops):
    """The least FLOPs at which answers of documents that are not reported are right in 0.996 of all cases, over the budget and
    the iterations that every token takes; then this point on the reported documents, and random halting next to it."""
    best = None
    for least in (1, 2, 3):
        model = "models/%s-min%d" % (run, least)
        study.refit(run, model, "halt.min=%d" % least)
        for c in GRID:
            x = study.evaluate(run, "tune-%s-%d-%g" % (rule, least, c), tune, "halt.rule=" + rule, "capacity=%g" % c, "hops.k=%d" % hops, model=model)
            if (x["answer_accuracy"] >= 0.996 or (least, c) == (3, 1)) and (not best or x["flops_ratio"] < best[0]):
                best = (x["flops_ratio"], least, c, model)
            if x["answer_accuracy"] >= 0.996:
                break
    _, least, c, model = best
    at = lambda tag, rule, c, timed: study.evaluate(run, tag, test, "halt.rule=" + rule, "capacity=%.4f" % c, "hops.k=%d" % hops, model=model, timed=timed)
    depth = at("claim-" + rule, rule, c, True)["depth_mean"]
    at("claim-%s-random" % rule, "random", c, False)
    # random halting of answers at the same mean depth, which costs more
    at("claim-%s-random-depth" % rule, "random", (depth - least) / (loop - least), False)


def rated(study, name, keys):
    """The keys with the learning rate that has the lowest validation loss at seed 100."""
    base = name if name in RATES else "dense8"
    rows = json.loads(study.call("runs", "runs", "--json"))
    losses = {r["name"].split("-")[2][2:].replace("m", "e-"): r["val_loss"] for r in rows if r["name"].startswith("C-%s-lr" % base)}
    return keys + " train.lr=" + min(losses, key=losses.get)


def drafts(study, run, layers, lengths=("auto",)):
    """Self-speculation with the draft that leaves at each layer, next to ordinary decoding in the same process."""
    for e, length in ((e, n) for e in range(1, layers) for n in lengths):
        out = study.path("results", "%s--draft-%d%s.json" % (run, e, "" if length == "auto" else "x" + length))
        if not os.path.exists(out):
            text = study.call("generate", run, "--prompt", "Once upon a time", "--compare", "--json", "speculate=" + length,
                              "draft=exit:%d" % e, "max_tokens=200", "temperature=0", "threads=1")
            with open(out + ".part", "w") as f:
                f.write(text)
            os.replace(out + ".part", out)


def one(study, part, name, keys, steps, seed):
    run = "%s-%s-s%d" % (part, name, seed)
    loop = PARTS[part]["loop"]
    study.train(run, rated(study, name, keys) if part == "C" else keys, steps, seed, fits=loop > 0)
    if part == "D":
        drafts(study, run, 8, ("2", "4", "auto"))
        return
    study.evaluate(run, "own", 5000 + seed, *(["routing=dense"] if loop else []), timed=not loop)
    if loop and name == "loop%d" % loop:
        halting(study, run, seed, loop, PARTS[part]["hops"])
    if part == "C" and name in ("dense8", "layerskip"):
        study.evaluate(run, "exits", 0, "routing=dense", "exit.layer=1..8")
        drafts(study, run, 8)
    print("%s: done" % run, flush=True)


T95 = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776}  # Student's t, two-sided 95 %, by number of seeds


def shown(xs):
    """Mean and half the width of its 95 % interval."""
    xs = [x for x in xs if isinstance(x, (int, float)) and x == x]
    if not xs:
        return "-"
    mean = sum(xs) / len(xs)
    if len(xs) not in T95:
        return "%.3f" % mean
    spread = (sum((x - mean) ** 2 for x in xs) / (len(xs) - 1)) ** 0.5
    return "%.3f ± %.3f" % (mean, T95[len(xs)] * spread / len(xs) ** 0.5)


COLUMNS = {"answers right": "answer_accuracy", "loss of answers": "answer_loss", "loss less velocity's": "loss_to_velocity", "loss": "loss", "mean depth": "depth_mean",
           "FLOPs": "flops_of_whole", "time": "batch_time_ratio", "r(depth, required)": "corr_needed_depth",
           "acceptance": "acceptance", "accepted": "mean_accepted", "speed-up": "speedup", "FLOPs per token": "flops_token_ratio"}


WHOLE = {"A1": "loop6", "A2": "loop10", "B": "dense8", "C": "dense8", "D": "wide"}


def rows_of(study, part, name, tag, seeds):
    rows = []
    for seed in seeds:
        path = study.path("results", "%s-%s-s%d--%s.json" % (part, name, seed, tag))
        if os.path.exists(path):
            with open(path) as f:
                rows.append(json.load(f))
                if "ordinary_flops_token" in rows[-1]:
                    rows[-1]["flops_token_ratio"] = rows[-1]["flops_token"] / rows[-1]["ordinary_flops_token"]
    whole = study.path("results", "%s-%s-s%d--own.json" % (part, WHOLE[part], seeds[0]))
    if os.path.exists(whole):  # FLOPs as a share of the deepest model of the part, time as a share of the model's own full depth
        with open(whole) as f:
            dense = json.load(f)["flops_dense_per_token"]
        rows = [dict(r, flops_of_whole=r.get("flops_per_token", 0) / dense) for r in rows]
    return rows


def table(study, parts, seeds):
    lines = []

    def add(title, columns, entries):
        lines.extend(["", "## " + title, "", "| run | n | %s |" % " | ".join(columns), "|---|---|" + "---|" * len(columns)])
        for label, rows in entries:
            if rows:
                cells = [shown([r.get(COLUMNS[c]) for r in rows]) for c in columns]
                lines.append("| %s | %d | %s |" % (label, len(rows), " | ".join(cells)))

    for part in parts:
        names, loop = [r[0] for r in PARTS[part]["runs"]], PARTS[part]["loop"]
        if part == "D":
            add("D, %s" % names[0], ["acceptance", "accepted", "speed-up", "FLOPs per token"],
                [("exit %d, %s" % (e, n or "auto"), rows_of(study, part, names[0], "draft-%d%s" % (e, n and "x" + n), seeds))
                 for e in range(1, 8) for n in ("2", "4", "")])
            continue
        columns = ["loss"] if part == "C" else ["answers right", "loss of answers"]
        entries = [(n, rows_of(study, part, n, "own", seeds)) for n in names]
        entries += [("loop%d, %s%s" % (loop, rule, more.replace("-", " ")), rows_of(study, part, "loop%d" % loop, "claim-" + rule + more, seeds))
                    for rule in ("regret", "velocity") for more in ("", "-random", "-random-depth") if loop]
        add(part, columns + ["mean depth", "FLOPs", "time"] + ([] if part == "C" else ["r(depth, required)"]), entries)
        if loop:
            rows = {(f, c): rows_of(study, part, "loop%d" % loop, "features-%s-%g" % (f, c), seeds) for c in TIGHT for f in FEATURES}
            for (f, c), of in rows.items():  # paired by seed
                for r, first in zip(of, rows["velocity", c]):
                    r["loss_to_velocity"] = r["answer_loss"] - first["answer_loss"]
            add("%s, features of the regret predictor" % part, ["answers right", "loss of answers", "loss less velocity's", "FLOPs"],
                [("%s, capacity %g" % fc, of) for fc, of in rows.items()])
        if part == "C":
            add("C, drafts", ["acceptance", "accepted", "speed-up"],
                [("%s, exit %d" % (n, e), rows_of(study, part, n, "draft-%d" % e, seeds)) for n in ("dense8", "layerskip") for e in range(1, 8)])
    with open(study.path("results", "tables.md"), "w") as f:
        f.write("\n".join(lines).lstrip() + "\n")
    print("\n".join(lines))


def figures(study, parts, seeds):
    for part in parts:
        loop = PARTS[part]["loop"]
        if part == "D":
            files = ["results/" + n for n in sorted(os.listdir(study.path("results"))) if n.startswith("D-wide") and n.endswith(".json")]
            if files:
                study.call("figure", "speculation", *files, "-o", "figures/D")
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


def run_all(study, parts, seeds, workers):
    with ThreadPoolExecutor(workers) as pool:
        if "C" in parts:
            trial = [("C-%s-lr%s-s100" % (name, rate.replace("e-", "m")), keys + " train.lr=" + rate, steps, 100)
                     for name, keys, steps in PARTS["C"]["runs"] for rate in RATES.get(name, [])]
            list(pool.map(lambda x: study.train(*x), trial))
        jobs = [pool.submit(one, study, part, name, keys, steps, seed)
                for part in parts for seed in seeds if part not in ("B", "C", "D") or seed <= 3 for name, keys, steps in PARTS[part]["runs"]]
        for job in jobs:
            job.result()


def main():
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("folder")
    ask.add_argument("--parts", default="A1,A2,B")
    ask.add_argument("--seeds", default="1,2,3,4,5")
    ask.add_argument("--jobs", type=int, default=max(1, os.cpu_count() or 1))
    ask.add_argument("--quick", action="store_true")
    ask.add_argument("--show", action="store_true", help="only tables and figures of what is there")
    ask.add_argument("--stories", help="texts to train on: a file or a folder")
    ask.add_argument("--stories-test", help="texts to report on")
    a = ask.parse_args()
    parts, seeds = a.parts.split(","), [int(s) for s in a.seeds.split(",")]
    unknown = [p for p in parts if p not in PARTS]
    if unknown:
        sys.exit("depth.py: --parts %s: expected some of %s" % (unknown[0], ",".join(PARTS)))
    if set(parts) & set(TEXTS) and not a.show and not (a.stories and a.stories_test):
        sys.exit("depth.py: parts C and D: set --stories and --stories-test")
    study = Study(os.path.abspath(a.folder), 0.01 if a.quick else 1, *(p and os.path.abspath(p) for p in (a.stories, a.stories_test)))
    if not a.show:
        run_all(study, parts, seeds, a.jobs)
    table(study, parts, seeds)
    figures(study, parts, seeds)


if __name__ == "__main__":
    main()
