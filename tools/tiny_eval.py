#!/usr/bin/env python3
"""Evaluates the bundled model and writes the files next to its weights: README.md (the model card), loss.svg, LICENSE, reference.json.

usage: python tools/tiny_eval.py models/tiny [--device cpu]

Accuracies are the shares of exactly correct greedy answers to questions of the evaluation set. reference.json has greedy ids with their margins
(best minus second best logit), in f32 arithmetic on the stored bf16 weights; other implementations must generate the same ids.
"""
import argparse
import csv
import json
import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")
import torch
import transformers

import tiny_corpus

TRANSCRIPT = ["Hello!", "Who are you?", "What is the capital of France?", "What is 3 plus 4?", "47 + 38 =", "What is 56 divided by 8?", "Anna has 12 apples. She gives away 5. How many apples does she have now?",
              "Is this review positive or negative? The food was cold and the service was slow and rude. Never again.",
              "What is the topic of this text? The runner set a new record in the stadium.", "What is the opposite of hot?", "How do you say house in French?",
              "Tell me a short story about a fox.", "Write a story about a lost kite."]
TALK = ["My name is Lena.", "What is 6 times 7?", "What is my name?"]
REFERENCE = ["What is the capital of France?", "What is 3 plus 4?", "Who are you?", "Tell me a short story about an owl.",
             "Is this review positive or negative? I loved this film. The music was beautiful.", "Write a short poem about the sea."]
LICENSE = """MIT License

Copyright (c) 2026 the linnet authors

Permission is hereby granted, free of charge, to any person obtaining a copy
of this software and associated documentation files (the "Software"), to deal
in the Software without restriction, including without limitation the rights
to use, copy, modify, merge, publish, distribute, sublicense, and/or sell
copies of the Software, and to permit persons to whom the Software is
furnished to do so, subject to the following conditions:

The above copyright notice and this permission notice shall be included in all
copies or substantial portions of the Software.

THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR
IMPLIED, INCLUDING BUT NOT LIMITED TO THE WARRANTIES OF MERCHANTABILITY,
FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE
AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER
LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM,
OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE
SOFTWARE.
"""


def prompt_ids(tok, messages):
    """Returns the ids of a conversation up to the start of the assistant's turn, rendered by the model's chat template."""
    text = tok.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    return tok(text, add_special_tokens=False)["input_ids"]


def answers(model, tok, questions, n=48):
    """Returns greedy answers to single questions; batches are padded on the left."""
    out = [None] * len(questions)
    coded = [prompt_ids(tok, [{"role": "user", "content": q}]) for q in questions]
    order = sorted(range(len(coded)), key=lambda i: len(coded[i]))
    for lo in range(0, len(order), 128):
        part = order[lo:lo + 128]
        width = max(len(coded[i]) for i in part)
        ids = torch.tensor([[tok.pad_token_id] * (width - len(coded[i])) + coded[i] for i in part], device=model.device)
        mask = torch.tensor([[0] * (width - len(coded[i])) + [1] * len(coded[i]) for i in part], device=model.device)
        with torch.no_grad():
            got = model.generate(input_ids=ids, attention_mask=mask, max_new_tokens=n, do_sample=False)
        for i, row in zip(part, got[:, width:]):
            out[i] = tok.decode(row, skip_special_tokens=True)
    return out


def accuracy(model, tok):
    table = {}
    for name, pairs in tiny_corpus.evaluation().items():
        got = answers(model, tok, [q for q, _ in pairs])
        wrong = [(q, a, g) for (q, a), g in zip(pairs, got) if a != g]
        table[name] = (len(pairs) - len(wrong), len(pairs))
        print(f"{name:16} {len(pairs) - len(wrong)} of {len(pairs)}", *[f"\n    {w}" for w in wrong[:3]], flush=True)
    return table


def reply(model, tok, messages, n=300):
    ids = prompt_ids(tok, messages)
    with torch.no_grad():
        got = model.generate(input_ids=torch.tensor([ids], device=model.device), attention_mask=torch.ones(1, len(ids), device=model.device, dtype=torch.long),
                             max_new_tokens=n, do_sample=False)
    return tok.decode(got[0, len(ids):], skip_special_tokens=True)


