#!/usr/bin/env python3
"""Teaches the bundled model a preference with `linnet train --preference`, and measures it on questions that it has not seen.

usage: python3 tools/check_preferences.py [LINNET]

The question of tools/tiny_task.py, "Would you recommend it?", has the answers Yes and No, of which a review makes one right; the model does not know the
task. Pairs of 240 reviews train an adapter with DPO, IPO and ORPO; 400 other reviews tell how often the chosen answer is the likelier one. Before the
training that is chance (40 to 60 of 100), after it at least 90 of 100.
"""
import json
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from tiny_task import questions  # noqa: E402

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
LINNET = sys.argv[1] if len(sys.argv) > 1 else os.path.join(ROOT, "build/linnet")
OTHER = {"Yes": "No", "No": "Yes"}
RATES = {"dpo": "5e-4", "dpo-norm": "5e-4", "ipo": "5e-4", "orpo": "5e-4"}


def run(*words):
    done = subprocess.run([LINNET, *words], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(words)}: exit {done.returncode}\n{done.stderr}")
    return done.stdout


def accuracy(file, *flags):
    return json.loads(run("classify", "tiny", file, "--jsonl", "--json", "--labels", "Yes,No", "--prompt", "{text}", *flags).splitlines()[-1])["accuracy"]


def main():
    seen, bad = set(), 0
    train, held = questions(11, 240, seen), questions(12, 400, seen)
    with tempfile.TemporaryDirectory() as tmp:
        pairs, tests = os.path.join(tmp, "pairs.jsonl"), os.path.join(tmp, "held.jsonl")
        with open(pairs, "w") as f:
            f.writelines(json.dumps({"prompt": q, "chosen": a, "rejected": OTHER[a]}) + "\n" for q, a in train)
        with open(tests, "w") as f:
            f.writelines(json.dumps({"text": q, "label": a}) + "\n" for q, a in held)
        before = accuracy(tests)
        bad += not 0.4 <= before <= 0.6
        print(f"before: {before:.3f} of {len(held)} (0.4 to 0.6)", flush=True)
        for kind, lr in RATES.items():
            out = os.path.join(tmp, kind)
            run("train", "tiny", "--data", pairs, "-o", out, "--preference", kind, "--targets", "all-linear", "--lr", lr, "--batch", "8", "--epochs", "3", "--seed", "1")
            after = accuracy(tests, "--adapter", out)
            bad += after < 0.9
            print(f"{kind}: {after:.3f} (at least 0.9)", flush=True)
    sys.exit(1 if bad else 0)


main()
