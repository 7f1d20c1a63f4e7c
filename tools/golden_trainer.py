#!/usr/bin/env python3
"""Makes tests/golden/trainer: for small models an initial adapter, rows of training data, and what peft and torch make of them in 12 steps of
AdamW: losses, and the final adapter; and of all weights (full.*): losses, and every SPARSE-th number of each tensor. Of preferences (preferences.*): for each
loss of PREFERENCES the same of pairs.jsonl, by the formulas that trl.DPOTrainer and trl.experimental.orpo.ORPOTrainer (1.16) have in their source; TRL does not run. test_trainer, test_full_training and
test_preferences compare `ln_trainer_*` with it.

usage: python tools/golden_trainer.py [OUT]           in an environment that has torch, transformers and peft
       python tools/golden_trainer.py --full [OUT]     full.* alone
       python tools/golden_trainer.py --preferences [OUT]   preferences.* alone
       python tools/golden_trainer.py --check MODEL   trains MODEL with peft and with build/linnet, and prints the differences
"""
import json
import os
import subprocess
import sys
import tempfile

import torch
import torch.nn.functional as F
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM
from transformers.trainer_pt_utils import get_parameter_names

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
MODELS = ["llama-plain-f32", "qwen2-f32", "qwen3-bias-f32", "gemma3-text-f32"]
FULL_MODELS = MODELS + ["families/glm4-base-f32"]
STEPS, BATCH, LR, DECAY = 12, 3, 1e-3, 0.01
SPARSE = 16
PREFERENCES, BETA, SPARSE_PAIRS = ["dpo", "dpo-norm", "ipo", "orpo"], 0.1, 4


def make_rows(vocab, n=7, seed=0):
    g = torch.Generator().manual_seed(seed)
    rows = []
    for i in range(n):
        size = int(torch.randint(4, 20, (1,), generator=g))
        ids = torch.randint(0, vocab, (size,), generator=g).tolist()
        mask = [int(torch.rand(1, generator=g) < 0.6) for _ in ids]
        mask[-1] = 1
        rows.append({"ids": ids, "mask": mask})
    return rows


def make_adapter(model, path, seed):
    torch.manual_seed(seed)
    m = get_peft_model(model, LoraConfig(task_type="CAUSAL_LM", r=4, lora_alpha=6, target_modules=["q_proj", "v_proj", "down_proj"]))
    with torch.no_grad():
        for name, p in m.named_parameters():
            if "lora_B" in name:
                p.copy_(torch.randn_like(p) * 0.05)
    m.save_pretrained(path)
    for f in os.listdir(path):
        if f not in ("adapter_config.json", "adapter_model.safetensors"):
            os.remove(os.path.join(path, f))
    name = os.path.join(path, "adapter_config.json")
    config = json.load(open(name))
    config["base_model_name_or_path"] = ""
    config.pop("peft_version", None)
    json.dump(config, open(name, "w"), indent=1, sort_keys=True)


def train(model_dir, adapter, rows):
    """The losses of the steps, and the final adapter by name."""
    model = AutoModelForCausalLM.from_pretrained(model_dir, dtype="auto", attn_implementation="eager").float()
    m = PeftModel.from_pretrained(model, adapter, is_trainable=True)
    params = [p for p in m.parameters() if p.requires_grad]
    losses = steps(m, [{"params": params, "weight_decay": DECAY}], rows)
    state = {n.replace(".default", ""): p.detach().clone() for n, p in m.named_parameters() if p.requires_grad}
    return losses, state


def train_all(model_dir, rows):
    """The same of all weights; those that decay are what transformers' Trainer takes."""
    m = AutoModelForCausalLM.from_pretrained(model_dir, dtype="auto", attn_implementation="eager").float()
    norms = [r"bias", r"layernorm", r"rmsnorm", r"(?:^|\.)norm(?:$|\.)", r"_norm(?:$|\.)"]
    decays = set(get_parameter_names(m, [torch.nn.LayerNorm], norms))
    named = dict(m.named_parameters())
    groups = [{"params": [p for n, p in named.items() if (n in decays) == wanted], "weight_decay": DECAY if wanted else 0.0} for wanted in (True, False)]
    losses = steps(m, groups, rows)
    return losses, {n: p.detach() for n, p in named.items()}


