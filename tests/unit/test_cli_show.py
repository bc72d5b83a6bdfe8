"""depthscope show: every format of every view, what is pressed before the picture, bad input; and train --dry-run, whose
estimates the form of a new run prints too.  DEPTHSCOPE names the program."""
import html
import json
import os
import re
import shutil
import struct
import sys
import zlib

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import t  # noqa: E402
from records import Log  # noqa: E402
from t import ROOT, run, test  # noqa: E402

STREAM = os.path.join(ROOT, "tests", "screens", "training.mp")
HOSTILE = os.path.join(ROOT, "tests", "screens", "hostile.mp")


def refused(text, *words, code=2):
    run(*words, code=code)
    assert text in run.err, "%r lacks %r" % (run.err, text)


def pixels(data):
    """Width, height and rows of a PNG of 8-bit RGB without filters."""
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    at, body, size = 8, b"", None
    while at < len(data):
        n, kind = struct.unpack(">I4s", data[at:at + 8])
        part = data[at + 8:at + 8 + n]
        assert zlib.crc32(kind + part) == struct.unpack(">I", data[at + 8 + n:at + 12 + n])[0]
        size = struct.unpack(">IIBB", part[:10]) if kind == b"IHDR" else size
        body += part if kind == b"IDAT" else b""
        at += 12 + n
    w, h, depth, colour = size
    assert (depth, colour) == (8, 2)
    raw = zlib.decompress(body)
    assert all(raw[y * (3 * w + 1)] == 0 for y in range(h)), "filtered rows"
    return w, h, [raw[y * (3 * w + 1) + 1:(y + 1) * (3 * w + 1)] for y in range(h)]


@test
def text_is_the_screen_in_every_view():
    for view in ("home", "monitor", "depth", "signals", "flops", "figures", "log", "manual"):
        for size in ("20x5", "80x24", "200x50"):
            cols, rows = map(int, size.split("x"))
            lines = run("show", view, STREAM, "--size", size).splitlines()
            assert len(lines) == rows and all(len(line) <= cols for line in lines), (view, size)
            assert "\x1b" not in "".join(lines)
    assert "fixture-edp" in run("show", "monitor", STREAM)
    assert "No runs" in run("show", "home")


@test
def layers_of_a_loop_have_one_name_in_every_view():
    run("train", "hops", "model.dim=32", "model.head_dim=16", "model.ffn=64", "train.batch=2", "train.seq=32", "train.steps=2", "train.samples=64",
        "train.final_tokens=256", "train.eval_tokens=128", "train.time_rounds=0", "train.probe_tokens=16", "train.probes=1", "--run", "loop")
    for view, text in (("flops", "by iteration"), ("flops", "iteration 5"), ("depth", "iteration 0"), ("timeline", "iteration 0 "),
                       ("timeline", "no iteration collapsed")):
        screen = run("show", view, "loop", "--size", "100x30")
        assert text in screen and not re.search("layer [0-9]|by layer", screen), (view, screen)


@test
def the_checkpoint_of_a_stop_has_the_loss_of_its_evaluation():
    log = Log("runs/a/log.mp")
    log.put("head", 0, format=1, run="a", method="dense", layers=2, steps=9)
    log.put("metric", 4, loss=3.0, val_loss=2.75)
    log.put("metric", 7, loss=2.5)
    log.put("eval", 7, task="val", routing="causal", loss=2.25)
    log.put("eval", 7, task="val", routing="topk", loss=1.0)
    for step in (4, 7):
        os.makedirs("runs/a/checkpoints/step-%08d" % step)
        with open("runs/a/checkpoints/step-%08d/manifest.json" % step, "w") as f:
            f.write('{"files":[]}')
    screen = run("show", "home", "--size", "140x20")
    assert re.search(r"step 7 +val 2\.2500", screen) and re.search(r"step 4 +val 2\.7500", screen), screen


@test
def text_says_without_colours_what_a_cell_is():
    lines = run("show", "depth", STREAM, "--size", "80x24").splitlines()
    legend = [x for x in lines if "executed" in x and "skipped" in x][0]
    assert re.search("\u2588 executed +\u00b7 skipped", legend), legend
    rows = [x for x in lines if re.match("[ \u203a]+[0-9] [\u2588\u00b7\\[]", x)]
    assert len(rows) == 8 and any("\u00b7" in x and "\u2588" in x for x in rows), "\n".join(lines)
    assert "\u2588" not in run("show", "depth", STREAM, "--size", "80x24", "--format", "html").split("layer")[0]


