"""The package as it is shipped: the wheel in a fresh environment, its types, its oldest Python, its conversion of data sets, and a
training script that was changed in a few lines."""
import ast
import base64
import csv
import glob
import gzip
import hashlib
import io
import json
import os
import re
import struct
import subprocess
import sys
import time
import zipfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from kit import PACKAGE, PROGRAM, ROOT, SLOW, Skip, environment, needs, script  # noqa: E402
import t  # noqa: E402
from t import run, run_json, test  # noqa: E402

import depthscope as ds  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))


def python(*words, code=0, interpreter=sys.executable, **env):
    p = subprocess.run([interpreter, *words], env=environment(**env), stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL,
                       timeout=240)
    python.err = p.stderr.decode("utf-8", "replace")
    assert p.returncode == code, "%s: exit status %d\n%s" % (words, p.returncode, python.err)
    return p.stdout.decode("utf-8", "replace")


def build(directory):
    return python(os.path.join(PACKAGE, "build_wheel.py"), directory).strip()


@test
def equal_sources_give_equal_wheels():
    one, two = open(build("one"), "rb").read(), open(build("two"), "rb").read()
    assert one == two
    with zipfile.ZipFile("one/depthscope-%s-py3-none-any.whl" % ds.__version__) as z:
        names = z.namelist()
        assert z.testzip() is None and "depthscope/py.typed" in names and len([n for n in names if n.endswith("RECORD")]) == 1
        assert sorted(n for n in names if n.endswith(".py")) == sorted("depthscope/" + os.path.basename(p)
                                                                       for p in glob.glob(os.path.join(PACKAGE, "depthscope", "*.py")))
        assert "\nVersion: %s\n" % ds.__version__ in z.read([n for n in names if n.endswith("METADATA")][0]).decode()


def with_program(program, code=0, **env):
    return python(os.path.join(PACKAGE, "build_wheel.py"), "wheel", program, code=code, **env).strip()


def elf(machine, segment):
    """The head of a program with one segment, 3 = it names a loader, and the version as a program has it."""
    head = struct.pack("<16sHHIQQQIHHHHHH", b"\x7fELF\x02\x01\x01", 2, machine, 1, 0, 64, 0, 0, 64, 56, 1, 0, 0, 0)
    return head + struct.pack("<II6Q", segment, 4, 0, 0, 0, 0, 0, 0) + b"depthscope %s\n\0" % ds.__version__.encode()


@test
def tags_of_a_wheel_say_where_its_program_runs():
    static = "manylinux2014_%s.manylinux_2_17_%s.musllinux_1_1_%s"
    for machine, segment, want in ((62, 1, static.replace("%s", "x86_64")), (183, 1, static.replace("%s", "aarch64")),
                                   (62, 3, "linux_x86_64"), (183, 3, "linux_aarch64")):
        with open("program", "wb") as f:
            f.write(elf(machine, segment))
        path = with_program("program")
        assert path == "wheel/depthscope-%s-py3-none-%s.whl" % (ds.__version__, want), path
        with zipfile.ZipFile(path) as z:
            names = z.namelist()
            text = z.read([n for n in names if n.endswith("/WHEEL")][0]).decode()
            assert re.findall(r"^Tag: (.*)$", text, re.M) == ["py3-none-" + x for x in want.split(".")] and "Root-Is-Purelib: false\n" in text, text
            item = z.getinfo("depthscope-%s.data/scripts/depthscope" % ds.__version__)
            assert item.external_attr >> 16 == 0o100755 and z.read(item) == elf(machine, segment)
            recorded = {r[0]: r[1] for r in csv.reader(io.StringIO(z.read([n for n in names if n.endswith("/RECORD")][0]).decode()))}
            assert set(recorded) == set(names)
            for n in names:
                digest = base64.urlsafe_b64encode(hashlib.sha256(z.read(n)).digest()).decode().rstrip("=")
                assert recorded[n] == ("" if n.endswith("/RECORD") else "sha256=" + digest), n
        with open(path, "rb") as f:
            first = f.read()
        with_program("program")
        with open(path, "rb") as f:
            assert f.read() == first, "equal inputs gave other bytes"
        with_program("program", SOURCE_DATE_EPOCH="1800000000")
        with zipfile.ZipFile(path) as z:
            assert {i.date_time for i in z.infolist()} == {time.gmtime(1800000000)[:6]}
    for data, part in ((b"#!/bin/sh\n", "not a 64-bit ELF program"), (elf(62, 1).replace(b"depthscope ", b"depthscope 9"), "not depthscope")):
        with open("program", "wb") as f:
            f.write(data)
        with_program("program", code=1)
        assert part in python.err and python.err.count("\n") == 1, python.err


