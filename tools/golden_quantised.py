#!/usr/bin/env python3
"""Writes tiny models quantised in MLX's affine groups, and records the results of transformers with the weights s q + b in f32.

usage: python tools/golden_quantised.py OUT [--only NAME]...     (make golden runs it with OUT = tests/golden/quantised)

A model is created like those of tools/golden.py. Then every Linear and Embedding whose number of columns is a multiple of the group is
quantised by MLX's rule (with the same results as MLX's CPU build; tests/quant has those), packed, and written in the format of mlx-lm. The
reference is the same network with the weights f32(s) * q + f32(b), in f32, recorded and confirmed as in tools/golden.py.
"""
import argparse
import json
import os
import shutil
import tempfile

import golden
import numpy as np
import torch
import transformers
from golden import rope, shape
from safetensors.torch import load_file, save_file

# quant: bits, group; entries of the block for single tensors: their own bits and group, False (dense), True. blocks: the keys in config.json.
MODELS = {
    "llama-q4-g64-bf16": dict(
        family="llama", dtype="bf16", T=60, rows=list(range(0, 60, 3)) + [58, 59], quant=(4, 64), notes="tied, both spellings of the block",
        config=shape(64, 4, 2, 128, 2, 269, head_dim=16, tie_word_embeddings=True, rms_norm_eps=1e-5, bos_token_id=256, eos_token_id=257,
                     rope_parameters=rope())),
    "qwen3-q8-g32-f16": dict(
        family="qwen3", dtype="f16", T=33, quant=(8, 32), entries={"lm_head": (4, 64), "model.layers.0.mlp.down_proj": False},
        notes="untied head of 4 bits in groups of 64, one dense matrix",
        config=shape(64, 2, 1, 96, 2, 263, head_dim=32, tie_word_embeddings=False, bos_token_id=256, eos_token_id=257, rope_parameters=rope(1e6))),
    "gemma3-text-q4-g32-bf16": dict(
        family="gemma3_text", dtype="bf16", T=50, rows=list(range(0, 50, 2)), quant=(4, 32),
        notes="tied; 40 ffn columns are no whole groups, so down_proj is dense",
        config=shape(96, 4, 2, 40, 3, 264, head_dim=16, query_pre_attn_scalar=16, sliding_window=16, bos_token_id=256, eos_token_id=257,
                     layer_types=["sliding_attention", "full_attention", "sliding_attention"],
                     rope_parameters={"full_attention": rope(1e6), "sliding_attention": rope(1e4)})),
    "qwen2-q3-g64-f32": dict(
        family="qwen2", dtype="f32", T=25, quant=(3, 64), blocks=["quantization"], notes="scales in f32, biases of q, k, v, tied",
        config=shape(64, 4, 2, 64, 2, 267, tie_word_embeddings=True, bos_token_id=256, eos_token_id=257, rope_parameters=rope(1e6))),
    "llama-q6-g128-bf16": dict(
        family="llama", dtype="bf16", T=25, quant=(6, 128), blocks=["quantization_config"], notes="quantization_config alone, groups of 128, untied",
        config=shape(128, 2, 1, 128, 1, 265, head_dim=64, tie_word_embeddings=False, rms_norm_eps=1e-5, bos_token_id=256, eos_token_id=257,
                     rope_parameters=rope(500000.0))),
    "qwen3-q5-g64-f32": dict(
        family="qwen3", dtype="f32", T=25, quant=(5, 64), entries={"model.embed_tokens": (2, 32), "model.layers.0.self_attn.v_proj": True},
        notes="a table of 2 bits, tied, scales in f32",
        config=shape(64, 2, 2, 64, 2, 262, head_dim=32, tie_word_embeddings=True, bos_token_id=256, eos_token_id=257, rope_parameters=rope(1e6))),
    "gemma3-nested-q2-g32-bf16": dict(
        family="gemma3", dtype="bf16", T=40, old=True, pattern=3, quant=(2, 32), entries={"language_model.model.layers.1.mlp.up_proj": (8, 64)},
        notes="language_model.model. names in tensors and block, a vision tower",
        config=shape(64, 2, 1, 64, 3, 266, head_dim=32, query_pre_attn_scalar=32, sliding_window=16, bos_token_id=256, eos_token_id=257,
                     layer_types=["sliding_attention", "sliding_attention", "full_attention"],
                     rope_parameters={"full_attention": rope(1e6), "sliding_attention": rope(1e4)})),
}
golden.MODELS = MODELS      # golden.py derives the seeds from this table


def quantise(w, bits, group):
    """Quantises by MLX's rule, in f32. Returns codes [rows, cols], and scales and biases [rows, cols / group] before rounding to the dtype."""
    x = w.astype(np.float32).reshape(w.shape[0], -1, group)
    n, lo, hi = np.float32(2**bits - 1), x.min(-1), x.max(-1)
    low = np.abs(lo) > np.abs(hi)
    s = np.maximum((hi - lo) / n, np.float32(1e-7))
    s, edge = np.where(low, s, -s), np.where(low, lo, hi)
    q0 = np.rint(edge / s)
    s = np.where(q0 != 0, edge / np.where(q0 != 0, q0, 1), s).astype(np.float32)
    b = np.where(q0 != 0, edge, 0).astype(np.float32)
    q = np.clip(np.rint((x - b[..., None]) / s[..., None]), 0, n).astype(np.uint32)
    return q.reshape(w.shape), s, b


