#!/usr/bin/env python3
"""Writes models with the shapes of published ones and random weights: they have the speed and memory use of the published model, but produce
no meaningful text.

usage: shape.py SHAPE DIR          write a Hugging Face directory (bf16)
       shape.py --gguf DIR FILE    write the same weights for llama.cpp (pip install gguf)

SHAPE: qwen3-0.6b, qwen3-4b, qwen3-8b, gemma3-1b, llama-3.2-1b, qwen3-0.6b-4-layers (4 of the 28 layers), qwen3-30b-a3b-4-layers (4 of the 48),
qwen3.5-0.8b, qwen3.5-4b; with -f16 or -f32 after the name the weights are f16 or f32. With -counts after it the token after id t is t + 1, whatever
precedes it (bench/lookup.py): a model whose answers are known, with the speed of the others. Needs numpy."""
import json
import os
import struct
import sys

import numpy as np

COMMON = dict(torch_dtype="bfloat16", bos_token_id=None)
HYBRID = dict(model_type="qwen3_5_text", head_dim=256, full_attention_interval=4, linear_conv_kernel_dim=4, linear_key_head_dim=128,
              linear_value_head_dim=128, linear_num_key_heads=16, vocab_size=248320, rms_norm_eps=1e-6, max_position_embeddings=32768, hidden_act="silu",
              rope_parameters=dict(rope_type="default", rope_theta=1e7, partial_rotary_factor=0.25))
SHAPES = {
    "qwen3-0.6b": dict(model_type="qwen3", hidden_size=1024, num_hidden_layers=28, intermediate_size=3072, num_attention_heads=16, num_key_value_heads=8,
                       head_dim=128, vocab_size=151936, rms_norm_eps=1e-6, rope_theta=1e6, max_position_embeddings=40960, hidden_act="silu"),
    "qwen3-4b": dict(model_type="qwen3", hidden_size=2560, num_hidden_layers=36, intermediate_size=9728, num_attention_heads=32, num_key_value_heads=8,
                     head_dim=128, vocab_size=151936, rms_norm_eps=1e-6, rope_theta=1e6, max_position_embeddings=40960, hidden_act="silu"),
    "qwen3-8b": dict(model_type="qwen3", hidden_size=4096, num_hidden_layers=36, intermediate_size=12288, num_attention_heads=32, num_key_value_heads=8,
                     head_dim=128, vocab_size=151936, rms_norm_eps=1e-6, rope_theta=1e6, max_position_embeddings=40960, hidden_act="silu"),
    "qwen3-30b-a3b-4-layers": dict(model_type="qwen3_moe", hidden_size=2048, num_hidden_layers=4, intermediate_size=6144, moe_intermediate_size=768,
                                   num_experts=128, num_experts_per_tok=8, norm_topk_prob=True, decoder_sparse_step=1, mlp_only_layers=[],
                                   num_attention_heads=32, num_key_value_heads=4, head_dim=128, vocab_size=151936, rms_norm_eps=1e-6, rope_theta=1e6,
                                   max_position_embeddings=40960, hidden_act="silu"),
    "gemma3-1b": dict(model_type="gemma3_text", hidden_size=1152, num_hidden_layers=26, intermediate_size=6912, num_attention_heads=4,
                      num_key_value_heads=1, head_dim=256, vocab_size=262144, rms_norm_eps=1e-6, rope_theta=1e6, rope_local_base_freq=1e4,
                      sliding_window=512, sliding_window_pattern=6, query_pre_attn_scalar=256, max_position_embeddings=32768,
                      hidden_activation="gelu_pytorch_tanh"),
    "llama-3.2-1b": dict(model_type="llama", hidden_size=2048, num_hidden_layers=16, intermediate_size=8192, num_attention_heads=32, num_key_value_heads=8,
                         head_dim=64, vocab_size=128256, rms_norm_eps=1e-5, rope_theta=5e5, max_position_embeddings=131072, hidden_act="silu",
                         rope_scaling=dict(rope_type="llama3", factor=32.0, low_freq_factor=1.0, high_freq_factor=4.0,
                                           original_max_position_embeddings=8192)),
    "qwen3.5-0.8b": dict(hidden_size=1024, num_hidden_layers=24, intermediate_size=3584, num_attention_heads=8, num_key_value_heads=2,
                         linear_num_value_heads=16, **HYBRID),
    "qwen3.5-4b": dict(hidden_size=2560, num_hidden_layers=32, intermediate_size=9216, num_attention_heads=16, num_key_value_heads=4,
                       linear_num_value_heads=32, **HYBRID),
}
SHAPES["qwen3-0.6b-4-layers"] = dict(SHAPES["qwen3-0.6b"], num_hidden_layers=4)
STORED = {"": ("BF16", "bfloat16", 2), "-f16": ("F16", "float16", 2), "-f32": ("F32", "float32", 4)}  # by the end of the name


