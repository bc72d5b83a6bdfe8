"""Several workers on one runs directory: no run is done twice, the dead are replaced, and results do not depend on who did what."""
from kit_run import *

STEPS = 30
SWEEP = ["sweep", *TINY, "train.steps=%d" % STEPS, "train.lr=0.001,0.002,0.003,0.004", "--seeds", "1,2"]
SLOWLY = {"DEPTHSCOPE_FAIL": "slow:10"}   # two seconds in which to interfere
count = [0]


def folder():
    """A runs directory of its own."""
    count[0] += 1
    d = path("batch%d" % count[0])
    os.mkdir(d)
    return d


def env(d, **more):
    return {**environment(), "DEPTHSCOPE_RUNS": d, **more}


def begin(d, words, **more):
    return subprocess.Popen([PROGRAM, *words], env=env(d, **more), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, cwd=d)


def finished(d, words, code=0, seconds=120, **more):
    p = subprocess.run([PROGRAM, *words], env=env(d, **more), stdin=subprocess.DEVNULL, capture_output=True, cwd=d,
                       timeout=seconds * SLOW)
    out, err = p.stdout.decode(), p.stderr.decode()
    check(p.returncode == code, "exit status of %s" % words[0], "%d: %s" % (p.returncode, err[-1500:]))
    return out, err


def runs_of(d):
    return sorted(x for x in os.listdir(d) if os.path.isdir(os.path.join(d, x)) and not x.startswith("."))


def leases(d):
    at = os.path.join(d, ".batches", "leases")
    return sorted(x for x in os.listdir(at) if "@" in x and not x.startswith(".")) if os.path.isdir(at) else []


def held(d):
    """(run, lease) of those that a worker has."""
    out = []
    for x in leases(d):
        try:
            lease = json.load(open(os.path.join(d, ".batches", "leases", x)))
        except (OSError, ValueError):
            continue
        if lease["held"]:
            out.append((x.rpartition("@")[0], lease))
    return out


def is_slow(d, n):
    """n runs are held, and each is in its slow step."""
    for run, _ in held(d):
        log = os.path.join(d, run, "log.mp")
        if run.startswith("leader"):
            n += 1
        elif not os.path.exists(log) or max([x["step"] for _, x in records(log[:-7], live=True) if x["kind"] == "metric"] or [0]) < 9:
            return False
    return len(held(d)) == n


def run_of(d):
    check(len(runs_of(d)) == 1, "one run", str(runs_of(d)))
    return runs_of(d)[0]


def heads(d, run):
    return [x for _, x in records(os.path.join(d, run)) if x["kind"] == "head"]


def results(d):
    """The summary without what is measured in seconds."""
    text = open(os.path.join(d, "sweep.json")).read()
    return re.sub(r'"(time_ratio|decode_time_ratio)":(null|[-0-9.e+]+|\{[^}]*\})', r'"\1":0', text)


def trained_once(d, but=()):
    """Every run has all its steps, each once; only those in `but` were ever resumed."""
    for run in runs_of(d):
        body = check_stream(os.path.join(d, run))
        ends = [x for x in body if x["kind"] == "end"]
        check(ends and ends[-1]["status"] == "done", "done", run)
        check(sum(x["status"] == "done" for x in ends) == 1, "done once", run)
        check(len(heads(d, run)) == 1 or run in but, "begun once", "%s: %d heads" % (run, len(heads(d, run))))
        superseded = sum(x["kind"] == "metric" for x in body) - STEPS
        check(superseded == 0 or run in but, "no step twice", "%s: %d" % (run, superseded))


ALONE = []


def alone():
    if not ALONE:
        d = folder()
        finished(d, SWEEP)
        check(len(runs_of(d)) == 8, "eight runs", str(runs_of(d)))
        trained_once(d)
        check(leases(d) == [], "no lease is left of a batch that is done", str(leases(d)))
        ALONE.append(results(d))
    return ALONE[0]


