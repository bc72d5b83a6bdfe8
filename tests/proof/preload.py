"""Builds the libraries that are preloaded into the program: the C files here."""
import os
import shutil
import subprocess

import t

HERE = os.path.dirname(os.path.abspath(__file__))
BUILT = os.path.join(t.ROOT, "build", "proof")


def build(name):
    """The path of NAME.c as a library; t.Skip says why there is none."""
    source, out = os.path.join(HERE, name + ".c"), os.path.join(BUILT, name + ".so")
    if t.SANITIZED:
        raise t.Skip("nothing is preloaded into a sanitised program")
    with open(t.PROGRAM, "rb") as f:
        if b"/ld-" not in f.read(4096):
            raise t.Skip("nothing can be preloaded into a program without a dynamic loader")
    if os.path.exists(out) and os.path.getmtime(out) >= os.path.getmtime(source):
        return out
    cc = shutil.which(os.environ.get("CC") or "cc") or shutil.which("cc")
    if not cc:
        raise t.Skip("no C compiler for %s.c" % name)
    os.makedirs(BUILT, exist_ok=True)
    made = subprocess.run([cc, "-std=c11", "-O1", "-Wall", "-Wextra", "-shared", "-fPIC", "-pthread", "-o", out, source, "-ldl"],
                          capture_output=True, text=True)
    if made.returncode != 0:
        raise AssertionError("%s.c does not compile: %s" % (name, made.stderr))
    return out
