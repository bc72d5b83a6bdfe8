#!/usr/bin/env python3
"""The workbench on a real pseudo-terminal: bytes sent, terminal state at exit, robustness.

The record streams are fixtures, written here from formulas.  Screens are read with pyte; without
it those checks are skipped with a printed reason.
"""
import fcntl
import math
import os
import pty
import random
import re
import select
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import records  # noqa: E402
import t  # noqa: E402
from records import frame, pack  # noqa: E402
from t import PROGRAM, ROOT, SLOW, Skip  # noqa: E402

try:
    import pyte
except ImportError:
    pyte = None

FIXTURE = os.path.join(ROOT, "tests", "screens", "training.mp")


# ---- records ----

class Log(records.Log):
    def head(self, layers=8, steps=2000):
        self.put("head", 0, format=1, run="fixture", method="edp", layers=layers, steps=steps, seed=1,
                 config={"edp.target_ratio": "0.7"})

    def step(self, i, **more):
        rng = random.Random(i)
        fall = math.exp(-i / 300)
        keys = dict(loss=1.4 + 4 * fall + 0.1 * rng.random(), lr=3e-4 * fall, grad_norm=1 + fall + 0.2 * rng.random(),
                    tok_s=5000 + 100 * rng.random(), tokens=2048 * i, flops_ratio=0.7 + 0.3 * fall,
                    time_ratio=0.8 + 0.2 * fall, block_ratio=0.7 + 0.2 * fall)
        for name, ms in (("forward", 110.0), ("loss", 60.0), ("backward", 200.0), ("optimizer", 15.0), ("data", 0.4), ("record", 0.3)):
            keys["time_" + name] = ms * (1 + 0.1 * rng.random())
        keys.update(mfu=0.4 + 0.02 * rng.random(), evaluation_share=0.06, checkpoint_share=0.01)
        keys.update(more)
        self.put("metric", i, **keys)
        if i % 10 == 0:
            self.put("layer", i, gate_ratio=[0.5 + 0.4 * math.cos(l + i / 90) for l in range(8)])


# ---- the terminal ----

class Tty:
    count = 0

    def __init__(self, args, rows=24, cols=80, env=None, shell=None):
        self.rows, self.cols, self.out = rows, cols, b""
        self.screen = pyte.Screen(cols, rows) if pyte else None
        self.stream = pyte.ByteStream(self.screen) if pyte else None
        full = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "COLORTERM", "LC_ALL", "LC_CTYPE")}
        Tty.count += 1  # a check must not start with the view saved by the previous one
        full.update({"TERM": "xterm-256color", "LANG": "C.UTF-8", "XDG_STATE_HOME": "%s/%d" % (STATE, Tty.count)})
        full.update(env or {})
        ready, go = os.pipe()
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.read(ready, 1)  # the size is set before the program asks for it
            argv = ["sh", "-c", shell, PROGRAM] + args if shell else [PROGRAM] + args
            os.execvpe(argv[0], argv, full)
        self.resize(rows, cols)
        self.before = termios.tcgetattr(self.fd)
        os.write(go, b"x")
        os.close(ready)
        os.close(go)
        self.status = None

    def resize(self, rows, cols):
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))
        if self.screen and (rows, cols) != (self.screen.lines, self.screen.columns) and 0 < rows < 600 and 0 < cols < 1100:
            self.screen.resize(rows, cols)

    def read(self, seconds=0.4, limit=8.0):
        """Bytes until the line has been quiet for `seconds`; the first ones are waited for."""
        got, end = b"", time.time() + limit
        while time.time() < end:
            ready, _, _ = select.select([self.fd], [], [], seconds)
            if not ready and (got or self.out):
                break
            if not ready:
                continue
            try:
                data = os.read(self.fd, 65536)
            except OSError:
                break
            if not data:
                break
            got += data
        self.out += got
        if self.stream:
            self.stream.feed(got.replace(b"\x1b[?2026$p", b""))
        return got

    def keys(self, data, seconds=0.25):
        os.write(self.fd, data if isinstance(data, bytes) else data.encode())
        return self.read(seconds)

    def text(self):
        return "\n".join(self.screen.display)

    def wait(self, seconds=5.0):
        end = time.time() + seconds * t.SLOW
        while time.time() < end and self.status is None:
            self.read(0.05, 0.2)
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.status = status
                self.read(0.05, 1)  # what it wrote after the last read
        if self.status is None:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        return self.status

    def close(self):
        if self.status is None:
            try:
                os.write(self.fd, b"\x03")
            except OSError:
                pass
            self.wait()
        try:
            os.close(self.fd)
        except OSError:
            pass
        return self.status


