#pragma once

#include <cstdint>

#include "profiler/phase.h"

/// Which phase a thread is in, for work that it hands to a GPU: read when a graph node is captured and when a
/// kernel is launched. A recorder keeps it while one of these is its listener; without GPU tracing nothing
/// listens and nothing is paid.
namespace draftscope {

struct GpuContext {
    Phase phase = Phase::none;  ///< innermost open phase; none outside scopes
    std::int32_t round = -1;
    std::int16_t level = 0;
};
/// Of the calling thread.
GpuContext current_gpu_context();

/// Keeps the calling thread's stack of phases. Set it as a recorder's listener before anything is captured
/// or launched; open and close come on the recording thread. A back end captures its graphs inside the phase
/// scopes of a decode, so that each node has its phase; what is captured while loading has none.
class GpuPhaseStack : public RangeListener {
  public:
    void open(const SpanEvent& opening) override;
    void close(const SpanEvent& ended) override;
};

/// Tells two listeners; either may be null.
class ListenerPair : public RangeListener {
  public:
    ListenerPair(RangeListener* first, RangeListener* second) : first_(first), second_(second) {}
    void open(const SpanEvent& opening) override {
        if (first_ != nullptr) first_->open(opening);
        if (second_ != nullptr) second_->open(opening);
    }
    void close(const SpanEvent& ended) override {
        if (second_ != nullptr) second_->close(ended);
        if (first_ != nullptr) first_->close(ended);
    }

  private:
    RangeListener* first_;
    RangeListener* second_;
};

}  // namespace draftscope
