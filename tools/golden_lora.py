#!/usr/bin/env python3
"""Makes adapters for models of tests/golden with peft, and records the logits that peft computes with them in f32.

usage: python tools/golden_lora.py [OUT]     (OUT is tests/golden/lora; needs torch, transformers and peft)
       python tools/golden_lora.py --later [OUT]   adds the cases of LATER and TABLES alone to those that exist; --tables those of TABLES

OUT/NAME has an adapter as peft saves it; OUT/logits.safetensors has for each case of OUT/index.json the token ids, i32 [T], and the logits of the
last rows, f32 [ROWS, V]. Cases with adapters of tests/golden/adapters (PEFT's, mlx-lm's, go-mlx's) are computed by peft too, from the same A, B and
scale. The base of a quantised model is the same network with the weights f32(s) * q + f32(b).
"""
import json
import os
import sys
import tempfile

import numpy as np
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
GOLDEN = os.path.join(ROOT, "tests/golden")
T, ROWS = 20, 4
ALL = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]

# name -> base model and options of LoraConfig
ADAPTERS = {
    "llama-all": ("llama-plain-f32", dict(r=4, lora_alpha=6, target_modules=ALL)),
    "llama-mlp": ("llama-plain-f32", dict(r=3, lora_alpha=6, target_modules=["gate_proj", "up_proj", "down_proj"], use_rslora=True)),
    "llama-few": ("llama-plain-f32", dict(r=2, lora_alpha=4, target_modules=["q_proj", "down_proj"])),
    "qwen3-regex": ("qwen3-bias-f32", dict(r=4, lora_alpha=4, target_modules=r".*\.(q_proj|v_proj|up_proj)",
                                           rank_pattern={r"layers\.[1-9]\..*q_proj": 2, r"^model\.layers\.0\.mlp\.up_proj$": 3},
                                           alpha_pattern={r".*\.v_proj": 9, r"layers\.0\.(self_attn|mlp)\.up_proj": 1})),
    "gemma3-linear": ("gemma3-text-f32", dict(r=4, lora_alpha=8, target_modules="all-linear")),
    "qwen2-all": ("qwen2-f32", dict(r=4, lora_alpha=8, target_modules=ALL)),
    "llama-bias-all": ("llama-bias-bf16", dict(r=3, lora_alpha=3, target_modules=["q_proj", "up_proj"], bias="all")),
    "llama-bias-only": ("llama-bias-bf16", dict(r=3, lora_alpha=6, target_modules=["k_proj", "down_proj"], bias="lora_only")),
    "llama-lora-bias": ("llama-plain-f32", dict(r=3, lora_alpha=6, target_modules=["q_proj", "down_proj"], lora_bias=True)),
    "qwen3-q5": ("quantised/qwen3-q5-g64-f32", dict(r=4, lora_alpha=8, target_modules=ALL)),
    "gemma3-q4": ("quantised/gemma3-text-q4-g32-bf16", dict(r=2, lora_alpha=8, target_modules=["v_proj", "o_proj", "gate_proj"])),
}
# cases with several adapters, or with those of tests/golden/adapters: base and (directory, factor)
SUMS = {
    "llama-sum": ("llama-plain-f32", [("llama-all", 1.0), ("llama-mlp", 0.5)]),
    "llama-scaled": ("llama-plain-f32", [("llama-few", -1.5)]),
    "qwen2-mlx": ("qwen2-f32", [("../adapters/mlx", 1.0)]),
    "qwen2-mlx-last": ("qwen2-f32", [("../adapters/mlx-last", 1.0)]),
    "qwen2-go": ("qwen2-f32", [("../adapters/go-mlx", 1.0)]),
    "qwen2-rslora": ("qwen2-f32", [("../adapters/peft-rslora", 1.0)]),
    "qwen2-bf16": ("qwen2-f32", [("../adapters/peft-bf16", 1.0)]),
}
# adapters that were added later, whose seeds follow those of the others; MLX: written in mlx-lm's layout as well, under the second name
LATER = {
    "llama-dora": ("llama-plain-f32", dict(r=4, lora_alpha=6, target_modules=["q_proj", "o_proj", "down_proj"], use_dora=True)),
    "qwen2-dora": ("qwen2-f32", dict(r=3, lora_alpha=6, target_modules=ALL, use_dora=True)),
    "gemma3-dora": ("gemma3-text-f32", dict(r=2, lora_alpha=4, target_modules=["q_proj", "v_proj", "gate_proj"], use_dora=True, use_rslora=True)),
    "qwen3-q5-dora": ("quantised/qwen3-q5-g64-f32", dict(r=2, lora_alpha=4, target_modules=["k_proj", "up_proj"], use_dora=True)),
}
MLX = {"llama-dora": "llama-dora-mlx"}
# adapters that change tensors of the model itself; GROWN: tokens by which the vocabulary grows first
TABLES = {
    "llama-tables": ("llama-plain-f32", dict(r=3, lora_alpha=6, target_modules=["q_proj", "embed_tokens", "lm_head"])),
    "gemma3-tables": ("gemma3-text-f32", dict(r=2, lora_alpha=4, target_modules=["embed_tokens", "lm_head"])),
    "gemma3-tied": ("gemma3-text-f32", dict(r=2, lora_alpha=4, target_modules=["v_proj", "embed_tokens"], ensure_weight_tying=True)),
    "qwen3-q5-tables": ("quantised/qwen3-q5-g64-f32", dict(r=2, lora_alpha=4, target_modules=["k_proj", "embed_tokens", "lm_head"])),
    "llama-saved": ("llama-plain-f32", dict(r=2, lora_alpha=4, target_modules=["q_proj"], modules_to_save=["lm_head", "norm"])),
    "gemma3-saved": ("gemma3-text-f32", dict(r=2, lora_alpha=4, target_modules=["q_proj"], modules_to_save=["embed_tokens"])),
    "gemma3-tokens": ("gemma3-text-f32", dict(r=2, lora_alpha=4, target_modules=["q_proj"], trainable_token_indices=[9, 3, 200])),
    "llama-grown": ("llama-plain-f32", dict(r=2, lora_alpha=4, target_modules=["q_proj"],
                                            trainable_token_indices={"embed_tokens": [5, 269, 270], "lm_head": [269, 270]})),
    "gemma3-grown": ("gemma3-text-f32", dict(r=2, lora_alpha=4, target_modules=["q_proj"], trainable_token_indices=[265, 266, 267])),
}
GROWN = {"llama-grown": 2, "gemma3-grown": 3}