def mixer(c, i):
    """Returns (name, shape) of the tensors of the attention of layer i, or of its recurrent mixer in its place."""
    d, e = c["hidden_size"], c["head_dim"]
    q, k = c["num_attention_heads"] * e, c["num_key_value_heads"] * e
    every = c.get("full_attention_interval")
    if every and (i + 1) % every:
        hv, keys = c["linear_num_value_heads"], c["linear_num_key_heads"] * c["linear_key_head_dim"]
        values = hv * c["linear_value_head_dim"]
        shapes = [("A_log", (hv,)), ("conv1d.weight", (2 * keys + values, 1, c["linear_conv_kernel_dim"])), ("dt_bias", (hv,)), ("in_proj_a.weight", (hv, d)),
                  ("in_proj_b.weight", (hv, d)), ("in_proj_qkv.weight", (2 * keys + values, d)), ("in_proj_z.weight", (values, d)),
                  ("norm.weight", (c["linear_value_head_dim"],)), ("out_proj.weight", (d, values))]
        return [(f"linear_attn.{n}", s) for n, s in shapes]
    shapes = [("q_proj", (2 * q if every else q, d)), ("k_proj", (k, d)), ("v_proj", (k, d)), ("o_proj", (d, q))]
    if c["model_type"] != "llama":
        shapes += [("q_norm", (e,)), ("k_norm", (e,))]
    return [(f"self_attn.{n}.weight", s) for n, s in shapes]


def tensors(c):
    """Returns (name, shape) of every tensor, in the order of the file."""
    d, f = c["hidden_size"], c["intermediate_size"]
    out = [("model.embed_tokens.weight", (c["vocab_size"], d)), ("model.norm.weight", (d,))]
    for i in range(c["num_hidden_layers"]):
        layer = [("input_layernorm", (d,)), ("post_attention_layernorm", (d,))]
        if "num_experts" in c:
            w = c["moe_intermediate_size"]
            layer += [("mlp.gate", (c["num_experts"], d))]
            for x in range(c["num_experts"]):
                layer += [(f"mlp.experts.{x}.gate_proj", (w, d)), (f"mlp.experts.{x}.up_proj", (w, d)), (f"mlp.experts.{x}.down_proj", (d, w))]
        else:
            layer += [("mlp.gate_proj", (f, d)), ("mlp.up_proj", (f, d)), ("mlp.down_proj", (d, f))]
        if c["model_type"] == "gemma3_text":
            layer += [("pre_feedforward_layernorm", (d,)), ("post_feedforward_layernorm", (d,))]
        out += [(f"model.layers.{i}.{n}.weight", s) for n, s in layer] + [(f"model.layers.{i}.{n}", s) for n, s in mixer(c, i)]
    return out


def bf16(x):
    u = x.astype("<f4").view(np.uint32)
    return ((u + 0x7FFF + ((u >> 16) & 1)) >> 16).astype("<u2")


def blocks(name, shape, c, rng, numbers, stored):
    """Yields the weights of one tensor, as `stored` makes them of numbers: parts of one array of random numbers, from random offsets."""
    n = int(np.prod(shape))
    if len(shape) == 1:
        offset = c["model_type"] in ("gemma3_text", "qwen3_5_text") and name.endswith("norm.weight") and "linear_attn" not in name
        yield stored(np.full(n, 0.0 if offset else 1.0, np.float32))
        return
    while n:
        at = int(rng.integers(len(numbers)))
        k = min(n, len(numbers) - at)
        yield numbers[at:at + k]
        n -= k


def counting(named):
    """Yields the blocks of all tensors, given as (name, shape, blocks), changed so that the model counts: what the layers add is small next to the
    embedding of a token, and row i of the head is the embedding of i - 1."""
    for name, shape, parts in named:
        if name == "model.embed_tokens.weight":
            table = np.concatenate(list(parts))
            yield table
        elif name == "lm_head.weight":
            yield np.roll(table, shape[1])
        elif name.endswith(("o_proj.weight", "down_proj.weight", "out_proj.weight")):
            for b in parts:  # bf16, times 2^-14
                yield np.where((b & 0x7F80) > 14 << 7, b - (14 << 7), b & 0x8000).astype("<u2")
        else:
            yield from parts


def byte_letters():
    """Returns the byte-level alphabet of GPT-2: a printable character for each byte."""
    keep = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = [b for b in range(256) if b not in keep]
    return {**{b: chr(b) for b in keep}, **{b: chr(256 + i) for i, b in enumerate(rest)}}


