#!/usr/bin/env python3
"""One run on many ranks (make MPI=1): the same bits on any number of them, and what happens when one is lost.  Every MPI that is
installed builds a program of its own below the build folder, of the objects that are there."""
import glob
import hashlib
import json
import os
import random
import shutil
import signal
import struct
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "fault"))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "src", "python"))
import kit_run  # noqa: E402
import t  # noqa: E402
from depthscope._log import frame_body, frame_length  # noqa: E402
from depthscope._msgpack import unpack  # noqa: E402
from t import LONG, PROGRAM, ROOT, SLOW, Skip, test  # noqa: E402

BUILD = os.environ.get("BUILD_DIR", "build/release")
ROOTED = dict(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", OMPI_MCA_rmaps_base_oversubscribe="1",
              OMPI_MCA_hwloc_base_binding_policy="none", OMPI_MCA_btl_vader_single_copy_mechanism="none")
TINY = ("model.layers=6 model.dim=16 model.heads=2 model.vocab=300 model.max_seq=64 data.docs=40 data.tokenizer=bytes "
        "data.val_fraction=0.2 train.batch=8 train.seq=16 train.warmup=2 train.eval_tokens=320 train.final_tokens=704 "
        "train.samples=300 train.time_rounds=0 train.probes=4 train.probe_tokens=16 train.eval_every=3 train.probe_every=50 "
        "train.checkpoint_every=4 train.steps=4 train.layer_every=2 train.system_every=0 threads=1").split()
MPIS = {}  # name: (mpirun, program)


def find_mpis():
    """Builds the programs: one for each MPI whose compiler and launcher are there."""
    variant = {"release": [], "cover": ["COV=1"]}.get(os.path.basename(BUILD))
    if variant is None:
        raise Skip("MPI programs are checked with the release build and that of COV=1 alone, this is %s" % BUILD)
    pairs = [("openmpi", "mpicc.openmpi", "mpirun.openmpi"), ("mpich", "mpicc.mpich", "mpirun.mpich"), ("mpi", "mpicc", "mpirun")]
    for name, cc, run in pairs:
        if not shutil.which(cc) or not shutil.which(run) or (name == "mpi" and MPIS):
            continue
        program = os.path.join(BUILD, cc, "depthscope")
        made = subprocess.run(["make", "-s", "-C", ROOT, "MPI=1", *variant, "MPICC=" + cc, "TOP=", program], capture_output=True, text=True)
        if made.returncode != 0:
            raise AssertionError("make MPI=1 MPICC=%s: %s" % (cc, made.stdout + made.stderr))
        MPIS[name] = (run, os.path.join(ROOT, program))
    if not MPIS:
        raise Skip("no MPI here: mpicc and mpirun of Open MPI or MPICH")


def mpis():
    if not MPIS:
        raise Skip("no MPI program, see above")
    return list(MPIS)


def setup():
    try:
        find_mpis()
    except Skip as x:
        print("SKIP the programs: %s" % x)


def first():
    return mpis()[0]


def launch(ranks, words, mpi=None, apart=None, **env):
    """Starts a run on so many ranks; apart: words that only the last rank is given."""
    run, program = MPIS[mpi or first()]
    if apart is None:
        line = [run, "-n", str(ranks), program, "train", *words]
    else:
        line = [run, "-n", str(ranks - 1), program, "train", *words, ":", "-n", "1", program, "train", *words, *apart]
    return subprocess.Popen(line, env={**os.environ, **ROOTED, **env}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True)


