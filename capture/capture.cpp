#include "capture/capture.h"

#include <algorithm>
#include <span>
#include <type_traits>
#include <utility>

#include "base/bisect.h"
#include "base/phase.h"

namespace draftscope {

namespace {

// Ids are usually consecutive, so the offset from the first id nearly always is the index. A gap (a file with
// deleted rows) needs a search.
template <typename Rows, typename GetId>
std::ptrdiff_t find_index(const Rows& rows, RowId id, GetId get_id) {
    if (rows.empty()) return -1;
    const RowId guess = id - get_id(rows.front());
    if (guess >= 0 && guess < static_cast<RowId>(rows.size()) && get_id(rows[guess]) == id)
        return static_cast<std::ptrdiff_t>(guess);
    const auto found =
        std::find_if(rows.begin(), rows.end(), [&](const auto& row) { return get_id(row) == id; });
    return found == rows.end() ? -1 : found - rows.begin();
}

RowId get_prompt_id(const std::shared_ptr<const PromptRow>& prompt) {
    return prompt->id;
}

template <typename Row, std::size_t N>
RowRange append_all(LogTable<Row, N>& table, const std::vector<Row>& rows) {
    const RowRange range{static_cast<std::uint32_t>(table.size()), static_cast<std::uint32_t>(rows.size())};
    for (const Row& row : rows) table.push_back(row);
    return range;
}

/// Calls `take(run, rows, index of the first)` for each sequence of consecutive rows of one run.
template <typename Row, typename Take>
void by_run(const std::vector<Row>& rows, Take take) {
    for (std::size_t first = 0, end = 0; first < rows.size(); first = end) {
        while (end < rows.size() && rows[end].run_id == rows[first].run_id) ++end;
        take(rows[first].run_id, std::span(&rows[first], end - first), first);
    }
}

}  // namespace

const RunRow* Snapshot::run(RowId id) const {
    const std::ptrdiff_t index = find_index(runs, id, [](const RunRow& row) { return row.id; });
    return index < 0 ? nullptr : &runs[index];
}

const PromptRow* Snapshot::prompt(RowId id) const {
    const std::ptrdiff_t index = find_index(prompts, id, get_prompt_id);
    return index < 0 ? nullptr : prompts[index].get();
}

const Vocab* Snapshot::vocab(RowId id) const {
    for (const auto& vocab : vocabs)
        if (vocab->id == id) return vocab.get();
    return nullptr;
}

std::shared_ptr<const RoundTree> Snapshot::tree(std::size_t round) const {
    const RoundEntry& entry = rounds[round];
    if (stored != nullptr) return stored->tree(entry.row.id);
    auto out = std::make_shared<RoundTree>();
    out->nodes.reserve(entry.nodes.count);
    for (std::uint32_t i = 0; i < entry.nodes.count; ++i) out->nodes.push_back(nodes[entry.nodes.first + i]);
    out->tops.reserve(entry.tops.count);
    for (std::uint32_t i = 0; i < entry.tops.count; ++i) out->tops.push_back(tops[entry.tops.first + i]);
    return out;
}

std::shared_ptr<const RunLanes> Snapshot::lanes_for(RowId run_id) const {
    for (const auto& run : lanes)
        if (run->run_id == run_id) return run;
    return nullptr;
}

std::optional<SpanRow> Snapshot::span(std::uint32_t at) const {
    if (stored != nullptr) return stored->span(at);
    return at < spans.size() ? std::optional(spans[at]) : std::nullopt;
}

RowRange Snapshot::late_range(RowId step_id) const {
    const auto first_with = [&](RowId newest) {
        return static_cast<std::uint32_t>(
            bisect(0, late_spans.size(), [&](std::size_t i) { return late_spans[i].newest_step < newest; }));
    };
    const std::uint32_t first = first_with(step_id);
    return {first, first_with(step_id + late_lag + 1) - first};
}

struct Capture::Applier {
    Capture& capture;

