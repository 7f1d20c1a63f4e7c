#!/usr/bin/env python3
"""Writes tiny models in the quantised formats of other tools, and records the results of transformers with their weights in f32.

usage: python tools/golden_official.py OUT [--only NAME]...     (make golden runs it with OUT = tests/golden/official)

A model is created like those of tools/golden.py. Then its Linear modules are quantised by rounding to nearest and written as the tool writes
them. The reference is the same network with the dequantised weights, in f32. What a format means is code of its own reference:

    fp8                 transformers' Fp8Dequantize where blocks divide the matrix, else its formula block by block
    compressed-tensors  compressed_tensors packs, and its dequantize gives the weights
    mlx                 mlx quantises in its modes mxfp4, mxfp8 and nvfp4, and its dequantize agrees in bf16 (needs mlx[cpu])
    gptq, awq           the formulas of auto_gptq's qlinear_cuda.py and autoawq's packing_utils.py, in numpy

values.json has, for each quantised matrix, the SHA-256 of its f32 numbers, row after row.
"""
import argparse
import hashlib
import json
import os
import shutil

import golden
import golden_quantised
import numpy as np
import torch
import transformers
from golden import rope, shape
from safetensors.torch import load_file, save_file

LLAMA = dict(family="llama", dtype="bf16", T=25,
             config=shape(136, 2, 1, 140, 1, 261, head_dim=64, tie_word_embeddings=True, rms_norm_eps=1e-5, bos_token_id=256, eos_token_id=257,
                          rope_parameters=rope()))
QWEN = dict(family="qwen2", dtype="f16", T=25,
            config=shape(64, 2, 1, 96, 2, 263, tie_word_embeddings=True, bos_token_id=256, eos_token_id=257, rope_parameters=rope(1e6)))
QWEN3 = dict(family="qwen3", dtype="bf16", T=25,
             config=shape(64, 2, 1, 96, 2, 262, head_dim=32, tie_word_embeddings=False, bos_token_id=256, eos_token_id=257,
                          rope_parameters=rope(1e6)))
ODD = dict(family="llama", dtype="bf16", T=25,
           config=shape(64, 2, 1, 100, 2, 261, head_dim=32, tie_word_embeddings=True, rms_norm_eps=1e-5, bos_token_id=256, eos_token_id=257,
                        rope_parameters=rope()))


def fp8(dtype=torch.float8_e4m3fn, block=(128, 128), scale=torch.float32, leaf="weight_scale_inv", **block_keys):
    return ("fp8", dict(dtype=dtype, block=block, scale=scale, leaf=leaf, keys=block_keys))


def gptq(bits=4, group=32, order=False, version="gptq", file=None):
    return ("gptq", dict(bits=bits, group=group, order=order, version=version, file=file))


def packed(**how):
    return ("compressed-tensors", how)


