#!/usr/bin/env python3
"""Writes mutants_map.json: which tests run code of which source, and the processor seconds of each.  Each function of the sources
begins with a trap in a copy of every test program and of the program that scripts drive; the first call of each marks its source
(mutants_trap.c).  Needs x86-64 Linux and `make programs`; takes about as long as the tests do.
    tests/proof/mutants_map.py [WORD...]    only the tests whose path has a word; the rest of the file stays"""
import json
import os
import re
import shutil
import struct
import subprocess
import sys

import mutants_tree as tree

MAP = os.path.join(os.path.dirname(os.path.abspath(__file__)), "mutants_map.json")


def segments(elf):
    """(file offset, address, size) of what is loaded."""
    at, size, n = struct.unpack_from("<Q", elf, 32)[0], *struct.unpack_from("<HH", elf, 54)
    for i in range(n):
        kind, _, offset, address, _, length = struct.unpack_from("<IIQQQQ", elf, at + i * size)
        if kind == 1:
            yield offset, address, length


def functions(program, index):
    """address -> source, of the functions of the sources."""
    r = subprocess.run(["nm", "--defined-only", program], capture_output=True, text=True, check=True)
    addresses = [s.split()[0] for s in r.stdout.split("\n") if re.match(r"[0-9a-f]+ [tT] ", s)]
    r = subprocess.run(["addr2line", "-e", program], input="\n".join(addresses), capture_output=True, text=True, check=True)
    found = {}
    for address, line in zip(addresses, r.stdout.split("\n")):
        m = re.search(r"(?:^|/)(src/[^:]*):\d", line)
        if m and m.group(1) in index:
            found[int(address, 16)] = index[m.group(1)]
    return found


def add_traps(program, index):
    """Replaces the program of the tree by one with traps."""
    source, there = os.path.join(tree.ROOT, program), os.path.join(tree.TREE, program)
    with open(source, "rb") as f:
        elf = bytearray(f.read())
    table, loaded = b"", list(segments(elf))
    for address, where in sorted(functions(source, index).items()):
        offset = next(o + address - a for o, a, n in loaded if a <= address < a + n)
        table += struct.pack("<III", address, where, elf[offset])
        elf[offset] = 0xcc
    os.remove(there)
    with open(there, "wb") as f:
        f.write(elf)
    os.chmod(there, 0o755)
    with open(there + ".traps", "wb") as f:
        f.write(table)


def write(names, reach, seconds):
    """Tests are in the order of their seconds; bit i of a source's mask is test i."""
    order = sorted((t for t in reach if t in tree.programs_of_tree), key=lambda t: (seconds[t], t))
    out = ["{", ' "tests": [']
    out += ["  %s%s" % (json.dumps([t, seconds[t]]), "," if t != order[-1] else "") for t in order]
    out += [" ],", ' "sources": {']
    masks = {n: "%x" % sum(1 << i for i, t in enumerate(order) if n in reach[t]) for n in names}
    out += ["  %s: %s%s" % (json.dumps(n), json.dumps(masks[n]), "," if n != names[-1] else "") for n in names]
    with open(MAP + ".new", "w", encoding="utf-8") as f:
        f.write("\n".join(out + [" }", "}"]) + "\n")
    os.replace(MAP + ".new", MAP)
    return order, masks


def main():
    words, names = sys.argv[1:], sorted(tree.sources())
    index = {name: i for i, name in enumerate(names)}
    known = {"tests": {}, "sources": {}}
    if words and os.path.exists(MAP):
        with open(MAP, encoding="utf-8") as f:
            known = json.load(f)
    rows = [[t, s] for t, s in known["tests"]] if words else []
    reach = {t: {n for n, mask in known["sources"].items() if int(mask, 16) >> i & 1} for i, (t, _) in enumerate(rows)}
    seconds = dict(rows)
    tree.make_tree()
    trap, hits = os.path.join(tree.SCRATCH, "trap.so"), os.path.join(tree.SCRATCH, "hits")
    subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-o", trap, os.path.join(os.path.dirname(MAP), "mutants_trap.c"), "-ldl"], check=True)
    todo = [t for t in tree.programs_of_tree if not words or any(w in t for w in words)]
    ready = set()
    for test in todo:
        program = tree.programs_of_tree[test]
        if program not in ready:  # what scripts drive is made once
            add_traps(program, index)
            ready.add(program)
        with open(hits, "wb") as f:
            f.write(bytes(len(names)))
        wrong, used = tree.run_test(test, 1200, 1200, LD_PRELOAD=trap, MUTANTS_HITS=hits)
        with open(hits, "rb") as f:
            found = {names[i] for i, b in enumerate(f.read()) if b}
        print("%-45s %6.2f s, %3d sources%s" % (test, used, len(found), ", " + wrong if wrong else ""), flush=True)
        reach[test], seconds[test] = found, round(used, 2)
        if not program.endswith("/depthscope"):
            tree.place(os.path.join(tree.TREE, program), os.path.join(tree.ROOT, program))  # they are large
        order, masks = write(names, reach, seconds)
    shutil.rmtree(tree.SCRATCH, ignore_errors=True)
    none = " ".join(n for n in names if masks[n] == "0")
    print("%d tests, %.0f s; not run by any: %s" % (len(order), sum(seconds[t] for t in order), none or "none"))


if __name__ == "__main__":
    main()
