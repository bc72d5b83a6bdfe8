#!/usr/bin/env python3
"""What needs time and a terminal: double clicks, and the Machine view of this machine, on a pseudo-terminal."""
import fcntl
import os
import socket
import time

import test_tty as kit
from test_tty import FIXTURE, Log, Tty, check, end

from t import SLOW  # noqa: E402


def shown(t):
    return t.text() if kit.pyte else bytes(t.out).decode("utf-8", "replace")


def until(t, *parts, seconds=20.0):
    end = time.time() + seconds * SLOW
    while time.time() < end:
        t.read(0.1, 0.5)
        if all(p in shown(t) for p in parts):
            return shown(t)
    t.close()
    check(False, "%r is not shown:\n%s" % (parts, shown(t)))


def click(t, row, col, times=1, button=0):
    t.keys(("\x1b[<%d;%d;%dM\x1b[<%d;%d;%dm" % (button, col + 1, row + 1, button, col + 1, row + 1)) * times, 0.3)


def has_focus(t, title):
    """The title of the focused chart, and of no other, is underlined."""
    if kit.pyte:
        rows = [t.screen.buffer[y] for y in range(2, t.rows)]  # below the names of the views
        found = [x for x in ("".join(r[x].data for x in range(t.cols) if r[x].underscore) for r in rows) if x]
        check(found == [title], "focus: %r, expected %r\n%s" % (found, title, t.text()))


def a_click_moves_the_focus_to_its_chart():
    t = Tty([FIXTURE, "--view", "monitor"], rows=30, cols=100)
    until(t, "loss", "Monitor")
    has_focus(t, "loss")
    for row, col, title in ((10, 80, "tok_s"), (4, 60, "grad_norm"), (18, 20, "compute"), (19, 80, "gate ratio by layer"),
                            (27, 0, "threshold by layer"), (4, 30, "loss")):
        time.sleep(0.5)  # not a double click
        click(t, row, col)
        has_focus(t, title)
    click(t, 28, 50)  # the budget is not a chart
    has_focus(t, "loss")
    end(t)


def a_double_click_shows_one_chart_and_all_again():
    t = Tty([FIXTURE, "--view", "monitor"], rows=30, cols=100)
    until(t, "loss", "Monitor")
    before = shown(t)
    for button in (1, 2):  # the middle and the right one are the terminal's
        click(t, 8, 80, 2, button)
        check(shown(t) == before or not kit.pyte, "button %d did something:\n%s" % (button, shown(t)))
    click(t, 8, 80, 2)
    alone = shown(t)
    has_focus(t, "tok_s")
    check(alone != before, "a double click shows no single chart\n" + alone)
    time.sleep(0.5)  # not a third click
    click(t, 8, 80, 2)
    if kit.pyte:
        check(shown(t).count("\u2524") > 3 and shown(t) != alone, "the charts are not back:\n" + shown(t))
    click(t, 8, 80)
    has_focus(t, "tok_s")
    t.keys("\x1b[<65;81;9M", 0.3)
    end(t)


def a_double_click_opens_a_run_and_a_log_entry():
    root = os.path.join(kit.TMP, "mouse-runs")
    log = Log(os.path.join(root, "only", "log.mp"))
    log.put("head", 0, run="only", method="mod", steps=9)
    log.put("metric", 1, loss=2.0)
    log.put("event", 1, level="warn", name="odd", text="something odd happened here")
    log.put("end", 9, status="done", text="")
    t = Tty(["--view", "home"], env={"DEPTHSCOPE_RUNS": root}, rows=24, cols=100)
    until(t, "only", "done")
    row = [i for i, line in enumerate(shown(t).split("\n")) if "only " in line and "done" in line][0] if kit.pyte else 3
    click(t, row, 6, 2)
    until(t, "Monitor", "loss")
    t.keys(":view log\r", 0.5)
    until(t, "something odd")
    row = [i for i, line in enumerate(shown(t).split("\n")) if "something odd" in line][0] if kit.pyte else 3
    click(t, row, 30, 2)
    check("Esc" in shown(t) and "something odd happened here" in shown(t), shown(t))
    t.keys("\x1b", 0.5)
    end(t)


def this_machine_is_shown_while_it_changes():
    t = Tty(["--view", "machine"], env={"DEPTHSCOPE_RUNS": os.path.join(kit.TMP, "none")}, rows=30, cols=100)
    until(t, "processors", "memory")
    t.read(1.0, 5.0)  # a second sample
    check("now" in shown(t), shown(t))
    t.keys("s", 0.3)
    check("this machine is shown; nothing is recorded" in shown(t), shown(t))
    end(t)


def a_live_run_on_this_machine_is_shown_now_and_as_recorded():
    root = os.path.join(kit.TMP, "live-runs")
    log = Log(os.path.join(root, "mine", "log.mp"))
    fcntl.flock(log.file, fcntl.LOCK_EX)
    log.put("head", 0, run="mine", host=socket.gethostname(), steps=9)
    log.put("metric", 1, loss=2.0)
    log.put("system", 1, host=socket.gethostname(), cpus=77, cpu=0.25, load=[1.0, 2.0, 3.0], memory_used=1e9, memory_total=4e9,
            gpus_more=3, gpus=[dict(name="GPU A", source="nvml", use=0.5, memory_used=1e9, processes_more=2,
            processes=[dict(pid=5, name="x")])])
    t = Tty(["mine", "--view", "machine"], env={"DEPTHSCOPE_RUNS": root}, rows=30, cols=100)
    until(t, "now", "processors")
    t.read(1.0, 5.0)
    check("77 processors" not in shown(t) or not kit.pyte, shown(t))
    t.keys("s", 0.5)
    until(t, "77 processors")
    t.keys("s", 0.5)
    until(t, "now")
    end(t)
    log.file.close()


if __name__ == "__main__":
    kit.main((a_click_moves_the_focus_to_its_chart, a_double_click_shows_one_chart_and_all_again,
              a_double_click_opens_a_run_and_a_log_entry, this_machine_is_shown_while_it_changes,
              a_live_run_on_this_machine_is_shown_now_and_as_recorded))
