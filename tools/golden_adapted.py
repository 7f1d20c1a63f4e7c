#!/usr/bin/env python3
"""Writes MODEL/adapted.safetensors for the models of tools/golden_families.py: what transformers and peft compute in f32 with a LoRA on every
linear layer of the text model, and embeddings without one. Of a mixture also MODEL/experts.safetensors: the same with a LoRA on attention and on
all parameters of experts (target_parameters).

usage: tools/golden_adapted.py DIR [--only NAME]...     (DIR has index.json; needs torch, transformers and peft)

The values of the adapter are not stored: element i of the tensor that peft saves as NAME is a function of NAME and i (values). A file has the
logits of the last rows of the model's ids with the adapter, f32 [ROWS, V]; of the same ids as three packed sequences the summed loss, and its
gradients under `grad.NAME`; and the mean of the last hidden states without the adapter, f32 [D].
"""
import argparse
import json
import os
import sys

import numpy as np
import torch
import transformers
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file, save_file

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from golden_families import EAGER, load  # noqa: E402

RANK, ALPHA, ROWS, MOST, LENGTHS = 2, 4, 4, 80, {60: [40, 17, 3], 80: [70, 7, 3]}


def values(name, shape):
    """Numbers between -0.3 and 0.3: the upper bits of a linear congruential generator that begins with the FNV-1a hash of the name."""
    x, out = 2166136261, np.empty(int(np.prod(shape)), dtype=np.float32)
    for byte in name.encode():
        x = ((x ^ byte) * 16777619) & 0xFFFFFFFF
    for i in range(out.size):
        x = (x * 1664525 + 1013904223) & 0xFFFFFFFF
        out[i] = np.float32(((x >> 16) - 32768) / 32768 * 0.3)
    return torch.from_numpy(out.reshape(shape))


def linears(model):
    """The linear layers of the text model but the head, which PEFT's all-linear leaves out, too."""
    skip = ("vis", "projector", "lm_head", "audio", "router", "shared_expert_gate")      # linnet trains no routers
    return [n for n, m in model.named_modules() if isinstance(m, torch.nn.Linear) and not any(s in n for s in skip)]


def of_experts(model):
    """The parameters of experts of the text model: X.experts.gate_up_proj and X.experts.down_proj."""
    return [n for n, p in model.named_parameters() if p.dim() == 3 and ".experts." in n]


def adapted(path, family, dtype, experts, mixers):
    model = load(path, family, "eager", dtype)
    names = [n for n in linears(model) if not experts or "self_attn" in n]
    if mixers:
        names = [n for n in names if ".mlp." not in n and ".feed_forward." not in n]
    parameters = of_experts(model) if experts else []
    config = LoraConfig(task_type="CAUSAL_LM", r=RANK, lora_alpha=ALPHA, target_modules=names, target_parameters=parameters or None)
    peft = get_peft_model(model, config)
    params = {}
    with torch.no_grad():
        for name, p in peft.named_parameters():
            if "lora_" in name:
                params[name.replace(".default", "")] = p
                p.copy_(values(name.replace(".default", ""), tuple(p.shape)))
    return peft.eval(), params, len(names) + len(parameters)


def mean_hidden(path, family, dtype, ids):
    model = load(path, family, "eager" if family in EAGER else "sdpa", dtype)
    inner = model.model
    return inner(input_ids=torch.tensor([ids])).last_hidden_state[0].mean(0)


def record(path, family, dtype, experts=False, mixers=False):
    golden = load_file(os.path.join(path, "golden.safetensors"))
    ids, out, loss, at = golden["ids"].tolist()[:MOST], {}, 0, 0
    model, params, n_named = adapted(path, family, dtype, experts, mixers)
    if any("experts" in name for name in params) != experts or len(params) != 2 * n_named:  # PEFT takes names of MLPs for those of experts
        return record(path, family, dtype, experts, True) if not experts and not mixers else None
    with torch.no_grad():
        if not experts:
            out["mean"] = mean_hidden(path, family, dtype, ids).contiguous()
        out["logits"] = model(input_ids=torch.tensor([ids])).logits[0, -ROWS:].contiguous()
        with model.disable_adapter():
            change = (out["logits"][-1] - model(input_ids=torch.tensor([ids])).logits[0, -1]).abs().max().item()
    assert change > 0.005 and np.isfinite(change), (path, change)               # 25 times what test_golden allows
    for n in LENGTHS[len(ids)]:
        row = torch.tensor(ids[at:at + n])
        target = torch.cat([row[1:], torch.tensor([-1])])
        target[: n // 4] = -1  # a prompt
        at += n
        logits = model(input_ids=row[None]).logits[0]
        loss = loss + torch.nn.functional.cross_entropy(logits, target.long(), ignore_index=-1, reduction="sum")
    assert at == len(ids)
    loss.backward()
    out["loss"] = torch.tensor([loss.item()])
    for name, p in params.items():
        assert p.grad is not None, name
        out["grad." + name] = p.grad.contiguous()
    file = os.path.join(path, "experts.safetensors" if experts else "adapted.safetensors")
    save_file(out, file)
    os.chmod(file, 0o644)
    return change, loss.item(), len(params)


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("dir")
    ap.add_argument("--only", action="append")
    args = ap.parse_args()
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    with open(os.path.join(args.dir, "index.json")) as f:
        index = json.load(f)
    for row in index:
        if args.only and row["dir"] not in args.only and row["family"] not in args.only:
            continue
        path = os.path.join(args.dir, row["dir"])
        with open(os.path.join(path, "config.json")) as f:
            config = json.load(f)
        config = config.get("text_config", config)
        mixture = any(config.get(key) for key in ("num_experts", "num_local_experts", "n_routed_experts", "enable_moe_block"))
        for experts in (False, True) if mixture else (False,):
            recorded = record(path, row["family"], row["dtype"], experts)
            name = "experts.safetensors" if experts else "adapted.safetensors"
            if not recorded:
                print(f"{row['dir']}: no {name}, PEFT adapts other layers than those that are named")
                continue
            change, loss, n = recorded
            size = os.path.getsize(os.path.join(path, name)) // 1024
            print(f"{row['dir']:34} {name}: logits change by {change:.2f}, loss {loss:.3f}, {n} tensors, {size} KB", flush=True)


if __name__ == "__main__":
    main()
