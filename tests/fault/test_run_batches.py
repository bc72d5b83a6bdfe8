"""Runs of runs whose parent is signalled or killed: sweep, ablate and isoflop, alone and as a process group."""
from kit_run import *

RUN = TINY + ["train.steps=100000", "train.checkpoint_every=1000000"]
NOT_SHAPE = [x for x in RUN if not x.startswith(("model.layers=", "model.dim=", "model.heads=", "train.steps="))]
KINDS = {
    "sweep": ["sweep", *RUN, "train.lr=0.001,0.002", "--seeds", "1"],
    "ablate": ["ablate", *RUN, "--seeds", "1", "--only", "no_warp_forward"],
    "isoflop": ["isoflop", *NOT_SHAPE, "--budget", "1e13", "--sizes", "4x32x2,6x32x2", "--seeds", "1"],
}

ONE = ["sweep", *RUN, "train.lr=0.001", "--seeds", "1"]


def begin(words, **kw):
    """The parent, and the name of the run that it is training."""
    before = set(os.listdir(RUNS))
    p = subprocess.Popen([PROGRAM, *words], env=environment(**kw), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                         stderr=subprocess.PIPE, start_new_session=True)
    found = []
    def is_training():
        found[:] = [x for x in os.listdir(RUNS) if x not in before and os.path.isdir(path(x)) and is_up(x)()]
        return bool(found) and step_of(found[0]) > 0
    wait_for(is_training)
    return p, found[0]


def end_of(run):
    return [x for _, x in records(run) if x["kind"] == "end"][-1]


def children_of(pid):
    return open("/proc/%d/task/%d/children" % (pid, pid)).read().split()


def is_alive(pid):
    """Not a zombie that nobody has waited for."""
    try:
        return open("/proc/%s/stat" % pid).read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def a_signal_to_the_parent_alone_stops_its_run_in_order():
    for kind, words in KINDS.items():
        for number in ((signal.SIGINT, signal.SIGTERM, signal.SIGHUP) if kind == "sweep" else (signal.SIGINT,)):
            p, run = begin(words)
            p.send_signal(number)
            status, _, err = finish(p)
            check(status == 128 + number, "exit status", "%s %s: %d %s" % (kind, number, status, err))
            check("interrupted; run the same command again to resume" in err, "it says so", err)
            last = end_of(run)
            check(last["status"] == "stopped", "an end record", str(last))
            check(os.path.isdir(path(run, "checkpoints", "step-%08d" % last["step"])), "with its checkpoint")
            shutil.rmtree(path(run))


def a_batch_system_can_ask_for_a_checkpoint_and_for_the_end():
    p, run = begin(KINDS["sweep"])
    p.send_signal(signal.SIGUSR1)
    wait_for(lambda: os.path.isdir(path(run, "checkpoints")) and os.listdir(path(run, "checkpoints")))
    check(p.poll() is None, "a checkpoint ends nothing")
    p.send_signal(signal.SIGUSR2)
    check(finish(p)[0] == 128 + signal.SIGUSR2, "the end")
    check(end_of(run)["status"] == "stopped", "in order", str(end_of(run)))
    shutil.rmtree(path(run))


def a_signal_to_the_whole_group_is_heard_once():
    p, run = begin(KINDS["sweep"])
    os.killpg(p.pid, signal.SIGINT)   # what a terminal does at Ctrl-C
    check(finish(p)[0] == 130, "exit status")
    check(end_of(run)["status"] == "stopped", "a checkpoint, not an abrupt end")
    shutil.rmtree(path(run))


def a_second_signal_ends_the_run_at_once():
    p, run = begin(KINDS["sweep"], DEPTHSCOPE_FAIL="slow:2+")
    p.send_signal(signal.SIGINT)
    time.sleep(0.2)
    p.send_signal(signal.SIGINT)
    check(finish(p)[0] == 130, "exit status")
    check([x for _, x in records(run) if x["kind"] == "end"] == [], "no orderly end")
    shutil.rmtree(path(run))


def a_run_whose_parent_was_killed_stops_and_is_resumed():
    words = [x.replace("train.steps=100000", "train.steps=6") for x in KINDS["sweep"]]
    p, run = begin(words, DEPTHSCOPE_FAIL="slow:3+")
    child = children_of(p.pid)[0]
    p.kill()
    p.wait()
    wait_for(lambda: not is_alive(child))
    check(end_of(run)["status"] == "stopped", "in order", str(end_of(run)))
    again = subprocess.run([PROGRAM, *words], env=environment(), stdin=subprocess.DEVNULL, capture_output=True,
                           timeout=60 * SLOW)
    err = again.stderr.decode()
    check(again.returncode == 0, "the rerun", err)
    check("%s: resumes from its checkpoint" % run in err, "it resumes", err)
    heads = [x for _, x in records(run) if x["kind"] == "head"]
    check(len(heads) == 2 and str(heads[0]["pid"]) == child, "it went on from there", str(len(heads)))
    shutil.rmtree(path(run))


