#!/usr/bin/env python3
"""Prints the rounding errors of activations and weights as integers: the figures of docs/decisions/011. Needs numpy.

usage: fixed_error.py

Rows (activations): block floating point with a scale for each group of 64 columns, or int8 pairs with one scale for the whole row, with the
radix 256 or 30, as in quant/block_float.h. Weights in affine groups of 64, s q + b, as integer multiples of one scale for each output: with radix
256 the value of each code is rounded; with radix 30 it is m q + c. Products of such rows and weights. Each error is the rms of the rounding error
divided by the rms of the values; the errors of bf16 are printed for comparison."""
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


def whole(x, radix):
    u = np.abs(x).max(1, keepdims=True) / (127 * radix)
    v = np.rint(x / u)
    return v, u


def rows():
    print("rows | bf16 | groups, 16 bits | groups, 12 | whole row, radix 256 | radix 30")
    for C in (1024, 3072, 9728):
        x = random.standard_normal((64, C))
        kinds = {"Gaussian": x, "times e to another": x * np.exp(x[:, ::-1]), "one of 256 times 30": np.where(random.random(x.shape) < 1 / 256, 30 * x, x),
                 "one of all times 1000": np.where(np.arange(C) == 7, 1000 * np.sign(x), x)}
        for name, r in kinds.items():
            cells = [lost(bf16(r), r), row(r, 16, 64), row(r, 12, 64), *(lost(np.multiply(*whole(r, k)), r) for k in (256, 30))]
            print(f"{C}, {name}", *(f"{e:.1e}" for e in cells), sep=" | ")


def limbs_of_weights(bits, s, b, q):
    """Returns the high digits without their zero point, the low digits, and the scale, as ln_i8pair_weight in quant/block_float.c does."""
    most = 2**bits - 1
    d = np.maximum(np.abs(b), np.abs(b + s * most)).max(axis=(1, 2), keepdims=True) / (3680 if bits <= 4 else 31700)
    if bits <= 4:
        m = np.rint(s / d)
        c = np.rint((b + (s - m * d) * most / 2) / d)
        mh = np.rint(m / 30)
        ml = m - 30 * mh
        ch = np.floor((c - 113 + most * ml / 2) / 30)
        return mh * q + ch, ml * q + c - 30 * ch, d
    half = 2 ** (bits - 1)
    W = np.floor((q - half) * np.rint(s / d * half) / half + 0.5) + np.rint((s * half + b) / d)
    return np.floor(W / 256), W % 256, d


def weights():
    print("\nweights, products | quantised | weights in bf16 | by row | products in bf16 | by row")
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
            real, k = s.astype(np.float64) * q + b, 256 if bits > 4 else 30
            H, L, d = limbs_of_weights(bits, s, b, q)
            flat = [a.reshape(256, -1).T for a in (real, H, L)]
            x = random.standard_normal((64, flat[0].shape[0]))
            v, u = whole(x, k)
            h = np.floor((v + k / 2) / k)
            low_sum = (v - k * h).sum(1, keepdims=True)
            y = (k * (h @ flat[1]) + h @ flat[2] + (v - k * h) @ flat[1] + np.rint(128 * low_sum / k)) * k * u * d.reshape(1, -1)
            want = x @ flat[0]
            near = bf16(x).astype(np.float64) @ bf16(flat[0]).astype(np.float64)
            cells = [lost(real, w), lost(bf16(real), real), lost((k * H + L) * d, real), lost(near, want), lost(y, want)]
            print(f"{bits} bits, {name}", *(f"{e:.1e}" for e in cells), sep=" | ")


rows()
weights()
