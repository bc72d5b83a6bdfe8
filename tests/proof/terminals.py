"""Terminal programs that the proof drives: each starts a program in itself, presses keys, and says what it shows.
This file knows nothing about the workbench."""
import array
import codecs
import fcntl
import json
import os
import pty
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
import unicodedata

sys.path.append("/usr/lib/python3/dist-packages")
try:
    import pyte
except ImportError:
    pyte = None

INSIDE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "terminal_inside.py")
ALTERNATE, PASTE, CURSOR, MOUSE = 1049, 2004, 25, (1000, 1002, 1003, 1006)


# ---- the bytes of keys, as xterm sends them ----

CSI_LETTER = {"Up": "A", "Down": "B", "Right": "C", "Left": "D", "Home": "H", "End": "F"}
CSI_TILDE = {"Ins": 2, "Del": 3, "PgUp": 5, "PgDn": 6, "F5": 15, "F6": 17, "F7": 18, "F8": 19, "F9": 20, "F10": 21, "F11": 23, "F12": 24}
SS3 = {"F1": "P", "F2": "Q", "F3": "R", "F4": "S"}
PLAIN = {"Tab": b"\t", "S-Tab": b"\x1b[Z", "Enter": b"\r", "Esc": b"\x1b", "Backspace": b"\x7f", "Space": b" "}


def split_key(name):
    """("C-S-Up") -> (modifiers as xterm counts them, "Up")"""
    mods = 0
    while len(name) > 2 and name[1] == "-" and name[0] in "SMC":
        mods |= {"S": 1, "M": 2, "C": 4}[name[0]]
        name = name[2:]
    return mods, name


def xterm_bytes(name):
    if name in PLAIN:
        return PLAIN[name]
    mods, key = split_key(name)
    tail = ";%d" % (mods + 1) if mods else ""
    if key in CSI_LETTER:
        return ("\x1b[%s%s%s" % ("1" if mods else "", tail, CSI_LETTER[key])).encode()
    if key in SS3:
        return ("\x1b[1%s%s" % (tail, SS3[key]) if mods else "\x1bO" + SS3[key]).encode()
    if key in CSI_TILDE:
        return ("\x1b[%d%s~" % (CSI_TILDE[key], tail)).encode()
    if mods == 4 and len(key) == 1:
        return bytes([ord(key.upper()) & 0x1F])
    if mods == 2:
        return b"\x1b" + key.encode()
    return key.encode()


# ---- drivers ----

class Gone(Exception):
    """The terminal, or what ran in it, ended early."""


