#!/usr/bin/env python3
"""Compare and Generate on a pseudo-terminal, with real models of tiny runs."""
import os
import re
import signal
import subprocess
import sys
import time

import test_tty as kit
from test_tty import PROGRAM, Tty, check, end

from t import SLOW, TINY  # noqa: E402

RUNS = ("one", "two", "three")


def setup():
    """Three runs, once; they differ in their seed and their method."""
    root = os.path.join(kit.TMP, "models")
    if os.path.isdir(root):
        return root
    os.makedirs(root)
    for i, name in enumerate(RUNS):
        more = ["model.method=dense"] if name == "three" else []
        p = subprocess.run([PROGRAM, "train", "quick", *TINY, "threads=1", "train.time_rounds=0", "seed=%d" % (i + 1), *more,
                            "--run", name, "--quiet"], cwd=root, env=environment(root), stdout=subprocess.PIPE,
                           stderr=subprocess.STDOUT, timeout=120 * SLOW)
        check(p.returncode == 0, p.stdout.decode("utf-8", "replace"))
    return root


def environment(root):
    return dict(os.environ, DEPTHSCOPE_RUNS=os.path.join(root, "runs"))


def start(*words, **kw):
    root = setup()
    return Tty(list(words), env={"DEPTHSCOPE_RUNS": os.path.join(root, "runs")}, shell='cd "%s" && exec "$0" "$@"' % root, **kw)


def shown(t):
    return t.text() if kit.pyte else bytes(t.out).decode("utf-8", "replace")


def until(t, part, seconds=20.0):
    """Reads until the screen holds `part`."""
    end = time.time() + seconds * SLOW
    while time.time() < end:
        t.read(0.1, 0.5)
        if part in shown(t):
            return shown(t)
    t.close()
    check(False, "%r is not shown:\n%s" % (part, shown(t)))


# ---- Compare ----

def recorded_texts_of_two_runs_are_compared_without_a_model():
    t = start("one", "two", "--view", "compare")
    text = until(t, "cells differ")
    check("B - A" in text and "1 setting differs" in text and "recorded" in text, text)
    text = t.keys("]d", 0.5) and shown(t)
    check("KL(A||B) not recorded" in text, text)
    end(t)


def a_cursor_step_in_compare_is_small():
    for rows, cols in ((24, 80), (50, 200)):
        t = start("one", "two", "--view", "compare", rows=rows, cols=cols)
        until(t, "cells differ")
        t.keys("llljj", 0.5)
        costs, rests = [], []
        for k in "lljjhhkk":
            costs.append(len(t.keys(k, 0.05)))
            rests.append(len(t.read(0.3)))
        end(t)
        print("  %s B per cursor step at %dx%d; %s B when it rests" % (costs, cols, rows, rests))
        kit.are_small(costs)


def two_models_run_on_a_text_and_their_divergence_is_shown():
    t = start("one", "two", "--view", "compare", "--text", "Once upon a time there was a cat.", rows=50, cols=200)
    text = until(t, "mean KL")
    check("at least" not in text, "an exact divergence is called a bound\n" + text)
    t.keys("l", 0.5)
    check("nats" in shown(t) and "KL(A||B)" in shown(t), shown(t))
    t.keys("x", 0.2)  # exchanged: the same two, the other way round
    until(t, "A two  B one")
    until(t, "mean KL")
    end(t)


