#!/usr/bin/env python3
"""Alerts on a pseudo-terminal: the bytes that a terminal is sent, marks in Home, the user's command and what may not start it."""
import os
import re
import time

import test_tty as kit
import test_tty_hosts as hosts
from test_tty import Log, Tty, check, wait

NAN = float("nan")
AWKWARD = "a 'b' \"$(touch pwned)\" `touch pwned` ;touch pwned"


def config(text):
    """The environment of a user with these settings."""
    folder = os.path.join(kit.TMP, "config%d" % time.monotonic_ns())
    os.makedirs(os.path.join(folder, "depthscope"))
    with open(os.path.join(folder, "depthscope", "settings.yaml"), "w") as f:
        f.write(text)
    return {"XDG_CONFIG_HOME": folder}


def told(command_output):
    try:
        with open(command_output) as f:
            return f.read().splitlines()
    except FileNotFoundError:
        return []


def run_of(folder, name, **head):
    log = Log(os.path.join(kit.TMP, folder, name, "log.mp"))
    log.put("head", 0, run=name, run_id="id-" + name, method="edp", layers=2, steps=1000, **head)
    for i in range(1, 4):
        log.put("metric", i, loss=3.0)
    return log


def bells(out):
    return re.sub(rb"\x1b\][^\x07]*\x07", b"", out).count(b"\x07")


def notes(out):
    return [x for x in re.findall(rb"\x1b\]([^\x07\x1b]*)\x07", out) if x.startswith((b"9;", b"777;"))]


def a_loss_that_turns_nan_rings_once():
    log = run_of("bell", "x")
    t = Tty([log.file.name], env=config("notify:\n  every_s: 1\n"))
    t.read(0.4, 1)
    check(bells(t.out) == 0, "a bell for nothing")
    for i in range(4, 9):
        log.put("metric", i, loss=NAN)
        t.read(0.3)
    wait(lambda: bells(t.out) > 0, 12, t, "no bell")
    if kit.pyte:
        check("alert: x: loss is NaN" in t.text(), t.text())
    t.read(0.4, 2.5)
    check(bells(t.out) == 1, "%d bells" % bells(t.out))
    t.keys(":view log\r", 0.5)
    if kit.pyte:
        check("alert: x: loss is NaN" in t.text(), "the Log lacks it:\n" + t.text())
    t.close()


def notifications_are_clean_text_and_few():
    for how, begin, env in (("osc9", b"\x1b]9;depthscope: x?[31m,y?: loss is NaN\x07", {}),
                            ("osc777", b"\x1b]777;notify;depthscope;x?[31m,y?: loss is NaN\x07", {}),
                            ("osc9", b"\x1bPtmux;\x1b\x1b]9;depthscope: x?[31m,y?: loss is NaN\x07\x1b\\", {"TMUX": "/tmp/x,1,0"}),
                            ("off", None, {})):
        path = os.path.join(kit.TMP, how + ("-tmux" if env else ""), "log.mp")
        log = Log(path)
        log.put("head", 0, run="fixture", layers=2)
        name = "x\x1b[31m;y\x07"
        moved = os.path.join(os.path.dirname(os.path.dirname(path)), "d%d" % time.monotonic_ns(), name)
        os.makedirs(moved)
        os.rename(path, moved + "/log.mp")
        log.put("metric", 1, loss=3.0)
        t = Tty([moved], env={**config("notify:\n  terminal: %s\n" % how), "TMUX": "", **env})
        t.read(0.4, 1)
        log.put("metric", 2, loss=NAN)
        t.read(0.4, 1.5)
        if begin:
            check(t.out.count(begin) == 1, "%s: %r lacks %r" % (how, t.out[-300:], begin))
        check(len(notes(t.out)) == (begin is not None), "%s: %r" % (how, notes(t.out)))
        check(bells(t.out.replace(b"\x1bPtmux;", b"")) == 0, "%s: a bell" % how)
        t.close()


