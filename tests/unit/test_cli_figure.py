"""depthscope figure as a script meets it: tables and JSON files, skipped figures, previews, recipes."""
import json
import os
import shlex
import struct
import sys
import zlib

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import t  # noqa: E402
from t import call, test  # noqa: E402


def run(*words, code=0):
    status, out, err = call("figure", *words)
    assert status == code, (words, status, err)
    return out, err


def write(path, text):
    with open(path, "w") as f:
        f.write(text)


TASKS = {"results": {"piqa": {"acc,none": 0.6, "acc_stderr,none": 0.01}}, "config": {"method": "mod"}}


@test
def all_draws_what_the_data_allows_and_names_what_it_skips():
    out, err = run("all", "log.csv", "tasks.json", "-o", "all", "--format", "png")
    assert out.decode().split() == ["all/training.png", "all/task_bars.png"], out
    lines = err.splitlines()
    assert all(line.startswith("skipped ") for line in lines), err
    assert "skipped routing_map: run log: no record 'probe'" in lines
    assert any(line.startswith("skipped bench_bars: needs JSON files of depthscope bench") for line in lines), err
    both = json.loads(run("all", "log.csv", "tasks.json", "-o", "all", "--json")[0])
    assert [f["name"] for f in both["figures"]] == ["training", "task_bars"]
    assert {s["name"] for s in both["skipped"]} >= {"routing_map", "bench_bars", "pareto"}
    assert len(both["figures"]) + len(both["skipped"]) == len(json.loads(run("list", "--json")[0])["figures"])


@test
def all_refuses_a_file_that_no_figure_reads():
    write("other.json", '{"a":1}')
    out, err = run("all", "other.json", "-o", "none", code=1)
    assert out == b"" and err.count("\n") == 1 and "other.json: no figure reads it" in err
    run("training", "other.json", "-o", "none", code=1)


@test
def a_recipe_quotes_what_a_shell_would_split_and_again_takes_nothing_else():
    os.makedirs("it's here", exist_ok=True)
    with open("log.csv") as f:
        write("it's here/a log.csv", f.read())
    run("training", "it's here/a log.csv", "-o", "quoted", "--format", "png")
    words = shlex.split(json.loads(call("inspect", "quoted/training.png")[1].split(b"recipe: ", 1)[1])["command"])
    assert words[:4] == ["depthscope", "figure", "training", "it's here/a log.csv"], words
    before = open("quoted/training.png", "rb").read()
    for extra in (["--venue", "slide"], ["--theme", "dark"], ["-o", "else"], ["--format", "svg"], ["training", "log.csv"]):
        _, err = run("--again", "quoted/training.png", *extra, code=2)
        assert ": %s: unexpected with --again" % extra[0] in err, err
    assert open("quoted/training.png", "rb").read() == before
    assert "--probe 1.5: must be an integer" in run("training", "log.csv", "--probe", "1.5", "-o", "never", code=2)[1]


@test
def an_option_without_a_use_for_the_figure_is_refused():
    run("all", "log.csv", "-o", "some", "--metric", "loss", "--smooth", "0.5", "--probe", "1", "--step", "9")
    for name, *words in (("flops_hist", "--smooth", "0.5"), ("training", "--probe", "1"), ("training", "--step", "9"), ("layer_map", "--log", "x"),
                         ("pareto", "-x", "time_ratio"), ("routing_map", "--range", "1..2"), ("signal_depth", "--metric", "loss")):
        assert "figure %s: %s: unexpected" % (name, words[0]) in run(name, "log.csv", *words, "-o", "never", code=2)[1]
    run("training", "log.csv", "-o", "one", "--metric", "loss", "--smooth", "0.5", "--log", "y", "--range", "..9", "-x", "step")
    assert not os.path.exists("never")


@test
def a_dry_run_writes_no_file():
    both = json.loads(run("all", "log.csv", "-o", "dry", "--dry-run", "--json")[0])
    assert [f["name"] for f in both["figures"]] == ["training"] and not os.path.exists("dry")
    assert both["figures"][0]["files"] == []


