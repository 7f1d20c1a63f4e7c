#!/usr/bin/env python3
"""Writes tiny random models of the families beyond the four of golden.py, with the results of the reference.

usage: tools/golden_families.py OUT [--only NAME]...          the models of tests/golden/families
       tools/golden_families.py --sweep OUT [--only FAMILY]...  each option of every family, for `LN_GOLDEN=OUT build/test_golden`
       tools/golden_families.py --pairs OUT [--only FAMILY]...  every two options that change different keys

Layout, reference and checks are those of golden.py, whose comment describes them. A model of the sweep is a base of its family with one option
changed, or two that the arithmetic of one layer joins (RoPE and windows, norms and biases, fused tensors and head counts).
"""
import argparse
import json
import os
import shutil

import golden
import golden_forms
import numpy as np
import torch
import transformers
from golden import DTYPES, decode, rope, scaled, shape, worst
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText

WRAPPERS = ("muse_glimmer", "mistral3", "qwen3_vl", "qwen2_5_vl", "qwen3_5", "qwen3_5_moe")
LLAMA3 = dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=32)
INPUTS = dict(hidden_size_per_layer_input=8, vocab_size_per_layer_input=266, num_hidden_layers=3,
              layer_types=["sliding_attention", "sliding_attention", "full_attention"])
EXPERTS = dict(enable_moe_block=True, num_experts=6, top_k_experts=2, moe_intermediate_size=24)
YARN = dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=32)
DELTA = dict(linear_conv_kernel_dim=4, linear_key_head_dim=8, linear_value_head_dim=16, linear_num_key_heads=2, linear_num_value_heads=4,
             max_position_embeddings=2048)
SHARED = dict(num_experts=8, num_experts_per_tok=3, moe_intermediate_size=24, shared_expert_intermediate_size=40)
IDS = dict(bos_token_id=256, eos_token_id=257)


def longrope(n, **more):
    return dict(rope_type="longrope", rope_theta=100.0, short_factor=[1.0 + 0.05 * i for i in range(n)],
                long_factor=[1.5 + 0.7 * i for i in range(n)], **more)


MINISTRAL = dict(rope_type="yarn", rope_theta=100.0, factor=4.0, original_max_position_embeddings=32, beta_fast=32.0, beta_slow=1.0, mscale=1.0,
                 mscale_all_dim=1.0, llama_4_scaling_beta=0.1)
EAGER = ("gemma2", "granite_swa", "gpt_oss")     # sdpa has no soft cap and computes without it, and no sinks


def base(**more):
    return shape(32, 4, 2, 52, 3, 266, **IDS) | dict(max_position_embeddings=128) | more


# families with recurrent layers, whose texts span several chunks of 64 positions
RECURRENT = ("qwen3_next", "qwen3_5", "qwen3_5_text", "qwen3_5_moe", "qwen3_5_moe_text", "lfm2", "lfm2_moe", "olmo_hybrid")
OFFSET = ("muse_glimmer", "qwen3_next", "qwen3_5", "qwen3_5_text", "qwen3_5_moe", "qwen3_5_moe_text")   # norm weights are stored as w - 1