def a_better_checkpoint_is_compared_from_the_next_text_on():
    run = os.path.join(setup(), "runs", "one")
    points = sorted(int(p[5:]) for p in os.listdir(os.path.join(run, "checkpoints")) if p.startswith("step-"))
    path = os.path.join(run, "best.json")
    with open(path) as f:
        best = f.read()
    before = int(re.search(r'"step": *(\d+)', best)[1])
    after = next(p for p in points if p != before)
    said = "Once upon a time there was a cat."
    t = start("one", "two", "--view", "compare", "--text", said, rows=50, cols=200)
    try:
        losses = re.search(r"loss ([\d.]+), ([\d.]+)", until(t, "mean KL"))
        with open(path, "w") as f:
            f.write(re.sub(r'"step": *\d+', '"step": %d' % after, best).replace("%08d" % before, "%08d" % after))
        t.keys(":text %s\r" % said, 0.5)
        stop = time.time() + 20 * SLOW
        while time.time() < stop and "loss %s," % losses[1] in shown(t):
            t.read(0.1, 0.5)
        now = re.search(r"loss ([\d.]+), ([\d.]+)", until(t, "mean KL"))
        check(now[1] != losses[1] and now[2] == losses[2], shown(t))
    finally:
        with open(path, "w") as f:
            f.write(best)
    end(t)


def checkpoints_of_one_run_are_models_too():
    root = setup()
    points = sorted(os.listdir(os.path.join(root, "runs", "one", "checkpoints")))
    points = [os.path.join("runs", "one", "checkpoints", p) for p in points if p.startswith("step-")]
    check(len(points) >= 2, "checkpoints: %r" % points)
    t = start(points[0], points[-1], "--view", "compare")
    text = until(t, "cells differ")
    check(os.path.basename(points[0]) in text and "ready" in text, text)
    end(t)


def a_text_for_something_else_than_two_models_is_refused():
    root = setup()
    for words in (["one", "--view", "compare", "--text", "x"], ["one", "two", "--text", "x"]):
        p = subprocess.run([PROGRAM] + words, cwd=root, env=environment(root), stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=20)
        err = p.stderr.decode()
        check(p.returncode == 2 and err.count("\n") == 1 and "--view compare" in err, err)


def any_view_compares_by_command():
    t = start("one", "--view", "monitor")
    until(t, "Monitor")
    t.keys(":compare one two\r", 0.5)
    until(t, "cells differ")
    end(t)


def a_model_that_is_missing_is_one_line():
    t = start("one", "--view", "compare")
    until(t, "Nothing to compare yet")
    t.keys(":compare one nowhere\r", 0.5)
    until(t, "The models cannot be compared")
    end(t)


def three_marked_runs_are_a_table():
    t = start("one", "two", "three", "--view", "compare", rows=40, cols=120)
    text = until(t, "settings that differ")
    check("val loss" in text and "model.method" in text and "dense" in text, text)
    end(t)


def pictures_wait_for_the_models():
    root = setup()
    for words, parts in ((["compare", "one", "two", "--text", "Once upon a time"], ("mean KL", "ready")),
                         (["compare", "one", "two", "three"], ("settings that differ", "val loss")),
                         (["generate", "one", "--keys", ":prompt Once upon a time"], ("ended:", "likely at token"))):
        p = subprocess.run([PROGRAM, "show", *words, "--size", "200x50"], cwd=root, env=environment(root), stdout=subprocess.PIPE,
                           stderr=subprocess.PIPE, timeout=60 * SLOW)
        text = p.stdout.decode("utf-8")
        check(p.returncode == 0 and all(part in text for part in parts), "%r: %s%s" % (words, p.stderr.decode(), text))


# ---- Generate ----

def prompt_of(text):
    """How many tokens the model was given, from "13 tokens, 9 generated"."""
    n, made = re.search(r"(\d+) tokens, (\d+) generated", text).groups()
    return int(n) - int(made)


def a_text_is_generated_token_by_token_and_saved_as_a_trace():
    root = setup()
    t = start("one", "--view", "generate")
    until(t, "ready")
    t.keys("i", 0.1)
    t.keys("\x15Once upon a time\r", 0.1)
    until(t, "ended:")
    text = shown(t)
    check("generated" in text and "of dense" in text and "likely at token" in text, text)
    t.keys("S", 0.2)
    until(t, "saved;")
    path = os.path.join("exports", "one-trace-1.mp")
    check(os.path.exists(os.path.join(root, path)), "no file %s" % path)
    t.keys(":open %s\r" % path, 0.5)
    text = until(t, "one (one-trace-1.mp) \u203a Depth map")
    check(re.search("Depth map *[^ ]+ trace", text) and "session" in text, text)
    end(t)


