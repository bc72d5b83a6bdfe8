"""Every n-th call of every injectable operation fails, in each command that keeps data: once and from then on, with every error.
The cases of one command and operation are its points n = 1..calls, once and persistent, for the first error of the operation, then
for the next; they are walked with a stride, so that any slice samples all n.  Every pair takes turns; no pair goes on to the next error
before all have had their first."""
import concurrent.futures
import functools
import hashlib
import http.server
import json
import math
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.append(os.path.join(HERE, "..", "..", "src", "python"))
from depthscope._log import frame_body, frame_length  # noqa: E402
from depthscope._msgpack import unpack  # noqa: E402
from t import PROGRAM, SLOW  # noqa: E402

TITLE = "every n-th system call and allocation of seven commands fails"
QUICK = True
WORKERS = 2
SECONDS = 30  # of one command
OPEN_MAX = 30  # failures that the state holds
TINY = ("model.method=mod model.layers=2 model.dim=16 model.heads=2 model.vocab=300 model.max_seq=32 data.docs=20 data.tokenizer=bytes "
        "data.val_fraction=0.2 train.batch=2 train.seq=16 train.warmup=1 train.eval_tokens=32 train.final_tokens=32 train.samples=4 "
        "train.time_rounds=0 train.probes=1 train.probe_tokens=8 train.eval_every=3 train.probe_every=3 train.checkpoint_every=2 "
        "train.keep=1 train.system_every=0 threads=1").split()

# operation: its errors, the representative one first.  EINTR only of calls that can return it, and never persistently.
ALL = "EIO ENOSPC EDQUOT EINTR ESTALE EXDEV EMFILE"
ERRORS = {
    "write": "ENOSPC " + ALL + " SHORT", "read": ALL + " SHORT", "pread": "EIO EINTR ESTALE SHORT",
    "open": "EMFILE " + ALL, "close": "EIO EINTR ENOSPC EDQUOT ESTALE", "fsync": ALL, "fdatasync": "EIO EINTR ENOSPC EDQUOT ESTALE",
    "rename": "EIO EXDEV " + ALL, "mkdir": "ENOSPC " + ALL, "unlink": ALL, "rmdir": "EIO ESTALE", "link": "EIO EXDEV ENOSPC EDQUOT ESTALE",
    "ftruncate": "EIO EINTR ENOSPC EDQUOT ESTALE", "mmap": "ENOMEM EIO", "flock": "EIO ESTALE", "stat": "EIO ESTALE", "fstat": "EIO ESTALE",
    "opendir": "EMFILE EIO EINTR ESTALE", "readdir": "EIO ESTALE", "fork": "ENOMEM", "pipe": "EMFILE", "socket": "EMFILE", "alloc": "ENOMEM",
}
ERRORS = {k: list(dict.fromkeys(v.split())) for k, v in ERRORS.items()}
# without these nothing can be removed: what stays is for the next run
CLEANING = {"unlink", "rmdir", "opendir", "readdir"}


# ---- what a command leaves ------------------------------------------------------------------------------------------------


class Broken(Exception):
    pass


def need(ok, text):
    if not ok:
        raise Broken(text)


def read(path):
    with open(path, "rb") as f:
        return f.read()


def walk(top):
    """The paths of all files and, with a slash, of empty directories, relative."""
    out = set()
    for d, dirs, files in os.walk(top):
        at = os.path.relpath(d, top)
        out |= {os.path.normpath(os.path.join(at, x)) for x in files}
        if not dirs and not files and at != ".":
            out.add(at + "/")
    return out


def loads(data, name):
    try:
        return json.loads(data)
    except ValueError as x:
        raise Broken("%s does not parse: %s" % (name, x))


def records(data, name):
    """(seq, body) of a record stream in which every byte belongs to a record."""
    out, at = [], 0
    while at < len(data):
        size = frame_length(data[at:at + 6])
        whole = frame_body(data[at:at + size]) if size > 0 else None
        need(whole, "%s: no whole record at %d of %d" % (name, at, len(data)))
        out.append((whole[0], unpack(whole[1])))
        at += size
    seqs = [s for s, _ in out]
    need(all(a < b for a, b in zip(seqs, seqs[1:])), "%s: sequence numbers do not grow" % name)
    return out


