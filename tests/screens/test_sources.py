"""The workbench shows of a run what its log says, and offers what its process can do.  No terminal is needed; DEPTHSCOPE names
the program."""
import contextlib
import fcntl
import json
import os
import re
import shutil
import socket
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import t  # noqa: E402
from records import Log  # noqa: E402
from t import run, test  # noqa: E402

HEAD = dict(format=1, run="mine", framework="PyTorch 2.5.1", gpu="4 x NVIDIA H100", host="box7", project="moe", world_size=4, writer="depthscope-python 1.0")


def play(path, *script, size="80x24"):
    """The lines of the last screen of a script; the clock is that of the newest record."""
    with open("script.keys", "w") as f:
        f.write("\n".join(script) + "\n")
    out = run(path, "--script", "script.keys", "--size", size)
    return out.split("== ")[-1].split("-- roles")[0].splitlines()[1:]


@contextlib.contextmanager
def live(name, **head):
    """A run directory with a locked log and a listening control socket."""
    log = Log("runs/%s/log.mp" % name)
    fcntl.flock(log.file, fcntl.LOCK_EX)
    log.put("head", 0, **{**HEAD, **head})
    log.put("metric", 1, loss=2.5)
    s = socket.socket(socket.AF_UNIX)
    s.bind("runs/%s/control.sock" % name)
    s.listen(4)
    try:
        yield log
    finally:
        s.close()
        log.file.close()


def curve(name="curve.csv"):
    with open(name, "w") as f:
        f.write("step,train/loss\n1,4.5\n2,3.5\n")
    return name


def hints(path):
    return play(path, "command view monitor", size="120x24")[-1]


# ---- what takes commands ----

@test
def hints_are_those_that_the_process_answers():
    with live("any"):
        assert all(x in hints("any") for x in ("P pause", "C save", "B probe", "S set")), hints("any")
    with live("some", commands=["pause", "resume"]) as log:
        assert "P pause" in hints("some") and not [x for x in ("C save", "B probe", "S set") if x in hints("some")], hints("some")
        log.put("event", 1, level="info", name="commands", text="set probe")
        assert "P pause" not in hints("some") and "S set" in hints("some") and "B probe" in hints("some"), hints("some")
        log.put("event", 1, level="info", name="commands", text="")
        assert not [x for x in ("P pause", "C save", "B probe", "S set") if x in hints("some")], hints("some")
    os.remove("runs/any/control.sock")
    Log("runs/file/log.mp").put("metric", 1, loss=2.0)
    for path in ("any", "file", "runs/file/log.mp", curve()):
        line = hints(path)
        assert "Enter one chart" in line and not [x for x in ("P pause", "C save", "B probe", "S set") if x in line], (path, line)


@test
def the_overlay_lists_what_can_be_done():
    with live("some", commands=["pause"]):
        text = "\n".join(play("some", "command view monitor", "keys ?", size="120x120"))
        assert ":pause-resume" in text and ":pause " in text and ":checkpoint" not in text and ":set KEY" not in text, text
    text = "\n".join(play(curve(), "command view monitor", "keys ?", size="120x120"))
    assert ":smooth" in text and ":pause" not in text and ":stop" not in text, text


@test
def a_command_that_cannot_work_says_why():
    def says(path, command):
        return play(path, "command view monitor", "command " + command, size="120x24")[-1].strip()
    assert says(curve(), ":pause") == 'CSV table: the log of another program takes no commands; "pause" was not sent'
    assert says(curve(), ":stop") == 'CSV table: the log of another program takes no commands; "stop" was not sent'
    Log("file.mp").put("metric", 1, loss=2.0)
    assert says("file.mp", ":set train.lr 1") == 'no run directory is open; "set train.lr 1" was not sent'
    with live("some", commands=["pause", "resume"]):
        assert says("some", ":checkpoint") == 'the run answers only pause resume; "checkpoint" was not sent'
    with live("none", commands=[]):
        assert says("none", ":checkpoint") == 'the run takes no commands; "checkpoint" was not sent'


# ---- what is known ----

def decisions(**head):
    log = Log("dense.mp")
    log.file.truncate(0)
    log.put("head", 0, format=1, run="dense", layers=3, **head)
    log.put("metric", 1, loss=2.0)
    log.put("probe", 1, index=0, name="p", layers=3, ids=[1, 2, 3], text=["a", "b", "c"], run=[[1, 1, 1], [1, 0, 1], [1, 1, 1]])
    return "\n".join(run("show", "depth", "dense.mp", "--size", "100x30").splitlines())


