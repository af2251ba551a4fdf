#!/usr/bin/env bash
# Fits the head artefacts that ship with the demo model: records the target's answers to prompts that no evaluation
# uses, then fits each head on each demo drafter's hiddens over that trace. Run it again whenever a drafter changes:
# an artefact names the drafter weights it was made for, and other weights refuse it.
#   tools/make_head_artefacts.sh [drafter ...]      (default: eagle2 eagle3 medusa hydra)
# One drafter takes some seven minutes of one core, the trace two more.
# Environment: PROMPTS (JSONL), MAX_NEW, ROUNDS, THREADS, BINARY, OUT, TRACE (kept and reused when it is there).
set -euo pipefail
cd "$(dirname "$0")/.."

prompts=${PROMPTS:-assets/prompts/fit_prompts.jsonl}
max_new=${MAX_NEW:-64}
rounds=${ROUNDS:-5000}
binary=${BINARY:-build/release/draftscope}
out=${OUT:-assets/heads}
trace=${TRACE:-}
threads=${THREADS:-0}
[ $# -gt 0 ] || set -- eagle2 eagle3 medusa hydra

[ -x "$binary" ] || { echo "make_head_artefacts: $binary is not there; ./run build makes it" >&2; exit 1; }
if [ -z "$trace" ]; then
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    trace=$work/trace
fi
if [ ! -f "$trace/trace.json" ]; then
    "$binary" trace --prompts "$prompts" --max-new "$max_new" --no-times --threads "$threads" --out "$trace"
fi

fit() { # head, drafter, options ...
    local head=$1 drafter=$2
    shift 2
    mkdir -p "$out/$drafter"
    "$binary" fit "$head" --trace "$trace" --drafter "$drafter" --threads "$threads" \
        --out "$out/$drafter/$head.safetensors" --overwrite "$@"
    echo
}

# SlimSpec's factors are the whole head, so they get most of the time: all drafted rows, more often.
whole_head=(--epochs 6 --drafted-share 3 --rate 2e-3 --batch 128 --int8)
for drafter in "$@"; do
    case "$drafter" in
        # Medusa's and Hydra's levels are heads of their own: a down-projection for each.
        medusa | hydra)
            fit slimspec "$drafter" --rounds "$rounds" --per-level --rank 36 "${whole_head[@]}"
            fit specvocab "$drafter" --rounds "$rounds" --per-level --rank 36 --batch 128 --int8
            ;;
        *)
            fit slimspec "$drafter" --rounds "$rounds" --rank 72 "${whole_head[@]}"
            fit specvocab "$drafter" --rounds "$rounds" --rank 36 --batch 128 --int8
            fit vocabtrim-t "$drafter" --rounds "$rounds" -v 4096 --int8
            fit rdk "$drafter" --neighbours 4
            ;;
    esac
    fit coral "$drafter" --rounds "$rounds"
    fit dynaspec "$drafter" --rounds "$rounds"
done
du -ch "$out"/*/*.safetensors | tail -1
