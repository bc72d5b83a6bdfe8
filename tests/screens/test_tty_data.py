#!/usr/bin/env python3
"""The workbench on a pseudo-terminal: hostile, huge and piped record streams, and the text it
writes to the clipboard and to tables."""
import base64
import fcntl
import os
import re
import shlex
import subprocess
import sys

import test_tty as kit
from test_tty import PROGRAM, Log, Tty, check

# Ends a bracketed paste, runs a command, sets a title; then C1, bidi, zero width, tag, variation selector.
EVIL = "evil\x1b[201~\nrm -rf x\r\t\x1b]0;title\x07\u009b31m\u202egnp\u200b\u200d\u2066\U000e0041\ufe0f\u2028end"
NAME = "evil\x1b[201~\nrm -rf x\t\u009b31m\u202egnp\u200b\U000e0041\u2028end"  # at most 63 bytes


def hostile_log(path, done=True):
    log = Log(path)
    log.put("head", 0, format=1, run=EVIL, method=EVIL, version=EVIL, host=EVIL, parent=EVIL, framework=EVIL, gpu=EVIL, project=EVIL, writer=EVIL, commands=[EVIL], layers=2, steps=9, seed=1,
            config={EVIL: EVIL, "model." + EVIL: "1"}, metrics=[{"name": NAME, "unit": EVIL, "help": EVIL}])
    for i in range(1, 5):
        log.put("metric", i, **{"loss": 2.0 / i, NAME: 1.0 * i})
        log.put("layer", i, **{NAME: [0.5, 0.25]})
    log.put("probe", 4, index=0, name=EVIL, routing="causal", layers=2, ids=[1, 2], text=[EVIL, EVIL],
            run=[[1, 0], [1, 1]], depth=[2.0, 1.0], nll=[1.0, 2.0], cell={NAME: [[1.0, 2.0], [3.0, 4.0]]},
            token={NAME: [1.0, 2.0]})
    log.put("eval", 4, task=EVIL, routing=EVIL, loss=1.0, **{NAME: 2.0})
    log.put("sample", 4, name=EVIL, n=2, column={NAME: [1.0, 2.0], "flops": [1.0, 2.0]})
    log.put("event", 4, level="warn", name=EVIL, text=EVIL)
    if done:
        log.put("end", 4, status=EVIL, text=EVIL)
    return log


def is_safe(text, what):
    """Nothing but lines and columns: no control, no character that hides or turns text."""
    bad = re.findall("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff\U000e0000-\U000e01ef]", text)
    check(not bad, "%s: %r in %r" % (what, sorted(set(bad)), text[:400]))
    lines = [x for x in text.split("\n") if x.startswith("rm -rf")]
    check(not lines, "%s: a newline of the data ends a line: %r" % (what, text[:400]))


def copied(t):
    found = re.findall(rb"\x1b\]52;c;([A-Za-z0-9+/=]*)\x07", bytes(t.out))
    return base64.b64decode(found[-1]).decode("utf-8") if found else None


# ---- checks ----

def what_y_copies_of_hostile_records_is_safe_to_paste():
    path = os.path.join(kit.TMP, "hostile.mp")
    hostile_log(path)
    for view in ("monitor", "log", "signals", "depth", "flops"):
        t = Tty(["--view", view, path])
        t.read(0.8)
        if view == "log":
            t.keys("k")
        t.keys("y", 0.4)
        text = copied(t)
        t.close()
        check(text, "%s: nothing was copied" % view)
        is_safe(text, view)
    t = Tty(["-"], shell='{ cat "%s"; sleep 3; } | "$0" "$@"' % path)
    t.read(1.0)
    t.keys("y", 0.4)
    text = copied(t)
    t.close()
    check(text and "evil<0x1B>[201~\\n" in text, "a piped stream: %r" % text)
    is_safe(text, "a piped stream")


def the_command_that_figures_copies_is_that_of_the_export():
    path = os.path.join(kit.TMP, "it's $(touch x); a log.mp")
    hostile_log(path)
    t = Tty(["--view", "figures", path])
    t.read(1.5)
    t.keys("v", 0.3)
    t.keys("y", 0.4)
    text = copied(t)
    t.close()
    words = shlex.split(text or "")
    check(words[:2] == ["depthscope", "figure"] and words[-1] == path and "--venue" in words, "copied: %r" % text)


