#pragma once

#include <cstdint>

#include "base/phase.h"

/// The current phase of a thread, for the work it submits to a GPU. It is read when a graph node is captured
/// and when a kernel is launched. A recorder maintains it while a GpuPhaseStack is its listener. Without GPU
/// tracing there is no listener and no cost.
namespace draftscope {

/// The phase, round and level of a thread.
struct GpuContext {
    Phase phase = Phase::none;  ///< innermost open phase; none outside scopes
    std::int32_t round = -1;
    std::int16_t level = 0;
};
/// Returns the context of the calling thread.
GpuContext current_gpu_context();

/// Maintains the calling thread's stack of phases. Set it as a recorder's listener before the first capture
/// or launch. A back end captures its graphs inside the phase scopes of a decode, so each node has a phase;
/// nodes captured during loading have none.
class GpuPhaseStack : public RangeSink {
  public:
    void open(const SpanEvent& opening) override;
    void close(const SpanEvent& ended) override;
};

/// Forwards each range to two listeners; either may be null.
class TeeRangeSink : public RangeSink {
  public:
    TeeRangeSink(RangeSink* first, RangeSink* second) : first_(first), second_(second) {}
    /// Returns the sink to listen with: this one, the only listener, or null without listeners.
    RangeSink* sink() {
        if (first_ != nullptr && second_ != nullptr) return this;
        return first_ != nullptr ? first_ : second_;
    }
    void open(const SpanEvent& opening) override {
        if (first_ != nullptr) first_->open(opening);
        if (second_ != nullptr) second_->open(opening);
    }
    void close(const SpanEvent& ended) override {
        if (second_ != nullptr) second_->close(ended);
        if (first_ != nullptr) first_->close(ended);
    }

  private:
    RangeSink* first_;
    RangeSink* second_;
};

}  // namespace draftscope
