#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "app/jobs/commands/commands.h"

namespace draftscope {
namespace {

std::string quoted(const std::string& text) {
    const auto plain = [](unsigned char c) {
        return std::isalnum(c) != 0 ||
               std::string_view("-_./:=,+@%").find(static_cast<char>(c)) != std::string_view::npos;
    };
    if (!text.empty() && std::all_of(text.begin(), text.end(), plain)) return text;
    std::string out = "'";
    for (const char c : text) {
        if (c == '\'') {
            out += "'\\''";
        } else {
            out += c;
        }
    }
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
    const auto text = [&](const char* flag, const std::string& value, const std::string& usual) {
        if (value != usual) line += fmt::format(" {} {}", flag, quoted(value));
    };
    const auto number = [&](const char* flag, auto value, auto usual) {
        if (value != usual) line += fmt::format(" {} {}", flag, value);
    };
    const auto flag = [&](const char* name, bool value) {
        if (value) line += fmt::format(" {}", name);
    };
    text("--model", config.model, defaults.model);
    line += " --drafter " + quoted(config.drafter);
    if (drafter.uses_head || !config.artefacts.empty()) line += " --head " + quoted(config.head);
    for (const std::string& artefact : config.artefacts) line += " --head-weights " + quoted(artefact);
    // The command line rejects options without effect.
    const bool sampled = config.temperature > 0, replayed = config.acceptance != defaults.acceptance;
    const bool spreads = (config.head + config.shadow).find("+rdk") != std::string::npos;
    if (drafter.drafts) text("--tree", config.tree, defaults.tree);
    if (sampled || spreads) text("--verify", config.verify, defaults.verify);
    number("--temperature", config.temperature, defaults.temperature);
    if (sampled) number("--top-p", config.top_p, defaults.top_p);
    if (sampled) number("--top-k", config.top_k, defaults.top_k);
    if (sampled || replayed) number("--seed", config.seed, defaults.seed);
    number("--max-new", config.max_new, defaults.max_new);
    number("--context", config.context, defaults.context);
    number("--batch", config.batch, defaults.batch);
    text("--backend", config.backend, defaults.backend);
    text("--numerics", config.numerics, defaults.numerics);
    flag("--no-gpu-graphs", !config.gpu_graphs);
    flag("--l2-window", config.l2_window);
    text("--simulate-acceptance", config.acceptance, defaults.acceptance);
    text("--precision", config.precision, defaults.precision);
    number("--threads", config.threads, defaults.threads);
    flag("--pin", config.pin);
    text("--tier", config.tier, defaults.tier);
    flag("--ignore-eos", config.ignore_eos);
    flag("--raw", config.raw);
    for (const std::string& one : config.template_switches) line += " --template " + quoted(one);
    text("--system", config.system, defaults.system);
    if (!config.prompts_file.empty()) {
        line += " --prompts " + quoted(config.prompts_file);
        number("--limit", config.limit, defaults.limit);
        flag("--balanced", config.balanced);
        if (!config.shard.whole())
            line += fmt::format(" --shard {}/{}", config.shard.index, config.shard.count);
    } else {
        line += " --prompt " + quoted(config.prompt);
    }
    if (config.baseline != short_baseline) number("--baseline", config.baseline, defaults.baseline);
    text("--shadow", config.shadow, defaults.shadow);
    number("--calibrate", config.calibration_rounds, defaults.calibration_rounds);
    for (const std::string& tag : config.tags) line += " --tag " + quoted(tag);
    text("--save", escape_pattern(config.save), defaults.save);
    flag("--overwrite", config.overwrite);
    number("--save-rows", config.save_rows, defaults.save_rows);
    number("--save-size", config.save_size, defaults.save_size);
    flag("--save-ring", config.save_ring);
    flag("--drop-when-full", config.drop_when_full);
    return line;
}

}  // namespace draftscope
