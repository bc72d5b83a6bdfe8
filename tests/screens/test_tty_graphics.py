#!/usr/bin/env python3
"""Images on a pseudo-terminal that answers as kitty, as a sixel terminal, and not at all: the bytes of the picture, and that it
is gone when it is covered, when the view changes, at exit and after a crash."""
import base64
import os
import re
import signal

import test_tty as kit
from test_tty import FIXTURE, Tty, check

DELETE = b"\x1b_Ga=d,d=A,q=2\x1b\\"
ASKED = b"\x1b[16t\x1b[c"
KITTY = b"\x1b_Gi=31;OK\x1b\\\x1b[6;16;8t\x1b[?62;22c"
SIXEL = b"\x1b[6;16;8t\x1b[?62;4;22c"


class Graphics(Tty):
    """With a terminal that answers the questions of the program."""

    def __init__(self, answer, view="figures", env=None, rows=40, cols=120):
        self.answer, self.asked = answer, 0
        super().__init__([FIXTURE, "--view", view], rows=rows, cols=cols, env={"TMUX": "", "COLORTERM": "truecolor", **(env or {})})
        self.stream = None

    def read(self, seconds=0.4, limit=8.0):
        got = super().read(seconds, limit)
        if self.answer and ASKED in self.out[self.asked:]:
            self.asked = len(self.out)
            os.write(self.fd, self.answer)
            got += super().read(seconds, limit)
        return got

    def until(self, part, since=0, seconds=20):
        for _ in range(int(seconds * 5 * kit.t.SLOW)):
            if part in self.out[since:]:
                return self.out[since:]
            self.read(0.2, 0.4)
        raise AssertionError("%r did not come: %r" % (part, self.out[-300:]))


def pictures(out):
    """The PNG files sent by kitty's protocol, with their columns and rows."""
    found = []
    for first in re.finditer(rb"\x1b_Ga=T,f=100,i=\d+,c=(\d+),r=(\d+),q=2,C=1,m=(\d);([^\x1b]*)\x1b\\", out):
        text, more, at = first.group(4), first.group(3), first.end()
        while more == b"1":
            chunk = re.compile(rb"\x1b_Gm=(\d);([^\x1b]*)\x1b\\").match(out, at)
            check(chunk and len(chunk.group(2)) <= 4096, "broken chunks")
            text, more, at = text + chunk.group(2), chunk.group(1), chunk.end()
        found.append((base64.b64decode(text), int(first.group(1)), int(first.group(2))))
    return found


def kitty_shows_a_png_and_removes_it_when_covered_and_at_exit():
    t = Graphics(KITTY)
    t.until(b"a=T,f=100")
    t.read(0.6)
    png, cols, rows = pictures(t.out)[-1]
    check(png.startswith(b"\x89PNG") and b"IEND" in png[-12:], "not a PNG: %r" % png[:20])
    check(20 < cols < 100 and 10 < rows < 40, "%d x %d cells" % (cols, rows))
    check(t.out.count(b"a=T,") == 1, "the picture was sent %d times" % t.out.count(b"a=T,"))
    size = len(t.out)
    t.read(1.5)
    check(b"a=T," not in t.out[size:], "sent again without a change")
    size = len(t.out)
    t.keys("?", 0.5)  # the overlay covers it
    check(DELETE in t.out[size:], "covered, but not deleted")
    size = len(t.out)
    t.keys("\x1b", 0.5)
    check(b"a=T," in t.out[size:], "not shown again")
    size = len(t.out)
    t.keys("2", 0.5)  # Monitor
    check(DELETE in t.out[size:] and b"a=T," not in t.out[size:], "the view changed, but it is still there")
    t.keys("V", 0.3)
    t.keys("figures\r", 0.5)
    size = len(t.out)
    os.write(t.fd, b"q")
    t.wait()
    gone = t.out[size:].find(DELETE)
    check(0 <= gone < t.out[size:].find(b"\x1b[?1049l"), "not deleted before the screen is left")
    kit.is_clean(t)
    t.close()


def a_crash_deletes_the_picture():
    t = Graphics(KITTY)
    t.until(b"a=T,f=100")
    t.read(0.5)
    size = len(t.out)
    os.kill(t.pid, signal.SIGSEGV)
    t.wait()
    check(DELETE in t.out[size:], "the picture survives a crash")
    kit.is_clean(t)
    t.close()


def a_moved_cursor_replaces_the_picture_and_costs_little_itself():
    t = Graphics(KITTY)
    t.until(b"a=T,f=100")
    t.read(0.5)
    size = len(t.out)
    t.keys("jj", 0.05)  # training
    t.until(b"a=T,f=100", size)
    t.read(0.8)
    check(t.out[size:].count(b"a=T,") <= 2, "a picture for every step of the cursor")
    check(t.out.count(DELETE) >= 1, "the old one was not deleted")
    t.close()


