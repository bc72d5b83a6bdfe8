"""What is asked of another machine beyond reading: starting and resuming runs there, comparing and saving what its models do."""
import json
import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import t  # noqa: E402
import test_hosts as hosts  # noqa: E402
from t import SLOW, test  # noqa: E402
from test_hosts import Agent  # noqa: E402


def agent(*words, root="runs"):
    a = Agent(os.path.abspath(root), *words)
    hello = a.until("agent")
    a.ask(do="list")
    a.until("listed")
    a.hello = hello
    return a


def answer(a, seconds=30, **request):
    a.n = getattr(a, "n", 0) + 1
    a.ask(id=a.n, **request)
    return a.until("answer", seconds, id=a.n)


@test
def a_run_starts_below_the_folder_that_was_opened_and_outlives_the_agent():
    a = agent(root="far/it's here")  # which does not exist yet
    assert "start" in a.hello["does"].split() and "quick" in a.hello["presets"].split(), a.hello
    x = answer(a, do="start", name="first", preset="quick", settings=[*t.TINY, "train.steps=100000"])
    assert x["ok"] and x["text"] == "first", x
    a.ask(do="follow", run="first")
    assert a.until("log")["live"], "not listed"
    a.p.kill()
    a.p.wait()
    time.sleep(0.5)
    b = agent(root="far/it's here")
    b.ask(do="command", id=900, run="first", line="stop")
    assert b.until("answer", 30, id=900)["ok"], "it ended with the agent"
    end = time.monotonic() + 30 * SLOW
    while b.until("row", 30)["state"] != "stopped":
        assert time.monotonic() < end
    b.close()
    assert os.listdir("far") == ["it's here"] and os.listdir("far/it's here") == ["first"], "elsewhere, too"


@test
def what_cannot_start_is_one_line_and_leaves_nothing():
    a = agent()
    for said, request in (("unknown key train.stesp", dict(preset="quick", settings=["train.stesp=5"])),
                          ("train.lr", dict(preset="quick", settings=["train.lr=-1"])),
                          ("unknown preset no-such", dict(preset="no-such")),
                          ("expected a name, not --resume", dict(preset="--resume x")),
                          ("expected KEY=VALUE, not --run", dict(preset="quick", settings=["--run"])),
                          ("expected KEY=VALUE", dict(preset="quick", settings=[5])),
                          ("more than 400 settings", dict(preset="quick", settings=["seed=1"] * 401)),
                          ("preset: too long", dict(preset="x" * 300)),
                          ("name: expected 1 to 64", dict(preset="quick", name="../outside")),
                          ("name: expected 1 to 64", dict(preset="quick", name="/tmp/x")),
                          ("No such file", dict(preset="quick", name="nodata", settings=["data.path=/no/such/text"]))):
        x = answer(a, do="start", **request)
        assert not x["ok"] and said in x["text"], (request, x)
    assert not os.path.exists("runs") or os.listdir("runs") == [], os.listdir("runs")
    hosts.log("runs/taken/log.mp")
    x = answer(a, do="start", name="taken", preset="quick")
    assert not x["ok"] and x["text"].endswith("/runs/taken exists"), x
    x = answer(a, do="later", run="taken")
    assert not x["ok"] and x["text"] == "unknown request", x
    assert answer(a, do="echo")["ok"]
    a.close()
    b = agent("--readonly")
    for request in (dict(do="start", preset="quick"), dict(do="resume", run="taken")):
        x = answer(b, **request)
        assert not x["ok"] and "read-only" in x["text"], x
    b.close()
    assert os.listdir("runs") == ["taken"]


@test
def the_script_of_a_host_without_the_program_starts_nothing():
    Agent.is_script = True
    os.makedirs("runs", exist_ok=True)
    try:
        a = agent()
        x = answer(a, do="start", preset="quick")
        assert not x["ok"] and "no depthscope here" in x["text"] and answer(a, do="echo")["ok"], x
        a.close()
    finally:
        Agent.is_script = False


@test
def a_run_that_has_ended_is_resumed_by_its_name():
    t.run("train", *t.TINY, "train.checkpoint_every=5", "--run", "m", "--quiet")
    hosts.log("runs/deep/er/log.mp")
    a = agent()
    x = answer(a, do="checkpoints", run="m")
    assert x["ok"] and x["text"].startswith("10 5 best "), x
    for said, request in (("no such run", dict(run="../runs/m")), ("expected best or", dict(run="m", **{"from": "--run"})),
                          ("not directly in", dict(run="deep/er")), ("no such run", dict(run=os.path.abspath("runs/m")))):
        x = answer(a, do="resume", **request)
        assert not x["ok"] and said in x["text"], x
    x = answer(a, 60, do="resume", run="m", **{"from": "5"})
    assert x["ok"] and x["text"] == "m-from-5", x
    a.until("row", 60, name="m-from-5", state="done")
    x = answer(a, do="checkpoints", run="deep/er")
    assert not x["ok"] and x["text"] == "deep/er: no checkpoint to resume from", x
    a.close()


@test
def two_models_of_a_host_are_compared_by_their_runs_names():
    for name, seed in (("a", 1), ("b", 2)):
        t.run("train", *t.TINY, "seed=%d" % seed, "--run", name, "--quiet")
    a = agent()
    a.ask(do="model", id=1, run="a")
    lines = ({"do": "compare", "other": "runs/b", "text": "one two", "lens": 5}, {"do": "save", "lens": 5})
    own = hosts.whole(t.run("serve", "runs/a", data=b"".join(json.dumps(x).encode() + b"\n" for x in lines), raw=True))[0]
    a.ask(do="say", id=1, line=json.dumps({"do": "compare", "run": "b", "text": "one two", "lens": 5}))
    far = hosts.records_of(a, 1, "done")
    a.ask(do="say", id=1, line='{"do":"save","lens":5}')
    far += hosts.records_of(a, 1, "done")
    def plain(records):
        return [repr(sorted((k, v) for k, v in r.items() if k not in ("time", "path", "pid"))) for r in records]
    assert [r["kind"] for r in far] == ["head", "probe", "head", "probe", "done", "head", "probe", "done"], far
    for x, y in zip(plain(own), plain(far)):
        assert x == y, [(p, q) for p, q in zip(x.split("), ("), y.split("), (")) if p != q]
    for i, bad in enumerate(("../runs/b", os.path.abspath("runs/b"), "", 5)):  # in their turn, so nothing is cut apart
        a.ask(do="say", id=1, line='{"do":"trace","text":"one two"}')
        a.ask(do="say", id=1, line=json.dumps({"do": "compare", "run": bad, "text": "x"}))
        assert hosts.records_of(a, 1, "error")[-1]["text"] == "compare: no such run on this host"
    a.ask(do="say", id=1, line="no JSON")
    assert "expected an object" in hosts.records_of(a, 1, "error")[-1]["text"]
    a.close()


t.main(fresh=True)
