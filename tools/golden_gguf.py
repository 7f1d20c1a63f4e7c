#!/usr/bin/env python3
"""Writes the golden models of tests/golden as GGUF files with llama.cpp's own converter, and records values of GGUF's quantised types.

usage: python tools/golden_gguf.py LLAMA_CPP OUT [MODEL_DIR...]
       python tools/golden_gguf.py --wide LLAMA_CPP OUT [FAMILY...]      needs torch and transformers, too

LLAMA_CPP is a checkout of llama.cpp, or the folder vendor/llama.cpp of the source of llama-cpp-python; its modules `conversion` and
`gguf-py` are used. OUT gets NAME.gguf for each model, with the tokenizer of its directory, and blocks.json: for each type the SHA-256 of the f32 numbers that
gguf's dequantize gives for blocks made of a fixed sequence (blocks_of). The files in tests/golden/gguf are those of the default models.

--wide: a random model of every family that llama.cpp converts, whose rows have 256 columns, so that they fit each type of tensors
(tools/check_gguf_types.py).
"""
import hashlib
import json
import os
import pathlib
import shutil
import sys
import tempfile

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parent.parent / "tests" / "golden"
MODELS = ["llama-llama3-bf16", "families/phi3-long-partial-bf16", "families/gemma2-base-bf16", "families/gemma4_text-shared-k-eq-v-bf16",
          "families/mixtral-base-bf16", "families/glm4_moe-base-bf16", "families/gpt_oss-mxfp4-bf16", "families/muse_glimmer-base-bf16",
          "families/qwen3_5_text-last-linear-bf16", "families/qwen3_5_moe_text-bias-bf16", "families/apertus-bias-bf16",
          "families/lfm2_moe-base-f16", "families/granitemoe-base-f16"]
TEMPLATE = "{% for m in messages %}<|{{ m.role }}|>{{ m.content | trim }}{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
# Bytes of a block that hold f16 scales: they become numbers from -1 to 1.
SCALES = {"Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0], "Q2_K": [80, 82], "Q3_K": [108], "Q4_K": [0, 2],
          "Q5_K": [0, 2], "Q6_K": [208], "IQ4_NL": [0], "IQ4_XS": [0], "MXFP4": []}
ROWS, COLUMNS, SUPER = 6, 128, 256  # SUPER: columns of a block with two levels of scales, and of a row of them


def blocks_of(name, n, size):
    """n blocks of a linear congruential sequence; tests/model/test_gguf_model.c makes the same."""
    x, out = 1, bytearray()
    for _ in range(n * size):
        x = (x * 1664525 + 1013904223) & 0xFFFFFFFF
        out.append(x >> 24)
    for block in range(n):
        for at in SCALES[name]:
            out[block * size + at + 1] &= 0xBB  # exponents of f16 below that of 1
        if name == "MXFP4":
            out[block * size] = out[block * size] & 0x3F | 0x40  # 2^-63 to 1
    return bytes(out)


