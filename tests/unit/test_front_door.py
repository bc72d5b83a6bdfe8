"""What a newcomer types first: mistyped commands, options and keys, help, starting and stopping a run.
DEPTHSCOPE names the program."""
import fcntl
import glob
import json
import os
import re
import shutil
import struct
import subprocess
import sys
import termios
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import t  # noqa: E402
from t import PROGRAM, ROOT, SLOW, refused, run, test  # noqa: E402

TINY = ("model.layers=6 model.dim=32 model.heads=2 model.vocab=300 train.steps=10 train.seq=32 train.batch=2 "
        "train.eval_every=5 train.final_tokens=512 train.eval_tokens=512 data.docs=60 data.val_fraction=0.3 "
        "train.time_rounds=0 train.checkpoint_every=5 threads=1").split()
LONG = [w for w in TINY if "steps" not in w and "every" not in w] + [
    "train.steps=1000000", "train.eval_every=1000000", "train.checkpoint_every=1000000"]
SOURCES = os.path.join(ROOT, "src/cli")


@test
def a_rejected_key_is_rejected_in_every_spelling():
    weights = "runs/mod/checkpoints/step-00000010/model.safetensors"
    before = os.stat(weights).st_mtime_ns
    for word in ("capacity=0.5", "+capacity=0.5", "++capacity=0.5", "--capacity=0.5", "task=mmlu", "++shots=1"):
        refused("unsupported by calibrate", "calibrate", "mod", "tokens=64", word)
    refused("unsupported by calibrate", "calibrate", "mod", "--capacity", "0.5")
    refused("unsupported ':='", "calibrate", "mod", "capacity:=0.5")
    refused("cannot remove capacity", "calibrate", "mod", "~capacity")
    assert os.stat(weights).st_mtime_ns == before
    for word in ("capacities=0.5", "+capacities=0.5", "++capacities=0.5", "--capacities=0.5"):
        refused("rows of --benchmark", "eval", "mod", word)
    for word in ("capacity=0.5", "++capacity=0.5", "+speedup_by=time"):
        refused("unsupported by --benchmark", "eval", "mod", "--benchmark", word)
    for word in ("++shots=1", "limit=3", "+max_gen=4", "--results=x"):
        refused("unsupported by task=ppl", "eval", "mod", word)
    for word in ("++stride=3", "windows=sliding", "+tokens=4", "data.docs=3", "data.text_key=body", "data.max_bytes=9",
                 "data.format=lines", "data.val_fraction=0.1", "data.loss=answers"):
        refused("expected task=ppl", "eval", "mod", "task=piqa", word)


@test
def seeds_and_shapes_of_batches_are_seen_in_every_spelling():
    for word in ("seed=7,8", "++seed=7,8", "+seed=7,8", "--seed=7,8"):
        out = run("sweep", "quick", word, "--dry-run") + run.err
        assert "-s7-" in out and "-s8-" in out, (word, out)
        refused("use --seeds 1,2,3", "ablate", "quick", word, "--dry-run")
        refused("seeds from --seeds", "isoflop", "quick", "--budget", "1e12", "--sizes", "6x32", word, "--dry-run")
    for word in ("++model.dim=64", "--model.dim=64", "+train.steps=5"):
        refused("isoflop: ", "isoflop", "quick", "--budget", "1e12", "--sizes", "6x32", word, "--dry-run")
    run("convert", "random:quick", "-o", "big.gguf", "++weights=q8_0", "++model.dim=32",
        "model.heads=2", "+method=dense")
    assert "q8_0" in run("inspect", "big.gguf").lower()
    for word in ("model.dim=64", "++model.layers=6", "lora_r=4"):
        refused("cannot be set with MODEL", "bench", "tiny", word)
    for word in ("shape=big", "layers=3", "++dim=64", "--vocab=99", "batch=2", "seq=64"):
        refused("%s=: cannot be set with MODEL" % word.lstrip("+-").split("=")[0], "bench", "tiny", word)
    for word in ("template=chatml", "++thinking=on"):
        refused("requires --chat", "generate", "tiny", "--prompt", "x", word)
    for words in (("eval", "tiny"), ("generate", "tiny", "--prompt", "x")):
        refused("speedup_by=: requires target_speedup=", *words, "speedup_by=time")
    for word in ("seed=3", "++seed=3"):
        refused("expected random:PRESET", "convert", "tiny", "-o", "converted", word)


