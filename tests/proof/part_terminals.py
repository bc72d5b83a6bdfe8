"""The workbench in real terminal programs: every view at every colour depth, every key, mouse and paste, and the terminal after it.

What a terminal shows is compared with what the same keys give without one (--script, --dump: the screens that the committed
goldens hold), cell by cell.  Terminal programs are driven by terminals.py; one that is not installed is skipped."""
import importlib.metadata
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
import unicodedata

import t
import terminals
from terminals import Gone, xterm_bytes

TITLE = "the workbench in real terminal programs: screens, keys, mouse, paste, and the terminal that is left"
FIXTURE = os.path.join(t.ROOT, "tests", "screens", "training.mp")
DEPTHS = {  # environment and arguments of the workbench, and what --script is given for the same
    "auto": ({}, [], None), "truecolor": ({"COLORTERM": "truecolor"}, [], "truecolor"), "256": ({}, ["--color", "256"], "256"),
    "16": ({}, ["--color", "16"], "16"), "8": ({"TERM": "rxvt"}, [], "never"), "mono": ({"NO_COLOR": "1"}, [], "never")}
SIZES = ((24, 80), (40, 120))
# through the emulator library, by the name of the terminal alone: its terminfo entry draws, its terminfo entry says what keys send
TERMS = ("xterm-256color", "linux", "vt100", "vt220", "ansi", "screen", "screen-256color", "tmux-256color", "rxvt-unicode-256color",
         "st-256color", "foot", "xterm-kitty", "putty-256color", "mlterm", "konsole-256color", "alacritty", "xterm-mono", "xterm-direct",
         "linux-m", "xterm", "rxvt", "gnome-256color", "vte-256color", "iterm2", "ms-terminal", "Eterm", "cygwin")
WALK = [("view %d" % i, [str(i)]) for i in range(1, 10)] + [
    ("list of views", ["V"]), ("help", ["Esc", "?"]), ("command line", ["Esc", ":"]), ("command typed", list("abc")), ("closed", ["Esc"])]
KEYS = ["Up", "Down", "Left", "Right", "Home", "End", "PgUp", "PgDn", "Ins", "Del"] + ["F%d" % i for i in range(1, 13)] + [
    "Tab", "S-Tab", "Backspace"]
MODIFIED = [m + k for m in ("C-", "M-", "S-") for k in KEYS[:10] + ["F1", "F5", "F12"]]
CLOSING = ["Enter", "Esc"]
OWN_ENTRIES = ("xterm", "tmux", "screen", "foot", "alacritty", "kitty")  # the program brings its own terminfo entries for these
OPEN_MAX = 30
PATIENCE = 6  # seconds for a screen that does not come


# ---- what is right ----

class Reference:
    """Screens of the same keys without a terminal, one process for a list of steps."""
    memo = {}

    def __init__(self, work):
        self.work, self.count = work, 0

    def environment(self):
        self.count += 1
        return {"DEPTHSCOPE_RUNS": os.path.join(self.work, "runs"), "XDG_STATE_HOME": os.path.join(self.work, "state%d" % self.count),
                "XDG_CONFIG_HOME": os.path.join(self.work, "config"), "LC_ALL": "C.UTF-8", "LANG": "C.UTF-8"}

    def screens(self, view, steps, size, colour, glyphs, more=()):
        """steps: lists of script lines.  The rows of the screen after each."""
        script = "".join("".join(line + "\n" for line in lines) + "shot\n" for lines in steps)
        key = (view, script, size, colour, glyphs, more)
        if key not in self.memo:
            paths = [os.path.join(self.work, n) for n in ("script", "dump")]
            with open(paths[0], "w", encoding="utf-8") as f:
                f.write(script)
            words = [t.PROGRAM, FIXTURE, "--view", view, "--script", paths[0], "--dump", paths[1], "--size", "%dx%d" % (size[1], size[0])]
            words += ["--color", colour] if colour else []
            words += (["--glyphs", glyphs] if glyphs else []) + list(more)
            r = subprocess.run(words, capture_output=True, text=True, timeout=60 * t.SLOW, env={**os.environ, **self.environment()})
            if r.returncode:
                raise RuntimeError("--script: %s" % r.stderr.strip())
            with open(paths[1], encoding="utf-8") as f:
                parts = re.split(r"^== \d+x\d+ .*\n", f.read(), flags=re.M)[1:]
            shots = [[s.rstrip() for s in p.split("-- roles\n")[0].split("\n")[:size[0]]] for p in parts]
            self.memo[key] = [(s + [""] * size[0])[:size[0]] for s in shots]
        return self.memo[key]


