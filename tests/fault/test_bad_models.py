"""Models that are not what their names say, that change while they are used, that do not fit: one line each, through the
program itself.  DEPTHSCOPE names the program."""
import json
import os
import resource
import shutil
import struct
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import t  # noqa: E402
from t import PROGRAM, SLOW, test  # noqa: E402
from test_user_input import STEP, TINY, accepted, digest, one_line, refused, run  # noqa: E402

FILES = ("config.json", "model.safetensors", "tokenizer.json")


def put(path, data):
    with open(path, "wb") as f:
        f.write(data)


def get(path):
    with open(path, "rb") as f:
        return f.read()


def model(name):
    """A fresh copy of the trained model's directory."""
    shutil.rmtree(name, ignore_errors=True)
    os.makedirs(name)
    for file in FILES:
        shutil.copy(os.path.join(STEP, file), name)
    return name


def uses(path):
    return (["eval", path, "time_rounds=0"], ["generate", path, "--prompt", "hi", "max_tokens=1", "time_rounds=0"],
            ["trace", path, "--text", "hi", "--json"])


class Opened:
    """What unpickling would do."""
    def __reduce__(self):
        return (os.system, ("touch unpickled",))


def pickled():
    import pickle
    return pickle.dumps(Opened(), 2) + bytes(64)


def wrong_bytes():
    import io
    import zipfile
    box = io.BytesIO()
    with zipfile.ZipFile(box, "w") as z:
        z.writestr("archive/data.pkl", pickled())
    return {"pickle": pickled(), "zip": box.getvalue(), "HTML": b"\n<!DOCTYPE html><html>404: not found</html>" + bytes(40),
            "GGUF": b"GGUF\x03\0\0\0" + bytes(40), "git-lfs": b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n",
            "JSON": b'{"error":"Repository not found"}', "an error message": b"Entry not found" + bytes(20),
            "safetensors": struct.pack("<Q", 2) + b"{}" + bytes(40)}


@test
def misnamed_files_are_recognised_and_never_executed():
    dir = model("named")
    for what, data in wrong_bytes().items():
        for name in ("named/model.safetensors", "x.gguf", "x.bin", "x.pt", "pytorch_model.bin", "x.safetensors"):
            put(name, data)
            is_own = (what == "GGUF" and name == "x.gguf") or (what == "safetensors" and not name.endswith((".gguf", "x.bin")))
            for words in uses(dir if name.startswith("named/") else name):
                refused("" if is_own else what, *words)
            if not name.startswith("named/"):
                os.remove(name)
    assert not os.path.exists("unpickled")


@test
def short_and_absurd_files_are_refused():
    dir = model("short")
    whole = get("short/model.safetensors")
    length = struct.unpack("<Q", whole[:8])[0]
    broken = [b"", b"\0", whole[:7], whole[:8], whole[:100], whole[:-1], whole + b"\0", b"\xff" * 8 + whole[8:],
              struct.pack(">Q", length) + whole[8:], struct.pack("<Q", 1 << 63) + whole[8:],
              struct.pack("<Q", len(whole) + 1) + whole[8:], whole[:8] + b"\xff" + whole[9:], whole[:8] + b"[" + whole[9:]]
    for data in broken:
        put("short/model.safetensors", data)
        for words in uses(dir):
            refused("model.safetensors", *words)


def change_config(dir, **keys):
    with open(dir + "/config.json") as f:
        c = json.load(f)
    for k, v in keys.items():
        c[k] = v
    with open(dir + "/config.json", "w") as f:
        json.dump(c, f)


@test
def a_config_with_wrong_sizes_is_refused_by_key():
    for key, value in (("hidden_size", 0), ("hidden_size", -1), ("hidden_size", 1e308), ("num_hidden_layers", 10**9),
                       ("num_hidden_layers", "six"), ("vocab_size", 301), ("num_attention_heads", 3),
                       ("intermediate_size", [])):
        dir = model("sized")
        change_config(dir, **{key: value})
        for words in uses(dir):
            refused(key, *words)
    dir = model("sized")
    change_config(dir, hidden_size=0, num_hidden_layers=-1, vocab_size="many")
    status, _, said = run("eval", dir)
    one_line(["eval"], said)
    assert status == 1 and all(k in said for k in ("hidden_size", "num_hidden_layers", "vocab_size")), said
    put("sized/config.json", b'{"model_type": "llama", "hidden_size": 32}')
    refused("num_hidden_layers is missing", "eval", dir)
    put("sized/config.json", b"\x1b[31m{")
    refused("config.json", "eval", dir)


@test
def an_index_cannot_point_outside_its_directory():
    dir = model("index")
    names = list(json.loads(get("index/model.safetensors")[8:8 + struct.unpack("<Q", get("index/model.safetensors")[:8])[0]]))
    os.rename("index/model.safetensors", "index/a.safetensors")
    for shard, part in (("../../etc/passwd", "must be the name of a file next to the index"),
                        (os.path.abspath("index/a.safetensors"), "must be the name of a file next to the index"),
                        ("b.safetensors", "is missing")):
        with open("index/model.safetensors.index.json", "w") as f:
            json.dump({"weight_map": {n: shard for n in names if n != "__metadata__"}}, f)
        for words in uses(dir):
            refused(part, *words)
    with open("index/model.safetensors.index.json", "w") as f:
        json.dump({"weight_map": {n: "a.safetensors" for n in names if n != "__metadata__"}}, f)
    accepted("generate", dir, "--prompt", "hi", "max_tokens=1", "time_rounds=0")


