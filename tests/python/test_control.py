"""control.sock of a Python run: both forms of the protocol, the handlers, and the C program as its client."""
import json
import math
import os
import signal
import socket
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from kit import SLOW, script, start, wait_for  # noqa: E402
import t  # noqa: E402
from t import run, run_json, test  # noqa: E402

import depthscope as ds  # noqa: E402
from depthscope import _control, _log  # noqa: E402


_control.PATIENCE_SECONDS = 20 * SLOW  # a busy machine is not what is tested


class Client:
    def __init__(self, path="runs/a/control.sock"):
        self.s = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.s.settimeout(20)
        wait_for(lambda: self.connects(path), what="room in the listen queue")
        self.f = self.s.makefile("rwb")

    def connects(self, path):
        try:
            self.s.connect(path)
            return True
        except BlockingIOError:
            return False

    def send(self, line):
        self.f.write(line if isinstance(line, bytes) else line.encode() + b"\n")
        self.f.flush()

    def answer(self):
        return self.f.readline().decode().rstrip("\n")

    def ask(self, line):
        self.send(line)
        return self.answer()

    def ask_json(self, **command):
        return json.loads(self.ask(json.dumps(command)))


class Loop:
    """A training loop on a thread: steps until it is told to stop."""

    lr = 0.001

    def __init__(self, step_seconds=0.005, **control):
        self.seconds = step_seconds
        self.run = ds.init(name="a", config={"lr": 0.001}, steps=100000, layers=2, control=control or None)
        self.is_over = False
        self.begin()

    def begin(self):
        self.thread = threading.Thread(target=self.loop)
        self.thread.start()
        wait_for(lambda: "loss" in self.run._last, what="the first step")

    def loop(self):
        i = 0
        while not self.is_over and not self.run.should_stop:
            self.run.log({"loss": 1.0, "lr": self.lr})
            time.sleep(self.seconds)
            i += 1
        self.run.finish()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.is_over = True
        if self.run.is_paused:
            Client().ask("resume")
        self.thread.join(20)
        assert not self.thread.is_alive()


def events(path="runs/a"):
    return [(e["name"], e["text"]) for e in ds.read(path).events]


@test
def plain_lines_get_plain_answers():
    seen = []
    with Loop(pause=True, checkpoint=lambda: "saved as step-1", probe=lambda: seen.append("probe"), set={"lr": seen.append}) as loop:
        c = Client()
        assert c.ask("status").startswith("ok step ") and "loss 1.0000, lr 0.001, running" in c.ask("status")
        assert c.ask("pause") == "ok pause" and c.ask("status").endswith("paused") and loop.run.is_paused
        at = loop.run.step
        time.sleep(0.1)
        assert loop.run.step == at
        loop.run.flush()
        assert run_json("inspect", "runs/a")["state"] == "paused"
        assert c.ask("pause") == "ok pause" and c.ask("set lr 2e-3") == "ok lr 0.002" and seen == [0.002]
        loop.run.flush()
        assert run_json("inspect", "runs/a")["state"] == "paused"
        assert c.ask("resume") == "ok resume"
        wait_for(lambda: loop.run.step > at, what="a step after the pause")
        assert c.ask("checkpoint") == "ok checkpoint: saved as step-1" and c.ask("probe") == "ok probe" and seen == [0.002, "probe"]
        assert c.ask("stop").startswith("error unknown command stop (pause, resume, checkpoint, probe, set, status)")
        for bad in ("set lr", "set lr x", "set lr 1 maybe", "set lr nan", "set lr inf", "set lr -inf", "set lr 1e999 yes"):
            assert c.ask(bad).startswith("error set"), bad
        assert c.ask("set wd 1").startswith("error set: unknown key wd (lr)") and c.ask("").startswith("error")
    assert seen == [0.002, "probe"]
    got = events()
    assert got == [("pause", "from the control socket"), ("set", "lr 0.002"), ("resume", "from the control socket"),
                   ("checkpoint", "saved as step-1"), ("probe", "from the control socket")], got
    assert not os.path.exists("runs/a/control.sock")


