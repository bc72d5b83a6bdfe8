"""Mutation testing: one operator of one line of the sources is changed, its objects are compiled again, and the tests that run code of
that source must fail.  The sequence of mutants is drawn from a seed, so that a cursor says how far it is.  mutate.py has the operators,
mutants_map.json which tests run what (mutants_map.py writes it), mutants_judged.txt why a mutant that survived is equivalent, or
which test was added for it."""
import contextlib
import glob
import json
import os
import random
import re
import shutil
import subprocess

import mutants_tree as tree
import mutate

TITLE = "changed operators in the sources, and the tests that notice them"
SEED = 20
AIM = 300  # of mutants; more are drawn once all survivors are judged
SLOW_S = 3
HERE = os.path.dirname(os.path.abspath(__file__))
# Kernels of processors that this one may not be: (path, flag of /proc/cpuinfo).
KERNELS = [("gemm_amx.c", "amx_bf16"), ("avx512bf16", "avx512_bf16"), ("vnni", "avx512_vnni"), ("avx512", "avx512f"), ("avx2", "avx2")]
WEAKER = {"tests/fuzz/": 8, "tests/screens/": 2, "tests/fault/": 2}  # as likely to fail as a test that takes as many times longer


def read(path):
    with open(os.path.join(tree.ROOT, path), encoding="utf-8") as f:
        return f.read()


def words(path):
    return set(re.split(r"[/_.]", path)) - {"src", "tests", "test", "unit", "c", "h", "py", "methods", "formats", "eval", "data", "cli"}


class Tests:
    """Which tests run code of a source, the likeliest to fail for their time first."""

    def __init__(self):
        known = json.loads(read("tests/proof/mutants_map.json"))
        names = [t for t, _ in known["tests"]]
        self.seconds = dict(known["tests"])
        self.mask = {s: int(m, 16) for s, m in known["sources"].items()}
        self.breadth = {t: sum(m >> i & 1 for m in self.mask.values()) for i, t in enumerate(names)}
        self.bit = {t: i for i, t in enumerate(names)}
        self.present = [t for t, p in tree.programs_of_tree.items() if os.path.exists(os.path.join(tree.ROOT, p))]

    def of(self, sources):
        """(tests, how many of them are quick).  The sources are one, or those that include a header.  A test that the map does not
        know goes by its name.  The slow ones, which come last, are for what the quick ones let through."""
        mask = 0
        for s in sources:
            mask |= self.mask.get(s, -1)
        mine = set().union(*(words(s) for s in sources))

        def rank(t):
            weight = next((w for p, w in WEAKER.items() if t.startswith(p)), 1)
            return (self.seconds.get(t, 5) + 0.4) * (self.breadth.get(t, 100) + 5) * weight / (1 + 3 * len(mine & words(t)))
        runs = [t for t in self.present if (mask >> self.bit[t] & 1 if t in self.bit else mine & words(t))]
        quick = [t for t in runs if self.seconds.get(t, 5) < SLOW_S or mine & words(t)]
        return sorted(runs, key=lambda t: (t not in quick, rank(t), t)), len(quick) or len(runs)


