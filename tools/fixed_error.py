#!/usr/bin/env python3
"""What rows and weights lose in fixed point: the figures of docs/decisions/011. Needs numpy.

usage: fixed_error.py

Rows: a scale for each group of 64 columns, as base/fixed.h has it, or one for the whole row. Weights in affine groups of 64, s q + b, as whole multiples of one unit
of their output, the largest filling n bits: linear, m q + c with m and c whole, or rounded, each code's number by itself. All as rms of what is lost
over rms of the numbers; bf16 beside them."""
import numpy as np

random = np.random.default_rng(1)


def bf16(x):
    u = np.float32(x).view(np.uint32)
    return ((u + 0x7FFF + ((u >> 16) & 1)) & 0xFFFF0000).astype(np.uint32).view(np.float32)


def lost(got, want):
    return np.sqrt(((got - want) ** 2).mean() / (want**2).mean())


def row(x, bits, group):
    r = x.reshape(x.shape[0], -1, group or x.shape[1])
    u = 2.0 ** np.ceil(np.log2(np.abs(r).max(2, keepdims=True) / (2 ** (bits - 1) - 1)))
    return lost(np.rint(r / u) * u, r)


def rows():
    print("rows | bf16 | groups, 16 bits | groups, 12 | whole row, 16 bits | whole row, 14")
    for C in (1024, 3072, 9728):
        x = random.standard_normal((64, C))
        kinds = {"Gaussian": x, "times e to another": x * np.exp(x[:, ::-1]), "one of 256 times 30": np.where(random.random(x.shape) < 1 / 256, 30 * x, x),
                 "one of all times 1000": np.where(np.arange(C) == 7, 1000 * np.sign(x), x)}
        for name, v in kinds.items():
            print(f"{C}, {name} | {lost(bf16(v), v):.1e}", *(f"{row(v, *how):.1e}" for how in ((16, 64), (12, 64), (16, 0), (14, 0))), sep=" | ")


def weights():
    print("\nweights | quantised | bf16 | linear, 16 bits | linear, 14 | rounded, 14")
    for bits in (8, 4):
        for name in ("Gaussian", "groups of other sizes", "one of 1,024 times 20"):
            w = random.standard_normal((256, 48, 64))
            if name.startswith("groups"):
                w *= np.exp(0.5 * random.standard_normal((256, 48, 1)))
            if name.startswith("one"):
                w[random.random(w.shape) < 1 / 1024] *= 20
            low, most = w.min(2, keepdims=True), 2**bits - 1
            s, b = bf16((w.max(2, keepdims=True) - low) / most), bf16(low)
            q = np.clip(np.rint((w - b) / s), 0, most)
            real = s.astype(np.float64) * q + b
            cells = [lost(real, w), lost(bf16(real), real)]
            for n, linear in ((16, True), (14, True), (14, False)):
                unit = np.abs(real).max(axis=(1, 2), keepdims=True) / (0.99 * (2 ** (n - 1) - 1))
                m = np.rint(s / unit)
                c = np.rint((b + (s - m * unit) * most / 2) / unit)
                cells.append(lost((m * q + c if linear else np.rint(real / unit)) * unit, real))
            print(f"{bits} bits, {name}", *(f"{x:.1e}" for x in cells), sep=" | ")


rows()
weights()