@test
def a_layer_is_always_on_where_the_head_says_so():
    assert "L0 executed" in decisions() and "L0 always on" not in decisions()
    assert "L0 always on" in decisions(always_on=[1, 0, 0])
    assert "L0 executed" in decisions(always_on=[0, 0, 1])
    assert "L0 always on" in decisions(method="edp", config={"edp.early": "1"}), "an older log states it by its settings"


@test
def what_was_not_logged_is_not_shown():
    Log("bare.mp").put("metric", 1, time=1.7e9, loss=2.0)
    text = run("inspect", "bare.mp").splitlines()[0]
    assert text == "run bare, step 1, silent", text
    for view in ("monitor", "flops", "pareto", "log"):
        for path in ("bare.mp", curve()):
            screen = run("show", view, path, "--size", "100x30")
            screen = re.sub("of (the )?dense|NaN values, alerts", "", screen)  # the title of an axis, and what events are
            assert not re.search(r"dense|\b0 layers|\bnan\b|NaN|\bof 0\b", screen), (view, path, screen)


@test
def the_writers_own_words_are_shown_where_it_said_them():
    with live("said"):
        home = run("show", "home", "--size", "200x30")
        assert "PyTorch 2.5.1, 4 x NVIDIA H100, 4 ranks, project moe" in home and "box7" in home, home
        wide = run("show", "monitor", "said", "--size", "120x24")
        assert "PyTorch 2.5.1, 4 x NVIDIA H100, 4 ranks, project moe, on box7" in wide, wide
        text = run("inspect", "said")
        assert "; host box7; PyTorch 2.5.1, 4 x NVIDIA H100, 4 ranks, project moe" in text.splitlines()[0] and "method" not in text.splitlines()[0], text
        x = t.run_json("inspect", "said")
        assert (x["gpu"], x["framework"], x["host"], x["project"], x["world_size"], x["writer"]) == ("4 x NVIDIA H100", "PyTorch 2.5.1", "box7", "moe", 4, "depthscope-python 1.0"), x


# ---- Home ----

@test
def home_has_loss_and_age_of_other_programs_runs():
    os.makedirs("runs/exp")
    curve("runs/exp/curve.csv")
    os.utime("runs/exp/curve.csv", (time.time() - 42 * 60 - 5,) * 2)
    Log("runs/own/log.mp").put("metric", 7, time=time.time() - 3605, loss=2.0, val_loss=2.5)
    for size in ("80x24", "140x30"):
        home = run("show", "home", "--size", size).splitlines()
        row = [x for x in home if "exp/curve.csv" in x or "exp/curv" in x][0]
        assert "silent 42m" in row and " 3.5000 " in row and "42m" in row.split("silent 42m")[1], row
        own = [x for x in home if re.match("...own ", x)][0]
        assert "silent 1h" in own and "2.5000" in own, own
    head, *rows = [x.split() for x in run("runs").splitlines()]
    assert head == ["run", "method", "state", "step", "val", "loss", "loss", "newest"], head
    row = [r for r in rows if r[0] == "exp/curve.csv"][0]
    assert row[1:5] == ["silent", "2", "-", "3.5000"] and row[-1] == "ago", row


@test
def paths_of_runs_get_the_room_of_empty_columns():
    os.mkdir("logs")
    os.mkdir("logs/experiment-with-a-name")
    with open("logs/experiment-with-a-name/seed-1.csv", "w") as f:
        f.write("step,train/loss\n1,123456.7\n2,219.0625\n")
    text = "\n".join(play("logs", "command view home"))
    assert "experiment-with-a-" in text and " 219.06 " in text and "method" not in text.split("presets")[0], text


@test
def every_metric_of_another_program_has_one_chart():
    name = "layers.17.attention.query.weight.gradient_norm"
    with open("many.jsonl", "w") as f:
        for step in range(3):
            f.write(json.dumps({"step": step, **{"system/gpu.%d" % i: i for i in range(50)}, "train_loss": 2.0 - step,
                                "learning_rate": 0.1, name: step}) + "\n")
    text = "\n".join(play("many.jsonl", "command view monitor", size="200x50"))
    assert text.count("learning_rate") + text.count("train_loss") == 0, text
    assert "loss 0" in text and "lr 0.1" in text and name[:25] in text and "of 53" in text, text
    assert text.index(name[:25]) < text.index("system/gpu.0"), text


