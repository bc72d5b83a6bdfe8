"""Finds the decoder blocks, the final norm and the head of a PyTorch model by its structure.

Knows nothing of runs and records.  The names of model families do not appear here: a block list is a list of modules of one
class, and what follows the last block is recognised while the model runs (see `Tail`).
"""

from __future__ import annotations

import importlib
import inspect
import re
from dataclasses import dataclass
from typing import Any, Dict, Iterator, List, Optional, Sequence, Tuple, Union

Blocks = Union[str, Sequence[Any], None]


def need(package: str, user: str) -> Any:
    """An optional package, imported when it is needed; otherwise one clear line."""
    try:
        return importlib.import_module(package)
    except ImportError as e:
        raise ImportError("%s: the package %s is not installed" % (user, package.partition(".")[0])) from e


def unwrap(module: Any) -> Any:
    """The module inside wrappers: DDP, FSDP, torch.compile, activation checkpoints."""
    inner = ("module", "_fsdp_wrapped_module", "_orig_mod", "_checkpoint_wrapped_module")
    seen = 0
    while seen < 16:
        for name in inner:
            child = module._modules.get(name)
            if child is not None and (name != "module" or len(module._modules) == 1):
                module = child
                break
        else:
            return module
        seen += 1
    return module


def plain(tensor: Any) -> Any:
    """A tensor that may be sharded (DTensor), whole and detached."""
    tensor = tensor.detach()
    full = getattr(tensor, "full_tensor", None)
    return full() if full is not None else tensor


class Hook:
    """A hook that stays on a module; a copy of the module (deepcopy, torch.save, another process) has one that does nothing."""

    def __init__(self, f: Any) -> None:
        self.f = f

    def __call__(self, *args: Any) -> Any:
        return self.f(*args)

    def __reduce__(self) -> Any:
        return Hook, (nothing,)


def nothing(*_: Any) -> None:
    pass


def first_tensor(value: Any) -> Any:
    """The tensor that a block takes or returns: it may be the first item of a tuple, or a field of an output class."""
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return value
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (tuple, list)):
        for item in value:
            found = first_tensor(item)
            if found is not None:
                return found
    return None


