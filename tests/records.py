"""A writer of the record stream from its description (include/io/FORMATS.md) alone, for tests that need a log."""
import os
import struct
import time

TABLE = []
for n in range(256):
    for _ in range(8):
        n = (n >> 1) ^ (0x82F63B78 if n & 1 else 0)
    TABLE.append(n)


def crc32c(data):
    crc = 0xFFFFFFFF
    for b in data:
        crc = TABLE[(crc ^ b) & 255] ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF


def pack(x):
    if isinstance(x, bool):
        return b"\xc3" if x else b"\xc2"
    if isinstance(x, int):
        return b"\xd3" + struct.pack(">q", x)
    if isinstance(x, float):
        return b"\xcb" + struct.pack(">d", x)
    if isinstance(x, str):
        raw = x.encode()
        return b"\xdb" + struct.pack(">I", len(raw)) + raw
    if isinstance(x, bytes):
        return b"\xc6" + struct.pack(">I", len(x)) + x
    if isinstance(x, (list, tuple)):
        return b"\xdd" + struct.pack(">I", len(x)) + b"".join(map(pack, x))
    return b"\xdf" + struct.pack(">I", len(x)) + b"".join(pack(k) + pack(v) for k, v in x.items())


def frame(seq, body):
    data = struct.pack(">Q", seq) + body
    return b"\xc9" + struct.pack(">IB", len(data) + 4, 0x44) + struct.pack(">I", crc32c(data)) + data


class Log:
    """put(kind, step, key=value ...) appends a record; `time` is now unless given.  RUN/log.mp makes the directory."""
    def __init__(self, path):
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
        self.file, self.seq = open(path, "ab", buffering=0), 1

    def put(self, kind, step, **keys):
        self.file.write(frame(self.seq, pack({"kind": kind, "step": step, "time": time.time(), **keys})))
        self.seq += 1
