#pragma once

#include <cstdint>
#include <vector>

#include "kernels/ops/tree.h"

namespace draftscope::kernels {

/// Grows and re-ranks draft trees on the CPU. Keeps its buffers between calls.
class TreeOps {
  public:
    void beam(const BeamOp& op);
    void rerank(const RerankOp& op);

  private:
    void add_candidates(const BeamOp& op);
    void choose_next(const BeamOp& op);
    void list_next(const BeamOp& op);
    void keep_best(const float* scores, int count, int keep);

    std::vector<float> scores_;       ///< of the level's candidates
    std::vector<int> rows_;           ///< row that each of them continues
    std::vector<int> pool_indices_;   ///< a static tree: candidate of each cell [complete rows, k]; -1 = none
    std::vector<int> order_;          ///< indices of candidates
    std::vector<int> next_static_;    ///< a static tree: index in the complete next level of each row
    std::vector<std::int32_t> node_;  ///< node of each candidate; -1 = left out
};

}  // namespace draftscope::kernels
