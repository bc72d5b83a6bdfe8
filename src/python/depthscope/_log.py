"""The record stream as a file: frames, the one appending writer, and the scan that readers and the writer's start share.

Knows frames and the end of a file (include/io/FORMATS.md, section 1), not what the records mean.
"""
from __future__ import annotations

import collections
import errno
import fcntl
import os
import struct
import time
import warnings
from typing import Any, BinaryIO, Dict, Iterator, List, NamedTuple, Optional, Tuple

from ._crc32c import crc32c
from ._msgpack import FormatError, pack, unpack

RECORD_MAX = 16 << 20
_HEAD = struct.Struct(">BIB")
_SEQ = struct.Struct(">Q")
_CRC = struct.Struct(">I")
HEAD_BYTES = _HEAD.size
OVERHEAD = HEAD_BYTES + 4 + 8
_MARK, _TYPE = 0xC9, 0x44
_WAITING_MAX = 8 << 20  # bytes of records kept in memory while the disk is full
_TAIL_MAX = 64 << 20
_BLOCK = 1 << 20
_WALK_CHECKS = 256
_PEEK = 40
_HEAD_START = b"\xa4kind\xa4head"  # after the 1, 3 or 5 bytes of a map
_METRIC_START = b"\xa4kind\xa6metric"
_SEARCH_MAX = 256 << 20  # bytes hashed in the search for a frame after damage; then only small frames are tried
_SMALL = 1 << 12


class LogError(OSError):
    """The log cannot be written: the message names the file and the reason."""


def frame(seq: int, body: bytes) -> bytes:
    """The bytes of one record."""
    data = _SEQ.pack(seq) + body
    if len(data) + 4 > RECORD_MAX:
        raise FormatError("record of %d bytes: must be at most %d" % (len(data) + 4, RECORD_MAX))
    return _HEAD.pack(_MARK, len(data) + 4, _TYPE) + _CRC.pack(crc32c(data)) + data


def frame_length(head: bytes) -> int:
    """Whole length of the frame that begins with these bytes: 0 = more bytes needed, -1 = not a frame."""
    if head and head[0] != _MARK:
        return -1
    if len(head) < HEAD_BYTES:
        return 0
    _, length, kind = _HEAD.unpack_from(head)
    if kind != _TYPE or length > RECORD_MAX or length < 13:
        return -1
    return int(length) + HEAD_BYTES


def frame_body(whole: bytes) -> Optional[Tuple[int, bytes]]:
    """(seq, body) of a whole frame, None when its checksum does not hold."""
    data = whole[HEAD_BYTES + 4:]
    if _CRC.unpack_from(whole, HEAD_BYTES)[0] != crc32c(data):
        return None
    return int(_SEQ.unpack_from(data)[0]), data[8:]


class Found(NamedTuple):
    """A stretch of a log: a record (`body` is its map), or damage (`body` is None)."""

    offset: int
    length: int
    seq: int
    body: Optional[Dict[str, Any]]


