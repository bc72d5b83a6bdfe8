"""The Python writer in include/io/FORMATS.md is run verbatim, and the C side reads its bytes."""
import os, re, shutil, struct, subprocess, sys, tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.environ.get("BUILD_DIR", os.path.join(ROOT, "build", "release"))
passed = failed = skipped = 0

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


def check(what, ok, note=""):
    global passed, failed
    passed, failed = passed + bool(ok), failed + (not ok)
    if not ok:
        print("FAIL test_formats: %s %s" % (what, note))


def skip(why):
    global skipped
    skipped += 1
    print("SKIP %s" % why)


def writer():
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


def check_bytes(space, data):
    import msgpack
    check("crc32c of the standard test string", space["crc32c"](b"123456789") == 0xE3069283)
    unpacker, n = msgpack.Unpacker(max_ext_len=1 << 24, strict_map_key=False), 0
    unpacker.feed(data)
    for n, ext in enumerate(unpacker, 1):
        crc, seq = struct.unpack(">IQ", ext.data[:12])
        body = msgpack.unpackb(ext.data[12:])
        check("frame %d" % n, ext.code == 0x44 and seq == n and crc == space["crc32c"](ext.data[4:]))
        check("body %d" % n, {"kind", "step", "time"} <= set(body))
    check("number of frames", n == 7, str(n))


def link_flags():
    need = ["msgpack", "msgpack-c"], ["jansson"], ["libxxhash"], ["yaml-0.1"], ["libpcre2-8"], ["libutf8proc"]
    flags = []
    for names in need:
        for name in names:
            r = subprocess.run(["pkg-config", "--libs", name], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
            if r.returncode == 0:
                flags += r.stdout.decode().split()
                break
    return flags + ["-lm", "-pthread"]


def check_with_c(path, scratch):
    lib, cc = os.path.join(BUILD, "libdepthscope.a"), os.environ.get("CC", "cc").split()
    if not os.path.exists(lib) or not shutil.which(cc[0]) or "san" in os.path.basename(BUILD):
        return skip("no plain library in %s to check with" % BUILD)
    source, program = os.path.join(scratch, "check.c"), os.path.join(scratch, "check")
    with open(source, "w") as f:
        f.write(CHECKER)
    built = subprocess.run(cc + ["-std=c11", "-I" + os.path.join(ROOT, "include"), source, lib, "-o", program]
                           + link_flags(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if built.returncode:
        return skip("the checker does not link here: %s" % built.stdout.decode()[-200:])
    out = subprocess.run([program, path], stdout=subprocess.PIPE).stdout.decode().strip()
    check("what the C side reads", out == WANT, "\n  got  %s\n  want %s" % (out, WANT))


def check_with_program(path):
    program = os.path.join(ROOT, "depthscope")
    if not os.path.exists(program):
        return skip("no ./depthscope to inspect with")
    run = subprocess.run([program, "inspect", path], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    text = run.stdout.decode(errors="replace")
    if run.returncode == 2:
        return skip("./depthscope has no inspect yet: %s" % text.strip()[:100])
    check("depthscope inspect", run.returncode == 0 and "mine" in text, text[:300])


def main():
    try:
        import msgpack  # noqa: F401
    except ImportError:
        return skip("python3 has no msgpack")
    with tempfile.TemporaryDirectory() as scratch:
        path, space = os.path.join(scratch, "log.mp"), writer()
        write_stream(space, path)
        with open(path, "rb") as f:
            check_bytes(space, f.read())
        check_with_c(path, scratch)
        check_with_program(path)


main()
print("test_formats: %d passed, %d failed, %d skipped" % (passed, failed, skipped))
sys.exit(1 if failed else 0)
