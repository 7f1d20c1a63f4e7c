#!/usr/bin/env python3
"""Compares the memory that `linnet plan` predicts with the peak resident size of the process: the ratio peak_bytes / VmHWM must be in
1.00 .. 1.10, and the predicted bytes other than weights and KV pages must be at most 150 MB.

Each row: 512 prompt tokens, 2,000 generated tokens, --ctx 4096, 2 threads, both numerics modes. The environment variable LINNET is the
path of the command."""
import argparse
import json
import os
import random
import subprocess
import sys
import tempfile

LINNET = os.environ.get("LINNET", os.path.join(os.path.dirname(__file__), "../build/linnet"))


def hwm(command):
    """Runs a command. Returns its stdout and its peak resident size in bytes, without that of this process."""
    code = "import resource,subprocess,sys;r=subprocess.run(sys.argv[1:],stdout=subprocess.PIPE,check=True);" \
           "sys.stdout.buffer.write(r.stdout);print('\\n%d'%resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
    out = subprocess.run([sys.executable, "-c", code, *command], stdout=subprocess.PIPE, check=True).stdout.decode()
    body, kib = out.rstrip("\n").rsplit("\n", 1)
    return body, int(kib) * 1024


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("models", nargs="+", metavar="DIR", help="models (bench/shape.py makes some)")
    p.add_argument("--tokens", type=int, default=2000, help="to generate (2000)")
    p.add_argument("--quantize", choices=("4", "8"), help="at load")
    a = p.parse_args()
    quantise = ["--quantize", a.quantize] if a.quantize else []
    for model in a.models:
        if not os.path.isfile(f"{model}/config.json"):
            p.error(f"{model}: no config.json there")
    random.seed(1)
    bad = 0
    print("| model | numerics | plan, MB | VmHWM, MB | plan / VmHWM | beside weights and KV, MB |\n|---|---|---|---|---|---|")
    for model in a.models:
        vocab = json.load(open(f"{model}/config.json"))["vocab_size"]
        with tempfile.NamedTemporaryFile("w", suffix=".ids") as f:
            f.write(",".join(str(random.randrange(vocab)) for _ in range(512)))
            f.flush()
            for numerics in ("exact", "fast"):
                flags = ["--ctx", "4096", "--threads", "2", "--numerics", numerics, *quantise]
                plan = json.loads(subprocess.run([LINNET, "plan", model, *flags, "--json"], stdout=subprocess.PIPE, check=True).stdout)
                body, peak = hwm([LINNET, "run", model, "--ids", "@" + f.name, "-n", str(a.tokens), "--temp", "0", "--ignore-eos", "--json", *flags])
                assert json.loads(body)["metrics"]["generated_tokens"] == a.tokens
                ratio = plan["peak_bytes"] / peak
                beside = plan["peak_bytes"] - plan["weights_bytes"] - plan["kv_bytes"]
                bad += not 1 <= ratio <= 1.10 or beside > 150e6
                print(f"| {os.path.basename(os.path.normpath(model))} {' '.join(quantise)} | {numerics} | {plan['peak_bytes'] / 1e6:.1f} | {peak / 1e6:.1f} | "
                      f"{ratio:.3f} | {beside / 1e6:.1f} |", flush=True)
    sys.exit(1 if bad else 0)


try:
    main()
except subprocess.CalledProcessError as e:
    sys.exit(f"{e.cmd[0]}: exit {e.returncode}")
except OSError as e:
    sys.exit(f"{e.filename}: {e.strerror}; LINNET names the command")