class Mutant:
    """A source that is changed in the tree until the end of `with`."""
    commands = {}  # program -> how it is linked
    including = {}  # build -> header -> the objects that include it

    def __init__(self, path, text):
        self.path, self.text = path, text
        self.changed, self.linked = {}, set()  # build -> objects whose code differs; programs

    def __enter__(self):
        with open(os.path.join(tree.TREE, self.path), "w", encoding="utf-8") as f:
            f.write(self.text)
        return self

    def __exit__(self, *x):
        shutil.copy2(os.path.join(tree.ROOT, self.path), os.path.join(tree.TREE, self.path))
        for build in (tree.BUILD, tree.DOUBLE):
            shutil.rmtree(os.path.join(tree.TREE, build, "src"), ignore_errors=True)
        for program in self.linked:
            tree.place(os.path.join(tree.TREE, program), os.path.join(tree.ROOT, program))

    @contextlib.contextmanager
    def without(self, programs):
        """The programs as they are, for a while."""
        there = [os.path.join(tree.TREE, p) for p in programs]
        for program, path in zip(programs, there):
            os.rename(path, path + ".mutant")
            os.symlink(os.path.join(tree.ROOT, program), path)
        yield
        for path in there:
            os.replace(path + ".mutant", path)

    def objects(self):
        """build -> its objects that the source is compiled into."""
        found = {}
        for build in (tree.BUILD, tree.DOUBLE):
            if self.path.endswith(".c"):
                found[build] = ["%s/%s.o" % (build, self.path[:-2])]
                continue
            if build not in Mutant.including:
                Mutant.including[build] = {}
                for name in glob.glob("%s/%s/src/**/*.d" % (tree.ROOT, build), recursive=True):
                    with open(name, encoding="utf-8") as f:
                        for word in f.read().split():
                            if word.startswith("src/") and word.endswith(".h"):
                                Mutant.including[build].setdefault(word, []).append(os.path.relpath(name, tree.ROOT)[:-2] + ".o")
            found[build] = Mutant.including[build].get(self.path, [])
        return found

    def sources(self):
        """Itself, or what includes it."""
        return [self.path] if self.path.endswith(".c") else sorted(
            {re.sub(r"^build/[^/]*/(.*)\.o$", r"\1.c", name) for names in self.objects().values() for name in names})

    def compile(self):
        """Fills self.changed.  Why it is no mutant, or None."""
        for build, objects in self.objects().items():
            for name in objects:
                old, new = os.path.join(tree.ROOT, name), os.path.join(tree.TREE, name)
                source = re.sub(r"^%s/(.*)\.o$" % build, r"\1.c", name)
                os.makedirs(os.path.dirname(new), exist_ok=True)
                r = subprocess.run(["sh", "-c", tree.recipe(name, source) + " -w"], cwd=tree.TREE, capture_output=True)
                if r.returncode:
                    return "not compiled"
                plain = [os.path.join(tree.SCRATCH, n) for n in ("old.o", "new.o")]
                for a, b in zip((old, new), plain):
                    subprocess.run(["objcopy", "-g", a, b], check=True)
                with open(plain[0], "rb") as f, open(plain[1], "rb") as g:
                    if f.read() != g.read():
                        self.changed.setdefault(build, []).append(new)
        return None if self.changed else "same code"

    def link(self, program):
        """Puts the program with the changed objects into the tree; False where they are not in it."""
        build = program.split("/tests/")[0].rsplit("/depthscope", 1)[0]
        if build not in self.changed or program in self.linked:
            return build in self.changed
        if program not in Mutant.commands:
            library = "%s/libdepthscope.a" % build
            command = tree.recipe(program, library).replace(" -o %s " % program, " -o %s " % os.path.join(tree.TREE, program))
            Mutant.commands[program] = command.replace(" %s " % library, " OBJECTS %s " % library)
            for linker in ("lld", "gold"):
                if shutil.which("ld." + linker):
                    Mutant.commands[program] += " -Wl,-S -fuse-ld=" + linker
                    break
        os.remove(os.path.join(tree.TREE, program))
        self.linked.add(program)
        command = Mutant.commands[program].replace(" OBJECTS ", " %s " % " ".join(self.changed[build]))
        r = subprocess.run(["sh", "-c", command], cwd=tree.ROOT, capture_output=True, text=True)
        if r.returncode and re.search("duplicate symbol|multiple definition", r.stderr):  # it includes the source itself, as it was
            tree.place(os.path.join(tree.TREE, program), os.path.join(tree.ROOT, program))
            self.linked.discard(program)
            return False
        if r.returncode:
            raise RuntimeError("%s does not link: %s" % (program, r.stderr[-500:]))
        return True


def try_tests(mutant, tests, seconds, sound, budget, begin=0):
    """(how many have passed, what failed): less than all, and nothing, where the time is over."""
    for i, test in enumerate(tests[begin:], begin):
        if budget.left() <= 0:
            return i, None
        usual = seconds.get(test, 30)
        programs = [] if sound.get(test) is False else [p for p in tree.run_by(test) if mutant.link(p)]
        if not programs:
            continue
        wrong = tree.run_test(test, 5 * usual + 2, 10 * usual + 60)[0]
        if wrong and test not in sound:
            with mutant.without(programs):
                sound[test] = not tree.run_test(test, 5 * usual + 2, 10 * usual + 60)[0]
            if not sound[test]:
                budget.skipped("%s fails on the sources as they are" % test)
                continue
        if wrong:
            return i, "%s, %s" % (test, wrong)
    return len(tests), None


def judgements():
    """(path, line before, line after) -> {function or "": what was judged}."""
    found = {}
    for block in re.split(r"\n\s*\n", read("tests/proof/mutants_judged.txt")):
        lines = [s for s in block.split("\n") if s and not s.startswith("#")]
        if lines:
            assert len(lines) == 4 and [s[:2] for s in lines[1:]] == ["- ", "+ ", "= "], "mutants_judged.txt: not four lines: %s" % lines[0]
            path, _, function = lines[0].partition(", ")
            found.setdefault((path, lines[1][2:], lines[2][2:]), {})[function] = lines[3][2:]
    return found