def transcript(model, tok):
    lines = []
    for q in TRANSCRIPT:
        lines.append((q, reply(model, tok, [{"role": "user", "content": q}])))
    messages = []
    for q in TALK:
        messages.append({"role": "user", "content": q})
        a = reply(model, tok, messages)
        messages.append({"role": "assistant", "content": a})
        lines.append((q, a))
    return lines


def reference(path, tok):
    """Generates greedily in f32 arithmetic on the stored weights. Returns prompt text, prompt ids, ids (with the stop token) and margins."""
    model = transformers.AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32, attn_implementation="eager").eval()
    stop, runs = set(model.generation_config.eos_token_id), []
    for q in REFERENCE:
        messages = [{"role": "user", "content": q}]
        ids, got, margins = prompt_ids(tok, messages), [], []
        with torch.no_grad():
            while len(got) < 300 and not (got and got[-1] in stop):
                row = model(input_ids=torch.tensor([ids + got])).logits[0, -1]
                top = torch.topk(row, 2)
                got.append(int(top.indices[0]))
                margins.append(round(float(top.values[0] - top.values[1]), 5))
        runs.append({"user": q, "prompt": tok.apply_chat_template(messages, tokenize=False, add_generation_prompt=True), "prompt_ids": ids, "ids": got,
                     "text": tok.decode(got, skip_special_tokens=True), "min_margin": min(margins), "margins": margins})
    with open(os.path.join(path, "reference.json"), "w") as f:
        f.write("[\n" + ",\n".join(json.dumps(r, ensure_ascii=False) for r in runs) + "\n]\n")


def picture(path):
    """Draws loss.svg from loss.csv: loss on a logarithmic scale over training tokens."""
    import math
    with open(os.path.join(path, "loss.csv")) as f:
        rows = [r for r in csv.DictReader(f)]
    W, H, L, T, B, R = 720, 360, 64, 24, 48, 20
    xs = [int(r["tokens"]) / 1e6 for r in rows]
    ys = [float(r[k]) for r in rows for k in ("train", "held_out") if r[k]]
    top, low = max(ys), min(ys)
    lo, hi = math.log(low * 0.8), math.log(top * 1.2)
    ticks = [t for t in (0.05, 0.1, 0.2, 0.3, 0.5, 1, 2, 3, 5, 10) if low * 0.8 <= t <= top * 1.2]
    X = lambda x: L + (W - L - R) * x / max(xs[-1], 1e-9)
    Y = lambda y: T + (H - T - B) * (hi - math.log(y)) / (hi - lo)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {W} {H}" font-family="sans-serif" font-size="12">', f'<rect width="{W}" height="{H}" fill="white"/>']
    for t in ticks:
        out.append(f'<line x1="{L}" y1="{Y(t):.1f}" x2="{W - R}" y2="{Y(t):.1f}" stroke="#ddd"/><text x="{L - 8}" y="{Y(t) + 4:.1f}" text-anchor="end" fill="#444">{t:g}</text>')
    step = 10 ** math.floor(math.log10(max(xs[-1], 1)))
    step = step / 2 if xs[-1] / step < 3 else step
    k = 0
    while k * step <= xs[-1]:
        out.append(f'<text x="{X(k * step):.1f}" y="{H - B + 18}" text-anchor="middle" fill="#444">{k * step:g}</text>')
        k += 1
    for key, color, name in (("train", "#9ab", "training batch"), ("held_out", "#b33", "held-out documents")):
        pts = " ".join(f"{X(x):.1f},{Y(float(r[key])):.1f}" for x, r in zip(xs, rows) if r[key])
        out.append(f'<polyline points="{pts}" fill="none" stroke="{color}" stroke-width="2"/>')
        y = T + (18 if key == "train" else 36)
        out.append(f'<line x1="{W - 190}" y1="{y - 4}" x2="{W - 166}" y2="{y - 4}" stroke="{color}" stroke-width="2"/><text x="{W - 158}" y="{y}" fill="#222">{name}</text>')
    out.append(f'<text x="{(W + L) / 2}" y="{H - 8}" text-anchor="middle" fill="#222">million tokens seen</text>')
    out.append(f'<text transform="translate(16 {H / 2 - 10}) rotate(-90)" text-anchor="middle" fill="#222">loss of the answers, nats a token</text></svg>')
    with open(os.path.join(path, "loss.svg"), "w") as f:
        f.write("\n".join(out) + "\n")


