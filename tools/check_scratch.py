#!/usr/bin/env python3
"""Trains a small model from scratch with linnet and with PyTorch, on the same rows of the bundled model's corpus in the same order, and compares the losses.

usage: python tools/check_scratch.py [LINNET]      in an environment that has torch, transformers and tokenizers

`linnet init` writes the model; `linnet train --method full` trains it. PyTorch trains from the weights that linnet wrote: the losses of both must be equal to
rounding for the first steps, and the mean loss of linnet's last 50 steps at most 1.02 times PyTorch's. PyTorch trains from weights that transformers initialises,
too. That ratio is printed only, because runs of PyTorch itself differ by 2 to 4 % between seeds; the initial weights are compared directly instead: in every
tensor, mean and deviation of both must be those of one distribution, and constant tensors and rows of zeros the same.
"""
import json
import math
import os
import subprocess
import sys
import tempfile

os.environ.setdefault("HF_HUB_OFFLINE", "1")
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import tiny_corpus  # noqa: E402
import torch  # noqa: E402
from tokenizers import Tokenizer  # noqa: E402
from transformers import AutoConfig, AutoModelForCausalLM  # noqa: E402
from transformers.trainer_pt_utils import get_parameter_names  # noqa: E402

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
LINNET = sys.argv[1] if len(sys.argv) > 1 else os.path.join(ROOT, "build/linnet")
TINY = os.path.join(ROOT, "models/tiny")
SEEDS, STEPS, BATCH, ROW, LAST, FIRST = (1, 2), 300, 8, 128, 50, 5
LR, WARMUP, DECAY, CLIP = 3e-3, 30, 0.1, 1.0
CONFIG = dict(json.load(open(os.path.join(TINY, "config.json"))), hidden_size=128, intermediate_size=352, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2,
              layer_types=["full_attention"] * 4, dtype="float32")


def rows():
    """Documents one after another, cut into rows: the corpus as `{"ids"}`."""
    tok, ids, i = Tokenizer.from_file(os.path.join(TINY, "tokenizer.json")), [], 0
    end = tok.token_to_id("<|endoftext|>")
    while len(ids) < STEPS * BATCH * ROW:
        ids += tok.encode("".join(t for t, _ in tiny_corpus.document(1, i)), add_special_tokens=False).ids + [end]
        i += 1
    return [ids[k * ROW:(k + 1) * ROW] for k in range(STEPS * BATCH)]


def rate(step):
    """Of a step from 1, as docs/training.md has it."""
    if step <= WARMUP:
        return LR * step / WARMUP
    return LR * (1 + math.cos(math.pi * (step - WARMUP - 1) / (STEPS - WARMUP))) / 2


def with_torch(model, data):
    norms = [r"bias", r"layernorm", r"rmsnorm", r"(?:^|\.)norm(?:$|\.)", r"_norm(?:$|\.)"]
    decays, named = set(get_parameter_names(model, [torch.nn.LayerNorm], norms)), dict(model.named_parameters())
    opt = torch.optim.AdamW([{"params": [p for n, p in named.items() if (n in decays) == d], "weight_decay": DECAY * d} for d in (True, False)], lr=LR, eps=1e-8)
    losses = []
    for step in range(1, STEPS + 1):
        ids = torch.tensor(data[(step - 1) * BATCH:step * BATCH])
        for group in opt.param_groups:
            group["lr"] = rate(step)
        loss = torch.nn.functional.cross_entropy(model(ids, use_cache=False).logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
        opt.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        opt.step()
        losses.append(float(loss.detach()))
    return losses


def with_linnet(model, data, out):
    text = subprocess.run([LINNET, "train", model, "--method", "full", "--data", data, "-o", out, "--no-shuffle", "--batch", str(BATCH), "--steps", str(STEPS), "--lr", str(LR),
                           "--warmup", str(WARMUP), "--schedule", "cosine", "--weight-decay", str(DECAY), "--clip", str(CLIP), "--max-length", str(ROW), "--json"],
                          check=True, capture_output=True, text=True).stdout
    return [x["loss"] for x in map(json.loads, text.splitlines()) if "loss" in x]


def last(losses):
    return sum(losses[-LAST:]) / LAST


def unlike(ours, theirs):
    """Tensors whose initial weights are not of one distribution: mean or deviation differ by more than five standard errors."""
    wrong = []
    for name, y in theirs.items():
        x, n = ours[name].double(), y.numel()
        y = y.detach().double()
        if float(y.std()) == 0:
            same = torch.equal(x, y)
        else:
            deviation = float(y.std())
            same = (abs(float(x.mean() - y.mean())) <= 5 * deviation * math.sqrt(2 / n) and abs(float(x.std()) / deviation - 1) <= 5 / math.sqrt(n)
                    and torch.equal((x == 0).all(-1), (y == 0).all(-1)))
        wrong += [] if same else [name]
    return wrong


def main():
    data, bad, ratios = rows(), 0, []
    with tempfile.TemporaryDirectory() as tmp:
        file, config = os.path.join(tmp, "rows.jsonl"), os.path.join(tmp, "config.json")
        json.dump(CONFIG, open(config, "w"))
        with open(file, "w") as f:
            f.writelines(json.dumps({"ids": r}) + "\n" for r in data)
        for seed in SEEDS:
            new, out = os.path.join(tmp, f"new{seed}"), os.path.join(tmp, f"out{seed}")
            subprocess.run([LINNET, "init", config, "--tokenizer", TINY, "-o", new, "--seed", str(seed), "--json"], check=True, stdout=subprocess.DEVNULL)
            ours = with_linnet(new, file, out)
            model, info = AutoModelForCausalLM.from_pretrained(new, dtype=torch.float32, attn_implementation="eager", output_loading_info=True)
            assert not info["missing_keys"] and not info["unexpected_keys"], info
            torch.manual_seed(seed)
            fresh = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(tmp), dtype=torch.float32, attn_implementation="eager")
            wrong = unlike(dict(model.named_parameters()), dict(fresh.named_parameters()))
            if wrong:
                print(f"seed {seed}: initial weights of another distribution: {' '.join(wrong)}")
                bad += 1
            same, own = with_torch(model, data), with_torch(fresh, data)
            off = max(abs(a - b) / b for a, b in zip(ours[:FIRST], same[:FIRST]))
            ratios.append(last(ours) / last(own))
            bad += off > 1e-5 or last(ours) > 1.02 * last(same)
            print(f"seed {seed}: first {FIRST} losses within {off:.1e} (1e-5), {ours[0]:.3f} to {last(ours):.4f}; PyTorch from the same weights {last(same):.4f}, from its own "
                  f"{last(own):.4f}", flush=True)
    print(f"last {LAST} losses: {sum(ratios) / len(ratios):.4f} times those of PyTorch from its own weights, the mean of {len(ratios)} seeds")
    sys.exit(1 if bad else 0)


main()
