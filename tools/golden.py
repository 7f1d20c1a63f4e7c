#!/usr/bin/env python3
"""Writes tiny random models in Hugging Face layout, and records the results of the reference implementation for them.

usage: python tools/golden.py OUT [--only NAME]...        (make golden runs it with OUT = tests/golden)

Every model is a complete model directory (config.json, weights, tokenizer.json, some with generation_config.json) plus
golden.safetensors with the recorded results. OUT/README.md describes these and OUT/index.json lists the models.

The reference is transformers in f32 arithmetic on the stored weights: the model is *loaded* with dtype=float32 (casting a
loaded one would round its rotary buffers), attention is eager, and Gemma's embedding scale has the value that it has in the
checkpoint's dtype. A result is recorded only if two other computations confirm it: the same model with sdpa attention, and the
same weights in float64. The same seed gives the same bytes with the same versions on the same type of processor.
"""
import argparse
import json
import math
import os
import shutil
import tempfile

os.environ.setdefault("HF_HUB_OFFLINE", "1")
import numpy as np
import torch
import transformers
from safetensors.torch import load_file, save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import (AutoConfig, Gemma3ForCausalLM, Gemma3TextConfig, LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM,
                          Qwen3Config, Qwen3ForCausalLM)
from transformers.cache_utils import DynamicCache

SEED = 20
N_GREEDY = 40
LONG_T, LONG_TAIL, LONG_ROWS, LONG_GREEDY, LONG_CHUNK = 30040, 40, 4, 8, 256
AGREE = 1e-5            # largest difference between eager and sdpa, logits and keys; 1e-4 for the long runs (sums of 30,000 terms)
CLASSES = {"llama": (LlamaConfig, LlamaForCausalLM), "qwen2": (Qwen2Config, Qwen2ForCausalLM), "qwen3": (Qwen3Config, Qwen3ForCausalLM),
           "gemma3_text": (Gemma3TextConfig, Gemma3ForCausalLM), "gemma3": (Gemma3TextConfig, Gemma3ForCausalLM)}
DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}
# rows around the original contexts
SCALED = [0, 1, 7, 15, 16, 17, 30, 31, 32, 33, 34, 39, 40, 41, 48, 56, 57, 58, 59]
WINDOWED = [0, 1, 2, 14, 15, 16, 17, 18, 31, 32, 33, 40, 47, 48, 55, 63, 64, 65]     # rows around the edges of a window of 16


def shape(D, H, K, F, L, V, **more):
    return dict(hidden_size=D, num_attention_heads=H, num_key_value_heads=K, intermediate_size=F, num_hidden_layers=L, vocab_size=V,
                max_position_embeddings=256, pad_token_id=None, **more)


def rope(theta=10000.0, **more):
    return dict({"rope_type": "default", "rope_theta": theta}, **more)


def scaled(D, H, K, F, L, V, positions, **more):
    c = shape(D, H, K, F, L, V, tie_word_embeddings=True, bos_token_id=256, eos_token_id=257, **more)
    return c | dict(max_position_embeddings=positions)


