"""Files that an earlier build wrote still open, resume and rebuild: tests/golden/earlier.  DEPTHSCOPE names the program."""
import json
import os
import shutil
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import t  # noqa: E402
from t import run, test  # noqa: E402

FIXTURE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "earlier")


@test
def a_stopped_run_is_listed_inspected_and_shown():
    row = [r for r in json.loads(run("runs", "--json")) if r["name"] == "half"][0]
    assert row["step"] == 100 and row["steps"] == 200 and row["method"] == "edp" and abs(row["val_loss"] - 2.988) < 0.01, row
    assert "half" in run("inspect", "runs/half/log.mp") and "damaged" not in run.err
    assert "half" in run("compare", "half")


@test
def a_stopped_run_resumes_to_the_loss_of_an_uninterrupted_one():
    run("train", "--resume", "half", "--quiet")
    row = [r for r in json.loads(run("runs", "--json")) if r["name"] == "half"][0]
    assert row["state"] == "done" and row["step"] == 200 and abs(row["val_loss"] - 2.93759643) < 1e-3, row


@test
def its_checkpoint_is_evaluated_and_generates():
    x = json.loads(run("eval", "half", "tokens=512", "time_rounds=0", "--json"))
    assert x["method"] == "edp" and abs(x["loss"] - 2.988) < 0.2 and 0.5 < x["block_ratio"] < 1, x
    assert json.loads(run("generate", "half", "--prompt", "Tom", "max_tokens=4", "--json"))["ids"]


@test
def a_model_and_an_adapter_over_it_open():
    base = json.loads(run("eval", "base-hf", "data=text.txt", "tokens=256", "time_rounds=0", "--json"))
    adapted = json.loads(run("eval", "adapter", "data=text.txt", "tokens=256", "time_rounds=0", "--json"))
    assert abs(base["loss"] - 5.3) < 0.3 and 0 < abs(base["loss"] - adapted["loss"]) < 0.2, (base["loss"], adapted["loss"])


@test
def a_trace_opens():
    assert "probe" in run("inspect", "trace.mp")
    screen = run("trace.mp", "--script", "keys", "--size", "100x30")
    assert "Depth map" in screen and "trace" in screen, screen[:600]


@test
def a_figure_is_drawn_again_from_its_recipe():
    said = run("figure", "--again", "fig/training.png") + run.err
    assert "data unchanged" in said, said


def setup():
    shutil.copytree(FIXTURE, "earlier")
    os.chdir("earlier")
    with open("text.txt", "w") as f:
        f.write("Once upon a time Tom had two apples. He gave one to Ann.\n" * 20)
    with open("keys", "w") as f:
        f.write("shot\n")


t.main(setup, fresh=True)