@test
def a_model_truncated_in_use_ends_with_one_line_or_not_at_all():
    """Requests come one by one: what happens between opening and use is decided here."""
    for size in (0, 4096):
        dir = model("cut")
        p = subprocess.Popen([PROGRAM, "serve", dir], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        p.stdin.write(b'{"do":"info"}\n')
        p.stdin.flush()
        assert p.stdout.read(1), "no answer"  # the model is open
        os.truncate("cut/model.safetensors", size)
        out, said = p.communicate(b'{"do":"trace","text":"once upon a time"}\n', timeout=60 * SLOW)
        said = said.decode("utf-8", "replace")
        if p.returncode == 0:  # nothing was left in the file
            assert not said and b"probe" in out, said
        else:
            one_line(["serve"], said)
            assert p.returncode == 1 and "model.safetensors: changed while it was read (was " in said, said


@test
def a_checkpoint_is_replaced_atomically():
    accepted("train", *TINY, "model.method=mod", "--run", "mod", "--quiet")
    weights = "runs/mod/checkpoints/step-00000006/model.safetensors"
    before = digest(weights)
    for fault in ("write:3+=ENOSPC", "rename:1=EIO"):
        status, _, said = run("calibrate", "mod", DEPTHSCOPE_FAIL=fault)
        assert status in (0, 1), said
        assert status == 0 or digest(weights) == before, fault
        accepted("generate", "mod", "--prompt", "hi", "max_tokens=1", "time_rounds=0")
    accepted("calibrate", "mod")
    accepted("generate", "mod", "--prompt", "hi", "max_tokens=1", "time_rounds=0")
    accepted("train", "--resume", "mod", "--allow-change", "train.steps=8", "--quiet")
    refused("exists", "calibrate", "mod", "-o", model("onto"))
    assert digest("onto/model.safetensors") == digest(STEP + "/model.safetensors")


@test
def training_refuses_non_finite_weights_unless_allowed():
    dir = model("nan")
    data = bytearray(get("nan/model.safetensors"))
    begin = 8 + struct.unpack("<Q", data[:8])[0]
    header = json.loads(bytes(data[8:begin]))
    name = next(n for n in header if n.endswith("embed_tokens.weight"))
    at = begin + header[name]["data_offsets"][0]
    data[at:at + 4] = struct.pack("<f", float("nan"))
    data[at + 8:at + 12] = struct.pack("<f", float("inf"))
    put("nan/model.safetensors", bytes(data))
    words = ["train", "train.init=" + dir, "train.steps=2", "train.seq=16", "train.batch=1", "data.docs=60", "data.val_fraction=0.3",
             "train.time_rounds=0", "train.eval_tokens=32", "train.final_tokens=32"]
    status, _, said = run(*words, "--run", "odd", "--quiet")
    assert status == 1 and "train.allow_nonfinite=true trains anyway" in said and name + ": 2" in said, said
    status, _, said = run(*words, "train.allow_nonfinite=true", "--run", "odd2", "--quiet")
    assert "allow_nonfinite=true trains" not in said and os.path.exists("runs/odd2/log.mp"), said
    status, _, said = run("generate", dir, "--prompt", "hi", "max_tokens=1", "time_rounds=0")
    assert "holds 2 non-finite values" in said, said


def limited(*words, bytes_of_space):
    def limit():
        resource.setrlimit(resource.RLIMIT_AS, (bytes_of_space, bytes_of_space))
    p = subprocess.run([PROGRAM, *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                       timeout=60 * SLOW, preexec_fn=limit, env={**os.environ, "OPENBLAS_NUM_THREADS": "1"})
    return p.returncode, p.stderr.decode("utf-8", "replace")


@test
def a_model_beyond_the_memory_limit_is_refused_with_both_sizes():
    if "san" in os.environ.get("BUILD_DIR", ""):
        return  # a sanitizer takes more addresses than any limit
    head = struct.pack("<7i", 4096, 4096, 32, 32, 32, 32000, 16)
    values = 32000 * 4096 + 32 * (2 * 4096 + 7 * 4096 * 4096) + 4096 + 16 * 128
    put("big.bin", head)
    try:
        os.truncate("big.bin", 28 + 4 * values)
    except OSError:
        return
    status, said = limited("eval", "big.bin", bytes_of_space=4 << 30)
    one_line(["eval"], said)
    assert status == 1 and "%d bytes" % (28 + 4 * values) in said, said
    os.remove("big.bin")


def setup():
    os.environ.update(HOME=os.getcwd(), XDG_STATE_HOME=os.path.abspath("state"))
    status, _, said = run("train", *TINY, "--run", "tiny", "--quiet")
    assert status == 0, said
    shutil.copy(os.path.join(STEP, "tokenizer.json"), ".")  # for single-file models


t.main(setup)
