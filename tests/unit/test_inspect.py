"""depthscope inspect: every kind of file as text and as JSON, and hostile text in each.  DEPTHSCOPE names the program."""
import json
import os
import struct
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import t  # noqa: E402
from t import SHARED, refused, test  # noqa: E402

HOSTILE = "\x1b]0;owned\x07\x1b[2J\u202e"


def run(*words, code=0):
    """Standard output, or the line of a refusal; neither holds control characters."""
    out = t.run(*words, code=code, LC_ALL="C.UTF-8")
    for bad in "\x1b\x07" + ("" if "--json" in words else "\u202e"):
        assert bad not in out and bad not in t.run.err, "%r comes through" % bad
    return t.run.err if code else out


def inspected(path, text, kind):
    """The text has this, and the JSON is of this kind."""
    out = run("inspect", path)
    assert text in out, "%r lacks %r" % (out[:2000], text)
    x = json.loads(run("inspect", path, "--json"))
    assert x["kind"] == kind and x["path"] == path, x
    return x


def make(name, *words):
    run("convert", "random:tiny", "model.method=dense", "tokenizer=bytes", "-o", name, *words)
    return name


def gguf(path, pairs, tensors=b"", n=0):
    def text(s):
        s = s.encode()
        return struct.pack("<Q", len(s)) + s
    data = b"GGUF" + struct.pack("<IQQ", 3, n, len(pairs))
    for key, value in pairs:
        data += text(key)
        if isinstance(value, str):
            data += struct.pack("<I", 8) + text(value)
        elif isinstance(value, list):
            data += struct.pack("<IIQ", 9, 8, len(value)) + b"".join(text(v) for v in value)
        else:
            data += struct.pack("<II", 4, value) if value < 1 << 32 else struct.pack("<IQ", 10, value)
    with open(path, "wb") as f:
        f.write(data + tensors)


def safetensors(path, names):
    header = {n: {"dtype": "F32", "shape": [1], "data_offsets": [4 * i, 4 * i + 4]} for i, n in enumerate(names)}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + struct.pack("<f", 1.5) * len(names))


@test
def a_gguf_file_shows_its_types_and_vocabulary():
    make("m.gguf", "weights=q8_0", "model.dim=96", "model.heads=3")
    x = inspected("m.gguf", "vocabulary: 1024 tokens", "gguf")
    assert x["types"]["Q8_0"] > 10 and x["metadata"]["general.architecture"] == "llama", x["types"]
    assert x["vocabulary"]["tokens"] == 1024 and x["vocabulary"]["types"]["unused"] == 1024 - 257
    assert x["metadata"]["tokenizer.ggml.tokens"]["count"] == 1024
    assert {"name": "token_embd.weight", "type": "Q8_0", "shape": [1024, 96]} in x["tensors"]
    assert "Q8_0 (8.50 bits per weight)" in run("inspect", "m.gguf")


@test
def a_directory_shows_settings_tensors_and_tokenizer():
    make("m", "weights=bf16")
    x = inspected("m", "model.method = dense", "model")
    assert x["config"]["model.method"] == "dense" and x["tokenizer"]["ids"] == 257
    assert x["tensors"]["tensors"][0]["type"] == "BF16"
    assert x["weights"].startswith(str(len(x["tensors"]["tensors"])))
    make("s", "shard_size=100000")
    x = inspected("s", "shards", "model")
    assert x["tensors"]["files"] > 1
    inspected("s/model.safetensors.index.json", "safetensors:", "safetensors")
    inspected("m/model.safetensors", "safetensors:", "safetensors")
    inspected("m/tokenizer.json", "tokenizer:", "tokenizer")


@test
def a_llama2c_model_shows_its_header_and_tokenizer():
    make("m.bin")
    x = inspected("m.bin", "llama2.c model", "llama2c")
    assert x["vocab"] == 1024
    tok = os.path.join(SHARED, "weights/stories260K/tok512.bin")
    if os.path.exists(tok):
        inspected(tok, "512 ids", "tokenizer")


@test
def an_adapter_shows_its_settings_and_tensors():
    os.mkdir("a")
    with open("a/adapter_config.json", "w") as f:
        json.dump({"peft_type": "LORA", "r": 8, "lora_alpha": 16, "target_modules": ["q_proj", HOSTILE],
                   "base_model_name_or_path": HOSTILE, "modules_to_save": None, HOSTILE: 1}, f)
    assert "missing adapter_model.safetensors" in run("inspect", "a")
    safetensors("a/adapter_model.safetensors", ["x.lora_A.weight", HOSTILE])
    x = inspected("a", "r = 8", "adapter")
    assert x["config"]["r"] == "8" and x["config"]["target_modules"].startswith("q_proj, ")
    assert [t["name"] for t in x["tensors"]["tensors"]][0] == "x.lora_A.weight"


