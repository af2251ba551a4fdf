#!/usr/bin/env python3
"""Holds the numbers of one capture to each other: `run --json`, `stats --json`, SQL views, tables, every export, and
the models that the window draws.

A run with shadow heads and a baseline is recorded. Every figure that several of these show must be the same, up to the
rounding of sums in another order.

usage: numbers_test.py --program BINARY [--window BINARY]    the latter is tests/docs/window_numbers.cpp
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
    depths = rows(database, f"""WITH RECURSIVE depth(d) AS (SELECT 1 UNION ALL SELECT d + 1 FROM depth WHERE d < (SELECT max(tree_depth) FROM round))
        SELECT avg(r.accepted >= d) AS rate FROM depth JOIN round r ON r.run_id = {run_id} AND NOT r.clipped AND r.tree_depth >= d
        AND r.accepted >= d - 1 GROUP BY d""")
    numbers.same("depths", len(totals["per_depth"]), len(depths))
    for found, row in zip(totals["per_depth"], depths):
        numbers.same("per_depth", found, row["rate"])
    numbers.same("histogram", sum(totals["histogram"]), totals["rounds"])
    numbers.same("histogram's drafts", sum(i * n for i, n in enumerate(totals["histogram"])), totals["accepted"])
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


def check_chrome(numbers, run, database, path, run_id):
    events = [event for event in json.loads(path.read_text())["traceEvents"] if event.get("pid") == run_id]
    rounds = [event["args"] for event in events if event.get("cat") == "round" and event["ph"] == "b"]
    numbers.same("chrome rounds", run["totals"]["rounds"], len(rounds))
    for key in ("drafted", "accepted", "committed"):
        numbers.same(f"chrome {key}", run["totals"][key], sum(args[key] for args in rounds))
    steps = [event for event in events if event.get("cat") == "step" and event["args"]["excluded"] == "no"]
    sql = rows(database, f"SELECT count(*) AS n, sum(end_ns - start_ns - paused_ns) AS ns FROM step "
                         f"WHERE run_id = {run_id} AND excluded IS NULL")[0]
    numbers.same("chrome counted steps", len(steps), sql["n"])
    numbers.same("chrome step time", sum(e["dur"] - e["args"]["paused_us"] for e in steps) * 1e3, sql["ns"])
    for row in span_sums(database, f"WHERE run_id = {run_id}"):
        spans = [event for event in events if event.get("cat") == "phase" and event["name"] == row["name"]]
        numbers.same(f"chrome {row['name']} spans", len(spans), row["n"])
        numbers.same(f"chrome {row['name']} time", sum(event["dur"] for event in spans) * 1e3, row["ns"])


def check_nsys(numbers, database, path):
    """Both runs are of one process, so the file is compared as a whole."""
    with sqlite3.connect(path) as nsys:
        for key in ("drafted", "accepted", "committed"):
            numbers.same(f"nsys {key}", rows(nsys, f"SELECT sum({key}) AS n FROM DRAFTSCOPE_ROUNDS")[0]["n"],
                         rows(database, f"SELECT sum({key}) AS n FROM round")[0]["n"])
        for row in span_sums(database, ""):
            found = rows(nsys, "SELECT count(*) AS n, sum(e.end - e.start) AS ns FROM NVTX_EVENTS e LEFT JOIN StringIds s "
                               f"ON s.id = e.textId WHERE e.end IS NOT NULL AND coalesce(e.text, s.value) = '{row['name']}'")[0]
            numbers.same(f"nsys {row['name']} ranges", found["n"], row["n"])
            numbers.same(f"nsys {row['name']} time", found["ns"], row["ns"])


def span_sums(database, where):
    return rows(database, "SELECT p.name, count(*) AS n, sum(s.end_ns - s.start_ns) AS ns FROM span s "
                          f"JOIN phase p ON p.id = s.phase_id {where} GROUP BY p.name")


def check_window(numbers, run, window):
    for key, name in {"rounds": "rounds", "tau": "tau"}.items():
        numbers.same(f"window {key}", run["totals"][name], window["acceptance"][key])
    numbers.same("window histogram", run["totals"]["rounds"], sum(window["acceptance"]["histogram"]))
    shown = {row["name"]: row for row in window["phases"]}
    for phase in run["phases"]:
        for key in ("count", "total_ms", "exposed_ms", "share") + (("median_us", "p90_us") if phase["count"] else ()):
            numbers.same(f"window {phase['name']} {key}", phase[key], shown[phase["name"]][key])
    for kind, name in {"first_token": "first token", "inter_token": "inter-token", "output_gap": "output"}.items():
        for key in ("n", "p50_ms", "p99_ms", "max_ms"):
            numbers.same(f"window {name} {key}", run["latency"][kind][key], window["latency"][name][key])
    for kind in ("by_context", "by_position"):
        numbers.same(f"window {kind}", len(run["speed"][kind]), len(window["latency"][kind]))
        for bin_, same in zip(run["speed"][kind], window["latency"][kind]):
            for key in ("from", "rounds", "committed", "tau", "tokens_per_second"):
                numbers.same(f"window {kind} {key}", bin_[key] or 0, same[key])
    heads = {(head["head"], head["mode"]): head for head in run["heads"]}
    live = next(head for head in run["heads"] if head["mode"] == "drive")
    for panel, keys in {"plane": ("tau", "rho_tau", "nu", "predicted_speedup", "active_rows"),
                        "coverage": ("active_rows", "coverage", "covered_mass")}.items():
        points = window["plane"]["points"] if panel == "plane" else window["coverage"]
        found = [point for point in points if (point["head"], point["mode"]) in heads]
        numbers.same(f"window heads of the {panel}", len(found) >= 2, True)
        for point in found:
            head = heads[point["head"], point["mode"]]
            expected = {key: head[key] for key in keys}
            if panel == "plane" and point["mode"] == "aligned":  # it drafted in some of the rounds only
                expected["tau"] = live["tau"] * head["rho_tau"] / live["rho_tau"]
            for key in keys:
                numbers.same(f"window {panel} {point['head']} {key}", expected[key], point[key])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True)
    parser.add_argument("--window")
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
        for form, name in {"csv": "csv", "chrome": "trace.json", "nsys": "nsys.sqlite", "sqlite": "copy.dscope"}.items():
            output(options.program, "export", capture, "--format", form, "--out", folder / name)
        with sqlite3.connect(capture) as database:
            check_totals(numbers, run, own, database, own["id"])
            check_heads(numbers, run, own, database, folder / "csv", own["id"])
            check_phases(numbers, run, own, database, own["id"])
            check_latency(numbers, run, own, database, own["id"])
            check_speedup(numbers, run, own, database, own["id"])
            check_chrome(numbers, run, database, folder / "trace.json", own["id"])
            check_nsys(numbers, database, folder / "nsys.sqlite")
        copy = json.loads(output(options.program, "stats", folder / "copy.dscope", "--json"))["runs"]
        numbers.same("copy", json.dumps(stats), json.dumps(copy))
        if options.window:
            check_window(numbers, run, json.loads(output(options.window, capture, own["id"])))
    for line in numbers.wrong:
        print(line)
    print(f"{numbers.compared} numbers compared, {len(numbers.wrong)} differ")
    return 1 if numbers.wrong or numbers.compared < 150 else 0


if __name__ == "__main__":
    sys.exit(main())