def first_input(args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> Any:
    for name in ("hidden_states", "x", "src", "input"):
        if hasattr(kwargs.get(name), "shape"):
            return kwargs[name]
    for value in args + tuple(kwargs.values()):
        if hasattr(value, "shape") and getattr(value, "is_floating_point", lambda: False)():
            return value
    return None


def _lists(model: Any) -> Iterator[Tuple[str, List[Any]]]:
    """Outermost lists of modules of one class, with their dotted names."""
    torch = need("torch", "watch")
    kinds = (torch.nn.ModuleList, torch.nn.Sequential, torch.nn.ModuleDict)

    def walk(module: Any, name: str) -> Iterator[Tuple[str, List[Any]]]:
        for key, child in module.named_children():
            path = name + "." + key if name else key
            items = list(child.values()) if isinstance(child, torch.nn.ModuleDict) else list(child.children())
            # one class: wrappers aside; a list whose items hold no parameters (activations) is no list of blocks
            classes = {type(unwrap(m)) for m in items}
            is_list = isinstance(child, kinds) and len(classes) == 1 and all(any(True for _ in m.parameters()) for m in items)
            if is_list and type(unwrap(items[0])) not in (torch.nn.ModuleList, torch.nn.ModuleDict, torch.nn.Linear,
                                                          torch.nn.Embedding):
                yield path, items
            else:
                yield from walk(child, path)

    yield from walk(model, "")


@dataclass
class Layout:
    """Where the residual stream of a model is."""

    name: str
    blocks: List[Any]
    context: int = 0
    vocab: int = 0
    ids: int = 0  # those that an embedding has rows for; 0: not known
    config: Any = None

    @property
    def layers(self) -> int:
        return len(self.blocks)


def find_blocks(model: Any, blocks: Blocks = None) -> Layout:
    """The decoder blocks of a model: `blocks` (a dotted name, or the modules), else the longest list of modules of one class
    that is not inside another one.  Of lists equally long the last is taken: decoders follow encoders."""
    if isinstance(blocks, str):
        found = None
        for name, module in model.named_modules():
            clean = re.sub(r"(^|\.)(module|_orig_mod|_fsdp_wrapped_module|_checkpoint_wrapped_module)(?=\.|$)", "", name).strip(".")
            if blocks in (name, clean):
                found = list(module.children())
        if not found:
            raise ValueError('watch: blocks="%s": not found in the model, expected the dotted name of a list of blocks' % blocks)
        name = blocks
    elif blocks is not None:
        name, found = "blocks", list(blocks)
        if not found:
            raise ValueError("watch: blocks: the list is empty, expected the decoder blocks")
    else:
        lists = list(_lists(model))
        if not lists:
            raise ValueError("watch: no list of blocks of one class found in %s; pass blocks=\"dotted.name\" of the list, or the "
                             "modules" % type(unwrap(model)).__name__)
        longest = max(len(items) for _, items in lists)
        name, found = [x for x in lists if len(x[1]) == longest][-1]
    config = getattr(unwrap(model), "config", None)
    text = getattr(config, "get_text_config", None)
    if callable(text):
        config = text()
    layout = Layout(name, found, config=config)
    for key in ("max_position_embeddings", "n_positions", "block_size", "max_seq_len", "n_ctx"):
        value = getattr(config, key, None)
        if isinstance(value, int) and value > 0:
            layout.context = value
            break
    value = getattr(config, "vocab_size", None)
    torch = need("torch", "watch")
    inside = {id(m) for b in found for m in b.modules()}
    outside = [m for m in model.modules() if id(m) not in inside]
    rows = {int(m.num_embeddings) for m in outside if isinstance(m, torch.nn.Embedding)}
    # without a configuration: the outputs of the linear layer that has as many as an embedding has rows
    layout.vocab = value if isinstance(value, int) else next(
        (int(m.out_features) for m in outside if isinstance(m, torch.nn.Linear) and m.out_features in rows), 0)
    layout.ids = layout.vocab if layout.vocab in rows else max(rows, default=0)
    return layout


def runner(model: Any) -> Any:
    """A function ids -> output that calls the model as its forward expects."""
    inner = unwrap(model)
    base = getattr(inner, "get_base_model", None)  # peft
    parameters = inspect.signature((base() if callable(base) else inner).forward).parameters
    more: Dict[str, Any] = {"use_cache": False} if "use_cache" in parameters else {}
    if "decoder_input_ids" in parameters:  # the decoder continues the text that the encoder sees
        return lambda ids: model(input_ids=ids, decoder_input_ids=ids, **more)
    if "input_ids" in parameters:
        return lambda ids: model(input_ids=ids, **more)
    return lambda ids: model(ids, **more)


class Tail:
    """What follows the last block, recognised while the model runs: the norm takes the residual stream, and the head is the
    linear layer that takes the norm's output (or the stream itself).  `found` holds after a pass."""

    def __init__(self, model: Any, layout: Layout) -> None:
        torch = need("torch", "watch")
        inside = {id(m) for b in layout.blocks for m in b.modules()}
        self.norm: Any = None
        self.head: Any = None
        self.found = False
        self._last: Any = None
        self._normed: Any = None
        heads = [m for m in model.modules() if id(m) not in inside and isinstance(m, torch.nn.Linear)]
        # a projection in front of the head takes the stream, too; of heads padded beyond the vocabulary nothing else differs
        self._heads = [m for m in heads if m.out_features == layout.vocab] or [m for m in heads if m.out_features >= layout.vocab]
        self._norms = [m for m in model.modules() if id(m) not in inside and not list(m.children())
                       and not isinstance(m, (torch.nn.Linear, torch.nn.Embedding, torch.nn.Dropout, torch.nn.Identity))
                       and any(True for _ in m.parameters(recurse=False))]

    def candidates(self) -> List[Any]:
        return self._norms + self._heads

    def stream(self, out: Any) -> None:
        """The output of the last block."""
        self._last, self._normed = out, None
        self.norm = self.head = None

    def call(self, module: Any, x: Any, out: Any) -> None:
        """A candidate was called."""
        if self._last is None or x is None or out is None:
            return
        if module in self._heads:
            source = self._normed if self._normed is not None else self._last
            if x.shape[-1] == source.shape[-1] and self.head is None and same_rows(x, source):
                self.head, self.found = module, True
        elif self.norm is None and x.shape == self._last.shape and out.shape == x.shape and same_rows(x, self._last):
            self.norm, self._normed = module, out

    def forget(self) -> None:
        self._last = self._normed = None


def same_rows(x: Any, source: Any) -> bool:
    """Is x the source, or its last position (models that compute only the next token)?"""
    if x is source:
        return True
    torch = need("torch", "watch")
    if x.shape == source.shape:
        return bool(torch.equal(x, source))
    if x.dim() == source.dim() and x.dim() >= 2 and x.shape[-2] == 1:
        return bool(torch.equal(x, source[..., -1:, :]))
    return x.dim() < source.dim() and x.numel() == source.numel() and bool(torch.equal(x.reshape(source.shape), source))