def a_copy_that_is_too_long_ends_with_a_line_and_says_so():
    path = os.path.join(kit.TMP, "many.mp")
    log = Log(path)
    log.put("head", 0, format=1, run="many", method="mod", layers=1, steps=9, flops_dense=1.0)
    log.put("sample", 4, name="val", n=20000, column={"flops": [1234.5] * 20000})
    t = Tty(["--view", "flops", path])
    t.read(0.8)
    t.keys("y", 0.6)
    text = copied(t)
    t.close()
    check(text and 60000 < len(text) <= 65536 and text.endswith("\n") and set(text.split()) == {"1234.5"}, "copied: %r" % (text or "")[-40:])
    check(b"copied the first lines of 140000 bytes" in t.out, "not said: %r" % bytes(t.out)[-300:])


def tables_and_notes_of_hostile_records_are_safe():
    runs = os.path.join(kit.TMP, "runs")
    for name in ("a", "b"):
        os.makedirs(os.path.join(runs, name))
        hostile_log(os.path.join(runs, name, "log.mp"))
    env = dict(os.environ, DEPTHSCOPE_RUNS=runs, LC_ALL="C.UTF-8")
    a, b = os.path.join(runs, "a"), os.path.join(runs, "b")
    log = os.path.join(a, "log.mp")
    commands = (["runs"], ["runs", runs], ["inspect", a], ["inspect", log], ["compare", a, b], ["compare", a, b, "--diff"],
                ["figure", "all", a, b, "-o", os.path.join(kit.TMP, "figures")],
                ["figure", "training", a, "-o", os.path.join(kit.TMP, "figures")], ["eval", a], ["trace", a, "--text", "x", "--json"],
                ["generate", a, "--prompt", "x"], ["calibrate", a], ["train", "--resume", a], ["doctor"], ["stream", EVIL],
                ["inspect", EVIL], ["figure", EVIL, a], ["compare", EVIL, a], ["runs", EVIL], [EVIL], ["train", EVIL], ["help", EVIL],
                ["train", "--run", EVIL], ["get", EVIL], ["presets", EVIL], ["tokenize", EVIL, "--text", "x"])
    for args in commands:
        p = subprocess.run([PROGRAM] + args, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, env=env,
                           cwd=kit.TMP, timeout=60)
        what = " ".join(repr(x)[1:20] for x in args)
        is_safe(p.stdout.decode("utf-8"), what)
        is_safe(p.stderr.decode("utf-8").replace("\r", "\n"), what + " (stderr)")
    check(sorted(os.listdir(runs)) == ["a", "b"], "a hostile name made a run: %r" % os.listdir(runs))


def figures_of_hostile_runs_have_safe_names():
    out = os.path.join(kit.TMP, "figures")
    path = os.path.join(kit.TMP, "named.mp")
    hostile_log(path)
    subprocess.run([PROGRAM, "figure", "all", path, "-o", out], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=60)
    names = os.listdir(out)
    check(names, "no figure was drawn")
    for name in names:
        check(re.fullmatch("[A-Za-z0-9._-]+", name), "file name %r" % name)


def cpu_ticks(pid):
    with open("/proc/%d/stat" % pid) as f:
        row = f.read().rsplit(")", 1)[1].split()
    return int(row[11]) + int(row[12])


def a_piped_live_run_leaves_the_processor_alone():
    path, log = kit.live_log(300)
    fifo = os.path.join(kit.TMP, "live.fifo")
    os.mkfifo(fifo)
    t = Tty(["-"], shell='exec "$0" "$@" < "%s"' % fifo)
    with open(fifo, "wb", buffering=0) as pipe:
        with open(path, "rb") as f:
            pipe.write(f.read())
        log.file = pipe
        t.read(1.0)
        start, sent = cpu_ticks(t.pid), len(t.out)
        for i in range(301, 501):
            log.step(i)
            t.read(0.015, 0.02)
        ticks = cpu_ticks(t.pid) - start
        check(len(t.out) > sent, "no step was drawn")
    t.keys("q")
    t.close()
    print("  %d ticks for 200 steps by a pipe" % ticks)
    check(ticks < 60, "%d ticks of 1/100 s in 4 s: the loop spins" % ticks)


