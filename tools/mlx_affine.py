#!/usr/bin/env python3
"""Records how MLX's CPU build quantises and dequantises affine groups: tests/quant/mlx_affine.safetensors.

usage: python tools/mlx_affine.py OUT.safetensors        (needs: pip install mlx[cpu] numpy safetensors)

`w` [2, 256] in f32 has ordinary values and, in blocks of 32, edge cases. For each of 6 widths x 3 groups x 3 dtypes the file has
`BITS.GROUP.DTYPE.weight` (packed 32-bit words), `.scales`, `.biases` (mx.quantize of w in that dtype) and `.out` (mx.dequantize of those).
"""
import sys

import mlx.core as mx
import numpy as np


def numbers():
    rng = np.random.RandomState(5)
    w = rng.standard_normal((2, 256)).astype(np.float32)
    w[0, 32:64] = 0                                   # a group of zeros
    w[0, 64:96] = 0.37                                # of one number
    w[0, 96:128] = -np.abs(w[0, 96:128]) - 1          # of negative ones only
    w[0, 128:160] *= 1e-9                             # narrower than the smallest scale
    w[0, 160] = 300                                   # an outlier
    w[0, 192:224] *= 3e-6                             # scales below f16's normal range
    w[1, 0:32] = np.abs(w[1, 0:32]) + 2               # of positive ones only
    w[1, 32:64] *= 2e4                                # near f16's end
    w[1, 64:96] = np.arange(32) / 16 - 1              # ties
    w[1, 96:128] = np.where(np.arange(32) % 2, 1, -1) # both edges alike
    w[1, 128:160] *= 0.02                             # as weights are
    w[1, 160:192] *= 1e-40                            # denormal, the lower edge the larger one
    w[1, 192:224] = -np.abs(w[1, 192:224]) * 1e-41
    w[1, 192] = 1e-42
    return w


def main():
    w, out = numbers(), {}
    dtypes = {"bf16": mx.bfloat16, "f16": mx.float16, "f32": mx.float32}
    out["w"] = mx.array(w)
    for bits in (2, 3, 4, 5, 6, 8):
        for group in (32, 64, 128):
            for name, dtype in dtypes.items():
                q, s, b = mx.quantize(mx.array(w).astype(dtype), group_size=group, bits=bits)
                key = f"{bits}.{group}.{name}"
                out |= {key + ".weight": q, key + ".scales": s, key + ".biases": b, key + ".out": mx.dequantize(q, s, b, group_size=group, bits=bits)}
                assert out[key + ".out"].dtype == dtype and s.dtype == dtype
    mx.save_safetensors(sys.argv[1], out, metadata={"made_by": f"mlx {mx.__version__}, {mx.default_device()}"})
    print(len(out), "tensors")


if __name__ == "__main__":
    main()
