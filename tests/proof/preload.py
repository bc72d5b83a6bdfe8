"""Builds the C files here: libraries that are preloaded into the program, and programs of their own."""
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
    return compiled(source, out, ["-shared", "-fPIC", "-pthread"], ["-ldl"])


def build_program(name, package):
    """The path of NAME.c as a program that needs a package of pkg-config."""
    if not shutil.which("pkg-config"):
        raise t.Skip("%s: no pkg-config" % name)
    p = subprocess.run(["pkg-config", "--cflags", "--libs", package], capture_output=True, text=True)
    if p.returncode != 0:
        raise t.Skip("%s: no package %s of pkg-config" % (name, package))
    return compiled(os.path.join(HERE, name + ".c"), os.path.join(BUILT, name), [], p.stdout.split())


def compiled(source, out, before, after):
    name = os.path.basename(source)
    if os.path.exists(out) and os.path.getmtime(out) >= os.path.getmtime(source):
        return out
    cc = shutil.which(os.environ.get("CC") or "cc") or shutil.which("cc")
    if not cc:
        raise t.Skip("no C compiler for %s" % name)
    os.makedirs(BUILT, exist_ok=True)
    made = subprocess.run([cc, "-std=c11", "-O1", "-Wall", "-Wextra", *before, "-o", out, source, *after], capture_output=True, text=True)
    if made.returncode != 0:
        raise AssertionError("%s does not compile: %s" % (name, made.stderr))
    return out