def steps(m, groups, rows):
    m.train()
    opt = torch.optim.AdamW(groups, lr=LR, betas=(0.9, 0.999), eps=1e-8)
    losses, at = [], 0
    for _ in range(STEPS):
        total, count = 0.0, 0
        opt.zero_grad()
        batch = [rows[(at + i) % len(rows)] for i in range(BATCH)]
        at += BATCH
        for row in batch:
            ids = torch.tensor([row["ids"]])
            logits = m(ids).logits[0, :-1].float()
            keep = torch.tensor(row["mask"][1:], dtype=torch.bool)
            total = total + torch.nn.functional.cross_entropy(logits[keep], ids[0, 1:][keep], reduction="sum")
            count += int(keep.sum())
        loss = total / count
        loss.backward()
        opt.step()
        losses.append(float(loss.detach()))
    return losses


def compare(losses, state, lines, out):
    got = load_file(os.path.join(out, "adapter_model.safetensors"))
    assert sorted(got) == sorted(state), (sorted(got)[:3], sorted(state)[:3])
    return max(abs(a["loss"] - b) / abs(b) for a, b in zip(lines, losses)), got


def check(model_dir):
    vocab = json.load(open(os.path.join(model_dir, "config.json")))
    vocab = vocab.get("vocab_size") or vocab["text_config"]["vocab_size"]
    with tempfile.TemporaryDirectory() as tmp:
        init, data, out = (os.path.join(tmp, x) for x in ("init", "rows.jsonl", "out"))
        make_adapter(AutoModelForCausalLM.from_pretrained(model_dir, dtype="auto").float(), init, 1)
        rows = make_rows(vocab)
        with open(data, "w") as f:
            f.writelines(json.dumps(r) + "\n" for r in rows)
        losses, state = train(model_dir, init, rows)
        linnet = os.environ.get("LINNET", os.path.join(ROOT, "build/linnet"))
        text = subprocess.run([linnet, "train", model_dir, "--init-adapter", init, "--data", data, "-o", out, "--no-shuffle", "--batch", str(BATCH), "--lr", str(LR),
                               "--weight-decay", str(DECAY), "--schedule", "constant", "--warmup", "0", "--clip", "0", "--valid-split", "0", "--steps", str(STEPS),
                               "--numerics", "exact", "--json"], check=True, capture_output=True, text=True).stdout
        lines = [json.loads(x) for x in text.splitlines()][:-1]
        worst, got = compare(losses, state, lines, out)
        first = load_file(os.path.join(init, "adapter_model.safetensors"))
        a = torch.cat([(got[n] - first[n]).flatten() for n in sorted(got)])
        b = torch.cat([(state[n] - first[n]).flatten() for n in sorted(got)])
        print(f"{os.path.basename(model_dir)}: losses within {worst:.1e} (allowed 1e-4), moved with cosine {float(torch.nn.functional.cosine_similarity(a, b, 0)):.6f} "
              "(allowed 0.999)")


def make_pairs(vocab, seed):
    g = torch.Generator().manual_seed(seed)

    def ids(least, most):
        return torch.randint(0, vocab, (int(torch.randint(least, most, (1,), generator=g)),), generator=g).tolist()
    return [{"prompt_ids": ids(2, 7), "chosen_ids": ids(2, 10), "rejected_ids": ids(2, 10)} for _ in range(7)]


def logps_of(m, pair):
    """The log-probabilities of all tokens but the first, of prompt and chosen and of prompt and rejected answer."""
    for answer in ("chosen_ids", "rejected_ids"):
        ids = torch.tensor(pair["prompt_ids"] + pair[answer])
        logp = torch.log_softmax(m(ids[None]).logits[0, :-1].float(), -1)
        yield logp.gather(1, ids[1:, None])[:, 0]


def preference_loss(kind, chosen, rejected, ref):
    """Of one pair, from the log-probabilities of the answers' tokens and the sums that the reference has of them; the cases of TRL's code."""
    c, r = chosen.sum() - ref[0], rejected.sum() - ref[1]
    if kind == "dpo":
        return -F.logsigmoid(BETA * (c - r))
    if kind == "orpo":
        c, r = chosen.mean(), rejected.mean()
        log_odds = (c - r) - (torch.log(-torch.expm1(c)) - torch.log(-torch.expm1(r)))
        return -BETA * F.logsigmoid(log_odds)
    delta = c / len(chosen) - r / len(rejected)
    return -F.logsigmoid(BETA * delta) if kind == "dpo-norm" else (delta - 1 / (2 * BETA)) ** 2