MODELS = {
    "fp8-block": LLAMA | dict(how=fp8(), notes="blocks of 128 x 128, short at the edges"),
    "fp8-small-block": QWEN3 | dict(how=fp8(block=(32, 64), scale=torch.bfloat16), notes="blocks of 32 x 64, scales in bf16; the head, too", head=True),
    "fp8-tensor": QWEN3 | dict(how=fp8(block=None, scale=torch.bfloat16, activation_scheme="static"), notes="one scale a tensor, static activation scales"),
    "fp8-e5m2-ue8m0": QWEN | dict(how=fp8(dtype=torch.float8_e5m2, block=(32, 32), scale=torch.float8_e8m0fnu, scale_fmt="ue8m0", fmt="e5m2"),
                                  notes="e5m2 with scales that are exponents"),
    "gptq-4": QWEN | dict(how=gptq(), notes="4 bits, groups of 32, biases of q, k, v"),
    "gptq-act-order": QWEN | dict(how=gptq(group=32, order=True), notes="act-order: columns of a group anywhere"),
    "gptq-3": QWEN | dict(how=gptq(bits=3), notes="3 bits across words"),
    "gptq-2-v2": QWEN | dict(how=gptq(bits=2, version="gptq_v2"), notes="2 bits, zero points as they are"),
    "gptq-8": QWEN | dict(how=gptq(bits=8, group=-1, file="quantize_config.json"), notes="8 bits, one group a row, the block in quantize_config.json"),
    "awq": QWEN | dict(how=("awq", dict(group=32)), notes="gemm layout, groups of 32"),
    "ct-packed": QWEN3 | dict(how=packed(num_bits=4, strategy="group", group_size=32, symmetric=True), notes="w4a16 in groups of 32"),
    "ct-asymmetric": QWEN3 | dict(how=packed(num_bits=4, strategy="group", group_size=32, symmetric=False, pattern=True),
                                  notes="w4a16 with zero points, targets by pattern and class"),
    "ct-channel": ODD | dict(how=packed(num_bits=8, strategy="channel", symmetric=True), notes="w8a16, a scale a row; 100 columns are no whole groups"),
    "ct-int8": QWEN3 | dict(how=packed(num_bits=8, strategy="channel", symmetric=True, form="int-quantized"), notes="w8a8, weights in bytes"),
    "ct-fp8": QWEN3 | dict(how=packed(num_bits=8, type="float", strategy="channel", symmetric=True, form="float-quantized"), notes="fp8 with a scale a row"),
    "ct-fp8-block": LLAMA | dict(how=packed(num_bits=8, type="float", strategy="block", block_structure=[128, 128], symmetric=True, form="float-quantized"),
                                 notes="fp8 in blocks of 128 x 128, short at the edges"),
    "mlx-mxfp4": QWEN3 | dict(how=("mlx", dict(mode="mxfp4", bits=4, group=32)), head=True, table=True, notes="MLX's mxfp4, table and head, too"),
    "mlx-mxfp8": QWEN | dict(how=("mlx", dict(mode="mxfp8", bits=8, group=32)), notes="MLX's mxfp8"),
    "mlx-nvfp4": QWEN3 | dict(how=("mlx", dict(mode="nvfp4", bits=4, group=16)), head=True, notes="MLX's nvfp4"),
}
golden.MODELS = MODELS      # golden.py derives the seeds from this table


def is_linear(entry, name):
    return name.endswith("_proj.weight") or (name == "lm_head.weight" and entry.get("head")) or ("embed" in name and entry.get("table"))


def blockwise(q, scale, block):
    """f32(q) * f32(scale of its block), in f32."""
    rows = scale.repeat_interleave(block[0], 0)[: q.shape[0]]
    return q.float() * rows.repeat_interleave(block[1], 1)[:, : q.shape[1]]


