#!/usr/bin/env python3
"""Draws the results in bench/results/*.csv, or prints them as tables: linnet, its peers and the ceiling, row by row.

usage: plot.py > docs/performance.svg  a chart of linnet and llama.cpp for the shape measured on most machines (qwen3-0.6b), bf16, 8 and 4 bits
       plot.py --table                 every row of every file, in Markdown

A file has the results of one kind of machine, a line those of one pair of runs (linnet and a peer). The values shown are medians over the lines
of the same row and peer. The length of a bar is the share of the ceiling of linnet's row, so that rows of very different speed can use one axis;
the label is the speed in tokens per second."""
import csv
import glob
import os
import statistics
import sys
from xml.sax.saxutils import escape

HERE = os.path.dirname(os.path.abspath(__file__))
MODEL, PEER = "qwen3-0.6b", "llama.cpp"
WORKS = (("prefill", 0, 1), ("decode", 0, 1), ("decode", 4096, 1), ("streams", 256, 8))
NAMES = ("prefill of 512", "decode at 0", "decode at 4,096", "8 streams at 256")
MIDDLE = {"linnet_tok_s": statistics.median_low, "ratio": statistics.median_low, "peer_tok_s": statistics.median_high}  # of two values: the one that favours linnet less
BITS = {16: "bf16", 8: "8 bits", 4: "4 bits"}
INK, FAINT, PAPER, OURS, THEIRS = "#1f2328", "#6e7781", "#ffffff", "#0969da", "#9aa4ae"


def lines_of(path):
    """Returns {(model, bits, work, depth, streams, peer): medians over the lines of that row}, in the order of the file."""
    rows = {}
    for line in csv.DictReader(open(path, newline="")):
        key = (line["model"], int(line["bits"]), line["work"], int(line["depth"]), int(line["streams"]), line["peer"])
        rows.setdefault(key, []).append(line)
    out = {}
    for key, lines in rows.items():
        middle = lambda name: MIDDLE.get(name, statistics.median)([float(x[name]) for x in lines if x[name]] or [float("nan")])
        out[key] = dict({name: middle(name) for name in ("linnet_tok_s", "peer_tok_s", "ratio", "read_gb_s", "share")}, times=len(lines),
                        numerics=lines[0]["numerics"], isa=lines[0]["isa"], cpu=lines[0]["cpu"], version=lines[-1]["peer_version"], date=lines[-1]["date"][:10])
    return out


def title_of(rows):
    any_row = next(iter(rows.values()))
    return f"{any_row['cpu']}, {any_row['isa']}"


def table(path):
    rows = lines_of(path)
    print(f"\n### {os.path.basename(path)}: {title_of(rows)}\n")
    print("| shape | weights | work | linnet, tok/s | of the ceiling | peer | tok/s | ratio | alternations |\n|---|---|---|---|---|---|---|---|---|")
    place = {work: i for i, work in enumerate(WORKS)}
    for key in sorted(rows, key=lambda k: (k[0] != MODEL, k[0], -k[1], place[k[2:5]], k[5])):
        r = rows[key]
        peer = f"{key[5]} {r['version']}" if key[5] else ""
        theirs = f"{r['peer_tok_s']:.1f} | {r['ratio']:.2f}" if key[5] else " | "
        share = f"{100 * r['share']:.0f} %" if r["share"] > 0 else ""
        print(f"| {key[0]} | {BITS[key[1]]} | {NAMES[place[key[2:5]]]} | {r['linnet_tok_s']:.1f} | {share} | {peer} | {theirs} | {r['times']} |")


