"""Callbacks of the Hugging Face Trainer and of Lightning: real trainings of tiny models, read back by the program."""
import json
import os
import socket
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from kit import needs, script, start, wait_for  # noqa: E402
import t  # noqa: E402
from t import SLOW, run, run_json, test  # noqa: E402

import depthscope as ds  # noqa: E402

TRAINER = """
import sys, torch, transformers as T, depthscope as ds
T.logging.set_verbosity_error()
torch.set_num_threads(1)
torch.manual_seed(0)
sizes = dict(vocab_size=97, hidden_size=32, intermediate_size=48, num_hidden_layers=3, num_attention_heads=2, num_key_value_heads=2,
             max_position_embeddings=64, pad_token_id=0, bos_token_id=0, eos_token_id=0)
m = T.AutoModelForCausalLM.from_config(T.MixtralConfig(**sizes, num_local_experts=4, num_experts_per_tok=2))
data = [{"input_ids": x, "labels": x} for x in torch.randint(1, 97, (64, 16)).tolist()]
args = T.TrainingArguments(output_dir="out", max_steps=int(sys.argv[1]), per_device_train_batch_size=4, logging_steps=2, save_steps=6,
                           eval_strategy="steps", eval_steps=6, report_to=[], use_cpu=True, disable_tqdm=True, learning_rate=1e-3,
                           lr_scheduler_type="constant")
cb = ds.DepthscopeCallback(probe=[[1, 2, 3, 4, 5, 6, 7]], every=4, name="hf", control=len(sys.argv) > 2)
trainer = T.Trainer(m, args, train_dataset=data, eval_dataset=data[:4], callbacks=[cb])
trainer.train()
print(trainer.state.global_step)
"""


@test
def a_run_of_the_trainer_is_read_by_the_program():
    python = needs("torch", "transformers", "accelerate")
    assert script(TRAINER, "12", python=python, seconds=300).split()[-1] == "12"
    rows = run_json("runs")
    row = [r for r in (rows if isinstance(rows, list) else rows["runs"]) if r["name"] == "hf"][0]
    assert row["step"] == 12 and row["state"] == "done", row
    data = ds.read("runs/hf")
    text = run("inspect", "runs/hf")
    for part in ("step 12 of 12", "loss", "val_loss", "lr", "grad_norm", "residual_norm", "3 layers x 7 tokens", "expert_weight_2",
                 "evaluation val at step 12"):
        assert part in text, "%r lacks %r" % (text, part)
    assert list(data.metrics["loss"].step) == [2, 4, 6, 8, 10, 12]
    events = [e["text"] for e in data.events if e["name"] == "checkpoint"]
    assert events == [os.path.join("out", "checkpoint-%d" % n) for n in (6, 12)] and all(os.path.isdir(e) for e in events), events
    assert "mean depth 3.00 of 3" in run("show", "depth", "runs/hf")
    assert "velocity" in run("show", "signals", "runs/hf", "--size", "120x40")
    with open("runs/hf/config.yaml", encoding="utf-8") as f:
        assert 'model.model_type: "mixtral"' in f.read()


HF_STUB = """
import sys, types
sys.modules["transformers"] = types.SimpleNamespace(TrainerCallback=object)
import depthscope as ds
from types import SimpleNamespace as S
cb = ds.DepthscopeCallback(watch=False, system_every=0, project="hf")
args, state, control = S(logging_steps=1, seed=1, output_dir="out"), S(max_steps=2, is_hyper_param_search=False), S()

def train(first=0):
    state.global_step = first
    cb.on_train_begin(args, state, control)
    for state.global_step in range(first + 1, 3):
        cb.on_log(args, state, control, logs={"loss": 1.0})
        cb.on_save(args, state, control)
    cb.on_train_end(args, state, control)

def evaluate():
    cb.on_log(args, state, control, logs={"eval_loss": 0.5})
    cb.on_evaluate(args, state, control, metrics={"eval_loss": 0.5})

train()
evaluate()
"""