@test
def json_lines_get_json_answers():
    seen = []
    with Loop(pause=True, stop=True, set={"optim.lr": seen.append}) as loop:
        c = Client()
        assert c.ask_json(command="status")["ok"] is True
        assert c.ask_json(command="pause") == {"ok": True, "text": "pause"}
        assert c.ask_json(command="resume") == {"ok": True, "text": "resume"}
        assert c.ask_json(command="set", key="lr", value=1e-4) == {"ok": True, "text": "optim.lr 0.0001"} and seen == [1e-4]
        got = c.ask_json(command="set", key="optim.lr", value=1)
        assert got["ok"] is False and "more than 10 times the current 0.0001" in got["error"] and got["error"].startswith("confirm ") and seen == [1e-4]
        assert c.ask_json(command="set", key="optim.lr", value=1, yes=True)["ok"] and seen == [1e-4, 1]
        for bad in ({"command": "set", "key": "optim.lr", "value": "x"}, {"command": "set", "key": "optim.lr", "value": True}, {"command": 3},
                    {"command": "set", "key": "optim.lr", "value": 10**400}, {"command": "set", "key": "optim.lr", "value": -math.inf},
                    {"command": "set"}, {"command": "fly"}, {}):
            got = c.ask_json(**bad)
            assert got["ok"] is False and got["error"], bad
        assert json.loads(c.ask("{nonsense"))["ok"] is False
        assert c.ask_json(command="stop")["ok"] is True
        wait_for(lambda: not loop.run.is_active, what="the end")
    assert ds.read("runs/a").end["status"] == "stopped" and events()[-1][0] == "stop"


@test
def a_large_change_is_confirmed():
    seen = []

    def set_lr(value):
        seen.append(value)
        loop.lr = value

    with Loop(set={"lr": set_lr}) as loop:
        c = Client()
        assert c.ask("set lr 0.5").startswith("confirm lr = 0.5 is more than 10 times the current 0.001; to set it: set lr 0.5 yes")
        assert seen == [] and c.ask("set lr 0.5 yes") == "ok lr 0.5" and c.ask("set lr 0.6") == "ok lr 0.6" and seen == [0.5, 0.6]


@test
def the_current_value_is_the_newest_that_was_logged_or_set():
    seen = []
    with Loop(set={"lr": seen.append}) as loop:
        c = Client()
        for _ in range(2):  # a schedule overwrites what was set
            loop.lr = 1e-6
            at = loop.run.step
            wait_for(lambda: loop.run.step > at + 1, what="a step at the new rate")
            loop.run.flush()
            assert c.ask("set lr 5e-3").startswith("confirm lr = 0.005 is more than 10 times the current 1e-06"), seen
            assert c.ask("set lr 5e-3 yes") == "ok lr 0.005"
    assert seen == [5e-3, 5e-3]
    r = ds.init(name="b", config={"lr": 0.001, "wd": "x"}, control={"set": {"lr": seen.append, "wd": seen.append}})
    now = r._control._now
    assert (now("lr"), now("wd")) == (0.001, None)
    r.finish()


@test
def limits_are_kept_and_described():
    r = ds.init(name="a")
    r.on("set lr", lambda v: None, min=0, max=1)
    r.on("checkpoint", lambda: None)
    r.log({"loss": 1})
    r.on("probe", lambda: None)
    r.log({"loss": 2})
    c = Client()
    assert c.ask("set lr 2") == "error lr = 2: must be at most 1" and c.ask("set lr -1") == "error lr = -1: must be at least 0"
    r.finish()
    head = ds.read("runs/a").head
    assert head["live"] == [{"key": "lr", "min": 0, "max": 1}] and head["commands"] == ["checkpoint", "set", "status"], head
    assert events() == [("commands", "checkpoint probe set status")]
    for command, handler in (("two words", len), ("status", len), ("checkpoint", True), ("set", 3), ("set a b", len), ("fly", "high")):
        try:
            ds.init(name="x", control={command: handler}, resume="allow")
        except (ValueError, TypeError):
            continue
        raise AssertionError("%s %r was accepted" % (command, handler))
    ds.init(name="x", resume="allow").finish()  # the refused ones gave the lock back


@test
def a_slow_step_answers_pending_and_logs_the_result():
    _control.PATIENCE_SECONDS, former = 0.5, _control.PATIENCE_SECONDS
    try:
        pending_and_result()
    finally:
        _control.PATIENCE_SECONDS = former


def pending_and_result():
    with Loop(step_seconds=1.0, checkpoint=lambda: "late") as loop:
        c = Client()
        wait_for(lambda: loop.run.step >= 1, what="a step")
        got = c.ask("checkpoint")
        assert got == "ok pending 1: checkpoint: after the current step", got
        c2 = Client()
        got = c2.ask_json(command="checkpoint")
        assert got == {"ok": True, "text": "pending 2: checkpoint: after the current step"} or got == {"ok": True, "text": "checkpoint: late"}, got
        at = loop.run.step
        wait_for(lambda: loop.run.step > at + 1, what="a step")
        loop.seconds = 0.01
    assert ("command", "1 checkpoint: ok checkpoint: late") in events(), events()


