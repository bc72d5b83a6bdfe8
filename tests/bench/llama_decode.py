#!/usr/bin/env python3
"""Decoding and prefill compared with llama.cpp, in alternating turns: llama_decode.py [shape=1.1b|small] [type=F32,BF16,Q8_0,Q4_0]
[model=FILE.gguf,FILE.gguf] [rounds=3] [prefill=512] [decode=16].  Both sides open the same file, in bf16 (F32 in fp32): one of
random weights, or those of model=, of any type.  It needs no tokenizer.  PYTHON=... names the interpreter that has llama_cpp and gguf;
OMP_NUM_THREADS the threads of both (2).  Weights are random: speed does not depend on them.  Files go to TMPDIR, one at a time."""
import os
import sys
import tempfile
import time

import side_by_side

# layers, dim, heads, kv_heads, ffn, vocab
SHAPES = {"1.1b": (22, 2048, 32, 4, 5632, 32000), "small": (6, 256, 4, 4, 1024, 4096)}
TYPES = ("F32", "BF16", "Q8_0", "Q4_0")


def write_model(path, shape, kind):
    """One tensor of each size is rounded and written for every layer: the bytes read are as many."""
    import gguf
    import numpy as np
    layers, dim, heads, kv_heads, ffn, vocab = SHAPES[shape]
    kinds, made = gguf.GGMLQuantizationType, {}
    w = gguf.GGUFWriter(path, "llama")
    w.add_block_count(layers)
    w.add_context_length(4096)
    w.add_embedding_length(dim)
    w.add_feed_forward_length(ffn)
    w.add_head_count(heads)
    w.add_head_count_kv(kv_heads)
    w.add_layer_norm_rms_eps(1e-5)
    w.add_rope_dimension_count(dim // heads)
    w.add_vocab_size(vocab)
    w.add_tokenizer_model("no_vocab")

    def add(name, *size):
        if size not in made:
            x = np.random.default_rng(1).standard_normal(size, dtype=np.float32) * np.float32(0.02)
            made[size] = (1 + 0 * x, kinds.F32) if len(size) == 1 else (gguf.quants.quantize(x, kinds[kind]), kinds[kind])
        data, raw = made[size]
        w.add_tensor(name, data, raw_dtype=raw)

    add("token_embd.weight", vocab, dim)
    add("output.weight", vocab, dim)
    add("output_norm.weight", dim)
    for l in range(layers):
        for name, size in {"attn_norm": (dim,), "ffn_norm": (dim,), "attn_q": (dim, dim), "attn_output": (dim, dim),
                           "attn_k": (dim // heads * kv_heads, dim), "attn_v": (dim // heads * kv_heads, dim),
                           "ffn_gate": (ffn, dim), "ffn_up": (ffn, dim), "ffn_down": (dim, ffn)}.items():
            add("blk.%d.%s.weight" % (l, name), *size)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def without_tokenizer(L, path):
    """What llama.cpp has to be told of a file that holds no tokenizer; None when it holds one."""
    import gguf
    file = gguf.GGUFReader(path)
    if "tokenizer.ggml.model" in file.fields:
        return None
    vocab = [int(t.shape[1]) for t in file.tensors if t.name == "token_embd.weight"][0]
    said = (L.llama_model_kv_override * 3)()  # a third without a key ends them
    said[0].key, said[0].tag, said[0].value.val_str = b"tokenizer.ggml.model", L.LLAMA_KV_OVERRIDE_TYPE_STR, b"no_vocab"
    family = file.fields["general.architecture"].contents()
    said[1].key, said[1].tag, said[1].value.val_i64 = ("%s.vocab_size" % family).encode(), L.LLAMA_KV_OVERRIDE_TYPE_INT, vocab
    return said


class Model:
    def __init__(self, want):
        import llama_cpp as L
        self.L, self.prefill, self.decode = L, want["prefill"], want["decode"]
        L.llama_backend_init()
        p = L.llama_model_default_params()
        if want["shape"]:
            write_model(want["model"], want["shape"], want["type"])
        self.said = without_tokenizer(L, want["model"])
        if self.said:
            p.kv_overrides = self.said
        self.model = L.llama_model_load_from_file(want["model"].encode(), p)
        if not self.model:
            raise RuntimeError("llama.cpp does not load the file")
        c = L.llama_context_default_params()
        c.n_ctx = self.prefill + self.decode + 64
        c.n_batch = c.n_ubatch = self.prefill
        c.n_threads = c.n_threads_batch = int(side_by_side.THREADS)
        self.context = L.llama_init_from_model(self.model, c)
        self.memory = L.llama_get_memory(self.context)
        self.ids = (L.llama_token * self.prefill)(*[(7 * i + 3) % 1000 for i in range(self.prefill)])
        self.one = (L.llama_token * 1)(5)

    def feed(self, ids, n):
        if self.L.llama_decode(self.context, self.L.llama_batch_get_one(ids, n)) != 0:
            raise RuntimeError("llama_decode failed")

    def turn(self):
        self.L.llama_memory_clear(self.memory, True)
        t0 = time.perf_counter()
        self.feed(self.ids, self.prefill)
        t1 = time.perf_counter()
        for _ in range(self.decode):
            self.feed(self.one, 1)
        t2 = time.perf_counter()
        return {"prefill": self.prefill / (t1 - t0), "decode": self.decode / (t2 - t1)}


def start(want):
    m = Model(want)
    m.turn()
    return m, {"version": m.L.__version__}


def compare(o, kind, model, shape=""):
    """Of the file MODEL, which the worker writes where a shape is given."""
    want = {"model": model, "shape": shape, "type": kind, "prefill": int(o["prefill"]), "decode": int(o["decode"])}
    ours_of = [model, "compute=" + ("fp32" if kind == "F32" else "bf16")]
    try:
        worker = side_by_side.Worker(os.path.abspath(__file__), want)
    except side_by_side.Missing as e:
        print("%-26s not measured: %s" % (kind, e))
        return
    ours, theirs, share = {"prefill": [], "decode": []}, {"prefill": [], "decode": []}, {}
    try:
        for _ in range(int(o["rounds"])):
            rows = side_by_side.bench(*ours_of, "only=prefill dense,decode dense", "rounds=3", "prefill=" + o["prefill"],
                                      "decode=" + o["decode"])
            peer = worker.ask({})
            for what in ours:
                row = rows[what + " dense"]
                ours[what].append(row["median"])
                share[what] = (row["share"], row["limit"])
                theirs[what].append(peer[what])
        for what in ours:
            side_by_side.line("%s %s, %s" % (what, kind, worker.about["version"]), ours[what], theirs[what], share[what])
    except side_by_side.Missing as e:
        print("%-26s not measured: %s" % (kind, e))
    worker.close()


def main():
    o = side_by_side.settings({"shape": "1.1b", "type": "F32,BF16,Q8_0,Q4_0", "model": "", "rounds": "3", "prefill": "512", "decode": "16"})
    if o["shape"] not in SHAPES or any(k not in TYPES for k in o["type"].split(",")):
        sys.exit("shape is one of %s, type of %s" % (" ".join(SHAPES), " ".join(TYPES)))
    side_by_side.need("llama_cpp", "gguf")
    if not o["model"]:
        print("%s: %d x %d, %d heads, %d kv heads, ffn %d, vocab %d, %s threads; tokens/s" % (
            (o["shape"], *SHAPES[o["shape"]], side_by_side.THREADS)))
    print("%-26s %-26s %-26s %s" % ("", "depthscope", "llama.cpp", "ratio"), flush=True)
    for model in filter(None, o["model"].split(",")):
        compare(o, os.path.basename(model)[:16], os.path.abspath(model))
    for kind in [] if o["model"] else o["type"].split(","):
        with tempfile.TemporaryDirectory() as top:
            compare(o, kind, os.path.join(top, "model.gguf"), o["shape"])


if sys.argv[1:] == ["worker"]:
    side_by_side.serve(start, lambda m, want: m.turn())
else:
    main()
