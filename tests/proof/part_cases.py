"""The 136 bad-input and fault cases of cases.md: each has a test, and the tests are run one after the other."""
import os
import time

import named_tests

TITLE = "the cases of [cases.md](cases.md), bad input and faults, each with the tests that cover it"
TABLE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "cases.md")
COUNTS = {"A": 26, "B": 14, "C": 19, "D": 16, "E": 17, "F": 16, "G": 13, "H": 15}
TITLES = {"A": "model files", "B": "tokenizer and text", "C": "logs, traces, msgpack", "D": "storage faults", "E": "process and resources",
          "F": "terminal", "G": "paths, names, sockets, config", "H": "training and numerics"}
NOT_HERE = "not applicable:"  # begins the last cell of a row whose case cannot arise in this program


def table():
    """{id: (tests, applies)}, and what is wrong with the table."""
    wrong, cases = [], {}
    for row in named_tests.rows(TABLE):
        if len(row) != 4:
            wrong.append("%s: %d cells, expected 4" % (row[0], len(row)))
            continue
        if row[0] in cases:
            wrong.append("%s: duplicate" % row[0])
        tests = named_tests.named(row[3])
        cases[row[0]] = (tests, not row[3].startswith(NOT_HERE))
        if not tests:
            wrong.append("%s: names no test" % row[0])
        wrong += ["%s: %s" % (row[0], why) for why in (named_tests.missing(*t) for t in tests) if why]
    expected = ["%s%d" % (c, i + 1) for c, n in COUNTS.items() for i in range(n)]
    wrong += ["%s: missing" % c for c in expected if c not in cases]
    wrong += ["%s: not a case" % c for c in cases if c not in expected]
    return cases, wrong


def letter(state, c):
    return state["letters"].setdefault(c, {"runs": 0, "passed": 0, "failed": 0, "skipped": 0})


def run(state, budget):
    cases, wrong = table()
    for text in wrong:
        budget.failed("cases.md: " + text)
    budget.passed(sum(COUNTS.values()) - len({w.split(":")[0] for w in wrong}))
    state.setdefault("letters", {})
    state.setdefault("open", {})
    state["cases"] = len(cases)
    state["not applicable"] = sorted(c for c, x in cases.items() if not x[1])
    state["wrong"] = wrong[:20]
    state["date"] = time.strftime("%Y-%m-%d", time.gmtime())
    # a test that covers several cases is run once a round, and counts for the first of them
    todo, owner = [], {}
    for c, (tests, _) in cases.items():
        for t in tests:
            if t not in owner:
                owner[t] = c
                todo.append(t)
    state["tests"] = len(todo)
    state["open"] = {k: v for k, v in state["open"].items() if tuple(k.split(":", 1)) in owner}  # a test that is gone is not open
    at = state.get("next", "")
    begin = next((i for i, t in enumerate(todo) if ":".join(t) == at), 0)
    for i in range(len(todo)):
        if budget.left() <= 0:
            return
        t = todo[(begin + i) % len(todo)]
        key, count = ":".join(t), letter(state, owner[t][0])
        what, why = named_tests.run(*t)
        count["runs"] += 1
        count[what] += 1
        if what == "failed":
            budget.failed("%s %s: %s" % (owner[t], key, why))
            state["open"][key] = why[:200]
        else:
            state["open"].pop(key, None)
            budget.passed() if what == "passed" else budget.skipped("%s %s: %s" % (owner[t], key, why))
        if (begin + i + 1) % len(todo) == 0:
            state["rounds"] = state.get("rounds", 0) + 1
        state["next"] = ":".join(todo[(begin + i + 1) % len(todo)])


def page(state):
    skip = state["not applicable"]
    lines = ["%d cases, %d with tests of their own, %d that cannot arise here (%s; each names the nearest behaviour and its test); %d different "
             "tests. All of them were run %d times; the next run continues after where the last one stopped (%s)." % (
                 state["cases"], state["cases"] - len(skip), len(skip), ", ".join(skip) or "none", state["tests"], state.get("rounds", 0),
                 state["date"]), "",
             "| cases | | test runs | passed | failed | skipped |", "|---|---|---|---|---|---|"]
    for c, n in COUNTS.items():
        x = state["letters"].get(c, {"runs": 0, "passed": 0, "failed": 0, "skipped": 0})
        lines.append("| %s1 to %s%d | %s | %d | %d | %d | %d |" % (c, c, n, TITLES[c], x["runs"], x["passed"], x["failed"], x["skipped"]))
    lines += ["", "Rows that are wrong: %s." % "; ".join(state["wrong"])] if state["wrong"] else []
    lines += ["", "Failures that are open:", ""] + ["- %s: %s" % x for x in sorted(state["open"].items())] if state["open"] else []
    lines += ["", "A test that covers several cases counts once, for the first. A skipped test lacked something here (a package, root, a second user); "
              "`make test` prints its reason. A row says what was meant to be covered; that the test would notice the fault is the work of "
              "the part `mutants`."]
    return "\n".join(lines)
