#!/usr/bin/env python3
"""An allocation fails in commands that only read: each ends with one line and status 1, or with the whole output.  The n-th allocation
is tried for n in even steps; between two that differ in what they say, by halves, until the first of each place in the program is met."""
import json
import os
import re
import shutil
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import t  # noqa: E402
from t import SANITIZED, call, run, test  # noqa: E402

MODEL = ("model.layers=2 model.dim=16 model.heads=2 model.vocab=300 model.max_seq=32 data.docs=20 data.tokenizer=bytes "
         "data.val_fraction=0.2 train.batch=2 train.seq=16 train.warmup=1 train.eval_tokens=32 train.final_tokens=32 "
         "train.samples=4 train.time_rounds=0 train.probes=1 train.probe_tokens=8 train.eval_every=3 train.probe_every=3 train.checkpoint_every=2 train.keep=1 "
         "train.system_every=0 train.steps=4 threads=1 --quiet").split()
STEPS, MOST = (12, 60) if SANITIZED else (24, 160)  # even steps and tries of one command
PLACE = re.compile(r"\S*[^A-Za-z\s;,:]\S*")  # names and numbers
TIMES = re.compile(rb'(?<="age":)[\d.e+-]+|(?<="tok_s":)[\d.e+-]+|\d+ s ago')


def attempt(words, data, n):
    """What the command said when its n-th allocation failed: (status, standard output, standard error)."""
    return call(*words, data=data, env={"DEPTHSCOPE_FAIL": "alloc:%d" % n})


def allocations(words, data):
    if os.path.exists("counts"):
        os.remove("counts")
    status, _, err = call(*words, data=data, env={"DEPTHSCOPE_FAIL": "count=counts"})
    assert status == 0, (words, err)
    with open("counts") as f:
        return int(re.search(r"alloc=(\d+)", f.read()).group(1))


def contents(top):
    """{path: bytes} of the files below `top`; of records, which hold times, only how many bytes."""
    out = {}
    for d, _, names in os.walk(top):
        for path in (os.path.join(d, x) for x in names):
            with open(path, "rb") as f:
                data = f.read()
            out[path] = len(data) if path.endswith(".mp") else data
    return out


