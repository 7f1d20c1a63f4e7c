#!/usr/bin/env python3
"""Writes the table of the classes of tokenizers that transformers builds from code of its own.

usage: python tools/tokenizer_classes.py > src/tokenizer/tokenizer_classes.def    (needs transformers)

transformers 5 opens tokenizer.json as it is for most classes. A class with an __init__ of its own takes only the vocabulary,
the merges, the added tokens and the post-processor from the file, and makes the other sections itself."""
import json

import transformers
from transformers.models.auto import tokenization_auto as auto
from transformers.tokenization_utils_tokenizers import TokenizersBackend

VOCAB = {t: i for i, t in enumerate(["<unk>", "<s>", "</s>", "<pad>", "<bos>", "<eos>", "a"])}
NONE = ("TokenizersBackend", "PythonBackend", "PreTrainedTokenizerFast", "MistralCommonBackend")


def quoted(text):
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def plain(name):
    return name.removesuffix("Fast")


def builds(name):
    """The class if it builds a BPE tokenizer for a decoder."""
    try:
        c = auto.tokenizer_class_from_name(name)
    except Exception:
        return None
    own = isinstance(c, type) and issubclass(c, TokenizersBackend) and "__init__" in c.__dict__
    return c if own and getattr(c.model, "__name__", "") == "BPE" else None


def sections(c, prefix, legacy):
    document = json.loads(c(vocab=VOCAB, merges=[], add_prefix_space=prefix, legacy=legacy).backend_tokenizer.to_str())
    return [json.dumps(document[k]) for k in ("normalizer", "pre_tokenizer", "decoder")], document["model"]


def write_class(name, c):
    flags = json.loads(c(vocab=VOCAB, merges=[]).backend_tokenizer.to_str())["model"]
    default = [json.loads(c(vocab=VOCAB, merges=[]).backend_tokenizer.to_str())[k] for k in ("normalizer", "pre_tokenizer", "decoder")]
    states = {(p, l): sections(c, p, l)[0] for p in (False, True) for l in (False, True)}
    prefix = next(p for p in (False, True) if [json.loads(x) for x in states[p, False]] == default)
    assert not flags["ignore_merges"]
    print("CLASS(%s, %d, %d)" % (quoted(name), prefix, flags["byte_fallback"]))
    for p in (0, 1):
        if p == 1 and states[False, False] == states[True, False]:
            continue
        for legacy in (0, 1):
            if legacy == 1 and states[bool(p), False] == states[bool(p), True]:
                continue
            any_prefix = states[False, False] == states[True, False]
            any_legacy = states[bool(p), False] == states[bool(p), True]
            print("SECTIONS(%s, %d, %d, %s)" % (quoted(name), -1 if any_prefix else p, -1 if any_legacy else legacy,
                                                ",\n         ".join(map(quoted, states[bool(p), bool(legacy)]))))


def main():
    decoders = ["CodeLlamaTokenizer", "CohereTokenizer", "GPT2Tokenizer", "GPTNeoXTokenizer", "GemmaTokenizer", "LlamaTokenizer",
                "Qwen2Tokenizer", "Qwen3_5Tokenizer"]
    print("/* Classes of tokenizers that transformers %s builds from code, and the classes of its model types.\n"
          " * Written by tools/tokenizer_classes.py.\n *\n"
          " *   CLASS(name, prefix, fallback)\n"
          " *     prefix: whether a blank goes before a text if add_prefix_space is absent; fallback: byte_fallback\n"
          " *     of its model, whose ignore_merges is false\n"
          " *   SECTIONS(name, prefix, legacy, normalizer, pre_tokenizer, decoder)\n"
          " *     what the class makes for these values of add_prefix_space and legacy; -1: any value\n"
          " *   TYPE(model_type, class, wins)\n"
          " *     class \"\": tokenizer.json as it is; wins: whatever class tokenizer_config.json names */" % transformers.__version__)
    for name in decoders:
        write_class(name, builds(name))
    for model_type, name in sorted(auto.TOKENIZER_MAPPING_NAMES.items()):
        if name is None or (plain(name) not in decoders and plain(name) not in NONE):
            continue
        wins = model_type in auto.MODELS_WITH_INCORRECT_HUB_TOKENIZER_CLASS
        print("TYPE(%s, %s, %d)" % (quoted(model_type), quoted("" if plain(name) in NONE else plain(name)), wins))


if __name__ == "__main__":
    main()
