"""A trained model, quantised by llama.cpp itself to every type that is read, generates what llama.cpp generates.

Both round activations to 8 bits, but not alike: here in blocks of 32 with a float scale, there in blocks of 32 with an fp16
scale, or of 256.  With weights=none the same blocks are dequantised and nothing is rounded.  The loss of each token by
llama.cpp must be within NEAR of that, and on average ours at most a quarter farther from it than llama.cpp's; greedy tokens may part only
where llama.cpp's own best two are closer than the largest distances found, ours and llama.cpp's together.
PYTHON names the interpreter that has llama_cpp and numpy; SHOW=1 prints what was found by type."""
import json
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import t  # noqa: E402
from t import ROOT, Skip, run, test  # noqa: E402

PYTHON = os.environ.get("PYTHON", "python3")
HELPER = os.path.join(ROOT, "tests", "golden", "quantised_llama.py")
TOKENS, NEAR = 64, 0.25
PROMPTS = "the ", "a small dog "
TEXT = "the old man saw a small dog near the house, and the dog saw the man. a girl had two red apples."


def llama(*words, data=None):
    p = subprocess.run([PYTHON, HELPER, *words], input=data, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=300 * t.SLOW)
    if p.returncode == 77:
        raise Skip("%s: %s" % (PYTHON, p.stderr.decode().strip().splitlines()[-1]))
    assert p.returncode == 0, p.stderr.decode()[-800:]
    return [json.loads(line) for line in p.stdout.splitlines()]


def part(ours, theirs):
    """Where two greedy continuations part; None: nowhere."""
    return next((i for i, (a, b) in enumerate(zip(ours, theirs["ids"])) if a != b), None)


def losses(path, *words):
    return [x["nll"] for x in json.loads(run("trace", path, "--text", TEXT, "--json", *words))["tokens"]][1:]


def distance(a, b):
    """Mean and largest."""
    far = [abs(x - y) for x, y in zip(a, b)]
    assert len(far) == len(a) == len(b)
    return sum(far) / len(far), max(far)


def compare(path, prompt, ids, theirs):
    ours = json.loads(run("generate", path, "--prompt", prompt, "temperature=0", "max_tokens=%d" % TOKENS, "--json"))
    assert ours["prompt_ids"] == ids and len(ours["ids"]) == TOKENS
    at = part(ours["ids"], theirs)
    exact = losses(path, "weights=none")
    near, far = distance(losses(path), exact), distance(theirs["nll"], exact)
    if os.environ.get("SHOW"):
        print("%-7s %-6s %-15s loss, mean and largest distance to dequantised weights: %.4f %.4f, llama.cpp's %.4f %.4f" % (
            theirs["type"], ours["weights"], "all 64 equal" if at is None else "tie at %d: %.4f" % (at, theirs["margin"][at]),
            *near, *far), flush=True)
    assert at is None or theirs["margin"][at] < near[1] + far[1], (theirs["type"], at, theirs["margin"][at], near, far)
    assert far[1] < NEAR and near[0] <= 1.25 * far[0], (theirs["type"], near, far)


def compare_types(name, steps, types, *shape):
    llama("check")
    run("train", "--run", name, "--quiet", "model.method=dense", "model.layers=2", "model.dim=256", "model.heads=4",
        "model.kv_heads=2", "model.ffn=512", "model.vocab=300", "model.tied=false", "train.steps=%d" % steps, "train.seq=64",
        "train.batch=4", "train.eval_every=%d" % steps, "data.docs=200", "train.time_rounds=1", *shape, DEPTHSCOPE_RUNS="runs")
    base = name + ".gguf"
    run("convert", "runs/" + name, "-o", base, "weights=f32")
    os.mkdir(name)
    llama("make", base, name, *types)
    text = [x["id"] for x in json.loads(run("trace", base, "--text", TEXT, "--json"))["tokens"]]
    for prompt in PROMPTS:
        ids = json.loads(run("tokenize", base, "--text", prompt, "--json"))["ids"]
        rows = llama("run", name, data=json.dumps({"prompt": ids, "tokens": TOKENS, "text": text}).encode() + b"\n")
        assert len(rows) == (len(types) or 18)
        for theirs in rows:
            compare("%s/%s.gguf" % (name, theirs["type"]), prompt, ids, theirs)


@test
def every_type_generates_what_llama_cpp_does():
    compare_types("plain", 160, [])


@test
def fused_matrices_and_partial_long_rotations_too():
    pairs = range(24)
    compare_types("fused", 100, ["F16", "Q8_0", "Q4_K_M", "IQ4_XS"], "model.fused=true", "model.rope_dims=48", "model.rope_scaling=longrope",
                  "model.rope_original=40", "model.rope_factor=8", "model.rope_short=" + ",".join("1" for _ in pairs),
                  "model.rope_long=" + ",".join(str(1 + i * i / 16) for i in pairs))


t.main()
