#!/usr/bin/env python3
"""The workbench over hosts on a pseudo-terminal: a dropped line, what is sent while it rests, and what it leaves.  A script stands in
for ssh."""
import glob
import os
import shutil
import signal
import struct
import sys
import time

import test_tty as kit
from test_tty import PROGRAM, Log, Tty, check, wait

sys.path.insert(0, os.path.join(kit.t.ROOT, "src", "python"))
from depthscope import _msgpack  # noqa: E402


def stand_in():
    far = os.path.join(kit.TMP, "far")
    os.makedirs(far, exist_ok=True)
    if not os.path.exists(far + "/depthscope"):
        os.symlink(PROGRAM, far + "/depthscope")
    path = os.path.join(kit.TMP, "ssh.sh")
    with open(path, "w") as f:
        f.write('#!/bin/sh\neval name=\\${$(($#-1))}\nfor last; do :; done\n[ ! -e %s/down ] || { echo "No route to host" >&2; exit 255; }\n'
                'echo $$ >%s/pid-$name\nPATH="%s:$PATH" exec sh -c "$last"\n' % (kit.TMP, kit.TMP, far))
    os.chmod(path, 0o755)
    return path


def run_at(folder, name, steps):
    log = Log(os.path.join(kit.TMP, folder, name, "log.mp"))
    log.put("head", 0, run=name, run_id=folder + name, method="edp", layers=2, steps=10 ** 6)
    for i in range(1, steps + 1):
        log.put("metric", i, loss=5.0 - 1e-3 * i, tok_s=100.0)
    return log


def steps_in(path):
    """Steps of the records in a log, in order."""
    out = []
    with open(path, "rb") as f:
        data = f.read()
    while len(data) >= 18:
        n = struct.unpack(">I", data[1:5])[0] + 6
        out.append(_msgpack.unpack(data[18:n])["step"])
        data = data[n:]
    return out


def mirror(t):
    found = glob.glob("%s/%d/depthscope/hosts/.host.*/r0/*/log.mp" % (kit.STATE, Tty.count))
    return [p for p in found if os.path.getsize(p)]


def a_dropped_line_comes_back_without_a_gap_or_a_double():
    log, other = run_at("one", "first", 300), run_at("two", "second", 10)
    t = Tty(["box1:%s/one" % kit.TMP, "box2:%s/two" % kit.TMP], env={"DEPTHSCOPE_SSH": stand_in()})
    wait(lambda: os.path.exists(kit.TMP + "/pid-box1") and os.path.exists(kit.TMP + "/pid-box2"), 10, t, "no host is connected")
    if kit.pyte:
        wait(lambda: "first" in t.text() and "second" in t.text(), 10, t, "the runs are not listed")
        wait(lambda: "box1:" in t.text() and t.text().count(" up ") == 2, 10, t, "no line per host")
    t.read(3)
    other.put("metric", 11, loss=1.0)  # the newest is first
    time.sleep(0.1)
    log.put("metric", 301, loss=1.0)
    t.read(6)
    t.keys("gg", 0.3)
    t.keys("\r", 1)
    wait(lambda: any(301 in steps_in(p) or 11 in steps_in(p) for p in mirror(t)), 10, t, "nothing is mirrored")
    path = mirror(t)[0]
    mine, name, last = (log, "box1", 301) if 301 in steps_in(path) else (other, "box2", 11)
    open(kit.TMP + "/down", "w").close()
    with open("%s/pid-%s" % (kit.TMP, name)) as f:
        os.kill(int(f.read()), signal.SIGKILL)
    for i in range(1, 51):
        mine.put("metric", last + i, loss=1.0)
    t.keys("1", 2)
    if kit.pyte:
        wait(lambda: "reconnecting" in t.text() and "No route to host" in t.text() and "  r0 " not in t.text(), 10, t, "the loss of the line is not said")
        check(t.text().count(" up ") == 1, "the other host is affected:\n" + t.text())
    check(steps_in(path)[-1] == last, "records without a line")
    os.remove(kit.TMP + "/down")
    wait(lambda: last + 50 in steps_in(path), 20, t, "it does not go on")
    check(steps_in(path) == list(range(last + 51)), "a gap or a double: %s" % steps_in(path)[-60:])
    t.close()
    check(not glob.glob("%s/%d/depthscope/hosts/.host.*" % (kit.STATE, Tty.count)), "the mirror is left behind")


def a_run_that_is_named_is_opened():
    run_at("named", "first", 20)
    run_at("named", "second", 30)
    t = Tty(["box1:%s/named/second" % kit.TMP], env={"DEPTHSCOPE_SSH": stand_in()})
    wait(lambda: mirror(t) and steps_in(mirror(t)[0])[-1] == 30, 10, t, "the run is not opened")
    t.read(1)
    if kit.pyte:
        wait(lambda: "box1:second" in t.text() and "step 30" in t.text(), 10, t, "its Monitor is not shown")
    t.close()


