#!/usr/bin/env python3
"""Fits every trained head of the demo model on a small recording, as a user does, and loads what comes out.

usage: fit_test.py --program BINARY [--python PYTHON_WITH_TORCH]
Without --python nothing can be trained: the test is skipped (exit code 77)."""
import argparse
import json
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

SKIPPED = 77
OTHERS = ["Name a large city.", "What is snow?", "Write one line about tea."]
PROMPTS = ["Name three rivers.", "What is 12 times 12?", "Write a haiku about rain.", "Who wrote Hamlet?", "Explain gravity to a child.", "List four colours."]
# head, options, the loss in the report
HEADS = [("slimspec", ["--rank", "24", "--per-level", "--int8", "--epochs", "2"], "loss"), ("specvocab", ["--rank", "16"], "loss"),
         ("slimspec", ["--rank", "24", "--teacher", "drafter"], "loss"), ("slimspec", ["--rank", "24", "--negatives", "2000"], "loss"),
         ("vocabtrim-t", ["-v", "1024", "--epochs", "1", "--negatives", "100"], "loss"), ("bcl", ["--epochs", "1", "--rate", "1e-4"], "loss"), ("dynaspec", ["--clusters", "16"], "bce"),
         ("coral", ["--groups", "8"], "bce")]
JOINT = [("slimspec", "eagle2", ["--rank", "24", "--joint-batch", "2", "--joint-warmup", "1"]), ("specvocab", "eagle3", ["--rank", "16", "--lambda", "0.5"]), ("vocabtrim-t", "eagle3", ["-v", "1024"])]


class Session:
    def __init__(self, program, python, folder):
        self.program, self.python, self.folder = program, python, folder

    def words(self, head, out, drafter="eagle3", more=()):
        return [self.program, "fit", head, "--recording", self.folder / "recording", "--drafter", drafter, "--rounds", "60", "--python", self.python,
                "--device", "cpu", "--json", "--out", self.folder / out, *more]

    def run(self, *words, code=0):
        start = time.monotonic()
        done = subprocess.run(list(map(str, words)), capture_output=True, text=True)
        print(f"{time.monotonic() - start:6.1f} s  {' '.join(map(str, words[1:3]))} {' '.join(map(str, words[14:]))}", flush=True)
        assert done.returncode == code, f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done

    def fit(self, head, out, **more):
        report = json.loads(self.run(*self.words(head, out, **more)).stdout)
        assert not (self.folder / f"{out}.training").exists()
        return report

    def replay(self, head, drafter, out):
        done = self.run(self.program, "replay", "--recording", self.folder / "recording", "--drafter", drafter, "--heads", head, "--head-weights",
                        f"{head}={self.folder / out}", "--json", "--quiet")
        return json.loads(done.stdout)


