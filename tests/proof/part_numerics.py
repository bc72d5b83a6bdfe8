"""Numerics: every kernel against long double, gradients of random models, the same bits at any number of threads.

The programs are ordinary tests with a fixed seed; here they go on from the seed where the last run stopped.  A failure is kept with its
seed until the same seed passes again.
"""
import os
import re
import subprocess

from proof import ROOT

TITLE = "kernels against an exact reference, gradients of random models against differences, bits over threads and instruction sets"
QUICK = True
LEVELS = ["ref", "avx2", "avx512", "amx"]
BUILD = os.path.join(ROOT, os.environ.get("BUILD_DIR", "build/release"))
# (name in the state, program, its test, share of the time)
JOBS = [("ulp " + level, "tests/pair/test_ulp", level + "_kernels", 0.12) for level in LEVELS] + [
    ("gradients", "../%s-double/tests/grad/test_property", "random_models", 0.36),
    ("threads", "tests/pair/test_determinism", "every_method", 0.12),
    ("levels", "tests/pair/test_determinism", "instruction_sets", 0.12),
]
SHORTEST = 1.0
OPEN_MAX = 20


def program_of(program):
    return os.path.normpath(os.path.join(BUILD, program % os.path.basename(BUILD) if "%" in program else program))


def run_program(program, test, seed, seconds):
    """(exit status, lines) of one test from a seed; -1 where it does not end."""
    env = dict(os.environ, PROOF_SEED=str(seed), PROOF_SECONDS="%.2f" % seconds, T_PATIENCE="%d" % (4 + seconds / 15))
    try:
        r = subprocess.run([program, test], cwd=ROOT, env=env, capture_output=True, text=True, errors="replace", timeout=240 + 6 * seconds)
    except subprocess.TimeoutExpired:
        return -1, ["the program did not end within %d s" % (240 + 6 * seconds)]
    return r.returncode, (r.stdout + "\n" + r.stderr).splitlines()


def merge_ulp(state, words):
    op, by, bound, cases, most, mean = words
    row = state.setdefault("ulp", {}).setdefault(op + " " + by, {"cases": 0, "max": 0.0, "mean": 0.0})
    total = row["cases"] + int(cases)
    row["mean"] = float("%.4g" % ((row["mean"] * row["cases"] + float(mean) * int(cases)) / max(1, total)))
    row.update(cases=total, max=max(row["max"], float(most)), bound=float(bound))


def take(state, lines):
    """Adds what a passed program printed; how many checks that were: a bound of a kernel is one, whatever its cases."""
    n = 0
    for line in lines:
        words = line.split()
        if not words:
            continue
        if words[0] == "ulp" and len(words) == 7:
            merge_ulp(state, words[1:])
            n += 1
        elif words[0] == "method":
            per = state.setdefault("methods", {})
            per[words[1]] = per.get(words[1], 0) + int(words[2])
        elif words[0] == "gradients":
            g = state.setdefault("gradients", {"draws": 0, "refused": 0, "tensors": 0, "kinks": 0, "worst": 0.0})
            for key, value in zip(("draws", "refused", "tensors", "kinks"), words[1:5]):
                g[key] += int(value)
            g["worst"] = max(g["worst"], float(words[5]))
            n += 3 * int(words[3])
        elif words[0] == "threads":
            per = state.setdefault("threads", {})
            per[words[1]] = per.get(words[1], 0) + int(words[2])
            n += 14 * int(words[2])
        elif words[0] == "level":
            row = state.setdefault("levels", {}).setdefault(words[1] + " " + " ".join(words[5:]), {"cases": 0, "max": 0.0})
            row.update(cases=row["cases"] + int(words[3]), max=max(row["max"], float(words[4])), bound=float(words[2]))
            n += int(words[3])
    return n


def seed_after(lines, seed):
    for line in lines:
        if line.startswith("seed "):
            return int(line.split()[1])
    return seed + 1


def one(state, budget, name, program, test, seconds):
    """A failure ends the program, whose next seed is then the one after that which failed."""
    seeds, fails = state.setdefault("seeds", {}), state.setdefault("open", [])
    seed = seeds.get(name, 1)
    rc, lines = run_program(program, test, seed, seconds)
    skip = [x[5:] for x in lines if x.startswith("SKIP ")]
    if rc == 0 and skip:
        state.setdefault("absent", {})[name] = skip[0]
        budget.skipped("numerics: %s: %s" % (name, skip[0]))
        return
    for x in lines:
        if x.startswith("absent "):
            state.setdefault("absent", {})[name + " " + x.split()[1]] = "this processor lacks %s" % x.split()[1]
            budget.skipped("numerics: %s: this processor lacks %s" % (name, x.split()[1]))
    if rc == 0:
        n = take(state, lines)
        if n == 0:
            budget.failed("numerics: %s: no checks were made" % name)
        state.get("absent", {}).pop(name, None)
        budget.passed(n)
        seeds[name] = seed_after(lines, seed)
        return
    what = next((x for x in lines if x.startswith("FAIL ")), lines[0] if lines else "exit %d" % rc)
    found = re.search(r"seed (\d+)", what)
    seeds[name] = max(seed, int(found.group(1)) if found else seed) + 1
    text = "%s from seed %d: %s" % (name, seed, what[:400])
    budget.failed("numerics: " + text)
    if len(fails) < OPEN_MAX:
        fails.append({"name": name, "seed": int(found.group(1)) if found else seed, "text": text})


