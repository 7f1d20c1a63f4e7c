#!/usr/bin/env python3
"""Writes config.jsonl: directories whose tokenizer files name tokens, with what transformers makes of them.

usage: make_config.py > config.jsonl        (needs transformers and tokenizers; tests need the file only)

The line {"model": {...}, "texts": [...]} has the model of every tokenizer.json. A line {"name",
"tokenizer", "files", "encode": [ids, ...], "skip": [text, ...]} is a directory: tokenizer.json's other
fields, the files beside it, and for each text its ids and what they say without special tokens."""

import json
import os
import sys
import tempfile

from transformers import PreTrainedTokenizerFast

ALPHABET = " <>/|_abcdefgpsxyzABX\u00e9\u2581"
MODEL = {"type": "BPE", "vocab": {c: i for i, c in enumerate(ALPHABET)}, "merges": []}
N = len(ALPHABET)
TEXTS = [
    "a<sep>b<X>c<Y>",
    "<s> a </s><s>  b",
    "a <pad> <x> x<x>x <Y>",
    "  <Z>  <sep> ",
    "<X>_<y><ab>ab",
    "e\u00e9 abc A<A>",
    "<x y>",
]
CONFIG, MAP, ADDED = "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"


def added(i, content, **flags):
    token = {
        "id": i,
        "content": content,
        "single_word": False,
        "lstrip": False,
        "rstrip": False,
        "normalized": False,
        "special": False,
    }
    token.update(flags)
    return token


def obj(content, **flags):
    return dict({"__type": "AddedToken", "content": content}, **flags)


def entry(content, **flags):
    return dict(
        {
            "content": content,
            "lstrip": False,
            "rstrip": False,
            "single_word": False,
            "normalized": False,
            "special": True,
        },
        **flags
    )