class Page:
    def __init__(self):
        self.parts, self.height = [], 0

    def text(self, x, y, words, size=12, fill=INK, anchor="start", weight="normal"):
        self.parts.append(f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="{fill}" text-anchor="{anchor}" font-weight="{weight}">{escape(words)}</text>')

    def bar(self, x, y, w, h, fill):
        self.parts.append(f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(w, 1):.1f}" height="{h}" rx="1.5" fill="{fill}"/>')

    def line(self, x, y0, y1, fill, width=1, dash=""):
        self.parts.append(f'<path d="M{x:.1f} {y0:.1f}V{y1:.1f}" stroke="{fill}" stroke-width="{width}" stroke-dasharray="{dash}" fill="none"/>')


LEFT, WIDE, RIGHT, WIDTH = 150, 520, 190, 880
BAR, ROW, GROUP = 11, 34, 14


def panel(p, y, path):
    """Draws one machine: three groups of rows."""
    rows = lines_of(path)
    have = [(bits, i) for bits in BITS for i in range(len(WORKS)) if rows.get((MODEL, bits, *WORKS[i], PEER), {}).get("share", 0) > 0]
    if not have:
        return y
    most = max([1.0] + [rows[(MODEL, b, *WORKS[i], PEER)][k] / rows[(MODEL, b, *WORKS[i], PEER)]["linnet_tok_s"] * rows[(MODEL, b, *WORKS[i], PEER)]["share"]
                        for b, i in have for k in ("linnet_tok_s", "peer_tok_s")])
    scale = WIDE / (1.02 * most)
    p.text(20, y + 20, title_of(rows), 15, weight="600")
    p.text(LEFT + scale, y + 42, "ceiling", 11, FAINT, "middle")
    p.text(LEFT + WIDE + 100, y + 42, "ceiling, tok/s", 11, FAINT, "end")
    p.text(WIDTH - 20, y + 42, "ratio", 11, FAINT, "end")
    top = y = y + 50
    last = None
    for bits, i in have:
        if bits != last:
            y += GROUP
            p.text(20, y + 16, BITS[bits], 13, weight="600")
            last = bits
        r = rows[(MODEL, bits, *WORKS[i], PEER)]
        ceiling = r["linnet_tok_s"] / r["share"]
        p.text(LEFT - 8, y + 16, NAMES[i], 12, anchor="end")
        for k, (tok_s, fill) in enumerate(((r["linnet_tok_s"], OURS), (r["peer_tok_s"], THEIRS))):
            w = tok_s / ceiling * scale
            p.bar(LEFT, y + k * (BAR + 2), w, BAR, fill)
            p.text(LEFT + w + 5, y + k * (BAR + 2) + 9.5, f"{tok_s:,.0f}" if tok_s >= 100 else f"{tok_s:.1f}", 11, INK if k == 0 else FAINT)
        p.text(LEFT + WIDE + 100, y + 16, f"{ceiling:,.0f}", 12, FAINT, "end")
        p.text(WIDTH - 20, y + 16, f"{r['ratio']:.2f} ×", 13, INK, "end", "600")
        y += ROW
    p.line(LEFT, top + 6, y, FAINT)
    p.line(LEFT + scale, top - 4, y, INK, 1, "3 3")
    for percent in range(25, int(100 * most) + 1, 25):
        p.text(LEFT + percent / 100 * scale, y + 14, f"{percent} %", 10, FAINT, "middle")
        if percent != 100:
            p.line(LEFT + percent / 100 * scale, y, y + 4, FAINT)
    return y + 40


def picture(paths):
    p = Page()
    p.text(20, 34, f"{MODEL}'s shape: tokens per second, and their share of the machine's ceiling", 16, weight="600")
    p.bar(20, 48, 12, 12, OURS)
    p.text(38, 58, "linnet, fast", 13)
    p.bar(130, 48, 12, 12, THEIRS)
    p.text(148, 58, f"{PEER} (bf16, q8_0, Q4_0), alternating runs; the ratio is the median of the pairs'", 13)
    y = 78
    for path in paths:
        y = panel(p, y, path)
    p.text(20, y + 4, "The ceiling: what memory can be read, or multiply-adds be done (bf16 in tiles with AMX, else f32), measured in the same runs. A bar beyond it used other", 10.5, FAINT)
    p.text(20, y + 18, "arithmetic (products of bf16 numbers or of integers, where the processor has them), or read bf16 in 12 bits a number.", 10.5, FAINT)
    y += 34
    print(f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{y:.0f}" viewBox="0 0 {WIDTH} {y:.0f}" font-family="system-ui, -apple-system, Segoe UI, DejaVu Sans, sans-serif">')
    print(f'<rect width="{WIDTH}" height="{y:.0f}" rx="8" fill="{PAPER}"/>')
    print("\n".join(p.parts) + "\n</svg>")


if sys.argv[1:] not in ([], ["--table"]):
    sys.exit(__doc__)
files = sorted(glob.glob(f"{HERE}/results/*.csv"))
if sys.argv[1:]:
    for f in files:
        table(f)
else:
    picture(files)
