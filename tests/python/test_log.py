"""The log that the Python package writes: its bytes, its end after a crash, its one writer, and its way through the C program."""
import math
import os
import random
import signal
import struct
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from kit import needs, script, start  # noqa: E402
import t  # noqa: E402
from t import run, run_json, test  # noqa: E402

import depthscope as ds  # noqa: E402
from depthscope import _crc32c, _log, _msgpack  # noqa: E402


def by_definition(data):
    c = 0xFFFFFFFF
    for b in data:
        c ^= b
        for _ in range(8):
            c = c >> 1 ^ (0x82F63B78 if c & 1 else 0)
    return c ^ 0xFFFFFFFF


def records(path):
    with open(path, "rb") as f:
        return [x.body for x in _log.Scan(f) if x.body is not None]


@test
def the_checksum_is_that_of_the_definition():
    rng = random.Random(1)
    assert by_definition(b"123456789") == 0xE3069283
    for n in [0, 1, 2, 9, 255, 1023, 1024, 1025, 4099]:
        data = bytes(rng.randrange(256) for _ in range(n))
        want = by_definition(data)
        assert _crc32c._by_bytes(data, 0xFFFFFFFF) ^ 0xFFFFFFFF == want, n
        assert _crc32c._by_words(data, 0xFFFFFFFF) ^ 0xFFFFFFFF == want, n
        assert _crc32c.crc32c(data) == want, n


@test
def lanes_of_numpy_give_the_same_checksum():
    python = needs("numpy")
    out = script("""
import os, numpy
from depthscope import _crc32c as c
c._package = lambda: None
for n in [32768, 32769, 40000, 65535, 65536, 99991, 1 << 20, (1 << 20) + 1]:
    data = os.urandom(n)
    assert c.crc32c(data) == c._by_words(data, 0xFFFFFFFF) ^ 0xFFFFFFFF, n
print(c._lanes is not None)
""", python=python)
    assert out == "True\n", out


VALUES = [None, True, False, 0, 1, 127, 128, 255, 256, 65535, 65536, 2**32 - 1, 2**32, 2**64 - 1, -1, -32, -33, -128, -129, -32768,
          -32769, -2**31, -2**31 - 1, -2**63, 0.0, -0.0, 1.5, math.inf, -math.inf, 5e-324, "", "a" * 31, "a" * 32, "\u00e9" * 200,
          "x" * 70000, b"", b"\0" * 255, b"\0" * 256, b"\1" * 70000, [], list(range(15)), list(range(16)), [0] * 70000, {},
          {str(i): i for i in range(15)}, {str(i): [i] for i in range(16)}, {"a": {"b": [1, {"c": None}]}}]


@test
def what_is_packed_is_unpacked():
    for v in VALUES:
        assert _msgpack.unpack(_msgpack.pack(v)) == v, repr(v)[:80]
    assert math.isnan(_msgpack.unpack(_msgpack.pack(math.nan)))


@test
def packed_bytes_are_those_of_the_msgpack_package():
    python = needs("msgpack")
    script("""
import msgpack, sys
sys.path.insert(0, sys.argv[1])
from depthscope import _msgpack
for v in eval(sys.argv[2], {"inf": float("inf")}):
    assert _msgpack.pack(v) == msgpack.packb(v), repr(v)[:80]
    assert msgpack.unpackb(_msgpack.pack(v), strict_map_key=False) == v
""", ds.__path__[0], repr([v for v in VALUES if not isinstance(v, (list, str, bytes)) or len(v) < 70000]), python=python)


@test
def truncated_and_hostile_objects_are_refused():
    data = _msgpack.pack({"kind": "x", "values": [1.5, "text", b"bin", {"a": [None, True, 70000]}]})
    for n in range(len(data)):
        try:
            _msgpack.unpack(data[:n])
        except _msgpack.FormatError:
            continue
        raise AssertionError("%d of %d bytes were accepted" % (n, len(data)))
    hostile = [b"\xdd\xff\xff\xff\xff", b"\xdf\xff\xff\xff\xff", b"\xc6\xff\xff\xff\xff", b"\xdb\x7f\xff\xff\xff", b"\xc1",
               b"\x91" * 17 + b"\xc0", b"\x81" * 400, b"\xc9\xff\xff\xff\xff\1", data + b"\0"]
    for raw in hostile:
        try:
            _msgpack.unpack(raw)
        except _msgpack.FormatError:
            continue
        raise AssertionError("%r was accepted" % raw[:20])
    rng = random.Random(7)
    for _ in range(3000):
        raw = bytearray(data)
        for _ in range(rng.randrange(1, 4)):
            raw[rng.randrange(len(raw))] = rng.randrange(256)
        try:
            _msgpack.unpack(raw)
        except _msgpack.FormatError:
            pass
    try:
        deep = []
        for _ in range(20):
            deep = [deep]
        _msgpack.pack(deep)
    except _msgpack.FormatError:
        return
    raise AssertionError("a depth of 20 was packed")


