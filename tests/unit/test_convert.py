"""depthscope convert as a script meets it: formats by name, what is told, what is refused, what is left behind.
DEPTHSCOPE names the program."""
import json
import os
import resource
import shutil
import signal
import struct
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import t  # noqa: E402
from t import PROGRAM, SLOW, shared, test  # noqa: E402

TEXT = "Once upon a time, Lily said: \"I\u2019m 3!\"  Then\nshe ran \u2603."


def run(*words, code=0):
    """Standard output, or the line of a refusal."""
    out = t.run(*words, code=code)
    return t.run.err if code else out


def convert(*words):
    return json.loads(run("convert", *words, "--json"))


def weights(path):
    with open(path, "rb") as f:
        data = f.read()
    n = int.from_bytes(data[:8], "little")
    header = json.loads(data[8:8 + n])
    return {k: (v["dtype"], v["shape"], data[8 + n + v["data_offsets"][0]:8 + n + v["data_offsets"][1]])
            for k, v in header.items() if k != "__metadata__"}


def ids(model):
    return json.loads(run("tokenize", model, "--text", TEXT, "--json"))["ids"]


@test
def directories_come_back_from_gguf_and_llama2c_bit_by_bit():
    convert("random:tiny", "-o", "a", "model.method=dense", "model.tied=false")
    first = weights("a/model.safetensors")
    for middle in ("b.gguf", "b.bin"):
        convert("a", "-o", middle)
        convert(middle, "-o", middle + "-hf")
        assert weights(middle + "-hf/model.safetensors") == first, middle
    assert convert("a", "-o", "a16", "weights=bf16")["weights"] == "bf16"
    assert convert("a16", "-o", "a16.gguf")["weights"] == "bf16", "auto keeps what is there"
    assert convert("a16.gguf", "-o", "a16b")["weights"] == "bf16"
    assert weights("a16b/model.safetensors") == weights("a16/model.safetensors")


@test
def a_file_is_named_after_its_directory_or_run():
    def name_of(model):
        convert(model, "-o", "named.gguf", "--force")
        return json.loads(run("inspect", "named.gguf", "--json"))["metadata"]["general.name"]
    convert("random:tiny", "-o", "model.x", "model.method=dense")
    t.run("train", "quick", *t.TINY, "model.method=dense", "--run", "ran", "--quiet")
    last = os.path.join("runs/ran/checkpoints", max(x for x in os.listdir("runs/ran/checkpoints") if x.startswith("step-")))
    assert [name_of(x) for x in ("model.x", "model.x/", "ran", "runs/ran", last)] == ["model.x"] * 2 + ["ran"] * 3
    os.chdir("model.x")
    try:
        assert [name_of(x) for x in (".", "./", "../model.x/.")] == ["model.x"] * 3
    finally:
        os.remove("named.gguf")
        os.chdir("..")
    os.rename("named.gguf", "copy.v1.gguf")
    assert name_of("copy.v1.gguf") == "copy.v1"


@test
def a_dense_model_that_transformers_has_no_family_for_is_noted():
    def is_noted(*words, text="no family of transformers computes the same"):
        shutil.rmtree("f", ignore_errors=True)
        made = convert("random:tiny", "-o", "f", "model.attn_bias=qkv", *words)
        return any(text in n for n in made["notes"])
    assert not is_noted("model.method=dense") and is_noted("model.method=dense", "model.mlp_bias=true")
    assert not is_noted("model.method=edp", "method=dense") and is_noted("model.method=edp", "method=dense", "model.mlp_bias=true")
    assert not is_noted("model.method=edp", "model.mlp_bias=true"), "routers have no family anyway"
    uneven = ("model.method=dense", "model.dim=16", "model.heads=6", "model.head_dim=4")
    assert not is_noted(*uneven, text="transformers 5 refuses")  # qwen2
    assert is_noted(*uneven, "model.attn_bias=false", text="llama with hidden_size=16: not a multiple of")
    assert not is_noted(*uneven, "model.attn_bias=false", "model.dim=24", text="transformers 5 refuses")