def cases():
    own = [added(N, "<s>", special=True), added(N + 1, "</s>")]
    yield "eos, additional and decoder", {}, {
        CONFIG: {
            "eos_token": "<sep>",
            "additional_special_tokens": ["<X>"],
            "added_tokens_decoder": {"257": entry("<Y>")},
        }
    }
    yield "named in another order", {}, {
        CONFIG: {
            "mask_token": "<Y>",
            "x_token": "<Z>",
            "pad_token": "<pad>",
            "eos_token": "</s>",
            "unk_token": None,
            "a_token": obj("<x>", rstrip=True),
            "bos_token": "<s>",
            "cls_token": "<X>",
        }
    }
    yield "extra", {}, {CONFIG: {"extra_special_tokens": ["<X>", obj("<Y>", lstrip=True), "<X>"]}}
    yield "extra and additional", {}, {
        CONFIG: {"extra_special_tokens": ["<X>"], "additional_special_tokens": ["<Y>"]}
    }
    yield "extra empty and additional", {}, {
        CONFIG: {"extra_special_tokens": [], "additional_special_tokens": ["<Y>"]}
    }
    yield "extra named and additional", {}, {
        CONFIG: {
            "extra_special_tokens": {"v_token": "<X>", "eos_token": "<Z>"},
            "additional_special_tokens": ["<Y>"],
            "eos_token": "<sep>",
        }
    }
    yield "same content twice", {}, {
        CONFIG: {"bos_token": "<x>", "mask_token": obj("<x>", single_word=True), "w_token": "<x>"}
    }
    yield "flags", {}, {
        CONFIG: {
            "eos_token": obj("<Z>", lstrip=True, rstrip=True),
            "pad_token": obj("<pad>", lstrip=True),
            "additional_special_tokens": [obj("<x>", single_word=True), obj("<Y>", special=False)],
        }
    }
    yield "decoder out of order", {}, {
        CONFIG: {"added_tokens_decoder": {"300": entry("<Z>"), "26": entry("<Y>"), "9": entry("<X>")}}
    }
    yield "decoder changes flags", {"added_tokens": own}, {
        CONFIG: {
            "added_tokens_decoder": {
                str(N): entry("<s>", rstrip=True, special=False),
                str(N + 1): entry("</s>", lstrip=True, special=False),
            }
        }
    }
    yield "named is made special", {"added_tokens": own}, {CONFIG: {"eos_token": "</s>", "sep_token": "a"}}
    yield "decoder and map", {"added_tokens": own}, {
        CONFIG: {"added_tokens_decoder": {}, "eos_token": "<X>"},
        MAP: {"eos_token": "<Y>"},
    }
    yield "map", {"added_tokens": own}, {
        CONFIG: {"eos_token": "<X>", "pad_token": "<pad>", "z_token": None},
        MAP: {
            "eos_token": {"content": "<Z>", "lstrip": True},
            "z_token": "<x>",
            "pad_token": None,
            "additional_special_tokens": ["<Y>"],
        },
    }
    yield "map without a config", {}, {
        MAP: {"bos_token": "<s>", "eos_token": {"content": "</s>", "lstrip": True, "normalized": False}}
    }
    yield "map, extra list", {}, {
        CONFIG: {"additional_special_tokens": ["<X>"]},
        MAP: {"extra_special_tokens": ["<Y>", "<X>"]},
    }
    yield "map, extra named", {}, {
        CONFIG: {"additional_special_tokens": ["<X>"]},
        MAP: {"extra_special_tokens": {"k": "<Y>"}},
    }
    yield "added_tokens.json", {"added_tokens": own}, {
        CONFIG: {"eos_token": "<X>", "pad_token": "<Z>"},
        ADDED: {"<X>": 40, "<Y>": 39, "a": 6, "<Z>": N},
    }
    yield "padding", {
        "padding": {
            "strategy": "BatchLongest",
            "direction": "Right",
            "pad_to_multiple_of": None,
            "pad_id": 0,
            "pad_type_id": 0,
            "pad_token": "<pad>",
        }
    }, {CONFIG: {"eos_token": "<X>"}}
    for split in (True, False):
        yield "split special", {"added_tokens": own + [added(N + 2, "<x>")]}, {
            CONFIG: {
                "split_special_tokens": split,
                "eos_token": "<sep>",
                "added_tokens_decoder": {"90": entry("<Y>", special=False)},
            }
        }
    yield "normalized", {
        "normalizer": {"type": "Lowercase"},
        "added_tokens": [added(N, "<A>", normalized=True)],
    }, {
        CONFIG: {
            "eos_token": obj("<X>", normalized=True),
            "pad_token": "<Y>",
            "added_tokens_decoder": {str(N): entry("<A>")},
        }
    }
    yield "bos and eos", {"added_tokens": own}, {
        CONFIG: {
            "add_bos_token": True,
            "add_eos_token": True,
            "bos_token": "<s>",
            "legacy": False,
            "clean_up_tokenization_spaces": True,
        }
    }
    yield "list out of order", {
        "added_tokens": [added(N + 2, "<X>"), added(N, "<Y>", special=True), added(N + 1, "<Z>")]
    }, {CONFIG: {}}
    yield "ids with a gap", {"added_tokens": [added(N + 5, "<X>"), added(6, "a")]}, {
        CONFIG: {"eos_token": "<Y>"}
    }
    # an object is a token by its __type; of the standard names transformers rejects such objects
    yield "objects without a type", {"added_tokens": own}, {
        CONFIG: {
            "image_token": {"content": "<X>"},
            "audio_token": {"content": "a", "special": True},
            "video_token": obj("<Y>"),
            "z_token": {"content": "<Z>", "__type": "Token"},
        }
    }
    yield "map, additional objects", {"added_tokens": own}, {
        MAP: {
            "y_token": "<s>",
            "additional_special_tokens": [obj("<A>"), obj("<X>", special=True), "<Y>", obj("</s>", lstrip=True)],
        }
    }
    yield "map, other names", {"added_tokens": own}, {
        CONFIG: {"image_token": {"content": "<X>"}},
        MAP: {"image_token": {"content": "<Y>", "lstrip": True}, "z_token": {"content": "<Z>"}},
    }
    for norm in ({"type": "Lowercase"}, {"type": "NFD"}, {"type": "Prepend", "prepend": "_"}):
        yield "normalized collisions", {
            "normalizer": norm,
            "added_tokens": [
                added(N, "<X>", normalized=True, special=True),
                added(N + 1, "<x>", normalized=True),
                added(N + 2, "\u00e9A", normalized=True, lstrip=True),
                added(N + 3, "e\u0301a", normalized=True),
            ],
        }, {CONFIG: {"eos_token": obj("<A>", normalized=True), "pad_token": "<X>"}}
    yield "text of the vocabulary", {"added_tokens": own}, {
        CONFIG: {"added_tokens_decoder": {"90": entry("a"), str(N + 2): entry("b", special=False), "3": entry("<Y>")}}
    }


def main():
    out = lambda o: print(json.dumps(o, separators=(",", ":")))
    out({"model": MODEL, "texts": TEXTS})
    for name, fields, files in cases():
        doc = {
            "version": "1.0",
            "truncation": None,
            "padding": None,
            "added_tokens": [],
            "normalizer": None,
            "pre_tokenizer": None,
            "post_processor": None,
            "decoder": {"type": "Fuse"},
        }
        doc.update(fields)
        with tempfile.TemporaryDirectory() as d:
            for file, content in dict(files, **{"tokenizer.json": dict(doc, model=MODEL)}).items():
                with open(os.path.join(d, file), "w") as f:
                    json.dump(content, f)
            t = PreTrainedTokenizerFast.from_pretrained(d)
        line = {"name": name, "tokenizer": doc, "files": files, "encode": [], "skip": []}
        for text in TEXTS:
            ids = t(text)["input_ids"]
            line["encode"].append(ids)
            line["skip"].append(t.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False))
        out(line)


sys.exit(main())
