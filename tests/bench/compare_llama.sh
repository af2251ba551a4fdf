#!/usr/bin/env bash
# Compares the demo target with llama.cpp on this machine: builds llama.cpp from the PyPI sdist of llama-cpp-python in
# the user's cache folder (outside this tree), writes the demo model in its types, and runs both alternately
# in one program, between two bandwidth probes. Arguments go to that program: rounds=N threads=N clock=cpu (processor
# time, one thread, for shared machines). Other comparisons have a first argument:
# - accuracy [model=FILE.gguf] [text=FILE] [tokens=N] [threads=N] [ubatch=N]: the loss of each precision, of the demo or of one file
# - speculative [options of compare_speculative.py]: llama.cpp's server with the demo's eagle3, or with the given drafter
set -euo pipefail
cd "$(dirname "$0")/../.."
version=0.3.36
export HOME="${HOME:-$(getent passwd "$(id -u)" | cut -d: -f6)}"
cache="${XDG_CACHE_HOME:-$HOME/.cache}/draftscope"
peer="$cache/peers/llama-cpp-python-$version"
demo="$cache/models/SmolLM2-135M-Instruct.Q4_1.gguf"
build="${DRAFTSCOPE_BUILD:-build/release}"

if [ ! -f "$demo" ]; then
    echo "compare_llama: $demo is missing; ./run build fetches it" >&2
    exit 2
fi
mkdir -p "$peer"
if [ ! -x "$peer/venv/bin/pip" ]; then python3 -m venv "$peer/venv"; fi
if [ ! -d "$peer/llama.cpp" ]; then
    "$peer/venv/bin/pip" -q download --no-deps --no-binary :all: -d "$peer" "llama-cpp-python==$version"
    tar -xzf "$peer"/llama_cpp_python-"$version".tar.gz -C "$peer" --strip-components=2 \
        "llama_cpp_python-$version/vendor/llama.cpp"
fi
configure_peer() {
    cmake -S "$peer/llama.cpp" -B "$peer/build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DBUILD_SHARED_LIBS=ON -DGGML_NATIVE=ON \
        -DCMAKE_CXX_FLAGS="-fno-tree-dse -fno-dse" -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_TOOLS=ON \
        -DLLAMA_BUILD_SERVER=ON -DLLAMA_BUILD_COMMON=ON -DLLAMA_BUILD_APP=OFF -DLLAMA_CURL=OFF -DLLAMA_OPENSSL=OFF
}
# GCC 12's _tile_loadconfig declares only 8 of its 64 bytes as read; without dead-store elimination the others stay.
if [ ! -f "$peer/build/bin/libllama.so" ]; then
    configure_peer
    cmake --build "$peer/build" --target llama
fi
write_peer() {
    mkdir -p "$peer/models"
    "$peer/venv/bin/pip" -q install gguf numpy
    "$peer/venv/bin/python" "$@"
}
if [ "${1:-}" = speculative ]; then
    shift
    if [ ! -x "$peer/build/bin/llama-server" ]; then
        configure_peer
        cmake --build "$peer/build" --target llama-server
    fi
    demo_drafter="$peer/models/demo.eagle3.gguf"
    if [ ! -f "$demo_drafter" ]; then write_peer tests/bench/make_peer_drafter.py assets/drafters/eagle3 "$demo" "$demo_drafter"; fi
    models=(--model "$demo" --peer-drafter "$demo_drafter")
    case " $* " in *" --model"*) models=() ;; esac
    exec python3 tests/bench/compare_speculative.py --server "$peer/build/bin/llama-server" --draftscope "$build/draftscope" \
        "${models[@]}" "$@"
fi
cmake -B "$build" -DDRAFTSCOPE_LLAMA="$peer" > /dev/null
cmake --build "$build" --target compare_llama compare_accuracy > /dev/null
program=compare_llama
if [ "${1:-}" = accuracy ]; then
    program=compare_accuracy
    shift
fi
models=("folder=$peer/models")
case " $* " in
*" model="*) models=() ;;
*) if [ ! -f "$peer/models/demo.q4_0.gguf" ]; then write_peer tests/bench/make_peer_models.py "$demo" "$peer/models"; fi ;;
esac
exec "$build/peers/$program" "${models[@]}" "$@"
