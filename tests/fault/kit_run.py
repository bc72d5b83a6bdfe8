"""Runs as processes: start them, ask them, read their record stream with nothing but its description."""
import fcntl, hashlib, json, os, pty, random, re, select, shutil, signal, socket, struct, subprocess, sys, tempfile, termios, time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import t  # noqa: E402
from t import PROGRAM, ROOT, SANITIZED, SLOW, Skip  # noqa: E402

RUNS = tempfile.mkdtemp(prefix="ds-run-", dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None)
TINY = ("model.layers=6 model.dim=16 model.heads=2 model.vocab=300 model.max_seq=64 data.docs=20 data.tokenizer=bytes "
        "data.val_fraction=0.2 train.batch=4 train.seq=32 train.warmup=3 train.eval_tokens=64 train.final_tokens=64 "
        "train.samples=16 train.time_rounds=0 train.probes=1 train.probe_tokens=16 train.eval_every=50 train.probe_every=50 "
        "train.checkpoint_every=20 threads=1").split()


def check(ok, what, note=""):
    if not ok:
        raise AssertionError("%s %s" % (what, note))


def environment(**more):
    e = dict(os.environ, DEPTHSCOPE_RUNS=RUNS, LC_ALL="C.UTF-8", **more)
    return e


def train(*args, **kw):
    """Runs to its end; (status, stdout, stderr)."""
    p = subprocess.run([PROGRAM, "train", *args], env=environment(**kw), stdin=subprocess.DEVNULL, capture_output=True,
                       timeout=60 * SLOW)
    return p.returncode, p.stdout.decode(), p.stderr.decode()


