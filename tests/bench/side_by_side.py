"""Shared by the comparison scripts: a worker process that sleeps between its turns, depthscope's own bench, a table."""
import json
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
PROGRAM = os.environ.get("DEPTHSCOPE", os.path.join(HERE, "..", "..", "depthscope"))
PYTHON = os.environ.get("PYTHON", sys.executable)
THREADS = os.environ.get("OMP_NUM_THREADS", "2")


def settings(defaults):
    """key=value words of the command line over the defaults."""
    out = dict(defaults)
    for word in sys.argv[1:]:
        key, equals, value = word.partition("=")
        if not equals or key not in out:
            sys.exit("%s: settings are %s, not %s" % (os.path.basename(sys.argv[0]),
                                                      " ".join("%s=%s" % kv for kv in defaults.items()), word))
        out[key] = value
    return out


def median(v):
    v = sorted(v)
    return 0.5 * (v[(len(v) - 1) // 2] + v[len(v) // 2]) if v else float("nan")


class Missing(Exception):
    """What cannot be measured here, in one line."""


class Worker:
    """A process that answers one JSON line to each JSON line, and sleeps between."""

    def __init__(self, script, what, env=None):
        full = dict(os.environ, OMP_NUM_THREADS=THREADS, **(env or {}))
        self.p = subprocess.Popen([PYTHON, script, "worker"], env=full, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                  stderr=subprocess.DEVNULL, universal_newlines=True)
        self.about = self.ask(what)

    def ask(self, what):
        try:
            self.p.stdin.write(json.dumps(what) + "\n")
            self.p.stdin.flush()
            line = self.p.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            raise Missing("the process ended (status %s)" % self.p.wait())
        answer = json.loads(line)
        if "error" in answer:
            self.close()
            raise Missing(answer["error"])
        return answer

    def close(self):
        self.p.stdin.close()
        self.p.wait()


def serve(start, turn):
    """The worker's side: start(request) gives a state and what to say about it, turn(state, request) an answer."""
    out = os.fdopen(os.dup(1), "w")  # libraries may print on 1
    os.dup2(2, 1)
    state = None
    for line in sys.stdin:
        try:
            if state is None:
                state, answer = start(json.loads(line))
            else:
                answer = turn(state, json.loads(line))
        except Exception as e:
            answer = {"error": "%s: %s" % (type(e).__name__, (str(e).splitlines() or [""])[0][:160])}
        out.write(json.dumps(answer) + "\n")
        out.flush()


def need(*packages):
    """Ends the script as skipped, in one line, where a package is missing."""
    for name in packages:
        if subprocess.call([PYTHON, "-c", "import " + name], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) != 0:
            print("%s: skipped, %s has no %s (PYTHON=... names another)" % (os.path.basename(sys.argv[0]), PYTHON, name))
            sys.exit(77)


def bench(*words):
    """Rows of `depthscope bench --json`, by name."""
    if not os.path.exists(PROGRAM):
        sys.exit("%s is not there: make first, or set DEPTHSCOPE" % PROGRAM)
    p = subprocess.run([PROGRAM, "bench", "--json", "threads=" + THREADS] + list(words), stdout=subprocess.PIPE,
                       stderr=subprocess.PIPE, universal_newlines=True)
    if p.returncode != 0:
        raise Missing((p.stderr.strip().splitlines() or ["status %d" % p.returncode])[-1])
    return {r["name"]: r for r in json.loads(p.stdout)["results"]}


def figure(x):
    return "%.0f" % x if x >= 1000 else "%.3g" % x


def line(what, ours, theirs, share=None):
    """Medians with their ranges, and the ratio of neighbours in time."""
    sides = ["%s (%s-%s)" % (figure(median(v)), figure(min(v)), figure(max(v))) for v in (ours, theirs)]
    ratio = median([a / b for a, b in zip(ours, theirs)])
    text = "%-26s %-26s %-26s %.2f" % (what, sides[0], sides[1], ratio)
    print(text + ("   %.2f of %s" % share if share else ""), flush=True)