def tidy(path, base):
    """Drops what no reader needs, and everything of the configuration that differs between two runs."""
    for f in os.listdir(path):
        if f not in ("adapter_config.json", "adapter_model.safetensors"):
            os.remove(os.path.join(path, f))
    name = os.path.join(path, "adapter_config.json")
    config = json.load(open(name))
    config.pop("peft_version", None)
    config["base_model_name_or_path"] = os.path.basename(base)
    if isinstance(config["target_modules"], list):
        config["target_modules"].sort()
    json.dump(config, open(name, "w"), indent=1, sort_keys=True)


def unpack(words, bits, cols):
    """The codes of MLX's packing: each row is one little-endian bit stream of 32-bit words."""
    stream = np.unpackbits(np.ascontiguousarray(words).view(np.uint8).reshape(words.shape[0], -1), axis=1, bitorder="little")
    stream = stream[:, :cols * bits].reshape(words.shape[0], cols, bits).astype(np.uint32)
    return (stream << np.arange(bits, dtype=np.uint32)).sum(-1)


def load_base(name):
    """The base model in f32, with Gemma's scale of embeddings rounded to the checkpoint's dtype."""
    model = load_f32(name)
    if name.rsplit("/", 1)[-1].startswith("gemma"):
        dtype = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32}[name.rsplit("-", 1)[1]]
        model.model.embed_tokens.embed_scale = torch.tensor(model.config.hidden_size**0.5).to(dtype).float()
    return model