def a_model_that_is_no_run_opens_in_generate():
    root = setup()
    points = os.path.join("runs", "one", "checkpoints")
    points = [os.path.join(points, p) for p in sorted(os.listdir(os.path.join(root, points))) if p.startswith("step-")]
    t = start(points[0], "--view", "generate")
    until(t, "ready")
    check(os.path.basename(points[0]) in shown(t), shown(t))
    end(t)


def a_text_continues_from_any_of_its_tokens():
    t = start("one", "--view", "generate", rows=24, cols=100)
    until(t, "ready")
    t.keys(":max-tokens 8\r", 0.2)
    t.keys(":prompt Once upon a time\r", 0.2)
    until(t, "ended:")
    first = shown(t)
    t.keys("ggll", 0.3)
    t.keys("r", 0.2)
    until(t, "seed 2")
    check(prompt_of(until(t, "ended:")) == 2, "not from the third token on:\n%s\n%s" % (first, shown(t)))
    t.keys("gglj", 0.3)
    t.keys("\r", 0.2)  # the likeliest token at the second place
    check(prompt_of(until(t, "ended:")) == 2, shown(t))
    end(t)


def generation_stops_when_asked():
    t = start("one", "--view", "generate")
    until(t, "ready")
    t.keys(":max-tokens 100000\r", 0.2)
    t.keys(":prompt Once upon a time\r", 0.02)
    t.keys("x", 0.2)
    text = until(t, "ready")
    # a fast model has ended by itself, and before the first token there is nothing to show
    check(any(x in text for x in ("ended: stopped", "ended: context full", "ended: end of text", "No text yet")), text)
    t.keys(":max-tokens 4\r", 0.2)
    t.keys(":prompt Once upon a time\r", 0.2)
    until(t, "ended:")
    end(t)


def a_cursor_step_in_generate_is_small():
    for rows, cols in ((24, 80), (50, 200)):
        t = start("one", "--view", "generate", rows=rows, cols=cols)
        until(t, "ready")
        t.keys(":prompt Once upon a time\r", 0.2)
        until(t, "ended:")
        t.keys("ggllll", 0.5)
        costs = []
        for k in "llhh":
            costs.append(len(t.keys(k, 0.05)))
            t.read(0.3)
        end(t)
        print("  %s B per cursor step at %dx%d" % (costs, cols, rows))
        kit.are_small(costs)


def children(pid):
    try:
        with open("/proc/%d/task/%d/children" % (pid, pid)) as f:
            return [int(x) for x in f.read().split()]
    except OSError:
        return []


def a_model_that_dies_leaves_the_text_and_starts_again():
    t = start("one", "--view", "generate")
    until(t, "ready")
    t.keys(":prompt Once upon a time\r", 0.2)
    until(t, "ended:")
    pids = children(t.pid)
    check(len(pids) == 1, "children: %r" % pids)
    os.kill(pids[0], signal.SIGKILL)
    text = until(t, "stopped")
    check("tokens," in text and "R restarts it" in text, text)
    t.keys("R", 0.2)
    until(t, "ready")
    end(t)


if __name__ == "__main__":
    kit.main((
        recorded_texts_of_two_runs_are_compared_without_a_model, a_cursor_step_in_compare_is_small,
        two_models_run_on_a_text_and_their_divergence_is_shown, a_better_checkpoint_is_compared_from_the_next_text_on, checkpoints_of_one_run_are_models_too,
        a_text_for_something_else_than_two_models_is_refused, any_view_compares_by_command, a_model_that_is_missing_is_one_line, three_marked_runs_are_a_table,
        pictures_wait_for_the_models,
        a_text_is_generated_token_by_token_and_saved_as_a_trace, a_model_that_is_no_run_opens_in_generate, a_text_continues_from_any_of_its_tokens, generation_stops_when_asked,
        a_cursor_step_in_generate_is_small, a_model_that_dies_leaves_the_text_and_starts_again))