def a_run_that_another_process_trains_is_waited_for():
    words = [x.replace("train.steps=100000", "train.steps=6") for x in ONE]
    p, run = begin(words, DEPTHSCOPE_FAIL="slow:3+")
    p.terminate()
    finish(p)
    other = start("--resume", run, "--quiet", DEPTHSCOPE_FAIL="slow:5")
    wait_for(is_up(run))
    again = subprocess.run([PROGRAM, *words], env=environment(), stdin=subprocess.DEVNULL, capture_output=True,
                           timeout=60 * SLOW)
    err = again.stderr.decode()
    check(again.returncode == 0 and finish(other)[0] == 0, "both", err)
    check("%s: in training by another process; waiting" % run in err, "it says what it waits for", err)
    check("%s: already done" % run in err, "and takes what came of it", err)
    shutil.rmtree(path(run))


def a_wait_for_another_worker_can_be_interrupted():
    p, run = begin(ONE)
    second = subprocess.Popen([PROGRAM, *ONE], env=environment(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE)
    line = second.stderr.readline().decode()
    check("%s: in training by %s, process %d; waiting" % (run, socket.gethostname(), p.pid) in line, "it waits", line)
    second.send_signal(signal.SIGTERM)
    check(finish(second)[0] == 143, "interrupted")
    check(p.poll() is None and is_up(run)(), "the other is not touched")
    p.terminate()
    check(finish(p)[0] == 143, "and the first")
    shutil.rmtree(path(run))


def ctrl_z_stops_the_run_too():
    p, run = begin(KINDS["sweep"])
    os.kill(p.pid, signal.SIGTSTP)
    child = children_of(p.pid)[0]
    state = lambda pid: open("/proc/%s/stat" % pid).read().rpartition(")")[2].split()[0]
    wait_for(lambda: state(p.pid) == "T" and state(child) == "T")
    os.kill(p.pid, signal.SIGCONT)
    before = step_of(run)
    wait_for(lambda: step_of(run) > before)
    p.terminate()
    check(finish(p)[0] == 143, "it goes on")
    shutil.rmtree(path(run))


def runs_that_fail_are_in_no_mean_and_are_named():
    words = ["sweep", *TINY, "train.steps=6", "train.nan_limit=2", "train.lr=0.001,0.002", "--seeds", "1,2", "--quiet"]
    status, out, _ = (lambda p: (p.returncode, p.stdout.decode(), p.stderr.decode()))(
        subprocess.run([PROGRAM, *words], env=environment(DEPTHSCOPE_FAIL="nan:3+"), stdin=subprocess.DEVNULL, capture_output=True))
    check(status == 1 and out.count("failed, excluded from means: sweep-lr_0.00") == 4, "all are named", out)
    rows = json.load(open(path("sweep.json")))["rows"]
    check([(r["n"], r["failed"], len(r["failures"])) for r in rows] == [(0, 2, 2)] * 2, "and counted", str(rows)[:500])
    check("2 consecutive steps had NaN or Inf" in rows[0]["failures"][0]["reason"], "why", str(rows[0]["failures"]))


def compare_marks_runs_that_failed():
    keys = TINY + ["train.steps=40", "train.nan_limit=2", "train.eval_every=10", "--quiet"]
    for seed, fault in ((1, ""), (2, ""), (3, "nan:30+")):
        train(*keys, "seed=%d" % seed, "--run", "c%d" % seed, DEPTHSCOPE_FAIL=fault)
    def compare(*more):
        p = subprocess.run([PROGRAM, "compare", "c1", "c2", "c3", *more], env=environment(), capture_output=True)
        check(p.returncode == 0, "compare", p.stderr.decode())
        return p.stdout.decode()
    group = json.loads(compare("--json"))["groups"][0]
    check((group["n"], group["failed"], group["val_loss"]["n"]) == (3, 1, 2), "no mean of it", str(group)[:300])
    values = [r["val_loss"] for r in group["runs"] if r["status"] == "done"]
    check(abs(group["val_loss"]["mean"] - sum(values) / 2) < 1e-9, "the mean of the others")
    text = compare()
    check("state" in text and "1 failed" in text and "note: c3 failed at step 31 of 40: excluded from the means" in text, "a mark and a note", text)


TESTS = [a_signal_to_the_parent_alone_stops_its_run_in_order, a_batch_system_can_ask_for_a_checkpoint_and_for_the_end,
         a_signal_to_the_whole_group_is_heard_once,
         a_second_signal_ends_the_run_at_once, a_run_whose_parent_was_killed_stops_and_is_resumed,
         a_run_that_another_process_trains_is_waited_for, a_wait_for_another_worker_can_be_interrupted, ctrl_z_stops_the_run_too, runs_that_fail_are_in_no_mean_and_are_named,
         compare_marks_runs_that_failed]

if __name__ == "__main__":
    run_tests(TESTS)
