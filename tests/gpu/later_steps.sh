# Steps of tests/gpu/checklist.sh after the first ten minutes; checklist.sh sources this file.

# Kernels that start before the previous one ends, and kernels that do not: the head table and rounds both ways, in turns, so that
# a clock that drifts does not favour one. It stands behind the first ten minutes and takes none of their time; each of its eight
# steps ends at 60 seconds. Eight layers of the 8B model load in a quarter of the time, and a round has all its kinds of kernels.
stage_overlap() {
    local right="ops_matmul ops_head" turn way value
    for turn in 1 2; do
        for way in on off; do
            value=$([ $way = on ] && echo 1 || echo 0)
            step "overlap_kernels_${way}_$turn" 60 "$right" env DRAFTSCOPE_GPU_OVERLAP=$value "${bench[@]}" --vocab 128256 \
                --hidden 4096 --rows 1 --json
        done
    done
    for turn in 1 2; do
        for way in on off; do
            value=$([ $way = on ] && echo 1 || echo 0)
            step "overlap_rounds_${way}_$turn" 60 "$right draftscope" env DRAFTSCOPE_GPU_OVERLAP=$value \
                "$draftscope" bench --backend cuda --quiet --json --raw --ignore-eos --model "$llama/8" --drafter none \
                --simulate-acceptance rate:0.84 --prompts "$prompts" --limit 2 --max-new 128 \
                --method "eagle3:$llama/8 x specvocab @ chain=6"
        done
    done
}

# If the demo model was copied (tests/gpu/bundle.sh --model): real text, every kind of head, every rule.
find_model() {
    model=${DRAFTSCOPE_DEMO_MODEL:-}
    if [ -z "$model" ] && [ -f gpu-model/model.sha256 ]; then
        model=$work/model.gguf
        step model 60 "" bash -c 'cat gpu-model/piece.* >"$0" && echo "$(cut -d" " -f1 gpu-model/model.sha256)  $0" | sha256sum -c' \
            "$model"
    fi
    [ -z "$model" ] || export DRAFTSCOPE_DEMO_MODEL=$model
}

stage_demo() {
    find_model
    local needs="ops_matmul ops_head draftscope model demo_model" head
    local options=(--model "${model:-none}" --prompt "$text" --max-new 128)
    step demo_logits 60 "ops_matmul ops_head model demo_model" on_gpu "$tests" \
        --gtest_filter="Devices/DeviceDemo.*/$kind*"
    step demo_none 30 "$needs" "${run[@]}" --drafter none "${options[@]}"
    step demo_eagle3 30 "$needs" "${run[@]}" --drafter eagle3 --head full --baseline 1 "${options[@]}"
    step demo_l2_window 30 "$needs" "${run[@]}" --l2-window --drafter eagle3 --head microspec "${options[@]}"
    for head in slimspec specvocab dynaspec coral microspec vocabtrim-t; do
        step "demo_$head" 30 "$needs file:assets/heads/eagle3/specvocab.safetensors" "${run[@]}" --drafter eagle3 --head $head "${options[@]}"
    done
    step demo_fixed_tree 30 "$needs" "${run[@]}" --drafter eagle3 --head full --tree choices:mc_sim_7b_63 "${options[@]}"
    step demo_fast 40 "$needs" "${run[@]}" --numerics fast --drafter eagle3 --head full "${options[@]}"
    for head in specvocab dynaspec coral microspec vocabtrim+rdk specvocab+rdk; do
        step "demo_pq_$head" 30 "$needs file:assets/heads/eagle3/specvocab.safetensors" "${run[@]}" --drafter eagle3 --head "$head" \
            --verify pq --temperature 1 --top-p 0.9 "${options[@]}"
    done
    step demo_same 20 "demo_none demo_eagle3" python3 "$helper" same "$logs"/demo_{none,eagle3}.log \
        $(existing demo_{l2_window,slimspec,specvocab,dynaspec,coral,microspec,vocabtrim-t,fixed_tree})
    step demo_sampled_none 30 "$needs" "${run[@]}" --temperature 0.8 --drafter none "${options[@]}"
    step demo_sampled 30 "$needs" "${run[@]}" --temperature 0.8 --drafter eagle3 --head full "${options[@]}"
    step demo_sampled_same 20 "demo_sampled_none demo_sampled" python3 "$helper" same "$logs"/demo_sampled{_none,}.log
    stage_rules "$needs"
}

