#!/usr/bin/env python3
"""Compares linnet with transformers on random models or on model directories. Needs tools/requirements.txt.

usage: compare_hf.py --random N [--seed S]     N random models: family, sizes, RoPE, biases, windows, dtype, tied embeddings, config style
       compare_hf.py DIR...                    logits of 64 random ids for existing model directories

The environment variable LINNET is the path of the command (build/linnet). Prints one line for each model. Exit 1 when logits of exact numerics
differ by more than 2e-4, keys by more than 1e-4 + 6e-5 max|k|, or a greedy token whose margin exceeds 1e-3 differs."""
import json
import os
import random
import subprocess
import sys
import tempfile

import golden as G
import numpy as np
import torch
from safetensors.torch import load_file

LINNET = os.environ.get("LINNET", os.path.join(os.path.dirname(os.path.abspath(__file__)), "../build/linnet"))
EXACT = ["--numerics", "exact"]


def draw(r):
    """Returns the description of one random model, in the format of golden.py's table."""
    family = r.choice(["llama", "qwen2", "qwen3", "gemma3_text", "gemma3"])
    K = r.choice([1, 1, 2, 3])
    H = K * r.choice([1, 2, 3, 7])
    E = r.choice([8, 10, 16, 24, 32, 40, 64])
    L = r.randint(1, 7)
    D = H * (E if family == "qwen2" else r.choice([E, 5, 9, 16, 25]))
    old = r.random() < 0.5
    c = G.shape(D, H, K, r.randint(20, 130), L, r.randint(264, 276), bos_token_id=256, eos_token_id=257, tie_word_embeddings=r.random() < 0.5)
    theta = r.choice([1e4, 5e5, 1e6])
    if family != "qwen2":
        c["head_dim"] = E
    scaled = r.choice([{}, dict(rope_type="linear", factor=r.choice([2.0, 8.0]))])
    e = dict(family=family, dtype=r.choice(["f32", "bf16", "f16"]), T=r.randint(5, 120), old=old, notes="random", pattern=r.choice([1, 2, 3, 6]))
    if family == "llama":
        c["rms_norm_eps"] = 1e-5
        c["attention_bias"], c["mlp_bias"] = r.random() < 0.4, r.random() < 0.4
        scaled = r.choice([scaled, dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=64)])
    if family == "qwen3":
        c["attention_bias"] = r.random() < 0.3
    if family.startswith("gemma"):
        e["old"] = old = old or family == "gemma3"
        c["tie_word_embeddings"] = True
        c["query_pre_attn_scalar"], c["sliding_window"] = r.choice([E, 11, 200]), r.choice([1, 3, 16, 40])
        c["layer_types"] = ["full_attention" if (i + 1) % e["pattern"] == 0 else "sliding_attention" for i in range(L)]
        c["rope_parameters"] = {"full_attention": G.rope(theta, **scaled), "sliding_attention": G.rope(1e4)}
    else:
        c["rope_parameters"] = G.rope(theta, **scaled)
    if family == "gemma3":
        e["dtype"] = "bf16"
    if r.random() < 0.3 and family != "gemma3":
        e["shard"] = 40_000
    return e | dict(config=c)


def linnet(args):
    p = subprocess.run([LINNET, *args], capture_output=True)
    if p.returncode != 0:
        raise SystemExit(f"linnet {' '.join(args)}: exit {p.returncode}: {p.stderr.decode()}")
    return p.stdout


def compare(path, model, ids, stop, n_greedy):
    """Returns the largest differences of logits and keys, and whether the greedy tokens agree up to the first small margin."""
    with torch.no_grad():
        logits, cache = G.forward(model, ids)
        greedy, margins = G.decode(model, logits, cache, n_greedy, stop, len(ids))
        keys = [k[:, :len(ids)] for k in G.keys_of(cache)]
    text = ",".join(map(str, ids))
    with tempfile.TemporaryDirectory() as d:
        chunk = str(random.randint(1, 64))
        linnet(["score", path, "--ids", text, "--logits", f"{d}/l", "--chunk", chunk, *EXACT, "--json"])
        got = load_file(f"{d}/l")["logits"]
        linnet(["attention", path, "--ids", text, *EXACT, "-o", f"{d}/k"])
        ours = load_file(f"{d}/k")
    off = float((got - logits.float()).abs().max())
    off_k = max(float(((ours[f"keys.{i}"] - k.float()).abs().max() - 6e-5 * k.abs().max()).clamp(min=0)) for i, k in enumerate(keys))
    out = json.loads(linnet(["run", path, "--ids", text, "-n", str(n_greedy), "--temp", "0", "--repeat-penalty", "1", "--ignore-eos", *EXACT, "--json"]))["ids"]
    wrong = next((i for i, (a, b) in enumerate(zip(out, greedy)) if a != b), None)
    small = next((i for i, m in enumerate(margins) if m < 1e-3), len(margins))
    return off, off_k, wrong is None or wrong >= small


def main():
    args, bad = sys.argv[1:], 0
    seed = int(args[args.index("--seed") + 1]) if "--seed" in args else 1
    if args[:1] == ["--random"]:
        for i in range(int(args[1])):
            e = draw(random.Random(seed * 1000 + i))
            random.seed(i)
            with tempfile.TemporaryDirectory() as d:
                G.MODELS["random"] = e
                try:
                    G.write_model(d, "random", e, i)
                    model = G.load(d, e, "eager")
                except Exception as why:
                    print(f"{i:3} skipped: transformers does not take it: {str(why)[:80]}")
                    continue
                ids = [256] + [random.randrange(e["config"]["vocab_size"]) for _ in range(e["T"] - 1)]
                off, off_k, same = compare(d, model, ids, [257], 12)
                fine = off <= 2e-4 and off_k <= 1e-4 and same
                bad += not fine
                c = e["config"]
                print(f"{i:3} {'ok ' if fine else 'BAD'} {e['family']:12} {e['dtype']:4} L{c['num_hidden_layers']} D{c['hidden_size']} H{c['num_attention_heads']} "
                      f"K{c['num_key_value_heads']} E{c.get('head_dim')} T{e['T']} old={e['old']}: logits {off:.1e} keys {off_k:.1e} greedy {'same' if same else 'DIFFERS'}", flush=True)
    else:
        from transformers import AutoModelForCausalLM
        for path in args:
            c = json.load(open(f"{path}/config.json"))
            model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32, attn_implementation="eager").eval()
            if c["model_type"].startswith("gemma"):
                stored = getattr(torch, c.get("dtype") or c.get("torch_dtype") or "bfloat16")
                model.model.embed_tokens.embed_scale = torch.tensor(model.config.hidden_size ** 0.5).to(stored).float()
            ids = [int(x) for x in np.random.RandomState(seed).randint(0, model.config.vocab_size, 64)]
            off, off_k, same = compare(path, model, ids, [], 8)
            bad += not (off <= 2e-4 and same)
            print(f"{path}: logits {off:.1e} keys {off_k:.1e} greedy {'same' if same else 'DIFFERS'}", flush=True)
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
