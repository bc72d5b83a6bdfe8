"""The kit of the Python tests: finds the program, runs it, runs tests in a directory of their own, and ends with the line that
tests/run.sh reads.  A test is a function marked @test; its name is a sentence."""
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import traceback

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PROGRAM = os.path.abspath(os.environ.get("DEPTHSCOPE") or os.path.join(ROOT, "depthscope"))
SANITIZED = "T_SLOW_FACTOR" in os.environ  # or otherwise slow: less is tested
SLOW = float(os.environ.get("T_SLOW_FACTOR", "1")) * float(os.environ.get("T_PATIENCE", "1"))  # waits are as many times longer
sys.path.append("/usr/lib/python3/dist-packages")  # Debian's packages serve every python3
LONG = bool(os.environ.get("T_LONG"))  # make test-full: what needs long waits or large files, too
SHARED = os.environ.get("DEPTHSCOPE_SHARED", os.path.join(ROOT, "..", "shared", "data"))
TINY = ("model.layers=6 model.dim=32 model.heads=2 model.vocab=300 train.steps=10 train.seq=32 train.batch=2 "
        "train.eval_every=5 train.final_tokens=512 train.eval_tokens=512 data.docs=60 data.val_fraction=0.3 "
        "train.time_rounds=2 train.checkpoint_every=5").split()
FILE = os.path.abspath(sys.argv[0])
tests = []


class Skip(Exception):
    """Raised by a test that cannot run here, with the reason."""


def test(f):
    tests.append(f)
    return f


def shared(path):
    full = os.path.join(SHARED, path)
    if not os.path.exists(full):
        raise Skip("%s is not there" % path)
    return full


def call(*words, data=None, seconds=120, env=None, **kw):
    """Runs the program to its end: (status, stdout as bytes, stderr as text)."""
    if data is None:
        kw.setdefault("stdin", subprocess.DEVNULL)
    kw.setdefault("stdout", subprocess.PIPE)
    p = subprocess.run([PROGRAM, *words], input=data, stderr=subprocess.PIPE, timeout=seconds * SLOW,
                       env={**os.environ, **(env or {})}, **kw)
    err = p.stderr.decode("utf-8", "replace")
    err = re.sub(r"^(profiling:|libgcov profiling error:).*\n", "", err, flags=re.M)  # counts that a COV=1 build cannot write
    assert p.returncode >= 0 and "Sanitizer" not in err and "runtime error" not in err, "%r: exit status %d\n%s" % (words, p.returncode, err)
    return p.returncode, p.stdout, err


def one_line(words, err):
    assert err.startswith("depthscope: ") and err.count("\n") == 1, "%r: not one line: %r" % (words, err)
    assert not [c for c in err[:-1] if ord(c) < 32 or ord(c) == 127], "%r: control bytes in %r" % (words, err)


def run(*words, code=0, data=None, raw=False, **env):
    """Standard output of a command that ends with status `code`; a refusal is one line.  run.err: standard error."""
    status, out, run.err = call(*words, data=data, env=env)
    assert status == code, "%s: exit status %d, want %d\n%s" % (" ".join(words), status, code, run.err)
    if code in (1, 2) and words[0] not in ("sweep", "ablate", "isoflop", "stop"):  # these report every run
        one_line(words, run.err)
    return out if raw else out.decode("utf-8")


def run_json(*words, **kw):
    return json.loads(run(*words, "--json", **kw))


def refused(part, *words, code=2, **kw):
    run(*words, code=code, **kw)
    one_line(words, run.err)
    assert part in run.err, "%s: %r lacks %r" % (" ".join(words), run.err, part)


def attempt(name, f):
    """"passed", "failed" or "skipped"; the reason is printed."""
    try:
        f()
        return "passed"
    except Skip as x:
        print("SKIP %s: %s" % (name, x))
        return "skipped"
    except Exception as x:
        if "out of pty devices" in str(x):
            print("SKIP %s: no pseudo-terminal available (/dev/pts)" % name)
            return "skipped"
        lines = [s.lineno for s in traceback.extract_tb(x.__traceback__) if os.path.abspath(s.filename) == FILE]
        print("FAIL %s: line %s: %s: %s" % (name, lines[-1] if lines else "?", type(x).__name__, str(x)[:1500]))
        return "failed"


def main(setup=None, chosen=None, fresh=False, needs="", unchecked=""):
    """Runs the tests of the program's own file (or `chosen`), those whose name holds the first argument, and exits.  They share
    a temporary directory that `setup` fills; with `fresh` each has its own.  needs: a program
    without which all are skipped.  unchecked: what cannot be checked here; it counts as one skipped test."""
    name = os.path.splitext(os.path.basename(FILE))[0]
    only = sys.argv[1] if len(sys.argv) > 1 else ""
    todo = [f for f in (chosen or tests) if (chosen or f.__module__ == "__main__") and only in f.__name__]
    count = {"passed": 0, "failed": 0, "skipped": 0}
    missing = "no program at %s" % PROGRAM if not os.access(PROGRAM, os.X_OK) else \
        "%s is not installed" % needs if needs and not shutil.which(needs) else ""
    if missing:
        print("SKIP %s: %s" % (name, missing))
        count["skipped"] = len(todo)
        todo = []
    if unchecked and not missing:
        print("SKIP %s: %s" % (name, unchecked))
        count["skipped"] += 1
    home = os.getcwd()
    os.environ["DEPTHSCOPE_RUNS"] = "runs"
    top = tempfile.mkdtemp(prefix="ds-test-")
    try:
        for i, f in enumerate(todo):
            began = time.monotonic()
            if fresh or i == 0:
                os.chdir(top)
                os.chdir(tempfile.mkdtemp(dir=top))
                if setup and attempt("setup", setup) != "passed":
                    count["failed"] += len(todo) - i
                    break
            count[attempt(f.__name__, f)] += 1
            if os.environ.get("T_TIMES"):
                print("%6.2f s %s" % (time.monotonic() - began, f.__name__))
    finally:
        os.chdir(home)
        subprocess.run(["chmod", "-R", "u+rwX", top], stderr=subprocess.DEVNULL)
        shutil.rmtree(top, ignore_errors=True)
    print("%s: %d passed, %d failed, %d skipped" % (name, count["passed"], count["failed"], count["skipped"]))
    sys.exit(count["failed"] > 0)
