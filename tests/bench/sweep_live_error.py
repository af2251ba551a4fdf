#!/usr/bin/env python3
"""Measures how far the speeds that `draftscope sweep` predicts are from live runs on this machine.

Sweeps a grid over the recording, takes settings spread evenly over the predicted speeds, of every head alike, and decodes texts
of the recording live under each, in turns with plain decoding (`draftscope bench`). Prints every setting, and the median and worst
error of the predicted tokens per second and speed-up. With the defaults it takes about ten minutes on 2 quiet cores.

usage: sweep_live_error.py --program BINARY --recording FOLDER --profile FILE --prompts FILE [--settings 20] [--limit 8] [--json FILE]
"""
import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path


def output_of(command):
    done = subprocess.run(command, stdout=subprocess.PIPE)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: exit code {done.returncode}")
    return json.loads(done.stdout)


def method_of(one):
    return f"{one['drafter']} x {one['head']} @ {one['tree']}" if one["head"] else f"{one['drafter']} @ {one['tree']}"


def spread(settings, count):
    """Settings of every head in turn, evenly over their ranks in speed, fastest first."""
    heads = {}
    for one in settings:
        heads.setdefault((one["drafter"], one["head"]), []).append(one)
    chosen = []
    for place, head in enumerate(heads.values()):
        share = count // len(heads) + (place < count % len(heads))
        share = min(share, len(head))
        chosen += [head[round(i * (len(head) - 1) / max(share - 1, 1))] for i in range(share)]
    return chosen


def write_prompts(source, recording, limit, out):
    """Writes the lines of the first conversations of the recording, so that both sides have the same texts."""
    ids = []
    for prompt in json.loads((recording / "trace.json").read_text())["prompts"]:
        if prompt["id"] not in ids:
            ids.append(prompt["id"])
    step = max(len(ids) // limit, 1) if limit else 1  # over all categories
    wanted = ids[::step][:limit or None]
    lines = {}
    for line in source.read_text().splitlines():
        one = json.loads(line)
        lines[str(one.get("question_id", one.get("id")))] = line
    missing = [one for one in wanted if one not in lines]
    if missing:
        sys.exit(f"{source}: has no prompt with id {missing[0]}, which the recording has")
    out.write_text("".join(lines[one] + "\n" for one in wanted))
    return len(wanted)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True)
    parser.add_argument("--recording", type=Path, required=True)
    parser.add_argument("--profile", required=True)
    parser.add_argument("--prompts", type=Path, required=True, help="the file that was recorded")
    parser.add_argument("--drafters", default="eagle3")
    parser.add_argument("--heads", default="full,fr-spec,vocabtrim,specvocab,slimspec")
    parser.add_argument("--grid", default="--chain 4 --topk 2,4 --depth 2 --nodes 4,6,8,12,16", help="options of sweep")
    parser.add_argument("--settings", type=int, default=20)
    parser.add_argument("--limit", type=int, default=8, help="conversations of the live runs (0 = all)")
    parser.add_argument("--max-new", type=int, default=64)
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--model", default="")
    parser.add_argument("--json", type=Path, help="also write every setting to this file")
    options = parser.parse_args()
    common = ["--max-new", str(options.max_new), "--threads", str(options.threads), "--quiet", "--json"]
    if options.model:
        common += ["--model", options.model]
    swept = output_of([options.program, "sweep", "--recording", str(options.recording), "--profile", options.profile, "--drafters",
                       options.drafters, "--heads", options.heads, *options.grid.split(), *common])
    chosen = spread(swept["settings"], options.settings)
    with tempfile.TemporaryDirectory() as scratch:
        prompts = Path(scratch) / "prompts.jsonl"
        conversations = write_prompts(options.prompts, options.recording, options.limit, prompts)
        profile = json.loads(Path(options.profile).read_text())
        command = [options.program, "bench", "--prompts", str(prompts), "--precision", profile["precision"], *common]
        for one in chosen:
            command += ["--method", method_of(one)]
        live = output_of(command)
    rows = []
    for one, cell in zip(chosen, live["methods"][1:]):
        tok, speedup = cell["tokens_per_second"], cell["speedup"]
        rows.append({"method": cell["method"], "tau": [one["tau"]["value"], cell["tau"]],
                     "tokens_per_second": [one["tokens_per_second"]["value"], tok], "speedup": [one["speedup"]["value"], speedup],
                     "error": {"tau": one["tau"]["value"] / cell["tau"] - 1, "tokens_per_second": one["tokens_per_second"]["value"] / tok - 1,
                               "speedup": one["speedup"]["value"] / speedup - 1}})
    print(f"{len(rows)} settings, {conversations} conversations live; predicted / live")
    for row in rows:
        print(f"{row['method']:48} tau {row['tau'][0]:.3f} / {row['tau'][1]:.3f}  tok/s {row['tokens_per_second'][0]:.1f} / "
              f"{row['tokens_per_second'][1]:.1f}  x plain {row['speedup'][0]:.3f} / {row['speedup'][1]:.3f} ({100 * row['error']['speedup']:+.1f} %)")
    summary = {}
    for key in ("tau", "tokens_per_second", "speedup"):
        errors = sorted((abs(row["error"][key]) for row in rows))
        summary[key] = {"median": statistics.median(errors), "worst": errors[-1]}
        print(f"{key}: median error {100 * summary[key]['median']:.1f} %, worst {100 * summary[key]['worst']:.1f} %")
    print(f"noise of the machine, one method against itself: {live['noise_floor']}")
    if options.json:
        options.json.write_text(json.dumps({"summary": summary, "noise_floor": live["noise_floor"], "settings": rows}, indent=1))


if __name__ == "__main__":
    main()
