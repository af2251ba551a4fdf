#include "app/jobs/run/run_file.h"

#include <filesystem>
#include <map>
#include <set>
#include <utility>

#include "app/jobs/run/pool.h"
#include "capture/head_traits.h"
#include "capture/run_setting.h"

namespace draftscope {
namespace {

namespace fs = std::filesystem;

void remove_capture(const std::string& path) {
    std::error_code ignored;
    for (const char* suffix : {"", "-wal", "-shm"}) fs::remove(path + suffix, ignored);
}

/// Returns what the prompts of a run decoded, in the order in which they began.
std::vector<PromptReport> make_reports(const RunRecords& run) {
    std::vector<PromptReport> reports;
    std::map<RowId, std::size_t> places;
    for (const PromptRow& prompt : run.prompts()) {
        places[prompt.id] = reports.size();
        PromptReport& report =
            reports.emplace_back(PromptReport{prompt.external_id, prompt.category, prompt.ordinal, {}});
        report.outcome.text = prompt.output;
        report.outcome.prompt_tokens = prompt.prompt_tokens;
        report.outcome.prefill_ns = prompt.prefill_ns;
        report.outcome.finish = prompt.finish;
    }
    const auto add_tokens = [&](const std::vector<TokenRow>& tokens) {
        for (const TokenRow& token : tokens)
            reports[places.at(token.prompt_id)].outcome.tokens.push_back(token.token_id);
    };
    for (const Record& record : run.steps) {
        if (const auto* first = std::get_if<PromptProgress>(&record)) add_tokens(first->tokens);
        const auto* step = std::get_if<StepRecord>(&record);
        if (step == nullptr) continue;
        for (const RoundRecord& round : step->rounds) {
            add_tokens(round.tokens);
            PromptOutcome& outcome = reports[places.at(round.round.prompt_id)].outcome;
            ++outcome.rounds;
            outcome.draft_tokens += round.round.draft_tokens;
            outcome.accepted += round.round.accepted;
            outcome.committed += round.round.committed;
        }
    }
    return reports;
}

/// Returns the conversations of the plan that the run completed, as the ordinals of their first turns.
std::set<int> complete_conversations(const RunRecords& run, const RunPlan& plan) {
    std::map<int, const PromptRow*> by_ordinal;
    const std::vector<PromptRow> prompts = run.prompts();
    for (const PromptRow& prompt : prompts) by_ordinal[prompt.ordinal] = &prompt;
    std::set<int> complete;
    for (const Conversation& one : plan.conversations) {
        bool whole = true, full = false;
        for (int turn = 0; turn < static_cast<int>(one.turns.size()) && whole && !full; ++turn) {
            const auto found = by_ordinal.find(one.first_ordinal + turn);
            const Finish finish = found == by_ordinal.end() ? Finish::none : found->second->finish;
            full = finish == Finish::context;  // the conversation ends there
            whole = full || finish == Finish::eos || finish == Finish::length;
        }
        if (whole) complete.insert(one.first_ordinal);
    }
    return complete;
}

}  // namespace

Status RunFile::open() {
    WriterOptions options;
    options.overwrite = config_.overwrite || config_.resume;  // with --resume, only an empty file is replaced
    options.max_rows = config_.save_rows;
    options.max_bytes = static_cast<std::int64_t>(config_.save_size);
    options.file_full_policy = config_.save_ring ? FileFullPolicy::ring : FileFullPolicy::stop;
    options.queue_full_policy = config_.drop_when_full ? QueueFullPolicy::drop : QueueFullPolicy::wait;
    DS_ASSIGN(writer_, CaptureWriter::create(config_.save, options));
    writer_->set_unbounded_push();
    return {};
}

Status RunFile::prepare() {
    std::error_code ignored;
    const bool replaces = config_.overwrite && fs::exists(config_.save, ignored);
    const bool continues = config_.resume && !EarlierRuns::find(config_.save).empty();
    return config_.save.empty() || replaces || continues ? Status() : open();
}

Status RunFile::start() {
    if (config_.save.empty()) return {};  // the caller of the run may have attached a file of its own
    if (config_.resume && !writer_) DS_TRY(keep_earlier());
    if (!writer_) DS_TRY(open());
    recorder_.set_storage(writer_.get());
    started_ = attached_ = true;
    return {};
}

Status RunFile::keep_earlier() {
    const std::string kept = EarlierRuns::kept_name(config_.save);
    std::error_code error;
    if (EarlierRuns::find(config_.save) == kept) {
        remove_capture(config_.save);  // a copy that was not finished
    } else {
        fs::rename(config_.save, kept, error);
        if (error) return bad_input("{}: can't be renamed to {}: {}", config_.save, kept, error.message());
    }
    earlier_ = kept;
    return {};
}

void RunFile::release_earlier() {
    if (earlier_.empty()) return;
    recorder_.flush();
    if (!writer_->flush().ok()) return;  // the disk is full, for example: the earlier file stays
    remove_capture(earlier_);
    earlier_.clear();
}

void RunFile::close(RunReport& report) {
    if (std::exchange(attached_, false)) {
        recorder_.set_storage(nullptr);
        recorder_.flush();
    }
    if (!writer_) return;
    const Status closed = writer_->close();
    const std::string path = writer_->path();
    const WriterStats stats = writer_->stats();
    const bool kept = started_ && stats.rows > 0 && earlier_.empty();
    if (kept && writer_->owns_name()) report.capture = path;
    if (!kept) writer_->remove_file();
    writer_.reset();
    if (!closed.ok())
        report.storage_error = kept || stats.error.empty()
                                   ? closed.error().message
                                   : fmt::format("{}: nothing was recorded: {}", path, stats.error);
    for (const auto& [kind, count] : {std::pair{loss_queue_full, stats.lost_queue},
                                      {loss_limit, stats.lost_limit},
                                      {loss_ring, stats.dropped_ring},
                                      {loss_error, stats.lost_error},
                                      {loss_vocabulary, stats.lost_vocabulary}})
        if (count > 0) report.storage_losses.push_back({0, 0, std::string(kind), count});
    if (earlier_.empty()) return;
    std::error_code ignored;
    if (!fs::exists(path, ignored)) fs::rename(earlier_, path, ignored);
    if (fs::exists(path, ignored)) report.capture = path;
    earlier_.clear();
}

Notes RunFile::notes() const {
    return writer_ ? writer_->notes() : Notes();
}

RunFile::~RunFile() {
    RunReport ignored;
    close(ignored);
}

std::string EarlierRuns::find(const std::string& save) {
    if (save.empty()) return {};
    std::error_code ignored;
    for (const std::string& name : {kept_name(save), save})
        if (fs::exists(name, ignored) && fs::file_size(name, ignored) > 0) return name;
    return {};
}

Result<EarlierRuns> EarlierRuns::read(const std::string& path) {
    DS_TRY(repair_capture(path));
    EarlierRuns out;
    DS_ASSIGN(out.runs_, read_run_records(path));
    return out;
}

void EarlierRuns::keep_choice(RunConfig& config) const {
    for (const RunRecords& one : runs_) {
        const RunRow& run = one.started.run;
        if (is_baseline(run)) continue;
        const bool drafts = run.drafter != plain_drafter;
        if (!drafts) config.drafter = plain_drafter;
        config.tree = drafts ? run.tree : std::string();
        config.head = run.head.empty() ? std::string(full_head_id) : run.head;
        return;
    }
}

Status EarlierRuns::take(const RunRow& row, RunPlan& plan) const {
    const RunPart now = describe_part(row);
    for (const RunRecords& run : runs_) {
        const RunPart part = describe_part(run.started.run);
        if (part.role != now.role) continue;
        std::string difference = part_difference(run.started.run, row);
        if (difference.empty() && part.shard != now.shard)
            difference = fmt::format("shard ({}/{} and {}/{})", part.shard.index, part.shard.count,
                                     now.shard.index, now.shard.count);
        if (!difference.empty())
            return bad_input(
                "--resume: {} can't be continued: it differs from this command in {}; give the same "
                "settings, "
                "or another name for --save",
                run.file, difference);
        const std::set<int> complete = complete_conversations(run, plan);
        if (complete.empty()) continue;
        RunRecords kept = run;
        kept.keep_conversations(complete);
        std::erase_if(plan.conversations,
                      [&](const Conversation& one) { return complete.contains(one.first_ordinal); });
        for (PromptReport& report : make_reports(kept)) plan.kept.reports.push_back(std::move(report));
        if (plan.kept.parts.empty()) plan.kept.started_utc = kept.started.run.started_utc;
        plan.kept.duration += kept.end_ns;
        plan.kept.conversations += complete.size();
        plan.kept.parts.push_back(std::move(kept));
    }
    return {};
}

}  // namespace draftscope