    void operator()(const RunStarted& started) {
        Snapshot& base = capture.base_;
        base.runs.push_back(started.run);
        base.run_end_ns.push_back(0);
        base.anchors.push_back(started.anchor);
        if (started.vocab && base.vocab(started.vocab->id) == nullptr) base.vocabs.push_back(started.vocab);
    }
    void operator()(const PromptStarted& started) {
        capture.base_.prompts.push_back(std::make_shared<const PromptRow>(started.prompt));
    }
    void operator()(const PromptProgress& progress) {
        append_all(capture.base_.tokens, progress.tokens);
        const std::ptrdiff_t index = find_index(capture.base_.prompts, progress.prompt_id, get_prompt_id);
        if (index < 0) return;
        auto& slot = capture.base_.prompts[index];
        PromptRow row = *slot;
        row.output = progress.output;
        row.generated_tokens = progress.generated_tokens;
        row.prefill_ns = progress.prefill_ns;
        slot = std::make_shared<const PromptRow>(std::move(row));
    }
    void operator()(const PromptEnded& ended) {
        const std::ptrdiff_t index = find_index(capture.base_.prompts, ended.prompt.id, get_prompt_id);
        auto row = std::make_shared<const PromptRow>(ended.prompt);
        if (index < 0)
            capture.base_.prompts.push_back(std::move(row));
        else
            capture.base_.prompts[index] = std::move(row);
    }
    void operator()(const StepRecord& record) { capture.append_step(record); }
    void operator()(const LiveRound& live) {
        capture.base_.live = live.active ? std::make_shared<const LiveRound>(live) : nullptr;
        capture.base_.in_flight = live.active ? capture.snapshot_in_flight(live) : nullptr;
    }
    void operator()(const SpansRecorded& recorded) {
        auto at = static_cast<std::uint32_t>(capture.base_.spans.size());
        for (const SpanRow& span : recorded.spans) {
            if (span.step_id != 0 && capture.base_.stored == nullptr) capture.append_late(span.step_id, at);
            ++at;
        }
        capture.append_spans(recorded.spans);
    }
    void operator()(const HeadEvaluated& evaluated) { append_all(capture.base_.head_evals, evaluated.rows); }
    void operator()(const RunEnded& ended) {
        Snapshot& base = capture.base_;
        base.live = nullptr;
        base.in_flight = nullptr;
        const std::ptrdiff_t index =
            find_index(base.runs, ended.run_id, [](const RunRow& row) { return row.id; });
        if (index < 0) return;
        base.anchors.push_back(ended.anchor);
        base.runs[index].ended = ended.how;
        base.run_end_ns[index] = ended.end_ns;
    }
    void operator()(const LossRow& row) { capture.base_.losses.push_back(row); }
    void operator()(const CounterRow& row) { capture.base_.counters.push_back(row); }
    void operator()(const NoteRow& row) { capture.base_.notes.push_back(row); }
    void operator()(const std::vector<NvtxRangeRow>& rows) {
        const RowRange range = append_all(capture.base_.nvtx_ranges, rows);
        by_run(rows, [&](RowId run_id, auto part, std::size_t first) {
            capture.lanes_for(run_id).add_nvtx_ranges(part, range.first + static_cast<std::uint32_t>(first));
        });
    }
    void operator()(const std::vector<GpuOpRow>& rows) {
        const RowRange range = append_all(capture.base_.gpu_ops, rows);
        by_run(rows, [&](RowId run_id, auto part, std::size_t first) {
            capture.lanes_for(run_id).add_gpu_ops(part, range.first + static_cast<std::uint32_t>(first));
        });
    }
};

void Capture::apply(const Record& record) {
    std::visit(Applier{*this}, record);
}

LaneBuilder& Capture::lanes_for(RowId run_id) {
    for (LaneBuilder& run : lanes_)
        if (run.run_id() == run_id) return run;
    return lanes_.emplace_back(run_id);
}

/// Returns the range in base_.spans; empty if the spans stay in their file.
RowRange Capture::append_spans(const std::vector<SpanRow>& spans) {
    RowRange range;
    sources_.clear();
    if (base_.stored == nullptr) {
        range = append_all(base_.spans, spans);
        for (std::uint32_t i = 0; i < range.count; ++i) sources_.push_back(range.first + i);
    } else {
        for (const SpanRow& span : spans) sources_.push_back(static_cast<std::uint32_t>(span.id));
    }
    by_run(spans, [&](RowId run_id, auto part, std::size_t first) {
        lanes_for(run_id).add_spans(part, std::span(sources_).subspan(first, part.size()));
    });
    return range;
}

void Capture::append_late(RowId step_id, std::uint32_t span) {
    LateSpan late{span, step_id};
    if (!base_.late_spans.empty()) late.newest_step = std::max(step_id, base_.late_spans.back().newest_step);
    base_.late_lag = std::max(base_.late_lag, late.newest_step - step_id);
    base_.late_spans.push_back(late);
}

void Capture::append_step(const StepRecord& record) {
    const auto step_index = static_cast<std::uint32_t>(base_.steps.size());
    StepEntry entry;
    entry.row = record.step;
    entry.rounds = {static_cast<std::uint32_t>(base_.rounds.size()),
                    static_cast<std::uint32_t>(record.rounds.size())};
    entry.spans = append_spans(record.spans);
    entry.phases = append_all(base_.step_phases, record.phases);
    for (const SpanRow& span : record.spans)
        entry.head_calls += span.phase_id == static_cast<int>(Phase::head) ? 1 : 0;
    if (record.step.excluded != Excluded::untimed)
        lanes_for(record.step.run_id).add_step(record.step, step_index);
    for (const RoundRecord& round : record.rounds) append_round(round, step_index);
    base_.steps.push_back(std::move(entry));
    base_.live = nullptr;
    base_.in_flight = nullptr;
}

/// Returns the round as a step that ends at the time at which the engine is held.
std::shared_ptr<const Snapshot> Capture::snapshot_in_flight(const LiveRound& live) const {
    Capture part;
    part.base_.runs = base_.runs;
    part.base_.run_end_ns = base_.run_end_ns;
    part.base_.prompts = base_.prompts;
    part.base_.vocabs = base_.vocabs;
    StepRecord record{live.step, {live.partial}, live.spans};
    RoundRow& round = record.rounds.front().round;
    record.step.run_id = round.run_id;
    round.step_id = record.step.id;
    round.start_ns = record.step.start_ns;
    round.end_ns = record.step.end_ns;
    part.append_step(record);
    return std::make_shared<const Snapshot>(part.snapshot(1));
}

void Capture::append_round(const RoundRecord& record, std::uint32_t step_index) {
    RoundEntry entry;
    entry.row = record.round;
    entry.step_index = step_index;
    entry.nodes = append_all(base_.nodes, record.nodes);
    entry.tops = append_all(base_.tops, record.tops);
    entry.tokens = append_all(base_.tokens, record.tokens);
    entry.head_evals = append_all(base_.head_evals, record.head_evals);
    base_.rounds.push_back(std::move(entry));
}

Snapshot Capture::snapshot(std::uint64_t version) const {
    Snapshot out = base_;
    out.version = version;
    for (const LaneBuilder& run : lanes_) out.lanes.push_back(run.view());
    return out;
}

}  // namespace draftscope
