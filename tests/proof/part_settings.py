"""Random settings: whatever a command is told ends in a result or in one clear line, in bounded time and memory.

Each case comes from its number alone and the settings that the program lists: `python3 part_settings.py NUMBER` shows one again.
PROOF_JOBS run at once.
"""
import concurrent.futures
import os
import random
import re
import resource
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile

if __name__ == "__main__":
    sys.path[:0] = [os.path.dirname(os.path.abspath(__file__)), os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")]
import t

TITLE = "random settings of the commands that take them: a result, or one clear line"
QUICK = True
SECONDS, MEMORY, OPEN_MAX = 120, 4 << 30, 20
SANITIZED = t.SANITIZED or "san" in os.environ.get("BUILD_DIR", "")
METHODS = "dense edp hat dlr dtf mod halt gateskip layerskip flexidepth ouro random static".split()
TINY = dict(x.split("=") for x in (
    "model.layers=6 model.dim=16 model.heads=2 model.vocab=300 model.max_seq=48 train.steps=3 train.seq=32 train.batch=2 "
    "train.eval_every=2 train.final_tokens=64 train.eval_tokens=64 train.samples=8 train.time_rounds=0 data.docs=20 "
    "data.tokenizer=bytes data.val_fraction=0.3").split())
BENCH = {"quick": "true", "rounds": "1", "layers": "3", "dim": "16", "heads": "2", "vocab": "300", "batch": "1"}
# what a command needs besides settings, and what bounds its work; "" stands for the run of a method
COMMANDS = {
    "train": ["quick"], "bench": [],
    "eval": ["", "tokens=64", "time_rounds=1"], "calibrate": ["", "tokens=64"],
    "generate": ["", "--prompt", "The cat", "max_tokens=4"], "trace": ["", "--text", "The cat sat", "--json"],
}
INTEGERS, REALS, TEXTS = "0 1 2 3 4 5 8 16 17 33 64 -1".split(), "0 0.5 0.3 0.001 1 1.5 1e-9 -1 nan".split(), ["", "x", "0-1", "0,2", "1,1", "0.5,1"]
KINDS = [(["true", "false"], "true|false"), (INTEGERS, r"-?\d+"), (REALS, r"-?[\d.]+(?:e-?\d+)?")]


def value(default, about, rng):
    """One that the description of a setting allows, or, where it names none, that may be refused."""
    choices = re.search(r"(?:^|\s|\()([^\s|()]+(?:\|[^\s|()]+)+)(?:$|\s|\))", about)
    if choices:
        return rng.choice(choices.group(1).split("|"))
    bounds = re.search(r"(-?\d[\d.e+-]*) to (-?\d[\d.e+-]*)", about)
    if not bounds:
        kind = next((k for k, form in KINDS if re.fullmatch(form, default)), TEXTS)
        return rng.choice(kind if rng.random() < 0.9 else TEXTS + REALS)
    low, high = map(float, bounds.groups())
    if rng.random() < 0.05 and high <= 1024:  # others ask for work without end
        return "%.9g" % high
    x = min(high, low + rng.choice([0, 0, 1, 2, 3, 4, 5, 8, 16, 17, 33, rng.random(), 64 * rng.random()]))
    return "%d" % x if rng.random() < 0.7 else "%.4g" % x


def output(*words):
    return subprocess.run([t.PROGRAM, *words], stdin=subprocess.DEVNULL, capture_output=True, text=True).stdout


def listed():
    """command -> {setting: (default, what is said of its values)}."""
    found = {"train": {}}
    for method in METHODS:
        for line in output("train", "--keys", "all", "model.method=" + method).splitlines():
            m = re.match(r"(\S+) +(\S*) +(.*)", line)
            if m and not m.group(1).startswith(("data.path", "train.init", "run.")):
                found["train"].setdefault(m.group(1), m.groups()[1:])
    for command in set(COMMANDS) - {"train"}:
        found[command] = {k: v for k, *v in re.findall(r"^  ([a-z][\w.]*)=(\S*) +(.*)", output("help", command), re.M)}
    found["bench"].update((k, v) for k, v in found["train"].items() if k.startswith("model."))
    return found


def case(number, settings):
    """The words of the command; "run" in place of a model is the one of `method`."""
    rng = random.Random("settings %d" % number)
    command = rng.choice(["train"] * 4 + sorted(set(COMMANDS) - {"train"}))
    method, words = rng.choice(METHODS), [command, *COMMANDS[command]]
    names = sorted(k for k in settings[command] if k.split(".")[0] not in METHODS or k.startswith(method + ".") or rng.random() < 0.02)
    given = {k: value(*settings[command][k], rng) for k in rng.sample(names, rng.choice([1, 1, 1, 2, 2, 3, 4]))}
    base = {}
    if command == "train":
        base = {"model.method": method, **TINY}
    elif command == "bench":
        base = {**BENCH, "seq": rng.choice(["16", "17", "32"]), "prefill": rng.choice(["16", "33"]), "decode": rng.choice(["1", "5"]),
                "only": rng.choice(["train step", "prefill", "decode", "block", "speculate", "forward"]), "model.method": method}
    fixed = {w.split("=")[0] for w in words if "=" in w}
    return [w or "runs/" + method for w in words] + ["%s=%s" % x for x in {**base, **given}.items() if x[0] not in fixed]


def limits():
    os.setsid()
    if not SANITIZED:  # sanitizers map terabytes
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))


