"""A nemesis on the folder of runs: random sequences of what users, disks and kernels do to runs that train.

Each sequence is a seed: two trainings, some ACTIONS in between, then everything is put right and every run is resumed to its end.
Adding an action is one function and its row.
"""
import json
import os
import random
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time

import t

sys.path.insert(0, os.path.join(t.ROOT, "src", "python"))
from depthscope._log import Scan, frame_body, frame_length  # noqa: E402
from depthscope._msgpack import unpack  # noqa: E402
from net_server import Server, can_mount  # noqa: E402
from part_crash import is_whole, one_line, sha  # noqa: E402
from preload import build, build_program  # noqa: E402

TITLE = "a nemesis on the folder of runs: renames, swaps, restored copies, second writers, full disks, kills, clocks, a network"

STEPS = 1500
KEYS = ("model.layers=6 model.dim=16 model.heads=2 model.vocab=300 model.max_seq=64 data.docs=20 data.tokenizer=bytes "
        "data.val_fraction=0.2 train.batch=4 train.seq=16 train.warmup=3 train.eval_tokens=64 train.final_tokens=64 train.samples=16 "
        "train.time_rounds=0 train.probes=1 train.probe_tokens=16 train.eval_every=300 train.probe_every=500 train.layer_every=500 "
        "train.checkpoint_every=50 train.keep=2 threads=1").split() + ["train.steps=%d" % STEPS]
SIZE = 96 << 20  # bytes of the file system that the runs are on
OPEN_MAX = 20
QUOTA_DISK = 160 << 20  # bytes; btrfs needs more than the others
NET_ERRORS = ("EIO", "ENOSPC", "EDQUOT", "ESTALE")
NET_SAYS = r"Input/output error|No space left|Disk quota exceeded|Stale file handle|could not be written"
LATE = r"Read-only file system|Input/output error|No space left|could not be written"
HEAD = b"\xa4kind\xa4head"


def check(ok, text):
    if not ok:
        raise AssertionError(text)


# ---- a directory of a run --------------------------------------------------------------------------------------------------


def read_frames(path, checks=False):
    """(the whole records as bytes, heads in them) of a log that may be in writing.  checks: also the checksums, which are slow."""
    try:
        with open(path, "rb") as f:
            data = f.read()
    except FileNotFoundError:
        return b"", []
    at, heads = 0, []
    while at < len(data):
        n = frame_length(data[at:at + 6])
        if n <= 0 or at + n > len(data) or checks and frame_body(data[at:at + n]) is None:
            break
        if HEAD in data[at:at + 40]:
            heads.append(unpack(frame_body(data[at:at + n])[1]))
        at += n
    return data[:at], heads


def read_files(path):
    """The small files below it: {relative path: bytes, None for a directory}; what vanishes meanwhile is left out."""
    out = {}
    for where, folders, names in os.walk(path):
        rest = os.path.relpath(where, os.path.dirname(path))
        out[rest] = None
        for name in names:
            try:
                with open(os.path.join(where, name), "rb") as f:
                    out[os.path.join(rest, name)] = f.read()
            except OSError:
                pass
    return out


def is_complete(data):
    """A safetensors file has all the bytes that its header names."""
    size = int.from_bytes(data[:8], "little")
    try:
        header = json.loads(data[8:8 + size])
    except ValueError:
        return False
    return len(data) == 8 + size + max((x["data_offsets"][1] for name, x in header.items() if name != "__metadata__"), default=0)


def whole_steps(path):
    """{step: run_id} of the checkpoints whose manifest holds; a manifest may hold of files that were cut before it was written."""
    top = os.path.join(path, "checkpoints")
    image, out = read_files(top) if os.path.isdir(top) else {}, {}
    for name, data in image.items():
        m = re.fullmatch(r"checkpoints/step-(\d{8})", name)
        if m and data is None and is_whole(image, name) and all(
                is_complete(image.get("%s/%s.safetensors" % (name, x), b"")) for x in ("model", "optimizer")):
            out[int(m.group(1))] = json.loads(image[name + "/manifest.json"]).get("run_id")
    return out


def broken_steps(path):
    """Checkpoints that have their final name and are not whole."""
    top = os.path.join(path, "checkpoints")
    names = [n for n in os.listdir(top) if re.fullmatch(r"step-\d{8}", n)] if os.path.isdir(top) else []
    whole = whole_steps(path)
    return {n for n in names if int(n[5:]) not in whole and os.path.isdir(os.path.join(top, n))}


def seed_of(path):
    with open(os.path.join(path, "config.yaml"), encoding="utf-8") as f:
        return int(re.search(r"^\s*seed: (\d+)", f.read(), re.M).group(1))


def end_bits(path):
    at = os.path.join(path, "checkpoints", "step-%08d" % STEPS)
    out = []
    for name in ("model.safetensors", "optimizer.safetensors"):
        with open(os.path.join(at, name), "rb") as f:
            out.append(sha(f.read()))
    return out


def told(path):
    """(the newest step of whose checkpoint the log says that it is saved, the newest step with a metric), -1 for none."""
    saved, reached = -1, -1
    try:
        with open(os.path.join(path, "log.mp"), "rb") as f:
            for found in Scan(f):
                body = found.body or {}
                if body.get("kind") == "metric":
                    reached = max(reached, body["step"])
                elif body.get("name") == "checkpoint" and body["level"] == "info":
                    saved = body["step"]
    except FileNotFoundError:
        pass
    return saved, reached


