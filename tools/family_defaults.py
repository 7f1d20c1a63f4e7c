#!/usr/bin/env python3
"""Writes what a config.json without any field but model_type means to transformers, a line for each family of registry.def.

usage: tools/family_defaults.py OUT.jsonl [TYPE]...      (in git: tests/model/family_defaults.jsonl; TYPE: these lines alone are replaced)

Golden models state every size, so that they cannot find a wrong default. A line has the names and shapes of the parameters of the class's own
default model (outside the layers, of layer 0 and of the last layer; without the prefix), and what no shape says: see facts(). The models are built
on torch's meta device, without memory for their weights. tests/model/test_family_defaults.c compares.
"""
import json
import os
import re
import sys

os.environ.setdefault("HF_HUB_OFFLINE", "1")
import torch
import transformers
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText
from transformers.core_model_loading import revert_weight_conversion

# what some classes need: their own default configuration builds no model, or one whose width is no multiple of its heads
NEEDED = {"hunyuan_v1_dense": dict(head_dim=128), "glm4_moe": dict(head_dim=128), "ministral": dict(head_dim=128),
          "lfm2_moe": dict(layer_types=["conv", "full_attention"] * 16)}
# text models of wrappers that transformers builds within their wrapper only
WITHIN = {"qwen2_5_vl_text": "qwen2_5_vl", "qwen3_vl_text": "qwen3_vl", "gemma4_unified_text": "gemma4_unified"}
SCALARS = ("embedding_multiplier", "residual_multiplier", "logits_scaling", "logit_scale", "attn_logit_softcapping", "final_logit_softcapping")
# matrices of experts have several names and layouts, and are left out
EXPERTS = re.compile(r"\.experts\.|_sparse_moe\.(in|out)put_linear\.")
HERE = os.path.dirname(os.path.abspath(__file__))


def registry():
    with open(os.path.join(HERE, "..", "src", "model", "families", "registry.def")) as f:
        return dict(re.findall(r'^FAMILY\("(\w+)".*, (?:NULL|"([^"]*)")\)$', f.read(), re.M))


def build(config):
    for auto in (AutoModelForCausalLM, AutoModelForImageTextToText):
        if type(config) in auto._model_mapping:
            with torch.device("meta"):
                return auto.from_config(config)
    raise SystemExit(f"{config.model_type}: transformers {transformers.__version__} has no class for it")


def decoder(model):
    """The module that has the layers of the text model."""
    found = [(name, m) for name, m in model.named_modules() if hasattr(m, "layers") and hasattr(m, "embed_tokens")]
    return min(found, key=lambda x: len(x[0]))[1]


def stored_tensors(model):
    """Parameters and buffers under the names that save_pretrained writes, shared ones once."""
    stored = model.state_dict()
    own = {name: x for name, x in [*model.named_parameters(), *model.named_buffers()] if name in stored}
    return revert_weight_conversion(model, own)


def ropes(text, rotary):
    """Number, second and last of the inverse frequencies, for each kind of layers."""
    table = type(rotary)(text)
    out = {}
    for name, f in table.named_buffers():
        if name.endswith("inv_freq") and "original" not in name:
            out[name.removesuffix("inv_freq").rstrip("_") or "all"] = [f.numel(), float(f[1]), float(f[-1])]
    return out


def windows(text):
    kinds, window = getattr(text, "layer_types", None), getattr(text, "sliding_window", None)
    if not window:
        return 0, 0
    n = sum(k == "sliding_attention" for k in kinds) if kinds else text.num_hidden_layers
    return (window if n else 0), n


def facts(model_type, text_types):
    given = NEEDED.get(model_type, {}) | ({"text_config": {"model_type": text_types.split()[0]}} if text_types else {})
    config = AutoConfig.for_model(WITHIN.get(model_type, model_type), **given)
    try:
        text, model = config.get_text_config(), build(config)
    except (TypeError, ValueError, AttributeError) as e:
        raise SystemExit(f"{model_type}: transformers builds no model of the class's defaults ({e}); NEEDED has what such classes need")
    inner = decoder(model)
    last = len(inner.layers) - 1
    attention = next(layer.self_attn for layer in inner.layers if hasattr(layer, "self_attn"))
    stored = stored_tensors(model)
    prefix = next(name for name in stored if name.endswith("embed_tokens.weight")).removesuffix("embed_tokens.weight")
    tensors = {}
    for name, x in stored.items():
        short = name.removeprefix(prefix)
        layer = re.match(r"layers\.(\d+)\.", short)
        if not (name.startswith(prefix) or name.startswith("lm_head")) or layer and int(layer[1]) not in (0, last) or EXPERTS.search(short):
            continue
        tensors[short] = list(x.shape)
    window, sliding = windows(text)
    tied = getattr(config, "tie_word_embeddings", getattr(text, "tie_word_embeddings", False))
    return {
        "config": {"model_type": model_type} | given, "layers": last + 1, "positions": text.max_position_embeddings,
        "eps": next(getattr(text, k) for k in ("rms_norm_eps", "layer_norm_eps", "norm_eps") if hasattr(text, k)),
        "act": getattr(text, "hidden_activation", None) or getattr(text, "hidden_act", "silu"),
        "scale": attention.scaling * getattr(attention, "qk_scale_factor", 1.0), "window": window, "sliding": sliding,
        "scalars": {k: getattr(text, k) for k in SCALARS if hasattr(text, k)}, "ropes": ropes(text, getattr(inner, "rotary_emb", None) or inner.pos_emb), "tied": bool(tied),
        "tensors": tensors}


def main():
    out, only = sys.argv[1], sys.argv[2:]
    transformers.logging.set_verbosity_error()
    rows = {}
    if only and os.path.exists(out):
        with open(out) as f:
            rows = {r["config"]["model_type"]: r for r in map(json.loads, f)}
    families = registry()
    for t in only or families:
        rows[t] = facts(t, families.get(t))
    with open(out, "w") as f:
        f.writelines(json.dumps(rows[t]) + "\n" for t in sorted(rows))


if __name__ == "__main__":
    main()
