#!/usr/bin/env python3
"""Prints t(M), what verifying M rows costs against one, from turns of target_bench.

    verification_table.py BUILD [--turns 5] [--rows 1,4,8,12] [--types int8,int4,bf16] [--isa NAME] [--model FILE]
    verification_table.py BUILD --against OTHER_BUILD      the same of both programs, in turns

A row gives the median time and its range over the turns, t(M), the bytes of a pass a second and the multiply-adds
of its products a second. Nothing else may use the machine.
"""
import argparse
import collections
import json
import os
import statistics
import subprocess


def one_turn(build, args):
    command = [os.path.join(build, "bench/target_bench"), f"threads={args.threads}", "--benchmark_format=json",
               f"--benchmark_min_time={args.seconds}",
               f"--benchmark_filter=^verify:({'|'.join(args.rows)})/({'|'.join(args.types)})/"]
    environment = dict(os.environ)
    if args.isa:
        command.append(f"isa={args.isa}")
    if args.model:
        environment["DRAFTSCOPE_DEMO_MODEL"] = args.model
    text = subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout
    for bench in json.loads(text)["benchmarks"]:
        case, precision, _ = bench["name"].split("/")
        yield precision, int(case.split(":")[1]), bench


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("--against")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seconds", default="0.3", help="of each case in a turn")
    parser.add_argument("--rows", type=lambda text: text.split(","), default="1,4,8,12".split(","))
    parser.add_argument("--types", type=lambda text: text.split(","), default="int8,int4,bf16".split(","))
    parser.add_argument("--isa")
    parser.add_argument("--model")
    args = parser.parse_args()
    builds = [args.build] + ([args.against] if args.against else [])
    times = collections.defaultdict(list)
    rates = {}
    for turn in range(args.turns):
        for build in builds if turn % 2 == 0 else builds[::-1]:
            for precision, rows, bench in one_turn(build, args):
                times[build, precision, rows].append(bench["real_time"])
                rates[precision, rows] = (bench["bytes_per_second"] * bench["real_time"],
                                          bench.get("multiply_adds", 0) * bench["real_time"])
    print("| build | type | M | ms (range) | t(M) | GB/s | 10^9 multiply-adds/s |\n"
          "| --- | --- | --: | --- | --: | --: | --: |")
    for (build, precision, rows), ms in times.items():
        median = statistics.median(ms)
        first = statistics.median(times[build, precision, int(args.rows[0])])
        size, work = rates[precision, rows]
        print(f"| {build} | {precision} | {rows} | {median:.2f} ({min(ms):.2f} to {max(ms):.2f}) | {median / first:.2f} "
              f"| {size / median / 1e9:.1f} | {work / median / 1e9:.0f} |")


if __name__ == "__main__":
    main()