TIMED = re.compile(r"^(time|pid|step_ms|tok_s|mfu)|_share$|tok_s$")


def measured(data, name):
    """Of a log, what is the same in every run: the newest metrics, evaluations and probes of each step without their times."""
    newest = {}
    for _, r in records(data, name):
        if r["kind"] in ("metric", "eval", "probe", "layer", "sample"):
            key = "%s of step %s" % (r["kind"], r["step"])
            newest[key] = {k: repr(v) for k, v in r.items() if not TIMED.search(k)}
    return newest


def digest(top, path):
    """What of a file is the same whenever the command succeeded."""
    if not os.path.isfile(os.path.join(top, path)):
        return "special"
    return digest_of(path, read(os.path.join(top, path)))


@functools.lru_cache(256)  # most files are those of the fixture
def digest_of(path, data):
    name = os.path.basename(path)
    if name == "state.json":
        x = loads(data, path)
        x.pop("seconds")
        return repr(sorted(x.items()))
    if name in ("manifest.json", "meta.json"):
        x = loads(data, path)
        return repr(sorted(x["files"])) if name == "manifest.json" else "parses"
    if name == "log.mp":
        records(data, path)
        return "whole"
    if path.startswith("runs/.batches/"):
        return "internal"
    if name.endswith(".json"):
        loads(data, path)
    return hashlib.sha256(data).hexdigest()


def outline(top, path):
    """What of a file may decide what the next command does: all but times, and the name that a run gives itself."""
    if path.endswith("/") or path.startswith("state/"):
        return ""
    if os.path.basename(path) != "log.mp":
        try:
            return digest(top, path)
        except Broken:  # a temporary file
            return read(os.path.join(top, path))
    data, at, out = read(os.path.join(top, path)), 0, []
    while at < len(data):
        size = frame_length(data[at:at + 6])
        whole = frame_body(data[at:at + size]) if size > 0 else None
        if not whole:
            return out + [len(data) - at]
        out.append((whole[0], {k: repr(v) for k, v in unpack(whole[1]).items() if k != "run_id" and not TIMED.search(k)}))
        at += size
    return out


def verify_checkpoints(top):
    """Every directory under a checkpoint's final name proves what its manifest says."""
    for path in walk(top):
        m = re.match(r"(.*/checkpoints/step-\d{8})(/|$)", path)
        if not m:
            continue
        d = os.path.join(top, m.group(1))
        need(os.path.isfile(d + "/manifest.json"), m.group(1) + " has no manifest")
        files = loads(read(d + "/manifest.json"), m.group(1))["files"]
        need(set(os.listdir(d)) == set(files) | {"manifest.json"}, "%s: its files are not those of the manifest" % m.group(1))
        for name, x in files.items():
            need(hashlib.sha256(read(os.path.join(d, name))).hexdigest() == x["sha256"], "%s/%s differs from its manifest" % (m.group(1), name))


# ---- the commands ---------------------------------------------------------------------------------------------------------


class Command:
    """`words` run in a copy of the fixture.  again: how a user repeats it after a failure, from the directory."""

    def __init__(self, words, fixture="base", again=None, between=None, last=None):
        self.words, self.fixture, self.last = words, fixture, last
        self.again = again or (lambda top: words)
        self.between = between  # names that only an unfinished command has
        # last: name of the last checkpoint of a command that goes on when an earlier one cannot be written


def resumed(top):
    begun = os.path.exists(os.path.join(top, "runs/r/config.yaml"))
    return ["train", "--resume", "r", "--quiet"] if begun else COMMANDS["train"].words