def four_workers_one_killed_give_what_one_gives():
    d = folder()
    workers = [begin(d, [*SWEEP, "--out", "out%d.json" % i], **SLOWLY) for i in range(4)]
    wait_for(lambda: is_slow(d, 4))
    check(len({r for r, _ in held(d)}) == 4, "four different runs", str(held(d)))
    victim = workers[1]
    lost = [r for r, lease in held(d) if lease["pid"] == victim.pid]
    check(len(lost) == 1, "the victim has a run", str(held(d)))
    victim.kill()
    victim.communicate()
    for i, p in enumerate(workers):
        if p is victim:
            continue
        status, out, err = finish(p, 120)
        check(status == 0, "a worker", err[-1500:])
        shutil.move(os.path.join(d, "out%d.json" % i), os.path.join(d, "sweep.json"))
        check(results(d) == alone(), "the results of one worker", "\n%s\n%s" % (results(d)[:800], alone()[:800]))
    trained_once(d, but=lost)
    check(len(runs_of(d)) == 8, "eight runs", str(runs_of(d)))


def many_jobs_of_one_worker_give_the_same():
    d = folder()
    out, err = finished(d, [*SWEEP, "--jobs", "4"])
    check(results(d) == alone(), "the results of one job at a time")
    trained_once(d)
    check(err.count(": starts\n") == 8, "eight starts", err)
    out, err = finished(d, SWEEP)
    check(err.count("already done") == 8 and results(d) == alone(), "a second command has nothing to do", err)


def a_killed_worker_leaves_no_process_that_trains():
    d = folder()
    p = begin(d, [*SWEEP, "--jobs", "2"], **SLOWLY)
    wait_for(lambda: is_slow(d, 2))
    children = open("/proc/%d/task/%d/children" % (p.pid, p.pid)).read().split()
    check(len(children) == 2, "two processes train", str(children))
    p.kill()
    p.communicate()
    wait_for(lambda: not any(os.path.exists("/proc/%s" % c) for c in children))
    check(len(held(d)) == 2, "its leases are left behind")
    ends = [x["status"] for run in runs_of(d) for _, x in records(os.path.join(d, run)) if x["kind"] == "end"]
    check(ends == ["stopped"] * 2, "before they were done, with a checkpoint", str(ends))
    finished(d, SWEEP)
    check(results(d) == alone(), "and are taken over at once by a process of this machine")


def lease_of_another_host(d, run, generation=1, patience=1.0, counter=1):
    at = os.path.join(d, ".batches", "leases")
    os.makedirs(at, exist_ok=True)
    name = os.path.join(at, "%s@%d" % (run, generation))
    with open(name + ".new", "w") as f:
        f.write('{"counter":"%010d","held":true,"owner":"deadbeef-7-7-0","host":"far","pid":7,"nonce":"0123456789abcdef",'
                '"patience":%g}\n' % (counter, patience))
    os.rename(name + ".new", name)
    return name


def a_stale_lease_of_another_host_is_taken_over_whatever_its_clock_says():
    d = folder()
    words = [*SWEEP[:-3], "train.lr=0.001", "--seeds", "1"]
    finished(d, [*words, "--dry-run"])
    run = re.search(r"(sweep-\S+):", finished(d, [*words, "--dry-run"])[1]).group(1)
    for when in (4102444800, 631152000):   # of the years 2100 and 1990
        os.utime(lease_of_another_host(d, run, patience=1.5), (when, when))
        began = time.monotonic()
        out, err = finished(d, words)
        check("%s: in training by far, process 7; waiting" % run in err, "it says what it waits for", err)
        check(time.monotonic() - began > 1.4, "it waited")
        trained_once(d)
        shutil.rmtree(os.path.join(d, run))


