#!/usr/bin/env python3
"""Measures the start latency: milliseconds from the start of the process to the first byte of its answer, for 16 prompt tokens with a warm page
cache, medians.

The parts: `load` opens the model and packs its weights, `prompt` computes the first token, `rest` is everything else (process start, planning,
the sampler, the pipe). `bare` is the time in which a program with two threads does nothing but touch the same number of bytes of fresh memory: on
a virtual machine whose host reclaims free pages, that is most of a start after a pause. --pause is the time to wait before each run (0.1 s)."""
import argparse
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
    """Starts the command. Returns the milliseconds to the first byte, those of load, prompt and rest, and the peak resident size in bytes."""
    begin = time.perf_counter()
    try:
        p = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    except OSError as e:
        sys.exit(f"{LINNET}: {e.strerror}; LINNET names the command")
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
    """Returns the milliseconds that faulting in a number of bytes takes."""
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
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, usage="start.py DIR [--reps N] [--pause SECONDS] [LINNET'S FLAGS]")
    p.add_argument("model", metavar="DIR")
    p.add_argument("--reps", type=int, default=10, help="starts (10)")
    p.add_argument("--pause", type=float, default=0.1, help="seconds before each start (0.1)")
    a, flags = p.parse_known_args()
    if a.reps < 1 or not os.path.isfile(f"{a.model}/config.json"):
        p.error(f"--reps: expected a number from 1, found {a.reps}" if a.reps < 1 else f"{a.model}: no config.json there")
    random.seed(1)
    vocab = json.load(open(f"{a.model}/config.json"))["vocab_size"]
    ids = ",".join(str(random.randrange(vocab * 2 // 3)) for _ in range(16))
    command = [LINNET, "run", a.model, "--ids", ids, "-n", "1", "--temp", "0", "--ignore-eos", "--stats", *flags]
    rows, touched = [], []
    start(command)  # warms the page cache
    for _ in range(a.reps):
        time.sleep(a.pause)
        rows.append(start(command))
        time.sleep(a.pause)
        touched.append(bare(rows[-1][4]))
    mid = [statistics.median(c) for c in zip(*rows)]
    print("| model | first byte, ms | worst | load | prompt | rest | peak, MB | bare, ms |\n|---|---|---|---|---|---|---|---|")
    print(f"| {os.path.basename(os.path.abspath(a.model))} | {mid[0]:.0f} | {max(r[0] for r in rows):.0f} | {mid[1]:.0f} | {mid[2]:.0f} | {mid[3]:.0f} | "
          f"{mid[4] / 1e6:.0f} | {statistics.median(touched):.0f} |")


main()
