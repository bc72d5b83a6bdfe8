"""Differential fuzzing: what the readers make of random and damaged bytes, beside what other libraries make of them.

Cases come from their number alone, so `$PYTHON part_differential.py case KIND NUMBER` shows one again.  The readers answer through
tests/pair/test_reference.c; the libraries (msgpack, safetensors, gguf with numpy, tokenizers, PyYAML) are those of $PYTHON, by
default of this interpreter; those it lacks are skipped.
"""
import json
import math
import os
import random
import re
import resource
import signal
import struct
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
SHARED = os.environ.get("DEPTHSCOPE_SHARED", os.path.join(ROOT, "..", "shared", "data"))
TITLE = "readers beside other libraries on random and damaged input: verdicts and values must be equal"
BATCH, FAILURES_MAX = 200, 20
CASE_S, MEMORY = 2, 4 << 30  # processor seconds of a library for one case, bytes of its process
NEEDS = {"record": "msgpack", "safetensors": "safetensors", "gguf": "gguf", "json": "json", "yaml": "yaml", "ids": "tokenizers"}
ALSO = {"gguf": "numpy", "safetensors": "numpy"}
BESIDE = {"record": "msgpack", "safetensors": "safetensors", "gguf": "gguf", "json": "Python's json", "yaml": "PyYAML", "ids": "tokenizers"}

# Differences that are meant: kind, who accepts ("we", "they"), a pattern of our message or of theirs, and why.  In the report they are
# counted by the last column.
MEANT = [
    ("json", "they", r"duplicate object key", "a key twice in an object is an error"),
    ("json", "they", r"\\u0000|NUL byte", "NUL in a string is an error where C strings are read"),
    ("json", "they", r"too big (negative )?integer", "integers are those of 64 bits"),
    ("json", "they", r"real number overflow", "numbers beyond a double are an error"),
    ("json", "they", r"invalid Unicode", "half of a surrogate pair is an error"),
    ("json", "they", r"nesting depth", "nesting is bounded"),
    ("yaml", "they", r"unsupported (anchor|alias|reference|second document)", "settings have no anchors, tags, aliases or ${}"),
    ("yaml", "they", r"while scanning a tag", "settings have no anchors, tags, aliases or ${}"),
    ("yaml", "they", r"plain scalar: found unexpected ':'", "in { } and [ ] a colon in an unquoted value is an error, as libyaml has it"),
    ("yaml", "they", r"duplicate key", "a key twice is an error"),
    ("yaml", "they", r"key must|invalid key", "keys are names of settings"),
    ("yaml", "they", r"list items must be plain values|top level must be a map", "a map of settings, lists of plain values"),
    ("yaml", "they", r"nesting depth|NUL byte", "nesting is bounded, values have no NUL"),
    ("yaml", "we", r"found character '\\t' that cannot start any token", "a tab is a blank between tokens, as in YAML but not in PyYAML"),
    ("safetensors", "they", r"\\u0000|NUL byte", "NUL in a name or in metadata is an error"),
    ("yaml", "we", r"(?s)while parsing a flow sequence.* but got '\?'", "'?' may stand within a plain scalar of a list, as in YAML 1.2 but not in PyYAML"),
    ("record", "we", r"invalid timestamp data|nanoseconds must be a non-negative", "the extension -1 is not read as a time"),
    ("safetensors", "they", r"rank \d+: must be at most", "tensors have at most 8 dimensions"),
    ("safetensors", "we", r"unknown variant", "tensors of an unknown type are listed"),
    ("gguf", "they", r"must be 1 to \d+ bytes of printable ASCII", "keys are printable ASCII, as the format says"),
    ("gguf", "they", r"boolean is \d+: must be 0 or 1", "a boolean is 0 or 1"),
    ("gguf", "they", r"exceeds? the (remaining|file's)", "what is longer than the file is an error; the library gives what there is of it"),
    ("gguf", "they", r"general.alignment = .* must be", "alignments are powers of two of at least 8"),
    ("gguf", "they", r"tensor .* overlaps|must be a multiple of the alignment", "tensors are aligned and do not overlap"),
    ("gguf", "we", r"codec can't decode byte", "text that is not UTF-8 is taken, and shown with its bytes escaped"),
    ("gguf", "they", r"must be 1 to 64 bytes without NUL", "names of tensors have 1 to 64 bytes and no NUL, as the format says"),
]


def meant(kind, who, text):
    for k, w, pattern, why in MEANT:
        if k == kind and w == who and re.search(pattern, text):
            return why
    return None


# ---- one notation for values, as in test_reference.c ----

