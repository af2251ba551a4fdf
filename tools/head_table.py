#!/usr/bin/env python3
"""The table of all heads of the demo model: acceptance from replay and from a live run, cost, predicted and measured
speed-up, as Markdown.

For each suite, temperature and drafter: (1) a trace of the target's decode, replayed with every head: tau and coverage;
(2) a live run of the full head with every other one beside it (--shadow): tau again, rho_tau, nu, kappa and the
predicted speed-up, with 95 % intervals by conversation; on prompts that both have, the rounds of replay and live run must be
equal; (3) `bench`, each head by itself in turns with the others and plain decoding: the measured speed-ups. (2)
takes the first --live-limit conversations, (3) the first --measured-limit; sampled rounds are compared only where
--live-limit is --limit, too, since a sampled text depends on the prompt's place in its run.

    tools/head_table.py --limit 78 --out table.md                  # half an hour of two idle cores
    tools/head_table.py --limit 4 --live-limit 2 --max-new 24 --drafters eagle3 --temperatures 0     # a minute's try

Every command's JSON is kept in --work by the command and the weights it used, and --out is written anew after each
table, so a second start goes on where the first one stopped.
"""

import argparse
import concurrent.futures
import hashlib
import itertools
import json
import os
import pathlib
import re
import sqlite3
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
SUITES = {
    "Spec-Bench": "assets/prompts/spec_bench_half.jsonl",
    "HumanEval": "assets/prompts/humaneval_half.jsonl",
}
# Heads whose default the table does not use. Every other registered head runs with its default.
VARIANTS = {"fr-spec": "fr-spec:v=8192", "vocabtrim": "vocabtrim:v=8192"}


def registered_heads(binary):
    """The program's heads, as `run --help` lists them, but for those that cannot decode."""
    help_text = subprocess.run([binary, "run", "--help"], capture_output=True, text=True, check=True).stdout
    section = help_text[help_text.index("\nHeads, as --head"):]
    entries = re.findall(r"^ {2,4}([a-z][a-z0-9-]*) {2,}.*\n((?: {5,}.*\n)*)", section, re.M)
    return [VARIANTS.get(head, head) for head, details in entries if "only for replay" not in details]


def split_specs(text):
    """As the program does: a piece key=value without a colon continues the spec before it."""
    specs = []
    for piece in text.split(","):
        if specs and "=" in piece and ":" not in piece:
            specs[-1] += "," + piece
        else:
            specs.append(piece)
    return specs


class Runner:
    def __init__(self, options):
        self.options = options
        self.work = pathlib.Path(options.work)
        self.work.mkdir(parents=True, exist_ok=True)

    def name(self, words):
        # Weights that were trained anew make other results of the same words; a trace uses none.
        drafter = words[words.index("--drafter") + 1] if "--drafter" in words else "none"
        weights = [*ROOT.glob(f"assets/drafters/{drafter}/*.safetensors"), *sorted(ROOT.glob(f"assets/heads/{drafter}/*"))]
        key = "\0".join(words + [f"{p.name}{p.stat().st_size}{int(p.stat().st_mtime)}" for p in weights])
        return hashlib.sha256(key.encode()).hexdigest()[:16]

    def run(self, words, threads=0):
        """JSON of a command; of an earlier run of the same command where there is one."""
        kept = self.work / (self.name(words) + ".json")
        if kept.exists():
            return json.loads(kept.read_text())
        start = time.monotonic()
        command = [self.options.binary, *words, "--json", "--quiet"]
        if threads or self.options.threads:
            command += ["--threads", str(threads or self.options.threads)]
        done = subprocess.run(command, stdout=subprocess.PIPE, cwd=ROOT)
        if done.returncode != 0:
            sys.exit(f"draftscope {' '.join(words)}: exit code {done.returncode}")
        print(f"{time.monotonic() - start:5.0f} s  draftscope {' '.join(words)}", file=sys.stderr, flush=True)
        part = kept.with_suffix(".part")
        part.write_bytes(done.stdout)
        part.rename(kept)
        return json.loads(done.stdout)

    def decoding(self, suite, temperature, limit):
        words = ["--prompts", SUITES[suite], "--balanced", "--max-new", str(self.options.max_new)]
        if limit:
            words += ["--limit", str(limit)]
        if temperature > 0:
            words += ["--temperature", f"{temperature:g}", "--seed", "7"]
        return words

    def trace(self, suite, temperature):
        words = ["record", "--no-times", "--overwrite", *self.decoding(suite, temperature, self.options.limit)]
        folder = self.work / (self.name(words) + ".trace")
        self.run([*words, "--out", str(folder)])
        return str(folder)

    def replay(self, trace, drafter):
        # No result depends on the number of threads; one each is the most that a machine gives.
        return self.run(["replay", "--recording", trace, "--drafter", drafter, "--heads", self.options.heads], threads=1)


def head_of(document, head):
    for row in document["heads"]:
        if row["head"] == head and row.get("mode", "drive") in ("drive", "selfpaced"):
            return row
    return None


def live_rounds(path):
    """(head, prompt id, turn) -> rounds, committed of the live run's rows."""
    query = ("SELECT e.head, p.external_id, p.turn, count(*), sum(e.committed) FROM head_eval e "
             "JOIN round r ON r.id = e.round_id JOIN prompt p ON p.id = r.prompt_id "
             "WHERE e.mode IN ('drive', 'selfpaced') GROUP BY 1, 2, 3")
    with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as db:
        return {row[:3]: row[3:] for row in db.execute(query)}


