"""The form of a new run and the actions of Home by key, command and mouse, played from scripts.  DEPTHSCOPE names the program."""
import fcntl
import json
import os
import shutil
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import t  # noqa: E402
from records import Log  # noqa: E402
from script import TINY, crafted, has, lacks, place, play, shows  # noqa: E402
from t import run, test  # noqa: E402

FORM = ["keys a"]
MARK = "\u258c"


def go(row):
    """To a row of the form, whose field is opened and emptied."""
    return ["keys /", "type " + row, "keys Enter Enter C-u"]


@test
def a_section_of_the_form_folds_by_key_and_by_click():
    s = play(*FORM, "keys k h", "shot", "keys l", "shot", "keys Space", "shot", "keys Right =", "shot", size="100x40")
    for screen, opened in zip(s, (False, True, False, True)):
        shows(screen, MARK, "\u25be Essentials" if opened else "\u25b8 Essentials")
        shows(screen, "Enter opens and closes the section")
        shows(screen, "train.batch") if opened else lacks(screen, "train.batch")
    shows(s[3], "nothing to explain under the cursor")
    for size in ("100x40", "80x24"):
        opened = play(*FORM, size=size)[-1]
        folded = play(*FORM, "click " + place(opened, "Essentials"), size=size)[-1]
        shows(folded, MARK, "\u25b8 Essentials")
        lacks(folded, "train.batch")


@test
def a_row_of_the_form_is_chosen_by_a_click_and_its_field_takes_choices_of_the_mouse():
    form = play(*FORM, size="100x40")[-1]
    s = play(*FORM, "click " + place(form, "train.batch"), "shot", "click " + place(form, "edp.history"), "keys Enter", "shot",
             "click 0 0", "wheel down 5 9", "shot", size="100x40")
    shows(s[0], MARK, "train.batch")
    shows(s[0], "sequences per step")
    shows(s[1], "edp.history", "kept")
    choices = play(*FORM, "click " + place(form, "model.method"), "keys Enter", "shot", size="100x40")[-1]
    picked = play(*FORM, "click " + place(form, "model.method"), "keys Enter", "click " + place(choices, "dlr "), size="100x40")[-1]
    shows(picked, "Method dlr")
    away = play(*FORM, "click " + place(form, "train.lr"), "keys Enter C-u", "type 0.7", "click " + place(form, "train.steps"),
        size="100x40")[-1]
    shows(away, "train.lr", "0.7")
    shows(away, MARK, "train.steps")
    stays = play(*FORM, "click " + place(form, "train.lr"), "keys Enter C-u", "type x", "click " + place(form, "train.steps"),
        size="100x40")[-1]
    shows(stays, MARK, "train.lr", "must be a number")


@test
def a_value_of_the_form_is_explained_and_reset():
    s = play(*FORM, "keys =", "shot", "keys Esc", *go("train.lr"), "type 0.5", "keys Enter =", "shot", "keys Esc x =", "shot",
             "keys Esc k k k k k =", "shot", size="100x40")
    shows(s[0], "what", "setting of the new run")
    shows(s[0], "definition", "name of the run and of its directory")
    shows(s[0], "value", "automatic")
    lacks(s[0], "none (a number)")
    shows(s[1], "setting of the new run, changed here")
    shows(s[1], "value", "0.5")
    shows(s[2], "value", "0.003")
    lacks(s[2], "changed here")
    shows(s[3], "named settings that the run starts from")
    s = play(*FORM, "keys Enter", "type mine", "keys Enter", "shot", "keys x", "shot")
    shows(s[0], "name", "mine")
    shows(s[1], "name", "automatic")


@test
def tab_saves_a_field_and_opens_the_next_and_the_arrows_only_move():
    s = play(*FORM, *go("train.steps"), "type 12", "keys Tab", "shot", "keys Down", "shot", "keys Enter S-Tab", "shot",
             "keys Enter Up", "shot", "keys Enter C-u", "type 3", "keys Esc", "shot")
    shows(s[0], "train.steps", "12")
    shows(s[0], MARK, "train.batch")
    shows(s[0], "Tab saves and edits the next")
    shows(s[1], MARK, "train.lr")
    lacks(s[1], "Tab saves")
    shows(s[2], MARK, "train.batch")
    shows(s[3], MARK, "train.steps")
    shows(s[4], "train.steps", "12")


