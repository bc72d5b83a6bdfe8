"""Watches a PyTorch model while it trains: probes of fixed texts, layer metrics, loads of experts.

Between log steps it costs two hooks on the model (and, with experts, one scatter per router).  It changes nothing that training
depends on: probes run without gradients in evaluation mode, and modes and random states are restored.
"""

from __future__ import annotations

import sys
import warnings
from typing import Any, Callable, Dict, List, Optional

from . import distributed
from ._blocks import Blocks, Hook, find_blocks, first_input, first_tensor, need, plain, runner
from ._experts import Experts, find_routers
from ._probe import METRICS, Prober, eager_of, encode, evaluation

PROBE_TOKENS = 1024


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


class Steps:
    """Counts the steps of this process's optimizers, the same on every rank whatever is logged where."""

    def __init__(self) -> None:
        self.count = 0
        self._had_step = False
        self._is_seen = False
        self._logged: Optional[int] = None
        optimizer = need("torch.optim.optimizer", "watch")
        register = getattr(optimizer, "register_optimizer_step_post_hook", None)
        self._hook = register(self._after) if register is not None else None

    def _after(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        self._had_step = self._is_seen = True

    def move(self, logged: int) -> None:
        """Before a forward pass; several optimizers are one step.  `logged`, the run's step, counts where parameters are updated
        without an optimizer."""
        if self._logged is not None and (self._had_step or (not self._is_seen and logged != self._logged)):
            self.count += 1
        self._had_step = False
        self._logged = logged

    def settle(self, logged: int) -> None:
        """Between forward passes, once there was one."""
        if self._logged is not None:
            self.move(logged)

    def close(self) -> None:
        if self._hook is not None:
            self._hook.remove()


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
        self.lens_k = lens_k
        self.layout = find_blocks(model, blocks)
        self.group = group
        self.is_sharded = distributed.is_sharded(model)
        given = [probe] if isinstance(probe, (str, dict)) else list(probe or [])
        if given and all(isinstance(x, int) for x in given):  # one list of ids
            given = [given]
        limit = min(PROBE_TOKENS, self.layout.context or PROBE_TOKENS)
        self.probes = [Probe(i, x, tokenizer, limit) for i, x in enumerate(given)]
        routers = find_routers(self.layout) if experts else []
        self.experts = Experts(routers) if routers else None
        self._prober = Prober(model, forward or runner(model if self.is_sharded else eager_of(model)), self.layout, tokenizer,
                              signals, self.experts)
        self._steps = Steps()
        self._logged = int(run.step)
        self._base = max(self._logged, 0)
        self._armed: List[Any] = []
        self._told: List[str] = []
        self._is_inside = False
        self._is_asked = False
        self._device: Any = None
        self._next = 0
        self._failures: Dict[str, int] = {}
        self._is_closed = False
        self._is_compiled = any("_orig_mod" in m._modules or getattr(m, "_compiled_call_impl", None) is not None
                                for m in model.modules())
        self._hooks = [model.register_forward_pre_hook(Hook(_opaque(self._before)), with_kwargs=True),
                       model.register_forward_hook(Hook(_opaque(self._after)))]
        self._describe()
        run._closing.append(self.close)
        if self.probes and run._control is not None:  # commands are opt-in
            former = run._control._plain.get("probe")
            if former is None or isinstance(getattr(former, "__self__", None), Watch):  # not the script's own
                run.on("probe", self.ask)

    # ---- at the log steps of training ----

    def _before(self, module: Any, args: Any, kwargs: Any) -> None:
        """Before each forward of the model."""
        torch = need("torch", "watch")
        if self._is_inside:
            return
        self._disarm()  # the pass before this one may have ended in an exception
        if self.experts is not None:
            self.experts.is_counting = False
        if not module.training or not torch.is_grad_enabled():
            return
        x = next((t for t in args + tuple(kwargs.values()) if hasattr(t, "device") and hasattr(t, "shape")), None)
        self._device = self._device if x is None else x.device
        self._steps.move(int(self.run.step))
        count, step = self._steps.count, self._step()
        is_due = count >= self._next  # on all ranks at once; only rank 0 hears the command
        if is_due or self._is_asked and not self._needs_all_ranks():
            self._next = (count // self.every + 1) * self.every
            self._is_asked = False
            self._log_step(step, is_due or distributed.world_size() == 1)
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
            self._guarded(self._send_layers)()

    def _step(self) -> int:
        """The step that the next forward pass belongs to: the number of updates, moved to where the run's own steps are.  A loop
        may log the step of an update under its number from 0 or from 1, and not every one."""
        logged, count = int(self.run.step), self._steps.count
        if logged != self._logged:
            self._logged = logged
            if not -1 <= logged - count - self._base <= 0:
                self._base = logged - count
        return max(count + self._base, 0)

    def _now(self) -> int:
        """The same between forward passes, where the newest update has not been counted yet."""
        self._steps.settle(int(self.run.step))
        return self._step()

    def _log_step(self, step: int, has_all_ranks: bool) -> None:
        self.probe(step)
        if has_all_ranks:
            self._send_load(step)
        # a compiled model would be compiled again for hooks that come and go
        self._is_compiled = self._is_compiled or _is_called_by_compiled()
        if self.run.is_active and not self._is_compiled and not self._has_failed("layers"):
            self._arm(step)

    def _send_load(self, step: int) -> None:
        counts = self.experts.take() if self.experts is not None else None
        if counts is None or self.experts is None:
            return
        counts = distributed.sum_counts(counts, self.group)
        if not self.run.is_active:
            return
        first = int(self.run._head.get("layer_offset") or 0)  # of a pipeline stage
        self.run.matrix("expert_load", counts, step=step, layer=[first + layer for layer in self.experts.layers])

    # ---- layer metrics of one training batch ----

    def _arm(self, step: int) -> None:
        self._layer_step = step
        self._share: List[Any] = [None] * self.layout.layers
        self._rows = 0  # of the stream, as far as a block takes all of them
        self._norm: List[Any] = [None] * self.layout.layers
        for layer, block in enumerate(self.layout.blocks):
            entry: List[Any] = []
            self._armed.append(block.register_forward_pre_hook(self._guarded(self._measure_in(entry)), with_kwargs=True))
            self._armed.append(block.register_forward_hook(self._guarded(self._measure_out(layer, entry))))

    def _disarm(self) -> None:
        for hook in self._armed:
            hook.remove()
        self._armed = []

    def _guarded(self, f: Callable[..., None]) -> Callable[..., None]:
        """What fails inside ends the layer metrics of this batch, not the training step."""
        def hook(*args: Any) -> None:
            try:
                f(*args)
            except Exception as e:
                self._disarm()
                self._fail("layers", e, self._layer_step)

        return hook

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
                at_least_float = torch.promote_types(y.dtype, torch.float32)
                self._norm[layer] = plain(torch.linalg.vector_norm(y, dim=-1, dtype=at_least_float).mean())
                # of a block that writes into its input nothing is known
                if is_whole and x.shape == y.shape:
                    self._share[layer] = plain((y != x).any(-1).float().sum())
                self._rows = max(self._rows, y.shape[:-1].numel())

        return hook

    def _send_layers(self) -> None:
        torch = need("torch", "watch")
        step, named = self._layer_step, {"residual_norm": self._norm}
        if not self._has_gates():
            # rows that do not enter a block are skipped
            named["gate_ratio"] = [None if v is None else v / self._rows for v in self._share]
        names = [n for n, values in named.items() if any(v is not None for v in values)]
        if not names:
            return
        some = next(v for v in named[names[0]] if v is not None)
        gap = torch.full_like(some, float("nan"))
        given = {n: torch.stack([gap if v is None else v.to(some.device) for v in named[n]]) for n in names}
        self.run.layers(given, step=step)

    def _has_gates(self) -> bool:
        """Has the model's own code stated its decisions?"""
        return bool(self.run._gates)

    # ---- probes ----

    def probe(self, step: Optional[int] = None) -> None:
        """Runs every probe text through the model and records what each layer did.  A failure is an event, not an exception:
        training continues."""
        at = self._now() if step is None else step
        # ranks that hold a part of the model take part in each pass, whatever failed on one of them after it
        if not self.probes or self._has_failed("probe") and not self._needs_all_ranks() or not (self.run.is_active or self.is_sharded):
            return
        self._is_inside = True
        try:
            with evaluation(self.model):
                for p in self.probes:
                    self._probe(p, at)
        except Exception as e:
            if not self.run.is_active:
                raise
            self._fail("probe", e, at)
        finally:
            self._is_inside = False

    def _probe(self, p: Probe, step: int) -> None:
        body = self._prober.look(self.run, p.ids, self.lens_k, self._device)
        if body is not None:
            self.run.probe(step=step, index=p.index, name=p.name, **body)
        for name, text in self._prober.notes.items():
            self._tell(name, text)

    # ---- the rest ----

    def _fail(self, name: str, e: Exception, step: int) -> None:
        """A failure is an event and a warning."""
        self._failures[name] = self._failures.get(name, 0) + 1
        text = "%s: %s" % (type(e).__name__, str(e).partition("\n")[0][:300])
        self.run.event(name, text, level="error", step=step)
        warnings.warn("depthscope: %s: %s" % (name, text), RuntimeWarning, stacklevel=3)

    def _has_failed(self, name: str) -> bool:
        """Too often to be tried again?"""
        return self._failures.get(name, 0) >= 3

    def ask(self, *_: Any) -> str:
        """For the control command `probe`: the probes run before the next training step, those of a sharded model at the next
        that all ranks count."""
        if self._is_closed:
            raise RuntimeError("the model is not watched any more")
        self._is_asked = True
        return "at the next step of all ranks' probes" if self._needs_all_ranks() else "before the next step"

    def _needs_all_ranks(self) -> bool:
        return self.is_sharded and distributed.world_size() > 1

    def _tell(self, name: str, text: str) -> None:
        """An event, once."""
        if text not in self._told and self.run.is_active:
            self._told.append(text)
            self.run.event(name, text, level="info" if name in ("inferred", "head") else "warn")

    def _describe(self) -> None:
        """What is known of the model now, into the head of the log."""
        if not self.run.is_active:
            return
        known: Dict[str, Any] = {"layers": self.layout.layers, "vocab": self.layout.vocab or None}
        if self.experts is not None:
            known.update(experts=self.experts.experts, experts_per_token=self.experts.top or None)
        if "params" not in self.run._head and not self.is_sharded:
            known["params"] = sum(p.numel() for p in self.model.parameters())
        metrics = list(self.run._head.get("metrics") or [])
        names = {m.get("name") for m in metrics}
        metrics += [{"name": n, "unit": u, "help": h, "scope": s} for n, u, h, s in METRICS if n not in names]
        self.run.describe(metrics=metrics, **{k: v for k, v in known.items() if k not in self.run._head})

    def close(self) -> None:
        """Sends the last counts and removes the hooks; the run's finish() does it, too.  Counts that would have to be summed over
        ranks are not sent, since the others may have ended."""
        if self._is_closed:
            return
        if distributed.world_size() == 1:
            self._send_load(self._now())
        self._disarm()
        for hook in self._hooks:
            hook.remove()
        self._steps.close()
        if self.experts is not None:
            self.experts.close()
        self._is_closed = True


def _opaque(f: Callable[..., Any]) -> Callable[..., Any]:
    """Hooks run outside compiled graphs."""
    torch = need("torch", "watch")
    disable = getattr(getattr(torch, "compiler", None), "disable", None)
    return disable(f) if disable is not None else f


def _is_called_by_compiled() -> bool:
    """Is this hook called by code that torch.compile made after watch() was called?"""
    frame, calls = sys._getframe(1), 0
    while frame is not None:
        calls += frame.f_code.co_filename.endswith("eval_frame.py")
        frame = frame.f_back  # type: ignore[assignment]
    return calls > 1  # one is that of _opaque


def watch(model: Any, run: Any, probe: Any = None, tokenizer: Any = None, every: int = 100, signals: bool = True, lens_k: int = 3,
          experts: bool = True, blocks: Blocks = None, forward: Optional[Callable[[Any], Any]] = None, group: Any = None) -> Watch:
    """Records what each layer of `model` does to fixed texts, and layer metrics of the training batch, every `every` steps.

    model      any PyTorch model with a list of decoder blocks, wrapped or not (DDP, FSDP, torch.compile, peft)
    probe      texts (with `tokenizer`), lists of token ids, or dicts with `name` and `text` or `ids`
    tokenizer  of transformers, tiktoken or tokenizers, or two functions (encode, decode)
    signals    velocity, speed change, acceleration and turn of the residual stream
    lens_k     tokens of the logit lens per cell; 0: none
    experts    counts the assignments of mixtures of experts at each training step
    blocks     dotted name of the list of blocks, or the modules, where they are not found
    forward    ids (1, T) -> output, for models that are called in another way
    group      the process group over which counts of experts are summed (default: all ranks); with tensor parallelism the
               group of the data-parallel ranks, since those of one tensor-parallel group see the same tokens; of a pipeline
               stage its own ranks, since those of other stages have other layers
    """
    return Watch(model, run, probe, tokenizer, every, signals, lens_k, experts, blocks, forward, group)
