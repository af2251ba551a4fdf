#include "kernels/head_clusters.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "kernels/cpu/layout.h"
#include "kernels/device/ask_rows.h"
#include "kernels/device/workspace.h"

namespace draftscope::kernels {

void DeviceClusters::set_tokens(std::vector<std::int32_t> tokens) {
    tokens_ = std::move(tokens);
    tokens_there_ = DeviceBuffer();
}

bool DeviceClusters::fits(const Matrix& rows, int support, int k) {
    return rows.on_device() && support >= 1 && can_select(support, k);
}

void DeviceClusters::propose(const Matrix& rows, std::span<const int> blocks, Rows<const float> x, int runs,
                             std::span<const std::int32_t> ends, std::span<const std::int32_t> shifts, int k,
                             Rows<std::int32_t> ids, Rows<float> values, std::span<float> sums) {
    Device& device = rows.device();
    const std::lock_guard lock(device.busy());
    DeviceWorkspace& space = device.workspace();
    const int columns = static_cast<int>(blocks.size()) * lanes;
    const auto cells = static_cast<std::size_t>(x.rows) * static_cast<std::size_t>(k);
    // Columns with their number in front, then the rows' runs.
    said_.assign(1, columns);
    for (const int block : blocks)
        for (int i = 0; i < lanes; ++i) said_.push_back(std::min(block * lanes + i, rows.n() - 1));
    said_.insert(said_.end(), ends.begin(), ends.end());
    said_.insert(said_.end(), shifts.begin(), shifts.end());
    int support = 1;
    for (int r = 0; r < x.rows; ++r)
        support =
            std::max(support, ends[static_cast<std::size_t>(r + 1) * static_cast<std::size_t>(runs) - 1]);
    if (tokens_there_.as<void>() == nullptr) {
        if (!tokens_there_.reserve(device, tokens_.size() * sizeof(std::int32_t)))
            return device.fail("out of device memory");
        device.upload(tokens_there_.as<void>(), tokens_.data(), tokens_.size() * sizeof(std::int32_t));
    }
    if (!lists_.reserve(device, std::bit_ceil(said_.size() * sizeof(std::int32_t))))
        return device.fail("out of device memory");
    device.upload(lists_.as<void>(), said_.data(), said_.size() * sizeof(std::int32_t));
    const auto* lists = lists_.as<std::int32_t>();
    MatmulOp product;
    product.weights = rows.device_matrix();
    product.x = ask_rows(device, nullptr, rows, x);
    product.rows = x.rows;
    product.y = space.reserve<float>(device, space.logits,
                                     static_cast<std::size_t>(x.rows) * static_cast<std::size_t>(columns));
    product.y_stride = columns;
    product.chosen_count = lists;
    product.chosen = lists + 1;
    product.most_chosen = columns;
    SelectOp best;
    best.scratch = space.reserve<std::byte>(device, space.select, select_scratch(x.rows, support, k));
    auto* packed =
        space.reserve<std::int32_t>(device, space.ids, 2 * cells + static_cast<std::size_t>(x.rows));
    if (product.x == nullptr || product.y == nullptr || best.scratch == nullptr || packed == nullptr) return;
    device.matmul(product);
    best.logits = product.y;
    best.stride = columns;
    best.rows = x.rows;
    best.support = support;
    best.k = k;
    best.ids = packed;
    best.values = reinterpret_cast<float*>(packed + cells);
    best.logsumexp = best.values + cells;
    best.run_ends = lists + 1 + columns;
    best.run_shifts = best.run_ends + ends.size();
    best.runs = runs;
    best.column_rows = product.chosen;
    best.row_tokens = tokens_there_.as<std::int32_t>();
    device.select(best);
    bring_candidates(device, packed, x.rows, k, ids, values, sums);
}

}  // namespace draftscope::kernels
