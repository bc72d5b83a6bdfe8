"""Long runs of three processes that people leave alone for days: a viewer that follows a log through rotation, a training that
writes and prunes checkpoints, and a session that answers requests.  Resident memory and descriptors must be flat, and what is
shown or answered at the end must be what was written or asked."""
import json
import os
import select
import shutil
import signal
import struct
import subprocess
import tempfile
import time

import records
import t
import terminals

TITLE = "memory, descriptors and drift over long runs: a viewer through log rotation, a training with its checkpoints, a session"
SHARES = {"viewer": 0.4, "training": 0.3, "session": 0.3}
TARGETS = {"viewer": 10_000_000, "training": 10_000, "session": 100_000}
UNITS = {"viewer": "records", "training": "checkpoints", "session": "requests"}
GROWTH_MAX, KIB_MAX, FD_MAX = 0.02, 256, 1
GENERATION = 50_000  # records of one file between two rotations
TINY = ("model.layers=6 model.dim=16 model.heads=2 model.vocab=300 train.seq=16 train.batch=1 train.eval_every=1000000 "
        "train.probe_every=1000000 train.final_tokens=512 train.eval_tokens=512 data.docs=60 data.val_fraction=0.3 "
        "train.time_rounds=2").split()


def memory_kib(pid):
    with open("/proc/%d/status" % pid, encoding="ascii", errors="replace") as f:
        for line in f:
            if line.startswith("RssAnon:"):
                return int(line.split()[1])
    raise ProcessLookupError(pid)


def descriptors(pid):
    return len(os.listdir("/proc/%d/fd" % pid))


