#!/usr/bin/env python3
"""Compares the memory that `linnet plan --for train` predicts with the peak resident size (VmHWM) of `linnet train`: measured / planned must be at
most 1.02.

Each model is trained for one step of --batch samples (--preference: pairs) of --length random tokens, rank 8 on q_proj and v_proj or by --method full, first with all the memory of the
machine, then with ever smaller limits (--memory), so that every policy of the planner has its turn: nothing recomputed, some layers, all of them,
smaller micro-batches. --policies takes some of these rows alone: the numbers of the policies, from 0. The environment variable LINNET is the path of
the command."""
import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time

LINNET = os.environ.get("LINNET", os.path.join(os.path.dirname(__file__), "../build/linnet"))
HEAD = "| model | recomputed layers | rows | weights, MB | activations, MB | plan, MB | VmHWM, MB | beyond weights, MB | VmHWM / plan |\n|---|---|---|---|---|---|---|---|---|"


def peak_of(command):
    """Runs a command. Returns its peak resident size in bytes: VmHWM of /proc, read every 2 ms, because the ru_maxrss of a child begins with the
    size of this process."""
    child, most = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL), 0
    while child.poll() is None:
        with open(f"/proc/{child.pid}/status") as f:
            most = max([most] + [int(x.split()[1]) for x in f if x.startswith("VmHWM")])
        time.sleep(0.002)
    if child.returncode:
        raise subprocess.CalledProcessError(child.returncode, command)
    return most * 1024


def write_rows(path, model, batch, length, counted, pairs):
    config = json.load(open(f"{model}/config.json"))
    vocab = config.get("vocab_size") or config["text_config"]["vocab_size"]
    random.seed(1)
    with open(path, "w") as f:
        for _ in range(batch):
            ids = [random.randrange(vocab) for _ in range(2 * length)] if pairs else []
            f.write(json.dumps({"prompt_ids": ids[:length // 2], "chosen_ids": ids[length // 2:length], "rejected_ids": ids[length:length + length // 2]}) + "\n" if pairs else
                    json.dumps({"ids": [random.randrange(vocab) for _ in range(length)], "mask": [int(i < counted) for i in range(length)]}) + "\n")


def policies(model, flags):
    """Yields the plans of ever smaller limits, with the limit in bytes (0: none), until a step of one sample does not fit."""
    limit = 0
    while True:
        more = ["--memory", str(limit)] if limit else []
        done = subprocess.run([LINNET, "plan", model, "--for", "train", *flags, *more, "--json"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        if done.returncode not in (0, 6):
            raise subprocess.CalledProcessError(done.returncode, [LINNET])
        plan = json.loads(done.stdout)
        if not plan["fits"]:
            return
        yield plan, more
        limit = int(min(plan["peak_bytes"] * 0.99, plan["peak_bytes"] - 500000))


def measure(model, a, tmp):
    """Prints the rows of a model. Returns how many are beyond the bound."""
    rows, bad = os.path.join(tmp, "rows.jsonl"), 0
    write_rows(rows, model, a.batch, a.length, a.counted or a.length, a.preference != "none")
    flags = ["--data", rows, "--batch", str(a.batch), "--steps", "1", "--threads", str(a.threads), "--numerics", a.numerics, "--method", a.method, "--preference", a.preference]
    for i, (plan, limit) in enumerate(policies(model, flags)):
        if a.policies and i not in a.policies:
            continue
        out = os.path.join(tmp, f"{os.path.basename(os.path.abspath(model))}-{i}")
        try:
            peak = peak_of([LINNET, "train", model, *flags, *limit, "-o", out, "--json"])
        except subprocess.CalledProcessError as e:
            if e.returncode != 6:
                raise
            return bad  # the last limit: what the process holds before the run differs by some 100 kB
        ratio = peak / plan["peak_bytes"]
        bad += ratio > 1.02
        print(f"| {os.path.basename(os.path.abspath(model))} | {plan['recomputed_layers']} | {plan['rows']} | {plan['weights_bytes'] / 1e6:.1f} | "
              f"{plan['activation_bytes'] / 1e6:.1f} | {plan['peak_bytes'] / 1e6:.1f} | {peak / 1e6:.1f} | {(peak - plan['weights_bytes']) / 1e6:.1f} | {ratio:.3f} |", flush=True)
    return bad


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("models", nargs="+", metavar="DIR", help="models (bench/shape.py makes some)")
    p.add_argument("--batch", type=int, default=4, help="samples of a step (4)")
    p.add_argument("--length", type=int, default=64, help="tokens of a sample (64)")
    p.add_argument("--counted", type=int, help="the loss counts this many tokens of a sample, and the rows after them are not computed: a shorter step with the same plan (all)")
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--numerics", choices=("exact", "fast"), default="fast")
    p.add_argument("--method", choices=("lora", "full"), default="lora")
    p.add_argument("--preference", choices=("none", "dpo", "dpo-norm", "ipo", "orpo"), default="none")
    p.add_argument("--policies", type=int, nargs="*", help="the rows to measure, from 0 (all)")
    a = p.parse_args()
    for model in a.models:
        if not os.path.isfile(f"{model}/config.json"):
            p.error(f"{model}: no config.json there")
    print(HEAD)
    with tempfile.TemporaryDirectory() as tmp:
        sys.exit(1 if sum(measure(model, a, tmp) for model in a.models) else 0)


try:
    main()
except subprocess.CalledProcessError as e:
    sys.exit(f"{e.cmd[0]}: exit {e.returncode}")
except OSError as e:
    sys.exit(f"{e.filename}: {e.strerror}; LINNET names the command")
