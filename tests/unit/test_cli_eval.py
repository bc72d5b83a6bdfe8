"""Evaluations of routed models as a script meets them: controls, capacities, calibration, and what is refused.
DEPTHSCOPE names the program.  The methods are those that `help keys` lists."""
import fcntl
import json
import math
import os
import pty
import re
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import t  # noqa: E402
from t import PROGRAM, SLOW, refused, run, run_json, test  # noqa: E402

TINY = ("model.layers=6 model.dim=32 model.heads=2 model.vocab=300 train.steps=6 train.seq=32 train.batch=2 "
        "train.eval_every=3 train.final_tokens=512 train.eval_tokens=128 data.docs=60 data.val_fraction=0.3 "
        "train.time_rounds=1 train.checkpoint_every=6").split()


def methods():
    return re.findall(r"`model\.method=(\w+)`", run("help", "keys"))


@test
def an_evaluation_has_controls_at_equal_rates():
    x = run_json("eval", "edp")
    for key in "dense_loss control_random_loss control_static_loss depth_variance mi_mean decode_tok_s".split():
        assert isinstance(x[key], float), key
    assert abs(x["control_random_ratio"] - x["block_ratio"]) < 0.06, x
    assert abs(x["control_static_ratio"] - x["block_ratio"]) < 0.06, x
    assert x["control_loss"] == x["loss"] and x["control_tokens"] == x["tokens"]
    assert len(x["mi"]) == len(x["capacity"]) == 6 and x["mi"][0] == 0
    assert abs(x["depth_sd"] ** 2 - x["depth_variance"]) < 1e-6
    assert abs(x["decode_dense_tok_s"] / x["decode_tok_s"] - x["decode_time_ratio"]) < 1e-3 * x["decode_time_ratio"]
    assert x["topk_loss"] is None and x["not_causal"] == "" and x["batch_time_ratio"] > 0
    plain = run_json("eval", "edp", "controls=false", "time_rounds=0")
    assert plain["loss"] == x["loss"] and plain["control_random_loss"] is None and plain["decode_tok_s"] is None
    dense = run_json("eval", "edp", "routing=dense", "time_rounds=0")
    assert abs(dense["loss"] - x["dense_loss"]) < 1e-6, (dense["loss"], x["dense_loss"])
    assert "static mask" in run("eval", "edp")


@test
def the_last_evaluation_of_a_run_has_controls_and_decoding_and_compare_shows_them():
    table = run("compare", "edp")
    assert "decode time" in table and "I(token; executed)" in table and "depth var" in table and "top-k gap" not in table
    x = run_json("compare", "edp")["runs"][0]
    assert x["decode_time_ratio"] > 0 and x["mi_mean"] is not None and x["topk_gap"] is None


@test
def answers_of_known_depth_are_counted_by_their_hops():
    run("train", *TINY, "data.path=hops", "train.seq=29", "hops.k=3", "data.docs=200", "--run", "hops")
    x = run_json("eval", "hops", "time_rounds=0", "controls=false")
    n, right, loss = x["tokens_by_k"], x["accuracy_by_k"], x["loss_by_k"]
    assert len(n) == len(right) == len(loss) == len(x["depth_by_k"]) == 3, x
    assert abs(sum(a * b for a, b in zip(n, right)) / sum(n) - x["answer_accuracy"]) < 1e-6
    assert abs(sum(a * b for a, b in zip(n, loss)) / sum(n) - x["answer_loss"]) < 1e-6
    assert x["tokens_by_class"][11] == sum(n) and x["tokens"] > 2 * sum(n)
    for unknown, word in (("hops.k=4", "?0AAAA:"), ("hops.n=7", "A0>6;"), ("hops.relations=3", "C0>0;")):
        refused('"%s" is not a token of the model' % word, "eval", "hops", unknown)
    refused('is not a token of the model', "eval", "edp", "data.path=hops")
    refused("hops.only=4: must be at most hops.k=3", "eval", "hops", "hops.only=4", code=1)
    for only in "12":
        one = run_json("eval", "hops", "hops.k=2", "hops.only=" + only, "time_rounds=0", "controls=false")
        assert [k + 1 for k, n in enumerate(one["tokens_by_k"]) if n] == [int(only)], one["tokens_by_k"]
    answers = run_json("eval", "hops", "data.loss=answers", "time_rounds=0", "controls=false")
    assert answers["tokens"] == sum(n) and abs(answers["loss"] - x["answer_loss"]) < 1e-6
    unseen = run_json("eval", "hops", "data.path=hops", "data.docs=50", "tokens=99999", "time_rounds=0",
                      "controls=false")
    assert sum(unseen["tokens_by_k"]) == 50 * 8, unseen
    table = run("eval", "hops", "time_rounds=0", "controls=false")
    assert "accuracy of answers by required depth" in table, table
    refused("data.path=hops needs windows=packed", "eval", "hops", "windows=documents", code=2)
    refused("data.loss=answers needs windows=packed", "eval", "edp", "windows=sliding", "data.loss=answers", code=2)
    refused("has no answers", "eval", "edp", "data.loss=answers", code=2)


def records_of(path):
    return [json.loads(line) for line in run("stream", path, "--json").splitlines()]


