"""Logs made and read by the libraries that define them, for test_foreign_libraries.py.

foreign_libraries.py make tensorboard|wandb DIR    logs of the library's own writers below DIR
foreign_libraries.py read tensorboard DIR          JSON: {tag: [[step, time, value], ...]} as the library reads it
foreign_libraries.py read wandb DIR                the same, and {"config": {key: JSON text}}, by the library's messages

Exit status 77: no such package.
"""
import glob
import json
import math
import os
import struct
import sys
import time
import zlib

VALUES = [2.75, 0.1, 1e-30, -3.4e38, float("nan"), float("inf"), 0.0, 1 / 3]


def make_tensorboard(top):
    import numpy
    from torch.utils.tensorboard import SummaryWriter

    w = SummaryWriter(os.path.join(top, "torch"), max_queue=1000)
    for step, x in enumerate(VALUES * 40):
        w.add_scalar("Loss/train", x, step)
        w.add_scalar("double", x, step, new_style=True, double_precision=True)
        w.add_scalar("float", x, step, new_style=True)
        if step % 10 == 0:
            w.add_scalar("Loss/val \u00e9", x + 1, step, walltime=1.5e9 + step)
            w.add_histogram("weights", numpy.arange(10.0), step)
            w.add_image("picture", numpy.zeros((3, 4, 4), dtype=numpy.uint8), step)
    w.add_text("config", json.dumps({"lr": 0.1, "model": {"dim": 64}}))
    w.add_scalars("together", {"a": 1.0, "b": 2.0}, 3)  # folders, and so runs, of their own
    w.close()

    w = SummaryWriter(os.path.join(top, "restart"))  # a second writer takes over at step 20
    for step in range(30):
        w.add_scalar("loss", step, step)
    w.close()
    time.sleep(1.1)  # the files are read in the order of the seconds in their names
    w = SummaryWriter(os.path.join(top, "restart"), purge_step=20)
    for step in range(20, 40):
        w.add_scalar("loss", -step, step)
    w.close()

    w = SummaryWriter(os.path.join(top, "hparams"))
    w.add_hparams({"lr": 0.1, "name": "adamw", "bias": True}, {"accuracy": 0.5}, run_name=".")
    w.close()

    from tensorboard.summary import Writer  # the writer that needs neither torch nor TensorFlow
    w = Writer(os.path.join(top, "writer"))
    for step, x in enumerate(VALUES * 3):
        w.add_scalar("loss", x, step, wall_time=1.6e9 + step)
    w.close()


def read_tensorboard(top):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.util import tensor_util

    events = EventAccumulator(top, size_guidance={"scalars": 0, "tensors": 0, "images": 1, "histograms": 1})
    events.Reload()
    out = {}
    for tag in events.Tags()["scalars"]:
        out[tag] = [[e.step, e.wall_time, float(e.value)] for e in events.Scalars(tag)]
    for tag in events.Tags()["tensors"]:
        if events.SummaryMetadata(tag).plugin_data.plugin_name in ("scalars", ""):
            out[tag] = [[e.step, e.wall_time, float(tensor_util.make_ndarray(e.tensor_proto))] for e in events.Tensors(tag)]
    return out


def make_wandb(top):
    import wandb

    os.environ["WANDB_SILENT"] = "true"
    run = wandb.init(mode="offline", project="moe", name="made-by-wandb", dir=top,
                     config={"lr": 3e-4, "betas": [0.9, 0.95], "model": {"dim": 64, "tied": True}})
    for step in range(300):
        run.log({"loss": 2 / (step + 1), "train": {"acc": step / 300, "deep": {"x": step}}, "big": 2 ** 60 + 1, "flag": step % 2 == 0,
                 "odd": VALUES[step % len(VALUES)], "text": "hello", "list": [1, 2], "pad": "x" * 300})
    run.log({"histogram": wandb.Histogram([1, 2, 3]), "loss": 0.25})
    run.log({"late": 5}, step=1000)
    run.config.update({"extra": 7})
    run.summary["best"] = 0.125
    run.finish()


def frames(data):
    """The messages of a .wandb file."""
    assert data[:7] == b":W&B\xe1\xbe\x00", data[:7]
    at, message = 7, b""
    while at + 7 <= len(data):
        if 32768 - at % 32768 < 7:
            at += 32768 - at % 32768
            continue
        crc, n, kind = struct.unpack_from("<IHB", data, at)
        part = data[at + 7:at + 7 + n]
        assert zlib.crc32(bytes([kind]) + part) == crc, at
        at += 7 + n
        message = part if kind in (1, 2) else message + part
        if kind in (1, 4):
            yield message


def flat(name, value):
    if isinstance(value, dict):
        for key, item in value.items():
            yield from flat(name + "." + key, item)
    elif isinstance(value, (int, float)) or value in ("NaN", "Infinity", "-Infinity"):
        yield name, float(value)


def item_name(item):
    return ".".join(item.nested_key) or item.key


def read_wandb(top):
    from wandb.proto.wandb_internal_pb2 import Record

    out, config = {}, {}
    for message in frames(open(glob.glob(os.path.join(top, "*.wandb"))[0], "rb").read()):
        record = Record.FromString(message)
        for item in list(record.config.update) + list(record.run.config.update):
            config[item_name(item)] = item.value_json
        items = [(item_name(i), json.loads(i.value_json)) for i in record.history.item]
        media = [name[:-len("._type")] for name, _ in items if name.endswith("._type")]
        when = dict(items).get("_timestamp", math.nan)
        for name, value in items:
            if not name.startswith("_") and not any(name.startswith(m + ".") for m in media):
                for path, x in flat(name, value):
                    out.setdefault(path, []).append([record.history.step.num, when, x])
        seconds = record.stats.timestamp.seconds + 1e-9 * record.stats.timestamp.nanos
        for item in record.stats.item:
            out.setdefault("system/" + item.key, []).append([None, seconds, float(json.loads(item.value_json))])
    out["config"] = config
    return out


def main():
    what, library, top = sys.argv[1:]
    result = globals()["%s_%s" % (what, library)](top)
    if result is not None:
        print(json.dumps(result))


try:
    main()
except ImportError as x:
    print(x, file=sys.stderr)
    sys.exit(77)