def write_all(name):
    """Every kind of record, from one run."""
    with ds.init(project="p", name=name, config={"lr": 1e-3, "model": {"layers": 2}, "odd key": "\u00fc\n\x7f\u2028\U0001f600"},
                 layers=2, steps=5, method="mine") as r:
        for step in range(5):
            r.log({"loss": [2.0, math.nan, 0.5, 0.1 + 0.2, math.inf][step], "train": {"lr": 1e-3}, "tokens": step * 10, "none": None,
                   "phase": "warm" if step < 2 else "main"})
            r.layers({"layer_grad_norm": [0.1, 2 / 3]})
        r.matrix("expert_load", [[1, 2, 3], [4, 5, 6]], layer=[0, 1])
        r.probe(index=3, name="text", ids=[5, 6, 7], text=["a", b"\xff", "\u00e9"], run=[[1, 1, 1], [1, 0, True]], nll=[math.nan, 1, 2],
                cell={"gate": [[1, 2, 3], [4, 5, 6]], "expert": [[0, 1, 2], [-1, 3, 3]]}, token={"class": [0, 1, 2]},
                cell_kind={"expert": "category"}, inferred=["run"])
        r.sample("val", {"depth": [1, 2, 2], "nll": [.5, .25, .125]})
        r.evaluation("val", {"loss": 1.25, "capacity": [1, .5]}, routing="causal")
        r.event("note", "text", level="warn")
        r.gate(0, [1, 0, 1, 0])
        r.gate(0, [True, True, True, True], score=[.5] * 4)
        r.gate(1, [0, 0])
        r.log({"loss": 0.25}, step=5)
    return os.path.join("runs", name)


@test
def every_kind_of_record_reaches_the_c_program():
    path = write_all("a")
    got = run_json("inspect", path)
    assert got["damage"] == {"gaps": 0, "lost": 0, "repeated": 0, "invalid": 0, "tail": 0}, got["damage"]
    assert got["state"] == "done" and got["layers"] == 2 and got["step"] == 5 and got["steps"] == 5 and got["method"] == "mine"
    assert got["records"] == {"head": 1, "metric": 6, "layer": 6, "event": 3, "matrix": 1, "probe": 1, "sample": 1, "eval": 1, "end": 1}
    loss = next(s for s in got["series"] if s["name"] == "loss")
    assert loss["points"] == 6 and loss["nonfinite"] == 2 and loss["last"] == 0.25 and loss["max"] == 2
    row = run_json("runs")[0]
    assert row["name"] == "a" and row["step"] == 5 and row["state"] == "done" and row["loss"] == 0.25, row
    assert "loss" in run("show", "monitor", path)
    for line in open(os.path.join(path, "config.yaml"), encoding="utf-8"):
        assert ": \"" in line, line


@test
def layers_beyond_those_of_the_head_are_not_always_on():
    with ds.init(name="a", layers=1) as r:  # blocks that share their weights are called more than once
        r.probe(ids=[1, 2], run=[[1, 1], [1, 1]])
    text = run("show", "depth", "runs/a")
    assert "mean depth 2.00 of 2" in text and "always on" not in text, text


