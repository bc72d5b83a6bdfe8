"""Whatever a user may type or point at: a result, or one line that says what is wrong.  No crash, no hang, no raw control
bytes, an honest exit status, and no file that was there before is harmed.  DEPTHSCOPE names the program."""
import bz2
import gzip
import hashlib
import json
import lzma
import os
import shutil
import subprocess
import sys
import unicodedata

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import t  # noqa: E402
from t import PROGRAM, ROOT, SLOW, one_line, test  # noqa: E402

TINY = ("model.layers=6 model.dim=32 model.heads=2 model.vocab=300 train.steps=6 train.seq=32 train.batch=2 "
        "train.eval_every=3 train.final_tokens=128 train.eval_tokens=128 data.docs=60 data.val_fraction=0.3 "
        "train.time_rounds=1 train.checkpoint_every=3").split()
STEP = "runs/tiny/checkpoints/step-00000006"
# What is no run, model, log, tokenizer, figure or theme.
WRONG = ["nope", "bad/garbage", "bad/empty", "bad/dir", "bad/cut.json", "bad/object.json", "bad/loop", "/dev/null",
         "/dev/zero", "", "\x1b[31mred\n"]


def run(*words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, **env):
    status, out, said = t.call(*words, seconds=60, env=env, stdin=stdin, stdout=stdout)
    assert status <= 2, "%r: exit status %d\n%s" % (words, status, said)
    return status, out, said


def refused(part, *words, code=1, **kw):
    status, out, said = run(*words, **kw)
    one_line(words, said)
    assert status == code, "%r: exit status %d, want %d: %s" % (words, status, code, said)
    assert part in said, "%r: %r lacks %r" % (words, said, part)
    assert not out, "%r: prints and fails: %r" % (words, out[:80])


def accepted(*words, **kw):
    status, out, said = run(*words, **kw)
    assert status == 0, "%r: exit status %d: %s" % (words, status, said)
    return out


def digest(path):
    with open(path, "rb") as f:
        return hashlib.sha256(f.read()).hexdigest()


@test
def everything_that_is_no_model_is_refused_in_one_line():
    for path in WRONG:
        for words in (["eval", path], ["generate", path, "--prompt", "hi"], ["tokenize", path, "--text", "hi"],
                      ["trace", path, "--text", "hi", "-o", "never.mp"]):
            refused("", *words)
    assert not os.path.exists("never.mp")


@test
def everything_that_is_no_run_is_refused_in_one_line():
    for path in WRONG:
        for words in (["compare", path], ["figure", "training", path], ["figure", "all", path], ["inspect", path]):
            refused("", *words)
    refused("no records", "compare", "bad/empty")
    refused("device", "inspect", "/dev/zero")
    refused("not a record stream", "stream", "bad/garbage")
    refused("device", "stream", "/dev/zero")
    refused("not a record stream", "compare", "-", stdin=open("bad/garbage", "rb"))
    refused("not a record stream", "compare", "-", stdin=open("/dev/zero", "rb"))
    refused("not standard input", "inspect", "-", code=2)


@test
def logs_in_other_packing_are_refused_by_name():
    table = b"step,loss\n1,2\n2,1\n"
    for name, data in {"gzip": gzip.compress(table), "xz": lzma.compress(table), "bzip2": bz2.compress(table),
                       "UTF-16": table.decode().encode("utf-16")}.items():
        with open("bad/packed.csv", "wb") as f:
            f.write(data)
        for words in (["inspect"], ["stream"], ["compare"], ["export", "--to", "csv"], ["figure", "training"]):
            refused(name, *words, "bad/packed.csv")
    os.remove("bad/packed.csv")


@test
def a_pipe_is_read_to_its_end():
    slow = subprocess.Popen(["sh", "-c", "head -c 2000 runs/tiny/log.mp; sleep 0.3; tail -c +2001 runs/tiny/log.mp"],
                            stdout=subprocess.PIPE)
    assert b"val loss" in accepted("compare", "-", stdin=slow.stdout)
    slow.stdout.close()
    assert slow.wait() == 0


@test
def a_run_is_not_its_own_second_seed():
    refused("duplicate run", "compare", "tiny", "tiny", code=2)
    refused("duplicate run", "compare", "tiny", "./runs/tiny/", code=2)


@test
def the_log_of_a_run_is_never_written_over():
    shutil.copy("runs/tiny/log.mp", "copy.mp")
    before = digest("runs/tiny/log.mp"), digest("copy.mp"), digest("bad/garbage")
    for command in (["eval", "tiny", "time_rounds=0"], ["trace", "tiny", "--text", "hi"]):
        refused("log of a run", *command, "-o", "runs/tiny/log.mp")
        refused("log of a run", *command, "-o", "copy.mp")
        refused("not a record file", *command, "-o", "bad/garbage")
        refused("is a directory", *command, "-o", "bad/dir")
        refused("nowhere", *command, "-o", "nowhere/x.mp")
    refused("No space left", *command, "-o", "/dev/full")
    assert before == (digest("runs/tiny/log.mp"), digest("copy.mp"), digest("bad/garbage"))