class Terminal:
    name, size = "?", (24, 80)
    modes_asked = ()  # private modes whose state the terminal itself reports
    has_modifiers = has_mouse = True
    alias = {}  # keys that it sends as others
    takes_bytes = False  # sequences can be sent as they are
    first = ""  # what it is sent before the program starts

    @staticmethod
    def missing():
        return ""

    def __init__(self, argv, env, rows, cols):
        self.dir = tempfile.mkdtemp(prefix="ds-term-")
        self.size = (rows, cols)
        self.children = []
        with open(os.path.join(self.dir, "job.json"), "w", encoding="utf-8") as f:
            json.dump({"argv": argv, "env": env, "modes": self.modes_asked, "first": self.first}, f)
        self.inside = [sys.executable, INSIDE, self.dir]
        try:
            self.open(rows, cols)
            self.started = self.read_json("started.json", 20)
        except BaseException:
            self.close()
            raise

    def read_json(self, name, seconds):
        path, end = os.path.join(self.dir, name), time.monotonic() + seconds
        while time.monotonic() < end:
            if os.path.exists(path):
                with open(path, encoding="utf-8") as f:
                    return json.load(f)
            self.pump(0.02)
        raise Gone("%s: no %s after %d s%s" % (self.name, name, seconds, self.why()))

    def why(self):
        return ""

    def pump(self, seconds):
        time.sleep(seconds)

    def cursor(self):
        """(row, column), or None where the terminal does not say."""
        return None

    def press_all(self, names):
        for name in names:
            self.press(name)

    def child(self, argv, env=None, **kw):
        full = {**os.environ, "LANG": "C.UTF-8", "LC_ALL": "C.UTF-8", **(env or {})}
        for gone in ("NO_COLOR", "COLORTERM", "TMUX", "STY"):
            full.pop(gone, None)
        kw.setdefault("stdin", subprocess.DEVNULL)
        kw.setdefault("stdout", subprocess.DEVNULL)
        kw.setdefault("stderr", subprocess.DEVNULL)
        p = subprocess.Popen(argv, env={**full, **(env or {})}, start_new_session=True, **kw)
        self.children.append(p)
        return p

    def signal(self, signo):
        os.kill(self.started["pid"], signo)

    def ended(self, seconds=10):
        return self.read_json("ended.json", seconds)

    def close(self):
        with open(os.path.join(self.dir, "bye"), "w", encoding="utf-8"):
            pass
        for signo in (signal.SIGTERM, signal.SIGKILL):
            if hasattr(self, "started"):
                try:
                    with open("/proc/%d/cmdline" % self.started["pid"], "rb") as f:
                        if b"depthscope" in f.read():
                            os.kill(self.started["pid"], signal.SIGKILL)
                except OSError:
                    pass
            for p in self.children:
                if p.poll() is None:
                    try:
                        os.killpg(p.pid, signo)
                    except OSError:
                        pass
            for p in self.children:
                try:
                    p.wait(2)
                except subprocess.TimeoutExpired:
                    pass
        shutil.rmtree(self.dir, ignore_errors=True)


class Pty(Terminal):
    """A pseudo-terminal read by the emulator library pyte; what is inside may be a multiplexer."""
    name, term, takes_bytes = "pyte", "xterm-256color", True

    @staticmethod
    def missing():
        return "" if pyte else "python3-pyte is not installed"

    def command(self):
        return self.inside, {}

    def open(self, rows, cols):
        argv, more = self.command()
        full = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "COLORTERM", "TMUX", "STY", "LC_CTYPE")}
        full.update({"LANG": "C.UTF-8", "LC_ALL": "C.UTF-8", "TERM": self.term, **more})
        self.screen = pyte.Screen(cols, rows)
        self.stream = pyte.Stream(self.screen)
        self.text8 = codecs.getincrementaldecoder("utf-8")("replace")
        self.out, self.private, self.held = b"", {}, ""
        master, slave = pty.openpty()
        fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))
        p = subprocess.Popen(argv, env=full, stdin=slave, stdout=slave, stderr=slave, start_new_session=True,
                             preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))
        os.close(slave)
        self.fd = master
        self.children.append(p)

    def pump(self, seconds):
        end = time.monotonic() + seconds
        while True:
            ready, _, _ = select.select([self.fd], [], [], max(0, end - time.monotonic()))
            if not ready:
                return
            try:
                data = os.read(self.fd, 65536)
            except OSError:
                data = b""
            if not data:
                time.sleep(max(0, end - time.monotonic()))
                return
            self.out = (self.out + data)[-200000:]
            self.feed(self.text8.decode(data))
            for m in re.finditer(rb"\x1b\[\?([\d;]+)([hl])", self.out[-len(data) - 40:]):
                for n in m.group(1).split(b";"):
                    self.private[int(n or 0)] = m.group(2) == b"h"

    def feed(self, text):
        """To the emulator, which takes the end of some private requests for text and does not know SU and SD."""
        text = self.held + text
        cut = re.search(r"\x1b(\[[?>]?[\d;]*\$?|P[^\x1b]*\x1b?)?\Z", text)
        self.held = text[cut.start():] if cut else ""
        text = text[:cut.start()] if cut else text
        text = re.sub(r"\x1b\[[?>][\d;]*(\$p|q|[cnt])|\x1b\[[\d;]*t|\x1bP[^\x1b]*\x1b\\", "", text)
        parts = re.split(r"\x1b\[(\d*)([ST])", text)
        self.stream.feed(parts[0])
        for n, which, rest in zip(parts[1::3], parts[2::3], parts[3::3]):
            y, margins = self.screen.cursor.y, self.screen.margins
            for _ in range(int(n or 1)):
                edge = margins or (0, self.screen.lines - 1)
                self.screen.cursor.y = edge[1 if which == "S" else 0]
                (self.screen.index if which == "S" else self.screen.reverse_index)()
            self.screen.cursor.y = y
            self.stream.feed(rest)

    def why(self):
        return ": %r" % self.out[-200:]

    def press(self, name):
        self.send(xterm_bytes(name))
        if name == "Esc":
            self.pump(0.15)

    def send(self, data):
        while data:
            _, ready, _ = select.select([], [self.fd], [], 5)
            if not ready:
                raise Gone("%s: input is not taken" % self.name)
            data = data[os.write(self.fd, data[:1024]):]
            self.pump(0)

    def rows(self):
        self.pump(0.02)
        return [line.rstrip() for line in self.screen.display]

    def cursor(self):
        return None if self.screen.cursor.hidden else (self.screen.cursor.y, self.screen.cursor.x)

    def click(self, row, col, button=0):
        self.send(b"\x1b[<%d;%d;%dM" % (button, col + 1, row + 1))
        if button < 64:
            self.send(b"\x1b[<%d;%d;%dm" % (button, col + 1, row + 1))

    def paste(self, text):
        self.send(b"\x1b[200~" + text.encode() + b"\x1b[201~")

    def left_on(self):
        """Names of what is left set after the program."""
        self.pump(0.1)
        wrong = [str(n) for n in (ALTERNATE, PASTE) + MOUSE if self.private.get(n)]
        return wrong + (["cursor hidden"] if self.private.get(CURSOR) is False else [])

    def close(self):
        super().close()
        if hasattr(self, "fd"):
            os.close(self.fd)


