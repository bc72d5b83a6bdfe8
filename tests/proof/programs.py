"""What parts that run whole test programs share: the list of a build, built as it is needed, run PROOF_JOBS=1 at once."""
import concurrent.futures
import glob
import json
import os
import re
import subprocess
import threading

import proof

JOBS = str(os.cpu_count() or 1)
building = threading.Lock()


def make(budget, *words):
    """1 when it could be built."""
    with building:
        r = subprocess.run(["nice", "make", "--no-print-directory", "-j" + JOBS, *words], cwd=proof.ROOT, capture_output=True, text=True,
                           env={k: v for k, v in os.environ.items() if k not in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL")})
    if r.returncode != 0:
        budget.failed("make %s: %s" % (" ".join(words), (r.stdout + r.stderr).strip()[-600:]))
    return r.returncode == 0


def build(budget, settings, goals):
    return make(budget, *settings.split(), *goals)


class Programs:
    """Test programs of a variant, in an order that does not depend on the machine; state["done"] holds those that have run."""

    def __init__(self, variant, settings, folders, scripts=False, runner=(), env=None, seconds=1800, skip=()):
        self.settings, self.runner, self.seconds = settings, list(runner), seconds
        base = "build/" + variant
        self.env = {**os.environ, "BUILD_DIR": base, "DEPTHSCOPE": os.path.join(proof.ROOT, base, "depthscope"), **(env or {})}
        found = []
        for d in folders:
            for path in sorted(glob.glob(os.path.join(proof.ROOT, "tests", d, "fuzz_*.c" if d == "fuzz" else "test_*.c"))):
                found.append("%s/%s" % (base + "-double" if d == "grad" else base, os.path.relpath(path, proof.ROOT)[:-2]))
            if scripts:
                found += sorted(os.path.relpath(p, proof.ROOT) for p in glob.glob(os.path.join(proof.ROOT, "tests", d, "test_*.py")))
        self.all = [p for p in found if not any(s in p for s in skip)]

    def left(self, state):
        """What is quick comes first: a round that is not finished has run most of them."""
        with open(os.path.join(proof.HERE, "mutants_map.json"), encoding="utf-8") as f:
            usual = {os.path.splitext(name[len("tests/"):])[0]: s for name, s in json.load(f)["tests"]}
        done = set(state.get("done", []))
        return sorted((p for p in self.all if self.short(p) not in done), key=lambda p: usual.get(self.short(p), 0))

    def short(self, p):
        return p[p.index("tests/") + len("tests/"):]

    def again(self, state):
        state["rounds"] = state.get("rounds", 0) + 1
        state["done"] = []

    def run(self, budget, state):
        """Builds and runs those that are left until the time is up; True when all have run."""
        if not make(budget, *self.settings, "driven"):
            return False
        with concurrent.futures.ThreadPoolExecutor(int(os.environ.get("PROOF_JOBS", "1"))) as pool:
            again = [p for p in self.all if self.short(p) in state.get("failed", {})]  # in this round or before
            runs = [pool.submit(self.run_one, p, budget, state) for p in again + [p for p in self.left(state) if p not in again]]
            for r in runs:
                r.result()
        return not self.left(state)

    def run_one(self, program, budget, state):
        """Its closing line is what counts."""
        if budget.left() <= 0:
            return
        name = self.short(program)
        if not program.endswith(".py") and not make(budget, *self.settings, program):
            return
        first = ["python3", program] if program.endswith(".py") else [*self.runner, program]
        try:
            r = subprocess.run(["nice", *first], cwd=proof.ROOT, env=self.env, capture_output=True, text=True, errors="replace",
                               stdin=subprocess.DEVNULL, timeout=self.seconds)
            out, status = r.stdout + r.stderr, r.returncode
        except subprocess.TimeoutExpired:
            out, status = "longer than %d s" % self.seconds, 1
        if status in (-2, -9, -15) and budget.left() <= 0:
            return  # interrupted: it is run again
        count = re.findall(r"^\S+: (\d+) passed, (\d+) failed, (\d+) skipped$", out, re.M)
        failed = state.setdefault("failed", {})
        if status == 0 and count and count[-1][1] == "0":
            budget.passed(int(count[-1][0]))
            state["tests"] = state.get("tests", 0) + int(count[-1][0])
            failed.pop(name, None)
        else:
            said = [x for x in out.splitlines() if re.search(r"FAIL|WARNING|ERROR|Sanitizer|longer than", x)] or out.strip().splitlines()[-1:]
            failed[name] = " ".join(said[:2])[:300] or "exit status %d" % status
            budget.failed("%s: %s" % (name, failed[name]))
        if name not in state.setdefault("done", []):
            state["done"].append(name)
        print("%s: %s" % (name, " ".join(count[-1]) if count else "exit status %d" % status), flush=True)
