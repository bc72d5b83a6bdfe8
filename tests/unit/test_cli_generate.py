"""generate as a script and a person meet it: batches, stop strings, streams, chat, a terminal with and without colour.
DEPTHSCOPE names the program."""
import fcntl
import glob
import json
import os
import pty
import re
import select
import shutil
import signal
import struct
import subprocess
import sys
import termios
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import t  # noqa: E402
from t import PROGRAM, SLOW, TINY, test  # noqa: E402

CHATML = ("{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n'}}"
          "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}")


def run(*words, code=0, data=b"", **env):
    """The bytes of standard output."""
    out = t.run("generate", *words, "time_rounds=0", code=code, data=data, raw=True, **env)
    run.err = t.run.err
    return out


def lines(*words, **kw):
    return [json.loads(x) for x in run(*words, "--json", **kw).splitlines()]


def refused(part, *words, code=2, **kw):
    run(*words, code=code, **kw)
    assert part in run.err, "%r lacks %r" % (run.err, part)


@test
def a_batch_equals_its_prompts_run_singly_in_order():
    with open("b.txt", "w") as f:
        f.write('The cat\n"line one\\nline two"\n\n{"prompt": "A dog"}\r\nOne more\n')
    for batch in ("batch=1", "batch=2", "together=16"):  # its earlier name
        got = lines("tiny", "--batch", "b.txt", "max_tokens=12", "seed=5", batch)
        assert [x["index"] for x in got] == [0, 1, 2, 3]
        for k, text in enumerate(["The cat", "line one\nline two", "A dog", "One more"]):
            alone = lines("tiny", "--prompt", text, "max_tokens=12", "seed=%d" % (5 + k))[0]
            for key in "ids text depth prompt_ids stop flops_ratio block_ratio seed".split():
                assert got[k][key] == alone[key], (batch, k, key)
    two = lines("tiny", "--prompt", "The cat", "--prompt", "A dog", "max_tokens=3")
    assert len(two) == 2
    plain = run("tiny", "--prompt", "The cat", "--prompt", "A dog", "max_tokens=3")
    assert plain.startswith(b"The cat") and b"\n---- 2 of 2\nA dog" in plain and b"in 2 texts" in run.err.encode()


@test
def a_byte_order_mark_is_not_part_of_a_prompt():
    mark = b"\xef\xbb\xbf"
    for name, text in (("marked.jsonl", b'{"prompt": "A dog"}\n'), ("marked.txt", b"A dog")):
        with open(name, "wb") as f:
            f.write(mark + text)
    want = lines("tiny", "--prompt", "A dog", "max_tokens=1")[0]["prompt_ids"]
    for words in ("--batch", "marked.jsonl"), ("--batch", "marked.txt"), ("--file", "marked.txt"):
        assert lines("tiny", *words, "max_tokens=1")[0]["prompt_ids"] == want, words
    assert lines("tiny", "--file", "-", "max_tokens=1", data=mark + b"A dog")[0]["prompt_ids"] == want


@test
def a_bad_batch_names_file_and_line():
    for text, part in (('ok\n{"x": 1}\n', "bad.txt:2"), ('"open\n', "bad.txt:1"), ("\n\n", "no prompt"),
                       ('{"messages": []}\n', "--chat")):
        with open("bad.txt", "w") as f:
            f.write(text)
        refused(part, "tiny", "--batch", "bad.txt", code=2 if part == "no prompt" else 1)
    refused("nowhere.txt", "tiny", "--batch", "nowhere.txt", code=1)
    refused("one of --prompt", "tiny", "--batch", "b.txt", "--prompt", "x")


