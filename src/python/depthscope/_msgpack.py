"""MessagePack of the record stream (include/io/FORMATS.md): packing, and unpacking with every length checked.

Knows the format only, neither frames nor kinds of records.
"""
from __future__ import annotations

import struct
from typing import Any, Callable, Dict, List, Tuple, Union

DEPTH_MAX = 16

Buffer = Union[bytes, bytearray, memoryview]

_F64 = struct.Struct(">Bd")
_U8 = struct.Struct(">BB")
_U16 = struct.Struct(">BH")
_U32 = struct.Struct(">BI")
_U64 = struct.Struct(">BQ")
_I8 = struct.Struct(">Bb")
_I16 = struct.Struct(">Bh")
_I32 = struct.Struct(">Bi")
_I64 = struct.Struct(">Bq")


class FormatError(ValueError):
    """The bytes are not the MessagePack object that was expected."""


# ---- packing ----

def _put_int(out: List[bytes], v: int) -> None:
    if v >= 0:
        if v < 0x80:
            out.append(bytes((v,)))
        elif v < 1 << 8:
            out.append(_U8.pack(0xCC, v))
        elif v < 1 << 16:
            out.append(_U16.pack(0xCD, v))
        elif v < 1 << 32:
            out.append(_U32.pack(0xCE, v))
        elif v < 1 << 64:
            out.append(_U64.pack(0xCF, v))
        else:
            raise FormatError("integer %d: must be less than 2^64" % v)
    elif v >= -32:
        out.append(bytes((256 + v,)))
    elif v >= -(1 << 7):
        out.append(_I8.pack(0xD0, v))
    elif v >= -(1 << 15):
        out.append(_I16.pack(0xD1, v))
    elif v >= -(1 << 31):
        out.append(_I32.pack(0xD2, v))
    elif v >= -(1 << 63):
        out.append(_I64.pack(0xD3, v))
    else:
        raise FormatError("integer %d: must be at least -2^63" % v)


def _put_size(out: List[bytes], n: int, small: int, limit: int, tags: Tuple[int, int, int]) -> None:
    """The head of a string, array or map of n items; a tag of 0 is a size the type does not have."""
    if n < limit:
        out.append(bytes((small | n,)))
    elif tags[0] and n < 1 << 8:
        out.append(_U8.pack(tags[0], n))
    elif n < 1 << 16:
        out.append(_U16.pack(tags[1], n))
    elif n < 1 << 32:
        out.append(_U32.pack(tags[2], n))
    else:
        raise FormatError("%d items or bytes: must be less than 2^32" % n)


def _put(out: List[bytes], v: Any, depth: int) -> None:
    kind = type(v)
    if kind is float:
        out.append(_F64.pack(0xCB, v))
    elif kind is int:
        _put_int(out, v)
    elif kind is str:
        text = v.encode("utf-8", "replace")
        _put_size(out, len(text), 0xA0, 32, (0xD9, 0xDA, 0xDB))
        out.append(text)
    elif v is None:
        out.append(b"\xc0")
    elif v is True:
        out.append(b"\xc3")
    elif v is False:
        out.append(b"\xc2")
    elif isinstance(v, (bytes, bytearray, memoryview)):
        raw = bytes(v)
        _put_size(out, len(raw), 0, 0, (0xC4, 0xC5, 0xC6))
        out.append(raw)
    elif depth >= DEPTH_MAX:
        raise FormatError("nested more than %d deep" % DEPTH_MAX)
    elif isinstance(v, dict):
        _put_size(out, len(v), 0x80, 16, (0, 0xDE, 0xDF))
        for key, item in v.items():
            _put(out, key, depth + 1)
            _put(out, item, depth + 1)
    elif isinstance(v, (list, tuple)):
        _put_size(out, len(v), 0x90, 16, (0, 0xDC, 0xDD))
        for item in v:
            _put(out, item, depth + 1)
    elif isinstance(v, float):
        out.append(_F64.pack(0xCB, v))
    elif isinstance(v, int):
        _put_int(out, int(v))
    elif isinstance(v, str):
        _put(out, str(v), depth)
    else:
        raise FormatError("type %s: expected a number, text, bytes, list or dict" % kind.__name__)


def pack(v: Any) -> bytes:
    """One object as MessagePack.  Numbers are int and float (64 bits), as Python has them."""
    out: List[bytes] = []
    _put(out, v, 0)
    return b"".join(out)


# ---- unpacking ----

class Ext(bytes):
    """An extension object; its type is in `code`."""

    code = 0


