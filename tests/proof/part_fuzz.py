"""Fuzzing of every parser and protocol with libFuzzer, under AddressSanitizer and UndefinedBehaviorSanitizer.

The targets are tests/fuzz/fuzz_NAME.c; those with the fewest core-seconds so far run first.  New inputs go to build/fuzz/corpus/NAME.
FUZZ_ONLY='host agent' chooses targets, FUZZ_SECONDS the least time of each, FUZZ_JOBS how many run at once.  `python3 part_fuzz.py
minimise [NAME...]` adds to tests/fuzz/corpus what of these inputs reaches code that the files there do not, up to twenty files of a
target, and thins build/fuzz/corpus.
"""
import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
TITLE = "fuzzing of every parser and protocol under AddressSanitizer and UndefinedBehaviorSanitizer, and replays under MemorySanitizer"
BUILD, SEEDS = os.path.join(ROOT, "build", "fuzz"), os.path.join(ROOT, "tests", "fuzz", "corpus")
ENOUGH = 30 * 60  # core-seconds of each target
LEAST = int(os.environ.get("FUZZ_SECONDS", "20"))
USUAL = 240  # seconds of a target at a time, because each reads its corpus first, some for half a minute
LINE_MAX, FILES_MAX, BYTES_MAX = 200, 20, 4096
# Targets that call no library but libc, which MemorySanitizer knows (others would be reports about what that library wrote), and nothing
# beyond the layers base and io, which build in a minute.
INSTRUMENTED = ["foreign_text", "machine", "npy", "proc", "record", "row", "runlog", "runview", "tensorboard", "utf8", "wandb"]
WHY_NOT = "jansson, libyaml, PCRE2, libpng, utf8proc or OpenSSL write memory that it has not seen written, or they need more layers"
DONE = re.compile(rb"^#\d+\s+DONE\s+cov: (\d+) ft: (\d+) corp: (\d+)/", re.M)
STARTED = re.compile(rb"^#\d+\s+(?:INITED|NEW|REDUCE|pulse|RELOAD)\s+cov: (\d+) ft: (\d+) corp: (\d+)/", re.M)


def names():
    only = os.environ.get("FUZZ_ONLY", "").split()
    every = sorted(os.path.basename(p)[5:-2] for p in glob.glob(os.path.join(ROOT, "tests", "fuzz", "fuzz_*.c")))
    return [n for n in every if not only or n in only]


def environment():
    # this runs under make; the sanitizers' own settings decide how a report ends
    return {k: v for k, v in os.environ.items() if k not in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS")}


def make(budget, *words):
    """"" when built, else why not; an unfinished build goes on in the next run."""
    command = ["nice", "-n", "10", "make", "-s", "-j2", "CC=clang", *words]
    with tempfile.TemporaryFile() as log:
        p = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment(), start_new_session=True)
        try:
            rc = p.wait(max(10, budget.left()))
        except subprocess.TimeoutExpired:
            os.killpg(p.pid, 15)
            p.wait()
            return "the time was up before they were built; the next run goes on"
        log.seek(0)
        text = log.read().decode(errors="replace").strip().splitlines()
    return "" if rc == 0 else "make %s: %s" % (" ".join(words), text[-1][:LINE_MAX] if text else "status %d" % rc)


def corpora(name):
    own = os.path.join(BUILD, "corpus", name)
    os.makedirs(own, exist_ok=True)
    return [own] + [d for d in [os.path.join(SEEDS, name)] if os.path.isdir(d)]


def fuzzer(name, *words):
    return ["nice", "-n", "10", os.path.join(BUILD, "tests", "fuzz", "fuzz_" + name), "-timeout=20", "-rss_limit_mb=2048", *words]


def start(name, seconds):
    log = tempfile.TemporaryFile()
    command = fuzzer(name, "-max_total_time=%d" % seconds, "-close_fd_mask=3", "-artifact_prefix=build/fuzz/crash-%s-" % name,
        *corpora(name))
    return subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment()), log


def summary(text):
    lines = [x for x in text.splitlines() if x.startswith(b"SUMMARY") or b"Test unit written to" in x or b"ERROR: " in x]
    return b"; ".join(lines[-3:]).decode(errors="replace")[:400] or "ended without a summary"


