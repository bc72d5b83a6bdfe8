"""FIFOs, devices, sockets and directories where a file belongs: one line at once, no hang; pipes that a shell hands over are
read as ever.  What the program creates is writable by its owner only.  DEPTHSCOPE names the program."""
import os
import shutil
import socket
import stat
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import t  # noqa: E402
from t import PROGRAM, SLOW, test  # noqa: E402

TINY = ("model.layers=6 model.dim=16 model.heads=2 model.vocab=300 model.max_seq=64 train.steps=4 train.seq=32 train.batch=2 "
        "train.eval_every=4 train.checkpoint_every=2 train.final_tokens=64 train.eval_tokens=64 train.samples=8 "
        "train.time_rounds=0 data.docs=20 data.tokenizer=bytes data.val_fraction=0.3 threads=1").split()
TEXT = "a line of a text that is long enough to be cut into windows\n" * 60


def run(*words, stdin=subprocess.DEVNULL, **kw):
    """Hanging is a failure: nothing here takes seconds."""
    status, out, said = t.call(*words, seconds=30, stdin=stdin, **kw)
    assert status <= 2, "%r: status %d: %s" % (words, status, said)
    return status, out.decode("utf-8", "replace"), said


def refused(part, *words):
    status, out, said = run(*words)
    assert status in (1, 2) and part in said, "%r: status %d, lacks %r: %s" % (words, status, part, said)
    assert said.count("\n") == 1 and said.startswith("depthscope: "), "%r: not one line: %r" % (words, said)


def accepted(*words, **kw):
    status, out, said = run(*words, **kw)
    assert status == 0, "%r: status %d: %s" % (words, status, said)
    return out


def plant(path):
    if os.path.lexists(path):
        os.remove(path)
    os.mkfifo(path)


@test
def files_of_a_model_s_folder():
    for name in sorted(os.listdir("hf")):
        shutil.rmtree("bad", ignore_errors=True)
        shutil.copytree("hf", "bad")
        plant("bad/" + name)
        part = "bad/%s: is a FIFO, expected a regular file" % name
        for words in (("inspect", "bad"), ("generate", "bad", "--prompt", "a", "max_tokens=1"), ("eval", "bad", "data=text"),
                      ("trace", "bad", "--text", "a", "--json"), ("serve", "bad")):
            status, out, said = run(*words)
            assert part in said or (words[0] == "serve" and part in out), "%r: %s" % (words, said)
            assert status == 1 or words[0] == "serve", words
    # what is optional beside a model is opened as well
    for name in ("generation_config.json", "tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja",
                 "added_tokens.json", "adapter_config.json", "model.safetensors.index.json", "vocab.json", "merges.txt"):
        shutil.rmtree("bad", ignore_errors=True)
        shutil.copytree("hf", "bad")
        plant("bad/" + name)
        run("generate", "bad", "--prompt", "a", "max_tokens=1", "--quiet")
        run("generate", "bad", "--chat", "--prompt", "a", "max_tokens=1", "--quiet")
        shutil.rmtree("out", ignore_errors=True)
        run("convert", "bad", "-o", "out")


@test
def files_of_a_run():
    for name in ("config.yaml", "meta.json", "tokenizer.json", "log.mp", "best.json", "checkpoints/step-00000004/config.json",
                 "checkpoints/step-00000004/manifest.json", "checkpoints/step-00000004/model.safetensors",
                 "checkpoints/step-00000004/optimizer.safetensors", "checkpoints/step-00000004/state.json",
                 "checkpoints/step-00000004/tokenizer.json"):
        shutil.rmtree("runs/spoilt", ignore_errors=True)
        shutil.copytree("runs/tiny", "runs/spoilt")
        plant("runs/spoilt/" + name)
        for words in (("runs",), ("runs", "--json"), ("inspect", "spoilt"), ("compare", "spoilt", "tiny"), ("stream", "spoilt"),
                      ("figure", "training", "spoilt", "-o", "out"), ("generate", "spoilt", "--prompt", "a", "max_tokens=1"),
                      ("eval", "spoilt", "data=text"), ("tokenize", "spoilt", "--text", "a"), ("train", "--resume", "spoilt", "--quiet")):
            run(*words)
    shutil.rmtree("runs/spoilt")
    shutil.copytree("runs/tiny", "runs/spoilt")
    plant("runs/spoilt/log.mp")
    for words in (("compare", "spoilt", "tiny"), ("stream", "spoilt"), ("figure", "training", "spoilt", "-o", "out")):
        refused("log.mp: is a FIFO, expected a regular file", *words)
    shutil.rmtree("runs/spoilt")


