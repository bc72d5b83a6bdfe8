"""Runs on other machines: the agent, the list of a host, hostile and broken far ends.  A script stands in for ssh (DEPTHSCOPE_SSH):
it runs the far command with this machine's shell.  DEPTHSCOPE names the program."""
import fcntl
import json
import os
import select
import shlex
import shutil
import signal
import struct
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import t  # noqa: E402
from records import Log, crc32c, frame, pack  # noqa: E402
from t import PROGRAM, ROOT, SLOW, refused, run, run_json, test  # noqa: E402

sys.path.insert(0, os.path.join(ROOT, "src", "python"))
from depthscope import _msgpack, _read  # noqa: E402,F401


FALLBACK = os.path.join(ROOT, "src", "io", "host_fallback")


def log(path, n=5, run_id="ab", **head):
    """A finished run of n steps."""
    l = Log(path)
    l.put("head", 0, run="x", run_id=run_id, method="edp", layers=2, steps=n, **head)
    for i in range(1, n + 1):
        l.put("metric", i, loss=5.0 - i / n, tok_s=100.0)
    l.put("end", n, status="done")
    return l


def script(name, text):
    with open(name, "w") as f:
        f.write("#!/bin/sh\n" + text)
    os.chmod(name, 0o755)
    return os.path.abspath(name)


def ssh(before="", command='exec sh -c "$last"'):
    """A stand-in for ssh; the far end finds the program in its PATH."""
    os.makedirs("far", exist_ok=True)
    if not os.path.exists("far/depthscope"):
        os.symlink(PROGRAM, "far/depthscope")
    ssh.n += 1
    return script("ssh%d.sh" % ssh.n, 'for last; do :; done\n%s\nPATH="%s:$PATH"\n%s\n' % (before, os.path.abspath("far"), command))


ssh.n = 0


def home(**more):
    os.makedirs("home", exist_ok=True)
    return dict({"HOME": os.path.abspath("home"), "XDG_STATE_HOME": "", "DEPTHSCOPE_SSH": more.pop("DEPTHSCOPE_SSH", None) or ssh()}, **more)


def mirrors():
    """What is left of hosts after the program has ended."""
    return os.listdir("home/.local/state/depthscope/hosts")


def either(f):
    """A test of `depthscope agent` and of the script that stands in for it."""
    def program():
        f()

    def python():
        Agent.is_script = True
        try:
            f()
        finally:
            Agent.is_script = False
    program.__name__, python.__name__ = f.__name__, f.__name__ + "_in_python_too"
    test(program)
    test(python)


class Agent:
    """Speaks to the far end as the near end does."""
    is_script = False

    def __init__(self, root, *words, acknowledges=True):
        self.acknowledges = acknowledges
        argv = [PROGRAM, "agent", *words]
        if self.is_script:
            with open(FALLBACK + ".py") as f:
                argv = [sys.executable, "-c", "READONLY = %s\n" % ("--readonly" in words) + f.read()]
        self.p = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
        self.buffer, self.got = b"", 0
        self.ask(do="open", protocol=1, root=root)

    def ask(self, **request):
        self.p.stdin.write(json.dumps(request).encode() + b"\n")

    def next(self, seconds=10):
        end = time.monotonic() + seconds * SLOW
        while True:
            if len(self.buffer) >= 18:
                n = struct.unpack(">I", self.buffer[1:5])[0] + 6
                if len(self.buffer) >= n:
                    body, self.buffer = self.buffer[18:n], self.buffer[n:]
                    return _msgpack.unpack(body)
            left = end - time.monotonic()
            assert left > 0, "nothing came"
            if select.select([self.p.stdout], [], [], left)[0]:
                chunk = os.read(self.p.stdout.fileno(), 65536)
                assert chunk, "the agent ended"
                self.buffer += chunk
                self.got += len(chunk)
                if self.acknowledges:
                    self.ask(do="ack", bytes=self.got)

    def until(self, kind, seconds=10, **want):
        end = time.monotonic() + seconds * SLOW
        while True:  # a beat comes every five seconds: the wait ends nevertheless
            x = self.next(max(0, end - time.monotonic()) / SLOW)
            if x["kind"] == kind and all(x.get(k) == v for k, v in want.items()):
                return x

    def close(self):
        self.p.stdin.close()
        assert self.p.wait(10 * SLOW) == 0
        self.p.stdout.close()


def whole(data):
    """The whole records at the start of some bytes, and the rest."""
    out = []
    while len(data) >= 18 and len(data) >= struct.unpack(">I", data[1:5])[0] + 6:
        n = struct.unpack(">I", data[1:5])[0] + 6
        out.append(_msgpack.unpack(data[18:n]))
        data = data[n:]
    return out, data


def whole_bytes(data, n):
    """The bytes from the n-th record on."""
    for _ in range(n):
        data = data[struct.unpack(">I", data[1:5])[0] + 6:]
    return data


def bodies(message):
    """The records in a message of kind log."""
    out, rest = whole(message["frames"])
    assert not rest, "half a record"
    data = message["frames"]
    while data:
        n = struct.unpack(">I", data[1:5])[0] + 6
        assert crc32c(data[10:n]) == struct.unpack(">I", data[6:10])[0], "a damaged record"
        data = data[n:]
    return out


