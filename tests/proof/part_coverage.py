"""coverage of lines and branches by the tests, child processes included"""
import os
import re
import subprocess

import proof
from programs import Programs, build

TITLE = __doc__
LINES, TUI_LINES, BRANCHES = 96, 94, 85  # per cent that are aimed at: of everything, of src/tui, of branches
REASONS = os.path.join(proof.HERE, "uncovered.txt")


def measure():
    """{name: [lines %, lines, branches %, branches]} of files, directories ("src/tui/") and "everything"."""
    out = subprocess.run(["sh", "tests/cover.sh", "build/cover"], cwd=proof.ROOT, capture_output=True, text=True, check=True).stdout
    found = re.findall(r"^ *([\d.]+) % of +(\d+) lines, +([\d.]+) % of +(\d+) branches  (\S+)$", out, re.M)
    return {name: [float(a), int(b), float(c), int(d)] for a, b, c, d, name in found}


def run(state, budget):
    """Runs every test of a COV=1 build once, over as many runs as it takes; then counts and begins again."""
    todo = Programs("cover", ["COV=1"], ["unit", "screens", "fault", "golden", "grad", "fuzz", "pair"], scripts=True, env={"T_SLOW_FACTOR": "4", "GCOV_ERROR_FILE": os.devnull},
                    skip=("test_readme_commands", "test_speculate"))  # reach what others do, in a quarter of an hour each
    if not build(budget, "COV=1", ["programs"]):
        return
    if not todo.run(budget, state):
        return
    got = measure()
    state["share"] = {k: v for k, v in got.items() if k.endswith("/") or k == "everything"}
    state["low"] = dict(sorted(((k, v) for k, v in got.items() if k.endswith(".c") and v[0] < 90 and v[1] > 20), key=lambda x: x[1][0])[:60])
    state["commit"] = proof.commit()
    todo.again(state)
    for what, name, share, least in (("lines", "everything", got["everything"][0], LINES), ("lines", "src/tui/", got["src/tui/"][0], TUI_LINES),
                                     ("branches", "everything", got["everything"][2], BRANCHES)):
        if share < least:
            budget.failed("%s of %s: %.1f %%, expected %d" % (what, name, share, least))
        else:
            budget.passed()


def reasons():
    """{file: why lines of it are not covered}"""
    try:
        with open(REASONS, encoding="utf-8") as f:
            return dict(x.rstrip("\n").split(" ", 1) for x in f if x.strip() and not x.startswith("#"))
    except FileNotFoundError:
        return {}


def page(state):
    if "share" not in state:
        return "No whole round of the tests yet: %d programs of this one have run." % len(state.get("done", []))
    why = reasons()
    lines = ["Measured at %s, aims: %d %% of lines, %d %% of those of src/tui, %d %% of branches (outcomes taken at least once)." % (
        state["commit"], LINES, TUI_LINES, BRANCHES), "", "| directory | lines | covered | branches | covered |", "|---|---|---|---|---|"]
    lines += ["| %s | %d | %.1f %% | %d | %.1f %% |" % (k, v[1], v[0], v[3], v[2]) for k, v in sorted(state["share"].items())]
    lines += ["", "Files below 90 % of lines:", "", "| file | lines | covered | what is not, and why |", "|---|---|---|---|"]
    lines += ["| %s | %d | %.1f %% | %s |" % (k, v[1], v[0], why.get(k, "-")) for k, v in state["low"].items()]
    return "\n".join(lines)
