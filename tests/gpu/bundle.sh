#!/usr/bin/env bash
# Builds the CUDA programs for one architecture and puts them, stripped, into gpu-bundle/ for a machine that has a GPU and
# neither nvcc nor the libraries of this system: program, tests, shared libraries and, with --model, the demo model.
#
# usage: tests/gpu/bundle.sh [--arch 90] [--model FILE [--pieces MB]]      then, there: tests/gpu/checklist.sh
#
# gpu-bundle/ and gpu-model/ are ignored by git. Beside them the checklist needs tests/gpu, tests/golden, assets/prompts,
# assets/peers, and of the demo model's drafters and heads (69 MB) those of eagle3 (22 MB); to leave the rest out of a checkout
# that travels:
#   git sparse-checkout set --no-cone '/*' '!/assets/*/eagle2' '!/assets/*/hydra' '!/assets/*/medusa'
#   git sparse-checkout disable                                                                        (back)
# cuBLASLt (half a gigabyte) is not in it: --numerics fast needs that machine's own.
# --pieces cuts the model into gpu-model/piece.*, to be carried a few at a time where transfers are limited.
set -euo pipefail
cd "$(dirname "$0")/../.."
arch=90
model=
pieces=
while [ $# -gt 0 ]; do
    case $1 in
        --arch) arch=$2; shift 2 ;;
        --model) model=$2; shift 2 ;;
        --pieces) pieces=$2; shift 2 ;;
        *) echo "usage: tests/gpu/bundle.sh [--arch 90] [--model FILE [--pieces MB]]" >&2; exit 2 ;;
    esac
done
build=build/cuda-bundle
cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DDRAFTSCOPE_CUDA=ON -DDRAFTSCOPE_GUI=OFF \
    -DDRAFTSCOPE_BENCHMARKS=OFF "-DDRAFTSCOPE_CUDA_ARCHITECTURES=$arch" >/dev/null
ninja -C "$build" draftscope test_device_ops test_device_engine test_device_demo gpu_cupti_graph_check
rm -rf gpu-bundle
mkdir -p gpu-bundle/tests gpu-bundle/lib
strip -o gpu-bundle/draftscope "$build/draftscope"
for test in test_device_ops test_device_engine test_device_demo gpu_cupti_graph_check; do strip -o "gpu-bundle/tests/$test" "$build/tests/$test"; done
# All shared libraries but those of the C library, which must be the other machine's own.
ldd gpu-bundle/draftscope gpu-bundle/tests/* | awk '/=> \//{print $3}' | sort -u |
    grep -vE '/(libc|libm|libdl|librt|libpthread|ld-linux[^/]*)\.so' | xargs -I{} cp -L {} gpu-bundle/lib/
strip --strip-unneeded gpu-bundle/lib/*.so* 2>/dev/null || true
if [ -n "$model" ] && [ -n "$pieces" ]; then
    rm -rf gpu-model
    mkdir gpu-model
    split -b "${pieces}M" -d "$model" gpu-model/piece.
elif [ -n "$model" ]; then
    cp "$model" gpu-bundle/model.gguf
fi
du -sh gpu-bundle
