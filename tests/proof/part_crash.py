"""Crash orders: what any legal order of writes leaves on a disk is materialised, read and resumed.

recorder.c, preloaded into a training, records what it does to files and directories.  A crash before any event leaves, of what was
not synced by then, any part: a write is there, lost, torn at sectors, or a length without bytes; an entry of a directory is there
or not, whatever became of the data.  What was synced (fsync and fdatasync of the file, fsync of the directory) is there.
"""
import functools
import hashlib
import json
import math
import os
import random
import re
import shutil
import struct
import subprocess
import sys
import tempfile

import t

sys.path.insert(0, os.path.join(t.ROOT, "src", "python"))
from depthscope._log import Scan  # noqa: E402
from preload import build  # noqa: E402

TITLE = "crash orders: every prefix and bounded reorderings of the writes of a training, resumed"
QUICK = True

STEPS = 6
TINY = ("model.layers=6 model.dim=16 model.heads=2 model.vocab=300 model.max_seq=64 data.docs=20 data.tokenizer=bytes "
        "data.val_fraction=0.2 train.batch=4 train.seq=16 train.warmup=2 train.eval_tokens=64 train.final_tokens=64 train.samples=16 "
        "train.time_rounds=0 train.probes=1 train.probe_tokens=16 train.eval_every=3 train.probe_every=50 train.checkpoint_every=2 "
        "train.layer_every=2 train.system_every=0 threads=1").split() + ["train.steps=%d" % STEPS]
EVENT = struct.Struct("<c3xIIIQQQ")
SECTOR = 512
OPEN_MAX = 20
EACH = 8  # writes of a file that are lost or torn by themselves
RANDOM = 4  # random subsets of each crash point
PLAIN = ("synced", "all", "names", "data", "zeros")
KINDS = ("plain", "one", "torn", "random")
STEP = re.compile(r"step-(\d{8})")


# ---- a trace ---------------------------------------------------------------------------------------------------------------


class Op:
    """One event.  sync: the event that made it durable."""

    __slots__ = ("kind", "obj", "a", "b", "name", "to", "at", "data", "sync")

    def __init__(self, kind, obj, a=0, b=0, name="", to="", at=0, data=b""):
        self.kind, self.obj, self.a, self.b, self.name, self.to, self.at, self.data = kind, obj, a, b, name, to, at, data
        self.sync = math.inf