# by family: the configuration from which its models start, and by the name of an option what it changes
FAMILIES = {
    "mistral": (base(sliding_window=None, rope_parameters=rope()), {
        "window": dict(sliding_window=16), "wide-heads": dict(head_dim=12), "tied": dict(tie_word_embeddings=True),
        "yarn": dict(rope_parameters=rope(100.0, **YARN)), "window-yarn": dict(sliding_window=16, rope_parameters=rope(100.0, **YARN)),
        "one-kv": dict(num_key_value_heads=1)}),
    "ministral3": (base(sliding_window=None, head_dim=12, rope_parameters=MINISTRAL), {
        "window": dict(sliding_window=16), "tied": dict(tie_word_embeddings=True), "one-kv": dict(num_key_value_heads=1),
        "beta": dict(rope_parameters=MINISTRAL | dict(llama_4_scaling_beta=1.5, original_max_position_embeddings=7)),
        "no-beta": dict(rope_parameters=MINISTRAL | dict(llama_4_scaling_beta=0.0)),
        "default": dict(rope_parameters=rope(llama_4_scaling_beta=0.5, original_max_position_embeddings=16))}),
    "gemma2": (base(num_hidden_layers=5, head_dim=12, sliding_window=16, query_pre_attn_scalar=300, attn_logit_softcapping=0.6, final_logit_softcapping=8.0,
                    rope_parameters=rope()), {
        "no-score-cap": dict(attn_logit_softcapping=None), "no-logit-cap": dict(final_logit_softcapping=None),
        "no-caps": dict(attn_logit_softcapping=None, final_logit_softcapping=None), "class-caps": dict(attn_logit_softcapping=50.0, final_logit_softcapping=30.0),
        "types": dict(layer_types=["full_attention", "sliding_attention", "sliding_attention", "full_attention", "full_attention"]),
        "bias": dict(attention_bias=True), "one-kv": dict(num_key_value_heads=1), "untied": dict(tie_word_embeddings=False),
        "yarn": dict(rope_parameters=rope(100.0, **YARN))}),
    "gemma4_text": (base(num_hidden_layers=6, head_dim=8, global_head_dim=16, sliding_window=16, hidden_size_per_layer_input=0, final_logit_softcapping=8.0,
                         layer_types=["sliding_attention", "sliding_attention", "full_attention"] * 2, rope_parameters=None), {
        "k-eq-v": dict(attention_k_eq_v=True, num_global_key_value_heads=1), "k-eq-v-all": dict(attention_k_eq_v=True),
        "shared": dict(num_kv_shared_layers=3), "shared-wide": dict(num_kv_shared_layers=2, use_double_wide_mlp=True),
        "shared-k-eq-v": dict(num_kv_shared_layers=3, attention_k_eq_v=True, num_global_key_value_heads=1),
        "no-cap": dict(final_logit_softcapping=None), "bias": dict(attention_bias=True), "vision": dict(use_bidirectional_attention="vision"),
        "inputs": INPUTS, "inputs-shared": INPUTS | dict(num_hidden_layers=4, num_kv_shared_layers=2, use_double_wide_mlp=True, attention_k_eq_v=True,
                                                      layer_types=["sliding_attention", "full_attention"] * 2),
        "experts": EXPERTS, "experts-k-eq-v": EXPERTS | dict(attention_k_eq_v=True, num_global_key_value_heads=1),
        "experts-inputs": EXPERTS | INPUTS, "experts-all": EXPERTS | dict(top_k_experts=6),
        "inputs-untied": INPUTS | dict(tie_word_embeddings=False),
        "rope": dict(rope_parameters={"full_attention": dict(rope_type="proportional", partial_rotary_factor=0.6, rope_theta=5000.0),
                                      "sliding_attention": rope(2e3)})}),
    "cohere2": (base(num_hidden_layers=5, tie_word_embeddings=True, sliding_window=16, logit_scale=0.25, rope_parameters=rope()), {
        "bias": dict(attention_bias=True), "one": dict(logit_scale=1.0), "untied": dict(tie_word_embeddings=False),
        "types": dict(layer_types=["full_attention", "sliding_attention"] * 2 + ["full_attention"])}),
    "muse_glimmer": (base(head_dim=12, num_hidden_layers=5, sliding_window=16, qk_scale_factor=1.7, output_multiplier=0.6, final_logit_softcapping=3.0,
                          rope_parameters=rope()), {
        "bias": dict(attention_bias=True), "types": dict(layer_types=["full_attention", "sliding_attention"] * 2 + ["sliding_attention"]),
        "bases": dict(layer_rope_theta=[0, 5.0, 0, 1e4, 1e4])}),
    "granite_swa": (base(num_hidden_layers=5, sliding_window=16, rope_parameters=rope(), embedding_multiplier=12.0, attention_multiplier=0.3,
                         residual_multiplier=0.22, logits_scaling=8.0), {
        "thetas": dict(layer_rope_theta=[1e4, 0, 500.0, 1e4, 0]), "types": dict(layer_types=["sliding_attention"] * 2 + ["full_attention"] * 3),
        "no-window": dict(layer_types=["full_attention"] * 5), "biases": dict(attention_bias=True, mlp_bias=True),
        "untied": dict(tie_word_embeddings=False), "one-kv": dict(num_key_value_heads=1), "wide-window": dict(sliding_window=40),
        "thetas-untied": dict(layer_rope_theta=[1e4, 0, 500.0, 1e4, 0], tie_word_embeddings=False)}),
    "granite": (base(rope_parameters=rope(), embedding_multiplier=12.0, attention_multiplier=0.3, residual_multiplier=0.22, logits_scaling=8.0), {
        "ones": dict(embedding_multiplier=1.0, attention_multiplier=1.0, residual_multiplier=1.0, logits_scaling=1.0),
        "attention": dict(embedding_multiplier=1.0, residual_multiplier=1.0, logits_scaling=1.0),
        "residual": dict(embedding_multiplier=1.0, attention_multiplier=0.35, logits_scaling=1.0),
        "tied": dict(tie_word_embeddings=True), "biases": dict(attention_bias=True, mlp_bias=True),
        "llama3": dict(rope_parameters=rope(100.0, **LLAMA3)), "odd-scale": dict(embedding_multiplier=5.3, logits_scaling=3.7)}),
    "smollm3": (base(tie_word_embeddings=True, num_hidden_layers=5, rope_parameters=rope(5e4)), {
        "untied": dict(tie_word_embeddings=False), "list": dict(no_rope_layers=[0, 1, 0, 1, 1]), "interval": dict(no_rope_layer_interval=2),
        "window": dict(use_sliding_window=True, sliding_window=16, no_rope_layer_interval=2), "biases": dict(attention_bias=True, mlp_bias=True),
        "types": dict(sliding_window=16, layer_types=["sliding_attention", "full_attention"] * 2 + ["sliding_attention"]),
        "yarn": dict(rope_parameters=rope(100.0, **YARN), no_rope_layer_interval=2)}),
    "olmo2": (base(rope_parameters=rope(5e5), rms_norm_eps=1e-6), {
        "bias": dict(attention_bias=True), "tied": dict(tie_word_embeddings=True), "all-kv": dict(num_key_value_heads=4),
        "one-kv": dict(num_key_value_heads=1), "llama3": dict(rope_parameters=rope(100.0, **LLAMA3))}),
    "olmo3": (base(num_hidden_layers=5, sliding_window=16, rope_parameters={
        "full_attention": rope(100.0, **YARN), "sliding_attention": rope(100.0)}), {
        "plain": dict(rope_parameters={"full_attention": rope(5e5), "sliding_attention": rope(5e5)}),
        "two-bases": dict(rope_parameters={"full_attention": rope(5e5), "sliding_attention": rope(1e3)}),
        "types": dict(layer_types=["full_attention", "sliding_attention", "sliding_attention", "full_attention", "sliding_attention"]),
        "bias": dict(attention_bias=True), "tied": dict(tie_word_embeddings=True)}),
    "seed_oss": (base(head_dim=12, rope_parameters=rope(1e6)), {
        "no-bias": dict(attention_bias=False), "out-bias": dict(attention_out_bias=True), "mlp-bias": dict(mlp_bias=True),
        "all-bias": dict(attention_out_bias=True, mlp_bias=True), "tied": dict(tie_word_embeddings=True),
        "narrow": dict(head_dim=8)}),
    "exaone4": (base(num_hidden_layers=5, sliding_window=16, sliding_window_pattern=4, rope_parameters=rope(1e6)), {
        "no-window": dict(sliding_window=None, tie_word_embeddings=True, layer_types=["full_attention"] * 5),
        "pattern": dict(sliding_window_pattern=2), "llama3": dict(rope_parameters=rope(100.0, **LLAMA3)),
        "types": dict(layer_types=["full_attention", "sliding_attention"] * 2 + ["full_attention"])}),
    "hunyuan_v1_dense": (base(head_dim=12, rope_parameters=dict(rope_type="dynamic", rope_theta=10000.0, alpha=1000.0, factor=1.0)), {
        "plain": dict(rope_parameters=rope()), "bias": dict(attention_bias=True), "tied": dict(tie_word_embeddings=True)}),
    "ernie4_5": (base(head_dim=12, tie_word_embeddings=True, rope_parameters=rope(5e5)), {
        "untied": dict(tie_word_embeddings=False), "bias": dict(use_bias=True), "one-kv": dict(num_key_value_heads=1),
        "yarn": dict(rope_parameters=rope(100.0, **YARN))}),
    "glm4": (base(head_dim=12, rms_norm_eps=1e-5, rope_parameters=rope(partial_rotary_factor=0.5)), {
        "no-bias": dict(attention_bias=False), "whole": dict(rope_parameters=rope(partial_rotary_factor=1.0)),
        "tied": dict(tie_word_embeddings=True), "third": dict(head_dim=18, rope_parameters=rope(partial_rotary_factor=0.34))}),
    "internlm3": (base(rope_parameters=rope(1e6)), {
        "biases": dict(qkv_bias=True, bias=True), "wide-heads": dict(head_dim=12), "one-kv": dict(num_key_value_heads=1),
        "tied": dict(tie_word_embeddings=True), "dynamic": dict(rope_parameters=rope(100.0, rope_type="dynamic", factor=6.0)),
        "biases-wide": dict(qkv_bias=True, bias=True, head_dim=12)}),
    "apertus": (base(rope_parameters=rope(100.0, **LLAMA3)), {
        "bias": dict(attention_bias=True), "tied": dict(tie_word_embeddings=True), "all-kv": dict(num_key_value_heads=4),
        "plain": dict(rope_parameters=rope(5e4)), "silu": dict(hidden_act="silu"), "yarn": dict(rope_parameters=rope(100.0, **YARN))}),
    "gemma": (base(head_dim=12, rope_parameters=rope()), {
        "bias": dict(attention_bias=True), "one-kv": dict(num_key_value_heads=1), "untied": dict(tie_word_embeddings=False),
        "yarn": dict(rope_parameters=rope(100.0, **YARN))}),
    "ministral": (base(head_dim=8, num_hidden_layers=5, sliding_window=16, rope_parameters=rope()), {
        "types": dict(layer_types=["full_attention", "sliding_attention", "sliding_attention"] + ["full_attention"] * 2), "full": dict(layer_types=["full_attention"] * 5),
        "wide-heads": dict(head_dim=12), "tied": dict(tie_word_embeddings=True), "yarn": dict(rope_parameters=rope(100.0, **YARN))}),
    "arcee": (base(hidden_act="relu2", rope_parameters=rope()), {
        "biases": dict(attention_bias=True, mlp_bias=True), "mlp-bias": dict(mlp_bias=True), "wide-heads": dict(head_dim=12), "silu": dict(hidden_act="silu"),
        "tied": dict(tie_word_embeddings=True), "yarn": dict(rope_parameters=rope(100.0, **YARN)),
        "biases-yarn": dict(attention_bias=True, mlp_bias=True, rope_parameters=rope(100.0, **YARN))}),
    "glm": (base(head_dim=12, rms_norm_eps=1e-5, rope_parameters=rope(partial_rotary_factor=0.5)), {
        "no-bias": dict(attention_bias=False), "whole": dict(rope_parameters=rope(partial_rotary_factor=1.0)),
        "tied": dict(tie_word_embeddings=True), "one-kv": dict(num_key_value_heads=1),
        "class-part": dict(rope_parameters=rope())}),
    "helium": (base(head_dim=8, rms_norm_eps=1e-8, rope_parameters=rope(1e5)), {
        "biases": dict(attention_bias=True, mlp_bias=True), "bias": dict(attention_bias=True), "mlp-bias": dict(mlp_bias=True),
        "all-kv": dict(num_key_value_heads=4), "one-kv": dict(num_key_value_heads=1), "tied": dict(tie_word_embeddings=True),
        "yarn": dict(rope_parameters=rope(100.0, **YARN))}),
    "phi3": (base(rope_parameters=rope(partial_rotary_factor=1.0), original_max_position_embeddings=128), {
        "partial": dict(rope_parameters=rope(partial_rotary_factor=0.75)), "window": dict(sliding_window=16),
        "long": dict(original_max_position_embeddings=24, rope_parameters=longrope(4, partial_rotary_factor=1.0)),
        "short": dict(original_max_position_embeddings=120, rope_parameters=longrope(4, partial_rotary_factor=1.0)),
        "long-partial": dict(original_max_position_embeddings=24, tie_word_embeddings=True, rope_parameters=longrope(3, partial_rotary_factor=0.75)),
        "all-kv": dict(num_key_value_heads=4), "one-kv": dict(num_key_value_heads=1), "tied": dict(tie_word_embeddings=True)}),
    "qwen3_moe": (base(head_dim=12, num_hidden_layers=4, num_experts=8, num_experts_per_tok=3, moe_intermediate_size=24, norm_topk_prob=True,
                       rope_parameters=rope()), {
        "as-they-are": dict(norm_topk_prob=False), "dense": dict(mlp_only_layers=[1], decoder_sparse_step=1), "step": dict(decoder_sparse_step=2),
        "tied": dict(tie_word_embeddings=True), "bias": dict(attention_bias=True), "window": dict(use_sliding_window=True, sliding_window=16),
        "one": dict(num_experts_per_tok=1), "all": dict(num_experts_per_tok=8), "wide": dict(moe_intermediate_size=64, num_experts=5),
        "no-experts": dict(mlp_only_layers=[0, 1, 2, 3]), "as-fp8": dict(num_hidden_layers=2, head_dim=16, moe_intermediate_size=32), "as-mlx": dict(num_hidden_layers=2, moe_intermediate_size=32)}),
    "mixtral": (base(sliding_window=None, num_local_experts=4, num_experts_per_tok=2, intermediate_size=40, rope_parameters=rope(1e6)), {
        "window": dict(sliding_window=16), "tied": dict(tie_word_embeddings=True), "three": dict(num_experts_per_tok=3),
        "head-dim": dict(head_dim=12), "sixteen": dict(num_local_experts=16, num_experts_per_tok=4)}),
    "olmoe": (base(num_experts=8, num_experts_per_tok=3, intermediate_size=24, norm_topk_prob=False, rope_parameters=rope()), {
        "normed": dict(norm_topk_prob=True), "clip": dict(clip_qkv=0.7), "bias": dict(attention_bias=True), "tied": dict(tie_word_embeddings=True),
        "all-kv": dict(num_key_value_heads=4)}),
    "gpt_oss": (base(head_dim=12, num_hidden_layers=4, num_local_experts=6, num_experts_per_tok=3, intermediate_size=40, sliding_window=16,
                     rope_parameters=rope(1.5e5, rope_type="yarn", factor=32.0, beta_fast=32.0, beta_slow=1.0, truncate=False,
                                          original_max_position_embeddings=16)), {
        "types": dict(layer_types=["full_attention", "sliding_attention"] * 2), "limit": dict(swiglu_limit=0.5),
        "plain-rope": dict(rope_parameters=rope()), "no-bias": dict(attention_bias=False), "tied": dict(tie_word_embeddings=True),
        "one": dict(num_experts_per_tok=1), "square": dict(intermediate_size=32), "mxfp4": dict(intermediate_size=64),
        "as-mlx": dict(intermediate_size=64, num_hidden_layers=2)}),
    "granitemoe": (base(num_local_experts=6, num_experts_per_tok=2, intermediate_size=24, rope_parameters=rope(), embedding_multiplier=12.0,
                        attention_multiplier=0.3, residual_multiplier=0.22, logits_scaling=8.0), {
        "ones": dict(embedding_multiplier=1.0, residual_multiplier=1.0, logits_scaling=1.0), "bias": dict(attention_bias=True),
        "tied": dict(tie_word_embeddings=True), "three": dict(num_experts_per_tok=3)}),
    "glm4_moe": (base(head_dim=12, num_hidden_layers=4, n_routed_experts=8, n_group=4, topk_group=2, num_experts_per_tok=3, moe_intermediate_size=24,
                      n_shared_experts=1, first_k_dense_replace=1, routed_scaling_factor=1.5, norm_topk_prob=True,
                      rope_parameters=rope(partial_rotary_factor=0.5)), {
        "one-group": dict(n_group=1, topk_group=1), "as-they-are": dict(norm_topk_prob=False), "qk-norm": dict(use_qk_norm=True),
        "two-shared": dict(n_shared_experts=2), "bias": dict(attention_bias=True), "all-sparse": dict(first_k_dense_replace=0),
        "factor": dict(routed_scaling_factor=1.0), "whole": dict(rope_parameters=rope(partial_rotary_factor=1.0)), "tied": dict(tie_word_embeddings=True)}),
    "qwen3_5_text": (base(num_hidden_layers=4, head_dim=16, rope_parameters=rope(1e4, partial_rotary_factor=0.25), **DELTA), {
        "interval": dict(num_hidden_layers=3, full_attention_interval=2, layer_types=None), "types": dict(layer_types=["full_attention"] * 2 + ["linear_attention"] * 2),
        "one-key-head": dict(linear_num_key_heads=1), "equal-heads": dict(linear_num_key_heads=4), "wide-values": dict(linear_value_head_dim=24),
        "taps-2": dict(linear_conv_kernel_dim=2), "taps-7": dict(linear_conv_kernel_dim=7), "bias": dict(attention_bias=True),
        "tied": dict(tie_word_embeddings=True), "half-rotary": dict(rope_parameters=rope(1e4, partial_rotary_factor=0.5)),
        "mrope": dict(rope_parameters=rope(1e4, partial_rotary_factor=0.25, rope_type="default", mrope_section=[1, 1, 0], mrope_interleaved=True)),
        "as-fp8": dict(num_hidden_layers=2, intermediate_size=64, layer_types=["linear_attention", "full_attention"]),
        "as-gptq": dict(num_hidden_layers=2, intermediate_size=64, layer_types=["linear_attention", "full_attention"]),
        "last-linear": dict(num_hidden_layers=3, layer_types=["linear_attention", "full_attention", "linear_attention"])}),
    "qwen3_next": (base(num_hidden_layers=3, layer_types=["linear_attention", "full_attention", "linear_attention"], head_dim=16,
                        rope_parameters=rope(1e4, partial_rotary_factor=0.25), **DELTA, **SHARED), {
        "interval": dict(full_attention_interval=2, layer_types=None), "one": dict(num_experts_per_tok=1), "as-they-are": dict(norm_topk_prob=False),
        "step": dict(decoder_sparse_step=2), "list": dict(mlp_only_layers=[0]), "dense": dict(mlp_only_layers=[0, 1, 2]),
        "one-key-head": dict(linear_num_key_heads=1), "equal-heads": dict(linear_num_key_heads=4), "wide-values": dict(linear_value_head_dim=24),
        "taps-7": dict(linear_conv_kernel_dim=7), "bias": dict(attention_bias=True), "tied": dict(tie_word_embeddings=True),
        "half-rotary": dict(rope_parameters=rope(1e4, partial_rotary_factor=0.5)), "list-step": dict(mlp_only_layers=[1], decoder_sparse_step=2)}),
    "qwen3_5": (base(num_hidden_layers=2, layer_types=["linear_attention", "full_attention"], head_dim=16, rope_parameters=rope(1e4, partial_rotary_factor=0.25), **DELTA), {
        "tied": dict(tie_word_embeddings=True), "as-mlx": dict(intermediate_size=64)}),
    "qwen3_5_moe_text": (base(num_hidden_layers=3, layer_types=["linear_attention", "full_attention", "linear_attention"], head_dim=16,
                              rope_parameters=rope(1e4, partial_rotary_factor=0.25), **DELTA, **SHARED), {
        "interval": dict(full_attention_interval=2, layer_types=None), "one": dict(num_experts_per_tok=1), "all": dict(num_experts_per_tok=8),
        "wide": dict(moe_intermediate_size=64, num_experts=5), "wide-shared": dict(shared_expert_intermediate_size=80),
        "one-key-head": dict(linear_num_key_heads=1), "equal-heads": dict(linear_num_key_heads=4), "taps-7": dict(linear_conv_kernel_dim=7),
        "bias": dict(attention_bias=True), "tied": dict(tie_word_embeddings=True)}),
    "qwen3_5_moe": (base(num_hidden_layers=2, layer_types=["linear_attention", "full_attention"], head_dim=16,
                         rope_parameters=rope(1e4, partial_rotary_factor=0.25), **DELTA, **SHARED), {
        "tied": dict(tie_word_embeddings=True), "as-fp8": {}, "as-mlx": dict(moe_intermediate_size=32, shared_expert_intermediate_size=64)}),
    "lfm2": (base(num_hidden_layers=4, layer_types=["conv", "full_attention", "conv", "conv"], tie_word_embeddings=True, intermediate_size=90,
                  block_auto_adjust_ff_dim=True, block_multiple_of=16, max_position_embeddings=2048, rope_parameters=rope(1e6)), {
        "bias": dict(conv_bias=True), "as-it-is": dict(block_auto_adjust_ff_dim=False), "wider": dict(block_ffn_dim_multiplier=1.3),
        "unrounded": dict(block_ffn_dim_multiplier=None), "untied": dict(tie_word_embeddings=False), "taps-7": dict(conv_L_cache=7),
        "taps-1": dict(conv_L_cache=1), "indices": dict(layer_types=None, full_attn_idxs=[0, 3]), "full": dict(layer_types=["full_attention"] * 4), "as-mlx": dict(intermediate_size=96)}),
    "lfm2_moe": (base(num_hidden_layers=4, layer_types=["conv", "full_attention", "conv", "full_attention"], tie_word_embeddings=True,
                      moe_intermediate_size=24, num_experts=8, num_experts_per_tok=3, num_dense_layers=1, max_position_embeddings=2048,
                      rope_parameters=rope(1e6)), {
        "bias": dict(conv_bias=True), "untied": dict(tie_word_embeddings=False), "no-choice-bias": dict(use_expert_bias=False),
        "as-they-are": dict(norm_topk_prob=False), "factor": dict(routed_scaling_factor=1.7), "all-sparse": dict(num_dense_layers=0),
        "one": dict(num_experts_per_tok=1)}),
    "mistral3": (base(sliding_window=None, head_dim=12, rope_parameters=rope(1e6)), {"tied": dict(tie_word_embeddings=True)}),
    "qwen3_vl": (base(head_dim=12, rope_parameters=rope(5e6, mrope_section=[2, 2, 2], mrope_interleaved=True)), {"tied": dict(tie_word_embeddings=True)}),
    "qwen2_5_vl": (base(rope_parameters=rope(1e6, mrope_section=[2, 1, 1])), {"tied": dict(tie_word_embeddings=True)}),
}
VISION = {
    "muse_glimmer": dict(hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2, patch_size=4),
    "mistral3": dict(model_type="pixtral", hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2, image_size=8,
                     patch_size=4, head_dim=8),
    "qwen3_vl": dict(depth=1, hidden_size=16, intermediate_size=16, num_heads=2, patch_size=4, out_hidden_size=32, deepstack_visual_indexes=[0],
                     num_position_embeddings=16),
    "qwen3_5_moe": dict(depth=1, hidden_size=16, intermediate_size=16, num_heads=2, patch_size=4, out_hidden_size=32, num_position_embeddings=16),
    "qwen3_5": dict(depth=1, hidden_size=16, intermediate_size=16, num_heads=2, patch_size=4, out_hidden_size=32, num_position_embeddings=16),
    "qwen2_5_vl": dict(depth=1, hidden_size=16, intermediate_size=16, num_heads=2, patch_size=4, out_hidden_size=32, fullatt_block_indexes=[0]),
}
# what is in git: family -> (option or None, dtype)
SAMPLE = {
    "ministral3": ("window", "bf16"), "gemma4_text": [("shared-k-eq-v", "bf16"), ("inputs", "bf16"), ("inputs-shared", "f32"), ("experts", "bf16")], "cohere2": (None, "bf16"),
    "muse_glimmer": (None, "bf16"), "gemma2": (None, "bf16"), "granite_swa": ("thetas-untied", "bf16"),
    "mistral": ("window-yarn", "bf16"), "granite": (None, "bf16"), "smollm3": ("window", "bf16"), "olmo2": (None, "bf16"), "olmo3": (None, "bf16"),
    "seed_oss": (None, "f16"), "exaone4": (None, "bf16"), "hunyuan_v1_dense": (None, "bf16"), "ernie4_5": (None, "bf16"), "glm4": (None, "f32"), "internlm3": ("biases-wide", "bf16"),
    "gemma": (None, "bf16"), "ministral": ("types", "bf16"), "apertus": ("bias", "bf16"), "arcee": ("biases-yarn", "bf16"), "glm": (None, "bf16"), "helium": ("biases", "bf16"),
    "qwen3_moe": [("step", "bf16"), ("as-fp8", "bf16")], "mixtral": (None, "bf16"), "olmoe": ("clip", "f16"), "gpt_oss": [("limit", "bf16"), ("mxfp4", "bf16"), ("as-mlx", "bf16")], "granitemoe": (None, "f16"),
    "glm4_moe": (None, "bf16"),
    "phi3": ("long-partial", "bf16"), "mistral3": (None, "bf16"), "qwen3_vl": (None, "bf16"), "qwen2_5_vl": (None, "bf16"),
    "lfm2": ("bias", "bf16"), "lfm2_moe": (None, "f16"), "qwen3_next": ("list", "bf16"),
    "qwen3_5_text": [("last-linear", "bf16"), ("interval", "f16"), ("as-fp8", "bf16"), ("as-gptq", "f16")], "qwen3_5": [("tied", "bf16"), ("as-mlx", "bf16")], "qwen3_5_moe_text": ("bias", "bf16"), "qwen3_5_moe": [("tied", "f16"), ("as-mlx", "bf16")],
}


