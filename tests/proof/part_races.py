"""data races and deadlocks: the tests, and every process of ours that they start, under the thread sanitizer"""
from programs import Programs

TITLE = __doc__
# ranks need a build of their own; what the README trains is trained smaller by others; packages are of release builds
ELSEWHERE = ["test_ranks.py", "test_readme_commands.py", "test_packages.py", "test_portable.py"]


def run(state, budget):
    todo = Programs("san-thread-ref", ["SAN=thread", "BLAS=ref"], ["unit", "pair", "golden", "screens", "fault", "grad", "python"],
                    scripts=True, skip=ELSEWHERE, reports="TSAN_OPTIONS",
                    env={"TSAN_OPTIONS": "die_after_fork=0 halt_on_error=0 exitcode=66 handle_sigbus=0 handle_segv=0", "T_SLOW_FACTOR": "40"})
    if todo.run(budget, state):
        todo.again(state)


def page(state, what="the thread sanitizer"):
    failed = state.get("failed", {})
    rounds = state.get("rounds", 0)
    lines = ["%d whole round%s; in the current one %d programs have run under %s; %d tests passed in all." % (
        rounds, "" if rounds == 1 else "s", len(state.get("done", [])), what, state.get("tests", 0))]
    if state.get("none"):
        lines += ["", "Skipped all their tests here: %s." % ", ".join("`%s`" % x for x in sorted(state["none"]))]
    if failed:
        lines += ["", "Open:", ""] + ["- `%s`: %s" % x for x in sorted(failed.items())]
    return "\n".join(lines)