@test
def files_that_the_user_names():
    kinds = {"fifo.yaml": "is a FIFO", "/dev/zero": "is a device", "sock.yaml": "is a socket", "dir.yaml": "is a directory"}
    plant("fifo.yaml")
    os.makedirs("dir.yaml", exist_ok=True)
    s = socket.socket(socket.AF_UNIX)
    s.bind("sock.yaml")
    try:
        for name, part in kinds.items():
            for words in (("tokenize", "tiny", "--file", name), ("generate", "tiny", "--file", name),
                          ("generate", "tiny", "--batch", name), ("trace", "tiny", "--file", name, "--json"),
                          ("generate", "tiny", "--messages", name, "template=chatml"),
                          ("figure", "--again", name), ("get", "thing", "known=" + name), ("get", "--list", "known=" + name)):
                refused(part, *words)
            if part != "is a directory":
                for words in (("tokenize", name, "--text", "a"), ("generate", name, "--prompt", "a"),
                              ("eval", "tiny", "data=" + name), ("eval", "tiny", "task=mmlu", "data=" + name),
                              ("inspect", name), ("convert", name, "-o", "out"), ("bench", name), ("calibrate", name),
                              ("train", "quick", "data.path=" + name, "--run", "never", "--quiet"),
                              ("train", "quick", "data.tokenizer=" + name, "--run", "never", "--quiet"),
                              ("train", "quick", "train.init=" + name, "--run", "never", "--quiet")):
                    refused(part, *words)
            if name.endswith(".yaml") and part != "is a directory":
                for words in (("train", name, "--run", "never"), ("presets", name), ("sweep", name, "--dry-run")):
                    refused(part, *words)
    finally:
        s.close()
        os.remove("sock.yaml")
    refused("a FIFO without a reader", "trace", "tiny", "--text", "a", "-o", "fifo.yaml")
    assert not os.path.exists("runs/never"), os.listdir("runs")


@test
def a_link_to_a_terminal_or_device_is_not_followed():
    for target in ("/dev/zero", "/dev/tty", "/dev/stdin"):
        shutil.rmtree("bad", ignore_errors=True)
        shutil.copytree("hf", "bad")
        os.remove("bad/tokenizer.json")
        os.symlink(target, "bad/tokenizer.json")
        r, w = os.pipe()  # a standard input that never ends
        try:
            status, out, said = run("tokenize", "bad", "--text", "a", stdin=r)
        finally:
            os.close(r)
            os.close(w)
        assert status == 1 and "tokenizer.json" in said, (target, said)


@test
def links_to_regular_files_are_followed():
    shutil.rmtree("bad", ignore_errors=True)
    os.mkdir("bad")
    for name in os.listdir("hf"):  # as in the cache of a model hub
        os.symlink(os.path.abspath("hf/" + name), "bad/" + name)
    assert accepted("tokenize", "bad", "--text", "ab", "--json") == accepted("tokenize", "hf", "--text", "ab", "--json")


def piped(text, *words):
    r, w = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(r)
        time.sleep(0.2)  # a writer that is slower than the reader is waited for
        os.write(w, text.encode())
        os._exit(0)
    os.close(w)
    try:
        return accepted(*[word.replace("@", str(r)) for word in words], pass_fds=[r])
    finally:
        os.close(r)
        os.waitpid(pid, 0)