@test
def answers_alone_are_compared_with_dense_on_the_same_tokens():
    run("train", *TINY, "data.path=hops", "train.seq=29", "hops.k=3", "data.docs=200", "data.loss=answers", "model.method=halt", "--run", "answers")
    words = ("eval", "answers", "time_rounds=0", "batch=4")
    x = run_json(*words)
    assert x["control_tokens"] == x["tokens"] < x["windows_scored"] * x["seq"] / 2 and x["control_loss"] == x["loss"], x
    assert run_json(*words, "routing=dense")["loss"] == x["dense_loss"], x
    full = run_json(*words, "--benchmark", "capacities=0.5,1")["rows"][1]
    assert full["loss_delta"] == 0 and full["block_ratio"] == 1, full


@test
def the_loss_of_a_trace_is_over_the_tokens_that_the_head_predicts():
    run("train", *TINY, "data.path=hops", "train.seq=29", "hops.k=3", "data.docs=200", "data.loss=answers", "model.method=dense",
        "model.outputs=answers", "model.tied=false", "--run", "outputs")
    x = run_json("trace", "outputs", "--text", "A0>5;A1>3;?2A:=0.?1A:=3.")
    nll = [token["nll"] for token in x["tokens"]]
    known = [one for one in nll if one is not None]
    assert len(nll) == 6 and len(known) == 2, nll
    assert x["loss"] is not None and abs(x["loss"] - sum(known) / 2) < 1e-6, (x["loss"], known)


@test
def an_evaluation_names_the_options_that_replaced_the_stored_ones():
    quick = "time_rounds=0 controls=false tokens=128".split()
    plain = run_json("eval", "edp", *quick, "-o", "plain.mp")
    assert plain["options"] == {} and plain["layers"] == 6 and plain["loop"] == 1, plain
    assert plain["method_options"]["edp.max_skip"] == "4", plain["method_options"]
    other = run_json("eval", "edp", "edp.max_skip=3", *quick, "-o", "other.mp")
    assert other["options"] == {"edp.max_skip": "3"}, other["options"]
    assert other["method_options"] == {**plain["method_options"], "edp.max_skip": "3"}
    for path, x in (("plain.mp", plain), ("other.mp", other)):
        kinds = {r["kind"]: r for r in records_of(path)}
        assert kinds["head"]["config"]["edp.max_skip"] == x["method_options"]["edp.max_skip"], path
        assert kinds["eval"]["options"] == x["options"], path
        assert kinds["eval"]["method_options"] == x["method_options"], path
        assert run_json("inspect", path)["damage"]["invalid"] == 0, path
    assert run_json("eval", "edp", *quick)["options"] == {}


@test
def rules_over_seeds_are_compared_in_pairs():
    rules = {"all": "capacity=1", "half": "capacity=0.5", "none": "capacity=0"}
    loss = {rule: [] for rule in rules}
    for seed in "123":
        name = "hops-" + seed
        run("train", *TINY, "data.path=hops", "train.seq=29", "hops.k=3", "data.docs=200", "model.method=dlr",
            "model.init_std=0.3", "seed=" + seed, "--run", name, "--quiet")
        for rule, setting in rules.items():
            x = run_json("eval", name, setting, "time_rounds=0", "controls=false", "-o", "%s-%s.mp" % (rule, seed))
            loss[rule].append(x["answer_loss"])
    words = [w for rule in rules for w in ("--group", "%s=%s" % (rule, ",".join("%s-%s.mp" % (rule, s) for s in "321")))]
    x = run_json("compare", *words, "--metric", "answer_loss")
    assert [g["label"] for g in x["groups"]] == list(rules) and [g["n"] for g in x["groups"]] == [3, 3, 3]
    assert [p["label"] for p in x["paired"]] == ["half", "none"], x["paired"]
    for p in x["paired"]:
        d = [a - b for a, b in zip(loss[p["label"]], loss["all"])]
        mean = sum(d) / 3
        half = 4.30265273 * math.sqrt(sum((v - mean) ** 2 for v in d) / 2 / 3)
        assert p["n"] == 3 and abs(p["mean"] - mean) < 1e-5 and abs(p["hi"] - mean - half) < 1e-4, (p, d)
        assert p["metric"] == "answer_loss" and p["metrics"]["answer_loss"]["p"] == p["p"]
        assert {"flops_ratio", "answer_accuracy"} <= set(p["metrics"]), p
    least, most = sorted(x["paired"], key=lambda p: p["p"])
    assert abs(least["p_holm"] - min(1, 2 * least["p"])) < 1e-6, (least, most)
    assert abs(most["p_holm"] - min(1, max(most["p"], least["p_holm"]))) < 1e-6, (least, most)
    assert "answer loss minus that of all" in run("compare", *words, "--metric", "answer_loss")
    refused("did you mean answer_loss", "compare", "hops-1", "--metric", "answer_los")
    for bad in ("x", "x=", "=a", "x=all-1.mp,,all-2.mp"):
        refused("--group", "compare", "--group", bad)
    refused("same seed", "compare", "--group", "x=all-1.mp,none-1.mp")
    refused("duplicate", "compare", "--group", "x=all-1.mp", "--group", "y=all-1.mp")
    refused("unexpected", "compare", "hops-1", "--group", "x=all-1.mp")