def keys_are_answered_before_a_huge_file_is_read():
    with open(kit.FIXTURE, "rb") as f:
        records = f.read()
    zeros, tail, noise = (os.path.join(kit.TMP, n + ".mp") for n in ("zeros", "tail", "noise"))
    for path, first in ((zeros, b""), (tail, records)):
        with open(path, "wb") as f:
            f.write(first)
            f.truncate(1 << 40)
    with open(noise, "wb") as f:
        f.write(records)
        for _ in range(40):  # heads of records without a body, the most expensive input
            f.write(b"\xc9\x00\xff\xff\xf0\x44" * 200000)
    for path, seen in ((zeros, b"empty"), (tail, b"loss"), (noise, b"loss")):
        t = Tty([path])
        for _ in range(20):
            t.read(0.2, 0.5)
            if seen in t.out:
                break
        check(seen in t.out, "%s: no frame: %r" % (path, bytes(t.out)[-200:]))
        t.keys("q", 0.2)
        t.wait(5.0)
        check(t.status == 0, "%s: q did not quit: %r" % (path, t.status))
        os.close(t.fd)


def commands_end_on_a_terabyte_of_zeros():
    run = os.path.join(kit.TMP, "zeroruns", "z")
    os.makedirs(run)
    path = os.path.join(run, "log.mp")
    with open(kit.FIXTURE, "rb") as f, open(path, "wb") as out:
        out.write(f.read())
        out.truncate(1 << 40)
    env = dict(os.environ, DEPTHSCOPE_RUNS=os.path.dirname(run))
    for args in (["runs"], ["inspect", run], ["stream", path], ["figure", "training", run, "-o", os.path.join(kit.TMP, "f")]):
        p = subprocess.run([PROGRAM] + args, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=env, timeout=30)
        check(p.returncode == 0 and p.stdout, "%s: %r" % (args[0], p.stdout[-200:]))


def leaving_a_live_run_says_that_it_goes_on():
    runs = os.path.join(kit.TMP, "liveruns")
    os.makedirs(os.path.join(runs, "slow"))
    path = os.path.join(runs, "slow", "log.mp")
    log = Log(path)
    log.head()
    log.step(7)
    fcntl.flock(log.file, fcntl.LOCK_EX)  # as the process that trains
    for where, name in ((runs, "slow"), (runs + "/../liveruns/", "slow"), ("/nonexistent", os.path.join(runs, "slow"))):
        t = Tty([os.path.join(runs, "slow")], env={"DEPTHSCOPE_RUNS": where})
        t.read(0.8)
        t.keys("q")
        t.wait()
        os.close(t.fd)
        said = bytes(t.out).rsplit(b"\x1b[?1049l", 1)[-1].decode().strip()
        check(t.status == 0 and "continues at step 7 of 2000" in said, "q printed %r" % said)
        check("depthscope %s;" % os.path.join(runs, "slow") in said and said.endswith("depthscope stop " + name), "q printed %r" % said)
        check("\n" not in said, "more than a line: %r" % said)
    log.put("end", 7, status="done")
    t = Tty([os.path.join(runs, "slow")])
    t.read(0.8)
    t.keys("q")
    t.wait()
    os.close(t.fd)
    said = bytes(t.out).rsplit(b"\x1b[?1049l", 1)[-1].strip()
    check(said == b"", "q printed a note for a finished run: %r" % said)
    log.file.close()