def function_at(path, line):
    """The name of the function that has this line."""
    heads = [re.match(r"[a-z_][^;=]*?(\w+)\(", s) for s in read(path).split("\n")[:line]]
    return next((m.group(1) for m in reversed(heads) if m), "")


def judgement(judged, path, line, before, after):
    """"" where there is none."""
    by_function = judged.get((path, before, after), {})
    return by_function.get(function_at(path, line) if os.path.exists(os.path.join(tree.ROOT, path)) else "", by_function.get("", ""))


def again(entry):
    """The line of this survivor now and the text of its source with the change, or None where the line is no longer there."""
    if not os.path.exists(os.path.join(tree.ROOT, entry["file"])):
        return None
    source, best = read(entry["file"]), None
    lines = source.split("\n")
    for n, _, edits in mutate.sites(source):
        if lines[n - 1].strip() == entry["before"] and (best is None or abs(n - entry["line"]) < abs(best[0] - entry["line"])):
            text = mutate.apply(source, edits)
            if text.split("\n")[n - 1].strip() == entry["after"]:
                best = n, text
    return best


def settle(state, entry, result):
    """A survivor becomes one that is killed, or leaves the sample because its line is no longer in the sources."""
    state["survivors"].remove(entry)
    state["gone"] += result == "gone"
    for rows, name in ((state["layers"], entry["file"].split("/")[1]), (state["operators"], entry["operator"])):
        rows[name]["survived"] -= 1
        rows[name]["killed"] += result == "killed"


def review(state, tests, sound, budget):
    """Each survivor has passed all its tests and has a judgement, and a test that was added for one fails for it."""
    judged, end = judgements(), budget.left() / 2 if state["cursor"] < AIM else 0
    for entry in list(state["survivors"]):
        now = again(entry)
        if now is None:
            settle(state, entry, "gone")
            continue
        entry["line"], text = now
        where = "%s:%d: %s -> %s" % (entry["file"], entry["line"], entry["before"], entry["after"])
        entry["judgement"] = judgement(judged, entry["file"], entry["line"], entry["before"], entry["after"])
        added = re.match(r"test added: (tests/[^\s,]+)", entry["judgement"])
        if entry["judgement"] and (not added or entry.get("killed") == entry["judgement"]):
            budget.passed()
            continue
        mapped, _ = tests.of(Mutant(entry["file"], "").sources())
        if not added and len(mapped) != entry["of"]:  # the map is another
            entry["tests"], entry["of"] = 0, len(mapped)
        if not added and entry["tests"] == entry["of"]:
            budget.failed("%s: survived %d tests and is not judged" % (where, entry["of"]))
            continue
        if budget.left() < end:  # the rest is for new ones
            budget.skipped("%s: %s" % (where, "its test was not run" if added else "%d of %d tests were not run" % (
                entry["of"] - entry["tests"], entry["of"])))
            continue
        with Mutant(entry["file"], text) as mutant:
            if mutant.compile():
                settle(state, entry, "gone")
            elif added:
                if try_tests(mutant, [added.group(1)], tests.seconds, sound, budget)[1]:
                    entry["killed"] = entry["judgement"]
                    budget.passed()
                else:
                    budget.failed("%s: still survives %s" % (where, added.group(1)))
            else:
                entry["tests"], killer = try_tests(mutant, mapped, tests.seconds, sound, budget, entry["tests"])
                if killer:
                    settle(state, entry, "killed")
                    budget.passed()
                elif entry["tests"] == entry["of"]:
                    budget.failed("%s: survived %d tests and is not judged" % (where, entry["of"]))


def lacking():
    """Why this part cannot work here, or None."""
    if os.environ.get("BUILD_DIR", tree.BUILD) != tree.BUILD:
        return "mutants are compiled as in %s, and this is %s" % (tree.BUILD, os.environ["BUILD_DIR"])
    for tool in ("make", "cc", "objcopy"):
        if not shutil.which(tool):
            return "%s is not installed" % tool
    for build in (tree.BUILD, tree.DOUBLE):
        if not os.path.exists(os.path.join(tree.ROOT, build, "libdepthscope.a")):
            return "%s is not built" % build
    return None