def write_hf(shape, out):
    counts = shape.endswith("-counts")
    shape = shape.removesuffix("-counts")
    end = next((e for e in STORED if e and shape.endswith(e)), "")
    if counts and end:
        sys.exit("shape.py: a model that counts has bf16 weights")
    dtype, name_of_dtype, width = STORED[end]
    stored = {"": bf16, "-f16": lambda x: x.astype("<f2"), "-f32": lambda x: x.astype("<f4")}[end]
    c = {**COMMON, **SHAPES[shape.removesuffix(end)], "torch_dtype": name_of_dtype}
    c["tie_word_embeddings"] = not counts
    c["eos_token_id"] = c["vocab_size"] - 1
    os.makedirs(out, exist_ok=True)
    head, at = {}, 0
    listed = tensors(c) + ([("lm_head.weight", (c["vocab_size"], c["hidden_size"]))] if counts else [])
    for name, s in listed:
        size = int(np.prod(s)) * width
        head[name] = dict(dtype=dtype, shape=list(s), data_offsets=[at, at + size])
        at += size
    text = json.dumps(head).encode()
    text += b" " * (-len(text) % 8)
    rng = np.random.default_rng(1)
    numbers = stored(rng.standard_normal(1 << 24, dtype=np.float32) * np.float32(0.02))
    with open(f"{out}/model.safetensors", "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        named = ((name, s, blocks(name, s, c, rng, numbers, stored)) for name, s in listed)
        for b in counting(named) if counts else (b for _, _, parts in named for b in parts):
            f.write(b.tobytes())
    json.dump(c, open(f"{out}/config.json", "w"), indent=1)
    vocab = {ch: b for b, ch in byte_letters().items()}
    for i in range(len(vocab), c["vocab_size"]):
        vocab[f"<|{i}|>"] = i
    level = dict(type="ByteLevel", add_prefix_space=False, trim_offsets=True, use_regex=True)
    json.dump(dict(version="1.0", added_tokens=[], normalizer=None, pre_tokenizer=level, post_processor=None, decoder=level,
                   model=dict(type="BPE", vocab=vocab, merges=[])), open(f"{out}/tokenizer.json", "w"))
    print(f"{out}: {at / 1e9:.2f} GB")


def write_gguf(src, out):
    import gguf

    c = json.load(open(f"{src}/config.json"))
    arch = {"qwen3": "qwen3", "gemma3_text": "gemma3", "llama": "llama"}[c["model_type"]]
    w = gguf.GGUFWriter(out, arch)
    w.add_context_length(c["max_position_embeddings"])
    w.add_embedding_length(c["hidden_size"])
    w.add_block_count(c["num_hidden_layers"])
    w.add_feed_forward_length(c["intermediate_size"])
    w.add_head_count(c["num_attention_heads"])
    w.add_head_count_kv(c["num_key_value_heads"])
    w.add_key_length(c["head_dim"])
    w.add_value_length(c["head_dim"])
    w.add_rope_freq_base(c["rope_theta"])
    w.add_layer_norm_rms_eps(c["rms_norm_eps"])
    w.add_vocab_size(c["vocab_size"])
    if "sliding_window" in c:
        w.add_sliding_window(c["sliding_window"])
    letters = byte_letters()
    tokens = [letters[b] for b in range(256)] + [f"<|{i}|>" for i in range(256, c["vocab_size"])]
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre("qwen2" if arch == "qwen3" else "llama-bpe")
    w.add_token_list(tokens)
    w.add_token_types([1] * len(tokens))
    w.add_token_merges(["a b"])
    w.add_eos_token_id(c["vocab_size"] - 1)
    w.add_bos_token_id(c["vocab_size"] - 2)
    archs = {name: key for key, name in gguf.MODEL_ARCH_NAMES.items()}
    names = gguf.get_tensor_name_map(archs[arch], c["num_hidden_layers"])
    data = np.memmap(f"{src}/model.safetensors", dtype=np.uint8, mode="r")
    n = struct.unpack("<Q", data[:8].tobytes())[0]
    head = json.loads(data[8:8 + n].tobytes())
    for name, t in head.items():
        raw = data[8 + n + t["data_offsets"][0]:8 + n + t["data_offsets"][1]].view("<u2").reshape(t["shape"])
        to = names.get_name(name, try_suffixes=(".weight", ".bias"))
        if len(t["shape"]) == 1:
            f32 = (raw.astype(np.uint32) << 16).view(np.float32) + (1 if arch == "gemma3" else 0)
            w.add_tensor(to, f32.astype(np.float32))
        else:
            w.add_tensor(to, raw.view(np.uint8).reshape(t["shape"][0], -1), raw_dtype=gguf.GGMLQuantizationType.BF16)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    print(out)


if len(sys.argv) == 4 and sys.argv[1] == "--gguf":
    write_gguf(sys.argv[2], sys.argv[3])
elif len(sys.argv) == 3 and sys.argv[1].removesuffix("-counts").removesuffix("-f16").removesuffix("-f32") in SHAPES:
    write_hf(sys.argv[1], sys.argv[2])
else:
    sys.exit(__doc__)
