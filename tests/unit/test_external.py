"""Runs of other programs in the record format: only what their writer logged is shown, and only what can work is suggested.
DEPTHSCOPE names the program."""
import json
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import t  # noqa: E402
from records import Log  # noqa: E402
from t import run, run_json, test  # noqa: E402


def write(path, head=None, probe=None, steps=4):
    log = Log(path)
    log.put("head", 0, format=1, run="mine", layers=2, **(head or {}))
    for s in range(steps):
        log.put("metric", s, loss=3.0 - s / 10)
    if probe:
        log.put("probe", steps, **probe)
    return log


def screen(view, path, *words):
    return run("show", view, path, "--size", "80x24", *words)


@test
def views_without_a_probe_suggest_only_what_the_run_can_do():
    write("runs/other/log.mp")
    write("runs/own/log.mp", {"config": {"train.probe_every": "50", "train.eval_every": "50"}})
    for view in ("depth", "signals", "flops", "timeline"):
        other, own = screen(view, "runs/other"), screen(view, "runs/own")
        hint = "run.probe(..., flops=...)" if view == "flops" else "ds.watch(model, run"
        assert hint in " ".join(other.split()), other
        for words in (":probe", "train.", "depthscope trace"):
            assert words not in other, "%s: %s" % (view, other)
        assert ":probe" not in own and "trace` records one" in " ".join(own.split()), own
    assert "train.eval_every" not in screen("pareto", "runs/other") and "train.eval_every" in screen("pareto", "runs/own")


@test
def a_run_with_matrices_alone_has_started():
    log = Log("runs/loads/log.mp")
    log.put("head", 0, format=1, run="loads", layers=2)
    log.put("matrix", 1, name="expert_load", rows=2, cols=4, value=[4, 0, 0, 0, 1, 1, 1, 1])
    out = screen("depth", "runs/loads")
    assert "No probe yet" in out and "tokenizer before" not in out, out


@test
def a_seed_is_shown_where_one_was_logged():
    write("plain.mp")
    write("seeded.mp", {"seed": 0})
    assert "seed" not in run("inspect", "plain.mp") and "seed" not in run_json("inspect", "plain.mp", "--json")
    assert "seed 0" in run("inspect", "seeded.mp") and run_json("inspect", "seeded.mp", "--json")["seed"] == 0


@test
def always_on_is_named_where_the_writer_said_so():
    probe = {"name": "a", "layers": 2, "ids": [5, 6], "run": [1, 1, 1, 0], "text": [b"a", b"b"]}
    write("all.mp", probe=probe)
    write("said.mp", {"always_on": [1, 0]}, probe)
    assert "always on" not in screen("depth", "all.mp") and "executed" in screen("depth", "all.mp")
    assert "always on" in screen("depth", "said.mp")


@test
def tokens_without_text_have_their_position():
    open("t.csv", "w").write("token,layer,expert\n" + "".join("%d,0,%d\n" % (i, i % 3) for i in range(9)))
    run("import", "t.csv", "-o", "t.mp")
    assert '""' not in screen("depth", "t.mp") + screen("experts", "t.mp", "--keys", "Enter")
    run("figure", "expert_map", "t.mp", "-o", "f", "--format", "svg")
    svg = open("f/expert_map.svg", encoding="utf-8").read()
    assert "\u2205" not in svg and "expert_map" in json.dumps(os.listdir("f"))


@test
def cells_of_many_experts_say_what_they_show():
    log = Log("wide.mp")
    log.put("head", 0, format=1, run="wide", layers=94, experts=256)
    for s in (1, 2):
        log.put("matrix", s, name="expert_load", rows=94, cols=256, value=b"\0\0\x80?" * (94 * 256))
    assert "cold of 7 x 6" in screen("experts", "wide.mp")
    assert "cold" not in screen("experts", "wide.mp", "--keys", "w")


t.main()
