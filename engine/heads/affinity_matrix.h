#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "engine/heads/artefact.h"
#include "kernels/device_array.h"

namespace draftscope {

/// A sparse matrix over tokens. Row t has weights[i] in column tokens[i] if first[t] <= i < first[t + 1].
struct SparseRows {
    std::vector<std::int32_t> first;  ///< [V + 1]
    std::vector<TokenId> tokens;
    std::vector<float> weights;
    std::span<const TokenId> row(TokenId token) const {
        return std::span(tokens).subspan(first[token], first[token + 1] - first[token]);
    }
};

/// SparseRows in device memory.
struct DeviceSparseRows {
    kernels::DeviceArray<std::int32_t> first, tokens;
    kernels::DeviceArray<float> weights;
    bool upload(kernels::Backend& backend, const SparseRows& rows);
};

/// How the tokens share their probability with others (arXiv 2506.03206).
struct AffinityMatrix {
    SparseRows targets;     ///< row t is what token t gives to others
    SparseRows sources;     ///< row t is what token t gets, in the order of the tokens that give it
    std::size_t width = 1;  ///< entries of a row of the file

    /// Loads `neighbours` and `weights` for a vocabulary. A token without a row keeps its probability.
    static Result<AffinityMatrix> load(const HeadArtefact& artefact, int vocab);
};

/// An affinity matrix and its copy in the backend's memory.
class DeviceAffinity {
  public:
    void set(AffinityMatrix matrix) {
        matrix_ = std::move(matrix);
        is_uploaded_ = false;
    }
    const AffinityMatrix& matrix() const { return matrix_; }
    /// Uploads the matrix once. Returns false if out of memory. A device reads the sources only, the CPU also
    /// the targets.
    bool upload(kernels::Backend& backend);
    /// Points an op at the uploaded matrix.
    void set_matrix(kernels::RedistributeOp& op) const;
    void set_matrix(kernels::ReachableTokensOp& op) const;

  private:
    AffinityMatrix matrix_;
    bool is_uploaded_ = true;
    DeviceSparseRows targets_, sources_;
};

}  // namespace draftscope
