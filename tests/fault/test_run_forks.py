"""train --resume NAME --from best|STEP: an older checkpoint begins a run of its own; a run that diverged is taken up again."""
from kit_run import *

KEYS = TINY + ["train.steps=100", "train.keep=100", "train.eval_every=20", "--quiet"]


def snapshot(run):
    """Every file of a run and its bytes, but the lock and the socket's place."""
    out = {}
    for where, _, names in os.walk(path(run)):
        for name in names:
            out[os.path.relpath(os.path.join(where, name), path(run))] = sha(where, name)
    return out


def meta(run):
    return json.load(open(path(run, "meta.json")))


def an_older_step_is_a_new_run_and_the_parent_is_not_touched():
    check(train(*KEYS, "--run", "first")[0] == 0, "a run")
    before = snapshot("first")
    status, out, err = train("--resume", "first", "--from", "40", "--quiet")
    check(status == 0, "the fork", err)
    check("first-from-40: new run from step 40 of" in err, "its name is told", err)
    check(snapshot("first") == before, "the parent is as it was")
    check(meta("first-from-40")["parent"] == "first" and meta("first-from-40")["preset"] == "quick", "meta", str(meta("first-from-40")))
    r = check_stream("first-from-40")
    check((r[0]["kind"], r[0]["step"], r[0]["parent"]) == ("head", 40, "first"), "the head names it", str(r[0])[:300])
    check([x["step"] for x in r if x["kind"] == "metric"] == list(range(41, 101)), "steps")
    check(weights("first-from-40", 100) == weights("first", 100), "the same keys: the same run")
    check(meta("first")["parent"] == "", "and the parent has none")


def a_fork_may_have_other_keys_and_another_name():
    status, _, err = train("--resume", "first", "--from", "40", "--run", "slower", "train.lr=1e-4", "--quiet")
    check(status == 0, "the fork", err)
    check(weights("slower", 100) != weights("first", 100), "another learning rate")
    check("lr: 0.0001" in open(path("slower", "config.yaml")).read(), "its own config.yaml")
    status, _, err = train("--resume", "first", "--from", "40", "--run", "slower")
    check(status == 1 and "run exists" in err, "no run is overwritten", err)
    check(train("--resume", "first", "--from", "40", "--quiet")[0] == 0 and os.path.isdir(path("first-from-40-2")), "a second one")
    p = start("--resume", "first", "--from", "20", "--run", "cut", "--quiet", DEPTHSCOPE_FAIL="slow:22+")
    wait_for(is_up("cut"))
    p.kill()
    p.wait()
    check(train("--resume", "cut", "--quiet")[0] == 0, "a fork that was killed goes on")
    check([x["step"] for x in check_stream("cut") if x["kind"] == "head"][0] == 20, "from its first step")
    check(weights("cut", 100) == weights("first", 100), "to the same end")


def the_newest_step_goes_on_in_place():
    p = start(*KEYS, "train.steps=1000000", "--run", "place")
    wait_for(lambda: os.path.isdir(path("place", "checkpoints", "step-00000040")))
    p.terminate()
    finish(p)
    newest = max(int(x[5:]) for x in os.listdir(path("place", "checkpoints")))
    runs = set(os.listdir(RUNS))
    p = start("--resume", "place", "--from", str(newest), "--quiet")
    wait_for(lambda: len([1 for _, x in records("place") if x["kind"] == "head"]) == 2)
    p.terminate()
    finish(p)
    check(set(os.listdir(RUNS)) == runs, "no new run", str(set(os.listdir(RUNS)) - runs))


def best_is_what_best_json_names():
    best = json.load(open(path("first", "best.json")))["step"]
    with open(path("first", "best.json"), "w") as f:
        json.dump({"step": 60, "val_loss": 1.0}, f)
    check(train("--resume", "first", "--from", "best", "--quiet")[0] == 0, "the fork")
    check(check_stream("first-from-60")[0]["step"] == 60, "from the best step")
    with open(path("first", "best.json"), "w") as f:
        json.dump({"step": best, "val_loss": 1.0}, f)


def invalid_requests_are_one_line():
    for args, part in [
        (["--resume", "first", "--from", "41"], "no checkpoint of step 41; available steps: 20, 40, 60, 80, 100"),
        (["--resume", "first", "--from", "bset"], "--from bset: expected best or a step"),
        (["--resume", "first", "--from", "-3"], "--from -3: expected best or a step"),
        (["--from", "40"], "missing run; use --resume NAME"),
        (["--resume", "first", "--run", "other"], "--from best|STEP to start a new run"),
        (["--resume", "first", "train.lr=1"], "use --allow-change to set train.lr=1"),
        (["--resume", "nowhere", "--from", "best"], "run not found"),
    ]:
        status, _, err = train(*args)
        check(status != 0 and part in err and len(err.strip().splitlines()) == 1, "one line", "%s: %s" % (args, err))
    damaged = path("first", "checkpoints", "step-00000080", "model.safetensors")
    with open(damaged, "r+b") as f:
        f.seek(2000)
        f.write(b"damage")
    runs = set(os.listdir(RUNS))
    status, _, err = train("--resume", "first", "--from", "80")
    check(status == 1 and "SHA-256" in err and set(os.listdir(RUNS)) == runs, "a damaged one begins nothing", err)


def a_run_that_diverged_resumes_from_its_last_good_checkpoint():
    p = start(*KEYS, "train.nan_limit=3", "--run", "nan", DEPTHSCOPE_FAIL="nan:50+")
    status, _, err = finish(p)
    check(status == 1 and "3 consecutive steps had NaN or Inf" in err, "it fails", err)
    command = re.search(r"of step 40: depthscope (train --resume \S+ --allow-change train.lr=\S+)", err)
    check(command, "the command is told", err)
    check(sorted(os.listdir(path("nan", "checkpoints"))) == ["step-00000020", "step-00000040"], "no broken one",
          str(os.listdir(path("nan", "checkpoints"))))
    p = subprocess.run([PROGRAM, *command.group(1).split(), "--quiet"], env=environment(), capture_output=True, timeout=60 * SLOW)
    check(p.returncode == 0, "and it works", p.stderr.decode())
    check(check_stream("nan")[-1]["status"] == "done", "to the end")


TESTS = [an_older_step_is_a_new_run_and_the_parent_is_not_touched, a_fork_may_have_other_keys_and_another_name,
         the_newest_step_goes_on_in_place, best_is_what_best_json_names, invalid_requests_are_one_line,
         a_run_that_diverged_resumes_from_its_last_good_checkpoint]

if __name__ == "__main__":
    run_tests("test_run_forks", TESTS, __file__)
