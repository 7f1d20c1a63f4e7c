"""Rewrites a directory of tools/golden_families.py as its family is published in the formats of other tools.

    as-fp8      fp8 in blocks with scales in bf16; the products of decays and betas, routers, convolutions, head and table stay as they are
    as-gptq     4 bits in groups of 32 columns
    as-mlx      as mlx-lm writes it: other prefixes, affine groups of 4 bits (routers and gates of shared experts 8), stacked experts, convolutions
                with moved axes, offset norms with 1 added; of gpt-oss the experts in mxfp4, gate and up apart
"""
import json
import os
import re

import golden
import golden_official
import golden_quantised
import numpy as np
import torch
from safetensors.torch import load_file, save_file

GROUP = 32
BLOCK = (16, 16)
E2M1 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])


def is_product(name, w):
    return w.dim() == 2 and name.endswith("_proj.weight") or re.search(r"in_proj_(qkv|z)\.weight$", name) is not None


def as_fp8(config, dense):
    out, how = {}, golden_official.fp8(block=BLOCK, scale=torch.bfloat16)[1]
    for name, w in list(dense.items()):
        if is_product(name, w):
            dense[name] = golden_official.write_fp8(name.removesuffix(".weight"), w.float(), how, out)
        else:
            out[name] = w
    return out, dict(quant_method="fp8", activation_scheme="dynamic", weight_block_size=list(BLOCK), modules_to_not_convert=["lm_head"])


def as_gptq(config, dense):
    out, how = {}, golden_official.gptq(group=GROUP)[1]
    for name, w in list(dense.items()):
        if is_product(name, w) and w.shape[1] % GROUP == 0:
            dense[name] = golden_official.write_gptq(name.removesuffix(".weight"), w.float(), how, out)
        else:
            out[name] = w
    return out, golden_official.block_of("gptq", how)


def affine(stem, w, bits, out):
    """Stores a matrix, or one for each expert, in affine groups. Returns their values."""
    flat = w.reshape(-1, w.shape[-1])
    q, s, b = golden_quantised.quantise(flat.float().numpy(), bits, GROUP)
    s, b = torch.from_numpy(s).to(w.dtype), torch.from_numpy(b).to(w.dtype)
    shape = w.shape[:-1]
    out[stem + ".weight"] = torch.from_numpy(golden_quantised.pack(q, bits).copy()).reshape(*shape, -1)
    out[stem + ".scales"], out[stem + ".biases"] = s.reshape(*shape, -1), b.reshape(*shape, -1)
    value = s.float().numpy().repeat(GROUP, 1) * q.astype(np.float32) + b.float().numpy().repeat(GROUP, 1)
    return torch.from_numpy(value).reshape(w.shape)


def fp4(stem, w, out):
    """Stores the matrices of experts in MLX's mxfp4. Returns their values."""
    groups = w.float().reshape(*w.shape[:2], -1, GROUP)
    exponent = torch.floor(torch.log2(groups.abs().amax(-1))) - 2
    codes = (groups / 2.0 ** exponent[..., None]).unsqueeze(-1).sub(E2M1).abs().argmin(-1).to(torch.uint8)
    packed = (codes[..., 0::2] | codes[..., 1::2] << 4).reshape(*w.shape[:2], -1).contiguous()
    out[stem + ".weight"], out[stem + ".scales"] = packed.view(torch.uint32), (exponent + 127).to(torch.uint8)
    return (E2M1[codes.long()] * 2.0 ** exponent[..., None]).reshape(w.shape)


def mlx_name(name, wrapped):
    name = name.replace("model.language_model.", "language_model.model.")
    return "language_model." + name if wrapped and name.startswith("lm_head") else name


def mlx_experts(dense, out, name):
    """Stacks the experts of a layer whose tensors are one for each."""
    layer, leaf = re.match(r"(.*\.mlp)\.experts\.0\.(\w+)\.weight", name).groups()
    names = [n for n in (f"{layer}.experts.{x}.{leaf}.weight" for x in range(len(dense))) if n in dense]
    values = affine(f"{layer}.switch_mlp.{leaf}", torch.stack([dense[n] for n in names]), 4, out)
    for n, v in zip(names, values):
        dense[n] = v.contiguous()


def mlx_oss(dense, out, name):
    """Takes gate and up of gpt-oss apart, with outputs as rows."""
    layer, w = name.removesuffix("gate_up_proj").removesuffix("down_proj"), dense[name]
    if name.endswith("down_proj"):
        dense[name] = fp4(layer + "down_proj", w.transpose(1, 2).contiguous(), out).transpose(1, 2).contiguous()
        return
    value = torch.empty(w.shape)
    for k, leaf in enumerate(("gate_proj", "up_proj")):
        value[:, :, k::2] = fp4(layer + leaf, w[:, :, k::2].transpose(1, 2).contiguous(), out).transpose(1, 2)
    dense[name] = value


def as_mlx(config, dense):
    out, oss, hybrid = {}, config["model_type"] == "gpt_oss", "qwen3_5" in config["model_type"]
    block = dict(group_size=GROUP, bits=4, mode="mxfp4" if oss else "affine")
    for name, w in list(dense.items()):
        if "visual" in name:
            continue
        stem = name.removesuffix(".weight")
        if oss and re.search(r"experts\.(gate_up|down)_proj$", name):
            mlx_oss(dense, out, name)
        elif oss and name.endswith("gate_up_proj_bias"):
            for k, leaf in enumerate(("gate_proj", "up_proj")):
                out[name.replace("gate_up_proj_bias", leaf + ".bias")] = w[:, k::2]
        elif oss and name.endswith("down_proj_bias"):
            out[name.replace("down_proj_bias", "down_proj.bias")] = w
        elif re.search(r"\.experts\.\d+\.", name):
            if ".experts.0." in name:
                mlx_experts(dense, out, name)
        elif w.dim() == 3:
            out[name] = w.transpose(1, 2)
        elif w.dim() == 2 and w.shape[1] % GROUP == 0 and not oss:
            bits = 8 if stem.endswith(("mlp.gate", "shared_expert_gate")) else 4
            dense[name] = affine(stem, w, bits, out)
            if bits == 8:
                block[mlx_name(stem, "text_config" in config)] = dict(group_size=GROUP, bits=8)
        elif hybrid and name.endswith("norm.weight") and "linear_attn" not in name:
            out[name] = (w.float() + 1).to(w.dtype)
            dense[name] = out[name].float() - 1
        else:
            out[name] = w
    return {mlx_name(k, "text_config" in config): v for k, v in out.items()}, block


FORMS = {"as-fp8": as_fp8, "as-gptq": as_gptq, "as-mlx": as_mlx}


def convert(path, form):
    """Rewrites the directory. Returns one with the same values in dense tensors, which transformers reads, and what index.json says of the encoding."""
    plain = path + ".plain"
    os.makedirs(plain, exist_ok=True)
    with open(os.path.join(path, "config.json")) as f:
        config = json.load(f)
    golden.write_json(os.path.join(plain, "config.json"), config)
    dense = load_file(os.path.join(path, "model.safetensors"))
    out, block = FORMS[form](config, dense)
    for where, tensors in ((path, out), (plain, dense)):
        save_file({k: v.contiguous() for k, v in tensors.items()}, os.path.join(where, "model.safetensors"), metadata={"format": "pt"})
    golden.write_json(os.path.join(path, "config.json"), config | {"quantization" if form == "as-mlx" else "quantization_config": block})
    return plain, {} if form == "as-fp8" else dict(bits=4, group=GROUP)