def finish(name, p, log, state, budget):
    _, status, used = os.wait4(p.pid, 0)
    p.returncode = os.waitstatus_to_exitcode(status)
    log.seek(0)
    text = log.read()
    log.close()
    t = state["targets"].setdefault(name, {"runs": 0, "seconds": 0, "cov": 0, "ft": 0, "corpus": 0})
    t["seconds"] = round(t["seconds"] + used.ru_utime + used.ru_stime, 1)
    runs = re.search(rb"^Done (\d+) runs", text, re.M)
    t["runs"] += int(runs.group(1)) if runs else 0
    last = DONE.search(text) or (STARTED.findall(text) and list(STARTED.finditer(text))[-1])
    if last:
        t["cov"], t["ft"], t["corpus"] = (int(last.group(i)) for i in (1, 2, 3))
    if p.returncode == 0 and runs and int(runs.group(1)) > 0:
        budget.passed()
        return
    why = summary(text)
    budget.failed("fuzz_%s: status %d: %s" % (name, p.returncode, why))
    artifact = re.search(rb"Test unit written to (\S+)", text)
    if artifact:
        state["open"] = sorted(set(state["open"]) | {"%s %s" % (name, artifact.group(1).decode())})


def look_again(state, budget):
    """What failed before and no longer does is closed."""
    still = []
    for x in state["open"]:
        name, path = x.split(" ", 1)
        if not os.path.exists(os.path.join(ROOT, path)):
            continue
        if budget.left() <= 0:
            still.append(x)
            continue
        again = subprocess.run(fuzzer(name, "-artifact_prefix=build/fuzz/again-", path), cwd=ROOT, stdin=subprocess.DEVNULL,
                               capture_output=True, env=environment())
        if again.returncode == 0:
            budget.passed()
        else:
            budget.failed("fuzz_%s: still fails with %s" % (name, path))
            still.append(x)
    state["open"] = still


def lack(state, name):
    return max(0, ENOUGH - state["targets"].get(name, {}).get("seconds", 0))


def weights(state, of):
    """How the time is shared: by what each target lacks, and evenly once none lacks any."""
    lacks = {n: lack(state, n) for n in of}
    return lacks if any(lacks.values()) else dict.fromkeys(of, 1)


def fuzz(state, budget):
    jobs, running, done = max(1, int(os.environ.get("FUZZ_JOBS", "1"))), [], set()
    every = names()
    blocked = {x.split(" ", 1)[0] for x in state["open"]}
    while running or budget.left() >= LEAST:
        left = sorted((state["targets"].get(n, {}).get("seconds", 0), n) for n in every if n not in done and n not in blocked)
        while left and len(running) < jobs and budget.left() >= LEAST:
            name = left.pop(0)[1]
            done.add(name)
            weight = weights(state, [name] + [n for _, n in left] + [n for n, _, _ in running])
            share = budget.left() * jobs * weight[name] / sum(weight.values())
            usual = min(USUAL, 1.25 * lack(state, name) or USUAL)  # it has most of a processor
            running.append((name, *start(name, int(min(max(LEAST, usual, share), max(LEAST, budget.left()))))))
        if not running:
            break
        for x in [x for x in running if os.waitid(os.P_PID, x[1].pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)]:
            running.remove(x)
            finish(*x, state, budget)
        time.sleep(0.1)


def replay_memory(state, budget):
    """The same inputs in programs that MemorySanitizer has instrumented, without libFuzzer: files do not change."""
    wanted = [n for n in INSTRUMENTED if n in names()]
    if not wanted or budget.left() < 5:
        return
    programs = ["build/san-memory-ref/tests/fuzz/fuzz_" + n for n in wanted]
    why = make(budget, "SAN=memory", "BLAS=ref", "PARTS=base io", *programs)
    if why:
        budget.skipped("MemorySanitizer: " + why)
        return
    for name, program in sorted(zip(wanted, programs), key=lambda x: state["memory"].get(x[0], {}).get("files", 0)):
        if budget.left() <= 0:
            return
        try:
            r = subprocess.run(["nice", "-n", "10", program, *corpora(name)], cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True,
                               env=environment(), timeout=max(LEAST, budget.left() + LEAST))
        except subprocess.TimeoutExpired:
            continue
        last = re.search(rb"(\d+) passed, (\d+) failed", r.stdout)
        passed = int(last.group(1)) if last else 0
        if r.returncode == 0 and passed > 0:
            budget.passed()
            state["memory"][name] = {"files": passed}
        else:
            fails = [x for x in r.stdout.decode(errors="replace").splitlines() if x.startswith("FAIL")]
            budget.failed("fuzz_%s under MemorySanitizer: %s" % (name, (fails or ["status %d" % r.returncode])[0][:LINE_MAX]))


