#!/usr/bin/env python3
"""Makes the adapters of tests/golden/adapters, each by the program whose layout it has: PEFT's with peft, mlx-lm's with mlx-lm; go-mlx's, whose
program runs on Macs only, by its description. The base model is tests/golden/qwen2-f32.

usage: python tools/golden_adapters.py peft|mlx|go [OUT]     in an environment that has peft and transformers, mlx-lm, or numpy and safetensors

OUT/NAME has the adapter and delta.safetensors: what the program itself adds to a matrix of the base, f32 [out, in], under the module's path.
"""
import json
import os
import sys

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
BASE = os.path.join(ROOT, "tests/golden/qwen2-f32")
SHOWN = ["layers.0.self_attn.q_proj", "layers.1.mlp.down_proj", "layers.1.self_attn.v_proj"]


def tidy(path, keep):
    """Drops what no reader needs, and everything of the configuration that differs between two runs."""
    for f in os.listdir(path):
        if f not in keep:
            os.remove(os.path.join(path, f))
    name = os.path.join(path, "adapter_config.json")
    config = json.load(open(name))
    config.pop("peft_version", None)
    for key in ("base_model_name_or_path", "model"):
        if config.get(key):
            config[key] = "qwen2-f32"
    json.dump(config, open(name, "w"), indent=1, sort_keys=True)


def peft(out):
    import torch
    from peft import LoraConfig, get_peft_model
    from safetensors.torch import save_file
    from transformers import AutoModelForCausalLM
    cases = {"peft-default": dict(r=4, lora_alpha=8, target_modules=["q_proj", "v_proj"]),
             "peft-rslora": dict(r=4, lora_alpha=6, target_modules="all-linear", use_rslora=True, rank_pattern={"down_proj": 2, "layers.0.self_attn.q_proj": 3},
                                 alpha_pattern={"v_proj": 10, "^model.layers.1.mlp.down_proj": 1}),
             "peft-bf16": dict(r=2, lora_alpha=2, target_modules=["down_proj", "self_attn.q_proj"])}
    for seed, (name, how) in enumerate(cases.items()):
        torch.manual_seed(seed)
        model = get_peft_model(AutoModelForCausalLM.from_pretrained(BASE, torch_dtype=torch.float32), LoraConfig(task_type="CAUSAL_LM", **how))
        deltas = {}
        with torch.no_grad():
            for path, module in model.named_modules():
                if not hasattr(module, "lora_A") or "default" not in module.lora_A:
                    continue
                for half in (module.lora_A["default"], module.lora_B["default"]):
                    half.weight.copy_(torch.randn_like(half.weight) * 0.2)
                    if name == "peft-bf16":
                        half.weight.data = half.weight.data.to(torch.bfloat16)
                short = path.replace("base_model.model.model.", "")
                if short in SHOWN:
                    deltas[short] = module.get_delta_weight("default").float().contiguous()
        path = os.path.join(out, name)
        model.save_pretrained(path)
        tidy(path, ("adapter_config.json", "adapter_model.safetensors"))
        save_file(deltas, os.path.join(path, "delta.safetensors"))


def mlx(out):
    import mlx.core as mx
    from mlx.utils import tree_flatten
    from mlx_lm import load
    from mlx_lm.tuner.utils import linear_to_lora_layers
    cases = {"mlx": dict(num_layers=-1, rank=4, scale=3.0, keys=["self_attn.q_proj", "mlp.down_proj", "self_attn.v_proj"]),
             "mlx-last": dict(num_layers=1, rank=3, scale=20.0, keys=None)}
    for seed, (name, how) in enumerate(cases.items()):
        mx.random.seed(seed)
        model, _ = load(BASE)
        model.freeze()
        parameters = {"rank": how["rank"], "scale": how["scale"], "dropout": 0.0}
        if how["keys"]:
            parameters["keys"] = how["keys"]
        linear_to_lora_layers(model, how["num_layers"], parameters)
        deltas = {}
        for path, module in model.named_modules():
            if not hasattr(module, "lora_a"):
                continue
            module.lora_a, module.lora_b = mx.random.normal(module.lora_a.shape) * 0.2, mx.random.normal(module.lora_b.shape) * 0.2
            if path.replace("model.", "") in SHOWN:
                deltas[path.replace("model.", "")] = mx.contiguous((module.scale * module.lora_b.T) @ module.lora_a.T)
        path = os.path.join(out, name)
        os.makedirs(path, exist_ok=True)
        mx.save_safetensors(os.path.join(path, "adapters.safetensors"), dict(tree_flatten(model.trainable_parameters())))
        with open(os.path.join(path, "adapter_config.json"), "w") as f:
            json.dump({"fine_tune_type": "lora", "num_layers": how["num_layers"], "lora_parameters": parameters, "model": BASE}, f)
        tidy(path, ("adapter_config.json", "adapters.safetensors"))
        mx.save_safetensors(os.path.join(path, "delta.safetensors"), deltas)


def go(out):
    import numpy as np
    from safetensors.numpy import save_file
    rng, tensors, deltas = np.random.default_rng(3), {}, {}
    for layer in range(2):
        for name, rows in (("q_proj", 40), ("v_proj", 8)):
            a, b = rng.normal(0, 0.2, (8, 40)).astype(np.float32), rng.normal(0, 0.2, (rows, 8)).astype(np.float32)
            path = f"layers.{layer}.self_attn.{name}"
            tensors[path + ".lora_a"], tensors[path + ".lora_b"] = a, b
            if path in SHOWN:
                deltas[path] = (2.0 * (b.astype(np.float64) @ a)).astype(np.float32)  # alpha / rank = 16 / 8, the defaults
    path = os.path.join(out, "go-mlx")
    os.makedirs(path, exist_ok=True)
    save_file(tensors, os.path.join(path, "adapter.safetensors"))
    json.dump({"num_layers": 2, "lora_layers": ["self_attn.q_proj", "self_attn.v_proj"]}, open(os.path.join(path, "adapter_config.json"), "w"), indent=1)
    save_file(deltas, os.path.join(path, "delta.safetensors"))


if __name__ == "__main__":
    {"peft": peft, "mlx": mlx, "go": go}[sys.argv[1]](sys.argv[2] if len(sys.argv) > 2 else os.path.join(ROOT, "tests/golden/adapters"))