def write_fp8(stem, w, how, out):
    block = how["block"] or tuple(w.shape)
    grid = [-(-w.shape[i] // block[i]) for i in (0, 1)]
    most = torch.finfo(how["dtype"]).max
    scale = torch.zeros(grid)
    for i in range(grid[0]):
        for j in range(grid[1]):
            part = w[i * block[0]:(i + 1) * block[0], j * block[1]:(j + 1) * block[1]]
            scale[i, j] = part.abs().max() / most
    if how["scale"] == torch.float8_e8m0fnu:
        scale = torch.exp2(torch.ceil(torch.log2(scale)))
    stored = scale.to(how["scale"])
    scale = stored.float()
    q = (w / blockwise(torch.ones_like(w), scale, block)).clamp(-most, most).to(how["dtype"])
    out[stem + ".weight"] = q
    out[stem + "." + how["leaf"]] = stored if how["block"] else stored.reshape(())
    if how["keys"].get("activation_scheme") == "static":
        out[stem + ".activation_scale"] = torch.tensor(0.5, dtype=torch.bfloat16)
    value = blockwise(q, scale, block)
    if not any(w.shape[i] % block[i] for i in (0, 1)) and stored.dtype != torch.float8_e8m0fnu:
        from transformers.integrations.finegrained_fp8 import Fp8Dequantize
        assert torch.equal(value, Fp8Dequantize(None)._dequantize_one(q, stored if how["block"] else stored.reshape(1, 1), torch.float32))
    return value


def integers(w, bits, groups, symmetric):
    """Rounds to nearest by groups of columns. groups: the group of each column. Returns q, s and z as [out, in], [out, groups]."""
    n = int(groups.max()) + 1
    q, s, z = np.zeros(w.shape, np.int64), np.zeros((len(w), n), np.float32), np.zeros((len(w), n), np.int64)
    for g in range(n):
        x = w[:, groups == g]
        lo, hi = np.minimum(x.min(1), 0), np.maximum(x.max(1), 0)
        if symmetric:
            s[:, g] = np.maximum(np.abs(x).max(1) / (2 ** (bits - 1)), 1e-5)
            z[:, g] = 2 ** (bits - 1)
        else:
            s[:, g] = np.maximum((hi - lo) / (2**bits - 1), 1e-5)
            z[:, g] = np.clip(np.rint(-lo / s[:, g]), 1, 2**bits - 1)
        s[:, g] = s[:, g].astype(np.float16)
        q[:, groups == g] = np.clip(np.rint(x / s[:, [g]]) + z[:, [g]], 0, 2**bits - 1)
    return q, s, z


def pack_rows(q, bits):
    """Packs along the first axis: a bit stream a column, low bits first, as auto_gptq's pack (which writes 3 bits across words)."""
    stream = (q.T[..., None] >> np.arange(bits) & 1).astype(np.uint8).reshape(q.shape[1], -1)
    return torch.from_numpy(np.packbits(stream, axis=1, bitorder="little").view("<i4").T.copy())


def unpack_gptq(qweight, qzeros, scales, g_idx, bits, added):
    """auto_gptq's qlinear_cuda.py, forward without kernels: w[in, out]; 3 bits as its special case reads them, here as a bit stream."""
    def codes(words, axis):
        words = words.astype(np.uint32)
        words = words if axis == 1 else words.T
        bit = (words[..., None] >> np.arange(32, dtype=np.uint32) & 1).reshape(len(words), -1, bits)
        value = (bit << np.arange(bits, dtype=np.uint32)).sum(-1)
        return value if axis == 1 else value.T
    q, z = codes(qweight, 0), codes(qzeros, 1)
    z = (z + added) & (2**bits - 1)
    return scales[g_idx].astype(np.float32) * (q.astype(np.float32) - z[g_idx].astype(np.float32))


def write_gptq(stem, w, how, out):
    w, bits = w.numpy(), how["bits"]
    group = how["group"] if how["group"] > 0 else w.shape[1]
    groups = np.arange(w.shape[1]) // group
    if how["order"]:
        groups = groups[np.random.RandomState(len(out)).permutation(w.shape[1])]
    q, s, z = integers(w, bits, groups, False)
    added = 1 if how["version"] == "gptq" else 0
    tensors = {"qweight": pack_rows(q.T, bits), "qzeros": pack_rows((z - added).astype(np.int64) & (2**bits - 1), bits).T.contiguous(),
               "scales": torch.from_numpy(s.T.copy()).half(), "g_idx": torch.from_numpy(groups.astype(np.int32))}
    out |= {f"{stem}.{k}": v for k, v in tensors.items()}
    n = {k: v.numpy() for k, v in tensors.items()}
    value = unpack_gptq(n["qweight"], n["qzeros"], n["scales"], n["g_idx"], bits, added).T
    assert np.array_equal(value, s[:, groups] * (q - z[:, groups]).astype(np.float32))
    return torch.from_numpy(value.copy())


ORDER = [0, 2, 4, 6, 1, 3, 5, 7]      # autoawq: output ORDER[p] of eight is nibble p of a word


def write_awq(stem, w, how, out):
    w = w.numpy()
    groups = np.arange(w.shape[1]) // how["group"]
    q, s, z = integers(w, 4, groups, False)

    def pack(x):        # [n, out] -> [n, out / 8]
        x = x.reshape(len(x), -1, 8)[:, :, ORDER].astype(np.uint32)
        return torch.from_numpy((x << (4 * np.arange(8, dtype=np.uint32))).sum(-1).astype(np.uint32).view(np.int32))

    out |= {stem + ".qweight": pack(q.T).contiguous(), stem + ".qzeros": pack(z.T).contiguous(), stem + ".scales": torch.from_numpy(s.T.copy()).half()}

    def unpack(x):      # autoawq: unpack_awq, then reverse_awq_order
        nibble = (x.numpy().view(np.uint32)[:, :, None] >> (4 * np.arange(8, dtype=np.uint32)) & 15).reshape(len(x), -1)
        reverse = np.arange(nibble.shape[1]).reshape(-1, 8)[:, [0, 4, 1, 5, 2, 6, 3, 7]].reshape(-1)
        return nibble[:, reverse].astype(np.float32)
    scales, zeros = out[stem + ".scales"].float().numpy(), unpack(out[stem + ".qzeros"])
    value = (unpack(out[stem + ".qweight"]) - zeros[groups]) * scales[groups]
    return torch.from_numpy(value.T.copy())


def compressed_args(how):
    from compressed_tensors.quantization import QuantizationArgs
    return QuantizationArgs(**{k: v for k, v in how.items() if k not in ("form", "pattern")})


def write_compressed(stem, w, how, out):
    from compressed_tensors.compressors.pack_quantized.helpers import pack_to_int32
    from compressed_tensors.quantization.lifecycle.forward import dequantize, quantize
    from compressed_tensors.quantization.utils import calculate_qparams
    args, bits = compressed_args(how), how["num_bits"]
    if how["strategy"] == "block":
        block = how["block_structure"]
        return write_fp8(stem, w, dict(dtype=torch.float8_e4m3fn, block=block, scale=torch.bfloat16, leaf="weight_scale", keys={}), out)
    group = how.get("group_size") or w.shape[1]
    parts = w.reshape(len(w), -1, group)
    scale, zero = calculate_qparams(parts.amin(-1), parts.amax(-1), args)
    scale = scale.to(torch.bfloat16).float()
    symmetric = how["symmetric"]
    q = quantize(x=w, scale=scale, zero_point=None if symmetric else zero, args=args,
                 dtype=torch.float8_e4m3fn if how.get("type") == "float" else torch.int8)
    value = dequantize(x_q=q, scale=scale, zero_point=None if symmetric else zero, args=args, dtype=torch.float32)
    form = how.get("form", "pack-quantized")
    if form == "pack-quantized":
        out |= {stem + ".weight_packed": pack_to_int32(q, bits), stem + ".weight_shape": torch.tensor(w.shape)}
    else:
        out[stem + ".weight"] = q
    out[stem + ".weight_scale"] = scale.to(torch.bfloat16)
    if not symmetric:
        out[stem + ".weight_zero_point"] = pack_to_int32(zero.to(torch.int8), bits, packed_dim=0).contiguous()
    return value.float()


E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], np.float32)