@test
def alerts_and_changed_settings_are_marked_on_the_axis_of_steps():
    marks = {}
    for name in ("alert", "set", "evaluation"):
        log = Log("marks/%s/log.mp" % name)
        log.put("head", 0, format=1, run=name, method="dense", layers=2)
        for step in range(100):
            log.put("metric", step, loss=2.0)
        log.put("event", 50, level="warn", name=name, text="x")
        screen = run("show", "monitor", "marks/%s/log.mp" % name)
        marks[name] = screen.count("\u2575")
    assert marks == {"alert": 1, "set": 1, "evaluation": 0}, marks
    for step in range(100):  # the newest are shown
        log.put("event", 0, level="warn", name="alert", text="x")
    log.put("event", 50, level="warn", name="alert", text="x")
    assert run("show", "monitor", "marks/evaluation/log.mp").count("\u2575") == 2
    shutil.rmtree("marks")


@test
def ansi_holds_the_same_text_with_colours_that_end_on_every_line():
    plain = run("show", "monitor", STREAM, "--size", "80x24")
    coloured = run("show", "monitor", STREAM, "--size", "80x24", "--format", "ansi")
    assert all("\x1b[" not in x or x.endswith("\x1b[0m") for x in coloured.splitlines())
    assert "\x1b[0;1;38;2;" in coloured
    stripped = re.sub("\x1b\\[[0-9;]*m", "", coloured)
    assert [x.rstrip() for x in stripped.splitlines()] == [x.rstrip() for x in plain.splitlines()]
    dark, light = (run("show", "monitor", STREAM, "--format", "ansi", "--theme", x) for x in ("dark", "light"))
    assert dark != light


@test
def no_text_has_the_colour_of_its_background():
    for theme in (os.path.join(ROOT, "themes", "16-colour.theme"), "dark", "light"):
        text = run("show", "monitor", STREAM, "--size", "80x24", "--format", "ansi", "--theme", theme)
        pairs = re.findall("\x1b\\[0[0-9;]*;38;2;([0-9]+;[0-9]+;[0-9]+);48;2;([0-9]+;[0-9]+;[0-9]+)m *[^ \x1b]", text)
        assert pairs and all(fore != back for fore, back in pairs), (theme, pairs)


@test
def html_is_one_page_with_escaped_text():
    page = run("show", "depth", HOSTILE, "--format", "html", "--size", "80x24")
    assert page.startswith("<!DOCTYPE html>") and "<script" not in page and "http" not in page and "\x1b" not in page
    body = re.sub("<[^>]*>", "", page.split("<pre", 1)[1].split(">", 1)[1].split("</pre>")[0]).lstrip("\n")
    plain = run("show", "depth", HOSTILE, "--size", "80x24")
    assert [x.rstrip() for x in html.unescape(body).splitlines()] == [x.rstrip() for x in plain.splitlines()]
    assert "&lt;0x1B&gt;" in page


@test
def png_has_a_pixel_grid_of_cells_and_shows_blocks_and_dots():
    run("show", "depth", STREAM, "--size", "80x24", "-o", "d.png")
    data = open("d.png", "rb").read()
    w, h, rows = pixels(data)
    assert (w, h) == (800, 480) and len(data) < 200000
    colours = {row[3 * x:3 * x + 3] for row in rows for x in range(w)}
    for name, rgb in (("executed", 0x5AA2F2), ("skipped", 0x2A313B), ("background", 0x14181E)):
        assert rgb.to_bytes(3, "big") in colours, name
    run("show", "depth", STREAM, "--size", "80x24", "-o", "again.png")
    assert open("again.png", "rb").read() == data, "the same screen gave other bytes"
    run("show", "depth", STREAM, "--size", "80x24", "--theme", "light", "-o", "light.png")
    assert bytes(pixels(open("light.png", "rb").read())[2][470][-3:]) == b"\xff\xff\xff"


