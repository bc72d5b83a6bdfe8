"""Home, its form and the command line of the workbench, played from scripts: no terminal is needed.
DEPTHSCOPE names the program."""
import json
import os
import re
import shutil
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import t  # noqa: E402
from script import TINY, crafted, has, lacks, log, play, shows  # noqa: E402
from t import SLOW, run, test  # noqa: E402


@test
def home_tells_done_failed_stopped_silent_and_empty_runs_apart():
    crafted("gave-up", dict(kind="end", step=7, status="failed"))
    crafted("asked", dict(kind="end", step=7, status="stopped"))
    crafted("killed")
    log("nothing")
    home = play(size="100x30")[-1]
    shows(home, "tiny", "done", "10/10")
    shows(home, "gave-up", "failed", "7/40")
    shows(home, "asked", "stopped", "7/40")
    shows(home, "killed", "silent", "7/40")
    shows(home, "nothing", "empty")
    lacks(home, "at rest")
    lacks(home, "live  ")
    small = play(size="60x12")[-1]
    shows(small, "gave-up", "failed")


@test
def the_heading_of_a_group_ends_with_a_whole_character():
    path = "/" + "\u30c7\u30fc\u30bf" * 15
    log("elsewhere", dict(kind="head", step=0, time=1000.0, run="elsewhere", method="mod", steps=40, config={"data.path": path}),
        dict(kind="end", step=7, time=1000.0, status="done"))
    home = play("command group data.path", size="100x30")[-1]
    shows(home, "data.path = " + path[:17] + " (1)")
    play("command group none")


@test
def the_details_of_a_looped_layer_have_iterations():
    log("looped", dict(kind="head", step=0, time=1000.0, run="looped", method="halt", layers=6, steps=5,
                       config={"model.layers": "1", "model.loop": "6"}),
        dict(kind="probe", step=5, time=1000.0, index=0, name="text", layers=6, ids=list(range(8)), text=[b"a"] * 8, run=b"\1" * 48),
        dict(kind="end", step=5, time=1000.0, status="done"))
    shows(play("command filter name=looped", size="200x50")[-1], "depth map: 6 iterations x 8 tokens, step 5")


@test
def a_preset_has_no_hints_of_runs():
    crafted("one", dict(kind="end", step=7, status="done"))
    on_run, on_preset = play("command search one", "shot", "command search hops", "shot", size="160x30")[:2]
    assert "D trash" in on_run[-1] and "R resume" in on_run[-1], on_run[-1]
    for word in ("D trash", "R resume", "t tag", "X stop", "m rename"):
        assert "Enter open" in on_preset[-1] and word not in on_preset[-1], on_preset[-1]


FORM = ["command new quick"]


@test
def a_value_that_its_row_refuses_stays_in_the_field_with_the_reason():
    before = sorted(os.listdir("runs"))
    s = play(*FORM, "keys /", "type train.steps", "keys Enter Enter C-u", "type abc", "keys Enter", "shot",
             "keys C-u", "type 0", "keys Enter", "shot", "keys C-u", "type 12", "keys Enter", "shot", "keys r")
    for screen, part in zip(s, ("train.steps: 'abc': must be an integer", "train.steps: 0: must be")):
        shows(screen, "new run from preset quick")
        shows(screen, part)
        shows(screen, "Enter saves")
    shows(s[2], "train.steps", "12")
    lacks(s[2], "must be an integer")
    shows(s[3], "Monitor") if not has(s[3], "new run") else shows(s[3], "starting")
    new = [n for n in sorted(os.listdir("runs")) if n not in before]
    assert new == ["quick-1"], new
    run("stop", "quick-1") if is_live("quick-1") else None
    shutil.rmtree("runs/quick-1")


def is_live(name):
    return any(r["name"] == name and r["state"] == "running" for r in json.loads(run("runs", "--json")))


@test
def a_opens_the_form_from_every_view():
    for view in ("monitor", "depth", "stepper", "signals", "flops", "log", "manual"):
        shows(play("command view %s" % view, "keys a")[-1], "new run from preset quick")
    shows(play("command view log", "command new dlr-scratch")[-1], "new run from preset dlr-scratch")


@test
def values_that_do_not_go_together_start_nothing_and_name_the_row():
    before = sorted(os.listdir("runs"))
    s = play(*FORM, "keys /", "type train.seq", "keys Enter Enter C-u", "type 60000", "keys Enter", "keys g g", "keys r")
    shows(s[-1], "new run from preset quick")
    shows(s[-1], "train.seq", "60000")
    shows(s[-1], "train.seq=60000: must be at most model.max_seq=1024")
    assert sorted(os.listdir("runs")) == before


