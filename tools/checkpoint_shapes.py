#!/usr/bin/env python3
"""Writes tests/golden/checkpoints: of published checkpoints the configuration and the names and shapes of all tensors, from models on the meta
device.

usage: tools/checkpoint_shapes.py OUT [--only NAME]...      (OUT is tests/golden/checkpoints; needs torch and transformers)

A file NAME.txt has the configuration in its first line. Each further line is a tensor, or one of each of several layers and experts: its type, its
dimensions and its name, in which `{0-31}` stands for a number of layers or experts and `{0,4-6}` for a list of them. The sum of all numbers is
compared with the published one; a block of mxfp4 (`_blocks`) has two in a byte.
"""
import argparse
import json
import os
import re

import numpy as np
import torch
import transformers
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText

BUFFERS = ("layer_scalar", "expert_bias", "act_fn.beta", "act_fn.eps")      # that files have
TYPES = {torch.bfloat16: "BF16", torch.float32: "F32", torch.float16: "F16"}


def dense(model_type, D, F, L, H, K, V, **more):
    return dict(model_type=model_type, hidden_size=D, intermediate_size=F, num_hidden_layers=L, num_attention_heads=H, num_key_value_heads=K,
                vocab_size=V, dtype="bfloat16") | more


def llama_like(model_type, theta, **more):
    return dict(rope_theta=theta, rms_norm_eps=1e-5, hidden_act="silu") | more


def mistral(D, F, L, H, K, V, theta, **more):
    return dense("mistral", D, F, L, H, K, V, rope_theta=theta, rms_norm_eps=1e-5, hidden_act="silu", head_dim=128, tie_word_embeddings=False) | more


def ministral3(D, F, L, tied):
    rope = dict(rope_type="yarn", rope_theta=1e6, factor=16.0, original_max_position_embeddings=16384, beta_fast=32.0, beta_slow=1.0, mscale=1.0,
                mscale_all_dim=1.0, llama_4_scaling_beta=0.1)
    text = dense("ministral3", D, F, L, 32, 8, 131072, head_dim=128, max_position_embeddings=262144, rms_norm_eps=1e-5, hidden_act="silu",
                 rope_parameters=rope, sliding_window=None, tie_word_embeddings=tied)
    return mistral3(text, tied)


def mistral3(text, tied):
    vision = dict(model_type="pixtral", hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=2, image_size=28, patch_size=14,
                  head_dim=32, hidden_act="silu", rope_parameters=dict(rope_type="default", rope_theta=10000.0))
    return dict(model_type="mistral3", text_config=text, vision_config=vision, image_token_index=10, spatial_merge_size=2, tie_word_embeddings=tied,
                projector_hidden_act="gelu", dtype="bfloat16")


def granite(D, F, L, H, V, tied, **scalars):
    return dense("granite", D, F, L, H, 8, V, rms_norm_eps=1e-5, hidden_act="silu", rope_theta=1e7, max_position_embeddings=131072, attention_bias=False,
                 mlp_bias=False, tie_word_embeddings=tied) | scalars


def olmo2(D, F, L, H, K):
    return dense("olmo2", D, F, L, H, K, 100352, rms_norm_eps=1e-6, rope_theta=500000, max_position_embeddings=4096, attention_bias=False,
                 hidden_act="silu", tie_word_embeddings=False)


def olmo3(D, F, L, H, K):
    return dense("olmo3", D, F, L, H, K, 100278, rms_norm_eps=1e-6, rope_theta=500000, max_position_embeddings=65536, attention_bias=False,
                 hidden_act="silu", sliding_window=4096, tie_word_embeddings=False, rope_scaling=dict(
                     rope_type="yarn", factor=8.0, original_max_position_embeddings=8192, attention_factor=1.2079441541679836, beta_fast=32.0, beta_slow=1.0))


def phi(D, F, L, H, K, V, **more):
    return dense("phi3", D, F, L, H, K, V, rms_norm_eps=1e-5, hidden_act="silu", attention_bias=False, tie_word_embeddings=False) | more


def longrope(n):
    return dict(type="longrope", short_factor=[1.0] * n, long_factor=[1.0 + i for i in range(n)])


