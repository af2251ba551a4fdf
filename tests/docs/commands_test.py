#!/usr/bin/env python3
"""Runs the command lines of the documentation, in order, as a reader would type them.

Every fenced `sh` block of a document is one shell session in a scratch folder that looks like the root of a checkout:
the program under build/release, the real assets and tools, small prompt files under the names that the text uses.
Fenced `sql` blocks run against the capture that the README records. The examples of every `--help` run too.

usage: commands_test.py --program BINARY [--python PYTHON_WITH_TORCH] [--one-core] DOCUMENT...
DOCUMENT is a Markdown file or the word `help`. With --python the blocks that need torch run; without it a document
that has such blocks is reported as skipped (exit code 77).
"""
import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import stand_in_server

SOURCE = Path(__file__).resolve().parents[2]
SKIPPED = 77

# Sizes that only cost time: (document, as written, as run). One that no longer occurs is an error.
SMALLER = [
    ("TRAINING.md", "--count 6000", "--count 12"),
    ("TRAINING.md", "other.jsonl:1500", "other.jsonl:2"),
    ("TRAINING.md", "--max-new 128 --out traces", "--max-new 8 --out traces"),
    ("TRAINING.md", "--steps 3000", "--steps 2 --tokens 200"),
    ("TRAINING.md", "--count 9000", "--count 8"),
    ("TRAINING.md", "--prompts more.jsonl --out more", "--prompts more.jsonl --max-new 8 --out more"),
    ("README.md", "--out decoded.recording", "--max-new 16 --out decoded.recording"),
    ("README.md", "advise --recording decoded.recording", "advise --recording decoded.recording --heads full --max-new 8"),
    ("README.md", "--out this-machine.json", "--out this-machine.json --heads full --contexts 64 --batches 1 --rounds 2"),
    ("README.md", "advise --model my-model.gguf", "advise --heads full --limit 2 --max-new 8 --model my-model.gguf"),
    ("README.md", "my-model.gguf --prompts my-prompts.jsonl", "my-model.gguf --prompts my-prompts.jsonl --max-new 8"),
    ("USER_GUIDE.md", "gui server.dscope", "gui server.dscope --screenshot server.png --frames 2"),
    ("USER_GUIDE.md", "--limit 4 --model TARGET.gguf", "--limit 4 --screenshot watched.png --frames 2"),
    ("USER_GUIDE.md", "--model their-model.gguf", "--model my-model.gguf"),
    ("USER_GUIDE.md", "--save run.dscope", "--max-new 16 --save run.dscope"),
    ("USER_GUIDE.md", "--out texts.recording", "--max-new 8 --out texts.recording"),
    ("USER_GUIDE.md", "--out my.recording", "--max-new 16 --out my.recording"),
    ("USER_GUIDE.md", "--csv sweep.csv", "--max-new 8 --csv sweep.csv"),
    ("USER_GUIDE.md", "full,fr-spec:v=2048|4096|8192|16384,specvocab:k=256|512|1024|2048,", "full,fr-spec:v=4096|8192,"),
    ("USER_GUIDE.md", "slimspec:file=r36.safetensors|r72.safetensors|r144.safetensors,microspec:wmax=512|1024|3072", "microspec:wmax=1024|3072"),
    ("USER_GUIDE.md", "--save sizes.dscope", "--max-new 8 --save sizes.dscope"),
    ("USER_GUIDE.md", "--heads full,microspec", "--heads full --max-new 8"),
    ("USER_GUIDE.md", "--out machine.json", "--out machine.json --drafters eagle3:path/to/checkpoint --heads full,microspec --contexts 64 --batches 1 --rounds 2"),
    ("help", "slimspec.dscope --layout compare", "slimspec.dscope --layout compare --screenshot compare.png --frames 2"),
    ("help", "gui --model", "gui --screenshot own.png --frames 2 --model"),
    ("help", "gui --watch", "gui --screenshot watched.png --frames 2 --watch"),
    ("help", "--vocab 128256 --hidden 4096", "--vocab 4096 --hidden 256 --seconds 0.01"),
]
# Lines that are the set-up itself: .ci/run has run them before this test. llama-server is another project's program.
SET_UP = re.compile(r"^(\./run\b|python3 -m venv\b|export PATH=|llama-server\b)")
SERVER = "http://127.0.0.1:8080"
NEEDS_TORCH = re.compile(r"train_drafter\.py|record_decode\.py")


