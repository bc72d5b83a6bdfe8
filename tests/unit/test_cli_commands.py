"""The subcommands as a script meets them: JSON shapes, exit statuses, one-line errors, resumable batches.
DEPTHSCOPE names the program."""
import csv
import glob
import io
import json
import os
import pty
import re
import shutil
import signal
import struct
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import t  # noqa: E402
from records import Log  # noqa: E402
from t import PROGRAM, SLOW, TINY, refused, run, run_json, test  # noqa: E402


@test
def eval_has_the_documented_keys_and_reproduces_the_run():
    x = run_json("eval", "tiny")
    for key in ("task routing loss bits_per_byte tokens flops_ratio time_ratio capacity block_ratio depth_sd "
                "corr_signal_depth").split():
        assert key in x, key
    assert x["task"] == "ppl" and x["routing"] == "causal" and len(x["capacity"]) == 6
    final = [r for r in run_json("runs") if r["name"] == "tiny"][0]
    assert abs(final["val_loss"] - x["loss"]) < 1e-4, (final, x["loss"])
    dense = run_json("eval", "tiny", "routing=dense", "time_rounds=0")
    assert dense["block_ratio"] == 1 and dense["time_ratio"] is None
    assert "val loss" not in run("eval", "tiny") and "bits per byte" in run("eval", "tiny")
    text = run("eval", "tiny", "routing=dense", "time_rounds=0", "tokens=12000")
    assert "e+0" not in text and re.search(r"bytes of text +1\d\.\dk\n", text), text
    assert "(1 packed window of" in run("eval", "tiny", "time_rounds=0", "tokens=1")


@test
def what_is_no_model_and_no_run_of_train_is_named():
    with open("metrics.csv", "w") as f:
        f.write("step,loss\n1,2.5\n2,2.25\n")
    with open("settings.json", "w") as f:
        f.write('{"a": 1}\n')
    for path in ("metrics.csv", "settings.json", "runs/tiny/log.mp"):
        refused(path + ": not a model: expected a run, a directory with config.json, or", "eval", path, code=1)
    shutil.copytree(sorted(glob.glob("runs/tiny/checkpoints/step-*"))[-1], "pickled")
    for name in ("tokenizer.json", "model.safetensors"):
        os.remove("pickled/" + name)
    for path in ("pickled/pytorch_model.bin", "model.bin"):
        with open(path, "wb") as f:
            f.write(b"PK\3\4abcdefgh")
    refused("pickles can execute code", "eval", "pickled", code=1)
    refused("not a llama2.c model: this is a zip file", "eval", "model.bin", code=1)
    Log("runs/python/log.mp").put("head", 0, run="python", writer="depthscope-python 1.1.0", config={"lr": "0.1"})
    with open("runs/python/config.yaml", "w") as f:
        f.write('lr: "0.1"\n')
    refused("a run of another program, which has no checkpoints", "eval", "python", code=1)
    refused("--resume python: not a run of depthscope train", "train", "--resume", "python")
    shutil.rmtree("runs/python")


@test
def eval_rejects_unsupported_settings():
    refused("no top-k routing", "eval", "tiny", "routing=topk")
    refused("did you mean tokens", "eval", "tiny", "tokns=1")
    refused("unknown", "eval", "tiny", "task=mmluu")
    refused("model not found", "eval", "nothing-here", code=1)
    refused("missing argument MODEL", "eval")
    refused("one MODEL", "eval", "a", "b")
    refused("--json", "eval", "tiny", "--jsn")
    refused("the model's context", "eval", "tiny", "seq=100000", code=1)
    refused("nowhere.txt", "eval", "tiny", "data.path=nowhere.txt", code=1)


@test
def eval_reads_a_file_and_writes_records():
    with open("some.txt", "w") as f:
        f.write("The cat sat on the mat and looked at the moon. " * 40)
    x = run_json("eval", "tiny", "data.path=some.txt", "-o", "eval.mp")
    assert x["tokens"] > 0
    assert "1 head, 1 eval, 1 sample" in run("inspect", "eval.mp")
    run("eval", "tiny", "data.path=some.txt", "-o", "eval.mp")
    assert "1 head, 1 eval, 1 sample" in run("inspect", "eval.mp")
    refused("not a record file", "eval", "tiny", "data.path=some.txt", "-o", "some.txt", code=1)


@test
def generate_has_the_documented_keys_and_is_reproducible():
    a = run_json("generate", "tiny", "--prompt", "The cat", "max_tokens=12", "seed=3")
    b = run_json("generate", "tiny", "--prompt", "The cat", "max_tokens=12", "seed=3")
    for key in "text prompt_ids ids depth flops_ratio tok_s block_ratio time_ratio".split():
        assert key in a, key
    assert a["ids"] == b["ids"] and a["text"] == b["text"]
    assert len(a["depth"]) == len(a["ids"]) and all(2 <= d <= 6 for d in a["depth"])
    plain = run("generate", "tiny", "--prompt", "The cat", "max_tokens=12", "seed=3", "--quiet", raw=True)
    assert plain.decode("utf-8", "replace") == "The cat" + a["text"], (plain, a["text"])
    ids = run_json("tokenize", "tiny", "--text", "The cat")["ids"]
    assert ids == a["prompt_ids"]
    greedy = run_json("generate", "tiny", "--prompt", "", "max_tokens=3", "temperature=0")
    assert len(greedy["prompt_ids"]) == 1
    refused("missing prompt", "generate", "tiny")
    refused("top_p", "generate", "tiny", "--prompt", "x", "top_p=2", code=2)


@test
def trace_has_the_documented_keys():
    x = run_json("trace", "tiny", "--text", "The cat sat", "-o", "t.mp", "lens=2")
    assert x["layers"] == 6
    for t in x["tokens"]:
        assert len(t["run"]) == len(t["gate"]) == len(t["score"]) == 6
        assert sum(t["run"]) == t["depth"] and t["flops"] > 0 and isinstance(t["text"], str)
    assert x["tokens"][0]["nll"] is None and x["tokens"][1]["nll"] > 0
    said = run("inspect", "t.mp")
    assert "1 head, 1 probe" in said and "what-if" not in said, said
    run("trace", "tiny", "--text", "The cat sat", "-o", "asked.mp", "threshold_offset=0.5", "exit.layer=4")
    assert "tokens; what-if, threshold offset +0.5, first 4 layers only; cells:" in run("inspect", "asked.mp")
    refused("--text TEXT", "trace", "tiny", "-o", "t.mp")
    refused("missing output", "trace", "tiny", "--text", "x")
    refused("empty text", "trace", "tiny", "--text", "", "--json")
    refused("the model's context", "trace", "tiny", "--text", "x" * 9000, "--json", code=1)
    assert len(run_json("trace", "tiny", "--text", "x y " * 3000, "cut=true")["tokens"]) == 1024


@test
def a_request_without_an_end_ends_the_session():
    status, out, err = t.call("serve", "tiny", data=b'{"do":"info"}\n' + b"x" * ((4 << 20) + 1))
    assert status == 1 and err == "depthscope: request longer than 4194304 bytes\n", (status, err)
    assert out.count(b"request longer than") == 1, out[-200:]


