#!/usr/bin/env bash
# Builds the kernel lab, which is the GPU op tests and the kernel benchmark, with only nvcc and g++. For a GPU machine without
# network; takes about twenty seconds on 16 cores.
#
# usage: tests/gpu/lab.sh FOLDER       creates FOLDER/tests/gpu_tests and FOLDER/kernel_bench
#
# fmt, nlohmann-json and GoogleTest come from gpu-headers.tar.xz (tests/gpu/bundle.sh), or from the system. Environment: NVCC, CXX,
# LAB_ARCH (default: the GPU's, else 90), LAB_FLAGS (more flags for nvcc, for example -DVARIANT=1).
set -euo pipefail
cd "$(dirname "$0")/../.."
[ $# -eq 1 ] || { echo "usage: tests/gpu/lab.sh FOLDER" >&2; exit 2; }
mkdir -p "$1/objects" "$1/tests"
out=$(cd "$1" && pwd)
PATH=$PATH:/usr/local/cuda/bin
nvcc=${NVCC:-nvcc}
cxx=${CXX:-g++}
for tool in "$nvcc" "$cxx"; do
    command -v "$tool" >/dev/null || { echo "lab: $tool is not on PATH" >&2; exit 1; }
done
toolkit=$(dirname "$(dirname "$(readlink -f "$(command -v "$nvcc")")")")
arch=${LAB_ARCH:-$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | head -1 | tr -d . || true)}
[[ $arch =~ ^[0-9]+$ ]] || arch=90

includes=(-I. -isystem "$toolkit/include")
libraries=()
if [ -f gpu-headers.tar.xz ]; then
    mkdir -p "$out/headers"
    tar -xJf gpu-headers.tar.xz -C "$out/headers" || python3 -m tarfile -e gpu-headers.tar.xz "$out/headers"
    includes+=(-isystem "$out/headers/include")
    libraries+=("-L$out/headers/lib")
fi

device_code=$(cd kernels && ls cuda/*.cu)
host_code=(base/cpus base/json_file base/mapped_file base/python_wheels base/rng engine/tree/ancestor_mask engine/tree/draft_tree
    engine/tree/sampled_drafts engine/tree/tree_choices engine/tree/tree_spec kernels/backend/arena kernels/backend/backend
    kernels/backend/device_matrix kernels/backend/rope kernels/cpu/accept_ops kernels/cpu/attention kernels/cpu/candidate_topk kernels/cpu/cpu_backend
    kernels/cpu/draft_sampling kernels/cpu/exp_sums kernels/cpu/host_memory kernels/cpu/kv_store kernels/cpu/matmul/matmul
    kernels/cpu/matmul/matmul_portable kernels/cpu/matmul/matmul_rows kernels/cpu/matmul/pack kernels/cpu/matmul_topk
    kernels/cpu/matrix kernels/cpu/ranks kernels/cpu/row_major_matrix kernels/cpu/sampling kernels/cpu/set_ops
    kernels/cpu/threads/isa kernels/cpu/threads/thread_pool kernels/cpu/topk kernels/cpu/tree_ops kernels/cpu/vector/elementwise
    kernels/cpu/vector/row_kernels_portable kernels/cpu/weight_memory kernels/cuda/bench kernels/cuda/cuda_backend
    kernels/cuda/library_product tests/gpu/kernel_bench tests/support/beam_expansion tests/support/tree_verifier)
for one in engine/verify/*.cpp tests/support/twin_*.cpp tests/gpu/*_test.cpp; do host_code+=("${one%.cpp}"); done

host_flags=(-std=c++20 -O2 -DFMT_HEADER_ONLY -DDS_HAVE_CUDA -DDS_GPU_ONLY "${includes[@]}")
device_flags=(-std=c++20 -O3 --expt-relaxed-constexpr -Xcompiler -fPIC -lineinfo -I. "-gencode=arch=compute_$arch,code=sm_$arch")
read -ra further <<<"${LAB_FLAGS:-}"
objects=()
commands=()
# Objects that are newer than every source are reused.
add() { # OBJECT COMMAND...
    objects+=("$1")
    if [ -f "$1" ] && [ -z "$(find base engine kernels tests tests/gpu/lab.sh -newer "$1" -type f -print -quit)" ]; then return; fi
    commands+=("${*:2} -o $1")
}
for one in $device_code; do
    add "$out/objects/${one##*/}.o" "$nvcc" "${device_flags[@]}" "${further[@]}" -c "kernels/$one"
done
for one in "${host_code[@]}"; do
    add "$out/objects/${one//\//_}.o" "$cxx" "${host_flags[@]}" -c "$one.cpp"
done
[ ${#commands[@]} -eq 0 ] || printf '%s\n' "${commands[@]}" |
    xargs -P "$(nproc)" -I{} sh -c '{} || { echo "lab: failed: {}" >&2; exit 255; }'

link=("$cxx" "-L$toolkit/lib64" "${libraries[@]}")
bench=() tests=()
for object in "${objects[@]}"; do
    case $object in
        */tests_gpu_kernel_bench.o) bench+=("$object") ;;
        */tests_gpu_*_test.o) tests+=("$object") ;;
        *) bench+=("$object") tests+=("$object") ;;
    esac
done
"${link[@]}" "${tests[@]}" -o "$out/tests/gpu_tests" -lgtest -lgtest_main -lcudart_static -ldl -lpthread -lrt
"${link[@]}" "${bench[@]}" -o "$out/kernel_bench" -lcudart_static -ldl -lpthread -lrt
echo "lab: $out for sm_$arch in $SECONDS s"