def train_pairs(model_dir, adapter, pairs, kind):
    model = AutoModelForCausalLM.from_pretrained(model_dir, dtype="auto", attn_implementation="eager").float()
    m = PeftModel.from_pretrained(model, adapter, is_trainable=True)
    opt = torch.optim.AdamW([p for p in m.parameters() if p.requires_grad], lr=LR, betas=(0.9, 0.999), eps=1e-8, weight_decay=DECAY)
    starts = [len(p["prompt_ids"]) - 1 for p in pairs]
    with torch.no_grad():  # TRL copies an adapter that is trained on as "ref"
        refs = [[x[n:].sum() for x in logps_of(m, p)] for p, n in zip(pairs, starts)]
    losses = []
    for step in range(STEPS):
        opt.zero_grad()
        total, tokens = 0.0, []
        for i in [(BATCH * step + k) % len(pairs) for k in range(BATCH)]:
            chosen, rejected = logps_of(m, pairs[i])
            total = total + preference_loss(kind, chosen[starts[i]:], rejected[starts[i]:], refs[i])
            tokens.append(chosen)
        loss = total / BATCH - (torch.cat(tokens).mean() if kind == "orpo" else 0)
        loss.backward()
        opt.step()
        losses.append(float(loss.detach()))
    return losses, {n.replace(".default", ""): p.detach() for n, p in m.named_parameters() if p.requires_grad}


def make_preferences(out):
    for i, name in enumerate(MODELS):
        model_dir, path = os.path.join(ROOT, "tests/golden", name), os.path.join(out, name)
        pairs = make_pairs(json.load(open(os.path.join(model_dir, "config.json")))["vocab_size"], i)
        with open(os.path.join(path, "pairs.jsonl"), "w") as f:
            f.writelines(json.dumps(p) + "\n" for p in pairs)
        losses, numbers = {}, {}
        for kind in PREFERENCES:
            losses[kind], state = train_pairs(model_dir, os.path.join(path, "init"), pairs, kind)
            numbers.update({f"{kind}.{n}": p.flatten()[::SPARSE_PAIRS].clone() for n, p in state.items()})
            print(name, kind, losses[kind][0], losses[kind][-1], flush=True)
        save_file(numbers, os.path.join(path, "preferences.safetensors"))
        json.dump(losses, open(os.path.join(path, "preferences.json"), "w"))


def make_full(out):
    for i, name in enumerate(FULL_MODELS):
        model_dir = os.path.join(ROOT, "tests/golden", name)
        path = os.path.join(out, os.path.basename(name))
        os.makedirs(path, exist_ok=True)
        data = os.path.join(path, "rows.jsonl")
        if not os.path.exists(data):
            vocab = json.load(open(os.path.join(model_dir, "config.json")))["vocab_size"]
            with open(data, "w") as f:
                f.writelines(json.dumps(r) + "\n" for r in make_rows(vocab, seed=i))
        losses, state = train_all(model_dir, [json.loads(x) for x in open(data)])
        save_file({n: p.flatten()[::SPARSE].clone() for n, p in state.items()}, os.path.join(path, "full.safetensors"))
        json.dump(losses, open(os.path.join(path, "full.json"), "w"))
        print(name, "full", losses[0], losses[-1])


def make(out):
    for i, name in enumerate(MODELS):
        model_dir = os.path.join(ROOT, "tests/golden", name)
        path = os.path.join(out, name)
        os.makedirs(path, exist_ok=True)
        model = AutoModelForCausalLM.from_pretrained(model_dir, dtype="auto").float()
        make_adapter(model, os.path.join(path, "init"), i)
        rows = make_rows(model.config.vocab_size, seed=i)
        with open(os.path.join(path, "rows.jsonl"), "w") as f:
            f.writelines(json.dumps(r) + "\n" for r in rows)
        losses, state = train(model_dir, os.path.join(path, "init"), rows)
        save_file(state, os.path.join(path, "final.safetensors"))
        json.dump(losses, open(os.path.join(path, "losses.json"), "w"))
        print(name, losses[0], losses[-1])


if __name__ == "__main__":
    if len(sys.argv) > 2 and sys.argv[1] == "--check":
        check(sys.argv[2])
    else:
        only = [x for x in sys.argv[1:] if x.startswith("--")]
        rest = [x for x in sys.argv[1:] if not x.startswith("--")]
        to = rest[0] if rest else os.path.join(ROOT, "tests/golden/trainer")
        for flag, work in ("--adapters", make), ("--full", make_full), ("--preferences", make_preferences):
            if not only or flag in only:
                work(to)
