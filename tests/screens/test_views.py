"""The views by key, command and mouse: what each says of a wrong argument, at its ends, and of nothing to do.  Played from
scripts on a run of this program and on committed records.  DEPTHSCOPE names the program."""
import fcntl
import json
import os
import re
import shutil
import socket
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, ".."))
import t  # noqa: E402
from records import Log  # noqa: E402
from script import TINY, has, lacks, place, play, shows  # noqa: E402
from t import SLOW, run, test  # noqa: E402

MIXTURE = os.path.join(HERE, "mixture.mp")


def says(view, *steps, run="tiny", size="120x24"):
    """Plays (script line, text) pairs in one session; each text is on the last line then, or with a "+" before it anywhere."""
    script = []
    for line, _ in steps:
        script += [line, "shot"]
    screens = play(*script, size=size, words=(*run.split(), "--view", view))
    for (line, want), screen in zip(steps, screens):
        if want.startswith("+"):
            shows(screen, want[1:])
        else:
            assert want in screen[-1], "%s: %s: %r is not in %r of\n%s" % (view, line, want, screen[-1], "\n".join(screen))
    return screens


def comes(want, view, *script):
    """A process answers while keys are pressed: more of them until the text is shown."""
    for n in (4, 40, 400, 2000):
        screens = play(*["keys h"] * n, *script, *["keys h", "shot"] * n, words=("tiny", "--view", view), size="120x24")
        if any(has(x, want) for x in screens):
            return
    shows(screens[-1], want)


@test
def log_is_read_from_both_ends_filtered_and_searched():
    s = says("log", ("keys g g", "G follow"), ("keys G", "G follow"), ("command search zqz", "not found: zqz"),
             ("keys v", "shown: information and worse"), ("keys v", "shown: warnings and worse"), ("keys v", "shown: errors and worse"),
             ("keys v", "shown: everything"), ("keys y", "copied"), ("click 4 10", "G follow"), ("keys Enter", "+Esc"),
             ("keys Esc", "G follow"))
    says("log", ("command search checkpoint", "G follow"), ("keys n", "G follow"), ("keys N", "G follow"))
    says("log", ("keys v v v", "shown: errors and worse"), ("keys z", "+v shows all"))
    Log("runs/quiet/log.mp").put("head", 0, run="quiet", method="mod", layers=2, steps=1000)
    screens = says("log", ("keys v v", "+v v shows all"), ("keys v v", "shown: everything"), run="quiet", size="40x16")
    shows(screens[0], "appear here.")  # wrapped


@test
def log_shows_lines_to_their_end_beside_its_scroll_bar():
    log = Log("runs/barred/log.mp")
    log.put("head", 0, run="barred", method="mod", layers=2, steps=1000)
    for i in range(40):
        log.put("event", i, level="warn", name="checkpoint", text="x" * 42 + "<%d>" % i if i % 2 else "\x1b" * 20 + "<%d>" % i)
    words = ("barred", "--view", "log")
    row = [row for row in play("keys g g", words=words)[-1] if row.startswith(" ") and "xxxx" in row][0]
    assert row.index("<1>") + 3 == 79, row  # the last column is that of the bar
    fits = play("keys g g", words=words, size="79x24")[-1]  # one column less: cut with a sign
    assert "…" in [row for row in fits if "xxxx" in row][0], fits
    shows(play("keys g g", *["keys l"] * 10, words=words)[-1], "checkpoint", "<0>")  # bytes shown as <0x1B>
    shows(play("keys g g", *["keys l"] * 10, words=words)[-1], "checkpoint", "<18>")


@test
def glyphs_are_those_of_the_start_again():
    words = ("tiny", "--view", "flops")
    first, ascii_, again = play("shot", "command glyphs ascii", "shot", "command glyphs auto", "shot", words=words)[:3]
    assert first == again != ascii_
    assert play("command glyphs braille", "command glyphs auto", words=(*words, "--glyphs", "ascii"))[-1] == ascii_


@test
def a_long_path_is_completed_to_its_end():
    folder = "/".join(["long"] + ["x" * 60] * 5)
    os.makedirs(os.path.join(folder, "final"))
    shows(play("keys :", "type open %s/fi" % folder, "keys Tab", words=("tiny",), size="400x12")[-1], "x/final/")


@test
def manual_goes_to_its_ends_and_finds():
    s = says("manual", ("keys G", "keys"), ("keys g g", "keys"), ("command search Monitor", "keys"), ("keys n", "keys"),
             ("keys N", "keys"), ("command search zqz", "not found: zqz"), ("keys =", "nothing to explain under the cursor"), size="80x12")
    assert s[0] != s[1] and s[2] != s[1]


@test
def machine_shows_this_one_and_says_what_is_not_recorded():
    s = says("machine", ("keys g g G", "s source"), ("keys s", "only what was recorded is known: the run is not live on this machine"))
    assert s[0] is not None
    now = play("keys s", "shot", "keys =", "shot", "keys Esc y", "shot", words=("--view", "machine"), size="100x30")
    shows(now[0], "now")
    shows(now[0], "memory")
    shows(now[0], "processors")
    shows(now[0], "this machine is shown; nothing is recorded")
    shows(now[1], "use of the processors")
    small = play(words=("--view", "machine"), size="20x5")[-1]
    shows(small, "now")


@test
def monitor_takes_the_mouse_and_searches_its_charts():
    s = says("monitor", ("keys E", "events need 34 rows"), ("keys Space", "tiny is marked"), ("keys Space", "tiny is not marked now"),
             ("keys c", "one chart"), ("keys c", "one chart"), ("command search grad", "one chart"),
             ("keys =", "+grad_norm"), ("keys Esc", "one chart"), ("keys n", "one chart"), ("keys N", "one chart"),
             ("command search zqz", "not found: zqz"), ("wheel down 9 9", "one chart"), ("wheel up 9 9", "one chart"),
             ("click 9 9", "one chart"),
             ("keys =", "+chart"), ("keys Esc", "one chart"), ("keys Enter", "one chart"), ("keys h h =", "+metric record, step"),
             ("keys Esc", "one chart"), ("keys Esc Esc", "one chart"), ("keys i i < > o", "one chart"), ("keys 0", "one chart"),
             ("keys y", "copied"))
    assert s[0] != s[1]
    says("monitor", ("command search gate", "one chart"), ("keys =", "+layer record, step"), size="120x50")
    for key in "PCBSK":
        line = play("keys " + key, words=("tiny", "--view", "monitor"), size="120x24")[-1][-1]
        assert "nothing to stop" in line or "was not sent" in line or line.startswith(":set"), (key, line)


@test
def what_explains_a_value_names_the_point_that_is_shown():
    log = Log("runs/points/log.mp")
    log.put("head", 0, run="points", method="mod", layers=2, steps=100)
    for step in range(1, 11):
        log.put("metric", step, loss=10.0 + step, tokens=100.0 * step)
    log.put("eval", 5, task="val", routing="causal", loss=2.5, flops_ratio=0.5)
    for key, want in (("", "step"), ("x", "tokens")):
        for moves in range(1, 20, 3):
            at, why = play("command search loss", "keys Enter " + key, "keys " + "l " * moves, "shot", "keys =", "shot",
                           words=("points", "--view", "monitor"), size="40x24")[:2]
            shown = re.search(r"%s ([0-9.]+)  loss ([0-9.]+)" % want, "\n".join(at))
            step = re.search(r"metric record, step ([0-9]+)", "\n".join(why))
            assert shown and step and float(shown[2]) == 10 + int(step[1]), (moves, shown, step, at, why)
            assert key or abs(float(shown[1]) - int(step[1])) <= 1 and "." not in shown[1], shown[1]
            shows(why, "value", shown[2])
    for view in ("home", "pareto"):
        why = play("command search points", "keys =", words=("points", "--view", view), size="100x30")[-1]
        shows(why, "value", "2.5")
        shows(why, "source", "record")
        lacks(why, ", step 10")