def load_f32(name):
    """Quantised weights are f32(s) * q + f32(b)."""
    path = os.path.join(GOLDEN, name)
    if "quantised" not in name:
        return AutoModelForCausalLM.from_pretrained(path, torch_dtype=torch.float32, attn_implementation="eager").eval()
    config = json.load(open(os.path.join(path, "config.json")))
    block = config.get("quantization") or config["quantization_config"]
    tensors, dense = load_file(os.path.join(path, "model.safetensors")), {}
    for key, w in tensors.items():
        stem = key.removesuffix(".weight")
        if key.endswith((".scales", ".biases")):
            continue
        if stem + ".scales" not in tensors:
            dense[key] = w.float()
            continue
        form = block[stem] if isinstance(block.get(stem), dict) else block
        s, b = tensors[stem + ".scales"].float(), tensors[stem + ".biases"].float()
        q = torch.from_numpy(unpack(w.numpy(), form["bits"], s.shape[1] * form["group_size"]).astype(np.float32))
        g = form["group_size"]
        dense[key] = s.repeat_interleave(g, 1) * q + b.repeat_interleave(g, 1)
    with tempfile.TemporaryDirectory() as plain:
        config = {k: v for k, v in config.items() if not k.startswith("quantization")} | {"torch_dtype": "float32", "dtype": "float32"}
        json.dump(config, open(os.path.join(plain, "config.json"), "w"))
        save_file(dense, os.path.join(plain, "model.safetensors"), metadata={"format": "pt"})
        return AutoModelForCausalLM.from_pretrained(plain, torch_dtype=torch.float32, attn_implementation="eager").eval()


def make(name, base, how, out):
    model = load_base(base)
    if name in GROWN:
        model.resize_token_embeddings(model.config.vocab_size + GROWN[name])
    model = get_peft_model(model, LoraConfig(task_type="CAUSAL_LM", **how))
    with torch.no_grad():
        for key, p in model.named_parameters():
            if "lora_magnitude" in key:
                p.mul_(1 + torch.randn_like(p) * 0.2)
            elif "lora_" in key:
                p.copy_(torch.randn_like(p) * 0.2)
            elif p.requires_grad:                          # biases that the adapter trains
                p.add_(torch.randn_like(p) * 0.1)
    path = os.path.join(out, name)
    model.save_pretrained(path, save_embedding_layers=False)
    tidy(path, base)
    return model


def as_mlx(path, target):
    """Writes an adapter of PEFT as mlx-lm has it: lora_a [in, r], lora_b [r, out], m of DoRA."""
    config, tensors = json.load(open(os.path.join(path, "adapter_config.json"))), {}
    for key, w in load_file(os.path.join(path, "adapter_model.safetensors")).items():
        stem, half = key.removeprefix("base_model.model.").rsplit(".lora_", 1)
        end = {"A.weight": "lora_a", "B.weight": "lora_b", "magnitude_vector": "m"}[half]
        tensors[f"{stem}.{end}"] = w.T.contiguous() if w.dim() == 2 else w
    os.makedirs(target, exist_ok=True)
    save_file(tensors, os.path.join(target, "adapters.safetensors"))
    keys = sorted({k.split(".", 3)[3].rsplit(".", 1)[0] for k in tensors})
    json.dump({"fine_tune_type": "dora", "num_layers": -1,
               "lora_parameters": {"keys": keys, "rank": config["r"], "scale": config["lora_alpha"] / config["r"], "dropout": 0.0}},
              open(os.path.join(target, "adapter_config.json"), "w"), indent=1, sort_keys=True)


def as_peft(path, target):
    """Writes an adapter of mlx-lm or go-mlx as PEFT's, with the same A, B and scale."""
    config, tensors = json.load(open(os.path.join(path, "adapter_config.json"))), {}
    if "peft_type" in config:
        return path
    mlx = "lora_parameters" in config
    file = load_file(os.path.join(path, "adapters.safetensors" if mlx else "adapter.safetensors"))
    for key, w in file.items():
        stem, half = key.rsplit(".lora_", 1)
        if mlx:
            w = w.T.contiguous()
        tensors[f"base_model.model.{stem if stem.startswith('model.') else 'model.' + stem}.lora_{half.upper()}.weight"] = w
    rank = config["lora_parameters"]["rank"] if mlx else config.get("rank", 8)
    scale = config["lora_parameters"]["scale"] if mlx else config.get("alpha", 2 * rank) / rank
    modules = sorted({k.split(".lora_")[0].removeprefix("base_model.model.") for k in tensors})
    save_file(tensors, os.path.join(target, "adapter_model.safetensors"))
    json.dump({"peft_type": "LORA", "task_type": "CAUSAL_LM", "r": rank, "lora_alpha": scale * rank, "target_modules": modules},
              open(os.path.join(target, "adapter_config.json"), "w"))
    return target


