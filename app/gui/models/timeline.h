#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "capture/capture.h"

/// What the Timeline panel draws: lanes of nested intervals, and the part of them that one view needs.
namespace draftscope {

/// `levels`: the draft levels of the critical lane, each from its first span to its last.
enum class LaneKind { steps, levels, cpu, gpu, nvtx };

/// Busy time by phase.
using PhaseSums = std::array<TimeNs, 32>;

/// Intervals that do not overlap, in time order; kept apart by field, so that a search touches little memory,
/// and in pieces, so that growing never moves what is there.
class TimelineRow {
  public:
    void append(TimeNs start, TimeNs end, std::uint8_t phase, std::uint32_t source);
    void clear();
    std::size_t size() const { return size_; }
    TimeNs start(std::size_t i) const { return piece(i).start[i % piece_rows]; }
    TimeNs end(std::size_t i) const { return piece(i).end[i % piece_rows]; }
    std::uint8_t phase(std::size_t i) const { return piece(i).phase[i % piece_rows]; }
    /// Index into the lane's table.
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
    struct Piece {
        std::array<TimeNs, piece_rows> start, end;
        std::array<std::uint32_t, piece_rows> source;
        std::array<std::uint8_t, piece_rows> phase;
        std::array<PhaseSums, piece_rows / block> sums;  ///< of everything before each block
    };
    const Piece& piece(std::size_t i) const { return pieces_[i / piece_rows]; }

    std::deque<Piece> pieces_;
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

/// All lanes of one run. Grows with the snapshot; what it has seen is never looked at again unless a late
/// interval arrives before the last one of its lane (then that lane is rebuilt).
class TimelineIndex {
  public:
    /// Takes in what is new in `snapshot`; starts over when the run or the capture is another one.
    void update(const Snapshot& snapshot, RowId run_id);
    const std::vector<TimelineLane>& lanes() const { return lanes_; }
    RowId run_id() const { return run_id_; }
    TimeNs begin() const { return begin_; }
    TimeNs end() const { return end_; }
    bool empty() const { return end_ <= begin_; }
    /// Changes whenever an update added something.
    std::uint64_t revision() const { return revision_; }

  private:
    struct Item {
        TimeNs start, end;
        std::uint8_t phase;
        std::uint32_t source;
    };
    struct Pending {
        LaneKind kind;
        int key, sub_key;
        std::string name;
        std::vector<Item> items;
    };
    Pending& pending(std::vector<Pending>& all, LaneKind kind, int key, int sub_key, const char* name);
    void collect(const Snapshot& snapshot, std::vector<Pending>& out);
    static void collect_levels(const Snapshot& snapshot, std::vector<Pending>& out);
    TimelineLane& lane_for(const Pending& batch);
    void add(TimelineLane& lane, std::vector<Item> items);
    static void sort_outer_first(std::vector<Item>& items);
    static void place(TimelineLane& lane, const std::vector<Item>& items);

    std::vector<TimelineLane> lanes_;
    RowId run_id_ = 0;
    std::string source_;
    TimeNs started_ = 0;  ///< a new capture may use the same run id: its run began at another time
    std::size_t spans_seen_ = 0, gpu_seen_ = 0, nvtx_seen_ = 0, steps_seen_ = 0;
    TimeNs begin_ = 0, end_ = 0;
    std::uint64_t revision_ = 0;
};

/// One rectangle to draw. A single interval, or (count > 1) intervals too narrow to be drawn one by one that
/// start in the same pixel column.
struct TimelineBlock {
    TimeNs start = 0, end = 0;  ///< merged: first start, last end
    int column = 0;             ///< merged: the pixel column
    std::uint32_t count = 1;
    std::uint8_t phase = 0;   ///< merged: the phase with the most time
    std::uint32_t index = 0;  ///< in the row; the first one when merged
    float density = 1;        ///< merged: part of the column that is covered, at most 1
};

struct TimelineView {
    TimeNs begin = 0, end = 1;
    int columns = 1;
    double ns_per_column() const { return static_cast<double>(end - begin) / columns; }
};
/// At most two blocks per pixel column, whatever the number of intervals. Returns how many of these it looked
/// at one by one (the search per column not among them): under 128 for each merged block, and under 64 for
/// those behind another one. The sums of the row are the level of detail for every zoom, exact at each.
std::size_t visible_blocks(const TimelineRow& row, const TimelineView& view, std::vector<TimelineBlock>& out);

/// The interval at time `t`, within `slack_ns` of it (for narrow ones).
std::optional<std::size_t> interval_at(const TimelineRow& row, TimeNs t, TimeNs slack_ns);

/// Zooms by `factor` (< 1 = in) so that the time under `at` (0..1 of the width) stays where it is.
TimelineView zoom_view(const TimelineView& view, double factor, double at, TimeNs least_span_ns);
/// Round distance between time marks so that about `marks` fit.
TimeNs tick_step(TimeNs span, int marks);
/// "12.5 ms", "800 us": three significant digits.
std::string duration_text(TimeNs ns);

/// What a draft level is called: level 0 is the catch-up forward.
std::string level_name(int level);

/// Lines for the tooltip of an interval.
std::vector<std::string> describe_interval(const Snapshot& snapshot, const TimelineLane& lane,
                                           const TimelineRow& row, std::size_t index);
/// Round to select when the interval is clicked: index into Snapshot::rounds.
std::optional<std::size_t> round_of_interval(const Snapshot& snapshot, const TimelineLane& lane,
                                             const TimelineRow& row, std::size_t index);
/// Step with this id: index into Snapshot::steps.
std::optional<std::size_t> find_step(const Snapshot& snapshot, RowId step_id);

}  // namespace draftscope
