#!/usr/bin/env python3
"""What a host costs on the line, counted between ssh and its server, and the workbench over a line of 20 kB/s and 300 ms round trip."""
import os
import re
import select
import struct
import subprocess
import sys
import time

import test_tty as kit
from test_tty import Tty, check, wait
from test_tty_hosts import mirror, run_at, steps_in
from test_tty_hosts_sshd import line_of, needs_screen

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import sshd  # noqa: E402
import t  # noqa: E402

LINK = {"rate": 20e3, "delay": 0.15}


def frames_of(path):
    with open(path, "rb") as f:
        data = f.read()
    out, at = [], 0
    while at < len(data):
        n = struct.unpack(">I", data[at + 1:at + 5])[0] + 6
        out.append(data[at:at + n])
        at += n
    return out


def rate(relay, tty, seconds, each=lambda: None):
    """Bytes per second on the line, both ways."""
    before, start, n = relay.total(), time.time(), 0
    while time.time() < start + seconds:
        if time.time() >= start + 0.5 * n:
            each()
            n += 1
        tty.read(0.05, 0.1)
    return (relay.total() - before) / (time.time() - start)


def a_host_costs_little():
    """At rest, and with a run of real records that is followed at two steps a second."""
    source, seconds = os.path.join(kit.TMP, "real/log.mp"), 25 if t.LONG else 5.2
    t.run("train", *t.TINY, "train.steps=%d" % (120 if t.LONG else 12), "--run", "real", "--quiet", DEPTHSCOPE_RUNS=kit.TMP)
    frames = frames_of(source)
    with sshd.Site("a", relay={}) as site:
        folder = os.path.join(kit.TMP, "watched", "live")
        os.makedirs(folder)
        log = open(folder + "/log.mp", "ab", buffering=0)
        log.write(frames.pop(0))
        tty = Tty(["a:" + os.path.dirname(folder)], env={"DEPTHSCOPE_SSH": site.ssh})
        try:
            wait(lambda: site.relay["a"].down > 3000 and b"live" in tty.out, 20, tty, "it is not listed")
            idle = rate(site.relay["a"], tty, seconds)
            os.write(tty.fd, b"gg\r")
            wait(lambda: mirror(tty), 10, tty, "it is not followed")

            def step():
                while frames:
                    f = frames.pop(0)
                    log.write(f)
                    if b"metric" in f[:60]:
                        return
            used = rate(site.relay["a"], tty, seconds, step)
            print("  %.0f B/s at rest, %.0f B/s with a run at two steps a second" % (idle, used))
            check(idle <= 1000, "%.0f B/s at rest" % idle)
            check(used <= 5000, "%.0f B/s with a run" % used)
            if t.LONG:
                os.write(tty.fd, b"3")
                tty.read(1, 3)
                print("  %.0f B/s with its probes shown" % rate(site.relay["a"], tty, seconds, step))
        finally:
            tty.close()


def long_run(steps):
    """A log of that many steps, by way of the lines of another program's log, which are quick to write."""
    source, folder = os.path.join(kit.TMP, "long.jsonl"), os.path.join(kit.TMP, "long", "long")
    os.makedirs(folder)
    with open(source, "w") as f:
        for i in range(steps):
            f.write('{"step": %d, "loss": %.5f, "lr": 0.0003, "tok_s": %d}\n' % (i, 5 - 2 * i / steps + (i * 7919 % 1000) / 1e4, 1000 + i % 17))
    with open(folder + "/log.mp", "wb") as f:
        subprocess.run([kit.PROGRAM, "stream", "--no-follow", source], stdout=f, check=True)
    os.remove(source)
    return os.path.dirname(folder)


def key_to_paint(tty, key):
    """Seconds from a key to the first bytes of what it changes, when nothing else is on its way."""
    tty.read(0.1, 0.5)
    start = time.time()
    os.write(tty.fd, key)
    select.select([tty.fd], [], [], 2)
    took = time.time() - start
    tty.read(0.05, 0.2)
    return took


def answers_come_first(folder):
    """Requests are answered while the summary of a long log is being made."""
    p = subprocess.Popen([kit.PROGRAM, "agent", folder], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
    for line in (b'{"do":"open","protocol":1}', b'{"do":"follow","run":"long"}', b'{"do":"command","id":1,"run":"nobody","line":"status"}'):
        p.stdin.write(line + b"\n")
    out, end = b"", time.time() + 30 * t.SLOW
    while b"follows whole" not in out and time.time() < end:
        if select.select([p.stdout], [], [], 1)[0]:
            out += os.read(p.stdout.fileno(), 65536)
    p.kill()
    p.wait()
    check(-1 < out.find(b"no such run") < out.find(b"follows whole"), "the answer waits for the summary")


def a_million_steps_over_a_slow_line():
    """Painted within three seconds of Enter; keys are answered at once while data are on their way; a lost line shows in ages."""
    needs_screen()
    steps = 10 ** 6 if t.LONG else 10 ** 5
    folder = long_run(steps)
    answers_come_first(folder)
    with sshd.Site("a", relay=LINK) as site:
        began = time.time()
        tty = Tty(["a:" + folder], env={"DEPTHSCOPE_SSH": site.ssh})
        try:
            wait(lambda: "silent" in tty.text() and " 1 run" in line_of(tty, "a"), 20, tty, "it is not listed")
            listed, start = time.time() - began, time.time()
            os.write(tty.fd, b"gg\r")
            painted = whole = 0
            while not whole:
                tty.read(0.02, 0.05)
                text = tty.text()
                painted = painted or (time.time() - start if re.search(" loss [0-9]", text) else 0)
                whole = time.time() - start if "{:,}".format(steps - 1) in text and " loss 3." in text else 0
                check(time.time() < start + 20 * t.SLOW, "nothing is painted\n" + text)
            took = [key_to_paint(tty, k) for k in (b"x", b"x", b"s", b"1", b"j", b"k", b"2", b"?", b"\x1b", b"1", b"j", b"k")]
            print("  %d steps at 20 kB/s, 300 ms: listed after %.1f s, painted %.1f s after Enter, whole %.1f s; %d B down, %d B up; key to paint %.0f ms, at most %.0f ms"
                  % (steps, listed, painted, whole, site.relay["a"].down, site.relay["a"].up, 1e3 * sorted(took)[len(took) // 2], 1e3 * max(took)))
            check(painted <= 3 * t.SLOW, "%.1f s" % painted)
            check(sorted(took)[len(took) // 2] < 0.05 * t.SLOW, "%s" % took)
        finally:
            tty.close()


if __name__ == "__main__":
    kit.main((a_host_costs_little, a_million_steps_over_a_slow_line))
