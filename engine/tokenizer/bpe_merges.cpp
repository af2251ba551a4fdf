#include "engine/tokenizer/bpe_merges.h"

#include <algorithm>
#include <bit>

namespace draftscope {
namespace {

/// Heap order: the best rank is at the top, the leftmost position first for equal ranks.
bool has_lower_priority(const BpeMerges::Scratch::Candidate& a, const BpeMerges::Scratch::Candidate& b) {
    return a.rank != b.rank ? a.rank > b.rank : a.position > b.position;
}

}  // namespace

BpeMerges::BpeMerges(std::size_t count) {
    const std::size_t size = std::bit_ceil(2 * count + 2);
    slots_.assign(size, {empty_key, 0, no_token});
    shift_ = 64 - std::countr_zero(size);
}

void BpeMerges::add(TokenId left, TokenId right, std::int32_t rank, TokenId merged) {
    const std::uint64_t key = make_key(left, right);
    std::size_t slot = first_slot(key);
    while (slots_[slot].key != empty_key && slots_[slot].key != key) slot = (slot + 1) & (slots_.size() - 1);
    slots_[slot] = {key, rank, merged};
}

const BpeMerges::Slot* BpeMerges::find(TokenId left, TokenId right) const {
    const std::uint64_t key = make_key(left, right);
    std::size_t slot = first_slot(key);
    while (slots_[slot].key != key) {
        if (slots_[slot].key == empty_key) return nullptr;
        slot = (slot + 1) & (slots_.size() - 1);
    }
    return &slots_[slot];
}

void BpeMerges::push_candidate(Scratch& scratch, std::int32_t position) const {
    const Scratch::Symbol& left = scratch.symbols[position];
    if (left.next < 0) return;
    const Slot* merge = find(left.id, scratch.symbols[left.next].id);
    if (merge == nullptr) return;
    scratch.queue.push_back({merge->rank, position});
    std::push_heap(scratch.queue.begin(), scratch.queue.end(), has_lower_priority);
}

void BpeMerges::apply(const std::vector<TokenId>& ids, Scratch& scratch, std::vector<TokenId>& out) const {
    const auto count = static_cast<std::int32_t>(ids.size());
    auto& symbols = scratch.symbols;
    symbols.clear();
    scratch.queue.clear();
    for (std::int32_t i = 0; i < count; ++i) symbols.push_back({ids[i], i - 1, i + 1 < count ? i + 1 : -1});
    for (std::int32_t i = 0; i + 1 < count; ++i) push_candidate(scratch, i);

    while (!scratch.queue.empty()) {
        const Scratch::Candidate best = scratch.queue.front();
        std::pop_heap(scratch.queue.begin(), scratch.queue.end(), has_lower_priority);
        scratch.queue.pop_back();
        Scratch::Symbol& left = symbols[best.position];
        if (left.id == no_token || left.next < 0) continue;
        Scratch::Symbol& right = symbols[left.next];
        // Skip stale candidates, whose symbols have merged since; a rank identifies one pair.
        const Slot* merge = find(left.id, right.id);
        if (merge == nullptr || merge->rank != best.rank) continue;
        left.id = merge->merged;
        left.next = right.next;
        if (right.next >= 0) symbols[right.next].previous = best.position;
        right.id = no_token;
        push_candidate(scratch, best.position);
        if (left.previous >= 0) push_candidate(scratch, left.previous);
    }
    for (std::int32_t i = count > 0 ? 0 : -1; i >= 0; i = symbols[i].next) out.push_back(symbols[i].id);
}

}  // namespace draftscope