def growth(samples):
    """KiB that a straight line through the second half of the samples climbs, and its share of their mean."""
    half = samples[len(samples) // 2:]
    n = len(half)
    x, y = (n - 1) / 2, sum(half) / n
    below = sum((i - x) ** 2 for i in range(n))
    climb = sum((i - x) * (v - y) for i, v in enumerate(half)) / below * (n - 1) if below else 0.0
    return climb, climb / y if y else 0.0


def is_flat(samples):
    climb, share = growth(samples)
    return climb <= KIB_MAX or share <= GROWTH_MAX


class Flat:
    """Samples of one process, thinned so that they stay few."""

    def __init__(self, pid, most=4000):
        self.pid, self.most, self.kib, self.fds, self.every, self.turn = pid, most, [], [], 1, 0

    def sample(self):
        self.turn += 1
        if self.turn % self.every:
            return
        self.kib.append(memory_kib(self.pid))
        self.fds.append(descriptors(self.pid))
        if len(self.kib) > self.most:
            self.kib, self.fds, self.every = self.kib[::2], self.fds[::2], self.every * 2

    def judge(self, what, part, budget):
        if len(self.kib) < 8:
            budget.skipped("soak %s: %d samples are too few for a slope" % (what, len(self.kib)))
            return
        climb, share = growth(self.kib)
        part["kib"] = max(part.get("kib", 0), max(self.kib))
        part["descriptors"] = max(part.get("descriptors", 0), max(self.fds))
        part["growth_kib"] = round(climb)
        part["growth"] = round(share, 4)
        if is_flat(self.kib):
            budget.passed()
        else:
            fail(part, budget, "%s: resident memory grows by %d KiB, %.1f %%, over the second half of %d samples" % (
                what, climb, 100 * share, len(self.kib)))
        late = self.fds[len(self.fds) // 2:]
        if max(late) - min(late[:max(1, len(late) // 4)]) <= FD_MAX:
            budget.passed()
        else:
            fail(part, budget, "%s: descriptors grow from %d to %d" % (what, min(late), max(late)))


def fail(part, budget, text):
    budget.failed("soak " + text)
    part["open"] = (part.get("open", []) + [text])[-5:]


def right(is_right, part, budget, text):
    if is_right:
        budget.passed()
    else:
        fail(part, budget, text)


# ---- a writer of many records: the checksum is linear, so that of a record is that of a template and its changed bytes ----

class Writer:
    """Records {kind: metric, step, time, loss}; step and seq below 2^32."""

    def __init__(self):
        body = records.pack({"kind": "metric", "step": 0, "time": 0.0, "loss": 0.0})
        self.data = bytearray(struct.pack(">Q", 0) + body)
        plain = records.crc32c(self.data)
        places = {"seq": 8, "step": self.data.index(b"step") + 4 + 9, "time": self.data.index(b"time") + 4 + 9,
                  "loss": self.data.index(b"loss") + 4 + 9}
        self.ends, self.tables = places, {}
        for name, end in places.items():
            width = 4 if name in ("seq", "step") else 8
            first = end - width
            self.tables[name] = []
            for at in range(first, end):
                row = []
                for b in range(256):
                    self.data[at] = b
                    row.append(records.crc32c(self.data) ^ plain)
                self.data[at] = 0
                self.tables[name].append(row)
        self.plain = plain
        self.head = b"\xc9" + struct.pack(">IB", len(self.data) + 4, 0x44)

    def block(self, seq, step, n, now):
        """n records from these numbers on."""
        out, data, ends, tables = [], self.data, self.ends, self.tables
        clock = struct.pack(">d", now)
        fixed = self.plain
        for row, b in zip(tables["time"], clock):
            fixed ^= row[b]
        data[ends["time"] - 8:ends["time"]] = clock
        s0, s1, s2, s3 = tables["seq"]
        p0, p1, p2, p3 = tables["step"]
        losses = []
        for k in range(64):  # a few values are enough
            raw, crc = struct.pack(">d", 1 + k / 64), 0
            for row, b in zip(tables["loss"], raw):
                crc ^= row[b]
            losses.append((raw, crc))
        for i in range(n):
            q, p = (seq + i).to_bytes(4, "big"), (step + i).to_bytes(4, "big")
            raw, crc = losses[(step + i) & 63]
            crc ^= fixed ^ s0[q[0]] ^ s1[q[1]] ^ s2[q[2]] ^ s3[q[3]] ^ p0[p[0]] ^ p1[p[1]] ^ p2[p[2]] ^ p3[p[3]]
            data[4:8] = q
            data[ends["step"] - 4:ends["step"]] = p
            data[ends["loss"] - 8:ends["loss"]] = raw
            out.append(self.head + crc.to_bytes(4, "big") + data)
        return b"".join(out)


# ---- the three processes ----

def viewer(part, budget, seconds, work):
    """`depthscope RUN` in a terminal of 80x24, of a log that is rotated: renamed away and begun again, or copied and truncated."""
    why = terminals.Pty.missing()
    if why:
        budget.skipped("soak viewer: " + why)
        return
    end, writer = time.monotonic() + min(seconds, budget.left()), Writer()
    run = os.path.join(work, "runs", "soak")
    log, step, seq, total = os.path.join(run, "log.mp"), 0, 1, 0

    def begin():
        head = records.Log(log)
        head.seq = 1
        head.put("head", 0, format=1, run="soak", method="dense", layers=2, steps=99_999_999, seed=1, config={})
        return head.file

    file = begin()
    term = terminals.Pty([t.PROGRAM, run, "--view", "log"], {"DEPTHSCOPE_RUNS": os.path.join(work, "runs"),
                                                             "XDG_STATE_HOME": os.path.join(work, "state")}, 24, 80)
    flat = Flat(term.started["pid"])

    def shows(text, most=30):
        stop = time.monotonic() + most * t.SLOW
        while time.monotonic() < stop:
            if "step " + text in term.rows()[0]:
                return True
            term.pump(0.05)
        return False

    try:
        rotations = 0
        while time.monotonic() < end:
            seq, written = 2, 0
            while written < GENERATION:
                n = min(5000, GENERATION - written)
                file.write(writer.block(seq, step + 1, n, time.time()))
                seq, step, written = seq + n, step + n, written + n
                term.pump(0.005)
            total += written
            if not shows("{:,}/".format(step)):
                fail(part, budget, "viewer: step %d was written, %r is shown" % (step, term.rows()[0]))
                break
            budget.passed()
            flat.sample()
            if rotations % 2:
                os.truncate(log, 0)  # as copytruncate does
                file.close()
                file = begin()
            else:
                os.rename(log, log + ".1")
                file.close()
                file = begin()
            rotations += 1
        part["done"] = part.get("done", 0) + total
        part["rotations"] = part.get("rotations", 0) + rotations
        flat.judge("viewer", part, budget)
        term.press("q")
        right(term.ended(10 * t.SLOW)["status"] == 0, part, budget, "viewer: does not end with 0")
    finally:
        file.close()
        term.close()


def checkpoints(run):
    try:
        return sorted(n for n in os.listdir(os.path.join(run, "checkpoints")))
    except OSError:
        return []


def training(part, budget, seconds, work):
    """A tiny model with a checkpoint in every step; all but the newest are pruned."""
    run = os.path.join(work, "runs", "tiny")
    env = {**os.environ, "DEPTHSCOPE_RUNS": os.path.join(work, "runs"), "OMP_NUM_THREADS": "1"}
    settings = [*TINY, "train.steps=%d" % TARGETS["training"], "train.checkpoint_every=1"]
    p = subprocess.Popen([t.PROGRAM, "train", "quick", "--run", "tiny", *settings], env=env, stdin=subprocess.DEVNULL,
                         stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    end, flat, most, newest = time.monotonic() + min(seconds, budget.left()), Flat(p.pid), 0, 0
    try:
        while time.monotonic() < end and p.poll() is None:
            time.sleep(0.1)
            names = checkpoints(run)
            steps = [int(n.split("-")[1]) for n in names if n.startswith("step-") and n.split("-")[1].isdigit()]
            most = max(most, len(names))
            if steps and max(steps) > newest:
                newest = max(steps)
                if newest > 3:
                    try:
                        flat.sample()
                    except (ProcessLookupError, FileNotFoundError):
                        break
        if p.poll() is None:
            p.send_signal(signal.SIGTERM)
        p.wait(60 * t.SLOW)
        said = p.stderr.read().decode("utf-8", "replace")
        right(p.returncode >= 0 and (newest > 0 or p.returncode == 0), part, budget,
              "training: status %d: %s" % (p.returncode, said[-200:]))
        names = [n for n in checkpoints(run) if n.startswith("step-")]
        part["done"] = part.get("done", 0) + (int(names[-1].split("-")[1]) if names else 0)
        part["kept"] = max(part.get("kept", 0), most)
        right(most <= 5, part, budget, "training: %d checkpoints at once; two are kept, one is best, one is being written" % most)
        r = subprocess.run([t.PROGRAM, "export", run, "--to", "jsonl"], capture_output=True, text=True, env=env, timeout=120 * t.SLOW)
        steps = [s for s in (json.loads(line).get("step") for line in r.stdout.splitlines()) if s]
        right(bool(names) and bool(steps) and max(steps) == int(names[-1].split("-")[1]), part, budget,
              "training: the log ends at step %s, the newest checkpoint is %s" % (max(steps) if steps else "-", names[-1:]))
        if newest:
            flat.judge("training", part, budget)
    finally:
        if p.poll() is None:
            p.kill()
            p.wait()
        p.stderr.close()


REQUESTS = [{"do": "trace", "text": "The cat sat"}, {"do": "next"}, {"do": "force", "layer": 2, "token": 1, "run": 0},
            {"do": "offset", "value": 0.25}, {"do": "exit", "layers": 3}, {"do": "info"}, {"do": "option", "set": "temperature=0.5"},
            {"do": "nosuch"}, {"do": "exit", "layers": 0}, {"do": "force", "layer": 99, "token": 0, "run": 1},
            {"do": "trace", "text": "A dog ran to the red barn and sat down."}, {"do": "next"}]


class Answers:
    """Counts whole frames, their numbers, and the ones that end an answer."""

    def __init__(self):
        self.held, self.seq, self.ends, self.gaps = b"", 0, 0, 0

    def take(self, data):
        data = self.held + data
        at = 0
        while len(data) - at >= 6:
            n = struct.unpack_from(">I", data, at + 1)[0] + 6
            if data[at] != 0xC9 or len(data) - at < n:
                break
            seq = struct.unpack_from(">Q", data, at + 10)[0]
            self.gaps += seq != self.seq + 1
            self.seq = seq
            head = data[at + 18:at + 60]
            self.ends += b"\xa4kind\xa4done" in head or b"\xa4kind\xa5error" in head
            at += n
        self.held = data[at:]


def session(part, budget, seconds, work):
    """The stepper's process: one after another, each request gets one answer."""
    model = os.path.join(work, "runs", "tiny")
    env = {**os.environ, "DEPTHSCOPE_RUNS": os.path.join(work, "runs"), "OMP_NUM_THREADS": "1"}
    if not [n for n in checkpoints(model) if n.startswith("step-")]:
        subprocess.run([t.PROGRAM, "train", "quick", "--run", "tiny", *TINY, "train.steps=4"], env=env, stdin=subprocess.DEVNULL,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=120 * t.SLOW)
    p = subprocess.Popen([t.PROGRAM, "serve", model], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    end, flat, got, sent = time.monotonic() + min(seconds, budget.left()), Flat(p.pid), Answers(), 0
    try:
        while time.monotonic() < end:
            batch = REQUESTS * 5
            p.stdin.write(b"".join(json.dumps(q).encode() + b"\n" for q in batch))
            p.stdin.flush()
            sent += len(batch)
            stop = time.monotonic() + 30 * t.SLOW
            while got.ends < sent and time.monotonic() < stop:
                if select.select([p.stdout], [], [], 1)[0]:
                    data = os.read(p.stdout.fileno(), 1 << 20)
                    if not data:
                        break
                    got.take(data)
            if got.ends != sent:
                fail(part, budget, "session: %d answers to %d requests, status %s" % (got.ends, sent, p.poll()))
                break
            flat.sample()
        part["done"] = part.get("done", 0) + sent
        right(got.gaps == 0 and not got.held, part, budget, "session: %d gaps in the numbers of the answers" % got.gaps)
        flat.judge("session", part, budget)
        p.stdin.close()
        right(p.wait(20 * t.SLOW) == 0, part, budget, "session: status %s at the end of its input" % p.returncode)
    finally:
        if p.poll() is None:
            p.kill()
            p.wait()
        p.stdout.close()


def run(state, budget):
    base = "/dev/shm" if os.access("/dev/shm", os.W_OK) and shutil.disk_usage("/dev/shm").free > 1 << 28 else None
    whole = budget.left()
    for name, work in (("viewer", viewer), ("training", training), ("session", session)):
        if budget.left() < 3:
            budget.skipped("soak %s: no time left" % name)
            continue
        part = state.setdefault(name, {"done": 0})
        part["open"] = []
        folder = tempfile.mkdtemp(prefix="ds-soak-", dir=base)
        os.mkdir(os.path.join(folder, "runs"))
        try:
            work(part, budget, whole * SHARES[name] - 2, folder)
        except (terminals.Gone, OSError, subprocess.SubprocessError) as x:
            fail(part, budget, "%s: %s: %s" % (name, type(x).__name__, x))
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        part["longest"] = max(part.get("longest", 0), round(whole * SHARES[name]))


def page(state):
    lines = ["| process | done in all | aim | most memory (KiB, anonymous) | most descriptors | growth in the last run |",
             "|---|---|---|---|---|---|"]
    for name in SHARES:
        s = state.get(name)
        if s:
            lines.append("| %s | %d %s | %d | %s | %s | %s |" % (
                name, s.get("done", 0), UNITS[name], TARGETS[name], s.get("kib", "-"), s.get("descriptors", "-"),
                "%d KiB (%.2f %%)" % (s["growth_kib"], 100 * s["growth"]) if "growth" in s else "-"))
    lines += ["", "Growth is that of a straight line through the second half of the samples; a run fails above both %d %% and %d KiB or" %
              (100 * GROWTH_MAX, KIB_MAX),
              "above %d descriptor. The viewer follows files of %d records, renamed away or truncated in turn (%d rotations so far), and" %
              (FD_MAX, GENERATION, state.get("viewer", {}).get("rotations", 0)),
              "is sampled at the end of each; the step that it shows must be the last one written. The training must keep no more than",
              "its checkpoints, and its log must end where they do. Each request of the session must have its answer, and the answers one",
              "sequence of numbers.", "",
              "Time is real: the program's only clock for tests is one that stands still. One log of 10^7 records without rotation is not",
              "followed: the viewer keeps its points, so its memory grows with them."]
    bad = [text for name in SHARES for text in state.get(name, {}).get("open", [])]
    return "\n".join(lines + ([""] + ["- open: " + text for text in bad] if bad else []))
