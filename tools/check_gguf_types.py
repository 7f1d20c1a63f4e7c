#!/usr/bin/env python3
"""Compares linnet on GGUF files of each quantised type with the same files dequantised: each architecture with each type.

usage: python tools/check_gguf_types.py LINNET FILE.gguf...      files as tools/golden_gguf.py writes them; needs gguf and safetensors from PyPI

Of each file two are written for each type whose blocks its rows fit: one whose matrices are quantised by gguf, or made of random blocks if gguf
cannot quantise to that type, and one whose matrices are the dequantised numbers in F32. `convert --unrounded` gives the same numbers for both, to the
bit, except for the sign of a zero. In `exact` both have the same logits, except for the order of sums, which rounding of f32 allows: the differences are
at most twice what changes of the dequantised numbers by 2^-24 times the root of the columns, in random directions, make of the logits (root mean
square; a third file). Text is tokenised and a template rendered with both, and `plan` counts fewer bytes for the quantised file.
"""
import json
import os
import subprocess
import sys
import tempfile

import numpy as np

# Bytes of a block that hold f16 scales, of types that gguf does not quantise to.
SCALES = {"IQ4_NL": [0], "Q2_K": [80, 82], "Q3_K": [108], "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208], "IQ4_XS": [0]}
TYPES = ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "MXFP4", *SCALES]
# Matrices that stay F32: those that files have so, and ssm_out, since value heads of the golden models are narrower than a group.
PLAIN = ("norm", "ssm_out", "conv1d", "gate_inp", "ssm_a", "ssm_dt", "ssm_alpha", "ssm_beta", "rope", "scale", "sinks")
IDS = "5,9,200,31,77,12,140,3,88,61,240,7,19,33,55,21,9,100,4"
TEXT = "the other day, it's 12345 <end> caf\u00e9"
TALK = json.dumps({"messages": [{"role": "user", "content": " why? "}, {"role": "assistant", "content": "so"}], "add_generation_prompt": True})
FUSED = "not written to a directory"    # what `convert` says of models whose directories have the experts of a layer in one tensor


