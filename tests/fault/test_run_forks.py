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


def a_run_does_not_end_before_the_step_it_has_reached():
    settings = open(path("first", "config.yaml")).read()
    status, _, err = train("--resume", "first", "--allow-change", "train.steps=99", "--quiet")
    check(status == 2 and "train.steps=99: must be at least 100, the step of the newest checkpoint" in err, "refused", err)
    check(open(path("first", "config.yaml")).read() == settings, "and nothing was changed")


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
    command = re.search(r"step 40: depthscope (train --resume \S+ --allow-change train.lr=\S+)", err)
    check(command, "the command is told", err)
    check(sorted(os.listdir(path("nan", "checkpoints"))) == ["step-00000020", "step-00000040"], "no broken one",
          str(os.listdir(path("nan", "checkpoints"))))
    p = subprocess.run([PROGRAM, *command.group(1).split(), "--quiet"], env=environment(), capture_output=True, timeout=60 * SLOW)
    check(p.returncode == 0, "and it works", p.stderr.decode())
    check(check_stream("nan")[-1]["status"] == "done", "to the end")


def lr_of(run, step):
    return [x["lr"] for _, x in records(run) if x["kind"] == "metric" and x["step"] == step][-1]


def set_while_it_runs(run, *lines):
    """A run of 100 steps that was paused early, told these lines, and ran to its end."""
    p = start(*KEYS, "train.schedule=constant", "--run", run)
    wait_for(is_up(run))
    for line in ("pause",) + lines + ("resume",):
        check(ask(run, line).startswith("ok"), line)
    check(finish(p)[0] == 0, "with settings")
    return events(run, "set")[-1]["step"]


def settings_of_the_parent_are_in_the_log_of_the_fork():
    """live.json can be lost in a fork, too, whose own log holds no event "set"."""
    step = set_while_it_runs("told", "set lr 0.0001", "set lr 0.0000333333333333333")
    check(step < 80, "set before the fork", str(step))
    check(train("--resume", "told", "--from", "80", "--run", "heir", "--quiet")[0] == 0, "the fork")
    note = events("heir", "resume")[0]
    check(note["level"] == "info" and note["text"] == "begins with step 80 of told", "it has lost nothing", str(note))
    os.truncate(path("heir", "live.json"), 0)
    os.truncate(path("heir", "meta.json"), 0)
    status, _, err = train("--resume", "heir", "--quiet", "--allow-change", "train.steps=110")
    check(status == 0 and lr_of("heir", 110) == 0.0000333333333333333, "the inherited rate holds, to the last bit",
          "%r %s" % (lr_of("heir", 110), err))
    check(len(json.load(open(path("heir", "live.json")))["train.lr"]) == 2, "and what it replaced is known")
    check(meta("heir")["parent"] == "told", "as its parent is", str(meta("heir")))


def settings_that_were_taken_back_stay_so():
    """A key that a resume named anew, or that a divergence took back, does not return out of the log."""
    set_while_it_runs("back", "set lr 0.9 yes")
    status, _, err = train("--resume", "back", "--quiet", "--allow-change", "train.steps=105", "train.lr=0.001")
    check(status == 0 and lr_of("back", 105) == 0.001, "the command line rules", err)
    with open(path("back", "live.json"), "w") as f:
        f.write("half")
    status, _, err = train("--resume", "back", "--quiet", "--allow-change", "train.steps=110")
    check(status == 0 and lr_of("back", 110) == 0.001, "also without live.json", "%r %s" % (lr_of("back", 110), err))
    p = start(*KEYS, "train.schedule=constant", "train.nan_limit=3", "train.steps=100000", "train.checkpoint_every=100000", "--run",
              "wild", DEPTHSCOPE_FAIL="nan:2000+")
    wait_for(is_up("wild"))
    for line in ("pause", "checkpoint", "resume"):
        check(ask("wild", line).startswith("ok"), line)
    wait_for(lambda: os.path.isdir(path("wild", "checkpoints")) and os.listdir(path("wild", "checkpoints")))
    check(ask("wild", "set lr 0.7 yes").startswith("ok"), "a far value")
    check(finish(p)[0] == 1, "it diverges")
    check("reverted: train.lr = 0.7" in check_stream("wild")[-1]["text"], "and says so", str(check_stream("wild")[-1]))
    with open(path("wild", "live.json"), "w") as f:
        f.write("half")
    last = check_stream("wild")[-1]["step"]
    status, _, err = train("--resume", "wild", "--quiet", "--allow-change", "train.steps=%d" % (last + 5))
    check(status == 0 and lr_of("wild", last + 5) == 0.003, "the first rate", "%r %s" % (lr_of("wild", last + 5), err))


