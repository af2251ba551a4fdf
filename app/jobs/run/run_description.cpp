#include <algorithm>
#include <filesystem>
#include <map>
#include <system_error>
#include <vector>

#include "app/jobs/commands/commands.h"
#include "app/jobs/run/choose_tree.h"
#include "app/jobs/run/run_plan.h"
#include "base/clock.h"
#include "base/fields.h"
#include "base/hash.h"
#include "base/numel.h"
#include "capture/run_setting.h"
#include "engine/draft/drafter_files.h"
#include "engine/draft/registry.h"
#include "engine/formats/gguf.h"
#include "engine/formats/synthetic_model.h"
#include "engine/heads/artefact.h"
#include "engine/heads/registry.h"
#include "kernels/backend.h"
#include "profiler/machine/machine.h"

namespace draftscope {

namespace {

/// Returns a hash of the contents of weights: 16 hexadecimal digits over samples of a file, or of every
/// weights file of a folder. For a synthetic model, returns its spec; "" if there is no path or it can't be
/// read.
std::string hash_contents(const std::string& path) {
    if (path.empty() || is_synthetic_model(path)) return path;
    namespace fs = std::filesystem;
    std::error_code error;
    std::vector<std::string> files;
    for (fs::directory_iterator at(path, error), end; !error && at != end; at.increment(error)) {
        const std::string kind = at->path().extension().string();
        if (kind == ".safetensors" || kind == ".bin" || kind == ".pt" || kind == ".gguf")
            files.push_back(at->path().string());
    }
    if (files.empty()) files = gguf_parts(path);
    std::sort(files.begin(), files.end());
    std::string hashes;
    for (const std::string& file : files) {
        const auto hash = checkpoint_hash(file);
        if (!hash.ok()) return {};
        hashes += *hash;
    }
    return files.size() == 1 ? hashes : fmt::format("{:016x}", fnv1a(hashes));
}

/// Returns the origin of a fitted head's weights; null for other heads.
nlohmann::json artefact_json(const ResolvedRun& run) {
    if (!run.head || run.artefacts.artefact_path.empty()) return nullptr;
    const auto artefact = required_artefact(*run.head, run.artefacts);
    if (!artefact.ok()) return nullptr;
    const ArtefactInfo& info = artefact->info();
    return {
        {"file", artefact->path()},
        {"trained", info.synthetic ? "random values"
                    : info.joint   ? "joint"
                                   : "post-hoc"},
        {"drafter_hash", info.drafter_hash},
        {"parameters", std::map<std::string, std::string>(info.parameters.begin(), info.parameters.end())},
        {"report", nlohmann::json::parse(info.report, nullptr, false)}};
}

/// Returns the bytes that a call streams in addition to scattered rows, for heads that read such rows.
nlohmann::json streamed_json(const ResolvedRun& run, const LmHead* head,
                             std::span<const ShadowHead> shadows) {
    nlohmann::json out = nlohmann::json::object();
    const auto add = [&](const std::string& name, const LmHead& one) {
        const HeadCost cost = one.cost(1);
        if (cost.scattered_bytes > 0) out[name] = cost.bytes - cost.scattered_bytes;
    };
    if (head != nullptr) add(to_text(*run.head), *head);
    for (const ShadowHead& shadow : shadows) add(shadow.text, *shadow.head);
    return out;
}

/// Returns what the window must know of the run's heads. The full head drafts in calibration rounds.
nlohmann::json traits_json(const ResolvedRun& run, const LmHead* head, std::span<const ShadowHead> shadows) {
    std::map<std::string, HeadTraits> traits;
    const auto add = [&](const HeadSpec& spec, const LmHead* one) {
        HeadTraits& known = traits[to_text(spec)] = capture_traits(spec);
        known.replay_estimate = one != nullptr && one->target_tokens().need_live_rounds();
    };
    if (head != nullptr) add(*run.head, head);
    if (head != nullptr) add({std::string(full_head_id), {}}, nullptr);
    for (const ShadowHead& shadow : shadows)
        if (const auto spec = parse_head_spec(shadow.text); spec.ok()) add(*spec, shadow.head);
    return nlohmann::json::parse(to_json(traits));
}

/// Returns a hash of the files that the run's head was made from; null if there are none.
nlohmann::json head_hash(const HeadFiles& files) {
    std::string text;
    for (const std::string* path : {&files.ranking_path, &files.artefact_path, &files.affinity_path})
        if (!path->empty()) text += (text.empty() ? "" : " ") + hash_contents(*path);
    return text.empty() ? nlohmann::json() : nlohmann::json(text);
}

/// Returns a hash of a drafter's files, with the options after the comma in PATH; null if there are none.
nlohmann::json drafter_hash(const std::string& path) {
    const std::string files = parse_drafter_path(path), hash = hash_contents(files);
    return hash.empty() ? nlohmann::json() : nlohmann::json(hash + path.substr(files.size()));
}

nlohmann::json tags_json(const std::vector<std::string>& tags) {
    nlohmann::json out = nlohmann::json::object();
    for (const std::string& tag : tags) {
        const std::size_t at = tag.find('=');
        out[tag.substr(0, at)] = at == std::string::npos ? "" : tag.substr(at + 1);
    }
    return out;
}

nlohmann::json known_or_null(const std::string& text) {
    return text.empty() ? nlohmann::json() : nlohmann::json(text);
}

/// Returns the switches of --template, or "none". A value of several words is hashed, as prompts are.
std::string template_text(const std::vector<std::string>& switches) {
    std::string out;
    for (const std::string& one : switches) {
        const std::size_t at = one.find('=') + 1;
        const bool words = one.find_first_of(" \t\n", at) != std::string::npos;
        out += (out.empty() ? "" : " ") +
               (words ? fmt::format("{}{:016x}", one.substr(0, at), fnv1a(one)) : one);
    }
    return out.empty() ? "none" : out;
}

/// Returns the bytes of a run's weights, and of the keys and values of all sequences at the full context.
nlohmann::json memory_json(const ModelCache& models, int batch) {
    const Target& target = models.target();
    const DrafterProperties& drafter = models.drafter().properties();
    const int positions = target.config().context;
    const int drafted = drafter.positions > 0 ? std::min(drafter.positions, positions) : positions;
    const std::size_t head = drafter.lm_head != nullptr ? drafter.lm_head->bytes() : 0;
    return {{"target_weights", target.weight_bytes()},
            {"drafter_weights", drafter.weight_bytes + drafter.feature_weight_bytes + head},
            {"target_cache",
             numel(positions, batch) * kv_bytes(kv_type_for(target.precision()), target.config().layers,
                                                target.shape().kv_width())},
            {"drafter_cache", numel(drafted, batch) * drafter.cache_bytes},
            {"positions", positions}};
}

/// Returns `config_json` of the run's database row.
std::string config_json(const RunPlan& plan, const ModelCache& models, const TierChoice& tier) {
    const ResolvedRun& run = plan.run;
    const LmHead* head = plan.baseline ? nullptr : models.head();
    const auto shadows = plan.baseline ? std::span<const ShadowHead>() : models.shadows();
    const RunConfig& c = run.config;
    const DrafterInfo drafter = drafter_traits(c.drafter);
    nlohmann::json document =
        write_fields(DS_FIELDS(RunConfig, model, drafter, head, temperature, top_p, top_k, seed, backend,
                               gpu_graphs, l2_window, acceptance, batch, pin, max_new, ignore_eos, raw,
                               system, prompts_file, limit, shadow, calibration_rounds),
                     c);
    document.update(
        {{"command", to_command_line(c, {drafter.drafts, drafter.uses_head})},
         {"model_hash", known_or_null(hash_contents(c.model))},
         {"drafter_hash", drafter_hash(run.drafter_path)},
         {"head_hash", run.head ? head_hash(run.artefacts) : nlohmann::json()},
         {"tokenizer_fingerprint", fmt::format("{:016x}", models.target().tokenizer()->fingerprint())},
         {"head_artefact", artefact_json(run)},
         {std::string(ranking_key), known_or_null(models.vocabulary().ranking)},
         {"head_streamed_bytes", streamed_json(run, head, shadows)},
         {head_traits_key, traits_json(run, head, shadows)},
         {"memory", memory_json(models, c.batch)},
         {"tree", to_text(run.tree)},
         {"tree_auto", run.auto_tree ? to_json(run.forecasts) : nlohmann::json()},
         {"verify", run.verify->text()},
         {std::string(losslessness_key), to_text(run.rule()->info().losslessness)},
         {"tier_asked", to_text(tier.requested)},
         {"tier_note", tier.why},
         {"span_interval", plan.decode_options(shadows).span_interval},
         {"template", template_text(c.template_switches)},
         {"system_hash", c.system.empty() ? "none" : fmt::format("{:016x}", fnv1a(c.system))},
         {"stratify", c.balanced},
         {std::string(shard_key),
          c.shard.whole() ? nlohmann::json() : write_fields(DS_FIELDS(Shard, index, count), c.shard)},
         {"conversations", plan.total},
         {skipped_key, plan.skipped.size()},
         {std::string(planned_prompts_key), plan.prompts() + plan.kept.reports.size()},
         {"prompts_hash", plan.prompts_hash},
         {"tags", tags_json(c.tags)}});
    if (!plan.bench.empty())
        document[std::string(bench_key)] = nlohmann::json::parse(plan.bench, nullptr, false);
    if (c.context > 0) document["context"] = c.context;
    if (plan.baseline) document[std::string(role_key)] = baseline_role;
    return document.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace

RunRow describe_run(const RunPlan& plan, const ModelCache& models, const TierChoice& tier,
                    const std::string& frontend, RowId id) {
    const ResolvedRun& run = plan.run;
    const RunConfig& config = run.config;
    kernels::Backend& backend = models.backend();
    RunRow row;
    row.id = id;
    row.started_monotonic = monotonic_ns() - plan.kept.duration;
    row.started_utc = plan.kept.parts.empty() ? utc_text(utc_ns()).text : plan.kept.started_utc;
    row.frontend = frontend;
    row.target = models.target().config().name;
    row.synthetic = is_synthetic_model(config.model);
    row.drafter = run.drafter_name();
    const bool drafts = find_drafter(run.drafter_id)->drafts;
    row.head = models.head() != nullptr && drafts ? to_text(*run.head) : std::string();
    row.tree = drafts ? to_text(run.tree) : std::string("none");
    row.name = row.head.empty() ? row.drafter : row.drafter + " x " + row.head;
    row.verify = run.verify->text();
    row.temperature = config.temperature;
    row.seed = config.seed;
    row.batch = config.batch;
    row.backend = config.backend;
    row.numerics = config.numerics;
    if (run.acceptance) row.acceptance = "replayed";
    row.threads = backend.pool().threads();
    row.precision = std::string(kernels::to_text(models.target().precision()));
    if (!backend.is_host() && backend.dtype() == kernels::Float16Kind::f16) row.precision = "f16";
    row.vocab_id = models.vocabulary().vocab->id;
    row.tier = std::string(to_text(tier.used));
    row.config_json = config_json(plan, models, tier);
    row.machine_json = to_json(models.machine());
    return row;
}

}  // namespace draftscope
