#!/usr/bin/env python3
"""Records the embeddings that transformers computes, for tests/engine/test_embed.c.

usage: python tools/golden_embed.py > tests/engine/embed_cases.h

An embedding is the hidden state after the final norm (last_hidden_state of AutoModel) of the last token, or the mean of all
tokens', divided by its length. The values are those of float64 arithmetic on the stored weights; `bound` is 3 times the largest
error of float32 arithmetic in the same library. Every text is computed alone."""
import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")
import json

import torch
import transformers
from transformers import AutoModel

ROOT = os.path.join(os.path.dirname(__file__), "..", "tests", "golden")
MODELS = ["llama-plain-f32", "gemma3-text-f32", "qwen2-f32"]
LENGTHS = [1, 8, 40]


def numbers(n, vocab, seed):
    """The ids that the tests make too: a linear congruential generator."""
    out, x = [], seed
    for _ in range(n):
        x = (x * 1664525 + 1013904223) % 2**32
        out.append((x >> 16) % (vocab - 8))
    return out


def embeddings(model, ids):
    with torch.no_grad():
        states = model(torch.tensor([ids])).last_hidden_state[0].double()
    return [v / v.norm() for v in (states[-1], states.mean(0))]


def listed(values):
    lines = [""]
    for v in values:
        word = f"{v:.9g}"
        if len(lines[-1]) + len(word) > 95:
            lines.append("")
        lines[-1] += word + ", "
    return "\n     ".join(line.rstrip() for line in lines).rstrip(",")


def main():
    print(f"/* Written by tools/golden_embed.py with transformers {transformers.__version__} and torch {torch.__version__.split('+')[0]}. */")
    print(f"enum {{ EMBED_N = {len(LENGTHS)}, EMBED_WIDTH_MOST = 64 }};")
    print("/* lengths of the texts; text i is made from the seed that is its length */")
    print("static const int embed_lengths[EMBED_N] = {%s};" % ", ".join(map(str, LENGTHS)))
    print("static const struct {\n    const char *model;\n    double bound; /* of a value */\n    int width;\n"
          "    double last[EMBED_N][EMBED_WIDTH_MOST], mean[EMBED_N][EMBED_WIDTH_MOST];\n} embed_cases[] = {")
    for name in MODELS:
        path = os.path.join(ROOT, name)
        with open(os.path.join(path, "config.json"), encoding="utf-8") as f:
            vocab = json.load(f)["vocab_size"]
        load = lambda dtype: AutoModel.from_pretrained(path, dtype=dtype, attn_implementation="eager")
        exact, single = load(torch.float64).double(), load(torch.float32)
        rows, error = [], 0.0
        for n in LENGTHS:
            ids = numbers(n, vocab, n)
            want, got = embeddings(exact, ids), embeddings(single, ids)
            error = max([error] + [(a - b).abs().max().item() for a, b in zip(want, got)])
            rows.append(want)
        part = lambda k: "{%s}" % ",\n     ".join("{%s}" % listed(r[k].tolist()) for r in rows)
        print(f'    {{"{name}", {3 * error:.3e}, {len(rows[0][0])},\n     {part(0)},\n     {part(1)}}},')
    print("};")


main()
