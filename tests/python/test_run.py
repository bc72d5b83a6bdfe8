"""A run as a training loop calls it: names, steps, resume, ranks, the queue, forks, the end of the process."""
import math
import os
import sys
import threading
import time
import types
import warnings

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from kit import SLOW, needs, script, start, wait_for  # noqa: E402
import t  # noqa: E402
from t import run_json, test  # noqa: E402

import depthscope as ds  # noqa: E402
from depthscope import _log, _run  # noqa: E402


def raises(kind, part, f, *args, **kw):
    try:
        f(*args, **kw)
    except kind as x:
        assert part in str(x), "%r lacks %r" % (str(x), part)
        return
    raise AssertionError("no %s" % kind.__name__)


def records(path):
    with open(path, "rb") as f:
        return [x.body for x in _log.Scan(f) if x.body is not None]


def steps(name, metric="loss"):
    return [(int(s), v) for s, v in zip(ds.read("runs/" + name).metrics[metric].step, ds.read("runs/" + name).metrics[metric].value)]


@test
def names_are_reserved_and_checked():
    a, b, c = ds.init(), ds.init(), ds.init(project="my moe!")
    assert (a.name, b.name, c.name) == ("run-1", "run-2", "my-moe-1") and os.path.isdir("runs/my-moe-1")
    for r in (a, b, c):
        r.finish()
    for name in ("", ".x", "-x", "a/b", "x" * 65, "a b"):
        raises(ValueError, "expected 1 to 64", ds.init, name=name)
    ds.init(name="a", dir="elsewhere/deep").finish()
    assert os.path.exists("elsewhere/deep/a/log.mp")


@test
def steps_count_by_themselves_and_follow_what_is_given():
    with ds.init(name="a") as r:
        assert r.step == -1
        r.log({"loss": 1})
        r.log({"loss": 2})
        r.log({"early": 1}, commit=False)
        r.log({"loss": 3})
        r.log({"loss": 4}, step=10)
        r.log({"lr": 1}, step=10)
        r.log({"loss": 5})
        assert r.step == 11
        r.layers({"x": [1, 2]})
    assert steps("a") == [(0, 1), (1, 2), (2, 3), (10, 4), (11, 5)] and steps("a", "early") == [(2, 1)] and steps("a", "lr") == [(10, 1)]
    assert list(ds.read("runs/a").layers["x"].step) == [11]


@test
def a_resume_continues_or_supersedes():
    with ds.init(name="a", config={"lr": "1"}) as r:
        for i in range(10):
            r.log({"loss": i})
    raises(FileExistsError, "the run exists", ds.init, name="a")
    raises(FileExistsError, "the run exists", ds.init, name="a", resume="never")
    raises(FileNotFoundError, "no run to resume", ds.init, name="b", resume="must")
    assert not os.path.exists("runs/b")
    raises(ValueError, "resume", ds.init, name="b", resume="maybe")
    with ds.init(name="a", resume="allow") as r:
        assert r.step == 9 and r.run_id == records("runs/a/log.mp")[0]["run_id"]
        r.log({"loss": 10})
    with ds.init(name="a", resume="must", step=5) as r:
        r.log({"loss": 100})
    assert steps("a") == [(i, i) for i in range(6)] + [(6, 100)]
    assert len(ds.read("runs/a", superseded=True).metrics["loss"].value) == 12
    heads = [x for x in records("runs/a/log.mp") if x["kind"] == "head"]
    assert [h.get("resume", False) for h in heads] == [False, True, True] and heads[2]["step"] == 5
    got = run_json("inspect", "runs/a")
    assert got["step"] == 6 and got["damage"]["repeated"] == 0
    assert open("runs/a/config.yaml").read() == 'lr: "1"\n'


@test
def a_resume_continues_at_the_last_step_that_is_not_superseded():
    with ds.init(name="a", system_every=0) as r:
        for i in range(10):
            r.log({"loss": i})
    with ds.init(name="a", resume="allow", step=4, system_every=0) as r:
        r.log({"loss": 50})
        r.log({"loss": 60})
    for last in (6, 7):
        with ds.init(name="a", resume="allow", system_every=0) as r:
            assert r.step == last, r.step
            r.log({"loss": 10 * last})
    assert [s for s, _ in steps("a")] == list(range(9))


