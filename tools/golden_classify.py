#!/usr/bin/env python3
"""Records what transformers computes for labels and for windows of a text, for tests/engine/test_classify.c
and test_evaluate.c.

usage: python tools/golden_classify.py > tests/engine/class_cases.h

Scores: for each prompt and label the sum of the log-probabilities of the label's tokens (its text encoded
alone, without special tokens) after the prompt. Perplexity: windows begin at multiples of the stride, the
last one is the first that reaches the end and is short; a token counts once, in the first window that has
it, and the first token of a window never does. Every sequence is computed alone. The values are those of
float64 arithmetic on the stored weights; `bound` is 3 times the largest error of float32 arithmetic in the
same library, of one log-probability.
"""
import json
import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")
import torch
import transformers
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM

ROOT = os.path.join(os.path.dirname(__file__), "..", "tests", "golden")
MODELS = ["llama-plain-f32", "gemma3-text-f32"]  # the second one has a window of 7 positions
LABELS = ["the", "a", "that", "then", "and the", "the end", "and", "bad"]
LENGTHS = [1, 3, 7, 8, 15, 40]
N_TEXT, WINDOWS = 100, [(32, 16), (32, 32), (30, 7), (100, 50), (128, 64), (2, 1)]


def numbers(n, vocab, seed):
    """The ids that the tests make too: a linear congruential generator."""
    out, x = [], seed
    for _ in range(n):
        x = (x * 1664525 + 1013904223) % 2**32
        out.append((x >> 16) % (vocab - 8))
    return out


def logprobs(model, ids):
    """[t] the log-probability of token t + 1 given the tokens before it."""
    with torch.no_grad():
        rows = model(torch.tensor([ids])).logits[0].double().log_softmax(-1)
    return [rows[t, ids[t + 1]].item() for t in range(len(ids) - 1)]


def window_sum(value, ids, window, stride):
    counted, total, begin, end = 0, 0.0, 0, 0
    while end < len(ids):
        first, end = end, min(begin + window, len(ids))
        rows = value(ids[begin:end])
        for t in range(max(first, begin + 1), end):
            counted, total = counted + 1, total + rows[t - begin - 1]
        begin += stride
    return counted, -total / counted


def case(name):
    path = os.path.join(ROOT, name)
    load = lambda dtype: AutoModelForCausalLM.from_pretrained(path, dtype=dtype, attn_implementation="eager")
    exact, single = load(torch.float64).double(), load(torch.float32)
    tok = Tokenizer.from_file(os.path.join(path, "tokenizer.json"))
    with open(os.path.join(path, "config.json")) as f:
        vocab = json.load(f)["vocab_size"]
    error = 0.0

    def value(ids):
        nonlocal error
        want, got = logprobs(exact, ids), logprobs(single, ids)
        error = max([error] + [abs(a - b) for a, b in zip(want, got)])
        return want

    labels = [tok.encode(text, add_special_tokens=False).ids for text in LABELS]
    scores = [[sum(value(prompt + label)[len(prompt) - 1:]) for label in labels]
              for prompt in (numbers(n, vocab, n) for n in LENGTHS)]
    text = numbers(N_TEXT, vocab, 99)
    windows = [window_sum(value, text, *w) for w in WINDOWS]
    return [len(label) for label in labels], scores, windows, 3 * error


def listed(values):
    lines = [""]
    for v in values:
        word = v if isinstance(v, str) else repr(v)
        if len(lines[-1]) + len(word) > 95:
            lines.append("")
        lines[-1] += word + ", "
    return "\n     ".join(line.rstrip() for line in lines).rstrip(",")


def main():
    versions = (transformers.__version__, torch.__version__.split("+")[0])
    print("/* Written by tools/golden_classify.py with transformers %s and torch %s. */" % versions)
    print("#define CLASS_LABELS %s" % ", ".join('"%s"' % s for s in LABELS))
    print("enum { CLASS_N_LABELS = %d, CLASS_N_PROMPTS = %d, CLASS_N_TEXT = %d, CLASS_N_WINDOWS = %d };"
          % (len(LABELS), len(LENGTHS), N_TEXT, len(WINDOWS)))
    print("/* lengths of the prompts; prompt i is made from the seed that is its length, the text from 99 */")
    print("static const int class_lengths[] = {%s};" % listed(LENGTHS))
    print("static const struct {\n    int window, stride;\n} class_windows[] = {%s};"
          % ", ".join("{%d, %d}" % w for w in WINDOWS))
    print("static const struct {\n    const char *model;\n    double bound; /* of one log-probability */\n"
          "    int n_tokens[CLASS_N_LABELS];\n    double scores[CLASS_N_PROMPTS][CLASS_N_LABELS];\n"
          "    int counted[CLASS_N_WINDOWS];\n    double nll[CLASS_N_WINDOWS];\n} class_cases[] = {")
    for name in MODELS:
        tokens, scores, windows, bound = case(name)
        rows = ",\n     ".join("{%s}" % listed(row) for row in scores)
        print('    {"%s", %.3e,\n     {%s},\n     {%s},\n     {%s},\n     {%s}},'
              % (name, bound, listed(tokens), rows, listed([c for c, _ in windows]),
                 listed([x for _, x in windows])))
    print("};")


main()