class _Reader:
    """Reads one object; every count is compared with the bytes that are left before anything is allocated."""

    __slots__ = ("data", "at", "end")

    def __init__(self, data: Buffer) -> None:
        self.data = bytes(data)
        self.at = 0
        self.end = len(self.data)

    def take(self, n: int) -> int:
        at = self.at
        if n > self.end - at:
            raise FormatError("truncated at byte %d: %d bytes left, expected %d" % (at, self.end - at, n))
        self.at = at + n
        return at

    def number(self, s: struct.Struct) -> Any:
        return s.unpack_from(self.data, self.take(s.size))[0]

    def raw(self, n: int) -> bytes:
        at = self.take(n)
        return self.data[at:at + n]

    def text(self, n: int) -> str:
        return self.raw(n).decode("utf-8", "replace")

    def ext(self, n: int) -> Ext:
        code = self.number(_SIGNED[1])
        got = Ext(self.raw(n))
        got.code = code
        return got

    def array(self, n: int, depth: int) -> List[Any]:
        if n > self.end - self.at:
            raise FormatError("array of %d items in %d bytes" % (n, self.end - self.at))
        return [self.value(depth + 1) for _ in range(n)]

    def map(self, n: int, depth: int) -> Dict[Any, Any]:
        if 2 * n > self.end - self.at:
            raise FormatError("map of %d items in %d bytes" % (n, self.end - self.at))
        got: Dict[Any, Any] = {}
        data, value = self.data, self.value
        for _ in range(n):
            at = self.at
            tag = data[at] if at < self.end else 0
            if 0xA0 <= tag < 0xC0 and at + 1 + (tag & 31) <= self.end:  # as value() does, without a call for each key
                self.at = end = at + 1 + (tag & 31)
                key: Any = data[at + 1:end].decode("utf-8", "replace")
            else:
                key = value(depth + 1)
            at = self.at
            if at + 9 <= self.end and data[at] == 0xCB:  # nearly every value of a metric
                item: Any = _F64.unpack_from(data, at)[1]
                self.at = at + 9
            else:
                item = value(depth + 1)
            if isinstance(key, (str, int, float, bytes)) and key not in got:
                got[key] = item  # the first of equal keys holds, as in the C reader
        return got

    def value(self, depth: int) -> Any:
        if depth > DEPTH_MAX:
            raise FormatError("nested more than %d deep" % DEPTH_MAX)
        tag = self.data[self.take(1)]
        if tag < 0x80:
            return tag
        if tag >= 0xE0:
            return tag - 256
        if tag < 0x90:
            return self.map(tag & 15, depth)
        if tag < 0xA0:
            return self.array(tag & 15, depth)
        if tag < 0xC0:
            return self.text(tag & 31)
        read = _TAGS.get(tag)
        if read is None:
            raise FormatError("byte 0x%02X at %d is not the start of an object" % (tag, self.at - 1))
        return read(self, depth)


_UNSIGNED = {n: struct.Struct(">" + c) for n, c in ((1, "B"), (2, "H"), (4, "I"), (8, "Q"))}
_SIGNED = {n: struct.Struct(">" + c) for n, c in ((1, "b"), (2, "h"), (4, "i"), (8, "q"))}
_REAL = {4: struct.Struct(">f"), 8: struct.Struct(">d")}

_TAGS: Dict[int, Callable[[_Reader, int], Any]] = {
    0xC0: lambda r, d: None,
    0xC2: lambda r, d: False,
    0xC3: lambda r, d: True,
    0xC4: lambda r, d: r.raw(r.number(_UNSIGNED[1])),
    0xC5: lambda r, d: r.raw(r.number(_UNSIGNED[2])),
    0xC6: lambda r, d: r.raw(r.number(_UNSIGNED[4])),
    0xC7: lambda r, d: r.ext(r.number(_UNSIGNED[1])),
    0xC8: lambda r, d: r.ext(r.number(_UNSIGNED[2])),
    0xC9: lambda r, d: r.ext(r.number(_UNSIGNED[4])),
    0xCA: lambda r, d: r.number(_REAL[4]),
    0xCB: lambda r, d: r.number(_REAL[8]),
    0xCC: lambda r, d: r.number(_UNSIGNED[1]),
    0xCD: lambda r, d: r.number(_UNSIGNED[2]),
    0xCE: lambda r, d: r.number(_UNSIGNED[4]),
    0xCF: lambda r, d: r.number(_UNSIGNED[8]),
    0xD0: lambda r, d: r.number(_SIGNED[1]),
    0xD1: lambda r, d: r.number(_SIGNED[2]),
    0xD2: lambda r, d: r.number(_SIGNED[4]),
    0xD3: lambda r, d: r.number(_SIGNED[8]),
    0xD4: lambda r, d: r.ext(1),
    0xD5: lambda r, d: r.ext(2),
    0xD6: lambda r, d: r.ext(4),
    0xD7: lambda r, d: r.ext(8),
    0xD8: lambda r, d: r.ext(16),
    0xD9: lambda r, d: r.text(r.number(_UNSIGNED[1])),
    0xDA: lambda r, d: r.text(r.number(_UNSIGNED[2])),
    0xDB: lambda r, d: r.text(r.number(_UNSIGNED[4])),
    0xDC: lambda r, d: r.array(r.number(_UNSIGNED[2]), d),
    0xDD: lambda r, d: r.array(r.number(_UNSIGNED[4]), d),
    0xDE: lambda r, d: r.map(r.number(_UNSIGNED[2]), d),
    0xDF: lambda r, d: r.map(r.number(_UNSIGNED[4]), d),
}


def unpack(data: Buffer) -> Any:
    """The one object that `data` holds from its first to its last byte, or FormatError."""
    r = _Reader(data)
    got = r.value(0)
    if r.at != r.end:
        raise FormatError("%d bytes after the object" % (r.end - r.at))
    return got
