# The far end of a host that has no depthscope: lists runs and copies their logs, as `depthscope agent` does
# (include/io/FORMATS.md, "Agent").  Sent over standard input to `python3`: 3.6 or newer, its standard library only.
import fcntl, json, os, select, socket, struct, sys, time

TABLE = []
for n in range(256):
    for _ in range(8):
        n = n >> 1 ^ (0x82F63B78 if n & 1 else 0)
    TABLE.append(n)
LONG, GATHER, WINDOW, SAMPLES, FOLLOWS = 128 << 10, 8 << 10, 32 << 10, 300, 16
NUMBERS = "step steps val_loss loss flops_ratio time_ratio tok_s eta mfu seed pid disk_free gpu_use alerts".split()
RULES = "nan loss stall layer gpu disk".split()
BAD_LOSS = 1 << 16
state = dict(root=None, only=False, lists=False, listed=False, rows={}, follows={}, commands={}, seq=0, sent=0, acked=0, beat=0, looked=0, readonly=READONLY)


def crc32c(data):
    crc = 0xFFFFFFFF
    for b in data:
        crc = TABLE[(crc ^ b) & 255] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


def pack(x):
    if x is None:
        return b"\xc0"
    if isinstance(x, bool):
        return b"\xc3" if x else b"\xc2"
    if isinstance(x, int) and -1 << 63 <= x < 1 << 63:
        return b"\xd3" + struct.pack(">q", x)
    if isinstance(x, (int, float)):
        return b"\xcb" + struct.pack(">d", x)
    if isinstance(x, str):
        raw = x.encode("utf-8", "replace")
        return b"\xdb" + struct.pack(">I", len(raw)) + raw
    if isinstance(x, bytes):
        return b"\xc6" + struct.pack(">I", len(x)) + x
    if isinstance(x, (list, tuple)):
        return b"\xdd" + struct.pack(">I", len(x)) + b"".join(map(pack, x))
    return b"\xdf" + struct.pack(">I", len(x)) + b"".join(pack(k) + pack(v) for k, v in x.items())


SIZES = {0xCA: "f", 0xCB: "d", 0xCC: "B", 0xCD: "H", 0xCE: "I", 0xCF: "Q", 0xD0: "b", 0xD1: "h", 0xD2: "i", 0xD3: "q"}
LENGTHS = {0xC4: "B", 0xC5: "H", 0xC6: "I", 0xD9: "B", 0xDA: "H", 0xDB: "I", 0xDC: "H", 0xDD: "I", 0xDE: "H", 0xDF: "I"}


def unpack(data, at, depth=0):
    kind, at = data[at], at + 1
    if kind < 0x80:
        return kind, at
    if kind >= 0xE0:
        return kind - 256, at
    if kind in (0xC0, 0xC2, 0xC3):
        return {0xC0: None, 0xC2: False, 0xC3: True}[kind], at
    if kind in SIZES:
        n = struct.calcsize(SIZES[kind])
        return struct.unpack_from(">" + SIZES[kind], data, at)[0], at + n
    if kind in LENGTHS:
        n = struct.unpack_from(">" + LENGTHS[kind], data, at)[0]
        at += struct.calcsize(LENGTHS[kind])
    else:
        n = kind & (31 if 0xA0 <= kind < 0xC0 else 15)
    if kind in (0xC4, 0xC5, 0xC6):
        return data[at:at + n], at + n
    if 0xA0 <= kind < 0xC0 or kind in (0xD9, 0xDA, 0xDB):
        return data[at:at + n].decode("utf-8", "replace"), at + n
    if depth > 16 or n > len(data):
        raise ValueError
    if 0x90 <= kind < 0xA0 or kind in (0xDC, 0xDD):
        out = []
        for _ in range(n):
            x, at = unpack(data, at, depth + 1)
            out.append(x)
        return out, at
    if 0x80 <= kind < 0x90 or kind in (0xDE, 0xDF):
        out = {}
        for _ in range(n):
            key, at = unpack(data, at, depth + 1)
            out[key], at = unpack(data, at, depth + 1)
        return out, at
    raise ValueError


