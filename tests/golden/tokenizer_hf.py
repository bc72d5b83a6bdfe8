"""Compares ids with Hugging Face `tokenizers`: tokenizer_hf.py TOKENIZER.JSON TEXTS.JSONL

Each line is {"text": ..., "ids": [...]}.  Exit status 0: all equal, 1: not, 77: no such package.
"""
import json
import sys

try:
    from tokenizers import Tokenizer
except ImportError:
    sys.exit(77)

tokenizer = Tokenizer.from_file(sys.argv[1])
count = bad = 0
with open(sys.argv[2], encoding="utf-8", newline="\n") as lines:
    for line in lines:
        case = json.loads(line)
        got = tokenizer.encode(case["text"], add_special_tokens=False).ids
        count += 1
        if got != case["ids"]:
            bad += 1
            if bad > 5:
                continue
            at = next((i for i, (a, b) in enumerate(zip(got, case["ids"])) if a != b), -1)
            print(f"{case['text'][:200]!r}: differs at {at}: theirs {got[at:at + 8]}, ours {case['ids'][at:at + 8]}")
print(f"{count} texts, {bad} differ")
sys.exit(1 if bad or not count else 0)
