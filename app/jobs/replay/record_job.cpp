#include "app/jobs/replay/record_job.h"

#include <algorithm>
#include <filesystem>
#include <map>

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

}  // namespace

Result<RecordReport> run_record(const RecordConfig& config, const JobHooks& hooks) {
    if (config.batch < 1 || config.batch > max_batch)
        return bad_input("--batch {}: must be 1 to {}", config.batch, max_batch);
    RunConfig run_config = config.run;
    run_config.drafter = plain_drafter;
    run_config.head = full_head_id;
    DS_ASSIGN(const ResolvedRun run, resolve_run(run_config));
    DS_ASSIGN(PromptSet prompts, read_prompts(run.config));
    std::vector<Conversation>& conversations = prompts.conversations;
    say_notes(thread_limit_notes(run.config.threads));
    const auto backend = kernels::make_cpu_backend(threads_or_default(run.config.threads));
    DS_ASSIGN(const WeightCacheOptions cache, weight_cache_options());
    DS_ASSIGN(const auto target, Target::load(run.config.model, *backend, run.load_precision(),
                                              hooks.on_progress, cache, run.config.context));
    if (target->tokenizer() == nullptr) return bad_input("--model {}: has no tokenizer", run.config.model);
    DS_ASSIGN(const ChatTemplate chat, choose_chat(*target, run.config, conversations, prompts.notes));
    DS_ASSIGN(const std::vector<int> skipped,
              ConversationFeed::drop_unusable(*target, chat, conversations, false, prompts.notes));

    RecordingInfo info;
    info.source = config.source;
    info.target = describe_target(*target);
    info.sampling = {run.config.temperature, run.config.top_p, run.config.top_k, run.config.seed};
    info.max_new = run.config.max_new;
    info.ignore_eos = run.config.ignore_eos;
    info.raw = run.config.raw;
    info.template_switches = run.config.template_switches;
    info.skipped = static_cast<int>(skipped.size());
    info.shard_index = run.config.shard.index;
    info.shard_count = run.config.shard.count;
    info.backend = "cpu";
    info.isa = std::string(kernels::to_text(backend->pool().isa()));
    info.precision = std::string(kernels::to_text(target->precision()));
    DS_ASSIGN(info.aux_layers, aux_layers(config.aux, info.target.layers));
    DS_ASSIGN(const auto writer, RecordingWriter::create(config.out, info, config.overwrite));

    RunHooks feed_hooks;
    feed_hooks.on_progress = hooks.on_progress;
    ConversationFeed feed(
        *target, conversations,
        {.chat = chat, .suite = std::filesystem::path(run.config.prompts_file).stem().string()}, feed_hooks,
        "recording prompt");
    const std::map<int, std::string> hashes = prompt_hashes(conversations);
    RecordOptions options;
    options.hash = [&](const PromptInput& prompt) { return hashes.at(*prompt.ordinal); };
    options.batch = config.batch;
    options.cancelled = hooks.cancelled;
    RecordReport report;
    report.notes = run.notes;
    append_notes(report.notes, target->notes());
    append_notes(report.notes, prompts.notes);
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
    append_notes(report.notes, feed.notes());
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