def a_lease_that_is_renewed_elsewhere_is_respected():
    d = folder()
    words = [*SWEEP[:-3], "train.lr=0.001", "--seeds", "1"]
    run = re.search(r"(sweep-\S+):", finished(d, [*words, "--dry-run"])[1]).group(1)
    lease_of_another_host(d, run, patience=1)
    p = begin(d, words)
    for i in range(12):
        time.sleep(0.25)
        lease_of_another_host(d, run, patience=1, counter=i + 2)
    check(p.poll() is None and run not in runs_of(d), "three seconds later nothing was started")
    p.send_signal(signal.SIGTERM)
    check(finish(p)[0] == 143, "and it can be interrupted")
    check(leases(d) == [run + "@1"], "the lease is as it was", str(leases(d)))


def a_worker_that_was_suspended_goes_on_where_it_was():
    d = folder()
    words = [*SWEEP[:-3], "train.lr=0.001", "--seeds", "1", "--lease", "1"]
    p = begin(d, words, **SLOWLY)
    wait_for(lambda: is_slow(d, 1))
    os.kill(p.pid, signal.SIGTSTP)     # and with it the process that trains, which holds the lock of the log
    other = begin(d, words)
    time.sleep(2.5)   # the lease is silent for longer than it promised, but the log is locked
    check(other.poll() is None and leases(d) == [run_of(d) + "@1"], "it waits", str(leases(d)))
    os.kill(p.pid, signal.SIGCONT)
    for x in (p, other):
        status, out, err = finish(x, 60)
        check(status == 0, "both have the result", err)
    trained_once(d)


def a_worker_whose_lease_was_taken_over_stops_its_run():
    d = folder()
    words = [*SWEEP[:-3], "train.lr=0.001", "--seeds", "1", "--lease", "1"]
    p = begin(d, words, **SLOWLY)
    wait_for(lambda: is_slow(d, 1))
    run, lease = held(d)[0]
    child = open("/proc/%d/task/%d/children" % (p.pid, p.pid)).read().split()[0]
    lease_of_another_host(d, run, generation=2, patience=2)
    wait_for(lambda: not os.path.exists("/proc/" + child), 1.5)
    check(p.poll() is None, "the worker itself follows the new owner")
    status, out, err = finish(p, 60)   # who falls silent
    check(status == 0 and "taken over by another worker; stopped here" in err and "in training by far" in err, "it says so", err)
    trained_once(d, but=[run])


def workers_with_another_plan_are_refused():
    d = folder()
    preset = os.path.join(d, "half.yaml")
    words = ["sweep", "half.yaml", *TINY, "train.lr=0.001,0.002", "--seeds", "1"]
    open(preset, "w").write("train:\n  steps: 300\n")
    p = begin(d, words, **SLOWLY)
    wait_for(lambda: is_slow(d, 1))
    open(preset, "w").write("train:\n  steps: 299\n")
    out, err = finished(d, words, code=1)
    check(err.count("\n") == 1 and err.startswith("depthscope: sweep: "), "one line", err)
    check("300" in err and "299" in err and "steps" in err, "that names the difference", err)
    p.terminate()
    check(finish(p)[0] == 143, "the first is not touched")
    words = [x.replace("train.lr=0.001,0.002", "train.lr=0.001") for x in words]
    open(preset, "w").write("train:\n  steps: 4\n")
    finished(d, words)
    open(preset, "w").write("train:\n  steps: 5\n")
    finished(d, words)   # nobody works on the first plan any more
    check(len([r for r in runs_of(d) if "lr_0.001" in r or "half" in r]) >= 2, "both were trained", str(runs_of(d)))