@test
def choices_of_a_setting_narrow_while_it_is_typed():
    s = play(*FORM, "keys /", "type edp.penalty", "keys Enter Enter", "shot", "keys C-u", "type o", "shot", "keys Tab", "shot",
             "keys Enter", "shot")
    shows(s[1], "edp.penalty", "o")
    shows(s[2], "edp.penalty", "off")
    shows(s[3], "edp.penalty", "off")
    lacks(s[3], "1 changed")


@test
def a_preset_of_several_words_completes_its_last_and_one_that_is_unknown_is_named():
    s = play(*FORM, *go("preset"), "shot", "type nonsense", "shot", "keys C-u", "type quick dl", "keys Tab", "shot", "keys C-u", "type    ",
             "shot", "keys Esc", "command new nonsense", "shot")
    shows(s[0], "preset: expected a name")
    shows(s[1], "unknown preset nonsense")
    shows(s[2], "quick dlr")
    shows(s[3], "preset: expected a name")


# ---- Home itself ----

def lines_of(screen, *names):
    """The rows of these runs, in their order on the screen."""
    return [n for line in screen for n in names if line[1:].strip().startswith(n + " ")]


@test
def home_sorts_reverses_and_hides_its_details():
    names = ("asked", "gave-up", "tiny")
    s = play("command sort name", "shot", "keys S", "shot", "command sort", "command sort none", "shot", "command sort nonsense", "shot",
             "command group state", "shot", "command group nonsense", "shot", "command group none", "keys d", "shot", size="140x40")
    assert lines_of(s[0], *names) == list(names), "\n".join(s[0])
    assert lines_of(s[1], *names) == list(reversed(names)), s[1]
    shows(s[3], "sort nonsense: unknown column or configuration key")
    shows(s[4], "state = done")
    shows(s[4], "state = failed")
    shows(s[5], "group nonsense: unknown column or configuration key")
    s = play("command group state", "command sort nonsense", "shot", "command sort -name", "command group nonsense", size="140x40")
    shows(s[0], "state = done")
    shows(s[1], "run\u2193")
    s = play("keys S", "shot", "keys s", size="140x40")
    shows(s[0], "the order by state and time has no reverse; s sorts by a column")
    shows(s[1], "sorted by name")
    s = play("command sort train.steps", "command group train.steps", "shot", "command sort -train.lr", "keys u", "shot", "keys u", "shot",
             "keys C-r", "shot", "keys u u S", size="140x40")
    for screen, is_grouped in zip(s, (1, 1, 0, 1, 0)):
        assert has(screen, "train.steps = 10") == is_grouped, "\n".join(screen)
    shows(s[4], "has no reverse")  # the order was undone, too


@test
def home_names_what_cannot_be_done():
    at = {name: "keys / " + " ".join(name) + " Enter" for name in ("asked", "tiny", "live-one")}
    for keys, part in (([at["asked"], "keys R"], "asked: no checkpoint to resume from"), ([at["tiny"], "keys X"], "tiny is not live"),
                       (["command restore"], "missing NAME; depthscope runs --trash lists the trash"),
                       (["command restore nothing"], "nothing"), (["keys u"], "nothing to undo in this view"),
                       (["command acknowledge some"], "acknowledge some: expected all or nothing"),
                       (["command acknowledge all"], "no run has an alert"), (["keys g g j j j j j j j j A"], "no run is selected"),
                       (["keys g g j j j j j j j j D"], "no run is selected"),
                       ([at["live-one"], "keys D"], "live-one is live: stop it first (X)"),
                       ([at["live-one"], "keys R"], "live-one is live already"), (["command open nowhere"], "nowhere"),
                       (["command view nowhere"], 'unknown view "nowhere"'), (["command theme nowhere"], "nowhere"),
                       (["command let"], "let: expected NAME VALUE"), (["command let grup 1"], 'let: unknown setting "grup" of this view'),
                       (["command view manual", "command let x 1"], "let: this view has no settings"), (["command 9"], "unknown command")):
        log = Log("runs/live-one/log.mp")
        log.put("metric", 1, loss=2.0)
        fcntl.flock(log.file, fcntl.LOCK_EX)
        try:
            shows(play(*keys, size="140x40")[-1][-2:], part)
        finally:
            shutil.rmtree("runs/live-one")


