#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "base/units.h"
#include "storage/capture_file.h"
#include "storage/on_disk_rows.h"
#include "storage/row_reader.h"
#include "storage/schema.h"

namespace draftscope {

namespace {

using storage::Cursor;
using storage::StoredStepPhase;

/// Nesting is not stored. It follows from the intervals, because spans of one thread open and close in order.
void restore_nesting(std::vector<SpanRow>& spans) {
    std::vector<SpanRow*> order;
    order.reserve(spans.size());
    for (SpanRow& span : spans) order.push_back(&span);
    std::sort(order.begin(), order.end(), [](const SpanRow* a, const SpanRow* b) {
        if (a->thread_id != b->thread_id) return a->thread_id < b->thread_id;
        if (a->start_ns != b->start_ns) return a->start_ns < b->start_ns;
        if (a->end_ns != b->end_ns) return a->end_ns > b->end_ns;
        // Spans are recorded when they close, so of two equal ones the outer has the higher id.
        return a->id > b->id;
    });
    std::vector<const SpanRow*> open;
    for (SpanRow* span : order) {
        while (!open.empty() && (open.back()->thread_id != span->thread_id ||
                                 open.back()->end_ns < span->end_ns || open.back()->end_ns <= span->start_ns))
            open.pop_back();
        span->nesting = static_cast<int>(open.size());
        open.push_back(span);
    }
}

/// The position up to which a file has been read, and the rows that may still change.
struct ReadState {
    std::map<std::string_view, RowId> newest;  ///< highest replayed rowid of each table
    template <typename Row>
    RowId after() const {
        const auto found = newest.find(storage::Table<Row>::name);
        return found == newest.end() ? 0 : found->second;
    }
    std::map<RowId, std::shared_ptr<const Vocab>> vocabs;
    std::set<RowId> ended;                       ///< runs whose end was replayed
    std::set<RowId> noted;                       ///< runs with rows that this version does not read
    std::map<RowId, PromptProgress> unfinished;  ///< prompts whose rows will change
    bool live = false;
};

/// Replays a file in recording order: one sorted pass per table, merged by ids. A second replay continues
/// after the first.
class Replay {
  public:
    Replay(const std::string& path, const storage::Database& db, RecordSink& sink, ReadState& state,
           bool all_rows, const std::function<bool()>& should_continue)
        : path_(path),
          db_(db),
          sink_(sink),
          state_(state),
          should_continue_(should_continue),
          prompts_(db, state.after<PromptRow>()),
          steps_(db, state.after<StepRow>()),
          rounds_(db, state.after<RoundRow>()),
          nodes_(all_rows ? Cursor<NodeRow>(db, state.after<NodeRow>()) : Cursor<NodeRow>()),
          tops_(all_rows ? Cursor<NodeTopRow>(db, state.after<NodeTopRow>()) : Cursor<NodeTopRow>()),
          tokens_(db, state.after<TokenRow>()),
          spans_(all_rows ? Cursor<SpanRow>(db, state.after<SpanRow>()) : Cursor<SpanRow>()),
          phases_(all_rows ? Cursor<StoredStepPhase>() : Cursor<StoredStepPhase>(db, state.after<StepRow>())),
          evals_(db, state.after<HeadEvalRow>()) {
        if (!all_rows) outlines_.emplace(path, state.after<SpanRow>());
    }

    Status run() {
        DS_TRY(load_runs());
        DS_TRY(load_vocabs());
        DS_TRY(update_prompts());
        while (steps_.has()) {
            DS_TRY(step());
            if (should_continue_ && !should_continue_())
                return Error{ErrorKind::cancelled, path_ + ": reading was cancelled"};
        }
        start_runs(std::numeric_limits<RowId>::max());
        start_prompts(std::numeric_limits<RowId>::max());
        prefill_tokens();
        late_spans(std::numeric_limits<RowId>::max());
        late_evals(std::numeric_limits<RowId>::max());
        DS_TRY(all_read());
        DS_TRY(side_tables());
        state_.live = false;
        for (const RunState& run : runs_) {
            if (run.row.ended == RunEnd::live)
                state_.live = true;
            else if (state_.ended.insert(run.row.id).second)
                sink_.push(RunEnded{run.row.id, run.row.ended, run.end_ns, run.anchor});
        }
        return save_state();
    }

