#!/usr/bin/env python3
"""Records what transformers computes for /score, /rerank and /classify on the bundled model, for
tests/server/test_rank.c.

usage: python tools/golden_rank.py > tests/server/rank_cases.h

A pair is scored as Qwen3-Reranker does: the model's own chat template asks whether the document answers the query, and the
score is the probability of "yes" among "yes" and "no" as the next token. Labels are scored by the sum of the log-probabilities
of their tokens. The values are those of float64 arithmetic on the stored weights; `bound` is 3 times the largest error of
float32 arithmetic in the same library, of the log-probability of a label."""
import json
import math
import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

MODEL = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "models", "tiny")
SYSTEM = ("Judge whether the Document meets the requirements based on the Query and the Instruct provided. "
          'Note that the answer can only be "yes" or "no".')
RETRIEVE = "Given a web search query, retrieve relevant passages that answer the query"
PAIRS = [(None, "Who lived near the hill?", "A little boy lived near the hill."), (None, "Who lived near the hill?", "It rained."),
         (None, "", ""), ("Find stories about animals.", "a fox", "The fox ran home. \u00e9\u4e2d\U0001f600"),
         (None, "<|im_end|>", "A text with the name of a control token is a text."), (None, "long", "One day a bird sang. " * 20)]
TEXTS, LABELS = ["Once upon a time there was", "The end of the story is"], [" happy", " sad and alone", " a little boy"]


def main():
    tok = AutoTokenizer.from_pretrained(MODEL)
    models = [AutoModelForCausalLM.from_pretrained(MODEL, dtype=dtype, attn_implementation="eager").to(dtype) for dtype in (torch.float64, torch.float32)]

    def encode(text):
        """The text's own tokens: none of it is a special token."""
        return tok(text, add_special_tokens=False, split_special_tokens=True).input_ids

    def conversation(turns):
        """The ids of a conversation, texts and template apart, so that no text becomes a control token."""
        marks = [f"\ue000{i}\ue001" for i in range(len(turns))]
        text = tok.apply_chat_template([{"role": role, "content": mark} for (role, _), mark in zip(turns, marks)], tokenize=False, add_generation_prompt=True)
        ids = []
        for mark, (_, content) in zip(marks, turns):
            before, text = text.split(mark)
            ids += tok(before, add_special_tokens=False).input_ids + ["text", content]
        ids += tok(text, add_special_tokens=False).input_ids
        return ids

    def ids_of(turns):

        plain = tok.apply_chat_template([{"role": r, "content": c} for r, c in turns], tokenize=False, add_generation_prompt=True)
        if not any("<|" in c for _, c in turns):
            return tok(plain, add_special_tokens=False).input_ids
        out = []
        parts = conversation(turns)
        i = 0
        while i < len(parts):
            if parts[i] == "text":
                out += encode(parts[i + 1])
                i += 2
            else:
                out.append(parts[i])
                i += 1
        return out

    def logprob(model, prompt, label):
        with torch.no_grad():
            rows = model(torch.tensor([prompt + label])).logits[0].double().log_softmax(-1)
        return sum(rows[len(prompt) - 1 + i, t].item() for i, t in enumerate(label))

    def probabilities(prompt, labels):
        nonlocal error
        scores, single = ([logprob(model, prompt, label) for label in labels] for model in models)
        error = max([error] + [abs(a - b) for a, b in zip(scores, single)])
        weights = [math.exp(s - max(scores)) for s in scores]
        return [w / sum(weights) for w in weights]

    error = 0.0
    quoted = lambda s: "NULL" if s is None else json.dumps(s, ensure_ascii=True).replace("\\u00e9", "\\303\\251").replace("\\u4e2d", "\\344\\270\\255").replace("\\ud83d\\ude00", "\\360\\237\\230\\200")
    pairs = []
    for instruction, query, document in PAIRS:
        text = f"<Instruct>: {instruction or RETRIEVE}\n<Query>: {query}\n<Document>: {document}"
        prompt = ids_of([("system", SYSTEM), ("user", text)])
        pairs.append((instruction, query, document, len(prompt), probabilities(prompt, [encode("no"), encode("yes")])[1]))
    classes = [probabilities(encode(text), [encode(label) for label in LABELS]) for text in TEXTS]
    print("/* Written by tools/golden_rank.py from transformers' float64; see there. */")
    print("static const struct {\n    const char *instruction, *query, *document;\n    int n_ids;\n    double score;\n} pairs[] = {")
    for instruction, query, document, n, score in pairs:
        print(f"    {{{quoted(instruction)}, {quoted(query)},\n     {quoted(document)}, {n}, {score!r}}},")
    print("};")
    print("static const char *const texts[] = {" + ", ".join(map(quoted, TEXTS)) + "};")
    print("static const char *const labels[] = {" + ", ".join(map(quoted, LABELS)) + "};")
    print("static const double classes[][%d] = {" % len(LABELS))
    for row in classes:
        print("    {" + ", ".join(repr(v) for v in row) + "},")
    print("};")
    print(f"static const double bound = {3 * error!r};")


main()
