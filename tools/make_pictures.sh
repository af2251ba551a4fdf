#!/usr/bin/env bash
# Makes the pictures of the documents from runs of the demo on this machine: the window, a draft tree, the phases of a
# round, and a sweep. Run it on an idle machine after a change of the window or its plots; it takes about five minutes.
# usage: tools/make_pictures.sh [FOLDER]     default: docs. Needs a built program and pngquant, which it installs.
set -euo pipefail
cd "$(dirname "$0")/.."
out="${1:-docs}"
program="$PWD/build/release/draftscope"
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
if ! command -v pngquant >/dev/null; then
    sudo=""; [ "$(id -u)" -eq 0 ] || sudo=sudo
    $sudo apt-get install -y -qq --no-install-recommends pngquant >/dev/null
fi
keep() { pngquant --force --speed 1 --strip --output "$out/$(basename "$1")" 64 "$1"; }

"$program" gui --screenshot "$work/screenshot.png" --frames 5 --theme dark --layout explain
"$program" run --prompt "Write a Python function that counts the vowels in a string." --tree depth=3,topk=4,nodes=12 --head fr-spec --quiet --save "$work/demo.dscope"
for plot in tree breakdown; do
    "$program" export "$work/demo.dscope" --format png --plots "$plot" --width 1100 --height 520 --out "$work/$plot.png"
done
"$program" record --prompts assets/prompts/spec_bench_half.jsonl --limit 12 --balanced --max-new 64 --quiet --out "$work/recording"
"$program" profile-machine --drafters eagle3 --heads full,fr-spec,microspec --quiet --out "$work/machine.json"
"$program" sweep --recording "$work/recording" --profile "$work/machine.json" --heads "full,fr-spec:v=2048|4096|8192|16384,microspec:wmax=512|1024|3072" \
    --chain 6 --topk 2,4 --depth 3 --nodes 4,8,12,16 --quiet --save "$work/sweep.dscope" >/dev/null
"$program" export "$work/sweep.dscope" --format png --plots sweep --width 1400 --height 1180 --out "$work/sweep.png"
for picture in screenshot tree breakdown sweep; do keep "$work/$picture.png"; done
ls -l "$out"/*.png
