#!/usr/bin/env python3
"""Records the embeddings that sentence-transformers computes, for tests/engine/test_sentence.c.

usage: python tools/golden_sentence.py > tests/engine/sentence_cases.jsonl
       python tools/golden_sentence.py --model          tests/golden/gemma3-embedding-f32
       python tools/golden_sentence.py --random N [SEED] > /tmp/cases.jsonl && build/test_sentence /tmp/cases.jsonl

A line is a case: the files that are added to a copy of the model `base` of tests/golden (a safetensors file as base64), texts, the
name of a prompt, and the vectors of float64 arithmetic. `bound` is 3 times the largest error of float32 arithmetic in the same
library. `normalize`: whether the test asks for length 1 as encode(normalize_embeddings=True) does; null: what the files say."""
import base64
import json
import os
import random
import shutil
import sys
import tempfile

os.environ.setdefault("HF_HUB_OFFLINE", "1")
import torch
from safetensors.torch import save
from sentence_transformers import SentenceTransformer

GOLDEN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "golden")
BASE, BOTH_WAYS = "llama-plain-f32", "gemma3-embedding-f32"
D = 32      # of both
TEXTS = ["Hello world", "a", "The quick brown fox jumps over the lazy dog, and the dog does not mind.", "Ünïcode ÄÖ <end>b"]
ACTIVATIONS = {"Identity": "torch.nn.modules.linear.Identity", "Tanh": "torch.nn.modules.activation.Tanh",
               "ReLU": "torch.nn.modules.activation.ReLU", "GELU": "torch.nn.modules.activation.GELU",
               "SiLU": "torch.nn.SiLU", "Sigmoid": "torch.nn.modules.activation.Sigmoid"}
WAYS = ["cls", "max", "mean", "mean_sqrt_len_tokens", "weightedmean", "lasttoken"]
SWITCHES = ["pooling_mode_cls_token", "pooling_mode_max_tokens", "pooling_mode_mean_tokens", "pooling_mode_mean_sqrt_len_tokens",
            "pooling_mode_weightedmean_tokens", "pooling_mode_lasttoken"]


