#include "app/jobs/run/earlier_runs.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include "app/jobs/run/pool.h"
#include "capture/head_traits.h"
#include "capture/run_setting.h"
#include "storage/capture_file.h"

namespace draftscope {
namespace {

namespace fs = std::filesystem;

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
            outcome.drafted += round.round.drafted;
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