def a_flood_of_alerts_rings_a_few_times():
    log = run_of("flood", "x")
    out = os.path.join(kit.TMP, "flood.txt")
    t = Tty([log.file.name], env=config("notify:\n  every_s: 1\n  command: echo \"$1\" >>'%s'\n" % out))
    t.read(0.4, 1)
    end, n = time.time() + 3, 0
    while time.time() < end:
        for _ in range(500):
            n += 1
            log.put("event", n, level="error", name="alert", rule="nan", over=bool(n & 1), text="x" * 300)
        t.read(0.01, 0.05)
    t.read(0.4, 1.5)
    print("  %d events: %d bells, %d commands" % (n, bells(t.out), len(told(out))))
    check(n > 2000 and 1 <= bells(t.out) <= 4, "%d bells of %d events" % (bells(t.out), n))
    check(len(told(out)) == 1, "%d commands" % len(told(out)))
    t.close()


def the_command_runs_once_and_takes_texts_as_arguments():
    log = run_of("cmd", AWKWARD)
    out = os.path.join(kit.TMP, "cmd.txt")
    t = Tty([os.path.dirname(log.file.name)],
            env=config("notify:\n  terminal: \"off\"\n  command: 'printf \"%%s|%%s|%%s|%%s|%%s\\n\" \"$@\" >>\"%s\"'\n" % out))
    t.read(0.4, 1)
    log.put("metric", 4, loss=NAN)
    wait(lambda: told(out), 12, t, "the command did not run")
    t.read(0.4, 2.5)
    check(told(out) == [AWKWARD + "|nan|loss is NaN||error"], "%r" % told(out))
    check(bells(t.out) == 0 and not os.path.exists("pwned") and not os.path.exists(kit.TMP + "/cmd/pwned"), "the name was run")
    t.close()


def a_command_that_fails_or_hangs_is_one_line():
    log = run_of("fails", "x")
    t = Tty([log.file.name], env=config("notify:\n  command: echo no mail >&2; exit 3\n"))
    t.read(0.4, 1)
    log.put("metric", 4, loss=NAN)
    wait(lambda: kit.pyte is None or "notify.command: no mail" in t.text(), 12, t, "its failure is not said")
    t.close()
    log = run_of("hangs", "x")
    t = Tty([log.file.name], env=config("notify:\n  command: exec sleep 30\n"))
    t.read(0.4, 1)
    log.put("metric", 4, loss=NAN)
    t.read(0.4, 1)
    start = time.time()
    t.keys(":view log\r", 0.1)  # it does not block
    check(time.time() - start < 2, "blocked for %.1f s" % (time.time() - start))
    t.close()


def old_news_is_marked_but_rings_not():
    log = run_of("old", "x")
    log.put("metric", 4, loss=NAN)
    out = os.path.join(kit.TMP, "old.txt")
    t = Tty([log.file.name], env=config("notify:\n  command: echo \"$1\" >>'%s'\n" % out))
    t.read(0.4, 2)
    check(bells(t.out) == 0 and not told(out), "old news rang")
    if kit.pyte:
        check("alert: x: loss is NaN" in t.text(), t.text())
    t.close()


def home_marks_a_run_until_it_is_looked_at():
    if not kit.pyte:
        return
    log, other = run_of("home", "first"), run_of("home", "second")
    t = Tty([os.path.join(kit.TMP, "home")], env=config("alert:\n  loss_above: 4\n"))
    t.read(0.4, 1)
    check("alert" not in t.text(), t.text())
    log.put("metric", 4, loss=NAN)
    other.put("metric", 4, loss=5.0)
    wait(lambda: re.search(r"!nan +first", t.text()) and re.search(r"!loss +second", t.text()), 12, t, "no marks")
    check(bells(t.out) >= 1, "no bell")
    t.keys("gg", 0.3)
    t.keys("A", 0.5)
    check(t.text().count("!") == 1, "the key does not clear the mark:\n" + t.text())
    t.keys("G" if "!" in t.text().splitlines()[2] else "j", 0.3)
    t.keys(":acknowledge all\r", 0.5)
    check("!" not in t.text(), t.text())
    other.put("metric", 5, loss=NAN)
    wait(lambda: re.search(r"!nan +second", t.text()), 12, t, "no new mark")
    for _ in range(3):  # open it: it is the one with the mark
        lines = [x for x in t.text().splitlines() if "second" in x]
        if lines and "▌" in lines[0]:
            break
        t.keys("j" if "▌" in "".join(x for x in t.text().splitlines() if "first" in x) else "gg", 0.3)
    t.keys("\r", 0.7)
    t.keys("1", 0.7)
    check("!" not in t.text(), "opening it does not clear the mark:\n" + t.text())
    t.close()


