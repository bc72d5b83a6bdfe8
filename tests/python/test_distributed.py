"""Several ranks (gloo, on the CPU) and one run: data parallel, sharded, experts, pipeline stages."""
import json
import os
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from kit import SLOW, environment, needs  # noqa: E402
import t  # noqa: E402
from t import run, run_json, test  # noqa: E402

import depthscope as ds  # noqa: E402

START = """
import os, sys, json, warnings
warnings.simplefilter("ignore")
import torch, torch.distributed as dist, depthscope as ds
torch.set_num_threads(1)
rank = int(os.environ["RANK"])
dist.init_process_group("gloo", init_method="file://" + os.path.abspath("rendezvous"), rank=rank, world_size=2)

class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.mix = torch.nn.Linear(16, 16)
    def forward(self, x):
        return x + self.mix(x).tanh()

class Net(torch.nn.Module):
    def __init__(self, block=Block, n=3):
        super().__init__()
        self.embed = torch.nn.Embedding(97, 16)
        self.h = torch.nn.ModuleList([block() for _ in range(n)])
        self.norm, self.head = torch.nn.LayerNorm(16), torch.nn.Linear(16, 97)
    def forward(self, ids):
        x = self.embed(ids)
        for b in self.h:
            x = b(x)
        return self.head(self.norm(x))

def step(model, opt, x):
    loss = torch.nn.functional.cross_entropy(model(x[:, :-1]).flatten(0, 1), x[:, 1:].flatten())
    loss.backward()
    opt.step()
    opt.zero_grad()
    return loss

torch.manual_seed(0)
"""
END = "\ndist.barrier()\ndist.destroy_process_group()\n"


def both(text):
    """Runs a program on two ranks; gives their standard outputs."""
    python = needs("torch")
    if os.path.exists("rendezvous"):
        os.unlink("rendezvous")
    ps = [subprocess.Popen([python, "-c", START + text + END], env=environment(RANK=str(r), WORLD_SIZE="2", GLOO_SOCKET_IFNAME="lo", CUDA_VISIBLE_DEVICES=""),
                           stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL) for r in range(2)]
    outs = []
    try:
        for p in ps:
            out, err = p.communicate(timeout=180 * SLOW)
            assert p.returncode == 0, err.decode("utf-8", "replace")[-1500:]
            outs.append(out.decode())
    finally:
        for p in ps:
            if p.poll() is None:
                p.kill()
                p.wait()
    return outs


LOOP = """
run = ds.init(name="a")
ds.watch(model, run, probe=[[1, 2, 3, 4]], every=2)
torch.manual_seed(rank)
for it in range(5):
    loss = step(model, opt, torch.randint(0, 97, (2, 8)))
    run.log({"loss": loss}, step=it)
run.finish()
print(json.dumps([run.is_active, os.path.exists("runs/a/log.mp"), float(loss)]))
"""


def check_one_run():
    data = ds.read("runs/a")
    assert list(data.metrics["loss"].step) == [0, 1, 2, 3, 4]
    assert [p["step"] for p in data.probes] == [0, 2, 4], [p["step"] for p in data.probes]
    assert data.end["status"] == "done" and data.head["world_size"] == 2 and data.damage["gaps"] == 0
    assert len(run_json("runs")) == 1
    return data


@test
def two_ranks_of_data_parallel_give_one_run():
    outs = both("""
model = torch.nn.parallel.DistributedDataParallel(Net())
opt = torch.optim.SGD(model.parameters(), 0.1)
""" + LOOP)
    assert outs[0] and not json.loads(outs[1])[0]
    data = check_one_run()
    assert [float(x) for x in data.metrics["loss"].value][-1] == json.loads(outs[0])[2]
    assert "3 layers x 4 tokens" in run("inspect", "runs/a")


@test
def two_ranks_that_share_the_weights_give_the_same_probes_as_one_that_has_them_all():
    both("""
from torch.distributed.fsdp import fully_shard
model = Net()
if rank == 0:
    whole = ds.init(name="whole")
    ds.watch(model, whole, probe=[[1, 2, 3, 4]]).probe()
    whole.finish()
for b in model.h:
    fully_shard(b)
fully_shard(model)
opt = torch.optim.SGD(model.parameters(), 0.1)
run = ds.init(name="a")
ds.watch(model, run, probe=[[1, 2, 3, 4]], every=2)
for it in range(5):
    run.log({"loss": step(model, opt, torch.randint(0, 97, (2, 8)))}, step=it)
run.finish()
""")
    sharded, whole = ds.read("runs/a"), ds.read("runs/whole")
    assert [p["step"] for p in sharded.probes] == [0, 2, 4] and not [e for e in sharded.events if e["level"] != "info"]
    for key in ("velocity", "turn", "lens_nll"):
        a, b = sharded.probes[0]["cell"][key], whole.probes[0]["cell"][key]
        gap = [abs(float(x) - float(y)) for r, s in zip(a, b) for x, y in zip(r, s) if x == x]
        assert len(gap) >= 9 and max(gap) < 1e-5, (key, gap)
    assert sharded.probes[0]["lens_k"] == 3


