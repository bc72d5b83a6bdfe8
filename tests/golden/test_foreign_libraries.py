"""Logs made by TensorBoard's, PyTorch's and W&B's own writers hold the values that these libraries read in them, bit for bit."""
import glob
import json
import math
import os
import shutil
import struct
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import t  # noqa: E402
from t import ROOT, Skip, call, run, shared, test  # noqa: E402

PYTHON = os.environ.get("PYTHON", "python3")
HELPER = os.path.join(ROOT, "tests", "golden", "foreign_libraries.py")


def library(*words, seconds=180):
    p = subprocess.run([PYTHON, HELPER, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=seconds * t.SLOW,
                       env={**os.environ, "WANDB_MODE": "offline", "TF_CPP_MIN_LOG_LEVEL": "3"})
    if p.returncode == 77:
        raise Skip("%s: %s" % (PYTHON, p.stderr.decode().strip()))
    assert p.returncode == 0, p.stderr.decode()[-800:]
    return json.loads(p.stdout) if p.stdout.strip() else None


def made(name):
    """The folder with the library's logs, made once."""
    if not os.path.exists(name):
        try:
            os.mkdir("made-" + name)
            library("make", name, "made-" + name)
        except BaseException:
            shutil.rmtree("made-" + name, ignore_errors=True)
            raise
        os.rename("made-" + name, name)
    return name


def bits(x):
    return "nan" if math.isnan(x) else struct.pack("<d", x)


def exported(path):
    """{name: [[step, time, value], ...]} as depthscope reads it."""
    out = {}
    for line in run("export", path, "--to", "jsonl").splitlines():
        row = json.loads(line)
        step, when = row.pop("step"), row.pop("time", math.nan)
        row.pop("eval", None)
        for name, x in row.items():
            out.setdefault(name, []).append([step, when, x])
    return out


def newest(points):
    """The newest point of each step, by step."""
    return [p for _, p in sorted({p[0]: p for p in points}.items())]


def same(got, want):
    assert set(got) == set(want), (sorted(got), sorted(want))
    for name in want:
        a, b = newest(got[name]), newest(want[name])
        assert len(a) == len(b), (name, len(a), len(b))
        for x, y in zip(a, b):
            assert x[0] == y[0] and bits(x[1]) == bits(y[1]) and bits(x[2]) == bits(y[2]), (name, x, y)


@test
def scalars_of_torch_are_those_that_tensorboard_reads():
    top = os.path.join(made("tensorboard"), "torch")
    want = library("read", "tensorboard", top)
    assert len(want["Loss/train"]) == 320 and "double" in want and "Loss/val \u00e9" in want, sorted(want)
    same(exported(top), want)


@test
def scalars_of_the_small_writer_are_those_that_tensorboard_reads():
    top = os.path.join(made("tensorboard"), "writer")
    want = library("read", "tensorboard", top)
    assert len(want["loss"]) == 24
    same(exported(top), want)


@test
def a_writer_that_takes_over_discards_what_tensorboard_discards():
    top = os.path.join(made("tensorboard"), "restart")
    want = library("read", "tensorboard", top)
    assert [p[2] for p in want["loss"]] == list(range(20)) + [-x for x in range(20, 40)], want
    same(exported(top), want)


@test
def a_folder_below_a_run_is_a_run_of_its_own():
    top = os.path.join(made("tensorboard"), "torch", "together_a")
    same(exported(top), library("read", "tensorboard", top))


@test
def hyperparameters_and_text_are_the_configuration():
    config = config_of(os.path.join(made("tensorboard"), "hparams"))
    assert {k: config.get(k) for k in ("lr", "name", "bias")} == {"lr": "0.1", "name": "adamw", "bias": "1"}, config  # torch writes a bool as a number
    config = config_of(os.path.join(made("tensorboard"), "torch"))
    assert config.get("lr") == "0.1" and config.get("model.dim") == "64", config


def config_of(path):
    """Of all heads in the stream; the newest counts."""
    config = {}
    for line in run("stream", path, "--no-follow", "--json").splitlines():
        record = json.loads(line)
        if record["kind"] == "head":
            config = record.get("config", config)
    return config


@test
def a_real_file_of_keras_is_read_as_tensorboard_reads_it():
    top = shared("traces/tensorboard")
    want = library("read", "tensorboard", top)
    same(exported(top), want)


@test
def a_file_cut_anywhere_holds_the_beginning_of_what_tensorboard_reads():
    source = glob.glob(os.path.join(made("tensorboard"), "writer", "*tfevents*"))[0]
    want = library("read", "tensorboard", os.path.dirname(source))
    data = open(source, "rb").read()
    os.mkdir("cut")
    for n in range(13, len(data), 23):
        path = os.path.join("cut", os.path.basename(source))
        with open(path, "wb") as f:
            f.write(data[:n])
        os.utime(path, (1e9, 1e9))  # nobody is writing it any more: no wait for the rest
        status, out, err = call("export", path, "--to", "jsonl")
        got = [json.loads(x)["loss"] for x in out.decode().splitlines()] if status == 0 else []
        assert [bits(x) for x in got] == [bits(p[2]) for p in want["loss"]][:len(got)], (n, got)
    assert len(got) == 23, got


@test
def what_is_exported_is_what_tensorboard_reads():
    top = os.path.join(made("tensorboard"), "writer")
    os.mkdir("out")
    run("export", top, "--to", "tfevents", "-o", "out/events.out.tfevents.1.copy")
    same(library("read", "tensorboard", "out"), library("read", "tensorboard", top))
    same(exported("out"), exported(top))


@test
def an_offline_run_of_wandb_holds_what_was_logged():
    top = glob.glob(os.path.join(made("wandb"), "wandb", "offline-run-*"))[0]
    want = library("read", "wandb", top)
    config, got = want.pop("config"), exported(top)
    assert len(want["loss"]) == 301 and want["late"][0][0] == 1000 and len(want["train.deep.x"]) == 300, sorted(want)
    assert "text" not in got and not [name for name in got if name.startswith("histogram")], sorted(got)
    machine = {name: [p[1:] for p in want.pop(name)] for name in list(want) if name.startswith("system/")}
    assert machine and machine.keys() == {name for name in got if name.startswith("system/")}
    for name, points in machine.items():
        for p in got.pop(name):
            assert p[1:] in points, (name, p, points)
    same(got, want)
    flat = config_of(top)
    assert flat["lr"] == config["lr"] == "0.0003" and flat["model.dim"] == "64" and flat["betas"] == "[0.9,0.95]" and flat["extra"] == "7", flat


@test
def the_end_of_an_offline_run_is_known():
    top = glob.glob(os.path.join(made("wandb"), "wandb", "offline-run-*"))[0]
    records = [json.loads(x) for x in run("stream", top, "--no-follow", "--json").splitlines()]
    assert [r["status"] for r in records if r["kind"] == "end"] == ["done"]
    assert [r["best"] for r in records if r["kind"] == "eval"] == [0.125]


t.main()
