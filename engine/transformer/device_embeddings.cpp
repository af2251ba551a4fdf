#include "engine/transformer/device_embeddings.h"

#include <algorithm>
#include <vector>

#include "base/numel.h"

namespace draftscope {
namespace {

/// Rows per upload.
constexpr int batch_rows = 1024;

}  // namespace

const float* DeviceEmbeddings::get(kernels::Backend& backend, int vocab, int d,
                                   FunctionRef<void(std::span<const TokenId>, Rows<float>)> embed) {
    if (refused_ == backend.oom_epoch() || table_.as<float>() != nullptr) return table_.as<float>();
    if (!table_.reserve(backend, numel(vocab, d) * sizeof(float))) {
        refused_ = backend.oom_epoch();
        return nullptr;
    }
    std::vector<TokenId> tokens;
    std::vector<float> rows(numel(batch_rows, d));
    for (int first = 0; first < vocab; first += batch_rows) {
        const int n = std::min(batch_rows, vocab - first);
        tokens.clear();
        for (int i = 0; i < n; ++i) tokens.push_back(first + i);
        embed(tokens, Rows<float>(rows.data(), n, d));
        backend.upload(table_.as<float>() + numel(first, d), rows.data(), numel(n, d) * sizeof(float));
    }
    return table_.as<float>();
}

}  // namespace draftscope
