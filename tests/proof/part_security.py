"""Static analysis with every finding fixed or justified, the hardening of the built program, and the threat model of THREATS.md."""
import glob
import hashlib
import os
import re
import shutil
import subprocess
import time

import named_tests
from named_tests import ROOT

TITLE = "static analysis, hardening of the built program, and the threat model of [THREATS.md](THREATS.md)"
QUICK = True
HERE = os.path.dirname(os.path.abspath(__file__))
THREATS = os.path.join(HERE, "THREATS.md")
JUSTIFIED = os.path.join(HERE, "analysis_justified.txt")
OPEN_MAX = 40  # findings that the ledger holds; more are counted
FINDING = re.compile(r"^(?:%s/)?((?:src|include)/[^:]+):(\d+)(?::\d+)?: (?:warning|error|portability|style|performance): (.*?) \[([^\]]+)\]$" % re.escape(ROOT))


# ---- the three tools ----


def flags():
    """What the sources are compiled with: include paths, definitions, the processor."""
    build = os.path.join(ROOT, os.environ.get("BUILD_DIR") or "build/release")
    words = open(os.path.join(build, "flags"), encoding="utf-8").read().split()
    found = [w for i, w in enumerate(words) if w.startswith(("-I", "-D", "-march=", "-std=", "-fopenmp-simd")) or "-isystem" in words[max(0, i - 1):i + 1]]
    defined = ["-D%s=\"\"" % d for d in ("BLAS_DIR", "DATADIR", "VERSION", "COMMIT", "BUILD", "ARCH")]
    return [f for f in found if not f.startswith("-D_FORTIFY")] + [d.replace("-D", "-DDEPTHSCOPE_", 1) for d in defined] + ["-DREAL_BITS=32"]


def gcc(file, with_flags):
    known = ["-include", os.path.join(HERE, "analysis.h")] if file != "src/base/err.c" else []
    return ["gcc", "-O1", "-fanalyzer", *with_flags, *known, "-c", "-o", "/dev/null", file]


def clang_tidy(file, with_flags):
    left_out = ",".join("-" + check for tool, check, where, _, _ in justified() if tool == "clang-tidy" and where == "*")
    return ["clang-tidy", "--quiet", "--config={CheckOptions: [{key: bugprone-suspicious-string-compare.WarnOnImplicitComparison, value: 'false'}]}", "--checks=-*,bugprone-*,cert-*," + left_out, "--header-filter=^(%s/)?(include|src)/" % ROOT, file, "--",
            *with_flags]


def cppcheck(file, with_flags):
    return ["cppcheck", "--quiet", "--std=c11", "--enable=warning,portability", "--inline-suppr", "--suppress=missingIncludeSystem",
            "--template={file}:{line}: {severity}: {message} [{id}]", "-D__GNUC__=12", "-D__linux__", "-D__x86_64__", "-D__SSE__",
            *[f for f in with_flags if f.startswith(("-I", "-D"))], file]


TOOLS = {"gcc": gcc, "clang-tidy": clang_tidy, "cppcheck": cppcheck}


def sources():
    found = sorted(glob.glob("src/*/*.c", root_dir=ROOT) + glob.glob("src/*/*/*.c", root_dir=ROOT) + glob.glob("src/*/*/*/*.c", root_dir=ROOT))
    return [f for f in found if f != "src/base/ranks_mpi.c"]  # needs the headers of an MPI


def justified():
    """Rows of `tool | check | file | piece of the line | why`; a file of * leaves the check out altogether."""
    rows = []
    with open(JUSTIFIED, encoding="utf-8") as f:
        for line in f:
            cells = [c.strip() for c in line.split(" | ")]
            if line.strip() and not line.startswith("#"):
                rows.append(tuple(cells))
    return rows


def wrong_rows():
    """Rows that justify nothing."""
    wrong = []
    for row in justified():
        if len(row) != 5 or not row[4] or row[0] not in TOOLS:
            wrong.append("analysis_justified.txt: %s: expected tool | check | file | piece of the line | why" % " | ".join(row)[:80])
            continue
        tool, check, where, piece, _ = row
        if where != "*":
            path = os.path.join(ROOT, where)
            if not os.path.exists(path) or piece not in open(path, encoding="utf-8").read():
                wrong.append("analysis_justified.txt: %s has no line with %r any more" % (where, piece))
    return wrong