@test
def counts_of_experts_are_summed_over_ranks():
    outs = both("""
class Moe(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.gate, self.experts, self.top_k = torch.nn.Linear(16, 4), torch.nn.ModuleList([Block() for _ in range(4)]), 2
    def forward(self, x):
        w, i = torch.softmax(self.gate(x), -1).topk(2)
        counts.append(torch.bincount(i.flatten(), minlength=4)) if torch.is_grad_enabled() else None
        return x + sum(((i == e) * w).sum(-1, keepdim=True) * self.experts[e](x) for e in range(4))
counts = []
model = torch.nn.parallel.DistributedDataParallel(Net(Moe, 2))
opt = torch.optim.SGD(model.parameters(), 0.1)
run = ds.init(name="a")
ds.watch(model, run, probe=[[1, 2, 3, 4]], every=2)
torch.manual_seed(rank)
for it in range(5):
    run.log({"loss": step(model, opt, torch.randint(0, 97, (2, 8)))}, step=it)
run.finish()
print(json.dumps([[int(n) for n in c] for c in counts]))
""")
    one, two = [json.loads(o.splitlines()[-1]) for o in outs]
    assert one != two and len(one) == 10
    matrices = ds.read("runs/a").matrices["expert_load"]
    assert list(matrices.step) == [2, 4]
    for k, m in enumerate(matrices.value):  # two steps of two layers each
        for layer in (0, 1):
            want = [sum(c[4 * k + 2 * s + layer][e] for c in (one, two) for s in (0, 1)) for e in range(4)]
            assert [int(x) for x in m[layer]] == want, (k, layer, m, want)
            assert sum(want) == 2 * 2 * 2 * 7 * 2


ASKED = """
opt = torch.optim.SGD(model.parameters(), 0.1)
run = ds.init(name="a", control=["pause"])
watch = ds.watch(model, run, probe=[[1, 2, 3, 4]], every=4)
for it in range(6):
    if rank == 0 and it == 1:
        print(watch.ask())
    run.log({"loss": step(model, opt, torch.randint(0, 97, (2, 8)))}, step=it)
run.finish()
"""


@test
def a_probe_that_one_rank_is_asked_for_waits_for_no_other_rank():
    outs = both("""
class Moe(Block):
    def __init__(self):
        super().__init__()
        self.gate, self.experts, self.top_k = torch.nn.Linear(16, 4), torch.nn.ModuleList([Block() for _ in range(4)]), 2
    def forward(self, x):
        w, i = torch.softmax(self.gate(x), -1).topk(2)
        return x + sum(((i == e) * w).sum(-1, keepdim=True) * self.experts[e](x) for e in range(4)) + 0 * self.mix(x)
model = torch.nn.parallel.DistributedDataParallel(Net(Moe, 2))
""" + ASKED)
    data = ds.read("runs/a")
    assert "before the next step" in outs[0] and [p["step"] for p in data.probes] == [0, 1, 4], [p["step"] for p in data.probes]
    assert list(data.matrices["expert_load"].step) == [4] and sum(map(sum, data.matrices["expert_load"].value[0])) == 2 * 2 * 4 * 2 * 7 * 2


@test
def a_probe_that_needs_all_ranks_is_run_where_all_count_it():
    outs = both("""
from torch.distributed.fsdp import fully_shard
model = Net()
for b in model.h:
    fully_shard(b)
fully_shard(model)
""" + ASKED)
    steps = [p["step"] for p in ds.read("runs/a").probes]
    assert "all ranks" in outs[0] and steps == [0, 4], (outs[0], steps)


@test
def a_rank_whose_records_fail_takes_part_in_the_probes_of_the_others():
    both("""
from torch.distributed.fsdp import fully_shard
from depthscope import _probe
def fails(*_):
    raise ValueError("no record")
_probe.Prober._body = fails
model = Net()
fully_shard(model)
opt = torch.optim.SGD(model.parameters(), 0.1)
run = ds.init(name="a")
ds.watch(model, run, probe=[[1, 2, 3, 4]], every=1)
for it in range(5):
    run.log({"loss": step(model, opt, torch.randint(0, 97, (2, 8)))}, step=it)
run.finish()
""")
    data = ds.read("runs/a")
    assert len(data.metrics["loss"].step) == 5 and [e["name"] for e in data.events] == ["probe"] * 5


@test
def pipeline_stages_write_two_logs_that_read_as_one_run():
    both("""
class Moe(Block):
    def __init__(self):
        super().__init__()
        self.gate, self.experts, self.top_k = torch.nn.Linear(16, 2), torch.nn.ModuleList([Block() for _ in range(2)]), 1
    def forward(self, x):
        return super().forward(x) * self.gate(x).amax(-1, keepdim=True)
stage = Net(Moe, 2)  # each stage has two blocks; the second one's are layers 2 and 3
run = ds.init(name="a", stage=rank, layer_offset=2 * rank, layers=2)
groups = [dist.new_group([r]) for r in range(2)]
ds.watch(stage, run, every=2, group=groups[rank])
opt = torch.optim.SGD(stage.parameters(), 0.1)
for it in range(4):
    loss = step(stage, opt, torch.randint(0, 97, (2, 8)))
    run.log({"loss": loss} if rank else {}, step=it)
    run.layers({"stage": [rank, rank]}, step=it)
run.finish()
""")
    assert sorted(f for f in os.listdir("runs/a") if f.startswith("log")) == ["log.1.mp", "log.mp"]
    data = ds.read("runs/a")
    assert data.head["layers"] == 4, data.head
    assert [[float(x) for x in v] for v in data.layers["stage"].value] == [[0, 0, 1, 1]] * 4
    norms = data.layers["residual_norm"]
    assert list(norms.step) == [0, 2] and all(len(v) == 4 and all(x == x and x > 0 for x in v) for v in norms.value), norms
    assert "loss" in data.metrics
    load = data.matrices["expert_load"]
    assert load.layer == [[0, 1, 2, 3]] and [sum(row) for row in load.value[0]] == [2 * 2 * 7] * 4, load


t.main(fresh=True)