@test
def tokenize_gives_ids_and_pieces_and_survives_odd_bytes():
    x = run_json("tokenize", "bytes", data=b"a\xff\x00b")
    assert x["ids"] == [97, 255, 0, 98] and len(x["pieces"]) == 4
    assert "\x1b" not in run("tokenize", "bytes", "--text", "\x1b[2J")
    assert run_json("tokenize", "bytes", "--text", "")["ids"] == []


@test
def stream_gives_the_log_and_ends():
    whole = open("runs/tiny/log.mp", "rb").read()
    assert run("stream", "tiny", raw=True) == whole
    with open("torn.mp", "wb") as f:
        f.write(whole[:-5])
    torn = run("stream", "torn.mp", raw=True)
    assert whole.startswith(torn) and len(torn) < len(whole) - 5
    p = subprocess.Popen([PROGRAM, "stream", "tiny"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    p.stdout.read(1)
    p.stdout.close()
    assert p.wait(20 * SLOW) == 0 and p.stderr.read() == b""
    p.stderr.close()


@test
def inspect_recognises_every_kind_of_file():
    assert "all files match the manifest" in run("inspect", "runs/tiny/checkpoints/step-00000010")
    assert "tokenizer: bpe" in run("inspect", "runs/tiny/checkpoints/step-00000010/tokenizer.json")
    assert "model.embed_tokens.weight" in run("inspect", "runs/tiny/checkpoints/step-00000010/model.safetensors")
    assert "val_loss" in run("inspect", "tiny")
    refused("", "inspect", "some.txt", code=1)
    open("empty.png", "w").close()
    refused("empty.png", "inspect", "empty.png", code=1)


@test
def sweep_runs_once_and_ends_with_a_table_and_a_summary():
    words = ["sweep", *TINY, "train.lr=0.001,0.01", "--seeds", "1,2"]
    x = run_json(*words)
    assert [r["label"] for r in x["rows"]] == ["lr=0.001", "lr=0.01"] and x["seeds"] == [1, 2]
    assert all(r["n"] == 2 and r["val_loss"]["lo"] <= r["val_loss"]["mean"] <= r["val_loss"]["hi"] for r in x["rows"])
    assert json.load(open("runs/sweep.json")) == x
    again = run_json(*words)
    assert run.err.count("already done") == 4 and again == x
    assert "lr=0.01" in run(*words, "--quiet")
    assert run.err == ""
    refused("did you mean train.lr?", "sweep", "train.lrr=1,2")
    refused("empty value", "sweep", "train.lr=1,,2")
    refused("seeds", "sweep", "seed=1,2", "--seeds", "1")
    refused("create nowhere/s.json", "sweep", *TINY, "--seeds", "7", "--out", "nowhere/s.json", code=1)
    assert not [d for d in os.listdir("runs") if "-s7-" in d], "found before the runs"


@test
def sweeps_run_over_presets_and_from_train_too():
    with open("half.yaml", "w") as f:
        f.write("train:\n  lr: 0.002\n")
    with open("held.yaml", "w") as f:
        f.write("train:\n  lr: 0.004\n")
    x = run_json("sweep", "tiny,half.yaml", *TINY, "--seeds", "3", "--out", "presets.json")
    assert [r["label"] for r in x["rows"]] == ["tiny", "half.yaml"] and x["preset"] == "tiny,half", x
    assert [r["preset"] for r in x["rows"]] == ["tiny", "half"] and all(r["n"] == 1 for r in x["rows"])
    run("sweep", "small", "half.yaml,held.yaml", "quick", "train.seq=32,64", "seed=1,2", "--dry-run")
    assert run.err.count("would start") == 8 and "half.yaml_seq_32-s1" in run.err, run.err
    for flag in ("-m", "--multirun"):
        run("train", flag, "tiny", "--mode", "quick", "train.lr=1e-3,3e-3", "seed=4", "--dry-run")
        assert run.err.count("would start") == 2, run.err
    run("ablate", "small", "quick", "--seeds", "1", "--only", "no_warp_forward", "--dry-run")
    assert run.err.count("would start") == 2, run.err
    refused("did you mean scratch", "sweep", "tiny", "--mode", "scrach", "--dry-run")
    refused("empty value", "sweep", "tiny,,small", "--dry-run")
    refused("duplicate preset", "sweep", "tiny", "tiny", "--dry-run")


@test
def several_presets_combine_into_one_run():
    run("train", "tiny", "half.yaml", "--mode", "quick", *TINY, "train.steps=2", "--quiet")
    assert [d for d in os.listdir("runs") if d == "tiny-half-quick-edp-1"], os.listdir("runs")
    x = [r for r in run_json("runs") if r["name"] == "tiny-half-quick-edp-1"][0]
    assert x["preset"] == "tiny+half+quick", x
    with open("runs/tiny-half-quick-edp-1/config.yaml") as f:
        text = f.read()
    assert "lr: 0.002" in text and "steps: 2\n" in text
    refused("--resume uses the run's own", "train", "--resume", "tiny-half-quick-edp-1", "--mode", "quick")
    shutil.rmtree("runs/tiny-half-quick-edp-1")


@test
def transfer_starts_from_a_model():
    small = ("train.seq=32 train.batch=2 train.steps=2 train.warmup=1 train.final_tokens=256 train.eval_tokens=256 "
             "train.time_rounds=0 data.docs=60 data.val_fraction=0.3").split()
    refused("missing train.init", "train", "transfer", *small, "--run", "moved")
    refused("missing train.init", "train", "--mode", "transfer", *small, "--run", "moved")
    run("train", "--mode", "transfer", *small, "train.init=tiny", "--run", "moved", "--quiet")
    with open("runs/moved/config.yaml") as f:
        text = f.read()
    assert "lr: 0.0001\n" in text and "dim: 32\n" in text and "???" not in text, text
    shutil.rmtree("runs/moved")


@test
def presets_list_sizes_and_keys():
    rows = {r["preset"]: r for r in run_json("presets")}
    x = rows["qwen2.5-1.5b"]
    assert x["params"] == 1543714304 and x["extends"] == "qwen2.5-0.5b" and x["train_bytes"] == 16 * x["params"]
    # forward of one token over a context of one: twice the weights of the products
    tokens = (x["context"] + 1) / 2
    products = x["params"] - 28 * (1536 * 2 + 1536 + 512) - 1536
    assert abs(x["flops_token"] - (2 * products + 28 * 4 * tokens * 1536)) < 1e-6 * x["flops_token"], x
    d = run_json("presets", "small", "dlr")
    C, L, r, base = int(d["keys"]["model.dim"]), d["layers"], int(d["keys"]["model.lora_r"]), d["params"]
    assert d["keys"]["train.freeze"] == "base" and d["keys"]["model.lora_targets"] == "q,k,v,o", d["keys"]
    H = int(d["keys"]["model.heads"]) * int(d["keys"]["model.head_dim"])
    K = int(d["keys"]["model.kv_heads"]) * int(d["keys"]["model.head_dim"])
    adapters = L * r * (2 * (C + H) + 2 * (C + K))
    assert d["train_bytes"] == 4 * base + 16 * (adapters + d["params_method"]), (d["train_bytes"], base, adapters)
    text = run("presets")
    assert "494,032,768" in text and "llama-3.1-8b" in text
    one = run("presets", "gpt-edp")
    assert "# parameters: 63,636,992" in one and "position: learned" in one
    two = run_json("presets", "stories", "small", "quick")
    assert two["preset"] == "stories+small+quick" and two["keys"]["model.dim"] == "128" and two["keys"]["train.lr"] == "0.004"
    with open("mine.yaml", "w") as f:
        f.write(one)
    assert run_json("presets", "mine.yaml")["params"] == 63636992, "what is printed reads back"
    refused("did you mean llama2-7b", "presets", "llama27b")
    refused("found setting", "presets", "tiny", "train.lr=1")
    refused("--json", "presets", "--jsn")


@test
def keys_list_aliases_ranges_and_defaults():
    lines = run("train", "--keys", "edp").splitlines()
    early = [x for x in lines if x.startswith("edp.early ")][0]
    assert "0 to 4096" in early and early.endswith("also early_layers")
    assert len({x.index("first") for x in lines if "first layers" in x} | {early.index("first")}) == 1, "aligned"
    rows = {r["key"]: r for r in run_json("train", "--keys", "all")}
    assert rows["edp.early"]["alias"] == "early_layers" and rows["train.lr"]["max"] == 1
    live = {k for k in rows if rows[k]["live"]}
    assert {"train.lr", "edp.target_ratio", "dlr.target_ratio"} <= live and "train.steps" not in live
    assert [x.split()[0] for x in lines if "can be set while a run trains" in x] == [k for k in rows if k in live and k[:4] == "edp."]
    assert rows["model.attn_bias"]["choices"] == "false|true|qkv" and "seed" in rows and "data.path" in rows
    assert set(r["key"] for r in run_json("train", "--keys", "model")) == {k for k in rows if k.startswith("model.")}
    assert run_json("train", "--keys", "dense") == [] and "no keys of its own" in run("train", "--keys", "dense")
    refused("did you mean edp", "train", "--keys", "edpp")
    refused("did you mean all", "train", "--keys", "al")


@test
def an_interrupted_sweep_resumes():
    words = [PROGRAM, "sweep", *TINY, "train.steps=400", "train.eval_every=400", "--seeds", "7", "--out", "cut.json"]
    p = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    name = None
    end = time.time() + 60 * SLOW
    while time.time() < end and p.poll() is None:
        found = [d for d in os.listdir("runs") if d.endswith(tuple("0123456789abcdef")) and "-s7-" in d]
        if found and os.path.isdir("runs/%s/checkpoints/step-00000005" % found[0]) or \
           found and os.path.isdir("runs/%s/checkpoints" % found[0]) and os.listdir("runs/%s/checkpoints" % found[0]):
            name = found[0]
            break
        time.sleep(0.02)
    assert name, "no checkpoint came"
    p.send_signal(signal.SIGTERM)
    p.communicate(timeout=60 * SLOW)
    if p.returncode == 0:
        return  # it was faster
    assert p.returncode == 143, p.returncode
    state = [r for r in run_json("runs") if r["name"] == name][0]
    assert state["state"] == "stopped" and 0 < state["step"] < 400, state
    run(*words[1:])
    assert "resumes from its checkpoint" in run.err
    assert [r for r in run_json("runs") if r["name"] == name][0]["state"] == "done"


@test
def ablate_compares_rows_with_a_matched_control():
    x = run_json("ablate", *TINY, "--seeds", "1,2", "--only", "no_warp_forward,target_ratio_0.4")
    rows = {r["label"]: r for r in x["rows"]}
    lower = [x for x in rows if x.startswith("target_ratio_")]
    assert list(rows) == ["control", "no_warp_forward", *lower] and len(lower) == 1, list(rows)
    assert rows["control"]["n"] == 2 and rows["no_warp_forward"]["n"] == 2 and rows[lower[0]]["n"] == 2
    assert [p["label"] for p in x["paired"]] == list(rows)[1:] and all(p["n"] == 2 for p in x["paired"]), x["paired"]
    assert all(p["p_holm"] >= p["p"] for p in x["paired"])
    text = run("ablate", *TINY, "--seeds", "1,2", "--only", "no_warp_forward,target_ratio_0.4")
    assert "val loss minus that of control, paired by seed" in text and "for 2 comparisons" in text, text
    refused("did you mean no_warp_forward", "ablate", "--only", "no_warp")
    refused("must be edp for ablations", "ablate", *TINY, "model.method=dense")
    dry = run("ablate", *TINY, "--seeds", "1", "--dry-run")
    assert dry == "" and run.err.count("would start") + run.err.count("already done") == 12, run.err


@test
def a_dry_run_lists_runs_and_writes_nothing():
    before = sorted(os.listdir("runs"))
    run("ablate", "quick", "--seeds", "1", "--dry-run")
    assert run.err.count("would start") == 12 and "refused" not in run.err, run.err
    assert "target_ratio_0.4 cannot be reached with the layers that are always on or forced; using target_ratio_0.55 instead" in run.err
    assert "ablate-target_ratio_0.55-s1" in run.err and "starts" not in run.err
    run("ablate", "quick", "edp.max_skip=16", "--seeds", "1", "--dry-run")
    assert "ablate-target_ratio_0.4-s1" in run.err and "instead" not in run.err, run.err
    run("sweep", *TINY, "train.lr=0.003,0.004", "--seeds", "1", "--dry-run")
    assert run.err.count("would start") == 2
    run("sweep", *TINY, "train.lr=1e-3,0.001,0.0010,2e-3", "--seeds", "1", "--dry-run")
    assert run.err.count("would start") == 2 and run.err.count(": same settings as lr=1e-3\n") == 2, run.err
    run("sweep", *TINY, "edp.target_ratio=0.01,0.9", "--seeds", "1", "--dry-run")
    assert run.err.index("cannot be reached") < run.err.index("would start") and run.err.count("would start") == 1, run.err
    run("isoflop", "quick", "--budget", "1e13", "--sizes", "8x64x2", "--seeds", "1", "--dry-run")
    assert run.err.count("would start") == 1, run.err
    assert sorted(os.listdir("runs")) == before


@test
def isoflop_trains_sizes_with_the_same_flops():
    tiny = [w for w in TINY if not w.startswith(("train.steps=", "model.layers=", "model.dim=", "model.heads="))]
    words = ["isoflop", *tiny, "--budget", "6e8,1.2e9", "--sizes", "4x32x2,4x48x2,8x96x3", "--methods", "dense,random",
             "--seeds", "1"]
    x = run_json(*words)
    told = run.err
    assert "training computes every row" in told and "training skips" in told
    rows = {r["label"]: r for r in x["rows"]}
    assert len(rows) == 12 and "expected at least 20" in rows["dense 8x96x3 6e8"]["refused"]
    dense, lots = rows["dense 4x32x2 1.2e9"], rows["random 4x32x2 1.2e9"]
    steps = [int([s for s in r["settings"] if s.startswith("train.steps=")][0][12:]) for r in (dense, lots)]
    assert steps[0] >= 20 and steps[1] > 1.15 * steps[0], steps
    assert abs(steps[0] - 2 * int([s for s in rows["dense 4x32x2 6e8"]["settings"]
                                   if s.startswith("train.steps=")][0][12:])) <= 1
    assert "train.flops_budget=1200000000" in dense["settings"]
    names = sorted(d for d in os.listdir("runs") if d.startswith("isoflop-"))
    assert names and all([r for r in run_json("runs") if r["name"] == n][0]["state"] == "done" for n in names)
    run(*words)
    assert run.err.count("already done") == len(names)
    drawn = run_json("figure", "isoflop", *["runs/" + n for n in names], "-o", "iso", "--format", "svg")
    assert "2 sizes, no fit" in drawn["figures"][0]["caption"] or "FLOPs" in drawn["figures"][0]["caption"]


@test
def isoflop_rejects_invalid_arguments():
    refused("missing --budget", "isoflop", "--sizes", "4x32")
    refused("missing --sizes", "isoflop", "--budget", "1e9")
    refused("must be a number greater than 0", "isoflop", "--budget", "1e9,lots", "--sizes", "4x32")
    refused("must be a number greater than 0", "isoflop", "--budget", "-1", "--sizes", "4x32")
    refused("expected LAYERSxDIM", "isoflop", "--budget", "1e9", "--sizes", "4x32y")
    refused("use LAYERSxDIMxHEADS", "isoflop", "--budget", "1e9", "--sizes", "4x33")
    refused("unknown preset nothing", "isoflop", "--budget", "1e9", "--sizes", "nothing")
    refused("steps follow from --budget", "isoflop", "--budget", "1e9", "--sizes", "4x32", "train.steps=3")
    for key in "layers=2 dim=64 heads=2 kv_heads=1 head_dim=8 ffn=64".split():
        refused("already set by --sizes 4x32", "isoflop", "--budget", "1e9", "--sizes", "tiny,4x32", "model." + key)
    assert run.err.count("\n") == 1, run.err
    refused("train.teacher=self: the teacher's forward", "isoflop", *TINY[3:4], "data.docs=60", "--budget", "1e9", "--sizes", "8x32",
            "--methods", "edp", "train.teacher=self")
    refused("unknown model.method=mood", "isoflop", "--budget", "1e9", "--sizes", "4x32", "--methods", "mood")
    refused("expected at least 20", "isoflop", *TINY[3:4], "data.docs=60", "--budget", "1e6", "--sizes", "4x32",
            "--methods", "dense")
    refused("--max-tokens allows", "isoflop", *TINY[3:4], "data.docs=60", "train.batch=2", "--budget", "1e13", "--sizes",
            "4x32", "--methods", "dense", "--max-tokens", "1000")


@test
def compare_groups_seeds_and_names_what_differs():
    names = sorted(d for d in os.listdir("runs") if d.startswith("sweep-lr"))
    assert len(names) == 4, names
    x = run_json("compare", *names)
    assert len(x["runs"]) == 4 and len(x["groups"]) == 2 and list(x["differences"]) == ["train.lr"]
    assert all(g["n"] == 2 for g in x["groups"])
    one = run("compare", names[0])
    assert "-" in one and "[" not in one.split("\n")[1]
    assert len(run_json("compare", "--each", *names)["groups"]) == 4
    text = run("compare", *names)
    assert "paired by seed" in text and "Holm's adjustment for 1 comparison\n" in text, text
    pair = x["paired"]
    losses = [[r["val_loss"] for r in sorted(g["runs"], key=lambda r: r["seed"])] for g in x["groups"]]
    mean = sum(b - a for a, b in zip(*losses)) / 2
    assert len(pair) == 1 and pair[0]["n"] == 2 and abs(pair[0]["mean"] - mean) < 1e-6 and pair[0]["p"] == pair[0]["p_holm"], pair


@test
def compare_prints_csv_and_latex():
    names = sorted(d for d in os.listdir("runs") if d.startswith("sweep-lr"))
    groups = run_json("compare", *names)["groups"]
    rows = list(csv.DictReader(io.StringIO(run("compare", "--csv", *names))))
    assert [r["label"] for r in rows] == [g["label"] for g in groups] and len(rows) == 2
    for r, g in zip(rows, groups):
        assert int(r["n"]) == 2 and abs(float(r["val_loss"]) - g["val_loss"]["mean"]) < 1e-6, r
        assert abs(float(r["flops_ratio_lo"]) - g["flops_ratio"]["lo"]) < 1e-6, r
    assert rows[0]["p_holm"] == "" and 0 <= float(rows[1]["p_holm"]) <= 1
    latex = run("compare", "--latex", *names)
    body = latex.split("\\midrule\n")[1].split("\\bottomrule")[0]
    assert body.count("\\\\\n") == 2 and names[0].replace("_", "\\_") in body, latex
    columns = latex.split("tabular}{")[1].index("}")
    assert all(line.count("&") == columns - 1 for line in body.splitlines()), latex
    refused("only one of", "compare", "--csv", "--json", *names)


@test
def compare_fits_the_terminal_and_is_whole_in_a_pipe():
    names = sorted(d for d in os.listdir("runs") if d.startswith("sweep-lr"))
    assert max(map(len, run("compare", *names).splitlines())) > 100
    for columns in (60, 80, 132):
        text = at_terminal(columns, "compare", *names)
        assert max(map(len, text.splitlines())) <= columns, text
        assert "val loss" in text and "p (Holm)" in text and "train.lr" in text, text
    assert "omitted to fit the terminal" in at_terminal(60, "compare", *names)


def at_terminal(columns, *words):
    """What the program prints on a terminal of this width."""
    lines = []
    pid, fd = pty.fork()
    if pid == 0:
        os.execve("/bin/sh", ["sh", "-c", "stty cols %d; exec \"$0\" \"$@\"" % columns, PROGRAM, *words],
                  {**os.environ, "TERM": "xterm", "LC_ALL": "C.UTF-8"})
    while True:
        try:
            got = os.read(fd, 65536)
        except OSError:  # the end of a terminal
            break
        if not got:
            break
        lines.append(got)
    assert os.waitpid(pid, 0)[1] == 0, b"".join(lines)
    os.close(fd)
    return b"".join(lines).decode("utf-8").replace("\r\n", "\n")


@test
def text_is_shown_as_it_is_where_the_locale_is_utf8():
    name = next(d for d in os.listdir("runs") if d.startswith("sweep-lr"))
    run("runs", "note", name, "caf\u00e9 \u4e2d")
    assert run("runs", "note", name, LC_ALL="C.UTF-8") == "caf\u00e9 \u4e2d\n"
    assert "caf\u00e9 \u4e2d" in run("runs", LC_ALL="C.UTF-8")
    assert run("runs", "note", name, LC_ALL="C") == "caf<U+00E9> <U+4E2D>\n"
    run("runs", "note", name, "")


@test
def long_values_are_groups_of_their_own():
    for end in "ab":
        run("train", "tiny", *TINY, "train.steps=1", "data.text_key=%s%s" % ("k" * 70, end), "--run", "long-" + end, "--quiet")
    text = run("runs", "--group", "data.text_key", "--filter", "long-")
    assert text.count("(1 run)") == 2 and "k" * 70 + "b (1" in text, text
    run("runs", "note", "long-a", "\u00e9" * 200)
    assert "<0x" not in run("runs", LC_ALL="C.UTF-8")
    assert "settings that differ" in run("compare", "long-a", "long-b", "--each")
    assert "k" * 70 + "b" in run("compare", "long-a", "long-b", "--each")
    assert "settings that differ" not in run("compare", "long-a")
    run("runs", "rm", "long-a", "long-b")


@test
def compare_rejects_invalid_arguments():
    refused("no run or file of this name", "compare", "nothing", code=1)
    refused("1 to", "compare")


@test
def help_and_doctor_and_usage():
    assert "depthscope eval" in run("help")
    keys = run("help", "keys")
    assert "`train.lr`" in keys and "`edp.target_ratio`" in keys and "`temperature`" in keys
    for c in "train presets eval generate trace sweep ablate isoflop compare runs inspect tokenize stream bench doctor".split():
        assert run("help", c).startswith("depthscope " + c), c
        assert run(c, "--help").startswith("depthscope " + c), c
    refused("did you mean eval", "help", "evla")
    assert {x["name"] for x in run_json("doctor")} >= {"processor", "runs", "locale"}


def cpu_has_bf16_kernels():
    """Of its own, rather than rounded inputs of those for fp32."""
    return any(x["name"] == "processor" and "avx512" in str(x) for x in run_json("doctor"))


QUICK = ("quick=true", "rounds=1", "prefill=64", "decode=2", "batch=1", "seq=32")


@test
def bench_has_the_documented_shape():
    x = run_json("bench", *QUICK)
    for r in x["results"]:
        assert {"name", "unit", "median", "min", "max", "vs", "group"} <= set(r) and r["min"] <= r["median"] <= r["max"], r
        assert r["median"] > 0 and ("limit" in r) == ("share" in r), r
    names = [r["name"] for r in x["results"]]
    assert len(set(names)) == len(names), names
    for part in ("peak fp32", "peak bf16", "peak int8", "peak read", "gemm", "rmsnorm forward", "attention backward", "adamw",
                 "block forward 0.50", "block forward+backward dense", "train step dense", "train step random 0.50",
                 "train step edp 0.50 masked", "prefill edp 0.50", "decode random 0.50"):
        assert any(n.startswith(part) for n in names), part
    row = {r["name"]: r for r in x["results"]}
    for n in ("train step static 0.50", "prefill random 0.50", "decode edp 0.50"):
        assert 0.1 < row[n]["flops_ratio"] < 1 and row[n]["time_ratio"] > 0 and row[n]["reference"] == "dense", row[n]
    assert row["train step edp 0.50 masked"]["flops_ratio"] == 1, row["train step edp 0.50 masked"]
    for n in ("train step dense", "prefill dense", "decode dense"):
        assert row[n]["tokens_s"] == row[n]["median"] and row[n]["gflops"] > 0, row[n]
        assert min(row[n][k] for k in ("weights_bytes", "stream_bytes", "work_bytes")) > 0, row[n]
    assert row["train step dense"]["weights_bytes"] > row["decode dense"]["weights_bytes"], row["decode dense"]
    assert row["decode dense"]["limit"] == "read" and x["memory_bytes"] > 0, x


@test
def bench_counts_flops_and_bytes_of_the_shape():
    L, C, F, V, T = 3, 64, 96, 300, 32
    x = run_json("bench", "quick=true", "rounds=1", "layers=3", "dim=64", "heads=2", "vocab=300", "model.ffn=96", "prefill=32",
                 "decode=2", "batch=2", "seq=32", "only=train step dense,prefill dense,decode dense", "compute=fp32")
    row = {r["name"]: r for r in x["results"]}
    weights = L * (4 * C * C + 3 * C * F)
    forward = 2 * weights + L * 4 * C * (T + 1) / 2  # keys and weighted values of the rows a row sees
    train, prefill, decode = (row[n + " dense"] for n in ("train step", "prefill", "decode"))
    assert abs(1e9 * train["gflops"] / train["tokens_s"] / (3 * (forward + 2 * C * V)) - 1) < 1e-3, train
    assert abs(1e9 * prefill["gflops"] / prefill["tokens_s"] / forward - 1) < 0.05, prefill  # one row has logits
    assert 0.999 < 1e9 * decode["gbs"] / decode["tokens_s"] / (4 * (weights + C * V)) < 1.1, decode  # panels are whole
    # a file of mixed types, most experts of which no token reads: each part has its own bytes per weight
    run("convert", "random:tiny", "model.method=dense", "model.layers=1", "model.dim=256", "model.heads=4", "model.kv_heads=4", "model.ffn=256",
        "model.experts=16", "model.experts_used=2", "model.expert_ffn=256", "model.vocab=4096", "tokenizer=bytes", "-o", "mixed.gguf", "weights=q4_k")
    mixed = {r["name"]: r for r in run_json("bench", "mixed.gguf", "only=decode dense", "quick=true", "prefill=32", "decode=2", "compute=bf16")["results"]}["decode dense"]
    want = (4 + 2 * 3) * 256 * 256 * 144 / 256 + 4096 * 256 * 210 / 256  # q4_k, and the head in q6_k
    assert 0.99 < 1e9 * mixed["gbs"] / mixed["tokens_s"] / want < 1.06, (mixed, want)
    peak = {r["name"].split(",")[0]: r for r in x["results"] if r["group"] == "peaks"}
    assert abs(train["gflops"] / train["share"] / peak["peak fp32"]["max"] - 1) < 0.01, (train, peak)


@test
def bench_of_a_model_measures_loading_and_inference():
    quick = [x for x in QUICK if not x.startswith(("batch=", "seq="))]  # it is not trained
    run("convert", "random:quick", "model.dim=64", "model.heads=2", "model.kv_heads=2", "model.layers=3", "model.method=dense",
        "model.max_seq=128",
        "-o", "bench.gguf", "weights=q8_0")
    x = run_json("bench", "bench.gguf", *quick, "model.method=random")
    row = {r["name"]: r for r in x["results"] if r["group"] != "peaks"}
    read, fill, load, first, peak = (row[n] for n in row if n.startswith("load: "))
    assert fill["time_ratio"] > 0 and first["median"] > load["min"], (fill, load, first)
    cold = run_json("bench", "bench.gguf", *quick, "only=load")["results"]
    cold = [r for r in cold if "from disk" in r["name"]]
    assert ["time_ratio" in r for r in cold] == [False, True], cold
    size = os.path.getsize("bench.gguf")
    assert abs(read["gbs"] * read["median"] * 1e9 / size - 1) < 0.01 and load["time_ratio"] > 0, (read, load)
    run("train", *TINY, "train.steps=2", "--run", "weighed", "--quiet")
    weights = glob.glob("runs/weighed/checkpoints/*/model.safetensors")[-1]
    own = run_json("bench", weights.rsplit("/", 1)[0], *quick, "only=load")["results"]
    own = next(r for r in own if r["name"].startswith("load: read "))
    assert abs(own["gbs"] * own["median"] * 1e9 / os.path.getsize(weights) - 1) < 0.01, own  # not its optimizer's state
    assert peak["limit"] == "file" and abs(peak["share"] * size / 2**20 / peak["median"] - 1) < 0.01, peak
    assert row["prefill dense"]["limit"] == "int8" and row["decode random 0.50"]["flops_ratio"] < 1, row
    assert not any(n.startswith(("train", "block", "gemm")) for n in row), list(row)
    assert x["model"].startswith("3 x 64") and "batch" not in x["model"], x["model"]
    refused("context of 128 tokens", "bench", "bench.gguf", code=1)
    refused("one MODEL", "bench", "bench.gguf", "bench.gguf")
    some = [r["name"] for r in run_json("bench", "bench.gguf", *quick, "only=prefill")["results"]]
    assert "prefill mod 0.50" in some and not any(word in n for n in some for word in ("dlr", "load")), some
    assert "bench: dlr: skipped: model: dlr.keep=4 leaves no routed layer" in run.err, run.err
    refused("dlr.keep=4 leaves no routed layer", "bench", "bench.gguf", *quick, "only=prefill dlr", code=1)
    refused("model not found", "bench", "nosuch", code=1)


@test
def bench_measures_only_what_is_requested():
    def names(*args):
        return [r["name"] for r in run_json("bench", *QUICK, *args)["results"] if r["group"] != "peaks"]
    assert names("only=train step dense") == ["train step dense"]
    assert all(n.startswith("decode ") for n in names("only=decode"))
    assert names("only=peaks") == []
    x = run_json("bench", *QUICK, "only=peaks", "compute=bf16", "weights=q8_0")
    assert x["model"].endswith(", bf16, weights q8_0"), x["model"]
    assert names("only=adamw", "model.norm=layer") == ["adamw"]
    assert names("only=layernorm", "model.norm=layer") == ["layernorm forward", "layernorm backward"]
    assert "train step static 0.50" in names("only=static 0.50")
    looped = names("only=speculate,rope", "model.loop=3", "layers=2")
    assert looped == ["rope forward"], looped
    rows = run_json("bench", *QUICK, "only=decode gateskip", "model.method=gateskip", "layers=2", "model.loop=40")["results"]
    flops = [r["flops_ratio"] for r in rows if r["name"] == "decode gateskip 1.00"]
    assert len(flops) == 1 and flops[0] > 0.99, rows  # every iteration of every layer was executed
    for mlp in ("swiglu", "gelu", "gelu_tanh", "geglu"):
        assert names("only=%s forward,%s backward" % (mlp, mlp), "model.mlp=" + mlp) == [mlp + " forward", mlp + " backward"]
    assert names("only=prefill dense,rope") == ["rope forward", "prefill dense"]
    assert not any("random" in n for n in names("only=prefill", "model.method=static", "model.mlp=gelu"))
    x = run_json("bench", *QUICK, "shape=small", "only=block forward 0.50", "compute=fp32", "model.layers=3")
    assert x["model"].startswith("3 x 256, 4 heads, ffn 1024, vocab 4096"), x["model"]
    blocks = [r for r in run_json("bench", *QUICK, "only=quant q8_0 1x")["results"] if r["group"] == "ops"]
    assert len(blocks) == 1 and 0 < blocks[0]["share"] < 50, blocks  # of the memory bandwidth, or of caches
    widest = max(len(line) for line in run("bench", *QUICK, "only=0.50").splitlines())
    assert widest <= 100, widest
    both = [run_json("bench", *QUICK, "only=train step dense", "compute=" + c)["results"][-1]["weights_bytes"] for c in ("bf16", "fp32")]
    assert both[0] < both[1] or not cpu_has_bf16_kernels(), both  # training is measured in the format that is asked for
    refused("did you mean rounds", "bench", "round=1")
    refused("did you mean model.layers", "bench", "model.layer=1")
    refused("no measurement", "bench", "quick=true", "rounds=1", "only=nosuch")
    refused("must divide", "bench", "dim=100", "heads=3", code=1)
    assert names("prefill=16", "decode=40", "seq=16", "only=decode dense", "model.position=learned")[0] == "decode dense"
    for more in ((), ("model.position=learned",), ("only=train step dense", "decode=1", "prefill=16", "seq=64")):
        refused("model.max_seq=63: must be at least 6", "bench", *QUICK, "model.max_seq=63", *more, code=1)
    if os.path.exists("/proc/meminfo"):
        p = subprocess.run([PROGRAM, "bench", "shape=1.1b", "batch=1024", "seq=32768"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        assert p.returncode == 1 and b"free" in p.stderr and b"train" in p.stderr and p.stdout == b"", p


def llama2c_file(path, dim=8, hidden=16, layers=2, heads=2, vocab=300, seq=64):
    n = vocab * dim + layers * (2 * dim + 4 * dim * dim + 3 * dim * hidden) + dim + seq * (dim // heads)
    with open(path, "wb") as f:
        f.write(struct.pack("<7i", dim, hidden, layers, heads, heads, vocab, seq))
        f.write(struct.pack("<%df" % n, *(((i * 7919) % 201 - 100) / 500 for i in range(n))))


@test
def a_single_file_model_uses_the_tokenizer_next_to_it():
    os.mkdir("onefile")
    llama2c_file("onefile/m.bin")
    refused("no supported tokenizer", "generate", "onefile/m.bin", "--prompt", "a", code=1)
    shutil.copy("runs/tiny/tokenizer.json", "onefile")
    x = run_json("generate", "onefile/m.bin", "--prompt", "Once", "max_tokens=4", "time_rounds=0")
    assert len(x["ids"]) >= 4 and set(x["depth"]) == {2}, x
    here = os.getcwd()
    os.chdir("onefile")
    try:
        assert run_json("generate", "m.bin", "--prompt", "Once", "max_tokens=4", "time_rounds=0")["ids"] == x["ids"]
    finally:
        os.chdir(here)


REFUSALS = (  # words, what the line says, exit status
    (["help", "train", "eval"], "help: expected one topic, found also eval", 2),
    (["help", "x.y=1"], "help: expected one topic, found also x.y=1", 2),
    (["help", "--nosuch"], "unknown option --nosuch", 2),
    (["runs", "a", "b"], "runs: expected one directory, found also b", 2),
    (["runs", ".", "x.y=1"], "runs: expected one directory, found also x.y=1", 2),
    (["runs", "nowhere"], "runs: nowhere: not a directory", 1),
    (["runs", "tag"], "runs tag: expected NAME", 2),
    (["runs", "rename", "tiny"], "runs rename: expected", 2),
    (["runs", "note", "a", "b", "c"], "runs note: expected", 2),
    (["runs", "restore", "nosuch"], "nosuch: not in the trash", 1),
    (["runs", "rm", "./tiny"], "./tiny: run not found in runs", 1),
    (["runs", "tag", "tinny"], "did you mean tiny?", 1),
    (["runs", "--sort", "nosuch"], "sort nosuch: unknown column", 2),
    (["runs", "--group", "nosuch"], "group nosuch: unknown", 2),
    (["runs", "box:runs", "--trash"], "runs: --trash: expected a directory of this machine, not box:runs", 2),
    (["compare", "tiny", "x.y=1"], "compare: unexpected setting x.y=1", 2),
    (["compare", "tiny", "--width", "19"], "compare: --width 19: must be from 20 to 10000 columns", 2),
    (["compare", "tiny", "--width", "80x"], "compare: --width 80x: must be from 20 to 10000 columns", 2),
    (["compare"], "compare: expected 1 to ", 2),
    (["compare", "tiny", "--json", "--csv"], "compare: use only one of --json, --latex and --csv", 2),
    (["compare", "tiny", "--group", "method"], "compare: --group", 2),
    (["figure"], "figure: missing argument: expected NAME, all or list", 2),
    (["figure", "training"], "figure training: name at least one run", 2),
    (["figure", "list", "tiny"], "figure list: unexpected tiny", 2),
    (["train", "quick", "--allow-change", "--dry-run"], "--allow-change: missing run; use --resume NAME", 2),
    (["sweep", "quick", "train.lr=1e-3,3e-3,1e-3", "--dry-run"], "train.lr=1e-3,3e-3,1e-3: duplicate 1e-3", 2),
    (["sweep", "tiny,quick,tiny", "--dry-run"], "tiny,quick,tiny: duplicate tiny", 2),
    (["figure", "training", "tiny", "--dpi", "x"], '--dpi: "x": number out of range or malformed', 2),
    (["figure", "training", "tiny", "--smooth", "-1"], '--smooth: "-1": number out of range or malformed', 2),
    (["figure", "training", "tiny", "--format", "png,gif"], 'figure: unknown format "gif", expected png, svg or pdf', 2),
    (["figure", "training", "tiny", "x.y=1"], "figure: unexpected setting x.y=1", 2),
    (["figure", "training"] + ["tiny"] * 5000, "figure: too many runs, must be at most ", 2),
    (["stream", "tiny", "x.y=1"], "stream: unexpected setting x.y=1", 2),
    (["stream", "--nosuch"], "unknown option --nosuch", 2),
    (["tokenize", "bytes", "x.y=1"], "tokenize: unexpected setting x.y=1", 2),
    (["tokenize", "bytes", "--text", "a", "--file", "b"], "tokenize: expected only one of --text and --file", 2),
    (["inspect", "tiny", "x.y=1"], "inspect: unexpected setting x.y=1", 2),
    (["inspect", "--nosuch"], "unknown option --nosuch", 2),
    (["export", "tiny", "--to", "csv", "x.y=1"], "export: unexpected setting x.y=1", 2),
    (["export", "--nosuch"], "unknown option --nosuch", 2),
    (["show"], "show: missing view", 2),
    (["show", "monitor", "tiny", "x.y=1"], "show: unexpected setting x.y=1", 2),
    (["show", "depth"], "show depth: missing run, trace or model", 2),
    (["show", "depth", "tiny", "--text", "a"], "show: --text: expected the view compare and two models", 2),
    (["show", "compare", "tiny", "--text", "a"], "show: --text: expected the view compare and two models", 2),
    (["presets", "tiny", "--markdown"], "presets: --markdown: unexpected tiny with it", 2),
    (["presets", "--json", "--markdown"], "presets: --markdown: unexpected --json with it", 2),
    (["show", "monitor"] + ["tiny"] * 200, "too many runs, must be at most ", 2),
    (["show", "--nosuch"], "unknown option --nosuch", 2),
    (["trace", "--nosuch"], "unknown option --nosuch", 2),
    (["doctor", "x"], "doctor: unexpected argument x", 2),
    (["doctor", "x.y=1"], "doctor: unexpected argument x.y=1", 2),
    (["doctor", "--nosuch"], "unknown option --nosuch", 2),
    (["bench", "--nosuch"], "unknown option --nosuch", 2),
    (["calibrate", "--nosuch"], "unknown option --nosuch", 2),
    (["generate", "--nosuch"], "unknown option --nosuch", 2),
    (["generate", "tiny", "--compare", "speculate=2", "time_rounds=1", "draft=exit:1", "--prompt", "a", "--prompt", "b"],
     "generate: --compare: expected one prompt, not 2", 2),
    (["convert", "--nosuch"], "unknown option --nosuch", 2),
    (["convert", "tiny", "-o", ""], "convert: -o: empty path", 2),
    (["convert", "tiny", "-o", "m", "merge=yes"], "merge=yes: the model has no adapters", 2),
    (["convert", "tiny", "-o", "m", "adapter=only"], "adapter=only: the model has no adapters", 2),
    (["convert", "random:quick", "-o", "m", "model.method=nosuch"], "model.method", 2),
    (["agent", "x.y=1"], "agent: unexpected setting x.y=1", 2),
    (["agent", "--nosuch"], "unknown option --nosuch", 2),
    (["agent", "a" * 5000], "the path is too long", 1),
    (["stop", "--nosuch"], "unknown option --nosuch", 2),
    (["train", "--from", "best"], "--from best: missing run; use --resume NAME", 2),
    (["train", "--resume", "nosuch"], "--resume nosuch: run not found (missing runs/nosuch/config.yaml)", 1),
    (["train", "--resume", "tiny", "quick"], "--resume uses the run's own configuration; unexpected preset quick", 2),
    (["train", "--resume", "tiny", "--run", "other"], "--resume continues tiny itself; use --from best|STEP", 2),
    (["train", "--resume", "tiny", "train.lr=1"], "use --allow-change to set train.lr=1", 2),
    (["train", "--resume", "tiny", "--from", "x", "--quiet"], "--from x: expected best or a step", 2),
    (["train", "--resume", "tiny", "--from", "5", "--run", "tiny", "--quiet"], "run exists; choose a new name with --run", 1),
    (["train", "quick", "--run", "a/b"], "--run a/b: expected a name, not a path; runs are created in runs", 2),
    (["train", "quick", "--run", ".a"], "--run .a: expected a name of 1 to 64 [A-Za-z0-9._-]", 2),
    (["sweep", "train.lr=1", "--lease", "0"], "sweep: --lease 0: must be seconds from 1 to 86400", 2),
    (["sweep", "train.lr=1", "--lease", "3s"], "sweep: --lease 3s: must be seconds from 1 to 86400", 2),
    (["sweep", "train.lr=1", "--jobs", "0"], "sweep: --jobs 0: must be an integer from 1 to ", 2),
    (["sweep", "train.lr=1", "--index", "1"], "sweep: --index is for workers: expected --worker ID with it", 2),
    (["sweep", "train.lr=1", "--sbatch", "-p x"], "sweep: --sbatch is for the script of --slurm: expected --slurm with it", 2),
    (["sweep", "train.lr=1", "--launch", "ssh box"], "sweep: --launch 'ssh box': expected {} where the command line", 2),
    (["sweep", "train.lr=1", "--slurm", "--status"], "sweep: expected only one of --launch, --slurm, --status and --worker", 2),
    (["sweep", "--nosuch"], "unknown option --nosuch", 2),
    (["pipeline", "--nosuch"], "unknown option --nosuch", 2),
    (["pipeline", "quick", "model.method=dense", "--dry-run"], "pipeline: the preset is dense: expected a method", 2),
    (["--link", "fast"], "--link fast: expected bytes per second, e.g. 20k", 2),
    (["--quick"], "--quick: standard output is not a terminal; without one: depthscope train quick", 2),
    (["x.y=1"], "x.y=1: unexpected setting for the workbench (depthscope train x.y=1)", 2),
    (["--text", "a"], "--text: expected --view compare and two runs, checkpoints or models", 2),
)


@test
def a_file_is_no_empty_list_of_runs():
    open("a-file", "w").close()
    refused("runs: a-file: not a directory", "runs", DEPTHSCOPE_RUNS="a-file", code=1)
    assert "no runs in nowhere yet" in run("runs", DEPTHSCOPE_RUNS="nowhere")


@test
def records_replace_no_log_and_no_directory():
    shutil.copy("runs/tiny/log.mp", "copy.mp")
    os.makedirs("folder.mp", exist_ok=True)
    with open("text.mp", "w") as f:
        f.write("x" * 40)
    for name, part in (("runs/tiny/log.mp", "reserved for the log of a run; choose another name"), ("folder.mp", "is a directory, expected a file name"),
                       ("copy.mp", "is the log of a run; choose another name"), ("text.mp", "is not a record file; choose another name")):
        refused(part, "trace", "tiny", "--text", "a", "-o", name, code=1)


@test
def runs_that_do_not_train_are_named_by_stop():
    os.makedirs("runs/silent", exist_ok=True)
    open("runs/silent/log.mp", "w").close()
    for word, part in (("-", "-: expected the name of a run"), ("runs/tiny/log.mp", "tiny: not running"), ("runs/tiny/", "tiny: not running"),
                       ("silent", "silent: not running: no records yet"), ("nosuch", "run not found")):
        status, out, err = t.call("stop", word)
        assert status in (1, 2) and part in out.decode() + err, (word, status, out, err)
    shutil.rmtree("runs/silent")


@test
def a_stream_without_a_reader_still_says_what_is_wrong():
    with open("garbage", "wb") as f:
        f.write(b"x" * 4096)
    for word, code, part in (("nosuch", 1, "nosuch: no run or file"), ("garbage", 1, "not a record stream"), ("tiny", 0, "")):
        reader, writer = os.pipe()
        os.close(reader)
        status, _, err = t.call("stream", word, stdout=writer)
        os.close(writer)
        assert status == code and part in err and bool(err) == bool(code), (word, status, err)


@test
def a_folder_with_the_name_of_a_run_does_not_hide_it():
    os.makedirs("tiny/notes")
    try:
        for words in (["train", "--resume", "tiny", "--quiet"], ["export", "tiny", "--to", "csv"], ["compare", "tiny"], ["stream", "tiny", "--no-follow"],
                      ["show", "monitor", "tiny"], ["figure", "training", "tiny", "-o", "hidden"], ["inspect", "tiny", "--until", "step>0"],
                      ["alerts", "tiny"]):
            status, _, err = t.call(*words)
            assert status == 0, (words, err)
        status, screen, err = t.call("show", "home", "--keys", ":open tiny")
        assert status == 0 and "tiny › Monitor" in screen.decode(), (screen, err)
        assert "tiny: not running" in t.call("stop", "tiny")[2]
        open("tiny/log.mp", "w").close()  # now it is one itself
        assert "no records yet" in t.call("stop", "tiny")[2]
    finally:
        shutil.rmtree("tiny")


@test
def a_run_is_named_with_a_slash_at_its_end_too():
    for words in (["eval", "tiny//", "tokens=32", "time_rounds=0", "controls=false"], ["export", "tiny/", "--to", "csv"], ["compare", "tiny/"],
                  ["generate", "tiny/", "--prompt", "a", "max_tokens=1"], ["trace", "tiny/", "--text", "a", "--json"], ["inspect", "tiny/"],
                  ["figure", "training", "tiny/", "-o", "slash"], ["show", "monitor", "tiny/"], ["stream", "tiny/", "--no-follow"], ["alerts", "tiny/"],
                  ["tokenize", "tiny/", "--text", "a"], ["train", "--resume", "tiny/", "--quiet"], ["runs", "note", "tiny/"]):
        status, _, err = t.call(*words)
        assert status == 0, (words, err)
    assert "tiny: not running" in t.call("stop", "tiny/")[2]
    refused("runs/nosuch/config.yaml", "train", "--resume", "nosuch/", code=1)
    refused("nosuch/: no run or file of this name", "compare", "nosuch/", code=1)


@test
def adapters_are_written_alone_or_merged_and_not_both():
    run("convert", "tiny", "-o", "base", "method=dense")
    keys = [k for k in TINY if not k.startswith("model.")]
    run("train", *keys, "train.init=base", "model.lora_r=2", "model.method=mod", "train.steps=2", "--run", "lora", "--quiet")
    for words, part in ((["merge=yes", "adapter=only"], "merge=yes and adapter=only exclude each other"),
                        (["merge=yes"], "merge=yes writes a dense model, without mod routing; add method=dense")):
        refused(part, "convert", "lora", "-o", "out", *words)
    refused("adapter=only writes a directory: -o must not end in .gguf or .bin", "convert", "lora", "-o", "out.gguf", "adapter=only")
    os.mkfifo("pipe.gguf")
    refused("pipe.gguf", "convert", "tiny", "-o", "pipe.gguf", "method=dense", code=1)
    assert not os.path.exists("out") and not os.path.exists("out.gguf")


@test
def wrong_arguments_are_one_line_that_names_them():
    wrong = []
    for words, part, code in REFUSALS:
        status, out, err = t.call(*words)
        lines = err.splitlines()
        if status != code or len(lines) != 1 or not err.startswith("depthscope: ") or part not in err or out:
            wrong.append((words[:6], status, err[:200], out[:80]))
    assert not wrong, "\n".join(map(str, wrong))


@test
def topics_of_help_come_from_their_tables():
    metrics = run("help", "metrics", "--markdown")
    assert re.search(r"^\| `val_loss` \| \w+ \| [^|]+ \| .+ \|$", metrics, re.M), metrics[:400]
    assert "`model.method=edp`" in metrics and metrics == run("help", "metrics"), "a pipe gets Markdown"
    formats = run("help", "formats")
    assert formats.startswith("| format | what is read |\n|---|---|\n") and "TensorBoard" in formats, formats[:200]
    assert run("help", "help").startswith("depthscope help [") or "help [" in run("help", "help")
    rows = run("presets", "--markdown").splitlines()
    assert rows[0].startswith("| preset |") and rows[1].count("|") == rows[0].count("|") and len(rows) > 10, rows[:2]
    assert any(r.startswith("| `quick` |") for r in rows), rows


@test
def gpus_of_a_machine_are_told_by_kind():
    library = os.path.abspath(os.path.join(os.environ.get("BUILD_DIR") or os.path.join(t.ROOT, "build/release"), "tests/unit/libnvml.so"))
    if not os.path.exists(library):
        raise t.Skip("%s is not built" % library)
    env = {"DEPTHSCOPE_NVML": library, "DEPTHSCOPE_SYSROOT": os.getcwd(), "NVML_STUB": os.path.abspath("gpus")}
    with open("gpus", "w") as f:
        f.write("count 4\n0 name H100\n0 memory 0 80000000000 0\n1 name H100\n1 memory 0 80000000000 0\n2 name A100\n3 lost 1\n")
    found = {x["name"]: x for x in run_json("doctor", **env)}["gpus"]
    assert found["text"] == "2 x H100, 80.0GB each (nvml); 1 x A100 (nvml); 1 x unknown GPU: lost, no longer answers (nvml)", found
    gpus = json.loads(run("--version", "--json", **env))["gpus"]
    assert [(g["name"], g["memory_total"], g["source"]) for g in gpus] == \
        [("H100", 8e10, "nvml"), ("H100", 8e10, "nvml"), ("A100", None, "nvml"), ("", None, "nvml")], gpus


@test
def an_unreadable_preset_is_named_and_the_others_are_listed():
    with open("broken.yaml", "w") as f:
        f.write("model.layers: many\n")
    refused("broken.yaml", "presets", "broken.yaml")


@test
def a_full_disk_is_reported():
    if not os.path.exists("/dev/full"):
        return
    p = subprocess.run([PROGRAM, "help", "keys"], stdout=open("/dev/full", "w"), stderr=subprocess.PIPE)
    assert p.returncode == 1 and b"standard output" in p.stderr, p


def setup():
    run("train", *TINY, "--run", "tiny", "--quiet")


t.main(setup)
