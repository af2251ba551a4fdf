#!/usr/bin/env python3
"""Writes the demo model's weights as GGUF files of other types, for comparing like with like:
demo.f32.gguf, demo.bf16.gguf, demo.q8_0.gguf, demo.q4_0.gguf. Every matrix, the embedding included, has the
file's type; vectors stay F32.

Usage: make_peer_models.py MODEL.gguf OUT_FOLDER      needs: pip install gguf numpy
"""
import sys
from pathlib import Path

import gguf
import numpy as np
from gguf import quants

TYPES = {
    "f32": gguf.GGMLQuantizationType.F32,
    "bf16": gguf.GGMLQuantizationType.BF16,
    "q8_0": gguf.GGMLQuantizationType.Q8_0,
    "q4_0": gguf.GGMLQuantizationType.Q4_0,
}


def copy_fields(reader, writer):
    for field in reader.fields.values():
        if field.name.startswith("GGUF.") or field.name in ("general.architecture", "general.file_type"):
            continue
        kind = field.types[0]
        sub_kind = field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(field.name, field.contents(), kind, sub_type=sub_kind)


def write(reader, kind, path):
    architecture = reader.fields["general.architecture"].contents()
    writer = gguf.GGUFWriter(path, architecture)
    copy_fields(reader, writer)
    for tensor in reader.tensors:
        values = quants.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        values = values.reshape([int(n) for n in reversed(tensor.shape)])
        to = kind if values.ndim == 2 else gguf.GGMLQuantizationType.F32
        writer.add_tensor(tensor.name, quants.quantize(values, to), raw_dtype=to)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    reader = gguf.GGUFReader(sys.argv[1])
    out = Path(sys.argv[2])
    out.mkdir(parents=True, exist_ok=True)
    for name, kind in TYPES.items():
        path = out / f"demo.{name}.gguf"
        if path.exists():
            continue
        write(reader, kind, path.with_suffix(".part"))
        path.with_suffix(".part").rename(path)
        print(path)


if __name__ == "__main__":
    main()