# ---- the world -------------------------------------------------------------------------------------------------------------


def mount(*words):
    return os.geteuid() == 0 and subprocess.run(["mount", *words], capture_output=True).returncode == 0


def can_make_disk():
    return os.geteuid() == 0 and os.path.exists("/dev/loop-control") and shutil.which("mkfs.ext4") and shutil.which("e2fsck")


def check_saved(w):
    """What the logs say is saved is there, and a checkpoint has the records before it; no run writes.  A copy that was taken of a live
    run may have neither."""
    is_warned = any("warning: sync" in x.text() for x in w.live)  # records may be lost: the program has said it
    for name in w.names():
        path = os.path.join(w.stored, "runs", name)
        if os.stat(path).st_ino in w.copied:
            continue
        (saved, reached), newest = told(path), max(whole_steps(path), default=-1)
        check(newest >= saved, "%s: its log says that step %d is saved, the newest whole checkpoint is of step %d" % (name, saved, newest))
        check(reached >= newest or is_warned, "%s: its log ends with step %d, before its checkpoint of step %d" % (name, reached, newest))


class Live:
    """A training process.  may: how it may end besides "done", with what its last line then says."""

    def __init__(self, world, name, words):
        self.err = tempfile.TemporaryFile()
        self.p = subprocess.Popen([t.PROGRAM, "train", *words, "--quiet"], env=world.env(), stdin=subprocess.DEVNULL,
                                  stdout=subprocess.DEVNULL, stderr=self.err)
        self.name, self.ino, self.may, self.is_stopped = name, 0, {}, False

    def may_fail(self, pattern):
        """Also for this reason: several may befall it before it ends."""
        self.may["failed"] = "|".join(filter(None, (self.may.get("failed"), pattern)))

    def text(self):
        self.err.seek(0)
        return self.err.read().decode("utf-8", "replace")


def cannot_limit():
    """Why there is no file system with quotas here, or None."""
    if not shutil.which("mkfs.btrfs") or not shutil.which("btrfs"):
        return "no btrfs-progs"
    with open("/proc/filesystems", encoding="utf-8") as f:
        if not re.search(r"\bbtrfs$", f.read(), re.M):
            return "no btrfs in the kernel"
    return None if os.geteuid() == 0 and os.path.exists("/dev/loop-control") else "no right to mount a disk"