# name: family, dtype, config, and options (T prompt length, rows of logits to keep, old: old-style config.json,
# shard: bytes a shard, gen: generation_config.json).
MODELS = {
    "llama-plain-f32": dict(
        family="llama", dtype="f32", T=33, notes="untied, E = 12 although D / H = 8",
        config=shape(32, 4, 2, 52, 2, 269, head_dim=12, tie_word_embeddings=False, rms_norm_eps=1e-5, bos_token_id=256, eos_token_id=257,
                     rope_parameters=rope())),
    "llama-llama3-bf16": dict(
        family="llama", dtype="bf16", T=60, rows=list(range(0, 60, 3)) + [58, 59], notes="llama3 rope scaling, tied, two eos ids in generation_config",
        config=shape(36, 6, 2, 60, 3, 273, head_dim=16, tie_word_embeddings=True, rms_norm_eps=1e-5, bos_token_id=256, eos_token_id=257,
                     rope_parameters=rope(10000.0, rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                                          original_max_position_embeddings=64)),
        gen=dict(bos_token_id=256, eos_token_id=[257, 258], do_sample=True, temperature=0.6, top_p=0.9)),
    "llama-linear-f16": dict(
        family="llama", dtype="f16", T=33, old=True, notes="old-style rope_scaling linear, E = 20 although D / H = 6, untied",
        config=shape(36, 6, 3, 56, 2, 265, head_dim=20, tie_word_embeddings=False, rms_norm_eps=1e-6, bos_token_id=256, eos_token_id=257,
                     rope_parameters=rope(50000.0, rope_type="linear", factor=4.0))),
    "llama-bias-bf16": dict(
        family="llama", dtype="bf16", T=33, notes="attention_bias and mlp_bias, 7 query heads on 1 kv head, tied",
        config=shape(42, 7, 1, 60, 3, 271, head_dim=16, tie_word_embeddings=True, rms_norm_eps=1e-5, attention_bias=True, mlp_bias=True,
                     bos_token_id=256, eos_token_id=[257, 259], rope_parameters=rope(500000.0))),
    "qwen2-bf16": dict(
        family="qwen2", dtype="bf16", T=25, notes="q/k/v biases, 14 query heads on 2 kv heads, E = 6, tied",
        config=shape(84, 14, 2, 40, 2, 267, tie_word_embeddings=True, bos_token_id=256, eos_token_id=257, rope_parameters=rope(1e6)),
        gen=dict(bos_token_id=256, pad_token_id=256, eos_token_id=[257, 256], do_sample=True, temperature=0.7, top_p=0.8, top_k=20)),
    "qwen2-f32": dict(
        family="qwen2", dtype="f32", T=18, old=True, notes="old-style rope_theta, 5 query heads on 1 kv head, tied",
        config=shape(40, 5, 1, 44, 2, 266, tie_word_embeddings=True, bos_token_id=256, eos_token_id=257, rope_parameters=rope(1e6))),
    "qwen3-sharded-bf16": dict(
        family="qwen3", dtype="bf16", T=33, shard=50_000, notes="q/k norm, E = 14 although D / H = 6, three shards with an index, tied",
        config=shape(36, 6, 3, 52, 3, 275, head_dim=14, tie_word_embeddings=True, bos_token_id=256, eos_token_id=257, rope_parameters=rope(1e6)),
        gen=dict(bos_token_id=256, pad_token_id=256, eos_token_id=[257, 256], do_sample=True, temperature=0.6, top_p=0.95, top_k=20)),
    "qwen3-f16": dict(
        family="qwen3", dtype="f16", T=33, notes="q/k norm, 3 query heads on 1 kv head, E = 32, untied",
        config=shape(39, 3, 1, 72, 2, 263, head_dim=32, tie_word_embeddings=False, bos_token_id=256, eos_token_id=257, rope_parameters=rope(1e6))),
    "qwen3-bias-f32": dict(
        family="qwen3", dtype="f32", T=17, notes="attention_bias (q, k, v, o), E = 10, tied",
        config=shape(36, 4, 4, 60, 2, 262, head_dim=10, tie_word_embeddings=True, attention_bias=True, bos_token_id=256, eos_token_id=257,
                     rope_parameters=rope(10000.0))),
    "gemma3-text-bf16": dict(
        family="gemma3_text", dtype="bf16", T=90, rows=WINDOWED[::2] + list(range(84, 90)), notes="window 16 under a text of 90, pattern of 3, sqrt(D) = 5.2915 is 5.28125 in bf16",
        config=shape(28, 4, 1, 40, 7, 268, head_dim=16, query_pre_attn_scalar=24, sliding_window=16, bos_token_id=256, eos_token_id=[257, 258],
                     layer_types=["sliding_attention", "sliding_attention", "full_attention"] * 2 + ["sliding_attention"],
                     rope_parameters={"full_attention": rope(1e6), "sliding_attention": rope(1e4)}),
        gen=dict(bos_token_id=256, pad_token_id=0, eos_token_id=[257, 258], do_sample=True, top_k=64, top_p=0.95, cache_implementation="hybrid")),
    "gemma3-text-f32": dict(
        family="gemma3_text", dtype="f32", T=40, notes="window 7, E = 20, linear scaling of the global rope, new style",
        config=shape(24, 4, 2, 36, 3, 265, head_dim=20, query_pre_attn_scalar=11, sliding_window=7, bos_token_id=256, eos_token_id=257,
                     layer_types=["sliding_attention", "full_attention", "sliding_attention"],
                     rope_parameters={"full_attention": rope(1e6, rope_type="linear", factor=8.0), "sliding_attention": rope(1e4)})),
    "gemma3-text-f16": dict(
        family="gemma3_text", dtype="f16", T=40, old=True, notes="old-style flat config with sliding_window_pattern 2, sqrt(D) rounded to f16",
        config=shape(42, 3, 1, 56, 4, 264, head_dim=16, query_pre_attn_scalar=16, sliding_window=16, bos_token_id=256, eos_token_id=257,
                     layer_types=["sliding_attention", "full_attention"] * 2,
                     rope_parameters={"full_attention": rope(1e6), "sliding_attention": rope(1e4)}), pattern=2),
    "gemma3-nested-bf16": dict(
        family="gemma3", dtype="bf16", T=70, old=True, rows=WINDOWED + [66, 67, 68, 69], pattern=6,
        notes="text_config with sliding_window_pattern 6, rope_scaling linear 8; language_model.model. names and a vision tower",
        config=shape(28, 7, 1, 36, 7, 270, head_dim=10, query_pre_attn_scalar=14, sliding_window=16, bos_token_id=256, eos_token_id=[257, 258],
                     layer_types=["sliding_attention"] * 5 + ["full_attention", "sliding_attention"],
                     rope_parameters={"full_attention": rope(1e6, rope_type="linear", factor=8.0), "sliding_attention": rope(1e4)})),
    "llama-long-bf16": dict(
        family="llama", dtype="bf16", T=LONG_T, long=True, notes="position 30,000; E = 32, llama3 rope scaling",
        config=shape(32, 1, 1, 48, 2, 264, head_dim=32, tie_word_embeddings=True, rms_norm_eps=1e-5, bos_token_id=256, eos_token_id=257,
                     rope_parameters=rope(500000.0, rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                                          original_max_position_embeddings=8192)) | dict(max_position_embeddings=32768)),
    "gemma3-long-bf16": dict(
        family="gemma3_text", dtype="bf16", T=LONG_T, long=True, notes="position 30,000; E = 64, window 512, one sliding and one full layer",
        config=shape(32, 1, 1, 48, 2, 264, head_dim=64, query_pre_attn_scalar=64, sliding_window=512, bos_token_id=256, eos_token_id=257,
                     layer_types=["sliding_attention", "full_attention"],
                     rope_parameters={"full_attention": rope(1e6), "sliding_attention": rope(1e4)}) | dict(max_position_embeddings=32768)),
    # scaled ropes beyond the original context; a base of 100 spreads YaRN's ramp over several of the few dimensions
    "llama-yarn-f32": dict(
        family="llama", dtype="f32", seed=100, T=60, rows=SCALED,
        notes="yarn by 4 from 32 positions, attention_factor given, beta 16 and 2",
        config=scaled(24, 3, 1, 36, 2, 266, 128, head_dim=24,
                      rope_parameters=rope(100.0, rope_type="yarn", factor=4.0, original_max_position_embeddings=32,
                                           attention_factor=0.85, beta_fast=16.0, beta_slow=2.0))),
    "qwen2-yarn-bf16": dict(
        family="qwen2", dtype="bf16", seed=101, T=60, rows=SCALED, old=True,
        notes="yarn as Qwen's model cards write it: old-style type, max_position_embeddings is the original one",
        config=scaled(64, 2, 1, 40, 2, 265, 32,
                      rope_parameters=rope(100.0, rope_type="yarn", factor=4.0, original_max_position_embeddings=32))),
    "qwen3-yarn-bf16": dict(
        family="qwen3", dtype="bf16", seed=102, T=60, rows=SCALED,
        notes="yarn with mscale and mscale_all_dim, truncate false",
        config=scaled(32, 4, 2, 40, 2, 267, 128, head_dim=20,
                      rope_parameters=rope(100.0, rope_type="yarn", factor=4.0, original_max_position_embeddings=32,
                                           mscale=1.4, mscale_all_dim=0.6, truncate=False))),
    "gemma3-yarn-bf16": dict(
        family="gemma3_text", dtype="bf16", seed=103, T=60, rows=SCALED,
        notes="yarn by kind: the full layers only, without attention_factor; window 16",
        config=scaled(28, 2, 1, 40, 3, 268, 128, head_dim=20, query_pre_attn_scalar=20, sliding_window=16,
                      layer_types=["sliding_attention", "full_attention", "sliding_attention"],
                      rope_parameters={"full_attention": rope(100.0, rope_type="yarn", factor=4.0,
                                                              original_max_position_embeddings=32),
                                       "sliding_attention": rope(50.0)})),
    "llama-dynamic-f32": dict(
        family="llama", dtype="f32", seed=104, T=60, rows=SCALED,
        notes="dynamic by 4 beyond 40 positions: other frequencies for every length",
        config=scaled(24, 3, 1, 36, 2, 266, 40, head_dim=16,
                      rope_parameters=rope(100.0, rope_type="dynamic", factor=4.0))),
    "gemma3-dynamic-bf16": dict(
        family="gemma3_text", dtype="bf16", seed=106, T=60, rows=SCALED,
        notes="dynamic by 2.5 beyond 50 positions, both kinds of layers",
        config=scaled(28, 2, 1, 40, 3, 264, 50, head_dim=12, query_pre_attn_scalar=12, sliding_window=16,
                      layer_types=["sliding_attention", "full_attention", "sliding_attention"],
                      rope_parameters={"full_attention": rope(100.0, rope_type="dynamic", factor=2.5),
                                       "sliding_attention": rope(50.0, rope_type="dynamic", factor=2.0)})),
}