def start(*args, **kw):
    p = subprocess.Popen([PROGRAM, "train", *args], env=environment(**kw), stdin=subprocess.DEVNULL,
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    return p


def path(*parts):
    return os.path.join(RUNS, *parts)


def wait_for(what, seconds=20):
    end = time.monotonic() + seconds * SLOW
    while time.monotonic() < end:
        if what():
            return
        time.sleep(0.01)
    raise AssertionError("waited in vain")


def finish(p, seconds=30):
    out, err = p.communicate(timeout=seconds * SLOW)
    return p.returncode, out.decode(), err.decode()


# ---- the record stream, read with nothing but its description -----------------------------------------------------


def unpack(b, i=0):
    t = b[i]
    i += 1
    def take(fmt):
        n = struct.calcsize(fmt)
        return struct.unpack_from(fmt, b, i)[0], i + n
    def items(n, i, pairs):
        out = {} if pairs else []
        for _ in range(n):
            k = None
            if pairs:
                k, i = unpack(b, i)
            v, i = unpack(b, i)
            if pairs:
                out[k] = v
            else:
                out.append(v)
        return out, i
    if t < 0x80:
        return t, i
    if t >= 0xe0:
        return t - 256, i
    if t < 0x90:
        return items(t & 15, i, True)
    if t < 0xa0:
        return items(t & 15, i, False)
    if t < 0xc0:
        return b[i:i + (t & 31)].decode("utf-8", "replace"), i + (t & 31)
    if t in (0xc0, 0xc2, 0xc3):
        return {0xc0: None, 0xc2: False, 0xc3: True}[t], i
    numbers = {0xca: ">f", 0xcb: ">d", 0xcc: ">B", 0xcd: ">H", 0xce: ">I", 0xcf: ">Q", 0xd0: ">b", 0xd1: ">h", 0xd2: ">i",
               0xd3: ">q"}
    if t in numbers:
        return take(numbers[t])
    sizes = {0xc4: ">B", 0xc5: ">H", 0xc6: ">I", 0xd9: ">B", 0xda: ">H", 0xdb: ">I", 0xdc: ">H", 0xdd: ">I", 0xde: ">H",
             0xdf: ">I"}
    n, i = take(sizes[t])
    if t >= 0xdc:
        return items(n, i, t >= 0xde)
    data = b[i:i + n]
    return (data if t < 0xd0 else data.decode("utf-8", "replace")), i + n


CRC = []
for n in range(256):
    for _ in range(8):
        n = n >> 1 ^ 0x82f63b78 if n & 1 else n >> 1
    CRC.append(n)


def crc32c(data):
    c = 0xffffffff
    for x in data:
        c = c >> 8 ^ CRC[(c ^ x) & 255]
    return c ^ 0xffffffff


def records(run, verify=False, live=False):
    """(seq, body) of every whole record; anything between them is a gap and fails.  live: the last may stay half written.

    A reader may see a part of what a writer is writing just now, so a log that does not end with a record is read again.
    """
    end = time.monotonic() + 2 * SLOW
    while True:
        b = open(path(run, "log.mp"), "rb").read()
        i, out = 0, []
        while i + 18 <= len(b):
            size = struct.unpack_from(">I", b, i + 1)[0]
            if b[i] != 0xc9 or b[i + 5] != 0x44 or i + 6 + size > len(b):
                break
            crc, seq = struct.unpack_from(">IQ", b, i + 6)
            check(not verify or crc == crc32c(b[i + 10:i + 6 + size]), "checksum", "at %d" % i)
            out.append((seq, unpack(b, i + 18)[0]))
            i += 6 + size
        if live or i == len(b):
            return out
        check(time.monotonic() < end, "every byte of the stream belongs to a record", "%d of %d" % (i, len(b)))
        time.sleep(0.05)


def check_stream(run, verify=True):
    """No gap: seq without a hole, and for every step one metric that was not superseded."""
    r = records(run, verify)
    check([s for s, _ in r] == list(range(1, len(r) + 1)), "seq is continuous", str([s for s, _ in r][:5]))
    seen = []
    for _, x in r:
        if x["kind"] == "head":
            seen = [s for s in seen if s <= x["step"]]
        if x["kind"] == "metric":
            check(not seen or x["step"] == seen[-1] + 1, "steps follow one another", "%s after %s" % (x["step"], seen[-1:]))
            seen.append(x["step"])
    return [x for _, x in r]


def events(run, name):
    return [x for _, x in records(run) if x["kind"] == "event" and x["name"] == name]


def sha(*parts):
    return hashlib.sha256(open(path(*parts), "rb").read()).hexdigest()


def weights(run, step):
    d = "step-%08d" % step
    return sha(run, "checkpoints", d, "model.safetensors"), sha(run, "checkpoints", d, "optimizer.safetensors")


def leftovers(run):
    """Whatever is neither a whole checkpoint nor of the run."""
    return [n for n in os.listdir(path(run, "checkpoints")) if not re.fullmatch(r"step-\d{8}", n)]


def ask(run, line, timeout=10):
    """The answer; of a command that a busy machine makes wait for the end of a step, the one that is recorded then."""
    answer = ask_once(run, line, timeout)
    m = re.match(r"ok pending (\d+): ", answer)
    told = []
    def is_recorded():
        told[:] = [x["text"] for x in events(run, "command") if x["text"].startswith(m.group(1) + " ")]
        return bool(told)
    if m:
        wait_for(is_recorded)
        answer = told[-1].split(": ", 1)[1]
    return answer


def connected(address, timeout=10):
    """As the program does, it goes on while the queue is full; a socket that is bound listens a moment later."""
    s = socket.socket(socket.AF_UNIX)
    s.settimeout(timeout * SLOW)
    end = time.monotonic() + timeout * SLOW
    while True:
        try:
            s.connect(address)
            return s
        except (BlockingIOError, ConnectionRefusedError):
            if time.monotonic() > end:
                raise
            time.sleep(0.01)


def ask_once(run, line, timeout=10):
    s = connected(path(run, "control.sock"), timeout)
    s.sendall(line if isinstance(line, bytes) else (line + "\n").encode())
    answer = b""
    while not answer.endswith(b"\n"):
        got = s.recv(4096)
        if not got:
            break
        answer += got
    s.close()
    return answer.decode().rstrip("\n")


def is_up(run):
    return lambda: os.path.exists(path(run, "control.sock")) and os.path.getsize(path(run, "log.mp")) > 0


def step_of(run):
    return int(ask(run, "status").split()[2])


def run_tests(chosen):
    """Run by t.main; the runs are in a directory of their own (RUNS)."""
    try:
        t.main(chosen=chosen)
    finally:
        subprocess.run(["chmod", "-R", "u+rwX", RUNS], capture_output=True)
        shutil.rmtree(RUNS, ignore_errors=True)
