#!/usr/bin/env python3
"""Compares speculative decoding with llama.cpp's server on the same target and prompts: greedy, one sequence, chains. Both
engines run in turns, llama.cpp's servers stay loaded. It prints the median over the turns of tokens per second after the
first token, tau (tokens a round), and the ratio of our best to llama.cpp's best. compare_llama.sh speculative calls it.

Usage: compare_speculative.py --server LLAMA_SERVER --model TARGET.gguf [--peer-drafter FILE.gguf --type TYPE] [...]
  TYPE is draft-eagle3, or draft-simple for a small model. Our drafter is --drafter, "none" for plain decoding only.
"""
import argparse
import contextlib
import json
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
START_SECONDS = 180


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server", required=True)
    parser.add_argument("--draftscope", default=str(ROOT / "build/release/draftscope"))
    parser.add_argument("--model", required=True, help="target, a GGUF file")
    parser.add_argument("--peer-drafter", default="", help="llama.cpp's drafter, a GGUF file; default: plain decoding only")
    parser.add_argument("--type", default="draft-eagle3", help="llama.cpp's --spec-type")
    parser.add_argument("--drafter", default="eagle3", help="our --drafter")
    parser.add_argument("--chains", type=lambda text: [int(one) for one in text.split(",")], default="1,2,3")
    parser.add_argument("--prompts", default=str(ROOT / "assets/prompts/spec_bench_half.jsonl"))
    parser.add_argument("--limit", type=int, default=6, help="prompts, evenly over the file; first turns only")
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--context", type=int, default=2048)
    parser.add_argument("--turns", type=int, default=3)
    return parser.parse_args()


def first_turns(options):
    lines = Path(options.prompts).read_text().splitlines()
    step = max(1, len(lines) // options.limit)
    chosen = [json.loads(line) for line in lines[::step][:options.limit]]
    return [one["turns"][0] if "turns" in one else one["prompt"] for one in chosen]


class Server:
    """llama.cpp's server; `chain` 0 is plain decoding."""

    def __init__(self, options, chain, log):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.address = f"http://127.0.0.1:{free.getsockname()[1]}"
        self.options = options
        command = [options.server, "-m", options.model, "-t", str(options.threads), "-c", str(options.context), "-np", "1",
                   "--host", "127.0.0.1", "--port", self.address.rsplit(":", 1)[1]]
        if chain:
            command += ["-md", options.peer_drafter, "--spec-type", options.type, "--spec-draft-n-max", str(chain)]
        self.process = subprocess.Popen(command, stdout=log, stderr=log)

    def close(self):
        self.process.terminate()
        self.process.wait()

    def wait(self):
        for _ in range(START_SECONDS * 2):
            with contextlib.suppress(OSError):
                urllib.request.urlopen(self.address + "/health").close()
                return
            if self.process.poll() is not None:
                break
            time.sleep(0.5)
        sys.exit(f"{self.options.server}: did not start with {' '.join(self.process.args[1:])}; run it by hand for its log")

    def measure(self, prompts):
        tokens = accepted = ms = 0
        for prompt in prompts:
            body = {"messages": [{"role": "user", "content": prompt}], "max_tokens": self.options.tokens, "temperature": 0,
                    "cache_prompt": False}
            request = urllib.request.Request(self.address + "/v1/chat/completions", json.dumps(body).encode(),
                                             {"Content-Type": "application/json"})
            with urllib.request.urlopen(request) as answer:
                timings = json.load(answer)["timings"]
            # The first token is of the prefill; a round without drafts is one token.
            tokens += timings["predicted_n"] - 1
            accepted += timings.get("draft_n_accepted", 0)
            ms += timings["predicted_ms"]
        return tokens / ms * 1e3, tokens / (tokens - accepted)


def measure_ours(options, prompts_file, arguments):
    command = [options.draftscope, "run", "--json", "--quiet", "--model", options.model, "--prompts", prompts_file,
               "--max-new", str(options.tokens), "--threads", str(options.threads), "--baseline", "0", "--calibrate", "0"]
    done = subprocess.run(command + arguments, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command + arguments)}: {done.stderr.strip()}")
    totals = json.loads(done.stdout)["totals"]
    return totals["committed"] / totals["decode_seconds"], totals["committed"] / totals["rounds"]


def settings(options, prompts, prompts_file, servers):
    """Every row of the table: engine, setting and a function that measures it."""
    chains = options.chains if options.peer_drafter else []
    for chain in [0, *chains]:
        server = Server(options, chain, subprocess.DEVNULL)
        servers.callback(server.close)
        server.wait()
        yield "llama.cpp", f"chain={chain}" if chain else "plain", lambda server=server: server.measure(prompts)
    ours = {"plain": ["--drafter", "none"]}
    if options.drafter != "none":
        ours["default"] = ["--drafter", options.drafter]
        ours |= {f"chain={n}": ["--drafter", options.drafter, "--tree", f"chain={n}", "--head", "full"] for n in options.chains}
    for name, arguments in ours.items():
        yield "draftscope", name, lambda arguments=arguments: measure_ours(options, prompts_file, arguments)


def print_table(times):
    print("| engine | setting | tok/s | of the turns | tau |\n| --- | --- | --: | --- | --: |")
    best = {"draftscope": (0, ""), "llama.cpp": (0, "")}
    for (engine, name), found in times.items():
        speeds = sorted(speed for speed, _ in found)
        median = statistics.median(speeds)
        best[engine] = max(best[engine], (median, name))
        print(f"| {engine} | {name} | {median:.1f} | {speeds[0]:.1f} .. {speeds[-1]:.1f} | {found[-1][1]:.2f} |")
    (ours, our_name), (theirs, their_name) = best["draftscope"], best["llama.cpp"]
    print(f"\nour best ({our_name}) to llama.cpp's best ({their_name}): {ours / theirs:.2f}")


def main():
    options = parse()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # servers end with the program
    prompts = first_turns(options)
    with contextlib.ExitStack() as stack:
        file = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "prompts.jsonl"
        file.write_text("".join(json.dumps({"prompt": prompt}) + "\n" for prompt in prompts))
        rows = list(settings(options, prompts, str(file), stack))
        times = {(engine, name): [] for engine, name, _ in rows}
        for turn in range(options.turns):
            for engine, name, measure in rows if turn % 2 == 0 else reversed(rows):
                times[engine, name].append(measure())
                print(f"turn {turn + 1}: {engine} {name}: {times[engine, name][-1][0]:.1f} tok/s", file=sys.stderr)
    print(f"{Path(options.model).name}, {len(prompts)} prompts, {options.tokens} tokens, {options.threads} threads, {options.turns} turns")
    print_table(times)


if __name__ == "__main__":
    main()