@test
def what_follows_train_is_in_the_run():
    script(HF_STUB)
    d = ds.read("runs/hf-1")
    assert list(d.metrics["loss"].step) == [1, 2] and list(d.metrics["val_loss"].step) == [2] and d.end["status"] == "done", d.end
    assert [(e["step"], e["task"], e["values"]) for e in d.evaluations] == [(2, "val", {"loss": 0.5})], d.evaluations


@test
def a_second_train_goes_on_in_the_run_and_a_trial_has_its_own():
    script(HF_STUB + """
train()
evaluate()
train(1)  # from a checkpoint
state.is_hyper_param_search = True
train()
cb.run.finish()
state.is_hyper_param_search = False
train()
""", DEPTHSCOPE_RUNS="runs")
    d = ds.read("runs/hf-1")
    assert list(d.metrics["loss"].step) == [1, 2, 3, 4, 4] and list(d.metrics["val_loss"].step) == [2, 4] and d.head["steps"] == 4
    assert [(e["step"], e["text"]) for e in d.events] == [(n, "out/checkpoint-%d" % k) for n, k in ((1, 1), (2, 2), (3, 1), (4, 2), (4, 2))]
    for name in ("hf-2", "hf-3"):
        d = ds.read("runs/" + name)
        assert list(d.metrics["loss"].step) == [1, 2] and d.head["steps"] == 2 and d.end["status"] == "done", d.end


@test
def what_is_said_of_the_run_comes_before_what_the_trainer_knows():
    script(HF_STUB + """
cb.run.finish()
for first in (0, 1, 0):  # a start, from a checkpoint, a start again
    cb = ds.DepthscopeCallback(watch=False, system_every=0, name="mine", resume="allow", steps=100, seed=7, config={"x": 1})
    train(first)
    cb.run.finish()
""")
    d = ds.read("runs/mine")
    assert list(d.metrics["loss"].step) == [1, 2] and len(ds.read("runs/mine", superseded=True).metrics["loss"].step) == 5
    assert (d.head["steps"], d.head["seed"], d.head["config"], d.head["step"]) == (100, 7, {"x": "1"}, 0), d.head


@test
def trials_of_one_name_are_numbered():
    script(HF_STUB + """
cb.run.finish()
cb = ds.DepthscopeCallback(watch=False, system_every=0, name="tuned")
state.is_hyper_param_search = True
train()
train()
""")
    for name in ("tuned-1", "tuned-2"):
        d = ds.read("runs/" + name)
        assert list(d.metrics["loss"].step) == [1, 2] and d.end["status"] == "done", d.end


def ask(line):
    s = socket.socket(socket.AF_UNIX)
    s.settimeout(60 * SLOW)
    s.connect("runs/hf/control.sock")
    s.sendall(line.encode() + b"\n")
    got = s.makefile().readline().strip()
    s.close()
    return got


@test
def the_control_socket_steers_the_trainer():
    python = needs("torch", "transformers", "accelerate")
    p = start(TRAINER, "100000", "control", python=python)
    try:
        def has_stepped():
            assert p.poll() is None, p.stderr.read().decode()[-1500:]
            return os.path.exists("runs/hf/control.sock") and "loss" in ds.read("runs/hf").metrics

        wait_for(has_stepped, 120, "the first steps")
        assert ask("set lr 5e-3").startswith("ok")
        assert json.loads(ask('{"command":"probe"}'))["ok"]
        assert ask("checkpoint").startswith("ok")
        wait_for(lambda: [e for e in ds.read("runs/hf").events if e["name"] == "checkpoint"], 60, "a checkpoint")
        wait_for(lambda: abs(ds.read("runs/hf").metrics["lr"].value[-1] - 5e-3) < 1e-12, 60, "the learning rate")
        assert ask("stop").startswith("ok")
        out, err = p.communicate(timeout=120 * SLOW)
        assert p.returncode == 0, err.decode()[-1500:]
        last = int(out.split()[-1])
        assert last < 100000
        data = ds.read("runs/hf")
        assert {"set", "stop", "probe", "checkpoint"} <= {e["name"] for e in data.events}
    finally:
        if p.poll() is None:
            p.kill()
            p.wait()
    assert data.end["status"] == "stopped", data.end