@test
def presets_are_shown_by_name():
    assert "method: mod" in run("inspect", "mod")
    assert json.loads(run("inspect", "mod", "--json"))["preset"] == "mod"


@test
def hostile_text_of_a_gguf_file_stays_on_its_line():
    tokens = ["a", HOSTILE, "c\nd"]
    gguf("h.gguf", [("general.architecture", HOSTILE), ("general.name", HOSTILE), ("tokenizer.ggml.tokens", tokens),
                    ("tokenizer.ggml.model", HOSTILE), ("tokenizer.ggml.bos_token_id", 1),
                    ("tokenizer.ggml.eos_token_id", 4000000000)])
    x = inspected("h.gguf", "vocabulary: 3 tokens", "gguf")
    assert x["vocabulary"]["bos"] == 1 and x["metadata"]["general.architecture"] == HOSTILE
    gguf("k.gguf", [("tokenizer.ggml.tokens", 5), ("tokenizer.ggml.merges", "x")])
    x = inspected("k.gguf", "GGUF version 3", "gguf")
    assert "vocabulary" not in x


@test
def whole_numbers_of_a_gguf_file_are_exact_up_to_64_bits():
    gguf("n.gguf", [("general.architecture", "llama"), ("x.seed", (1 << 64) - 1), ("x.most", (1 << 63) - 1), ("x.more", 1 << 63),
                    ("llama.block_count", (1 << 64) - 2)])
    x = inspected("n.gguf", "x.seed = 18446744073709551615\n", "gguf")["metadata"]
    assert (x["x.seed"], x["x.most"], x["x.more"]) == ((1 << 64) - 1, (1 << 63) - 1, 1 << 63), x
    gguf("a.gguf", [("general.alignment", 1 << 63)])
    refused("a.gguf: general.alignment: must be a u32, found u64", "inspect", "a.gguf", code=1)


@test
def unknown_files_are_reported_in_one_line():
    os.mkdir("empty")
    for words, part in ((("empty",), "expected a run"), (("nothing",), "no run or file of this name"), (("-",), "not standard input")):
        err = run("inspect", *words, code=2 if words == ("-",) else 1)
        assert err.startswith("depthscope: ") and err.count("\n") == 1 and part in err, err
    for name in ("x.gguf", "x.bin", "x.safetensors", "x.png", "tokenizer.json", "x.model", "x.mp"):
        with open(name, "wb") as f:
            f.write(b"\x80\x04nothing of the kind" + HOSTILE.encode())
        for extra in ((), ("--json",)):
            err = run("inspect", name, *extra, code=1)
            assert err.startswith("depthscope: ") and err.count("\n") == 1, err


@test
def special_files_are_rejected_before_they_are_opened():
    os.mkdir("d")
    for name in ("x.gguf", "x.bin", "x.safetensors", "x.png", "x.yaml", "tokenizer.json", "x", "d/config.json"):
        os.mkfifo(name)
        for extra in ((), ("--json",)):
            err = run("inspect", name, *extra, code=1)
            assert "is a FIFO, expected a regular file" in err and err.count("\n") == 1, err
    assert "d/config.json: is a FIFO" in run("inspect", "d", code=1)
    assert "is a device" in run("inspect", "/dev/zero", code=1)
    status, _, err = t.call("inspect", "/dev/stdin", data=b"x")
    assert status == 1 and "write a pipe to a file first" in err and "as /dev/stdin" not in err, err
    os.symlink(make("m.gguf"), "link.gguf")
    run("inspect", "link.gguf")


@test
def records_and_figures_have_json_too():
    run("train", "--run", "r", "--quiet", "model.layers=6", "model.dim=32", "model.heads=2", "model.vocab=300",
        "train.steps=4", "train.seq=32", "train.batch=2", "train.eval_every=2", "train.final_tokens=256",
        "train.eval_tokens=256", "data.docs=40", "train.time_rounds=1", "train.checkpoint_every=2")
    x = json.loads(run("inspect", "r", "--json"))
    assert x["kind"] == "records" and x["step"] == 4 and x["records"]["metric"] > 0 and x["model"].endswith("00000004")
    assert any(s["name"] == "loss" for s in x["series"])
    assert json.loads(run("inspect", x["model"], "--json"))["kind"] == "checkpoint"
    run("figure", "training", "r", "-o", "figs", "--format", "png")
    figure = os.path.join("figs", os.listdir("figs")[0])
    x = inspected(figure, "figure:", "figure")
    assert "training" in x["recipe"] and x["width"] > 100


t.main(fresh=True)
