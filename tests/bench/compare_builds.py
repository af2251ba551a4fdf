#!/usr/bin/env python3
"""Compares the kernels of two builds of draftscope on this machine. It runs `draftscope kernels` of A, B, B, A in turns
and prints the ratio of each op's best times, B to A, with the range over the rounds. It then checks B against the
ratios in tests/bench/regression.json. These compare ops of one run with each other, so they do not depend on the machine.

Usage: compare_builds.py A/draftscope B/draftscope [--rounds N] [--rows 1,4,12] [--threads N] [--seconds S]
       compare_builds.py B/draftscope        only the ratios within the build
Exit codes: 0 within the limits, 1 a limit is broken, 2 wrong usage or a run failed.
"""
import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path

LIMITS = json.loads((Path(__file__).parent / "regression.json").read_text())


def measure(program, options):
    command = [program, "kernels", "--json", "--rows", options.rows, "--precision", "int8,int4,bf16", "--gather", "2048",
               "--rank", "72", "--seconds", str(options.seconds)]
    if options.threads:
        command += ["--threads", str(options.threads)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        print(f"{program}: {done.stderr.strip()}", file=sys.stderr)
        sys.exit(2)
    ops = json.loads(done.stdout)["ops"]
    return {f"{op['op']}/{op['precision']}/{op['rows']}": op["best_us"] for op in ops}


def compare(options, a, b):
    """Returns the medians over the rounds of B's time to A's, and whether all are within the limit."""
    rounds = []
    for _ in range(options.rounds):
        times = [measure(program, options) for program in (a, b, b, a)]
        rounds.append({op: min(times[1][op], times[2][op]) / min(times[0][op], times[3][op])
                       for op in times[0] if op in times[1]})
    good = True
    print(f"{'op':44} {'B / A':>7}   range over {options.rounds} rounds")
    for op in rounds[0]:
        ratios = sorted(r[op] for r in rounds)
        middle = statistics.median(ratios)
        # Noise affects single rounds, so only a slowdown in every round counts.
        slower = ratios[0] > LIMITS["slower_than_before"]
        good = good and not slower
        print(f"{op:44} {middle:7.2f}   {ratios[0]:.2f} .. {ratios[-1]:.2f}{'   SLOWER' if slower else ''}")
    return good


def hold(options, program):
    runs = [measure(program, options) for _ in range(options.rounds)]
    best = {op: min(run[op] for run in runs) for op in runs[0]}
    good = True
    print(f"\n{'ratio within the build':72} {'':>6} limit")
    for limit in LIMITS["ratios"]:
        if limit["of"] not in best or limit["to"] not in best:
            continue
        ratio = best[limit["of"]] / best[limit["to"]]
        broken = ratio > limit["at_most"]
        good = good and not broken
        print(f"{limit['of'] + '  to  ' + limit['to']:72} {ratio:6.2f}  {limit['at_most']:.2f}"
              f"{'   BROKEN: ' + limit['why'] if broken else ''}")
    return good


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("builds", nargs="+", metavar="draftscope")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rows", default="1,4,12")
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=0.1)
    options = parser.parse_args()
    if len(options.builds) > 2 or options.rounds < 1:
        parser.error("one or two builds, at least one round")
    good = compare(options, *options.builds) if len(options.builds) == 2 else True
    good = hold(options, options.builds[-1]) and good
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