def gemma2(D, F, L, H, K, E, scalar):
    return dense("gemma2", D, F, L, H, K, 256000, head_dim=E, query_pre_attn_scalar=scalar, hidden_act="gelu_pytorch_tanh", rms_norm_eps=1e-6, rope_theta=1e4,
                 hidden_activation="gelu_pytorch_tanh", attn_logit_softcapping=50.0, final_logit_softcapping=30.0, sliding_window=4096,
                 max_position_embeddings=8192, attention_bias=False)


def gemma4(model_type, D, F, L, H, K, period, window, **more):
    rope = {"sliding_attention": dict(rope_type="default", rope_theta=10000.0),
            "full_attention": dict(rope_type="proportional", rope_theta=1000000.0, partial_rotary_factor=0.25)}
    kinds = ["full_attention" if (i + 1) % period == 0 else "sliding_attention" for i in range(L)]
    return dense(model_type, D, F, L, H, K, 262144, head_dim=256, global_head_dim=512, sliding_window=window, layer_types=kinds, rope_parameters=rope,
                 max_position_embeddings=131072, rms_norm_eps=1e-6, hidden_activation="gelu_pytorch_tanh", final_logit_softcapping=30.0,
                 attention_bias=False, tie_word_embeddings=True) | more


def gemma4_wrapper(*args, **more):
    return dict(model_type="gemma4", text_config=gemma4("gemma4_text", *args, **more), tie_word_embeddings=True, image_token_id=258880, dtype="bfloat16")


def qwen3_vl(D, F, L, H, tied):
    text = dense("qwen3_vl_text", D, F, L, H, 8, 151936, head_dim=128, rms_norm_eps=1e-6, rope_theta=5000000, max_position_embeddings=262144,
                 hidden_act="silu", attention_bias=False, rope_scaling=dict(mrope_interleaved=True, mrope_section=[24, 20, 20], rope_type="default"),
                 tie_word_embeddings=tied)
    vision = dict(depth=1, hidden_size=64, intermediate_size=64, num_heads=2, patch_size=16, out_hidden_size=D, deepstack_visual_indexes=[0],
                  num_position_embeddings=16)
    return dict(model_type="qwen3_vl", text_config=text, vision_config=vision, image_token_id=151655, video_token_id=151656, vision_start_token_id=151652,
                vision_end_token_id=151653, tie_word_embeddings=tied)