def train(ranks, *words, mpi=None, code=0, **kw):
    """Runs to its end; 0 ranks: the plain program, 1: the MPI one without a launcher."""
    mpi = mpi or (first() if ranks else None)
    if ranks <= 1:
        p = subprocess.Popen([MPIS[mpi][1] if ranks else PROGRAM, "train", *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE, text=True)
    else:
        p = launch(ranks, words, mpi, **kw)
    out, err = p.communicate(timeout=180 * SLOW)
    train.err = err
    assert (p.returncode == 0) == (code == 0), "%d ranks, %s: exit status %d\n%s" % (ranks, " ".join(words), p.returncode, err[-3000:])
    return out


def ours(err):
    """The lines of this program; launchers add their own."""
    return [x for x in err.splitlines() if x.startswith("depthscope: ")]


def measured(run):
    """What the log holds of evaluations, probes and layers, but for the times; ranks divide them."""
    with open("runs/%s/log.mp" % run, "rb") as f:
        data = f.read()
    found, at = [], 0
    while at < len(data):
        size = frame_length(data[at:at + 6])
        found.append(unpack(frame_body(data[at:at + size])[1]))
        at += size
    return [{k: v for k, v in r.items() if k != "time"} for r in found if r["kind"] in ("eval", "sample", "probe", "layer")]


def bits(run, step=4):
    """Of a checkpoint, all but the times."""
    at = "runs/%s/checkpoints/step-%08d" % (run, step)
    h = {}
    for name in ("model.safetensors", "optimizer.safetensors"):
        with open(os.path.join(at, name), "rb") as f:
            h[name] = hashlib.sha256(f.read()).hexdigest()
    with open(os.path.join(at, "state.json")) as f:
        state = json.load(f)
    del state["seconds"]
    return h, state


def same(name, *words, ranks=(1, 2, 3, 4, 8), pieces=8, mpi=None, step=4):
    """The checkpoints of all these numbers of ranks are those of the plain program with as many pieces."""
    words = [*TINY, *words, "train.pieces=%d" % pieces]
    train(0, "--run", name + "-plain", *words)
    want, log = bits(name + "-plain", step), measured(name + "-plain")
    assert len([r for r in log if r["kind"] == "eval"]) > 1, log
    for n in ranks:
        run = "%s-%d" % (name, n)
        train(n, "--run", run, *words, mpi=mpi)
        assert bits(run, step) == want, "%s: %d ranks differ from one" % (" ".join(words[len(TINY):]), n)
        for a, b in zip(measured(run), log):
            other = {k: (a.get(k), v) for k, v in b.items() if repr(a.get(k)) != repr(v)}
            assert not other, "%s, step %d: %d ranks and one measured %r" % (" ".join(words[len(TINY):]), b["step"], n, other)
        assert len(measured(run)) == len(log), "%d ranks wrote %d records, one %d" % (n, len(measured(run)), len(log))
        shutil.rmtree("runs/" + run)
    return want


def methods():
    t.run("train", "model.method=none-such", code=2)
    return t.run.err.split("expected one of:")[1].split()


SPECIAL = {"halt": ["halt.fit=train"], "ouro": ["model.loop=2", "model.layers=4"]}


@test
def all_rank_counts_give_the_bits_of_one_process():
    same("dense", "model.method=dense")
    same("mod", "model.method=mod")


@test
def every_method_gives_the_same_bits():
    mpis()
    for m in methods():
        same("m-" + m, "model.method=" + m, *SPECIAL.get(m, []), ranks=(1, 2, 3, 4, 8) if LONG else (3,))


@test
def every_mpi_gives_the_same_bits():
    for mpi in mpis():
        same("mpi-" + mpi, "model.method=gateskip", ranks=(1, 2), mpi=mpi)


@test
def experts_teachers_exits_and_adapters_give_the_same_bits():
    mpis()
    n = (2, 3, 8) if LONG else (3,)
    same("experts", "model.experts=4", "model.experts_used=2", ranks=n)
    same("teacher", "model.method=mod", "train.teacher=self", "train.kd_warmup=1", ranks=n)
    same("exits", "train.exit_loss=all", ranks=n)
    same("recompute", "model.method=edp", "train.recompute=true", ranks=n)
    same("bf16", "compute=bf16", ranks=n)


@test
def fast_sums_are_those_of_as_many_pieces_and_bfloat16_is_near():
    mpis()
    words = [*TINY, "model.method=mod"]
    train(3, "--run", "fast", *words, "train.reduce=fast")
    train(0, "--run", "fast-like", *words, "train.pieces=3")
    assert bits("fast") == bits("fast-like")
    out = train(3, "--run", "narrow", *words, "train.reduce=fast", "train.wire=bf16", "--json")
    want = train(0, "--run", "wide", *words, "--json")
    loss = [[json.loads(x)["loss"] for x in o.splitlines() if x.startswith("{")] for o in (out, want)]
    assert len(loss[0]) == 4 and all(abs(a - b) < 2e-3 * b for a, b in zip(*loss)), loss
    assert loss[0][1:] != loss[1][1:], "bfloat16 changed nothing"
    t.refused("train.reduce=fast", "train", "--run", "x", *TINY, "train.wire=bf16")
    t.refused("train.pieces", "train", "--run", "x", *TINY, "train.reduce=fast", "train.pieces=4")


@test
def divided_moments_give_the_same_bits_and_the_same_checkpoints():
    mpis()
    words = [*TINY, "model.method=edp", "train.pieces=8", "train.steps=8"]
    train(0, "--run", "moments", *words)
    for n in (2, 3, 8) if LONG else (3,):
        run = "moments-%d" % n
        train(n, "--run", run, *words, "train.shard=optimizer")
        assert bits(run, 8) == bits("moments", 8), n
        shutil.rmtree("runs/%s/checkpoints/step-00000008" % run)
        train(2, "--resume", run)
        assert bits(run, 8) == bits("moments", 8), n
    p = launch(2, ["--run", "moments-said", *words, "train.shard=optimizer"])
    said = next((x for x in p.communicate(timeout=60 * SLOW)[1].splitlines() if "per rank" in x), "")
    assert "rank 0 has all moments while" in said, said
    train(3, "--run", "moments-fast", *TINY, "train.reduce=fast", "train.wire=bf16", "train.shard=optimizer")


@test
def a_batch_that_no_number_of_ranks_divides_gives_the_same_bits():
    mpis()
    same("odd", "train.batch=7", pieces=5, ranks=(1, 2, 3, 4, 5))
    same("seven", "train.batch=7", "model.method=hat", pieces=7, ranks=(2, 3))


@test
def resume_on_other_rank_counts_is_as_if_never_interrupted():
    mpis()
    words = [*TINY, "model.method=edp", "train.pieces=8", "train.steps=12"]
    train(0, "--run", "whole", *words)
    train(2, "--run", "cut", *words, "train.keep=10")
    assert bits("cut", 12) == bits("whole", 12)
    for late in ("step-00000008", "step-00000012"):  # as a kill after step 4 leaves it
        shutil.rmtree("runs/cut/checkpoints/" + late)
    train(3, "--resume", "cut")
    assert bits("cut", 12) == bits("whole", 12)
    shutil.rmtree("runs/cut/checkpoints/step-00000012")
    train(1, "--resume", "cut")
    assert bits("cut", 12) == bits("whole", 12)


@test
def without_pieces_one_process_is_as_ever_and_ranks_choose_them():
    mpis()
    train(0, "--run", "default-0", *TINY)
    train(1, "--run", "default-1", *TINY)
    assert bits("default-0") == bits("default-1")
    train(2, "--run", "default-2", *TINY)
    assert "train.pieces=8" in train.err, train.err
    train(0, "--run", "default-8", *TINY, "train.pieces=8")
    assert bits("default-2") == bits("default-8")


@test
def more_ranks_than_pieces_are_refused_in_one_line():
    train(3, "--run", "many", *TINY, "train.pieces=2", code=2)
    assert len(ours(train.err)) == 1 and "3 ranks" in train.err and "train.pieces=2" in train.err, train.err
    train(3, "--run", "many", *TINY, "train.batch=2", code=2)
    assert "3 ranks" in train.err and "train.batch=2" in train.err, train.err
    assert not os.path.exists("runs/many")
    train(0, "--run", "one", *TINY)
    train(2, "--resume", "one", code=2)
    assert "train.pieces" in train.err and "--allow-change" in train.err, train.err


@test
def a_rank_that_differs_is_named_at_the_start():
    mpis()
    train(2, "--run", "differs", *TINY, apart=["train.lr=0.001"], code=2)
    lines = ours(train.err)
    assert len(lines) == 1 and "rank 1 on " in lines[0] and "train.lr=" in lines[0], train.err
    assert not os.path.exists("runs/differs"), "a run that could not start is there"
    run, program = MPIS[first()]
    line = [run, "-n", "1", program, "train", "--run", "kernels", *TINY, ":", "-n", "1", "env", "DEPTHSCOPE_GEMM=blas", program, "train",
            "--run", "kernels", *TINY]
    p = subprocess.run(line, env={**os.environ, **ROOTED}, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60 * SLOW)
    assert p.returncode != 0 and "rank 1 on " in p.stderr and "other bits" in p.stderr, p.stderr
    other = os.path.abspath("other-program")
    with open(program, "rb") as f, open(other, "wb") as g:
        g.write(f.read() + b"\n")
    os.chmod(other, 0o755)
    line = [run, "-n", "1", program, "train", "--run", "program", *TINY, ":", "-n", "1", other, "train", "--run", "program", *TINY]
    p = subprocess.run(line, env={**os.environ, **ROOTED, "DEPTHSCOPE_DATA": os.path.join(ROOT, "data")}, stdin=subprocess.DEVNULL,
                       capture_output=True, text=True, timeout=60 * SLOW)
    assert p.returncode != 0 and "rank 1 on " in p.stderr and "another program" in p.stderr, p.stderr


@test
def a_program_without_mpi_says_so_once():
    run = shutil.which("mpirun.openmpi") or shutil.which("mpirun.mpich") or shutil.which("mpirun")
    if not run:
        raise Skip("no mpirun here")
    p = subprocess.run([run, "-n", "3", PROGRAM, "train", "--run", "none", *TINY], env={**os.environ, **ROOTED},
                       stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60 * SLOW)
    lines = ours(p.stderr)
    assert p.returncode == 2 and len(lines) == 1 and "built without MPI" in lines[0], (p.returncode, p.stderr)
    assert not os.path.exists("runs/none")


# ---- ranks that are lost ----

def processes(program):
    """Process ids of a program's ranks, and the rank of each."""
    found = {}
    for p in glob.glob("/proc/[0-9]*"):
        try:
            if os.path.realpath(p + "/exe") != os.path.realpath(program):
                continue
            env = open(p + "/environ", "rb").read().split(b"\0")
        except OSError:
            continue
        for name in (b"OMPI_COMM_WORLD_RANK=", b"PMI_RANK="):
            for x in env:
                if x.startswith(name):
                    found[int(x[len(name):])] = int(os.path.basename(p))
    return found


def steps_of(run):
    return int(sorted(glob.glob("runs/%s/checkpoints/step-????????" % run))[-1][-8:])


def lose(how, rank, mpi, run, seconds, ranks=3, timeout=3):
    words = [*TINY, "train.steps=100000", "train.pieces=8", "train.checkpoint_every=10", "train.rank_timeout=%g" % timeout]
    p = launch(ranks, ["--run", run, *words], mpi)
    program = MPIS[mpi][1]
    end = time.monotonic() + 60 * SLOW
    while not glob.glob("runs/%s/checkpoints/step-????????" % run) and time.monotonic() < end:
        time.sleep(0.05)
    pids = processes(program)
    assert sorted(pids) == list(range(ranks)), pids
    os.kill(pids[rank], how)
    began = time.monotonic()
    try:
        p.wait(timeout=seconds * SLOW)
    except subprocess.TimeoutExpired:
        for pid in processes(program).values():
            os.kill(pid, signal.SIGKILL)
        p.kill()
        raise AssertionError("%s: a lost rank did not end the run within %g s" % (mpi, seconds))
    lost = time.monotonic() - began
    out, err = p.communicate()
    assert p.returncode != 0, (p.returncode, err)
    wait = time.monotonic() + 5 * SLOW
    while processes(program) and time.monotonic() < wait:
        time.sleep(0.05)
    assert not processes(program), "ranks are left: %r" % processes(program)
    lines = [x for x in ours(err) if "rank %d on " % rank in x]
    # MPICH's launcher kills the others at once when a process dies, before one can say which, and names host and process
    assert len(lines) == 1 or (mpi == "mpich" and how == signal.SIGKILL and "RUNNING AT" in out + err), (mpi, rank, lost, out, err)
    # what is there is whole: the run goes on from its newest checkpoint, on any number of ranks
    newest = steps_of(run)
    train(2, "--resume", run, "--allow-change", "train.steps=%d" % (newest + 4), mpi=mpi)
    shutil.rmtree("runs/" + run)


@test
def a_killed_rank_ends_the_run_and_is_named():
    for mpi in mpis():
        for rank in (0, 2):
            lose(signal.SIGKILL, rank, mpi, "killed-%s-%d" % (mpi, rank), 10)


@test
def a_stopped_rank_ends_the_run_and_is_named():
    for mpi in mpis():
        for rank in (0, 1):
            lose(signal.SIGSTOP, rank, mpi, "stopped-%s-%d" % (mpi, rank), 25)


@test
def ranks_killed_at_random_moments_leave_a_run_that_resumes():
    mpis()
    words = [*TINY, "train.steps=100000", "train.pieces=8", "train.checkpoint_every=7", "train.rank_timeout=3"]
    train(3, "--run", "random", *TINY, "train.pieces=8", "train.checkpoint_every=7")
    for i in range(50 if LONG else 4):
        p = launch(3, ["--resume", "random", "--allow-change", *words[len(TINY):]])
        time.sleep(random.uniform(0.2, 2))
        pids = list(processes(MPIS[first()][1]).values())
        if pids:
            os.kill(random.choice(pids), signal.SIGKILL)
        try:
            out, err = p.communicate(timeout=60 * SLOW)
        except subprocess.TimeoutExpired:
            p.kill()
            raise AssertionError("kill %d: the run did not end" % i)
        assert p.returncode != 0, (i, err)
    steps = [int(x[-8:]) for x in glob.glob("runs/random/checkpoints/step-????????")]
    train(1, "--resume", "random", "--allow-change", "train.steps=%d" % (max(steps) + 2))


@test
def allocations_that_fail_on_a_rank_end_the_run():
    run, program = MPIS[first()]
    words = ["train", "--run", "memory", *TINY, "train.steps=100000", "train.pieces=8", "train.rank_timeout=5"]
    p = subprocess.run([run, "-n", "2", program, *words, ":", "-n", "1", "env", "DEPTHSCOPE_FAIL=alloc:30000+", program, *words],
                       env={**os.environ, **ROOTED}, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=90 * SLOW)
    lines = [x for x in ours(p.stderr) if "out of memory" in x]
    assert p.returncode != 0 and len(lines) == 1 and "rank 2 on " in lines[0], (p.returncode, p.stderr)
    train(2, "--resume", "memory", "--allow-change", "train.steps=%d" % (steps_of("memory") + 2))


@test
def a_full_disk_ends_the_run_when_it_is_stopped_and_a_resume_goes_on():
    p = launch(3, ["--run", "full", *TINY, "train.steps=100000", "train.pieces=8", "train.checkpoint_every=10"],
               DEPTHSCOPE_FAIL="fsync:40+=ENOSPC")
    line, end = "", time.monotonic() + 60 * SLOW
    while "No space left" not in line and time.monotonic() < end:
        line = p.stderr.readline()
    assert "checkpoint" in line and "No space left" in line, line
    kit_run.RUNS = os.path.abspath("runs")
    assert kit_run.ask("full", "stop").startswith("ok")
    p.communicate(timeout=60 * SLOW)
    assert p.returncode != 0, "a checkpoint that could not be written is a failure"
    assert not processes(MPIS[first()][1])
    train(2, "--resume", "full", "--allow-change", "train.steps=%d" % (steps_of("full") + 2))


@test
def the_benchmark_measures_ranks_and_predicts_by_them():
    run, program = MPIS[first()]
    def bench(n, *words):
        return subprocess.run([run, "-n", str(n), program, "bench", *words], env={**os.environ, **ROOTED}, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=120 * SLOW)
    p = bench(2, "--json", "only=ranks", "quick=true", "threads=1", "layers=2", "dim=32", "vocab=64", "batch=1", "seq=16", "rounds=1")
    assert p.returncode == 0, p.stderr
    of = {r["name"]: r["median"] for r in json.loads(p.stdout)["results"]}
    assert all(of[k] > 0 for k in ("own work of a step", "message", "link, each direction", "addition in memory")), of
    assert of["step predicted, 2 ranks, as here"] > of["own work of a step"], of
    for n in (8, 1024):
        assert of["step predicted, %d ranks, 10 Gbit/s" % n] > of["step predicted, %d ranks, 100 Gbit/s" % n], of
    # a step of few weights is exchanges of messages: 2 x 1 + 4 of them, of 30 us and 1023 messages
    want = of["own work of a step"] + 6 * (0.030 + 1023e-3 * of["message"])
    assert want < of["step predicted, 1024 ranks, 10 Gbit/s"] < want + 0.5, (want, of)
    train(0, "--run", "bench-model", *TINY)
    p = bench(2, "bench-model", "only=ranks", "prefill=16", "decode=8")
    assert p.returncode == 2 and len(ours(p.stderr)) == 1 and "only=ranks has no MODEL" in p.stderr, p.stderr
    p = bench(2, "only=ops")
    assert p.returncode == 2 and len(ours(p.stderr)) == 1 and "only=ranks" in p.stderr, p.stderr
    t.run("bench", "only=ranks", code=2)
    assert "mpirun" in t.run.err, t.run.err


@test
def settings_stops_and_records_work_on_ranks():
    mpis()
    words = [*TINY, "train.steps=100000", "train.pieces=8", "train.checkpoint_every=50"]
    kit_run.RUNS = os.path.abspath("runs")
    p = launch(3, ["--run", "live", *words])
    end = time.monotonic() + 60 * SLOW
    while not glob.glob("runs/live/checkpoints/step-????????") and time.monotonic() < end:
        time.sleep(0.05)
    assert kit_run.ask("live", "set train.lr 0.001").startswith("ok"), "set"
    assert kit_run.ask("live", "pause").startswith("ok")
    time.sleep(0.5)
    assert kit_run.ask("live", "resume").startswith("ok")
    assert kit_run.ask("live", "stop").startswith("ok")
    out, err = p.communicate(timeout=60 * SLOW)
    assert p.returncode == 0, (p.returncode, err)
    found = [r for _, r in kit_run.records("live") if r["kind"] == "ranks"]
    assert found, "no record of the ranks"
    assert len(found[-1]["host"]) == 3 and len(found[-1]["step_ms"]) == 12, found[-1]
    for r in found:
        assert all(x > 0 for k in ("step_ms", "bytes") for x in struct.unpack("<3f", r[k])), r
    # the setting reached all ranks: one process that gets it at the same step has the same bits
    step = int(sorted(glob.glob("runs/live/checkpoints/step-????????"))[-1][-8:])
    with open("runs/live/live.json") as f:
        assert "train.lr" in json.load(f)
    train(2, "--resume", "live", "--allow-change", "train.steps=%d" % (step + 3))


if __name__ == "__main__":
    t.main(setup=setup)
