"""Scripts that follow a run: inspect --follow and --until, stream --json, logs through pipes.  DEPTHSCOPE names the program."""
import fcntl
import json
import os
import shutil
import struct
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import t  # noqa: E402
from records import Log  # noqa: E402
from t import PROGRAM, ROOT, SLOW, Skip, call, refused, run, test  # noqa: E402

FIXTURE = os.path.join(ROOT, "tests", "screens", "training.mp")
NAN, INF = float("nan"), float("inf")


def until(condition, path=FIXTURE, *words, **kw):
    """Exit status, the last line of standard output, standard error."""
    status, out, err = call("inspect", path, "--until", condition, *words, **kw)
    return status, (out.decode().splitlines() or [""])[-1], err


def holds(condition, path=FIXTURE, *words):
    status, line, err = until(condition, path, *words)
    assert status in (0, 1), (condition, err)
    return status == 0


# ---- conditions ----

@test
def a_condition_is_compared_with_the_newest_values():
    for yes in ("val_loss<2.4", "val_loss < 2.4", "step>=150", "step=150 and state=done", "step>=150 state=done", "lr<1 or lr>2", "loss<0 or step=150 and val_loss<3",
                "edp.target_ratio=0.7", "state!=failed", "age>1000", '"x"=1 or state="done"', "loss<0 and step>0 or state=done"):
        assert holds(yes), yes
    for no in ("val_loss<2.3", "loss<0 or step=149", "nothing<1", "nothing!=1", "state=failed", "step>150", "loss<100 and step>150", "loss<3 and loss>4 or lr>1"):
        assert not holds(no), no


@test
def evaluations_and_metrics_of_any_name_have_conditions():
    log = Log("e.mp")
    log.put("eval", 3, task="final", routing="causal", loss=2.25)
    log.put("metric", 3, **{"train/loss": 1.5, "two words": 7.0, "bad": NAN})
    log.put("end", 3, status="done")
    for yes in ("final.loss=2.25", "train/loss<2", "two words>6", "loss<2"):  # another program's name of the loss
        assert holds(yes, "e.mp"), yes
    for no in ("bad<1", "bad>1", "bad!=1", "final.loss>3"):
        assert not holds(no, "e.mp"), no


@test
def what_cannot_be_read_is_named_by_its_column():
    for condition, part in (("loss", "column 1: expected KEY OP VALUE"), ("loss<2 and", "column 11"), ("loss<two", "column 6: \"two\": expected a number"),
                            ("state=don", "column 7: state \"don\""), ("state>done", "state"), ("loss<", "missing or too long a value"), ("<3", "expected KEY OP VALUE"),
                            ("", "column 1"), ("or loss<1 or", "expected KEY"), (" and ".join(["a<1"] * 40), "more than 32"), ('a="b', "missing")):
        refused(part, "inspect", FIXTURE, "--until", condition)
    refused("--timeout soon: must be a number of seconds", "inspect", FIXTURE, "--until", "a<1", "--timeout", "soon")
    refused("need --follow or --until", "inspect", FIXTURE, "--timeout", "1")


# ---- exit status ----

@test
def a_run_that_ended_without_it_is_status_1_with_one_line():
    refused("training.mp: done at step 150 without val_los<1 (val_los was not logged)", "inspect", FIXTURE, "--until", "val_los<1", code=1)
    refused("done at step 150 without val_loss<1\n", "inspect", FIXTURE, "--until", "val_loss<1", code=1)
    Log("killed.mp").put("metric", 7, time=time.time() - 9000, loss=2.0)
    refused("silent at step 7 without loss<1", "inspect", "killed.mp", "--until", "loss<1", code=1)
    refused("no run or file", "inspect", "nowhere", "--until", "loss<1", code=1)


