"""A scratch copy of the tree in which one source is changed, rebuilt and tested: what part_mutants and mutants_map.py share."""
import glob
import os
import re
import resource
import shutil
import signal
import subprocess
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SCRATCH = os.path.join(ROOT, "build", "proof", "mutants")
TREE = os.path.join(SCRATCH, "tree")
LAYERS = ["engine", "models", "routing", "training", "eval", "io", "data"]
BUILD, DOUBLE = "build/release", "build/release-double"
BIN = BUILD + "/depthscope"
COPIED = ["src", "include", "tests", "data", "themes", "Makefile", "README.md", "LICENSE", ".gitignore"]
# These build packages, use the portable program, or read every file of the tree.
LEFT_OUT = {"tests/unit/test_packages.py", "tests/fault/test_portable.py", "tests/unit/test_readme.sh"}


def sources():
    """path -> number of lines, of what is mutated."""
    found = {}
    for layer in LAYERS:
        for path in glob.glob("%s/src/%s/**/*.[ch]" % (ROOT, layer), recursive=True):
            with open(path, encoding="utf-8") as f:
                found[os.path.relpath(path, ROOT)] = f.read().count("\n")
    return found


def programs():
    """test -> the program it runs: itself, or the one that scripts drive."""
    found = {}
    for kind, build in (("pair", BUILD), ("golden", BUILD), ("unit", BUILD), ("screens", BUILD), ("fault", BUILD), ("grad", DOUBLE)):
        for path in sorted(glob.glob("%s/tests/%s/test_*.c" % (ROOT, kind))):
            name = os.path.relpath(path, ROOT)
            found[name] = "%s/%s" % (build, name[:-2])
    for path in sorted(glob.glob(ROOT + "/tests/fuzz/fuzz_*.c")):
        name = os.path.relpath(path, ROOT)
        found[name] = "%s/%s" % (BUILD, name[:-2])
    for path in sorted(glob.glob(ROOT + "/tests/*/test_*.py") + glob.glob(ROOT + "/tests/*/test_*.sh")):
        found[os.path.relpath(path, ROOT)] = BIN
    return {t: p for t, p in found.items() if t not in LEFT_OUT}


def run_by(test):
    """The programs that run in a test: a test in C may start the workbench, or have a session with it."""
    found = [programs_of_tree[test]]
    if test.endswith(".c"):
        with open(os.path.join(ROOT, test), encoding="utf-8") as f:
            found += [BIN] if test.startswith("tests/screens/") or 'getenv("DEPTHSCOPE")' in f.read() else []
    return found


def place(path, target):
    """Puts a link to `target` there."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    if os.path.lexists(path):
        os.remove(path)
    os.symlink(target, path)


def make_tree():
    shutil.rmtree(SCRATCH, ignore_errors=True)
    os.makedirs(TREE)
    for name in COPIED:
        if os.path.exists(os.path.join(ROOT, name)):
            subprocess.run(["cp", "-a", os.path.join(ROOT, name), TREE], check=True)
    for path in glob.glob("%s/%s/tests/unit/*.so" % (ROOT, BUILD)) + glob.glob("%s/%s/mpicc.*" % (ROOT, BUILD)):
        place(os.path.join(TREE, os.path.relpath(path, ROOT)), path)
    for program in set(programs().values()):
        place(os.path.join(TREE, program), os.path.join(ROOT, program))
    place(os.path.join(TREE, "depthscope"), os.path.join(TREE, BIN))


def plain_environment():
    return {k: v for k, v in os.environ.items() if k not in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL", "DEPTHSCOPE", "BUILD_DIR")}


def recipe(target, changed):
    """The command with which make would make `target` if `changed` were new, as a list of words for sh."""
    r = subprocess.run(["make", "-n", "V=1", "-W", changed, target], cwd=ROOT, env=plain_environment(), capture_output=True, text=True)
    lines = [s for s in r.stdout.replace("\\\n", " ").split("\n") if re.search(r" -o %s( |$)" % re.escape(target), s)]
    if not lines:
        raise RuntimeError("make does not say how %s is made: %s" % (target, r.stderr.strip()[-300:]))
    return lines[-1]


def limits(cpu_s):
    """Of every process of a test: a mutant may loop or allocate without end.  Tests have large files and mappings of their own."""
    def apply():
        resource.setrlimit(resource.RLIMIT_DATA, (8 << 30, resource.RLIM_INFINITY))
        resource.setrlimit(resource.RLIMIT_CPU, (int(cpu_s) + 1, int(cpu_s) + 3))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    return apply


def end_strays(mark):
    """Ends what a test started and left behind: the processes that have its directory for temporary files."""
    for path in glob.glob("/proc/[0-9]*/environ"):
        try:
            with open(path, "rb") as f:
                if b"TMPDIR=" + mark.encode() + b"\0" in f.read() + b"\0":
                    os.kill(int(path.split("/")[2]), signal.SIGKILL)
        except (OSError, ValueError):
            pass


def run_test(test, cpu_s, wall_s, **env):
    """Runs it in the tree: (what is wrong or None, its processor seconds)."""
    words = {"py": ["python3", test], "sh": ["sh", test]}.get(test.rsplit(".", 1)[1]) or [programs_of_tree[test]]
    tmp = tempfile.mkdtemp(prefix="ds-mutant-")
    environ = {**plain_environment(), "DEPTHSCOPE": os.path.join(TREE, BIN), "BUILD_DIR": BUILD, "TMPDIR": tmp, "HOME": tmp,
               "T_PATIENCE": "3", "LC_ALL": "C", **env}
    environ.setdefault("DEPTHSCOPE_SHARED", os.path.join(ROOT, "..", "shared", "data"))
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    p = subprocess.Popen(words, cwd=TREE, env=environ, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                         start_new_session=True, preexec_fn=limits(cpu_s))
    try:
        status = p.wait(wall_s)
        wrong = None if status == 0 else "exit status %d" % status
    except subprocess.TimeoutExpired:
        wrong = "no end after %d s" % wall_s
        os.killpg(p.pid, signal.SIGKILL)
        p.wait()
    end_strays(tmp)
    subprocess.run(["chmod", "-R", "u+rwX", tmp], stderr=subprocess.DEVNULL)
    shutil.rmtree(tmp, ignore_errors=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return wrong, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


programs_of_tree = programs()
