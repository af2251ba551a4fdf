#include <filesystem>
#include <system_error>

#include "app/jobs/run/recorder.h"
#include "storage/capture_file.h"

namespace draftscope {
namespace {

template <typename View, typename Row>
void copy_range(const View& view, const RowRange& range, std::vector<Row>& out) {
    out.reserve(range.count);
    for (std::uint32_t i = 0; i < range.count; ++i) out.push_back(view[range.first + i]);
}

RoundRecord round_record(const Snapshot& snapshot, std::size_t index) {
    const RoundEntry& entry = snapshot.rounds[index];
    RoundRecord record;
    record.round = entry.row;
    const auto tree = snapshot.tree(index);
    record.nodes = tree->nodes;
    record.tops = tree->tops;
    copy_range(snapshot.tokens, entry.tokens, record.tokens);
    copy_range(snapshot.head_evals, entry.head_evals, record.head_evals);
    return record;
}

StepRecord step_record(const Snapshot& snapshot, const StepEntry& entry) {
    StepRecord record;
    record.step = entry.row;
    for (std::uint32_t i = 0; i < entry.rounds.count; ++i)
        record.rounds.push_back(round_record(snapshot, entry.rounds.first + i));
    copy_range(snapshot.spans, entry.spans, record.spans);
    return record;
}

/// Marks the rows that belong to a step or round. Other rows: prefill's spans and tokens, late head
/// evaluations.
struct CoveredRows {
    std::vector<bool> spans, tokens, head_evals;

