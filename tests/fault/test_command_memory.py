#!/usr/bin/env python3
"""An allocation fails in commands that only read: each ends with one line and status 1, or with the whole output.  The n-th allocation
is tried for n in even steps; between two that differ in what they say, by halves, until the first of each place in the program is met."""
import os
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import t  # noqa: E402
from t import SANITIZED, call, run, test  # noqa: E402

MODEL = ("model.layers=2 model.dim=16 model.heads=2 model.vocab=300 model.max_seq=32 data.docs=20 data.tokenizer=bytes data.val_fraction=0.2 "
         "train.batch=2 train.seq=16 train.warmup=1 train.eval_tokens=32 train.final_tokens=32 train.samples=4 train.time_rounds=0 "
         "train.probes=1 train.probe_tokens=8 train.eval_every=3 train.probe_every=3 train.checkpoint_every=2 train.keep=1 "
         "train.system_every=0 train.steps=4 threads=1 --quiet").split()
STEPS, MOST = (6, 20) if SANITIZED else (24, 160)  # even steps and tries of one command
PLACE = re.compile(r"\S*[^A-Za-z\s;,:]\S*")  # names and numbers
AGE = re.compile(rb'(?<="age":)[\d.e+-]+|\d+ s ago')


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


def each_place(words, data=None, strict=True):
    """strict: with status 0 and nothing on standard error the output is that of an undisturbed command."""
    status, whole, _ = call(*words, data=data)
    assert status == 0, words
    said, last = {}, allocations(words, data)

    def at(n):
        if n not in said:
            status, out, err = attempt(words, data, n)
            assert status in (0, 1), (words, n, status, err)
            if status == 1:
                t.one_line((words, n), err.splitlines(True)[-1])
                assert "memory" in err, (words, n, err)
            elif strict and not err and b"out of memory" not in out:  # a report may name a part that it lacks
                assert AGE.sub(b"", out) == AGE.sub(b"", whole), (words, n, out[-300:], whole[-300:])
            said[n] = (status, PLACE.sub("", err))
        return said[n]

    step = max(1, last // STEPS)
    points = sorted(set(range(1, last + 1, step)) | set(range(1, min(last, 20) + 1)) | {last})
    for n in points:
        at(n)
    todo = list(zip(points, points[1:]))[::-1]
    while todo and len(said) < MOST:
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


@test
def a_model_is_evaluated_wholly_or_not():
    each_place(["eval", "tiny", "--json", "time_rounds=0"])
    each_place(["trace", "tiny", "--text", "abc", "--json"])
    each_place(["tokenize", "tiny", "--text", "abc", "--json"])
    each_place(["generate", "tiny", "--prompt", "abc", "max_tokens=4", "time_rounds=0", "--quiet"])
    each_place(["generate", "tiny", "--batch", "prompts.txt", "max_tokens=4", "time_rounds=0", "--quiet"])


@test
def pictures_are_whole_or_not_drawn():
    each_place(["show", "monitor", "tiny"], strict=False)
    each_place(["show", "depth", "tiny", "--format", "ansi"], strict=False)
    each_place(["figure", "training", "tiny", "-o", "drawn"])


def setup():
    with open("prompts.txt", "w") as f:
        f.write("abc\nde\n")
    run("train", "model.method=mod", *MODEL, "--run", "tiny")
    run("train", "model.method=mod", *MODEL, "seed=2", "--run", "two")


t.main(setup)