def a_folder_that_vanishes_is_one_line_and_nothing_is_lost():
    d = folder()
    words = [*SWEEP[:-3], "train.lr=0.001", "--seeds", "1", "--lease", "1", "--quiet"]
    p = begin(d, words, **SLOWLY)
    wait_for(lambda: is_slow(d, 1))
    os.rename(d, d + ".away")
    status, out, err = finish(p, 30)
    os.rename(d + ".away", d)
    check(status == 1 and err.count("\n") == 1 and "leases: not found" in err, "one line", "%s %r" % (status, err))
    finished(d, words)
    trained_once(d, but=runs_of(d))
    for bad in ("/dev/null/runs", "/proc/none"):
        p = subprocess.run([PROGRAM, *words], env=env(bad), capture_output=True, stdin=subprocess.DEVNULL)
        err = p.stderr.decode()
        check(p.returncode == 1 and err.count("\n") == 1 and bad.split("/")[1] in err, "one line", err)


def a_failed_run_is_tried_once_by_all_workers():
    d = folder()
    words = ["sweep", *TINY, "train.steps=6", "train.nan_limit=2", "train.lr=0.001,0.002", "--seeds", "1,2", "--quiet"]
    bad = {"DEPTHSCOPE_FAIL": "nan:3+"}
    workers = [begin(d, [*words, "--out", "out%d.json" % i], **bad) for i in range(3)]
    for i, p in enumerate(workers):
        status, out, err = finish(p, 60)
        check(status == 1, "exit status", err)
        rows = json.load(open(os.path.join(d, "out%d.json" % i)))["rows"]
        check([len(r["failures"]) for r in rows] == [2, 2], "all are named by every worker", str(rows)[:800])
    out, err = finished(d, [*words, "--status", "--json"])
    x = json.loads(out)
    check((x["failed"], x["done"]) == (4, 0) and "NaN" in x["runs"][0]["reason"], "the status", out)
    finished(d, words)   # without the fault: a new command tries again
    check(json.loads(finished(d, [*words, "--status", "--json"])[0])["done"] == 4, "all done")


def the_status_says_who_does_what():
    d = folder()
    check(json.loads(finished(d, [*SWEEP, "--status", "--json"])[0])["waiting"] == 8, "before anything")
    p = begin(d, [*SWEEP, "--jobs", "2"], **SLOWLY)
    wait_for(lambda: is_slow(d, 2))
    x = json.loads(finished(d, [*SWEEP, "--status", "--json"])[0])
    check((x["running"], x["waiting"]) == (2, 6), "counts", str(x))
    check(x["workers"] == [{"host": socket.gethostname(), "pid": p.pid, "runs": 2}], "workers", str(x["workers"]))
    out, _ = finished(d, [*SWEEP, "--status"])
    check("8 runs: 2 running, 6 waiting; workers: %s 2" % socket.gethostname() in out, "as text", out)
    p.terminate()
    check(finish(p)[0] == 143, "interrupted")
    check(json.loads(finished(d, [*SWEEP, "--status", "--json"])[0])["waiting"] == 8, "interrupted runs wait")


def launched_workers_do_the_same():
    d = os.path.join(folder(), "it's $HOME")
    os.mkdir(d)
    out, err = finished(d, [*SWEEP, "--jobs", "3", "--launch", "WORKER={n} sh -c {}"])
    check(results(d) == alone(), "the results")
    trained_once(d)


def a_launched_worker_that_dies_is_replaced_and_the_last_is_missed():
    d = folder()
    p = begin(d, [*SWEEP, "--jobs", "2", "--launch", "sh -c {}"], **SLOWLY)
    wait_for(lambda: is_slow(d, 2))
    os.kill([x["pid"] for r, x in held(d) if not r.startswith("leader")][0], signal.SIGKILL)
    status, out, err = finish(p, 120)
    check(status == 0 and re.search("worker [12]: .*(Killed|137|signal 9)", err), "it is reported", err)
    check(results(d) == alone(), "the results")
    d = folder()
    out, err = finished(d, [*SWEEP, "--launch", "false {}"], code=1)
    check("8 of 8 runs are not done and no worker is left" in err, "nobody is left", err)


