"""A run as a process: kills, signals, the control socket, full and failing disks, a second writer, output."""
from kit_run import *


# ---- tests ---------------------------------------------------------------------------------------------------------


def kill_soon(p, run):
    """Whether P was killed: a moment after up to two more checkpoints were begun, so that no machine is too fast for it."""
    def begun():
        return len(os.listdir(path(run, "checkpoints"))) if os.path.isdir(path(run, "checkpoints")) else 0
    goal = begun() + random.randint(0, 2)
    while p.poll() is None and begun() < goal:
        time.sleep(0.001)
    time.sleep(random.uniform(0, 0.03) * SLOW)
    if p.poll() is None:
        p.kill()
    return p.wait() == -9


def kill_at_random_moments():
    """kill -9 at 20 random moments, resume until done: the same weights as never killed."""
    keys = TINY + ["train.steps=250", "train.checkpoint_every=7", "train.keep=1000"]
    check(train(*keys, "--run", "whole")[0] == 0, "the whole run")
    random.seed(11)
    for run in ("killed-a", "killed-b")[:1 if SANITIZED else 2]:
        kills, args = 0, keys + ["--run", run]
        for attempt in range(60):
            p = start(*args, "--quiet")
            if kills < 10:
                kills += kill_soon(p, run)
            status, _, err = finish(p)
            if status == 0:
                break
            check(status == -9, "killed, nothing else", "%d %s" % (status, err))
            args = ["--resume", run] if os.path.exists(path(run, "config.yaml")) else args
        check(status == 0 and kills >= 3, "it ends in the end", "after %d kills" % kills)
        if os.environ.get("T_TIMES"):
            print("%d kills" % kills)
        check(weights(run, 250) == weights("whole", 250), "weights of %s" % run)
        last = check_stream(run)[-1]
        check(last["kind"] == "end" and last["status"] == "done", "the end")
        check(leftovers(run) == [], "what the killed left is cleaned", str(leftovers(run)))
    check(len([x for x in check_stream("whole") if x["kind"] == "head"]) == 1, "one head")


def term_saves_and_exits_143():
    p = start(*TINY, "train.steps=100000", "--run", "term", "--quiet")
    wait_for(is_up("term"))
    p.send_signal(signal.SIGTERM)
    check(finish(p)[0] == 143, "exit status 143", str(p.returncode))
    last = check_stream("term")[-1]
    check(last["kind"] == "end" and last["status"] == "stopped", "an end record")
    check(last["step"] == 0 or os.path.isdir(path("term", "checkpoints", "step-%08d" % last["step"])), "a checkpoint")
    check(not os.path.exists(path("term", "control.sock")), "the socket is gone")


def a_second_interrupt_ends_at_once():
    p = start(*TINY, "train.steps=100000", "train.eval_tokens=100000000", "train.eval_every=1000000", "train.batch=64",
              "--run", "int", "--quiet")
    wait_for(is_up("int"))
    p.send_signal(signal.SIGINT)
    time.sleep(0.05)
    p.send_signal(signal.SIGINT)
    check(finish(p, 5)[0] == 130, "exit status 130", str(p.returncode))


def usr1_storm_and_hangup_and_stop_and_continue():
    p = start(*TINY, "train.steps=100000", "train.checkpoint_every=1000000", "--run", "usr1", "--quiet")
    wait_for(is_up("usr1"))
    ask("usr1", "pause")
    for _ in range(50):
        p.send_signal(signal.SIGUSR1)
    wait_for(lambda: len(events("usr1", "checkpoint")) >= 1)
    n = len(events("usr1", "checkpoint"))
    check(n <= 3, "a storm makes few checkpoints", str(n))
    ask("usr1", "resume")
    p.send_signal(signal.SIGHUP)
    before = step_of("usr1")
    wait_for(lambda: step_of("usr1") > before + 3)
    for _ in range(10):
        p.send_signal(signal.SIGSTOP)
        p.send_signal(signal.SIGCONT)
    p.send_signal(signal.SIGSTOP)
    size = os.path.getsize(path("usr1", "log.mp"))
    time.sleep(0.2)
    check(os.path.getsize(path("usr1", "log.mp")) == size, "stopped means stopped")
    p.send_signal(signal.SIGCONT)
    before = step_of("usr1")
    wait_for(lambda: step_of("usr1") > before + 3)
    check(ask("usr1", "stop") == "ok stop", "stop")
    check(finish(p)[0] == 0, "asked to stop is no failure")
    check_stream("usr1")