def lcg_ids(n, V):
    """Returns the ids of a long text: x <- x * 1664525 + 1013904223 mod 2^32 from x = 1; id = (x >> 16) mod (V - 8), never a special token."""
    x, out = 1, []
    for _ in range(n):
        x = (x * 1664525 + 1013904223) & 0xFFFFFFFF
        out.append((x >> 16) % (V - 8))
    return out


def number(name):
    """Returns the seed of a model's random numbers. Models added later have their own seed, so that the earlier ones keep theirs."""
    unseeded = sorted(k for k, v in MODELS.items() if "seed" not in v)
    return MODELS[name]["seed"] if "seed" in MODELS[name] else unseeded.index(name)


def fill(model, rng, gemma):
    """Fills the model with random weights with which every layer affects the result: matrices N(0, 1/fan_in), norms 1 +- 0.2 (Gemma: 0 +- 0.2),
    biases N(0, 0.3)."""
    tied = model.config.tie_word_embeddings
    for name, p in sorted(model.named_parameters()):
        x = rng.standard_normal(tuple(p.shape)).astype(np.float32)
        if name.endswith("norm.weight"):
            x = x * 0.2 + (0.0 if gemma else 1.0)
            if tied and name == "model.norm.weight":
                x += 2.0                # the embedding is small (below); the last norm compensates for that
        elif name.endswith("bias"):
            x *= 0.3
        elif "embed_tokens" in name:    # tied: small, or the most likely next token would always be the last one
            x *= 0.7 / math.sqrt(p.shape[1]) if tied else 1.0
        else:
            x *= (2.0 if "lm_head" in name else 1.0) / math.sqrt(p.shape[1])
        p.data.copy_(torch.from_numpy(x))