@test
def one_token_at_a_time_and_no_text_at_all():
    with open("some.txt", "w") as f:
        f.write("The cat sat on the mat. " * 30)
    x = run_json("eval", "edp", "data.path=some.txt", "seq=1", "time_rounds=1", "tokens=40")
    assert x["tokens"] == 40 and x["depth_variance"] is not None and x["decode_time_ratio"] > 0
    open("nothing.txt", "w").close()
    refused("nothing.txt", "eval", "edp", "data.path=nothing.txt", code=1)
    refused("window", "eval", "edp", "data.path=some.txt", "split=val", code=1)


@test
def a_model_that_was_written_from_a_run_keeps_its_seed():
    quick = ("tokens=128", "time_rounds=0", "controls=false")
    for seed in "13":
        run("calibrate", "hops-" + seed, "tokens=64", "-o", "derived-" + seed)
        run("convert", "derived-" + seed, "-o", "converted-" + seed)
        for name in "derived", "converted":
            run("eval", "%s-%s" % (name, seed), "data.path=hops", "hops.k=3", "seq=29", *quick, "-o", "%s-%s.mp" % (name, seed))
            head = records_of("%s-%s.mp" % (name, seed))[0]
            assert head["kind"] == "head" and head["seed"] == int(seed), head
    words = [w for name in ("hops", "derived", "converted") for w in
             ("--group", "%s=%s" % (name, ",".join("%s-%s%s" % (name, s, "" if name == "hops" else ".mp") for s in "31")))]
    assert [p["n"] for p in run_json("compare", *words)["paired"]] == [2, 2]
    run("eval", "derived-3", "data.path=hops", "hops.k=3", "seq=29", "seed=1", *quick, "-o", "other.mp")
    assert records_of("other.mp")[0]["seed"] == 3  # seed= is of the data


@test
def dense_evaluations_are_compared():
    quick = ("tokens=128", "time_rounds=0", "controls=false")
    loss = {}
    for routing in "dense", "causal":
        x = run_json("eval", "hops-1", "routing=" + routing, *quick, "-o", routing + ".mp")
        loss[routing] = (x["loss"], x["answer_loss"], x["depth_mean"])
    assert loss["dense"] != loss["causal"], loss
    x = run_json("compare", "dense.mp", "causal.mp")
    for one, routing in zip(x["runs"], loss):
        got = (one["val_loss"], one["answer_loss"], one["depth_mean"])
        assert all(abs(a - b) < 1e-5 for a, b in zip(got, loss[routing])), (one, loss)
    assert [g["n"] for g in x["groups"]] == [1, 1] and x["differences"]["routing"] == ["dense", "causal"], x
    assert "%.4g" % loss["dense"][0] in run("compare", "dense.mp")


@test
def settings_unsupported_by_a_method_are_rejected_in_one_line():
    for words in (["eval", "edp"], ["generate", "edp", "--prompt", "x"], ["trace", "edp", "--text", "x y", "--json"]):
        refused("no capacity", *words, "capacity=0.4")
        refused("capacity", *words, "capacity=1.5")
        refused("top-k" if words[0] != "generate" else "depends on later tokens", *words, "routing=topk")
    refused("no capacity", "eval", "edp", "--benchmark")
    refused("no capacity", "eval", "edp", "target_speedup=1.5")
    refused("no capacity", "generate", "edp", "--prompt", "x", "target_speedup=1.5")
    refused("must not be set", "eval", "edp", "target_speedup=1.5", "capacity=0.4")
    refused("nothing to calibrate", "calibrate", "edp")
    refused("did you mean", "eval", "edp", "--bench")
    assert run("help", "calibrate").startswith("depthscope calibrate")


@test
def settings_of_another_evaluation_are_rejected_in_one_line():
    before = open(weights_of("mod"), "rb").read()
    for setting in "weights=q8_0 stride=3 routing=topk capacity=0.3 target_speedup=1.5 capacities=0.3 threshold_offset=1".split():
        refused("unsupported by calibrate", "calibrate", "mod", "tokens=64", setting)
    assert open(weights_of("mod"), "rb").read() == before
    run("calibrate", "mod", "tokens=64", "weights=none")
    for words in (["target_speedup=1.5"], ["target_speedup=1.5", "speedup_by=time"]):
        refused("expected one exit, not a range of exit.layer", "eval", "mod", "exit.layer=1..2", *words)
    for setting in ("capacity=0.3", "target_speedup=1.5", "speedup_by=time"):
        refused("unsupported by --benchmark", "eval", "mod", "--benchmark", setting)
    refused("rows of --benchmark", "eval", "mod", "capacities=0.3,1")


def weights_of(name):
    root = "runs/%s/checkpoints" % name
    return os.path.join(root, sorted(os.listdir(root))[-1], "model.safetensors")


def is_write_locked(inode):
    with open("/proc/locks") as f:
        return any("FLOCK" in line and "WRITE" in line and ":%d " % inode in line for line in f)


@test
def calibration_locks_the_log_of_its_run_until_the_end():
    log = "runs/mod/log.mp"
    with open(log, "rb") as f:
        fcntl.flock(f, fcntl.LOCK_EX)
        refused("is being written by process %d" % os.getpid(), "calibrate", "mod", "tokens=64", code=1)
    p = subprocess.Popen([PROGRAM, "calibrate", "mod", "tokens=4000"], stderr=subprocess.DEVNULL)
    inode, held, beside = os.stat(log).st_ino, 0, 0
    while p.poll() is None:
        held += is_write_locked(inode)
        if held == 1 and not beside:  # what is there is whole until the end
            beside = 1
            refused("is being written by process %d" % p.pid, "train", "--resume", "mod", "--allow-change", "train.steps=8", "--quiet", code=1)
    assert p.returncode == 0 and held > 1 and beside, (p.returncode, held)