class Case:
    """The files of one directory, while its modules are added."""

    def __init__(self, name, seed=1):
        self.name, self.files, self.modules = name, {}, []
        self.prompt_name, self.normalize, self.texts, self.dimensions, self.base = None, None, TEXTS, 0, BASE
        self.random = torch.Generator().manual_seed(seed)
        self.add("Transformer", "")

    def add(self, kind, path, config=None, tensors=None, package="sentence_transformers.models"):
        i = len(self.modules)
        self.modules.append({"idx": i, "name": str(i), "path": path, "type": f"{package}.{kind}"})
        if config is not None:
            self.files[f"{path}/config.json"] = json.dumps(config)
        if tensors:
            self.files[f"{path}/model.safetensors"] = base64.b64encode(save(tensors)).decode()
        return self

    def pool(self, mode="mean", path="1_Pooling", **more):
        return self.add("Pooling", path, {"embedding_dimension": D, "pooling_mode": mode, **more})

    def numbers(self, *shape):
        return torch.randn(*shape, generator=self.random) / shape[-1] ** 0.5

    def dense(self, n_in, n_out, act="Tanh", bias=True, residual=False, dtype=torch.float32):
        path = f"{len(self.modules)}_Dense"
        config = {"in_features": n_in, "out_features": n_out, "bias": bias}
        if act:
            config["activation_function"] = ACTIVATIONS[act]
        tensors = {"linear.weight": self.numbers(n_out, n_in).to(dtype)}
        if bias:
            tensors["linear.bias"] = self.numbers(n_out).to(dtype)
        if residual:
            config["use_residual"] = True
            if n_in != n_out:
                tensors["residual.weight"] = self.numbers(n_out, n_in).to(dtype)
        return self.add("Dense", path, config, tensors)

    def layer_norm(self, n):
        return self.add("LayerNorm", f"{len(self.modules)}_LayerNorm", {"dimension": n},
                        {"norm.weight": 1 + self.numbers(n), "norm.bias": self.numbers(n)})

    def unit(self):
        return self.add("Normalize", f"{len(self.modules)}_Normalize")

    def config(self, **keys):
        self.files["config_sentence_transformers.json"] = json.dumps(keys)
        return self

    def transformer(self, file="sentence_bert_config.json", **keys):
        self.files[file] = json.dumps(keys)
        return self

    def specials(self, before=(256,), after=(257,)):
        """A post-processor that adds ids before and after each text."""
        with open(os.path.join(GOLDEN, self.base, "tokenizer.json"), encoding="utf-8") as f:
            tok = json.load(f)
        named = {t["id"]: t["content"] for t in tok["added_tokens"]}
        token = lambda i: {"SpecialToken": {"id": named[i], "type_id": 0}}
        tok["post_processor"] = {
            "type": "TemplateProcessing", "pair": [],
            "single": [*map(token, before), {"Sequence": {"id": "A", "type_id": 0}}, *map(token, after)],
            "special_tokens": {named[i]: {"id": named[i], "ids": [i], "tokens": [named[i]]} for i in {*before, *after}}}
        tok["post_processor"]["pair"] = tok["post_processor"]["single"] + [{"Sequence": {"id": "B", "type_id": 1}}]
        self.files["tokenizer.json"] = json.dumps(tok, ensure_ascii=False)
        return self

    def tokenizer_config(self, **keys):
        # the class as which transformers opens tokenizer.json as it is
        self.files["tokenizer_config.json"] = json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<eos>",
                                                          "bos_token": "<bos>", "pad_token": "<pad>", **keys})
        return self

    def record(self, out):
        self.files.setdefault("modules.json", json.dumps(self.modules))
        if "tokenizer_config.json" not in self.files:
            self.tokenizer_config()
        with tempfile.TemporaryDirectory() as d:
            for name in ("config.json", "model.safetensors", "tokenizer.json"):
                shutil.copy(os.path.join(GOLDEN, self.base, name), d)
            for name, text in self.files.items():
                os.makedirs(os.path.dirname(os.path.join(d, name)), exist_ok=True)
                with open(os.path.join(d, name), "wb") as f:
                    f.write(base64.b64decode(text) if name.endswith(".safetensors") else text.encode())
            got = []
            for dtype in (torch.float64, torch.float32):
                m = SentenceTransformer(d, device="cpu", model_kwargs={"dtype": dtype, "attn_implementation": "eager"})
                got.append([m.encode(t, prompt_name=self.prompt_name, convert_to_tensor=True,
                                     normalize_embeddings=self.normalizes(),
                                     **({"truncate_dim": self.dimensions} if self.dimensions else {})).double() for t in self.texts])
        bound = 3 * max((a - b).abs().max().item() for a, b in zip(*got))
        line = {"name": self.name, "base": self.base, "files": self.files, "texts": self.texts, "prompt_name": self.prompt_name,
                "normalize": self.normalize, "dimensions": self.dimensions, "bound": float(f"{bound:.4g}"),
                "vectors": [[float(f"{x:.9g}") for x in v.tolist()] for v in got[0]]}
        print(json.dumps(line, ensure_ascii=False), file=out)

    def normalizes(self):
        """Vectors that are compared by direction have length 1 in linnet."""
        if self.normalize is not None:
            return self.normalize
        name = json.loads(self.files.get("config_sentence_transformers.json", "{}")).get("similarity_fn_name")
        return name not in ("dot", "euclidean", "manhattan")


PROMPTS = {"query": "Find: ", "document": "", "other": "<end>Text, "}


