#include "kernels/token_set_union.h"

#include <algorithm>
#include <cassert>

#include "base/numel.h"
#include "kernels/cpu/dispatch.h"
#include "kernels/cpu/matmul/layout.h"
#include "kernels/cpu/split.h"
#include "kernels/cpu/vector/selection.h"

namespace draftscope::kernels {

namespace {

/// Marks the numbers of `row` from index `at` on that are within a chunk from `base`. Returns the index of
/// the first number after the chunk. Uses locals only: a byte that is written may alias anything.
int mark(std::span<const std::int32_t> row, int at, int base, std::uint8_t bit, std::uint8_t* marks) {
    const std::int32_t* const numbers = row.data();
    const int width = static_cast<int>(row.size()), end = base + TokenSetUnion::mark_chunk;
    for (; at < width && numbers[at] < end; ++at) marks[numbers[at] - base] |= bit;
    return at;
}

}  // namespace

void TokenSetUnion::unite(const Exec& exec, Rows<const std::int32_t> lists, std::vector<std::int32_t>& out) {
    rows_ = lists.rows;
    width_ = lists.cols;
    if (lists.rows <= 1) {
        const std::int32_t* only = lists.data;
        out.assign(only, only + (lists.rows == 0 ? 0 : width_));
        members_ = static_cast<int>(out.size());
        return;
    }
    const auto groups = static_cast<std::size_t>(ceil_div(rows_, rows_per_byte));
    const std::size_t max_members = std::min(numel(rows_, width_), static_cast<std::size_t>(n_));
    if (marks_.size() < groups * mark_chunk) marks_.resize(groups * mark_chunk);
    if (owners_.size() < groups * max_members) owners_.resize(groups * max_members);
    next_.assign(rows_, 0);
    out.resize(max_members + SetScratch::slack);
    members_ = 0;
    for (int base = 0; base < n_; base += mark_chunk) {
        for (int r = 0; r < rows_; ++r) {
            std::uint8_t* marks = marks_.data() + row_offset(r / rows_per_byte, mark_chunk);
            int& next = next_[r];
            next = mark(lists.row(r), next, base, bit(r), marks);
        }
        std::int32_t* found = out.data() + members_;
        const int count =
            row_kernels(exec).take_marked(marks_.data(), mark_chunk, static_cast<int>(groups), found);
        for (std::size_t g = 0; g < groups; ++g) {
            std::uint8_t* marks = marks_.data() + g * mark_chunk;
            std::uint8_t* owners = owners_.data() + g * max_members + members_;
            for (int i = 0; i < count; ++i) {
                owners[i] = marks[found[i]];
                marks[found[i]] = 0;
            }
        }
        for (int i = 0; i < count; ++i) found[i] += base;
        members_ += count;
    }
    owner_stride_ = max_members;
    out.resize(members_);
}

std::span<const std::uint8_t> TokenSetUnion::owners(int row) const {
    if (rows_ <= 1) return {};
    return std::span(owners_).subspan(numel(row / rows_per_byte, owner_stride_), members_);
}

void topk_per_set(Exec& exec, Rows<const float> x, const TokenSetUnion& sets, int k, Rows<std::int32_t> ids,
                  Rows<float> values, std::span<float> logsumexp) {
    assert(k > 0 && sets.rows() == x.rows && sets.members() == x.cols && ids.rows == x.rows);
    const RowKernels& kernels = row_kernels(exec);
    const int n = sets.row_set_size(), kept = std::min(k, n), parts = ceil_div(n, segment);
    const auto width = static_cast<std::size_t>(n);
    const std::size_t keys_bytes = std::max(width, static_cast<std::size_t>(k)) * sizeof(std::uint64_t);
    const std::size_t parts_bytes = parts * sizeof(SumPart);
    // One comparison per column, one exponential per column of a row's own.
    const std::int64_t operations = std::int64_t{x.rows} * (x.cols + 24 * std::int64_t{n});
    split_range(exec, x.rows, operations, [&](int thread, int begin, int end) {
        std::byte* scratch =
            exec.scratch(thread, keys_bytes + parts_bytes + (width + SetScratch::slack) * sizeof(float));
        auto* keys = reinterpret_cast<std::uint64_t*>(scratch);
        auto* sums = reinterpret_cast<SumPart*>(scratch + keys_bytes);
        auto* packed = reinterpret_cast<float*>(scratch + keys_bytes + parts_bytes);
        for (int r = begin; r < end; ++r) {
            const float* own = x.row_data(r);
            if (const auto owners = sets.owners(r); !owners.empty()) {
                kernels.take_owned(own, owners.data(), TokenSetUnion::bit(r), x.cols, packed);
                own = packed;
            }
            for (int s = 0; s < parts; ++s)
                sums[s] = sum_part(kernels, own + s * segment, std::min(segment, n - s * segment));
            logsumexp[r] = join_sums(sums, parts);
            if (kept == 0) continue;
            int found = kept;
            if (kept <= max_heap) {
                BestKeys best{keys, kept};
                best.add(kernels, own, 0, n);
            } else {
                found = keys_by_sample(kernels, own, n, kept, keys);
                std::nth_element(keys, keys + kept - 1, keys + found, std::greater<>{});
                found = kept;
            }
            write_best(keys, found, kept, ids.row_data(r), values.row_data(r));
        }
    });
}

}  // namespace draftscope::kernels
