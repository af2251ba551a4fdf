#!/usr/bin/env bash
# Everything that waits for a machine with a GPU, most important first; each step under 10 minutes. Results go to the
# folder given as $1 (default: ./gpu-results) and from there to docs/MEASUREMENTS.md with date and device.
set -uo pipefail
cd "$(dirname "$0")/../.."
out=${1:-gpu-results}
mkdir -p "$out"

step() { # name command...
    local name=$1
    shift
    echo "== $name"
    timeout 600 "$@" >"$out/$name.log" 2>&1
    echo "   exit $? ($out/$name.log)"
}

step device nvidia-smi
step build ./run build
# The program must find the device, name the driver and say what CUPTI allows.
step doctor build/release/draftscope doctor --json
# With a driver present the whole CPU suite must still pass (NVTX injection and capability probes behave differently).
step tests ./run test
# Every kernel inside a captured graph must land in the phase of its capture (T2); graph records at T1.
step cupti_kernels build/release/tests/gpu_cupti_graph_check
step cupti_graphs build/release/tests/gpu_cupti_graph_check --tier1
