#!/usr/bin/env python3
"""Measures `--lookup`: answers that repeat a part of their prompt but for some tokens, with N tokens computed ahead and without.

usage: bench/lookup.py DIR CLIENTS [FLAG ...]     (DIR from bench/shape.py SHAPE-counts; flags of `linnet serve`)

A prompt counts up, every EVERY-th token is another one, and the answer, which a counting model gives, is without them. The answers are compared. A rate is
that of the tokens of CLIENTS requests at once, the best of ROUNDS. The environment variable LINNET is the path of the command."""
import sys

from cuda_http import ask_all, start

LENGTH, ROUNDS, EVERY, AHEAD = 256, 2, (10, 40, 1000), (0, 4, 8, 16, 32)


def body(first, every):
    ids = [first + i if (i + 1) % every else 90000 + 7 * i for i in range(LENGTH)]
    return dict(prompt=ids + [80000, 80002, first - 1], max_tokens=LENGTH, temperature=0, ignore_eos=True)


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    model, clients, flags = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
    plain = {}
    print("  ahead  one other in  tok/s  of the rate without  computed ahead  kept", flush=True)
    for ahead in AHEAD:
        server, port = start(model, "--parallel", str(clients), "--ctx", str(3 * LENGTH), "--lookup", str(ahead), *flags)
        try:
            for every in EVERY:
                bodies = [body(1000 + LENGTH * i, every) for i in range(clients)]
                ask_all(port, [dict(b, max_tokens=8) for b in bodies])
                best = max((measure(port, bodies) for _ in range(ROUNDS)), key=lambda r: r[0])
                plain.setdefault(every, best)
                if sorted(best[3]) != sorted(plain[every][3]):
                    sys.exit(f"--lookup {ahead} changes an answer")
                print(f"{ahead:>7}{every:>14}{best[0]:>7.0f}{best[0] / plain[every][0]:>21.2f}{best[1]:>16}{best[2]:>6}", flush=True)
        finally:
            server.terminate()
            server.wait()


def measure(port, bodies):
    answers, seconds = ask_all(port, bodies)
    details = [a["usage"]["completion_tokens_details"] for a in answers]
    kept = sum(d.get("accepted_prediction_tokens", 0) for d in details)
    return (sum(a["usage"]["completion_tokens"] for a in answers) / seconds, kept + sum(d.get("rejected_prediction_tokens", 0) for d in details), kept,
            [a["choices"][0]["text"] for a in answers])


main()
