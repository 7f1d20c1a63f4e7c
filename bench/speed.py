#!/usr/bin/env python3
"""Prefill of 512 tokens and decode of 64, beside llama.cpp in the same run: five alternations, medians, tokens per second and ratios.

llama.cpp is timed warm, and decodes at depth 0; linnet is timed from a cold start, and decodes after the 512 tokens.

usage: speed.py DIR                                       linnet alone
       speed.py DIR --gguf FILE --peer-python PYTHON      beside llama.cpp (pip install llama-cpp-python, in that Python)

Environment: LINNET, the command. Other flags are handed to linnet (--numerics fast, --quantize 4 ...)."""
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile

LINNET = os.environ.get("LINNET", os.path.join(os.path.dirname(__file__), "../build/linnet"))
PEER = """
import random, statistics, sys, time
from llama_cpp import Llama
m = Llama(sys.argv[1], n_ctx=4096, n_batch=512, n_ubatch=512, n_threads=2, n_threads_batch=2, verbose=False)
random.seed(1)
ids = [random.randrange(m.n_vocab()) for _ in range(576)]
prefill, decode = [], []
for _ in range(4):
    m.reset(); a = time.time(); m.eval(ids[:512]); prefill.append(512 / (time.time() - a))
m.reset()
for t in ids[512:]: a = time.time(); m.eval([t]); decode.append(1 / (time.time() - a))
print(statistics.median(prefill[1:]), statistics.median(decode[4:]))
"""


def linnet(model, ids, flags):
    out = subprocess.run([LINNET, "run", model, "--ids", "@" + ids, "-n", "65", "--temp", "0", "--ignore-eos", "--threads", "2", "--json", *flags],
                         stdout=subprocess.PIPE, check=True).stdout
    m = json.loads(out)["metrics"]
    return m["prefill_tok_s"], m["decode_tok_s"]


def peer(python, gguf):
    out = subprocess.run([python, "-c", PEER, gguf], stdout=subprocess.PIPE, check=True).stdout.split()
    return float(out[0]), float(out[1])


def main():
    args = sys.argv[1:]
    if not args or args[0].startswith("-"):
        sys.exit(__doc__)
    model, args = args[0], args[1:]
    opts = {}
    for name in ("--gguf", "--peer-python"):
        if name in args:
            i = args.index(name)
            opts[name] = args[i + 1]
            del args[i:i + 2]
    random.seed(1)
    vocab = json.load(open(f"{model}/config.json"))["vocab_size"]
    ours, theirs = [], []
    with tempfile.NamedTemporaryFile("w", suffix=".ids") as f:
        f.write(",".join(str(random.randrange(vocab)) for _ in range(512)))
        f.flush()
        linnet(model, f.name, args)  # the page cache is warm for both
        for i in range(5):
            ours.append(linnet(model, f.name, args))
            if "--gguf" in opts:
                theirs.append(peer(opts.get("--peer-python", sys.executable), opts["--gguf"]))
            print(f"# {i + 1}: linnet {ours[-1][0]:.1f} {ours[-1][1]:.2f}" + (f", llama.cpp {theirs[-1][0]:.1f} {theirs[-1][1]:.2f}" if theirs else ""), file=sys.stderr)
    med = lambda rows, k: statistics.median(r[k] for r in rows)
    print("| model | what | linnet, tok/s |" + (" llama.cpp, tok/s | ratio |" if theirs else ""))
    print("|---|---|---|" + ("---|---|" if theirs else ""))
    for k, what in ((0, "prefill 512"), (1, "decode")):
        row = f"| {os.path.basename(model)} | {what} | {med(ours, k):.1f} |"
        if theirs:
            ratio = statistics.median(a[k] / b[k] for a, b in zip(ours, theirs))
            row += f" {med(theirs, k):.1f} | {ratio:.2f} |"
        print(row)


main()