@test
def a_resume_finds_the_last_step_behind_many_other_records():
    with ds.init(name="a", system_every=0) as r:
        for i in range(300):
            r.log({"loss": i})
        for i in range(300):
            r.event("x", str(i))
    with ds.init(name="a", resume="allow", system_every=0) as r:
        assert r.step == 299, r.step
        r.log({"loss": 300})
    assert steps("a") == [(i, i) for i in range(301)]
    w = _log.LogWriter("other.mp")  # of another writer, whose kind is not first
    for i in range(300):
        w.append({"step": i, "time": 0.0, **({"kind": "metric", "loss": 1.0} if i < 20 else {"kind": "event", "name": "x"})})
    w.close()
    w = _log.LogWriter("other.mp")
    w.close()
    assert (w.step, w.seq) == (19, 300), (w.step, w.seq)


@test
def a_resume_keeps_the_settings_and_adds_to_them():
    def config():
        with open("runs/a/config.yaml", encoding="utf-8") as f:
            text = f.read()
        with ds.init(name="a", resume="allow") as r:
            assert text == "".join('%s: "%s"\n' % x for x in sorted(r.config.items())), (text, r.config)
        return ds.read("runs/a").head["config"]

    with ds.init(name="a", config={"lr": 1, "d": 2}) as r:
        r.log({"loss": 1})
    with ds.init(name="a", resume="allow") as r:
        r.configure({"late": 3})
        r.log({"loss": 2})
    assert config() == {"d": "2", "late": "3", "lr": "1"}
    ds.init(name="a", resume="allow", config={"lr": 4}).finish()
    assert config() == {"d": "2", "late": "3", "lr": "4"}


@test
def steps_that_go_back_supersede_without_a_head():
    with ds.init(name="a") as r:
        for step in (0, 1, 2, 3, 1, 2):
            r.log({"loss": step, "lr": 1} if step else {"loss": 0}, step=step)
            r.layers({"x": [step]})
    assert [s for s, _ in steps("a")] == [0, 1, 2] and list(ds.read("runs/a").layers["x"].step) == [0, 1, 2]
    assert [int(s) for s in ds.read("runs/a", superseded=True).metrics["loss"].step] == [0, 1, 2, 3, 1, 2]


@test
def a_resume_head_supersedes_what_is_never_logged_again():
    with ds.init(name="a") as r:
        for step in range(4):
            r.log({"loss": step, "other": step})
            r.layers({"x": [step]})
            r.matrix("m", [[step]])
            r.probe(ids=[step], run=[[1]])
    with ds.init(name="a", resume="must", step=1) as r:
        r.log({"loss": 9})
        r.probe(ids=[9], run=[[1]])
    d = ds.read("runs/a")
    assert list(d["other"])[:2] == [0, 1] and list(d.metrics["other"].step) == [0, 1] and list(d.metrics["loss"].step) == [0, 1, 2]
    assert list(d.layers["x"].step) == [0, 1] and [m[0][0] for m in d.matrices["m"].value] == [0, 1]
    assert [(p["step"], p["ids"]) for p in d.probes] == [(0, [0]), (1, [1]), (2, [9])]
    assert [p["step"] for p in ds.read("runs/a", superseded=True).probes] == [0, 1, 2, 3, 2]


@test
def a_second_matrix_of_a_step_replaces_the_first():
    with ds.init(name="a") as r:
        for value in (1, 2):
            r.matrix("m", [[value]], step=3)
    m = ds.read("runs/a").matrices["m"]
    assert list(m.step) == [3] and m.value[0][0][0] == 2


@test
def values_of_every_shape_are_named_and_numbered():
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        with ds.init(name="a") as r:
            for _ in range(3):
                r.log({"a": {"b": {"c": 1}, "d": True}, "none": None, "list": [1, 2], "time": 5, "n" * 70: 1, "n" * 69 + "m": 2,
                       "\u00e9" * 40: 3, "big": 2**70, "text": "same"})
    d = ds.read("runs/a")
    assert d["a/b/c"][0] == 1 and d["a/d"][0] == 1 and d["time_"][0] == 5 and "none" not in d and "list" not in d
    names = [k for k in d if k.startswith("nnn")]
    assert len(names) == 2 and all(len(k.encode()) <= 63 for k in d), list(d)
    assert [e["name"] for e in d.events if e["name"] != "dropped"] == ["text"] and r.dropped["value"] == 3
    texts = [str(w.message) for w in told]
    assert len([x for x in texts if "'list'" in x]) == 1 and len([x for x in texts if "'time'" in x]) == 1, texts
    raises(TypeError, "expected a dict", ds.init(name="b").log, 3)