class Cells:
    """A minimal terminal with delayed wrap at the right margin, like xterm and tmux."""

    def __init__(self, data, rows=24, cols=80):
        self.rows, self.cols, self.y, self.x = rows, cols, 0, 0
        self.cell = [[" "] * cols for _ in range(rows)]
        for m in re.finditer(rb"\x1b\[([?>]?)([0-9;]*)([@-~])|\x1b[()].|\x1b.|([\x00-\x1f])|(.)", data, re.S):
            if m.group(3) and not m.group(1):
                self.command(m.group(3).decode(), [int(n) if n else 0 for n in m.group(2).split(b";")])
            elif m.group(4):
                self.x, self.y = {b"\r": (0, self.y), b"\n": (self.x, min(self.y + 1, rows - 1)),
                                  b"\b": (max(self.x - 1, 0), self.y)}.get(m.group(4), (self.x, self.y))
            elif m.group(5):
                self.put(m.group(5).decode("latin-1"))

    def put(self, c):
        if self.x == self.cols:
            self.x, self.y = 0, min(self.y + 1, self.rows - 1)
        self.cell[self.y][self.x] = self.last = c
        self.x += 1

    def command(self, name, n):
        k = max(n[0], 1)
        x = min(self.x, self.cols - 1)
        if name == "H":
            self.y, self.x = k - 1, (max(n[1], 1) if len(n) > 1 else 1) - 1
        elif name in "G`":
            self.x = k - 1
        elif name == "d":
            self.y = k - 1
        elif name in "AB":
            self.y = max(0, min(self.rows - 1, self.y + (k if name == "B" else -k)))
        elif name in "CD":
            self.x = max(0, min(self.cols - 1, x + (k if name == "C" else -k)))
        elif name == "b":
            for _ in range(k):
                self.put(self.last)
        elif name in "KX":
            end = self.cols if name == "K" else min(self.cols, x + k)
            self.cell[self.y][x:end] = [" "] * (end - x)

    def line(self, y):
        return "".join(self.cell[y])


def plain_terminals_show_their_lines_in_their_places():
    for term in ("ansi", "vt100", "vt220", "xterm-256color", "linux"):
        t = Tty(["--glyphs=ascii", kit.FIXTURE], env={"TERM": term, "NO_COLOR": "1"})
        t.read(0.8)
        raw = bytes(t.out)
        t.keys("q")
        t.wait()
        os.close(t.fd)
        top = Cells(raw).line(0)
        check(top.startswith(" depthscope > fixture-edp > Monitor"), "%s: the top line is %r" % (term, top))
        if term in ("ansi", "vt100", "vt220"):
            check(b"\x1b[?1049h" not in raw and b"\x1b[?1006h" not in raw and b"\x1b[?2026" not in t.out,
                  "%s: private modes it does not know" % term)


def terminals_of_one_byte_a_cell_get_ascii():
    for term in ("ansi", "vt100", "vt220"):
        t = Tty([kit.FIXTURE], env={"TERM": term})
        t.read(0.8)
        t.keys("y", 0.4)
        raw = bytes(t.out)
        t.close()
        check(b"loss" in raw and all(b < 0x80 for b in raw), "%s: bytes beyond ASCII" % term)
        check(b"\x1b]52" not in raw and b"clipboard" in raw, "%s: OSC 52 was sent" % term)
    t = Tty([kit.FIXTURE], env={"TERM": "dumb"})
    t.read(0.6)
    t.wait()
    check(b"cannot move the cursor" in t.out and b"\x1b" not in t.out, "dumb: %r" % bytes(t.out)[:200])
    os.close(t.fd)
    t = Tty([kit.FIXTURE], env={"TERM": "xterm-mono"})
    t.read(0.6)
    colours = [n for m in re.findall(rb"\x1b\[([0-9;]*)m", t.out) for n in m.split(b";") if re.fullmatch(b"[349][0-7]|10[0-7]", n)]
    t.close()
    check(not colours, "xterm-mono: colours %r" % colours[:5])


if __name__ == "__main__":
    kit.main((
        what_y_copies_of_hostile_records_is_safe_to_paste, the_command_that_figures_copies_is_that_of_the_export,
        a_copy_that_is_too_long_ends_with_a_line_and_says_so, tables_and_notes_of_hostile_records_are_safe,
        figures_of_hostile_runs_have_safe_names, a_piped_live_run_leaves_the_processor_alone,
        keys_are_answered_before_a_huge_file_is_read, commands_end_on_a_terabyte_of_zeros,
        leaving_a_live_run_says_that_it_goes_on, plain_terminals_show_their_lines_in_their_places, terminals_of_one_byte_a_cell_get_ascii))