def write_tokenizer(path, V, config):
    """Writes a byte-level BPE tokenizer with exactly V entries: the bytes, 8 special tokens at 256..263, then merges."""
    b2u = {b: chr(b) for b in [*range(33, 127), *range(161, 173), *range(174, 256)]}
    for i, b in enumerate(b for b in range(256) if b not in b2u.copy()):
        b2u[b] = chr(256 + i)
    vocab = {b2u[b]: b for b in range(256)}
    special = ["<bos>", "<eos>", "<end>", "<pad>", "<s4>", "<s5>", "<s6>", "<s7>"][:max(0, min(8, V - 256))]
    merges = []
    for a, b in (("t", "h"), ("th", "e"), ("i", "n"), ("e", "r"), ("a", "n"), ("o", "n"), ("r", "e"), ("Ġ", "the"), ("Ġ", "a"), ("o", "u"), ("e", "d"), ("Ġ", "s")):
        if 256 + len(special) + len(merges) < V:
            vocab[a + b] = 256 + len(special) + len(merges)
            merges.append((a, b))
    tok = Tokenizer(models.BPE(vocab=vocab | {s: 256 + i for i, s in enumerate(special)}, merges=merges))
    tok.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tok.decoder = decoders.ByteLevel()
    tok.add_special_tokens([AddedToken(s, special=True, normalized=False) for s in special])
    assert tok.get_vocab_size() == V, (tok.get_vocab_size(), V)
    tok.save(str(path))


