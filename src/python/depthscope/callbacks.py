"""Callbacks for the Hugging Face Trainer and for Lightning, and a logger for Lightning.

Neither package is imported before one of these is made.
"""

from __future__ import annotations

import os
import re
from typing import Any, Dict, Iterable, List, Mapping, Optional

from . import distributed
from ._blocks import find_blocks, need
from ._run import Run, init
from ._watch import Watch

RENAMED = {"learning_rate": "lr", "eval_loss": "val_loss"}
COMMANDS = ("pause", "stop", "checkpoint", "probe", "set lr")


class Requests:
    """What the control socket asked of a training loop, applied between steps and on all ranks alike."""

    def __init__(self, run: Run, control: Any) -> None:
        self.run = run
        self.is_on = bool(control)
        self._save = False
        self._lr = 0.0
        names = COMMANDS if control is True else tuple(control or ())
        for name in names:
            if name not in COMMANDS:
                raise ValueError("control: unknown command %r, expected %s" % (name, ", ".join(COMMANDS)))
            if name in ("pause", "stop"):
                run.on(name)
            elif name == "checkpoint":
                run.on(name, self._ask_save)
            elif name == "set lr":
                run.on(name, self._ask_lr, min=0.0)

    def _ask_save(self) -> str:
        self._save = True
        return "after the current step"

    def _ask_lr(self, value: float) -> None:
        self._lr = value

    def take(self, has_exchange: bool) -> Any:
        """(stop, save, learning rate or 0).  Several ranks agree where `has_exchange`; elsewhere nothing happens yet."""
        self.run.poll()
        if distributed.world_size() > 1 and not (self.is_on and has_exchange):
            return False, False, 0.0
        got = distributed.agree([float(self.run.should_stop), float(self._save), self._lr])
        self._save, self._lr = False, 0.0
        return bool(got[0]), bool(got[1]), got[2]


def set_lr(optimizers: List[Any], schedulers: List[Any], value: float) -> None:
    """Sets the learning rate of the first parameter group and scales the others alike, with all rates that the schedules of torch
    work with: they go on from there, as many times higher or lower.  A schedule of another kind may overwrite it."""
    first = next((g["lr"] for o in optimizers for g in o.param_groups if g.get("lr")), 0.0)
    factor = value / float(first) if first else 0.0
    for o in optimizers:
        for g in o.param_groups:
            g.update({k: g[k] * factor if factor else value for k in ("lr", "initial_lr", "max_lr", "min_lr") if k in g})
    _scale(schedulers, factor, value)


def _scale(schedulers: Iterable[Any], factor: float, value: float) -> None:
    for s in schedulers:
        _scale(getattr(s, "_schedulers", ()), factor, value)
        for key in ("base_lrs", "max_lrs"):
            if hasattr(s, key):
                setattr(s, key, [b * factor if factor else value for b in getattr(s, key)])
        if factor and hasattr(s, "eta_min"):
            s.eta_min *= factor


def _numbers(values: Mapping[str, Any]) -> Dict[str, Any]:
    return {RENAMED.get(k, k): v for k, v in values.items()
            if (isinstance(v, (int, float)) and not isinstance(v, bool)) or hasattr(v, "item")}


def _made_of(cls: type, base: Any) -> Any:
    """An instance of a class that is also one of a framework's."""
    return object.__new__(cls if issubclass(cls, base) else type(cls.__name__, (cls, base), {"__doc__": cls.__doc__}))