@test
def a_chart_without_points_says_why():
    log = Log("runs/sparse/log.mp")
    log.put("head", 0, run="sparse", method="mod", layers=2, steps=100)
    for step in range(1, 101):
        log.put("metric", step, loss=10.0 + step, tokens=100.0 * step)
    log.put("metric", 50, rare=1.0)
    step, tokens, cut = play("command search rare", "keys Enter", "shot", "keys x", "shot", "keys 0 x x x x h h", "keys i i i", "shot",
                             words=("sparse", "--view", "monitor"), size="60x16")[:3]
    lacks(step, "no point")
    shows(tokens, "no point has tokens")
    shows(cut, "no points in this range")


@test
def monitor_and_home_agree_on_the_validation_loss_of_a_stopped_run():
    log = Log("runs/halted/log.mp")
    log.put("head", 0, run="halted", method="mod", layers=2, steps=100)
    for step in range(1, 11):
        log.put("metric", step, loss=3.0, **({"val_loss": 3.25} if step == 5 else {}))
    log.put("eval", 10, task="val", routing="causal", loss=3.125)
    log.put("end", 10, status="stopped")
    monitor, home = play("shot", "command view home", "shot", words=("halted", "--view", "monitor"), size="120x30")[:2]
    shows(monitor, "val 3.125")
    shows(home, "halted", "3.125")


@test
def the_cursor_does_not_move_on_a_chart_without_points():
    log = Log("runs/spare/log.mp")
    log.put("head", 0, run="spare", method="mod", layers=2, steps=100)
    for step in range(1, 101):
        log.put("metric", step, loss=10.0 + step, tokens=100.0 * step)
    log.put("metric", 50, rare=1.0)
    tokens, step = play("command search rare", "keys Enter x l l l", "shot", "keys x x x x l l", words=("spare", "--view", "monitor"), size="60x16")[:2]
    shows(tokens, "no point has tokens")
    assert not re.search(r"^ tokens ", tokens[-2]), tokens
    assert re.search(r"^ step .*rare 1", step[-2]), step


@test
def charts_of_another_x_range_have_labels_of_their_own():
    log = Log("runs/late/log.mp")
    log.put("head", 0, run="late", method="mod", layers=2, steps=100)
    for step in range(1, 101):
        late = {"late": 1.0, "later": 1.0} if step > 90 else {}
        log.put("metric", step, loss=3.0, grad_norm=1.0, lr=0.1, tok_s=9.0, **late)
    screen, zoomed = play("shot", "keys i", "shot", words=("late", "--view", "monitor"))[:2]
    labels = [y for y, line in enumerate(screen) if re.search(r" 50 +100", line)]
    rows = [next(y for y, line in enumerate(screen) if name in line) for name in ("  lr ", "  late ")]
    assert labels == [y - 1 for y in rows], (labels, rows, screen)
    shows(screen, " 95 ", " 100")
    row = next(y for y, line in enumerate(zoomed) if "  lr " in line)
    assert "│" in zoomed[row - 1], zoomed  # all have one range: it is that below


@test
def steps_are_labelled_above_panels_of_layers():
    log = Log("runs/layered/log.mp")
    log.put("head", 0, run="layered", method="mod", layers=2, steps=100)
    for step in range(1, 101):
        log.put("metric", step, loss=3.0, grad_norm=1.0, lr=0.1, tok_s=9.0)
    log.put("layer", 100, gate_ratio=[0.5, 0.5], threshold=[0.1, 0.2])
    screen = play(words=("layered", "--view", "monitor"))[-1]
    row = next(y for y, line in enumerate(screen) if "gate ratio" in line and "threshold" in line)
    shows([screen[row - 1]], " 50 ", " 100 ", " 50 ", " 100")


@test
def the_budget_is_the_one_that_was_set():
    log = Log("runs/budget/log.mp")
    log.put("head", 0, run="budget", method="edp", layers=2, steps=100, config={"edp.target_ratio": "0.6"})
    for step in range(1, 20):
        log.put("metric", step, loss=2.0, flops_ratio=0.5, block_ratio=0.5)
    words = ("budget", "--view", "monitor")
    shows(play(words=words)[-1], "budget", "of 0.6000")
    log.put("event", 20, level=1, name="set", text="edp.target_ratio 0.4")
    shows(play(words=words)[-1], "budget", "of 0.4000")
    why = play("command explain edp.target_ratio", words=words)[-1]
    shows(why, "value", "0.4, configured 0.6")
    shows(why, "source", "event that set it")


@test
def a_log_axis_is_of_one_chart_among_many():
    log = Log("runs/many/log.mp")
    log.put("head", 0, run="many", method="mod", layers=2, steps=100)
    for step in range(1, 60):
        log.put("metric", step, **{"m%02d" % k: 1.0 + step * (k + 1) for k in range(70)})
    log.put("layer", 59, gate_ratio=[0.5, 0.5])
    words = ("many", "--view", "monitor")
    for at in (31, 62):
        plain, flipped, first = play("keys c", "command search m%02d" % at, "keys Enter", "shot", "keys L", "shot",
                                     "command search m00", "shot", words=words, size="60x16")[:3]
        assert plain != flipped, "\n".join(plain)
        assert first == play("keys c", "keys Enter", "command search m00", words=words, size="60x16")[-1], "\n".join(first)
    says("monitor", ("command search gate", "one chart"), ("keys L", "only charts of curves have a log axis"), run="many")


@test
def keys_that_need_a_larger_screen_say_so():
    small, large = (play("keys d", words=("tiny", "--view", "home"), size=size)[-1][-1] for size in ("80x24", "120x24"))
    assert "the details pane needs 100 columns" in small and "needs" not in large, (small, large)
    shown, hidden = (play(*keys, words=("tiny", "--view", "monitor"), size="80x44")[-1] for keys in ((), ("keys E",)))
    shows(shown, "events")
    lacks(hidden, "events")


@test
def the_log_moves_only_to_the_end_of_its_longest_line():
    log = Log("runs/lines/log.mp")
    log.put("head", 0, run="lines", method="mod", layers=2, steps=100)
    log.put("event", 1, level=1, name="note", text="short")
    before, after = play("shot", "keys l l", "shot", words=("lines", "--view", "log"), size="80x12")[:2]
    shows(before, "short")
    assert before == after, "\n".join(after)
    log.put("event", 2, level=1, name="note", text="x" * 100 + " end")
    shows(play("keys l l l l l l", words=("lines", "--view", "log"), size="80x12")[-1], " end")