def pack(q, bits):
    """Packs codes: each row is one little-endian bit stream of 32-bit words."""
    stream = (q[..., None] >> np.arange(bits, dtype=np.uint32) & 1).astype(np.uint8).reshape(q.shape[0], -1)
    return np.packbits(stream, axis=1, bitorder="little").view("<u4")


def is_quantised(entry, name, w):
    """Returns the bits and group of one tensor, or None when it stays dense."""
    path = name.removesuffix(".weight")
    if w.dim() != 2 or "vision" in name or "projector" in name:
        return None
    form = entry.get("entries", {}).get(path, True)
    bits, group = form if isinstance(form, tuple) else entry["quant"]
    return None if form is False or w.shape[1] % group else (bits, group)


def write_quantised(path, entry):
    """Quantises the directory in place. Returns the weights of the reference, s q + b."""
    file, dtype, dense, out = os.path.join(path, "model.safetensors"), golden.DTYPES[entry["dtype"]], {}, {}
    for name, w in load_file(file).items():
        form = is_quantised(entry, name, w)
        dense[name] = out[name] = w
        if form is None:
            continue
        q, s, b = quantise(w.float().numpy(), *form)
        s, b, stem = torch.from_numpy(s).to(dtype), torch.from_numpy(b).to(dtype), name.removesuffix(".weight")
        out |= {name: torch.from_numpy(pack(q, form[0]).copy()), stem + ".scales": s, stem + ".biases": b}
        sq = s.float().numpy().repeat(form[1], 1) * q.astype(np.float32)
        dense[name] = torch.from_numpy(sq + b.float().numpy().repeat(form[1], 1))
    save_file(out, file, metadata={"format": "mlx"})
    file = os.path.join(path, "config.json")
    with open(file) as f:
        config = json.load(f)
    block = {"group_size": entry["quant"][1], "bits": entry["quant"][0], "mode": "affine"}
    for key, form in entry.get("entries", {}).items():
        block[key] = {"group_size": form[1], "bits": form[0]} if isinstance(form, tuple) else form
    for name in entry.get("blocks", ["quantization", "quantization_config"]):
        config[name] = block
    golden.write_json(file, config)
    return dense


def reference(dense, load):
    """Calls golden.load on a directory with the dense weights and without the quantisation block."""
    def loader(path, entry, attention):
        with tempfile.TemporaryDirectory() as plain:
            with open(os.path.join(path, "config.json")) as f:
                config = {k: v for k, v in json.load(f).items() if not k.startswith("quantization")}
            golden.write_json(os.path.join(plain, "config.json"), config)
            golden.write_json(os.path.join(plain, "generation_config.json"), {})
            save_file(dense, os.path.join(plain, "model.safetensors"), metadata={"format": "pt"})
            return load(plain, entry, attention)
    return loader


README = """# Tiny quantised models and what the reference computes with them

Made by `make golden` (`tools/golden_quantised.py`) with torch {torch} and transformers {transformers}: directories as mlx-lm writes them
(`weight` in packed words, `scales`, `biases`, a quantization block), in every width and group, and beside them golden.safetensors as
in the directory above. The reference computes with f32(s) * q + f32(b) in f32.
"""


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("out")
    ap.add_argument("--only", action="append", help="just this model (index and README stay as they are)")
    args = ap.parse_args()
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    os.makedirs(args.out, exist_ok=True)
    load, index, total = golden.load, [], 0
    for name, entry in MODELS.items():
        if args.only and name not in args.only:
            continue
        path = os.path.join(args.out, name)
        for salt in range(100):
            shutil.rmtree(path, ignore_errors=True)
            os.makedirs(path)
            golden.write_model(path, name, entry, salt)
            golden.load = reference(write_quantised(path, entry), load)
            row, size = golden.record(path, name, entry)
            if row["min_margin"] > 2e-3 and row["kinds"] >= 5 and row["sdpa"] < golden.AGREE:
                break
        print(row["line"], f"{size // 1024} KB, salt {salt}", flush=True)
        del row["line"], row["sdpa"]
        index.append(row | {"dir": "quantised/" + name, "bits": entry["quant"][0], "group": entry["quant"][1]})
        assert size <= 200 * 1024, (name, size)
        total += size
    print(f"{len(index)} models, {total / 1e6:.2f} MB")
    if not args.only:
        golden.write_json(os.path.join(args.out, "index.json"), index)
        with open(os.path.join(args.out, "README.md"), "w") as f:
            f.write(README.format(torch=torch.__version__, transformers=transformers.__version__))


if __name__ == "__main__":
    main()