def prompts(*texts):
    return "".join(json.dumps({"id": i, "category": f"kind {i % 2}", "prompt": text}) + "\n" for i, text in enumerate(texts))


def make_checkout(folder, program):
    """The scratch folder: what the documents take for granted."""
    model = next((Path.home() / ".cache/draftscope/models").glob("SmolLM2-*.gguf"), None)
    if model is None:
        sys.exit("the demo model is not there; fetch it with tools/fetch_deps.sh model")
    (folder / "build/release").mkdir(parents=True)
    (folder / "build/release/draftscope").symlink_to(program)
    for name in ("tools", "tests"):
        (folder / name).symlink_to(SOURCE / name)
    (folder / "assets").mkdir()
    for entry in (SOURCE / "assets").iterdir():
        if entry.name != "prompts":
            (folder / "assets" / entry.name).symlink_to(entry)
    few = prompts("Name three rivers.", "What is 12 times 12?", "Write a haiku about rain.", "Count to ten.", "Why is the sky blue?", "Say hello.")
    (folder / "assets/prompts").mkdir()
    for entry in (SOURCE / "assets/prompts").iterdir():
        (folder / "assets/prompts" / entry.name).write_text(few)
    (folder / "my-prompts.jsonl").write_text(few)
    paragraph = "Summarize: " + "The lighthouse keeper wrote down the weather of day {} and the names of the ships that passed. " * 5
    (folder / "other.jsonl").write_text(prompts(*(paragraph.replace("{}", str(i)) for i in range(20))))
    (folder / "my-text.txt").write_text("The river runs to the sea, and the sea is wide.\n" * 200)
    ids = [{"token_ids": list(range(40, 52))}]
    (folder / "answer.json").write_text(json.dumps({"model": "m", "prompt_token_ids": list(range(20, 27)), "choices": ids, "usage": {"prompt_tokens": 7, "completion_tokens": 12}, "metrics": {"speculative_decoding": {
        "num_spec_tokens": 3, "per_step_accepted": [3, 2, 2, 0], "per_step_drafted": [3, 3, 3, 3]}}}))
    for name, drafts in (("before.txt", 10), ("after.txt", 14)):
        (folder / name).write_text("".join(f"vllm:spec_decode_num_{what}_total {drafts * each}\n" for what, each in (("drafts", 1), ("draft_tokens", 3), ("accepted_tokens", 2))))
    (folder / "model.gguf").symlink_to(model)
    for name in ("my-model.gguf", "my-small-model.gguf"):
        (folder / name).symlink_to(model)
    (folder / "path/to").mkdir(parents=True)
    (folder / "path/to/Qwen3-0.6B").symlink_to(SOURCE / "tests/golden/models/qwen3")
    (folder / "path/to/checkpoint").symlink_to(SOURCE / "assets/drafters/eagle3")


def blocks(document, language):
    return re.findall(rf"^```{language}\n(.*?)^```", document, flags=re.M | re.S)


def commands_of(block):
    """The lines of a block that are run; a line that ends in a backslash goes on."""
    joined = re.sub(r"\\\n\s*", "", block)
    return [line for line in joined.splitlines() if line.strip() and not line.startswith("#") and not SET_UP.match(line)]