def write_mlx(stem, w, how, out):
    import mlx.core as mx
    codes, scales = mx.quantize(mx.array(w.numpy()), group_size=how["group"], bits=how["bits"], mode=how["mode"])
    want = np.array(mx.dequantize(codes, scales, group_size=how["group"], bits=how["bits"], mode=how["mode"]).astype(mx.float32))
    codes, scales = torch.from_numpy(np.array(codes)), torch.from_numpy(np.array(scales))
    out |= {stem + ".weight": codes, stem + ".scales": scales}
    if how["bits"] == 8:
        number = codes.view(torch.uint8).view(torch.float8_e4m3fn).float()
    else:
        raw = codes.view(torch.uint8)
        number = torch.from_numpy(E2M1[torch.stack([raw & 15, raw >> 4], -1).reshape(len(raw), -1).numpy()])
    scale = scales.view(torch.float8_e4m3fn).float() if how["mode"] == "nvfp4" else torch.exp2(scales.float() - 127)
    value = number * scale.repeat_interleave(how["group"], 1)
    assert np.array_equal(value.bfloat16().float().numpy(), want)
    return value


WRITERS = {"mlx": write_mlx, "fp8": write_fp8, "gptq": write_gptq, "awq": write_awq, "compressed-tensors": write_compressed}