LIGHTNING = """
import warnings, logging
warnings.simplefilter("ignore")
import torch, depthscope as ds
import lightning.pytorch as L
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
torch.set_num_threads(1)

class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.mix = torch.nn.Linear(16, 16)
    def forward(self, x):
        return x + self.mix(x).tanh()

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(97, 16)
        self.h = torch.nn.ModuleList([Block() for _ in range(3)])
        self.head = torch.nn.Linear(16, 97)
    def forward(self, ids):
        x = self.embed(ids)
        for b in self.h:
            x = b(x)
        return self.head(x)

class Module(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = Net()
        self.save_hyperparameters({"width": 16})
    def training_step(self, batch, i):
        x = batch[0]
        loss = torch.nn.functional.cross_entropy(self.net(x[:, :-1]).flatten(0, 1), x[:, 1:].flatten())
        self.log("loss", loss)
        return loss
    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), 1e-2)

data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randint(0, 97, (64, 9))), batch_size=4)
trainer = L.Trainer(max_steps=10, accelerator="cpu", log_every_n_steps=2, enable_progress_bar=False, enable_model_summary=False,
                    enable_checkpointing=False, logger=ds.DepthscopeLogger(name="l"),
                    callbacks=[ds.DepthscopeLightningCallback(probe=[[1, 2, 3, 4]], every=5)])
trainer.fit(Module(), data)
"""


@test
def a_run_of_lightning_is_read_by_the_program():
    python = needs("torch", "lightning")
    script(LIGHTNING, python=python, seconds=300)
    text = run("inspect", "runs/l")
    assert "done" in text and "3 layers x 4 tokens" in text and "loss" in text, text
    data = ds.read("runs/l")
    assert len(data.metrics["loss"].step) == 5, data.metrics["loss"]
    with open("runs/l/config.yaml", encoding="utf-8") as f:
        assert "width" in f.read()


STUB = """
import sys, types
for name in ("lightning", "lightning.pytorch", "lightning.pytorch.loggers"):
    sys.modules[name] = types.ModuleType(name)
sys.modules["lightning.pytorch.loggers"].Logger = object
import depthscope as ds
logger = ds.DepthscopeLogger(name="l", system_every=0)
logger.log_metrics({"val_loss": 3.0}, step=0)
logger.finalize("success")  # of trainer.validate()
for step in range(3):
    logger.log_metrics({"loss": 1.0}, step=step)
logger.finalize("%s")  # of trainer.fit()
logger.log_metrics({"test_loss": 2.0}, step=3)
"""


@test
def what_lightning_logs_after_a_fit_is_kept():
    script(STUB % "success")
    d = ds.read("runs/l")
    assert d.end["status"] == "done" and list(d.metrics["loss"].step) == [0, 1, 2] and list(d.metrics["test_loss"].step) == [3], d.end
    for status, want in (("failed", "failed"), ("interrupted", "stopped")):
        script(STUB % status, DEPTHSCOPE_RUNS=status)
        d = ds.read(status + "/l")
        assert d.end["status"] == want and "test_loss" not in d.metrics, d.end