class Tmux(Pty):
    name, takes_bytes = "tmux", False

    @staticmethod
    def missing():
        return Pty.missing() or ("" if shutil.which("tmux") else "tmux is not installed")

    def control(self, *words):
        r = subprocess.run(["tmux", "-S", os.path.join(self.dir, "socket"), *words], capture_output=True, text=True, timeout=20,
                           env={**os.environ, "LC_ALL": "C.UTF-8"})
        return r.stdout

    def command(self):
        conf = os.path.join(self.dir, "conf")
        with open(conf, "w", encoding="utf-8") as f:
            f.write("set -g status off\nset -g default-terminal tmux-256color\nset -sg escape-time 20\nset -g prefix None\n"
                    "set -ga terminal-overrides ',*:Tc'\nset -g history-limit 10\n")
        return ["tmux", "-S", os.path.join(self.dir, "socket"), "-f", conf, "new-session", " ".join(self.inside)], {}

    def rows(self):
        self.pump(0.05)
        return [line.rstrip() for line in self.control("capture-pane", "-p").split("\n")[:self.size[0]]]

    def cursor(self):
        got = self.control("display", "-p", "#{cursor_flag} #{cursor_y} #{cursor_x}").split()
        return (int(got[1]), int(got[2])) if got[:1] == ["1"] else None

    def left_on(self):
        flags = "alternate_on mouse_any_flag mouse_sgr_flag mouse_button_flag keypad_flag keypad_cursor_flag"
        got = self.control("display", "-p", " ".join("#{%s}" % f for f in flags.split()) + " #{cursor_flag}").split()
        if len(got) != 7:
            return ["no answer: %r" % got]
        return [f for f, v in zip(flags.split(), got) if v != "0"] + (["cursor hidden"] if got[6] != "1" else [])

    def close(self):
        self.control("kill-server")
        super().close()