SOFT = dict(rms_norm_eps=1e-5, hidden_act="silu")
NONE = dict(hidden_size_per_layer_input=0)
GRANITE42 = dict(embedding_multiplier=1.0, residual_multiplier=1.0, logits_scaling=1.0)
# name -> configuration as the makers write it, and billions of numbers of the text model as they are published (None: with towers only)
CHECKPOINTS = {
    "mistral-7b-v0.3": (mistral(4096, 14336, 32, 32, 8, 32768, 1e6, sliding_window=None, max_position_embeddings=32768), 7.248),
    "mistral-nemo": (mistral(5120, 14336, 40, 32, 8, 131072, 1e6, sliding_window=None, max_position_embeddings=131072), 12.25),
    "mistral-small-3.2": (mistral3(mistral(5120, 32768, 40, 32, 8, 131072, 1e9, sliding_window=None, max_position_embeddings=131072), False), 23.57),
    "ministral-3-3b": (ministral3(3072, 9216, 26, True), 3.43), "ministral-3-8b": (ministral3(4096, 14336, 34, False), 8.49),
    "ministral-3-14b": (ministral3(5120, 16384, 40, False), 13.51),
    "smollm3-3b": (dense("smollm3", 2048, 11008, 36, 16, 4, 128256, rms_norm_eps=1e-6, hidden_act="silu", rope_theta=5e6, max_position_embeddings=65536,
                         no_rope_layer_interval=4, no_rope_layers=[0 if (i + 1) % 4 == 0 else 1 for i in range(36)], use_sliding_window=False,
                         sliding_window=None, layer_types=["full_attention"] * 36, attention_bias=False, mlp_bias=False), 3.075),
    "granite-3.3-2b": (granite(2048, 8192, 40, 32, 49159, True, embedding_multiplier=12.0, attention_multiplier=0.015625, residual_multiplier=0.22,
                               logits_scaling=8.0), 2.53),
    "granite-3.3-8b": (granite(4096, 12800, 40, 32, 49159, True, embedding_multiplier=12.0, attention_multiplier=0.0078125, residual_multiplier=0.22,
                               logits_scaling=16.0), 8.17),
    "granite-4.2-3b": (granite(2560, 8192, 40, 40, 100352, False, attention_multiplier=0.015625, **GRANITE42), 3.66),
    "granite-4.2-8b": (granite(4096, 12800, 40, 32, 100352, False, attention_multiplier=0.0078125, **GRANITE42), 8.79),
    "granite-4.2-30b": (granite(4096, 32768, 64, 32, 100352, False, attention_multiplier=0.0078125, **GRANITE42), 29.28),
    "olmo-2-1b": (olmo2(2048, 8192, 16, 16, 16), 1.48), "olmo-2-7b": (olmo2(4096, 11008, 32, 32, 32), 7.30),
    "olmo-2-13b": (olmo2(5120, 13824, 40, 40, 40), 13.72), "olmo-2-32b": (olmo2(5120, 27648, 64, 40, 8), 32.23),
    "olmo-3-7b": (olmo3(4096, 11008, 32, 32, 32), 7.30), "olmo-3-32b": (olmo3(5120, 27648, 64, 40, 8), 32.23),
    "phi-3.5-mini": (phi(3072, 8192, 32, 32, 32, 32064, rope_theta=10000.0, max_position_embeddings=131072, original_max_position_embeddings=4096,
                         sliding_window=262144, rope_scaling=longrope(48)), 3.82),
    "phi-4": (phi(5120, 17920, 40, 40, 10, 100352, rope_theta=250000, max_position_embeddings=16384, original_max_position_embeddings=16384,
                  sliding_window=None, rope_scaling=None), 14.66),
    "phi-4-mini": (phi(3072, 8192, 32, 24, 8, 200064, rope_theta=10000.0, max_position_embeddings=131072, original_max_position_embeddings=4096,
                       sliding_window=262144, partial_rotary_factor=0.75, rope_scaling=longrope(48), tie_word_embeddings=True), 3.84),
    "gemma-2-2b": (gemma2(2304, 9216, 26, 8, 4, 256, 256), 2.61), "gemma-2-9b": (gemma2(3584, 14336, 42, 16, 8, 256, 256), 9.24),
    "gemma-2-27b": (gemma2(4608, 36864, 46, 32, 16, 128, 144), 27.23),
    "gemma-4-e2b": (gemma4_wrapper(1536, 6144, 35, 8, 1, 5, 512, hidden_size_per_layer_input=256, vocab_size_per_layer_input=262144,
                           num_kv_shared_layers=20, use_double_wide_mlp=True), None),
    "gemma-4-e4b": (gemma4_wrapper(2560, 10240, 42, 8, 2, 6, 512, hidden_size_per_layer_input=256, vocab_size_per_layer_input=262144,
                           num_kv_shared_layers=18), None),
    "gemma-4-12b": (gemma4("gemma4_unified_text", 3840, 15360, 48, 16, 8, 6, 1024, attention_k_eq_v=True, num_global_key_value_heads=1, **NONE), None),
    "gemma-4-31b": (gemma4_wrapper(5376, 21504, 60, 32, 16, 6, 1024, attention_k_eq_v=True, num_global_key_value_heads=4, **NONE), None),
    "seed-oss-36b": (dense("seed_oss", 5120, 27648, 64, 80, 8, 155136, head_dim=128, rms_norm_eps=1e-6, hidden_act="silu", attention_bias=True,
                           attention_out_bias=False, mlp_bias=False, rope_theta=1e7, rope_scaling=dict(rope_type="default"), max_position_embeddings=524288,
                           tie_word_embeddings=False), 36.15),
    "exaone-4.0-1.2b": (dense("exaone4", 2048, 4096, 30, 32, 8, 102400, head_dim=64, sliding_window=None, sliding_window_pattern=None,
                              layer_types=["full_attention"] * 30, tie_word_embeddings=True, rope_theta=1000000, max_position_embeddings=65536,
                              rope_scaling=dict(rope_type="llama3", factor=16.0, low_freq_factor=1.0, high_freq_factor=4.0,
                                                original_max_position_embeddings=8192), **SOFT), 1.28),
    "exaone-4.0-32b": (dense("exaone4", 5120, 27392, 64, 40, 8, 102400, head_dim=128, sliding_window=4096, sliding_window_pattern="LLLG",
                             layer_types=["full_attention" if (i + 1) % 4 == 0 else "sliding_attention" for i in range(64)], tie_word_embeddings=False,
                             rope_theta=1000000, max_position_embeddings=131072, **SOFT), 32.0),
    "hunyuan-0.5b": (dense("hunyuan_v1_dense", 1024, 3584, 24, 16, 8, 120818, head_dim=128, use_qk_norm=True, use_cla=False, cla_share_factor=2,
                           attention_bias=False, rope_theta=10000.0, max_position_embeddings=262144, tie_word_embeddings=True,
                           rope_scaling=dict(alpha=1000.0, beta_fast=32, beta_slow=1, factor=1.0, mscale=1.0, mscale_all_dim=1.0, type="dynamic"),
                           **SOFT), 0.54),
    "hunyuan-7b": (dense("hunyuan_v1_dense", 4096, 14336, 32, 32, 8, 128167, head_dim=128, use_qk_norm=True, use_cla=False, attention_bias=False,
                         rope_theta=10000.0, max_position_embeddings=262144, tie_word_embeddings=True,
                         rope_scaling=dict(alpha=1000.0, beta_fast=32, beta_slow=1, factor=1.0, mscale=1.0, mscale_all_dim=1.0, type="dynamic"),
                         **SOFT), 7.50),
    "ernie-4.5-0.3b": (dense("ernie4_5", 1024, 3072, 18, 16, 2, 103424, head_dim=128, use_bias=False, rope_theta=500000.0, max_position_embeddings=131072,
                             tie_word_embeddings=True, **SOFT), 0.361),
    "command-r7b": (dense("cohere2", 4096, 14336, 32, 32, 8, 256000, logit_scale=0.25, rope_theta=50000, layer_norm_eps=1e-5, hidden_act="silu",
                          sliding_window=4096, sliding_window_pattern=4, attention_bias=False, max_position_embeddings=8192), 8.03),
    "glm-4-9b": (dense("glm4", 4096, 13696, 40, 32, 2, 151552, head_dim=128, attention_bias=True, partial_rotary_factor=0.5, rope_theta=10000.0,
                       max_position_embeddings=32768, tie_word_embeddings=False, **SOFT), 9.40),
    "glm-4-32b": (dense("glm4", 6144, 23040, 61, 48, 2, 151552, head_dim=128, attention_bias=False, partial_rotary_factor=0.5, rope_theta=10000.0,
                        max_position_embeddings=32768, tie_word_embeddings=False, **SOFT), 32.57),
    "qwen3-vl-2b": (qwen3_vl(2048, 6144, 28, 16, True), 1.72), "qwen3-vl-4b": (qwen3_vl(2560, 9728, 36, 32, True), 4.02),
    "qwen3-vl-8b": (qwen3_vl(4096, 12288, 36, 32, False), 8.19),
}


