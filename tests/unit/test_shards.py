"""Token shards of nanoGPT and llm.c: the same training as on their text, splits by name, memory that does not grow with the file,
and refusals.  DEPTHSCOPE names the program."""
import json
import os
import random
import struct
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import t  # noqa: E402
from t import PROGRAM, refused, run, run_json, test  # noqa: E402

EOT = 256  # of data.tokenizer=bytes
MODEL = ("model.layers=2 model.dim=32 model.heads=2 model.method=dense train.seq=32 train.batch=2 data.tokenizer=bytes train.eval_every=6 "
         "train.final_tokens=256 train.eval_tokens=256 train.time_rounds=0 train.checkpoint_every=1000 train.probe_every=6 train.probe_tokens=16").split()


def stories():
    r = random.Random(5)
    return [" ".join(r.choice(("cat", "dog", "sat", "on", "the", "mat", "ran")) for _ in range(r.randrange(5, 40))) for _ in range(120)]


def tokens(texts):
    return [x for text in texts for x in list(text.encode()) + [EOT]]


def nanogpt(path, ids):
    with open(path, "wb") as f:
        f.write(struct.pack("<%dH" % len(ids), *ids))
    return path


def llmc(path, ids, width=2, count=None):
    head = [20240520 if width == 2 else 20240801, 1 if width == 2 else 7, len(ids) if count is None else count] + [0] * 253
    with open(path, "wb") as f:
        f.write(struct.pack("<256i", *head) + struct.pack("<%d%s" % (len(ids), "H" if width == 2 else "I"), *ids))
    return path


def losses(name, path, *words):
    """(loss per step, the last validation loss) of a small run."""
    out = run("train", *MODEL, "data.path=" + path, "train.steps=12", "--run", name, "--json", *words)
    rows = [json.loads(line) for line in out.splitlines()]
    rows = [r for r in rows if "loss" in r]
    assert rows, out
    return [r["loss"] for r in rows], [r["val_loss"] for r in rows if r.get("val_loss") is not None]


@test
def shards_train_as_their_text_does():
    texts = stories()
    with open("text.txt", "w") as f:
        f.write("\n".join(texts) + "\n")
    want, _ = losses("text", "text.txt", "data.format=lines", "data.val_fraction=0")
    ids = tokens(texts)
    assert losses("raw", nanogpt("raw.bin", ids), "data.val_fraction=0")[0] == want
    assert losses("llmc", llmc("gpt2.bin", ids), "data.val_fraction=0")[0] == want
    assert losses("wide", llmc("llama3.bin", ids, 4), "data.val_fraction=0")[0] == want
    os.makedirs("parts")
    for i, at in enumerate((0, 501, 1777)):
        llmc("parts/web_%06d.bin" % i, ids[at:(501, 1777, len(ids))[i]])
    open("parts/prepare.py", "w").write("# not a shard\n")
    assert losses("folder", "parts", "data.val_fraction=0")[0] == want
    assert losses("pattern", "parts/web_*.bin", "data.val_fraction=0")[0] == want


@test
def names_hold_the_split():
    texts = stories()
    os.makedirs("named")
    nanogpt("named/train.bin", tokens(texts[:90]))
    nanogpt("named/val.bin", tokens(texts[90:]))
    _, val = losses("named", "named")
    nanogpt("named/val.bin", [7] * 3000)
    _, other = losses("other", "named")
    assert val and other and val != other, "the validation file does not matter"
    want, _ = losses("plain", "named")
    os.makedirs("interval")
    for part in "train", "val":
        os.link("named/%s.bin" % part, "interval/interval_%s.bin" % part)
    assert losses("interval", "interval") == (want, other), "a file for training has val in its name"
    assert losses("tail", nanogpt("all.bin", tokens(texts)), "data.val_fraction=0.2")[1], "the end of the tokens is held out"
    trace = run("inspect", "runs/named/log.mp")
    assert "probe" in trace, trace
    r = run_json("eval", "runs/named", "data.path=named/train.bin", "tokens=512", "time_rounds=0")
    assert r["tokens"] == 512 and r["bits_per_byte"] > 0, r
    refused("windows=packed", "eval", "runs/named", "data.path=named/train.bin", "windows=documents")


