"""undefined values and addresses: the tests of the reference build under valgrind, which runs no vector instructions of its own choice"""
import os
import shutil

import part_races
import proof
from programs import Programs

TITLE = __doc__
# valgrind calls a function of its own for each number that is multiplied and added in one: three times slower in all
NO_FMA = {"DEPTHSCOPE_CPU": "ref", "GLIBC_TUNABLES": "glibc.cpu.hwcaps=-FMA,-AVX2"}


def run(state, budget):
    if not shutil.which("valgrind"):
        budget.skipped("valgrind is not installed")
        return
    valgrind = ["valgrind", "-q", "--error-exitcode=99", "--leak-check=no", "--suppressions=" + os.path.join(proof.HERE, "valgrind.supp")]
    todo = Programs("debug-ref", ["DEBUG=1", "BLAS=ref"], ["unit", "golden", "pair", "screens", "fault"], runner=valgrind,
                    env={"T_SLOW_FACTOR": "50", "T_RUNNER": "valgrind", **NO_FMA}, seconds=7200, split=4)
    if todo.run(budget, state):
        todo.again(state)


def page(state):
    return part_races.page(state, "valgrind")