def interrupted(session):
    """Ctrl-C leaves a checkpoint and no file; the same command goes on from it and gives the same bytes."""
    more = ["--rank", "16", "--epochs", "3", "--rate", "1e-3", "--teacher", "drafter", "--negatives", "500"]
    session.fit("specvocab", "whole.safetensors", more=more)
    out, training = session.folder / "cut.safetensors", session.folder / "cut.safetensors.training"
    started = subprocess.Popen(list(map(str, session.words("specvocab", out.name, more=more))), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while not (training / "state.pt").exists():
        assert started.poll() is None, "the fit ended before its first checkpoint was seen"
        time.sleep(0.01)
    started.send_signal(signal.SIGINT)
    assert started.wait(60) != 0
    assert not out.exists() and [f.name for f in training.iterdir()] == ["state.pt"], list(training.iterdir())
    session.fit("specvocab", out.name, more=more)
    assert out.read_bytes() == (session.folder / "whole.safetensors").read_bytes(), "the resumed fit gave another file"


def goes_on(session):
    """--start goes on from a head's weights, on other text too, and lists the prompts of both; weights of another head or drafter are refused."""
    training = ["--teacher", "drafter", "--negatives", "500", "--epochs", "1"]
    first = session.fit("slimspec", "first.safetensors", more=["--rank", "24", "--per-level", *training])
    start = ["--start", session.folder / "first.safetensors"]
    again = session.fit("slimspec", "again.safetensors", more=[*start, "--epochs", "0"])
    assert again["parameters"] == first["parameters"] and abs(again["held_out"]["kl"] / first["held_out"]["kl"] - 1) < 1e-4, (first, again)
    session.run(session.program, "record", "--prompts", session.folder / "others.jsonl", "--max-new", "24", "--no-times", "--quiet", "--out", session.folder / "others")
    both = session.fit("slimspec", "both.safetensors", more=[*start, *training, "--recording", session.folder / "others"])
    assert both["fit"]["texts"] == len(PROMPTS) + len(OTHERS) and both["fit"]["kl_start"] > 0 and "kl_closed_form" not in both["fit"], both["fit"]
    listed = lambda name: prompts_of(session.folder / name)
    assert set(listed("both.safetensors")) > set(listed("first.safetensors")) == set(listed("again.safetensors"))
    for head, more, problem in (("specvocab", start, "weights of head slimspec"), ("vocabtrim-t", start, "--start has no effect"), ("slimspec", [*start, "--rank", "24"], "--rank")):
        error = session.run(*session.words(head, "never.safetensors", more=[*more, "--quiet"]), code=2).stderr
        assert problem in error, error
    error = session.run(*session.words("slimspec", "never.safetensors", drafter="eagle2", more=[*start, "--quiet"]), code=2).stderr
    assert "first.safetensors: head slimspec was fitted for drafter eagle3" in error, error


def prompts_of(path):
    with open(path, "rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
    return json.loads(header["__metadata__"]["prompts"])


def ends(session):
    """The tokens that end a text are drafted like any other, unless --eos yes keeps them; the file says which."""
    for eos in ("no", "yes"):
        more = ["--eos", eos, "-v", "48", "--epochs", "1", "--negatives", "10"]  # fewer than the teacher's best tokens
        assert session.fit("vocabtrim-t", f"eos-{eos}.safetensors", more=more)["parameters"]["eos"] == eos
    words = [session.program, "replay", "--recording", session.folder / "recording", "--drafter", "eagle3", "--heads", "vocabtrim-t:eos=yes",
             "--head-weights"]
    session.run(*words, f"vocabtrim-t={session.folder}/eos-yes.safetensors", "--quiet")
    error = session.run(*words, f"vocabtrim-t={session.folder}/eos-no.safetensors", "--quiet", code=2).stderr
    assert "eos=no, not eos=yes" in error, error


def refusals(session):
    """One line and exit code 2 for a Python without torch, and for a GPU that is not there."""
    words = session.words("coral", "never.safetensors", more=["--quiet"])
    words[words.index("--device") + 1] = "cuda"
    if subprocess.run([session.python, "-c", "import sys, torch; sys.exit(torch.cuda.is_available())"]).returncode == 0:
        error = session.run(*words, code=2).stderr.strip()
        assert "--device cuda" in error and "no GPU" in error and error.count("\n") == 0, error
    bare = session.folder / "bare"
    bare.write_text(f'#!/bin/sh\nexec {session.python} -S "$@"\n')  # without site packages
    bare.chmod(0o755)
    words = session.words("dynaspec", "never.safetensors")
    words[words.index("--python") + 1] = bare
    error = session.run(*words, code=2).stderr.strip()
    assert "no torch" in error and "with_torch.sh" in error and error.count("\n") == 0, error
    assert not (session.folder / "never.safetensors").exists()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", type=Path, required=True)
    parser.add_argument("--python", default="")
    args = parser.parse_args()
    if not args.python:
        print("skipped: no Python with torch (tools/with_torch.sh runs this test with one)")
        raise SystemExit(SKIPPED)
    folder = Path(tempfile.mkdtemp(prefix="ds_fit_"))
    session = Session(args.program.resolve(), args.python, folder)
    try:
        for name, prompts in (("prompts", PROMPTS), ("others", OTHERS)):
            (folder / f"{name}.jsonl").write_text("".join(json.dumps({"id": i, "prompt": p}) + "\n" for i, p in enumerate(prompts)))
        session.run(session.program, "record", "--prompts", folder / "prompts.jsonl", "--max-new", "24", "--no-times", "--quiet", "--out", folder / "recording")
        for head, more, loss in HEADS:
            out = f"{head}.safetensors"
            report = session.fit(head, out, more=[*more, "--overwrite"])
            notes = report["fit"]
            by_epoch = [value for name, value in notes.items() if name.startswith(loss + "_after_epoch_")]
            assert notes[loss + "_after"] == min(by_epoch) < notes[loss + "_before"], (head, notes)
            assert notes[loss + "_after_of_trained"] > 0, (head, notes)
            assert session.replay(head, "eagle3", out), head
        notes = session.fit("slimspec", "diverged.safetensors", more=["--rank", "24", "--rate", "1e30", "--epochs", "1"])["fit"]
        assert notes["best_epoch"] == 0 and notes["loss_after"] == notes["loss_before"], notes
        for head, drafter, more in JOINT:
            out = f"{head}-{drafter}.safetensors"
            report = session.fit(head, out, drafter=drafter, more=["--joint", "--joint-epochs", "2", "--joint-rate", "3e-4", *more])
            assert report["trained"] == "joint" and report["fit"]["loss_after"] < report["fit"]["loss_before"], report["fit"]
            assert (folder / f"{head}-{drafter}.drafter" / "model.safetensors").exists()
            assert session.replay(head, f"{drafter}:{folder}/{head}-{drafter}.drafter", out), head
        goes_on(session)
        ends(session)
        interrupted(session)
        refusals(session)
        print("every trained head fits, loads and resumes")
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