def line_of(file, number):
    with open(os.path.join(ROOT, file), encoding="utf-8") as f:
        lines = f.read().split("\n")
    return lines[number - 1].strip() if number <= len(lines) else ""


def is_justified(tool, check, file, text):
    return any(t == tool and c in check.split(",") and (w == "*" or (w == file and piece in text)) for t, c, w, piece, _ in justified())


def findings(tool, file, with_flags, timeout):
    """[(check, file, line, text)] that nothing justifies; None where the tool gave up."""
    try:
        p = subprocess.run(TOOLS[tool](file, with_flags), cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, timeout=timeout)
    except subprocess.TimeoutExpired:
        return None
    found = []
    for line in (p.stdout + p.stderr).decode("utf-8", "replace").split("\n"):
        m = FINDING.match(line)
        if not m:
            continue
        check = re.sub(r"^-W|,-warnings-as-errors$", "", m.group(4))
        row = (check, m.group(1), int(m.group(2)), m.group(3))
        if row not in found and not is_justified(tool, check, row[1], line_of(row[1], row[2])):
            found.append(row)
    if not found and p.returncode not in (0, 1):
        raise RuntimeError("%s %s: status %d: %s" % (tool, file, p.returncode, p.stderr.decode("utf-8", "replace")[-300:]))
    if tool == "gcc" and p.returncode != 0:
        raise RuntimeError("gcc %s: %s" % (file, p.stderr.decode("utf-8", "replace")[-300:]))
    return found


def analyse(state, budget):
    """One file of each tool in turn, so that none waits for the others."""
    files, tools = sources(), []
    with_flags = flags()
    for tool in TOOLS:
        x = state.setdefault("tools", {}).setdefault(tool, {"next": "", "files": 0, "rounds": 0, "late": 0, "open": {}})
        if shutil.which(tool):
            tools.append(tool)
        else:
            budget.skipped("%s is not installed" % tool)
        x["of"] = len(files)
        x["open"] = {k: v for k, v in x["open"].items() if k.split(":")[0] in files or k.startswith("include/")}
    done = {tool: 0 for tool in tools}
    while tools and budget.left() > 0:
        for tool in list(tools):
            x = state["tools"][tool]
            at = files.index(x["next"]) if x["next"] in files else 0
            file = files[at]
            try:
                found = findings(tool, file, with_flags, max(120, budget.left()))
            except RuntimeError as why:
                budget.failed(str(why))
                found = []
                budget.passed(-1)
            if found is None:
                x["late"] += 1
                budget.skipped("%s: %s: no result within its time" % (tool, file))
            else:
                x["open"] = {k: v for k, v in x["open"].items() if k.split("@")[1] != file}
                for check, where, number, text in found:
                    budget.failed("%s: %s:%d: %s [%s]" % (tool, where, number, text, check))
                    if len(x["open"]) < OPEN_MAX:
                        x["open"]["%s:%s:%s@%s" % (where, check, hashlib.sha256(line_of(where, number).encode()).hexdigest()[:8], file)] = "%d: %s" % (
                            number, text[:120])
                if not found:
                    budget.passed()
            x["files"] += 1
            x["next"] = files[(at + 1) % len(files)]
            x["rounds"] += at + 1 == len(files)
            done[tool] += 1
            if done[tool] == len(files):
                tools.remove(tool)
            if budget.left() <= 0:
                return


# ---- the built program ----


def readelf(program, *words):
    return subprocess.run(["readelf", "-W", *words, program], stdin=subprocess.DEVNULL, capture_output=True, text=True).stdout


def properties(program):
    """{what it must have: whether it has}."""
    head, dynamic, segments = readelf(program, "-h"), readelf(program, "-d"), readelf(program, "-l")
    imported = set(re.findall(r" UND (\S+?)(?:@\S+)?(?: \(\d+\))?$", readelf(program, "--dyn-syms"), re.M))
    stack = re.search(r"GNU_STACK.*", segments)
    return {
        "position-independent": bool(re.search(r"Type:\s+DYN", head)) and "PIE" in dynamic,
        "symbols bound at the start": bool(re.search(r"BIND_NOW|\bNOW\b", dynamic)),
        "relocations read-only": "GNU_RELRO" in segments,
        "stack protector": "__stack_chk_fail" in imported,
        "fortified calls": len([s for s in imported if re.fullmatch(r"__\w+_chk", s) and s != "__stack_chk_fail"]) >= 5,
        "no executable stack": bool(stack) and "E" not in stack.group(0).split()[6],
        "no segment writable and executable": not re.search(r"^\s+LOAD.*\bRWE\b", segments, re.M),
        "no text relocations": "TEXTREL" not in dynamic,
        "no search path of its own": not re.search(r"\((RPATH|RUNPATH)\)", dynamic),
    }


