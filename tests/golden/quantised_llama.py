"""Models quantised by llama.cpp itself, and what it computes with them; by the packages llama_cpp and numpy.

quantised_llama.py make IN.gguf DIR     writes DIR/TYPE.gguf for every type below, or for those named after it
quantised_llama.py check                nothing: are the packages there?
quantised_llama.py run DIR              one line of JSON on stdin: {"prompt": ids, "tokens": N, "text": ids}; one on stdout a type:
                                        {"type", "ids": N greedy ones, "nll": of each token of the text but the first,
                                         "margin": by how much each greedy token's logit leads}

Exit status 77: no such package.
"""
import ctypes
import json
import os
import sys

try:
    import llama_cpp as L
    import numpy
except (ImportError, OSError, RuntimeError) as e:  # the library may be missing as well
    print(e, file=sys.stderr)
    sys.exit(77)

TYPES = "F16 BF16 Q8_0 Q4_0 Q4_1 Q5_0 Q5_1 Q2_K Q3_K_S Q3_K_M Q3_K_L Q4_K_S Q4_K_M Q5_K_M Q6_K IQ4_NL IQ4_XS MXFP4".split()
MXFP4 = 39  # of ggml; llama.cpp itself chooses it for experts only


@ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)
def quiet(level, text, data):
    pass


def make(source, folder, *types):
    for name in types or TYPES:
        p = L.llama_model_quantize_default_params()
        p.nthread = 2
        p.ftype = getattr(L, "LLAMA_FTYPE_MOSTLY_" + ("Q8_0" if name == "MXFP4" else name))
        last = L.llama_model_tensor_override()
        table = (L.llama_model_tensor_override * 3)(L.llama_model_tensor_override(b"ffn_(gate|up|down)", MXFP4),
                                                    L.llama_model_tensor_override(b"attn_(q|k|v|output)", MXFP4), last)
        if name == "MXFP4":
            p.tt_overrides = table
        path = os.path.join(folder, name + ".gguf")
        if L.llama_model_quantize(source.encode(), path.encode(), p) != 0:
            sys.exit("llama.cpp does not quantise to " + name)


class Model:
    def __init__(self, path, rows):
        p = L.llama_model_default_params()
        self.model = L.llama_model_load_from_file(path.encode(), p)
        if not self.model:
            sys.exit("llama.cpp does not open " + path)
        c = L.llama_context_default_params()
        c.n_ctx = c.n_batch = c.n_ubatch = rows
        c.n_threads = c.n_threads_batch = 2
        c.type_k = c.type_v = 0  # fp32
        c.flash_attn_type = 0
        self.context = L.llama_init_from_model(self.model, c)
        self.V = L.llama_vocab_n_tokens(L.llama_model_get_vocab(self.model))

    def logits(self, ids):
        """Of each next token, feeding one at a time, as decoding does."""
        out = []
        for i in ids:
            one = (L.llama_token * 1)(i)
            if L.llama_decode(self.context, L.llama_batch_get_one(one, 1)) != 0:
                sys.exit("llama_decode failed")
            row = numpy.ctypeslib.as_array(L.llama_get_logits_ith(self.context, -1), (self.V,))
            out.append(row.astype(numpy.float64))
        return out

    def clear(self):
        L.llama_memory_clear(L.llama_get_memory(self.context), True)

    def close(self):
        L.llama_free(self.context)
        L.llama_model_free(self.model)


def greedy(model, prompt, n):
    ids, margin, row = [], [], model.logits(prompt)[-1]
    for _ in range(n):
        best = int(row.argmax())
        ids.append(best)
        margin.append(float(row[best] - numpy.partition(row, -2)[-2]))
        row = model.logits([best])[-1]
    return ids, margin


def run(folder):
    want = json.loads(sys.stdin.readline())
    for name in TYPES:
        if not os.path.exists(os.path.join(folder, name + ".gguf")):
            continue
        m = Model(os.path.join(folder, name + ".gguf"), len(want["prompt"]) + want["tokens"] + len(want["text"]) + 32)
        ids, margin = greedy(m, want["prompt"], want["tokens"])
        m.clear()
        rows = m.logits(want["text"][:-1])
        nll = [float(numpy.log(numpy.exp(r - r.max()).sum()) + r.max() - r[i]) for r, i in zip(rows, want["text"][1:])]
        print(json.dumps({"type": name, "ids": ids, "margin": margin, "nll": nll}))
        m.close()


L.llama_log_set(quiet, ctypes.c_void_p(0))
L.llama_backend_init()
if sys.argv[1] == "make":
    make(*sys.argv[2:])
elif sys.argv[1] == "run":
    run(sys.argv[2])