@test
def lightning_goes_on_at_the_step_of_its_checkpoint():
    script("""
import sys, types, torch
for name in ("lightning", "lightning.pytorch", "lightning.pytorch.loggers"):
    sys.modules[name] = types.ModuleType(name)
sys.modules["lightning.pytorch.loggers"].Logger = sys.modules["lightning.pytorch"].Callback = object
import depthscope as ds
net = torch.nn.Sequential(torch.nn.Embedding(9, 8), *(torch.nn.TransformerEncoderLayer(8, 2, 8, batch_first=True) for _ in range(2)),
                          torch.nn.Linear(8, 9))
for first, last in ((0, 8), (4, 6)):
    logger = ds.DepthscopeLogger(name="l", system_every=0, resume="allow")
    callback = ds.DepthscopeLightningCallback(probe=[[1, 2, 3]], every=2, model=net, blocks=list(net)[1:3])
    trainer = types.SimpleNamespace(loggers=[logger], max_steps=8, global_step=first)
    callback.on_train_start(trainer, net)
    o = torch.optim.SGD(net.parameters(), 0.1)
    for step in range(first, last):
        net(torch.tensor([[1, 2, 3]])).sum().backward()
        o.step()
        logger.log_metrics({"loss": 1.0}, step=step)
    logger.log_metrics({"val_loss%d" % first: 1.0}, step=last)
    callback.on_train_end(trainer, net)
    logger.experiment.finish()
""", python=needs("torch"))
    d = ds.read("runs/l")
    assert [p["step"] for p in d.probes] == [0, 2, 4], [p["step"] for p in d.probes]
    assert list(d.metrics["loss"].step) == [0, 1, 2, 3, 4, 5] and "val_loss0" not in d.metrics and list(d.metrics["val_loss4"].step) == [6]


@test
def a_rate_that_is_set_scales_the_rest_of_every_schedule():
    python = needs("torch")
    script("""
import warnings
warnings.simplefilter("ignore")
import torch
from torch.optim.lr_scheduler import *
from depthscope.callbacks import set_lr

def one(make):
    p = torch.nn.Parameter(torch.zeros(1))
    p.grad = torch.zeros(1)
    o = torch.optim.SGD([p], lr=0.1)
    return o, make(o)

makes = {
    "lambda": lambda o: LambdaLR(o, lambda n: 1 / (n + 1)), "one cycle": lambda o: OneCycleLR(o, max_lr=0.1, total_steps=100),
    "sequence": lambda o: SequentialLR(o, [LinearLR(o, 0.1, total_iters=30), CosineAnnealingLR(o, 70)], [30]),
    "chain": lambda o: ChainedScheduler([StepLR(o, 7), SequentialLR(o, [ConstantLR(o, 0.5, 5), PolynomialLR(o, 90)], [20])]),
    "restarts": lambda o: CosineAnnealingWarmRestarts(o, 15, eta_min=0.01), "cosine": lambda o: CosineAnnealingLR(o, 90, eta_min=0.01),
    "cyclic": lambda o: CyclicLR(o, 0.01, 0.1, 20), "steps": lambda o: MultiStepLR(o, [5, 15, 25])}
for name, make in makes.items():
    (plain, twin), (o, s) = one(make), one(make)
    for i in range(90):
        for x in (plain, twin, o, s):
            x.step()
        want = plain.param_groups[0]["lr"]
        if i == 10:
            set_lr([o], [s], want / 10)
        got = o.param_groups[0]["lr"]
        assert abs(got - (want if i < 10 else want / 10)) < 1e-9, (name, i, got, want)
""", python=python)


@test
def a_missing_package_is_named():
    for make, package in (("ds.DepthscopeCallback()", "transformers"), ("ds.DepthscopeLogger()", "lightning"),
                          ("ds.DepthscopeLightningCallback()", "lightning"), ("ds.watch(None, None)", "torch"), ("ds.serve(None)", "torch")):
        out = script("""
import sys
for name in ("torch", "transformers", "lightning", "pytorch_lightning"):
    sys.modules[name] = None
import depthscope as ds
try:
    %s
except ImportError as e:
    print(e)
""" % make)
        assert "the package %s is not installed" % package in out or "the package pytorch_%s is not installed" % package in out, (make, out)


t.main(fresh=True)
