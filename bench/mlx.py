#!/usr/bin/env python3
"""Compares linnet's MLX device with mlx-lm on the same build of MLX: a prompt of 32 tokens and the tokens after it, and memory.

    python3 -m venv mlx && mlx/bin/pip install mlx-lm 'mlx[cpu]==0.32.4' numpy      # the version that linnet was built for; a Mac needs no [cpu]
    mlx/bin/python bench/mlx.py [--models DIR] [--times N] [--bits f32,16,4]

The model has 4 layers of the shape of Qwen3-0.6B and random weights (bench/shape.py), in f32, in bf16 and quantised to 4 bits by linnet. A process
of each program runs in turn, --times times. Rates are each program's own, of greedy decoding with sampling included; memory is the largest
resident memory of the process, which for mlx-lm includes Python. The ratio of a row is the median of the ratios of the pairs: above 1 linnet is
faster; memory is linnet's share. LINNET is the path of the command."""
import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
LINNET = os.environ.get("LINNET", os.path.join(HERE, "../build/linnet"))
SHAPE = "qwen3-0.6b-4-layers"
PROMPT = [1000 + i * 7919 % 100000 for i in range(32)]

CHILD = """
import json, sys, mlx.core as mx, mlx_lm, pathlib
from mlx_lm.generate import stream_generate
job = json.loads(sys.argv[1])
model, tokenizer = mlx_lm.load(job["model"])
tokenizer._eos_token_ids = set()
for r in stream_generate(model, tokenizer, job["prompt"], max_tokens=job["n"]): pass
print(json.dumps(dict(prompt=r.prompt_tps, decode=r.generation_tps, held=mx.get_peak_memory(), n=r.generation_tokens,
                      version=mlx_lm.__version__ + ", MLX " + mx.__version__ + ", " + str(mx.default_device()))))
"""


def measured(command):
    """Runs a command; returns the JSON object on the last line of its output, with the process's largest resident memory."""
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    out, said = child.stdout.read(), child.stderr.read()
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        sys.exit(f"{command[0]}: exit {child.returncode}\n{said.decode(errors='replace')[-2000:]}")
    return dict(json.loads(out.decode().strip().rsplit("\n", 1)[-1]), resident=used.ru_maxrss * (1 if sys.platform == "darwin" else 1024))


def linnet(model, n):
    got = measured([LINNET, "run", model, "--device", "mlx", "--ids", ",".join(map(str, PROMPT)), "-n", str(n), "--temp", "0", "--ignore-eos",
                    "--ctx", "256", "--json"])
    return dict(prompt=got["metrics"]["prefill_tok_s"], decode=got["metrics"]["decode_tok_s"], resident=got["resident"],
                n=got["metrics"]["generated_tokens"], ids=got["ids"])


def mlx_lm(model, n):
    return measured([sys.executable, "-c", CHILD, json.dumps(dict(model=model, prompt=PROMPT, n=n))])


def model_of(folder, bits):
    """The model's directory; written under another name first, so that an interrupted run leaves no part of one."""
    path = os.path.join(folder, f"{SHAPE}-{bits}")
    if not os.path.exists(path):
        shutil.rmtree(path + ".part", ignore_errors=True)
        if bits == "4":
            subprocess.run([LINNET, "quantize", model_of(folder, "16"), "-o", path + ".part", "--bits", "4"], check=True, stdout=subprocess.DEVNULL)
        else:
            subprocess.run([sys.executable, os.path.join(HERE, "shape.py"), SHAPE + ("-f32" if bits == "f32" else ""), path + ".part"], check=True)
        os.rename(path + ".part", path)
    return path


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("--models", default="bench/models", help="folder of the models")
    a.add_argument("--times", type=int, default=5)
    a.add_argument("--tokens", type=int, default=16, help="tokens after the prompt")
    a.add_argument("--bits", default="f32,16,4", help="some of f32, 16 (bf16), 4")
    a = a.parse_args()
    os.makedirs(a.models, exist_ok=True)
    print("| weights | work | linnet | mlx-lm | ratio |\n|---|---|---|---|---|", flush=True)
    for bits in a.bits.split(","):
        model, pairs = model_of(a.models, bits), []
        for i in range(a.times):
            pairs.append((linnet(model, a.tokens), mlx_lm(model, a.tokens)))
            ours, theirs = pairs[-1]
            assert ours["n"] == theirs["n"] == a.tokens, pairs[-1]
            print(f"# {i + 1}: " + "; ".join(f"{k} {ours[k]:.3g}, {theirs[k]:.3g}" for k in ("prompt", "decode", "resident"))
                  + f"; mlx-lm {theirs['version']} holds {theirs['held']:.3g}", file=sys.stderr)
        for key, what, form in (("prompt", "32 tokens of a prompt, tok/s", "{:.2f}"), ("decode", "decoding, tok/s", "{:.2f}"),
                                ("resident", "resident memory, MB", "{:.0f}")):
            of = lambda side: statistics.median(p[side][key] for p in pairs) / (1e6 if key == "resident" else 1)
            ratio = statistics.median(p[0][key] / p[1][key] for p in pairs)
            print(f"| {'bf16' if bits == '16' else bits + ' bits' if bits == '4' else bits} | {what} | {form.format(of(0))} | {form.format(of(1))} | {ratio:.2f} |",
                  flush=True)


if __name__ == "__main__":
    main()
