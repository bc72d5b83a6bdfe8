"""What a process inherits and what it is denied: closed descriptors, blocked and ignored signals, limits of file size, threads,
memory, stack and descriptors, no /proc.  The work is done or one line says why not.  DEPTHSCOPE names the program."""
import itertools
import os
import resource
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import t  # noqa: E402
from t import PROGRAM, SLOW, Skip, test  # noqa: E402

TINY = ("model.layers=6 model.dim=16 model.heads=2 model.vocab=300 model.max_seq=64 train.steps=4 train.seq=32 train.batch=2 "
        "train.eval_every=4 train.checkpoint_every=2 train.final_tokens=64 train.eval_tokens=64 train.samples=8 "
        "train.time_rounds=0 data.docs=20 data.tokenizer=bytes data.val_fraction=0.3").split()
LONG = ["train.steps=1000000", "train.checkpoint_every=1000000", "train.eval_every=1000000"]
GENERATE = ("generate", "tiny", "--prompt", "a", "max_tokens=2", "--quiet")


SANITIZED = "san" in os.environ.get("BUILD_DIR", "")  # sanitizers need threads, /proc and address space of their own


def run(*words, setup=None, **env):
    return t.call(*words, seconds=60, preexec_fn=setup, env=env)


def done(*words, **kw):
    status, out, said = run(*words, **kw)
    assert status == 0, "%r: status %d: %s" % (words, status, said)
    return out


def done_or_one_line(*words, **kw):
    """1 when it was done."""
    status, out, said = run(*words, **kw)
    if status == 127 and "error while loading shared libraries" in said and said.count("\n") == 1:
        return 0  # it has not begun
    assert status in (0, 1), "%r: status %d: %s" % (words, status, said)
    assert status == 0 or said.startswith("depthscope: ") and said.count("\n") == 1 + said.count("warning: "), \
        "%r: %r" % (words, said)
    return status == 0


def is_whole(run_name):
    """Every byte of the log is a record."""
    with open("runs/%s/log.mp" % run_name, "rb") as f:
        b = f.read()
    i = n = 0
    while i < len(b):
        assert b[i] == 0xC9 and b[i + 5] == 0x44, "%s: something else at %d: %r" % (run_name, i, b[i:i + 60])
        i += 6 + struct.unpack_from(">I", b, i + 1)[0]
        n += 1
    assert i == len(b) and n > 4, run_name


def without(fds):
    return lambda: [os.close(fd) for fd in fds]


@test
def a_run_with_closed_descriptors_has_a_clean_log():
    for n in (1, 2, 3):
        for fds in itertools.combinations((0, 1, 2), n):
            name = "closed" + "".join(map(str, fds))
            for more in ((), ("--json",)) if fds == (1,) else ((),):
                name += "-json" * len(more)
                p = subprocess.run([PROGRAM, "train", "quick", *TINY, "--run", name, *more], timeout=60 * SLOW,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, preexec_fn=without(fds))
                assert p.returncode == 0, (fds, p.returncode)
                is_whole(name)


