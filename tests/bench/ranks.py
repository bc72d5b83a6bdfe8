#!/usr/bin/env python3
"""The cost model of many ranks (data/reference/SCALING.md) against training: ranks.py [what=model] [ranks=2] [layers=6] [dim=256] [batch=4]
[seq=256] [steps=6] [rounds=3] [rate=0,1000,200] [reduce=exact].  Ranks have a core each and talk by TCP over the loopback device, which `tc` shapes
to so many Mbit/s (0: as it is; others need root).  what=speed: tokens/s of as many threads of one rank and of ranks of one thread, in turns.  DEPTHSCOPE names a program of make MPI=1, MPIRUN its launcher (Open MPI)."""
import json
import os
import shutil
import subprocess
import sys
import tempfile

import side_by_side
from side_by_side import PROGRAM, Missing, median

MPIRUN = os.environ.get("MPIRUN", "mpirun")
PART, SMALL_EXCHANGES = 4 << 20, 4  # src/eval/speed/speed_ranks.c


def shape(rate):
    subprocess.run(["tc", "qdisc", "del", "dev", "lo", "root"], stderr=subprocess.DEVNULL)
    if rate:
        p = subprocess.run(["tc", "qdisc", "add", "dev", "lo", "root", "tbf", "rate", "%dmbit" % rate, "burst", "256kb", "latency", "200ms"],
                           capture_output=True, text=True)
        if p.returncode != 0:
            raise Missing("tc: %s" % (p.stderr.strip() or p.returncode))


