"""A run: what a training loop calls, the bounded queue, and the thread that writes the log.

The training thread snapshots values and returns; packing, checksums and the disk belong to the writer thread.
"""
from __future__ import annotations

import atexit
import collections
import math
import os
import secrets
import socket
import sys
import threading
import time
import traceback
import warnings
import weakref
from types import TracebackType
from typing import Any, Callable, Deque, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple, Type, Union

from . import _directory, _rank, _system, _values
from ._control import Control
from ._log import LogWriter, Scan
from ._msgpack import FormatError
from ._version import __version__

QUEUE_MAX = 4096  # records that wait; when it is full, metrics are written by the thread that logs them
BULK_MAX = 64  # probes, samples and matrices that wait; more are dropped
BULK_BYTES = 128 << 20
NAME_MAX = 63  # bytes
SYNC_SECONDS = 5.0
DROPPED_SECONDS = 1.0  # between two events that count what was dropped
STAGE_WAIT_SECONDS = 60.0
_RESERVED = ("kind", "step", "time")
_BULK = ("probe", "sample", "matrix")

Body = Dict[str, Any]
Make = Callable[[], Optional[Body]]
Handler = Callable[..., Any]


class _Item:
    __slots__ = ("kind", "make", "weight")

    def __init__(self, kind: str, make: Make, weight: int) -> None:
        self.kind = kind
        self.make = make
        self.weight = weight


def _weight(v: Any) -> int:
    """About how many bytes a value holds."""
    if isinstance(v, (bytes, bytearray)):
        return len(v)
    if isinstance(v, Mapping):
        return sum(_weight(x) for x in v.values())
    n = 4
    for size in _values.shape(v):
        n *= size
    return n


def _framework() -> Dict[str, str]:
    """The library that trains and its GPUs, as far as they are known without starting anything."""
    torch: Any = sys.modules.get("torch")
    got: Dict[str, str] = {}
    try:
        if torch is not None:
            got["framework"] = "PyTorch %s" % torch.__version__
            if torch.cuda.is_initialized():  # asking earlier would create a context, which a fork does not survive
                n = torch.cuda.device_count()
                got["gpu"] = ("%d x " % n if n > 1 else "") + str(torch.cuda.get_device_name())
        elif "jax" in sys.modules:
            got["framework"] = "JAX %s" % getattr(sys.modules["jax"], "__version__", "")
    except Exception:  # a head without these keys is whole
        pass
    return got