@test
def a_stop_string_ends_text_and_stream():
    whole = lines("tiny", "--prompt", "The cat", "max_tokens=40", "seed=2")[0]
    text = whole["text"]
    for at in range(3, min(20, len(text) - 3), 5):
        stop = text[at:at + 3]
        if "\ufffd" in stop or "\0" in stop:
            continue
        got = lines("tiny", "--prompt", "The cat", "max_tokens=40", "seed=2", "--stop", "never there", "--stop", stop,
                    "--stream")
        end = got[-1]
        assert end["stop"] == "stop string" and end["text"] == text[:text.index(stop)], (stop, end["text"])
        assert "".join(x["new_text"] for x in got) == end["text"]
        assert [x["id"] for x in got[:-1]] == end["ids"] == whole["ids"][:len(end["ids"])]
        shown = run("tiny", "--prompt", "The cat", "max_tokens=40", "seed=2", "--stop", stop, "--quiet")
        assert shown.decode("utf-8", "replace") == "The cat" + end["text"]
    refused("--stop", "tiny", "--prompt", "x", "--stop", "")


@test
def concatenated_new_text_of_a_stream_is_the_text():
    for seed in range(1, 9):  # bytes of a model that knows nothing: characters are cut off by the end
        got = lines("tiny", "--prompt", "The cat", "max_tokens=15", "seed=%d" % seed, "--stream")
        assert "".join(x["new_text"] for x in got) == got[-1]["text"], (seed, got[-1]["text"])
        last = got[-1]["text"][-1:]
        if last and last not in "\0\ufffd":  # the last character could begin this string, so it is held back
            held = lines("tiny", "--prompt", "The cat", "max_tokens=15", "seed=%d" % seed, "--stream", "--stop",
                         last + "never there")
            assert "".join(x["new_text"] for x in held) == held[-1]["text"] == got[-1]["text"]
            assert held[-1]["new_text"].endswith(last)
    got = lines("tiny", "--prompt", "The cat", "--prompt", "A dog", "max_tokens=15", "--stream")
    for k in range(2):
        mine = [x for x in got if x["index"] == k]
        assert "".join(x["new_text"] for x in mine) == mine[-1]["text"] and "stop" in mine[-1]
    assert "new_text" not in lines("tiny", "--prompt", "The cat", "max_tokens=3")[0]


def made(model, *words):
    x = lines(model, "--prompt", "The cat", "max_tokens=40", "temperature=1", "seed=3", *words)[0]
    return x["ids"], x["stop"]


def set_json(path, **keys):
    old = {}
    if os.path.exists(path):
        with open(path) as f:
            old = json.load(f)
    with open(path, "w") as f:
        json.dump({**old, **keys}, f)


@test
def end_of_text_ids_come_from_both_files():
    """As in transformers: generation_config.json before config.json, a number or a list; the tokenizer's where they name none."""
    subprocess.run([PROGRAM, "convert", "tiny", "-o", "ends", "method=dense"], check=True, stdout=subprocess.DEVNULL)
    c = json.load(open("ends/config.json"))
    assert isinstance(c["eos_token_id"], int) and c["depthscope"]["model.end_ids"] == str(c["eos_token_id"]), c
    all_ids, stop = made("ends")
    assert len(all_ids) == 40 and stop == "length", (len(all_ids), stop)
    a, b = all_ids[9], all_ids[5]
    assert a not in all_ids[:9] and b not in all_ids[:5]
    first = lambda *which: min(all_ids.index(x) for x in which)
    config, beside = "ends/config.json", "ends/generation_config.json"
    for value, end in ((a, (a,)), ([b], (b,)), ([b, a], (a, b)), ([a, a, -1, 1 << 40], (a,))):
        set_json(config, eos_token_id=value)
        assert made("ends") == (all_ids[:first(*end)], "end of text"), value
    set_json(beside, eos_token_id=b, temperature=0.6)
    assert made("ends") == (all_ids[:first(b)], "end of text"), "generation_config.json comes first"
    set_json(beside, eos_token_id=None)
    assert made("ends") == (all_ids[:first(a)], "end of text"), "it names none: config.json"
    out = json.loads(subprocess.run([PROGRAM, "inspect", "ends", "--json"], stdout=subprocess.PIPE, check=True).stdout)
    assert out["config"]["model.end_ids"] == str(a), out["config"]
    for bad in ("2", True, 2.5, {"a": 1}, [[1]], ["</s>"], list(range(50))):
        set_json(beside, eos_token_id=bad)
        refused("ends/generation_config.json: eos_token_id", "ends", "--prompt", "x", code=1)
    with open(beside, "w") as f:
        f.write("{")
    refused("ends/generation_config.json", "ends", "--prompt", "x", code=1)
    os.remove(beside)
    set_json(config, eos_token_id=None, depthscope={**c["depthscope"], "model.end_ids": ""})
    assert made("ends") == (all_ids, "length")