def real(x):
    return "rnan" if math.isnan(x) else "r%016x" % struct.unpack("<Q", struct.pack("<d", x))[0]


def text_of(s):
    return "s" + (s if isinstance(s, bytes) else s.encode("utf-8", "surrogateescape")).hex()


class Pairs(list):
    """The members of a map in their order."""


def say(x):
    if x is None:
        return "n"
    if isinstance(x, bool):
        return "t" if x else "f"
    if isinstance(x, int):
        return "i%d" % x if -2**63 <= x < 2**63 else real(float(x))
    if isinstance(x, float):
        return real(x)
    if isinstance(x, str):
        return text_of(x)
    if isinstance(x, (bytes, bytearray, memoryview)):
        return "b" + bytes(x).hex()
    if isinstance(x, Pairs):
        return "{%s}" % "".join("%s %s " % (say(k), say(v)) for k, v in x)
    if isinstance(x, list):
        return "[%s]" % "".join(say(v) + " " for v in x)
    return x.said


class Said:
    def __init__(self, text):
        self.said = text


# ---- damage ----

def damage(r, b):
    b = bytearray(b)
    for _ in range(r.choice((1, 1, 1, 2, 3, 8))):
        at = r.randrange(len(b) + 1)
        what = r.randrange(6)
        if what == 0 and at < len(b):
            b[at] ^= 1 << r.randrange(8)
        elif what == 1 and at < len(b):
            b[at] = r.choice((0, 1, 0x7F, 0x80, 0xC1, 0xFF, r.randrange(256)))
        elif what == 2:
            b[at:at] = bytes(r.randrange(256) for _ in range(r.randrange(1, 4)))
        elif what == 3:
            del b[at:at + r.randrange(1, 5)]
        elif what == 4:
            del b[at:]
        elif len(b) > 1:
            frm = r.randrange(len(b))
            b[at:at] = b[frm:frm + r.randrange(1, 9)]
    return bytes(b)


RANGES = [(0x20, 0x7E)] * 6 + [(0x0, 0x1F), (0x80, 0xFF), (0x100, 0x24F), (0x300, 0x36F), (0x370, 0x5FF), (0x600, 0x6FF), (0x900, 0x97F),
    (0xE00, 0xE7F),
          (0x1100, 0x11FF), (0x2000, 0x206F), (0x2100, 0x214F), (0x3000, 0x30FF), (0x4E00, 0x9FFF), (0xAC00, 0xD7A3), (0xFB00,
              0xFB4F), (0xFE00, 0xFE0F),
          (0xFF00, 0xFFEF), (0x10000, 0x100FF), (0x1D400, 0x1D7FF), (0x1F300, 0x1FAFF), (0xE0000, 0xE007F), (0x10FF00, 0x10FFFF)]


def letters(r, most):
    lo, hi = r.choice(RANGES)
    return "".join(chr(r.randint(lo, hi)) for _ in range(r.randrange(most + 1)))


# ---- MessagePack ----

def pack(r, depth):
    kind = r.randrange(14 if depth > 0 else 9)
    if kind < 2:
        return r.choice((b"\xc0", b"\xc2", b"\xc3", b"\xc1" if r.random() < 0.02 else b"\xc0"))
    if kind < 4:
        n = r.choice((1, 2, 4, 8))
        tag = {1: 0xCC, 2: 0xCD, 4: 0xCE, 8: 0xCF}[n] + r.choice((0, 4))
        return bytes([tag]) + r.choice((r.randbytes(n), b"\x80" + bytes(n - 1), b"\xff" * n)) if r.random() < 0.6 else bytes([r.choice((0,
            0x7F, 0xE0, 0xFF, 5))])
    if kind == 4:
        return b"\xcb" + r.choice((r.randbytes(8), struct.pack(">d", r.gauss(0, 100)), b"\x7f\xf0" + bytes(6), b"\xff\xf8" + bytes(6)))
    if kind == 5:
        return b"\xca" + r.choice((r.randbytes(4), struct.pack(">f", r.gauss(0, 100))))
    if kind < 8:
        body = letters(r, 12).encode() if r.random() < 0.8 else r.randbytes(r.randrange(6))
        width = r.choice((0, 1, 2, 4))
        head = bytes([0xA0 | len(body)]) if width == 0 and len(body) < 32 else None
        forms = {1: (0xD9, 0xC4), 2: (0xDA, 0xC5), 4: (0xDB, 0xC6)}[width or 1]
        return (head or bytes([r.choice(forms)]) + len(body).to_bytes(width or 1, "big")) + body
    if kind == 8:
        n = r.choice((1, 2, 4, 8, 16))
        fixed = bytes([{1: 0xD4, 2: 0xD5, 4: 0xD6, 8: 0xD7, 16: 0xD8}[n]])
        return (fixed if r.random() < 0.5 else bytes([0xC7, n])) + bytes([r.randrange(128)]) + r.randbytes(n)
    n, is_map = r.randrange(5), kind < 11
    width = r.choice((0, 2, 4))
    head = bytes([(0x80 if is_map else 0x90) | n]) if width == 0 else \
        bytes([(0xDE if is_map else 0xDC) + (width == 4)]) + n.to_bytes(width, "big")
    deep = depth - 1 if r.random() < 0.98 else 20
    return head + b"".join(pack(r, min(deep, 20)) for _ in range(2 * n if is_map else n))


