#!/usr/bin/env python3
"""Writes cases.jsonl: small tokenizers that cover every step and flag, with what HF tokenizers makes of some texts.

usage: make_cases.py > cases.jsonl        (needs the package tokenizers; tests need the file only)

A line {"base": NAME, "model": {...}} defines a model; a line {"name", "base", "with": {...}, "model": {...}, "encode": [[text, ids], ...],
"encode_special": [...], "decode": [[ids, skip, text], ...]} is a tokenizer: base, its fields replaced, and what must come out."""
import json
import sys

from tokenizers import Tokenizer

TEXTS = ["", " ", "the cat", " the  cat\n", "Don't 12 3a!?", "a-b--c", "ab\tabc  a", "caf\u00e9 cafe\u0301", "\u6771\u4eac \u7f85", "x\u0000y", "A\u00c9\uff21\ufb01\u0130",
         "\U0001f469\u200d\U0001f467 z", "the<s>the [M] </s>x", "  <s>  a", "thethe the", "_a _ \u2581b", "\u05d0\u05b7 \u0301", "a\u00a0b\u3000c\u200bd\u0085e",
         "aaaaab bbb", "\u0b95\u0bcd\u0bb7 \U00031350\u1c8a"]

# What Unicode's rules of grapheme clusters are about: controls, marks, Hangul, flags, pictographs with joiners.
CLUSTERS = ["\U0001f642\U0001f642", "\u00a9\U0001f642", "\U0001f469\u200d\U0001f467\U0001f469\u200d\U0001f467", "a\u200d\U0001f642", "\U0001f642\u0301\u200d\U0001f642",
            "\U0001f642\U0001f3fd\U0001f3fd", "\U0001f1e9\U0001f1ea\U0001f1eb\U0001f1f7\U0001f1e9", "\u1100\u1161\u11a8\uac00\u11a8\uac01\u11a8\uac01\u1161", "\r\n\n\r", "\u0600a\u0301",
            "\u0600\u0600", "\u0e01\u0e33", "\u0915\u094d\u0924\u093e", "\u1000\u1038\u102b", "\u00ad\u0301", "\u0301\u0301a", "\u200d\u200c", "\u0d4e\u0d15", "1\ufe0f\u20e3", "\U0001f3f4\U000e0067\U000e007f"]


def merges_of(vocab, words):
    """Merges that build each word from the left."""
    out = []
    for w in words:
        for i in range(1, len(w)):
            pair = [w[:i], w[i]]
            for x in pair + [w[: i + 1]]:
                vocab.setdefault(x, len(vocab))
            if pair not in out:
                out.append(pair)
    return out


def byte_level():
    keep = list(range(33, 127)) + list(range(161, 173)) + list(range(174, 256))
    rest = [b for b in range(256) if b not in keep]
    vocab = {c: i for i, c in enumerate(sorted([chr(b) for b in keep] + [chr(256 + i) for i in range(len(rest))]))}
    return {"type": "BPE", "vocab": vocab, "merges": merges_of(vocab, ["the", "\u0120the", "\u0120cat", "ab", "aaaa", "\u0120\u0120", "\u00c3\u00a9"])}


def characters():
    vocab = {"<unk>": 0}
    for c in "\u2581 _abcdefghijklmnoptxyzDAE'!?-\n\u00e9\u0301\u6771123":
        vocab.setdefault(c, len(vocab))
    merges = merges_of(vocab, ["the", "\u2581the", "\u2581cat", "ab", "abc", "aaaa", "\u2581\u2581", "caf\u00e9", "  "])
    for b in range(256):
        vocab["<0x%02X>" % b] = len(vocab)
    return {"type": "BPE", "unk_token": "<unk>", "byte_fallback": True, "fuse_unk": True, "vocab": vocab, "merges": merges}


def suffixed():
    vocab, merges = {"<unk>": 0}, []
    for c in "abcthe":
        for x in (c, "##" + c, c + "</w>", "##" + c + "</w>"):
            vocab.setdefault(x, len(vocab))
    for a, b, c in (("a", "##b", "ab"), ("ab", "##c</w>", "abc</w>"), ("t", "##h", "th"), ("##h", "##e</w>", "##he</w>")):
        vocab.setdefault(c, len(vocab))
        merges.append([a, b])
    return {"type": "BPE", "unk_token": "<unk>", "continuing_subword_prefix": "##", "end_of_word_suffix": "</w>", "vocab": vocab, "merges": merges}


BASES = {"bytes": byte_level(), "chars": characters(), "affixes": suffixed()}
LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}


def re(pattern):
    return {"Regex": pattern}


def split(pattern, behavior, invert=False):
    return {"type": "Split", "pattern": pattern if isinstance(pattern, dict) else {"String": pattern}, "behavior": behavior, "invert": invert}


def seq(key, *items):
    return {"type": "Sequence", key: list(items)}