def pairs(options):
    """Every two options that change different keys, as one."""
    names = list(options)
    for i, a in enumerate(names):
        for b in names[i + 1:]:
            if not options[a].keys() & options[b].keys():
                yield f"{a}+{b}", options[a] | options[b]


def cases(sweep):
    """Yields name, family, dtype and configuration of each model."""
    for i, (family, (start, options)) in enumerate(FAMILIES.items()):
        if not sweep:
            for option, dtype in SAMPLE[family] if isinstance(SAMPLE[family], list) else [SAMPLE[family]]:
                yield f"{family}-{option or 'base'}-{dtype}", family, dtype, start | options.get(option, {})
            continue
        for k, (option, change) in enumerate(pairs(options) if sweep == "pairs" else [("base", {}), *options.items()]):
            dtype = ("bf16", "f32", "f16")[(i + k) % 3]
            yield f"{family}-{option}-{dtype}", family, dtype, start | change


def forward_recurrent(model, ids, chunk=None):
    """As golden.forward, with a cache that has recurrent layers."""
    cache, rows = transformers.DynamicCache(config=text_of(model.config)), []
    for at in range(0, len(ids), chunk or len(ids)):
        part = torch.tensor([ids[at:at + (chunk or len(ids))]])
        rows.append(model(input_ids=part, past_key_values=cache, use_cache=True).logits[0])
    return torch.cat(rows), cache