class World:
    """What it is on, by its kind: "" a tmpfs or a disk, "network" a network file system with two clients, "quota" a disk with quotas."""

    def __init__(self, work, seed, kind=""):
        self.rng = random.Random("%s %d" % (kind, seed) if kind else seed)
        self.top = os.path.join(work, "world")
        self.aside = os.path.join(work, "aside")
        self.shift = os.path.join(work, "shift")
        self.runs = os.path.join(self.top, "runs")
        os.makedirs(self.top)
        os.makedirs(self.aside)
        self.below = os.path.join(work, "below")
        self.disk = os.path.join(self.below, "disk")
        self.is_hurt = False  # a log may have gaps
        self.has_disk = not kind and self.rng.random() < 0.4 and self.make_disk()
        self.is_mounted = self.has_disk or not kind and mount("-t", "tmpfs", "-o", "size=%d" % SIZE, "none", self.top)
        self.net = Server(self.below, [self.top, os.path.join(work, "far")], SIZE) if kind == "network" else None
        self.stored = self.net.path if self.net else self.top  # what is there is synced
        if kind == "quota":
            self.make_limited()
        else:
            os.makedirs(self.runs)
        with open(self.shift, "wb") as f:
            f.write(struct.pack("=q", 0))
        self.live, self.copies, self.number = [], [], 0
        self.copied = set()  # inodes of directories that a copy was put into
        self.acknowledged = {}  # of an inode of a directory: (records, newest step)

    def make_disk(self):
        """A file system whose blocks are on another one, which may fill up below it."""
        os.makedirs(self.below)
        if not can_make_disk() or not mount("-t", "tmpfs", "-o", "size=%d" % (SIZE + (8 << 20)), "none", self.below):
            return False
        with open(self.disk, "wb") as f:
            f.truncate(SIZE)
        subprocess.run(["mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0,nodiscard", self.disk], check=True,
                       capture_output=True)
        return mount("-o", "loop", self.disk, self.top)

    def make_limited(self):
        os.makedirs(self.below)
        with open(self.disk, "wb") as f:
            f.truncate(QUOTA_DISK)
        subprocess.run(["mkfs.btrfs", "-q", "-f", self.disk], check=True, capture_output=True)
        self.is_mounted = mount("-o", "loop", self.disk, self.top)
        check(self.is_mounted, "the disk with quotas is not mounted")
        for words in (["quota", "enable", self.top], ["subvolume", "create", self.runs]):
            subprocess.run(["btrfs", *words], check=True, capture_output=True)

    def limit(self, size):
        """By number and from above: below a limit that is met, not even it can be changed."""
        p = subprocess.run(["btrfs", "qgroup", "limit", str(size), "0/256", self.top], capture_output=True, text=True)
        check(p.returncode == 0, "btrfs qgroup limit %s: %s" % (size, p.stderr))

    def env(self, is_far=False):
        runs = os.path.join(self.net.places[1], "runs") if is_far else self.runs
        return {**os.environ, "DEPTHSCOPE_RUNS": runs, "LC_ALL": "C.UTF-8", "LD_PRELOAD": build("clock"), "CLOCK_SHIFT": self.shift}

    def program(self, *words, seconds=60, is_far=False):
        """is_far: on the other client."""
        p = subprocess.run([t.PROGRAM, *words], env=self.env(is_far), stdin=subprocess.DEVNULL, capture_output=True, text=True,
                           timeout=seconds * t.SLOW)
        return p.returncode, p.stdout, p.stderr

    # -- directories

    def path(self, name):
        return os.path.join(self.runs, name)

    def names(self):
        return sorted(n for n in os.listdir(self.runs) if os.path.exists(os.path.join(self.runs, n, "config.yaml")))

    def free_name(self):
        self.number += 1
        return "r%d" % self.number

    def pick(self, of=None):
        names = self.names() if of is None else of
        return self.rng.choice(names) if names else None

    def writer(self, name):
        """The process that writes to a directory, or None."""
        ino = os.stat(self.path(name)).st_ino
        return next((x for x in self.live if x.ino == ino and x.p.poll() is None), None)

    def idle(self):
        return [n for n in self.names() if not self.writer(n)]

    def busy(self):
        return [n for n in self.names() if self.writer(n)]

    # -- processes

    def start(self, name, *words):
        x = Live(self, name, [*words])
        self.live.append(x)
        end, log = time.monotonic() + 20 * t.SLOW, os.path.join(self.path(name), "log.mp")
        before = len(read_frames(log)[1])
        while x.p.poll() is None and time.monotonic() < end and len(read_frames(log)[1]) == before:
            time.sleep(0.005)
        x.ino = os.stat(self.path(name)).st_ino
        return x

    # -- what must hold at any time

    def look(self):
        """Nothing that was there is lost, and every directory has one lineage."""
        runs = os.path.join(self.stored, "runs")
        for name in sorted(os.listdir(runs)):
            path = os.path.join(runs, name)
            if not os.path.isdir(path):
                continue
            ino = os.stat(path).st_ino
            records, heads = read_frames(os.path.join(path, "log.mp"), self.is_hurt)
            steps = whole_steps(path)
            ids = {h["run_id"] for h in heads} | {x for x in steps.values() if x}
            check(len(ids) <= 1, "%s holds the runs %s" % (name, sorted(ids)))
            was, newest = self.acknowledged.get(ino, (b"", -1))
            if self.net and ino not in self.copied:  # looked at twice: one may be removed meanwhile
                broken = broken_steps(path) and broken_steps(path) & broken_steps(path)
                check(not broken, "%s: not whole under its final name: %s" % (name, ", ".join(sorted(broken or []))))
            check(records.startswith(was), "%s: records are lost or altered (%d bytes, were %d)" % (name, len(records), len(was)))
            now = max(steps, default=-1)
            check(now >= newest or self.writer(name), "%s: the checkpoint of step %d is lost, the newest is %d" % (name, newest, now))
            self.acknowledged[ino] = (records, max(now, newest))

    def forget(self, name):
        """What a directory holds is replaced from outside."""
        self.acknowledged.pop(os.stat(self.path(name)).st_ino, None)

    def close(self):
        for x in self.live:
            if x.p.poll() is None:
                x.p.kill()
            x.p.wait()
            x.err.close()
        if self.net:
            self.net.close()
        for path in [self.top] * self.is_mounted + [self.below] * os.path.ismount(self.below):
            subprocess.run(["umount", "-l", path], capture_output=True)
        shutil.rmtree(self.below, ignore_errors=True)
        shutil.rmtree(self.top, ignore_errors=True)
        shutil.rmtree(self.aside, ignore_errors=True)


# ---- actions ---------------------------------------------------------------------------------------------------------------
# Each is given the world; it returns False when there is nothing to act on, or what came of it where that differs, and raises t.Skip
# where the machine does not let it.


def rename(w):
    name = w.pick()
    os.rename(w.path(name), w.path(w.free_name()))


def rename_by_command(w):
    name = w.pick()
    status, _, err = w.program("runs", "rename", name, w.free_name())
    check(status == 0, "runs rename: %s" % err)


def swap(w):
    if len(w.names()) < 2:
        return False
    a, b = w.rng.sample(w.names(), 2)
    os.rename(w.path(a), w.path("between"))
    os.rename(w.path(b), w.path(a))
    os.rename(w.path("between"), w.path(b))


def copy(w):
    """What a backup takes of a run, live or not."""
    name = w.pick()
    to = os.path.join(w.aside, "copy-%d" % len(w.copies))
    os.makedirs(to)
    subprocess.run(["cp", "-a", w.path(name) + "/.", to], capture_output=True)  # what is pruned meanwhile is missing
    for sock in ("control.sock",):
        if os.path.lexists(os.path.join(to, sock)):
            os.remove(os.path.join(to, sock))
    if os.path.exists(os.path.join(to, "config.yaml")):
        w.copies.append(to)