def check_program(state, budget):
    build = os.environ.get("BUILD_DIR") or "build/release"
    program = os.path.join(ROOT, build, "depthscope")
    if "release" not in build or not os.path.exists(program):
        budget.skipped("hardening: %s is not a release build" % os.path.relpath(program, ROOT))
        return
    if not shutil.which("readelf"):
        budget.skipped("hardening: readelf (binutils) is not installed")
        return
    state["properties"] = properties(program)
    for what, has in state["properties"].items():
        budget.passed() if has else budget.failed("%s: not %s" % (os.path.relpath(program, ROOT), what))


# ---- the threat model ----


def check_threats(state, budget):
    rows, wrong, tests = named_tests.rows(THREATS), [], set()
    for row in rows:
        if len(row) != 6:
            wrong.append("THREATS.md: %s: %d cells, expected 6" % (row[0], len(row)))
            continue
        these = named_tests.named(row[5])
        tests |= set(these)
        if not these:
            wrong.append("THREATS.md: %s: names no test" % row[0])
        wrong += ["THREATS.md: %s: %s" % (row[0], why) for why in (named_tests.missing(*t) for t in these) if why]
    ids = [row[0] for row in rows]
    wrong += ["THREATS.md: %s: duplicate" % i for i in set(ids) if ids.count(i) > 1]
    if len(rows) < 20:
        wrong.append("THREATS.md: %d rows, expected at least 20" % len(rows))
    for text in wrong:
        budget.failed(text)
    budget.passed(len(rows) - len({w.split(":")[1] for w in wrong} & {" " + i for i in ids}))
    state["threats"] = {"rows": len(rows), "tests": len(tests), "wrong": wrong[:10]}


def run(state, budget):
    state["date"] = time.strftime("%Y-%m-%d", time.gmtime())
    check_threats(state, budget)
    check_program(state, budget)
    for text in wrong_rows():
        budget.failed(text)
    rows = justified()
    state["justified"] = {"lines": len([r for r in rows if r[2] != "*"]), "checks": len([r for r in rows if r[2] == "*"])}
    if not os.path.exists(os.path.join(ROOT, os.environ.get("BUILD_DIR") or "build/release", "flags")):
        budget.skipped("static analysis: no build, whose flags it takes")
        return
    analyse(state, budget)


def page(state):
    lines = ["Threat model: %(rows)d channels, %(tests)d tests named." % state["threats"]] + ["- " + w for w in state["threats"]["wrong"]]
    if state.get("properties"):
        lacks = [p for p, has in state["properties"].items() if not has]
        lines += ["", "The release program: %s.%s" % (", ".join(p for p, has in state["properties"].items() if has),
                                                     " It is NOT: %s." % ", ".join(lacks) if lacks else "")]
    lines += ["", "| tool | files analysed | of | whole rounds | ran out of time | findings open |", "|---|---|---|---|---|---|"]
    names = {"gcc": "gcc -fanalyzer", "clang-tidy": "clang-tidy (bugprone, cert)", "cppcheck": "cppcheck (warning, portability)"}
    for tool, x in state.get("tools", {}).items():
        lines.append("| %s | %d | %d | %d | %d | %s |" % (names[tool], x["files"], x["of"], x["rounds"], x["late"],
                                                          "%d%s" % (len(x["open"]), " or more" if len(x["open"]) == OPEN_MAX else "")))
    found = ["- %s: %s: %s" % (tool, k.split("@")[0].rsplit(":", 1)[0], v) for tool, x in state.get("tools", {}).items() for k, v in x["open"].items()]
    lines += ["", *found] if found else []
    lines += ["", "%d lines and %d whole checks are justified in [analysis_justified.txt](analysis_justified.txt), each with its reason (%s). Not "
              "covered: analysis across files, the Python package, and the libraries that are linked." % (
                  state["justified"]["lines"], state["justified"]["checks"], state["date"])]
    return "\n".join(lines)