@test
def a_result_is_not_lost_where_it_cannot_be_written():
    for words in ([], ["--benchmark"], ["exit.layer=1..2"], ["task=piqa"]):
        refused("nowhere/x.mp", "eval", "tiny", *words, "data.path=absent", "-o", "nowhere/x.mp")  # before any text is read
    refused("not a record file", "eval", "tiny", "data.path=absent", "-o", "bad/garbage")
    with open("piqa.jsonl", "w") as f:
        f.write('{"goal": "a", "sol1": "b", "sol2": "c", "label": 0}\n')
    for words, shown in (([], b"loss"), (["exit.layer=1..2"], b"loss"), (["task=piqa", "data.path=piqa.jsonl"], b"piqa")):
        words = ["eval", "tiny", *words] + ["time_rounds=0", "controls=false"] * (len(words) < 2)
        status, out, said = run(*words, "-o", "late.mp", DEPTHSCOPE_FAIL="rename:1=EIO")
        assert status == 1 and shown in out and "late.mp" in said, (words, status, out, said)
    status, out, said = run("eval", "tiny", "time_rounds=0", "controls=false", "-o", "/dev/full")
    assert status == 1 and b"loss" in out and "No space left" in said, (status, out, said)
    assert not os.path.exists("late.mp")


@test
def a_trace_replaces_a_trace_or_leaves_it():
    accepted("trace", "tiny", "--text", "one", "-o", "t.mp")
    accepted("trace", "tiny", "--text", "two words", "-o", "t.mp", "--json")
    before = digest("t.mp")
    for fault in ("write:1=ENOSPC", "fsync:1=EIO", "rename:1=EIO"):
        refused("", "trace", "tiny", "--text", "three", "-o", "t.mp", DEPTHSCOPE_FAIL=fault)
        assert digest("t.mp") == before, fault
    assert b"1 head, 1 probe" in accepted("inspect", "t.mp")
    assert [n for n in os.listdir(".") if n.startswith((".t.mp", "t.mp.", "t.mp-"))] == []


@test
def text_of_any_bytes_is_taken():
    hostile = b"\x01\x1b[31m\xff\xfe\xc0\x80\r\n\t\xf0\x9f\x98\x80"
    with open("hostile.txt", "wb") as f:
        f.write(hostile)
    out = accepted("tokenize", "tiny", "--file", "hostile.txt")
    assert not [c for c in out.replace(b"\n", b"").replace(b"\t", b"") if c < 32 or c == 127], out
    accepted("generate", "tiny", "--file", "hostile.txt", "max_tokens=2", "time_rounds=0", "--json")
    accepted("trace", "tiny", "--file", "hostile.txt", "--json")
    refused("empty", "trace", "tiny", "--text", "", "--json", code=2)
    refused("is a directory", "generate", "tiny", "--file", "bad/dir")
    refused("is a device", "generate", "tiny", "--file", "/dev/zero")
    accepted("generate", "tiny", "--prompt", "", "max_tokens=0", "time_rounds=0")


@test
def json_hides_nothing_from_a_terminal():
    hidden = "a\u202eb\u2066c\u200bd\u200de\ufeff\u2060f\U000e0041\U000e007fg\ufe0fh\u2028i\u061cj\u00adk"
    for words in (("tokenize", "tiny", "--json", "--text", hidden), ("trace", "tiny", "--json", "--text", hidden),
                  ("generate", "tiny", "--json", "--prompt", hidden, "max_tokens=2", "time_rounds=0"),
                  ("inspect", os.path.join(ROOT, "tests/screens/hostile.mp"), "--json")):
        out = accepted(*words).decode()
        assert not [c for c in out if unicodedata.category(c) in ("Cf", "Zl", "Zp") or (c < " " and c != "\n") or
                    0x7f <= ord(c) < 0xa0 or 0xfe00 <= ord(c) <= 0xfe0f], out
        for line in out.splitlines():
            json.loads(line)
    status, out, said = run("generate", "no" + hidden, "--prompt", "a")
    assert status == 1 and not [c for c in said if unicodedata.category(c) in ("Cf", "Zl", "Zp")], said


