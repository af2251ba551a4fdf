#include "app/jobs/commands/commands.h"

#include <algorithm>
#include <cctype>

#include "base/fields.h"

namespace draftscope {
namespace {

std::string quoted(const std::string& text) {
    const auto plain = [](unsigned char c) {
        return std::isalnum(c) != 0 ||
               std::string_view("-_./:=,+@%").find(static_cast<char>(c)) != std::string_view::npos;
    };
    if (!text.empty() && std::all_of(text.begin(), text.end(), plain)) return text;
    std::string out = "'";
    for (const char c : text) out += c == '\'' ? "'\\''" : std::string(1, c);
    return out + "'";
}

/// Returns the value of --save that names this file.
std::string escape_pattern(const std::string& path) {
    std::string out;
    for (const char c : path) out.append(c == '%' ? 2 : 1, c);
    return out;
}

}  // namespace

std::string why_not(const HeadChoice& head, const std::string& drafter) {
    const auto found = head.lacking.find(drafter);
    return found == head.lacking.end() ? head.why_not : found->second;
}

DrafterTraits find_traits(const std::vector<DrafterChoice>& choices, const std::string& drafter) {
    for (const DrafterChoice& choice : choices)
        if (choice.spec == drafter.substr(0, drafter.find(':'))) return choice.traits;
    return {};
}

std::string to_command_line(const RunConfig& config, DrafterTraits drafter) {
    const RunConfig defaults;
    std::string line = "draftscope run";
    const auto add_one = [&](const auto& option) {
        const auto& value = config.*option.get;
        if (value == defaults.*option.get) return;
        using Value = std::decay_t<decltype(value)>;
        std::string name = option.key;
        std::ranges::replace(name, '_', '-');
        line += fmt::format(" --{}", name);
        if constexpr (std::is_same_v<Value, std::string>)
            line += fmt::format(" {}", quoted(value));
        else if constexpr (!std::is_same_v<Value, bool>)
            line += fmt::format(" {}", value);
    };
    const auto add = [&](const auto& options) {
        std::apply([&](const auto&... one) { (add_one(one), ...); }, options);
    };
    const auto add_each = [&](const char* option, const std::vector<std::string>& values) {
        for (const std::string& value : values) line += fmt::format(" {} {}", option, quoted(value));
    };
    add(DS_FIELDS(RunConfig, model));
    line += " --drafter " + quoted(config.drafter);
    if (drafter.uses_head || !config.artefacts.empty()) line += " --head " + quoted(config.head);
    add_each("--head-weights", config.artefacts);
    // The command line rejects options without effect.
    const bool sampled = config.temperature > 0, replayed = config.acceptance != defaults.acceptance;
    const bool spreads = (config.head + config.shadow).find("+rdk") != std::string::npos;
    if (drafter.drafts) add(DS_FIELDS(RunConfig, tree));
    if (sampled || spreads) add(DS_FIELDS(RunConfig, verify));
    add(DS_FIELDS(RunConfig, temperature));
    if (sampled) add(DS_FIELDS(RunConfig, top_p, top_k));
    if (sampled || replayed) add(DS_FIELDS(RunConfig, seed));
    add(DS_FIELDS(RunConfig, max_new, context, batch, backend, numerics));
    if (!config.gpu_graphs) line += " --no-gpu-graphs";
    add(join(DS_FIELDS(RunConfig, l2_window), field("simulate-acceptance", &RunConfig::acceptance),
             DS_FIELDS(RunConfig, precision, threads, pin, tier, ignore_eos, raw)));
    add_each("--template", config.template_switches);
    add(DS_FIELDS(RunConfig, system));
    if (!config.prompts_file.empty()) {
        line += " --prompts " + quoted(config.prompts_file);
        add(DS_FIELDS(RunConfig, limit, balanced));
        if (!config.shard.whole())
            line += fmt::format(" --shard {}/{}", config.shard.index, config.shard.count);
    } else {
        line += " --prompt " + quoted(config.prompt);
    }
    if (config.baseline != short_baseline) add(DS_FIELDS(RunConfig, baseline));
    add(join(DS_FIELDS(RunConfig, shadow), field("calibrate", &RunConfig::calibration_rounds)));
    add_each("--tag", config.tags);
    if (!config.save.empty()) line += " --save " + quoted(escape_pattern(config.save));
    add(DS_FIELDS(RunConfig, overwrite, save_rows, save_size, save_ring, drop_when_full));
    return line;
}

CompareReport make_compare_report(const CompareChoice& choice, const Snapshot& a, const Snapshot& b) {
    CompareReport out;
    out.choice = choice;
    out.rounds_a = a.rounds.size();
    out.rounds_b = b.rounds.size();
    CompareOptions options;
    options.force = choice.force;
    auto compared = compare_runs(a, choice.a.run_id, b, choice.b.run_id, options);
    if (compared.ok()) {
        out.comparison = std::move(*compared);
        for (std::string& warning : out.comparison->warnings) warning = to_window_words(warning);
        return out;
    }
    out.refusal = to_window_words(compared.error().message);
    const RunRow* first = a.run(choice.a.run_id);
    const RunRow* second = b.run(choice.b.run_id);
    out.may_force = !choice.force && first != nullptr && second != nullptr &&
                    !forbidding_text(run_differences(*first, *second)).empty();
    return out;
}

}  // namespace draftscope