@test
def end_of_text_ids_survive_gguf_and_training():
    subprocess.run([PROGRAM, "convert", "tiny", "-o", "three", "method=dense"], check=True, stdout=subprocess.DEVNULL)
    all_ids, _ = made("three")
    ends = list(dict.fromkeys(all_ids))[-3:]
    assert len(ends) == 3, all_ids
    set_json("three/config.json", eos_token_id=ends)
    want = made("three")
    assert want[1] == "end of text" and len(want[0]) < len(all_ids)
    for source, to in (("three", "three.gguf"), ("three.gguf", "back"), ("back", "again.gguf")):
        subprocess.run([PROGRAM, "convert", source, "-o", to], check=True, stdout=subprocess.DEVNULL)
        assert made(to) == want, to
    assert sorted(json.load(open("back/config.json"))["eos_token_id"]) == sorted(ends)
    meta = json.loads(subprocess.run([PROGRAM, "inspect", "three.gguf", "--json"], stdout=subprocess.PIPE,
                                     check=True).stdout)
    assert sorted(meta["vocabulary"][k] for k in ("eos", "eot", "eom")) == sorted(ends), meta["vocabulary"]
    train = [PROGRAM, "train", "train.init=three", "model.method=dense", "train.steps=1", "train.seq=32", "train.batch=2",
             "data.docs=60", "data.val_fraction=0.3", "train.time_rounds=0", "train.lr=1e-9", "--quiet"]
    subprocess.run([*train, "--run", "tuned"], check=True, timeout=120 * SLOW)
    assert made("tuned")[1] == "end of text", "a run that starts from the model ends its texts as the model does"
    subprocess.run([PROGRAM, "convert", "three", "-o", "other", "tokenizer=bytes"], check=True, stdout=subprocess.DEVNULL)
    assert json.load(open("other/config.json"))["eos_token_id"] == 256, "ids of another vocabulary stay behind"


@test
def the_keys_of_the_json_are_those_of_the_reference():
    with open(os.path.join(t.ROOT, "data/reference/GENERATION.md"), encoding="utf-8") as f:
        text = f.read().split("## JSON")[1]
    named = set(re.findall(r"`([a-z_]+)`", text))
    listed = {k for row in text.splitlines() if row.startswith("| `") for k in re.findall(r"`([a-z_]+)`", row.split("|")[1])}
    found = set()

    def take(x):
        found.update(x if isinstance(x, dict) else ())
        for v in x.values() if isinstance(x, dict) else x if isinstance(x, list) else ():
            take(v)

    drafts = ["speculate=2", "draft=exit:1", "temperature=0"]
    for words in (["--prompt", "a", "time_rounds=0"], ["logprobs=2", "echo=1", "time_rounds=0"], [*drafts, "--compare", "time_rounds=1"],
                  ["--stream", *drafts, "logprobs=1", "time_rounds=0"]):
        for line in t.run("generate", "tiny", "--prompt", "Once upon", "max_tokens=4", "--json", *words).splitlines():
            take(json.loads(line))
    take(t.run_json("trace", "tiny", "--text", "Once upon"))
    assert listed <= found <= named, (listed - found, found - named)


@test
def log_probabilities_are_in_the_json():
    x = lines("tiny", "--prompt", "The cat", "max_tokens=6", "logprobs=3", "echo=1")[0]
    assert len(x["logprobs"]) == len(x["ids"]) == len(x["pieces"]) == len(x["top_logprobs"])
    assert all(v < 0 for v in x["logprobs"]) and all(len(t) == 3 for t in x["top_logprobs"])
    assert len(x["prompt_logprobs"]) == len(x["prompt_ids"]) and x["prompt_logprobs"][0] is None
    assert all(t[0]["logprob"] >= t[1]["logprob"] >= t[2]["logprob"] for t in x["top_logprobs"])
    greedy = lines("tiny", "--prompt", "The cat", "max_tokens=6", "logprobs=1", "temperature=0")[0]
    assert [t[0]["id"] for t in greedy["top_logprobs"]] == greedy["ids"]
    assert "logprobs" not in lines("tiny", "--prompt", "x", "max_tokens=2")[0]
    refused("logprobs", "tiny", "--prompt", "x", "logprobs=21")


