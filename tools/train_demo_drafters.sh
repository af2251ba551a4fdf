#!/usr/bin/env bash
# Trains the demo's drafters anew: prompts of every Spec-Bench kind, the target's answers to them, then each drafter.
# Everything is kept in one folder and what is there is not done again, so a stopped run goes on where it was.
#
# usage: tools/train_demo_drafters.sh TARGET OUT [DRAFTER ...]      (default: eagle3 eagle2 medusa hydra)
#   DEVICE=cpu|cuda   TOKENS=2500000 of the corpus   STEPS=1500 of BATCH=16000 tokens   PYTHON=python3
#   PASSAGES=FILE     prompt file whose longer texts are summarised and asked about; its prompts are mixed in, too
# The trained weights: OUT/DRAFTER, in the published layout. Then see docs/TRAINING.md, "The demo drafters".
set -euo pipefail
cd "$(dirname "$0")/.."
target=${1:?usage: tools/train_demo_drafters.sh TARGET OUT [DRAFTER ...]}
out=${2:?usage: tools/train_demo_drafters.sh TARGET OUT [DRAFTER ...]}
shift 2
drafters=("$@")
[ $# -gt 0 ] || drafters=(eagle3 eagle2 medusa hydra)
device=${DEVICE:-cpu} tokens=${TOKENS:-2500000} steps=${STEPS:-1500} batch=${BATCH:-16000}
train() { "${PYTHON:-python3}" -W ignore tools/train_drafter.py "$@"; }

mkdir -p "$out"
if [ ! -e "$out/prompts.jsonl" ]; then
    mixed=()
    [ -z "${PASSAGES:-}" ] || mixed=(--passages "$PASSAGES" --add "$PASSAGES:9000")
    train prompts "$out/prompts.tmp" --count 9000 --seed 1 "${mixed[@]}" \
        --exclude assets/prompts/spec_bench_half.jsonl --exclude assets/prompts/humaneval_half.jsonl
    mv "$out/prompts.tmp" "$out/prompts.jsonl"
fi
if [ ! -e "$out/traces.done" ]; then
    train generate --target "$target" --prompts "$out/prompts.jsonl" --out "$out/traces" --max-new 144 --tokens "$tokens" --device "$device"
    touch "$out/traces.done"
fi
for drafter in "${drafters[@]}"; do
    start=()
    [ ! -e "assets/drafters/$drafter" ] || start=(--start "assets/drafters/$drafter")
    train train --target "$target" --drafter "$drafter" --traces "$out/traces" --out "$out/run-$drafter" "${start[@]}" \
        --steps "$steps" --tokens "$batch" --rate 1e-3 --cooldown 0.5 --device "$device"
    train export --checkpoint "$out/run-$drafter" --out "$out/$drafter"
done