@test
def a_host_lists_what_its_own_machine_lists():
    for i, name in enumerate(("a", "b", "deep/er")):
        log("runs/%s/log.mp" % name, 5 + i, run_id="id%d" % i)
    own, far = run_json("runs", "runs"), run_json("runs", "box:" + os.path.abspath("runs"), **home())
    def plain(rows):
        return sorted(({k: v for k, v in r.items() if k not in ("path", "host", "age", "modified")} for r in rows), key=lambda r: r["name"])
    assert plain(own) == plain(far) and len(far) == 3, (own, far)
    assert all(r["host"] == "box" and r["path"] == "box:" + r["name"] for r in far), far
    at = {r["name"]: r["modified"] for r in own}
    assert all(abs(at[r["name"]] - r["modified"]) < 2 for r in far), [(at[r["name"]], r["modified"]) for r in far]
    assert mirrors() == [], mirrors()


@test
def paths_with_blanks_and_quotes_arrive_as_they_are():
    name = "it's \"a\" $(touch owned) `touch owned`; x"
    log(name + "/a/log.mp")
    for target in ("box:%s" % os.path.abspath(name), "ssh://user@box:22" + os.path.abspath(name)):
        assert [r["name"] for r in run_json("runs", target, **home())] == ["a"]
    log("home/~x/a/log.mp")
    assert run_json("runs", "box:~/~x", **home())[0]["name"] == "a"
    assert not os.path.exists("owned")


@test
def an_existing_path_wins_and_options_are_no_hosts():
    log("box:runs/a/log.mp")
    assert run_json("runs", "box:runs", DEPTHSCOPE_SSH="false")[0]["name"] == "a"
    for bad in ("ssh://-oProxyCommand=x/runs", "ssh://box:port/x", "ssh:///x", "a b:x"):
        refused("not a host, expected box:runs or ssh://user@box/path", "runs", bad, **home())


@test
def python_stands_in_where_the_program_is_missing():
    bare = script("bare.sh", 'for last; do :; done\necho Welcome\nPATH="%s" exec /bin/sh -c "$last"\n' % os.path.abspath("only"))
    os.makedirs("only")
    refused("neither depthscope nor python3 nor a shell is found there", "runs", "box:x", code=1, **home(DEPTHSCOPE_SSH=bare))
    os.symlink(sys.executable, "only/python3")
    for i, name in enumerate(("a", "deep/er")):
        l = log("runs/%s/log.mp" % name, 5 + i, run_id="id%d" % i, seed=3)
        l.put("eval", 5, task="final", routing="causal", loss=2.5, flops_ratio=0.5, time_ratio=0.75)
        l.put("metric", 6, loss=1.0, val_loss=9.0, flops_ratio=0.9)
    l = log("runs/longer/log.mp", 5, run_id="id", seed=3)
    l.put("eval", 5, task="final", routing="causal", loss=2.5, flops_ratio=0.5, time_ratio=0.75)
    l.put("head", 5, run_id="id", method="edp", steps=9, seed=3, resume=1)
    l.put("metric", 6, loss=1.0, val_loss=2.25)
    l = Log("runs/bad/log.mp")
    for rule, over in (("gpu", False), ("disk", False), ("gpu", True)):
        l.put("event", 6, name="alert", level="warn", rule=rule, over=over, text="x")
    l.put("metric", 7, loss=float("nan"))
    own, far = ({r["name"]: r for r in run_json("runs", "box:" + os.path.abspath("runs"), **home(DEPTHSCOPE_SSH=way))} for way in (None, bare))
    for r in list(own.values()) + list(far.values()):
        r.pop("age"), r.pop("spark")
    assert own == far and own["a"]["val_loss"] == 2.5 and own["bad"]["alerts"] == ["nan", "disk"] and own["a"]["alerts"] == [], (own, far)
    assert own["longer"]["val_loss"] == 2.25, own["longer"]


def odd_runs():
    """What lists meet besides finished runs, in the folder runs."""
    log("runs/noted/log.mp", 30, run_id="id")
    put_text("runs/noted/meta.json", '{"preset": "quick tiny"}')
    put_text("runs/noted/notes.json", '{"tags": ["paper", "two words", 5, "paper", "\u00fc"], "note": "a \\"note\\""}')
    os.makedirs("runs/waiting")
    put_text("runs/waiting/config.yaml", "seed: 1\nmodel:\n  method: dtf\n  layers: 2\n")
    log("runs/a/b/c/d/log.mp", 3, run_id="deep")
    log("runs/noted/sub/log.mp", 3)  # part of a run
    log("runs/.hidden/log.mp", 3)
    log("elsewhere/log.mp", 3, run_id="linked")
    os.symlink(os.path.abspath("elsewhere"), "runs/link")
    os.symlink("noted", "runs/latest")
    os.symlink("..", "runs/up")
    l = log("runs/resumed/log.mp", 4, run_id="first", parent="p", seed=3)
    l.put("head", 4, steps=9)  # a resume that says only what is new
    l.put("metric", 5, loss=1.5)
    l.put("system", 7, disk_free=5e9, gpus=[])
    Log("runs/odd/log.mp").put("eval", 3, task=["final"], routing="causal", loss=2.0)
    l = Log("runs/interrupted/log.mp")
    l.put("head", 0, run_id="x", method="mod", steps=5)
    l.put("end", 2, status="interrupted")
    Log("runs/trace/log.mp").put("probe", 0, layers=2, text=["x"], run=[1, 0])
    l = log("runs/damaged/log.mp", 3)
    with open("runs/damaged/log.mp", "ab") as f:
        f.write(b"\xc9\0\0\1\0\x44" + bytes(100))
    l.put("head", 3, run_id="again", method="edp", steps=9)
    l.put("metric", 7, loss=1.25)
    os.makedirs("runs/nothing")
    put_text("runs/nothing/log.mp", "")