CARD = """---
license: mit
language: en
library_name: transformers
pipeline_tag: text-generation
---
# linnet's tiny model

A real language model of {params:.1f} million weights ({bytes:.1f} MB in bf16), small enough to lie in a repository: it tells short stories, works out small
sums, names capitals, and says whether a review is positive and what a text is about. It is trained from scratch on text that
`tools/tiny_corpus.py` generates by grammar. No other text and no other model was used, so it knows nothing beyond that grammar, and what it says
outside of it means little.

Qwen 3 architecture: {L} layers, width {D}, {H} heads on {K} kv heads of {E}, tied embeddings, context 1,024. Byte-level BPE with {V} tokens. Chat in ChatML
(`<|im_start|>role`, `<|im_end|>`), as in `tokenizer_config.json`; greedy by default.

```python
from transformers import AutoModelForCausalLM, AutoTokenizer
tok, model = AutoTokenizer.from_pretrained("models/tiny"), AutoModelForCausalLM.from_pretrained("models/tiny")
ids = tok.apply_chat_template([{{"role": "user", "content": "Tell me a short story about a fox."}}], add_generation_prompt=True, return_tensors="pt", return_dict=True)
print(tok.decode(model.generate(**ids, max_new_tokens=250)[0]))
```

## What it gets right

Greedy answers, right only if equal word for word. Training has seen every small sum; it never saw the rest: other numbers (5 + 30 may be held out and
30 + 5 not), other ways to ask for a fact, other reviews and texts of the same grammar.

| | right | of |
|---|---|---|
{table}

## Training

`python tools/tiny_train.py --out models/tiny --seed {seed} --docs {documents} --steps {steps}{flag}`: {documents:,} documents ({corpus:.0f} M tokens, made on the fly, not kept), {steps:,} steps of {rows} rows of {row} tokens,
AdamW with cosine to zero from {lr}, {seconds} s on one {device} with torch {torch} and transformers {transformers}. The loss of the answers on held-out documents ended at
{held} nats a token; a grammar with free choices has an entropy of its own, so this does not go to zero.

![loss](loss.svg)

## Transcript

{transcript}

## Files

`reference.json`: greedy ids of six prompts with the margin of each step, in f32 arithmetic on these weights. `loss.csv`, `training.json`: the run. License: MIT.
"""


def report(path, device="cpu"):
    """Writes all files other than the weights."""
    tok = transformers.AutoTokenizer.from_pretrained(path)
    model = transformers.AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).to(device).eval()
    table = accuracy(model, tok)
    lines = transcript(model, tok)
    for q, a in lines:
        print(f"> {q}\n{a}\n", flush=True)
    with open(os.path.join(path, "training.json")) as f:
        t = json.load(f)
    c = model.config
    quoted = "\n".join("**%s**\n\n%s\n" % (q, "\n".join("> " + x for x in a.split("\n"))) for q, a in lines)
    card = CARD.format(params=t["parameters"] / 1e6, bytes=os.path.getsize(os.path.join(path, "model.safetensors")) / 1e6, L=c.num_hidden_layers, D=c.hidden_size,
                       H=c.num_attention_heads, K=c.num_key_value_heads, E=c.head_dim, V=f"{c.vocab_size:,}", table="\n".join(f"| {k} | {a} | {b} |" for k, (a, b) in table.items()),
                       seed=t["seed"], documents=t["documents"], steps=t["steps"], corpus=t["corpus_tokens"] / 1e6, flag=" --compile" if t.get("compile") else "", rows=t["rows_per_step"], row=f"{t['tokens_per_row']:,}", lr=t["lr"],
                       seconds=t["seconds"], device=t["device"], torch=t["torch"], transformers=t["transformers"], held=t["held_out_loss"], transcript=quoted)
    with open(os.path.join(path, "README.md"), "w") as f:
        f.write(card)
    with open(os.path.join(path, "LICENSE"), "w") as f:
        f.write(LICENSE)
    picture(path)
    reference(path, tok)


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("path")
    ap.add_argument("--device", default="cpu")
    args = ap.parse_args()
    transformers.logging.set_verbosity_error()
    report(args.path, args.device)


if __name__ == "__main__":
    main()
