"""Finds the routers of mixtures of experts and counts where they send tokens.

The counters stay on the device of the router: a training step adds a top-k (when the router returns only its logits) and one
scatter per layer, and copies nothing.
"""

from __future__ import annotations

import inspect
from typing import Any, Dict, List, Optional, Tuple

from ._blocks import Hook, Layout, need, plain

ROUTER_NAMES = ("gate", "router", "gating", "wg")
COUNT_KEYS = ("num_experts", "n_routed_experts", "num_local_experts", "moe_num_experts")
# top_k last: in a configuration it may be that of sampling
TOP_KEYS = ("num_experts_per_tok", "num_experts_per_token", "experts_per_token", "moe_top_k", "topk", "top_k")


def _number(places: List[Any], names: Tuple[str, ...], most: int = 1 << 31) -> int:
    for place in places:
        for name in names:
            value = getattr(place, name, None)
            if isinstance(value, int) and not isinstance(value, bool) and 0 < value <= most:
                return value
    return 0


def choice(out: Any, experts: int, top: int, is_normalised: bool = True, wants_weight: bool = True) -> Optional[Tuple[Any, Any]]:
    """(experts, weights), each (tokens, k), from what a router returns: logits, or a tuple that holds integer indices and either
    their weights or values for all experts.  None when it is neither."""
    torch = need("torch", "watch")
    parts = [plain(t) for t in (out if isinstance(out, (tuple, list)) else [out]) if hasattr(t, "dtype")]
    index = next((t for t in parts if not t.is_floating_point() and t.dtype != torch.bool and t.dim() >= 1), None)
    floats = [t for t in parts if t.is_floating_point()]
    if index is not None and index.shape[-1] == experts != top:
        return None  # not indices but a mask, perhaps of one choice of several
    if index is not None:
        index = index.reshape(-1, index.shape[-1])
        if not wants_weight:
            return index, None
        same = next((t for t in floats if t.numel() == index.numel() and t.shape[-1] == index.shape[-1]), None)
        if same is not None:
            return index, same.reshape(index.shape)
        every = next((t for t in floats if t.shape[-1] == experts and t.numel() == index.shape[0] * experts), None)
        return index, None if every is None else every.reshape(-1, experts).gather(1, index.long())
    logits = next((t for t in floats if t.dim() >= 1 and t.shape[-1] == experts), None)
    if logits is None or top < 1:
        return None
    logits = logits.reshape(-1, experts)
    if not wants_weight:
        return logits.topk(top, dim=-1)[1], None
    if top < experts and bool(((logits != 0).sum(-1) <= top).all()):  # weights already, 0 of the experts that are not chosen
        weights, index = logits.topk(top, dim=-1)
        return index, weights
    weights, index = torch.softmax(logits.float(), -1).topk(top, dim=-1)
    return index, weights / weights.sum(-1, keepdim=True) if is_normalised else weights


class Router:
    """The router of one layer."""

    def __init__(self, layer: int, parent: Any, module: Any, config: Any) -> None:
        self.layer = layer
        self.module = module
        held = parent._modules.get("experts")
        places = [parent, module, held, config]
        weight = getattr(module, "weight", None)
        listed = len(held) if hasattr(held, "__len__") else 0
        self.experts: int = getattr(module, "out_features", 0) or _number([parent, module, held], COUNT_KEYS) or \
            (int(weight.shape[0]) if weight is not None and weight.dim() == 2 else 0) or listed or _number([config], COUNT_KEYS)
        self.top = _number(places, TOP_KEYS, self.experts)
        named = [getattr(p, "norm_topk_prob") for p in places if hasattr(p, "norm_topk_prob")]
        self.is_normalised = bool(named[0]) if named else True
        # a router whose choice is biased or limited to groups returns logits that do not determine it
        self.has_rule = any(hasattr(p, name) for p in (module, parent) for name in ("e_score_correction_bias", "n_group"))
        self.called: Any = None  # the module that is called with the indices of the chosen experts
        if held is not None and not listed:
            names = list(inspect.signature(held.forward).parameters)
            if any("ind" in n or "top" in n or "selected" in n for n in names):
                self.called = held

    def of_router(self, out: Any, wants_weight: bool) -> Optional[Tuple[Any, Any]]:
        has_index = isinstance(out, (tuple, list)) and any(hasattr(t, "dtype") and not t.is_floating_point() for t in out)
        if not has_index and (self.called is not None or self.has_rule):
            return None
        return choice(out, self.experts, self.top, self.is_normalised, wants_weight)

    def of_call(self, args: Tuple[Any, ...], kwargs: Dict[str, Any], wants_weight: bool) -> Optional[Tuple[Any, Any]]:
        parts = [t for t in args[1:] + tuple(kwargs.values()) if hasattr(t, "dtype")]
        if not any(not t.is_floating_point() for t in parts):
            return None
        return choice(parts, self.experts, self.top, True, wants_weight)


