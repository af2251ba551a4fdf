#pragma once

#include <cstdint>
#include <span>
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

}  // namespace draftscope