class Screen(Pty):
    name, takes_bytes, has_mouse = "screen", False, False

    @staticmethod
    def missing():
        return Pty.missing() or ("" if shutil.which("screen") else "screen is not installed")

    def command(self):
        rc = os.path.join(self.dir, "rc")
        with open(rc, "w", encoding="utf-8") as f:
            f.write("startup_message off\naltscreen on\nmaptimeout 20\nescape ^@^@\nterm screen-256color\ndefutf8 on\nmousetrack off\n")
        home = os.path.join(self.dir, "s")
        os.mkdir(home, 0o700)
        self.session = "ds%d" % os.getpid()
        return ["screen", "-c", rc, "-S", self.session, *self.inside], {"SCREENDIR": home}

    def close(self):
        if hasattr(self, "session"):
            subprocess.run(["screen", "-S", self.session, "-X", "quit"], env={**os.environ, "SCREENDIR": os.path.join(self.dir, "s")},
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=20, check=False)
        super().close()

    def left_on(self):
        self.pump(0.2)
        # screen keeps its own alternate screen and pad modes on outside
        wrong = [str(n) for n in MOUSE + (PASTE,) if self.private.get(n)]
        shown = "\n".join(Pty.rows(self))
        wrong += [] if "before the program" in shown else ["alternate screen"]
        return wrong + (["cursor hidden"] if self.private.get(CURSOR) is False else [])


class Mosh(Pty):
    name, takes_bytes = "mosh", False

    @staticmethod
    def missing():
        return Pty.missing() or ("" if shutil.which("mosh-server") and shutil.which("mosh-client") else "mosh is not installed")

    def command(self):
        locale = ["-l", "LANG=C.UTF-8", "-l", "LC_ALL=C.UTF-8"]
        r = subprocess.run(["mosh-server", "new", "-i", "127.0.0.1", "-c", "256", *locale, "--", *self.inside],
                           capture_output=True, text=True, timeout=20, stdin=subprocess.DEVNULL,
                           env={**os.environ, "LC_ALL": "C.UTF-8", "TERM": self.term, "MOSH_SERVER_NETWORK_TMOUT": "60"})
        found = re.search(r"MOSH CONNECT (\d+) (\S+)", r.stdout)
        if not found:
            raise Gone("mosh-server: %s" % (r.stdout + r.stderr)[-200:])
        return ["mosh-client", "127.0.0.1", found.group(1)], {"MOSH_KEY": found.group(2), "MOSH_PREDICTION_DISPLAY": "never"}

    def left_on(self):
        self.pump(0.3)
        wrong = [str(n) for n in MOUSE + (PASTE,) if self.private.get(n)]
        return wrong + (["cursor hidden"] if self.private.get(CURSOR) is False else [])


# ---- the Linux console ----

class Console(Terminal):
    """A virtual console of the kernel: written by the program, read through its screen device."""
    name, has_modifiers, has_mouse = "console", False, False

    @staticmethod
    def missing():
        try:
            os.close(os.open("/dev/tty0", os.O_RDWR | os.O_NOCTTY))
            return "" if os.path.exists("/dev/vcsu") else "no /dev/vcsu"
        except OSError as x:
            return "no virtual console: %s" % x

    def open(self, rows, cols):
        control = os.open("/dev/tty0", os.O_RDWR | os.O_NOCTTY)
        self.number = struct.unpack("i", fcntl.ioctl(control, 0x5600, struct.pack("i", 0)))[0]  # VT_OPENQRY
        os.close(control)
        if self.number < 1:
            raise Gone("console: all are taken")
        self.fd = os.open("/dev/tty%d" % self.number, os.O_RDWR | os.O_NOCTTY)
        saved = fcntl.ioctl(self.fd, termios.TIOCGWINSZ, bytes(8))
        self.size = struct.unpack("HHHH", saved)[:2]
        os.write(self.fd, b"\x1bc\x1b%G")
        p = subprocess.Popen(self.inside, stdin=self.fd, stdout=self.fd, stderr=self.fd, start_new_session=True,
                             env={**os.environ, "TERM": "linux", "LANG": "C.UTF-8", "LC_ALL": "C.UTF-8"},
                             preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 1))
        self.children.append(p)

    def send(self, data):
        for b in data:
            fcntl.ioctl(self.fd, termios.TIOCSTI, bytes([b]))

    def press(self, name):
        linux = {"F%d" % (i + 1): b"\x1b[[" + bytes([65 + i]) for i in range(5)}
        linux.update({"Home": b"\x1b[1~", "End": b"\x1b[4~", "S-Tab": b"\x1b\t"})
        self.send(linux.get(name) or xterm_bytes(name))
        if name == "Esc":
            time.sleep(0.1)

    def rows(self):
        with open("/dev/vcsu%d" % self.number, "rb") as f:
            cells = array.array("I", f.read())
        rows, cols = self.size
        return ["".join(chr(c) for c in cells[y * cols:(y + 1) * cols]).rstrip() for y in range(rows)]

    def left_on(self):
        return [] if "after the program" in "\n".join(self.rows()) else ["no text after the program"]

    def close(self):
        super().close()
        if hasattr(self, "fd"):
            os.close(self.fd)
            control = os.open("/dev/tty0", os.O_RDWR | os.O_NOCTTY)
            try:
                fcntl.ioctl(control, 0x5608, self.number)  # VT_DISALLOCATE
            except OSError:
                pass
            os.close(control)


