# The far end of a host that has no depthscope: lists runs and copies their logs, as `depthscope agent` does
# (include/io/FORMATS.md, "Agent").  Sent over standard input to `python3`: 3.6 or newer, its standard library only.
import fcntl, json, os, select, socket, struct, sys, time

TABLE = []
for n in range(256):
    for _ in range(8):
        n = n >> 1 ^ (0x82F63B78 if n & 1 else 0)
    TABLE.append(n)
LONG, GATHER, WINDOW, SAMPLES, FOLLOWS, COMMAND_S = 128 << 10, 8 << 10, 32 << 10, 300, 16, 30
NUMBERS = "step steps val_loss loss flops_ratio time_ratio tok_s eta mfu seed pid disk_free gpu_use alerts".split()
RULES = "nan loss stall layer gpu disk".split()
BAD_LOSS = 1 << 16
LOOKS = 4096  # names below the folders of the root
WHOLE = 16 << 10  # bytes of a record that is parsed for a list
YOUNG = 15  # seconds, as io/run_state.c
state = dict(root=None, only=False, lists=False, listed=False, rows={}, young={}, last={}, follows={}, commands={}, looks=0, seq=0, sent=0, acked=0, beat=0, looked=-9, readonly=READONLY)


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


def brief(data, at):
    """The first keys of a large record: what kind it is, of which step and time."""
    x, at = {}, at + 18
    try:
        n = struct.unpack_from(">H" if data[at] == 0xDE else ">I", data, at + 1)[0] if data[at] >= 0xDE else data[at] & 15
        at += {0xDE: 3, 0xDF: 5}.get(data[at], 1)
        for _ in range(min(n, 4)):
            key, at = unpack(data, at)
            x[key], at = unpack(data, at)
    except (ValueError, IndexError, struct.error, TypeError):
        pass
    return x


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
    state["beat"] = time.monotonic()
    while out:
        out = out[os.write(1, out):]