def put_text(path, text):
    with open(path, "w") as f:
        f.write(text)


@test
def the_script_lists_what_its_own_machine_lists():
    odd_runs()
    os.makedirs("python")
    os.symlink(sys.executable, "python/python3")
    way = script("python.sh", 'for last; do :; done\nPATH="%s" exec /bin/sh -c "$last"\n' % os.path.abspath("python"))
    own, far = ({r["name"]: r for r in run_json("runs", *target, **e)} for target, e in (
        (("runs",), {}), (("box:" + os.path.abspath("runs"),), home(DEPTHSCOPE_SSH=way))))
    for r in list(own.values()) + list(far.values()):
        for key in ("age", "path", "host", "modified"):
            r.pop(key, None)
        r["spark"] = ["%.5g" % x for x in r["spark"]]
    assert sorted(own) == sorted(far), (sorted(own), sorted(far))
    for name, r in own.items():
        assert r == far[name], {k: (r[k], far[name].get(k)) for k in r if r[k] != far[name].get(k)}
    assert own["noted"]["tags"] == ["paper", "\u00fc"] and own["interrupted"]["status"] == "stopped" and own["resumed"]["parent"] == "p", own


@either
def a_run_that_was_killed_becomes_silent_without_a_record_more():
    l = Log("runs/killed/log.mp")
    l.put("head", 0, run_id="ab", method="edp", steps=99, time=time.time() - 11)
    l.put("metric", 1, loss=2.0, time=time.time() - 11)
    a = Agent(os.path.abspath("runs"))
    a.ask(do="list")
    assert a.until("row", name="killed")["state"] == "live"
    assert a.until("row", name="killed")["state"] == "silent"
    a.close()


@test
def a_shell_stands_in_where_python_is_missing_too():
    ways = {"bare": "stat tail head wc cat date".split()}
    if shutil.which("busybox"):
        ways["busybox"] = None
    for way, tools in ways.items():
        os.makedirs(way)
        for tool in ["sh"] + (tools or []):
            os.symlink(shutil.which(tool) if tools else shutil.which("busybox"), "%s/%s" % (way, tool))
        bare = script(way + ".sh", 'for last; do :; done\necho Welcome\nPATH="%s" exec %s/sh -c "$last"\n' % ((os.path.abspath(way),) * 2))
        log("shell runs/it's/log.mp", 7, seed=3)
        log("shell runs/deep/er/log.mp", 100000 if way == "bare" else 10)
        env = home(DEPTHSCOPE_SSH=bare)
        rows = {r["name"]: r for r in run_json("runs", "box:" + os.path.abspath("shell runs"), **env)}
        assert sorted(rows) == ["deep/er", "it's"] and rows["it's"]["host"] == "box", rows
        own = {r["name"]: r for r in run_json("runs", "shell runs")}
        for name, key in [(n, k) for n in own for k in ("status", "method", "step", "steps", "seed", "loss", "tok_s", "run_id")]:
            assert rows[name][key] == own[name][key], (name, key, rows[name][key], own[name][key])
        assert own["deep/er"]["status"] == "done", own
        assert [r["name"] for r in run_json("runs", "box:%s/it's" % os.path.abspath("shell runs"), **env)] == ["it's"]
        refused("no such folder", "runs", "box:/no/where", code=1, **env)


@test
def a_shell_sees_which_runs_are_locked():
    os.makedirs("bare")
    for tool in "sh stat tail head wc cat date".split():
        os.symlink(shutil.which(tool), "bare/" + tool)
    way = script("bare.sh", 'for last; do :; done\nPATH="%s" exec /bin/sh -c "$last"\n' % os.path.abspath("bare"))
    held = []
    for name in ("held", "paused", "killed"):
        l = Log("runs/%s/log.mp" % name)
        l.put("head", 0, run_id=name, method="edp", steps=99, time=time.time() - 99)
        l.put("metric", 1, loss=2.0, time=time.time() - 99)
        if name == "paused":
            l.put("event", 1, name="pause", time=time.time() - 99)
        if name != "killed":
            fcntl.flock(l.file, fcntl.LOCK_EX)
            held.append(l)
        os.utime("runs/%s/log.mp" % name, (time.time() - 99,) * 2)
    rows = {r["name"]: r["status"] for r in run_json("runs", "box:" + os.path.abspath("runs"), **home(DEPTHSCOPE_SSH=way))}
    assert rows == {"held": "live", "paused": "paused", "killed": "silent"}, rows
    held.clear()


@test
def the_script_in_the_program_is_the_one_beside_it():
    subprocess.run(["sh", FALLBACK + ".sh", "made.c"], check=True)
    with open("made.c") as a, open(FALLBACK + ".c") as b:
        assert a.read() == b.read(), "run src/io/host_fallback.sh"