@test
def chat_renders_the_template():
    refused("template=chatml", "tiny", "--chat", "--prompt", "hi")
    refused("template", "tiny", "--chat", "--prompt", "hi", "template=gemma")
    refused("--system", "tiny", "--prompt", "hi", "--system", "x")
    want = "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    x = lines("tiny", "--chat", "--system", "Be brief.", "--prompt", "hi", "template=chatml", "max_tokens=3")[0]
    ids = lines("tiny", "--prompt", want, "max_tokens=0")[0]["prompt_ids"]
    assert x["prompt_ids"] == ids  # this vocabulary has no token for the marks
    with open("m.json", "w") as f:
        json.dump([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hi"}], f)
    assert lines("tiny", "--messages", "m.json", "template=chatml", "max_tokens=3")[0]["ids"] == x["ids"]
    with open("m.json", "w") as f:
        f.write('[{"role": "robot", "content": "x"}]')
    refused("depthscope: m.json: message 1: role \"robot\"", "tiny", "--messages", "m.json", "template=chatml", code=1)
    with open("m.jsonl", "w") as f:
        f.write('{"messages": [{"role": "user", "content": "hi"}]}\nhi\n')
    a, b = lines("tiny", "--chat", "--batch", "m.jsonl", "template=chatml", "max_tokens=2")
    assert a["prompt_ids"] == b["prompt_ids"]


@test
def the_models_own_template_is_recognised():
    newest = sorted(glob.glob("runs/tiny/checkpoints/step-*"))[-1]
    shutil.copytree(newest, "own")
    with open("own/tokenizer_config.json", "w") as f:
        f.write('{"model_max_length": 1000000000000000019884624838656, "chat_template": %s}' % json.dumps(CHATML))
    asked = lines("own", "--chat", "--prompt", "hi", "template=chatml", "max_tokens=2")[0]
    assert lines("own", "--chat", "--prompt", "hi", "max_tokens=2")[0]["ids"] == asked["ids"]
    with open("own/tokenizer_config.json", "w") as f:
        f.write('{"chat_template": "{{ bos_token }}<start_of_turn>"}')
    refused("unsupported chat template", "own", "--chat", "--prompt", "hi")
    with open("own/tokenizer_config.json", "w") as f:
        f.write('{"chat_template": ')
    refused("tokenizer_config.json", "own", "--chat", "--prompt", "hi", code=1)


@test
def a_model_made_from_another_keeps_its_chat_template():
    t.run("convert", "tiny", "-o", "instruct", "method=dense")
    with open("instruct/tokenizer_config.json", "w") as f:
        json.dump({"bos_token": "<b>", "chat_template": "{{ bos_token }}" + CHATML}, f)
    asked = lines("instruct", "--chat", "--prompt", "hi", "max_tokens=2")[0]
    train = ["train", *TINY, "train.steps=2", "train.init=instruct", "model.method=dense", "--quiet"]
    train = [w for w in train if not w.startswith(("model.layers", "model.dim", "model.heads", "model.vocab"))]
    t.run(*train, "--run", "taught")
    t.run(*train, "--run", "lora", "model.lora_r=2", "train.freeze=base", "train.save=own")
    t.run("convert", "lora", "-o", "adapter", "adapter=only")
    for name in os.listdir("adapter"):
        if not name.startswith("adapter_"):
            os.unlink("adapter/" + name)
    t.run("convert", "adapter", "-o", "merged")
    with open("instruct/tokenizer_config.json") as a, open("merged/tokenizer_config.json") as b:
        assert a.read() == b.read()
    for model in ("taught", "lora", "adapter", "merged"):
        got = lines(model, "--chat", "--prompt", "hi", "max_tokens=2")[0]
        assert got["prompt_ids"] == asked["prompt_ids"], (model, got, asked)
    assert t.run("tokenize", "adapter", "--text", "hi") == t.run("tokenize", "instruct", "--text", "hi")


@test
def a_chat_by_lines_keeps_the_conversation():
    got = lines("tiny", "--chat", "template=chatml", "max_tokens=4", data=b"hi\n\nand now?\n")
    assert len(got) == 2
    first = got[0]["prompt_ids"] + got[0]["ids"]
    assert got[1]["prompt_ids"][:len(first)] == first and len(got[1]["prompt_ids"]) > len(first)
    assert lines("tiny", "--chat", "template=chatml", data=b"") == []
    refused("context", "tiny", "--chat", "template=chatml", data=b"word " * 5000, code=1)


@test
def a_chat_has_the_rotary_frequencies_of_its_length():
    t.run("train", *TINY, "model.rope_scaling=longrope", "model.rope_original=100", "model.max_seq=400",
          "model.rope_short=" + ",".join("1" * 8), "model.rope_long=" + ",".join("8" * 8), "--run", "long", "--quiet")
    for more in ([], ["speculate=2", "draft=exit:1"]):
        for seed in range(60):  # until an answer can be repeated in a file
            words = ["long", "--chat", "template=chatml", "max_tokens=3", "temperature=1", "logprobs=1", "seed=%d" % seed, *more]
            first, second = lines(*words, data=b"hi\nand now?\n")
            if re.fullmatch("[ -~]+", first["text"]):
                break
        assert len(first["prompt_ids"]) < 80 and len(second["prompt_ids"]) > 100  # short, then long
        said = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": first["text"]},
                {"role": "user", "content": "and now?"}]
        for got, messages in ((first, said[:1]), (second, said)):
            alone = lines(*words, "--messages", "-", data=json.dumps(messages).encode())[0]
            for key in "prompt_ids ids logprobs depth prompt_depth flops_ratio".split():
                assert got[key] == alone[key], (more, key, got, alone)


@test
def drafts_of_a_chat_are_counted_by_answers():
    words = ["--chat", "template=chatml", "max_tokens=8", "temperature=0", "speculate=3", "draft=exit:2"]
    got = lines("tiny", *words, data=b"hi\nand now?\nwell\n")
    for x in got:
        assert x["accepted"] == x["marks"].count("accepted") and 0 < x["rounds"] <= len(x["ids"]), x
        assert x["drafted"] <= 3 * x["rounds"], x


@test
def after_a_stop_string_a_chat_goes_on_from_the_answer_that_was_shown():
    for seed in range(60):  # until an answer begins with a letter and another one
        words = ["--chat", "template=chatml", "max_tokens=6", "temperature=1", "seed=%d" % seed]
        whole = lines("tiny", *words, data=b"hi\n")[0]["text"]
        if re.match(r"([!-~])(?!\1)[!-~]", whole):
            break
    first, second = lines("tiny", *words, "--stop", whole[1], data=b"hi\nand now?\n")
    assert first["stop"] == "stop string" and first["text"] == whole[0], (first, whole)
    said = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": first["text"]},
            {"role": "user", "content": "and now?"}]
    asked = lines("tiny", *words, "--messages", "-", data=json.dumps(said).encode())[0]
    assert second["prompt_ids"] == asked["prompt_ids"], (second["prompt_ids"], asked["prompt_ids"])