def make_record(r):
    if r.random() < 0.02:
        n = r.randrange(12, 20)
        return b"\x91" * n + b"\x01"
    b = b"\x81\xa1k" + pack(r, 4) if r.random() < 0.5 else pack(r, 4)
    return damage(r, b) if r.random() < 0.5 else b


def depth_of(x):
    if isinstance(x, Pairs):
        return 1 + max([depth_of(v) for kv in x for v in kv], default=0)
    return 1 + max(map(depth_of, x), default=0) if isinstance(x, list) else 0


def read_record(b):
    import msgpack

    def ext(code, data):
        return Said("x%02x%s" % (code & 255, bytes(data).hex()))
    most = 2**31 - 1
    u = msgpack.Unpacker(raw=False, strict_map_key=False, unicode_errors="surrogateescape", object_pairs_hook=Pairs, ext_hook=ext,
        timestamp=0,
                         max_buffer_size=0, max_str_len=most, max_bin_len=most, max_array_len=most, max_map_len=most, max_ext_len=most)
    u.feed(b)
    x = u.unpack()
    if depth_of(x) > 16:
        raise Meant("-", "records are at most 16 containers deep")
    try:
        return "%d %s" % (u.tell(), say(x))
    except AttributeError:
        raise Meant("+", "the extension -1 is not read as a time") from None


class Endless(Exception):
    """The library neither accepts nor rejects a case within CASE_S."""


class Meant(Exception):
    """A difference that is meant if our verdict is this one, "+" or "-"; "" both."""

    def __init__(self, verdict, why):
        super().__init__(why)
        self.verdict = verdict


# ---- JSON ----

def write_json(r, depth):
    kind = r.randrange(12 if depth > 0 else 8)
    space = r.choice(("", "", "", " ", "\n", "\t\r "))
    if kind < 2:
        odd = r.random() < 0.05
        return space + r.choice(("nul", "True", "NaN", "Infinity", "-Infinity") if odd else ("null", "true", "false"))
    if kind < 5:
        number = r.choice(("%d" % r.randint(-2**r.randrange(1, 67), 2**r.randrange(1, 67)), repr(r.gauss(0, 10**r.randint(-20, 20))),
                           "-0", "0", "1e%d" % r.randint(-330, 330), "-0.0",
                           "%d.%dE%+d" % (r.randrange(1000), r.randrange(1000), r.randint(-30, 30))))
        if r.random() < 0.05:
            number = r.choice(("00", "1.", ".5", "+1", "1e", "-", "0x1", "1e400", "-1e999", "9" * 25))
        return space + number
    if kind < 8:
        return space + write_text(r)
    if kind < 10:
        return space + "[" + ",".join(write_json(r, depth - 1) for _ in range(r.randrange(5))) + space + "]"
    return space + "{" + ",".join("%s%s:%s" % (write_text(r), space, write_json(r, depth - 1)) for _ in range(r.randrange(5))) + space + "}"


def write_text(r):
    s = json.dumps(letters(r, 8), ensure_ascii=r.random() < 0.5)
    if r.random() < 0.15:
        s = s[:-1] + r.choice(("\\u0041", "\\ud83d\\ude00", "\\ud800", "\\udc00", "\\u0000", "\\/", "\\x", "\\u12", "\x01", "\x7f",
            "\\b\\f\\n\\r\\t")) + '"'
    return s


def make_json(r):
    if r.random() < 0.01:
        n = r.randrange(250, 262)
        return b"[" * n + b"]" * n
    b = write_json(r, 4).encode("utf-8", "surrogatepass")
    return damage(r, b) if r.random() < 0.4 else b


def no_constant(text):
    raise ValueError(text)


def read_json(b):
    return say(json.loads(b.decode("utf-8"), parse_constant=no_constant, object_pairs_hook=Pairs))


# ---- YAML ----

