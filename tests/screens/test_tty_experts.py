#!/usr/bin/env python3
"""The Experts view on a pseudo-terminal: bytes of a cursor step and of a new record, a live collapse."""
import os
import random
import time

import test_tty as kit
from test_tty import Log, Tty, check


def head(log, layers, experts):
    log.put("head", 0, format=1, run="fixture", method="moe", layers=layers, steps=1000, experts=experts, experts_per_token=1)


def load(log, step, layers, experts, collapsed=None):
    rng = random.Random(step)
    value = [[float(rng.randint(50, 150)) for _ in range(experts)] for _ in range(layers)]
    if collapsed is not None:
        value[collapsed] = [1000.0 * (k == 5) for k in range(experts)]
    log.put("matrix", step, name="expert_load", rows=layers, cols=experts, value=value)


def made(name, layers, experts, records):
    path = os.path.join(kit.TMP, name + ".mp")
    log = Log(path)
    head(log, layers, experts)
    for i in range(records):
        load(log, 10 * (i + 1), layers, experts)
    return path, log


def a_cursor_step_is_small():
    for layers, experts in ((94, 256), (8, 16)):
        path, log = made("steps-%d" % layers, layers, experts, 3)
        log.put("end", 30, status="done", text="")
        for rows, cols in ((24, 80), (50, 200), (5, 20)):
            t = Tty(["--view", "experts", path], rows=rows, cols=cols)
            t.read(1.0)
            t.keys("ll", 0.5)
            costs, rests = [], []
            for k in "hlljjkkl":
                costs.append(len(t.keys(k, 0.05)))
                rests.append(len(t.read(0.3)))
            t.close()
            print("  %s B per cursor step, %d x %d at %dx%d; %s B when it rests" % (costs, layers, experts, cols, rows, rests))
            kit.are_small(costs)
            check(max(rests) <= 900, "%s B when the cursor rests" % rests)


def a_new_record_is_drawn_in_bounded_bytes():
    for layers, experts, most in ((94, 256, 16000), (8, 16, 8000)):
        path, log = made("live-%d" % layers, layers, experts, 3)
        t = Tty(["--view", "experts", path])
        t.read(1.0)
        costs = []
        for i in range(4):
            load(log, 40 + 10 * i, layers, experts)
            costs.append(len(t.read(0.8)))
        if kit.pyte:
            check("step 70" in t.text() and "newest of 7" in t.text(), "the newest record is not shown:\n" + t.text())
        t.keys(",", 0.5)
        load(log, 80, layers, experts)
        t.read(0.8)
        if kit.pyte:
            check("step 60" in t.text() and "record 6/8" in t.text(), "new data moved the held step:\n" + t.text())
        t.close()
        print("  %s B per new record, all %d x %d loads changed" % (costs, layers, experts))
        check(max(costs) <= most, "%s B per new record" % costs)


def a_collapse_is_seen_within_one_record():
    path, log = made("collapse", 8, 16, 2)
    t = Tty(["--view", "monitor", path])
    t.read(1.0)
    load(log, 30, 8, 16, collapsed=3)
    t.read(1.5)
    t.keys(":view log\r", 0.8)
    text = t.text() if kit.pyte else ""
    t.keys(":view experts\r", 0.8)
    map_ = t.text() if kit.pyte else ""
    t.close()
    if kit.pyte:
        check("layer 3: expert 5 takes 100 % of the tokens" in text, text)
        check("1 collapsed" in map_ and "!" in map_, map_)


def many_records_open_and_move_at_once():
    path = os.path.join(kit.TMP, "many.mp")
    log = Log(path)
    head(log, 8, 16)
    for i in range(3000):
        load(log, i + 1, 8, 16)
    log.put("end", 3000, status="done", text="")
    t = Tty(["--view", "experts", path])
    t.read(1.5)
    t.keys("l", 0.5)
    start = time.time()
    for k in "jkjkjkjkjk":
        os.write(t.fd, k.encode())
        os.read(t.fd, 65536)
    took = (time.time() - start) / 10
    text = t.text() if kit.pyte else ""
    t.close()
    print("  %.1f ms per cursor step over 3,000 records" % (1000 * took))
    check(took < 0.1, "%.3f s per cursor step" % took)
    if kit.pyte:
        check("newest of 3000" in text, text)


if __name__ == "__main__":
    kit.main((a_cursor_step_is_small, a_new_record_is_drawn_in_bounded_bytes, a_collapse_is_seen_within_one_record,
              many_records_open_and_move_at_once))
