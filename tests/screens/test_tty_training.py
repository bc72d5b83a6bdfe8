#!/usr/bin/env python3
"""Timeline and Pareto on a pseudo-terminal: bytes of a cursor step, of playing and of a live run, and
a run of ten thousand probes."""
import math
import os
import random
import time

import test_tty as kit
from test_tty import Log, Tty, check

LAYERS, TOKENS = 8, 64


def head(log, name, method="edp", seed=1, steps=100000):
    log.put("head", 0, format=1, run=name, method=method, layers=LAYERS, steps=steps, seed=seed, flops_dense=2e6,
            config={"model.method": method, "seed": str(seed)}, always_on=[1] + [0] * (LAYERS - 2) + [1])


def probe(log, step, share=0.6):
    rng = random.Random(step)
    run = [[1 if layer in (0, LAYERS - 1) or rng.random() < share else 0 for _ in range(TOKENS)] for layer in range(LAYERS)]
    log.put("probe", step, index=0, name="fixture", routing="causal", layers=LAYERS, ids=list(range(TOKENS)),
            text=["w%d " % i for i in range(TOKENS)], run=run, flops_dense=2e6,
            token={"class": [float(i % 3) for i in range(TOKENS)]})


def probed_log(name, probes, every=10):
    path = os.path.join(kit.TMP, name + ".mp")
    log = Log(path)
    head(log, name)
    for i in range(probes):
        probe(log, i * every)
    return path, log


def a_cursor_step_in_the_timeline_is_small():
    path, log = probed_log("steps", 40)
    log.put("end", 390, status="done", text="")
    for rows, cols in ((24, 80), (50, 200)):
        t = Tty(["--view", "timeline", path], rows=rows, cols=cols)
        t.read(1.0)
        t.keys("hhjj", 0.5)
        costs, rests = [], []
        for k in "hhlljjkk":
            costs.append(len(t.keys(k, 0.05)))
            rests.append(len(t.read(0.3)))
        t.close()
        print("  %s B per cursor step at %dx%d; %s B when it rests" % (costs, cols, rows, rests))
        kit.are_small(costs)


def a_cursor_step_in_pareto_is_small():
    paths = []
    for i in range(9):
        method = ("dense", "edp", "mod")[i % 3]
        paths.append(os.path.join(kit.TMP, "trade-%d.mp" % i))
        log = Log(paths[-1])
        head(log, "trade-%d" % i, method, i // 3)
        log.put("eval", 100, task="final", routing="causal", loss=2.0 + 0.1 * (i % 3) + 0.01 * (i // 3), flops_ratio=1.0 - 0.15 * (i % 3))
        log.put("end", 100, status="done", text="")
    for rows, cols in ((24, 80), (50, 200)):
        t = Tty(["--view", "pareto"] + paths, rows=rows, cols=cols)
        t.read(1.0)
        if kit.pyte:
            check("n" in t.text() and "on the front" in t.text(), t.text())
        t.keys("l", 0.4)
        costs, rests = [], []
        for k in "lhlh":
            costs.append(len(t.keys(k, 0.05)))
            rests.append(len(t.read(0.3)))
        t.close()
        print("  %s B per cursor step at %dx%d; %s B when it rests" % (costs, cols, rows, rests))
        kit.are_small(costs)


def a_live_run_costs_little_and_is_followed():
    path, log = probed_log("live", 20)
    t = Tty(["--view", "timeline", path])
    t.read(1.0)
    start, steps = len(t.out), 20
    for i in range(191, 191 + steps):
        log.step(i)
        t.read(0.3)
    cost = (len(t.out) - start) / steps
    start = len(t.out)
    for i in range(4):
        probe(log, 220 + 10 * i)
        t.read(0.5)
    each = (len(t.out) - start) / 4
    if kit.pyte:
        check("step 250" in t.text(), "the newest probe is not shown:\n" + t.text())
    t.keys("h", 0.5)
    probe(log, 300)
    t.read(0.6)
    if kit.pyte:
        check("step 240" in t.text() and "probe 23/25" in t.text(), "the cursor moved with new data:\n" + t.text())
    t.close()
    print("  %.0f B per new step, %.0f B per new probe" % (cost, each))
    check(cost <= 1000, "%.0f B per step" % cost)


def the_table_of_several_runs_follows_them():
    paths = [os.path.join(kit.TMP, "table-%d.mp" % i) for i in range(3)]
    logs = [Log(path) for path in paths]
    for i, log in enumerate(logs):
        head(log, "table-%d" % i, ("dense", "edp", "mod")[i])
        log.put("eval", 100, task="final", routing="causal", loss=2.25 + i, flops_ratio=1.0 - 0.1 * i)
    t = Tty(["--view", "compare", *paths], rows=24, cols=100)
    if kit.pyte:
        kit.wait(lambda: "3.25" in t.text(), 10, t, "the table")
    logs[1].put("eval", 200, task="final", routing="causal", loss=7.75, flops_ratio=0.9)
    if kit.pyte:
        kit.wait(lambda: "7.75" in t.text() and "3.25" not in t.text(), 20, t, "the table made again")
    t.close()


def play_runs_to_the_newest_probe():
    path, log = probed_log("play", 12)
    log.put("end", 110, status="done", text="")
    t = Tty(["--view", "timeline", path])
    t.read(1.0)
    t.keys(">>>p", 0.1)  # 32 probes a second
    t.read(0.5, 4.0)
    if kit.pyte:
        check("newest of 12" in t.text(), t.text())
    t.close()


def ten_thousand_probes_open_and_move_at_once():
    path = os.path.join(kit.TMP, "many.mp")
    log = Log(path)
    head(log, "many")
    for i in range(10000):
        log.put("probe", i, index=0, name="fixture", layers=2, ids=[1, 2, 3, 4], text=["a", "b", "c", "d"],
                run=[[1, 1, 1, 1], [i & 1, i >> 1 & 1, i >> 2 & 1, int(math.sin(i / 900) > 0)]])
    log.put("end", 10000, status="done", text="")
    t = Tty(["--view", "timeline", path])
    t.read(1.5)
    t.keys("h", 0.5)
    start = time.time()
    for k in "hhhhhhhhhh":
        os.write(t.fd, k.encode())
        os.read(t.fd, 65536)
    took = (time.time() - start) / 10
    text = t.text() if kit.pyte else ""
    t.close()
    print("  %.1f ms per cursor step over 10,000 probes" % (1000 * took))
    check(took < 0.1, "%.3f s per cursor step" % took)
    if kit.pyte:
        check("step" in text and "layer" in text, text)


if __name__ == "__main__":
    kit.main((a_cursor_step_in_the_timeline_is_small, a_cursor_step_in_pareto_is_small, a_live_run_costs_little_and_is_followed,
              the_table_of_several_runs_follows_them,
              play_runs_to_the_newest_probe, ten_thousand_probes_open_and_move_at_once))
