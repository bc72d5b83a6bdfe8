"""Every command of README.md and its reference pages as a new user runs it: from a fresh HOME, at a terminal, one after the other.
Words that stand for something of the user's (FOLDER) become small things made here; long trainings
get fewer steps.  DEPTHSCOPE names the program."""
import fcntl
import http.server
import os
import pty
import re
import select
import shutil
import signal
import struct
import sys
import termios
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import t  # noqa: E402
from t import PROGRAM, ROOT, SHARED, SLOW, Skip  # noqa: E402

LIMIT_S = 240 * SLOW

# What begins like this gets these words appended: the same command, sooner done.
SHORTER = (
    ("./depthscope train quick", "train.steps=30 train.eval_every=10 train.checkpoint_every=10 train.final_tokens=2048"),
    ("./depthscope train --keys", ""),
    ("./depthscope train --resume", ""),
    ("./depthscope train", "train.steps=2 train.batch=2 train.seq=64 train.final_tokens=512 train.eval_tokens=512 "
                           "train.time_rounds=1 train.probes=1"),
    ("./depthscope isoflop", "--dry-run"),
    ("./depthscope eval first task=", "shots=1"),
    ("./depthscope eval first", "tokens=1024"),
    ("./depthscope calibrate routed risk=", "risk=0.3 tokens=8192"),
    ("./depthscope calibrate", "tokens=4096"),
)
# What stands for the user's own, as whole words.
STANDS_FOR = (("task=mmlu data.path=FOLDER", "task=mmlu data.path=mmlu"),
              ("data.path=FOLDER", "data.path=texts"), ("random:tinyllama", "random:qwen2.5-10m"))
READS_THE_MIRROR = re.compile(r"\b(get tinystories|tinystories-656k|ts\.gguf)\b")


PAGES = ("README.md", "data/reference/MODELS.md", "data/reference/EVALUATION.md")


def commands():
    """Each indented command line of the pages, once, its comment removed."""
    seen = set()
    for page in PAGES:
        for line in open(os.path.join(ROOT, page), encoding="utf-8"):
            command = re.sub(r"\s+#\s.*", "", line.strip())
            if re.match(r"    (\./depthscope|ssh|python3) ", line) and command not in seen:
                seen.add(command)
                yield command


def prepare(command, work):
    for word, own in STANDS_FOR:
        command = re.sub(r"%s\b" % re.escape(word), own, command)
    command = command.replace("/tmp/", work + "/")
    for begin, more in SHORTER:
        if command.startswith(begin):
            first, rest = re.match(r"(.*?)(\s*(?:&&|\|).*)?$", command).groups()
            return "%s %s%s" % (first, more, rest or "")
    return command


def at_terminal(command, env):
    """Exit status and output of one line in an 80x24 terminal; a full-screen program is left with q."""
    pid, fd = pty.fork()
    if pid == 0:
        os.execvpe("sh", ["sh", "-c", command], env)
    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    out, end, is_left = b"", time.monotonic() + LIMIT_S, False
    while time.monotonic() < end:
        if not select.select([fd], [], [], 0.5)[0]:
            if b"\x1b[?1049h" in out and not is_left:  # the screen has been still for a moment
                os.write(fd, b"q")
                is_left = True
            continue
        try:
            got = os.read(fd, 65536)
        except OSError:  # the terminal's last process has ended
            got = b""
        if not got:
            break
        out += got
    else:
        os.killpg(pid, signal.SIGKILL)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    os.close(fd)
    return status, out.decode("utf-8", "replace")


class Mirror(http.server.SimpleHTTPRequestHandler):
    """Answers any address with the file of that name among the stored weights."""

    def log_message(self, *args):
        pass

    def translate_path(self, path):
        return os.path.join(SHARED, "weights", "TinyStories-656K-f32", os.path.basename(path))


def make_user_files(work):
    os.makedirs(os.path.join(work, "texts"))
    os.makedirs(os.path.join(work, "mmlu", "test"))
    os.makedirs(os.path.join(work, "mmlu", "dev"))
    for i in range(60):
        with open(os.path.join(work, "texts", "%02d.txt" % i), "w") as f:
            f.write("Once upon a time there were %d apples. Tom ate one, and then there were %d.\n" % (i + 1, i) * 40)
    for part, n in (("test", 3), ("dev", 5)):
        with open(os.path.join(work, "mmlu", part, "anatomy_%s.csv" % part), "w") as f:
            f.write("".join("How many of %d?,1,2,3,4,B\n" % i for i in range(n)))
    for folder in ("logs/tensorboard", "outputs/checkpoint-500"):
        os.makedirs(os.path.join(work, folder))
    with open(os.path.join(work, "outputs/checkpoint-500/trainer_state.json"), "w") as f:
        f.write('{"global_step": 500, "max_steps": 1000, "log_history": [{"loss": 2.5, "step": 250}, {"loss": 2.25, "step": 500}]}\n')
    with open(os.path.join(work, "points.csv"), "w") as f:
        f.write("step,loss\n1,3\n2,2.5\n")
    t.run("export", os.path.join(work, "points.csv"), "--to", "tfevents", "-o", os.path.join(work, "logs/tensorboard/events.out.tfevents.1"))
    shutil.copy(os.path.join(ROOT, "tests/fuzz/corpus/routing/megatron.jsonl"), os.path.join(work, "trace_rank0.jsonl"))
    with open(os.path.join(work, "train.py"), "w") as f:
        f.write("for i in range(20):\n    print('iter %d: loss %.4f, time 20.00ms, mfu 10.00%%' % (i, 4 - i / 10))\n")
    # the program at the place where `make` leaves it, and a far end of ssh that is this machine
    for name, text in (("depthscope", '#!/bin/sh\nexec "%s" "$@"\n' % PROGRAM),
                       ("bin/ssh", '#!/bin/sh\nshift\nexec "$@"\n'), ("bin/depthscope", '#!/bin/sh\nexec "%s" "$@"\n' % PROGRAM)):
        path = os.path.join(work, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w") as f:
            f.write(text)
        os.chmod(path, 0o755)


def setup():
    work = os.getcwd()
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Mirror)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    env.update({k: v for k, v in os.environ.items() if not k.startswith(("DEPTHSCOPE", "XDG_"))})
    env.update(HOME=os.path.join(work, "home"), TERM="xterm-256color", LANG="C.UTF-8", PATH=work + "/bin:" + env["PATH"],
               DEPTHSCOPE_MIRROR="http://127.0.0.1:%d" % server.server_address[1], NO_PROXY="*")
    make_user_files(work)
    os.mkdir(env["HOME"])


def command_test(line):
    def f():
        has_mirror = shutil.which("curl") and os.path.isdir(os.path.join(SHARED, "weights", "TinyStories-656K-f32"))
        if READS_THE_MIRROR.search(line) and not has_mirror:
            raise Skip("no curl, or no stored TinyStories-656K")
        status, out = at_terminal(prepare(line, os.getcwd()), env)
        assert status == 0, "as %s\n  exit status %d\n%s" % (prepare(line, os.getcwd()), status, out[-1200:])
    f.__name__ = line
    return f


def figures_were_drawn():
    assert [f for f in os.listdir("exports") if f.endswith(".png")]


def there_are_commands():
    assert len(all_tests) > 2


env = {}
all_tests = [*map(command_test, commands()), figures_were_drawn, there_are_commands]
if __name__ == "__main__":
    t.main(setup, chosen=all_tests)
