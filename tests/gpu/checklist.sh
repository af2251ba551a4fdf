#!/usr/bin/env bash
# Runs the checks that need a GPU, most valuable first, and packs logs, marks and a summary into one archive. It expects a bare
# machine without network that is available for minutes: calls are independent, and every step has a time limit and its own
# process. The archive is complete after every stage, even if a signal ends the call.
#
# usage: tests/gpu/checklist.sh [--results FOLDER] [--seconds N] [--passed SUMMARY.md] [--limit STEP=N] [STEP...]
#
#   --results FOLDER      where summary.md and gpu-results.tar.gz go (default: $DRAFTSCOPE_RESULTS, else gpu-results)
#   --seconds N           time of the whole call; steps that do not fit are skipped (default: $CHECKLIST_SECONDS, else 480)
#   --passed SUMMARY.md   summary of an earlier call: steps that passed there are not run again (repeatable)
#   --limit STEP=N        another time limit for a step, in seconds (repeatable)
#   STEP...               only these steps; * and ? may be used, as in 'ops_*'
#
# Programs: gpu-bundle.tar.xz of tests/gpu/bundle.sh, else build/cuda (cmake --preset cuda && ninja -C build/cuda draftscope
# gpu_tests gpu_cupti_graph_check), else the kernel lab, which tests/gpu/lab.sh builds with nvcc and g++.
# Exit codes: 0 every step passed, 1 a step failed or was skipped, 2 wrong usage, 128 + n ended by signal n.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 2

results=${DRAFTSCOPE_RESULTS:-gpu-results}
seconds=${CHECKLIST_SECONDS:-480}
passed=()
only=()
declare -A given_limit
usage="usage: tests/gpu/checklist.sh [--results FOLDER] [--seconds N] [--passed SUMMARY.md] [--limit STEP=N] [STEP...]"
while [ $# -gt 0 ]; do
    case $1 in
        --results | --seconds | --passed | --limit)
            [ $# -gt 1 ] || { echo "checklist: $1 needs a value" >&2; exit 2; }
            case $1 in
                --results) results=$2 ;;
                --seconds) seconds=$2 ;;
                --limit)
                    [[ $2 =~ ^([a-zA-Z0-9_-]+)=([0-9]+)$ ]] || { echo "checklist: --limit $2: not STEP=SECONDS" >&2; exit 2; }
                    given_limit[${BASH_REMATCH[1]}]=${BASH_REMATCH[2]}
                    ;;
                --passed)
                    [ -f "$2" ] || { echo "checklist: --passed $2: no such file" >&2; exit 2; }
                    passed+=("$2")
                    ;;
            esac
            shift 2
            ;;
        -*) echo "$usage" >&2; exit 2 ;;
        *) only+=("$1"); shift ;;
    esac
done
[[ $seconds =~ ^[0-9]+$ ]] || { echo "checklist: --seconds $seconds: not a whole number" >&2; exit 2; }
mkdir -p "$results" || exit 2
results=$(cd "$results" && pwd)
work=$(mktemp -d)
logs=$work/logs
mkdir "$logs"
helper=$PWD/tests/gpu/results.py

# shellcheck source=tests/gpu/steps.sh
. tests/gpu/steps.sh
trap end_call EXIT
trap 'end_by_signal 15' TERM
trap 'end_by_signal 2' INT
trap 'end_by_signal 1' HUP

kind=${DRAFTSCOPE_GPU_KIND:-cuda}  # of the tests to run
. tests/gpu/programs.sh

stage_begin() {
    # A process that asks for the clocks keeps the GPU initialised between steps, which else costs seconds each. It sets nothing.
    nvidia-smi --query-gpu=clocks.sm,clocks.mem,power.draw,temperature.gpu --format=csv -lms 500 >"$logs/clocks.csv" 2>/dev/null </dev/null &
    clocks=$!
    step device 20 "" nvidia-smi -q
    step machine 20 "" bash -c 'uname -a; nproc; free -g; g++ --version; nvcc --version; python3 --version; ncu --version
        compute-sanitizer --version; ldconfig -p | grep -E "libcuda|libcupti|libcublasLt"; true'
    step programs 150 "device" "${find_programs[@]}"
    use_programs
    [ -z "$draftscope" ] || step doctor 30 "programs" "$draftscope" doctor --json --no-probe
    # Running a kernel proves more than any probe.
    step gpu_opens 40 "device programs" on_gpu "$tests" --gtest_filter="*/DeviceOps.Add/$kind"
    # A graph whose kernels start early: what every round's graphs are made of.
    step graph_early 20 "gpu_opens cupti_check" "$cupti_check" --early
    if is_failed device || is_failed programs || is_failed gpu_opens; then
        echo "checklist: no GPU can run a kernel; skipping the other steps"
        stop_call "no GPU that runs a kernel"
    fi
}