# ---- terminals with a window ----

X_KEYS = {"PgUp": "Prior", "PgDn": "Next", "Ins": "Insert", "Del": "Delete", "Enter": "Return", "Esc": "Escape", "Backspace": "BackSpace",
          "Space": "space", "S-Tab": "shift+Tab", ":": "colon", "?": "question", "/": "slash"}


class Server:
    """One X server for all windows of a run."""
    display, process = None, None

    @classmethod
    def start(cls):
        if cls.display:
            return cls.display
        r, w = os.pipe()
        cls.process = subprocess.Popen(["Xvfb", "-displayfd", str(w), "-screen", "0", "1800x1000x24", "-nolisten", "tcp", "-noreset"],
                                       pass_fds=(w,), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                       start_new_session=True)
        os.close(w)
        number = b""
        while not number.endswith(b"\n") and select.select([r], [], [], 20)[0]:
            more = os.read(r, 32)
            number += more or b"\n"
        os.close(r)
        number = number.decode().strip()
        if not number:
            cls.stop()
            raise Gone("Xvfb does not start")
        cls.display = ":" + number
        return cls.display

    @classmethod
    def stop(cls):
        if cls.process:
            cls.process.terminate()
            try:
                cls.process.wait(5)
            except subprocess.TimeoutExpired:
                cls.process.kill()
                cls.process.wait()
        cls.display = cls.process = None


