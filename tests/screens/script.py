"""The kit of tests that play scripts on the workbench and read its screens: no terminal is needed."""
import os
import time

from records import frame, pack
from t import run

TINY = ("model.layers=6 model.dim=32 model.heads=2 model.vocab=300 train.steps=10 train.seq=32 train.batch=2 "
        "train.eval_every=5 train.final_tokens=512 train.eval_tokens=512 data.docs=60 data.val_fraction=0.3 "
        "train.time_rounds=0 train.checkpoint_every=5 threads=1").split()


def play(*script, size="80x24", words=()):
    """The screens of a script as lists of lines, without the role planes; the last is the end."""
    with open("script.keys", "w") as f:
        f.write("\n".join(script) + "\n")
    out = run(*words, "--script", "script.keys", "--size", size)
    screens, lines = [], None
    for line in out.splitlines():
        if line.startswith("== "):
            lines = []
            screens.append(lines)
        elif line == "-- roles":
            lines = None
        elif lines is not None:
            lines.append(line)
    return screens


def has(screen, *parts):
    """A line holds all parts, in this order."""
    for line in screen:
        at = 0
        for part in parts:
            at = line.find(part, at)
            if at < 0:
                break
            at += len(part)
        else:
            return True
    return False


def shows(screen, *parts):
    assert has(screen, *parts), "no line with %r in\n%s" % (parts, "\n".join(screen))


def lacks(screen, part):
    assert not has(screen, part), "%r in\n%s" % (part, "\n".join(screen))


def place(screen, text):
    """ROW COLUMN of a text, as `click` and `wheel` take them."""
    for row, line in enumerate(screen):
        if text in line:
            return "%d %d" % (row, line.index(text))
    raise AssertionError("no %r in\n%s" % (text, "\n".join(screen)))


# ---- records ----

def log(name, *records):
    os.makedirs("runs/" + name)
    with open("runs/%s/log.mp" % name, "wb") as f:
        f.write(b"".join(frame(seq, pack(body)) for seq, body in enumerate(records, 1)))


def crafted(name, *last, age=9000.0):
    then = time.time() - age
    log(name, dict(kind="head", step=0, time=then, run=name, method="mod", steps=40),
        dict(kind="metric", step=7, time=then, loss=2.0), *(dict(r, time=then) for r in last))
