"""watch() on PyTorch models: the checks of checks_watch.py, run by PYTHON."""
import functools
import os
import re
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
from kit import SLOW, environment, needs  # noqa: E402
import t  # noqa: E402

CHECKS = os.path.join(HERE, "checks_watch.py")


@functools.lru_cache(maxsize=None)
def results():
    """The line of each check, by its name."""
    python = needs("numpy", "torch", "transformers", "tokenizers")
    p = subprocess.run([python, CHECKS], env=environment(OMP_NUM_THREADS="2"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=600 * SLOW)
    assert p.returncode == 0, p.stderr.decode("utf-8", "replace")[-1500:]
    lines = [x.split(" ", 2) for x in p.stdout.decode("utf-8", "replace").splitlines()]
    return {x[1]: x for x in lines if x[0] in ("ok", "FAIL")}


def test_of(name):
    def f():
        line = results().get(name)
        assert line is not None, "the check did not run"
        assert line[0] == "ok", line[-1]

    f.__name__ = name
    return f


with open(CHECKS, encoding="utf-8") as source:
    names = re.findall(r"^@check\ndef (\w+)", source.read(), re.M)
assert names
t.main(chosen=[test_of(name) for name in names])
