#!/usr/bin/env python3
"""Measures whether a machine profile taken under load predicts the speed-up that the same load leaves.

One core is kept busy by another process from the first repeat to the last: a shell that loops, on any core (the default, as other
programs are) or, with --pin N, on core N. Each repeat takes a new profile under the load, predicts the speed-up of one setting over
plain decoding (`draftscope sweep` on a recording of short texts, made once), and measures it live under the same load: the same
texts, plain decoding and the setting in turns (`draftscope bench`), again until the live ratio's 95 % interval over these runs is under
--live-width wide. Prints predicted and live intervals, whether the predicted one contains the live ratio, and its half width
relative to the prediction; then how many repeats contain it within --half-width. Ten repeats take about 30 minutes on 2 cores.

Each repeat is kept in FOLDER/repeat-N.json. The same command goes on after Ctrl-C; --report prints what is there.

usage: profile_under_load.py --program BINARY --out FOLDER [--repeats 10] [--tree chain=2] [--pin CORE] [--no-load] [--report]
"""
import argparse
import json
import math
import os
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
STUDENT_95 = [12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23, 2.20]  # by degrees of freedom, from 1


def output_of(command):
    done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}: exit code {done.returncode}")
    return json.loads(done.stdout) if done.stdout.strip().startswith(b"{") else None


def write_prompts(options, path):
    """Writes the first turns of conversations with short prompts, evenly from the file."""
    short = []
    for line in options.prompts.read_text().splitlines():
        one = json.loads(line)
        if len(one["turns"][0]) <= 300:
            short.append({"question_id": one["question_id"], "category": one["category"], "turns": one["turns"][:1]})
    chosen = short[::max(len(short) // options.limit, 1)][:options.limit]
    path.write_text("".join(json.dumps(one) + "\n" for one in chosen))


def grid_of(tree):
    """Options of sweep whose grid has the tree."""
    if tree.startswith("chain="):
        return ["--chain", tree.removeprefix("chain="), "--topk", "2", "--depth", "0", "--nodes", "3"]
    shape = dict(part.split("=") for part in tree.split(","))
    return ["--chain", "0", "--topk", shape["topk"], "--depth", shape["depth"], "--nodes", shape["nodes"]]


def interval(ratios):
    """The 95 % interval of the mean of logarithms, by Student's t."""
    if len(ratios) < 2:
        return [0, math.inf]
    logs = [math.log(one) for one in ratios]
    reach = STUDENT_95[len(logs) - 2] * statistics.stdev(logs) / math.sqrt(len(logs))
    return [math.exp(statistics.mean(logs) - reach), math.exp(statistics.mean(logs) + reach)]


def measure_live(options, prompts):
    runs = []
    while len(runs) < options.live_runs:
        live = output_of([options.program, "bench", "--prompts", prompts, "--method", f"eagle3 x full @ {options.tree}", "--max-new",
                          options.max_new, "--ignore-eos", "--no-control", "--quiet", "--json"])
        runs.append(live["methods"][1]["speedup"])
        low, high = interval(runs)
        if len(runs) >= 3 and high - low < options.live_width:
            break
    return runs


def repeat(options, number, path, folder):
    profile = folder / f"profile-{number}.json"
    profile.unlink(missing_ok=True)
    start, cores = time.time(), os.getloadavg()[0]
    output_of([options.program, "profile-machine", "--drafters", "eagle3", "--heads", "full", "--contexts", "64,256", "--batches", "1",
               "--rounds", options.rounds, "--out", profile, "--quiet"])
    profiled = time.time()
    swept = output_of([options.program, "sweep", "--recording", folder / "recording", "--profile", profile, "--heads", "full",
                       *grid_of(options.tree), "--quiet", "--json"])
    one = next(one for one in swept["settings"] if one["tree"] == options.tree)
    live = measure_live(options, folder / "prompts.jsonl")
    path.write_text(json.dumps({"tree": options.tree, "predicted": one["speedup"], "cost_error": one["cost_error"], "tau": one["tau"],
                                "live_runs": live, "load_average": cores, "profile_seconds": profiled - start,
                                "seconds": time.time() - start, "other_load": json.loads(profile.read_text())["other_load"]}))


def show(options, number, path):
    """Prints a repeat. Returns whether the predicted interval contains the live ratio and is narrow enough."""
    one = json.loads(path.read_text())
    value, (low, high) = one["predicted"]["value"], one["predicted"]["interval"]
    live, (live_low, live_high) = math.exp(statistics.mean(map(math.log, one["live_runs"]))), interval(one["live_runs"])
    half = (high - low) / 2 / value
    contains, narrow = low <= live <= high, half <= options.half_width
    print(f"{number:3}  predicted {value:.3f} [{low:.3f}, {high:.3f}] +-{100 * half:.1f} %  live {live:.3f} [{live_low:.3f}, {live_high:.3f}] "
          f"({len(one['live_runs'])} runs)  {'contains' if contains else 'MISSES'}{'' if narrow else ', WIDE'}"
          f"{'' if live_high - live_low < options.live_width else ', LIVE UNSURE'}  others {one['other_load']:.2f} CPUs, "
          f"profile {one['profile_seconds']:.0f} s of {one['seconds']:.0f}", flush=True)
    return contains and narrow


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True)
    parser.add_argument("--out", type=Path, required=True, help="folder of the recording and the repeats")
    parser.add_argument("--prompts", type=Path, default=ROOT / "assets/prompts/spec_bench_half.jsonl")
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--tree", default="chain=2", help="of eagle3 with its full head")
    parser.add_argument("--rounds", type=int, default=16, help="of profile-machine")
    parser.add_argument("--limit", type=int, default=24, help="texts")
    parser.add_argument("--max-new", type=int, default=40)
    parser.add_argument("--live-runs", type=int, default=8, help="at most")
    parser.add_argument("--live-width", type=float, default=0.1)
    parser.add_argument("--half-width", type=float, default=0.15)
    parser.add_argument("--pin", type=int, help="core of the busy process")
    parser.add_argument("--no-load", action="store_true", help="without the busy process")
    parser.add_argument("--report", action="store_true", help="print the repeats that are there, and measure nothing")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    prompts, recording = options.out / "prompts.jsonl", options.out / "recording"
    busy = None
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        if not options.report and not (recording / "trace.json").exists():
            write_prompts(options, prompts)
            output_of([options.program, "record", "--prompts", prompts, "--max-new", options.max_new, "--ignore-eos", "--out", recording,
                       "--overwrite", "--quiet", "--json"])
        if not options.report and not options.no_load:
            pin = ["taskset", "-c", str(options.pin)] if options.pin is not None else []
            busy = subprocess.Popen([*pin, "sh", "-c", "while :; do :; done"], start_new_session=True)
        good = done = 0
        for number in range(1, options.repeats + 1):
            path = options.out / f"repeat-{number}.json"
            if not path.exists() and not options.report:
                repeat(options, number, path, options.out)
            if path.exists():
                good += show(options, number, path)
                done += 1
        print(f"{good} of {done} contain the live ratio within +-{100 * options.half_width:.0f} %")
    except KeyboardInterrupt:
        print("stopped; the same command goes on", file=sys.stderr)
        sys.exit(130)
    finally:
        if busy is not None:
            os.killpg(busy.pid, signal.SIGKILL)
            busy.wait()


if __name__ == "__main__":
    main()