@test
def a_start_that_fails_shows_its_last_line_keeps_the_form_and_leaves_nothing():
    before = sorted(os.listdir("runs"))
    s = play(*FORM, "keys /", "type data.path", "keys Enter Enter C-u", "type /nonexistent.txt", "keys Enter", "keys r")
    shows(s[-1], "new run from preset quick")
    shows(s[-1], "data.path", "/nonexistent.txt")
    shows(s[-1], "/nonexistent.txt: No such file")
    shows(s[-1], "quick-1 failed to start")
    assert sorted(os.listdir("runs")) == before


@test
def the_keys_of_the_form_follow_its_method_and_nothing_typed_is_lost():
    s = play(*FORM, "keys /", "type edp.early", "keys Enter Enter C-u", "type 2", "keys Enter", "shot", "keys /", "type model.method",
             "keys Enter Enter C-u", "type mod", "keys Enter", "shot", "keys Enter C-u", "type edp", "keys Enter", "shot")
    shows(s[0], "edp.early", "2")
    shows(s[1], "Method mod")
    shows(s[1], "mod.")
    lacks(s[1], "edp.early")
    shows(s[2], "edp.early", "2")


@test
def the_form_checks_while_typing_and_estimates_what_is_typed():
    s = play(*FORM, "shot", "keys /", "type train.batch", "keys Enter Enter C-u", "shot", "type 0", "shot", "keys C-u", "type 64", "shot")
    shows(s[0], "parameters", "FLOPs/token", "memory", "disk", "time")
    shows(s[1], "must be an integer")
    shows(s[2], "must be 1 to 65536")
    shows(s[2], "no estimate until every value is valid")
    memory = [[line.split("memory ")[1].split()[0] for line in x if "memory " in line][0] for x in (s[0], s[3])]
    assert memory[0] != memory[1], memory


@test
def paths_methods_and_presets_are_picked_from_a_list():
    os.makedirs("texts/deep", exist_ok=True)
    open("texts/deep/story.txt", "w").write("once upon a time")
    s = play(*FORM, "keys /", "type data.path", "keys Enter Enter C-u", "type te", "shot", "keys Down Enter", "shot", "keys Tab Tab", "shot",
             "keys Enter", "shot")
    shows(s[0], "texts/")
    shows(s[1], "texts/deep/")
    shows(s[3], "data.path", "texts/deep/story")
    s = play(*FORM, "keys j", "keys Enter C-u", "type hat", "shot", "keys Down Down Enter", "shot")
    shows(s[0], "hat-scratch")
    shows(s[1], "Method hat")


@test
def a_run_gets_the_name_of_the_form_unless_it_is_taken():
    s = play(*FORM, "keys Enter", "type a/b", "shot", "keys C-u", "type tiny", "shot", "keys C-u", "type fine-name", "keys Enter", "shot")
    shows(s[0], "expected 1 to 64 of")
    shows(s[1], "tiny exists")
    shows(s[2], "fine-name")
    lacks(s[2], "exists")


@test
def n_in_the_form_moves_between_matches_and_keeps_what_was_changed():
    s = play(*FORM, "keys /", "type train.lr", "keys Enter Enter C-u", "type 0.5", "keys Enter", "keys n", "shot",
             "keys N n a 1 Space Esc", "shot", "command new edp", "shot", "keys n", "shot", "keys Esc", "shot", "keys y")
    for screen in s[:4]:
        shows(screen, "new run from preset quick")
        shows(screen, "train.lr", "0.5")
    shows(s[2], "Discard 1 changed value and open another form? y / n")
    shows(s[4], "Discard 1 changed value and close the form? y / n")
    lacks(s[5], "new run from preset")


@test
def n_on_home_moves_to_the_next_match_and_never_opens_the_form():
    s = play("keys /", "type edp", "keys Enter", "shot", "keys n", "shot", "keys n n n N", "shot", "keys a")
    marked = [[line for line in screen if line.startswith("\u258c")] for screen in s[:3]]
    assert all(len(m) == 1 and "edp" in m[0] for m in marked), marked
    assert marked[0] != marked[1]
    for screen in s[:3]:
        lacks(screen, "new run from preset")
    shows(s[3], "new run from preset")
    shows(play("keys n")[-1], "no search yet")