@test
def from_a_pipe_every_line_is_a_message():
    said = b"/etc/passwd is a file?\n/reset\n/quit\nhi\n"
    got = lines("tiny", "--chat", "template=chatml", "max_tokens=2", "--quiet", data=said)
    assert len(got) == 4 and run.err == "", (len(got), run.err)
    other = lines("tiny", "--chat", "template=chatml", "max_tokens=2", "--quiet", data=said.replace(b"\n", b"\r\n"))
    assert [x["prompt_ids"] for x in other] == [x["prompt_ids"] for x in got]  # as in --batch
    asked = lines("tiny", "--chat", "--prompt", "/etc/passwd is a file?", "template=chatml", "max_tokens=2")[0]
    assert got[0]["ids"] == asked["ids"] and got[0]["prompt_ids"] == asked["prompt_ids"]
    assert all(len(b["prompt_ids"]) > len(a["prompt_ids"]) for a, b in zip(got, got[1:]))


@test
def piped_text_ends_its_line_and_quiet_adds_nothing():
    out = run("tiny", "--prompt", "The cat", "max_tokens=5")
    assert out.endswith(b"\n") and "relative to dense" in run.err and run.err.startswith("5 tokens")
    assert not b"\x1b" in out
    quiet = run("tiny", "--prompt", "The cat", "max_tokens=5", "--quiet")
    assert run.err == "" and out.rstrip(b"\n") == quiet.rstrip(b"\n")
    alone = run("tiny", "--prompt", "The cat", "max_tokens=5", "--quiet", "echo=0")
    assert b"The cat" + alone == quiet
    table = run("tiny", "--prompt", "The cat", "max_tokens=5", "--show", "depth", "--quiet").splitlines()
    depth = lines("tiny", "--prompt", "The cat", "max_tokens=5")[0]["depth"]
    assert [int(x) for x in table[-1].split()] == depth, (table, depth)
    refused("expected depth", "tiny", "--prompt", "x", "--show", "everything")


