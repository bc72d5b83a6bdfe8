"""data races and deadlocks: the tests, and every process of ours that they start, under the thread sanitizer"""
from programs import Programs

TITLE = __doc__


def run(state, budget):
    todo = Programs("san-thread-ref", ["SAN=thread", "BLAS=ref"], ["unit", "pair", "golden", "screens", "fault", "grad", "python"],
                    scripts=True, skip=["test_ranks.py"], reports="TSAN_OPTIONS",
                    env={"TSAN_OPTIONS": "die_after_fork=0 halt_on_error=0 exitcode=66 handle_sigbus=0 handle_segv=0", "T_SLOW_FACTOR": "40"})
    if todo.run(budget, state):
        todo.again(state)


def page(state, what="the thread sanitizer"):
    failed = state.get("failed", {})
    lines = ["%d whole rounds; in the current one %d programs have run under %s; %d tests passed in all." % (
        state.get("rounds", 0), len(state.get("done", [])), what, state.get("tests", 0))]
    if state.get("none"):
        lines += ["", "Skipped all their tests here: %s." % ", ".join("`%s`" % x for x in sorted(state["none"]))]
    if failed:
        lines += ["", "Open:", ""] + ["- `%s`: %s" % x for x in sorted(failed.items())]
    return "\n".join(lines)