@test
def a_key_may_be_written_as_an_option():
    run("train", *TINY, "--train.steps", "3", "--seed=5", "--run", "dashes", "--quiet")
    config = open("runs/dashes/config.yaml").read()
    assert re.search(r"steps: 3\b", config) and re.search(r"seed: 5\b", config), config


@test
def mistyped_words_suggest_the_nearest():
    for part, words in (
            ("did you mean train?", ["trian"]), ("did you mean train?", ["trian", "quick", "train.steps=3"]),
            ("did you mean eval?", ["evla", "tiny"]), ("did you mean tiny?", ["tniy"]),
            ("did you mean --view?", ["--veiw", "home"]), ("did you mean -", ["train", "--nonsense"]), ("did you mean --json?", ["runs", "--jsno"]),
            ("did you mean train.steps=", ["train", "--steps", "10"]),
            ("did you mean train.steps?", ["train", "--train.stpes=10"]),
            ("did you mean tokens?", ["eval", "mod", "++tokns=4"]),
            ("did you mean keys?", ["help", "kesy"]), ("did you mean workbench?", ["help", "workbnch"])):
        refused(part, *words)
    for words in (["eval", "tniy"], ["compare", "tniy"], ["generate", "tniy", "--prompt", "x"]):
        refused("did you mean tiny?", *words, code=1)
    refused("did you mean dark?", "tiny", "--theme", "drak", "--script", "/dev/null", code=1)
    refused("did you mean monitor?", "tiny", "--view", "monitr")
    for words in (["xyzzy"], ["get", "nosuch"], ["presets", "foo"], ["help", "xyzzy"], ["figure", "zzz", "tiny"]):
        run(*words, code=1 if words[0] == "get" else 2)
        assert "did you mean" not in run.err and "depthscope " in run.err[12:], run.err
    assert run("-V") == run("--version") == run("train", "-V") and run("-V").startswith("depthscope ")


@test
def a_path_as_run_name_explains_how_to_choose_the_directory():
    refused("DEPTHSCOPE_RUNS=some depthscope train --run path", "train", *TINY, "--run", "some/path")
    refused("expected a name", "train", *TINY, "--run", "../")
    run("train", *TINY, "--run", "path", "--quiet", DEPTHSCOPE_RUNS="some")
    assert os.path.exists("some/path/log.mp")


@test
def help_is_wrapped_between_words():
    topics = re.findall(r"^  depthscope ([a-z]+)", run("help"), re.M) + ["workbench", "keys", "views", "metrics", "formats", ""]
    for columns in (80, 64):
        for topic in topics:
            out = on_terminal("help", *[topic][:bool(topic)], columns=columns)
            long = [x for x in out.splitlines() if len(x) > columns and not re.search(r"\S{24}|^  depthscope generate ", x)]
            assert not long, (columns, topic, long)
    for words in (("figure", "list"), ("get", "--list"), ("presets",), ("train", "--keys", "all"), ("inspect", "tiny"), ("doctor",)):
        long = [x for x in on_terminal(*words, columns=80).splitlines() if len(x) > 80 and not re.search(r"\S{24}", x)]
        assert not long, (words, long)
    out = on_terminal("help", "figure", columns=60)
    assert "  -o DIR|FILE         output directory (default: exports),\n                      FILE.png" in out, out


def options_of_sources():
    """Every row of every option table: (file, name)."""
    for path in sorted(glob.glob(SOURCES + "/*.c") + glob.glob(SOURCES + "/*/*.c")):
        name, text = os.path.basename(path), open(path).read()
        for table in re.findall(r"struct cli_option \w+\[\] = \{(.*?)\n?\};", text, re.S):
            for row in re.findall(r'\{(?:\.name = )?"([^"]+)"', table):
                yield name[:-2], row


