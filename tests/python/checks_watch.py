"""Checks of watch() that need torch and transformers; tests/python/test_watch.py runs them with PYTHON.  Each compares records with a
computation that shares nothing with the package.  Models are tiny, random and made from configurations.  TORCH_DEVICE=cuda makes all
of their tensors there."""
import copy
import math
import os
import shutil
import sys
import tempfile
import traceback
import types
import warnings

import numpy as np
import torch
import transformers as T

import depthscope as ds
from depthscope._blocks import find_blocks
from depthscope._log import Scan

T.logging.set_verbosity_error()
torch.set_num_threads(2)
DEVICE = os.environ.get("TORCH_DEVICE", "cpu")
torch.set_default_device(DEVICE)
checks = []
SIZES = dict(vocab_size=97, hidden_size=32, intermediate_size=48, num_hidden_layers=4, num_attention_heads=2, num_key_value_heads=2,
             max_position_embeddings=64, pad_token_id=0, bos_token_id=0, eos_token_id=0)
TEXT = [5, 17, 3, 88, 41, 9, 9, 60]


def check(f):
    checks.append(f)
    return f


def gpt2(**more):
    return T.GPT2Config(**{**dict(n_layer=4, n_head=2, n_embd=32, vocab_size=97, n_positions=64, bos_token_id=0, eos_token_id=0), **more})


def model_of(config, seed=0):
    torch.manual_seed(seed)
    return T.AutoModelForCausalLM.from_config(config)


def records(run):
    with open(os.path.join(run.dir, "log.mp"), "rb") as f:
        return [x.body for x in Scan(f) if x.body is not None]


def kinds(run, kind):
    return [b for b in records(run) if b["kind"] == kind]


def matrix(body, key, rows):
    return np.frombuffer(body["cell"][key], "<f4").reshape(rows, -1)


def vector(x):
    return np.frombuffer(x, "<f4") if isinstance(x, bytes) else np.array(x, dtype=np.float64)


def near(got, want, tolerance=2e-5):
    got, want = np.asarray(got, dtype=np.float64), np.asarray(want, dtype=np.float64)
    assert got.shape == want.shape, "shape %s, want %s" % (got.shape, want.shape)
    assert (np.isnan(got) == np.isnan(want)).all(), "NaN at other places: %s, want %s" % (got, want)
    gap = np.nanmax(np.abs(got - want) / (1 + np.abs(want))) if got.size else 0
    assert gap <= tolerance, "off by %g" % gap


def train(model, run, steps=4, batch=4, seed=1, log=True, **optimizer):
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3, **optimizer)
    g = torch.Generator(DEVICE).manual_seed(seed)
    model.train()
    losses = []
    for it in range(steps):
        x = torch.randint(1, 97, (batch, 16), generator=g)
        loss = model(input_ids=x, labels=x).loss
        loss.backward()
        opt.step()
        opt.zero_grad()
        losses.append(loss.item())
        if run is not None and log:
            run.log({"loss": loss}, step=it)
    return losses


def probe_of(model, text=TEXT, **options):
    """The record of one probe of a model."""
    run = ds.init(project="check")
    watch = ds.watch(model, run, probe=[text], **options)
    watch.probe()
    run.finish()
    assert not [b for b in kinds(run, "event") if b["level"] != "info"], kinds(run, "event")
    return kinds(run, "probe")[0]


def signals_of(h, ran=None):
    """Velocity, speed change, acceleration and turn before each layer, from the states h (layers + 1, tokens, channels), token by
    token as the text defines them."""
    layers, tokens = len(h) - 1, h[0].shape[0]
    out = np.zeros((4, layers, tokens))
    for t in range(tokens):
        kept, last = [0.0, 0.0, 0.0, 0.0], None
        for l in range(layers):
            out[:, l, t] = kept
            if ran is not None and not ran[l][t]:
                continue
            d, y = h[l + 1][t] - h[l][t], h[l + 1][t]
            size = max(np.linalg.norm(y), 1e-8)
            v = np.linalg.norm(d) / size
            if last is None:
                kept = [v, v, v, 0.0]
            else:
                kept = [v, abs(v - kept[0]), np.linalg.norm(d - last) / size, d @ last / (np.linalg.norm(d) * np.linalg.norm(last))]
            last = d
    return out


@check
def signals_are_those_of_the_hidden_states():
    for config in (gpt2(), T.LlamaConfig(**SIZES), T.GPTNeoXConfig(**{k: v for k, v in SIZES.items() if k != "num_key_value_heads"})):
        m = model_of(config).eval()
        with torch.no_grad():
            h = m(torch.tensor([TEXT]), output_hidden_states=True).hidden_states
        # the last of them is after the final norm, and no signal before a layer depends on it
        want = signals_of([x[0].double().cpu().numpy() for x in h])
        body = probe_of(m)
        for i, name in enumerate(("velocity", "speed_change", "acceleration", "turn")):
            near(matrix(body, name, 4), want[i])
        assert abs(want[0][1:]).min() > 1e-4 and len(set(np.round(want[3][2], 6))) > 1  # there is something to compare
        assert bytes(body["run"]) == b"\1" * (4 * len(TEXT)) and "inferred" not in body


