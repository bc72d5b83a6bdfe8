"""depthscope export: CSV, JSON lines and event files of any source, and that they open again.  DEPTHSCOPE names the program."""
import csv
import io
import json
import math
import os
import random
import shutil
import struct
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import t  # noqa: E402
from records import Log  # noqa: E402
from t import ROOT, Skip, refused, run, test  # noqa: E402

FIXTURE = os.path.join(ROOT, "tests", "screens", "training.mp")
NAN, INF = float("nan"), float("inf")
HOSTILE = 'a "quoted", name\nof \x1b[31mtwo lines'


def bits(x):
    return struct.pack(">d", x)


def table(path, *words):
    rows = list(csv.reader(io.StringIO(run("export", path, "--to", "csv", *words))))
    return rows[0], [[float(x) if x else None for x in r] for r in rows[1:]]


def lines(path):
    return [json.loads(x) for x in run("export", path, "--to", "jsonl").splitlines()]


def awkward(path="awkward.mp", n=400):
    """Values that a rounded number would not keep, gaps, NaN, and a metric at a few steps only."""
    rng, log, said = random.Random(1), Log(path), {}
    log.put("head", 0, format=1, run="awkward", layers=2)
    for i in range(n):
        keys = {"loss": rng.uniform(1, 10) ** rng.randint(-30, 30), "train/lr (x)": rng.random() / 3}
        if i % 7 == 0:
            keys[HOSTILE] = [NAN, INF, -INF, -0.0, 5e-324, 1.7976931348623157e308, 1e22, 123456789012345678.0][i // 7 % 8]
        log.put("metric", i * 3, time=1.7e9 + i, **keys)
        said[i * 3] = keys
    return said


@test
def every_name_that_runs_lists_opens():
    names = ["sub/deep/metrics.jsonl", "my \u00e9 run/metrics.jsonl", "-dash/metrics.jsonl"]
    for name in names:
        os.makedirs(os.path.dirname("runs/" + name))
        with open("runs/" + name, "w") as f:
            f.writelines('{"step": %d, "loss": %d.5}\n' % (i, 9 - i) for i in range(1, 4))
        os.utime("runs/" + name, ns=(0, 1700000000250000000))
    listed = json.loads(run("runs", "--json"))
    assert sorted(r["name"] for r in listed) == sorted(names) and {r["modified"] for r in listed} == {1700000000.25}, listed
    for name in names:
        assert run("export", "--to", "csv", "--", name).splitlines()[1:] == ["1,8.5", "2,7.5", "3,6.5"], name
        assert "step 3" in run("inspect", "--", name), name
    assert names[0] in run("complete", "export", "su")
    refused("no run or file", "export", "../runs/x", "--to", "csv", code=1)
    refused("no run or file", "export", "sub/../metrics.jsonl", "--to", "csv", code=1)
    shutil.rmtree("runs")


@test
def a_csv_row_has_the_exact_values_of_a_step():
    said = awkward()
    head, rows = table("awkward.mp")
    assert head == ["step", "loss", "train/lr (x)", HOSTILE], head
    assert [int(r[0]) for r in rows] == sorted(said)
    assert run("export", "awkward.mp", "--to", "csv", "-o", "-") == run("export", "awkward.mp", "--to", "csv") and not os.path.exists("-")
    for r in rows:
        want = said[int(r[0])]
        for name, got in zip(head[1:], r[1:]):
            assert (got is None) == (name not in want), (r, want)
            assert got is None or bits(got) == bits(want[name]) or got != got != want[name] != want[name], (name, got, want[name])
    text = run("export", "awkward.mp", "--to", "csv")
    assert "NaN" in text and "-Infinity" in text and "\r" not in text


@test
def jsonl_has_one_object_per_record_with_its_time():
    said = awkward()
    got = lines("awkward.mp")
    assert [x["step"] for x in got] == sorted(said) and all(x["time"] == 1.7e9 + x["step"] / 3 for x in got)
    for x in got:
        for name, value in said[x["step"]].items():
            assert bits(x[name]) == bits(value) or x[name] != x[name], (name, x[name], value)
        assert len(x) == 2 + len(said[x["step"]])


@test
def names_with_any_separator_open_again():
    name = {"mmlu|acc|5": 0.5, "a;b;c;d": 0.25, "tab\tand\ttab": 3, "0": 7, "1e5": 8, "x,y": 9}
    with open("names.jsonl", "w") as f:
        f.writelines(json.dumps({"step": i, **{k: v + i for k, v in name.items()}}) + "\n" for i in range(3))
    run("export", "names.jsonl", "--to", "csv", "-o", "names.csv")
    assert lines("names.csv") == [{"step": i, **{k: v + i for k, v in name.items()}} for i in range(3)]
    with open("names.csv") as f:  # any reader that looks for the separator
        assert csv.Sniffer().sniff(f.readline(), ",;|\t").delimiter == ","


@test
def superseded_points_are_left_out_and_the_newest_of_a_step_counts():
    log = Log("resumed/log.mp")
    log.put("head", 0, format=1, run="resumed", layers=2)
    for i in range(10):
        log.put("metric", i, loss=float(i))
        log.put("layer", i, gate_ratio=[0.5, float(i)])
    log.put("head", 5, format=1, run="resumed", layers=2, resume=True)
    for i in range(6, 9):
        log.put("metric", i, loss=100.0 + i)
        log.put("layer", i, gate_ratio=[0.25, float(i)])
    log.put("metric", 8, loss=999.0)
    log.put("metric", 8, lr=0.5)
    head, rows = table("resumed")
    assert head == ["step", "loss", "lr"] and rows == [[float(i), float(i), None] for i in range(6)] + [[6.0, 106.0, None], [7.0, 107.0, None], [8.0, 999.0, 0.5]], rows
    got = lines("resumed")
    layers = [x for x in got if "gate_ratio" in x]
    assert [x["step"] for x in layers] == list(range(9)) and [x["gate_ratio"][0] for x in layers] == [0.5] * 6 + [0.25] * 3, layers
    assert [x["loss"] for x in got if x["step"] == 8 and "loss" in x] == [108.0, 999.0], "each record is an object of its own"


@test
def matrices_are_rows_of_numbers():
    log = Log("experts.mp")
    for i in range(3):
        log.put("metric", i, loss=3.0 - i)
        log.put("matrix", i, name="expert_load", rows=2, cols=3, value=struct.pack("<6f", *[i + 0.5] * 5, 0.1))
    assert [x["expert_load"] for x in lines("experts.mp") if "expert_load" in x] == [[[i + 0.5] * 3, [i + 0.5, i + 0.5, 0.1]] for i in range(3)]


@test
def evaluations_are_objects_of_jsonl_only():
    log = Log("evaluated.mp")
    log.put("metric", 1, loss=3.0)
    log.put("eval", 1, task="val", routing="causal", loss=2.5, capacity=[1.0, 0.5])
    assert table("evaluated.mp") == (["step", "loss"], [[1.0, 3.0]])
    assert lines("evaluated.mp")[1] == {"step": 1, "eval": {"task": "val", "routing": "causal", "loss": 2.5, "capacity": [1, 0.5]}}


def opens_again(source, kind, file):
    run("export", source, "--to", kind, "-o", file)
    (head, rows), (names, back) = table(source), table(file)
    assert sorted(names) == sorted(head) and len(back) == len(rows), (kind, names)
    order = [names.index(x) for x in head]
    for a, b in zip(rows, back):
        assert repr(a) == repr([b[i] for i in order]), (kind, a, b)


@test
def what_is_exported_opens_again_bit_for_bit():
    awkward()
    opens_again("awkward.mp", "jsonl", "x.jsonl")
    opens_again("awkward.mp", "tfevents", "events.out.tfevents.1")
    opens_again(FIXTURE, "csv", "y.csv")
    opens_again(FIXTURE, "tfevents", "events.out.tfevents.2")
    layers = [x for x in lines("x.jsonl") if "gate_ratio" in x]
    run("export", FIXTURE, "--to", "jsonl", "-o", "z.jsonl")
    assert [x for x in lines("z.jsonl") if "gate_ratio" in x] == [x for x in lines(FIXTURE) if "gate_ratio" in x] != layers


@test
def a_pipe_is_exported_when_it_closes():
    with open(FIXTURE, "rb") as f:
        data = f.read()
    assert run("export", "-", "--to", "csv", data=data) == run("export", FIXTURE, "--to", "csv")
    whole = run("stream", FIXTURE, "--no-follow", raw=True)
    assert run("export", "-", "--to", "csv", data=whole) == run("export", FIXTURE, "--to", "csv")


@test
def the_format_follows_from_the_name_and_a_file_is_replaced_whole():
    run("export", FIXTURE, "-o", "by-name.csv")
    with open("by-name.csv") as f:
        assert f.read() == run("export", FIXTURE, "--to", "csv")
    run("export", FIXTURE, "-o", "events.out.tfevents.7")
    assert os.path.getsize("events.out.tfevents.7") > 1000 and not t.run.err
    run("export", FIXTURE, "--to", "tfevents", "-o", "curves")
    assert "tfevents in their name" in t.run.err
    assert not [x for x in os.listdir(".") if x.endswith(".tmp")]


@test
def refusals_are_one_line():
    log = Log("none.mp")
    log.put("head", 0, format=1, run="none")
    refused("missing argument RUN", "export", "--to", "csv")
    refused("missing --to", "export", FIXTURE)
    refused("--to xlsx: expected csv, jsonl or tfevents", "export", FIXTURE, "--to", "xlsx")
    refused("no run or file of this name", "export", "nowhere", "--to", "csv", code=1)
    refused("no metrics to export", "export", "none.mp", "--to", "csv", code=1)
    os.mkdir("folder")
    for folder in ("folder", "folder/"):
        refused(folder + " is a directory, expected a file name", "export", FIXTURE, "--to", "csv", "-o", folder, code=1)


@test
def what_could_not_be_read_is_said():
    with open("torn.jsonl", "w") as f:
        f.write('{"step":0,"loss":3}\n{"step":1,"lo\n{"step":2,"loss":2}\nKilled\n')
    assert table("torn.jsonl") == (["step", "loss"], [[0, 3], [2, 2]])
    assert t.run.err == "depthscope: 2 entries that could not be read left out\n", t.run.err
    assert "skipped: 2 entries that could not be read\n" in run("inspect", "torn.jsonl")
    with open("wide.jsonl", "w") as f:
        for i in range(5000):
            f.write('{"step":%d,"m%d":1}\n' % (i, i))
    out = run("inspect", "wide.jsonl")
    assert "skipped: 904 values of metrics beyond the first 4096\n" in out, out[:300]
    events = [x["text"] for x in map(json.loads, run("stream", "--json", "--no-follow", "wide.jsonl").splitlines())
              if x["kind"] == "event"]
    assert events == ["more than 4096 metrics: the rest is left out"], events
    run("export", "wide.jsonl", "--to", "csv")
    assert "904 values of metrics beyond the first 4096 are left out" in t.run.err, t.run.err


@test
def an_epoch_in_fractions_is_no_step():
    epochs = [0, 0.25, 0.5, 0.75, 1, 1.25]
    with open("epochs.csv", "w") as f:
        f.write("epoch,loss\n" + "".join("%g,%d\n" % (e, 9 - i) for i, e in enumerate(epochs)))
    with open("epochs.jsonl", "w") as f:
        f.write("".join('{"epoch":%g,"loss":%d}\n' % (e, 9 - i) for i, e in enumerate(epochs)))
    with open("whole.csv", "w") as f:
        f.write("epoch,loss\n1,3\n2,2\n")
    for path in "epochs.csv", "epochs.jsonl":
        name, rows = table(path)
        at = name.index("loss")
        assert [(r[0], r[at]) for r in rows] == [(i, 9 - i) for i in range(6)], (path, rows)
    assert table("whole.csv")[1] == [[1, 3], [2, 2]]


@test
def half_a_million_points_are_not_quadratic():
    def seconds(n):
        with open("large.csv", "w") as f:
            f.write("step,a,b,c,d\n" + "".join("%d,%r,%r,0.5,%d\n" % (i, i / 3, i / 7, i) for i in range(n)))
        began = time.monotonic()
        run("export", "large.csv", "--to", "jsonl", "-o", "large.jsonl")
        with open("large.jsonl") as f:
            assert sum(1 for _ in f) == n
        return time.monotonic() - began
    small, large = seconds(12000), seconds(120000)
    assert large < 60 * small + 5 * t.SLOW, "%.1f s for 12,000 rows, %.1f s for 120,000" % (small, large)


@test
def pandas_reads_the_same_numbers():
    try:
        import pandas
    except ImportError:
        raise Skip("pandas is not installed")
    awkward()
    head, rows = table("awkward.mp")
    frame_of = {"csv": pandas.read_csv(io.StringIO(run("export", "awkward.mp", "--to", "csv")), float_precision="round_trip"),
                "jsonl": pandas.DataFrame(lines("awkward.mp"))}
    for kind, f in frame_of.items():
        for i, name in enumerate(head):
            for a, b in zip(f[name], [r[i] for r in rows]):
                a = float(a)
                assert (math.isnan(a) and (b is None or math.isnan(b))) or a == b, (kind, name, a, b)


t.main(fresh=True)