def fixed():
    for way in WAYS:
        yield Case(f"way {way}").pool(way).config(similarity_fn_name="dot")
    c = Case("switches are concatenated in a fixed order").config(similarity_fn_name="dot")
    yield c.add("Pooling", "1_Pooling", {"pooling_mode_lasttoken": True, "pooling_mode_mean_tokens": True,
                                         "pooling_mode_cls_token": True, "word_embedding_dimension": D})
    c = Case("no switch is set")
    yield c.add("Pooling", "p", {"pooling_mode_cls_token": False, "word_embedding_dimension": D})
    c = Case("a mode beside switches")
    yield c.add("Pooling", "p", {"pooling_mode": "max", "pooling_mode_cls_token": True, "word_embedding_dimension": D})
    yield Case("modes in the order of the list").pool(["lasttoken", "max", "mean"]).unit()
    yield Case("the path of the pooling").pool("max", path="sub/pooling").unit()
    yield Case("default prompt").pool().unit().config(prompts=PROMPTS, default_prompt_name="query")
    c = Case("named prompt").pool().unit().config(prompts=PROMPTS, default_prompt_name="query")
    c.prompt_name = "other"
    yield c
    c = Case("an empty prompt by name").pool().config(prompts={"query": "Find: "}, default_prompt_name="query")
    c.prompt_name = "document"
    yield c
    c = Case("a prompt that is null").pool().config(prompts={"query": "Find: ", "x": None}, default_prompt_name="query")
    c.prompt_name = "x"
    yield c
    for way in WAYS:
        yield (Case(f"prompt not pooled, {way}").pool(way, include_prompt=False).specials()
               .config(prompts=PROMPTS, default_prompt_name="query", similarity_fn_name="dot"))
    yield (Case("prompt not pooled, no special tokens").pool("mean", include_prompt=False)
           .config(prompts=PROMPTS, default_prompt_name="other", similarity_fn_name="dot"))
    for act in ACTIVATIONS:
        yield Case(f"dense {act}", seed=len(act)).pool().dense(D, 7, act).config(similarity_fn_name="dot")
    yield Case("dense without an activation in its file").pool().dense(D, 5, None).config(similarity_fn_name="dot")
    yield Case("dense of concatenated ways").pool(["mean", "max"]).dense(2 * D, 20, "Identity", bias=False).unit()
    yield Case("dense with its input added").pool().dense(D, D, "GELU", residual=True).config(similarity_fn_name="dot")
    yield (Case("dense with a projection of its input").pool().dense(D, 9, "ReLU", residual=True)
           .config(similarity_fn_name="dot"))
    yield Case("several modules").pool("lasttoken").unit().dense(D, 40, "Tanh").layer_norm(40).dense(40, 8, "Identity").unit()
    yield Case("layer norm").pool().layer_norm(D).config(similarity_fn_name="euclidean")
    yield Case("dropout").pool().add("Dropout", "2_Dropout", {"dropout": 0.5})
    yield Case("normalize before the pooling").unit().pool().config(similarity_fn_name="manhattan")
    yield Case("packages of newer versions").add(
        "Pooling", "1_Pooling", {"embedding_dimension": D, "pooling_mode": "cls"},
        package="sentence_transformers.sentence_transformer.modules.pooling")
    yield Case("truncate_dim").pool().unit().config(truncate_dim=6)
    yield Case("truncate_dim of vectors compared by dot product").pool().unit().config(truncate_dim=6, similarity_fn_name="dot")
    c = Case("dimensions before truncate_dim").pool().config(truncate_dim=6)
    c.dimensions = 10
    yield c
    c = Case("length 1 by request").pool().config(similarity_fn_name="dot")
    c.normalize = True
    yield c
    c = Case("length kept by request").pool()
    c.normalize = False
    yield c
    yield Case("max_seq_length").pool().transformer(max_seq_length=9)
    yield Case("max_seq_length and special tokens").pool().specials().transformer(max_seq_length=9, do_lower_case=False)
    yield (Case("max_seq_length and a prompt").pool(include_prompt=False).specials().transformer(max_seq_length=9)
           .config(prompts=PROMPTS, default_prompt_name="query"))
    yield Case("model_max_length").pool().specials().tokenizer_config(model_max_length=12)
    yield Case("max_seq_length before model_max_length").pool().transformer(max_seq_length=20).tokenizer_config(model_max_length=12)
    yield Case("cut at the left").pool("cls").specials().transformer(max_seq_length=9).tokenizer_config(truncation_side="left")
    yield Case("do_lower_case").pool().transformer(do_lower_case=True)
    yield Case("an older name of the file").pool().transformer("sentence_roberta_config.json", max_seq_length=7)
    yield Case("arguments of classes").pool().transformer(
        model_args={"attn_implementation": "eager"}, tokenizer_args={"model_max_length": 8}, max_seq_length=20)
    yield Case("processing_kwargs").pool().transformer(processing_kwargs={"text": {"max_length": 8}}, unpad_inputs=False)
    yield Case("modality_config").pool().transformer(
        transformer_task="feature-extraction", module_output_name="token_embeddings",
        modality_config={"text": {"method": "forward", "method_output_name": "last_hidden_state"}})


    yield from both_ways()


GEMMA_PROMPTS = {"query": "task: search result | query: ", "document": "title: none | text: ", "STS": "task: sentence similarity | query: "}
GEMMA_TEXTS = TEXTS + ["x", "Mixed lengths: " + "a longer text, whose first tokens see its last ones; " * 3]


def both_ways():
    """Tokens attend to later ones: the modules of EmbeddingGemma, and other windows and layers."""
    def case(name, seed, config=None):
        c = Case(name, seed=seed)
        c.base, c.texts = BOTH_WAYS, GEMMA_TEXTS
        if config:
            with open(os.path.join(GOLDEN, BOTH_WAYS, "config.json"), encoding="utf-8") as f:
                c.files["config.json"] = json.dumps(json.load(f) | config)
        return c

    def modules(c, width=20):       # 3072 of 768 there
        return (c.pool("mean", include_prompt=True).dense(D, width, "Identity", bias=False).dense(width, D, "Identity", bias=False).unit()
                .specials().transformer(max_seq_length=128, do_lower_case=False)
                .config(prompts=GEMMA_PROMPTS, default_prompt_name=None, similarity_fn_name="cosine"))

    yield modules(case("both ways, modules of EmbeddingGemma", 31), 2 * D)
    c = modules(case("both ways, a prompt", 32))
    c.prompt_name = "query"
    yield c
    c = modules(case("both ways, fewer dimensions", 33))
    c.dimensions = 8
    yield c
    for way in WAYS:
        yield case(f"both ways, {way}", 34).pool(way).config(similarity_fn_name="dot")
    full, sliding = "full_attention", "sliding_attention"
    yield case("both ways, an odd window", 35, {"sliding_window": 7}).pool().unit()
    yield case("both ways, a window of one token", 36, {"sliding_window": 1}).pool().unit()
    yield case("both ways, no layer with a window", 37, {"layer_types": [full] * 4}).pool().unit()
    yield case("both ways, windows alone", 38, {"layer_types": [sliding] * 4, "sliding_window": 4}).pool("cls").unit()
    yield case("one way", 39, {"use_bidirectional_attention": False}).pool().unit()