def old_style(config, entry):
    """Returns the configuration as older releases wrote it: rope_theta and rope_scaling at the top level, torch_dtype, a pattern for the windows."""
    c = dict(config)
    c["torch_dtype"] = c.pop("dtype")
    c["transformers_version"] = "4.50.0"
    r = c.pop("rope_parameters")
    if "full_attention" in r:
        c.pop("layer_types")
        c.pop("_sliding_window_pattern")
        c["sliding_window_pattern"] = entry["pattern"]
        c["rope_local_base_freq"] = r["sliding_attention"]["rope_theta"]
        r = r["full_attention"]
    c["rope_theta"] = r["rope_theta"]
    more = {k: v for k, v in r.items() if k not in ("rope_theta", "rope_type")}
    kind = "rope_type" if "layer_types" in config else "type"      # the older of the two spellings for the older families
    c["rope_scaling"] = dict(more, **{kind: r["rope_type"]}) if more else None
    return c


def write_json(path, value):
    with open(path, "w") as f:
        f.write(json.dumps(value, indent=2, sort_keys=True) + "\n")


def write_model(path, name, entry, salt):
    family, (Config, Model) = entry["family"], CLASSES[entry["family"]]
    rng = np.random.RandomState(SEED * 100_000 + number(name) * 1000 + salt)
    config = Config(**entry["config"])
    model = Model(config)
    fill(model, rng, family.startswith("gemma"))
    model.to(DTYPES[entry["dtype"]])
    model.generation_config = transformers.GenerationConfig()
    model.save_pretrained(path, max_shard_size=entry.get("shard", "1GB"))
    os.remove(os.path.join(path, "generation_config.json"))
    if "gen" in entry:
        write_json(os.path.join(path, "generation_config.json"), entry["gen"] | {"transformers_version": transformers.__version__})
    file = os.path.join(path, "config.json")
    with open(file) as f:
        written = json.load(f)
    if entry.get("old"):
        written = old_style(written, entry)
    if family == "gemma3":
        eos = written.pop("eos_token_id")
        for k in ("architectures", "bos_token_id", "pad_token_id", "transformers_version", "torch_dtype", "use_cache"):
            top = written.pop(k, None)
        written = {"architectures": ["Gemma3ForConditionalGeneration"], "model_type": "gemma3", "eos_token_id": eos, "torch_dtype": "bfloat16",
                   "transformers_version": "4.50.0", "boi_token_index": 260, "eoi_token_index": 261, "image_token_index": 262, "mm_tokens_per_image": 4,
                   "text_config": written, "vision_config": {"model_type": "siglip_vision_model", "hidden_size": 8, "intermediate_size": 16,
                                                             "num_hidden_layers": 1, "num_attention_heads": 2, "image_size": 8, "patch_size": 4}}
        file_st = os.path.join(path, "model.safetensors")
        named = {("language_model." + k): v for k, v in load_file(file_st).items()}
        named["vision_tower.vision_model.post_layernorm.weight"] = torch.ones(8, dtype=torch.bfloat16)
        named["multi_modal_projector.mm_input_projection_weight"] = torch.zeros(8, 4, dtype=torch.bfloat16)
        save_file(named, file_st, metadata={"format": "pt"})
    if entry.get("old") or family == "gemma3":
        write_json(file, written)
    write_tokenizer(os.path.join(path, "tokenizer.json"), config.vocab_size, config)


