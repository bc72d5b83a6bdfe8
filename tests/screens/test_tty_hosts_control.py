#!/usr/bin/env python3
"""What the workbench asks of a host on a pseudo-terminal: a run is started there from the form, stopped, resumed and compared, and
a trace of its model is saved here.  A script stands in for ssh."""
import os
import sys
import time

import test_tty as kit
import test_tty_hosts as hosts
from records import frame, pack
from test_tty import Tty, check


def press(t, keys):
    os.write(t.fd, keys.encode())
    t.read(0.1, 0.5)  # a live run never rests


def shows(t, what, seconds=20):
    kit.wait(lambda: what in t.text(), seconds, t, "not shown: %s" % what)


def connected(folder, *words, names=("box1",), **env):
    t = Tty([*words, *["%s:%s/%s" % (n, kit.TMP, folder) for n in names]], env=dict({"DEPTHSCOPE_SSH": hosts.stand_in()}, **env))
    for n in names:
        kit.wait(lambda: "%s:" % n in t.text() and t.text().count(" up ") == len(names), 20, t, "no line to " + n)
    return t


def preset():
    """What is quick enough for a test, as a file of settings."""
    path = os.path.join(kit.TMP, "of-a-file.yaml")
    with open(path, "w") as f:
        values = dict(w.split("=", 1) for w in [*kit.t.TINY, "train.steps=100000", "train.checkpoint_every=50"])
        f.write("".join("%s: %s\n" % x for x in values.items()))
    return path


def is_live():
    return kit.t.run_json("runs", kit.TMP + "/new")[0]["status"] == "live"


def a_run_is_started_on_a_host_stopped_and_resumed():
    try:
        start_stop_and_resume()
    finally:
        kit.t.call("stop", "mine", env=dict(os.environ, DEPTHSCOPE_RUNS=kit.TMP + "/new"))


def start_stop_and_resume():
    t = connected("new")
    shows(t, "no such folder")
    press(t, "a")
    shows(t, "on box1:")
    kit.wait(lambda: "host" in t.text() and "time -" in t.text(), 10, t, "not shown")
    press(t, "jj\r\x15no-such\r")  # a preset that the host has not sent
    shows(t, "unknown preset no-such on box1")
    press(t, "\x15%s\r" % preset())
    press(t, "kk\r../out\r")
    shows(t, "expected 1 to 64")
    press(t, "\x15mine\r")
    press(t, "r")
    shows(t, "box1:mine", 60)
    shows(t, "live")
    check(sorted(os.listdir(kit.TMP + "/new")) == ["mine"], "elsewhere, too")
    press(t, "1")
    press(t, "ggX")
    shows(t, "stop box1:mine? y / n")
    row = next(i for i, line in enumerate(t.screen.display) if "y / n" in line)
    at = "%d;%d" % (t.screen.display[row].index("y / n") + 1, row + 1)
    for button in "12":  # those of the terminal's own paste and menu
        press(t, "\x1b[<%s;%sM\x1b[<%s;%sm" % (button, at, button, at))
    time.sleep(0.3)
    shows(t, "stop box1:mine? y / n")
    check(is_live(), "another button of the mouse has answered")
    press(t, "\x1b[<0;%sM\x1b[<0;%sm" % (at, at))
    shows(t, "  mine      stopped", 60)  # its row, not only its records
    press(t, "c")
    shows(t, "new run from preset quick on box1")  # the other one is of a file
    press(t, "qy")
    shows(t, "  mine      stopped")
    press(t, "ggR")
    shows(t, "resume mine from")
    kit.wait(lambda: "newest: step" in t.text() and "as a new run" in t.text(), 10, t, "not shown")
    press(t, "\r")
    kit.wait(is_live, 60, t, "it is not resumed")
    t.close()
    check(is_live(), "the run ended with the workbench")


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
        press(t, ":compare %s %s\r" % (a, b))
        shows(t, "text 1/")  # recorded ones
        press(t, "ione two\r")
        shows(t, " ready", 60)
        shows(t, "cells differ")
        kit.wait(lambda: "A %s" % os.path.basename(a) in t.text() and "B %s" % b in t.text(), 10, t, "not shown")
        title = next(l for l in t.text().split("\n") if "B %s" % b in l)
        check(title.count(" ms ") == 2 - (a[0] == "/"), "no latency: " + title)
        t.resize(24, 150)
        shows(t, "mean KL")
        kit.wait(lambda: ("mean KL at least" in t.text()) == (not whole), 10, t, "not shown")
        t.resize(24, 80)
        shows(t, "cells differ")
    press(t, ":open box1:m2\r")
    press(t, ":generate\r")
    press(t, "ione two\r")
    shows(t, "generated")
    kit.wait(lambda: "box1:m2" in t.text() and " ms " in t.text(), 10, t, "no latency")
    press(t, "S")
    shows(t, "saved;")
    t.close()
    check(os.listdir("exports") == ["box1-m2-trace-1.mp"], os.listdir("exports"))
    check("2 tokens" not in kit.t.run("inspect", "exports/box1-m2-trace-1.mp") and "1 probe" in kit.t.run("inspect", "exports/box1-m2-trace-1.mp"), "no trace")
    check(sorted(os.listdir(kit.TMP + "/several")) == ["m1", "m2"] and "exports" not in os.listdir(kit.TMP + "/several/m2"), "written there")


def a_host_that_starts_no_runs_says_so_in_the_form():
    """An agent of before there was such a request is not asked: it would never answer."""
    script = os.path.join(kit.TMP, "old.sh")
    for name, version in (("box1", "0.0.1"), ("box2", "Python 3.11.2")):
        with open("%s/agent-%s" % (kit.TMP, name), "wb") as f:
            f.write(frame(1, pack(dict(kind="agent", step=0, time=time.time(), protocol=1, version=version))) + frame(2, pack(dict(kind="listed", step=0, time=time.time()))))
    with open(script, "w") as f:
        f.write('#!/bin/sh\neval name=\\${$(($#-1))}\ncat %s/agent-$name; exec sleep 100\n' % kit.TMP)
    os.chmod(script, 0o755)
    for name, said in (("box1", "depthscope 0.0.1 there starts no runs"), ("box2", "box2 has no depthscope")):
        t = Tty(["%s:runs" % name], env={"DEPTHSCOPE_SSH": script})
        shows(t, " up ")
        press(t, "a")
        shows(t, "on %s:runs" % name)
        press(t, "r")
        shows(t, said)
        t.close()


if __name__ == "__main__":
    if not kit.pyte:
        print("SKIP test_tty_hosts_control: python3-pyte is not installed, and every check reads the screen")
        print("test_tty_hosts_control: 0 passed, 0 failed, 1 skipped")
        sys.exit(0)
    kit.main((a_host_that_starts_no_runs_says_so_in_the_form, a_run_is_started_on_a_host_stopped_and_resumed, models_of_hosts_are_compared_and_their_traces_saved_here))