def completed(typed, *keys, words=("tiny",)):
    s = play("keys :", "type " + typed, *("keys " + k for k in keys), words=words, size="160x24")
    return s[-1][-1]


@test
def tab_completes_what_a_command_takes():
    os.makedirs("with blank/inside")
    stepper = ("tiny", "--view", "stepper")
    for want, typed, tabs, words in (
            (":theme light", "theme l", 1, ("tiny",)), (":open runs/tiny/", "open runs/t", 1, ("tiny",)),
            (":open runs/tiny/best.json", "open runs/t", 2, ("tiny",)), (":open tiny", "open ti", 1, ("tiny",)),
            (":sort val_loss", "sort val", 1, ()), (":group method", "group me", 1, ()), (":filter state=", "filter sta", 1, ()),
            (":new mod", "new mo", 1, ()), (":new quick mod", "new quick mo", 1, ()),
            (":glyphs braille", "glyphs b", 1, ("tiny",)), (":model runs/", "model ru", 1, stepper),
            (":open with blank/inside/", "open with blank/", 1, ("tiny",))):
        line = completed(typed, *["Tab"] * tabs, words=words)
        assert want in line, (want, line)


@test
def set_completes_exactly_what_the_run_takes_while_it_trains():
    line = completed("set ")
    keys = re.findall(r"(\S+) = \S+, \S+ to \S", line)
    assert keys == ["train.lr", "edp.threshold_offset", "edp.target_ratio"], line
    assert completed("set ", words=()).strip() == ":set"  # no run, no keys
    for never in ("set train.steps", "set model", "set data", "set mod.", "set seed"):
        assert completed(never, "Tab").strip() == ":" + never, completed(never, "Tab")


@test
def a_mistyped_command_names_the_nearest():
    assert "did you mean quit?" in play("command :quti")[-1][-1]
    assert "did you mean" not in play("command :xyzzy")[-1][-1]
    shows(play("command :open tiny")[-1], "Monitor")


@test
def a_run_resumes_from_a_chosen_checkpoint_and_comes_back_from_the_trash():
    s = play("keys / t i n y Enter R", "shot", "keys j j Enter", size="100x24")
    shows(s[0], "resume tiny from")
    shows(s[0], "newest: step 10, continues this run")
    shows(s[0], "step 5, as a new run")
    end = time.monotonic() + 60 * SLOW
    while not os.path.isdir("runs/tiny-from-10") and not os.path.isdir("runs/tiny-from-5") and time.monotonic() < end:
        time.sleep(0.1)
    forks = [r for r in json.loads(run("runs", "--json")) if r["name"].startswith("tiny-from-")]
    assert len(forks) == 1 and forks[0]["parent"] == "tiny", forks
    while is_live(forks[0]["name"]) and time.monotonic() < end:
        time.sleep(0.1)
    name = forks[0]["name"]
    shows(play("keys / t i n y - Enter D y")[-1], name + " is in the trash")
    assert not os.path.isdir("runs/" + name)
    shows(play("command restore " + name)[-1], name, "restored")
    shutil.rmtree("runs/" + name)


@test
def a_new_run_like_this_one_has_its_settings():
    form = play("keys / t i n y Enter c", "keys / t r a i n . s t e p s Enter", size="120x30")[-1]
    shows(form, "new run from preset quick")
    shows(form, "train.steps", "10")


@test
def enter_on_an_empty_home_starts_the_quick_run():
    os.makedirs("fresh")
    os.environ["DEPTHSCOPE_RUNS"] = "fresh"
    try:
        shows(play()[-1], "No runs here yet")
        shows(play("keys Enter")[-1], "Monitor")
        assert os.listdir("fresh") == ["quick-1"]
        home = play(words=("--view", "home"))[-1]
        shows(home, "quick-1", "live")
        shows(play("keys X y", words=("--view", "home"))[-1], "stop")
        end = time.monotonic() + 60 * SLOW
        while is_live("quick-1") and time.monotonic() < end:
            time.sleep(0.1)
        assert json.loads(run("runs", "--json"))[0]["state"] == "stopped"
    finally:
        os.environ["DEPTHSCOPE_RUNS"] = "runs"


def setup():
    os.environ.update(XDG_STATE_HOME=os.path.abspath("state"), XDG_CONFIG_HOME=os.path.abspath("config"), LANG="C.UTF-8")
    run("train", "quick", *TINY, "--run", "tiny", "--quiet")


t.main(setup)