@test
def numbers_come_back_bit_for_bit():
    path = write_all("a")
    d = ds.read(path)
    want = [2.0, math.nan, 0.5, 0.1 + 0.2, math.inf, 0.25]
    assert struct.pack("6d", *d["loss"]) == struct.pack("6d", *want)
    assert struct.pack("6d", *d.metrics["loss"].value) == struct.pack("6d", *want)
    assert list(d["step"]) == list(range(6)) and list(d.metrics["tokens"].step) == list(range(5)) and math.isnan(d["tokens"][5])
    assert list(d.layers["layer_grad_norm"].value[4]) == [0.1, 2 / 3]
    assert list(d.layers["gate_ratio"].value[0]) == [0.75, 0.0] and d.layers["gate_score"].value[0][0] == 0.5
    assert [list(r) for r in d.matrices["expert_load"].value[0]] == [[1, 2, 3], [4, 5, 6]]
    p = d.probes[0]
    assert p["ids"] == [5, 6, 7] and p["text"] == [b"a", b"\xff", "\u00e9".encode()] and p["index"] == 3
    assert [list(r) for r in p["run"]] == [[1, 1, 1], [1, 0, 1]] and [list(r) for r in p["cell"]["gate"]] == [[1, 2, 3], [4, 5, 6]]
    assert p["cell_kind"] == {"expert": "category"} and p["inferred"] == ["run"] and list(p["nll"])[1:] == [1, 2]
    assert [e["text"] for e in d.events] == ["warm", "main", "text"] and d.events[2]["level"] == "warn"
    assert d.evaluations[0]["values"]["loss"] == 1.25 and list(d.samples[0]["columns"]["nll"]) == [.5, .25, .125]
    assert d.head["config"]["lr"] == "0.001" and d.head["project"] == "p" and d.end["status"] == "done"
    assert set(d.damage.values()) == {0}


@test
def numpy_and_pandas_see_the_same_values():
    python = needs("numpy", "pandas")
    path = write_all("a")
    out = script("""
import sys, depthscope as ds, numpy as np
d = ds.read(sys.argv[1])
assert isinstance(d["loss"], np.ndarray) and d["loss"].dtype == np.float64 and d["loss"][3] == 0.1 + 0.2
assert d.probes[0]["cell"]["gate"].shape == (2, 3) and d.layers["layer_grad_norm"].value.shape == (5, 2)
f = d.frame()
print(f.index.name, f["loss"].loc[5], list(f.columns)[:2])
""", path, python=python)
    assert out == "step 0.25 ['time', 'loss']\n", out


def cut(path, n):
    with open(path, "r+b") as f:
        f.truncate(n)


@test
def a_log_cut_at_any_byte_reads_up_to_the_cut():
    with ds.init(name="a") as r:
        for i in range(3):
            r.log({"loss": i})
    path = "runs/a/log.mp"
    whole = open(path, "rb").read()
    ends = []
    with open(path, "rb") as f:
        ends = [x.offset + x.length for x in _log.Scan(f)]
    for n in range(len(whole) + 1):
        with open("cut.mp", "wb") as f:
            f.write(whole[:n])
        d = ds.read("cut.mp")
        good = [e for e in ends if e <= n]
        assert len(d.metrics["loss"].value if "loss" in d.metrics else []) == max(0, min(3, len(good) - 1)), n
        assert d.damage["tail"] == n - (good[-1] if good else 0) and d.damage["gaps"] == 0, (n, d.damage)
        if n % 7 == 0:
            log = _log.LogWriter("cut.mp")
            assert log.offset == (good[-1] if good else 0) and log.seq == len(good) and os.path.getsize("cut.mp") == log.offset, n
            log.append({"kind": "metric", "step": 9, "time": 1.0, "loss": 9})
            log.close()
            assert records("cut.mp")[-1]["loss"] == 9 and len(records("cut.mp")) == len(good) + 1


@test
def damage_is_a_gap_for_both_readers():
    with ds.init(name="a") as r:
        for i in range(20):
            r.log({"loss": i})
    path = "runs/a/log.mp"
    whole = bytearray(open(path, "rb").read())
    rng = random.Random(3)
    for _ in range(40):
        raw = bytearray(whole)
        for _ in range(rng.randrange(1, 5)):
            raw[rng.randrange(len(raw) - 100)] ^= 1 << rng.randrange(8)
        with open(path, "wb") as f:
            f.write(raw)
        mine, theirs = ds.read(path), run_json("inspect", path)
        series = {s["name"]: s["points"] for s in theirs["series"]}
        assert len(mine.metrics["loss"].value) == series["loss"] and mine.damage["gaps"] == theirs["damage"]["gaps"], (mine.damage, theirs)
        assert mine.damage["lost"] == theirs["damage"]["lost"], (mine.damage, theirs["damage"])


