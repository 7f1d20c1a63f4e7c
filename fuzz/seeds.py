#!/usr/bin/env python3
"""Writes seeds for the fuzzers from the data of the tests: OUT/NAME for each target fuzz_NAME.

usage: fuzz/seeds.py OUT

The corpora in git (fuzz/corpus) are these seeds and inputs that fuzzing found, minimised by fuzz/minimise.sh."""
import base64
import json
import os
import re
import struct
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def text(*parts):
    with open(os.path.join(ROOT, *parts), encoding="utf-8") as f:
        return f.read()


def write(out, name, items):
    os.makedirs(os.path.join(out, name), exist_ok=True)
    for i, data in enumerate(items):
        with open(os.path.join(out, name, "seed%04d" % i), "wb") as f:
            f.write(data if isinstance(data, bytes) else data.encode("utf-8", "surrogatepass"))


def c_strings(source):
    """Yields the values of the C string literals in a source, adjacent ones joined. Supports octal, \\x and single-character escapes."""
    for run in re.findall(r'(?:"(?:[^"\\]|\\.)*"\s*)+', source):
        data = b""
        for piece in re.findall(r'"((?:[^"\\]|\\.)*)"', run):
            raw = piece.encode()
            raw = re.sub(rb"\\x([0-9a-fA-F]{2})", lambda m: bytes([int(m[1], 16)]), raw)
            raw = re.sub(rb"\\([0-7]{1,3})", lambda m: bytes([int(m[1], 8) & 255]), raw)
            raw = re.sub(rb"\\(.)", lambda m: {b"n": b"\n", b"t": b"\t", b"r": b"\r"}.get(m[1], m[1]), raw)
            data += raw
        yield data


def documents():
    """Returns tokenizer.json documents with every type of step, from tests/tokenizer/cases.jsonl, and its texts."""
    bases, lines, texts = {}, [], []
    for line in text("tests", "tokenizer", "cases.jsonl").splitlines():
        o = json.loads(line)
        if "base" in o and "name" in o:
            lines.append(o)
        elif "base" in o:
            bases[o["base"]] = o["model"]
        else:
            texts = o["texts"]
    docs = []
    for o in lines:
        model = dict(bases[o["base"]])
        model.update(o.get("model", {}))
        doc = dict(o["with"], model=model)
        docs.append(json.dumps(doc, ensure_ascii=False, separators=(",", ":")))
    return docs, texts


def forms():
    """Yields the forms of tests/grammar/, each with texts that it is tried with."""
    kinds = {"schema", "text", "regex", "token", "sequence", "choice", "repeat", "prose", "without", "grammar"}
    form = None
    names = ["test_grammar.c", "test_schema.c", "test_keywords.c", "test_ebnf.c"]
    for item in (i for name in names for i in c_strings(text("tests", "grammar", name))):
        try:
            value = json.loads(item)
        except ValueError:
            value = None
        if isinstance(value, dict) and (kinds & set(value) or form is None or set(value) & {"type", "$ref", "anyOf", "allOf", "enum", "const", "properties", "title", "minimum", "items", "prefixItems", "not", "oneOf", "format", "pattern", "enum", "if"}):
            form = item if kinds & set(value) else b'{"schema":' + item + b"}"
            yield form
        elif form:
            yield form + b"\xff" + item