@test
def a_seed_and_settings_make_another_random_model():
    convert("random:tiny", "-o", "a", "seed=1")
    convert("random:tiny", "-o", "b", "seed=1")
    convert("random:tiny", "-o", "c", "seed=2")
    a, b, c = (weights(x + "/model.safetensors") for x in "abc")
    assert a == b and a != c
    x = convert("random:tinyllama", "-o", "d.gguf", "model.layers=1", "model.dim=64", "model.heads=4", "model.head_dim=16",
                "model.ffn=64", "model.kv_heads=2", "model.vocab=300", "weights=q8_0", "tokenizer=bytes")
    assert x["tokenizer"] and x["weights"] == "q8_0" and x["fell_back"] == 0 and x["parameters"] < 100000, x
    for layers, text in (1, "1 matrix has rows"), (2, "2 matrices have rows"):
        x = convert("random:tiny", "-o", "d.gguf", "--force", "model.layers=%d" % layers, "model.dim=64", "model.heads=2", "model.ffn=40",
                    "model.method=dense", "weights=q8_0")
        assert x["fell_back"] == layers and any(n.startswith(text) for n in x["notes"]), x


@test
def random_dora_starts_from_the_norms_of_its_matrices():
    convert("random:tiny", "-o", "a", "model.method=dense", "model.lora_r=2", "model.lora_dora=true")
    file, name = weights("a/model.safetensors"), "model.layers.5.mlp.down_proj."
    assert name + "lora_magnitude_vector" not in file, "not a target by default"
    name = "model.layers.5.self_attn.v_proj."
    w, m = (struct.unpack("<%df" % (len(file[name + x][2]) // 4), file[name + x][2]) for x in ("weight", "lora_magnitude_vector"))
    columns = len(w) // len(m)
    for i, x in enumerate(m):
        norm = sum(v * v for v in w[i * columns:(i + 1) * columns]) ** 0.5
        assert abs(x - norm) < 1e-6 * norm, (i, x, norm)


@test
def the_seed_of_a_model_goes_with_it_through_every_format():
    convert("random:tiny", "-o", "a", "seed=7", "model.method=dense", "model.tied=false", "tokenizer=bytes")
    convert("a", "-o", "b.gguf")
    convert("b.gguf", "-o", "c")
    convert("random:tiny", "-o", "d.gguf", "seed=1", "model.method=dense")
    with open("d.gguf", "rb") as f:
        assert b"tokenizer.ggml.model" in f.read(), "without the key llama.cpp opens no file"
    for path, seed in (("a", 7), ("b.gguf", 7), ("c", 7), ("d.gguf", 1)):
        if not path.endswith("gguf"):
            with open(path + "/config.json") as f:
                assert json.load(f)["depthscope"]["seed"] == str(seed), path
            continue
        metadata = json.loads(run("inspect", path, "--json"))["metadata"]
        assert metadata["depthscope.seed"] == str(seed), metadata


@test
def mixed_quantised_blocks_are_unchanged_from_gguf_to_gguf():
    shape = ("model.method=dense", "model.dim=256", "model.ffn=768", "model.layers=2")
    a = convert("random:tiny", "-o", "a.gguf", "weights=q4_k", *shape)
    b = convert("a.gguf", "-o", "b.gguf")
    assert b["weights"] == "q4_k" and b["head"] == "q6_k" and b["bytes"] <= a["bytes"] + 100, b
    assert any("q4_k 14, q6_k 1" in n for n in b["notes"]), b["notes"]
    x, y = (json.loads(run("inspect", p + ".gguf", "--json")) for p in "ab")
    assert x["tensors"] == y["tensors"] and x["metadata"]["general.file_type"] == y["metadata"]["general.file_type"]
    with open("a.gguf", "rb") as f, open("b.gguf", "rb") as g:
        data = a["bytes"] - 200000
        assert f.read()[-data:] == g.read()[-data:], "the very blocks"
    c = convert("a.gguf", "-o", "c")
    assert c["weights"] == "f32" and any("q6_k 1) are written as f32" in n for n in c["notes"]), c
    assert not any("are written" in n for n in convert("a.gguf", "-o", "d", "weights=f16")["notes"])
    assert convert("a.gguf", "-o", "e.gguf", "weights=q8_0")["head"] == "q8_0", "what is asked for"


@test
def merging_adapters_keeps_the_other_quantised_blocks():
    shape = ("model.method=dense", "model.dim=256", "model.ffn=768", "model.layers=2")
    convert("random:tiny", "-o", "base.gguf", "weights=q4_k", *shape)
    convert("random:tiny", "-o", "full", "model.lora_r=4", *shape)
    convert("full", "-o", "ad", "adapter=only")
    with open("ad/adapter_config.json") as f:
        config = json.load(f)
    with open("ad/adapter_config.json", "w") as f:
        json.dump({**config, "base_model_name_or_path": os.path.abspath("base.gguf")}, f)
    x = convert("ad", "-o", "base2.gguf", "method=dense")
    assert x["weights"] == "q4_k" and any("q4_k 14, q6_k 1" in n for n in x["notes"]), x
    x = convert("ad", "-o", "merged.gguf", "merge=yes")
    types = {t["name"]: t["type"] for t in json.loads(run("inspect", "merged.gguf", "--json"))["tensors"]}
    assert types["blk.0.attn_q.weight"] == "F32" and types["blk.0.ffn_up.weight"] == "Q4_K", types
    assert any("without adapters keeps its original type" in n for n in x["notes"]), x
    assert "belongs to the source" in run("convert", "ad", "-o", "base.gguf", "method=dense", "--force", code=2)


@test
def the_end_of_message_id_has_its_own_key():
    convert("random:tiny", "-o", "m", "model.method=dense", "model.vocab=400", "tokenizer=bytes")
    with open("m/tokenizer.json") as f:
        tok = json.load(f)
    tok["added_tokens"] += [{"id": 300 + i, "content": text, "special": True, "lstrip": False, "rstrip": False,
                             "normalized": False, "single_word": False}
                            for i, text in enumerate(("<|eom_id|>", "<|eot_id|>", "<|more|>"))]
    with open("m/tokenizer.json", "w") as f:
        json.dump(tok, f)
    with open("m/config.json") as f:
        config = json.load(f)
    eos = config["eos_token_id"]
    for ends, want, notes in (([eos, 300, 301], [eos, 301, 300], 0), ([300], [300, -1, -1], 0),
                              ([301, 300, eos, 302], [eos, 301, 300], 1), ([301, 302], [301, 302, -1], 0)):
        with open("m/config.json", "w") as f:
            json.dump({**config, "eos_token_id": ends}, f)
        x = convert("m", "-o", "m.gguf", "--force")
        v = json.loads(run("inspect", "m.gguf", "--json"))["vocabulary"]
        assert [v["eos"], v["eot"], v["eom"]] == want, (ends, v)
        assert sum("4 end-of-text ids" in n for n in x["notes"]) == notes, x["notes"]


@test
def ids_are_the_same_on_the_other_side():
    story, tok = shared("weights/stories260K/stories260K.bin"), shared("weights/stories260K/tok512.bin")
    want = ids(tok)
    convert(story, "-o", "hf", "tokenizer=" + tok)
    assert ids("hf") == want
    os.mkdir("back")
    assert convert("hf", "-o", "back/s.bin")["tokenizer"]
    assert ids("back/tokenizer.bin") == want
    assert run("generate", "back/s.bin", "--prompt", "Once", "max_tokens=12", "temperature=0") == \
        run("generate", "hf", "--prompt", "Once", "max_tokens=12", "temperature=0")
    model = shared("weights/TinyStories-656K-f32")
    convert(model, "-o", "t")
    assert ids("t") == ids(model)
    assert os.path.exists("t/tokenizer_config.json")


@test
def a_byte_level_vocabulary_is_unsupported_by_tokenizer_bin():
    x = convert("random:tiny", "-o", "m.bin", "model.method=dense", "tokenizer=bytes")
    assert not x["tokenizer"] and "byte-level" in x["notes"][0], x
    assert not os.path.exists("tokenizer.bin")


@test
def different_tokenisation_by_other_programs_is_reported():
    model = ("random:tiny", "model.method=dense", "model.vocab=300")
    vocab = {chr(b): b - 33 for b in range(33, 127)}
    for pattern, normalizer, name, note in (("\\p{N}{1,2}", None, None, "none is written"),
                                            ("\\p{N}", {"type": "NFC"}, b"command-r", "do not normalise to NFC"),
                                            ("\\p{N}", None, b"smollm", None)):
        steps = [{"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False},
                 {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True}]
        with open("t.json", "w") as f:
            json.dump({"added_tokens": [], "normalizer": normalizer, "decoder": {"type": "ByteLevel"},
                       "pre_tokenizer": {"type": "Sequence", "pretokenizers": steps},
                       "model": {"type": "BPE", "vocab": vocab, "merges": []}}, f)
        notes = convert(*model, "-o", "m.gguf", "--force", "tokenizer=t.json")["notes"]
        assert [n for n in notes if "other programs" in n and note in n] if note else not notes, notes
        with open("m.gguf", "rb") as f:
            head = f.read(4096)
        assert (b"tokenizer.ggml.pre" in head) == (name is not None) and (name is None or name in head), name


@test
def added_tokens_of_the_config_are_exported():
    convert("random:tiny", "-o", "m", "model.method=dense", "model.vocab=300", "tokenizer=bytes")
    vocab = {chr(b): b - 33 for b in range(33, 127)}
    vocab["\u0120"] = 94
    with open("m/tokenizer.json", "w") as f:
        json.dump({"added_tokens": [], "decoder": {"type": "ByteLevel"},
                   "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False},
                   "model": {"type": "BPE", "vocab": vocab, "merges": []}}, f)

    def config(last):
        with open("m/tokenizer_config.json", "w") as f:
            json.dump({"eos_token": "<end>", "added_tokens_decoder": {
                "95": {"content": "<a b>", "special": False, "normalized": False},
                str(last): {"content": "<end>", "special": True, "normalized": False}}}, f)

    def tokens(model):
        return json.loads(run("tokenize", model, "--text", "x<a b>y <end>", "--special", "--json"))["ids"]

    config(299)
    want = [87, 95, 88, 94, 299]
    assert tokens("m") == want
    convert("m", "-o", "m.gguf")
    convert("m.gguf", "-o", "back")
    convert("m", "-o", "copy")  # its config comes along, and says the same again
    convert("copy", "-o", "again")
    for model in ("m.gguf", "back", "copy", "again"):
        assert tokens(model) == want, (model, tokens(model))
    config(300)
    assert "tokenizer ids up to 300, expected fewer than the embedding's 300 rows" in run("convert", "m", "-o", "n", code=1)


@test
def existing_files_are_not_overwritten():
    convert("random:tiny", "-o", "m.gguf", "model.method=dense")
    with open("m.gguf", "rb") as f:
        before = f.read()
    assert "use --force to replace it" in run("convert", "random:tiny", "-o", "m.gguf", "model.method=dense", "seed=3", code=1)
    assert "is the source model" in run("convert", "m.gguf", "-o", "m.gguf", "--force", "weights=q8_0", code=2)
    os.symlink("m.gguf", "link.gguf")
    assert "is the source model" in run("convert", "m.gguf", "-o", "link.gguf", "--force", code=2)
    with open("m.gguf", "rb") as f:
        assert f.read() == before
    run("convert", "random:tiny", "-o", "m.gguf", "model.method=dense", "seed=3", "--force")
    os.mkdir("d")
    open("d/x", "w").close()
    assert "name a new directory" in run("convert", "m.gguf", "-o", "d", code=1)
    assert "is a directory" in run("convert", "m.gguf", "-o", "d", "to=gguf", code=1)
    os.remove("d/x")
    run("convert", "m.gguf", "-o", "d")
    assert sorted(os.listdir("d")) == ["config.json", "model.safetensors"]


def contents(d):
    out = {}
    for name in sorted(os.listdir(d)):
        with open(os.path.join(d, name), "rb") as f:
            out[name] = f.read()
    return out


@test
def a_model_is_not_written_to_the_path_of_its_vocabulary():
    story, tok = shared("weights/stories260K/stories260K.bin"), shared("weights/stories260K/tok512.bin")
    os.mkdir("o")
    for extra in ((), ("--force",)):
        err = run("convert", story, "-o", "o/tokenizer.bin", "tokenizer=" + tok, *extra, code=2)
        assert "reserved for the vocabulary" in err and os.listdir("o") == [], err


@test
def the_tokenizer_of_a_source_next_to_the_output_is_kept():
    story, tok = shared("weights/stories260K/stories260K.bin"), shared("weights/stories260K/tok512.bin")
    os.mkdir("l2")
    shutil.copy(story, "l2/m.bin")
    shutil.copy(tok, "l2/tokenizer.bin")
    # a score that this program would write otherwise
    with open("l2/tokenizer.bin", "r+b") as f:
        f.seek(4)
        f.write(b"\0\0\x80\x3f")
    before = contents("l2")
    for extra in ((), ("--force",)):
        x = convert("l2/m.bin", "-o", "l2/n.bin", *extra)
        assert x["tokenizer"] and any("left unchanged" in n for n in x["notes"]), x
        now = contents("l2")
        assert now.pop("n.bin") and now == before
        other = "tokenizer=" + tok
        assert "belongs to the source and" in run("convert", "l2/m.bin", "-o", "l2/k.bin", other, *extra, code=2)
        assert "belongs to the source" in run("convert", "l2/m.bin", "-o", "l2/tokenizer.bin", "to=gguf", *extra, code=2)
        os.remove("l2/n.bin")
        assert contents("l2") == before
    os.mkdir("other")
    open("other/tokenizer.bin", "w").close()
    assert "use --force to replace it" in run("convert", "l2/m.bin", "-o", "other/n.bin", code=1)
    convert("l2/m.bin", "-o", "other/n.bin", "--force")
    assert os.path.getsize("other/tokenizer.bin") > 4000


@test
def files_of_the_source_are_never_overwritten():
    convert("random:tiny", "-o", "d", "model.method=dense", "tokenizer=bytes")
    os.symlink("d/config.json", "link.gguf")
    before = contents("d")
    for extra in ((), ("--force",)):
        for out in ("d/model.safetensors", "d/config.json", "d/tokenizer.json", "link.gguf"):
            for to in ("gguf", "llama2c"):
                err = run("convert", "d", "-o", out, "to=" + to, *extra, code=2)
                assert "belongs to the source" in err and "--force" not in err, err
        err = run("convert", "random:tiny", "model.method=dense", "-o", "d/tokenizer.json", "to=gguf",
                  "tokenizer=d/tokenizer.json", *extra, code=2)
        assert "belongs to the source" in err, err
    assert contents("d") == before
    os.mkfifo("pipe.gguf")
    assert "not a regular file" in run("convert", "d", "-o", "pipe.gguf", "--force", code=1)
    for _ in range(2):
        convert("d", "-o", "d/x.gguf", "--force")


@test
def a_link_instead_of_a_directory_is_rejected_at_once():
    os.mkdir("empty")
    os.symlink("empty", "link")
    os.symlink("nowhere", "dangling")
    for out in ("link", "link/", "dangling"):
        assert "is a symbolic link" in run("convert", "random:tiny", "-o", out, code=1)
    for out in (".", "empty/.", "empty/..", "/"):
        assert "name a new directory" in run("convert", "random:tiny", "-o", out, code=2)
    assert sorted(os.listdir(".")) == ["dangling", "empty", "link"]


@test
def files_about_the_old_vocabulary_are_left_out():
    convert("random:tiny", "-o", "d", "model.method=dense", "tokenizer=bytes")
    beside = ["generation_config.json", "special_tokens_map.json", "tokenizer_config.json"]
    for name in beside:
        with open("d/" + name, "w") as f:
            f.write("{}")
    convert("d", "-o", "same")
    assert [n for n in beside if os.path.exists("same/" + n)] == beside
    convert("d", "-o", "new", "tokenizer=bytes")
    assert sorted(os.listdir("new")) == ["config.json", "model.safetensors", "tokenizer.json"]
    for name, text in (("tokenizer_config.json", '{"bos_token": "<begin>"}'), ("chat_template.jinja", "{{ bos_token }}{{ messages }}")):
        with open("d/" + name, "w") as f:
            f.write(text)
    convert("d", "-o", "chat", "tokenizer=bytes")
    assert sorted(os.listdir("chat")) == ["chat_template.jinja", "config.json", "model.safetensors", "tokenizer.json"], "<begin> is no token"


@test
def invalid_requests_are_one_line():
    for words, part, code in (
            (("random:quick", "-o", "x.gguf"), "method=dense", 2), (("random:nope", "-o", "x"), "unknown preset nope", 2),
            (("random:tiny", "-o", "x", "weights=q9"), "f32|f16|bf16", 2), (("random:tiny", "-o", "x", "weights=q8_0"), "to=gguf", 2),
            (("random:tiny", "-o", "x.bin", "weights=f16"), "expected f32", 2), (("random:tiny",), "OUT.gguf", 2),
            (("nothing", "-o", "x"), "model not found", 1), (("random:tiny", "-o", "x", "train.lr=1"), "unknown key", 2),
            (("random:tiny", "-o", "no/such/x.gguf", "model.method=dense"), "no/such", 1),
            (("random:tiny", "-o", "x", "tokenizer=nowhere"), "nowhere", 1),
            (("random:tiny", "-o", "x", "tokenizer=bytes", "model.vocab=200"), "ids up to 256", 1)):
        err = run("convert", *words, code=code)
        assert part in err, (words, err)
    assert os.listdir(".") == [], os.listdir(".")


@test
def an_interrupt_leaves_nothing():
    for out in ("m.gguf", "m.bin", "d"):
        p = subprocess.Popen([PROGRAM, "convert", "random:tinyllama", "-o", out, "model.layers=2"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        end = time.time() + 30 * SLOW
        while not any(x.endswith(".tmp") for x in os.listdir(".")) and time.time() < end:
            time.sleep(0.02)
        p.send_signal(signal.SIGINT)
        _, err = p.communicate(timeout=60 * SLOW)
        assert p.returncode == 130 and b"interrupted" in err and err.count(b"\n") == 1, (p.returncode, err)
        assert os.listdir(".") == [], os.listdir(".")


@test
def a_failed_write_names_the_directory_that_was_asked_for():
    def small():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (65536, 65536))

    p = subprocess.run([PROGRAM, "convert", "random:tiny", "-o", "d"], stderr=subprocess.PIPE, text=True, preexec_fn=small)
    assert p.returncode == 1 and "d/model.safetensors" in p.stderr and ".tmp" not in p.stderr, p.stderr
    assert os.listdir(".") == [], os.listdir(".")


@test
def files_left_by_a_kill_are_removed_at_the_next_start():
    litter = []
    for out in ("m.gguf", "m.bin", "d"):
        p = subprocess.Popen([PROGRAM, "convert", "random:tinyllama", "-o", out, "model.layers=2"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        end = time.time() + 30 * SLOW
        while not any(x.startswith(".%s." % out) for x in os.listdir(".")) and time.time() < end:
            time.sleep(0.02)
        p.kill()
        p.communicate(timeout=60 * SLOW)
        litter += [x for x in os.listdir(".") if x.startswith(".%s." % out)]
        if out != "d":
            assert len([x for x in os.listdir(".") if x == litter[-1]]) == 1
    assert len(litter) == 3, litter
    left = [x for x in os.listdir(".")]  # each start has removed what the one before left, but the last one's is there
    assert len(left) == 1, left
    owner = left[0][len(".d."):]
    open("..keep", "w").close()
    for kind in ("training.png", "0123.view", "t.mp"):  # as figures, the workbench's memory and traces leave them
        open(".%s.%s" % (kind, owner), "w").close()
    run("convert", "random:tiny", "-o", "t.gguf", "method=dense")
    assert sorted(os.listdir(".")) == ["..keep", "t.gguf"], os.listdir(".")


def chats(model, *words):
    return run("generate", model, "--chat", "--prompt", "hi", "max_tokens=4", "temperature=0", *words)


@test
def the_chat_template_is_exported():
    source = shared("weights/TinyStories-656K-f32")
    with open(os.path.join(shared("tokenizers/tinyllama"), "tokenizer_config.json")) as f:
        template = json.load(f)["chat_template"]
    with open(os.path.join(source, "tokenizer_config.json")) as f:
        config = json.load(f)
    named = [{"name": "tool_use", "template": "no"}, {"name": "default", "template": template}]
    for kind, inside in (("jinja", None), ("string", template), ("list", named)):
        os.mkdir(kind)
        for name in os.listdir(source):
            shutil.copy(os.path.join(source, name), kind)
        if inside:
            with open(kind + "/tokenizer_config.json", "w") as f:
                json.dump({**config, "chat_template": inside}, f)
        else:
            with open(kind + "/chat_template.jinja", "w") as f:
                f.write(template)
        want = chats(kind)
        for name, made_of in (("a", kind), ("a.gguf", kind), ("b.gguf", kind + "-a.gguf"), ("b", kind + "-b.gguf")):
            convert(made_of, "-o", kind + "-" + name)
            got = chats(kind + "-" + name)
            assert got == want, (kind, name, got, want)
        with open(kind + "-b/chat_template.jinja") as f:
            assert f.read() == template
        assert not os.path.exists(kind + "-a/chat_template.jinja") or kind == "jinja"
    convert("random:tiny", "-o", "m", "model.method=dense", "tokenizer=bytes")
    assert not any("chat template" in n for n in convert("m", "-o", "m.bin")["notes"])
    shutil.copy("jinja/chat_template.jinja", "m")
    assert any("chat template" in n for n in convert("m", "-o", "m.bin", "--force")["notes"])
    with open("jinja/chat_template.jinja", "wb") as f:
        f.truncate(5 << 20)
    assert any("chat template" in n for n in convert("jinja", "-o", "j.gguf")["notes"])


t.main(fresh=True)