@test
def repeated_and_missing_records_are_counted_as_the_c_program_counts_them():
    with ds.init(name="a") as r:
        for i in range(5):
            r.log({"loss": i})
    path = "runs/a/log.mp"
    whole = open(path, "rb").read()
    with open(path, "rb") as f:
        at = [(x.offset, x.offset + x.length) for x in _log.Scan(f)]
    part = [whole[a:b] for a, b in at]
    for order, loss in (([0, 1, 2, 2, 3, 4, 5, 6], [0, 1, 2, 3, 4]), ([0, 1, 4, 5, 6], [0, 3, 4]), ([0, 3, 1, 2, 4, 6], [2, 3])):
        with open(path, "wb") as f:
            f.write(b"".join(part[i] for i in order))
        d, theirs = ds.read(path), run_json("inspect", path)["damage"]
        assert list(d["loss"]) == loss, (order, list(d["loss"]))
        assert {k: d.damage[k] for k in ("lost", "repeated")} == {k: theirs[k] for k in ("lost", "repeated")}, (order, d.damage, theirs)


def strange(rng, depth=0):
    """A value that no writer means."""
    pick = rng.randrange(14)
    if pick < 8 or depth > 2:
        return rng.choice([None, True, -1, 0, 3, 2**63, 2**64 - 1, -2**63, 1.5, math.nan, math.inf, 1e300, "NaN", "x", "", b"", b"\0" * 7, b"\0" * 8, b"\1" * 24])
    if pick < 11:
        return [strange(rng, depth + 1) for _ in range(rng.randrange(4))]
    return {rng.choice(["gate", "", "x" * 100, "name"]): strange(rng, depth + 1) for _ in range(rng.randrange(3))}


KEYS = ("step time loss index layers ids text run depth nll cell token lens_k lens_p lens_id rows cols value layer name n column task "
        "routing level status resume layer_offset run_id config commands format").split()


@test
def records_of_strange_values_are_read_or_counted():
    rng = random.Random(5)
    for round in range(60):
        raw = b""
        for seq in range(1, 30):
            body = {k: strange(rng) for k in rng.sample(KEYS, 6)}
            body["kind"] = rng.choice(["head", "metric", "layer", "matrix", "probe", "eval", "sample", "event", "end", "other", 3])
            body.update(step=seq if rng.randrange(3) else strange(rng), time=1.0 if rng.randrange(3) else strange(rng))
            raw += _log.frame(seq, _msgpack.pack(body))
        with open("log.mp", "wb") as f:
            f.write(raw)
        d = ds.read("log.mp", superseded=round % 2 == 0)
        assert d.damage["gaps"] == d.damage["tail"] == 0, d.damage
        _log.LogWriter("log.mp").close()
        assert os.path.getsize("log.mp") == len(raw)


@test
def random_bytes_are_refused_or_skipped():
    rng = random.Random(6)
    for n in (1, 5, 17, 18, 19, 300, 5000):
        for fill in (b"\xc9", b"\xc9\0\0\0\x20\x44", b"\xc9\0\xff\xff\xff\x44", None):
            data = (fill * n)[:n] if fill else bytes(rng.randrange(256) for _ in range(n))
            with open("log.mp", "wb") as f:
                f.write(data)
            try:
                assert list(ds.read("log.mp")["step"]) == []
            except ValueError as x:
                assert "not a record stream" in str(x), x


@test
def zeros_after_a_power_failure_are_the_end():
    with ds.init(name="a") as r:
        r.log({"loss": 1})
    size = os.path.getsize("runs/a/log.mp")
    with open("runs/a/log.mp", "ab") as f:
        f.write(b"\0" * 5000)
    assert ds.read("runs/a").damage["tail"] == run_json("inspect", "runs/a/log.mp")["damage"]["tail"] == 0
    assert "corrupt" not in run("inspect", "runs/a/log.mp")
    with ds.init(name="a", resume=True) as r:
        r.log({"loss": 2})
    assert list(ds.read("runs/a")["loss"]) == [1, 2] and os.path.getsize("runs/a/log.mp") < size + 2000
    assert os.listdir("runs/a") and not [x for x in os.listdir("runs/a") if "broken" in x]


