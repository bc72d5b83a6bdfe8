"""The version: in one place for program and package, with the commit and what the build can do.  DEPTHSCOPE names the program."""
import json
import os
import re
import shutil
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import t  # noqa: E402
from t import PROGRAM, ROOT, Skip, refused, run, test  # noqa: E402

PACKAGE = os.path.join(ROOT, "src", "python", "depthscope", "_version.py")


def version():
    with open(PACKAGE, encoding="utf-8") as f:
        return re.search(r'^__version__ = "(.+)"$', f.read(), re.M).group(1)


def make(*words, **env):
    clean = {k: v for k, v in os.environ.items() if not k.startswith("MAKE") and k not in ("MFLAGS", "B", "COMMIT")}
    p = subprocess.run(["make", "--no-print-directory", *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                       env={**clean, **env}, timeout=120)
    assert p.returncode == 0, p.stdout.decode("utf-8", "replace")


@test
def program_package_and_release_notes_have_one_version():
    assert run("--version") == run("-V") == "depthscope %s\n" % version()
    assert json.loads(run("-V", "--json"))["version"] == version()
    with open(os.path.join(ROOT, "data", "reference", "RELEASES.md"), encoding="utf-8") as f:
        newest = re.search(r"^## (\S+) \((\d{4}-\d\d-\d\d)\)$", f.read(), re.M)
    assert newest and newest.group(1) == version(), "the first heading of RELEASES.md is not `## %s (YYYY-MM-DD)`" % version()
    refused("unexpected argument --jsn", "--version", "--jsn")
    refused("unexpected argument x", "--version", "--json", "x")


@test
def json_says_what_the_build_is_and_can_do_here():
    x = json.loads(run("--version", "--json"))
    assert list(x) == "version commit build static machine instructions compiler libc cairo kernels gpus protocols".split(), list(x)
    assert x["commit"] == "unknown" or re.match(r"[0-9a-f]{12,40}(-dirty)?$", x["commit"]), x["commit"]
    assert re.match(r"(gcc|clang) \d", x["compiler"]), x
    assert re.match(r"\d+\.\d+\.\d+$", x["cairo"]) and x["protocols"] == {"records": 1, "agent": 1}
    with open(PROGRAM, "rb") as f:
        head = f.read(4096)
    if head.startswith(b"\x7fELF"):
        assert x["static"] == (b"/ld-linux" not in head), "static is not what the file's head says"
        assert x["machine"] == {62: "x86_64", 183: "aarch64"}.get(head[18], "other"), (x["machine"], head[18])
    for format in ("fp32", "bf16"):
        default = [k for k in x["kernels"] if k["format"] == format and k["default"]]
        assert len(default) == 1 and default[0]["available"], x["kernels"]
    found = {f["name"]: f["text"] for f in json.loads(run("doctor", "--json"))}
    missing = {k["name"] for k in x["kernels"] if not k["available"]}
    assert missing == set(re.findall(r"(\S+) \(not on this processor\)", found["gemm"])), (missing, found["gemm"])
    assert bool(x["gpus"]) == (found["gpus"] != "none found")
    capped = {k["name"]: k["available"] for k in json.loads(run("--version", "--json", DEPTHSCOPE_CPU="ref"))["kernels"]}
    assert capped["ref"] and not any(capped.get(k) for k in ("avx2", "avx512", "amx", "blas")), capped


@test
def the_commit_is_that_of_the_tree_and_unknown_without_one():
    for name in ("make", "git", "pkg-config"):
        if not shutil.which(name):
            raise Skip("%s is not installed" % name)
    for path in ("Makefile", "tests/setup/deps.txt", "tests/setup/setup.sh", "src/python/depthscope/_version.py"):
        os.makedirs(os.path.dirname(os.path.join("tree with blanks", path)), exist_ok=True)
        shutil.copy(os.path.join(ROOT, path), os.path.join("tree with blanks", path))
    os.chdir("tree with blanks")

    def git(*words):
        alone = {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null"}
        p = subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                           stderr=subprocess.STDOUT, env={**os.environ, **alone})
        assert p.returncode == 0, p.stdout
        return p.stdout.decode().strip()

    def commit(*words):
        make("B=b", "b/commit", *words)
        with open("b/commit") as f:
            return f.read().strip()

    assert commit() == "unknown" and commit("COMMIT=v1-from-a-tarball") == "v1-from-a-tarball"
    git("init", "-q")
    git("add", "Makefile", "tests", "src")
    git("commit", "-qm", "a")
    assert commit() == git("rev-parse", "--short=12", "HEAD")
    os.utime("b/commit", (1, 1))
    assert commit() == git("rev-parse", "--short=12", "HEAD") and os.stat("b/commit").st_mtime == 1, "written again without a change"
    with open("Makefile", "a") as f:
        f.write("\n")
    assert commit() == git("rev-parse", "--short=12", "HEAD") + "-dirty"


t.main(fresh=True)
