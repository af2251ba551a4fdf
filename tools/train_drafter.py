#!/usr/bin/env python3
"""Trains drafters by distillation from a target's own texts: EAGLE-2, EAGLE-3, Medusa, Hydra. And heads, for draftscope fit.

usage: tools/train_drafter.py prompts  OUT.jsonl --count N --seed S [--passages FILE] [--exclude FILE ...]
       tools/train_drafter.py magpie   OUT.jsonl --target T --count N --seed S [--exclude FILE ...]
       tools/train_drafter.py generate --target T --prompts FILE... --out DIR [--max-new N] [--temperature X]
       tools/train_drafter.py features --target T --corpus FILE... --out DIR
       tools/train_drafter.py train    --target T --drafter NAME --traces DIR... --out DIR [--steps N] [--start DIR]
       tools/train_drafter.py export   --checkpoint DIR --out DIR
       tools/train_drafter.py check
       tools/train_drafter.py fit      --folder DIR [--device cpu|cuda] [--threads N]      (called by draftscope fit)

A target is a GGUF file or a Hugging Face folder. `prompts` fills templates, and `magpie` lets the target write prompts.
`generate` lets it answer prompts in lockstep and writes trace folders (docs/FORMATS.md) with its features;
`features` makes the same from texts it has written before (token ids); a trace recorded by `draftscope record` serves as well.
`train` goes on where it was killed; `check` trains a tiny random target's
drafters for some steps and compares a resumed run with an uninterrupted one. docs/TRAINING.md has the recipe.

Needs torch, safetensors and tokenizers; gguf for GGUF targets, jinja2 for chat templates."""
import argparse
import os
import pathlib
import sys

# Large blocks come and go every step: keep them mapped. Threads that wait leave the core to others. Both take effect at the
# start of a process only.
KEEP = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(8 << 30), "MALLOC_TOP_PAD_": str(256 << 20), "OMP_WAIT_POLICY": "PASSIVE",
        "PYTHONUNBUFFERED": "1"}


def pair(text):
    number, count = map(int, text.split("/"))
    if not 0 <= number < count:
        raise argparse.ArgumentTypeError("worker is I/N with 0 <= I < N")
    return number, count