def check_equal(replayed, live):
    """How many (head, prompt) pairs both have; every one must have the same rounds."""
    compared = 0
    for prompt in replayed["prompts"]:
        for head in prompt["heads"]:
            found = live.get((head["head"], prompt["id"], prompt["turn"]))
            if found is None:
                continue
            compared += 1
            if tuple(found) != (head["rounds"], head["committed"]):
                sys.exit(f"prompt {prompt['id']} turn {prompt['turn']}, head {head['head']}: replay has "
                         f"{head['rounds']} rounds and {head['committed']} tokens, the live run {found}")
    return compared


def number(value, digits=3):
    return "-" if value is None else f"{value:.{digits}f}"


def with_interval(row, name):
    value, interval = row.get(name), row.get("intervals", {}).get(name)
    if value is None:
        return "-"
    return f"{value:.3f}" if interval is None else f"{value:.3f} [{interval[0]:.3f}, {interval[1]:.3f}]"


def measured_heads(runner, drafter, suite, temperature, heads):
    """Each head by itself, block by block in turns with the others and with plain decoding: rows of `bench --json`."""
    document = runner.run(["bench", "--drafter", drafter, "--heads", ",".join(heads), "--block", "2",
                           *runner.decoding(suite, temperature, runner.options.measured_limit)])
    return {method["head"]: method for method in document["methods"] if method["drafter"] == drafter}


def table(runner, suite, temperature, drafter):
    options = runner.options
    heads = split_specs(options.heads)
    replayed = runner.replay(runner.trace(suite, temperature), drafter)
    capture = runner.work / f"{suite}-{temperature:g}-{drafter}.dscope"
    shadows = ",".join(head for head in heads if head != "full")
    live = runner.run(["run", "--drafter", drafter, "--head", "full", "--shadow", shadows, "--save", str(capture),
                       "--overwrite", *runner.decoding(suite, temperature, options.live_limit)])
    # Sampled texts depend on a prompt's place in the run, which another limit changes.
    same_texts = temperature == 0 or options.limit == options.live_limit
    compared = check_equal(replayed, live_rounds(capture)) if same_texts else 0
    measured = {} if options.no_measured else measured_heads(runner, drafter, suite, temperature, heads)
    lines = [
        f"### {suite}, {drafter}, " + ("greedy" if temperature == 0 else f"T={temperature:g}"),
        "",
        f"{len(replayed['prompts'])} prompts replayed, {len(live['prompts'])} live; tree {replayed['tree']}, "
        f"{replayed['precision']}; " +
        (f"replay and live run have the same rounds in {compared} of {compared} pairs of head and prompt that both have."
         if same_texts else "replay and live run sampled other texts (--limit differs), so their rounds were not compared."),
        "",
        "| head | tau, replay | tau, live | rho_tau | nu | kappa | predicted x full | measured x full | "
        "unexplained | x AR | row tokens | rows read | coverage % | mass % |",
        "| --- " * 14 + "|",
    ]
    for head in heads:
        offline, online = head_of(replayed, head), head_of(live, head)
        alone = measured.get(head, {})
        against, plain = alone.get("against_full") or {}, {"speedup": alone.get("speedup"), "intervals": {}}
        if alone.get("speedup_interval"):
            plain["intervals"]["speedup"] = alone["speedup_interval"]
        cells = [
            head, number(offline["tau"]), number(online["tau"]), with_interval(online, "rho_tau"),
            with_interval(online, "nu"), number(online["kappa"]), with_interval(online, "predicted_speedup"),
            with_interval(against, "measured_speedup"), with_interval(against, "unexplained"), with_interval(plain, "speedup"),
            f"{offline['row_tokens']:.0f}", f"{offline['active_rows']:.0f}",
            number(100 * offline["coverage"], 1), number(100 * offline["covered_mass"], 1),
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", default=str(ROOT / "build/release/draftscope"))
    parser.add_argument("--suites", default=",".join(SUITES))
    parser.add_argument("--drafters", default="eagle3", help="separated by commas; of the others, tools/make_head_artefacts.sh makes the fitted heads")
    parser.add_argument("--temperatures", default="0,1")
    parser.add_argument("--heads", help="default: every registered head")
    parser.add_argument("--limit", type=int, default=78, help="conversations replayed (0 = all)")
    parser.add_argument("--live-limit", type=int, default=12, help="conversations of the live run with all heads")
    parser.add_argument("--measured-limit", type=int, default=6, help="conversations of `bench`")
    parser.add_argument("--max-new", type=int, default=96)
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--no-measured", action="store_true", help="leave `bench` out")
    parser.add_argument("--work", default="/tmp/draftscope-head-table")
    parser.add_argument("--out", help="Markdown file (default: standard output)")
    options = parser.parse_args()
    for suite in options.suites.split(","):
        if suite not in SUITES:
            parser.error(f"--suites {suite}: unknown; known are {', '.join(SUITES)}")
    options.heads = options.heads or ",".join(registered_heads(options.binary))
    runner = Runner(options)
    cases = [(suite, float(temperature)) for suite in options.suites.split(",")
             for temperature in options.temperatures.split(",")]
    drafters = options.drafters.split(",")
    traces = [runner.trace(*case) for case in cases]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:  # before anything is timed
        list(pool.map(lambda one: runner.replay(*one), itertools.product(traces, drafters)))
    parts = []
    for case, drafter in itertools.product(cases, drafters):
        parts.append(table(runner, *case, drafter))
        if options.out:
            pathlib.Path(options.out).write_text("\n".join(parts))
    if not options.out:
        print("\n".join(parts), end="")


if __name__ == "__main__":
    main()