def below(top):
    return {os.path.join(folder, n) for folder, _, names in os.walk(top) for n in names}


@test
def the_wheel_works_in_a_fresh_environment():
    if sys.platform == "linux" and SLOW == 1:
        wheel = with_program(PROGRAM)
    else:
        print("the program is not in the wheel here: not Linux, or an instrumented build")
        wheel = build("wheel")
    if subprocess.run([sys.executable, "-m", "venv", "env"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT).returncode:
        raise Skip("this python3 cannot make a virtual environment (python3-venv)")
    env = {k: v for k, v in environment().items() if k not in ("PYTHONPATH", "PYTHONDONTWRITEBYTECODE")}
    env["PATH"] = os.path.abspath("env/bin") + ":" + env["PATH"]

    def there(*words):
        p = subprocess.run(words, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
        assert p.returncode == 0, (words, p.stdout.decode())
        return p.stdout.decode()

    there("python", "-m", "pip", "--version")
    before = below("env")
    there("python", "-m", "pip", "install", "--quiet", "--no-index", "--disable-pip-version-check", os.path.abspath(wheel))
    got = there("python", "-c", "import depthscope as ds; r = ds.init(name='a'); r.log({'loss': 1.5}); r.finish(); "
                "print(ds.__file__, ds.read('runs/a')['loss'][0])")
    assert "site-packages" in got and got.endswith(" 1.5\n"), got
    there("python", "-m", "depthscope.convert", "--help")
    if "linux" in wheel:
        with open("env/bin/depthscope", "rb") as one, open(PROGRAM, "rb") as two:
            assert one.read() == two.read(), "what is on the PATH is not the program itself"
        assert there("depthscope", "--version") == "depthscope %s\n" % ds.__version__
        assert json.loads(there("depthscope", "runs", "--json"))[0]["name"] == "a"
        assert "1.5" in there("depthscope", "show", "monitor", "runs/a")
        if json.loads(there("depthscope", "--version", "--json"))["static"]:
            assert "quick" in there("depthscope", "presets"), "the data is not inside the program"
    assert run_json("inspect", "runs/a")["state"] == "done"
    there("python", "-m", "pip", "uninstall", "--quiet", "--yes", "--disable-pip-version-check", "depthscope")
    left = {p for p in below("env") - before if "/pip/" not in p and "/pkg_resources/" not in p and "/setuptools/" not in p}
    assert not left and not os.path.exists("env/share"), left


@test
def types_hold_under_strict_checking():
    interpreter = needs("mypy")
    python("-m", "mypy", "--strict", "--no-error-summary", "--cache-dir", os.path.abspath("cache"), "-p", "depthscope", interpreter=interpreter,
           MYPYPATH=PACKAGE)


@test
def the_syntax_is_that_of_python_3_9():
    for path in glob.glob(os.path.join(PACKAGE, "**", "*.py"), recursive=True):
        with open(path, encoding="utf-8") as f:
            text = f.read()
        ast.parse(text, feature_version=(3, 9))
        assert not re.search(r"^import (numpy|torch|pandas|transformers)|^from (numpy|torch|pandas|transformers)", text, re.M), path


# ---- convert ----

WANT = ["one", "two\nlines", "\u00e9 \U0001f600", "a,\"b\"\tc"]


def convert(*words, code=0, **kw):
    out = python("-m", "depthscope.convert", *words, code=code, **kw)
    if code:
        assert python.err.count("\n") == 1 and python.err.startswith("depthscope.convert: "), python.err
        assert not glob.glob(".*.tmp")
    return out


def lines(path):
    with open(path, encoding="utf-8") as f:
        return [json.loads(x)["text"] for x in f]


@test
def text_files_become_lines_of_json():
    with open("a.jsonl", "w", encoding="utf-8") as f:
        for x in WANT[:2] + [""]:
            f.write(json.dumps({"id": 1, "text": x}) + "\n\n")
    with open("b.csv", "w", encoding="utf-8", newline="") as f:
        w = csv.writer(f)
        w.writerows([["n", "Content"], [1, WANT[2]]])
    with gzip.open("c.json.gz", "wt", encoding="utf-8") as f:
        json.dump([{"story": WANT[3], "n": 3}], f)
    assert convert("a.jsonl", "b.csv", "c.json.gz", "-o", "text.jsonl") == "text.jsonl: 4 texts\n"
    assert lines("text.jsonl") == WANT
    assert [json.loads(x)["text"] for x in convert("a.jsonl", "-o", "-").splitlines()] == WANT[:2]
    with open("d.json", "w") as f:
        json.dump(["x", "y"], f)
    convert("d.json", "-o", "text.jsonl")
    assert lines("text.jsonl") == ["x", "y"]
    with open("E.TSV", "w") as f:
        f.write("text\tn\nhello, world\t1\n")
    convert("E.TSV", "-o", "text.jsonl")
    assert lines("text.jsonl") == ["hello, world"]
    with open("mark.csv", "w", encoding="utf-8-sig") as f:
        f.write("text,n\nx,1\n")
    with open("mark.jsonl", "w", encoding="utf-8-sig") as f:
        f.write('{"text": "\\ud800"}\n')
    assert [json.loads(x)["text"] for x in convert("mark.csv", "mark.jsonl", "-o", "-", PYTHONIOENCODING="ascii").splitlines()] == ["x", "?"]
    with open("long.jsonl", "w") as f:
        for i in range(400):
            f.write(json.dumps({"content": "sentence %d of a small world, again and again" % i}) + "\n")
    convert("long.jsonl", "-o", "text.jsonl")
    run("train", "quick", "data.path=text.jsonl", "--run", "a", "--quiet", *(x for x in t.TINY if not x.startswith("data.docs")))
    assert run_json("inspect", "runs/a")["state"] == "done"


@test
def data_sets_with_answers_keep_them():
    def written(name, rows):
        with open(name, "w", encoding="utf-8") as f:
            json.dump(rows, f, indent=1)
        return [json.loads(x) for x in convert(name, "-o", "-").splitlines()]

    assert written("p.json", [{"id": "1", "prompt": "a ", "completion": "b"}, {"prompt": "a", "completion": ""}]) == [{"prompt": "a ", "completion": "b"}]
    chat = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yes"}]
    assert written("m.json", [{"prompt": "hi", "messages": chat}, {"prompt": "hi", "messages": []}]) == [{"messages": chat}]
    assert written("c.json", [{"conversations": [{"from": "human", "value": "hi"}, {"from": "gpt", "value": "yes"}]}]) == [{"messages": chat}]
    assert written("i.json", [{"instruction": "Add", "input": "1 2", "output": "3"}, {"instruction": "Hi", "input": "", "output": "Ho"}]) == [
        {"prompt": "Add\n1 2\n", "completion": "3"}, {"prompt": "Hi\n", "completion": "Ho"}]
    assert written("q.json", [{"Question": "1 + 2", "Answer": "3"}]) == [{"prompt": "1 + 2\n", "completion": "3"}]
    assert written("t.json", [{"text": "x", "prompt": "a", "completion": "b"}]) == [{"text": "x"}]
    assert [json.loads(x) for x in convert("p.json", "--column", "prompt", "-o", "-").splitlines()] == [{"text": "a "}, {"text": "a"}]
    written("many.json", [{"instruction": "Count the stones in heap %d of the garden" % i, "output": "There are %d stones" % i} for i in range(600)])
    convert("many.json", "-o", "many.jsonl")
    run("train", "quick", "data.path=many.jsonl", "data.loss=answers", "--run", "answers", "--quiet", *(x for x in t.TINY if not x.startswith("data.docs")))


@test
def what_cannot_be_converted_is_one_line_and_leaves_the_file():
    open("keep.jsonl", "w").write("old")
    packed = gzip.compress(b'{"text": "a"}\n' * 1000)
    cases = {"bad.jsonl": ('{"text": "a"}\n{nonsense\n', "bad.jsonl:2: not JSON"), "cols.csv": ("a,b\n1,2\n", "choose one with --column: a, b"),
             "x.txt": ("a", "unsupported file type"), "empty.jsonl": ("", "no texts"), "num.jsonl": ('{"text": 3}\n', "holds int, expected text"),
             "list.jsonl": ("[1]\n", "line 1: expected an object, found list"), "latin.csv": (b"text\n\xff\xfe\n", "not UTF-8"),
             "cut.jsonl.gz": (packed[:-20], "gzip stream is damaged or cut"), "bits.csv.gz": (packed[:20] + b"\xff" * 20, "gzip stream is damaged or cut"),
             "deep.json": ("[" * 100000, "nested too deeply"), "chat.json": ('[{"messages": [{"role": "user", "content": [1]}]}]', "chat.json: item 1: expected text as content"),
             "chat.csv": ("messages\nhello\n", "chat.csv: expected a list of messages with role and content"),
             "asked.jsonl": ('{"question": 3, "answer": "4"}\n', "asked.jsonl: line 1: expected text, found int")}
    for name, (data, part) in cases.items():
        with open(name, "wb") as f:
            f.write(data if isinstance(data, bytes) else data.encode())
        convert(name, "-o", "keep.jsonl", code=1)
        assert part in python.err, (name, python.err)
    convert("missing.csv", "-o", "keep.jsonl", code=1)
    assert "No such file" in python.err
    convert("cols.csv", "--column", "z", "-o", "keep.jsonl", code=1)
    assert "no column 'z'; it has a, b" in python.err
    convert("cols.csv", "--column", "b", "-o", "ok.jsonl")
    assert lines("ok.jsonl") == ["2"] and open("keep.jsonl").read() == "old"


@test
def without_pyarrow_parquet_is_refused_with_the_reason():
    open("a.parquet", "wb").write(b"PAR1")
    p = "import sys; sys.modules['pyarrow'] = None; sys.modules['pyarrow.parquet'] = None; from depthscope.convert import main; sys.exit(main(['a.parquet', '-o', 'b']))"
    script(p, code=1)
    assert "needs the package pyarrow" in script.err and script.err.count("\n") == 1, script.err


@test
def parquet_and_arrow_are_streamed():
    interpreter = needs("pyarrow")
    script("""
import pyarrow as pa, pyarrow.parquet as pq, pyarrow.ipc as ipc, json, sys
want = json.loads(sys.argv[1])
t = pa.table({"id": list(range(4)), "text": want, "other": ["x"] * 4})
pq.write_table(t, "a.parquet", row_group_size=2)
with pa.OSFile("b.arrow", "wb") as f, ipc.new_file(f, t.schema) as w: w.write_table(t)
with pa.OSFile("c.arrow", "wb") as f, ipc.new_stream(f, t.schema) as w: w.write_table(t)
pq.write_table(pa.table({"only": want, "n": [1, 2, 3, 4]}), "d.parquet")
pq.write_table(pa.table({"messages": [[{"content": x, "role": "user"}] for x in want], "id": want}), "chat.parquet")
big = pa.table({"text": ["row %d" % i for i in range(20000)]})
pq.write_table(big, "big.parquet", row_group_size=1000)
""", json.dumps(WANT), python=interpreter)
    for name in ("a.parquet", "b.arrow", "c.arrow", "d.parquet"):
        convert(name, "-o", "out.jsonl", interpreter=interpreter)
        assert lines("out.jsonl") == WANT, name
    convert("chat.parquet", "-o", "out.jsonl", interpreter=interpreter)
    with open("out.jsonl", encoding="utf-8") as f:
        assert [json.loads(x)["messages"] for x in f] == [[{"role": "user", "content": x}] for x in WANT]
    convert("a.parquet", "--column", "other", "-o", "out.jsonl", interpreter=interpreter)
    assert lines("out.jsonl") == ["x"] * 4
    convert("big.parquet", "-o", "out.jsonl", interpreter=interpreter)
    assert lines("out.jsonl") == ["row %d" % i for i in range(20000)]
    raw = open("a.parquet", "rb").read()
    for n in (0, 4, len(raw) // 2, len(raw) - 3):
        open("cut.parquet", "wb").write(raw[:n])
        convert("cut.parquet", "-o", "none.jsonl", code=1, interpreter=interpreter)
    assert not os.path.exists("none.jsonl")


# ---- a training script ----

@test
def five_lines_make_a_nanogpt_script_a_run():
    interpreter = needs("torch")
    with open(os.path.join(HERE, "nanogpt_like.py"), encoding="utf-8") as f:
        text = f.readlines()
    added = [x for x in text if x.rstrip().endswith("# depthscope")]
    assert 1 <= len(added) <= 5, added
    open("plain.py", "w").writelines(x for x in text if x not in added)
    settings = ["max_iters=30", "n_layer=2", "n_embd=16"]
    plain = python("plain.py", *settings, interpreter=interpreter)
    assert "depthscope" not in open("plain.py").read().split('"""')[2]
    watched = python(os.path.join(HERE, "nanogpt_like.py"), *settings, interpreter=interpreter)
    assert plain == watched, "the run changed the training"
    d = ds.read("runs/nanogpt")
    assert d.end["status"] == "done" and list(d.metrics["loss"].step) == list(range(30)) and len(d.metrics["val_loss"].value) == 2
    shown = {int(m.group(1)): float(m.group(2)) for m in re.finditer(r"iter (\d+): loss (\S+)", watched)}
    assert all(abs(d["loss"][i] - x) < 6e-5 for i, x in shown.items()) and len(shown) == 3
    assert [p["step"] for p in d.probes] == [0, 20] and all("inferred" in p or p["run"].all() for p in d.probes)
    assert "velocity" in d.probes[0]["cell"] and {"gate_ratio", "residual_norm"} <= set(d.layers)
    assert "nll" in run("show", "depth", "runs/nanogpt") and "velocity" in run("show", "signals", "runs/nanogpt")
    got = run_json("inspect", "runs/nanogpt")
    assert got["steps"] == 30 and got["state"] == "done" and d.head["config"]["n_embd"] == "16" and d.head["framework"].startswith("PyTorch")


t.main(fresh=True)
