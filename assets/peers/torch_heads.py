#!/usr/bin/env python3
"""What PyTorch needs for the heads that `draftscope kernels --backend cuda --torch PYTHON` times: the same shapes, random
data, CUDA graphs of 20 calls over rotating copies and lists of rows, median of 50. Prints JSON; the subcommand runs it and
puts its times beside its own.

usage: torch_heads.py [--vocab 128256 --hidden 4096 --rank 512 --trimmed 32064 --gather 2048,3072 --k 10 --rows 1,10]
                       [--check]        --check: says whether it could run, and runs nothing
"""
import argparse
import json
import statistics
import sys

try:
    import torch
except ImportError as error:
    sys.exit(f"PyTorch cannot be imported by {sys.executable}: {error}")

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
    parser.add_argument("--rank", default="512")
    parser.add_argument("--trimmed", type=int, default=32064)
    parser.add_argument("--gather", default="2048,3072")
    parser.add_argument("--k", type=int, default=10)
    parser.add_argument("--rows", default="1,10")
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit(f"PyTorch {torch.__version__} of {sys.executable} sees no GPU")
    if args.check:
        print(json.dumps({"torch": torch.__version__, "device": torch.cuda.get_device_name()}))
        return
    numbers = lambda text: [int(number) for number in text.split(",")]
    full, trimmed = copies(args.vocab, args.hidden), copies(args.trimmed, args.hidden)
    pairs = {rank: (copies(rank, args.hidden), copies(args.vocab, rank)) for rank in numbers(args.rank)}
    draw = lambda count: torch.randperm(args.vocab, device="cuda")[:count].sort().values
    lists = lambda count: [draw(count) for _ in range(max(1, min(64, int(COLD_BYTES / (count * args.hidden * 2) + 1))))]
    gathered = {count: lists(count) for count in numbers(args.gather)}
    pick = lambda all_, i: all_[i % len(all_)]
    best = lambda z: (z.topk(args.k), z.float().logsumexp(-1))
    ops = []
    for rows in numbers(args.rows):
        x = torch.randn(rows, args.hidden, device="cuda", dtype=torch.bfloat16)
        table = {
            "full head": lambda i: best(x @ pick(full, i).T),
            "logits of the full head": lambda i: x @ pick(full, i).T,
            "static head": lambda i: best(x @ pick(trimmed, i).T),
        }
        for rank, (down, up) in pairs.items():
            low = lambda i, down=down, up=up: (x @ pick(down, i).T) @ pick(up, i).T
            table[f"low-rank head r={rank}"] = lambda i, low=low: best(low(i))
            for count in gathered:
                for how in "with top", "+ exact top":
                    table[f"router r={rank} {how} {count}"] = lambda i, low=low, count=count: low(i).topk(count)
        for count, sets in gathered.items():
            product = lambda i, sets=sets: x @ pick(full, i).index_select(0, pick(sets, i)).T
            table[f"indexed rows {count}"] = table[f"gather and product of {count} rows"] = product
        for name, call in table.items():
            ops.append({"op": name, "rows": rows, **time_us(call)})
    print(json.dumps({"torch": torch.__version__, "device": torch.cuda.get_device_name(), "ops": ops}, indent=1))


if __name__ == "__main__":
    main()
