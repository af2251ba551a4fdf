#!/usr/bin/env bash
# Fits head artefacts of the demo model's drafters on the target's answers to prompts that no evaluation uses. Run it again
# whenever a drafter changes: an artefact names the drafter weights it was made for, and other weights refuse it. Those of
# eagle2 and eagle3 are in the repository; those of medusa and hydra are found where this script puts them.
#   tools/make_head_artefacts.sh [drafter ...]      (default: eagle2 eagle3)
# Environment:
#   TRACES   recorded traces, separated by blanks, patterns allowed: more and more varied text makes better heads. tools/train_demo_drafters.sh
#            leaves some in OUT/traces/NNNN. Default: the answers to PROMPTS are recorded first (some three minutes).
#   PROMPTS, MAX_NEW      of that trace; TRACE=FOLDER keeps it, and uses it when it is there
#   ROUNDS   drafted over the traces for slimspec, which gets most of the time; the others take a share of it
#   HEADS    which artefacts, default all; THREADS, BINARY, OUT
set -euo pipefail
cd "$(dirname "$0")/.."

binary=${BINARY:-build/release/draftscope}
out=${OUT:-assets/heads}
threads=${THREADS:-0}
rounds=${ROUNDS:-60000}
wanted=${HEADS:-slimspec specvocab vocabtrim-t rdk coral dynaspec}
[ $# -gt 0 ] || set -- eagle2 eagle3

[ -x "$binary" ] || { echo "make_head_artefacts: $binary is not there; ./run build makes it" >&2; exit 1; }
if [ -z "${TRACES:-}" ]; then
    trace=${TRACE:-}
    if [ -z "$trace" ]; then
        work=$(mktemp -d)
        trap 'rm -rf "$work"' EXIT
        trace=$work/trace
    fi
    if [ ! -f "$trace/trace.json" ]; then
        "$binary" record --prompts "${PROMPTS:-assets/prompts/fit_prompts.jsonl}" --max-new "${MAX_NEW:-160}" \
            --no-times --threads "$threads" --out "$trace"
    fi
    TRACES=$trace
fi
from=()
for folder in $TRACES; do
    if [ -f "$folder/trace.json" ]; then from+=(--recording "$folder"); fi
done
[ ${#from[@]} -gt 0 ] || { echo "make_head_artefacts: no traces in TRACES=$TRACES" >&2; exit 1; }

fit() { # head, drafter, options ...
    local head=$1 drafter=$2
    shift 2
    case " $wanted " in *" $head "*) ;; *) return 0 ;; esac
    local file=$out/$drafter/$head.safetensors
    [ "$head" != rdk ] || file=$out/rdk.safetensors  # of the target's rows: the same for all these drafters
    mkdir -p "$(dirname "$file")"
    "$binary" fit "$head" "${from[@]}" --drafter "$drafter" --precision int8 --threads "$threads" \
        --out "$file" --overwrite "$@"
    echo
}

# On the text the target itself teaches, and accepted drafts are text: trees are drafted for the report and for a tenth
# of the rows. SlimSpec's factors are the whole head; SpecVocab's only choose candidates; routers learn from trees alone.
# A down-projection for every level costs no time; levels weigh about as often as drafting gets there.
text=(--drafted-every 10 --drafted-share 0.1 --batch 256 --int8)
routed=(--rounds $((rounds / 8)) --drafted-every 1)
fit rdk "$1" --neighbours 4
for drafter in "$@"; do
    case "$drafter" in
        # Medusa's and Hydra's levels are heads of their own: a down-projection for each.
        medusa | hydra)
            fit slimspec "$drafter" --rounds $((rounds / 2)) "${text[@]}" --epochs 3 --rate 1.5e-3 --per-level --rank 36
            fit specvocab "$drafter" --rounds $((rounds / 4)) "${text[@]}" --epochs 2 --per-level --rank 36
            ;;
        *)
            fit slimspec "$drafter" --rounds "$rounds" "${text[@]}" --epochs 6 --rate 8e-4 --rank 72 --per-level \
                --level-decay 0.6 --teacher drafter --negatives 6000
            fit specvocab "$drafter" --rounds $((rounds / 4)) "${text[@]}" --epochs 2 --rank 36
            ;;
    esac
    fit vocabtrim-t "$drafter" --rounds $((rounds / 2)) "${text[@]}" --epochs 3 --rate 5e-5 -v 4096
    fit coral "$drafter" "${routed[@]}"
    fit dynaspec "$drafter" "${routed[@]}"
done
du -ch "$out"/*.safetensors "$out"/*/*.safetensors | tail -1
