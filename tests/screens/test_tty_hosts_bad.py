#!/usr/bin/env python3
"""What goes wrong with a host, on the screen: keys of a server that nobody knows, banners, agents of another version or with bad intentions,
a workbench that stands still."""
import os
import re
import select
import shlex
import signal
import sys
import threading
import time

import test_tty as kit
from test_tty import Log, Tty, check, frame, pack, wait
from test_tty_hosts import mirror, run_at, steps_in
from test_tty_hosts_link import key_to_paint
from test_tty_hosts_sshd import line_of, needs_screen

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import sshd  # noqa: E402
import t  # noqa: E402


def stand_in(name, text):
    path = os.path.join(kit.TMP, name)
    with open(path, "w") as f:
        f.write("#!/bin/sh\n" + text)
    os.chmod(path, 0o755)
    return path


def what_does_not_connect_is_one_line_and_no_prompt():
    needs_screen()
    with sshd.Site("a", known=False) as site:
        for ssh, why in ((site.ssh, "Host key verification failed"), ("/no/ssh", "No such file"), (stand_in("ends", "exit 0\n"), "the agent ended"),
                         (stand_in("noise", "while :; do echo noise noise noise; done\n"), "only other output")):
            tty = Tty(["a:/nowhere"], env={"DEPTHSCOPE_SSH": ssh})
            try:
                wait(lambda: why in line_of(tty, "a") and " failed " in line_of(tty, "a"), 10, tty, ssh)
                check(b"yes/no" not in tty.out and "noise" not in tty.text().replace("only other", ""), "something is printed over the screen")
                check("depthscope" in tty.text().split("\n")[0], tty.text())
            finally:
                tty.close()


def banners_and_other_versions_are_stepped_over():
    """60 kB of text and noise from the files that a shell reads; an agent of another protocol, for which the script stands in."""
    needs_screen()
    with sshd.Site("a") as site:
        log = run_at(os.path.join(site.host["a"].home, "there"), "run-a", 20)
        with open(site.host["a"].home + "/noise", "wb") as f:
            f.write(b"Welcome to the machine\r\n" * 1000 + b"\xc9\0\0\0\xffD" + os.urandom(20000) + b"\xc9\0\0\1\0D\x1b]0;owned\x07" + b"last words " * 1500)
        for name in (".bashrc", ".zshenv"):
            with open(site.host["a"].home + "/" + name, "w") as f:
                f.write("cat ~/noise\n")
        ways = [Tty(["a:~/there"], env={"DEPTHSCOPE_SSH": site.ssh})]
        other = site.host["a"].folder + "/bin/depthscope"
        wait(lambda: "run-a" in ways[0].text(), 15, ways[0], "it is not listed after 60 kB of noise")
        check(site.host["a"].agents() and os.path.getsize(site.host["a"].home + "/noise") > 60000, "no noise")
        ways[0].close()
        os.remove(other)
        with open(kit.TMP + "/other.mp", "wb") as f:
            f.write(frame(1, pack({"kind": "agent", "step": 0, "time": 1.0, "protocol": 9, "version": "9.9"})))
        with open(other, "w") as f:
            f.write("#!/bin/sh\ncat %s; exec sleep 100\n" % shlex.quote(kit.TMP + "/other.mp"))
        os.chmod(other, 0o755)
        os.remove(site.host["a"].home + "/noise")
        tty = Tty(["a:~/there"], env={"DEPTHSCOPE_SSH": site.ssh})
        try:
            wait(lambda: "run-a" in tty.text(), 15, tty, "nothing stands in")
            check("protocol 9 there" in line_of(tty, "a"), tty.text())
            os.write(tty.fd, b"gg\r")
            wait(lambda: mirror(tty), 10, tty, "it is not followed")
            log.put("metric", 21, loss=1.0)
            wait(lambda: steps_in(mirror(tty)[0]) == list(range(22)), 10, tty, "a gap or a double")
        finally:
            tty.close()


EVIL = "../../../x\x1b]0;owned\x07\x1b[2J\x1b[?1049l\n:quit\r$(touch owned);`touch owned`"