def muse():
    text = dense("muse_glimmer_text", 6656, 19968, 52, 32, 2, 202048, head_dim=128, sliding_window=2048, qk_scale_factor=3.87, post_norm_eps=1e-8,
                 output_multiplier=26**-0.5, final_logit_softcapping=20.0, rms_norm_eps=1e-5, hidden_activation="silu", max_position_embeddings=131072,
                 rope_parameters=dict(rope_type="default", rope_theta=10000.0))
    vision = dict(hidden_size=64, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2, patch_size=14)
    return dict(model_type="muse_glimmer", text_config=text, vision_config=vision, image_token_id=200080, tie_word_embeddings=False)


CHECKPOINTS["muse-glimmer-30b"] = (muse(), None)


def apertus(D, F, L, H):
    return dense("apertus", D, F, L, H, 8, 131072, rms_norm_eps=1e-5, hidden_act="xielu", attention_bias=False, mlp_bias=False, qk_norm=True, post_norm=False,
                 max_position_embeddings=65536, tie_word_embeddings=False, rope_theta=12000000,
                 rope_scaling=dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=8192))


DELTA = dict(linear_conv_kernel_dim=4, linear_key_head_dim=128, linear_value_head_dim=128, linear_num_key_heads=16, full_attention_interval=4,
             attn_output_gate=True, mamba_ssm_dtype="float32", mtp_num_hidden_layers=1, head_dim=256, rms_norm_eps=1e-6, hidden_act="silu",
             attention_bias=False, max_position_embeddings=262144,
             rope_parameters=dict(rope_type="default", rope_theta=10000000, partial_rotary_factor=0.25, mrope_section=[11, 11, 10], mrope_interleaved=True))
