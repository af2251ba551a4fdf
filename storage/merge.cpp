#include <algorithm>
#include <filesystem>
#include <system_error>

#include "storage/capture_file.h"
#include "storage/export/export.h"
#include "storage/tables.h"

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
    /// Shifts the row's own id and those of the rows it refers to.
    template <typename Row>
    void shift(Row& row) {
        storage::for_each_field<Row>([&](auto index) {
            constexpr const auto& column = storage::column_of<Row, index>;
            constexpr auto kind = storage::ids_of(column.is_key ? storage::Table<Row>::name : column.refers);
            if constexpr (kind != nullptr) shift(row.*column.field, kind);
        });
    }
    template <typename Row>
    void shift(std::vector<Row>& rows) {
        for (Row& row : rows) shift(row);
    }
    void shift(RoundRecord& record) {
        shift(record.round);
        shift(record.nodes);
        shift(record.tops);
        shift(record.tokens);
        shift(record.head_evals);
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
            to.shift(r.run);
            to.shift(r.anchor);
            to.merge_vocabulary(r);
        }
        void operator()(RunEnded& r) {
            to.shift(r.run_id, &RowIds::run);
            to.shift(r.anchor);
        }
        void operator()(PromptStarted& r) { to.shift(r.prompt); }
        void operator()(PromptEnded& r) { to.shift(r.prompt); }
        void operator()(PromptProgress& r) {
            to.shift(r.prompt_id, &RowIds::prompt);
            to.shift(r.tokens);
        }
        void operator()(StepRecord& r) {
            to.shift(r.step);
            to.shift(r.rounds);
            to.shift(r.spans);
        }
        void operator()(LiveRound&) {}
        void operator()(SpansRecorded& r) { to.shift(r.spans); }
        void operator()(HeadEvaluated& r) { to.shift(r.rows); }
        template <typename Rows>
        void operator()(Rows& rows) {
            to.shift(rows);
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
