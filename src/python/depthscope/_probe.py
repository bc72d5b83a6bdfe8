"""One pass of a model over one text: what each layer did to each token, as the keys of a `probe` record.

Knows nothing of training.  The signals are those of src/routing/signal.c, so that a probe of a PyTorch model and one of a native
model can be compared.
"""

from __future__ import annotations

import contextlib
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from ._blocks import Layout, Tail, first_input, first_tensor, need, plain
from ._experts import Experts

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
            self.lens.append(tuple(torch.cat(x) for x in zip(*parts)))


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


def encode(tokenizer: Any, text: str, is_whole: bool = True) -> List[int]:
    """Ids by a Hugging Face tokenizer, tiktoken, a `tokenizers.Tokenizer`, a function text -> ids, or (encode, decode).

    Not is_whole: of a text that continues one, without the tokens that a tokenizer puts around every text.
    """
    if isinstance(tokenizer, tuple):
        tokenizer = tokenizer[0]
    f = getattr(tokenizer, "encode", None) or tokenizer
    try:
        ids = f(text) if is_whole else f(text, add_special_tokens=False)
    except TypeError:
        if is_whole:
            raise
        ids = f(text)  # one that adds none
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
            # byte-level BPE writes a space as U+0120, which is a letter in vocabularies of SentencePiece
            if sum(word.startswith("\u0120") for word in vocab) > sum(word.startswith("\u2581") for word in vocab):
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
        if isinstance(t, tuple):
            text = t[1]([token])
            return text if isinstance(text, bytes) else str(text).encode("utf-8", "replace")
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
def stated(run: Any) -> Iterator[Dict[int, Any]]:
    """The masks that the model's own code gives to run.gate meanwhile; they do not count as decisions of training."""
    masks: Dict[int, Any] = {}

    def keep(layer: int, mask: Any, score: Any = None) -> None:
        masks[int(layer)] = mask.detach() if hasattr(mask, "detach") else need("torch", "watch").tensor(mask)

    run._gate_tap = keep
    try:
        yield masks
    finally:
        run._gate_tap = None


@contextlib.contextmanager
def evaluation(model: Any) -> Iterator[None]:
    """No gradients, evaluation mode, eager; then every mode and the random states are what they were."""
    torch = need("torch", "watch")
    modes = [(m, m.training) for m in model.modules()]
    devices = sorted({p.device.index for p in model.parameters() if p.device.type == "cuda" and p.device.index is not None})
    stance = getattr(torch.compiler, "set_stance", None)
    eager = stance("force_eager") if stance is not None else contextlib.nullcontext()
    has_cache = torch.is_autocast_cache_enabled()
    with torch.random.fork_rng(devices=devices), torch.no_grad(), eager:
        # weights that autocast casts here have no gradients: training must not find them in its cache, as with torch 2.5
        torch.set_autocast_cache_enabled(False)
        for m, _ in modes:
            m.training = False  # train() and eval() may do more, such as merging an adapter into its weights
        try:
            yield
        finally:
            torch.set_autocast_cache_enabled(has_cache)
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