QWEN_VISION = dict(depth=1, hidden_size=64, intermediate_size=64, num_heads=2, patch_size=16, num_position_embeddings=16)


def qwen3_5(D, F, L, H, K, values, tied, kind="qwen3_5", **more):
    text = dense(kind + "_text", D, F, L, H, K, 248320, linear_num_value_heads=values, tie_word_embeddings=tied,
                 layer_types=["full_attention" if (i + 1) % 4 == 0 else "linear_attention" for i in range(L)], **DELTA) | more
    return dict(model_type=kind, text_config=text, vision_config=QWEN_VISION | dict(out_hidden_size=D), image_token_id=248056, video_token_id=248057,
                vision_start_token_id=248053, vision_end_token_id=248054, tie_word_embeddings=tied)


A3B = dict(num_experts=256, num_experts_per_tok=8, moe_intermediate_size=512, shared_expert_intermediate_size=512)


def gpt_oss(L, X):
    return dense("gpt_oss", 2880, 2880, L, 64, 8, 201088, head_dim=64, num_local_experts=X, num_experts_per_tok=4, experts_per_token=4, sliding_window=128,
                 layer_types=["sliding_attention", "full_attention"] * (L // 2), swiglu_limit=7.0, attention_bias=True, rms_norm_eps=1e-5, hidden_act="silu",
                 initial_context_length=4096, max_position_embeddings=131072, rope_theta=150000, tie_word_embeddings=False,
                 rope_scaling=dict(rope_type="yarn", factor=32.0, beta_fast=32.0, beta_slow=1.0, truncate=False, original_max_position_embeddings=4096),
                 quantization_config=dict(quant_method="mxfp4", modules_to_not_convert=["model.layers.*.self_attn", "model.layers.*.mlp.router",
                                                                                        "model.embed_tokens", "lm_head"]))


def lfm2(D, F, L, attention, **more):
    kinds = ["full_attention" if i in attention else "conv" for i in range(L)]
    return dense("lfm2", D, F, L, D // 64, 8, 65536, block_ff_dim=F, block_auto_adjust_ff_dim=True, block_ffn_dim_multiplier=1.0, block_multiple_of=256,
                 conv_L_cache=3, conv_bias=False, norm_eps=1e-5, rope_theta=1000000.0, max_position_embeddings=128000, layer_types=kinds,
                 tie_embedding=True, use_pos_enc=True) | more


CHECKPOINTS |= {
    "gemma-4-26b-a4b": (gemma4_wrapper(2816, 2112, 30, 16, 8, 6, 1024, attention_k_eq_v=True, num_global_key_value_heads=2, enable_moe_block=True,
                                       num_experts=128, top_k_experts=8, moe_intermediate_size=704, **NONE), None),
    "apertus-8b": (apertus(4096, 21504, 32, 32), 8.05), "apertus-70b": (apertus(8192, 43008, 80, 64), 70.6),
    "qwen3.5-0.8b": (qwen3_5(1024, 3584, 24, 8, 2, 16, True), None), "qwen3.5-2b": (qwen3_5(2048, 6144, 24, 8, 2, 16, True), None),
    "qwen3.5-4b": (qwen3_5(2560, 9216, 32, 16, 4, 32, True), None), "qwen3.5-9b": (qwen3_5(4096, 12288, 32, 16, 4, 32, False), None),
    "qwen3.6-27b": (qwen3_5(5120, 17408, 64, 24, 4, 48, False), None),
    "qwen3.6-35b-a3b": (qwen3_5(2048, 512, 40, 16, 2, 32, False, "qwen3_5_moe", **A3B), None),
    "qwen3-30b-a3b": (dense("qwen3_moe", 2048, 6144, 48, 32, 4, 151936, head_dim=128, num_experts=128, num_experts_per_tok=8, moe_intermediate_size=768,
                            norm_topk_prob=True, decoder_sparse_step=1, mlp_only_layers=[], rms_norm_eps=1e-6, hidden_act="silu", attention_bias=False,
                            rope_theta=1000000.0, max_position_embeddings=40960, sliding_window=None, use_sliding_window=False,
                            tie_word_embeddings=False), 30.53),
    "gpt-oss-20b": (gpt_oss(24, 32), 20.9), "gpt-oss-120b": (gpt_oss(36, 128), 116.8),
    "lfm2-350m": (lfm2(1024, 6656, 16, (2, 5, 8, 10, 12, 14)), 0.354), "lfm2-700m": (lfm2(1536, 10240, 16, (2, 5, 8, 10, 12, 14)), 0.742),
    "lfm2-1.2b": (lfm2(2048, 12288, 16, (2, 5, 8, 10, 12, 14)), 1.17),
    "lfm2-2.6b": (lfm2(2048, 10752, 30, (2, 5, 9, 13, 17, 21, 25, 27), block_auto_adjust_ff_dim=False), 2.57),
    "lfm2-8b-a1b": (lfm2(2048, 7168, 24, (2, 6, 10, 14, 18, 21), model_type="lfm2_moe", num_experts=32, num_experts_per_tok=4, moe_intermediate_size=1792,
                         num_dense_layers=2, norm_topk_prob=True, use_expert_bias=True, routed_scaling_factor=1.0), 8.34),
}
FP8 = dict(quant_method="fp8", activation_scheme="static", weight_block_size=None, dequantize=False,
           modules_to_not_convert=["model.vision_tower", "model.multi_modal_projector", "lm_head"])
CHECKPOINTS["ministral-3-3b-fp8"] = (ministral3(3072, 9216, 26, True) | dict(quantization_config=FP8), None)
CHECKPOINTS["qwen3.6-35b-a3b-fp8"] = (CHECKPOINTS["qwen3.6-35b-a3b"][0] | dict(quantization_config=dict(
    quant_method="fp8", fmt="e4m3", activation_scheme="dynamic", weight_block_size=[128, 128])), None)
# families whose experts are in tensors of their own in files, by the names of gate, up and down
ONE_BY_ONE = {"qwen3_moe": ("gate_proj", "up_proj", "down_proj"), "lfm2_moe": ("w1", "w3", "w2")}


def tensors(config):
    """Name -> (type, shape) of what the model's files hold."""
    inner = config["text_config"] if config["model_type"] == "gemma4" else config      # its towers need other packages
    c = AutoConfig.for_model(**{k: v for k, v in inner.items() if k != "quantization_config"})
    kind = AutoModelForImageTextToText if "text_config" in inner else AutoModelForCausalLM
    with torch.device("meta"):
        model = kind.from_config(c, dtype=torch.bfloat16)
    names = {n for n, _ in model.named_parameters()} | {n for n in model.state_dict() if n.endswith(BUFFERS)}
    state = model.state_dict()
    out = {}
    for n in names:
        new = n
        if config["model_type"] == "mistral3":       # as save_pretrained and the makers write it
            new = re.sub(r"^model\.language_model\.", "language_model.model.", new)
            new = re.sub(r"^lm_head\.", "language_model.lm_head.", new)
            new = re.sub(r"^model\.", "", new)
        if config["model_type"] == "gemma4":
            new = re.sub(r"^model\.", "model.language_model.", new)
        out[new] = (TYPES[state[n].dtype], tuple(state[n].shape))
    return out


def experts_apart(names, found):
    """Has experts in tensors of their own instead of in stacked ones."""
    out = {}
    for name, (dtype, shape) in found.items():
        stem, _, leaf = name.rpartition(".")
        if leaf not in ("gate_up_proj", "down_proj") or not stem.endswith("experts"):
            out[name] = (dtype, shape)
            continue
        rows = [(names[2], shape[1:])] if leaf == "down_proj" else [(n, (shape[1] // 2, shape[2])) for n in names[:2]]
        for x in range(shape[0]):
            out |= {f"{stem}.{x}.{n}.weight": (dtype, dims) for n, dims in rows}
    return out


def as_mxfp4(found):
    """The experts of gpt-oss as they are published: blocks of 32 columns with scales, outputs as rows."""
    out = {}
    for name, (dtype, shape) in found.items():
        if not name.endswith(("experts.gate_up_proj", "experts.down_proj")):
            out[name] = (dtype, shape)
            continue
        X, columns, rows = shape
        out[name + "_blocks"] = ("U8", (X, rows, columns // 32, 16))
        out[name + "_scales"] = ("U8", (X, rows, columns // 32))
    return out


def with_unused_keys(config, found):
    """Adds the keys and values that the makers' files have for layers that attend to those of others."""
    text = config["text_config"]
    first = text["num_hidden_layers"] - text.get("num_kv_shared_layers", 0)
    for i in range(first, text["num_hidden_layers"]):
        before = max(j for j in range(first) if text["layer_types"][j] == text["layer_types"][i])
        for leaf in ("k_proj.weight", "v_proj.weight", "k_norm.weight"):
            name = "model.language_model.layers.{}.self_attn." + leaf
            if name.format(before) in found:
                found[name.format(i)] = found[name.format(before)]
    return found


def as_fp8(found, block):
    """Matrices of layers in fp8, with a scale for the tensor and for activations, or with one for each block."""
    out = {}
    for name, (dtype, shape) in found.items():
        quantised = re.search(r"layers\.\d+\..*_proj(_qkv|_z)?\.weight$", name) and "vis" not in name
        out[name] = ("F8_E4M3" if quantised else dtype, shape)
        if quantised and block:
            out[name.removesuffix("weight") + "weight_scale_inv"] = ("BF16", tuple(-(-n // b) for n, b in zip(shape, block)))
        elif quantised:
            for leaf in ("weight_scale_inv", "activation_scale"):
                out[name.removesuffix("weight") + leaf] = ("BF16", ())
    return out


def as_published(config, found):
    kind, block = config["model_type"], config.get("quantization_config")
    block = block if block and block["quant_method"] == "fp8" else None
    if kind == "gemma4":
        found = with_unused_keys(config, found)
    if kind in ONE_BY_ONE or block:     # fp8 has experts one by one
        found = experts_apart(ONE_BY_ONE.get(kind, ONE_BY_ONE["qwen3_moe"]), found)
    if kind == "gpt_oss":
        found = as_mxfp4(found)
    return as_fp8(found, block["weight_block_size"]) if block else found


def runs_of(numbers):
    runs = []
    for n in sorted(set(numbers)):
        if runs and runs[-1][1] == n - 1:
            runs[-1][1] = n
        else:
            runs.append([n, n])
    return "{" + ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs) + "}"


def grouped(all_tensors):
    """Lines of tensors, those that differ in the number of the layer or of the expert alone in one."""
    groups = {}
    for name, what in all_tensors.items():
        marks = re.findall(r"(?<=layers\.)\d+(?=\.)", name)[:1] + re.findall(r"(?<=experts\.)\d+(?=\.)", name)
        text = re.sub(r"(?<=experts\.)\d+(?=\.)", "{}", re.sub(r"(?<=layers\.)\d+(?=\.)", "{}", name, count=1))
        groups.setdefault((text, what), []).append([int(n) for n in marks])
    for (name, (dtype, shape)), numbers in sorted(groups.items()):
        each = [sorted(set(n)) for n in zip(*numbers)]
        assert len(numbers) == max(1, np.prod([len(n) for n in each], dtype=int)), name
        for n in each:
            name = name.replace("{}", runs_of(n), 1)
        yield " ".join([dtype, "x".join(map(str, shape)) or "-", name])


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("out")
    ap.add_argument("--only", action="append")
    args = ap.parse_args()
    transformers.logging.set_verbosity_error()
    os.makedirs(args.out, exist_ok=True)
    for name, (config, published) in CHECKPOINTS.items():
        if args.only and name not in args.only:
            continue
        config = json.loads(json.dumps(config))
        found = tensors(config)
        numbers = found if config["model_type"] != "gemma4" else with_unused_keys(config, found)
        total = sum(int(torch.Size(s).numel()) for n, (_, s) in numbers.items() if not re.search(r"vis|projector", n)) / 1e9
        found = as_published(config, found)
        print(f"{name:20} {config['model_type']:18} {len(found):5} tensors {total:8.3f} B, published {published}", flush=True)
        assert published is None or abs(total - published) < max(0.006, 0.004 * published), name
        with open(os.path.join(args.out, name + ".txt"), "w") as f:
            f.write(json.dumps(config) + "\n" + "\n".join(grouped(found)) + "\n")


if __name__ == "__main__":
    main()