def the_end_of_the_launching_process_ends_its_workers():
    d = folder()
    p = begin(d, [*SWEEP, "--jobs", "2", "--launch", "setsid sh -c {}"], **SLOWLY)   # out of reach of signals, as over ssh
    wait_for(lambda: is_slow(d, 2))
    p.terminate()
    check(finish(p, 60)[0] == 143, "interrupted")
    wait_for(lambda: held(d) == [])
    check(json.loads(finished(d, [*SWEEP, "--status", "--json"])[0])["running"] == 0, "nothing runs")
    finished(d, SWEEP)
    check(results(d) == alone(), "resumed")


def a_script_for_slurm_names_what_is_left():
    d = folder()
    out, err = finished(d, [*SWEEP, "--slurm", "--jobs", "3", "--sbatch", "--time=1:00:00 --mem=2G"])
    script = re.search(r"submit with: sbatch (\S+)", out).group(1)
    text = open(script).read()
    for line in ("#SBATCH --array=1-8%3", "#SBATCH --time=1:00:00", "#SBATCH --mem=2G", "#SBATCH --requeue",
                 "#SBATCH --signal=B:USR1@120"):
        check(line + "\n" in text, line, text)
    check(subprocess.run(["sh", "-n", script]).returncode == 0, "a script")
    for i in (2, 3):   # what a task does, without Slurm
        p = subprocess.run(["sh", script], env=dict(os.environ, SLURM_ARRAY_TASK_ID=str(i)), capture_output=True)
        check(p.returncode == 0, "a task", p.stderr.decode())
    check(len(runs_of(d)) == 2, "each does its run", str(runs_of(d)))
    out, err = finished(d, [*SWEEP, "--slurm"])
    check("#SBATCH --array=1,4-8\n" in open(script).read(), "what is left")
    finished(d, SWEEP)
    check(results(d) == alone(), "the results")
    out, err = finished(d, [*SWEEP, "--slurm"], code=1)
    check("all runs are done" in err, "nothing to submit", err)


def bad_options_are_refused_in_one_line():
    d = folder()
    for part, words in (("must be an integer from 1", ["--jobs", "0"]), ("must be an integer from 1", ["--jobs", "x"]),
                        ("expected {}", ["--launch", "ssh box"]), ("seconds from 1", ["--lease", "0"]),
                        ("seconds from 1", ["--lease", "nan"]), ("expected the id", ["--worker", "../x"]),
                        ("--index is for workers", ["--index", "1"]), ("--sbatch is for", ["--sbatch", "--time=1"]),
                        ("only one of", ["--slurm", "--status"])):
        out, err = finished(d, [*SWEEP, *words], code=2)
        check(part in err and err.count("\n") == 1, "%s" % words, err)
    out, err = finished(d, [*SWEEP, "--worker", "0123456789abcdef"], code=1)
    check("no such batch" in err and err.count("\n") == 1, "an id of another folder", err)
    check(runs_of(d) == [], "nothing was started")


TESTS = [four_workers_one_killed_give_what_one_gives, many_jobs_of_one_worker_give_the_same,
         a_killed_worker_leaves_no_process_that_trains, a_stale_lease_of_another_host_is_taken_over_whatever_its_clock_says,
         a_lease_that_is_renewed_elsewhere_is_respected, a_worker_that_was_suspended_goes_on_where_it_was,
         a_worker_whose_lease_was_taken_over_stops_its_run,
         workers_with_another_plan_are_refused, a_folder_that_vanishes_is_one_line_and_nothing_is_lost,
         a_failed_run_is_tried_once_by_all_workers, the_status_says_who_does_what, launched_workers_do_the_same,
         a_launched_worker_that_dies_is_replaced_and_the_last_is_missed, the_end_of_the_launching_process_ends_its_workers,
         a_script_for_slurm_names_what_is_left, bad_options_are_refused_in_one_line]

if __name__ == "__main__":
    run_tests(TESTS)