def launch(o, *words, **more):
    env = dict(os.environ, **more, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    p = subprocess.run([MPIRUN, "-n", o["ranks"], "--bind-to", "core" if o["ranks"] != "1" else "none", "--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include", "lo",
                        PROGRAM, *words], capture_output=True, text=True, env=env, stdin=subprocess.DEVNULL)
    if p.returncode != 0:
        raise Missing(next((x for x in p.stderr.splitlines() if x.startswith("depthscope")), p.stderr[-200:]))
    return p.stdout


def constants(o):
    """Seconds per message, bytes/s of the link, bytes/s of additions."""
    rows = json.loads(launch(o, "bench", "--json", "only=ranks", "threads=1", "layers=1", "dim=64", "batch=1", "seq=32",
                             "rounds=" + o["rounds"]))["results"]
    of = {r["name"]: r["median"] for r in rows}
    return 1e-6 * of["message"], 1e9 * of["link, each direction"], 1e9 * of["addition in memory"]


def records_of(o, folder, n, pieces, *more):
    """The records of a training run."""
    run = os.path.join(folder, "run")
    words = ["model.method=dense", "model.layers=" + o["layers"], "model.dim=" + o["dim"], "model.heads=4",
             "train.batch=%d" % (int(o["ranks"]) * int(o["batch"])), "train.seq=" + o["seq"], "train.pieces=%d" % pieces,
             "train.steps=" + o["steps"], "train.layer_every=1", "train.log_every=1", "train.eval_every=100000", "train.probe_every=100000",
             "train.samples=1", "train.final_tokens=256", "train.time_rounds=0", "train.system_every=0"]
    launch(dict(o, ranks=str(n)), "train", "quick", *words, *more, "--run", "run", "--quiet", DEPTHSCOPE_RUNS=folder)
    out = subprocess.run([PROGRAM, "stream", run, "--json", "--no-follow"], capture_output=True, text=True, check=True).stdout
    shutil.rmtree(run)
    return [json.loads(x) for x in out.splitlines()]


def train(o, folder):
    """Per step: milliseconds of the slowest rank and of its waiting, bytes that a rank sends; weights, and those whose gradients are complete last."""
    records = records_of(o, folder, int(o["ranks"]), 0 if o["reduce"] == "fast" else int(o["ranks"]), "threads=1", "train.reduce=" + o["reduce"])
    steps = [r for r in records if r["kind"] == "ranks"][1:]  # the first warms up
    head = next(r for r in records if r.get("params"))
    return ([max(r["step_ms"]) for r in steps], [r["wait_ms"][r["step_ms"].index(max(r["step_ms"]))] for r in steps],
            steps[0]["bytes"][0], head["params"],
            head["params"] - head["params_non_embedding"] * (int(o["layers"]) - 1) / int(o["layers"]))


def predicted(own, weights, last, ranks, message, link, add):
    """Seconds of a step by step_of() of src/eval/speed/speed_ranks.c, of its exchange alone, and the bytes that a rank sends."""
    def sum_of(n):
        others, size = (ranks - 1) / ranks, 4 * n
        return 2 * others * size / link + 3 * others * size / add
    exchanges = 2 * -(-weights // PART) + SMALL_EXCHANGES
    return (own + exchanges * (ranks - 1) * message + max(0, sum_of(weights - last) - 0.6 * own) + sum_of(last), sum_of(weights),
            8 * weights * (ranks - 1) / ranks)


def speed(o):
    """Tokens/s of a step in several ways, in turns, and the ratio to the first."""
    n = int(o["ranks"])
    ways = [("1 rank x %d threads" % n, 1, 0, ["threads=%d" % n]),
            ("the same, train.pieces=%d" % n, 1, n, ["threads=%d" % n]),
            ("the same, train.pieces=%d" % (4 * n), 1, 4 * n, ["threads=%d" % n]),
            ("%d ranks x 1 thread, train.pieces=%d" % (n, n), n, n, ["threads=1"]),
            ("%d ranks x 1 thread, train.pieces=%d" % (n, 4 * n), n, 4 * n, ["threads=1"]),
            ("%d ranks x 1 thread, train.reduce=fast" % n, n, 0, ["threads=1", "train.reduce=fast"])]
    took = [[] for _ in ways]
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(int(o["rounds"])):
            for k, (_, ranks, pieces, words) in enumerate(ways):
                steps = [r["step_ms"] for r in records_of(o, folder, ranks, pieces, *words) if r["kind"] == "metric" and r.get("step_ms")]
                took[k].append(median(steps[1:]))
    tokens = 1e3 * n * int(o["batch"]) * int(o["seq"])
    for (name, *_), ms in zip(ways, took):
        print("%-40s %6.0f (%.0f-%.0f) tokens/s   %.2f" % (name, tokens / median(ms), tokens / max(ms), tokens / min(ms),
                                                          median([a / b for a, b in zip(took[0], ms)])))


def main():
    o = side_by_side.settings({"ranks": "2", "layers": "6", "dim": "256", "batch": "4", "seq": "256", "steps": "6", "rounds": "3",
                               "rate": "0,1000,200", "reduce": "exact", "what": "model"})
    if o["what"] == "speed":
        return speed(o)
    print("%-12s %9s %9s %9s | %10s %9s %9s | %13s %10s" % ("link", "GB/s", "own work", "exchange", "step, model", "measured", "model /",
                                                          "measured / max", "bytes /"))
    with tempfile.TemporaryDirectory() as folder:
        try:
            for rate in map(int, o["rate"].split(",")):
                shape(rate)
                message, link, add = constants(o)
                step, wait, sent, weights, last = train(o, folder)
                own = median([s - w for s, w in zip(step, wait)]) / 1e3
                model, exchange, size = predicted(own, weights, last, int(o["ranks"]), message, link, add)
                took = median(step) / 1e3
                print("%-12s %9.3g %6.0f ms %6.0f ms | %8.0f ms %6.0f ms %9.2f | %13.2f %10.2f" %
                      ("%d Mbit/s" % rate if rate else "as it is", link / 1e9, 1e3 * own, 1e3 * exchange, 1e3 * model, 1e3 * took,
                       model / took, took / max(own, exchange), sent / size), flush=True)
        finally:
            subprocess.run(["tc", "qdisc", "del", "dev", "lo", "root"], stderr=subprocess.DEVNULL)


if __name__ == "__main__":
    try:
        main()
    except Missing as x:
        sys.exit("ranks.py: %s" % x)