def make_config(family, text):
    if family not in WRAPPERS:
        return AutoConfig.for_model(family, **text)
    tied = text.get("tie_word_embeddings", False)
    more = dict(image_token_index=262) if family == "mistral3" else dict(image_token_id=262, video_token_id=261, out_hidden_size=32, projector_hidden_size=16) if family == "muse_glimmer" else dict(image_token_id=262, video_token_id=261, vision_start_token_id=260)
    inner = AutoConfig.for_model({"mistral3": "mistral", "muse_glimmer": "muse_glimmer_text", "qwen3_vl": "qwen3_vl_text", "qwen2_5_vl": "qwen2_5_vl_text", "qwen3_5": "qwen3_5_text", "qwen3_5_moe": "qwen3_5_moe_text"}[family], **text)
    vision = VISION[family] if family == "mistral3" else VISION[family]
    c = AutoConfig.for_model(family, text_config=inner.to_dict(), vision_config=vision, tie_word_embeddings=tied, **more, **IDS)
    return c


def model_class(family):
    return AutoModelForImageTextToText if family in WRAPPERS else AutoModelForCausalLM


def text_of(config):
    return config.get_text_config()


class Text:
    """The parameters of the text model that golden.fill fills."""

    def __init__(self, model):
        self.model, self.config = model, model.config

    def named_parameters(self):
        tied = self.config.tie_word_embeddings
        for name, p in self.model.named_parameters():
            if "vis" not in name and (p.dim() > 1 or name.endswith(("norm.weight", "bias"))):
                yield ("model.norm.weight" if tied and name.endswith("model.norm.weight") else name), p