class Window(Terminal):
    """An X client.  Its screen is what it prints when it is asked to (media copy, CSI i)."""
    program = "?"

    @classmethod
    def missing(cls):
        for need in (cls.program, "Xvfb", "xdotool"):
            if not shutil.which(need):
                return "%s is not installed" % need
        return ""

    def argv(self, rows, cols, command):
        raise NotImplementedError

    def environment(self):
        return {"DISPLAY": Server.start(), "LIBGL_ALWAYS_SOFTWARE": "1", "XDG_RUNTIME_DIR": self.dir}

    def open(self, rows, cols):
        self.shot = os.path.join(self.dir, "shot")
        self.log = open(os.path.join(self.dir, "log"), "wb")
        self.child(self.argv(rows, cols, self.inside), self.environment(), stderr=self.log)
        self.started = self.read_json("started.json", 30)
        self.tool("mousemove", "20", "20")

    def why(self):
        try:
            with open(os.path.join(self.dir, "log"), "rb") as f:
                return ": %r" % f.read()[-200:]
        except OSError:
            return ""

    def tool(self, *words):
        subprocess.run(["xdotool", *words], env={**os.environ, "DISPLAY": Server.start()}, timeout=20,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)

    @staticmethod
    def keysym(name):
        mods, key = split_key(name) if name not in X_KEYS else (0, name)
        key = X_KEYS.get(key) or (key if not (len(key) == 1 and not key.isalnum()) else "U%04X" % ord(key))
        return "+".join([w for bit, w in ((1, "shift"), (2, "alt"), (4, "ctrl")) if mods & bit] + [key])

    def press_all(self, names):
        """As many keys as possible in one call of xdotool."""
        batch = []
        for name in names:
            batch.append(self.keysym(name))
            if name == "Esc":
                self.tool("key", "--delay", "2", *batch)
                time.sleep(0.1)
                batch = []
        if batch:
            self.tool("key", "--delay", "2", *batch)

    def press(self, name):
        self.press_all([name])

    def wait_idle(self):
        """Until the program waits: what is printed must not get into the middle of a frame that is being written."""
        end, last = time.monotonic() + 1, None
        while time.monotonic() < end:
            try:
                with open("/proc/%d/status" % self.started["pid"], encoding="ascii", errors="replace") as f:
                    now = re.findall(r"ctxt_switches:\s*(\d+)", f.read())
            except OSError:
                return
            if now == last:
                return
            last = now
            time.sleep(0.03)

    def print_screen(self):
        self.wait_idle()
        fd = os.open(self.started["tty"], os.O_WRONLY | os.O_NOCTTY)
        os.write(fd, b"\x1b[i")
        os.close(fd)

    def shot_text(self):
        """The last whole page, or None while there is none."""
        try:
            with open(self.shot, "rb") as f:
                return f.read().decode("utf-8", "replace")
        except FileNotFoundError:
            return None

    def rows(self):
        if os.path.exists(self.shot):
            os.truncate(self.shot, 0)
        self.print_screen()
        end, last = time.monotonic() + 3, None
        while time.monotonic() < end:
            text = self.shot_text()
            if text and text == last and text.count("\n") >= self.size[0] - 1:
                break
            last = text
            time.sleep(0.03)
        lines = [self.line(s) for s in (text or "").split("\n")]
        return (lines + [""] * self.size[0])[:self.size[0]]

    @staticmethod
    def line(text):
        return text.strip("\r\f\0").rstrip()

    def click(self, row, col, button=0):
        """At the middle of a cell; the window is at the corner of the screen, with a border of a few pixels at most."""
        out = subprocess.run(["xdotool", "search", "--onlyvisible", "--class", ".", "getwindowgeometry", "--shell"], capture_output=True,
                             text=True, check=False, env={**os.environ, "DISPLAY": Server.start()}).stdout
        found = dict(re.findall(r"(\w+)=(-?\d+)", out))
        if "X" not in found:
            raise Gone("%s: no window: %r" % (self.name, out))
        x = int(found["X"]) + 2 + (col + 0.5) * (int(found["WIDTH"]) - 4) / self.size[1]
        y = int(found["Y"]) + 2 + (row + 0.5) * (int(found["HEIGHT"]) - 4) / self.size[0]
        self.tool("mousemove", "%d" % x, "%d" % y, "click", {0: "1", 64: "4", 65: "5"}[button])

    def left_on(self):
        got = self.ended()["modes"]
        wrong = [n for n, v in got.items() if (v == 1) == (n != str(CURSOR))]
        shown = "\n".join(self.rows())
        return wrong + ([] if "before the program" in shown and "after the program" in shown else ["alternate screen"])

    def close(self):
        super().close()
        if hasattr(self, "log"):
            self.log.close()


class Xterm(Window):
    name = program = "xterm"
    modes_asked = (ALTERNATE, PASTE, CURSOR) + MOUSE

    def argv(self, rows, cols, command):
        return ["xterm", "-geometry", "%dx%d+0+0" % (cols, rows), "-u8", "-fn", "fixed", "-tn", "xterm-256color",
                "-xrm", "*printerCommand: cat >> " + self.shot, "-xrm", "*printAttributes: 0", "-xrm", "*printerAutoClose: true",
                "-xrm", "*printerExtent: true", "-xrm", "*metaSendsEscape: true", "-xrm", "*scrollBar: false", "-e", *command]