    explicit CoveredRows(const Snapshot& snapshot)
        : spans(snapshot.spans.size()),
          tokens(snapshot.tokens.size()),
          head_evals(snapshot.head_evals.size()) {
        for (const StepEntry& step : snapshot.steps) mark(spans, step.spans);
        for (const RoundEntry& round : snapshot.rounds) {
            mark(tokens, round.tokens);
            mark(head_evals, round.head_evals);
        }
    }
    static void mark(std::vector<bool>& seen, const RowRange& range) {
        for (std::uint32_t i = 0; i < range.count; ++i) seen[range.first + i] = true;
    }
};

void push_prompts(const Snapshot& snapshot, const CoveredRows& covered, RowId run_id, RecordSink& sink) {
    for (const auto& prompt : snapshot.prompts) {
        if (prompt->run_id != run_id) continue;
        sink.push(PromptStarted{*prompt});
        PromptProgress progress{prompt->id, prompt->output, prompt->generated_tokens, prompt->prefill_ns, {}};
        for (std::size_t i = 0; i < snapshot.tokens.size(); ++i) {
            if (!covered.tokens[i] && snapshot.tokens[i].prompt_id == prompt->id)
                progress.tokens.push_back(snapshot.tokens[i]);
        }
        sink.push(std::move(progress));
    }
}

/// Returns a run's rows of a table, without those that `covered` marks.
template <typename Row, typename View>
std::vector<Row> rows_of_run(const View& view, RowId run_id, const std::vector<bool>& covered = {}) {
    std::vector<Row> out;
    std::size_t i = 0;
    for (const Row& row : view)
        if (const bool loose = covered.empty() || !covered[i++]; loose && row.run_id == run_id)
            out.push_back(row);
    return out;
}

void push_loose_rows(const Snapshot& snapshot, const CoveredRows& covered, RowId run_id, RecordSink& sink) {
    SpansRecorded spans{rows_of_run<SpanRow>(snapshot.spans, run_id, covered.spans)};
    if (!spans.spans.empty()) sink.push(std::move(spans));
    HeadEvaluated evals{rows_of_run<HeadEvalRow>(snapshot.head_evals, run_id, covered.head_evals)};
    if (!evals.rows.empty()) sink.push(std::move(evals));
    const auto push = [&]<typename Row>(std::vector<Row> rows) {
        if constexpr (!std::is_constructible_v<Record, std::vector<Row>>)
            for (Row& row : rows) sink.push(std::move(row));
        else if (!rows.empty())
            sink.push(std::move(rows));
    };
    push(rows_of_run<LossRow>(snapshot.losses, run_id));
    push(rows_of_run<NoteRow>(snapshot.notes, run_id));
    push(rows_of_run<CounterRow>(snapshot.counters, run_id));
    push(rows_of_run<NvtxRangeRow>(snapshot.nvtx_ranges, run_id));
    push(rows_of_run<GpuOpRow>(snapshot.gpu_ops, run_id));
}

std::shared_ptr<const Vocab> find_vocab(const Snapshot& snapshot, RowId id) {
    for (const auto& vocab : snapshot.vocabs) {
        if (vocab->id == id) return vocab;
    }
    return nullptr;
}

/// Returns the first or last clock anchor of a run; an empty anchor if the snapshot has none.
ClockAnchorRow find_anchor(const Snapshot& snapshot, RowId run_id, bool end) {
    ClockAnchorRow found;
    for (const ClockAnchorRow& anchor : snapshot.anchors) {
        if (anchor.run_id != run_id) continue;
        found = anchor;
        if (!end) break;
    }
    return found;
}

/// Pushes the records that a snapshot consists of, run by run.
void push_snapshot(const Snapshot& snapshot, RecordSink& sink) {
    const CoveredRows covered(snapshot);
    for (std::size_t r = 0; r < snapshot.runs.size(); ++r) {
        RunRow run = snapshot.runs[r];
        const RunEnd ended = run.ended;
        run.ended = RunEnd::live;
        sink.push(RunStarted{run, find_vocab(snapshot, run.vocab_id), find_anchor(snapshot, run.id, false)});
        push_prompts(snapshot, covered, run.id, sink);
        for (const StepEntry& step : snapshot.steps)
            if (step.row.run_id == run.id) sink.push(step_record(snapshot, step));
        push_loose_rows(snapshot, covered, run.id, sink);
        for (const auto& prompt : snapshot.prompts) {
            if (prompt->run_id == run.id && prompt->finish != Finish::none) sink.push(PromptEnded{*prompt});
        }
        if (ended != RunEnd::live)
            sink.push(RunEnded{run.id, ended, snapshot.run_end_ns[r], find_anchor(snapshot, run.id, true)});
    }
}

}  // namespace

namespace {

Status write_copy(const Snapshot& snapshot, const std::string& path) {
    if (snapshot.stored != nullptr) {
        std::error_code ignored;
        std::filesystem::remove(path, ignored);
        return snapshot.stored->save_copy(path);
    }
    DS_ASSIGN(const auto writer, CaptureWriter::create(path, true));
    push_snapshot(snapshot, *writer);
    const Status closed = writer->close();
    if (const std::string why = writer->stats().error; !closed.ok() && !why.empty())
        return failed("{}: not saved: {}; free space or choose another folder", path, why);
    return closed;
}

}  // namespace

Status save_snapshot(const Snapshot& snapshot, const std::string& path) {
    const std::string unfinished = path + ".saving";
    std::error_code error;
    if (std::filesystem::is_directory(path, error))
        return bad_input("{}: is a folder; choose another name", path);
    // SQLite would replay the log of the replaced file into the copy.
    for (const char* log : {"-wal", "-journal"}) {
        if (std::filesystem::exists(path + log, error))
            return bad_input(
                "{}: is being recorded, or its recording was killed ({}{} exists); choose another name", path,
                path, log);
    }
    const Status closed = write_copy(snapshot, unfinished);
    if (closed.ok()) std::filesystem::rename(unfinished, path, error);
    if (closed.ok() && !error) return {};
    std::error_code ignored;
    for (const char* file : {"", "-wal", "-shm", "-journal"})
        std::filesystem::remove(unfinished + file, ignored);
    if (!closed.ok()) return closed;
    return failed("{}: can't be written: {}", path, error.message());
}

}  // namespace draftscope
