"""DEPTHSCOPE_CPU caps the kernels: which GEMM kernels doctor names under each cap, what it reports when the processor lacks them, and that
training works with each.  DEPTHSCOPE names the program."""
import json
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import t  # noqa: E402
from t import PROGRAM, SLOW, test  # noqa: E402

LEVELS = "ref avx2 avx512 amx".split()
NEEDS = {"avx2": "avx2", "avx512": "avx512f", "amx": "amx_tile"}
TINY = ("model.layers=6 model.dim=32 model.heads=2 model.vocab=300 train.steps=2 train.seq=32 train.batch=2 "
        "train.eval_every=2 train.final_tokens=64 train.eval_tokens=64 data.docs=30 data.val_fraction=0.3 "
        "train.time_rounds=0").split()


def features():
    try:
        with open("/proc/cpuinfo") as f:
            for line in f:
                if line.startswith(("flags", "Features")):
                    return set(line.split(":", 1)[1].split())
    except OSError:
        pass
    return set()


def run(cap, *words):
    env = {k: v for k, v in os.environ.items() if k not in ("DEPTHSCOPE_CPU", "DEPTHSCOPE_GEMM")}
    if cap is not None:
        env["DEPTHSCOPE_CPU"] = cap
    p = subprocess.run([PROGRAM, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env, timeout=60 * SLOW)
    err = p.stderr.decode("utf-8", "replace")
    assert p.returncode == 0, "DEPTHSCOPE_CPU=%s %s: exit status %d\n%s" % (cap, words[0], p.returncode, err)
    return p.stdout.decode("utf-8"), err


def kernels(cap):
    """The providers in use, {format: name}, those supported, and standard error."""
    out, err = run(cap, "doctor", "--json")
    text = [x["text"] for x in json.loads(out) if x["name"] == "gemm"][0]
    used, known = text.split(", supported:")
    there = {w for w in known.replace(" (not on this processor)", "!").split() if not w.endswith("!")}
    return dict(x.split(" by ") for x in used.split(", ")), there, err


def vectors(name):
    """The level a provider belongs to; blas and the plain loops take none of them."""
    if name == "amx":
        return "amx"
    return "avx512" if name.startswith("avx512") else "avx2" if name.startswith("avx2") else "ref"


@test
def a_cap_keeps_every_provider_above_it_out():
    for i, cap in enumerate(LEVELS):
        used, there, _ = kernels(cap)
        for name in [*used.values(), *there]:
            assert LEVELS.index(vectors(name)) <= i, (cap, name, used)


@test
def each_level_uses_what_the_processor_has():
    have = features()
    best = {"ref": ("ref", "ref-bf16")}
    best["avx2"] = ("avx2", "avx2-round") if {"avx2", "fma"} <= have else None
    best["avx512"] = best["avx2"]
    if {"avx512f", "fma"} <= have:
        rounds = "avx512bf16" if {"avx512_bf16", "avx512vl"} <= have else "avx512-round"
        best["avx512"] = ("avx512", rounds)
    best["amx"] = best["avx512"]
    for cap in LEVELS:
        used, _, err = kernels(cap)
        if cap == "amx" and {"amx_tile", "amx_bf16"} <= have and "denied" not in err:
            assert used["bf16"] == "amx", used
        elif best[cap]:
            assert (used["fp32"], used["bf16"]) == best[cap], (cap, used)
    assert kernels(None)[0] == kernels("amx")[0], "no cap is the highest cap"
    assert kernels("")[0] == kernels("amx")[0], "an empty cap is none"


@test
def an_unsupported_level_is_reported_in_one_line():
    have = features()
    for cap in LEVELS:
        err = kernels(cap)[2]
        if cap in NEEDS and NEEDS[cap] not in have:
            assert "DEPTHSCOPE_CPU=%s" % cap in err and "unsupported" in err, err
            assert err.count("\n") == 1, "not one line: %r" % err
        else:
            assert "DEPTHSCOPE_CPU" not in err, err


@test
def an_unknown_level_is_reported_in_one_line_and_ignored():
    used, there, err = kernels("abacus")
    assert "DEPTHSCOPE_CPU=abacus" in err and "ignored" in err and err.count("\n") == 1, err
    assert (used, there) == kernels(None)[:2]


@test
def the_software_model_of_amx_is_never_chosen_automatically():
    for cap in LEVELS:
        used, there, _ = kernels(cap)
        assert "amx-soft" in there and not any(name.endswith("-soft") for name in used.values()), (used, there)


@test
def training_works_with_each():
    loss = {}
    for cap in [*LEVELS, "abacus"]:
        run(cap, "train", "quick", *TINY, "--run", "cap-" + cap, "--quiet")
        runs = {r["name"]: r for r in json.loads(run(None, "runs", "--json")[0])}
        loss[cap] = runs["cap-" + cap]["val_loss"]
    assert max(loss.values()) - min(loss.values()) < 1e-2, loss


t.main()
