"""Tests that a table names as FILE:NAME, FILE below tests/: whether they exist, and one of them run.
NAME is a T(NAME) of a C file, a function of a Python or shell file, or an input below FILE's corpus for a fuzz target."""
import os
import re
import subprocess
import sys

TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
ROOT = os.path.dirname(TESTS)
NAMED = re.compile(r"\b([a-z0-9_]+/[A-Za-z0-9_]+\.(?:c|py|sh)):([A-Za-z0-9_./-]+)")
COUNT = re.compile(r"^[^ ]*: (\d+) passed, (\d+) failed, (\d+) skipped$", re.M)
PATIENCE = 300  # seconds for one test: a machine may be busy


def rows(path):
    """The rows of the Markdown tables of a file whose first cell is an id: lists of cells."""
    found = []
    with open(path, encoding="utf-8") as f:
        for line in f:
            cells = [c.strip() for c in re.split(r"(?<!\\)\|", line.strip())[1:-1]]
            if cells and re.fullmatch(r"[A-Z]\d+", cells[0]):
                found.append(cells)
    return found


def named(cell):
    return NAMED.findall(cell)


def corpus_of(file):
    return os.path.join(TESTS, "fuzz", "corpus", os.path.basename(file)[len("fuzz_"):-len(".c")])


def missing(file, name):
    """Why there is no such test, or None."""
    path = os.path.join(TESTS, file)
    if not os.path.exists(path):
        return "%s is not there" % file
    if file.startswith("fuzz/"):
        return None if os.path.exists(os.path.join(corpus_of(file), name)) else "%s: no input %s" % (file, name)
    with open(path, encoding="utf-8") as f:
        text = f.read()
    pattern = {".c": r"^T(_SECONDS)?\(%s[,)]", ".py": r"^(def %s\(|%s =)", ".sh": r"^%s\(\)"}[os.path.splitext(file)[1]]
    if not re.search(pattern.replace("%s", re.escape(name)), text, re.M):
        return "%s: no test %s" % (file, name)
    return None


BUILD = os.environ.get("BUILD_DIR") or "build/release"


def program_of(file):
    """What `make programs` built of it."""
    build = BUILD
    if file.startswith("grad/"):
        build += "-double"
    return os.path.join(ROOT, build, "tests", file[:-2])


def run(file, name):
    """("passed" | "failed" | "skipped", why)."""
    if file.endswith(".c"):
        words = [program_of(file)] + ([os.path.join(corpus_of(file), name)] if file.startswith("fuzz/") else [name])
        if not os.path.exists(words[0]):
            return "skipped", "%s is not built" % os.path.relpath(words[0], ROOT)
    else:
        words = [sys.executable if file.endswith(".py") else "sh", os.path.join(TESTS, file), name]
    env = {**os.environ, "DEPTHSCOPE": os.environ.get("DEPTHSCOPE") or os.path.join(ROOT, BUILD, "depthscope")}
    p = subprocess.Popen(words, cwd=ROOT, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)
    try:
        out = p.communicate(timeout=PATIENCE)[0].decode("utf-8", "replace")
    except subprocess.TimeoutExpired:
        os.killpg(p.pid, 9)
        p.communicate()
        return "failed", "longer than %d s" % PATIENCE
    last = COUNT.findall(out)
    said = [line for line in out.splitlines() if line.startswith(("FAIL", "SKIP"))]
    if not last or p.returncode != 0 or int(last[-1][1]):
        return "failed", "; ".join(said[:3]) or "exit status %d: %s" % (p.returncode, out[-300:].strip())
    if int(last[-1][0]) == 0:  # nothing ran: skipped, or a name that no test has
        return ("skipped" if int(last[-1][2]) else "failed"), "; ".join(said[:3]) or "no test of that name ran"
    return "passed", ""