def console_runes():
    """The replacements for the fonts of the Linux console, from their table in the source."""
    with open(os.path.join(t.ROOT, "src", "tui", "term_choose.c"), encoding="utf-8") as f:
        pairs = re.findall(r"\{0x([0-9A-F]+), '(\\?.)'\}", f.read())
    return {int(code, 16): text[-1] for code, text in pairs}


def capabilities(term):
    """{name: bytes, number or True} of a terminfo entry, None where it is not installed."""
    r = shutil.which("infocmp") and subprocess.run(["infocmp", "-x", "-1", term], capture_output=True, check=False)
    if not r or r.returncode:
        return None
    found = {}
    for name, equals, value in re.findall(rb"^\t([^=#,\s]+)(?:(=)(.*)|#.*)?,$", r.stdout, re.M):
        found[name.decode()] = unescape(value) if equals else True
    found.update((n.decode(), int(v, 0)) for n, v in re.findall(rb"^\t(\w+)#(\w+),$", r.stdout, re.M))
    return found


def unescape(value):
    def one(m):
        c = m.group(0)
        if c[:1] == b"^":
            return b"\x7f" if c == b"^?" else bytes([c[1] & 0x1F])
        named = {b"\\E": b"\x1b", b"\\e": b"\x1b", b"\\n": b"\n", b"\\r": b"\r", b"\\t": b"\t", b"\\b": b"\b", b"\\s": b" ", b"\\l": b"\n"}
        return named.get(c) or (bytes([int(c[1:], 8) & 255]) if c[1:].isdigit() else c[1:])
    return re.sub(rb"\^.|\\[0-7]{1,3}|\\.", one, value)


def key_capabilities(term):
    """[(name of the key, bytes)] of a terminal; the name is None for a key that must do nothing."""
    plain = {"kcuu1": "Up", "kcud1": "Down", "kcub1": "Left", "kcuf1": "Right", "khome": "Home", "kend": "End", "kpp": "PgUp",
             "knp": "PgDn", "kich1": "Ins", "kdch1": "Del", "kcbt": "S-Tab", "kbs": "Backspace", "kent": "Enter"}
    shifted = {"UP": "Up", "DN": "Down", "LFT": "Left", "RIT": "Right", "HOM": "Home", "END": "End", "PRV": "PgUp", "NXT": "PgDn",
               "IC": "Ins", "DC": "Del"}
    mods = {"": "S-", "2": "S-", "3": "M-", "4": "S-M-", "5": "C-", "6": "C-S-", "7": "C-M-"}
    seen, out = set(), []
    for name, value in sorted((capabilities(term) or {}).items()):
        m = re.fullmatch(r"k([A-Z]+)([2-7]?)", name)
        number = re.fullmatch(r"kf(\d+)", name)
        key = plain.get(name) or (mods[m.group(2)] + shifted[m.group(1)] if m and m.group(1) in shifted else
                                  "F" + number.group(1) if number and 1 <= int(number.group(1)) <= 12 else
                                  "none" if number and int(number.group(1)) > 12 else None)
        if not key or not isinstance(value, bytes) or not value or value in seen:
            continue
        # vt100 numbers keys of its pad as function keys: they are digits here; a lone control character is a key of its own
        if number and re.fullmatch(rb"\x1bO[j-y]", value) or (value[:1] != b"\x1b" and key != "Backspace"):
            continue
        if "-" in key and key != "S-Tab" and re.fullmatch(rb"\x1b[O\[][A-D]", value):
            continue  # a modified arrow that is a plain one in the other cursor mode
        if term.startswith(("sun", "wy", "hurd")) and not value.startswith((b"\x1b[", b"\x1bO")):
            continue
        seen.add(value)
        out.append((name, key, value))
    return out


def colours_of(term):
    """What --color must say for the same; maps have no colours below 16, which is as without any."""
    if term.startswith(("foot", "xterm-kitty", "alacritty")) or "direct" in term:
        return "truecolor"
    if "mono" in term or term.endswith("-m") or is_plain(term):
        return "never"
    entry = {} if term.startswith(OWN_ENTRIES) else capabilities(term) or {}
    return "never" if entry.get("colors", 256) < 16 else "256" if "256color" in term else "16"