class Prober:
    """Runs texts through a model.  `notes` holds what could not be recorded, by name."""

    def __init__(self, model: Any, forward: Any, layout: Layout, tokenizer: Any, signals: bool, experts: Optional[Experts]) -> None:
        self.model = model
        self.layout = layout
        self.signals = signals
        self.experts = experts
        self.pieces = Pieces(tokenizer)
        self.notes: Dict[str, str] = {}
        self.logits: Any = None  # of the last pass, (tokens or 1, vocab)
        self._forward = forward
        self._is_lens_wrong = False

    def look(self, run: Any, given: Sequence[int], lens_k: int, device: Any = None) -> Optional[Dict[str, Any]]:
        """The keys of a probe of these ids; None on ranks that do not write.  `run` hears the model's own gates."""
        torch = need("torch", "watch")
        # on a GPU a row that is not there ends every later call of the process
        wrong = next((i for i in given if i < 0 or 0 < self.layout.ids <= i), None)
        if wrong is not None:
            raise ValueError("token id %d: must be in 0..%d" % (wrong, self.layout.ids - 1) if self.layout.ids else "token id %d" % wrong)
        ids = torch.tensor([list(given)], dtype=torch.long, device=device or next(iter(self.model.parameters())).device)
        seen: Dict[int, Tuple[Any, Any]] = {}
        if self.experts is not None:
            self.experts.begin()
            self.experts.seen = seen
        try:
            with stated(run) as gates, Capture(self.model, self.layout, ids, lens_k) as c:
                out = self._forward(ids)
        finally:
            if self.experts is not None:
                self.experts.seen = None
        if not run.is_active:
            return None
        if not c.calls:
            raise ValueError("no block of %s was called" % self.layout.name)
        body = self._body(list(given), lens_k, c, out, gates, seen)
        body.update(ids=list(given), text=[self.pieces(i) for i in given])
        return body

    def _body(self, ids: List[int], lens_k: int, c: Capture, out: Any, gates: Dict[int, Any], seen: Dict[int, Tuple[Any, Any]]) -> Dict[str, Any]:
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
        self._add_tokens(body, ids, c, out)
        lens = self._lens_rows(c, calls)
        if lens is not None:
            cell["lens_nll"], cell["lens_entropy"] = lens[2], lens[3]
            cell["lens_nll"][:, -1] = float("nan")  # nothing follows the last token
            if lens_k > 0:
                body.update(lens_k=lens[0].shape[-1], lens_id=lens[0], lens_p=lens[1],
                            lens_text=[self.pieces(i) for i in lens[0].reshape(-1).tolist()])
        elif not self._is_lens_wrong:
            self.notes.setdefault("head", "no logit lens: no linear layer takes the last block's output or its norm")
        self._add_experts(cell, kinds, calls, seen, run.shape[1])
        body["cell"] = cell
        if kinds:
            body["cell_kind"] = kinds
        if inferred:
            body["inferred"] = ["run"]
            self.notes.setdefault("inferred", "skipped rows are inferred from an unchanged residual stream")
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

    def _add_tokens(self, body: Dict[str, Any], ids: List[int], c: Capture, out: Any) -> None:
        """nll and entropy of each token given its past, from the model's own logits; from the norm and the head where the
        model computes only the last position's, if they give the same there."""
        torch = need("torch", "watch")
        self._is_lens_wrong = False
        tokens = len(ids)
        vocab = self.layout.vocab or int(getattr(c.tail.head, "out_features", 0))
        logits = logits_of(out, tokens, vocab)
        if not vocab and logits is not None and logits.shape[-1] < self.layout.ids:
            logits = None  # states: a model without a head
        self.logits = logits
        if logits is not None and c.final is not None:
            own, model = c.final, plain(logits[-1]).float().to(c.final.device)
            scale = max(1e-3, float(model.abs().max()))
            if own.shape != model.shape or not float((own - model).abs().max()) <= 0.02 * scale:
                self._is_lens_wrong = True
                self.notes.setdefault("lens", "no logit lens: the final norm and the head do not reproduce the model's logits")
        values = torch.full((2, tokens), float("nan"))
        if logits is not None and logits.shape[0] == tokens:
            nexts = torch.tensor(ids[1:], device=logits.device)
            for at in range(0, tokens - 1, 256):
                part = torch.log_softmax(plain(logits[at:min(at + 256, tokens - 1)]).float(), -1)
                to = at + part.shape[0]
                values[0, at + 1:to + 1] = -part.gather(1, nexts[at:to].unsqueeze(1))[:, 0].cpu()
                values[1, at + 1:to + 1] = -(part.exp() * part).nan_to_num(0).sum(-1).cpu()
        elif c.lens and not self._is_lens_wrong:
            values[0, 1:] = c.lens[-1][2][:-1].cpu()
            values[1, 1:] = c.lens[-1][3][:-1].cpu()
        else:
            self.notes.setdefault("loss", "no loss per token: the model returns no logits for every position, and its head is not found")
            return
        body["nll"], body["entropy"] = values[0], values[1]

    def _add_experts(self, cell: Dict[str, Any], kinds: Dict[str, str], calls: List[Call], seen: Dict[int, Tuple[Any, Any]],
                     tokens: int) -> None:
        torch = need("torch", "watch")
        if self.experts is None:
            return
        if self.experts.unknown:
            self.notes.setdefault("experts", "layer %s: the router's output does not say which experts it chose; they are not counted"
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
