#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/heads/artefact.h"

namespace draftscope {

/// Low-rank scorers of a head artefact, z = W_up (W_down h), one per draft level or one for all levels. Used
/// for SlimSpec's head (arXiv 2605.10453) and SpecVocab's speculator (arXiv 2602.13836, section 3).
class LowRankScorer {
  public:
    /// Loads `down` and `up_name` or their per-level forms. Inconsistent ranks, a row count other than that
    /// of `ids` (of the vocabulary if absent), and a rank other than the metadata's are bad_input.
    static Result<LowRankScorer> load(kernels::Backend& backend, const HeadWeights& weights,
                                      const HeadArtefact& artefact, const std::string& up_name);

    /// Number of scored rows, which is the row count of W_up.
    int rows() const { return rows_; }
    /// Token of each row, ascending; empty = row i is token i.
    const std::vector<TokenId>& ids() const { return ids_; }
    TokenId token(int row) const { return ids_.empty() ? row : ids_[row]; }
    const kernels::Matrix& down(int level) const { return *at(level).down; }
    const kernels::Matrix& up(int level) const { return *at(level).up; }
    /// Bytes of weights that a call reads.
    std::uint64_t bytes(int level) const { return at(level).down->bytes() + at(level).up->bytes(); }
    double flops_per_row(int level) const;

  private:
    struct Level {
        std::shared_ptr<const kernels::Matrix> down;  ///< [r, d]
        std::shared_ptr<const kernels::Matrix> up;    ///< [rows, r]
    };
    const Level& at(int level) const;

    std::vector<Level> levels_;
    std::vector<TokenId> ids_;
    int rows_ = 0;
};

}  // namespace draftscope
