#include "app/jobs/run/snapshot_records.h"

#include <filesystem>
#include <system_error>

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
    for (std::uint32_t i = 0; i < entry.rounds.count; ++i) {
        record.rounds.push_back(round_record(snapshot, entry.rounds.first + i));
    }
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
        for (std::size_t i = 0; i < snapshot.steps.size(); ++i) mark(spans, snapshot.steps[i].spans);
        for (std::size_t i = 0; i < snapshot.rounds.size(); ++i) {
            mark(tokens, snapshot.rounds[i].tokens);
            mark(head_evals, snapshot.rounds[i].head_evals);
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
            if (!covered.tokens[i] && snapshot.tokens[i].prompt_id == prompt->id) {
                progress.tokens.push_back(snapshot.tokens[i]);
            }
        }
        sink.push(std::move(progress));
    }
}

void push_loose_rows(const Snapshot& snapshot, const CoveredRows& covered, RowId run_id, RecordSink& sink) {
    SpansRecorded spans;
    for (std::size_t i = 0; i < snapshot.spans.size(); ++i) {
        if (!covered.spans[i] && snapshot.spans[i].run_id == run_id) spans.spans.push_back(snapshot.spans[i]);
    }
    if (!spans.spans.empty()) sink.push(std::move(spans));
    HeadEvaluated evals;
    for (std::size_t i = 0; i < snapshot.head_evals.size(); ++i) {
        if (!covered.head_evals[i] && snapshot.head_evals[i].run_id == run_id) {
            evals.rows.push_back(snapshot.head_evals[i]);
        }
    }
    if (!evals.rows.empty()) sink.push(std::move(evals));
    for (const LossRow& loss : snapshot.losses) {
        if (loss.run_id == run_id) sink.push(loss);
    }
    for (const NoteRow& note : snapshot.notes) {
        if (note.run_id == run_id) sink.push(note);
    }
    for (std::size_t i = 0; i < snapshot.counters.size(); ++i) {
        if (snapshot.counters[i].run_id == run_id) sink.push(snapshot.counters[i]);
    }
    std::vector<NvtxRangeRow> ranges;
    for (std::size_t i = 0; i < snapshot.nvtx_ranges.size(); ++i) {
        if (snapshot.nvtx_ranges[i].run_id == run_id) ranges.push_back(snapshot.nvtx_ranges[i]);
    }
    if (!ranges.empty()) sink.push(std::move(ranges));
    std::vector<GpuOpRow> ops;
    for (std::size_t i = 0; i < snapshot.gpu_ops.size(); ++i) {
        if (snapshot.gpu_ops[i].run_id == run_id) ops.push_back(snapshot.gpu_ops[i]);
    }
    if (!ops.empty()) sink.push(std::move(ops));
    std::vector<GpuCounterRow> gpu_counters;
    for (std::size_t i = 0; i < snapshot.gpu_counters.size(); ++i) {
        if (snapshot.gpu_counters[i].run_id == run_id) gpu_counters.push_back(snapshot.gpu_counters[i]);
    }
    if (!gpu_counters.empty()) sink.push(std::move(gpu_counters));
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

}  // namespace

void push_snapshot(const Snapshot& snapshot, RecordSink& sink) {
    const CoveredRows covered(snapshot);
    for (std::size_t r = 0; r < snapshot.runs.size(); ++r) {
        RunRow run = snapshot.runs[r];
        const RunEnd ended = run.ended;
        run.ended = RunEnd::live;
        sink.push(RunStarted{run, find_vocab(snapshot, run.vocab_id), find_anchor(snapshot, run.id, false)});
        push_prompts(snapshot, covered, run.id, sink);
        for (std::size_t i = 0; i < snapshot.steps.size(); ++i) {
            if (snapshot.steps[i].row.run_id == run.id) sink.push(step_record(snapshot, snapshot.steps[i]));
        }
        push_loose_rows(snapshot, covered, run.id, sink);
        for (const auto& prompt : snapshot.prompts) {
            if (prompt->run_id == run.id && prompt->finish != Finish::none) sink.push(PromptEnded{*prompt});
        }
        if (ended != RunEnd::live)
            sink.push(RunEnded{run.id, ended, snapshot.run_end_ns[r], find_anchor(snapshot, run.id, true)});
    }
}

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
    Status closed;
    if (snapshot.stored != nullptr) {
        std::filesystem::remove(unfinished, error);
        closed = snapshot.stored->save_copy(unfinished);
    } else {
        DS_ASSIGN(const auto writer, CaptureWriter::create(unfinished, true));
        push_snapshot(snapshot, *writer);
        closed = writer->close();
    }
    if (closed.ok()) std::filesystem::rename(unfinished, path, error);
    if (closed.ok() && !error) return {};
    std::error_code ignored;
    std::filesystem::remove(unfinished, ignored);
    if (!closed.ok()) return closed;
    return failed("{}: can't be written: {}", path, error.message());
}

}  // namespace draftscope