@check
def losses_and_entropies_are_the_models():
    for config in (gpt2(resid_pdrop=0.3, embd_pdrop=0.3), T.LlamaConfig(**SIZES), T.Gemma2Config(**SIZES, head_dim=16, final_logit_softcapping=0.5),
                   T.CohereConfig(**SIZES, logit_scale=0.25)):
        m = model_of(config).eval()
        ids = torch.tensor([TEXT])
        with torch.no_grad():
            out = m(ids, labels=ids)
        logp = torch.log_softmax(out.logits[0].double(), -1).cpu().numpy()
        body = probe_of(m.train())  # the probe runs without dropout all the same
        assert m.training and m.get_input_embeddings().training
        nll, entropy = vector(body["nll"]), vector(body["entropy"])
        assert math.isnan(nll[0]) and math.isnan(entropy[0])
        near(nll[1:], [-logp[t, TEXT[t + 1]] for t in range(len(TEXT) - 1)])
        near(nll[1:].mean(), float(out.loss), 1e-5)
        near(entropy[1:], -(np.exp(logp) * logp).sum(-1)[:-1])


@check
def the_logit_lens_is_the_head_on_each_layers_state():
    for config in (gpt2(), T.Gemma2Config(**SIZES, head_dim=16, final_logit_softcapping=0.5)):
        m = model_of(config).eval()
        state = {}
        blocks = find_blocks(m).blocks
        hooks = [b.register_forward_hook(lambda _, __, out, l=l: state.__setitem__(l, out[0] if isinstance(out, tuple) else out))
                 for l, b in enumerate(blocks)]
        with torch.no_grad():
            logits = m(torch.tensor([TEXT])).logits[0]
        for h in hooks:
            h.remove()
        norm = m.transformer.ln_f if hasattr(m, "transformer") else m.model.norm
        body = probe_of(m, lens_k=3)
        ids, p = np.array(body["lens_id"]).reshape(4, len(TEXT), 3), vector(body["lens_p"]).reshape(4, len(TEXT), 3)
        assert body["lens_k"] == 3 and len(body["lens_text"]) == ids.size
        for l in range(4):
            with torch.no_grad():
                x = m.lm_head(norm(state[l]))[0].double()
                cap = getattr(config, "final_logit_softcapping", None)
                x = torch.softmax(cap * torch.tanh(x / cap) if cap else x, -1)
            top = x.topk(3)
            near(p[l], top.values.cpu().numpy())
            assert (ids[l] == top.indices.cpu().numpy()).all()
            nexts = [-math.log(x[t, TEXT[t + 1]]) for t in range(len(TEXT) - 1)]
            near(matrix(body, "lens_nll", 4)[l][:-1], nexts)
            near(matrix(body, "lens_entropy", 4)[l], -(x * x.log()).sum(-1).cpu().numpy())
        assert (ids[3, :, 0] == logits.argmax(-1).cpu().numpy()).all()


class Encoder(torch.nn.Module):
    """torch's own layers, sequence first."""

    def __init__(self, batch_first=False):
        super().__init__()
        self.embed = torch.nn.Embedding(97, 32)
        layer = torch.nn.TransformerEncoderLayer(32, 2, 48, dropout=0.1, batch_first=batch_first, norm_first=True)
        self.body = torch.nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)
        self.head = torch.nn.Linear(32, 97)
        self.is_first = batch_first

    def forward(self, ids):
        x = self.embed(ids)
        n = ids.shape[1]
        mask = torch.triu(torch.full((n, n), float("-inf")), 1)
        return self.head(self.body(x, mask) if self.is_first else self.body(x.transpose(0, 1), mask).transpose(0, 1))


@check
def a_sequence_first_encoder_is_read_as_a_batch_first_one():
    torch.manual_seed(0)
    a = Encoder(False)
    b = Encoder(True)
    b.load_state_dict(a.state_dict())
    one, two = probe_of(a), probe_of(b)
    assert one["layers"] == 3
    for name in one["cell"]:
        near(matrix(one, name, 3), matrix(two, name, 3))
    near(vector(one["nll"]), vector(two["nll"]))


class Block(torch.nn.Module):
    """skips: ids of tokens that it leaves as they are; in_place: adds to its input."""

    def __init__(self, width, skips=(), in_place=False):
        super().__init__()
        self.norm, self.mix = torch.nn.LayerNorm(width), torch.nn.Linear(width, width)
        self.skips, self.in_place = skips, in_place

    def forward(self, x, keep):
        d = self.mix(self.norm(x))
        if self.skips:
            return torch.where(keep.unsqueeze(-1), x + d, x)
        if self.in_place:
            x += d
            return x
        return x + d