@test
def a_failed_calibration_keeps_the_only_checkpoint():
    before = sorted(os.listdir("runs/mod/checkpoints"))
    assert len(before) == 1, before
    failed = 0
    for n in range(1, 30):
        for name in ("rename", "unlink"):
            env = dict(os.environ, DEPTHSCOPE_FAIL="%s:%d" % (name, n))
            p = subprocess.run([PROGRAM, "calibrate", "mod", "tokens=64"], env=env, stderr=subprocess.PIPE, timeout=120 * SLOW)
            failed += p.returncode != 0
            names = os.listdir("runs/mod/checkpoints")
            assert before[0] in names, (name, n, names, p.stderr)
    assert failed > 3, failed
    run("eval", "mod", "tokens=64", "time_rounds=0")


@test
def calibration_text_is_disjoint_from_the_final_evaluation():
    run("calibrate", "mod", "tokens=256")
    assert "validation split after the windows of the final evaluation" in run.err, run.err
    run("calibrate", "mod", "tokens=1000000")
    assert "training split" in run.err and "too few windows" in run.err, run.err
    refused("split=train", "calibrate", "mod", "tokens=1000000", "split=val", code=1)


def benchmark(name):
    words = ("capacities=0.3,1", "tokens=256", "time_rounds=1")
    x = run_json("eval", name, "--benchmark", *words, "-o", "rows.mp")
    assert [r["capacity_target"] for r in x["rows"]] == [0.3, 1], x
    assert x["rows"][0]["block_ratio"] <= x["rows"][1]["block_ratio"], x
    assert all(r["decode_time_ratio"] > 0 and r["control_random_loss"] > 0 for r in x["rows"]), x
    assert "1 head, 2 eval" in run("inspect", "rows.mp")
    table = run("eval", name, "--benchmark", *words)
    assert "target  blocks" in table and "target: share of the routed cells; blocks, " in table, table
    assert "random loss" in table and "static loss" in table and "loss vs dense %" in table and "ppl vs dense %" in table, table
    for r in x["rows"]:
        more = math.exp(x["dense_loss"] * r["loss_delta"]) - 1
        assert abs(r["perplexity_delta"] - more) < 1e-6, (r, more)
    refused("unreachable: expected a value in", "eval", name, "target_speedup=1000", "tokens=256", code=1)


def calibrate(name):
    before = sorted(os.listdir("runs/%s/checkpoints" % name))
    run("calibrate", name, "tokens=256", "-o", name + "-dir")
    refused("exists", "calibrate", name, "-o", name + "-dir", code=1)
    run("calibrate", name, "tokens=256")
    assert "wrote runs/%s/checkpoints/" % name in run.err, run.err
    assert sorted(os.listdir("runs/%s/checkpoints" % name)) == before
    assert "all files match the manifest" in run("inspect", "runs/%s/checkpoints/%s" % (name, before[-1]))
    a, b = (run_json("eval", x, "data.path=some.txt", "time_rounds=0", "seq=32") for x in (name, name + "-dir"))
    assert a["loss"] == b["loss"], (name, a["loss"], b["loss"])
    run("train", "--resume", name, "--allow-change", "train.steps=8", "--quiet")


@test
def a_capacity_is_certified_for_a_risk_and_stored():
    run("train", *TINY, "model.method=dlr", "--run", "risky", "--quiet")
    own = run_json("eval", "risky", "time_rounds=0", "controls=false")
    words = ("calibrate", "risky", "tokens=4096", "batch=4")
    x = run_json(*words, "risk=0.3", "delta=0.1")
    certified = [r["capacity"] for r in x["rows"] if r["certified"]]
    assert x["capacity"] == min(certified) and x["rows"][0]["capacity"] == 1, x
    assert x["tested_sequences"] + x["fitted_sequences"] == 4096 / 32 and x["fitted_sequences"] == 64
    assert x["guarantee"] == ("with probability at least 0.9 over the calibration text, the expected loss per token of a "
                              "sequence rises by at most 0.3 nats (a sequence's rise counted from 0 to 1)")
    stored, asked = (run_json("eval", "risky", "time_rounds=0", "controls=false", *more)
                     for more in ((), ("capacity=%g" % x["capacity"],)))
    assert stored["loss"] == asked["loss"] and stored["capacity_target"] == x["capacity"], (stored, asked)
    assert own["capacity_target"] is None
    table = run(*words, "risk=0.3", "delta=0.1", "-o", "risky-dir")
    assert "certified" in table and "the first 64 fit thresholds, the next 64 are tested" in table, table
    assert "capacity=%g: with probability" % x["capacity"] in table
    assert run_json("eval", "risky-dir", "data.path=some.txt", "time_rounds=0", "controls=false")["capacity_target"] == x["capacity"]
    name = sorted(os.listdir("runs/risky/checkpoints"))[-1]
    assert "all files match the manifest" in run("inspect", "runs/risky/checkpoints/" + name)
    run("train", "--resume", "risky", "--allow-change", "train.steps=8", "--quiet")
    run("calibrate", "risky", "tokens=64")  # thresholds anew: nothing is certified any more
    assert run_json("eval", "risky", "time_rounds=0", "controls=false")["capacity_target"] is None
    with open("risky-dir/config.json") as f:
        text = f.read()
    for bad, code in (("2", 1), ("-1", 1), ("1e999", 1), ("x", 2)):
        with open("risky-dir/config.json", "w") as f:
            f.write(re.sub(r'("inference.capacity": )"[^"]*"', r'\1"%s"' % bad, text))
        refused("inference.capacity", "eval", "risky-dir", "data.path=some.txt", code=code)