def write_values(out):
    import gguf
    values = {}
    for name in SCALES:
        kind = gguf.GGMLQuantizationType[name]
        elements, size = gguf.GGML_QUANT_SIZES[kind]
        n = ROWS * (SUPER if elements == SUPER else COLUMNS) // elements
        data = np.frombuffer(blocks_of(name, n, size), dtype=np.uint8).reshape(ROWS, n * size // ROWS)
        numbers = np.ascontiguousarray(gguf.quants.dequantize(data, kind), dtype="<f4") + np.float32(0)  # -0 becomes 0
        values[name] = hashlib.sha256(numbers.tobytes()).hexdigest()
    with open(out / "blocks.json", "w") as f:
        json.dump(values, f, indent=1)
        f.write("\n")


def convert(source, out):
    import gguf
    import torch
    from conversion import ModelType, get_model_architecture, get_model_class
    from conversion.base import ModelBase

    def write_tokens(self):
        with open(self.dir_model / "tokenizer.json", encoding="utf-8") as f:
            tok = json.load(f)
        added = {t["id"]: t for t in tok["added_tokens"]}
        text = {i: t for t, i in tok["model"]["vocab"].items()} | {i: t["content"] for i, t in added.items()}
        w, kind = self.gguf_writer, gguf.TokenType
        w.add_tokenizer_model("gpt2")
        w.add_tokenizer_pre("gpt-2")
        w.add_token_list([text[i].encode() for i in range(len(text))])
        w.add_token_types([kind.NORMAL if i not in added else kind.CONTROL if added[i]["special"] else kind.USER_DEFINED for i in range(len(text))])
        w.add_token_merges([" ".join(m) for m in tok["model"]["merges"]])
        w.add_add_bos_token(False)
        w.add_chat_template(TEMPLATE)

    kinds = {"bf16": gguf.LlamaFileType.MOSTLY_BF16, "f16": gguf.LlamaFileType.MOSTLY_F16, "f32": gguf.LlamaFileType.ALL_F32}
    with tempfile.TemporaryDirectory() as t, torch.inference_mode():
        work = pathlib.Path(t) / source.name
        shutil.copytree(source, work, ignore=shutil.ignore_patterns("golden*"))
        made = get_model_class(get_model_architecture(ModelBase.load_hparams(work, False), ModelType.TEXT))
        if hasattr(made, "Ministral3Model"):
            made.Ministral3Model.set_vocab = write_tokens
        plain = type("Plain", (made,), {"set_vocab": write_tokens, "model_arch": made.model_arch, "no_mtp": True})
        plain(work, kinds[source.name.split("-")[-1]], out / (source.name + ".gguf"), eager=True).write()


def wide_config(family, start):
    """The configuration of a family with rows of 256 columns in every matrix that files quantise."""
    c = start | dict(hidden_size=256, intermediate_size=256, vocab_size=266, num_attention_heads=4, num_key_value_heads=2)
    sizes = dict(head_dim=64, moe_intermediate_size=256, shared_expert_intermediate_size=256, global_head_dim=128, linear_key_head_dim=32,
                 linear_value_head_dim=64)
    c |= {k: v for k, v in sizes.items() if k in start}
    rope = c.get("rope_parameters") or {}
    if family == "cohere2":
        c["rotary_pct"] = 1.0       # a key of its files, which the converter reads
    if family == "hunyuan_v1_dense":
        c["max_position_embeddings"] = 32768    # the converter expects it
    if "mrope_section" in rope:
        c["rope_parameters"] = rope | dict(mrope_section=[12, 10, 10] if "head_dim" in start else [16, 8, 8])
    return c


def wide_models(names):
    """Yields name, family and configuration of a model of each family, or of those that are named."""
    import golden
    import golden_families as g
    rope = golden.rope(5e4)
    more = {"llama": g.base(rope_parameters=rope), "qwen2": g.base(rope_parameters=rope), "qwen3": g.base(head_dim=12, rope_parameters=rope),
            "gemma3_text": g.base(head_dim=12, sliding_window=16, num_hidden_layers=6, rope_parameters={
                "sliding_attention": golden.rope(1e4), "full_attention": golden.rope(1e6)})}
    starts = more | {family: start for family, (start, _) in g.FAMILIES.items()}
    for option in "shared-k-eq-v", "inputs-shared", "experts":
        starts["gemma4_text-" + option] = g.FAMILIES["gemma4_text"][0] | g.FAMILIES["gemma4_text"][1][option]
    for name, start in starts.items():
        if not names or name in names:
            family = name.split("-")[0]
            yield name, family, wide_config(family, start)


def write_wide(out, names):
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    import golden_families as g
    for name, family, config in wide_models(names):
        with tempfile.TemporaryDirectory() as t:
            source = pathlib.Path(t) / (name + "-wide-f32")
            try:
                g.write_model(str(source), family, "f32", g.make_config(family, config), sum(map(ord, name)))
                convert(source, out)
                print(name, "written", flush=True)
            except (NotImplementedError, ValueError, KeyError, AssertionError) as why:     # llama.cpp does not convert it
                print("%s: NOT written, llama.cpp: %s %s" % (name, type(why).__name__, str(why)[:100]), flush=True)
    return 0


def main(argv):
    wide = "--wide" in argv
    argv = [a for a in argv if a != "--wide"]
    if len(argv) < 3:
        print(__doc__.strip(), file=sys.stderr)
        return 2
    sys.path[:0] = [argv[1], os.path.join(argv[1], "gguf-py")]
    out = pathlib.Path(argv[2])
    out.mkdir(parents=True, exist_ok=True)
    if wide:
        return write_wide(out, argv[3:])
    for source in [pathlib.Path(d) for d in argv[3:]] or [ROOT / m for m in MODELS]:
        convert(source, out)
    write_values(out)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
