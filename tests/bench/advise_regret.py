#!/usr/bin/env python3
"""Measures what `draftscope advise` loses against the best setting of a whole grid, on texts that it has not seen.

The conversations of a recording are split in two halves, alternating within each category. `advise` chooses on one half; the
grid is swept on the other, where the choice's predicted speed is set against the fastest one of the grid. Then the halves
change places. The fastest setting of a half owes some of its speed to luck, so the regret is an upper bound.

With --live the choice and the fastest settings of the grid, the best one of each head, are also decoded live, in turns, on
conversations of the judging half. The live regret is against the grid's fastest one, with an interval over conversations that
bench pairs; the other heads show whether replay and profile missed a faster one. With the demo's recording, --live
assets/prompts/spec_bench_half.jsonl --limit 8 --live-heads 4 --max-new 32 takes about ten minutes on 2 quiet cores.

usage: advise_regret.py --program BINARY --recording FOLDER --profile FILE [--live PROMPTS] [--json FILE]
"""
import argparse
import json
import struct
import subprocess
import tempfile
from pathlib import Path

GRID = ["--chain", "8", "--topk", "2,3,4,6,8", "--depth", "3", "--nodes", ",".join(map(str, range(3, 25)))]


def conversations(prompts):
    """Places of the prompts of each conversation: a turn above 0 continues the one before it."""
    found = []
    for place, prompt in enumerate(prompts):
        if prompt["turn"] == 0 or not found:
            found.append([])
        found[-1].append(place)
    return found


def write_half(recording, places, folder):
    """Writes a recording that holds some prompts of another one."""
    info = json.loads((recording / "trace.json").read_text())
    prompts = [dict(info["prompts"][place]) for place in places]
    spans = [(one["first_row"], one["prompt_tokens"] + one["generated_tokens"]) for one in prompts]
    first = 0
    for prompt, (_, rows) in zip(prompts, spans):
        prompt["first_row"] = first
        first += rows
    info.update(prompts=prompts, rows=first)
    with open(recording / "trace.safetensors", "rb") as source, open(folder / "trace.safetensors", "wb") as out:
        size = struct.unpack("<Q", source.read(8))[0]
        header = json.loads(source.read(size))
        offset = 0
        new = {}
        for name, tensor in header.items():
            if name == "__metadata__":
                new[name] = tensor
                continue
            begin, end = tensor["data_offsets"]
            row = (end - begin) // tensor["shape"][0]
            new[name] = dict(tensor, shape=[first] + tensor["shape"][1:], data_offsets=[offset, offset + first * row])
            offset += first * row
        text = json.dumps(new).encode()
        text += b" " * (-len(text) % 8)
        out.write(struct.pack("<Q", len(text)) + text)
        for name, tensor in header.items():
            if name == "__metadata__":
                continue
            begin, end = tensor["data_offsets"]
            row = (end - begin) // tensor["shape"][0]
            for start, rows in spans:
                source.seek(8 + size + begin + start * row)
                out.write(source.read(rows * row))
    (folder / "trace.json").write_text(json.dumps(info))
    weights = recording / "weights.safetensors"
    if weights.exists():
        (folder / weights.name).symlink_to(weights.resolve())
    return folder


def call(options, command, recording, *more):
    done = subprocess.run([options.program, command, "--recording", recording, "--profile", options.profile, "--drafters", options.drafter,
                           "--max-new", str(options.max_new), "--threads", str(options.threads), "--quiet", "--json",
                           *(["--model", options.model] if options.model else []), *more], stdout=subprocess.PIPE, check=True)
    return json.loads(done.stdout)


def tree_options(tree):
    if tree.startswith("chain="):
        return ["--chain", tree.removeprefix("chain="), "--topk", "2", "--depth", "0", "--nodes", "3"]
    shape = dict(part.split("=") for part in tree.split(","))
    return ["--chain", "0", "--topk", shape["topk"], "--depth", shape["depth"], "--nodes", shape["nodes"]]


def speed_of(settings, wanted):
    for one in settings:
        if (one["head"], one["tree"]) == (wanted["head"], wanted["tree"]):
            return one["tokens_per_second"]["value"]
    return None


def method_of(one):
    return f"{one['drafter']} x {one['head']} @ {one['tree']}" if one["head"] else f"{one['drafter']} @ {one['tree']}"


def best_of_heads(grid):
    """The fastest setting of every head, fastest first."""
    best = {}
    for one in sorted(grid, key=lambda one: -one["tokens_per_second"]["value"]):
        best.setdefault((one["drafter"], one["head"]), one)
    return list(best.values())