@test
def pipes_that_a_shell_hands_over_are_read():
    want = accepted("tokenize", "tiny", "--text", "ab", "--json")
    assert piped("ab", "tokenize", "tiny", "--file", "/dev/fd/@", "--json") == want
    assert piped("ab", "tokenize", "tiny", "--file", "/proc/self/fd/@", "--json") == want
    for name in ("-", "/dev/stdin"):
        p = subprocess.run(["sh", "-c", 'printf ab | "$0" tokenize tiny --json --file ' + name, PROGRAM], check=True,
                           stdout=subprocess.PIPE, timeout=30 * SLOW)
        assert p.stdout.decode() == want, name
    with open("ab", "w") as f:
        f.write("ab")
    with open("ab") as f:
        assert accepted("tokenize", "tiny", "--file", "/dev/stdin", "--json", stdin=f) == want
    a, b = socket.socketpair()
    b.sendall(b"ab")
    b.close()
    assert accepted("tokenize", "tiny", "--file", "/dev/stdin", "--json", stdin=a) == want, "a socket, as under sshd"
    a.close()
    assert "/dev/fd/" in piped(TEXT, "eval", "tiny", "data=/dev/fd/@")
    assert "thing" in piped("thing:\n  kind: model\n  licence: MIT\n  about: x\n  f1: a 1 - https://e/x\n", "get", "--list",
                            "known=/dev/fd/@")
    piped("ab\ncd\n", "generate", "tiny", "--batch", "/dev/fd/@", "max_tokens=1", "--quiet")
    status, out, said = run("train", "quick", *TINY, "--run", "never", "data.path=/dev/null")
    assert status == 1 and "no documents" in said, said  # an empty text, not a device