def has_copy(w):
    """Takes one, and lets it grow older, if there is none."""
    if not w.copies:
        copy(w)
        time.sleep(w.rng.uniform(0.05, 0.2))
    return bool(w.copies)


def put(w, what, to):
    """A writer may remove there what is copied."""
    w.copied.add(os.stat(to).st_ino)
    p = subprocess.run(["cp", "-a", what + "/.", to], capture_output=True, text=True)
    check(p.returncode == 0 or any(x.p.poll() is None for x in w.live), "cp: %s" % p.stderr[:200])
    if w.has_disk:  # late errors are for what the runs write
        subprocess.run(["sync", "-f", to], capture_output=True)


def restore_aside(w):
    """The run is moved to another name, and an older copy, of it or of the other one, takes its place."""
    if len(w.names()) > 5 or not has_copy(w):
        return False
    name = w.pick()
    os.rename(w.path(name), w.path(w.free_name()))
    os.mkdir(w.path(name))
    put(w, w.pick(w.copies), w.path(name))


def restore_over(w):
    """The run is removed, and an older copy takes its place."""
    if not has_copy(w):
        return False
    name = w.pick()
    x = w.writer(name)
    if x:
        x.may_fail(r"is gone|not found|No such file")
    w.forget(name)
    while os.path.exists(w.path(name)):  # it may write in between
        shutil.rmtree(w.path(name), ignore_errors=True)
    os.mkdir(w.path(name))
    put(w, w.pick(w.copies), w.path(name))


def restore_within(w):
    """An older copy of the run is written over its files, whose inodes stay: the log becomes shorter under its writer."""
    def run_id(path):
        return [h["run_id"] for h in read_frames(os.path.join(path, "log.mp"))[1]][:1]
    has_copy(w)
    name = w.pick()
    own = [c for c in w.copies if run_id(c) and run_id(c) == run_id(w.path(name))]
    if not own:
        return False
    w.forget(name)
    w.is_hurt = True
    put(w, w.rng.choice(own), w.path(name))
    w.forget(name)


def move_away_and_back(w):
    """To another file system, which copies and removes."""
    name = w.pick()
    x = w.writer(name)
    if x:
        x.may_fail(r"is gone|not found|No such file")
    w.forget(name)
    to = os.path.join(w.aside, "away")
    os.makedirs(to)
    subprocess.run(["cp", "-a", w.path(name) + "/.", to], capture_output=True)
    while os.path.exists(w.path(name)):
        shutil.rmtree(w.path(name), ignore_errors=True)
    time.sleep(w.rng.uniform(0, 0.05))
    os.mkdir(w.path(name))
    put(w, to, w.path(name))
    sock = os.path.join(w.path(name), "control.sock")
    if os.path.lexists(sock):
        os.remove(sock)
    shutil.rmtree(to)


def second_writer(w):
    name = w.pick(w.busy())
    if not name:
        return False
    x = w.writer(name)
    status, _, err = w.program("train", "--resume", name, "--quiet")
    if x.p.poll() is None:
        check(status == 1 and one_line(err) and "being written" in err, "a second writer: exit status %d: %r" % (status, err))


def name_taken(w):
    name = w.pick()
    status, _, err = w.program("train", *KEYS, "seed=9", "--run", name, "--quiet")
    check(status == 1 and one_line(err) and "exists" in err, "a taken name: exit status %d: %r" % (status, err))


def read(w):
    name = w.pick()
    status, out, err = w.program("runs", "--json")
    check(status == 0 and name in [x["name"] for x in json.loads(out)], "runs --json: exit status %d: %r" % (status, err))
    heads = read_frames(os.path.join(w.path(name), "log.mp"))[1]
    status, out, err = w.program("inspect", name, "--json")
    check(status == 0 or not heads and one_line(err) and "no records" in err, "inspect: exit status %d: %r" % (status, err))
    check(status != 0 or w.is_hurt or json.loads(out)["damage"]["gaps"] == 0, "inspect: %s" % out[:200])


def kill(w):
    name = w.pick(w.busy())
    if not name:
        return False
    x = w.writer(name)
    x.may["killed"] = ""
    x.p.kill()
    x.p.wait()


def terminate(w):
    name = w.pick(w.busy())
    if not name:
        return False
    x = w.writer(name)
    x.may["stopped"] = ""
    x.p.terminate()


def stop_and_continue(w):
    name = w.pick(w.busy())
    if not name:
        return False
    x = w.writer(name)
    x.p.send_signal(signal.SIGSTOP)
    w.look()
    x.p.send_signal(signal.SIGCONT)


def resume(w):
    name = w.pick(w.idle())
    if not name:
        return False
    w.start(name, "--resume", name)


def clock(w):
    """The date jumps."""
    with open(w.shift, "r+b") as f:
        f.write(struct.pack("=q", w.rng.choice([0, -86400, 86400, -3600, 5, -5, 10 * 365 * 86400, -int(time.time()) + 7])))


def fill(top, left):
    """A file that takes all but so many bytes."""
    v = os.statvfs(top)
    n = max(0, v.f_bavail * v.f_frsize - left)
    fd = os.open(os.path.join(top, "fill"), os.O_WRONLY | os.O_CREAT)
    try:
        while n > 0:
            n -= os.write(fd, b"\0" * min(n, 1 << 20))
    except OSError:  # others were faster
        pass
    finally:
        os.close(fd)