WORDS = ["lr", "steps", "model", "method", "train", "a", "b", "keep-every", "x_1", "extends"]


USUAL = ["1", "1e-4", "true", "null", "~", "a b", "' a '", "[1, 2]", "{a: 1, b: {c: 2}}", "'it''s'", "x-y", "é", "#"]
STRANGE = ["no", "''", '"\\u00e9\\n"', "a: b", "[]", "['a', \"b\", c]", "{}", "# c", "-1", "a#b", "a #b", "&x 1", "*x", "!t 1", "${a}",
           "|\n    text\n    more", ">-\n    folded\n    text", "\t", "- x", "? y", "%", "@a", "1_000", "0x1f", ".inf", "[a, [b]]",
           "[{a: 1}]", "''''", '"\\x41"', '"\\q"', '"a\\\n  b"', "[a,\n b]", "a\n  b"]


def write_scalar(r):
    return r.choice(USUAL) if r.random() < 0.9 else r.choice((*STRANGE, letters(r, 6)))


def write_map(r, indent):
    lines = []
    inner = indent + r.choice((1, 2, 4))
    for _ in range(r.randrange(1, 5)):
        key = r.choice(WORDS) + str(r.randrange(99)) if r.random() < 0.96 else r.choice(("'q'", '"k"', "", "a.b", "1", "<<", letters(r, 4)))
        if r.random() < 0.3 and indent < 8:
            lines += ["%s%s:%s" % (" " * indent, key, r.choice(("", "", "", "", "", " # c", " &a"))), write_map(r, inner)]
        else:
            blank = r.choice((" ", " ", "  ")) if r.random() < 0.97 else ""
            lines.append("%s%s:%s%s%s" % (" " * indent, key, blank, write_scalar(r), r.choice(("", "", " # c"))))
        if r.random() < 0.05:
            lines.append(r.choice(("", "# comment", " ", "\t") if r.random() < 0.7 else ("---", "...", "%YAML 1.1")))
    return "\n".join(lines)


def make_yaml(r):
    b = (write_map(r, 0) + r.choice(("\n", "", "\r\n"))).encode("utf-8", "surrogatepass")
    return damage(r, b) if r.random() < 0.3 else b


def read_yaml(b):
    import yaml
    out = Pairs()

    def scalar(n):
        return "" if n.style is None and n.value in ("~", "null") else n.value

    def walk(node, prefix):
        for k, v in node.value:
            key = prefix + k.value
            if isinstance(v, yaml.MappingNode):
                walk(v, key + ".")
            elif isinstance(v, yaml.SequenceNode):
                out.append((key, "[%s]" % ",".join(scalar(x) for x in v.value)))
            else:
                out.append((key, scalar(v)))
    for node in yaml.compose_all(b.decode("utf-8"), Loader=yaml.SafeLoader):
        if isinstance(node, yaml.MappingNode):
            try:
                walk(node, "")
            except (AttributeError, TypeError):
                out.append(("", "a key that is not a scalar"))
    return say(Pairs(out))


# ---- safetensors ----

BITS = {"F64": 64, "F32": 32, "F16": 16, "BF16": 16, "I64": 64, "I32": 32, "I16": 16, "I8": 8, "U8": 8, "BOOL": 8, "U16": 16, "U32": 32,
    "U64": 64, "F8_E4M3": 8, "F8_E5M2": 8,
        "C64": 64}


def make_safetensors(r):
    head, at = {}, 0
    if r.random() < 0.5:
        head["__metadata__"] = {letters(r, 5): letters(r, 5) for _ in range(r.randrange(3))}
    for i in range(r.randrange(5)):
        dtype, shape = r.choice(list(BITS)), [r.randrange(4) for _ in range(r.randrange(4))]
        n = math.prod(shape) * BITS[dtype] // 8
        head[r.choice((letters(r, 6), "w%d" % i))] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + n]}
        at += n
    data = r.randbytes(at)
    if r.random() < 0.4 and head:
        t = head[r.choice(list(head))]
        if "dtype" in t:
            what = r.randrange(7)
            if what == 0:
                t["data_offsets"] = [t["data_offsets"][0] + r.choice((-1, 0, 1)), t["data_offsets"][1] + r.choice((-1, 0, 1))]
            elif what == 1:
                t["dtype"] = r.choice(("f32", "F31", "F4", "", 3, None, "F8_E8M0", "F6_E2M3"))
            elif what == 2:
                t["shape"] = r.choice(([-1], [2**63], [2**32, 2**32], [1.0], "1", [1] * 9, None, [0, 2**62]))
            elif what == 3:
                del t[r.choice(list(t))]
            elif what == 4:
                t["more"] = 1
            elif what == 5:
                t["data_offsets"] = r.choice(([0], [0, 0, 0], ["0", "1"], [2**64, 2**64], {}, [1, 0]))
            else:
                data += b"\0"
        else:
            head["__metadata__"] = r.choice(([], {"a": 1}, "x", None, {"a": {}}))
    text = json.dumps(head, ensure_ascii=r.random() < 0.5).encode("utf-8", "surrogatepass")
    if r.random() < 0.2:
        text = damage(r, text)
    text += b" " * r.choice((0, 0, -len(text) % 8, 3))
    b = struct.pack("<Q", max(0, len(text) + (r.choice((-1, 1, 2**40)) if r.random() < 0.05 else 0))) + text + data
    return damage(r, b) if r.random() < 0.2 else b