  private:
    struct RunState {
        RunRow row;
        ClockAnchorRow first, anchor;  ///< at start and end
        bool anchored = false;
        TimeNs end_ns = 0;
    };

    template <typename Source>
    Status check_source(const Source& source) const {
        return storage::read_status(path_, db_, source);
    }
    /// Returns an error if rows are left: such a row belongs to no step or round, or is out of order.
    template <typename Source>
    Status check_drained(const Source& source) const {
        DS_TRY(check_source(source));
        if (source.has())
            return bad_input("{}: damaged capture: table {} has rows without a preceding parent row", path_,
                             storage::Table<typename Source::RowType>::name);
        return {};
    }

    Status load_vocabs();
    Status load_runs();
    Status update_prompts();
    Status save_state();
    PromptProgress latest_progress(RowId prompt_id) const;
    Status step();
    Status round(RoundRecord& record);
    void outline(StepRecord& record);
    void start_runs(RowId up_to);
    void start_prompts(RowId up_to);
    void prefill_tokens();
    void late_spans(RowId before_step);
    void late_evals(RowId before_round);
    Status all_read() const;
    Status side_tables();
    /// Pushes a note for each run whose hardware counters are not read.
    Status note_dropped_tables();
    template <typename Row>
    Status push_each();
    template <typename Row>
    Status push_in_blocks();

