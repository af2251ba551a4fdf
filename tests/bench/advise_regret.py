#!/usr/bin/env python3
"""Measures what `draftscope advise` loses against the best setting of a whole grid, on texts that it has not seen.

The conversations of a recording are split in two halves, alternating within each category. `advise` chooses on one half; the
grid is swept on the other, where the choice's predicted speed is set against the fastest one of the grid. Then the halves
change places. The fastest setting of a half owes some of its speed to luck, so the regret is an upper bound.

usage: advise_regret.py --program BINARY --recording FOLDER --profile FILE
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
                           "--max-new", str(options.max_new), "--quiet", "--json", *more], stdout=subprocess.PIPE, check=True)
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


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True)
    parser.add_argument("--recording", type=Path, required=True)
    parser.add_argument("--profile", required=True)
    parser.add_argument("--drafter", default="eagle3")
    parser.add_argument("--max-new", type=int, default=0, help="tokens of each text (0 = as recorded)")
    parser.add_argument("--advise-heads", default="", help="heads to choose from (default: all that have their files)")
    parser.add_argument("--grid-heads", default="full,fr-spec:v=1536|3072|6144|12288,vocabtrim,pa-fr,bcl,slimspec,specvocab,coral,dynaspec")
    options = parser.parse_args()
    prompts = json.loads((options.recording / "trace.json").read_text())["prompts"]
    talks = sorted(conversations(prompts), key=lambda places: prompts[places[0]]["category"])
    with tempfile.TemporaryDirectory() as scratch:
        halves = []
        for half in range(2):
            folder = Path(scratch) / str(half)
            folder.mkdir()
            halves.append(write_half(options.recording, sorted(place for talk in talks[half::2] for place in talk), folder))
        for chooses, judges in ((0, 1), (1, 0)):
            heads = ["--heads", options.advise_heads] if options.advise_heads else []
            advised = call(options, "advise", halves[chooses], *heads)
            chosen = advised["chosen"]
            grid = call(options, "sweep", halves[judges], "--heads", options.grid_heads, *GRID)["settings"]
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


if __name__ == "__main__":
    main()