def judge(words, number, top):
    """(1 done or 0 refused, what is wrong)."""
    name = "case-%d" % number
    more = {"train": ["--run", name, "--quiet"], "calibrate": ["-o", name]}.get(words[0], [])
    p = subprocess.Popen(["nice", t.PROGRAM, *words, *more], cwd=top, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                         preexec_fn=limits)
    try:
        out, said = p.communicate(timeout=SECONDS * t.SLOW)
    except subprocess.TimeoutExpired:
        os.killpg(p.pid, signal.SIGKILL)  # and what it has started
        p.communicate()
        return 0, "longer than %d s" % (SECONDS * t.SLOW)
    said = said.decode("utf-8", "replace")
    places = [os.path.join(top, "runs", name), os.path.join(top, name)]
    made = out or any(os.path.exists(x) for x in places)
    for x in places:
        shutil.rmtree(x, ignore_errors=True)
    lines = [x for x in said.splitlines() if x.strip() and "warning: " not in x and not x.startswith(("profiling:", "libgcov"))]
    if p.returncode not in (0, 1, 2) or re.search(r"bug at|Sanitizer|runtime error", said):
        told = re.findall(r"bug at.*|ERROR: .*|.*runtime error.*|#\d+ .* (?:src|include)/.*", said)[:3]
        return 0, "status %d: %s" % (p.returncode, " ".join(told) or said.strip()[-160:])
    if p.returncode and (len(lines) != 1 or not lines[0].startswith("depthscope: ")):
        return 0, "status %d and %d lines: %s" % (p.returncode, len(lines), said.strip()[-160:])
    if p.returncode == 0 and not made:
        return 0, "nothing was made"
    return p.returncode == 0, ""


def models(top):
    """A run of each method."""
    for method in METHODS:
        words = ["train", "quick", *("%s=%s" % x for x in {"model.method": method, **TINY}.items()), "--run", method, "--quiet"]
        subprocess.run([t.PROGRAM, *words], cwd=top, stdin=subprocess.DEVNULL, capture_output=True, check=True)


def run(state, budget):
    state.setdefault("next", 0)
    state.setdefault("open", {})
    rows = state.setdefault("commands", {})
    settings = listed()
    state["settings"] = sum(map(len, settings.values()))
    with tempfile.TemporaryDirectory(prefix="ds-settings-") as top, concurrent.futures.ThreadPoolExecutor(int(os.environ.get("PROOF_JOBS", "1"))) as pool:
        models(top)

        def one(number, words):
            if budget.left() <= 0:
                return
            done, wrong = judge(words, number, top)
            if budget.left() <= 0 and wrong:
                return  # it may be this run's end that ended it
            row = rows.setdefault(words[0], {"done": 0, "refused": 0, "failed": 0})
            row["failed" if wrong else "done" if done else "refused"] += 1
            state["open"].pop(shlex.join(words), None)
            if wrong:
                if len(state["open"]) < OPEN_MAX:
                    state["open"][shlex.join(words)] = wrong.replace("\n", " ")[:300].rstrip()
                budget.failed("%s: %s" % (shlex.join(words), wrong))
            else:
                budget.passed()
        for text in list(state["open"]):
            one(0, shlex.split(text))
        while budget.left() > 0:
            some = range(state["next"], state["next"] + 64)
            list(pool.map(lambda n: one(n, case(n, settings)), some))
            state["next"] = some.stop


def page(state):
    rows = sorted(state.get("commands", {}).items())
    lines = ["%d settings of %d commands, one to four at a time, within the bounds that are listed for them, on models of a few thousand"
             % (state.get("settings", 0), len(COMMANDS)),
             "weights: the command ends within %d s and %d GiB with a result and status 0, or with one line and status 1 or 2." % (SECONDS, MEMORY >> 30),
             "", "| command | done | refused | failed |", "|---|---|---|---|"]
    lines += ["| `%s` | %d | %d | %d |" % (c, r["done"], r["refused"], r["failed"]) for c, r in rows]
    if state.get("open"):
        lines += ["", "Open:", ""] + ["- `depthscope %s`: %s" % x for x in sorted(state["open"].items())]
    else:
        lines += ["", "What failed is mended, and passed when it was run again."]
    return "\n".join(lines)


if __name__ == "__main__":
    print("depthscope " + shlex.join(case(int(sys.argv[1]), listed())))