def control_socket():
    p = start(*TINY, "train.steps=1000000", "train.checkpoint_every=1000000", "--run", "ctl", "--quiet")
    wait_for(is_up("ctl"))
    check(os.stat(path("ctl", "control.sock")).st_mode & 0o777 == 0o600, "mode 0600")
    check(ask("ctl", "status").startswith("ok step "), "status")
    check(ask("ctl", "pause") == "ok pause", "pause")
    a = step_of("ctl")
    time.sleep(0.15)
    check(step_of("ctl") == a and ask("ctl", "status").endswith("paused"), "paused means paused")
    probes = lambda: len([1 for _, x in records("ctl") if x["kind"] == "probe" and x["step"] == a])
    before = probes()
    check(ask("ctl", "probe") == "ok probe", "probe")
    wait_for(lambda: probes() == before + 1)
    check(ask("ctl", "checkpoint") == "ok checkpoint", "checkpoint")
    wait_for(lambda: os.path.isdir(path("ctl", "checkpoints", "step-%08d" % a)))
    for line, part in [
        ("set lr 0.001", "ok lr 0.001"), ("set edp.threshold_offset 0.5", "ok"), ("set edp.target_ratio 0.75", "ok"),
        ("set edp.target_ratio 0.1", "error edp.target_ratio=0.1 cannot be reached"), ("set edp.target_ratio 7", "error"),
        ("set lr nan", "error"), ("set lr -1", "error"), ("set lr", "error"), ("set lr 1 2", "error"), ("set", "error"),
        ("set %s 1" % ("k" * 300), "error"), ("set edp.nothing 1", "error edp.nothing: not a live setting, expected one of: train.lr, "),
        ("set lr 1e999", "error"), ("", "error"), ("garbage", "error unknown command"), ("\x1b]0;x\x07", "error"),
        ("status\r", "ok step"), ("x" * 600, "error"),
    ]:
        check(ask("ctl", line).startswith(part), "answer to %r" % line[:40], ask("ctl", line))
    check("\x1b" not in ask("ctl", "\x1b[2J"), "no escape comes back")
    check(ask("ctl", b"\x00\xff\xfe\x80\n").startswith("error"), "bytes")
    check(ask("ctl", b"status\nstatus\n").startswith("ok"), "two at once")

    s = socket.socket(socket.AF_UNIX)          # one byte at a time
    s.connect(path("ctl", "control.sock"))
    for c in b"status\n":
        s.send(bytes([c]))
        time.sleep(0.01)
    s.settimeout(10 * SLOW)
    check(s.recv(500).startswith(b"ok step"), "byte by byte")
    s.close()
    deaf = []                                  # peers that never read, and peers that never speak
    for _ in range(20):
        s = socket.socket(socket.AF_UNIX)
        s.connect(path("ctl", "control.sock"))
        s.setblocking(False)
        deaf.append(s)
    try:
        for _ in range(20000):
            deaf[-1].send(b"status\n" * 10)
    except OSError:
        pass
    check(ask("ctl", "resume") == "ok resume", "still there")
    wait_for(lambda: step_of("ctl") > a + 5)
    for s in deaf:
        s.close()
    names = [x["text"] for x in events("ctl", "set")]
    check(names == ["lr 0.001", "edp.threshold_offset 0.5", "edp.target_ratio 0.75"] or len(names) % 3 == 0, "set events", str(names))
    check(ask("ctl", "stop") == "ok stop", "stop")
    check(finish(p)[0] == 0, "stopped")
    live = json.load(open(path("ctl", "live.json")))
    check(set(live) == {"train.lr", "edp.threshold_offset", "edp.target_ratio"}, "live.json", str(live))
    p = start("--resume", "ctl", "--quiet")    # and they are still in force
    wait_for(is_up("ctl"))
    wait_for(lambda: step_of("ctl") > 0)
    ask("ctl", "pause")
    check(" lr 0.001" in ask("ctl", "status"), "lr after resume", ask("ctl", "status"))
    head = [x for x in check_stream("ctl") if x["kind"] == "metric"][-1]
    check(abs(head["target_ratio"] - 0.75) < 1e-6 or head["step"] < 100000, "target after resume")
    ask("ctl", "stop")
    check(finish(p)[0] == 0, "stopped again")
    with open(path("ctl", "live.json"), "w") as f:
        f.write('{"edp.nosuch": "0x1p-1"}')
    check(finish(start("--resume", "ctl", "--quiet"))[0] == 1, "what cannot be applied is no reason to begin anew")


