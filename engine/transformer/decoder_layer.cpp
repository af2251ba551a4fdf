#include "engine/transformer/decoder_layer.h"

#include <algorithm>

namespace draftscope {
std::size_t DecoderLayer::bytes() const {
    return qkv.bytes() + attn_out.bytes() + gate_up.bytes() + down.bytes() +
           (attn_norm.size() + ffn_norm.size() + qkv_bias.size() + q_norm.size() + k_norm.size() +
            attn_post_norm.size() + ffn_post_norm.size()) *
               sizeof(float);
}

void DecoderBatch::clear() {
    entries_.clear();
    positions_.clear();
    ancestor_slots_.clear();
}

void DecoderBatch::add_row(KvCache& cache, int slot, int position, int prefix, std::span<const int> tail) {
    entries_.push_back(
        {&cache, slot, prefix, static_cast<int>(ancestor_slots_.size()), static_cast<int>(tail.size())});
    positions_.push_back(position);
    ancestor_slots_.insert(ancestor_slots_.end(), tail.begin(), tail.end());
}

std::uint64_t DecoderBatch::kv_bytes(int kv_width, std::size_t value_bytes) const {
    std::uint64_t slots = 0;
    const KvCache* previous = nullptr;
    int longest = 0;
    // Rows of one sequence read their prefix once.
    for (const Entry& entry : entries_) {
        if (entry.cache != previous) slots += static_cast<std::uint64_t>(longest);
        if (entry.cache != previous) longest = 0;
        previous = entry.cache;
        longest = std::max(longest, entry.prefix);
    }
    slots += static_cast<std::uint64_t>(longest) + entries_.size();
    return slots * 2 * static_cast<std::uint64_t>(kv_width) * value_bytes;
}

}  // namespace draftscope