def find_routers(layout: Layout) -> List[Router]:
    """Modules that hold `experts` and a router beside them, one per block."""
    found: List[Router] = []
    for layer, block in enumerate(layout.blocks):
        for parent in block.modules():
            children = parent._modules
            if children.get("experts") is None:
                continue
            router = next((children[n] for n in ROUTER_NAMES if children.get(n) is not None), None)
            if router is None:
                router = next((m for m in children.values() if m is not None and type(m).__name__.endswith(("Router", "Gate"))),
                              None)
            if router is None:
                continue
            r = Router(layer, parent, router, layout.config)
            if r.experts > 1:
                found.append(r)
                break
    return found


class Experts:
    """Counts the assignments of tokens to experts while `is_counting`, or keeps those of one pass in `seen`."""

    def __init__(self, routers: List[Router]) -> None:
        self.routers = routers
        self.experts = max((r.experts for r in routers), default=0)
        self.top = max((r.top for r in routers), default=0)
        self.is_counting = False
        self.seen: Optional[Dict[int, Tuple[Any, Any]]] = None
        self.unknown: List[int] = []
        self.counts: Any = None
        self._hooks: List[Any] = []
        for row, r in enumerate(routers):
            self._hooks.append(r.module.register_forward_hook(Hook(self._after(row, r))))
            if r.called is not None:
                self._hooks.append(r.called.register_forward_pre_hook(Hook(self._before(row, r)), with_kwargs=True))

    def _after(self, row: int, r: Router) -> Any:
        def hook(module: Any, args: Any, out: Any) -> None:
            if self.is_counting or self.seen is not None:
                self._take(row, r, r.of_router(out, self.seen is not None), r.called is None)

        return hook

    def _before(self, row: int, r: Router) -> Any:
        def hook(module: Any, args: Any, kwargs: Any) -> None:
            # a router that has returned indices has been counted already
            if (self.is_counting or self.seen is not None) and row not in self._done:
                self._take(row, r, r.of_call(args, kwargs, self.seen is not None), True)

        return hook

    def begin(self) -> None:
        """Before each forward."""
        self._done: Dict[int, bool] = {}

    def _take(self, row: int, r: Router, chosen: Optional[Tuple[Any, Any]], is_last: bool) -> None:
        torch = need("torch", "watch")
        if chosen is None:
            if is_last and r.layer not in self.unknown:
                self.unknown.append(r.layer)
            return
        if r.called is not None:
            self._done[row] = True
        index, weight = chosen
        if self.seen is not None:
            self.seen[r.layer] = (index, weight)
            return
        with torch.no_grad():
            flat = index.reshape(-1).long()
            if self.counts is None:
                self.counts = torch.zeros(len(self.routers), self.experts + 1, dtype=torch.int64, device=flat.device)
            if self.counts.device != flat.device:  # a model spread over devices
                flat = flat.to(self.counts.device, non_blocking=True)
            # column `experts` takes ids that are none (-1, padding), so that no id needs a look from the host
            flat = torch.where((flat < 0) | (flat >= self.experts), self.experts, flat)
            self.counts[row].scatter_add_(0, flat, torch.ones_like(flat))

    def take(self) -> Any:
        """The counts since the last call, (rows, experts) on the device, or None."""
        if self.counts is None:
            return None
        counts = self.counts[:, :self.experts].clone()
        self.counts.zero_()
        return counts

    @property
    def layers(self) -> List[int]:
        return [r.layer for r in self.routers]

    def close(self) -> None:
        for hook in self._hooks:
            hook.remove()
        self._hooks = []
