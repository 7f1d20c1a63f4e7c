#!/usr/bin/env python3
"""Compares the output of `linnet quantize` with that of mlx_lm.convert: tensors by name, dtype, shape and bytes, the index, the configuration. Also
loads linnet's output with mlx-lm.

usage: python tools/compare_mlx.py [--linnet BIN] [--bits 4,8] [--group 64] [--keep NAME=BITS] MODEL...
Needs mlx[cpu] and mlx-lm from PyPI. Models whose directory has a name that mlx-lm does not know are only reported. Exit 1 when anything differs.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile

import mlx.core as mx
import numpy as np
from mlx_lm import convert, load


def tensors(path):
    """Returns name -> (dtype, shape, bytes) over all shards, read directly from the headers of the safetensors files."""
    out, files = {}, sorted(f for f in os.listdir(path) if f.endswith(".safetensors"))
    for f in files:
        data = open(os.path.join(path, f), "rb").read()
        n = int.from_bytes(data[:8], "little")
        head = json.loads(data[8:8 + n])
        meta = head.pop("__metadata__", None)
        assert meta == {"format": "mlx"}, meta
        for name, t in head.items():
            a, b = t["data_offsets"]
            out[name] = (t["dtype"], tuple(t["shape"]), data[8 + n + a:8 + n + b], f)
    return out


def read_json(*path):
    return json.load(open(os.path.join(*path)))


def predicate(keep):
    def fn(path, module):
        form = True
        for name, bits in keep:
            if f".{name}." in f".{path}." or (name == "lm_head" and path.endswith("embed_tokens") and fn.tied):
                form = False if bits == 16 else {"group_size": fn.group, "bits": bits, "mode": "affine"}
        return form
    return fn


def compare(args, model, bits, group, keep):
    with tempfile.TemporaryDirectory() as tmp:
        ours, theirs = os.path.join(tmp, "linnet"), os.path.join(tmp, "mlx")
        command = [args.linnet, "quantize", model, "-o", ours, "--bits", str(bits), "--group", str(group)]
        for name, b in keep:
            command += ["--keep", f"{name}={b}"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        fn = predicate(keep)
        fn.group, fn.tied = group, "lm_head.weight" not in tensors_names(model)
        sys.stdout.flush()
        with open(os.devnull, "w") as null:
            stdout, sys.stdout = sys.stdout, null
            try:
                convert(model, theirs, quantize=True, q_bits=bits, q_group_size=group, quant_predicate=fn if keep else None)
            finally:
                sys.stdout = stdout
        a, b = tensors(ours), tensors(theirs)
        bad = sorted(set(a) ^ set(b)) + [n for n in a if n in b and a[n] != b[n]]
        if read_json(ours, "model.safetensors.index.json") != read_json(theirs, "model.safetensors.index.json"):
            bad.append("model.safetensors.index.json")
        c, d = read_json(ours, "config.json"), read_json(theirs, "config.json")
        bad += [f"config.json: {k}" for k in sorted(set(c) | set(d)) if c.get(k) != d.get(k)]
        mx.random.seed(0)
        (m1, t1), (m2, _) = load(ours), load(theirs)
        ids = mx.array([[1, 5, 9, 2, 7, 11, 3]])
        try:
            want = np.array(m2(ids).astype(mx.float32))
        except IndexError:      # mlx-lm cannot run a Gemma with fewer layers than its pattern is long
            want = None
        if want is not None and not np.array_equal(np.array(m1(ids).astype(mx.float32)), want):
            bad.append("logits of mlx-lm")
        if not t1.encode("Once upon a time"):
            bad.append("tokenizer")
    print(f"{os.path.basename(model.rstrip('/')):28} {bits} bits, group {group:3}, keep {keep}: {len(a)} tensors", "differ: " + ", ".join(bad[:8]) if bad else "same", flush=True)
    return not bad


def tensors_names(path):
    out = set()
    for f in os.listdir(path):
        if f.endswith(".safetensors") and f.startswith("model"):
            with open(os.path.join(path, f), "rb") as h:
                out |= set(json.loads(h.read(int.from_bytes(h.read(8), "little"))))
    return out


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("models", nargs="+")
    ap.add_argument("--linnet", default=os.path.join(os.path.dirname(__file__), "../build/linnet"))
    ap.add_argument("--bits", default="4")
    ap.add_argument("--group", default="64")
    ap.add_argument("--keep", action="append", default=[])
    args = ap.parse_args()
    keep = [(k.rsplit("=", 1)[0], int(k.rsplit("=", 1)[1])) for k in args.keep]
    ok = True
    for model in args.models:
        for bits in args.bits.split(","):
            for group in args.group.split(","):
                ok &= compare(args, model, int(bits), int(group), keep)
    sys.exit(0 if ok else 1)


main()