@test
def stepper_says_what_it_cannot_do_and_what_it_did():
    says("stepper", ("keys j", "s next"), ("command exit 99", "exit 99: must be 0 (all layers) to 6"), ("command exit 3", "s next"),
         ("command exit 0", "s next"), ("command expert 1", "this model has no experts"),
         ("command speculate 99", "speculate 99: must be 0 (no drafts) to 64"),
         ("command speculate x", "speculate x: must be 0 (no drafts) to 64"), ("keys t", "generation: temperature 0.7"),
         ("keys t", "generation: temperature 1"), ("keys t", "generation: greedy"), ("command option nonsense", "s next"),
         ("keys j l f f f", "s next"), ("keys x", "s next"), ("keys < > ( ) 0", "s next"), ("keys y", "copied"),
         ("command search zqz", "not found: zqz"),
         ("keys =", "+definition"), ("keys Esc", "s next"), ("keys p", "s next"), ("keys c C w o", "s next"), ("keys i C-u", "+prompt"),
         ("keys Enter", "the prompt is empty"), ("type hello", "+hello"), ("keys Enter", "s next"), ("keys s", "s next"),
         ("wheel down 9 20", "s next"), ("click 9 20", "s next"))


@test
def the_stepper_names_the_text_that_it_shows():
    before, left, empty, probed, again, why = play(
        "command prompt Tom had", "shot", "keys i", "type  never asked", "keys Esc", "shot", "keys i C-u Enter", "shot", "keys p", "shot",
        "keys m", "shot", "keys =", "shot", words=("tiny", "--view", "stepper"), size="120x24")[:6]
    shows(before, "prompt Tom had")
    for screen in (left, empty):
        shows(screen, "prompt Tom had")
        lacks(screen, "never asked")
    lacks(probed, "prompt Tom had")
    prompt = [line for line in probed if line.startswith(" prompt ")]
    assert prompt and prompt[0] in again, (prompt, again)
    shows(why, "source", "not a record")


@test
def a_stepper_whose_text_was_refused_is_not_loading():
    run("train", "hops", "model.dim=32", "model.head_dim=16", "model.ffn=64", "train.batch=2", "train.seq=32", "train.steps=2",
        "train.samples=64", "train.final_tokens=256", "train.eval_tokens=128", "train.time_rounds=0", "train.probes=1", "--run", "edges")
    for n in (4, 40, 400, 2000):
        screen = play("command prompt Tom had", "keys ] r", *["keys h"] * n, words=("tiny", "edges", "--view", "stepper"))[-1]
        if not has(screen, " edges  loading"):
            break
    shows(screen, " edges  ready")
    shows(screen, "No text yet")


@test
def layers_after_an_exit_keep_no_keys():
    run("trace", "tiny", "--text", "Tom had", "exit.layer=3", "-o", "exit.mp")
    for down, kept in ((2, "kept"), (3, "none"), (5, "none")):
        screen = run("show", "depth", "exit.mp", "--size", "100x30", "--keys", ";".join(["k"] * 6 + ["j"] * down)).splitlines()
        shows(screen, "layer %d " % down)
        shows(screen, "K/V ", " " + kept)


@test
def undo_of_the_choice_of_a_checkpoint_loads_it():
    for view in ("stepper", "generate"):
        first, newest, undone = play("keys h h", "shot", "keys m", "keys h h", "shot", "keys u", "keys h h", "shot",
                                     words=("tiny", "--view", view), size="120x24")[:3]
        shows(first, " tiny  ready")
        shows(newest, " step-00000010  ready")
        shows(undone, " tiny  ready")


@test
def a_change_in_the_stepper_is_of_the_same_text():
    script = ["command prompt zqzqzqzqzq", "keys h", "command exit 2"]
    for text in ("zqzqzqzqzq", "vjvjvjvjvj", "zqzqzqzqzq"):
        script += ["command prompt " + text, "keys h", "keys h", "shot"]
    for screen, is_known in zip(play(*script, words=("tiny", "--view", "stepper"), size="120x24"), (True, False, True)):
        line = [x for x in screen if x.startswith(" loss ")][0]
        assert "exit 2" in line, line
        assert bool(re.search(r"[0-9] [+-]0", line.split("tau")[0])) == is_known, line


@test
def a_model_that_is_not_there_is_named_by_the_stepper_and_generate():
    for view in ("stepper", "generate"):
        comes("nowhere: model not found", view, "command model nowhere")
        comes(" tiny  ready", view, "command model nowhere", "keys l l", "command model")
    comes("model: option: 'nonsense': expected key=value", "stepper", "command option nonsense")


@test
def a_view_of_a_model_names_none_of_the_run_before():
    log = Log("runs/weightless/log.mp")
    log.put("head", 0, run="weightless", method="mod", layers=2, steps=10)
    for view in ("stepper", "generate"):
        screen = play("keys ] r", words=("tiny", "runs/weightless/log.mp", "--view", view))[-1]
        shows(screen, "No model")
        assert screen[2].startswith(" no model"), screen[2]
        narrow = play("keys ] r", words=("tiny", "runs/weightless/log.mp", "--view", view), size="44x16")[-1]
        assert "a log or trace has no weights; load a model with :model PATH" in " ".join(x.strip() for x in narrow), narrow


@test
def generate_continues_with_the_token_that_is_selected_and_seen():
    words = ("tiny", "--view", "generate")
    begin = ("command max-tokens 8", "command temperature 0", "command prompt Once upon a time")
    seen = play(*begin, "keys j j j j j j", "shot", "keys j j j j j j", "shot", words=words, size="60x20")[:2]
    for screen in seen:  # of ten, seven rows are shown
        assert sum(row.startswith(" >") for row in screen) == 1, screen
    assert seen[0] != seen[1]
    low = play(*begin, "keys j j", words=words, size="60x12")[-1]
    assert sum(row.startswith(" >") for row in low) == 1, low
    # the first token has none: a selection at another one does not stay
    texts = play(*begin, "keys g g", "shot", "keys G j", "command search Once", "keys Enter", "shot", words=words, size="80x24")[:2]
    assert "Once" in " ".join(texts[1]), texts[1]


@test
def a_token_shows_all_layers_of_a_deep_model():
    run("train", "quick", *TINY, "model.layers=50", "model.dim=16", "train.steps=1", "model.method=dense", "--run", "fifty", "--quiet")
    screen = play("command max-tokens 1", "command prompt Once", words=("fifty", "--view", "generate"), size="120x34")[-1]
    side = [line[76:] for line in screen if len(line) > 76]
    at = [i for i, line in enumerate(side) if line.strip() == "layers"][0]
    assert "".join(side[at + 1:at + 3]).count("\u2588") == 50, side


@test
def the_sampling_settings_scroll_and_say_what_is_wrong_in_a_low_terminal():
    screens = play("keys s", "shot", "keys G Enter C-u", "type nonsense", "keys Enter", "shot", words=("tiny", "--view", "generate"),
                   size="60x10")
    shows(screens[0], "temperature")
    shows(screens[1], "draft_exit")
    shows(screens[1], "draft_exit = nonsense: must be")


@test
def generate_refuses_settings_outside_their_range():
    says("generate", ("command temperature nonsense", "temperature = nonsense: must be a number from 0 to 100"),
         ("command top-p 7", "top_p = 7: must be a number from"), ("command max-tokens 0", "max_tokens = 0: must be a whole number from 1"),
         ("command seed 3", "S save"), ("command max-tokens 4", "S save"), ("keys i", "+prompt"), ("type Once", "+Once"),
         ("keys Enter", "S save"), ("keys l", "S save"),
         ("keys t", "this model has no chat template that is supported: completion only"), ("command search zqz", "not found: zqz"),
         ("keys y", "copied"),
         ("keys g g G w", "S save"), ("command save-trace out.mp", "saved; :open out.mp shows it in the Depth map"))
    assert os.path.getsize("out.mp") > 100