class DepthscopeCallback:
    """For the Hugging Face Trainer: `Trainer(..., callbacks=[ds.DepthscopeCallback(probe=texts)])`.

    probe, every, tokenizer, watch   as in `watch` (`tokenizer`: the Trainer's own by default; watch=False: metrics alone)
    control                          True: the workbench may pause, stop, save, probe and set the learning rate
    run                              a run to write into; else one is made with `name`, `project`, `dir` and further keys of the head
    """

    def __new__(cls, *_: Any, **__: Any) -> "DepthscopeCallback":
        return _made_of(cls, need("transformers", "DepthscopeCallback").TrainerCallback)  # type: ignore[no-any-return]

    def __init__(self, probe: Any = None, every: int = 100, tokenizer: Any = None, watch: bool = True, control: Any = None,
                 run: Optional[Run] = None, name: Optional[str] = None, project: Optional[str] = None, dir: Optional[str] = None,
                 signals: bool = True, lens_k: int = 3, experts: bool = True, **head: Any) -> None:
        self.run = run
        self.watch: Optional[Watch] = None
        self._is_own = run is None
        self._base = self._end = 0  # steps before the present train(), and with it
        self._probe, self._every, self._tokenizer, self._wants_watch, self._control = probe, every, tokenizer, watch, control
        self._options: Dict[str, Any] = {"signals": signals, "lens_k": lens_k, "experts": experts}
        self._init: Dict[str, Any] = {"name": name, "project": project, "dir": dir, **head}
        self._requests: Optional[Requests] = None

    def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        is_search = getattr(state, "is_hyper_param_search", False)
        if self.run is not None and self._is_own and (is_search or not self.run.is_active):
            self.run.finish()  # each trial is a run
            self.run = None
            self._end = 0
        if state.global_step == 0:
            self._base = self._end
        if self.run is None:
            config = {"train": _settings(args), "model": _settings(getattr(model, "config", None))}
            known: Dict[str, Any] = {"config": config, "steps": state.max_steps, "seed": getattr(args, "seed", None),
                                     "step": state.global_step}
            if state.global_step > 0 and self._init["name"]:
                known["resume"] = "allow"
            given = {k: v for k, v in self._init.items() if v is not None}
            if is_search and "name" in given:  # NAME-1, NAME-2, ...
                given = {"project": given["name"], **{k: v for k, v in given.items() if k != "name"}}
            self.run = init(**{**known, **given})
        elif self._base:
            self.run.describe(steps=self._base + state.max_steps)
        self._requests = Requests(self.run, self._control)
        if self._wants_watch and model is not None:
            tokenizer = self._tokenizer or kwargs.get("processing_class") or kwargs.get("tokenizer")
            self.watch = Watch(model, self.run, self._probe, tokenizer, self._every, **self._options)

    def on_step_end(self, args: Any, state: Any, control: Any, optimizer: Any = None, lr_scheduler: Any = None, **kwargs: Any) -> Any:
        if self._requests is None:
            return control
        stop, save, lr = self._requests.take(state.global_step % max(1, int(args.logging_steps)) == 0)
        if stop:
            control.should_training_stop = True
        if save:
            control.should_save = True
        if lr:
            set_lr([optimizer], [lr_scheduler], lr)
        return control

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        if self.run is None:
            return
        values = _numbers(logs or {})
        if getattr(state, "num_input_tokens_seen", 0):
            values["tokens"] = int(state.num_input_tokens_seen)
        self.run.log(values, step=self._base + state.global_step)

    def on_evaluate(self, args: Any, state: Any, control: Any, metrics: Any = None, **kwargs: Any) -> None:
        if self.run is not None and metrics:
            values = {re.sub("^eval_", "", k): v for k, v in metrics.items()}
            self.run.evaluation("val", {k: v for k, v in values.items() if isinstance(v, (int, float))},
                                step=self._base + state.global_step)

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self.run is not None:
            self.run.event("checkpoint", os.path.join(args.output_dir, "checkpoint-%d" % state.global_step),
                           step=self._base + state.global_step)

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self.run is None:
            return
        if self.watch is not None:
            self.watch.close()
            self.watch = None
        self._end = self._base + state.global_step
        self.run.flush()  # an evaluation or another train() may follow: the run ends with the process


def _settings(config: Any) -> Dict[str, Any]:
    """The plain values of a configuration object."""
    to_dict = getattr(config, "to_dict", None)
    values = to_dict() if callable(to_dict) else {}
    return {str(k): v for k, v in values.items() if isinstance(v, (bool, int, float, str)) and v != ""}


def _lightning(part: str, user: str) -> Any:
    """lightning.pytorch, or the package under its former name."""
    try:
        return need("lightning.pytorch" + part, user)
    except ImportError:
        return need("pytorch_lightning" + part, user)


