#!/usr/bin/env python3
"""Writes normal.json: what HF tokenizers makes of every character in context, as hashes.

usage: make_normal.py > normal.json        (needs the package tokenizers; tests need the file only)

Every code point is put among marks of other combining classes, so that orders and compositions across it
are seen, and random runs of marks and letters follow. The outputs of a block are hashed together
(FNV-1a); test_normal.c makes the same texts."""

import json
import sys

from tokenizers import normalizers, pre_tokenizers

BLOCK = 0x4000
LIMIT = 0x40000
BERT = {
    "type": "BertNormalizer",
    "clean_text": False,
    "handle_chinese_chars": False,
    "strip_accents": False,
    "lowercase": False,
}
NORMALIZERS = {
    "NFC": {"type": "NFC"},
    "NFD": {"type": "NFD"},
    "NFKC": {"type": "NFKC"},
    "NFKD": {"type": "NFKD"},
    "Lowercase": {"type": "Lowercase"},
    "StripAccents": {"type": "StripAccents"},
    "BertNormalizer": dict(
        BERT, clean_text=True, handle_chinese_chars=True, strip_accents=None, lowercase=True
    ),
    "BertNormalizer, clean": dict(BERT, clean_text=True),
    "BertNormalizer, accents": dict(BERT, strip_accents=True),
}
# The sources of the characters of random texts: marks of many classes, letters that compose, Hangul and others.
RANGES = [
    [0x41, 0x5A],
    [0x61, 0x7A],
    [0xC0, 0x17F],
    [0x300, 0x36F],
    [0x483, 0x487],
    [0x591, 0x5C7],
    [0x610, 0x61A],
    [0x64B, 0x65F],
    [0x7EB, 0x7FD],
    [0x890, 0x8FF],
    [0x93C, 0x94D],
    [0x9BC, 0x9FE],
    [0xB3C, 0xB57],
    [0xC4D, 0xC56],
    [0xD3B, 0xD57],
    [0xE38, 0xE4B],
    [0xEB8, 0xECB],
    [0xF71, 0xF84],
    [0x1025, 0x1039],
    [0x1100, 0x1175],
    [0x11A8, 0x11C2],
    [0x1AB0, 0x1ACE],
    [0x1B34, 0x1B44],
    [0x1DC0, 0x1DFF],
    [0x1E00, 0x1EFF],
    [0x1F00, 0x1FFF],
    [0x20D0, 0x20F0],
    [0x3041, 0x309A],
    [0xAC00, 0xAC40],
    [0xA82C, 0xA82C],
    [0xFB1D, 0xFB4E],
    [0xFE20, 0xFE2F],
    [0x10A0D, 0x10A3F],
    [0x10D24, 0x10D6D],
    [0x10EAB, 0x10EFF],
    [0x10F46, 0x10F85],
    [0x11099, 0x110BA],
    [0x11131, 0x11134],
    [0x1133B, 0x11374],
    [0x113B8, 0x113D1],
    [0x11930, 0x11943],
    [0x16FF0, 0x16FF1],
    [0x1D157, 0x1D1AD],
    [0x1E000, 0x1E08F],
    [0x1E130, 0x1E136],
    [0x1E2EC, 0x1E2EF],
    [0x1E4EC, 0x1E4EF],
    [0x1E5EE, 0x1E5EF],
    [0x1E8D0, 0x1E8D6],
    [0x1E944, 0x1E94A],
]
N_RANDOM, RANDOM_BLOCK, RANDOM_LENGTH = 16384, 2048, 12


def fnv(h, data):
    for b in data:
        h = (h ^ b) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return h


def in_context(cp):
    c = chr(cp)
    return "a\u0301" + c + "\u0316" + c + "\u0345 " + c + "\u0300" + c + "\u05b4A" + c


def blocks():
    """Lists of texts: code points by BLOCK, then random runs."""
    for first in range(0, LIMIT, BLOCK):
        yield [in_context(cp) for cp in range(first, first + BLOCK) if not 0xD800 <= cp <= 0xDFFF]
    state, texts = 1, []
    for _ in range(N_RANDOM):
        text = ""
        for _ in range(RANDOM_LENGTH):
            state = (state * 6364136223846793005 + 1442695040888963407) & 0xFFFFFFFFFFFFFFFF
            first, last = RANGES[(state >> 48) % len(RANGES)]
            text += chr(first + (state >> 33) % 0x8000 % (last - first + 1))
        texts.append(text)
        if len(texts) == RANDOM_BLOCK:
            yield texts
            texts = []


def classes_of(first):
    word, punct, digit = pre_tokenizers.Whitespace(), pre_tokenizers.Punctuation(), pre_tokenizers.Digits()
    for cp in range(first, first + BLOCK):
        if not 0xD800 <= cp <= 0xDFFF:
            yield (
                (len(word.pre_tokenize_str("a" + chr(cp) + "a")) == 1)
                | (len(punct.pre_tokenize_str("a" + chr(cp))) == 2) << 1
                | (len(digit.pre_tokenize_str("a" + chr(cp))) == 2) << 2
            )


def main():
    start = 0xCBF29CE484222325
    made = {
        n: getattr(normalizers, o["type"])(**{k: v for k, v in o.items() if k != "type"})
        for n, o in NORMALIZERS.items()
    }
    hashes = {n: [] for n in made}
    for texts in blocks():
        for name, n in made.items():
            h = start
            for t in texts:
                h = fnv(h, n.normalize_str(t).encode() + b"\n")
            hashes[name].append("%016x" % h)
    classes = ["%016x" % fnv(start, bytes(classes_of(first))) for first in range(0, LIMIT, BLOCK)]
    print(
        json.dumps(
            {"ranges": RANGES, "normalizers": NORMALIZERS, "hashes": hashes, "classes": classes},
            separators=(",", ":"),
        ).replace("],", "],\n")
    )


sys.exit(main())
