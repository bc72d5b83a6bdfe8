"""Reads a run back: every record of its log, as arrays.  Damage and torn tails are skipped as FORMATS.md says, and counted.

Arrays are numpy's where numpy can be imported, else array.array.
"""
from __future__ import annotations

import importlib
import math
import os
import sys
from array import array
from typing import Any, Dict, Iterable, Iterator, List, NamedTuple, Optional, Tuple, Union

from . import _directory
from ._log import Found, Scan

_TEXT_NUMBERS = {"NaN": math.nan, "Inf": math.inf, "-Inf": -math.inf}

_RESERVED = ("kind", "step", "time")

np: Any = None  # numpy, from the first read on, where it is installed

Array = Any  # numpy.ndarray or array.array


def _module(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def _reals(values: Iterable[float]) -> Array:
    return np.array(list(values), dtype=np.float64) if np is not None else array("d", values)


def _wholes(values: Iterable[int]) -> Array:
    return np.array(list(values), dtype=np.int64) if np is not None else array("q", values)


class Series(NamedTuple):
    """A metric over steps."""

    step: Array
    time: Array
    value: Array


class Layers(NamedTuple):
    """A per-layer metric: value[i] is the vector of step[i]."""

    step: Array
    time: Array
    value: Any  # numpy (n, layers), or a list of arrays


class Matrices(NamedTuple):
    """A matrix over steps: value[i] is rows x cols; layer: the model layer of each row."""

    step: Array
    time: Array
    value: List[Any]
    layer: List[List[int]]


class RunData(Dict[str, Array]):
    """A run as a dict of columns: "step", "time" and every metric, one row for each step that has any, NaN where a metric has
    no value.  The attributes have what a table cannot:

    head          the newest head, with the settings as head["config"]; the keys of all pipeline stages together
    metrics       name -> Series(step, time, value), only the steps that have it, as precise as they were logged
    layers        name -> Layers(step, time, value)
    matrices      name -> Matrices(step, time, value, layer)
    probes        list of dicts; vectors and cells as arrays, cells with the shape layers x tokens
    events        list of dicts: step, time, level, name, text; an alert has rule, over and maybe value
    evaluations   list of dicts: step, time, task, routing, values
    samples       list of dicts: step, time, name, columns
    systems       list of dicts: the machine, with the keys of FORMATS.md
    end           the end record, {} while there is none
    damage        counts: gaps, bytes (skipped), lost (records missing by their seq), repeated, invalid, tail (bytes of a torn record)
    """

    def __init__(self) -> None:
        super().__init__()
        self.path = ""
        self.head: Dict[str, Any] = {}
        self.metrics: Dict[str, Series] = {}
        self.layers: Dict[str, Layers] = {}
        self.matrices: Dict[str, Matrices] = {}
        self.probes: List[Dict[str, Any]] = []
        self.events: List[Dict[str, Any]] = []
        self.evaluations: List[Dict[str, Any]] = []
        self.samples: List[Dict[str, Any]] = []
        self.systems: List[Dict[str, Any]] = []
        self.end: Dict[str, Any] = {}
        self.damage: Dict[str, int] = {"gaps": 0, "bytes": 0, "lost": 0, "repeated": 0, "invalid": 0, "tail": 0}

    def frame(self) -> Any:
        """The columns as a pandas DataFrame with the steps as its index."""
        pandas = _module("pandas")
        if pandas is None:
            raise ImportError("frame: pandas is not installed; the run itself is a dict of arrays")
        columns = {k: v for k, v in self.items() if k != "step"}
        return pandas.DataFrame(columns, index=pandas.Index(self["step"], name="step"))


# ---- values of a record ----

def _number(v: Any) -> Optional[float]:
    if isinstance(v, bool):
        return int(v)
    if isinstance(v, (int, float)):
        return v
    return _TEXT_NUMBERS.get(v) if isinstance(v, str) else None


def _whole(v: Any, otherwise: int) -> int:
    whole = isinstance(v, int) or isinstance(v, float) and v.is_integer()
    return int(v) if whole and -(1 << 63) <= v < 1 << 63 else otherwise


def _flatten(v: List[Any], out: List[float]) -> bool:
    for x in v:
        if isinstance(x, list):
            if not _flatten(x, out):
                return False
        else:
            n = _number(x)
            if n is None:
                return False
            out.append(n)
    return True


def _vector(v: Any) -> Optional[Array]:
    """Floats of an array of numbers or of a bin of little-endian float32; None when it is neither."""
    if isinstance(v, bytes):
        if len(v) % 4:
            return None
        if np is not None:
            return np.frombuffer(v, dtype="<f4")
        got = array("f", v)
        if sys.byteorder == "big":
            got.byteswap()
        return got
    if isinstance(v, list):
        out: List[float] = []
        return _reals(out) if _flatten(v, out) else None
    return None


def _table(v: Optional[Array], rows: int, cols: int) -> Optional[Any]:
    """A vector as rows x cols; without numpy a list of rows."""
    if v is None or len(v) != rows * cols:
        return None
    if np is not None:
        return v.reshape(rows, cols)
    return [v[i * cols:(i + 1) * cols] for i in range(rows)]


def _bits(v: Any) -> Optional[Array]:
    if isinstance(v, bytes):
        return np.frombuffer(v, dtype=np.uint8) if np is not None else array("B", v)
    got: List[float] = []
    if not isinstance(v, list) or not _flatten(v, got):
        return None
    flags = [1 if x else 0 for x in got]
    return np.array(flags, dtype=np.uint8) if np is not None else array("B", flags)


# ---- one log ----

class _Points:
    """Points of a metric in order of arrival; `start` is the first that a resume may supersede cheaply."""

    def __init__(self) -> None:
        self.step: List[int] = []
        self.time: List[float] = []
        self.value: List[Any] = []
        self.is_old: List[bool] = []

    def supersede(self, step: int) -> None:
        """Points after `step` are replaced by those to come."""
        for i in range(len(self.step) - 1, -1, -1):
            if self.step[i] > step:
                self.is_old[i] = True
            elif not self.is_old[i]:
                break  # the valid ones are in order of their steps

    def add(self, step: int, time: float, value: Any) -> None:
        if self.step and step < self.step[-1]:
            self.supersede(step - 1)
        self.step.append(step)
        self.time.append(time)
        self.value.append(value)
        self.is_old.append(False)

    def chosen(self, has_old: bool) -> Iterator[Tuple[int, float, Any]]:
        for step, time, value, old in zip(self.step, self.time, self.value, self.is_old):
            if has_old or not old:
                yield step, time, value


class _Stage:
    """What one log holds, before it becomes arrays."""

    def __init__(self, damage: Dict[str, int]) -> None:
        self.damage = damage
        self.head: Dict[str, Any] = {}
        self.end: Dict[str, Any] = {}
        self.metric: Dict[str, _Points] = {}
        self.layer: Dict[str, _Points] = {}
        self.matrix: Dict[str, _Points] = {}
        self.other: List[Tuple[str, Dict[str, Any], int, float]] = []  # kind, body, step, time
        self.probe: Dict[int, _Points] = {}  # by text; the values are places in `other`
        self.seq = 0

    @property
    def offset(self) -> int:
        return max(0, _whole(self.head.get("layer_offset"), 0))

    def invalid(self) -> None:
        self.damage["invalid"] += 1

    def take(self, found: Found) -> None:
        body = found.body
        if body is None:
            self.damage["gaps"] += 1
            self.damage["bytes"] += found.length
            return
        kind = body.get("kind")
        if kind != "head" and found.seq <= self.seq:
            self.damage["repeated"] += 1
            return
        if kind != "head" and self.seq and found.seq > self.seq + 1:
            self.damage["lost"] += found.seq - self.seq - 1
        self.seq = found.seq
        step, time = _whole(body.get("step"), -1), _number(body.get("time"))
        at = math.nan if time is None else float(time)
        if kind == "head":
            self._take_head(body, step)
        elif kind == "end":
            self.end = body
        elif kind in ("metric", "layer", "matrix"):
            if step < 0:
                self.invalid()
            elif kind == "matrix":
                self._take_matrix(body, step, at)
            else:
                self._take_values(kind, body, step, at)
        elif kind in ("probe", "event", "eval", "sample", "system"):
            if kind == "probe":
                self.probe.setdefault(_whole(body.get("index"), 0), _Points()).add(max(step, 0), at, len(self.other))
            self.other.append((kind, body, max(step, 0), at))
        elif not isinstance(kind, str):
            self.invalid()

    def _take_head(self, body: Dict[str, Any], step: int) -> None:
        if body.get("resume") is True and step >= 0:
            for points in (*self.metric.values(), *self.layer.values(), *self.matrix.values(), *self.probe.values()):
                points.supersede(step)
        self.head.update(body)
        self.end = {}

    def _take_values(self, kind: str, body: Dict[str, Any], step: int, time: float) -> None:
        table = self.metric if kind == "metric" else self.layer
        for key, v in body.items():
            if key in _RESERVED or not isinstance(key, str):
                continue
            got = _number(v) if kind == "metric" else _vector(v)
            if got is None:
                if kind == "metric" or isinstance(v, (list, bytes)):
                    self.invalid()
                continue
            table.setdefault(key, _Points()).add(step, time, got)

    def _take_matrix(self, body: Dict[str, Any], step: int, time: float) -> None:
        rows, cols = _whole(body.get("rows"), 0), _whole(body.get("cols"), 0)
        name, layer = body.get("name"), body.get("layer")
        is_good = isinstance(name, str) and 1 <= rows <= 4096 and 1 <= cols <= 4096 and rows * cols <= 1 << 20
        value = _table(_vector(body.get("value")), rows, cols) if is_good else None
        if value is None or not isinstance(name, str):
            self.invalid()
            return
        has_layer = isinstance(layer, list) and len(layer) == rows and all(isinstance(x, int) for x in layer)
        first = self.offset
        which = list(layer) if has_layer and isinstance(layer, list) else list(range(first, first + rows))
        points = self.matrix.setdefault(name, _Points())
        points.supersede(step - 1)  # a second one at a step replaces the first
        points.add(step, time, (value, which))


def _read_stage(path: str, damage: Dict[str, int]) -> _Stage:
    stage = _Stage(damage)
    with open(path, "rb") as f:
        scan = Scan(f)
        for found in scan:
            stage.take(found)
        if scan.tail in ("torn", "damage"):
            damage["tail"] += scan.size - scan.end
        if scan.end == 0 and scan.tail == "damage":
            raise ValueError("%s: not a record stream" % path)
    return stage


# ---- all stages together ----

def _merged(tables: List[Dict[str, _Points]]) -> Dict[str, _Points]:
    """The metrics of the first stage, and of the others those that it has not."""
    got: Dict[str, _Points] = {}
    for table in tables:
        for name, points in table.items():
            got.setdefault(name, points)
    return got


def _layer_series(stages: List[_Stage], name: str, has_old: bool) -> Layers:
    parts = [list(s.layer[name].chosen(has_old)) if name in s.layer else [] for s in stages]
    rows: List[Tuple[int, float, Array]] = parts[0]
    if len(stages) > 1:  # a step's vector is complete where every stage that has the metric logged it
        have = [p for p in parts if p]
        steps: Dict[int, List[Tuple[int, float, Array]]] = {}
        for p in have:
            for row in p:
                steps.setdefault(row[0], []).append(row)
        rows = []
        for step in sorted(steps):
            if len(steps[step]) == len(have):
                joined: List[float] = []
                for _, _, v in steps[step]:
                    joined.extend(float(x) for x in v)
                rows.append((step, steps[step][0][1], _reals(joined)))
    width = {len(v) for _, _, v in rows}
    values: Any = [v for _, _, v in rows]
    if np is not None and len(width) == 1:
        values = np.stack(values)
    return Layers(_wholes(r[0] for r in rows), _reals(r[1] for r in rows), values)


def _matrix_series(stages: List[_Stage], name: str, has_old: bool) -> Matrices:
    """Matrices of one step; those of several stages are put on top of each other."""
    if sum(name in s.matrix for s in stages) == 1:
        rows = [r for s in stages if name in s.matrix for r in s.matrix[name].chosen(has_old)]
    else:
        at: Dict[int, Tuple[float, List[Any], List[int]]] = {}
        for s in stages:
            for step, time, (value, which) in s.matrix[name].chosen(has_old) if name in s.matrix else ():
                entry = at.setdefault(step, (time, [], []))
                entry[1].extend(value)
                entry[2].extend(which)
        rows = [(step, t, (np.stack(v) if np is not None and len({len(r) for r in v}) == 1 else v, w))
                for step, (t, v, w) in sorted(at.items())]
    return Matrices(_wholes(r[0] for r in rows), _reals(r[1] for r in rows), [r[2][0] for r in rows], [r[2][1] for r in rows])


def _probe(body: Dict[str, Any], step: int, time: float, damage: Dict[str, int]) -> Optional[Dict[str, Any]]:
    layers = _whole(body.get("layers"), 0)
    ids, text, run = body.get("ids"), body.get("text"), _bits(body.get("run")) if "run" in body else None
    tokens = len(ids) if isinstance(ids, list) else len(text) if isinstance(text, list) else len(run) // layers if run is not None and layers else 0
    if layers < 1 or tokens < 1:
        damage["invalid"] += 1
        return None
    got: Dict[str, Any] = {k: v for k, v in body.items() if k not in ("kind", "run", "cell", "token")}
    got.update(step=step, time=time, tokens=tokens, run=_table(run, layers, tokens), cell={}, token={})
    for key in ("depth", "nll", "entropy", "flops"):
        if key in body:
            v = _vector(body[key])
            if v is not None and len(v) == tokens:
                got[key] = v
            else:
                damage["invalid"] += 1
                del got[key]
    for part, cols in (("cell", layers), ("token", 1)):
        given = body.get(part)
        for key, raw in given.items() if isinstance(given, dict) else ():
            v = _vector(raw)
            shaped = None if v is None or len(v) != cols * tokens else v if part == "token" else _table(v, layers, tokens)
            if shaped is None:
                damage["invalid"] += 1
            else:
                got[part][key] = shaped
    if _whole(body.get("lens_k"), 0) and "lens_p" in body:
        got["lens_p"] = _vector(body["lens_p"])
    return got


def _add_other(data: RunData, kind: str, body: Dict[str, Any], step: int, time: float) -> None:
    if kind == "probe":
        probe = _probe(body, step, time, data.damage)
        if probe is not None:
            data.probes.append(probe)
    elif kind == "event":
        data.events.append({"step": step, "time": time, "level": str(body.get("level", "info")), "name": str(body.get("name", "")),
                            "text": str(body.get("text", "")), **{k: body[k] for k in ("rule", "over", "value") if k in body}})
    elif kind == "eval":
        values: Dict[str, Any] = {}
        for key, raw in body.items():
            v = None if key in _RESERVED or key in ("task", "routing", "not_causal", "layer_offset") else _number(raw)
            v = _vector(raw) if v is None and isinstance(raw, (list, bytes)) else v
            if v is not None:
                values[key] = v
        data.evaluations.append({"step": step, "time": time, "task": body.get("task", ""), "routing": body.get("routing", ""),
                                 "values": values})
    elif kind == "system":
        data.systems.append({**{k: v for k, v in body.items() if k not in _RESERVED}, "step": step, "time": time})
    else:
        column = body.get("column")
        columns = {k: _vector(v) for k, v in column.items()} if isinstance(column, dict) else {}
        data.samples.append({"step": step, "time": time, "name": body.get("name", ""),
                             "columns": {k: v for k, v in columns.items() if v is not None}})


def _add_columns(data: RunData) -> None:
    at: Dict[int, int] = {}
    for s in data.metrics.values():
        for step in s.step:
            at.setdefault(int(step), 0)
    steps = sorted(at)
    at = {step: i for i, step in enumerate(steps)}
    times = [math.nan] * len(steps)
    data["step"] = _wholes(steps)
    data["time"] = data["step"]  # its place in the order of keys
    for name, s in data.metrics.items():
        column = [math.nan] * len(steps)
        for step, time, v in zip(s.step, s.time, s.value):
            i = at[int(step)]
            column[i] = float(v)
            times[i] = float(time)
        data[name] = _reals(column)
    data["time"] = _reals(times)


def read(path: Union[str, "os.PathLike[str]"], superseded: bool = False) -> RunData:
    """Reads a run directory or a log.  superseded: also the points that a resume went back over.
    FileNotFoundError when there is no log, ValueError when it is not a record stream."""
    global np
    np = np or _module("numpy")
    name = os.fspath(path)
    is_directory = os.path.isdir(name)
    paths = [_directory.stage_path(name, 0)] + _directory.stage_paths(name) if is_directory else [name]
    data = RunData()
    data.path = name
    stages = [_read_stage(p, data.damage) for p in paths]
    stages.sort(key=lambda s: s.offset)
    first = next(s for s in stages if s.offset == min(x.offset for x in stages))
    for s in stages:
        data.head.update({k: v for k, v in s.head.items() if k not in data.head or s is first})
    data.head.pop("kind", None)
    if len(stages) > 1:
        data.head["layers"] = max(s.offset + _whole(s.head.get("layers"), 0) for s in stages)
        data.head.pop("layer_offset", None)
    data.end = {k: v for k, v in first.end.items() if k != "kind"}
    for metric, points in _merged([s.metric for s in stages]).items():
        rows = list(points.chosen(superseded))
        if rows:
            data.metrics[metric] = Series(_wholes(r[0] for r in rows), _reals(r[1] for r in rows), _reals(r[2] for r in rows))
    for layer in _merged([s.layer for s in stages]):
        data.layers[layer] = _layer_series(stages, layer, superseded)
    for matrix in _merged([s.matrix for s in stages]):
        data.matrices[matrix] = _matrix_series(stages, matrix, superseded)
    for s in stages:
        probes = {at for points in s.probe.values() for _, _, at in points.chosen(superseded)}
        for i, (kind, body, step, time) in enumerate(s.other):
            if kind != "probe" or i in probes:
                _add_other(data, kind, {**body, "layer_offset": s.offset} if s.offset else body, step, time)
    _add_columns(data)
    return data


