"""Checkpoints in FP8 as DeepSeek, Qwen3, fbgemm and compressed-tensors store them have the values that PyTorch gives them, bit for bit.
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
SHAPE = ("model.method=dense", "model.layers=2", "model.dim=160", "model.heads=5", "model.kv_heads=1", "model.ffn=288", "model.vocab=300",
         "model.tied=false", "tokenizer=bytes")
# Rounds the matrices of every layer in m to FP8 and writes what they are then, in fp32, to the directory "plain".
ROUND = """
import json, sys, torch, safetensors.torch as st
how, w, plain = sys.argv[1], st.load_file("m/model.safetensors"), {}
out = {}
for k, v in w.items():
    if "_proj.weight" not in k:
        out[k] = plain[k] = v
        continue
    O, C = v.shape
    br, bc = {"block": (128, 128), "row": (1, C), "tensor": (O, C)}[how]
    R, K = -(-O // br), -(-C // bc)
    s = torch.stack([torch.stack([v[r*br:(r+1)*br, c*bc:(c+1)*bc].abs().max() / 448 for c in range(K)]) for r in range(R)])
    full = s.repeat_interleave(br, 0)[:O].repeat_interleave(bc, 1)[:, :C]
    q = (v / full).to(torch.float8_e4m3fn)
    out[k] = q
    plain[k] = q.to(torch.float32) * full
    if how == "block":
        out[k + "_scale_inv"] = s
    elif how == "row":
        out[k + "_scale"] = s
        out[k[:-6] + "input_scale_ub"] = torch.tensor([1200.0])
    else:
        out[k + "_scale"] = s.reshape(())
        out[k[:-6] + "input_scale"] = torch.tensor(1.0)
c = json.load(open("m/config.json"))
del c["depthscope"]
weights = dict(num_bits=8, type="float", strategy="tensor", symmetric=True)
c["quantization_config"] = {
    "block": dict(quant_method="fp8", fmt="e4m3", weight_block_size=[128, 128], activation_scheme="dynamic"),
    "row": dict(quant_method="fbgemm_fp8", activation_scale_ub=1200.0),
    "tensor": dict(quant_method="compressed-tensors", format="float-quantized", config_groups=dict(group_0=dict(weights=weights)))}[how]
json.dump(c, open("m/config.json", "w"))
st.save_file({k: v.contiguous() for k, v in out.items()}, "m/model.safetensors", {"format": "pt"})
st.save_file(plain, "plain/model.safetensors", {"format": "pt"})
"""


def values(folder):
    with open(folder + "/model.safetensors", "rb") as f:
        data = f.read()
    n = int.from_bytes(data[:8], "little")
    header = json.loads(data[8:8 + n])
    return {k: (v["dtype"], v["shape"], data[8 + n + v["data_offsets"][0]:8 + n + v["data_offsets"][1]])
            for k, v in header.items() if k != "__metadata__"}


def make(how):
    if subprocess.run([PYTHON, "-c", "import torch, safetensors.torch; torch.float8_e4m3fn"], stderr=subprocess.PIPE).returncode != 0:
        raise Skip("%s: no torch with float8 or safetensors" % PYTHON)
    for x in ("m", "plain", "back"):
        shutil.rmtree(x, ignore_errors=True)
    run("convert", "random:tiny", "-o", "m", *SHAPE)
    shutil.copytree("m", "plain")
    p = subprocess.run([PYTHON, "-c", ROUND, how], stderr=subprocess.PIPE, timeout=120 * t.SLOW)
    assert p.returncode == 0, p.stderr.decode()[-800:]


def losses(folder):
    return [x["nll"] for x in json.loads(run("trace", folder, "--text", "the old dog", "--json"))["tokens"]]


def check(how):
    make(how)
    run("convert", "m", "-o", "back", "weights=f32")
    assert values("back") == values("plain")
    assert losses("m") == losses("plain")


@test
def blocks_of_128_by_128():
    check("block")


@test
def one_scale_a_row():
    check("row")


@test
def one_scale_a_matrix():
    check("tensor")


@test
def a_configuration_that_means_other_weights_is_refused_by_name():
    make("block")
    with open("m/config.json") as f:
        config = json.load(f)
    for change, part in ({"weight_block_size": [64, 128]}, "weight_block_size [64, 128]: expected [128, 128]"), \
                        ({"quant_method": "bitsandbytes"}, "unsupported quantisation bitsandbytes"), \
                        ({"quant_method": "awq"}, "unsupported quantisation awq"), \
                        ({"fmt": "e5m2"}, "unsupported fmt e5m2"):
        with open("m/config.json", "w") as f:
            json.dump({**config, "quantization_config": {**config["quantization_config"], **change}}, f)
        run("trace", "m", "--text", "a", "--json", code=1)
        assert part in run.err, run.err


t.main()
