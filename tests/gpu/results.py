#!/usr/bin/env python3
"""Reads the logs of tests/gpu/checklist.sh: compares texts and writes the Markdown summary.

usage: results.py same LOG LOG...            exit code 1 unless all runs have the same tokens
       results.py late LOG LOG               ... unless two runs diverge late (rounding) or never
       results.py graphs LOG                 ... unless CUDA graphs were kept and every capture succeeded
       results.py summary FOLDER WHY STEP... Markdown on stdout; WHY is the reason for an early end, or empty
"""
import csv
import json
import sys
from pathlib import Path


def document(path):
    """The JSON document of a log, or None."""
    try:
        return json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def texts(path):
    run = document(path)
    if run is None:
        sys.exit(f"{path}: no JSON of a run")
    return [prompt["tokens"] for prompt in run["prompts"]]


def same(paths):
    first, wrong = texts(paths[0]), 0
    for path in paths[1:]:
        equal = texts(path) == first
        wrong += not equal
        print(f"{Path(path).stem}: {'same text' if equal else 'TEXT DIFFERS'} as {Path(paths[0]).stem}")
    return 1 if wrong else 0


def late(paths):
    """Counts tokens until two runs diverge: a wrong rule makes them diverge within four tokens on average."""
    parted = []
    for a, b in zip(texts(paths[0]), texts(paths[1])):
        differing = (i for i, (x, y) in enumerate(zip(a, b)) if x != y)
        parted.append(next(differing, min(len(a), len(b))))
    print("tokens until the texts diverge:", parted)
    return 0 if parted and sum(parted) >= 4 * len(parted) else 1


def graphs(paths):
    gpu = document(paths[0])["gpu"]
    print(gpu)
    return 0 if gpu["graphs"] > 0 and gpu["graphs_refused"] == 0 else 1


def table(header, rows):
    if not rows:
        return ""
    lines = [header, ["---"] * len(header)] + rows
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines) + "\n\n"


def full_head_goal(device):
    """Microseconds of the full head on this card, from tools/gpu_estimate.py; "-" for a card without goals."""
    card = next((card for card in ("h100", "h200") if card in device.lower()), None)
    if card is None:
        return "-"
    sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
    import gpu_estimate
    return f"{next(row for row in gpu_estimate.ROWS if row.name.startswith('full head')).goal_of(card):.0f}"


def kernel_part(name, report):
    llama = (report["vocab"], report["hidden"]) == (128256, 4096)
    def goal(op):
        full = op["op"] == "head" and op["mode"] == "cold" and op["rows"] == 1
        return full_head_goal(report["device"]) if full and llama else "-"
    rows = [[op["op"], op["mode"], op["rows"], f"{op['median_us']:.2f}", goal(op), f"{op['best_us']:.2f}", f"{op.get('spread_us', 0):.2f}",
             f"{op['gb_per_s']:.0f}"]
            for op in report["ops"]]
    head = f"### {name}: {report['device']}, V {report['vocab']}, d {report['hidden']}, reads {report['read_gb_per_s']:.0f} GB/s\n\n"
    return head + table(["op", "mode", "rows", "median us", "goal of this card", "best us", "spread us", "GB/s"], rows)


def started_part(name, text):
    """The ops that `kernels` reported on stderr, one JSON object a line, before it was ended."""
    ops = [json.loads(line) for line in text.splitlines() if line.startswith('{"') and line.endswith("}")]
    rows = [[op["op"], op["mode"], op["rows"], f"{op['median_us']:.2f}"] for op in ops]
    return f"### {name}: ended early, as far as measured\n\n" + table(["op", "mode", "rows", "median us"], rows) if rows else ""


def bench_part(name, report):
    rows = []
    for method in report["methods"]:
        speedup = method.get("speedup")
        tau, rate = method["tau"], method["tokens_per_second"]
        rows.append([method["method"], f"{tau:.3f}", f"{rate:.1f}", f"{1e3 * tau / rate:.3f}" if rate else "-",
                     f"{speedup:.3f}" if isinstance(speedup, (int, float)) else "-"])
    head = f"### {name}: {report['target']}, acceptance {report['acceptance']}\n\n"
    return head + table(["method", "tau", "tok/s", "ms a round", "x AR"], rows)


def run_part(name, run):
    totals = run["totals"]
    phases = ", ".join(f"{phase['name']} {phase['median_us']:.1f}" for phase in run.get("phases", []) if phase.get("median_us"))
    return (f"### {name}\n\n{totals.get('tokens_per_second') or 0:.1f} tok/s, tau {totals.get('tau') or 0:.3f}; "
            f"gpu {json.dumps(run.get('gpu'))}; beside exact numerics {json.dumps(run.get('beside_exact'))}; median us of phases: {phases or 'none'}\n\n")


