#!/usr/bin/env python3
"""The workbench over three real servers of ssh: lists, a run that trains there, its commands, and lines that are lost in different ways."""
import fcntl
import glob
import os
import re
import signal
import subprocess
import sys
import time

import test_tty as kit
from test_tty import Log, Tty, check, wait
from test_tty_hosts import run_at, steps_in

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import sshd  # noqa: E402
import t  # noqa: E402


def needs_screen():
    if not kit.pyte:
        raise t.Skip("pyte is not installed: what the screen shows is not checked")


def line_of(tty, host):
    return next((l for l in tty.text().split("\n") if l.strip().startswith(host + ":")), "")


def line_with(tty, words):
    """The last line of the screen that holds them."""
    return next((l for l in reversed(tty.text().split("\n")) if words in l), "")


def mirror_of(tty, log):
    """The copy here of a log at the far end: that of the same run."""
    for path in glob.glob("%s/%d/depthscope/hosts/.host.*/r*/*/log.mp" % (kit.STATE, Tty.count)):
        steps = steps_in(path)
        if steps and open(path, "rb").read().find(log.encode()) >= 0:
            return steps
    return []


def wait_until(condition, seconds, tty, what):
    """Seconds until it holds."""
    start = time.time()
    wait(condition, seconds, tty, what)
    return time.time() - start


def open_run(tty, name, log):
    """From the list, by the place of its line."""
    wait(lambda: name in tty.text(), 10, tty, name + " is not listed")
    rows = [l for l in tty.text().split("\n") if "edp" in l and " run-" in l]
    at = next(i for i, l in enumerate(rows) if name in l)
    tty.keys("gg" + "j" * at, 0.3)
    tty.keys("\r", 0.3)
    wait(lambda: mirror_of(tty, name), 10, tty, name + " is not followed")
    tty.keys("1", 0.3)


def put(logs, n):
    for log in logs.values():
        for _ in range(n):
            log.last += 1
            log.put("metric", log.last, loss=5.0 - 1e-3 * log.last)


def three_hosts_of_which_lines_are_lost():
    """A run is followed at each; what is shown afterwards is the log there, and nobody else notices."""
    needs_screen()
    if not t.LONG:
        print("  (T_LONG=1: an agent that stands still, and a server that is away for longer than that takes to be noticed)")
    with sshd.Site("abc") as site:
        logs = {n: run_at(n, "run-" + n, 50) for n in "abc"}
        for log in logs.values():
            log.last = 50
        tty = Tty(["%s:%s/%s" % (n, kit.TMP, n) for n in "abc"], env={"DEPTHSCOPE_SSH": site.ssh})
        try:
            wait(lambda: all("run-" + n in tty.text() and " up " in line_of(tty, n) for n in "abc"), 20, tty, "the lists")
            for n in "abc":
                open_run(tty, "run-" + n, logs[n])

            def is_whole(names="abc"):
                return all(mirror_of(tty, "run-" + n) == list(range(logs[n].last + 1)) for n in names)

            def lost(name):
                return wait_until(lambda: "reconnecting" in line_of(tty, name), 20, tty, name + " is not said to be lost")

            def back(name):
                return wait_until(lambda: " up " in line_of(tty, name) and is_whole(name), 10, tty, name + " does not come back")

            agent = site.host["c"].agents()
            check(len(agent) == 1, "agents at c: %s" % agent)
            if t.LONG:
                os.kill(agent[0], signal.SIGSTOP)
            stood = time.time()
            site.host["b"].stop()
            put(logs, 20)
            print("  sshd ends: said after %.1f s" % lost("b"))
            wait(lambda: is_whole("a"), 5, tty, "a stands still")
            check(" up " in line_of(tty, "a"), "a is affected\n" + tty.text())
            os.kill(site.pid("a"), signal.SIGKILL)
            put(logs, 20)
            seen, took = lost("a"), back("a")
            print("  ssh is killed: said after %.1f s, whole %.1f s later" % (seen, took))
            if t.LONG:
                lost("c")
                seen, took = time.time() - stood, back("c")
                print("  the agent stands still: said after %.1f s, whole %.1f s later" % (seen, took))
                os.kill(agent[0], signal.SIGCONT)
                check(" up " in line_of(tty, "a") and "reconnecting" in line_of(tty, "b"), tty.text())
                wait(lambda: " silent " in line_with(tty, "run-b"), 5, tty, "a run that cannot be seen is shown as live")
                check("heard 1" in line_of(tty, "b"), "the age of what is shown of b is not said\n" + tty.text())
            put(logs, 20)
            site.host["b"].start()
            print("  sshd starts after %.0f s: whole %.1f s later" % (time.time() - stood, back("b")))
            put(logs, 20)
            wait(is_whole, 5, tty, "a gap or a double: %s" % [mirror_of(tty, "run-" + n)[-130:] for n in "abc"])
            wait(lambda: len(site.host["c"].agents()) == 1, 5, tty, "the old agent stays")
        finally:
            tty.close()