class Urxvt(Window):
    name = program = "urxvt"

    def argv(self, rows, cols, command):
        return ["urxvt", "-geometry", "%dx%d+0+0" % (cols, rows), "-fn", "fixed", "+sb", "-xrm", "URxvt.print-pipe: cat >> " + self.shot,
                "-xrm", "URxvt.iso14755: false", "-e", *command]


class St(Window):
    name = program = "st"
    first = "\x1b[4i"  # what is written is not copied to the file, only pages
    alias = {"M-" + k: k for k in ("PgUp", "PgDn", "Home", "End", "Ins", "Del")}
    alias["C-Home"] = "Home"

    def argv(self, rows, cols, command):
        return ["st", "-g", "%dx%d+0+0" % (cols, rows), "-f", "DejaVu Sans Mono:size=7", "-o", self.shot, "-e", *command]

    @staticmethod
    def line(text):
        out, wide = "", False
        for c in text.strip("\r\f\0"):
            out += "" if wide else c
            wide = not wide and unicodedata.east_asian_width(c) in "WF"
        return out.rstrip()


class Kitty(Window):
    name = program = "kitty"
    modes_asked = (ALTERNATE, PASTE, CURSOR) + MOUSE

    def argv(self, rows, cols, command):
        self.socket = "unix:" + os.path.join(self.dir, "kitty")
        options = {"allow_remote_control": "yes", "remember_window_size": "no", "initial_window_width": "%dc" % cols,
                   "initial_window_height": "%dc" % rows, "font_size": "7", "confirm_os_window_close": "0", "update_check_interval": "0",
                   "enable_audio_bell": "no", "close_on_child_death": "yes"}
        words = [w for k, v in options.items() for w in ("-o", "%s=%s" % (k, v))]
        return ["kitty", "--config", "NONE", "--listen-on", self.socket, *words, *command]

    def rows(self):
        r = subprocess.run(["kitty", "@", "--to", self.socket, "get-text"], capture_output=True, text=True, timeout=20, check=False,
                           env={**os.environ, "LC_ALL": "C.UTF-8"})
        lines = [s.rstrip() for s in r.stdout.split("\n")]
        return (lines + [""] * self.size[0])[:self.size[0]]


class Foot(Window):
    """A Wayland client: its compositor is a window of the X server."""
    name = program = "foot"
    has_mouse = False  # its place in the compositor's window is not known
    modes_asked = (ALTERNATE, PASTE, CURSOR) + MOUSE

    @classmethod
    def missing(cls):
        return super().missing() or ("" if shutil.which("weston") else "weston is not installed")

    def environment(self):
        return {**super().environment(), "WAYLAND_DISPLAY": "ds"}

    def argv(self, rows, cols, command):
        weston = os.path.join(self.dir, "weston.ini")
        with open(weston, "w", encoding="utf-8") as f:
            f.write("[core]\nidle-time=0\n[shell]\npanel-position=none\nlocking=false\n")
        self.child(["weston", "-B", "x11-backend.so", "--width=1700", "--height=950", "--socket=ds", "-c", weston],
                   self.environment(), stderr=self.log)
        end = time.monotonic() + 15
        while not os.path.exists(os.path.join(self.dir, "ds")) and time.monotonic() < end:
            time.sleep(0.05)
        conf = os.path.join(self.dir, "foot.ini")
        with open(conf, "w", encoding="utf-8") as f:
            f.write("font=DejaVu Sans Mono:size=7\npad=0x0\n[key-bindings]\n"
                    "pipe-visible=[sh -c \"cat >> %s\"] Control+Shift+y\n" % self.shot)
        return ["foot", "-c", conf, "-W", "%dx%d" % (cols, rows), "-t", "foot", *command]

    def print_screen(self):
        self.tool("key", "ctrl+shift+y")


ALL = [Pty, Tmux, Screen, Mosh, Console, Xterm, Urxvt, St, Kitty, Foot]