def write_model(path, family, dtype, config, seed):
    rng = np.random.RandomState(seed)
    model = model_class(family).from_config(config)
    with torch.no_grad():
        for name, p in sorted(model.named_parameters()):
            if p.dim() < 2 and not name.endswith(("norm.weight", "bias")) or "vis" in name:
                p.copy_(torch.from_numpy(rng.standard_normal(tuple(p.shape)).astype(np.float32) * (1.0 if name.endswith("sinks") else 0.1)))
    golden.fill(Text(model), rng, family in OFFSET)
    with torch.no_grad():       # decays between a few and thousands of tokens, and a norm without an offset
        for name, p in sorted(model.named_parameters()):
            if name.endswith("A_log"):
                p.copy_(torch.from_numpy(rng.uniform(-7, 1, tuple(p.shape)).astype(np.float32)))
            if name.endswith("linear_attn.norm.weight"):
                p.add_(1)
            if p.dim() == 3 and "vis" not in name:
                p.copy_(torch.from_numpy(rng.standard_normal(tuple(p.shape)).astype(np.float32)))
    with torch.no_grad():       # Gemma 4 has no factor of scores but the weights of these norms
        for name, p in sorted(model.named_parameters()):
            if name.endswith(("router.scale", "per_expert_scale")):
                p.copy_(torch.from_numpy(1 + rng.standard_normal(tuple(p.shape)).astype(np.float32) * 0.2))
            if family.startswith("gemma4") and name.endswith("q_norm.weight"):
                p.mul_(0.2)
        for name, p in model.named_buffers():
            if name.endswith(("e_score_correction_bias", "expert_bias")):
                p.copy_(torch.from_numpy(rng.standard_normal(tuple(p.shape)).astype(np.float32) * (0.3 if name.endswith(".expert_bias") else 0.1)))
            if name.endswith("layer_scalar"):
                p.fill_(float(rng.uniform(0.5, 1.5)))
    model.to(DTYPES[dtype])
    model.generation_config = transformers.GenerationConfig()
    model.save_pretrained(path)
    for f in ("generation_config.json", "preprocessor_config.json", "processor_config.json"):
        if os.path.exists(os.path.join(path, f)):
            os.remove(os.path.join(path, f))
    golden.write_tokenizer(os.path.join(path, "tokenizer.json"), text_of(config).vocab_size, config)