@test
def a_file_of_hosts_is_checked():
    for text, part in (("# none\n box:runs \n what ever\n", '"what ever": expected HOST:ROOT'), ("box:x\n" * 33, "more than 32 hosts")):
        with open("hosts.txt", "w") as f:
            f.write(text)
        refused(part, "--hosts", "hosts.txt", code=1)
    with open("hosts.txt", "w") as f:
        f.write("box:runs # comment\r\n\n")
    refused("box:runs: hosts are unsupported with --script", "--hosts", "hosts.txt", "--script", "/dev/null")
    refused("no.txt", "--hosts", "no.txt", code=1)


@test
def what_a_login_shell_prints_is_stepped_over():
    log("runs/a/log.mp")
    noise = "printf '\\311\\000\\000\\000\\377D noise \\033[2J'; head -c 3000 /dev/urandom; echo Welcome"
    rows = run_json("runs", "box:" + os.path.abspath("runs"), **home(DEPTHSCOPE_SSH=ssh(noise)))
    assert [r["name"] for r in rows] == ["a"]


@test
def a_host_that_cannot_be_reached_is_one_line():
    e = home()
    for text, how in (("Host key verification failed", ssh("echo 'Host key verification failed.' >&2; exit 255")),
                      ("No such file", "/no/ssh"), ("the agent ended", ssh("exit 0")),
                      ("neither depthscope nor python3 nor a shell is found", ssh(command="PATH=/nowhere /bin/sh -c 'exec depthscope agent'")),
                      ("only other output", ssh("while :; do echo noise noise noise noise; done")),
                      ("no such folder", hostile([{"kind": "agent", "protocol": 1, "time": 1.0}, {"kind": "error", "text": "no such folder"}, {"kind": "listed"}])),
                      ("protocol 9", hostile([{"kind": "agent", "protocol": 9, "time": 1.0}]))):
        refused(text, "runs", "box:x", code=1, **dict(e, DEPTHSCOPE_SSH=how))
    refused("no such folder", "runs", "box:/no/such/folder", code=1, **home())
    assert mirrors() == []


def hostile(messages):
    """An ssh whose far end says these records and stays."""
    ssh.n += 1
    name = "hostile%d" % ssh.n
    with open(name + ".mp", "wb") as f:
        for i, m in enumerate(messages):
            f.write(m if isinstance(m, bytes) else frame(i, pack(dict({"step": 0}, **m))))
    return script(name + ".sh", "cat %s; exec sleep 1000" % shlex.quote(os.path.abspath(name + ".mp")))


@test
def ages_are_those_of_one_clock():
    there = time.time() - 3600  # an hour behind
    row = {"kind": "row", "name": "a", "state": "live", "live": True, "numbers": [float("nan")] * 11, "time": there - 30, "modified": there - 30}
    say = [{"kind": "agent", "protocol": 1, "time": there}, row, {"kind": "listed", "time": there}]
    age = run_json("runs", "box:runs", **home(DEPTHSCOPE_SSH=hostile(say)))[0]["age"]
    assert 29 < age < 40 * SLOW, age


@test
def a_hostile_agent_fills_rows_and_nothing_else():
    evil = "../../../\x1b]0;owned\x07\x1b[2Jx"
    row = {"kind": "row", "name": evil, "state": "live", "live": True, "method": "m" * 5000, "note": evil, "tags": "t " * 3000,
           "numbers": [1e308, float("nan"), "x", [], 3] * 30, "spark": b"abc", "time": 1e300, "modified": float("inf")}
    rows = [dict(row, name="%s%d" % (evil, i)) for i in range(50)] + [{"kind": "row"}, {"kind": "row", "name": 5}, {"kind": "gone", "name": evil}]
    say = [{"kind": "agent", "protocol": 1, "version": evil * 90, "time": 1e9}] + rows + [
        {"kind": "log", "run": evil + "0", "frames": b"junk", "at": -5}, {"kind": "answer", "id": 1, "text": evil},
        {"kind": "listed"}, {"kind": "unheard of"}, b"\xc9\xff\xff\xff\xffD" * 3]
    out = run("runs", "box:runs", **home(DEPTHSCOPE_SSH=hostile(say)))
    assert "\x1b" not in out and "\x07" not in out and "owned" in out, out[:300]
    assert len(run_json("runs", "box:runs", **home(DEPTHSCOPE_SSH=hostile(say)))) == 50
    assert mirrors() == [] and sorted(os.listdir("home")) == [".local"], os.listdir("home")


@either
def a_followed_log_arrives_once_and_goes_on_where_it_was():
    l = log("runs/a/log.mp", 300)
    a = Agent(os.path.abspath("runs"))
    assert a.until("agent")["protocol"] == 1
    a.ask(do="list")
    a.until("listed")
    a.ask(do="follow", run="a")
    x = a.until("log")
    got, at, id = bodies(x), x["at"], x["id"]
    assert x["reset"] and not x["live"], x
    while len(got) < 302:
        x = a.until("log")
        assert not x["reset"] and x["at"] > at
        got, at = got + bodies(x), x["at"]
    assert [g["step"] for g in got] == [0] + list(range(1, 301)) + [300], "every record once, in order"
    assert at == os.path.getsize("runs/a/log.mp")
    a.close()
    l.put("metric", 301, loss=1.0)
    b = Agent(os.path.abspath("runs"))
    b.ask(do="list")
    b.until("listed")
    b.ask(**{"do": "follow", "run": "a", "from": at, "id": id})
    x = b.until("log")
    assert not x["reset"] and [g["step"] for g in bodies(x)] == [301], "only what is new"
    log("new/log.mp", 2, run_id="cd")
    os.rename("new/log.mp", "runs/a/log.mp")
    x = b.until("log", reset=True)
    assert [g["step"] for g in bodies(x)] == [0, 1, 2, 2], "another log starts over"
    b.close()


