"""The Python writer in include/io/FORMATS.md is run verbatim, and the C side reads its bytes."""
import os
import re
import shutil
import struct
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import t  # noqa: E402
from t import ROOT, Skip, run, test  # noqa: E402

BUILD = os.path.abspath(os.environ.get("BUILD_DIR", os.path.join(ROOT, "build", "release")))

CHECKER = r"""
#include <stdio.h>
#include <math.h>
#include "io/runview.h"
int main(int argc, char **argv)
{
    struct runview *v;
    struct err e = {0};
    if (argc < 2 || runview_open(&v, argv[1], &e) < 0)
        return printf("%s\n", e.text), 1;
    const struct series *s = runview_series(v, "loss");
    const struct probe *p = runview_probe(v, -1);
    printf("%s %d records=%d gaps=%d invalid=%d repeats=%d loss=%d last=%g nan=%d probe=%d run=%d gate=%g piece=%s state=%d\n",
           v->name, v->layers, (int)v->records, (int)v->gaps, (int)v->invalid, (int)v->repeats, s ? (int)s->n : -1,
           s ? s->value[s->n - 1] : NAN, s ? (int)s->nonfinite : -1, p ? p->tokens : -1, p ? p->run[3] : -1,
           p && probe_cell(p, "gate") ? (double)probe_cell(p, "gate")->v[3] : NAN, p ? p->piece[1] : "",
           (int)v->state);
    runview_free(v);
    return 0;
}
"""
WANT = "mine 2 records=7 gaps=0 invalid=0 repeats=0 loss=4 last=0.25 nan=1 probe=2 run=1 gate=4 piece=\u00e9 state=4"


def module(name):
    try:
        return __import__(name)
    except ImportError:
        raise Skip("python3 has no %s" % name)


def writer():
    module("msgpack")
    text = open(os.path.join(ROOT, "include/io/FORMATS.md"), encoding="utf-8").read()
    code = re.search(r"```python\n(.*?)```", text, re.S).group(1)
    space = {}
    exec(compile(code, "FORMATS.md", "exec"), space)
    return space


def write_stream(space, path):
    log = space["Log"](path)
    log("head", 0, format=1, run="mine", layers=2)
    for step, loss in enumerate([2.0, float("nan"), 0.5, 0.25]):
        log("metric", step, loss=loss, tokens=step * 10)
    log("probe", 3, layers=2, ids=[1, 2], text=[b"a", "\u00e9".encode()], run=[[1, 0], [1, 1]],
        cell={"gate": struct.pack("<4f", 1, 2, 3, 4)})
    log("end", 3, status="done")


@test
def the_documented_writer_writes_whole_records():
    msgpack, space = module("msgpack"), writer()
    assert space["crc32c"](b"123456789") == 0xE3069283
    write_stream(space, "log.mp")
    unpacker, n = msgpack.Unpacker(max_ext_len=1 << 24, strict_map_key=False), 0
    unpacker.feed(open("log.mp", "rb").read())
    for n, ext in enumerate(unpacker, 1):
        crc, seq = struct.unpack(">IQ", ext.data[:12])
        assert ext.code == 0x44 and seq == n and crc == space["crc32c"](ext.data[4:]), n
        assert {"kind", "step", "time"} <= set(msgpack.unpackb(ext.data[12:])), n
    assert n == 7, n


def link_flags():
    need = ["msgpack", "msgpack-c"], ["jansson"], ["libxxhash"], ["yaml-0.1"], ["libpcre2-8"], ["libutf8proc"], ["libcrypto"]
    flags = []
    for names in need:
        for name in names:
            r = subprocess.run(["pkg-config", "--libs", name], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
            if r.returncode == 0:
                flags += r.stdout.decode().split()
                break
    return flags + ["-lm", "-pthread"]


@test
def c_code_reads_what_it_writes():
    lib, cc = os.path.join(BUILD, "libdepthscope.a"), os.environ.get("CC", "cc").split()
    if not os.path.exists(lib) or not shutil.which(cc[0]) or "san" in os.path.basename(BUILD):
        raise Skip("no plain library in %s to check with" % BUILD)
    write_stream(writer(), "log.mp")
    with open("check.c", "w") as f:
        f.write(CHECKER)
    built = subprocess.run(cc + ["-std=c11", "-I" + os.path.join(ROOT, "include"), "check.c", lib, "-o", "check"] + link_flags(),
                           stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if built.returncode:
        raise Skip("the checker does not link here: %s" % built.stdout.decode()[-200:])
    out = subprocess.run(["./check", "log.mp"], stdout=subprocess.PIPE).stdout.decode().strip()
    assert out == WANT, "\n  got  %s\n  want %s" % (out, WANT)


@test
def the_program_inspects_what_it_writes():
    write_stream(writer(), "log.mp")
    assert "mine" in run("inspect", "log.mp")


t.main(fresh=True)
