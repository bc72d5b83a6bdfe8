"""CRC-32C (Castagnoli) of a record: by a package that has it in C, else by lanes in numpy, else by tables in Python."""
from __future__ import annotations

import sys
from array import array
from typing import Any, Callable, List, Optional, Union

_POLYNOMIAL = 0x82F63B78
_WORDS_FROM = 1 << 10  # bytes from which the table of 65,536 words is worth building
_LANES_FROM = 1 << 15  # bytes from which numpy's calls cost less than Python's loop
_LANE = 1024


def _table() -> List[int]:
    table = []
    for n in range(256):
        c = n
        for _ in range(8):
            c = c >> 1 ^ (_POLYNOMIAL if c & 1 else 0)
        table.append(c)
    return table


_BYTE = _table()
_word: List[int] = []  # two bytes in one step, filled on first use


def _words() -> List[int]:
    if not _word:
        for n in range(1 << 16):
            c = _BYTE[n & 255] ^ n >> 8
            _word.append(_BYTE[c & 255] ^ c >> 8)
    return _word


def _by_bytes(data: Union[bytes, bytearray], c: int) -> int:
    table = _BYTE
    for b in data:
        c = table[(c ^ b) & 255] ^ c >> 8
    return c


def _by_words(data: bytes, c: int) -> int:
    table = _words()
    even = len(data) & ~1
    words = array("H", data[:even])
    if sys.byteorder == "big":
        words.byteswap()
    for w in words:
        c = table[(c ^ w) & 65535] ^ c >> 16
    return _by_bytes(data[even:], c)


class _Lanes:
    """Rows of 1024 bytes side by side, four bytes at a step; rows are joined in pairs, as a tournament.

    Advancing a checksum over n zero bytes is linear over its bits, so it is four tables of 256; those for 2n follow from those for n.
    """

    def __init__(self, np: Any) -> None:
        self.np = np
        step = np.array(_BYTE, dtype=np.uint32)
        tables = [step]
        for _ in range(3):  # tables[k][b]: byte b followed by k zero bytes
            last = tables[-1]
            tables.append(step[last & 255] ^ last >> 8)
        self.tables = tables
        self.joins: List[Any] = [self._doubled(_LANE)]

    def _advance(self, tables: Any, c: Any) -> Any:
        return tables[3][c & 255] ^ tables[2][c >> 8 & 255] ^ tables[1][c >> 16 & 255] ^ tables[0][c >> 24]

    def _doubled(self, n: int) -> Any:
        """Tables that advance over n zero bytes, n = 4 * 2^k."""
        tables, size = self.tables, 4
        while size < n:
            tables = self._twice(tables)
            size *= 2
        return tables

    def _twice(self, tables: Any) -> Any:
        # entry b of table k is the state b << 8 * (3 - k) advanced once: advance it again
        return [self._advance(tables, t) for t in tables]

    def crc(self, data: bytes) -> int:
        np = self.np
        rows = (len(data) + _LANE - 1) // _LANE
        whole = np.zeros(rows * _LANE, dtype=np.uint8)
        whole[len(whole) - len(data):] = np.frombuffer(data, dtype=np.uint8)  # zeros in front change nothing: the start is 0
        at = len(whole) - len(data)
        whole[at:at + 4] ^= 255
        words = np.ascontiguousarray(whole.view("<u4").reshape(rows, _LANE // 4).T).astype(np.uint32)
        c = np.zeros(rows, dtype=np.uint32)
        for w in words:
            c = self._advance(self.tables, c ^ w)
        level = 0
        while len(c) > 1:
            if len(self.joins) <= level:
                self.joins.append(self._twice(self.joins[-1]))
            if len(c) & 1:
                c = np.concatenate([np.zeros(1, dtype=np.uint32), c])
            c = self._advance(self.joins[level], c[0::2]) ^ c[1::2]
            level += 1
        return int(c[0]) ^ 0xFFFFFFFF


def _package() -> Optional[Callable[[bytes], int]]:
    try:
        from crc32c import crc32c as found  # type: ignore[import-not-found,import-untyped,unused-ignore]
        return lambda data: int(found(data))
    except Exception:  # a broken installation must not end a training run
        pass
    try:
        import google_crc32c  # type: ignore[import-not-found,import-untyped,unused-ignore]
        if google_crc32c.implementation == "c":
            return lambda data: int(google_crc32c.value(data))
    except Exception:
        pass
    return None


_fast: Optional[Callable[[bytes], int]] = None
_has_looked = False
_lanes: Optional[_Lanes] = None


def crc32c(data: Union[bytes, bytearray]) -> int:
    """The checksum of a frame.  numpy is used for large records, and only if the program has imported it."""
    global _fast, _has_looked, _lanes
    n = len(data)
    if not _has_looked:
        _fast, _has_looked = _package(), True
    if _fast is not None:
        return _fast(bytes(data))
    if n < _WORDS_FROM:
        return _by_bytes(data, 0xFFFFFFFF) ^ 0xFFFFFFFF
    np = sys.modules.get("numpy")
    if n >= _LANES_FROM and np is not None and hasattr(np, "frombuffer"):
        if _lanes is None:
            _lanes = _Lanes(np)
        return _lanes.crc(bytes(data))
    return _by_words(bytes(data), 0xFFFFFFFF) ^ 0xFFFFFFFF
