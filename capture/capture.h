#pragma once

#include <array>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "base/result.h"
#include "capture/record.h"
#include "capture/timeline_lanes.h"

namespace draftscope {

/// Append-only table in chunks of fixed size. A copy shares the chunks, so making one copies one pointer per
/// chunk. Only the original appends, on one thread. The rows of a copy never change; copies are passed to
/// other threads under a mutex.
template <typename Row, std::size_t ChunkRows = 512>
class LogTable {
  public:
    std::size_t size() const { return size_; }
    bool empty() const { return size_ == 0; }
    const Row& operator[](std::size_t i) const {
        assert(i < size_);
        return (*chunks_[i / ChunkRows])[i % ChunkRows];
    }
    const Row& back() const { return (*this)[size_ - 1]; }
    void push_back(Row row) {
        if (size_ == chunks_.size() * ChunkRows) chunks_.push_back(std::make_shared<Chunk>());
        (*chunks_.back())[size_ % ChunkRows] = std::move(row);
        ++size_;
    }

    struct Iterator {
        const LogTable* table;
        std::size_t i;
        const Row& operator*() const { return (*table)[i]; }
        Iterator& operator++() { return ++i, *this; }
        bool operator==(const Iterator&) const = default;
    };
    Iterator begin() const { return {this, 0}; }
    Iterator end() const { return {this, size_}; }

  private:
    using Chunk = std::array<Row, ChunkRows>;
    std::vector<std::shared_ptr<Chunk>> chunks_;
    std::size_t size_ = 0;
};

/// First row and number of rows in a table ordered by id. It lets a round find its nodes without a search.
struct RowRange {
    std::uint32_t first = 0;
    std::uint32_t count = 0;
};
/// A step with the ranges of its rows in the other tables.
struct StepEntry {
    StepRow row;
    RowRange rounds;
    RowRange spans;                ///< spans recorded with the step; late GPU spans are joined by step id
    RowRange phases;               ///< sums of the spans; set only if `stored` holds the spans
    std::uint32_t head_calls = 0;  ///< spans of phase `head` recorded with the step
};
/// A round with the ranges of its rows in the other tables.
struct RoundEntry {
    RoundRow row;
    RowRange nodes, tops, tokens, head_evals;
    std::uint32_t step_index = 0;  ///< index into Snapshot::steps
};

/// A GPU span that arrived after its step. Late spans are found by step id without a full scan.
struct LateSpan {
    std::uint32_t span = 0;  ///< index into Snapshot::spans
    RowId newest_step = 0;   ///< highest step id of the late spans so far; never decreases
};

/// The draft tree of a round.
struct RoundTree {
    std::vector<NodeRow> nodes;  ///< parents before children; the root is first
    std::vector<NodeTopRow> tops;
    std::string problem;  ///< why the tree could not be read; "" = no error
};
/// Draft trees and spans that stay in their file until a reader requests them. Thread-safe.
class OnDiskRows {
  public:
    virtual ~OnDiskRows() = default;
    virtual std::shared_ptr<const RoundTree> tree(RowId round_id) const = 0;
    virtual std::optional<SpanRow> span(RowId id) const = 0;  ///< absent if it can't be read
    /// Writes everything in the file to a new file at `out`, which must not exist.
    virtual Status save_copy(const std::string& out) const = 0;
};

/// Everything the panels show. Immutable and cheap to copy; live and stored captures use the same type.
struct Snapshot {
    std::uint64_t version = 0;  ///< increases with every publication
    std::vector<RunRow> runs;
    std::vector<TimeNs> run_end_ns;       ///< parallel to `runs`; 0 while the run is live
    std::vector<ClockAnchorRow> anchors;  ///< at starts and ends of runs, so that copies keep the clock
    std::vector<std::shared_ptr<const PromptRow>> prompts;  ///< in id order
    LogTable<StepEntry> steps;
    LogTable<RoundEntry> rounds;
    LogTable<NodeRow> nodes;                   ///< empty if `stored` is set: use tree()
    LogTable<NodeTopRow> tops;                 ///< as `nodes`
    std::shared_ptr<const OnDiskRows> stored;  ///< rows that stay in a large file; else null
    LogTable<TokenRow> tokens;
    LogTable<SpanRow> spans;             ///< empty if `stored` is set: lanes hold the times, span() the rest
    LogTable<StepPhaseRow> step_phases;  ///< see StepEntry::phases
    std::vector<std::shared_ptr<const RunLanes>> lanes;  ///< of the runs that have lanes
    LogTable<LateSpan> late_spans;
    RowId late_lag = 0;  ///< largest distance in step ids between a late span and `newest_step`
    LogTable<HeadEvalRow> head_evals;
    LogTable<GpuOpRow> gpu_ops;
    LogTable<NvtxRangeRow> nvtx_ranges;
    LogTable<CounterRow> counters;
    std::vector<LossRow> losses;
    std::vector<NoteRow> notes;
    std::vector<std::shared_ptr<const Vocab>> vocabs;
    std::shared_ptr<const LiveRound> live;  ///< null if no round is in flight
    /// The round in flight as a capture of one step, for the panels that show steps. The tables above don't
    /// contain it, so no statistic counts it. Null if no round is in flight.
    std::shared_ptr<const Snapshot> in_flight;
    std::string source;  ///< file path; "" = live

