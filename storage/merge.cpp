#include <algorithm>
#include <filesystem>
#include <system_error>

#include "storage/capture_file.h"
#include "storage/export/export.h"

namespace draftscope {

namespace {

bool same_vocab(const Vocab& a, const Vocab& b) {
    const auto same = [](const VocabRow& x, const VocabRow& y) {
        return x.token_id == y.token_id && x.bytes == y.bytes && x.rank == y.rank && x.count == y.count;
    };
    return a.rows.size() == b.rows.size() && std::equal(a.rows.begin(), a.rows.end(), b.rows.begin(), same);
}

/// Renumbers the ids of each file to follow those of the previous files, so that they stay unique and
/// ascending.
class Renumberer : public RecordSink {
  public:
    explicit Renumberer(RecordSink& out) : out_(out) {}

    void next_file() { base_ = top_; }
    void push(Record record) override {
        std::visit(Visitor{*this}, record);
        out_.push(std::move(record));
    }

  private:
    /// Adds the offset of this kind of id. An id of 0 means none and stays 0.
    void shift(RowId& id, RowId RowIds::*kind) {
        if (id == 0) return;
        id += base_.*kind;
        top_.*kind = std::max(top_.*kind, id);
    }
    void shift(SpanRow& row) {
        shift(row.id, &RowIds::span);
        shift(row.run_id, &RowIds::run);
        shift(row.step_id, &RowIds::step);
        shift(row.round_id, &RowIds::round);
    }
    void shift(TokenRow& row) {
        shift(row.prompt_id, &RowIds::prompt);
        shift(row.round_id, &RowIds::round);
    }
    void shift(HeadEvalRow& row) {
        shift(row.run_id, &RowIds::run);
        shift(row.round_id, &RowIds::round);
    }
    void shift(PromptRow& row) {
        shift(row.id, &RowIds::prompt);
        shift(row.run_id, &RowIds::run);
    }
    void shift(RoundRecord& record) {
        shift(record.round.id, &RowIds::round);
        shift(record.round.run_id, &RowIds::run);
        shift(record.round.step_id, &RowIds::step);
        shift(record.round.prompt_id, &RowIds::prompt);
        for (NodeRow& row : record.nodes) shift(row.round_id, &RowIds::round);
        for (NodeTopRow& row : record.tops) shift(row.round_id, &RowIds::round);
        for (TokenRow& row : record.tokens) shift(row);
        for (HeadEvalRow& row : record.head_evals) shift(row);
    }
    /// Files of one target share its vocabulary.
    void merge_vocabulary(RunStarted& started) {
        if (!started.vocab) {
            started.run.vocab_id = 0;
            return;
        }
        for (const auto& known : vocabs_)
            if (same_vocab(*known, *started.vocab)) {
                started.vocab = known;
                started.run.vocab_id = known->id;
                return;
            }
        auto renamed = std::make_shared<Vocab>(*started.vocab);
        renamed->id = static_cast<RowId>(vocabs_.size()) + 1;
        for (VocabRow& row : renamed->rows) row.vocab_id = renamed->id;
        vocabs_.push_back(renamed);
        started.vocab = renamed;
        started.run.vocab_id = renamed->id;
    }

    struct Visitor {
        Renumberer& to;
        void operator()(RunStarted& r) {
            to.shift(r.run.id, &RowIds::run);
            to.shift(r.anchor.run_id, &RowIds::run);
            to.merge_vocabulary(r);
        }
        void operator()(RunEnded& r) {
            to.shift(r.run_id, &RowIds::run);
            to.shift(r.anchor.run_id, &RowIds::run);
        }
        void operator()(PromptStarted& r) { to.shift(r.prompt); }
        void operator()(PromptEnded& r) { to.shift(r.prompt); }
        void operator()(PromptProgress& r) {
            to.shift(r.prompt_id, &RowIds::prompt);
            for (TokenRow& row : r.tokens) to.shift(row);
        }
        void operator()(StepRecord& r) {
            to.shift(r.step.id, &RowIds::step);
            to.shift(r.step.run_id, &RowIds::run);
            for (RoundRecord& round : r.rounds) to.shift(round);
            for (SpanRow& row : r.spans) to.shift(row);
        }
        void operator()(LiveRound&) {}
        void operator()(SpansRecorded& r) {
            for (SpanRow& row : r.spans) to.shift(row);
        }
        void operator()(HeadEvaluated& r) {
            for (HeadEvalRow& row : r.rows) to.shift(row);
        }
        void operator()(LossRow& r) { to.shift(r.run_id, &RowIds::run); }
        void operator()(CounterRow& r) { to.shift(r.run_id, &RowIds::run); }
        void operator()(NoteRow& r) {
            to.shift(r.run_id, &RowIds::run);
            to.shift(r.round_id, &RowIds::round);
        }
        void operator()(std::vector<NvtxRangeRow>& rows) {
            for (NvtxRangeRow& row : rows) to.shift(row.run_id, &RowIds::run);
        }
        void operator()(std::vector<GpuOpRow>& rows) {
            for (GpuOpRow& row : rows) {
                to.shift(row.id, &RowIds::gpu_op);
                to.shift(row.run_id, &RowIds::run);
                to.shift(row.step_id, &RowIds::step);
            }
        }
        void operator()(std::vector<GpuCounterRow>& rows) {
            for (GpuCounterRow& row : rows) {
                to.shift(row.run_id, &RowIds::run);
                to.shift(row.step_id, &RowIds::step);
            }
        }
    };

    RecordSink& out_;
    RowIds base_, top_;
    std::vector<std::shared_ptr<const Vocab>> vocabs_;
};

Status write_merged(const std::string& partial, const std::vector<std::string>& files) {
    DS_ASSIGN(const auto writer, CaptureWriter::create(partial, true));
    Renumberer renumberer(*writer);
    for (const std::string& file : files) {
        DS_TRY(read_capture(file, renumberer));
        renumberer.next_file();
    }
    return writer->close();
}

}  // namespace

Status merge_captures(const std::string& out, const std::vector<std::string>& files) {
    DS_TRY(storage::check_new_file(out));
    const std::string partial = storage::partial_name(out);
    Status written = write_merged(partial, files);
    if (written.ok()) return storage::publish(partial, out);
    std::error_code ignored;
    for (const char* suffix : {"", "-wal", "-shm", "-journal"})
        std::filesystem::remove(partial + suffix, ignored);
    return written;
}

}  // namespace draftscope