@test
def the_time_limit_is_status_3():
    log = Log("live.mp")
    fcntl.flock(log.file, fcntl.LOCK_EX)
    log.put("metric", 7, loss=2.0)
    began = time.monotonic()
    status, line, err = until("loss<1", "live.mp", "--timeout", "0.6")
    assert status == 3 and "not loss<1 after 0.6 s, at step 7" in err and err.count("\n") == 1, (status, err)
    assert 0.5 < time.monotonic() - began < 5 * SLOW
    status, out, err = call("inspect", "live.mp", "--follow", "--timeout", "0.5")
    assert status == 3 and out.count(b"\n") == 1, (status, out)


@test
def a_live_run_is_waited_for():
    log = Log("runs/live/log.mp")
    fcntl.flock(log.file, fcntl.LOCK_EX)
    log.put("metric", 1, loss=5.0)
    p = subprocess.Popen([PROGRAM, "inspect", "live", "--until", "loss<3", "--json"], stdout=subprocess.PIPE)
    time.sleep(0.7)
    assert p.poll() is None
    log.put("metric", 2, loss=2.5)
    log.put("metric", 3, loss=3.5)  # above it again before anyone looked
    out, _ = p.communicate(timeout=20 * SLOW)
    x = json.loads(out)
    assert p.returncode == 0 and x["holds"] is True and x["metrics"]["loss"] == 3.5 and x["state"] == "live", x


@test
def a_condition_is_waited_for_through_changes_that_do_not_satisfy_it():
    log = Log("steps.mp")
    log.put("head", 0, format=1, run="steps")
    log.put("metric", 1, loss=9.0)
    p = subprocess.Popen([PROGRAM, "inspect", "steps.mp", "--until", "loss<3"], stdout=subprocess.PIPE)
    for step, loss in ((2, 8.0), (3, 7.0), (4, 2.0)):
        time.sleep(0.5)
        assert p.poll() is None
        log.put("metric", step, loss=loss)
    assert "step 4" in p.communicate(timeout=15)[0].decode() and p.returncode == 0


@test
def a_line_follows_every_change_until_the_end():
    log = Log("runs/live/log.mp")
    fcntl.flock(log.file, fcntl.LOCK_EX)
    log.put("head", 0, format=1, run="live", method="edp", steps=9)
    log.put("metric", 1, loss=1 / 3, bad=NAN)
    p = subprocess.Popen([PROGRAM, "inspect", "live", "--follow", "--json", "--every", "0"], stdout=subprocess.PIPE, text=True)
    first = json.loads(p.stdout.readline())
    assert first["metrics"] == {"loss": 1 / 3, "bad": "NaN"} and first["steps"] == 9 and first["method"] == "edp" and first["state"] == "live", first
    log.put("metric", 2, loss=0.25)
    assert json.loads(p.stdout.readline())["step"] == 2
    log.put("end", 2, status="stopped")
    last = json.loads(p.stdout.readline())
    assert last["state"] == "stopped" and p.wait(20 * SLOW) == 0 and not p.stdout.read()


@test
def another_programs_log_and_a_pipe_are_followed():
    with open("curve.csv", "w") as f:
        f.write("step,train/loss\n1,4.5\n")
        f.flush()
        p = subprocess.Popen([PROGRAM, "inspect", "curve.csv", "--until", "loss<1"], stdout=subprocess.PIPE, text=True)
        time.sleep(0.7)
        assert p.poll() is None, "its file may grow"
        f.write("2,0.5\n")
    assert p.wait(20 * SLOW) == 0 and "train/loss 0.5" in p.stdout.read()
    with open(FIXTURE, "rb") as f:
        data = f.read()
    assert until("val_loss<2.4", "-", data=data)[0] == 0
    status, _, err = until("val_loss<2", "-", data=data[:5000])
    assert status == 1 and "-: ended at step" in err, err


# ---- stream --json ----