@test
def every_option_of_every_command_is_in_its_help():
    listed = re.findall(r"^  depthscope ([a-z]+)", run("help"), re.M)
    assert len(listed) > 20 and "stop" in listed
    seen = 0
    for command, option in options_of_sources():
        if command not in listed + ["workbench"]:
            continue
        rows = re.findall(r"^  (--?[A-Za-z-]+) +(\S.*)$", run("help", command), re.M)
        dashes = "--" if len(option) > 1 else "-"
        help_of = dict(rows).get(dashes + option, "")
        assert len(help_of) > 5, (command, option, rows)
        seen += 1
    assert seen > 60, seen
    for command in listed + ["workbench"]:
        assert "--help" in run("help", command), command
        assert run("help", command).splitlines()[0].startswith("depthscope "), command


@test
def the_workbench_has_help_and_names_every_view():
    out = run("help", "workbench")
    for word in "--theme --view --readonly --link --quick --glyphs --color --no-mouse --term --size".split():
        assert word in out and word in run("help"), word
    views = ("home, monitor, depth, stepper, signals, flops, compare, timeline, pareto, generate, figures, experts, machine, log, "
             "manual")
    assert "first view: " + views in out and views in run("help", "man"), out
    assert run("--help") == run("help")


@test
def help_is_markdown_in_a_pipe_and_tables_on_a_terminal():
    assert "| key | default | description |" in run("help", "keys") and "| keys | command |" in run("help", "views")
    for what in ("keys", "views"):
        seen = on_terminal("help", what)
        assert "|---|" not in seen and "###" not in seen and "`" not in seen, seen[:400]
        seen = on_terminal("help", what, "--markdown")
        assert "|---|" in seen
    assert re.search(r"^train\.steps +1500 +optimi[sz]er steps \(1 to 1e\+15\)", on_terminal("help", "keys"), re.M)
    assert re.search(r"^  a +:new PRESET", on_terminal("help", "views"), re.M)
    assert re.search(r"^val_loss +\w+ +\S+ +\w+", on_terminal("help", "metrics"), re.M)
    assert "\nmodel.method=mod\n" in on_terminal("help", "metrics") and "|" not in on_terminal("help", "formats").splitlines()[0]
    seen = on_terminal("doctor", NO_COLOR="1", LC_ALL="C", COLORTERM="truecolor")
    assert re.search(r"terminal +0 x 0; TERM=xterm COLORTERM=truecolor NO_COLOR=1$", seen, re.M), seen
    assert "not UTF-8, frames are ASCII and text is escaped (try LC_ALL=C.UTF-8)" in seen, seen


@test
def a_character_set_other_than_utf8_counts_as_ascii():
    made = subprocess.run(["localedef", "-i", "en_US", "-f", "ISO-8859-1", os.path.abspath("en_US.ISO-8859-1")],
                          capture_output=True) if shutil.which("localedef") else None
    if not made or made.returncode:
        raise t.Skip("localedef cannot make a locale here")
    env = {"LC_ALL": "en_US.ISO-8859-1", "LOCPATH": os.getcwd()}
    assert "ANSI_X3.4-1968: not UTF-8" in json.dumps(t.run_json("doctor", **env))
    # no byte of a letter in UTF-8 is a letter of its own: the name of a run is valid
    run("sweep", "quick", "model.method=dense", "data.path=été,synth", "--seeds", "1", "--dry-run", **env)
    assert "[1/2] sweep-path___t__-s1" in run.err, run.err


@test
def doctor_knows_where_runs_can_be_created():
    open("a-file", "w").close()
    for root, ok in (("new", True), ("new/", True), ("new/er/dir/", True), (os.path.abspath("new/er"), True), ("a-file/x", False)):
        status, out, _ = t.call("doctor", "--json", env={**os.environ, "DEPTHSCOPE_RUNS": root})
        found = {x["name"]: x for x in json.loads(out)}["runs"]
        assert status == (not ok) and found["ok"] == ok and ("created by the first run" in found["text"]) == ok, found


def live(name):
    return any(r["name"] == name and r["state"] == "running" and r["step"] > 0 for r in json.loads(run("runs", "--json")))


def until(what, *args):
    end = time.time() + 60 * SLOW
    while not what(*args):
        assert time.time() < end, (what.__name__, args)
        time.sleep(0.05)