@test
def stop_leaves_other_programs_alone():
    os.makedirs("runs/exp")
    curve("runs/exp/curve.csv")
    assert "live" in run("runs") and "no live runs" in run("stop", "--all")
    status, _, err = t.call("stop", "runs/exp/curve.csv")
    assert status == 1 and "the log of another program (CSV table), which takes no commands" in err, err


@test
def home_only_reads_what_is_not_its_own():
    os.makedirs("runs/exp")
    curve("runs/exp/curve.csv")
    Log("elsewhere/own/log.mp").put("metric", 7, loss=2.0)
    before = sorted(os.listdir("runs/exp"))
    for key in ("D", "t", "i", "m", "X", "R", "c"):
        last = play("runs/exp/curve.csv", "command view home", "keys g g", "keys " + key, size="120x24")[-1]
        assert "the log of another program (CSV table); it is only read" in last, (key, last)
    line = play("runs/exp/curve.csv", "command view home", "keys g g", size="160x24")[-1]
    assert "Enter open" in line and not [x for x in ("D trash", "t tag", "i note", "R resume") if x in line], line
    last = play("elsewhere/own", "command view home", "keys g g", "keys D", size="120x24")[-1]
    lines = play("elsewhere/own", "command view home", "keys g g", size="120x24")
    assert any("own" in x for x in lines) and ("only read" in last or "curve" in last), last
    assert sorted(os.listdir("runs/exp")) == before and os.path.exists("elsewhere/own/log.mp")


# ---- compare and Pareto ----

@test
def runs_of_other_programs_are_compared_by_what_they_logged():
    curve()
    log = Log("own.mp")
    for i in range(5):
        log.put("metric", i, time=1.7e9 + i, loss=5.0 - i, val_loss=6.0 - i)
    out = run("compare", "curve.csv", "own.mp").splitlines()
    assert out[0].split() == ["n", "val", "loss", "train", "loss"] and out[1].split() == ["curve", "1", "-", "3.5"] and out[2].split() == ["own", "1", "2", "1"], out
    assert "train loss" not in run("compare", "own.mp"), "a validation loss needs no substitute"
    x = t.run_json("compare", "curve.csv", "own.mp")
    assert x["runs"][0]["loss"] == 3.5 and x["runs"][0]["val_loss"] is None
    screen = run("show", "pareto", "curve.csv", "own.mp", "--size", "100x30")
    assert "curve: no val_loss" in screen and "own: no FLOPs" in screen and ":axis steps and :metric loss place 2 of these runs" in screen, screen
    screen = run("show", "pareto", "curve.csv", "own.mp", "--size", "100x30", "--keys", ":axis steps;:metric loss")
    assert "2 experiments" in screen and "against steps" in screen, screen
    screen = run("show", "pareto", "curve.csv", "own.mp", "--size", "100x30", "--keys", ":axis wall-time;:metric loss")
    assert "not shown: curve no wall time" in screen, screen


@test
def files_of_one_name_are_told_apart():
    for folder in ("exp1", "exp2"):
        os.makedirs(folder)
        curve(folder + "/metrics.csv")
    both = ("exp1/metrics.csv", "exp2/metrics.csv")
    out = run("compare", *both).splitlines()
    names = ["exp1/metrics", "exp2/metrics"]
    assert [x.split()[0] for x in out[1:3]] == names, out
    assert [x["name"] for x in t.run_json("compare", *both)["runs"]] == names
    screen = run("show", "monitor", *both, "--size", "100x30")
    assert all(x in screen for x in names), screen
    shutil.copytree("exp1", "third")
    pictures = set()
    for other in ("exp2", "third"):  # differ in the legend alone
        run("figure", "training", both[0], other + "/metrics.csv", "-o", "figs", "--format", "svg")
        with open("figs/training.svg") as f:
            pictures.add(f.read())
    assert len(pictures) == 2
    assert t.run_json("compare", both[0])["runs"][0]["name"] == "metrics", "nothing to tell it from"


@test
def curves_of_any_mix_are_one_figure():
    curve()
    log = Log("own.mp")
    for i in range(5):
        log.put("metric", i, loss=5.0 - i, val_loss=6.0 - i)
    run("figure", "training", "curve.csv", "own.mp", "--smooth", "0.6", "-o", "figs", "--format", "svg")
    with open("figs/training.svg") as f:
        assert f.read().count("<path") > 5
    t.refused("val_loss", "figure", "training", "curve.csv", "own.mp", "--metric", "val_loss", "-o", "figs", code=1)


t.main(fresh=True)
