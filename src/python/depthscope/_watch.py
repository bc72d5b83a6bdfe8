"""Watches a PyTorch model while it trains: probes of fixed texts, layer metrics, loads of experts.

Between log steps it costs two hooks on the model (and, with experts, one scatter per router).  It changes nothing that training
depends on: probes run without gradients in evaluation mode, and modes and random states are restored.
"""

from __future__ import annotations

import contextlib
import warnings
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple, Union

from . import distributed
from ._blocks import Blocks, Layout, Tail, find_blocks, first_input, first_tensor, need, plain, runner, unwrap
from ._experts import Experts, find_routers

SIGNALS = ("velocity", "speed_change", "acceleration", "turn")
METRICS = (
    ("velocity", "", "relative size of the last executed increment", "cell"),
    ("speed_change", "", "change of velocity between the last two executed blocks", "cell"),
    ("acceleration", "", "relative size of the change of increment", "cell"),
    ("turn", "", "cosine of the last two executed increments", "cell"),
    ("lens_nll", "nats", "loss of the next token under the logit lens", "cell"),
    ("lens_entropy", "nats", "entropy of the logit lens", "cell"),
    ("gate_ratio", "", "share of executed rows", "layer"),
    ("residual_norm", "", "L2 norm of the block's output, mean over the batch", "layer"),
)
LENS_VALUES = 1 << 24  # of logits at a time
PROBE_TOKENS = 1024

Text = Union[str, Sequence[int]]


class Call(NamedTuple):
    """One call of a block: its input and output, (tokens, channels)."""

    layer: int
    x: Any
    y: Any


def rows_of(t: Any, tokens: int) -> Any:
    """(tokens, channels) of a stream that may be (1, T, C), (T, 1, C) or (T, C)."""
    if t.dim() == 3 and t.shape[0] == 1 and t.shape[1] == tokens:
        return t[0]
    if t.dim() == 3 and t.shape[1] == 1 and t.shape[0] == tokens:
        return t[:, 0]
    if t.dim() == 2 and t.shape[0] == tokens:
        return t
    raise ValueError("the blocks return shape %s, expected (1, %d, channels)" % (list(t.shape), tokens))


