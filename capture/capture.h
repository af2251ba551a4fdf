#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "base/result.h"
#include "capture/log_table.h"
#include "capture/record.h"
#include "capture/step_phases.h"
#include "capture/timeline_lanes.h"

namespace draftscope {

/// First row and count in an id-ordered table, so that a round finds its nodes without a search.
struct RowRange {
    std::uint32_t first = 0;
    std::uint32_t count = 0;
};
struct StepEntry {
    StepRow row;
    RowRange rounds;
    RowRange spans;                ///< spans recorded with the step; late ones (GPU) are joined by step id
    RowRange phases;               ///< with `stored` rows, whose spans are not here: what they add up to
    std::uint32_t head_calls = 0;  ///< spans of phase head recorded with the step
};
struct RoundEntry {
    RoundRow row;
    RowRange nodes, tops, tokens, head_evals;
    std::uint32_t step_index = 0;  ///< into Snapshot::steps
};

/// A span that came after its step (GPU), found by step id without a look at all of them.
struct LateSpan {
    std::uint32_t span = 0;  ///< into Snapshot::spans
    RowId newest_step = 0;   ///< highest step id of the late spans up to this one: never falls
};

/// The draft tree of a round.
struct RoundTree {
    std::vector<NodeRow> nodes;  ///< parents before children; the root is first
    std::vector<NodeTopRow> tops;
    std::string problem;  ///< why it could not be read; "" = it could
};
/// Draft trees and spans that stay in their file until somebody looks at one. Any thread may ask.
class StoredRows {
  public:
    virtual ~StoredRows() = default;
    virtual std::shared_ptr<const RoundTree> tree(RowId round_id) const = 0;
    virtual std::optional<SpanRow> span(RowId id) const = 0;  ///< absent when it can't be read
    /// Everything that is in the file as a new one at `out`, which must not exist.
    virtual Status save_copy(const std::string& out) const = 0;
};

/// Everything the panels show: immutable, cheap to copy, the same whether it came live or from a file.
struct Snapshot {
    std::uint64_t version = 0;  ///< grows with every publication
    std::vector<RunRow> runs;
    std::vector<TimeNs> run_end_ns;       ///< parallel to runs; 0 while live
    std::vector<ClockAnchorRow> anchors;  ///< of starts and ends, so that copies keep the clock
    std::vector<std::shared_ptr<const PromptRow>> prompts;  ///< in id order
    LogTable<StepEntry>::View steps;
    LogTable<RoundEntry>::View rounds;
    LogTable<NodeRow>::View nodes;             ///< empty with `stored`: ask tree()
    LogTable<NodeTopRow>::View tops;           ///< as nodes
    std::shared_ptr<const StoredRows> stored;  ///< what is left in a large file
    LogTable<TokenRow>::View tokens;
    LogTable<SpanRow>::View spans;  ///< empty with `stored`: the lanes have their times, span() the rest
    LogTable<StepPhaseRow>::View step_phases;            ///< see StepEntry::phases
    std::vector<std::shared_ptr<const RunLanes>> lanes;  ///< of runs with any
    LogTable<LateSpan>::View late_spans;
    RowId late_lag = 0;  ///< most step ids by which a late span lay behind `newest_step`
    LogTable<HeadEvalRow>::View head_evals;
    LogTable<GpuOpRow>::View gpu_ops;
    LogTable<NvtxRangeRow>::View nvtx_ranges;
    LogTable<GpuCounterRow>::View gpu_counters;
    LogTable<CounterRow>::View counters;
    std::vector<LossRow> losses;
    std::vector<NoteRow> notes;
    std::vector<std::shared_ptr<const Vocab>> vocabs;
    std::shared_ptr<const LiveRound> live;  ///< null when no round is in flight
    /// The round in flight as a capture of one step, for whatever shows steps. No statistic counts it: it is
    /// in none of the tables above. Null when no round is in flight.
    std::shared_ptr<const Snapshot> in_flight;
    std::string source;  ///< "" live, else the file's path

    const RunRow* run(RowId id) const;
    const PromptRow* prompt(RowId id) const;
    const Vocab* vocab(RowId id) const;
    /// Printable text of a token of the run's target; "" when the vocabulary is not known.
    std::string_view token_text(const RunRow& run, TokenId token) const;
    /// The run's lanes; null while it has none.
    std::shared_ptr<const RunLanes> lanes_of(RowId run_id) const;
    /// The span that TimelineRow::source() names, wherever it is; absent when its file can't be read.
    std::optional<SpanRow> span(std::uint32_t at) const;
    /// The draft tree of `rounds[round]`, wherever it is.
    std::shared_ptr<const RoundTree> tree(std::size_t round) const;
    /// The part of `late_spans` in which all late spans of the step lie, others possibly too.
    RowRange late_range(RowId step_id) const;
};

/// Owned by one thread (the recorder, or a file loader); applies records in order and makes snapshots.
class Capture {
  public:
    void apply(const Record& record);
    Snapshot snapshot(std::uint64_t version) const;
    void set_source(std::string path) { base_.source = std::move(path); }
    /// Before the first record: the trees and spans of what follows stay there. Spans then have their ids and
    /// what their lanes need; steps come with their phases.
    void set_stored(std::shared_ptr<const StoredRows> rows) { base_.stored = std::move(rows); }

  private:
    struct Applier;
    LaneBuilder& lanes_of(RowId run_id);
    RowRange append_spans(const std::vector<SpanRow>& spans);
    void append_step(const StepRecord& record);
    void append_late(RowId step_id, std::uint32_t span);
    std::shared_ptr<const Snapshot> snapshot_of(const LiveRound& live) const;
    void append_round(const RoundRecord& record, std::uint32_t step_index);

    Snapshot base_;  ///< the small parts; the tables below are viewed when a snapshot is made
    LogTable<StepEntry> steps_;
    LogTable<RoundEntry> rounds_;
    LogTable<NodeRow> nodes_;
    LogTable<NodeTopRow> tops_;
    LogTable<TokenRow> tokens_;
    LogTable<SpanRow> spans_;
    LogTable<StepPhaseRow> step_phases_;
    std::vector<LaneBuilder> lanes_;
    std::vector<std::uint32_t> sources_;  ///< scratch
    LogTable<LateSpan> late_spans_;
    LogTable<HeadEvalRow> head_evals_;
    LogTable<GpuOpRow> gpu_ops_;
    LogTable<NvtxRangeRow> nvtx_ranges_;
    LogTable<GpuCounterRow> gpu_counters_;
    LogTable<CounterRow> counters_;
};

/// Where the recorder leaves the newest snapshot and the window picks it up. Thread-safe.
class SnapshotBox {
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