    const RunRow* run(RowId id) const;
    const PromptRow* prompt(RowId id) const;
    const Vocab* vocab(RowId id) const;
    /// Returns the run's lanes; null if it has none yet.
    std::shared_ptr<const RunLanes> lanes_for(RowId run_id) const;
    /// Returns the span that TimelineRow::source() identifies; absent if its file can't be read.
    std::optional<SpanRow> span(std::uint32_t at) const;
    /// Returns the draft tree of `rounds[round]`, from memory or from the file.
    std::shared_ptr<const RoundTree> tree(std::size_t round) const;
    /// Returns a range of `late_spans` that contains all late spans of the step, and possibly others.
    RowRange late_range(RowId step_id) const;
};

/// Applies records in order and makes snapshots. One thread (the recorder or a file loader) owns it.
class Capture {
  public:
    void apply(const Record& record);
    Snapshot snapshot(std::uint64_t version) const;
    void set_source(std::string path) { base_.source = std::move(path); }
    /// Leaves the trees and spans of the following records in `rows`. Call it before the first record. Such
    /// spans carry only their ids and what their lanes need; steps carry their phases.
    void set_stored(std::shared_ptr<const OnDiskRows> rows) { base_.stored = std::move(rows); }

  private:
    struct Applier;
    LaneBuilder& lanes_for(RowId run_id);
    RowRange append_spans(const std::vector<SpanRow>& spans);
    void append_step(const StepRecord& record);
    void append_late(RowId step_id, std::uint32_t span);
    std::shared_ptr<const Snapshot> snapshot_in_flight(const LiveRound& live) const;
    void append_round(const RoundRecord& record, std::uint32_t step_index);

    Snapshot base_;  ///< without lanes
    std::vector<LaneBuilder> lanes_;
    std::vector<std::uint32_t> sources_;  ///< temporary buffer
};

/// Holds the newest snapshot: the recorder publishes it and the window reads it. Thread-safe.
class SnapshotSlot {
  public:
    void publish(std::shared_ptr<const Snapshot> snapshot) {
        const std::lock_guard lock(mutex_);
        current_ = std::move(snapshot);
    }
    std::shared_ptr<const Snapshot> take() const {
        const std::lock_guard lock(mutex_);
        return current_;
    }

  private:
    mutable std::mutex mutex_;
    std::shared_ptr<const Snapshot> current_ = std::make_shared<Snapshot>();
};

}  // namespace draftscope