def body(data, at):
    """The map of the record at `at`, or {}."""
    try:
        x = unpack(data, at + 18)[0]
        return x if isinstance(x, dict) else {}
    except (ValueError, IndexError, struct.error, TypeError):
        return {}


def length(data, at):
    """Of the whole record there; 0: none, or not all of it."""
    if len(data) - at < 18 or data[at] != 0xC9 or data[at + 5] != 0x44:
        return 0
    n = struct.unpack_from(">I", data, at + 1)[0] + 6
    return n if 18 < n <= 16 << 20 and at + n <= len(data) else 0


def checked(data, at):
    n = length(data, at)
    return n if n and crc32c(data[at + 10:at + n]) == struct.unpack_from(">I", data, at + 6)[0] else 0


def find(data, at):
    """The first whole record from `at` on, else the end."""
    while at < len(data) and not checked(data, at):
        at = data.find(b"\xc9", at + 1)
        if at < 0:
            return len(data)
    return at


def say(kind, **keys):
    state["seq"] += 1
    data = struct.pack(">Q", state["seq"]) + pack(dict(keys, kind=kind, step=keys.pop("step", 0), time=keys.pop("time", time.time())))
    out = b"\xc9" + struct.pack(">IBI", len(data) + 4, 0x44, crc32c(data)) + data
    state["sent"] += len(out)
    state["beat"] = time.time()
    while out:
        out = out[os.write(1, out):]