@either
def damaged_records_are_left_out_of_a_followed_log():
    """One of the usual size, and one larger than what is read at a time."""
    l = log("damaged/a/log.mp", 100)
    large = os.path.getsize("damaged/a/log.mp")
    l.put("note", 300, text="x" * 40000)
    for step in range(301, 320):
        l.put("metric", step, loss=1.0)
    size = os.path.getsize("damaged/a/log.mp")
    with open("damaged/a/log.mp", "r+b") as f:
        records = f.read(large)
        at = len(records) - len(whole_bytes(records, 50))
        for place in (at + 30, large + 20000):
            f.seek(place)
            f.write(b"\x00\xff")
    a = Agent(os.path.abspath("damaged"))
    a.ask(do="list")
    a.until("listed")
    a.ask(do="follow", run="a")
    got, x = [], {"at": 0}
    while x["at"] < size:
        x = a.until("log")
        got += bodies(x)  # checks each
    assert [g["step"] for g in got] == [0] + [s for s in range(1, 101) if s != 50] + [100] + list(range(301, 320)), got
    a.close()


@test
def a_long_log_comes_as_its_extremes_and_then_whole():
    l, n = Log("runs/a/log.mp"), 4000
    l.put("head", 0, run="x", run_id="ab", method="edp", layers=2, steps=n)
    logged = []
    for i in range(1, n + 1):
        loss = 99.0 if i == 1777 else float("nan") if i == 5 else 5.0 + (i * 7919 % 1000) / 1000 - i / n
        logged.append(loss)
        l.put("metric", i, loss=loss, tokens=8 * i, **({"val_loss": 4.0 - i / n} if i % 500 == 0 else {}))
    l.put("system", n - 1, cpu=0.25, gpus=[])
    l.put("system", n, cpu=0.5, gpus=[{"name": "a GPU"}])
    for i in (n - 1, n):
        l.put("ranks", i, steps=5, host=["a", "b"], step_ms=[1.0 * i, 2.0], wait_ms=[0.5, 0.0], bytes=[64.0, 64.0])
    l.put("event", n, name="note", text="kept", level=1)
    a = Agent(os.path.abspath("runs"))
    a.ask(do="list")
    a.until("listed")
    a.ask(do="follow", run="a")
    messages = [a.until("log")]
    while not messages[-1]["at"]:
        messages.append(a.until("log"))
    got = [b for m in messages for b in bodies(m)]
    assert messages[0]["reset"] and not any(m["reset"] for m in messages[1:]) and messages[-1]["at"] == os.path.getsize("runs/a/log.mp")
    points = {b["step"]: b for b in got if b["kind"] == "metric"}
    loss = {s: b["loss"] for s, b in points.items() if "loss" in b}
    assert all(v == logged[s - 1] and points[s]["tokens"] == 8 * s for s, v in loss.items()), "only what was logged"
    real = [v for v in logged if v == v]
    assert loss[1777] == 99.0 and min(loss.values()) == min(real) and 64 <= len(loss) <= 130 and loss[n] == logged[-1], len(loss)
    for from_ in range(0, n, 250):  # and of every part
        part = logged[from_:from_ + 250]
        assert min(v for v in part if v == v) >= min(v for s, v in loss.items() if from_ - 64 < s <= from_ + 314)
    val = {s: b["val_loss"] for s, b in points.items() if "val_loss" in b}
    assert val == {i: 4.0 - i / n for i in range(500, n + 1, 500)}, val
    events = [b["name"] for b in got if b["kind"] == "event"]
    assert got[0]["kind"] == "head" and events == ["note", "host_summary"], (got[0], events)
    assert [(b["step"], b["cpu"]) for b in got if b["kind"] == "system"] == [(n, 0.5)], "the newest"
    assert [b["step_ms"][0] for b in got if b["kind"] == "ranks"] == [n], "the newest"
    l.put("metric", n + 1, loss=1.0, tokens=5)
    assert [b["step"] for b in bodies(a.until("log"))] == [n + 1]
    os.kill(a.p.pid, signal.SIGSTOP)  # it falls behind a fast run
    for i in range(n + 2, n + 2002):
        l.put("metric", i, loss=-7.0 if i == n + 999 else 1.0, tokens=5)
    os.kill(a.p.pid, signal.SIGCONT)
    x = a.until("log")
    got = bodies(x)
    assert not x["reset"] and x["at"] == os.path.getsize("runs/a/log.mp") and [b["step"] for b in got if b.get("loss") == -7.0] == [n + 999], x["at"]
    assert len(got) < 300 and n + 2 <= got[0]["step"], (len(got), got[0])
    l.put("metric", n + 2002, loss=1.0)
    assert [b["step"] for b in bodies(a.until("log"))] == [n + 2002]
    a.close()