def check(cond, text):
    if not cond:
        raise AssertionError(text)


def are_small(costs):
    """Bytes per step.  On a busy machine what is drawn when the cursor rests comes with a step now and then."""
    check(sorted(costs)[len(costs) // 2] <= 150 and max(costs) <= 1100, "%s B per step" % costs)


def wait(condition, seconds, tty, what):
    """Reads the screen until the condition holds."""
    end = time.time() + seconds * t.SLOW
    while time.time() < end:
        tty.read(0.1, 0.3)
        if condition():
            return
    check(0, what + ("\n" + tty.text() if pyte else ""))


def is_clean(t):
    """Alternate screen left, mouse and paste off, line settings as they were."""
    tail = t.out[-400:]
    check(b"\x1b[?1049l" in tail, "alternate screen left on: %r" % tail[-80:])
    check(b"\x1b[?2004l" in tail and b"\x1b[?1002l" in tail, "mouse or paste left on")
    check(b"\x1b[?25h" in tail, "cursor left hidden")
    now = termios.tcgetattr(t.fd)
    check(now[:4] == t.before[:4], "line settings differ: %r %r" % (now[:4], t.before[:4]))


def end(t):
    """It is told to quit, and leaves the terminal as it was."""
    t.keys("q")
    t.wait()
    is_clean(t)
    check(t.status == 0, "status %r" % t.status)
    os.close(t.fd)


def is_sane(t):
    check(t.status is not None, "did not end")
    check(not os.WIFSIGNALED(t.status), "killed by signal %d" % os.WTERMSIG(t.status))


def live_log(steps):
    path = os.path.join(TMP, "live-%d.mp" % len(os.listdir(TMP)))
    log = Log(path)
    log.head()
    for i in range(1, steps + 1):
        log.step(i)
    return path, log


# ---- checks ----

def step_costs_under_a_kilobyte():
    path, log = live_log(400)
    t = Tty([path])
    t.read(1.0)
    start, n = len(t.out), 20
    for i in range(401, 401 + n):
        log.step(i)
        t.read(0.35)
    cost = (len(t.out) - start) / n
    t.close()
    print("  %.0f B per new step, six charts at 80x24, 256 colours" % cost)
    check(cost <= 1000, "%.0f B per step" % cost)
    check(t.out.count(b"\x1b[2J") <= 1, "cleared after the start")


def step_with_its_account_costs_under_a_kilobyte():
    path, log = live_log(400)
    t = Tty([path])
    t.read(1.0)
    t.keys("G", 0.5)
    if pyte:
        check("backward" in t.text() and "record" in t.text(), "the time breakdown is not shown\n" + t.text())
    start, n = len(t.out), 20
    for i in range(401, 401 + n):
        log.step(i)
        t.read(0.35)
    cost = (len(t.out) - start) / n
    t.close()
    print("  %.0f B per new step, the page with the step's account" % cost)
    check(cost <= 1000, "%.0f B per step" % cost)


def step_costs_under_a_kilobyte_in_truecolor():
    path, log = live_log(400)
    t = Tty([path], env={"COLORTERM": "truecolor"})
    t.read(1.0)
    start, n = len(t.out), 20
    for i in range(401, 401 + n):
        log.step(i)
        t.read(0.35)
    cost = (len(t.out) - start) / n
    t.close()
    print("  %.0f B per new step, six charts at 80x24, truecolor" % cost)
    check(b"38;2;" in t.out, "no direct colour")
    check(cost <= 1000, "%.0f B per step" % cost)


def cursor_step_is_small():
    t = Tty(["--view", "log", FIXTURE])
    t.read(0.8)
    t.keys("k")
    costs = [len(t.keys(k)) for k in "kjkj"]
    t.close()
    print("  %s B per cursor step in a list" % costs)
    are_small(costs)


def idle_is_silent_and_free():
    t = Tty([FIXTURE])
    t.read(1.0)
    with open("/proc/%d/stat" % t.pid) as f:
        before = f.read().rsplit(")", 1)[1].split()
    extra = t.read(3.0, 3.0)
    with open("/proc/%d/stat" % t.pid) as f:
        after = f.read().rsplit(")", 1)[1].split()
    ticks = int(after[11]) + int(after[12]) - int(before[11]) - int(before[12])
    t.close()
    print("  %d B and %d ticks in 3 s of idling" % (len(extra), ticks))
    check(len(extra) == 0 and ticks <= 3, "idle costs %d B, %d ticks" % (len(extra), ticks))


def a_million_points_show_spike_and_nan():
    path = os.path.join(TMP, "million.mp")
    size, spike, nan = 1_000_000, 700_003, 300_001
    with open(path, "wb") as f:
        seq, out = 1, []
        log = Log(os.path.join(TMP, "million-head.mp"))
        log.head(steps=size)
        f.write(open(log.file.name, "rb").read())
        # metric records by hand: one format string, so that a million of them takes seconds
        prefix = (b"\x84" + pack("kind")[0:0] + b"\xa4kind\xa6metric\xa4step\xd2%s\xa4time\xcb%s\xa4loss\xcb%s")
        points = int(os.environ.get("T_POINTS", "20000"))
        ratio = size // points
        for i in range(points):
            loss = 50.0 if i == spike // ratio else float("nan") if i == nan // ratio else 2.0 + 0.1 * math.sin(i / 50)
            body = prefix % (struct.pack(">i", i * ratio), struct.pack(">d", 1000.0 + i), struct.pack(">d", loss))
            seq += 1
            out.append(frame(seq, body))
        f.write(b"".join(out))
    start = time.time()
    t = Tty([path])
    t.read(1.0)
    print("  %d points: open and settle %.2f s (with 1 s of waiting)" % (points, time.time() - start))
    if pyte:
        text = t.text()
        check("\u25b4" in text, "spike of one point is not visible\n" + text)
        check("\u00d7" in text, "NaN is not visible\n" + text)
    t.close()


def ends_clean(signo, want):
    t = Tty([FIXTURE])
    t.read(0.8)
    os.kill(t.pid, signo)
    t.wait()
    is_clean(t)
    check(t.status is not None and want(t.status), "status %r" % t.status)
    os.close(t.fd)


def sigterm_leaves_the_terminal_clean():
    ends_clean(signal.SIGTERM, lambda s: os.WIFEXITED(s))


def signals_of_batch_systems_and_timers_leave_it_clean():
    for signo in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM, signal.SIGXCPU):
        ends_clean(signo, os.WIFEXITED)


def sigsegv_leaves_the_terminal_clean():
    ends_clean(signal.SIGSEGV, lambda s: True)


def sigabrt_leaves_the_terminal_clean():
    ends_clean(signal.SIGABRT, lambda s: True)


def quit_leaves_the_terminal_clean():
    t = Tty([FIXTURE])
    t.read(0.8)
    t.keys("q")
    t.wait()
    is_clean(t)
    check(t.status == 0, "status %r" % t.status)
    os.close(t.fd)


def lost_terminal_ends_without_spinning():
    t = Tty([FIXTURE])
    t.read(0.8)
    os.close(t.fd)
    end, status = time.time() + 3, None
    while time.time() < end and status is None:
        pid, s = os.waitpid(t.pid, os.WNOHANG)
        status = s if pid else None
        time.sleep(0.02)
    if status is None:
        os.kill(t.pid, signal.SIGKILL)
        os.waitpid(t.pid, 0)
    check(status is not None, "still running 3 s after the line dropped")


def a_lost_terminal_ends_every_dialog():
    """Whatever is open when the line drops, and also where SIGHUP is ignored: the end within a second, without spinning."""
    for ignored in (False, True):
        for keys in ("", ":", ":set ", "?", "V", "/", "a", "e"):
            t = Tty([FIXTURE], shell='trap "" HUP; exec "$0" "$@"' if ignored else None)
            t.read(0.5)
            t.keys(keys, 0.1)
            os.close(t.fd)
            begin, ended = time.time(), False
            while time.time() < begin + 3 * SLOW and not ended:
                pid, status, usage = os.wait4(t.pid, os.WNOHANG)
                ended = pid != 0
                time.sleep(0.01)
            took = time.time() - begin
            if not ended:
                os.kill(t.pid, signal.SIGKILL)
                _, status, usage = os.wait4(t.pid, 0)
            what = "%r, SIGHUP %s" % (keys, "ignored" if ignored else "default")
            check(ended and took < 1 * SLOW, "%s: ended %s after %.1f s" % (what, ended, took))
            check(usage.ru_utime + usage.ru_stime < 0.8 * SLOW, "%s: %.1f s of processor" % (what, usage.ru_utime + usage.ru_stime))
            t.status = status


def suspend_and_continue_ten_times():
    t = Tty([FIXTURE])
    t.read(0.8)
    for _ in range(10):
        os.kill(t.pid, signal.SIGTSTP)
        t.read(0.05, 0.5)
        os.kill(t.pid, signal.SIGCONT)
        t.read(0.05, 0.5)
    t.read(0.4)
    if pyte:
        check("Monitor" in t.text(), "no redraw after SIGCONT")
    t.close()
    is_sane(t)


def every_terminal_type_starts():
    for term in ("xterm-256color", "tmux-256color", "screen-256color", "linux", "vt100", "xterm-kitty", "foot", "nonsense", "dumb", ""):
        t = Tty([FIXTURE], env={"TERM": term})
        t.read(0.7)
        raw = bytes(t.out)
        t.close()
        is_sane(t)
        if term in ("dumb", ""):
            check(b"TERM" in t.out, term + ": the terminal is not named in the error")
        else:
            check(b"loss" in raw, "%s: nothing drawn: %r" % (term, raw[:200]))
            check((b"unknown terminal" in raw) == (term == "nonsense"), "%s: known or not: %r" % (term, raw[-200:]))
        if term == "vt100":
            check(b"38;5" not in raw, "vt100: colours")


def no_colour_and_no_utf8():
    t = Tty([FIXTURE], env={"NO_COLOR": "1"})
    t.read(0.7)
    sgr = b";".join(re.findall(rb"\x1b\[([0-9;]*)m", t.out)).split(b";")
    check(not [n for n in sgr if n[:1] in (b"3", b"4") and len(n) == 2 and n not in (b"39", b"49")], "NO_COLOR: colours sent: %r" % sgr)
    t.close()
    t = Tty([FIXTURE], env={"LANG": "C", "LC_ALL": "C"})
    t.read(0.7)
    raw = bytes(t.out)
    t.close()
    check(all(b < 0x80 for b in raw), "LANG=C: bytes beyond ASCII")
    check(b"loss" in raw, "LANG=C: nothing drawn")


def sizes_and_storms():
    t = Tty([FIXTURE], rows=5, cols=20)
    t.read(0.6)
    rng = random.Random(1)
    for i in range(300):
        t.resize(rng.randrange(1, 70), rng.randrange(1, 220))
        if i % 40 == 0:
            t.read(0.01, 0.05)
    for rows, cols in ((0, 0), (1, 1), (3, 7), (65535, 65535), (20000, 20000), (24, 80)):
        t.resize(rows, cols)
        t.read(0.1, 1.0)
    t.read(0.6)
    if pyte:
        t.screen.reset()
        t.resize(24, 80)
        t.keys(b"\x0c", 0.5)
        wait(lambda: "Monitor" in t.text() and "quit" in t.text(), 5, t, "final size not drawn")
    t.close()
    is_sane(t)


def two_thousand_resizes_end_at_the_last_size():
    t = Tty([FIXTURE])
    t.read(0.6)
    before, rng, begin = len(t.out), random.Random(3), time.time()
    for _ in range(2000):
        fcntl.ioctl(t.fd, termios.TIOCSWINSZ, struct.pack("HHHH", rng.randrange(10, 60), rng.randrange(40, 200), 0, 0))
    fcntl.ioctl(t.fd, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    took = time.time() - begin
    got = t.read(0.5)
    print("  %d B drawn for 2,000 resizes in %.2f s" % (len(t.out) - before, took))
    check(len(t.out) - before < 100 * 6000, "resizes are not coalesced: %d B" % (len(t.out) - before))
    last = t.keys(b"\x0c", 0.5)
    rows = [int(n) for n in re.findall(rb"\x1b\[(\d+)(?:;\d+)?H", last)]
    check(b"quit" in got + last and rows and max(rows) <= 24, "the last size is not drawn: rows %s" % sorted(set(rows))[-3:])
    t.close()
    is_sane(t)


def a_terminal_that_takes_nothing_is_not_queued_for():
    path, log = live_log(300)
    t = Tty([path])
    t.read(0.8)
    for i in range(301, 1301):  # nothing is read meanwhile, as after Ctrl-S
        log.step(i)
        if i % 10 == 0:
            time.sleep(0.03)
    with open("/proc/%d/statm" % t.pid) as f:
        resident = 4096 * int(f.read().split()[1])
    got = t.read(0.5)
    print("  %d B for 1,000 steps that a stalled terminal missed, %.1f MB resident" % (len(got), resident / 1e6))
    check(len(got) < 200000, "%d B were queued" % len(got))
    check(resident < 200e6, "%.1f MB resident" % (resident / 1e6))
    t.keys(":", 0.3)
    check(b":" in t.out[-2000:], "keys are not answered afterwards")
    t.keys("\x1b", 0.3)
    t.close()
    is_sane(t)


def a_killed_workbench_is_started_again_on_its_live_run():
    runs = os.path.join(TMP, "killed")
    keys = ("model.layers=6 model.dim=16 model.heads=2 model.vocab=300 model.max_seq=64 data.docs=20 data.tokenizer=bytes data.val_fraction=0.2 "
            "train.batch=4 train.seq=32 train.eval_tokens=64 train.final_tokens=64 train.time_rounds=0 train.steps=1000000 threads=1 "
            "train.checkpoint_every=1000000 train.eval_every=1000000 train.probe_every=1000000").split()
    run = subprocess.Popen([PROGRAM, "train", *keys, "--run", "r", "--quiet"], env={**os.environ, "DEPTHSCOPE_RUNS": runs},
                           stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    log = os.path.join(runs, "r", "log.mp")
    try:
        end = time.time() + 30 * SLOW
        while time.time() < end and not (os.path.exists(log) and os.path.getsize(log) > 8000):
            time.sleep(0.05)
        first = None
        for _ in range(2):
            t = Tty([os.path.join(runs, "r")], env={"XDG_STATE_HOME": os.path.join(STATE, "killed"), "DEPTHSCOPE_RUNS": runs})
            end = time.time() + 20 * SLOW
            while time.time() < end and not (b"live" in t.out and b"loss" in t.out):
                t.read(0.3, 2.0)
            check(b"live" in t.out and b"loss" in t.out, "not attached to the live run: %r" % bytes(t.out)[-300:])
            if first is None:
                first = t
                t.keys(":log\r")
                os.kill(t.pid, signal.SIGKILL)
                os.waitpid(t.pid, 0)
                os.close(t.fd)
                size = os.path.getsize(log)
        time.sleep(0.3)
        check(run.poll() is None and os.path.getsize(log) > size, "the run did not go on")
        t.keys(":probe\r", 0.5)
        t.keys("q")
        t.wait()
        os.close(t.fd)
        check(t.status == 0, "status %r" % t.status)
        said = subprocess.run([PROGRAM, "stop", "r"], env={**os.environ, "DEPTHSCOPE_RUNS": runs}, capture_output=True, timeout=60 * SLOW)
        check(said.returncode == 0 and run.wait(30 * SLOW) == 0, "not stopped: %r" % said)
    finally:
        run.kill()
        run.wait()


def tmux_attached_again_at_another_size_is_drawn_anew():
    if not shutil.which("tmux"):
        raise Skip("tmux is not installed")
    name = "ds-%d" % os.getpid()
    tmux = "tmux -L %s -f /dev/null " % name
    def pane():
        return subprocess.run((tmux + "capture-pane -p").split(), capture_output=True, timeout=20).stdout.decode("utf-8", "replace")
    def shows(width):
        end = time.time() + 8 * SLOW
        while time.time() < end:
            t.read(0.1, 0.3)
            lines = pane().split("\n")
            if "loss" in pane() and "quit" in pane() and 0.8 * width < max(map(len, lines)) <= width:
                return True
        return False
    try:
        t = Tty([FIXTURE], rows=40, cols=150, shell='exec %snew-session "exec $0 $1"' % tmux)
        check(shows(150), "not drawn in tmux: %r" % pane())
        t.keys(b"\x02d")  # detach
        t.wait()
        os.close(t.fd)
        t = Tty([], rows=20, cols=70, shell="exec %sattach" % tmux)
        check(shows(70), "not drawn at the smaller size: %r" % pane())
        t.keys("q")
        t.wait()
        os.close(t.fd)
    finally:
        subprocess.run((tmux + "kill-server").split(), capture_output=True)


def random_keys_do_no_harm():
    rng = random.Random(int(os.environ.get("T_SEED", "7")))
    t = Tty(["--readonly", FIXTURE])
    t.read(0.6)
    for _ in range(60):
        # everything except what quits or suspends
        data = bytes(b for b in (rng.randrange(256) for _ in range(200)) if b not in (3, 26, ord("q"), ord("e"), 13))
        os.write(t.fd, data)
        t.read(0.01, 0.1)
    t.keys(b"\x1b\x1b\x1b", 0.3)
    t.close()
    is_sane(t)


def escape_answers_at_once():
    t = Tty([FIXTURE])
    t.read(0.8)
    t.keys(":", 0.2)
    start = time.time()
    os.write(t.fd, b"\x1b")
    select.select([t.fd], [], [], 1.0)
    took = time.time() - start
    t.close()
    print("  ESC answered in %.0f ms" % (took * 1000))
    check(took < 0.25, "ESC took %.3f s" % took)


def the_theme_follows_the_background_that_the_terminal_reports():
    dark, light = b"\x1b]11;rgb:1010/1010/1010\x07", b"\x1b]11;rgb:ffff/ffff/f0f0\x1b\\"
    text = {"dark": b"38;2;216;222;233", "light": b"38;2;27;31;36"}
    white, black = b"48;2;255;255;255", b"48;2;20;24;30"
    for args, reply, want, painted in (([], dark, "dark", None), ([], light, "light", None), (["--theme", "light"], dark, "light", white),
                                       (["--theme", "light"], None, "light", white), (["--theme", "dark"], light, "dark", black)):
        t = Tty([FIXTURE] + args, env={"COLORTERM": "truecolor"})
        first = t.read()
        check(b"\x1b]11;?" in first, "the background is not asked for")
        got = t.keys(reply) if reply else first
        got += t.keys("?") + t.keys("\x1b")
        check(text[want] in got, "%s %r: text is not that of the %s theme" % (args, reply, want))
        for colour in (white, black):
            check((colour in got) == (colour == painted), "%s %r: background %r" % (args, reply, colour))
        t.keys("q")
        t.wait()
        is_clean(t)
        t.close()


def what_is_wrong_in_the_theme_at_the_start_is_shown():
    home = os.path.join(TMP, "wrong-themes")
    os.makedirs(os.path.join(home, "depthscope", "themes"))
    for name in ("light", "own"):
        with open(os.path.join(home, "depthscope", "themes", name + ".theme"), "w") as f:
            f.write("inherit = dark\ntext = reddish\n")
    for args, reply in (([], b"\x1b]11;rgb:ffff/ffff/ffff\x07"), (["--theme", "own"], b"")):
        t = Tty([FIXTURE] + args, cols=200, env={"XDG_CONFIG_HOME": home})
        got = t.read() + t.keys(reply, 0.5)
        check(b"unknown colour or attribute" in got, "%s: the warning is not shown" % args)
        t.keys("q")
        t.wait()
        t.close()


def a_stream_on_stdin_leaves_the_keys_to_the_terminal():
    t = Tty(["-"], shell='{ cat "%s"; sleep 3; } | "$0" "$@"' % FIXTURE)
    t.read(1.0)
    if pyte:
        check("fixture-edp" in t.text() and "loss" in t.text(), "the stream is not shown\n" + t.text())
    t.keys("q", 0.5)
    check(b"\x1b[?1049l" in t.out, "q did not leave")
    t.close()


def the_view_of_a_run_is_kept():
    state = os.path.join(STATE, "kept")
    t = Tty([FIXTURE], env={"XDG_STATE_HOME": state})
    t.read(0.8)
    t.keys("s")
    t.keys(":flops\r")
    t.keys("q")
    t.wait()
    os.close(t.fd)
    t = Tty([FIXTURE], env={"XDG_STATE_HOME": state})
    t.read(0.8)
    if pyte:
        check("FLOPs per token" in t.text(), "the view was not kept\n" + t.text())
        t.keys(":monitor\r")
        check("smooth 0.9" in t.text(), "the setting was not kept\n" + t.text())
    t.close()


def the_settings_of_the_pane_in_use_are_kept():
    state = os.path.join(STATE, "panes")
    t = Tty([FIXTURE], env={"XDG_STATE_HOME": state})
    t.read(0.8)
    for keys in ("|", "|", "|", "s", "s", "|", "\t", "c", "\t", "q"):
        t.keys(keys)
    t.wait()
    os.close(t.fd)
    kept = [os.path.join(at, name) for at, _, names in os.walk(state) for name in names]
    check(len(kept) == 1, "kept: %r" % kept)
    with open(kept[0]) as f:
        text = f.read()
    check("\nmonitor.smoothing = 3\n" in text and "\nmonitor.columns = 0\n" in text, "of another pane\n" + text)


def the_view_of_a_run_that_was_marked_first_is_kept():
    state, runs = os.path.join(STATE, "marked"), os.path.join(TMP, "runs-marked")
    os.makedirs(os.path.join(runs, "one"))
    log = Log(os.path.join(runs, "one", "log.mp"))
    log.head()
    log.step(1)
    t = Tty([], env={"XDG_STATE_HOME": state, "DEPTHSCOPE_RUNS": runs})
    t.read(0.8)
    for keys in (" ", "gg", "\r", "s", "s", "q"):
        t.keys(keys)
    t.wait()
    os.close(t.fd)
    kept = [os.path.join(at, name) for at, _, names in os.walk(state) for name in names]
    check(len(kept) == 1, "kept: %r" % kept)
    with open(kept[0]) as f:
        check("\nmonitor.smoothing = 3\n" in f.read(), "the setting was not kept")


def a_preview_is_never_of_another_figure():
    run = os.path.join(TMP, "training", "one")
    os.makedirs(run)
    log = Log(os.path.join(run, "log.mp"))
    log.head(layers=2, steps=50)
    for i in range(1, 51):
        log.step(i)
    log.put("probe", 50, index=0, layers=2, ids=[1, 2], text=["a", "b"], run=[1, 0, 1, 1])
    t = Tty([run, "--view", "figures"], rows=30, cols=100)
    t.read(1.0, 10.0 * SLOW)
    t.keys(":search routing_map\r", 1.5)
    check(b"drawing" in t.keys("j", 0.3), "the picture of the figure before stays under the name of this one")
    t.close()


def details_that_are_still_read_say_so():
    runs = os.path.join(TMP, "runs-long")
    os.makedirs(os.path.join(runs, "long"))
    log = Log(os.path.join(runs, "long", "log.mp"))
    log.head(steps=8000)
    for i in range(1, 8001):
        log.step(i)
    t = Tty([], rows=40, cols=140, env={"DEPTHSCOPE_RUNS": runs})
    t.read(1.0, 2.0)
    check(b"reading" in bytes(t.out), "the part that was read passes for the whole")
    t.close()


def a_slow_link_is_kept_within_its_budget():
    path, log = live_log(300)
    t = Tty(["--link", "1k", path])
    t.read(1.5)
    start, begin, i = len(t.out), time.time(), 300
    while time.time() < begin + 5:
        i += 1
        log.step(i)
        t.read(0.05, 0.1)
    rate = (len(t.out) - start) / (time.time() - begin)
    t.close()
    print("  %.0f B/s on a budget of 1000 B/s" % rate)
    check(rate < 1300, "%.0f B/s on a budget of 1000" % rate)


def hostile_text_stays_text():
    t = Tty([os.path.join(ROOT, "tests", "screens", "hostile.mp")])
    t.read(0.8)
    raw = bytes(t.out)
    t.close()
    check(b"\x1b]0;" not in raw and b"\xe2\x80\xae" not in raw, "raw text of a file reached the terminal")


def a_model_in_one_file_opens_in_the_stepper():
    model = os.path.join(TMP, "m.gguf")
    made = subprocess.run([PROGRAM, "convert", "random:quick", "model.method=dense", "model.dim=32", "model.heads=2", "model.kv_heads=2",
                           "model.layers=2", "model.vocab=257", "tokenizer=bytes", "-o", model], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, timeout=60)
    check(made.returncode == 0, made.stdout.decode("utf-8", "replace"))
    t = Tty([model])
    t.read(2.0)
    check(b"Stepper" in bytes(t.out) and b"record stream" not in bytes(t.out), "a GGUF file is not opened as a model")
    t.close()


def main(checks):
    """Runs the checks with a temporary directory of their own, TMP."""
    global TMP, STATE
    TMP = tempfile.mkdtemp(prefix="ds-tty-")
    STATE = os.path.join(TMP, "state")
    os.mkdir(STATE)
    try:
        t.main(chosen=checks, unchecked="" if pyte else "pyte is not installed: what the screen shows is not checked, only bytes")
    finally:
        shutil.rmtree(TMP, ignore_errors=True)


if __name__ == "__main__":
    main((
        step_costs_under_a_kilobyte, step_with_its_account_costs_under_a_kilobyte,
        step_costs_under_a_kilobyte_in_truecolor, cursor_step_is_small, idle_is_silent_and_free,
        a_million_points_show_spike_and_nan, quit_leaves_the_terminal_clean,
        sigterm_leaves_the_terminal_clean, signals_of_batch_systems_and_timers_leave_it_clean, sigsegv_leaves_the_terminal_clean,
        sigabrt_leaves_the_terminal_clean, lost_terminal_ends_without_spinning, a_lost_terminal_ends_every_dialog,
        two_thousand_resizes_end_at_the_last_size, a_terminal_that_takes_nothing_is_not_queued_for,
        a_killed_workbench_is_started_again_on_its_live_run, tmux_attached_again_at_another_size_is_drawn_anew,
        suspend_and_continue_ten_times, every_terminal_type_starts, no_colour_and_no_utf8, sizes_and_storms,
        random_keys_do_no_harm, escape_answers_at_once, a_stream_on_stdin_leaves_the_keys_to_the_terminal,
        the_view_of_a_run_is_kept, the_view_of_a_run_that_was_marked_first_is_kept, the_settings_of_the_pane_in_use_are_kept,
        the_theme_follows_the_background_that_the_terminal_reports,
        what_is_wrong_in_the_theme_at_the_start_is_shown, details_that_are_still_read_say_so,
        a_preview_is_never_of_another_figure,
        a_slow_link_is_kept_within_its_budget, hostile_text_stays_text, a_model_in_one_file_opens_in_the_stepper))
