#!/usr/bin/env python3
"""Trains the bundled model from scratch on the corpus of tiny_corpus.py, and writes it in Hugging Face layout.

usage: python tools/tiny_train.py --out models/tiny --seed 1 [--docs N] [--steps N] [--seconds S] [--device cuda|cpu]

The model has the Qwen 3 architecture with tied embeddings, and a byte-level BPE tokenizer trained on a part of the corpus. Documents are packed
into rows; each document attends only to itself, with positions from 0, as at inference. In the loss, the assistant's tokens have weight 1 and
the other tokens a small weight. The optimizer is AdamW with a cosine schedule to zero; with --seconds the schedule ends with that time.
tiny_eval.py, called at the end, writes the model card, the accuracies and the reference transcript. Seeds determine the corpus, its order and the
initial weights; the last bits of the result depend on the device.
"""
import argparse
import csv
import json
import math
import multiprocessing
import os
import time

os.environ.setdefault("HF_HUB_OFFLINE", "1")
import numpy as np
import torch
import torch.nn.functional as F
import transformers
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

import tiny_corpus
import tiny_eval

VOCAB = 4096
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
SPLIT = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
TEMPLATE = ("{%- for message in messages %}{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}{%- endfor %}"
            "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}")
CONFIG = dict(vocab_size=VOCAB, hidden_size=192, intermediate_size=512, num_hidden_layers=8, num_attention_heads=6, num_key_value_heads=2, head_dim=32,
              max_position_embeddings=1024, tie_word_embeddings=True, rms_norm_eps=1e-6, use_sliding_window=False,
              rope_parameters={"rope_type": "default", "rope_theta": 10000.0})
ROW = 1024


def documents(job):
    seed, lo, hi = job
    return [tiny_corpus.document(seed, i) for i in range(lo, hi)]


def make_documents(seed, n, base=0):
    jobs = [(seed, base + i, base + min(i + 5000, n)) for i in range(0, n, 5000)]
    with multiprocessing.get_context("fork").Pool(min(16, os.cpu_count())) as pool:
        return [d for part in pool.map(documents, jobs, chunksize=1) for d in part]


def train_tokenizer(docs):
    tok = Tokenizer(models.BPE())
    tok.normalizer = normalizers.NFC()
    tok.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(SPLIT), behavior="isolated", invert=False),
                                                 pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tok.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=VOCAB - len(SPECIAL), initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False)
    plain = ("".join(t for t, _ in d).replace("<|im_start|>", "").replace("<|im_end|>", "") for d in docs)
    tok.train_from_iterator(plain, trainer)
    tok.add_special_tokens([AddedToken(s, special=True, normalized=False) for s in SPECIAL])
    return tok


def write_tokenizer(tok, out):
    tok.save(os.path.join(out, "tokenizer.json"))
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": CONFIG["max_position_embeddings"], "bos_token": None, "eos_token": "<|im_end|>",
              "pad_token": "<|endoftext|>", "unk_token": None, "add_bos_token": False, "add_prefix_space": False, "clean_up_tokenization_spaces": False,
              "split_special_tokens": False, "errors": "replace", "chat_template": TEMPLATE,
              "added_tokens_decoder": {str(tok.token_to_id(s)): {"content": s, "lstrip": False, "normalized": False, "rstrip": False, "single_word": False, "special": True}
                                       for s in SPECIAL}}
    with open(os.path.join(out, "tokenizer_config.json"), "w") as f:
        f.write(json.dumps(config, indent=2) + "\n")


def encode(tok, docs):
    """Returns [(ids, weights)] with the end-of-text token; a weight is that of its token as a target of the loss."""
    texts = [t for d in docs for t, _ in d]
    eot, out, at = tok.token_to_id(SPECIAL[0]), [], 0
    coded = []
    for lo in range(0, len(texts), 200_000):
        coded += [e.ids for e in tok.encode_batch(texts[lo:lo + 200_000], add_special_tokens=False)]
    for d in docs:
        ids, ws = [], []
        for _, w in d:
            ids += coded[at]
            ws += [w] * len(coded[at])
            at += 1
        if len(ids) < ROW:
            out.append((np.array(ids + [eot], np.int16), np.array(ws + [0.5], np.float16)))
    return out


def pack(items, rng):
    """Packs documents into rows of ROW tokens. Returns ids, weights, document numbers (0: padding) and positions. First fit among 64 open rows."""
    rows, open_rows = [], []
    for k in rng.permutation(len(items)):
        n = len(items[k][0])
        for r in open_rows:
            if r[0] + n <= ROW:
                r[0] += n
                r[1].append(k)
                break
        else:
            open_rows.append([n, [k]])
            if len(open_rows) > 64:
                full = max(range(len(open_rows)), key=lambda i: open_rows[i][0])
                rows.append(open_rows.pop(full)[1])
    rows += [r[1] for r in open_rows]
    ids, ws = np.zeros((len(rows), ROW), np.int16), np.zeros((len(rows), ROW), np.float16)
    doc, pos = np.zeros((len(rows), ROW), np.int16), np.zeros((len(rows), ROW), np.int16)
    for i, members in enumerate(rows):
        at = 0
        for j, k in enumerate(members):
            a, w = items[k]
            n = len(a)
            ids[i, at:at + n], ws[i, at:at + n], doc[i, at:at + n], pos[i, at:at + n] = a, w, j + 1, np.arange(n)
            ws[i, at] = 0       # the first token of a document is no target
            at += n
    return [torch.from_numpy(x) for x in (ids, ws, doc, pos)]


