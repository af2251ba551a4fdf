#include "engine/transformer/attention_layout.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "kernels/graph_keys.h"

namespace draftscope {

void AttentionLayout::list(const DecoderBatch& batch) {
    caches_.clear();
    row_sequences_.clear();
    listed_.clear();
    std::int64_t longest = 0;
    for (const DecoderBatch::Entry& entry : batch.entries_) {
        auto found = std::find(listed_.rbegin(), listed_.rend(), entry.cache);
        if (found == listed_.rend()) {
            listed_.push_back(entry.cache);
            caches_.push_back(entry.cache->planes());
            found = listed_.rbegin();
        }
        row_sequences_.push_back(static_cast<std::int32_t>(std::distance(found, listed_.rend()) - 1));
        longest = std::max<std::int64_t>(longest, entry.prefix + entry.ancestor_count);
    }
    const auto needed =
        static_cast<unsigned>((longest + kernels::attention_block - 1) / kernels::attention_block);
    blocks_ = static_cast<int>(std::bit_ceil(std::max(needed, 1u)));
    list_tiles();
}

void AttentionLayout::list_tiles() {
    const int max_rows = kernels::attention_tile_rows(heads_);
    tiles_.clear();
    for (int r = 0; r < static_cast<int>(row_sequences_.size()); ++r) {
        const bool joins =
            !tiles_.empty() && tiles_.back() < max_rows && row_sequences_[r] == row_sequences_[r - 1];
        if (joins) {
            ++tiles_.back();
        } else {
            tiles_.insert(tiles_.end(), {r, 1});
        }
    }
}

/// Uploads the caches' addresses if they changed. An upload between two passes makes a device wait for its
/// copy engine.
bool AttentionLayout::upload_caches(kernels::Backend& backend) {
    const auto same = [](const kernels::KvPlanes& a, const kernels::KvPlanes& b) {
        return a.data == b.data && a.plane == b.plane && a.type == b.type;
    };
    if (std::ranges::equal(caches_, uploaded_, same)) return true;
    uploaded_.clear();
    if (!d_caches_.upload(backend, caches_)) return false;
    uploaded_ = caches_;
    return true;
}

AttentionLayout::Uploaded& AttentionLayout::add_layout() {
    if (layouts_.size() == num_layouts_) layouts_.emplace_back();
    return layouts_[num_layouts_++];
}

/// Lists the arrays of AttentionBatch in the order of select(), after list().
void AttentionLayout::list_values(const DecoderBatch& batch, std::vector<std::int32_t>& out) const {
    using Entry = DecoderBatch::Entry;
    const auto add = [&](const auto& values) { out.insert(out.end(), values.begin(), values.end()); };
    const auto add_field = [&](int Entry::*field) {
        for (const Entry& row : batch.entries_) out.push_back(row.*field);
    };
    out.clear();
    add(row_sequences_);
    add_field(&Entry::slot);
    add(batch.positions_);
    add_field(&Entry::prefix);
    add_field(&Entry::ancestor_first);
    add_field(&Entry::ancestor_count);
    add(tiles_);
    add(batch.ancestor_slots_);
}

/// Uploads the listed layouts. Graphs contain their addresses, which depend on the sizes of the layouts
/// before until a reallocation.
bool AttentionLayout::upload_listed(kernels::Backend& backend) {
    std::size_t count = 0;
    for (std::size_t i = 0; i < num_layouts_; ++i) count += layouts_[i].values.size();
    if (!d_batch_.begin(backend, count)) {
        num_layouts_ = 0;
        return false;
    }
    for (std::size_t i = 0; i < num_layouts_; ++i) layouts_[i].d_values = d_batch_.add(layouts_[i].values);
    d_batch_.upload(backend);
    return true;
}

bool AttentionLayout::upload(kernels::Backend& backend, std::span<const DecoderBatch> batches) {
    num_layouts_ = 0;
    for (const DecoderBatch& batch : batches) {
        list(batch);
        list_values(batch, add_layout().values);
    }
    return upload_listed(backend);
}

bool AttentionLayout::select(kernels::Backend& backend, const DecoderBatch& batch) {
    list_values(batch, values_);
    const auto end = layouts_.begin() + static_cast<std::ptrdiff_t>(num_layouts_);
    auto found =
        std::find_if(layouts_.begin(), end, [&](const Uploaded& one) { return one.values == values_; });
    if (found == end) {
        num_layouts_ = 0;
        std::swap(add_layout().values, values_);
        if (!upload_listed(backend)) return false;
        found = layouts_.begin();
    }
    if (!upload_caches(backend)) return false;
    const std::int32_t* at = found->d_values;
    const auto take = [&](std::size_t count) { return std::exchange(at, at + count); };
    const std::size_t rows = batch.entries_.size();
    batch_.caches = d_caches_.data();
    for (const std::int32_t** field : {&batch_.sequence, &batch_.slot, &batch_.position, &batch_.prefix,
                                       &batch_.ancestor_first, &batch_.ancestor_count})
        *field = take(rows);
    batch_.tiles = take(tiles_.size());
    batch_.ancestor_slots = at;
    return true;
}

void AttentionLayout::add_to_key(std::vector<std::int64_t>& key) const {
    key.insert(key.end(), {blocks_, kernels::as_key(batch_.sequence), kernels::as_key(batch_.position),
                           kernels::as_key(batch_.ancestor_count), kernels::as_key(batch_.ancestor_slots),
                           kernels::as_key(d_caches_.data())});
    key.insert(key.end(), tiles_.begin(), tiles_.end());
}

}  // namespace draftscope