def long_paths():
    deep = path("d" * 60, "e" * 60)
    os.makedirs(deep)
    p = subprocess.Popen([PROGRAM, "train", *TINY, "train.steps=1000000", "--run", "deep", "--quiet"],
                         env=dict(environment(), DEPTHSCOPE_RUNS=deep), stdin=subprocess.DEVNULL,
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    sock = os.path.join(deep, "deep", "control.sock")
    check(len(sock) > 107, "longer than an address")
    wait_for(lambda: os.path.exists(sock))
    fd = os.open(os.path.dirname(sock), os.O_RDONLY)
    s = connected("/proc/self/fd/%d/control.sock" % fd)
    s.send(b"stop\n")
    check(s.recv(100).startswith((b"ok stop\n", b"ok pending 1: stop")), "answer")
    check(finish(p)[0] == 0, "stopped")


def second_writer():
    p = start(*TINY, "train.steps=1000000", "--run", "one", "--quiet")
    wait_for(is_up("one"))
    ask("one", "pause")
    time.sleep(0.1)
    tree = lambda: sorted((n, os.path.getsize(path("one", n)), os.stat(path("one", n)).st_mtime_ns) for n in os.listdir(path("one")))
    before = tree()
    for args in (["--resume", "one"], [*TINY, "train.steps=3", "--run", "one"]):
        status, out, err = train(*args)
        check(status == 1 and out == "" and err.count("\n") == 1, "one line", "%d %r %r" % (status, out, err))
        check(tree() == before, "nothing is touched")
    ask("one", "stop")
    finish(p)


def two_starts_with_one_name():
    pair = [start(*TINY, "train.steps=20", "train.lr=%g" % lr, "--run", "same", "--quiet") for lr in (1e-3, 2e-3)]
    ends = [finish(p) for p in pair]
    check(sorted(x[0] for x in ends) == [0, 1], "one runs", str(ends))
    lr = [1e-3, 2e-3][[x[0] for x in ends].index(0)]
    head = check_stream("same")[0]
    check(float(head["config"]["train.lr"]) == lr, "with its own configuration")
    pair = [start(*TINY, "train.steps=2", "--quiet") for _ in range(3)]
    check([finish(p)[0] for p in pair] == [0, 0, 0], "without names all run")
    check(all(os.path.isdir(path("quick-edp-%d" % i)) for i in (1, 2, 3)), "under names of their own")


def failing_disk():
    """Old checkpoints stay whole, nothing half under a final name, and the run goes on or says why not."""
    if not os.path.isdir(path("disk-ok")):
        reference_for_disks()
    keys = TINY + ["train.steps=45"]
    for number, rule in enumerate([
        "write:40=ENOSPC", "write:40+=ENOSPC", "write:40", "write:40+", "fsync:12", "fsync:12+", "rename:6", "rename:6+",
        "fsync:12=ENOSPC", "rename:6+=EROFS", "open:60+=EMFILE", "mkdir:3+=ENOSPC", "close:30", "fdatasync:1+",
        "write:1", "write:3=ENOSPC", "rename:1", "mkdir:1", "unlink:1+", "open:12=EMFILE",
    ][::3 if SANITIZED else 1]):
        run = "disk-%d" % number
        status, out, err = train(*keys, "--run", run, "--quiet", DEPTHSCOPE_FAIL=rule)
        check(status in (0, 1), rule, "%d %s" % (status, err))
        check(status == 0 or err.strip(), "%s says why" % rule)
        check("Sanitizer" not in err and "BUG" not in err, rule, err)
        if not os.path.exists(path(run, "config.yaml")):
            check(status == 1, "%s: it never began" % rule)
            continue
        if os.path.isdir(path(run, "checkpoints")):
            for n in os.listdir(path(run, "checkpoints")):
                if re.fullmatch(r"step-\d{8}", n):
                    m = json.load(open(path(run, "checkpoints", n, "manifest.json")))
                    for f, x in m["files"].items():
                        check(sha(run, "checkpoints", n, f) == x["sha256"], "%s: %s of %s is whole" % (rule, f, n))
        status, out, err = train("--resume", run, "--quiet")   # with a good disk it goes on
        check(status == 0, "%s: resume" % rule, err)
        check(weights(run, 45) == weights("disk-ok", 45), "%s: weights" % rule)
        seqs = [s for s, _ in records(run)]
        check(seqs == sorted(set(seqs)), "%s: seq grows" % rule)


def interrupted_calls_do_not_fail_a_run():
    """EINTR from every kind of call, again and again: nothing is noted, and the weights are the same."""
    if not os.path.isdir(path("disk-ok")):
        reference_for_disks()
    calls = ("open", "write", "fsync", "fdatasync", "close", "rename", "mkdir", "unlink", "read")
    for n in range(1, 60, 20 if SANITIZED else 4):
        run = "eintr-%d" % n
        status, out, err = train(*TINY, "train.steps=45", "--run", run, "--quiet",
                                 DEPTHSCOPE_FAIL=",".join("%s:%d=EINTR" % (c, n) for c in calls))
        check((status, err) == (0, ""), "call %d of each" % n, "%d %s" % (status, err))
        check(weights(run, 45) == weights("disk-ok", 45), "weights")
        check([x["level"] for x in events(run, "checkpoint")] == ["info"] * 3, "every checkpoint is saved")


def reference_for_disks():
    check(train(*TINY, "train.steps=45", "--run", "disk-ok", "--quiet")[0] == 0, "reference")


def full_tmpfs():
    where = path("small")
    os.makedirs(where)
    if os.geteuid() != 0 or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "none", where],
                                           capture_output=True).returncode != 0:
        raise Skip("no right to mount")
    try:
        env = dict(environment(), DEPTHSCOPE_RUNS=where)
        p = subprocess.run([PROGRAM, "train", *TINY, "train.steps=300", "train.keep=100", "--run", "full", "--quiet"], env=env,
                           stdin=subprocess.DEVNULL, capture_output=True, timeout=60 * SLOW)
        check(p.returncode == 1 and b"No space" in p.stderr or b"free" in p.stderr, "full", repr(p.stderr[-500:]))
        d = os.path.join(where, "full", "checkpoints")
        whole = sorted(n for n in os.listdir(d) if re.fullmatch(r"step-\d{8}", n))
        check(whole, "some checkpoint was written")
        for n in whole:
            m = json.load(open(os.path.join(d, n, "manifest.json")))
            for f, x in m["files"].items():
                check(hashlib.sha256(open(os.path.join(d, n, f), "rb").read()).hexdigest() == x["sha256"], "whole")
        for n in whole[:-1]:
            shutil.rmtree(os.path.join(d, n))
        p = subprocess.run([PROGRAM, "train", "--resume", "full", "--allow-change", "train.keep=1", "--quiet"], env=env,
                           stdin=subprocess.DEVNULL, capture_output=True, timeout=60 * SLOW)
        check(p.returncode == 0, "with room again it goes on", repr(p.stderr[-500:]))
    finally:
        subprocess.run(["umount", where], capture_output=True)


def directory_goes_away():
    p = start(*TINY, "train.steps=1000000", "--run", "gone", "--quiet")
    wait_for(is_up("gone"))
    shutil.rmtree(path("gone"))
    status, out, err = finish(p, 10)
    check(status == 1 and "is gone" in err, "a clear end", "%d %s" % (status, err))
    check(not os.path.exists(path("gone")), "not made again")


def read_only_directory():
    where = path("ro")
    os.makedirs(where)
    ok = os.geteuid() == 0 and subprocess.run(["mount", "-t", "tmpfs", "-o", "ro", "none", where], capture_output=True).returncode == 0
    if not ok:
        os.chmod(where, 0o555)
        if os.geteuid() == 0:
            raise Skip("root writes everywhere here")
    p = subprocess.run([PROGRAM, "train", *TINY, "train.steps=3", "--run", "x"], env=dict(environment(), DEPTHSCOPE_RUNS=where),
                       stdin=subprocess.DEVNULL, capture_output=True, timeout=20 * SLOW)
    if ok:
        subprocess.run(["umount", where], capture_output=True)
    check(p.returncode == 1 and p.stderr.count(b"\n") == 1, "one line", repr(p.stderr))


