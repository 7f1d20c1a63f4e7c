#!/usr/bin/env python3
"""Records which tokens the logits processors of transformers forbid, for tests/engine/test_forbid.c.

usage: python tools/golden_forbid.py > tests/engine/forbid_cases.h

Two tables. `forbid_rows`: random short histories over a small vocabulary, and the ids whose scores the
processors of generation_config.json's keys set to minus infinity, in the order of
GenerationMixin._get_logits_processor. `forbid_runs`: greedy generation by a whole model
(tests/golden/llama-plain-f32), with keys written into its generation_config.json; the margin of every
choice exceeds any rounding error.
"""
import json
import os
import random

os.environ.setdefault("HF_HUB_OFFLINE", "1")
import torch
import transformers
from transformers import AutoModelForCausalLM, GenerationConfig
from transformers.generation.logits_process import (
    LogitsProcessorList, MinNewTokensLengthLogitsProcessor, NoBadWordsLogitsProcessor,
    NoRepeatNGramLogitsProcessor,
    SuppressTokensAtBeginLogitsProcessor, SuppressTokensLogitsProcessor)

V, EOS = 8, [3, 6]
MODEL = os.path.join(os.path.dirname(__file__), "..", "tests", "golden", "llama-plain-f32")
PROMPT = [5, 17, 20, 44, 3, 9, 50, 7]


def row(r):
    history = [r.randrange(V) for _ in range(r.randrange(1, 12))]
    prompt = r.randrange(1, len(history) + 1)
    keys = {}
    if r.random() < 0.4:
        keys["suppress_tokens"] = r.sample(range(V), r.randrange(1, 3))
    if r.random() < 0.4:
        keys["begin_suppress_tokens"] = r.sample(range(V), r.randrange(1, 3))
    if r.random() < 0.5:
        keys["bad_words_ids"] = [[r.randrange(V) for _ in range(r.randrange(1, 4))]
                                 for _ in range(r.randrange(1, 5))]
        if all(w in ([e] for e in EOS) for w in keys["bad_words_ids"]):
            keys["bad_words_ids"].append([0])  # the processor drops EOS ids and rejects an empty list
    if r.random() < 0.5:
        keys["no_repeat_ngram_size"] = r.randrange(1, 4)
    if r.random() < 0.5:
        keys["min_new_tokens"] = r.randrange(1, 6)
    chain = LogitsProcessorList()
    if "no_repeat_ngram_size" in keys:
        chain.append(NoRepeatNGramLogitsProcessor(keys["no_repeat_ngram_size"]))
    if "bad_words_ids" in keys:
        chain.append(NoBadWordsLogitsProcessor(keys["bad_words_ids"], EOS))
    if "min_new_tokens" in keys:
        chain.append(MinNewTokensLengthLogitsProcessor(prompt, keys["min_new_tokens"], EOS))
    if "suppress_tokens" in keys:
        chain.append(SuppressTokensLogitsProcessor(keys["suppress_tokens"]))
    if "begin_suppress_tokens" in keys:
        chain.append(SuppressTokensAtBeginLogitsProcessor(keys["begin_suppress_tokens"], prompt))
    scores = chain(torch.tensor([history]), torch.zeros(1, V))[0]
    return history, len(history) - prompt, keys, [i for i in range(V) if scores[i] == -torch.inf]


def runs():
    model = AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.float32, attn_implementation="eager")

    def run(**keys):
        config = GenerationConfig(do_sample=False, **{"eos_token_id": 257, "pad_token_id": 0, **keys})
        out = model.generate(torch.tensor([PROMPT]), generation_config=config, max_new_tokens=20,
                             output_scores=True, return_dict_in_generate=True)
        for s in out.scores:
            top = s[0].topk(2).values
            assert top[0] - top[1] > 1e-3, "a margin that rounding could turn: take another prompt"
        ids = out.sequences[0, len(PROMPT):].tolist()
        eos = config.eos_token_id
        if ids[-1] in (eos if isinstance(eos, list) else [eos]):
            ids.pop()
        return keys, ids

    _, base = run()
    yield run()
    yield run(suppress_tokens=base[:2])
    yield run(begin_suppress_tokens=[base[0]])
    yield run(no_repeat_ngram_size=1)
    yield run(no_repeat_ngram_size=2)
    yield run(bad_words_ids=[[base[0]], [base[1], base[2]], [PROMPT[-1], base[1]]])
    yield run(bad_words_ids=[[base[1], base[2]], [*base[1:3], base[3]], [77, 0], [257]])
    yield run(eos_token_id=[257, base[2]])
    yield run(eos_token_id=[257, base[2]], min_new_tokens=6)
    yield run(repetition_penalty=1.3, suppress_tokens=[base[3]], begin_suppress_tokens=[base[0]],
              no_repeat_ngram_size=2, bad_words_ids=[[base[1]], [base[4], base[5]]],
              eos_token_id=[257, base[2]], min_new_tokens=4)


def text(value):
    whole, lines = json.dumps(value, separators=(",", ":")), [""]
    for part in whole.replace(",", ",\n").split("\n"):  # C concatenates adjacent literals
        if len(lines[-1] + part) > 80:
            lines.append("")
        lines[-1] += part
    return "\n     ".join('"%s"' % line.replace('"', '\\"') for line in lines)


def main():
    r = random.Random(7)
    versions = (transformers.__version__, torch.__version__.split("+")[0])
    print("/* Written by tools/golden_forbid.py with transformers %s and torch %s. */" % versions)
    print("enum { FORBID_V = %d };" % V)
    print("static const int32_t forbid_stop_ids[] = {%s};" % ", ".join(map(str, EOS)))
    print("/* history, how many of its tokens are generated, generation_config.json, forbidden ids */")
    print("static const struct {\n    const char *history;\n    int n_generated;\n"
          "    const char *keys, *forbidden;\n} forbid_rows[] = {")
    for _ in range(80):
        history, n, keys, ids = row(r)
        print("    {%s, %d,\n     %s,\n     %s}," % (text(history), n, text(keys), text(ids)))
    print("};\nstatic const int32_t forbid_prompt[] = {%s};" % ", ".join(map(str, PROMPT)))
    print("/* generation_config.json, the ids that follow the prompt */")
    print("static const struct {\n    const char *keys, *ids;\n} forbid_runs[] = {")
    for keys, ids in runs():
        print("    {%s,\n     %s}," % (text(keys), text(ids)))
    print("};")


main()