class Run:
    """One run, made by `init`.  On ranks other than 0, after `finish` and in forked children `is_active` is False and every
    method does nothing."""

    def __init__(self, directory: str, name: str, *, is_active: bool, project: str = "", config: Any = None, stage: int = 0,
                 resume: Optional[int] = None, run_id: str = "", head: Optional[Dict[str, Any]] = None, control: Any = None,
                 system_every: float = 0.0) -> None:
        self.dir = directory
        self.name = name
        self.run_id = run_id
        self.project = project
        self.stage = stage
        self.config: Dict[str, str] = {}
        self.step = -1
        self._top = -1  # the highest step of any record
        self.should_stop = False
        self._active = False
        self._has_stepped = False
        self._head: Dict[str, Any] = dict(head or {})
        self._head_changed = False
        self._knows_gpu = False
        self._state = threading.RLock()
        self._queue: Deque[_Item] = collections.deque()
        self._arrived = threading.Condition()
        self._writing = threading.Lock()
        self._bulk = 0
        self._bulk_bytes = 0
        self._dropped: Dict[str, int] = {}
        self._dropped_told = 0
        self._dropped_at = -math.inf
        self._warned: Dict[str, str] = {}
        self._names: Dict[str, str] = {}
        self._texts: Dict[str, str] = {}
        self._closing: List[Callable[[], None]] = []  # called before the end record
        self._gates: Dict[int, List[Any]] = {}
        self._gate_tap: Optional[Callable[[int, Any, Any], None]] = None  # takes the decisions of a pass that is not training
        self._thread: Optional[threading.Thread] = None
        self._is_ending = False
        self._last: Dict[str, Tuple[float, float]] = {}  # time and value of the newest point of each metric
        self._control: Optional[Control] = None
        self._log: Optional[LogWriter] = None
        self._system_every = system_every
        self._machine: Optional[_system.Watch] = None
        if is_active:
            self._open(config, resume, control)

    # ---- start ----

    def _open(self, config: Any, resume: Optional[int], control: Any) -> None:
        log = LogWriter(_directory.stage_path(self.dir, self.stage))
        self._log = log
        try:
            is_resumed = log.has_head
            given = _directory.flat_config(config)
            self.config = {**log.config, **given}  # a resume adds to what the head has
            self.run_id = log.run_id or self.run_id or secrets.token_hex(8)
            if self.stage == 0:
                self._write_files(is_resumed and not given)
            if is_resumed:
                self.step = self._top = log.step if resume is None else int(resume)
                self._has_stepped = self.step >= 0
            self._active = True
            for command, handler in _handlers(control):
                self.on(command, handler)
            self._write_head(is_resumed)
            self._drain()  # whoever looks after init returns finds the run
        except BaseException:
            self._active = False
            if self._control is not None:
                self._control.close()
            log.close()
            raise
        self._thread = threading.Thread(target=self._serve, name="depthscope-writer", daemon=True)
        self._thread.start()
        _register(self)
        if self._system_every > 0 and self.stage == 0:
            self._machine = _system.Watch(self.dir, self._system_every, self._put_system)

    def _write_files(self, keeps_config: bool) -> None:
        seed, parent = self._head.get("seed"), str(self._head.get("parent", ""))
        for name, text in (("config.yaml", _directory.config_yaml(self.config)),
                           ("meta.json", _directory.meta_json(__version__, self.project, seed, parent))):
            path = os.path.join(self.dir, name)
            if not (keeps_config and name == "config.yaml" and os.path.exists(path)):
                _directory.replace_file(path, text)

    def _head_body(self, is_resumed: bool) -> Body:
        # at the highest step: what a head adds supersedes no point
        body: Body = {"kind": "head", "step": max(self.step, self._top, 0), "time": time.time(), "format": 1, "version": __version__,
                      "writer": "depthscope-python %s" % __version__, "run": self.name, "run_id": self.run_id,
                      "host": socket.gethostname(), "pid": os.getpid()}
        if is_resumed:
            body["resume"] = True
        if self.project:
            body["project"] = self.project
        if _rank.world_size() > 1:
            body["world_size"] = _rank.world_size()
        if self.config:
            body["config"] = dict(self.config)
        if self._control is not None:
            body.update(self._control.describe())
        else:
            body["commands"] = []
        body.update(_framework())
        self._knows_gpu = "gpu" in body
        body.update({str(k): _plain(v) for k, v in self._head.items() if v is not None})
        return body

    def _write_head(self, is_resumed: bool) -> None:
        self._head_changed = False
        body = self._head_body(is_resumed)
        self._put("head", lambda: body)

    # ---- the queue ----

    @property
    def is_active(self) -> bool:
        """True where this process writes the run."""
        return self._active

    @property
    def dropped(self) -> Dict[str, int]:
        """How many records of each kind were not written."""
        with self._arrived:
            got = dict(self._dropped)
        if self._log is not None and self._log.lost:
            got["disk"] = self._log.lost
        return got

    def _warn(self, what: str, text: str) -> None:
        if what not in self._warned:
            self._warned[what] = text
            warnings.warn("depthscope: %s" % text, stacklevel=4)

    def _count_drop(self, kind: str) -> None:
        self._dropped[kind] = self._dropped.get(kind, 0) + 1

    def _remove_bulk(self, item: _Item) -> None:
        if item.kind in _BULK:
            self._bulk -= 1
            self._bulk_bytes -= item.weight

    def _evict(self) -> bool:
        """Gives the place of the oldest waiting probe to a record that must not be lost."""
        for i, item in enumerate(self._queue):
            if item.kind in _BULK:
                del self._queue[i]
                self._remove_bulk(item)
                self._count_drop(item.kind)
                return True
        return False

    def _put(self, kind: str, make: Make, weight: int = 0) -> None:
        item = _Item(kind, make, weight)
        is_full = False
        with self._arrived:
            if kind in _BULK:
                if self._bulk >= BULK_MAX or self._bulk_bytes + weight > BULK_BYTES or len(self._queue) >= QUEUE_MAX:
                    self._count_drop(kind)
                    return
                self._bulk += 1
                self._bulk_bytes += weight
            elif len(self._queue) >= QUEUE_MAX:
                is_full = not (self._bulk > 0 and self._evict())
            self._queue.append(item)
            self._arrived.notify()
        if is_full:
            self._drain(QUEUE_MAX // 2)

    def _drain(self, leave: int = 0) -> None:
        """Writes waiting records, oldest first, until `leave` are left."""
        while True:
            with self._writing:  # taken before the record, so that two threads keep the order
                with self._arrived:
                    if len(self._queue) <= leave:
                        return
                    item = self._queue.popleft()
                    self._remove_bulk(item)
                self._write(item)

    def _write(self, item: _Item) -> None:
        log = self._log
        if log is None:
            return
        try:
            body = item.make()
            if body is not None:
                log.append(body)
        except (FormatError, TypeError, ValueError, OverflowError, RuntimeError) as x:
            with self._arrived:
                self._count_drop(item.kind)
            self._warn("write " + item.kind, "%s not written: %s" % (item.kind, x))
        if log.failure:
            self._warn("disk", log.failure)

    def _serve(self) -> None:
        synced = time.monotonic()
        while True:
            with self._arrived:
                if not self._queue and not self._is_ending:
                    self._arrived.wait(SYNC_SECONDS)
                is_ending = self._is_ending
            try:
                self._drain()
                log = self._log
                if log is not None and time.monotonic() - synced >= SYNC_SECONDS:
                    synced = time.monotonic()
                    log.sync()
            except Exception as x:  # the thread must outlive anything: metrics depend on it
                self._warn("thread", "writer: %s: %s" % (type(x).__name__, x))
            if is_ending:
                return

    def flush(self) -> None:
        """Returns when everything logged so far is in the file."""
        if self._active:
            self._drain()

    # ---- what a training loop calls ----

    def _at(self, step: Optional[int]) -> int:
        at = max(self.step, 0) if step is None else int(step)
        if not 0 <= at < 1 << 63:
            raise ValueError("step %d: must be 0 to 2^63 - 1" % at)
        self._top = max(self._top, at)
        return at

    def _before(self) -> None:
        """What is due before the next record."""
        if self._head_changed:
            self._write_head(True)
        if self._control is not None:
            text = self._control.changed()
            if text is not None:
                self._event("commands", text, "info", self._at(None))
        if self._dropped or self._log is not None and self._log.lost:
            self._tell_dropped(DROPPED_SECONDS)

    def _tell_dropped(self, interval: float) -> None:
        total, now = sum(self.dropped.values()), time.monotonic()
        if total > self._dropped_told and now - self._dropped_at >= interval:
            self._dropped_told, self._dropped_at = total, now
            self._event("dropped", ", ".join("%s %d" % x for x in sorted(self.dropped.items())), "warn", self._at(None))

    def _metric_name(self, name: str) -> str:
        """The name in the log: 1 to 63 bytes; a longer one ends in a checksum so that it stays unique."""
        got = self._names.get(name)
        if got is None:
            got = _short_name(name)
            if got in _RESERVED:
                got += "_"
            if got != name:
                self._warn("name " + name, "metric %r is logged as %r" % (name, got))
            self._names[name] = got
        return got

    def _collect(self, values: Mapping[str, Any], prefix: str, out: Body, step: int) -> None:
        for key, v in values.items():
            name = prefix + str(key)
            if v is None:
                continue
            if isinstance(v, Mapping):
                self._collect(v, name + "/", out, step)
            elif isinstance(v, str):
                if self._texts.get(name) != v:  # a phase or a file name: an event when it changes
                    self._texts[name] = v
                    self._event(_short_name(name), v, "info", step)
            elif _values.is_on_device(v) and v.numel() == 1:
                out[self._metric_name(name)] = v
                if not self._knows_gpu:  # the head was written before anything ran there
                    self._knows_gpu = self._head_changed = True
            else:
                x = None if _values.is_on_device(v) else _values.number(v)
                if x is None:
                    self._warn("value " + name, "metric %r is a %s, expected a number; use layers() or matrix()" % (name, type(v).__name__))
                    self._dropped["value"] = self._dropped.get("value", 0) + 1
                else:
                    out[self._metric_name(name)] = x

    def log(self, values: Mapping[str, Any], step: Optional[int] = None, commit: bool = True) -> None:
        """Logs metrics.  Without `step` the run's own counter is used, which starts at 0 and grows by one with each committed
        call; commit=False logs at the step that the next committed call will have.  Nested dicts are flattened with "/", None is
        skipped, text becomes an event when it changes."""
        if not self._active:
            return
        if not isinstance(values, Mapping):
            raise TypeError("log: expected a dict of names and numbers, found %s" % type(values).__name__)
        with self._state:
            at = self._at(self.step + 1 if step is None and self._has_stepped else step)
            if commit or step is not None:
                self.step = at
                self._has_stepped = True
            self._before()
            out: Body = {}
            self._collect(values, "", out, at)
            if out:
                self._put_fetched("metric", at, out)
            if self._gates:
                self._put_gates(at)
        self.poll()

    def _put_fetched(self, kind: str, step: int, out: Body) -> None:
        now = time.time()
        wait = _values.fetch(out)

        def make() -> Body:
            got = wait()
            self._last.update({key: (now, float(v)) for key, v in got.items()})
            return {"kind": kind, "step": step, "time": now, **got}

        self._put(kind, make)

    def _put_system(self, sample: Body) -> None:
        with self._state:
            if self._active:
                body: Body = {"kind": "system", "step": self._at(None), "time": time.time(), **sample}
                self._put("system", lambda: body)

    def layers(self, values: Mapping[str, Any], step: Optional[int] = None) -> None:
        """Logs per-layer metrics: names and vectors with one value for each layer."""
        if not self._active:
            return
        with self._state:
            self._before()
            out: Body = {}
            for key, v in values.items():
                if v is None:
                    continue
                name = self._metric_name(str(key))
                out[name] = v if _values.is_on_device(v) else _values.floats(v)
            if out:
                self._put_layers(self._at(step), out)

    def _put_layers(self, step: int, out: Body) -> None:
        now = time.time()
        wait = _values.fetch(out)

        def make() -> Body:
            got = {k: v if isinstance(v, list) else [v] for k, v in wait().items()}
            known = self._head.get("layers")
            for name, v in got.items():
                if isinstance(known, int) and len(v) != known:
                    self._warn("layers " + name, "layer metric %r has %d values, viewers show those with one for each of the %d layers"
                               % (name, len(v), known))
            return {"kind": "layer", "step": step, "time": now, **got}

        self._put("layer", make)

    def gate(self, layer: int, mask: Any, score: Any = None) -> None:
        """Adds decisions of a router: `mask` is 1 (or True) where a token executes the layer.  Their share since the previous
        log() becomes the layer metric gate_ratio, the mean of `score` gate_score.  Tensors stay on their device."""
        if not self._active:
            return
        if self._gate_tap is not None:
            self._gate_tap(layer, mask, score)
            return
        with self._state:
            sums = self._gates.setdefault(int(layer), [0, 0, 0, 0])
            _add_to(sums, 0, mask)
            if score is not None:
                _add_to(sums, 2, score)

    def _put_gates(self, step: int) -> None:
        gates, self._gates = self._gates, {}
        known = self._head.get("layers")
        layers = known if isinstance(known, int) and known > max(gates) else max(gates) + 1
        now = time.time()
        wait = _values.fetch({"%d.%d" % (l, i): sums[i] for l, sums in gates.items() for i in (0, 2)})
        has_score = any(sums[3] for sums in gates.values())

        def share(got: Body, l: int, i: int) -> float:
            n = gates[l][i + 1] if l in gates else 0
            return float(got["%d.%d" % (l, i)]) / n if n else float("nan")

        def make() -> Body:
            got = wait()
            body: Body = {"kind": "layer", "step": step, "time": now, "gate_ratio": [share(got, l, 0) for l in range(layers)]}
            if has_score:
                body["gate_score"] = [share(got, l, 2) for l in range(layers)]
            return body

        self._put("layer", make)

    def matrix(self, name: str, rows: Any, step: Optional[int] = None, layer: Optional[Sequence[int]] = None) -> None:
        """Logs a matrix, such as expert_load (layers x experts).  layer: the model layer of each row."""
        if not self._active:
            return
        size = _values.shape(rows)
        if len(size) != 2 or not all(1 <= n <= 4096 for n in size) or size[0] * size[1] > 1 << 20:
            raise ValueError("matrix %s: shape %s, expected rows x cols of 1 to 4096 and at most 2^20 values" % (name, list(size)))
        which = None if layer is None else [int(l) for l in layer]
        if which is not None and len(which) != size[0]:
            raise ValueError("matrix %s: %d layers for %d rows" % (name, len(which), size[0]))
        with self._state:
            self._before()
            body: Body = {"kind": "matrix", "step": self._at(step), "time": time.time(), "name": _short_name(name),
                          "rows": size[0], "cols": size[1]}
            if which is not None:
                body["layer"] = which
            wait = _values.fetch({"value": rows}) if _values.is_on_device(rows) else None

            def make() -> Body:
                value = _values.float32s(rows if wait is None else wait()["value"])
                if len(value) != 4 * size[0] * size[1]:
                    raise ValueError("matrix %s: rows of unequal length" % name)
                return {**body, "value": value}

            self._put("matrix", make, _weight(rows))

    def probe(self, index: int = 0, step: Optional[int] = None, name: str = "", ids: Any = None,
              text: Optional[Sequence[Union[str, bytes]]] = None, run: Any = None, cell: Optional[Mapping[str, Any]] = None,
              token: Optional[Mapping[str, Any]] = None, cell_kind: Optional[Mapping[str, str]] = None,
              inferred: Optional[Iterable[str]] = None, layers: Optional[int] = None, routing: str = "", depth: Any = None,
              nll: Any = None, entropy: Any = None, flops: Any = None, flops_dense: Optional[float] = None, lens_k: int = 0,
              lens_id: Any = None, lens_p: Any = None, lens_text: Optional[Sequence[Union[str, bytes]]] = None) -> None:
        """Logs all decisions over one text.  ids, text, depth, nll, entropy, flops and the vectors of `token` have one value for
        each token; run and the matrices of `cell` are layers x tokens; lens_* are layers x tokens x lens_k.  Arrays are handed
        over: they are read later, on the writer thread, and dropped when it falls behind."""
        if not self._active:
            return
        cells = {_short_name(k): v for k, v in (cell or {}).items()}
        vectors = {_short_name(k): v for k, v in (token or {}).items()}
        if layers is None:
            sizes = [s for s in [_values.shape(x) for x in [run, *cells.values()] if x is not None] if len(s) == 2]
            layers = sizes[0][0] if sizes else self._head.get("layers")
        if not isinstance(layers, int) or layers < 1:
            raise ValueError("probe: the number of layers is unknown; give run or a cell as layers x tokens, or layers=")
        body: Body = {"kind": "probe", "step": self._at(step), "time": time.time(), "index": int(index), "layers": int(layers)}
        for key, given in (("name", name), ("routing", routing), ("flops_dense", flops_dense), ("cell_kind", dict(cell_kind or {})),
                           ("inferred", list(inferred or []))):
            if given:
                body[key] = given

        def make() -> Body:
            if ids is not None:
                body["ids"] = _values.ints(ids)
            if text is not None:
                body["text"] = _pieces(text)
            if run is not None:
                body["run"] = _values.bits(run)
            for key, v in (("depth", depth), ("nll", nll), ("entropy", entropy), ("flops", flops)):
                if v is not None:
                    body[key] = _values.float32s(v)
            if cells:
                body["cell"] = {k: _values.float32s(v) for k, v in cells.items()}
            if vectors:
                body["token"] = {k: _values.float32s(v) for k, v in vectors.items()}
            _check_probe(body)
            if lens_k:
                body.update(lens_k=int(lens_k), lens_id=_values.ints(lens_id), lens_p=_values.float32s(lens_p))
                if lens_text is not None:
                    body["lens_text"] = _pieces(lens_text)
            return body

        with self._state:
            self._before()
            self._put("probe", make, sum(_weight(v) for v in (run, cells, vectors, lens_id, lens_p) if v is not None) + 4096)

    def event(self, name: str, text: str = "", level: str = "info", step: Optional[int] = None) -> None:
        """Logs something that happened."""
        if not self._active:
            return
        if level not in ("info", "warn", "error"):
            raise ValueError("event level %r: expected info, warn or error" % level)
        with self._state:
            self._before()
            self._event(_short_name(name), str(text), level, self._at(step))

    def alert(self, text: str, level: str = "warn", step: Optional[int] = None, *, rule: str = "other", value: Optional[float] = None,
              over: bool = False) -> None:
        """Logs an alert: the workbench marks the run and tells its user.  `rule` names one of its own ("nan", "loss", "stall",
        "layer", "gpu", "disk") to share its episode; `over=True` ends it."""
        if not self._active:
            return
        if level not in ("info", "warn", "error"):
            raise ValueError("alert level %r: expected info, warn or error" % level)
        keys: Body = {"rule": _short_name(rule), "over": bool(over)}
        if value is not None:
            keys["value"] = float(value)
        with self._state:
            self._before()
            self._event("alert", str(text), level, self._at(step), keys)

    def _event(self, name: str, text: str, level: str, step: int, keys: Optional[Body] = None) -> None:
        body = {"kind": "event", "step": step, "time": time.time(), "level": level, "name": name, **(keys or {}),
                "text": text.encode("utf-8", "replace")[:1 << 16].decode("utf-8", "ignore")}
        self._put("event", lambda: body)

    def sample(self, name: str, columns: Mapping[str, Any], step: Optional[int] = None) -> None:
        """Logs per-token samples: vectors of one length, such as depth, entropy and nll."""
        if not self._active:
            return
        with self._state:
            self._before()
            sizes = {k: _values.shape(v) for k, v in columns.items()}
            n = next(iter(sizes.values()), (0,))
            if not columns or any(len(s) != 1 or s != n for s in sizes.values()):
                raise ValueError("sample %s: shapes %s, expected vectors of one length" % (name, {k: list(s) for k, s in sizes.items()}))
            body: Body = {"kind": "sample", "step": self._at(step), "time": time.time(), "name": _short_name(name), "n": n[0]}

            def make() -> Body:
                return {**body, "column": {_short_name(k): _values.float32s(v) for k, v in columns.items()}}

            self._put("sample", make, _weight(columns))

    def evaluation(self, task: str, values: Mapping[str, Any], step: Optional[int] = None, routing: str = "") -> None:
        """Logs the results of an evaluation: numbers, and vectors per layer or item."""
        if not self._active:
            return
        with self._state:
            self._before()
            at, now = self._at(step), time.time()
            out: Body = {}
            for key, v in values.items():
                if v is None or isinstance(v, str):
                    continue
                x = None if _values.is_tensor(v) and _values.is_on_device(v) else _values.number(v)
                out[self._metric_name(str(key))] = v if _values.is_on_device(v) else _values.floats(v) if x is None else x
            wait = _values.fetch(out)

            def make() -> Body:
                return {"kind": "eval", "step": at, "time": now, "task": str(task), **({"routing": routing} if routing else {}), **wait()}

            self._put("eval", make)

    def describe(self, **head: Any) -> None:
        """Adds to the head what became known after the start: layers, vocab, params, method, steps, experts, ...  The head is
        written again before the next record."""
        if not self._active:
            return
        with self._state:
            changed = {k: v for k, v in head.items() if v is not None and self._head.get(k) != v}
            if changed:
                self._head.update(changed)
                self._head_changed = True

    def _go_back(self, step: int) -> None:
        """Training continues after this step, as with init(step=): later points become superseded."""
        with self._state:
            if self._active:
                self.step = self._top = step
                self._write_head(True)

    def configure(self, config: Any) -> None:
        """Adds settings that became known after the start, to config.yaml and to the head."""
        if not self._active:
            return
        with self._state:
            self.config.update(_directory.flat_config(config))
            if self.stage == 0:
                _directory.replace_file(os.path.join(self.dir, "config.yaml"), _directory.config_yaml(self.config))
            self._head_changed = True

    # ---- control ----

    def on(self, command: str, handler: Any = True, **limits: float) -> None:
        """Answers a command of control.sock from now on; handlers run in log() and poll(), between steps.

        on("pause")              poll() and log() wait until "resume"; with a function it is called instead
        on("stop")               sets should_stop; on("stop", "interrupt") raises KeyboardInterrupt; or a function
        on("checkpoint", f)      f() is called; so are "probe" and any other word; a text that it returns is the answer
        on("set lr", f, min=0, max=1)   f(value) for `set lr VALUE`; on("set", f): f(key, value) for any key
        """
        if not self._active:
            return
        with self._state:
            if self._control is None:
                self._control = Control(self)
            self._control.on(command, handler, **limits)
            if self.stage == 0:
                try:
                    self._control.open()
                except OSError as x:
                    self._warn("control", "%s/control.sock: %s; commands are not answered" % (self.dir, x.strerror or x))

    @property
    def is_paused(self) -> bool:
        return self._control is not None and bool(self._control.is_paused)

    def poll(self) -> None:
        """Carries out the commands that arrived; log() does it, too.  While paused it does not return."""
        if self._control is not None and self._active:
            self._control.poll()

    # ---- end ----

    def finish(self, status: str = "done", text: str = "") -> None:
        """Writes what waits and an end record, and gives the log's lock back.  A run that was asked to stop ends as stopped."""
        if status not in ("done", "stopped", "failed"):
            raise ValueError("status %r: expected done, stopped or failed" % status)
        with self._state:
            if not self._active:
                return
            for close in self._closing:
                self._try(close)
            self._before()
            self._drain()  # so that the last count is complete
            self._tell_dropped(0)
            if self._gates:
                self._try(lambda: self._put_gates(self._at(None)))
            if status == "done" and self.should_stop:
                status = "stopped"
            body: Body = {"kind": "end", "step": self._at(None), "time": time.time(), "status": status}
            if text:
                body["text"] = text[:4096]
            self._put("end", lambda: body)
            self._active = False
        if self._machine is not None:
            self._machine.close()
        if self._control is not None:
            self._control.close()
        with self._arrived:
            self._is_ending = True
            self._arrived.notify()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(30)
        self._drain()
        with self._writing:
            if self._log is not None:
                self._log.close()
        _open_runs.discard(self)

    def _try(self, f: Callable[[], None]) -> None:
        """What is due before the end record must not prevent it: after an error of a device every copy from there fails."""
        try:
            f()
        except Exception as x:
            self._event("finish", "%s: %s" % (type(x).__name__, x), "error", self._at(None))

    def _abandon(self) -> None:
        """In a forked child: the parent goes on writing; its lock must not be held open here."""
        self._active = False
        self._state = threading.RLock()
        self._arrived = threading.Condition()
        self._writing = threading.Lock()
        self._queue.clear()
        self._thread = None
        if self._control is not None:
            self._control.abandon()
        if self._log is not None:
            self._log.abandon()

    def __enter__(self) -> "Run":
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], value: Optional[BaseException], trace: Optional[TracebackType]) -> None:
        self.finish(*_status_of(kind, value))

    def __repr__(self) -> str:
        return "<depthscope.Run %s, %s>" % (self.dir, "step %d" % self.step if self._active else "not active")


