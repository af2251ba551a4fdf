#include "base/phase.h"

#include <bit>

namespace draftscope {

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
