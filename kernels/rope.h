#pragma once

#include <span>
#include <vector>

#include "base/spans.h"
#include "kernels/exec.h"

namespace draftscope::kernels {

/// cos and sin of every position, each [positions, head_dim / 2]. `divisors` (head_dim / 2, may be empty)
/// divide the base frequencies (llama-3 scaling).
struct RopeTable {
    int head_dim = 0;
    int positions = 0;
    std::vector<float> cos, sin;
};
RopeTable make_rope_table(int head_dim, float theta, int positions, std::span<const float> divisors = {});

/// Applies RoPE to every head of each row, in place. Pairs are half-split: (x[j], x[j + head_dim/2]). Row r
/// is at positions[r]; x is [M, heads * head_dim].
void rope(Exec& exec, Rows<float> x, int heads, const RopeTable& table, std::span<const int> positions);

}  // namespace draftscope::kernels