    const std::string& path_;
    const storage::Database& db_;
    RecordSink& sink_;
    ReadState& state_;
    const std::function<bool()>& should_continue_;
    std::vector<RunState> runs_;  ///< all of the file
    std::size_t runs_started_ = 0;
    Cursor<PromptRow> prompts_;
    Cursor<StepRow> steps_;
    Cursor<RoundRow> rounds_;
    Cursor<NodeRow> nodes_;
    Cursor<NodeTopRow> tops_;
    Cursor<TokenRow> tokens_;
    Cursor<SpanRow> spans_;
    // Used instead of spans_ if the spans stay in the file.
    std::optional<storage::SpanOutlines> outlines_;
    Cursor<StoredStepPhase> phases_;
    std::size_t spans_last_ = 0, phases_last_ = 0;  ///< of the previous step, as a size hint for the next
    Cursor<HeadEvalRow> evals_;
    std::map<RowId, PromptProgress> outputs_;  ///< outputs that late tokens of a prompt must not overwrite
};

Status Replay::load_vocabs() {
    const bool known = std::all_of(runs_.begin(), runs_.end(), [&](const RunState& run) {
        return run.row.vocab_id == 0 || state_.vocabs.contains(run.row.vocab_id);
    });
    if (known) return {};
    Cursor<VocabRow> cursor(db_);
    std::shared_ptr<Vocab> vocab;
    while (cursor.has()) {
        VocabRow row = cursor.take();
        if (!vocab || vocab->id != row.vocab_id) {
            vocab = std::make_shared<Vocab>();
            vocab->id = row.vocab_id;
            state_.vocabs[row.vocab_id] = vocab;
        }
        const std::size_t index = row.token_id;
        while (vocab->rows.size() < index) {
            VocabRow gap;
            gap.vocab_id = row.vocab_id;
            gap.token_id = static_cast<TokenId>(vocab->rows.size());
            vocab->rows.push_back(std::move(gap));
        }
        vocab->rows.push_back(std::move(row));
    }
    return check_source(cursor);
}

Status Replay::load_runs() {
    Cursor<RunRow> runs(db_);
    while (runs.has()) {
        runs_.push_back({runs.take(), {}, {}, false, 0});
        runs_.back().row.started_monotonic = 0;
    }
    DS_TRY(check_source(runs));
    Cursor<ClockAnchorRow> anchors(db_);
    while (anchors.has()) {
        const ClockAnchorRow anchor = anchors.take();
        for (RunState& run : runs_) {
            if (run.row.id != anchor.run_id) continue;
            if (!run.anchored) {
                run.first = anchor;
                run.row.started_monotonic = anchor.monotonic_ns;
            }
            run.anchored = true;
            run.anchor = anchor;
            run.end_ns = saturating_difference(run.first.monotonic_ns, anchor.monotonic_ns);
        }
    }
    return check_source(anchors);
}

void Replay::start_runs(RowId up_to) {
    for (; runs_started_ < runs_.size() && runs_[runs_started_].row.id <= up_to; ++runs_started_) {
        if (runs_[runs_started_].row.id <= state_.after<RunRow>()) continue;
        RunStarted started;
        started.run = runs_[runs_started_].row;
        started.run.ended = RunEnd::live;
        started.anchor = runs_[runs_started_].first;
        const auto vocab = state_.vocabs.find(started.run.vocab_id);
        if (vocab != state_.vocabs.end()) started.vocab = vocab->second;
        sink_.push(std::move(started));
    }
}

void Replay::start_prompts(RowId up_to) {
    while (prompts_.has() && prompts_.peek().id <= up_to) {
        PromptRow row = prompts_.take();
        start_runs(row.run_id);
        outputs_[row.id] = {row.id, row.output, row.generated_tokens, row.prefill_ns, {}};
        if (row.finish == Finish::none) state_.unfinished[row.id] = outputs_[row.id];
        sink_.push(PromptStarted{std::move(row)});
    }
}

void Replay::prefill_tokens() {
    while (tokens_.has() && tokens_.peek().round_id == 0) {
        const RowId prompt_id = tokens_.peek().prompt_id;
        start_prompts(prompt_id);
        PromptProgress progress = latest_progress(prompt_id);
        while (tokens_.has() && tokens_.peek().round_id == 0 && tokens_.peek().prompt_id == prompt_id)
            progress.tokens.push_back(tokens_.take());
        sink_.push(std::move(progress));
    }
}

void Replay::late_spans(RowId before_step) {
    SpansRecorded late;
    while (spans_.has() && spans_.peek().step_id < before_step) late.spans.push_back(spans_.take());
    while (outlines_ && outlines_->has() && outlines_->peek().step_id < before_step)
        late.spans.push_back(outlines_->take());
    if (late.spans.empty()) return;
    if (!outlines_) restore_nesting(late.spans);
    sink_.push(std::move(late));
}

void Replay::late_evals(RowId before_round) {
    HeadEvaluated late;
    while (evals_.has() && evals_.peek().round_id < before_round) late.rows.push_back(evals_.take());
    if (!late.rows.empty()) sink_.push(std::move(late));
}

Status Replay::round(RoundRecord& record) {
    record.round = rounds_.take();
    const RowId id = record.round.id;
    RoundTree tree;
    while (nodes_.has() && nodes_.peek().round_id == id) tree.nodes.push_back(nodes_.take());
    DS_TRY(check_source(nodes_));
    while (tops_.has() && tops_.peek().round_id == id) tree.tops.push_back(tops_.take());
    if (const std::string problem = storage::tree_problem(id, tree); !problem.empty())
        return bad_input("{}: {}", path_, problem);
    record.nodes = std::move(tree.nodes);
    record.tops = std::move(tree.tops);
    while (tokens_.has() && tokens_.peek().round_id == id) record.tokens.push_back(tokens_.take());
    while (evals_.has() && evals_.peek().round_id == id) record.head_evals.push_back(evals_.take());
    return {};
}

Status Replay::step() {
    StepRecord record;
    record.step = steps_.take();
    const RowId id = record.step.id;
    start_runs(record.step.run_id);
    late_spans(id);
    while (rounds_.has() && rounds_.peek().step_id == id) {
        start_prompts(rounds_.peek().prompt_id);
        prefill_tokens();
        late_evals(rounds_.peek().id);
        record.rounds.emplace_back();
        DS_TRY(round(record.rounds.back()));
    }
    while (spans_.has() && spans_.peek().step_id == id) record.spans.push_back(spans_.take());
    if (outlines_)
        outline(record);
    else
        restore_nesting(record.spans);
    sink_.push(std::move(record));
    return {};
}

/// Reads a step whose spans stay in the file.
void Replay::outline(StepRecord& record) {
    record.spans.reserve(spans_last_);
    while (outlines_->has() && outlines_->peek().step_id == record.step.id)
        record.spans.push_back(outlines_->take());
    spans_last_ = record.spans.size();
    record.phases.reserve(phases_last_);
    while (phases_.has() && phases_.peek().step_id == record.step.id) record.phases.push_back(phases_.take());
    phases_last_ = record.phases.size();
}

Status Replay::all_read() const {
    Status out;
    const auto drained = [&](const auto&... sources) { return ((out = check_drained(sources)).ok() && ...); };
    if (drained(prompts_, steps_, rounds_, nodes_, tops_, tokens_, spans_) &&
        (!outlines_ || drained(*outlines_)))
        drained(phases_, evals_);
    return out;
}

template <typename Row>
Status Replay::push_each() {
    Cursor<Row> cursor(db_, state_.after<Row>());
    while (cursor.has()) sink_.push(cursor.take());
    return check_source(cursor);
}

template <typename Row>
Status Replay::push_in_blocks() {
    constexpr std::size_t block_rows = 4096;
    Cursor<Row> cursor(db_, state_.after<Row>());
    while (cursor.has()) {
        std::vector<Row> block;
        while (cursor.has() && block.size() < block_rows) block.push_back(cursor.take());
        sink_.push(std::move(block));
    }
    return check_source(cursor);
}

Status Replay::side_tables() {
    DS_TRY(push_in_blocks<GpuOpRow>());
    DS_TRY(push_in_blocks<NvtxRangeRow>());
    DS_TRY(push_each<CounterRow>());
    DS_TRY(push_each<LossRow>());
    DS_TRY(push_each<NoteRow>());
    return note_dropped_tables();
}

Status Replay::note_dropped_tables() {
    if (!storage::has_table(db_, storage::dropped_table)) return {};
    return storage::for_each_row(
        path_, db_, "reading table gpu_counter",
        fmt::format("SELECT DISTINCT run_id FROM {}", storage::dropped_table), [&](storage::Statement& run) {
            if (state_.noted.insert(run.integer(0)).second)
                sink_.push(NoteRow{run.integer(0), 0, 0,
                                   "this version does not show hardware counters of GPUs; read table "
                                   "gpu_counter of the file with SQL, or measure with ncu"});
        });
}

/// Reads again the prompts that were incomplete at the last poll.
Status Replay::update_prompts() {
    if (state_.unfinished.empty()) return {};
    Cursor<PromptRow> cursor(db_, state_.unfinished.begin()->first - 1);
    while (cursor.has() && cursor.peek().id <= state_.after<PromptRow>()) {
        PromptRow row = cursor.take();
        const auto known = state_.unfinished.find(row.id);
        if (known == state_.unfinished.end()) continue;
        const PromptProgress now{row.id, row.output, row.generated_tokens, row.prefill_ns, {}};
        if (row.finish != Finish::none) {
            outputs_[row.id] = now;
            state_.unfinished.erase(known);
            sink_.push(PromptEnded{std::move(row)});
        } else if (now.output != known->second.output ||
                   now.generated_tokens != known->second.generated_tokens ||
                   now.prefill_ns != known->second.prefill_ns) {
            known->second = now;
            sink_.push(now);
        }
    }
    return check_source(cursor);
}

/// Returns a prompt's last read text, for tokens that follow it.
PromptProgress Replay::latest_progress(RowId prompt_id) const {
    if (const auto found = outputs_.find(prompt_id); found != outputs_.end()) return found->second;
    if (const auto found = state_.unfinished.find(prompt_id); found != state_.unfinished.end())
        return found->second;
    PromptProgress nothing;
    nothing.prompt_id = prompt_id;
    return nothing;
}

Status Replay::save_state() {
    for (const storage::TableText* table : storage::all_tables()) {
        if (!table->primary_key.empty()) continue;  // it has no rowids
        if (table->since > 1 && !storage::has_table(db_, table->name)) continue;
        storage::Statement newest = db_.prepare(fmt::format("SELECT max(rowid) FROM {}", table->name));
        if (!newest || newest.step() != SQLITE_ROW) return storage::file_error(path_, db_, "reading");
        RowId& mark = state_.newest[table->name];
        mark = std::max(mark, newest.integer(0));
    }
    return {};
}

class Follower final : public CaptureFollower {
  public:
    Follower(const std::string& path, storage::Database db, std::int64_t preload_limit)
        : path_(path), db_(std::move(db)), stored_(storage::open_on_disk_rows(path, db_, preload_limit)) {}