@test
def one_figure_can_be_one_file_or_standard_output():
    run("training", "log.csv", "-o", "whole")
    for kind in ("png", "svg", "pdf"):
        out, _ = run("training", "log.csv", "-o", "one." + kind)
        assert out == b"one.%s\n" % kind.encode(), out
        assert kind == "pdf" or open("one." + kind, "rb").read() == open("whole/training." + kind, "rb").read(), kind
    assert run("training", "log.csv", "-o", "-")[0] == open("one.png", "rb").read()
    assert run("training", "log.csv", "-o", "-", "--format", "svg")[0] == open("one.svg", "rb").read()
    assert json.loads(run("training", "log.csv", "-o", "two.png", "--json")[0])["figures"][0]["files"] == ["two.png"]
    os.mkdir("dir.png")
    assert run("training", "log.csv", "-o", "dir.png", "--format", "png")[0] == b"dir.png/training.png\n"
    for words, says in ((("all", "-o", "all.png"), "figure all: -o all.png: expected a directory"),
                        (("all", "-o", "-"), "figure all: -o -: expected a directory"),
                        (("training", "-o", "-", "--json"), "--json: unexpected with -o -"),
                        (("training", "-o", "-", "--format", "svg,png"), "--format svg,png: unexpected with -o -"),
                        (("training", "-o", "x.png", "--format", "svg"), "--format svg: unexpected with -o x.png")):
        _, err = run(words[0], "log.csv", *words[1:], code=2)
        assert says in err and err.count("\n") == 1, err
        assert not os.path.exists("-") and not os.path.exists("x.png") and not os.path.exists("all.png")
    assert run("training", "log.csv", "-o", "x.png", "--preview", "120")[0].startswith(b"P6") and not os.path.exists("x.png")


@test
def a_preview_is_an_image_on_standard_output():
    out, _ = run("training", "log.csv", "--preview", "120", "-o", "never")
    head, size, top, pixels = out.split(b"\n", 3)
    wide, high = map(int, size.split())
    assert head == b"P6" and top == b"255" and wide == 120 and len(pixels) == 3 * wide * high
    assert len(set(pixels)) > 10 and not os.path.exists("never")
    run("training", "log.csv", "--preview", "0", code=2)
    run("training", "log.csv", "--preview", "5", code=1)
    run("all", "log.csv", "--preview", "120", code=2)
    assert not run("training", "log.csv", "--preview", "120", "--json", code=2)[0]


@test
def again_redraws_json_and_tables_and_notices_a_change():
    run("all", "log.csv", "tasks.json", "-o", "again", "--format", "png")
    for name in ("training", "task_bars"):
        before = open("again/%s.png" % name, "rb").read()
        assert b"unchanged" in run("--again", "again/%s.png" % name)[0]
        assert open("again/%s.png" % name, "rb").read() == before
    x = json.loads(run("--again", "again/training.png", "--json")[0])
    assert x["file"] == "again/training.png" and x["name"] == "training" and x["changed"] is False and x["before"] == x["data"], x
    write("tasks.json", json.dumps({**TASKS, "results": {"piqa": {"acc,none": 0.7}}}))
    before = open("again/task_bars.png", "rb").read()
    assert run("--again", "again/task_bars.png", "--dry-run", code=1)[0] == b"again/task_bars.png: data changed\n"
    x = json.loads(run("--again", "again/task_bars.png", "--json", "--dry-run", code=1)[0])
    assert open("again/task_bars.png", "rb").read() == before, "a dry run writes no file"
    assert x["changed"] is True and x["before"] != x["data"] and len(x["data"]) == 64, x
    assert b"data changed" in run("--again", "again/task_bars.png", code=1)[0]
    write("tasks.json", json.dumps(TASKS))


