#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "base/clock.h"
#include "base/phase_names.h"
#include "base/units.h"

/// Phase scopes, the engine's interface to the profiler. A scope writes one event to its recorder's ring
/// buffer. If an NVTX listener is attached, it is also mirrored as a range in domain `draftscope`.
namespace draftscope {

/// Ids are stored in capture files: append only, never renumber. base/phase_names.h has a row for each.
enum class Phase : std::uint8_t {
    none = 0,
    prefill = 1,
    backbone = 2,
    router = 3,
    head = 4,
    topk = 5,
    softmax = 6,  ///< child of topk
    gather = 7,
    remap = 8,  ///< child of gather
    rerank = 9,
    verify = 10,
    accept = 11,
    commit = 12,
    remainder = 13,  ///< never recorded: step time minus the union of leaf spans on the critical lane
};
inline constexpr int phase_count = 14;
inline std::string_view to_text(Phase phase) {
    return phase_rows[static_cast<std::size_t>(phase)].name;
}

/// `side` = work that overlaps the critical path on another thread.
enum class Lane : std::uint8_t { critical = 0, side = 1 };

/// One recorded span. Times are ticks of base/clock.h.
struct SpanEvent {
    std::uint64_t start_ticks = 0;
    std::uint64_t end_ticks = 0;
    std::uint64_t bytes = 0;  ///< weights and activations that the span moves
    std::int32_t round = -1;  ///< ordinal of the round in its run; -1 outside rounds (prefill)
    std::int32_t rows = 0;
    std::int16_t level = 0;  ///< draft level; extending the drafter's cache is level 0
    Phase phase = Phase::none;
    Lane lane = Lane::critical;
    std::uint8_t depth = 0;   ///< nesting depth, 0 = outermost
    std::uint8_t worker = 0;  ///< side-lane thread that did the work, from 1; 0 = the recording thread
};

/// Called when a range opens and closes, on the recording thread. NVTX mirror and GPU phase stack implement
/// it. Rows and bytes may be known only at close.
class RangeSink {
  public:
    virtual ~RangeSink() = default;
    /// Gets the values known at that time: phase, round, level, usually rows and bytes.
    virtual void open(const SpanEvent& opening) = 0;
    virtual void close(const SpanEvent& ended) = 0;
};

/// Called for outermost scopes on the recording thread (the gate's "step phase"). Both functions may block;
/// their time does not count to the phase.
class PhaseObserver {
  public:
    virtual ~PhaseObserver() = default;
    /// Runs before the scope's clock starts. Rows and bytes may be unknown.
    virtual void phase_begins(const SpanEvent& opening) = 0;
    /// Runs after the scope was recorded.
    virtual void phase_ended(const SpanEvent& event) = 0;
};

/// Single-producer single-consumer ring buffer of span events. One per recording thread. If the ring is full,
/// events are dropped and counted.
class PhaseRecorder {
  public:
    explicit PhaseRecorder(std::uint32_t thread_id = 0, std::size_t capacity = 1u << 14);

    void set_round(std::int32_t round) { round_ = round; }
    std::int32_t round() const { return round_; }
    void set_range_sink(RangeSink* range_sink) { range_sink_ = range_sink; }
    /// For work whose times are known later: the caller opens and closes its ranges here and calls record().
    RangeSink* range_sink() const { return range_sink_; }
    void set_observer(PhaseObserver* observer) { observer_ = observer; }
    PhaseObserver* observer() const { return observer_; }
    void set_enabled(bool enabled) { enabled_ = enabled; }
    bool enabled() const { return enabled_; }
    std::uint32_t thread_id() const { return thread_id_; }

    /// Records a span that another thread measured (side lanes). Call it on the recording thread.
    void record(const SpanEvent& event) {
        if (enabled_) push(event);
    }
    /// Appends all events since the last drain. Consumer side.
    void drain(std::vector<SpanEvent>& out);
    /// Returns the number of events dropped since the last call.
    std::uint64_t take_dropped() { return dropped_.exchange(0, std::memory_order_relaxed); }

  private:
    friend class PhaseScope;
    void push(const SpanEvent& event) {
        const std::uint64_t head = head_.load(std::memory_order_relaxed);
        if (head - tail_.load(std::memory_order_acquire) >= ring_.size()) {
            dropped_.fetch_add(1, std::memory_order_relaxed);
            return;
        }
        ring_[head & mask_] = event;
        head_.store(head + 1, std::memory_order_release);
    }

    std::vector<SpanEvent> ring_;
    std::uint64_t mask_ = 0;
    alignas(64) std::atomic<std::uint64_t> head_{0};
    alignas(64) std::atomic<std::uint64_t> tail_{0};
    std::atomic<std::uint64_t> dropped_{0};
    RangeSink* range_sink_ = nullptr;
    PhaseObserver* observer_ = nullptr;
    std::int32_t round_ = -1;
    std::uint32_t thread_id_ = 0;
    std::uint8_t depth_ = 0;
    bool enabled_ = true;
};

/// Opens a phase for the lifetime of the object. `rows` and `bytes` may be set until it closes.
class PhaseScope {
  public:
    PhaseScope(PhaseRecorder& recorder, Phase phase, int level = 0, int rows = 0, std::uint64_t bytes = 0,
               Lane lane = Lane::critical)
        : recorder_(recorder) {
        if (!recorder_.enabled_) return;
        event_.phase = phase;
        event_.level = static_cast<std::int16_t>(level);
        event_.rows = rows;
        event_.bytes = bytes;
        event_.lane = lane;
        event_.round = recorder_.round_;
        event_.depth = recorder_.depth_;
        if (recorder_.observer_ != nullptr && event_.depth == 0) recorder_.observer_->phase_begins(event_);
        ++recorder_.depth_;
        if (recorder_.range_sink_ != nullptr) recorder_.range_sink_->open(event_);
        event_.start_ticks = ticks_now();
    }
    PhaseScope(const PhaseScope&) = delete;
    PhaseScope& operator=(const PhaseScope&) = delete;
    ~PhaseScope() { close(); }

    void add_bytes(std::uint64_t bytes) { event_.bytes += bytes; }
    void set_rows(int rows) { event_.rows = rows; }
    /// Ends the scope early; later calls do nothing.
    void close() {
        if (event_.phase == Phase::none) return;
        event_.end_ticks = ticks_now();
        --recorder_.depth_;
        recorder_.push(event_);
        if (recorder_.range_sink_ != nullptr) recorder_.range_sink_->close(event_);
        const SpanEvent ended = event_;
        event_.phase = Phase::none;
        if (recorder_.observer_ != nullptr && ended.depth == 0) recorder_.observer_->phase_ended(ended);
    }

  private:
    PhaseRecorder& recorder_;
    SpanEvent event_{};
};

}  // namespace draftscope