@test
def numbers_out_of_range_name_their_setting():
    for setting in ("train.steps=-1", "train.steps=99999999999999999999", "train.lr=nan", "train.batch=0", "model.dim=7",
                    "model.layers=0", "seed=-1", "data.val_fraction=2", "edp.target_ratio=5", "threads=-1",
                    "train.seq=100000", "train.steps=", "trainsteps=1", "=1", "model.method=nothing"):
        refused(setting.split("=")[0].split(".")[-1], "train", "quick", setting, "--run", "never", code=2)
    refused("one batch needs", "train", "quick", "data.docs=1", "--run", "never", "--quiet")
    refused("no documents", "train", "quick", "data.path=bad/empty", "--run", "never", "--quiet")
    refused("at least", "train", "quick", "model.dim=65536", "model.heads=64", "model.layers=4096", "data.docs=60", "--run",
            "never", "--quiet")
    assert not os.path.exists("runs/never"), os.listdir("runs/never")
    for name in ("../evil", "", "a/b", ".", "x\ny", "-x", "a" * 65):
        refused("expected a name", "train", "quick", "--run=" + name, code=2)


@test
def everything_that_is_no_preset_is_refused_in_one_line():
    os.makedirs("bad/folder.yaml", exist_ok=True)
    for name, data in (("nothing", b""), ("loop-a", b"extends: loop-b\n"), ("loop-b", b"extends: loop-a\n"),
                       ("bytes", b"\xff\xfe\x00\x1b[31m: 1\n"), ("words", b"just words\n"), ("deep", b"[" * 5000),
                       ("key", b"train:\n  stpes: 3\n"), ("outside", b"extends: ../../data/tiny\n")):
        with open("bad/%s.yaml" % name, "wb") as f:
            f.write(data)
    parts = {"bad/folder.yaml": "is a directory", "bad/nothing.yaml": "has no keys", "bad/loop-a.yaml": "loop",
             "bad/words.yaml": "must be a map", "bad/key.yaml": "did you mean train.steps", "bad/outside.yaml": "expected a file name",
             "bad/bytes.yaml": "", "bad/deep.yaml": "", "bad/none.yaml": "No such file", "smal": "did you mean small?",
             "a" * 300: "invalid preset"}
    for word, part in [*parts.items(), *((w, "") for w in WRONG)]:
        for words in (["train", word, "--run", "never"], ["train", "tiny", word, "--run", "never"], ["presets", word],
                      ["sweep", word, "--dry-run"]):
            status, out, said = run(*words)
            one_line(words, said)
            assert status in (1, 2) and part in said and not out, (words, status, said)
    refused("duplicate preset tiny", "train", "tiny", "tiny", "--run", "never", code=2)
    refused("did you mean transfer", "train", "tiny", "--mode", "transfr", "--run", "never", code=2)
    assert not os.path.exists("runs/never")


@test
def words_that_mean_nothing_get_a_hint():
    refused("(depthscope help)", "--nope", code=2)
    refused("--theme: missing value", "--theme", code=2)
    refused("unknown command, run, trace or model", "", code=2)
    refused("missing argument", "figure", code=2)
    refused("unknown format", "figure", "training", "tiny", "--format", "", code=2)
    refused("not a theme", "figure", "training", "tiny", "--theme", "bad/garbage", "-o", "never")
    refused("unknown option", "figure", "training", "tiny", "--nope", "3", code=2)
    refused("not a directory", "runs", "nope")
    refused("not a directory", "runs", "bad/empty")
    refused("only=nothing", "bench", "only=nothing", "quick=true", "threads=1", code=2)
    for command in ("train presets eval generate trace figure sweep ablate isoflop compare runs inspect tokenize stream bench "
                    "doctor serve help").split():
        assert accepted(command, "--help").startswith(b"depthscope " + command.encode()), command
        refused("did you mean", command, "--nonsense", code=2)


@test
def a_full_output_is_no_success_and_a_closed_one_no_failure():
    commands = (["help"], ["runs"], ["figure", "list"], ["doctor"], ["compare", "tiny"], ["inspect", "tiny"],
                ["tokenize", "tiny", "--text", "hi"], ["trace", "tiny", "--text", "hi", "--json"],
                ["figure", "training", "tiny", "--format", "svg", "-o", "figs"], ["stream", "tiny", "--no-follow"])
    for words in commands:
        with open("/dev/full", "wb") as full:
            status, _, said = run(*words, stdout=full)
        one_line(words, said)
        assert status == 1, words
    with open("/dev/full", "wb") as full:
        status, _, said = run("train", *TINY, "--run", "full", "--json", stdout=full)
    assert status == 1 and os.path.exists("runs/full/" + STEP.split("/", 2)[2]), said
    reader, writer = os.pipe()
    os.close(reader)
    status, _, said = run("train", *TINY, "--run", "closed", "--json", stdout=writer)
    os.close(writer)
    assert status == 0 and not said, said


@test
def a_finished_run_says_so():
    status, out, said = run("train", "--resume", "tiny")
    assert status == 0 and "all 6 steps are done" in said, said


