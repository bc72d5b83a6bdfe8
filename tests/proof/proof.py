#!/usr/bin/env python3
"""The verification suite: runs its parts for a while each, adds what they did to the ledger, and writes the page of results.
A part continues where its last run stopped, so hours add up over many runs.  `make proof MINUTES=10 PROOF='faults mutants'`.

A part is a file part_NAME.py here and its name in PARTS.  It has
    TITLE               one line
    run(state, budget)  works until budget.left() <= 0 and keeps what it did in `state`, a dict of the ledger that JSON can hold:
                        what was done before is in it.  Reports each check with budget.passed(n), budget.failed(text) and
                        budget.skipped(text).  A part may stop between any two checks.
    page(state)         its section of README.md, from the state alone
    QUICK = True        optional: it runs programs of the ordinary build, so the slice of CI includes it
"""
import argparse
import importlib
import json
import os
import resource
import signal
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path[:0] = [HERE, os.path.dirname(HERE)]
LEDGER = os.path.join(HERE, "ledger.json")
PAGE = os.path.join(HERE, "README.md")
# in the order of the page
PARTS = ["races", "memory", "coverage", "mutants", "cases", "security", "crash", "nemesis", "terminals", "fuzz", "settings", "differential", "faults", "numerics", "soak"]


class Budget:
    """The time of one part in this run, and its counts."""
    is_over = False  # the run was asked to end: what was done is kept

    def __init__(self, seconds):
        self.end = time.monotonic() + seconds
        self.count = {"passed": 0, "failed": 0, "skipped": 0}

    def left(self):
        return -1 if Budget.is_over else self.end - time.monotonic()

    def passed(self, n=1):
        self.count["passed"] += n

    def failed(self, text):
        self.count["failed"] += 1
        print("FAIL %s" % text, flush=True)

    def skipped(self, text):
        self.count["skipped"] += 1
        print("SKIP %s" % text, flush=True)


def core_seconds():
    return sum(u.ru_utime + u.ru_stime for u in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)))


def read_ledger():
    try:
        with open(LEDGER, encoding="utf-8") as f:
            return json.load(f)
    except FileNotFoundError:
        return {}


def replace(path, text):
    with open(path + ".new", "w", encoding="utf-8") as f:
        f.write(text)
        f.flush()
        os.fsync(f.fileno())
    os.replace(path + ".new", path)


def commit():
    """The revision; "-dirty" where more than what this program writes differs from it."""
    def git(*words):
        return subprocess.run(["git", "-C", ROOT, *words], capture_output=True, text=True).stdout.strip()
    others = git("status", "--porcelain", "--untracked-files=no", "--", ".", *(":(exclude)" + p for p in (LEDGER, PAGE)))
    return (git("rev-parse", "--short=12", "HEAD") or "unknown") + ("-dirty" if others else "")


def run_part(name, seconds, ledger):
    """Runs it and keeps what it did; a part that stops with an error is one failure, and its state is as before."""
    part = importlib.import_module("part_" + name)
    entry = ledger.setdefault(name, {"core_seconds": 0, "runs": 0, "state": {}})
    print("== %s: %s" % (name, part.TITLE), flush=True)
    before = json.dumps(entry["state"])
    budget, began, wall = Budget(seconds), core_seconds(), time.monotonic()
    try:
        part.run(entry["state"], budget)
    except Exception as x:  # the next part is still worth running
        entry["state"] = json.loads(before)
        budget.failed("%s: %s: %s" % (name, type(x).__name__, x))
    used = core_seconds() - began
    entry["core_seconds"] = round(entry["core_seconds"] + used, 1)
    entry["runs"] += 1
    entry["date"] = time.strftime("%Y-%m-%d", time.gmtime())
    entry["commit"] = commit()
    entry["last"] = budget.count
    print("%s: %d passed, %d failed, %d skipped (%.0f s, %.1f core-minutes, %.1f in all)" % (
        name, *budget.count.values(), time.monotonic() - wall, used / 60, entry["core_seconds"] / 60), flush=True)
    return budget.count


def page(ledger):
    lines = ["# How this program is verified", "",
             "`make proof` runs the parts below for `MINUTES=10` together and writes this page; each continues where its last run stopped, so the",
             "figures are sums over all runs so far ([ledger.json](ledger.json)). `PROOF='faults crash'` chooses parts.", "",
             "| part | core-minutes | runs | last run | its checks |", "|---|---|---|---|---|"]
    for name in PARTS:
        e = ledger.get(name)
        if e:
            lines.append("| [%s](#%s) | %.1f | %d | %s, %s | %d passed, %d failed, %d skipped |" % (
                name, name, e["core_seconds"] / 60, e["runs"], e["date"], e["commit"], *(e["last"][k] for k in ("passed", "failed", "skipped"))))
        else:
            lines.append("| %s | 0 | 0 | - | - |" % name)
    for name in PARTS:
        part = importlib.import_module("part_" + name)
        lines += ["", "## " + name, "", part.TITLE[0].upper() + part.TITLE[1:] + ".", ""]
        lines += [part.page(ledger[name]["state"]).rstrip() if name in ledger else "Not run yet."]
    return "\n".join(lines) + "\n"


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--minutes", type=float, default=10, help="of all parts together")
    p.add_argument("--only", default="", help="names of parts")
    p.add_argument("--page", action="store_true", help="write the page alone")
    p.add_argument("--slice", action="store_true", help="the quick parts from their beginning, the same for everyone; ledger and page stay")
    a = p.parse_args()
    ledger, names = {} if a.slice else read_ledger(), a.only.replace(",", " ").split() or PARTS
    if a.slice and not a.only:
        names = [n for n in names if getattr(importlib.import_module("part_" + n), "QUICK", False)]
    unknown = [n for n in names if n not in PARTS]
    if unknown:
        sys.exit("proof: unknown part %s; expected some of: %s" % (unknown[0], " ".join(PARTS)))
    total = {"passed": 0, "failed": 0, "skipped": 0}
    end = time.monotonic() + 60 * a.minutes
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: setattr(Budget, "is_over", True))
    for number in (signal.SIGHUP, signal.SIGQUIT):
        if signal.getsignal(number) == signal.SIG_IGN:  # by nohup or a shell; programs under test would inherit it
            signal.signal(number, lambda *_: None)
    for i, name in enumerate(names if not a.page else []):
        if Budget.is_over:
            break
        # what one part leaves is for the others
        count = run_part(name, max(1, (end - time.monotonic()) / (len(names) - i)), ledger)
        total = {k: total[k] + count[k] for k in total}
        if not a.slice:
            replace(LEDGER, json.dumps(ledger, indent=1, sort_keys=True).replace(ROOT + "/", "") + "\n")
    if not a.slice:
        replace(PAGE, page(ledger).replace(ROOT + "/", ""))
    print("%d passed, %d failed, %d skipped" % tuple(total.values()))
    sys.exit(total["failed"] > 0)


if __name__ == "__main__":
    main()