def live_regret(options, chosen, grid, ids, scratch):
    """Decodes the choice and the best of every head in turns. Returns bench's figures of each."""
    step = max(len(ids) // options.limit, 1) if options.limit else 1
    wanted = ids[::step][:options.limit or None]
    lines = {}
    for line in options.live.read_text().splitlines():
        one = json.loads(line)
        lines[str(one.get("question_id", one.get("id")))] = line
    prompts = scratch / "live.jsonl"
    prompts.write_text("".join(lines[one] + "\n" for one in wanted))
    best = best_of_heads(grid)[:options.live_heads]
    methods = list(dict.fromkeys(method_of(one) for one in [chosen, *best]))
    precision = json.loads(Path(options.profile).read_text())["precision"]
    command = [options.program, "bench", "--prompts", str(prompts), "--precision", precision, "--max-new", str(options.max_new), "--quiet",
               "--json", "--threads", str(options.threads)]
    if options.model:
        command += ["--model", options.model]
    for method in methods:
        command += ["--method", method]
    live = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
    cells = dict(zip(methods, live["methods"][1:]))
    names = {cell["method"]: method for method, cell in cells.items()}
    mine, fastest = method_of(chosen), method_of(best[0])
    out = {"conversations": len(wanted), "speedups": {method: [cell["speedup"], cell["speedup_interval"]] for method, cell in cells.items()},
           "noise_floor": live["noise_floor"], "regret": 0.0, "interval": [0.0, 0.0] if mine == fastest else None, "against": fastest}
    for pair in live["pairs"]:
        ends = (names.get(pair["a"]), names.get(pair["b"]))
        if set(ends) != {mine, fastest} or mine == fastest:
            continue
        # A pair's ratio is the speed of b over that of a.
        turned = ends[0] == mine
        ratio = 1 / pair["ratio"] if turned else pair["ratio"]
        bounds = pair["interval"] and sorted(1 / one if turned else one for one in pair["interval"])
        out["regret"] = 1 - ratio
        out["interval"] = bounds and [1 - bounds[1], 1 - bounds[0]]
    return out


def print_live(live):
    interval = "no interval: too few conversations"
    if live["interval"]:
        interval = "[{:.2f}, {:.2f}] %".format(*(100 * one for one in live["interval"]))
    print(f"  live, {live['conversations']} conversations: regret {100 * live['regret']:.2f} % {interval} against {live['against']}")
    for method, (speedup, bounds) in sorted(live["speedups"].items(), key=lambda one: -one[1][0]):
        print(f"    {method}: {speedup:.3f} {bounds} x plain")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True)
    parser.add_argument("--recording", type=Path, required=True)
    parser.add_argument("--profile", required=True)
    parser.add_argument("--drafter", default="eagle3")
    parser.add_argument("--max-new", type=int, default=0, help="tokens of each text (0 = as recorded)")
    parser.add_argument("--advise-heads", default="", help="heads to choose from (default: all that have their files)")
    parser.add_argument("--grid-heads", default="full,fr-spec:v=1536|3072|6144|12288,vocabtrim,pa-fr,bcl,slimspec,specvocab,coral,dynaspec,microspec:wmax=512|1024|2048")
    parser.add_argument("--live", type=Path, help="the prompt file that was recorded: also decode live")
    parser.add_argument("--limit", type=int, default=8, help="live conversations of each half (0 = all)")
    parser.add_argument("--live-heads", type=int, default=4, help="heads of the grid that are decoded live, fastest first")
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--model", default="")
    parser.add_argument("--grid", default=" ".join(GRID), help="trees of the grid")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    options = parser.parse_args()
    found = []
    prompts = json.loads((options.recording / "trace.json").read_text())["prompts"]
    talks = sorted(conversations(prompts), key=lambda places: prompts[places[0]]["category"])
    with tempfile.TemporaryDirectory() as scratch:
        halves, ids = [], []
        for half in range(2):
            folder = Path(scratch) / str(half)
            folder.mkdir()
            halves.append(write_half(options.recording, sorted(place for talk in talks[half::2] for place in talk), folder))
            ids.append([prompts[talk[0]]["id"] for talk in talks[half::2]])
        for chooses, judges in ((0, 1), (1, 0)):
            heads = ["--heads", options.advise_heads] if options.advise_heads else []
            advised = call(options, "advise", halves[chooses], *heads)
            chosen = advised["chosen"]
            grid = call(options, "sweep", halves[judges], "--heads", options.grid_heads, *options.grid.split())["settings"]
            here = speed_of(grid, chosen)
            if here is None:
                alone = call(options, "sweep", halves[judges], "--heads", chosen["head"], *tree_options(chosen["tree"]))
                here = speed_of(alone["settings"], chosen)
            best = max(grid, key=lambda one: one["tokens_per_second"]["value"])
            regret = 1 - here / best["tokens_per_second"]["value"]
            expected = advised["advice"]["speedup"]
            print(f"chosen {chosen['head']} @ {chosen['tree']} of {advised['settings']} settings in {advised['seconds']:.0f} s; "
                  f"best of {len(grid)}: {best['head']} @ {best['tree']}; regret {100 * regret:.2f} %; speed-up expected "
                  f"{expected['value']:.3f} {expected['interval']}, there {here * chosen['plain_ms'] / 1e3:.3f}", flush=True)
            found.append({"chosen": method_of(chosen), "best": method_of(best), "regret": regret, "expected": expected})
            if options.live:
                found[-1]["live"] = live_regret(options, chosen, grid, ids[judges], Path(scratch))
                print_live(found[-1]["live"])
    if options.json:
        options.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
