#!/usr/bin/env python3
"""The workbench on a pseudo-terminal: how old a run is and whether it goes on, through pipes and files that fall silent."""
import os
import re
import sys
import time

import test_tty as kit
from test_tty import Log, Tty, check


def old_log(name, age):
    """A log whose newest record was written `age` seconds ago."""
    log = Log(os.path.join(kit.TMP, name))
    log.put("head", 0, time=time.time() - age - 9, format=1, run="remote", host="box7", framework="PyTorch 2.5.1")
    for i in range(3):
        log.put("metric", i, time=time.time() - age - 2 + i, loss=3.0 - i)
    return log


def state(t):
    """The state on the top line, and the ages that it has shown."""
    return t.text().splitlines()[0]


def wait_for(t, pattern, seconds=8.0):
    end = time.time() + seconds * kit.t.SLOW
    while time.time() < end:
        t.read(0.1, 0.3)
        found = re.search(pattern, state(t))
        if found:
            return found
    check(False, "%r does not appear; the screen is\n%s" % (pattern, t.text()))


def a_pipe_of_an_old_log_is_silent_and_ends_when_it_closes():
    log = old_log("old.mp", 42 * 60 + 5)
    t = Tty(["-"], shell='{ cat "%s"; sleep 4; } | "$0" "$@"' % log.file.name)
    wait_for(t, "remote › Monitor  . silent 42m")
    t.keys(":pause\r", 0.5)
    check('a run that comes through a pipe takes no commands; "pause" was not sent' in t.text(), t.text())
    check("P pause" not in t.text() and "C save" not in t.text(), t.text())
    check("PyTorch 2.5.1, on box7" in t.text(), t.text())
    wait_for(t, "remote › Monitor  . ended")
    check("silent" not in state(t), state(t))
    t.close()


def records_in_a_pipe_are_live_and_then_fall_silent():
    log = old_log("slow.mp", 3)
    t = Tty(["-"], shell='{ cat "%s"; sleep 20; } | "$0" "$@"' % log.file.name)
    first = wait_for(t, r"live .* (\d+)s ago")
    check(int(first[1]) < 10, state(t))
    wait_for(t, r"live .* %ds ago" % (int(first[1]) + 2))  # the age counts on without new data
    found = wait_for(t, r"silent (\d+)s", 16)
    check(15 <= int(found[1]) <= 19, state(t))
    t.close()


def a_clock_that_is_behind_does_not_make_a_writer_silent():
    log = old_log("skewed.mp", 600)
    more = Log(log.file.name + ".more")
    more.seq = log.seq
    more.put("metric", 9, time=time.time() - 600, loss=1.5)
    t = Tty(["-"], shell='{ cat "%s"; sleep 4; cat "%s"; sleep 3; } | "$0" "$@"' % (log.file.name, more.file.name))
    wait_for(t, "silent 10m")
    wait_for(t, r"live .*step 9 .*\b[0-3]s ago")
    t.close()


def a_file_counts_its_silence_and_lives_again():
    log = old_log("file.mp", 30)
    t = Tty([log.file.name])
    first = wait_for(t, r"silent (\d+)s")
    wait_for(t, "silent %ds" % (int(first[1]) + 2))
    log.put("metric", 7, loss=0.5)
    wait_for(t, r"live .*step 7 .*\b[0-3]s ago")
    t.close()


def the_log_of_another_program_does_the_same():
    path = os.path.join(kit.TMP, "curve.csv")
    with open(path, "w") as f:
        f.write("step,train/loss\n1,4.5\n2,3.5\n")
    os.utime(path, (time.time() - 7205,) * 2)
    t = Tty([path])
    wait_for(t, "curve › Monitor  . silent 2h")
    check("CSV table" in t.text() and "P pause" not in t.text(), t.text())
    with open(path, "a") as f:
        f.write("9,2.5\n")
    wait_for(t, r"live .*step 9 .*\b[0-3]s ago")
    t.close()


if __name__ == "__main__":
    if not kit.pyte:
        print("SKIP test_tty_sources: pyte is not installed\ntest_tty_sources: 0 passed, 0 failed, 5 skipped")
        sys.exit(0)
    kit.main((a_pipe_of_an_old_log_is_silent_and_ends_when_it_closes, records_in_a_pipe_are_live_and_then_fall_silent,
              a_clock_that_is_behind_does_not_make_a_writer_silent, a_file_counts_its_silence_and_lives_again,
              the_log_of_another_program_does_the_same))