class Capture:
    """Hooks on the blocks and on what follows them, for one pass over one text."""

    def __init__(self, model: Any, layout: Layout, ids: Any, lens_k: int) -> None:
        self.layout = layout
        self.ids = ids
        self.lens_k = lens_k
        self.tokens = int(ids.shape[-1])
        self.calls: List[Call] = []
        self.lens: List[Tuple[Any, Any, Any, Any]] = []  # per call: ids, p, nll of the next token, entropy
        self.final: Any = None  # logits of the last position, from the norm and the head
        self.tail = Tail(model, layout)
        self._x: Any = None
        self._out: Any = None
        self._y: Any = None
        self._version = -1
        self._hooks: List[Any] = []

    def __enter__(self) -> "Capture":
        for layer, block in enumerate(self.layout.blocks):
            self._hooks.append(block.register_forward_pre_hook(self._enter, with_kwargs=True))
            self._hooks.append(block.register_forward_hook(self._leave(layer)))
        for module in self.tail.candidates():
            self._hooks.append(module.register_forward_hook(self._follow, prepend=True))
        return self

    def __exit__(self, *_: Any) -> None:
        for hook in self._hooks:
            hook.remove()
        self._hooks = []
        self.tail.forget()
        self._x = self._y = self._out = None

    def _enter(self, module: Any, args: Any, kwargs: Any) -> None:
        x = first_input(args, kwargs)
        if x is None:
            raise ValueError("block %s takes no tensor" % type(module).__name__)
        # a copy, since a block may add to its input in place; what the block before returned is copied already
        is_same = x is self._out and x._version == self._version
        self._x = self._y if is_same else rows_of(plain(x), self.tokens).clone()

    def _leave(self, layer: int) -> Callable[[Any, Any, Any], None]:
        def hook(module: Any, args: Any, out: Any) -> None:
            self._out = first_tensor(out)
            if self._out is None or self._x is None:
                raise ValueError("block %s returns no tensor" % type(module).__name__)
            self._version = self._out._version
            self._y = rows_of(plain(self._out), self.tokens).clone()
            if self._y.shape != self._x.shape:
                raise ValueError("block %s takes %s and returns %s, expected the same residual stream"
                                 % (type(module).__name__, list(self._x.shape), list(self._y.shape)))
            self.calls.append(Call(layer, self._x, self._y))
            self.tail.stream(self._out)

        return hook

    def _follow(self, module: Any, args: Any, out: Any) -> None:
        had = self.tail.head
        self.tail.call(module, args[0] if args else None, first_tensor(out))
        if self.tail.head is not None and self.tail.head is not had:
            # here, inside the model's forward, the weights of a sharded model are whole
            self._look(self.tail.norm, self.tail.head)

    def _look(self, norm: Any, head: Any) -> None:
        torch = need("torch", "watch")
        scale = logit_transform(self.layout.config)
        nexts = torch.roll(self.ids.reshape(-1), -1)
        self.lens = []
        for call in self.calls:
            parts = []
            step = max(1, LENS_VALUES // max(1, int(getattr(head, "out_features", 1))))
            for at in range(0, self.tokens, step):
                h = call.y[at:at + step].unsqueeze(0)
                raw = plain(head.forward(norm.forward(h) if norm is not None else h))[0]
                logp = torch.log_softmax(scale(raw.float()), -1)
                top = logp.topk(min(max(self.lens_k, 1), logp.shape[-1]), dim=-1)
                nll = -logp.gather(1, nexts[at:at + step].to(logp.device).unsqueeze(1))[:, 0]
                parts.append((top[1], top[0].exp(), nll, -(logp.exp() * logp).nan_to_num(0).sum(-1)))
                self.final = scale(raw[-1].float())
            self.lens.append(tuple(torch.cat(x) for x in zip(*parts)))  # type: ignore[arg-type]


def logit_transform(config: Any) -> Callable[[Any], Any]:
    """What some models do to the head's output before the softmax, by the keys of their configuration."""
    cap = getattr(config, "final_logit_softcapping", None)
    scale, divisor = getattr(config, "logit_scale", None), getattr(config, "logits_scaling", None)
    if isinstance(cap, (int, float)) and cap > 0:
        c = float(cap)
        return lambda x: (x / c).tanh() * c
    if isinstance(scale, (int, float)) and scale > 0:
        s = float(scale)
        return lambda x: x * s
    if isinstance(divisor, (int, float)) and divisor > 0:
        d = float(divisor)
        return lambda x: x / d
    return lambda x: x


def signals_of(calls: Sequence[Call], run: Any) -> Dict[str, Any]:
    """The signals before each layer, (layers, tokens): those of the executed increments D = y - x so far, held through skips,
    as src/routing/signal.c computes them.  Before the first executed block all are 0."""
    torch = need("torch", "watch")
    tokens, width = calls[0].x.shape
    zero = torch.zeros(tokens, dtype=torch.float32, device=calls[0].x.device)
    kept = {name: zero for name in SIGNALS}
    last = torch.zeros(tokens, width, dtype=torch.float32, device=zero.device)
    has = torch.zeros_like(zero, dtype=torch.bool)
    cells: Dict[str, List[Any]] = {name: [] for name in SIGNALS}
    for row, call in enumerate(calls):
        for name in SIGNALS:
            cells[name].append(kept[name].to(zero.device))
        x, y = call.x.float().to(zero.device), call.y.float().to(zero.device)
        d = y - x
        size, norm = d.norm(dim=-1), y.norm(dim=-1).clamp(min=1e-8)
        both = size * last.norm(dim=-1)
        v = size / norm
        now = {
            "velocity": v,
            "speed_change": torch.where(has, (v - kept["velocity"]).abs(), v),
            "acceleration": (d - last).norm(dim=-1) / norm,
            "turn": torch.where(both > 0, (d * last).sum(-1) / both.clamp(min=1e-38), zero),
        }
        ran = run[row]
        kept = {name: torch.where(ran, now[name], kept[name]) for name in SIGNALS}
        last = torch.where(ran.unsqueeze(-1), d, last)
        has = has | ran
    return {name: torch.stack(cells[name]) for name in SIGNALS}


class Probe:
    """A text that is run through the model again and again."""

    def __init__(self, index: int, given: Any, tokenizer: Any, limit: int) -> None:
        name, text = "", given
        if isinstance(given, dict):
            name, text = str(given.get("name", "")), given.get("ids", given.get("text"))
        self.index = index
        self.name = name or "probe-%d" % index
        if isinstance(text, str):
            if tokenizer is None:
                raise ValueError("watch: probe[%d] is a text; pass tokenizer=, or a list of token ids" % index)
            text = encode(tokenizer, text)
        self.ids: List[int] = [int(i) for i in text]
        if not self.ids:
            raise ValueError("watch: probe[%d] is empty, expected at least one token" % index)
        if len(self.ids) > limit:
            raise ValueError("watch: probe[%d] has %d tokens, must be at most %d" % (index, len(self.ids), limit))


def encode(tokenizer: Any, text: str) -> List[int]:
    """Ids by a Hugging Face tokenizer, tiktoken, a `tokenizers.Tokenizer`, or a function text -> ids."""
    f = getattr(tokenizer, "encode", None) or tokenizer
    ids = f(text)
    ids = getattr(ids, "ids", ids)
    return [int(i) for i in (ids.tolist() if hasattr(ids, "tolist") else ids)]


class Pieces:
    """The bytes of each token."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        self._cache: Dict[int, bytes] = {}
        self._bytes: Optional[Dict[str, int]] = None
        tokens = getattr(tokenizer, "convert_ids_to_tokens", None)
        if callable(tokens):
            vocab = tokenizer.get_vocab() if hasattr(tokenizer, "get_vocab") else {}
            if any(word.startswith("\u0120") for word in vocab):  # byte-level BPE writes a space as U+0120
                self._bytes = byte_alphabet()

    def __call__(self, token: int) -> bytes:
        piece = self._cache.get(token)
        if piece is None:
            try:
                piece = self._piece(token)
            except Exception:  # an id that the tokenizer does not know
                piece = b""
            self._cache[token] = piece
        return piece

    def _piece(self, token: int) -> bytes:
        t = self.tokenizer
        if t is None:
            return b""
        if hasattr(t, "decode_single_token_bytes"):
            return bytes(t.decode_single_token_bytes(token))
        if hasattr(t, "convert_ids_to_tokens"):
            word = t.convert_ids_to_tokens(token)
            if isinstance(word, bytes):
                return word
            if not isinstance(word, str):
                return b""
            if self._bytes is not None and all(c in self._bytes for c in word):
                return bytes(self._bytes[c] for c in word)
            if len(word) == 6 and word.startswith("<0x") and word.endswith(">"):
                return bytes([int(word[3:5], 16)])
            if self._bytes is None:
                word = word.replace("\u2581", " ")  # SentencePiece
            return word.encode("utf-8", "replace")
        text = t.decode([token]) if hasattr(t, "decode") else ""
        return text if isinstance(text, bytes) else str(text).encode("utf-8", "replace")


def byte_alphabet() -> Dict[str, int]:
    """The characters that byte-level BPE writes for the 256 bytes."""
    shown = list(range(33, 127)) + list(range(161, 173)) + list(range(174, 256))
    table = {chr(b): b for b in shown}
    hidden = [b for b in range(256) if b not in shown]
    table.update({chr(256 + i): b for i, b in enumerate(hidden)})
    return table


@contextlib.contextmanager
def evaluation(model: Any) -> Iterator[None]:
    """No gradients, evaluation mode, eager; then every mode and the random states are what they were."""
    torch = need("torch", "watch")
    modes = [(m, m.training) for m in model.modules()]
    devices = sorted({p.device.index for p in model.parameters() if p.device.type == "cuda" and p.device.index is not None})
    stance = getattr(torch.compiler, "set_stance", None)
    eager = stance("force_eager") if stance is not None else contextlib.nullcontext()
    with torch.random.fork_rng(devices=devices), torch.no_grad(), eager:
        model.eval()
        try:
            yield
        finally:
            for m, mode in modes:
                m.training = mode


def eager_of(model: Any) -> Any:
    """The module without torch.compile and DDP around it, so that a probe compiles and synchronises nothing."""
    while True:
        children = model._modules
        if children.get("_orig_mod") is not None:
            model = children["_orig_mod"]
        elif type(model).__name__ == "DistributedDataParallel":
            model = children["module"]
        else:
            return model


class Later:
    """Device tensors on their way to the host: one copy that waits for nothing, and a function for its values."""

    def __init__(self) -> None:
        self._waiting: List[Tuple[Any, Any, Callable[[Any], None]]] = []

    def add(self, flat: Any, then: Callable[[Any], None]) -> None:
        torch = need("torch", "watch")
        if flat.device.type != "cuda":
            then(flat.to("cpu"))
            return
        host = torch.empty(flat.shape, dtype=flat.dtype, pin_memory=True)
        host.copy_(flat, non_blocking=True)
        event = torch.cuda.Event()
        event.record(torch.cuda.current_stream(flat.device))
        self._waiting.append((event, host, then))

    def flush(self, wait: bool = False) -> None:
        while self._waiting and (wait or self._waiting[0][0].query()):
            event, host, then = self._waiting.pop(0)
            event.synchronize()
            then(host)


class Watch:
    """What `watch` returns.  `probe()` runs the probes now; `close()` removes every hook."""

    def __init__(self, model: Any, run: Any, probe: Any = None, tokenizer: Any = None, every: int = 100, signals: bool = True,
                 lens_k: int = 3, experts: bool = True, blocks: Blocks = None, forward: Optional[Callable[[Any], Any]] = None,
                 group: Any = None) -> None:
        need("torch", "watch")
        if every < 1:
            raise ValueError("watch: every = %d: must be at least 1" % every)
        if not 0 <= lens_k <= 16:
            raise ValueError("watch: lens_k = %d: must be 0 to 16" % lens_k)
        self.model = model
        self.run = run
        self.every = every
        self.signals = signals
        self.lens_k = lens_k
        self.layout = find_blocks(model, blocks)
        self.group = group
        self.is_sharded = distributed.is_sharded(model)
        self._forward = forward or runner(model if self.is_sharded else eager_of(model))
        given = [probe] if isinstance(probe, (str, dict)) else list(probe or [])
        if given and all(isinstance(x, int) for x in given):
            given = [given]
        limit = min(PROBE_TOKENS, self.layout.context or PROBE_TOKENS)
        self.probes = [Probe(i, x, tokenizer, limit) for i, x in enumerate(given)]
        self.pieces = Pieces(tokenizer)
        routers = find_routers(self.layout) if experts else []
        self.experts = Experts(routers) if routers else None
        self._later = Later()
        self._armed: List[Any] = []
        self._told: List[str] = []
        self._is_inside = False
        self._is_asked = False
        self._device: Any = None
        self._next = -1
        self._failures = 0
        self._is_closed = False
        self._is_lens_wrong = False
        self._is_compiled = any("_orig_mod" in m._modules or getattr(m, "_compiled_call_impl", None) is not None
                                for m in model.modules())
        self._hooks = [model.register_forward_pre_hook(_opaque(self._before), with_kwargs=True),
                       model.register_forward_hook(_opaque(self._after))]
        self._describe()

    # ---- at the log steps of training ----

    def _before(self, module: Any, args: Any, kwargs: Any) -> None:
        """Before each forward of the model."""
        torch = need("torch", "watch")
        if self._is_inside or not module.training or not torch.is_grad_enabled():
            return
        self._disarm()
        self._later.flush()
        x = next((t for t in args + tuple(kwargs.values()) if hasattr(t, "device") and hasattr(t, "shape")), None)
        self._device = self._device if x is None else x.device
        step = int(self.run.step)
        if step >= self._next or self._is_asked:
            self._next = (step // self.every + 1) * self.every
            self._is_asked = False
            self._log_step(step)
        if self.experts is not None:
            self.experts.begin()
            self.experts.is_counting = True

    def _after(self, module: Any, args: Any, out: Any) -> None:
        if self._is_inside:
            return
        if self.experts is not None:
            self.experts.is_counting = False
        if self._armed:
            self._disarm()
            self._send_layers()

    def _log_step(self, step: int) -> None:
        self.probe(step)
        self._send_load(step)
        # a compiled model would be compiled again for hooks that come and go
        if self.run.is_active and not self._is_compiled:
            self._arm(step)

    def _send_load(self, step: int) -> None:
        counts = self.experts.take() if self.experts is not None else None
        if counts is None or self.experts is None:
            return
        counts = distributed.sum_counts(counts, self.group)
        if not self.run.is_active:
            return
        shape, layers = counts.shape, self.experts.layers

        def send(host: Any) -> None:
            self.run.matrix("expert_load", host.reshape(shape).float(), step=step, layer=layers)

        self._later.add(counts.reshape(-1), send)

    # ---- layer metrics of one training batch ----

    def _arm(self, step: int) -> None:
        self._layer_step = step
        self._share: List[Any] = [None] * self.layout.layers
        self._norm: List[Any] = [None] * self.layout.layers
        for layer, block in enumerate(self.layout.blocks):
            entry: List[Any] = []
            self._armed.append(block.register_forward_pre_hook(self._measure_in(entry), with_kwargs=True))
            self._armed.append(block.register_forward_hook(self._measure_out(layer, entry)))

    def _disarm(self) -> None:
        for hook in self._armed:
            hook.remove()
        self._armed = []

    def _measure_in(self, entry: List[Any]) -> Callable[[Any, Any, Any], None]:
        def hook(module: Any, args: Any, kwargs: Any) -> None:
            x = first_input(args, kwargs)
            entry[:] = [x, None if x is None else x._version]

        return hook

    def _measure_out(self, layer: int, entry: List[Any]) -> Callable[[Any, Any, Any], None]:
        def hook(module: Any, args: Any, out: Any) -> None:
            torch = need("torch", "watch")
            y = first_tensor(out)
            x, version = entry if entry else (None, None)
            entry.clear()
            if y is None or x is None or self._norm[layer] is not None:
                return
            with torch.no_grad():
                x, y, is_whole = x.detach(), y.detach(), x._version == version
                self._norm[layer] = plain(torch.linalg.vector_norm(y, dim=-1, dtype=torch.float32).mean())
                # of a block that writes into its input nothing is known
                if is_whole and x.shape == y.shape:
                    self._share[layer] = plain((y != x).any(-1).float().mean())

        return hook

    def _send_layers(self) -> None:
        torch = need("torch", "watch")
        step, named = self._layer_step, {"residual_norm": self._norm}
        if not self._has_gates():
            named["gate_ratio"] = self._share
        names = [n for n, values in named.items() if any(v is not None for v in values)]
        if not names:
            return
        some = next(v for v in named[names[0]] if v is not None)
        gap = torch.full_like(some, float("nan"))
        flat = torch.stack([gap if v is None else v.to(some.device) for n in names for v in named[n]])

        def send(host: Any) -> None:
            values = host.reshape(len(names), -1)
            given = {n: values[i] for i, n in enumerate(names)}
            if "gate_ratio" in given and bool((given["gate_ratio"] < 1).any()):
                self._tell("inferred", "gate_ratio: skipped rows are inferred from an unchanged residual stream")
            self.run.layers(given, step=step)

        self._later.add(flat, send)

    def _has_gates(self) -> bool:
        return bool(getattr(self.run, "has_gates", False))

    # ---- probes ----

    def probe(self, step: Optional[int] = None) -> None:
        """Runs every probe text through the model and records what each layer did.  A failure is an event, not an exception:
        training continues."""
        at = int(self.run.step) if step is None else step
        # ranks that hold a part of the model take part in each pass
        if not self.probes or self._failures >= 3 or not (self.run.is_active or self.is_sharded):
            return
        self._is_inside = True
        try:
            with evaluation(self.model):
                for p in self.probes:
                    self._probe(p, at)
        except Exception as e:
            if not self.run.is_active:
                raise
            self._failures += 1
            text = "%s: %s" % (type(e).__name__, str(e).partition("\n")[0][:300])
            self.run.event("probe", text, level="error", step=at)
            warnings.warn("depthscope: probe: " + text, RuntimeWarning, stacklevel=2)
        finally:
            self._is_inside = False

    def _probe(self, p: Probe, step: int) -> None:
        torch = need("torch", "watch")
        device = self._device or next(iter(self.model.parameters())).device
        ids = torch.tensor([p.ids], dtype=torch.long, device=device)
        seen: Dict[int, Tuple[Any, Any]] = {}
        if self.experts is not None:
            self.experts.begin()
            self.experts.seen = seen
        try:
            with distributed.gates_of(self.run) as gates, Capture(self.model, self.layout, ids, self.lens_k) as c:
                out = self._forward(ids)
        finally:
            if self.experts is not None:
                self.experts.seen = None
        if not self.run.is_active:
            return
        if not c.calls:
            raise ValueError("no block of %s was called" % self.layout.name)
        self.run.probe(step=step, index=p.index, name=p.name, ids=p.ids, text=[self.pieces(i) for i in p.ids],
                       **self._body(p, c, out, gates, seen))

    def _body(self, p: Probe, c: Capture, out: Any, gates: Dict[int, Any], seen: Dict[int, Tuple[Any, Any]]) -> Dict[str, Any]:
        torch = need("torch", "watch")
        calls = self._ordered(c)
        changed = torch.stack([(k.y != k.x).any(-1).to(calls[0].x.device) for k in calls])
        inferred = False
        run = changed.clone()
        for row, k in enumerate(calls):
            gate = gates.get(k.layer)
            if gate is not None and gate.numel() == run.shape[1]:
                run[row] = gate.reshape(-1).to(run.device) != 0
            else:
                inferred = inferred or not bool(changed[row].all())
        body: Dict[str, Any] = {"run": run.cpu(), "depth": run.sum(0).float().cpu()}
        cell: Dict[str, Any] = {}
        kinds: Dict[str, str] = {}
        if self.signals:
            cell.update({name: v.cpu() for name, v in signals_of(calls, run).items()})
        self._add_tokens(body, p, c, out)
        lens = self._lens_rows(c, calls)
        if lens is not None:
            cell["lens_nll"], cell["lens_entropy"] = lens[2], lens[3]
            cell["lens_nll"][:, -1] = float("nan")  # nothing follows the last token
            if self.lens_k > 0:
                ids = lens[0].reshape(-1).tolist()
                body.update(lens_k=lens[0].shape[-1], lens_id=lens[0], lens_p=lens[1], lens_text=[self.pieces(i) for i in ids])
        self._add_experts(cell, kinds, calls, seen, run.shape[1])
        body["cell"] = cell
        if kinds:
            body["cell_kind"] = kinds
        if inferred:
            body["inferred"] = ["run"]
        return body

    def _ordered(self, c: Capture) -> List[Call]:
        """One call per layer; a block that was not called is one that every token skipped.  Blocks that are called more than
        once (weights shared along depth) are layers in the order of their calls."""
        layers = [k.layer for k in c.calls]
        if len(set(layers)) < len(layers):
            return [Call(i, k.x, k.y) for i, k in enumerate(c.calls)]
        by_layer = {k.layer: k for k in c.calls}
        calls: List[Call] = []
        for layer in range(self.layout.layers):
            k = by_layer.get(layer)
            if k is None:
                before = calls[-1].y if calls else c.calls[0].x
                k = Call(layer, before, before)
            calls.append(k)
        return calls

    def _lens_rows(self, c: Capture, calls: List[Call]) -> Optional[List[Any]]:
        """(ids, p, nll, entropy) of the logit lens, each (layers, tokens, ...); a layer that was not called repeats the one
        before it."""
        torch = need("torch", "watch")
        if not c.lens or len(c.lens) != len(c.calls) or self._is_lens_wrong:
            return None
        of = {id(k.y): x for k, x in zip(c.calls, c.lens)}
        rows, last = [], None
        for k in calls:
            last = of.get(id(k.y), last)
            if last is None:
                return None
            rows.append([t.cpu() for t in last])
        return [torch.stack([r[i] for r in rows]) for i in range(4)]

    def _add_tokens(self, body: Dict[str, Any], p: Probe, c: Capture, out: Any) -> None:
        """nll and entropy of each token given its past, from the model's own logits; from the norm and the head where the
        model computes only the last position's, if they give the same there."""
        torch = need("torch", "watch")
        self._is_lens_wrong = False
        tokens = len(p.ids)
        logits = logits_of(out, tokens, self.layout.vocab or int(getattr(c.tail.head, "out_features", 0)))
        if logits is not None and c.final is not None:
            own, model = c.final, plain(logits[-1]).float().to(c.final.device)
            scale = max(1e-3, float(model.abs().max()))
            if own.shape != model.shape or not float((own - model).abs().max()) <= 0.02 * scale:
                self._is_lens_wrong = True
                self._tell("lens", "no logit lens: the final norm and the head do not reproduce the model's logits")
        values = torch.full((2, tokens), float("nan"))
        if logits is not None and logits.shape[0] == tokens:
            nexts = torch.tensor(p.ids[1:], device=logits.device)
            for at in range(0, tokens - 1, 256):
                part = torch.log_softmax(plain(logits[at:min(at + 256, tokens - 1)]).float(), -1)
                to = at + part.shape[0]
                values[0, at + 1:to + 1] = -part.gather(1, nexts[at:to].unsqueeze(1))[:, 0].cpu()
                values[1, at + 1:to + 1] = -(part.exp() * part).nan_to_num(0).sum(-1).cpu()
        elif c.lens and not self._is_lens_wrong:
            values[0, 1:] = c.lens[-1][2][:-1].cpu()
            values[1, 1:] = c.lens[-1][3][:-1].cpu()
        else:
            self._tell("loss", "no loss per token: the model returns no logits for every position, and its head is not found")
            return
        body["nll"], body["entropy"] = values[0], values[1]
        if tokens > 1:
            body["loss"] = float(values[0, 1:].double().mean())

    def _add_experts(self, cell: Dict[str, Any], kinds: Dict[str, str], calls: List[Call], seen: Dict[int, Tuple[Any, Any]],
                     tokens: int) -> None:
        torch = need("torch", "watch")
        if self.experts is None:
            return
        if self.experts.unknown:
            self._tell("experts", "layer %s: the router's output does not say which experts it chose; they are not counted"
                       % " ".join(str(i) for i in self.experts.unknown[:20]))
        seen = {layer: x for layer, x in seen.items() if x[0].shape[0] == tokens}
        for k in range(max((x[0].shape[1] for x in seen.values()), default=0)):
            suffix = "" if k == 0 else "_%d" % (k + 1)
            chosen = torch.full((len(calls), tokens), float("nan"))
            weights = chosen.clone()
            for row, call in enumerate(calls):
                index, weight = seen.get(call.layer, (None, None))
                if index is not None and k < index.shape[1]:
                    chosen[row] = index[:, k].float().cpu()
                    if weight is not None:
                        weights[row] = weight[:, k].float().cpu()
            cell["expert" + suffix] = chosen
            kinds["expert" + suffix] = "category"
            if bool(weights.isfinite().any()):
                cell["expert_weight" + suffix] = weights
                kinds["expert_weight" + suffix] = "amount"

    # ---- the rest ----

    def ask(self, *_: Any) -> str:
        """For the control command `probe`: the probes run before the next training step."""
        self._is_asked = True
        return "before the next step"

    def _tell(self, name: str, text: str) -> None:
        """An event, once."""
        if text not in self._told and self.run.is_active:
            self._told.append(text)
            self.run.event(name, text, level="info" if name == "inferred" else "warn")

    def _describe(self) -> None:
        """What is known of the model now, into the head of the log."""
        if not self.run.is_active:
            return

    def close(self) -> None:
        """Sends what is still on its way, and removes the hooks."""
        if self.experts is not None and not self._is_closed:
            self._send_load(int(self.run.step))
        self._later.flush(wait=True)
        self._disarm()
        for hook in self._hooks:
            hook.remove()
        if self.experts is not None:
            self.experts.close()
        self._is_closed = True


def logits_of(out: Any, tokens: int, vocab: int) -> Any:
    """The logits among a model's outputs, (tokens or 1, vocab); None when there are none."""
    logits = getattr(out, "logits", None)
    if logits is None and isinstance(out, dict):
        logits = out.get("logits")
    if logits is None:
        logits = first_tensor(out)
    if logits is None or logits.dim() < 2 or (vocab and logits.shape[-1] != vocab):
        return None
    rows = logits.numel() // logits.shape[-1]
    return logits.reshape(rows, logits.shape[-1]) if rows in (tokens, 1) else None


def _opaque(f: Callable[..., Any]) -> Callable[..., Any]:
    """Hooks run outside compiled graphs."""
    torch = need("torch", "watch")
    disable = getattr(getattr(torch, "compiler", None), "disable", None)
    return disable(f) if disable is not None else f  # type: ignore[no-any-return]


def watch(model: Any, run: Any, probe: Any = None, tokenizer: Any = None, every: int = 100, signals: bool = True, lens_k: int = 3,
          experts: bool = True, blocks: Blocks = None, forward: Optional[Callable[[Any], Any]] = None, group: Any = None) -> Watch:
    """Records what each layer of `model` does to fixed texts, and layer metrics of the training batch, every `every` steps.

    model      any PyTorch model with a list of decoder blocks, wrapped or not (DDP, FSDP, torch.compile, peft)
    probe      texts (with `tokenizer`), lists of token ids, or dicts with `name` and `text` or `ids`
    signals    velocity, speed change, acceleration and turn of the residual stream
    lens_k     tokens of the logit lens per cell; 0: none
    experts    counts the assignments of mixtures of experts at each training step
    blocks     dotted name of the list of blocks, or the modules, where they are not found
    forward    ids (1, T) -> output, for models that are called in another way
    group      the process group over which counts of experts are summed (default: all ranks); with tensor parallelism the
               group of the data-parallel ranks, since those of one tensor-parallel group see the same tokens
    """
    return Watch(model, run, probe, tokenizer, every, signals, lens_k, experts, blocks, forward, group)