def a_hostile_agent_fills_views_and_nothing_else():
    """Rows without end, escape sequences in every text, records with paths and commands, then a record of 4 GB."""
    needs_screen()
    names, rows = 25000, 10 ** 6 if t.LONG else 50000
    path = kit.TMP + "/evil"

    def record(**keys):
        return frame(1, pack({"step": 0, "time": time.time(), **keys}))

    def row(name):
        return record(kind="row", name=name, state="live", live=True, method=EVIL, preset=EVIL, run_id=EVIL, parent=EVIL, note=EVIL * 20,
                      tags=" ".join([EVIL] * 9), numbers=[1e308, float("nan"), 1, float("inf")] * 3, modified=time.time(), spark=b"abc")
    inner = b"".join([frame(1, pack({"kind": "head", "step": 0, "time": time.time(), "run": EVIL, "run_id": EVIL, "method": EVIL, "layers": 2, "steps": 9,
                                     "commands": EVIL, "notify": "touch owned", "config": {EVIL: EVIL, "notify": "touch owned"}})),
                      frame(2, pack({"kind": "metric", "step": 1, "time": time.time(), "loss": 2.0, EVIL: 3.0})),
                      frame(3, pack({"kind": "event", "step": 1, "time": time.time(), "level": 3, "name": EVIL, "text": EVIL})),
                      frame(4, pack({"kind": "event", "step": 1, "time": time.time(), "level": 3, "name": "command", "text": "1 touch owned: " + EVIL}))])
    with open(path + ".1", "wb") as f:
        f.write(record(kind="agent", protocol=1, version=EVIL, root=EVIL) + row("first") + record(kind="listed") + record(kind="answer", id=1, ok=True, text=EVIL))
        f.write(record(kind="error", text=EVIL) + record(kind="said", id=1, bytes=inner) + record(kind="gone", name="../" * 40))
    with open(path + ".2", "wb") as f:
        f.write(record(kind="log", run="first", frames=inner, at=len(inner), id=1, live=True, reset=True))
    with open(path + ".3", "wb") as f:
        for i in range(names):  # the first with everything, the others short
            f.write(row("%d%s" % (i, EVIL)) if i < 100 else record(kind="row", name="%d%s" % (i, EVIL[:20])))
    with open(path + ".4", "wb") as f:
        f.write(b"\xc9\xff\xff\xff\xffD" * 4)
    times = rows // names
    ssh = stand_in("evil.sh", "cat {0}.1; while [ ! -e {0}.open ]; do sleep 0.1; done; cat {0}.2; while [ ! -e {0}.go ]; do sleep 0.1; done; i=0; while [ $i -lt {1} ]; do cat {0}.3; i=$((i+1)); done\n"
                   "echo >{0}.all; sleep 1; cat {0}.4; exec sleep 100\n".format(shlex.quote(path), times))
    before = set(os.listdir(kit.TMP))
    tty = Tty(["a:/nowhere"], env={"DEPTHSCOPE_SSH": ssh})
    try:
        wait(lambda: "first" in tty.text(), 10, tty, "no list")
        os.write(tty.fd, b"gg\r")
        tty.read(0.2, 1)
        open(path + ".open", "w").close()
        wait(lambda: mirror(tty), 10, tty, "it is not followed")
        for view in "23456789":
            os.write(tty.fd, view.encode())
            tty.read(0.1, 0.3)
        os.write(tty.fd, b":view log\r")
        wait(lambda: "owned" in tty.text(), 5, tty, "the log does not show the event")
        os.write(tty.fd, b"1")
        open(path + ".go", "w").close()
        slow = []
        wait(lambda: slow.append(key_to_paint(tty, b"j")) or os.path.exists(path + ".all"), 300, tty, "it is not read")
        used = sshd.rss(tty.pid)
        print("  %d rows of a hostile agent: %.0f MB; key to paint meanwhile at most %.0f ms" % (times * names, used / 1e6, 1e3 * max(slow)))
        check(used < (6 if t.SANITIZED else 1) * 400e6, "%.0f MB" % (used / 1e6))  # sanitizers have shadows of memory
        wait(lambda: "damaged records" in line_of(tty, "a"), 15, tty, "a record of 4 GB is not refused")
    finally:
        tty.close()
    check(b"owned\x07" not in tty.out and b"\x1b]0;owned" not in tty.out and tty.out.count(b"\x1b[?1049l") == 1, "an escape sequence got through")
    made = set(os.listdir(kit.TMP)) - before
    check(made <= {"evil.open", "evil.go", "evil.all"} and not os.path.exists("owned"), "files: %s" % made)


def a_workbench_that_stands_still_holds_nobody_up():
    """The run there continues to write; what waits for the workbench is bounded, and it catches up."""
    needs_screen()
    log = run_at("fast", "run-f", 50)
    with sshd.Site("a") as site:
        tty = Tty(["a:%s/fast" % kit.TMP], env={"DEPTHSCOPE_SSH": site.ssh})
        try:
            wait(lambda: "run-f" in tty.text(), 15, tty, "it is not listed")
            os.write(tty.fd, b"gg\r")
            wait(lambda: mirror(tty), 10, tty, "it is not followed")
            agent = site.host["a"].agents()[0]
            os.kill(tty.pid, signal.SIGSTOP)
            bodies = b"".join(frame(i, pack({"kind": "metric", "step": i, "time": time.time(), "loss": 2.0, "tok_s": 1.0})) for i in range(51, 2051))
            before, start = sshd.rss(agent), time.time()
            for _ in range(100):  # the same steps again and again: 20 MB
                log.file.write(bodies)
            wrote = time.time() - start
            time.sleep(2)
            grown = sshd.rss(agent) - before
            log.put("metric", 2051, loss=1.0)
            os.kill(tty.pid, signal.SIGCONT)
            wait(lambda: "2,051/" in tty.text(), 15, tty, "it does not catch up")
            print("  the agent grew by %.1f MB while 20 MB were written in %.1f s to a workbench that stood still" % (grown / 1e6, wrote))
            check(grown < 8e6, "%.1f MB" % (grown / 1e6))
        finally:
            tty.close()


if __name__ == "__main__":
    kit.main((what_does_not_connect_is_one_line_and_no_prompt, banners_and_other_versions_are_stepped_over,
              a_hostile_agent_fills_views_and_nothing_else, a_workbench_that_stands_still_holds_nobody_up))