def write_files(out):
    """Writes the seeds of the targets that read files: adapters, indexes, modules, requests, samples, manifests."""
    found = []
    for folder, _, names in os.walk(os.path.join(ROOT, "tests", "golden")):
        found += [json.dumps(json.loads(text(folder, n)), separators=(",", ":")).encode() for n in names if n == "adapter_config.json"]
    peft = b'{"peft_type":"LORA","r":2,"lora_alpha":4,"target_modules":["q_proj","v_proj"]'
    more = [b"}", b',"use_rslora":true}', b',"rank_pattern":{"q_proj":2,"layers.1":3},"alpha_pattern":{"^.*v_proj":8}}', b',"bias":"all"}', b',"lora_bias":true}',
            b',"use_dora":true}', b',"layers_to_transform":[0,1],"layers_pattern":"layers"}', b',"modules_to_save":["lm_head"]}', b',"fan_in_fan_out":null}',
            b',"lora_dropout":0.1,"init_lora_weights":"gaussian","exclude_modules":"k_proj"}', b',"target_parameters":["a"]}', b',"r":0}']
    mlx = [b'{"fine_tune_type":"lora","num_layers":2,"lora_parameters":{"rank":2,"scale":20.0,"dropout":0,"keys":["self_attn.q_proj"]}}', b'{"lora_parameters":{"rank":2}}',
           b'{"fine_tune_type":"dora"}', b'{"rank":2,"alpha":4,"target_keys":["q_proj"]}', b"{}", b"[]", b'{"fine_tune_type":"full","num_layers":-1}']
    write(out, "adapter", [bytes([k]) + c for k in range(3) for c in found[:12] + [peft + m for m in more] + mlx] + [bytes([0]) + peft + b"}\xff\x08\0\0\0\0\0\0\0{}      "])
    a, b, other = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors", "more.safetensors"
    maps = [{"a": a, "b": a, "c": b}, {"a": a, "c": b}, {"a": a, "b": b}, {"b": other, "c": other}, {"a": "../" + a}, {"a": "sub/x.safetensors"}, {"a": "./" + a, "b": "no.safetensors"},
            {"a": 5}, {"a": "C:\\x.safetensors"}, {"a": ""}, {}, [], {"d" * 1100: a}, {"a": a + "/"}, {"a": "/etc/passwd"}]
    write(out, "index", [json.dumps({"metadata": {"total_size": 44}, "weight_map": m}) for m in maps] + ["{}", "[]", '{"weight_map":null}', '{"weight_map":{"a":"%s","a":"%s"}}' % (a, b)])
    kinds = ["Transformer", "Pooling", "Dense", "Normalize", "LayerNorm", "Dropout", "CNN", 7]
    entry = [{"idx": i, "name": str(i), "path": p, "type": k if k == 7 else "sentence_transformers.models." + k} for i, (k, p) in
             enumerate(zip(kinds, ("", "1_Pooling", "2_Dense", "3_Normalize", "2_Dense", "4", "5", "6")))]
    lists = [entry[:2], entry[:3], [entry[0], entry[1], entry[3]], [entry[0], entry[1], entry[2], entry[3]], entry[:1], entry, [dict(entry[0], path="../x"), entry[1]], [entry[1], entry[0]], [], {}]
    pooling = [b'{"word_embedding_dimension":8,"pooling_mode_mean_tokens":true,"pooling_mode_cls_token":false}', b'{"word_embedding_dimension":8,"pooling_mode":"lasttoken","include_prompt":false}',
               b'{"pooling_mode_max_tokens":true,"pooling_mode_mean_tokens":true}', b"", b"[]"]
    model = [b'{"prompts":{"query":"q: ","document":null},"default_prompt_name":"query","similarity_fn_name":"cosine","truncate_dim":4}', b'{"prompts":{"a":5}}', b'{"default_prompt_name":"x"}', b""]
    bert = [b'{"max_seq_length":32,"do_lower_case":true}', b'{"max_seq_length":-1}', b""]
    dense = [b'{"in_features":8,"out_features":4,"bias":true,"activation_function":"torch.nn.modules.activation.Tanh"}', b'{"in_features":8,"out_features":4,"activation_function":"x"}', b""]
    write(out, "modules", [b"\xff".join((json.dumps(l).encode(), pooling[i % 5], model[i % 4], bert[i % 3], dense[i % 3])) for l in lists for i in range(5)])
    members = [line for line in c_strings(text("tests", "train", "test_dataset.c")) if line.startswith(b"{")]
    write(out, "samples", [bytes([how]) + line for line in members for how in (3, 255)] + [bytes([k]) + b"\n".join(members[k::7]) for k in range(7)])
    line = b'{"custom_id":"%d","method":"POST","url":"/v1/chat/completions","body":{"messages":[{"role":"user","content":"a"}]}}'
    good = [line % i for i in range(6)]
    write(out, "batch", [b"\n".join(good), b"\r\n".join(good) + b"\r\n", b"\n\n" + good[0] + b"\n\n", good[0] + b"\n" + good[0], b"\xef\xbb\xbf" + good[0], b"", b"\n", b"[]\n", good[0][:40],
                         b'{"custom_id":"\\u0000"}', b'{"custom_id":1}', good[1] + b"\n{}\n", b'{"body":{},"url":"/v1/completions","method":"POST","custom_id":"x","more":[1,{"a":null}]}'])
    tensor = '{"dtype":"%s","shape":%s,"data_offsets":[%d,%d]}'
    kv = ["{}", '{"__metadata__":{"rope":"70"}}', '{"__metadata__":{"rope":"5"}}', '{"__metadata__":{"rope":"-1"}}', '{"__metadata__":{"format":"x"}}', '{"__metadata__":{"version":"2"}}',
          '{"__metadata__":{"kv_type":"bfloat16"}}', '{"__metadata__":{"adapter":""}}', '{"__metadata__":{"rope":"9223372036854775808"}}', '{"__metadata__":{"weights":"%s"}}' % ("x" * 90),
          '{"__metadata__":null}', '{"tokens":' + tensor % ("I32", [70], 0, 280) + "}", '{"tokens":' + tensor % ("F32", [70], 0, 280) + "}", '{"tokens":' + tensor % ("I32", [10, 7], 0, 280) + "}",
          '{"checksum":' + tensor % ("U64", [1], 840, 848) + "}", '{"keys.0":' + tensor % ("F32", [70, 1, 2], 280, 840) + "}", '{"keys.0":' + tensor % ("F32", [35, 2, 2], 280, 840) + "}", "[]", '{"more":' + tensor % ("U8", [0], 0, 0) + "}"]
    write(out, "kv", [bytes([how]) + c.encode() for c in kv for how in (2, 1)] + [b"\0", b"\0\x08\0\0\0\0\0\0\0{}      "])
    changes = [b"{}", b'{"step":3}', b'{"step":4}', b'{"best_loss":"nan"}', b'{"best_loss":1.5}', b'{"updates":-1}', b'{"at":18446744073709551615}', b'{"settings":{"model":"digest","rank":3}}', b'{"settings":{}}',
               b'{"settings":null}', b'{"files":{}}', b'{"files":{"../x":{"bytes":1,"sha256":""}}}', b'{"format":2}', b'{"format":"1"}', b'{"epoch":1e30}', b'{"worse":9223372036854775807}', b'{"time":5}', b"[]", b"{"]
    write(out, "manifest", [bytes([whole]) + c for c in changes for whole in (0, 1)])