@test
def stream_prints_each_record_as_an_object():
    log = Log("s.mp")
    log.put("head", 0, time=1.5, format=1, run="s", config={"a.b": "1"}, resume=True, metrics=[{"name": "loss"}])
    log.put("metric", 1, time=2.5, loss=1 / 3, big=2 ** 53 + 1, nan=NAN, inf=-INF)
    log.put("layer", 1, time=2.5, gate_ratio=struct.pack("<3f", 0.1, 1.0, NAN), plain=[0.5, 1.0])
    log.put("probe", 1, time=2.5, ids=[5, 6], text=[b"a\n", b"\xff"], run=bytes([1, 0]), cell={"gate": struct.pack("<2f", 0.25, 0.5)})
    got = [json.loads(x) for x in run("stream", "s.mp", "--json").splitlines()]
    assert got[0] == {"kind": "head", "step": 0, "time": 1.5, "format": 1, "run": "s", "config": {"a.b": "1"}, "resume": True, "metrics": [{"name": "loss"}]}
    assert got[1] == {"kind": "metric", "step": 1, "time": 2.5, "loss": 1 / 3, "big": 2 ** 53 + 1, "nan": "NaN", "inf": "-Inf"}
    assert got[2]["gate_ratio"] == [0.1, 1, "NaN"] and got[2]["plain"] == [0.5, 1.0]
    assert got[3]["run"] == [1, 0] and got[3]["text"] == ["a\n", "\ufffd"] and got[3]["cell"]["gate"] == [0.25, 0.5]
    with open("s.mp", "r+b") as f:
        f.seek(150)
        f.write(b"\0\0\0")
    kinds = [json.loads(x)["kind"] for x in run("stream", "s.mp", "--json").splitlines()]
    assert "gap" in kinds and len(kinds) == 4, kinds


@test
def another_programs_log_is_streamed_as_records():
    with open("curve.csv", "w") as f:
        f.write("step,a,b/c\n3,1,2\n1,0.1,nan\n2,0.2,\n")  # steps in any order
    want = run("export", "curve.csv", "--to", "csv")
    os.utime("curve.csv", (1, 1))  # unchanged for long: nothing is waited for
    data = run("stream", "curve.csv", raw=True)
    assert run("export", "-", "--to", "csv", data=data) == want and data[:1] == b"\xc9"
    kinds = [json.loads(x) for x in run("stream", "curve.csv", "--json").splitlines()]
    assert kinds[0]["kind"] == "head" and kinds[0]["foreign"] == "CSV table" and kinds[1] == {"kind": "metric", "step": 3, "time": "NaN", "a": 1, "b/c": 2}
    assert json.loads(run("inspect", "curve.csv", "--json"))["format"] == "CSV table"


@test
def tail_over_a_pipe_reads_a_slow_writer_that_restarts():
    if not shutil.which("tail"):
        raise Skip("tail is not installed")
    log = Log("runs/a/log.mp")
    log.put("head", 0, format=1, run="a", layers=2)
    tail = subprocess.Popen(["tail", "-c", "+1", "-F", "runs/a/log.mp"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    p = subprocess.Popen([PROGRAM, "inspect", "-", "--until", "loss<1.05", "--json", "--follow", "--every", "0"], stdin=tail.stdout, stdout=subprocess.PIPE, text=True)

    def write():
        for i in range(10):
            time.sleep(0.05)
            log.put("metric", i, loss=9.0 - i / 10)
        log.file.write(b"\xc9\0\0\1\0\x44torn")  # killed amid a record
        again = Log("runs/a/log.mp")  # resumes from step 4
        again.put("head", 4, format=1, run="a", layers=2, resume=True)
        for i in range(5, 9):
            time.sleep(0.05)
            again.put("metric", i, loss=9.0 - i)
    writer = threading.Thread(target=write)
    writer.start()
    try:
        out, _ = p.communicate(timeout=30 * SLOW)
        last = json.loads(out.splitlines()[-1])
        assert p.returncode == 0 and last["step"] == 8 and last["metrics"]["loss"] == 1.0, last
    finally:
        writer.join()
        tail.kill()
        tail.wait()


t.main(fresh=True)
