#!/usr/bin/env python3
"""From the start of the process to the first byte of its answer: 16 prompt tokens, a warm page cache, medians, in milliseconds.

usage: start.py DIR [--reps N] [--pause SECONDS] [LINNET'S FLAGS]

The parts: `load` opens the model and packs its weights, `prompt` computes the first token, `rest` is everything outside of them (the process
itself, the plan, the sampler, the pipe). `bare` is what a program takes that does nothing but touch as many bytes of fresh memory, on two threads: on a virtual
machine whose host takes free pages back, after a pause, most of a start. --pause waits before each run (0.1 s without it)."""
import ctypes
import json
import mmap
import os
import random
import re
import statistics
import subprocess
import sys
import threading
import time

LINNET = os.environ.get("LINNET", os.path.join(os.path.dirname(__file__), "../build/linnet"))


def start(command):
    """Milliseconds to the first byte and of its parts, and the peak size in bytes."""
    begin = time.perf_counter()
    p = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if not os.read(p.stdout.fileno(), 1):
        sys.exit(p.stderr.read().decode())
    first = 1e3 * (time.perf_counter() - begin)
    said = p.stderr.read().decode()
    p.stdout.read()
    _, status, usage = os.wait4(p.pid, 0)
    p.returncode = status
    load = 1e3 * float(re.search(r"load ([0-9.]+) s", said)[1])
    prompt = 1e3 * float(re.search(r"prompt .* in ([0-9.]+) s", said)[1])
    return first, load, prompt, first - load - prompt, usage.ru_maxrss * 1024


def bare(size):
    """Milliseconds to fault in so many bytes."""
    begin = time.perf_counter()
    m = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    m.madvise(mmap.MADV_HUGEPAGE)
    at = ctypes.addressof(ctypes.c_char.from_buffer(m))
    halves = [threading.Thread(target=ctypes.memset, args=(at + i * (size // 2), 1, size // 2)) for i in range(2)]
    for t in halves:
        t.start()
    for t in halves:
        t.join()
    return 1e3 * (time.perf_counter() - begin)


def main():
    args = sys.argv[1:]
    if not args or args[0].startswith("-"):
        sys.exit(__doc__)
    model, args, reps, pause = args[0], args[1:], 10, 0.1
    while args[:1] in (["--reps"], ["--pause"]):
        if args[0] == "--reps":
            reps = int(args[1])
        else:
            pause = float(args[1])
        args = args[2:]
    random.seed(1)
    vocab = json.load(open(f"{model}/config.json"))["vocab_size"]
    ids = ",".join(str(random.randrange(vocab * 2 // 3)) for _ in range(16))
    command = [LINNET, "run", model, "--ids", ids, "-n", "1", "--temp", "0", "--ignore-eos", "--stats", *args]
    rows, touched = [], []
    start(command)  # the page cache is warm
    for _ in range(reps):
        time.sleep(pause)
        rows.append(start(command))
        time.sleep(pause)
        touched.append(bare(rows[-1][4]))
    mid = [statistics.median(c) for c in zip(*rows)]
    print("| model | first byte, ms | worst | load | prompt | rest | peak, MB | bare, ms |\n|---|---|---|---|---|---|---|---|")
    print(f"| {os.path.basename(os.path.abspath(model))} | {mid[0]:.0f} | {max(r[0] for r in rows):.0f} | {mid[1]:.0f} | {mid[2]:.0f} | {mid[3]:.0f} | "
          f"{mid[4] / 1e6:.0f} | {statistics.median(touched):.0f} |")


main()
