#pragma once

#include <cstdint>
#include <vector>

#include "base/device_timer.h"
#include "base/phase.h"

namespace draftscope {

/// Spans of work that a device is only asked for while they are open: the host's clock says nothing about it,
/// marks on the device's queue do.
class DeviceSpans {
  public:
    /// Forgets the spans before. The queue is known to be empty now, or nearly. Null: the host's times.
    void begin(DeviceTimer* timer);
    /// To the spans of a phase at a level: bytes that are known later than they are read.
    void add_bytes(Phase phase, int level, std::uint64_t bytes) {
        for (Timed& timed : timed_)
            timed.event.bytes += timed.event.phase == phase && timed.event.level == level ? bytes : 0;
    }
    /// After the device was waited for. A mark that cannot be read leaves the host's time.
    void record(PhaseRecorder& phases);

    /// Listeners hear of it as of any other range, so that GPU work asked for inside is known to be this
    /// phase's.
    class Scope {
      public:
        Scope(DeviceSpans& spans, PhaseRecorder& phases, Phase phase, int level, int rows,
              std::uint64_t bytes);
        Scope(const Scope&) = delete;
        Scope& operator=(const Scope&) = delete;
        ~Scope();
        void add_bytes(std::uint64_t bytes) { event_.bytes += bytes; }

      private:
        DeviceSpans& spans_;
        RangeSink* listener_ = nullptr;
        SpanEvent event_;
        std::uint32_t from_ = 0;
    };

  private:
    struct Timed {
        SpanEvent event;
        std::uint32_t from = 0, to = 0;  ///< marks
    };
    DeviceTimer* timer_ = nullptr;
    std::uint64_t start_ticks_ = 0;
    std::vector<Timed> timed_;
};

}  // namespace draftscope