def tensor_file(tensors):
    """A safetensors file. tensors: (name, dtype, shape, the bytes of an element, repeated)."""
    header, data = {}, b""
    for name, dtype, shape, element in tensors:
        n = 1
        for d in shape:
            n *= d
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + n * len(element)]}
        data += element * n
    h = json.dumps(header, separators=(",", ":")).encode()
    return len(h).to_bytes(8, "little") + h + data


def gguf_files():
    """Yields GGUF files with values of each type, tensors of several types, and one fault each."""
    def u(v, n=8):
        return v.to_bytes(n, "little")

    def string(t):
        return u(len(t)) + t

    def key(name, kind, data):
        return string(name) + u(kind, 4) + data

    def tensor(name, kind, dims, offset):
        return string(name) + u(len(dims), 4) + b"".join(u(d) for d in dims) + u(kind, 4) + u(offset)

    def build(keys, tensors, data, version=3, alignment=32):
        head = b"GGUF" + u(version, 4) + u(len(tensors)) + u(len(keys)) + b"".join(keys) + b"".join(tensors)
        return head + b"\0" * (-len(head) % alignment) + data

    arch, aligned = key(b"general.architecture", 8, string(b"llama")), key(b"general.alignment", 4, u(64, 4))
    values = [key(b"k%d" % kind, kind, b"\1" * size) for kind, size in ((0, 1), (1, 1), (2, 2), (3, 2), (4, 4), (5, 4), (6, 4), (7, 1), (10, 8), (11, 8), (12, 8))]
    texts = key(b"texts", 9, u(8, 4) + u(20) + b"".join(string(b"t" * i) for i in range(20)))
    lists = [key(b"l%d" % kind, 9, u(kind, 4) + u(3) + b"\1" * 3 * size) for kind, size in ((0, 1), (5, 4), (6, 4), (7, 1), (11, 8))]
    one, two = tensor(b"a", 0, [4], 0), tensor(b"b", 2, [32, 2], 32)
    data = b"\3" * 68
    yield build([arch], [], b"")
    yield build([arch, texts] + values + lists, [one, two], data)
    yield build([arch, aligned], [one, tensor(b"b", 12, [256], 64)], b"\3" * 208, alignment=64)
    yield build([arch, arch], [], b"")
    yield build([arch], [one, one], data)
    yield build([arch], [one, tensor(b"b", 2, [32, 2], 0)], data)
    yield build([arch], [one, tensor(b"b", 2, [33], 32)], data)
    yield build([arch], [tensor(b"b", 4, [32], 0)], data)
    yield build([arch], [tensor(b"b", 0, [2**62, 2], 0)], data)
    yield build([arch], [tensor(b"b", 0, [1, 1, 1, 1], 2**64 - 32)], data)
    yield build([key(b"l", 9, u(9, 4) + u(0))], [], b"")
    yield build([key(b"l", 9, u(8, 4) + u(2**40))], [], b"")
    yield build([key(b"l", 9, u(10, 4) + u(2**61 + 1))], [], b"")
    yield build([arch], [], b"", version=1)
    yield build([arch], [], b"", version=3 << 24)
    yield build([arch, texts], [one], data)[:-60]