def is_plain(term):
    return term.startswith(("ansi", "vt1", "vt2", "sun", "wy"))


def script_keys(names, alias={}):
    """A script line; a key that the workbench has no name for does nothing, so it is left out."""
    known = [alias.get(n, n) for n in names if not re.match(r"(C-|M-)*S-(?!Tab$)|none", n)]
    return ["keys " + " ".join(known)] if known else []


def clean(text, runes=None):
    text = text.replace("\u200b", "").replace("\uffff", "").replace("\xa0", " ")
    text = re.sub(r" ~\d+[smhdy] ", lambda m: " " * len(m.group(0)), text)  # Home's estimates come when the speed has been measured
    return (text.translate(runes) if runes else text).rstrip()


# ---- one terminal at one depth and size ----

class Case:
    def __init__(self, terminal, depth, size, term=None):
        self.terminal, self.depth, self.size, self.term = terminal, depth, size, term
        self.id = "%s%s %s %dx%d" % (terminal.name, "/" + term if term else "", depth, size[1], size[0])

    def row(self):
        return "TERM=" + self.term if self.term else self.terminal.name


def all_cases():
    cases = [Case(c, "auto", SIZES[0]) for c in terminals.ALL]
    cases += [Case(terminals.Pty, "auto", SIZES[0], term) for term in TERMS]
    cases += [Case(c, depth, size) for size in SIZES for depth in DEPTHS for c in terminals.ALL if (depth, size) != ("auto", SIZES[0])]
    # a console has one size and 8 colours; inside screen another TERM would turn the mouse on, which holds Esc back
    return [c for c in cases if not (c.terminal is terminals.Console and (c.size != SIZES[0] or c.depth == "8")
                                     or c.terminal is terminals.Screen and c.depth == "8")]