# ---- a terminal ----

def terminal(words, columns=80, keys=(), **env):
    """What the program writes on a terminal; keys: (wait for this, then send that)."""
    pid, fd = pty.fork()
    if pid == 0:
        os.environ.update({"TERM": "xterm-256color", "LC_ALL": "C.UTF-8", **env})
        os.execv(PROGRAM, [PROGRAM, "generate", *words, "time_rounds=0"])
    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    out, keys, end = b"", list(keys), time.time() + 60 * SLOW
    try:
        while time.time() < end:
            if keys and re.search(keys[0][0], out):
                out_before, out = out, b""
                os.write(fd, keys.pop(0)[1])
                terminal.all += out_before
            if select.select([fd], [], [], 0.05)[0]:
                data = os.read(fd, 65536)
                if not data:
                    break
                out += data
    except OSError:
        pass
    finally:
        os.close(fd)
    terminal.all += out
    status = os.waitpid(pid, 0)[1]
    text, terminal.all = terminal.all.decode("utf-8", "replace"), b""
    return text, os.waitstatus_to_exitcode(status)


terminal.all = b""


@test
def a_token_that_no_layer_executed_counts_in_the_range():
    t.run("train", "model.method=mod", "mod.every=1", *TINY, "--run", "bare", "--quiet")
    for seed in range(60):  # until the last token is not the least deep
        words = ["bare", "--prompt", "The cat", "capacity=0.4", "max_tokens=16", "seed=%d" % seed]
        depth = lines(*words)[0]["depth"]
        if depth[-1] > min(depth) == 0:
            break
    text, _ = terminal(words)
    assert "in this text 0 to %d" % max(depth) in text, (depth, text)


@test
def a_terminal_shows_depth_by_colour():
    text, status = terminal(["tiny", "--prompt", "The cat", "max_tokens=8"])
    assert status == 0 and "\x1b[2mThe cat\x1b[0m" in text and "\x1b[38;5;" in text and "executed layers: 1" in text
    for line in re.sub("\x1b\\[[0-9;]*m", "", text).splitlines():
        if line.startswith(("executed layers", "8 tokens")):
            assert len(line) <= 80, line
    true, _ = terminal(["tiny", "--prompt", "The cat", "max_tokens=8"], COLORTERM="truecolor")
    assert "\x1b[38;2;" in true
    plain, _ = terminal(["tiny", "--prompt", "The cat", "max_tokens=8"], NO_COLOR="1")
    assert "\x1b" not in plain and "executed layers" not in plain
    narrow, _ = terminal(["tiny", "--prompt", "The cat", "max_tokens=30", "--show", "depth", "--quiet"], columns=30,
                         NO_COLOR="1")
    rows = [x for x in narrow.splitlines() if re.fullmatch(r"[ 0-9]*[0-9] ?[ 0-9]*", x)]
    assert rows and all(len(x) <= 30 for x in rows), rows