@test
def experts_by_load_by_token_and_by_step():
    says("experts", ("keys G", "p play"), ("command step x", "step x: expected a training step"),
        ("command step 99999", "the last before it is at step"),
         ("command step 3", "no record at step 3: the first is at step 300"), ("keys ] h ] h [ h", "p play"),
         ("keys p", "p play"), ("keys p", "p play"), ("keys w w w", "the whole map"), ("keys H L", "p play"), ("wheel down 5 9", "p play"),
         ("click 5 20", "p play"), ("keys }", "no text is shown; Enter shows"), ("keys [ t", "no text is shown; Enter shows"),
         ("keys Enter", "p play"), ("keys =", "+definition"), ("keys Esc", "p play"), ("keys y", "copied"),
         ("keys }", "this is the last probe text"),
         ("keys {", "this is the first probe text"), ("keys Esc", "p play"), ("keys e", "drawing figure expert_"), run=MIXTURE)
    says("experts", ("keys Enter", "p play"), ("keys e", "drawing figure expert_map"),
         ("keys ,", "the map is at step 300; the text is of the probe at step 600"), run=MIXTURE)


@test
def the_ends_of_the_experts_of_a_layer_are_named():
    for name, counts, colder in (("even", [4, 3, 2, 1], "the coldest expert of this layer"),
                                 ("dead", [4, 3, 2, 0], "the colder experts have no assignments"),
                                 ("none", [0, 0, 0, 0], "no expert of this layer has assignments")):
        log = Log("runs/%s/log.mp" % name)
        log.put("head", 0, run=name, method="dense", layers=1, steps=10, experts=4, experts_per_token=1)
        log.put("metric", 1, loss=3.0)
        log.put("matrix", 1, name="expert_load", rows=1, cols=4, value=counts)
        hotter = "the hottest expert of this layer" if sum(counts) else colder
        says("experts", ("keys [ h", hotter), ("keys ] h ] h ] h ] h", colder), run=name)


@test
def timeline_goes_to_a_step_lists_and_marks():
    says("timeline", ("keys c", "p play"), ("keys j k q", "p play"), ("keys Esc", "p play"),
        ("command step x", "step x: expected a training step"),
         ("command step 3", "no probe at step 3: the nearest is at step"), ("keys Space", "p play"),
         ("keys " + "] t Space " * 17, "at most 16 tokens are marked: unmark one"), ("keys s", "p play"), ("keys s s m m m v v", "p play"),
         ("keys < > >", "p play"), ("keys y", "copied"),
         ("keys =", "+definition"), ("keys Esc", "p play"), ("keys G l", "the newest probe"), ("keys g g p", "p play"),
         ("keys p", "p play"),
         ("keys } {", "p play"), ("wheel down 5 9", "p play"), ("click 6 30", "p play"), ("keys Enter", "+Depth map"))


@test
def signals_marks_tokens_and_finds_one():
    s = says("signals", ("keys Space", "Space mark"), ("keys " + "l Space " * 17, "at most"), ("keys X", "Space mark"),
        ("wheel down 5 9", "Space mark"),
             ("wheel up 5 9", "Space mark"), ("command search zqz", "not found: zqz"), ("keys /", "/"), ("type a", "/ a"),
             ("keys Enter", "Space mark"),
             ("keys =", "+definition"), ("keys Esc", "Space mark"), ("keys y", "copied"), ("keys s", "Space mark"),
             ("keys p", "Space mark"),
             ("keys p", "Space mark"), ("keys p c C", "Space mark"), ("keys , . F } {", "Space mark"))
    assert s[0] != s[1]


def exported(name, *script, words, view, has):
    """The recipe in the picture that `e` writes, with these parts; the export may end after the workbench."""
    path, recipe, end = "exports/%s.png" % name, b"", time.time() + 60 * SLOW
    play(*script, "keys e", words=(*words, "--view", view))
    while not all(part in recipe for part in has):
        assert time.time() < end, (has, recipe[:2000])
        time.sleep(0.1)
        if os.path.exists(path):
            with open(path, "rb") as f:
                recipe = f.read()
    return recipe