@either
def a_long_log_comes_with_the_newest_of_what_is_no_metric():
    l, n = Log("runs/a/log.mp"), 3000
    l.put("head", 0, run="x", run_id="ab", method="edp", layers=2, steps=n)
    for i in range(1, n + 1):
        l.put("metric", i, loss=2.0, note="." * 40)
        if i in (1000, 2000):
            l.put("layer", i, gate_ratio=[1.0, 1.0 / i])
            l.put("system", i, cpu=0.25, gpus=[])
            for name in ("expert_load", "attention"):
                l.put("matrix", i, name=name, rows=1, cols=2, value=[0.5, 1.0 / i])
            l.put("sample", i, name="final", n=2, column={"nll": [1.0, 1.0 * i]})
            l.put("head", i, run="x", run_id="ab", method="edp", layers=2, steps=2 * n, resume=i)
    a = Agent(os.path.abspath("runs"))
    a.ask(do="list")
    assert a.until("row")["run_id"] == "ab"
    a.until("listed")
    a.ask(do="follow", run="a")
    got = []
    while not any(b["step"] == n for b in got):
        got += bodies(a.until("log"))
    heads = [(b["step"], b["steps"]) for b in got if b["kind"] == "head"]
    assert heads == [(0, n), (2000, 2 * n)] and got[0]["kind"] == "head", heads
    assert [b["step"] for b in got if b["kind"] in ("metric", "head")] == sorted(b["step"] for b in got if b["kind"] in ("metric", "head"))
    kept = sorted((b["kind"], b.get("name", ""), b["step"]) for b in got if b["kind"] in ("layer", "system", "matrix", "sample"))
    assert kept == [("layer", "", 2000), ("matrix", "attention", 2000), ("matrix", "expert_load", 2000), ("sample", "final", 2000), ("system", "", 2000)], kept
    a.close()


@either
def a_run_that_is_made_anew_while_the_line_is_lost_is_sent_from_its_beginning():
    log("runs/a/log.mp", 3, run_id="old")
    a = Agent(os.path.abspath("runs"))
    a.ask(do="list")
    a.until("listed")
    a.ask(do="follow", run="a")
    x = a.until("log")
    a.close()
    with open("runs/a/log.mp", "r+b") as f:  # the file system gives the number of a deleted file to the next one
        f.truncate(0)
    log("runs/a/log.mp", 9, run_id="new")
    a = Agent(os.path.abspath("runs"))
    a.ask(do="list")
    a.until("listed")
    a.ask(**{"do": "follow", "run": "a", "from": x["at"], "id": x["id"]})
    x = a.until("log")
    assert x["reset"] and bodies(x)[0]["run_id"] == "new", x
    a.close()


@test
def a_long_log_of_many_metrics_comes_with_all_of_them():
    l, names = Log("many/p/log.mp"), ["task_%d" % i for i in range(300)]
    l.put("head", 0, run="x", run_id="ab", method="edp", layers=2, steps=99)
    for i in range(1, 100):
        l.put("metric", i, **{name: 1.0 * i * k for k, name in enumerate(names)})
    a = Agent(os.path.abspath("many"))
    a.ask(do="list")
    a.until("listed")
    a.ask(do="follow", run="p")
    points = [b for b in bodies(whole_log(a)) if b["kind"] == "metric"]
    for k, name in enumerate(names):
        assert [b[name] for b in points if name in b][-1] == 99.0 * k, name
    a.close()


def whole_log(a):
    """The summary of all of a log; before it one of a part comes where reading takes long."""
    x = a.until("log")
    return x if x.get("summary") else whole_log(a)


@test
def a_range_of_steps_comes_in_detail():
    l = log("long/p/log.mp", 20000)
    a = Agent(os.path.abspath("long"))
    a.ask(do="list")
    a.until("listed")
    a.ask(do="follow", run="p")
    first = whole_log(a)
    near = lambda x: [b["step"] for b in bodies(x) if b["kind"] == "metric" and 15000 <= b["step"] <= 15060]
    assert first["summary"] and first["reset"] and len(near(first)) < 3, near(first)
    a.ask(do="detail", run="p", **{"from": 15000, "to": 15060})
    second = whole_log(a)
    assert second["summary"] and second["reset"] and near(second) == list(range(15000, 15061)), near(second)
    steps = [b["step"] for b in bodies(second) if b["kind"] == "metric"]
    assert steps == sorted(steps) and steps[0] == 1 and steps[-1] == 20000 and len(steps) < 400, len(steps)
    l.put("metric", 20001, loss=1.0)
    x = a.until("log")
    assert [b["step"] for b in bodies(x)] == [20001] and not x["reset"]
    a.ask(do="detail", run="p", **{"from": 2, "to": 1})
    a.ask(do="detail", run="q", **{"from": 2, "to": 3})
    assert near(whole_log(a)) == near(first)
    a.close()


def put_probe(l, step, tokens, index=0):
    l.put("probe", step, layers=2, text=["x" * 20] * tokens, run=[1] * tokens * 2, index=index)


