"""A sweep as a job array of a real Slurm cluster of one node: a task that was killed is submitted again, one that ran out of time is
queued again by itself, and the results are those of one process."""
from kit_run import *

import slurm

SWEEP = ["sweep", *TINY, "train.steps=30", "train.lr=0.001,0.002,0.003,0.004", "--seeds", "1,2"]


def folder():
    return tempfile.mkdtemp(dir=RUNS)


def call(d, *words, code=0, **more):
    p = subprocess.run([PROGRAM, *SWEEP, *words], env=dict(environment(), DEPTHSCOPE_RUNS=d, **more), stdin=subprocess.DEVNULL,
                       capture_output=True, timeout=300 * SLOW)
    check(p.returncode == code, "exit status", "%d: %s" % (p.returncode, p.stderr.decode()[-1000:]))
    return p.stdout.decode()


def results(d):
    text = open(os.path.join(d, "sweep.json")).read()
    return re.sub(r'"(time_ratio|decode_time_ratio)":(null|[-0-9.e+]+|\{[^}]*\})', r'"\1":0', text)


def status(d):
    return json.loads(call(d, "--status", "--json"))


def an_array_of_eight_runs_with_one_killed_and_one_out_of_time_gives_the_same():
    top = tempfile.mkdtemp(prefix="ds-slurm-")   # the path of a socket must be short
    try:
        cluster = slurm.Cluster(top)
        try:
            with_cluster(cluster)
        finally:
            cluster.ask("scancel", "-u", "root")
            wait_for(lambda: not cluster.ask("squeue", "-h").strip(), 30)
            cluster.stop()
    finally:
        shutil.rmtree(top, ignore_errors=True)


def with_cluster(cluster):
    d, alone = folder(), folder()
    call(alone)
    script = re.search(r"submit with: sbatch (\S+)", call(d, "--slurm", "--jobs", "2")).group(1)
    submit = lambda: re.search(r"job (\d+)", cluster.ask("sbatch", "--export=ALL,DEPTHSCOPE_FAIL=slow:10", script)).group(1)
    job = submit()
    training = lambda: [x for x in status(d)["runs"] if x["state"] == "running" and (x["step"] or 0) > 3 and x.get("pid")]
    wait_for(lambda: len(training()) == 2, 60)
    killed, late = training()
    os.kill(killed["pid"], signal.SIGKILL)
    script_of = int(open("/proc/%d/stat" % late["pid"]).read().rpartition(")")[2].split()[1])
    os.kill(script_of, signal.SIGUSR1)   # as Slurm does before the time limit
    wait_for(lambda: not cluster.ask("squeue", "-h").strip(), 180)
    x = status(d)
    check((x["done"], x["waiting"]) == (7, 1), "all but the killed one are done", str(x)[:1500])
    check([r["name"] for r in x["runs"] if r["state"] == "waiting"] == [killed["name"]], "the killed one waits")
    heads = lambda name: sum(b["kind"] == "head" for _, b in records(os.path.join(d, name)))
    check(heads(late["name"]) == 2, "the late one was queued again and resumed", str(heads(late["name"])))
    check("1 run:" in call(d, "--slurm"), "the rule of resubmission: the script again, of what is left")
    check("--array=%d\n" % killed["index"] in open(script).read(), "that is the killed one")
    submit()
    wait_for(lambda: not cluster.ask("squeue", "-h").strip(), 120)
    check(status(d)["done"] == 8, "all done", str(status(d))[:800])
    check(heads(killed["name"]) == 2, "the killed one was resumed")
    check(all(heads(r["name"]) == 1 for r in x["runs"] if r["name"] not in (killed["name"], late["name"])), "the others ran once")
    call(d)
    check(results(d) == results(alone), "the results of one process", "\n%s\n%s" % (results(d)[:600], results(alone)[:600]))


TESTS = [an_array_of_eight_runs_with_one_killed_and_one_out_of_time_gives_the_same]

if __name__ == "__main__":
    run_tests(TESTS)
