#include "app/jobs/replay/record_job.h"

#include <algorithm>
#include <filesystem>
#include <map>

#include "app/jobs/replay/given_texts.h"
#include "app/jobs/resolve/assets.h"
#include "app/jobs/resolve/resolve.h"
#include "app/jobs/run/conversation_feed.h"
#include "app/jobs/run/prompt_file.h"
#include "base/clock.h"
#include "base/cpus.h"
#include "base/parse.h"
#include "capture/head_traits.h"
#include "capture/run_setting.h"
#include "engine/heads/artefact.h"
#include "engine/recording/record_decode.h"

namespace draftscope {
namespace {

/// Returns EAGLE-3's published layers. For targets with fewer than six layers they are spread evenly, and a
/// layer may occur twice.
std::vector<int> default_aux_layers(int layers) {
    if (layers >= 6) return {2, layers / 2, layers - 3};
    return {std::min(1, layers - 1), layers / 2, layers - 1};
}

Result<std::vector<int>> aux_layers(const std::string& text, int layers) {
    if (text == "none") return std::vector<int>();
    if (text.empty()) return default_aux_layers(layers);
    auto out = parse_numbers(text, ',', 0, layers);
    if (!out)
        return bad_input("--aux {}: expected layer numbers of 0 to {}, as in 2,15,27, or none", text, layers);
    return std::move(*out);
}

/// Returns prompt_hash() of each prompt of the run, by ordinal.
std::map<int, std::string> prompt_hashes(const std::vector<Conversation>& conversations) {
    std::map<int, std::string> hashes;
    for (const Conversation& one : conversations)
        for (std::size_t turn = 0; turn < one.turns.size(); ++turn)
            hashes[one.first_ordinal + static_cast<int>(turn)] = one.hash();
    return hashes;
}

/// What is recorded: conversations that the target decodes, or given texts that it follows.
struct RecordedPrompts {
    PromptSet set;
    ChatTemplate chat;
    std::optional<GivenTexts> given;
    std::map<int, std::string> hashes;  ///< by ordinal
};

/// Makes the prompts usable for the target, and describes them in `info`.
Status prepare(const RecordConfig& config, const RunConfig& run, const Target& target,
               RecordedPrompts& prompts, RecordingInfo& info) {
    const std::string& ids = config.ids;
    info.sampling = {run.temperature, run.top_p, run.top_k, run.seed};
    info.max_new = run.max_new;
    info.ignore_eos = run.ignore_eos;
    info.raw = run.raw;
    info.template_switches = run.template_switches;
    info.shard_index = run.shard.index;
    info.shard_count = run.shard.count;
    if (ids.empty()) {
        std::vector<Conversation>& conversations = prompts.set.conversations;
        DS_ASSIGN(prompts.chat, choose_chat(target, run, conversations, prompts.set.notes));
        DS_ASSIGN(
            const std::vector<int> skipped,
            ConversationFeed::drop_unusable(target, prompts.chat, conversations, false, prompts.set.notes));
        info.skipped = static_cast<int>(skipped.size());
        prompts.hashes = prompt_hashes(conversations);
        return {};
    }
    DS_ASSIGN(prompts.given, read_given_texts(ids, target, config.part));
    const GivenTexts& given = *prompts.given;
    append_notes(prompts.set.notes, given.notes);
    prompts.hashes = given.hashes;
    info.sampling = given.sampling;
    info.max_new = given.longest();
    info.raw = given.raw;
    info.template_switches = given.template_switches;
    info.skipped = given.refused;
    info.given = GivenAgreement{std::filesystem::path(ids).filename().string()};
    return {};
}

/// Returns how often the target's best token is the given one, in words.
std::string agreement_text(const GivenAgreement& given) {
    const std::int64_t others = given.tokens - given.agreed;
    return fmt::format(
        "the target's best token is the given one at {:.1f} % of {} positions{}",
        100.0 * static_cast<double>(given.agreed) / static_cast<double>(given.tokens), given.tokens,
        others == 0
            ? ""
            : fmt::format("; {} differ, by at most {:.3g} in log-probability", others, given.largest_gap));
}

/// Adds how far the target agrees with the texts that it followed.
void add_agreement(const RecordingInfo& info, Notes& notes) {
    if (!info.given || info.given->tokens == 0) return;
    Notes found = {agreement_text(*info.given)};
    if (2 * info.given->agreed < info.given->tokens)
        add_note(found, "{}: most of its tokens are not the target's best; was it decoded by {}?",
                 info.given->file, info.target.name);
    say_notes(found);
    append_notes(notes, found);
}

}  // namespace

Result<RecordReport> run_record(const RecordConfig& config, const JobHooks& hooks) {
    if (config.batch < 1 || config.batch > max_batch)
        return bad_input("--batch {}: must be 1 to {}", config.batch, max_batch);
    RunConfig run_config = config.run;
    run_config.drafter = plain_drafter;
    run_config.head = full_head_id;
    if (!config.ids.empty()) run_config.prompt = "given";
    DS_ASSIGN(const ResolvedRun run, resolve_run(run_config));
    RecordedPrompts prompts;
    if (!config.ids.empty() && !std::filesystem::is_regular_file(config.ids))
        return bad_input("--ids {}: no such file", config.ids);
    if (config.ids.empty()) {
        DS_ASSIGN(prompts.set, read_prompts(run.config));
    }
    say_notes(thread_limit_notes(run.config.threads));
    const auto backend = kernels::make_cpu_backend(threads_or_default(run.config.threads));
    DS_ASSIGN(const WeightCacheOptions cache, weight_cache_options());
    DS_ASSIGN(const auto target, Target::load(run.config.model, *backend, run.load_precision(),
                                              hooks.on_progress, cache, run.config.context));
    if (target->tokenizer() == nullptr) return bad_input("--model {}: has no tokenizer", run.config.model);

    RecordingInfo info;
    info.source = config.source;
    info.target = describe_target(*target);
    info.backend = "cpu";
    info.isa = std::string(kernels::to_text(backend->pool().isa()));
    info.precision = std::string(kernels::to_text(target->precision()));
    DS_ASSIGN(info.aux_layers, aux_layers(config.aux, info.target.layers));
    DS_TRY(prepare(config, run.config, *target, prompts, info));
    DS_ASSIGN(const auto writer, RecordingWriter::create(config.out, info, config.overwrite));

    RunHooks feed_hooks;
    feed_hooks.on_progress = hooks.on_progress;
    ConversationFeed decoded(
        *target, prompts.set.conversations,
        {.chat = prompts.chat, .suite = std::filesystem::path(run.config.prompts_file).stem().string()},
        feed_hooks, "recording prompt");
    std::optional<GivenFeed> followed;
    RecordOptions options;
    if (prompts.given) {
        followed.emplace(*prompts.given, hooks);
        options.given = [&](const PromptInput& prompt) { return &prompts.given->texts.at(*prompt.ordinal); };
    }
    PromptFeed& feed = followed ? static_cast<PromptFeed&>(*followed) : decoded;
    options.hash = [&](const PromptInput& prompt) { return prompts.hashes[*prompt.ordinal]; };
    options.batch = config.batch;
    options.cancelled = hooks.cancelled;
    RecordReport report;
    report.notes = run.notes;
    append_notes(report.notes, target->notes());
    append_notes(report.notes, prompts.set.notes);
    say_notes(report.notes);
    const TimeNs start = monotonic_ns();
    if (const Status recorded = record_decode(*target, *backend, feed, options, *writer); !recorded.ok()) {
        const Error& error = recorded.error();
        writer->info().complete = false;
        if (writer->prompts() == 0 || !writer->finish().ok()) return error;
        return Error{error.kind, fmt::format("{}; {} has the {} complete turns before it", error.message,
                                             config.out, writer->prompts())};
    }
    report.seconds = seconds(monotonic_ns() - start);
    append_notes(report.notes, decoded.notes());
    add_agreement(writer->info(), report.notes);
    if (writer->prompts() == 0) return Error{ErrorKind::cancelled, "stopped before the first token"};
    if (config.times && writer->info().complete) {
        hooks.report(-1, "measuring verification");
        DS_ASSIGN(writer->info().verify_ns, measure_verify(*target, 256));
    }
    DS_TRY(writer->finish());
    report.info = writer->info();
    for (const RecordedPrompt& prompt : report.info.prompts) report.generated += prompt.generated_tokens;
    return report;
}

}  // namespace draftscope