def help_examples(program):
    """The examples of every subcommand's --help, in the order in which one makes the files of the next."""
    order = ["run", "record", "fit", "replay", "profile-machine", "bench", "stats", "check", "merge", "compare", "export", "gui", "doctor", "kernels"]
    listed = re.findall(r"^  ([\w-]+) {2,}", subprocess.run([program, "--help"], capture_output=True, text=True, check=True).stdout.split("Look:")[1], flags=re.M)
    order += [name for name in listed if name not in order]
    one = "draftscope run --prompt 'Name two.' --max-new 24 --quiet"
    yield f"{one} --head full --save full.dscope && {one} --head slimspec --save slimspec.dscope"
    two = "draftscope run --prompts my-prompts.jsonl --max-new 8 --quiet --save shard%i.dscope --shard"
    yield f"{two} 1/2 && {two} 2/2"
    for name in filter(listed.__contains__, order):
        text = subprocess.run([program, name, "--help"], capture_output=True, text=True, check=True).stdout
        example = re.search(r"^Example: (.*(?:\n {9}draftscope .*)*)", text, flags=re.M)
        if example is None:
            sys.exit(f"draftscope {name} --help: has no example")
        for line in example.group(1).splitlines():
            yield re.sub(r" {2,}\(.*\)$", "", line.strip())


def smaller(name, command):
    for document, written, run in SMALLER:
        if document == name:
            command = command.replace(written, run)
    return command.replace(SERVER, stand_in_server.start()) if SERVER in command else command


class Session:
    """Commands of one document, each in a shell of its own; what an assignment sets stays."""

    def __init__(self, folder, python):
        self.folder, self.failed = folder, 0
        self.environment = dict(os.environ, PATH=f"{folder}/build/release:{os.environ['PATH']}")
        self.assigned = ""
        if python:
            (folder / "venv/bin").mkdir(parents=True, exist_ok=True)
            starter = folder / "venv/bin/python"
            if not starter.exists():
                starter.write_text(f'#!/bin/sh\nexec {python} "$@"\n')
                starter.chmod(0o755)

    def run(self, command):
        if re.fullmatch(r"\w+=\S+", command.strip()):
            self.assigned += command + "\n"
            return
        start = time.monotonic()
        done = subprocess.run(["bash", "-c", self.assigned + command], cwd=self.folder, env=self.environment, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, errors="replace", timeout=900)
        print(f"{'ok  ' if done.returncode == 0 else 'FAIL'} {time.monotonic() - start:6.1f} s  {command}", flush=True)
        if done.returncode != 0:
            self.failed += 1
            print(f"exit code {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}", flush=True)

    def query(self, statement):
        done = subprocess.run(["sqlite3", "-readonly", "vowels.dscope"], input=statement, cwd=self.folder, capture_output=True, text=True)
        good = done.returncode == 0 and not done.stderr
        print(f"{'ok  ' if good else 'FAIL'} {done.stdout.count(chr(10)):4} rows  {statement.strip().splitlines()[-1][:100]}", flush=True)
        if not good:
            self.failed += 1
            print(done.stderr)


def statements(block):
    return [part + ";" for part in block.split(";") if part.strip()]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", type=Path, required=True)
    parser.add_argument("--python", default="")
    parser.add_argument("--one-core", action="store_true", help="leave the other cores to other tests")
    parser.add_argument("documents", nargs="+")
    args = parser.parse_args()
    if args.one_core:
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    folder = Path(tempfile.mkdtemp(prefix="ds_docs_"))
    skipped, count = 0, 0
    try:
        program = args.program.resolve()
        make_checkout(folder, program)
        session = Session(folder, args.python)
        for name in args.documents:
            text = "" if name == "help" else (SOURCE / name).read_text(encoding="utf-8")
            base = Path(name).name
            for document, written, _ in SMALLER:
                if document == base and base != "help" and written not in re.sub(r"\\\n\s*", "", text):
                    sys.exit(f"{name}: '{written}' is in this test's table, but not in the text")
            commands = list(help_examples(program)) if name == "help" else [c for b in blocks(text, "sh") for c in commands_of(b)]
            for command in commands:
                if NEEDS_TORCH.search(command) and not args.python:
                    skipped += 1
                    continue
                session.run(smaller(base, command))
                count += 1
            for block in blocks(text, "sql"):
                for statement in statements(block):
                    session.query(statement)
                    count += 1
        if session.failed:
            sys.exit(f"{session.failed} of {count} commands failed")
        print(f"{count} commands work as written; {skipped} need torch and were left out" if skipped else f"{count} commands work as written")
        sys.exit(SKIPPED if skipped and not count else 0)
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
