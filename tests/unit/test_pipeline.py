"""depthscope pipeline: one command trains, evaluates and draws everything, and continues where it stopped."""
import csv
import glob
import json
import os
import re
import signal
import struct
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import t  # noqa: E402
from t import PROGRAM, ROOT, SLOW, TINY, call, refused, run, run_json, test  # noqa: E402

sys.path.insert(0, os.path.join(ROOT, "src", "python"))
from depthscope import _msgpack  # noqa: E402

WORDS = ["pipeline", *TINY, "--quick", "-o", "out", "--format", "png"]


def logs():
    return {p: os.stat(p).st_mtime_ns for p in glob.glob("runs/pipeline-*/log.mp")}


@test
def what_would_spoil_the_results_is_found_before_the_first_run():
    open("file", "w").close()
    words = ["pipeline", *TINY]
    refused("-o file: not a directory", *words, "-o", "file")
    refused("unknown venue", *words, "--venue", "nowhere")
    refused('unknown format ""', *words, "--format", "png,")
    refused('unknown format ""', *words, "--format", "")
    refused("257 seeds: expected at most 256", *words, "--seeds", ",".join(map(str, range(257))), "-o", "many")
    refused("289 runs for 17 seeds, expected at most 256", *words, "--seeds", ",".join(map(str, range(17))), "-o", "many")
    assert not os.path.exists("runs") and not os.path.exists("many")
    status, _, err = call(*words, "--dry-run", "-o", "a\x1bb")
    assert status == 0 and "\x1b" not in err, err