def full(w):
    if not w.is_mounted and not w.net:
        raise t.Skip("full: no right to mount a small file system")
    for x in w.live:
        x.may_fail(r"No space|free|could not be written")
    fill(w.stored, w.rng.choice([0, 100 << 10, 500 << 10, 1 << 20]))
    time.sleep(w.rng.uniform(0.05, 0.3))
    w.look()
    os.remove(os.path.join(w.stored, "fill"))
    w.is_hurt = w.is_hurt or w.net is not None  # the server was full: writes that were kept are lost


def read_only(w):
    """Possible only while nothing is open for writing; a resume then says so in one line."""
    if w.net:
        return False
    if not w.is_mounted:
        raise t.Skip("read_only: no right to mount")
    name = w.pick(w.idle())
    if not name or subprocess.run(["mount", "-o", "remount,ro", w.top], capture_output=True).returncode != 0:
        return False
    try:
        status, _, err = w.program("train", "--resume", name, "--quiet")
        check(status == 1 and one_line(err), "resume on a read-only file system: exit status %d: %r" % (status, err))
        read(w)
    finally:
        subprocess.run(["mount", "-o", "remount,rw", w.top], check=True, capture_output=True)


def late_errors(w):
    """The disk below fails when it is to store what was written long before; the kernel then makes the file system read-only under
    its writers.  Afterwards it is repaired: what was synced is there."""
    if not can_make_disk():
        raise t.Skip("late_errors: no right, or no mkfs.ext4, for a disk of its own")
    if not w.has_disk or not w.busy():
        return False
    time.sleep(0.05)  # what look() has seen is synced by now
    fill(w.below, w.rng.choice([0, 0, 50 << 10, 400 << 10]))
    time.sleep(w.rng.uniform(0.1, 0.8))
    with open("/proc/mounts") as f:
        is_read_only = re.search(r"^\S+ %s ext4 (\S*emergency_ro|ro,)" % re.escape(w.top), f.read(), re.M)
    for x in w.live:
        if x.p.poll() is None:
            x.may_fail(LATE)
            x.may["stopped"] = ""
            x.p.terminate()
            x.p.wait(60 * t.SLOW)
        elif x.p.returncode == 1:
            x.may_fail(LATE)
    os.remove(os.path.join(w.below, "fill"))
    subprocess.run(["umount", w.top], check=True, capture_output=True)
    subprocess.run(["e2fsck", "-fy", w.disk], capture_output=True)
    check(mount("-o", "loop", w.disk, w.top), "the repaired disk is not mounted")
    w.is_hurt = True
    w.acknowledged = {ino: (b"", newest) for ino, (_, newest) in w.acknowledged.items()}
    check_saved(w)
    return "read-only then" if is_read_only else "survived"


# -- of the network file system alone


def befall(w, reasons):
    """The network is as it was set for a moment; what the runs meet may end them for these reasons, or must not matter (None)."""
    for x in w.live if reasons else ():
        x.may_fail(reasons)
    w.is_hurt = w.is_hurt or reasons is not None
    before, end = w.net.get("hits"), time.monotonic() + 0.5
    while w.net.get("hits") == before and time.monotonic() < end:
        time.sleep(0.002)
    time.sleep(w.rng.choice([0, 0.02, 0.1, 0.4]))
    w.net.calm()
    kill_perhaps(w)
    return w.net.get("hits") - before


def kill_perhaps(w):
    """What is stored by now must do."""
    x = w.writer(w.pick(w.busy())) if w.busy() and w.rng.random() < 0.5 else None
    if x:
        x.may["killed"] = ""
        x.p.kill()
        x.p.wait()


def network_errors(w):
    """What was written is lost, and the error comes at the next sync or close."""
    if not w.busy():
        return False
    name = w.rng.choice(NET_ERRORS)
    w.net.fail(name, w.rng.choice([1, 1, 2, 5, 1 << 30]), w.rng.randrange(2))
    return "%s %s" % (name, "met" if befall(w, NET_SAYS) else "not met")


def network_quota(w):
    if not w.busy():
        return False
    w.net.set(quota=w.rng.choice([0, 10 << 10, 100 << 10, 1 << 20]))
    return "met" if befall(w, NET_SAYS) else "not met"


def stale_handles(w):
    """The server restarts: files that are open are stale, and what was kept for them is lost."""
    if not w.busy():
        return False
    w.net.restart()
    return "met" if befall(w, NET_SAYS) else "not met"


def lost_replies(w):
    """A rename, a new directory or a removal is done, and reported as failed since the second try finds it done: no run fails for it."""
    if not w.busy():
        return False
    w.net.set(replies=w.rng.choice([1, 2, 5]))
    return "met" if befall(w, None) else "not met"


def server_away(w):
    """Everything waits, and then goes on as if nothing had been."""
    before = w.busy()
    seconds = w.rng.uniform(0.3, 2)
    w.net.go_away(seconds)
    began = time.monotonic()
    read(w)
    check(not before or time.monotonic() - began >= seconds - 0.2, "the server was not away")


