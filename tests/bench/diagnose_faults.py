#!/usr/bin/env python3
"""Breaks the demo's drafters in the ways that stacks and converters do, and runs `draftscope diagnose` on each.

Every fault alone and every pair must come out as the reading that fits; no sound drafter may be accused.
One line each: seconds, the verdict, tau of the drafter as given and of the best reading. Exit code 1 if one is wrong.

usage: diagnose_faults.py --program BINARY [--python PYTHON] [--only faults|pairs|sound] [--limit N] [--name PART]
needs gguf, numpy and safetensors: tools/with_torch.sh tests/bench/diagnose_faults.py --program BINARY
"""
import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[2]
DRAFTERS = SOURCE / "assets/drafters"
PROMPTS = SOURCE / "assets/prompts"


class Checkpoint:
    """A drafter's folder, to be changed and written elsewhere."""

    def __init__(self, name, target):
        from safetensors.numpy import load_file
        self.name, self.target = name, target
        self.config = json.loads((DRAFTERS / name / "config.json").read_text())
        self.config.pop("training", None)
        self.tensors = load_file(DRAFTERS / name / "model.safetensors")

    def layers(self, ids):
        self.config["eagle_config"]["eagle_aux_hidden_state_layer_ids"] = ids

    def official(self):
        """As SafeAILab writes it, whose flags mean what they say."""
        self.config["architectures"] = ["LlamaForCausalLM"]

    def write(self, folder):
        from safetensors.numpy import save_file
        folder.mkdir(parents=True)
        (folder / "config.json").write_text(json.dumps(self.config))
        save_file({name: value.copy() for name, value in self.tensors.items()}, folder / "model.safetensors")


def shuffled(rows, seed=1):
    import numpy as np
    return np.random.default_rng(seed).permutation(rows).astype(np.float16)


def head_of_first(checkpoint, count):
    """An LM head for the first `count` tokens."""
    checkpoint.tensors["lm_head.weight"] = checkpoint.target[:count].astype("float16")
    checkpoint.config["draft_vocab_size"] = count


def tokens_as_offsets(checkpoint):
    import numpy as np
    head_of_first(checkpoint, 20000)
    checkpoint.tensors["d2t"] = np.arange(20000, dtype=np.int64)


# Fault: what is done to the checkpoint, and the reading that mends it. All of eagle3.
FAULTS = {
    "layers reversed": (lambda c: c.layers([27, 15, 2]), "layers=2/15/27"),
    "layers rotated": (lambda c: c.layers([27, 2, 15]), "layers=2/15/27"),
    "layers too early": (lambda c: c.layers([1, 14, 26]), "layers=2/15/27"),
    "layers too late": (lambda c: c.layers([3, 16, 28]), "layers=2/15/27"),
    "layers counted by outputs": (lambda c: c.config["eagle_config"].pop("aux_meaning"), "layers=2/15/27"),
    "recycles the normed state": (lambda c: (c.official(), c.config.update(norm_output=True)), "recycle=raw"),
    "residual after the norm": (lambda c: c.config.update(norm_before_residual=True), "residual=raw"),
    "wrong rotation": (lambda c: c.config.update(rope_theta=50.0), "rope=target"),
    "random embeddings": (lambda c: c.tensors.update({"embed_tokens.weight": shuffled(c.target)}), "embeddings=target"),
    "random LM head": (lambda c: c.tensors.update({"lm_head.weight": shuffled(c.target, 2)}), "head=target"),
    "d2t holds tokens": (tokens_as_offsets, "d2t=tokens"),
}
PAIRS = [
    ("layers too early", "recycles the normed state"), ("layers too late", "random embeddings"),
    ("layers reversed", "residual after the norm"), ("layers reversed", "random LM head"),
    ("layers rotated", "d2t holds tokens"), ("recycles the normed state", "random embeddings"),
    ("recycles the normed state", "d2t holds tokens"), ("residual after the norm", "random LM head"),
    ("residual after the norm", "random embeddings"), ("random embeddings", "random LM head"),
]


def target_rows(model):
    import gguf
    for tensor in gguf.GGUFReader(model).tensors:
        if tensor.name == "token_embd.weight":
            return gguf.quants.dequantize(tensor.data, tensor.tensor_type)
    sys.exit(f"{model}: has no embeddings")


