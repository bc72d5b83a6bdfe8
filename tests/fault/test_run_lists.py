"""Lists of runs and what is done to runs by command: filters, tags, notes, renames, the trash."""
from kit_run import *

MORE = {}


def say(*words, code=0):
    p = subprocess.run([PROGRAM, *words], env=environment(**MORE), stdin=subprocess.DEVNULL, capture_output=True, timeout=60 * SLOW)
    check(p.returncode == code, " ".join(words), "%d: %s" % (p.returncode, p.stderr.decode("utf-8", "replace")))
    say.err = p.stderr.decode("utf-8", "replace")
    if code:
        check(say.err.startswith("depthscope: ") and say.err.count("\n") == 1, "one line", repr(say.err))
    return p.stdout.decode()


def listed(*words):
    return [r["name"] for r in json.loads(say("runs", "--json", *words))]


def refused(part, *words, code=1):
    say(*words, code=code)
    check(part in say.err, part, say.err)


def two_runs():
    for name, method in (("alpha", "edp"), ("beta", "mod")):
        if not os.path.isdir(path(name)):
            status, _, err = train("quick", *TINY, "train.steps=20", "model.method=" + method, "--run", name, "--quiet")
            check(status == 0, "training", err)


def filters_sorts_and_groups():
    two_runs()
    check(listed("--filter", "method=edp") == ["alpha"], "a column")
    check(listed("--filter", "model.method=mod train.steps=20 state=done") == ["beta"], "configuration keys")
    check(listed("--filter", "train.steps>20") == [], "nothing")
    check("no run matches" in say("runs", "--filter", "name~zzz"), "said")
    check(listed("--sort", "name") == ["alpha", "beta"] and listed("--sort", "-name") == ["beta", "alpha"], "sorted")
    refused("filter: column 8: expected a key", "runs", "--filter", "a b c  >", code=2)
    refused("unknown key train.stesp, did you mean train.steps?", "runs", "--filter", "train.stesp=1", code=2)
    refused("sort nonsense: unknown column", "runs", "--sort", "nonsense", code=2)
    text = say("runs", "--group", "method", "--sort", "name")
    check("method = edp (1 run)" in text and "method = mod (1 run)" in text, "groups", text)
    row = json.loads(say("runs", "--json"))[0]
    for key in ("name path method preset state status step steps seed val_loss loss flops_ratio time_ratio tok_s eta age modified pid "
                "host run_id parent tags note spark").split():
        check(key in row, key)
    check(row["step"] == 20 and row["preset"] == "quick" and len(row["spark"]) > 10, "values", str(row))