def batch_loss(model, batch, dtype):
    """Returns the weighted mean of the cross entropy, and its mean over the assistant's tokens alone."""
    ids, ws, doc, pos = batch
    mask = (doc[:, :, None] == doc[:, None, :]) & torch.ones(ROW, ROW, dtype=torch.bool, device=doc.device).tril()
    with torch.autocast(doc.device.type, dtype=torch.bfloat16, enabled=dtype == "bf16"):
        logits = model(input_ids=ids, attention_mask=mask[:, None], position_ids=pos, use_cache=False).logits
    loss = F.cross_entropy(logits[:, :-1].float().flatten(0, 1), ids[:, 1:].flatten(), reduction="none")
    w = ws[:, 1:].flatten()
    said = (w == 1.0).float()
    return (loss * w).sum() / w.sum().clamp(min=1), (loss.detach() * said).sum() / said.sum().clamp(min=1)


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--out", required=True)
    ap.add_argument("--seed", type=int, default=1)
    ap.add_argument("--docs", type=int, default=1_000_000)
    ap.add_argument("--steps", type=int, default=8000)
    ap.add_argument("--seconds", type=float, default=math.inf, help="end the schedule after this time")
    ap.add_argument("--rows", type=int, default=64, help="rows of 1024 tokens a step")
    ap.add_argument("--lr", type=float, default=3e-3)
    ap.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    ap.add_argument("--dtype", default="bf16", choices=["bf16", "f32"])
    ap.add_argument("--compile", action="store_true")
    args = ap.parse_args()
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    os.makedirs(args.out, exist_ok=True)
    t0 = time.time()
    docs = make_documents(args.seed, args.docs)
    test = make_documents(args.seed + 1, 2000, base=500_000_000)
    print(f"{len(docs)} documents, {time.time() - t0:.0f} s", flush=True)
    tok = train_tokenizer(docs[:100_000])
    assert tok.get_vocab_size() == VOCAB, tok.get_vocab_size()
    write_tokenizer(tok, args.out)
    items, test_items = encode(tok, docs), encode(tok, test)
    del docs
    rng = np.random.RandomState(args.seed)
    data, held = pack(items, rng), pack(test_items, rng)
    tokens = sum(len(a) for a, _ in items)
    print(f"{tokens / 1e6:.1f} M tokens in {len(data[0])} rows, {time.time() - t0:.0f} s", flush=True)
    del items

    torch.manual_seed(args.seed)
    torch.backends.cuda.matmul.allow_tf32 = True
    end, eot = tok.token_to_id("<|im_end|>"), tok.token_to_id("<|endoftext|>")
    config = transformers.Qwen3Config(**CONFIG, bos_token_id=None, eos_token_id=end, pad_token_id=eot, attn_implementation="sdpa")
    model = transformers.Qwen3ForCausalLM(config).to(args.device)
    n = sum(p.numel() for p in model.parameters())
    print(f"{n / 1e6:.2f} M parameters", flush=True)
    decay = [p for p in model.parameters() if p.dim() > 1]
    other = [p for p in model.parameters() if p.dim() <= 1]
    opt = torch.optim.AdamW([{"params": decay, "weight_decay": 0.1}, {"params": other, "weight_decay": 0.0}], lr=args.lr, betas=(0.9, 0.97),
                            eps=1e-9, fused=args.device == "cuda")
    mean = 0.0
    step_model = torch.compile(model, dynamic=False) if args.compile else model
    move = lambda part, rows: [x[rows].to(args.device).to(torch.float32 if x.dtype == torch.float16 else torch.long) for x in part]
    order, log, t1, shown = np.zeros(0, np.int64), [], time.time(), time.time()
    step = 0
    while True:
        progress = max(step / args.steps, (time.time() - t1) / args.seconds)
        if step % 100 == 0 or progress >= 1:
            model.eval()
            with torch.no_grad():
                parts = [batch_loss(model, move(held, slice(i, i + 16)), args.dtype)[1].item() for i in range(0, min(64, len(held[0])), 16)]
            model.train()
            log.append({"step": step, "tokens": step * args.rows * ROW, "train": round(mean, 5) if step else "", "held_out": round(sum(parts) / len(parts), 5)})
            print(log[-1], f"{time.time() - t1:.0f} s", flush=True)
        if progress >= 1:
            break
        if len(order) < args.rows:
            order = np.concatenate([order, rng.permutation(len(data[0]))])
        rows, order = torch.from_numpy(order[:args.rows].copy()), order[args.rows:]
        lr = args.lr * min(1, (step + 1) / 200) * 0.5 * (1 + math.cos(math.pi * progress))
        for g in opt.param_groups:
            g["lr"] = lr
        loss, said = batch_loss(step_model, move(data, rows), args.dtype)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        mean = said.item() if step % 10 == 0 or step < 2 else mean
        step += 1

    model = model.to(torch.bfloat16)
    model.generation_config = transformers.GenerationConfig(do_sample=False, eos_token_id=[end, eot], pad_token_id=eot)
    model.save_pretrained(args.out)
    with open(os.path.join(args.out, "loss.csv"), "w", newline="") as f:
        w = csv.DictWriter(f, ["step", "tokens", "train", "held_out"])
        w.writeheader()
        w.writerows(log)
    info = {"seed": args.seed, "documents": args.docs, "corpus_tokens": tokens, "steps": step, "rows_per_step": args.rows, "tokens_per_row": ROW, "lr": args.lr, "compile": args.compile,
            "parameters": n, "seconds": round(time.time() - t1), "device": torch.cuda.get_device_name() if args.device == "cuda" else "cpu",
            "torch": torch.__version__, "transformers": transformers.__version__, "held_out_loss": log[-1]["held_out"]}
    with open(os.path.join(args.out, "training.json"), "w") as f:
        f.write(json.dumps(info, indent=2) + "\n")
    tiny_eval.report(args.out, args.device)
    print(f"done in {time.time() - t0:.0f} s")


if __name__ == "__main__":
    main()
