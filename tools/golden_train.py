#!/usr/bin/env python3
"""Makes tests/golden/train/MODEL.safetensors: the loss and the gradients of one packed batch with LoRA, by transformers and peft in f32.

usage: python tools/golden_train.py [OUT [MODEL]...]     in an environment that has torch, transformers, peft and safetensors

A file has the batch (ids, row0, targets: the id that a row predicts, -1: none), the summed loss, and for each adapted matrix A and B with their
gradients, under `MODULE.A`, `MODULE.B`, `grad.MODULE.A`, `grad.MODULE.B`. B is not zero, or else A would have no gradient.
"""
import os
import sys

import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
MODELS = ["llama-plain-f32", "qwen2-f32", "qwen3-bias-f32", "gemma3-text-f32", "gemma3-text-bf16", "llama-llama3-bf16",
          "families/arcee-biases-yarn-bf16", "families/helium-biases-bf16"]
LENGTHS = [21, 12, 3]
RANK, ALPHA = 3, 6


def main(out, only):
    os.makedirs(out, exist_ok=True)
    for seed, name in enumerate(MODELS):
        if only and name not in only:
            continue
        torch.manual_seed(seed)
        base = AutoModelForCausalLM.from_pretrained(os.path.join(ROOT, "tests/golden", name), dtype=torch.float32, attn_implementation="eager")
        table = base.get_input_embeddings()
        if hasattr(table, "embed_scale") and name.endswith("bf16"):  # as in a checkpoint that is not widened
            table.embed_scale = table.embed_scale.bfloat16().float()
        model = get_peft_model(base, LoraConfig(task_type="CAUSAL_LM", r=RANK, lora_alpha=ALPHA, target_modules="all-linear"))
        file, halves = {}, {}
        for path, module in model.named_modules():
            if hasattr(module, "lora_A") and "default" in module.lora_A:
                short = path.replace("base_model.model.model.", "")
                for half, of in (("A", module.lora_A), ("B", module.lora_B)):
                    w = of["default"].weight
                    with torch.no_grad():
                        w.copy_(torch.randn_like(w) * 0.1)
                    halves[f"{short}.{half}"] = w
        ids, targets, row0, loss = [], [], [0], 0
        for n in LENGTHS:
            row = torch.randint(0, base.config.vocab_size, (n,))
            target = torch.cat([row[1:], torch.tensor([-1])])
            target[: n // 4] = -1  # a prompt
            logits = model(input_ids=row[None]).logits[0]
            loss = loss + torch.nn.functional.cross_entropy(logits, target, ignore_index=-1, reduction="sum")
            ids.append(row)
            targets.append(target)
            row0.append(row0[-1] + n)
        loss.backward()
        file["ids"] = torch.cat(ids).int()
        file["targets"] = torch.cat(targets).int()
        file["row0"] = torch.tensor(row0).int()
        file["loss"] = torch.tensor([loss.item()])
        for key, w in halves.items():
            file[key] = w.detach().contiguous()
            file[f"grad.{key}"] = w.grad.contiguous()
        save_file(file, os.path.join(out, f"{os.path.basename(name)}.safetensors"))
        print(name, loss.item(), sum(w.numel() for w in halves.values()))


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else os.path.join(ROOT, "tests/golden/train"), sys.argv[2:])