class Scan:
    """Walks over the frames of a file.  After the walk `end` is where the last whole record ends, and `tail` what follows it:
    "" nothing, "torn" a record that is not completely written, "zeros" or "damage"."""

    def __init__(self, file: BinaryIO) -> None:
        self.file = file
        self.size = os.fstat(file.fileno()).st_size
        self.at = 0
        self.end = 0
        self.tail = ""
        self._buffer = b""
        self._start = 0
        self._searched = 0

    def peek(self, at: int, n: int) -> bytes:
        """At most n bytes at an offset; fewer only at the end of the file."""
        if at < self._start or at + n > self._start + len(self._buffer):
            self.file.seek(at)
            self._buffer = self.file.read(max(n, _BLOCK))
            self._start = at
        return self._buffer[at - self._start:at - self._start + n]

    def frame(self, at: int) -> Optional[Found]:
        n = frame_length(self.peek(at, HEAD_BYTES))
        if n <= 0 or at + n > self.size:
            return None
        whole = self.peek(at, n)
        got = frame_body(whole) if len(whole) == n else None
        if got is None:
            return None
        try:
            body = unpack(got[1])
        except FormatError:
            return None
        return Found(at, n, got[0], body) if isinstance(body, dict) else None

    def _next_frame(self, at: int) -> Optional[Found]:
        """The next valid frame at or after an offset."""
        while at < self.size:
            block = self.peek(at, min(_BLOCK, self.size - at))
            if not block:
                break
            k = block.find(bytes((_MARK,)))
            if k < 0:
                at += len(block)
                continue
            at += k
            n = frame_length(self.peek(at, HEAD_BYTES))
            if 0 < n <= self.size - at and (n <= _SMALL or self._searched < _SEARCH_MAX):  # hostile bytes: many long frames that fail
                self._searched += n
                found = self.frame(at)
                if found:
                    return found
            at += 1
        return None

    def _is_zero_from(self, at: int) -> bool:
        while at < self.size:
            block = self.peek(at, min(_BLOCK, self.size - at))
            if block.strip(b"\0"):
                return False
            at += len(block) or 1
        return True

    def __iter__(self) -> Iterator[Found]:
        while self.at < self.size:
            found = self.frame(self.at)
            if not found:
                start = self.at
                found = self._next_frame(start + 1)
                if not found:
                    self._note_tail(start)
                    return
                yield Found(start, found.offset - start, 0, None)
            self.at = self.end = found.offset + found.length
            yield found

    def _note_tail(self, at: int) -> None:
        n = frame_length(self.peek(at, HEAD_BYTES))
        self.tail = "zeros" if self._is_zero_from(at) else "torn" if n == 0 or at + n > self.size and n > 0 else "damage"


def _holder(inode: int) -> int:
    """Process that holds a flock on this inode, 0 when unknown."""
    try:
        with open("/proc/locks") as f:
            for line in f:
                w = line.split()
                if len(w) > 5 and w[1] == "FLOCK" and w[5].rsplit(":", 1)[-1] == str(inode):
                    return int(w[4])
    except (OSError, ValueError):
        pass
    return 0


