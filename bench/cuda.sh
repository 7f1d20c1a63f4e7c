#!/bin/sh
# Tokens per second on the GPU, and shares of what the card gives in the same run: decoding against a device-to-device copy, prompts against a
# bf16 matrix product of 8192 x 8192 x 8192. Models with random weights in published shapes. Needs python3 with torch and numpy.
# Then, of the last shape, requests of all kinds of sampling, and one long sequence among short ones (bench/cuda_requests.c).
# usage: bench/cuda.sh BUILD [SHAPE ...]
set -eu
build=${1:?usage: bench/cuda.sh BUILD [SHAPE ...]}; shift
[ $# -gt 0 ] || set -- qwen3-0.6b qwen3-8b
here=$(dirname "$0")
for shape in "$@"; do
    [ -f "$build/shapes/$shape/config.json" ] || python3 "$here/shape.py" "$shape" "$build/shapes/$shape" >/dev/null
done
python3 - "$build" "$@" <<'PY'
import json, subprocess, sys
import torch

def seconds(f, n=20):
    f()
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    for _ in range(n):
        f()
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end) / n / 1e3

build, shapes = sys.argv[1], sys.argv[2:]
a = torch.empty(1 << 31, dtype=torch.uint8, device="cuda"); b = torch.empty_like(a)
copy = 2 * a.numel() / seconds(lambda: b.copy_(a))
x = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16); y = torch.randn_like(x)
flops = 2 * 8192**3 / seconds(lambda: x @ y)
del a, b, x, y
torch.cuda.empty_cache()
print(f"{torch.cuda.get_device_name()}: copy {copy / 1e12:.2f} TB/s, bf16 product {flops / 1e12:.0f} TFLOP/s", flush=True)
print(f"{'model':<22}{'work':<22}{'tok/s':>10}{'ceiling':>10}{'share':>8}")
for shape in shapes:
    for bits in (16, 4):
        flags = ["--quantize", "4"] if bits == 4 else []
        out = subprocess.run([f"{build}/linnet", "bench", f"{build}/shapes/{shape}", "--device", "cuda", "--numerics", "fast", "--json", "--prefill", "2048",
                              "--chunk", "2048", "--depth", "0,8192", "--streams", "64,128,256,512", *flags], capture_output=True, text=True)
        if out.returncode:
            sys.exit(out.stderr)
        c = json.load(open(f"{build}/shapes/{shape}/config.json"))
        D, F, L, H, K, E, V = (c[k] for k in ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads",
                                              "head_dim", "vocab_size"))
        layers = L * D * (2 * H * E + 2 * K * E + 3 * F)
        weights = (layers + V * D) * (2 if bits == 16 else 4.5 / 8)
        for r in json.loads(out.stdout)["rows"]:
            depth, streams = r.get("depth", 0), r["streams"]
            if r["work"] == "prefill":
                tokens_ceiling = flops / (2 * layers)
            else:
                kv = 2 * L * K * E * 2 * (depth + 32)
                tokens_ceiling = copy / (weights / streams + kv)
            work = f"{r['work']} {r['n']}" + (f" @ {depth}" if depth else "") + (f", {streams} streams" if streams > 1 else "")
            print(f"{shape + (' bf16' if bits == 16 else ' 4 bits'):<22}{work:<22}{r['tok_s']:>10.0f}{tokens_ceiling:>10.0f}{100 * r['tok_s'] / tokens_ceiling:>7.0f}%",
                  flush=True)
PY
for shape in "$@"; do last=$build/shapes/$shape; done
for streams in 1 64 256; do "$build/cuda_requests" "$last" kinds "$streams" 128; done
"$build/cuda_requests" "$last" long 38000 8 24
