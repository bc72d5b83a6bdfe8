"""A small tekken.json and its ids by `tiktoken`, which Mistral's own package encodes with: tokenizer_tekken.py DIR [COUNT SEED]

writes tekken.json and tekken.ids.json (texts and ids, COUNT random texts after the fixed ones) to DIR.  Without COUNT it
regenerates tests/golden/tokenizers.  Exit status 77: no such package.
"""
import base64
import json
import os
import random
import sys

try:
    import tiktoken
    import tokenizer_families
except ImportError:
    sys.exit(77)

SPECIALS = 30
WHOLE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "tokenizers", "whole.json")


def ranks():
    """Bytes, then merges in their order, from the vocabulary whose merges cross all borders of words."""
    with open(WHOLE, encoding="utf-8") as f:
        vocab = json.load(f)["model"]["vocab"]
    byte = {}
    for b in range(256):
        shown = 33 <= b <= 126 or 161 <= b <= 172 or 174 <= b
        byte[chr(b) if shown else chr(256 + len([c for c in range(b) if not (33 <= c <= 126 or 161 <= c <= 172 or 174 <= c)]))] = b
    tokens = [bytes(byte[c] for c in t) for t, _ in sorted(vocab.items(), key=lambda v: v[1]) if all(c in byte for c in t)]
    return [bytes([b]) for b in range(256)] + [t for t in tokens if len(t) > 1 and t != b"<|endoftext|>"]


def main():
    out, tokens = sys.argv[1], ranks()
    texts = list(tokenizer_families.TEXTS)
    if len(sys.argv) > 3:
        r = random.Random(int(sys.argv[3]))
        texts += [tokenizer_families.random_text(r) for _ in range(int(sys.argv[2]))]
    pattern = tokenizer_families.BY_CASE % ("", "", r"\p{N}")
    kept = len(tokens) - 7  # the file has more tokens than are used
    doc = {"config": {"pattern": pattern, "num_vocab_tokens": len(tokens), "default_vocab_size": kept + SPECIALS,
                      "default_num_special_tokens": SPECIALS, "version": "v3"},
           "vocab": [{"rank": i, "token_bytes": base64.b64encode(t).decode(), "token_str": "\0" if t == b"\0" else None} for i, t in enumerate(tokens)]}
    encoding = tiktoken.Encoding("small", pat_str=pattern, mergeable_ranks={t: i for i, t in enumerate(tokens[:kept])}, special_tokens={})
    ids = [[i + SPECIALS for i in encoding.encode(s, disallowed_special=())] for s in texts]
    with open(os.path.join(out, "tekken.json"), "w", encoding="utf-8") as f:
        json.dump(doc, f, separators=(",", ":"))
        f.write("\n")
    tokenizer_families.write(os.path.join(out, "tekken.ids.json"), {"texts": texts, "ids": ids})


if __name__ == "__main__":
    main()