class Net(torch.nn.Module):
    """A model in the manner of nanoGPT: (logits, loss), and without targets only the last position's logits."""

    def __init__(self, skips=(), in_place=False, run=None):
        super().__init__()
        self.wte = torch.nn.Embedding(97, 16)
        self.h = torch.nn.ModuleList([Block(16, skips if i == 1 else (), in_place) for i in range(3)])
        self.ln_f, self.lm_head = torch.nn.LayerNorm(16), torch.nn.Linear(16, 97, bias=False)
        self.skips, self.run = skips, run

    def forward(self, idx, targets=None):
        x = self.wte(idx)
        if not torch.is_grad_enabled():
            x = x.clone()
        keep = ~torch.isin(idx, torch.tensor(list(self.skips), dtype=torch.long, device=idx.device))
        for i, block in enumerate(self.h):
            if self.run is not None:
                self.run.gate(i, keep if i == 1 else torch.ones_like(keep))
            x = block(x, keep)
        x = self.ln_f(x)
        if targets is None:
            return self.lm_head(x[:, [-1], :]), None
        logits = self.lm_head(x)
        return logits, torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


def states(net, text=TEXT):
    """By hand: the states (layers + 1, tokens, channels)."""
    with torch.no_grad():
        x = net.wte(torch.tensor([text]))
        keep = ~torch.isin(torch.tensor([text]), torch.tensor(list(net.skips), dtype=torch.long))
        h = [x.clone()]
        for block in net.h:
            x = block(x.clone(), keep)
            h.append(x.clone())
        return [s[0].double().cpu().numpy() for s in h]


@check
def a_model_that_computes_only_the_last_logits_has_all_losses():
    torch.manual_seed(0)
    net = Net()
    body = probe_of(net)
    with torch.no_grad():
        loss = net(torch.tensor([TEXT[:-1]]), torch.tensor([TEXT[1:]]))[1]
    near(vector(body["nll"])[1:].mean(), float(loss), 1e-5)


@check
def blocks_that_add_in_place_are_seen_as_they_are():
    torch.manual_seed(0)
    net = Net(in_place=True)
    body = probe_of(net)
    want = signals_of(states(net))
    near(matrix(body, "velocity", 3), want[0])
    near(matrix(body, "acceleration", 3), want[2])
    assert set(bytes(body["run"])) == {1} and "inferred" not in body


@check
def an_unchanged_residual_is_a_skip_and_labelled_inferred():
    torch.manual_seed(0)
    net = Net(skips=(3, 9))
    body = probe_of(net)
    ran = np.frombuffer(body["run"], "u1").reshape(3, -1)
    want = np.ones((3, len(TEXT)))
    want[1] = [x not in (3, 9) for x in TEXT]
    near(ran, want)
    assert body["inferred"] == ["run"]
    near(vector(body["depth"]), want.sum(0))
    near(matrix(body, "velocity", 3), signals_of(states(net), want)[0])  # held through the skip


@check
def the_share_of_executed_rows_comes_from_the_training_batch():
    torch.manual_seed(0)
    net, run = Net(skips=(3, 9)), ds.init(project="check")
    ds.watch(net, run, every=1)
    x = torch.tensor([[3, 4, 9, 5], [6, 7, 8, 3]])
    net(x, x)[1].backward()
    run.log({"loss": 1.0})
    run.finish()
    body = kinds(run, "layer")[0]
    near(body["gate_ratio"], [1, 5 / 8, 1])
    h = net.wte(x)
    keep = ~torch.isin(x, torch.tensor([3, 9]))
    want = []
    for block in net.h:
        h = block(h, keep)
        want.append(h.norm(dim=-1).mean().item())
    near(body["residual_norm"], want)