@test
def an_integer_too_large_for_the_format_costs_its_record_and_no_more():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with ds.init(name="a") as r:
            r.log({"loss": 1, "big": 2**70})
            r.log({"loss": 2, "huge": 10**400, "low": -10**400})
    assert steps("a") == [(0, 1), (1, 2)] and steps("a", "big") == [(0, float(2**70))] and r.dropped == {}
    assert "seed" not in run_json("inspect", "runs/a"), "no seed was logged"
    assert steps("a", "huge") == [(1, math.inf)] and steps("a", "low") == [(1, -math.inf)]


@test
def an_alert_is_an_event_that_the_program_knows():
    with ds.init(name="a") as r:
        r.log({"loss": 1})
        r.alert("the data loader repeats itself", step=3)
        r.alert("loss 9, above 4", rule="loss", level="error", value=9)
        r.alert("loss 3", rule="loss", level="info", over=True)
        found = run_json("alerts", "runs/a")  # while it lives
    d = ds.read("runs/a")
    assert [(e["rule"], e["level"], e["over"]) for e in d.events if e["name"] == "alert"] == [
        ("other", "warn", False), ("loss", "error", False), ("loss", "info", True)], d.events
    assert [e.get("value") for e in d.events if e["name"] == "alert"] == [None, 9.0, None]
    got = run_json("alerts", "runs/a")
    assert [(x["rule"], x["step"], x["over"], x["text"]) for x in got][0] == ("other", 3, False, "the data loader repeats itself")
    assert len(got) == 3 and len(found) <= 3


@test
def bad_shapes_are_errors_of_the_caller():
    with ds.init(name="a") as r:
        raises(ValueError, "expected rows x cols", r.matrix, "m", [1, 2])
        raises(ValueError, "expected rows x cols", r.matrix, "m", [[1] * 4097])
        raises(ValueError, "2 layers for 1 rows", r.matrix, "m", [[1]], layer=[1, 2])
        raises(ValueError, "number of layers", r.probe, ids=[1])
        raises(ValueError, "vectors of one length", r.sample, "s", {"a": [1], "b": [1, 2]})
        raises(ValueError, "step -1: must be 0", r.log, {"loss": 1}, step=-1)  # readers would count it as invalid
        raises(ValueError, "must be 0 to 2^63 - 1", r.layers, {"x": [1]}, step=1 << 63)
        raises(ValueError, "event level", r.event, "x", level="loud")
        raises(ValueError, "alert level", r.alert, "x", level="loud")
        raises(ValueError, "status", r.finish, "fine")


@test
def what_readers_would_leave_out_is_a_warning():
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        with ds.init(name="a", layers=2) as r:
            r.layers({"norm": [1, 2], "with_embedding": [0, 1, 2]})
            r.probe(ids=[1, 2, 3], run=[[1, 0], [1, 1]])
            r.probe(ids=[1, 2], run=[[1, 0], [1, 1]], nll=[1])
            r.probe(ids=[1, 2], run=[[1, 0], [1, 1]], nll=[1, 2], token={"class": [0, 0]}, cell={"x": [[1, 2], [3, 4]]})
    text = " ".join(str(w.message) for w in seen)
    for part in ("'with_embedding' has 3 values", "probe not written: run has 4 values, expected 6"):
        assert part in text, (part, text)
    assert r.dropped == {"probe": 2} and len(ds.read("runs/a").probes) == 1


@test
def what_becomes_known_later_is_in_a_second_head():
    with ds.init(name="a", layers=2) as r:
        r.log({"loss": 1})
        r.describe(vocab=100, layers=2)
        r.describe(params=7)
        r.log({"loss": 2})
        r.describe(vocab=100)
        r.log({"loss": 3})
    heads = [x for x in records("runs/a/log.mp") if x["kind"] == "head"]
    assert len(heads) == 2 and heads[1]["vocab"] == 100 and heads[1]["params"] == 7 and heads[1]["layers"] == 2
    assert steps("a") == [(0, 1), (1, 2), (2, 3)] and run_json("inspect", "runs/a")["params"] == 7


