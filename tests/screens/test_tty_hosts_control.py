#!/usr/bin/env python3
"""What the workbench asks of a host on a pseudo-terminal: a run is started there from the form, stopped, resumed and compared, and
a trace of its model is saved here.  A script stands in for ssh."""
import os
import sys

import test_tty as kit
import test_tty_hosts as hosts
from test_tty import Tty, check

def shows(t, what, seconds=20):
    hosts.wait(lambda: what in t.text(), seconds, t, "not shown: %s" % what)


def connected(folder, *words, names=("box1",), **env):
    t = Tty([*words, *["%s:%s/%s" % (n, kit.TMP, folder) for n in names]], env=dict({"DEPTHSCOPE_SSH": hosts.stand_in()}, **env))
    for n in names:
        hosts.wait(lambda: "%s:" % n in t.text() and t.text().count(" up ") == len(names), 20, t, "no line to " + n)
    return t


def preset():
    """What is quick enough for a test, as a file of settings."""
    path = os.path.join(kit.TMP, "of-a-file.yaml")
    with open(path, "w") as f:
        values = dict(w.split("=", 1) for w in [*kit.t.TINY, "train.steps=100000", "train.checkpoint_every=50"])
        f.write("".join("%s: %s\n" % x for x in values.items()))
    return path


def a_run_is_started_on_a_host_stopped_and_resumed():
    t = connected("new")
    shows(t, "no such fo")
    t.keys("a", 0.5)
    shows(t, "on box1:")
    check("host" in t.text() and "time -" in t.text(), t.text())
    t.keys("jj\r\x15no-such\r", 0.5)  # a preset that the host has not sent
    check("unknown preset no-such on box1" in t.text().replace("\n", " "), t.text())
    t.keys("\x15%s\r" % preset(), 0.5)
    t.keys("kk\r../out\r", 0.5)
    check("expected 1 to 64" in t.text(), t.text())
    t.keys("\x15mine\r", 0.5)
    t.keys("r", 1)
    shows(t, "box1:mine", 60)
    shows(t, "live")
    check(sorted(os.listdir(kit.TMP + "/new")) == ["mine"], "elsewhere, too")
    t.keys("1", 0.5)
    t.keys("ggX", 0.5)
    shows(t, "stop box1:mine? y / n")
    t.keys("y", 0.5)
    shows(t, "stopped", 60)
    t.keys("c", 0.5)
    shows(t, "new run from preset")
    check("from preset quick on box1" in t.text(), "a preset that the host has not:\n" + t.text())
    t.keys("qy", 0.5)
    shows(t, " mine ")
    t.keys("ggR", 0.5)
    shows(t, "resume mine from")
    check("newest: step" in t.text() and "as a new run" in t.text(), t.text())
    t.keys("\r", 0.5)
    hosts.wait(lambda: kit.t.run_json("runs", kit.TMP + "/new")[0]["state"] == "live", 60, t, "it is not resumed")
    t.close()
    check(kit.t.run_json("runs", kit.TMP + "/new")[0]["state"] == "live", "the run ended with the workbench")
    kit.t.run("stop", "mine", DEPTHSCOPE_RUNS=kit.TMP + "/new")


def runs(folder, *seeds):
    for seed in seeds:
        kit.t.run("train", *kit.t.TINY, "seed=%d" % seed, "--run", "m%d" % seed, "--quiet", DEPTHSCOPE_RUNS=os.path.join(kit.TMP, folder))


def models_of_hosts_are_compared_and_their_traces_saved_here():
    runs("several", 1, 2)
    runs("here", 3)
    os.chdir(kit.TMP)  # where a trace is saved
    t = connected("several", os.path.join(kit.TMP, "here"), names=("box1", "box2"))
    shows(t, "m3")
    for a, b, whole in (("box1:m1", "box1:m2", 1), ("box1:m1", "box2:m2", 0), (kit.TMP + "/here/m3", "box2:m1", 0)):
        t.keys(":compare %s %s\r" % (a, b), 1)
        t.keys("ione two\r", 0.5)
        shows(t, " ready", 60)
        shows(t, "cells differ")
        check("A %s" % os.path.basename(a) in t.text() and "B %s" % b in t.text(), t.text())
        t.resize(24, 150)
        t.read(1)
        check(("mean KL at least" in t.text()) == (not whole) and "mean KL" in t.text(), t.text())
        t.resize(24, 80)
        t.read(1)
    t.keys(":open box1:m2\r", 1)
    t.keys(":generate\r", 0.5)
    t.keys("ione two\r", 0.5)
    shows(t, "generated")
    check("box1:m2" in t.text() and " ms " in t.text(), "no latency:\n" + t.text())
    t.keys("S", 0.5)
    shows(t, "saved;")
    t.close()
    check(os.listdir("exports") == ["box1-m2-trace-1.mp"], os.listdir("exports"))
    check("2 tokens" not in kit.t.run("inspect", "exports/box1-m2-trace-1.mp") and "1 probe" in kit.t.run("inspect", "exports/box1-m2-trace-1.mp"), "no trace")
    check(sorted(os.listdir(kit.TMP + "/several")) == ["m1", "m2"] and "exports" not in os.listdir(kit.TMP + "/several/m2"), "written there")


if __name__ == "__main__":
    if not kit.pyte:
        print("SKIP test_tty_hosts_control: python3-pyte is not installed, and every check reads the screen")
        print("test_tty_hosts_control: 0 passed, 0 failed, 1 skipped")
        sys.exit(0)
    kit.main((a_run_is_started_on_a_host_stopped_and_resumed, models_of_hosts_are_compared_and_their_traces_saved_here))
