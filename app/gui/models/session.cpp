#include "app/gui/models/session.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "app/gui/models/selection.h"
#include "base/format_count.h"
#include "base/parse.h"
#include "capture/head_traits.h"
#include "capture/run_setting.h"

namespace draftscope {
namespace {

constexpr int largest_count = 1024;

}  // namespace

std::optional<TreeFields> parse_tree(std::string_view spec) {
    if (spec.empty()) return std::nullopt;
    TreeFields fields;
    while (!spec.empty()) {
        const std::size_t comma = std::min(spec.find(','), spec.size());
        const std::string_view piece = spec.substr(0, comma);
        spec.remove_prefix(std::min(comma + 1, spec.size()));
        const std::size_t equals = piece.find('=');
        if (equals == std::string_view::npos) return std::nullopt;
        const std::string_view key = piece.substr(0, equals);
        const auto value = parse_number<int>(piece.substr(equals + 1));
        const auto field = key == "depth" || key == "chain" ? &TreeFields::depth
                           : key == "topk"                  ? &TreeFields::topk
                           : key == "nodes"                 ? &TreeFields::nodes
                                                            : nullptr;
        if (!value || *value < 1 || *value > largest_count || field == nullptr) return std::nullopt;
        fields.*field = *value;
        fields.chain |= key == "chain";
    }
    return fields;
}

std::string format_tree(const TreeFields& fields) {
    if (fields.chain) return fmt::format("chain={}", fields.depth);
    return fmt::format("depth={},topk={},nodes={}", fields.depth, fields.topk, fields.nodes);
}

int largest_tree(const TreeFields& fields) {
    if (fields.chain) return fields.depth + 1;
    // Level 0 proposes topk candidates, every later level topk * topk.
    return 1 + fields.topk + fields.depth * fields.topk * fields.topk;
}

std::optional<RecordedSettings> recorded_settings(const Snapshot& snapshot, RowId run_id) {
    const RunRow* run = snapshot.run(run_id);
    if (snapshot.source.empty() || run == nullptr) return std::nullopt;
    RecordedSettings settings;
    settings.title = "this file";
    if (snapshot.runs.size() > 1)
        settings.title += fmt::format(", run {} (one of {})", run->id, snapshot.runs.size());
    if (run->frontend == "import") {
        settings.title += ": " + run->name;
        settings.details = run->acceptance == imported_acceptance ? "rounds of another engine"
                                                                  : "another profiler's timeline";
        return settings;
    }
    settings.title += ": ";
    settings.title += run_drafting(*run, "  ");
    settings.details = fmt::format("{}, {}, {}, batch {}", short_name(run->target), run->precision,
                                   format_count(run->threads, "thread"), run->batch);
    settings.details += run->temperature == 0 ? std::string(", greedy")
                                              : fmt::format(", temperature {:g}, {}, seed {}",
                                                            run->temperature, run->verify, run->seed);
    return settings;
}

std::string memory_text(const RunRow& run) {
    const auto settings = nlohmann::json::parse(run.config_json, nullptr, false);
    const auto memory = settings.is_object() ? settings.value("memory", nlohmann::json()) : nlohmann::json();
    if (!memory.is_object()) return {};
    const auto gib = [&](const char* key) { return memory.value(key, 0.0) / (1024.0 * 1024.0 * 1024.0); };
    return fmt::format(
        "weights: {:.2f} GiB of the target, {:.2f} of the drafter; caches at {} positions: {:.2f} and {:.2f}",
        gib("target_weights"), gib("drafter_weights"), memory.value("positions", 0), gib("target_cache"),
        gib("drafter_cache"));
}

void adapt_to_model(RunConfig& config, bool needs_weights) {
    if (config.model.empty()) return;
    const bool has_path = config.drafter.find(':') != std::string::npos;
    if (needs_weights && !has_path) config.drafter = "suffix";
    if (config.artefacts.empty()) config.head = full_head_id;
    if (config.tree == "auto" || config.tree == quick_tree) config.tree.clear();
}

void set_head_weights(RunConfig& config, const std::string& head, const std::string& path) {
    std::erase_if(config.artefacts, [&](const std::string& file) { return file.starts_with(head + "="); });
    if (!path.empty()) config.artefacts.push_back(head + "=" + path);
}

std::string why_not_to_start(std::span<const Mistake> mistakes) {
    for (const Mistake& mistake : mistakes)
        if (!mistake.field.empty()) return mistake.field + ": " + mistake.message;
    return "";
}

std::string_view spec_name(std::string_view spec) {
    return spec.substr(0, std::min(spec.find(':'), spec.size()));
}

}  // namespace draftscope