@test
def corrupt_bytes_at_the_end_are_kept_when_a_writer_cuts_them_off():
    with ds.init(name="a") as r:
        r.log({"loss": 1})
    size = os.path.getsize("runs/a/log.mp")
    with open("runs/a/log.mp", "ab") as f:
        f.write(b"garbage" * 50)
    script("import depthscope as ds; ds.init(name='a', resume='must').finish()")
    assert open("runs/a/log.mp.broken-%d" % size, "rb").read() == b"garbage" * 50
    assert ds.read("runs/a").damage == {"gaps": 0, "bytes": 0, "lost": 0, "repeated": 0, "invalid": 0, "tail": 0}
    with open("text.mp", "w") as f:
        f.write("no record stream at all, and longer than one frame's head")
    for f in (lambda: ds.read("text.mp"), lambda: _log.LogWriter("text.mp")):
        try:
            f()
        except (ValueError, OSError) as x:
            assert "not a record stream" in str(x), x
        else:
            raise AssertionError("a text was taken for a log")


WRITER = """
import depthscope as ds, sys, time
r = ds.init(name="a", resume="allow")
print("ready", flush=True)
i = 0
while True:
    r.log({"loss": i}, step=i)
    r.probe(ids=[1] * 50, run=[[1] * 50] * 8, cell={"gate": [[.5] * 50] * 8})
    i += 1
"""


@test
def a_killed_writer_leaves_a_readable_log():
    rng = random.Random(11)
    last = 0
    for i in range(6):
        p = start(WRITER)
        assert p.stdout.readline() == b"ready\n", p.stderr.read()
        time.sleep(rng.random() * 0.3)
        for _ in range(2000 if i == 5 else 0):  # the last one gets far, however slow the machine
            if len(ds.read("runs/a")["loss"]) > last + 10:
                break
            time.sleep(0.01)
        p.send_signal(signal.SIGKILL)
        p.communicate()
        d = ds.read("runs/a")
        assert {k: v for k, v in d.damage.items() if k != "tail"} == {"gaps": 0, "bytes": 0, "lost": 0, "repeated": 0, "invalid": 0}, d.damage
        assert len(set(x["run_id"] for x in records("runs/a/log.mp") if x["kind"] == "head")) == 1
        got = run_json("inspect", "runs/a")
        assert got["damage"]["gaps"] == 0 and got["damage"]["repeated"] == 0 and got["state"] in ("live", "silent"), got
        last = max(last, len(d["loss"]))
    assert last > 10


@test
def a_second_writer_is_refused_and_named():
    r = ds.init(name="a")
    try:
        script("import depthscope as ds; ds.init(name='a', resume=True)", code=1)
        assert "is being written by process %d" % os.getpid() in script.err or "another process" in script.err, script.err
        assert run_json("inspect", "runs/a")["state"] == "live"
    finally:
        r.finish()
    assert run_json("inspect", "runs/a")["state"] == "done"


@test
def a_full_disk_keeps_records_in_memory():
    size = 1 << 16
    out = script("""
import resource, signal, depthscope as ds, sys
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
r = ds.init(name="a")
resource.setrlimit(resource.RLIMIT_FSIZE, (%d, resource.RLIM_INFINITY))
for i in range(1000):
    r.log({"loss": i, "text": i})
r.flush()
assert ds.read("runs/a").damage["tail"] == 0
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
r.finish()
print(r.dropped, len(ds.read("runs/a")["loss"]))
""" % size, code=0)
    assert out == "{} 1000\n", out


@test
def what_the_network_lost_of_a_log_is_not_filled_with_zeros():
    out = script("""
import os, depthscope as ds
r = ds.init(name="a")
for i in range(100):
    r.log({"loss": i})
r.flush()
path = "runs/a/log.mp"
os.truncate(path, os.path.getsize(path) // 2)  # a network file system could not store it
write, short = os.write, [10]
os.write = lambda fd, data: write(fd, data[:short.pop()] if short else data)
for i in range(100, 120):
    r.log({"loss": i})
r.flush()
os.write = write
r.finish()
with open(path, "rb") as f:
    print(short, bytes(16) in f.read(), ds.read("runs/a")["loss"][-1])
""", code=0)
    assert out == "[] False 119.0\n", out


t.main(fresh=True)