@test
def keys_are_pressed_before_the_picture():
    assert "keys" in run("show", "monitor", STREAM, "--keys", "?")
    assert "Depth map  " in run("show", "monitor", STREAM, "--keys", "3")
    assert "not found: zzz" in run("show", "log", STREAM, "--keys", "/; type zzz; Enter")
    assert "train" in run("show", "monitor", STREAM, "--keys", ":explain train.lr")
    assert "read-only" in run("show", "home", "--keys", "command new quick")


@test
def what_is_explained_has_definition_unit_formula_and_source():
    out = run("show", "monitor", STREAM, "--keys", "=")
    for part in ("definition  training loss", "unit        nats/token", "formula     -(1/N) sum_t", "metric record, step 150"):
        assert part in out, part
    assert "read-out" not in out and "Esc closes" in out
    assert "Esc closes" not in run("show", "monitor", STREAM, "--keys", "= Esc")
    for view, part in (("depth", "executed"), ("signals", "probe record, step 150"), ("flops", "FLOPs/token"), ("log", "nothing to explain")):
        assert part in run("show", view, STREAM, "--keys", "="), view
    assert "peak learning rate" in run("show", "monitor", STREAM, "--keys", ":explain train.lr")
    assert "nonsense: not a metric" in run("show", "monitor", STREAM, "--keys", ":explain nonsense")


@test
def bad_input_is_one_line():
    refused("did you mean monitor?", "show", "monotor", STREAM)
    refused("missing view", "show")
    refused("missing run", "show", "depth")
    refused("nothing-here", "show", "depth", "nothing-here", code=1)
    refused("from 1x1 to 1000x500", "show", "depth", STREAM, "--size", "1001x20")
    refused("expected COLUMNSxROWS", "show", "depth", STREAM, "--size", "wide")
    refused("expected text, ansi, html or png", "show", "depth", STREAM, "--format", "gif")
    refused("--keys: unknown key", "show", "depth", STREAM, "--keys", "Nonsense")
    refused("no/such/place", "show", "depth", STREAM, "-o", "no/such/place.txt", code=1)
    assert not os.path.exists("runs")


@test
def a_dry_run_says_what_a_run_needs_and_starts_nothing():
    out = run("train", "--dry-run", "quick", "train.steps=100")
    for part in ("parameters", "FLOPs/token", "memory", "disk", "time", "nothing was started"):
        assert part in out, part
    x = json.loads(run("train", "--dry-run", "--json", "quick", "train.steps=100"))
    twice = json.loads(run("train", "--dry-run", "--json", "quick", "train.steps=200"))
    assert abs(twice["flops_run"] / x["flops_run"] - 2) < 1e-9 and twice["params"] == x["params"]
    big = json.loads(run("train", "--dry-run", "--json", "quick", "train.steps=100", "train.batch=16"))
    assert big["memory_bytes"] > x["memory_bytes"]
    kept = json.loads(run("train", "--dry-run", "--json", "quick", "train.steps=100", "train.checkpoint_every=10", "train.keep=4"))
    assert kept["checkpoints"] == 5 and kept["disk_bytes"] == 5 * kept["checkpoint_bytes"]
    assert x["seconds"] > 0 and not os.path.exists("runs")
    refused("train.lr", "train", "--dry-run", "train.lr=-1")
    refused("expected a new run", "train", "--dry-run", "--resume", "nothing")
    refused("--run a b: expected a name", "train", "--dry-run", "--run", "a b")
    refused("data.path = /no/such/text: not found", "train", "--dry-run", "data.path=/no/such/text", code=1)
    assert not os.path.exists("runs")
    os.makedirs("runs/there")
    open("runs/there/config.yaml", "w").close()
    refused("run already exists", "train", "--dry-run", "--run", "there", code=1)
    shutil.rmtree("runs")


@test
def the_estimate_of_a_dry_run_is_near_what_a_run_takes():
    words = ["quick", *t.TINY]
    x = json.loads(run("train", "--dry-run", "--json", *words))
    run("train", *words, "--run", "tiny", "--quiet")
    head = json.loads(run("inspect", "runs/tiny", "--json"))
    files = 0
    for where, _, names in os.walk("runs/tiny/checkpoints"):
        files += sum(os.path.getsize(os.path.join(where, n)) for n in names if n.endswith(".safetensors"))
    assert head and abs(files / x["disk_bytes"] - 1) < 0.2, (files, x)


t.main(fresh=True)