def the_table_fits_the_terminal():
    two_runs()
    for columns in (40, 60, 80, 200):
        pid, fd = pty.fork()
        if pid == 0:
            os.environ.update(environment())
            fcntl.ioctl(1, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
            os.execv(PROGRAM, [PROGRAM, "runs"])
        out = b""
        while True:
            try:
                got = os.read(fd, 65536)
            except OSError:
                break
            if not got:
                break
            out += got
        os.waitpid(pid, 0)
        os.close(fd)
        lines = out.decode().splitlines()
        check(lines and max(map(len, lines)) <= columns, "fits", "%d: %r" % (columns, lines))
        check("run" in lines[0] and "state" in lines[0], "the most important columns", lines[0])
        check(columns in (60, 80) or ("host" in lines[0]) == (columns == 200), "others as there is room", lines[0])


def tags_and_notes():
    two_runs()
    check(say("runs", "tag", "alpha", "+paper", "v2") == "paper v2\n", "tags")
    check(say("runs", "tag", "alpha", "-v2") == "paper\n" and say("runs", "tag", "alpha") == "paper\n", "removed")
    check(listed("--filter", "tag=paper") == ["alpha"] and listed("--filter", "tag!=paper") == ["beta"], "filter")
    say("runs", "note", "alpha", "the best, so far")
    check(say("runs", "note", "alpha") == "the best, so far\n", "note")
    check(json.load(open(path("alpha", "notes.json"))) == {"tags": ["paper"], "note": "the best, so far"}, "the file")
    say("runs", "note", "alpha", "größer")
    check(say("runs", "note", "alpha") == "größer\n" and "größer" in say("runs"), "as a UTF-8 terminal shows it")
    plain = subprocess.run([PROGRAM, "runs"], env=dict(environment(), LC_ALL="C"), capture_output=True, timeout=60 * SLOW)
    check(b"gr<U+00F6><U+00DF>er" in plain.stdout, "and one of ASCII", str(plain.stdout))
    refused("one line", "runs", "note", "alpha", "a\nb", code=2)
    refused("tag: expected", "runs", "tag", "alpha", "+a b", code=2)
    refused("did you mean alpha?", "runs", "tag", "alhpa")
    say("runs", "note", "alpha", "")
    check(say("runs", "note", "alpha") == "", "cleared")
    open(path("alpha", "notes.json"), "w").write("{broken")
    refused("notes.json", "runs", "tag", "alpha", "+x")
    check("alpha" in listed(), "a damaged file of notes does not hide the run")
    os.unlink(path("alpha", "notes.json"))
    refused("runs tag: expected NAME", "runs", "tag", code=2)


def renames():
    two_runs()
    refused("expected 1 to 64", "runs", "rename", "alpha", "a\x1b[2Jb", code=2)
    check("\x1b" not in say.err, "shown safely")
    refused("already exists", "runs", "rename", "alpha", "beta")
    say("runs", "rename", "alpha", "gamma")
    check("gamma" in listed() and "alpha" not in listed(), "renamed")
    say("runs", "rename", "gamma", "alpha")


def trash_and_restore():
    two_runs()
    p = start("quick", *TINY, "train.steps=1000000", "--run", "busy", "--quiet")
    wait_for(lambda: os.path.exists(path("busy", "control.sock")))
    refused("live; stop it first: depthscope stop busy", "runs", "rm", "busy")
    check("busy" in listed("--filter", "state=live"), "still there")
    subprocess.run([PROGRAM, "stop", "busy"], env=environment(), capture_output=True, timeout=60 * SLOW)
    finish(p)
    say("runs", "rm", "busy", "beta")
    check("beta" not in listed() and "busy" not in listed(), "gone")
    check("0.00s" not in say("runs", "--trash"), "an age is as in the list of runs")
    trashed = json.loads(say("runs", "--trash", "--json"))
    check(sorted(t["name"] for t in trashed) == ["beta", "busy"], "in the trash")
    check(all(t["time"] == int(t["path"].rpartition("@")[2]) / 1e6 for t in trashed), "when, to the microsecond", str(trashed))
    refused("--trash: unexpected --filter", "runs", "--trash", "--filter", "state=live", code=2)
    check("beta" in say("complete", "runs", "restore", "b"), "completed")
    say("runs", "restore", "beta")
    check("beta" in listed(), "restored")
    refused("not in the trash", "runs", "restore", "beta")
    refused("run not found", "runs", "rm", "beta-99")
    # one of several cannot be moved: the others are
    say("runs", "rm", "none", "beta", code=1)
    check("none: run not found" in say.err and "beta" not in listed(), "the rest", say.err)
    MORE["DEPTHSCOPE_FAIL"] = "rename:1=EXDEV"
    say("runs", "restore", "beta")
    MORE.clear()
    check(json.loads(say("runs", "--trash", "--json"))[0]["name"] == "busy", "copied, then removed")
    status, _, err = train("--resume", "beta", "train.steps=22", "--allow-change", "--quiet")
    check(status == 0, "a copied run trains on", err)
    shutil.rmtree(path(".trash"))


def a_path_must_lead_to_the_run_itself():
    two_runs()
    elsewhere = tempfile.mkdtemp()
    shutil.copytree(path("alpha"), os.path.join(elsewhere, "alpha"))
    for verb in (["rm"], ["tag"], ["note"]):
        refused("run not found", "runs", *verb, os.path.join(elsewhere, "alpha"))
    refused("run not found", "runs", "rename", os.path.join(elsewhere, "alpha"), "omega")
    check("alpha" in listed(), "the run of the same name is left alone")
    shutil.rmtree(elsewhere)
    # as a shell completes it: with a slash
    say("runs", "tag", path("alpha") + "/", "+here")
    check(say("runs", "tag", "alpha/", "-here") == "", "the same run")
    status, _, err = train("--resume", "alpha/", "--allow-change", "train.steps=21", "--quiet")
    check(status == 0 and "depthscope: :" not in err, "resumed under its name", err)
    _, _, err = train("--resume", "alpha/")
    check("depthscope: alpha: all 21 steps" in err, "its name is shown", err)


def an_interrupted_removal_leaves_no_half_of_a_run():
    """The trash on another file system: killed while the run that was copied is removed."""
    two_runs()
    many = path("beta", "checkpoints", "many")
    os.mkdir(many)
    for i in range(4000):
        open(os.path.join(many, str(i)), "w").close()
    whole = sum(len(f) for _, _, f in os.walk(path("beta")))
    p = subprocess.Popen([PROGRAM, "runs", "rm", "beta"], env=environment(DEPTHSCOPE_FAIL="rename:1=EXDEV"),
                         stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    trash = path(".trash")
    while p.poll() is None and not (os.path.isdir(trash) and any(n.startswith("beta@") for n in os.listdir(trash))):
        pass
    p.kill()
    p.wait()
    left = sum(len(f) for _, _, f in os.walk(path("beta")))
    check(left in (0, whole), "all or nothing under its name", "%d of %d files" % (left, whole))
    shutil.rmtree(path("beta"), ignore_errors=True)
    say("runs", "restore", "beta")
    check(sum(len(f) for _, _, f in os.walk(path("beta"))) == whole, "the copy is whole")
    shutil.rmtree(many)
    shutil.rmtree(trash)


def runs_that_vanish_while_they_are_listed():
    """A thousand lists and as many renames and removals: never a failure of the list."""
    two_runs()
    stop, failures = [], []
    def list_all():
        while not stop:
            p = subprocess.run([PROGRAM, "runs", "--json"], env=environment(), capture_output=True, timeout=60 * SLOW)
            if p.returncode or "alpha" not in [r["name"] for r in json.loads(p.stdout)]:
                failures.append((p.returncode, p.stderr, p.stdout))
    import threading
    t = threading.Thread(target=list_all)
    t.start()
    log = open(path("alpha", "log.mp"), "rb").read()
    end = time.monotonic() + 4
    while time.monotonic() < end:
        for i in range(20):
            os.mkdir(path("v%d" % i))
            open(path("v%d" % i, "log.mp"), "wb").write(log[:random.randrange(len(log))])
        for i in range(0, 20, 2):
            os.rename(path("v%d" % i), path("w%d" % i))
        for i in range(20):
            shutil.rmtree(path("%s%d" % ("w" if i % 2 == 0 else "v", i)))
    stop.append(1)
    t.join()
    check(not failures, "every list is whole", str(failures[:1]))


TESTS = [filters_sorts_and_groups, the_table_fits_the_terminal, tags_and_notes, renames, a_path_must_lead_to_the_run_itself,
         trash_and_restore, an_interrupted_removal_leaves_no_half_of_a_run,
         runs_that_vanish_while_they_are_listed]

if __name__ == "__main__":
    run_tests(TESTS)
