#!/usr/bin/env python3
"""Compares the speed and the memory of LoRA training with those of PyTorch and peft: rank 8 on q_proj and v_proj, one step of AdamW over the same
random ids, by default 4 samples of 256 tokens, on 2 threads.

The processes run in turn, --rounds times: linnet for --steps steps, then the peer, in each dtype of --dtypes, for as many. Of each process the
first step is left out where there are more; tokens per second are the median over all other steps, memory is the peak resident size (VmHWM). The ratio of a
round is that of its own medians; the last line gives the median ratio and its range, against the peer's best dtype.

With --device cuda both train on the GPU, and memory is what nvidia-smi reports as used.

usage: train_speed.py DIR      in an environment that has torch, transformers and peft; LINNET is the path of the command"""
import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time

LINNET = os.environ.get("LINNET", os.path.join(os.path.dirname(__file__), "../build/linnet"))


def peak_so_far(pid):
    """The peak resident size in bytes of a process that lives."""
    with open(f"/proc/{pid}/status") as f:
        return 1024 * max([int(x.split()[1]) for x in f if x.startswith("VmHWM")], default=0)


def gpu_memory():
    """The bytes of GPU memory that are in use."""
    said = subprocess.run(["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"], capture_output=True, text=True, check=True)
    return int(said.stdout.split()[0]) << 20


def run(command, device):
    """Runs a command that prints a JSON object with "seconds" a step. Returns the seconds of the steps, and the peak of memory."""
    child, most = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True), 0
    seconds = []
    for line in child.stdout:
        step = json.loads(line)
        if "seconds" in step:
            seconds.append(step["seconds"])
            most = max(most, gpu_memory() if device == "cuda" else peak_so_far(child.pid))
    said = child.stderr.read()
    if child.wait():
        sys.exit(said)
    return seconds[1:] or seconds, most


def peer(model_dir, rows, steps, threads, dtype, device, checkpoints):
    """The peer's process: trains, and prints the seconds of each step."""
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    torch.set_num_threads(threads)
    base = AutoModelForCausalLM.from_pretrained(model_dir, dtype=getattr(torch, dtype))
    model = get_peft_model(base, LoraConfig(task_type="CAUSAL_LM", r=8, lora_alpha=16, target_modules=["q_proj", "v_proj"])).to(device)
    if checkpoints:
        base.config.use_cache = False
        base.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        model.enable_input_require_grads()
    model.train()
    optimiser = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-4)
    ids = torch.tensor([json.loads(x)["ids"] for x in open(rows)], device=device)
    for _ in range(steps):
        start = time.perf_counter()
        optimiser.zero_grad()
        loss = model(ids, labels=ids).loss
        loss.backward()
        optimiser.step()
        if device == "cuda":
            torch.cuda.synchronize()
        print(json.dumps({"loss": float(loss.detach()), "seconds": time.perf_counter() - start}), flush=True)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("model", metavar="DIR", help="a model, of bench/shape.py for example")
    p.add_argument("--batch", type=int, default=4, help="samples of a step (4)")
    p.add_argument("--length", type=int, default=256, help="tokens of a sample (256)")
    p.add_argument("--steps", type=int, default=2, help="steps of a process (2)")
    p.add_argument("--rounds", type=int, default=2, help="times that each process runs (2)")
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--dtypes", nargs="*", choices=("float32", "bfloat16"), default=["float32"], help="of the peer (float32)")
    p.add_argument("--memory", default="", help="linnet's --memory: with less, activations are computed again")
    p.add_argument("--quantize", choices=("4", "8"), help="linnet quantises the base; the peer does not")
    p.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    p.add_argument("--checkpoints", action="store_true", help="the peer computes activations again")
    p.add_argument("--peer", metavar="DTYPE", help=argparse.SUPPRESS)
    p.add_argument("--rows", help=argparse.SUPPRESS)
    a = p.parse_args()
    if a.peer:
        return peer(a.model, a.rows, a.steps, a.threads, a.peer, a.device, a.checkpoints)
    config = json.load(open(f"{a.model}/config.json"))
    vocab = config.get("vocab_size") or config["text_config"]["vocab_size"]
    tokens, done = a.batch * a.length, {}
    with tempfile.TemporaryDirectory() as tmp:
        rows = f"{tmp}/rows.jsonl"
        random.seed(1)
        with open(rows, "w") as f:
            f.writelines(json.dumps({"ids": [random.randrange(vocab) for _ in range(a.length)]}) + "\n" for _ in range(a.batch))
        print("| | " + " | ".join(["tok/s of the steps", "peak, MB"]) + " |\n|---|---|---|")
        for i in range(a.rounds):
            commands = {"linnet": [LINNET, "train", a.model, "--data", rows, "--batch", str(a.batch), "--steps", str(a.steps), "--threads", str(a.threads),
                                   "-o", f"{tmp}/{i}", "--json", "--no-shuffle", "--device", a.device] + (["--memory", a.memory] if a.memory else []) + (["--quantize", a.quantize] if a.quantize else [])}
            for dtype in a.dtypes:
                commands["peft " + dtype] = [sys.executable, __file__, a.model, "--peer", dtype, "--rows", rows, "--steps", str(a.steps), "--threads", str(a.threads), "--device", a.device] + (["--checkpoints"] if a.checkpoints else [])
            for name, command in commands.items():
                seconds, peak = run(command, a.device)
                done.setdefault(name, []).append((tokens / statistics.median(seconds), peak))
                print(f"| {name} | {', '.join(f'{tokens / s:.1f}' for s in seconds)} | {peak / 1e6:.0f} |", flush=True)
    if a.dtypes:
        best = max((x for x in done if x != "linnet"), key=lambda x: statistics.median(v[0] for v in done[x]))
        ratios = [x[0] / y[0] for x, y in zip(done["linnet"], done[best])]
        share = max(x[1] for x in done["linnet"]) / max(x[1] for x in done[best])
        print(f"linnet / {best}: {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f}) of its tokens per second, {100 * share:.0f} % of its memory")


try:
    main()
except OSError as e:
    sys.exit(f"{e.filename}: {e.strerror}; LINNET names the command")
