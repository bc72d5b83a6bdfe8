"""Numbers and vectors from Python, numpy and torch, without importing either: who passes a tensor has imported its library."""
from __future__ import annotations

import math
import sys
from array import array
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

Shape = Tuple[int, ...]


def is_tensor(v: Any) -> bool:
    """True for a torch tensor."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(v, getattr(torch, "Tensor", ()))


def is_on_device(v: Any) -> bool:
    """True for a torch tensor whose values have to be copied from an accelerator."""
    return is_tensor(v) and v.device.type not in ("cpu", "meta")


def _integer(v: int) -> float:
    """Itself where MessagePack has it, else the nearest float."""
    if -(1 << 63) <= v < 1 << 64:
        return int(v)
    try:
        return float(v)
    except OverflowError:
        return math.inf if v > 0 else -math.inf


def number(v: Any) -> Optional[float]:
    """The value of a scalar of any library, None when it is not one.  Ints stay ints."""
    if isinstance(v, bool):
        return int(v)
    if isinstance(v, int):
        return _integer(v)
    if isinstance(v, float):
        return float(v)
    if isinstance(v, (str, bytes, dict, list, tuple, set)) or v is None:
        return None
    item = getattr(v, "item", None)
    size = getattr(v, "numel", None)
    n = size() if callable(size) else getattr(v, "size", 1)
    if callable(item):
        if n != 1:
            return None
        try:
            got = item()
        except RuntimeError:  # a tensor without values, such as one on the meta device
            return None
        if isinstance(got, (bool, int)):
            return _integer(int(got))
        return float(got) if isinstance(got, float) else None
    try:  # Decimal, Fraction
        return float(v)
    except (TypeError, ValueError, OverflowError):
        return None


def shape(v: Any) -> Shape:
    """Sizes of a nested list, an array or a tensor; of a list those of its first items."""
    got = getattr(v, "shape", None)
    if got is not None:
        return tuple(int(n) for n in got)
    sizes: List[int] = []
    while isinstance(v, (list, tuple, array, range)):
        sizes.append(len(v))
        if not len(v):
            break
        v = v[0]
        if getattr(v, "shape", ()):
            sizes += [int(n) for n in v.shape]
            break
    return tuple(sizes)


def _flat(v: Any, out: List[Any]) -> List[Any]:
    if isinstance(v, (list, tuple, array, range)):
        for item in v:
            if isinstance(item, (int, float)):
                out.append(item)
            else:
                _flat(item, out)
    elif hasattr(v, "tolist"):
        got = v.tolist()
        if isinstance(got, list):
            _flat(got, out)
        else:
            out.append(got)
    else:
        x = number(v)
        if x is None and v is not None:
            raise TypeError("%s: expected a number" % type(v).__name__)
        out.append(math.nan if x is None else x)
    return out


def _on_host(v: Any) -> Any:
    """A tensor as something that has tolist() or numpy's buffer; other values unchanged."""
    if not is_tensor(v):
        return v
    v = v.detach()
    if v.dtype.is_floating_point and v.element_size() < 4:  # bfloat16 has no counterpart in numpy
        v = v.float()
    v = v.cpu()
    try:
        return v.numpy()
    except (RuntimeError, TypeError):  # torch without numpy
        return v


def _as_array(v: Any) -> Any:
    """The value as a numpy array when it is one already and numpy is imported, else None."""
    np = sys.modules.get("numpy")
    array_type = getattr(np, "ndarray", None)
    return v if array_type is not None and isinstance(v, array_type) else None


def _little(a: "array[Any]") -> bytes:
    if sys.byteorder == "big":
        a.byteswap()
    return a.tobytes()


def float32s(v: Any) -> bytes:
    """The values as little-endian float32, row by row."""
    v = _on_host(v)
    a = _as_array(v)
    if a is not None:
        return bytes(a.astype("<f4").tobytes())
    return _little(array("f", _flat(v, [])))


def bits(v: Any) -> bytes:
    """The values as bytes 0 and 1; NaN counts as 0."""
    if isinstance(v, (bytes, bytearray)):
        return bytes(v)
    v = _on_host(v)
    a = _as_array(v)
    if a is not None:
        return bytes(((a == a) & (a != 0)).astype("u1").tobytes())
    return bytes(1 if x and x == x else 0 for x in _flat(v, []))


def ints(v: Any) -> List[int]:
    """The values as a list of ints; NaN becomes -1."""
    return [int(x) if x == x else -1 for x in _flat(_on_host(v), [])]


def floats(v: Any) -> List[float]:
    """The values as a list of Python numbers, as precise as they were."""
    return _flat(_on_host(v), [])


Pending = Callable[[], Dict[str, Any]]


def fetch(values: Dict[str, Any]) -> Pending:
    """Starts the copy of all device tensors among the values, one for each device, and returns what waits for it: call it on
    another thread.  Values of the host are taken as they are now.  Scalars come back as numbers, others as lists of them."""
    groups: Dict[Any, List[str]] = {}
    for key, v in values.items():
        if is_on_device(v):
            groups.setdefault(v.device, []).append(key)
    if not groups:
        return lambda: values
    copies = [(_start_copy([values[k] for k in keys]), keys) for keys in groups.values()]
    sizes = {k: (int(values[k].numel()), values[k].dim()) for keys in groups.values() for k in keys}

    def wait() -> Dict[str, Any]:
        got = dict(values)
        for take, keys in copies:
            flat = take()
            at = 0
            for k in keys:
                n, dim = sizes[k]
                got[k] = flat[at] if dim == 0 or n == 1 else flat[at:at + n]
                at += n
        return got

    return wait


def _start_copy(tensors: Sequence[Any]) -> Callable[[], List[float]]:
    """One copy of several tensors of a device; not blocking where the device can (CUDA and its like)."""
    torch: Any = sys.modules["torch"]
    wide = torch.float64 if any(t.dtype in (torch.float64, torch.int64, torch.int32) for t in tensors) else torch.float32
    kind = tensors[0].device.type
    if kind == "mps":
        wide = torch.float32  # it has no float64
    with torch.no_grad():
        one = torch.cat([t.detach().reshape(-1).to(wide) for t in tensors])
    if kind != "cuda":
        return lambda: list(one.cpu().tolist())  # `one` is a copy: later steps do not change it
    pinned = torch.empty(one.shape, dtype=wide, device="cpu", pin_memory=True)  # whatever the default device is
    with torch.cuda.device(one.device):
        pinned.copy_(one, non_blocking=True)
        event = torch.cuda.Event()
        event.record()

    def take() -> List[float]:
        event.synchronize()
        return list(pinned.tolist())

    return take