def a_run_that_trains_there_obeys_and_answers():
    needs_screen()
    with sshd.Site("a") as site:
        folder = os.path.join(kit.TMP, "trained")
        os.makedirs(folder)
        there = site.run("a", "cd %s && exec depthscope train %s train.steps=100000 threads=1 --run live --quiet" % (folder, " ".join(t.TINY)),
                         stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        tty = Tty(["a:%s/runs" % folder], env={"DEPTHSCOPE_SSH": site.ssh})
        try:
            wait(lambda: "● live" in tty.text(), 20, tty, "it is not listed")
            os.write(tty.fd, b"gg\r")

            def send(line, answer):
                os.write(tty.fd, (":" + line + "\r").encode())
                wait(lambda: answer in tty.text(), 10, tty, "no answer to " + line)

            wait(lambda: "Monitor  ● live" in tty.text(), 10, tty, "it is not followed")
            send("pause", "pause: ok pause")
            wait(lambda: "◐ paused" in tty.text(), 5, tty, "it is not shown as paused")
            step = re.search("step ([0-9,]+)/", tty.text()).group(1)
            send("set train.lr 0.001", "set train.lr 0.001: ok train.lr 0.001")
            send("probe", "probe: ok probe")
            send("checkpoint", "checkpoint: ok checkpoint")

            def saved():
                found = glob.glob(folder + "/runs/live/checkpoints/step-*/manifest.json")
                return [int(re.search(r"step-(\d+)", x).group(1)) for x in found]
            wait(lambda: max(saved(), default=-1) >= int(step.replace(",", "")), 20, tty, "no checkpoint of step %s there" % step)
            with open(folder + "/runs/live/live.json") as f:
                check('"train.lr"' in f.read(), "the setting is not kept there")
            send("resume", "● live")
            send("stop", "■ stopped")
            check(there.wait(10) == 0, "the run there did not end")
        finally:
            tty.close()
            there.kill()
            there.wait()


def one_run_shows_the_same_in_every_way():
    """As a file, through a pipe, through ssh and by the agent: the Monitor, also as it grows; and the current values of a log so long that the agent sends its extremes."""
    needs_screen()
    with sshd.Site("a") as site:
        for steps in (150, 3000):
            folder = os.path.join(kit.TMP, "ways%d" % steps)
            log = Log(folder + "/run-w/log.mp")
            fcntl.flock(log.file, fcntl.LOCK_EX)  # as a live run does
            log.put("head", 0, format=1, run="run-w", run_id="ways", method="edp", layers=8, steps=4000, seed=1, config={"edp.target_ratio": "0.7"})
            for i in range(1, steps + 1):
                log.step(i)
            ssh = "ssh -F %s/config -T a depthscope stream %s/run-w" % (site.folder, folder)
            env = {"DEPTHSCOPE_SSH": site.ssh}
            ways = {"file": Tty([folder + "/run-w"]), "pipe": Tty([], shell='"$0" stream %s/run-w | "$0" -' % folder), "ssh": Tty([], shell=ssh + ' | "$0" -'),
                    "agent": Tty(["a:" + folder], env=env)}
            try:
                wait(lambda: " run-w " in ways["agent"].text(), 20, ways["agent"], "it is not listed")
                os.write(ways["agent"].fd, b"gg\r")

                def same(view, part, choose=lambda lines: lines):
                    end, shown = time.time() + 10 * t.SLOW, {}
                    for tty in ways.values():
                        os.write(tty.fd, view)
                    while time.time() < end:
                        for name, tty in ways.items():
                            tty.read(0.02, 0.1)
                            shown[name] = choose(tty.text().split("\n")[2:-1]) if part in tty.text() else None
                        if shown["file"] and all(x == shown["file"] for x in shown.values()):
                            return
                    check(0, "%s, %d steps, %s:\n%s" % (view, steps, part, "\n".join("\n".join([k] + (x or ["?"])) for k, x in shown.items() if x != shown["file"] or k == "file")))

                titles = (lambda lines: [l for l in lines if re.search("loss [0-9]|lr [0-9]|flops [0-9]|budget", l)]) if steps > 1000 else lambda lines: lines
                same(b"2", "› Monitor", titles)
                for i in range(1, 8):
                    log.step(steps + i)
                same(b"2", "{:,}/4,000".format(steps + 7), titles)
            finally:
                for name, tty in ways.items():
                    if name in ("pipe", "ssh"):  # a stream of a live run has nothing to write that would end it
                        os.killpg(tty.pid, signal.SIGTERM)
                    tty.close()


if __name__ == "__main__":
    kit.main((one_run_shows_the_same_in_every_way, a_run_that_trains_there_obeys_and_answers, three_hosts_of_which_lines_are_lost))