@test
def no_failed_allocation_crashes_a_listing():
    for n in list(range(1, 120)) + [200, 400]:
        run("runs", DEPTHSCOPE_FAIL="alloc:%d" % n)


def shots(script, *words):
    with open("script", "w") as f:
        f.write(script)
    return accepted("--script", "script", *words).decode("utf-8").split("-- roles")[0]


@test
def a_directory_of_weights_opens_the_stepper():
    os.makedirs("weights", exist_ok=True)
    for name in ("config.json", "model.safetensors", "tokenizer.json"):
        shutil.copy(os.path.join(STEP, name), "weights")
    for path in (STEP, "weights"):
        screen = shots("", path)
        assert "Stepper" in screen and os.path.basename(path) in screen, screen
    assert "Stepper" in shots("command open weights\n")


@test
def a_run_without_records_says_why():
    os.makedirs("runs/broken", exist_ok=True)
    open("runs/broken/log.mp", "w").close()
    open("runs/broken/config.yaml", "w").close()
    assert "No steps are recorded" in shots("", "broken")
    with open("runs/broken/train.out", "w") as f:
        f.write("depthscope: model.heads=5: must divide model.dim=96\n")
    for view in ("monitor", "depth", "signals", "flops"):
        screen = shots("", "--view", view, "broken")
        assert "Its output:" in screen and "must divide" in screen, screen
    os.remove("runs/broken/config.yaml")
    os.remove("runs/broken/train.out")
    open("runs/broken/train.out", "w").close()
    assert "The run is starting" in shots("", "--view", "depth", "broken")
    assert "No run is open" in shots("", "--view", "depth")


@test
def names_too_long_and_loops_of_links_are_named():
    for path, part in (("x" * 300, "File name too long"), ("bad/loop", "Too many levels of symbolic links"),
                       ("bad/loop/x", "Too many levels of symbolic links")):
        for words in (["train", "quick", "data.path=" + path, "--run", "never"], ["import", path, "-o", "never.mp"],
                      ["tokenize", "tiny", "--file", path], ["trace", "tiny", "--text", "a", "-o", path + "/t.mp"],
                      ["convert", "tiny", "to=hf", "-o", path + "/m"]):
            refused(part, *words)
    assert not os.path.exists("runs/never") and not os.path.exists("never.mp")


def bare(*words, **env):
    """In a folder of its own, with these variables of the environment and PATH alone."""
    p = subprocess.run([PROGRAM, *words], stdin=subprocess.DEVNULL, capture_output=True, timeout=60 * SLOW, cwd="bare",
                       env={"PATH": os.environ["PATH"], **env})
    return p.returncode, p.stdout.decode("utf-8", "replace"), p.stderr.decode("utf-8", "replace")


@test
def without_a_home_everything_but_its_memory_works():
    os.makedirs("locked", exist_ok=True)
    os.chmod("locked", 0o500)
    for env in ({}, {"HOME": ""}, {"HOME": "relative"}, {"XDG_STATE_HOME": "state", "XDG_CONFIG_HOME": "config", "XDG_RUNTIME_DIR": "run"},
                {"HOME": os.path.abspath("locked")}, {"HOME": "/dev/null"}, {"HOME": os.path.abspath("not/there")}):
        shutil.rmtree("bare", ignore_errors=True)
        os.mkdir("bare")
        status, _, said = bare("train", *TINY, "--run", "a", "--quiet", **env)
        assert status == 0 and said == "", (env, said)
        for words in (["runs"], ["inspect", "a"], ["alerts", "a"], ["get", "--list"], ["show", "monitor", "a"],
                      ["generate", "a", "--prompt", "hi", "max_tokens=1", "--quiet"], ["figure", "training", "a", "-o", "out"]):
            status, out, said = bare(*words, **env)
            assert status == 0 and out, (env, words, said)
        left = sorted(os.listdir("bare"))
        assert left == ["out", "runs"], (env, left)  # nothing relative is made
        status, _, said = bare("stream", "there:runs/a", DEPTHSCOPE_SSH="/bin/false", **env)
        assert status == 1 and said.startswith("depthscope: ") and said.count("\n") == 1, (env, said)
    assert os.geteuid() == 0 or os.listdir("locked") == []


def setup():
    os.environ.update(HOME=os.getcwd(), XDG_STATE_HOME=os.path.abspath("state"))
    os.makedirs("bad/dir")
    with open("bad/garbage", "wb") as f:
        f.write(bytes((7 * i * i + i) % 251 for i in range(3000)))
    open("bad/empty", "w").close()
    with open("bad/cut.json", "w") as f:
        f.write('{"a":1')
    with open("bad/object.json", "w") as f:
        f.write("{}")
    os.symlink("loop", "bad/loop")
    status, _, said = run("train", *TINY, "--run", "tiny", "--quiet")
    assert status == 0, said


if __name__ == "__main__":
    t.main(setup)