@test
def probes_come_while_they_are_wanted():
    l = log("probed/p/log.mp", 10)
    for i in range(40):
        put_probe(l, i, 400, i % 2)  # 10 kB each
        l.put("metric", 20 + i, loss=1.0)
    a = Agent(os.path.abspath("probed"))
    a.ask(do="list")
    a.until("listed")
    a.ask(do="follow", run="p")
    got = bodies(a.until("log"))
    assert any(x["step"] == 59 for x in got) and all(x["kind"] != "probe" for x in got), got

    def probes(until, **ask):
        out, at = [], 0
        if ask:
            a.ask(do="probes", run="p", **ask)
        while until not in out:
            x = a.until("log")
            out += [(b["step"], b["index"]) for b in bodies(x) if b["kind"] == "probe"]
            at = x.get("probes", at)
        return out, at
    some, at = probes((0, 0), **{"from": 0})
    rest, end = probes((39, 1), **{"from": at})  # as after a lost line
    assert (0, 0) not in rest, rest
    whole, end = probes((39, 1), **{"from": 0})
    assert sorted(whole) == whole and {(0, 0), (1, 1), (38, 0)} < set(whole) and len(whole) <= 12, whole
    put_probe(l, 90, 10)
    assert probes((90, 0))[0] == [(90, 0)]
    a.ask(do="probes", run="p", **{"from": -1})
    put_probe(l, 91, 10)
    l.put("metric", 91, loss=1.0)
    assert [x["kind"] for x in bodies(a.until("log"))] == ["metric"]
    a.close()