@test
def bad_files_are_one_line():
    write("bad.json", '{"results":')
    write("bad.csv", "step,loss\n1,x\n")
    os.utime("bad.csv", (1700000000, 1700000000))  # nobody is writing it
    for name in ("bad.json", "bad.csv", "missing.json"):
        _, err = run("all", name, code=1)
        assert err.startswith("depthscope: ") and err.count("\n") == 1 and name in err, err


def with_recipe(png, **keys):
    """The picture with these keys of its recipe."""
    out, i = png[:8], 8
    while i < len(png):
        n = struct.unpack(">I", png[i:i + 4])[0]
        kind, data = png[i + 4:i + 8], png[i + 8:i + 8 + n]
        if data.startswith(b"depthscope\0"):
            at = data.index(b"{")
            data = data[:at] + json.dumps({**json.loads(data[at:]), **keys}).encode()
        out += struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        i += 12 + n
    return out


@test
def a_recipe_of_somebody_else_reads_and_writes_nothing_else():
    """A picture that was sent to a user: no host is asked, no command is run, no other file is written."""
    run("training", "log.csv", "-o", "sent", "--format", "png")
    good = open("sent/training.png", "rb").read()
    assert with_recipe(good) and b"unchanged" in run("--again", "sent/training.png")[0]
    write("ssh", "#!/bin/sh\ntouch '%s'\n" % os.path.abspath("called"))
    os.chmod("ssh", 0o755)
    os.environ["DEPTHSCOPE_SSH"] = os.path.abspath("ssh")
    write("secret", "of value")
    before = sorted(os.walk("."))
    def one(path, **keys):
        return {"runs": [{"path": path, "run": "log", "config": "0"}], **keys}
    for keys in (one("box:runs/a"), one("-oProxyCommand=touch called:x"), one("/dev/zero"), one("secret"), one(""), one("a" * 5000),
                 {"theme": "secret"}, {"theme": "../../secret"}, {"venue": "../secret"}, {"figure": "../training"}, {"figure": "all"},
                 {"figure": "\x1b]0;x\x07"}, {"runs": []}, {"runs": 3}, {"runs": [[]] * 100000}, {"dpi": 10 ** 9},
                 one("log.csv", metric="$(touch called)")):
        bad = with_recipe(good, **keys)
        with open("sent/training.png", "wb") as f:
            f.write(bad)
        status, out, err = call("figure", "--again", "sent/training.png")
        assert status == 1, (str(keys)[:80], status, out, err)
        assert err.startswith("depthscope: ") and err.count("\n") == 1 and "\x1b" not in err and "of value" not in err, (str(keys)[:80], err)
        assert open("sent/training.png", "rb").read() == bad, "the picture of %s was replaced" % str(keys)[:80]
        assert sorted(os.walk(".")) == before and not os.path.exists("called"), str(keys)[:80]
    del os.environ["DEPTHSCOPE_SSH"]


@test
def a_path_that_cannot_be_written_is_one_line():
    os.makedirs("taken/training.png/inside")  # a directory of the figure's name
    write("file", "")
    for out, part in (("taken", "training.png"), ("file", "Not a directory"), ("file/x", "Not a directory"), ("/proc/x", "/proc/x"),
                      ("y" * 300, "File name too long")):
        _, err = run("training", "log.csv", "-o", out, code=1)
        assert err.startswith("depthscope: ") and err.count("\n") == 1 and part in err, (out, err)
    assert os.listdir("taken/training.png") == ["inside"] and not [n for n in os.listdir("taken") if n.endswith(".tmp")]
    _, err = run("training", "log.csv", "-o", "wide", "--dpi", "100000", code=2)
    assert err.count("\n") == 1 and "2400" in err and not os.path.exists("wide"), err


def setup():
    write("log.csv", "step,loss\n" + "".join("%d,%g\n" % (i, 2 + 3 / (i + 1)) for i in range(40)))
    write("tasks.json", json.dumps(TASKS))


t.main(setup)
