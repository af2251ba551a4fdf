#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "capture/rows.h"

/// The lanes of nested intervals that a timeline shows of a run, and for each row of them the sums that give
/// any stretch of it at any zoom without a look at its intervals (docs/decisions/0017).
namespace draftscope {

/// `levels`: the draft levels of the critical lane, each from its first span to its last.
enum class LaneKind { steps, levels, cpu, gpu, nvtx };

/// Busy time by phase.
using PhaseSums = std::array<TimeNs, 32>;

/// Intervals that do not overlap, in time order; kept apart by field, so that a search touches little memory,
/// and in pieces, so that growing never moves what is there. A copy shares the pieces and stays as it is
/// while the original grows: one thread may append to the original while others read copies.
class TimelineRow {
  public:
    void append(TimeNs start, TimeNs end, std::uint8_t phase, std::uint32_t source, int level = 0);
    /// Only the first `count` intervals stay; copies keep all.
    void keep_first(std::size_t count);
    std::size_t size() const { return size_; }
    TimeNs start(std::size_t i) const { return piece(i).start(i % piece_rows); }
    TimeNs end(std::size_t i) const { return piece(i).end(i % piece_rows); }
    std::uint8_t phase(std::size_t i) const { return piece(i).phase[i % piece_rows]; }
    /// Of a draft, at most 255.
    int level(std::size_t i) const { return piece(i).level[i % piece_rows]; }
    /// Index into the lane's table; of levels and cpu lanes what Snapshot::span() takes.
    std::uint32_t source(std::size_t i) const { return piece(i).source[i % piece_rows]; }
    /// First interval that ends after `t`.
    std::size_t first_after(TimeNs t) const;
    /// First interval, at or after `from`, that starts at or after `t`.
    std::size_t first_starting(TimeNs t, std::size_t from) const;
    /// Summed durations of the first `count` intervals by phase. Returns how many of them it looked at one by
    /// one: under 64, however many there are.
    std::size_t busy_before(std::size_t count, PhaseSums& out) const;
    /// The same of [first, last).
    std::size_t busy_by_phase(std::size_t first, std::size_t last, PhaseSums& out) const;

  private:
    static constexpr std::size_t piece_rows = 1024, block = 64;
    /// Times count from the piece's first start. Those of nearly all pieces fit 32 bits.
    template <typename Time>
    struct Times {
        std::array<Time, piece_rows> start, length;
        std::array<std::array<Time, 32>, piece_rows / block> sums;  ///< in the piece before each block
    };
    struct Piece {
        explicit Piece(TimeNs first) : base(first) {}  // the rows are written one by one
        TimeNs start(std::size_t i) const {
            return base + (narrow ? static_cast<TimeNs>(narrow->start[i]) : wide->start[i]);
        }
        TimeNs length(std::size_t i) const {
            return narrow ? static_cast<TimeNs>(narrow->length[i]) : wide->length[i];
        }
        TimeNs end(std::size_t i) const { return start(i) + length(i); }

        TimeNs base;
        PhaseSums before;                              ///< of everything before the piece
        std::unique_ptr<Times<std::uint32_t>> narrow;  ///< either these
        std::unique_ptr<Times<TimeNs>> wide;           ///< or these
        std::array<std::uint32_t, piece_rows> source;
        std::array<std::uint8_t, piece_rows> phase, level;
    };
    const Piece& piece(std::size_t i) const { return *pieces_[i / piece_rows]; }
    static std::shared_ptr<Piece> copy_of(const Piece& from, std::size_t rows, bool narrow);
    template <typename Time>
    void write_times(Times<Time>& times, std::size_t at, TimeNs start, TimeNs length, std::uint8_t phase);

    std::vector<std::shared_ptr<Piece>> pieces_;
    std::vector<TimeNs> last_start_, last_end_;  ///< of each piece, for the searches
    std::size_t size_ = 0;
    PhaseSums running_{};
};

struct TimelineLane {
    LaneKind kind = LaneKind::cpu;
    std::string name;
    int key = 0, sub_key = 0;       ///< lane and thread, or stream
    std::vector<TimelineRow> rows;  ///< by nesting depth
};

/// All lanes of one run.
struct RunLanes {
    RowId run_id = 0;
    std::vector<TimelineLane> lanes;  ///< by kind, key, sub_key
    TimeNs begin = 0, end = 0;

    bool empty() const { return end <= begin; }
};

/// Places what is recorded of a run on its lanes. What comes late makes its lane from there on be placed
/// again.
class LaneBuilder {
  public:
    explicit LaneBuilder(RowId run_id) { lanes_.run_id = run_id; }
    void add_step(const StepRow& step, std::uint32_t source);
    /// `sources`: parallel to `spans`.
    void add_spans(std::span<const SpanRow> spans, std::span<const std::uint32_t> sources);
    /// The rows' sources are counted up from `first`.
    void add_gpu_ops(std::span<const GpuOpRow> ops, std::uint32_t first);
    void add_nvtx_ranges(std::span<const NvtxRangeRow> ranges, std::uint32_t first);
    /// As of now; the same object as before when nothing was added.
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
    std::vector<Item> items_;           ///< scratch
    std::vector<std::uint32_t> order_;  ///< scratch
};

}  // namespace draftscope
