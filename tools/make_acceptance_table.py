#!/usr/bin/env python3
"""Makes assets/demo_acceptance.json: the acceptance of the demo model's drafters, heads, chains and trees by conversation.

`draftscope run --tree quick` forecasts from it. The target's answers are recorded once, then every head, chain and tree is
replayed along them, so the figures are those of live runs over the same prompts. A head whose replay is an estimate runs.

    tools/make_acceptance_table.py            (five minutes on two cores)
"""

import argparse
import json
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
PROMPTS = "assets/prompts/spec_bench_half.jsonl"


def run(binary, *arguments):
    done = subprocess.run([str(binary), *map(str, arguments)], cwd=ROOT, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"make_acceptance_table: {binary} {' '.join(map(str, arguments))}: {done.stderr.strip()}")
    return done.stdout


def by_conversation(rounds, prompts):
    """Returns [rounds, committed] of each conversation. `rounds` has those of each prompt, turn by turn."""
    tallies = {}
    for (count, committed), prompt in zip(rounds, prompts, strict=True):
        tally = tallies.setdefault(prompt["id"], [0, 0])
        tally[0] += count
        tally[1] += committed
    return list(tallies.values())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", type=pathlib.Path, default=ROOT / "build/release/draftscope")
    parser.add_argument("--drafters", default="eagle3")
    parser.add_argument("--heads", default="microspec,vocabtrim:v=8192")
    parser.add_argument("--chains", type=int, default=4, help="longest chain")
    parser.add_argument("--trees", default="depth=1,topk=2,nodes=4 depth=2,topk=3,nodes=6 depth=3,topk=3,nodes=8", help="further trees")
    parser.add_argument("--limit", type=int, default=48, help="conversations")
    parser.add_argument("--max-new", type=int, default=96)
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "assets/demo_acceptance.json")
    options = parser.parse_args()

    decode = ["--prompts", PROMPTS, "--limit", options.limit, "--balanced", "--max-new", options.max_new]
    table = {}
    with tempfile.TemporaryDirectory() as folder:
        trace = pathlib.Path(folder) / "trace"
        run(options.binary, "record", *decode, "--no-times", "--out", trace, "--quiet")
        for drafter in options.drafters.split(","):
            heads = table.setdefault(drafter, {})
            for tree in [f"chain={length}" for length in range(1, options.chains + 1)] + options.trees.split():
                replayed = json.loads(run(options.binary, "replay", "--recording", trace, "--drafter", drafter, "--heads",
                                          options.heads, "--tree", tree, "--no-mass", "--json", "--quiet"))
                for h, head in enumerate(replayed["heads"]):
                    prompts = replayed["prompts"]
                    rounds = [(prompt["heads"][h]["rounds"], prompt["heads"][h]["committed"]) for prompt in prompts]
                    if not head["exact"]:
                        prompts = json.loads(run(options.binary, "run", *decode, "--batch", 16, "--drafter", drafter, "--head", head["head"],
                                                 "--tree", tree, "--calibrate", 0, "--baseline", 0, "--json",
                                                 "--quiet"))["prompts"]
                        rounds = [(prompt["rounds"], round(prompt["rounds"] * (prompt["tau"] or 0))) for prompt in prompts]
                    tallies = by_conversation(rounds, prompts)
                    tau = sum(committed for _, committed in tallies) / sum(count for count, _ in tallies)
                    heads.setdefault(head["head"], {})[tree] = {"tau": round(tau, 3), "rounds_committed": tallies}
    document = {
        "what": "rounds and committed tokens of the demo model by drafter, head, tree and conversation, for --tree quick",
        "command": "tools/make_acceptance_table.py "
                   f"--drafters {options.drafters} --heads {options.heads} --chains {options.chains} "
                   f"--trees '{options.trees}' --limit {options.limit} --max-new {options.max_new}",
        "prompts": PROMPTS,
        "conversations": options.limit,
        "drafters": table,
    }
    text = json.dumps(document, indent=2)
    text = re.sub(r"\[[\s\d,\[\]]+\]", lambda numbers: re.sub(r"\s+", "", numbers[0]), text)  # a line for each tree
    options.out.write_text(text + "\n")
    print(f"wrote {options.out}")


if __name__ == "__main__":
    main()