# ---- helpers ----

def _plain(v: Any) -> Any:
    """A value of the head as MessagePack has it."""
    if isinstance(v, (str, bytes, bool)) or v is None:
        return v
    if isinstance(v, Mapping):
        return {str(k): _plain(x) for k, x in v.items()}
    if isinstance(v, (list, tuple)):
        return [_plain(x) for x in v]
    x = _values.number(v)
    if x is not None:
        return x
    return _values.floats(v) if hasattr(v, "tolist") else str(v)


def _short_name(name: Any) -> str:
    """1 to 63 bytes without NUL; a longer name keeps its start and ends in a checksum."""
    text = str(name).replace("\0", "") or "_"
    raw = text.encode("utf-8", "replace")
    if len(raw) <= NAME_MAX:
        return raw.decode("utf-8")
    from ._crc32c import crc32c
    return raw[:NAME_MAX - 9].decode("utf-8", "ignore") + "~%08x" % crc32c(raw)


def _pieces(text: Sequence[Union[str, bytes]]) -> List[bytes]:
    return [x if isinstance(x, bytes) else str(x).encode("utf-8", "surrogateescape") for x in text]


def _check_probe(body: Body) -> None:
    """ValueError for a probe whose parts do not fit together: readers would leave them out."""
    layers: int = body["layers"]
    tokens = len(body.get("ids") or body.get("text") or ()) or len(body.get("run", b"")) // layers
    sizes: List[Tuple[str, int, int]] = [(k, len(body[k]), tokens) for k in ("ids", "text") if k in body]
    sizes += [("run", len(body["run"]), layers * tokens)] if "run" in body else []
    sizes += [(k, len(body[k]) // 4, tokens) for k in ("depth", "nll", "entropy", "flops") if k in body]
    sizes += [(k, len(v) // 4, layers * tokens) for k, v in body.get("cell", {}).items()]
    sizes += [(k, len(v) // 4, tokens) for k, v in body.get("token", {}).items()]
    for name, n, want in sizes:
        if n != want:
            raise ValueError("%s has %d values, expected %d" % (name, n, want))


def _add_to(sums: List[Any], at: int, v: Any) -> None:
    """Adds the sum and the count of a mask; a tensor's sum stays on its device."""
    if _values.is_tensor(v):
        torch: Any = sys.modules["torch"]
        with torch.no_grad():
            sums[at] = sums[at] + v.detach().sum(dtype=torch.float32)
        sums[at + 1] += int(v.numel())
        return
    got = _values.floats(v)
    sums[at] = sums[at] + float(sum(got))
    sums[at + 1] += len(got)


def _status_of(kind: Optional[Type[BaseException]], value: Optional[BaseException]) -> Tuple[str, str]:
    """Status and text of the end record for an exception."""
    if kind is None:
        return "done", ""
    if issubclass(kind, KeyboardInterrupt):
        return "stopped", "interrupted"
    if issubclass(kind, SystemExit):
        code = getattr(value, "code", None)
        return ("done", "") if code in (None, 0) else ("failed", "exit status %s" % code)
    return "failed", traceback.format_exception_only(kind, value)[-1].strip()


# ---- the end of the process ----

_open_runs: "weakref.WeakSet[Run]" = weakref.WeakSet()
_is_hooked = False
_exit_code: Any = None


def _finish_all(status: str, text: str) -> None:
    for run in list(_open_runs):
        try:
            run.finish(status, text)
        except Exception:  # the program's own exception matters more
            pass


def _at_exit() -> None:
    if _exit_code in (None, 0, False):
        _finish_all("done", "")
    else:
        _finish_all("failed", "exit status %s" % (_exit_code,))


def _in_child() -> None:
    for run in list(_open_runs):
        run._abandon()
    _open_runs.clear()


class _Exit(SystemExit):
    """What sys.exit and exit raise here: one that is dropped while code of the program runs on was caught by it."""

    def __del__(self) -> None:
        global _exit_code
        if sys._getframe().f_back is not None:
            _exit_code = None


def _noted(former: Callable[..., Any]) -> Callable[..., Any]:
    def leave(*args: Any, **kwargs: Any) -> Any:
        global _exit_code
        try:
            return former(*args, **kwargs)
        except SystemExit as x:
            code = x.code
        _exit_code = code
        raise _Exit(code)

    return leave


def _register(run: Run) -> None:
    """Once per process: an uncaught exception, sys.exit, exit, quit and a plain end each leave an end record."""
    global _is_hooked
    _open_runs.add(run)
    if _is_hooked:
        return
    _is_hooked = True
    former_hook = sys.excepthook

    def hook(kind: Type[BaseException], value: BaseException, trace: Optional[TracebackType]) -> None:
        _finish_all(*_status_of(kind, value))
        former_hook(kind, value, trace)

    sys.excepthook = hook
    setattr(sys, "exit", _noted(sys.exit))
    quitter = getattr(sys.modules.get("_sitebuiltins"), "Quitter", None)  # the class of exit and quit
    if quitter is not None:
        quitter.__call__ = _noted(quitter.__call__)
    atexit.register(_at_exit)
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_in_child)


# ---- init ----

def _wait_for_run_id(directory: str) -> str:
    """The run_id in the head that stage 0 writes."""
    path = _directory.stage_path(directory, 0)
    end = time.monotonic() + STAGE_WAIT_SECONDS
    while time.monotonic() < end:
        try:
            with open(path, "rb") as f:
                for found in Scan(f):
                    if found.body and isinstance(found.body.get("run_id"), str):
                        return str(found.body["run_id"])
        except OSError:
            pass
        time.sleep(0.05)
    raise TimeoutError("%s: no head from stage 0 within %g s" % (path, STAGE_WAIT_SECONDS))


def _has_records(path: str) -> bool:
    try:
        return os.path.getsize(path) > 0
    except OSError:
        return False


def init(project: Optional[str] = None, name: Optional[str] = None, config: Any = None, dir: Optional[str] = None, *,
         resume: Union[None, bool, str] = None, step: Optional[int] = None, stage: int = 0, rank: Optional[int] = None,
         control: Any = None, system_every: float = 5.0, **head: Any) -> Run:
    """Starts a run in DIR/NAME and returns it.  Rank 0 writes; on other ranks the run does nothing.

    project   kept with the run; the stem of its name when `name` is not given
    name      directory of the run, 1 to 64 of A-Z a-z 0-9 . _ -; default: PROJECT-N or run-N with the next free number
    config    settings: dict, dataclass, argparse.Namespace or anything with to_dict(); with resume: added to those of the run
    dir       where runs are kept; default: $DEPTHSCOPE_RUNS, else "runs"
    resume    None or "never": a run that exists is an error; "allow" or True: it is continued; "must": it has to exist
    step      with resume: the step of the checkpoint that was loaded; later points become superseded
    stage     pipeline stage: stage S > 0 writes log.S.mp into the same run
    rank      number of this process among those that would write the same file; default: from torch.distributed or the launcher
    control   commands to answer: True, a list of names, or a dict of names and handlers (see Run.on)
    system_every  seconds between records of the machine (processors, memory, disk, network, GPUs); 0 = off
    head      what viewers show: layers, steps (planned), method, params, vocab, seed, experts, ...
    """
    if resume not in (None, True, False, "allow", "must", "never"):
        raise ValueError("resume = %r: expected None, True, \"allow\", \"must\" or \"never\"" % (resume,))
    own = (0 if stage else _rank.rank()) if rank is None else int(rank)
    root = os.fspath(dir) if dir is not None else os.environ.get("DEPTHSCOPE_RUNS") or "runs"
    if name is not None:
        _directory.check_name(name)
    if own != 0:
        return Run(os.path.join(root, name) if name else "", name or "", is_active=False, project=project or "", stage=stage, head=head)
    if stage and not name:
        raise ValueError("stage %d: a name is required, the same for all stages" % stage)
    if resume == "must" and not name:
        raise ValueError("resume = \"must\": a name is required")
    os.makedirs(root, exist_ok=True)
    name = name or _directory.new_name(root, project or "run")
    directory = os.path.abspath(os.path.join(root, name))
    log = _directory.stage_path(directory, stage)
    if _has_records(log) and resume in (None, False, "never"):
        raise FileExistsError("%s: the run exists; choose another name, or resume=\"allow\" to continue it" % directory)
    if not _has_records(log) and resume == "must":
        raise FileNotFoundError("%s: no run to resume" % directory)
    os.makedirs(directory, exist_ok=True)
    run_id = _wait_for_run_id(directory) if stage else ""
    return Run(directory, name, is_active=True, project=project or "", config=config, stage=stage, resume=step, run_id=run_id, head=head,
               control=control, system_every=float(system_every))


def _handlers(control: Any) -> List[Tuple[str, Any]]:
    if control is None or control is False:
        return []
    if control is True:
        return [("pause", True), ("stop", True)]
    if isinstance(control, str):
        return [(control, True)]
    if isinstance(control, Mapping):
        return [(str(k), v) for k, v in control.items()]
    return [(str(k), True) for k in control]