def each_place(words, data=None, strict=True, before=lambda: None, most=MOST, made=None, tail=0):
    """strict: with status 0 and nothing on standard error the output is that of an undisturbed command; made: a directory, whose files
    are too.  tail: of so many last ones, which make the output, each is tried, of more than a hundred about a hundred."""
    def start():
        before()
        if made:
            shutil.rmtree(made, True)
            os.mkdir(made)

    start()
    status, whole, err = call(*words, data=data)
    assert status == 0, (words, err)
    files = contents(made) if made else {}
    assert bool(files) == bool(made), (words, made)
    start()
    said, last = {}, allocations(words, data)

    def at(n):
        if n not in said:
            start()
            status, out, err = attempt(words, data, n)
            assert status in (0, 1), (words, n, status, err)
            if status == 1:
                t.one_line((words, n), err.splitlines(True)[-1])
                assert "memory" in err, (words, n, err)
            elif strict and not err and b"out of memory" not in out:  # a report may name a part that it lacks
                assert TIMES.sub(b"", out) == TIMES.sub(b"", whole), (words, n, out[-300:], whole[-300:])
            if status == 0 and made and not err:
                found = contents(made)
                assert found == files, (words, n, [x for x in files if found.get(x) != files[x]])
            said[n] = (status, PLACE.sub("", err))
        return said[n]

    step = max(1, last // STEPS)
    points = sorted(set(range(1, last + 1, step)) | set(range(1, min(last, 20) + 1)) | {last})
    for n in points:
        at(n)
    for n in range(max(1, last - tail), last + 1, tail // 100 + (7 if SANITIZED else 1)):
        at(n)
    todo = list(zip(points, points[1:]))  # from the end: a long beginning only reads settings
    most += len(said) - len(points)
    while todo and len(said) < most:
        a, b = todo.pop()
        if b - a > 1 and at(a) != at(b):
            todo += [(a, (a + b) // 2), ((a + b) // 2, b)]
    failed = sum(s == 1 for s, _ in said.values())
    if os.environ.get("T_TIMES"):
        print("%s: %d allocations, %d tried, %d failed, %d messages" % (words[0], last, len(said), failed, len(set(said.values()))))
    assert failed, (words, "no allocation that matters", last)


@test
def lists_and_tables_are_whole_or_fail():
    each_place(["runs", "--json"])
    each_place(["runs", "--group", "method", "--filter", "train.steps=4 state=done", "--sort", "name"], strict=False)  # ages
    each_place(["compare", "tiny", "two", "--json"])
    each_place(["compare", "tiny", "two", "--latex"])
    each_place(["compare", "tiny", "two", "--csv"])


@test
def contents_are_whole_or_not_shown():
    each_place(["inspect", "tiny"])
    each_place(["inspect", "runs/tiny", "--json"])
    each_place(["inspect", "runs/tiny/checkpoints/step-00000004"])
    each_place(["inspect", "runs/tiny/log.mp", "--json"])
    each_place(["stream", "tiny", "--json"])
    each_place(["export", "tiny", "--to", "jsonl"])
    for form in ("tfevents", "csv"):
        each_place(["export", "tiny", "--to", form, "-o", "made/tiny." + form], made="made", tail=60, most=60)


@test
def the_log_of_another_program_is_whole_or_fails():
    line = b'{"step":1,"loss":2.5}'  # not ended: known when the stream is at its end
    each_place(["export", "-", "--to", "jsonl"], data=line)
    each_place(["stream", "-", "--json"], data=line)
    table = b'step,"loss ""x"""\n1,2.5\n2,3.5\n3,4\n'
    with open("table.csv", "wb") as f:
        f.write(table)
    each_place(["export", "-", "--to", "jsonl"], data=table)
    each_place(["export", "table.csv", "--to", "jsonl"])


@test
def a_model_is_evaluated_wholly_or_not():
    each_place(["eval", "tiny", "--json", "time_rounds=0"])
    each_place(["trace", "tiny", "--text", "abc", "--json"])
    each_place(["tokenize", "tiny", "--text", "abc", "--json"])
    each_place(["generate", "tiny", "--prompt", "abc", "max_tokens=4", "time_rounds=0", "--quiet"])
    each_place(["generate", "tiny", "--batch", "prompts.txt", "max_tokens=4", "time_rounds=0", "--quiet"])
    each_place(["generate", "tiny", "--prompt", "abc", "max_tokens=4", "time_rounds=0", "--stream", "--json", "--quiet"], tail=40, most=60)
    each_place(["trace", "tiny", "--text", "abc", "-o", "made/trace.mp"], made="made", tail=110, most=60)


@test
def a_task_is_scored_wholly_or_not():
    for name, row in (("lambada_openai", {"text": "a cat sat"}), ("wikitext", {"page": "One two ."}),
                      ("gsm8k", {"question": "1 + 1?", "answer": "#### 2"}), ("piqa", {"goal": "G", "sol1": "a", "sol2": "b", "label": 1})):
        with open(name + ".jsonl", "w") as f:
            f.write(json.dumps(row) + "\n")
        each_place(["eval", "tiny", "task=" + name, "data=%s.jsonl" % name, "shots=0", "max_gen=2", "--json"], strict=False)


def requests(*lines):
    return "".join(json.dumps(x) + "\n" for x in lines).encode()


@test
def a_server_and_an_agent_answer_or_end():
    asked = requests({"do": "info"}, {"do": "trace", "text": "abc", "generate": 2, "lens": 1}, {"do": "next", "top_k": 3},
                     {"do": "force", "layer": 0, "token": 1, "run": 0}, {"do": "offset", "value": 0.1}, {"do": "exit", "layers": 1},
                     {"do": "generate", "text": "ab", "n": 3}, {"do": "compare", "text": "abc"}, {"do": "option", "set": "capacity=0.5"},
                     {"do": "save", "file": "saved.mp"}, {"do": "nothing"}, {"do": "stop"})
    each_place(["serve", "tiny"], data=asked, strict=False)
    run_of = {"run": "runs/tiny"}
    asked = requests({"do": "open", "root": "runs"}, {"do": "list"}, {"do": "follow", "id": 1, **run_of}, {"do": "probes", **run_of},
                     {"do": "detail", "to": 4, **run_of}, {"do": "checkpoints", "id": 2, **run_of}, {"do": "echo", "id": 4},
                     {"do": "command", "id": 3, "line": "stop", **run_of}, {"do": "new", "id": 5})
    each_place(["agent", "runs"], data=asked, strict=False)


@test
def settings_and_candidates_are_whole_or_fail():
    each_place(["presets", "quick", "--json"])
    each_place(["help", "keys"])
    each_place(["complete", "runs", "tag", "t"], strict=False)
    each_place(["doctor", "--json"], strict=False)
    each_place(["runs", "tag", "tiny", "+a"], strict=False)
    each_place(["runs", "note", "tiny", "a note"], strict=False)


@test
def a_run_that_cannot_begin_says_so():
    for method in ("mod", "edp")[:1 if SANITIZED else 2]:
        more = ["model.layers=4", "edp.early=0", "edp.late=0"] if method == "edp" else []
        each_place(["train", "model.method=" + method, *MODEL, *more, "--run", "new"], strict=False, most=40,
                   before=lambda: shutil.rmtree("runs/new", True))


@test
def a_trace_of_experts_is_whole_or_not_there():
    with open("routes.csv", "w") as f:
        f.write("request_id,iteration,pos,token,layer,expert,weight\n")
        f.write("".join("r%d,%d,%d,%d,%d,%d,%g\n" % (q, q, t, 65 + t, l, (t + k) % 4, 0.75 - k / 2)
                        for q in range(2) for t in range(6) for l in range(3) for k in range(2)))
    each_place(["import", "routes.csv", "--tokenizer", "bytes", "-o", "routes.mp"], strict=False)


@test
def measurements_are_whole_or_fail():
    sizes = "layers=6 dim=32 heads=2 vocab=64 seq=16 batch=1".split()
    each_place(["bench", "quick=true", "rounds=1", *sizes, "only=train step dense", "--json"], strict=False, most=12)
    each_place(["calibrate", "tiny", "tokens=32", "-o", "calibrated"], strict=False, most=40,
               before=lambda: shutil.rmtree("calibrated", True))


@test
def pictures_are_whole_or_not_drawn():
    each_place(["show", "monitor", "tiny"], strict=False)
    each_place(["show", "depth", "tiny", "--format", "ansi"], strict=False)
    each_place(["figure", "training", "tiny", "-o", "made"], made="made", tail=290, most=60)
    each_place(["figure", "list", "--json"])


@test
def a_converted_model_is_whole_or_not_there():
    each_place(["convert", "tiny", "-o", "made/out"], strict=False, made="made", tail=60, most=60)
    each_place(["convert", "tiny", "method=dense", "-o", "made/out"], strict=False, made="made", tail=60, most=60)
    each_place(["convert", "tiny", "method=dense", "-o", "made/out.gguf"], strict=False, made="made", tail=60, most=60)


def setup():
    with open("prompts.txt", "w") as f:
        f.write("abc\nde\n")
    run("train", "model.method=mod", *MODEL, "--run", "tiny")
    run("train", "model.method=mod", *MODEL, "seed=2", "--run", "two")


t.main(setup)
