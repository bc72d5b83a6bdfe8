#!/usr/bin/env python3
"""Alerts of a training run in its log, in lists and in `alerts`; settings of the user and what may not be one."""
import json
import math
import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import t  # noqa: E402
from records import Log  # noqa: E402
from t import TINY, refused, run, run_json, test  # noqa: E402


def events(name):
    lines = [json.loads(x) for x in run("stream", "--json", "--no-follow", "runs/" + name).splitlines()]
    return [x for x in lines if x["kind"] == "event" and x["name"] == "alert"]


def user(text):
    os.makedirs("config/depthscope", exist_ok=True)
    with open("config/depthscope/settings.yaml", "w") as f:
        f.write(text)
    return {"XDG_CONFIG_HOME": os.path.abspath("config")}


@test
def a_rule_that_always_holds_is_one_event():
    run("train", "quick", *TINY, "--run", "a", "--quiet", "alert.loss_above=0.001", "alert.disk_free_gb=0", "train.log_every=1")
    found = events("a")
    assert len(found) == 1, found
    e = found[0]
    assert (e["rule"], e["level"], e["step"], e["over"]) == ("loss", "warn", 1, False) and e["value"] > 1, e
    assert e["text"].startswith("loss ") and e["text"].endswith(", above 0.001"), e
    got = run_json("alerts", "a")
    assert [(x["run"], x["rule"], x["source"], x["now"]) for x in got] == [("a", "loss", "run", False)], got
    assert abs(got[0]["value"] - e["value"]) < 1e-6 * e["value"], got
    assert run("alerts", "a", "--now") == "no alerts\n"  # it has ended
    assert "above 0.001" in run("alerts", "a")


@test
def without_a_reason_there_is_no_alert():
    run("train", "quick", *TINY, "--run", "b", "--quiet", "alert.disk_free_gb=0")
    assert events("b") == [] and run("alerts", "b") == "no alerts\n"


@test
def a_full_disk_is_one_event_of_the_machine():
    run("train", "quick", *TINY, "--run", "c", "--quiet", "train.steps=30", "train.system_every=0.1", "alert.disk_free_gb=900000000")
    found = events("c")
    assert [(x["rule"], x["level"], x["over"]) for x in found] == [("disk", "error", False)], found


@test
def settings_of_a_run_are_checked():
    refused("alert.loss_above", "train", "quick", "alert.los_above=4")
    refused("alert.stall_s", "train", "quick", "alert.stall_s=-1")
    refused("notify.command", "train", "quick", "notify.command=true")  # not a setting of a run


@test
def lists_judge_by_the_users_rules():
    log = Log("runs/live/log.mp")
    log.put("head", 0, run="live", method="edp", layers=2, steps=100)
    log.put("metric", 1, loss=5.0)
    assert [x["alerts"] for x in run_json("runs") if x["name"] == "live"] == [[]]
    env = user("alert:\n  loss_above: 4\n")
    assert [x["alerts"] for x in run_json("runs", **env) if x["name"] == "live"] == [["loss"]]
    log.put("metric", 2, loss=math.nan)
    log.put("event", 2, name="alert", level="error", rule="disk", text="full")
    assert [x["alerts"] for x in run_json("runs", **env) if x["name"] == "live"] == [["nan", "disk"]]
    assert [x["name"] for x in run_json("runs", "--filter", "alert~disk", **env)] == ["live"]
    assert "nan disk" in run("runs", **env)
    got = run_json("alerts", "live", **env)
    assert [(x["rule"], x["source"], x["now"]) for x in got] == [("disk", "run", True), ("nan", "settings", True), ("loss", "settings", True)], got
    log.put("event", 3, name="alert", level="info", rule="disk", over=True, text="room")
    assert [x["alerts"] for x in run_json("runs", **env) if x["name"] == "live"] == [["nan"]]
    log.put("end", 3, status="done", text="")
    assert [x["alerts"] for x in run_json("runs", **env) if x["name"] == "live"] == [[]]


@test
def layers_and_gpus_are_judged_by_their_history():
    for name, writer in (("torch", {"writer": "depthscope-python 1", "framework": "PyTorch 2"}), ("own", {})):
        log = Log("runs/%s/log.mp" % name)
        log.put("head", 0, run=name, layers=3, steps=100, always_on=[1, 0, 0], **writer)
        for i in range(60):
            at = time.time() - 600 + 10 * i
            log.put("layer", i, time=at, gate_ratio=[1.0, 0.5 if i < 10 else 1.0, 0.4])
            log.put("system", i, time=at, gpus=[{"use": 0.9 if i < 20 else 0.01}, {"use": 0.0}], disk_free=1e9)
            log.put("metric", i, time=at, loss=2.0)
        got = {x["rule"]: x["text"] for x in run_json("alerts", name)}
        assert got["layer"] == "layer 1: executed share 1 in the last 40 records", got
        assert got["disk"].startswith("1 GB free"), got
        assert got.get("gpu") == ("GPU below 5 % for 5m00s" if writer else None), got  # this program's trainer uses none


@test
def wrong_settings_are_named_and_do_no_harm():
    env = user("alert:\n  los_above: 4\n")
    run("runs", **env)
    assert "settings.yaml" in run.err and "alert.los_above" in run.err, run.err
    refused("alert.los_above", "alerts", "a", code=2, **env)
    refused("missing RUN", "alerts")


t.main()
