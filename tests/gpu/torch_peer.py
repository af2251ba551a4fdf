#!/usr/bin/env python3
"""What PyTorch needs for the heads that `draftscope kernels --backend cuda` times: the same shapes, random data, CUDA graphs
of 20 calls over rotating copies, median of 50. Prints JSON.

usage: tests/gpu/torch_peer.py [--vocab 128256 --hidden 4096 --rank 512 --rows 1,10]
"""
import argparse
import json
import statistics

import torch

COLD_BYTES = 200e6


def copies(n, k):
    wanted = max(1, min(64, int(COLD_BYTES / (n * k * 2) + 1)))
    return [torch.randn(n, k, device="cuda", dtype=torch.bfloat16) * 0.02 for _ in range(wanted)]


def time_us(call, calls=20, replays=50):
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for i in range(3):
            call(i)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for i in range(calls):
            call(i)
    times = []
    for turn in range(replays + 3):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        if turn >= 3:
            times.append(start.elapsed_time(end) * 1e3 / calls)
    return {"median_us": statistics.median(times), "best_us": min(times)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vocab", type=int, default=128256)
    parser.add_argument("--hidden", type=int, default=4096)
    parser.add_argument("--rank", type=int, default=512)
    parser.add_argument("--candidates", type=int, default=2048)
    parser.add_argument("--rows", default="1,10")
    args = parser.parse_args()
    full, down, up = copies(args.vocab, args.hidden), copies(args.rank, args.hidden), copies(args.vocab, args.rank)
    ids = torch.randint(args.vocab, (args.candidates,), device="cuda").sort().values
    ops = []
    for rows in map(int, args.rows.split(",")):
        x = torch.randn(rows, args.hidden, device="cuda", dtype=torch.bfloat16)
        pick = lambda all_, i: all_[i % len(all_)]
        low = lambda i: (x @ pick(down, i).T) @ pick(up, i).T
        table = {
            "full head, logits alone": lambda i: x @ pick(full, i).T,
            "full head + top-k": lambda i: (lambda z: (z.topk(10), z.float().logsumexp(-1)))(x @ pick(full, i).T),
            "low-rank head + top-k": lambda i: (lambda z: (z.topk(10), z.float().logsumexp(-1)))(low(i)),
            "router + exact top": lambda i: low(i).topk(args.candidates),
            "indexed rows": lambda i: x @ pick(full, i).index_select(0, ids).T,
        }
        for name, call in table.items():
            ops.append({"op": name, "rows": rows, **time_us(call)})
    print(json.dumps({"torch": torch.__version__, "device": torch.cuda.get_device_name(), "ops": ops}, indent=1))


if __name__ == "__main__":
    main()