STEPS = r"runs/[^/]+/checkpoints/step-\d{8}(/.*)?|runs/[^/]+/best\.json"
COMMANDS = {
    "train": Command(["train", *TINY, "train.steps=6", "--run", "r", "--quiet"], "empty", resumed, STEPS, "step-00000006"),
    "resume": Command(["train", "--resume", "base", "--allow-change", "train.steps=8", "--quiet"], "torn", between=STEPS, last="step-00000008"),
    "calibrate": Command(["calibrate", "base", "tokens=32"]),
    "convert": Command(["convert", "base", "-o", "out"], again=lambda top: None if os.path.exists(top + "/out") else
                       COMMANDS["convert"].words),  # writes over no directory
    "convert-gguf": Command(["convert", "dense", "-o", "old.gguf", "--force"]),
    "export": Command(["export", "base", "--to", "csv", "-o", "base.csv"]),
    "export-tfevents": Command(["export", "base", "--to", "tfevents", "-o", "events.out.tfevents.base"]),
    "figure": Command(["figure", "training", "base", "-o", "figures"]),
    "get": Command(["get", "thing", "known=known.yaml"], between=r"thing/a\.bin\.part"),
    "sweep": Command(["sweep", *TINY, "train.steps=3", "--seeds", "1,2", "--out", "sweep.json", "--quiet"], "empty", None,
                     STEPS + r"|runs/sweep-.*|runs/\.batches/.*|sweep\.json", "step-00000003"),
}
BODY = bytes((i * 7 + i // 251) & 255 for i in range(100000))


class Server(http.server.BaseHTTPRequestHandler):
    """Serves BODY, from an offset too."""
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def do_HEAD(self):
        self.do_GET(False)

    def do_GET(self, body=True):
        wanted = self.headers.get("Range")
        start = int(wanted.split("=")[1].split("-")[0]) if wanted else 0
        if start >= len(BODY):
            self.send_response(416)
            self.send_header("Content-Range", "bytes */%d" % len(BODY))
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        self.send_response(206 if wanted else 200)
        if wanted:
            self.send_header("Content-Range", "bytes %d-%d/%d" % (start, len(BODY) - 1, len(BODY)))
        self.send_header("Content-Length", str(len(BODY) - start))
        self.end_headers()
        try:
            self.wfile.write(BODY[start:] if body else b"")
        except OSError:
            pass


class Listener(http.server.ThreadingHTTPServer):
    def handle_error(self, request, client_address):
        """A client whose reads fail hangs up: nothing to print."""


class Bench:
    """A directory with the fixtures, the reference of each command, and the server of `get`."""

    def __init__(self):
        self.top = tempfile.mkdtemp(prefix="ds-faults-", dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None)
        self.server = Listener(("127.0.0.1", 0), Server)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.reference, self.calls, self.skipped = {}, {}, {}
        self.before = {}  # of each command: {path: digest} of its fixture
        self.recovered = set()  # what faults have left and the command again has mended

    def close(self):
        self.server.shutdown()
        self.server.server_close()
        shutil.rmtree(self.top, ignore_errors=True)

    def call(self, words, top, fail=None):
        """(status, stderr) of the program run in `top`."""
        env = {k: v for k, v in os.environ.items() if k != "DEPTHSCOPE_FAIL"}
        env.update(DEPTHSCOPE_RUNS="runs", XDG_STATE_HOME=os.path.join(top, "state"), LC_ALL="C.UTF-8", NO_PROXY="*", OMP_NUM_THREADS="1",
                   DEPTHSCOPE_MIRROR="http://127.0.0.1:%d" % self.server.server_address[1])
        if fail:
            env["DEPTHSCOPE_FAIL"] = fail
        try:
            p = subprocess.run([PROGRAM, *words], cwd=top, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, timeout=SECONDS * SLOW)
        except subprocess.TimeoutExpired:
            raise Broken("does not end within %d s" % (SECONDS * SLOW))
        err = p.stderr.decode("utf-8", "replace")
        if words[0] == "sweep":  # reports its failed runs on standard output
            err += "".join("depthscope: %s\n" % x for x in p.stdout.decode("utf-8", "replace").splitlines() if x.startswith("failed, excluded"))
        return p.returncode, err

    def prepare(self):
        """The fixtures: an empty directory, one with two runs and files to write over, and the same with a torn record in a log."""
        os.makedirs(os.path.join(self.top, "empty"))
        base = os.path.join(self.top, "base")
        os.makedirs(base)
        for words in (["train", *TINY, "train.steps=4", "train.keep=3", "--run", "base", "--quiet"],
                      ["train", *TINY, "model.method=dense", "train.steps=2", "--run", "dense", "--quiet"]):
            status, err = self.call(words, base)
            need(status == 0, "%s: %s" % (" ".join(words[:2]), err))
        with open(os.path.join(base, "runs/base/best.json"), "w") as f:
            f.write('{"step": 2, "val_loss": 5}\n')  # not the newest: another checkpoint in its place is noticed
        with open(os.path.join(base, "old.gguf"), "wb") as f:
            f.write(b"GGUF of an earlier time")
        with open(os.path.join(base, "known.yaml"), "w") as f:
            f.write("thing:\n  kind: model\n  licence: MIT\n  about: a thing\n  f1: a.bin %d %s https://example.invalid/x\n"
                    % (len(BODY), hashlib.sha256(BODY).hexdigest()))
        torn = os.path.join(self.top, "torn")
        shutil.copytree(base, torn)
        log = os.path.join(torn, "runs/base/log.mp")
        data = read(log)
        with open(log, "ab") as f:
            f.write(data[:frame_length(data[:6]) // 2])

    def copy(self, command):
        top = tempfile.mkdtemp(dir=self.top)
        shutil.copytree(os.path.join(self.top, COMMANDS[command].fixture), top, dirs_exist_ok=True)
        return top

    def look(self, command, top):
        """{path: digest} of a directory in which the command succeeded; more of a log that it wrote."""
        seen = {p: digest(top, p) for p in walk(top) if not p.endswith("/") and not p.startswith("state/")}
        for p in seen:
            if p.endswith("/log.mp") and command in ("train", "resume", "sweep"):
                seen[p] = measured(read(os.path.join(top, p)), p)
        return seen

    def refer(self, command):
        """The reference of a command: what two undisturbed runs leave alike, and how often it calls what."""
        if command == "get" and not shutil.which("curl"):
            self.skipped[command] = "curl is not installed"
            return
        both = []
        for _ in range(2):
            top = self.copy(command)
            status, err = self.call(COMMANDS[command].words, top, "count=%s.count" % top)
            need(status == 0, "%s alone: status %d: %s" % (command, status, err))
            both.append(self.look(command, top))
            shutil.rmtree(top)
        need(set(both[0]) == set(both[1]), "%s: two runs leave different files" % command)
        self.calls[command] = read_counts(top + ".count")
        top = self.copy(command)
        self.before[command] = {p: "log" if p.endswith("/log.mp") else digest(top, p) for p in walk(top) if not p.endswith("/")}
        shutil.rmtree(top)
        # what differs between the two is only checked to be there and to parse
        self.reference[command] = {p: d if both[1][p] == d else None for p, d in both[0].items()}


def read_counts(path):
    """{operation: calls} of the process of the command that made most."""
    out = {}
    if os.path.exists(path):
        with open(path) as f:
            for line in f:
                for word in line.split():
                    name, n = word.split("=")
                    out[name] = max(out.get(name, 0), int(n))
        os.remove(path)
    return out


# ---- one case -------------------------------------------------------------------------------------------------------------


def check_words(status, err, what):
    """A failure is one line that says something; whatever else is on standard error are warnings, each a line of the program."""
    need(status >= 0, "%s: ended by signal %d: %s" % (what, -status, err[-300:]))
    need("Sanitizer" not in err and "runtime error" not in err and "BUG" not in err, "%s: %s" % (what, err[-600:]))
    need(status in (0, 1), "%s: exit status %d: %s" % (what, status, err))
    lines = err.splitlines()
    need(all(x.startswith("depthscope: ") and x.isprintable() for x in lines), "%s: not lines of the program: %r" % (what, err[-400:]))
    need(status != 1 or lines and " " in lines[-1][12:], "%s: an error without a reason: %r" % (what, err))
    need("Success" not in err and "(null)" not in err, "%s: an error without a reason: %s" % (what, err))
    need(not status or lines, "%s: status 1 and not a word" % what)
    # what is noted on the way is a warning or an error; the reason for a status of 1 is neither
    return [x for x in lines if not re.match(r"depthscope: (warning|error): ", x)]


def compare(bench, command, top, what, noted, operation=None):
    """All of the reference, bit for bit, and nothing more, but for what the operation kept from being removed.
    noted: standard error so far.  A run goes on when it says that a checkpoint failed; then only the last one must be there."""
    want, got = bench.reference[command], bench.look(command, top)
    last = COMMANDS[command].last
    if last and is_late(noted) or command == "sweep":  # what its runs say is not shown
        excused = lambda p: re.search(r"(best|state|manifest)\.json$", p) or re.fullmatch(STEPS, p) and last not in p
        want, got = ({p: d for p, d in x.items() if not excused(p)} for x in (want, got))
    extra, missing = sorted(set(got) - set(want)), sorted(set(want) - set(got))
    need(not missing, "%s: missing %s" % (what, missing[:3]))
    extra = [x for x in extra if not re.search(r"\.broken-\d+$", x)]
    if last and noted or command == "sweep":  # one more whole checkpoint than train.keep
        extra = [x for x in extra if not re.fullmatch(STEPS, x)]
    if command == "sweep":  # a lease that could not be given back is waited for, and taken over
        extra = [x for x in extra if not x.startswith("runs/.batches/leases/")]
    need(not extra or operation in CLEANING, "%s: left %s" % (what, extra[:3]))
    for p, d in want.items():
        need(d is None or got[p] == d, "%s: %s differs from an undisturbed run%s" % (what, p, difference(d, got[p])))


def difference(want, got):
    if not isinstance(want, dict):
        return ""
    for k in sorted(set(want) | set(got)):
        if want.get(k) != got.get(k):
            fields = [f for f in want.get(k, {}) if want[k][f] != got.get(k, {}).get(f)]
            return " at %s (%s)" % (k, ", ".join(fields[:3]) if k in got and k in want else "there" if k in got else "missing")
    return ""


def check_between(bench, command, top, before, operation, err):
    """After a failure: under final names what was there or what belongs there; other names only where nothing could be removed."""
    verify_checkpoints(top)
    want, between = bench.reference[command], COMMANDS[command].between
    for p in walk(top):
        if p.startswith("state/") or p in before and before[p] == "internal":
            continue
        name = os.path.basename(p.rstrip("/"))
        if p.endswith("/"):
            need(operation in CLEANING or not re.fullmatch(r"runs/[^/.]+/", p), "left a run that is empty: " + p)
            continue
        known = p in want or p in before or between and re.fullmatch(between, p)
        temporary = re.search(r"\.tmp(-|$)|(^|/)\.trash-", p)
        if temporary or not (known or name == "control.sock" and operation == "alloc"):
            is_said = "the old checkpoint stays at" in err and "/.trash-" in p  # and the next command restores it
            need(operation in CLEANING or is_said or re.search(r"\.broken-\d+$", p), "left %s" % p)
            continue
        if name == "log.mp":
            continue  # may end in a torn record; the next run cuts it
        if name == "control.sock" and operation == "alloc":
            continue  # without scratch memory threads end where they are, as if killed; the next run takes its place
        now = digest(top, p)  # parses
        if between and re.fullmatch(between, p) or name in ("meta.json", "manifest.json"):
            continue
        allowed = {want.get(p, now) or now, before.get(p, now) if p in before else want.get(p) or now}
        need(now in allowed, "%s is neither what it was nor what it should be" % p)


def is_late(noted):
    """An earlier checkpoint could not be written."""
    return bool(re.search(r"error: step \d+: checkpoint", noted))


def fingerprint(command, operation, status, noted, again, top):
    """Equal where the command again finds the same and is judged alike."""
    what = (command, operation if command == "sweep" else "", status, bool(noted), is_late(noted), again, sorted((p, outline(top, p)) for p in walk(top)))
    return hashlib.sha256(repr(what).encode()).digest()


def attempt(bench, command, operation, n, persistent, error):
    """One case: "" it holds, "unreached" the call was not made, else what is wrong."""
    rule = "%s:%d%s=%s" % (operation, n, "+" if persistent else "", error)
    top = bench.copy(command)
    count = top + ".count"
    words = COMMANDS[command].words
    try:
        status, err = bench.call(words, top, "%s,count=%s" % (rule, count))
        counts = read_counts(count)  # none when it ended before its first call on files
        reached = counts.get(operation, 0) >= n or status == 1 and not counts
        plain = check_words(status, err, "faulted")
        if status == 0:
            compare(bench, command, top, "status 0", err, operation)
        else:
            need(len(plain) == 1 or command == "sweep", "more than one line for a failure: %r" % err)
            check_between(bench, command, top, bench.before[command], operation, err)
        again = COMMANDS[command].again(top)
        noted = err
        left = fingerprint(command, operation, status, noted, again, top)
        if left in bench.recovered:
            return "" if reached else "unreached"
        if again:
            status, err = bench.call(again, top)
            check_words(status, err, "again")
            need(status == 0, "again (%s): %s" % (" ".join(again[:3]), err))
        # a sweep does not touch runs that are complete
        compare(bench, command, top, "again", noted + err, operation if command == "sweep" else None)
        verify_checkpoints(top)
        bench.recovered.add(left)
        return "" if reached else "unreached"
    except Broken as x:
        return str(x)
    finally:
        if os.path.exists(count):
            os.remove(count)
        shutil.rmtree(top, ignore_errors=True)


# ---- the walk -------------------------------------------------------------------------------------------------------------


def stride(total):
    """Near the golden section of it and without a common factor: a slice of the walk is spread evenly."""
    s = max(1, round(total * 0.618))
    while math.gcd(s, total) != 1:
        s += 1
    return s


def case_of(operation, calls, index):
    """Case number `index` of one command and operation, None beyond the last."""
    total, errors = 2 * calls, ERRORS[operation]
    if index >= total * len(errors):
        return None
    at = index % total * stride(total) % total
    return at // 2 + 1, at % 2, errors[index // total]


def pairs_of(state, bench):
    """The pairs of a command and an operation that it calls; a count that has changed begins a pair anew."""
    pairs = state.setdefault("pairs", {})
    for command, counts in bench.calls.items():
        for operation, calls in counts.items():
            key = "%s %s" % (command, operation)
            was = pairs.get(key)
            if calls and (not was or not 0.9 * was["calls"] - 2 <= calls <= 1.02 * was["calls"] + 2):
                pairs[key] = {"calls": calls, "next": 0, "tested": was["tested"] if was else 0,
                              "unreached": was["unreached"] if was else 0}
    return [k for k in sorted(pairs) if k.split()[0] in bench.calls]


def cases(state, bench):
    """(pair, index, n, persistent, error) for as long as there are any, the pairs in turn; a round that is complete begins again."""
    pairs = pairs_of(state, bench)
    while pairs:
        went = False
        # the turn is kept, so that short runs do not all begin with the same pairs
        for _ in range(len(pairs)):
            key = pairs[state.setdefault("turn", 0) % len(pairs)]
            state["turn"] = (state["turn"] + 1) % len(pairs)
            p = state["pairs"][key]
            if p["next"] >= 2 * p["calls"] and any(state["pairs"][k]["next"] < 2 * state["pairs"][k]["calls"] for k in pairs):
                continue  # every n with one error comes before the other errors
            found = case_of(key.split()[1], p["calls"], p["next"])
            while found and found[1] and found[2] == "EINTR":
                p["next"] += 1  # no kernel interrupts every call for ever
                found = case_of(key.split()[1], p["calls"], p["next"])
            if found:
                went = True
                p["next"] += 1
                yield (key, *found)
        if not went:
            state["rounds"] = state.get("rounds", 0) + 1
            for key in pairs:
                state["pairs"][key]["next"] = 0


def name_of(case):
    return "%s:%d%s=%s" % (case[0], case[1], "+" if case[2] else "", case[3])


def parse(name):
    m = re.fullmatch(r"(\S+ \S+):(\d+)(\+?)=(\w+)", name)
    return m.group(1), int(m.group(2)), int(bool(m.group(3))), m.group(4)


def note(state, budget, case, wrong):
    """One result into the counts; a failure is kept by its case until it holds."""
    key, name = case[0], name_of(case)
    p, is_open = state["pairs"][key], state.setdefault("open", {})
    if wrong == "unreached":
        p["unreached"] += 1
        return
    p["tested"] += 1
    if not wrong:
        budget.passed()
        is_open.pop(name, None)
        return
    if name in is_open or len(is_open) < OPEN_MAX:
        is_open[name] = wrong[:160]
    else:
        state["more_open"] = state.get("more_open", 0) + 1
    budget.failed("%s: %s" % (name, wrong))


def walk_cases(state, budget, bench):
    waiting, source = {}, cases(state, bench)
    again = [parse(x) for x in sorted(state.get("open", {}))]
    again = [c for c in again if c[0] in state.get("pairs", {}) and c[0].split()[0] in bench.calls]
    state["more_open"] = 0
    with concurrent.futures.ThreadPoolExecutor(WORKERS) as pool:
        while True:
            while len(waiting) < WORKERS and budget.left() > 0:
                case = again.pop(0) if again else next(source, None)
                if not case:
                    break
                waiting[pool.submit(attempt, bench, *case[0].split(), *case[1:])] = case
            if not waiting:
                return
            for f in concurrent.futures.wait(waiting, return_when=concurrent.futures.FIRST_COMPLETED).done:
                note(state, budget, waiting.pop(f), f.result())


def run(state, budget):
    if not os.access(PROGRAM, os.X_OK):
        budget.skipped("no program at %s" % PROGRAM)
        return
    bench = Bench()
    try:
        bench.prepare()
        for command in COMMANDS:
            bench.refer(command)
        for command, why in bench.skipped.items():
            budget.skipped("%s: %s" % (command, why))
        walk_cases(state, budget, bench)
    except Broken as x:
        budget.failed("an undisturbed command: %s" % x)
    finally:
        bench.close()


def page(state):
    pairs = state.get("pairs", {})
    first = lambda p: min(p["next"], 2 * p["calls"]) / (2 * p["calls"])
    lines = ["| command | operations | calls | cases tested | of all n, once and persistent | not reached | open failures |", "|---|---|---|---|---|---|---|"]
    for command in COMMANDS:
        mine = [p for k, p in pairs.items() if k.split()[0] == command]
        if mine:
            points, done = sum(2 * p["calls"] for p in mine), sum(first(p) * 2 * p["calls"] for p in mine)
            share = "all" if state.get("rounds") else "%.1f %%" % (100 * done / points)
            lines.append("| %s | %d | %d | %d | %s | %d | %d |" % (
                command, len(mine), sum(p["calls"] for p in mine), sum(p["tested"] for p in mine), share,
                sum(p["unreached"] for p in mine), sum(k.split()[0] == command for k in state.get("open", {}))))
    lines += ["", "Operations, with the cases tested: " + ", ".join("%s %d" % (op, sum(p["tested"] for k, p in pairs.items() if k.split()[1] == op))
                                                                     for op in ERRORS) + ".", ""]
    lines += ["After each fault: no signal or report of a sanitizer, one line for a failure, exit status 0 only with the complete result, final names",
              "with what was there before or what belongs there, checkpoints that verify, no temporary names where they can be removed; and the same",
              "command again (a run: resumed) leaves, bit for bit, what an undisturbed one leaves and no other name. It is not given again where",
              "a fault left, but for times, what an earlier one of the same `make proof` had left.",
              "All calls with the representative error of their operation come first, then those with each other one."]
    lines += ["", "Not covered: EINTR for ever (the loops that repeat a call would wait, as they should); system calls of libraries, of libc's own",
              "`fopen` of files below /proc and of curl; faults of two operations at once.  Failing removals may leave temporary names, which the",
              "next run removes."]
    if state.get("open"):
        lines += ["", "Open failures (%d, %d more):" % (len(state["open"]), state.get("more_open", 0)), ""]
        lines += ["- `%s`: %s" % (k, v.replace("\n", " ")) for k, v in sorted(state["open"].items())]
    return "\n".join(lines)