def other_client(w):
    """Another machine lists, shows, and is refused what is being written; its view may be late."""
    name = w.pick()
    status, out, err = w.program("runs", "--json", is_far=True)
    check(status == 0 and json.loads(out) is not None, "runs --json elsewhere: exit status %d: %r" % (status, err))
    status, out, err = w.program("inspect", name, "--json", is_far=True)
    check(status == 0 or one_line(err), "inspect elsewhere: exit status %d: %r" % (status, err))
    check(status != 0 or w.is_hurt or json.loads(out)["damage"]["gaps"] == 0, "inspect elsewhere: %s" % out[:200])
    x = w.writer(name)
    if x and len(read_frames(os.path.join(w.path(name), "log.mp"))[1]):
        status, _, err = w.program("train", "--resume", name, "--quiet", is_far=True)
        if x.p.poll() is None:
            check(status == 1 and one_line(err), "a second writer elsewhere: exit status %d: %r" % (status, err))


def held_open(w):
    """Files that a reader has open are removed: the network renames them until they are closed."""
    name = w.pick(w.busy())
    if not name:
        return False
    held = []
    for where, _, names in os.walk(os.path.join(w.path(name), "checkpoints")):
        for x in names:
            try:
                held.append(open(os.path.join(where, x), "rb"))
            except OSError:
                pass
    time.sleep(w.rng.uniform(0.1, 0.4))
    for f in held:
        f.close()


# -- of the disk with quotas alone


def quota(w):
    if not w.busy():
        return False
    for x in w.live:
        x.may_fail(NET_SAYS)
    before = sum(x.text().count("quota exceeded") for x in w.live)
    w.limit(w.rng.choice([64 << 10, 1 << 20, 2 << 20, 3 << 20]))
    time.sleep(w.rng.uniform(0.05, 0.6))
    w.look()
    if w.rng.random() < 0.5:
        kill_perhaps(w)
    w.limit("none")
    is_met = sum(x.text().count("quota exceeded") for x in w.live) > before
    w.is_hurt = w.is_hurt or is_met  # at the limit a file cannot be made shorter, either: torn bytes stay, and readers skip them
    return "met" if is_met else "not met"


class Group:
    """A memory group of the kernel with a small limit."""

    def __init__(self, limit):
        with open("/proc/self/mountinfo") as f:
            m = re.search(r" (\S+) \S+ - cgroup \S+ \S*\bmemory\b", re.sub(r"(?m)^(?:\S+ ){4}", " ", f.read()))
        if not m:
            raise t.Skip("out_of_memory: no cgroup v1 controller of memory is mounted")
        self.path = os.path.join(m.group(1), "depthscope-proof-%d" % os.getpid())
        try:
            os.mkdir(self.path)
            with open(os.path.join(self.path, "memory.limit_in_bytes"), "w") as f:
                f.write(str(limit))
        except OSError as x:
            self.close()
            raise t.Skip("out_of_memory: no right to make a memory group (%s)" % x.strerror)

    def enter(self, pid=None):
        with open(os.path.join(self.path, "cgroup.procs"), "w") as f:
            f.write(str(pid or os.getpid()))

    def close(self):
        end = time.monotonic() + 5
        while os.path.isdir(self.path) and time.monotonic() < end:
            try:
                os.rmdir(self.path)
            except OSError:
                time.sleep(0.02)


def in_group(w, limit, *words):
    g = Group(limit)
    try:
        p = subprocess.run([t.PROGRAM, *words], env=w.env(), stdin=subprocess.DEVNULL, capture_output=True, text=True,
                           timeout=60 * t.SLOW, preexec_fn=g.enter)
        return p.returncode, p.stderr
    finally:
        g.close()


def out_of_memory_trainer(w):
    """The kernel ends a live training, for the memory that another process of its group takes."""
    name = w.pick(w.busy())
    if not name:
        return False
    x, g = w.writer(name), Group(48 << 20)
    hog = None
    try:
        with open("/proc/%d/oom_score_adj" % x.p.pid, "w") as f:
            f.write("1000")  # the first to go
        g.enter(x.p.pid)
        x.may["killed"] = ""
        hog = subprocess.Popen([sys.executable, "-c", "x = []\nwhile len(x) < 64: x.append(b'x' * (1 << 20))"], preexec_fn=g.enter)
        hog.wait(60 * t.SLOW)
        return "killed" if x.p.poll() == -9 else "survived"
    except ProcessLookupError:  # done meanwhile
        return False
    finally:
        if hog and hog.poll() is None:
            hog.kill()
            hog.wait()
        if x.p.poll() is None:  # the group can go when it is empty
            x.p.kill()
            x.p.wait()
        g.close()


def short_of_memory_trainer(w):
    """A resume in a group that it may outgrow: it refuses, is ended by the kernel, or fits."""
    name = w.pick(w.idle())
    if not name:
        return False
    status, err = in_group(w, w.rng.choice([3, 6, 8, 12]) << 20, "train", "--resume", name, "--quiet")
    check(status in (-9, 0) or status == 1 and "memory" in err, "a training out of memory: exit status %d: %r" % (status, err))
    return {-9: "killed", 0: "done"}.get(status, "refused")


