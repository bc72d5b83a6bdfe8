"""A directory of PyTorch pickles is refused with the command that converts it, and that command works.
PYTHON names the interpreter that has torch and safetensors."""
import json
import os
import shutil
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import t  # noqa: E402
from t import Skip, run, test  # noqa: E402

PYTHON = os.environ.get("PYTHON", "python3")
PICKLE = """
import json, os, sys, torch, safetensors.torch
w = list(safetensors.torch.load_file("m/model.safetensors").items())
os.remove("m/model.safetensors")
parts = {"pytorch_model.bin": w} if sys.argv[1] == "1" else {"pytorch_model-0000%d-of-00002.bin" % (i + 1): w[i::2] for i in (0, 1)}
for name, part in parts.items():
    torch.save(dict(part), "m/" + name)
if len(parts) > 1:
    json.dump({"weight_map": {k: name for name, part in parts.items() for k, v in part}}, open("m/pytorch_model.bin.index.json", "w"))
"""


def python(*words, **kw):
    p = subprocess.run([PYTHON, *words], stderr=subprocess.PIPE, timeout=120 * t.SLOW, **kw)
    assert p.returncode == 0, p.stderr.decode()[-800:]


def losses():
    return [x["nll"] for x in json.loads(run("trace", "m", "--text", "the old dog", "--json"))["tokens"]]


def check(parts):
    if subprocess.run([PYTHON, "-c", "import torch, safetensors.torch"], stderr=subprocess.PIPE).returncode != 0:
        raise Skip("%s: no torch or safetensors" % PYTHON)
    shutil.rmtree("m", ignore_errors=True)
    run("convert", "random:tiny", "-o", "m", "model.method=dense", "model.tied=false", "tokenizer=bytes")
    before = losses()
    python("-c", PICKLE, parts)
    run("trace", "m", "--text", "a", "--json", code=1)
    command = run.err[run.err.index('python3 -c "') + 12:].rstrip("\n")
    assert "in its directory run python3" in run.err and command.endswith('"'), run.err
    python("-c", command[:-1], cwd="m")
    assert losses() == before


@test
def one_pickle_is_converted_by_the_command_that_its_refusal_names():
    check("1")


@test
def so_are_shards():
    check("2")


t.main()
