"""depthscope import: counts against an independent sum of the input, the records that are written, and bad input.
DEPTHSCOPE names the program."""
import json
import math
import os
import random
import struct
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import t  # noqa: E402
from t import refused, run, run_json, test  # noqa: E402

E, K = 16, 4


# ---- a reader of the records that shares nothing with the program ----

def unpack(b, at):
    c = b[at]
    at += 1
    if c < 0x80:
        return c, at
    if c >= 0xE0:
        return c - 256, at
    if c < 0x90:
        return pairs(b, at, c & 15)
    if c < 0xA0:
        return items(b, at, c & 15)
    if c < 0xC0:
        return b[at:at + (c & 31)].decode(), at + (c & 31)
    if c in (0xC0, 0xC2, 0xC3):
        return {0xC0: None, 0xC2: False, 0xC3: True}[c], at
    if c in (0xC4, 0xC5, 0xC6):
        size = 1 << (c - 0xC4)
        n = int.from_bytes(b[at:at + size], "big")
        return b[at + size:at + size + n], at + size + n
    numbers = {0xCA: ">f", 0xCB: ">d", 0xCC: ">B", 0xCD: ">H", 0xCE: ">I", 0xCF: ">Q", 0xD0: ">b", 0xD1: ">h", 0xD2: ">i", 0xD3: ">q"}
    if c in numbers:
        size = struct.calcsize(numbers[c])
        return struct.unpack(numbers[c], b[at:at + size])[0], at + size
    if c in (0xD9, 0xDA, 0xDB):
        size = 1 << (c - 0xD9)
        n = int.from_bytes(b[at:at + size], "big")
        return b[at + size:at + size + n].decode(), at + size + n
    size = 2 if c in (0xDC, 0xDE) else 4
    n = int.from_bytes(b[at:at + size], "big")
    return (items if c in (0xDC, 0xDD) else pairs)(b, at + size, n)


def items(b, at, n):
    out = []
    for _ in range(n):
        v, at = unpack(b, at)
        out.append(v)
    return out, at


def pairs(b, at, n):
    out = {}
    for _ in range(n):
        k, at = unpack(b, at)
        out[k], at = unpack(b, at)
    return out, at


def records(path):
    b, at, out = open(path, "rb").read(), 0, []
    while at < len(b):
        n = struct.unpack(">I", b[at + 1:at + 5])[0]
        out.append(unpack(b[at + 18:at + 6 + n], 0)[0])
        at += 6 + n
    return out


