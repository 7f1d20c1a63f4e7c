#!/usr/bin/env python3
"""Makes tiny random f32 models for `make check-mlx`, in the shapes that mlx-lm accepts, and an adapter of mlx-lm with the models that it amounts to.

usage: python tools/mlx_models.py DIR      with numpy and mlx; reads tests/golden/qwen2-f32/tokenizer.json

DIR/models/NAME   a model to compare
DIR/adapter/base, DIR/adapter/lora, DIR/adapter/merged-1, DIR/adapter/merged-0.5
"""
import json
import os
import shutil
import sys

import mlx.core as mx
import numpy as np

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
TOKENIZER = os.path.join(ROOT, "tests/golden/qwen2-f32/tokenizer.json")
VOCAB, WIDTH, FFN, HEADS, KV = 266, 64, 80, 4, 2  # the root of 64 is exact in bf16, to which mlx-lm rounds the scale of Gemma's embedding


def head_of(kind):
    return WIDTH // HEADS if kind == "qwen2" else 16  # mlx-lm's Qwen2 has no head_dim


def config_of(kind, layers, tied, **more):
    return dict(architectures=["AnyForCausalLM"], model_type=kind, hidden_size=WIDTH, intermediate_size=FFN, num_attention_heads=HEADS,
                num_key_value_heads=KV, head_dim=head_of(kind), num_hidden_layers=layers, vocab_size=VOCAB, max_position_embeddings=512, rms_norm_eps=1e-6,
                rope_theta=10000.0, tie_word_embeddings=tied, torch_dtype="float32", bos_token_id=256, eos_token_id=257, **more)


def weights_of(config, seed):
    rng, out, kind, head = np.random.default_rng(seed), {}, config["model_type"], config["head_dim"]
    gemma = kind.startswith("gemma3")

    def matrix(name, rows, cols):
        out[name + ".weight"] = rng.normal(0, 1.5 / np.sqrt(cols), (rows, cols)).astype(np.float32)

    def norm(name, n):
        out[name + ".weight"] = (rng.normal(0, 0.2, n) + (0 if gemma else 1)).astype(np.float32)

    out["model.embed_tokens.weight"] = rng.normal(0, 0.15 if gemma else 1, (VOCAB, WIDTH)).astype(np.float32)  # Gemma multiplies by the root of the width
    for i in range(config["num_hidden_layers"]):
        at = f"model.layers.{i}."
        for name, rows in (("q_proj", HEADS * head), ("k_proj", KV * head), ("v_proj", KV * head)):
            matrix(at + "self_attn." + name, rows, WIDTH)
            if kind == "qwen2":
                out[at + f"self_attn.{name}.bias"] = rng.normal(0, 0.3, rows).astype(np.float32)
        matrix(at + "self_attn.o_proj", WIDTH, HEADS * head)
        for name, rows, cols in (("gate_proj", FFN, WIDTH), ("up_proj", FFN, WIDTH), ("down_proj", WIDTH, FFN)):
            matrix(at + "mlp." + name, rows, cols)
        for name in ["input_layernorm", "post_attention_layernorm"] + (["pre_feedforward_layernorm", "post_feedforward_layernorm"] if gemma else []):
            norm(at + name, WIDTH)
        if gemma or kind == "qwen3":
            norm(at + "self_attn.q_norm", head)
            norm(at + "self_attn.k_norm", head)
    norm("model.norm", WIDTH)
    if not config["tie_word_embeddings"]:
        matrix("lm_head", VOCAB, WIDTH)
    return out


def write(path, config, weights):
    os.makedirs(path, exist_ok=True)
    with open(os.path.join(path, "config.json"), "w") as f:
        json.dump(config, f, indent=1)
    mx.save_safetensors(os.path.join(path, "model.safetensors"), {k: mx.array(v) for k, v in weights.items()}, {"format": "pt"})
    shutil.copy(TOKENIZER, path)
    names = {token["id"]: token["content"] for token in json.load(open(TOKENIZER))["added_tokens"]}
    with open(os.path.join(path, "tokenizer_config.json"), "w") as f:  # else transformers adds the special tokens of the family's own tokenizer
        json.dump({"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": names[257], "clean_up_tokenization_spaces": False}, f)


def write_adapter(root, config, weights):
    rng, lora, rank, scale = np.random.default_rng(9), {}, 4, 6.0
    merged = {1: dict(weights), 0.5: dict(weights)}
    for i in range(config["num_hidden_layers"]):
        for module in ("self_attn.q_proj", "mlp.down_proj"):
            name = f"model.layers.{i}.{module}"
            w = weights[name + ".weight"]
            a, b = rng.normal(0, 0.3, (w.shape[1], rank)), rng.normal(0, 0.3, (rank, w.shape[0]))
            lora[name + ".lora_a"], lora[name + ".lora_b"] = a.astype(np.float32), b.astype(np.float32)
            for factor, to in merged.items():
                to[name + ".weight"] = (w.astype(np.float64) + factor * scale * (a @ b).T).astype(np.float32)
    write(os.path.join(root, "base"), config, weights)
    for factor, to in merged.items():
        write(os.path.join(root, f"merged-{factor}"), config, to)
    for name, tensors in (("lora", lora), ("lora-elsewhere", {k.replace("q_proj", "z_proj"): v for k, v in lora.items()})):
        path = os.path.join(root, name)
        os.makedirs(path, exist_ok=True)
        mx.save_safetensors(os.path.join(path, "adapters.safetensors"), {k: mx.array(v) for k, v in tensors.items()})
        with open(os.path.join(path, "adapter_config.json"), "w") as f:
            json.dump({"fine_tune_type": "lora", "num_layers": -1,
                       "lora_parameters": {"rank": rank, "scale": scale, "dropout": 0.0, "keys": ["self_attn.q_proj", "mlp.down_proj"]}}, f)


def main():
    out = sys.argv[1]
    gemma = dict(sliding_window=8, sliding_window_pattern=6, rope_local_base_freq=5000.0, query_pre_attn_scalar=16, hidden_activation="gelu_pytorch_tanh",
                 attn_logit_softcapping=None, final_logit_softcapping=None)
    plain = dict(hidden_act="silu", attention_bias=False)
    models = {"llama": config_of("llama", 3, False, mlp_bias=False, **plain), "qwen2": config_of("qwen2", 3, True, hidden_act="silu", use_sliding_window=False),
              "qwen3": config_of("qwen3", 3, True, **plain), "qwen3-untied": config_of("qwen3", 2, False, **plain),
              "gemma3": config_of("gemma3_text", 7, True, attention_bias=False, **gemma)}
    for seed, (name, config) in enumerate(models.items()):
        write(os.path.join(out, "models", name), config, weights_of(config, seed))
    write_adapter(os.path.join(out, "adapter"), models["qwen3"], weights_of(models["qwen3"], 20))


main()