@test
def a_run_on_shards_resumes_and_notices_other_tokens():
    ids = tokens(stories())
    nanogpt("r.bin", ids)
    losses("resume", "r.bin", "train.checkpoint_every=6")
    run("train", "--resume", "resume", "--allow-change", "train.steps=14", "--quiet")
    nanogpt("r.bin", [1] + ids[1:])
    run("train", "--resume", "resume", "--allow-change", "train.steps=16", "--quiet")
    assert "corpus has changed" in run.err, run.err


def most_memory(path):
    p = subprocess.Popen([PROGRAM, "train", *MODEL, "data.path=" + path, "train.steps=300", "train.batch=8", "model.layers=1", "model.dim=16", "data.val_fraction=0.01", "--run",
                          "m" + str(os.stat(path).st_size), "--quiet"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    err = p.stderr.read().decode()
    _, status, usage = os.wait4(p.pid, 0)
    p.returncode = status
    assert status == 0, err
    return usage.ru_maxrss / 1024


@test
def memory_does_not_grow_with_the_file():
    if "san" in os.environ.get("BUILD_DIR", ""):
        raise t.Skip("a sanitizer's memory is its own")
    sizes = (1 << 20, 5 << 30)
    for size in sizes:
        with open("s%d.bin" % size, "wb") as f:
            f.truncate(size)
    small, large = (most_memory("s%d.bin" % size) for size in sizes)
    os.remove("s%d.bin" % sizes[1])
    assert large < small + 64, "%d MiB of memory for 5 GiB, %d MiB for 1 MiB" % (large, small)


@test
def refusals_name_file_and_place():
    ids = tokens(stories())
    words = [w for w in MODEL if not w.startswith("data.tokenizer")] + ["train.steps=3", "--quiet"]
    nanogpt("ok.bin", ids)
    refused("expected the tokenizer they were made with", "train", *words, "data.path=ok.bin", "--run", "a")
    words.append("data.tokenizer=bytes")
    open("odd.bin", "wb").write(open("ok.bin", "rb").read() + b"\0")
    refused("odd.bin: %d bytes, expected a multiple of 2" % (2 * len(ids) + 1), "train", *words, "data.path=odd.bin", "--run", "b", code=1)
    whole = open(llmc("l.bin", ids), "rb").read()
    for n in (1023, 1024, 1026, len(whole) - 1, len(whole) - 2):
        open("cut.bin", "wb").write(whole[:n])
        refused("cut.bin", "train", *words, "data.path=cut.bin", "--run", "c%d" % n, code=1)
        assert "truncated" in run.err, run.err
    refused("cut.bin: token count -5", "train", *words, "data.path=" + llmc("cut.bin", ids, count=-5), "--run", "d", code=1)
    refused("one window needs 33", "train", *words, "data.path=" + nanogpt("few.bin", [0, 1, 2]), "--run", "e", code=1)
    for name, width, make in (("big.bin", 2, nanogpt), ("wide.bin", 4, lambda p, x: llmc(p, x, 4))):
        bad = list(ids)
        bad[1000:] = [50000] * (len(ids) - 1000)
        make(name, bad)
        refused("%s: byte " % name, "train", *words, "data.path=" + name, "--run", "f" + name, code=1)
        byte = int(run.err.split(": byte ")[1].split(":")[0])
        head = 1024 if width == 4 else 0
        assert bad[(byte - head) // width] == 50000 and (byte - head) % width == 0, run.err
        assert "token id 50000: must be below the vocabulary of 257" in run.err, run.err
    os.makedirs("mixed")
    llmc("mixed/train_a.bin", ids)
    llmc("mixed/train_b.bin", ids, 4)
    refused("train_b.bin: tokens of 4 bytes, expected 2", "train", *words, "data.path=mixed", "--run", "g", code=1)
    refused("none_*.bin: No such file", "train", *words, "data.path=none_*.bin", "--run", "h", code=1)


t.main()