def a_fork_is_there_as_a_whole_or_not_at_all():
    check(train(*KEYS, "--run", "root")[0] == 0, "a run")
    runs = set(os.listdir(RUNS))
    status, _, err = train("--resume", "root", "--from", "40", "--run", "wide", "model.dim=32", "--quiet")
    check(status == 1 and set(os.listdir(RUNS)) == runs, "one that cannot begin leaves nothing", err)
    cut = ["--resume", "root", "--from", "40", "--run", "half", "--quiet", "train.checkpoint_every=1000000", "train.steps=1000000"]
    random.seed(7)
    for i in range(25):
        shutil.rmtree(path("half"), ignore_errors=True)
        p = start(*cut)
        time.sleep(random.uniform(0.002, 0.04) * SLOW)
        p.kill()
        finish(p)
        names = os.listdir(path("half")) if os.path.isdir(path("half")) else []
        check(names == [] or {"config.yaml", "checkpoints", "meta.json", "log.mp"} <= set(names), "empty or whole", str(names))
        again = ["--resume", "half", "--allow-change", "train.steps=42", "--quiet"] if names else cut[:-1] + ["train.steps=42"]
        status, _, err = train(*again)
        check(status == 0 and check_stream("half")[-1]["status"] == "done", "and the next command begins it", "%s: %s" % (names, err))
    check(set(os.listdir(RUNS)) - runs == {"half"}, "what was cut short is swept", str(set(os.listdir(RUNS)) - runs))
    os.makedirs(path(".hidden.123.tmp", "checkpoints"))
    open(path(".hidden.123.tmp", "log.mp"), "w").close()
    p = subprocess.run([PROGRAM, "runs"], env=environment(), capture_output=True, timeout=60 * SLOW)
    check(p.returncode == 0 and b"hidden" not in p.stdout, "one that is not finished is no run yet", p.stdout.decode())
    shutil.rmtree(path(".hidden.123.tmp"))


def a_fork_of_any_path_has_a_name_that_runs_may_have():
    for where, name in ((".", "root-from-60"), ("./.", "root-from-60-2"), ("../root/", "root-from-60-3")):
        p = subprocess.run([PROGRAM, "train", "--resume", where, "--from", "60", "--quiet"], env=environment(), cwd=path("root"),
                           capture_output=True, timeout=60 * SLOW)
        check(p.returncode == 0 and os.path.isdir(path(name)), where, p.stderr.decode())
        check(meta(name)["parent"] == "root", "its parent", str(meta(name)))
    shutil.copytree(path("root"), path("a b", "-\u00e4 \u00f6"))
    check(train("--resume", path("a b", "-\u00e4 \u00f6"), "--from", "60", "--quiet")[0] == 0, "blanks and letters of others")
    check(any(re.fullmatch(r"_[A-Za-z0-9._-]*-from-60", n) for n in os.listdir(RUNS)), "a name", str(os.listdir(RUNS)))


TESTS = [an_older_step_is_a_new_run_and_the_parent_is_not_touched, a_fork_may_have_other_keys_and_another_name,
         the_newest_step_goes_on_in_place, best_is_what_best_json_names,
         a_run_does_not_end_before_the_step_it_has_reached, invalid_requests_are_one_line,
         a_run_that_diverged_resumes_from_its_last_good_checkpoint, settings_of_the_parent_are_in_the_log_of_the_fork,
         settings_that_were_taken_back_stay_so, a_fork_is_there_as_a_whole_or_not_at_all,
         a_fork_of_any_path_has_a_name_that_runs_may_have]

if __name__ == "__main__":
    run_tests(TESTS)