def much(path, mib):
    """A log that takes a while to read; returns how many bytes it has."""
    l = log(path, 8000)
    with open(path, "rb") as f:
        some = f.read()
    for _ in range((mib << 20) // len(some)):
        l.file.write(some)
    return os.path.getsize(path)


@test
def requests_are_answered_while_what_was_sent_before_a_lost_line_is_read_again():
    end = much("again/r/log.mp", 64)
    a = Agent(os.path.abspath("again"))
    a.ask(do="list")
    a.until("listed")
    a.ask(do="follow", run="r")
    id = a.until("log")["id"]
    a.close()
    Log("again/r/log.mp").put("metric", 9000, loss=1.0)
    a = Agent(os.path.abspath("again"))
    a.ask(do="list")
    a.until("listed")
    a.ask(**{"do": "follow", "run": "r", "from": end, "id": id})
    time.sleep(0.02)  # it reads
    a.ask(do="echo", id=5)
    x = a.next(60)
    assert x["kind"] == "answer" and x["id"] == 5, x
    x = a.until("log", 60)
    assert not x["reset"] and [b["step"] for b in bodies(x)] == [9000], "only what is new"
    a.close()


@test
def requests_are_answered_while_the_probes_of_a_long_log_are_chosen():
    much("chosen/r/log.mp", 64)
    l = Log("chosen/r/log.mp")
    put_probe(l, 1, 10)
    a = Agent(os.path.abspath("chosen"))
    a.ask(do="list")
    a.until("listed")
    a.ask(do="follow", run="r")
    while not a.until("log", 60)["at"]:
        pass
    a.ask(do="probes", run="r", **{"from": 0})
    time.sleep(0.02)  # they are being chosen
    a.ask(do="echo", id=5)
    x = a.next(60)
    assert x["kind"] == "answer" and x["id"] == 5, x
    put_probe(l, 2, 10)
    l.put("metric", 9000, loss=1.0)
    came = []
    while {1, 2, 9000} - set(came):
        x = a.until("log", 60)
        came += [b["step"] for b in bodies(x)]
        assert x["probes"] == 0 or 1 in came, "none is passed over"
    assert came.index(1) < came.index(2), came
    a.close()


@test
def many_live_probes_are_thinned_rather_than_crowd_the_line():
    l = log("crowd/p/log.mp", 3)
    a = Agent(os.path.abspath("crowd"))
    a.ask(do="list")
    a.until("listed")
    a.ask(do="follow", run="p")
    a.until("log")
    a.ask(do="probes", run="p", **{"from": 0})
    a.ask(do="drop", run="other")  # taken by now
    time.sleep(0.5)
    for i in range(100):
        put_probe(l, 10 + i, 400)  # 10 kB each
    start, before, steps = time.monotonic(), a.got, []
    while time.monotonic() < start + 3 * SLOW:
        try:
            steps += [b["step"] for b in bodies(a.until("log", 0.5)) if b["kind"] == "probe"]
        except AssertionError:
            pass
    most = (128 << 10) + 10000 + (5 << 10) * (time.monotonic() - start)
    assert 5 <= len(steps) == len(set(steps)) and steps == sorted(steps) and a.got - before < most, (steps, a.got - before, most)
    l.put("metric", 500, loss=1.0)
    while not any(b["step"] == 500 for b in bodies(a.until("log", 5))):
        pass
    a.close()


@either
def a_run_that_is_deleted_is_gone_and_the_others_stay():
    log("runs/a/log.mp")
    l = log("runs/b/log.mp")
    a = Agent(os.path.abspath("runs"))
    a.ask(do="list")
    a.until("listed")
    for run in "ab":
        a.ask(do="follow", run=run)
        a.until("log", run=run)
    shutil.rmtree("runs/a")
    a.until("gone", name="a")
    l.put("metric", 6, loss=1.0)
    assert [b["step"] for b in bodies(a.until("log", run="b"))] == [6]
    a.ask(do="follow", run="a")
    assert a.until("log", run="a")["error"] == "no such run"
    a.close()


@either
def what_is_not_acknowledged_holds_the_rest_back():
    log("runs/a/log.mp", 800, run_id="a" * 39)
    a = Agent(os.path.abspath("runs"), acknowledges=False)
    a.ask(do="list")
    a.until("listed")
    a.ask(do="follow", run="a")
    a.until("log")
    time.sleep(1)
    held = a.got + len(os.read(a.p.stdout.fileno(), 1 << 20))
    assert held < 60000 < os.path.getsize("runs/a/log.mp"), (held, os.path.getsize("runs/a/log.mp"))
    a.p.kill()
    a.p.wait()


@either
def a_target_may_be_a_run_rather_than_a_folder():
    log("named/it's one/log.mp")
    log("named/other/log.mp")
    for target in ("named/it's one", "named/it's one/"):
        a = Agent(os.path.abspath(target) + target[len(target.rstrip("/")):])
        assert a.until("agent")["run"] == "it's one"
        a.ask(do="list")
        assert a.until("row")["name"] == "it's one"
        a.until("listed")
        a.ask(do="follow", run="it's one")
        assert len(bodies(a.until("log", run="it's one"))) == 7
        a.ask(do="follow", run="other")
        assert "no such run" in a.until("log", run="other")["error"]
        a.close()
    a = Agent(os.path.abspath("named"))
    assert "run" not in a.until("agent")
    a.close()


@either
def commands_reach_a_run_by_its_name_only():
    p = subprocess.Popen([PROGRAM, "train", *t.TINY, "train.steps=100000", "--run", "live", "--quiet"], stdin=subprocess.DEVNULL)
    try:
        while not os.path.exists("runs/live/control.sock"):
            assert p.poll() is None
            time.sleep(0.05)
        a = Agent(os.path.abspath("runs"))
        a.ask(do="list")
        a.until("row", name="live", live=True)
        a.ask(do="command", id=1, run="live", line="pause")
        x = a.until("answer", id=1)
        assert x["ok"] and x["text"].startswith("ok"), x
        for i, bad in enumerate(("../runs/live", os.path.abspath("runs/live"), "nobody", "")):
            a.ask(do="command", id=10 + i, run=bad, line="stop")
            x = a.until("answer", id=10 + i)
            assert not x["ok"] and x["text"] == "no such run", x
        a.close()
        b = Agent(os.path.abspath("runs"), "--readonly")
        assert b.until("agent")["readonly"]
        b.ask(do="list")
        b.until("listed")
        b.ask(do="command", id=2, run="live", line="stop")
        x = b.until("answer", id=2)
        assert not x["ok"] and "read-only" in x["text"], x
        b.close()
        assert p.poll() is None
    finally:
        p.kill()
        p.wait()


def records_of(agent, id, until):
    """What the model `id` says, up to a record of kind `until`."""
    data, out = b"", []
    while not out or out[-1]["kind"] != until:
        x = agent.until("said", 60, id=id)
        assert "end" not in x, x
        more, data = whole(data + x["bytes"])
        out += more
    return out


@test
def models_stay_where_they_are_and_answer_by_their_runs_name():
    run("train", *t.TINY, "--run", "m", "--quiet")
    a = Agent(os.path.abspath("runs"))
    a.ask(do="list")
    a.until("listed")
    a.ask(do="model", id=1, run="m")
    a.ask(do="say", id=1, line='{"do":"trace","text":"one two"}')
    got = records_of(a, 1, "done")
    assert "probe" in [x["kind"] for x in got], [x["kind"] for x in got]
    a.ask(do="say", id=1, line='{"do":"save","file":"owned.mp"}')
    assert "cannot be written from elsewhere" in records_of(a, 1, "error")[-1]["text"], "a save is passed on"
    a.ask(do="say", id=1, line='{"do":"compare","other":"%s","text":"x"}' % os.path.abspath("runs/m"))
    assert "no such run" in records_of(a, 1, "error")[-1]["text"], "a path is passed on"
    for i, bad in enumerate(("../runs/m", os.path.abspath("runs/m"), "nobody")):
        a.ask(do="model", id=10 + i, run=bad)
        assert a.until("said", id=10 + i)["end"] == "no such run"
    a.ask(do="hang", id=1)
    a.ask(do="model", id=1, run="m")
    a.ask(do="say", id=1, line='{"do":"info"}')
    assert records_of(a, 1, "done")[0]["kind"] == "head"
    a.close()
    assert not os.path.exists("owned.mp") and not os.path.exists("runs/m/owned.mp")


@either
def an_agent_survives_any_request():
    a = Agent(os.path.abspath("."))
    for line in (b"", b"{", b"[]", b"5", b'{"do":5}', b'{"do":"follow"}', b'{"do":"follow","run":[],"from":-1,"id":1e300}',
                 b'{"do":"drop","run":"x"}', b'{"do":"command"}', b'{"do":"ack","bytes":-1}', b'{"do":"later"}', b"\xff\xfe", b"x" * 60000, b'{"do":"say","id":3,"line":"' + b"x" * 70000 + b'"}'):
        a.p.stdin.write(line + b"\n")
    a.ask(do="command", id=9, run="x", line="y")
    assert a.until("answer", id=9)["text"] == "no such run"
    a.close()


if __name__ == "__main__":
    t.main(fresh=True)
