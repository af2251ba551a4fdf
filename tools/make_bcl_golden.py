#!/usr/bin/env python3
"""Sizes that BCL (arXiv 2603.05210) keeps of the demo ranking: the utility of every size at once, in numpy.

The test BclSize.OfTheDemoRanking holds what this prints. Usage: make_bcl_golden.py [RANKING.safetensors]
"""
import json
import struct
import sys

import numpy as np

path = sys.argv[1] if len(sys.argv) > 1 else "assets/heads/demo_ranking.safetensors"
with open(path, "rb") as file:
    header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
    data = file.read()
begin, end = header["counts"]["data_offsets"]
counts = np.frombuffer(data[begin:end], dtype="<i4").astype(np.float64)
coverage = np.cumsum(counts) / counts.sum()
sizes = np.arange(1, len(counts) + 1)
hidden, backbone = 576, 4_000_000
flops = 2 * backbone + 2 * hidden * sizes
for alpha in (0.3, 0.5, 0.7, 0.9):
    utility = alpha * coverage + (1 - alpha) * (1 - flops / flops[-1])
    print(alpha, sizes[np.argmax(utility)], round(utility.max(), 6))