# Every kernel compared with the reference device on the host. Matmul and head are first, because other ops depend on them.
stage_ops() {
    start ops_matmul 40 "gpu_opens" on_gpu "$tests" --gtest_filter="*/DeviceOps.Matmul*/$kind*"
    start ops_head 40 "gpu_opens" on_gpu "$tests" --gtest_filter="*/DeviceOps.Head*/$kind*"
    start ops_DeviceOps 40 "gpu_opens" on_gpu "$tests" \
        --gtest_filter="*/DeviceOps.*/$kind*:-*/DeviceOps.Matmul*:*/DeviceOps.Head*"
    local suite
    for suite in $(op_suites); do
        [ "$suite" = DeviceOps ] ||
            start "ops_$suite" 40 "gpu_opens" on_gpu "$tests" --gtest_filter="Devices/$suite.*/$kind*"
    done
    finish_started
    sanitize_first_failure
}

# Wrong products or heads invalidate all later results, so their sanitizer runs at once, for a short time.
sanitize_first_failure() {
    local one
    for one in matmul:Matmul head:Head; do
        is_failed "ops_${one%%:*}" || continue
        step "memcheck_${one%%:*}" 40 "" on_gpu compute-sanitizer --tool memcheck --error-exitcode 1 "$tests" \
            --gtest_filter="*/DeviceOps.${one##*:}*/$kind*"
    done
}