def write_model():
    """A model like EmbeddingGemma: the class without a head, whose tensors have no prefix."""
    import numpy as np
    import transformers
    path, rope = os.path.join(GOLDEN, BOTH_WAYS), lambda theta: {"rope_type": "default", "rope_theta": theta}
    config = transformers.Gemma3TextConfig(
        hidden_size=D, intermediate_size=48, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2, head_dim=12, vocab_size=269,
        query_pre_attn_scalar=20, sliding_window=8, use_bidirectional_attention=True, max_position_embeddings=256, bos_token_id=256,
        eos_token_id=257, pad_token_id=0, layer_types=["sliding_attention", "sliding_attention", "full_attention", "sliding_attention"],
        rope_parameters={"full_attention": rope(1e6), "sliding_attention": rope(1e4)})
    model, rng = transformers.Gemma3TextModel(config), np.random.RandomState(7)
    with torch.no_grad():
        for name, p in sorted(model.named_parameters()):
            deviation = 0.2 if p.dim() < 2 else 0.3 if "embed" in name else 1.5 / p.shape[-1] ** 0.5
            p.copy_(torch.from_numpy(rng.standard_normal(tuple(p.shape)).astype(np.float32) * np.float32(deviation)))
    shutil.rmtree(path, ignore_errors=True)
    model.save_pretrained(path)
    shutil.copy(os.path.join(GOLDEN, BASE, "tokenizer.json"), path)
    for f in os.listdir(path):
        os.chmod(os.path.join(path, f), 0o644)


def randomly(n, seed):
    r = random.Random(seed)
    for i in range(n):
        c = Case(f"random {seed}.{i}", seed=seed * 1000003 + i)
        c.base = r.choice([BASE, BOTH_WAYS])
        ways = r.choice([r.choice(WAYS), [r.choice(WAYS) for _ in range(r.randint(1, 4))]])
        if r.random() < 0.2:
            c.unit()
        include = r.random() < 0.5
        c.pool(ways, path=r.choice(["1_Pooling", "p", "a/b"]), include_prompt=include)
        width = D * (1 if isinstance(ways, str) else len(ways))
        for _ in range(r.choice([0, 0, 1, 2, 4])):
            kind = r.choice(["dense", "norm", "unit"])
            if kind == "dense":
                out = r.choice([1, 3, 8, 17, width, 64])
                c.dense(width, out, r.choice([*ACTIVATIONS, None]), r.random() < 0.7, r.random() < 0.3,
                        r.choice([torch.float32, torch.bfloat16, torch.float16]))
                width = out
            elif kind == "norm":
                c.layer_norm(width)
            else:
                c.unit()
        if r.random() < 0.6:
            c.specials(r.choice([(256,), (), (256, 258)]), r.choice([(257,), (), (258, 257)]))
        if r.random() < 0.6:
            c.transformer(max_seq_length=r.choice([5, 6, 9, 30, 200] if include else [30, 200]), do_lower_case=r.random() < 0.3)
        c.tokenizer_config(**r.choice([{}, {"model_max_length": 11 if include else 40}, {"truncation_side": "left"}]))
        keys = {"similarity_fn_name": r.choice(["dot", "euclidean", "cosine", None])}
        if r.random() < 0.7:
            keys["prompts"] = PROMPTS
            keys["default_prompt_name"] = r.choice([None, *PROMPTS])
        if r.random() < 0.3:
            keys["truncate_dim"] = r.randint(1, width)
        c.config(**keys)
        c.prompt_name = r.choice([None, None, "query", "document"])
        c.texts = [t for t in (r.choice(TEXTS) + r.choice(["", " A b", "<end>", "\n\nZ"]) for _ in range(2))]
        yield c


if __name__ == "__main__":
    if "--model" in sys.argv:
        write_model()
        sys.exit()
    cases = randomly(int(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else 1) if "--random" in sys.argv else fixed()
    for case in cases:
        case.record(sys.stdout)