def is_live(path):
    try:
        with open(path, "rb") as f:
            fcntl.flock(f, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return False
    except BlockingIOError:
        return True
    except OSError:  # a file system without locks says nothing
        return False


def is_inner_link(root, path):
    """A way back up, or to a folder that is listed anyway."""
    to, root = os.path.realpath(path), os.path.realpath(root)
    return os.path.islink(path) and (to.startswith(root + os.sep) or (root + os.sep).startswith(to.rstrip(os.sep) + os.sep))


def logs(root, below="", depth=3):
    """Names and logs of the runs, as io/runindex.c finds them: nothing is a run inside another."""
    try:
        names = sorted(os.listdir(os.path.join(root, below)))
    except OSError:
        return
    for name in names:
        path = os.path.join(root, below, name)
        state["looks"] += below != ""
        if state["looks"] > LOOKS:
            return
        if name.startswith(".") or not os.path.isdir(path) or is_inner_link(root, path):
            continue
        if os.path.isfile(os.path.join(path, "log.mp")) or os.path.exists(os.path.join(path, "config.yaml")):
            yield os.path.join(below, name), os.path.join(path, "log.mp")
        elif depth > 0:
            for run in logs(root, os.path.join(below, name), depth - 1):
                yield run


TASKS = {"val": 1, "ppl": 2, "final": 3}


def take_newest(x, values, ranks):
    """What a list shows of a run: metrics, and before them evaluations with inference-time decisions, the final one first."""
    rank = TASKS.get(str(x.get("task")), -1) if x.get("kind") == "eval" and x.get("routing") == "causal" else 0 if x.get("kind") == "metric" else -1
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


def number(x):
    return float(x) if isinstance(x, (int, float)) and not isinstance(x, bool) and abs(x) < 1e300 else float("nan")


def take_head(x, r):
    r.update(ends="", paused=False, writer=isinstance(x.get("writer"), str), ms=[])
    r["ranks"].clear()  # another process: an earlier final evaluation is that of another length
    r["text"].update({k: x[k] for k in ("method", "run_id", "parent") if isinstance(x.get(k), str)})
    r["values"].update({k: number(x[k]) for k in ("steps", "seed") if number(x.get(k)) >= (k == "steps")})


def take_metric(x, r):
    r["metrics"] += 1
    if "val_loss" in x:
        r.update(validates=True, val_at=r["metrics"])
    r["ms"] = r["ms"][-49:] + [number(x["step_ms"])] if x.get("step_ms") else r["ms"]
    r["share"].update({k: number(x[k]) for k in ("evaluation_share", "checkpoint_share") if k in x})
    loss = number(x.get("loss"))
    if loss == loss and isinstance(x.get("step"), int) and x["step"] >= 0:
        r["points"].append((x["step"], loss))


def take_record(x, r, at):
    """As io/run_state.c and io/runrow.c do it."""
    kind, name, when = x.get("kind"), x.get("name"), number(x.get("time"))
    step = x["step"] if isinstance(x.get("step"), int) and x["step"] >= 0 else r["step"]
    take_newest(x, r["values"], r["ranks"])
    r["alerts"] = take_alerts(x, r["alerts"])
    r["records"] += 1
    r["evals"] += any(v > 0 for v in r["ranks"].values())
    if kind != "probe" or step > r["step"]:  # a late one changes neither
        r["step"] = step
    if abs(when) <= 1e12 and (kind != "probe" or when > r["time"]):
        r["time"] = when
    r["log"] = r["log"] or kind in ("metric", "layer", "event", "end")
    r["pass"] = r["pass"] or kind in ("probe", "eval", "sample", "matrix")
    if kind in ("head", "layer", "system", "ranks") or kind in ("matrix", "sample") and isinstance(name, str):
        r["last"][kind if kind not in ("matrix", "sample") else kind + " " + name] = at
    if kind == "system":
        r["values"]["disk_free"] = number(x.get("disk_free"))
        uses = [number(g.get("use")) for g in x.get("gpus") or [] if isinstance(g, dict)] if isinstance(x.get("gpus"), list) else []
        if r["writer"] and [u for u in uses if u == u]:
            r["values"]["gpu_use"] = max(u for u in uses if u == u)
    elif kind == "end":
        r["ends"] = x.get("status") if x.get("status") in ("done", "failed") else "stopped"
    elif kind == "head":
        take_head(x, r)
    elif kind == "event":
        r["paused"] = name == "pause" or r["paused"] and name != "resume"
    elif kind == "metric":
        r["paused"] = False
        take_metric(x, r)


def take_part(r, data, offset):
    """The records of a part of a log, of which the first byte is at `offset`."""
    at = find(data, 0)
    while at < len(data):
        n = length(data, at)
        x = body(data, at) if 0 < n <= WHOLE else brief(data, at) if n else {}
        if not x or n > WHOLE and data[at + n:at + n + 1] not in (b"", b"\xc9"):
            at = find(data, at + 1)  # damage, or the end
            continue
        take_record(x, r, offset + at)
        r["parsed"] += n if n <= WHOLE else 0
        at += n
    return r


def tail(path, size, back):
    """What the beginning and the last `back` bytes say of a run."""
    r = dict(values={}, ranks={}, text={}, share={}, last={}, ms=[], points=[], ends="", paused=False, writer=False, log=False,
             validates=False, val_at=0, parsed=0, step=0, time=0.0, metrics=0, evals=0, alerts=0, records=0)
    r["pass"] = False
    with open(path, "rb") as f:
        if size > back:
            take_part(r, f.read(64 << 10), 0)
            r["values"] = {k: v for k, v in r["values"].items() if k in ("steps", "seed")}
            r.update(ranks={}, ends="", metrics=0, evals=0, alerts=0, ms=[], parsed=0)
        f.seek(max(0, size - back))
        return take_part(r, f.read(back), max(0, size - back))


def more_points(path, size, back):
    """Losses from between the two parts that were read."""
    out = []
    with open(path, "rb") as f:
        for i in range(24 if size > back else 0):
            f.seek((64 << 10) + (size - back - (64 << 10)) * i // 24)
            data = f.read(8 << 10)
            at, n = find(data, 0), 0
            while length(data, at) and n < 12:
                x = body(data, at)
                loss = number(x.get("loss"))
                if x.get("kind") == "metric" and loss == loss and isinstance(x.get("step"), int) and x["step"] >= 0:
                    out.append((x["step"], loss))
                    break
                at, n = at + length(data, at), n + 1
    return out


def spark(points):
    """The mean loss of each of 32 equal ranges of steps."""
    low, high, bins = min(points)[0], max(points)[0], {}
    for step, loss in points:
        bins.setdefault(int((step - low) / (high - low) * 31 + 0.5) if high > low else 0, []).append(loss)
    return struct.pack("<%df" % len(bins), *(max(-3e38, min(3e38, sum(bins[k]) / len(bins[k]))) for k in sorted(bins)))


def read_json(path):
    try:
        with open(path, "rb") as f:
            x = json.loads(f.read(1 << 20).decode("utf-8"))
        return x if isinstance(x, dict) else {}
    except (OSError, ValueError, RecursionError):
        return {}


def is_tag(x):
    return isinstance(x, str) and 0 < len(x.encode("utf-8", "replace")) <= 32 and x.isprintable() and x[0] not in "+-" and not set(x) & set(" \"'=!<>~,")


def files_of(folder):
    """What the other files of a run say of it."""
    notes, preset = read_json(os.path.join(folder, "notes.json")), read_json(os.path.join(folder, "meta.json")).get("preset")
    tags = notes.get("tags") if isinstance(notes.get("tags"), list) else []
    note = notes.get("note") if isinstance(notes.get("note"), str) else ""
    return dict(preset=preset if isinstance(preset, str) else "", tags=" ".join(list(dict.fromkeys(t for t in tags if is_tag(t)))[:16]), note=note)


def empty_row(name, folder):
    """A run that has written nothing yet."""
    method = ""
    try:
        with open(os.path.join(folder, "config.yaml"), "rb") as f:
            for line in f.read(64 << 10).decode("utf-8", "replace").splitlines():
                method = line.split(":", 1)[1].strip() if line.startswith("  method:") and not method else method
    except OSError:
        pass
    when = float(int(os.stat(folder).st_mtime))
    return dict(files_of(folder), name=name, state="empty", live=False, method=method, numbers=[float("nan")] * len(NUMBERS), modified=when,
                spark=b"", time=0.0, step=0)


def state_of(r, live):
    young = r["records"] and not r["ends"] and abs(time.time() - r["time"]) < YOUNG
    if r["ends"] or not live and not r["records"]:
        return r["ends"] or "empty"
    if not live and r["pass"] and not r["log"] and "steps" not in r["values"]:
        return "trace"
    return ("paused" if r["paused"] else "live") if live or young else "silent"


def eta(r):
    ms, share = [x for x in r["ms"] if x > 0], sum(x for x in r["share"].values() if x == x)
    left = r["values"].get("steps", 0) - r["step"]
    return left * sum(ms) / len(ms) / 1e3 / (1 - share if 0 <= share < 0.95 else 1) if ms and left > 0 else float("nan")


def row(name, path):
    st = os.stat(path)
    for back in (64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20):
        r = tail(path, st.st_size, back)
        is_known = r["metrics"] and "val_loss" in r["values"] and (r["evals"] or r["val_at"] > 1 and (not r["ends"] or r["metrics"] > 8))
        if back >= st.st_size or is_known or r["parsed"] > (768 << 10 if r["validates"] else 192 << 10):
            break
    live, values, points = is_live(path), r["values"], r["points"] + more_points(path, st.st_size, back)
    state["last"][name] = r["last"]
    values["alerts"] = float(r["alerts"])
    if r["records"] and (r["step"] > 0 or r["log"]):
        values["step"] = float(r["step"])
    is_now = state_of(r, live)
    if is_now == "live":
        values["eta"] = eta(r)
    return dict(r["text"], name=name, state=is_now, live=live, numbers=[values.get(k, float("nan")) for k in NUMBERS], modified=float(int(st.st_mtime)),
                spark=spark(points) if points else b"", time=r["time"], step=r["step"], **files_of(os.path.dirname(path)))


def runs():
    """Of the folder, or the one that was named instead."""
    state["looks"] = 0
    return {os.path.basename(state["root"]): os.path.join(state["root"], "log.mp")} if state["only"] else dict(logs(state["root"]))


def stamp_of(name, path):
    """Changes when a row may: a run without a lock is live only while its newest record is young."""
    try:
        st = os.stat(path)
        now = (st.st_size, st.st_mtime, st.st_ino, is_live(path))
    except OSError:
        now = None
    is_old = name in state["young"] and time.time() - state["young"][name] >= YOUNG
    return now, os.stat(os.path.dirname(path)).st_mtime, is_old


def list_runs():
    found = runs()
    for name, path in found.items():
        try:
            stamp = stamp_of(name, path)
            if state["rows"].get(name) != stamp:
                x = row(name, path) if stamp[0] else empty_row(name, os.path.dirname(path))
                say("row", **x)
                state["rows"][name] = stamp
                state["young"].pop(name, None)
                if x["state"] in ("live", "paused") and not x["live"]:
                    state["young"][name] = x["time"]
        except (OSError, ValueError, TypeError, OverflowError):  # what a log holds may be anything
            pass
    for name in [n for n in state["rows"] if n not in found]:
        del state["rows"][name]
        state["last"].pop(name, None)
        say("gone", name=name)
    if not state["listed"]:
        state["listed"] = True
        say("listed")
    state["looked"] = time.monotonic()


def id_of(log, st):
    """Of a log: its file and first record, as a new file may have the number of one that was deleted."""
    log.seek(0)
    return (st.st_ino ^ crc32c(log.read(18))) & 0x7FFFFFFF


def follow(run, at, id):
    path = runs().get(run)
    if not path or len(state["follows"]) >= FOLLOWS:
        say("log", run=run, error="no such run" if not path else "too many runs are followed")
        return
    try:
        with open(path, "rb") as log:
            st = os.fstat(log.fileno())
            own = id_of(log, st)
    except OSError:
        say("log", run=run, error="no records yet")
        return
    state["follows"][run] = dict(path=path, at=at if id == own else 0, id=own, ino=st.st_ino, reset=id != own or at == 0)


def sample(data_of, at, size, last):
    """Records at even distances, each whole, and the newest of some kinds."""
    out = {}
    for i in range(SAMPLES):
        place = at + (size - at) * i // SAMPLES
        piece = data_of(place, 4096)
        k = find(piece, 0)
        if length(piece, k) and body(piece, k).get("kind") in ("metric", "event", "eval"):
            out[place + k] = piece[k:k + length(piece, k)]
    for place in sorted(last.values())[-12:]:
        piece = data_of(place, 64 << 10) if at <= place < size else b""
        if checked(piece, 0):
            out[place] = piece[:length(piece, 0)]
    return b"".join(out[place] for place in sorted(out))


def send_log(run, f):
    with open(f["path"], "rb") as log:
        st = os.fstat(log.fileno())
        if st.st_ino != f["ino"] or st.st_size < f["at"]:
            f.update(id=id_of(log, st), ino=st.st_ino, at=0, reset=True)
        if st.st_size <= f["at"] and not f["reset"]:
            return

        def data_of(at, n):
            log.seek(at)
            return log.read(n)
        frames, at = b"", f["at"]
        if st.st_size - at > LONG:
            first = data_of(at, LONG)
            n = checked(first, 0)
            end = st.st_size - GATHER
            tail = data_of(end, GATHER)
            end += find(tail, 0)
            frames = (first[:n] if at == 0 else b"") + sample(data_of, at + n, end, state["last"].get(run, {}))
            at = end
        piece = data_of(at, 2 * GATHER)
        if not checked(piece, 0):  # larger than that, not all there yet, or damaged
            whole = struct.unpack_from(">I", piece, 1)[0] + 6 if len(piece) >= 18 and piece[:1] == b"\xc9" and piece[5:6] == b"D" else 0
            piece = data_of(at, whole + 2 * GATHER) if 18 < whole <= 16 << 20 else piece
            following = len(piece) if checked(piece, 0) else find(piece, 1)
            if following < len(piece):
                at += following
                piece = data_of(at, 2 * GATHER)
            elif not checked(piece, 0) and at + len(piece) < st.st_size:  # damage all over
                at += len(piece) // 2
                piece = b""
        n, more = 0, checked(piece, 0)
        while n < GATHER and more:
            n += more
            more = checked(piece, n)
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
        state["commands"][s] = (id, b"", time.monotonic() + COMMAND_S)
    except OSError:
        say("answer", id=id, ok=False, text="no live training process")


def take_answer(s):
    id, text, end = state["commands"][s]
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
        state["commands"][s] = (id, text, end)


def give_up_commands():
    for s in [s for s, x in state["commands"].items() if time.monotonic() > x[2]]:
        say("answer", id=state["commands"].pop(s)[0], ok=False, text="no answer within %d s: the run is stopped or stuck" % COMMAND_S)
        s.close()


def take(request):
    what, run = request.get("do"), request.get("run")
    if what == "open":
        state["root"] = os.path.abspath(os.path.expanduser(request.get("root") or os.environ.get("DEPTHSCOPE_RUNS") or "runs"))
        state["only"] = os.path.exists(os.path.join(state["root"], "log.mp"))
        named = dict(run=os.path.basename(state["root"])) if state["only"] else {}
        say("agent", protocol=1, version="Python %d.%d" % sys.version_info[:2], root=state["root"], readonly=state["readonly"], does="echo", **named)
        if not os.path.isdir(state["root"]):
            say("error", text="no such folder")
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
        give_up_commands()
        if state["lists"] and time.monotonic() > state["looked"] + 2 and state["sent"] - state["acked"] < WINDOW:
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
        if time.monotonic() > state["beat"] + 5:
            say("beat")


main()