@test
def a_handler_that_fails_is_an_answer():
    def bad():
        raise OSError("no space")
    with Loop(checkpoint=bad) as loop:
        c = Client()
        assert c.ask("checkpoint") == "error checkpoint: OSError: no space"
        assert c.ask("status").startswith("ok")
        assert loop.thread.is_alive()
    assert events() == [("command", "checkpoint: error checkpoint: OSError: no space")], events()


@test
def stop_can_interrupt_and_call():
    for text, want in (("control={'stop': 'interrupt'}", "interrupted"), ("control={'stop': lambda: print('called')}", "called")):
        p = start("""
import depthscope as ds, time, shutil
shutil.rmtree("runs", ignore_errors=True)
r = ds.init(name="a", %s)
print("ready", flush=True)
try:
    while not r.should_stop:
        r.log({"loss": 1})
        time.sleep(.01)
except KeyboardInterrupt:
    print("interrupted")
r.finish()
""" % text)
        p.stdout.readline()
        assert Client().ask("stop") == "ok stop"
        out, err = p.communicate(timeout=30)
        assert p.returncode == 0 and want in out.decode(), (out, err)
        assert ds.read("runs/a").end["status"] == "stopped"


@test
def the_c_program_stops_a_python_run():
    with Loop(stop=True) as loop:
        out = run("stop", "a")
        assert "stopped at step" in out, out
        assert not loop.run.is_active
    with Loop2() as loop:
        run("stop", "b", code=1)
        assert "refused: unknown command stop" in run.err or "refused" in run.err, run.err


class Loop2(Loop):
    def __init__(self):
        self.run = ds.init(name="b", control={"checkpoint": lambda: None})
        self.seconds, self.is_over = 0.005, False
        self.begin()


@test
def the_socket_is_private_and_stale_ones_are_replaced():
    p = start("import depthscope as ds, time; r = ds.init(name='a', control=['stop']); print('ready', flush=True); time.sleep(60)")
    p.stdout.readline()
    assert os.stat("runs/a/control.sock").st_mode & 0o777 == 0o600
    p.send_signal(signal.SIGKILL)
    p.communicate()
    assert os.path.exists("runs/a/control.sock")
    r = ds.init(name="a", resume="must", control=["stop"])
    assert Client().ask("status").startswith("ok")
    r.finish()
    assert not os.path.exists("runs/a/control.sock")


@test
def a_long_path_has_a_socket():
    deep = os.path.join("d" * 100, "e" * 100)
    r = ds.init(name="a", dir=deep, control=["stop"])
    assert os.path.exists(os.path.join(deep, "a", "control.sock"))
    out = []
    th = threading.Thread(target=lambda: out.append(run("stop", "a", DEPTHSCOPE_RUNS=deep)))
    th.start()
    wait_for(lambda: (r.poll(), r.should_stop)[1], what="stop")
    r.finish()
    th.join()
    assert "stopped" in out[0], out


@test
def hostile_clients_do_no_harm():
    with Loop(stop=True):
        idle = [Client() for _ in range(_control.CLIENTS_MAX + 3)]
        c = Client()
        c.send(b"x" * _control.LINE_MAX)
        assert c.answer() == "error line too long" and c.answer() == ""
        c = Client()
        c.send(b"\xff\xfe\0\n")
        assert c.answer().startswith("error unknown command")
        c.send(b'{"command": ' + b"[" * 3000 + b"\n")
        assert json.loads(c.answer())["ok"] is False
        half = Client()
        half.send(b"sto")
        half.f.close()
        half.s.close()
        quiet = Client()
        for _ in range(2000):
            try:
                quiet.s.send(b"status\n" * 50, socket.MSG_DONTWAIT)  # never reads its answers
            except OSError:
                break
        assert Client().ask("status").startswith("ok step")
        del idle


@test
def the_end_answers_clients_that_wait():
    r = ds.init(name="a", control=["stop"])
    c = Client()
    c.send("stop")
    wait_for(lambda: r._control._entries, what="the command")
    r.finish()
    assert c.answer() == 'error the run ended before "stop" was carried out' and not r.should_stop


@test
def a_run_without_commands_has_no_socket():
    script("""
import depthscope as ds, os
r = ds.init(name="a")
r.log({"loss": 1})
assert not os.path.exists("runs/a/control.sock")
r.finish()
""")
    with open("runs/a/log.mp", "rb") as f:
        assert next(iter(_log.Scan(f))).body["commands"] == []


t.main(fresh=True)