@test
def children_of_a_program_with_closed_descriptors():
    for fds in ((1,), (0, 1, 2)):
        p = subprocess.run([PROGRAM, "sweep", "quick", *TINY, "data.docs=2%d" % len(fds), "--seeds", "7", "--quiet"],
                           timeout=120 * SLOW, preexec_fn=without(fds), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        assert p.returncode in (0, 1), p.returncode
    names = [n for n in os.listdir("runs") if n.startswith("sweep-")]
    assert len(names) == 2, names
    for name in names:
        is_whole(name)


@test
def a_result_that_nobody_can_read_is_a_failure():
    for words in (("--version",), ("help",), ("runs",), ("runs", "--json"), ("presets",), ("inspect", "tiny"), GENERATE,
                  ("tokenize", "tiny", "--text", "a"), ("figure", "list"), ("get", "--list"), ("train", "--keys", "all"),
                  ("stream", "tiny"), ("doctor",)):
        p = subprocess.run([PROGRAM, *words], stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, timeout=60 * SLOW,
                           preexec_fn=without((1,)))
        assert p.returncode == 1 and p.stderr.count(b"standard output") == 1, (words, p.returncode, p.stderr)
        p = subprocess.run([PROGRAM, *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, timeout=60 * SLOW,
                           preexec_fn=without((0, 2)))
        want = run(*words)[1]
        assert p.returncode == 0 and (p.stdout == want or words[0] in ("runs", "doctor")), (words, p.returncode)


@test
def blocked_signals_still_arrive():
    def block():
        signal.pthread_sigmask(signal.SIG_SETMASK, set(signal.Signals))
    p = subprocess.Popen([PROGRAM, "train", "quick", *TINY, *LONG, "--run", "blocked", "--quiet"], preexec_fn=block)
    await_run("blocked")
    p.send_signal(signal.SIGTERM)
    try:
        assert p.wait(timeout=60 * SLOW) == 143
    finally:
        p.kill()
    assert b"stop" in done("inspect", "blocked")


def await_run(name):
    end = time.monotonic() + 60 * SLOW
    log = "runs/%s/log.mp" % name
    while time.monotonic() < end and not (os.path.exists(log) and os.path.getsize(log) > 4000):
        time.sleep(0.02)
    assert os.path.getsize(log) > 4000


def await_step(name):
    """A signal before the first step has nothing to save."""
    end = time.monotonic() + 60 * SLOW
    while time.monotonic() < end and b"\xa4kind\xa6metric" not in open("runs/%s/log.mp" % name, "rb").read():
        time.sleep(0.02)


@test
def stop_continue_hangup_and_quit_leave_a_whole_log():
    words = [PROGRAM, "train", "quick", *TINY, *LONG[:1], LONG[2], "--run", "signals", "--quiet"]
    p = subprocess.Popen(words, start_new_session=True)
    await_run("signals")
    for number in (signal.SIGTSTP, signal.SIGCONT, signal.SIGHUP, signal.SIGPIPE, signal.SIGWINCH, signal.SIGXFSZ):
        p.send_signal(number)
        time.sleep(0.05)
    size = os.path.getsize("runs/signals/log.mp")
    end = time.monotonic() + 30 * SLOW
    while os.path.getsize("runs/signals/log.mp") <= size and time.monotonic() < end:
        assert p.poll() is None, p.returncode
        time.sleep(0.02)
    assert os.path.getsize("runs/signals/log.mp") > size, "it went on"
    p.send_signal(signal.SIGQUIT)
    assert p.wait(timeout=30 * SLOW) == -signal.SIGQUIT  # as anyone who asks for a core expects
    p = subprocess.Popen([PROGRAM, "train", "--resume", "signals", "--quiet"])
    size = os.path.getsize("runs/signals/log.mp")
    end = time.monotonic() + 30 * SLOW
    while os.path.getsize("runs/signals/log.mp") <= size + 1000 and time.monotonic() < end and p.poll() is None:
        time.sleep(0.02)
    p.terminate()
    assert p.wait(timeout=60 * SLOW) == 143
    is_whole("signals")


@test
def signals_that_ask_to_end_leave_a_checkpoint():
    for number in (signal.SIGXCPU, signal.SIGUSR2, signal.SIGALRM, signal.SIGPWR):
        name = "end-%d" % number
        p = subprocess.Popen([PROGRAM, "train", "quick", *TINY, *LONG, "--run", name, "--quiet"], stderr=subprocess.PIPE)
        await_run(name)
        await_step(name)
        p.send_signal(number)
        _, err = p.communicate(timeout=60 * SLOW)
        assert p.returncode == 128 + number and b"resume with" in err, (number, p.returncode, err)
        assert os.listdir("runs/%s/checkpoints" % name), number
    def little_time():
        resource.setrlimit(resource.RLIMIT_CPU, (1, 30))
    p = subprocess.run([PROGRAM, "train", "quick", *TINY, *LONG, "--run", "time", "--quiet"], preexec_fn=little_time,
                       stderr=subprocess.PIPE, timeout=120 * SLOW)
    assert p.returncode == 128 + signal.SIGXCPU and os.listdir("runs/time/checkpoints"), (p.returncode, p.stderr)


@test
def what_is_no_directory_and_no_run_is_called_so():
    code, _, err = run("train", "quick", *TINY, "--run", "x", DEPTHSCOPE_RUNS="/dev/null")
    assert code == 1 and "Not a directory" in err, err
    os.makedirs("runs/empty")
    code, _, err = run("stop", "empty")
    assert code == 1 and "not found" in err and "did you mean empty" not in err, err
    os.rmdir("runs/empty")


@test
def a_sweep_that_nobody_can_read_says_so_once():
    p = subprocess.run([PROGRAM, "sweep", "quick", *TINY, "--seeds", "1", "--quiet"], stderr=subprocess.PIPE, timeout=60 * SLOW,
                       preexec_fn=without((1,)))
    assert p.returncode == 1 and p.stderr.count(b"standard output") == 1, (p.returncode, p.stderr)


@test
def nohup_keeps_its_promise():
    def ignore():
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
    p = subprocess.Popen([PROGRAM, "eval", "tiny", "data=text"], preexec_fn=ignore, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    p.send_signal(signal.SIGHUP)
    out, err = p.communicate(timeout=60 * SLOW)
    assert p.returncode == 0 and out, (p.returncode, err)


@test
def a_signal_ends_a_figure_without_half_a_file():
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        for wait in (0.002, 0.02, 0.06):
            p = subprocess.Popen([PROGRAM, "figure", "training", "tiny", "-o", "cut"], stdout=subprocess.DEVNULL,
                                 stderr=subprocess.DEVNULL)
            time.sleep(wait)
            p.send_signal(number)
            assert p.wait(timeout=30 * SLOW) in (0, -number, 128 + number), p.returncode
            for name in os.listdir("cut") if os.path.isdir("cut") else ():
                if name.endswith(".png") and not name.startswith("."):
                    with open("cut/" + name, "rb") as f:
                        assert f.read().endswith(b"IEND\xaeB`\x82"), name
                if name.endswith(".svg") and not name.startswith("."):
                    with open("cut/" + name) as f:
                        assert f.read().rstrip().endswith("</svg>"), name


def limited(kind, n):
    return lambda: resource.setrlimit(kind, (n, n))


@test
def a_limit_of_file_size_is_a_write_that_fails():
    for size in (1000, 20000, 60000):
        shutil.rmtree("runs/small", ignore_errors=True)
        status, out, said = run("train", "quick", *TINY, "--run", "small", "--quiet", setup=limited(resource.RLIMIT_FSIZE, size))
        assert status == 1 and "File too large" in said, (size, status, said)
        assert all(line.startswith("depthscope: ") for line in said.splitlines()), said
    status, out, said = run("figure", "training", "tiny", "-o", "small", setup=limited(resource.RLIMIT_FSIZE, 1000))
    assert status == 1 and "File too large" in said and said.count("\n") == 1, (status, said)
    assert not os.path.isdir("small") or os.listdir("small") == [], os.listdir("small")
    with open("out", "wb") as f:
        p = subprocess.run([PROGRAM, "help"], stdout=f, stderr=subprocess.PIPE, timeout=60,
                           preexec_fn=limited(resource.RLIMIT_FSIZE, 100))
    assert p.returncode == 1 and b"File too large" in p.stderr, (p.returncode, p.stderr)


@test
def threads_that_cannot_be_started_are_done_without():
    if SANITIZED:
        raise Skip("a sanitizer needs what is taken away here")
    if os.geteuid() != 0:
        uid = None
    else:
        uid = 65534  # root has no limit
        for top, dirs, files in os.walk("."):
            os.chmod(top, 0o777)
    def alone():
        resource.setrlimit(resource.RLIMIT_NPROC, (1, 1))
        if uid:
            os.setgroups([])
            os.setuid(uid)
    try:
        readable = subprocess.run([PROGRAM, "--version"], preexec_fn=alone, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                  timeout=30)
    except PermissionError:
        raise Skip("another user may not run the program here")
    assert readable.returncode == 0 and b"OpenBLAS" not in readable.stderr, readable
    status, out, said = run(*GENERATE, "threads=0", setup=alone)
    assert status == 0 and "OpenBLAS" not in said, (status, said)
    assert done(*GENERATE, "threads=1", setup=alone, DEPTHSCOPE_GEMM="blas")
    status, out, said = run(*GENERATE, "threads=3", setup=alone)
    assert status == 1 and "thread 2 of 3: start failed" in said and said.count("\n") == 1, (status, said)
    done("train", "quick", *TINY, "--run", "alone", "--quiet", setup=alone)
    is_whole("alone")


@test
def little_address_space_is_enough_or_one_line():
    if SANITIZED:
        raise Skip("a sanitizer needs what is taken away here")
    least = 400 << 20
    if b"Sanitizer" in open(PROGRAM, "rb").read():
        raise Skip("sanitizers map terabytes")
    for bytes in (24 << 20, 48 << 20, 96 << 20, 200 << 20, least):
        room = limited(resource.RLIMIT_AS, bytes)
        for gemm in ("", "blas"):
            assert done_or_one_line(*GENERATE, setup=room, **({"DEPTHSCOPE_GEMM": gemm} if gemm else {})) or bytes < least
        assert done_or_one_line("figure", "training", "tiny", "-o", "room", setup=room) or bytes < least
        shutil.rmtree("runs/room", ignore_errors=True)
        assert done_or_one_line("train", "quick", *TINY, "--run", "room", "--quiet", setup=room) or bytes < least


@test
def a_small_stack_is_enough():
    if SANITIZED:
        raise Skip("a sanitizer needs what is taken away here")
    if b"Sanitizer" in open(PROGRAM, "rb").read():
        raise Skip("sanitizers need a large stack themselves")
    for kib in (32, 64, 200, 1000):
        small = limited(resource.RLIMIT_STACK, kib << 10)
        for words in (GENERATE, ("inspect", "tiny"), ("eval", "tiny", "data=text"), ("figure", "training", "tiny", "-o", "stack"),
                      ("compare", "tiny", "other"), ("get", "--list"), ("tokenize", "tiny", "--text", "a")):
            done(*words, setup=small)
    done("train", "quick", *TINY, "--run", "stack", "--quiet", setup=limited(resource.RLIMIT_STACK, 64 << 10))
    is_whole("stack")
    # the wait for a child is still interrupted by a signal
    p = subprocess.Popen([PROGRAM, "sweep", "quick", *TINY, *LONG, "--seeds", "9", "--quiet"], start_new_session=True,
                         preexec_fn=limited(resource.RLIMIT_STACK, 64 << 10), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    time.sleep(1)
    os.killpg(p.pid, signal.SIGINT)
    p.communicate(timeout=60 * SLOW)
    assert p.returncode in (1, 130), p.returncode


@test
def few_descriptors_are_enough_or_one_line():
    for n in (4, 6, 8, 16):
        few = limited(resource.RLIMIT_NOFILE, n)
        for words in (GENERATE, ("inspect", "tiny"), ("figure", "training", "tiny", "-o", "few"), ("compare", "tiny", "other")):
            assert done_or_one_line(*words, setup=few) or n < 16, (n, words)
    shutil.rmtree("runs/few", ignore_errors=True)
    done("train", "quick", *TINY, "--run", "few", "--quiet", setup=limited(resource.RLIMIT_NOFILE, 16))


@test
def without_proc_the_program_finds_its_files():
    if SANITIZED:
        raise Skip("a sanitizer needs what is taken away here")
    def bare(script, **env):
        return subprocess.run(["unshare", "-m", "sh", "-c", "mount -t tmpfs none /proc && " + script, PROGRAM],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60 * SLOW, env={**os.environ, **env})
    if not shutil.which("unshare") or bare("true").returncode != 0:
        raise Skip("/proc cannot be hidden here (unshare -m)")
    tree = tempfile.mkdtemp(dir=".")
    copy = os.path.join(os.path.abspath(tree), "depthscope")
    shutil.copy(PROGRAM, copy)
    os.makedirs(tree + "/data")
    for name in ("quick", "mine"):
        with open(tree + "/data/%s.yaml" % name, "w") as f:
            f.write("train:\n  steps: 3\n")
    for call in ('"%s"' % copy, 'cd %s && ./depthscope' % tree, 'PATH=%s:$PATH && depthscope' % os.path.dirname(copy)):
        p = bare(call + " presets")
        assert p.returncode == 0 and b"mine" in p.stdout, (call, p.stderr)
    p = bare('"$0" %s && "$0" train quick %s --run bare --quiet && "$0" runs && "$0" doctor' % (" ".join(GENERATE), " ".join(TINY)))
    assert p.returncode == 0 and b"bare" in p.stdout and b"avx512" in p.stdout + b"avx512", p.stderr
    is_whole("bare")
    p = bare('"$0" train quick %s --run far --quiet' % " ".join(TINY), DEPTHSCOPE_RUNS=os.path.abspath("far" * 40))
    assert p.returncode == 1 and b"choose a shorter" in p.stderr and p.stderr.count(b"\n") == 1, p.stderr


def setup():
    os.chmod(".", 0o777)
    os.chmod("..", 0o777)
    with open("text", "w") as f:
        f.write("a line of a text that is long enough to be cut into windows\n" * 60)
    done("train", "quick", *TINY, "--run", "tiny", "--quiet")
    shutil.copytree("runs/tiny", "runs/other")


t.main(setup)
