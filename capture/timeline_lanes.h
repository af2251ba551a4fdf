#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "capture/rows.h"

/// The lanes of nested intervals on the timeline of a run. Each row stores prefix sums that give the busy
/// time of any range at any zoom without reading its intervals (docs/decisions/0017).
namespace draftscope {

/// `levels`: the draft levels of the critical lane, each from its first to its last span.
enum class LaneKind { steps, levels, cpu, gpu, nvtx };

/// Busy time by phase.
using PhaseSums = std::array<TimeNs, 32>;

/// Intervals that do not overlap, in time order. Fields are stored separately, so that a search touches
/// little memory, and in chunks, so that growth never moves rows. A copy shares the chunks and does not
/// change while the original grows. One thread may append to the original while others read copies.
class TimelineRow {
  public:
    void append(TimeNs start, TimeNs end, std::uint8_t phase, std::uint32_t source, int level = 0);
    /// Keeps only the first `count` intervals. Copies keep all of theirs.
    void keep_first(std::size_t count);
    std::size_t size() const { return size_; }
    TimeNs start(std::size_t i) const { return chunk(i).start(i % chunk_rows); }
    TimeNs end(std::size_t i) const { return chunk(i).end(i % chunk_rows); }
    std::uint8_t phase(std::size_t i) const { return chunk(i).phase[i % chunk_rows]; }
    /// Returns the draft level, at most 255.
    int level(std::size_t i) const { return chunk(i).level[i % chunk_rows]; }
    /// Returns an index into the lane's table; for `levels` and `cpu` lanes, the argument of
    /// Snapshot::span().
    std::uint32_t source(std::size_t i) const { return chunk(i).source[i % chunk_rows]; }
    /// Returns the first interval that ends after `t`.
    std::size_t first_after(TimeNs t) const;
    /// Returns the first interval at or after `from` that starts at or after `t`.
    std::size_t first_starting(TimeNs t, std::size_t from) const;
    /// Sums the durations of the first `count` intervals by phase. Returns the number of intervals it read
    /// individually, always below 64.
    std::size_t busy_before(std::size_t count, PhaseSums& out) const;
    /// As busy_before(), for the intervals [first, last).
    std::size_t busy_by_phase(std::size_t first, std::size_t last, PhaseSums& out) const;

  private:
    static constexpr std::size_t chunk_rows = 1024, block = 64;
    /// Times relative to the chunk's first start. In nearly all chunks they fit 32 bits.
    template <typename Time>
    struct Times {
        std::array<Time, chunk_rows> start, length;
        /// Sums within the chunk before each block.
        std::array<std::array<Time, 32>, chunk_rows / block> sums;
    };
    struct Chunk {
        // Leaves the arrays uninitialised: append() writes them row by row.
        explicit Chunk(TimeNs first) : base(first) {}
        /// Returns `use` of the times in their width.
        template <typename Use>
        auto with_times(Use use) const {
            return narrow ? use(*narrow) : use(*wide);
        }
        TimeNs start(std::size_t i) const {
            return base + with_times([i](const auto& times) { return static_cast<TimeNs>(times.start[i]); });
        }
        TimeNs length(std::size_t i) const {
            return with_times([i](const auto& times) { return static_cast<TimeNs>(times.length[i]); });
        }
        TimeNs end(std::size_t i) const { return start(i) + length(i); }

        TimeNs base;
        PhaseSums before;                              ///< sums of all earlier chunks
        std::unique_ptr<Times<std::uint32_t>> narrow;  ///< set if all times fit 32 bits
        std::unique_ptr<Times<TimeNs>> wide;           ///< set otherwise
        std::array<std::uint32_t, chunk_rows> source;
        std::array<std::uint8_t, chunk_rows> phase, level;
    };
    const Chunk& chunk(std::size_t i) const { return *chunks_[i / chunk_rows]; }
    static std::shared_ptr<Chunk> copy_prefix(const Chunk& from, std::size_t rows, bool narrow);
    template <typename Time>
    void write_times(Times<Time>& times, std::size_t at, TimeNs start, TimeNs length, std::uint8_t phase);

    std::vector<std::shared_ptr<Chunk>> chunks_;
    std::vector<TimeNs> last_start_, last_end_;  ///< of each chunk, for searches
    std::size_t size_ = 0;
    PhaseSums running_{};
};

/// A lane of the timeline with one row per nesting depth.
struct TimelineLane {
    LaneKind kind = LaneKind::cpu;
    std::string name;
    int key = 0, sub_key = 0;       ///< lane and thread, or stream
    std::vector<TimelineRow> rows;  ///< by nesting depth
};

struct RunLanes {
    RowId run_id = 0;
    std::vector<TimelineLane> lanes;  ///< by kind, key, sub_key
    TimeNs begin = 0, end = 0;

    bool empty() const { return end <= begin; }
};

/// Places the recorded items of a run on its lanes. Adding an out-of-order item lays out the rest of its lane
/// again.
class LaneBuilder {
  public:
    explicit LaneBuilder(RowId run_id) { lanes_.run_id = run_id; }
    void add_step(const StepRow& step, std::uint32_t source);
    /// `sources`: parallel to `spans`.
    void add_spans(std::span<const SpanRow> spans, std::span<const std::uint32_t> sources);
    /// The sources of the rows are consecutive numbers from `first`.
    void add_gpu_ops(std::span<const GpuOpRow> ops, std::uint32_t first);
    void add_nvtx_ranges(std::span<const NvtxRangeRow> ranges, std::uint32_t first);
    /// Returns the current lanes. Returns the same object as before if nothing was added.
    std::shared_ptr<const RunLanes> view() const;
    RowId run_id() const { return lanes_.run_id; }

  private:
    struct Item {
        TimeNs start, end;
        std::uint32_t source;
        std::uint8_t phase;
        int level;
    };
    TimelineLane& lane(LaneKind kind, int key, int sub_key, const std::string& name);
    void add(TimelineLane& lane, std::vector<Item>& items);
    void add_levels(std::span<const SpanRow> spans, const std::vector<std::uint32_t>& order,
                    std::span<const std::uint32_t> sources);
    static void sort_outer_first(std::vector<Item>& items);
    static void place(TimelineLane& lane, const std::vector<Item>& items);

    RunLanes lanes_;
    mutable std::shared_ptr<const RunLanes> view_;
    std::vector<Item> items_;           ///< temporary buffer
    std::vector<std::uint32_t> order_;  ///< temporary buffer
};

}  // namespace draftscope
