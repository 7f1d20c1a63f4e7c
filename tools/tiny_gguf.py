#!/usr/bin/env python3
"""Writes the bundled model as a GGUF file: matrices in bf16, as they are stored, norms in f32.

usage: tools/tiny_gguf.py FILE.gguf"""
import json
import pathlib
import re
import struct
import sys

TINY = pathlib.Path(__file__).resolve().parent.parent / "models/tiny"
NAMES = [("model.embed_tokens", "token_embd"), ("model.norm", "output_norm"), (r"model\.layers", "blk"), ("input_layernorm", "attn_norm"), ("post_attention_layernorm", "ffn_norm"),
         (r"self_attn\.q_norm", "attn_q_norm"), (r"self_attn\.k_norm", "attn_k_norm"), (r"self_attn\.([qkv])_proj", r"attn_\1"), (r"self_attn\.o_proj", "attn_output"),
         (r"mlp\.(gate|up|down)_proj", r"ffn_\1")]
ALIGN, F32, BF16 = 32, 0, 30


def text(s):
    raw = s.encode()
    return struct.pack("<Q", len(raw)) + raw


def value(v):
    """A metadata value with its type: u32, f32, string, array of strings or of i32."""
    if isinstance(v, str):
        return struct.pack("<I", 8) + text(v)
    if isinstance(v, float):
        return struct.pack("<If", 6, v)
    if isinstance(v, int):
        return struct.pack("<II", 4, v)
    if isinstance(v[0], str):
        return struct.pack("<IIQ", 9, 8, len(v)) + b"".join(map(text, v))
    return struct.pack("<IIQ", 9, 5, len(v)) + struct.pack(f"<{len(v)}i", *v)


def metadata():
    c = json.loads((TINY / "config.json").read_text())
    t = json.loads((TINY / "tokenizer.json").read_text())
    ids = dict(t["model"]["vocab"], **{a["content"]: a["id"] for a in t["added_tokens"]})
    special = {a["id"] for a in t["added_tokens"]}
    tokens = [name for name, _ in sorted(ids.items(), key=lambda item: item[1])]
    merges = [m if isinstance(m, str) else " ".join(m) for m in t["model"]["merges"]]
    template = json.loads((TINY / "tokenizer_config.json").read_text())["chat_template"]
    return {"general.architecture": "qwen3", "general.name": "tiny", "general.alignment": ALIGN, "qwen3.block_count": c["num_hidden_layers"],
            "qwen3.context_length": c["max_position_embeddings"], "qwen3.embedding_length": c["hidden_size"], "qwen3.feed_forward_length": c["intermediate_size"],
            "qwen3.attention.head_count": c["num_attention_heads"], "qwen3.attention.head_count_kv": c["num_key_value_heads"], "qwen3.attention.key_length": c["head_dim"],
            "qwen3.attention.value_length": c["head_dim"], "qwen3.attention.layer_norm_rms_epsilon": c["rms_norm_eps"], "qwen3.rope.freq_base": c["rope_parameters"]["rope_theta"],
            "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "qwen2", "tokenizer.ggml.tokens": tokens, "tokenizer.ggml.merges": merges,
            "tokenizer.ggml.token_type": [3 if i in special else 1 for i in range(len(tokens))], "tokenizer.ggml.eos_token_id": c["eos_token_id"], "tokenizer.chat_template": template}


def tensors():
    """(name, shape with the fastest axis first, type, bytes) of each."""
    raw = (TINY / "model.safetensors").read_bytes()
    n = struct.unpack("<Q", raw[:8])[0]
    for name, t in sorted(json.loads(raw[8:8 + n]).items()):
        if name == "__metadata__":
            continue
        begin, end = t["data_offsets"]
        data = raw[8 + n + begin:8 + n + end]
        for old, new in NAMES:
            name = re.sub(old, new, name)
        if len(t["shape"]) == 1:
            data = b"".join(b"\0\0" + data[i:i + 2] for i in range(0, len(data), 2))
        yield name, t["shape"][::-1], BF16 if len(t["shape"]) == 2 else F32, data


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    keys, all_tensors = metadata(), list(tensors())
    head = struct.pack("<IIQQ", 0x46554747, 3, len(all_tensors), len(keys)) + b"".join(text(k) + value(v) for k, v in keys.items())
    body = b""
    for name, shape, kind, data in all_tensors:
        head += text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, len(body))
        body += data + bytes(-len(data) % ALIGN)
    pathlib.Path(sys.argv[1]).write_bytes(head + bytes(-len(head) % ALIGN) + body)


if __name__ == "__main__":
    main()
