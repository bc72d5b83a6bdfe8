#!/usr/bin/env python3
"""The single file of `make portable` as an ordinary user in a chroot that holds only it and a static busybox: no /proc, /dev, /tmp,
/etc and no library.  DEPTHSCOPE_CHROOT=DIR runs the same in an installed system (debootstrap SUITE DIR)."""
import fcntl
import glob
import hashlib
import json
import os
import pty
import re
import select
import shutil
import struct
import subprocess
import sys
import tempfile
import termios
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import t  # noqa: E402
from t import PROGRAM, ROOT, SLOW, TINY, Skip, test  # noqa: E402

try:
    import pyte
except ImportError:
    pyte = None

PORTABLE = os.path.abspath(os.environ.get("DEPTHSCOPE_PORTABLE") or os.path.join(ROOT, "build/portable/depthscope"))
TREE = os.environ.get("DEPTHSCOPE_CHROOT", "")
BUILD = os.path.join(ROOT, os.environ.get("BUILD_DIR", "build/release"))
USER = 54321
root = place = ""  # the chroot, and the directory in it that the user may write


def missing():
    if os.path.basename(BUILD) != "release":
        return "the plain build runs it"
    if os.geteuid() != 0:
        return "only root may chroot"
    if not os.access(PORTABLE, os.X_OK):
        return "no build/portable/depthscope (make portable)"
    if not TREE and not busybox():
        return "no static busybox (busybox-static)"
    return ""


def busybox():
    path = shutil.which("busybox")
    if not path:
        return None
    with open(path, "rb") as f:
        return path if b"/ld-linux" not in f.read(4096) else None


def enter():
    os.chroot(root)
    os.chdir(place)
    os.setgroups([])
    os.setgid(USER)
    os.setuid(USER)


ENV = {"PATH": "/bin:/usr/bin", "HOME": "/nowhere", "LANG": "C.UTF-8", "TERM": "xterm-256color"}


def call(*words, data=None, seconds=60, **env):
    p = subprocess.run([place + "/depthscope", *words], input=data, stdin=None if data is not None else subprocess.DEVNULL,
                       stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=seconds * SLOW, env={**ENV, **env},
                       preexec_fn=enter)
    return p.returncode, p.stdout, p.stderr.decode("utf-8", "replace")


def done(*words, **more):
    status, out, err = call(*words, **more)
    assert status == 0, "%s: exit status %d\n%s" % (" ".join(words), status, err)
    return out.decode("utf-8", "replace")


def inside(name):
    return os.path.join(root, place.lstrip("/"), name)


def read(name):
    with open(inside(name), "rb") as f:
        return f.read()