@test
def the_filter_line_completes_backwards_moves_the_list_and_keeps_a_wrong_filter():
    s = play("keys f", "keys S-Tab", "shot", "keys S-Tab Tab", "shot", "keys C-u", "type state=", "shot", "type done", "shot",
        "keys Down Up",
             "shot", "wheel down 5 5", "keys Enter", "shot", "keys f C-u", "type nonsense=1", "keys Enter", "shot", "keys Esc", "shot",
             "command filter", "shot", size="140x40")
    assert lines_of(s[3], "asked", "gave-up", "tiny") == ["tiny"], s[3]
    assert lines_of(s[5], "asked", "gave-up", "tiny") == ["tiny"], s[5]
    shows(s[6], "nonsense")
    assert lines_of(s[7], "asked", "tiny") and lines_of(s[8], "asked", "tiny")


@test
def a_checkpoint_to_resume_from_is_left_by_click_and_by_key():
    at = "keys / t i n y Enter R"
    picker = play(at, size="100x24")[-1]
    shows(picker, "resume tiny from")
    for leave in ("click 22 2", "keys Esc", "keys q"):
        lacks(play(at, leave, size="100x24")[-1], "resume tiny from")
    shows(play(at, "wheel down 9 40", "keys k", size="100x24")[-1], "resume tiny from")
    before = set(os.listdir("runs"))
    started = play(at, "click " + place(picker, "step 5, as a new run"), size="100x24")[-1]
    lacks(started, "resume tiny from")
    end = time.monotonic() + 60 * t.SLOW
    while set(os.listdir("runs")) == before and time.monotonic() < end:
        time.sleep(0.1)
    new = [n for n in os.listdir("runs") if n not in before and not n.startswith(".")]
    assert new == ["tiny-from-5"], new
    while [r for r in json.loads(run("runs", "--json")) if r["name"] == new[0] and r["state"] == "running"] and time.monotonic() < end:
        time.sleep(0.1)


@test
def files_of_the_current_directory_are_told_apart():
    os.makedirs("a-model")
    open("a-model/config.json", "w").write("{}")
    for name, data in (("weights.gguf", b"GGUF\3\0\0\0" + bytes(64)),
            ("stories.bin", bytes([64, 0, 0, 0, 172, 0, 0, 0, 5, 0, 0, 0]) + bytes(99)),
                       ("other.bin", b"x"), ("text.mp", b"no records")):
        open(name, "wb").write(data)
    home = play("keys G", size="140x60")[-1]
    shows(home, "a-model", "model directory")
    shows(home, "weights.gguf", "GGUF model")
    shows(home, "stories.bin", "llama2.c model")
    lacks(home, "other.bin")
    lacks(home, "text.mp")
    shows(play("keys G Space Enter", "shot", size="140x60")[-1], "weights.gguf")


@test
def nothing_starts_in_read_only_mode():
    words = ("--readonly",)
    for keys in (["keys a"], ["command new quick"], ["keys G k k k k k k Enter"], ["keys / t i n y Enter D"]):
        screen = play(*keys, size="140x40", words=words)[-1]
        shows(screen[-2:], "read-only")


def setup():
    os.environ.update(XDG_STATE_HOME=os.path.abspath("state"), XDG_CONFIG_HOME=os.path.abspath("config"), LANG="C.UTF-8")
    run("train", "quick", *TINY, "--run", "tiny", "--quiet")
    crafted("gave-up", dict(kind="end", step=7, status="failed"))
    crafted("asked", dict(kind="end", step=7, status="stopped"))


t.main(setup)