def start(*names):
    """Runs that train until they are stopped; nobody's children, as the workbench starts them."""
    for name in names:
        p = subprocess.Popen(["setsid", "-f", PROGRAM, "train", "quick", *LONG, "--run", name, "--quiet"],
                             stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        p.wait()
    for name in names:
        until(live, name)


def is_over(name):
    rows = [r for r in json.loads(run("runs", "--json")) if r["name"] == name]
    return len(rows) == 1 and rows[0]["state"] == "stopped" and rows[0]["pid"] == 0


@test
def stop_ends_the_named_runs_in_order_and_waits_for_them():
    start("one", "two")
    out = run("stop", "one", "runs/two/")
    assert is_over("one") and is_over("two"), run("runs")
    assert re.search(r"^one: stopped at step \d+ of 1000000; resume with depthscope train --resume one$", out, re.M), out
    assert os.listdir("runs/one/checkpoints") and "two: stopped" in out
    start("three")
    rows = json.loads(run("stop", "--all", "--json"))
    assert [(r["name"], r["status"], r["state"]) for r in rows] == [("three", "stopped", "stopped")] and rows[0]["step"] > 0
    assert "no live runs" in run("stop", "--all") and run("stop", "--all", "--json") == "[]\n"


@test
def stop_reports_why_a_run_cannot_be_stopped():
    refused("tiny: not running: done at step 10", "stop", "tiny", code=1)
    refused("nosuch: run not found in runs", "stop", "nosuch", code=1)
    refused("did you mean tiny?", "stop", "tniy", code=1)
    refused("missing argument RUN", "stop")
    refused("unexpected run names", "stop", "tiny", "--all")
    refused("expected seconds", "stop", "tiny", "--timeout", "soon")
    refused("expected the name of a run", "stop", "steps=3")
    # a log without end and without a writer, on a file system that another host shares
    start("away")
    shutil.copytree("runs/away", "runs/shared", ignore=lambda d, names: [n for n in names if n == "control.sock"])
    run("stop", "away")
    meta = json.load(open("runs/shared/meta.json"))
    meta["host"] = "gpu7"
    json.dump(meta, open("runs/shared/meta.json", "w"))
    refused("ssh gpu7 depthscope stop shared", "stop", "shared", code=1)
    rows = json.loads(run("stop", "shared", "nosuch", "tiny", "--json", code=1))
    assert [r["status"] for r in rows] == ["elsewhere", "unknown", "not_running"], rows


@test
def quick_watches_the_live_quick_run_instead_of_a_second_one():
    start("first")
    with open("none.keys", "w") as f:
        f.write("shot\n")
    out = run("--quick", "--script", "none.keys", "--size", "120x24")
    assert "first is already training" in out and "a on Home starts one" in out, out[:3000]
    names = sorted(os.listdir("runs"))
    assert not [n for n in names if n.startswith("quick-")], names
    run("stop", "first")
    out = run("--quick", "--script", "none.keys", "--size", "120x24")
    assert "already training" not in out and os.path.isdir("runs/quick-1"), out[:3000]
    until(live, "quick-1")
    run("stop", "--all")


@test
def a_failed_quick_start_is_reported_and_leaves_nothing():
    os.makedirs("elsewhere")
    with open("none.keys", "w") as f:
        f.write("shot\n")
    run("--quick", "--script", "none.keys", "--dump", "/dev/null", code=1, DEPTHSCOPE_RUNS="elsewhere", DEPTHSCOPE_FAIL="fsync:1+=ENOSPC")
    assert run.err.startswith("depthscope: quick run: ") and "No space left" in run.err, run.err
    assert not os.listdir("elsewhere"), os.listdir("elsewhere")


def on_terminal(*words, columns=0, **env):
    """What a command prints on a terminal."""
    import pty
    pid, fd = pty.fork()
    if pid == 0:
        if columns:
            fcntl.ioctl(1, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        os.execve(PROGRAM, [PROGRAM, *words], {**os.environ, "TERM": "xterm", **env})
    out = b""
    while True:
        try:
            got = os.read(fd, 65536)
        except OSError:
            break
        if not got:
            break
        out += got
    os.close(fd)
    _, status = os.waitpid(pid, 0)
    assert status == 0, (words, status, out)
    return out.decode("utf-8").replace("\r\n", "\n")


def setup():
    run("train", *TINY, "--run", "tiny", "--quiet")
    run("train", "quick", "mod", *TINY, "--run", "mod", "--quiet")


t.main(setup)
