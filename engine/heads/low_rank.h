#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/numel.h"
#include "engine/heads/artefact.h"
#include "kernels/device_array.h"

namespace draftscope {

/// The first of two products, activation(W x + b), whose result is the input of the second.
class DownProjection {
  public:
    /// Reserves memory for up to `rows` rows. Returns false if out of memory.
    bool reserve(kernels::Backend& backend, const kernels::Matrix& weights, int rows) {
        return result_.resize_at_least(backend, numel(rows, weights.n())) &&
               rounded_.reserve(backend, numel(rows, kernels::padded_columns(weights.n())));
    }
    /// Enqueues the product and returns its result, [rows, padded_columns(weights.n())]. `bias` [n], in the
    /// backend's memory, may be null.
    kernels::Activations enqueue(kernels::Backend& backend, const kernels::Matrix& weights,
                                 kernels::Activations x, int rows, const float* bias = nullptr,
                                 kernels::Activation activation = kernels::Activation::none);

  private:
    kernels::DeviceArray<float> result_;
    kernels::ActivationBuffer rounded_;
};

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