def a_run_elsewhere_alerts_and_its_words_start_nothing():
    out, bad = os.path.join(kit.TMP, "far.txt"), os.path.join(kit.TMP, "bad")
    evil = "notify:\n  command: touch '%s'\n" % bad
    log = run_of("there", "r1", config={"notify.command": "touch '%s'" % bad, "notify": "touch '%s'" % bad})
    with open(os.path.dirname(log.file.name) + "/config.yaml", "w") as f:
        f.write(evil)
    with open(kit.TMP + "/there/settings.yaml", "w") as f:
        f.write(evil)
    t = Tty(["box1:%s/there" % kit.TMP], env={"DEPTHSCOPE_SSH": hosts.stand_in(), **config("notify:\n  command: echo \"$1 $2\" >>'%s'\n" % out)})
    wait(lambda: "r1" in t.text() if kit.pyte else t.out.count(b"r1"), 12, t, "the run is not listed")
    t.read(0.4, 2)
    log.put("event", 4, level="error", name="alert", rule="other", text="$(touch '%s')" % bad, command="touch '%s'" % bad)
    log.put("metric", 4, loss=NAN)
    wait(lambda: len(told(out)) >= 2, 20, t, "no command for a run of a host: %r" % told(out))
    check(sorted(told(out)) == ["box1:r1 nan", "box1:r1 other"], "%r" % told(out))
    if kit.pyte:
        check(re.search(r"!nan\+1 +r1", t.text()), t.text())
    check(not os.path.exists(bad), "what a stream says was run")
    t.close()
    t = Tty(["box1:%s/there" % kit.TMP], env={"DEPTHSCOPE_SSH": hosts.stand_in(), "XDG_CONFIG_HOME": kit.TMP + "/there"})
    t.read(0.4, 3)
    log.put("metric", 5, loss=2.0)
    t.read(0.4, 2)
    check(not os.path.exists(bad), "a folder of runs configured the workbench")
    t.close()


def a_listed_run_that_stalls_is_marked():
    if not kit.pyte:
        return
    log = run_of("stall", "x")
    t = Tty([os.path.join(kit.TMP, "stall")], env=config("alert:\n  stall_s: 3\n"))
    wait(lambda: re.search("!stall +x", t.text()), 20, t, "no mark")
    check("no metric for" in t.text(), t.text())
    log.put("metric", 9, loss=2.0)
    wait(lambda: "alert over: x: a metric came" in t.text(), 10, t, "its end is not said")
    t.close()


def wrong_settings_are_named():
    t = Tty([run_of("wrong", "x").file.name], cols=200, env=config("alert:\n  los_above: 4\n"))
    t.read(0.4, 1)
    if kit.pyte:
        check("alert.los_above" in t.text(), t.text())
    t.close()


if __name__ == "__main__":
    kit.main((a_loss_that_turns_nan_rings_once, notifications_are_clean_text_and_few, a_flood_of_alerts_rings_a_few_times,
              the_command_runs_once_and_takes_texts_as_arguments, a_command_that_fails_or_hangs_is_one_line, old_news_is_marked_but_rings_not,
              home_marks_a_run_until_it_is_looked_at, a_run_elsewhere_alerts_and_its_words_start_nothing, a_listed_run_that_stalls_is_marked,
              wrong_settings_are_named))
