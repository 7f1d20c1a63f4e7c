#!/usr/bin/env python3
"""Records the ids of mistral-common's Tekkenizer for small vocabularies of its own, for tests/tokenizer/test_tekken.c.

usage: python tools/golden_tekken.py README.md > tests/tokenizer/tekken_cases.jsonl      (pip install mistral-common)

A line is a tekken.json as a text, and texts with their ids. The vocabularies are byte-pair encodings of the file that is named."""
import base64
import collections
import json
import os
import sys
import tempfile

from mistral_common.tokens.tokenizers.tekken import Tekkenizer

PATTERN = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+"
           r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
TEXTS = ["", "a", "Hello world", "  two  blanks\n\n\ttab", "Ünïcode ÄÖ 日本語 🙂🙂", "12345 67.89", "aaaaaaaaaaaaaaa", " " * 21, "\n\n\n", "the model of the server",
         "x => y !== z; // code\r\n", "directory, which that file names", "weights' wEIGHTS WEIGHTS"]


def train(text, n):
    words = [tuple(bytes([b]) for b in w.encode()) for w in (" " + text.replace("\n", " \n")).split(" ")]
    counts, vocab = collections.Counter(words), [bytes([i]) for i in range(256)]
    while len(vocab) < n:
        pairs = collections.Counter()
        for w, k in counts.items():
            for p in zip(w, w[1:]):
                pairs[p] += k
        (a, b), _ = max(pairs.items(), key=lambda x: (x[1], x[0]))
        vocab.append(a + b)
        merged = collections.Counter()
        for w, k in counts.items():
            out, i = [], 0
            while i < len(w):
                both = i + 1 < len(w) and w[i] == a and w[i + 1] == b
                out.append(a + b if both else w[i])
                i += 1 + both
            merged[tuple(out)] += k
        counts = merged
    return vocab


def main():
    with open(sys.argv[1], encoding="utf-8") as f:
        vocab = train(f.read(), 700)
    listed = [{"rank": i, "token_str": s, "is_control": s != "plain"} for i, s in enumerate(["<unk>", "<s>", "</s>", "[INST]", "plain"])]
    for version, special, size in (("v3", None, 24 + 700), ("v13", listed, 12 + 500)):
        n = size - (700 if special is None else 500)
        doc = {"config": {"pattern": PATTERN, "num_vocab_tokens": len(vocab), "default_vocab_size": size, "default_num_special_tokens": n,
                          "version": version},
               "vocab": [{"rank": i, "token_bytes": base64.b64encode(v).decode(), "token_str": v.decode("utf-8", "ignore") or None}
                         for i, v in enumerate(vocab)]}
        if special:
            doc = {"vocab": doc["vocab"], "special_tokens": special, "config": doc["config"]}
        with tempfile.TemporaryDirectory() as d:
            path = os.path.join(d, "tekken.json")
            with open(path, "w", encoding="utf-8") as f:
                json.dump(doc, f)
            t = Tekkenizer.from_file(path)
            cases = [{"text": s, "ids": t.encode(s, bos=True, eos=False)} for s in TEXTS]
        print(json.dumps({"version": version, "file": json.dumps(doc), "cases": cases}, ensure_ascii=False))


if __name__ == "__main__":
    main()
