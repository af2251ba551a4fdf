#include "kernels/embedding_table.h"

#include <algorithm>
#include <vector>

#include "base/numel.h"

namespace draftscope::kernels {
namespace {

/// Rows per upload.
constexpr int batch_rows = 1024;

}  // namespace

bool EmbeddingTable::load(Backend& backend) {
    if (backend.is_host() || on_device_.as<float>() != nullptr) return true;
    if (refused_ == backend.oom_epoch()) return false;
    if (!on_device_.reserve(backend, numel(vocab_, d_) * sizeof(float))) {
        refused_ = backend.oom_epoch();
        return false;
    }
    std::vector<float> rows(numel(std::min(batch_rows, vocab_), d_));
    for (int first = 0; first < vocab_; first += batch_rows) {
        const int n = std::min(batch_rows, vocab_ - first);
        for (int i = 0; i < n; ++i) read(first + i, rows.data() + numel(i, d_));
        backend.upload(on_device_.as<float>() + numel(first, d_), rows.data(), numel(n, d_) * sizeof(float));
    }
    return true;
}

void EmbeddingTable::enqueue(Backend& backend, const std::int32_t* tokens, int rows, float* to,
                             std::int64_t stride) const {
    if (!backend.is_host())
        return backend.copy_rows({.from = on_device_.as<float>(),
                                  .from_stride = d_,
                                  .rows = tokens,
                                  .count = rows,
                                  .cols = d_,
                                  .to = to,
                                  .to_stride = stride});
    for (int i = 0; i < rows && !backend.has_error(); ++i) read(tokens[i], to + i * stride);
}

}  // namespace draftscope::kernels
