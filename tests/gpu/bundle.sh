#!/usr/bin/env bash
# Builds the archives for a GPU machine without network. gpu-bundle.tar.xz has stripped programs for one architecture and the
# shared libraries they need; gpu-headers.tar.xz has what tests/gpu/lab.sh needs to build kernels. Both are written to the
# checkout's root and ignored by git.
#
# usage: tests/gpu/bundle.sh [--arch 90] [--headers] [--model FILE [--pieces MB]]      then, on that machine: tests/gpu/checklist.sh
#
#   --headers            only gpu-headers.tar.xz (needs no nvcc)
#   --model, --pieces    also the demo model as gpu-model/piece.* with its checksum, for copying a few at a time
#
# The programs have no PTX or line numbers and load libraries from their own folder.
# cuBLASLt (half a gigabyte) is not included: --numerics fast needs the machine's own. The first call does not need the demo model,
# its drafters and heads; to leave those 48 MB out of the checkout:
#   git sparse-checkout set --no-cone '/*' '!/assets/heads' '!/assets/drafters'
#   git sparse-checkout disable                                                                        (undo)
set -euo pipefail
cd "$(dirname "$0")/../.."
usage="usage: tests/gpu/bundle.sh [--arch 90] [--headers] [--model FILE [--pieces MB]]"
arch=90 headers_only= model= pieces=40
while [ $# -gt 0 ]; do
    case $1 in
        --headers) headers_only=1; shift; continue ;;
        --arch | --model | --pieces) [ $# -gt 1 ] || { echo "$usage" >&2; exit 2; } ;;
        *) echo "$usage" >&2; exit 2 ;;
    esac
    case $1 in
        --arch) arch=$2 ;;
        --model) model=$2 ;;
        --pieces) pieces=$2 ;;
    esac
    shift 2
done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Headers of fmt and nlohmann-json, and GoogleTest, from this system's packages.
mkdir -p "$work/include" "$work/lib"
cp -r /usr/include/fmt /usr/include/gtest /usr/include/nlohmann "$work/include/"
cp "$(g++ -print-file-name=libgtest.a)" "$(g++ -print-file-name=libgtest_main.a)" "$work/lib/"
tar -C "$work" -cJf gpu-headers.tar.xz include lib

if [ -n "$model" ]; then
    rm -rf gpu-model
    mkdir gpu-model
    split -b "${pieces}M" -d "$model" gpu-model/piece.
    sha256sum <"$model" >gpu-model/model.sha256
fi
if [ -n "$headers_only" ]; then
    du -h gpu-headers.tar.xz
    exit 0
fi

build=build/cuda-bundle
cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DDRAFTSCOPE_CUDA=ON -DDRAFTSCOPE_CUDA_SLIM=ON \
    -DDRAFTSCOPE_GUI=OFF -DDRAFTSCOPE_BENCHMARKS=OFF "-DDRAFTSCOPE_CUDA_ARCHITECTURES=$arch" \
    '-DCMAKE_BUILD_RPATH=$ORIGIN/lib;$ORIGIN/../lib' '-DCMAKE_EXE_LINKER_FLAGS=-static-libstdc++ -Wl,--disable-new-dtags' >/dev/null
ninja -C "$build" draftscope gpu_tests gpu_cupti_graph_check
bundle=$work/gpu-bundle
mkdir -p "$bundle/tests" "$bundle/lib"
for program in draftscope tests/gpu_tests tests/gpu_cupti_graph_check; do strip -o "$bundle/$program" "$build/$program"; done
# All shared libraries except the C and C++ libraries, which the other machine provides.
ldd "$build/draftscope" "$build"/tests/gpu_* | awk '/=> \//{print $3}' | sort -u |
    grep -vE '/(libc|libm|libdl|librt|libpthread|libgcc_s|libstdc\+\+|ld-linux[^/]*)\.so' | xargs -I{} cp -L {} "$bundle/lib/"
strip --strip-unneeded "$bundle"/lib/*.so*
git describe --always --dirty >"$bundle/commit"
# A dictionary of 64 MiB lets xz match the code that the programs share.
tar -C "$work" -c gpu-bundle | xz --x86 --lzma2=preset=9 >gpu-bundle.tar.xz
du -h gpu-bundle.tar.xz gpu-headers.tar.xz