def damaged_checkpoints():
    if not os.path.isdir(path("disk-ok")):
        reference_for_disks()
    check(train(*TINY, "train.steps=45", "train.keep=10", "--run", "rot", "--quiet")[0] == 0, "run")
    for step in (45, 40):
        f = path("rot", "checkpoints", "step-%08d" % step, "model.safetensors")
        b = bytearray(open(f, "rb").read())
        b[len(b) // 2] ^= 1
        os.remove(f)
        open(f, "wb").write(b)
    status, out, err = train("--resume", "rot", "--quiet")
    check(status == 0 and "step-00000045 is incomplete" in err and "step 20" in err, "loud", err)
    note = [x for x in events("rot", "resume")][-1]
    check(note["level"] == "warn" and "45" in note["text"] and "20" in note["text"], "in the record", str(note))
    check(weights("rot", 45) == weights("disk-ok", 45), "and the same weights at the end")
    check_stream("rot")
    for n in os.listdir(path("rot", "checkpoints")):
        os.remove(path("rot", "checkpoints", n, "manifest.json"))
    status, out, err = train("--resume", "rot", "--quiet")
    check(status == 1 and "all checkpoints are corrupt" in err, "none left is an error, not a new beginning", err)


def changed_corpus():
    text = "".join("The %d th line tells of %d small things.\n\n" % (i, i * i) for i in range(300))
    open(path("c.txt"), "w").write(text)
    keys = [k for k in TINY if not k.startswith("data.docs")] + ["data.path=" + path("c.txt"), "data.format=blocks"]
    status, out, err = train(*keys, "train.steps=20", "--run", "corpus", "--quiet")
    check(status == 0, "run on a file", err)
    open(path("c.txt"), "w").write(text.replace("small", "great"))
    status, out, err = train("--resume", "corpus", "--quiet")
    check(status == 1 and "corpus has changed" in err and "--allow-change" in err, "refused", err)
    status, out, err = train("--resume", "corpus", "--quiet", "train.steps=25")
    check(status == 2 and "--allow-change" in err, "keys too", err)
    status, out, err = train("--resume", "corpus", "--quiet", "--allow-change", "train.steps=25")
    check(status == 0 and "has changed" in err, "allowed", err)
    check(check_stream("corpus")[-1]["step"] == 25, "went on")
    check("steps: 25" in open(path("corpus", "config.yaml")).read(), "and is noted")
    status, out, err = train("--resume", "corpus", "--quiet")
    check(status == 0, "the checkpoint behind the change is of the new corpus", err)


def bad_corpora():
    open(path("empty.txt"), "w").close()
    open(path("short.txt"), "w").write("Too short.\n")
    base = [k for k in TINY if not k.startswith("data.docs")]
    for data, part in (("empty.txt", ""), ("short.txt", ""), ("missing.txt", "No such file")):
        status, out, err = train(*base, "train.steps=3", "data.path=" + path(data), "--run", "nothing")
        check(status == 1 and err.count("\n") == 1 and part in err, data, "%d %r" % (status, err))
        check(not os.path.exists(path("nothing")), "no run is left behind", data)
    status, out, err = train(*TINY, "train.steps=3", "data.path=synth", "data.docs=1", "--run", "nothing")
    check(status == 1 and err.count("\n") == 1, "one document", err)


def bad_options():
    for args, parts in [
        (["train.lr=nan"], ["must be a number"]), (["train.lr=0"], ["must be"]), (["train.lr=-1"], ["must be"]),
        (["train.lr=1e999"], ["must be"]), (["train.batch=0"], ["must be"]), (["train.batch=1e30"], ["train.batch"]),
        (["train.steps=1.5"], ["must be an integer"]), (["train.steps="], ["train.steps"]), (["train.seq=2048"], ["model.max_seq"]),
        (["model.heads=5"], ["must divide"]), (["model.heads=0"], ["must be"]), (["model.dim=0"], ["must be"]),
        (["trian.steps=3"], ["did you mean train.steps"]), (["edp.targt_ratio=0.6"], ["edp.target_ratio"]),
        (["model.method=nope"], ["dense", "edp", "random", "static"]), (["edp.target_ratio=0.1"], ["0.500"]),
        (["random.target_ratio=0.1", "model.method=random"], ["cannot be reached"]), (["edp.signal=x"], ["velocity"]),
        (["a..b=1"], ["key"]), (["a.b="], ["unknown key"]), (["~seed"], ["not set"]), (["seed=1", "+seed=2"], ["duplicate key"]),
        (["train.batch=0", "model.heads=5", "trian.steps=3", "edp.early=x", "=1"], ["train.batch", "model.heads", "trian", "edp.early", "setting 5"]),
        (["model.dim=65536", "model.heads=64", "model.layers=400"], ["memory"]),
        (["nosuch"], ["unknown preset nosuch"]), (["quick", "quick"], ["duplicate preset quick"]), (["tiny", "stores"], ["did you mean stories?"]), (["--run", "../x"], ["expected a name"]),
        (["--nope"], ["nope"]), (["--resume", "nowhere"], ["run not found"]), (["--json=1"], [""]),
    ] + [(["--run", name], ["expected a name"]) for name in ("/etc/x", "a/b", ".", "..", "", "x" * 300, "a\nb", "-rf", "a b", ".hid")]:
        before = sorted(os.listdir(RUNS))
        status, out, err = train(*args)
        check(status in (1, 2) and out == "" and err.count("\n") == 1, str(args)[:80], "%d %r %r" % (status, out, err))
        for part in parts:
            check(part in err, str(args)[:80], err)
        check(sorted(os.listdir(RUNS)) == before, "nothing is started", str(args)[:80])
    open(path("twice.yaml"), "w").write("train:\n  steps: 3\n  lr: 0.1\n  steps: 4\n")
    status, out, err = train(path("twice.yaml"))
    check(status in (1, 2) and "steps" in err and re.search(r"twice.yaml:4", err), "a key twice, with its line", err)
    open(path("bad.yaml"), "w").write("train:\n  stps: 3\n  lr: fast\nmodel:\n  heads: 5\n")
    status, out, err = train(path("bad.yaml"))
    check(status == 2 and all(x in err for x in ("stps", "bad.yaml:3", "heads=5", "train.steps")), "all at once", err)
    check(train("--run", "CON", *TINY, "train.steps=1", "--quiet")[0] == 0, "CON is a name like another")


def output_shapes():
    status, out, err = train(*TINY, "train.steps=12", "train.eval_every=5", "train.time_rounds=1", "--run", "json", "--json", DEPTHSCOPE_FAIL="nan:3")
    check(status == 0, "json", err)
    rows = [json.loads(line, parse_constant=lambda x: 1 / 0) for line in out.splitlines()]
    check([x["step"] for x in rows] == list(range(1, 13)), "one object a step")
    for x in rows:
        check({"step", "tokens", "loss", "lr", "grad_norm", "tok_s", "flops_ratio"} <= set(x), "keys", str(x))
    check(rows[2]["grad_norm"] is None and rows[2]["skipped_steps"] == 1, "NaN is null", str(rows[2]))
    check({"val_loss", "bits_per_byte", "time_ratio"} <= set(rows[4]) and "val_loss" not in rows[5], "val_loss where there is one")
    status, out, err = train(*TINY, "train.steps=12", "train.eval_every=5", "--run", "lines")
    check(status == 0 and "\x1b" not in out + err and "\r" not in out + err, "plain lines", repr(out))
    check("step 12/12" in out and "val " in out, "lines", out)
    status, out, err = train(*TINY, "train.steps=3", "--run", "quiet", "--quiet")
    check((status, out, err) == (0, "", ""), "quiet", out + err)
    p = subprocess.run("'%s' train %s train.steps=200 --run head --json | head -n 1" % (PROGRAM, " ".join(TINY)), shell=True,
                       env=environment(), capture_output=True, timeout=60 * SLOW)
    check(check_stream("head")[-1]["kind"] == "end", "a reader that leaves does not hurt the run", repr(p.stderr))


def on_a_terminal(columns):
    main, other = pty.openpty()
    fcntl.ioctl(other, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    p = subprocess.Popen([PROGRAM, "train", *TINY, "train.steps=60", "--run", "tty-%d" % columns], env=environment(TERM="xterm"),
                         stdin=other, stdout=other, stderr=other)
    os.close(other)
    seen, end = b"", time.monotonic() + 30 * SLOW
    while time.monotonic() < end:
        ready, _, _ = select.select([main], [], [], 0.2)
        try:
            got = os.read(main, 65536) if ready else None
        except OSError:
            break
        if got == b"":
            break
        seen += got or b""
    os.close(main)
    p.wait(10 * SLOW)
    return p.returncode, seen


def a_bar_on_a_terminal():
    status, seen = on_a_terminal(80)
    check(status == 0 and b"\r[" in seen and b"\x1b[K" in seen and b"step 60/60" in seen, "bar", repr(seen[-300:]))
    for part in seen.split(b"\r"):
        check(len(part.replace(b"\x1b[K", b"").rstrip(b"\n")) <= 160, "fits", repr(part))
    text = seen.decode()
    check("loss " in text and "final evaluation ..." in text and "writing the checkpoint ..." in text, "what it does", text[-600:])
    check("eta 0.00s" not in text, "no time is left at the end")
    end = text[text.rindex("\x1b[K") + 3:].strip().splitlines()
    check(end[0].startswith("tty-80: done, 60 steps, ") and re.match(r"  val loss \d+\.\d{4}, \d+\.\d{3} bits/byte; FLOPs 0\.\d{3} of the dense model", end[1])
          and end[2].strip() == path("tty-80", "checkpoints", "step-00000060")
          and end[3].startswith("  next: depthscope " + path("tty-80")) and len(end) == 4, "the end", repr(end))
    check(train("--resume", "tty-80", "--quiet")[1] == "", "quiet is quiet")
    for columns in (1, 22, 30):
        status, seen = on_a_terminal(columns)
        check(status == 0, "narrow", repr(seen))


def a_terminal_that_goes_away():
    main, other = pty.openpty()
    p = subprocess.Popen([PROGRAM, "train", *TINY, "train.steps=400", "--run", "hup"], env=environment(TERM="xterm"),
                         stdin=other, stdout=other, stderr=other, start_new_session=True)
    os.close(other)
    wait_for(is_up("hup"))
    os.close(main)
    p.wait(30 * SLOW)
    check(p.returncode == 0 and check_stream("hup")[-1]["status"] == "done", "the run goes on", str(p.returncode))


def ids(run):
    """run_id of every head and of every manifest."""
    out = [x.get("run_id") for _, x in records(run) if x["kind"] == "head"]
    for n in sorted(os.listdir(path(run, "checkpoints"))):
        out.append(json.load(open(path(run, "checkpoints", n, "manifest.json"))).get("run_id"))
    return out


def a_renamed_run_goes_on_in_its_directory():
    """mv runs/old runs/new, and another run takes the old name: each keeps to its own directory."""
    keys = TINY + ["train.steps=300", "train.keep=1000"]
    p = start(*keys, "--run", "old")
    wait_for(is_up("old"))
    ask("old", "pause")
    os.rename(path("old"), path("new"))
    other = start(*TINY, "train.steps=300", "seed=2", "train.keep=1000", "--run", "old", "--quiet")
    wait_for(is_up("old"))
    check(ask("new", "status").endswith("paused"), "the socket moved along")
    ask("new", "resume")
    status, out, err = finish(p)
    out_of_old = out
    check(status == 0 and "old was renamed to" in err and "/new" in err, "it says so, and goes on", "%d %s" % (status, err))
    status, out, err = finish(other)
    check((status, out, err) == (0, "", ""), "the other one knows of nothing", "%d %s" % (status, err))
    check(train(*keys, "--run", "alone", "--quiet")[0] == 0, "the same run alone")
    check(weights("new", 300) == weights("alone", 300) != weights("old", 300), "the work of each is in its place")
    steps = ["step-%08d" % s for s in range(20, 301, 20)]
    for run in ("old", "new"):
        check(sorted(os.listdir(path(run, "checkpoints"))) == steps, "all checkpoints of " + run, str(os.listdir(path(run, "checkpoints"))))
        check(check_stream(run)[-1]["status"] == "done", "the end of " + run)
        check(sorted(os.listdir(path(run))) == ["best.json", "checkpoints", "config.yaml", "log.mp", "meta.json", "tokenizer.json"],
              "nothing else in " + run, str(os.listdir(path(run))))
        check(len(set(ids(run))) == 1 and re.fullmatch("[0-9a-f]{16}", ids(run)[0]), "one id", str(ids(run)))
    check(ids("old")[0] != ids("new")[0], "an id of its own")
    check(len(events("new", "moved")) == 1, "noted once")
    check("generate %s " % path("new") in out_of_old and path("old") not in out_of_old, "the end names where it is", out_of_old)
    check(train("--resume", "new", "--quiet")[0] == 0, "resumes under its new name")
    p = start(*TINY, "train.steps=1000000", "--run", "before", "--quiet")
    wait_for(is_up("before"))
    os.rename(path("before"), path("after"))
    os.mkdir(path("before"))
    p.terminate()
    status, out, err = finish(p)
    check(status == 143 and "resume with: depthscope train --resume %s\n" % path("after") in err, "and so does a stop", err)
    p = start(*TINY, "train.steps=1000000", "train.nan_limit=3", "--run", "ill", "--quiet", DEPTHSCOPE_FAIL="nan:500+")
    wait_for(lambda: is_up("ill")() and os.path.isdir(path("ill", "checkpoints", "step-00000020")))
    os.rename(path("ill"), path("iller"))
    status, out, err = finish(p)
    check(status == 1 and "train --resume %s " % path("iller") in err, "and a failure", err)


def a_directory_that_was_replaced_ends_the_run():
    """Removed and made again by another run, or robbed of its log: the old run ends, and mixes with nothing."""
    p = start(*TINY, "train.steps=1000000", "--run", "replaced", "--quiet")
    wait_for(is_up("replaced"))
    ask("replaced", "pause")   # also a paused run finds out
    shutil.rmtree(path("replaced"))
    other = start(*TINY, "train.steps=60", "seed=2", "train.keep=1000", "--run", "replaced", "--quiet")
    status, out, err = finish(p, 10)
    check(status == 1 and "is gone" in err, "the old one says so", "%d %s" % (status, err))
    check(finish(other)[0] == 0 and len(set(ids("replaced"))) == 1, "the new one is whole", str(ids("replaced")))
    check(sorted(os.listdir(path("replaced", "checkpoints"))) == ["step-%08d" % s for s in (20, 40, 60)], "and its own")

    p = start(*TINY, "train.steps=1000000", "--run", "robbed", "--quiet")
    wait_for(is_up("robbed"))
    ask("robbed", "pause")
    p.send_signal(signal.SIGSTOP)
    os.remove(path("robbed", "log.mp"))
    os.remove(path("robbed", "config.yaml"))
    status, out, err = train(*TINY, "train.steps=5", "--run", "robbed", "--quiet")
    check(status == 1 and err.count("\n") == 1 and "earlier run" in err, "leftovers of a run are not mixed with", "%d %s" % (status, err))
    status, out, err = train("--resume", "robbed", "--quiet")
    check(status == 1 and not os.path.exists(path("robbed", "log.mp")), "nor gone on with", "%d %s" % (status, err))
    open(path("robbed", "log.mp"), "w").close()
    shutil.copy(path("replaced", "config.yaml"), path("robbed", "config.yaml"))
    status, out, err = train("--resume", "robbed", "--quiet")
    check(status == 1 and "being written by another process" in err, "the directory is locked as well", "%d %s" % (status, err))
    p.send_signal(signal.SIGCONT)
    status, out, err = finish(p, 10)
    check(status == 1 and "is gone" in err, "and its run ends", "%d %s" % (status, err))


def leftovers_without_a_config():
    os.makedirs(path("left", "checkpoints", "step-00000007"))
    status, out, err = train(*TINY, "train.steps=3", "--run", "left", "--quiet")
    check(status == 1 and "checkpoints" in err and err.count("\n") == 1, "refused", "%d %s" % (status, err))
    check(os.listdir(path("left")) == ["checkpoints"], "as it was", str(os.listdir(path("left"))))


def a_checkpoint_of_another_run_is_refused():
    check(train(*TINY, "train.steps=40", "--run", "mine", "--quiet")[0] == 0, "one run")
    check(train(*TINY, "train.steps=60", "seed=5", "--run", "theirs", "--quiet")[0] == 0, "another")
    shutil.copytree(path("theirs", "checkpoints", "step-00000060"), path("mine", "checkpoints", "step-00000060"))
    before = open(path("mine", "log.mp"), "rb").read()
    status, out, err = train("--resume", "mine", "--quiet", "--allow-change", "train.steps=80")
    check(status == 1 and err.count("\n") == 1 and "step-00000060" in err, "refused", "%d %s" % (status, err))
    check(ids("mine")[0] in err and ids("theirs")[0] in err, "both are named", err)
    check(open(path("mine", "log.mp"), "rb").read() == before, "nothing was written")
    shutil.rmtree(path("mine", "checkpoints", "step-00000060"))
    p = start(*TINY, "train.steps=80", "train.keep=2", "--run", "live", "--quiet")   # put in while a run lives
    wait_for(is_up("live"))
    ask("live", "pause")
    for step in (60, 900):
        shutil.copytree(path("theirs", "checkpoints", "step-00000060"), path("live", "checkpoints", "step-%08d" % step))
    ask("live", "resume")
    status, out, err = finish(p)
    check("checkpoint of another run" in err and ids("theirs")[-1] in err, "the save of that step is refused", "%d %s" % (status, err))
    check(sha("live", "checkpoints", "step-00000060", "model.safetensors") ==
          sha("theirs", "checkpoints", "step-00000060", "model.safetensors"), "nothing of the other run is lost")
    check(os.path.isdir(path("live", "checkpoints", "step-00000080")) and os.path.isdir(path("live", "checkpoints", "step-00000040")),
          "and nothing of this one", str(os.listdir(path("live", "checkpoints"))))


def strip_ids(run):
    """As written before runs had ids."""
    for n in os.listdir(path(run, "checkpoints")):
        f = path(run, "checkpoints", n, "manifest.json")
        text = open(f).read()
        open(f, "w").write(re.sub(r', "run_id": "[0-9a-f]*"', "", text))
    data, out, i = open(path(run, "log.mp"), "rb").read(), b"", 0
    while i < len(data):
        size = struct.unpack_from(">I", data, i + 1)[0]
        body = data[i + 10:i + 6 + size].replace(b"\xa6run_id", b"\xa6run_no")
        out += data[i:i + 6] + struct.pack(">I", crc32c(body)) + body
        i += 6 + size
    open(path(run, "log.mp"), "wb").write(out)


def runs_from_before_ids():
    check(train(*TINY, "train.steps=70", "train.keep=10", "--run", "before", "--quiet")[0] == 0, "run")
    want = weights("before", 70)
    strip_ids("before")
    check(ids("before") == [None] * 5, "no id", str(ids("before")))
    for step in (60, 70):
        shutil.rmtree(path("before", "checkpoints", "step-%08d" % step))
    status, out, err = train("--resume", "before", "--quiet")
    check(status == 0 and err == "", "resumes", err)
    check(weights("before", 70) == want, "and it is the same run")
    got = ids("before")
    check(got[0] is None and got[1] and got[2:] == [None, None, got[1], got[1]], "and has an id from then on", str(got))
    shutil.rmtree(path("before", "checkpoints", "step-00000070"))
    check(train("--resume", "before", "--quiet")[0] == 0 and ids("before")[2] == got[1], "which it keeps", str(ids("before")))


def damage(f, how):
    data = open(f, "rb").read() if os.path.isfile(f) else b""
    if os.path.exists(f):
        os.remove(f)
    if how == "empty":
        open(f, "wb").close()
    elif how == "half":
        open(f, "wb").write(data[:len(data) // 2])
    elif how == "directory":
        os.mkdir(f)
    elif how == "fifo":
        os.mkfifo(f)


def damaged_files_of_a_run():
    """Empty, half, missing, a directory, a FIFO in place of each file: the run goes on from what is stored elsewhere."""
    check(train(*TINY, "train.steps=40", "seed=3", "train.lr=0.002", "--run", "whole-70", "--quiet")[0] == 0, "run")
    text = open(path("whole-70", "config.yaml")).read()
    token = open(path("whole-70", "tokenizer.json"), "rb").read()
    shutil.copytree(path("whole-70"), path("part"))
    check(train("--resume", "whole-70", "--allow-change", "train.steps=70", "--quiet")[0] == 0, "goes on")
    for name in ("tokenizer.json", "config.yaml", "meta.json", "best.json"):
        for how in ("empty", "half", "missing", "directory", "fifo"):
            what = "%s %s" % (how, name)
            shutil.rmtree(path("hurt"), ignore_errors=True)
            shutil.copytree(path("part"), path("hurt"))
            damage(path("hurt", name), how)
            status, out, err = train("--resume", "hurt", "--allow-change", "train.steps=70", "--quiet")
            check(status == 0, what, "%d %s" % (status, err))
            warned = [x for x in err.splitlines() if name in x and "kept as" not in x]
            check(len(warned) == (not (name == "best.json" and how == "missing")), what + ": one warning", err)
            check(weights("hurt", 70) == weights("whole-70", 70), what + ": the same weights")
            check("seed: 3" in open(path("hurt", "config.yaml")).read(), what + ": the configuration is back")
            check(open(path("hurt", "tokenizer.json"), "rb").read() == token, what + ": the tokenizer is back")
            for f in ("meta.json", "best.json"):
                check(json.load(open(path("hurt", f))), what + ": readable again", f)
            kept = [n for n in os.listdir(path("hurt")) if ".broken" in n]
            check(kept == ([name + ".broken"] if how in ("half", "directory", "fifo") else []), what + ": kept", str(kept))
            status, out, err = train("--resume", "hurt", "--quiet")
            check(status == 0 and "warning" not in err, what + ": and that was all", err)
    keys = TINY + ["train.steps=70", "train.keep=10", "seed=3"]
    p = start(*keys, "--run", "set", "--quiet")
    wait_for(is_up("set"))
    ask("set", "pause")
    ask("set", "set lr 0.0007")
    step = step_of("set")
    ask("set", "set edp.threshold_offset 0.01")
    check(ask("set", "checkpoint").startswith("ok"), "checkpoint")
    ask("set", "resume")
    check(finish(p)[0] == 0, "with settings")
    want = weights("set", 70)
    for name in os.listdir(path("set", "checkpoints")):
        if int(name[5:]) > max(step, 20):
            shutil.rmtree(path("set", "checkpoints", name))
    shutil.copytree(path("set"), path("set-part"))
    for how in ("empty", "half", "directory"):
        shutil.rmtree(path("set"))
        shutil.copytree(path("set-part"), path("set"))
        damage(path("set", "live.json"), how)
        status, out, err = train("--resume", "set", "--quiet")
        check(status == 0 and "live.json" in err and weights("set", 70) == want, "live settings of the log, " + how, err)
        check(json.load(open(path("set", "live.json"))), "and back in live.json")
    def evaluate(run):
        p = subprocess.run([PROGRAM, "eval", path(run), "tokens=64", "--json"], env=environment(), capture_output=True, timeout=60 * SLOW)
        check(p.returncode == 0, "eval", repr(p.stderr))
        x = json.loads(p.stdout)
        return (x["loss"], x["tokens"]), p.stderr.decode()
    good, err = evaluate("part")
    check(err == "", "no warning", err)
    for name in ("config.yaml", "best.json"):
        shutil.rmtree(path("hurt"))
        shutil.copytree(path("part"), path("hurt"))
        damage(path("hurt", name), "empty")
        got, err = evaluate("hurt")
        check(got == good and name in err and err.count("warning") == 1, "an evaluation with an empty " + name, err)
    shutil.rmtree(path("hurt"))
    shutil.copytree(path("part"), path("hurt"))
    open(path("hurt", "config.yaml"), "w").write(text[:text.index("model:")])   # whole lines, and YAML still
    status, out, err = train("--resume", "hurt", "--allow-change", "train.steps=70", "--quiet")
    check(status == 0 and "truncated" in err and weights("hurt", 70) == weights("whole-70", 70), "cut between keys", err)
    os.truncate(path("hurt", "config.yaml"), 0)
    os.truncate(path("hurt", "log.mp"), 0)
    status, out, err = train("--resume", "hurt", "--quiet")
    check(status == 1 and "config.yaml: empty" in err and err.count("\n") == 1, "nowhere else: refused", err)
    check(os.path.getsize(path("hurt", "log.mp")) == 0, "and nothing was done")
    open(path("hurt", "config.yaml"), "w").write(text)
    status, out, err = train("--resume", "hurt", "--quiet", "--allow-change", "train.steps=80")
    check(status == 0, "without its log it goes on", err)
    note = events("hurt", "resume")[-1]
    check(note["level"] == "warn" and "lost its records" in note["text"], "and says so", str(note))
    check(len(set(ids("hurt"))) == 1, "as the same run", str(ids("hurt")))
    shutil.rmtree(path("hurt", "checkpoints"))
    open(path("hurt", "checkpoints"), "w").close()
    status, out, err = train("--resume", "hurt", "--quiet")
    check(status == 1 and "checkpoints: not a directory" in err, "no new beginning beside a file", err)
    os.remove(path("hurt", "checkpoints"))
    status, out, err = train("--resume", "hurt", "--quiet")
    check(status == 0 and "from the start, although" in events("hurt", "resume")[-1]["text"], "without checkpoints", err)
    os.mkdir(path("hurt", "control.sock"))
    open(path("hurt", "control.sock", "x"), "w").close()
    check(train("--resume", "hurt", "--quiet")[0] == 0, "a directory in the socket's place")


def what_a_kill_leaves_is_described_as_it_is():
    p = start(*TINY, "train.steps=1000000", "train.checkpoint_every=1000000", "--run", "slain", "--quiet")
    wait_for(lambda: is_up("slain")() and step_of("slain") > 3)
    p.kill()
    finish(p)
    def ds(*args):
        p = subprocess.run([PROGRAM, *args], env=environment(), capture_output=True, timeout=60 * SLOW)
        return p.returncode, p.stderr.decode()
    status, err = ds("stop", "slain")
    check(status == 1 and "not running: silent at step" in err and "live" not in err, "a young log without a writer", err)
    for command in (("eval", "slain"), ("generate", "slain", "--prompt", "a")):
        status, err = ds(*command)
        check(status == 1 and "slain: no checkpoint yet; depthscope train --resume" in err, "a run, though no model yet", err)
        check("did you mean" not in err, "no guess", err)


def unfinished_files_are_cleaned():
    """kill -9 in the middle of every write: the next start removes what was left, and nothing else."""
    run, keys = "litter", TINY + ["train.steps=60", "train.checkpoint_every=3", "train.keep=2"]
    random.seed(5)
    args, found = keys + ["--run", run], set()
    for _ in range(30):
        p = start(*args, "--quiet", DEPTHSCOPE_FAIL="")
        try:
            p.wait(timeout=random.uniform(0.05, 0.3) * SLOW)
        except subprocess.TimeoutExpired:
            p.kill()
        if finish(p)[0] == 0:
            break
        args = ["--resume", run] if os.path.exists(path(run, "config.yaml")) else args
    # what a kill leaves, by hand, for every file that a run writes
    maker = subprocess.Popen(["true"])
    maker.wait()
    tag = owner_tag()
    names = [".%s.%s-%d-77-0.tmp" % (n, tag, maker.pid) for n in
             ("best.json", "config.yaml", "meta.json", "live.json", "tokenizer.json")]
    for change in (["--allow-change", "train.steps=70"], []):  # the second has no step left, and saves nothing
        for n in names:
            open(path(run, n), "w").write("half")
        os.mkdir(path(run, "checkpoints", "step-00000099.tmp-%s-%d-77-0" % (tag, maker.pid)))
        os.mkdir(path(run, "checkpoints", ".trash-%s-%d-77-1-step-00000003" % (tag, maker.pid)))
        status, out, err = train("--resume", run, *change, "--quiet")
        check(status == 0, "resume", err)
        left = [n for d, _, files in os.walk(path(run)) for n in files + [os.path.basename(d)] if "tmp" in n or "trash" in n]
        check(left == [], "nothing unfinished is left", str(left))


def owner_tag():
    """The first part of an owner's name, from a process that is stopped while it has an unfinished file."""
    p = start(*TINY, "train.steps=100000", "train.checkpoint_every=1", "--run", "tagger", "--quiet")
    try:
        until = time.monotonic() + 60 * SLOW
        while time.monotonic() < until:
            for d, dirs, files in os.walk(path("tagger")):
                for n in dirs + files:
                    m = re.search(r"[.-]([0-9a-f]{8})-%d-\d+-\d+(\.tmp)?$" % p.pid, n)
                    if m:
                        return m.group(1)
    finally:
        p.kill()
        finish(p)
    raise AssertionError("no unfinished file was seen")


TESTS = [kill_at_random_moments, term_saves_and_exits_143, a_second_interrupt_ends_at_once,
         usr1_storm_and_hangup_and_stop_and_continue, control_socket, long_paths, second_writer, two_starts_with_one_name,
         reference_for_disks, failing_disk, interrupted_calls_do_not_fail_a_run, full_tmpfs, directory_goes_away, read_only_directory, damaged_checkpoints,
         changed_corpus, bad_corpora, bad_options, output_shapes, a_bar_on_a_terminal, a_terminal_that_goes_away,
         a_renamed_run_goes_on_in_its_directory, a_directory_that_was_replaced_ends_the_run, leftovers_without_a_config,
         a_checkpoint_of_another_run_is_refused, runs_from_before_ids, damaged_files_of_a_run,
         what_a_kill_leaves_is_described_as_it_is, unfinished_files_are_cleaned]


run_tests(TESTS)
