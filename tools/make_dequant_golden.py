#!/usr/bin/env python3
"""Writes tests/golden/model/dequant.json: random blocks of every GGUF tensor type that Draftscope reads, and the floats
that the `gguf` Python package makes of them; and hashes of some of the demo model's tensors as f32, rows of q and k in
half-split order. The file is checked in; run this again only when a type is added.

usage: tools/make_dequant_golden.py MODEL.gguf        needs the Python packages gguf and numpy
"""
import argparse
import json
from pathlib import Path

import gguf
import numpy as np

OUT = Path(__file__).resolve().parent.parent / "tests" / "golden" / "model" / "dequant.json"
# Type: blocks, and where in a block the f16 scales stand.
TYPES = {
    "F32": (40, []), "F16": (200, [0]), "BF16": (200, []), "Q8_0": (8, [0]), "Q4_0": (8, [0]), "Q4_1": (8, [0, 2]),
    "Q5_0": (8, [0]), "Q5_1": (8, [0, 2]), "Q4_K": (3, [0, 2]), "Q5_K": (3, [0, 2]), "Q6_K": (3, [208]),
}


def random_blocks(rng, name, count, scales):
    """Random bytes, with scales that are finite, subnormal ones and zero among them."""
    size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[name]][1]
    blocks = rng.integers(0, 256, (count, size), dtype=np.uint8)
    for at in scales:
        half = rng.integers(0, 0x7C00, count, dtype=np.uint16) | (rng.integers(0, 2, count, dtype=np.uint16) << 15)
        half[:3] = [0, 0x03FF, 0x8001][: len(half[:3])]
        blocks[:, at : at + 2] = half.view(np.uint8).reshape(count, 2)
    if name in ("F32", "BF16"):
        blocks[:, -1] &= 0xBF  # an exponent that is no infinity
    return blocks


def fnv(data):
    value = 0xCBF29CE484222325
    for byte in data:
        value = (value ^ byte) * 0x100000001B3 % 2**64
    return f"{value:016x}"


def demo_hashes(path):
    wanted = {"blk.0.attn_q.weight": 9, "blk.29.attn_k.weight": 3, "blk.7.ffn_down.weight": 0, "output_norm.weight": 0}
    out = {}
    for tensor in gguf.GGUFReader(path).tensors:
        if tensor.name not in wanted:
            continue
        values = gguf.dequantize(tensor.data, tensor.tensor_type).reshape([int(n) for n in reversed(tensor.shape)])
        heads = wanted[tensor.name]
        if heads:  # stored as pairs of each head's halves
            pairs = values.reshape(heads, values.shape[0] // heads // 2, 2, values.shape[1])
            values = pairs.swapaxes(1, 2).reshape(values.shape)
        out[tensor.name] = fnv(values.astype("<f4").tobytes())
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    model = parser.parse_args().model
    rng = np.random.default_rng(20250101)
    types = {}
    for name, (count, scales) in TYPES.items():
        blocks = random_blocks(rng, name, count, scales)
        kind = gguf.GGMLQuantizationType[name]
        data = blocks.reshape(-1)
        if name in ("F32", "F16"):
            values = data.view(np.float32 if name == "F32" else np.float16).astype(np.float32)
        else:
            values = gguf.dequantize(blocks.reshape(1, -1), kind).astype(np.float32).reshape(-1)
        assert np.isfinite(values).all(), name
        types[name] = {"id": int(kind), "blocks": data.tobytes().hex(), "floats": values.astype("<f4").tobytes().hex()}
    halves = np.arange(0x10000, dtype=np.uint32).astype(np.uint16)
    halves = halves[(halves & 0x7FFF) <= 0x7C00]  # all but the NaNs
    out = {"about": "made by tools/make_dequant_golden.py with the gguf package; hex of little-endian bytes",
           "types": types, "demo": demo_hashes(model), "all_halves": fnv(halves.view(np.float16).astype("<f4").tobytes())}
    OUT.write_text(json.dumps(out, indent=0) + "\n", encoding="utf-8")
    print(f"{OUT}: {OUT.stat().st_size} bytes")


if __name__ == "__main__":
    main()
