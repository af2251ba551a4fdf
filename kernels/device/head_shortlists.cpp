#include "kernels/head_shortlists.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "kernels/device/ask_rows.h"
#include "kernels/device/device_matrix.h"

namespace draftscope::kernels {
namespace {

std::size_t count(int rows, int cols) {
    return static_cast<std::size_t>(rows) * static_cast<std::size_t>(cols);
}

}  // namespace

bool DeviceShortlists::fits(const Matrix& up, const RowStore& exact, int size, int k) {
    return up.on_device() && exact.on_device() && can_route(up.n(), size) && k <= size && can_select(size, k);
}

void DeviceShortlists::set_names(const Names& names) {
    tokens_of_.assign(names.tokens.begin(), names.tokens.end());
    rows_of_.assign(names.rows.begin(), names.rows.end());
    named_vocab_ = names.vocab;
    fresh_names_ = true;
}

bool DeviceShortlists::bring_names() {
    if (!std::exchange(fresh_names_, false)) return true;
    const auto bring = [&](const std::vector<std::int32_t>& from, DeviceBuffer& to) {
        if (from.empty()) return true;
        if (!to.reserve(*device_, from.size() * sizeof(std::int32_t))) return false;
        device_->upload(to.as<void>(), from.data(), from.size() * sizeof(std::int32_t));
        return true;
    };
    return bring(tokens_of_, tokens_there_) && bring(rows_of_, rows_there_);
}

/// Rows of the exact head for tokens that lie there.
const std::int32_t* DeviceShortlists::ask_rows_of(const std::int32_t* tokens, int count,
                                                  const std::int32_t* count_there) {
    if (rows_of_.empty()) return tokens;
    device_->translate(
        {tokens, count, count_there, rows_there_.as<std::int32_t>(), exact_rows_.as<std::int32_t>()});
    return exact_rows_.as<std::int32_t>();
}

void DeviceShortlists::ask_router(const Matrix* down, const Matrix& up, Rows<const float> x, int size) {
    device_ = &up.device();
    rows_ = x.rows;
    size_ = size;
    vocab_ = named_vocab_ > 0 ? named_vocab_ : up.n();
    const int columns = up.n();
    most_ = static_cast<int>(std::min<std::size_t>(count(rows_, size_), static_cast<std::size_t>(vocab_)));
    // Candidates, their logits, sums; shortlists; the union and how many it has. `k` is not known yet.
    const std::size_t block = 2 * count(rows_, most_selected) + static_cast<std::size_t>(rows_) +
                              count(rows_, size_) + static_cast<std::size_t>(most_) + 1;
    broken_ =
        !bring_names() || !block_.reserve(*device_, std::bit_ceil(block * sizeof(std::int32_t))) ||
        !scratch_.reserve(*device_, std::bit_ceil(std::max(router_scratch(rows_, columns, size_),
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
    if (broken_) return;
    device_->router(op);
    if (!tokens_of_.empty())
        device_->translate({op.ids, static_cast<int>(count(rows_, size_)), nullptr,
                            tokens_there_.as<std::int32_t>(), op.ids});
}

/// Shortlists are lists of rows already: a product for each.
void DeviceShortlists::ask_each(const RowStore& exact) {
    const auto cells = count(rows_, size_);
    broken_ =
        !logits_.reserve(*device_, std::bit_ceil(cells * sizeof(float))) ||
        !size_there_.reserve(*device_, sizeof(std::int32_t)) ||
        (!rows_of_.empty() && !exact_rows_.reserve(*device_, std::bit_ceil(cells * sizeof(std::int32_t))));
    if (broken_) return device_->fail("out of device memory");
    if (size_said_ != size_) {
        const std::int32_t size = size_said_ = size_;
        device_->upload(size_there_.as<void>(), &size, sizeof size);
    }
    const std::int32_t* rows = ask_rows_of(block_.as<std::int32_t>(), static_cast<int>(cells), nullptr);
    for (int r = 0; r < rows_; ++r) {
        MatmulOp op;
        op.weights = exact.device_matrix();
        op.x = x_ + static_cast<std::ptrdiff_t>(r) * op.weights.stride;
        op.rows = 1;
        op.y = logits_.as<float>() + count(r, size_);
        op.y_stride = size_;
        op.chosen = rows + count(r, size_);
        op.chosen_count = size_there_.as<std::int32_t>();
        op.most_chosen = size_;
        device_->matmul(op);
    }
}

void DeviceShortlists::ask_exact(const RowStore& exact, bool per_row) {
    per_row_ = per_row;
    if (broken_) return;
    if (per_row) return ask_each(exact);
    const auto vocab = static_cast<std::size_t>(vocab_);
    broken_ = !bitmap_.reserve(*device_, (vocab + 31) / 32 * sizeof(std::uint32_t)) ||
              !columns_.reserve(*device_, vocab * sizeof(std::int32_t)) ||
              !logits_.reserve(*device_, std::bit_ceil(count(rows_, most_) * sizeof(float))) ||
              (!rows_of_.empty() &&
               !exact_rows_.reserve(*device_,
                                    std::bit_ceil(static_cast<std::size_t>(most_) * sizeof(std::int32_t))));
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
    op.chosen = ask_rows_of(unite.tokens, most_, unite.size);
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
    op.stride = per_row_ ? size_ : most_;
    op.rows = rows_;
    op.support = size_;
    op.k = k;
    op.ids = chosen + count(rows_, size_) + most_ + 1;
    op.values = reinterpret_cast<float*>(op.ids + count(rows_, k));
    op.logsumexp = op.values + count(rows_, k);
    op.scratch = scratch_.as<void>();
    if (!per_row_) {
        op.own = chosen;
        op.own_stride = size_;
        op.columns = columns_.as<std::int32_t>();
    }
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
    const int found = per_row_ ? 0 : std::clamp(here[picked - 1], 0, most_);
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
