"""What parts that run whole test programs share: the list of a build, built as it is needed, run PROOF_JOBS=1 at once."""
import concurrent.futures
import glob
import json
import os
import re
import subprocess
import tempfile
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

    def __init__(self, variant, settings, folders, scripts=False, runner=(), env=None, seconds=1800, skip=(), split=None,
                 reports=None):
        """Programs that usually take `split` seconds or more are run test by test, and go on in the next run where they stopped.

        reports: the variable of a sanitizer's options; what it reports of any process of a program is a failure of that program."""
        self.settings, self.runner, self.seconds, self.split, self.reports = settings, list(runner), seconds, split, reports
        base = "build/" + variant
        self.env = {**os.environ, "BUILD_DIR": base, "DEPTHSCOPE": os.path.join(proof.ROOT, base, "depthscope"), **(env or {})}
        found = []
        for d in folders:
            for path in sorted(glob.glob(os.path.join(proof.ROOT, "tests", d, "fuzz_*.c" if d == "fuzz" else "test_*.c"))):
                found.append("%s/%s" % (base + "-double" if d == "grad" else base, os.path.relpath(path, proof.ROOT)[:-2]))
            if scripts:
                found += sorted(os.path.relpath(p, proof.ROOT) for p in glob.glob(os.path.join(proof.ROOT, "tests", d, "test_*.py")))
        self.all = [p for p in found if not any(s in p for s in skip)]

        with open(os.path.join(proof.HERE, "mutants_map.json"), encoding="utf-8") as f:
            self.usual = {os.path.splitext(name[len("tests/"):])[0]: s for name, s in json.load(f)["tests"]}

    def left(self, state):
        """What is quick comes first: a round that is not finished has run most of them."""
        done = set(state.get("done", []))
        return sorted((p for p in self.all if self.short(p) not in done), key=lambda p: self.usual.get(os.path.splitext(self.short(p))[0], 0))

    def short(self, p):
        return p[p.index("tests/") + len("tests/"):]

    def again(self, state):
        state["rounds"] = state.get("rounds", 0) + 1
        state["done"], state["none"] = [], []

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
        if self.split is None or program.endswith(".py") or self.usual.get(name, self.split) < self.split:
            found = self.result(program, [], budget)
        else:
            found = self.by_test(program, budget, state.setdefault("tests_done", {}).setdefault(name, {}))
        if not found:
            return  # interrupted: it goes on in the next run
        count, said = found
        failed = state.setdefault("failed", {})
        if said:
            failed[name] = said[:300].rstrip()
            budget.failed("%s: %s" % (name, failed[name]))
        else:
            budget.passed(count[0])
            state["tests"] = state.get("tests", 0) + count[0]
            failed.pop(name, None)
            state.get("tests_done", {}).pop(name, None)
            if count[0] == 0 and name not in state.setdefault("none", []):
                state["none"].append(name)
        if name not in state.setdefault("done", []):
            state["done"].append(name)
        print("%s: %d passed, %d failed, %d skipped" % (name, *count), flush=True)

    def by_test(self, program, budget, done):
        """The sum of its tests, of which those in `done` have passed before."""
        every = subprocess.run([program, "--list"], cwd=proof.ROOT, env=self.env, capture_output=True, text=True).stdout.split()
        said, bad = "", [0, 0, 0]
        for test in [t for t in every if t not in done]:
            found = self.result(program, [test], budget) if budget.left() > 0 else None
            if not found:
                return None
            count, fault = found
            if fault:
                said, bad = said or fault, [a + b for a, b in zip(bad, count)]
            else:
                done[test] = count
            print("%s: %s: %d passed, %d failed, %d skipped" % (self.short(program), test, *count), flush=True)
        return [n + sum(done[t][k] for t in every if t in done) for k, n in enumerate(bad)], said

    def result(self, program, words, budget):
        """Its counts and what it said of a failure, or None where it was interrupted."""
        if not self.reports:
            return self.counted(program, words, budget, self.env)
        with tempfile.TemporaryDirectory(prefix="ds-reports-") as top:
            os.chmod(top, 0o777)  # some tests run programs as another user
            found = self.counted(program, words, budget, {**self.env, self.reports: "%s log_path=%s/of" % (self.env[self.reports], top)})
            for path in sorted(glob.glob(top + "/of.*"))[:1] if found else []:
                with open(path, encoding="utf-8", errors="replace") as f:
                    lines = [x.strip() for x in f if re.search(r"WARNING|ERROR|SUMMARY", x)]
                counts, said = found
                return [counts[0], max(counts[1], 1), counts[2]], " ".join(lines[:1] + lines[-1:] + [said]) or "an empty report"
            return found

    def counted(self, program, words, budget, env):
        first = ["python3", program] if program.endswith(".py") else [*self.runner, program, *words]
        try:
            r = subprocess.run(["nice", *first], cwd=proof.ROOT, env=env, capture_output=True, text=True, errors="replace",
                               stdin=subprocess.DEVNULL, timeout=self.seconds)
            out, status = r.stdout + r.stderr, r.returncode
        except subprocess.TimeoutExpired:
            out, status = "longer than %d s" % self.seconds, 1
        if status in (-2, -9, -15) and budget.left() <= 0:
            return None
        count = re.findall(r"^\S+: (\d+) passed, (\d+) failed, (\d+) skipped$", out, re.M)
        counts = [int(x) for x in count[-1]] if count else [0, 1, 0]
        if status == 0 and count and counts[1] == 0:
            return counts, ""
        said = [x for x in out.splitlines() if re.search(r"FAIL|WARNING|ERROR|Sanitizer|longer than", x)] or out.strip().splitlines()[-1:]
        return counts, " ".join(said[:2]) or "exit status %d" % status
