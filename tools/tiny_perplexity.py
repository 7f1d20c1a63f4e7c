#!/usr/bin/env python3
"""Measures the perplexity of the bundled model, unquantised and quantised, with `linnet score` on questions and answers of the evaluation set.

usage: python3 tools/tiny_perplexity.py [--linnet BIN] [MODEL]

The text is that of evaluation() in tools/tiny_corpus.py, formatted by the model's chat template, in pieces of about 900 tokens at most. Prints
the table of docs/quantised.md: the output of `linnet quantize` for each width, and one mixture of widths.
"""
import argparse
import json
import math
import os
import subprocess
import tempfile

import tiny_corpus

HERE = os.path.dirname(os.path.abspath(__file__))
FORMS = [["--bits", "8"], ["--bits", "6"], ["--bits", "5"], ["--bits", "4", "--group", "32"], ["--bits", "4"], ["--bits", "4", "--keep", "lm_head=8"],
         ["--bits", "3"], ["--bits", "3", "--keep", "lm_head=8", "--keep", "down_proj=6"], ["--bits", "2", "--group", "32"]]


def pieces():
    text = ""
    items = [x for _, part in sorted(tiny_corpus.evaluation(40).items()) for x in part[:40]]
    for q, a in items:
        text += f"<|im_start|>user\n{q}<|im_end|>\n<|im_start|>assistant\n{a}<|im_end|>\n"
        if len(text) > 2200:
            yield text
            text = ""
    if text:
        yield text


def perplexity(linnet, model):
    total, n = 0.0, 0
    for text in pieces():
        out = subprocess.run([linnet, "score", model, "--numerics", "exact", "--json", "-f", "-"], input=text.encode(), stdout=subprocess.PIPE, check=True).stdout
        score = json.loads(out)
        total += score["sum_logprob"]
        n += len(score["ids"]) - 1
    return math.exp(-total / n), n


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("model", nargs="?", default=os.path.join(HERE, "../models/tiny"))
    ap.add_argument("--linnet", default=os.path.join(HERE, "../build/linnet"))
    args = ap.parse_args()
    first, n = perplexity(args.linnet, args.model)
    print(f"| `linnet quantize tiny` | bits a weight | MB | perplexity of {n} held-out tokens | more |\n|---|---|---|---|---|")
    size = json.loads(subprocess.run([args.linnet, "show", args.model, "--json"], stdout=subprocess.PIPE, check=True).stdout)["bytes"]
    print(f"| (as it is, bf16) | 16 | {size / 1e6:.2f} | {first:.4f} | |")
    for form in FORMS:
        with tempfile.TemporaryDirectory() as tmp:
            q = json.loads(subprocess.run([args.linnet, "quantize", args.model, "-o", tmp + "/q", "--json", *form], stdout=subprocess.PIPE, check=True).stdout)
            p, _ = perplexity(args.linnet, tmp + "/q")
        print(f"| `{' '.join(form)}` | {q['bits_per_weight']:.2f} | {q['bytes'] / 1e6:.2f} | {p:.4f} | {100 * (p / first - 1):+.1f} % |", flush=True)


if __name__ == "__main__":
    main()
