#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/device_timer.h"
#include "base/function_ref.h"
#include "base/phase.h"
#include "kernels/backend.h"

namespace draftscope {

/// Records phase spans of work that is only enqueued while they are open. Their times are marks on the
/// device's queue, because the host's clock would measure the enqueuing. If the work ends with the span, on
/// the CPU and while watched, a span is a PhaseScope.
class DeviceSpans {
  public:
    /// Discards all spans. Call it while the queue is empty or nearly empty: device times count from here. If
    /// `observed`, each span ends with Backend::synchronize(). If not `sampled`, a device's spans are ranges
    /// of the recorder's sink only.
    void begin(kernels::Backend& backend, bool observed = false, bool sampled = true);
    /// Returns `bytes` of an op's values in the backend's memory, or 0 if its caches hold them.
    std::uint64_t value_bytes(std::uint64_t bytes) const {
        return backend_->limits().caches_values ? 0 : bytes;
    }
    /// Adds bytes that are known only after the wait to the first span of a phase at a level. Spans that are
    /// recorded before, watched ones and the CPU's, do not change, and `bytes` is not called for them.
    void add_bytes(Phase phase, int level, FunctionRef<std::uint64_t()> bytes) {
        for (Timed& timed : timed_) {
            if (timed.event.phase != phase || timed.event.level != level) continue;
            timed.event.bytes += bytes();
            return;
        }
    }
    /// Records the spans; call it after Backend::synchronize(). A span whose marks cannot be read keeps the
    /// host's times.
    void record(PhaseRecorder& phases);

    /// A span, open for the lifetime of the object. It is also a range of the recorder's sink, so that GPU
    /// work enqueued within it is attributed to this phase.
    class Scope {
      public:
        Scope(DeviceSpans& spans, PhaseRecorder& phases, Phase phase, int level, int rows,
              std::uint64_t bytes);
        Scope(const Scope&) = delete;
        Scope& operator=(const Scope&) = delete;
        ~Scope();
        void add_bytes(std::uint64_t bytes) {
            event_.bytes += bytes;
            if (at_once_) at_once_->add_bytes(bytes);
        }
        /// Adds `bytes_each` for each item of `count`, which an op has computed. On a device the count is
        /// known only after the wait, and nothing is added.
        void add_bytes(const std::int32_t* count, double bytes_each) {
            add_bytes(static_cast<std::uint64_t>(spans_.backend_->known_count(count, 0) * bytes_each));
        }

      private:
        std::optional<PhaseScope> at_once_;
        DeviceSpans& spans_;
        RangeSink* listener_ = nullptr;
        SpanEvent event_;
        std::uint32_t from_ = 0;
    };

  private:
    struct Timed {
        SpanEvent event;
        std::uint32_t from = 0, to = 0;  ///< marks of the timer
    };
    kernels::Backend* backend_ = nullptr;
    bool observed_ = false, sampled_ = true;
    bool at_once_ = false;  ///< the work of a span ends with it
    DeviceTimer* timer_ = nullptr;
    std::uint64_t start_ticks_ = 0;
    std::vector<Timed> timed_;
};

}  // namespace draftscope