def parser():
    top = argparse.ArgumentParser(description=__doc__.splitlines()[0], epilog=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = top.add_subparsers(dest="verb", required=True)
    prompts = verbs.add_parser("prompts", help="make training prompts of every Spec-Bench kind from templates")
    prompts.add_argument("out", type=pathlib.Path)
    prompts.add_argument("--count", type=int, default=6000)
    prompts.add_argument("--seed", type=int, default=1)
    prompts.add_argument("--passages", type=pathlib.Path, help="prompt file whose longer paragraphs serve as texts to summarise or ask about")
    prompts.add_argument("--add", type=pathlib.Path, action="append", default=[], help="prompt file to mix in, as FILE or FILE:N for N of it")
    prompts.add_argument("--exclude", type=pathlib.Path, action="append", default=[], help="evaluation prompts, never to be trained on")
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--target", required=True, help="GGUF file or Hugging Face folder")
    common.add_argument("--device", default="cpu")
    common.add_argument("--dtype", default="bf16", choices=("bf16", "f32"))
    common.add_argument("--threads", type=int, default=0)
    magpie = verbs.add_parser("magpie", parents=[common], help="let the target write prompts, as the user in its chat template")
    magpie.add_argument("out", type=pathlib.Path)
    magpie.add_argument("--count", type=int, default=6000)
    magpie.add_argument("--seed", type=int, default=1)
    magpie.add_argument("--temperature", type=float, default=1.0)
    magpie.add_argument("--exclude", type=pathlib.Path, action="append", default=[], help="evaluation prompts, never to be trained on")
    generate = verbs.add_parser("generate", parents=[common], help="let the target answer prompts")
    generate.add_argument("--prompts", type=pathlib.Path, nargs="+", required=True)
    generate.add_argument("--out", type=pathlib.Path, required=True)
    generate.add_argument("--max-new", type=int, default=128, help="tokens of each response")
    generate.add_argument("--temperature", type=float, default=0.0)
    generate.add_argument("--seed", type=int, default=1)
    generate.add_argument("--tokens", type=int, help="stop after so many new response tokens")
    generate.add_argument("--worker", type=pair, default=(0, 1), help="I/N: this process takes every N-th batch")
    features = verbs.add_parser("features", parents=[common], help="features of texts the target has written")
    features.add_argument("--corpus", type=pathlib.Path, nargs="+", required=True, help="JSON lines with `prompt` and `response` token ids, .gz or not")
    features.add_argument("--out", type=pathlib.Path, required=True)
    features.add_argument("--worker", type=pair, default=(0, 1), help="I/N: this process makes every N-th folder")
    features.add_argument("--temperature", type=float, help="only texts sampled at this temperature")
    features.add_argument("--least", type=int, default=1, help="only responses of at least so many tokens")
    train = verbs.add_parser("train", parents=[common], help="train, or go on training")
    train.add_argument("--drafter", required=True, choices=("eagle2", "eagle3", "medusa", "hydra"))
    train.add_argument("--traces", type=pathlib.Path, nargs="+", required=True, help="trace folders, or folders of them; read anew each epoch")
    train.add_argument("--out", type=pathlib.Path, required=True)
    train.add_argument("--start", type=pathlib.Path, help="folder of a drafter to start from instead of the target's last layer")
    train.add_argument("--depth", type=int, help="draft steps trained (default 4 for the eagles, 3 heads for medusa and hydra)")
    train.add_argument("--steps", type=int, required=True, help="optimizer steps in all; may be changed when resuming")
    train.add_argument("--tokens", type=int, default=2000, help="response tokens of a step")
    train.add_argument("--optimizer", default="muon", choices=("muon", "adamw"), help="muon: orthogonalised steps for matrices, AdamW for the rest")
    train.add_argument("--rate", type=float, default=1e-3)
    train.add_argument("--cooldown", type=float, default=0.4, help="share of the steps over which the rate falls linearly")
    train.add_argument("--decay", type=float, default=0.8, help="weight of a draft step against the one before")
    train.add_argument("--negatives", type=int, default=6000, help="vocabulary sampled per step beside the target's choices; 0 = all of it")
    train.add_argument("--draft-vocab", type=int, default=0, help="eagle3: own head over the most frequent tokens, with d2t; 0 = the target's head")
    train.add_argument("--eos", default="no", choices=("no", "yes"), help="yes: the own head always has the tokens that end a response")
    train.add_argument("--seed", type=int, default=1)
    train.add_argument("--save-every", type=int, default=50)
    export = verbs.add_parser("export", help="write a checkpoint's drafter as a published-format folder")
    export.add_argument("--checkpoint", type=pathlib.Path, required=True)
    export.add_argument("--out", type=pathlib.Path, required=True)
    verbs.add_parser("check", help="self-check on a tiny random target")
    fit = verbs.add_parser("fit", help="train a head or router; draftscope fit calls this")
    fit.add_argument("--check", action="store_true", help="only check that the packages are there")
    fit.add_argument("--folder", help="folder of data.safetensors, which gets result.safetensors")
    fit.add_argument("--device", default="auto")
    fit.add_argument("--threads", type=int, default=0)
    return top


def main():
    args = parser().parse_args()
    sys.path.insert(0, str(pathlib.Path(__file__).parent))
    if args.verb == "fit" and args.check:
        from drafter_training import needs

        try:
            return needs.check(needs.FIT)
        except SystemExit as missing:
            print(f"error {missing}")
            raise SystemExit(2) from None
    if os.name == "posix" and not all(k in os.environ for k in KEEP):
        os.execve(sys.executable, [sys.executable, *sys.argv], {**KEEP, **os.environ})
    from drafter_training import commands

    getattr(commands, args.verb)(args)


if __name__ == "__main__":
    main()