def official():
    """Yields a block and a matrix a.weight [16, 64] for each form of the formats that fuzz_official reads."""
    two, word = {"F32": b"\0\0\0\x40", "F16": b"\0\x40", "BF16": b"\0\x40", "F8_E8M0": b"\x80", "U8": b"\x80"}, b"\x98\x76\x54\x32"
    for block, grid in ('{"quant_method":"fp8"}', [1, 1]), ('{"quant_method":"fp8","weight_block_size":[8,48],"scale_fmt":"ue8m0"}', [2, 2]), ('{"quant_method":"fp8","weight_block_size":null}', []):
        for dtype in two:
            for codes in "F8_E4M3", "F8_E5M2":
                yield block, [("a.weight", codes, [16, 64], b"\x39"), ("a.weight_scale_inv", dtype, grid, two[dtype])]
    for bits in 2, 3, 4, 8:
        for group, version in (32, "gptq"), (-1, "gptq_v2"), (20, "gptq"):
            groups = 1 if group < 0 else -(-64 // group)
            block = json.dumps({"quant_method": "gptq", "bits": bits, "group_size": group, "checkpoint_format": version}, separators=(",", ":"))
            parts = [("a.qweight", "I32", [2 * bits, 16], word), ("a.qzeros", "I32", [groups, bits // 2], word), ("a.scales", "F16", [groups, 16], two["F16"])]
            yield block, parts
            yield block, parts + [("a.g_idx", "I32", [64], b"\0\0\0\0")]
    for group in 32, -1:
        groups = 1 if group < 0 else 2
        yield ('{"quant_method":"awq","bits":4,"group_size":%d}' % group,
               [("a.qweight", "I32", [64, 2], word), ("a.qzeros", "I32", [groups, 2], word), ("a.scales", "F16", [groups, 16], two["F16"])])
    for kind, bits, strategy, symmetric in ("int", 4, "group", True), ("int", 4, "group", False), ("int", 5, "channel", True), ("int", 8, "channel", False), ("float", 8, "tensor", True), ("float", 8, "block", True):
        weights = {"num_bits": bits, "type": kind, "strategy": strategy, "symmetric": symmetric, "group_size": 32 if strategy == "group" else None, "block_structure": [8, 48] if strategy == "block" else None}
        for target in "Linear", "re:a", "a":
            block = json.dumps({"quant_method": "compressed-tensors", "config_groups": {"g": {"targets": [target], "weights": weights}}}, separators=(",", ":"))
            groups = {"group": 2, "block": 2}.get(strategy, 1)
            scale = [1] if strategy == "tensor" else [2, 2] if strategy == "block" else [16, groups]
            if kind == "float":
                yield block, [("a.weight", "F8_E4M3", [16, 64], b"\x39"), ("a.weight_scale", "BF16", scale, two["BF16"])]
                continue
            zero = [] if symmetric else [("a.weight_zero_point", "I32", [bits // 2, groups], word)]
            yield block, [("a.weight_packed", "I32", [16, 2 * bits], word), ("a.weight_scale", "BF16", scale, two["BF16"])] + zero
            if bits == 8:
                zero = [] if symmetric else [("a.weight_zero_point", "I8", [16, groups], b"\3")]
                yield block, [("a.weight", "I8", [16, 64], b"\x39"), ("a.weight_scale", "F32", scale, two["F32"])] + zero
    yield '{"bits":4,"group_size":32}', [("a.weight", "U32", [16, 8], word), ("a.scales", "F16", [16, 2], two["F16"]), ("a.biases", "F16", [16, 2], two["F16"])]
    for mode, words, groups in ("mxfp4", 8, 2), ("mxfp8", 16, 2), ("nvfp4", 8, 4):
        yield '{"mode":"%s"}' % mode, [("a.weight", "U32", [16, words], word), ("a.scales", "U8", [16, groups], b"\x38")]
    yield "null", [("a.weight", "BF16", [16, 64], two["BF16"])]


def gguf_tokenizers():
    """Yields GGUF files whose metadata are a tokenizer: byte-level with splitters, SentencePiece, Gemma 4, and one fault each."""
    def u(v, n=8):
        return v.to_bytes(n, "little")

    def string(t):
        return u(len(t)) + t

    def value(name, kind, data):
        return string(b"tokenizer.ggml." + name) + u(kind, 4) + data

    def texts(name, items):
        return value(name, 9, u(8, 4) + u(len(items)) + b"".join(string(t) for t in items))

    def build(*keys):
        return b"GGUF" + u(3, 4) + u(0) + u(len(keys)) + b"".join(keys)

    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    letters = [chr(b if b in shown else 256 + b).encode() for b in range(256)]
    tokens = letters + [b"th", b"the", b"<s>", b"</s>", b"<x>"]
    kinds = [1] * 258 + [3, 3, 4]
    types = value(b"token_type", 9, u(5, 4) + u(len(kinds)) + b"".join(u(k, 4) for k in kinds))
    ids = [value(b"bos_token_id", 4, u(258, 4)), value(b"eos_token_id", 4, u(259, 4))]
    flags = [value(b"add_bos_token", 7, b"\1"), value(b"add_eos_token", 7, b"\1")]
    gpt2 = [value(b"model", 8, string(b"gpt2")), texts(b"tokens", tokens), types, texts(b"merges", [b"t h", b"th e"])]
    for pre in b"gpt-2", b"llama-bpe", b"qwen2", b"deepseek-llm", b"tekken", b"gpt-4o", b"smollm", b"default", b"gpt-7":
        yield build(*gpt2, value(b"pre", 8, string(pre)), *ids, *flags)
    yield build(*gpt2)
    yield build(*gpt2[:3], texts(b"merges", [b"t x"]))
    yield build(*gpt2[:2])
    blank = "\u2581".encode()
    pieces = [b"<unk>", b"<s>", b"</s>", b"<0xC3>", b"<0xA9>", blank, b"a", b"b", b"ab", blank + b"a", blank + b"ab", blank * 2, b"<t>", b"", b"c"]
    kinds = [2, 3, 3, 6, 6, 1, 1, 1, 1, 1, 1, 4, 4, 5, 1]
    types = value(b"token_type", 9, u(5, 4) + u(len(kinds)) + b"".join(u(k, 4) for k in kinds))
    scores = value(b"scores", 9, u(6, 4) + u(len(kinds)) + b"".join(struct.pack("<f", -i) for i in range(len(kinds))))
    for name, more in (b"llama", [scores]), (b"gemma4", [texts(b"merges", [b"a b"])]), (b"llama", []), (b"rwkv", [scores]):
        model = [value(b"model", 8, string(name)), texts(b"tokens", pieces), types, *more]
        yield build(*model)
        yield build(*model, *flags, value(b"bos_token_id", 4, u(1, 4)), value(b"add_space_prefix", 7, b"\0"), value(b"remove_extra_whitespaces", 7, b"\1"))
    yield build(value(b"model", 8, string(b"llama")), texts(b"tokens", pieces), types[:-4] + u(9, 4), scores)


def tekkens():
    """Yields tekken.json files: of versions with and without listed special tokens, and one fault each; some with a text."""
    vocab = [{"rank": i, "token_bytes": base64.b64encode(t).decode()} for i, t in enumerate([b"a", b"b", b" ", b"\xc3", b"\xa9", b"ab", b"\xc3\xa9", b" ab"])]
    listed = [{"rank": i, "token_str": t, "is_control": t != "plain"} for i, t in enumerate(["<unk>", "<s>", "plain"])]

    def file(version="v3", special=3, more=None, vocab=vocab, size=None, **config):
        c = {"pattern": "\\w+|\\s", "default_vocab_size": size or special + len(vocab), "default_num_special_tokens": special, "version": version} | config
        return json.dumps({"config": c, "vocab": vocab} | (more or {}), separators=(",", ":")).encode()

    good = [file(), file(special=24), file("v13", more={"special_tokens": listed}), file("v13", 5, {"special_tokens": listed}), file("v3", size=9),
            file(more={"special_tokens": None})]
    yield from good
    yield from (f + b"\xff" + t for f in good for t in (b"", b"ab ab\xc3\xa9 <s>plain", b"<SPECIAL_4>\xff\xc3"))
    yield file("v13")
    yield file("3")
    yield file("v3", special=1)
    yield file(pattern="(")
    yield file(pattern=3)
    yield file(default_vocab_size=2)
    yield file(default_vocab_size=-1)
    yield file(size=99)
    for bad in ({"rank": 0}, {"token_bytes": "YQ=="}, {"rank": 0, "token_bytes": "?"}, {"rank": 0, "token_bytes": "YQ==", "token_str": "a"}, 7):
        yield file(vocab=vocab + [bad])
    for bad in (7, [7], [{"rank": 1, "token_str": "x"}], [{"rank": 0, "token_str": ""}], listed * 9, [listed[0], {"rank": 1, "token_str": "<unk>"}]):
        yield file("v13", more={"special_tokens": bad})
    whole = file("v13", more={"special_tokens": listed})
    yield from (whole[:n] for n in range(0, len(whole), 97))
    yield b'{"config":{},"config":{}}'
    yield b"{}"
    yield b"[]"


def main(argv):
    out = argv[1]
    write(out, "tekken", tekkens())
    write(out, "grammar", sorted(set(forms())))
    write(out, "official", [block.encode() + b"\xff" + tensor_file(parts) for block, parts in official()])
    write(out, "gguf", gguf_files())
    write(out, "gguf_tokenizer", gguf_tokenizers())
    docs, texts = documents()
    small = [d for d in docs if len(d) < 4000]
    configs = []
    for line in c_strings(text("tests", "model", "strips.h")):
        if line.startswith(b"{"):
            configs.append(line)
    golden = os.path.join(ROOT, "tests", "golden")
    models = sorted(os.listdir(golden)) + [os.path.join("quantised", d) for d in sorted(os.listdir(os.path.join(golden, "quantised")))]
    for name in models:
        path = os.path.join(golden, name, "config.json")
        if os.path.exists(path):
            c = json.dumps(json.loads(text("tests", "golden", name, "config.json")), separators=(",", ":"))
            g = os.path.join(golden, name, "generation_config.json")
            g = json.dumps(json.loads(text("tests", "golden", name, "generation_config.json"))) if os.path.exists(g) else ""
            configs.append(c.encode() + b"\xff" + g.encode() + b"\xff" + b'{"eos_token":"x","chat_template":"{{x}}"}')
    base = b'{"model_type":"llama","hidden_size":64,"num_attention_heads":4,"num_key_value_heads":2'
    for model in (base, b'{"model_type":"qwen3","num_hidden_layers":2', b'{"model_type":"gemma3_text"', b'{"model_type":"gemma3","text_config":{}'):
        for row in c_strings(text("tests", "model", "test_config.c")):
            if row.startswith(b',"') and row.endswith(b"}"):
                configs.append(model + row)
    rows = re.findall(r'(?:CONFIG|GEMMA)\("[^"]*", "([^"]*)", ("(?:[^"\\]|\\.)*")', text("tests", "hard", "inputs.def"))
    for key, value in rows:
        value = next(c_strings(value))
        configs.append(base + b',"' + key.split("/")[-1].encode() + b'":' + value + b"}")
    entry = b'"model.layers.0.self_attn.q_proj":'
    for q in (b'{"bits":4,"group_size":64}', b'{"bits":7,"group_size":64}', b'{"bits":4,"group_size":0}', b'{"bits":"4"}', b"[]", b'{"quant_method":"gptq"}',
              b'{"bits":4,"group_size":64,"mode":"affine",' + entry + b"false}", b'{"bits":8,"group_size":32,"mode":"mxfp4",' + entry + b'{"bits":3}}',
              b'{"bits":4,"group_size":64,' + entry + b'{"bits":6,"group_size":128}}', b'{"bits":4,"group_size":64,' + entry + b"7}",
              b'{"bits":4,"group_size":64,' + entry + b"true}", b'{"quantize":' + entry[:0] + b"{}}"):
        configs += [base + b',"quantization":' + q + b"}", base + b',"quantization_config":' + q + b"}"]
    for g in (b'{"do_sample":true,"temperature":0.5,"top_p":0.9,"top_k":-1,"min_p":0.1,"repetition_penalty":1.1,"eos_token_id":[1,2]}', b'{"eos_token_id":"x"}', b"[]"):
        configs.append(base + b"}\xff" + g + b'\xff{"eos_token":{"content":"y"},"chat_template":[{"name":"a"}]}')
    write(out, "config", configs)
    bad = [d for d in c_strings(text("tests", "tokenizer", "test_tokenizer.c")) if d.startswith(b"{")]
    good = b'"model":{"type":"BPE","vocab":{"a":0,"b":1,"ab":2},"merges":[]}'
    sections = [next(c_strings(v)) for v in re.findall(r'(?:WITH|POST|TOKEN|MODEL)\(("(?:[^"\\]|\\.)*")\)', text("tests", "tokenizer", "test_tokenizer.c"))]
    bad += [b"{" + s + b"," + good + b"}" for s in sections] + [b'{"post_processor":' + s + b"," + good + b"}" for s in sections if s.startswith(b"{")]
    bad += [b'{"added_tokens":[' + s + b"]," + good + b"}" for s in sections] + [b'{"model":{"type":"BPE",' + s + b"}}" for s in sections]
    write(out, "tokenizer", [d.encode() for d in small] + bad + [d.encode() + b"\xff" + t.encode() for d, t in zip(small * 9, texts)])
    write(out, "encode", [bytes([k]) + t.encode("utf-8") for k in range(16) for t in texts] + [bytes([k | 128]) + b"a\xff<s> ab c ab  The\xc3" for k in range(16)] +
          [bytes([k]) + b"<s>ab c The <s><s>ab cabcd<s" for k in range(16)])
    ids = [b"".join(i.to_bytes(2, "little") for i in run) for run in (range(0, 120), range(90, 380), (65500, 1, 2), (65535,), (65534,), [130 + 0xc3, 130 + 0xa9, 5, 130 + 0xf0, 130 + 0x9f] * 4)]
    write(out, "decode", [bytes([k | s]) + run for k in range(16) for s in (0, 128) for run in ids])
    pieces = ["[[1,2],[\"a\",\"b\"],{\"k\":null}]", "{\"a\":[true,false,null,-0,1e5,1.5e-3,18446744073709551616],\"\\u00e9\\ud83d\\ude00\\n\":\"\"}", "[1e400]", "{\"a\":1,\"a\":2}", "{\"\\u0000\":1}",
              "\ufeff{}", "[\"\\ud800\"]", "\"\\x\"", "01", "1.", "1e", "-", "tru", "nul", "[1,]", "{\"a\"}", "{\"a\":1,}", "{a:1}", "[1 2]", "{} x", "\"a", "\"\x01\"", "[" * 70, "1" * 65, "\"\\u12g4\"",
              "                [                1,                2]", "[\"plain text of some length without escapes\",\"with \\\"escapes\\\" \\/ \\b\\f\\r\\t\"]", "\"\xe9\u4e2d\U0001f600\""]
    write(out, "json", [bytes([h]) + p.encode() for p in pieces for h in (0, 1, 5, 8, 16, 33, 66, 130, 255)] + [b"\x01\"\xff\"", b"\x01\"\xe4\xb8\"", b"\x01\"\xc0\xaf\""])
    members = [next(c_strings(m)) for m in re.findall(r'(?:good|bad)\(WIRE_[A-Z]+, ((?:"(?:[^"\\]|\\.)*"\s*)+)', text("tests", "wire", "test_body.c"))]
    bodies = [b for b in c_strings(text("tests", "wire", "test_body.c")) if b.startswith((b"{", b"[{"))]
    bodies = [b'{"messages":' + b + b"}" if b.startswith(b"[") else b for b in bodies]
    bodies += [b'{"messages":[{"role":"user","content":"a"}],' + m + b"}" for m in members] + [b'{"prompt":["a",[1,2]],' + m + b"}" for m in members]
    numbers = re.findall(r'\{"([a-z_]+)", \{("[^}]*")\}, \{("[^}]*)\}\}', text("tests", "wire", "test_body.c"))
    bodies += [b'{"prompt":[1],"' + n.encode() + b'":' + next(c_strings(v)) + b"}" for n, values, bad in numbers for v in (values + "," + bad).split(", ")]
    lines = [b'{"custom_id":"a","method":"POST","url":"/v1/completions","body":' + b + b',"x":[1]}' for b in bodies[::9]]
    lines += [b'{"custom_id":""}', b'{"custom_id":"a","custom_id":"b"}', b"[]", b'{"body":5}', b'{"custom_id":"a\\u0000"}', b'{"url":1}']
    write(out, "body", [bytes([kind]) + b for b in bodies for kind in (0, 1)] + [bytes([kind]) + b for b in lines for kind in (2, 3)])
    host = b"Host: a\r\n"
    requests = [b"GET /v1/models?a=%20 HTTP/1.1\r\n" + host + b"Accept: */*\r\nConnection: keep-alive, x\r\n\r\n",
                b"POST /v1/chat/completions HTTP/1.1\r\n" + host + b"Content-Length: 3\r\nExpect: 100-continue\r\n\r\nabcGET / HTTP/1.0\r\n\r\n",
                b"POST / HTTP/1.1\r\nHost: [::1]:80\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0A;x=y\r\n0123456789\r\n0\r\nX: y\r\n\r\n",
                b"OPTIONS * HTTP/1.1\r\n" + host + b"\r\n\r\nHEAD http://a:1/b HTTP/1.1\r\nHost: a:1\r\n\r\n",
                b"GET / HTTP/1.1\r\n" + host + b"X: a\r\n b\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"GET / HTTP/1.1\n\n",
                b"POST / HTTP/1.1\r\n" + host + b"Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
                b"POST / HTTP/1.1\r\n" + host + b"Transfer-Encoding: chunked\r\n\r\n1\r\nab\r\n",
                b"CONNECT a:443 HTTP/1.1\r\n" + host + b"\r\nTRACE / HTTP/1.1\r\n" + host + b"Expect: x\r\n\r\n"]
    write(out, "http", [bytes([k]) + r for r in requests for k in (0, 2, 63)])
    events = [bytes([c, how, arg]) for how in range(32) for c, arg in ((0, 97), (1, 200), (2, 129))]
    write(out, "sse", [bytes([how, more]) + b"".join(events[k % 7::5])[:90] for k, how in enumerate(range(0, 256, 3)) for more in (0, 1, 2, 6, 10, 24)])
    write_files(out)
    calls = [t for t in c_strings(text("tests", "chat", "test_tool_calls.c")) if b"{" in t or b"[TOOL" in t or b"<tool" in t]
    write(out, "calls", [bytes([form, step]) + t for t in calls for form, step in ((0, 0), (1, 2), (2, 6), (4, 0))])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