def to_mxfp4(path):
    """Rewrites the experts of a gpt-oss as it is published: blocks of fp4 with scales of their own, outputs as rows."""
    file = os.path.join(path, "model.safetensors")
    tensors = load_file(file)
    grid = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])
    for name in [n for n in tensors if n.endswith(("experts.gate_up_proj", "experts.down_proj"))]:
        w = tensors.pop(name).float().transpose(1, 2)
        groups = w.reshape(*w.shape[:2], -1, 32)
        exponent = torch.floor(torch.log2(groups.abs().amax(-1))) - 2
        codes = (groups / 2.0 ** exponent[..., None]).unsqueeze(-1).sub(grid).abs().argmin(-1).to(torch.uint8)
        tensors[name + "_blocks"] = (codes[..., 0::2] | codes[..., 1::2] << 4).contiguous()
        tensors[name + "_scales"] = (exponent + 127).to(torch.uint8)
    save_file(tensors, file, metadata={"format": "pt"})
    config = os.path.join(path, "config.json")
    with open(config) as f:
        c = json.load(f)
    golden.write_json(config, c | dict(quantization_config=dict(quant_method="mxfp4", modules_to_not_convert=["model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"])))


def load(path, family, attention, dtype):
    model, info = model_class(family).from_pretrained(path, dtype=torch.float32, attn_implementation=attention, experts_implementation="eager",
                                                            output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"] and not info["mismatched_keys"], info
    model.config.output_router_logits = family.startswith("gemma4")      # else Gemma 4 drops rows before layers that share keys, and fails without inputs for each layer
    if family.startswith("gemma"):      # the scale has the value that it has in the checkpoint's dtype
        for table in (model.model.embed_tokens, getattr(model.model, "embed_tokens_per_layer", None)):
            if table is not None:
                table.embed_scale = table.embed_scale.to(DTYPES[dtype]).to(table.embed_scale.dtype)
    return model.eval()


def keys_of(cache, text):
    """The keys of each layer; those of a layer that has none are those of the last layer of its kind before the layers that share."""
    if "layer_types" in text.to_dict() and any(k in ("linear_attention", "conv") for k in text.layer_types or []):
        return [layer.keys[0] if kind == "full_attention" else None for layer, kind in zip(cache.layers, text.layer_types)]
    own = [layer.keys[0] if layer.keys is not None else None for layer in cache.layers]
    own += [None] * (text.num_hidden_layers - len(own))
    kinds, first = getattr(text, "layer_types", None), text.num_hidden_layers - (getattr(text, "num_kv_shared_layers", 0) or 0)
    return [k if k is not None else own[max(j for j in range(first) if kinds[j] == kinds[i])] for i, k in enumerate(own)]


def forward_of(family):
    return forward_recurrent if family in RECURRENT else golden.forward


def bf16_error(path, family, ids, logits):
    """How far transformers itself is off in bf16: root mean square and maximum, in standard deviations of the logits."""
    model = model_class(family).from_pretrained(path, dtype=torch.bfloat16, attn_implementation="eager").eval()
    model.config.output_router_logits = family.startswith("gemma4")      # as in load
    with torch.no_grad():
        off = forward_of(family)(model, ids)[0].float() - logits
    return float(off.pow(2).mean().sqrt() / logits.std()), float(off.abs().max() / logits.std())


def record(path, name, family, dtype, config, seed, n_greedy, plain):
    """plain: the directory that transformers reads."""
    forward = forward_of(family)
    text, T = text_of(config), 200 if family in RECURRENT else 60
    V = text.vocab_size
    rng = np.random.RandomState(seed + 7)
    ids = [256] + [int(x) for x in rng.randint(0, 250, T - 1)]
    with torch.no_grad():
        model = load(plain, family, "eager", dtype)
        logits, cache = forward(model, ids)
        keys = [k.clone() for k in keys_of(cache, text) if k is not None]
        layers = [i for i, k in enumerate(keys_of(cache, text)) if k is not None]
        greedy, margins = decode(model, logits, cache, n_greedy, [257], T)
        l2, c2 = forward(load(plain, family, "eager" if family in EAGER else "sdpa", dtype), ids)
        l3, c3 = forward(load(plain, family, "eager", dtype).double(), ids)
        k2, k3 = ([k for k in keys_of(c, text) if k is not None] for c in (c2, c3))
        sdpa, f64 = max(worst([logits], [l2]), worst(keys, k2)), max(worst([logits], [l3]), worst(keys, k3))
        assert sdpa < 1e-4 and f64 < 1e-4, (name, sdpa, f64)
    rows = [0, 1, 7, 14, 15, 16, 17, 23, 24, 25, 31, 32, 33, 47, 48, 58, 59]
    if family in RECURRENT:
        rows = [0, 1, 2, 3, 4, 31, 62, 63, 64, 65, 66, 67, 95, 126, 127, 128, 129, 191, 192, 193, 198, 199]
    save_file({"logits": logits[rows].contiguous(), "logit_rows": torch.tensor(rows, dtype=torch.int32), "ids": torch.tensor(ids, dtype=torch.int32),
               "greedy": torch.tensor(greedy, dtype=torch.int32), "margins": torch.tensor(margins, dtype=torch.float32)} |
              {f"keys.{i}": k.float().contiguous() for i, k in zip(layers, keys)}, os.path.join(path, "golden.safetensors"))
    for f in os.listdir(path):
        os.chmod(os.path.join(path, f), 0o644)
    bf16_rms, bf16_max = bf16_error(plain, family, ids, logits)
    return {"bf16_rms": round(bf16_rms, 5), "bf16_max": round(bf16_max, 5), "dir": name, "family": family, "dtype": dtype, "T": T, "rows": len(rows), "stop_ids": [257], "n_greedy": n_greedy, "layers": text.num_hidden_layers,
            "min_margin": round(min(margins), 6), "kinds": len(set(greedy)), "vocab": V, "std": float(logits.std()), "sdpa": sdpa, "f64": f64}


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("out")
    ap.add_argument("--sweep", action="store_const", const="options")
    ap.add_argument("--pairs", action="store_const", const="pairs", dest="sweep")
    ap.add_argument("--only", action="append")
    ap.add_argument("--resume", action="store_true", help="leave out models that index.json has")
    args = ap.parse_args()
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    os.makedirs(args.out, exist_ok=True)
    index = {}
    if (args.only or args.resume) and os.path.exists(os.path.join(args.out, "index.json")):
        with open(os.path.join(args.out, "index.json")) as f:
            index = {row["dir"]: row for row in json.load(f)}
    for i, (name, family, dtype, text) in enumerate(cases(args.sweep)):
        if args.only and family not in args.only and name not in args.only:
            continue
        if args.resume and name in index:
            continue
        path = os.path.join(args.out, name)
        for salt in range(20):      # greedy texts that do not repeat one token, with margins beyond rounding errors
            shutil.rmtree(path, ignore_errors=True)
            seed = sum(map(ord, name)) * 100 + salt
            row = None
            try:
                write_model(path, family, dtype, make_config(family, text), seed)
                if "mxfp4" in name:
                    to_mxfp4(path)
                form = next((f for f in golden_forms.FORMS if f in name), None)
                plain, code = golden_forms.convert(path, form) if form else (path, dict(bits=4, group=32) if "mxfp4" in name else {})
                row = record(path, name, family, dtype, make_config(family, text), seed, 16 if args.sweep else 40, plain) | code
                if plain != path:
                    shutil.rmtree(plain)
            except Exception as why:        # options that exclude each other
                if args.sweep != "pairs":
                    raise
                print(f"{name}: skipped, transformers fails: {type(why).__name__} {str(why)[:100]}", flush=True)
                break
            if args.sweep or (row["min_margin"] > 2e-3 and row["kinds"] >= 5):
                break
        if row is None:
            continue
        size = sum(os.path.getsize(os.path.join(path, f)) for f in os.listdir(path))
        print(f"{name:34} std {row.pop('std'):.2f} margin {row['min_margin']:.4f} kinds {row['kinds']:2} sdpa {row.pop('sdpa'):.1e} f64 {row.pop('f64'):.1e} {size // 1024} KB salt {salt}", flush=True)
        index[name] = row
        golden.write_json(os.path.join(args.out, "index.json"), list(index.values()))
    names = [name for name, *_ in cases(args.sweep) if name in index]
    golden.write_json(os.path.join(args.out, "index.json"), [index[name] for name in names])


if __name__ == "__main__":
    main()