@test
def nothing_is_writable_by_others_whatever_the_umask():
    shutil.rmtree("open", ignore_errors=True)
    env = {**os.environ, "DEPTHSCOPE_RUNS": "open/runs"}
    p = subprocess.Popen(["sh", "-c", 'umask 0; exec "$0" train quick "$@" --run wide --quiet train.steps=100000', PROGRAM, *TINY[:5],
                          *TINY[6:]], env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    end = time.monotonic() + 60 * SLOW
    try:
        while not os.path.exists("open/runs/wide/control.sock") and time.monotonic() < end and p.poll() is None:
            time.sleep(0.02)
        mode = stat.S_IMODE(os.stat("open/runs/wide/control.sock").st_mode)
        assert mode & 0o077 == 0, "control.sock: %o" % mode
    finally:
        p.terminate()
        p.wait()
    subprocess.run(["sh", "-c", 'umask 0; "$0" figure training tiny -o open/figures >/dev/null && '
                    '"$0" trace tiny --text a -o open/t.mp && "$0" convert tiny -o open/hf >/dev/null', PROGRAM], check=True,
                   timeout=60 * SLOW)
    found = 0
    for top, dirs, files in os.walk("open"):
        for name in dirs + files:
            path = os.path.join(top, name)
            mode = stat.S_IMODE(os.lstat(path).st_mode)
            found += 1
            assert mode & 0o022 == 0, "%s: %o" % (path, mode)
            assert not os.path.isdir(path) or mode == 0o755, "%s: %o" % (path, mode)
    assert found > 12, found


def tree(top):
    """Names, kinds and contents."""
    found = {}
    for where, dirs, files in os.walk(top):
        for name in dirs + files:
            path = os.path.join(where, name)
            st = os.lstat(path)
            found[path] = (st.st_mode, st.st_size, st.st_mtime_ns) if not stat.S_ISDIR(st.st_mode) else st.st_mode
    return found


@test
def a_link_inside_a_run_is_removed_not_followed():
    """What is removed, copied or pruned below a run's folder stays below it."""
    os.makedirs("away/checkpoint")
    for name in ("away/kept", "away/checkpoint/kept"):
        with open(name, "w") as f:
            f.write("of value")
    before = tree("away")
    shutil.copytree("runs/tiny", "runs/linked")
    os.symlink(os.path.abspath("away"), "runs/linked/out")
    for step in ("step-00000001", "step-00000002.tmp-00000001-1-1-1", ".trash-00000001-1-1-1-step-00000003"):
        os.symlink(os.path.abspath("away/checkpoint"), "runs/linked/checkpoints/" + step)
    run("train", "--resume", "linked", "--allow-change", "train.steps=8", "train.keep=1", "--quiet")
    assert tree("away") == before, "training"
    accepted("runs", "rm", "linked", env={"DEPTHSCOPE_FAIL": "rename:1=EXDEV"})  # copied, then removed
    assert tree("away") == before and not os.path.lexists("runs/linked"), "removal"
    accepted("runs", "restore", "linked")
    assert os.path.islink("runs/linked/out") and tree("away") == before, "and back"
    shutil.rmtree("runs/linked")


@test
def a_run_of_another_user_is_read_and_nothing_else():
    if os.geteuid() != 0:
        raise t.Skip("only root can be another user")
    top = os.getcwd()
    for where in (top, os.path.dirname(top)):
        os.chmod(where, 0o755)
    os.makedirs("theirs", exist_ok=True)
    os.chown("theirs", 65534, 65534)
    def other():
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)
    def call(*words):
        return t.call(*words, seconds=60, preexec_fn=other, env={"HOME": top + "/theirs", "XDG_STATE_HOME": top + "/theirs/state"})
    try:
        call("--version")
    except PermissionError:
        raise t.Skip("another user may not run the program here")
    for mode in (0o755, 0o777):  # writable by all is no invitation
        os.chmod("runs/tiny", mode)
        before = tree("runs")
        for words in (("runs",), ("inspect", "tiny"), ("stream", "tiny"), ("show", "monitor", "tiny"), ("alerts", "tiny"),
                      ("figure", "training", "tiny", "-o", "theirs/out"), ("generate", "tiny", "--prompt", "a", "max_tokens=1", "--quiet")):
            status, out, said = call(*words)
            assert status == 0 and out, (words, said)
        assert tree("runs") == before, "reading changes nothing"
        for words in (("train", "--resume", "tiny", "--quiet"), ("runs", "rm", "tiny"), ("runs", "note", "tiny", "x"))[:3 if mode == 0o755 else 2]:
            status, out, said = call(*words)
            assert status == 1 and said.startswith("depthscope: ") and "ermission denied" in said, (words, status, said)
        assert tree("runs") == before, "nor does what is refused"
    def closed(*words):
        status, out, said = call(*words)
        assert status in (1, 2) and said.startswith("depthscope: ") and "ermission denied" in said, (words, status, said)
    os.makedirs("closed", exist_ok=True)
    os.chmod("closed", 0o700)
    for where, mode in (("runs/tiny", 0o700), ("closed", 0o700)):  # what cannot be looked at is not "not found"
        os.chmod("runs/tiny", 0o755)
        os.chmod(where, mode)
        run = "tiny" if where == "runs/tiny" else "closed/tiny"
        for words in (("inspect", run), ("stream", run), ("show", "monitor", run), ("export", run, "--to", "csv"), ("alerts", run),
                      ("stop", run), ("generate", run, "--prompt", "a"), ("eval", run), ("tokenize", run, "--text", "a"),
                      ("train", "--resume", run, "--quiet"), ("train", "quick", "data.path=%s/x" % where, "--dry-run")):
            closed(*words)
    os.chmod("runs/tiny", 0o755)


def setup():
    with open("text", "w") as f:
        f.write(TEXT)
    accepted("train", "quick", *TINY, "--run", "tiny", "--quiet")
    accepted("convert", "tiny", "-o", "hf")


t.main(setup)
