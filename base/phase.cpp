#include "base/phase.h"

#include <bit>

#include "base/phase_names.h"

namespace draftscope {

namespace {

constexpr std::array<std::string_view, phase_count> phase_texts = {
    "",
    "target forward over the prompt",
    "drafter layers, fc, embedding, catch-up, beam hidden gather",
    "candidate scoring before the exact logits",
    "draft logits, exact or low-rank",
    "candidate top-k per row and per beam",
    "softmax statistics of the draft logits",
    "candidate rows and buffer refill",
    "ids of a shortlist to ids of the vocabulary",
    "tree selection, masks, positions",
    "target forward over the tree with its LM head",
    "acceptance walk and sampling",
    "KV compaction, detokenising, bookkeeping",
    "step time that no phase accounts for",
};

constexpr std::array<PhaseInfo, phase_count> make_table() {
    static_assert(phase_rows.size() == phase_count);
    std::array<PhaseInfo, phase_count> table{};
    for (std::size_t i = 0; i < table.size(); ++i)
        table[i] = {static_cast<Phase>(phase_rows[i].id), phase_rows[i].name,
                    static_cast<Phase>(phase_rows[i].parent_id), phase_rows[i].rgb, phase_texts[i]};
    return table;
}

constexpr std::array<PhaseInfo, phase_count> table = make_table();

}  // namespace

const std::array<PhaseInfo, phase_count>& phase_table() {
    return table;
}

PhaseRecorder::PhaseRecorder(std::uint32_t thread_id, std::size_t capacity)
    : ring_(std::bit_ceil(capacity < 2 ? std::size_t{2} : capacity)),
      mask_(ring_.size() - 1),
      thread_id_(thread_id) {}

void PhaseRecorder::drain(std::vector<SpanEvent>& out) {
    const std::uint64_t head = head_.load(std::memory_order_acquire);
    std::uint64_t tail = tail_.load(std::memory_order_relaxed);
    out.reserve(out.size() + static_cast<std::size_t>(head - tail));
    for (; tail != head; ++tail) out.push_back(ring_[tail & mask_]);
    tail_.store(tail, std::memory_order_release);
}

}  // namespace draftscope
