#!/usr/bin/env python3
"""Decides whether a safetensors file is valid: a test oracle with Python's integers and its own JSON parser, independent of linnet's code.

  safetensors_oracle.py files DIR          prints NAME VERDICT for each file of DIR, sorted by name
  safetensors_oracle.py random N SEED OUT  writes N mutated files to OUT, each after its length (4 bytes), and prints their verdicts

VERDICT is `accept`, or `reject` and the rules that the file breaks: length, json, header, dtype, number, size, tiling, limit. When a file breaks
several rules, a reader may report any one of them. After `json`, the other rules are not checked.
"""
import json
import os
import random
import re
import struct
import sys

BITS = {"F64": 64, "I64": 64, "U64": 64, "C64": 64, "F32": 32, "I32": 32, "U32": 32, "F16": 16, "BF16": 16, "I16": 16, "U16": 16,
        "I8": 8, "U8": 8, "BOOL": 8, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8,
        "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6}
MOST = 2**48 - 1


class Number(str):
    """A JSON number as its source text."""


class Broken(Exception):
    pass


def strings_of(value):
    todo = [value]
    while todo:
        v = todo.pop()
        if isinstance(v, Number):
            if len(v) > 64:
                raise Broken
        elif isinstance(v, str):
            yield v
        elif isinstance(v, tuple):
            for k, x in v[1]:
                yield k
                todo.append(x)
        elif isinstance(v, list):
            todo.extend(v)


def depth_of(text):
    """Returns the greatest nesting depth of brackets outside strings."""
    deep = most = 0
    for m in re.finditer(r'"(?:[^"\\]|\\.)*"|[\[{]|[\]}]', text):
        if m[0] in "[{":
            deep += 1
            most = max(most, deep)
        elif m[0] in "]}":
            deep -= 1
    return most


def read_json(data):
    """Parses JSON. An object becomes ("object", [(key, value), ...]), so that duplicate keys are kept."""
    def refuse(_):
        raise Broken
    try:
        text = data.decode("utf-8")
        if depth_of(text) > 3:
            raise Broken
        value = json.loads(text, object_pairs_hook=lambda p: ("object", p), parse_int=Number, parse_float=Number, parse_constant=refuse)
        for s in strings_of(value):
            s.encode("utf-8")
    except (ValueError, RecursionError):
        raise Broken from None
    return value


def is_object(v):
    return isinstance(v, tuple)


def is_text(v):
    return isinstance(v, str) and not isinstance(v, Number)


def sizes(value, bad):
    """Returns the integers of a JSON array; None when it is not an array of integers."""
    if not isinstance(value, list):
        bad.add("header")
        return None
    out = []
    for v in value:
        if not isinstance(v, Number) or not re.fullmatch(r"0|[1-9][0-9]*", v) or int(v) > MOST:
            bad.add("number")
            return None
        out.append(int(v))
    return out


def check_tensor(name, entry, bad):
    """Returns the byte range (begin, end) of a tensor, or None."""
    if len(name.encode()) > 1024:
        bad.add("limit")
    if name == "" or "\0" in name:
        bad.add("header")
    if not is_object(entry):
        bad.add("header")
        return None
    known = [(k, v) for k, v in entry[1] if k in ("dtype", "shape", "data_offsets")]
    fields = dict(known)
    if len(known) != 3 or len(fields) != 3:
        bad.add("header")
    for k, v in known:
        if k == "dtype" and (not is_text(v) or v not in BITS):
            bad.add("dtype" if is_text(v) else "header")
    shape = sizes(fields.get("shape"), bad)
    offsets = sizes(fields.get("data_offsets"), bad)
    if shape is not None and len(shape) > 8:
        bad.add("limit")
    if offsets is not None and (len(offsets) != 2 or offsets[1] < offsets[0]):
        bad.add("header")
        offsets = None
    dtype = fields.get("dtype")
    if shape is not None and is_text(dtype) and dtype in BITS:
        bits = 1
        for d in shape + [BITS[dtype]]:
            bits *= d
            if bits >= 2**64:
                bad.add("size")
                return None
        if bits % 8 or (offsets and offsets[1] - offsets[0] != bits // 8):
            bad.add("size")
    return offsets and (offsets[0], offsets[1])


def check_header(header, room, bad):
    if not is_object(header):
        bad.add("header")
        return
    names, ranges, metadata = set(), [], 0
    for name, entry in header[1]:
        if name == "__metadata__":
            metadata += 1
            if entry is not None and not (is_object(entry) and all(is_text(v) for _, v in entry[1])):
                bad.add("header")
            if is_object(entry) and len(dict(entry[1])) != len(entry[1]):
                bad.add("header")
            if is_object(entry) and len(entry[1]) > 65536:
                bad.add("limit")
            continue
        if name in names:
            bad.add("header")
        names.add(name)
        ranges.append(check_tensor(name, entry, bad))
    if metadata > 1:
        bad.add("header")
    if len(ranges) > 65536:
        bad.add("limit")
    at = 0
    for r in sorted(r for r in ranges if r):
        if r[0] != at:
            bad.add("tiling")
        at = r[1]
    if at != room:
        bad.add("tiling")


def verdict(data):
    bad = set()
    n = int.from_bytes(data[:8], "little") if len(data) >= 8 else 0
    if len(data) < 8 or n == 0 or n > 100_000_000 or 8 + n > len(data):
        bad.add("length")
    else:
        try:
            check_header(read_json(data[8:8 + n]), len(data) - 8 - n, bad)
        except Broken:
            bad.add("json")
    return "reject " + " ".join(sorted(bad)) if bad else "accept"


# ---- mutated files ----

PIECES = [b"0", b"1", b"-1", b"-0", b"0.0", b"1e0", b"281474976710655", b"281474976710656", b"4294967296", b"65536", b"18446744073709551615",
          b"18446744073709551616", b'"a"', b"null", b"[]", b"{}", b"true", b'"U8"', b'"F17"', b'"t0"', b'"__metadata__"', b'"dtype"', b'"shape"',
          b'"data_offsets"', b",", b"]", b"}", b" ", b"\n", b"\t", b"\0", b"\xff", b"\\u0061", b"\\ud800", b"[[[[", b"9" * 65, b"NaN"]


def good_header(rng):
    entries, at = [], 0
    for i in range(rng.randint(0, 4)):
        dtype = rng.choice(sorted(BITS))
        shape = [rng.choice([0, 1, 2, 3, 4, 8]) for _ in range(rng.randint(0, 3))]
        bits = BITS[dtype]
        for d in shape:
            bits *= d
        if bits % 8:
            dtype, bits = "U8", bits // BITS[dtype] * 8
        entries.append(("t%d" % i, {"dtype": dtype, "shape": shape, "data_offsets": [at, at + bits // 8]}))
        at += bits // 8
    rng.shuffle(entries)
    if rng.random() < 0.3:
        entries.append(("__metadata__", rng.choice([{"format": "pt"}, {"a": "", "t0": "t1"}, None])))
    return json.dumps(dict(entries), separators=rng.choice([(",", ":"), (", ", ": ")])).encode(), at


def mutate(rng, header):
    h = bytearray(header)
    for _ in range(rng.choice([0, 1, 1, 1, 2, 3])):
        kind, i = rng.random(), rng.randrange(len(h) + 1)
        numbers = list(re.finditer(rb"\d+", bytes(h)))
        if kind < 0.3:
            h[i:i] = rng.choice(PIECES)
        elif kind < 0.45:
            del h[i:i + rng.randint(1, 12)]
        elif kind < 0.6:
            h[i:i + rng.randint(1, 3)] = rng.choice(PIECES)
        elif kind < 0.95 and numbers:
            m = rng.choice(numbers)
            h[m.start():m.end()] = rng.choice(PIECES[:14] + [b"%d" % rng.randint(0, 30)] * 14)
        elif i < len(h):
            h[i] = rng.randrange(256)
    return bytes(h)


def random_files(n, seed):
    rng = random.Random(seed)
    for _ in range(n):
        header, room = good_header(rng)
        header = mutate(rng, header)
        length = max(0, len(header) + rng.choice([0] * 30 + [1, -1, 1 << 40]))
        yield struct.pack("<Q", length) + header + bytes(max(0, room + rng.choice([0] * 12 + [1, -1])))


def main(argv):
    if len(argv) == 3 and argv[1] == "files":
        for name in sorted(os.listdir(argv[2]), key=os.fsencode):
            with open(os.path.join(argv[2], name), "rb") as f:
                print(name, verdict(f.read()))
        return 0
    if len(argv) == 5 and argv[1] == "random":
        with open(argv[4], "wb") as out:
            for data in random_files(int(argv[2]), int(argv[3])):
                out.write(struct.pack("<I", len(data)) + data)
                print(verdict(data))
        return 0
    print(__doc__.strip(), file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv))