def run(state, budget):
    why = lacking()
    if why:
        budget.skipped(why)
        return
    state.setdefault("seed", SEED)
    state.setdefault("cursor", 0)
    state.setdefault("gone", 0)
    state.setdefault("survivors", [])
    layers, operators = state.setdefault("layers", {}), state.setdefault("operators", {})
    tests, sound, sources = Tests(), {}, tree.sources()
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as f:
            flags = set(f.read().split())
    except OSError:
        flags = set()
    tree.make_tree()
    known = "src/routing/route.c"
    with Mutant(known, read(known)) as mutant:
        if mutant.compile() != "same code":
            budget.failed("%s compiled again is not what %s holds" % (known, " and ".join((tree.BUILD, tree.DOUBLE))))
            return
    review(state, tests, sound, budget)
    while budget.left() > 0 and (state["cursor"] < AIM or all(s["judgement"] for s in state["survivors"])):
        index = state["cursor"]
        path, line, operator, before, after, text = mutate.draw(random.Random("%d:%d" % (state["seed"], index)), sources, read)
        layer = layers.setdefault(path.split("/")[1], {"killed": 0, "survived": 0, "none": 0})
        kind = operators.setdefault(operator, {"killed": 0, "survived": 0, "none": 0})
        flag = next((f for part, f in KERNELS if part in path), None)
        with Mutant(path, text) as mutant:
            why = "this processor lacks " + flag if flag and flag not in flags else mutant.compile()
            result = "none"
            if not why:
                mapped, quick = tests.of(mutant.sources())
                passed, killer = try_tests(mutant, mapped[:quick], tests.seconds, sound, budget, state.pop("passed", 0))
                result = "killed" if killer else "survived"
                if not killer and passed < quick:
                    state["passed"] = passed  # goes on here
                    break
        if result == "survived":
            state["survivors"].append({"index": index, "file": path, "line": line, "operator": operator, "before": before, "after": after,
                                       "tests": quick, "of": len(mapped), "judgement": judgement(judgements(), path, line, before, after)})
            if not state["survivors"][-1]["judgement"]:
                where = "%s:%d: %s -> %s" % (path, line, before, after)
                if quick == len(mapped):
                    budget.failed("%s: survived %d tests and is not judged" % (where, quick))
                else:
                    budget.skipped("%s: survived %d tests; %d slow ones come next time" % (where, quick, len(mapped) - quick))
        if result == "killed":
            budget.passed()
        if os.environ.get("MUTANTS_VERBOSE"):
            print("%d %s:%d %s: %s -> %s: %s" % (index, path, line, operator, before, after,
                                                 why or (result + " by " + killer if killer else result)), flush=True)
        layer[result] += 1
        kind[result] += 1
        state["cursor"] = index + 1
    shutil.rmtree(tree.SCRATCH, ignore_errors=True)


def page(state):
    def table(head, rows):
        lines = ["| %s | killed | survived | no mutant |" % head, "|---|---|---|---|"]
        return lines + ["| %s | %d | %d | %d |" % (k, v["killed"], v["survived"], v["none"]) for k, v in sorted(rows.items())]
    if "layers" not in state:
        return "Not run yet."
    killed, survived, none = (sum(v[k] for v in state["layers"].values()) for k in ("killed", "survived", "none"))
    equal = [s for s in state["survivors"] if s["judgement"].startswith(("equivalent", "another program"))]
    added = [s for s in state["survivors"] if s.get("killed")]
    valid = killed + survived
    lines = ["%d mutants were drawn from src/%s. %d are no mutants: they do not compile, or their objects hold the same code, or this"
             % (state["cursor"], ", ".join(tree.LAYERS), none),
             "processor lacks their instructions. Of the other %d, the tests killed %d as they were: %s. Of the %d that survived, %d are"
             % (valid, killed, rate(killed, valid), survived, len(equal)),
             "equivalent or reached by another program alone, and %d are killed by tests added since; that is %s of the others."
             % (len(added), rate(killed + len(added), valid - len(equal))), ""]
    lines += table("layer", state["layers"]) + [""] + table("operator", state["operators"]) + [""]
    lines += ["A mutant is killed by a test that fails, crashes, or takes more than five times its usual processor time or ten times its",
              "usual time and a minute. A survivor passed the tests that run code of its source (mutants_map.json). Not drawn:",
              "initialisers at file scope, text of errors and logs, assertions, sizes of buffers, and calls that only release something",
              "(leaks are looked for under sanitizers).", ""]
    if state["survivors"]:
        lines += ["Survivors:", ""]
    for s in state["survivors"]:
        lines += ["- %s:%d (mutant %d, %d of %d tests): `%s` to `%s`: %s" % (
            s["file"], s["line"], s["index"], s["tests"], s["of"], s["before"], s["after"], s["judgement"] or "**not judged**")]
    if state["gone"]:
        lines += ["", "%d survivors are no longer in the sources, and in none of the figures." % state["gone"]]
    return "\n".join(lines)


def rate(a, b):
    return "%.1f %%" % (100 * a / b) if b else "-"