def floats(dtype, b):
    if dtype in ("F64", "F32", "F16"):
        size = {"F64": 8, "F32": 4, "F16": 2}[dtype]
        return list(struct.unpack("<%d%s" % (len(b) // size, {8: "d", 4: "f", 2: "e"}[size]), b))
    if dtype == "BF16":
        return [struct.unpack("<f", b"\0\0" + b[i:i + 2])[0] for i in range(0, len(b), 2)]
    return []


def read_safetensors(b):
    import safetensors
    out = Pairs()
    for name, t in safetensors.deserialize(b):
        data = bytes(t["data"])
        out.append((name, [t["dtype"], list(t["shape"]), data, floats(t["dtype"], data)]))
    return say(out)


# ---- GGUF ----

SCALARS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
BLOCKS = {0: (1, 4), 1: (1, 2), 2: (32, 18), 3: (32, 20), 6: (32, 22), 7: (32, 24), 8: (32, 34), 10: (256, 84), 11: (256, 110), 12: (256,
    144), 13: (256, 176), 14: (256, 210),
          20: (32, 18), 23: (256, 136), 30: (1, 2)}


def gguf_text(b):
    return struct.pack("<Q", len(b)) + b


def gguf_scalar(r, kind):
    if kind == 8:
        return gguf_text(letters(r, 8).encode())
    if kind in (6, 12):
        return struct.pack(SCALARS[kind], r.gauss(0, 100))
    return r.randbytes(struct.calcsize(SCALARS[kind])) if kind != 7 else bytes([r.randrange(2)])


def make_gguf(r):
    metas, tensors, data, align = [], [], b"", 32
    if r.random() < 0.3:
        align = r.choice((8, 16, 64, 32))
        metas.append(gguf_text(b"general.alignment") + struct.pack("<II", 4, align))
    for i in range(r.randrange(5)):
        kind = r.choice(list(SCALARS) + [8, 8, 9, 9, 9])
        b = gguf_text(("k%d.%s" % (i, letters(r, 4) if r.random() < 0.05 else "x")).encode()) + struct.pack("<I", kind)
        if kind == 9:
            item, n = r.choice(list(SCALARS) + [8, 8]), r.randrange(6)
            b += struct.pack("<IQ", item, n) + b"".join(gguf_scalar(r, item) for _ in range(n))
        else:
            b += gguf_scalar(r, kind)
        metas.append(b)
    for i in range(r.randrange(4)):
        kind = r.choice(list(BLOCKS))
        items, size = BLOCKS[kind]
        shape = [items * r.randrange(1, 3)] + [r.randrange(1, 4) for _ in range(r.randrange(3))]
        tensors.append(gguf_text(("t%d%s" % (i, letters(r, 3))).encode()) + struct.pack("<I",
            len(shape)) + struct.pack("<%dQ" % len(shape), *shape) +
                       struct.pack("<IQ", kind, len(data)))
        data += sane_blocks(r, kind, math.prod(shape) // items)
        data += bytes(-len(data) % align)
    b = b"GGUF" + struct.pack("<IQQ", r.choice((2, 3, 3, 3)), len(tensors), len(metas)) + b"".join(metas) + b"".join(tensors)
    b += bytes(-len(b) % align) + data
    return damage(r, b[:r.choice((24, 200, len(b)))]) + b[200:] if r.random() < 0.3 else b


def sane_blocks(r, kind, n):
    """Blocks whose scales are small numbers: what a NaN does in them is not compared."""
    size = BLOCKS[kind][1]
    scales = {2: (0,), 3: (0, 2), 6: (0,), 7: (0, 2), 8: (0,), 10: (80, 82), 11: (108,), 12: (0, 2), 13: (0, 2), 14: (208,), 20: (0,),
        23: (0,)}.get(kind)
    if scales is None:
        f = {0: "<f", 1: "<e"}.get(kind)
        return b"".join(struct.pack(f, r.gauss(0, 1)) if f else struct.pack("<f", r.gauss(0, 1))[2:] for _ in range(n))
    out = b""
    for _ in range(n):
        block = bytearray(r.randbytes(size))
        for at in scales:
            block[at:at + 2] = struct.pack("<e", r.gauss(0, 1))
        out += bytes(block)
    return out


def read_gguf(b):
    import gguf
    import numpy
    with tempfile.NamedTemporaryFile(suffix=".gguf") as f:
        f.write(b)
        f.flush()
        g = gguf.GGUFReader(f.name)
        if g.byte_order != "I":
            raise Meant("-", "files of big-endian machines are refused")
        version = int(g.fields["GGUF.version"].parts[-1][0])
        metas, tensors = Pairs(), Pairs()
        for key, x in g.fields.items():
            if key.startswith("GGUF."):
                continue
            kinds = [int(k) for k in x.types]
            item = kinds[-1] if kinds else 9
            if len(kinds) > 2 or kinds == [9]:
                raise Meant("", "arrays of arrays, and empty ones, are compared by their verdict alone")
            values = [bytes(x.parts[i]) for i in x.data] if item == 8 else [x.parts[i][0].item() for i in x.data]
            values = [Said(text_of(v)) for v in values] if item == 8 else [int(v) if item == 7 else v for v in values]
            metas.append((key, [kinds[0], item, values]))
        for t in g.tensors:
            raw = t.data.tobytes()
            shape = [int(n) for n in t.shape][::-1]
            values = []
            if int(t.tensor_type) in BLOCKS and math.prod(shape) <= 4096:
                with numpy.errstate(all="ignore"):
                    values = [float(v) for v in gguf.quants.dequantize(t.data, t.tensor_type).reshape(-1)]
            tensors.append((t.name, [int(t.tensor_type), shape, raw, values]))
    return say([version, metas, tensors])


# ---- tokenizers ----

def tokenizer_files():
    found = []
    for top in (os.path.join(SHARED, "tokenizers"), os.path.join(ROOT, "tests", "golden", "tokenizers")):
        for folder, _, files in os.walk(top):
            found += [os.path.join(folder, f) for f in files if f.endswith(".json") and is_tokenizer(os.path.join(folder, f))]
    return sorted(found)


def is_tokenizer(path):
    try:
        with open(path, encoding="utf-8") as f:
            x = json.load(f)
    except ValueError:
        return False
    return isinstance(x, dict) and isinstance(x.get("model"), dict) and "pre_tokenizer" in x


SPECIAL = ["<|endoftext|>", "<s>", "</s>", "<unk>", "<|im_start|>", "<pad>", "[CLS]", "[MASK]"]


PIECES = ["don't I'LL we've", "the quick brown fox", "\t", "\r\n", "\u00a0", "\u3000", "e\u0301", "\U0001f469\u200d\U0001f4bb",
          "\u0130\u1e9e", "\ufeff", "...", "!?"]


def make_text(r):
    return "".join(r.choice((letters(r, 8), letters(r, 3), r.choice(SPECIAL), r.choice(PIECES), " " * r.randrange(4), "\n" * r.randrange(3),
                             "%d" % r.randrange(10**r.randrange(1, 8)), "a" * r.randrange(20)))
                   for _ in range(r.randrange(1, 12))).encode()


# ---- comparing ----

def parse(text):
    """The notation as lists; a map is a list of its keys and values."""
    stack = [[]]
    for x in text.replace("{", "{ ").replace("[", "[ ").split():
        if x in ("{", "["):
            stack.append([])
        elif x in ("}", "]"):
            last = stack.pop()
            stack[-1].append(last)
        else:
            stack[-1].append(x)
    return stack[0]


def near(a, b):
    x, y = (struct.unpack(">d", bytes.fromhex(v[1:]))[0] if v != "rnan" else math.nan for v in (a, b))
    return a == b or (math.isnan(x) and math.isnan(y)) or abs(x - y) <= 1e-6 * max(abs(x), abs(y))


def same(kind, ours, theirs):
    if kind in ("safetensors", "yaml"):  # maps in any order
        pairs = [sorted(zip(m[::2], m[1::2]), key=lambda kv: kv[0]) for m in (parse(ours)[0], parse(theirs)[0])]
        return pairs[0] == pairs[1]
    if kind == "gguf":  # dequantised values within rounding, all else equal
        a, b = parse(ours)[0], parse(theirs)[0]
        if a[:2] != b[:2] or len(a[2]) != len(b[2]):
            return False
        for x, y in zip(a[2], b[2]):
            if isinstance(x, str):
                if x != y:
                    return False
            elif x[:3] != y[:3] or len(x[3]) != len(y[3]) or not all(map(near, x[3], y[3])):
                return False
        return True
    return ours == theirs


MAKE = {"record": make_record, "json": make_json, "yaml": make_yaml, "safetensors": make_safetensors, "gguf": make_gguf, "ids": make_text}
READ = {"record": read_record, "json": read_json, "yaml": read_yaml, "safetensors": read_safetensors, "gguf": read_gguf}


def make(kind, number):
    return MAKE[kind](random.Random("%s %d" % (kind, number)))


def helper():
    return os.path.join(ROOT, os.environ.get("BUILD_DIR", "build/release"), "tests", "pair", "test_reference")


def ask(cases):
    """Our answers to (kind, bytes)."""
    with tempfile.TemporaryDirectory() as d:
        with open(os.path.join(d, "in"), "wb") as f:
            for kind, b in cases:
                f.write(b"%s %d\n%s" % (kind.encode(), len(b), b))
        env = dict(os.environ, REFERENCE_IN=os.path.join(d, "in"), REFERENCE_OUT=os.path.join(d, "out"))
        r = subprocess.run([helper()], capture_output=True, text=True, errors="replace", env=env, cwd=ROOT)
        try:
            with open(os.path.join(d, "out"), encoding="utf-8", errors="replace", newline="\n") as f:
                lines = f.read().split("\n")[:-1]
        except FileNotFoundError:
            lines = []
        if len(lines) != len(cases):
            raise RuntimeError("test_reference: %d answers to %d cases: %s" % (len(lines), len(cases), (r.stdout + r.stderr)[-300:]))
        return lines


def answer_of(kind, case, tokenizer):
    """Theirs: "+ VALUES" or "- CAUSE"; or a Meant."""
    signal.setitimer(signal.ITIMER_VIRTUAL, CASE_S)
    try:
        if kind == "ids":
            return "+ " + say(tokenizer.encode(case.decode(), add_special_tokens=False).ids)
        return "+ " + READ[kind](case)
    except Meant as x:
        return x
    except (Endless, MemoryError):
        return Meant("-", "counts beyond the file, for which the library takes time or memory without end")
    except RecursionError:
        raise
    except Exception as x:
        return "- %s: %s" % (type(x).__name__, str(x).replace("\n", " ")[:200])
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)


def endless(*_):
    raise Endless


def judge(kind, ours, theirs):
    """"accepted", "rejected", why they differ on purpose, or None: a failure."""
    if isinstance(theirs, Meant):
        return str(theirs) if theirs.verdict in ("", ours[0]) else None
    if ours[0] == "+" and theirs[0] == "+":
        return "accepted" if same(kind, ours[2:], theirs[2:]) else None
    if ours[0] == "-" and theirs[0] == "-":
        return "rejected"
    return meant(kind, "they" if ours[0] == "-" else "we", ours if ours[0] == "-" else theirs)


def theirs_of(path):
    """None where this version of the library does not read the file."""
    import tokenizers
    try:
        return tokenizers.Tokenizer.from_file(path)
    except Exception:  # the library raises nothing more exact
        return None


def batch(kind, numbers, files):
    """(number, verdict, case, ours, theirs) of each."""
    numbers, tokenizer, head = list(numbers), None, []
    if kind == "ids":
        path = files[numbers[0] // BATCH % len(files)]
        tokenizer, head = theirs_of(path), [("tokenizer", path.encode())]
        if tokenizer is None:
            return
    cases = [make(kind, n) for n in numbers]
    lines = ask(head + [(kind, c) for c in cases])
    if head and lines[0][0] != "+":
        raise RuntimeError("%s: %s" % (path, lines[0]))
    for n, c, ours in zip(numbers, cases, lines[len(head):]):
        theirs = answer_of(kind, c, tokenizer)
        yield n, judge(kind, ours, theirs), c, ours, theirs


def work(kind, first, seconds, again):
    """In $PYTHON: compares until the time is up, whole batches; what it found as JSON."""
    found = {"next": first, "accepted": 0, "rejected": 0, "meant": {}, "failed": [], "again": []}
    signal.signal(signal.SIGVTALRM, endless)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    files = tokenizer_files() if kind == "ids" else []
    if kind == "ids" and not any(map(theirs_of, files)):
        found["why"] = "no tokenizer.json that the library reads in %s" % SHARED
        return found
    found["unread"] = [os.path.relpath(f, ROOT) for f in files if theirs_of(f) is None]
    for n in again:
        for number, verdict, *_ in batch(kind, [n], files):
            if verdict is None:
                found["again"].append(number)
    end = time.monotonic() + seconds
    while time.monotonic() < end and len(found["failed"]) < FAILURES_MAX:
        for n, verdict, _, ours, theirs in batch(kind, range(found["next"], found["next"] + BATCH), files):
            if verdict is None:
                found["failed"].append([n, "ours: %s; theirs: %s" % (ours[:150], str(theirs)[:150])])
            elif verdict in ("accepted", "rejected"):
                found[verdict] += 1
            else:
                found["meant"][verdict] = found["meant"].get(verdict, 0) + 1
        found["next"] += BATCH
    return found


# ---- the part ----

def python_has(python, module):
    return subprocess.run([python, "-c", "import " + module], capture_output=True).returncode == 0


def run(state, budget):
    python = os.environ.get("PYTHON") or sys.executable
    if not os.path.exists(helper()):
        budget.skipped("differential: %s not built" % os.path.relpath(helper(), ROOT))
        return
    kinds = []
    for kind in MAKE:
        lacks = [m for m in (NEEDS[kind], ALSO.get(kind)) if m and not python_has(python, m)]
        if lacks:
            budget.skipped("%s: %s is not in %s; set PYTHON" % (kind, lacks[0], os.path.basename(python)))
        else:
            kinds.append(kind)
    for i, kind in enumerate(sorted(kinds, key=lambda k: state.get(k, {}).get("seconds", 0))):
        s = state.setdefault(kind, {"next": 0, "accepted": 0, "rejected": 0, "meant": {}, "open": [], "seconds": 0})
        share = budget.left() / (len(kinds) - i)
        if share <= 0:
            return
        began = time.monotonic()
        command = [python, os.path.abspath(__file__), "work", kind, str(s["next"]), "%.1f" % share, json.dumps([n for n, _ in s["open"]])]
        r = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
        if r.returncode != 0:
            budget.failed("%s from case %d: %s" % (kind, s["next"],
                (r.stderr.strip().splitlines() or ["status %d" % r.returncode])[-1][:300]))
            continue
        found = json.loads(r.stdout)
        if "why" in found:
            budget.skipped("%s: %s" % (kind, found["why"]))
            continue
        for path in found["unread"]:
            budget.skipped("%s: this version of the library does not read %s" % (kind, path))
        for key in ("accepted", "rejected"):
            s[key] += found[key]
        for why, n in found["meant"].items():
            s["meant"][why] = s["meant"].get(why, 0) + n
        budget.passed(found["accepted"] + found["rejected"] + sum(found["meant"].values()))
        s["open"] = [x for x in s["open"] if x[0] in found["again"]] + found["failed"]
        s["open"] = s["open"][:FAILURES_MAX]
        for n, text in s["open"]:
            budget.failed("%s case %d: %s" % (kind, n, text))
        s["next"] = found["next"]
        s["seconds"] = round(s["seconds"] + time.monotonic() - began, 1)


def page(state):
    lines = ["Half of the cases are damaged. Both accept a case with equal values (numbers to the last bit, dequantised GGUF blocks within "
             "1e-6), or both reject it, or the difference is one that is meant.", "",
             "| reader | beside | cases | both accept | both reject | meant differences | open |", "|---|---|---|---|---|---|---|"]
    names = {"ids": "tokenizer.json"}
    for kind in MAKE:
        s = state.get(kind)
        if s:
            lines.append("| %s | %s | %d | %d | %d | %d | %d |" % (names.get(kind, kind), BESIDE[kind], s["next"], s["accepted"],
                s["rejected"], sum(s["meant"].values()), len(s["open"])))
        else:
            lines.append("| %s | %s | 0 | - | - | - | - |" % (names.get(kind, kind), BESIDE[kind]))
    why = ["- %s: %s (%d)" % (names.get(k, k), w, n) for k in MAKE if k in state for w, n in sorted(state[k]["meant"].items())]
    if why:
        lines += ["", "Differences that are meant:", "", *why]
    return "\n".join(lines)


def main():
    if sys.argv[1:2] == ["work"]:
        print(json.dumps(work(sys.argv[2], int(sys.argv[3]), float(sys.argv[4]), json.loads(sys.argv[5]))))
    elif sys.argv[1:2] == ["case"]:
        files = tokenizer_files()
        for _, verdict, case, ours, theirs in batch(sys.argv[2], [int(sys.argv[3])], files):
            print("%r\nours:   %s\ntheirs: %s\n%s" % (case, ours, theirs, verdict or "DIFFERENT"))
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