@test
def a_later_head_supersedes_nothing_that_is_ahead_of_the_metrics():
    with ds.init(name="a", layers=2) as r:
        r.log({"loss": 1}, step=90)
        r.layers({"norm": [1, 2]}, step=95)
        r.matrix("expert_load", [[1, 2]], step=95)
        r.probe(ids=[1], run=[[1], [1]], step=95)
        r.log({"early": 1}, commit=False)
        r.configure({"late": 1})
        r.event("note")
        r.log({"loss": 2}, step=100)
    d = ds.read("runs/a")
    assert list(d.layers["norm"].step) == [95] and list(d.matrices["expert_load"].step) == [95] and list(d.metrics["early"].step) == [91]
    assert [x["step"] for x in records("runs/a/log.mp") if x["kind"] == "head"] == [0, 95]


class Held:
    """A run whose writer thread stands still."""

    def __init__(self, name="a"):
        self.run = ds.init(name=name)
        self.run.flush()
        self.lock = self.run._writing

    def __enter__(self):
        self.lock.acquire()
        return self.run

    def __exit__(self, *_):
        self.lock.release()


@test
def a_full_queue_drops_probes_and_counts_them():
    held = Held()
    with held as r:
        for i in range(_run.BULK_MAX + 10):
            r.probe(index=i, ids=[1], run=[[1]])
        r.matrix("m", [[1]])
        n = _run.QUEUE_MAX - _run.BULK_MAX // 2
        for i in range(n):  # takes the places of half the probes
            r.log({"loss": i})
        dropped = dict(r.dropped)
    r.finish()
    assert dropped["matrix"] == 1 and 10 + _run.BULK_MAX // 2 <= dropped["probe"] < _run.BULK_MAX + 10, dropped
    d = ds.read("runs/a")
    assert list(d["loss"]) == list(range(n)), len(d["loss"])
    assert len(d.probes) == _run.BULK_MAX + 10 - r.dropped["probe"]
    told = [e["text"] for e in d.events if e["name"] == "dropped"]
    assert told and told[-1] == "matrix 1, probe %d" % r.dropped["probe"], (told, r.dropped)


@test
def metrics_are_never_dropped():
    held = Held()
    n = 2 * _run.QUEUE_MAX
    with held as r:
        done = threading.Thread(target=lambda: [r.log({"loss": i}) for i in range(n)])
        done.start()
        wait_for(lambda: len(r._queue) > _run.QUEUE_MAX, what="a full queue")
        time.sleep(0.05)
        assert done.is_alive() and len(r._queue) <= _run.QUEUE_MAX + 1  # it waits to write itself
    done.join()
    r.finish()
    assert steps("a") == [(i, i) for i in range(n)] and r.dropped == {}