class Trace:
    """What a program did to the files below a directory, which held `before` then (path: bytes, None for a directory)."""

    def __init__(self, top):
        self.files, self.dirs, self.ops = {}, {}, []
        self._known = {}
        self._add_tree(top)

    def _new(self, ino, is_dir):
        obj = self._known[ino] = len(self.files) + len(self.dirs)
        (self.dirs if is_dir else self.files)[obj] = {} if is_dir else b""
        return obj

    def _add_tree(self, path):
        obj = self._new(os.lstat(path).st_ino, True)
        for e in sorted(os.scandir(path), key=lambda e: e.name):
            if e.is_dir(follow_symlinks=False):
                self.dirs[obj][e.name] = self._add_tree(e.path)
            elif e.is_file(follow_symlinks=False):
                child = self._known.get(e.inode())
                if child is None:
                    child = self._new(e.inode(), False)
                    with open(e.path, "rb") as f:
                        self.files[child] = f.read()
                self.dirs[obj][e.name] = child
        return obj

    def read(self, path):
        """Takes the events; what is outside of the directory is left out."""
        with open(path, "rb") as f:
            data = f.read()
        at, now, waiting = 0, {d: dict(x) for d, x in self.dirs.items()}, {}
        while at < len(data):
            kind, n, m, size, a, b, offset = EVENT.unpack_from(data, at)
            at += EVENT.size
            name, to, bytes_ = data[at:at + n].decode(), data[at + n:at + n + m].decode(), data[at + n + m:at + n + m + size]
            at += n + m + size
            self._take(kind.decode(), name, to, bytes_, a, b, offset, now, waiting)
        return self

    def _take(self, kind, name, to, data, a, b, offset, now, waiting):
        op, known = None, self._known
        if kind == "X":
            raise AssertionError("the program calls %s, which the recorder does not describe" % name)
        if a not in known:
            return
        where = known[a]
        if kind in "CD":
            obj = self._new(b, kind == "D")
            now[obj] = {}
            now[where][name] = obj
            op = Op(kind, obj, a=where, name=name)
        elif kind == "L":
            if b not in known:
                raise AssertionError("%s is a link to a file from elsewhere" % name)
            now[where][name] = known[b]
            op = Op("C", known[b], a=where, name=name)
        elif kind == "R":
            if b not in known or name not in now[where]:
                raise AssertionError("%s was renamed from or to elsewhere" % name)
            obj = now[where].pop(name)
            now[known[b]][to] = obj
            op = Op("R", obj, a=where, b=known[b], name=name, to=to)
        elif kind == "U":
            if name not in now[where]:
                return  # a socket
            op = Op("U", now[where].pop(name), a=where, name=name)
        elif kind in "WT":
            op = Op(kind, where, at=offset, data=data)
        elif kind == "F":
            op = Op("F", where)
            for x in waiting.pop(where, []):
                x.sync = min(x.sync, len(self.ops))
        if op:
            self.ops.append(op)
            for of in {op.obj} if kind in "WT" else {op.a, op.b} if kind == "R" else {op.a} if kind != "F" else ():
                waiting.setdefault(of, []).append(op)

    def pending(self, p):
        """Indices of what a crash before event p may lose; of the writes to one file at most EACH, evenly spaced."""
        waiting = [(i, op) for i, op in enumerate(self.ops[:p]) if op.kind != "F" and op.sync >= p]
        writes = {}
        for i, op in waiting:
            writes.setdefault(op.obj if op.kind == "W" else None, []).append(i)
        for obj, of in writes.items():
            if obj is not None and len(of) > EACH:
                writes[obj] = [of[k * (len(of) - 1) // (EACH - 1)] for k in range(EACH)]
        return sorted(i for of in writes.values() for i in of)

    def image(self, p, choose):
        """The disk after a crash before event p.  choose(i, op): what became of an operation that was not synced: "whole", "lost",
        "zeros", or for a write the set of its sectors that are there."""
        files, dirs = {o: bytearray(x) for o, x in self.files.items()}, {o: dict(x) for o, x in self.dirs.items()}
        for i, op in enumerate(self.ops[:p]):
            how = "whole" if op.kind == "F" or op.sync < p else choose(i, op)
            if op.kind == "F" or how == "lost":
                continue
            if op.kind == "W":
                put(files[op.obj], op, how)
            elif op.kind == "T":
                f = files[op.obj]
                f[op.at:] = b"\0" * max(0, op.at - len(f))
            else:
                if op.kind in "RU" and dirs[op.a].get(op.name) == op.obj:
                    del dirs[op.a][op.name]
                if op.kind != "U":
                    dirs[op.b if op.kind == "R" else op.a][op.to if op.kind == "R" else op.name] = op.obj
        out = {}

        def walk(obj, path):
            for name, child in dirs[obj].items():
                if child in dirs:
                    out[path + name] = None
                    walk(child, path + name + "/")
                else:
                    out[path + name] = bytes(files[child])
        walk(0, "")
        return out


def put(f, op, how):
    end = op.at + len(op.data)
    if len(f) < end:
        f.extend(b"\0" * (end - len(f)))
    if how == "whole":
        f[op.at:end] = op.data
    elif how != "zeros":
        for sector in how:
            a, b = max(op.at, sector * SECTOR), min(end, (sector + 1) * SECTOR)
            f[a:b] = op.data[a - op.at:b - op.at]


def torn(op, rng):
    """A write of which some sectors are there: mostly the first ones, sometimes any."""
    sectors = list(range(op.at // SECTOR, (op.at + len(op.data) - 1) // SECTOR + 1))
    if rng.random() < 0.5:
        return set(sectors[:rng.randrange(len(sectors))])
    return {s for s in sectors if rng.random() < 0.5}


# ---- the cases of a trace --------------------------------------------------------------------------------------------------


class Cases:
    """Every case of a trace: per kind, (crash point, which) by number."""

    def __init__(self, trace):
        self.trace = trace
        points = range(len(trace.ops) + 1)
        pending = [trace.pending(p) for p in points]
        self.of = {"plain": [(p, k) for p in points for k in range(len(PLAIN))],
                   "one": [(p, i) for p in points for i in pending[p]],
                   "torn": [(p, i) for p in points for i in pending[p] if trace.ops[i].kind == "W"],
                   "random": [(p, k) for p in points if pending[p] for k in range(RANDOM)]}

    def image(self, kind, number):
        p, which = self.of[kind][number]
        rng = random.Random("%s %d" % (kind, number))

        def plain(i, op):
            is_data = op.kind in "WT"
            return {"synced": "lost", "all": "whole", "names": "lost" if is_data else "whole", "data": "whole" if is_data else "lost",
                    "zeros": "zeros" if op.kind == "W" else "whole"}[PLAIN[which]]

        def one(i, op):
            return "lost" if i == which else "whole"

        def tear(i, op):
            return torn(op, rng) if i == which else "whole"

        def any_of(i, op):
            how = rng.choice(["whole", "whole", "lost", "torn", "zeros"] if op.kind == "W" else ["whole", "lost"])
            return torn(op, rng) if how == "torn" else how
        return p, self.trace.image(p, {"plain": plain, "one": one, "torn": tear, "random": any_of}[kind])

    def spread(self, kind, k):
        """Number of the k-th case in an order that is spread over the trace and meets each once."""
        n = len(self.of[kind])
        stride = max(1, round(n * 0.6180339887))
        while math.gcd(stride, n) != 1:
            stride += 1
        return k * stride % n


# ---- what is known of an image ---------------------------------------------------------------------------------------------


def sha(data):
    return hashlib.sha256(data).hexdigest()


def fingerprint(image):
    h = hashlib.sha256()
    for path in sorted(image):
        h.update(repr((path, image[path] is not None and len(image[path]))).encode())
        h.update(image[path] or b"")
    return h.digest()


def is_whole(image, path):
    """By its manifest."""
    try:
        files = json.loads(image[path + "/manifest.json"])["files"]
        return bool(files) and all(len(image[path + "/" + n]) == x["bytes"] and sha(image[path + "/" + n]) == x["sha256"]
                                   for n, x in files.items())
    except (KeyError, TypeError, ValueError):
        return False


def checkpoints(image, run):
    """(steps of whole checkpoints, of others): one that was moved aside counts when its name is free."""
    top, whole, broken = run + "/checkpoints/", set(), set()
    for path, data in image.items():
        name = path[len(top):] if path.startswith(top) and data is None else ""
        m = re.fullmatch(r"(?:\.trash-[0-9a-f]{8}-\d+-\d+-\d+-)?step-(\d{8})", name)
        if m and (name[0] != "." or top + "step-" + m.group(1) not in image):
            (whole if is_whole(image, path) else broken).add(int(m.group(1)))
    return whole, broken - whole


@functools.lru_cache(64)
def frames(data):
    """(bytes, seq, body) of every whole record, and whether anything else is between or after them."""
    with tempfile.TemporaryFile() as f:
        f.write(data)
        f.flush()
        scan, out, damage = Scan(f), [], False
        for found in scan:
            if found.body is None:
                damage = True
            else:
                out.append((data[found.offset:found.offset + found.length], found.seq, found.body))
        return out, damage or bool(scan.tail)


def bits(image, run):
    """The last checkpoint, but for the times."""
    at = "%s/checkpoints/step-%08d/" % (run, STEPS)
    state = json.loads(image[at + "state.json"])
    del state["seconds"]
    return sha(image[at + "model.safetensors"]), sha(image[at + "optimizer.safetensors"]), state


def read_tree(top):
    out = {}
    for where, folders, names in os.walk(top):
        rest = os.path.relpath(where, top)
        for name in folders:
            out[os.path.normpath(os.path.join(rest, name))] = None
        for name in names:
            if os.path.isfile(os.path.join(where, name)):
                with open(os.path.join(where, name), "rb") as f:
                    out[os.path.normpath(os.path.join(rest, name))] = f.read()
    return out


def write_tree(top, image):
    shutil.rmtree(top, ignore_errors=True)
    os.makedirs(top)
    for path in sorted(image):
        if image[path] is None:
            os.makedirs(os.path.join(top, path), exist_ok=True)
    for path, data in image.items():
        if data is not None:
            with open(os.path.join(top, path), "wb") as f:
                f.write(data)


# ---- the programs whose writes are recorded --------------------------------------------------------------------------------


def program(top, *words, seconds=60, **env):
    p = subprocess.run([t.PROGRAM, *words], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=seconds * t.SLOW,
                       env={**os.environ, "DEPTHSCOPE_RUNS": top, "LC_ALL": "C.UTF-8", **env})
    return p.returncode, p.stdout, p.stderr


def must(top, *words, **env):
    status, _, err = program(top, *words, **env)
    assert status == 0, "%s: exit status %d: %s" % (" ".join(words), status, err)


class Scenario:
    """A recorded command and what may follow from a crash in it.  first: the command again, for a run that had not begun."""

    def __init__(self, name, run, top, words):
        self.name, self.run, self.words = name, run, words
        self.before = read_tree(top)
        trace = Trace(top)
        path = top + ".trace"
        must(top, *words, LD_PRELOAD=build("recorder"), RECORD_TO=path)
        self.trace = trace.read(path)
        os.remove(path)
        self.cases = Cases(self.trace)
        self.after = read_tree(top)
        replayed = self.trace.image(len(self.trace.ops), lambda i, op: "whole")
        wrong = [p for p in sorted({*replayed, *self.after}) if replayed.get(p, 0) != self.after.get(p, 0)]
        assert not wrong, "the replay of the whole trace differs from the disk: %s" % wrong[0]
        self.want = bits(self.after, run)
        self.outcomes = {}  # of the disks that were tried
        self._note_acknowledged()

    def _note_acknowledged(self):
        """When each checkpoint was: its name is synced.  And the records of the log, each with the event that synced it, which is
        at the latest the one that acknowledged a later checkpoint."""
        self.steps, named, published = [(0, step) for step in checkpoints(self.before, self.run)[0]], [], 0
        for i, op in enumerate(self.trace.ops):
            m = STEP.fullmatch(op.to)
            if op.kind == "R" and (m or op.to == self.run):
                synced = [k for k, x in enumerate(self.trace.ops) if k > i and x.kind == "F" and x.obj == op.b][:1]
                named += [(i, k) for k in synced if m]
                self.steps += [(k + 1, int(m.group(1))) for k in synced if m]
                published = published if m else (synced or [i])[0] + 1
        self.steps = [(max(at, published), step) for at, step in self.steps]  # a fork is prepared elsewhere
        log = self.run + "/log.mp"
        self.records, damage = frames(self.after[log])
        assert not damage or self.name != "fresh", "the log is damaged"
        early = {raw for raw, _, _ in frames(self.before.get(log, b""))[0]}
        synced = {op.data: min([op.sync] + [at for renamed, at in named if renamed > i])
                  for i, op in enumerate(self.trace.ops) if op.kind == "W"}
        self.synced = [-1 if raw in early else synced[raw] for raw, _, _ in self.records]

    def acknowledged(self, p):
        """(newest step, records) that a crash before event p must leave; -1 none."""
        step = max([s for at, s in self.steps if at <= p], default=-1)
        return step, {raw for (raw, _, _), at in zip(self.records, self.synced) if at < p}


def fresh(top):
    return Scenario("fresh", "first", top, ["train", *TINY, "train.keep=1", "--run", "first", "--quiet"])


def resume(top):
    """Of what a crash before the second checkpoint got its name left, the last record torn."""
    source = fresh(top)
    ops = source.trace.ops
    p = [i for i, op in enumerate(ops) if op.kind == "R" and op.to == "step-%08d" % 4][0]
    last = max(i for i, op in enumerate(ops[:p]) if op.kind == "W" and ops[i].data in {raw for raw, _, _ in source.records})
    ops[last].sync = math.inf
    write_tree(top, source.trace.image(p, lambda i, op: {op.at // SECTOR} if i == last else "whole"))
    return Scenario("resume", "first", top, ["train", "--resume", "first", "--quiet"])


def fork(top):
    must(top, "train", *TINY, "train.keep=3", "--run", "first", "--quiet")
    return Scenario("fork", "first-from-2", top, ["train", "--resume", "first", "--from", "2", "--quiet"])


SCENARIOS = {"fresh": fresh, "resume": resume, "fork": fork}


# ---- checks ----------------------------------------------------------------------------------------------------------------


def check(ok, text):
    if not ok:
        raise AssertionError(text)


def one_line(err):
    return err.startswith("depthscope: ") and err.count("\n") == 1


def check_image(s, p, image):
    """What must hold of the bytes alone; (newest whole step, records in it)."""
    step, records = s.acknowledged(p)
    whole, broken = checkpoints(image, s.run)
    newest = max(whole, default=-1)
    check(step <= newest, "the checkpoint of step %d was acknowledged, the newest whole one is %d" % (step, newest))
    check(not broken or newest >= max(broken), "checkpoints %s have their names and are not whole" % sorted(broken))
    got, _ = frames(image.get(s.run + "/log.mp", b""))
    real = {raw for raw, _, _ in s.records}
    check(all(raw in real for raw, _, _ in got), "a record of the log is not one that was written")
    check([q for _, q, _ in got] == sorted({q for _, q, _ in got}), "records of the log are not in order")
    lost = records - {raw for raw, _, _ in got}
    check(not lost, "%d records of the log were synced and are lost" % len(lost))
    best = image.get(s.run + "/best.json")
    check(best is None or json.loads(best)["step"] in whole, "best.json names a checkpoint that is not there: %r" % best)
    return newest, got


def check_reading(s, top, got):
    """The commands that read; what they find in the log is what Python finds."""
    status, out, err = program(top, "runs", "--json")
    check(status == 0, "runs: exit status %d: %s" % (status, err))
    row = [x for x in json.loads(out) if x["name"] == s.run]
    heads = [b for _, _, b in got if b["kind"] == "head"]
    check(not heads or row and row[0]["run_id"] == heads[-1]["run_id"], "runs lacks the run, or its run_id")
    status, out, err = program(top, "inspect", "--json", os.path.join(top, s.run))
    check(status >= 0 and (status == 0 or one_line(err)), "inspect: exit status %d: %s" % (status, err))
    check(not heads or status == 0, "inspect refuses a run with records: %s" % err)
    if heads:
        want = {}
        for _, _, body in got:
            want[body["kind"]] = want.get(body["kind"], 0) + 1
        told = json.loads(out)["records"]
        check(told == want, "inspect counts the records as %s, in the log are %s" % (told, want))


def is_refused(s, top, err):
    """One line says so; then the command itself works, or what is in the way can be moved away."""
    check(one_line(err), "not one line: %r" % err)
    m = re.search(r"(\S+): not a record stream; move the file away", err)
    if m:
        os.remove(m.group(1))
    again = s.words if "--run" in s.words else s.words + ["--run", s.run]  # what is left of it has the name that is free no more
    status, _, err = program(top, *(["train", "--resume", s.run, "--quiet"] if m else again))
    check(status == 0, "the command again: exit status %d: %r" % (status, err))
    after = read_tree(top)
    check(bits(after, s.run) == s.want, "the command again: other weights")
    left = [p for p in after if ".tmp" in p or ".trash" in p]
    check(not left, "left over: %s" % left[:1])
    return "refused, begun again" + (" without the log" if m else "")


def check_resumed(s, top, newest, got, run_id):
    """It went on from the newest whole checkpoint, keeps every record that was left, and ends with the same bits."""
    after = read_tree(top)
    kept, damage = frames(after[s.run + "/log.mp"])
    check([raw for raw, _, _ in kept[:len(got)]] == [raw for raw, _, _ in got], "records were lost or altered when it was resumed")
    new = kept[len(got):]
    check([q for _, q, _ in kept] == sorted({q for _, q, _ in kept}), "seq does not grow")
    check(new and new[0][2]["kind"] == "head" and new[-1][2]["kind"] == "end", "no head and end")
    check(new[-1][2]["status"] == "done", "the end is %r" % new[-1][2]["status"])
    check(run_id in (None, new[0][2]["run_id"]), "another run_id")
    note = [b["text"] for _, _, b in new if b["kind"] == "event" and b["name"] == "resume"]
    m = re.search(r"(?:from the checkpoint of|begins with) step (\d+)", " ".join(note))
    check(note and (int(m.group(1)) if m else -1) == newest, "newest whole checkpoint is %d, the record says %s" % (newest, note))
    check(new[0][2]["step"] == max(newest, 0), "the head begins at step %s" % new[0][2]["step"])
    steps = [b["step"] for _, _, b in new if b["kind"] == "metric"]
    check(steps == list(range(max(newest, 0) + 1, STEPS + 1)), "steps %s follow checkpoint %d" % (steps, newest))
    check(bits(after, s.run) == s.want, "the weights at the end differ from those of the uninterrupted run")
    left = [p for p in after if p.startswith(s.run + "/") and (".tmp" in p or ".trash" in p)]
    check(not left, "left over: %s" % left[:1])
    whole, broken = checkpoints(after, s.run)
    check(STEPS in whole and not broken, "checkpoints at the end: %s whole, %s broken" % (sorted(whole), sorted(broken)))
    return damage


def check_others(s, top):
    """Other runs of the folder are as they were."""
    after = read_tree(top)
    for path, data in s.before.items():
        check(path.startswith(s.run + "/") or path == s.run or after.get(path, 0) == data, "%s has changed" % path)


def run_case(s, kind, number, top):
    """Materialises it, reads it and resumes it, unless an equal disk was; what came of it."""
    p, image = s.cases.image(kind, number)
    newest, got = check_image(s, p, image)
    key = fingerprint(image)
    if key not in s.outcomes:
        s.outcomes[key] = go_on(s, image, newest, got, top)
    step, records = s.acknowledged(p)
    check(step < 0 and not records or not s.outcomes[key].startswith("refused"),
          "step %d and %d records were acknowledged, and it is refused" % (step, len(records)))
    return s.outcomes[key]


def go_on(s, image, newest, got, top):
    write_tree(top, image)
    check_reading(s, top, got)
    status, _, err = program(top, "train", "--resume", s.run, "--quiet")
    check(status in (0, 1, 2), "resume: exit status %d: %s" % (status, err))
    check("corrupt: from" not in err and "all checkpoints are corrupt" not in err, "resume: %s" % err)
    if status != 0:
        outcome = is_refused(s, top, err)
    else:
        ids = [b["run_id"] for _, _, b in got if b["kind"] == "head"]
        outcome = "from step %d" % newest if newest >= 0 else "from the start"
        if check_resumed(s, top, newest, got, ids[-1] if ids else None):
            outcome += ", with a gap in the log"
    check_others(s, top)
    return outcome


# ---- the part --------------------------------------------------------------------------------------------------------------


def record(name, work):
    top = os.path.join(work, name)
    os.makedirs(top)
    s = SCENARIOS[name](top)
    shutil.rmtree(top)
    return s


def attempt(s, kind, number, work, budget, entry, opened):
    """One case, counted; a failure is kept to be tried again first by the next run."""
    try:
        outcome = run_case(s, kind, number, os.path.join(work, "runs"))
        entry["outcomes"][outcome] = entry["outcomes"].get(outcome, 0) + 1
        budget.passed()
    except (AssertionError, KeyError, ValueError, subprocess.TimeoutExpired) as x:
        p = s.cases.of[kind][number][0]
        text = "%s, crash before event %d of %d, %s %d: %s" % (s.name, p, len(s.trace.ops), kind, number, str(x)[:300])
        budget.failed(text)
        if len(opened) < OPEN_MAX:
            opened.append({"scenario": s.name, "kind": kind, "number": number, "cases": len(s.cases.of[kind]), "text": text})


def again(scenarios, work, budget, state):
    """What failed in an earlier run; or what is at its place, when the trace has changed."""
    before, state["open"] = state.get("open", []), []
    for i, x in enumerate(before):
        s = scenarios[x["scenario"]]
        if budget.left() <= 0:
            state["open"] += before[i:]
            return
        number = x["number"] * len(s.cases.of[x["kind"]]) // x["cases"]
        attempt(s, x["kind"], number, work, budget, state["scenarios"][s.name], state["open"])


def is_round_complete(table):
    return all(table[s]["done"][k] >= table[s]["cases"][k] for s in SCENARIOS for k in KINDS)


def run(state, budget):
    try:
        build("recorder")
    except t.Skip as x:
        budget.skipped("crash: %s" % x)
        return
    work = tempfile.mkdtemp(prefix="ds-crash-", dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None)
    try:
        scenarios = {name: record(name, work) for name in SCENARIOS}
        table = state.setdefault("scenarios", {})
        for name, s in scenarios.items():
            entry = table.setdefault(name, {"done": dict.fromkeys(KINDS, 0), "outcomes": {}})
            entry["events"] = len(s.trace.ops)
            entry["cases"] = {k: len(s.cases.of[k]) for k in KINDS}
        again(scenarios, work, budget, state)
        while budget.left() > 0:
            for name, s in scenarios.items():
                for kind in KINDS:
                    if budget.left() <= 0:
                        break
                    done = table[name]["done"]
                    if done[kind] >= table[name]["cases"][kind] and not is_round_complete(table):
                        continue  # every case of each kind comes before any is tried again
                    attempt(s, kind, s.cases.spread(kind, done[kind]), work, budget, table[name], state["open"])
                    done[kind] += 1
    finally:
        shutil.rmtree(work, ignore_errors=True)


def page(state):
    table = state.get("scenarios", {})
    lines = ["A preloaded recorder ([recorder.c](recorder.c)) notes every write, sync, truncation, creation, link, rename and removal of a",
             "tiny training with three checkpoints, of its resume after a crash, and of a fork; the replay of each trace equals the disk.",
             "For every event the disk is materialised as a crash before it may leave it: what was synced; all; names without data; data",
             "without names; lengths without bytes (*plain*); all but *one* operation; one write *torn* at sectors of %d bytes; %d *random*"
             % (SECTOR, RANDOM),
             "subsets. Of the unsynced writes to one file %d are lost or torn by themselves. `runs` and `inspect` read it and agree" % EACH,
             "with the Python reader. `train --resume` must continue from the newest checkpoint whose manifest holds, not older than the",
             "last acknowledged one, keep every whole record of the log as it is, clean up, and end with the bits of the uninterrupted",
             "run; or refuse in one line while nothing had been acknowledged. Disks that are equal are tried once by each `make proof`.", "",
             "| training | events | plain | one | torn | random | what came of it |", "|---|---|---|---|---|---|---|"]
    for name, e in table.items():
        counts = " | ".join("%d of %d" % (min(e["done"][k], e["cases"][k]), e["cases"][k]) for k in KINDS)
        lines.append("| %s | %d | %s | %s |" % (name, e["events"], counts, "; ".join("%s: %d" % x for x in sorted(e["outcomes"].items()))))
    lines += ["", "Not covered: file systems that lose what was synced; damage of bytes at rest (tests/fault has that); several ranks; two",
              "processes that write at once."]
    for x in state.get("open", []):
        lines.append("- open: %s" % x["text"])
    return "\n".join(lines)