def summed(base, parts, out):
    model, names = None, []
    for i, (part, factor) in enumerate(parts):
        with tempfile.TemporaryDirectory() as target:
            path = as_peft(os.path.normpath(os.path.join(out, part)), target)
            names.append(f"part{i}")
            if model is None:
                model = PeftModel.from_pretrained(load_base(base), path, adapter_name=names[-1])
            else:
                model.load_adapter(path, adapter_name=names[-1])
        for module in model.modules():
            if isinstance(getattr(module, "scaling", None), dict) and names[-1] in module.scaling:
                module.scaling[names[-1]] *= factor
    model.base_model.set_adapter(names)
    return model


def logits(model, seed, vocab, some=()):
    rng = np.random.default_rng(seed)
    ids = torch.from_numpy(rng.integers(0, min(vocab, 256), (1, T)))
    for i, token in enumerate(some):                       # those that the adapter has trained
        ids[0, 3 + 5 * i] = token
    with torch.no_grad():
        y = model.eval()(input_ids=ids).logits[0].float()
    return ids[0].to(torch.int32), y[-ROWS:].contiguous()


def main():
    tables = "--tables" in sys.argv
    later = "--later" in sys.argv or tables
    rest = [x for x in sys.argv[1:] if not x.startswith("--")]
    out, index, tensors = rest[0] if rest else os.path.join(GOLDEN, "lora"), [], {}
    torch.set_num_threads(1)
    os.makedirs(out, exist_ok=True)
    cases = [(name, base, [(name, 1.0)]) for name, (base, _) in ADAPTERS.items()] + [(name, *case) for name, case in SUMS.items()]
    first = len(cases) + len(LATER) * tables if later else 0
    if later:
        tensors, index = load_file(os.path.join(out, "logits.safetensors")), json.load(open(os.path.join(out, "index.json")))
        again = [*TABLES] if tables else [*LATER, *MLX.values(), *TABLES]
        index = [x for x in index if x["name"] not in again]
    cases += [(name, base, [(name, 1.0)]) for name, (base, _) in (LATER | TABLES).items()]
    alone = ADAPTERS | LATER | TABLES
    for seed, (name, base, parts) in list(enumerate(cases))[first:]:
        torch.manual_seed(seed)
        model = make(name, base, alone[name][1], out) if name in alone else summed(base, parts, out)
        some = alone.get(name, (0, {}))[1].get("trainable_token_indices", [])
        some = some["embed_tokens"] if isinstance(some, dict) else some
        ids, y = logits(model, seed, model.config.vocab_size, some)
        for p in model.modules():                          # what the adapter changes must be visible
            if isinstance(getattr(p, "scaling", None), dict):
                p.scaling = {k: 0.0 for k in p.scaling}
        if name in TABLES:
            with model.disable_adapter():
                change = (logits(model, seed, model.config.vocab_size, some)[1] - y).abs().max().item()
        else:
            change = (logits(model, seed, model.config.vocab_size)[1] - y).abs().max().item()
        assert change > 0.05, (name, change)
        tensors[name + ".ids"], tensors[name + ".logits"] = ids, y
        index.append({"name": name, "base": base, "parts": [{"dir": d, "scale": s} for d, s in parts]})
        if name in MLX:
            as_mlx(os.path.join(out, name), os.path.join(out, MLX[name]))
            tensors[MLX[name] + ".ids"], tensors[MLX[name] + ".logits"] = ids.clone(), y.clone()
            index.append({"name": MLX[name], "base": base, "parts": [{"dir": MLX[name], "scale": 1.0}]})
        print(name, base, f"changes logits by up to {change:.3f}")
    save_file(tensors, os.path.join(out, "logits.safetensors"))
    json.dump(index, open(os.path.join(out, "index.json"), "w"), indent=1)


if __name__ == "__main__":
    main()
