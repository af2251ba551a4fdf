#!/usr/bin/env python3
"""Compares two builds of draftscope on this machine, from single passes to whole runs: verification of 1 to 16 rows, prefill,
every LM head, decoding with and without drafters, sampling, a batch and a replay. Builds run in turns (A, B, B, A). It
prints the ratio of A's time to B's, so above 1 B is faster, with the 95 % interval of the mean over the pairs.

Usage: compare_rounds.py A B [--pairs N] [--only TEXT] [--seconds S]
  A and B are build folders that hold draftscope, bench/target_bench and bench/head_bench.
Exit codes: 0 no row's interval lies wholly below --limit, 1 some row's does, 2 wrong usage or a run failed.
"""
import argparse
import json
import math
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROMPTS = str(ROOT / "assets/prompts/spec_bench_half.jsonl")
RUN = ["run", "--json", "--quiet", "--prompts", PROMPTS, "--limit", "3", "--calibrate", "0", "--max-new", "64"]
# Rows of whole runs: arguments, and the field of `totals` that is timed.
RUNS = {
    "decode, no drafter": ["--drafter", "none"],
    "eagle3 x full": ["--drafter", "eagle3", "--head", "full", "--tree", "depth=3,topk=4,nodes=12"],
    "eagle3 x microspec chain=2": ["--drafter", "eagle3", "--head", "microspec", "--tree", "chain=2"],
    "eagle3 x dynaspec": ["--drafter", "eagle3", "--head", "dynaspec", "--tree", "depth=3,topk=4,nodes=12"],
    "eagle2 x fr-spec": ["--drafter", "eagle2", "--head", "fr-spec", "--tree", "depth=3,topk=4,nodes=12"],
    "medusa x full": ["--drafter", "medusa", "--head", "full", "--tree", "depth=2,topk=4,nodes=12"],
    "hydra x full": ["--drafter", "hydra", "--head", "full", "--tree", "depth=2,topk=4,nodes=12"],
    "eagle3 x full, T=1 pq": ["--drafter", "eagle3", "--head", "full", "--tree", "chain=2", "--verify", "pq", "--temperature", "1"],
    "eagle3 x microspec, batch 8": ["--drafter", "eagle3", "--head", "microspec", "--tree", "chain=2", "--batch", "8"],
}
HEADS = ["full", "fr-spec", "pa-fr:v=24576/12288/6144", "vocabtrim", "vocabtrim-t", "bcl", "coral", "dynaspec", "specvocab", "slimspec", "microspec"]
# Two-sided 95 % quantiles of Student's t.
T95 = {1: 12.71, 2: 4.30, 3: 3.18, 4: 2.78, 5: 2.57, 7: 2.36, 9: 2.26, 14: 2.14, 19: 2.09, 29: 2.05}


def output(command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        print(f"{' '.join(command)}: {done.stderr.strip()}", file=sys.stderr)
        sys.exit(2)
    return done.stdout


def target_times(build, options):
    text = output([f"{build}/bench/target_bench", "--benchmark_format=json", f"--benchmark_min_time={options.seconds}",
                   "--benchmark_filter=(verify|prefill).*(bf16|int8)"])
    return {f"target: {one['name']}": one["real_time"] for one in json.loads(text)["benchmarks"]}


def head_times(build, options):
    times = {}
    for line in output([f"{build}/bench/head_bench", f"rounds={options.head_rounds}", "heads=" + ";".join(HEADS)]).splitlines():
        columns = re.match(r"(\S+)\s+(\d+)\s+(\d+)\s+\d+\.\d+\s", line)
        if columns:
            times[f"head: {columns[1]}"] = float(columns[3])
    return times


def run_times(name):
    def measure(build, _):
        totals = json.loads(output([f"{build}/draftscope", *RUN, *RUNS[name]]))["totals"]
        return {name: totals["decode_seconds"] / totals["generated"]}
    return measure


def replay_times(recording):
    def measure(build, _):
        # --trace is the older name of --recording, so that older builds can be compared, too.
        found = json.loads(output([f"{build}/draftscope", "replay", "--json", "--quiet", "--trace", recording, "--heads",
                                   "full,microspec", "--drafter", "eagle3", "--tree", "depth=3,topk=4,nodes=12"]))
        return {"replay": found["seconds"]}
    return measure


def compare(name, measure, options):
    """Runs one kind of measurement in turns; prints its rows and returns whether all are within the limit."""
    pairs = []
    for turn in range(options.pairs):
        builds = (options.a, options.b) if turn % 2 == 0 else (options.b, options.a)
        found = {build: measure(build, options) for build in builds}
        pairs.append((found[options.a], found[options.b]))
    good = True
    for row in pairs[0][0]:
        if any(row not in one for pair in pairs for one in pair):
            continue
        logs = [math.log(a[row] / b[row]) for a, b in pairs]
        middle = statistics.fmean(logs)
        degrees = len(logs) - 1
        quantile = T95[max(k for k in T95 if k <= degrees)] if degrees else math.inf
        half = quantile * statistics.stdev(logs) / math.sqrt(len(logs)) if degrees else math.inf
        low, high = math.exp(middle - half), math.exp(middle + half)
        slower = high < options.limit
        good = good and not slower
        print(f"{row:44} {math.exp(middle):6.3f}  [{low:.3f}, {high:.3f}]{'   SLOWER' if slower else ''}", flush=True)
    return good


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("a")
    parser.add_argument("b")
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--only", default="", help="rows' kinds, a regular expression")
    parser.add_argument("--seconds", type=float, default=0.3, help="least time of a target's benchmark")
    parser.add_argument("--head-rounds", type=int, default=10)
    parser.add_argument("--limit", type=float, default=0.97)
    options = parser.parse_args()
    if options.pairs < 1:
        parser.error("at least one pair")
    with tempfile.TemporaryDirectory() as folder:
        recording = str(Path(folder) / "recording")
        output([f"{options.b}/draftscope", "record", "--prompts", PROMPTS, "--limit", "6", "--max-new", "64",
                "--out", recording])
        kinds = {"target": target_times, "heads": head_times} | {name: run_times(name) for name in RUNS} | {
            "replay": replay_times(recording)}
        print(f"{'row':44} {'A / B':>6}  95 % interval over {options.pairs} pairs")
        good = True
        for name, measure in kinds.items():
            if re.search(options.only, name):
                good = compare(name, measure, options) and good
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