@test
def text_cannot_control_the_terminal():
    text, _ = terminal(["tiny", "--prompt", "a\x1b[2Jb\x9b", "max_tokens=0"], NO_COLOR="1")
    assert "\x1b" not in text and "<0x1B>[2Jb" in text


@test
def chat_is_reset_and_ended_by_commands():
    words = ["tiny", "--chat", "template=chatml", "max_tokens=4", "--json"]
    keys = [(b"> $", b"hi\n"), (b"}\r\n> $", b"/reset\n"), (b"reset\r\n[^>]*> $", b"hi\n"),
            (b"}\r\n> $", b"and now?\n"), (b"}\r\n> $", b"/quit\n")]
    for quiet in (0, 1):
        text, status = terminal(words + ["--quiet"] * quiet, keys=keys, NO_COLOR="1")
        got = [json.loads(x) for x in re.findall(r"^\{.*\}", text, re.M)]
        assert status == 0 and len(got) == 3, text
        assert got[0]["ids"] == got[1]["ids"] and got[0]["prompt_ids"] == got[1]["prompt_ids"]
        assert len(got[2]["prompt_ids"]) > len(got[1]["prompt_ids"] + got[1]["ids"])
        for note in ("new conversation", "template chatml"):
            assert (note in text) == (not quiet), (quiet, text)


@test
def chat_survives_ctrl_c_and_ends_with_ctrl_d():
    text, status = terminal(["tiny", "--chat", "template=chatml", "max_tokens=3"],
                            keys=[(b"> $", b"hi\n"), (b"tokens[^\n]*\n> $", b"half"), (b"half$", b"\x03"),
                                  (b"\n> $", b"/help\n"), (b"new conv[^\n]*\n> $", b"again\n"),
                                  (b"tokens[^\n]*\n> $", b"\x04")], NO_COLOR="1")
    assert status == 0, (status, text)
    assert text.count("3 tokens") + text.count("tokens (end of text)") >= 2 and "template chatml" in text, text


def interrupted(*words):
    """Ctrl-C behind the first bytes of the output.  The pipe is short, so that the program waits for its reader in the
    middle of a step (where it is nearly always met) instead of being done before."""
    p = subprocess.Popen([PROGRAM, "generate", *words, "max_tokens=1000000", "time_rounds=0"], stdout=subprocess.PIPE,
                         stderr=subprocess.PIPE, pipesize=4096)
    first = os.read(p.stdout.fileno(), 1)
    p.send_signal(signal.SIGINT)
    out, err = p.communicate(timeout=60 * SLOW)
    assert p.returncode == 130, (p.returncode, err)
    return first + out, err.decode("utf-8", "replace")


@test
def drafts_give_the_same_text_with_marks_and_counts():
    words = ("tiny", "--prompt", "The cat", "max_tokens=30", "temperature=0")
    plain = lines(*words)[0]
    assert "marks" not in plain and plain["flops_token"] > 0
    for draft in ("exit:2", "skip:1,3-4"):
        x = lines(*words, "speculate=4", "draft=" + draft)[0]
        assert x["ids"] == plain["ids"] and x["text"] == plain["text"] and x["stop"] == plain["stop"], (x, plain)
        assert x["draft"] == draft and len(x["marks"]) == len(x["ids"])
        assert x["marks"].count("accepted") == x["accepted"] <= x["drafted"]
        assert len(x["ids"]) == x["accepted"] + x["rounds"]
        assert abs(x["acceptance"] - x["accepted"] / x["drafted"]) < 1e-6
    streamed = [json.loads(y) for y in run(*words, "speculate=4", "draft=exit:2", "--json", "--stream").splitlines()]
    assert [y["mark"] for y in streamed[:-1]] == streamed[-1]["marks"]
    run(*words, "speculate=auto", "draft=exit:3")
    assert re.search(r"draft exit:3: \d+ of \d+ drafted tokens accepted", run.err), run.err
    two = lines("tiny", "--prompt", "The cat", "--prompt", "A dog", "max_tokens=8", "temperature=0", "speculate=2",
                "draft=exit:1")
    assert [y["ids"] for y in two] == [y["ids"] for y in lines("tiny", "--prompt", "The cat", "--prompt", "A dog",
                                                              "max_tokens=8", "temperature=0")]


