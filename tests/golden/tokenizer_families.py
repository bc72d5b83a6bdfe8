"""Tokenizers with the pipelines of published families, made small with Hugging Face's `tokenizers`:

    tokenizer_families.py DIR [COUNT SEED]

writes to DIR one NAME.json for each family, texts.json (COUNT random texts after the fixed ones) and one
NAME.ids.json: ids and decoded text of every text.  Without COUNT it regenerates tests/golden/tokenizers.
Exit status 77: no such package.
"""
import json
import os
import random
import sys

try:
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
except ImportError:
    sys.exit(77)

BLOCK = "\u2581"
CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
REST = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
CL100K = CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|%s|" + REST
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
BY_CASE = (r"[^\r\n\p{L}\p{N}]?" + UPPER + "*" + LOWER + r"+%s|[^\r\n\p{L}\p{N}]?" + UPPER + "+" + LOWER + r"*%s|%s|"
           r" ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")

TEXTS = [
    "", " ", "  ", "   a", "a   ", "\n", "\r\n", "\n\n\n\n", "\t \n  x\r\n\r\n y", "Hello, world!", "Hello  world   again",
    "I'm he'll we've DON'T don't 'Tis o'clock's", "camelCase HTTPServer XMLHttpRequest iPhone", "1 12 123 1234 12345 3.14159 1,000,000 007",
    "\u0661\u0662\u0663 \u0967\u0968\u0969\u096a \u00b2\u00b3\u00b9 \u00bd \u2167 \u2460 \uff11\uff12", "caf\u00e9 cafe\u0301 na\u00efve \u00c5ngstr\u00f6m A\u030a",
    "\u0130stanbul I\u0307 \u00df \u1e9e \u01c5 \ufb01 \ufb03 \u1f88 \u03a3\u03c3\u03c2 \u212b \u2126", "\u1112\u1161\u11ab \ud55c\uae00 \uac00",
    "\u041f\u0440\u0438\u0432\u0435\u0442, \u043c\u0438\u0440", "\u4f60\u597d\uff0c\u4e16\u754c\u3002 \u3053\u3093\u306b\u3061\u306f\u30ab\u30bf\u30ab\u30ca \uff76\uff85",
    "\U0001f600\U0001f468\u200d\U0001f469\u200d\U0001f467 \U0001f44d\U0001f3fd \U0001f1e9\U0001f1ea", "a\u200bb\u200cc\u200dd\ufeffe\u00adf",
    "\u00a0nbsp\u2003em\u3000wide\u0085nel\u180emvs\u2028ls\u2029ps", "x\u0001y\u0007z\u007f", "e\u0301\u0301\u0323 \u0301alone \u20dd", "\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35 \u0928\u092e\u0938\u094d\u0924\u0947 \u0645\u0631\u062d\u0628\u0627\u06d4 \u05e9\u05c1\u05dc\u05d5\u05dd",
    "for (i = 0; i < n; i++) { x[i] *= 2; }\n\n\n\treturn `x` ~ $y ^ |z|;\n", "<s>a</s> <unk> <|endoftext|>b <|endoftext|>\n<bos>", " <|endoftext|> <|endoftext|>x",
    "<start>one<start> two <0x0A> <0xE2>", BLOCK + "mark " + BLOCK + BLOCK + " x" + BLOCK, "==========--------........~~~~$$$$++++",
    "The quick brown fox jumps over the lazy dog. " * 2, "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaabbbbbbbbbbbbbbbbbb", "https://example.org/a?b=c&d=e#f_g-h user@example.com",
]
TRAIN = TEXTS + ["the cat and the dog sat on the mat with the hat", "In 2024 there were 1234567 things, and 89 others.", "naive cafe resume",
                 "He said: 'it is what it is', didn't he? They're there.", "\u4f60\u597d \u4e16\u754c \u4f60\u597d", "\u043f\u0440\u0438\u0432\u0435\u0442 \u043f\u0440\u0438\u0432\u0435\u0442"] * 2


