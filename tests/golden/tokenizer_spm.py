"""SentencePiece models trained by the package: tokenizer_spm.py DIR [COUNT SEED]

writes NAME.model and NAME.ids.json (texts and ids, COUNT random texts after the fixed ones) to DIR.  Without COUNT it
regenerates tests/golden/tokenizers and leaves out the models with SentencePiece's large table of replacements.  Exit
status 77: no such package.
"""
import io
import json
import os
import random
import sys

try:
    import sentencepiece
    import tokenizer_families
except ImportError:
    sys.exit(77)

SMALL = {"normalization_rule_name": "identity"}
MODELS = {
    "spm_unigram": dict(SMALL, model_type="unigram"),
    "spm_bytes": dict(SMALL, model_type="unigram", byte_fallback=True, add_dummy_prefix=False, remove_extra_whitespaces=False),
    "spm_defined": dict(SMALL, model_type="unigram", user_defined_symbols=["<start>", "the ", "12"], control_symbols=["<pad>"]),
    "spm_bpe": dict(SMALL, model_type="bpe", byte_fallback=True, split_digits=True, remove_extra_whitespaces=False),
    "spm_table": dict(model_type="unigram", user_defined_symbols=["\uff21\uff22", "<start>"]),
    "spm_table_folded": dict(model_type="unigram", normalization_rule_name="nfkc_cf", byte_fallback=True),
    "spm_table_bpe": dict(model_type="bpe", normalization_rule_name="nmt_nfkc", byte_fallback=True),
}


def main():
    out = sys.argv[1]
    texts = list(tokenizer_families.TEXTS)
    train = ["".join(c for c in t if c.isprintable() and c < "\u0250") for t in tokenizer_families.TRAIN] * 2
    if len(sys.argv) > 3:
        r = random.Random(int(sys.argv[3]))
        texts += [tokenizer_families.random_text(r) for _ in range(int(sys.argv[2]))]
    for name, options in MODELS.items():
        if "table" in name and len(sys.argv) <= 3:
            continue
        model = io.BytesIO()
        sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(train), model_writer=model, vocab_size=(256 if options.get("byte_fallback") else 0) + 150,
                                                 hard_vocab_limit=False, character_coverage=1.0, minloglevel=2, num_threads=1, **options)
        processor = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
        with open(os.path.join(out, name + ".model"), "wb") as f:
            f.write(model.getvalue())
        tokenizer_families.write(os.path.join(out, name + ".ids.json"), {"texts": texts, "ids": [processor.encode(s) for s in texts]})


if __name__ == "__main__":
    main()