# Logs of the named steps that passed.
existing() {
    local name
    for name in "$@"; do is_ok "$name" && echo "$logs/$name.log"; done
}

# Rules compared with the CPU in bf16 and the same random numbers. Sums round differently, so texts diverge where a random number
# falls between two sums; a wrong mask or sample makes them diverge at once.
stage_rules() {
    local needs=$1 rule options
    local sampled=(--model "${model:-none}" --temperature 1 --prompts "$prompts" --limit 8 --max-new 64 --drafter eagle3 --head full)
    declare -A rules=([top_p]="--top-p 0.9" [top_k]="--top-k 40 --top-p 0.95" [typical]="--verify typical" [pq]="--verify pq"
        [pq_top_p]="--verify pq --top-p 0.9")
    for rule in top_p top_k typical pq pq_top_p; do
        read -ra options <<<"${rules[$rule]}"
        step "rule_$rule" 40 "$needs" "${run[@]}" "${sampled[@]}" "${options[@]}"
        step "rule_${rule}_cpu" 60 "rule_$rule $needs" "$draftscope" run --backend cpu --precision bf16 --quiet --json "${sampled[@]}" \
            "${options[@]}"
        step "rule_${rule}_same" 20 "rule_$rule rule_${rule}_cpu" python3 "$helper" late "$logs/rule_$rule.log" "$logs/rule_${rule}_cpu.log"
    done
    step batch_1 40 "$needs" "${run[@]}" --model "${model:-none}" --drafter eagle3 --prompts "$prompts" --limit 8 --max-new 64
    step batch_8 40 "$needs" "${run[@]}" --model "${model:-none}" --drafter eagle3 --prompts "$prompts" --limit 8 --max-new 64 --batch 8
    step batch_same 20 "batch_1 batch_8" python3 "$helper" same "$logs"/batch_{1,8}.log
}

# Other shapes, comparisons with PyTorch and cuBLASLt, long contexts, batches.
stage_shapes() {
    local right="ops_matmul ops_head" numerics long
    step kernels_beside_torch 120 "$right draftscope kernels_llama_8b" "${bench[@]}" --torch python3 --vocab 128256 --hidden 4096 --rows 1,10 --json
    step kernels_rows 120 "$right" "${bench[@]}" --vocab 128256 --hidden 4096 --rows 4,16,64 --json
    step kernels_qwen3_8b 90 "$right" "${bench[@]}" --vocab 151936 --hidden 4096 --rows 1,10 --json
    step kernels_gpt_oss_20b 90 "$right" "${bench[@]}" --vocab 201088 --hidden 2880 --rank 360 --rows 1,10 --json
    step kernels_olmo2_1b 60 "$right" "${bench[@]}" --vocab 100352 --hidden 2048 --rows 1,10 --json
    step kernels_demo 60 "$right" "${bench[@]}" --vocab 49152 --hidden 576 --rows 1,8 --json
    long=$(printf 'the keeper of the lighthouse wrote a letter to the sea and %.0s' $(seq 600))
    for numerics in exact fast; do
        step "long_$numerics" 60 "$right draftscope" "${synthetic[@]}" --model "$small" --numerics $numerics --drafter none \
            --prompt "$long" --max-new 64
    done
    local methods=() head
    for head in vocabtrim fr-spec dynaspec coral vocabtrim-t pa-fr bcl; do methods+=(--method "eagle3:$llama x $head @ chain=6"); done
    step bench_8b_heads 240 "bench_8b $right draftscope" "$draftscope" bench --backend cuda --quiet --json --raw --ignore-eos \
        --model "$llama" --drafter none --simulate-acceptance rate:0.84 --prompts "$prompts" --limit 4 --max-new 128 "${methods[@]}"
    local packed=("${synthetic[@]}" --model "$llama" --drafter "eagle3:$llama" --head microspec --tree chain=6 --simulate-acceptance rate:0.84)
    step run_8b_microspec 90 "$right draftscope" "${packed[@]}" --prompt "$text" --max-new 192
    step run_8b_l2_window 90 "$right draftscope" "${packed[@]}" --l2-window --prompt "$text" --max-new 192
    step batch_8_8b 120 "$right draftscope" "${synthetic[@]}" --model "$llama" --drafter "eagle3:$llama" --head full --simulate-acceptance rate:0.84 \
        --prompts "$prompts" --limit 8 --batch 8 --max-new 64
}
