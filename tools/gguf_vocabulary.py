#!/usr/bin/env python3
"""Write a GGUF file with the tokenizer of a Hugging Face directory and no tensors, as llama.cpp's convert_hf_to_gguf.py writes the
tokenizer of a model. For tests of linnet's reader against the original tokenizer.json and against llama.cpp.

usage: gguf_vocabulary.py DIR OUT.gguf --pre NAME            (byte-level BPE: tokenizer.ggml.model gpt2)
       gguf_vocabulary.py DIR OUT.gguf --scores [--no-prefix] (SentencePiece: tokenizer.ggml.model llama; scores from the merges)
       gguf_vocabulary.py DIR OUT.gguf --gemma4               (tokenizer.ggml.model gemma4)
needs: pip install gguf"""
import argparse, json, os, re, gguf

NORMAL, UNKNOWN, CONTROL, USER, UNUSED, BYTE = 1, 2, 3, 4, 5, 6


def read(path):
    return json.load(open(path, encoding="utf-8")) if os.path.exists(path) else {}


def main():
    p = argparse.ArgumentParser()
    p.add_argument("dir"), p.add_argument("out")
    p.add_argument("--pre"), p.add_argument("--scores", action="store_true"), p.add_argument("--gemma4", action="store_true")
    p.add_argument("--no-prefix", action="store_true"), p.add_argument("--arch", default="llama")
    p.add_argument("--pad", type=int, default=0, help="tokens at least; those without a text are unused")
    p.add_argument("--add-bos", type=int)
    a = p.parse_args()
    tok, config = read(f"{a.dir}/tokenizer.json"), read(f"{a.dir}/tokenizer_config.json")
    vocab, added = tok["model"]["vocab"], {t["id"]: t for t in tok["added_tokens"]}
    pieces = a.scores or a.gemma4
    text = {i: t for t, i in vocab.items()} | {i: t["content"] for i, t in added.items()}
    tokens, types = [], []
    for i in range(max(max(text) + 1, a.pad)):
        t, kind = text.get(i, f"[PAD{i}]"), NORMAL if i in text else UNUSED
        if i in added:
            kind = CONTROL if added[i]["special"] else USER
            if kind == USER: t = t.replace("\u2581", " ")  # as llama.cpp's converter does
        if pieces and re.fullmatch("<0x[0-9A-F]{2}>", t): kind = BYTE
        if pieces and t == tok["model"].get("unk_token"): kind = UNKNOWN if a.scores else CONTROL
        tokens.append(t), types.append(kind)
    merges = [m if isinstance(m, list) else m.split(" ") for m in tok["model"]["merges"]]
    w = gguf.GGUFWriter(a.out, a.arch)
    w.add_string("general.name", os.path.basename(os.path.normpath(a.dir)))
    w.add_tokenizer_model("llama" if a.scores else "gemma4" if a.gemma4 else "gpt2")
    w.add_tokenizer_pre("default" if pieces else a.pre)
    w.add_token_list([t.encode() for t in tokens])
    if a.scores:  # the place of a token's first merge, as SentencePiece trains them
        first = {}
        for left, right in merges: first.setdefault(left + right, -float(len(first)))
        w.add_token_scores([first.get(t, -1e6 if k == NORMAL else -1000.0) if k == NORMAL else -1000.0 for t, k in zip(tokens, types)])
    w.add_token_types(types)
    if not a.scores:
        w.add_token_merges([" ".join("".join(chr(ord(c) + 256) if c == " " else c for c in s) for s in m) for m in merges])
    content = {t["content"]: i for i, t in added.items()} | {t: i for t, i in vocab.items()}
    for key, add in (("bos", w.add_bos_token_id), ("eos", w.add_eos_token_id), ("unk", w.add_unk_token_id), ("pad", w.add_pad_token_id)):
        t = config.get(key + "_token")
        t = t["content"] if isinstance(t, dict) else t
        if t in content: add(content[t])
    post = json.dumps(tok.get("post_processor"), ensure_ascii=False)
    first = re.search(r'"single": \[\{"SpecialToken": \{"id": "([^"]+)"', post)
    if first and first[1] in content and not config.get("bos_token"): w.add_bos_token_id(content[first[1]])
    w.add_add_bos_token(bool(first) if a.add_bos is None else bool(a.add_bos))
    if pieces: w.add_add_space_prefix(not a.no_prefix and ("Prepend" in json.dumps(tok["normalizer"]) or "Metaspace" in json.dumps(tok["pre_tokenizer"])))
    template = config.get("chat_template")
    if template: w.add_chat_template(template)
    w.write_header_to_file(), w.write_kv_data_to_file(), w.write_tensors_to_file(), w.close()


main()