def run(state, budget):
    for key, value in (("targets", {}), ("open", []), ("memory", {})):
        state.setdefault(key, value)
    state["targets"] = {n: t for n, t in state["targets"].items() if os.path.exists(os.path.join(ROOT, "tests", "fuzz", "fuzz_%s.c" % n))}
    if os.environ.get("CI"):
        budget.skipped("fuzz: not in CI, where the inputs are replayed by the tests")
        return
    if not shutil.which("clang"):
        budget.skipped("fuzz: clang not found")
        return
    why = make(budget, "FUZZER=1", *["build/fuzz/tests/fuzz/fuzz_" + n for n in names()])
    if why:
        budget.skipped("fuzz: " + why)
        return
    look_again(state, budget)
    spare = max(0, budget.left() / 10)  # for the replays
    budget.end -= spare
    fuzz(state, budget)
    budget.end += spare
    replay_memory(state, budget)


def minimise(name):
    """Adds small inputs of build/fuzz/corpus that reach more to tests/fuzz/corpus, and thins the former."""
    own, seeds = os.path.join(BUILD, "corpus", name), os.path.join(SEEDS, name)
    os.makedirs(seeds, exist_ok=True)
    before = sum(len(f) for _, _, f in os.walk(own))
    with tempfile.TemporaryDirectory(dir=BUILD) as less:
        subprocess.run(fuzzer(name, "-merge=1", less, seeds, own), cwd=ROOT, check=True, capture_output=True, env=environment())
        shutil.rmtree(own)
        shutil.copytree(less, own)
    room, added = FILES_MAX - len(os.listdir(seeds)), []
    with tempfile.TemporaryDirectory(dir=BUILD) as more:
        small = os.path.join(more, "small")
        os.makedirs(small)
        for f in os.listdir(own):
            if os.path.getsize(os.path.join(own, f)) <= BYTES_MAX:
                shutil.copy(os.path.join(own, f), small)
        target = os.path.join(more, "target")
        shutil.copytree(seeds, target)
        had = set(os.listdir(target))
        subprocess.run(fuzzer(name, "-merge=1", target, small), cwd=ROOT, check=True, capture_output=True, env=environment())
        found = sorted((f for f in os.listdir(target) if f not in had), key=lambda f: os.path.getsize(os.path.join(target, f)))
        for f in found[::max(1, -(-len(found) // max(1, room)))][:max(0, room)]:  # of all sizes
            shutil.copy(os.path.join(target, f), os.path.join(seeds, f[:12]))
            added.append(f[:12])
    print("fuzz_%s: %d inputs, now %d; %d of %d new ones added to tests/fuzz/corpus" % (name, before, len(os.listdir(own)), len(added),
        len(found)))


def number(n):
    return "%.1f M" % (n / 1e6) if n >= 1e6 else "%.0f k" % (n / 1e3) if n >= 1e4 else str(n)


def page(state):
    targets = state.get("targets", {})
    never = [n for n in names() if n not in targets]
    whole = sum(t["seconds"] >= ENOUGH for t in targets.values())
    lines = ["%d targets, %d of them with 30 core-minutes or more; %s inputs were run. Edges and features are those that libFuzzer counts "
             "in the whole program after the newest run of a target; inputs are those it keeps for it." % (
                 len(targets), whole, number(sum(t["runs"] for t in targets.values()))), "",
             "| target | core-minutes | runs | edges | features | inputs |", "|---|---|---|---|---|---|"]
    lines += ["| %s | %.1f | %s | %d | %d | %d |" % (n, t["seconds"] / 60, number(t["runs"]), t["cov"], t["ft"], t["corpus"])
              for n, t in sorted(targets.items())]
    if never:
        lines += ["", "Not run yet: %s." % ", ".join(never)]
    memory = state.get("memory", {})
    lines += ["", "Under MemorySanitizer the inputs of these targets are replayed: %s. Not of the others: %s." % (
        ", ".join("%s (%d)" % (n, m["files"]) for n, m in sorted(memory.items())) or "none yet", WHY_NOT)]
    if state.get("open"):
        lines += ["", "Open: %s." % "; ".join(state["open"])]
    lines += ["",
        "Not covered: the answers of NVIDIA's library, for which a stand-in is loaded by tests; the pixels and the table that the workbench reads "
              "from its own program, started as `figure` and `compare`; lists and numbers on the command line, each read by one checked "
              "function; what curl and ssh send beyond the headers and records above, which are other programs."]
    return "\n".join(lines)


if __name__ == "__main__":
    if sys.argv[1:2] != ["minimise"]:
        sys.exit(__doc__)
    for target in sys.argv[2:] or names():
        minimise(target)
