#!/usr/bin/env python3
"""Makes tests/golden/traces/torch_profiler.json.gz: a small speculative round under torch.profiler (CPU), with record_function ranges
named like phases, cut down to what an importer reads. Needs torch.

usage: tools/make_kineto_fixture.py OUT.json.gz
"""
import gzip
import json
import sys
import tempfile

import torch
from torch.profiler import ProfilerActivity, profile, record_function


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    hidden, head = torch.randn(4, 64), torch.randn(64, 512)
    with profile(activities=[ProfilerActivity.CPU]) as recorded:
        for _ in range(3):
            with record_function("decode/step"):
                with record_function("draft/backbone"):
                    x = torch.tanh(hidden @ hidden.T @ hidden)
                with record_function("draft/lm_head"):
                    logits = x @ head
                with record_function("draft/topk"):
                    logits.topk(8)
                with record_function("target_verify"):
                    torch.softmax(hidden @ head, -1).argmax(-1)
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        recorded.export_chrome_trace(file.name)
        trace = json.load(open(file.name))
    keep = [e for e in trace["traceEvents"]
            if e.get("cat") in ("user_annotation", "cpu_op", "kernel", "cuda_runtime") or e.get("ph") == "M"]
    for event in keep:
        event.pop("args", None) if event.get("cat") == "cpu_op" else None
    out = {key: trace[key] for key in ("schemaVersion", "displayTimeUnit", "baseTimeNanoseconds") if key in trace}
    out["traceEvents"] = keep
    with open(sys.argv[1], "wb") as raw:
        with gzip.GzipFile(fileobj=raw, mode="wb", mtime=0) as packed:
            packed.write(json.dumps(out).encode())
    print(f"{len(keep)} events, torch {torch.__version__}")


if __name__ == "__main__":
    main()