# Whole rounds, with kernels that start early and without. If only the latter are right, the rest of the call goes on without.
stage_engine() {
    local suite early=() plain=()
    for suite in $(engine_suites); do
        start "engine_$suite" 60 "ops_matmul ops_head" on_gpu "$tests" --gtest_filter="Devices/$suite.*/$kind*"
        start "engine_${suite}_plain" 60 "ops_matmul ops_head" on_gpu env DRAFTSCOPE_GPU_OVERLAP=0 "$tests" \
            --gtest_filter="Devices/$suite.*/$kind*"
    done
    finish_started
    for suite in $(engine_suites); do
        is_failed "engine_$suite" && early+=("$suite")
        is_failed "engine_${suite}_plain" && plain+=("$suite")
    done
    if [ ${#early[@]} -gt 0 ] && [ ${#plain[@]} -eq 0 ]; then
        export DRAFTSCOPE_GPU_OVERLAP=0
        echo "checklist: kernels that start early fail (${early[*]}); the other steps run without"
        echo "kernels that start early fail: ${early[*]}" >"$logs/overlap_off.log"
    fi
}

# Bandwidth by size, launch overhead, products and heads: cold, warm and in sequence.
stage_kernels() {
    step kernels_llama_8b 75 "ops_matmul ops_head" "${bench[@]}" --vocab 128256 --hidden 4096 --rows 1,10 --json
}

# Counters of kernels with real shapes, without clock control. A few layers contain every kernel of a pass. The kernels are
# chosen by name, and the prompt has two tokens, so that neither fills of weights nor a long prefill use up the launches.
stage_ncu() {
    local right="ops_matmul ops_head tool:ncu draftscope"
    local sections=(--section SpeedOfLight --section MemoryWorkloadAnalysis --section WarpStateStats)
    local wanted='regex:matmul_kernel|head_kernel|router_kernel|pick_kernel|partial_kernel|merge_kernel|chunk_kernel|rms_norm|rope_store|beam'
    local counted=(ncu --clock-control none --csv --page details "${sections[@]}" -k "$wanted" --launch-count 45)
    step ncu_target 40 "$right" "${counted[@]}" "${synthetic[@]}" --model "$llama/2" --drafter none --no-gpu-graphs --prompt "Hi" --max-new 3
    step ncu_drafter 40 "$right" "${counted[@]}" "${synthetic[@]}" --model "$llama/2" --drafter "eagle3:$llama/2" --head specvocab \
        --tree chain=3 --no-gpu-graphs --prompt "Hi" --max-new 3
}

# Real dimensions, random weights, acceptance simulated at SlimSpec's published tau of 4.4: of a chain of six,
# 0.84 + 0.84^2 + .. + 0.84^6 = 3.4 tokens are accepted, plus the bonus token. One process loads the 8B weights once for all methods.
stage_8b() {
    local right="ops_matmul ops_head draftscope" methods=() head
    for head in full slimspec specvocab microspec; do methods+=(--method "eagle3:$llama x $head @ chain=6"); done
    step bench_8b 200 "$right" "$draftscope" bench --backend cuda --quiet --json --raw --ignore-eos --model "$llama" \
        --drafter none --simulate-acceptance rate:0.84 --prompts "$prompts" --limit 4 --max-new 128 "${methods[@]}"
    # One setting three ways: as it is, without kernels that start early, without graphs.
    local plain=("${synthetic[@]}" --model "$llama" --drafter none --prompt "$text" --max-new 64)
    step run_8b_plain 40 "$right" "${plain[@]}"
    step run_8b_no_overlap 40 "$right" env DRAFTSCOPE_GPU_OVERLAP=0 "${plain[@]}"
    step run_8b_no_graphs 40 "$right" "${plain[@]}" --no-gpu-graphs
    step run_8b 90 "$right" "${synthetic[@]}" --model "$llama" --drafter "eagle3:$llama" --head specvocab --tree chain=6 \
        --simulate-acceptance rate:0.84 --prompt "$text" --max-new 192
}

# Every drafter and execution mode produces the text of plain decoding.
stage_text() {
    local right="ops_matmul ops_head draftscope" name options=(--prompt "$text" --max-new 64)
    local drafted=(--drafter "eagle3:$small" --head full)
    step text_none 40 "$right" "${synthetic[@]}" --model "$small" --drafter none "${options[@]}"
    step text_eagle3 40 "$right" "${synthetic[@]}" --model "$small" "${drafted[@]}" "${options[@]}"
    step text_no_graphs 40 "$right" "${synthetic[@]}" --model "$small" "${drafted[@]}" --no-gpu-graphs "${options[@]}"
    for name in medusa hydra; do
        step "text_$name" 40 "$right" "${synthetic[@]}" --model "$small" --drafter "$name:$small" --head full "${options[@]}"
    done
    step text_same 20 "text_none text_eagle3 text_no_graphs text_medusa text_hydra" python3 "$helper" same \
        "$logs"/text_{none,eagle3,no_graphs,medusa,hydra}.log
    step text_graphs_kept 20 "text_eagle3" python3 "$helper" graphs "$logs/text_eagle3.log"
}

# CUPTI: kernels inside a captured graph are in the phase of their capture; graph records.
stage_cupti() {
    step cupti_kernels 40 "gpu_opens cupti_check" "$cupti_check"
    step cupti_graphs 40 "gpu_opens cupti_check" "$cupti_check" --tier1
    step cupti_early 40 "graph_early cupti_check" "$cupti_check" --early-traced
    # As on a machine whose CUPTI is in a Python wheel, where the loader's cache knows none.
    step cupti_no_cache 40 "gpu_opens cupti_check" "$loader" --inhibit-cache --library-path "$(dirname "${cupti_check:-/}")/../lib" \
        "$cupti_check"
    step cupti_late 40 "gpu_opens cupti_check" "$cupti_check" --late  # after the context: refused, or right times
}

# Runs whose kernels CUPTI records.
stage_tiers() {
    local tier capture
    for tier in 2 1; do
        capture=$logs/tier$tier.dscope
        step "run_tier$tier" 40 "ops_matmul ops_head draftscope" "${synthetic[@]}" --model "$small" --drafter "eagle3:$small" \
            --head full --prompt "$text" --max-new 32 --tier "$tier" --save "$capture" --overwrite
        step "stats_tier$tier" 20 "run_tier$tier" "$draftscope" stats "$capture"
        step "check_tier$tier" 20 "run_tier$tier" "$draftscope" check "$capture"
    done
}

# Invalid accesses and races of the kernels. Buffers are zeroed when allocated, so initcheck cannot find anything.
stage_sanitizers() {
    local tool suite filter
    for tool in memcheck racecheck; do
        for suite in matmul head $(op_suites); do
            case $suite in
                matmul) filter="*/DeviceOps.Matmul*/$kind*" ;;
                head) filter="*/DeviceOps.Head*/$kind*" ;;
                DeviceOps) filter="*/DeviceOps.*/$kind*:-*/DeviceOps.Matmul*:*/DeviceOps.Head*" ;;
                *) filter="Devices/$suite.*/$kind*" ;;
            esac
            is_marked "${tool}_$suite" || start "${tool}_$suite" 120 "gpu_opens tool:compute-sanitizer" on_gpu \
                compute-sanitizer --tool $tool --error-exitcode 1 "$tests" --gtest_filter="$filter"
        done
    done
    finish_started
}

. tests/gpu/later_steps.sh

stage_begin
pack
for stage in ops engine cupti kernels 8b ncu text tiers overlap demo shapes sanitizers; do
    stopped || { "stage_$stage"; pack; }
done
