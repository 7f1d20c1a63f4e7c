#!/usr/bin/env python3
"""Writes src/unicode/unicode.def: the properties of characters that the tokenizer needs, as the package `tokenizers`
has them.

usage: unicode_tables.py > src/unicode/unicode.def      (pip install tokenizers==0.23.3; Python 3.9 or newer)

`tokenizers` contains libraries with different versions of Unicode, so no published table describes it. This script
tests the package with every code point: a character is a word character when the pre-tokenizer Whitespace keeps it
together with a letter, a control character when BertNormalizer removes it, and so on. The script derives combining
classes from canonical ordering: NFD moves a mark before another one of a higher class, and marks whose classes are
known since Unicode 3.2 are the scale. Python's `unicodedata` only decides which code points are assigned, where two
ranges are joined across characters that never decompose."""

import sys
import unicodedata

import tokenizers
from tokenizers import normalizers, pre_tokenizers

ALL = [cp for cp in range(0x110000) if not 0xD800 <= cp <= 0xDFFF]
NFC, NFD = normalizers.NFC().normalize_str, normalizers.NFD().normalize_str
NFKC, NFKD = normalizers.NFKC().normalize_str, normalizers.NFKD().normalize_str
HANGUL = range(0xAC00, 0xD7A4)


def pieces(step, text):
    return len(step.pre_tokenize_str(text))


def ranges(members):
    """Converts sorted code points to ranges [first, last]."""
    out = []
    for cp in members:
        if out and out[-1][1] == cp - 1:
            out[-1][1] = cp
        else:
            out.append([cp, cp])
    return out


def bert(**flags):
    off = dict(clean_text=False, handle_chinese_chars=False, strip_accents=False, lowercase=False)
    return normalizers.BertNormalizer(**dict(off, **flags)).normalize_str


def classes():
    """Returns code point -> canonical combining class, for classes other than 0."""

    def swaps(x, y):
        return x != y and NFD("a" + x + y) == "a" + y + x

    old = unicodedata.ucd_3_2_0
    scale = {}
    for cp in ALL:
        k = old.combining(chr(cp))
        if k and NFD(chr(cp)) == chr(cp):
            scale.setdefault(k, chr(cp))
    for cp in ALL:  # classes without a character in Unicode 3.2
        k = unicodedata.combining(chr(cp))
        if k and k not in scale and NFD(chr(cp)) == chr(cp) and swaps(chr(cp), scale[1]):
            scale[k] = chr(cp)
    order = sorted(scale)
    for a, b in zip(order, order[1:]):
        assert swaps(scale[b], scale[a]) and not swaps(scale[a], scale[b]), (a, b)
    lowest, highest, found = scale[order[0]], scale[order[-1]], {}
    for cp in ALL:
        c = chr(cp)
        if NFD(c) != c or not (swaps(c, lowest) or swaps(highest, c)):
            continue
        same = [k for k in order if not swaps(c, scale[k]) and not swaps(scale[k], c)]
        assert len(same) == 1, (hex(cp), same)
        found[cp] = same[0]
    return found


def joined(members):
    """Returns ranges that contain all members, joined across assigned characters that never decompose."""

    def inert(cp):
        return unicodedata.category(chr(cp)) not in ("Cn", "Cs") and unicodedata.normalize(
            "NFKD", chr(cp)
        ) == chr(cp)

    out = []
    for first, last in ranges(members):
        if out and all(inert(cp) for cp in range(out[-1][1] + 1, first)):
            out[-1][1] = last
        else:
            out.append([first, last])
    return out


def check_mappings(form, mine, members):
    """Checks that the package normalises each member as unicodedata does. The C code takes mappings from utf8proc; Unicode never changes one."""
    for cp in members:
        assert unicodedata.normalize(form, chr(cp)) == mine(chr(cp)), (form, hex(cp))


def seconds(canonical):
    """Returns the characters that compose with a preceding one."""
    out = set(range(0x1161, 0x1176)) | set(range(0x11A8, 0x11C3))
    for cp in canonical:
        d = NFD(chr(cp))
        if len(d) < 2 or NFC(d) != chr(cp) or cp in HANGUL:
            continue
        first = NFC(d[:-1])
        assert len(first) == 1 and NFC(first + d[-1]) == chr(cp), hex(cp)
        out.add(ord(d[-1]))
    return ranges(sorted(out))


def lower_ranges():
    """Returns [first, last, step, difference] for characters that differ from their lower case, except U+0130."""
    lower = normalizers.Lowercase().normalize_str
    out = []
    for cp in ALL:
        low = lower(chr(cp))
        if low == chr(cp) or cp < 0x80 or cp == 0x130:
            continue
        assert len(low) == 1, hex(cp)
        diff = ord(low) - cp
        if out and out[-1][3] == diff:
            first, last, step, _ = out[-1]
            gap = cp - last
            if gap <= 2 and (first == last or gap == step):
                out[-1][1:3] = [cp, gap]
                continue
        out.append([cp, cp, 1, diff])
    assert lower("\u0130") == "i\u0307"
    return out


def section(name, rows):
    print("\n#ifdef UNICODE_%s" % name)
    line = ""
    for row in rows:
        item = "{%s}," % ", ".join(("0x%X" % v) if k < 2 else str(v) for k, v in enumerate(row))
        if line and len(line) + 1 + len(item) > 108:
            print(line)
            line = ""
        line += (" " if line else "") + item
    print(line)
    print("#endif")


def main():
    word, punct, digit = pre_tokenizers.Whitespace(), pre_tokenizers.Punctuation(), pre_tokenizers.Digits()
    clean, accents, strip = (
        bert(clean_text=True),
        bert(strip_accents=True),
        normalizers.StripAccents().normalize_str,
    )
    canonical = [cp for cp in ALL if NFD(chr(cp)) != chr(cp)]
    compat = [cp for cp in ALL if NFKD(chr(cp)) != chr(cp)]
    check_mappings("NFD", NFD, canonical)
    check_mappings("NFKD", NFKD, compat)
    combining = classes()
    rows = []
    for cp in sorted(combining):
        if rows and rows[-1][1] == cp - 1 and rows[-1][2] == combining[cp]:
            rows[-1][1] = cp
        else:
            rows.append([cp, cp, combining[cp]])
    print("/* Characters as tokenizers %s has them." % tokenizers.__version__)
    print(" * Generated by tools/unicode_tables.py: change that, not this.\n *")
    print(" * A section is a sorted list of {first, last}. CLASS adds the combining class, LOWER a step and")
    print(" * the distance to the lower case. Nothing decomposes outside of CANONICAL and COMPAT. */")
    section("WORD", ranges(cp for cp in ALL if cp >= 0x80 and pieces(word, "a" + chr(cp) + "a") == 1))
    section("PUNCT", ranges(cp for cp in ALL if cp >= 0x80 and pieces(punct, "a" + chr(cp)) == 2))
    section("NUMBER", ranges(cp for cp in ALL if cp >= 0x80 and pieces(digit, "a" + chr(cp)) == 2))
    section("ACCENT", ranges(cp for cp in ALL if strip(chr(cp)) == ""))
    section("NONSPACING", ranges(cp for cp in ALL if NFD(chr(cp)) == chr(cp) and accents(chr(cp)) == ""))
    section("CONTROL", ranges(cp for cp in ALL if cp not in (0, 0xFFFD) and clean(chr(cp)) == ""))
    section("CLASS", rows)
    section("CANONICAL", joined(canonical))
    section("COMPAT", joined(compat))
    section("SECOND", seconds(canonical))
    section("LOWER", lower_ranges())


if __name__ == "__main__":
    sys.exit(main())