    std::shared_ptr<const OnDiskRows> stored() const override { return stored_; }
    bool live() const override { return state_.live; }
    Status poll(RecordSink& sink, const std::function<bool()>& should_continue) override {
        const std::int64_t version = db_.integer("PRAGMA data_version").value_or(-1);
        if (version >= 0 && version == data_version_) return {};
        // One read transaction gives a consistent view of a file that is being written. It ends with the
        // poll, because a longer one would keep the writer's log from being reused.
        if (db_.exec("BEGIN") != SQLITE_OK) return storage::file_error(path_, db_, "starting to read");
        Status done = Replay(path_, db_, sink, state_, stored_ == nullptr, should_continue).run();
        db_.exec("COMMIT");
        if (done.ok()) data_version_ = version;
        return done;
    }

  private:
    std::string path_;
    storage::Database db_;
    ReadState state_;
    std::int64_t data_version_ = -1;
    std::shared_ptr<const OnDiskRows> stored_;
};

class CaptureSink : public RecordSink {
  public:
    explicit CaptureSink(Capture& capture) : capture_(capture) {}
    void push(Record record) override { capture_.apply(record); }

  private:
    Capture& capture_;
};

}  // namespace

Status probe_capture(const std::string& path) {
    DS_ASSIGN(const storage::Database db, storage::open_capture(path, storage::OpenMode::unchecked));
    return {};
}

Result<std::vector<RunRow>> read_runs(const std::string& path) {
    DS_ASSIGN(const storage::Database db, storage::open_capture(path, storage::OpenMode::unchecked));
    std::vector<RunRow> runs;
    Cursor<RunRow> cursor(db);
    while (cursor.has()) runs.push_back(cursor.take());
    DS_TRY(storage::read_status(path, db, cursor));
    return runs;
}

Result<std::unique_ptr<CaptureFollower>> CaptureFollower::open(const std::string& path,
                                                               std::int64_t preload_limit) {
    DS_ASSIGN(storage::Database db, storage::open_capture(path));
    return std::unique_ptr<CaptureFollower>(std::make_unique<Follower>(path, std::move(db), preload_limit));
}

Status read_capture(const std::string& path, RecordSink& sink) {
    DS_ASSIGN(const auto file, CaptureFollower::open(path));
    return file->poll(sink);
}

Result<std::shared_ptr<const Snapshot>> load_capture(const std::string& path, std::int64_t preload_limit) {
    Capture capture;
    CaptureSink sink(capture);
    DS_ASSIGN(const auto file, CaptureFollower::open(path, preload_limit));
    capture.set_stored(file->stored());
    DS_TRY(file->poll(sink));
    capture.set_source(path);
    return std::make_shared<const Snapshot>(capture.snapshot(1));
}

}  // namespace draftscope