class DepthscopeLogger:
    """For Lightning: `Trainer(logger=ds.DepthscopeLogger(name="a"))`.  Arguments are those of `init`."""

    def __new__(cls, *_: Any, **__: Any) -> "DepthscopeLogger":
        return _made_of(cls, _lightning(".loggers", "DepthscopeLogger").Logger)  # type: ignore[no-any-return]

    def __init__(self, project: Optional[str] = None, name: Optional[str] = None, dir: Optional[str] = None, run: Optional[Run] = None,
                 **head: Any) -> None:
        super().__init__()
        self._run = run
        self._init: Dict[str, Any] = {k: v for k, v in {"project": project, "name": name, "dir": dir, **head}.items() if v is not None}

    @property
    def experiment(self) -> Run:
        """The run."""
        if self._run is None:
            self._run = init(**self._init)
        return self._run

    @property
    def name(self) -> str:
        return self._run.name if self._run is not None else str(self._init.get("name", ""))

    @property
    def version(self) -> str:
        return self._run.run_id if self._run is not None else ""

    def log_hyperparams(self, params: Any, *args: Any, **kwargs: Any) -> None:
        self.experiment.configure(params)

    def log_metrics(self, metrics: Mapping[str, Any], step: Optional[int] = None) -> None:
        self.experiment.log(_numbers(metrics), step=step)

    def finalize(self, status: str) -> None:
        """After each fit, validate and test, of which others may follow: the run ends with the process, or when one failed."""
        if self._run is None:
            return
        if status in ("success", "finished"):
            self._run.flush()
        else:
            self._run.finish("stopped" if status == "interrupted" else "failed")


class DepthscopeLightningCallback:
    """For Lightning, beside `DepthscopeLogger`: probes, layer metrics, checkpoints and control.

    model    the module whose forward training calls; by default the part of the LightningModule that holds the blocks
    """

    def __new__(cls, *_: Any, **__: Any) -> "DepthscopeLightningCallback":
        return _made_of(cls, _lightning("", "DepthscopeLightningCallback").Callback)  # type: ignore[no-any-return]

    def __init__(self, probe: Any = None, every: int = 100, tokenizer: Any = None, control: Any = None, run: Optional[Run] = None,
                 model: Any = None, **options: Any) -> None:
        self.run = run
        self.watch: Optional[Watch] = None
        self._model, self._control = model, control
        self._options: Dict[str, Any] = {"probe": probe, "every": every, "tokenizer": tokenizer, **options}
        self._requests: Optional[Requests] = None

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        if self.run is None:
            logger = next((x for x in trainer.loggers if isinstance(x, DepthscopeLogger)), None)
            if logger is None:
                raise ValueError("DepthscopeLightningCallback: expected a DepthscopeLogger in Trainer(logger=...), or run=")
            self.run = logger.experiment
        if 0 < trainer.global_step < self.run.step:  # from a checkpoint before the end of the run
            self.run._go_back(int(trainer.global_step))
        if trainer.max_steps and trainer.max_steps > 0:
            self.run.describe(steps=int(trainer.max_steps))
        self._requests = Requests(self.run, self._control)
        self.watch = Watch(self._model or called_module(pl_module), self.run, **self._options)

    def on_train_batch_end(self, trainer: Any, pl_module: Any, *_: Any, **__: Any) -> None:
        if self._requests is None:
            return
        stop, save, lr = self._requests.take(trainer.global_step % max(1, int(trainer.log_every_n_steps)) == 0)
        if stop:
            trainer.should_stop = True
        if save:
            path = os.path.join(trainer.default_root_dir, "checkpoints", "step-%d.ckpt" % trainer.global_step)
            trainer.save_checkpoint(path)
            assert self.run is not None
            self.run.event("checkpoint", path, step=trainer.global_step)
        if lr:
            set_lr(trainer.optimizers, [c.scheduler for c in trainer.lr_scheduler_configs], lr)

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        if self.watch is not None:
            self.watch.close()
            self.watch = None


def called_module(module: Any) -> Any:
    """The part of a LightningModule that holds its blocks: training_step calls this part, not the module."""
    torch = need("torch", "watch")
    first = find_blocks(module).name.partition(".")[0]
    part = getattr(module, first, None)
    is_list = isinstance(part, (torch.nn.ModuleList, torch.nn.Sequential, torch.nn.ModuleDict))
    return module if part is None or is_list else part