def load(path, entry, attention):
    """Loads the reference model: f32 arithmetic on the stored weights, read from the written directory."""
    Model = CLASSES[entry["family"]][1]
    config = AutoConfig.from_pretrained(path)
    if entry["family"] == "gemma3":
        with tempfile.TemporaryDirectory() as plain:
            named = load_file(os.path.join(path, "model.safetensors"))
            keep = {k.removeprefix("language_model."): v for k, v in named.items() if k.startswith("language_model.")}
            save_file(keep, os.path.join(plain, "model.safetensors"), metadata={"format": "pt"})
            write_json(os.path.join(plain, "generation_config.json"), {})
            model, info = Model.from_pretrained(plain, config=config.text_config, dtype=torch.float32, attn_implementation=attention, output_loading_info=True)
    else:
        model, info = Model.from_pretrained(path, dtype=torch.float32, attn_implementation=attention, output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"] and not info["mismatched_keys"], info
    model.eval()
    if entry["family"].startswith("gemma"):
        scale = torch.tensor(math.sqrt(model.config.hidden_size)).to(DTYPES[entry["dtype"]]).float()
        model.model.embed_tokens.embed_scale = scale
    want = entry["config"]["rope_parameters"]
    got = model.config.rope_parameters
    for k, v in want.items():      # the written configuration is read back with the values of the table above
        assert (all(got[k][a] == b for a, b in v.items()) if isinstance(v, dict) else got[k] == v), (k, v, got)
    assert model.config.layer_types == entry["config"]["layer_types"] if "layer_types" in entry["config"] else True
    return model


def forward(model, ids, chunk=None, keep=None):
    """Returns the logits of the last `keep` rows (all by default) and the cache. A DynamicCache without a config keeps all positions
    of sliding-window layers too; the masks apply the windows."""
    cache, rows = DynamicCache(), []
    step = chunk or len(ids)
    for at in range(0, len(ids), step):
        part = torch.tensor([ids[at:at + step]])
        pos = torch.arange(at, at + part.shape[1])[None]
        rows.append(model(input_ids=part, position_ids=pos, past_key_values=cache, use_cache=True).logits[0])
        if keep:
            rows = [torch.cat(rows)[-keep:]]
    return torch.cat(rows), cache


def keys_of(cache):
    return [layer.keys[0] for layer in cache.layers]


def decode(model, logits, cache, n, stop, T):
    """Generates n tokens greedily. Returns them with the margins between the best two logits; stop ids are never chosen (--ignore-eos)."""
    out, margins, row = [], [], logits[-1]
    for i in range(n):
        row = row.clone()
        row[stop] = -math.inf
        top = torch.topk(row, 2)
        out.append(int(top.indices[0]))
        margins.append(float(top.values[0] - top.values[1]))
        pos = torch.tensor([[T + i]])
        row = model(input_ids=torch.tensor([[out[-1]]]), position_ids=pos, past_key_values=cache, use_cache=True).logits[0, -1]
    return out, margins


def inverse_frequencies(model):
    r = model.model.rotary_emb
    if hasattr(r, "inv_freq"):
        return {"full": r.inv_freq.clone()}
    return {k.split("_")[0]: getattr(r, k + "_inv_freq").clone() for k in ("full_attention", "sliding_attention")}


def plain_frequencies(model, kind):
    """Returns 1 / theta^(2i/E) in f32 with a correctly rounded power: the expected frequencies of an unscaled RoPE."""
    p = model.config.rope_parameters
    p = p.get(kind + "_attention", p)
    E = getattr(model.config, "head_dim", None) or model.config.hidden_size // model.config.num_attention_heads
    e = (np.arange(0, E, 2, dtype=np.float32) / np.float32(E)).astype(np.float64)
    return (np.float32(1.0) / np.power(p["rope_theta"], e).astype(np.float32)) / np.float32(p.get("factor", 1.0) if p["rope_type"] == "linear" else 1.0), p["rope_type"]


def worst(a, b):
    return max(float((x.double() - y.double()).abs().max()) for x, y in zip(a, b))


def record(path, name, entry):
    config = entry["config"]
    V, T, long = config["vocab_size"], entry["T"], entry.get("long", False)
    rng = np.random.RandomState(SEED * 2000 + number(name))
    ids = lcg_ids(T, V) if long else [int(x) for x in np.concatenate([[256], rng.randint(0, V, T - 1)])]
    eos = config["eos_token_id"]
    stop = sorted(set([eos] if isinstance(eos, int) else eos) | set(entry.get("gen", {}).get("eos_token_id", [])))
    with torch.no_grad():
        model = load(path, entry, "eager")
        freqs = inverse_frequencies(model)      # read before a long text changes the frequencies of a dynamic RoPE
        chunk, keep = (LONG_CHUNK, LONG_TAIL) if long else (None, None)
        logits, cache = forward(model, ids, chunk, keep)
        keys = [k[:, -LONG_TAIL:].clone() if long else k.clone() for k in keys_of(cache)]
        greedy, margins = decode(model, logits, cache, LONG_GREEDY if long else N_GREEDY, stop, T)
        for kind, f in freqs.items():
            want, rope_type = plain_frequencies(model, kind)
            plain = rope_type in ("default", "linear")
            off = int((want.view(np.int32) != f.numpy().view(np.int32)).sum()) if plain else -1
            assert not (long and off > 0), (name, kind, "torch's frequencies are not the correctly rounded ones here")
        other = load(path, entry, "sdpa")
        l2, c2 = forward(other, ids, chunk, keep)
        k2 = [k[:, -LONG_TAIL:] if long else k for k in keys_of(c2)]
        sdpa = max(worst([logits], [l2]), worst(keys, k2))
        assert sdpa < (1e-4 if long else 2 * AGREE), (name, "eager and sdpa differ by", sdpa)
        f64 = 0.0
        if not long:
            l3, c3 = forward(load(path, entry, "eager").double(), ids)
            f64 = max(worst([logits], [l3]), worst(keys, keys_of(c3)))
            assert f64 < 1e-4, (name, "f32 and f64 differ by", f64)
    rows = list(range(T - LONG_ROWS, T)) if long else sorted(set(entry.get("rows", range(T))))
    out = {"logits": logits[[r - (T - len(logits)) for r in rows]].contiguous(), "logit_rows": torch.tensor(rows, dtype=torch.int32),
           "ids": torch.tensor(ids[-LONG_TAIL:] if long else ids, dtype=torch.int32), "greedy": torch.tensor(greedy, dtype=torch.int32),
           "margins": torch.tensor(margins, dtype=torch.float32)}
    out |= {f"keys.{i}": k.float().contiguous() for i, k in enumerate(keys)}
    out |= {f"inv_freq.{k}": v.float().contiguous() for k, v in freqs.items()}
    save_file(out, os.path.join(path, "golden.safetensors"))
    for f in os.listdir(path):
        os.chmod(os.path.join(path, f), 0o644)
    size = sum(os.path.getsize(os.path.join(path, f)) for f in os.listdir(path))
    line = (f"{name:20} T {T:5} logits std {float(logits.std()):.2f}  keys max {max(float(k.abs().max()) for k in keys):5.2f}  margin min {min(margins):.4f}  {len(set(greedy)):2} kinds  "
          f"sdpa {sdpa:.1e}  f64 {f64:.1e}")
    entry_out = {"dir": name, "family": entry["family"], "dtype": entry["dtype"], "T": T, "rows": len(rows), "stop_ids": stop, "n_greedy": len(greedy),
                 "min_margin": round(min(margins), 6), "kinds": len(set(greedy)), "sdpa": sdpa, "line": line, "layers": config["num_hidden_layers"], "vocab": V, "notes": entry["notes"]}
    if long:
        entry_out |= {"ids_from": "lcg", "first_key_position": T - LONG_TAIL}
    return entry_out, size


README = """# Tiny models and what the reference computes with them

Made by `make golden` (`tools/golden.py`, seed {seed}) with torch {torch} and transformers {transformers} on {cap}. Random weights; every
directory is a model in plain Hugging Face layout. `index.json` lists them.

Each `golden.safetensors` holds, in f32 unless said otherwise:

| tensor | shape | what |
|---|---|---|
| `ids` | [T] i32 | the prompt (long runs: its last {tail} ids) |
| `logit_rows`, `logits` | [N] i32, [N, V] | which rows of the prompt, their logits |
| `keys.I` | [K, T, E] | keys of layer I after RoPE, all positions, sliding layers too (long runs: the last {tail} positions) |
| `greedy`, `margins` | [n] i32, [n] | greedy tokens after the prompt; best minus second best logit at each. Stop ids (`stop_ids` in the index: the union of the eos ids in config.json and generation_config.json) are never taken, as with `--ignore-eos` |
| `inv_freq.full`, `inv_freq.sliding` | [E/2] | the reference's inverse frequencies, scaling included (dynamic: those of short texts) |

The reference runs in f32 arithmetic on the stored weights: loaded with `dtype=torch.float32`, eager attention, Gemma's embedding scale set
to sqrt(D) rounded to the checkpoint's dtype. Each run was confirmed by sdpa attention (within {agree}; long runs 1e-4) and by the same
weights in float64 arithmetic (within 1e-4).

Long runs (`"ids_from": "lcg"`) have {long} tokens that are not stored: x starts at 1; for each id x = (x * 1664525 + 1013904223) mod 2^32
and id = (x >> 16) mod (V - 8). The reference takes them in chunks of {chunk}; logits are kept for the last {rows} rows.
"""


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("out")
    ap.add_argument("--only", action="append",
                    help="just this model: its row of the index, too; the README stays as it is")
    args = ap.parse_args()
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    index, sizes = [], {}
    os.makedirs(args.out, exist_ok=True)
    for name, entry in MODELS.items():
        if args.only and name not in args.only:
            continue
        path = os.path.join(args.out, name)
        for salt in range(100):         # the first weights whose greedy text does not repeat itself and whose margins exceed rounding errors
            shutil.rmtree(path, ignore_errors=True)
            os.makedirs(path)
            write_model(path, name, entry, salt)
            row, size = record(path, name, entry)
            if row["min_margin"] > 2e-3 and row["kinds"] >= 5 and (row["sdpa"] < AGREE or entry.get("long")):
                break
        print(row["line"], f"{size // 1024} KB, salt {salt}", flush=True)
        del row["line"], row["sdpa"]
        index.append(row)
        sizes[name] = size
    large = {k: v for k, v in sizes.items() if v > 200 * 1024}
    print(f"{len(sizes)} models, {sum(sizes.values()) / 1e6:.2f} MB")
    assert not large and sum(sizes.values()) <= 4e6, large
    if args.only:
        with open(os.path.join(args.out, "index.json")) as f:
            rows = {row["dir"]: row for row in json.load(f) + index}
        index = [rows[name] for name in MODELS if name in rows]
    write_json(os.path.join(args.out, "index.json"), index)
    if not args.only:
        with open(os.path.join(args.out, "README.md"), "w") as f:
            f.write(README.format(seed=SEED, torch=torch.__version__, transformers=transformers.__version__, cap=torch.backends.cpu.get_cpu_capability(),
                                  tail=LONG_TAIL, agree=AGREE, long=LONG_T, chunk=LONG_CHUNK, rows=LONG_ROWS))


if __name__ == "__main__":
    main()