@test
def a_call_costs_far_less_than_a_step():
    values = {"m%d" % i: i / 7 for i in range(10)}
    took = []
    with ds.init(name="a") as r:
        for _ in range(3000):
            began = time.perf_counter()
            r.gate(0, (True, False))
            r.log(values)
            took.append(time.perf_counter() - began)
    took.sort()
    assert took[len(took) // 2] < 1e-3 * SLOW, "median %.3f ms" % (took[len(took) // 2] * 1e3)  # 0.5 % of a step of 200 ms


@test
def records_of_several_threads_are_whole():
    with ds.init(name="a") as r:
        def work(k):
            for i in range(200):
                r.log({"m%d" % k: i}, step=i)
        threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
        for x in threads:
            x.start()
        for x in threads:
            x.join()
    d = ds.read("runs/a", superseded=True)
    assert all(sorted(d.metrics["m%d" % k].value) == list(range(200)) for k in range(4)) and set(d.damage.values()) == {0}


@test
def other_ranks_do_nothing():
    text = "import depthscope as ds; r = ds.init(name='a'); r.log({'loss': 1}); r.gate(0, [1]); r.probe(); r.poll(); print(r.is_active); r.finish()"
    for name in ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK"):
        assert script(text, **{name: "1"}) == "False\n", name
    assert not os.path.exists("runs")
    script("import depthscope as ds; r = ds.init(name='a', layers=1); r.log({'loss': 1}); r.finish()", RANK="0", SLURM_PROCID="3", WORLD_SIZE="4")
    assert steps("a") == [(0, 1)] and records("runs/a/log.mp")[0]["world_size"] == 4


@test
def pipeline_stages_are_one_run_for_the_reader():
    text = """
import depthscope as ds, sys
s = int(sys.argv[1])
r = ds.init(name="a", stage=s, layers=2, layer_offset=2 * s)
for i in range(3):
    r.log({"loss": i} if s == 1 else {"tokens": i})
    r.layers({"norm": [s, s + .5]})
    r.matrix("expert_load", [[1 + s, 2]])
r.finish()
"""
    later = start(text, "1", RANK="1")
    time.sleep(0.2)
    first = start(text, "0", RANK="0")
    for p in (later, first):
        assert p.wait(60) == 0, p.stderr.read().decode()
    d = ds.read("runs/a")
    assert d.head["layers"] == 4 and list(d["loss"]) == [0, 1, 2] and list(d["tokens"]) == [0, 1, 2]
    assert [list(v) for v in d.layers["norm"].value] == [[0, .5, 1, 1.5]] * 3
    assert [[list(r) for r in m] for m in d.matrices["expert_load"].value] == [[[1, 2], [2, 2]]] * 3
    assert d.matrices["expert_load"].layer[0] == [0, 2]
    ids = {x["run_id"] for name in ("log.mp", "log.1.mp") for x in records("runs/a/" + name) if x["kind"] == "head"}
    assert len(ids) == 1 and run_json("inspect", "runs/a")["state"] == "done"
    raises(ValueError, "name is required", ds.init, stage=1)


END = """
import depthscope as ds, os, sys
r = ds.init(name="a")
r.log({"loss": 1})
%s
"""


@test
def the_end_of_the_process_is_in_the_log():
    for line, code, status, part in (
            ("", 0, "done", ""), ("sys.exit(0)", 0, "done", ""), ("sys.exit(3)", 3, "failed", "exit status 3"),
            ("raise ValueError('too bad')", 1, "failed", "ValueError: too bad"), ("raise KeyboardInterrupt", None, "stopped", "interrupted"),
            ("exit(3)", 3, "failed", "exit status 3"), ("quit()", 0, "done", ""), ("exit(code='why')", 1, "failed", "exit status why"),
            ("import argparse\ntry: argparse.ArgumentParser().parse_args(['--bad'])\nexcept SystemExit: pass", 0, "done", ""),
            ("try: sys.exit(2)\nexcept SystemExit as x: kept = x.code\nr.log({'loss': 2})", 0, "done", ""),
            ("try: sys.exit(2)\nexcept SystemExit: raise", 2, "failed", "exit status 2"),
            ("try: sys.exit(2)\nfinally: r.log({'loss': 2})", 2, "failed", "exit status 2"),
            ("def f():\n    try: exit(2)\n    except SystemExit: pass\nf()\nsys.exit(4)", 4, "failed", "exit status 4"),
            ("with r: raise SystemExit(5)", 5, "failed", "exit status 5"),
            ("r.finish('failed', 'nan')", 0, "failed", "nan"),
            ("with r: raise RuntimeError('inside')", 1, "failed", "RuntimeError: inside"),
            ("def f():\n    with r:\n        1 / 0\ntry:\n    f()\nexcept ZeroDivisionError: pass", 0, "failed", "ZeroDivisionError")):
        script("import shutil; shutil.rmtree('runs', ignore_errors=True)")
        script(END % line, code=code)
        end = ds.read("runs/a").end
        assert end["status"] == status and part in end.get("text", ""), (line, end)
        assert len([x for x in records("runs/a/log.mp") if x["kind"] == "end"]) == 1, line
    assert "Traceback" in (script(END % "raise ValueError('x')", code=1, DEPTHSCOPE_RUNS="other"), script.err)[1]


@test
def an_error_while_closing_leaves_the_end_record():
    script(END % """
def broken():
    raise RuntimeError("the device is lost")
r._closing.append(broken)
r.gate(0, [1])
r._put_gates = lambda step: broken()
raise ValueError("too bad")
""", code=1)
    d = ds.read("runs/a")
    assert (d.end["status"], d.end["text"]) == ("failed", "ValueError: too bad"), d.end
    assert [(e["name"], e["text"]) for e in d.events] == [("finish", "RuntimeError: the device is lost")] * 2, d.events


@test
def forked_children_leave_the_run_alone():
    script("""
import depthscope as ds, os, time, sys
r = ds.init(name="a", control=["stop"])
r.log({"loss": 1})
pid = os.fork()
if pid == 0:
    assert not r.is_active
    r.log({"loss": 666}); r.event("x"); r.finish("failed")
    time.sleep(1.0)  # outlives the parent: it must not keep the lock
    sys.exit(0)
r.log({"loss": 2})
r.finish()
again = ds.init(name="a", resume="must")
again.log({"loss": 3})
again.finish()
assert not os.path.exists("runs/a/control.sock")
os.waitpid(pid, 0)
""")
    assert steps("a") == [(0, 1), (1, 2), (2, 3)]
    assert [x["status"] for x in records("runs/a/log.mp") if x["kind"] == "end"] == ["done", "done"]


@test
def a_run_that_is_finished_is_quiet():
    r = ds.init(name="a")
    r.finish()
    size = os.path.getsize("runs/a/log.mp")
    r.log({"loss": 1})
    r.layers({"a": [1]})
    r.gate(0, [1])
    r.event("x")
    r.alert("x")
    r.matrix("m", [[1]])
    r.probe()
    r.describe(layers=3)
    r.on("stop")
    r.finish("failed")
    assert os.path.getsize("runs/a/log.mp") == size and not r.is_active and not os.path.exists("runs/a/control.sock")


@test
def configurations_of_every_kind_are_flat_text():
    import argparse
    import dataclasses

    @dataclasses.dataclass
    class Inner:
        dim: int = 4

    @dataclasses.dataclass
    class Outer:
        inner: Inner
        flag: bool = True
        nothing: object = None
        sizes: tuple = (1, 2)

    ds.init(name="a", config=Outer(Inner())).finish()
    assert ds.read("runs/a").head["config"] == {"inner.dim": "4", "flag": "true", "nothing": "null", "sizes": "[1,2]"}
    ds.init(name="b", config=argparse.Namespace(lr=0.1, text="x: y # z\t\x1b")).finish()
    assert ds.read("runs/b").head["config"] == {"lr": "0.1", "text": "x: y # z\t\x1b"}
    ds.init(name="c", config={"a b/c": 1, "long": "x" * 2000, **{"k%d" % i: "v" * 500 for i in range(3000)}}).finish()
    got = ds.read("runs/c").head["config"]
    assert got["a_b_c"] == "1" and len(got["long"]) == 510 and os.path.getsize("runs/c/log.mp") < 1 << 20
    for name in "abc":
        assert run_json("inspect", "runs/" + name)["damage"]["invalid"] == 0
    raises(TypeError, "config", ds.init, name="d", config=3)
    inner = types.MappingProxyType({"dim": 4, "none": {}})  # a mapping that is not a dict, as those of omegaconf
    ds.init(name="e", config={"inner": inner, "optimizer": argparse.Namespace(lr=0.1)}).finish()
    assert ds.read("runs/e").head["config"] == {"inner.dim": "4", "inner.none": "{}", "optimizer.lr": "0.1"}


@test
def arrays_of_numpy_are_taken_as_they_are():
    python = needs("numpy")
    script("""
import depthscope as ds, numpy as np
a = np.arange(6, dtype=np.float64).reshape(2, 3)
with ds.init(name="a") as r:
    r.log({"f32": np.float32(.1), "i": np.int64(7), "b": np.bool_(True), "zero": np.array(3.5), "one": np.array([[2]])})
    r.layers({"x": np.array([.1, .2])})
    r.gate(0, np.array([True, False]), score=np.array([1, 3.]))
    r.matrix("m", a.T[::-1])
    r.probe(ids=np.array([1, 2, 3], dtype=np.int32), run=np.array([[1, 0, 1], [np.nan, 1, 1]]), cell={"v": a}, nll=np.array([np.nan, 1, 2]))
    r.log({"loss": 1})
d = ds.read("runs/a")
assert d["f32"][0] == float(np.float32(.1)) and d["i"][0] == 7 and d["b"][0] == 1 and d["zero"][0] == 3.5 and d["one"][0] == 2
assert (d.layers["x"].value[0] == [.1, .2]).all() and d.layers["gate_ratio"].value[0][0] == .5 and d.layers["gate_score"].value[0][0] == 2
assert (d.matrices["m"].value[0] == a.T[::-1]).all() and (d.probes[0]["cell"]["v"] == a).all() and d.probes[0]["ids"] == [1, 2, 3]
assert (d.probes[0]["run"] == [[1, 0, 1], [0, 1, 1]]).all()
""", python=python)
    assert run_json("inspect", "runs/a")["damage"]["invalid"] == 0


@test
def tensors_of_torch_are_detached_and_copied():
    python = needs("torch")
    script("""
import depthscope as ds, torch
with ds.init(name="a") as r:
    x = torch.tensor(2.0, requires_grad=True)
    r.log({"loss": x * 2, "half": torch.tensor(.5, dtype=torch.bfloat16), "i": torch.tensor([3])})
    with torch.no_grad():
        x.add_(100)
    r.layers({"x": torch.tensor([.5, .25], dtype=torch.float64, requires_grad=True)})
    m = torch.tensor([[1., 0.], [1., 1.]], requires_grad=True)
    r.gate(1, m > .5, score=m)
    r.gate(1, torch.zeros(4, dtype=torch.bool))
    r.matrix("m", torch.ones(2, 3, dtype=torch.bfloat16))
    r.probe(ids=torch.tensor([1, 2]), run=torch.ones(2, 2, dtype=torch.bool), cell={"v": torch.rand(2, 2, requires_grad=True)})
    r.log({"loss": 1, "none": torch.zeros((), device="meta")})
d = ds.read("runs/a")
assert list(d["loss"]) == [4, 1] and "none" not in d and d["half"][0] == .5 and d["i"][0] == 3
assert list(d.layers["x"].value[0]) == [.5, .25] and d.layers["gate_ratio"].value[0][1] == 3 / 8 and d.head["framework"].startswith("PyTorch")
assert d.matrices["m"].value[0].shape == (2, 3) and r.dropped == {"value": 1}, r.dropped
""", python=python)
    got = run_json("inspect", "runs/a")
    assert got["damage"]["invalid"] == 0 and got["state"] == "done"


@test
def device_tensors_are_copied_together_and_keep_their_values():
    python = needs("torch")
    script("""
import depthscope as ds, torch
from depthscope import _run, _values
_values.is_on_device = _values.is_tensor  # every tensor takes the way of a device's
_run._framework = lambda: {"gpu": "4 x G"} if starts else {}
starts = []
start = _values._start_copy
_values._start_copy = lambda tensors: (starts.append(len(tensors)), start(tensors))[1]
with ds.init(name="a") as r:
    x = torch.tensor(.1, dtype=torch.float64)
    r.log({"loss": x, "f": torch.tensor([.1]), "n": torch.tensor(2**40), "host": 7, "half": torch.tensor(.5, dtype=torch.bfloat16)})
    x.zero_()
    v = torch.tensor([.1, .2])
    r.layers({"v": v, "w": torch.tensor([[1., 2.]]), "host": [3, 4]})
    v.zero_()
    m = torch.ones(2, 3)
    r.gate(0, torch.tensor([True, False, False, False]), score=torch.tensor([1., 2.]))
    r.gate(2, torch.ones(4))
    r.log({"loss": torch.tensor(1.)})
    r.evaluation("val", {"loss": torch.tensor(2.), "per": torch.tensor([1., 2.])})
    r.log({"tokens": torch.tensor(2**30 + 1, dtype=torch.int32)})
assert starts == [4, 2, 1, 3, 2, 1], starts
d = ds.read("runs/a")
assert list(d.metrics["tokens"].value) == [2**30 + 1], d["tokens"]
assert list(d.metrics["loss"].value) == [.1, 1] and d["n"][0] == 2**40 and d["host"][0] == 7 and d["half"][0] == .5
assert d["f"][0] == torch.tensor(.1).item() and d.head["gpu"] == "4 x G"
assert [round(float(a), 6) for a in d.layers["v"].value[0]] == [.1, .2] and list(d.layers["w"].value[0]) == [1, 2]
g = [float(a) for a in d.layers["gate_ratio"].value[0]]
assert g[0] == .25 and g[1] != g[1] and g[2] == 1 and float(d.layers["gate_score"].value[0][0]) == 1.5
assert d.evaluations[0]["values"]["loss"] == 2 and list(d.evaluations[0]["values"]["per"]) == [1, 2] and r.dropped == {}
""", python=python)


@test
def importing_the_package_imports_nothing_else():
    out = script("import sys, depthscope; print([m for m in ('numpy', 'torch', 'pandas', 'msgpack', 'transformers') if m in sys.modules])",
                 python=needs())
    assert out == "[]\n", out


@test
def nan_and_infinity_are_floats():
    with ds.init(name="a") as r:
        r.log({"loss": math.nan, "x": math.inf, "y": -math.inf})
    body = next(x for x in records("runs/a/log.mp") if x["kind"] == "metric")
    assert math.isnan(body["loss"]) and body["x"] == math.inf and body["y"] == -math.inf


t.main(fresh=True)