def floats(data):
    return struct.unpack("<%df" % (len(data) // 4), data)


def loads(recs):
    """Sum of the matrices: {(layer, expert): count}, zeros left out."""
    out = {}
    for r in recs:
        if r["kind"] == "matrix":
            assert r["name"] == "expert_load" and len(r["layer"]) == r["rows"], r
            v = floats(r["value"])
            assert len(v) == r["rows"] * r["cols"], (len(v), r["rows"], r["cols"])
            for i, n in enumerate(v):
                key = (r["layer"][i // r["cols"]], i % r["cols"])
                if n:
                    out[key] = out.get(key, 0) + n
    return out


def cells(recs):
    """{(probe name, layer, column, slot): expert} of all probes."""
    out = {}
    for r in recs:
        if r["kind"] != "probe":
            continue
        n = len(r["ids"])
        for name, data in r["cell"].items():
            assert r["cell_kind"][name] == ("amount" if "weight" in name else "category"), name
            assert len(data) == 4 * n * r["layers"], name
            for i, v in enumerate(floats(data)):
                if v == v:
                    out[(r["name"], i // n, i % n, name)] = v
    return out


def add(out, layer, expert):
    out[(layer, expert)] = out.get((layer, expert), 0) + 1


def same_as_summary(want, told):
    got = {(row["layer"], x): n for row in told["per_layer"] for x, n in enumerate(row["loads"]) if n}
    assert got == want, "summary: %d counts of %d differ" % (len(set(got.items()) ^ set(want.items())), len(want))
    assert told["loads_total"] == sum(want.values()), told["loads_total"]
    dead = {(d["layer"], d["expert"]) for d in told["dead_experts"]}
    assert dead == {(r["layer"], x) for r in told["per_layer"] for x in range(told["experts"])} - set(want), dead
    for row in told["per_layer"]:
        assert row["loads"][row["hottest"]] == max(row["loads"]), row
        mean = sum(row["loads"]) / told["experts"]
        cv = math.sqrt(sum((n - mean) ** 2 for n in row["loads"]) / told["experts"]) / mean
        assert abs(row["cv"] - cv) < 1e-7 and abs(row["hottest_relative"] - max(row["loads"]) / mean) < 1e-6, row


def imported(want, *words):
    told = run_json("import", *words, "-o", "t.mp")
    recs = records("t.mp")
    assert loads(recs) == want, "%r: matrices differ from the input" % (words,)
    same_as_summary(want, told)
    assert recs[0]["kind"] == "head" and recs[0]["experts"] == told["experts"] and recs[0]["layers"] == told["layers"]
    text = run("inspect", "t.mp")
    assert "damaged" not in text and "%d matrix" % sum(r["kind"] == "matrix" for r in recs) in text, text
    return told, recs


# ---- the inputs ----

def write(path, text):
    with open(path, "wb") as f:
        f.write(text if isinstance(text, bytes) else text.encode())
    return path


def npy(path, values, shape, descr="<i2", fortran=False, version=1):
    head = "{'descr': '%s', 'fortran_order': %s, 'shape': %s, }" % (descr, fortran, "(%s,)" % ", ".join(map(str, shape)))
    size = 2 if version == 1 else 4
    head += " " * (-(8 + size + len(head) + 1) % 64) + "\n"
    code = {"i1": "b", "i2": "h", "i4": "i", "i8": "q", "u1": "B", "u2": "H", "u4": "I", "f2": "e", "f4": "f", "f8": "d"}[descr[1:]]
    return write(path, b"\x93NUMPY" + bytes([version, 0]) + len(head).to_bytes(size, "little") + head.encode() +
                 struct.pack("%s%d%s" % (descr[0] if descr[0] != "|" else "<", len(values), code), *values))


def choose(r):
    return r.sample(range(E), K)


def csv_rows(r, tokens, layers):
    rows = [(at, l, x, round(r.random(), 4)) for at in range(tokens) for l in layers for x in choose(r)]
    want = {}
    for _, l, x, _ in rows:
        add(want, l, x)
    return rows, want


def megatron(r, path, rank, steps=3, tokens=64, layers=(0, 2, 3), want=None, mtp=False, micro=1):
    with open(path, "w") as f:
        for step in range(steps):
            for _ in range(micro):
                for l in layers:
                    top = [choose(r) for _ in range(tokens)]
                    for row in top:
                        for x in row:
                            add(want, l, x)
                    f.write(json.dumps({"step": step, "stage": "pre_dispatch", "block": "decoder", "layer": l, "rank": rank,
                                        "num_tokens": tokens, "topk": K, "top_indices": top}) + "\n")
            if mtp:
                top = [choose(r) for _ in range(tokens)]
                for row in top:
                    for x in row:
                        add(want, max(layers) + 1, x)
                f.write(json.dumps({"step": step, "stage": "pre_dispatch", "block": "mtp", "layer": 0, "rank": rank,
                                    "num_tokens": tokens, "topk": K, "top_indices": top, "mtp_idx": 0}) + "\n")
    return path


BIGMOE = ("# route_trace v1\n# model=/m.gguf arch=qwen3moe n_layer=5 n_expert=%d n_expert_used=%d\n# layer=0 expert_bytes=1 dense_bytes=2\n"
          "turn,phase,step,layer,slot,expert,weight,residency,expert_bytes,dropped\n" % (E, K))


# ---- formats ----

@test
def csv_of_any_order_names_and_separator_counts_as_its_rows():
    r = random.Random(1)
    rows, want = csv_rows(r, 700, (1, 2, 4))
    write("a.csv", "token,layer,expert,weight\n" + "".join("%d,%d,%d,%g\n" % x for x in rows))
    told, recs = imported(want, "a.csv")
    assert (told["format"], told["tokens"], told["experts_per_token"], told["layers"], told["moe_layers"]) == ("csv", 700, K, 5, 3), told
    assert [len(p["ids"]) for p in recs if p["kind"] == "probe"] == [512, 188]
    got, order = cells(recs), {}
    for at, l, x, weight in rows:
        k = order[(at, l)] = order.get((at, l), -1) + 1
        name = "text 0, tokens %s" % ("0-511" if at < 512 else "512-699")
        suffix = "_%d" % (k + 1) if k else ""
        assert got.pop((name, l, at % 512, "expert" + suffix)) == x
        assert abs(got.pop((name, l, at % 512, "expert_weight" + suffix)) - weight) < 1e-6
    assert not got, "%d cells that no row has" % len(got)
    first = [p for p in recs if p["kind"] == "probe"][0]
    assert first["run"] == b"\1" * (5 * 512) and first["inferred"] == ["run"], "layers 0 and 3 have no experts"
    r.shuffle(rows)
    write("b.tsv", "Expert ID\tPosition\tother\t\"Layer\"\r\n" + "".join("%d\t%d\t\"a\tb\"\t%d\r\n" % (x, at, l) for at, l, x, _ in rows))
    told, recs = imported(want, "b.tsv")
    assert told["tokens"] == 700 and not any("weight" in name for p in recs if p["kind"] == "probe" for name in p["cell"])
    write("c.csv", "layer;weight;expert;token\n" + "".join("%d;%s;%d.0;%d\n" % (l, str(w).replace(".", ","), x, at) for at, l, x, w in rows))
    _, recs = imported(want, "c.csv")
    assert any("expert_weight" in p["cell"] for p in recs if p["kind"] == "probe")


@test
def csv_texts_steps_and_ids():
    r = random.Random(2)
    text, want = "request_id,iteration,pos,token,layer,expert\n", {}
    for q in range(3):
        for at in range(20):
            for l in range(2):
                for x in choose(r):
                    text += "req-%s,%d,%d,%d,%d,%d\n" % ("abc"[q], q * 10, at, 97 + at, l, x)
                    add(want, l, x)
    write("q.csv", text)
    told, recs = imported(want, "q.csv", "--tokenizer", "bytes")
    probes = [p for p in recs if p["kind"] == "probe"]
    assert [m["step"] for m in recs if m["kind"] == "matrix"] == [0, 10, 20] == [p["step"] for p in probes]
    assert [p["index"] for p in probes] == [0, 1, 2]
    for p in probes:
        assert p["ids"] == list(range(97, 117)) and b"".join(p["text"]) == b"abcdefghijklmnopqrst", p["text"]
        assert "inferred" not in p, "every cell has an expert"
    imported(want, "q.csv")
    assert "text" not in records("t.mp")[-1]


@test
def csv_texts_are_told_apart_by_their_cells():
    names = ["0", "a", "1", "012", "12", "b", "-1", "1e1", "10"]
    want, text = {}, "request,token,layer,expert\n"
    for q, name in enumerate(names + names[::-1]):
        for at in range(3):
            x = (q + at) % 5
            text += "%s,%d,%d,%d\n" % (name, at, q >= len(names), x)
            add(want, int(q >= len(names)), x)
    write("mixed.csv", text)
    told, recs = imported(want, "mixed.csv")
    assert told["tokens"] == 3 * len(names) and told["experts_per_token"] == 1, told
    texts = {p["name"].split(",")[0] for p in recs if p["kind"] == "probe"}
    assert len(texts) == len(names) and {"text 0", "text 1", "text 12", "text 10"} <= texts, texts
    write("numbers.csv", "request,token,layer,expert\n70,0,0,1\n7,0,0,2\n")
    _, recs = imported({(0, 1): 1, (0, 2): 1}, "numbers.csv")
    assert [p["name"] for p in recs if p["kind"] == "probe"] == ["text 70, tokens 0-0", "text 7, tokens 0-0"]


@test
def csv_tokens_that_are_ids_have_text():
    r, want = random.Random(12), {}
    ids = [ord(c) for c in "the cat ate the rat"]
    top = [[choose(r) for _ in range(3)] for _ in ids]
    rows = [(at, l, k, top[at][l][k]) for at in range(len(ids)) for l in range(3) for k in range(K)]
    for _, l, _, x in rows:
        add(want, l, x)
    by_layer = sorted(rows, key=lambda row: (row[1], row[0], row[2]))
    for name, order in (("by-token.csv", rows), ("by-layer.csv", by_layer)):
        write(name, "token,layer,rank,expert\n" + "".join("%d,%d,%d,%d\n" % (ids[at], l, k, x) for at, l, k, x in order))
        _, recs = imported(want, name, "--tokenizer", "bytes")
        assert b"".join(recs[-1]["text"]) == b"the cat ate the rat" and recs[-1]["ids"] == ids, recs[-1]["text"]
        got = cells(recs)
        assert all(got[(recs[-1]["name"], l, at, "expert_%d" % (k + 1) if k else "expert")] == x for at, l, k, x in rows), name
    write("far.csv", "token,layer,expert\n104,0,1\n50000,0,2\n")
    refused("token id 50000: must be below the vocabulary of 257", "import", "far.csv", "--tokenizer", "bytes", "-o", "bad.mp", code=1)
    write("places.csv", "token,layer,expert\n0,0,1\n1,0,2\n2,0,2\n")
    run("import", "places.csv", "--tokenizer", "bytes", "-o", "t.mp")
    assert "no token ids" in run.err and "text" not in records("t.mp")[-1], run.err


@test
def megatron_ranks_are_merged_and_micro_batches_kept_apart():
    r, want = random.Random(3), {}
    paths = [megatron(r, "router_trace_rank%d.jsonl" % k, k, want=want, mtp=True, micro=2) for k in range(3)]
    told, recs = imported(want, *paths)
    assert (told["format"], told["experts_per_token"], told["layers"], told["tokens"]) == ("megatron", K, 5, 3 * 3 * 2 * 64), told
    assert [m["step"] for m in recs if m["kind"] == "matrix"] == [0, 1, 2]
    got = cells(recs)
    line = json.loads(open(paths[1]).readline())
    for at, row in enumerate(line["top_indices"]):
        for k, x in enumerate(row):
            assert got[("rank 1, tokens 0-383", 0, at, "expert_%d" % (k + 1) if k else "expert")] == x
    write("all.jsonl", b"".join(open(p, "rb").read() for p in paths))
    imported(want, "all.jsonl")


@test
def megatron_repeats_and_replicas_count_once():
    r, want = random.Random(4), {}
    a = megatron(r, "a.jsonl", 0, want=want)
    text = open(a).read()
    write("twice.jsonl", "".join(line + "\n" + line + "\n" for line in text.splitlines()))
    told, _ = imported(want, "twice.jsonl")
    assert told["duplicates"] == 9 and "not counted again" in told["notes"][0], told["notes"]
    write("replica.jsonl", text.replace('"rank": 0', '"rank": 5'))
    told, _ = imported(want, a, "replica.jsonl")
    assert "equal another but for the rank" in told["notes"][0], told["notes"]


@test
def llama_has_loads_only():
    r, want, text = random.Random(5), {}, ""
    for n in [37] + [1] * 9:
        for l in (1, 2, 3):
            for _ in range(n if l < 3 else 1):
                for x in choose(r):
                    text += "%d,%d\n" % (l, x)
                    add(want, l, x)
    write("m.csv", text)
    told, recs = imported(want, "m.csv")
    assert told["format"] == "llama" and told["tokens"] == 0 and told["experts_per_token"] == K, told
    assert told["notes"] == ["llama.cpp's moe-trace has no tokens: loads only"], told["notes"]
    assert sum(m["kind"] == "matrix" for m in recs) == 10 and not any(p["kind"] == "probe" for p in recs)
    write("named.csv", "layer,expert\n" + text)
    assert imported(want, "named.csv")[0]["format"] == "llama"


@test
def bigmoe_prefill_and_decode_share_an_axis():
    r, want, text = random.Random(6), {}, BIGMOE
    for turn in range(2):
        for at in range(turn * 30, turn * 30 + 30):
            for l in (1, 2, 3, 4):
                if l == 4 and at % 30 < 19:
                    continue  # the last layer routes only the last token of a prompt
                for k, x in enumerate(choose(r)):
                    text += "%d,%d,%d,%d,%d,%d,%s,0,0,%d\n" % (turn, at % 30 >= 20, at, l, k, x, "nan" if l == 2 else 0.25, k == 3)
                    add(want, l, x)
    write("b.csv", text)
    told, recs = imported(want, "b.csv")
    assert (told["format"], told["layers"], told["experts"], told["tokens"]) == ("bigmoe", 5, E, 60), told
    assert sum(m["kind"] == "matrix" for m in recs) == 22, "a prompt and ten tokens, twice"
    got = cells(recs)
    assert ("turn 0, tokens 0-29", 4, 18, "expert") not in got and ("turn 0, tokens 0-29", 4, 19, "expert") in got
    assert ("turn 1, tokens 30-59", 1, 0, "expert_weight") in got and ("turn 1, tokens 30-59", 2, 0, "expert_weight") not in got


@test
def arrays_in_any_order_and_type_are_the_same():
    r = random.Random(7)
    T, L = 40, 3
    top = [[choose(r) for _ in range(L)] for _ in range(T)]
    want = {}
    for token in top:
        for l, row in enumerate(token):
            for x in row:
                add(want, l, x)
    flat = [x for token in top for row in token for x in row]
    npy("a.npy", flat, (T, L, K))
    told, recs = imported(want, "a.npy")
    plain = cells(recs)
    assert (told["format"], told["tokens"], told["layers"], told["experts_per_token"]) == ("npy", T, L, K), told
    assert all(plain[("request 0, tokens 0-39", l, at, "expert_%d" % (k + 1) if k else "expert")] == x
               for at, token in enumerate(top) for l, row in enumerate(token) for k, x in enumerate(row))
    other = [x for l in range(L) for token in top for x in token[l]]
    fortran = [top[at][l][k] for k in range(K) for l in range(L) for at in range(T)]
    for words in ((npy("b.npy", other, (L, T, K), "<i4"), "--layers", str(L)), (npy("c.npy", fortran, (T, L, K), "<i8", True),),
                  (npy("d.npy", flat, (T, L, K), ">i4"),), (npy("e.npy", flat, (T, L, K), "|u1", version=2),)):
        assert cells(imported(want, *words)[1]) == plain, words
    ids = [(7 * i) % 256 for i in range(T + 1)]
    weights = [i / 1000 for i in range(T * L * K)]
    npy("ids.npy", ids, (T + 1,), "<i4")
    npy("w.npy", weights, (T, L, K), "<f2")
    for words in (("a.npy",), ("b.npy",)):  # the ids tell the axes
        told, recs = imported(want, *words, "ids.npy", "--tokenizer", "bytes")
        assert recs[-1]["ids"] == ids[:T] and recs[-1]["text"] == [bytes([i]) for i in ids[:T]]
    _, recs = imported(want, "w.npy", "a.npy")
    assert abs(cells(recs)[("request 0, tokens 0-39", 1, 2, "expert_weight_3")] - (2 * L * K + K + 2) / 1000) < 1e-4
    imported({key: 2 * n for key, n in want.items()}, "a.npy", "b.npy", "--layers", "3")
    prompt, rest = npy("prompt.npy", flat[:25 * L * K], (25, L, K)), npy("rest.npy", flat[25 * L * K:], (T - 25, L, K))
    _, recs = imported(want, prompt, rest, "ids.npy")  # one request in two parts
    assert cells(recs) == plain and recs[-1]["ids"] == ids[:T]
    refused("41 token ids, expected 80 for 2 arrays", "import", "a.npy", "c.npy", "ids.npy", "-o", "bad.mp", code=1)


@test
def arrays_with_dense_layers_and_missing_tokens():
    r, want, flat = random.Random(8), {}, []
    for at in range(30):
        for l in range(3):
            row = [0] * K if l == 0 else [-1] * K if at < 5 else choose(r)
            flat += row
            for x in row:
                if l and x >= 0:
                    add(want, l, x)
    npy("a.npy", flat, (30, 3, K))
    told, recs = imported(want, "a.npy")
    assert told["notes"] == ["1 layer without experts (all 0): not counted"] and told["moe_layers"] == 2 and told["layers"] == 3, told
    assert told["tokens"] == 30


# ---- bounds ----

@test
def a_long_trace_is_thinned_and_still_counted():
    r, T, L = random.Random(9), 512 * 300, 2
    flat = [r.randrange(64) for _ in range(T * L * 2)]
    want = {}
    for i, x in enumerate(flat):
        add(want, i // 2 % L, x)
    npy("long.npy", flat, (T, L, 2), "|i1")
    told, recs = imported(want, "long.npy")
    kept = [p["name"] for p in recs if p["kind"] == "probe"]
    assert told["tokens"] == T and told["windows"] == 300 and told["windows_kept"] == 150 == len(kept), told["windows_kept"]
    assert kept[1] == "request 0, tokens 1024-1535" and any(n.startswith("thinned: 150 of 300") for n in told["notes"]), told["notes"]


@test
def many_steps_are_added_up():
    text, want = "step,token,layer,expert\n", {}
    for step in range(1000):
        text += "%d,0,%d,%d\n" % (step * 1000000007, step % 3, step % 7)
        add(want, step % 3, step % 7)
    write("s.csv", text)
    _, recs = imported(want, "s.csv")
    steps = [m["step"] for m in recs if m["kind"] == "matrix"]
    assert len(steps) <= 256 and steps == sorted(set(steps)) and steps[-1] == 999 * 1000000007, len(steps)


# ---- bad input ----

@test
def every_cut_is_a_line_or_a_smaller_trace():
    r, want = random.Random(10), {}
    rows, _ = csv_rows(r, 2, (0, 1))
    inputs = {"a.csv": "token,layer,expert,weight\n" + "".join("%d,%d,%d,%g\n" % x for x in rows), "b.csv": BIGMOE + "0,0,0,1,0,3,nan,0,0,0\n",
              "m.csv": "0,1\n0,12\n1,3\n"}
    megatron(r, "x.jsonl", 0, steps=2, tokens=2, layers=(0, 1), want=want)
    inputs["m.jsonl"] = open("x.jsonl").read()
    npy("x.npy", list(range(12)), (3, 2, 2))
    inputs["a.npy"] = open("x.npy", "rb").read()
    for name, whole in inputs.items():
        whole = whole if isinstance(whole, bytes) else whole.encode()
        for n in range(0, len(whole), max(1, len(whole) // 150)):
            write("cut-" + name, whole[:n])
            status, _, err = t.call("import", "cut-" + name, "-o", "cut.mp")
            assert status in (0, 1), (name, n, err)
            if status:
                t.one_line([name, n], err)


@test
def a_last_line_without_a_line_break_is_noted_and_standard_input_is_a_file():
    for name, text in (("l.csv", "0,1\n0,12"), ("c.csv", "token,layer,expert\n0,0,1\n1,0,12")):
        for end, notes in (("\n", 0), ("", 1)):
            write(name, text + end)
            told = run_json("import", name, "--json")
            assert told["loads_total"] == 2 and str(told["notes"]).count("counted as it is") == notes, told
    with open("l.csv") as f:
        assert json.loads(t.call("import", "-", "--json", stdin=f)[1])["loads_total"] == 2
    status, _, err = t.call("import", "-", "--json", data=b"0,1\n")
    assert status == 1 and "write a pipe to a file first" in err, err


@test
def refusals_name_the_place():
    head = "token,layer,expert,slot\n"
    for text, part in (
            (head + "0,0,-1,0\n", "bad.csv:2: expert -1: must be 0 to 4095"),
            (head + "0,0,99999999999999999999,0\n", "bad.csv:2: column \"expert\": \"99999999999999999999\": expected a whole number"),
            (head + "0,5000,1,0\n", "bad.csv:2: layer 5000: must be 0 to 4095"),
            (head + "0,0,1,0\n0,0,2,0\n", "text 0, token 0, layer 0: duplicate rank 0"),
            (head + "0,0,1,70\n", "rank 70"),
            (head + "-2,0,1,0\n", "token -2: must be 0 or more"),
            (head + "0,0,1,64\n", "rank 64 of an expert: must be 0 to 63"),
            ("token,layer,expert\n" + "".join("0,0,%d\n" % x for x in range(65)), "text 0, token 0, layer 0: more than 64 experts"),
            ("pos,token,layer,expert\n0,5,0,1\n0,6,0,2\n", "token id 6, but 5 in an earlier row of this token"),
            ("pos,token,layer,expert\n0,3000000000,0,1\n", "token id 3000000000: must be 0 to 2147483647"),
            ("request_id,token,layer,expert\n4000000000000000000,0,0,1\n", "text 4000000000000000000: must be 0 to 2^61"),
            ("token,layer,expert" + ",c" * 600 + "\n", "bad.csv:1: more than "),
            (head + "0,0,1\n0,0,2,1\n", "bad.csv:2: 3 cells, expected 4"),
            (head + "0,0,1,0,7\n", "bad.csv:2: more cells than columns"),
            (head + "x,0,1,0\n", "bad.csv:2: column \"token\": \"x\""),
            (head + "\"0,0,1,0\n", "missing closing quote"),
            (head, "no routings"),
            ("token,expert\n0,1\n", "expected a routing trace"),
            ("token,layer,layer,expert\n0,1,1,1\n", "duplicate column"),
            ("step,loss\n1,2\n", "expected a routing trace"),
            ("0,1\n0,x\n1,2\n", "bad.csv:2: expected layer,expert"),
            ("0,1\n-1,2\n", "layer -1"),
            ("# route_trace v1\n# n_expert=4\nturn,phase,step,layer,slot,expert\n0,0,0,0,0,4\n", "bad.csv:4: expert 4: must be 0 to 3"),
            ("# route_trace v1\n# n_expert=9999999\nturn\n", "n_expert=9999999: must be 1 to 4096"),
            ("", "empty file"),
            (b"\x1f\x8b\x08\0", "gunzip"),
            (b"PK\3\4....", "numpy.load"),
            ('{"step": 0, "layer": 0, "top_indices": [[1, -2]]}\n', "bad.csv:1: expert -2"),
            ('{"step": 0, "layer": 0, "num_tokens": 2, "top_indices": [[1, 2]]}\n', "num_tokens 2, but 1 lists"),
            ('{"step": 0, "layer": 0, "topk": 1, "top_indices": [[1, 2]]}\n', "topk 1, but 2 indices"),
            ('{"step": -1, "layer": 0, "top_indices": [[1, 2]]}\n', "step"),
            ('{"step": 0, "layer": 0, "top_indices": [[1, "2"]]}\n', "bad.csv:1: expected \"top_indices\"")):
        refused(part, "import", write("bad.csv", text), "-o", "bad.mp", code=1)
        assert not os.path.exists("bad.mp"), text
    for shape, values, descr, part in (((3, 2), [1] * 5, "<i2", "truncated"), ((2,) * 4, [1] * 16, "<i2", "expected (tokens, layers, k)"),
                                       ((2 ** 40, 2 ** 40, 2), [1], "<i2", "array of shape"), ((1, 5000, 1), [1] * 5000, "<i2", "--layers N"),
                                       ((1, 1, 1), [-2], "<i2", "expert -2"), ((2, 1, 2), [1.5] * 4, "<f4", "expected an array of experts")):
        refused(part, "import", npy("bad.npy", values, shape, descr), "-o", "bad.mp", code=1)
    write("obj.npy", open(npy("bad.npy", [1], (1,)), "rb").read().replace(b"'<i2'", b"'|O' "))
    refused("expected integers or floats", "import", "obj.npy", "-o", "bad.mp", code=1)
    npy("ok.npy", [0, 1, 1, 0], (2, 1, 2))
    refused("expected (tokens, 3, k)", "import", "ok.npy", "--layers", "3", "-o", "bad.mp", code=1)
    refused("5 token ids, expected 2", "import", "ok.npy", npy("ids.npy", [1] * 5, (5,)), "-o", "bad.mp", code=1)
    refused("must be below", "import", "ok.npy", npy("ids.npy", [1, 300], (2,)), "--tokenizer", "bytes", "-o", "bad.mp", code=1)
    assert "token id 300: must be below the vocabulary of 257" in run.err, run.err
    run("import", "ok.npy", "ids.npy", "--tokenizer", "bytes", "--no-text", "-o", "ok.mp")
    assert records("ok.mp")[-1]["ids"] == [1, 300]
    refused("--experts 0", "import", "ok.npy", "--experts", "0", "-o", "bad.mp")
    refused("expert 1: must be 0 to 0", "import", "ok.npy", "--experts", "1", "-o", "bad.mp", code=1)
    refused("format \"x\": must be one of", "import", "ok.npy", "--format", "x", "-o", "bad.mp")
    refused("missing output", "import", "ok.npy")
    refused("missing FILE", "import", "-o", "bad.mp")
    write("mixed.csv", "0,1\n")
    refused("expected routed_experts array", "import", "ok.npy", "mixed.csv", "-o", "bad.mp", code=1)
    write("kept.txt", "not a trace")
    refused("not a record file", "import", "ok.npy", "-o", "kept.txt", code=1)


@test
def uneven_traces_are_read_and_told():
    write("k.csv", "token,layer,expert\n0,0,1\n0,0,2\n1,0,3\n1,1,3\n1,1,3\n0,1,")
    told = run_json("import", "k.csv", "-o", "t.mp")
    assert told["loads_total"] == 5 and told["experts_per_token"] == 2, told
    assert told["notes"] == ["the last line is incomplete: not counted", "experts per token and layer: 1 to 2",
                             "1 times a token is sent to the same expert twice in a layer"], told["notes"]
    write("far.csv", "token,layer,expert\n0,0,1\n4000000000000,0,2\n")
    told, recs = imported({(0, 1): 1, (0, 2): 1}, "far.csv", "--experts", "8", "--layers", "12")
    assert (told["experts"], told["layers"], told["tokens"]) == (8, 12, 2) and recs[-1]["layers"] == 12, told
    write("plain.csv", "0,0,1,0.5\n0,1,2,0.5\n")
    told, _ = imported({(0, 1): 1, (1, 2): 1}, "plain.csv")
    assert told["notes"] == ["no column names: read as token, layer, expert, weight"], told["notes"]
    write("train.csv", "step,token,layer,expert\n" + "".join("%d,%d,0,%d\n" % (s, at, s) for s in range(3) for at in range(5)))
    assert imported({(0, s): 5 for s in range(3)}, "train.csv")[0]["tokens"] == 15, "each step has a batch of its own"
    write("decode.csv", "step,token,layer,expert\n" + "".join("%d,%d,0,%d\n" % (s, s, s) for s in range(9)))
    told, recs = imported({(0, s): 1 for s in range(9)}, "decode.csv")
    assert [len(p["ids"]) for p in recs if p["kind"] == "probe"] == [9] and sum(m["kind"] == "matrix" for m in recs) == 9
    write("none.csv", "layer_id,expert_id,extra\n0,1,2\n")
    told, _ = imported({(0, 1): 1}, "none.csv")
    assert told["notes"] == ["no column of tokens: loads only"] and told["tokens"] == 0, told


t.main()