@test
def a_risk_that_no_capacity_meets_changes_nothing():
    before = open(weights_of("mod"), "rb").read()
    refused("the lowest risk that this text certifies is 0.0", "calibrate", "mod", "tokens=4096", "batch=4",
            "risk=0.0001", code=1)
    for words, why, code in ((("risk=0",), "greater than 0", 1), (("risk=1",), "less than 1", 1),
                             (("risk=-1",), "greater than 0", 1), (("risk=0.1", "delta=1"), "delta=1", 1),
                             (("risk=0.1", "tokens=64"), "less than a batch", 1),
                             (("delta=0.1",), "together with risk=", 2), (("risk=x",), "must be a number", 2)):
        refused(why, "calibrate", "mod", *words, code=code)
    refused("edp has no capacity setting; expected one of", "calibrate", "edp", "risk=0.1")
    refused("unsupported by eval", "eval", "mod", "risk=0.1")
    assert open(weights_of("mod"), "rb").read() == before


@test
def every_method_is_evaluated_with_its_settings():
    with open("some.txt", "w") as f:
        f.write("The cat sat on the mat. " * 30)
    for name in methods():
        if name not in ("edp", "mod"):
            run("train", *TINY, "model.method=" + name, "--run", name, "--quiet")
        x = run_json("eval", name, "time_rounds=1")
        assert x["loss"] > 0 and "block_ratio" in x, x
        p = subprocess.run([PROGRAM, "eval", name, "routing=topk", "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        if p.returncode == 0:
            topk = json.loads(p.stdout)
            assert "loss" in topk["not_causal"] and abs(topk["loss"] - x["topk_loss"]) < 1e-5, (name, topk["loss"], x["topk_loss"])
            assert abs(x["topk_gap"] - (x["loss"] - x["topk_loss"])) < 1e-6 and "topk_gap" in x["not_causal"], name
            assert "NOT causal" in run("eval", name, "routing=topk", "time_rounds=0")
            assert run_json("trace", name, "--text", "The cat sat", "routing=topk")["routing"] == "topk"
        else:
            assert b"no top-k" in p.stderr and x["topk_loss"] is None, (name, p.stderr)
        p = subprocess.run([PROGRAM, "calibrate", name, "tokens=64"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        if p.returncode == 0:
            calibrate(name)
        else:
            assert b"nothing to calibrate" in p.stderr, (name, p.stderr)
        p = subprocess.run([PROGRAM, "eval", name, "capacity=0.5", "tokens=256"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        if p.returncode == 0:
            benchmark(name)
            assert run_json("generate", name, "--prompt", "The", "capacity=0.5", "max_tokens=4")["capacity_target"] == 0.5
        else:
            assert b"no capacity" in p.stderr, (name, p.stderr)


@test
def halting_rules_and_the_oracle_are_compared_on_one_checkpoint():
    run("train", *TINY, "model.method=dense", "--run", "dense", "--quiet")
    words = ("capacity=0.4", "time_rounds=0", "controls=false")
    loss = {}
    for rule in "regret velocity acceleration scalar confidence kl random".split():
        x = run_json("eval", "halt", "halt.rule=" + rule, *words)
        assert abs(x["block_ratio"] - (1 + 5 * 0.4) / 6) < 0.08 and x["routing"] == "causal", (rule, x)
        loss[rule] = x["loss"]
    assert len(set(loss.values())) == 7, loss
    assert run_json("eval", "halt", *words)["loss"] == loss["regret"]
    for name in "halt", "dense":
        best = run_json("eval", name, "routing=oracle", *words)
        assert best["routing"] == "oracle" and "loss" in best["not_causal"], best
        assert (1 + 5 * 0.35) / 6 < best["block_ratio"] <= (1 + 5 * 0.4) / 6 + 1e-9, best
        assert "NOT causal: knows" in run("eval", name, "routing=oracle", *words)
    free = run_json("eval", "dense", "routing=oracle", "time_rounds=0", "controls=false")
    assert free["loss"] < run_json("eval", "dense", "time_rounds=0")["loss"] and free["block_ratio"] < 1, free
    bound = ("data.path=some.txt", "seq=32", "routing=oracle", "time_rounds=0", "controls=false")
    run("calibrate", "halt", "risk=0.9", "delta=0.5", "tokens=512", "-o", "halt-at-risk")
    stored = run_json("eval", "halt-at-risk", *bound)
    asked = run_json("eval", "halt-at-risk", "capacity=%g" % stored["capacity_target"], *bound)
    assert stored["capacity_target"] < 0.5 and stored["block_ratio"] == asked["block_ratio"], (stored, asked)
    refused("did you mean halt.rule", "eval", "halt", "halt.rul=kl")
    refused("whose method is dense", "eval", "dense", "halt.rule=kl")
    refused("halt.rule", "eval", "halt", "halt.rule=speed")
    for words in (("generate", "--prompt", "The cat"), ("trace", "--text", "The cat sat")):
        depths = set()
        for rule in "regret velocity confidence random".split():
            x = run_json(words[0], "halt", *words[1:], "capacity=0.4", "halt.rule=" + rule, *(["max_tokens=12"] if words[0] == "generate" else []))
            depths.add(json.dumps({k: v for k, v in x.items() if "time" not in k and "tok_s" not in k}, sort_keys=True))
        assert len(depths) > 1, (words, depths)
        refused("whose method is dense", words[0], "dense", *words[1:], "--json", "halt.rule=kl")
    refused("must be between 0 and 1", "eval", "dense", "routing=oracle", "capacity=1.5", code=1)
    refused("knows the tokens", "eval", "dense", "task=mmlu", "data.path=mmlu", "routing=oracle")


@test
def a_trained_run_gets_halting_by_calibration():
    run("calibrate", "dense", "model.method=halt", "halt.min=2", "halt.features=velocity,state", "tokens=256", "-o", "halted")
    words = ("data.path=some.txt", "seq=32", "time_rounds=0", "controls=false")
    full = run_json("eval", "dense", *words)
    x, y = (run_json("eval", "halted", "capacity=%g" % c, *words) for c in (1, 0.5))
    assert x["method"] == "halt" and x["loss"] == full["loss"] and x["block_ratio"] == 1, (x, full)
    assert y["capacity"][:2] == [1, 1] and y["capacity"][2] < 1 and y["block_ratio"] < 0.9, y
    run("calibrate", "halt", "halt.label=agree", "tokens=256", "-o", "agreed")
    assert run_json("eval", "agreed", *words)["block_ratio"] < 1
    refused("missing -o DIR", "calibrate", "dense", "model.method=halt")
    refused("did you mean halt", "calibrate", "dense", "model.method=holt", "-o", "none")
    refused("did you mean halt.features", "calibrate", "dense", "model.method=halt", "halt.featurs=kl", "-o", "none")
    refused("no exit", "calibrate", "halt", "halt.min=6", "-o", "none", code=1)
    assert not os.path.exists("none")


@test
def a_task_reports_depth_with_the_score():
    os.makedirs("mmlu/test")
    with open("mmlu/test/anatomy_test.csv", "w") as f:
        f.write("question,choice0,choice1,choice2,choice3,answer\nOne?,a,b,c,d,1\nTwo?,a,b,c,d,3\n")
    words = ("task=mmlu", "data.path=mmlu", "shots=0", "results=done.jsonl")
    x = run_json("eval", "edp", *words, "limit=1", "-o", "out.json")
    with open("out.json") as f:
        assert json.load(f) == x
    assert x["n-samples"]["mmlu_anatomy"] == {"original": 2, "effective": 1}, x
    y = run_json("eval", "edp", *words, "-o", "out.json")
    r = y["results"]["mmlu"]
    assert y["config"]["resumed"] == 1 and r["acc,none"] in (0, 0.5, 1), y
    assert abs(r["mean_depth"] - 6 * r["block_ratio"]) < 1e-6 and 0 < r["flops_ratio"] < 1.2, r
    dense = run_json("eval", "edp", *words[:3], "routing=dense")["results"]["mmlu"]
    assert dense["block_ratio"] == 1 and dense["mean_depth"] == 6, dense
    assert "2 documents resumed from done.jsonl" in run("eval", "edp", *words)
    assert '"results"' in run("eval", "edp", *words, "-o", "/dev/stdout")
    refused("choose another file", "eval", "edp", *words, "routing=dense", code=1)
    refused("not a results file", "eval", "edp", *words, "-o", "mmlu/test/anatomy_test.csv", code=1)
    refused("would depend on the answer", "eval", "edp", *words, "routing=topk")
    refused("expected task=ppl", "eval", "edp", *words, "--benchmark")
    refused("needs data=DIRECTORY or FILE", "eval", "edp", "task=gsm8k")
    refused("not found: expected one of", "eval", "edp", "task=gsm8k", "data.path=mmlu", code=1)


def task_rows(name, *rows):
    os.makedirs(os.path.dirname(name), exist_ok=True)
    with open(name, "w") as f:
        f.write("".join(json.dumps(r) + "\n" for r in rows))


@test
def a_capacity_is_searched_for_a_speedup():
    run("calibrate", "mod", "tokens=256")
    words = ("target_speedup=1.2", "speedup_by=flops")
    x = run_json("eval", "mod", *words, "tokens=256", "time_rounds=0", "controls=false")
    assert x["speedup"] > 1 and x["speedup_met"] == (x["speedup"] >= 1.2), x
    text = run("eval", "mod", *words, "tokens=256", "time_rounds=0", "controls=false")
    assert re.search(r"capacity \d\.\d{3} gives a speedup of \d\.\d{3}", text), text
    run("generate", "mod", "--prompt", "ab", "max_tokens=2", *words)
    assert re.search(r"^depthscope: capacity \d\.\d{3}: speedup \d\.\d{3} on held-out text by ", run.err, re.M), run.err


@test
def a_run_without_a_validation_split_is_evaluated_and_calibrated_on_its_training_text():
    run("train", *TINY, "data.val_fraction=0", "model.method=mod", "--run", "all", "--quiet")
    words = ("tokens=256", "time_rounds=0", "controls=false")
    refused("data.val_fraction=0: the run has no validation split; use split=train", "eval", "all", *words, code=1)
    assert run_json("eval", "all", *words, "split=train")["loss"] == run_json("eval", "all", *words, "split=all")["loss"]
    assert "speedup" in run_json("eval", "all", *words, "split=train", "target_speedup=1.2")
    assert run_json("calibrate", "all", "tokens=256")["tokens"] == 256
    assert "(the run has no validation split)" in run.err, run.err
    run("generate", "all", "--prompt", "ab", "max_tokens=2", "target_speedup=1.2")
    assert "on training text by FLOPs" in run.err, run.err


@test
def a_text_too_short_for_a_window_is_named_by_what_is_read():
    with open("two.txt", "w") as f:
        f.write("ab")
    for split, part in (("auto", "the text has 3 tokens in 1 of 1 document; one window needs "), ("val", "the validation split has "),
                        ("train", "the training split has ")):
        refused(part, "eval", "mod", "data.path=two.txt", "split=" + split, code=1)
        is_without = "has 0 tokens in 0 of 1 document;" in run.err
        assert is_without == ("with data.format=lines every line does" in run.err) and is_without <= (split != "auto"), run.err


@test
def words_and_whole_texts_are_scored_as_their_formulas_say():
    task_rows("lambada/test.jsonl", *({"text": "the cat sat on the %s" % w} for w in ("mat", "cat", "sofa")))
    x = run_json("eval", "edp", "task=lambada_openai", "data.path=lambada")["results"]["lambada_openai"]
    assert x["perplexity,none"] > 1 and x["acc,none"] in (0, 1 / 3, 2 / 3, 1), x
    page = "One two three .\n"
    task_rows("wiki/test.jsonl", {"page": page})
    x = run_json("eval", "edp", "task=wikitext", "data.path=wiki")["results"]["wikitext"]
    bits, words, size = x["bits_per_byte,none"], len(re.split(r"\s+", page)), len(page.encode())
    assert abs(math.log2(x["byte_perplexity,none"]) - bits) < 1e-6 and words == 5, x
    assert abs(math.log2(x["word_perplexity,none"]) - bits * size / words) < 1e-5, x
    refused("task=wikitext scores whole texts; set shots=0", "eval", "edp", "task=wikitext", "data.path=wiki", "shots=1")
    refused("the model's context", "eval", "edp", "task=wikitext", "data.path=wiki", "seq=1000000", code=1)
    refused("setting 3: shots: 1000: must be -1 to 256", "eval", "edp", "task=gsm8k", "data.path=lambada", "shots=1000")
    with open("torn.jsonl", "w") as f:
        f.write("not results")
    words = ("eval", "edp", "task=lambada_openai", "data.path=lambada")
    refused("torn.jsonl: not a results file; choose another file", *words, "results=torn.jsonl", code=1)
    run(*words, "results=kept.jsonl", "limit=1")
    with open("kept.jsonl", "a") as f:
        f.write('{"task": "lambada_openai", "doc": 1}\n')
    refused("kept.jsonl:3: malformed line of results", *words, "results=kept.jsonl", code=1)
    with open("nul.jsonl", "wb") as f:
        f.write(b'{"text": "a b"}\0\n')
    refused("byte 15 is 0: not a text file", "eval", "edp", "task=lambada_openai", "data.path=nul.jsonl", code=1)
    with open("wide.csv", "w") as f:
        f.write(",".join("c%d" % i for i in range(200)) + "\n")
    refused("wide.csv:1: too many columns: must be at most", "eval", "edp", "task=gsm8k", "data.path=wide.csv", "shots=0", code=1)


@test
def a_task_draws_its_progress_on_a_terminal():
    task_rows("passages/test.jsonl", *({"text": "the cat sat on the %s" % w} for w in ("mat", "cat", "sofa")))
    master, slave = pty.openpty()
    p = subprocess.Popen([PROGRAM, "eval", "edp", "task=lambada_openai", "data.path=passages"], stdin=subprocess.DEVNULL,
                         stdout=subprocess.DEVNULL, stderr=slave)
    os.close(slave)
    seen = b""
    while True:
        try:
            got = os.read(master, 65536)
        except OSError:
            break
        if not got:
            break
        seen += got
    os.close(master)
    assert p.wait(60 * SLOW) == 0, seen
    assert re.search(rb"\r\033\[Klambada_openai \[#*\.+\] [012]/3, \S+/s, \S+ left", seen), seen
    assert re.search(rb"\r\033\[Klambada_openai: 3 documents, ", seen), seen


@test
def a_killed_task_resumes_with_the_same_result():
    os.makedirs("gsm8k")
    with open("gsm8k/test.jsonl", "w") as f:
        for i in range(60):
            f.write(json.dumps({"question": "What is %d and %d?" % (i, i), "answer": "It is.\n#### %d" % (2 * i)}) + "\n")
    words = ["eval", "mod", "task=gsm8k_cot", "data=gsm8k", "shots=0", "max_gen=12"]
    whole = run_json(*words)
    assert run.err.startswith("depthscope: gsm8k_cot: 60 documents, ") and run.err.count("\n") == 1, run.err
    p = subprocess.Popen([PROGRAM, *words, "results=half.jsonl"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while p.poll() is None and (not os.path.exists("half.jsonl") or open("half.jsonl").read().count("\n") < 5):
        pass
    p.kill()
    p.wait()
    done = open("half.jsonl").read().count("\n") - 1
    assert done >= 4, done
    rest = run_json(*words, "results=half.jsonl")
    assert rest["config"]["resumed"] == done, (rest["config"], done)
    assert ("%d resumed" % done) in run.err, run.err
    assert rest["results"] == whole["results"], (rest["results"], whole["results"])
    text = open("half.jsonl").read()
    assert text.count("\n") == 61, text
    for line in text.splitlines()[1:]:
        x = json.loads(line)
        assert abs(x["depth"] - x["spent"][0] / x["spent"][4]) < 1e-6 and 0 < x["depth"] <= 6, x


@test
def a_text_is_scored_in_windows_of_three_kinds():
    with open("docs.txt", "w") as f:
        f.write("The cat sat on the mat.\n\nA dog ran.\n\n" + "It was a long day in the old town. " * 12)
    words = ("eval", "edp", "data.path=docs.txt", "time_rounds=0", "controls=false")
    keys = "loss perplexity bits_per_byte tokens bytes windows stride windows_scored".split()
    x = {k: run_json(*words, "windows=" + k) for k in ("packed", "documents", "sliding")}
    for kind, r in x.items():
        assert r["windows"] == kind and all(r[k] is not None for k in keys), r
        assert abs(r["perplexity"] - math.exp(r["loss"])) < 1e-5 * r["perplexity"], r
        assert abs(r["bits_per_byte"] - r["loss"] * r["tokens"] / math.log(2) / r["bytes"]) < 1e-5, r
    size = os.path.getsize("docs.txt")
    assert x["sliding"]["bytes"] == size - 5, (x["sliding"], size)  # without what parts and ends the documents
    assert x["documents"]["windows_scored"] == 3 and x["documents"]["tokens"] < x["sliding"]["tokens"]
    assert x["packed"]["seq"] == x["sliding"]["seq"] == 32 and x["sliding"]["stride"] == 16
    assert "sliding windows of 32 tokens, stride 8" in run(*words, "windows=sliding", "stride=8")
    refused("stride needs windows=sliding", *words, "stride=8")
    refused("windows=: unsupported by calibrate", "calibrate", "mod", "windows=sliding")


@test
def the_tokens_to_score_are_rounded_up_to_whole_windows():
    assert "tokens to score, rounded up to whole windows" in run("help", "keys")
    assert [run_json("eval", "edp", "tokens=%d" % n, "time_rounds=0", "controls=false")["tokens"] for n in (32, 33, 64)] == [32, 64, 64]


@test
def exits_are_evaluated_one_by_one_and_in_a_table():
    words = ("eval", "edp", "tokens=256", "time_rounds=1", "controls=false")
    x = run_json(*words, "exit.layer=2..6", "-o", "exits.mp")
    assert [r["exit"] for r in x["rows"]] == [2, 3, 4, 5, 6] and x["task"] == "exits", x
    assert all(a["flops_ratio"] <= b["flops_ratio"] for a, b in zip(x["rows"], x["rows"][1:])), x
    assert all(r["time_ratio"] > 0 and r["decode_ms"] > 0 and r["accuracy"] >= 0 for r in x["rows"]), x
    assert x["rows"][0]["block_ratio"] <= 2 / 6 + 1e-9
    for exit in (3, 6):
        one = run_json(*words, "exit.layer=%d" % exit)
        row = x["rows"][exit - 2]
        assert one["exit"] == exit and all(one[k] == row[k] for k in ("loss", "flops_ratio", "flops_dense_per_token")), (one, x)
    assert "exit" not in run_json(*words) and run_json(*words)["loss"] == x["rows"][4]["loss"]
    assert "1 head, 5 eval" in run("inspect", "exits.mp")
    assert "exit after 3 of 6 layers" in run(*words, "exit.layer=3")
    table = run(*words, "exit.layer=2..3", "routing=dense")
    assert "prefill time" in table and "answers" not in table and "dense routing" in table and "dense_per" not in table, table
    assert '"depth":2' in run("trace", "edp", "--text", "x y", "--json", "exit.layer=2", "routing=dense")
    for bad in ("7", "2..7"):
        refused("must be at most 6, the model's layers", *words, "exit.layer=" + bad, code=1)
    for bad in ("x", "3..2", "0..3", "2..", "-1"):
        refused("a range such as 2..16", *words, "exit.layer=" + bad)
    refused("unsupported by calibrate", "calibrate", "mod", "exit.layer=2")
    refused("expected task=ppl", "eval", "edp", "task=piqa", "exit.layer=2")
    refused("unsupported by --benchmark", "eval", "mod", "--benchmark", "exit.layer=2")


def setup():
    run("train", *TINY, "--run", "edp", "model.method=edp", "--quiet")
    run("train", *TINY, "--run", "mod", "model.method=mod", "--quiet")


t.main(setup)