class LogWriter:
    """The one writer of a log.  Opening takes the lock, finds the end of the last whole record and truncates what follows it.
    Appending never raises because of the disk: records wait in memory while it is full, and are counted when they are lost."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.seq = 0
        self.step = -1  # the highest step with a metric in the file that no resume has superseded
        self.run_id = ""
        self.config: Dict[str, str] = {}  # of the newest head that has one
        self.has_head = False
        self.offset = 0
        self.lost = 0
        self._waiting: List[bytes] = []
        self._is_dirty = False
        self.failure = ""  # why records wait in memory
        self.fd = -1
        try:
            # not blocking: a FIFO without a reader must not hang the start
            self.fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NONBLOCK, 0o644)
            if not os.path.isfile(path):
                raise LogError(errno.EINVAL, "not a regular file", path)
            self._lock()
            self._find_end()
        except BaseException:
            self.close()
            raise

    def _lock(self) -> None:
        # a viewer that asks whether the run is live holds the lock briefly
        for _ in range(10):
            try:
                fcntl.flock(self.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except OSError as x:
                if x.errno not in (errno.EWOULDBLOCK, errno.EACCES, errno.EINTR):
                    raise
            time.sleep(0.01)
        pid = _holder(os.fstat(self.fd).st_ino)
        raise LogError(errno.EBUSY, "is being written by %s" % ("process %d" % pid if pid else "another process"), self.path)

    def _note(self, body: Dict[str, Any]) -> None:
        kind, step = body.get("kind"), body.get("step")
        if kind == "metric" and isinstance(step, int):
            self.step = max(self.step, step)
        if kind == "head":
            self.has_head = True
            if body.get("resume") is True and isinstance(step, int):
                self.step = min(self.step, step)
            if isinstance(body.get("run_id"), str):
                self.run_id = body["run_id"]
            if isinstance(body.get("config"), dict):
                self.config = {k: v for k, v in body["config"].items() if isinstance(k, str) and isinstance(v, str)}

    def _walk(self, f: BinaryIO) -> bool:
        """The end of an undamaged log, from the lengths of its frames: heads, the last frames and the last metrics are checked,
        so that a resume does not wait for the checksums of all.  False: it is not that simple."""
        size, at = os.fstat(f.fileno()).st_size, 0
        heads: List[int] = []
        last: "collections.deque[int]" = collections.deque(maxlen=_WALK_CHECKS)
        metrics: "collections.deque[int]" = collections.deque(maxlen=_WALK_CHECKS)
        scan = Scan(f)
        while at < size:
            front = scan.peek(at, _PEEK)
            n = frame_length(front)
            if n <= 0 or at + n > size:
                return False
            if _HEAD_START in front:
                heads.append(at)
            if _METRIC_START in front:
                metrics.append(at)
            last.append(at)
            at += n
        for start in sorted({*heads, *last, *metrics}):
            found = scan.frame(start)
            if not found or found.body is None:
                return False
            self.seq = found.seq
            self._note(found.body)
        self.offset = at
        return self.step >= 0 or len(last) < _WALK_CHECKS  # a metric may have its kind elsewhere

    def _find_end(self) -> None:
        with open(self.path, "rb") as f:
            if self._walk(f):
                return
            self.seq, self.step, self.run_id, self.config, self.has_head = 0, -1, "", {}, False
            scan = Scan(f)
            for found in scan:
                if found.body is None:
                    continue
                if found.body.get("kind") == "head" or found.seq > self.seq:
                    self.seq = found.seq
                self._note(found.body)
            self.offset = scan.end
            if scan.tail == "damage":
                self._keep_damage(f, scan)
        if scan.tail:
            os.ftruncate(self.fd, self.offset)

    def _keep_damage(self, f: BinaryIO, scan: Scan) -> None:
        if scan.end == 0:
            raise LogError(errno.EINVAL, "not a record stream", self.path)
        if scan.size - scan.end > _TAIL_MAX:
            raise LogError(errno.EINVAL, "corrupt from byte %d; truncate the file there to continue" % scan.end, self.path)
        f.seek(scan.end)
        name = "%s.broken-%d" % (self.path, scan.end)
        with open(name, "wb") as out:
            out.write(f.read().rstrip(b"\0"))
        warnings.warn("%s: corrupt bytes at its end, kept as %s" % (self.path, name), stacklevel=2)

    def append(self, body: Dict[str, Any]) -> None:
        """Packs, frames and writes one record with one write.  FormatError when it cannot be a record."""
        data = frame(self.seq + 1, pack(body))
        self.seq += 1
        self._waiting.append(data)
        self._write_waiting()

    def _write_waiting(self) -> None:
        while self._waiting and self.fd >= 0:
            data = self._waiting[0]
            try:
                n = os.write(self.fd, data)
                if n != len(data):  # part of a record: the disk is full; a network may have lost what was before it, which is no hole
                    self.offset = min(self.offset, os.fstat(self.fd).st_size - n)
                    os.ftruncate(self.fd, self.offset)
                    raise OSError(errno.ENOSPC, "short write")
            except InterruptedError:
                continue
            except OSError as x:
                self._note_failure(x)
                return
            self.offset += n
            self._is_dirty = True
            self._waiting.pop(0)

    def _note_failure(self, x: OSError) -> None:
        self.failure = "%s: %s; records wait in memory" % (self.path, x.strerror or x)
        while sum(map(len, self._waiting)) > _WAITING_MAX:
            self._waiting.pop(0)
            self.lost += 1

    def sync(self) -> None:
        """Asks the disk to keep what was written; for the writer's own interval."""
        if self._is_dirty and self.fd >= 0:
            self._is_dirty = False
            try:
                getattr(os, "fdatasync", os.fsync)(self.fd)
            except OSError as x:
                self._note_failure(x)

    def abandon(self) -> None:
        """Closes the file without writing: for a forked child, whose parent goes on writing."""
        self._waiting.clear()
        if self.fd >= 0:
            os.close(self.fd)
        self.fd = -1

    def close(self) -> None:
        """Writes what waits, syncs and gives the lock back."""
        if self.fd < 0:
            return
        self._write_waiting()
        self.lost += len(self._waiting)
        self._waiting.clear()
        self.sync()
        os.close(self.fd)
        self.fd = -1
