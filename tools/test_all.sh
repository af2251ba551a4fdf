#!/usr/bin/env bash
# Every test there is, one group after the other, for hours: ./run test --all [GROUP...]
#   suite sass product kills apart cluster docs training models writers asan tsan fuzz bare package
# DRAFTSCOPE_MODELS: folder of the two models of `tools/fetch_deps.sh qwen-coder`; default: the cache folder.
# DRAFTSCOPE_WRITERS: a Python with the packages that tests/models/writers.py names.
# A group that cannot run here says why and counts as skipped. Exit code 1 if a group failed.
# FUZZ_SECONDS (600) is the time of each fuzz program. Logs: build/all/GROUP.log.
set -uo pipefail
cd "$(dirname "$0")/.."
logs=build/all
mkdir -p "$logs"
wanted=("$@")
passed=() failed=() skipped=()

wants() { [ ${#wanted[@]} -eq 0 ] || [[ " ${wanted[*]} " == *" $1 "* ]]; }

group() { # NAME FUNCTION
    wants "$1" || return 0
    printf '%-8s ' "$1"
    local start=$SECONDS
    "$2" >"$logs/$1.log" 2>&1
    local result=$?
    case $result in
        0) passed+=("$1"); echo "passed ($((SECONDS - start)) s)" ;;
        77) skipped+=("$1"); echo "SKIPPED: $(tail -n 1 "$logs/$1.log")" ;;
        *) failed+=("$1"); echo "FAILED (exit code $result): $logs/$1.log" ;;
    esac
}

skip() { echo "$1"; return 77; }

suite() { ctest --test-dir build/release --output-on-failure --no-tests=error -j "$(nproc)"; }

sass() { tools/sass_budget.py; }

product() { ninja -C build/release losslessness_product && build/release/losslessness_product; }

kills() { ninja -C build/release storage_kills && build/release/storage_kills 500; }

# Every file by itself: names that only meet because the compiler reads several files as one.
apart() {
    cmake -S . -B build/apart -G Ninja -DCMAKE_BUILD_TYPE=Debug -DDRAFTSCOPE_TOGETHER=OFF -DDRAFTSCOPE_CUDA=OFF && ninja -C build/apart
}

# Shards of jobs of a real Slurm on this machine, and of mpirun.
cluster() { tests/cluster/cluster.sh build/release/draftscope; }

docs() {
    local document
    for document in docs/FITTING.md docs/TRAINING.md help; do
        tools/with_torch.sh tests/docs/commands_test.py --program build/release/draftscope "$document" || return 1
    done
}

training() {
    tools/with_torch.sh tests/training/fit_test.py --program build/release/draftscope &&
        "$(tools/with_torch.sh)" tools/train_drafter.py check
}

# Greedy text of real models against a float reference. Nothing is fetched here: the models are large.
models() {
    local folder=${DRAFTSCOPE_MODELS:-${XDG_CACHE_HOME:-$HOME/.cache}/draftscope/models}
    local files=("$folder"/qwen2.5-coder-*.gguf)
    [ -f "${files[0]}" ] || { skip "no real models in $folder (tools/fetch_deps.sh qwen-coder [FOLDER], DRAFTSCOPE_MODELS=FOLDER)"; return; }
    "$(tools/with_torch.sh)" tests/models/greedy_reference.py --program build/release/draftscope "${files[@]}"
}

# Checkpoints saved by the classes of other projects.
writers() {
    [ -x "${DRAFTSCOPE_WRITERS:-}" ] || { skip "DRAFTSCOPE_WRITERS names no Python with the packages of tests/models/writers.py"; return; }
    "$DRAFTSCOPE_WRITERS" tests/models/writers.py --program build/release/draftscope
}

# A virtual address space that is laid out at random can collide with the shadow memory.
sanitized() { # PRESET
    export DRAFTSCOPE_RANDOM_INPUTS=2000
    cmake --preset "$1" && cmake --build --preset "$1" && setarch -R ctest --preset "$1" -j "$(nproc)" --timeout 3000
}
asan() { sanitized asan; }
tsan() { sanitized tsan; }

fuzz() {
    command -v clang++ >/dev/null || { skip "clang++ is not installed (apt-get install clang)"; return; }
    cmake -S . -B build/fuzz -G Ninja -DCMAKE_C_COMPILER=clang -DCMAKE_CXX_COMPILER=clang++ -DCMAKE_BUILD_TYPE=RelWithDebInfo \
        -DDRAFTSCOPE_FUZZ=ON "-DDRAFTSCOPE_SANITIZE=address;undefined;fuzzer-no-link" -DDRAFTSCOPE_GUI=OFF -DDRAFTSCOPE_BENCHMARKS=OFF \
        -DDRAFTSCOPE_CUDA=OFF || return 1
    local format
    for format in gguf safetensors torch template; do
        ninja -C build/fuzz "fuzz_$format" || return 1
        mkdir -p "build/fuzz/corpus/$format"
        "$(find build/fuzz -name "fuzz_$format" -type f -perm -u+x | head -n 1)" -max_total_time="${FUZZ_SECONDS:-600}" -rss_limit_mb=4096 \
            "build/fuzz/corpus/$format" || return 1
    done
}

# `./run build` and `./run test` on a Debian 12 where nothing was installed by hand.
bare() {
    command -v debootstrap >/dev/null || { skip "debootstrap is not installed"; return; }
    [ "$(id -u)" -eq 0 ] || { skip "debootstrap needs root"; return; }
    tools/test_bare_debian.sh
}

# The .deb in such a system.
package() {
    command -v debootstrap >/dev/null && command -v dpkg-shlibdeps >/dev/null || { skip "debootstrap or dpkg-dev is not installed"; return; }
    [ "$(id -u)" -eq 0 ] || { skip "debootstrap needs root"; return; }
    tools/test_package.sh
}

group suite suite
group sass sass
group product product
group kills kills
group apart apart
group cluster cluster
group docs docs
group training training
group models models
group writers writers
group asan asan
group tsan tsan
group fuzz fuzz
group bare bare
group package package
echo "passed: ${passed[*]:-none}; failed: ${failed[*]:-none}; skipped: ${skipped[*]:-none}"
[ ${#failed[@]} -eq 0 ]