class Check:
    """Runs one case and counts.  Each step is a list of keys to press and the lines of the script that are the same."""

    def __init__(self, case, work, budget, tally, open_list):
        self.case, self.budget, self.tally, self.open = case, budget, tally, open_list
        self.work = work
        self.ref = Reference(work)
        self.term = None

    def start(self, view):
        env, args, colour = DEPTHS[self.case.depth]
        env = {**self.ref.environment(), **env}
        if self.case.term:
            env["TERM"] = self.case.term
        self.close()
        self.view = view
        self.term = self.case.terminal([t.PROGRAM, FIXTURE, "--view", view, *args], env, *self.case.size)
        self.name = env.get("TERM") or self.term.started["term"]
        self.colour = colour or colours_of(self.name)
        if self.name.startswith("linux"):
            self.colour = "never"  # 8 colours, whatever is asked for
        entry = capabilities(self.name) if is_plain(self.name) or self.name.startswith("rxvt") or self.case.term else {}
        self.margin = 1 if entry and "am" in entry and "xenl" not in entry and not self.is_own_entry() else 0
        self.glyphs = "ascii" if is_plain(self.name) else "shades" if self.name.startswith("linux") else None
        self.more = ("--no-mouse",) if self.case.terminal is terminals.Screen else ()
        self.runes = console_runes() if self.name.startswith("linux") else None
        rows, cols = self.term.size
        self.size = (rows, cols - self.margin)
        if isinstance(self.term, terminals.Window):
            self.term.pump(0.5)  # a page asked for now would cut the first frame in two
        end = time.monotonic() + 20 * t.SLOW
        while "depthscope" not in self.term.rows()[0] and time.monotonic() < end:  # a click needs something to hit
            self.term.pump(0.03)

    def is_own_entry(self):
        return self.name.startswith(OWN_ENTRIES)

    def close(self):
        if self.term:
            self.term.close()
        self.term = None

    def left(self):
        return self.budget.left() > 1

    def differs(self, what, text):
        self.tally[3] += 1
        self.budget.failed("%s: %s: %s" % (self.case.id, what, text))
        if len(self.open) < OPEN_MAX:
            self.open.append({"case": self.case.id, "what": what, "text": text[:300]})

    def same(self, kind, what, want):
        """Waits until the terminal shows `want`."""
        want = [clean(s, self.runes) for s in want]
        end = time.monotonic() + PATIENCE * t.SLOW
        while True:
            got = [clean(s) for s in self.term.rows()]
            if got == self.with_cursor(want, got):
                self.tally[kind] += 1
                self.budget.passed()
                return True
            if time.monotonic() > end:
                break
            self.term.pump(0.03)
        at = next((y for y in range(len(want)) if y >= len(got) or got[y] != want[y]), 0)
        wrong = sum(a != b for a, b in zip(got, want))
        self.differs(what, "%d rows differ, row %d is %r, expected %r" % (wrong, at, got[at] if at < len(got) else None, want[at]))
        return False

    def with_cursor(self, want, got):
        """Without a terminal a cell under the cursor is shown in brackets; a terminal shows its own cursor at its middle."""
        for y, row in enumerate(want[:len(got)]):
            for m in re.finditer(r"\[[^\[\]]{0,8}\]", row) if got[y] != row else ():
                left, right = m.start(), m.end() - 1
                here = got[y].ljust(right + 1)
                row = row[:left] + here[left] + row[left + 1:right] + here[right] + row[right + 1:]
                wide = sum(unicodedata.east_asian_width(c) in "WF" for c in row[:left])
                at = self.term.cursor()
                if row.rstrip() == got[y] and (at is None or at[0] == len(want) - 1 or at == (y, (left + right + 1) // 2 + wide)):
                    return want[:y] + [got[y]] + want[y + 1:]
        return want

    def screens(self, view, steps):
        return self.ref.screens(view, steps, self.size, self.colour, self.glyphs, self.more)

    def steps(self, kind, view, steps):
        """[(what, presses, script lines)]; presses: names of keys, or a function that sends."""
        want = self.screens(view, [lines for _, _, lines in steps])
        for (what, presses, _), screen in zip(steps, want):
            if not self.left():
                return False
            if callable(presses):
                presses()
            else:
                self.term.press_all(presses)
            self.same(kind, what, screen)
        return True

    # ---- what is checked ----

    def walk(self):
        self.start("monitor")
        self.steps(0, "monitor", [(what, keys, script_keys(keys)) for what, keys in WALK])
        self.check_depth()

    def check_depth(self):
        """The colours that were sent are those of the depth."""
        if type(self.term) is terminals.Pty and not self.case.term:
            sent = bytes(self.term.out).decode("latin-1")
        elif type(self.term) is terminals.Tmux:
            sent = self.term.control("capture-pane", "-p", "-e")
        else:
            return
        codes = [m.group(1) for m in re.finditer(r"\x1b\[([\d;:]*)m", sent)]
        direct = any(re.search(r"[34]8[;:]2[;:]", c) for c in codes)
        indexed = [int(n) for c in codes for n in re.findall(r"[34]8[;:]5[;:](\d+)", c)]
        few = [c for c in codes if re.search(r"(^|;)(3[0-7]|4[0-7])(;|$)", re.sub(r"[34]8[;:][25][;:][\d;:]*", "", c))]
        bright = [c for c in codes if re.search(r"(^|;)(9[0-7]|10[0-7])(;|$)", re.sub(r"[34]8[;:][25][;:][\d;:]*", "", c))]
        want = self.case.depth if self.case.depth != "auto" else self.colour
        wrong = {"truecolor": not direct, "256": direct or not indexed,
                 "16": direct or any(n > 15 for n in indexed) or not (few or bright or indexed),
                 "8": direct or indexed or bright or not few, "mono": direct or indexed or bright or few,
                 "never": direct or indexed or bright or few}[want]
        if wrong:
            self.differs("colours", "sent for %s: direct %s, indexed %s, 8 colours %d, bright %d" % (
                want, direct, sorted(set(indexed))[:5], len(few), len(bright)))
        else:
            self.tally[2] += 1
            self.budget.passed()

    def keys(self):
        """Each key in a long text, in a map, and in the middle of a command line."""
        keys = KEYS + (MODIFIED if self.case.terminal.has_modifiers else [])
        for view, before, which in (("manual", ["g", "g", "PgDn"], keys), ("depth", ["g", "g"], keys[:8] + ["Tab", "S-Tab", "Enter"])):
            self.start(view)
            alias = self.case.terminal.alias
            if not self.steps(1, view, [("%s in %s" % (k, view), before + [k], script_keys(before + [k], alias)) for k in which]):
                return
        self.start("manual")
        steps, before = [], []
        for k in keys + CLOSING:
            presses = before + [":"] + list("abcdef") + ["Left", "Left", k]
            steps.append(("%s in the command line" % k, presses, script_keys(presses, self.case.terminal.alias)))
            before = [] if k in CLOSING else ["Esc"]
        self.steps(1, "manual", steps)

    def keys_of_terminfo(self):
        """What the entry of this TERM says its keys send."""
        for view, before in (("manual", ["g", "g", "PgDn"]), ("depth", ["g", "g", "l", "l"])):
            self.start(view)
            todo = [(n, k, v) for n, k, v in key_capabilities(self.case.term) if k not in ("Enter", "Backspace")]
            steps = [("%s in %s" % (name, view), lambda v=value: (self.term.press_all(before), self.term.send(v)),
                      script_keys(before + [key])) for name, key, value in todo]
            if not self.steps(1, view, steps):
                return
        self.start("manual")
        steps, first = [], True
        for name, key, value in key_capabilities(self.case.term):
            if key == "Enter":
                continue
            presses = ([] if first else ["Esc"]) + [":"] + list("abcdef") + ["Left", "Left"]
            steps.append(("%s in the command line" % name, lambda p=presses, v=value: (self.term.press_all(p), self.term.send(v)),
                          script_keys(presses + [key])))
            first = False
        self.steps(1, "manual", steps)

    def mouse(self):
        rows, cols = self.size
        if not self.case.terminal.has_mouse or is_plain(self.name):
            return
        self.start("depth")
        todo = [("click %d %d" % (y, x), lambda y=y, x=x: self.term.click(y, x), ["click %d %d" % (y, x)])
                for y, x in ((8, 20), (9, 33), (1, 20), (rows - 2, 5), (8, cols - 2))]
        self.steps(2, "depth", todo)
        self.start("manual")
        self.steps(2, "manual", [("wheel %s" % w, lambda b=b: self.term.click(10, 10, b), ["wheel %s 10 10" % w])
                                 for w, b in (("down", 65), ("down", 65), ("up", 64))])

    def sequences(self):
        """Bytes that a terminal may send, in forms that no key of this one has."""
        term = self.term
        self.start("depth")
        term = self.term

        def x10(y, x, b=0):
            return lambda: term.send(b"\x1b[M" + bytes([32 + b, 33 + x, 33 + y]) + b"\x1b[M" + bytes([35, 33 + x, 33 + y]))

        def rxvt(y, x, b=0):
            return lambda: term.send(b"\x1b[%d;%d;%dM\x1b[%d;%d;%dM" % (32 + b, x + 1, y + 1, 35, x + 1, y + 1))

        click = ["click 8 20"], ["click 9 33"]
        same = []
        late = {"focus": b"\x1b[I\x1b[O", "device attributes": b"\x1b[?62;4;22c", "secondary attributes": b"\x1b[>41;379;0c",
                "tertiary attributes": b"\x1bP!|00000000\x1b\\", "version": b"\x1bP>|XTerm(379)\x1b\\", "cursor report": b"\x1b[12;40R",
                "mode report": b"\x1b[?2026;2$y", "colour": b"\x1b]11;rgb:0000/0000/0000\x1b\\",
                "colour, BEL": b"\x1b]11;rgb:0000/0000/0000\x07", "graphics": b"\x1b_Gi=31;OK\x1b\\", "cell size": b"\x1b[6;16;8t",
                "window size": b"\x1b[8;24;80t", "cut sequence": b"\x1b[1;", "button 8": b"\x1b[<128;9;9M", "move": b"\x1b[<35;20;9M",
                "empty paste": b"\x1b[200~\x1b[201~", "lone end of paste": b"\x1b[201~"}
        steps = [("X10 click", x10(8, 20), click[0]), ("1015 click", rxvt(9, 33), click[1]), ("X10 click again", x10(8, 20), click[0]),
                 ("drag", lambda: term.send(b"\x1b[<0;34;10M\x1b[<32;34;10M\x1b[<0;34;10m"), click[1])]
        steps += [(name, lambda d=data: (term.send(d), term.pump(0.06)), same) for name, data in late.items()]
        steps += [("Esc, then j later", ["Esc", "j"], script_keys(["Esc", "j"])), ("view", ["3"], script_keys(["3"])),
                  ("Esc and j at once", lambda: term.send(b"\x1bj"), same),
                  ("keypad", lambda: term.send(b"\x1bOM"), script_keys(["Enter"])),
                  ("command line", [":"], ["keys :"]),
                  ("paste", lambda: term.paste("hello w\u00f6rld"), ["type hello w\u00f6rld"]),
                  ("end inside a paste", lambda: term.send(b"\x1b[200~ab\x1b[201~cd\x1b[201~"), ["type ab", "keys c d"]),
                  ("both backspaces", lambda: term.send(b"\x7f\x08"), script_keys(["Backspace", "Backspace"])),
                  ("keypad digits", lambda: term.send(b"\x1bOp\x1bOy\x1bOk"), ["type 09+"]),
                  ("closed", ["Esc"], script_keys(["Esc"]))]
        self.steps(2, "depth", steps)
        if self.left():
            term.press(":")
            term.send(b"\x1b[200~" + b"x" * 10_000_000 + b"\x1b[201~")
            term.pump(1)
            term.press("Esc")
            want = self.screens("depth", [script_keys(["1"])])[0]
            term.press("1")
            self.same(2, "after a paste of 10 MB", want)

    def wide(self):
        """Coordinates that one byte cannot hold."""
        case = self.case
        self.case = Case(case.terminal, case.depth, (24, 250), case.term)
        try:
            self.start("depth")
            steps = [("click at column 240", lambda: self.term.click(8, 240), ["click 8 240"]),
                     ("click at column 100", lambda: self.term.click(9, 100), ["click 9 100"])]
            if self.term.takes_bytes:
                steps += [("1015 click at column 240", lambda: self.term.send(b"\x1b[32;241;9M\x1b[35;241;9M"), ["click 8 240"])]
            self.steps(2, "depth", steps)
        finally:
            self.case = case

    def leave(self):
        for how, act in (("q", lambda: self.term.press("q")), ("SIGTERM", lambda: self.term.signal(signal.SIGTERM)),
                         ("a crash", lambda: self.term.signal(signal.SIGSEGV))):
            if not self.left():
                return
            self.start("monitor")
            want = self.screens("monitor", [[]])[0]
            self.same(0, "start", want)
            act()
            found = self.term.ended(10 * t.SLOW)
            wrong = self.term.left_on()
            if found["before"] != found["after"]:
                wrong.append("line settings")
            status = found["status"]
            if not {"q": status == 0, "SIGTERM": status >= 0, "a crash": status == -signal.SIGSEGV}[how]:
                wrong.append("status %d" % found["status"])
            if wrong:
                self.differs("after " + how, "left: " + ", ".join(wrong))
            else:
                self.tally[2] += 1
                self.budget.passed()

    def run(self):
        try:
            self.walk()
            if self.case.depth == "auto" and self.case.size == SIZES[0]:
                (self.keys_of_terminfo if self.case.term else self.keys)()
                self.mouse()
                if self.case.terminal.takes_bytes and not self.case.term:
                    self.sequences()
                if self.case.terminal.has_mouse and not self.case.term and self.left():
                    self.wide()
            self.leave()
        except Gone as x:
            self.differs("run", str(x))
        finally:
            self.close()


# ---- the part ----

def version(terminal):
    words = {"tmux": ["tmux", "-V"], "mosh": ["mosh-server", "--version"], "console": ["uname", "-r"], "xterm": ["xterm", "-version"],
             "urxvt": ["urxvt", "-help"], "st": ["st", "-v"]}
    if terminal is terminals.Pty:
        try:
            return "pyte " + importlib.metadata.version("pyte")
        except importlib.metadata.PackageNotFoundError:
            return "pyte"
    r = subprocess.run(words.get(terminal.name, [terminal.name, "--version"]), capture_output=True, text=True, check=False,
                       env={**os.environ, "TERM": "xterm"})
    found = re.search(r"\d+[\d.]*\w*", (r.stdout + r.stderr).replace("rxvt-unicode (urxvt) v", ""))
    return "%s %s" % ("Linux" if terminal.name == "console" else terminal.name, found.group(0) if found else "?")


def run_case(state, budget, case):
    work = tempfile.mkdtemp(prefix="ds-terminals-")
    os.mkdir(os.path.join(work, "runs"))
    state["open"] = [o for o in state["open"] if o["case"] != case.id]
    tally = state["matrix"].setdefault(case.row(), {}).setdefault("auto" if case.term else case.depth, [0, 0, 0, 0])
    tally[3] = 0 if case.size == SIZES[0] else tally[3]
    Reference.memo.clear()
    try:
        Check(case, work, budget, tally, state["open"]).run()
    finally:
        shutil.rmtree(work, ignore_errors=True)


def run_cases(state, budget, cases):
    is_first = True
    for case in [c for c in cases if any(o["case"] == c.id for o in state["open"]) and c.terminal.name not in state["missing"]]:
        if budget.left() > 60:  # as long as a case takes
            run_case(state, budget, case)
    for _ in range(len(cases)):
        if budget.left() < 3:
            break
        case = cases[state.get("cursor", 0) % len(cases)]
        if case.terminal.name in state["missing"] or (case.term and capabilities(case.term) is None):
            if case.term and case.terminal.name not in state["missing"]:
                state["missing"]["TERM=" + case.term] = "no terminfo entry"
                budget.skipped("TERM=%s: no terminfo entry" % case.term)
            state["cursor"] = state.get("cursor", 0) + 1
            continue
        run_case(state, budget, case)
        if budget.left() > 1 or is_first:  # one that was cut short is the first of the next run, which may give it more time
            state["cursor"] = state.get("cursor", 0) + 1
        is_first = False


def run(state, budget):
    cases = all_cases()
    state.setdefault("matrix", {})
    state.setdefault("open", [])
    state.setdefault("versions", {})
    state["missing"] = {}
    for terminal in terminals.ALL:
        why = terminal.missing()
        if why:
            state["missing"][terminal.name] = why
            budget.skipped("%s: %s" % (terminal.name, why))
        else:
            state["versions"][terminal.name] = version(terminal)
    state["cases"] = len(cases)
    try:
        run_cases(state, budget, cases)
    finally:
        terminals.Server.stop()


def page(state):
    depths = list(DEPTHS)
    lines = ["Each terminal runs the workbench on a committed run. Its screen is compared, cell by cell, with the screen of the same keys",
             "without a terminal, which is what the committed goldens hold: the views 1 to 9, the list of views, the help and the command",
             "line, at %s." % " and ".join("%dx%d" % (c, r) for r, c in SIZES),
             "A figure is the number of screens compared; `auto` is what the terminal itself asks for.", "",
             "| terminal | %s | keys | mouse, paste, exit |" % " | ".join(depths), "|---|%s---|---|" % ("---|" * len(depths))]
    matrix = state.get("matrix", {})
    for name, row in sorted(matrix.items()):
        if name.startswith("TERM="):
            continue
        sums = [sum(c[i] for c in row.values()) for i in range(3)]
        cells = [("%d" % row[d][0] + (", **%d differ**" % row[d][3] if row[d][3] else "")) if d in row else "-" for d in depths]
        lines.append("| %s | %s | %d | %d |" % (state.get("versions", {}).get(name, name), " | ".join(cells), sums[1], sums[2]))
    terms = {n[5:]: r["auto"] for n, r in matrix.items() if n.startswith("TERM=")}
    if terms:
        cells = ["`%s` %d, %d%s" % (n, v[0], v[1], " (**%d differ**)" % v[3] if v[3] else "") for n, v in sorted(terms.items())]
        lines += ["", "By name alone, drawn by the terminfo entry into the emulator library, with the keys that it names (screens, keys):",
                  ", ".join(cells) + "."]
    lines += ["", "Keys: arrows, Home, End, PgUp, PgDn, Ins, Del, F1 to F12, Tab, Shift-Tab, Backspace, Enter, Esc, and with Ctrl, Alt and",
              "Shift, in a text, a map and the command line. Mouse: click and wheel, columns beyond 223, and, in the emulator library, the",
              "encodings 1006, 1015 and X10, a paste with an end inside and one of 10 MB, focus events and late replies. After `q`,",
              "SIGTERM and a crash: line settings, alternate screen, mouse, paste and cursor.", ""]
    if state.get("open"):
        lines += ["Open differences:", ""]
        lines += ["- %s, %s: `%s`" % (o["case"], o["what"], o["text"].replace("`", "'")) for o in state["open"][:12]] + [""]
    lines += ["Round %d of %d cases." % (state.get("cursor", 0) // max(1, state.get("cases", 1)) + 1, state.get("cases", 0))]
    if state.get("missing"):
        lines += ["Not run: " + "; ".join("%s (%s)" % (n, why) for n, why in sorted(state["missing"].items())) + "."]
    lines += ["Not covered: colours cell by cell (only which kind is sent); the mouse in foot, and in screen, where it is off because",
              "it would delay Esc; keys of the console (their bytes are sent) and its mouse; paste from a selection of a window; other",
              "systems' terminals."]
    return "\n".join(lines)