def is_live(path):
    try:
        with open(path, "rb") as f:
            fcntl.flock(f, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return False
    except OSError:
        return True


def logs(root):
    for top, below, files in os.walk(root):
        below[:] = sorted(d for d in below if not d.startswith(".") and d != "checkpoints")
        if "log.mp" in files:
            yield os.path.relpath(top, root), os.path.join(top, "log.mp")
        if top.count(os.sep) - root.count(os.sep) >= 3:
            below[:] = []


TASKS = {"val": 1, "ppl": 2, "final": 3}


def take_newest(x, values, ranks):
    """What a list shows of a run: metrics, and before them evaluations with inference-time decisions, the final one first."""
    rank = TASKS.get(x.get("task"), -1) if x.get("kind") == "eval" and x.get("routing") == "causal" else 0 if x.get("kind") == "metric" else -1
    for key in NUMBERS if rank == 0 else ("val_loss", "flops_ratio", "time_ratio") if rank > 0 else ():
        v = x.get("loss" if rank > 0 and key == "val_loss" else key)
        if isinstance(v, (int, float)) and abs(v) < 1e300 and rank >= ranks.get(key, 0):
            values[key], ranks[key] = float(v), rank


def take_alerts(x, held):
    """The alerts that hold after a record, as io/alert.h numbers them."""
    kind, bit = x.get("kind"), 1 << (RULES.index(x["rule"]) if x.get("rule") in RULES else len(RULES))
    if kind == "metric" and isinstance(x.get("loss"), (int, float)):
        return held & ~BAD_LOSS if abs(x["loss"]) < 1e300 else held | BAD_LOSS
    if kind == "event" and x.get("name") == "alert":
        return held & ~bit if x.get("over") else held | bit
    return 0 if kind == "head" else held


def tail(path, size, back):
    """What the last `back` bytes say of a run."""
    with open(path, "rb") as f:
        f.seek(max(0, size - back))
        last = f.read(back)
    r, ranks, at = dict(values={}, head={}, ends="", paused=False, step=0, time=0.0, metrics=0, evals=0, alerts=0), {}, find(last, 0)
    while length(last, at):
        n = length(last, at)
        x = body(last, at) if n <= 64 << 10 else {}
        kind = x.get("kind")
        take_newest(x, r["values"], ranks)
        r["alerts"] = take_alerts(x, r["alerts"])
        if kind == "system" and isinstance(x.get("disk_free"), (int, float)):
            r["values"]["disk_free"] = float(x["disk_free"])
        r["metrics"] += kind == "metric"
        r["evals"] += any(v > 0 for v in ranks.values())
        if kind == "end":
            r["ends"] = x.get("status", "stopped")
        elif kind == "head":
            r.update(ends="", head=x, paused=False)
            ranks.clear()  # another process: an earlier final evaluation is that of another length
        elif kind == "event":
            r["paused"] = x.get("name") == "pause" or r["paused"] and x.get("name") != "resume"
        elif kind == "metric":
            r["paused"] = False
        r["step"] = x["step"] if isinstance(x.get("step"), int) and x["step"] >= 0 else r["step"]
        r["time"] = x["time"] if isinstance(x.get("time"), float) else r["time"]
        at += n
    return r


def row(name, path):
    st = os.stat(path)
    with open(path, "rb") as f:
        first = f.read(64 << 10)
    for back in (256 << 10, 1 << 20, 4 << 20, 16 << 20):
        r = tail(path, st.st_size, back)
        if back >= st.st_size or r["metrics"] and "val_loss" in r["values"] and (r["evals"] or not r["ends"] or r["metrics"] > 8):
            break
    head = r["head"] or (body(first, 0) if length(first, 0) else {})
    live, ends, values = is_live(path), r["ends"], r["values"]
    values["alerts"] = float(r["alerts"])
    values.update({k: float(head[j]) for k, j in (("steps", "steps"), ("seed", "seed")) if isinstance(head.get(j), int)})
    text = {k: head[k] for k in ("method", "run_id", "parent") if isinstance(head.get(k), str)}
    young = not ends and abs(time.time() - r["time"]) < 15
    return dict(text, name=name, state="paused" if (live or young) and r["paused"] else "live" if live or young else ends or "silent", live=live,
                numbers=[values.get(k, float("nan")) for k in NUMBERS], modified=float(int(st.st_mtime)), spark=b"", time=r["time"], step=r["step"])


def runs():
    """Of the folder, or the one that was named instead."""
    return {os.path.basename(state["root"]): os.path.join(state["root"], "log.mp")} if state["only"] else dict(logs(state["root"]))


def list_runs():
    found = runs()
    for name, path in found.items():
        try:
            st = os.stat(path)
            stamp = (st.st_size, st.st_mtime, st.st_ino, is_live(path))
            if state["rows"].get(name) != stamp:
                say("row", **row(name, path))
                state["rows"][name] = stamp
        except OSError:
            pass
    for name in [n for n in state["rows"] if n not in found]:
        del state["rows"][name]
        say("gone", name=name)
    if not state["listed"]:
        state["listed"] = True
        say("listed")
    state["looked"] = time.time()


def follow(run, at, id):
    path = runs().get(run)
    if not path or len(state["follows"]) >= FOLLOWS:
        say("log", run=run, error="no such run" if not path else "too many runs are followed")
        return
    ino = os.stat(path).st_ino & 0x7FFFFFFF
    state["follows"][run] = dict(path=path, at=at if id == ino else 0, id=ino, reset=id != ino or at == 0)


def sample(data_of, at, size):
    """Records at even distances, each whole, and how they were chosen."""
    out = []
    for i in range(SAMPLES):
        piece = data_of(at + (size - at) * i // SAMPLES, 4096)
        place = find(piece, 0)
        if length(piece, place) and body(piece, place).get("kind") in ("metric", "event", "eval"):
            out.append(piece[place:place + length(piece, place)])
    return b"".join(dict.fromkeys(out))


def send_log(run, f):
    st = os.stat(f["path"])
    if st.st_ino & 0x7FFFFFFF != f["id"] or st.st_size < f["at"]:
        f.update(id=st.st_ino & 0x7FFFFFFF, at=0, reset=True)
    if st.st_size <= f["at"] and not f["reset"]:
        return
    with open(f["path"], "rb") as log:
        def data_of(at, n):
            log.seek(at)
            return log.read(n)
        frames, at = b"", f["at"]
        if st.st_size - at > LONG:
            first = data_of(at, LONG)
            n = length(first, 0)
            end = st.st_size - GATHER
            tail = data_of(end, GATHER)
            end += find(tail, 0)
            frames = (first[:n] if at == 0 else b"") + sample(data_of, at + n, end)
            at = end
        piece = data_of(at, 2 * GATHER)
        if not length(piece, 0):  # larger than that, not all there yet, or damaged
            whole = struct.unpack_from(">I", piece, 1)[0] + 6 if len(piece) >= 18 and piece[:1] == b"\xc9" and piece[5:6] == b"D" else 0
            piece = data_of(at, whole) if 18 < whole <= 16 << 20 else piece
            if not length(piece, 0) and find(piece, 1) < len(piece):
                at += find(piece, 1)
                piece = data_of(at, 2 * GATHER)
        n = 0
        while n < GATHER and length(piece, n):
            n += length(piece, n)
    if frames or n or f["reset"]:
        say("log", run=run, frames=frames + piece[:n], at=at + n, id=f["id"], live=is_live(f["path"]), reset=f["reset"])
        f.update(at=at + n, reset=False)


def command(id, run, line):
    path = runs().get(run)
    if state["readonly"] and line != "status":
        return say("answer", id=id, ok=False, text="this host is read-only (agent --readonly)")
    if not path:
        return say("answer", id=id, ok=False, text="no such run")
    try:
        s = socket.socket(socket.AF_UNIX)
        here = os.getcwd()
        os.chdir(os.path.dirname(path))  # a socket's path may be too long for its address
        try:
            s.connect("control.sock")
        finally:
            os.chdir(here)
        s.sendall(line.encode() + b"\n")
        s.setblocking(False)
        state["commands"][s] = (id, b"")
    except OSError:
        say("answer", id=id, ok=False, text="no live training process")


def take_answer(s):
    id, text = state["commands"][s]
    try:
        got = s.recv(4096)
    except OSError:
        got = b""
    text += got
    if not got or b"\n" in text:
        del state["commands"][s]
        s.close()
        say("answer", id=id, ok=bool(text), text=text.decode("utf-8", "replace").strip() or "the run ended")
    else:
        state["commands"][s] = (id, text)


def take(request):
    what, run = request.get("do"), request.get("run")
    if what == "open":
        state["root"] = os.path.abspath(os.path.expanduser(request.get("root") or os.environ.get("DEPTHSCOPE_RUNS") or "runs"))
        state["only"] = os.path.exists(os.path.join(state["root"], "log.mp"))
        named = dict(run=os.path.basename(state["root"])) if state["only"] else {}
        say("agent", protocol=1, version="Python %d.%d" % sys.version_info[:2], root=state["root"], readonly=state["readonly"], does="echo", **named)
        if not os.path.isdir(state["root"]):
            say("error", text="no such folder")
            sys.exit("no such folder")
    elif what == "list":
        state["lists"] = True
    elif what == "ack":
        state["acked"] = request.get("bytes", 0)
    elif what == "follow":
        follow(run, request.get("from", 0), request.get("id", 0))
    elif what == "drop":
        state["follows"].pop(run, None)
    elif what == "command":
        command(request.get("id", 0), run, request.get("line", ""))
    elif what == "echo":
        say("answer", id=request.get("id", 0), ok=True, text="")
    elif "id" in request:
        say("answer", id=request["id"], ok=False, text="no depthscope here: the Python script only lists, copies and passes on commands")


def main():
    waiting = b""
    while True:
        busy = state["follows"] and state["sent"] - state["acked"] < WINDOW
        ready = select.select([0] + list(state["commands"]), [], [], 0.25 if busy or state["commands"] else 0.5)[0]
        if 0 in ready:
            got = os.read(0, 65536)
            if not got:
                return
            waiting += got
            while b"\n" in waiting:
                line, waiting = waiting.split(b"\n", 1)
                try:
                    request = json.loads(line.decode("utf-8"))
                    take(request if isinstance(request, dict) else {})
                except (ValueError, TypeError, AttributeError):
                    say("error", text="a request that is no JSON object")
        for s in ready:
            if s != 0:
                take_answer(s)
        if state["lists"] and time.time() > state["looked"] + 2 and state["sent"] - state["acked"] < WINDOW:
            list_runs()
        for run, f in list(state["follows"].items()):
            try:
                while state["sent"] - state["acked"] < WINDOW:
                    before = state["sent"]
                    send_log(run, f)
                    if state["sent"] == before:
                        break
            except OSError:
                pass
        if time.time() > state["beat"] + 5:
            say("beat")


main()