def a_sixel_terminal_gets_sixels_that_fit():
    t = Graphics(SIXEL)
    out = t.until(b"\x1bPq")
    t.read(0.5)
    found = re.search(rb'\x1b7\x1b\[(\d+);(\d+)H\x1bPq"1;1;(\d+);(\d+)((?:#\d+;2;\d+;\d+;\d+)+)([^\x1b]*)\x1b\\\x1b8', t.out)
    check(found, "no complete picture: %r" % out[-100:])
    y, x, w, h = (int(found.group(i)) for i in range(1, 5))
    check(x - 1 + (w + 7) // 8 <= 119 and y - 1 + (h + 15) // 16 <= 38 and h % 6 == 0, "%dx%d at %d,%d" % (w, h, y, x))
    check(found.group(6).count(b"-") == h // 6, "%d bands for %d rows" % (found.group(6).count(b"-"), h))
    for band in found.group(6).split(b"-")[:-1]:
        for plane in re.findall(rb"#\d+([^#$]*)\$", band):
            wide = sum(int(n) if n else 1 for n, _ in re.findall(rb"(?:!(\d+))?([?-~])", plane))
            check(wide <= w, "a plane of %d pixels in a picture of %d" % (wide, w))
    check(b"\x1b_Ga=T" not in t.out, "kitty graphics for a sixel terminal")
    size = len(t.out)
    t.keys("?", 0.5)
    t.keys("\x1b", 0.5)
    check(b"\x1bPq" in t.out[size:], "not shown again")
    t.close()


def without_a_protocol_cells_show_it():
    for answer in (None, b"\x1b[?62;22c", b"\x1b[?62;4c"):  # the last one: sixel, but the cell size is not known
        t = Graphics(answer)
        t.until("▀".encode())
        check(b"\x1bPq" not in t.out and b"a=T," not in t.out, "%r: an image" % answer)
        t.close()


def inside_tmux_only_tmux_is_asked():
    t = Graphics(b"\x1b[?62;22c", env={"TMUX": "/tmp/tmux-0/default,1,0", "TERM": "tmux-256color"})
    t.until("▀".encode())
    check(ASKED in t.out and b"\x1b_G" not in t.out, "an image through tmux")
    t.close()


def other_views_ask_and_cost_nothing():
    t = Graphics(KITTY, view="monitor")
    t.read(0.5)
    for key in "3456":
        t.keys(key, 0.2)
    check(b"\x1b_G" not in t.out and b"\x1b[c" not in t.out, "asked without need")
    os.write(t.fd, b"q")
    t.wait()
    check(DELETE not in t.out, "deleted what was never shown")
    t.close()


def an_export_is_written_with_the_chosen_settings_and_its_path_is_copied():
    t = Graphics(KITTY)
    t.until(b"a=T,f=100")
    t.read(0.3)
    t.keys("f", 0.2)  # png
    t.keys("v", 0.2)  # icml-wide
    size = len(t.out)
    t.keys("e", 0.2)
    t.until(b"figure written", size)
    path = "exports/flops_hist.png"
    check(os.path.exists(path) and not os.path.exists("exports/flops_hist.svg"), "not written, or in other formats")
    with open(path, "rb") as f:
        check(b"icml-wide" in f.read(), "another venue")
    size = len(t.out)
    t.keys("y", 0.3)
    check(b"\x1b]52;c;" + base64.b64encode(path.encode()) in t.out[size:], "the path is not copied: %r" % t.out[size:][-100:])
    t.close()


def a_mono_terminal_says_why_there_is_no_preview():
    t = Graphics(KITTY, env={"NO_COLOR": "1"})
    t.read(1.5)
    text = re.sub(rb"\x1b\[[0-9;?]*[A-Za-z]", b"", t.out)
    check(b"needs colours" in text and b"\x1b_G" not in t.out, "%r" % text[-400:])
    t.close()


if __name__ == "__main__":
    kit.main((
        kitty_shows_a_png_and_removes_it_when_covered_and_at_exit, a_crash_deletes_the_picture,
        a_moved_cursor_replaces_the_picture_and_costs_little_itself, a_sixel_terminal_gets_sixels_that_fit,
        without_a_protocol_cells_show_it, inside_tmux_only_tmux_is_asked, other_views_ask_and_cost_nothing,
        an_export_is_written_with_the_chosen_settings_and_its_path_is_copied,
        a_mono_terminal_says_why_there_is_no_preview))
