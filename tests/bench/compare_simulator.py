#!/usr/bin/env python3
"""Compares our prediction from the published profile of vLLM on an H100 with the simulator that it comes from.

The simulator (github.com/SpecDecode-Bench/simulator, arXiv 2601.11580) runs from a clone, with its own formulas and its own
acceptance data. Our side walks the same data by itself, counts rounds and committed tokens, and takes a step's time from
`draftscope profile-machine --predict` at the mean context of its rounds, as `sweep` does. Compared are the seconds of decoding, plain and
speculative, and the speed-up, for every data set, drafter, draft length (ORACLE: exactly what is accepted) and batch size.
Prefill is left out on both sides, because a sweep predicts decoding. Exit code 1 if a difference exceeds --limit.

usage: compare_simulator.py CLONE --program BINARY [--batches 1,8,64] [--requests 40]
"""
import argparse
import json
import random
import subprocess
import sys
import types
from collections import Counter
from pathlib import Path

DATA = "data/llama3.1-8B"
METHODS = ["FIXED_1", "FIXED_3", "FIXED_5", "ORACLE"]
TRUTHS = {"eagle3": "EAGLE", "ngram": "NGRAM", "combined": "COMBINE_NGRAM_EAGLE"}


def load_simulator(clone):
    """Imports the simulator's modules. Its progress bar is replaced, so that nothing need be installed."""
    sys.modules.setdefault("tqdm", types.SimpleNamespace(tqdm=lambda items, **_: items))
    sys.path.insert(0, str(clone))
    import predictor
    import request
    import simulator
    return simulator, predictor, request


def simulated(sim, requests, batch):
    """Seconds of decoding of a sequence, plain and speculative, summed over the requests, by the simulator."""
    plain = fast = 0.0
    for one in requests:
        copies = [sim._dup_request(one, f"{one.id}-{i}") for i in range(batch)]
        mean = lambda latencies: sum(sum(times[2:]) for times in latencies.values()) / batch  # the first two are the prefill
        plain += mean(sim.simulate_org_batch(copies)[0])
        fast += mean(sim.simulate_sd_batch(copies)[0])
    return plain, fast


class Walk:
    """Rounds of the requests by our own reading of the acceptance data."""

    def __init__(self, lines, ids, drafter, method, matched):
        self.rounds = Counter()  # by verified rows of a sequence; weights of unmatched n-grams are probabilities
        self.tokens = self.positions = 0  # plain steps, and the sum of their contexts
        self.round_positions = 0
        for line in lines:
            if line["id"] not in ids:
                continue
            lengths = {"ngram": line["acc_ngram"]["acc_len"], "eagle3": line["acc_eagle"]["acc_len"]}
            n = min(map(len, lengths.values())) if drafter == "combined" else len(lengths[drafter])
            taken = [max(pair) for pair in zip(*lengths.values())] if drafter == "combined" else lengths[drafter]
            at = 1
            while at < n:
                accepted = taken[at - 1]
                rows = accepted if method == "ORACLE" else int(method.split("_")[1]) + 1
                share = 1.0
                if drafter == "ngram" and method != "ORACLE" and accepted == 1:
                    share = matched
                    self.rounds[1] += 1 - share
                self.rounds[rows] += share
                self.round_positions += len(line["prompt_token_ids"]) + at
                at += min(accepted, rows)
            self.tokens += n - 1
            self.positions += (n - 1) * (len(line["prompt_token_ids"]) + n / 2)


def steps(options, context, batch):
    """Our times of a step at a context, by method."""
    methods = ["none", *(f"{drafter} @ chain={n}" for drafter in ("eagle3", "ngram") for n in (1, 2, 6))]
    command = [options.program, "profile-machine", "--show", options.profile, "--context", f"{context:.6f}", "--batch", str(batch), "--json"]
    for method in methods:
        command += ["--predict", method]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    return {one["method"]: one for one in json.loads(done.stdout)["predictions"]}


def predicted(options, walk, drafter, batch):
    """Seconds of decoding of a sequence, plain and speculative, by our profile."""
    plain = steps(options, walk.positions / walk.tokens, batch)["none"]["step_ms"]
    by = steps(options, walk.round_positions / sum(walk.rounds.values()), batch)
    alone = drafter == "ngram"
    drafter = "ngram" if drafter == "combined" else drafter  # the simulator charges the n-gram draft alone
    one, two, six = (by[f"{drafter} @ chain={n}"]["step_ms"] for n in (1, 2, 6))
    row = two - one
    if abs(one + 5 * row - six) > 1e-6 * six:
        sys.exit("the profile is not linear in the rows")

    def step(rows):
        if rows > 1:
            return one + (rows - 2) * row
        # Nothing is accepted: oracles pay a call, but n-grams alone don't match.
        return by["none"]["step_ms"] + (0 if alone else by[f"{drafter} @ chain=1"]["drafter_ms"])

    return walk.tokens * plain / 1e3, sum(count * step(rows) for rows, count in walk.rounds.items()) / 1e3


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("clone", type=Path, help="folder of the simulator's repository")
    parser.add_argument("--program", required=True)
    parser.add_argument("--profile", default=str(Path(__file__).parents[2] / "assets/profiles/h100-llama-3.1-8b-vllm.json"))
    parser.add_argument("--datasets", default="gsm8k,instructcoder,sharegpt,cnn")
    parser.add_argument("--batches", default="1,8,64")
    parser.add_argument("--requests", type=int, default=40, help="of each data set; the simulator takes 300")
    parser.add_argument("--limit", type=float, default=0.01, help="largest relative difference")
    parser.add_argument("--json", help="also write every comparison to this file")
    options = parser.parse_args()
    simulator, predictor, request = load_simulator(options.clone)
    found = []
    for dataset in options.datasets.split(","):
        path = options.clone / DATA / f"combined_{dataset}.jsonl"
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        for drafter, truth in TRUTHS.items():
            for method in ["ORACLE"] if drafter == "combined" else METHODS:
                sim = simulator.SpecSimulator(str(path), predictor.AccLenPredictMethod[method], request.AccLenGroundTruth[truth], dataset)
                random.seed(simulator.SEED)
                requests = random.sample(sim.data, k=300)[:options.requests]
                walk = Walk(lines, {one.id for one in requests}, drafter, method, simulator.NGRAM_MATCHING_PROBABILITY[dataset])
                for batch in map(int, options.batches.split(",")):
                    theirs, ours = simulated(sim, requests, batch), predicted(options, walk, drafter, batch)
                    row = {"dataset": dataset, "drafter": drafter, "method": method, "batch": batch,
                           "simulator": {"plain_s": theirs[0], "s": theirs[1], "speedup": theirs[0] / theirs[1]},
                           "ours": {"plain_s": ours[0], "s": ours[1], "speedup": ours[0] / ours[1]}}
                    row["differences"] = {key: row["ours"][key] / row["simulator"][key] - 1 for key in row["ours"]}
                    found.append(row)
    for key in ("plain_s", "s", "speedup"):
        worst = max(found, key=lambda row: abs(row["differences"][key]))
        print(f"{key}: worst difference of {len(found)} comparisons {100 * worst['differences'][key]:+.3f} % "
              f"({worst['dataset']}, {worst['drafter']}, {worst['method']}, batch {worst['batch']})")
    if options.json:
        Path(options.json).write_text(json.dumps(found, indent=1))
    return int(max(abs(value) for row in found for value in row["differences"].values()) > options.limit)


if __name__ == "__main__":
    sys.exit(main())
