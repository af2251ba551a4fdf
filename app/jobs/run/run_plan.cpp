#include "app/jobs/run/run_plan.h"

#include <algorithm>
#include <filesystem>

#include "app/jobs/resolve/artefacts.h"
#include "base/cpus.h"
#include "base/log.h"
#include "capture/head_traits.h"
#include "capture/run_setting.h"
#include "engine/draft/registry.h"
#include "engine/heads/artefact.h"
#include "stats/bootstrap.h"

namespace draftscope {
namespace {

/// Time that a run of few conversations may take to follow its texts with the full head; our default.
constexpr TimeNs max_full_shadow_ns = 1000 * ns_per_ms;

void keep_window(std::vector<Conversation>& conversations, const RunHooks& hooks) {
    const auto first = std::min(static_cast<std::size_t>(hooks.first_conversation), conversations.size());
    conversations.erase(conversations.begin(), conversations.begin() + static_cast<std::ptrdiff_t>(first));
    if (hooks.conversations > 0 && conversations.size() > static_cast<std::size_t>(hooks.conversations))
        conversations.resize(hooks.conversations);
}

}  // namespace

Result<RunPlan> make_run_plan(const RunConfig& config, const RunHooks& hooks) {
    RunPlan plan;
    DS_ASSIGN(plan.run, resolve_run(config));
    DS_ASSIGN(PromptSet set, read_prompts(plan.run.config));
    plan.conversations = std::move(set.conversations);
    plan.total = set.total;
    plan.prompts_hash = std::move(set.hash);
    plan.notes = plan.run.notes;
    append_notes(plan.notes, set.notes);
    append_notes(plan.notes, thread_limit_notes(plan.run.config.threads));
    plan.bench = hooks.bench;
    plan.windowed = hooks.conversations > 0;
    keep_window(plan.conversations, hooks);
    return plan;
}

std::size_t RunPlan::prompts() const {
    std::size_t sum = 0;
    for (const Conversation& conversation : conversations) sum += conversation.turns.size();
    return sum;
}

std::optional<RunPlan> RunPlan::make_baseline() const {
    if (!find_drafter(run.drafter_id)->drafts) return std::nullopt;
    const bool free = run.config.baseline == short_baseline;
    // Higher tiers compare no speeds, and shards would differ in what they hold.
    if (free && (run.tier != Tier::t0 || !run.config.shard.whole())) return std::nullopt;
    RunPlan plain = *this;
    plain.baseline = true;
    plain.only_if_short = free;
    plain.total = std::min(total, free ? run.config.batch : run.config.baseline);
    std::erase_if(plain.conversations, [&](const Conversation& one) { return one.index >= plain.total; });
    std::erase_if(plain.skipped, [&](int index) { return index >= plain.total; });
    if (plain.conversations.empty()) return std::nullopt;
    ResolvedRun& settings = plain.run;
    settings.pair.clear();
    settings.drafter_id = plain_drafter;
    settings.drafter_path.clear();
    settings.head.reset();
    settings.artefacts = {};
    settings.forecasts.clear();
    settings.auto_tree = false;
    settings.acceptance.reset();
    RunConfig& config = settings.config;
    // With simulated acceptance the text is meaningless, so plain decoding ignores end-of-text tokens as
    // well.
    config.ignore_eos = config.ignore_eos || run.acceptance.has_value();
    config.acceptance = RunConfig().acceptance;
    config.drafter = plain_drafter;
    config.head = RunConfig().head;
    config.artefacts.clear();
    config.tree.clear();
    config.shadow.clear();
    config.calibration_rounds = 0;
    config.baseline = 0;
    if (!config.balanced && !config.prompts_file.empty()) config.limit = plain.total;
    return plain;
}

DecodeOptions RunPlan::decode_options(std::span<const ShadowHead> shadows) const {
    const RunConfig& config = run.config;
    DecodeOptions options;
    options.tree = run.tree;
    options.sampling = {config.temperature, config.top_p, config.top_k, config.seed};
    options.rule = run.rule();
    options.batch = config.batch;
    options.max_new = config.max_new;
    // With simulated acceptance the text is meaningless, including its end-of-text tokens.
    options.ignore_eos = config.ignore_eos || run.acceptance.has_value();
    // A full head as a shadow head measures more than a few calibration rounds.
    const bool has_full_shadow =
        std::any_of(shadows.begin(), shadows.end(), [](const ShadowHead& s) { return is_full_head(s.text); });
    options.calibration_rounds = has_full_shadow || run.acceptance ? 0 : config.calibration_rounds;
    // Fewer conversations have too few calibration rounds to compare with the full head.
    if (options.calibration_rounds > 0 && config.batch == 1 && total < static_cast<int>(min_conversations))
        options.full_shadow_ns = max_full_shadow_ns;
    options.shadows.assign(shadows.begin(), shadows.end());
    if (run.gpu && run.tier == Tier::t0) options.span_interval = device_span_interval;
    return options;
}

ConversationFeed::Settings RunPlan::feed_settings() const {
    return {.chat = chat,
            .first_turns = false,
            .whole_answers = run.config.batch > 1,
            .suite = std::filesystem::path(run.config.prompts_file).stem().string()};
}

Status warn_of_overlap(const RunPlan& plan) {
    if (!plan.run.head) return {};
    std::vector<std::string> hashes;
    for (const Conversation& conversation : plan.conversations) hashes.push_back(conversation.hash());
    const auto warn = [&](const ResolvedRun& run) {
        const std::string warning = overlap_warning(*run.head, run.artefacts, hashes, "the run");
        if (!warning.empty()) log_warning("{}", warning);
    };
    warn(plan.run);
    DS_ASSIGN(const std::vector<ResolvedShadow> shadows, resolve_shadows(plan.run));
    for (const ResolvedShadow& shadow : shadows) warn(shadow.run);
    return {};
}

}  // namespace draftscope
