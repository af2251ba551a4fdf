#!/usr/bin/env bash
# Everything that waits for a machine with a GPU, most valuable first; each step under 10 minutes. Results go to one
# folder (default: gpu-results), from there to docs/MEASUREMENTS.md with date and device. A step that has passed is not run
# again; delete its .ok file, or the folder, to repeat it.
#
# usage: tests/gpu/checklist.sh [RESULTS [STEP...]]      all steps, or the named ones
#
# CHECKLIST_SECONDS=570 ends a call in time where a machine is lent for that long: what does not fit is left to the next one.
#
# Programs come from build/cuda (cmake --preset cuda && ninja -C build/cuda). A machine without nvcc takes the bundle that
# tests/gpu/bundle.sh made elsewhere: gpu-bundle/ with stripped programs and, if asked for, the demo model.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 2
out=${1:-gpu-results}
[ $# -gt 0 ] && shift
only=("$@")
mkdir -p "$out"

programs=build/cuda
[ -x gpu-bundle/draftscope ] && programs=gpu-bundle
draftscope=$programs/draftscope
tests=$programs/tests
model=${DRAFTSCOPE_MODEL:-}
[ -z "$model" ] && [ -f gpu-bundle/model.gguf ] && model=gpu-bundle/model.gguf
# A model that came in pieces (tests/gpu/bundle.sh --model FILE --pieces 40).
if [ -z "$model" ] && ls gpu-model/piece.* >/dev/null 2>&1; then
    [ -f gpu-model.gguf ] || cat gpu-model/piece.* >gpu-model.gguf
    model=gpu-model.gguf
fi
export DRAFTSCOPE_SOURCE=$PWD DRAFTSCOPE_ASSETS=$PWD/assets
[ -n "$model" ] && export DRAFTSCOPE_DEMO_MODEL=$model
export LD_LIBRARY_PATH="$PWD/gpu-bundle/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
[ -d /usr/local/cuda/bin ] && PATH=$PATH:/usr/local/cuda/bin

# What is missing is said at once.
missing=0
need() { # what test...
    local what=$1
    shift
    if "$@" >/dev/null 2>&1; then
        echo "has      $what"
    else
        echo "MISSING  $what"
        missing=$((missing + 1))
    fi
}
need "a GPU that nvidia-smi shows" nvidia-smi
need "$draftscope (cmake --preset cuda && ninja -C build/cuda, or tests/gpu/bundle.sh)" test -x "$draftscope"
need "its shared libraries" sh -c "test -x '$draftscope' && ! ldd '$draftscope' | grep -q 'not found'"
need "CUDA by its own probe" sh -c "'$draftscope' doctor --no-probe | grep -q '^yes *CUDA'"
need "$tests/test_device_ops" test -x "$tests/test_device_ops"
need "the demo model (tools/fetch_deps.sh model, DRAFTSCOPE_MODEL=FILE or the bundle's)" \
    sh -c "[ -n '$model' ] && test -f '$model' || '$draftscope' doctor --no-probe | grep '^demo model' | grep -qv 'not found'"
need "the demo model's fitted heads (assets/heads/eagle3)" test -f assets/heads/eagle3/specvocab.safetensors
cublaslt=$(ldconfig -p 2>/dev/null | grep -o '/.*libcublasLt\.so\.[0-9]*$' | head -1)
for folder in /usr/local/cuda/lib64 ${LD_LIBRARY_PATH//:/ }; do
    [ -z "$cublaslt" ] && cublaslt=$(ls "$folder"/libcublasLt.so.[0-9]* 2>/dev/null | head -1)
done
# PyTorch brings one along.
[ -z "$cublaslt" ] && cublaslt=$(python3 -c 'import glob, sys
print(*[f for p in sys.path for f in glob.glob(f"{p}/nvidia/*/lib/libcublasLt.so.*")][:1])' 2>/dev/null)
[ -n "$cublaslt" ] && LD_LIBRARY_PATH=$LD_LIBRARY_PATH:$(dirname "$cublaslt")
need "cuBLASLt (optional, for --numerics fast): ${cublaslt:-none}" test -n "$cublaslt"
for tool in compute-sanitizer nsys python3; do need "$tool (optional)" command -v "$tool"; done
[ -x "$draftscope" ] || exit 2

left=0
step() { # name command...
    local name=$1
    shift
    if [ ${#only[@]} -gt 0 ] && [[ " ${only[*]} " != *" $name "* ]]; then return; fi
    if [ -e "$out/$name.ok" ]; then
        echo "== $name: passed before"
        return
    fi
    local limit=590
    if [ -n "${CHECKLIST_SECONDS:-}" ] && [ $((CHECKLIST_SECONDS - SECONDS)) -lt $limit ]; then
        limit=$((CHECKLIST_SECONDS - SECONDS))
        if [ $limit -lt 15 ]; then
            echo "== $name: left to the next call"
            left=$((left + 1))
            return
        fi
    fi
    echo "== $name"
    local start=$SECONDS
    timeout $limit "$@" >"$out/$name.log" 2>"$out/$name.err"
    local code=$?
    echo "   exit $code after $((SECONDS - start)) s ($out/$name.log)"
    [ $code -eq 0 ] && touch "$out/$name.ok"
}
# Tests of a device are skipped where it does not open, and that is no failure of theirs: here some must have run on it.
on_gpu=(bash -o pipefail -c '"$0" "$@" | awk "{ print } /\[ +OK \].*\/cuda/ { ran = 1 } END { exit !ran }"')
run=("$draftscope" run --backend cuda --quiet --json)
synthetic=("$draftscope" run --backend cuda --quiet --json --raw --ignore-eos)
text="Write a short story about a lighthouse keeper who finds a message in a bottle."
llama=synthetic:llama-3.1-8b

# 1. Is it right? Every op beside its twin; the engine beside the CPU; exactness for every drafter and head.
step device nvidia-smi
step doctor "$draftscope" doctor --json
step ops "${on_gpu[@]}" "$tests/test_device_ops" --gtest_filter='*/cuda*'
step engine "${on_gpu[@]}" "$tests/test_device_engine" --gtest_filter='*/cuda*'
step demo_logits "${on_gpu[@]}" "$tests/test_device_demo" --gtest_filter='*/cuda*'
# 2. The head table and the open measurements: bandwidth by size, kernel boundary, cold, warm and in sequence.
step kernels_llama_8b "$draftscope" kernels --backend cuda --vocab 128256 --hidden 4096 --rows 1,4,10,16,64 --json
if command -v python3 >/dev/null && python3 -c 'import torch' 2>/dev/null; then
    step kernels_beside_torch "$draftscope" kernels --backend cuda --torch python3 --vocab 128256 --hidden 4096 --rows 1,10 --json
fi
step kernels_demo "$draftscope" kernels --backend cuda --vocab 49152 --hidden 576 --rows 1,8 --json
# 3. The demo model from end to end: the text must be the one that --drafter none gives.
step demo_none "${run[@]}" --drafter none --prompt "$text" --max-new 128
step demo_eagle3 "${run[@]}" --drafter eagle3 --head full --prompt "$text" --max-new 128 --baseline 1
step demo_same_text python3 - "$out" <<'PY'
import json, sys
plain, drafted = (json.load(open(f"{sys.argv[1]}/{name}.log")) for name in ("demo_none", "demo_eagle3"))
same = plain["prompts"][0]["tokens"] == drafted["prompts"][0]["tokens"]
print("same text" if same else "TEXTS DIFFER")
sys.exit(0 if same else 1)
PY
# Graphs change no token, nor do windows of L2; `gpu` of the output says how many passes were kept and how many refused.
step demo_no_graphs "${run[@]}" --no-gpu-graphs --drafter eagle3 --head full --prompt "$text" --max-new 128
step demo_no_rounds "${run[@]}" --no-gpu-rounds --drafter eagle3 --head full --prompt "$text" --max-new 128
step demo_l2_window "${run[@]}" --l2-window --drafter eagle3 --head microspec --prompt "$text" --max-new 128
# Heads of every level, random ones where none are published for the model: their rounds are the device's as a whole, too.
for drafter in medusa hydra; do
    step synthetic_1b_$drafter "${synthetic[@]}" --model synthetic:llama-3.2-1b --drafter $drafter:synthetic:llama-3.2-1b --head full \
        --prompt "$text" --max-new 64
    step synthetic_1b_${drafter}_no_rounds "${synthetic[@]}" --no-gpu-rounds --model synthetic:llama-3.2-1b \
        --drafter $drafter:synthetic:llama-3.2-1b --head full --prompt "$text" --max-new 64
done
step path_heads_same_text python3 - "$out" <<'PY'
import json, sys
texts = {json.dumps(json.load(open(f"{sys.argv[1]}/synthetic_1b_{name}.log"))["prompts"][0]["tokens"])
         for name in ("medusa", "medusa_no_rounds", "hydra", "hydra_no_rounds")}
print("same text" if len(texts) == 1 else "TEXTS DIFFER")
sys.exit(0 if len(texts) == 1 else 1)
PY
step demo_graphs_same_text python3 - "$out" <<'PY'
import json, sys
runs = {name: json.load(open(f"{sys.argv[1]}/{name}.log")) for name in ("demo_none", "demo_eagle3", "demo_no_graphs", "demo_no_rounds", "demo_l2_window")}
for name, run in runs.items():
    print(name, run["gpu"])
texts = {json.dumps(run["prompts"][0]["tokens"]) for run in runs.values()}
refused = sum(run["gpu"]["graphs_refused"] for run in runs.values())
print("same text" if len(texts) == 1 else "TEXTS DIFFER", "refused", refused)
window = runs["demo_l2_window"]["gpu"]["l2_window_bytes"]
print("window of L2:", window, "bytes" if window > 0 else "bytes, REFUSED")
sys.exit(0 if len(texts) == 1 and refused == 0 and runs["demo_eagle3"]["gpu"]["graphs"] > 0 and window > 0 else 1)
PY
# cuBLASLt where rows are many: which of its tokens exact kernels would not have emitted is in beside_exact.
if [ -n "$cublaslt" ]; then
step demo_fast "${run[@]}" --numerics fast --drafter eagle3 --head full --prompt "$text" --max-new 128
step demo_fast_says_so python3 - "$out" <<'PY'
import json, sys
run = json.load(open(f"{sys.argv[1]}/demo_fast.log"))
print(run["numerics"], run["gpu"]["library"], run["gpu"]["library_products"], run["beside_exact"])
sys.exit(0 if run["beside_exact"]["tokens"] > 0 and run["gpu"]["library_products"] > 0 else 1)
PY
fi
# Sequences in lockstep share launches; their texts are those of one at a time.
prompts=assets/prompts/spec_bench_half.jsonl
step demo_batch_1 "${run[@]}" --drafter eagle3 --head full --prompts $prompts --limit 8 --max-new 64
step demo_batch_8 "${run[@]}" --drafter eagle3 --head full --prompts $prompts --limit 8 --max-new 64 --batch 8
step demo_batches_same_text python3 - "$out" <<'PY'
import json, sys
one, eight = (json.load(open(f"{sys.argv[1]}/demo_batch_{n}.log")) for n in (1, 8))
same = [p["tokens"] for p in one["prompts"]] == [p["tokens"] for p in eight["prompts"]]
print(len(one["prompts"]), "prompts", "same text" if same else "TEXTS DIFFER")
sys.exit(0 if same else 1)
PY
# Every kind of head on the demo model: one pass, factors, router with shortlists, clusters, rows packed beside.
for head in full slimspec specvocab dynaspec coral microspec vocabtrim-t; do
    step demo_head_$head "${run[@]}" --drafter eagle3 --head $head --prompt "$text" --max-new 128
done
# A tree fixed in advance grows there, too; and so do drafts drawn from rows with tokens of their own, or spread ones.
step demo_head_fixed_tree "${run[@]}" --drafter eagle3 --head full --tree choices:mc_sim_7b_63 --prompt "$text" --max-new 128
for head in specvocab dynaspec coral microspec vocabtrim+rdk specvocab+rdk; do
    step demo_pq_$head "${run[@]}" --drafter eagle3 --head $head --verify pq --temperature 1 --top-p 0.9 --prompt "$text" --max-new 128
done
step demo_heads_same_text python3 - "$out" <<'PY'
import glob, json, sys
runs = {name: json.load(open(name)) for name in [f"{sys.argv[1]}/demo_none.log", *glob.glob(f"{sys.argv[1]}/demo_head_*.log")]}
texts = {name: json.dumps(run["prompts"][0]["tokens"]) for name, run in runs.items()}
plain = texts[f"{sys.argv[1]}/demo_none.log"]
others = [name for name, text in texts.items() if text != plain]
print(len(runs), "runs", "same text" if not others else f"TEXTS DIFFER: {others}")
sys.exit(0 if not others and len(runs) == 9 else 1)
PY
# Sampled text: the draws are the device's own, and the same for every drafter.
step demo_sampled_none "${run[@]}" --temperature 0.8 --drafter none --prompt "$text" --max-new 128
step demo_sampled_eagle3 "${run[@]}" --temperature 0.8 --drafter eagle3 --head full --prompt "$text" --max-new 128
step demo_sampled_same_text python3 - "$out" <<'PY'
import json, sys
plain, drafted = (json.load(open(f"{sys.argv[1]}/{name}.log")) for name in ("demo_sampled_none", "demo_sampled_eagle3"))
same = plain["prompts"][0]["tokens"] == drafted["prompts"][0]["tokens"]
print("same text" if same else "TEXTS DIFFER")
sys.exit(0 if same else 1)
PY
# Rows that are cut, typical acceptance and drawn drafts: what a round needs to know of its rows is found there. For the match
# rule every drafter has the text of plain decoding. Beside the CPU in bf16 with the same random numbers: sums of products are
# rounded elsewhere, so that texts part where a number lies between the two; until then they are the same, and they part late.
sampled=(--temperature 1 --prompts $prompts --limit 8 --max-new 64)
declare -A rules=([top_p]="--top-p 0.9" [top_k]="--top-k 40 --top-p 0.95" [typical]="--verify typical" [pq]="--verify pq" [pq_top_p]="--verify pq --top-p 0.9")
for rule in top_p top_k typical pq pq_top_p; do
    read -ra options <<<"${rules[$rule]}"
    step rule_$rule "${run[@]}" "${sampled[@]}" "${options[@]}" --drafter eagle3 --head full
    step rule_${rule}_cpu "$draftscope" run --backend cpu --precision bf16 --quiet --json "${sampled[@]}" "${options[@]}" --drafter eagle3 --head full
done
step rule_top_p_none "${run[@]}" "${sampled[@]}" --top-p 0.9 --drafter none
step rule_top_k_none "${run[@]}" "${sampled[@]}" --top-k 40 --top-p 0.95 --drafter none
step rules_beside_cpu python3 - "$out" <<'PY'
import json, sys
def texts(name):
    return [p["tokens"] for p in json.load(open(f"{sys.argv[1]}/{name}.log"))["prompts"]]
wrong = 0
for name in ("rule_top_p", "rule_top_k"):
    same = texts(name) == texts(f"{name}_none")
    wrong += not same
    print(name, "same text as plain decoding" if same else "TEXTS DIFFER from plain decoding")
for name in ("top_p", "top_k", "typical", "pq", "pq_top_p"):
    there, here = (json.load(open(f"{sys.argv[1]}/rule_{name}{end}.log")) for end in ("", "_cpu"))
    equal = [next((i for i, (a, b) in enumerate(zip(x["tokens"], y["tokens"])) if a != b), min(len(x["tokens"]), len(y["tokens"])))
             for x, y in zip(there["prompts"], here["prompts"])]
    late = sum(equal) >= 4 * len(equal)  # a wrong cut or draw parts them at once
    wrong += not late
    print(name, "tokens until the texts part", equal, "" if late else "TOO EARLY",
          "tau there, here", there["totals"]["tau"], here["totals"]["tau"])
sys.exit(1 if wrong else 0)
PY
# 4. Real dimensions, random weights. The EAGLE-3 runs replay SlimSpec's published tau of 4.4 as one rate per depth: of the
# six drafts of a chain 0.84 + 0.84^2 + .. + 0.84^6 = 3.4 are kept, and a token follows.
replayed=(--acceptance rate:0.84)
step synthetic_1b_none "${synthetic[@]}" --model synthetic:llama-3.2-1b --drafter none --prompt "$text" --max-new 256
step synthetic_8b_none "${synthetic[@]}" --model $llama --drafter none --prompt "$text" --max-new 128
step synthetic_8b_none_no_graphs "${synthetic[@]}" --model $llama --drafter none --no-gpu-graphs --prompt "$text" --max-new 128
step synthetic_8b_eagle3 "${synthetic[@]}" --model $llama --drafter eagle3:$llama --head full --tree chain=6 "${replayed[@]}" \
    --prompt "$text" --max-new 256
step synthetic_8b_eagle3_tree "${synthetic[@]}" --model $llama --drafter eagle3:$llama --head full "${replayed[@]}" \
    --prompt "$text" --max-new 256
step synthetic_8b_eagle3_batch_8 "${synthetic[@]}" --model $llama --drafter eagle3:$llama --head full "${replayed[@]}" \
    --prompts $prompts --limit 8 --batch 8 --max-new 64
# Every kind of head at those dimensions with random artefacts: what each costs where heads are large. Acceptance replayed.
heads="slimspec specvocab vocabtrim fr-spec dynaspec microspec coral vocabtrim-t pa-fr bcl"
for head in $heads; do
    step synthetic_8b_head_$head "${synthetic[@]}" --model $llama --drafter eagle3:$llama --head $head --tree chain=6 "${replayed[@]}" \
        --prompt "$text" --max-new 256
done
# The packed rows are what may stay in L2 between calls; a window for them is the switch.
step synthetic_8b_l2_window "${synthetic[@]}" --l2-window --model $llama --drafter eagle3:$llama --head microspec --tree chain=6 \
    "${replayed[@]}" --prompt "$text" --max-new 256
step synthetic_8b_heads python3 - "$out" $heads <<'PY'
import json, sys
folder, wrong = sys.argv[1], 0
print("head: acceptance, rounds, tau, head us a round, microseconds a phase (median), tokens/s")
for name in ["eagle3"] + [f"head_{head}" for head in sys.argv[2:]]:
    try:
        run = json.load(open(f"{folder}/synthetic_8b_{name}.log"))
    except (OSError, ValueError) as error:
        print(f"{name}: no run ({error})")
        wrong += 1
        continue
    wrong += run["acceptance"] != "replayed" or not run["synthetic"]
    of = {phase["name"]: phase["median_us"] for phase in run["phases"]}
    print(f"{run['heads'][0]['head']}: acceptance {run['acceptance']}, {run['totals']['rounds']}, {run['totals']['tau']:.2f}, "
          f"{run['heads'][0]['head_ns_per_round'] / 1e3:.1f}, {of}, {run['totals']['tokens_per_second']:.1f}")
sys.exit(1 if wrong else 0)
PY
# Long contexts: attention split over positions, and prefills of many rows by our products and by the library's.
long=$(printf 'the keeper of the lighthouse wrote a letter to the sea and %.0s' $(seq 600))
for numerics in exact ${cublaslt:+fast}; do
    step synthetic_1b_long_$numerics "${synthetic[@]}" --model synthetic:llama-3.2-1b --numerics $numerics --drafter none \
        --prompt "$long" --max-new 64
done
# 5. The remaining heads' shapes.
step kernels_qwen3_8b "$draftscope" kernels --backend cuda --vocab 151936 --hidden 4096 --rows 1,10 --json
step kernels_gpt_oss_20b "$draftscope" kernels --backend cuda --vocab 201088 --hidden 2880 --rank 360 --rows 1,10 --json
step kernels_olmo2_1b "$draftscope" kernels --backend cuda --vocab 100352 --hidden 2048 --rows 1,10 --json
# 6. What CUPTI sees: every kernel inside a captured graph must land in the phase of its capture (T2); graph records at T1.
if [ -x "$tests/gpu_cupti_graph_check" ]; then
    step cupti_kernels "$tests/gpu_cupti_graph_check"
    step cupti_graphs "$tests/gpu_cupti_graph_check" --tier1
    # Counters need the right to read them (doctor says what is missing); without it this step fails and says so.
    step cupti_counters "$tests/gpu_cupti_graph_check" --tier3
fi
for tier in 1 2 3; do
    step run_tier$tier "${run[@]}" --drafter eagle3 --head full --prompt "$text" --max-new 64 --tier $tier --save "$out/tier$tier.dscope" --overwrite
    step stats_tier$tier "$draftscope" stats "$out/tier$tier.dscope"
    step check_tier$tier "$draftscope" check "$out/tier$tier.dscope"
done
# With a driver present the whole CPU suite must still pass (NVTX injection and capability probes behave differently).
[ -f "$programs/build.ninja" ] && step suite ctest --test-dir "$programs" -j 8 --output-on-failure
# 7. Races and bad accesses.
if command -v compute-sanitizer >/dev/null; then
    # One suite at a time, as each step has its time limit.
    suites=$("$tests/test_device_ops" --gtest_list_tests | sed -n 's|^Devices/\(.*\)\.$|\1|p')
    for suite in ${suites:-of_a_program_that_lists_none}; do
        for tool in memcheck racecheck synccheck initcheck; do
            step ${tool}_$suite "${on_gpu[@]}" compute-sanitizer --tool $tool --error-exitcode 1 "$tests/test_device_ops" \
                --gtest_filter="*/$suite.*/cuda*"
        done
    done
    # Whole rounds, with graphs, both queues and the library where it is there.
    step memcheck_engine "${on_gpu[@]}" compute-sanitizer --error-exitcode 1 "$tests/test_device_engine" \
        --gtest_filter='*/cuda*'
fi
if command -v nsys >/dev/null; then
    step nsys nsys profile -o "$out/eagle3" --force-overwrite true "$draftscope" run --backend cuda --drafter eagle3 \
        --prompt "$text" --max-new 32 --quiet
fi
nvidia-smi --query-gpu=name,clocks.sm,clocks.mem,power.draw,temperature.gpu --format=csv >"$out/clocks_at_the_end.csv" 2>/dev/null

failed=$(for log in "$out"/*.log; do [ -e "${log%.log}.ok" ] || basename "${log%.log}"; done)
echo
echo "missing above: $missing; steps that did not pass: ${failed:-none}; left to the next call: $left"
[ -z "$failed" ] && [ $left -eq 0 ]
