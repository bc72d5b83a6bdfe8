"""What the tests of the Python package share: the package itself, the interpreter of optional libraries, and runs in other processes."""
import os
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
sys.dont_write_bytecode = True
from t import PROGRAM, ROOT, SLOW, Skip  # noqa: E402

PACKAGE = os.path.join(ROOT, "src", "python")
PYTHON = os.environ.get("PYTHON", "python3")
sys.path.insert(0, PACKAGE)


def needs(*modules):
    """Skips a test whose libraries PYTHON does not have; gives the interpreter."""
    for m in modules:
        if subprocess.run([PYTHON, "-c", "import %s" % m], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode:
            raise Skip("%s has no %s (PYTHON=INTERPRETER names another)" % (PYTHON, m))
    return PYTHON


def environment(**more):
    env = {k: v for k, v in os.environ.items() if k not in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK")}
    env.update(PYTHONPATH=PACKAGE, PYTHONDONTWRITEBYTECODE="1", PYTHONWARNINGS="ignore")
    env.update(more)
    return env


def script(text, *args, python=sys.executable, code=0, seconds=120, **env):
    """Runs a program that imports the package; gives its standard output.  script.err: standard error."""
    p = subprocess.run([python, "-c", text, *args], env=environment(**env), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                       stdin=subprocess.DEVNULL, timeout=seconds * SLOW)
    script.err = p.stderr.decode("utf-8", "replace")
    assert code is None or p.returncode == code, "exit status %d, want %s\n%s" % (p.returncode, code, script.err)
    return p.stdout.decode("utf-8", "replace")


def start(text, *args, python=sys.executable, **env):
    """The same program, left running."""
    return subprocess.Popen([python, "-c", text, *args], env=environment(**env), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            stdin=subprocess.DEVNULL)


def wait_for(condition, seconds=20, what="nothing"):
    end = time.monotonic() + seconds * SLOW
    while time.monotonic() < end:
        got = condition()
        if got:
            return got
        time.sleep(0.01)
    raise AssertionError("waited %g s in vain for %s" % (seconds * SLOW, what))


__all__ = ["PACKAGE", "PROGRAM", "PYTHON", "ROOT", "SLOW", "Skip", "environment", "needs", "script", "start", "wait_for"]
