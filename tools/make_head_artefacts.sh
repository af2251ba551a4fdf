#!/usr/bin/env bash
# Fits the head weights of the demo model's drafters on the target's answers to prompts that no evaluation uses. Run it again
# whenever a drafter changes: weights name the drafter they were made for, and other drafters refuse them. The repository holds
# those of eagle3 alone. Those of eagle2, medusa and hydra are found where this script puts them, which git ignores.
#   tools/make_head_artefacts.sh DRAFTER ...        eagle2, medusa, hydra; eagle3 writes over the files in the repository
# Time, for eagle2: processor seconds of one thread, on a busy Xeon with AMX, were 25 for a recording of 60 of the 368 prompts (7,277
# tokens) and, with ROUNDS=8000, 156 for slimspec, 49 for specvocab, 22 for vocabtrim-t, 13 for coral and 15 for dynaspec
# (2026-11-28). All prompts with the default ROUNDS are six times as much: half an hour of one core, which was not tried whole.
# Environment:
#   TRACES   recordings, separated by blanks, patterns allowed: more and more varied text makes better heads. tools/train_demo_drafters.sh
#            leaves some in OUT/traces/NNNN. Default: the answers to PROMPTS are recorded first.
#   PROMPTS, MAX_NEW      of that recording; TRACE=FOLDER keeps it, and uses it when it is there
#   ROUNDS   drafted over the recordings for slimspec, which gets most of the time; the others take a share of it
#   HEADS    which heads, default all five. rdk (one file for all drafters, in the repository) is made only if named here
#   THREADS, BINARY, OUT (a folder other than assets/heads for a trial)
set -euo pipefail
cd "$(dirname "$0")/.."

binary=${BINARY:-build/release/draftscope}
out=${OUT:-assets/heads}
threads=${THREADS:-0}
rounds=${ROUNDS:-60000}
wanted=${HEADS:-slimspec specvocab vocabtrim-t coral dynaspec}
[ $# -gt 0 ] || { echo "make_head_artefacts: name the drafters: eagle2, medusa, hydra, or eagle3, whose files are in the repository" >&2; exit 2; }

[ -x "$binary" ] || { echo "make_head_artefacts: $binary is not there; ./run build makes it" >&2; exit 2; }
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
[ ${#from[@]} -gt 0 ] || { echo "make_head_artefacts: no recordings in TRACES=$TRACES" >&2; exit 2; }

made=()
fit() { # head, drafter, options ...
    local head=$1 drafter=$2
    shift 2
    case " $wanted " in *" $head "*) ;; *) return 0 ;; esac
    local file=$out/$drafter/$head.safetensors
    [ "$head" != rdk ] || file=$out/rdk.safetensors  # of the target's rows: the same for all these drafters
    mkdir -p "$(dirname "$file")"
    made+=("$file")
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
[ ${#made[@]} -gt 0 ] || { echo "make_head_artefacts: HEADS=$wanted names no head" >&2; exit 2; }
du -ch "${made[@]}"
