#include <algorithm>
#include <functional>

#include "storage/capture_file.h"
#include "storage/record_ids.h"
#include "storage/run_records.h"
#include "storage/schema.h"

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
        if (auto* started = std::get_if<RunStarted>(&record)) merge_vocabulary(*started);
        storage::shift_ids(record, base_, top_);
        out_.push(std::move(record));
    }

  private:
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

    RecordSink& out_;
    RowIds base_, top_;
    std::vector<std::shared_ptr<const Vocab>> vocabs_;
};

Status write_merged(CaptureWriter& writer, const std::vector<std::string>& files) {
    Renumberer renumberer(writer);
    for (const std::string& file : files) {
        DS_TRY(read_capture(file, renumberer));
        renumberer.next_file();
    }
    return {};
}

Status write_runs(CaptureWriter& writer, std::vector<JoinedRun>& runs) {
    Renumberer same_ids(writer);  // for the vocabularies: the ids follow one another
    RowIds ids;
    for (JoinedRun& run : runs) {
        RunStarted started = run.parts.front().started;
        started.run = std::move(run.row);
        started.run.id = started.anchor.run_id = ++ids.run;
        ClockAnchorRow end = started.anchor;
        same_ids.push(std::move(started));
        const TimeNs duration = push_joined(std::move(run.parts), ids.run, ids, same_ids);
        end.monotonic_ns += duration;
        end.utc_ns += duration;
        end.gpu_ns.reset();
        same_ids.push(RunEnded{ids.run, RunEnd::ok, duration, end});
    }
    return {};
}

/// Writes a capture under a temporary name and renames it. `write` pushes its records.
Status write_new(const std::string& out, const std::function<Status(CaptureWriter&)>& write) {
    DS_TRY(storage::check_new_file(out));
    return storage::write_then_rename(out, [&](const std::string& partial) -> Status {
        DS_ASSIGN(const auto writer, CaptureWriter::create(partial, true));
        DS_TRY(write(*writer));
        return writer->close();
    });
}

}  // namespace

Status merge_captures(const std::string& out, const std::vector<std::string>& files) {
    return write_new(out, [&](CaptureWriter& writer) { return write_merged(writer, files); });
}

Status write_joined(const std::string& out, std::vector<JoinedRun> runs) {
    return write_new(out, [&](CaptureWriter& writer) { return write_runs(writer, runs); });
}

}  // namespace draftscope