def random_text(r):
    """Letters of many scripts, digits, marks, spaces and signs in unlikely orders, and words of the training text."""
    ranges = [(0x20, 95), (0x61, 26), (0x30, 10), (0x20, 1), (0xA0, 96), (0x0A, 4), (0x300, 64), (0x400, 96), (0x5D0, 26), (0x905, 48),
              (0x4E00, 4000), (0xAC00, 3000), (0x1F600, 60), (0x2000, 12), (0x41, 26), (0x2190, 100), (0x1E00, 250), (0xFF01, 90), (0x2100, 80)]
    words = ["the", " the", "  ", "\r\n", "\n\n", "'s", "'LL", "123", " 4567", BLOCK, "\u200d", "<|endoftext|>", "<s>", "<start>", "Hello", " world", "..."]
    out = []
    for _ in range(r.randrange(60)):
        if r.random() < 0.3:
            out.append(r.choice(words))
        else:
            low, n = r.choice(ranges)
            out.append("".join(chr(low + r.randrange(n)) for _ in range(1 + r.randrange(4) * (r.random() < 0.3))))
    return "".join(out)


def train_bytes(pre, vocab=330, normalizer=None, **options):
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre
    if normalizer:
        t.normalizer = normalizer
    t.decoder = decoders.ByteLevel()
    t.train_from_iterator(TRAIN, trainers.BpeTrainer(vocab_size=vocab, show_progress=False, special_tokens=["<|endoftext|>"],
                                                     initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    t.add_special_tokens([AddedToken("<start>", special=True, rstrip=True)])
    return change(t, **options)


def with_spaces(t):
    """GPT-NeoX: runs of spaces, in the order of its ids."""
    t.add_tokens([AddedToken(" " * n, normalized=True) for n in range(24, 1, -1)])
    return t


def train_whole():
    """Merges across all borders of words, so that every pattern shows in the ids."""
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    t.decoder = decoders.ByteLevel()
    r = random.Random(5)
    t.train_from_iterator(TRAIN + [random_text(r) for _ in range(200)],
                          trainers.BpeTrainer(vocab_size=700, show_progress=False, special_tokens=["<|endoftext|>"], initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    return t


def change(t, **options):
    """The same with other options of the model, which the trainer does not keep."""
    doc = json.loads(t.to_str())
    doc["model"].update(options)
    return Tokenizer.from_str(json.dumps(doc))


def train_chars(normalizer, pre, decoder, vocab=160, **options):
    """Characters with byte fallback: the special tokens, the bytes, then characters and merges."""
    t = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    specials = ["<unk>", "<s>", "</s>"] + ["<0x%02X>" % i for i in range(256)]
    if normalizer:
        t.normalizer = normalizer
    if pre:
        t.pre_tokenizer = pre
    t.decoder = decoder
    t.train_from_iterator(TRAIN[-12:] * 2, trainers.BpeTrainer(vocab_size=256 + vocab, limit_alphabet=60, show_progress=False, special_tokens=specials))
    doc = json.loads(t.to_str())
    doc["added_tokens"] = [a for a in doc["added_tokens"] if a["id"] < 3]
    doc["model"].update(byte_fallback=True, fuse_unk=True, unk_token="<unk>", **options)
    t = Tokenizer.from_str(json.dumps(doc))
    t.add_special_tokens([AddedToken("<start>", special=True, normalized=False)])
    # With Prepend, decoding differs between versions of the package.
    t.add_tokens([AddedToken("\n\n", normalized=False), AddedToken("..", normalized="Prepend" not in t.to_str())])
    t.post_processor = processors.TemplateProcessing(single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", 1)])
    return t


def train_unigram(normalizer, pre, decoder, byte_fallback):
    t = Tokenizer(models.Unigram())
    if normalizer:
        t.normalizer = normalizer
    t.pre_tokenizer = pre
    t.decoder = decoder
    t.train_from_iterator(TRAIN, trainers.UnigramTrainer(vocab_size=200, show_progress=False, special_tokens=["<unk>", "<s>", "</s>"], unk_token="<unk>"))
    if byte_fallback:
        doc = json.loads(t.to_str())
        doc["model"]["vocab"] += [["<0x%02X>" % i, -20.0] for i in range(256)]
        doc["model"]["byte_fallback"] = True
        t = Tokenizer.from_str(json.dumps(doc))
    t.add_special_tokens([AddedToken("<|endoftext|>", special=True)])
    return t


def split(pattern, behavior="isolated", invert=False):
    return pre_tokenizers.Split(Regex(pattern), behavior, invert)


def then_bytes(*parts):
    return pre_tokenizers.Sequence([*parts, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def llama_decoder(strip):
    parts = [decoders.Replace(BLOCK, " "), decoders.ByteFallback(), decoders.Fuse()]
    return decoders.Sequence(parts + ([decoders.Strip(" ", 1, 0)] if strip else []))


def with_bytes(decoder):
    return decoders.Sequence([decoders.ByteFallback(), decoder])


def families():
    n, p = normalizers, pre_tokenizers
    byte_level = p.ByteLevel(add_prefix_space=False)
    yield "gpt2", train_bytes(byte_level)
    yield "whole", train_whole()
    yield "gpt_neox", with_spaces(train_bytes(byte_level, normalizer=n.NFC()))
    yield "qwen3", train_bytes(then_bytes(split(CL100K % r"\p{N}")), normalizer=n.NFC())
    yield "olmo2", train_bytes(then_bytes(split(CL100K % r"\p{N}{1,3}")))
    yield "smollm3", train_bytes(then_bytes(split(CL100K % r"\p{N}{1,3}")), ignore_merges=True)
    yield "smollm", train_bytes(p.Sequence([p.Digits(True), byte_level]))
    yield "phi4_mini", train_bytes(then_bytes(split(BY_CASE % (CONTRACTIONS + "?", CONTRACTIONS + "?", r"\p{N}{1,3}"), "removed", True)))
    yield "tekken_hf", train_bytes(then_bytes(split(BY_CASE % ("", "", r"\p{N}"))), ignore_merges=True)
    yield "falcon", train_bytes(p.Sequence([p.Punctuation("contiguous"), byte_level, p.Digits(False), split("[0-9][0-9][0-9]")]))
    yield "bloom", train_bytes(then_bytes(split(" ?[^(\\s|[.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c])]+")))
    yield "deepseek_llm", train_bytes(then_bytes(split("[\r\n]"), split(r"\s?\p{L}+"), split(r"\s?\p{P}+"), split("[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"), p.Digits(True)))
    yield "gemma3", train_chars(n.Replace(" ", BLOCK), p.Split(" ", "merged_with_previous"), llama_decoder(False))
    yield "phi3", train_chars(n.Sequence([n.Prepend(BLOCK), n.Replace(" ", BLOCK)]), None, llama_decoder(True))
    yield "mistral", train_chars(None, p.Metaspace(prepend_scheme="first", split=False), llama_decoder(True))
    yield "metaspace", train_chars(n.Sequence([n.NFKC(), n.Lowercase()]), p.Sequence([p.WhitespaceSplit(), p.Metaspace(prepend_scheme="always")]), with_bytes(decoders.Metaspace()))
    yield "accents", train_chars(n.Sequence([n.NFD(), n.StripAccents(), n.Strip(True, False), n.Lowercase()]), p.Sequence([p.Whitespace(), p.Punctuation(), p.Digits(False)]),
                                 llama_decoder(False), ignore_merges=True)
    yield "unigram", train_unigram(n.Sequence([n.NFKD(), n.Strip(False, True), n.Replace(Regex(" {2,}"), BLOCK)]), p.Metaspace(), decoders.Metaspace(), False)
    yield "unigram_bytes", train_unigram(n.NFKC(), p.Sequence([p.WhitespaceSplit(), p.Metaspace()]), with_bytes(decoders.Metaspace()), True)
    yield "unigram_whole", train_unigram(n.Replace(" ", BLOCK), p.Metaspace(prepend_scheme="never", split=False), with_bytes(decoders.Metaspace(prepend_scheme="never")), True)


def write(path, what):
    with open(path, "w", encoding="utf-8", newline="\n") as f:
        f.write(what if isinstance(what, str) else json.dumps(what, ensure_ascii=False, separators=(",", ":")))
        f.write("\n")


def main():
    out = sys.argv[1]
    texts = list(TEXTS)
    if len(sys.argv) > 3:
        r = random.Random(int(sys.argv[3]))
        texts += [random_text(r) for _ in range(int(sys.argv[2]))]
    os.makedirs(out, exist_ok=True)
    write(os.path.join(out, "texts.json"), texts)
    for name, t in families():
        ids = [t.encode(s, add_special_tokens=False).ids for s in texts]
        write(os.path.join(out, name + ".json"), t.to_str())
        write(os.path.join(out, name + ".ids.json"), {"ids": ids, "decoded": [t.decode(i, skip_special_tokens=False) for i in ids]})


if __name__ == "__main__":
    main()