def random_blocks(rng, shape, kind):
    """Blocks with f16 scales from 2^-12 to 2^-11; of Q6_K, whose numbers have 12 bits more, from 2^-14 to 2^-13."""
    import gguf
    elements, size = gguf.GGML_QUANT_SIZES[kind]
    data = rng.integers(0, 256, (int(np.prod(shape)) // elements, size), dtype=np.uint8)
    for at in SCALES[kind.name]:
        data[:, at + 1] = (0x04 if kind.name == "Q6_K" else 0x0C) | (data[:, at + 1] & 0x83)
    return data.reshape(*shape[:-1], shape[-1] // elements * size)


def values(reader, writer):
    """Copies the metadata."""
    import gguf
    for name, field in reader.fields.items():
        if name.startswith("GGUF.") or name == "general.architecture":
            continue
        kind = field.types[0]
        writer.add_key_value(name, field.contents(), kind, field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None)


def write_files(source, kind, quantised, dense, changed):
    """Returns how many matrices have the type."""
    import gguf
    reader = gguf.GGUFReader(source)
    arch = reader.fields["general.architecture"].contents()
    all_files = [gguf.GGUFWriter(f, arch) for f in (quantised, dense, changed)]
    rng, n = np.random.default_rng(1), 0
    for w in all_files:
        values(reader, w)
    for t in reader.tensors:
        numbers = gguf.quants.dequantize(t.data, t.tensor_type).astype(np.float32)
        shape = [int(d) for d in reversed(t.shape)]
        numbers = numbers.reshape(shape)
        if len(shape) < 2 or shape[-1] % gguf.GGML_QUANT_SIZES[kind][0] or any(p in t.name for p in PLAIN) or not t.name.endswith(".weight"):
            for w in all_files:
                w.add_tensor(t.name, numbers)
            continue
        try:
            blocks = gguf.quants.quantize(numbers, kind)
        except NotImplementedError:
            blocks = random_blocks(rng, shape, kind)
        numbers = np.ascontiguousarray(gguf.quants.dequantize(blocks, kind), dtype=np.float32).reshape(shape)
        change = 1 + 2.0 ** -24 * np.sqrt(shape[-1]) * rng.standard_normal(shape)
        all_files[0].add_tensor(t.name, blocks, raw_dtype=kind)
        all_files[1].add_tensor(t.name, numbers)
        all_files[2].add_tensor(t.name, (numbers * change).astype(np.float32))
        n += 1
    for w in all_files:
        w.write_header_to_file(), w.write_kv_data_to_file(), w.write_tensors_to_file(), w.close()
    return n


def run(linnet, *args):
    return json.loads(subprocess.run([linnet, *args, "--json"], check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout)


def logits_of(linnet, path, folder):
    from safetensors.numpy import load_file
    out = os.path.join(folder, "logits.safetensors")
    run(linnet, "score", path, "--ids", IDS, "--numerics", "exact", "--logits", out, "--force")
    return load_file(out)["logits"].astype(np.float64)


def rendered(linnet, path):
    return subprocess.run([linnet, "template", path, "--jsonl"], input=TALK + "\n", check=True, stdout=subprocess.PIPE, text=True).stdout


def numbers_of(linnet, path, folder):
    """The numbers of all tensors; None: `convert` does not write models of the family."""
    from safetensors.numpy import load_file
    out = os.path.join(folder, "dense")
    made = subprocess.run([linnet, "convert", path, "-o", out, "--unrounded", "--force"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    if made.returncode and FUSED in made.stderr:
        return None
    assert made.returncode == 0, made.stderr
    return load_file(os.path.join(out, "model.safetensors"))


def same_numbers(linnet, quantised, dense, folder):
    got, want = (numbers_of(linnet, f, folder) for f in (quantised, dense))
    if got is None and want is None:
        return True, "values not compared: convert rejects the family"
    same = got.keys() == want.keys() and all(got[k].dtype == want[k].dtype and ((got[k] + 0).tobytes() == (want[k] + 0).tobytes()) for k in got)
    return same, "%d tensors with the same bits" % len(got) if same else "other numbers"


def check(linnet, source, name, folder):
    import gguf
    quantised, dense, changed = (os.path.join(folder, f + ".gguf") for f in ("q", "f", "c"))
    n = write_files(source, gguf.GGMLQuantizationType[name], quantised, dense, changed)
    if n == 0:
        return True
    same, said = same_numbers(linnet, quantised, dense, folder)
    got, want, other = (logits_of(linnet, f, folder) for f in (quantised, dense, changed))
    rms, bound = (float(np.sqrt(np.mean((x - want) ** 2)) / want.std()) for x in (got, other))
    fits = same and np.isfinite(want).all() and rms <= 2 * bound
    fits = fits and run(linnet, "tokenize", quantised, TEXT)["ids"] == run(linnet, "tokenize", dense, TEXT)["ids"]
    if "tokenizer.chat_template" in gguf.GGUFReader(source).fields:
        fits = fits and rendered(linnet, quantised) == rendered(linnet, dense)
    fits = fits and run(linnet, "plan", quantised)["weights_bytes"] < run(linnet, "plan", dense)["weights_bytes"]
    print("%s: %s: %d matrices, %s, rms %.2g, bound %.2g%s" % (os.path.basename(source), name, n, said, rms, 2 * bound, "" if fits else ": DIFFERS"),
          flush=True)
    return fits


def main(argv):
    if len(argv) < 3:
        print(__doc__.strip(), file=sys.stderr)
        return 2
    import gguf
    files = [f for f in argv[2:] if "tokenizer.ggml.tokens" in gguf.GGUFReader(f).fields]
    for f in sorted(set(argv[2:]) - set(files)):
        print("SKIP: %s has no tokenizer, so it is NOT checked: write it again by tools/golden_gguf.py" % f)
    with tempfile.TemporaryDirectory() as folder:
        good = [check(argv[1], f, name, folder) for f in files for name in TYPES]
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv))