@check
def rows_that_do_not_enter_a_block_are_skipped():
    class Half(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.head = torch.nn.Embedding(97, 16), torch.nn.Linear(16, 97)
            self.h = torch.nn.ModuleList([torch.nn.TransformerEncoderLayer(16, 2, 8, batch_first=True) for _ in range(2)])

        def forward(self, ids):
            x = self.h[0](self.embed(ids))
            return self.head(torch.cat([self.h[1](x[:, ::2]), x[:, 1::2]], 1))

    run = ds.init(project="check")
    net = Half()
    ds.watch(net, run)
    net(torch.randint(0, 97, (3, 8))).sum().backward()
    run.finish()
    near(vector(kinds(run, "layer")[0]["gate_ratio"]), [1, 0.5])


@check
def gates_that_the_model_states_are_not_inferred_and_probes_do_not_count():
    torch.manual_seed(0)
    run = ds.init(project="check")
    net = Net(skips=(3, 9), run=run)
    ds.watch(net, run, probe=[[3, 3, 3, 9]], every=1)
    x = torch.tensor([[3, 4, 9, 5], [6, 7, 8, 3]])
    for _ in range(2):
        net(x, x)[1].backward()
        run.log({"loss": 1.0})
    run.finish()
    probes = kinds(run, "probe")
    assert bytes(probes[0]["run"]) == bytes([1] * 4 + [0] * 4 + [1] * 4) and "inferred" not in probes[0]
    shares = [b["gate_ratio"] for b in kinds(run, "layer") if "gate_ratio" in b]
    assert len(shares) == 2, shares
    for share in shares:
        near(share, [1, 5 / 8, 1])


@check
def training_is_bit_identical_with_and_without_it():
    for config in (gpt2(resid_pdrop=0.2, embd_pdrop=0.1, attn_pdrop=0.1), T.MixtralConfig(**SIZES, num_local_experts=4, num_experts_per_tok=2,
                                                                                      attention_dropout=0.1)):
        ends = []
        for is_watched in (False, True):
            m = model_of(config)
            run = ds.init(project="check") if is_watched else None
            if run is not None:
                ds.watch(m, run, probe=[TEXT, TEXT[::-1]], every=2)
            torch.manual_seed(5)
            losses = train(m, run, steps=6)
            ends.append((losses, [p.detach().clone() for p in m.parameters()], torch.get_rng_state()))
            if run is not None:
                assert m.training and all(x.training for x in m.modules())
                run.finish()
                assert len(kinds(run, "probe")) == 6
        assert ends[0][0] == ends[1][0], "losses differ"
        assert all(torch.equal(a, b) for a, b in zip(ends[0][1], ends[1][1])), "weights differ"
        assert torch.equal(ends[0][2], ends[1][2]), "the random state differs"


@check
def training_under_autocast_is_the_same_with_probes():
    ends = []
    for is_watched in (False, True):
        m = model_of(gpt2(resid_pdrop=0.2))
        run = ds.init(project="check")
        if is_watched:
            ds.watch(m, run, probe=[TEXT], every=2)
        opt = torch.optim.SGD(m.parameters(), 0.1)
        torch.manual_seed(5)
        for _ in range(3):
            x = torch.randint(1, 97, (2, 8))
            with torch.autocast(DEVICE.partition(":")[0], torch.bfloat16):
                loss = m(input_ids=x, labels=x).loss
            loss.backward()
            assert all(p.grad is not None for p in m.parameters())
            opt.step()
            opt.zero_grad()
            run.log({"loss": loss})
        run.finish()
        ends.append([p.detach().clone() for p in m.parameters()])
        assert len(kinds(run, "probe")) == 2 * is_watched and torch.is_autocast_cache_enabled()
    assert all(torch.equal(a, b) for a, b in zip(*ends)), "weights differ"


@check
def a_probe_calls_neither_train_nor_eval():
    class Merged(torch.nn.Linear):  # as loralib's layers: evaluation mode adds the adapter to the weights
        def train(self, mode=True):
            self.calls = getattr(self, "calls", 0) + 1
            return super().train(mode)

    class Block(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.mix, self.seen = Merged(8, 8), []

        def forward(self, x):
            self.seen.append(self.training)
            return x + self.mix(x)

    net = torch.nn.Sequential(torch.nn.Embedding(97, 8), Block(), Block(), torch.nn.Linear(8, 97))
    run = ds.init(project="check")
    ds.watch(net, run, probe=[TEXT], blocks=[net[1], net[2]]).probe()
    run.finish()
    assert len(kinds(run, "probe")) == 1
    for block in (net[1], net[2]):
        assert block.seen == [False] and block.training and not hasattr(block.mix, "calls")


MIXTURES = {
    "mixtral": lambda: T.MixtralConfig(**SIZES, num_local_experts=4, num_experts_per_tok=2, output_router_logits=True),
    "qwen2-moe": lambda: T.Qwen2MoeConfig(**SIZES, num_experts=6, num_experts_per_tok=3, moe_intermediate_size=16,
                                          shared_expert_intermediate_size=16, output_router_logits=True),
    "qwen3-moe": lambda: T.Qwen3MoeConfig(**SIZES, head_dim=16, num_experts=6, num_experts_per_tok=2, moe_intermediate_size=16,
                                          norm_topk_prob=True, output_router_logits=True),
    "olmoe": lambda: T.OlmoeConfig(**SIZES, num_experts=6, num_experts_per_tok=2, output_router_logits=True),
}


@check
def experts_and_loads_are_those_of_the_router_logits():
    for name, config in MIXTURES.items():
        c = config()
        top = c.num_experts_per_tok
        experts = getattr(c, "num_experts", None) or c.num_local_experts
        m = model_of(c)
        run = ds.init(project=name)
        ds.watch(m, run, probe=[TEXT], every=2)
        opt = torch.optim.SGD(m.parameters(), lr=0.1)
        g = torch.Generator(DEVICE).manual_seed(3)
        want, sums = np.zeros((4, experts)), []
        m.train()
        for it in range(5):
            x = torch.randint(1, 97, (2, 16), generator=g)
            out = m(input_ids=x, labels=x)
            if it and it % 2 == 0:
                sums.append(want)
                want = np.zeros((4, experts))
            for l, logits in enumerate(out.router_logits):
                chosen = torch.softmax(logits.detach().float(), -1).topk(top).indices.flatten()
                want[l] += np.bincount(chosen.cpu().numpy(), minlength=experts)
            out.loss.backward()
            opt.step()
            opt.zero_grad()
            run.log({"loss": out.loss}, step=it)
        m.eval()
        with torch.no_grad():
            logits = m(torch.tensor([TEXT])).router_logits
        run.finish()
        sums.append(want)  # what had been counted since the last log step is sent at the end
        got = kinds(run, "matrix")
        assert len(got) == 3 and all(b["name"] == "expert_load" and b["layer"] == [0, 1, 2, 3] for b in got), [b["step"] for b in got]
        for body, expected in zip(got, sums):
            near(vector(body["value"]).reshape(4, experts), expected)
            assert expected.sum() in (4 * 2 * 16 * top, 2 * 4 * 2 * 16 * top)
        head = kinds(run, "head")[-1]
        assert head["experts"] == experts and head["experts_per_token"] == top, head


@check
def the_cells_of_a_mixture_are_the_chosen_experts_and_their_weights():
    for name, config in MIXTURES.items():
        c = config()
        m = model_of(c).eval()
        with torch.no_grad():
            logits = m(torch.tensor([TEXT])).router_logits
        body = probe_of(m)
        for l, x in enumerate(logits):
            p = torch.softmax(x.double(), -1).topk(c.num_experts_per_tok)
            weights = p.values / p.values.sum(-1, keepdim=True) if name == "mixtral" or getattr(c, "norm_topk_prob", False) else p.values
            for k in range(c.num_experts_per_tok):
                suffix = "_%d" % (k + 1) if k else ""
                near(matrix(body, "expert" + suffix, 4)[l], p.indices[:, k].cpu().numpy())
                near(matrix(body, "expert_weight" + suffix, 4)[l], weights[:, k].cpu().numpy())
                assert body["cell_kind"]["expert" + suffix] == "category" and body["cell_kind"]["expert_weight" + suffix] == "amount"


class Gate(torch.nn.Module):
    """A router in each of the shapes that are known."""

    def __init__(self, shape):
        super().__init__()
        self.weight, self.shape = torch.nn.Parameter(torch.randn(5, 16)), shape

    def forward(self, x):
        logits = x.reshape(-1, 16) @ self.weight.T
        values, index = torch.softmax(logits, -1).topk(2)
        every = torch.zeros_like(logits).scatter(1, index, values)
        return {"logits": logits, "triple": (logits, values, index), "pair": (index, values), "dense": (every, index),
                "scattered": (every, logits), "mask": ((every > 0).long(), logits)}[self.shape]


class Mixture(torch.nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.gate, self.shape, self.top_k, self.norm_topk_prob = Gate(shape), shape, 2, False
        self.experts = torch.nn.ModuleList([torch.nn.Linear(16, 16) for _ in range(5)])

    def forward(self, x):
        logits = x.reshape(-1, 16) @ self.gate.weight.T
        self.gate(x)
        values, index = torch.softmax(logits, -1).topk(2)
        y = sum((self.experts[e](x) * ((index == e) * values).sum(-1).reshape(*x.shape[:-1], 1)) for e in range(5))
        return x + y


class Mixtures(torch.nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.embed = torch.nn.Embedding(97, 16)
        self.layers = torch.nn.ModuleList([Mixture(shape) for _ in range(2)])
        self.head = torch.nn.Linear(16, 97)

    def forward(self, ids):
        x = self.embed(ids)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


@check
def every_shape_of_a_router_gives_the_same_cells_and_loads():
    seen = []
    for shape in ("logits", "triple", "pair", "dense", "scattered"):
        torch.manual_seed(0)
        m, run = Mixtures(shape), ds.init(project="check")
        ds.watch(m, run, probe=[TEXT])
        m(torch.tensor([TEXT])).sum().backward()
        run.finish()
        body = kinds(run, "probe")[0]
        load = vector(kinds(run, "matrix")[0]["value"]).reshape(2, 5)
        cells = [matrix(body, k, 2) for k in ("expert", "expert_2", "expert_weight", "expert_weight_2")]
        want = np.array([[sum((cells[k][l] == e).sum() for k in (0, 1)) for e in range(5)] for l in range(2)])
        near(load, want)
        seen.append(cells)
    for cells in seen[1:]:
        for a, b in zip(cells, seen[0]):
            near(a, b)


@check
def a_mask_over_the_experts_is_not_taken_for_indices():
    m, run = Mixtures("mask"), ds.init(project="check")
    ds.watch(m, run, probe=[TEXT])
    m(torch.tensor([TEXT])).sum().backward()
    run.finish()
    assert not kinds(run, "matrix") and "expert" not in kinds(run, "probe")[0]["cell"]
    assert [b["name"] for b in kinds(run, "event") if b["level"] == "warn"] == ["experts"]


@check
def the_top_k_of_sampling_is_not_that_of_a_router():
    bodies = []
    for is_configured in (False, True):
        torch.manual_seed(0)
        m = Mixtures("logits")
        if is_configured:  # as the configurations of transformers 4
            m.config = types.SimpleNamespace(top_k=4, num_experts_per_tok=2, vocab_size=97)
            for layer in m.layers:
                del layer.top_k
        bodies.append(probe_of(m))
    near(matrix(bodies[1], "expert_2", 2), matrix(bodies[0], "expert_2", 2))
    assert "expert_3" not in bodies[1]["cell"]


@check
def states_of_a_model_without_a_head_are_not_logits():
    net = torch.nn.Sequential(torch.nn.Embedding(97, 96), *(torch.nn.TransformerEncoderLayer(96, 2, 8, batch_first=True) for _ in range(2)))
    run = ds.init(project="check")
    ds.watch(net, run, probe=[TEXT], blocks=list(net)[1:]).probe()
    run.finish()
    assert "nll" not in kinds(run, "probe")[0] and "no loss per token" in " ".join(b["text"] for b in kinds(run, "event"))


@check
def recomputed_blocks_are_counted_once():
    c = MIXTURES["mixtral"]()
    m = model_of(c)
    m.gradient_checkpointing_enable() if not hasattr(m, "activation_checkpointing_enable") else m.activation_checkpointing_enable()
    run = ds.init(project="check")
    ds.watch(m, run)
    x = torch.randint(1, 97, (2, 16))
    m.train()
    m(input_ids=x, labels=x, use_cache=False).loss.backward()
    run.finish()
    assert vector(kinds(run, "matrix")[0]["value"]).sum() == 4 * 2 * 16 * 2


@check
def evaluation_passes_are_not_counted():
    m, run = model_of(MIXTURES["mixtral"]()), ds.init(project="check")
    ds.watch(m, run)
    x = torch.randint(1, 97, (2, 16))
    m.eval()
    with torch.no_grad():
        m(x)
    run.finish()
    assert not kinds(run, "matrix")


@check
def a_training_pass_that_raised_is_not_mixed_with_the_evaluation_after_it():
    m, run = model_of(MIXTURES["mixtral"]()), ds.init(project="check")
    ds.watch(m, run)
    x = torch.randint(1, 97, (2, 16))

    def full(module, args):
        raise RuntimeError("out of memory")

    m.train()
    hook = find_blocks(m).blocks[2].register_forward_pre_hook(full)
    try:
        m(x)
        raise AssertionError("the pass did not fail")
    except RuntimeError:
        pass
    hook.remove()
    m.eval()
    with torch.no_grad():
        m(x)
    run.finish()
    loads = [vector(b["value"]).reshape(b["rows"], -1).sum(1).tolist() for b in kinds(run, "matrix")]
    assert loads == [[64, 64, 0, 0]], loads
    assert not kinds(run, "layer")


@check
def a_compiled_model_gives_the_same_probe_and_trains():
    torch.manual_seed(0)
    net = Net()
    want = probe_of(net)
    run = ds.init(project="check")
    compiled = torch.compile(net, backend="eager")
    ds.watch(compiled, run, probe=[TEXT], every=2)
    opt = torch.optim.SGD(net.parameters(), lr=0)
    x = torch.tensor([TEXT])
    for it in range(5):
        compiled(x, x)[1].backward()
        opt.step()
        run.log({"loss": 1.0}, step=it)
    run.finish()
    got = kinds(run, "probe")
    assert [b["step"] for b in got] == [0, 2, 4], [b["step"] for b in got]
    for body in got:
        near(matrix(body, "velocity", 3), matrix(want, "velocity", 3))
        near(vector(body["nll"]), vector(want["nll"]))


@check
def a_model_that_is_compiled_after_watch_is_compiled_once():
    compiles = []

    def backend(graph, example):
        compiles.append(1)
        return graph.forward

    torch._dynamo.reset()
    torch.manual_seed(0)
    net, run = Net(), ds.init(project="check")
    ds.watch(net, run, probe=[TEXT], every=2)
    compiled = torch.compile(net, backend=backend)
    opt = torch.optim.SGD(net.parameters(), lr=0)
    x = torch.tensor([TEXT])
    for it in range(9):
        compiled(x, x)[1].backward()
        opt.step()
        run.log({"loss": 1.0}, step=it)
        if it == 0:
            first = len(compiles)
    run.finish()
    assert first > 0 and len(compiles) == first, (first, len(compiles))
    assert [b["step"] for b in kinds(run, "probe")] == [0, 2, 4, 6, 8]


@check
def copies_of_a_watched_model_are_not_watched():
    m, run = model_of(MIXTURES["mixtral"]()), ds.init(project="check")
    ds.watch(m, run, probe=[TEXT], every=2)
    torch.save(m, "model.pt")
    for other in (copy.deepcopy(m), torch.load("model.pt", weights_only=False)):
        train(other, run, steps=3)
    run.finish()
    assert not kinds(run, "probe") and not kinds(run, "matrix")


@check
def steps_are_updates_whatever_is_logged_when():
    def steps(start, numbers, accumulate=1, optimizers=1, every=3, total=8, is_early=False):
        torch.manual_seed(0)
        net, run = Net(), ds.init(project="check")
        ds.watch(net, run, probe=[TEXT], every=every)
        parts = [list(net.h.parameters()), list(net.wte.parameters())][:optimizers]
        opts = [torch.optim.SGD(p, lr=1e-3) for p in parts]
        x = torch.tensor([TEXT])
        for it in range(total):
            if is_early:
                run.log({"val_loss": 1.0}, step=it + start)
            for _ in range(accumulate):
                net(x, x)[1].backward()
            for o in opts:
                o.step()
            if (it + start) % numbers == 0:
                run.log({"loss": 1.0}, step=it + start)
        run.finish()
        return [b["step"] for b in kinds(run, "probe")]

    assert steps(0, 1) == [0, 3, 6]
    assert steps(1, 1) == [0, 3, 6]
    assert steps(0, 1, is_early=True) == [0, 3, 6]
    assert steps(0, 1, optimizers=0) == [0, 3, 6]  # parameters updated by hand
    assert steps(0, 1, accumulate=2) == [0, 3, 6]
    assert steps(0, 1, optimizers=2) == [0, 3, 6]
    assert steps(1, 4) == [0, 3, 6]
    assert steps(1000, 1) in ([0, 1003, 1006], [0, 1002, 1005])


@check
def what_is_recorded_after_the_last_step_keeps_what_was_recorded_before_it():
    m, run = model_of(MIXTURES["mixtral"]()), ds.init(project="check")
    watch = ds.watch(m, run, probe=[TEXT], every=2)
    watch.probe()
    train(m, run, steps=5)
    watch.probe()
    run.finish()
    assert [b["step"] for b in kinds(run, "probe")] == [0, 0, 2, 4, 5]
    assert [(b["step"], vector(b["value"]).reshape(b["rows"], -1).sum(1).tolist()) for b in kinds(run, "matrix")] == \
        [(at, [n * 2 * 4 * 16] * 4) for at, n in ((2, 2), (4, 2), (5, 1))]


@check
def a_probe_that_fails_is_an_event_and_training_goes_on():
    torch.manual_seed(0)
    net, run = Net(), ds.init(project="check")
    ds.watch(net, run, probe=[[1, 2, 500]], every=1)  # 500 is not in the vocabulary
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        for it in range(5):
            net(torch.tensor([TEXT]), torch.tensor([TEXT]))[1].backward()
            run.log({"loss": 1.0}, step=it)
    run.finish()
    events = [b for b in kinds(run, "event") if b["name"] == "probe"]
    assert 1 <= len(events) <= 3 and all(b["level"] == "error" for b in events) and seen
    assert events[0]["text"] == "ValueError: token id 500: must be in 0..96", events[0]
    assert len(kinds(run, "metric")) == 5 and len(kinds(run, "layer")) == 5 and net.training


@check
def the_command_probe_is_that_of_the_script_or_of_the_newest_watch():
    said = []
    run = ds.init(project="check", control={"probe": lambda: said.append("own")})
    ds.watch(Net(), run, probe=[TEXT])
    run._control._plain["probe"]()
    assert said == ["own"]
    run.finish()
    run = ds.init(project="check", control=["pause"])
    first = ds.watch(Net(), run, probe=[TEXT])
    assert run._control._plain["probe"]() == "before the next step"
    first.close()
    try:
        run._control._plain["probe"]()
    except RuntimeError as e:
        assert "not watched" in str(e)
    else:
        raise AssertionError("a watch that has ended promises a probe")
    second = ds.watch(Net(), run, probe=[TEXT])
    assert run._control._plain["probe"]() == "before the next step" and second._is_asked
    run.finish()


@check
def a_model_in_float64_has_the_norms_of_its_states():
    torch.manual_seed(0)
    net, run = Net().double(), ds.init(project="check")
    ds.watch(net, run, every=1)
    x = torch.tensor([TEXT])
    net(x, x)[1].backward()
    run.finish()
    h = states(net)
    near(vector(kinds(run, "layer")[0]["residual_norm"]), [np.linalg.norm(y, axis=-1).mean() for y in h[1:]])
    assert not kinds(run, "event")


@check
def a_layer_metric_that_fails_is_an_event_and_training_goes_on():
    class Odd(torch.Tensor):
        @classmethod
        def __torch_function__(cls, f, types, args=(), kwargs=None):
            if f is torch.linalg.vector_norm:
                raise RuntimeError("no norm\nof this")
            return super().__torch_function__(f, types, args, kwargs or {})

    torch.manual_seed(0)
    net, run = Net(), ds.init(project="check")
    net.wte.register_forward_hook(lambda module, args, y: y.as_subclass(Odd))
    ds.watch(net, run, every=1)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        for it in range(5):
            net(torch.tensor([TEXT]), torch.tensor([TEXT]))[1].backward()
            run.log({"loss": 1.0}, step=it)
    run.finish()
    events = [(b["name"], b["level"], b["text"]) for b in kinds(run, "event")]
    assert events == [("layers", "error", "RuntimeError: no norm")] * 3 and seen, events
    assert len(kinds(run, "metric")) == 5


@check
def a_head_that_is_not_a_module_leaves_losses_and_no_lens():
    class Functional(Net):
        def forward(self, idx, targets=None):
            x = self.wte(idx)
            for block in self.h:
                x = block(x, torch.ones_like(idx, dtype=torch.bool))
            return torch.nn.functional.linear(x, self.wte.weight)

    torch.manual_seed(0)
    net = Functional()
    body = probe_of(net)
    with torch.no_grad():
        want = torch.nn.functional.cross_entropy(net(torch.tensor([TEXT]))[0, :-1], torch.tensor(TEXT[1:]))
    near(vector(body["nll"])[1:].mean(), float(want), 1e-5)
    assert "lens_id" not in body and "lens_nll" not in body["cell"]
    run = ds.init(project="check")
    ds.watch(net, run, probe=[TEXT]).probe()
    run.finish()
    assert ["no logit lens" in b["text"] for b in kinds(run, "event")] == [True]


@check
def a_projection_in_front_of_the_head_is_not_taken_for_it():
    sizes = dict(vocab_size=97, hidden_size=32, num_hidden_layers=3, num_attention_heads=2, max_position_embeddings=64)
    for config, net in ((T.OPTConfig(**sizes, ffn_dim=48, word_embed_proj_dim=16, do_layer_norm_before=False), T.AutoModelForCausalLM),
                        (T.BertConfig(**sizes, intermediate_size=48), T.AutoModelForMaskedLM)):
        torch.manual_seed(0)
        net = net.from_config(config).eval()
        body = probe_of(net)
        with torch.no_grad():
            logp = torch.log_softmax(net(input_ids=torch.tensor([TEXT])).logits[0], -1)
        near(vector(body["nll"])[1:], -logp[:-1].gather(1, torch.tensor(TEXT[1:]).unsqueeze(1))[:, 0].cpu().numpy())
        assert "lens_id" not in body and matrix(body, "velocity", 3)[1:].all()


@check
def the_decoder_of_an_encoder_decoder_predicts_the_text_that_both_see():
    for config in (T.T5Config(vocab_size=97, d_model=32, d_kv=8, d_ff=48, num_layers=3, num_heads=4, decoder_start_token_id=0),
                   T.BartConfig(vocab_size=97, d_model=32, encoder_layers=3, decoder_layers=3, encoder_attention_heads=2,
                                decoder_attention_heads=2, encoder_ffn_dim=48, decoder_ffn_dim=48, max_position_embeddings=64)):
        torch.manual_seed(0)
        net = T.AutoModelForSeq2SeqLM.from_config(config).eval()
        body = probe_of(net)
        ids = torch.tensor([TEXT])
        with torch.no_grad():
            out = net(input_ids=ids, decoder_input_ids=ids, output_hidden_states=True)
        near(vector(body["nll"])[1:], -torch.log_softmax(out.logits[0, :-1], -1).gather(1, ids[0, 1:].unsqueeze(1))[:, 0].cpu().numpy())
        h = [x[0].double() for x in out.decoder_hidden_states]
        near(matrix(body, "velocity", 3)[1:], np.array([((b - a).norm(dim=-1) / b.norm(dim=-1)).cpu().numpy() for a, b in zip(h[:2], h[1:])]))


@check
def pieces_are_the_bytes_of_tokens():
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    words = ["Hello", "\u0120w", "\u00c3\u00a9", "\u010a", "<s>"]
    tok = Tokenizer(models.BPE({w: i for i, w in enumerate(words)}, []))
    tok.pre_tokenizer, tok.decoder = pre_tokenizers.ByteLevel(), decoders.ByteLevel()
    from depthscope._probe import Pieces
    pieces = Pieces(T.PreTrainedTokenizerFast(tokenizer_object=tok))
    assert [pieces(i) for i in range(5)] == [b"Hello", b" w", "\u00e9".encode(), b"\n", b"<s>"], [pieces(i) for i in range(5)]
    assert pieces(99) == b""
    sp = Tokenizer(models.BPE({"\u2581Once": 0, "<0x0A>": 1, "up": 2}, []))
    pieces = Pieces(T.PreTrainedTokenizerFast(tokenizer_object=sp))
    assert [pieces(i) for i in range(3)] == [b" Once", b"\n", b"up"]
    large = Tokenizer(models.BPE({"\u2581Once": 0, "\u2581a": 1, "\u0120": 2, "caf\u00e9": 3}, []))  # with letters of many languages
    pieces = Pieces(T.PreTrainedTokenizerFast(tokenizer_object=large))
    assert [pieces(i) for i in range(4)] == [b" Once", b" a", "\u0120".encode(), "caf\u00e9".encode()]


@check
def mistakes_are_one_clear_line():
    run, net = ds.init(project="check"), Net()
    for options, part in (({"every": 0}, "every = 0"), ({"lens_k": 17}, "lens_k = 17"), ({"probe": ["text"]}, "tokenizer"),
                          ({"probe": [[]]}, "probe[0] is empty"), ({"blocks": "nowhere"}, 'blocks="nowhere"'),
                          ({"probe": [[1] * 2000]}, "2000 tokens")):
        try:
            ds.watch(net, run, **options)
        except ValueError as e:
            assert part in str(e) and "\n" not in str(e), (options, str(e))
        else:
            raise AssertionError("%s passed" % options)
    try:
        ds.watch(torch.nn.Linear(3, 3), run)
    except ValueError as e:
        assert "blocks=" in str(e)
    else:
        raise AssertionError("a model without blocks passed")
    run.finish()


def main():
    top = tempfile.mkdtemp(prefix="ds-watch-")
    os.chdir(top)
    try:
        for f in checks:
            if len(sys.argv) > 1 and sys.argv[1] not in f.__name__:
                continue
            try:
                f()
                print("ok", f.__name__, flush=True)
            except Exception as e:
                line = [s.lineno for s in traceback.extract_tb(e.__traceback__) if s.filename == __file__]
                print("FAIL", f.__name__, "line %s: %s: %s" % (line[-1] if line else "?", type(e).__name__, str(e)[:1500].replace("\n", " ")),
                      flush=True)
    finally:
        os.chdir("/")
        shutil.rmtree(top, ignore_errors=True)


main()