@test
def a_killed_pipeline_continues_where_it_stopped_and_redoes_nothing():
    p = subprocess.Popen([PROGRAM, *WORDS], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    lines = []
    for line in p.stderr:
        lines.append(line)
        if line.startswith("[4/") and "val loss" in line:
            p.send_signal(signal.SIGINT)
            break
    rest = p.stderr.read()
    assert p.wait(60 * SLOW) == 128 + signal.SIGINT and "run the same command again" in rest, rest
    before = logs()
    assert 4 <= len(before) <= 6, sorted(before)
    status, out, err = call(*WORDS, seconds=300)
    assert status == 0, err
    assert sum("already done" in line for line in err.splitlines()) >= 4, err
    assert "\r" not in err  # plain lines in a pipe
    after = logs()
    done = [p for p in before if after[p] == before[p]]
    assert len(done) >= 4 and len(after) == 17, (len(done), len(after))
    table = out.decode()
    for row in ("dense", "edp", "control: random", "control: static", "control: dense, ", "ablation: no_budget_loss"):
        assert row in table, table
    for name in ("table.md", "table.tex", "table.csv", "bench.json", "loss_flops.png", "ablation_bars.png",
                 "training.png", "bench_bars.png", "routing_map.png"):
        assert os.path.getsize("out/" + name) > 100, name
    assert "skipped exit_map: " in err and "skipped isoflop: " in err


@test
def several_processes_share_a_pipeline():
    """Two that train, one of them through workers of its own; nothing is made twice, and the table is that of one."""
    env = {**os.environ, "DEPTHSCOPE_RUNS": "shared"}
    words = [PROGRAM, *WORDS, "--seeds", "1"]
    words[words.index("out")] = "together"
    steps = json.load(open("out/pipeline.json"))["steps"]
    os.mkdir("together")
    with open("together/pipeline.json", "w") as f:  # --quick follows the speed of the machine
        json.dump({"preset": json.load(open("out/pipeline.json"))["preset"], "steps": steps}, f)
    both = [subprocess.Popen([*words, *more], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            for more in (["--jobs", "2"], ["--launch", "sh -c {}"])]
    out = [p.communicate(timeout=300 * SLOW) for p in both]
    assert [p.returncode for p in both] == [0, 0], out
    starts = [line.split(":")[0].split()[-1] for _, err in out for line in err.splitlines() if ": starts" in line]
    assert starts.count("bench.json") == 1, starts
    assert len(glob.glob("shared/pipeline-*")) == 17
    columns = lambda path: [line.split(",")[:4] for line in open(path)]
    assert columns("together/table.csv") == columns("out/table.csv")
    status, text, err = call(*words[1:], "--status", "--json", env=env)
    assert status == 0 and [json.loads(x)["done"] for x in text.decode().splitlines()] == [2, 15], (text, err)


@test
def a_finished_pipeline_trains_nothing_and_draws_the_same_bytes():
    before, bench = logs(), os.stat("out/bench.json").st_mtime_ns
    picture = open("out/loss_flops.png", "rb").read()
    x = run_json(*WORDS)
    assert logs() == before and os.stat("out/bench.json").st_mtime_ns == bench
    assert open("out/loss_flops.png", "rb").read() == picture
    assert x["method"] == "edp" and x["quick"] is True and len(x["runs"]) == 17
    drawn = {f["name"] for f in x["figures"]}
    skipped = {s["name"] for s in x["skipped"]}
    every = {f["name"] for f in run_json("figure", "list")["figures"]}
    assert drawn | (skipped & every) == every and not drawn & skipped
    assert [os.path.basename(p) for p in x["tables"]] == ["table.md", "table.tex", "table.csv"]


@test
def its_figures_and_table_say_quick():
    again = run("figure", "--again", "out/loss_flops.png")
    assert "unchanged" in again, again
    recipe = run("inspect", "out/loss_flops.png")
    assert "Quick: " in recipe and "not a result" in recipe, recipe
    assert open("out/table.md").read().startswith("Quick: ")
    assert open("out/table.tex").read().startswith("% Quick: ")


@test
def the_controls_execute_what_the_method_was_measured_to_execute():
    rows = {line.split(",")[0]: line.split(",") for line in open("out/table.csv").read().splitlines()}
    head = rows["label"]
    blocks = head.index("block_ratio")
    edp, rand = float(rows["edp"][blocks]), float(rows["control: random"][blocks])
    assert abs(edp - rand) < 0.12, (edp, rand)
    dense = [k for k in rows if k.startswith('"control: dense')] or [k for k in rows if "control: dense" in k]
    assert dense, list(rows)


@test
def the_dense_control_has_the_flops_of_the_method_and_a_failed_seed_leaves_the_rest():
    """A third of this model's FLOPs are those of its head, which a shallower model keeps."""
    words = ["pipeline", *TINY, "model.method=mod", "model.dim=8", "data.tokenizer=bytes", "--quick", "--seeds", "1,2", "-o", "half",
             "--format", "png"]
    env = {**os.environ, "DEPTHSCOPE_RUNS": "half-runs"}
    name = re.search(r"pipeline-mod-s2-\w+", call(*words, "--dry-run", env=env)[2]).group()
    os.mkdir("half-runs")
    with open("half-runs/" + name, "w") as f:  # in the way
        f.write("mine")
    status, _, err = call(*words, env=env, seconds=300)
    assert status == 1 and "Not a directory" in err and open("half-runs/" + name).read() == "mine", err
    rows = {r["label"].split(", ")[0]: r for r in csv.DictReader(open("half/table.csv"))}
    assert (rows["mod"]["n"], rows["control: dense"]["n"]) == ("1", "2"), rows

    def dense_flops(run):
        frames = open(glob.glob("half-runs/%s-s1-*/log.mp" % run)[0], "rb").read()
        return _msgpack.unpack(frames[18:struct.unpack(">I", frames[1:5])[0] + 6])["flops_dense"]
    whole, less = dense_flops("pipeline-dense"), dense_flops("pipeline-control__dense__*")
    layers = int(re.search(r"dense, (\d+) layers", rows["control: dense"]["label"]).group(1))
    layer = (whole - less) / (6 - layers)
    assert abs(less - float(rows["mod"]["flops_ratio"]) * whole) <= 0.5 * layer, (less, rows["mod"]["flops_ratio"], whole)


@test
def a_dry_run_lists_runs_with_estimates_and_starts_nothing():
    count = len(logs())
    status, out, err = call("pipeline", *TINY, "model.method=mod", "--quick", "-o", "new", "--dry-run")
    assert status == 0 and not os.path.exists("new") and len(logs()) == count
    lines = err.splitlines()
    assert any("pipeline-mod-s1" in x and "would start" in x and "about" in x for x in lines), err
    assert "skipped ablations: none are defined for this method" in lines
    assert lines[-1].startswith("then the evaluation, figures and table in new; about "), lines[-1]


@test
def what_cannot_work_is_refused_before_anything_starts():
    refused("the preset is dense", "pipeline", "model.method=dense", code=2)
    refused("use --seeds", "pipeline", "seed=3", code=2)
    refused("unknown format", "pipeline", "--format", "gif", code=2)
    refused("holds another pipeline", "pipeline", "tiny", "--quick", "-o", "out", code=1)
    with open("out/pipeline.json", "r+") as f:
        saved = f.read()
        f.seek(0)
        f.write('{"pre')
        f.truncate()
    refused("pipeline.json", *WORDS, code=1)
    with open("out/pipeline.json", "w") as f:
        f.write(saved)


@test
def another_pipeline_in_the_same_directory_is_evaluated_anew():
    for method, shown in (("mod", "starts"), ("gateskip", "starts"), ("gateskip", "already done")):
        status, _, err = call("pipeline", *TINY, "--quick", "-o", "turns", "--format", "png", "model.method=" + method, seconds=300)
        assert status == 0, err
        head = json.loads(run("stream", "turns/capacity.mp", "--json").splitlines()[0])
        assert head["method"] == method and head["run"].startswith("pipeline-%s-s1-" % method), head
        for name in ("capacity.mp", "bench.json"):
            assert "%s: %s" % (name, shown) in err, err
        with open("turns/bench.json") as f:
            assert "/%s/" % head["run"] in json.load(f)["checkpoint"]


t.main()
