"""Runs a program in the terminal that this was started in, for the one who drives that terminal: DIR/job.json says what, and what
is found there before and after is left in DIR."""
import json
import os
import re
import select
import subprocess
import sys
import termios
import time
import tty


def write(path, value):
    with open(path + ".new", "w", encoding="utf-8") as f:
        json.dump(value, f)
    os.replace(path + ".new", path)


def settings():
    return [x if isinstance(x, int) else [c if isinstance(c, int) else c[0] for c in x] for x in termios.tcgetattr(0)]


def modes(numbers):
    """The terminal's own word on its private modes (DECRQM): 1 set, 2 reset; {} from a terminal that does not answer."""
    saved, got = termios.tcgetattr(0), b""
    try:
        tty.setraw(0)
        os.write(1, b"".join(b"\x1b[?%d$p" % n for n in numbers) + b"\x1b[c")
        end = time.monotonic() + 1
        while time.monotonic() < end and not re.search(rb"\x1b\[\?[\d;]*c", got):
            if select.select([0], [], [], 0.1)[0]:
                got += os.read(0, 4096)
    finally:
        termios.tcsetattr(0, termios.TCSANOW, saved)
    return {n: int(v) for n, v in re.findall(r"\x1b\[\?(\d+);(\d)\$y", got.decode("latin-1"))}


def main():
    where = sys.argv[1]
    with open(os.path.join(where, "job.json"), encoding="utf-8") as f:
        job = json.load(f)
    env = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "COLORTERM")}
    for name, value in job["env"].items():
        if value is None:
            env.pop(name, None)
        else:
            env[name] = value
    os.write(1, job["first"].encode() + b"before the program\r\n")
    before = settings()
    p = subprocess.Popen(job["argv"], env=env, start_new_session=False)
    write(os.path.join(where, "started.json"), {"pid": p.pid, "tty": os.ttyname(0), "term": os.environ.get("TERM", "")})
    status = p.wait()
    after = settings()
    found = {"status": status, "before": before, "after": after, "modes": modes(job["modes"]) if job["modes"] else {}}
    os.write(1, b"after the program\r\n")
    write(os.path.join(where, "ended.json"), found)
    end = time.monotonic() + 20
    while time.monotonic() < end and not os.path.exists(os.path.join(where, "bye")):
        time.sleep(0.02)


if __name__ == "__main__":
    main()