def block_of(method, how):
    if method == "fp8":
        return {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": how["block"] and list(how["block"]),
                "modules_to_not_convert": ["lm_head"]} | how["keys"]
    if method == "gptq":
        block = {"bits": how["bits"], "group_size": how["group"], "desc_act": how["order"], "sym": False, "damp_percent": 0.01}
        return block | ({} if how["file"] else {"quant_method": "gptq", "checkpoint_format": how["version"]})
    if method == "awq":
        return {"quant_method": "awq", "bits": 4, "group_size": how["group"], "zero_point": True, "version": "gemm", "modules_to_not_convert": None}
    if method == "mlx":
        return {"group_size": how["group"], "bits": how["bits"], "mode": how["mode"]}
    args = json.loads(compressed_args(how).model_dump_json())
    group = {"targets": ["Linear"], "weights": args, "input_activations": None, "output_activations": None}
    groups = {"group_0": group}
    if how.get("pattern"):      # the class would say 8 bits: the pattern comes first
        groups = {"group_0": group | {"weights": args | {"num_bits": 8}}, "group_1": group | {"targets": ["re:.*self_attn.*", r"re:model\.layers\.\d+\.mlp"]}}
    return {"quant_method": "compressed-tensors", "format": how.get("form", "pack-quantized"), "quantization_status": "compressed",
            "config_groups": groups, "ignore": ["lm_head"], "kv_cache_scheme": None}


def write_official(path, entry):
    """Quantises the directory in place. Returns the weights of the reference."""
    method, how = entry["how"]
    file, dense, out, values = os.path.join(path, "model.safetensors"), {}, {}, {}
    for name, w in load_file(file).items():
        dense[name] = w
        if not is_linear(entry, name):
            out[name] = w
            continue
        dense[name] = WRITERS[method](name.removesuffix(".weight"), w.float(), how, out).contiguous()
        values[name] = hashlib.sha256(dense[name].numpy().tobytes()).hexdigest()
    save_file(out, file, metadata={"format": "pt"})
    golden.write_json(os.path.join(path, "values.json"), values)
    file = os.path.join(path, "config.json")
    with open(file) as f:
        config = json.load(f)
    block = block_of(method, how)
    if how.get("file"):
        golden.write_json(os.path.join(path, how["file"]), block)
    else:
        config["quantization" if method == "mlx" else "quantization_config"] = block
    golden.write_json(file, config)
    return dense


README = """# Tiny models in the quantised formats of other tools

Made by `make golden` (`tools/golden_official.py`) with torch {torch}, transformers {transformers} and compressed-tensors {compressed}: fp8, GPTQ, AWQ
and compressed-tensors as their tools write them. golden.safetensors is as in the directory above; the reference computes in f32 with the
weights as the format's own reference dequantises them. values.json has the SHA-256 of each matrix in f32.
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
            golden.load = golden_quantised.reference(write_official(path, entry), load)
            row, size = golden.record(path, name, entry)
            if row["min_margin"] > 2e-3 and row["kinds"] >= 5 and row["sdpa"] < golden.AGREE:
                break
        print(row["line"], f"{size // 1024} KB, salt {salt}", flush=True)
        del row["line"], row["sdpa"]
        method, how = entry["how"]
        bits = {"fp8": 0, "awq": 4}.get(method, how.get("bits", how.get("num_bits")))
        group = how.get("group", how.get("group_size", 0)) if bits and how.get("type") != "float" else 0
        index.append(row | {"dir": "official/" + name, "method": method, "bits": 0 if how.get("type") == "float" else bits, "group": max(group or 0, 0)})
        total += size
    print(f"{len(index)} models, {total / 1e6:.2f} MB")
    if not args.only:
        import compressed_tensors
        golden.write_json(os.path.join(args.out, "index.json"), index)
        with open(os.path.join(args.out, "README.md"), "w") as f:
            f.write(README.format(torch=torch.__version__, transformers=transformers.__version__, compressed=compressed_tensors.__version__))


if __name__ == "__main__":
    main()