def out_of_memory_viewer(w):
    name = w.pick(w.busy())
    if not name:
        return False
    x = w.writer(name)
    status, err = in_group(w, w.rng.choice([1, 2]) << 20, "inspect", name, "--follow", "--json", "--timeout", "1")
    check(status in (-9, 0, 3) or "memory" in err, "a viewer out of memory: exit status %d: %r" % (status, err))
    check(x.p.poll() in (None, 0, *([143] if "stopped" in x.may else []), *([-9] if "killed" in x.may else []),
                         *([1] if "failed" in x.may else [])), "the run of a viewer out of memory ended with %s" % x.p.poll())
    return {-9: "killed", 1: "refused"}.get(status, "done")


ACTIONS = (
    ("rename", rename),
    ("runs rename", rename_by_command),
    ("swap of two runs", swap),
    ("copy taken", copy),
    ("older copy, the run moved aside", restore_aside),
    ("older copy, the run removed", restore_over),
    ("older copy, over the run", restore_within),
    ("to another disk and back", move_away_and_back),
    ("second writer", second_writer),
    ("name taken", name_taken),
    ("runs and inspect", read),
    ("kill -9", kill),
    ("SIGTERM", terminate),
    ("stop and continue", stop_and_continue),
    ("resume", resume),
    ("clock jumps", clock),
    ("full disk", full),
    ("read-only remount", read_only),
    ("late errors of the disk", late_errors),
    ("trainer out of memory", out_of_memory_trainer),
    ("resume short of memory", short_of_memory_trainer),
    ("viewer out of memory", out_of_memory_viewer),
)


NET_ACTIONS = (
    ("late errors of the network", network_errors),
    ("quota of the network", network_quota),
    ("stale handles", stale_handles),
    ("replies lost", lost_replies),
    ("server away", server_away),
    ("seen by another client", other_client),
    ("removed while open", held_open),
)


QUOTA_ACTIONS = (
    ("quota of the kernel", quota),
)

# What sequences of a kind draw from besides ACTIONS, and what tells why there is no such kind here.
KINDS = {"": ((), lambda: None), "network": (NET_ACTIONS, can_mount), "quota": (QUOTA_ACTIONS, cannot_limit)}


# ---- a sequence ------------------------------------------------------------------------------------------------------------


def check_end(x):
    """How a process ended: done, or one of the ways that it may, with lines that say so."""
    text, status = x.text(), x.p.returncode
    ways = {0: "done", 143: "stopped", -9: "killed", 1: "failed"}
    way = ways.get(status, "exit status %d" % status)
    check(way == "done" or way in x.may, "%s ended: %s: %r" % (x.name, way, text[-400:]))
    check(all(line.startswith("depthscope: ") for line in text.splitlines()), "%s: lines of others: %r" % (x.name, text[-400:]))
    if way == "failed":
        check(re.search(x.may["failed"], text), "%s: its end does not say why: %r" % (x.name, text[-400:]))
    return way


def settle(w, ends):
    """Everything runs to its end."""
    with open(w.shift, "r+b") as f:
        f.write(struct.pack("=q", 0))
    for x in w.live:
        x.p.wait(120 * t.SLOW)
        way = check_end(x)
        ends[way] = ends.get(way, 0) + 1
    if w.net:
        check_saved(w)
    for name in w.names():
        for _ in range(2):
            status, _, err = w.program("train", "--resume", name, "--quiet", seconds=120)
            if status == 0:
                break
        check(status == 0, "%s does not resume: exit status %d: %r" % (name, status, err[-400:]))


def check_all(w, want):
    w.look()
    for name in w.names():
        seed = seed_of(w.path(name))
        check(end_bits(w.path(name)) == want[seed], "%s: its weights are not those of the undisturbed run of seed %d" % (name, seed))
        status, out, err = w.program("inspect", name, "--json")
        check(status == 0, "inspect %s: %r" % (name, err))
        x = json.loads(out)
        check(w.is_hurt or not any(x["damage"].values()), "%s: %s" % (name, x["damage"]))
        check(x["state"] == "done", "%s is %s" % (name, x["state"]))
        left = [n for n in os.listdir(os.path.join(w.path(name), "checkpoints")) if not re.fullmatch(r"step-\d{8}", n)]
        check(not left, "%s: left over: %s" % (name, left))


def sequence(work, seed, kind, want, counts, ends, skips):
    """Two runs, four to eight actions, and what must hold after each and at the end."""
    done = []
    w = World(work, seed, kind)
    try:
        for k in (1, 2):
            w.start("ab"[k - 1], *KEYS, "seed=%d" % k, "--run", "ab"[k - 1])
        for _ in range(w.rng.randrange(4, 9)):
            time.sleep(w.rng.uniform(0, 0.15))
            name, act = w.rng.choice(KINDS[kind][0] if kind and w.rng.random() < 0.6 else ACTIONS)
            try:
                what = act(w)
                if what is not False:
                    done.append("%s, %s" % (name, what) if what else name)
                    counts[done[-1]] = counts.get(done[-1], 0) + 1
                w.look()
            except t.Skip as x:
                skips[name] = str(x)
        settle(w, ends)
        check_all(w, want)
    except (AssertionError, OSError, ValueError, KeyError, subprocess.SubprocessError) as x:
        what = "%s sequence %d" % (kind, seed) if kind else "sequence %d" % seed
        raise AssertionError("%s (%s): %s: %s" % (what, ", ".join(done), type(x).__name__, str(x)[:400]))
    finally:
        w.close()


