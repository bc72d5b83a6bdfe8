"""Ids of llama.cpp: tokenizer_llama.py DIR OUT [COUNT SEED]

Reads every vocabulary DIR/NAME.gguf by the Python package llama_cpp and writes {"texts": [...], "ids": {NAME: [[...], ...]}}
to OUT, for the texts of tokenizer_families.py and COUNT random ones.  Exit status 77: no such package.
"""
import ctypes
import json
import os
import random
import sys

try:
    import llama_cpp
except (ImportError, OSError, RuntimeError):
    sys.exit(77)
import tokenizer_families


@llama_cpp.llama_log_callback
def silent(level, text, data):
    pass


def main():
    folder, out = sys.argv[1:3]
    texts = list(tokenizer_families.TEXTS)
    if len(sys.argv) > 4:
        r = random.Random(int(sys.argv[4]))
        texts += [tokenizer_families.random_text(r) for _ in range(int(sys.argv[3]))]
    llama_cpp.llama_log_set(silent, None)
    llama_cpp.llama_backend_init()
    ids = {}
    for name in sorted(os.listdir(folder)):
        if not name.endswith(".gguf"):
            continue
        params = llama_cpp.llama_model_default_params()
        params.vocab_only = True
        model = llama_cpp.llama_model_load_from_file(os.path.join(folder, name).encode(), params)
        if not model:
            sys.exit("%s: not loaded" % name)
        vocab = llama_cpp.llama_model_get_vocab(model)
        buffer = (ctypes.c_int32 * 100000)()
        ids[name[:-5]] = found = []
        for text in texts:
            data = text.encode("utf-8")
            n = llama_cpp.llama_tokenize(vocab, data, len(data), buffer, len(buffer), False, True)
            found.append(list(buffer[:n]))
        llama_cpp.llama_model_free(model)
    with open(out, "w", encoding="utf-8", newline="\n") as f:
        json.dump({"texts": texts, "ids": ids}, f, ensure_ascii=False, separators=(",", ":"))
        f.write("\n")


if __name__ == "__main__":
    main()