def both_ways(logs, kind, read):
    """row -> way -> values of a step's turns, by `read`, which lists (row, value) of a report."""
    found = {}
    for path in sorted(logs.glob(f"overlap_{kind}_o*.log")):
        report, way = document(path), path.stem.split("_")[2]
        if isinstance(report, dict) and (logs / f"{path.stem}.ok").exists():
            for row, value in read(report):
                found.setdefault(row, {}).setdefault(way, []).append(value)
    rows = []
    for row, ways in found.items():
        if set(ways) == {"on", "off"}:
            on, off = (sum(ways[way]) / len(ways[way]) for way in ("on", "off"))
            apart = max(max(values) - min(values) for values in ways.values())
            rows.append([*row, f"{on:.2f}", f"{off:.2f}", f"{off - on:.2f}", f"{off / on:.3f}" if on else "-", f"{apart:.2f}"])
    return rows


def overlap_part(logs):
    """Times with kernels that overlap and without, side by side. `turns apart` is the noise: the largest difference of one way."""
    def read_kernels(report):
        return [((op["op"], op["mode"], op["rows"]), op["median_us"]) for op in report["ops"]]

    def read_rounds(report):
        return [((method["method"],), 1e6 * method["tau"] / method["tokens_per_second"])
                for method in report["methods"] if method["tokens_per_second"]]
    kernels, rounds = both_ways(logs, "kernels", read_kernels), both_ways(logs, "rounds", read_rounds)
    columns = ["on", "off", "off - on", "off / on", "turns apart"]
    return (("### overlap, on and off in turns: us\n\n" if kernels or rounds else "") +
            table(["op", "mode", "rows", *columns], kernels) + table(["method, us a round", *columns], rounds))


WANTED_COUNTERS = {"Duration": "us or ns", "DRAM Throughput": "%", "Memory Throughput": "%", "Achieved Occupancy": "%",
                   "Registers Per Thread": ""}


def counters_part(name, text):
    """One row per kernel from ncu's CSV, whose notes precede the header."""
    lines = text.splitlines()
    start = next((i for i, line in enumerate(lines) if line.startswith('"ID"')), None)
    if start is None:
        return ""
    kernels = {}
    for row in csv.DictReader(lines[start:]):
        kernel = kernels.setdefault(row["ID"], {"name": row["Kernel Name"].split("(")[0][-60:]})
        if row.get("Metric Name") in WANTED_COUNTERS:
            kernel.setdefault(row["Metric Name"], f"{row['Metric Value']} {row.get('Metric Unit', '')}".strip())
    rows = [[kernel["name"]] + [kernel.get(metric, "-") for metric in WANTED_COUNTERS] for kernel in kernels.values()]
    return f"### {name}: counters\n\n" + table(["kernel", *WANTED_COUNTERS], rows)


def measured(logs, name):
    path = logs / f"{name}.log"
    found = document(path)
    try:
        if name.startswith("ncu_"):
            return counters_part(name, path.read_text(encoding="utf-8", errors="replace"))
        if name.startswith("overlap_"):
            return ""
        if not isinstance(found, dict):
            errors = path.with_suffix(".err")
            return started_part(name, errors.read_text(encoding="utf-8", errors="replace")) if name.startswith("kernels_") else ""
        if "ops" in found:
            return kernel_part(name, found)
        if "methods" in found:
            return bench_part(name, found)
        if "totals" in found:
            return run_part(name, found)
    except (KeyError, TypeError, ValueError, OSError) as error:
        return f"### {name}\n\nnot understood: {error!r}; see logs/{name}.log\n\n"
    return ""


def outcome_of(logs, name):
    for outcome in ("ok", "failed", "left"):
        mark = logs / f"{name}.{outcome}"
        if mark.exists():
            return outcome, mark.read_text(encoding="utf-8", errors="replace").strip()
    return "left", "not reached"


def summary(arguments):
    logs, why, names = Path(arguments[0]), arguments[1], arguments[2:]
    outcomes = {name: outcome_of(logs, name) for name in names}
    count = {outcome: sum(found == outcome for found, _ in outcomes.values()) for outcome in ("ok", "failed", "left")}
    device = (logs / "device.log").read_text(errors="replace") if (logs / "device.log").exists() else ""
    facts = [line.strip() for line in device.splitlines() if line.strip().startswith(("Product Name", "Driver Version", "CUDA Version"))]
    print("# GPU checklist\n")
    print(f"{'; '.join(' '.join(fact.split()) for fact in facts) or 'no GPU was seen'}\n")
    print(f"{count['ok']} passed, {count['failed']} failed, {count['left']} left." + (f" Ended early: {why}." if why else "") + "\n")
    print(table(["step", "outcome", "seconds or reason"], [[name, *outcome] for name, outcome in outcomes.items()]))
    parts = [measured(logs, name) for name, (outcome, _) in outcomes.items() if outcome != "left"]
    try:
        parts.append(overlap_part(logs))
    except (KeyError, TypeError, ValueError) as error:
        parts.append(f"### overlap\n\nnot understood: {error!r}; see logs/overlap_*.log\n\n")
    if any(parts):
        print("## Measured\n")
        print("".join(parts))
    return 0


def main():
    commands = {"same": same, "late": late, "graphs": graphs, "summary": summary}
    if len(sys.argv) < 3 or sys.argv[1] not in commands:
        sys.exit(__doc__)
    return commands[sys.argv[1]](sys.argv[2:])


if __name__ == "__main__":
    sys.exit(main())