@test
def an_export_is_of_what_the_view_shows():
    exported("training", "command search grad", "keys x x s", words=("tiny", "two"), view="monitor",
             has=(b"--metric grad_norm", b"-x seconds", b"--smooth 0.9", b"tiny", b"two"))
    exported("training", "command search grad", "keys X i", words=("third",), view="monitor", has=(b"--log x ", b"--range ", b"third"))
    exported("training", "command search grad", "keys L", words=("third",), view="monitor", has=(b"--log y", b"third"))
    recipe = exported("routing_map", "keys }", words=("tiny", "two"), view="depth", has=(b"--probe 1",))
    assert b"--step" not in recipe and b"two" not in recipe, recipe[:2000]
    log = Log("runs/scrub/log.mp")
    log.put("head", 0, run="scrub", method="mod", layers=1, steps=20, flops_dense=1.0)
    for step in (10, 20):
        log.put("probe", step, index=0, name="t", layers=1, ids=[1], text=["a"], run=[[step // 20]])
    exported("routing_map", "keys ,", words=("scrub",), view="depth", has=(b"--probe 0 --step 10",))
    recipe = exported("expert_load", "keys ,", words=(MIXTURE, "two"), view="experts", has=(b"--step 300",))
    assert b"two" not in recipe, recipe[:2000]  # without experts
    exported("expert_map", "command depth", "keys ,", "command experts", "keys Enter", words=(MIXTURE, "two"), view="experts",
             has=(b"--probe 0 --step 300",))
    exported("pareto", "command metric bits_per_byte", words=("tiny", "third"), view="pareto",
             has=(b"--metric flops_ratio,bits_per_byte", b"third"))
    says("pareto", ("keys x e", "figure pareto: no axis of FLOPs per token; x chooses FLOPs or time of dense"))


@test
def flops_has_a_bar_for_every_token_class():
    names = ("word", "continuation", "punctuation", "digit", "space", "stop word", "rare", "high loss", "other", "edge", "query",
             "answer", "filler")
    log = Log("runs/classes/log.mp")
    log.put("head", 0, run="classes", method="mod", layers=2, steps=1000, flops_dense=1.0)
    log.put("sample", 10, name="val", n=13, column={"flops": [0.5] * 13, "class": [float(i) for i in range(13)]})
    screen = play("keys Tab", words=("classes", "--view", "flops"), size="120x50")[-1]
    for name in names:
        shows(screen, name, "0.5")
    for size in ("80x24", "60x20"):  # all are reached where they do not fit
        first, last, back = play("shot", "keys G", "shot", "keys g g", "shot", words=("classes", "--view", "flops"), size=size)[:3]
        shows(first, "word 1")
        lacks(first, "filler 1")
        shows(last, "filler 1", "0.5")
        lacks(last, "continua")
        assert back == first


@test
def every_signal_is_reached_where_not_all_curves_fit():
    log = Log("runs/signals/log.mp")
    log.put("head", 0, run="signals", method="mod", layers=2, steps=10)
    names = ("alpha", "beta", "gamma")
    log.put("probe", 10, index=0, layers=2, ids=[1, 2], text=["a", "b"], run=[1, 0, 1, 1],
            cell={name: [0.25, 0.5, 0.75, 0.125] for name in names})
    script = ["shot"] + ["keys c", "shot"] * len(names)
    seen = ["".join(x) for x in play(*script, words=("signals", "--view", "signals"), size="40x10")[:len(names) + 1]]
    assert all(any(name in x for x in seen) for name in names) and seen[0] == seen[-1], seen


@test
def the_signal_that_is_shown_is_explained_in_a_run_with_fewer():
    for run_, names in (("five", "abcde"), ("three", "xyz")):
        log = Log("runs/%s/log.mp" % run_)
        log.put("head", 0, run=run_, method="mod", layers=2, steps=10)
        log.put("probe", 10, index=0, layers=2, ids=[1, 2], text=["a", "b"], run=[1, 0, 1, 1],
                cell={"signal_" + name: [0.25, 0.5, 0.75, 0.125] for name in names})
    words = ("runs/five/log.mp", "runs/three/log.mp", "--view", "signals")
    shown, explained = play("keys c c c c ] r p", "shot", "keys =", "shot", words=words)[:2]
    shows(shown, "distribution by layer", "signal_y")
    shows(explained, "\u256d\u2500 signal_y")


@test
def what_records_a_probe_is_said_to_its_end():
    with open("plain.jsonl", "w") as f:
        f.write('{"step": 1, "loss": 2.0}\n{"step": 2, "loss": 1.5}\n')
    for view, end in (("signals", 'probe=["..."]) records them.'), ("flops", "flops=...) records them.")):
        screen = play(words=("plain.jsonl", "--view", view), size="44x14")[-1]
        assert end in " ".join(x.strip() for x in screen), screen


@test
def flops_names_what_records_them_where_probes_have_none():
    log = Log("runs/watched/log.mp")
    log.put("head", 0, run="watched", layers=1, steps=10)
    log.put("probe", 10, index=0, layers=1, ids=[1, 2], text=["a", "b"], run=[1, 1])
    screen = play(words=("runs/watched/log.mp", "--view", "flops"), size="80x24")[-1]
    shows(screen, "The probes of this run have none.")
    shows(screen, "run.probe(..., flops=...) records them.")
    lacks(screen, "ds.watch")


@test
def flops_exports_the_tokens_that_its_figure_is_of():
    log = Log("runs/probed/log.mp")
    log.put("head", 0, run="probed", method="mod", layers=1, steps=10, flops_dense=1.0)
    log.put("probe", 10, index=0, layers=1, ids=[1, 2], text=["a", "b"], run=[1, 1], flops=[0.5] * 2, flops_dense=1.0)
    says("flops", ("keys e", "no tokens of a probe; an evaluation records the tokens that it draws"), run="probed")
    log.put("sample", 10, name="val", n=2, column={"flops": [0.5] * 2})
    says("flops", ("keys s e", "no tokens of a probe; s chooses those of the evaluation"), ("keys s e", "drawing figure flops_hist"),
         run="probed")


@test
def flops_are_a_share_of_the_dense_model_over_the_same_positions():
    log = Log("runs/shares/log.mp")
    log.put("head", 0, run="shares", method="mod", layers=2, steps=10, flops_dense=100.0)
    log.put("sample", 10, name="val", n=4, column={"flops": [40.0, 60.0, 40.0, 60.0]})
    shows(play(words=("shares", "--view", "flops"))[-1], "mean 0.5000 of dense")
    log.put("eval", 5, task="val", routing="causal", loss=2.5, flops_ratio=0.3, flops_dense_per_token=150.0)
    log.put("eval", 10, task="final", routing="causal", loss=2.0, flops_ratio=0.4, flops_dense_per_token=125.0)
    log.put("eval", 10, task="hops", routing="causal", loss=2.0, flops_ratio=0.9, flops_dense_per_token=50.0)
    shows(play(words=("shares", "--view", "flops"))[-1], "mean 0.4000 of dense")  # as Pareto and the figure have it
    shows(play(words=("shares", "--view", "pareto"))[-1], "0.4000")


@test
def the_ledger_of_flops_scrolls_by_keys_that_help_lists():
    log = Log("runs/ledger/log.mp")
    log.put("head", 0, run="ledger", method="mod", layers=80, steps=1000, flops_dense=1.0)
    log.put("layer", 10, gate_ratio=[0.5] * 80)
    log.put("sample", 10, name="val", n=2, column={"flops": [0.5, 0.5]})
    first, last, up, top = play("shot", "command last", "shot", "keys C-u k", "shot", "keys g g", words=("ledger", "--view", "flops"))
    shows(first, "layer 0 ")
    shows(last, "layer 79")
    lacks(up, "layer 79")
    shows(top, "layer 0 ")
    assert play("keys j j G", words=("ledger", "--view", "flops"))[-1] == last
    assert "`:page-down` | eight rows down" in run("help", "views")


@test
def the_ledger_of_flops_is_of_the_tokens_above_it():
    log = Log("runs/whose/log.mp")
    log.put("head", 0, run="whose", method="halt", layers=2, steps=1000, flops_dense=1.0)
    log.put("layer", 10, gate_ratio=[1.0, 1.0])
    log.put("sample", 10, name="final", n=2, column={"flops": [0.5, 0.75]})
    whose = ("whose", "--view", "flops")
    screen = play(words=whose)[-1]  # a halting model trains every layer
    shows(screen, "tokens executed in training, by layer")
    shows(screen, "layer 1 ", " 1")
    log.put("eval", 10, task="final", routing="causal", loss=2.0, capacity=[1.0, 0.25])
    log.put("probe", 10, index=0, layers=2, ids=[1, 2, 3, 4], text=["a", "b", "c", "d"], run=[1, 1, 1, 1, 1, 1, 1, 0],
            flops=[0.5] * 4, flops_dense=1.0)
    evaluated, probed = play("shot", "keys s", "shot", words=whose)[:2]
    for screen, share in ((evaluated, "0.2500"), (probed, "0.7500")):
        shows(screen, "share of tokens executed, by layer")
        shows(screen, "layer 1 ", share)


@test
def flops_of_answers_alone_are_not_taken_for_those_of_all_tokens():
    log = Log("runs/asked/log.mp")
    log.put("head", 0, run="asked", method="halt", layers=2, steps=10, flops_dense=100.0, config={"data.loss": "answers"})
    log.put("sample", 10, name="val", n=4, column={"flops": [80.0, 90.0, 70.0, 60.0], "depth": [2.0, 2.0, 2.0, 1.0]})
    log.put("eval", 10, task="final", routing="causal", loss=2.0, flops_ratio=0.4, flops_dense_per_token=100.0, capacity=[1.0, 0.25])
    screen = play(size="120x24", words=("asked", "--view", "flops"))[-1]
    shows(screen, "mean 0.7500 of dense", "n = 4 that predict answers")
    shows(screen, "share of all tokens executed, by layer")
    figure = json.loads(run("figure", "flops_hist", "runs/asked", "--dry-run", "--json"))["figures"][0]
    assert "n = 4 tokens that predict answers, 1 seed" in figure["caption"], figure


@test
def flops_has_two_parts_on_a_narrow_screen():
    s = says("flops", ("keys z", "s source"), ("keys p", "s source"), ("keys s", "s source"), ("keys =", "+definition"),
        ("keys Esc", "s source"),
             ("keys y", "copied"), ("keys n", "no search yet: / starts one"),
             ("command search x", "FLOPs: search is not supported in this view"), size="60x20")
    assert s[0] != s[1]
    shows(play(words=("tiny", "--view", "flops"), size="20x5")[-1], "tokens")


@test
def figures_are_chosen_by_name_by_click_and_drawn():
    below = play("keys g g", "shot", "click 13 5", "shot", "click 12 5", "shot", words=("tiny", "--view", "figures"), size="80x15")
    assert below[0] == below[1] != below[2], below  # the line of settings is no row of the list
    s = says("figures", ("keys j", "f format"), ("command search loss_time", "f format"), ("keys n", "f format"), ("keys N", "f format"),
        ("keys y", "copied"),
             ("command search zqz", "not found: zqz"), ("command venue nonsense", 'unknown venue "nonsense"'),
             ("command theme nonsense", 'unknown theme "nonsense"'),
             ("command format nonsense", 'unknown format "nonsense"'), ("command format svg", "f format"), ("keys v t f", "f format"),
             ("keys r", "f format"),
             ("click 6 4", "f format"), ("keys G", "f format"), ("keys g g", "f format"), ("keys Enter", "f format"),
             ("keys Enter", "f format"),
             ("wheel down 5 5", "f format"), ("keys e", "drawing figure"))
    assert s[0] != s[13]


@test
def pareto_of_a_single_run_says_so():
    says("pareto", ("keys y", "copied"), ("keys =", "+tiny"), ("keys Esc", "x cost"), ("command search zqz", "not found: zqz"),
        ("keys x X L m M", "x cost"),
         ("keys Space", "the only experiment; 0 shows all open runs"), ("keys 0", "x cost"), ("keys Enter", "one chart"))


@test
def the_names_of_points_are_next_to_them_in_any_script():
    for name, flops, loss in (("a", 0.5, 2.0), ("数据实验数据实验", 1.0, 3.0)):
        log = Log("runs/%s/log.mp" % name)
        log.put("head", 0, run=name, method="m-" + name, layers=1, steps=10)
        log.put("eval", 10, task="final", routing="causal", loss=loss, flops_ratio=flops)
    screen = play("keys G", words=("runs/a/log.mp", "runs/数据实验数据实验/log.mp", "--view", "pareto"), size="120x24")[-1]
    shows(screen, "数据实验数据实验 ○")  # dominated, at the right edge
    shows(screen, "数据实验数据实验  val_loss 3", "dominated by m-a")


@test
def an_experiment_of_one_layer_has_one_layer():
    for name, layers, loss in (("flat", 1, 2.0), ("flat-2", 2, 3.0)):
        log = Log("runs/%s/log.mp" % name)
        log.put("head", 0, run=name, method="mod", layers=layers, steps=10, config={"model.layers": str(layers)})
        log.put("eval", 10, task="final", routing="causal", loss=loss, flops_ratio=loss / 4)
    screen = play(words=("flat", "flat-2", "--view", "pareto"), size="120x24")[-1]
    shows(screen, "mod, 1 layer  ")
    shows(screen, "mod, 2 layers  ")


@test
def tokens_seen_are_those_of_training():
    log = Log("runs/seen/log.mp")
    log.put("head", 0, run="seen", method="mod", layers=1, steps=10)
    log.put("metric", 10, loss=2.0, tokens=1280.0)
    log.put("eval", 10, task="final", routing="causal", loss=2.0, flops_ratio=0.5, tokens=65536.0)
    shows(play("command axis tokens", words=("seen", "--view", "pareto"), size="120x24")[-1], "val_loss 2", "tokens seen 1280")
    says("pareto", ("command metric tokens", "metric tokens: not found in the evaluations"), run="seen")  # text is not a result


@test
def a_time_has_its_unit_in_pareto():
    log = Log("runs/timed/log.mp")
    log.put("head", 0, run="timed", method="mod", layers=1, steps=10)
    log.put("eval", 10, task="final", routing="causal", loss=2.0, time_per_token_ms=0.25)
    shows(play("command axis time", words=("timed", "--view", "pareto"), size="120x24")[-1], "val_loss 2", "time per token 0.2500 ms")


@test
def pareto_says_which_parameters_it_counts():
    def log(name, **head):
        log = Log("runs/%s/log.mp" % name)
        log.put("head", 0, run=name, method=name, layers=1, steps=10, **head)
        log.put("eval", 10, task="final", routing="causal", loss=2.0, flops_ratio=0.5)

    log("inner", params=3000, params_non_embedding=2000)
    log("outer", params=4000)
    for names, want in (("inner", "against non-embedding parameters (log)"), ("outer", "against parameters (log)"),
                        ("inner outer", "against parameters, of some with embeddings (log)")):
        words = ["runs/%s/log.mp" % x for x in names.split()]
        shows(play("command axis parameters", words=(*words, "--view", "pareto"), size="120x24")[-1], want)


@test
def compare_says_where_two_runs_agree():
    says("monitor", ("command compare tiny", "compare: expected two runs, checkpoints, models or traces"),
        ("command compare tiny tiny", "x swap"),
         ("keys ] d", "A and B execute the same cells in this text"), ("keys y", "copied"), ("keys =", "+definition"),
         ("keys Esc s", "x swap"),
         ("keys j k G g g", "x swap"), ("keys s", "x swap"), ("keys } {", "x swap"), ("keys x w m o", "x swap"),
         ("wheel down 9 9", "x swap"), ("click 9 30", "x swap"),
         ("command compare tiny nowhere", "nowhere: not found"))


@test
def compare_shows_the_runs_that_are_marked_now():
    def mark(name):
        return "keys 1", "command search " + name, "keys Space"

    live, other, none = play("keys 7", "command text Once upon a time", "shot", *mark("two"), *mark("third"), "keys 7", "shot",
                             "keys 9 0 7", "shot", words=("tiny", "two", "--view", "pareto"), size="120x40")[:3]
    shows(live, "A tiny  B two  ready")
    shows(other, "A tiny  B third  recorded")
    shows(none, "Nothing to compare yet")
    shows(none, "Mark two runs in Home")


@test
def escape_leads_one_layer_out():
    for view, key, runs in (("compare", "s", ("tiny", "two")), ("figures", "Enter", ("tiny",)), ("experts", "Enter", (MIXTURE,)),
                            ("timeline", "c", ("tiny",))):
        before, inside, after = play("shot", "keys " + key, "shot", "keys Esc", "shot", words=(*runs, "--view", view), size="100x30")[:3]
        assert before == after != inside, (view, before, after)


@test
def compare_keeps_its_text_when_a_and_b_are_exchanged():
    names = ("ours", "theirs", "third-of-all")
    for name in names:
        log = Log("runs/%s/log.mp" % name)
        log.put("head", 0, run=name, method="mod", layers=2, steps=1000)
        for i in range(3):
            log.put("probe", 300, index=i, name="text-%d" % i, layers=2, ids=[1, i + 2], text=["a", "b"], run=[1, 0, 1, 1])
    two = ("ours", "theirs", "--view", "compare")
    asked, exchanged = play("keys }", "shot", "keys x", "shot", words=two)[:2]
    shows(asked, "A ours", "text 2/3")
    shows(exchanged, "A theirs", "text 2/3")
    assert "next difference" in asked[-1], asked[-1]
    table = play(words=(*names, "--view", "compare"))[-1]
    assert "3 marked runs" in table[2] and "next difference" not in table[-1], "\n".join(table)


@test
def compare_names_the_checkpoint_of_another_run():
    step = "step-00000005"
    for a, b in (("tiny", "two"), ("two", "tiny")):
        screen = run("show", "compare", a, "runs/%s/checkpoints/%s" % (b, step), "--text", "Tom had", "--size", "80x24").splitlines()
        assert screen[2].startswith(" A %s  B %s %s  ready" % (a, b, step)), screen[2]
        shows(screen, "B %s %s  mean depth" % (b, step))
    screen = run("show", "compare", "tiny", "runs/tiny/checkpoints/" + step, "--text", "Tom had", "--size", "80x24").splitlines()
    assert screen[2].startswith(" A tiny  B %s  ready" % step), screen[2]


@test
def a_resumed_run_is_compared_by_a_probe_that_was_not_superseded():
    for name in ("back", "other"):
        log = Log("runs/%s/log.mp" % name)
        log.put("head", 0, run=name, method="mod", layers=2, steps=1000, resume=False)
        for step in (300, 900):
            log.put("probe", step, index=0, layers=2, ids=[1, 2], text=["a", "b"], run=[1, 0, 1, 1])
        if name == "back":
            log.put("head", 500, run=name, method="mod", layers=2, steps=1000, resume=True)
    screen = play("command compare back other", words=("back", "--view", "monitor"), size="120x24")[-1]
    shows(screen, "step 300")
    shows(screen, "step 900")


@test
def the_workbench_names_what_it_does_not_know():
    says("monitor", ("command theme", "theme: "), ("command theme nonsense", "theme nonsense: not found"),
         ("command glyphs nonsense", "glyphs nonsense: expected braille, shades or ascii"), ("command glyphs ascii", "one chart"),
         ("command glyphs shades", "one chart"),
         ("keys ] r", "one chart"), ("keys [ r", "one chart"), ("keys C-r", "nothing to redo in this view"), ("keys C-z C-l", "one chart"),
         ("command explain nonsense", "nonsense: not a metric, a recorded value or a setting"), ("command explain loss", "+definition"),
         ("keys Esc", "one chart"),
         ("command let columns 2", "one chart"), ("keys u", "one chart"),
         ("command let columns 9", "let: columns = 9: must be a whole number from 0 to 3"),
         ("command let columns 1.5", "let: columns = 1.5: must be a whole number from 0 to 3"),
         ("command let colums 2", 'let: unknown setting "colums" of this view, did you mean columns?'),
         ("keys |", "one chart"), ("keys |", "one chart"), ("keys Tab S-Tab + _", "one chart"), ("keys |", "one chart"),
         ("command set", ":set"), ("keys Esc", "one chart"),
         ("keys :", ":"), ("keys Up", ":"), ("keys Down C-u", ":"), ("type let ", ":let"), ("keys Tab", ":let"), ("keys Esc", "one chart"),
         ("command open", ":open"), ("keys Esc", "one chart"), ("command open nowhere", "nowhere"))


@test
def what_is_wrong_in_a_theme_is_shown_and_the_theme_applied():
    at = "config/depthscope/themes/a-name-of-a-file-that-is-longer-than-what-the-name-of-a-theme-keeps.theme"
    os.makedirs(os.path.dirname(at))
    around = [(os.path.join(os.path.dirname(at), name + ".theme"), "") for name in ("0", "a-next")]
    for path, lines in (("one.theme", "colour = red"), (at, "colour = red\ntitle = reddish\nmap.diverging = none"), *around):
        with open(path, "w") as f:
            f.write("inherit = light\ntext = red\n%s\n" % lines)
    long = os.path.basename(at)[:-6]
    one, more = 'one.theme:3: unknown key "colour"', '%s.theme:3: unknown key "colour"' % long
    s = says("monitor", ("command theme ./one.theme", one), ("keys j", "one chart"), ("command theme " + long, more),
             ("command theme " + long, "(and 2 more)"), ("command theme light", "theme: light"), size="300x24")
    assert not any("more" in s[i][-1] for i in (0, 4)), s
    folder = os.path.join(*["deep"] * 16)
    os.makedirs(folder)
    shutil.copy("one.theme", folder)
    says("monitor", ("command theme %s/one.theme" % folder, " ../deep/deep/deep"), ("command theme %s/one.theme" % folder, one),
         ("command theme %s/none" % folder, "none: not found"), size="80x24")  # what is said of it stays
    says("monitor", ("command theme " + long, more), ("command theme", "a-next"), size="300x24")  # the next of the list
    for name, want, more in (("./one.theme", one, ""), (long, more, "(and 2 more)"), ("light", "one chart", "")):
        line = play(words=("tiny", "--view", "monitor", "--theme", name), size="300x24")[0][-1]
        assert want in line and more in line, (name, line)
    run("show", "monitor", "tiny", "--theme", "one.theme", "--size", "120x24", "-o", "one.txt")
    assert one in run.err and run.err.count("\n") == 1, run.err
    with open("one.txt") as f:
        assert "unknown key" not in f.read(), "the warning is in the picture"


@test
def every_view_fits_the_smallest_and_a_wide_screen_in_ascii_without_colour():
    for view in VIEWS:
        for size in ("20x5", "200x50", "1x1", "44x9"):
            screens = play("keys j l", "shot", "keys ?", "shot", "keys Esc", "keys =",
                words=("tiny", "--view", view, "--glyphs", "ascii", "--color", "never"), size=size)
            cols, rows = map(int, size.split("x"))
            for screen in screens:
                assert len(screen) == rows and max(map(len, screen)) <= cols, (view, size)
                bad = set("".join(screen)) - set(map(chr, range(32, 127)))
                assert not bad, (view, size, bad)


VIEWS = ("monitor", "depth", "stepper", "signals", "flops", "compare", "timeline", "pareto", "generate", "figures", "experts", "machine",
    "log", "manual")


@test
def every_view_follows_the_run_that_is_chosen():
    for view in VIEWS:
        s = play("keys ] r", "shot", "keys [ r", "shot", "keys h l", words=("tiny", "two", "--view", view), size="100x24")
        for screen, name in zip(s, ("two", "tiny", "tiny")):
            assert (" %s " % name) in screen[0], (view, name, screen[0])


@test
def two_seeds_are_one_experiment_and_a_band():
    says("pareto", ("keys y", "copied"), ("keys =", "+mean of 2 seeds, 95 % CI"), ("keys Esc", "x cost"), ("keys 0 m m m", "x cost"),
        ("wheel down 9 9", "x cost"), ("click 20 20", "x cost"), run="tiny two")
    pair = ("tiny", "two", "--view", "monitor")
    bands, lines = play("shot", "keys b", words=pair, size="100x30")[:2]
    assert bands != lines
    for keys in ("x", "x x", "x x x", "x x x x", "L", "X", "Enter h h i i < > 0", "s s s s s"):
        assert play("keys " + keys, words=pair, size="60x16")[-1] != bands, keys


@test
def overlaid_runs_have_letters_where_there_are_no_colours():
    screen = play("command bands", words=("tiny", "two", "--view", "monitor", "--color", "never"), size="80x24")[-1]
    shows(screen, "A tiny  B two")
    plot = "".join(line for line in screen[4:-2])
    assert "A" in plot and "B" in plot, "\n".join(screen)
    shows(play(words=("tiny", "two", "--view", "monitor"), size="80x24")[-1], "\u25A0 tiny  \u25A0 two")


@test
def all_marked_runs_are_drawn_and_those_without_a_name_counted():
    names = ["seed%d" % i for i in range(16)]
    for i, name in enumerate(names):
        log = Log("runs/%s/log.mp" % name)
        log.put("head", 0, run=name, method="mod", layers=2, steps=100, config={"model.method": "mod", "seed": str(i)})
        for step in range(0, 100, 10):
            log.put("metric", step, loss=5.0 + i - step / 100)
    wide, band, narrow = (play("shot", "keys b", words=(*names, "--view", "monitor"), size=size)[i] for size, i in
        (("200x24", 1), ("100x24", 0), ("50x12", 1)))
    shows(wide, "seed0", "seed15")
    shows(wide, "20")  # the axis covers all of them
    shows(band, "seed0", "+", "mean of n = 16 seeds")
    shows(narrow, "seed0", "+")
    shows(play(words=(*names, "--view", "monitor"), size="200x24")[-1], "mean of n = 16 seeds")


@test
def every_layer_counts_where_several_share_a_column():
    for layer in (40, 41):
        name = "deep%d" % layer
        log = Log("runs/%s/log.mp" % name)
        log.put("head", 0, run=name, method="mod", layers=80, steps=100)
        log.put("layer", 10, gate_ratio=[1.0 if l == layer else 0.25 for l in range(80)])
        screen = play(words=(name, "--view", "monitor"), size="50x12")[-1]
        shows(screen, "mean 0.2594, dim: to the max")
        top = next(line for line in screen if "1.0" in line)
        assert top.count("\u2588") == 1, "\n".join(screen)


@test
def no_view_is_harmed_by_records_that_are_empty_damaged_or_hostile():
    for name in ("hostile", "empty") if t.SANITIZED else ("hostile", "empty", "live", "seed1", "training", "mixture"):
        path = os.path.join(HERE, name + ".mp")
        for view in VIEWS:
            for size in ("100x24", "40x10"):
                s = play("keys j l", "shot", "keys =", "keys Esc", "keys y", "keys G g g", "keys s v c w", "shot", "keys Enter",
                    "wheel down 6 9", "click 6 9",
                         "keys Esc", words=(path, "--view", view), size=size)
                cols, rows = map(int, size.split("x"))
                for screen in s:
                    assert len(screen) == rows and not [c for c in "".join(screen) if ord(c) < 32 or 127 <= ord(c) < 160], (name, view,
                        size)


@test
def commands_without_a_run_and_in_read_only_mode_are_not_sent():
    def line(*script, words):
        return play(*script, words=words, size="120x24")[-1][-1].strip()
    for command in ("pause", "set train.lr 1", "probe", "checkpoint"):
        assert line("command " + command, words=("--view", "monitor")) == 'no run is open; "%s" was not sent' % command
        assert line("command " + command, words=("tiny", "--readonly", "--view",
            "monitor")) == "read-only mode: %s is disabled" % command.split()[0]
    assert line("command stop", words=("--view", "monitor")) == "no running run is open: nothing to stop"
    assert line("keys e", words=("tiny", "--view", "log")) == "this view has no figure to export"


@test
def views_are_picked_by_click_and_commands_recalled():
    views = play("keys V", words=("tiny", "--view", "monitor"), size="100x40")[-1]
    shows(play("keys V", "click " + place(views, "Signals"), words=("tiny", "--view", "monitor"), size="100x40")[-1], "Signals")
    for away in ("click 0 0", "click 39 99", "keys Esc"):
        assert not has(play("keys V", away, words=("tiny", "--view", "monitor"), size="100x40")[-1], "views \u2500")
    says("monitor", ("keys :", ":"), ("type zoom-in", ":zoom-in"), ("keys Enter", "one chart"), ("keys :", ":"),
        ("type zoom-out", ":zoom-out"), ("keys Enter", "one chart"),
         ("keys : Up", ":zoom-out"), ("keys Up", ":zoom-in"), ("keys Up", ":zoom-in"), ("keys Down", ":zoom-out"), ("keys Down", ":"),
         ("keys Esc", "one chart"))
    many = ["keys :", "type let columns 1", "keys Enter"], ["keys :", "type let columns 2", "keys Enter"]
    lines = [x for i in range(70) for x in many[i % 2]]
    assert play(*lines, "keys : Up", words=("tiny", "--view", "monitor"))[-1][-1].startswith(":let columns 2")


@test
def settings_of_runs_that_differ_are_a_table_that_scrolls():
    s = play("keys y", "shot", "keys j j k PgDn PgUp G g g", "shot", "keys =", "shot", words=("tiny", "two", "third", "--view", "compare"),
        size="80x12")
    shows(s[0], "copied")
    shows(s[1], "val loss")
    s = play("keys s", "shot", "keys PgDn j k G", "keys g g", "shot", words=("tiny", "two", "--view", "compare"), size="80x12")
    shows(s[0], "seed")


@test
def typing_without_i_begins_a_prompt():
    for view in ("generate", "stepper"):
        shows(play("keys l", "type hello there", words=("tiny", "--view", view), size="100x24")[-1], "hello there")
    screens = play(*["keys l"] * 40, "command max-tokens 4", "command change cat", *["keys l"] * 40, "shot",
        words=("tiny", "--view", "generate"), size="100x24")
    assert "S save" in screens[-1][-1] or "choose" in screens[-1][-1], screens[-1][-1]


@test
def the_list_of_collapsed_layers_takes_the_mouse():
    path = os.path.join(HERE, "training.mp")
    s = play("keys c", "shot", "wheel down 8 9", "click 8 9", "shot", "keys j k G", "shot", "keys c", "shot",
        words=(path, "--view", "timeline"), size="100x24")
    assert s[0] != s[3]


def serve(listener, answers, asked):
    for answer in answers:
        peer = listener.accept()[0]
        asked.append(peer.recv(4096).decode().strip())
        peer.sendall(answer.encode() + b"\n")
        peer.close()


@test
def a_live_run_answers_asks_to_confirm_or_takes_no_commands():
    log = Log("runs/live/log.mp")
    fcntl.flock(log.file, fcntl.LOCK_EX)
    log.put("head", 0, format=1, run="live", config={"model.method": "edp"}, layers=3)
    log.put("metric", 1, loss=2.5)
    words = ("live", "--view", "monitor")
    assert play("command pause", words=words, size="120x24")[-1][-1].strip() == 'the run\'s process takes no commands; "pause" was not sent'
    with socket.socket(socket.AF_UNIX) as s:
        s.bind("runs/live/control.sock")
        s.listen(4)
        asked = []
        wary = "confirm train.lr = 1 is 300 times the present one; to set it: set train.lr 1 confirm"
        thread = threading.Thread(target=serve, args=(s, ["ok 1", wary, "ok 2", wary, "ok 3", "error: unknown setting x", "ok 4", "ok 5"],
            asked))
        thread.daemon = True
        thread.start()
        screens = play("keys P", "shot", "command set train.lr 1", "shot", "keys y", "shot", "command set train.lr 1", "keys n", "shot",
                       "keys C", "shot", "command set x 1", "shot", "keys B", "shot", "keys K", "shot", "keys y", "shot", "keys S",
                       words=words, size="120x24")
        thread.join(10 * t.SLOW)
    for screen, want in zip(screens, ("pause: ok 1", "train.lr = 1 is 300 times the present one: set it anyway? y / n",
            "set train.lr 1 confirm: ok 2", "", "checkpoint: ok 3",
                                      "set x 1: error: unknown setting x", "probe: ok 4", "Save a checkpoint and stop run live? y / n",
                                      "stop: ok 5", ":set")):
        assert want in screen[-1], (want, screen[-1])
    assert asked == ["pause", "set train.lr 1", "set train.lr 1 confirm", "set train.lr 1", "checkpoint", "set x 1", "probe", "stop"], asked


def setup():
    os.environ.update(XDG_STATE_HOME=os.path.abspath("state"), XDG_CONFIG_HOME=os.path.abspath("config"), LANG="C.UTF-8")
    run("train", "quick", *TINY, "--run", "tiny", "--quiet")
    run("train", "quick", *TINY, "seed=2", "--run", "two", "--quiet")
    run("train", "quick", *TINY, "seed=3", "model.method=dense", "--run", "third", "--quiet")


t.main(setup)