def references(work):
    """The weights of each seed, never disturbed."""
    w, want = World(work, 0), {}
    try:
        for k in (1, 2):
            status, _, err = w.program("train", *KEYS, "seed=%d" % k, "--run", "alone", "--quiet")
            check(status == 0, "the undisturbed run: %s" % err)
            want[k] = end_bits(w.path("alone"))
            shutil.rmtree(w.path("alone"))
        check(want[1] != want[2], "both seeds have the same weights")
        return want
    finally:
        w.close()


def attempt(work, seed, kind, want, state, budget, skips):
    try:
        sequence(work, seed, kind, want, state["actions"], state["ends"], skips)
        budget.passed()
        return True
    except AssertionError as x:
        budget.failed(str(x))
        if len(state["open"]) < OPEN_MAX:
            state["open"].append({"seed": seed, "kind": kind, "text": str(x)[:500]})
        return False


def run(state, budget):
    try:
        build("clock")
    except t.Skip as x:
        budget.skipped("nemesis: %s" % x)
        return
    for key, empty in (("actions", {}), ("ends", {}), ("open", [])):
        state.setdefault(key, empty)
    state.setdefault("kinds", {}).setdefault("", {k: state.pop(k, 0) for k in ("done", "passed")})
    work = tempfile.mkdtemp(prefix="ds-nemesis-", dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None)
    skips, missing = {}, {kind: why_not() for kind, (_, why_not) in KINDS.items()}
    try:
        want = references(work)
        before, state["open"] = state["open"], []
        for x in before:  # what failed in an earlier run
            kind = x.get("kind", "")
            if budget.left() <= 0 or missing[kind]:
                state["open"].append(x)
            else:
                attempt(work, x["seed"], kind, want, state, budget, skips)
        while True:  # one at least of each kind, however short the time
            for kind in (k for k in KINDS if not missing[k]):
                count = state["kinds"].setdefault(kind, {"done": 0, "passed": 0})
                count["done"] += 1
                count["passed"] += attempt(work, count["done"], kind, want, state, budget, skips)
            if budget.left() <= 0:
                break
    finally:
        shutil.rmtree(work, ignore_errors=True)
    for text in sorted({*skips.values()}):
        budget.skipped("nemesis: %s" % text)
    for kind, why in missing.items():
        if why:
            budget.skipped("nemesis: %s: %s" % (kind, why))
            skips.update({name: why for name, _ in KINDS[kind][0]})
    state["skipped"] = skips


ON = {"": "a tmpfs or a disk", "network": "a network file system", "quota": "a disk with quotas"}


def table(state, actions):
    lines = ["", "| action | times |", "|---|---|"]
    for name, _ in actions:
        of = {k: n for k, n in state.get("actions", {}).items() if k == name or k.startswith(name + ", ")}
        notes = ["%s %d" % (k[len(name) + 2:], n) for k, n in sorted(of.items()) if k != name]
        notes += ["not here: " + state["skipped"][name]] if name in state.get("skipped", {}) else []
        lines.append("| %s | %d%s |" % (name, sum(of.values()), "".join("; " + x for x in notes)))
    return lines


def page(state):
    ends = ", ".join("%d processes %s" % (n, way) for way, n in sorted(state.get("ends", {}).items()))
    lines = ["Two tiny trainings run while four to eight random actions of the table befall them and their folder, which is a file system",
             "of its own. After each action every directory holds one lineage (the heads of its log and the manifests of its checkpoints",
             "have one run_id), and no record and no newest checkpoint that was there is lost, other than by a copy that the action put",
             "over it. At the end every process has ended well or for a reason that it names, every run resumes to its end with the bits",
             "of an undisturbed run of its seed, its log is undamaged, and nothing is left over.", "",
             "Sequences: %s; %s." % (", ".join("%d on %s, %d passed" % (n["done"], ON[kind], n["passed"])
                                               for kind, n in state.get("kinds", {}).items()), ends or "no process yet")]
    lines += table(state, ACTIONS)
    lines += ["", "Late errors of the disk are those of an ext4 file system whose blocks are on one that fills up.", "",
              "The network file system is `netfs.c`, a directory mounted by FUSE for two clients. As NFS does it keeps what is written and",
              "stores it at fsync, at close, or when it is much or old. A store that fails loses its data, one write or all that follow, and",
              "the next fsync or close reports it, or the write if space is lacking. Attributes are believed for 0.3 s, locks are the",
              "server's, and a file that is removed while it is open is renamed. Sequences draw from the table above and from the one below;",
              "after a fault half of the time a run is killed at once. What must hold is looked for on the server, where nothing is that was",
              "not stored; besides, no checkpoint has its final name before all of it is stored, and what a log calls saved is there. \"Met\"",
              "means that the fault reached the runs."]
    lines += table(state, NET_ACTIONS)
    lines += ["", "The quota of the kernel is that of a btrfs, on which sequences of their own run, and is met at once, in the write."]
    lines += table(state, QUOTA_ACTIONS)
    lines += ["", "Not covered: an NFS server and its protocol themselves; directories that become stale, not only files; a server without",
              "locks; a remount by hand under a live writer, which Linux refuses."]
    for x in state.get("open", []):
        lines.append("- open: %s" % x["text"])
    return "\n".join(lines)