@test
def it_is_one_static_file_of_at_most_20_mb():
    said = subprocess.run(["sh", os.path.join(ROOT, "tests/setup/portable.sh"), PORTABLE], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert said.returncode == 0 and b"not a dynamic executable" in said.stdout, said.stdout
    large = inside("large")
    shutil.copy(PORTABLE, large)
    os.truncate(large, 20000001)
    for path in (large, sys.executable):
        refused = subprocess.run(["sh", os.path.join(ROOT, "tests/setup/portable.sh"), path], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        assert refused.returncode == 1 and b"most 20000000" in refused.stderr + refused.stdout or b"static" in refused.stderr, refused
    os.unlink(large)


@test
def every_subcommand_prints_its_help():
    names = sorted(set(re.findall(r"^  depthscope ([a-z]+)\b", done("help"), re.M)))
    assert len(names) > 25 and {"train", "agent", "bench", "doctor"} <= set(names), names
    for name in names:
        assert done(name, "--help").strip(), name
    assert done("--version").startswith("depthscope ")
    for page in ("man", "bash", "zsh", "fish", "keys", "workbench"):
        assert len(done("help", page)) > 100, page


@test
def the_doctor_finds_everything_it_carries():
    found = {f["name"]: f for f in json.loads(done("doctor", "--json"))}
    assert all(f["ok"] for f in found.values()), found
    assert found["locale"]["text"] == "UTF-8" and found["presets"]["text"] == "built-in:/data"
    assert "colour-blind" in found["themes"]["text"] and "high-contrast" in found["themes"]["text"]
    if not TREE:
        assert found["gpus"]["text"] == "none found"
    assert "not UTF-8" in json.dumps(json.loads(done("doctor", "--json", LANG="de_DE.ISO-8859-15")))
    status, _, err = call("doctor", DEPTHSCOPE_GEMM="blas")
    assert status == 0 and err.count("\n") == 1 and "not part of this build" in err, err
    status, _, err = call("doctor", DEPTHSCOPE_NVML="/bin/busybox")
    assert status == 0 and err == "", err


@test
def gpus_are_read_from_nvidia_smi():
    os.makedirs(inside("bin"))
    with open(inside("bin/nvidia-smi"), "w") as f:
        f.write("#!%s\necho 'Tesla T4, 37, 1024, 15360, 9.5, 70.00, 41, 300, 405, 0x1'\n" % ("/bin/sh" if TREE else "/bin/busybox sh"))
    os.chmod(inside("bin/nvidia-smi"), 0o755)
    said = done("doctor", PATH=place + "/bin")
    assert "1 x Tesla T4, 16.1GB each (nvidia-smi)" in said, said


@test
def an_older_processor_is_refused_in_one_line():
    if not shutil.which("qemu-x86_64-static"):
        raise Skip("no qemu-x86_64-static (qemu-user-static)")
    for words, status in ((["-cpu", "Nehalem"], 1), (["-cpu", "max"], 0)):
        p = subprocess.run(["qemu-x86_64-static", *words, PORTABLE, "--version"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        assert p.returncode == status, (words, p)
        assert status == 0 or p.stdout == b"" and p.stderr.count(b"\n") == 1 and b"x86-64-v3" in p.stderr, p


@test
def presets_and_themes_on_disk_win():
    assert "\ntiny " in done("presets") and json.loads(done("presets", "hat-scratch", "--json"))
    os.makedirs(inside("data"))
    try:
        assert "\ntiny " in done("presets"), "a folder called data is not a folder of presets"
        for name in ("quick", "mine"):
            with open(inside("data/%s.yaml" % name), "w") as f:
                f.write("train:\n  steps: 3\n")
        listed = done("presets")
        assert "\nmine " in listed and "\ntiny " not in listed
    finally:
        shutil.rmtree(inside("data"))


@test
def a_run_is_trained_evaluated_drawn_and_exported():
    assert "a" in [r["name"] for r in json.loads(done("runs", "--json"))]
    assert json.loads(done("generate", "a", "--prompt", "Once", "max_tokens=8", "--json"))["ids"]
    assert json.loads(done("eval", "a", "--json", seconds=120))["loss"] > 0
    done("trace", "a", "--text", "Tom had two apples.", "-o", "t.mp")
    assert json.loads(done("tokenize", "a", "--text", "Tom", "--json"))["ids"]
    assert "step" in done("export", "a", "--to", "csv").splitlines()[0]
    done("convert", "a", "-o", "hf")
    done("convert", "a", "-o", "a.gguf", "method=dense")
    assert "model.layers" in done("inspect", "hf") and done("inspect", "a.gguf") and done("inspect", "t.mp")
    assert done("generate", "a.gguf", "--prompt", "Once", "max_tokens=4")
    assert call("stream", "a")[1][:1] == b"\xc9"
    assert "name" in done("bench", "only=norm", "rounds=1", "--json", seconds=120)
    assert "train" in done("complete", "tr") and done("get", "--list")
    done("train", "--resume", "a", "--allow-change", "train.steps=12", "--quiet")
    assert json.loads(done("runs", "--json"))[0]["step"] == 12
    status, _, err = call("get", "stories260k")
    assert status == 1 and err.count("\n") == 1 and "curl" in err or TREE, err


@test
def figures_have_their_text_without_fonts():
    done("figure", "training", "a", "-o", "fig", "--format", "png,svg,pdf")
    shutil.copytree(inside("runs/a"), "a")
    drawn = [f for f in os.listdir(inside("fig"))]
    assert sorted(os.path.splitext(f)[1] for f in drawn) == [".pdf", ".png", ".svg"], drawn
    assert read("fig/training.pdf")[:5] == b"%PDF-" and min(len(read("fig/" + f)) for f in drawn) > 5000
    is_comparable()
    t.run("figure", "training", "a", "-o", "here", "--format", "png,svg,pdf")
    for f in drawn:
        a, b = read("fig/" + f), open("here/" + f, "rb").read()
        if f.endswith(".svg"):
            assert a.count(b"<path") == b.count(b"<path") > 50, "the same glyphs are drawn as by the ordinary build"
        elif f.endswith(".png"):
            import zlib  # the pixels, not how they are packed
            pixels = [b"".join(zlib.decompressobj().decompress(x) for x in [idat(p)]) for p in (a, b)]
            assert pixels[0] == pixels[1] and len(set(pixels[0])) > 50


def is_comparable():
    flags = os.path.join(BUILD, "flags")
    if not os.path.exists(flags) or "-O3 -march=x86-64-v3" not in open(flags).read():
        raise Skip("the ordinary build is for another processor, or not optimised")


def idat(png):
    at, out = 8, b""
    while at + 8 <= len(png):
        n, kind = struct.unpack(">I", png[at:at + 4])[0], png[at + 4:at + 8]
        out += png[at + 8:at + 8 + n] if kind == b"IDAT" else b""
        at += 12 + n
    return out


@test
def the_same_seed_gives_the_same_run_as_the_ordinary_build():
    is_comparable()
    words = ["train", "quick", "seed=7", "threads=2", *TINY, "--json"]
    keys = ("step", "tokens", "loss", "val_loss", "lr", "grad_norm", "router_norm", "block_ratio", "flops_ratio")
    steps = [[[x.get(k) for k in keys] for x in map(json.loads, out.splitlines()) if "grad_norm" in x]
             for out in (done(*words, "--run", "same"), t.run(*words, "--run", "same"))]
    assert steps[0] == steps[1] and len(steps[0]) == 10 and None not in steps[0][0][4:], steps
    same = [hashlib.sha256(open(glob.glob(runs + "/same/checkpoints/*/model.safetensors")[0], "rb").read()).hexdigest()
            for runs in (inside("runs"), "runs")]
    assert same[0] == same[1], "the weights differ"


class Tty:
    """The workbench on a pseudo-terminal of 80x24 cells."""

    def __init__(self, *words, **env):
        self.out, self.screen = b"", pyte.Screen(80, 24) if pyte else None
        self.stream = pyte.ByteStream(self.screen) if pyte else None
        ready, go = os.pipe()
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.read(ready, 1)
            enter()
            os.execve(place + "/depthscope", ["depthscope", *words], {**ENV, **env})
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        os.write(go, b"x")
        os.close(ready)
        os.close(go)

    def until(self, *parts, seconds=20):
        """Reads until the bytes sent (with pyte: the screen) hold every part."""
        end = time.monotonic() + seconds * SLOW
        while time.monotonic() < end:
            shown = "\n".join(self.screen.display) if pyte else self.out.decode("utf-8", "replace")
            if all(p in shown for p in parts):
                return shown
            if select.select([self.fd], [], [], 0.1)[0]:
                try:
                    got = os.read(self.fd, 65536)
                except OSError:
                    break
                self.out += got
                if pyte:
                    self.stream.feed(got.replace(b"\x1b[?2026$p", b""))
        raise AssertionError("not shown: %r in\n%s" % (parts, shown[-2500:]))

    def keys(self, text):
        os.write(self.fd, text.encode())

    def quit(self):
        self.keys("q")
        end = time.monotonic() + 10 * SLOW
        while time.monotonic() < end:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                os.close(self.fd)
                return status
            if select.select([self.fd], [], [], 0.1)[0]:
                try:
                    self.out += os.read(self.fd, 65536)
                except OSError:
                    pass
        os.kill(self.pid, 9)
        os.waitpid(self.pid, 0)
        raise AssertionError("did not quit")


@test
def the_workbench_draws_in_colour_with_frames_and_braille():
    tty = Tty("runs/a")
    tty.until("Monitor", "loss")
    assert re.search(rb"\x1b\[[0-9;]*38;5;\d+", tty.out) and "\u203a".encode() in tty.out, tty.out[-500:]
    assert re.search("[\u2801-\u28ff]", tty.out.decode("utf-8", "replace")), "no braille in the curves"
    tty.keys("3")
    tty.until("Depth")
    assert tty.quit() == 0
    for name, wanted in (("linux", b"\x1b["), ("tmux-256color", b"\x1b["), ("vt100", b"\x1b[")):
        tty = Tty("runs/a", TERM=name)
        tty.until("Monitor")
        assert tty.quit() == 0 and wanted in tty.out, name
    tty = Tty("runs/a", LANG="C")
    tty.until("Monitor")
    assert tty.quit() == 0 and not [c for c in tty.out if c > 126], "ASCII without a UTF-8 locale"


@test
def the_workbench_starts_a_run_and_follows_it():
    os.makedirs(inside("fresh"))
    os.chown(inside("fresh"), USER, USER)
    tty = Tty(DEPTHSCOPE_RUNS="fresh")
    tty.until("No runs here yet")
    tty.keys("\r")
    tty.until("Monitor", "quick-1", seconds=30)
    assert tty.quit() == 0
    try:
        end = time.monotonic() + 30 * SLOW
        state = ""
        while state != "running" and time.monotonic() < end:
            state = json.loads(done("runs", "--json", DEPTHSCOPE_RUNS="fresh"))[0]["state"]
        assert state == "running", state
    finally:
        done("stop", "--all", DEPTHSCOPE_RUNS="fresh", seconds=90)
    assert json.loads(done("runs", "--json", DEPTHSCOPE_RUNS="fresh"))[0]["state"] == "stopped"


@test
def its_agent_serves_the_runs_over_a_pipe():
    p = subprocess.Popen([place + "/depthscope", "agent"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=ENV, preexec_fn=enter)
    p.stdin.write(json.dumps({"do": "open", "protocol": 1, "root": "runs"}).encode() + b"\n" + b'{"do": "list"}\n')
    p.stdin.flush()
    got, end = b"", time.monotonic() + 20 * SLOW
    while b"listed" not in got and time.monotonic() < end:
        if select.select([p.stdout], [], [], 0.1)[0]:
            got += os.read(p.stdout.fileno(), 65536)
    p.stdin.close()
    assert p.wait(20 * SLOW) == 0 and b"protocol" in got and b"listed" in got and b"edp" in got, got[:500]
    p.stdout.close()


@test
def the_machine_view_has_one_line_where_there_is_no_gpu():
    lines = [x.strip() for x in done("show", "machine", "--size", "80x24", PATH=place).splitlines()]
    assert "no GPU" in lines and any(x.startswith("disk") and "free of" in x for x in lines), lines


def setup():
    """A tree with the program and busybox, or a folder in the given one."""
    global root, place
    if TREE:
        root = TREE
        place = "/" + os.path.basename(tempfile.mkdtemp(prefix="ds-portable-", dir=TREE))
    else:
        root, place = os.path.abspath("chroot"), "/home"
        os.makedirs(root + "/bin")
        os.makedirs(root + place)
        shutil.copy(busybox(), root + "/bin/busybox")
        part = os.path.dirname(root)
        while len(part) > 4:  # mkdtemp lets nobody else pass
            os.chmod(part, 0o755)
            part = os.path.dirname(part)
    shutil.copy(PORTABLE, root + place + "/depthscope")
    os.chmod(root + place, 0o755)
    os.chown(root + place, USER, USER)
    done("train", "quick", *TINY, "--run", "a", "--quiet")


if __name__ == "__main__":
    why = missing()
    if why:
        print("SKIP test_portable: %s" % why)
        print("test_portable: 0 passed, 0 failed, %d skipped" % len(t.tests))
    else:
        try:
            t.main(setup=setup)
        finally:
            if TREE and place:
                shutil.rmtree(root + place, ignore_errors=True)