def again(state, budget):
    """What failed before is tried first."""
    jobs = {name: (program_of(program), test) for name, program, test, _ in JOBS}
    for f in list(state.get("open", [])):
        if budget.left() < SHORTEST:
            return
        program, test = jobs[f["name"]]
        rc, _ = run_program(program, test, f["seed"], 0.01)
        if rc == 0:
            state["open"].remove(f)
            budget.passed(1)
        else:
            budget.failed("numerics: still: " + f["text"])


def run(state, budget):
    for program in sorted({program_of(program) for _, program, _, _ in JOBS}):
        if not os.access(program, os.X_OK):
            budget.failed("numerics: %s is not built" % os.path.relpath(program, ROOT))
            return
    again(state, budget)
    state["absent"] = {}  # another machine may have it
    while budget.left() > 7 * SHORTEST:
        # a round of all jobs takes ten minutes at most, so that a long run that is stopped has done some of each
        round_, jobs = min(budget.left(), 600), [job for job in JOBS if job[0] not in state["absent"]]
        total = sum(share for _, _, _, share in jobs)
        for name, program, test, share in jobs:
            if budget.left() < SHORTEST:
                return
            one(state, budget, name, program_of(program), test, max(SHORTEST, round_ * share / total - 0.5))


def number(x):
    return "{:,}".format(x)


def page_gradients(state):
    g = state["gradients"]
    methods = ", ".join("%s %s" % (name, number(n)) for name, n in sorted(state.get("methods", {}).items()))
    tensors, kinks, draws, refused = (number(g[k]) for k in ("tensors", "kinks", "draws", "refused"))
    return ["", "Gradients in double against central differences, random shapes and switches with a random method and options: %s" % draws,
            "models, %s tensors (two elements and a random direction each), relative error up to %.2g, bound 1e-7." % (tensors, g["worst"]),
            "%s directions cross a kink or a sharp bend and agree at steps of 1e-5, 1e-6 or 2e-7; %s draws were refused as models." %
            (kinks, refused), "", "Models per method: " + methods + "."]


def page(state):
    lines = ["Errors are in units of each operation's scale, which `bounds` in [test_ulp.c](../pair/test_ulp.c) names: ulp of the result",
             "or of the largest term, or n u sum, what no order of summation exceeds. The inputs are subnormal, near overflow, cancelling,",
             "of huge range, at changes of branch, NaN and infinite, with odd lengths at any alignment. The reference is long double,",
             "with 64 bits of significand. A bound that is exceeded fails with its seed.", "",
             "| operation | provider | cases | largest error | mean | bound |", "|---|---|---|---|---|---|"]
    for key, row in sorted(state.get("ulp", {}).items()):
        op, by = key.split()
        lines.append("| %s | %s | %s | %.3g | %.2g | %g |" % (op, by, number(row["cases"]), row["max"], row["mean"], row["bound"]))
    if state.get("gradients"):
        lines += page_gradients(state)
    per = state.get("threads", {})
    if per:
        lines += ["", "Two training steps and an inference with 1, 2, 3, 4, 7, 8, 12 and 16 threads, the same bits of weights and",
                  "logits: %d methods, %s shapes each." % (len(per), number(min(per.values())))]
    if state.get("levels"):
        lines += ["", "Instruction sets against `ref`, relative L2 distance of a dense model:", "",
                  "| level | quantity | models | largest distance | bound |", "|---|---|---|---|---|"]
        for key, row in sorted(state["levels"].items()):
            level, what = key.split(" ", 1)
            lines.append("| %s | %s | %d | %.2g | %g |" % (level, what, row["cases"], row["max"], row["bound"]))
    open_ = ["%s (%s)" % x for x in sorted(state.get("absent", {}).items())]
    lines += ["", "Not covered: " + "; ".join(open_ + [
        "logarithms (the C library's, in double)", "bf16 attention in ulp (tests/pair/test_attention.c compares its kernels)",
        "sums of squares that overflow in float (norms of values above about 1e17)",
        "straight-through and score-function estimators, which are not derivatives (tests/grad/test_METHOD.c)", "GPUs"]) + "."]
    return "\n".join(lines + ["\nOpen: " + f["text"] for f in state.get("open", [])])
