#!/usr/bin/env python3
"""Holds the numbers of one capture to each other: `run --json`, `stats --json`, SQL views, tables and CSV files.

A run with shadow heads and a baseline is recorded. Every figure that several of these show must be the same, up to the
rounding of sums in another order.

usage: numbers_test.py --program BINARY
"""
import argparse
import csv
import json
import math
import sqlite3
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROMPTS = ["Name three rivers.", "What is 12 times 12?", "Write a haiku about rain.", "Count from one to ten.",
           "Why is the sky blue?", "List three colours.", "Who wrote Hamlet?"]


class Numbers:
    def __init__(self):
        self.compared = 0
        self.wrong = []

    def same(self, what, *values):
        """All values are equal, or all are missing."""
        self.compared += 1
        known = [value for value in values if value is not None]
        scale = max([1e-12] + [abs(value) for value in known if isinstance(value, (int, float))])
        for value in values:
            equal = value == values[0]
            if not equal and value is not None and values[0] is not None and not isinstance(value, str):
                equal = math.isclose(value, values[0], rel_tol=1e-9, abs_tol=1e-9 * scale)
            if not equal:
                self.wrong.append(f"{what}: {values}")
                return


def output(program, *words):
    done = subprocess.run([program, *map(str, words)], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"draftscope {' '.join(map(str, words))}: {done.stderr.strip()}")
    return done.stdout


def rows(database, sql):
    database.row_factory = sqlite3.Row
    return [dict(row) for row in database.execute(sql)]


def check_totals(numbers, run, stats, database, run_id):
    for key in run["totals"]:
        numbers.same(f"totals.{key}", run["totals"][key], stats["totals"][key])
    totals = run["totals"]
    sql = rows(database, f"SELECT count(*) AS rounds, sum(drafted) AS drafted, sum(accepted) AS accepted, "
                         f"sum(committed) AS committed FROM round WHERE run_id = {run_id}")[0]
    for key, value in sql.items():
        numbers.same(f"round.{key}", totals[key], value)
    numbers.same("tau", totals["tau"], totals["committed"] / totals["rounds"])
    numbers.same("tau_unclipped", totals["tau_unclipped"], 1 + totals["accepted"] / totals["rounds"])
    speed = rows(database, f"""SELECT 1e9 * sum(r.committed) / (SELECT sum(end_ns - start_ns - paused_ns) FROM step
        WHERE run_id = {run_id} AND excluded IS NULL) AS speed FROM round r JOIN step s ON s.id = r.step_id
        WHERE r.run_id = {run_id} AND s.excluded IS NULL""")[0]["speed"]
    numbers.same("tokens_per_second", totals["tokens_per_second"], speed)
    prompts = rows(database, f"SELECT * FROM v_prompt WHERE run_id = {run_id}")
    for key in ("rounds", "drafted", "accepted", "committed"):
        numbers.same(f"v_prompt.{key}", totals[key], sum(row[key] for row in prompts))
    for prompt, row in zip(run["prompts"], prompts):
        numbers.same("prompt tau", prompt["tau"], row["tau"])
        numbers.same("prompt tau_unclipped", prompt["tau_unclipped"], row["tau_unclipped"])
        numbers.same("prompt rounds", prompt["rounds"], row["rounds"])
        numbers.same("prompt speed", prompt["tokens_per_second"], row["tokens_per_second"])


def check_heads(numbers, run, stats, database, folder, run_id):
    views = {(row["head"], row["mode"]): row for row in rows(database, f"SELECT * FROM v_head WHERE run_id = {run_id}")}
    with open(folder / "v_head.csv", newline="") as file:
        exported = {(row["head"], row["mode"]): row for row in csv.DictReader(file) if row["run_id"] == str(run_id)}
    numbers.same("heads", len(run["heads"]), len(stats["heads"]), len(views), len(exported))
    names = {"rounds": "rounds", "tau": "tau", "tau_unclipped": "tau_unclipped", "rho_tau": "rho_tau", "nu": "nu",
             "kappa": "kappa", "predicted_speedup": "predicted_speedup", "measured_speedup": "measured_speedup",
             "active_rows": "active_rows", "bytes_per_round": "bytes", "flops_per_round": "flops",
             "head_ns_per_round": "head_ns", "coverage": "coverage", "covered_mass": "covered_mass"}
    for head, same in zip(run["heads"], stats["heads"]):
        key = head["head"], head["mode"]
        for name, column in names.items():
            text = exported[key][column]
            numbers.same(f"{key} {name}", head[name], same[name], views[key][column], float(text) if text else None)
        if head["rho_tau"] is not None and head["nu"] is not None and head["kappa"] is not None:
            rho, nu, kappa = head["rho_tau"], head["nu"], head["kappa"]
            numbers.same(f"{key} eq. 4", head["predicted_speedup"], rho * (1 + kappa) / (1 + nu * kappa))
        if head["mode"] == "drive":
            for name in ("tau", "tau_unclipped", "rounds"):
                numbers.same(f"drive {name}", head[name], run["totals"][name])


