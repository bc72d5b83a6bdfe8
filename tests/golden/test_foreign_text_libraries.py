"""Text logs made by the Hugging Face Trainer, Lightning, MLflow, pandas and Python's json module hold the values that these read
in them, bit for bit."""
import glob
import json
import math
import os
import struct
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, ".."), os.path.join(HERE, "..", "fault")]
import t  # noqa: E402
from kit_run import unpack  # noqa: E402
from t import Skip, run, run_json, shared, test  # noqa: E402

PYTHON = os.environ.get("PYTHON", "python3")


def library(name):
    """The folder of the library's log, and what it reads in it."""
    os.mkdir(name)
    p = subprocess.run([PYTHON, os.path.join(HERE, "foreign_text_libraries.py"), name, name], stdout=subprocess.PIPE,
                       stderr=subprocess.PIPE, timeout=180 * t.SLOW, env={**os.environ, "CUDA_VISIBLE_DEVICES": ""})
    if p.returncode == 77:
        raise Skip("%s: %s" % (PYTHON, p.stderr.decode().strip().splitlines()[-1]))
    assert p.returncode == 0, p.stderr.decode()[-800:]
    return json.loads(p.stdout.decode().strip().splitlines()[-1])


def records(path):
    b, at, out = run("stream", path, "--no-follow", raw=True), 0, []
    while at < len(b):
        size = struct.unpack_from(">I", b, at + 1)[0]
        out.append(unpack(b, at + 18)[0])
        at += 6 + size
    return out


def metrics(path):
    out = {}
    for r in records(path):
        if r["kind"] == "metric":
            for name, x in r.items():
                if name not in ("kind", "step", "time"):
                    out.setdefault(name, []).append([r["step"], x])
    return out


def config(path):
    out = {}
    for r in records(path):
        if r["kind"] == "head":
            out.update(r.get("config", {}))
    return out


def bits(x):
    return "nan" if math.isnan(x) else struct.pack("<d", x)


def same(got, want):
    assert set(got) == set(want), (sorted(got), sorted(want))
    for name in want:
        assert [(s, bits(x)) for s, x in got[name]] == [(s, bits(x)) for s, x in want[name]], (name, got[name][:5], want[name][:5])


@test
def the_state_of_a_real_trainer_is_read_from_its_newest_checkpoint():
    want = library("trainer")
    assert len(want["loss"]) == 12 and len(want["eval_loss"]) == 4, want
    same(metrics("trainer"), want)
    same(metrics("trainer/checkpoint-12/trainer_state.json"), want)
    assert max(s for s, _ in metrics("trainer/checkpoint-8")["loss"]) == 8
    ends = [r["status"] for r in records("trainer") if r["kind"] == "end"]
    assert ends == ["done"], ends
    assert run_json("inspect", "trainer/checkpoint-12")["kind"] != "records"  # the model; its log has a name of its own
    assert run_json("inspect", "trainer")["kind"] == "records"
    assert [r["steps"] for r in records("trainer") if r["kind"] == "head" and "steps" in r] == [12]


@test
def a_table_of_lightning_has_its_metrics_and_hyperparameters():
    want = library("lightning")
    same(metrics("lightning"), want)
    got = config("lightning")
    assert got["model.layers"] == "3" and got["lr"] == "0.5" and got["name"] == "a", got


@test
def a_run_of_mlflow_has_its_metrics_parameters_and_end():
    want = library("mlflow")
    top = os.path.dirname(glob.glob("mlflow/store/*/*/meta.yaml")[0])
    for path in (top, os.path.join(top, "metrics")):
        same(metrics(path), want)
        assert config(path)["model/layers"] == "4" and config(path)["lr"] == "0.001", config(path)
        assert records(path)[-1]["kind"] != "end" or records(path)[-1]["status"] == "done"
        assert [r["status"] for r in records(path) if r["kind"] == "end"][-1] == "done"


@test
def tables_of_pandas_are_what_it_reads_back():
    for name, want in library("pandas").items():
        same(metrics(os.path.join("pandas", name)), want)


@test
def lines_and_arrays_of_python_are_what_it_wrote():
    values = [2.75, 0.1, 1e-30, -3.4e38, math.nan, math.inf, -math.inf, 0.0, -0.0, 1 / 3, 1e300, 5e-324, 2 ** 53 + 1, 10 ** 22, True]
    rows = [{"step": 3 * i, "loss": values[i % len(values)], "a/b \u00e9\"\\": {"c": i / 7}} for i in range(200)]
    want = {"loss": [[r["step"], float(r["loss"])] for r in rows], "a/b \u00e9\"\\.c": [[3 * i, i / 7] for i in range(200)]}
    open("log.jsonl", "w").write("".join(json.dumps(r) + "\n" for r in rows))
    open("utf8.jsonl", "w", encoding="utf-8").write("".join(json.dumps(r, ensure_ascii=False) + "\n" for r in rows))
    json.dump(rows, open("log.json", "w"))
    json.dump(rows, open("indented.json", "w"), indent=2)
    for name in ("log.jsonl", "utf8.jsonl", "log.json", "indented.json"):
        same(metrics(name), want)


@test
def the_table_and_the_array_of_one_run_are_equal():
    table, array = shared("traces/cs336-run/metrics.csv"), shared("traces/cs336-run/metrics.json")
    want = {}
    for row in json.load(open(array)):
        for name, x in row.items():
            if name not in ("step", "timestamp"):
                want.setdefault(name, []).append([row["step"], float(x)])
    same(metrics(array), want)
    same(metrics(table), want)
    assert [r["time"] for r in records(table)[1:]] == [r["timestamp"] for r in json.load(open(array))]


@test
def the_figure_of_training_and_the_list_of_runs_take_them():
    open("fig.jsonl", "w").write("".join('{"step":%d,"train/loss":%g,"lr":0.1}\n' % (i, 2 + 3 / (i + 1)) for i in range(50)))
    open("fig.log", "w").write("".join("iter %d: loss %.4f, time 12.5ms, mfu 3.50%%\n" % (i, 2 + 3 / (i + 1)) for i in range(50)))
    run("figure", "training", "fig.jsonl", "fig.log", "-o", "figures", "--format", "svg")
    assert glob.glob("figures/training*.svg")


t.main(fresh=True)