@test
def speeds_with_and_without_drafts_are_compared():
    words = ("generate", "tiny", "--prompt", "The cat", "max_tokens=12", "temperature=0", "speculate=3", "draft=exit:2",
             "--compare", "time_rounds=2")
    x = json.loads(t.run(*words, "--json"))
    assert x["same_text"] is True and x["speedup"] > 0 and x["speculative_tok_s"] > 0 and x["ordinary_tok_s"] > 0, x
    assert x["ordinary_flops_token"] > 0
    t.run(*words)
    assert "the same text" in t.run.err and "median of 2 pairs" in t.run.err, t.run.err


@test
def impossible_drafts_are_refused_in_one_line():
    for part, words, code in (
            ("must be 1 to 64, auto or off", "speculate=0 draft=exit:2", 2),
            ("must be 1 to 64, auto or off", "speculate=4x draft=exit:2", 2),
            ("missing draft", "speculate=4", 2),
            ("no effect without speculate", "draft=exit:2", 2),
            ("no effect without speculate", "draft.confidence=0.5", 2),
            ("must be 1 to 5 layers, fewer than the model's 6", "speculate=4 draft=exit:12", 1),
            ("must be 1 to 5 layers, fewer than the model's 6", "speculate=4 draft=exit:6", 1),
            ("must be 1 to 5 layers", "speculate=4 draft=exit:0", 1),
            ('unknown draft "early"', "speculate=4 draft=early", 2),
            ("layer 6: must be 0 to 5", "speculate=4 draft=skip:2,6", 1),
            ("at least one layer", "speculate=4 draft=skip:0-5", 1),
            ("such as skip:3,5-8", "speculate=4 draft=skip:5-3", 2),
            ("no capacity", "speculate=4 draft=capacity:0.4", 2),
            ("speculate: routing=topk", "speculate=4 draft=exit:2 routing=topk", 2),
            ("expected routing=dense", "speculate=4 draft=routed", 2),
            ("sampler=llama2c does not support speculate", "speculate=4 draft=exit:2 sampler=llama2c", 2),
            ("use draft=exit:3", "speculate=4 draft=exit:2 exit.layer=3", 2),
            ("exit.layer=7: must be at most 6", "exit.layer=7", 1),
            ("--compare requires speculate=N", "--compare", 2)):
        refused(part, "tiny", "--prompt", "x", *words.split(), code=code)
        assert run.err.count("\n") == 1, run.err


@test
def ctrl_c_prints_the_text_so_far():
    got = [json.loads(x) for x in interrupted("tiny", "--prompt", "a", "--json", "--stream")[0].splitlines()]
    end = got[-1]
    assert end["stop"] == "stopped" and len(end["ids"]) == len(got) - 1 > 0, end
    assert "".join(x["new_text"] for x in got) == end["text"] and 0 < end["flops_ratio"] and 0 < end["block_ratio"]
    got = [json.loads(x) for x in interrupted("tiny", *["--prompt", "abc"] * 9, "--json", "--stream", "batch=4")[0]
           .splitlines()]
    ends = [x for x in got if "stop" in x]
    assert [x["index"] for x in ends] == list(range(len(ends))) and 4 <= len(ends) < 9, ends
    assert {"stopped"} <= {x["stop"] for x in ends} <= {"stopped", "end of text"}, ends
    assert all(len(x["ids"]) == sum(y["index"] == x["index"] for y in got) - 1 for x in ends)


@test
def ctrl_c_prints_the_cost_so_far():
    words = [x for k in range(4) for x in ("--prompt", "word " * 40)] * 8
    out, err = interrupted("tiny", *words, "batch=2")
    cost = re.search(r"in (\d+) texts.*blocks ([0-9.]+), FLOPs ([0-9.]+)", err)
    assert cost and 0 < int(cost[1]) < 32 and float(cost[2]) > 0 and float(cost[3]) > 0, err
    assert out.count(b"\n---- ") == int(cost[1]) - 1, (out, err)


def setup():
    t.run("train", *TINY, "--run", "tiny", "--quiet")


t.main(setup)