def check_phases(numbers, run, stats, database, run_id):
    views = {row["name"]: row for row in rows(database, f"SELECT * FROM v_phase WHERE run_id = {run_id}")}
    measured = {row["name"]: row for row in stats["statistics"]["phases"]}
    for phase, same in zip(run["phases"], stats["phases"]):
        row = views[phase["name"]]
        numbers.same(f"{phase['name']} count", phase["count"], same["count"], row["n"])
        numbers.same(f"{phase['name']} total", phase["total_ms"], same["total_ms"], row["total"] * 1e-6)
        numbers.same(f"{phase['name']} exposed", phase["exposed_ms"], same["exposed_ms"], row["exposed"] * 1e-6)
        numbers.same(f"{phase['name']} share", phase["share"], same["share"], row["share"])
        if phase["count"] > 0:
            numbers.same(f"{phase['name']} median", phase["median_us"], row["median"] * 1e-3)
            if phase["name"] in measured:
                numbers.same(f"{phase['name']} statistics", phase["median_us"], measured[phase["name"]]["median_us"])


def check_latency(numbers, run, stats, database, run_id):
    for kind in run["latency"]:
        for key in run["latency"][kind]:
            numbers.same(f"latency {kind} {key}", run["latency"][kind][key], stats["latency"][kind][key])
    steps = rows(database, f"""SELECT r.committed, 1e-6 * (s.end_ns - s.start_ns - s.paused_ns) AS ms
        FROM round r JOIN step s ON s.id = r.step_id WHERE r.run_id = {run_id} AND s.excluded IS NULL""")
    tokens = sum(row["committed"] for row in steps)
    numbers.same("tokens of counted steps", run["latency"]["inter_token"]["n"], tokens)
    numbers.same("mean inter-token latency", run["latency"]["inter_token"]["mean_ms"], sum(row["ms"] for row in steps) / tokens)
    numbers.same("longest gap", run["latency"]["output_gap"]["max_ms"], max(row["ms"] for row in steps))
    numbers.same("mean inter-token latency and speed", run["latency"]["inter_token"]["mean_ms"], 1e3 / run["totals"]["tokens_per_second"])
    for kind in ("by_context", "by_position"):
        for key in ("rounds", "accepted", "committed"):
            numbers.same(f"{kind} {key}", run["totals"][key], sum(row[key] for row in run["speed"][kind]))
        numbers.same(kind, json.dumps(run["speed"][kind]), json.dumps(stats["speed"][kind]))


def check_speedup(numbers, run, stats, database, run_id):
    view = rows(database, f"SELECT * FROM v_speedup WHERE run_id = {run_id}")
    numbers.same("one row of v_speedup", len(view), 1)
    for name, column in {"prompts": "prompts", "conversations": "conversations", "tokens_per_second": "plain_tokens_per_second",
                         "run_tokens_per_second": "tokens_per_second", "speedup": "speedup"}.items():
        numbers.same(f"x AR {name}", run["baseline"][name], stats["baseline"][name], view[0][column])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True)
    options = parser.parse_args()
    numbers = Numbers()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "prompts.jsonl").write_text("".join(json.dumps({"prompt": text}) + "\n" for text in PROMPTS))
        capture = folder / "run.dscope"
        run = json.loads(output(options.program, "run", "--prompts", folder / "prompts.jsonl", "--drafter", "eagle3", "--head",
                                "fr-spec:v=8192", "--tree", "depth=2,topk=3,nodes=8", "--shadow", "full,microspec,aligned:slimspec",
                                "--max-new", "24", "--baseline", "3", "--save", capture, "--json", "--quiet"))
        stats = json.loads(output(options.program, "stats", capture, "--json"))["runs"]
        own = next(one for one in stats if not one["is_baseline"])
        output(options.program, "export", capture, "--format", "csv", "--out", folder / "csv")
        with sqlite3.connect(capture) as database:
            check_totals(numbers, run, own, database, own["id"])
            check_heads(numbers, run, own, database, folder / "csv", own["id"])
            check_phases(numbers, run, own, database, own["id"])
            check_latency(numbers, run, own, database, own["id"])
            check_speedup(numbers, run, own, database, own["id"])
    for line in numbers.wrong:
        print(line)
    print(f"{numbers.compared} numbers compared, {len(numbers.wrong)} differ")
    return 1 if numbers.wrong or numbers.compared < 150 else 0


if __name__ == "__main__":
    sys.exit(main())