def added(i, content, **flags):
    token = {"id": i, "content": content, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": False}
    token.update(flags)
    return token


def cases():
    for form in ("NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents", "ByteLevel"):
        yield form, "chars", {"normalizer": {"type": form}}, {}
    yield "replace string", "chars", {"normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}}, {}
    yield "replace longer string", "chars", {"normalizer": {"type": "Replace", "pattern": {"String": "the"}, "content": ""}}, {}
    yield "replace regex", "chars", {"normalizer": {"type": "Replace", "pattern": re(r"\s+"), "content": "_"}}, {}
    yield "replace nothing", "chars", {"normalizer": {"type": "Replace", "pattern": re(r"x*"), "content": "-"}}, {}
    yield "prepend", "chars", {"normalizer": seq("normalizers", {"type": "Prepend", "prepend": "\u2581"}, seq("normalizers"))}, {}
    for left, right in ((True, True), (True, False), (False, True)):
        yield "strip", "chars", {"normalizer": {"type": "Strip", "strip_left": left, "strip_right": right}}, {}
    for clean, cjk, accents, lower in ((True, True, None, True), (True, False, False, False), (False, True, True, False)):
        yield "bert", "chars", {"normalizer": {"type": "BertNormalizer", "clean_text": clean, "handle_chinese_chars": cjk, "strip_accents": accents, "lowercase": lower}}, {}
    for behavior in ("Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"):
        for invert in (False, True):
            yield "split", "chars", {"pre_tokenizer": split("-", behavior, invert)}, {"ignore_merges": True}
            yield "split regex", "bytes", {"pre_tokenizer": seq("pretokenizers", split(re(r"\p{L}+|\s"), behavior, invert), LEVEL)}, {}
    for pattern in (r"\w+", r"\W", r"[\w-]+", r"\bt", r"[^\S\n]+", r"[\P{L}a]+", r"a{1,2}+", r"a{,2}b", r"\h+", r"$", r"^.", r"(?m:.{3})", r"[[:punct:]]", r"[a[bc]]+", r"(?i:THE|'T)",
                    r"\p{Han}", r"\p{Alpha}+", r"\p{^L}", r"[^\d\W]+", r"\u0061+", r"(?<=a)b", r"(.)\1", r"\p{Lowercase_Letter}", r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|\s+(?!\S)|\s+", ""):
        if pattern:
            yield "pattern " + pattern, "bytes", {"pre_tokenizer": seq("pretokenizers", split(re(pattern), "Removed"), LEVEL)}, {}
    for prefix in (False, True):
        for regex in (False, True):
            yield "byte level", "bytes", {"pre_tokenizer": dict(LEVEL, add_prefix_space=prefix, use_regex=regex)}, {"ignore_merges": regex}
    for scheme in ("always", "first", "never"):
        for cut in (False, True):
            yield "metaspace", "chars", {"pre_tokenizer": {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": scheme, "split": cut},
                                         "added_tokens": [added(BASES["chars"]["vocab"]["ab"], "ab")]}, {"ignore_merges": True}
    for step in ({"type": "Digits", "individual_digits": True}, {"type": "Digits", "individual_digits": False}, {"type": "Punctuation", "behavior": "Removed"},
                 {"type": "Whitespace"}, {"type": "WhitespaceSplit"}, {"type": "BertPreTokenizer"}, {"type": "CharDelimiterSplit", "delimiter": "a"},
                 {"type": "FixedLength", "length": 2}):
        yield "pre " + step["type"], "bytes", {"pre_tokenizer": seq("pretokenizers", step, LEVEL)}, {}
    for flags in ({}, {"byte_fallback": False}, {"byte_fallback": False, "fuse_unk": False}, {"byte_fallback": False, "unk_token": None}, {"ignore_merges": True}):
        yield "model", "chars", {}, flags
    partly = {k: v for k, v in BASES["chars"]["vocab"].items() if k not in ("<0xE4>", "<0x9F>")}
    yield "pending unknown", "chars", {}, {"vocab": partly}
    yield "affixes", "affixes", {"pre_tokenizer": {"type": "WhitespaceSplit"}, "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True}}, {}
    yield "affix suffix", "affixes", {"pre_tokenizer": {"type": "WhitespaceSplit"}, "decoder": {"type": "BPEDecoder", "suffix": "</w>"}}, {}
    n = len(BASES["chars"]["vocab"])
    for flags in ({}, {"lstrip": True}, {"rstrip": True}, {"lstrip": True, "rstrip": True}, {"single_word": True}, {"special": True}):
        tokens = [added(n, "<s>", **flags), added(n + 1, "[M]", special=True), added(BASES["chars"]["vocab"]["the"], "the", **flags), added(n + 2, "thethe", special=True)]
        yield "added", "chars", {"added_tokens": tokens}, {}
    tokens = [added(n, "THE", normalized=True), added(n + 1, "<S>", normalized=True, special=True), added(n + 2, "Caf\u00e9", normalized=True, special=True), added(n + 3, "Don"), added(n + 4, "don't", normalized=True)]
    yield "added normalized", "chars", {"added_tokens": tokens, "normalizer": {"type": "Lowercase"}}, {}
    yield "added before a prepended blank", "chars", {"added_tokens": [added(n, "<s>", normalized=True, special=True), added(n + 1, "</s>", special=True)], "normalizer": seq("normalizers", {"type": "Prepend", "prepend": "\u2581"}, {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}),
                                     "decoder": seq("decoders", {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0})}, {}
    tokens = [added(n, "<s>", special=True), added(n + 1, "</s>", special=True)]
    template = {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "B", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "E", "type_id": 0}}], "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
                "special_tokens": {"B": {"id": "B", "ids": [n, n], "tokens": ["<s>", "<s>"]}, "E": {"id": "E", "ids": [n + 1], "tokens": ["</s>"]}}}
    bert = {"type": "BertProcessing", "sep": ["</s>", n + 1], "cls": ["<s>", n]}
    for post in (template, bert, dict(bert, type="RobertaProcessing", trim_offsets=True, add_prefix_space=False), seq("processors", dict(LEVEL), template)):
        yield "post " + post["type"], "chars", {"added_tokens": tokens, "post_processor": post}, {}
    space = {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "}
    for decoder in (space, {"type": "ByteFallback"}, {"type": "Fuse"}, {"type": "Strip", "content": "a", "start": 1, "stop": 0}, {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always", "split": True},
                    {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "never", "split": True}, seq("decoders", space, {"type": "ByteFallback"}, {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 2, "stop": 0}),
                    seq("decoders", {"type": "ByteFallback"}, {"type": "Fuse"}, {"type": "Replace", "pattern": {"String": "the"}, "content": "THE"}), seq("decoders", {"type": "Fuse"}, {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "first", "split": True}),
                    seq("decoders", {"type": "ByteFallback"}, {"type": "Fuse"}, {"type": "Replace", "pattern": re(r"a+"), "content": ""}), seq("decoders", {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}, {"type": "Strip", "content": "t", "start": 1, "stop": 0}),
                    seq("decoders", {"type": "ByteFallback"}, {"type": "Fuse"}, {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True})):
        yield "decoder", "chars", {"added_tokens": tokens, "decoder": decoder}, {}
    yield "decoder bytes", "bytes", {"pre_tokenizer": LEVEL, "decoder": LEVEL, "added_tokens": [added(len(BASES["bytes"]["vocab"]), "<| |>", special=True)]}, {}
    shown = dict(LEVEL, add_prefix_space=True)  # a blank before each piece shows where pieces begin
    for pattern in (re("a*"), re(r"\b"), re("(?=t)|-"), re(""), ""):
        for behavior in ("Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"):
            for invert in (False, True):
                step = split(pattern, behavior, invert)
                yield "split empty", "bytes", {"pre_tokenizer": seq("pretokenizers", step, shown)}, {}
    yield "clusters", "bytes", {"pre_tokenizer": seq("pretokenizers", split(re(r"\X"), "Isolated"), shown), "decoder": LEVEL}, {}


def document(base, fields, model):
    doc = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None, "pre_tokenizer": None, "post_processor": None, "decoder": None}
    doc.update(fields)
    doc["model"] = dict(BASES[base], **model)
    return doc


def main():
    out = lambda o: print(json.dumps(o, ensure_ascii=True, separators=(",", ":")))
    for name, model in BASES.items():
        out({"base": name, "model": model})
    for number, (name, base, fields, model) in enumerate(cases()):
        tok = Tokenizer.from_str(json.dumps(document(base, fields, model)))
        line = {"name": name, "base": base, "with": fields, "model": model, "encode": [], "decode": []}
        wants_texts = not name.startswith("decoder")
        texts = TEXTS
        if name == "clusters":
            texts = line["texts"] = CLUSTERS
        for i, text in enumerate(texts):
            ids = tok.encode(text, add_special_tokens=False).ids
            if wants_texts:
                line["encode"].append(ids)
            if fields.get("post_processor"):
                line.setdefault("encode_special", []).append(tok.encode(text).ids)
            if fields.get("decoder") and ids:
                line["decode"].append([ids, i % 2 == 0, tok.decode(ids, skip_special_tokens=i % 2 == 0)])
        if fields.get("decoder"):
            top, state = tok.get_vocab_size(), number + 1
            for i in range(12):
                ids = []
                for _ in range(8):
                    state = (state * 1103515245 + 12345) % 2**31
                    ids.append((state >> 8) % top)
                line["decode"].append([ids, i % 2 == 0, tok.decode(ids, skip_special_tokens=i % 2 == 0)])
        if name == "clusters":  # ids that the tokenizer does not know
            for ids in ([72, 9999, 73], [9999], [top, 72, 2**31 - 1]):
                line["decode"].append([ids, False, tok.decode(ids, skip_special_tokens=False)])
        out(line)
    out({"texts": TEXTS})


main()