class Clinic:
    def __init__(self, args, folder):
        self.args, self.folder, self.wrong, self.count = args, folder, 0, 0

    def run(self, *arguments):
        done = subprocess.run([self.args.program, *map(str, arguments)], capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"{' '.join(map(str, arguments))}: exit code {done.returncode}\n{done.stderr}")
        return done.stdout

    def record(self, prompts, name, *more):
        out = self.folder / name
        if not out.exists():
            self.run("record", "--prompts", PROMPTS / prompts, "--limit", 24, "--balanced", "--max-new", 32, "--out", out,
                     "--no-times", "--quiet", "--aux", "1,2,3,14,15,16,26,27,28,30", *more)
        return out

    def diagnose(self, name, drafter, expected, recording, *more):
        if self.args.name not in name:
            return
        start = time.monotonic()
        found = json.loads(self.run("diagnose", "--drafter", drafter, "--recording", recording, "--json", "--quiet", *more))
        seconds = time.monotonic() - start
        fits = found["fits"]
        reading = "-" if fits is None else ", ".join(
            sorted(f"{one['option']}={one['value']}" for one in found["readings"][fits]["changes"]))
        good = reading == expected
        self.wrong += not good
        self.count += 1
        best = found["readings"][fits or 0]["tau"]["value"]
        print(f"{'ok  ' if good else 'FAIL'} {seconds:5.1f} s  {name}: {reading}"
              f"{'' if good else f', not {expected}'}; tau {found['readings'][found['given']]['tau']['value']:.2f}, best {best:.2f}",
              flush=True)
        if not good:
            print("          " + found["verdict"])

    def broken(self, target):
        recording = self.record("spec_bench_half.jsonl", "sb")
        groups = [(name,) for name in FAULTS] if self.args.only != "pairs" else []
        groups += PAIRS if self.args.only != "faults" else []
        for faults in groups:
            checkpoint = Checkpoint("eagle3", target)
            for fault in faults:
                FAULTS[fault][0](checkpoint)
            folder = self.folder / "_".join(faults).replace(" ", "-")
            if self.args.name in " and ".join(faults):
                checkpoint.write(folder)
                self.diagnose(" and ".join(faults), f"eagle3:{folder}", ", ".join(sorted(FAULTS[f][1] for f in faults)), recording)
                shutil.rmtree(folder)
        if self.args.only != "pairs":
            checkpoint = Checkpoint("eagle2", target)
            checkpoint.tensors["embed_tokens.weight"] = shuffled(target)
            checkpoint.write(self.folder / "eagle2")
            self.diagnose("eagle2, random embeddings", f"eagle2:{self.folder}/eagle2", "embeddings=target", recording)

    def sound(self, target):
        recordings = {"SB": self.record("spec_bench_half.jsonl", "sb"), "HE": self.record("humaneval_half.jsonl", "he"),
                      "T = 1": self.record("spec_bench_half.jsonl", "sampled", "--temperature", 1)}
        for text, recording in recordings.items():
            for drafter in ("eagle3", "eagle2", "medusa", "hydra"):
                self.diagnose(f"{drafter} on {text}", drafter, "-", recording)
        sb = recordings["SB"]
        for layout in ("sglang", "vllm", "draftscope"):
            out = self.folder / layout
            self.run("inspect", DRAFTERS / "eagle3", "--target", self.args.model, "--fix", out, "--layout", layout)
            self.diagnose(f"eagle3 in the layout of {layout}", f"eagle3:{out}", "-", sb)
        for precision in ("f32", "bf16"):
            self.diagnose(f"eagle3 at {precision}", "eagle3", "-", sb, "--precision", precision)
        own = Checkpoint("eagle3", target)
        own.tensors.update({"embed_tokens.weight": target.astype("float16"), "lm_head.weight": target.astype("float16")})
        own.write(self.folder / "own")
        self.diagnose("eagle3 with copies of the target's tables", f"eagle3:{self.folder}/own", "-", sb)
        trimmed = Checkpoint("eagle3", target)
        head_of_first(trimmed, 20000)
        trimmed.tensors["d2t"] = trimmed.target[:20000, 0].astype("int64") * 0
        trimmed.write(self.folder / "trimmed")
        self.diagnose("eagle3 with a trimmed head", f"eagle3:{self.folder}/trimmed", "-", sb)
        self.diagnose("the target as its own draft model", f"draft-model:{self.args.model}", "-", sb)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", type=Path, required=True)
    parser.add_argument("--python", default="")
    parser.add_argument("--only", default="")
    parser.add_argument("--name", default="", help="only cases whose name contains this")
    args = parser.parse_args()
    if args.python and Path(args.python) != Path(sys.executable):
        os.execv(args.python, [args.python, __file__, *(a for a in sys.argv[1:] if a not in ("--python", args.python))])
    args.program = args.program.resolve()
    args.model = next((Path.home() / ".cache/draftscope/models").glob("SmolLM2-*.gguf"), None)
    if args.model is None:
        sys.exit("the demo model is not there; fetch it with tools/fetch_deps.sh model")
    folder = Path(tempfile.mkdtemp(prefix="ds_diagnose_"))
    try:
        clinic, target = Clinic(args, folder), target_rows(args.model)
        if args.only != "sound":
            clinic.broken(target)
        if args.only in ("", "sound"):
            clinic.sound(target)
        print(f"{clinic.count - clinic.wrong} of {clinic.count} as expected")
        sys.exit(clinic.wrong > 0)
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