def probes_are_fetched_by_the_views_that_show_them():
    log = run_at("probed", "first", 20)
    for step in (10, 20):
        log.put("probe", step, layers=2, text=["alpha", "beta", "gamma%d" % step], run=[1, 1, 1, 0, 1, 0])
    t = Tty(["box1:%s/probed/first" % kit.TMP], env={"DEPTHSCOPE_SSH": stand_in()})
    wait(lambda: mirror(t) and steps_in(mirror(t)[0])[-1] == 20, 10, t, "the run is not opened")
    t.read(1)
    with open(mirror(t)[0], "rb") as f:
        check(b"gamma" not in f.read(), "a probe came without a view of it")
    t.keys("3", 1)
    if kit.pyte:
        wait(lambda: "gamma20" in t.text(), 10, t, "the probe is not shown")
        wait(lambda: "step 20" in t.text(), 10, t, "not shown")
    t.close()


def zooming_fetches_what_a_summary_leaves_out():
    run_at("long", "first", 20000)
    t = Tty(["box1:%s/long/first" % kit.TMP], env={"DEPTHSCOPE_SSH": stand_in()})
    wait(lambda: mirror(t) and 20000 in steps_in(mirror(t)[0]), 20, t, "the run is not opened")
    t.read(1)
    few = len(steps_in(mirror(t)[0]))
    t.keys("i" * 9, 1)  # 39 steps

    def neighbours():
        steps = set(steps_in(mirror(t)[0]))
        return len([s for s in steps if s + 1 in steps])
    wait(lambda: neighbours() > 30, 20, t, "the detail does not come")
    check(len(steps_in(mirror(t)[0])) < 3 * few, "the whole log came")
    if kit.pyte:
        wait(lambda: "box1:first" in t.text() and "replaced" not in t.text(), 10, t, "not shown")
        t.keys("e", 1)
        wait(lambda: "only a summary of its log is here" in t.text(), 20, t, "a figure of extremes is drawn")
    t.close()


def a_run_is_followed_through_a_bare_shell():
    log = run_at("shell", "first", 5000)  # more than 128 kB: the beginning and the end come
    far, ssh = os.path.join(kit.TMP, "bare"), os.path.join(kit.TMP, "bare.sh")
    os.makedirs(far)
    for tool in "sh stat tail head wc cat date".split():
        os.symlink(shutil.which(tool), os.path.join(far, tool))
    with open(ssh, "w") as f:
        f.write('#!/bin/sh\nfor last; do :; done\nPATH=%s exec sh -c "$last"\n' % far)
    os.chmod(ssh, 0o755)
    t = Tty(["box1:%s/shell/first" % kit.TMP], env={"DEPTHSCOPE_SSH": ssh})
    wait(lambda: mirror(t) and steps_in(mirror(t)[0])[-1] == 5000, 20, t, "the run is not opened")
    for i in range(5001, 5005):
        log.put("metric", i, loss=1.0)
    wait(lambda: steps_in(mirror(t)[0])[-1] == 5004, 20, t, "the run is not followed")
    steps = steps_in(mirror(t)[0])
    check(steps == sorted(set(steps)) and steps[:3] == [0, 1, 2] and steps[-500:] == list(range(4505, 5005)), "a gap or a double: %s" % steps)
    if kit.pyte:
        wait(lambda: "5,004" in t.text(), 10, t, "the newest step is not shown")
        wait(lambda: "box1:first" in t.text(), 10, t, "not shown")
    t.keys(":pause\r", 2)
    if kit.pyte:
        wait(lambda: "only logs can be read there" in t.text(), 10, t, "the command is not refused")
    t.close()


def the_model_of_a_run_elsewhere_is_stepped_through():
    run = os.path.join(kit.TMP, "three", "m")
    kit.t.run("train", *kit.t.TINY, "--run", "m", "--quiet", DEPTHSCOPE_RUNS=os.path.dirname(run))
    t = Tty(["box1:%s/three" % kit.TMP], env={"DEPTHSCOPE_SSH": stand_in()})
    wait(lambda: "  m  " in t.text() if kit.pyte else t.out.count(b"box1") > 1, 10, t, "the run is not listed")
    t.read(1)
    t.keys("gg", 0.3)
    t.keys("\r", 1)
    wait(lambda: mirror(t), 10, t, "nothing is mirrored")
    t.keys("4", 1)
    t.keys("ione two\r", 1)
    if kit.pyte:
        wait(lambda: " ready" in t.text() and "loss" in t.text(), 30, t, "the model does not answer")
        wait(lambda: "box1:m" in t.text(), 10, t, "not shown")
    t.close()


if __name__ == "__main__":
    kit.main((a_dropped_line_comes_back_without_a_gap_or_a_double, a_run_that_is_named_is_opened,
              probes_are_fetched_by_the_views_that_show_them,
              zooming_fetches_what_a_summary_leaves_out, a_run_is_followed_through_a_bare_shell,
              the_model_of_a_run_elsewhere_is_stepped_through))
