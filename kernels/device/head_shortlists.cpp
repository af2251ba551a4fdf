#include "kernels/head_shortlists.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "kernels/device/ask_rows.h"
#include "kernels/device/device_matrix.h"

namespace draftscope::kernels {
namespace {

std::size_t count(int rows, int cols) {
    return static_cast<std::size_t>(rows) * static_cast<std::size_t>(cols);
}

}  // namespace

bool DeviceShortlists::fits(const Matrix& up, const RowStore& exact, int size, int k) {
    return up.on_device() && exact.on_device() && up.n() <= exact.n() && can_route(up.n(), size) &&
           k <= size && can_select(size, k);
}

void DeviceShortlists::ask_router(const Matrix* down, const Matrix& up, Rows<const float> x, int size) {
    device_ = &up.device();
    rows_ = x.rows;
    size_ = size;
    vocab_ = up.n();
    most_ = static_cast<int>(std::min<std::size_t>(count(rows_, size_), static_cast<std::size_t>(vocab_)));
    // Candidates, their logits, sums; shortlists; the union and how many it has. `k` is not known yet.
    const std::size_t block = 2 * count(rows_, most_selected) + static_cast<std::size_t>(rows_) +
                              count(rows_, size_) + static_cast<std::size_t>(most_) + 1;
    broken_ =
        !block_.reserve(*device_, std::bit_ceil(block * sizeof(std::int32_t))) ||
        !scratch_.reserve(*device_, std::bit_ceil(std::max(router_scratch(rows_, vocab_, size_),
                                                           select_scratch(rows_, size_, most_selected))));
    if (broken_) return device_->fail("out of device memory");
    RouterOp op;
    op.weights = up.device_matrix();
    op.rows = rows_;
    op.k = size_;
    op.ids = block_.as<std::int32_t>();
    op.scratch = scratch_.as<void>();
    op.x = ask_rows(*device_, down, up, x, &x_);
    broken_ = op.x == nullptr;
    if (!broken_) device_->router(op);
}

void DeviceShortlists::ask_exact(const RowStore& exact) {
    if (broken_) return;
    const auto vocab = static_cast<std::size_t>(vocab_);
    broken_ = !bitmap_.reserve(*device_, (vocab + 31) / 32 * sizeof(std::uint32_t)) ||
              !columns_.reserve(*device_, vocab * sizeof(std::int32_t)) ||
              !logits_.reserve(*device_, std::bit_ceil(count(rows_, most_) * sizeof(float)));
    if (broken_) return device_->fail("out of device memory");
    auto* chosen = block_.as<std::int32_t>();
    auto* together = chosen + count(rows_, size_);
    UnionOp unite;
    unite.ids = chosen;
    unite.count = static_cast<std::int64_t>(count(rows_, size_));
    unite.vocab = vocab_;
    unite.bitmap = bitmap_.as<std::uint32_t>();
    unite.tokens = together;
    unite.columns = columns_.as<std::int32_t>();
    unite.size = together + most_;
    device_->unite(unite);
    MatmulOp op;
    op.weights = exact.device_matrix();
    op.x = x_;
    op.rows = rows_;
    op.y = logits_.as<float>();
    op.y_stride = most_;
    op.chosen = unite.tokens;
    op.chosen_count = unite.size;
    op.most_chosen = most_;
    device_->matmul(op);
}

void DeviceShortlists::ask_best(int k) {
    k_ = k;
    if (broken_) return;
    auto* chosen = block_.as<std::int32_t>();
    SelectOp op;
    op.logits = logits_.as<float>();
    op.stride = most_;
    op.rows = rows_;
    op.support = size_;
    op.k = k;
    op.ids = chosen + count(rows_, size_) + most_ + 1;
    op.values = reinterpret_cast<float*>(op.ids + count(rows_, k));
    op.logsumexp = op.values + count(rows_, k);
    op.scratch = scratch_.as<void>();
    op.own = chosen;
    op.own_stride = size_;
    op.columns = columns_.as<std::int32_t>();
    device_->select(op);
}

void DeviceShortlists::bring(Rows<std::int32_t> ids, Rows<float> values, std::span<float> sums,
                             std::vector<std::int32_t>& chosen, std::vector<std::int32_t>& together) {
    const std::size_t listed = count(rows_, size_), cells = count(rows_, k_);
    const std::size_t picked = listed + static_cast<std::size_t>(most_) + 1;
    std::vector<std::int32_t> here(picked + 2 * cells + static_cast<std::size_t>(rows_), 0);
    if (!broken_) device_->download(here.data(), block_.as<void>(), here.size() * sizeof(std::int32_t));
    (void)device_->finish();  // an error stays, and fails the next forward
    const auto from = [&](std::size_t at) { return here.begin() + static_cast<std::ptrdiff_t>(at); };
    chosen.assign(from(0), from(listed));
    const int found = std::clamp(here[picked - 1], 0, most_);
    together.assign(from(listed), from(listed + static_cast<std::size_t>(found)));
    for (int r = 0; r < rows_; ++r) {
        const std::size_t at = picked + count(r, k_);
        for (int i = 0; i < k_; ++i) {
            const std::int32_t place = here[at + static_cast<std::size_t>(i)];
            ids.row_data(r)[i] =
                place < 0 ? no_token : chosen[count(r, size_) + static_cast<std::size_t>(place)];
        }
        std::memcpy(values.row_data(r), here.data() + at + cells,
                    static_cast<std::size_t>(k_) * sizeof(float));
    }
    std::memcpy(sums.data(), here.data() + picked + 2 * cells,
                static_cast<std::size_t>(rows_) * sizeof(float));
}

}  // namespace draftscope::kernels
